/* gate/functions_noisy.c - gate_noisy_topk: a choice with noise, and how likely each expert is to
 * be chosen again with other noise of its own. In double, token by token. */
#include <string.h>

#include "cpu/cpu.h"
#include "functions.h"
#include "functions_rows.h"

enum { LOGITS, SPREAD, STREAM }; /* inputs */
enum { WEIGHT, INDEX, CHANCE };  /* outputs */
enum { ARRAYS = 11 };            /* of a task, experts long */

typedef struct noisy {
  const tensor_call *c;
  const gate_kernels *kernels; /* of double */
  smx_scratch scratch;
  gate_choice choice; /* of one more than k, which is the threshold of the others */
  int64_t tokens, k;
  double deviation, least;
  uint64_t seed;
} noisy;

/* What a token needs: arrays of the experts. noisy_i = clean_i + s_i noise_i */
typedef struct token {
  double *clean, *spread, *s, *slope, *noise, *noisy, *z, *chance, *density, *weight, *none;
  int64_t *index; /* the k + 1 best */
  void *work;
} token;

static size_t token_bytes(const noisy *n) {
  return gate_choice_bytes(&n->choice) + (size_t)(ARRAYS * n->choice.experts + n->choice.k) * sizeof(double);
}
static token token_in(const noisy *n, double *memory) {
  token t;
  double **arrays[] = {&t.clean, &t.spread, &t.s,       &t.slope,  &t.noise, &t.noisy,
                       &t.z,     &t.chance, &t.density, &t.weight, &t.none};
  for (int a = 0; a < ARRAYS; a++) *arrays[a] = memory + a * n->choice.experts;
  t.index = (int64_t *)(void *)(memory + ARRAYS * n->choice.experts);
  t.work = t.index + n->choice.k;
  return t;
}

/* The logits with their noise, the k + 1 best and the softmax of the k best. False: a NaN. */
static bool choose(const noisy *n, token *t, int64_t i) {
  const tensor_call *c = n->c;
  const int64_t e = n->choice.experts;
  const uint64_t stream = c->in.given[STREAM]
                              ? (uint64_t)((const int64_t *)(const void *)c->in.view[STREAM].data)[i]
                              : (uint64_t)i;
  tensor_load(n->c, c->in.view + LOGITS, i * e, e, t->clean);
  if (c->in.given[SPREAD]) tensor_load(n->c, c->in.view + SPREAD, i * e, e, t->spread);
  if (c->in.given[SPREAD]) n->kernels->deviation(t->spread, n->least, e, t->s, t->slope);
  else
    for (int64_t j = 0; j < e; j++) t->s[j] = n->deviation;
  n->kernels->noise(n->seed, stream, e, t->noise);
  for (int64_t j = 0; j < e; j++) t->noisy[j] = t->clean[j] + t->s[j] * t->noise[j];
  bool good;
  n->kernels->choose(&n->choice, t->noisy, NULL, NULL, 1, t->work, t->index, &good);
  for (int64_t j = 0; j < n->k; j++)
    t->none[j] = 0, t->z[j] = t->index[j] < 0 ? -__builtin_inf() : t->noisy[t->index[j]];
  n->kernels->mixture(t->z, t->none, n->k, t->weight, t->none);
  return good;
}

/* The noisy logit that expert j had to beat: the (k + 1)-th, or the k-th for those that did not; -1
 * where all are chosen. */
static int64_t threshold_of(const noisy *n, const token *t, int64_t j) {
  const int64_t next = n->k < n->choice.experts ? t->index[n->k] : -1;
  if (next < 0) return -1;
  return t->noisy[j] > t->noisy[next] ? next : t->index[n->k - 1];
}

/* chance = Phi(z) with z = (clean - threshold) / s; 1 without a threshold, 0 of an expert that does
 * not exist. */
static void take_chances(const noisy *n, token *t) {
  const int64_t e = n->choice.experts;
  for (int64_t j = 0; j < e; j++) {
    const int64_t at = threshold_of(n, t, j);
    const double above = at < 0 ? 0 : t->clean[j] - t->noisy[at];
    t->z[j] = t->s[j] > 0 ? above / t->s[j] : at < 0 ? 0 : above > 0 ? __builtin_inf() : -__builtin_inf();
  }
  n->kernels->normal(t->z, e, t->chance, t->density);
  for (int64_t j = 0; j < e; j++) {
    const bool all = threshold_of(n, t, j) < 0, absent = t->clean[j] == -__builtin_inf();
    if (all || absent) t->density[j] = 0, t->chance[j] = absent ? 0 : 1;
  }
}

static void write_token(const noisy *n, token *t, int64_t i, bool good) {
  const tensor_call *c = n->c;
  const int64_t e = n->choice.experts;
  const bool hollow = t->index[0] < 0 && smx_context_on_empty(c->ctx) == SMX_EMPTY_NAN;
  for (int64_t j = 0; j < n->k && (!good || hollow); j++) t->weight[j] = __builtin_nan("");
  tensor_store(n->c, c->out.view + WEIGHT, i * n->k, n->k, t->weight);
  memcpy((int64_t *)(void *)c->out.view[INDEX].data + i * n->k, t->index, (size_t)n->k * sizeof *t->index);
  if (!c->out.given[CHANCE]) return;
  if (good) take_chances(n, t);
  for (int64_t j = 0; j < e && !good; j++) t->chance[j] = __builtin_nan("");
  tensor_store(n->c, c->out.view + CHANCE, i * e, e, t->chance);
}

static void forward_task(void *arg, int64_t task) {
  noisy *n = arg;
  double *memory = smx_scratch_take(&n->scratch);
  token t = token_in(n, memory);
  for (int64_t i = task * GATE_TASK; i < gate_task_end(task, n->tokens); i++) {
    const bool good = choose(n, &t, i);
    write_token(n, &t, i, good);
  }
  smx_scratch_give(&n->scratch, memory);
}

/* ---- the gradient ---- */

/* Of the weights: dnoisy_index = w (g - sum g w), to clean; of s: times the noise, to s. */
static void weight_gradient(const noisy *n, token *t, int64_t i, double *ds) {
  double *g = t->none, dot = 0;
  tensor_load(n->c, n->c->dout.view + WEIGHT, i * n->k, n->k, g);
  for (int64_t j = 0; j < n->k; j++) dot += g[j] * t->weight[j];
  for (int64_t j = 0; j < n->k; j++) {
    if (t->index[j] < 0) continue;
    const double d = t->weight[j] * (g[j] - dot);
    t->clean[t->index[j]] += d, ds[t->index[j]] += d * t->noise[t->index[j]];
  }
}

/* Of the chances, to their own expert and to the one that is the threshold. */
static void chance_gradient(const noisy *n, token *t, int64_t i, double *ds) {
  const int64_t e = n->choice.experts;
  tensor_load(n->c, n->c->dout.view + CHANCE, i * e, e, t->none);
  for (int64_t j = 0; j < e; j++) {
    const int64_t at = threshold_of(n, t, j);
    const double d = t->density[j] == 0 ? 0 : t->none[j] * t->density[j] / t->s[j];
    if (at < 0 || d == 0) continue;
    t->clean[j] += d, ds[j] -= d * t->z[j];
    t->clean[at] -= d, ds[at] -= d * t->noise[at];
  }
}

static void gradient_task(void *arg, int64_t task) {
  noisy *n = arg;
  const tensor_call *c = n->c;
  const int64_t e = n->choice.experts;
  double *memory = smx_scratch_take(&n->scratch);
  token t = token_in(n, memory);
  double *ds = t.spread; /* what it held is in s and slope */
  for (int64_t i = task * GATE_TASK; i < gate_task_end(task, n->tokens); i++) {
    const bool good = choose(n, &t, i), chances = good && c->dout.given[CHANCE];
    if (chances) take_chances(n, &t);
    for (int64_t j = 0; j < e; j++) t.clean[j] = ds[j] = 0;
    if (good && c->dout.given[WEIGHT]) weight_gradient(n, &t, i, ds);
    if (chances) chance_gradient(n, &t, i, ds);
    if (c->din.given[LOGITS]) tensor_store(n->c, c->din.view + LOGITS, i * e, e, t.clean);
    for (int64_t j = 0; j < e; j++) ds[j] *= c->in.given[SPREAD] ? t.slope[j] : 0;
    if (c->din.given[SPREAD]) tensor_store(n->c, c->din.view + SPREAD, i * e, e, ds);
  }
  smx_scratch_give(&n->scratch, memory);
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t i)) {
  noisy n = {.c = c, .kernels = smx_isa_current()->f64.gate};
  const int64_t e = tensor_dim(c, "e");
  n.tokens = c->dims.lead_count, n.k = tensor_dim(c, "k");
  n.choice = (gate_choice){e, n.k < e ? n.k + 1 : e, 1, 1, false};
  n.deviation = tensor_param(c, "noise") / (double)e, n.least = tensor_param(c, "least");
  n.seed = (uint64_t)tensor_param(c, "seed");
  smx_status status = tensor_check_empty(c, n.tokens, e, "token", "experts");
  if (status != SMX_OK) return status;
  if (!smx_scratch_open(&n.scratch, c->ctx, 0, token_bytes(&n), gate_tasks(n.tokens)))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld experts", c->op->name, (long long)e);
  smx_parallel(c->ctx, gate_tasks(n.tokens), task, &n);
  smx_scratch_close(&n.scratch);
  return SMX_OK;
}

smx_status gate_noisy(const tensor_call *c) { return run(c, forward_task); }
smx_status gate_noisy_backward(const tensor_call *c) { return run(c, gradient_task); }

smx_status gate_k_sizes(dims *d) {
  const int64_t experts = dims_value(d, "e", 0), k = (int64_t)dims_param(d, "k", 1);
  if (k <= experts) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: k is %lld, but there are %lld experts", d->op->name, (long long)k,
                  (long long)experts);
}
