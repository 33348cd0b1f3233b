/* vec/compress.h - selected lanes of a vector moved together, and sums of lanes in double. */
#ifndef SMX_VEC_COMPRESS_H
#define SMX_VEC_COMPRESS_H
#include "vec.h"

/* Stores the lanes of m at p, in their order; returns their number. Lanes behind them, up to a
 * whole vector, are overwritten. v_compress_two: those of x at p and of y at q. */
#ifdef V /* vec_avx512.h */
SMI int v_compress(real *p, vmask m, vreal x) {
  v_store(p, V(maskz_compress)(m, x)); /* the instruction itself is slow when it writes to memory */
  return __builtin_popcount(m);
}
SMI int v_compress_two(real *p, real *q, vmask m, vreal x, vreal y) {
  v_compress(q, m, y);
  return v_compress(p, m, x);
}
#elif defined(__AVX2__) && !defined(V_PORTABLE)
static const uint64_t packed_lanes[256] = {
#include "packed_lanes.inc"
};
SMI __m256i h_packing(unsigned bits) {
#if SMX_REAL == 32
  const unsigned lanes = bits;
#else /* pairs of lanes of half the size */
  const unsigned lanes = (bits & 1) * 3 | (bits & 2) * 6 | (bits & 4) * 12 | (bits & 8) * 24;
#endif
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(packed_lanes + lanes)));
}
SMI void h_store_packed(real *p, __m256i packing, vhalf x) {
  H(storeu)(p, H_REAL(_mm256_permutevar8x32_epi32(H_INT(x), packing)));
}
SMI int v_compress(real *p, vmask m, vreal x) {
  const unsigned a = (unsigned)H(movemask)(m.a), b = (unsigned)H(movemask)(m.b);
  const int n = __builtin_popcount(a);
  h_store_packed(p, h_packing(a), x.a);
  h_store_packed(p + n, h_packing(b), x.b);
  return n + __builtin_popcount(b);
}
SMI int v_compress_two(real *p, real *q, vmask m, vreal x, vreal y) {
  const unsigned a = (unsigned)H(movemask)(m.a), b = (unsigned)H(movemask)(m.b);
  const int n = __builtin_popcount(a);
  const __m256i first = h_packing(a), rest = h_packing(b);
  h_store_packed(p, first, x.a), h_store_packed(p + n, rest, x.b);
  h_store_packed(q, first, y.a), h_store_packed(q + n, rest, y.b);
  return n + __builtin_popcount(b);
}
#else
SMI int v_compress(real *p, vmask m, vreal x) {
  real lanes[LANES];
  int n = 0;
  v_store(lanes, x);
  for (uint32_t left = m_bits(m); left; left &= left - 1) p[n++] = lanes[__builtin_ctz(left)];
  return n;
}
SMI int v_compress_two(real *p, real *q, vmask m, vreal x, vreal y) {
  v_compress(q, m, y);
  return v_compress(p, m, x);
}
#endif

/* Sums in double, one for each lane. */
typedef double v_eight __attribute__((vector_size(64)));
typedef struct v_sum64 {
  v_eight part[LANES / 8];
} v_sum64;
SMI v_sum64 v_to64(vreal x) {
  v_sum64 d;
#if SMX_REAL == 32 && defined(V) /* vec_avx512.h; GCC 12 converts in smaller pieces */
  d.part[0] = (v_eight)_mm512_cvtps_pd(_mm512_castps512_ps256(x));
  d.part[1] = (v_eight)_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
#elif SMX_REAL == 32
  typedef float v_half __attribute__((vector_size(32)));
  v_half half[2];
  memcpy(half, &x, 64);
  d.part[0] = __builtin_convertvector(half[0], v_eight);
  d.part[1] = __builtin_convertvector(half[1], v_eight);
#else
  memcpy(d.part, &x, 64);
#endif
  return d;
}
SMI vreal v_from64(v_sum64 d) { /* rounded */
  vreal x;
#if SMX_REAL == 32 && defined(V)
  x = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)d.part[0])),
                         _mm512_cvtpd_ps((__m512d)d.part[1]), 1);
#elif SMX_REAL == 32
  typedef float v_half __attribute__((vector_size(32)));
  const v_half half[2] = {__builtin_convertvector(d.part[0], v_half),
                          __builtin_convertvector(d.part[1], v_half)};
  memcpy(&x, half, 64);
#else
  memcpy(&x, d.part, 64);
#endif
  return x;
}
/* a b + c, rounded once or twice. */
SMI v_eight v_eight_fma(v_eight a, v_eight b, v_eight c) {
#ifdef V
  return (v_eight)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#else
  return a * b + c;
#endif
}
SMI void v_sum64_add(v_sum64 *s, vreal x) {
  const v_sum64 d = v_to64(x);
  for (int p = 0; p < LANES / 8; p++) s->part[p] += d.part[p];
}
SMI double v_sum64_total(const v_sum64 *s) {
  v_eight all = s->part[0];
  if (LANES > 8) all += s->part[LANES / 8 - 1];
  return ((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7]));
}

#endif
