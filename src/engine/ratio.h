/* engine/ratio.h - weights y_i = [f_i]+ / (sum_j |f_j| + extra), f_i = f(x_i), for any f: an
 * operator gives f and its derivative, and ratio.tmpl.h makes its kernels.
 *
 * An element of -inf does not exist. f may be scaled by any power of two, so that nothing
 * overflows; `extra` is scaled the same way. Gradient, from x again: dx_i = f'(x_i) / S
 * ([f_i > 0] dy_i - sgn(f_i) D) with D = sum_j y_j dy_j, sgn(0) = -1. */
#ifndef SMX_ENGINE_RATIO_H
#define SMX_ENGINE_RATIO_H
#include "reduce_map.h"

/* Of consts.v; those before are the operator's. ONE: an f that is all of the sum. EVEN: what every
 * element gets when the sum is 0. SCALE: what x was multiplied by before f and its derivative were
 * taken. */
enum { RATIO_INV = 8, RATIO_ONE, RATIO_EVEN, RATIO_DOT, RATIO_SCALE };

typedef vreal ratio_fn(vreal x, const consts *k);

/* An eps with no number below it is 0: what it is divided by has to be normal. */
SMI real ratio_eps(double eps) { return eps > (double)R_TINY ? (real)eps : 0; }

/* Constants that follow from the sums. */
SMI void ratio_finalize(consts *k, const reduce_map_row *r, real scale, double extra) {
  double sum = r->sum + extra;
  k->v[RATIO_INV] = sum > 0 ? (real)(1 / sum) : 0;
  k->v[RATIO_ONE] = sum > 0 ? (real)sum : R_INF;
  k->v[RATIO_EVEN] = 0;
  k->v[RATIO_SCALE] = scale;
  k->v[RATIO_DOT] = sum > 0 ? (real)(r->sum2 / sum) : 0;
}

/* Larger than all |x| of the row but at most 2 of it: 2^(e + 1), e at most EXP_BIAS - 1. */
SMI int ratio_exponent(real largest) {
  int e = r_exponent(largest);
  return e < EXP_BIAS - 1 ? e : EXP_BIAS - 1;
}
SMI real ratio_magnitude(const reduce_map_row *r) {
  return (r->max > -r->low ? r->max : -r->low) + 0;
} /* never -0 */

/* sum * 2^e for any whole e: 0 or inf where that is out of range. */
SMI double ratio_scaled(double sum, int e) {
  if (e <= 0) return d_scale(sum, e);
  return sum > 0 ? sum / d_scale(1, -e) : 0;
}

SMI vreal ratio_at(const span *s, const consts *k, ratio_fn *f, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt);
  if (cnt < LANES) x = v_select(lanes_below(cnt), x, v_set1(-R_INF));
  return v_select(v_lt(v_set1(-R_INF), x), f(x, k), v_set1(0));
}
SMI void ratio_add(const span *s, const consts *k, ratio_fn *f, size_t i, int cnt, reduce_map_acc *acc) {
  acc->a = v_add(acc->a, v_abs(ratio_at(s, k, f, i, cnt)));
}
/* No f and no sum overflows, so a weight is a number above or at 0. */
SMI vreal ratio_value(const span *s, const consts *k, ratio_fn *f, size_t i, int cnt) {
  vreal y = v_max(ratio_at(s, k, f, i, cnt), v_set1(0)), w = v_mul(y, v_set1(k->v[RATIO_INV]));
  if (k->v[RATIO_EVEN] != 0)
    w = v_select(v_lt(v_set1(-R_INF), at(s->src[0], i, cnt)), v_set1(k->v[RATIO_EVEN]), v_set1(0));
  return v_select(v_eq(y, v_set1(k->v[RATIO_ONE])), v_set1(1), v_flush(w, w, v_set1(R_TINY)));
}
/* Values that are kept; -inf stands for an element that does not exist. */
SMI void ratio_keep(const span *s, const consts *k, ratio_fn *f, bool whole, size_t i, int cnt,
                    reduce_map_acc *acc) {
  const vreal x = at(s->src[0], i, cnt), y = f(x, k);
  const vmask in = lanes_below(cnt), live = whole ? in : m_and(v_lt(v_set1(-R_INF), x), in);
  const bool all = whole && cnt == LANES;
  acc->a = v_add(acc->a, all ? v_abs(y) : v_select(live, v_abs(y), v_set1(0)));
  put(s->dst[0], i, cnt, all ? y : v_select(live, y, v_set1(-R_INF)));
}
SMI vreal ratio_kept_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const vreal f = at(s->src[SRC_Y], i, cnt), y = v_max(f, v_set1(0));
  vreal w = v_mul(y, v_set1(k->v[RATIO_INV]));
  if (k->v[RATIO_EVEN] != 0) w = v_select(v_lt(v_set1(-R_INF), f), v_set1(k->v[RATIO_EVEN]), v_set1(0));
  return v_select(v_eq(y, v_set1(k->v[RATIO_ONE])), v_set1(1), v_flush(w, w, v_set1(R_TINY)));
}
REDUCE_MAP_VALUES_OF(ratio_kept, ratio_kept_value)
SMI bool ratio_whole(const span *s, const reduce_map_row *r) { return r->valid == (double)s->n; }

SMI vreal ratio_upstream(const span *s, vreal f, size_t i, int cnt) {
  return v_select(v_lt(v_set1(0), f), at(s->src[SRC_DY], i, cnt), v_set1(0));
}
SMI void ratio_grad_add(const span *s, const consts *k, ratio_fn *f, size_t i, int cnt, reduce_map_acc *acc) {
  vreal y = ratio_at(s, k, f, i, cnt);
  acc->a = v_add(acc->a, v_abs(y));
  acc->b = v_fma(ratio_upstream(s, y, i, cnt), y, acc->b);
}
SMI vreal ratio_grad_value(const span *s, const consts *k, ratio_fn *f, ratio_fn *slope, size_t i, int cnt) {
  vreal y = ratio_at(s, k, f, i, cnt), dot = v_set1(k->v[RATIO_DOT]), zero = v_set1(0);
  vreal away = v_sub(ratio_upstream(s, y, i, cnt), v_select(v_lt(zero, y), dot, v_sub(zero, dot)));
  return v_mul(v_mul(ratio_at(s, k, slope, i, cnt), v_set1(k->v[RATIO_INV])), away);
}
/* A gradient by x; where it is out of range, the largest number there is. */
SMI vreal ratio_unscaled(vreal dx, const consts *k) {
  vreal y = v_mul(dx, v_set1(k->v[RATIO_SCALE])), most = v_set1(R_MAX), least = v_set1(-R_MAX);
  return v_clean(v_select(v_lt(most, y), most, v_select(v_lt(y, least), least, y)));
}

#endif
