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

/* The options of a call, with what a shorter struct lacks, as parameters. */
static smx_status take_options(const char *verb, const smx_cross_entropy_options *options,
                               smx_cross_entropy_options *o, smx_params *params) {
  const smx_op *op = loss_table + LOSS_cross_entropy;
  const size_t before = offsetof(smx_cross_entropy_options, ignore_zero);
  *o = (smx_cross_entropy_options){.size = sizeof *o};
  if (!options) return SMX_OK;
  if (options->size != sizeof *o && options->size != before)
    return smx_fail(SMX_ERR_STRUCT, "%s: options.size is %zu, not %zu", verb, options->size, sizeof *o);
  memcpy(o, options, options->size);
  smx_params_init(op, params);
  set(params, "ignore_index", (double)o->ignore_index);
  if (o->ignore_zero && !o->ignore_index) smx_params_set(op, params, "ignore_index", 0);
  set(params, "label_smoothing", (double)o->label_smoothing);
  set(params, "z_weight", (double)o->z_weight);
  set(params, "softcap", (double)o->softcap);
  set(params, "temperature", (double)o->temperature);
  set(params, "reduction", o->reduction);
  return SMX_OK;
}

smx_status smx_cross_entropy_params(const smx_cross_entropy_options *options, smx_params *params) {
  SMX_ENTER(NULL);
  smx_cross_entropy_options o;
  static const char verb[] = "smx_cross_entropy_params";
  if (!params) return smx_fail(SMX_ERR_NULL, "%s: params is NULL", verb);
  smx_params_init(loss_table + LOSS_cross_entropy, params);
  return take_options(verb, options, &o, params);
}

smx_status smx_cross_entropy_f32(smx_context *ctx, size_t rows, size_t n, const float *x,
                                 const int64_t *target, const smx_cross_entropy_options *options, float *loss,
                                 float *dx, float *reduced) {
  SMX_ENTER(ctx);
  const smx_op *op = loss_table + LOSS_cross_entropy;
  smx_cross_entropy_options o;
  smx_params params;
  const smx_status status = take_options("smx_cross_entropy_f32", options, &o, &params);
  if (status != SMX_OK) return status;
  if (rows > INT64_MAX || n > INT64_MAX)
    return smx_fail(SMX_ERR_SHAPE, "smx_cross_entropy_f32: rows * n = %zu * %zu overflows", rows, n);
  if (rows && !loss) return smx_fail(SMX_ERR_NULL, "smx_cross_entropy_f32: loss is NULL");
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

smx_status smx_linear_cross_entropy_f32(smx_context *ctx, size_t rows, size_t classes, size_t width,
                                        const float *h, const float *w, const float *bias,
                                        const int64_t *target, const smx_cross_entropy_options *options,
                                        float *loss, float *dh, float *dw, float *dbias, float *reduced) {
  SMX_ENTER(ctx);
  static const char verb[] = "smx_linear_cross_entropy_f32";
  smx_cross_entropy_options o;
  smx_params params;
  const smx_status status = take_options(verb, options, &o, &params);
  if (status != SMX_OK) return status;
  if (rows > INT64_MAX || classes > INT64_MAX || width > INT64_MAX)
    return smx_fail(SMX_ERR_SHAPE, "%s: %zu rows, %zu classes and %zu columns overflow", verb, rows, classes,
                    width);
  if (rows && !loss) return smx_fail(SMX_ERR_NULL, "%s: loss is NULL", verb);
  int64_t hs[2] = {(int64_t)rows, (int64_t)width}, ws[2] = {(int64_t)classes, (int64_t)width};
  const smx_tensor t[] = {
      smx_tensor_of(h, SMX_F32, 2, hs, NULL),      smx_tensor_of(w, SMX_F32, 2, ws, NULL),
      smx_tensor_of(bias, SMX_F32, 1, ws, NULL),   smx_tensor_of(dh, SMX_F32, 2, hs, NULL),
      smx_tensor_of(dw, SMX_F32, 2, ws, NULL),     smx_tensor_of(dbias, SMX_F32, 1, ws, NULL),
      smx_tensor_of(target, SMX_I64, 1, hs, NULL), smx_tensor_of(o.class_weight, SMX_F32, 1, ws, NULL),
      smx_tensor_of(loss, SMX_F32, 1, hs, NULL),   smx_tensor_of(o.lse, SMX_F32, 1, hs, NULL),
      smx_tensor_of(reduced, SMX_F32, 0, hs, NULL)};
  const smx_linear linear = {.size = sizeof linear,
                             .h = t,
                             .w = t + 1,
                             .bias = bias ? t + 2 : NULL,
                             .dh = dh ? t + 3 : NULL,
                             .dw = dw ? t + 4 : NULL,
                             .dbias = dbias ? t + 5 : NULL};
  const smx_tensor *in[] = {NULL, t + 6, NULL, o.class_weight ? t + 7 : NULL};
  const smx_tensor *out[] = {t + 8, NULL, o.lse ? t + 9 : NULL, NULL, NULL, NULL, reduced ? t + 10 : NULL};
  return smx_linear_forward(loss_table + LOSS_cross_entropy, ctx, options ? &params : NULL, &linear, 4, in, 7,
                            out);
}
