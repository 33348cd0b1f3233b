/* gate/functions_expert_choice.c - each expert takes its best tokens: softmax along the experts,
 * then softmax_topk of src/row along the tokens, for where they are. */
#include <string.h>

#include "functions.h"
#include "functions_rows.h"

enum { LOGITS };        /* inputs */
enum { WEIGHT, INDEX }; /* outputs */

typedef struct expert_call {
  const tensor_call *c;
  smx_context *purse;
  int64_t tokens, experts, capacity, bytes, shape[2];
  char *p, *g; /* [tokens, experts]: probabilities, and their gradient */
} expert_call;

smx_status gate_expert_sizes(dims *d) {
  const int64_t tokens = dims_value(d, "t", 0), experts = dims_value(d, "e", 0);
  const double given = dims_param(d, "capacity", 0);
  if (given > (double)tokens)
    return smx_fail(SMX_ERR_PARAM, "%s: capacity is %lld, but there are %lld tokens", d->op->name,
                    (long long)given, (long long)tokens);
  const double share = experts > 0 ? (double)tokens * dims_param(d, "factor", 2) / (double)experts : 0;
  int64_t capacity = share < (double)tokens ? (int64_t)share : tokens;
  if ((double)capacity < share && capacity < tokens) capacity++;
  if (given > 0) capacity = (int64_t)given;
  dims_set(d, "capacity", 0, capacity);
  return SMX_OK;
}

static smx_tensor matrix_of(expert_call *x, char *data) {
  return smx_tensor_of(data, x->c->is_f64 ? SMX_F64 : SMX_F32, 2, x->shape, NULL);
}

/* Where the best tokens of each expert are; their values go to the weights. */
static smx_status choose(expert_call *x) {
  const smx_op *op = smx_op_find("softmax_topk");
  int64_t shape[] = {x->capacity, x->experts}, strides[] = {1, x->capacity};
  const smx_dtype type = x->c->is_f64 ? SMX_F64 : SMX_F32;
  const smx_tensor p = matrix_of(x, x->p);
  const smx_tensor value = smx_tensor_of(x->c->out.view[WEIGHT].data, type, 2, shape, strides);
  const smx_tensor index = smx_tensor_of(x->c->out.view[INDEX].data, SMX_I64, 2, shape, strides);
  const smx_tensor *in[] = {&p}, *out[] = {&value, &index};
  smx_params params;
  smx_params_init(op, &params);
  params.axis = 0;
  smx_params_set(op, &params, "k", (double)x->capacity);
  return operator_forward(op, x->purse, &params, 1, in, 2, out);
}

static smx_status take_softmax(expert_call *x) {
  const smx_tensor in = matrix_of(x, x->c->in.view[LOGITS].data), p = matrix_of(x, x->p);
  return softmax_along(x->purse, -1, &in, &p);
}
static smx_status give_gradient(expert_call *x) {
  const smx_tensor p = matrix_of(x, x->p), g = matrix_of(x, x->g),
                   dx = matrix_of(x, x->c->din.view[LOGITS].data);
  return softmax_backward_along(x->purse, -1, &p, &g, &dx);
}

static smx_status expert_open(expert_call *x, const tensor_call *c, bool backward) {
  *x = (expert_call){.c = c,
                     .tokens = tensor_dim(c, "t"),
                     .experts = tensor_dim(c, "e"),
                     .capacity = tensor_dim(c, "capacity"),
                     .bytes = c->is_f64 ? 8 : 4};
  smx_status status = tensor_check_empty(c, x->tokens, x->experts, "token", "experts");
  if (status != SMX_OK) return status;
  x->shape[0] = x->tokens, x->shape[1] = x->experts;
  const size_t bytes = (size_t)(x->tokens * x->experts * x->bytes);
  x->p = smx_alloc(c->ctx, smx_whole_lines(bytes) * (backward ? 2 : 1));
  x->purse = x->p ? smx_purse_open(c->ctx) : NULL;
  if (x->purse) {
    x->g = x->p + smx_whole_lines(bytes);
    take_softmax(x);
    if (backward) give_gradient(x);
    else choose(x);
    if (smx_purse_fill(x->purse)) return SMX_OK;
  }
  smx_purse_close(x->purse), smx_free(c->ctx, x->p);
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %zu bytes", c->op->name, bytes);
}
static void expert_close(expert_call *x) {
  smx_purse_close(x->purse);
  smx_free(x->c->ctx, x->p);
}

/* A token without experts is nobody's. */
static void hide_empty(const expert_call *x) {
  const double none = -__builtin_inf();
  for (int64_t t = 0; t < x->tokens; t++) {
    const bool empty = tensor_row_is_empty(x->c, t, x->experts);
    for (int64_t e = 0; e < x->experts && empty; e++)
      smx_reals_store(x->c->is_f64, &none, 1, x->p + (t * x->experts + e) * x->bytes);
  }
}

/* The weights of an expert, at its index. */
static void put_weights(const expert_call *x, int64_t e) {
  const tensor_call *c = x->c;
  const int64_t *index = (const int64_t *)(const void *)c->out.view[INDEX].data;
  for (int64_t i = e * x->capacity; i < (e + 1) * x->capacity; i++) {
    double w;
    tensor_load(c, c->out.view + WEIGHT, i, 1, &w);
    if (w == w) w = 0; /* no NaN, if there is no such token */
    if (index[i] >= 0) smx_reals_load(c->is_f64, x->p + (index[i] * x->experts + e) * x->bytes, 1, &w);
    tensor_store(c, c->out.view + WEIGHT, i, 1, &w);
  }
}

smx_status gate_expert_choice(const tensor_call *c) {
  expert_call x;
  if (tensor_dim(c, "capacity") == 0 || tensor_dim(c, "e") == 0) return SMX_OK;
  smx_status status = expert_open(&x, c, false);
  if (status != SMX_OK) return status;
  status = take_softmax(&x);
  if (status == SMX_OK) hide_empty(&x), status = choose(&x);
  for (int64_t e = 0; e < x.experts && status == SMX_OK; e++) put_weights(&x, e);
  expert_close(&x);
  return status;
}

smx_status gate_expert_choice_backward(const tensor_call *c) {
  expert_call x;
  if (!c->din.given[LOGITS] || tensor_dim(c, "t") == 0 || tensor_dim(c, "e") == 0) return SMX_OK;
  smx_status status = expert_open(&x, c, true);
  if (status != SMX_OK) return status;
  const int64_t *index = (const int64_t *)(const void *)c->out.view[INDEX].data;
  memset(x.g, 0, (size_t)(x.tokens * x.experts * x.bytes));
  for (int64_t e = 0; e < x.experts; e++)
    for (int64_t i = e * x.capacity; i < (e + 1) * x.capacity; i++)
      if (index[i] >= 0 && index[i] < x.tokens)
        memcpy(x.g + (index[i] * x.experts + e) * x.bytes, c->dout.view[WEIGHT].data + i * x.bytes,
               (size_t)x.bytes);
  status = take_softmax(&x);
  if (status == SMX_OK) status = give_gradient(&x);
  expert_close(&x);
  return status;
}
