/* driver/check.h - a call while it is checked, and the checks: shapes, dtypes, parameters, and that
 * buffers do not overlap. */
#ifndef SMX_DRIVER_CHECK_H
#define SMX_DRIVER_CHECK_H
#include "internal.h"

/* A call while it is checked. */
typedef struct checked {
  const smx_op *op;
  int family; /* the family, which has its kernels */
  size_t index;
  smx_params params;
  /* rows have n elements, and x those from `first` on; part: as the caller said, not as x has */
  bool part;
  int64_t n, first;
  int32_t axis, ndim;
  int64_t shape[SMX_MAX_DIMS]; /* of x */
  int32_t row_ndim;
  int64_t row_shape[SMX_MAX_DIMS]; /* without the axis */
  int64_t k_shape[SMX_MAX_DIMS];   /* with the parameter k in place of the axis */
  int64_t column[SMX_MAX_DIMS];    /* [n] */
  bool has_in[SMX_MAX_PORTS], has_out[SMX_MAX_PORTS], has_dout[SMX_MAX_PORTS], has_din[SMX_MAX_PORTS];
  /* set where there is one */
  smx_view in[SMX_MAX_PORTS], out[SMX_MAX_PORTS], dout[SMX_MAX_PORTS], din[SMX_MAX_PORTS];
} checked;

#define LABEL(prefix_, port_) ((smx_label){k->op->name, prefix_, port_})

/* The ports that are checked alike: outputs, outputs that smx_backward reads, upstream gradients,
 * gradients. */
typedef enum group { OUTPUTS, SAVED, UPSTREAM, GRADIENTS } group;

/* The parameters of a call, defaults for NULL; verb: the entry point, for errors without an
 * operator. */
smx_status smx_take_params(const char *verb, const smx_op *op, const smx_params *params, int *family,
                           size_t *index, smx_params *taken);

smx_status smx_check_dtype(const smx_port *port, const smx_view *v, smx_label what);

/* Of the inputs that exclude each other, one must be there. */
smx_status smx_check_either(const smx_op *op, const bool *has);

/* An output against one other buffer; equal: the two may be one. */
smx_status smx_check_apart(smx_label what, const smx_view *out, const char *prefix, const char *name,
                           const smx_view *other, bool equal);

/* To be called in this order; the first clears *k. */
smx_status smx_check_params(checked *k, const char *verb, const smx_op *op, const smx_params *params);
smx_status smx_check_x(checked *k, int32_t n_in, const smx_tensor *const *in, bool data);
smx_status smx_check_count(const smx_op *op, const char *what, int32_t n, int32_t most);
smx_status smx_check_inputs(checked *k, int32_t n_in, const smx_tensor *const *in, bool backward, bool data);
smx_status smx_check_outputs(checked *k, const char *prefix, group g, int32_t n, const smx_tensor *const *t,
                             bool *has, smx_view *v);
smx_status smx_check_forward_alias(const checked *k);
smx_status smx_check_backward_alias(const checked *k);

/* Instead of smx_check_x: the shape of x when x itself is not needed: that of a FULL output or its
 * gradient. */
smx_status smx_check_backward_axis(checked *k, int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                                   const smx_tensor *const *dout);

/* The shape that a port has. */
const int64_t *smx_shape_of(const checked *k, const smx_port *port, int32_t *ndim);

#endif
