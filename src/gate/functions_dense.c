/* gate/functions_dense.c - gate_dense_to_sparse: all experts of enough weight, by a softmax with a
 * temperature. In double, token by token. */
#include <string.h>

#include "cpu/cpu.h"
#include "functions.h"
#include "functions_rows.h"

enum { LOGITS, BIAS, GAIN, STREAM }; /* inputs */
enum { WEIGHT, INDEX };              /* outputs */
enum { ARRAYS = 7 };                 /* of a task, experts long */

typedef struct dense {
  const tensor_call *c;
  const gate_kernels *kernels; /* of double */
  smx_scratch scratch;         /* shared: gradients of bias and gain, of each task */
  gate_choice choice;
  int64_t tokens;
  double factor, threshold, gain; /* factor: gain / temperature */
  int activation;
  bool noise, shared; /* shared: weights of a token sum to 1 */
  uint64_t seed;
} dense;

/* z_i = factor sum_i, sum_i = a(logits_i) + bias_i + noise_i. p: softmax of z, then of those kept
 * only, if they share a weight of 1. */
typedef struct token {
  double *logits, *slope, *sum, *z, *p, *g, *own; /* own: the slope of a */
  int64_t *index, kept;
  void *work;
} token;

static size_t token_bytes(const dense *d) {
  return gate_choice_bytes(&d->choice) + (size_t)(ARRAYS * d->choice.experts + d->choice.k) * sizeof(double);
}
static token token_in(const dense *d, double *memory) {
  token t;
  double **arrays[] = {&t.logits, &t.slope, &t.sum, &t.z, &t.p, &t.g, &t.own};
  for (int a = 0; a < ARRAYS; a++) *arrays[a] = memory + a * d->choice.experts;
  t.index = (int64_t *)(void *)(memory + ARRAYS * d->choice.experts);
  t.work = t.index + d->choice.k;
  return t;
}

/* z, of token i. An expert with logit -inf does not exist, whatever it becomes. */
static void take_scores(const dense *d, token *t, int64_t i) {
  const tensor_call *c = d->c;
  const int64_t e = d->choice.experts;
  uint64_t stream = (uint64_t)i;
  if (c->in.given[STREAM]) stream = (uint64_t)((const int64_t *)(const void *)c->in.view[STREAM].data)[i];
  tensor_load(c, c->in.view + LOGITS, i * e, e, t->logits);
  d->kernels->activate(d->activation, t->logits, e, t->sum, t->own);
  if (c->in.given[BIAS]) {
    tensor_load(c, c->in.view + BIAS, 0, e, t->g);
    for (int64_t j = 0; j < e; j++) t->sum[j] += t->g[j];
  }
  if (d->noise) {
    d->kernels->gumbel(d->seed, stream, e, t->g);
    for (int64_t j = 0; j < e; j++) t->sum[j] += t->g[j];
  }
  for (int64_t j = 0; j < e; j++)
    t->z[j] = t->logits[j] == -__builtin_inf() ? -__builtin_inf() : d->factor * t->sum[j];
}

/* The softmax, and those of its best that are kept. False: a NaN, or infinite scores. */
static bool choose(const dense *d, token *t, int64_t i) {
  const int64_t e = d->choice.experts, k = d->choice.k;
  double whole = 0;
  take_scores(d, t, i);
  memset(t->g, 0, (size_t)e * sizeof *t->g);
  d->kernels->mixture(t->z, t->g, e, t->p, t->slope);
  bool good;
  d->kernels->choose(&d->choice, t->z, NULL, NULL, 1, t->work, t->index, &good);
  for (int64_t j = 0; j < e && good; j++) good = t->p[j] == t->p[j];
  for (t->kept = 0; good && t->kept < k && t->index[t->kept] >= 0; t->kept++) {
    const double p = t->p[t->index[t->kept]];
    if (t->kept > 0 && p < d->threshold) break;
    whole += p;
  }
  for (int64_t j = t->kept; j < k; j++) t->index[j] = -1;
  if (!d->shared || whole == 0) return good;
  memcpy(t->g, t->p, (size_t)e * sizeof *t->g);
  memset(t->p, 0, (size_t)e * sizeof *t->p);
  for (int64_t j = 0; j < t->kept; j++) t->p[t->index[j]] = t->g[t->index[j]] / whole;
  return good;
}

static void forward_task(void *arg, int64_t task) {
  dense *d = arg;
  const tensor_call *c = d->c;
  const int64_t k = d->choice.k;
  double *memory = smx_scratch_take(&d->scratch);
  token t = token_in(d, memory);
  for (int64_t i = task * GATE_TASK; i < gate_task_end(task, d->tokens); i++) {
    const bool good = choose(d, &t, i);
    const bool hollow = good && t.kept == 0 && smx_context_on_empty(c->ctx) == SMX_EMPTY_NAN;
    for (int64_t j = 0; j < k; j++)
      t.g[j] = !good || hollow ? __builtin_nan("") : j < t.kept ? t.p[t.index[j]] : 0;
    tensor_store(c, c->out.view + WEIGHT, i * k, k, t.g);
    memcpy((int64_t *)(void *)c->out.view[INDEX].data + i * k, t.index, (size_t)k * sizeof *t.index);
  }
  smx_scratch_give(&d->scratch, memory);
}

/* ---- the gradient ---- */

/* dz_i = p_i (g_i - sum p g), g: of the weights of those kept; to t->g. */
static void score_gradient(const dense *d, token *t, int64_t i) {
  const int64_t e = d->choice.experts, k = d->choice.k;
  double dot = 0;
  tensor_load(d->c, d->c->dout.view + WEIGHT, i * k, k, t->slope);
  memset(t->g, 0, (size_t)e * sizeof *t->g);
  for (int64_t j = 0; j < t->kept; j++) t->g[t->index[j]] = t->slope[j];
  for (int64_t j = 0; j < e; j++) dot += t->p[j] * t->g[j];
  for (int64_t j = 0; j < e; j++) t->g[j] = t->p[j] == 0 ? 0 : t->p[j] * (t->g[j] - dot);
}

static void gradient_task(void *arg, int64_t task) {
  dense *d = arg;
  const tensor_call *c = d->c;
  const int64_t e = d->choice.experts;
  double *memory = smx_scratch_take(&d->scratch),
         *sums = (double *)(void *)d->scratch.shared + task * (e + 1);
  token t = token_in(d, memory);
  memset(sums, 0, (size_t)(e + 1) * sizeof *sums);
  for (int64_t i = task * GATE_TASK; i < gate_task_end(task, d->tokens); i++) {
    if (!choose(d, &t, i)) t.kept = 0;
    if (t.kept == 0) memset(t.p, 0, (size_t)e * sizeof *t.p);
    score_gradient(d, &t, i);
    for (int64_t j = 0; j < e; j++) {
      const double dsum = d->factor * t.g[j];
      sums[e] += t.g[j] == 0 ? 0 : t.g[j] * t.sum[j];
      sums[j] += dsum, t.g[j] = dsum == 0 ? 0 : dsum * t.own[j];
    }
    if (c->din.given[LOGITS]) tensor_store(c, c->din.view + LOGITS, i * e, e, t.g);
  }
  smx_scratch_give(&d->scratch, memory);
}

/* Those of the bias and of the gain: the tasks' sums, in order. */
static void add_sums(const dense *d) {
  const tensor_call *c = d->c;
  const int64_t e = d->choice.experts, tasks = gate_tasks(d->tokens);
  const double *sums = (const double *)(const void *)d->scratch.shared;
  for (int64_t j = 0; j <= e; j++) {
    double sum = 0;
    for (int64_t task = 0; task < tasks; task++) sum += sums[task * (e + 1) + j];
    if (j < e && c->din.given[BIAS]) tensor_store(c, c->din.view + BIAS, j, 1, &sum);
    sum *= j == e && d->gain != 0 ? d->factor / d->gain : 1 / tensor_param(c, "temperature");
    if (j == e && c->din.given[GAIN]) tensor_store(c, c->din.view + GAIN, 0, 1, &sum);
  }
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, bool backward) {
  dense d = {.c = c, .kernels = smx_isa_current()->f64.gate, .tokens = c->dims.lead_count, .gain = 1};
  const int64_t e = tensor_dim(c, "e");
  d.choice = (gate_choice){e, tensor_dim(c, "k"), 1, 1, false};
  if (c->in.given[GAIN]) tensor_load(c, c->in.view + GAIN, 0, 1, &d.gain);
  d.factor = d.gain / tensor_param(c, "temperature"), d.threshold = tensor_param(c, "threshold");
  d.activation = (int)tensor_param(c, "activation");
  d.noise = tensor_param(c, "noise") != 0, d.shared = tensor_param(c, "renormalise") != 0;
  d.seed = (uint64_t)tensor_param(c, "seed");
  const int64_t tasks = gate_tasks(d.tokens);
  smx_status status = tensor_check_empty(c, d.tokens, e, "token", "experts");
  if (status != SMX_OK) return status;
  const size_t sums = backward ? (size_t)(tasks * (e + 1)) * sizeof(double) : 0;
  if (!smx_scratch_open(&d.scratch, c->ctx, sums, token_bytes(&d), tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld experts", c->op->name, (long long)e);
  smx_parallel(c->ctx, tasks, backward ? gradient_task : forward_task, &d);
  if (backward) add_sums(&d);
  smx_scratch_close(&d.scratch);
  return SMX_OK;
}

smx_status gate_dense(const tensor_call *c) { return run(c, false); }
smx_status gate_dense_backward(const tensor_call *c) { return run(c, true); }

/* k = 0: all of them. */
smx_status gate_dense_sizes(dims *d) {
  if (dims_param(d, "k", 1) == 0) dims_set(d, "k", 0, dims_value(d, "e", 0));
  return gate_k_sizes(d);
}
