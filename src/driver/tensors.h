/* driver/tensors.h - operators on tensors: those whose ports have named dimensions and which are a
 * function of their tensors, not a kernel for rows. Everything that can be said of a call by the
 * table alone is checked here, so that the function finds shapes, dtypes, targets and offsets in
 * order, outputs whose elements are apart, and no buffers that overlap. */
#ifndef SMX_DRIVER_TENSORS_H
#define SMX_DRIVER_TENSORS_H
#include "dims.h"

/* The tensors of a call, by their ports. */
typedef struct tensor_ports {
  const smx_tensor *given[SMX_MAX_PORTS]; /* NULL: there is none */
  smx_view view[SMX_MAX_PORTS];
} tensor_ports;

/* A call whose arguments are in order. */
typedef struct tensor_call {
  const smx_op *op;
  smx_context *ctx;
  const double *param;
  bool is_f64; /* the arithmetic is, since some float input is */
  dims dims;
  int64_t channels; /* of tensors by channel (tensor_functions); 1: they are in C order */
  tensor_ports in, out, dout, din;
} tensor_call;

/* An operator's functions. backward: NULL where there is no gradient. What they return is the
 * status of the call; on an error nothing may have been written. */
typedef struct tensor_functions {
  smx_status (*forward)(const tensor_call *c);
  smx_status (*backward)(const tensor_call *c);
  /* Gives the names that no input has their values; an error where parameters and shapes do not fit
   * together. NULL: there are none. */
  smx_status (*sizes)(dims *d);
  /* The function wants every tensor in C order, floats of the real type, whole numbers as i64,
   * masks as 0 and 1 in bytes: the views are copies where the caller's tensors are otherwise. */
  bool packed;
  /* Whether the forward function takes tensors by channel as well, all of them: the last of "..."
   * comes behind the spatial dimensions in memory, so that the same cell of all channels lies side
   * by side, which is NHWC of images. NULL: it does not. */
  bool (*by_channel)(const tensor_call *c);
} tensor_functions;

/* The functions of an operator on tensors (src/api/introspect.c). */
const tensor_functions *smx_tensor_functions(int family, size_t index);

/* As smx_forward, smx_backward and smx_infer, of operator `index` of `family`. */
smx_status tensors_forward(const smx_op *op, const tensor_functions *f, smx_context *ctx,
                           const smx_params *params, int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                           const smx_tensor *const *out);
smx_status tensors_backward(const smx_op *op, const tensor_functions *f, smx_context *ctx,
                            const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                            int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                            const smx_tensor *const *din);
smx_status tensors_infer(const smx_op *op, const tensor_functions *f, const smx_params *params, int32_t n_in,
                         const smx_tensor *const *in, int32_t n_out, smx_shape *out);

/* The number that a parameter has; its name must be one of the operator's. */
double tensor_param(const tensor_call *c, const char *name);

static inline int64_t tensor_dim(const tensor_call *c, const char *name) {
  return dims_value(&c->dims, name, 0);
}

#endif
