/* api/forward.c - smx_forward, smx_backward and smx_infer, which run every operator. */
#include "base/enter.h"
#include "driver/operator.h"

smx_status smx_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                       const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out) {
  SMX_ENTER(ctx);
  return operator_forward(op, ctx, params, n_in, in, n_out, out);
}

smx_status smx_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                        const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                        const smx_tensor *const *dout, const smx_tensor *const *din) {
  SMX_ENTER(ctx);
  return operator_backward(op, ctx, params, n_in, in, n_out, out, dout, din);
}

smx_status smx_infer(const smx_op *op, const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                     int32_t n_out, smx_shape *out) {
  SMX_ENTER(NULL);
  return operator_infer(op, params, n_in, in, n_out, out);
}
