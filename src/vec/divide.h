/* vec/divide.h - division of reals by a double. */
#ifndef SMX_VEC_DIVIDE_H
#define SMX_VEC_DIVIDE_H
#include "vec.h"
#include <stdbool.h>

/* x / t for a double t, formed in double and rounded to the real type. */
typedef struct divisor {
  double t;
  real head, over, under; /* 1 / t is head + over, less 2^-45 of it, and head + under, and 2^-45 more */
  bool product;           /* x / t is x head: 1 / t has few digits, as those of 1, 0.8 and 0.5 have */
} divisor;

/* A product of two floats is a double, and where t head is within 2^-54 of 1 no other double is as
 * near to x / t. */
static inline divisor divisor_of(double t) {
  const double c = 1 / t, rest = c - (double)(real)c;
  const bool ordinary = t > 0x1p-60 && t < 0x1p60;
  const bool near = SMX_REAL == 32 ? rest == 0 && __builtin_fabs(__builtin_fma(t, c, -1)) <= 0x1p-54 : t == 1;
  return (divisor){t, ordinary ? (real)c : r_nan(), (real)(rest + 0x1p-45 * c), (real)(rest - 0x1p-45 * c),
                   ordinary && near};
}
SMI vreal divide_in_double(double t, vreal x) {
  real v[LANES];
  v_store(v, x);
  for (int j = 0; j < LANES; j++) v[j] = (real)((double)v[j] / t);
  return v_load(v);
}
#if SMX_REAL == 32 && defined(__FP_FAST_FMA)
/* Where the two bounds differ. Zeros and infinities are their own quotients; other elements are
 * divided. */
static __attribute__((noinline, unused)) vreal divide_doubtful(const divisor *q, vreal x, vreal high,
                                                               vmask sure) {
  const vmask own = m_or(v_eq(x, v_set1(0)), v_eq(v_abs(x), v_set1(R_INF)));
  if (m_any(m_not(m_or(sure, own)))) return divide_in_double(q->t, x);
  return v_select(own, x, high);
}
/* x times a number a little too large and one a little too small, each in two reals and rounded
 * once: where both round to the same real, that is the quotient, for what is lost on the way is
 * less than 2^-46 of it (Markstein 1990 has the products). One element in a million is divided.
 * Below 2^-100 a product may be inexact. */
SMI vreal divide_near(const divisor *q, vreal x) {
  const vreal head = v_set1(q->head), h = v_mul(x, head), off = v_fnma(x, head, h); /* x head is h - off */
  const vreal high = v_sub(h, v_fnma(x, v_set1(q->over), off)),
              low = v_sub(h, v_fnma(x, v_set1(q->under), off));
  const vmask sure = m_and(v_eq(high, low), v_lt(v_set1((real)0x1p-100), v_abs(h)));
  return m_any(m_not(sure)) ? divide_doubtful(q, x, high, sure) : high;
}
#else
SMI vreal divide_near(const divisor *q, vreal x) {
  return SMX_REAL == 64 ? v_div(x, v_set1((real)q->t)) : divide_in_double(q->t, x);
}
#endif
SMI vreal divide_by(const divisor *q, vreal x) {
  return q->product ? v_mul(x, v_set1(q->head)) : divide_near(q, x);
}

#endif
