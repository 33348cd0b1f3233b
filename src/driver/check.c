/* driver/check.c - the checks of a call, and their errors. See check.h. */
#include "check.h"

smx_status smx_take_params(const char *verb, const smx_op *op, const smx_params *params, int *family,
                           size_t *index, smx_params *taken) {
  if (!op) return smx_fail(SMX_ERR_NULL, "%s: op is NULL", verb);
  if (!smx_op_place(op, family, index))
    return smx_fail(SMX_ERR_NO_OP, "%s: op is not an operator of this library", verb);
  if (!params) return smx_params_init(op, taken);
  if (params->size != sizeof *params)
    return smx_fail(SMX_ERR_STRUCT, "%s: params.size is %zu, not %zu", op->name, params->size,
                    sizeof *params);
  *taken = *params;
  for (int32_t i = 0; i < op->param_count; i++) {
    smx_status status = smx_param_check(op, op->params + i, params->value[i]);
    if (status != SMX_OK) return status;
  }
  return SMX_OK;
}

smx_status smx_check_params(checked *k, const char *verb, const smx_op *op, const smx_params *params) {
  memset(k, 0, offsetof(checked, in)); /* not the views, which are large */
  k->op = op;
  return smx_take_params(verb, op, params, &k->family, &k->index, &k->params);
}

/* The shape of the rows, from a tensor with the shape of x. */
static smx_status check_axis(checked *k, const smx_view *x, const char *name) {
  int32_t axis = k->params.axis;
  if (x->ndim == 0) return smx_fail(SMX_ERR_SHAPE, "%s: %s: ndim is 0, rows need an axis", k->op->name, name);
  if (axis < -x->ndim || axis >= x->ndim)
    return smx_fail(SMX_ERR_SHAPE, "%s: axis is %d, not %d..%d", k->op->name, (int)axis, -(int)x->ndim,
                    (int)x->ndim - 1);
  k->axis = axis < 0 ? axis + x->ndim : axis;
  k->ndim = x->ndim;
  k->row_ndim = 0;
  for (int32_t d = 0; d < x->ndim; d++) {
    k->shape[d] = x->shape[d];
    if (d != k->axis) k->row_shape[k->row_ndim++] = x->shape[d];
  }
  k->column[0] = x->shape[k->axis];
  if (!k->part) k->n = x->shape[k->axis];
  if (k->first > k->n - x->shape[k->axis])
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[%d] is %lld, but behind column %lld of %lld", k->op->name,
                    name, (int)k->axis, (long long)x->shape[k->axis], (long long)k->first, (long long)k->n);
  memcpy(k->k_shape, k->shape, sizeof k->shape);
  for (int32_t i = 0; i < k->op->param_count; i++) {
    if (!strcmp(k->op->params[i].name, "k")) k->k_shape[k->axis] = (int64_t)k->params.value[i];
    if ((k->op->params[i].flags & SMX_PARAM_MAX_N) && k->params.value[i] > (double)k->n)
      return smx_fail(SMX_ERR_PARAM, "%s: %s: %g is more than the %lld elements of a row", k->op->name,
                      k->op->params[i].name, k->params.value[i], (long long)k->n);
  }
  return SMX_OK;
}

smx_status smx_check_x(checked *k, int32_t n_in, const smx_tensor *const *in, bool data) {
  smx_view x;
  if (n_in < 1 || !in || !in[0])
    return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", k->op->name, k->op->inputs[0].name);
  smx_label what = LABEL("", k->op->inputs[0].name);
  smx_status status = smx_view_of(what, in[0], data, &x);
  return status == SMX_OK ? check_axis(k, &x, k->op->inputs[0].name) : status;
}

smx_status smx_check_backward_axis(checked *k, int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                                   const smx_tensor *const *dout) {
  const smx_op *op = k->op;
  if (n_in > 0 && in && in[0]) return smx_check_x(k, n_in, in, (op->inputs[0].flags & SMX_PORT_SAVED) != 0);
  if (op->inputs[0].flags & SMX_PORT_SAVED)
    return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", op->name, op->inputs[0].name);
  if (n_out < 1 || !dout || !dout[0])
    return smx_fail(SMX_ERR_NULL, "%s: d%s is NULL", op->name, op->outputs[0].name);
  smx_view v;
  smx_status status = smx_view_of(LABEL("d", op->outputs[0].name), dout[0], true, &v);
  return status == SMX_OK ? check_axis(k, &v, op->outputs[0].name) : status;
}

const int64_t *smx_shape_of(const checked *k, const smx_port *port, int32_t *ndim) {
  switch (port->shape) {
    case SMX_SHAPE_SCALAR: return *ndim = 0, k->shape;
    case SMX_SHAPE_COLUMN: return *ndim = 1, k->column;
    case SMX_SHAPE_ROW: return *ndim = k->row_ndim, k->row_shape;
    default: return *ndim = k->ndim, port->shape == SMX_SHAPE_K ? k->k_shape : k->shape;
  }
}

smx_status smx_check_dtype(const smx_port *port, const smx_view *v, smx_label what) {
  const bool mask = port->flags & SMX_PORT_MASK, whole = port->flags & SMX_PORT_INT;
  bool good = mask ? smx_is_mask(v->dtype) : whole ? smx_is_whole(v->dtype) : smx_is_float(v->dtype);
  if (good) return SMX_OK;
  const char *wanted = port->flags & SMX_PORT_MASK  ? "bool or u8"
                       : port->flags & SMX_PORT_INT ? "i32 or i64"
                                                    : "f16, bf16, f32 or f64";
  return smx_fail(SMX_ERR_DTYPE, SMX_LABEL ": dtype is %s, not %s", SMX_LABEL_ARGS(what),
                  smx_dtype_name(v->dtype), wanted);
}

static smx_status check_offsets(const checked *k, const smx_view *v, smx_label what, bool read) {
  int64_t n = k->shape[k->axis], before = 0;
  if (v->ndim != 1)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": ndim is %d, not 1", SMX_LABEL_ARGS(what), (int)v->ndim);
  if (v->shape[0] < 1)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[0] is %lld, not at least 1", SMX_LABEL_ARGS(what),
                    (long long)v->shape[0]);
  for (int64_t i = 0; read && i < v->shape[0]; i++) {
    const char *at = v->data + i * v->strides[0] * smx_dtype_bytes(v->dtype);
    int64_t o = smx_whole_at(at, smx_dtype_bytes(v->dtype));
    if (i == 0 && o != 0)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": the first is %lld, not 0", SMX_LABEL_ARGS(what),
                      (long long)o);
    if (o < before || o > n)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": number %lld is %lld, not %lld..%lld", SMX_LABEL_ARGS(what),
                      (long long)i, (long long)o, (long long)before, (long long)n);
    before = o;
  }
  if (read && before != n)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": the last is %lld, not the length of the axis, %lld",
                    SMX_LABEL_ARGS(what), (long long)before, (long long)n);
  return SMX_OK;
}

static smx_status same_shape(smx_label what, const smx_view *v, int32_t ndim, const int64_t *shape) {
  if (v->ndim != ndim)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": ndim is %d, not %d", SMX_LABEL_ARGS(what), (int)v->ndim,
                    (int)ndim);
  for (int32_t d = 0; d < ndim; d++)
    if (v->shape[d] != shape[d])
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld, not %lld", SMX_LABEL_ARGS(what), (int)d,
                      (long long)v->shape[d], (long long)shape[d]);
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
static smx_status check_tensor(checked *k, const smx_port *port, const smx_tensor *t, smx_label what,
                               bool exact, bool data, smx_view *v) {
  smx_status status = smx_view_of(what, t, data, v);
  if (status == SMX_OK) status = smx_check_dtype(port, v, what);
  if (status != SMX_OK) return status;
  if (port->shape == SMX_SHAPE_OFFSETS) return check_offsets(k, v, what, data);
  if (port->shape == SMX_SHAPE_COLUMN) return check_column(k, what, v);
  int32_t ndim;
  const int64_t *shape = smx_shape_of(k, port, &ndim);
  return exact ? same_shape(what, v, ndim, shape) : smx_view_broadcast(what, v, ndim, shape);
}

smx_status smx_check_count(const smx_op *op, const char *what, int32_t n, int32_t most) {
  if (n >= 0 && n <= most) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, "%s: %s is %d, not 0..%d", op->name, what, (int)n, (int)most);
}

smx_status smx_check_either(const smx_op *op, const bool *has) {
  const smx_port *first = NULL, *given = NULL;
  for (int32_t i = 0; i < op->input_count; i++) {
    const smx_port *port = op->inputs + i;
    if (!(port->flags & SMX_PORT_EITHER)) continue;
    if (!first) first = port;
    if (!has[i]) continue;
    if (given)
      return smx_fail(SMX_ERR_PARAM, "%s: %s and %s exclude each other", op->name, given->name, port->name);
    given = port;
  }
  if (first && !given)
    return smx_fail(SMX_ERR_NULL, "%s: %s is NULL, and so is what may stand for it", op->name, first->name);
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

/* Checks inputs: all of them in a forward call, the saved ones in a backward call. */
smx_status smx_check_inputs(checked *k, int32_t n_in, const smx_tensor *const *in, bool backward, bool data) {
  const smx_op *op = k->op;
  smx_status status = smx_check_count(op, "n_in", n_in, op->input_count);
  if (status == SMX_OK && n_in > 0 && !in) status = smx_fail(SMX_ERR_NULL, "%s: in is NULL", op->name);
  if (status == SMX_OK) status = take_k(k, n_in, in);
  for (int32_t i = 0; i < op->input_count && status == SMX_OK; i++) {
    const smx_port *port = op->inputs + i;
    const smx_tensor *t = i < n_in ? in[i] : NULL;
    bool read = !backward || (port->flags & SMX_PORT_SAVED);
    if (!t || !read) {
      if (read && !t && !(port->flags & SMX_PORT_OPTIONAL))
        status = smx_fail(SMX_ERR_NULL, "%s: %s is NULL", op->name, port->name);
      continue;
    }
    status = check_tensor(k, port, t, LABEL("", port->name), i == 0, data, k->in + i);
    k->has_in[i] = true;
  }
  return status == SMX_OK ? smx_check_either(op, k->has_in) : status;
}

/* Whether a tensor of this port is required; *wanted: whether it is allowed. */
static bool needed(group g, const smx_port *port, int32_t i, bool *wanted) {
  *wanted = g != SAVED || (port->flags & SMX_PORT_SAVED);
  if (g == UPSTREAM) return i == 0;
  return g != GRADIENTS && *wanted && !(port->flags & SMX_PORT_OPTIONAL);
}

smx_status smx_check_outputs(checked *k, const char *prefix, group g, int32_t n, const smx_tensor *const *t,
                             bool *has, smx_view *v) {
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
      return smx_fail(SMX_ERR_NO_BACKWARD, SMX_LABEL ": there is no gradient of this input",
                      SMX_LABEL_ARGS(what));
    if (g == UPSTREAM && (i >= ROW_OUTS || (ports[i].flags & (SMX_PORT_INT | SMX_PORT_DX)) ||
                          ports[i].shape == SMX_SHAPE_SCALAR))
      return smx_fail(SMX_ERR_NO_BACKWARD, SMX_LABEL ": this output has no upstream gradient",
                      SMX_LABEL_ARGS(what));
    smx_status status = check_tensor(k, ports + i, one, what, true, true, v + i);
    if (status != SMX_OK) return status;
    if ((g == OUTPUTS || g == GRADIENTS) && !smx_view_injective(v + i))
      return smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": two of its elements share an address",
                      SMX_LABEL_ARGS(what));
    has[i] = true;
  }
  return SMX_OK;
}

/* ---- aliasing ---- */

smx_status smx_check_apart(smx_label what, const smx_view *out, const char *prefix, const char *name,
                           const smx_view *other, bool equal) {
  if (!smx_view_overlap(out, other) || (equal && smx_view_same(out, other))) return SMX_OK;
  return smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": overlaps %s%s", SMX_LABEL_ARGS(what), prefix, name);
}

smx_status smx_check_forward_alias(const checked *k) {
  const smx_op *op = k->op;
  for (int32_t o = 0; o < op->output_count; o++) {
    if (!k->has_out[o]) continue;
    smx_label what = LABEL("", op->outputs[o].name);
    for (int32_t i = 0; i < op->input_count; i++) {
      bool equal =
          i == 0 && ((o == 0 && (op->flags & SMX_OP_INPLACE)) || (op->outputs[o].flags & SMX_PORT_DX));
      smx_status status =
          k->has_in[i] ? smx_check_apart(what, k->out + o, "", op->inputs[i].name, k->in + i, equal) : SMX_OK;
      if (status != SMX_OK) return status;
    }
    for (int32_t p = 0; p < o; p++) {
      smx_status status = k->has_out[p]
                              ? smx_check_apart(what, k->out + o, "", op->outputs[p].name, k->out + p, false)
                              : SMX_OK;
      if (status != SMX_OK) return status;
    }
  }
  return SMX_OK;
}

smx_status smx_check_backward_alias(const checked *k) {
  const smx_op *op = k->op;
  for (int32_t g = 0; g < op->input_count; g++) {
    if (!k->has_din[g]) continue;
    smx_label what = LABEL("d", op->inputs[g].name);
    smx_status status = SMX_OK;
    for (int32_t i = 0; i < op->input_count && status == SMX_OK; i++) {
      if (k->has_in[i]) status = smx_check_apart(what, k->din + g, "", op->inputs[i].name, k->in + i, false);
      if (status == SMX_OK && i < g && k->has_din[i])
        status = smx_check_apart(what, k->din + g, "d", op->inputs[i].name, k->din + i, false);
    }
    for (int32_t o = 0; o < op->output_count && status == SMX_OK; o++) {
      bool equal = g == 0 && o == 0 && op->outputs[o].shape == SMX_SHAPE_FULL;
      if (k->has_out[o])
        status = smx_check_apart(what, k->din + g, "", op->outputs[o].name, k->out + o, equal);
      if (status == SMX_OK && k->has_dout[o])
        status = smx_check_apart(what, k->din + g, "d", op->outputs[o].name, k->dout + o, equal);
    }
    if (status != SMX_OK) return status;
  }
  return SMX_OK;
}
