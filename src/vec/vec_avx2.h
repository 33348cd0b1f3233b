/* vec/vec_avx2.h - the vector layer on AVX2, FMA, F16C: two ymm registers. */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile this file for AVX2, FMA and F16C"
#endif
#define SMI \
  static inline __attribute__((always_inline, unused)) /* an engine and its operator become one loop */
#include <immintrin.h>
#if SMX_REAL == 32
typedef __m256 vhalf;
typedef __m128 vquarter;
#define H(op) _mm256_##op##_ps
#define Q(op) _mm_##op##_ps
#define H_INT(x) _mm256_castps_si256(x)
#define H_REAL(x) _mm256_castsi256_ps(x)
#define H_SLL(x) _mm256_slli_epi32(x, MANT_BITS)
#define H_SRL(x) _mm256_srli_epi32(x, MANT_BITS)
#define H_ADDI(x, y) _mm256_add_epi32(x, y)
#define H_SET1I(c) _mm256_set1_epi32((int)(c))
#define H_CAST_Q(x) _mm256_castps256_ps128(x)
#define H_HIGH_Q(x) _mm256_extractf128_ps(x, 1)
#else
typedef __m256d vhalf;
typedef __m128d vquarter;
#define H(op) _mm256_##op##_pd
#define Q(op) _mm_##op##_pd
#define H_INT(x) _mm256_castpd_si256(x)
#define H_REAL(x) _mm256_castsi256_pd(x)
#define H_SLL(x) _mm256_slli_epi64(x, MANT_BITS)
#define H_SRL(x) _mm256_srli_epi64(x, MANT_BITS)
#define H_ADDI(x, y) _mm256_add_epi64(x, y)
#define H_SET1I(c) _mm256_set1_epi64x((long long)(c))
#define H_CAST_Q(x) _mm256_castpd256_pd128(x)
#define H_HIGH_Q(x) _mm256_extractf128_pd(x, 1)
#endif
typedef struct {
  vhalf a, b;
} vreal;
typedef vreal vmask; /* all ones or all zeros */
#define V2(op) \
  return (vreal) { op(x.a, y.a), op(x.b, y.b) }

/* A window into ones followed by zeros gives the mask of the first n lanes. */
static const rbits first_lanes[2 * LANES] = {
#if SMX_REAL == 32
    -1u,       -1u,       -1u,       -1u,       -1u,       -1u,       -1u,       -1u,
#endif
    (rbits)-1, (rbits)-1, (rbits)-1, (rbits)-1, (rbits)-1, (rbits)-1, (rbits)-1, (rbits)-1};

SMI __m256i h_first(int n, int half) {
  return _mm256_loadu_si256((const __m256i *)(first_lanes + LANES - n + half * (LANES / 2)));
}
SMI vreal v_load(const real *p) { return (vreal){H(loadu)(p), H(loadu)(p + LANES / 2)}; }
SMI void v_store(real *p, vreal x) {
  H(storeu)(p, x.a);
  H(storeu)(p + LANES / 2, x.b);
}
SMI void v_stream(real *p, vreal x) {
  H(stream)(p, x.a);
  H(stream)(p + LANES / 2, x.b);
}
SMI void v_stream_half(uint16_t *p, const uint16_t *x) {
  if (LANES == 16) _mm256_stream_si256((__m256i *)p, _mm256_loadu_si256((const __m256i *)x));
  else _mm_stream_si128((__m128i *)p, _mm_loadu_si128((const __m128i *)x));
}
SMI void v_stream_end(void) { _mm_sfence(); }
SMI void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
SMI void v_prefetch_far(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
SMI void v_read(const void *p) {
  const __m128i x = _mm_loadu_si128((const __m128i *)p);
  __asm__ volatile("" ::"x"(x));
}
SMI vreal v_set1(real c) {
  vhalf h = H(set1)(c);
  return (vreal){h, h};
}
SMI vhalf h_load_n(const real *p, __m256i m, real fill) {
  return H(blendv)(H(set1)(fill), H(maskload)(p, m), H_REAL(m));
}
SMI vreal v_load_n(const real *p, int n, real fill) {
  return (vreal){h_load_n(p, h_first(n, 0), fill), h_load_n(p + LANES / 2, h_first(n, 1), fill)};
}
SMI void v_store_n(real *p, int n, vreal x) {
  H(maskstore)(p, h_first(n, 0), x.a);
  H(maskstore)(p + LANES / 2, h_first(n, 1), x.b);
}
#if SMX_REAL == 32
SMI real v_first(vreal x) { return _mm256_cvtss_f32(x.a); }
#else
SMI real v_first(vreal x) { return _mm256_cvtsd_f64(x.a); }
#endif
SMI vreal v_iota(void) {
#if SMX_REAL == 32
  return (vreal){_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
#else
  return (vreal){_mm256_setr_pd(0, 1, 2, 3), _mm256_setr_pd(4, 5, 6, 7)};
#endif
}
SMI vreal v_add(vreal x, vreal y) { V2(H(add)); }
SMI vreal v_sub(vreal x, vreal y) { V2(H(sub)); }
SMI vreal v_mul(vreal x, vreal y) { V2(H(mul)); }
SMI vreal v_div(vreal x, vreal y) { V2(H(div)); }
SMI vreal v_fma(vreal x, vreal y, vreal z) {
  return (vreal){H(fmadd)(x.a, y.a, z.a), H(fmadd)(x.b, y.b, z.b)};
}
SMI vreal v_fnma(vreal x, vreal y, vreal z) {
  return (vreal){H(fnmadd)(x.a, y.a, z.a), H(fnmadd)(x.b, y.b, z.b)};
}
SMI vreal v_max(vreal x, vreal y) { V2(H(max)); }
SMI vreal v_min(vreal x, vreal y) { V2(H(min)); }
SMI vmask m_or(vmask x, vmask y) { V2(H(or)); }
SMI vmask m_and(vmask x, vmask y) { V2(H(and)); }
SMI vreal v_andnot(vreal x, vreal y) { V2(H(andnot)); } /* ~x & y */
SMI vreal v_abs(vreal x) { return v_andnot(v_set1((real)-0.0), x); }
SMI vreal v_copysign(vreal x, vreal s) { return m_or(v_abs(x), m_and(v_set1((real)-0.0), s)); }
#define H_CMP(x, y, how) H(cmp)(x, y, how)
SMI vmask v_lt(vreal x, vreal y) { return (vmask){H_CMP(x.a, y.a, _CMP_LT_OQ), H_CMP(x.b, y.b, _CMP_LT_OQ)}; }
SMI vmask v_eq(vreal x, vreal y) { return (vmask){H_CMP(x.a, y.a, _CMP_EQ_OQ), H_CMP(x.b, y.b, _CMP_EQ_OQ)}; }
SMI vmask m_not(vmask x) {
  vhalf ones = H_REAL(_mm256_set1_epi32(-1));
  return (vmask){H(xor)(x.a, ones), H(xor)(x.b, ones)};
}
SMI int m_any(vmask x) { return H(movemask)(H(or)(x.a, x.b)) != 0; }
SMI uint32_t m_bits(vmask x) {
  return (uint32_t)H(movemask)(x.a) | (uint32_t)H(movemask)(x.b) << (LANES / 2);
}
SMI vreal v_select(vmask m, vreal x, vreal y) {
  return (vreal){H(blendv)(y.a, x.a, m.a), H(blendv)(y.b, x.b, m.b)};
}
SMI vreal v_flush(vreal y, vreal x, vreal limit) { return v_andnot(v_lt(x, limit), y); }
/* Adding 1.5 * 2^MANT_BITS leaves d + EXP_BIAS in the low bits, which the shift makes an
 * exponent. */
SMI vhalf h_scale(vhalf p, vhalf d) {
  vhalf magic = H(set1)((real)1.5 * ((rbits)1 << MANT_BITS) + EXP_BIAS);
  return H(mul)(p, H_REAL(H_SLL(H_INT(H(add)(d, magic)))));
}
SMI vreal v_scale_near(vreal x, vreal y) { V2(h_scale); }
SMI vhalf
h_exponent(vhalf x) { /* the exponent field, made a number below 1.5 * 2^MANT_BITS by its own bits */
  vhalf magic = H(set1)((real)1.5 * ((rbits)1 << MANT_BITS));
  vhalf field = H_REAL(H_ADDI(H_SRL(H_INT(x)), H_INT(magic)));
  return H(sub)(field, H(add)(magic, H(set1)(EXP_BIAS)));
}
SMI vreal v_exponent(vreal x) { return (vreal){h_exponent(x.a), h_exponent(x.b)}; }
SMI vhalf h_mantissa(vhalf x) {
  vhalf field = H_REAL(H_SET1I(((rbits)1 << MANT_BITS) - 1));
  return H(or)(H(and)(field, x), H(set1)(1));
}
SMI vreal v_mantissa(vreal x) { return (vreal){h_mantissa(x.a), h_mantissa(x.b)}; }

#if SMX_REAL == 32
#define FOLD_QUARTER(name, op) \
  SMI real name(vquarter x) { \
    x = _mm_##op##_ps(x, _mm_movehl_ps(x, x)); \
    return _mm_cvtss_f32(_mm_##op##_ss(x, _mm_movehdup_ps(x))); \
  }
#else
#define FOLD_QUARTER(name, op) \
  SMI real name(vquarter x) { return _mm_cvtsd_f64(_mm_##op##_sd(x, _mm_unpackhi_pd(x, x))); }
#endif
FOLD_QUARTER(fold_sum, add)
FOLD_QUARTER(fold_max, max)
FOLD_QUARTER(fold_min, min)
#define FOLD(op, x) \
  vhalf h = H(op)(x.a, x.b); \
  vquarter q = Q(op)(H_CAST_Q(h), H_HIGH_Q(h))
SMI real v_hsum(vreal x) {
  FOLD(add, x);
  return fold_sum(q);
}
SMI real v_hmax(vreal x) {
  FOLD(max, x);
  return fold_max(q);
}
SMI real v_hmin(vreal x) {
  FOLD(min, x);
  return fold_min(q);
}

#if SMX_REAL == 32
#define LAST_STEPS(op, x) \
  x = H(op)(x, _mm256_permute_ps(x, 0x4e)); \
  x = H(op)(x, _mm256_permute_ps(x, 0xb1));
#else
#define LAST_STEPS(op, x) x = H(op)(x, _mm256_permute_pd(x, 0x5));
#endif
#define FOUR_FOLDS(name, op) \
  SMI vhalf name##_two(vreal a, vreal b) { \
    vhalf x = H(op)(a.a, a.b), y = H(op)(b.a, b.b); \
    vhalf both = H(op)(H(permute2f128)(x, y, 0x20), H(permute2f128)(x, y, 0x31)); \
    LAST_STEPS(op, both) \
    return both; \
  } \
  SMI vreal name(vreal a, vreal b, vreal c, vreal d) { return (vreal){name##_two(a, b), name##_two(c, d)}; }
FOUR_FOLDS(v_hsums, add)
FOUR_FOLDS(v_hmaxs, max)

#if SMX_REAL == 32
SMI vreal v_load_f16(const uint16_t *p) {
  return (vreal){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1))};
}
SMI void v_store_f16(uint16_t *p, vreal x) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i *)p + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
SMI __m256 h_load_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
SMI vreal v_load_bf16(const uint16_t *p) { return (vreal){h_load_bf16(p), h_load_bf16(p + 8)}; }
SMI __m256i h_round_bf16(__m256 x) {
  __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
}
SMI void v_store_bf16(uint16_t *p, vreal x) { /* not for NaN */
  __m256i both = _mm256_packus_epi32(h_round_bf16(x.a), h_round_bf16(x.b));
  _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(both, 0xd8));
}
#define V_HAS_HALF 1
#endif
