/* driver/internal.h - what driver, public functions and matrices share. */
#ifndef SMX_DRIVER_INTERNAL_H
#define SMX_DRIVER_INTERNAL_H
#include "job.h"
#include "params.h"
#include <string.h>

/* False for one that is not of this library. From SMX_FAMILY_COUNT on follow the directories whose
 * operators are functions of tensors, without kernels for rows. */
bool smx_op_place(const smx_op *op, int *family, size_t *index);

/* Classes from votes by agreement with the majority (matrix/dawid_skene.c); posterior [items,
 * classes]. */
smx_status smx_votes_agreement(smx_context *ctx, size_t count, const smx_vote *votes, size_t items,
                               size_t workers, size_t classes, double *posterior);

/* A tensor in CPU memory around a caller's buffer, which is not written where it is an input. */
static inline smx_tensor smx_tensor_of(const void *data, smx_dtype dtype, int32_t ndim, int64_t *shape,
                                       int64_t *strides) {
  smx_tensor t = {
      .device = {.device_type = 1}, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides};
  memcpy(&t.data, &data, sizeof t.data);
  return t;
}

#endif
