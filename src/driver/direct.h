/* driver/direct.h - small calls whose tensors kernels can use in place. They need no views and no
 * job, which take longer to make than a short row takes to compute. */
#ifndef SMX_DRIVER_DIRECT_H
#define SMX_DRIVER_DIRECT_H
#include "internal.h"

/* How such a call ends. DIRECT_NOT: the call is not one of them or there is something wrong with
 * it. Nothing has been written unless it is DIRECT_DONE. */
typedef enum direct_end { DIRECT_NOT, DIRECT_DONE, DIRECT_NO_MEMORY } direct_end;

static inline smx_status direct_status(const smx_op *op, direct_end end) {
  return end == DIRECT_DONE ? SMX_OK : smx_fail(SMX_ERR_NOMEM, "%s: no memory for a row", op->name);
}

/* params NULL: the defaults. */

/* As operator_forward and operator_backward; rows run along `axis`. */
direct_end direct_forward(const smx_op *op, smx_context *ctx, int32_t axis, const smx_params *params,
                          int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                          const smx_tensor *const *out);
direct_end direct_backward(const smx_op *op, smx_context *ctx, int32_t axis, const smx_params *params,
                           int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                           const smx_tensor *const *out, const smx_tensor *const *dout,
                           const smx_tensor *const *din);

/* Forward, rows of n elements of f32 one after another: a buffer for each port of the operator, or
 * NULL. */
direct_end direct_rows(const smx_op *op, smx_context *ctx, const smx_params *params, size_t rows, size_t n,
                       const void *const *in, void *const *out);

#endif
