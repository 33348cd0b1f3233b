/* attention/driver_rows.c - attention whose weights are made by an operator on rows. The scores of
 * some rows of a head are stored as a matrix, the operator runs over it as over any array, and the
 * values are weighted with its result. The gradient goes the same way back:
 *
 *     dy = <do, v>,   dz = the operator's gradient,   ds = dz (derivative of the cap) scale
 *     dq = ds k,   dk = ds^T q,   dv = y^T do */
#include "base/enter.h"
#include "driver/score_block.h"

static smx_status forward_part(block_job *m, const attention_job *p) {
  smx_status status = p->lk ? score_block_weights(m, p) : SMX_OK;
  if (status == SMX_OK) score_block_drop(p, m->y[0]);
  return status == SMX_OK ? score_block_weighted(m, p, m->y[0], false, &p->v, &p->o) : status;
}

static smx_status backward_part(block_job *m, const attention_job *p) {
  smx_status status = score_block_weights(m, p);
  if (status == SMX_OK) status = score_block_upstream(m, p);
  if (status == SMX_OK) status = score_block_gradient(m, p);
  if (status == SMX_OK) status = score_block_to_products(m, p);
  if (status == SMX_OK) score_block_drop(p, m->y[0]);
  if (status == SMX_OK && p->dq.data) status = score_block_weighted(m, p, m->dz, false, &p->k, &p->dq);
  if (status == SMX_OK && p->dk.data) status = score_block_add_transposed(m, p, m->dz, &p->q, m->dk);
  if (status == SMX_OK && p->dv.data) status = score_block_add_transposed(m, p, m->y[0], &p->d_o, m->dv);
  return status;
}

static const block_job_steps steps = {.forward = forward_part, .backward = backward_part};

static smx_status no_operator(const block_job *m) {
  return smx_fail(SMX_ERR_NULL, "%s: op is NULL", m->j->name);
}

smx_status smx_attention_rows(smx_context *ctx, const smx_attention_options *options, const smx_op *op,
                              const smx_params *params, const smx_tensor *q, const smx_tensor *k,
                              const smx_tensor *v, const smx_tensor *o) {
  SMX_ENTER(ctx);
  SMX_OWN(block_job, m, ctx);
  if (!block_job_open(m, "smx_attention_rows", ctx, &steps)) return SMX_ERR_NOMEM;
  if (!op) return no_operator(m);
  smx_status status = score_block_check(m, options, op, params, q, k, v);
  if (status == SMX_OK) status = score_block_check_output(m, o);
  return status == SMX_OK ? block_job_run(m, false) : status;
}

smx_status smx_attention_rows_backward(smx_context *ctx, const smx_attention_options *options,
                                       const smx_op *op, const smx_params *params, const smx_tensor *q,
                                       const smx_tensor *k, const smx_tensor *v, const smx_tensor *d_o,
                                       const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  SMX_ENTER(ctx);
  SMX_OWN(block_job, m, ctx);
  if (!block_job_open(m, "smx_attention_rows_backward", ctx, &steps)) return SMX_ERR_NOMEM;
  if (!op) return no_operator(m);
  smx_status status = score_block_check(m, options, op, params, q, k, v);
  if (status == SMX_OK) status = score_block_check_gradients(m, d_o, dq, dk, dv);
  return status == SMX_OK ? block_job_run(m, true) : status;
}
