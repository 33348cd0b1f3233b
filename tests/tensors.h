/* tensors.h - C order tensors around arrays of a test, and arrays of doubles compared. For tests that call a function rather than an operator. */
#ifndef TESTS_TENSORS_H
#define TESTS_TENSORS_H
#include <math.h>
#include <softmax.h>

#include "unit.h"

static inline smx_tensor tensor(void *data, smx_dtype t, int ndim, int64_t *shape) {
  smx_tensor v = {.data = data, .device = {1, 0}, .ndim = ndim, .dtype = t, .shape = shape};
  return v;
}
#define F64(data, ndim, shape) tensor(data, SMX_F64, ndim, shape)

static inline void near(const double *have, const double *want, int n, double within) {
  for (int i = 0; i < n; i++)
    if (!(fabs(have[i] - want[i]) <= within)) fail_msg("element %d is %.17g, not %.17g", i, have[i], want[i]);
}

#endif
