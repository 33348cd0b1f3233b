/* sample/ops_relaxed.c - differentiable stand-ins for a draw: gumbel_softmax,
 * gumbel_softmax_interpolant, binary_concrete; and dirichlet_sample. See ops.c. */
#include "gumbel_argmax.h"
#include "relaxed.h"
#include "engine/reduce_map.h"

enum { HARD = 2 }; /* parameter: 0 = the relaxed sample, 1 = one-hot */

/* ---- gumbel_softmax: y = softmax((x + G) / T) ---- */

static const row_kernel relaxed_kernel = NOISE_KERNEL(exp_engine, relaxed_body, noise_call, false);
static const row_kernel relaxed_grad_kernel = NOISE_KERNEL(exp_engine, relaxed_grad_body, noise_call, false);

/* Hard: a one-hot of the best, whatever T. */
enum { HARD_SEARCH, HARD_WRITE, HARD_FILL };
typedef struct hard_state {
  search best;
  real fill; /* of a row without one */
} hard_state;
ROW_OWN_STATE(hard_state, hard_of)

static void hard_begin(const row_call *c, row_state *st) {
  argmax_begin(st);
  st->stage = HARD_SEARCH;
}
static void hard_pass(const row_call *c, row_state *st, row_part *parts) {
  const draws d = {(uint64_t)c->params[NOISE_SEED], (uint64_t) * (const int64_t *)c->src[NOISE_STREAM],
                   PURPOSE_RELAXED};
  real *y = c->dst[0];
  if (st->stage == HARD_SEARCH) {
    argmax_pass(c, st, parts, 1, &d);
    return;
  }
  fill(y + (c->start - c->origin), c->count, st->stage == HARD_FILL ? hard_of(st)->fill : 0);
  int64_t at_best = hard_of(st)->best.index - (int64_t)c->start;
  if (st->stage == HARD_WRITE && at_best >= 0 && at_best < (int64_t)c->count)
    y[c->start - c->origin + (size_t)at_best] = 1;
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
}
static void hard_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == HARD_SEARCH) argmax_merge(st, parts, count);
}
static bool hard_next(const row_call *c, row_state *st) {
  if (st->stage != HARD_SEARCH) return false;
  const search *best = argmax_best(st);
  bool nan = best->nan || (best->has_pos_inf && c->on_inf != SMX_INF_LIMIT);
  st->empty = !nan && best->index < 0;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  st->stage = nan || st->empty ? HARD_FILL : HARD_WRITE;
  hard_of(st)->fill = nan || c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0;
  return st->writes = true;
}
static const row_kernel hard_kernel = PROGRAM(hard);

static const row_kernel *gumbel_softmax_dispatch(const row_call *c) {
  return c->params[HARD] == 0 ? &relaxed_kernel : &hard_kernel;
}
static const row_kernel gumbel_softmax_kernel = {.engine = &choice_engine,
                                                 .body = &(const row_choice){gumbel_softmax_dispatch, -1}};

/* ---- gumbel_softmax_interpolant: y = softmax((x + G / beta) / tau(t)), tau(t) = tau_max
 * e^(-lambda t): a relaxed sample with less noise, at the temperature of the time ---- */

enum { PATH_TIME = 2 };                                   /* input */
enum { PATH_BETA, PATH_SEED, PATH_TAU_MAX, PATH_LAMBDA }; /* parameters */
#define PATH_TAU_MIN 1e-6 /* as of gumbel_softmax: below, rounding of a score in f32 is the whole of it */

static row_call path_call(const row_call *c, double *settings) {
  const double time = (double)*(const real *)c->src[PATH_TIME];
  row_call own = noise_call(c, settings);
  const double tau = c->params[PATH_TAU_MAX] * d_exp(-c->params[PATH_LAMBDA] * time);
  settings[NOISE_TEMPERATURE] = tau < PATH_TAU_MIN ? PATH_TAU_MIN : tau;
  settings[NOISE_PART] = c->params[PATH_BETA];
  return own;
}
/* Each row has a time of its own. */
static const row_kernel path_kernel = NOISE_KERNEL(exp_engine, relaxed_body, path_call, true);
static const row_kernel path_grad_kernel = NOISE_KERNEL(exp_engine, relaxed_grad_body, path_call, true);

/* ---- dirichlet_sample ----
 *
 * y = softmax(log gamma variates); a concentration of 0 takes no part */

enum { DIRICHLET_SEED }; /* parameter */

SMI score score_gamma(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  const uint64_t stream = (uint64_t) * (const int64_t *)(const void *)s->src[NOISE_STREAM];
  double v[LANES] = {0};
  for (int j = 0; j < cnt; j++) {
    double a = (double)s->src[NOISE_X][i + (size_t)j];
    bool proper = a > 0 && a <= (double)R_MAX;
    v[j] = proper ? log_gamma_of((uint64_t)params[DIRICHLET_SEED], stream, s->origin + i + (size_t)j, a)
                  : (double)(a == 0 ? -R_INF : r_nan());
    if (shift) v[j] -= (double)*shift;
  }
  return noise_pair(v);
}
SMI consts gamma_setup(const row_call *c, const span *s) { return (consts){{1, 1}}; }
EXP_SCORES_LOW(gamma, score_gamma)
static const exp_body dirichlet_body = {
    .setup = gamma_setup, .scaled = true, .scores = &gamma_scores, .write = exp_weights};
static const row_kernel dirichlet_kernel = NOISE_KERNEL(exp_engine, dirichlet_body, noise_call, false);

/* ---- binary_concrete: y = 1 / (1 + e^-h), h = (x + L) / T with logistic noise ---- */

SMI score binary_score(const span *s, size_t i, int cnt) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  const draws d = noise_draws(s, PURPOSE_LOGISTIC);
  double h[LANES] = {0};
  for (int j = 0; j < cnt; j++)
    h[j] = ((double)s->src[NOISE_X][i + (size_t)j] + logistic_of(draw_word(&d, s->origin + i + (size_t)j))) /
           params[NOISE_TEMPERATURE];
  return noise_pair(h);
}
SMI consts binary_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[HARD], (real)(0.25 / c->params[NOISE_TEMPERATURE])}};
}
SMI void binary_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                    reduce_map_acc *acc) {
  vreal x = at(s->src[NOISE_X], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(x, x)));
}
SMI vreal binary_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  score h = binary_score(s, i, cnt);
  vreal one = v_set1(1), hard = v_select(v_lt(v_set1(0), h.h), one, v_set1(0));
  vreal q = v_mul(v_exp(v_sub(v_set1(0), h.h)), v_sub(one, h.l)); /* e^-(h + l) */
  vreal soft = v_clean(v_div(one, v_add(one, q)));
  return v_select(v_eq(v_set1(k->v[0]), v_set1(0)), soft, hard);
}
/* dx = dy y (1 - y) / T, and y (1 - y) = sech^2(h / 2) / 4. */
SMI vreal binary_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal h = binary_score(s, i, cnt).h, slope = v_mul(v_sech2(v_mul(h, v_set1((real)0.5))), v_set1(k->v[1]));
  vreal dy = at(s->src[SRC_DY], i, cnt);
  return v_clean(v_select(v_eq(slope, v_set1(0)), v_set1(0), v_mul(slope, dy)));
}
REDUCE_MAP_SUMS_OF(binary_check, binary_add)
REDUCE_MAP_VALUES_OF(binary_out, binary_value)
REDUCE_MAP_VALUES_OF(binary_grad_out, binary_grad_value)
static const reduce_map_body binary_body = {
    .setup = binary_setup, .sums = binary_check, .write = binary_out, .full = 1};
static const reduce_map_body binary_grad_body = {
    .setup = binary_setup, .sums = binary_check, .write = binary_grad_out, .full = 1};

static const row_kernel binary_kernel = NOISE_KERNEL(reduce_map_engine, binary_body, noise_call, false);
static const row_kernel binary_grad_kernel =
    NOISE_KERNEL(reduce_map_engine, binary_grad_body, noise_call, false);

FORWARD_OPERATOR(dirichlet_sample, dirichlet)
OPERATOR(gumbel_softmax, gumbel_softmax, relaxed_grad)
OPERATOR(binary_concrete, binary, binary_grad)
OPERATOR(gumbel_softmax_interpolant, path, path_grad)
