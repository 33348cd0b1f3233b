/* engine/normal.h - the normal distribution function, for what compares scores
 * with noise. */
#ifndef SMX_ENGINE_NORMAL_H
#define SMX_ENGINE_NORMAL_H
#include "math.h"

/* The smaller of Phi(z) and Phi(-z) divided by e^(-z^2 / 2), a = |z|: a polynomial in
 * (a - 4) / (a + 4), fitted at Chebyshev points with mpmath, over a + 4; relative error 2^-53. */
SMI vreal normal_tail(vreal a) {
  static const double c[] = {
      -0x1.e78fe3786c1e4p-30, -0x1.611a69343fadap-30, 0x1.1c164b06b3cfbp-26, 0x1.50de62f77263bp-26,
      -0x1.5729566b93260p-24, -0x1.5c93e93172eecp-23, 0x1.1ddd830c52e55p-22, 0x1.13b56c37cc1fap-20,
      -0x1.503137bdfcb69p-21, -0x1.8d7c04c3d2a71p-18, 0x1.800279cafb2cep-21, 0x1.26d2b2719df3ep-15,
      -0x1.001333becdbb5p-19, -0x1.e4a443ad3cc1ap-13, 0x1.17a4a7652d984p-13, 0x1.ab826048dff9dp-10,
      -0x1.c81719cc299eep-9,  -0x1.ee27610731dedp-8,  0x1.eec4cc3e4797ap-5,  -0x1.7dff2bff676bbp-3,
      0x1.8c6dbf2cfc2d3p-2,   -0x1.373e3a893c293p-1,  0x1.82b4bb8c94dcep-1};
  vreal u = v_div(v_sub(a, v_set1(4)), v_add(a, v_set1(4))), y = v_set1((real)c[0]);
  for (int i = 1; i < (int)(sizeof c / sizeof *c); i++) y = v_fma(y, u, v_set1((real)c[i]));
  return v_div(y, v_add(a, v_set1(4)));
}

/* Phi(z) = p and Phi(-z) = q, each with full relative accuracy, and e^(-z^2 / 2). Beyond +-40 the
 * smaller one is 0. */
typedef struct normal_at {
  vreal p, q, density;
} normal_at;
SMI normal_at normal_of_z(vreal z) {
  vreal a = v_min(v_abs(z), v_set1(40)), density = v_exp(v_mul(v_mul(a, a), v_set1((real)-0.5)));
  vreal small = v_mul(normal_tail(a), density), large = v_sub(v_set1(1), small);
  vmask up = v_lt(v_set1(0), z);
  return (normal_at){v_select(up, large, small), v_select(up, small, large), density};
}

#endif
