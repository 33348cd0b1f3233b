/* row/ops_sparse.c - weights that are exactly 0 below a threshold, and their gradients, which
 * need y alone. See ops.c and engine/threshold.h. */
#include "engine/scores.h"
#include "engine/threshold.h"
#include "engine/weights.h"

/* ---- entmax: y = v^(1 / q), q = alpha - 1 = kappa. sparsemax is q = 1, entmax15 q = 1/2 ---- */

SMI double entmax_alpha_of(const real *own, double param) {
  const double a = own ? (double)*own : param;
  return a >= 0 && a <= 10 ? a : (double)r_nan();
}
SMI double entmax_alpha(const row_call *c) { return entmax_alpha_of(c->src[1], c->params[0]); }
SMI threshold_shape entmax_shape(const row_call *c, const span *s) {
  const double q = entmax_alpha_of(s->src[1], c->params[0]) - 1;
  return (threshold_shape){.kappa = q, .power = 1 / q, .norm = 1};
}
SMI threshold_shape sparsemax_shape(const row_call *c, const span *s) { return (threshold_shape){1, 1, 1}; }
SMI threshold_shape entmax15_shape(const row_call *c, const span *s) { return (threshold_shape){0.5, 2, 1}; }
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

SMI vreal sparsemax_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return threshold_v(at(s->src[0], i, cnt), k, NULL);
}
SMI vreal entmax15_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal v = threshold_v(at(s->src[0], i, cnt), k, NULL);
  return v_clean(v_mul(v, v));
}
SMI vreal entmax_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  threshold_pair log;
  const vreal v = threshold_v(at(s->src[0], i, cnt), k, &log);
  return v_clean(v_mul(threshold_weight(v, log, k), v_set1(k->v[THRESHOLD_DOWN])));
}
REDUCE_MAP_VALUES_OF(sparsemax_values, sparsemax_value)
REDUCE_MAP_VALUES_OF(entmax15_values, entmax15_value)
REDUCE_MAP_VALUES_OF(entmax_values, entmax_value)
static const threshold_body sparsemax_body = {.shape = sparsemax_shape,
                                              .sum = {.setup = sparsemax_setup,
                                                      .finalize = threshold_finalize,
                                                      .write = sparsemax_values,
                                                      .full = 1,
                                                      .max = true}};
static const row_kernel sparsemax_kernel = {.engine = &threshold_engine, .body = &sparsemax_body};
static const threshold_body entmax15_body = {.shape = entmax15_shape,
                                             .sum = {.setup = entmax15_setup,
                                                     .finalize = threshold_finalize,
                                                     .write = entmax15_values,
                                                     .full = 1,
                                                     .max = true}};
static const row_kernel entmax15_kernel = {.engine = &threshold_engine, .body = &entmax15_body};
static const threshold_body entmax_any_body = {.shape = entmax_shape,
                                               .sum = {.setup = entmax_setup,
                                                       .finalize = threshold_finalize,
                                                       .write = entmax_values,
                                                       .full = 1,
                                                       .max = true}};
static const row_kernel entmax_any_kernel = {.engine = &threshold_engine, .body = &entmax_any_body};

static const exp_body entmax_one_body = {
    .setup = setup_plain, .scores = &plain_scores, .write = plain_weights};
EXP_KERNEL(entmax_one)
static const row_kernel *entmax_dispatch(const row_call *c) {
  double a = entmax_alpha(c);
  return a == 1     ? &entmax_one_kernel
         : a == 1.5 ? &entmax15_kernel
         : a == 2   ? &sparsemax_kernel
                    : &entmax_any_kernel;
}
static const row_kernel entmax_kernel = {.engine = &choice_engine,
                                         .body = &(const row_choice){entmax_dispatch, 1}};

/* dx_i = s_i (dy_i - R), s_i = y_i^(1 - q) where y_i > 0, R = sum s dy / sum s.
 * dalpha = R sum_i f_i - sum_i dy_i f_i, f_i = y_i (e^t - 1 - t) / q^2, t = -q log y_i: no
 * cancellation, and y log^2(y) / 2 at q = 0. */
enum { ENTMAX_Q, ENTMAX_MEAN };

SMI consts entmax_grad_setup(const row_call *c, const span *s) {
  double a = s->src[1] ? (double)*s->src[1] : c->params[0];
  return (consts){{(real)(a - 1)}};
}
SMI consts entmax15_grad_setup(const row_call *c, const span *s) { return (consts){{(real)0.5}}; }
SMI void entmax_grad_finalize(consts *k, const span *s, const reduce_map_row *r) {
  k->v[ENTMAX_MEAN] = r->sum > 0 ? (real)(r->sum2 / r->sum) : 0;
}
SMI vreal entmax_log(vreal y) { return v_log_scaled(v_select(v_lt(v_set1(0), y), y, v_set1(1)), v_set1(0)); }
/* Other weights may be so small that their slope is out of range, or that the slopes of a group
 * cannot be added up. */
#define ENTMAX_STEEPEST ((real)(SMX_REAL == 32 ? 77.5 : 629))
SMI vreal entmax_slope(vreal y, const consts *k) {
  const vreal log = v_mul(entmax_log(y), v_set1(1 - k->v[ENTMAX_Q]));
  vreal power = k->v[ENTMAX_Q] == 1 ? v_set1(1) : v_exp(v_min(log, v_set1(ENTMAX_STEEPEST)));
  return v_select(v_lt(v_set1(0), y), power, v_set1(0));
}
SMI void entmax_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt), slope = entmax_slope(y, k);
  acc->nan = m_or(acc->nan, m_not(v_eq(y, y)));
  acc->a = v_add(acc->a, slope);
  acc->b = v_fma(slope, upstream(s, y, i, cnt), acc->b);
}
SMI vreal entmax_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  return v_clean(v_mul(entmax_slope(y, k), v_sub(upstream(s, y, i, cnt), v_set1(k->v[ENTMAX_MEAN]))));
}
/* (e^t - 1 - t) / t^2, times t^2 / q^2 = log^2 y. */
SMI vreal entmax_bend(vreal y, const consts *k) {
  vreal log = entmax_log(y), t = v_mul(log, v_set1(-k->v[ENTMAX_Q])), series = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - 2; i++) series = v_fma(series, t, v_set1(exp_coefficients[i]));
  vmask small = v_lt(v_abs(t), v_set1((real)0.35));
  vreal far = v_select(small, v_set1(1), t), e = v_exp(v_min(far, v_set1(ENTMAX_STEEPEST)));
  vreal h = v_select(small, series, v_div(v_sub(v_sub(e, v_set1(1)), far), v_mul(far, far)));
  return v_mul(v_mul(y, v_mul(log, log)), h);
}
SMI void entmax_bend_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt), f = entmax_bend(y, k);
  acc->a = v_add(acc->a, f);
  acc->b = v_fma(f, upstream(s, y, i, cnt), acc->b);
}
SMI void entmax_alpha_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  s->dst[1][0] = post != post ? r_nan() : r_clean((double)k->v[ENTMAX_MEAN] * r->more - r->more2);
}
REDUCE_MAP_SUMS_OF(entmax_grad_sums, entmax_grad_add)
REDUCE_MAP_SUMS_OF(entmax_bends, entmax_bend_add)
REDUCE_MAP_VALUES_OF(entmax_grad_values, entmax_grad_value)
static const reduce_map_body sparsemax_grad_body = {.setup = setup_one,
                                                    .finalize = entmax_grad_finalize,
                                                    .sums = entmax_grad_sums,
                                                    .write = entmax_grad_values,
                                                    .full = 1};
REDUCE_MAP_KERNEL(sparsemax_grad)
static const reduce_map_body entmax15_grad_body = {.setup = entmax15_grad_setup,
                                                   .finalize = entmax_grad_finalize,
                                                   .sums = entmax_grad_sums,
                                                   .write = entmax_grad_values,
                                                   .full = 1};
REDUCE_MAP_KERNEL(entmax15_grad)
static const reduce_map_body entmax_x_grad_body = {.setup = entmax_grad_setup,
                                                   .finalize = entmax_grad_finalize,
                                                   .sums = entmax_grad_sums,
                                                   .write = entmax_grad_values,
                                                   .full = 1};
REDUCE_MAP_KERNEL(entmax_x_grad)
static const reduce_map_body entmax_alpha_grad_body = {.setup = entmax_grad_setup,
                                                       .finalize = entmax_grad_finalize,
                                                       .sums = entmax_grad_sums,
                                                       .more = entmax_bends,
                                                       .write = entmax_grad_values,
                                                       .row = entmax_alpha_row,
                                                       .full = 1};
REDUCE_MAP_KERNEL(entmax_alpha_grad)

/* Above alpha = 2 the slope of the smallest weight may be e^80 times that of others. R is then its
 * dy, up to rounding, and rounding errors times such a slope would be the gradient. So a first pass
 * finds that weight, and dy less its dy, c, is summed: dx_i = s_i ((dy_i - c) - (R - c)), which is
 * exact where dy_i = c. Slopes are summed relative to its own. */
enum { STEEP_MINMAX = 100 };
enum { STEEP_LEAST, STEEP_MOST, STEEP_UPSTREAM }; /* of found: the smallest and the largest weight, and c */

/* Of the smallest weights of the lanes the smallest; of equal ones that of the lowest lane; within
 * a lane the first in index order. */
NOINLINE void steep_scan_group(const span *s, size_t first, size_t n, row_part *part) {
  real low[BLOCK], there[BLOCK];
  for (int l = 0; l < BLOCK; l++) low[l] = R_INF, there[l] = 0;
  vreal most = v_set1(0);
  vmask nan = v_lt(v_set1(0), v_set1(0));
#define STEP(u, i, cnt) \
  { \
    const vreal y = at(s->src[SRC_Y], i, cnt), least = v_load(low + (u)*LANES); \
    const vmask less = m_and(v_lt(v_set1(0), y), v_lt(y, least)); \
    nan = m_or(nan, m_not(v_eq(y, y))); \
    most = v_max(y, most); \
    v_store(low + (u)*LANES, v_select(less, y, least)); \
    v_store(there + (u)*LANES, v_select(less, at(s->src[SRC_DY], i, cnt), v_load(there + (u)*LANES))); \
  }
  FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
#undef STEP
  int lowest = 0;
  for (int l = 1; l < BLOCK; l++) lowest = low[l] < low[lowest] ? l : lowest;
  *part = (row_part){.index = -1,
                     .low = (double)low[lowest],
                     .top_x = (double)there[lowest],
                     .max = (double)v_hmax(most),
                     .nan = m_any(nan)};
}
SMI void steep_begin(const reduce_map_body *b, const row_call *c, row_state *st) {
  reduce_map_begin(b, c, st);
  st->mode = STEEP_MINMAX;
  st->writes = false;
  st->reduce.found[STEEP_LEAST] = (double)R_INF;
}
static inline void steep_pass(const reduce_map_body *b, const row_call *c, row_state *st, row_part *parts) {
  const span s = span_of(c, 0);
  if (st->mode != STEEP_MINMAX) reduce_map_pass(b, c, st, parts);
  else
    for (size_t g = 0; g * GROUP < c->count; g++)
      steep_scan_group(&s, c->start - c->origin + g * GROUP, group_size(g * GROUP, c->count), parts + g);
}
static inline void steep_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  reduce_map_merge(c, st, parts, count);
  double *found = st->reduce.found;
  for (size_t g = 0; st->mode == STEEP_MINMAX && g < count; g++) {
    if (parts[g].low < found[STEEP_LEAST])
      found[STEEP_LEAST] = parts[g].low, found[STEEP_UPSTREAM] = parts[g].top_x;
    if (parts[g].max > found[STEEP_MOST]) found[STEEP_MOST] = parts[g].max;
  }
}
static inline bool steep_next(const reduce_map_body *b, const row_call *c, row_state *st) {
  if (st->mode != STEEP_MINMAX || st->nan) return reduce_map_next(b, c, st);
  st->mode = REDUCE_MAP_SUMS;
  return true;
}
#define STEEP_KERNEL(name) \
  static void name##_begin(const row_call *c, row_state *st) { steep_begin(&name##_body, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { \
    steep_pass(&name##_body, c, st, parts); \
  } \
  static void name##_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) { \
    steep_merge(c, st, parts, count); \
  } \
  static bool name##_next(const row_call *c, row_state *st) { return steep_next(&name##_body, c, st); } \
  static const row_kernel name##_kernel = PROGRAM(name);

/* dy - c, 0 where there is no weight. */
SMI vreal steep_away(const span *s, const reduce_map_row *r, vreal y, size_t i, int cnt) {
  return where_weighted(y, v_sub(upstream(s, y, i, cnt), v_set1((real)r->found[STEEP_UPSTREAM])));
}
/* The slope of y relative to that of a weight whose logarithm is k->v[STEEP_LOG]. */
enum { STEEP_LOG = 4, STEEP_BEND }; /* of consts.v, behind those of entmax and normmax */
SMI double steep_log(double y) { return y > 0 && y < (double)R_INF ? d_log(y, 0) : 0; }
SMI vreal steep_slope(vreal y, const consts *k) {
  const vreal log = v_mul(v_sub(entmax_log(y), v_set1(k->v[STEEP_LOG])), v_set1(1 - k->v[ENTMAX_Q]));
  return v_select(v_lt(v_set1(0), y), v_exp(v_min(log, v_set1(ENTMAX_STEEPEST))), v_set1(0));
}
SMI void steep_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                   reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt), slope = steep_slope(y, k);
  acc->a = v_add(acc->a, slope);
  acc->b = v_fma(slope, steep_away(s, r, y, i, cnt), acc->b);
}
/* s (dy - R), s as the square of its root, which is in range where s may not be. */
SMI vreal steep_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt), log = v_mul(entmax_log(y), v_set1((real)0.5 * (1 - k->v[ENTMAX_Q])));
  vreal root = v_select(v_lt(v_set1(0), y), v_exp(v_min(log, v_set1(ENTMAX_STEEPEST))), v_set1(0));
  vreal away = v_sub(steep_away(s, r, y, i, cnt), v_set1(k->v[ENTMAX_MEAN]));
  return v_clean(v_mul(v_mul(root, away), root));
}
/* f as in entmax_bend, relative to e^t of the smallest weight. */
SMI void steep_bend_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                        reduce_map_acc *acc) {
  const vreal y = at(s->src[SRC_Y], i, cnt), log = entmax_log(y), t = v_mul(log, v_set1(-k->v[ENTMAX_Q]));
  const vreal most = v_mul(v_set1(k->v[STEEP_LOG]), v_set1(-k->v[ENTMAX_Q]));
  vreal series = v_set1(exp_coefficients[0]), unit = v_set1(k->v[STEEP_BEND]);
  for (int j = 1; j < EXP_TERMS - 2; j++) series = v_fma(series, t, v_set1(exp_coefficients[j]));
  vmask small = v_lt(t, v_set1((real)0.35));
  vreal far = v_select(small, v_set1(1), t), e = v_exp(v_min(v_sub(far, most), v_set1(ENTMAX_STEEPEST)));
  vreal rest = v_mul(unit, v_add(v_set1(1), far));
  vreal h = v_select(small, v_mul(unit, series), v_div(v_sub(e, rest), v_mul(far, far)));
  vreal f = v_mul(v_mul(y, v_mul(log, log)), h);
  acc->a = v_add(acc->a, f);
  acc->b = v_fma(f, steep_away(s, r, y, i, cnt), acc->b);
}
SMI void entmax_steep_finalize(consts *k, const span *s, const reduce_map_row *r) {
  entmax_grad_finalize(k, s, r);
  const double log = steep_log(r->found[STEEP_LEAST]);
  k->v[STEEP_LOG] = (real)log;
  k->v[STEEP_BEND] = (real)d_exp((double)k->v[ENTMAX_Q] * log);
}
SMI void entmax_steep_alpha_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  const double unit = d_exp(-(double)k->v[ENTMAX_Q] * steep_log(r->found[STEEP_LEAST]));
  s->dst[1][0] = post != post ? r_nan() : r_clean(((double)k->v[ENTMAX_MEAN] * r->more - r->more2) * unit);
}
REDUCE_MAP_SUMS_OF(steep_sums, steep_add)
REDUCE_MAP_SUMS_OF(steep_bends, steep_bend_add)
REDUCE_MAP_VALUES_OF(steep_values, steep_value)
static const reduce_map_body entmax_steep_body = {.setup = entmax_grad_setup,
                                                  .finalize = entmax_steep_finalize,
                                                  .sums = steep_sums,
                                                  .write = steep_values,
                                                  .full = 1};
STEEP_KERNEL(entmax_steep)
static const reduce_map_body entmax_steep_alpha_body = {.setup = entmax_grad_setup,
                                                        .finalize = entmax_steep_finalize,
                                                        .sums = steep_sums,
                                                        .more = steep_bends,
                                                        .write = steep_values,
                                                        .row = entmax_steep_alpha_row,
                                                        .full = 1};
STEEP_KERNEL(entmax_steep_alpha)

static const row_kernel *entmax_grad_dispatch(const row_call *c) {
  if (entmax_alpha(c) > 2) return c->dst[1] ? &entmax_steep_alpha_kernel : &entmax_steep_kernel;
  return c->dst[1] ? &entmax_alpha_grad_kernel : &entmax_x_grad_kernel;
}
static const row_kernel entmax_grad_kernel = {.engine = &choice_engine,
                                              .body = &(const row_choice){entmax_grad_dispatch, 1}};

/* ---- normmax: p = v^(1 / q) with kappa = 1 and sum p^alpha = 1, y = p / sum p ---- */

SMI threshold_shape normmax_shape(const row_call *c, const span *s) {
  return (threshold_shape){.kappa = 1, .power = 1 / (c->params[0] - 1), .norm = c->params[0]};
}
SHAPE_SETUP(normmax)
SMI vreal normmax_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  threshold_pair log;
  const vreal v = threshold_v(at(s->src[0], i, cnt), k, &log), p = threshold_weight(v, log, k);
  return v_select(v_eq(p, v_set1(k->v[THRESHOLD_ONE])), v_set1(1),
                  v_clean(v_mul(p, v_set1(k->v[THRESHOLD_INV]))));
}
REDUCE_MAP_VALUES_OF(normmax_values, normmax_value)
static const threshold_body normmax_body = {.shape = normmax_shape,
                                            .scaled = true,
                                            .sum = {.setup = normmax_setup,
                                                    .finalize = threshold_finalize,
                                                    .write = normmax_values,
                                                    .full = 1,
                                                    .max = true}};
static const row_kernel normmax_kernel = {.engine = &threshold_engine, .body = &normmax_body};

/* dx_i = C (t_i (dy_i - D) - y_i (sum t dy - D sum t)), t = y^(1 - q), D = sum y
 * dy, C = (sum y^alpha)^(q / alpha) / q. */
enum { NORMMAX_Q, NORMMAX_DOT, NORMMAX_AWAY, NORMMAX_FACTOR };

SMI void normmax_grad_finalize(consts *k, const span *s, const reduce_map_row *r) {
  double q = (double)k->v[NORMMAX_Q];
  k->v[NORMMAX_DOT] = (real)r->sum2;
  k->v[NORMMAX_AWAY] = (real)(r->more2 - r->sum2 * r->more);
  k->v[NORMMAX_FACTOR] = r->sum > 0 ? (real)(d_exp(d_log(r->sum, 0) * q / (1 + q)) / q) : 0;
}
SMI void normmax_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                          reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt), power = v_exp(v_mul(entmax_log(y), v_set1(1 + k->v[NORMMAX_Q])));
  acc->nan = m_or(acc->nan, m_not(v_eq(y, y)));
  acc->a = v_add(acc->a, v_select(v_lt(v_set1(0), y), power, v_set1(0)));
  acc->b = v_fma(y, upstream(s, y, i, cnt), acc->b);
}
SMI vreal normmax_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt), away = v_sub(upstream(s, y, i, cnt), v_set1(k->v[NORMMAX_DOT]));
  vreal dx = v_fnma(y, v_set1(k->v[NORMMAX_AWAY]), v_mul(entmax_slope(y, k), away));
  return v_clean(v_mul(dx, v_set1(k->v[NORMMAX_FACTOR])));
}
REDUCE_MAP_SUMS_OF(normmax_grad_sums, normmax_grad_add)
REDUCE_MAP_VALUES_OF(normmax_grad_values, normmax_grad_value)
static const reduce_map_body normmax_grad_body = {.setup = entmax_grad_setup,
                                                  .finalize = normmax_grad_finalize,
                                                  .sums = normmax_grad_sums,
                                                  .more = entmax_grad_sums,
                                                  .write = normmax_grad_values,
                                                  .full = 1};
REDUCE_MAP_KERNEL(normmax_grad)

/* Above alpha = 2 with dy less that of the steepest weight, as for entmax, and powers relative to
 * those of the largest: with m that weight and w = y / m the factor is C m^(1 - q) = m
 * (sum w^alpha)^(q / alpha) / q. */
SMI void normmax_steep_finalize(consts *k, const span *s, const reduce_map_row *r) {
  const double q = (double)k->v[NORMMAX_Q];
  k->v[NORMMAX_DOT] = (real)r->sum2;
  k->v[NORMMAX_AWAY] = (real)(r->more2 - r->sum2 * r->more);
  const double most = r->found[STEEP_MOST];
  k->v[NORMMAX_FACTOR] = r->sum > 0 ? (real)(d_exp(d_log(r->sum, 0) * q / (1 + q)) * most / q) : 0;
  k->v[STEEP_LOG] = (real)steep_log(most);
}
SMI void normmax_steep_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                           reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt), log = v_sub(entmax_log(y), v_set1(k->v[STEEP_LOG]));
  acc->a =
      v_add(acc->a, v_select(v_lt(v_set1(0), y), v_exp(v_mul(log, v_set1(1 + k->v[NORMMAX_Q]))), v_set1(0)));
  acc->b = v_fma(y, steep_away(s, r, y, i, cnt), acc->b);
}
SMI vreal normmax_steep_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt), away = v_sub(steep_away(s, r, y, i, cnt), v_set1(k->v[NORMMAX_DOT]));
  away = where_weighted(y, v_mul(steep_slope(y, k), away));
  return v_clean(v_mul(v_fnma(y, v_set1(k->v[NORMMAX_AWAY]), away), v_set1(k->v[NORMMAX_FACTOR])));
}
REDUCE_MAP_SUMS_OF(normmax_steep_sums, normmax_steep_add)
REDUCE_MAP_VALUES_OF(normmax_steep_values, normmax_steep_value)
static const reduce_map_body normmax_steep_body = {.setup = entmax_grad_setup,
                                                   .finalize = normmax_steep_finalize,
                                                   .sums = normmax_steep_sums,
                                                   .more = steep_sums,
                                                   .write = normmax_steep_values,
                                                   .full = 1};
STEEP_KERNEL(normmax_steep)
static const row_kernel *normmax_back_dispatch(const row_call *c) {
  return c->params[0] > 2 ? &normmax_steep_kernel : &normmax_grad_kernel;
}
static const row_kernel normmax_back_kernel = {.engine = &choice_engine,
                                               .body = &(const row_choice){normmax_back_dispatch, -1}};

OPERATOR_WITH(sparsemax, sparsemax, sparsemax_grad, THRESHOLD_LIST, 0)
OPERATOR_WITH(entmax15, entmax15, entmax15_grad, THRESHOLD_LIST, 0)
OPERATOR_WITH(entmax, entmax, entmax_grad, THRESHOLD_LIST, 0)
OPERATOR_WITH(normmax, normmax, normmax_back, THRESHOLD_LIST, 0)
