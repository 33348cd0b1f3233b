/* outputs.h - a call of an operator whose outputs all go into one array. */
#ifndef TESTS_OUTPUTS_H
#define TESTS_OUTPUTS_H
#include "status.h"
#include <stdbool.h>

static inline smx_tensor floats(double *x, int32_t ndim, int64_t *shape) {
  return (smx_tensor){x, {1, 0}, ndim, SMX_F64, shape, NULL, 0};
}
static inline smx_tensor classes_of(int64_t *x, int64_t *n) {
  return (smx_tensor){x, {1, 0}, 1, SMX_I64, n, NULL, 0};
}

/* Parameters by name, up to a NULL. */
typedef struct setting {
  const char *name;
  double value;
} setting;

/* The outputs of a call, one after another in out, as long as they are; returns where they end. */
static inline double *call(const char *name, const setting *settings, int n_in, const smx_tensor *const *in,
                           double *out) {
  const smx_op *op = smx_op_find(name);
  smx_params params;
  smx_shape shape[SMX_MAX_PORTS];
  smx_tensor to[SMX_MAX_PORTS];
  const smx_tensor *list[SMX_MAX_PORTS];
  good(smx_params_init(op, &params));
  for (; settings && settings->name; settings++)
    good(smx_params_set(op, &params, settings->name, settings->value));
  good(smx_infer(op, &params, n_in, in, op->output_count, shape));
  for (int o = 0; o < op->output_count; o++) {
    const bool whole = op->outputs[o].flags & SMX_PORT_INT;
    int64_t count = 1;
    for (int d = 0; d < shape[o].ndim; d++) count *= shape[o].dim[d];
    to[o] = (smx_tensor){out, {1, 0}, shape[o].ndim, whole ? SMX_I64 : SMX_F64, shape[o].dim, NULL, 0};
    list[o] = to + o, out += count;
  }
  good(smx_forward(op, NULL, &params, n_in, in, op->output_count, list));
  return out;
}

#endif
