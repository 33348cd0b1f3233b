/* vec/columns.h - columns of LANES rows as vectors: pieces of a matrix are transposed in registers.
 *
 *     v_columns        out[c] has in lane r the number at p + r step, column c of 4
 *     v_columns_f16    the same of 8 columns in half precision, widened; v_columns_bf16 likewise
 *                      (both where V_HAS_HALF)
 *     v_four_columns   stores four columns of four rows: that at p[r] + at goes to out[r], the next
 *                      in each row `pitch` reals on
 *
 * step is in bytes. Numbers are moved as they are. */
#ifndef SMX_VEC_COLUMNS_H
#define SMX_VEC_COLUMNS_H
#include "vec.h"

enum { REAL_STEP = 4, HALF_STEP = 8 }; /* columns of reals, and in half precision */

typedef real quad __attribute__((vector_size(4 * sizeof(real))));

SMI quad quad_load(const char *p) {
  quad q;
  memcpy(&q, p, sizeof q);
  return q;
}
SMI void quad_store(real *p, quad q) { memcpy(p, &q, sizeof q); }

#ifdef __clang__
#define SHUFFLE(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
typedef rbits quad_index __attribute__((vector_size(4 * sizeof(rbits))));
#define SHUFFLE(x, y, a, b, c, d) __builtin_shuffle(x, y, (quad_index){a, b, c, d})
#endif

SMI void v_four_columns(const char *const p[4], int64_t at, real *out, int64_t pitch) {
  const quad a = quad_load(p[0] + at), b = quad_load(p[1] + at), c = quad_load(p[2] + at),
             d = quad_load(p[3] + at);
  const quad ab = SHUFFLE(a, b, 0, 4, 1, 5), ba = SHUFFLE(a, b, 2, 6, 3, 7);
  const quad cd = SHUFFLE(c, d, 0, 4, 1, 5), dc = SHUFFLE(c, d, 2, 6, 3, 7);
  quad_store(out, SHUFFLE(ab, cd, 0, 1, 4, 5));
  quad_store(out + pitch, SHUFFLE(ab, cd, 2, 3, 6, 7));
  quad_store(out + 2 * pitch, SHUFFLE(ba, dc, 0, 1, 4, 5));
  quad_store(out + 3 * pitch, SHUFFLE(ba, dc, 2, 3, 6, 7));
}
#undef SHUFFLE

#if defined(__AVX512F__) && SMX_REAL == 32 && !defined(V_PORTABLE)

/* Four bases and step, 3 step are all the registers that sixteen rows need; the compiler would keep
 * sixteen pointers through a loop, so the bases are hidden from it. */
SMI const char *base_at(const char *p) {
  __asm__("" : "+r"(p));
  return p;
}

/* Sixteen bytes each of rows r, r + 4, r + 8 and r + 12: merged as they are loaded, so that no
 * shuffle is needed for it. */
SMI __m512 rows_in_fours(const char *const p[4], int64_t at) {
  const __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(const void *)(p[0] + at)));
#define MERGED(x, i, mask) \
  _mm512_mask_broadcast_f32x4(x, mask, _mm_loadu_ps((const float *)(const void *)(p[i] + at)))
  return MERGED(MERGED(MERGED(x, 1, 0x00f0), 2, 0x0f00), 3, 0xf000);
#undef MERGED
}
SMI void v_columns(const char *p, int64_t step, vreal out[REAL_STEP]) {
  const char *const fours[4] = {base_at(p), base_at(p + 4 * step), base_at(p + 8 * step),
                                base_at(p + 12 * step)};
  const __m512 a = rows_in_fours(fours, 0), b = rows_in_fours(fours, step);
  const __m512 c = rows_in_fours(fours, 2 * step), d = rows_in_fours(fours, 3 * step);
  const __m512 ab = _mm512_unpacklo_ps(a, b), ba = _mm512_unpackhi_ps(a, b);
  const __m512 cd = _mm512_unpacklo_ps(c, d), dc = _mm512_unpackhi_ps(c, d);
  out[0] = _mm512_shuffle_ps(ab, cd, 0x44), out[1] = _mm512_shuffle_ps(ab, cd, 0xee);
  out[2] = _mm512_shuffle_ps(ba, dc, 0x44), out[3] = _mm512_shuffle_ps(ba, dc, 0xee);
}

/* Pairs of numbers in half precision are moved as one; the first is in the lower half. */
SMI vreal first_f16(__m512i x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
SMI vreal second_f16(__m512i x) { return first_f16(_mm512_srli_epi32(x, 16)); }
SMI vreal first_bf16(__m512i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
SMI vreal second_bf16(__m512i x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
}
#define WIDENED_COLUMNS(type) \
  SMI void v_columns_##type(const char *p, int64_t step, vreal out[HALF_STEP]) { \
    vreal pairs[REAL_STEP]; \
    v_columns(p, step, pairs); \
    _Pragma("GCC unroll 4") for (int c = 0; c < REAL_STEP; c++) { \
      const __m512i x = _mm512_castps_si512(pairs[c]); \
      out[2 * c] = first_##type(x), out[2 * c + 1] = second_##type(x); \
    } \
  }

#elif defined(__AVX2__) && SMX_REAL == 32 && !defined(V_PORTABLE)

SMI vreal v_two(__m256 low, __m256 high) { return (vreal){low, high}; }

/* Four rows from p on need registers for p, step and 3 step only. The compiler would keep sixteen
 * pointers through a loop and has too few registers for them, so p is hidden from it. */
SMI const char *base_at(const char *p) {
  __asm__("" : "+r"(p));
  return p;
}

/* Rows r and r + 4 share a register, so that no step crosses its middle. */
SMI __m256 two_rows(const char *p, const char *q) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)p)),
                              _mm_loadu_ps((const float *)(const void *)q), 1);
}
SMI void columns_of_eight(const char *p, int64_t step, __m256 out[REAL_STEP]) {
  const char *q = base_at(p + 4 * step);
  const __m256 a = two_rows(p, q), b = two_rows(p + step, q + step);
  const __m256 c = two_rows(p + 2 * step, q + 2 * step), d = two_rows(p + 3 * step, q + 3 * step);
  const __m256 ab = _mm256_unpacklo_ps(a, b), ba = _mm256_unpackhi_ps(a, b);
  const __m256 cd = _mm256_unpacklo_ps(c, d), dc = _mm256_unpackhi_ps(c, d);
  out[0] = _mm256_shuffle_ps(ab, cd, 0x44), out[1] = _mm256_shuffle_ps(ab, cd, 0xee);
  out[2] = _mm256_shuffle_ps(ba, dc, 0x44), out[3] = _mm256_shuffle_ps(ba, dc, 0xee);
}
SMI void v_columns(const char *p, int64_t step, vreal out[REAL_STEP]) {
  __m256 low[REAL_STEP], high[REAL_STEP];
  p = base_at(p);
  columns_of_eight(p, step, low);
  columns_of_eight(base_at(p + 8 * step), step, high);
#pragma GCC unroll 4
  for (int c = 0; c < REAL_STEP; c++) out[c] = v_two(low[c], high[c]);
}

/* Sixteen rows of eight numbers in half precision: rows r and r + 8 share a register. */
#define WORDS(high_or_low, bits, x, y) _mm256_unpack##high_or_low##_epi##bits(x, y)
SMI void columns_of_half(const char *p, int64_t step, __m256i out[HALF_STEP]) {
  __m256i a[HALF_STEP], b[HALF_STEP];
  p = base_at(p);
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++, p = base_at(p + 4 * step)) {
    const char *q = base_at(p + 8 * step);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) a[4 * half + r] = _mm256_castps_si256(two_rows(p + r * step, q + r * step));
  }
#pragma GCC unroll 4
  for (int r = 0; r < HALF_STEP; r += 2)
    b[r] = WORDS(lo, 16, a[r], a[r + 1]), b[r + 1] = WORDS(hi, 16, a[r], a[r + 1]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) { /* columns 0 1, 2 3, 4 5, 6 7 of rows 0 to 3, then of rows 4 to 7 */
    const int r = i / 2 * 4 + i % 2;
    a[i / 2 * 4 + i % 2 * 2] = WORDS(lo, 32, b[r], b[r + 2]),
                          a[i / 2 * 4 + i % 2 * 2 + 1] = WORDS(hi, 32, b[r], b[r + 2]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++)
    out[2 * c] = WORDS(lo, 64, a[c], a[c + 4]), out[2 * c + 1] = WORDS(hi, 64, a[c], a[c + 4]);
}
#undef WORDS

SMI vreal widened_f16(__m256i x) {
  return (vreal){_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}
SMI __m256 eight_bf16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
SMI vreal widened_bf16(__m256i x) {
  return v_two(eight_bf16(_mm256_castsi256_si128(x)), eight_bf16(_mm256_extracti128_si256(x, 1)));
}

#define WIDENED_COLUMNS(type) \
  SMI void v_columns_##type(const char *p, int64_t step, vreal out[HALF_STEP]) { \
    __m256i half[HALF_STEP]; \
    columns_of_half(p, step, half); \
    _Pragma("GCC unroll 8") for (int c = 0; c < HALF_STEP; c++) out[c] = widened_##type(half[c]); \
  }

#else

SMI void v_columns(const char *p, int64_t step, vreal out[REAL_STEP]) {
  real t[REAL_STEP][LANES];
  for (int r = 0; r < LANES; r += 4, p += 4 * step)
    v_four_columns((const char *[]){p, p + step, p + 2 * step, p + 3 * step}, 0, t[0] + r, LANES);
  for (int c = 0; c < REAL_STEP; c++) out[c] = v_load(t[c]);
}

#define WIDENED_COLUMNS(type) \
  SMI void v_columns_##type(const char *p, int64_t step, vreal out[HALF_STEP]) { \
    uint16_t t[HALF_STEP][LANES]; \
    for (int r = 0; r < LANES; r++) { \
      uint16_t row[HALF_STEP]; \
      memcpy(row, p + r * step, sizeof row); \
      for (int c = 0; c < HALF_STEP; c++) t[c][r] = row[c]; \
    } \
    for (int c = 0; c < HALF_STEP; c++) out[c] = v_load_##type(t[c]); \
  }

#endif

#ifdef V_HAS_HALF
WIDENED_COLUMNS(f16)
WIDENED_COLUMNS(bf16)
#endif
#undef WIDENED_COLUMNS

#endif
