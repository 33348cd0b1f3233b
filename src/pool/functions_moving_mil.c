/* pool/functions_moving_mil.c - attention pooling of bags that are seen in parts. The authors keep
 * moving averages of mean(e^a x) and mean(e^a); here the state is the logarithm L of the second,
 * which does not overflow, and the ratio v of both. With m = logsumexp(a) - log n and s = rate
 * e^(m - L'),
 *
 *   L' = log((1 - rate) e^L + rate e^m),  v' = (1 - s) v + s sum_i w_i x_i,  w = softmax(a),
 *   dv' / dx_i = s w_i,  dv' / da_i = s w_i (x_i - v'),  dL' / da_i = s w_i. */
#include "functions_sets.h"

enum { X, SCORE, LEVEL, MEAN, MASK }; /* inputs */
enum { Y, NEXT_LEVEL, NEXT_MEAN };    /* outputs */
enum { EXACT, ESTIMATE };             /* gradients */
static const double INFINITE = __builtin_inf();

typedef struct moving_call {
  pool_sets s;
  double rate;
  bool sigmoid, estimate, known, limit; /* known: there is a state */
  smx_scratch scratch;
} moving_call;

/* What a bag's scores say. keep + share = 1: how much of v and of the new mean is in v'. */
typedef struct bag {
  pool_set q;
  double *weight;
  double level, keep, share;
  bool empty; /* no item has any mass */
} bag;

/* weight: of the items, their softmax. Returns m. */
static double take_weights(const moving_call *v, bag *b) {
  const tensor_call *c = v->s.c;
  double top = -INFINITE, sum = 0;
  tensor_load(c, c->in.view + SCORE, b->q.lead * v->s.n, v->s.n, b->weight);
  for (int64_t i = 0; i < v->s.n; i++)
    if (pool_set_has(&v->s, &b->q, i) && (b->weight[i] > top || b->weight[i] != b->weight[i]))
      top = b->weight[i];
  b->empty = top == -INFINITE;
  for (int64_t i = 0; i < v->s.n; i++) {
    const double a = b->weight[i];
    b->weight[i] = b->empty || !pool_set_has(&v->s, &b->q, i) ? 0
                   : v->limit && top == INFINITE              ? a == top
                                                              : v->s.math->exp(a - top);
    sum += b->weight[i];
  }
  for (int64_t i = 0; i < v->s.n && !b->empty; i++) b->weight[i] = b->weight[i] == 0 ? 0 : b->weight[i] / sum;
  return top == INFINITE && !v->limit ? __builtin_nan("")
                                      : top + v->s.math->log(sum) - v->s.math->log((double)b->q.count);
}

/* Infinite scores outweigh what is finite; a bag of no mass leaves its state alone. */
static void take_bag(const moving_call *v, int64_t lead, double *weight, bag *b) {
  const score_kernels *math = v->s.math;
  *b = (bag){.q = pool_set_at(&v->s, lead), .weight = weight, .share = 1};
  const double m = take_weights(v, b);
  double old = -INFINITE;
  if (v->known) tensor_load(v->s.c, v->s.c->in.view + LEVEL, lead, 1, &old);
  b->level = b->empty ? old : m;
  if (b->empty) b->keep = 1, b->share = 0;
  if (b->empty || old == -INFINITE) return;
  const double before = old + math->log(1 - v->rate), now = m + math->log(v->rate);
  if (before == INFINITE || now == INFINITE)
    b->level = INFINITE, b->share = before != INFINITE ? 1 : now == INFINITE ? v->rate : 0;
  else {
    b->level = now > before ? now + math->softplus(before - now) : before + math->softplus(now - before);
    b->share = math->exp(now - b->level);
  }
  b->keep = v->rate == 1 ? 0 : b->level == INFINITE ? 1 - b->share : math->exp(before - b->level);
}

static double activated(const moving_call *v, double y) {
  return v->sigmoid ? v->s.math->exp(-v->s.math->softplus(-y)) : y;
}

/* v' of channels at..at+n-1. */
static void take_means(const moving_call *v, const bag *b, int64_t at, int64_t n, double *mean) {
  const tensor_call *c = v->s.c;
  double x[SET_WIDTH];
  for (int64_t j = 0; j < n; j++) mean[j] = 0;
  if (b->keep != 0 && v->known) tensor_load(c, c->in.view + MEAN, b->q.lead * v->s.channels + at, n, mean);
  for (int64_t j = 0; j < n; j++) mean[j] *= b->keep;
  for (int64_t i = 0; i < v->s.n; i++) {
    const double by = b->share * b->weight[i];
    if (by == 0) continue;
    tensor_load(c, c->in.view + X, (b->q.lead * v->s.n + i) * v->s.channels + at, n, x);
    for (int64_t j = 0; j < n; j++) mean[j] += by * x[j];
  }
}

static int64_t width_at(const moving_call *v, int64_t at) {
  return v->s.channels - at < SET_WIDTH ? v->s.channels - at : SET_WIDTH;
}

static void forward_task(void *arg, int64_t lead) {
  moving_call *v = arg;
  const tensor_call *c = v->s.c;
  double *weight = smx_scratch_take(&v->scratch), y[SET_WIDTH];
  bag b;
  take_bag(v, lead, weight, &b);
  const bool none = b.empty && b.level == -INFINITE;
  for (int64_t at = 0; at < v->s.channels; at += SET_WIDTH) {
    const int64_t n = width_at(v, at), to = lead * v->s.channels + at;
    take_means(v, &b, at, n, y);
    tensor_store(c, c->out.view + NEXT_MEAN, to, n, y);
    for (int64_t j = 0; j < n; j++) y[j] = none ? pool_empty_value(c) : activated(v, y[j]);
    tensor_store(c, c->out.view + Y, to, n, y);
  }
  tensor_store(c, c->out.view + NEXT_LEVEL, lead, 1, &b.level);
  smx_scratch_give(&v->scratch, weight);
}

/* dx of some channels; slope of an item: the sum of g (x - v') over them. */
static void give_channels(const moving_call *v, const bag *b, double by, int64_t at, double *slope) {
  const tensor_call *c = v->s.c;
  const int64_t n = width_at(v, at), to = b->q.lead * v->s.channels + at;
  double g[SET_WIDTH] = {0}, own[SET_WIDTH] = {0}, mean[SET_WIDTH], x[SET_WIDTH];
  if (c->dout.given[Y]) tensor_load(c, c->dout.view + Y, to, n, g);
  if (c->dout.given[NEXT_MEAN]) tensor_load(c, c->dout.view + NEXT_MEAN, to, n, own);
  take_means(v, b, at, n, mean);
  for (int64_t j = 0; j < n; j++)
    g[j] = g[j] * (v->sigmoid ? activated(v, mean[j]) * activated(v, -mean[j]) : 1) + own[j];
  for (int64_t i = 0; i < v->s.n; i++) {
    const int64_t cell = (b->q.lead * v->s.n + i) * v->s.channels + at;
    const double w = by * b->weight[i];
    if (w != 0) tensor_load(c, c->in.view + X, cell, n, x);
    for (int64_t j = 0; j < n; j++) {
      slope[i] += w == 0 ? 0 : g[j] * (x[j] - mean[j]);
      x[j] = w == 0 ? 0 : w * g[j];
    }
    if (c->din.given[X]) tensor_store(c, c->din.view + X, cell, n, x);
  }
}

static void backward_task(void *arg, int64_t lead) {
  moving_call *v = arg;
  const tensor_call *c = v->s.c;
  double *weight = smx_scratch_take(&v->scratch), *slope = weight + v->s.n;
  const double of_level = tensor_upstream(c, NEXT_LEVEL, lead);
  bag b;
  take_bag(v, lead, weight, &b);
  const double by = v->estimate && b.keep != 0 ? b.share / v->rate : b.share;
  for (int64_t i = 0; i < v->s.n; i++) slope[i] = of_level;
  for (int64_t at = 0; at < v->s.channels; at += SET_WIDTH) give_channels(v, &b, by, at, slope);
  for (int64_t i = 0; i < v->s.n; i++) slope[i] = weight[i] == 0 || by == 0 ? 0 : by * weight[i] * slope[i];
  if (c->din.given[SCORE]) tensor_store(c, c->din.view + SCORE, lead * v->s.n, v->s.n, slope);
  smx_scratch_give(&v->scratch, weight);
}

static smx_status check_mass(moving_call *v) {
  if (smx_context_on_empty(v->s.c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  double *weight = smx_scratch_take(&v->scratch);
  smx_status status = SMX_OK;
  for (int64_t lead = 0; lead < v->s.leads && status == SMX_OK; lead++) {
    bag b;
    take_bag(v, lead, weight, &b);
    if (b.empty)
      status = smx_fail(SMX_ERR_EMPTY, "%s: set %lld has nothing in it", v->s.c->op->name, (long long)lead);
  }
  smx_scratch_give(&v->scratch, weight);
  return status;
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t lead)) {
  moving_call v = {.s = pool_sets_of(c), .rate = tensor_param(c, "rate")};
  int64_t bytes;
  v.sigmoid = tensor_param(c, "activation") != 0, v.estimate = tensor_param(c, "gradient") == ESTIMATE;
  v.known = c->in.given[LEVEL] != NULL;
  if ((c->in.given[MEAN] != NULL) != v.known)
    return smx_fail(SMX_ERR_NULL, "%s: %s: is NULL, and %s is not: they are one state", c->op->name,
                    v.known ? "average" : "level", v.known ? "level" : "average");
  v.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  if (!smx_multiply(v.s.n + 1, 16, &bytes) ||
      !smx_scratch_open(&v.scratch, c->ctx, 0, (size_t)bytes, v.s.leads + 1))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld weights", c->op->name, (long long)v.s.n);
  const smx_status status = check_mass(&v);
  if (status == SMX_OK) smx_parallel(c->ctx, v.s.leads, task, &v);
  smx_scratch_close(&v.scratch);
  return status;
}
smx_status pool_moving_mil(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_moving_mil_backward(const tensor_call *c) { return run(c, backward_task); }
