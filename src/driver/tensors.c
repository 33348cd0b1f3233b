/* driver/tensors.c - see tensors.h. */
#include "tensors.h"
#include "check.h"
#include "tensor_pack.h"
#include <stdio.h>

typedef const smx_tensor *const *tensor_list;

/* ---- ports ---- */

static smx_label label_of(const tensor_call *c, const char *prefix, const smx_port *port) {
  return (smx_label){c->op->name, prefix, port->name};
}

/* One tensor: its view, its dtype, its dimensions. */
static smx_status take_one(tensor_call *c, const char *prefix, const smx_port *port, const smx_tensor *t,
                           bool data, tensor_ports *to, int32_t i) {
  smx_status status = smx_view_of(label_of(c, prefix, port), t, data, to->view + i);
  if (status == SMX_OK) status = smx_check_dtype(port, to->view + i, label_of(c, prefix, port));
  if (status == SMX_OK) status = dims_take(&c->dims, port, prefix, to->view + i);
  to->given[i] = t;
  return status;
}

static smx_status take_inputs(tensor_call *c, int32_t n, tensor_list list, bool backward, bool data) {
  const smx_op *op = c->op;
  bool has[SMX_MAX_PORTS] = {false};
  smx_status status = smx_check_count(op, "n_in", n, op->input_count);
  if (status == SMX_OK && n > 0 && !list) status = smx_fail(SMX_ERR_NULL, "%s: in is NULL", op->name);
  for (int32_t i = 0; i < op->input_count && status == SMX_OK; i++) {
    const smx_port *port = op->inputs + i;
    const smx_tensor *t = i < n ? list[i] : NULL;
    const bool read = !backward || (port->flags & SMX_PORT_SAVED);
    has[i] = t != NULL;
    if (t) status = take_one(c, "", port, t, data && read, &c->in, i);
    else if (read && !(port->flags & (SMX_PORT_OPTIONAL | SMX_PORT_EITHER)))
      status = smx_fail(SMX_ERR_NULL, "%s: %s is NULL", op->name, port->name);
  }
  return status == SMX_OK ? smx_check_either(op, has) : status;
}

/* Sizes that an operator sets itself; an input that says another one has the wrong shape. */
static smx_status set_sizes(tensor_call *c, const tensor_functions *f) {
  smx_status status = f->sizes ? f->sizes(&c->dims) : SMX_OK;
  for (int32_t i = 0; i < c->op->input_count && c->dims.changed && status == SMX_OK; i++)
    if (c->in.given[i]) status = dims_take(&c->dims, c->op->inputs + i, "", c->in.view + i);
  return status;
}

/* Outputs, those that are saved, upstream gradients, gradients: `wanted` says which may be there,
 * `needed` which must. */
typedef struct tensor_group {
  const smx_port *ports;
  int32_t count;
  const char *prefix;
  bool (*wanted)(const smx_port *port, int32_t i), (*needed)(const smx_port *port, int32_t i);
} tensor_group;

static smx_status take_group(tensor_call *c, const tensor_group *g, int32_t n, tensor_list list,
                             tensor_ports *to) {
  smx_status status = SMX_OK;
  for (int32_t i = 0; i < g->count && status == SMX_OK; i++) {
    const smx_port *port = g->ports + i;
    const smx_tensor *t = list && i < n ? list[i] : NULL;
    if (t && g->wanted(port, i)) status = take_one(c, g->prefix, port, t, true, to, i);
    else if (!t && g->needed(port, i))
      status = smx_fail(SMX_ERR_NULL, SMX_LABEL " is NULL", SMX_LABEL_ARGS(label_of(c, g->prefix, port)));
  }
  return status;
}

static bool any_port(const smx_port *port, int32_t i) { return port && i >= 0; }
static bool no_port(const smx_port *port, int32_t i) { return !any_port(port, i); }
static bool required(const smx_port *port, int32_t i) {
  return any_port(port, i) && !(port->flags & SMX_PORT_OPTIONAL);
}
static bool saved(const smx_port *port, int32_t i) {
  return any_port(port, i) && port->flags & SMX_PORT_SAVED;
}
static bool saved_required(const smx_port *port, int32_t i) { return saved(port, i) && required(port, i); }

/* ---- what the table says of values ---- */

static int64_t whole_at(const smx_view *v, const int64_t *index) {
  int64_t offset = 0;
  for (int32_t d = 0; d < v->ndim; d++) offset += index[d] * v->strides[d];
  return smx_whole_at(v->data + offset * smx_dtype_bytes(v->dtype), smx_dtype_bytes(v->dtype));
}

static smx_status check_below(const tensor_call *c, const smx_port *port, const smx_view *v, int64_t bound) {
  const smx_label what = label_of(c, "", port);
  int64_t index[SMX_MAX_DIMS] = {0}, number = 0, ignored = -1;
  const bool ignores = port->flags & SMX_PORT_TARGET;
  char other[32] = "";
  for (int32_t i = 0; ignores && i < c->op->param_count; i++)
    if (!strcmp(c->op->params[i].name, "ignore_index")) ignored = (int64_t)c->param[i];
  if (smx_view_elements(v) == 0) return SMX_OK;
  do {
    const int64_t value = whole_at(v, index);
    if ((value < 0 || value >= bound) && !(ignores && value == ignored)) {
      if (ignores) snprintf(other, sizeof other, " or %lld", (long long)ignored);
      return smx_fail(SMX_ERR_TARGET, SMX_LABEL ": number %lld is %lld, not 0..%lld%s", SMX_LABEL_ARGS(what),
                      (long long)number, (long long)value, (long long)bound - 1, other);
    }
    number++;
  } while (next_index(v, index));
  return SMX_OK;
}

/* Along the last dimension, for each index of the others. */
static smx_status check_offsets(const tensor_call *c, const smx_port *port, const smx_view *v,
                                int64_t bound) {
  const smx_label what = label_of(c, "", port);
  int64_t index[SMX_MAX_DIMS] = {0}, before = 0;
  const int32_t last = v->ndim - 1;
  if (smx_view_elements(v) == 0) return SMX_OK;
  do {
    const int64_t value = whole_at(v, index), at = index[last];
    const bool first = at == 0, end = at == v->shape[last] - 1;
    if (first ? value != 0 : value < before || value > bound)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": number %lld is %lld, not %lld%s", SMX_LABEL_ARGS(what),
                      (long long)at, (long long)value, (long long)(first ? 0 : before),
                      first ? "" : " or more");
    if (end && value != bound)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": the last is %lld, not %lld", SMX_LABEL_ARGS(what),
                      (long long)value, (long long)bound);
    before = value;
  } while (next_index(v, index));
  return SMX_OK;
}

static smx_status check_values(const tensor_call *c, bool backward) {
  smx_status status = SMX_OK;
  for (int32_t i = 0; i < c->op->input_count && status == SMX_OK; i++) {
    const smx_port *port = c->op->inputs + i;
    int64_t bound;
    const char bar = c->in.given[i] && (!backward || port->flags & SMX_PORT_SAVED)
                         ? dims_bound(&c->dims, port, &bound)
                         : 0;
    if (bar == '<') status = check_below(c, port, c->in.view + i, bound);
    if (bar == 'o') status = check_offsets(c, port, c->in.view + i, bound);
  }
  return status;
}

/* ---- buffers that are written ---- */

/* Tensors that are read, or written before. same: the one that may be the buffer itself, or -1. */
static smx_status apart_from(smx_label what, const smx_view *v, const char *prefix, const smx_port *ports,
                             int32_t count, const tensor_ports *others, int32_t same) {
  smx_status status = SMX_OK;
  for (int32_t i = 0; i < count && status == SMX_OK; i++)
    if (others->given[i])
      status = smx_check_apart(what, v, prefix, ports[i].name, others->view + i, i == same);
  return status;
}

static smx_status check_written(smx_label what, const smx_view *v) {
  if (smx_view_injective(v)) return SMX_OK;
  return smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": two of its elements share an address", SMX_LABEL_ARGS(what));
}

static smx_status check_outputs(const tensor_call *c) {
  const smx_op *op = c->op;
  smx_status status = SMX_OK;
  for (int32_t o = 0; o < op->output_count && status == SMX_OK; o++) {
    const smx_label what = label_of(c, "", op->outputs + o);
    const bool over_x = (o == 0 && op->flags & SMX_OP_INPLACE) || op->outputs[o].flags & SMX_PORT_DX;
    if (!c->out.given[o]) continue;
    status = check_written(what, c->out.view + o);
    if (status == SMX_OK)
      status = apart_from(what, c->out.view + o, "", op->inputs, op->input_count, &c->in, over_x ? 0 : -1);
    if (status == SMX_OK) status = apart_from(what, c->out.view + o, "", op->outputs, o, &c->out, -1);
  }
  return status;
}

static smx_status check_gradients(const tensor_call *c) {
  const smx_op *op = c->op;
  smx_status status = SMX_OK;
  for (int32_t g = 0; g < op->input_count && status == SMX_OK; g++) {
    const smx_label what = label_of(c, "d", op->inputs + g);
    const smx_view *v = c->din.view + g;
    if (!c->din.given[g]) continue;
    if (!(op->inputs[g].flags & SMX_PORT_GRAD))
      return smx_fail(SMX_ERR_NO_BACKWARD, SMX_LABEL ": there is no gradient of this input",
                      SMX_LABEL_ARGS(what));
    status = check_written(what, v);
    if (status == SMX_OK) status = apart_from(what, v, "", op->inputs, op->input_count, &c->in, -1);
    if (status == SMX_OK) status = apart_from(what, v, "", op->outputs, op->output_count, &c->out, -1);
    if (status == SMX_OK) status = apart_from(what, v, "d", op->outputs, op->output_count, &c->dout, -1);
    if (status == SMX_OK) status = apart_from(what, v, "d", op->inputs, g, &c->din, -1);
  }
  return status;
}

static smx_status check_upstream(const tensor_call *c) {
  bool any = false;
  for (int32_t o = 0; o < c->op->output_count; o++) any |= c->dout.given[o] != NULL;
  if (!any) return smx_fail(SMX_ERR_NULL, "%s: d%s is NULL", c->op->name, c->op->outputs[0].name);
  for (int32_t o = 0; o < c->op->output_count; o++)
    if (c->dout.given[o] && (o >= ROW_OUTS || c->op->outputs[o].flags & (SMX_PORT_INT | SMX_PORT_DX)))
      return smx_fail(SMX_ERR_NO_BACKWARD, SMX_LABEL ": this output has no upstream gradient",
                      SMX_LABEL_ARGS(label_of(c, "d", c->op->outputs + o)));
  return SMX_OK;
}

/* ---- the verbs ---- */

/* What describes a call; memory of its own, since functions go deep. */
typedef struct tensor_work {
  tensor_call call;
  smx_params taken;
  pack pack;
} tensor_work;

static smx_status begin(tensor_call *c, const char *verb, const smx_op *op, smx_context *ctx,
                        const smx_params *params, smx_params *taken) {
  int family;
  size_t index;
  memset(c, 0, sizeof *c);
  c->op = op, c->ctx = ctx, c->param = taken->value, c->channels = 1;
  /* an operator without parameters may be one of no table, of a function that made it for a call */
  smx_status status = SMX_OK;
  if (params || op->param_count) status = smx_take_params(verb, op, params, &family, &index, taken);
  else *taken = (smx_params){.size = sizeof *taken, .axis = -1};
  if (status == SMX_OK && taken->axis != -1)
    status = smx_fail(SMX_ERR_PARAM, "%s: axis is %d, but there is none: dimensions have names", op->name,
                      (int)taken->axis);
  if (status == SMX_OK) dims_begin(&c->dims, op, taken->value);
  return status;
}

static bool any_f64(const smx_port *ports, int32_t count, const tensor_ports *t) {
  for (int32_t i = 0; i < count; i++)
    if (t->given[i] && smx_same_dtype(t->view[i].dtype, SMX_F64) && !(ports[i].flags & SMX_PORT_INT))
      return true;
  return false;
}

/* Where no input is, the outputs say which arithmetic it is. */
static bool any_float(const tensor_call *c) {
  for (int32_t i = 0; i < c->op->input_count; i++)
    if (c->in.given[i] && smx_is_float(c->in.view[i].dtype)) return true;
  return false;
}

smx_status tensors_forward(const smx_op *op, const tensor_functions *f, smx_context *ctx,
                           const smx_params *params, int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                           const smx_tensor *const *out) {
  SMX_OWN(tensor_work, w, ctx);
  if (!w) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", op->name);
  tensor_call *const c = &w->call;
  smx_status status = begin(c, "smx_forward", op, ctx, params, &w->taken);
  if (status == SMX_OK) status = smx_check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK) status = take_inputs(c, n_in, in, false, true);
  if (status == SMX_OK) status = set_sizes(c, f);
  const tensor_group outputs = {op->outputs, op->output_count, "", any_port, required};
  if (status == SMX_OK) status = take_group(c, &outputs, n_out, out, &c->out);
  if (status == SMX_OK) status = check_values(c, false);
  if (status == SMX_OK) status = check_outputs(c);
  if (status != SMX_OK) return status;
  c->is_f64 = any_f64(op->inputs, op->input_count, &c->in) ||
              (!any_float(c) && any_f64(op->outputs, op->output_count, &c->out));
  return f->packed ? tensors_run_packed(&w->pack, c, f, false) : f->forward(c);
}

smx_status tensors_backward(const smx_op *op, const tensor_functions *f, smx_context *ctx,
                            const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                            int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                            const smx_tensor *const *din) {
  SMX_OWN(tensor_work, w, ctx);
  if (!w) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", op->name);
  tensor_call *const c = &w->call;
  smx_status status = begin(c, "smx_backward", op, ctx, params, &w->taken);
  if (status == SMX_OK && !f->backward)
    status = smx_fail(SMX_ERR_NO_BACKWARD, "%s: has no gradient", op->name);
  if (status == SMX_OK) status = smx_check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK) status = take_inputs(c, n_in, in, true, true);
  const tensor_group groups[] = {{op->outputs, op->output_count, "", saved, saved_required},
                                 {op->outputs, op->output_count, "d", any_port, no_port},
                                 {op->inputs, op->input_count, "d", any_port, no_port}};
  if (status == SMX_OK) status = set_sizes(c, f); /* before a saved output says its own */
  if (status == SMX_OK) status = take_group(c, groups, n_out, out, &c->out);
  if (status == SMX_OK) status = take_group(c, groups + 1, n_out, dout, &c->dout);
  if (status == SMX_OK) status = take_group(c, groups + 2, n_in, din, &c->din);
  if (status == SMX_OK) status = check_upstream(c);
  if (status == SMX_OK) status = check_values(c, true);
  if (status == SMX_OK) status = check_gradients(c);
  if (status != SMX_OK) return status;
  c->is_f64 = any_f64(op->inputs, op->input_count, &c->in) ||
              any_f64(op->outputs, op->output_count, &c->out) ||
              any_f64(op->outputs, op->output_count, &c->dout);
  return f->packed ? tensors_run_packed(&w->pack, c, f, true) : f->backward(c);
}

/* The dtype of results: that of the first float input. */
static smx_dtype natural(const tensor_call *c) {
  for (int32_t i = 0; i < c->op->input_count; i++)
    if (c->in.given[i] && smx_is_float(c->in.view[i].dtype)) return c->in.view[i].dtype;
  return SMX_F32;
}

smx_status tensors_infer(const smx_op *op, const tensor_functions *f, const smx_params *params, int32_t n_in,
                         const smx_tensor *const *in, int32_t n_out, smx_shape *out) {
  tensor_call c;
  smx_params taken;
  smx_status status = begin(&c, "smx_infer", op, NULL, params, &taken);
  if (status == SMX_OK) status = take_inputs(&c, n_in, in, false, false);
  if (status == SMX_OK) status = set_sizes(&c, f);
  if (status == SMX_OK) status = smx_check_count(op, "n_out", n_out, op->output_count);
  if (status == SMX_OK && n_out > 0 && !out) status = smx_fail(SMX_ERR_NULL, "%s: out is NULL", op->name);
  for (int32_t o = 0; o < n_out && status == SMX_OK; o++) {
    const uint32_t flags = op->outputs[o].flags;
    out[o].dtype = flags & SMX_PORT_INT ? SMX_I64 : natural(&c);
    if (flags & SMX_PORT_STATE && out[o].dtype.bits < 32) out[o].dtype = SMX_F32;
    if (!dims_shape(&c.dims, op->outputs + o, &out[o].ndim, out[o].dim))
      status = smx_fail(SMX_ERR_SHAPE, "%s: the shape of %s needs an input that is not there", op->name,
                        op->outputs[o].name);
  }
  return status;
}

double tensor_param(const tensor_call *c, const char *name) {
  int32_t i = 0;
  while (strcmp(c->op->params[i].name, name)) i++;
  return c->param[i];
}
