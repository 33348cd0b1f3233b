/* op_call.h - a call of an operator on tensors with arrays of a test, forward, and backward where
 * gradients are asked for. */
#ifndef TESTS_OP_CALL_H
#define TESTS_OP_CALL_H
#include "status.h"
#include "tensors.h"
#include "util.h"

enum { PORTS = SMX_MAX_PORTS };

/* A tensor of a call; data NULL: there is none. */
typedef struct port {
  void *data;
  int32_t ndim;
  int64_t shape[4];
  smx_dtype type;
} port;
#define DIMS_OF(...) \
  (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { __VA_ARGS__ }
#define REALS(data, ...) \
  { \
    data, DIMS_OF(__VA_ARGS__), { 2, 64, 1 } \
  }
#define WHOLE(data, ...) \
  { \
    data, DIMS_OF(__VA_ARGS__), { 0, 64, 1 } \
  }
#define BYTES(data, ...) \
  { \
    data, DIMS_OF(__VA_ARGS__), { 1, 8, 1 } \
  }

/* dout, din: as out and in, in double. */
typedef struct op_call {
  const char *op;
  port in[PORTS], out[PORTS];
  double *dout[PORTS], *din[PORTS];
  const char *setting[4][2];
  smx_context *ctx;
} op_call;

static inline const smx_tensor *tensor_of(port *p, void *data, smx_tensor *t) {
  *t = tensor(data, p->type, p->ndim, p->shape);
  return data ? t : NULL;
}

static inline smx_status call(op_call *c) {
  const smx_op *op = smx_op_find(c->op);
  smx_tensor t[4][PORTS];
  const smx_tensor *in[PORTS], *out[PORTS], *dout[PORTS], *din[PORTS];
  bool backward = false;
  smx_params params;
  smx_params_init(op, &params);
  for (int i = 0; i < 4 && c->setting[i][0]; i++)
    good(smx_params_parse(op, &params, c->setting[i][0], c->setting[i][1]));
  for (int i = 0; i < PORTS; i++) {
    in[i] = tensor_of(c->in + i, c->in[i].data, t[0] + i), din[i] = tensor_of(c->in + i, c->din[i], t[1] + i);
    out[i] = tensor_of(c->out + i, c->out[i].data, t[2] + i);
    dout[i] = tensor_of(c->out + i, c->dout[i], t[3] + i), backward |= din[i] != NULL;
  }
  const smx_status status = smx_forward(op, c->ctx, &params, op->input_count, in, op->output_count, out);
  if (status != SMX_OK || !backward) return status;
  return smx_backward(op, c->ctx, &params, op->input_count, in, op->output_count, out, dout, din);
}

#endif
