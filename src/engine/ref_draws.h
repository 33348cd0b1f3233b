/* engine/ref_draws.h - the random numbers of the references: Philox4x32-10 and what is made of it,
 * written apart from src/vec/philox.h. */
#ifndef SMX_ENGINE_REF_DRAWS_H
#define SMX_ENGINE_REF_DRAWS_H
#include "ref.h"

#include <math.h>
#include <stdint.h>

static inline void random_block(uint64_t seed, uint64_t stream, unsigned purpose, uint64_t block,
                                uint32_t out[4]) {
  uint32_t a = (uint32_t)block, b = (uint32_t)((block >> 32 & 0xffffff) | (uint64_t)purpose << 24),
           c = (uint32_t)stream, d = (uint32_t)(stream >> 32), k = (uint32_t)seed, l = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    if (round > 0) k += 0x9e3779b9u, l += 0xbb67ae85u;
    uint64_t left = 0xd2511f53ull * a, right = 0xcd9e8d57ull * c;
    a = (uint32_t)(right >> 32) ^ b ^ k;
    b = (uint32_t)right;
    c = (uint32_t)(left >> 32) ^ d ^ l;
    d = (uint32_t)left;
  }
  out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

static inline double uniform_from(const uint32_t *r) {
  return ((double)((r[0] | (uint64_t)r[1] << 32) >> 12) + 0.5) / 4503599627370496.0;
}

static inline double uniform(uint64_t seed, uint64_t stream, unsigned purpose, uint64_t index) {
  uint32_t r[4];
  random_block(seed, stream, purpose, index / 2, r);
  return uniform_from(r + index % 2 * 2);
}

static inline double gumbel(uint64_t seed, uint64_t stream, unsigned purpose, uint64_t index) {
  return -log(-log(uniform(seed, stream, purpose, index)));
}

/* Solves erfc(-x / sqrt 2) / 2 = u by bisection: slow, and independent of any rational
 * approximation. */
static inline double normal(double u) {
  double low = -9, high = 9, tail = u < 0.5 ? u : 1 - u;
  for (int i = 0; i < 200; i++) { /* of the lower tail */
    double middle = 0.5 * (low + high);
    if (0.5 * erfc(-middle / sqrt(2)) < tail) low = middle;
    else high = middle;
  }
  return u < 0.5 ? low : -low;
}

#endif
