/* axes.c - axis=None, several axes, keepdims: the library runs rows along one axis, so that
 * several become one at the end, by a view where strides allow and a copy where not. Also what
 * the shapes of targets have to be, and where=. */
#include "call.h"
#include <string.h>

/* ---- the argument ---- */

static int refuse_axis(core_call *c, PyObject *value) {
  PyObject *type = PyType_GetName(Py_TYPE(value));
  PyErr_Clear();
  if (type)
    PyErr_Format(PyExc_TypeError,
                 "%s: axis: %S is no axis, nor a tuple of them, nor None; other arguments go by name",
                 c->op->name, PyFloat_Check(value) || PyBool_Check(value) ? value : type);
  Py_XDECREF(type);
  return -1;
}

/* -1 with an exception. */
static int take_axis(core_call *c, PyObject *value, int32_t *axis) {
  PyObject *number = PyBool_Check(value) ? NULL : PyNumber_Index(value);
  int overflow = 0;
  long found = number ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
  if (!number) return refuse_axis(c, value);
  Py_DECREF(number);
  if (overflow || found < INT32_MIN || found > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s: axis is %S, far out of range", c->op->name, value);
    return -1;
  }
  *axis = (int32_t)found;
  return 0;
}

static int mark(core_call *c, int32_t axis) {
  core_axes *a = &c->axes;
  int32_t d = axis < 0 ? axis + a->ndim : axis;
  if (d < 0 || d >= a->ndim)
    PyErr_Format(PyExc_ValueError, "%s: axis is %d, not %d..%d", c->op->name, axis, -a->ndim, a->ndim - 1);
  else if (a->row[d]) PyErr_Format(PyExc_ValueError, "%s: axis: %d is given twice", c->op->name, axis);
  else return a->row[d] = true, 0;
  return -1;
}

static int mark_all(core_call *c, PyObject *axes) {
  bool list = PyList_Check(axes);
  Py_ssize_t n = list ? PyList_Size(axes) : PyTuple_Size(axes);
  for (Py_ssize_t i = 0; i < n; i++) {
    int32_t axis;
    if (take_axis(c, list ? PyList_GetItem(axes, i) : PyTuple_GetItem(axes, i), &axis) < 0 ||
        mark(c, axis) < 0)
      return -1;
  }
  return 0;
}

int core_take_axes(core_call *c, const smx_tensor *x) {
  core_axes *a = &c->axes;
  PyObject *value = c->value[SLOT_AXIS], *keep = c->value[SLOT_KEEPDIMS];
  int kept = keep ? PyObject_IsTrue(keep) : 0;
  *a = (core_axes){.keep = kept == 1};
  if (kept < 0) return -1;
  bool list = value && (PyTuple_Check(value) || PyList_Check(value));
  if (value && value != Py_None && !list && take_axis(c, value, &c->params.axis) < 0) return -1;
  if (!x || x->ndim > SMX_MAX_DIMS) return 0; /* the library's to refuse */
  a->ndim = x->ndim;
  core_copy_dims(a->shape, x->shape, x->ndim);
  a->several = value == Py_None || list;
  if (a->several) c->params.axis = -1; /* once they are one */
  if (value == Py_None) memset(a->row, 1, sizeof a->row);
  else if (list) return mark_all(c, value);
  else if (c->params.axis >= -x->ndim && c->params.axis < x->ndim) return mark(c, c->params.axis);
  return 0;
}

/* ---- tensors as the library is to see them ---- */

/* A port's shape here, and NumPy's way of saying it. */
static int fail_shape(const smx_tensor *t, core_label label, const int64_t *shape, int32_t ndim,
                      const char *how) {
  smx_shape found = {.ndim = t->ndim > SMX_MAX_DIMS ? SMX_MAX_DIMS : t->ndim}, wanted = {.ndim = ndim};
  core_copy_dims(found.dim, t->shape, found.ndim);
  core_copy_dims(wanted.dim, shape, ndim);
  PyObject *a = core_dims(&found), *b = a ? core_dims(&wanted) : NULL;
  if (b) PyErr_Format(PyExc_ValueError, LABEL_TEXT ": shape is %R, %s %R", LABEL_ARGS(label), a, how, b);
  Py_XDECREF(a);
  Py_XDECREF(b);
  return -1;
}

/* Steps that give t the shape of x, as NumPy broadcasts. */
static int broadcast(core_call *c, const smx_tensor *t, core_label label, int64_t *step) {
  const core_axes *a = &c->axes;
  int32_t lead = a->ndim - t->ndim;
  int64_t own[SMX_MAX_DIMS];
  if (lead < 0) return fail_shape(t, label, a->shape, a->ndim, "which does not broadcast to");
  core_strides(t, own);
  for (int32_t d = 0; d < a->ndim; d++) {
    int64_t size = d < lead ? 1 : t->shape[d - lead];
    if (size != 1 && size != a->shape[d])
      return fail_shape(t, label, a->shape, a->ndim, "which does not broadcast to");
    step[d] = size == 1 ? 0 : own[d - lead];
  }
  return 0;
}

/* Whether these dimensions are one with a single step. */
static bool mergeable(int32_t ndim, const int64_t *shape, const int64_t *step, int64_t *one) {
  int64_t next = 0;
  bool first = true;
  *one = 1;
  for (int32_t d = ndim - 1; d >= 0; d--) {
    if (shape[d] == 1) continue;
    if (first) *one = step[d];
    else if (step[d] != next) return false;
    next = step[d] * shape[d];
    first = false;
  }
  return true;
}

/* The row's axes behind the others, and merged. */
static const smx_tensor *merge(core_call *c, const smx_tensor *t, core_label label, bool write) {
  const core_axes *a = &c->axes;
  int64_t step[SMX_MAX_DIMS], shape[SMX_MAX_DIMS + 1], order[SMX_MAX_DIMS + 1], one, n = 1;
  int32_t others = 0, last;
  if (broadcast(c, t, label, step) < 0) return NULL;
  for (int32_t d = 0; d < a->ndim; d++)
    if (!a->row[d]) shape[others] = a->shape[d], order[others++] = step[d];
  last = others;
  for (int32_t d = 0; d < a->ndim; d++)
    if (a->row[d]) shape[last] = a->shape[d], order[last++] = step[d], n *= a->shape[d];
  if (others == SMX_MAX_DIMS) {
    PyErr_Format(PyExc_ValueError, "%s: axis: no axis of %d dimensions is left out", c->op->name,
                 (int)a->ndim);
    return NULL;
  }
  const smx_tensor *view = t;
  if (!mergeable(last - others, shape + others, order + others, &one)) {
    smx_tensor *from = core_make_view(c, t, last, shape, order),
               *packed = from ? core_make_scratch(c, last, shape, t->dtype) : NULL;
    if (!packed) return NULL;
    if (write) core_write_back(c, from);
    else core_copy(from, packed);
    view = packed;
    core_copy_dims(order, packed->strides, last);
    one = 1;
  }
  shape[others] = n;
  order[others] = one;
  return core_make_view(c, view, others + 1, shape, order);
}

/* Without the dimensions of 1 that keepdims=True left. */
static const smx_tensor *squeeze(core_call *c, const smx_tensor *t, core_label label) {
  const core_axes *a = &c->axes;
  int64_t kept[SMX_MAX_DIMS], own[SMX_MAX_DIMS], shape[SMX_MAX_DIMS], step[SMX_MAX_DIMS];
  int32_t ndim = 0;
  bool good = t->ndim == a->ndim;
  for (int32_t d = 0; d < a->ndim; d++) {
    kept[d] = a->row[d] ? 1 : a->shape[d];
    good = good && t->shape[d] == kept[d];
  }
  if (!good) return fail_shape(t, label, kept, a->ndim, "with keepdims not"), NULL;
  core_strides(t, own);
  for (int32_t d = 0; d < a->ndim; d++)
    if (!a->row[d]) shape[ndim] = t->shape[d], step[ndim++] = own[d];
  return core_make_view(c, t, ndim, shape, step);
}

const smx_tensor *core_arrange(core_call *c, const smx_tensor *t, smx_shape_rule rule, core_label label,
                               bool write) {
  if (!t || t->ndim > SMX_MAX_DIMS || t->device.device_type != DLPACK_CPU) return t;
  if (c->axes.several && rule == SMX_SHAPE_FULL) return merge(c, t, label, write);
  return t;
}

const smx_tensor *core_arrange_row(core_call *c, const smx_tensor *t, smx_shape_rule rule, core_label label,
                                   bool write) {
  if (t && c->axes.keep && rule == SMX_SHAPE_ROW && t->ndim <= SMX_MAX_DIMS) return squeeze(c, t, label);
  return core_arrange(c, t, rule, label, write);
}

/* ---- shapes as the caller sees them ---- */

void core_result_shape(const core_call *c, smx_shape_rule rule, smx_shape *shape) {
  const core_axes *a = &c->axes;
  const bool full = a->several && rule == SMX_SHAPE_FULL, kept = a->keep && rule == SMX_SHAPE_ROW;
  if (!full && !kept) return;
  shape->ndim = a->ndim;
  for (int32_t d = 0; d < a->ndim; d++) shape->dim[d] = kept && a->row[d] ? 1 : a->shape[d];
}

int core_check_exact(core_call *c, const smx_port *port, const smx_tensor *t) {
  const core_axes *a = &c->axes;
  int64_t shape[SMX_MAX_DIMS];
  int32_t ndim = 0;
  bool rows = port->shape == SMX_SHAPE_ROW, good;
  for (int32_t d = 0; d < a->ndim; d++)
    if (!(rows && a->row[d])) shape[ndim++] = a->shape[d];
  good = t->ndim == ndim;
  for (int32_t d = 0; good && d < ndim; d++) good = t->shape[d] == shape[d];
  return good ? 0
              : fail_shape(t, (core_label){c->op->name, "", port->name}, shape, ndim,
                           rows ? "not one a row," : "not that of x,");
}

/* ---- where= ---- */

const smx_tensor *core_where(core_call *c, const smx_tensor *x, const smx_tensor *where) {
  core_label label = {c->op->name, "", "where"};
  int64_t step[SMX_MAX_DIMS];
  if (where->dtype.bits != 8 || (where->dtype.code != 1 && where->dtype.code != 6)) {
    const char *name = core_dtype_name(where->dtype);
    PyErr_Format(PyExc_TypeError, LABEL_TEXT ": dtype is %s, not bool or uint8", LABEL_ARGS(label),
                 name ? name : "another");
    return NULL;
  }
  if (!c->axes.ndim && x->ndim) return x; /* more dimensions than the library takes */
  if (broadcast(c, where, label, step) < 0) return NULL;
  smx_tensor *copy = core_make_scratch(c, x->ndim, x->shape, x->dtype);
  smx_tensor *keep = copy ? core_make_view(c, where, x->ndim, x->shape, step) : NULL;
  if (!keep) return NULL;
  core_copy(x, copy);
  core_hide(copy, keep);
  return copy;
}
