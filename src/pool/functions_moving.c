/* pool/functions_moving.c - the smoothed maximum of bags that are seen in parts. A state holds the
 * logarithm of a moving average of the mean of e^(x / tau):
 *
 *   m = logsumexp(x / tau) - log n,  state' = log((1 - rate) e^state + rate e^m),  y = tau state'.
 *
 * The authors' gradient is e^(x_i / tau - state') / n, that of y is rate times it. Everything is in
 * logarithms: e^(x / tau) overflows. */
#include "functions_sets.h"

enum { X, STATE, MASK };  /* inputs */
enum { Y, NEXT };         /* outputs */
enum { EXACT, ESTIMATE }; /* gradients */

typedef struct moving_call {
  pool_sets s;
  double tau, rate;
  bool estimate;
} moving_call;

typedef struct columns {
  int64_t first, width;
  double mean[SET_WIDTH], state[SET_WIDTH]; /* m and state' */
} columns;

static void take_item(const moving_call *v, const pool_set *q, const columns *k, int64_t i, double *x) {
  tensor_load(v->s.c, v->s.c->in.view, pool_set_item(&v->s, q, i) * v->s.channels + k->first, k->width, x);
  for (int64_t j = 0; j < k->width; j++) x[j] /= v->tau;
}

/* log(e^a + e^b) */
static double join(const score_kernels *math, double a, double b) {
  if (a == -__builtin_inf() || b == -__builtin_inf()) return a > b ? a : a == a ? b : a;
  return a > b ? a + math->softplus(b - a) : b + math->softplus(a - b);
}

static void take_means(const moving_call *v, const pool_set *q, columns *k) {
  const double log_n = v->s.math->log((double)q->count);
  double x[SET_WIDTH], top[SET_WIDTH], sum[SET_WIDTH];
  for (int64_t j = 0; j < k->width; j++) top[j] = -__builtin_inf(), sum[j] = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t i = q->first; i < q->end; i++) {
      if (!pool_set_has(&v->s, q, i)) continue;
      take_item(v, q, k, i, x);
      for (int64_t j = 0; j < k->width; j++) {
        if (pass == 0 && (x[j] > top[j] || x[j] != x[j])) top[j] = x[j];
        if (pass == 1 && top[j] - top[j] == 0) sum[j] += v->s.math->exp(x[j] - top[j]);
      }
    }
  for (int64_t j = 0; j < k->width; j++)
    k->mean[j] = top[j] - top[j] == 0 ? top[j] + v->s.math->log(sum[j]) - log_n : top[j];
}

/* A part of nothing leaves the state alone; a state of -inf is that of a bag not seen before. */
static columns columns_of(const moving_call *v, const pool_set *q, int64_t piece) {
  const tensor_call *c = v->s.c;
  const int64_t first = piece * SET_WIDTH, left = v->s.channels - first;
  const double old = v->s.math->log(1 - v->rate), new = v->s.math->log(v->rate);
  columns k = {.first = first, .width = left < SET_WIDTH ? left : SET_WIDTH};
  for (int64_t j = 0; j < k.width; j++) k.state[j] = -__builtin_inf();
  if (c->in.given[STATE])
    tensor_load(c, c->in.view + STATE, q->lead * v->s.channels + first, k.width, k.state);
  if (q->count == 0) return k;
  take_means(v, q, &k);
  for (int64_t j = 0; j < k.width; j++)
    k.state[j] =
        k.state[j] == -__builtin_inf() ? k.mean[j] : join(v->s.math, k.state[j] + old, k.mean[j] + new);
  return k;
}

static int64_t pieces_of(const pool_sets *s) { return (s->channels + SET_WIDTH - 1) / SET_WIDTH; }

static void forward_task(void *arg, int64_t task) {
  const moving_call *v = arg;
  const tensor_call *c = v->s.c;
  const pool_set q = pool_set_at(&v->s, task / pieces_of(&v->s));
  columns k = columns_of(v, &q, task % pieces_of(&v->s));
  const int64_t at = q.lead * v->s.channels + k.first;
  tensor_store(c, c->out.view + NEXT, at, k.width, k.state);
  for (int64_t j = 0; j < k.width; j++)
    k.state[j] = k.state[j] == -__builtin_inf() && q.count == 0 ? pool_empty_value(c) : v->tau * k.state[j];
  tensor_store(c, c->out.view + Y, at, k.width, k.state);
}

/* e^(x / tau - state') / n, times the rate unless there was no state, or it is the estimate. up:
 * of y, with that of the next state over tau. */
static void backward_task(void *arg, int64_t task) {
  const moving_call *v = arg;
  const tensor_call *c = v->s.c;
  const pool_set q = pool_set_at(&v->s, task / pieces_of(&v->s));
  const columns k = columns_of(v, &q, task % pieces_of(&v->s));
  const int64_t at = q.lead * v->s.channels + k.first;
  double up[SET_WIDTH] = {0}, next[SET_WIDTH] = {0}, state[SET_WIDTH], x[SET_WIDTH], dx[SET_WIDTH];
  for (int64_t j = 0; j < k.width; j++) state[j] = -__builtin_inf();
  if (c->in.given[STATE]) tensor_load(c, c->in.view + STATE, at, k.width, state);
  if (c->dout.given[Y]) tensor_load(c, c->dout.view + Y, at, k.width, up);
  if (c->dout.given[NEXT]) tensor_load(c, c->dout.view + NEXT, at, k.width, next);
  for (int64_t j = 0; j < k.width; j++) {
    const double by = v->estimate || state[j] == -__builtin_inf() ? 1 : v->rate;
    up[j] = by * (up[j] + next[j] / v->tau) / (double)q.count;
  }
  for (int64_t i = q.first; i < q.end; i++) {
    const bool there = pool_set_has(&v->s, &q, i);
    if (there) take_item(v, &q, &k, i, x);
    for (int64_t j = 0; j < k.width; j++) {
      const bool none = !there || up[j] == 0 || k.state[j] - k.state[j] != 0;
      dx[j] = none ? (there && k.state[j] != k.state[j] ? k.state[j] : 0)
                   : up[j] * v->s.math->exp(x[j] - k.state[j]);
    }
    tensor_store(c, c->din.view, pool_set_item(&v->s, &q, i) * v->s.channels + k.first, k.width, dx);
  }
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t i)) {
  moving_call v = {
      .s = pool_sets_of(c), .tau = tensor_param(c, "temperature"), .rate = tensor_param(c, "rate")};
  const smx_status status = pool_check_empty(&v.s);
  v.estimate = tensor_param(c, "gradient") == ESTIMATE;
  if (status == SMX_OK) smx_parallel(c->ctx, v.s.leads * pieces_of(&v.s), task, &v);
  return status;
}
smx_status pool_moving(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_moving_backward(const tensor_call *c) {
  return c->din.given[X] ? run(c, backward_task) : SMX_OK;
}
