/* driver/direct.h - small calls whose tensors kernels can use in place. They need no views and no
 * job, which take longer to make than a short row takes to compute. */
#ifndef SMX_DRIVER_DIRECT_H
#define SMX_DRIVER_DIRECT_H
#include "internal.h"

/* These return false, with nothing written, where a call is not one of them or there is something
 * wrong with it. params NULL: the defaults. */

/* As operator_forward and operator_backward; rows run along `axis`. */
bool direct_forward(const smx_op *op, smx_context *ctx, int32_t axis, const smx_params *params, int32_t n_in,
                    const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out);
bool direct_backward(const smx_op *op, smx_context *ctx, int32_t axis, const smx_params *params, int32_t n_in,
                     const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                     const smx_tensor *const *dout, const smx_tensor *const *din);

/* Forward, rows of n elements of f32 one after another: a buffer for each port of the operator, or
 * NULL. */
bool direct_rows(const smx_op *op, smx_context *ctx, const smx_params *params, size_t rows, size_t n,
                 const void *const *in, void *const *out);

#endif
