/* vec/philox_simd.h - Philox (philox.h) in vectors, WORD_BLOCKS blocks at a time.
 *
 *     philox_high     the high 32 of the 64 random bits of each element: enough to decide which
 *                     elements need all 64
 *     philox_words    the four 32-bit words of each block
 *     philox_column   one of these four words of each block */
#ifndef SMX_VEC_PHILOX_SIMD_H
#define SMX_VEC_PHILOX_SIMD_H
#include "philox.h"

enum { WORDS = 32, WORD_BLOCKS = WORDS / 2 };

#if defined(V) /* vec_avx512.h */
#define WORD_BYTES 64
#define WORD_MUL(a, b) (word_lanes) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
/* In each 128 bits the first lane of a and that of b; the second ones. */
#define WORD_LOW(a, b) (word_lanes) _mm512_unpacklo_epi64((__m512i)(a), (__m512i)(b))
#define WORD_HIGH(a, b) (word_lanes) _mm512_unpackhi_epi64((__m512i)(a), (__m512i)(b))
#elif defined(H) /* vec_avx2.h */
#define WORD_BYTES 32
#define WORD_MUL(a, b) (word_lanes) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define WORD_LOW(a, b) (word_lanes) _mm256_unpacklo_epi64((__m256i)(a), (__m256i)(b))
#define WORD_HIGH(a, b) (word_lanes) _mm256_unpackhi_epi64((__m256i)(a), (__m256i)(b))
#endif

#ifdef WORD_MUL
/* A number of 32 bits in each lane of 64; the high 32 bits are not read. */
typedef uint64_t word_lanes __attribute__((vector_size(WORD_BYTES)));
enum { WORD_LANES = WORD_BYTES / 8, WORD_SIDE = WORD_BLOCKS / WORD_LANES };
/* Counters of WORD_BLOCKS blocks, then their words. */
typedef struct word_blocks {
  word_lanes x[WORD_SIDE], y[WORD_SIDE], z[WORD_SIDE], w[WORD_SIDE];
} word_blocks;

/* Ten rounds. Vector i holds the blocks with the numbers `first` + i step. */
SMI word_blocks word_rounds(const draws *d, word_lanes first, uint64_t step) {
  word_blocks s;
  const word_lanes zero = {0};
  uint32_t k = (uint32_t)d->seed, l = (uint32_t)(d->seed >> 32);
#pragma GCC unroll 4
  for (int i = 0; i < WORD_SIDE; i++) {
    s.x[i] = first + (uint64_t)i * step;
    s.y[i] = ((s.x[i] >> 32) & 0xffffff) | (uint64_t)d->purpose << 24;
    s.z[i] = zero + (d->stream & 0xffffffff), s.w[i] = zero + (d->stream >> 32);
  }
  for (int round = 0; round < 10; round++, k += PHILOX_KEY_0, l += PHILOX_KEY_1) {
#pragma GCC unroll 4
    for (int i = 0; i < WORD_SIDE; i++) {
      const word_lanes p = WORD_MUL(s.x[i], zero + PHILOX_0), q = WORD_MUL(s.z[i], zero + PHILOX_1);
      s.x[i] = (q >> 32) ^ s.y[i] ^ (zero + k), s.y[i] = q;
      s.z[i] = (p >> 32) ^ s.w[i] ^ (zero + l), s.w[i] = p;
    }
  }
  return s;
}
SMI void put_words(word_lanes low, word_lanes high, uint32_t *words) {
  const word_lanes both = (low & 0xffffffff) | high << 32;
  memcpy(words, &both, sizeof both);
}
#else
/* Counters of WORD_BLOCKS blocks, then their words. */
typedef struct word_blocks {
  uint32_t x[WORD_BLOCKS], y[WORD_BLOCKS], z[WORD_BLOCKS], w[WORD_BLOCKS];
} word_blocks;

/* Ten rounds, of the blocks with the numbers first + i step. */
SMI word_blocks word_rounds(const draws *d, uint64_t first, uint64_t step) {
  word_blocks s;
  uint32_t k = (uint32_t)d->seed, l = (uint32_t)(d->seed >> 32);
  for (int i = 0; i < WORD_BLOCKS; i++) {
    const uint64_t block = first + (uint64_t)i * step;
    s.x[i] = (uint32_t)block, s.y[i] = ((uint32_t)(block >> 32) & 0xffffff) | (uint32_t)d->purpose << 24;
    s.z[i] = (uint32_t)d->stream, s.w[i] = (uint32_t)(d->stream >> 32);
  }
  for (int round = 0; round < 10; round++, k += PHILOX_KEY_0, l += PHILOX_KEY_1)
    for (int i = 0; i < WORD_BLOCKS; i++) {
      const uint64_t p = (uint64_t)PHILOX_0 * s.x[i], q = (uint64_t)PHILOX_1 * s.z[i];
      s.x[i] = (uint32_t)(q >> 32) ^ s.y[i] ^ k, s.y[i] = (uint32_t)q;
      s.z[i] = (uint32_t)(p >> 32) ^ s.w[i] ^ l, s.w[i] = (uint32_t)p;
    }
  return s;
}
#endif

/* Of the elements 2 block, 2 block + 1, ... */
static inline void philox_high(const draws *d, uint64_t block, uint32_t high[WORDS]) {
#ifdef WORD_MUL
  word_lanes from = {0};
  for (int j = 0; j < WORD_LANES; j++) from[j] = block + (uint64_t)j;
  const word_blocks s = word_rounds(d, from, WORD_LANES);
#pragma GCC unroll 4
  for (int i = 0; i < WORD_SIDE; i++) put_words(s.y[i], s.w[i], high + 2 * i * WORD_LANES);
#else
  const word_blocks s = word_rounds(d, block, 1);
  for (int j = 0; j < WORD_BLOCKS; j++) high[2 * j] = s.y[j], high[2 * j + 1] = s.w[j];
#endif
}

/* The four words of each of WORD_BLOCKS blocks, one block after another. */
static inline void philox_words(const draws *d, uint64_t block, uint32_t words[4 * WORD_BLOCKS]) {
#ifdef WORD_MUL
  enum { HALF = WORD_LANES / 2 };
  word_lanes from = {0};
  for (int j = 0; j < WORD_LANES; j++) from[j] = block + (uint64_t)(j / 2 + j % 2 * HALF); /* WORD_LOW */
  const word_blocks s = word_rounds(d, from, WORD_LANES);
#pragma GCC unroll 4
  for (int i = 0; i < WORD_SIDE; i++) {
    const word_lanes a = (s.x[i] & 0xffffffff) | s.y[i] << 32, b = (s.z[i] & 0xffffffff) | s.w[i] << 32;
    const word_lanes low = WORD_LOW(a, b), high = WORD_HIGH(a, b);
    memcpy(words + 4 * i * WORD_LANES, &low, sizeof low);
    memcpy(words + (4 * i + 2) * WORD_LANES, &high, sizeof high);
  }
#else
  const word_blocks s = word_rounds(d, block, 1);
  for (int j = 0; j < WORD_BLOCKS; j++, words += 4)
    words[0] = s.x[j], words[1] = s.y[j], words[2] = s.z[j], words[3] = s.w[j];
#endif
}

/* Word `which` of WORD_BLOCKS blocks, whose numbers are block + i step. */
static inline void philox_column(const draws *d, uint64_t block, uint64_t step, int which,
                                 uint32_t words[WORD_BLOCKS]) {
#ifdef WORD_MUL
  word_lanes from = {0};
  for (int j = 0; j < WORD_LANES; j++) from[j] = block + (uint64_t)j * step;
  const word_blocks s = word_rounds(d, from, WORD_LANES * step);
  const word_lanes *const own = which == 0 ? s.x : which == 1 ? s.y : which == 2 ? s.z : s.w;
  for (int j = 0; j < WORD_BLOCKS; j++) words[j] = (uint32_t)own[j / WORD_LANES][j % WORD_LANES];
#else
  const word_blocks s = word_rounds(d, block, step);
  memcpy(words, which == 0 ? s.x : which == 1 ? s.y : which == 2 ? s.z : s.w, sizeof s.x);
#endif
}

/* Numbers not above 1 - u of the elements' uniform variates, and below them by less than 2^-24. */
static inline void philox_rest(const draws *d, uint64_t block, real rest[WORDS]) {
  uint32_t high[WORDS];
  philox_high(d, block, high);
  for (int j = 0; j < WORDS; j++) rest[j] = (real)(int32_t)(0xffffff - (high[j] >> 8)) * (real)0x1p-24;
}

#endif
