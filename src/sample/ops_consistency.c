/* sample/ops_consistency.c - answers that were sampled several times: soft_self_consistency scores
 * one of them, consistency_stop computes how many are enough. See ops.c. */
#include "decode.h"

/* ---- soft_self_consistency: a sequence scored by the log-probabilities of its tokens ---- */

enum { X, MASK };                       /* inputs */
enum { METHOD };                        /* parameter */
enum { MEAN, LEAST, GEOMETRIC, TOTAL }; /* METHOD */
enum { TRIAL_SUM, TRIAL_WRITE };        /* stages of the gradient */

static bool trial_has(const row_call *c, size_t i) { return !c->src[MASK] || part_at(c, MASK)[i] > -R_INF; }
/* A log-probability; what is above 0 counts as 0. */
static double trial_log(real x) { return x > 0 ? 0 : (double)x; }
static double trial_term(const row_call *c, double x) { return c->params[METHOD] == MEAN ? d_exp(x) : x; }

typedef struct trial_state {
  double sum, least; /* of the terms; the smallest log-probability */
  int64_t first;     /* token that has it */
  double tokens;
} trial_state;
ROW_OWN_STATE(trial_state, trial_of)
static void trial_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  *trial_of(st) = (trial_state){.least = (double)R_INF, .first = -1};
}
static void trial_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = part_at(c, X);
  trial_state *own = trial_of(st);
  serial_parts(c, parts);
  for (size_t i = 0; i < c->count; i++) {
    if (!trial_has(c, i)) continue;
    own->tokens++;
    st->nan |= !(x[i] <= R_MAX);
    if (trial_log(x[i]) < own->least || own->first < 0)
      own->least = trial_log(x[i]), own->first = (int64_t)(c->start + i);
  }
  BLOCK_SUM(own->sum, c->count, i, trial_has(c, i) ? trial_term(c, trial_log(x[i])) : 0)
}
static double trial_value(const row_call *c, const row_state *st) {
  const trial_state *own = trial_of(st);
  switch ((int)c->params[METHOD]) {
    case MEAN: return own->sum / own->tokens;
    case LEAST: return d_exp(own->least);
    case GEOMETRIC: return d_exp(own->sum / own->tokens);
    default: return own->sum;
  }
}
static bool trial_next(const row_call *c, row_state *st) {
  st->empty = trial_of(st)->tokens == 0;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  *(real *)c->dst[0] = st->nan                        ? r_nan()
                       : !st->empty                   ? r_clean(trial_value(c, st))
                       : c->on_empty == SMX_EMPTY_NAN ? r_nan()
                                                      : 0;
  return false;
}
SERIAL_KERNEL(trial)

/* dx_i = dy times: e^x_i / n; e^x at the first smallest; y / n; 1. A token of probability 0 has
 * none, nor one above 0. */
static double trial_slope(const row_call *c, const row_state *st, double x, int64_t index) {
  if (!(x > (double)-R_INF && x <= 0)) return 0;
  switch ((int)c->params[METHOD]) {
    case MEAN: return d_exp(x) / trial_of(st)->tokens;
    case LEAST: return index == trial_of(st)->first ? d_exp(x) : 0;
    case GEOMETRIC: return trial_value(c, st) / trial_of(st)->tokens;
    default: return 1;
  }
}
static void trial_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  if (st->stage == TRIAL_SUM) {
    trial_pass(c, st, parts);
    return;
  }
  const real *x = part_at(c, X);
  const double dy = (double)*(const real *)c->src[SRC_DY];
  real *dx = part_to(c, X);
  serial_parts(c, parts);
  for (size_t i = 0; i < c->count; i++) {
    const double slope = trial_has(c, i) ? trial_slope(c, st, (double)x[i], (int64_t)(c->start + i)) : 0;
    dx[i] = !trial_has(c, i) ? 0 : st->nan ? r_nan() : slope == 0 ? 0 : r_clean(dy * slope);
  }
}
static bool trial_grad_next(const row_call *c, row_state *st) {
  if (st->stage == TRIAL_WRITE) return false;
  st->stage = TRIAL_WRITE;
  return st->writes = true;
}
#define trial_grad_begin trial_begin
SERIAL_KERNEL(trial_grad)

/* ---- consistency_stop ----
 *
 * trials are taken in order until their x sum up to the threshold; of those, the one of the
 * largest score */

enum { SCORES = 1 };   /* input, beside X */
enum { INDEX, COUNT }; /* outputs */
enum { THRESHOLD };    /* parameter */

typedef struct stop_state {
  double sum, best; /* of x; the largest score so far */
  int64_t index;    /* that has it */
  int64_t count;    /* trials seen */
  bool enough;
} stop_state;
ROW_OWN_STATE(stop_state, stop_of)
static void stop_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  *stop_of(st) = (stop_state){.index = -1, .best = (double)-R_INF};
}
static void stop_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = part_at(c, X), *score = c->src[SCORES] ? part_at(c, SCORES) : x;
  stop_state *own = stop_of(st);
  serial_parts(c, parts);
  for (size_t i = 0; i < c->count && !own->enough; i++) {
    own->count++;
    own->sum += (double)x[i];
    st->nan |= x[i] != x[i] || score[i] != score[i];
    if (own->index < 0 || (double)score[i] > own->best)
      own->best = (double)score[i], own->index = (int64_t)(c->start + i);
    own->enough = own->sum >= c->params[THRESHOLD];
  }
}
static bool stop_next(const row_call *c, row_state *st) {
  *(int64_t *)c->dst[INDEX] = st->nan ? -1 : stop_of(st)->index;
  if (c->dst[COUNT]) *(int64_t *)c->dst[COUNT] = st->nan ? -1 : stop_of(st)->count;
  return false;
}
SERIAL_KERNEL(stop)

OPERATOR(soft_self_consistency, trial, trial_grad)
FORWARD_OPERATOR(consistency_stop, stop)
