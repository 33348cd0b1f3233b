/* attention/driver_mass.c - how much weight each key gets. It is the gradient of values of width 1,
 * with a row's own weight for the gradient of o. */
#include "base/enter.h"
#include "driver/attention.h"

smx_status smx_attention_column_mass(smx_context *ctx, const smx_attention_options *options,
                                     const smx_tensor *q, const smx_tensor *k, const smx_tensor *lse,
                                     const smx_tensor *row_weights, const smx_tensor *mass) {
  SMX_ENTER(ctx);
  static const float one = 1;
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_column_mass", ctx)) return SMX_ERR_NOMEM;
  /* values are only multiplied by 0 */
  smx_status status = attention_check(j, options, q, k, k);
  if (status != SMX_OK) return status;
  if (!(attention_table[j->call.weights].flags & SMX_ATTENTION_BACKWARD))
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: options.weights is %d, which has no gradient", j->name,
                    j->call.weights);
  if (j->block_table.data)
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: not possible for a paged cache (block_table)", j->name);
  const int64_t rows[] = {j->q.shape[0], j->heads, j->lq},
                keys[] = {j->k.shape[0], j->kv_heads, j->k.shape[2]};
  smx_view ones = {
      .data = (char *)(uintptr_t)&one, .dtype = SMX_F32, .ndim = 3, .shape = {rows[0], rows[1], rows[2]}};
  status = attention_tensor(j, "lse", lse, FLOATS, 3, rows, &j->lse);
  if (status == SMX_OK && row_weights)
    status = attention_tensor(j, "row_weights", row_weights, FLOATS, 3, rows, &ones);
  if (status == SMX_OK) status = attention_output(j, "mass", mass, 3, keys, &j->dv);
  if (status == SMX_OK && smx_view_overlap(&j->dv, &ones))
    status = smx_fail(SMX_ERR_ALIAS, "%s: mass: overlaps row_weights", j->name);
  if (status != SMX_OK) return status;
  j->call.dropout = 0;
  j->call.e = 1;
  j->v.shape[3] = 1;
  ones.ndim = j->dv.ndim = 4;
  ones.shape[3] = j->dv.shape[3] = 1;
  ones.strides[3] = j->dv.strides[3] = 1;
  j->d_o = j->o = ones;
  return attention_run_gradients(j);
}
