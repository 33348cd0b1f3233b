/* score/functions_tokens.c - glassbox_features: how sure a model was of a sequence of tokens. Rows
 * are summed by many tasks; what sequences have is added up in the order of their tokens. */
#include "cpu/cpu.h"
#include "functions.h"

enum { LOGITS, TOKEN };                                      /* inputs */
enum { MEAN, ENTROPY, VARIANCE, LEAST, PERPLEXITY, LENGTH }; /* outputs */
enum { LOG_P, ROW_ENTROPY, ROW_VARIANCE, OF_ROW };           /* of a row */

typedef struct tokens_call {
  const tensor_call *c;
  const score_kernels *kernels;
  smx_scratch scratch; /* shared: OF_ROW numbers of each row */
  score_row row;
  int64_t sequences, length, classes, rows;
} tokens_call;

/* What a sequence is made of: its live tokens, sums over them, and which has the least
 * probability. */
typedef struct sequence {
  double live, sum[OF_ROW], least;
  int64_t at;
} sequence;

static int64_t token_of(const tokens_call *x, int64_t row) {
  return ((const int64_t *)(const void *)x->c->in.view[TOKEN].data)[row];
}
static const char *logits_of(const tokens_call *x, int64_t row) {
  return x->c->in.view[LOGITS].data + row * x->classes * (x->c->is_f64 ? 8 : 4);
}
static double *numbers_of(const tokens_call *x, int64_t row) {
  return (double *)(void *)x->scratch.shared + row * OF_ROW;
}
static const score_item entropy_item = {.which = SCORE_entropy},
                        variance_item = {.which = SCORE_logit_variance};

/* log p = (z - max) / T - log s */
static double log_p_of(const tokens_call *x, const score_sums *s, double z) {
  return (z == s->max ? 0 : (z - s->max) / x->row.temperature) - s->log_sum;
}

static void sums_task(void *arg, int64_t task) {
  const tokens_call *x = arg;
  const int64_t first = task * score_rows_a_task(x->classes), end = score_task_end(task, x->rows, x->classes);
  score_sums s;
  for (int64_t row = first; row < end; row++) {
    double z, *to = numbers_of(x, row);
    const int64_t token = token_of(x, row);
    if (token < 0) continue;
    tensor_load(x->c, x->c->in.view + LOGITS, row * x->classes + token, 1, &z);
    x->kernels->sums(&x->row, logits_of(x, row), x->classes, NULL, &s);
    to[ROW_ENTROPY] = score_value(x->kernels, &x->row, &entropy_item, &s, z);
    to[ROW_VARIANCE] = score_value(x->kernels, &x->row, &variance_item, &s, z);
    to[LOG_P] = s.nan || s.valid == 0 ? __builtin_nan("") : log_p_of(x, &s, z);
  }
}

static sequence sequence_of(const tokens_call *x, int64_t number) {
  sequence q = {.at = -1};
  for (int64_t row = number * x->length; row < (number + 1) * x->length; row++) {
    const double *from = numbers_of(x, row);
    if (token_of(x, row) < 0) continue;
    for (int k = 0; k < OF_ROW; k++) q.sum[k] += from[k];
    const bool nan = from[LOG_P] != from[LOG_P] && q.least == q.least;
    if (q.at < 0 || from[LOG_P] < q.least || nan) q.least = from[LOG_P], q.at = row;
    q.live++;
  }
  return q;
}

static void write_sequence(const tokens_call *x, int64_t i) {
  const sequence q = sequence_of(x, i);
  const double mean = q.sum[LOG_P] / q.live;
  tensor_put(x->c, MEAN, i, mean), tensor_put(x->c, ENTROPY, i, q.sum[ROW_ENTROPY] / q.live);
  tensor_put(x->c, VARIANCE, i, q.sum[ROW_VARIANCE] / q.live);
  tensor_put(x->c, LEAST, i, q.at < 0 ? mean : q.least);
  tensor_put(x->c, PERPLEXITY, i, x->kernels->exp(-mean));
  if (x->c->out.given[LENGTH]) ((int64_t *)(void *)x->c->out.view[LENGTH].data)[i] = (int64_t)q.live;
}

/* ---- the gradient ---- */

/* d log p_token = [i = token] - p, and those of entropy and variance. */
static void gradient_row(const tokens_call *x, int64_t row, const sequence *q, const double *up) {
  char *dz = x->c->din.view[LOGITS].data + row * x->classes * (x->c->is_f64 ? 8 : 4);
  const int64_t token = token_of(x, row);
  const double g = ((row == q->at ? up[LEAST] : 0) + up[MEAN] / q->live) / x->row.temperature;
  score_sums s;
  score_slope slope, more;
  score_spikes none;
  if (token < 0) return score_fill(x->c, row, x->classes, 0);
  x->kernels->sums(&x->row, logits_of(x, row), x->classes, NULL, &s);
  if (s.nan || s.valid == 0) return score_fill(x->c, row, x->classes, s.nan ? __builtin_nan("") : 0);
  score_derivative(x->kernels, &x->row, &entropy_item, &s, s.max, up[ENTROPY] / q->live, &slope, &none);
  score_derivative(x->kernels, &x->row, &variance_item, &s, s.max, up[VARIANCE] / q->live, &more, &none);
  slope.a -= g, slope.level += more.level, slope.slope += more.slope;
  x->kernels->gradient(&x->row, logits_of(x, row), x->classes, &s, &slope, dz);
  score_add(x->c, row, x->classes, token, g);
}

static void gradient_task(void *arg, int64_t i) {
  const tokens_call *x = arg;
  const sequence q = sequence_of(x, i);
  const double up[] = {tensor_upstream(x->c, MEAN, i), tensor_upstream(x->c, ENTROPY, i),
                       tensor_upstream(x->c, VARIANCE, i), tensor_upstream(x->c, LEAST, i)};
  for (int64_t row = i * x->length; row < (i + 1) * x->length; row++) gradient_row(x, row, &q, up);
}

/* ---- calls ---- */

static smx_status check_empty(const tokens_call *x) {
  if (smx_context_on_empty(x->c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  for (int64_t i = 0; i < x->sequences; i++) {
    bool live = false;
    for (int64_t row = i * x->length; row < (i + 1) * x->length && !live; row++) live = token_of(x, row) >= 0;
    if (!live)
      return smx_fail(SMX_ERR_EMPTY, "%s: sequence %lld has no tokens", x->c->op->name, (long long)i);
  }
  return SMX_OK;
}

static smx_status run(const tensor_call *c, bool backward) {
  tokens_call x = {.c = c, .row = {.temperature = tensor_param(c, "temperature"), .sums = SCORE_VARIANCE}};
  x.kernels = c->is_f64 ? smx_isa_current()->f64.score : smx_isa_current()->f32.score;
  x.row.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  x.sequences = c->dims.lead_count, x.length = tensor_dim(c, "t"), x.classes = tensor_dim(c, "v");
  x.rows = x.sequences * x.length;
  const smx_status status = check_empty(&x);
  if (status != SMX_OK || (backward && !c->din.given[LOGITS])) return status;
  if (!smx_scratch_open(&x.scratch, c->ctx, (size_t)(x.rows * OF_ROW) * sizeof(double), 0, 0))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)x.rows);
  smx_parallel(c->ctx, score_tasks(x.rows, x.classes), sums_task, &x);
  for (int64_t i = 0; i < x.sequences && !backward; i++) write_sequence(&x, i);
  if (backward) smx_parallel(c->ctx, x.sequences, gradient_task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}

smx_status score_tokens_forward(const tensor_call *c) { return run(c, false); }
smx_status score_tokens_backward(const tensor_call *c) { return run(c, true); }
