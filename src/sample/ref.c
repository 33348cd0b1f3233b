/* sample/ref.c - the operators that draw, straight from their definitions: libm, double, one row at a time. It shares nothing with the kernels,
 * the generator included. */
#include "engine/ref_draws.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- random numbers: engine/ref_draws.h ---- */

static double log_gamma(uint64_t seed, uint64_t stream, uint64_t index, double shape) {
  double d = (shape >= 1 ? shape : shape + 1) - 1.0 / 3, log_v = 0;
  for (uint64_t t = 0; t < 256; t++) {
    uint32_t r[4];
    random_block(seed, stream, 6, index * 256 + t, r);
    double z = normal(uniform_from(r)), q = 1 + z / sqrt(9 * d);
    if (q <= 0 || !(log(uniform_from(r + 2)) < z * z / 2 + d - d * q * q * q + 3 * d * log(q))) continue;
    log_v = 3 * log(q);
    break;
  }
  return log(d) + log_v + (shape < 1 ? log(uniform(seed, stream, 7, index)) / shape : 0);
}

/* ---- rows ---- */

static uint64_t stream_of(const row_ref_call *c) { return (uint64_t)(int64_t)c->in[1][0]; }

/* NaN: a NaN or +inf; -inf: nothing valid. */
static double largest(const double *x, size_t n) {
  double m = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    if (isnan(x[i]) || x[i] == INFINITY) return NAN;
    if (x[i] > m) m = x[i];
  }
  return m;
}

static void weights(const double *h, size_t n, double *y) {
  long double m = largest(h, n), sum = 0;
  for (size_t i = 0; i < n; i++) sum += m > -INFINITY ? expl(h[i] - m) : 0;
  for (size_t i = 0; i < n; i++) y[i] = isnan((double)m) ? NAN : m > -INFINITY ? (double)(expl(h[i] - m) / sum) : 0;
}

static size_t first_largest(const double *x, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (x[i] > x[best]) best = i;
  return best;
}

static double *room_for(size_t n) {
  double *h = calloc(n + 1, sizeof *h);
  if (!h) abort();
  return h;
}

/* The first element at which the running sum of weights is more than u times their sum, by blocks of 256. */
static size_t walk(const double *w, size_t n, double u) {
  double total = 0, before = 0;
  size_t last = 0;
  for (int round = 0; round < 2; round++) {
    for (size_t b = 0; b < n; b += 256) {
      double within = 0, target = u * total;
      for (size_t i = b; i < n && i < b + 256; i++) {
        within += w[i];
        if (w[i] > 0) last = i;
        if (round == 1 && w[i] > 0 && before + within > target) return i;
      }
      if (round == 0) total += within;
      else before += within;
    }
  }
  return last;
}

static void categorical_sample_ref(const row_ref_call *c) {
  double m = largest(c->in[0], c->n), t = c->q[0], *h = room_for(c->n);
  uint64_t seed = (uint64_t)c->q[2];
  size_t drawn;
  c->out[0][0] = -1, c->out[1][0] = isnan(m) ? NAN : -INFINITY;
  if (m > -INFINITY) {
    long double sum = 0;
    for (size_t i = 0; i < c->n; i++) h[i] = c->in[0][i] / (t == 0 ? 1 : t);
    for (size_t i = 0; i < c->n; i++) sum += expl(((long double)c->in[0][i] - m) / (t == 0 ? 1 : t));
    if (t == 0) drawn = first_largest(c->in[0], c->n);
    else if (c->q[1] == 0) {
      for (size_t i = 0; i < c->n; i++) h[i] += gumbel(seed, stream_of(c), 1, i);
      drawn = first_largest(h, c->n);
    } else {
      for (size_t i = 0; i < c->n; i++) h[i] = (double)expl(((long double)c->in[0][i] - m) / t);
      drawn = walk(h, c->n, uniform(seed, stream_of(c), 2, 0));
    }
    c->out[0][0] = (double)drawn;
    c->out[1][0] = t == 0 ? 0 : (double)(((long double)c->in[0][drawn] - m) / t - logl(sum));
  }
  free(h);
}

static void gumbel_softmax_ref(const row_ref_call *c) {
  double *h = room_for(c->n), m = largest(c->in[0], c->n);
  if (fabs(m) < 524288 || m == -INFINITY || c->q[2] != 0) m = 0; /* scores beyond that keep their noise, but for the argmax */
  for (size_t i = 0; i < c->n; i++) h[i] = (c->in[0][i] - m + gumbel((uint64_t)c->q[1], stream_of(c), 4, i)) / c->q[0];
  weights(h, c->n, c->out[0]);
  if (c->q[2] != 0 && largest(h, c->n) > -INFINITY) {
    size_t best = first_largest(h, c->n);
    for (size_t i = 0; i < c->n; i++) c->out[0][i] = i == best;
  }
  free(h);
}

static void gumbel_topk_ref(const row_ref_call *c) {
  double *h = room_for(c->n), m = largest(c->in[0], c->n);
  for (size_t i = 0; i < c->n; i++) h[i] = (m > -INFINITY ? c->in[0][i] - m : -INFINITY) + gumbel((uint64_t)c->q[1], stream_of(c), 3, i);
  for (size_t j = 0; j < (size_t)c->q[0]; j++) {
    size_t best = c->n ? first_largest(h, c->n) : 0;
    int more = !isnan(m) && h[best] > -INFINITY;
    c->out[0][j] = more ? (double)best : -1;
    c->out[1][j] = isnan(m) ? NAN : more ? m + h[best] : -INFINITY;
    h[best] = -INFINITY;
  }
  free(h);
}

static void binary_concrete_ref(const row_ref_call *c) {
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) nan |= isnan(c->in[0][i]);
  for (size_t i = 0; i < c->n; i++) {
    double u = uniform((uint64_t)c->q[1], stream_of(c), 8, i), h = (c->in[0][i] + log(u) - log(1 - u)) / c->q[0];
    c->out[0][i] = nan ? NAN : c->q[2] != 0 ? h > 0 : 1 / (1 + exp(-h));
  }
}

static void dirichlet_sample_ref(const row_ref_call *c) {
  double *h = room_for(c->n);
  for (size_t i = 0; i < c->n; i++) {
    double a = c->in[0][i];
    h[i] = a > 0 && a < INFINITY ? log_gamma((uint64_t)c->q[0], stream_of(c), i, a) : a == 0 ? -INFINITY : NAN;
  }
  weights(h, c->n, c->out[0]);
  free(h);
}

static void cfg_logits_ref(const row_ref_call *c) {
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) nan |= !(c->in[0][i] < INFINITY && c->in[1][i] < INFINITY);
  for (size_t i = 0; i < c->n; i++) {
    double x = c->in[0][i], u = c->in[1][i];
    c->out[0][i] = nan ? NAN : x == -INFINITY || u == -INFINITY ? -INFINITY : u + c->q[0] * (x - u);
  }
}

row_ref_fn *const sample_refs[] = {
#define SAMPLE_OP(name) name##_ref,
#include "list.h"
#undef SAMPLE_OP
};
