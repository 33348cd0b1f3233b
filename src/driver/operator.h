/* driver/operator.h - calls of operators, for public functions and for functions that are composed
 * of operators. The caller has set the floating-point environment (base/enter.h). */
#ifndef SMX_DRIVER_OPERATOR_H
#define SMX_DRIVER_OPERATOR_H
#include "internal.h"

/* As smx_forward, smx_backward and smx_infer. */
smx_status operator_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                            const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out);
smx_status operator_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                             const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                             const smx_tensor *const *dout, const smx_tensor *const *din);
smx_status operator_infer(const smx_op *op, const smx_params *params, int32_t n_in,
                          const smx_tensor *const *in, int32_t n_out, smx_shape *out);

/* The same for an operator on rows with x from a source: in[0] is a tensor of its shape and dtype,
 * of which no number is read. */
smx_status operator_forward_from(const job_source *source, const smx_op *op, smx_context *ctx,
                                 const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                 int32_t n_out, const smx_tensor *const *out);
smx_status operator_backward_from(const job_source *source, const smx_op *op, smx_context *ctx,
                                  const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                  int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                                  const smx_tensor *const *din);

/* As smx_softmax, smx_log_softmax, smx_logsumexp and smx_softmax_backward; and the gradient of
 * log_softmax. */
smx_status softmax_along(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
smx_status log_softmax_along(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
smx_status logsumexp_along(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *lse);
smx_status softmax_backward_along(smx_context *ctx, int32_t axis, const smx_tensor *y, const smx_tensor *dy,
                                  const smx_tensor *dx);
smx_status log_softmax_backward_along(smx_context *ctx, int32_t axis, const smx_tensor *y,
                                      const smx_tensor *dy, const smx_tensor *dx);

#endif
