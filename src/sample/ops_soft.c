/* sample/ops_soft.c - soft tokens under Gumbel noise: soft_thinking_noise, the mixture of a token,
 * and soft_thinking_logp, the log-probability of a mixture. See ops.c. */
#include "decode.h"

enum { X, IDS, NOISED };                                /* inputs */
enum { STREAM = 2 };                                    /* input of soft_thinking_noise */
enum { FLOOR = 1, SCALE, SEED, NOISE_LOW, NOISE_HIGH }; /* parameters of both, and of the noise */
enum { CUT = 3, LOW, HIGH };                            /* of the log-probability */
enum { SOFT_MINMAX, SOFT_WRITE };                       /* stages */
enum { SOFT_MOST = ROW_LIST / 2 };                      /* tokens of a mixture */

/* p of each token among those named, behind their x in the list; 0 for an id that names none. Not
 * for an empty row. */
static const double *soft_probabilities(const row_call *c, const row_state *st) {
  double *p = st->list + SOFT_MOST;
  for (size_t j = 0; j < named_count(c); j++)
    p[j] = st->list[j] > (double)-R_INF ? minmax_away(st, st->list[j]) : (double)-R_INF;
  few_softmax(p, named_count(c), p);
  return p;
}
static double soft_log(const row_call *c, double p) { return d_log(p + c->params[FLOOR], 0); }

static void soft_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  named_minmax(c, st);
}

/* ---- soft_thinking_noise: g_j = log(p_j + floor) + s G ---- */

static void noised_fill(const row_call *c, real value) { fill(c->dst[0], named_count(c), value); }

static void noised_write(const row_call *c, const row_state *st) {
  const draws d = {(uint64_t)c->params[SEED], (uint64_t) * (const int64_t *)c->src[STREAM], PURPOSE_RELAXED};
  const double *p = soft_probabilities(c, st);
  for (size_t j = 0; j < named_count(c); j++) {
    if (!(p[j] > 0)) continue;
    const uint64_t index = (uint64_t)((const int64_t *)c->src[IDS])[j];
    const double g = gumbel_within(draw_word(&d, index), c->params[NOISE_LOW], c->params[NOISE_HIGH]);
    ((real *)c->dst[0])[j] = r_clean(soft_log(c, p[j]) + c->params[SCALE] * g);
  }
}
static bool noised_next(const row_call *c, row_state *st) {
  const bool nan = minmax_nan(c, st);
  st->empty = minmax_empty(st);
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  noised_fill(c, nan || (st->empty && c->on_empty == SMX_EMPTY_NAN) ? r_nan() : -R_INF);
  if (!nan && !st->empty) noised_write(c, st);
  return false;
}
#define noised_begin named_begin
#define noised_pass soft_pass
SERIAL_KERNEL(noised)

/* ---- soft_thinking_logp: the mean of -e_j - e^-e_j - log s, e_j = (g_j - log(p_j + floor)) / s
 * within limits, over the tokens with log(p_j + floor) above the cut ---- */

/* One token: what it adds, and the derivative of that in log(p + floor). False: it takes no
 * part. */
static bool soft_term(const row_call *c, size_t j, double p, double *term, double *slope) {
  const double log = p > 0 ? soft_log(c, p) : (double)-R_INF, s = c->params[SCALE];
  if (!(log > c->params[CUT])) return false;
  const double e = ((double)((const real *)c->src[NOISED])[j] - log) / s;
  const double within = e < c->params[LOW]    ? c->params[LOW]
                        : e > c->params[HIGH] ? c->params[HIGH]
                                              : e,
               falls = d_exp(-within);
  *term = -within - falls - d_log(s, 0);
  *slope = e >= c->params[LOW] && e <= c->params[HIGH] ? (1 - falls) / s : 0;
  return true;
}
/* The mean. list: the gradient of each x named. */
static double soft_mean(const row_call *c, row_state *st) {
  const double *p = soft_probabilities(c, st);
  double sum = 0, count = 0, moment = 0;
  for (size_t j = 0; j < named_count(c); j++) {
    double term = 0, slope = 0;
    if (soft_term(c, j, p[j], &term, &slope)) sum += term, count++;
    st->list[j] = p[j] > 0 ? slope * (p[j] / (p[j] + c->params[FLOOR])) : 0; /* p times the derivative in p */
    moment += st->list[j];
  }
  for (size_t j = 0; j < named_count(c); j++)
    st->list[j] = count > 0 ? (st->list[j] - p[j] * moment) / count : 0;
  return count > 0 ? sum / count : 0;
}
/* A NaN among the stored numbers of the tokens counts, too. */
static bool soft_nan(const row_call *c, const row_state *st) {
  bool nan = minmax_nan(c, st);
  for (size_t j = 0; j < named_count(c); j++) {
    const real g = ((const real *)c->src[NOISED])[j];
    nan |= g != g && named(c, j);
  }
  return nan;
}

static bool soft_next(const row_call *c, row_state *st) {
  *(real *)c->dst[0] = soft_nan(c, st) ? r_nan() : minmax_empty(st) ? 0 : r_clean(soft_mean(c, st));
  return false;
}
#define soft_begin named_begin
SERIAL_KERNEL(soft)

typedef struct soft_state {
  minmax named;
  bool nan; /* the row is NaN */
} soft_state;
ROW_OWN_STATE(soft_state, soft_of)
#define soft_grad_begin named_begin
static void soft_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  const double upstream = (double)*(const real *)c->src[SRC_DY];
  const int64_t *ids = c->src[IDS];
  real *dx = part_to(c, X);
  if (st->stage == SOFT_MINMAX) {
    soft_pass(c, st, parts);
    return;
  }
  serial_parts(c, parts);
  fill(dx, c->count, soft_of(st)->nan ? r_nan() : 0);
  for (size_t j = 0; j < named_count(c) && !soft_of(st)->nan && !minmax_empty(st); j++) {
    const int64_t i = ids[j] - (int64_t)c->start;
    if (i >= 0 && i < (int64_t)c->count && named(c, j)) dx[i] = r_clean(upstream * st->list[j]);
  }
}
static bool soft_grad_next(const row_call *c, row_state *st) {
  if (st->writes) return false;
  soft_of(st)->nan = soft_nan(c, st);
  if (!soft_of(st)->nan && !minmax_empty(st)) soft_mean(c, st);
  st->stage = SOFT_WRITE;
  return st->writes = true;
}
SERIAL_KERNEL(soft_grad)

FORWARD_OPERATOR_WITH(soft_thinking_noise, noised, ROW_LIST, 0)
OPERATOR_WITH(soft_thinking_logp, soft, soft_grad, ROW_LIST, 0)
