/* call.c - the three verbs: arguments become tensors, the library runs without the GIL, results
 * go back. */
#include "call.h"
#include <string.h>

PyObject *core_raise(smx_status status) {
  const char *text = smx_last_error();
  PyObject *type = PyExc_ValueError;
  if (status == SMX_ERR_DTYPE || status == SMX_ERR_NULL) type = PyExc_TypeError;
  if (status == SMX_ERR_NOMEM) type = PyExc_MemoryError;
  if (status == SMX_ERR_THREAD) type = PyExc_RuntimeError;
  PyErr_SetString(type, *text ? text : smx_strerror(status));
  return NULL;
}

int core_missing(const core_call *c, const char *prefix, const char *port) {
  PyErr_Format(PyExc_TypeError, LABEL_TEXT " is missing", c->op->name, prefix, port);
  return -1;
}

/* One argument for a port, if there is one. */
static int open_port(core_call *c, int slot, const char *prefix, const smx_port *port, bool required,
                     const smx_tensor **tensor) {
  if (!c->value[slot]) return required ? core_missing(c, prefix, port->name) : 0;
  *tensor = core_open_port(c, slot, prefix, port);
  return *tensor ? 0 : -1;
}

static int open_inputs(core_call *c, bool backward, const smx_tensor **in) {
  for (int32_t i = 0; i < c->op->input_count; i++) {
    const smx_port *port = c->op->inputs + i;
    bool required = !(port->flags & (SMX_PORT_OPTIONAL | SMX_PORT_EITHER)) &&
                    (!backward || (port->flags & SMX_PORT_SAVED));
    if (open_port(c, SLOT_IN + i, "", port, required, in + i) < 0) return -1;
  }
  return 0;
}

/* One value for all of x, where a row has n of them, would be somebody's axis. */
static int check_dimensions(core_call *c, const smx_port *port, const smx_tensor *t) {
  if (t->ndim || !c->axes.ndim || port->shape != SMX_SHAPE_FULL) return 0;
  PyErr_Format(PyExc_ValueError, "%s: %s: is a single number, not an array like %s", c->op->name, port->name,
               c->op->inputs[0].name);
  return -1;
}

bool core_is_target(const smx_port *port) {
  return port->flags & SMX_PORT_TARGET || !strcmp(port->name, "soft_target") ||
         !strcmp(port->name, "teacher");
}

/* Shares of classes where a class goes, as PyTorch takes them. */
static int check_classes(core_call *c, const smx_port *port, const smx_tensor *t) {
  const bool whole = !core_is_floating(t->dtype);
  for (int32_t i = 1; i < c->op->input_count && !whole && port->flags & SMX_PORT_TARGET; i++) {
    if (strcmp(c->op->inputs[i].name, "soft_target") != 0) continue;
    PyErr_Format(PyExc_TypeError,
                 "%s: %s: is not whole numbers; a mass for each class is soft_target=", c->op->name,
                 port->name);
    return -1;
  }
  return 0;
}

/* Where dimensions have names there is no axis. */
static int take_axes(core_call *c, const smx_tensor *like) {
  c->axes = (core_axes){0};
  return c->op->inputs[0].shape == SMX_SHAPE_DIMS ? 0 : core_take_axes(c, like);
}

/* Inputs as the library is to see them. like: what has the shape of x. */
static int arrange_inputs(core_call *c, const smx_tensor **in, const smx_tensor *like) {
  static const smx_port where_port = {"where", SMX_SHAPE_FULL, SMX_PORT_MASK, ""};
  if (c->value[SLOT_WHERE] && in[0]) {
    const smx_tensor *where = core_open_port(c, SLOT_WHERE, "", &where_port);
    if (!where || !(in[0] = core_where(c, in[0], where))) return -1;
  }
  for (int32_t i = 0; like && i < c->op->input_count; i++) {
    const smx_port *port = c->op->inputs + i;
    if (!in[i] || in[i]->ndim > SMX_MAX_DIMS) continue;
    if (i && port->shape != SMX_SHAPE_DIMS &&
        (check_dimensions(c, port, in[i]) < 0 || check_classes(c, port, in[i]) < 0 ||
         (core_is_target(port) && core_check_exact(c, port, in[i]) < 0)))
      return -1;
    in[i] = core_arrange(c, in[i], port->shape, (core_label){c->op->name, "", port->name}, false);
    if (!in[i]) return -1;
  }
  return 0;
}

static int infer(core_call *c, const smx_tensor *const *in, smx_shape *shape) {
  smx_status status = smx_infer(c->op, &c->params, c->op->input_count, in, c->op->output_count, shape);
  if (status != SMX_OK) return core_raise(status), -1;
  for (int32_t i = 0; i < c->op->output_count; i++) core_result_shape(c, c->op->outputs[i].shape, shape + i);
  return 0;
}

/* ---- out= ---- */

/* The caller's array for result i of n; *given is NULL for none. Unless there is a single one,
 * out= is a tuple or list with an array or None for each. */
static int pick_out(core_call *c, int32_t i, int32_t n, bool single, PyObject **given) {
  PyObject *out = c->value[SLOT_RESULT], *item = NULL;
  *given = single ? out : NULL;
  if (single || !out) return 0;
  bool list = PyList_Check(out);
  if ((!list && !PyTuple_Check(out)) || (list ? PyList_Size(out) : PyTuple_Size(out)) != n) {
    PyErr_Format(PyExc_TypeError, "%s: out: not a tuple of %d arrays", c->op->name, (int)n);
    return -1;
  }
  item = list ? PyList_GetItem(out, i) : PyTuple_GetItem(out, i);
  *given = item == Py_None ? NULL : item;
  return 0;
}

/* ---- forward ---- */

/* Whether windows of [N, C, H, W] or [N, C, D, H, W] have results by channel: where PyTorch's own
 * would, which is where x is so and not in C order. */
static bool results_by_channel(const core_call *c, const smx_tensor *x) {
  const smx_op *op = c->op;
  int64_t strides[SMX_MAX_DIMS], step = 1;
  const char *dims = op->inputs[0].dims;
  if (!x || PyTuple_Size(c->kind) < 4 || !dims || strcmp(dims, "... s*") || core_is_packed(x)) return false;
  if ((x->ndim != 4 && x->ndim != 5) || c->params.value[0] != x->ndim - 2) return false; /* spatial */
  core_strides(x, strides);
  for (int32_t i = x->ndim - 1; i >= 0; i--) {
    const int32_t d = i == 0 ? 0 : i == x->ndim - 1 ? 1 : i + 1;
    if (x->shape[d] > 1 && strides[d] != step) return false;
    step *= x->shape[d];
  }
  return step > 0;
}

/* All outputs but the optional ones that nobody asked for. */
static int open_outputs(core_call *c, const smx_shape *shape, core_results *r) {
  int32_t n = c->op->output_count;
  for (int32_t i = 0; i < n; i++) {
    const smx_port *port = c->op->outputs + i;
    PyObject *given, *asked = c->value[SLOT_OUT + i];
    if (pick_out(c, i, n, n == 1, &given) < 0) return -1;
    int wanted = given || !(port->flags & SMX_PORT_OPTIONAL) ? 1 : asked ? PyObject_IsTrue(asked) : 0;
    if (wanted < 0) return -1;
    if (!wanted) continue;
    if (c->handed >> i & 1
            ? core_open_result(c, r, i, given, shape + i, "", port->name) < 0
            : !(r->tensor[i] = core_make_scratch(c, shape[i].ndim, shape[i].dim, shape[i].dtype)))
      return -1;
    r->tensor[i] =
        core_arrange_row(c, r->tensor[i], port->shape, (core_label){c->op->name, "", port->name}, true);
    if (!r->tensor[i]) return -1;
  }
  return 0;
}

/* Runs the operator, or its gradient where there are upstream ones. */
static int run(core_call *c, const smx_tensor *const *in, const smx_tensor *const *out,
               const smx_tensor *const *dout, const smx_tensor *const *din) {
  const smx_op *op = c->op;
  PyObject *keeper;
  smx_context *ctx;
  smx_status status;
  if (core_context(c->state, op->name, c->value[SLOT_ON_EMPTY], c->value[SLOT_ON_INF], &keeper, &ctx) < 0)
    return -1;
  Py_BEGIN_ALLOW_THREADS;
  status = dout ? smx_backward(op, ctx, &c->params, op->input_count, in, op->output_count, out, dout, din)
                : smx_forward(op, ctx, &c->params, op->input_count, in, op->output_count, out);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(keeper);
  if (status != SMX_OK) return core_raise(status), -1;
  core_copy_back(c);
  return 0;
}

PyObject *core_finish_forward(core_call *c, bool good) {
  core_results r = {0};
  const smx_tensor *in[SMX_MAX_PORTS] = {0};
  smx_shape shape[SMX_MAX_PORTS];
  good = good && open_inputs(c, false, in) == 0 && core_take_kind(c, c->value[SLOT_IN]) == 0 &&
         take_axes(c, in[0]) == 0 && arrange_inputs(c, in, in[0]) == 0 && infer(c, in, shape) == 0 &&
         (c->by_channel = results_by_channel(c, in[0]), true) && open_outputs(c, shape, &r) == 0 &&
         run(c, in, r.tensor, NULL, NULL) == 0;
  core_close(c);
  PyObject *answer = good ? core_give_all(c, &r, c->op->output_count, c->op->output_count == 1) : NULL;
  core_drop(&r);
  return answer;
}

PyObject *core_forward(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  core_call c;
  return core_finish_forward(&c,
                             core_take_arguments(&c, module, args, count) == 0 && core_take_params(&c) == 0);
}

/* ---- backward ---- */

typedef struct gradient {
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
  int32_t wanted[SMX_MAX_PORTS], count; /* inputs whose gradients are asked for */
  bool single;                          /* one was asked for by name, not a tuple of them */
} gradient;

static int want(core_call *c, gradient *g, PyObject *name) {
  for (int32_t i = 0; name && i < c->op->input_count && g->count < SMX_MAX_PORTS; i++) {
    if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, c->op->inputs[i].name) != 0)
      continue;
    g->wanted[g->count++] = i;
    return 0;
  }
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s: wanted: %R is no input", c->op->name, name);
  return -1;
}

/* wanted= is a name, or a tuple or list of names; x if there is none. */
static int take_wanted(core_call *c, gradient *g) {
  PyObject *wanted = c->value[SLOT_WANTED];
  g->single = !wanted || PyUnicode_Check(wanted);
  if (!wanted) return g->count = 1, 0;
  if (g->single) return want(c, g, wanted);
  Py_ssize_t n = PyList_Check(wanted)
                     ? PyList_Size(wanted)
                     : PyTuple_Size(wanted); /* anything else: SystemError becomes TypeError */
  if (n < 0)
    return PyErr_Format(PyExc_TypeError, "%s: wanted: %R is no name of an input, nor a tuple of them",
                        c->op->name, wanted),
           -1;
  for (Py_ssize_t i = 0; i < n; i++)
    if (want(c, g, PyList_Check(wanted) ? PyList_GetItem(wanted, i) : PyTuple_GetItem(wanted, i)) < 0)
      return -1;
  return 0;
}

static int open_saved(core_call *c, gradient *g) {
  const smx_op *op = c->op;
  for (int32_t i = 0; i < op->output_count; i++) {
    const bool saved = op->outputs[i].flags & SMX_PORT_SAVED,
               needed = !(op->outputs[i].flags & SMX_PORT_OPTIONAL);
    if (open_port(c, SLOT_DOUT + i, "d", op->outputs + i, i == 0, g->dout + i) < 0) return -1;
    if (saved && open_port(c, SLOT_OUT + i, "", op->outputs + i, needed, g->out + i) < 0) return -1;
  }
  return 0;
}

static int arrange_saved(core_call *c, gradient *g) {
  for (int32_t i = 0; i < c->op->output_count; i++) {
    const smx_port *port = c->op->outputs + i;
    const smx_tensor *dout = g->dout[i], *out = g->out[i];
    g->dout[i] = core_arrange_row(c, dout, port->shape, (core_label){c->op->name, "d", port->name}, false);
    g->out[i] = core_arrange_row(c, out, port->shape, (core_label){c->op->name, "", port->name}, false);
    if ((dout && !g->dout[i]) || (out && !g->out[i])) return -1;
  }
  return 0;
}

const smx_tensor *core_like_x(const smx_op *op, const smx_tensor *const *in, const smx_tensor *const *dout) {
  return in[0] || op->outputs[0].shape != SMX_SHAPE_FULL ? in[0] : dout[0];
}

/* Gradients of FULL and ROW inputs have the shape they broadcast to, taken from x, or from the
 * upstream gradient when x is not given. Those of other inputs have the shape of the input. The
 * dtype is the input's, or that of the upstream gradient. */
static int shape_of_gradient(core_call *c, const gradient *g, int32_t i, smx_shape *shape) {
  const smx_tensor *own = g->in[i];
  smx_shape_rule rule = c->op->inputs[i].shape;
  bool broadcast = rule != SMX_SHAPE_DIMS && (i == 0 || rule == SMX_SHAPE_FULL || rule == SMX_SHAPE_ROW);
  const smx_tensor *like = broadcast ? core_like_x(c->op, g->in, g->dout) : own;
  if (!like) return core_missing(c, "", c->op->inputs[broadcast ? 0 : i].name);
  if (like->ndim > SMX_MAX_DIMS) {
    PyErr_Format(PyExc_ValueError, "%s: ndim is %d, not 0..%d", c->op->name, (int)like->ndim, SMX_MAX_DIMS);
    return -1;
  }
  shape->ndim = 0;
  shape->dtype = own ? own->dtype : g->dout[0]->dtype;
  for (int32_t d = 0; d < like->ndim; d++)
    if (!(i > 0 && rule == SMX_SHAPE_ROW && c->axes.row[d])) shape->dim[shape->ndim++] = like->shape[d];
  return 0;
}

/* One for each that is wanted; where the caller gives the array the library looks at its shape. */
static int shapes_of_gradients(core_call *c, const gradient *g, smx_shape *shape) {
  for (int32_t k = 0; k < g->count; k++) {
    PyObject *given;
    if (pick_out(c, k, g->count, g->single, &given) < 0) return -1;
    if (!given && shape_of_gradient(c, g, g->wanted[k], shape + k) < 0) return -1;
  }
  return 0;
}

static int open_gradients(core_call *c, gradient *g, const smx_shape *shape, core_results *r) {
  for (int32_t k = 0; k < g->count; k++) {
    PyObject *given;
    const int32_t i = g->wanted[k];
    const smx_port *port = c->op->inputs + i;
    if (pick_out(c, k, g->count, g->single, &given) < 0) return -1;
    if (core_open_result(c, r, k, given, shape + k, "d", port->name) < 0) return -1;
    g->din[i] = core_arrange(c, r->tensor[k], port->shape, (core_label){c->op->name, "d", port->name}, true);
    if (!g->din[i]) return -1;
  }
  return 0;
}

PyObject *core_finish_backward(core_call *c, bool good) {
  core_results r = {0};
  gradient g = {0};
  smx_shape shape[SMX_MAX_PORTS];
  good = good && take_wanted(c, &g) == 0 && open_inputs(c, true, g.in) == 0 && open_saved(c, &g) == 0 &&
         core_take_kind(c, c->value[SLOT_DOUT]) == 0 && take_axes(c, core_like_x(c->op, g.in, g.dout)) == 0 &&
         shapes_of_gradients(c, &g, shape) == 0 &&
         arrange_inputs(c, g.in, core_like_x(c->op, g.in, g.dout)) == 0 && arrange_saved(c, &g) == 0 &&
         open_gradients(c, &g, shape, &r) == 0 && run(c, g.in, g.out, g.dout, g.din) == 0;
  core_close(c);
  PyObject *answer = good ? core_give_all(c, &r, g.count, g.single) : NULL;
  core_drop(&r);
  return answer;
}

PyObject *core_backward(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  core_call c;
  return core_finish_backward(&c,
                              core_take_arguments(&c, module, args, count) == 0 && core_take_params(&c) == 0);
}

/* ---- infer ---- */

/* A list of (shape, name of the dtype), one an output. */
static PyObject *list_shapes(const core_call *c, const smx_shape *shape) {
  PyObject *list = PyList_New(0);
  for (int32_t i = 0; list && i < c->op->output_count; i++) {
    PyObject *dims = core_dims(shape + i),
             *pair = dims ? Py_BuildValue("(Ns)", dims, core_dtype_name(shape[i].dtype)) : NULL;
    if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
    Py_XDECREF(pair);
  }
  return list;
}

PyObject *core_infer(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  core_call c;
  const smx_tensor *in[SMX_MAX_PORTS] = {0};
  smx_shape shape[SMX_MAX_PORTS];
  bool good = core_take_arguments(&c, module, args, count) == 0 && core_take_params(&c) == 0 &&
              open_inputs(&c, false, in) == 0 && take_axes(&c, in[0]) == 0 &&
              arrange_inputs(&c, in, in[0]) == 0 && infer(&c, in, shape) == 0;
  core_close(&c);
  return good ? list_shapes(&c, shape) : NULL;
}

/* A tensor without data of (shape, name of the dtype). */
static int describe(PyObject *pair, smx_tensor *t, int64_t *dim) {
  PyObject *shape = PyTuple_Check(pair) && PyTuple_Size(pair) == 2 ? PyTuple_GetItem(pair, 0) : NULL;
  const char *name = shape ? PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 1), NULL) : NULL;
  const Py_ssize_t n = name && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  *t = (smx_tensor){.device = {DLPACK_CPU, 0}, .ndim = (int32_t)n, .shape = dim};
  if (n < 0 || n > SMX_MAX_DIMS || !core_dtype_named(name, &t->dtype)) {
    if (!PyErr_Occurred()) PyErr_BadInternalCall();
    return -1;
  }
  for (Py_ssize_t d = 0; d < n; d++) dim[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
  return PyErr_Occurred() ? -1 : 0;
}

/* shapes(operator, slots, settings, inputs): what infer() gives for inputs of which only the shape
 * and the dtype are known, None for those that are not given. The operator has no axis. */
PyObject *core_shapes(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  core_call c;
  smx_tensor tensor[SMX_MAX_PORTS];
  int64_t dim[SMX_MAX_PORTS][SMX_MAX_DIMS];
  const smx_tensor *in[SMX_MAX_PORTS] = {0};
  smx_shape shape[SMX_MAX_PORTS];
  if (count != 4 || !PyDict_Check(args[1]) || !PyDict_Check(args[2]) || !PyTuple_Check(args[3]))
    return PyErr_BadInternalCall(), NULL;
  if (core_begin(&c, module, args[0]) < 0 || core_take_named(&c, args[1], args[2]) < 0 ||
      core_take_params(&c) < 0)
    return NULL;
  for (Py_ssize_t i = 0; i < PyTuple_Size(args[3]) && i < c.op->input_count; i++) {
    PyObject *pair = PyTuple_GetItem(args[3], i);
    if (pair == Py_None) continue;
    if (describe(pair, tensor + i, dim[i]) < 0) return NULL;
    in[i] = tensor + i;
  }
  return infer(&c, in, shape) == 0 ? list_shapes(&c, shape) : NULL;
}
