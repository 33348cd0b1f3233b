/* api/verbs.h - what the files of api/ share. */
#ifndef SMX_API_VERBS_H
#define SMX_API_VERBS_H
#include "job.h"
#include <string.h>

bool smx_op_place(const smx_op *op, int *room, size_t *index); /* false for one that is not of this library */
smx_status smx_param_check(const smx_op *op, const smx_param *p, double value);

/* A tensor in CPU memory around a caller's buffer, which is not written where it is an input. */
static inline smx_tensor smx_tensor_of(const void *data, smx_dtype dtype, int32_t ndim, int64_t *shape, int64_t *strides) {
  smx_tensor t = {.device = {.device_type = 1}, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides};
  memcpy(&t.data, &data, sizeof t.data);
  return t;
}

#endif
