/* driver/internal.h - what driver, public functions and matrices share. */
#ifndef SMX_DRIVER_INTERNAL_H
#define SMX_DRIVER_INTERNAL_H
#include "job.h"
#include "params.h"
#include <string.h>

/* false for an operator that is not of this library. SMX_FAMILY_COUNT stands for the operators on
 * matrices, which have no kernels. */
bool smx_op_place(const smx_op *op, int *family, size_t *index);

/* A call of an operator on matrices, index of its table (api/matrix.c). NULL where there is no
 * tensor. */
typedef struct matrix_call {
  smx_context *ctx;
  const double *param;
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
} matrix_call;
/* Classes from votes by agreement with the majority (matrix/dawid_skene.c); posterior [items,
 * classes]. */
smx_status smx_votes_agreement(smx_context *ctx, size_t count, const smx_vote *votes, size_t items,
                               size_t workers, size_t classes, double *posterior);
smx_status matrix_dawid_skene(const matrix_call *c); /* matrix/dawid_skene_matrix.c */
smx_status matrix_worker_agreement(const matrix_call *c);
smx_status smx_matrix_run(size_t index, const matrix_call *c, bool backward);

/* A tensor in CPU memory around a caller's buffer, which is not written where it is an input. */
static inline smx_tensor smx_tensor_of(const void *data, smx_dtype dtype, int32_t ndim, int64_t *shape,
                                       int64_t *strides) {
  smx_tensor t = {
      .device = {.device_type = 1}, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides};
  memcpy(&t.data, &data, sizeof t.data);
  return t;
}

#endif
