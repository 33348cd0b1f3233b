/* pool/functions_prior.c - how unlikely a number of boundaries is, by a binomial distribution. With
 * k = sum b of n tokens,
 *
 *   loss = -log(n! / (k! (n - k)!) alpha^k (1 - alpha)^(n - k)) / n,
 *
 * in Loader's form (Fast and Accurate Computation of Binomial Probabilities, 2000): with h(x) =
 * log x! - x log x + x and d(x, m) = x log(x / m) + m - x,
 *
 *   log P = h(n) - h(k) - h(n - k) - d(k, n alpha) - d(n - k, n (1 - alpha)),
 *
 * in which nothing as large as log n! is left. Factorials are Gamma(x + 1), so that probabilities
 * may be summed. dloss / dk = (psi(k + 1) - psi(n - k + 1) + log((1 - alpha) / alpha)) / n. */
#include "functions_sets.h"

enum { X };             /* inputs */
enum { STIRLING = 16 }; /* from here on the series are exact to a rounding */

static const double HALF_LOG_2PI = 0.91893853320467274178;

/* log x! - (x + 1/2) log x + x - log(2 pi) / 2 */
static double stirling_rest(double x) {
  const double r = 1 / (x * x);
  return (1. / 12 - r * (1. / 360 - r * (1. / 1260 - r * (1. / 1680 - r / 1188)))) / x;
}

/* h(x), x >= 0: x! = z! / ((x + 1) (x + 2) ... z). */
static double log_factorial_rest(const score_kernels *math, double x) {
  double z = x, steps = 1;
  while (z < STIRLING) z += 1, steps *= z;
  const double log_z = math->log(z), h = HALF_LOG_2PI + log_z / 2 + stirling_rest(z);
  if (z == x) return h;
  return h + z * log_z - z - math->log(steps) + x - (x > 0 ? x * math->log(x) : 0);
}

/* psi(x + 1), x >= 0. */
static double digamma(const score_kernels *math, double x) {
  double z = x, steps = 0;
  while (z < STIRLING) z += 1, steps += 1 / z;
  const double r = 1 / (z * z);
  return math->log(z) + 1 / (2 * z) -
         r * (1. / 12 - r * (1. / 120 - r * (1. / 252 - r * (1. / 240 - r / 132)))) - steps;
}

/* d(m + off, m) */
static double deviance(const score_kernels *math, double off, double m) {
  const double t = off / m;
  return t <= -1 ? m : m * ((1 + t) * pool_log1p(math, t) - t);
}

typedef struct prior_call {
  pool_sets s;
  double alpha;
} prior_call;

/* The sum of the bits of a row, NaN unless there are 0..n of them. */
static double sum_of(const prior_call *p, const pool_set *q) {
  double sum = 0, b;
  for (int64_t i = 0; i < p->s.n; i++) {
    if (!pool_set_has(&p->s, q, i)) continue;
    tensor_load(p->s.c, p->s.c->in.view + X, pool_set_item(&p->s, q, i), 1, &b);
    sum += b;
  }
  return sum >= 0 && sum <= (double)q->count ? sum : __builtin_nan("");
}

static void forward_task(void *arg, int64_t row) {
  const prior_call *p = arg;
  const score_kernels *math = p->s.math;
  const pool_set q = pool_set_at(&p->s, row);
  const double n = (double)q.count, k = sum_of(p, &q), off = k - n * p->alpha;
  double loss = pool_empty_value(p->s.c);
  if (q.count > 0)
    loss = (log_factorial_rest(math, k) + log_factorial_rest(math, n - k) - log_factorial_rest(math, n) +
            deviance(math, off, n * p->alpha) + deviance(math, -off, n * (1 - p->alpha))) /
           n;
  if (k != k) loss = k;
  tensor_store(p->s.c, p->s.c->out.view, row, 1, &loss);
}

static void backward_task(void *arg, int64_t row) {
  const prior_call *p = arg;
  const tensor_call *c = p->s.c;
  const score_kernels *math = p->s.math;
  const pool_set q = pool_set_at(&p->s, row);
  const double k = sum_of(p, &q), n = (double)q.count;
  double up, zero = 0;
  tensor_load(c, c->dout.view, row, 1, &up);
  if (k == k && q.count > 0)
    up *= (digamma(math, k) - digamma(math, n - k) + math->log((1 - p->alpha) / p->alpha)) / n;
  else up = k == k ? 0 : k;
  for (int64_t i = 0; i < p->s.n; i++)
    tensor_store(c, c->din.view + X, pool_set_item(&p->s, &q, i), 1,
                 pool_set_has(&p->s, &q, i) ? &up : &zero);
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t row)) {
  prior_call p = {.s = pool_sets_of(c), .alpha = tensor_param(c, "alpha")};
  const smx_status status = pool_check_empty(&p.s);
  if (status == SMX_OK) smx_parallel(c->ctx, p.s.leads, task, &p);
  return status;
}
smx_status pool_prior(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_prior_backward(const tensor_call *c) {
  return c->din.given[X] ? run(c, backward_task) : SMX_OK;
}
