/* api/pooling.c - the functions of softmax/pooling.h: operators of src/pool with their parameters
 * as fields. */
#include <string.h>

#include "base/enter.h"
#include "driver/operator.h"

enum { AXES = 3 };

/* By dimension, the depth first. */
static const char *const kernels[AXES] = {"kernel_d", "kernel_h", "kernel"},
                         *const strides[AXES] = {"stride_d", "stride_h", "stride"},
                         *const paddings[AXES] = {"padding_d", "padding_h", "padding"},
                         *const dilations[AXES] = {"dilation_d", "dilation_h", "dilation"};

static bool has(const smx_op *op, const char *name) {
  for (int32_t i = 0; i < op->param_count; i++)
    if (!strcmp(op->params[i].name, name)) return true;
  return false;
}

/* neutral: what an operator without the parameter does. */
static smx_status set(const smx_op *op, smx_params *params, const char *name, int64_t value,
                      int64_t neutral) {
  return value == neutral && !has(op, name) ? SMX_OK : smx_params_set(op, params, name, (double)value);
}

static smx_status refuse(const smx_op *op, const char *field, int32_t i, int64_t value, int least) {
  return smx_fail(SMX_ERR_PARAM, "%s: window.%s[%d] is %lld, not %d or more", op->name, field, (int)i,
                  (long long)value, least);
}

/* Dimension i of the windows. Numbers by which the operator means another dimension's are not let
 * through. */
static smx_status set_axis(const smx_op *op, const smx_window *w, int32_t i, int32_t spatial,
                           smx_params *params) {
  const int32_t a = AXES - spatial + i;
  const int64_t kernel = i > 0 && w->kernel[i] == 0 ? w->kernel[0] : w->kernel[i];
  const int64_t stride = w->stride[i] == 0 ? kernel : w->stride[i];
  if (kernel < 1) return refuse(op, "kernel", i, kernel, 1);
  if (stride < 1) return refuse(op, "stride", i, stride, 0);
  const int64_t step = i > 0 && w->dilation[i] == 0 ? w->dilation[0] : w->dilation[i];
  if (w->padding[i] < 0) return refuse(op, "padding", i, w->padding[i], 0);
  if (step < 0) return refuse(op, "dilation", i, step, 0);
  smx_status status = set(op, params, kernels[a], kernel, -1);
  if (status == SMX_OK) status = set(op, params, strides[a], stride, kernel);
  if (status == SMX_OK) status = set(op, params, paddings[a], w->padding[i], 0);
  return status == SMX_OK ? set(op, params, dilations[a], step == 0 ? 1 : step, 1) : status;
}

static smx_status window_params(const smx_op *op, const smx_window *w, smx_params *params) {
  smx_status status = smx_params_init(op, params);
  if (status != SMX_OK) return status;
  if (!w) return smx_fail(SMX_ERR_NULL, "%s: window is NULL", op->name);
  if (w->size != sizeof *w)
    return smx_fail(SMX_ERR_STRUCT, "%s: window.size is %zu, not %zu", op->name, w->size, sizeof *w);
  if (!has(op, "spatial") || !has(op, "kernel"))
    return smx_fail(SMX_ERR_PARAM, "%s: it has no windows", op->name);
  const int32_t spatial = w->spatial == 0 ? 2 : w->spatial;
  status = smx_params_set(op, params, "spatial", spatial);
  for (int32_t i = 0; i < spatial && status == SMX_OK; i++) status = set_axis(op, w, i, spatial, params);
  return status == SMX_OK ? set(op, params, "ceil", w->ceil != 0, 0) : status;
}

smx_status smx_window_params(const smx_op *op, const smx_window *window, smx_params *params) {
  SMX_ENTER(NULL);
  return window_params(op, window, params);
}

smx_status smx_window_outputs(const smx_window *window, const smx_tensor *x, smx_shape *y) {
  SMX_ENTER(NULL);
  const smx_op *op = smx_op_find("max_pool");
  smx_params params;
  smx_status status = window_params(op, window, &params);
  if (status == SMX_OK && !y) status = smx_fail(SMX_ERR_NULL, "smx_window_outputs: y is NULL");
  return status == SMX_OK ? operator_infer(op, &params, 1, &x, 1, y) : status;
}

/* An operator whose parameter `own` is not one of its windows. */
static smx_status forward(const char *name, smx_context *ctx, const smx_window *window, const char *own,
                          double value, const smx_tensor *x, int32_t n_out, const smx_tensor *const *out) {
  const smx_op *op = smx_op_find(name);
  smx_params params;
  smx_status status = window_params(op, window, &params);
  if (status == SMX_OK && own) status = smx_params_set(op, &params, own, value);
  return status == SMX_OK ? operator_forward(op, ctx, &params, 1, &x, n_out, out) : status;
}

static smx_status backward(const char *name, smx_context *ctx, const smx_window *window, const char *own,
                           double value, const smx_tensor *x, const smx_tensor *y, const smx_tensor *dy,
                           const smx_tensor *dx) {
  const smx_op *op = smx_op_find(name);
  smx_params params;
  smx_status status = window_params(op, window, &params);
  if (status == SMX_OK && own) status = smx_params_set(op, &params, own, value);
  return status == SMX_OK ? operator_backward(op, ctx, &params, 1, &x, 1, &y, &dy, &dx) : status;
}

smx_status smx_max_pool(smx_context *ctx, const smx_window *window, const smx_tensor *x, const smx_tensor *y,
                        const smx_tensor *index) {
  SMX_ENTER(ctx);
  const smx_tensor *out[] = {y, index};
  return forward("max_pool", ctx, window, NULL, 0, x, 2, out);
}
smx_status smx_max_pool_backward(smx_context *ctx, const smx_window *window, const smx_tensor *x,
                                 const smx_tensor *dy, const smx_tensor *dx) {
  SMX_ENTER(ctx);
  return backward("max_pool", ctx, window, NULL, 0, x, NULL, dy, dx);
}

smx_status smx_avg_pool(smx_context *ctx, const smx_window *window, int32_t padded, const smx_tensor *x,
                        const smx_tensor *y) {
  SMX_ENTER(ctx);
  return forward("avg_pool", ctx, window, "count", padded != 0, x, 1, &y);
}
smx_status smx_avg_pool_backward(smx_context *ctx, const smx_window *window, int32_t padded,
                                 const smx_tensor *x, const smx_tensor *dy, const smx_tensor *dx) {
  SMX_ENTER(ctx);
  return backward("avg_pool", ctx, window, "count", padded != 0, x, NULL, dy, dx);
}

smx_status smx_soft_pool(smx_context *ctx, const smx_window *window, double beta, const smx_tensor *x,
                         const smx_tensor *y) {
  SMX_ENTER(ctx);
  return forward("soft_pool", ctx, window, "beta", beta, x, 1, &y);
}
smx_status smx_soft_pool_backward(smx_context *ctx, const smx_window *window, double beta,
                                  const smx_tensor *x, const smx_tensor *y, const smx_tensor *dy,
                                  const smx_tensor *dx) {
  SMX_ENTER(ctx);
  return backward("soft_pool", ctx, window, "beta", beta, x, y, dy, dx);
}

/* A field of 0 leaves the default. */
static void give(const smx_op *op, smx_params *params, const char *name, double value, smx_status *status) {
  if (*status == SMX_OK && value != 0) *status = smx_params_set(op, params, name, value);
}

static smx_status nms_params(const smx_nms_options *o, const smx_op **op, smx_params *params) {
  const bool soft = o && o->size == sizeof *o && o->method != SMX_NMS_HARD;
  *op = smx_op_find(soft ? "soft_nms" : "nms");
  smx_status status = smx_params_init(*op, params);
  if (!o || status != SMX_OK) return status;
  if (o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "nms: options.size is %zu, not %zu", o->size, sizeof *o);
  give(*op, params, "method", o->method, &status);
  if (o->inclusive) give(*op, params, "inclusive", 1, &status);
  give(*op, params, "threshold", o->threshold, &status);
  if (soft) give(*op, params, "sigma", o->sigma, &status);
  give(*op, params, "least", o->least, &status);
  give(*op, params, "most", (double)o->most, &status);
  give(*op, params, "pixels", o->pixels != 0, &status);
  return status;
}

smx_status smx_nms(smx_context *ctx, const smx_nms_options *options, const smx_tensor *boxes,
                   const smx_tensor *score, const smx_tensor *label, const smx_tensor *index,
                   const smx_tensor *count, const smx_tensor *kept) {
  SMX_ENTER(ctx);
  const smx_op *op;
  const smx_tensor *in[] = {boxes, score, label}, *out[] = {index, count, kept};
  smx_params params;
  const smx_status status = nms_params(options, &op, &params);
  return status == SMX_OK ? operator_forward(op, ctx, &params, 3, in, 3, out) : status;
}
