/* pool/functions_hebb.c - softhebb: neurons that compete by a softmax learn without gradients.
 * Hebbian Deep Learning Without Feedback (Journe, Garcia Rodriguez, Guo, Moraitis 2022).
 *
 * u_k = sum_j x_j sgn(W_kj) |W_kj|^(p - 1), y = softmax(beta u), h_k = y_k of the neuron of the
 * largest u, the first of equal ones, and -y_k of the others. dW_k = sum_n h_k (x - u_k W_k),
 * divided by the largest |dW| + 1e-30; W_k grows by rate (| |W_k|_p - 1 | + 1e-10)^q dW_k. So
 * |W_k|_p goes to 1. */
#include "functions_cluster.h"

enum { X, WEIGHT };       /* inputs */
enum { NEXT, CHANGE, Y }; /* outputs */
enum { LANES = TOKEN_LANES };

typedef struct hebb {
  const tensor_call *c;
  const score_kernels *math;
  int64_t n, neurons, d;
  double *x, *weight; /* [n, d], [neurons, d] */
  double *effect;     /* sgn(W) |W|^(p - 1), neuron k + t of a block of LANES beside neuron k */
  double *u, *h;      /* [n, neurons] */
  double *change;     /* [neurons, d] */
} hebb;

/* |x|^p of d numbers, times a power of 2. */
static void powers(const hebb *b, const double *x, double by, double p, double *to) {
  for (int64_t j = 0; j < b->d; j++) to[j] = p == 0 ? 1 : (x[j] < 0 ? -x[j] : x[j]) * by;
  if (p != 0) b->math->run->power(p, to, b->d, to);
}

static void take_effect(const hebb *b) {
  const double p = tensor_param(b->c, "power") - 1;
  double *size = b->change; /* which is not in use */
  for (int64_t k = 0; k < token_blocks(b->neurons) * LANES; k++) {
    const double *w = b->weight + k * b->d;
    if (k < b->neurons) powers(b, w, 1, p, size);
    for (int64_t j = 0; j < b->d; j++)
      b->effect[(k / LANES * b->d + j) * LANES + k % LANES] = k >= b->neurons || w[j] == 0 ? 0
                                                              : w[j] < 0                   ? -size[j]
                                                                                           : size[j];
  }
}

/* u of LANES neurons, each in the order of its elements. */
static void sum_block(const double *x, const double *effect, int64_t d, double *u) {
  for (int t = 0; t < LANES; t++) u[t] = 0;
  for (int64_t j = 0; j < d; j++)
    for (int t = 0; t < LANES; t++) u[t] += x[j] * effect[j * LANES + t];
}

/* y of a row, into h. The largest u counts as 1. Returns whose it is. */
static int64_t compete(const hebb *b, const double *u, double *h) {
  const double beta = tensor_param(b->c, "beta");
  int64_t best = 0;
  double sum = 0;
  for (int64_t k = 1; k < b->neurons; k++)
    if (u[k] > u[best] || (u[k] != u[k] && u[best] == u[best])) best = k;
  for (int64_t k = 0; k < b->neurons; k++) sum += h[k] = b->math->exp(beta * (u[k] - u[best]));
  for (int64_t k = 0; k < b->neurons; k++) h[k] /= sum;
  return best;
}

static void row_task(void *arg, int64_t i) {
  const hebb *b = arg;
  double *u = b->u + i * b->neurons, *h = b->h + i * b->neurons, sum[LANES];
  if (b->neurons == 0) return;
  for (int64_t k = 0; k < b->neurons; k++) {
    if (k % LANES == 0) sum_block(b->x + i * b->d, b->effect + k * b->d, b->d, sum);
    u[k] = sum[k % LANES];
  }
  const int64_t best = compete(b, u, h);
  tensor_store(b->c, b->c->out.view + Y, i * b->neurons, b->neurons, h);
  for (int64_t k = 0; k < b->neurons && tensor_param(b->c, "rule") == 0; k++)
    if (k != best) h[k] = -h[k];
}

static void neuron_task(void *arg, int64_t k) {
  const hebb *b = arg;
  double *to = b->change + k * b->d, decay = 0;
  for (int64_t j = 0; j < b->d; j++) to[j] = 0;
  for (int64_t i = 0; i < b->n; i++) {
    const double h = b->h[i * b->neurons + k];
    decay += h * b->u[i * b->neurons + k];
    for (int64_t j = 0; j < b->d; j++) to[j] += h * b->x[i * b->d + j];
  }
  for (int64_t j = 0; j < b->d; j++) to[j] -= decay * b->weight[k * b->d + j];
}

/* |W_k|_p, of numbers over the largest one. */
static double length_of(const hebb *b, const double *w, double p) {
  double most = 0, sum = 0;
  for (int64_t j = 0; j < b->d; j++) {
    const double size = w[j] < 0 ? -w[j] : w[j];
    if (size > most || size != size) most = size;
  }
  const double by = pool_power_of(most), root = 1 / p;
  powers(b, w, by, p, b->effect); /* which is not in use any more */
  for (int64_t j = 0; j < b->d; j++) sum += b->effect[j];
  b->math->run->power(root, &sum, 1, &sum);
  return sum / by;
}

static void put_weights(const hebb *b) {
  const double rate = tensor_param(b->c, "rate"), q = tensor_param(b->c, "rate_power");
  const double p = tensor_param(b->c, "power");
  double most = 0;
  for (int64_t i = 0; i < b->neurons * b->d; i++) {
    const double size = b->change[i] < 0 ? -b->change[i] : b->change[i];
    if (size > most || size != size) most = size;
  }
  const double by = tensor_param(b->c, "normalise") != 0 ? most + 1e-30 : 1;
  for (int64_t k = 0; k < b->neurons; k++) {
    double *change = b->change + k * b->d, *w = b->weight + k * b->d;
    const double off = length_of(b, w, p) - 1;
    double step = (off < 0 ? -off : off) + 1e-10;
    if (q == 0) step = 1;
    else b->math->run->power(q, &step, 1, &step);
    step *= rate;
    for (int64_t j = 0; j < b->d; j++) {
      change[j] /= by;
      w[j] += step * change[j];
    }
    tensor_store(b->c, b->c->out.view + CHANGE, k * b->d, b->d, change);
    tensor_store(b->c, b->c->out.view + NEXT, k * b->d, b->d, w);
  }
}

static void divide(hebb *b, carver *c) {
  b->x = carve(c, b->n, b->d, 8), b->weight = carve(c, b->neurons, b->d, 8);
  b->effect = carve(c, token_blocks(b->neurons) * LANES, b->d, 8), b->change = carve(c, b->neurons, b->d, 8);
  b->u = carve(c, b->n, b->neurons, 8), b->h = carve(c, b->n, b->neurons, 8);
}

smx_status pool_hebb(const tensor_call *c) {
  hebb b = {.c = c, .math = smx_isa_current()->f64.score};
  carver memory = {.fits = true};
  b.n = tensor_dim(c, "n"), b.neurons = tensor_dim(c, "m"), b.d = tensor_dim(c, "c");
  divide(&b, &memory);
  memory.base = memory.fits ? smx_alloc(c->ctx, (size_t)memory.at + 64) : NULL;
  if (!memory.base)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)b.n);
  memory.at = 0;
  divide(&b, &memory);
  tensor_load(c, c->in.view + X, 0, b.n * b.d, b.x);
  tensor_load(c, c->in.view + WEIGHT, 0, b.neurons * b.d, b.weight);
  take_effect(&b);
  smx_parallel(c->ctx, b.n, row_task, &b);
  smx_parallel(c->ctx, b.neurons, neuron_task, &b);
  put_weights(&b);
  smx_free(c->ctx, memory.base);
  return SMX_OK;
}
