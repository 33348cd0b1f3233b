/* sample/ref.h - what the references of the room share: maxima, weights, the walk to a drawn
 * element. It shares nothing with the kernels. Random numbers: engine/ref_draws.h. */
#ifndef SMX_SAMPLE_REF_H
#define SMX_SAMPLE_REF_H
#include "engine/ref_draws.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLE_OP(name) row_ref_fn name##_ref;
#include "list.h"
#undef SAMPLE_OP

static inline double log_gamma(uint64_t seed, uint64_t stream, uint64_t index, double shape) {
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

static inline uint64_t stream_of(const row_ref_call *c) { return (uint64_t)(int64_t)c->in[1][0]; }

/* NaN: a NaN or +inf; -inf: nothing valid. */
static inline double largest(const double *x, size_t n) {
  double m = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    if (isnan(x[i]) || x[i] == INFINITY) return NAN;
    if (x[i] > m) m = x[i];
  }
  return m;
}

static inline void weights(const double *h, size_t n, double *y) {
  long double m = largest(h, n), sum = 0;
  for (size_t i = 0; i < n; i++) sum += m > -INFINITY ? expl(h[i] - m) : 0;
  for (size_t i = 0; i < n; i++)
    y[i] = isnan((double)m) ? NAN : m > -INFINITY ? (double)(expl(h[i] - m) / sum) : 0;
}

static inline size_t first_largest(const double *x, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (x[i] > x[best]) best = i;
  return best;
}

static inline double *room_for(size_t n) {
  double *h = calloc(n + 1, sizeof *h);
  if (!h) abort();
  return h;
}

/* The first element at which the running sum of weights is more than u times their sum, by blocks
 * of 256. */
static inline size_t walk(const double *w, size_t n, double u) {
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

#endif
