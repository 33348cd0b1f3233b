/* row/ops.c - the arithmetic of softmax and operators close to it, forward and backward. Compiled
 * once per instruction set and real type.
 *
 * An operator describes how a score is formed (engine/exp.h), or what is summed and written
 * (engine/reduce_map.h); the engines do the rest. Each forward kernel is followed by its gradient.
 * Formulas and sources are in table.c. Other row operators: ops_masked.c (elements that do not
 * exist), ops_sums.c (logsumexp and other numbers of a row), ops_maps.c (element by element). */
#include "engine/exp_columns.h"
#include "engine/exp_half.h"
#include "engine/exp_loops.h"
#include "engine/lse_short.h"
#include "engine/exp_small.h"
#include "engine/argfind.h"
#include "engine/dtype_io.h"
#include "engine/scores.h"
#include "engine/weights.h"

/* ---- softmax ---- */

SMI double softmax_factor(double t, double base) {
  return (base == 2.718281828459045 ? 1 : d_log(base, 0)) / t;
}
/* T, or 0 where 1 / T is out of range: the limit is the same. NaN below 0. */
SMI double softmax_temperature(const double *params, const real *row) {
  double t = row ? (double)*row : params[0];
  if (!(t >= 0)) return (double)r_nan();
  return softmax_factor(t, params[1]) <= (double)R_MAX ? t : 0;
}
SMI consts softmax_setup(const row_call *c, const span *s) {
  double t = softmax_temperature(c->params, s->src[1]);
  return factor(t >= 0 ? softmax_factor(t, c->params[1]) : (double)r_nan());
}

static const exp_body softmax_plain_body = {
    .setup = setup_plain, .scores = &plain_scores, .write = plain_weights, .small = exp_small_call};
EXP_KERNEL(softmax_plain)
/* Contiguous rows without a row_call. */
static bool softmax_short(size_t rows, size_t n, const void *x, void *y, row_writing writing) {
  small_rows w = {rows, n, x, y, (ptrdiff_t)n, (ptrdiff_t)n, NULL, &softmax_plain_kernel, .writing = writing};
  if (exp_small_rows(&w)) return true;
  if (n > EXP_CACHED || rows > FOLLOW / n) return false;
  const consts k = {{0}};
  span s = {.n = n, .src = {x}, .dst = {y}};
  for (size_t r = 0; r < rows; r++, s.src[0] += n, s.dst[0] += n)
    if (!exp_cached_row(&softmax_plain_body, &s, &k, exp_max(&plain_scores, &s, &k, 0, n), WRITE_CACHED,
                        s.dst[0], 0, NULL))
      small_special_row(&w, r);
  return true;
}
static const exp_body softmax_scaled_body = {
    .setup = softmax_setup, .scaled = true, .scores = &scaled_scores, .write = scaled_weights};
EXP_KERNEL(softmax_scaled)

/* dT = -(1 / ln b) sum_i log(y_i) dx_i: log y stands for x, from which it differs by a factor and a
 * constant, and the dx of a row add up to 0. */
SMI consts softmax_grad_setup(const row_call *c, const span *s) {
  double t = softmax_temperature(c->params, s->src[1]), ln_b = softmax_factor(1, c->params[1]);
  return (consts){{t == 0 ? 0 : (real)(ln_b / t), (real)(-1 / ln_b)}};
}
static const reduce_map_body softmax_scaled_grad_body = {
    .setup = softmax_grad_setup, .sums = weights_sums, .write = weights_out, .full = 1};
REDUCE_MAP_KERNEL(softmax_scaled_grad)

SMI vreal softmax_t_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt), dx = weights_ds(s, k, r, i, cnt);
  put(s->dst[0], i, cnt, dx);
  vmask none = v_eq(dx, v_set1(0));
  return v_select(none, v_set1(0), v_mul(v_log_scaled(v_select(none, v_set1(1), y), v_set1(0)), dx));
}
SMI void softmax_t_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  s->dst[1][0] = r_clean((double)k->v[1] * post);
}
REDUCE_MAP_WRITE_OF(softmax_t_out, softmax_t_write)
static const reduce_map_body softmax_t_grad_body = {.setup = softmax_grad_setup,
                                                    .sums = weights_sums,
                                                    .write = softmax_t_out,
                                                    .row = softmax_t_row,
                                                    .full = 1};
REDUCE_MAP_KERNEL(softmax_t_grad)

/* ---- hardmax: y_i = [x_i = max] / count, or 1 at the first ---- */

NOINLINE void hardmax_where(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                            row_part *part) {
  *part = (row_part){.index = r->index < 0 ? argfind_in_group(s, r->max, i, n) : -1};
}
SMI vreal hardmax_first_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return argfind_put((double)r->index, s, i, v_set1(1));
}
REDUCE_MAP_VALUES_OF(hardmax_first_out, hardmax_first_value)
static const reduce_map_body hardmax_split_body = {
    .setup = setup_plain, .sums = reduce_map_ties, .write = reduce_map_share, .full = 1, .max = true};
REDUCE_MAP_KERNEL(hardmax_split)
static const reduce_map_body hardmax_first_body = {
    .setup = setup_plain, .sums = hardmax_where, .write = hardmax_first_out, .full = 1, .max = true};
REDUCE_MAP_KERNEL(hardmax_first)

static const row_kernel *hardmax_dispatch(const row_call *c) {
  return c->params[0] == 0 ? &hardmax_first_kernel : &hardmax_split_kernel;
}
static const row_kernel hardmax_kernel = {.engine = &choice_engine,
                                          .body = &(const row_choice){hardmax_dispatch, -1}};

/* Gradient: 0, or straight through softmax(x / T): p_i (dy_i - sum_j p_j dy_j) / T. */
SMI vreal zero_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return v_set1(0);
}
REDUCE_MAP_VALUES_OF(zero_out, zero_value)
/* max: finds NaN */
static const reduce_map_body zero_body = {
    .setup = setup_plain, .write = zero_out, .full = 1, .max = true, .gradient = true};
REDUCE_MAP_KERNEL(zero)

SMI consts straight_setup(const row_call *c, const span *s) {
  consts k = factor(1 / c->params[2]);
  k.v[3] = (real)(1 / c->params[2]);
  return k;
}
EXP_MOMENT(straight_moment, moment_upstream)
SMI vreal straight_value(const exp_write *w, size_t i, int cnt) {
  return weight_gradient(w, exp_weight_at(w, i), w->k->v[3], i, cnt);
}
EXP_WRITE(straight_out, straight_value)
static const exp_body straight_body = {.setup = straight_setup,
                                       .scaled = true,
                                       .scores = &scaled_scores,
                                       .write = straight_out,
                                       .moment = straight_moment,
                                       .gradient = true};
EXP_KERNEL(straight)

static const row_kernel *hardmax_grad_dispatch(const row_call *c) {
  return c->params[1] == 0 ? &zero_kernel : &straight_kernel;
}
static const row_kernel hardmax_grad_kernel = {.engine = &choice_engine,
                                               .body = &(const row_choice){hardmax_grad_dispatch, -1}};

static bool is_plain(double t, double base) { return t == 1 && base == 2.718281828459045; }
static const row_kernel *softmax_dispatch(const row_call *c) {
  double t = softmax_temperature(c->params, c->src[1]);
  return t == 0                      ? &hardmax_split_kernel
         : is_plain(t, c->params[1]) ? &softmax_plain_kernel
                                     : &softmax_scaled_kernel;
}
static const row_kernel *softmax_grad_dispatch(const row_call *c) {
  bool plain = is_plain(softmax_temperature(c->params, c->src[1]), c->params[1]);
  return c->dst[1] ? &softmax_t_grad_kernel : plain ? &weights_kernel : &softmax_scaled_grad_kernel;
}

/* ---- softmin ---- */

SMI consts softmin_setup(const row_call *c, const span *s) { return factor(-1 / c->params[0]); }
static const exp_body softmin_body = {
    .setup = softmin_setup, .scaled = true, .scores = &scaled_scores, .write = scaled_weights};
static const row_forms softmin_forms = {.whole = EXP_STORED / 2};
static const row_kernel softmin_kernel = {
    .engine = &exp_engine, .body = &softmin_body, .forms = &softmin_forms};

SMI consts softmin_grad_setup(const row_call *c, const span *s) {
  return (consts){{(real)(-1 / c->params[0])}};
}
static const reduce_map_body softmin_grad_body = {.setup = softmin_grad_setup,
                                                  .sums = weights_sums,
                                                  .write = weights_out,
                                                  .small = weights_short,
                                                  .full = 1};
REDUCE_MAP_KERNEL(softmin_grad)

/* ---- log_softmax ---- */

SMI consts inverse_setup(const row_call *c, const span *s) { /* 1 / T */
  return factor(1 / c->params[0]);
}
SMI vreal plain_log(const exp_write *w, size_t i, int cnt) {
  return plain_log_of(at(w->s->src[0], i, cnt), w->r);
}
/* At half size, so that x - shift cannot overflow where y does not. */
SMI vreal scaled_log(const exp_write *w, size_t i, int cnt) {
  const exp_row *r = w->r;
  const real half = (real)0.5;
  vreal x = at(w->s->src[0], i, cnt), c = v_set1(w->k->v[0]);
  vreal z = v_sub(v_mul(x, v_set1(half)), v_set1(r->shift * half)), h = v_mul(z, c);
  vreal l = v_fma(z, v_set1(w->k->v[1]), v_fma(z, c, v_sub(v_set1(0), h)));
  l = v_select(v_lt(v_abs(h), v_set1(R_INF)), l, v_set1(0));
  vreal y = v_add(v_sub(h, v_set1(r->top * half)), v_sub(l, v_set1(r->top_l * half)));
  return v_clean(v_select(v_eq(x, v_set1(-R_INF)), x, v_sub(v_mul(y, v_set1(2)), v_set1(r->log))));
}
EXP_WRITE_FUSED(plain_logs, plain_log)
EXP_WRITE_FUSED(scaled_logs, scaled_log)
LSE_SHORT(log_short, plain_log)
static const exp_body log_plain_body = {.setup = setup_plain,
                                        .scores = &plain_scores,
                                        .write = plain_logs,
                                        .small = log_short,
                                        .kind = EXP_LOGS,
                                        .sum_without_max = true};
EXP_KERNEL(log_plain)
static const exp_body log_scaled_body = {.setup = inverse_setup,
                                         .scaled = true,
                                         .scores = &scaled_scores,
                                         .write = scaled_logs,
                                         .kind = EXP_LOGS,
                                         .sum_without_max = true};
EXP_KERNEL(log_scaled)
static const row_kernel *log_softmax_dispatch(const row_call *c) {
  return c->params[0] == 1 ? &log_plain_kernel : &log_scaled_kernel;
}
static bool log_softmax_half_takes(const row_call *c) { return c->params[0] == 1; }
static const row_forms log_softmax_forms = {
    .widened = ROW_HALF_LOG, HALF_FORM(logs_half), .half_takes = log_softmax_half_takes};
static const row_kernel log_softmax_kernel = {.engine = &choice_engine,
                                              .body = &(const row_choice){log_softmax_dispatch, -1},
                                              .forms = &log_softmax_forms};

/* dx_i = (dy_i - e^y_i sum_j dy_j) / T; elements of log-weight -inf take no part. */
SMI vreal logs_counted(vreal y, vreal dy) { return v_select(v_eq(y, v_set1(-R_INF)), v_set1(0), dy); }
SMI vreal logs_upstream(const span *s, vreal y, size_t i, int cnt) {
  return logs_counted(y, at(s->src[SRC_DY], i, cnt));
}
SMI void logs_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                  reduce_map_acc *acc) {
  acc->a = v_add(acc->a, logs_upstream(s, at(s->src[SRC_Y], i, cnt), i, cnt));
}
SMI vreal logs_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const vreal y = at(s->src[SRC_Y], i, cnt), up = logs_upstream(s, y, i, cnt);
  const vreal e = m_any(v_lt(v_set1(0), y)) ? v_exp(y) : v_exp_down(y); /* as log-weights are */
  const vreal dx = v_fnma(e, v_set1((real)r->sum), up);
  return v_clean(v_mul(dx, v_set1(k->v[0])));
}
REDUCE_MAP_SUMS_FUSED(logs_sums, logs_add)
REDUCE_MAP_VALUES_FUSED(logs_out, logs_value)

/* The same for T = 1 where no y is above 0 or NaN. */
SMI vreal logs_plain_term(vreal y, vreal dy, vreal acc) { return v_add(acc, logs_counted(y, dy)); }
SMI vreal logs_plain_slope(vreal y, vreal dy, vreal sum) {
  return v_flush_tiny(v_fnma(exp_down(y), sum, logs_counted(y, dy)));
}
SMI vreal logs_odd(vreal y, vreal acc) { return v_add(acc, v_max(v_set1(0), y)); } /* NaN of NaN */
static const plain_gradient logs_gradient = {logs_plain_term, logs_plain_slope, logs_odd, .heavy = true};
PLAIN_GRADIENT(logs_plain, logs_gradient)
static bool logs_short(const reduce_map_body *b, row_call *c) {
  return reduce_map_short_of(b, c, (short_gradient){logs_add, logs_value, NULL, NULL, logs_plain});
}
static const reduce_map_body log_softmax_grad_body = {.setup = inverse_setup,
                                                      .sums = logs_sums,
                                                      .write = logs_out,
                                                      .plain_sums = logs_plain_sums,
                                                      .plain_write = logs_plain_out,
                                                      .small = logs_short,
                                                      .full = 1,
                                                      .heavy = true};
REDUCE_MAP_KERNEL(log_softmax_grad)

static bool softmax_columns(const row_call *c, size_t count, const void *x, ptrdiff_t x_pitch, void *y,
                            ptrdiff_t y_pitch, void *scratch) {
  return softmax_dispatch(c) == &softmax_plain_kernel &&
         exp_columns(c, count, x, x_pitch, y, y_pitch, scratch);
}
static bool softmax_half_takes(const row_call *c) { return is_plain(c->params[0], c->params[1]); }
static const row_forms softmax_forms = {.widened = ROW_HALF_WIDENED,
                                        .whole = EXP_STORED / 2,
                                        .columns = softmax_columns,
                                        HALF_FORM(exp_half),
                                        .half_takes = softmax_half_takes},
                       softmax_grad_forms = {.widened = ROW_HALF_WIDENED,
                                             HALF_FORM(weights_half),
                                             .half_takes = softmax_half_takes},
                       segment_softmax_forms = {.columns = exp_columns};
static const row_kernel softmax_kernel = {
    .engine = &choice_engine, .body = &(const row_choice){softmax_dispatch, 1}, .forms = &softmax_forms};
static const row_kernel softmax_grad_kernel = {.engine = &choice_engine,
                                               .body = &(const row_choice){softmax_grad_dispatch, 1},
                                               .forms = &softmax_grad_forms};
static const row_kernel segment_softmax_kernel = {
    .engine = &exp_engine, .body = &softmax_plain_body, .forms = &segment_softmax_forms};

OPERATOR(softmax, softmax, softmax_grad)
OPERATOR(log_softmax, log_softmax, log_softmax_grad)
OPERATOR(softmin, softmin, softmin_grad)
OPERATOR(hardmax, hardmax, hardmax_grad)
OPERATOR(segment_softmax, segment_softmax, weights)

const dtype_io SMX_FN(dtype_io) = {dtype_load, dtype_store, softmax_short};
