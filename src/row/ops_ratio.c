/* row/ops_ratio.c - weights f(x) / sum f(x) for functions f other than the exponential. See ops.c
 * and engine/ratio.h. */
#include "engine/argfind.h"
#include "engine/ratio.h"
#include "engine/taylor.h"

/* ---- softpick: f = e^(x - M) - e^(-M), M = max(0, max x), kept as 2^(k - N)
 * (e^t - 1) + (2^(k - N) - 2^(-N)), exact at x = 0. N = k(M) - 25: a weight that is a normal number
 * comes from normal terms.
 * v[0]: eps, v[1]: what is subtracted from x, v[2]: N, v[3]: 2^(-N), v[4]: the part of eps e^M in
 * the sum ---- */

SMI consts softpick_setup(const row_call *c, const span *s) { return (consts){{ratio_eps(c->params[0])}}; }
SMI void softpick_finalize(consts *k, const span *s, const reduce_map_row *r) {
  real top = r->max > 0 ? r->max : 0, far = top > 524288 ? 1 : 0; /* then e^(-M) is 0 */
  vreal m = exp_k(v_set1(far ? 0 : top)), p = exp_poly(exp_reduce(v_set1(far ? 0 : top), m));
  k->v[1] = far ? top : 0;
  k->v[2] = v_first(m) - 25;
  k->v[3] = far ? 0 : v_first(v_scale(v_set1(1), v_set1(-k->v[2])));
  double extra = (double)k->v[0] * 0x1p25 * (double)v_first(p);
  ratio_finalize(k, r, 1, extra);
  k->v[4] = r->max > 0 && r->sum + extra > 0 ? (real)(extra / (r->sum + extra)) : 0;
}
SMI vreal softpick_argument(vreal x, const consts *k) {
  return v_max(v_sub(x, v_set1(k->v[1])), v_set1(-1000));
}
SMI vreal softpick_of(vreal v, const consts *k) {
  vreal n = exp_k(v), t = exp_reduce(v, n), q = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - 1; i++) q = v_fma(q, t, v_set1(exp_coefficients[i]));
  vreal two = v_scale(v_set1(1), v_sub(n, v_set1(k->v[2])));
  return v_fma(two, v_mul(q, t), v_sub(two, v_set1(k->v[3])));
}
SMI vreal softpick_f(vreal x, const consts *k) { return softpick_of(softpick_argument(x, k), k); }
SMI bool softpick_near(const span *s, const reduce_map_row *r) {
  return ratio_whole(s, r) && r->low >= -1000 && r->max <= 524288;
}
SMI vreal softpick_slope(vreal x, const consts *k) {
  vreal v = softpick_argument(x, k), n = exp_k(v);
  return v_scale(exp_poly(exp_reduce(v, n)), v_sub(n, v_set1(k->v[2])));
}
#define RATIO_NAME softpick
#define RATIO_NEAR softpick_near
#define RATIO_NEAR_F softpick_of
#define RATIO_FORWARD_ONLY
#include "engine/ratio.tmpl.h"

/* eps e^M in the sum moves with the largest score: its gradient, -D eps e^M / S, goes to the first
 * element that is as large. */
SMI void softpick_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                           reduce_map_acc *acc) {
  ratio_grad_add(s, k, softpick_f, i, cnt, acc);
}
NOINLINE void softpick_grad_sums(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                                 row_part *part) {
  reduce_map_sums_of(s, k, r, softpick_grad_add, true, i, n, part);
  if (r->index < 0 && k->v[0] > 0 && r->max > 0) part->index = argfind_in_group(s, r->max, i, n);
}
SMI vreal softpick_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal dx = ratio_grad_value(s, k, softpick_f, softpick_slope, i, cnt);
  return ratio_unscaled(v_sub(dx, argfind_put((double)r->index, s, i, v_set1(k->v[RATIO_DOT] * k->v[4]))), k);
}
REDUCE_MAP_VALUES_OF(softpick_grad_values, softpick_grad_value)
static const reduce_map_body softpick_grad_body = {.setup = softpick_setup,
                                                   .finalize = softpick_finalize,
                                                   .sums = softpick_grad_sums,
                                                   .write = softpick_grad_values,
                                                   .full = 1,
                                                   .max = true,
                                                   .gradient = true};
REDUCE_MAP_KERNEL(softpick_grad)

/* ---- taylor_softmax: f = sum_(m <= r) x^m / m! = (1 / r!) prod ((x - a)^2 + b), which has no
 * cancellation. v[2 j], v[2 j + 1]: a_j and b_j, scaled as x is. The scale 2^-e and the number of
 * factors come from the row and the order ---- */

enum { TAYLOR_FACTORS = RATIO_SCALE + 1 };

SMI consts taylor_setup(const row_call *c, const span *s) {
  return (consts){.v[TAYLOR_FACTORS] = (real)(c->params[0] / 2)};
}
SMI void taylor_finalize(consts *k, const span *s, const reduce_map_row *r) {
  int e = ratio_exponent(ratio_magnitude(r)), factors = (int)k->v[TAYLOR_FACTORS];
  if (e < 0) e = 0;
  double scale = d_scale(1, -e);
  for (int j = 0; j < factors; j++) {
    k->v[2 * j] = (real)(taylor_roots[factors - 1][j][0] * scale);
    k->v[2 * j + 1] = (real)(taylor_roots[factors - 1][j][1] * scale * scale);
  }
  ratio_finalize(k, r, r_power_of_two(-e), 0);
}
SMI vreal taylor_factor(vreal u, const consts *k, int j) {
  vreal away = v_sub(u, v_set1(k->v[2 * j]));
  return v_fma(away, away, v_set1(k->v[2 * j + 1]));
}
SMI vreal taylor_f(vreal x, const consts *k) {
  vreal u = v_mul(x, v_set1(k->v[RATIO_SCALE])), f = taylor_factor(u, k, 0);
  for (int j = 1; j < (int)k->v[TAYLOR_FACTORS]; j++) f = v_mul(f, taylor_factor(u, k, j));
  return f;
}
SMI vreal taylor_slope(vreal x, const consts *k) {
  vreal u = v_mul(x, v_set1(k->v[RATIO_SCALE])), f = v_set1(1), d = v_set1(0);
  for (int j = 0; j < (int)k->v[TAYLOR_FACTORS]; j++) {
    vreal q = taylor_factor(u, k, j), dq = v_mul(v_sub(u, v_set1(k->v[2 * j])), v_set1(2));
    d = v_fma(d, q, v_mul(f, dq));
    f = v_mul(f, q);
  }
  return d;
}
#define RATIO_NAME taylor
#include "engine/ratio.tmpl.h"

/* ---- spherical_softmax: f = x^2 + eps. v[0]: eps, scaled as x^2 is ---- */

SMI consts spherical_setup(const row_call *c, const span *s) { return (consts){{ratio_eps(c->params[0])}}; }
SMI void spherical_finalize(consts *k, const span *s, const reduce_map_row *r) {
  real eps = k->v[0], largest = ratio_magnitude(r);
  int e = ratio_exponent(largest), low = eps > 0 ? (r_exponent(eps) - 1) / 2 : e;
  if (e < low) e = low;
  k->v[0] = (real)ratio_scaled((double)eps, -2 * e);
  ratio_finalize(k, r, r_power_of_two(-e), 0);
  if (!(largest > 0) && eps == 0) k->v[RATIO_EVEN] = (real)(1 / r->valid);
}
SMI vreal spherical_f(vreal x, const consts *k) {
  vreal u = v_mul(x, v_set1(k->v[RATIO_SCALE]));
  return v_fma(u, u, v_set1(k->v[0]));
}
SMI vreal spherical_slope(vreal x, const consts *k) {
  return v_mul(v_mul(x, v_set1(k->v[RATIO_SCALE])), v_set1(2));
}
#define RATIO_NAME spherical
#include "engine/ratio.tmpl.h"

/* ---- power_softmax: f = x^p, and eps n max|x|^p joins the sum. v[0]: p, v[1]: eps, v[2]: what the
 * gradient of max|x| is multiplied by, v[3]: max|x| ---- */

SMI consts power_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[0], ratio_eps(c->params[1])}};
}
/* u^p for a whole p > 0, by squaring; the products come in an order that depends on p only. */
SMI vreal whole_power(vreal u, int p) {
  vreal y = p & 1 ? u : v_set1(1);
  while (p >>= 1) {
    u = v_mul(u, u);
    if (p & 1) y = v_mul(y, u);
  }
  return y;
}
SMI double whole_power_of(double u, int p) {
  double y = 1;
  for (; p; p >>= 1, u *= u)
    if (p & 1) y *= u;
  return y;
}
SMI void power_finalize(consts *k, const span *s, const reduce_map_row *r) {
  real largest = ratio_magnitude(r);
  int e = ratio_exponent(largest), p = (int)k->v[0];
  double u = (double)(largest * r_power_of_two(-e)), eps = (double)k->v[1] * r->valid;
  ratio_finalize(k, r, r_power_of_two(-e), eps * whole_power_of(u, p));
  k->v[2] = (real)(eps * p * whole_power_of(u, p - 1));
  k->v[3] = largest;
  if (!(largest > 0) && eps == 0) k->v[RATIO_EVEN] = (real)(1 / r->valid);
}
SMI vreal power_f(vreal x, const consts *k) {
  return whole_power(v_mul(x, v_set1(k->v[RATIO_SCALE])), (int)k->v[0]);
}
SMI vreal power_slope(vreal x, const consts *k) {
  vreal u = v_mul(x, v_set1(k->v[RATIO_SCALE]));
  return v_mul(whole_power(u, (int)k->v[0] - 1), v_set1(k->v[0]));
}
#define RATIO_NAME power
#define RATIO_FORWARD_ONLY
#include "engine/ratio.tmpl.h"

/* The sum holds eps n max|x|^p too, whose gradient goes to the first element that is as large. */
typedef struct power_search {
  const span *s;
  size_t base;
  real largest;
} power_search;
SMI vmask power_minmax_hit(const void *ctx, size_t i, int cnt) {
  const power_search *w = ctx;
  vreal x = at(w->s->src[0], w->base + i, cnt);
  return m_and(v_eq(v_abs(x), v_set1(w->largest)), v_lt(v_set1(-R_INF), x));
}
SMI void power_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                        reduce_map_acc *acc) {
  ratio_grad_add(s, k, power_f, i, cnt, acc);
}
NOINLINE void power_grad_sums(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                              row_part *part) {
  power_search w = {s, i, k->v[3]};
  reduce_map_sums_of(s, k, r, power_grad_add, true, i, n, part);
  size_t first = r->index < 0 ? find_first(n, power_minmax_hit, &w) : n;
  if (first < n) part->index = (int64_t)(s->origin + i + first);
}
SMI vreal power_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal dx = ratio_grad_value(s, k, power_f, power_slope, i, cnt), x = at(s->src[0], i, cnt);
  vreal through =
      v_mul(v_mul(v_set1(k->v[2]), v_set1(k->v[RATIO_INV])), v_copysign(v_set1(k->v[RATIO_DOT]), x));
  through = v_select(v_lt(v_set1(k->v[RATIO_DOT]), v_set1(0)), v_sub(v_set1(0), through), through);
  return ratio_unscaled(v_sub(dx, argfind_put((double)r->index, s, i, through)), k);
}
REDUCE_MAP_VALUES_OF(power_grad_values, power_grad_value)
static const reduce_map_body power_grad_body = {.setup = power_setup,
                                                .finalize = power_finalize,
                                                .sums = power_grad_sums,
                                                .write = power_grad_values,
                                                .full = 1,
                                                .max = true,
                                                .gradient = true};
REDUCE_MAP_KERNEL(power_grad)

/* ---- stablemax: f = x + 1 or 1 / (1 - x), times v[0], a power of two ---- */

SMI consts stablemax_setup(const row_call *c, const span *s) { return (consts){{1}}; }
SMI void stablemax_finalize(consts *k, const span *s, const reduce_map_row *r) {
  int e = r->max > 1 ? -ratio_exponent(r->max) : r->max < -1 ? ratio_exponent(-r->max) : 0;
  k->v[0] = r_power_of_two(e);
  ratio_finalize(k, r, 1, 0);
}
SMI vreal stablemax_f(vreal x, const consts *k) {
  vreal one = v_set1(1), scale = v_set1(k->v[0]);
  vmask negative = v_lt(x, v_set1(0));
  return v_select(negative, v_div(scale, v_sub(one, v_select(negative, x, v_set1(0)))),
                  v_fma(x, scale, scale));
}
SMI vreal stablemax_slope(vreal x, const consts *k) {
  vreal scale = v_set1(k->v[0]), below = v_sub(v_set1(1), v_min(x, v_set1(0)));
  return v_div(v_div(scale, below), below);
}
#define RATIO_NAME stablemax
#include "engine/ratio.tmpl.h"

/* ---- softplus_l1: f = log(1 + e^x), times 2^(-N). v[0]: eps, v[1]: N, v[2]: 2^(-N), v[3]: all
 * scores are below -1. There f is e^x g(e^x) with g(t) = log1p(t) / t, and e^x is scaled before it
 * underflows. v[4]: no score is so far from 0 that e^-|x| underflows ---- */

SMI consts softplus_setup(const row_call *c, const span *s) { return (consts){{ratio_eps(c->params[0])}}; }
SMI void softplus_finalize(consts *k, const span *s, const reduce_map_row *r) {
  real low = r->max > -524288 ? r->max : -524288;
  bool far = low < -1;
  int n = r->max > 1 ? ratio_exponent(r->max) : far ? (int)v_first(exp_k(v_set1(low))) : 0;
  if (k->v[0] > 0 && n < r_exponent(k->v[0])) n = r_exponent(k->v[0]); /* then eps is most of the sum */
  n -= 24;
  k->v[1] = (real)n;
  k->v[2] = far ? 0 : r_power_of_two(-n);
  k->v[3] = far;
  k->v[4] = !far && ratio_magnitude(r) < 80;
  ratio_finalize(k, r, 1, ratio_scaled((double)k->v[0], -n));
}
/* e^-|x|, and the same times 2^(-N). */
SMI vreal softplus_exp(vreal x, const consts *k, vreal *scaled) {
  vreal v = v_max(v_sub(v_set1(0), v_abs(x)), v_set1(-524288)), n = exp_k(v), p = exp_poly(exp_reduce(v, n));
  *scaled = v_scale(p, v_min(v_sub(n, v_set1(k->v[1])), v_set1(EXP_BIAS)));
  return v_scale(p, n);
}
SMI vreal softplus_near(vreal x, vreal t, const consts *k, vreal *log) {
  *log = v_log1p_unit(t);
  return v_mul(v_add(v_max(x, v_set1(0)), *log), v_set1(k->v[2]));
}
SMI vreal softplus_f(vreal x, const consts *k) {
  vreal scaled, log;
  if (k->v[4] != 0) {
    vreal v = v_sub(v_set1(0), v_abs(x)), n = exp_k(v);
    return softplus_near(x, v_scale(exp_poly(exp_reduce(v, n)), n), k, &log);
  }
  vreal t = softplus_exp(x, k, &scaled), near = softplus_near(x, t, k, &log);
  vmask small = v_lt(t, v_set1((real)(SMX_REAL == 32 ? 0x1p-30 : 0x1p-60)));
  if (k->v[3] != 0) near = v_mul(scaled, v_div(log, v_select(small, v_set1(1), t)));
  return v_select(m_and(small, v_lt(x, v_set1(0))), scaled, near);
}
SMI vreal softplus_slope(vreal x, const consts *k) {
  vreal scaled, t = softplus_exp(x, k, &scaled);
  return v_div(v_select(v_lt(x, v_set1(0)), scaled, v_set1(k->v[2])), v_add(t, v_set1(1)));
}
#define RATIO_NAME softplus
#include "engine/ratio.tmpl.h"

/* ---- reweight ----
 *
 * f = [n x - o]+^p. v[0]: p, v[1]: o, v[2]: eps, v[3]: o 2^-e, v[4]: nothing is above o; the
 * scale is n 2^-e */

SMI consts reweight_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[0], (real)c->params[1], ratio_eps(c->params[2])}};
}
SMI void reweight_finalize(consts *k, const span *s, const reduce_map_row *r) {
  double offset = r->valid > 3 ? (double)k->v[1] : 0, n = r->valid;
  real top = (real)(n / 2 * (double)r->max - offset / 2); /* half of the largest, which is in range */
  int e = top > 0 ? ratio_exponent(top) + 1 : 0;
  double scale = ratio_scaled(1, -e);
  k->v[3] = (real)(offset * scale);
  k->v[4] = top > 0 ? 0 : 1;
  ratio_finalize(k, r, (real)(n * scale), ratio_scaled((double)k->v[2], -e * (int)k->v[0]));
}
SMI vreal reweight_base(vreal x, const consts *k) {
  return v_max(v_fma(x, v_set1(k->v[RATIO_SCALE]), v_set1(-k->v[3])), v_set1(0));
}
SMI vreal reweight_f(vreal x, const consts *k) { return whole_power(reweight_base(x, k), (int)k->v[0]); }
SMI vreal reweight_slope(vreal x, const consts *k) {
  vreal u = reweight_base(x, k), power = (int)k->v[0] > 1 ? whole_power(u, (int)k->v[0] - 1) : v_set1(1);
  return v_select(v_lt(v_set1(0), u), v_mul(power, v_set1(k->v[0])), v_set1(0));
}
SMI void reweight_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                      reduce_map_acc *acc) {
  ratio_add(s, k, reweight_f, i, cnt, acc);
}
SMI vreal reweight_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt);
  if (k->v[4] != 0) return v_clean(v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), x));
  return ratio_value(s, k, reweight_f, i, cnt);
}
SMI void reweight_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                           reduce_map_acc *acc) {
  ratio_grad_add(s, k, reweight_f, i, cnt, acc);
}
SMI vreal reweight_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal dy = at(s->src[SRC_DY], i, cnt);
  if (k->v[4] != 0) return v_clean(v_select(v_eq(at(s->src[0], i, cnt), v_set1(-R_INF)), v_set1(0), dy));
  return ratio_unscaled(ratio_grad_value(s, k, reweight_f, reweight_slope, i, cnt), k);
}
REDUCE_MAP_SUMS_OF(reweight_sums, reweight_add)
REDUCE_MAP_VALUES_OF(reweight_values, reweight_value)
REDUCE_MAP_SUMS_OF(reweight_grad_sums, reweight_grad_add)
REDUCE_MAP_VALUES_OF(reweight_grad_values, reweight_grad_value)
static const reduce_map_body reweight_body = {.setup = reweight_setup,
                                              .finalize = reweight_finalize,
                                              .sums = reweight_sums,
                                              .write = reweight_values,
                                              .full = 1,
                                              .max = true};
REDUCE_MAP_KERNEL(reweight)
static const reduce_map_body reweight_grad_body = {.setup = reweight_setup,
                                                   .finalize = reweight_finalize,
                                                   .sums = reweight_grad_sums,
                                                   .write = reweight_grad_values,
                                                   .full = 1,
                                                   .max = true,
                                                   .gradient = true};
REDUCE_MAP_KERNEL(reweight_grad)

OPERATOR(softpick, softpick, softpick_grad)
OPERATOR(taylor_softmax, taylor, taylor_grad)
OPERATOR(spherical_softmax, spherical, spherical_grad)
OPERATOR(power_softmax, power, power_grad)
OPERATOR(stablemax, stablemax, stablemax_grad)
OPERATOR(softplus_l1, softplus, softplus_grad)
OPERATOR(reweight, reweight, reweight_grad)
