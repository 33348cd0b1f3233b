/* vec/vec_avx512.h - the vector layer on AVX-512 F, DQ, BW, VL: one zmm register. */
#if !defined(__AVX512F__) || !defined(__AVX512DQ__) || !defined(__AVX512BW__) || !defined(__AVX512VL__)
#error "compile this file for AVX-512"
#endif
#define SMI \
  static inline __attribute__((always_inline, unused)) /* an engine and its operator become one loop */
#include <immintrin.h>
#if SMX_REAL == 32
typedef __m512 vreal;
typedef __mmask16 vmask;
#define V(op) _mm512_##op##_ps
#define M(op) _mm512_##op##_ps_mask
#else
typedef __m512d vreal;
typedef __mmask8 vmask;
#define V(op) _mm512_##op##_pd
#define M(op) _mm512_##op##_pd_mask
#endif

SMI vmask m_first(int n) { return (vmask)((1u << n) - 1); }
SMI vreal v_load(const real *p) { return V(loadu)(p); }
SMI void v_store(real *p, vreal x) { V(storeu)(p, x); }
SMI void v_stream(real *p, vreal x) { V(stream)(p, x); }
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
SMI vreal v_set1(real c) { return V(set1)(c); }
SMI vreal v_load_n(const real *p, int n, real fill) { return V(mask_loadu)(v_set1(fill), m_first(n), p); }
SMI void v_store_n(real *p, int n, vreal x) { V(mask_storeu)(p, m_first(n), x); }
#if SMX_REAL == 32
SMI real v_first(vreal x) { return _mm512_cvtss_f32(x); }
#else
SMI real v_first(vreal x) { return _mm512_cvtsd_f64(x); }
#endif
SMI vreal v_iota(void) {
#if SMX_REAL == 32
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return _mm512_setr_pd(0, 1, 2, 3, 4, 5, 6, 7);
#endif
}
SMI vreal v_add(vreal x, vreal y) { return V(add)(x, y); }
SMI vreal v_sub(vreal x, vreal y) { return V(sub)(x, y); }
SMI vreal v_mul(vreal x, vreal y) { return V(mul)(x, y); }
SMI vreal v_div(vreal x, vreal y) { return V(div)(x, y); }
SMI vreal v_fma(vreal x, vreal y, vreal z) { return V(fmadd)(x, y, z); }
SMI vreal v_fnma(vreal x, vreal y, vreal z) { return V(fnmadd)(x, y, z); }
SMI vreal v_max(vreal x, vreal y) { return V(max)(x, y); }
SMI vreal v_min(vreal x, vreal y) { return V(min)(x, y); }
SMI vreal v_abs(vreal x) { return V(abs)(x); }
SMI vreal v_copysign(vreal x, vreal s) {
  vreal sign = v_set1((real)-0.0);
  return V(or)(V(andnot)(sign, x), V(and)(sign, s));
}
SMI vmask v_lt(vreal x, vreal y) { return M(cmp)(x, y, _CMP_LT_OQ); }
SMI vmask v_eq(vreal x, vreal y) { return M(cmp)(x, y, _CMP_EQ_OQ); }
SMI vmask m_or(vmask a, vmask b) { return (vmask)(a | b); }
SMI vmask m_and(vmask a, vmask b) { return (vmask)(a & b); }
SMI vmask m_not(vmask a) { return (vmask)~a; }
SMI int m_any(vmask a) { return a != 0; }
SMI uint32_t m_bits(vmask a) { return a; }
SMI vreal v_select(vmask m, vreal x, vreal y) { return V(mask_blend)(m, y, x); }
SMI vreal v_flush(vreal y, vreal x, vreal limit) { return V(maskz_mov)(M(cmp)(x, limit, _CMP_NLT_UQ), y); }
/* Zeros and subnormal numbers become +0. */
#if SMX_REAL == 32
SMI vreal v_flush_tiny(vreal x) {
  return _mm512_mask_mov_ps(x, _mm512_fpclass_ps_mask(x, 0x26), _mm512_setzero_ps());
}
#else
SMI vreal v_flush_tiny(vreal x) {
  return _mm512_mask_mov_pd(x, _mm512_fpclass_pd_mask(x, 0x26), _mm512_setzero_pd());
}
#endif
#define V_FLUSH_TINY
SMI vreal v_scale_near(vreal p, vreal d) { return V(scalef)(p, d); }
SMI vreal v_exponent(vreal x) { return V(getexp)(x); }
SMI vreal v_mantissa(vreal x) { return V(getmant)(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero); }

/* The last steps of a fold, on 128 bits. */
#if SMX_REAL == 32
#define QUARTER(x, i) _mm512_extractf32x4_ps(x, i)
typedef __m128 vquarter;
#define FOLD_QUARTER(name, op) \
  SMI real name(vquarter x) { \
    x = _mm_##op##_ps(x, _mm_movehl_ps(x, x)); \
    return _mm_cvtss_f32(_mm_##op##_ss(x, _mm_movehdup_ps(x))); \
  }
#define QOP(op) _mm_##op##_ps
#else
#define QUARTER(x, i) _mm512_extractf64x2_pd(x, i)
typedef __m128d vquarter;
#define FOLD_QUARTER(name, op) \
  SMI real name(vquarter x) { return _mm_cvtsd_f64(_mm_##op##_sd(x, _mm_unpackhi_pd(x, x))); }
#define QOP(op) _mm_##op##_pd
#endif
FOLD_QUARTER(fold_sum, add)
FOLD_QUARTER(fold_max, max)
FOLD_QUARTER(fold_min, min)
#define FOLD(x, op) QOP(op)(QOP(op)(QUARTER(x, 0), QUARTER(x, 2)), QOP(op)(QUARTER(x, 1), QUARTER(x, 3)))
SMI real v_hsum(vreal x) { return fold_sum(FOLD(x, add)); }
SMI real v_hmax(vreal x) { return fold_max(FOLD(x, max)); }
SMI real v_hmin(vreal x) { return fold_min(FOLD(x, min)); }

#if SMX_REAL == 32
#define QUARTERS(x, y, which) _mm512_shuffle_f32x4(x, y, which)
#define LAST_STEPS(op, x) \
  x = V(op)(x, _mm512_permute_ps(x, 0x4e)); \
  x = V(op)(x, _mm512_permute_ps(x, 0xb1));
#else
#define QUARTERS(x, y, which) _mm512_shuffle_f64x2(x, y, which)
#define LAST_STEPS(op, x) x = V(op)(x, _mm512_permute_pd(x, 0x55));
#endif
#define FOUR_FOLDS(name, op) \
  SMI vreal name(vreal a, vreal b, vreal c, vreal d) { \
    vreal ab = V(op)(QUARTERS(a, b, 0x44), QUARTERS(a, b, 0xee)), \
          cd = V(op)(QUARTERS(c, d, 0x44), QUARTERS(c, d, 0xee)); \
    vreal all = V(op)(QUARTERS(ab, cd, 0x88), QUARTERS(ab, cd, 0xdd)); \
    LAST_STEPS(op, all) \
    return all; \
  }
FOUR_FOLDS(v_hsums, add)
FOUR_FOLDS(v_hmaxs, max)

#if SMX_REAL == 32
SMI vreal v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
SMI void v_store_f16(uint16_t *p, vreal x) {
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* One shuffle takes 16 bits to and from the upper half of a lane; widening, shifting and narrowing
 * would be two or three steps. */
SMI __m512i bf16_places(void) { /* word l of an array in the upper half of lane l */
  return _mm512_setr_epi32(0, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000, 0x70000, 0x80000, 0x90000,
                           0xa0000, 0xb0000, 0xc0000, 0xd0000, 0xe0000, 0xf0000);
}
SMI vreal v_load_bf16(const uint16_t *p) {
  const __m512i h = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, bf16_places(), h));
}
SMI void v_store_bf16(uint16_t *p, vreal x) { /* not for NaN */
  const __m512i upper = _mm512_setr_epi32(0x30001, 0x70005, 0xb0009, 0xf000d, 0x130011, 0x170015, 0x1b0019,
                                          0x1f001d, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512i u = _mm512_castps_si512(x), down = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
  const __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
  const __m512i even = _mm512_mask_add_epi32(down, odd, u, _mm512_set1_epi32(0x8000));
  _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, even)));
}
#define V_HAS_HALF 1
/* n of LANES numbers in half precision; what is read is filled up with 0. */
SMI void half_in(uint16_t *to, const uint16_t *p, int n) {
  _mm256_storeu_si256((__m256i *)to, _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}
SMI void half_out(uint16_t *p, const uint16_t *from, int n) {
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), _mm256_loadu_si256((const __m256i *)from));
}
#define V_HAS_PARTS 1
#endif
