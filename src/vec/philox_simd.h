/* vec/philox_simd.h - the upper halves of the random words (philox.h) of some elements, side by
 * side: enough to decide which elements need the whole word. */
#ifndef SMX_VEC_PHILOX_SIMD_H
#define SMX_VEC_PHILOX_SIMD_H
#include "philox.h"

enum { WORDS = 32, WORD_BLOCKS = WORDS / 2 };

#if defined(V) /* vec_avx512.h */
#define WORD_BYTES 64
#define WORD_MUL(a, b) (word_lanes) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
#elif defined(H) /* vec_avx2.h */
#define WORD_BYTES 32
#define WORD_MUL(a, b) (word_lanes) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#endif

/* Of the elements 2 block, 2 block + 1, ... */
#ifdef WORD_MUL
/* A number of 32 bits in each lane of 64; the upper half is not read. */
typedef uint64_t word_lanes __attribute__((vector_size(WORD_BYTES)));
static inline void philox_high(const draws *d, uint64_t block, uint32_t high[WORDS]) {
  enum { LANES_OF = WORD_BYTES / 8, SIDE = WORD_BLOCKS / LANES_OF };
  word_lanes a[SIDE], b[SIDE], c[SIDE], e[SIDE], iota, zero = {0};
  uint32_t k = (uint32_t)d->seed, l = (uint32_t)(d->seed >> 32);
  for (int j = 0; j < LANES_OF; j++) iota[j] = (uint64_t)j;
#pragma GCC unroll 4
  for (int s = 0; s < SIDE; s++) {
    a[s] = iota + (block + (uint64_t)(s * LANES_OF));
    b[s] = ((a[s] >> 32) & 0xffffff) | (uint64_t)d->purpose << 24;
    c[s] = zero + (d->stream & 0xffffffff), e[s] = zero + (d->stream >> 32);
  }
  for (int round = 0; round < 10; round++, k += PHILOX_KEY_0, l += PHILOX_KEY_1) {
#pragma GCC unroll 4
    for (int s = 0; s < SIDE; s++) {
      const word_lanes p = WORD_MUL(a[s], zero + PHILOX_0), q = WORD_MUL(c[s], zero + PHILOX_1);
      a[s] = (q >> 32) ^ b[s] ^ (zero + k), b[s] = q;
      c[s] = (p >> 32) ^ e[s] ^ (zero + l), e[s] = p;
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < SIDE; s++) {
    const word_lanes both = (b[s] & 0xffffffff) | e[s] << 32;
    memcpy(high + 2 * s * LANES_OF, &both, sizeof both);
  }
}
#else
static inline void philox_high(const draws *d, uint64_t block, uint32_t high[WORDS]) {
  uint32_t a[WORD_BLOCKS], b[WORD_BLOCKS], c[WORD_BLOCKS], e[WORD_BLOCKS], k = (uint32_t)d->seed,
                                                                           l = (uint32_t)(d->seed >> 32);
  for (int j = 0; j < WORD_BLOCKS; j++) {
    const uint64_t number = block + (uint64_t)j;
    a[j] = (uint32_t)number, b[j] = ((uint32_t)(number >> 32) & 0xffffff) | (uint32_t)d->purpose << 24;
    c[j] = (uint32_t)d->stream, e[j] = (uint32_t)(d->stream >> 32);
  }
  for (int round = 0; round < 10; round++, k += PHILOX_KEY_0, l += PHILOX_KEY_1)
    for (int j = 0; j < WORD_BLOCKS; j++) {
      const uint64_t p = (uint64_t)PHILOX_0 * a[j], q = (uint64_t)PHILOX_1 * c[j];
      a[j] = (uint32_t)(q >> 32) ^ b[j] ^ k, b[j] = (uint32_t)q;
      c[j] = (uint32_t)(p >> 32) ^ e[j] ^ l, e[j] = (uint32_t)p;
    }
  for (int j = 0; j < WORD_BLOCKS; j++) high[2 * j] = b[j], high[2 * j + 1] = e[j];
}
#endif

/* Numbers not above 1 - u of the elements' uniform variates, and below them by less than 2^-24. */
static inline void philox_rest(const draws *d, uint64_t block, real rest[WORDS]) {
  uint32_t high[WORDS];
  philox_high(d, block, high);
  for (int j = 0; j < WORDS; j++) rest[j] = (real)(int32_t)(0xffffff - (high[j] >> 8)) * (real)0x1p-24;
}

#endif
