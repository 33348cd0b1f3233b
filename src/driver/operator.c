/* driver/operator.c - a call of an operator: checks everything, then makes a job that runs its
 * rows. */
#include "operator.h"
#include "direct.h"
#include "operation.h"
#include "row/row.h"
#include "tensors.h"
#include <stdio.h>
#include <string.h>

/* ---- the job ---- */

static job_port port_of(const checked *k, const smx_port *port, const smx_view *v, bool is_f64) {
  const bool one = port->shape == SMX_SHAPE_ROW;
  job_port p = {.present = true,
                .full = !one && port->shape != SMX_SHAPE_K,
                .whole = (port->flags & SMX_PORT_INT) != 0,
                .data = v->data};
  p.store = row_store_of(v->dtype), p.bytes = smx_dtype_bytes(v->dtype);
  p.axis = p.length = 1;
  for (int32_t d = 0, row = 0; d < v->ndim; d++) {
    if (one || d != k->axis) {
      p.outer[row++] = v->strides[d];
      continue;
    }
    p.axis = v->shape[d] > 1 ? v->strides[d] : 1;
    p.length = v->shape[d];
  }
  /* where column 0 would be */
  if (p.full && p.data && k->first)
    p.data = (char *)((uintptr_t)p.data - (uintptr_t)(k->first * p.axis * p.bytes));
  p.same = p.store == (p.whole ? STORE_I64 : is_f64 ? STORE_F64 : STORE_F32);
  p.direct = p.same && p.axis == 1;
  return p;
}

static void job_shape(job *j, const checked *k, smx_context *ctx) {
  memset(j, 0, offsetof(job, src));
  for (int p = 0; p < ROW_SRC; p++) j->src[p].present = false;
  for (int p = 0; p < ROW_DST; p++) j->dst[p].present = false;
  j->ctx = ctx, j->n = k->n, j->rows = 1, j->dims = k->row_ndim;
  for (int32_t d = 0; d < k->row_ndim; d++) j->rows *= j->dim[d] = k->row_shape[d];
  j->call.params = k->params.value;
  j->call.on_empty = smx_context_on_empty(ctx);
  j->call.on_inf = smx_context_on_inf(ctx);
  j->call.first_empty = -1;
  j->call.share = j->call.share_other = 1;
}

static bool any_double(const smx_view *v, const bool *has, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    if (has[i] && smx_same_dtype(v[i].dtype, SMX_F64)) return true;
  return false;
}

static void add_inputs(job *j, const checked *k, job_port *offsets) {
  for (int32_t i = 0; i < k->op->input_count; i++) {
    if (!k->has_in[i]) continue;
    if (k->op->inputs[i].shape != SMX_SHAPE_OFFSETS) {
      j->src[i] = port_of(k, k->op->inputs + i, k->in + i, j->is_f64);
      continue;
    }
    *offsets = (job_port){.present = true,
                          .data = k->in[i].data,
                          .store = row_store_of(k->in[i].dtype),
                          .bytes = smx_dtype_bytes(k->in[i].dtype),
                          .axis = k->in[i].strides[0]};
    j->offsets = offsets;
    j->segments = k->in[i].shape[0] - 1;
  }
}

static void take_kernel(operation *o) {
  job *const j = &o->job;
  const smx_isa *isa = smx_isa_current();
  const smx_kernels *kernels = j->is_f64 ? &isa->f64 : &isa->f32;
  const row_pair *pair = kernels->family[o->check.family][o->check.index];
  j->kernel = o->backward ? pair->backward : pair->forward;
  j->list = pair->list, j->work = pair->work;
  for (int p = 0; !row_has_program(j->kernel) && p < SMX_WHOLE_SCRATCH;
       p++) /* no row program: it needs the whole row, and room */
    j->dst[ROW_DST - 1 - p] = (job_port){.present = true, .full = true, .length = j->n, .axis = 1};
  j->io = kernels->io;
}

smx_status operation_error(const operation *o, smx_status status, int64_t empty) {
  const char *const name = o->check.op->name;
  if (status == SMX_ERR_NOMEM) return smx_fail(status, "%s: no memory for scratch rows", name);
  if (status == SMX_ERR_EMPTY && o->job.offsets)
    return smx_fail(status, "%s: row %lld, segment %lld has nothing valid", name, (long long)empty,
                    (long long)o->job.segment);
  if (status == SMX_ERR_EMPTY)
    return smx_fail(status, "%s: row %lld has nothing valid", name, (long long)empty);
  return status;
}

static smx_status run_rows(operation *o) {
  int64_t empty;
  job *const j = &o->job;
  const smx_status status = j->source ? j->source->run(j->source, j, &empty) : job_run(j, &empty);
  return operation_error(o, status, empty);
}

/* ---- losses: targets and reductions ---- */

static double param_named(const checked *k, const char *name) {
  for (int32_t i = 0; i < k->op->param_count; i++)
    if (!strcmp(k->op->params[i].name, name)) return k->params.value[i];
  return 0;
}

/* Input w, one value for each class. */
static void take_classes(const checked *k, int32_t w, smx_targets *t) {
  t->weights = k->in[w].data, t->dtype = k->in[w].dtype, t->store = row_store_of(t->dtype);
  t->step = k->in[w].strides[k->axis] * smx_dtype_bytes(t->dtype);
  t->first = k->first, t->held = k->shape[k->axis];
}

/* What targets are checked with, and the weights of classes that they count, if there are any. */
static smx_targets targets_of(const checked *k, const job *j) {
  smx_targets t = {.classes = j->n, .is_f64 = j->is_f64};
  t.io = j->is_f64 ? smx_isa_current()->f64.io : smx_isa_current()->f32.io;
  for (int32_t w = 0; w < k->op->input_count; w++)
    if (k->op->inputs[w].flags & SMX_PORT_WEIGHT && k->has_in[w]) take_classes(k, w, &t);
  return t;
}

/* Values of classes that are at least 0. A NaN is seen in the results. */
static smx_status check_classes(const checked *k, const smx_targets *like) {
  for (int32_t w = 0; w < k->op->input_count; w++) {
    smx_targets t = *like;
    double value;
    if (!(k->op->inputs[w].flags & SMX_PORT_NOT_NEGATIVE) || !k->has_in[w]) continue;
    take_classes(k, w, &t);
    const int64_t y = smx_weights_negative(&t, &value);
    if (y >= 0)
      return smx_fail(SMX_ERR_PARAM, "%s: %s: class %lld has %g, not at least 0", k->op->name,
                      k->op->inputs[w].name, (long long)y, value);
  }
  return SMX_OK;
}

/* A mean that is about something else than rows. */
static void count_otherwise(const checked *k, const job *j, counted *c) {
  const smx_op *op = k->op;
  const smx_view *mask = NULL, *whole = NULL;
  for (int32_t i = 0; i < op->param_count; i++) {
    const smx_mean about = smx_mean_of(op->params + i, k->params.value[i]);
    if (about != SMX_MEAN_ROWS) c->about = about;
  }
  for (int32_t i = 0; c->about != SMX_MEAN_ROWS && i < op->input_count; i++) {
    if (k->has_in[i] && (op->inputs[i].flags & SMX_PORT_MASK)) mask = k->in + i;
    if (k->has_in[i] && (op->inputs[i].flags & SMX_PORT_INT)) whole = k->in + i;
  }
  if (c->about == SMX_MEAN_ELEMENTS)
    c->total = smx_elements_kept(mask, k->axis, whole, j->rows, k->first, k->shape[k->axis]);
  if (c->about != SMX_MEAN_SETS) return;
  c->set = whole;
  c->other = smx_rows_other(whole);
  c->total -= c->other;
}

static smx_status check_lengths(const checked *k, int64_t n) {
  smx_status status = SMX_OK;
  for (int32_t i = 0; status == SMX_OK && i < k->op->input_count; i++)
    if ((k->op->inputs[i].flags & SMX_PORT_LENGTH) && k->has_in[i])
      status = smx_lengths_check(LABEL("", k->op->inputs[i].name), k->in + i, n);
  return status;
}

/* Checks weights, lengths and targets, and counts what the rows count together. */
static smx_status check_targets(operation *o) {
  const checked *const k = &o->check;
  const job *const j = &o->job;
  const smx_op *const op = k->op;
  counted *const c = &o->counted;
  smx_targets t = targets_of(k, j);
  smx_status status = check_classes(k, &t);
  if (status == SMX_OK) status = check_lengths(k, j->n);
  *c = (counted){.total = (double)j->rows};
  o->targets.index = NULL;
  for (int32_t i = 0; status == SMX_OK && i < op->input_count; i++) {
    if (!(op->inputs[i].flags & SMX_PORT_TARGET) || !k->has_in[i]) continue;
    t.what = LABEL("", op->inputs[i].name), t.index = k->in + i;
    t.ignore = (int64_t)param_named(k, "ignore_index");
    o->targets = t;
    return smx_targets_check(&t, &c->total);
  }
  if (status == SMX_OK) count_otherwise(k, j, c);
  return status;
}

static smx_reduction reduction_of(const checked *k) { return (smx_reduction)param_named(k, "reduction"); }

/* The output that is one value for all rows, or -1. */
static int32_t scalar_output(const checked *k) {
  for (int32_t o = 0; o < k->op->output_count; o++)
    if (k->has_out[o] && k->op->outputs[o].shape == SMX_SHAPE_SCALAR) return o;
  return -1;
}

void operation_share(operation *o) {
  const smx_reduction how = reduction_of(&o->check);
  const counted *const c = &o->counted;
  if (o->backward) return; /* the upstream gradients say it */
  o->job.call.share = smx_share(how, c->total);
  o->job.call.share_other = smx_share(how, c->about == SMX_MEAN_SETS ? c->other : c->total);
}

/* The rows run with the first output in memory of their own, in order. */
smx_status operation_open(operation *o) {
  const checked *const k = &o->check;
  job *const j = &o->job;
  const int64_t bytes = j->is_f64 ? 8 : 4;
  o->losses = NULL;
  o->scalar = o->backward ? -1 : scalar_output(k);
  if (o->scalar < 0) return SMX_OK;
  o->losses = smx_alloc(j->ctx, (size_t)(j->rows * bytes + 1));
  if (!o->losses) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for the losses of the rows", k->op->name);
  o->loss = j->dst[0];
  j->dst[0] =
      (job_port){.present = true, .direct = true, .data = o->losses, .bytes = bytes, .length = 1, .axis = 1};
  j->dst[0].store = j->is_f64 ? STORE_F64 : STORE_F32;
  for (int64_t d = k->row_ndim - 1, step = 1; d >= 0; step *= k->row_shape[d--]) j->dst[0].outer[d] = step;
  return SMX_OK;
}

static void put_reduced(operation *o) {
  union {
    float f;
    double d;
  } value;
  const checked *const k = &o->check;
  const job *const j = &o->job;
  const counted *const c = &o->counted;
  const smx_reduction how = reduction_of(k);
  const double v = c->about == SMX_MEAN_SETS
                       ? smx_reduced_sets(how, o->losses, c->set, j->rows, c->total, c->other, j->is_f64)
                       : smx_reduced(how, o->losses, j->rows, c->total, j->is_f64);
  if (j->is_f64) value.d = v;
  else value.f = (float)v;
  j->io->store(row_store_of(k->out[o->scalar].dtype), &value, 1, k->out[o->scalar].data, 1);
}

void operation_close(operation *o, smx_status status) {
  const checked *const k = &o->check;
  const job *const j = &o->job;
  for (int64_t r = 0; o->losses && r < j->rows && status == SMX_OK; r++) {
    int64_t at = 0;
    for (int64_t d = k->row_ndim - 1, left = r; d >= 0; left /= k->row_shape[d--])
      at += left % k->row_shape[d] * o->loss.outer[d];
    j->io->store(o->loss.store, o->losses + r * (j->is_f64 ? 8 : 4), 1, o->loss.data + at * o->loss.bytes, 1);
  }
  if (o->losses && status == SMX_OK) put_reduced(o);
  smx_free(j->ctx, o->losses);
  o->losses = NULL;
}

smx_status operation_forward(operation *o, const operation_columns *columns, const smx_op *op,
                             smx_context *ctx, const smx_params *params, int32_t n_in,
                             const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out) {
  checked *const k = &o->check;
  job *const j = &o->job;
  smx_status status = smx_check_params(k, "smx_forward", op, params);
  if (columns) k->part = true, k->n = columns->n, k->first = columns->first;
  o->backward = false;
  if (status == SMX_OK) status = smx_check_count(op, "n_in", n_in, op->input_count);
  if (status == SMX_OK) status = smx_check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK) status = smx_check_x(k, n_in, in, true);
  if (status == SMX_OK) status = smx_check_inputs(k, n_in, in, false, true);
  if (status == SMX_OK) status = smx_check_outputs(k, "", OUTPUTS, n_out, out, k->has_out, k->out);
  if (status == SMX_OK) status = smx_check_forward_alias(k);
  if (status != SMX_OK) return status;
  job_shape(j, k, ctx);
  j->source = o->source;
  j->is_f64 = any_double(k->in, k->has_in, op->input_count);
  j->in_place = op->flags & SMX_OP_INPLACE ? 0 : -1;
  add_inputs(j, k, &o->offsets);
  for (int32_t i = 0; i < op->output_count; i++)
    if (k->has_out[i] && op->outputs[i].shape != SMX_SHAPE_SCALAR)
      j->dst[i] = port_of(k, op->outputs + i, k->out + i, j->is_f64);
  take_kernel(o);
  return check_targets(o);
}

smx_status operation_backward(operation *o, const operation_columns *columns, const smx_op *op,
                              smx_context *ctx, const smx_params *params, int32_t n_in,
                              const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                              const smx_tensor *const *dout, const smx_tensor *const *din) {
  checked *const k = &o->check;
  job *const j = &o->job;
  smx_status status = smx_check_params(k, "smx_backward", op, params);
  if (columns) k->part = true, k->n = columns->n, k->first = columns->first;
  o->backward = true;
  if (status == SMX_OK && !(op->flags & SMX_OP_BACKWARD))
    status = smx_fail(SMX_ERR_NO_BACKWARD, "%s: has no gradient", op->name);
  if (status == SMX_OK) status = smx_check_count(op, "n_in", n_in, op->input_count);
  if (status == SMX_OK) status = smx_check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK) status = smx_check_backward_axis(k, n_in, in, n_out, dout);
  if (status == SMX_OK) status = smx_check_inputs(k, n_in, in, true, true);
  if (status == SMX_OK) status = smx_check_outputs(k, "", SAVED, n_out, out, k->has_out, k->out);
  if (status == SMX_OK) status = smx_check_outputs(k, "d", UPSTREAM, n_out, dout, k->has_dout, k->dout);
  if (status == SMX_OK) status = smx_check_outputs(k, "d", GRADIENTS, n_in, din, k->has_din, k->din);
  if (status == SMX_OK) status = smx_check_backward_alias(k);
  if (status != SMX_OK) return status;
  job_shape(j, k, ctx);
  j->source = o->source;
  j->is_f64 = any_double(k->in, k->has_in, op->input_count) ||
              any_double(k->out, k->has_out, op->output_count) ||
              any_double(k->dout, k->has_dout, op->output_count);
  j->in_place = op->outputs[0].shape == SMX_SHAPE_FULL && op->inputs[0].shape == SMX_SHAPE_FULL ? SRC_DY : -1;
  add_inputs(j, k, &o->offsets);
  for (int32_t i = 0; i < op->output_count && i < ROW_OUTS; i++) {
    if (k->has_out[i]) j->src[SRC_Y + i] = port_of(k, op->outputs + i, k->out + i, j->is_f64);
    if (k->has_dout[i]) j->src[SRC_DY + i] = port_of(k, op->outputs + i, k->dout + i, j->is_f64);
  }
  for (int32_t g = 0; g < op->input_count; g++)
    if (k->has_din[g]) j->dst[g] = port_of(k, op->inputs + g, k->din + g, j->is_f64);
  if (!k->has_din[0]) /* computed and discarded */
    j->dst[0] = (job_port){.present = true, .full = true, .length = j->n, .axis = 1};
  take_kernel(o);
  return check_targets(o);
}

static smx_status run(operation *o) {
  smx_status status = operation_open(o);
  if (status != SMX_OK) return status;
  operation_share(o);
  status = run_rows(o);
  operation_close(o, status);
  return status;
}

static smx_status no_call(const char *verb) {
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", verb);
}
smx_status operator_forward_from(const job_source *source, const smx_op *op, smx_context *ctx,
                                 const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                 int32_t n_out, const smx_tensor *const *out) {
  operation *const o = smx_alloc(ctx, sizeof *o);
  if (!o) return no_call("smx_forward");
  o->source = source;
  smx_status status = operation_forward(o, NULL, op, ctx, params, n_in, in, n_out, out);
  if (status == SMX_OK) status = run(o);
  smx_free(ctx, o);
  return status;
}
smx_status operator_backward_from(const job_source *source, const smx_op *op, smx_context *ctx,
                                  const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                  int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                                  const smx_tensor *const *din) {
  operation *const o = smx_alloc(ctx, sizeof *o);
  if (!o) return no_call("smx_backward");
  o->source = source;
  smx_status status = operation_backward(o, NULL, op, ctx, params, n_in, in, n_out, out, dout, din);
  if (status == SMX_OK) status = run(o);
  smx_free(ctx, o);
  return status;
}

/* NULL: an operator on rows, or none of this library. */
static const tensor_functions *functions_of(const smx_op *op) {
  int family;
  size_t index;
  if (!op || !smx_op_place(op, &family, &index) || family < SMX_FAMILY_COUNT) return NULL;
  return smx_tensor_functions(family, index);
}

smx_status operator_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                            const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out) {
  const direct_end end = direct_forward(op, ctx, params ? params->axis : -1, params, n_in, in, n_out, out);
  if (end != DIRECT_NOT) return direct_status(op, end);
  const tensor_functions *f = functions_of(op);
  if (f) return tensors_forward(op, f, ctx, params, n_in, in, n_out, out);
  return operator_forward_from(NULL, op, ctx, params, n_in, in, n_out, out);
}

smx_status operator_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                             const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                             const smx_tensor *const *dout, const smx_tensor *const *din) {
  const direct_end end =
      direct_backward(op, ctx, params ? params->axis : -1, params, n_in, in, n_out, out, dout, din);
  if (end != DIRECT_NOT) return direct_status(op, end);
  const tensor_functions *f = functions_of(op);
  if (f) return tensors_backward(op, f, ctx, params, n_in, in, n_out, out, dout, din);
  return operator_backward_from(NULL, op, ctx, params, n_in, in, n_out, out, dout, din);
}

smx_status operator_infer(const smx_op *op, const smx_params *params, int32_t n_in,
                          const smx_tensor *const *in, int32_t n_out, smx_shape *out) {
  checked check, *k = &check;
  const tensor_functions *f = functions_of(op);
  if (f) return tensors_infer(op, f, params, n_in, in, n_out, out);
  smx_status status = smx_check_params(k, "smx_infer", op, params);
  if (status == SMX_OK) status = smx_check_x(k, n_in, in, false);
  if (status == SMX_OK) status = smx_check_inputs(k, n_in, in, false, false);
  if (status == SMX_OK) status = smx_check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK && n_out > 0 && !out) status = smx_fail(SMX_ERR_NULL, "%s: out is NULL", op->name);
  for (int32_t o = 0; o < n_out && status == SMX_OK; o++) {
    out[o].dtype = op->outputs[o].flags & SMX_PORT_INT ? SMX_I64 : k->in[0].dtype;
    memcpy(out[o].dim, smx_shape_of(k, op->outputs + o, &out[o].ndim), sizeof out[o].dim);
  }
  return status;
}

/* ---- softmax and its kin, for directories whose arithmetic is made of them ---- */

static smx_status along(int row, smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  smx_params params;
  const direct_end end = direct_forward(row_table + row, ctx, axis, NULL, 1, &x, 1, &y);
  if (end != DIRECT_NOT) return direct_status(row_table + row, end);
  smx_params_init(row_table + row, &params);
  params.axis = axis;
  return operator_forward_from(NULL, row_table + row, ctx, &params, 1, &x, 1, &y);
}
static smx_status along_backward(int row, smx_context *ctx, int32_t axis, const smx_tensor *y,
                                 const smx_tensor *dy, const smx_tensor *dx) {
  const smx_tensor *x = NULL; /* needs y and dy only */
  smx_params params;
  const direct_end end = direct_backward(row_table + row, ctx, axis, NULL, 1, &x, 1, &y, &dy, &dx);
  if (end != DIRECT_NOT) return direct_status(row_table + row, end);
  smx_params_init(row_table + row, &params);
  params.axis = axis;
  return operator_backward_from(NULL, row_table + row, ctx, &params, 1, &x, 1, &y, &dy, &dx);
}

smx_status softmax_along(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  return along(ROW_softmax, ctx, axis, x, y);
}
smx_status log_softmax_along(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  return along(ROW_log_softmax, ctx, axis, x, y);
}
smx_status logsumexp_along(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *lse) {
  return along(ROW_logsumexp, ctx, axis, x, lse);
}
smx_status softmax_backward_along(smx_context *ctx, int32_t axis, const smx_tensor *y, const smx_tensor *dy,
                                  const smx_tensor *dx) {
  return along_backward(ROW_softmax, ctx, axis, y, dy, dx);
}
smx_status log_softmax_backward_along(smx_context *ctx, int32_t axis, const smx_tensor *y,
                                      const smx_tensor *dy, const smx_tensor *dx) {
  return along_backward(ROW_log_softmax, ctx, axis, y, dy, dx);
}
