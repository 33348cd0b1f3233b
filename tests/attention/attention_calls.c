/* attention_calls.c - see attention_calls.h. */
#include "attention_calls.h"

#include <string.h>

#define CALL(name) \
  static smx_status name(smx_context *ctx, const smx_attention_options *o, const attention_more *m, \
                         const smx_tensor *const *t)

CALL(attention) { return smx_attention(ctx, o, t[0], t[1], t[2], t[3], t[4]); }
CALL(backward) {
  return smx_attention_backward(ctx, o, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]);
}
CALL(backward_bias) {
  return smx_attention_backward_bias(ctx, o, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]);
}
CALL(rows) { return smx_attention_rows(ctx, o, m->op, m->params, t[0], t[1], t[2], t[3]); }
CALL(rows_backward) {
  return smx_attention_rows_backward(ctx, o, m->op, m->params, t[0], t[1], t[2], t[3], t[4], t[5], t[6]);
}
CALL(column_mass) { return smx_attention_column_mass(ctx, o, t[0], t[1], t[2], t[3], t[4]); }
CALL(states) { return smx_attention_states(ctx, o, t[0], t[1], t[2], t[3]); }
CALL(scores) { return smx_attention_scores(ctx, o, (smx_attention_stage)m->stage, t[0], t[1], t[2]); }
CALL(apply) { return smx_attention_apply(ctx, o, t[0], t[1], t[2]); }
CALL(parallax) { return smx_attention_parallax(ctx, o, t[0], t[1], t[2], t[3], t[4]); }
CALL(parallax_backward) {
  return smx_attention_parallax_backward(ctx, o, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]);
}
CALL(local_linear) { return smx_attention_local_linear(ctx, o, m->ridge, t[0], t[1], t[2], t[3]); }
CALL(local_linear_backward) {
  return smx_attention_local_linear_backward(ctx, o, m->ridge, t[0], t[1], t[2], t[3], t[4], t[5], t[6]);
}
CALL(additive) { return smx_attention_additive(ctx, o, t[0], t[1], t[2], t[3], t[4]); }
CALL(additive_backward) {
  return smx_attention_additive_backward(ctx, o, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]);
}
CALL(tropical) { return smx_attention_tropical(ctx, o, m->symmetric, t[0], t[1], t[2], t[3], t[4]); }
CALL(tropical_backward) {
  return smx_attention_tropical_backward(ctx, o, m->symmetric, t[0], t[1], t[2], t[3], t[4], t[5], t[6],
                                         t[7]);
}

/* clang-format off */
const attention_call attention_calls[ATTENTION_CALLS] = {
    {"attention", "Q K V O=L~", CALL_KINDS | CALL_PACKED | CALL_PAGED | CALL_SINKS, attention},
    {"backward", "Q K V O L O L?Q~K~V~", CALL_GRADS | CALL_PACKED | CALL_SINKS, backward},
    {"backward_bias", "Q K V O L O L?S~H~H~", CALL_GRADS | CALL_PACKED | CALL_SINKS, backward_bias},
    {"rows", "Q K V O=", CALL_PACKED | CALL_PAGED, rows},
    {"rows_backward", "Q K V O Q~K~V~", CALL_PACKED, rows_backward},
    {"column_mass", "Q K L L?M=", CALL_GRADS | CALL_PACKED | CALL_SINKS, column_mass},
    {"states", "Q K V T=", CALL_KINDS | CALL_PAGED | CALL_SINKS, states},
    {"scores", "Q K S=", CALL_KINDS | CALL_PAGED | CALL_SINKS, scores},
    {"apply", "S V O=", CALL_PAGED, apply},
    {"parallax", "Q K V Q O=", CALL_PACKED | CALL_PAGED, parallax},
    {"parallax_backward", "Q K V Q O Q~K~V~Q~", CALL_PACKED, parallax_backward},
    {"local_linear", "Q K V O=", CALL_PACKED | CALL_PAGED | CALL_FITS, local_linear},
    {"local_linear_backward", "Q K V O Q~K~V~", CALL_PACKED | CALL_FITS, local_linear_backward},
    {"additive", "U Q K V O=", CALL_PACKED | CALL_PAGED, additive},
    {"additive_backward", "U Q K V O U~Q~K~V~", CALL_PACKED, additive_backward},
    {"tropical", "Q K V O=W~", CALL_PACKED | CALL_PAGED, tropical},
    {"tropical_backward", "Q K V W O Q~K~V~", CALL_PACKED, tropical_backward},
};

const double attention_params[SMX_ATTENTION_KINDS][SMX_ATTENTION_PARAMS] = {
    [SMX_ATTENTION_SOFTMAX_N] = {1},
    [SMX_ATTENTION_SSMAX] = {0.43, 0.1},
    [SMX_ATTENTION_SIGMOID] = {-1},
    [SMX_ATTENTION_RELU] = {2, 1},
    [SMX_ATTENTION_ELU] = {1},
    [SMX_ATTENTION_IDENTITY] = {2},
    [SMX_ATTENTION_TAYLOR] = {1, 3},
    [SMX_ATTENTION_CLIPPED] = {-0.1, 1.1},
    [SMX_ATTENTION_CENTRED] = {1, 0, 1e-3},
    [SMX_ATTENTION_EXP] = {2, 0, 5},
    [SMX_ATTENTION_CREDAL] = {1},
    [SMX_ATTENTION_SHAPED] = {1, 1, 1},
    [SMX_ATTENTION_LSSA] = {2},
    [SMX_ATTENTION_LSSAR] = {15, 1, 3},
    [SMX_ATTENTION_UNIFIED] = {0.5, -2, 2},
};
/* clang-format on */

int32_t attention_shape(const attention_sizes *n, char letter, int64_t *shape) {
  const int64_t qb = n->packed_queries ? 1 : n->batch, kb = n->packed_keys ? 1 : n->batch;
  const int64_t splits = (n->key_start + n->lk + 1023) / 1024 - n->key_start / 1024;
  const int64_t first = n->page ? n->pages : kb, keys = n->page ? n->page : n->lk;
  const struct {
    char letter;
    int32_t ndim;
    int64_t shape[5];
  } shapes[] = {{'Q', 4, {qb, n->heads, n->lq, n->d}},
                {'K', 4, {first, n->kv_heads, keys, n->d}},
                {'V', 4, {first, n->kv_heads, keys, n->e}},
                {'O', 4, {qb, n->heads, n->lq, n->e}},
                {'W', 4, {qb, n->heads, n->lq, n->e}},
                {'L', 3, {qb, n->heads, n->lq}},
                {'S', 4, {n->batch, n->heads, n->lq, n->lk}},
                {'H', 2, {n->batch, n->heads}},
                {'M', 3, {kb, n->kv_heads, n->lk}},
                {'U', 3, {n->batch, n->heads, n->d}},
                {'T', 5, {n->batch, n->heads, n->lq, splits, smx_attention_state_width(n->e)}}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (shapes[i].letter == letter) {
      memcpy(shape, shapes[i].shape, sizeof shapes[i].shape);
      return shapes[i].ndim;
    }
  return 0;
}
