/* row/ops_training.c - changes of weights, gradients and logits during training: ST-3's soft
 * threshold, the gradient across the weights, noise on the target's logit. See ops.c. */
#include "engine/compose.h"
#include "engine/ratio.h"
#include "philox.h"

/* ---- soft_threshold_ste ----
 *
 * y = c sign(x) [|x| - t]+, c = 1.01 / (rho + 0.01), rho = (mean |x| [|x| > t] + 1e-6) / (mean
 * |x| + 1e-6) */

enum { SHRINK_THRESHOLD, SHRINK_RESCALE, SHRINK_STRAIGHT };                                 /* parameters */
enum { SHRINK_HIGH, SHRINK_LOW, SHRINK_C, SHRINK_SCALE, SHRINK_RHO, SHRINK_K, SHRINK_HOW }; /* of consts.v */
enum { HOW_PLAIN, HOW_RESCALE, HOW_STRAIGHT = 2 };

SMI consts shrink_setup(const row_call *c, const span *s) {
  double t = s->src[1] ? (double)*s->src[1] : c->params[SHRINK_THRESHOLD];
  bool rescale = c->params[SHRINK_RESCALE] != 0 && t > 0;
  if (t <= 0) t = 0; /* then y = x */
  consts k = {{(real)t, (real)(t - (double)(real)t), 1, 1}};
  if (t != t) k.v[SHRINK_C] = r_nan();
  k.v[SHRINK_HOW] =
      (real)((rescale ? HOW_RESCALE : HOW_PLAIN) + (c->params[SHRINK_STRAIGHT] != 0 ? HOW_STRAIGHT : 0));
  return k;
}
SMI bool shrink_rescales(const consts *k) { return (int)k->v[SHRINK_HOW] & HOW_RESCALE; }
/* sum: sum |x|, sum2: that of |x| > t, more: sum dy sign(x) [|x| - t]+, all times SCALE; more2: sum
 * dy sign(x) [|x| > t]. */
SMI void shrink_finalize(consts *k, const span *s, const reduce_map_row *r) {
  int e = ratio_exponent(ratio_magnitude(r));
  double joins = ratio_scaled(1e-6 * r->valid, -e), all = r->sum + joins;
  /* inf: all zeros, as far as 1e-6 can tell */
  double rho = all > 0 && all < (double)__builtin_inf() ? (r->sum2 + joins) / all : 1;
  k->v[SHRINK_SCALE] = r_power_of_two(-e);
  k->v[SHRINK_RHO] = (real)rho;
  if (!shrink_rescales(k)) return;
  /* of the sum of dy y, by |x| */
  double c = 1.01 / (rho + 0.01), slope = all > 0 ? -c * c / 1.01 * r->more / all : 0;
  k->v[SHRINK_C] = (real)c;
  k->v[SHRINK_K] = (real)slope;
}
SMI vmask shrink_live(const span *s, size_t i, int cnt, vreal *x) {
  vreal v = at(s->src[0], i, cnt);
  vmask live = m_and(v_lt(v_set1(-R_INF), v), lanes_below(cnt));
  *x = v_select(live, v, v_set1(0));
  return live;
}
SMI vreal shrink_excess(vreal x, const consts *k) {
  return v_sub(v_sub(v_abs(x), v_set1(k->v[SHRINK_HIGH])), v_set1(k->v[SHRINK_LOW]));
}
SMI void shrink_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                    reduce_map_acc *acc) {
  vreal x, zero = v_set1(0);
  shrink_live(s, i, cnt, &x);
  vreal size = v_mul(v_abs(x), v_set1(k->v[SHRINK_SCALE]));
  acc->a = v_add(acc->a, size);
  acc->b = v_add(acc->b, v_select(v_lt(zero, shrink_excess(x, k)), size, zero));
}
SMI vreal shrink_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x;
  shrink_live(s, i, cnt, &x);
  return v_clean(v_copysign(v_mul(v_max(shrink_excess(x, k), v_set1(0)), v_set1(k->v[SHRINK_C])), x));
}
REDUCE_MAP_SUMS_OF(shrink_sums, shrink_add)
REDUCE_MAP_VALUES_OF(shrink_values, shrink_value)
static const reduce_map_body shrink_body = {.setup = shrink_setup,
                                            .finalize = shrink_finalize,
                                            .sums = shrink_sums,
                                            .write = shrink_values,
                                            .full = 1,
                                            .max = true};
REDUCE_MAP_KERNEL(shrink)

/* Straight through: dx = dy. Else dx_i = sign(x_i) (c dy_i sign(x_i) [|x_i| > t] + K ([|x_i| > t] -
 * rho)), where K is what c does to the sum of dy y. dt = -c sum dy sign(x) [|x| > t]. */
SMI void shrink_more_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  vreal x, zero = v_set1(0);
  shrink_live(s, i, cnt, &x);
  vreal over = shrink_excess(x, k), dy = v_select(v_lt(zero, over), at(s->src[SRC_DY], i, cnt), zero);
  dy = v_select(v_lt(x, zero), v_sub(zero, dy), dy);
  acc->a = v_fma(dy, v_mul(v_max(over, zero), v_set1(k->v[SHRINK_SCALE])), acc->a);
  acc->b = v_add(acc->b, dy);
}
SMI vreal shrink_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x, dy = at(s->src[SRC_DY], i, cnt), zero = v_set1(0);
  vmask live = shrink_live(s, i, cnt, &x), over = v_lt(zero, shrink_excess(x, k));
  if ((int)k->v[SHRINK_HOW] & HOW_STRAIGHT) return v_clean(v_select(live, dy, zero));
  vreal part =
      v_mul(v_set1(k->v[SHRINK_K]), v_sub(v_select(over, v_set1(1), zero), v_set1(k->v[SHRINK_RHO])));
  part = v_select(v_eq(x, zero), zero, v_select(v_lt(x, zero), v_sub(zero, part), part));
  return v_clean(v_select(live, v_add(v_select(over, v_mul(dy, v_set1(k->v[SHRINK_C])), zero), part), zero));
}
SMI void shrink_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[1]) s->dst[1][0] = post != post ? r_nan() : r_clean(-(double)k->v[SHRINK_C] * r->more2);
}
REDUCE_MAP_SUMS_OF(shrink_mores, shrink_more_add)
REDUCE_MAP_VALUES_OF(shrink_grad_values, shrink_grad_value)
static const reduce_map_body shrink_grad_body = {.setup = shrink_setup,
                                                 .finalize = shrink_finalize,
                                                 .sums = shrink_sums,
                                                 .more = shrink_mores,
                                                 .write = shrink_grad_values,
                                                 .row = shrink_row,
                                                 .full = 1,
                                                 .max = true,
                                                 .gradient = true};
REDUCE_MAP_KERNEL(shrink_grad)

/* ---- perp_grad: p = x - a w, a = w.x / (w.w + 1e-30), and y = p or p |x| / (|p| + 1e-30).
 *
 * x and w are scaled by powers of two. a comes from sums of floats; what of p is still along w is
 * taken off by a second projection, and a is kept in two parts. |x|^2 = |p|^2 + 2 a w.p + a^2 w.w,
 * where only the first counts when x is across. ---- */

enum { PERP_W = 1 };                                                              /* input */
enum { PERP_SX, PERP_SW, PERP_HIGH, PERP_LOW, PERP_GAIN, PERP_BACK, PERP_KEEPS }; /* of consts.v */

/* The minmax pass at w, whose extremes the note takes. */
static row_call perp_of_w(const row_call *c, double *settings) {
  row_call own = *c;
  own.src[0] = c->src[PERP_W], own.src_step[0] = c->src_step[PERP_W];
  return own;
}
static const row_kernel perp_minmax_kernel = {.engine = &adapter_engine,
                                              .body = &(const row_adapter){&minmax_kernel, perp_of_w, false}};

SMI consts perp_setup(const row_call *c, const span *s) {
  real most = s->src[NOTE][MINMAX_MAX], least = s->src[NOTE][MINMAX_LOW],
       largest = most > -least ? most : -least;
  consts k = {{1, 1, 0, 0, 1, 1, (real)c->params[0]}};
  if (largest > 0 && largest <= R_MAX) k.v[PERP_SW] = r_power_of_two(-ratio_exponent(largest));
  return k;
}
/* sum: w.w, sum2: w.x; more, more2: w.p and p.p with the first a. */
SMI void perp_finalize(consts *k, const span *s, const reduce_map_row *r) {
  int e = ratio_exponent(ratio_magnitude(r));
  double sw = (double)k->v[PERP_SW], sx = d_scale(1, -e), joins = 1e-30 * sw * sw, all = r->sum + joins;
  if (e < 0) sx = (double)r_power_of_two(-e);
  const bool sound = all > 0 && all < (double)__builtin_inf();
  /* w.p of the formula */
  double first = sound ? r->sum2 / all : 0, along = sound ? r->sum2 * (joins / all) : 0;
  double by = sound && r->more2 != 0 ? (r->more - along) / all : 0, a = first + by;
  double pp = r->more2 - 2 * by * r->more + by * by * r->sum, xx = pp + 2 * a * along + a * a * r->sum;
  k->v[PERP_SX] = r_power_of_two(-e);
  k->v[PERP_BACK] = r_power_of_two(e);
  k->v[PERP_HIGH] = (real)a;
  k->v[PERP_LOW] = (real)(a - (double)k->v[PERP_HIGH]);
  if (!(pp > 0)) pp = 0;
  if (k->v[PERP_KEEPS] != 0)
    k->v[PERP_GAIN] = pp > 0x1p-40 * xx ? (real)(__builtin_sqrt(xx) / (__builtin_sqrt(pp) + 1e-30 * sx)) : 0;
}
SMI vmask perp_pair(const span *s, const consts *k, size_t i, int cnt, vreal *x, vreal *w) {
  vreal a = at(s->src[0], i, cnt), b = at(s->src[PERP_W], i, cnt), none = v_set1(-R_INF);
  vmask live = m_and(m_and(m_not(v_eq(a, none)), m_not(v_eq(b, none))), lanes_below(cnt));
  *x = v_select(live, v_mul(a, v_set1(k->v[PERP_SX])), v_set1(0));
  *w = v_select(live, v_mul(b, v_set1(k->v[PERP_SW])), v_set1(0));
  return live;
}
SMI vreal perp_part(vreal x, vreal w, const consts *k) {
  vreal a = v_set1(k->v[PERP_HIGH]), h = v_mul(a, w),
        l = v_fma(v_set1(k->v[PERP_LOW]), w, v_fma(a, w, v_sub(v_set1(0), h)));
  return v_sub(v_sub(x, h), l);
}
SMI void perp_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                  reduce_map_acc *acc) {
  vreal x, w;
  perp_pair(s, k, i, cnt, &x, &w);
  acc->nan = m_or(acc->nan, m_not(v_lt(w, v_set1(R_INF))));
  acc->a = v_fma(w, w, acc->a);
  acc->b = v_fma(w, x, acc->b);
}
SMI void perp_more_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                       reduce_map_acc *acc) {
  vreal x, w;
  perp_pair(s, k, i, cnt, &x, &w);
  vreal p = perp_part(x, w, k);
  acc->a = v_fma(w, p, acc->a);
  acc->b = v_fma(p, p, acc->b);
}
SMI vreal perp_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x, w;
  perp_pair(s, k, i, cnt, &x, &w);
  return v_clean(v_mul(v_mul(perp_part(x, w, k), v_set1(k->v[PERP_GAIN])), v_set1(k->v[PERP_BACK])));
}
REDUCE_MAP_SUMS_OF(perp_sums, perp_add)
REDUCE_MAP_SUMS_OF(perp_mores, perp_more_add)
REDUCE_MAP_VALUES_OF(perp_values, perp_value)
static const reduce_map_body perp_row_body = {.setup = perp_setup,
                                              .finalize = perp_finalize,
                                              .sums = perp_sums,
                                              .more = perp_mores,
                                              .write = perp_values,
                                              .full = 1,
                                              .max = true};
REDUCE_MAP_KERNEL(perp_row)
static const row_kernel perp_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &perp_minmax_kernel, .then = &perp_row_kernel}};

/* ---- noisy_softmax ----
 *
 * the target's logit f becomes f + a (f - bound), a = alpha |xi|, xi normal; the others stay */

enum { NOISY_TARGET = 1, NOISY_BOUND, NOISY_STREAM, NOISY_NOISE }; /* inputs */
enum { NOISY_ALPHA = 1, NOISY_SEED };                              /* parameters */
enum { NOISY_A };                                                  /* of consts.v */

SMI int64_t noisy_target(const span *s) { return *(const int64_t *)(const void *)s->src[NOISY_TARGET]; }
SMI consts noisy_setup(const row_call *c, const span *s) {
  double xi = s->src[NOISY_NOISE] ? (double)*s->src[NOISY_NOISE] : 0;
  if (s->src[NOISY_STREAM]) {
    const draws d = {(uint64_t)c->params[NOISY_SEED],
                     (uint64_t) * (const int64_t *)(const void *)s->src[NOISY_STREAM], PURPOSE_NORMAL};
    xi = normal_of(draw_word(&d, 0));
  }
  bool counts =
      noisy_target(s) >= 0 && noisy_target(s) < (int64_t)c->n && (double)noisy_target(s) != c->params[0];
  return (consts){{counts ? (real)(c->params[NOISY_ALPHA] * (xi < 0 ? -xi : xi)) : 0}};
}
SMI vreal noisy_at(const span *s, size_t i, vreal v, vreal otherwise) {
  return v_select(v_eq(v_iota(), v_set1((real)(noisy_target(s) - (int64_t)(s->origin + i)))), v, otherwise);
}
SMI vreal noisy_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), a = v_set1(k->v[NOISY_A]);
  if (k->v[NOISY_A] == 0) return v_clean(x);
  return v_clean(noisy_at(s, i, v_fma(a, v_sub(x, v_set1(*s->src[NOISY_BOUND])), x), x));
}
REDUCE_MAP_VALUES_OF(noisy_values, noisy_value)
static const reduce_map_body noisy_body = {
    .setup = noisy_setup, .write = noisy_values, .full = 1, .max = true, .bounded = true};
static void noisy_begin(const row_call *c, row_state *st) {
  const span s = span_of(c, 0);
  const real a = noisy_setup(c, &s).v[NOISY_A], bound = *s.src[NOISY_BOUND];
  reduce_map_begin(&noisy_body, c, st);
  st->nan = a != a || (a != 0 && bound != bound);
}
static void noisy_pass(const row_call *c, row_state *st, row_part *parts) {
  reduce_map_pass(&noisy_body, c, st, parts);
}
static void noisy_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  reduce_map_merge(c, st, parts, count);
}
static bool noisy_next(const row_call *c, row_state *st) {
  bool more = reduce_map_next(&noisy_body, c, st);
  /* logits, not weights */
  if (more && st->empty && st->mode == REDUCE_MAP_FILL && st->reduce.fill == 0)
    st->reduce.fill = (double)-R_INF;
  return more;
}
static const row_kernel noisy_kernel = PROGRAM(noisy);

/* dx_i = dy_i, (1 + a) dy_i at the target; dbound = -a dy there. An element of -inf has gradient
 * 0. */
SMI void noisy_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                   reduce_map_acc *acc) {
  vreal zero = v_set1(0), dy = noisy_at(s, i, at(s->src[SRC_DY], i, cnt), zero);
  vmask live = m_and(v_lt(v_set1(-R_INF), at(s->src[0], i, cnt)), lanes_below(cnt));
  acc->a = v_add(acc->a, v_select(live, dy, zero));
}
SMI vreal noisy_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal dy = at(s->src[SRC_DY], i, cnt), x = at(s->src[0], i, cnt);
  return v_clean(
      v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), noisy_at(s, i, v_fma(dy, v_set1(k->v[NOISY_A]), dy), dy)));
}
SMI void noisy_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[NOISY_BOUND])
    s->dst[NOISY_BOUND][0] = post != post ? r_nan() : r_clean(-(double)k->v[NOISY_A] * r->sum);
}
REDUCE_MAP_SUMS_OF(noisy_sums, noisy_add)
REDUCE_MAP_VALUES_OF(noisy_grad_values, noisy_grad_value)
static const reduce_map_body noisy_grad_body = {.setup = noisy_setup,
                                                .sums = noisy_sums,
                                                .write = noisy_grad_values,
                                                .row = noisy_row,
                                                .full = 1,
                                                .max = true,
                                                .gradient = true,
                                                .bounded = true};
REDUCE_MAP_KERNEL(noisy_grad)

OPERATOR(soft_threshold_ste, shrink, shrink_grad)
FORWARD_OPERATOR(perp_grad, perp)
OPERATOR(noisy_softmax, noisy, noisy_grad)
