/* head/functions_token.c - soft_token_expectation: the mean of a codebook under a row of logits
 * (All in Tokens, Ning et al. 2023),
 *
 *   y = softmax(z / T) e,   de = p^T dy,   dz = the gradient of softmax, of dy e^T
 *
 * p e is a linear layer of p whose classes are the columns of e. */
#include "driver/operator.h"
#include "functions.h"

enum { Z, E }; /* inputs */

typedef struct expectation {
  const tensor_call *c;
  const smx_op *softmax;
  smx_params params;
  int64_t n, v, d, bytes;
  char *p, *dp; /* [n, v] */
  int64_t row[2], turned[2], out[2], turned_step[2];
  smx_tensor z, e, y; /* e: transposed, [d, v] */
} expectation;

static smx_tensor rows_of(const expectation *x, char *data) {
  return smx_tensor_of(data, x->c->is_f64 ? SMX_F64 : SMX_F32, 2, (int64_t *)(uintptr_t)x->row, NULL);
}
static smx_tensor turned(expectation *x, char *data) {
  return smx_tensor_of(data, x->c->is_f64 ? SMX_F64 : SMX_F32, 2, x->turned, x->turned_step);
}

static smx_status open_expectation(expectation *x, const tensor_call *c, bool backward) {
  int64_t size, all;
  *x = (expectation){.c = c, .softmax = smx_op_find("softmax"), .n = c->dims.lead_count};
  x->v = tensor_dim(c, "v"), x->d = tensor_dim(c, "d"), x->bytes = c->is_f64 ? 8 : 4;
  x->row[0] = x->out[0] = x->n, x->row[1] = x->turned[1] = x->v, x->out[1] = x->turned[0] = x->d;
  x->turned_step[0] = 1, x->turned_step[1] = x->d;
  smx_params_init(x->softmax, &x->params);
  smx_params_set(x->softmax, &x->params, "temperature", tensor_param(c, "temperature"));
  const bool fits = smx_multiply(x->n, x->v, &size) && smx_multiply(size, 2 * x->bytes, &all);
  x->p = fits ? smx_alloc(c->ctx, (size_t)(backward ? all : size * x->bytes) + 1) : NULL;
  if (!x->p)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of %lld", c->op->name, (long long)x->n,
                    (long long)x->v);
  x->dp = x->p + size * x->bytes;
  x->z = rows_of(x, c->in.view[Z].data), x->e = turned(x, c->in.view[E].data);
  x->y = rows_of(x, x->p);
  const smx_tensor *const in[] = {&x->z}, *const out[] = {&x->y};
  const smx_status status = size ? operator_forward(x->softmax, c->ctx, &x->params, 1, in, 1, out) : SMX_OK;
  if (status != SMX_OK) smx_free(c->ctx, x->p);
  return status;
}

static smx_linear layer_of(const expectation *x) {
  return (smx_linear){.size = sizeof(smx_linear), .h = &x->y, .w = &x->e};
}

smx_status soft_token_forward(const tensor_call *c) {
  expectation x;
  smx_status status = open_expectation(&x, c, false);
  if (status != SMX_OK) return status;
  const smx_tensor y = smx_tensor_of(c->out.view[0].data, c->is_f64 ? SMX_F64 : SMX_F32, 2, x.out, NULL);
  const smx_linear layer = layer_of(&x);
  status = smx_linear_logits(c->ctx, &layer, &y);
  smx_free(c->ctx, x.p);
  return status;
}

/* The layer's gradients are those of an operator that leaves its logits alone. */
smx_status soft_token_backward(const tensor_call *c) {
  expectation x;
  smx_status status = open_expectation(&x, c, true);
  if (status != SMX_OK) return status;
  const smx_dtype real = c->is_f64 ? SMX_F64 : SMX_F32;
  const smx_tensor dy = smx_tensor_of(c->dout.view[0].data, real, 2, x.out, NULL), dp = rows_of(&x, x.dp),
                   de = turned(&x, c->din.view[E].data), dz = rows_of(&x, c->din.view[Z].data);
  smx_linear layer = layer_of(&x);
  if (c->din.given[Z]) layer.dh = &dp;
  if (c->din.given[E]) layer.dw = &de;
  const smx_op *const plain = smx_op_find("softcap");
  const smx_tensor *const dout[] = {&dy}, *const in[] = {&x.z}, *const out[] = {&x.y}, *const up[] = {&dp},
                          *const din[] = {&dz};
  smx_params params;
  smx_params_init(plain, &params);
  smx_params_set(plain, &params, "cap", __builtin_inf());
  if (layer.dh || layer.dw)
    status = smx_linear_backward(plain, c->ctx, &params, &layer, 0, NULL, 1, NULL, dout, NULL);
  if (status == SMX_OK && layer.dh && x.n * x.v > 0)
    status = operator_backward(x.softmax, c->ctx, &x.params, 1, in, 1, out, up, din);
  smx_free(c->ctx, x.p);
  return status;
}
