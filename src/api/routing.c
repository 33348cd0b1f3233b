/* api/routing.c - the functions of softmax/routing.h: operators of src/gate with their parameters
 * as fields. */
#include "base/enter.h"
#include "driver/operator.h"

/* A parameter; a field of 0 leaves the default. */
static void set(const smx_op *op, smx_params *params, const char *name, double value, smx_status *status) {
  if (*status == SMX_OK && value != 0) *status = smx_params_set(op, params, name, value);
}

static smx_status gate_params(const smx_op *op, const smx_gate *gate, smx_params *params) {
  smx_status status = smx_params_init(op, params);
  if (!gate || status != SMX_OK) return status;
  if (gate->size != sizeof *gate)
    return smx_fail(SMX_ERR_STRUCT, "%s: gate.size is %zu, not %zu", op->name, gate->size, sizeof *gate);
  set(op, params, "k", (double)gate->k, &status);
  set(op, params, "score", gate->score, &status);
  if (gate->raw && status == SMX_OK) status = smx_params_set(op, params, "renormalise", 0);
  set(op, params, "groups", (double)gate->groups, &status);
  set(op, params, "top_groups", (double)gate->top_groups, &status);
  set(op, params, "group", gate->group, &status);
  set(op, params, "scale", gate->scale, &status);
  set(op, params, "temperature", gate->temperature, &status);
  return status;
}

smx_status smx_gate_topk(smx_context *ctx, const smx_gate *gate, const smx_tensor *logits,
                         const smx_tensor *bias, const smx_tensor *weight, const smx_tensor *index) {
  SMX_ENTER(ctx);
  const smx_op *op = smx_op_find("gate_topk");
  const smx_tensor *in[] = {logits, bias}, *out[] = {weight, index};
  smx_params params;
  const smx_status status = gate_params(op, gate, &params);
  return status == SMX_OK ? operator_forward(op, ctx, &params, 2, in, 2, out) : status;
}

smx_status smx_gate_topk_backward(smx_context *ctx, const smx_gate *gate, const smx_tensor *logits,
                                  const smx_tensor *bias, const smx_tensor *index, const smx_tensor *dweight,
                                  const smx_tensor *dlogits) {
  SMX_ENTER(ctx);
  const smx_op *op = smx_op_find("gate_topk");
  const smx_tensor *in[] = {logits, bias}, *out[] = {NULL, index}, *dout[] = {dweight, NULL};
  const smx_tensor *din[] = {dlogits, NULL};
  smx_params params;
  const smx_status status = gate_params(op, gate, &params);
  return status == SMX_OK ? operator_backward(op, ctx, &params, 2, in, 2, out, dout, din) : status;
}

static smx_status moe_params(const smx_op *op, const smx_moe *moe, smx_params *params) {
  smx_status status = smx_params_init(op, params);
  if (!moe) return smx_fail(SMX_ERR_NULL, "moe_permutation: moe is NULL");
  if (moe->size != sizeof *moe)
    return smx_fail(SMX_ERR_STRUCT, "%s: moe.size is %zu, not %zu", op->name, moe->size, sizeof *moe);
  if (status == SMX_OK) status = smx_params_set(op, params, "experts", (double)moe->experts);
  set(op, params, "capacity", (double)moe->capacity, &status);
  set(op, params, "factor", moe->factor, &status);
  set(op, params, "order", moe->order, &status);
  set(op, params, "align", (double)moe->align, &status);
  set(op, params, "layout", moe->fixed != 0, &status);
  return status;
}

smx_status smx_moe_rows(const smx_moe *moe, int64_t tokens, int64_t k, int64_t *rows) {
  SMX_ENTER(NULL);
  const smx_op *op = smx_op_find("moe_permutation");
  int64_t shape[] = {tokens, k};
  const smx_tensor index = smx_tensor_of(NULL, SMX_I64, 2, shape, NULL), *in[] = {&index, NULL};
  smx_shape out[2];
  smx_params params;
  smx_status status = moe_params(op, moe, &params);
  if (status == SMX_OK && !rows) status = smx_fail(SMX_ERR_NULL, "smx_moe_rows: rows is NULL");
  if (status == SMX_OK) status = operator_infer(op, &params, 2, in, 2, out);
  if (status == SMX_OK) *rows = out[1].dim[0];
  return status;
}

smx_status smx_moe_permutation(smx_context *ctx, const smx_moe *moe, const smx_tensor *index,
                               const smx_tensor *weight, const smx_tensor *slot, const smx_tensor *source,
                               const smx_tensor *offset, const smx_tensor *count) {
  SMX_ENTER(ctx);
  const smx_op *op = smx_op_find("moe_permutation");
  const smx_tensor *in[] = {index, weight}, *out[] = {slot, source, offset, count};
  smx_params params;
  const smx_status status = moe_params(op, moe, &params);
  return status == SMX_OK ? operator_forward(op, ctx, &params, 2, in, 4, out) : status;
}

smx_status smx_moe_dispatch(smx_context *ctx, const smx_tensor *x, const smx_tensor *source,
                            const smx_tensor *rows) {
  SMX_ENTER(ctx);
  const smx_tensor *in[] = {x, source};
  return operator_forward(smx_op_find("moe_dispatch"), ctx, NULL, 2, in, 1, &rows);
}

smx_status smx_moe_combine(smx_context *ctx, const smx_tensor *rows, const smx_tensor *slot,
                           const smx_tensor *weight, const smx_tensor *y) {
  SMX_ENTER(ctx);
  const smx_tensor *in[] = {rows, slot, weight};
  return operator_forward(smx_op_find("moe_combine"), ctx, NULL, 3, in, 1, &y);
}
