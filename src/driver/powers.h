/* driver/powers.h - powers of two that take a number into range without rounding. */
#ifndef SMX_DRIVER_POWERS_H
#define SMX_DRIVER_POWERS_H
#include <stdint.h>
#include <string.h>

/* The power of two that is x or the next below; of a subnormal number, or 0, 2^-1022. x is finite
 * and not below 0. */
static inline double power_below(double x) {
  const uint64_t exponent = UINT64_C(0x7ff) << 52, least = UINT64_C(1) << 52;
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits & exponent) > least ? bits & exponent : least;
  memcpy(&x, &bits, sizeof x);
  return x;
}

#endif
