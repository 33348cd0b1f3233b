/* row/ops.c - the arithmetic of the row operators, forward and backward. Compiled once per instruction set and real type.
 *
 * An operator says how a score is formed (exp.h) or what is summed and written (sum.h); the engines do the rest. The forward kernel of every
 * family member and its gradient stand together. Formulas and sources are in table.c. */
#include "engine.h"
#include "exp_rows.h"
#include "exp_small.h"
#include "moves.h"
#include "scan.h"
#include "select.h"
#include "sum.h"

/* ---- scores ---- */

SMI consts setup_plain(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return (consts){{0}};
}

SMI score score_plain(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  (void)k;
  return (score){shifted_by(at(s->src[0], i, cnt), shift), v_set1(0)};
}

EXP_SCORES(plain, score_plain, false)
EXP_EMIT(plain_weights, plain_weight)

/* x times a double c = v[0] + v[1], as h + l with no rounding but the last bits of l. v[2] is the x whose score stays -inf when c is +-0. */
SMI consts factor(double c) {
  real hi = (real)c, low = (real)(c - (double)hi);
  return (consts){{hi, c - c == 0 ? low : 0, c != 0 ? r_nan() : 1 / c > 0 ? -R_INF : R_INF}};
}
SMI score score_scaled(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal x = shifted_by(at(s->src[0], i, cnt), shift), c = v_set1(k->v[0]), h = v_mul(x, c), minus_h = v_sub(v_set1(0), h);
  vreal l = v_fma(x, v_set1(k->v[1]), v_fma(x, c, minus_h));
  return (score){v_select(v_eq(x, v_set1(k->v[2])), v_set1(-R_INF), h), l};
}
EXP_SCORES(scaled, score_scaled, true)
EXP_EMIT(scaled_weights, scaled_weight)

/* ---- gradients of weights: dx_i = c y_i (dy_i - sum_j y_j dy_j) ----
 * An element of weight 0 has gradient 0; its dy is not read as a number. */

SMI vreal upstream(const span *s, vreal y, size_t i, int cnt) {
  return v_select(v_eq(y, v_set1(0)), v_set1(0), at(s->src[SRC_DY], i, cnt));
}
SMI void weights_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)k;
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt);
  acc->a = v_fma(y, upstream(s, y, i, cnt), acc->a);
}
SMI vreal weights_ds(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  vreal ds = v_mul(v_mul(v_set1(k->v[0]), y), v_sub(upstream(s, y, i, cnt), v_set1((real)r->sum)));
  return v_clean(v_select(v_eq(y, v_set1(0)), v_set1(0), ds));
}
SMI vreal weights_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  put(s->dst[0], i, cnt, weights_ds(s, k, r, i, cnt));
  return v_set1(0);
}

SMI consts setup_one(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return (consts){{1}};
}
SUM_SUMS_OF(weights_sums, weights_add)
SUM_EMIT_OF(weights_out, weights_emit)
static const sum_body weights_body = {.setup = setup_one, .sums = weights_sums, .emit = weights_out, .full = 1};
SUM_KERNEL(weights)

/* ---- softmax ---- */

SMI double softmax_temperature(const row_call *c) {
  double t = c->src[1] ? (double)*(const real *)c->src[1] : c->params[0];
  return t >= 0 ? t : (double)r_nan();
}
SMI double softmax_factor(double t, double base) { return (base == 2.718281828459045 ? 1 : d_log(base, 0)) / t; }
SMI consts softmax_setup(const row_call *c, const span *s) {
  double t = s->src[1] ? (double)*s->src[1] : c->params[0];
  return factor(t >= 0 ? softmax_factor(t, c->params[1]) : (double)r_nan());
}

static const exp_body softmax_plain_body = {.setup = setup_plain, .scores = &plain_scores, .emit = plain_weights, .small = exp_small_call};
EXP_KERNEL(softmax_plain)
/* Contiguous rows without the making of a call. */
static bool softmax_short(size_t rows, size_t n, const void *x, void *y) {
  small_rows w = {rows, n, x, y, (ptrdiff_t)n, (ptrdiff_t)n, NULL, &softmax_plain_kernel};
  if (exp_small_rows(&w)) return true;
  if (n > EXP_CACHED || rows > FOLLOW / n) return false;
  const consts k = {{0}};
  span s = {.n = n, .src = {x}, .dst = {y}};
  for (size_t r = 0; r < rows; r++, s.src[0] += n, s.dst[0] += n)
    if (!exp_cached_row(&softmax_plain_body, &s, &k, false, s.dst[0], 0)) small_odd_row(&w, r);
  return true;
}
static const exp_body softmax_scaled_body = {.setup = softmax_setup, .scaled = true, .scores = &scaled_scores, .emit = scaled_weights};
EXP_KERNEL(softmax_scaled)

/* dT = -(1 / ln b) sum_i log(y_i) dx_i: log y stands for x, from which it differs by a factor and a constant, and the dx of a row add up to 0. */
SMI consts softmax_grad_setup(const row_call *c, const span *s) {
  double t = s->src[1] ? (double)*s->src[1] : c->params[0], ln_b = softmax_factor(1, c->params[1]);
  return (consts){{t == 0 ? 0 : (real)(ln_b / t), (real)(-1 / ln_b)}};
}
static const sum_body softmax_scaled_grad_body = {.setup = softmax_grad_setup, .sums = weights_sums, .emit = weights_out, .full = 1};
SUM_KERNEL(softmax_scaled_grad)

SMI vreal softmax_t_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt), dx = weights_ds(s, k, r, i, cnt);
  put(s->dst[0], i, cnt, dx);
  vmask none = v_eq(dx, v_set1(0));
  return v_select(none, v_set1(0), v_mul(v_log_scaled(v_select(none, v_set1(1), y), v_set1(0)), dx));
}
SMI void softmax_t_row(const span *s, const consts *k, const sum_row *r, double post) {
  (void)r;
  s->dst[1][0] = v_first(v_clean(v_set1((real)((double)k->v[1] * post))));
}
SUM_EMIT_OF(softmax_t_out, softmax_t_emit)
static const sum_body softmax_t_grad_body = {
    .setup = softmax_grad_setup, .sums = weights_sums, .emit = softmax_t_out, .row = softmax_t_row, .full = 1};
SUM_KERNEL(softmax_t_grad)

/* ---- hardmax: y_i = [x_i = max] / count, or 1 at the first ---- */

SMI vmask hardmax_hit(const span *s, const sum_row *r, size_t i, int cnt) {
  return m_and(v_eq(at(s->src[0], i, cnt), v_set1(r->max)), lanes_below(cnt));
}
SMI void hardmax_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)k;
  acc->a = v_add(acc->a, v_select(hardmax_hit(s, r, i, cnt), v_set1(1), v_set1(0)));
}
SUM_SUMS_OF(hardmax_ties, hardmax_add)

typedef struct hardmax_look {
  const span *s;
  const sum_row *r;
  size_t base;
} hardmax_look;
SMI vmask hardmax_look_hit(const void *ctx, size_t i, int cnt) {
  const hardmax_look *w = ctx;
  return hardmax_hit(w->s, w->r, w->base + i, cnt);
}
NOINLINE void hardmax_where(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part) {
  hardmax_look w = {s, r, i};
  size_t first = r->index < 0 ? find_first(n, hardmax_look_hit, &w) : n;
  (void)k;
  *part = (row_part){.index = first < n ? (int64_t)(s->origin + i + first) : -1};
}
SMI vreal hardmax_split_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)k;
  vmask hit = v_eq(at(s->src[0], i, cnt), v_set1(r->max));
  put(s->dst[0], i, cnt, v_select(hit, v_set1((real)(1 / r->sum)), v_set1(0)));
  return v_set1(0);
}
SMI vreal hardmax_first_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)k;
  vmask hit = v_eq(v_iota(), v_set1((real)(r->index - (int64_t)(s->origin + i))));
  put(s->dst[0], i, cnt, v_select(hit, v_set1(1), v_set1(0)));
  return v_set1(0);
}
SUM_EMIT_OF(hardmax_split_out, hardmax_split_emit)
SUM_EMIT_OF(hardmax_first_out, hardmax_first_emit)
static const sum_body hardmax_split_body = {.setup = setup_plain, .sums = hardmax_ties, .emit = hardmax_split_out, .full = 1, .max = true};
SUM_KERNEL(hardmax_split)
static const sum_body hardmax_first_body = {.setup = setup_plain, .sums = hardmax_where, .emit = hardmax_first_out, .full = 1, .max = true};
SUM_KERNEL(hardmax_first)

static const row_kernel *hardmax_pick(const row_call *c) { return c->params[0] == 0 ? &hardmax_first_kernel : &hardmax_split_kernel; }
PICK_KERNEL(hardmax, -1)

/* Gradient: 0, or straight through softmax(x / T): p_i (dy_i - sum_j p_j dy_j) / T. */
SMI vreal zero_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)k;
  (void)r;
  put(s->dst[0], i, cnt, v_set1(0));
  return v_set1(0);
}
SUM_EMIT_OF(zero_out, zero_emit)
static const sum_body zero_body = {.setup = setup_plain, .emit = zero_out, .full = 1, .max = true, .gradient = true}; /* max: finds NaN */
SUM_KERNEL(zero)

SMI consts straight_setup(const row_call *c, const span *s) {
  (void)s;
  consts k = factor(1 / c->params[2]);
  k.v[3] = (real)(1 / c->params[2]);
  return k;
}
SMI vreal straight_factor(const exp_sum *w, size_t i, int cnt) { return at(w->s->src[SRC_DY], i, cnt); }
EXP_MOMENT(straight_moment, score_scaled, true, straight_factor)
SMI vreal straight_value(const exp_emit *w, size_t i, int cnt) {
  vreal p = scaled_weight(w, i, cnt), away = v_sub(at(w->s->src[SRC_DY], i, cnt), v_set1((real)w->r->moment));
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), v_mul(v_mul(p, v_set1(w->k->v[3])), away)));
}
EXP_EMIT(straight_out, straight_value)
static const exp_body straight_body = {
    .setup = straight_setup, .scaled = true, .scores = &scaled_scores, .emit = straight_out, .moment = straight_moment, .gradient = true};
EXP_KERNEL(straight)

static const row_kernel *hardmax_grad_pick(const row_call *c) { return c->params[1] == 0 ? &zero_kernel : &straight_kernel; }
PICK_KERNEL(hardmax_grad, -1)

static const row_kernel *softmax_pick(const row_call *c) {
  double t = softmax_temperature(c);
  return t == 0 ? &hardmax_split_kernel : t == 1 && c->params[1] == 2.718281828459045 ? &softmax_plain_kernel : &softmax_scaled_kernel;
}
PICK_KERNEL(softmax, 1)
static const row_kernel *softmax_grad_pick(const row_call *c) {
  bool plain = softmax_temperature(c) == 1 && c->params[1] == 2.718281828459045;
  return c->dst[1] ? &softmax_t_grad_kernel : plain ? &weights_kernel : &softmax_scaled_grad_kernel;
}
PICK_KERNEL(softmax_grad, 1)

/* ---- softmin ---- */

SMI consts softmin_setup(const row_call *c, const span *s) {
  (void)s;
  return factor(-1 / c->params[0]);
}
static const exp_body softmin_body = {.setup = softmin_setup, .scaled = true, .scores = &scaled_scores, .emit = scaled_weights};
EXP_KERNEL(softmin)

SMI consts softmin_grad_setup(const row_call *c, const span *s) {
  (void)s;
  return (consts){{(real)(-1 / c->params[0])}};
}
static const sum_body softmin_grad_body = {.setup = softmin_grad_setup, .sums = weights_sums, .emit = weights_out, .full = 1};
SUM_KERNEL(softmin_grad)

/* ---- log_softmax ---- */

SMI consts inverse_setup(const row_call *c, const span *s) { /* 1 / T */
  (void)s;
  return factor(1 / c->params[0]);
}
SMI vreal plain_log(const exp_emit *w, size_t i, int cnt) {
  const exp_row *r = w->r;
  vreal x = at(w->s->src[0], i, cnt), y = v_sub(v_sub(v_sub(x, v_set1(r->shift)), v_set1(r->top)), v_set1(r->log));
  return v_clean(v_select(v_eq(x, v_set1(-R_INF)), x, y));
}
/* At half size, so that x - shift cannot overflow where y does not. */
SMI vreal scaled_log(const exp_emit *w, size_t i, int cnt) {
  const exp_row *r = w->r;
  const real half = (real)0.5;
  vreal x = at(w->s->src[0], i, cnt), c = v_set1(w->k->v[0]);
  vreal z = v_sub(v_mul(x, v_set1(half)), v_set1(r->shift * half)), h = v_mul(z, c);
  vreal l = v_fma(z, v_set1(w->k->v[1]), v_fma(z, c, v_sub(v_set1(0), h)));
  l = v_select(v_lt(v_abs(h), v_set1(R_INF)), l, v_set1(0));
  vreal y = v_add(v_sub(h, v_set1(r->top * half)), v_sub(l, v_set1(r->top_l * half)));
  return v_clean(v_select(v_eq(x, v_set1(-R_INF)), x, v_sub(v_mul(y, v_set1(2)), v_set1(r->log))));
}
EXP_EMIT(plain_logs, plain_log)
EXP_EMIT(scaled_logs, scaled_log)
static const exp_body log_plain_body = {
    .setup = setup_plain, .scores = &plain_scores, .emit = plain_logs, .kind = EXP_LOGS, .others = true};
EXP_KERNEL(log_plain)
static const exp_body log_scaled_body = {
    .setup = inverse_setup, .scaled = true, .scores = &scaled_scores, .emit = scaled_logs, .kind = EXP_LOGS, .others = true};
EXP_KERNEL(log_scaled)
static const row_kernel *log_softmax_pick(const row_call *c) { return c->params[0] == 1 ? &log_plain_kernel : &log_scaled_kernel; }
PICK_KERNEL(log_softmax, -1)

/* dx_i = (dy_i - e^y_i sum_j dy_j) / T; elements of log-weight -inf take no part. */
SMI vreal logs_upstream(const span *s, vreal y, size_t i, int cnt) {
  return v_select(v_eq(y, v_set1(-R_INF)), v_set1(0), at(s->src[SRC_DY], i, cnt));
}
SMI void logs_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)k;
  (void)r;
  acc->a = v_add(acc->a, logs_upstream(s, at(s->src[SRC_Y], i, cnt), i, cnt));
}
SMI vreal logs_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  vreal dx = v_fnma(v_exp(y), v_set1((real)r->sum), logs_upstream(s, y, i, cnt));
  put(s->dst[0], i, cnt, v_clean(v_mul(dx, v_set1(k->v[0]))));
  return v_set1(0);
}
SUM_SUMS_OF(logs_sums, logs_add)
SUM_EMIT_OF(logs_out, logs_emit)
static const sum_body log_softmax_grad_body = {.setup = inverse_setup, .sums = logs_sums, .emit = logs_out, .full = 1};
SUM_KERNEL(log_softmax_grad)

/* ---- logsumexp and its kin: max + log1p(others / largest) ---- */

SMI double lse_of(const exp_row *r) { return r->max + d_log1p(r->others); }
SMI double lse_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  (void)s;
  (void)k;
  (void)n;
  return lse_of(r);
}
SMI double lme_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  (void)s;
  (void)k;
  return r->max + (d_log1p(r->others) - d_log1p((double)n - 1));
}
SMI double mellow_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  (void)s;
  return (lse_of(r) - d_log1p((double)n - 1)) / ((double)k->v[0] + (double)k->v[1]);
}
SMI consts omega_setup(const row_call *c, const span *s) {
  (void)s;
  return factor(c->params[0]);
}
static const exp_body logsumexp_body = {
    .setup = setup_plain, .scores = &plain_scores, .kind = EXP_SCALAR, .others = true, .scalar = lse_scalar, .empty = -R_INF, .inf = R_INF};
EXP_KERNEL(logsumexp)
static const exp_body logmeanexp_body = {
    .setup = setup_plain, .scores = &plain_scores, .kind = EXP_SCALAR, .others = true, .scalar = lme_scalar, .empty = -R_INF, .inf = R_INF};
EXP_KERNEL(logmeanexp)
static const exp_body mellowmax_body = {.setup = omega_setup,
                                        .scaled = true,
                                        .scores = &scaled_scores,
                                        .kind = EXP_SCALAR,
                                        .others = true,
                                        .scalar = mellow_scalar,
                                        .empty = -R_INF,
                                        .inf = R_INF};
EXP_KERNEL(mellowmax)

/* dx = dy softmax(score), from x again: as accurate as softmax, whatever the size of lse. */
SMI vreal times_upstream(vreal p, const exp_emit *w) {
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), v_mul(p, v_set1(w->s->src[SRC_DY][0]))));
}
SMI vreal lse_grad_value(const exp_emit *w, size_t i, int cnt) { return times_upstream(plain_weight(w, i, cnt), w); }
SMI vreal mellowmax_grad_value(const exp_emit *w, size_t i, int cnt) { return times_upstream(scaled_weight(w, i, cnt), w); }
EXP_EMIT(lse_grad_out, lse_grad_value)
EXP_EMIT(mellowmax_grad_out, mellowmax_grad_value)
static const exp_body lse_grad_body = {.setup = setup_plain, .scores = &plain_scores, .emit = lse_grad_out, .gradient = true};
EXP_KERNEL(lse_grad)
static const exp_body mellowmax_grad_body = {
    .setup = omega_setup, .scaled = true, .scores = &scaled_scores, .emit = mellowmax_grad_out, .gradient = true};
EXP_KERNEL(mellowmax_grad)

/* ---- boltzmann_operator: y = top_x + sum (x_i - top_x) e_i / S ---- */

SMI consts alpha_setup(const row_call *c, const span *s) {
  double a = s->src[1] ? (double)*s->src[1] : c->params[0];
  consts k = factor(a);
  k.v[3] = (real)a;
  return k;
}
SMI vreal boltzmann_away(const exp_sum *w, size_t i, int cnt) { return v_sub(at(w->s->src[0], i, cnt), v_set1(w->center)); }
SMI vreal boltzmann_square(const exp_sum *w, size_t i, int cnt) {
  vreal away = boltzmann_away(w, i, cnt);
  return v_mul(away, away);
}
EXP_MOMENT(boltzmann_moment, score_scaled, true, boltzmann_away)
EXP_MOMENT(boltzmann_spread, score_scaled, true, boltzmann_square)
SMI double boltzmann_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  (void)s;
  (void)k;
  (void)n;
  return r->top_x + r->moment;
}
static const exp_body boltzmann_operator_body = {.setup = alpha_setup,
                                                 .scaled = true,
                                                 .scores = &scaled_scores,
                                                 .kind = EXP_SCALAR,
                                                 .others = true,
                                                 .scalar = boltzmann_scalar,
                                                 .moment = boltzmann_moment,
                                                 .inf = R_INF};
EXP_KERNEL(boltzmann_operator)

/* dx_i = dy p_i (1 + alpha (x_i - y)), dalpha = dy sum p_i (x_i - y)^2 */
SMI vreal boltzmann_grad_value(const exp_emit *w, size_t i, int cnt) {
  vreal p = scaled_weight(w, i, cnt), dy = v_set1(w->s->src[SRC_DY][0]);
  vreal away = v_sub(v_sub(at(w->s->src[0], i, cnt), v_set1((real)w->r->top_x)), v_set1((real)w->r->moment));
  vreal dx = v_mul(v_mul(p, dy), v_fma(v_set1(w->k->v[3]), away, v_set1(1)));
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), dx));
}
EXP_EMIT(boltzmann_grad_out, boltzmann_grad_value)
SMI void boltzmann_row(const span *s, const consts *k, const exp_row *r) {
  (void)k;
  if (s->dst[1]) s->dst[1][0] = v_first(v_clean(v_set1((real)((double)s->src[SRC_DY][0] * r->spread))));
}
static const exp_body boltzmann_grad_body = {.setup = alpha_setup,
                                             .scaled = true,
                                             .scores = &scaled_scores,
                                             .emit = boltzmann_grad_out,
                                             .others = true,
                                             .moment = boltzmann_moment,
                                             .spread = boltzmann_spread,
                                             .row = boltzmann_row,
                                             .gradient = true};
EXP_KERNEL(boltzmann_grad)

/* ---- softcap: y = c tanh(x / c), dx = dy (1 - tanh^2(x / c)); c = inf leaves x alone ---- */

SMI void check_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)k;
  (void)r;
  vreal x = at(s->src[0], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(x, x)));
}
SMI void check_both_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  check_add(s, k, r, i, cnt, acc);
  vreal dy = at(s->src[SRC_DY], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(dy, dy)));
}
SMI consts softcap_setup(const row_call *c, const span *s) {
  (void)s;
  return (consts){{(real)c->params[0]}};
}
SMI vreal softcap_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal x = at(s->src[0], i, cnt), cap = v_set1(k->v[0]);
  put(s->dst[0], i, cnt, v_clean(k->v[0] < R_INF ? v_mul(cap, v_tanh(v_div(x, cap))) : x));
  return v_set1(0);
}
SMI vreal softcap_grad_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)r;
  vreal x = at(s->src[0], i, cnt), dy = at(s->src[SRC_DY], i, cnt);
  put(s->dst[0], i, cnt, v_clean(k->v[0] < R_INF ? v_mul(dy, v_sech2(v_div(x, v_set1(k->v[0])))) : dy));
  return v_set1(0);
}
SUM_SUMS_OF(softcap_check, check_add)
SUM_SUMS_OF(softcap_grad_check, check_both_add)
SUM_EMIT_OF(softcap_out, softcap_emit)
SUM_EMIT_OF(softcap_grad_out, softcap_grad_emit)
static const sum_body softcap_body = {.setup = softcap_setup, .sums = softcap_check, .emit = softcap_out, .full = 1};
SUM_KERNEL(softcap)
static const sum_body softcap_grad_body = {.setup = softcap_setup, .sums = softcap_grad_check, .emit = softcap_grad_out, .full = 1};
SUM_KERNEL(softcap_grad)

/* ---- logcumsumexp: scan.h ---- */

SCAN_KERNEL(logcumsumexp, false)
SCAN_KERNEL(logcumsumexp_grad, true)

#include "masked.h"

/* ---- the table ---- */

#define KERNEL(name) \
  { name##_rows, name##_begin, name##_pass, name##_fold, name##_next }

const row_pair SMX_FN(row_kernels)[ROW_COUNT] = {
    [ROW_softmax] = {KERNEL(softmax), KERNEL(softmax_grad)},
    [ROW_log_softmax] = {KERNEL(log_softmax), KERNEL(log_softmax_grad)},
    [ROW_softmin] = {KERNEL(softmin), KERNEL(softmin_grad)},
    [ROW_hardmax] = {KERNEL(hardmax), KERNEL(hardmax_grad)},
    [ROW_logsumexp] = {KERNEL(logsumexp), KERNEL(lse_grad)},
    [ROW_logmeanexp] = {KERNEL(logmeanexp), KERNEL(lse_grad)},
    [ROW_mellowmax] = {KERNEL(mellowmax), KERNEL(mellowmax_grad)},
    [ROW_masked_softmax] = {KERNEL(masked_softmax), KERNEL(masked_softmax_grad)},
    [ROW_scaled_masked_softmax] = {KERNEL(scaled_masked_softmax), KERNEL(scaled_masked_softmax_grad)},
    [ROW_segment_softmax] = {KERNEL(softmax_plain), KERNEL(weights)},
    [ROW_logcumsumexp] = {KERNEL(logcumsumexp), KERNEL(logcumsumexp_grad)},
    [ROW_softcap] = {KERNEL(softcap), KERNEL(softcap_grad)},
    [ROW_boltzmann_operator] = {KERNEL(boltzmann_operator), KERNEL(boltzmann_grad)},
    [ROW_sparse_softmax] = {KERNEL(sparse), KERNEL(weights)},
};

const row_moves SMX_FN(row_moves) = {move_load, move_store, softmax_short};
