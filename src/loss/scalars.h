/* loss/scalars.h - functions of the scalars of a row, in double. */
#ifndef SMX_LOSS_SCALARS_H
#define SMX_LOSS_SCALARS_H
#include "rows.h"

/* 0 if the weight is 0, also where the value is infinite. */
SMI double weigh(double weight, double x) { return weight == 0 ? 0 : weight * x; }
SMI double
d_root(double x) { /* of a number from 0 to 1e300: Newton's steps from an estimate that is nearly right */
  double y = x > 0 ? d_exp(d_log(x, 0) / 2) : 0;
  return y > 0 ? (y + x / y) / 2 : 0;
}

/* 1 / a power of two near a mean |x|, by which logits are multiplied so that no square leaves the
 * range. */
SMI double d_inverse_size(double size) {
  int64_t bits = 0x3870000000000000; /* 2^-120 */
  if (size >= 0x1p-100 && size < 0x1p1000) memcpy(&bits, &size, 8);
  bits = 0x7fe0000000000000 - (bits & 0x7ff0000000000000);
  memcpy(&size, &bits, 8);
  return size;
}

#endif
