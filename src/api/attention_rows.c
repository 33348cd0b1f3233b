/* api/attention_rows.c - attention whose weights are made by an operator on rows: the scores of some rows of a head are laid out, the operator runs
 * over them as over any array, and the values are weighted by what it gives. The gradient goes the same way back:
 *
 *     dy = <do, v>,   dz = the operator's gradient,   ds = dz (derivative of the cap) scale
 *     dq = ds k,   dk = ds^T q,   dv = y^T do */
#include "attention_sheet.h"

static smx_status forward_part(making *m, const attention_job *p) {
  sheet s;
  smx_status status = p->lk ? sheet_weights(m, p, &s) : SMX_OK;
  if (status == SMX_OK) sheet_drop(p, m->y[0]);
  return status == SMX_OK ? sheet_weighted(m, p, m->y[0], false, &p->v, &p->o) : status;
}

static smx_status backward_part(making *m, const attention_job *p) {
  sheet s;
  smx_status status = sheet_weights(m, p, &s);
  if (status == SMX_OK) status = sheet_upstream(m, p);
  if (status == SMX_OK) status = sheet_gradient(m, p, &s);
  if (status == SMX_OK) status = sheet_to_products(m, p);
  if (status == SMX_OK) sheet_drop(p, m->y[0]);
  if (status == SMX_OK && p->dq.data) status = sheet_weighted(m, p, m->dz, false, &p->k, &p->dq);
  if (status == SMX_OK && p->dk.data) status = sheet_add_turned(m, p, m->dz, &p->q, m->dk);
  if (status == SMX_OK && p->dv.data) status = sheet_add_turned(m, p, m->y[0], &p->d_o, m->dv);
  return status;
}

static const making_steps steps = {.forward = forward_part, .backward = backward_part};

static smx_status no_operator(const making *m) { return smx_fail(SMX_ERR_NULL, "%s: op is NULL", m->j->name); }

smx_status smx_attention_rows(smx_context *ctx, const smx_attention_options *options, const smx_op *op, const smx_params *params,
                              const smx_tensor *q, const smx_tensor *k, const smx_tensor *v, const smx_tensor *o) {
  attention_job job = {.name = "smx_attention_rows", .ctx = ctx};
  making m = {.j = &job, .steps = &steps};
  if (!op) return no_operator(&m);
  smx_status status = sheet_check(&m, options, op, params, q, k, v);
  if (status == SMX_OK) status = sheet_check_output(&m, o);
  return status == SMX_OK ? making_run(&m, false) : status;
}

smx_status smx_attention_rows_backward(smx_context *ctx, const smx_attention_options *options, const smx_op *op, const smx_params *params,
                                       const smx_tensor *q, const smx_tensor *k, const smx_tensor *v, const smx_tensor *d_o,
                                       const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  attention_job job = {.name = "smx_attention_rows_backward", .ctx = ctx};
  making m = {.j = &job, .steps = &steps};
  if (!op) return no_operator(&m);
  smx_status status = sheet_check(&m, options, op, params, q, k, v);
  if (status == SMX_OK) status = sheet_check_gradients(&m, d_o, dq, dk, dv);
  return status == SMX_OK ? making_run(&m, true) : status;
}
