/* api/split.c - the functions of softmax/split.h. */
#include "base/enter.h"
#include "driver/split.h"
#include <softmax/split.h>

smx_status smx_split_shard(int64_t n, int64_t ranks, int64_t rank, int64_t *first, int64_t *count) {
  SMX_ENTER(NULL);
  return split_shard(n, ranks, rank, first, count);
}

smx_status smx_split_plan(int64_t n, int64_t ranks, const int64_t *bounds, int64_t *owned) {
  SMX_ENTER(NULL);
  return split_plan(n, ranks, bounds, owned);
}

int64_t smx_split_rows(int64_t n, int64_t most) { return split_rows(n, most); }

/* A split that has what there is of a call, whatever its status. */
static smx_status open_split(const char *verb, const split_call *c, const smx_split_part *part,
                             smx_split **split) {
  smx_status status;
  operation_columns columns;
  smx_split *const s = split_new(verb, c->ctx, split, &status);
  if (!s) return status;
  status = split_check_part(verb, c->op, part, &columns);
  if (status == SMX_OK) status = split_operation(s, &columns, c);
  if (status == SMX_OK) status = split_open(s, part);
  return s->status = status;
}

smx_status smx_split_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                             const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                             const smx_split_part *part, smx_split **split) {
  SMX_ENTER(ctx);
  const split_call c = {false, op, ctx, params, n_in, n_out, in, out, NULL, NULL};
  return open_split("smx_split_forward", &c, part, split);
}

smx_status smx_split_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                              const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                              const smx_tensor *const *dout, const smx_tensor *const *din,
                              const smx_split_part *part, smx_split **split) {
  SMX_ENTER(ctx);
  const split_call c = {true, op, ctx, params, n_in, n_out, in, out, dout, din};
  return open_split("smx_split_backward", &c, part, split);
}

int64_t smx_split_blocks(const smx_split *split) { return split && split->blocks ? split->blocks : 1; }

int32_t smx_split_next(const smx_split *split, int64_t block) {
  return split ? split_next(split, block) : SMX_SPLIT_DONE;
}

size_t smx_split_bytes(const smx_split *split, int64_t block, int64_t groups) {
  return split ? split_bytes(split, block, groups, -1) : 0;
}

size_t smx_split_bytes_for(const smx_split *split, int64_t block, int64_t groups, int32_t folder) {
  return split ? split_bytes(split, block, groups, folder) : 0;
}

smx_status smx_split_pass(smx_split *split, int64_t block, void *message) {
  if (!split || !message)
    return smx_fail(SMX_ERR_NULL, "smx_split_pass: %s is NULL", split ? "message" : "split");
  SMX_ENTER(split->ctx);
  return split_pass(split, block, message);
}

smx_status smx_split_fold(smx_split *split, int64_t block, const void *messages, size_t bytes) {
  if (!split || !messages)
    return smx_fail(SMX_ERR_NULL, "smx_split_fold: %s is NULL", split ? "messages" : "split");
  SMX_ENTER(split->ctx);
  return split_fold(split, block, messages, bytes);
}

smx_status smx_split_carry(smx_split *split, int64_t block, int32_t take, void *state, size_t *bytes) {
  if (!split || !bytes)
    return smx_fail(SMX_ERR_NULL, "smx_split_carry: %s is NULL", split ? "bytes" : "split");
  SMX_ENTER(split->ctx);
  return split_carry(split, block, take != 0, state, bytes);
}

void smx_split_close(smx_split *split) {
  if (!split) return;
  SMX_ENTER(split->ctx);
  split_close(split);
}
