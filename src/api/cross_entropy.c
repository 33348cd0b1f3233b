/* api/cross_entropy.c - cross-entropy by name: its arguments become tensors, then it is an operator
 * like others. */
#include "base/enter.h"
#include "driver/direct.h"
#include "driver/operator.h"
#include "loss/loss.h"
#include <string.h>

/* NULL, 0: the default. */
static void set(smx_params *p, const char *name, double value) {
  const smx_op *op = loss_table + LOSS_cross_entropy;
  for (int32_t i = 0; value != 0 && i < op->param_count; i++)
    if (*op->params[i].name == *name && !strcmp(op->params[i].name, name)) p->value[i] = value;
}

smx_status smx_cross_entropy_f32(smx_context *ctx, size_t rows, size_t n, const float *x,
                                 const int64_t *target, const smx_cross_entropy_options *options, float *loss,
                                 float *dx, float *reduced) {
  SMX_ENTER(ctx);
  const smx_op *op = loss_table + LOSS_cross_entropy;
  smx_cross_entropy_options o = {.size = sizeof o};
  const size_t before = offsetof(smx_cross_entropy_options, ignore_zero);
  if (options && options->size != sizeof o && options->size != before)
    return smx_fail(SMX_ERR_STRUCT, "smx_cross_entropy_f32: options.size is %zu, not %zu", options->size,
                    sizeof o);
  if (options) memcpy(&o, options, options->size);
  if (rows > INT64_MAX || n > INT64_MAX)
    return smx_fail(SMX_ERR_SHAPE, "smx_cross_entropy_f32: rows * n = %zu * %zu overflows", rows, n);
  if (rows && !loss) return smx_fail(SMX_ERR_NULL, "smx_cross_entropy_f32: loss is NULL");
  smx_params params;
  if (options) {
    smx_params_init(op, &params);
    set(&params, "ignore_index", (double)o.ignore_index);
    if (o.ignore_zero && !o.ignore_index) smx_params_set(op, &params, "ignore_index", 0);
    set(&params, "label_smoothing", (double)o.label_smoothing);
    set(&params, "z_weight", (double)o.z_weight);
    set(&params, "softcap", (double)o.softcap);
    set(&params, "temperature", (double)o.temperature);
    set(&params, "reduction", o.reduction);
  }
  const smx_params *given = options ? &params : NULL;
  const void *const from[SMX_MAX_PORTS] = {x, target, NULL, o.class_weight};
  void *const to[SMX_MAX_PORTS] = {loss, dx, o.lse, NULL, NULL, NULL, reduced};
  const direct_end end = direct_rows(op, ctx, given, rows, n, from, to);
  if (end != DIRECT_NOT) return direct_status(op, end);
  int64_t shape[2] = {(int64_t)rows, (int64_t)n};
  smx_tensor tensors[] = {smx_tensor_of(x, SMX_F32, 2, shape, NULL),
                          smx_tensor_of(target, SMX_I64, 1, shape, NULL),
                          smx_tensor_of(o.class_weight, SMX_F32, 1, shape + 1, NULL),
                          smx_tensor_of(loss, SMX_F32, 1, shape, NULL),
                          smx_tensor_of(dx, SMX_F32, 2, shape, NULL),
                          smx_tensor_of(o.lse, SMX_F32, 1, shape, NULL),
                          smx_tensor_of(reduced, SMX_F32, 0, shape, NULL)};
  const smx_tensor *in[] = {tensors, tensors + 1, NULL, o.class_weight ? tensors + 2 : NULL};
  const smx_tensor *out[] = {tensors + 3, dx ? tensors + 4 : NULL,     o.lse ? tensors + 5 : NULL, NULL, NULL,
                             NULL,        reduced ? tensors + 6 : NULL};
  return operator_forward(op, ctx, given, 4, in, 7, out);
}
