/* vec/trig.h - sine and cosine in double, the same on every machine. Not in math.h, because few
 * kernels need them. */
#ifndef SMX_VEC_TRIG_H
#define SMX_VEC_TRIG_H
#include "math.h"

/* sin x and cos x, |x| < 2^31; NaN beyond. Whole quarter turns are taken off by two FMAs, the first
 * of which is exact: n and the high part have at most 84 bits between them, and what is left
 * of x is a multiple of 2^-53 that is not above 1. Then the series, whose next term is below 2^-62.
 * Within 2^-52 of the exact value (tests/attention/rope.c). */
SMI void d_sin_cos(double x, double *sine, double *cosine) {
  static const double odd[] = {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                               1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  static const double even[] = {-1.0 / 6402373705728000,
                                1.0 / 20922789888000,
                                -1.0 / 87178291200,
                                1.0 / 479001600,
                                -1.0 / 3628800,
                                1.0 / 40320,
                                -1.0 / 720,
                                1.0 / 24,
                                -1.0 / 2};
  if (!(x > -0x1p31 && x < 0x1p31)) {
    *sine = *cosine = __builtin_nan("");
    return;
  }
  const double n = x * 0x1.45f306dc9c883p-1 + 0x1.8p52 - 0x1.8p52;
  const double t = __builtin_fma(-n, 0x1.1a62633145c07p-54, __builtin_fma(-n, 0x1.921fb54442d18p+0, x)),
               z = t * t;
  double s = odd[0], c = even[0];
  for (int i = 1; i < 8; i++) s = s * z + odd[i];
  for (int i = 1; i < 9; i++) c = c * z + even[i];
  s = t + t * (s * z), c = 1 + c * z;
  const int quarter = (int)((int64_t)n & 3);
  *sine = (quarter & 1 ? c : s) * (quarter & 2 ? -1 : 1);
  *cosine = (quarter & 1 ? s : c) * ((quarter + 1) & 2 ? -1 : 1);
}

#endif
