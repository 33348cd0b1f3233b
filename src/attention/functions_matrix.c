/* attention/functions_matrix.c - attention whose weights are an operator on matrices of the scores:
 * sinkhorn, orthostochastic. */
#include "functions_sheets.h"

typedef struct matrix_rule {
  const char *name;
  int64_t *stream; /* of the noise of every row of the block; NULL: no noise */
} matrix_rule;

/* Parameters that both operators have. */
static void take_params(const tensor_call *c, const smx_op *op, smx_params *params) {
  smx_params_init(op, params);
  for (int32_t i = 0; i < op->param_count; i++)
    params->value[i] = dims_param(&c->dims, op->params[i].name, params->value[i]);
}

static smx_status call_matrix(sheets *s, bool back) {
  const smx_op *op = smx_op_find(((const matrix_rule *)s->own)->name);
  int64_t shape[3];
  const smx_tensor x = sheets_tensor(s, s->s, shape), y = sheets_tensor(s, s->w, shape),
                   g = sheets_tensor(s, s->g, shape), dx = sheets_tensor(s, s->ds, shape);
  const smx_tensor *in[] = {&x}, *out[] = {&y}, *dout[] = {&g}, *din[] = {&dx};
  smx_params params;
  take_params(s->c, op, &params);
  return back ? operator_backward(op, s->c->ctx, &params, 1, in, 1, out, dout, din)
              : operator_forward(op, s->c->ctx, &params, 1, in, 1, out);
}

static const sheet_rule sinkhorn_rule = {.mask = SHEET_OWN, .call = call_matrix};

smx_status sinkhorn_attention_forward(const tensor_call *c) {
  return sheets_run(c, &sinkhorn_rule, &(matrix_rule){.name = "sinkhorn"}, false);
}
smx_status sinkhorn_attention_backward(const tensor_call *c) {
  return sheets_run(c, &sinkhorn_rule, &(matrix_rule){.name = "sinkhorn"}, true);
}

/* ---- orthostochastic: the same noise for every matrix, a stream for each row ---- */

static void noise_room(sheets *s, carver *c) {
  ((matrix_rule *)s->own)->stream = carve(c, s->most, s->l, sizeof(int64_t));
}
static void name_streams(sheets *s) {
  int64_t *stream = ((matrix_rule *)s->own)->stream;
  for (int64_t i = 0; i < s->count * s->l; i++) stream[i] = i % s->l;
}

static smx_status add_noise(sheets *s) {
  const smx_op *op = smx_op_find("normal_noise");
  int64_t shape[3];
  const smx_tensor x = sheets_tensor(s, s->s, shape),
                   stream = smx_tensor_of(((const matrix_rule *)s->own)->stream, SMX_I64, 2, shape, NULL);
  const smx_tensor *in[] = {&x, &stream}, *out[] = {&x};
  smx_params params;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "sigma", tensor_param(s->c, "noise"));
  smx_params_set(op, &params, "seed", tensor_param(s->c, "seed"));
  return operator_forward(op, s->c->ctx, &params, 2, in, 1, out);
}
static smx_status call_noisy(sheets *s, bool back) {
  const smx_status noise = back ? SMX_OK : add_noise(s), status = call_matrix(s, back);
  return noise != SMX_OK ? noise : status;
}

static const sheet_rule orthostochastic_rule = {
    .call = call_noisy, .before = name_streams, .room = noise_room};

smx_status orthostochastic_attention_forward(const tensor_call *c) {
  return sheets_run(c, &orthostochastic_rule, &(matrix_rule){.name = "orthostochastic"}, false);
}
smx_status orthostochastic_attention_backward(const tensor_call *c) {
  return sheets_run(c, &orthostochastic_rule, &(matrix_rule){.name = "orthostochastic"}, true);
}
