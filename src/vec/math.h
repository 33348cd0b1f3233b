/* vec/math.h - elementary functions over the vector layer, each written once for both real types.
 * No libm. */
#ifndef SMX_VEC_MATH_H
#define SMX_VEC_MATH_H
#include "vec.h"

/* e^x = p * 2^k with k = round(x log2 e), p = e^(x - k ln 2) in [0.707, 1.415]: The Two-Pass
 * Softmax Algorithm (Dukhan, Ablavatski 2020). Adding and subtracting 1.5 * 2^MANT_BITS rounds; ln
 * 2 is two constants, so that k LN2_HI is exact for |x| < 2^20.
 *
 * f32: a polynomial of degree 6 with c0 = c1 = 1 that minimises the largest relative error on
 * |t| <= (1 + 2^-10) ln 2 / 2, by linear programming over 2001 Chebyshev points. The coefficients
 * were rounded to f32 one after another, from c2 to c6, and those left were fitted again each time.
 * Relative error 2^-28.2 before rounding.
 *
 * f64: 1 / k! up to degree 13; the first term left out is below 2^-57 of the result.
 *
 * Worst error of p * 2^k, f32, every x in [-87.33, 88.72]: 0.8913 ULP at x = -0x1.765026p+2
 * (tests/vec/exhaustive.c with SMX_TEST_FULL=1). */
#if SMX_REAL == 32
#define LOG2_E 0x1.715476p+0f
#define LN2_HI 0x1.62e43p-1f
#define LN2_LO -0x1.05c61p-29f
#define EXP_NORMAL_FROM -0x1.5d589ep+6f /* the least x whose e^x is a normal number: all were tried */
static const real exp_coefficients[] = {
    0x1.6a48bcp-10f, 0x1.123998p-7f, 0x1.5558b4p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1, 1};
#else
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HI 0x1.62e42fefa38p-1
#define LN2_LO 0x1.ef35793c7673p-45
static const real exp_coefficients[] = {0x1.6124613a86d09p-33,
                                        0x1.1eed8eff8d898p-29,
                                        0x1.ae64567f544e4p-26,
                                        0x1.27e4fb7789f5cp-22,
                                        0x1.71de3a556c734p-19,
                                        0x1.a01a01a01a01ap-16,
                                        0x1.a01a01a01a01ap-13,
                                        0x1.6c16c16c16c17p-10,
                                        0x1.1111111111111p-7,
                                        0x1.5555555555555p-5,
                                        0x1.5555555555555p-3,
                                        0.5,
                                        1,
                                        1};
#endif
#define ROUNDER ((real)1.5 * ((rbits)1 << MANT_BITS))
enum { EXP_TERMS = sizeof exp_coefficients / sizeof *exp_coefficients };

SMI vreal v_round(vreal x) {
  return v_sub(v_add(x, v_set1(ROUNDER)), v_set1(ROUNDER));
} /* |x| < 2^(MANT_BITS - 1), ties to even */
SMI vreal exp_k(vreal x) { return v_sub(v_fma(x, v_set1(LOG2_E), v_set1(ROUNDER)), v_set1(ROUNDER)); }
SMI vreal exp_reduce(vreal x, vreal k) { return v_fnma(k, v_set1(LN2_LO), v_fnma(k, v_set1(LN2_HI), x)); }
SMI vreal exp_poly(vreal t) { /* e^t, |t| <= 0.35 */
  vreal p = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS; i++) p = v_fma(p, t, v_set1(exp_coefficients[i]));
  return p;
}
/* The pair of e^x. */
SMI vreal v_exp_pair(vreal x, vreal *k) {
  *k = exp_k(x);
  return exp_poly(exp_reduce(x, *k));
}
/* The same of n vectors, at most 8, step by step: one after another they fill the scheduler with
 * steps that wait. sum: k + ROUNDER. */
SMI void v_exp_pairs(const vreal *x, int n, vreal *sum, vreal *p) {
  vreal t[8];
#define EACH_PAIR(i) _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)
  EACH_PAIR(i) sum[i] = v_fma(x[i], v_set1(LOG2_E), v_set1(ROUNDER));
  EACH_PAIR(i) t[i] = exp_reduce(x[i], v_sub(sum[i], v_set1(ROUNDER)));
  EACH_PAIR(i) p[i] = v_set1(exp_coefficients[0]);
  _Pragma("GCC unroll 16") for (int c = 1; c < EXP_TERMS; c++) EACH_PAIR(i) p[i] =
      v_fma(p[i], t[i], v_set1(exp_coefficients[c]));
#undef EACH_PAIR
}

/* e^x: 0 where it is below the smallest normal number, inf above the range, NaN for NaN. */
SMI vreal v_exp(vreal x) {
  vreal k, p = v_exp_pair(x, &k);
  vmask up = v_lt(v_set1(0), k); /* 2^k itself may be out of range: two factors */
  vreal d = v_min(v_sub(k, v_select(up, v_set1(1), v_set1(-2))), v_set1(EXP_BIAS));
  vreal y = v_mul(v_scale(p, d), v_select(up, v_set1(2), v_set1((real)0.25)));
  y = v_flush(y, y, v_set1(R_TINY));
  y = v_select(v_lt(v_set1(EXP_BIAS + 1), k), v_set1(R_INF), y);
  return v_select(v_eq(x, x), y, v_set1(r_nan()));
}

/* The same for x <= 0, whose powers of two are all in range: down to one less than MIN_EXP, where p
 * decides. Any NaN for NaN. */
SMI vreal exp_down(vreal x) {
  vreal k, p = v_exp_pair(x, &k), y = v_scale_near(p, k);
#if SMX_REAL == 32
  return v_flush(y, x, v_set1(EXP_NORMAL_FROM));
#else
  y = v_flush(y, k, v_set1(MIN_EXP - 1));
  return v_flush(y, y, v_set1(R_TINY));
#endif
}
SMI vreal v_exp_down(vreal x) { return v_select(v_eq(x, x), exp_down(x), v_set1(r_nan())); }

/* e^x - 1 for 0 <= x < 80, with full relative accuracy at 0: 2^k (e^t - 1) + (2^k - 1). */
SMI vreal v_expm1_pos(vreal x) {
  vreal k = exp_k(x), t = exp_reduce(x, k), q = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - 1; i++) q = v_fma(q, t, v_set1(exp_coefficients[i]));
  vreal two_k = v_scale(v_set1(1), k);
  return v_fma(two_k, v_mul(q, t), v_sub(two_k, v_set1(1)));
}

/* tanh x = E / (E + 2) with E = e^(2|x|) - 1, and 1 from where it rounds to 1. Worst error, f32:
 * 3.38 ULP at x = 0x1.f08464p-5. */
SMI vreal v_tanh(vreal x) {
  vreal e = v_expm1_pos(v_min(v_mul(v_abs(x), v_set1(2)), v_set1(SMX_REAL == 32 ? 20 : 40)));
  vreal y = v_copysign(v_div(e, v_add(e, v_set1(2))), x);
  return v_select(v_eq(x, x), y, v_set1(r_nan()));
}

/* 1 - tanh^2 x = 4 q / (1 + q)^2 with q = e^(-2|x|): no cancellation anywhere. */
SMI vreal v_sech2(vreal x) {
  vreal q = v_exp_down(v_mul(v_abs(x), v_set1(-2))), d = v_add(q, v_set1(1));
  return v_div(v_mul(q, v_set1(4)), v_mul(d, d));
}

/* log(1 + f) for f in [-0.3, 0.42]: f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f), R = 2
 * (s^2/3 + s^4/5 + ...). */
SMI vreal log_1pf_pair(vreal f, vreal *low) {
  enum { TERMS = SMX_REAL == 32 ? 5 : 11 };
  vreal s = v_div(f, v_add(f, v_set1(2))), z = v_mul(s, s), r = v_set1((real)2 / (2 * TERMS + 1));
  for (int i = TERMS - 1; i > 0; i--) r = v_fma(r, z, v_set1((real)2 / (real)(2 * i + 1)));
  vreal half = v_mul(v_mul(f, f), v_set1((real)0.5));
  const vreal less = v_sub(half, v_mul(s, v_fma(r, z, half))), log = v_sub(f, less);
  *low = v_sub(v_sub(f, log), less);
  return log;
}
SMI vreal log_1pf(vreal f) {
  vreal low;
  return log_1pf_pair(f, &low);
}

/* log(x 2^n) for a positive normal x and a whole number n; *low is what rounding takes from it. */
SMI vreal v_log_scaled_pair(vreal x, vreal n, vreal *low) {
  vreal e = v_exponent(x), m = v_mantissa(x), rest;
  vmask high = v_lt(v_set1((real)1.41421356237309505), m);
  m = v_select(high, v_mul(m, v_set1((real)0.5)), m);
  vreal k = v_add(v_add(e, v_select(high, v_set1(1), v_set1(0))), n);
  const vreal part = log_1pf_pair(v_sub(m, v_set1(1)), &rest), sum = v_fma(k, v_set1(LN2_LO), part),
              log = v_fma(k, v_set1(LN2_HI), sum);
  const vreal lost = v_sub(sum, v_fnma(k, v_set1(LN2_HI), log)); /* k LN2_HI is exact */
  *low = v_add(lost, v_add(v_fma(k, v_set1(LN2_LO), v_sub(part, sum)), rest));
  return log;
}
SMI vreal v_log_scaled(vreal x, vreal n) {
  vreal low;
  return v_log_scaled_pair(x, n, &low);
}

/* log1p(d), d >= 0 and finite; of inf it is that of the largest finite number. */
SMI vreal v_log1p_pos(vreal d) {
  vmask small = v_lt(d, v_set1((real)0.4));
  vreal large = v_log_scaled(v_add(v_min(d, v_set1(R_MAX)), v_set1(1)), v_set1(0));
  return v_select(small, log_1pf(v_select(small, d, v_set1(0))), large);
}

/* The same for d in [0, 1], by one logarithm: of 1 + d, halved where that brings it nearer to 1. */
SMI vreal v_log1p_unit(vreal d) {
  vreal u = v_add(d, v_set1(1));
  vmask high = v_lt(v_set1((real)1.41421356237309505), u), small = v_lt(d, v_set1((real)0.4));
  vreal near = v_select(small, d, v_sub(u, v_set1(1))),
        log = log_1pf(v_select(high, v_fma(u, v_set1((real)0.5), v_set1(-1)), near));
  return v_select(high, v_add(v_add(log, v_set1(LN2_LO)), v_set1(LN2_HI)), log);
}

/* 1 / (1 + e^-x), and log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). */
SMI vreal v_sigmoid(vreal x) {
  vreal e = v_exp_down(v_sub(v_set1(0), v_abs(x)));
  return v_div(v_select(v_lt(x, v_set1(0)), e, v_set1(1)), v_add(v_set1(1), e));
}
SMI vreal v_softplus(vreal x) {
  vreal log = v_log1p_unit(v_exp_down(v_sub(v_set1(0), v_abs(x))));
  return v_select(v_eq(x, x), v_add(v_max(x, v_set1(0)), log), x);
}

/* Results below the smallest normal number are +0, and a NaN is the canonical one: what every
 * kernel does before it stores. */
SMI vreal v_clean(vreal x) {
  x = v_flush_tiny(x);
  return v_select(v_eq(x, x), x, v_set1(r_nan()));
}
SMI real r_clean(double x) { return v_first(v_clean(v_set1((real)x))); } /* as it is stored */

/* 2 / (2 i + 1): divided at run time they take longer than all other steps of a logarithm. */
static const double log_coefficients[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                          2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
/* log(1 + f) in double, the same way; lost is what rounding took from the argument, relative to
 * it. n: a power of two besides. */
#define D_LOG_1PF(type, log, f, n, lost) /* type: double, or a vector of them */ \
  { \
    const type s_ = (f) / (2 + (f)), z_ = s_ * s_, half_ = 0.5 * (f) * (f); \
    type r_ = (type){0} + 2.0 / 23; \
    for (int i_ = 10; i_ > 0; i_--) r_ = r_ * z_ + log_coefficients[i_]; \
    log = (n)*0x1.62e42fefa38p-1 + \
          ((f) - (half_ - (s_ * (half_ + r_ * z_) + ((n)*0x1.ef35793c7673p-45 + (lost))))); \
  }
SMI double d_log_1pf(double f, int n, double lost) {
  double log;
  D_LOG_1PF(double, log, f, n, lost)
  return log;
}

/* log x of a positive normal double, plus lost. */
SMI double d_log(double x, double lost) {
  int64_t b;
  memcpy(&b, &x, 8);
  int n = (int)(b >> 52) - 1023;
  b = (b & 0xfffffffffffff) | 0x3ff0000000000000;
  memcpy(&x, &b, 8);
  if (x > 1.41421356237309505) x *= 0.5, n++;
  return d_log_1pf(x - 1, n, lost);
}

/* log1p(d), d >= 0, for the last step of a row. */
SMI double d_log1p(double d) {
  if (!(d > 0.4)) return d_log_1pf(d, 0, 0);
  double u = 1 + d, lost = u < 2 ? d - (u - 1) : 1 - (u - d);
  return u < (double)__builtin_inf() ? d_log(u, lost / u) : u;
}

/* The same of four, side by side: the steps of one wait for one another. */
SMI void d_log1p_four(const double *d, double *y) {
  typedef double four __attribute__((vector_size(32)));
  typedef uint64_t words __attribute__((vector_size(32)));
  const four zero = {0};
  const words none = {0}, above_root = none + 0x3ff6a09e667f3bce; /* the first double above the root of 2 */
  four x;
  memcpy(&x, d, 32);
  const four u = x + 1, rounder = zero + 0x1.8p52;
  const words small = ~(words)(x > 0.4), two = (words)(u < 2), huge = ~(words)(u < (double)__builtin_inf());
#define WHERE(mask, a, b) ((four)(((words)(a) & (mask)) | ((words)(b) & ~(mask))))
  const words exponent = ((words)u - above_root + (1ull << 52)) >> 52; /* of u, 1 more where u is halved */
  const four n = WHERE(small, zero, (four)((words)rounder + exponent) - rounder);
  const four lost = WHERE(small, zero, WHERE(two, x - (u - 1), 1 - (u - x)) / u);
  const four f = WHERE(small, x, (four)((words)u - (exponent << 52)) - 1);
  four log;
  D_LOG_1PF(four, log, f, n, lost)
  x = WHERE(huge, u, log);
#undef WHERE
  memcpy(y, &x, 32);
}

/* e^x in double: 0 below -700, inf above 709. Terms 1 / m! up to 13; the next is below 2^-57 of the
 * result. */
SMI double d_exp(double x) {
  static const double inverse[] = {
      1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  if (!(x > -700)) return x == x ? 0 : x;
  if (x > 709) return (double)__builtin_inf();
  double k = x * 0x1.71547652b82fep+0 + 0x1.8p52 - 0x1.8p52,
         t = (x - k * 0x1.62e42fefa38p-1) - k * 0x1.ef35793c7673p-45, y = inverse[12];
  for (int i = 11; i >= 0; i--) y = y * t + inverse[i];
  int64_t b = (int64_t)(1023 + k) << 52;
  double two_k;
  memcpy(&two_k, &b, 8);
  return (1 + y * t) * two_k;
}
/* log(1 + e^x) */
SMI double d_softplus(double x) { return x > 0 ? x + d_log1p(d_exp(-x)) : d_log1p(d_exp(x)); }

/* sum * 2^d for a whole number d <= 0; exactly 0 when d < -1000. Any other d belongs to a row that
 * is summed again, and gives 0. */
SMI double d_scale(double sum, double d) {
  if (!(d >= -1000 && d <= 0)) return 0;
  int64_t b = (int64_t)(1023 + d) << 52;
  double two_d;
  memcpy(&two_d, &b, 8);
  return sum * two_d;
}

/* 2^e as the real type, |e| < EXP_BIAS; and floor(log2 x) of a positive number that is at least
 * 2^(1 - EXP_BIAS), else 1 - EXP_BIAS. */
SMI real r_power_of_two(int e) { return r_from((rbits)(e + EXP_BIAS) << MANT_BITS); }
SMI int r_exponent(real x) {
  int e = (int)(r_bits(x) >> MANT_BITS) - EXP_BIAS;
  return e > -EXP_BIAS ? e : 1 - EXP_BIAS;
}

#endif
