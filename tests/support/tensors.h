/* tensors.h - C order tensors around arrays of a test, and arrays of doubles compared. For tests
 * that call a function rather than an operator. */
#ifndef TESTS_TENSORS_H
#define TESTS_TENSORS_H
#include <math.h>
#include <softmax.h>
#include <stdbool.h>

#include "cpu/cpu.h"
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

/* Every instruction set with 1, 2 and 7 threads: for (way w = {0}; next_way(&w);) uses w.ctx.
 * Afterwards the fastest set runs again. */
typedef struct way {
  smx_context *ctx;
  int number; /* from 1 */
} way;
static inline bool next_way(way *w) {
  static const int32_t threads[] = {1, 2, 7};
  const int at = w->number++;
  smx_context_destroy(w->ctx);
  w->ctx = NULL;
  smx_isa_set(smx_isa_at(at < 3 * smx_isa_count() ? at / 3 : 0));
  if (at == 3 * smx_isa_count()) return false;
  smx_context_options options = {.size = sizeof options, .threads = threads[at % 3]};
  assert_int_equal(smx_context_create(&options, &w->ctx), SMX_OK);
  return true;
}

#endif
