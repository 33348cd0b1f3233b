/* vec/vec_neon.h - the vector layer on AArch64: four q registers. */
#ifndef __aarch64__
#error "compile this file for AArch64"
#endif
#define SMI \
  static inline __attribute__((always_inline, unused)) /* an engine and its operator become one loop */
#include <arm_neon.h>
#if SMX_REAL == 32
typedef float32x4_t vq;
typedef uint32x4_t vqm;
#define N(op) op##_f32
#define NU(op) op##_u32
#define NS(op) op##_s32
#define Q_INT(x) vreinterpretq_s32_f32(x)
#define Q_UINT(x) vreinterpretq_u32_f32(x)
#define Q_REAL(x) vreinterpretq_f32_s32(x)
#define Q_REALU(x) vreinterpretq_f32_u32(x)
#define Q_TO_INT(x) vcvtq_s32_f32(x)
#define Q_FROM_INT(x) vcvtq_f32_s32(x)
#else
typedef float64x2_t vq;
typedef uint64x2_t vqm;
#define N(op) op##_f64
#define NU(op) op##_u64
#define NS(op) op##_s64
#define Q_INT(x) vreinterpretq_s64_f64(x)
#define Q_UINT(x) vreinterpretq_u64_f64(x)
#define Q_REAL(x) vreinterpretq_f64_s64(x)
#define Q_REALU(x) vreinterpretq_f64_u64(x)
#define Q_TO_INT(x) vcvtq_s64_f64(x)
#define Q_FROM_INT(x) vcvtq_f64_s64(x)
#endif
enum { QL = LANES / 4 };
typedef struct {
  vq q[4];
} vreal;
typedef struct {
  vqm q[4];
} vmask;
/* Written out: a loop would keep the four in memory until late passes, and take those several times
 * as long. */
#define AT(at, e) \
  { \
    enum { i = at }; \
    e; \
  }
#define EACH(e) AT(0, e) AT(1, e) AT(2, e) AT(3, e)

SMI vreal v_load(const real *p) {
  vreal r;
  EACH(r.q[i] = N(vld1q)(p + QL * i))
  return r;
}
SMI void v_store(real *p, vreal x) { EACH(N(vst1q)(p + QL * i, x.q[i])) }
SMI void v_stream(real *p, vreal x) { v_store(p, x); }
SMI void v_stream_half(uint16_t *p, const uint16_t *x) { memcpy(p, x, LANES * sizeof *p); }
SMI void v_stream_end(void) {}
SMI void v_prefetch(const void *p) { __builtin_prefetch(p); }
SMI void v_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
SMI void v_read(const void *p) { v_prefetch(p); }
SMI vreal v_load_n(const real *p, int n, real fill) {
  real t[LANES];
  for (int i = 0; i < LANES; i++) t[i] = i < n ? p[i] : fill;
  return v_load(t);
}
SMI void v_store_n(real *p, int n, vreal x) {
  real t[LANES];
  v_store(t, x);
  for (int i = 0; i < n; i++) p[i] = t[i];
}
SMI vreal v_set1(real c) {
  vreal r;
  EACH(r.q[i] = N(vdupq_n)(c))
  return r;
}
SMI real v_first(vreal x) { return N(vgetq_lane)(x.q[0], 0); }
SMI vreal v_iota(void) {
  real t[LANES];
  for (int i = 0; i < LANES; i++) t[i] = (real)i;
  return v_load(t);
}
SMI vreal v_add(vreal x, vreal y) {
  EACH(x.q[i] = N(vaddq)(x.q[i], y.q[i]))
  return x;
}
SMI vreal v_sub(vreal x, vreal y) {
  EACH(x.q[i] = N(vsubq)(x.q[i], y.q[i]))
  return x;
}
SMI vreal v_mul(vreal x, vreal y) {
  EACH(x.q[i] = N(vmulq)(x.q[i], y.q[i]))
  return x;
}
SMI vreal v_div(vreal x, vreal y) {
  EACH(x.q[i] = N(vdivq)(x.q[i], y.q[i]))
  return x;
}
SMI vreal v_fma(vreal x, vreal y, vreal z) {
  EACH(z.q[i] = N(vfmaq)(z.q[i], x.q[i], y.q[i]))
  return z;
}
SMI vreal v_fnma(vreal x, vreal y, vreal z) {
  EACH(z.q[i] = N(vfmsq)(z.q[i], x.q[i], y.q[i]))
  return z;
}
SMI vq q_max(vq x, vq y) { return N(vbslq)(N(vcgtq)(x, y), x, y); }
SMI vq q_min(vq x, vq y) { return N(vbslq)(N(vcltq)(x, y), x, y); }
SMI vreal v_max(vreal x, vreal y) {
  EACH(x.q[i] = q_max(x.q[i], y.q[i]))
  return x;
}
SMI vreal v_min(vreal x, vreal y) {
  EACH(x.q[i] = q_min(x.q[i], y.q[i]))
  return x;
}
SMI vreal v_abs(vreal x) {
  EACH(x.q[i] = N(vabsq)(x.q[i]))
  return x;
}
SMI vreal v_copysign(vreal x, vreal s) {
  vqm sign = NU(vdupq_n)(~((rbits)-1 >> 1));
  EACH(x.q[i] = N(vbslq)(sign, s.q[i], x.q[i]))
  return x;
}
SMI vmask v_lt(vreal x, vreal y) {
  vmask m;
  EACH(m.q[i] = N(vcltq)(x.q[i], y.q[i]))
  return m;
}
SMI vmask v_eq(vreal x, vreal y) {
  vmask m;
  EACH(m.q[i] = N(vceqq)(x.q[i], y.q[i]))
  return m;
}
SMI vmask m_or(vmask a, vmask b) {
  EACH(a.q[i] = NU(vorrq)(a.q[i], b.q[i]))
  return a;
}
SMI vmask m_and(vmask a, vmask b) {
  EACH(a.q[i] = NU(vandq)(a.q[i], b.q[i]))
  return a;
}
SMI vmask m_not(vmask a) {
  EACH(a.q[i] = NU(veorq)(a.q[i], NU(vdupq_n)((rbits)-1)))
  return a;
}
SMI int m_any(vmask a) {
  vqm any = NU(vorrq)(NU(vorrq)(a.q[0], a.q[1]), NU(vorrq)(a.q[2], a.q[3]));
  return vmaxvq_u32((uint32x4_t)any) != 0;
}
SMI uint32_t m_bits(vmask a) {
  rbits lanes[LANES];
  uint32_t bits = 0;
  memcpy(lanes, &a, sizeof lanes);
  for (int i = 0; i < LANES; i++) bits |= (uint32_t)(lanes[i] & 1) << i;
  return bits;
}
SMI vreal v_select(vmask m, vreal x, vreal y) {
  EACH(x.q[i] = N(vbslq)(m.q[i], x.q[i], y.q[i]))
  return x;
}
/* A NaN in d converts to 0, so p, which is NaN whenever d is, comes through. */
SMI vq q_scale(vq p, vq d) {
  return N(vmulq)(p, Q_REAL(NS(vshlq_n)(NS(vaddq)(Q_TO_INT(d), NS(vdupq_n)(EXP_BIAS)), MANT_BITS)));
}
SMI vreal v_flush(vreal y, vreal x, vreal limit) { return v_select(v_lt(x, limit), v_set1(0), y); }
SMI vreal v_scale_near(vreal p, vreal d) {
  EACH(p.q[i] = q_scale(p.q[i], d.q[i]))
  return p;
}
SMI vreal v_exponent(vreal x) {
  EACH(x.q[i] = Q_FROM_INT(NS(vsubq)(NS(vshrq_n)(Q_INT(x.q[i]), MANT_BITS), NS(vdupq_n)(EXP_BIAS))))
  return x;
}
SMI vreal v_mantissa(vreal x) {
  vqm field = NU(vdupq_n)(((rbits)1 << MANT_BITS) - 1), one = Q_UINT(N(vdupq_n)(1));
  EACH(x.q[i] = Q_REALU(NU(vorrq)(NU(vandq)(field, Q_UINT(x.q[i])), one)))
  return x;
}
/* Lane i meets lane i + LANES / 2, then LANES / 4, ... */
#define FOLD(name, op) \
  SMI real name(vreal x) { \
    real t[QL]; \
    N(vst1q)(t, op(op(x.q[0], x.q[2]), op(x.q[1], x.q[3]))); \
    return QL == 4 ? FOLD1_##op(FOLD1_##op(t[0], t[QL - 2]), FOLD1_##op(t[1], t[QL - 1])) \
                   : FOLD1_##op(t[0], t[1]); \
  }
SMI real r_add(real a, real b) { return a + b; }
SMI real r_max(real a, real b) { return a > b ? a : b; }
SMI real r_min(real a, real b) { return a < b ? a : b; }
SMI vq q_sum(vq a, vq b) { return N(vaddq)(a, b); }
#define FOLD1_q_sum r_add
#define FOLD1_q_max r_max
#define FOLD1_q_min r_min
FOLD(v_hsum, q_sum)
FOLD(v_hmax, q_max)
FOLD(v_hmin, q_min)
#define FOUR_FOLDS(name, op) \
  SMI vq name##_one(vreal x) { \
    vq q = op(op(x.q[0], x.q[2]), op(x.q[1], x.q[3])); \
    if (QL == 4) q = op(q, N(vextq)(q, q, QL / 2)); \
    return op(q, N(vextq)(q, q, 1)); \
  } \
  SMI vreal name(vreal a, vreal b, vreal c, vreal d) { \
    return (vreal){{name##_one(a), name##_one(b), name##_one(c), name##_one(d)}}; \
  }
FOUR_FOLDS(v_hsums, q_sum)
FOUR_FOLDS(v_hmaxs, q_max)

#if SMX_REAL == 32
SMI vreal v_load_f16(const uint16_t *p) {
  vreal r;
  EACH(r.q[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))))
  return r;
}
SMI void v_store_f16(uint16_t *p, vreal x) {
  EACH(vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.q[i]))))
}
SMI vreal v_load_bf16(const uint16_t *p) {
  vreal r;
  EACH(r.q[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)))
  return r;
}
SMI void v_store_bf16(uint16_t *p, vreal x) { /* not for NaN */
  for (int i = 0; i < 4; i++) {
    uint32x4_t u = vreinterpretq_u32_f32(x.q[i]), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    vst1_u16(p + 4 * i, vshrn_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), 16));
  }
}
#define V_HAS_HALF 1
#endif
