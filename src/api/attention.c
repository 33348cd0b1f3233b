/* api/attention.c - attention and its gradient: the checks, then the driver. */
#include "base/enter.h"
#include "driver/attention.h"

smx_status smx_attention(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                         const smx_tensor *k, const smx_tensor *v, const smx_tensor *o,
                         const smx_tensor *lse) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention", ctx)) return SMX_ERR_NOMEM;
  smx_status status = attention_check(j, options, q, k, v);
  if (status != SMX_OK) return status;
  int64_t shape[4] = {j->q.shape[0], j->heads, j->lq, j->call.e};
  status = attention_output(j, "o", o, 4, shape, &j->o);
  if (status == SMX_OK && lse) status = attention_output(j, "lse", lse, 3, shape, &j->lse);
  if (status == SMX_OK && lse && j->lse.dtype.bits == 16)
    status = smx_fail(SMX_ERR_DTYPE, "%s: lse: dtype is %s, not f32 or f64", j->name,
                      smx_dtype_name(j->lse.dtype));
  return status == SMX_OK ? attention_run(j) : status;
}

smx_status smx_attention_backward(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                  const smx_tensor *k, const smx_tensor *v, const smx_tensor *o,
                                  const smx_tensor *lse, const smx_tensor *d_o, const smx_tensor *d_lse,
                                  const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_backward", ctx)) return SMX_ERR_NOMEM;
  smx_status status = attention_check_gradient(j, options, q, k, v, o, lse, d_o, d_lse);
  if (status == SMX_OK) status = attention_check_gradients(j, dq, dk, dv);
  return status == SMX_OK ? attention_run_gradients(j) : status;
}
