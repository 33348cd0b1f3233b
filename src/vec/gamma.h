/* vec/gamma.h - the logarithm of the gamma function and its derivative, in double, for densities:
 * Stirling's series from 7 on, and below that gamma(x + 1) = x gamma(x). The first omitted term is
 * below 8e-17.
 *
 * Worst errors of tests/vec/gamma.c against MPFR, in units of 2^-53 of the value or of 1, whichever
 * is larger: d_lgamma 34.8 at 0.87, d_digamma 9.9 at 0.97. */
#ifndef SMX_VEC_GAMMA_H
#define SMX_VEC_GAMMA_H
#include "math.h"

#define GAMMA_SERIES 7 /* from here on */
enum { GAMMA_TERMS = 10 };

/* sum of c_i / x^(2 i) */
SMI double gamma_series(const double *c, double x) {
  const double inverse = 1 / (x * x);
  double y = c[GAMMA_TERMS - 1];
  for (int i = GAMMA_TERMS - 2; i >= 0; i--) y = y * inverse + c[i];
  return y;
}

/* log gamma(x), x > 0. */
static inline double d_lgamma(double x) {
  static const double c[GAMMA_TERMS] = {1.0 / 12,         -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                                        1.0 / 1188,       -691.0 / 360360,   1.0 / 156,  -3617.0 / 122400,
                                        43867.0 / 244188, -174611.0 / 125400};
  double product = 1;
  for (; x < GAMMA_SERIES; x++) product *= x;
  /* log(2 pi) / 2 - 1 / 2 */
  const double log = (x - 0.5) * (d_log(x, 0) - 1) + (0.41893853320467274178 + gamma_series(c, x) / x);
  return product == 1 ? log : log - d_log(product, 0);
}

/* Its derivative, x > 0. */
static inline double d_digamma(double x) {
  static const double c[GAMMA_TERMS] = {1.0 / 12,        -1.0 / 120,      1.0 / 252, -1.0 / 240,
                                        1.0 / 132,       -691.0 / 32760,  1.0 / 12,  -3617.0 / 8160,
                                        43867.0 / 14364, -174611.0 / 6600};
  double sum = 0;
  for (; x < GAMMA_SERIES; x++) sum += 1 / x;
  return d_log(x, 0) - (0.5 / x + gamma_series(c, x) / (x * x)) - sum;
}

#endif
