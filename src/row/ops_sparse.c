/* row/ops_sparse.c - weights that are exactly zero below a threshold, and their gradients from y alone. See ops.c and engine/threshold.h. */
#include "engine/scores.h"
#include "engine/threshold.h"
#include "engine/weights.h"

/* ---- entmax: y = v^(1 / q), q = alpha - 1 = kappa. sparsemax is q = 1, entmax15 q = 1/2 ---- */

SMI double entmax_alpha(const row_call *c) {
  double a = c->src[1] ? (double)*(const real *)c->src[1] : c->params[0];
  return a >= 1 && a <= 10 ? a : (double)r_nan();
}
SMI threshold_shape entmax_shape(const row_call *c, const span *s) {
  double a = s->src[1] ? (double)*s->src[1] : c->params[0], q = a >= 1 && a <= 10 ? a - 1 : (double)r_nan();
  return (threshold_shape){.kappa = q, .power = 1 / q, .norm = 1};
}
SMI threshold_shape sparsemax_shape(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return (threshold_shape){1, 1, 1};
}
SMI threshold_shape entmax15_shape(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return (threshold_shape){0.5, 2, 1};
}
#define SHAPE_SETUP(name) \
  SMI consts name##_setup(const row_call *c, const span *s) { \
    consts k = {{0}}; \
    threshold_shape t = name##_shape(c, s); \
    threshold_shape_consts(&k, &t); \
    return k; \
  }
SHAPE_SETUP(entmax)
SHAPE_SETUP(sparsemax)
SHAPE_SETUP(entmax15)

SMI vreal sparsemax_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  return threshold_v(at(s->src[0], i, cnt), k, NULL);
}
SMI vreal entmax15_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal v = threshold_v(at(s->src[0], i, cnt), k, NULL);
  return v_clean(v_mul(v, v));
}
SMI vreal entmax_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal log, v = threshold_v(at(s->src[0], i, cnt), k, &log);
  return threshold_power(v, log, k->v[THRESHOLD_POWER]);
}
SUM_VALUES_OF(sparsemax_values, sparsemax_value)
SUM_VALUES_OF(entmax15_values, entmax15_value)
SUM_VALUES_OF(entmax_values, entmax_value)
static const threshold_body sparsemax_body = {
    .shape = sparsemax_shape,
    .sum = {.setup = sparsemax_setup, .settle = threshold_settle, .emit = sparsemax_values, .full = 1, .max = true}};
THRESHOLD_KERNEL(sparsemax)
static const threshold_body entmax15_body = {
    .shape = entmax15_shape, .sum = {.setup = entmax15_setup, .settle = threshold_settle, .emit = entmax15_values, .full = 1, .max = true}};
THRESHOLD_KERNEL(entmax15)
static const threshold_body entmax_any_body = {
    .shape = entmax_shape, .sum = {.setup = entmax_setup, .settle = threshold_settle, .emit = entmax_values, .full = 1, .max = true}};
THRESHOLD_KERNEL(entmax_any)

static const exp_body entmax_one_body = {.setup = setup_plain, .scores = &plain_scores, .emit = plain_weights};
EXP_KERNEL(entmax_one)
static const row_kernel *entmax_pick(const row_call *c) {
  double a = entmax_alpha(c);
  return a == 1 ? &entmax_one_kernel : a == 1.5 ? &entmax15_kernel : a == 2 ? &sparsemax_kernel : &entmax_any_kernel;
}
PICK_KERNEL(entmax, 1)

/* dx_i = s_i (dy_i - R), s_i = y_i^(1 - q) where y_i > 0, R = sum s dy / sum s.
 * dalpha = R sum_i f_i - sum_i dy_i f_i, f_i = y_i (e^t - 1 - t) / q^2, t = -q log y_i: no cancellation, and y log^2(y) / 2 at q = 0. */
enum { ENTMAX_Q, ENTMAX_MEAN };

SMI consts entmax_grad_setup(const row_call *c, const span *s) {
  double a = s->src[1] ? (double)*s->src[1] : c->params[0];
  return (consts){{(real)(a - 1)}};
}
SMI consts entmax15_grad_setup(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return (consts){{(real)0.5}};
}
SMI void entmax_grad_settle(consts *k, const span *s, const sum_row *r) {
  (void)s;
  k->v[ENTMAX_MEAN] = r->sum > 0 ? (real)(r->sum2 / r->sum) : 0;
}
SMI vreal entmax_log(vreal y) { return v_log_scaled(v_select(v_lt(v_set1(0), y), y, v_set1(1)), v_set1(0)); }
/* Above e^40 a slope is no longer told from infinity. */
SMI vreal entmax_slope(vreal y, const consts *k) {
  vreal power = k->v[ENTMAX_Q] == 1 ? v_set1(1) : v_exp(v_min(v_mul(entmax_log(y), v_set1(1 - k->v[ENTMAX_Q])), v_set1(40)));
  return v_select(v_lt(v_set1(0), y), power, v_set1(0));
}
SMI void entmax_grad_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt), slope = entmax_slope(y, k);
  acc->nan = m_or(acc->nan, m_not(v_eq(y, y)));
  acc->a = v_add(acc->a, slope);
  acc->b = v_fma(slope, upstream(s, y, i, cnt), acc->b);
}
SMI vreal entmax_grad_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt);
  return v_clean(v_mul(entmax_slope(y, k), v_sub(upstream(s, y, i, cnt), v_set1(k->v[ENTMAX_MEAN]))));
}
/* (e^t - 1 - t) / t^2 for t >= 0, times t^2 / q^2 = log^2 y. */
SMI vreal entmax_bend(vreal y, const consts *k) {
  vreal log = entmax_log(y), t = v_mul(log, v_set1(-k->v[ENTMAX_Q])), series = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - 2; i++) series = v_fma(series, t, v_set1(exp_coefficients[i]));
  vmask small = v_lt(t, v_set1((real)0.35));
  vreal far = v_select(small, v_set1(1), t), e = v_exp(v_min(far, v_set1(40)));
  vreal h = v_select(small, series, v_div(v_sub(v_sub(e, v_set1(1)), far), v_mul(far, far)));
  return v_mul(v_mul(y, v_mul(log, log)), h);
}
SMI void entmax_bend_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt), f = entmax_bend(y, k);
  acc->a = v_add(acc->a, f);
  acc->b = v_fma(f, upstream(s, y, i, cnt), acc->b);
}
SMI void entmax_alpha_row(const span *s, const consts *k, const sum_row *r, double post) {
  s->dst[1][0] = post != post ? r_nan() : r_clean((double)k->v[ENTMAX_MEAN] * r->more - r->more2);
}
SUM_SUMS_OF(entmax_grad_sums, entmax_grad_add)
SUM_SUMS_OF(entmax_bends, entmax_bend_add)
SUM_VALUES_OF(entmax_grad_values, entmax_grad_value)
static const sum_body sparsemax_grad_body = {
    .setup = setup_one, .settle = entmax_grad_settle, .sums = entmax_grad_sums, .emit = entmax_grad_values, .full = 1};
SUM_KERNEL(sparsemax_grad)
static const sum_body entmax15_grad_body = {
    .setup = entmax15_grad_setup, .settle = entmax_grad_settle, .sums = entmax_grad_sums, .emit = entmax_grad_values, .full = 1};
SUM_KERNEL(entmax15_grad)
static const sum_body entmax_x_grad_body = {
    .setup = entmax_grad_setup, .settle = entmax_grad_settle, .sums = entmax_grad_sums, .emit = entmax_grad_values, .full = 1};
SUM_KERNEL(entmax_x_grad)
static const sum_body entmax_alpha_grad_body = {.setup = entmax_grad_setup,
                                                .settle = entmax_grad_settle,
                                                .sums = entmax_grad_sums,
                                                .more = entmax_bends,
                                                .emit = entmax_grad_values,
                                                .row = entmax_alpha_row,
                                                .full = 1};
SUM_KERNEL(entmax_alpha_grad)
static const row_kernel *entmax_grad_pick(const row_call *c) { return c->dst[1] ? &entmax_alpha_grad_kernel : &entmax_x_grad_kernel; }
PICK_KERNEL(entmax_grad, 1)

/* ---- normmax: p = v^(1 / q) with kappa = 1 and sum p^alpha = 1, y = p / sum p ---- */

SMI threshold_shape normmax_shape(const row_call *c, const span *s) {
  (void)s;
  return (threshold_shape){.kappa = 1, .power = 1 / (c->params[0] - 1), .norm = c->params[0]};
}
SHAPE_SETUP(normmax)
SMI vreal normmax_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal log, v = threshold_v(at(s->src[0], i, cnt), k, &log), p = threshold_power(v, log, k->v[THRESHOLD_POWER]);
  return v_select(v_eq(p, v_set1(k->v[THRESHOLD_ONE])), v_set1(1), v_clean(v_mul(p, v_set1(k->v[THRESHOLD_INV]))));
}
SUM_VALUES_OF(normmax_values, normmax_value)
static const threshold_body normmax_body = {
    .shape = normmax_shape,
    .scaled = true,
    .sum = {.setup = normmax_setup, .settle = threshold_settle, .emit = normmax_values, .full = 1, .max = true}};
THRESHOLD_KERNEL(normmax)

/* dx_i = C (t_i (dy_i - D) - y_i (sum t dy - D sum t)), t = y^(1 - q), D = sum y dy, C = (sum y^alpha)^(q / alpha) / q. */
enum { NORMMAX_Q, NORMMAX_DOT, NORMMAX_AWAY, NORMMAX_FACTOR };

SMI void normmax_grad_settle(consts *k, const span *s, const sum_row *r) {
  (void)s;
  double q = (double)k->v[NORMMAX_Q];
  k->v[NORMMAX_DOT] = (real)r->sum2;
  k->v[NORMMAX_AWAY] = (real)(r->more2 - r->sum2 * r->more);
  k->v[NORMMAX_FACTOR] = r->sum > 0 ? (real)(d_exp(d_log(r->sum, 0) * q / (1 + q)) / q) : 0;
}
SMI void normmax_grad_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt), power = v_exp(v_mul(entmax_log(y), v_set1(1 + k->v[NORMMAX_Q])));
  acc->nan = m_or(acc->nan, m_not(v_eq(y, y)));
  acc->a = v_add(acc->a, v_select(v_lt(v_set1(0), y), power, v_set1(0)));
  acc->b = v_fma(y, upstream(s, y, i, cnt), acc->b);
}
SMI vreal normmax_grad_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt), away = v_sub(upstream(s, y, i, cnt), v_set1(k->v[NORMMAX_DOT]));
  vreal dx = v_fnma(y, v_set1(k->v[NORMMAX_AWAY]), v_mul(entmax_slope(y, k), away));
  return v_clean(v_mul(dx, v_set1(k->v[NORMMAX_FACTOR])));
}
SUM_SUMS_OF(normmax_grad_sums, normmax_grad_add)
SUM_VALUES_OF(normmax_grad_values, normmax_grad_value)
static const sum_body normmax_grad_body = {.setup = entmax_grad_setup,
                                           .settle = normmax_grad_settle,
                                           .sums = normmax_grad_sums,
                                           .more = entmax_grad_sums,
                                           .emit = normmax_grad_values,
                                           .full = 1};
SUM_KERNEL(normmax_grad)

OPERATOR(sparsemax, sparsemax, sparsemax_grad)
OPERATOR(entmax15, entmax15, entmax15_grad)
OPERATOR(entmax, entmax, entmax_grad)
OPERATOR(normmax, normmax, normmax_grad)
