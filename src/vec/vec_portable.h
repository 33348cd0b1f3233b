/* vec/vec_portable.h - the vector layer in portable C (vectors of GNU C, which the compiler lowers
 * to the instructions of the machine). This is the specification: every other header computes the
 * same bits. */
#define V_PORTABLE 1
/* The compiler decides what is inlined: with everything inlined the code would be five times as
 * large. */
#define SMI static inline __attribute__((unused))
/* Four quarters, as machines have registers of: of a vector of GNU C that no register holds gcc
 * keeps every intermediate result in memory of its own, up to 15 KB in a function. */
typedef real vq __attribute__((vector_size(16)));
#if SMX_REAL == 32
typedef int32_t viq __attribute__((vector_size(16)));
#else
typedef int64_t viq __attribute__((vector_size(16)));
#endif
typedef struct {
  vq q[4];
} vreal;
typedef struct {
  viq q[4];
} vmask; /* 0 or -1 */
enum { QL = LANES / 4 };
/* Written out, and not a loop, whose arrays would stay in memory. */
#define AT(at, e) \
  { \
    enum { i = at }; \
    e; \
  }
#define EACH(e) AT(0, e) AT(1, e) AT(2, e) AT(3, e)

SMI vq q_set1(real c) { return c - (vq){0}; }
SMI viq q_int(rbits c) {
  viq r = {0};
  return r + (__typeof__(r[0]))c;
}
SMI vq q_select(viq m, vq x, vq y) { return (vq)(((viq)x & m) | ((viq)y & ~m)); }
SMI vreal v_set1(real c) {
  const vq q = q_set1(c);
  return (vreal){{q, q, q, q}};
}
/* x y + z, rounded once. Out of line: emulated, it is long. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
static __attribute__((noinline)) void fma_lanes(const vreal *restrict x, const vreal *restrict y,
                                                vreal *restrict z) {
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < QL; i++)
      z->q[j][i] = SMX_REAL == 32
                       ? (real)__builtin_fmaf((float)x->q[j][i], (float)y->q[j][i], (float)z->q[j][i])
                       : (real)__builtin_fma(x->q[j][i], y->q[j][i], z->q[j][i]);
}
#elif SMX_REAL == 32
/* Without hardware: the product of two floats is exact in double; the sum is rounded to odd there
 * and then to float, which is the correctly rounded result (Boldo, Melquiond 2008). */
typedef float vpair __attribute__((vector_size(8)));
typedef double vwide __attribute__((vector_size(16)));
typedef int64_t vwint __attribute__((vector_size(16)));
static __attribute__((noinline)) void fma_lanes(const vreal *restrict a, const vreal *restrict b,
                                                vreal *restrict c) {
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < QL; i += 2) {
      vwide x = {a->q[j][i], a->q[j][i + 1]}, y = {b->q[j][i], b->q[j][i + 1]};
      vwide z = {c->q[j][i], c->q[j][i + 1]};
      vwide p = x * y, s = p + z, t = s - p, e = (p - (s - t)) + (z - t); /* s + e is p + c exactly */
      vwint u = (vwint)s, v = (vwint)e, zero = {0}, exponent = zero + 0x7ff0000000000000;
      /* inexact, even, finite */
      vwint adjust = (v + v != zero) & ((u & 1) == zero) & ((u & exponent) != exponent);
      vwint towards = ((u ^ v) >> 63) | 1; /* -1 or +1 */
      vpair r = __builtin_convertvector((vwide)(u + (adjust & towards)), vpair);
      c->q[j][i] = r[0], c->q[j][i + 1] = r[1];
    }
}
#else
double fma(double, double, double); /* the C library's is correctly rounded */
static __attribute__((noinline)) void fma_lanes(const vreal *restrict x, const vreal *restrict y,
                                                vreal *restrict z) {
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < QL; i++) z->q[j][i] = fma(x->q[j][i], y->q[j][i], z->q[j][i]);
}
#endif
SMI vreal v_fma(vreal x, vreal y, vreal z) {
  fma_lanes(&x, &y, &z);
  return z;
}
SMI vreal v_fnma(vreal x, vreal y, vreal z) { /* z - x y */
  EACH(x.q[i] = -x.q[i])
  return v_fma(x, y, z);
}

SMI vreal v_load(const real *p) {
  vreal r;
  memcpy(&r, p, 64);
  return r;
}
SMI void v_store(real *p, vreal x) { memcpy(p, &x, 64); }
SMI void v_stream(real *p, vreal x) {
  v_store(p, x);
} /* p is 64-byte aligned; a streaming store where the machine has one */
/* LANES of them, to as many bytes' boundary */
SMI void v_stream_half(uint16_t *p, const uint16_t *x) { memcpy(p, x, LANES * sizeof *p); }
SMI void v_stream_end(void) {}
SMI void v_prefetch(const void *p) { __builtin_prefetch(p); }
SMI void v_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); } /* not into the nearest cache */
SMI void v_read(const void *p) {
  v_prefetch(p);
} /* 16 bytes are read and dropped where a core follows reads rather than hints */
SMI vreal v_load_n(const real *p, int n, real fill) { /* 0 <= n <= LANES; reads n elements only */
  real t[LANES];
#pragma GCC unroll 1
  for (int i = 0; i < LANES; i++) t[i] = i < n ? p[i] : fill;
  return v_load(t);
}
SMI void v_store_n(real *p, int n, vreal x) {
  real t[LANES];
  v_store(t, x);
  memcpy(p, t, (size_t)n * sizeof *p);
}
SMI real v_first(vreal x) { return x.q[0][0]; }
SMI vreal v_iota(void) {
#if SMX_REAL == 32
  return (vreal){{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}};
#else
  return (vreal){{{0, 1}, {2, 3}, {4, 5}, {6, 7}}};
#endif
}
SMI vreal v_add(vreal x, vreal y) {
  EACH(x.q[i] += y.q[i])
  return x;
}
SMI vreal v_sub(vreal x, vreal y) {
  EACH(x.q[i] -= y.q[i])
  return x;
}
SMI vreal v_mul(vreal x, vreal y) {
  EACH(x.q[i] *= y.q[i])
  return x;
}
SMI vreal v_div(vreal x, vreal y) {
  EACH(x.q[i] /= y.q[i])
  return x;
}
SMI vmask v_lt(vreal x, vreal y) { /* false for NaN */
  vmask m;
  EACH(m.q[i] = x.q[i] < y.q[i])
  return m;
}
SMI vmask v_eq(vreal x, vreal y) {
  vmask m;
  EACH(m.q[i] = x.q[i] == y.q[i])
  return m;
}
SMI vmask m_or(vmask a, vmask b) {
  EACH(a.q[i] |= b.q[i])
  return a;
}
SMI vmask m_and(vmask a, vmask b) {
  EACH(a.q[i] &= b.q[i])
  return a;
}
SMI vmask m_not(vmask a) {
  EACH(a.q[i] = ~a.q[i])
  return a;
}
SMI int m_any(vmask a) {
  const viq any = a.q[0] | a.q[1] | a.q[2] | a.q[3];
  uint64_t w[2];
  memcpy(w, &any, 16);
  return (w[0] | w[1]) != 0;
}
SMI uint32_t m_bits(vmask a) { /* bit i = lane i */
  rbits lanes[LANES];
  uint32_t bits = 0;
  memcpy(lanes, &a, 64);
  for (int i = 0; i < LANES; i++) bits |= (uint32_t)(lanes[i] & 1) << i;
  return bits;
}
SMI vreal v_select(vmask m, vreal x, vreal y) { /* m ? x : y */
  EACH(x.q[i] = q_select(m.q[i], x.q[i], y.q[i]))
  return x;
}
SMI vreal v_flush(vreal y, vreal x, vreal limit) { /* x < limit ? +0 : y */
  EACH(y.q[i] = (vq)((viq)y.q[i] & ~(x.q[i] < limit.q[i])))
  return y;
}
SMI vreal v_max(vreal x, vreal y) { /* the second when either is NaN */
  EACH(x.q[i] = q_select(x.q[i] > y.q[i], x.q[i], y.q[i]))
  return x;
}
SMI vreal v_min(vreal x, vreal y) {
  EACH(x.q[i] = q_select(x.q[i] < y.q[i], x.q[i], y.q[i]))
  return x;
}
SMI vreal v_abs(vreal x) {
  EACH(x.q[i] = (vq)((viq)x.q[i] & q_int((rbits)-1 >> 1)))
  return x;
}
SMI vreal v_copysign(vreal x, vreal s) { /* |x| with the sign of s */
  EACH(x.q[i] = q_select(q_int((rbits)-1 >> 1), x.q[i], s.q[i]))
  return x;
}
/* p * 2^d for a whole number d, MIN_EXP <= d <= EXP_BIAS, |p| in [0.5, 2]; anything for a smaller
 * d; NaN where p is NaN. Adding 1.5 * 2^MANT_BITS leaves d + EXP_BIAS in the low bits, which the
 * shift makes an exponent. */
SMI vreal v_scale_near(vreal p, vreal d) {
  const vq rounder = q_set1((real)1.5 * ((rbits)1 << MANT_BITS) + EXP_BIAS);
  EACH(p.q[i] *= (vq)((viq)(d.q[i] + rounder) << MANT_BITS))
  return p;
}
SMI vreal v_exponent(vreal x) { /* floor(log2 x) of a positive normal number */
  const vq rounder = q_set1((real)1.5 * ((rbits)1 << MANT_BITS));
  EACH(x.q[i] = (vq)(((viq)x.q[i] >> MANT_BITS) + (viq)rounder) - (rounder + EXP_BIAS))
  return x;
}
SMI vreal v_mantissa(vreal x) { /* x / 2^v_exponent(x), in [1, 2) */
  EACH(x.q[i] = (vq)(((viq)x.q[i] & q_int(((rbits)1 << MANT_BITS) - 1)) | (viq)q_set1(1)))
  return x;
}
/* Folds: lane i meets lane i + LANES / 2, then LANES / 4, ... */
#define FOLD(name, expression) \
  SMI real name(vreal v) { \
    real f[LANES]; \
    v_store(f, v); \
    for (int w = LANES / 2; w; w /= 2) \
      for (int i = 0; i < w; i++) { \
        const real a = f[i], b = f[i + w]; \
        f[i] = expression; \
      } \
    return f[0]; \
  }
FOLD(v_hsum, a + b)
FOLD(v_hmax, a > b ? a : b)
FOLD(v_hmin, a < b ? a : b)
/* Four folds side by side, each in a quarter of the lanes. */
#define FOUR_FOLDS(name, fold) \
  SMI vreal name(vreal a, vreal b, vreal c, vreal d) { \
    const real folds[] = {fold(a), fold(b), fold(c), fold(d)}; \
    real t[LANES]; \
    for (int i = 0; i < LANES; i++) t[i] = folds[i / (LANES / 4)]; \
    return v_load(t); \
  }
FOUR_FOLDS(v_hsums, v_hsum)
FOUR_FOLDS(v_hmaxs, v_hmax)
