/* api/run.c - the two verbs that run every operator, and smx_infer: check everything, then hand a job to the driver. */
#include "verbs.h"
#include "cpu/fpenv.h"
#include "reduce.h"
#include <stdio.h>
#include <string.h>

/* A call as the verbs see it, being checked. */
typedef struct checked {
  const smx_op *op;
  int room; /* where its kernels are */
  size_t index;
  smx_params params;
  int32_t axis, ndim;
  int64_t shape[SMX_MAX_DIMS]; /* of x */
  int32_t row_ndim;
  int64_t row_shape[SMX_MAX_DIMS]; /* without the axis */
  int64_t k_shape[SMX_MAX_DIMS];   /* with the parameter k in place of the axis */
  bool has_in[SMX_MAX_PORTS], has_out[SMX_MAX_PORTS], has_dout[SMX_MAX_PORTS], has_din[SMX_MAX_PORTS];
  smx_view in[SMX_MAX_PORTS], out[SMX_MAX_PORTS], dout[SMX_MAX_PORTS], din[SMX_MAX_PORTS]; /* set where there is one */
} checked;

#define LABEL(prefix_, port_) ((smx_label){k->op->name, prefix_, port_})

static smx_status check_params(checked *k, const smx_op *op, const smx_params *params) {
  memset(k, 0, offsetof(checked, in)); /* not the views, which are large */
  if (!op) return smx_fail(SMX_ERR_NULL, "smx_forward: op is NULL");
  if (!smx_op_place(op, &k->room, &k->index)) return smx_fail(SMX_ERR_NO_OP, "smx_forward: op is not an operator of this library");
  k->op = op;
  if (!params) return smx_params_init(op, &k->params);
  if (params->size != sizeof *params)
    return smx_fail(SMX_ERR_STRUCT, "%s: params.size is %zu, not %zu", op->name, params->size, sizeof *params);
  k->params = *params;
  for (int32_t i = 0; i < op->param_count; i++) {
    smx_status status = smx_param_check(op, op->params + i, params->value[i]);
    if (status != SMX_OK) return status;
  }
  return SMX_OK;
}

/* The shape of the rows, from a tensor with the shape of x. */
static smx_status check_axis(checked *k, const smx_view *x, const char *name) {
  int32_t axis = k->params.axis;
  if (x->ndim == 0) return smx_fail(SMX_ERR_SHAPE, "%s: %s: ndim is 0, rows need an axis", k->op->name, name);
  if (axis < -x->ndim || axis >= x->ndim)
    return smx_fail(SMX_ERR_SHAPE, "%s: axis is %d, not %d..%d", k->op->name, (int)axis, -(int)x->ndim, (int)x->ndim - 1);
  k->axis = axis < 0 ? axis + x->ndim : axis;
  k->ndim = x->ndim;
  k->row_ndim = 0;
  for (int32_t d = 0; d < x->ndim; d++) {
    k->shape[d] = x->shape[d];
    if (d != k->axis) k->row_shape[k->row_ndim++] = x->shape[d];
  }
  int64_t n = x->shape[k->axis];
  memcpy(k->k_shape, k->shape, sizeof k->shape);
  for (int32_t i = 0; i < k->op->param_count; i++) {
    if (!strcmp(k->op->params[i].name, "k")) k->k_shape[k->axis] = (int64_t)k->params.value[i];
    if ((k->op->params[i].flags & SMX_PARAM_MAX_N) && k->params.value[i] > (double)n)
      return smx_fail(SMX_ERR_PARAM, "%s: %s: %g is more than the %lld elements of a row", k->op->name, k->op->params[i].name,
                      k->params.value[i], (long long)n);
  }
  return SMX_OK;
}

static const int64_t *shape_of(const checked *k, const smx_port *port, int32_t *ndim) {
  *ndim = port->shape == SMX_SHAPE_SCALAR ? 0 : port->shape == SMX_SHAPE_ROW ? k->row_ndim : k->ndim;
  return port->shape == SMX_SHAPE_ROW ? k->row_shape : port->shape == SMX_SHAPE_K ? k->k_shape : k->shape;
}

static smx_status check_dtype(const smx_port *port, const smx_view *v, smx_label what) {
  const bool mask = port->flags & SMX_PORT_MASK, whole = port->flags & SMX_PORT_INT;
  bool good = mask ? smx_is_mask(v->dtype) : whole ? smx_is_whole(v->dtype) : smx_is_float(v->dtype);
  if (good) return SMX_OK;
  const char *wanted = port->flags & SMX_PORT_MASK ? "bool or u8" : port->flags & SMX_PORT_INT ? "i32 or i64" : "f16, bf16, f32 or f64";
  return smx_fail(SMX_ERR_DTYPE, SMX_LABEL ": dtype is %s, not %s", SMX_LABEL_ARGS(what), smx_dtype_name(v->dtype), wanted);
}

static smx_status check_offsets(const checked *k, const smx_view *v, smx_label what, bool read) {
  int64_t n = k->shape[k->axis], before = 0;
  if (v->ndim != 1) return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": ndim is %d, not 1", SMX_LABEL_ARGS(what), (int)v->ndim);
  if (v->shape[0] < 1)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[0] is %lld, not at least 1", SMX_LABEL_ARGS(what), (long long)v->shape[0]);
  for (int64_t i = 0; read && i < v->shape[0]; i++) {
    const char *at = v->data + i * v->strides[0] * smx_dtype_bytes(v->dtype);
    int64_t o = smx_whole_at(at, smx_dtype_bytes(v->dtype));
    if (i == 0 && o != 0) return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": the first is %lld, not 0", SMX_LABEL_ARGS(what), (long long)o);
    if (o < before || o > n)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": number %lld is %lld, not %lld..%lld", SMX_LABEL_ARGS(what), (long long)i, (long long)o,
                      (long long)before, (long long)n);
    before = o;
  }
  if (read && before != n)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": the last is %lld, not the length of the axis, %lld", SMX_LABEL_ARGS(what),
                    (long long)before, (long long)n);
  return SMX_OK;
}

static smx_status same_shape(smx_label what, const smx_view *v, int32_t ndim, const int64_t *shape) {
  if (v->ndim != ndim) return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": ndim is %d, not %d", SMX_LABEL_ARGS(what), (int)v->ndim, (int)ndim);
  for (int32_t d = 0; d < ndim; d++)
    if (v->shape[d] != shape[d])
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld, not %lld", SMX_LABEL_ARGS(what), (int)d, (long long)v->shape[d],
                      (long long)shape[d]);
  return SMX_OK;
}

/* A column, as a FULL tensor that every row shares. */
static smx_status check_column(const checked *k, smx_label what, smx_view *v) {
  const int64_t step = v->ndim == 1 ? v->strides[0] : 0;
  smx_status status = same_shape(what, v, 1, k->shape + k->axis);
  if (status != SMX_OK) return status;
  v->ndim = k->ndim;
  memcpy(v->shape, k->shape, sizeof v->shape);
  memset(v->strides, 0, sizeof v->strides);
  v->strides[k->axis] = step;
  return SMX_OK;
}

/* A tensor for a port: exact for outputs and x, broadcast for other inputs. */
static smx_status check_tensor(checked *k, const smx_port *port, const smx_tensor *t, smx_label what, bool exact, bool data, smx_view *v) {
  smx_status status = smx_view_of(what, t, data, v);
  if (status == SMX_OK) status = check_dtype(port, v, what);
  if (status != SMX_OK) return status;
  if (port->shape == SMX_SHAPE_OFFSETS) return check_offsets(k, v, what, data);
  if (port->shape == SMX_SHAPE_COLUMN) return check_column(k, what, v);
  int32_t ndim;
  const int64_t *shape = shape_of(k, port, &ndim);
  return exact ? same_shape(what, v, ndim, shape) : smx_view_broadcast(what, v, ndim, shape);
}

static smx_status check_count(const smx_op *op, const char *what, int32_t n, int32_t most) {
  if (n >= 0 && n <= most) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, "%s: %s is %d, not 0..%d", op->name, what, (int)n, (int)most);
}

/* Of the inputs that exclude each other, one must be there. */
static smx_status check_either(const checked *k) {
  const smx_port *first = NULL, *given = NULL;
  for (int32_t i = 0; i < k->op->input_count; i++) {
    const smx_port *port = k->op->inputs + i;
    if (!(port->flags & SMX_PORT_EITHER)) continue;
    if (!first) first = port;
    if (!k->has_in[i]) continue;
    if (given) return smx_fail(SMX_ERR_PARAM, "%s: %s and %s exclude each other", k->op->name, given->name, port->name);
    given = port;
  }
  if (first && !given) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL, and so is what may stand for it", k->op->name, first->name);
  return SMX_OK;
}

/* The length of a row of an input of shape K is the parameter k, where that is 0. */
static smx_status take_k(checked *k, int32_t n_in, const smx_tensor *const *in) {
  for (int32_t i = 1; i < k->op->input_count && i < n_in; i++) {
    int32_t param = 0;
    if (k->op->inputs[i].shape != SMX_SHAPE_K || !in[i]) continue;
    while (strcmp(k->op->params[param].name, "k")) param++;
    const int32_t d = in[i]->ndim - (k->ndim - k->axis);
    if (k->params.value[param] != 0 || d < 0 || d >= in[i]->ndim || !in[i]->shape) continue;
    k->params.value[param] = (double)in[i]->shape[d];
    k->k_shape[k->axis] = in[i]->shape[d];
    return smx_param_check(k->op, k->op->params + param, k->params.value[param]);
  }
  return SMX_OK;
}

/* Inputs: all of them forward, those that are saved backward. */
static smx_status check_inputs(checked *k, int32_t n_in, const smx_tensor *const *in, bool backward, bool data) {
  const smx_op *op = k->op;
  smx_status status = check_count(op, "n_in", n_in, op->input_count);
  if (status == SMX_OK && n_in > 0 && !in) status = smx_fail(SMX_ERR_NULL, "%s: in is NULL", op->name);
  if (status == SMX_OK) status = take_k(k, n_in, in);
  for (int32_t i = 0; i < op->input_count && status == SMX_OK; i++) {
    const smx_port *port = op->inputs + i;
    const smx_tensor *t = i < n_in ? in[i] : NULL;
    bool read = !backward || (port->flags & SMX_PORT_SAVED);
    if (!t || !read) {
      if (read && !t && !(port->flags & SMX_PORT_OPTIONAL)) status = smx_fail(SMX_ERR_NULL, "%s: %s is NULL", op->name, port->name);
      continue;
    }
    status = check_tensor(k, port, t, LABEL("", port->name), i == 0, data, k->in + i);
    k->has_in[i] = true;
  }
  return status == SMX_OK ? check_either(k) : status;
}

/* What is checked as outputs are: outputs themselves, those that smx_backward reads, upstream gradients, gradients. */
typedef enum group { OUTPUTS, SAVED, UPSTREAM, GRADIENTS } group;

/* Whether a tensor of this port must be there; *wanted: whether it may be. */
static bool needed(group g, const smx_port *port, int32_t i, bool *wanted) {
  *wanted = g != SAVED || (port->flags & SMX_PORT_SAVED);
  if (g == UPSTREAM) return i == 0;
  return g != GRADIENTS && *wanted && !(port->flags & SMX_PORT_OPTIONAL);
}

static smx_status check_outputs(checked *k, const char *prefix, group g, int32_t n, const smx_tensor *const *t, bool *has, smx_view *v) {
  const smx_op *op = k->op;
  const smx_port *ports = g == GRADIENTS ? op->inputs : op->outputs;
  int32_t count = g == GRADIENTS ? op->input_count : op->output_count;
  for (int32_t i = 0; i < count; i++) {
    const smx_tensor *one = t && i < n ? t[i] : NULL;
    smx_label what = LABEL(prefix, ports[i].name);
    bool wanted, need = needed(g, ports + i, i, &wanted);
    if (!one && need) return smx_fail(SMX_ERR_NULL, SMX_LABEL " is NULL", SMX_LABEL_ARGS(what));
    if (!one || !wanted) continue;
    if (g == GRADIENTS && !(ports[i].flags & SMX_PORT_GRAD))
      return smx_fail(SMX_ERR_NO_BACKWARD, SMX_LABEL ": there is no gradient of this input", SMX_LABEL_ARGS(what));
    if (g == UPSTREAM && (i >= ROW_OUTS || (ports[i].flags & (SMX_PORT_INT | SMX_PORT_DX)) || ports[i].shape == SMX_SHAPE_SCALAR))
      return smx_fail(SMX_ERR_NO_BACKWARD, SMX_LABEL ": this output has no upstream gradient", SMX_LABEL_ARGS(what));
    smx_status status = check_tensor(k, ports + i, one, what, true, true, v + i);
    if (status != SMX_OK) return status;
    if ((g == OUTPUTS || g == GRADIENTS) && !smx_view_injective(v + i))
      return smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": two of its elements share an address", SMX_LABEL_ARGS(what));
    has[i] = true;
  }
  return SMX_OK;
}

/* ---- aliasing ---- */

static bool same_view(const smx_view *a, const smx_view *b) {
  if (a->data != b->data || !smx_same_dtype(a->dtype, b->dtype) || a->ndim != b->ndim) return false;
  for (int32_t d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->strides[d] != b->strides[d])) return false;
  return true;
}

/* An output against one other buffer; equal: the two may be one. */
static smx_status check_apart(smx_label what, const smx_view *out, const char *prefix, const char *name, const smx_view *other,
                              bool equal) {
  if (!smx_view_overlap(out, other) || (equal && same_view(out, other))) return SMX_OK;
  return smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": overlaps %s%s", SMX_LABEL_ARGS(what), prefix, name);
}

static smx_status check_forward_alias(const checked *k) {
  const smx_op *op = k->op;
  for (int32_t o = 0; o < op->output_count; o++) {
    if (!k->has_out[o]) continue;
    smx_label what = LABEL("", op->outputs[o].name);
    for (int32_t i = 0; i < op->input_count; i++) {
      bool equal = i == 0 && ((o == 0 && (op->flags & SMX_OP_INPLACE)) || (op->outputs[o].flags & SMX_PORT_DX));
      smx_status status = k->has_in[i] ? check_apart(what, k->out + o, "", op->inputs[i].name, k->in + i, equal) : SMX_OK;
      if (status != SMX_OK) return status;
    }
    for (int32_t p = 0; p < o; p++) {
      smx_status status = k->has_out[p] ? check_apart(what, k->out + o, "", op->outputs[p].name, k->out + p, false) : SMX_OK;
      if (status != SMX_OK) return status;
    }
  }
  return SMX_OK;
}

static smx_status check_backward_alias(const checked *k) {
  const smx_op *op = k->op;
  for (int32_t g = 0; g < op->input_count; g++) {
    if (!k->has_din[g]) continue;
    smx_label what = LABEL("d", op->inputs[g].name);
    smx_status status = SMX_OK;
    for (int32_t i = 0; i < op->input_count && status == SMX_OK; i++) {
      if (k->has_in[i]) status = check_apart(what, k->din + g, "", op->inputs[i].name, k->in + i, false);
      if (status == SMX_OK && i < g && k->has_din[i]) status = check_apart(what, k->din + g, "d", op->inputs[i].name, k->din + i, false);
    }
    for (int32_t o = 0; o < op->output_count && status == SMX_OK; o++) {
      bool equal = g == 0 && o == 0 && op->outputs[o].shape == SMX_SHAPE_FULL;
      if (k->has_out[o]) status = check_apart(what, k->din + g, "", op->outputs[o].name, k->out + o, equal);
      if (status == SMX_OK && k->has_dout[o]) status = check_apart(what, k->din + g, "d", op->outputs[o].name, k->dout + o, equal);
    }
    if (status != SMX_OK) return status;
  }
  return SMX_OK;
}

/* ---- the job ---- */

static job_port port_of(const checked *k, const smx_port *port, const smx_view *v, bool wide) {
  const bool one = port->shape == SMX_SHAPE_ROW;
  job_port p = {.present = true, .full = !one && port->shape != SMX_SHAPE_K, .whole = (port->flags & SMX_PORT_INT) != 0, .data = v->data};
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
  p.same = p.store == (p.whole ? STORE_I64 : wide ? STORE_F64 : STORE_F32);
  p.direct = p.same && p.axis == 1;
  return p;
}

static void job_shape(job *j, const checked *k, smx_context *ctx) {
  memset(j, 0, offsetof(job, src));
  for (int p = 0; p < ROW_SRC; p++) j->src[p].present = false;
  for (int p = 0; p < ROW_DST; p++) j->dst[p].present = false;
  j->ctx = ctx, j->n = k->shape[k->axis], j->rows = 1, j->dims = k->row_ndim;
  for (int32_t d = 0; d < k->row_ndim; d++) j->rows *= j->dim[d] = k->row_shape[d];
  j->call.params = k->params.value;
  j->call.on_empty = smx_context_on_empty(ctx);
  j->call.on_inf = smx_context_on_inf(ctx);
  j->call.first_empty = -1;
  j->call.share = 1;
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
      j->src[i] = port_of(k, k->op->inputs + i, k->in + i, j->wide);
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

static smx_status finish(const checked *k, job *j, bool backward) {
  const smx_isa *isa = smx_isa_current();
  const smx_kernels *kernels = j->wide ? &isa->f64 : &isa->f32;
  const row_pair *pair = kernels->room[k->room][k->index];
  int64_t empty;
  j->kernel = backward ? &pair->backward : &pair->forward;
  for (int p = 0; !j->kernel->pass && p < SMX_WHOLE_SCRATCH; p++) /* no row program: it needs the whole row, and room */
    j->dst[ROW_DST - 1 - p] = (job_port){.present = true, .full = true, .length = j->n, .axis = 1};
  j->moves = kernels->moves;
  smx_status status = job_run(j, &empty);
  if (status == SMX_ERR_NOMEM) return smx_fail(status, "%s: no memory for scratch rows", k->op->name);
  if (status == SMX_ERR_EMPTY && j->offsets)
    return smx_fail(status, "%s: row %lld, segment %lld has nothing valid", k->op->name, (long long)empty, (long long)j->segment);
  if (status == SMX_ERR_EMPTY) return smx_fail(status, "%s: row %lld has nothing valid", k->op->name, (long long)empty);
  return status;
}

/* ---- losses: targets and reductions ---- */

static double param_named(const checked *k, const char *name) {
  for (int32_t i = 0; i < k->op->param_count; i++)
    if (!strcmp(k->op->params[i].name, name)) return k->params.value[i];
  return 0;
}

/* Checks targets; *total is what the rows count together. */
static smx_status check_targets(const checked *k, const job *j, double *total) {
  const smx_op *op = k->op;
  *total = (double)j->rows;
  for (int32_t i = 0; i < op->input_count; i++) {
    if (!(op->inputs[i].flags & SMX_PORT_TARGET) || !k->has_in[i]) continue;
    smx_targets t = {.what = LABEL("", op->inputs[i].name), .index = k->in + i, .classes = j->n, .wide = j->wide};
    t.ignore = (int64_t)param_named(k, "ignore_index");
    t.moves = j->wide ? smx_isa_current()->f64.moves : smx_isa_current()->f32.moves;
    for (int32_t w = 0; w < op->input_count; w++) {
      if (!(op->inputs[w].flags & SMX_PORT_WEIGHT) || !k->has_in[w]) continue;
      t.weights = k->in[w].data, t.store = row_store_of(k->in[w].dtype);
      t.step = k->in[w].strides[k->axis] * smx_dtype_bytes(k->in[w].dtype);
    }
    smx_fpenv env = smx_fpenv_enter();
    smx_status status = smx_targets_check(&t, total);
    smx_fpenv_leave(env);
    return status;
  }
  return SMX_OK;
}

/* The output that is one value for all rows, or -1. */
static int32_t scalar_output(const checked *k) {
  for (int32_t o = 0; o < k->op->output_count; o++)
    if (k->has_out[o] && k->op->outputs[o].shape == SMX_SHAPE_SCALAR) return o;
  return -1;
}

static void put_reduced(const checked *k, const job *j, int32_t o, const void *losses, double total) {
  union {
    float f;
    double d;
  } value;
  smx_fpenv env = smx_fpenv_enter();
  double v = smx_reduced((smx_reduction)param_named(k, "reduction"), smx_rows_sum(losses, j->rows, j->wide), total);
  double tiny = j->wide ? 0x1p-1022 : 0x1p-126;
  if (v != v) v = __builtin_nan("");
  if (v < tiny && v > -tiny) v = 0;
  if (j->wide) value.d = v;
  else value.f = (float)v;
  j->moves->store(row_store_of(k->out[o].dtype), &value, 1, k->out[o].data, 1);
  smx_fpenv_leave(env);
}

/* Runs the rows with the first output in memory of its own, in order; then the caller's are written. */
static smx_status finish_reduced(const checked *k, job *j, int32_t o, double total) {
  const job_port loss = j->dst[0];
  const int64_t bytes = j->wide ? 8 : 4;
  char *losses = smx_alloc(j->ctx, (size_t)(j->rows * bytes + 1));
  if (!losses) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for the losses of the rows", k->op->name);
  j->dst[0] = (job_port){.present = true, .direct = true, .data = losses, .bytes = bytes, .length = 1, .axis = 1};
  j->dst[0].store = j->wide ? STORE_F64 : STORE_F32;
  for (int64_t d = k->row_ndim - 1, step = 1; d >= 0; step *= k->row_shape[d--]) j->dst[0].outer[d] = step;
  smx_status status = finish(k, j, false);
  for (int64_t r = 0; r < j->rows && status == SMX_OK; r++) {
    int64_t at = 0;
    for (int64_t d = k->row_ndim - 1, left = r; d >= 0; left /= k->row_shape[d--]) at += left % k->row_shape[d] * loss.outer[d];
    j->moves->store(loss.store, losses + r * bytes, 1, loss.data + at * loss.bytes, 1);
  }
  if (status == SMX_OK) put_reduced(k, j, o, losses, total);
  smx_free(j->ctx, losses);
  return status;
}

static smx_status check_x(checked *k, int32_t n_in, const smx_tensor *const *in, bool data) {
  smx_view x;
  if (n_in < 1 || !in || !in[0]) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", k->op->name, k->op->inputs[0].name);
  smx_label what = LABEL("", k->op->inputs[0].name);
  smx_status status = smx_view_of(what, in[0], data, &x);
  return status == SMX_OK ? check_axis(k, &x, k->op->inputs[0].name) : status;
}

smx_status smx_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                       int32_t n_out, const smx_tensor *const *out) {
  checked check, *k = &check;
  job j;
  job_port offsets;
  smx_status status = check_params(k, op, params);
  if (status == SMX_OK) status = check_x(k, n_in, in, true);
  if (status == SMX_OK) status = check_inputs(k, n_in, in, false, true);
  if (status == SMX_OK) status = check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK) status = check_outputs(k, "", OUTPUTS, n_out, out, k->has_out, k->out);
  if (status == SMX_OK) status = check_forward_alias(k);
  if (status != SMX_OK) return status;
  job_shape(&j, k, ctx);
  j.wide = any_double(k->in, k->has_in, op->input_count);
  j.in_place = op->flags & SMX_OP_INPLACE ? 0 : -1;
  add_inputs(&j, k, &offsets);
  for (int32_t o = 0; o < op->output_count; o++)
    if (k->has_out[o] && op->outputs[o].shape != SMX_SHAPE_SCALAR) j.dst[o] = port_of(k, op->outputs + o, k->out + o, j.wide);
  double total;
  status = check_targets(k, &j, &total);
  if (status != SMX_OK) return status;
  j.call.share = smx_share((smx_reduction)param_named(k, "reduction"), total);
  return scalar_output(k) < 0 ? finish(k, &j, false) : finish_reduced(k, &j, scalar_output(k), total);
}

/* The shape of x when x itself is not needed: that of a FULL output or its gradient. */
static smx_status check_backward_axis(checked *k, int32_t n_in, const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *dout) {
  const smx_op *op = k->op;
  if (n_in > 0 && in && in[0]) return check_x(k, n_in, in, (op->inputs[0].flags & SMX_PORT_SAVED) != 0);
  if (op->inputs[0].flags & SMX_PORT_SAVED) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", op->name, op->inputs[0].name);
  if (n_out < 1 || !dout || !dout[0]) return smx_fail(SMX_ERR_NULL, "%s: d%s is NULL", op->name, op->outputs[0].name);
  smx_view v;
  smx_status status = smx_view_of(LABEL("d", op->outputs[0].name), dout[0], true, &v);
  return status == SMX_OK ? check_axis(k, &v, op->outputs[0].name) : status;
}

smx_status smx_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                        int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout, const smx_tensor *const *din) {
  checked check, *k = &check;
  job j;
  job_port offsets;
  smx_status status = check_params(k, op, params);
  if (status == SMX_OK && !(op->flags & SMX_OP_BACKWARD)) status = smx_fail(SMX_ERR_NO_BACKWARD, "%s: has no gradient", op->name);
  if (status == SMX_OK) status = check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK) status = check_backward_axis(k, n_in, in, n_out, dout);
  if (status == SMX_OK) status = check_inputs(k, n_in, in, true, true);
  if (status == SMX_OK) status = check_outputs(k, "", SAVED, n_out, out, k->has_out, k->out);
  if (status == SMX_OK) status = check_outputs(k, "d", UPSTREAM, n_out, dout, k->has_dout, k->dout);
  if (status == SMX_OK) status = check_outputs(k, "d", GRADIENTS, n_in, din, k->has_din, k->din);
  if (status == SMX_OK) status = check_backward_alias(k);
  if (status != SMX_OK) return status;
  job_shape(&j, k, ctx);
  j.wide = any_double(k->in, k->has_in, op->input_count) || any_double(k->out, k->has_out, op->output_count) ||
           any_double(k->dout, k->has_dout, op->output_count);
  j.in_place = op->outputs[0].shape == SMX_SHAPE_FULL && op->inputs[0].shape == SMX_SHAPE_FULL ? SRC_DY : -1;
  add_inputs(&j, k, &offsets);
  for (int32_t o = 0; o < op->output_count && o < ROW_OUTS; o++) {
    if (k->has_out[o]) j.src[SRC_Y + o] = port_of(k, op->outputs + o, k->out + o, j.wide);
    if (k->has_dout[o]) j.src[SRC_DY + o] = port_of(k, op->outputs + o, k->dout + o, j.wide);
  }
  for (int32_t g = 0; g < op->input_count; g++)
    if (k->has_din[g]) j.dst[g] = port_of(k, op->inputs + g, k->din + g, j.wide);
  if (!k->has_din[0])
    j.dst[0] = (job_port){.present = true, .full = true, .length = j.n, .axis = 1}; /* computed on the way, kept nowhere */
  double total;
  status = check_targets(k, &j, &total);
  return status == SMX_OK ? finish(k, &j, true) : status;
}

smx_status smx_infer(const smx_op *op, const smx_params *params, int32_t n_in, const smx_tensor *const *in, int32_t n_out, smx_shape *out) {
  checked check, *k = &check;
  smx_status status = check_params(k, op, params);
  if (status == SMX_OK) status = check_x(k, n_in, in, false);
  if (status == SMX_OK) status = check_inputs(k, n_in, in, false, false);
  if (status == SMX_OK) status = check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK && n_out > 0 && !out) status = smx_fail(SMX_ERR_NULL, "%s: out is NULL", op->name);
  for (int32_t o = 0; o < n_out && status == SMX_OK; o++) {
    out[o].dtype = op->outputs[o].flags & SMX_PORT_INT ? SMX_I64 : k->in[0].dtype;
    memcpy(out[o].dim, shape_of(k, op->outputs + o, &out[o].ndim), sizeof out[o].dim);
  }
  return status;
}
