/* brief.c - calls on a few elements take less time than what every call can be asked for: several
 * axes, arrays of any kind, conversions. Here is what is left without them, in few instructions:
 * tensors are opened, results made, and the library runs without releasing the interpreter's
 * lock. Whatever is out of the ordinary, errors too, is left to the long way. */
#include "brief.h"
#include <string.h>

enum { ELEMENTS = 2048, ARRAYS = 12 };

void core_brief_settle(core_brief *b, PyObject *const *value) {
  const smx_op *op = b->op;
  const int odd[] = {SLOT_RESULT, SLOT_KEEPDIMS, SLOT_WHERE, SLOT_ON_EMPTY, SLOT_ON_INF};
  PyObject *axis = value[SLOT_AXIS];
  b->possible = strcmp(op->family, "matrix") != 0 && b->count <= ARRAYS;
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) b->possible &= !value[odd[i]];
  if (axis) {
    const long number = PyLong_Check(axis) && !PyBool_Check(axis) ? PyLong_AsLong(axis) : SMX_MAX_DIMS;
    b->possible &= number >= -SMX_MAX_DIMS && number < SMX_MAX_DIMS && !PyErr_Occurred();
    b->params.axis = (int32_t)number;
    PyErr_Clear();
  }
  for (int32_t i = 0; i < op->output_count; i++) {
    PyObject *asked = value[SLOT_OUT + i];
    if (!(op->outputs[i].flags & SMX_PORT_OPTIONAL) || asked == Py_True) b->made |= UINT32_C(1) << i;
    b->possible &= b->backward || !asked || asked == Py_True || asked == Py_False;
    const smx_shape_rule rule = op->outputs[i].shape;
    b->possible &= rule == SMX_SHAPE_FULL || rule == SMX_SHAPE_ROW || rule == SMX_SHAPE_SCALAR;
  }
  if (!b->backward) b->handed &= b->made;
}

/* ---- a call ---- */

typedef struct brief {
  const core_brief *b;
  const core_torch *t;
  core_array view[ARRAYS];
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
  int32_t axis;
} brief;

/* Whether the library takes the tensor as it is. */
static bool is_ordinary(const smx_port *port, const smx_tensor *t) {
  if (port->flags & SMX_PORT_INT) return t->dtype.code == 0 && t->dtype.bits >= 32;
  if (port->flags & SMX_PORT_MASK) return true;
  return core_is_floating(t->dtype);
}

static bool open_all(brief *c, PyObject *const *arrays, core_array *const *opened) {
  for (int32_t i = 0; i < c->b->count; i++) {
    const int32_t slot = c->b->slot[i], output = slot >= SLOT_DOUT ? slot - SLOT_DOUT : slot - SLOT_OUT;
    core_array *a = opened ? opened[i] : c->view + i;
    if (!opened && (!core_is_plain(c->t, arrays[i]) || !core_array_view(a, c->t->view, arrays[i])))
      return false;
    const smx_port *port = slot < SLOT_OUT ? c->b->op->inputs + slot : c->b->op->outputs + output;
    if (!is_ordinary(port, &a->tensor)) return false;
    *(slot < SLOT_OUT ? c->in + slot : slot >= SLOT_DOUT ? c->dout + output : c->out + output) = &a->tensor;
  }
  return true;
}

/* Few elements, rows along an axis that there is, and no input that is to be broadcast where that
 * would be somebody's mistake. like: what has the shape of x. */
static bool fits(brief *c, const smx_tensor *like) {
  int64_t elements = 1;
  if (!like || like->ndim < 1) return false;
  for (int32_t d = 0; d < like->ndim; d++)
    elements = elements > ELEMENTS ? elements : elements * like->shape[d];
  c->axis = c->b->params.axis + (c->b->params.axis < 0 ? like->ndim : 0);
  if (elements > ELEMENTS || c->axis < 0 || c->axis >= like->ndim) return false;
  for (int32_t i = 1; i < c->b->op->input_count; i++) {
    const smx_port *port = c->b->op->inputs + i;
    const smx_tensor *t = c->in[i];
    if (!t) continue;
    if (t->ndim == 0 && port->shape == SMX_SHAPE_FULL) return false;
    if (!core_is_target(port)) continue;
    const bool row = port->shape == SMX_SHAPE_ROW;
    if (t->ndim != like->ndim - row) return false;
    for (int32_t d = 0; d < t->ndim; d++)
      if (t->shape[d] != like->shape[d + (row && d >= c->axis)]) return false;
  }
  return true;
}

static smx_shape shape_of(const brief *c, const smx_port *port, const smx_tensor *like) {
  smx_shape s = {.dtype = port->flags & SMX_PORT_INT ? SMX_I64 : like->dtype};
  for (int32_t d = 0; d < like->ndim && port->shape != SMX_SHAPE_SCALAR; d++)
    if (port->shape == SMX_SHAPE_FULL || d != c->axis) s.dim[s.ndim++] = like->shape[d];
  return s;
}

/* Results that are handed out, or one that is not, in `room`. */
static bool make_results(brief *c, PyObject **made, core_array *results, void *room) {
  const smx_op *op = c->b->op;
  bool taken = false;
  for (int32_t i = 0; i < op->output_count; i++) {
    if (!(c->b->made >> i & 1)) continue;
    const smx_shape shape = shape_of(c, op->outputs + i, c->in[0]);
    core_array *a = results + i;
    if (c->b->handed >> i & 1) {
      if (!(made[i] = core_torch_make(c->t, &shape, false, a))) return false;
    } else {
      if (taken) return false;
      taken = true;
      core_copy_dims(a->shape, shape.dim, shape.ndim);
      a->tensor = (smx_tensor){room, {DLPACK_CPU, 0}, shape.ndim, shape.dtype, a->shape, NULL, 0};
    }
    c->out[i] = &a->tensor;
  }
  return true;
}

static PyObject *hand_out(const brief *c, PyObject **made) {
  const int32_t n = c->b->op->output_count;
  for (int32_t i = 0; i < n; i++)
    if (n == 1 || c->b->handed == UINT32_C(1) << i) return Py_NewRef(made[i]);
  PyObject *all = PyTuple_New(n);
  for (int32_t i = 0; all && i < n; i++) PyTuple_SetItem(all, i, Py_NewRef(made[i] ? made[i] : Py_None));
  return all;
}

static PyObject *forward(brief *c) {
  const smx_op *op = c->b->op;
  PyObject *made[SMX_MAX_PORTS] = {NULL}, *answer = NULL;
  core_array results[SMX_MAX_PORTS];
  double room[ELEMENTS];
  if (fits(c, c->in[0]) && make_results(c, made, results, room)) {
    const smx_status status =
        smx_forward(op, NULL, &c->b->params, op->input_count, c->in, op->output_count, c->out);
    answer = status == SMX_OK ? hand_out(c, made) : core_raise(status);
  }
  for (int32_t i = 0; i < op->output_count; i++) Py_XDECREF(made[i]);
  return answer;
}

static PyObject *backward(brief *c) {
  const smx_op *op = c->b->op;
  const smx_tensor *like = core_like_x(op, c->in, c->dout);
  core_array result;
  if (!c->dout[0] || !fits(c, like)) return NULL;
  smx_shape shape = shape_of(c, op->inputs, like);
  shape.dtype = c->in[0] ? c->in[0]->dtype : c->dout[0]->dtype;
  PyObject *made = core_torch_make(c->t, &shape, false, &result);
  if (!made) return NULL;
  c->din[0] = &result.tensor;
  const smx_status status = smx_backward(op, NULL, &c->b->params, op->input_count, c->in, op->output_count,
                                         c->out, c->dout, c->din);
  if (status == SMX_OK) return made;
  Py_DECREF(made);
  return core_raise(status);
}

PyObject *core_brief_run(const core_state *state, const core_brief *b, PyObject *const *arrays,
                         core_array *const *opened) {
  brief c;
  c.b = b, c.t = state->torch;
  if (!b->possible || state->threads != 1 || !c.t || !c.t->view) return NULL;
  memset(c.in, 0, sizeof c.in), memset(c.out, 0, sizeof c.out);
  memset(c.dout, 0, sizeof c.dout), memset(c.din, 0, sizeof c.din);
  if (!open_all(&c, arrays, opened)) return NULL;
  return b->backward ? backward(&c) : forward(&c);
}
