/* arguments.c - which argument of a call is which, and parameters out of numbers and words. */
#include "call.h"
#include <string.h>

/* None means not given, but as an axis. */
static int put(core_call *c, PyObject *slot, PyObject *name, PyObject *value) {
  long number = PyLong_AsLong(slot);
  if (number < 0 || number >= SLOTS) return PyErr_BadInternalCall(), -1;
  if (c->value[number]) {
    PyErr_Format(PyExc_TypeError, "%s: %U is given twice", c->op->name, name);
    return -1;
  }
  c->value[number] = value == Py_None && number != SLOT_AXIS ? NULL : value;
  return 0;
}

/* Python knows what was meant: dim is axis. */
static int fail_unknown(core_call *c, PyObject *slots, PyObject *name) {
  PyObject *module = PyImport_ImportModule("libsoftmax._text");
  PyObject *text = module ? PyObject_CallMethod(module, "unknown", "sOO", c->op->name, name, slots) : NULL;
  if (text) PyErr_SetObject(PyExc_TypeError, text);
  Py_XDECREF(module);
  Py_XDECREF(text);
  return -1;
}

static int take_positional(core_call *c, PyObject *order, PyObject *args) {
  Py_ssize_t n = PyTuple_Size(args), most = PyTuple_Size(order);
  if (n > most) {
    /* The first of a gradient is that of a result. */
    const long first = most ? PyLong_AsLong(PyTuple_GetItem(order, 0)) : 0;
    PyErr_Format(PyExc_TypeError, "%s%s: %zd arguments by position, at most %zd; the others go by name",
                 c->op->name, first >= SLOT_DOUT && first < SLOT_PARAM ? "_backward" : "", n, most);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++)
    if (put(c, PyTuple_GetItem(order, i), NULL, PyTuple_GetItem(args, i)) < 0) return -1;
  return 0;
}

int core_take_named(core_call *c, PyObject *slots, PyObject *kwargs) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, &value);) {
    PyObject *slot = PyDict_GetItemWithError(slots, name);
    if (!slot) return PyErr_Occurred() ? -1 : fail_unknown(c, slots, name);
    if (put(c, slot, name, value) < 0) return -1;
  }
  return 0;
}

/* ---- masked arrays ---- */

/* Whether an input has a number for each element of the first. */
static bool is_as_x(const smx_op *op, int32_t i) {
  const char *const own = op->inputs[i].dims, *const of_x = op->inputs[0].dims;
  return !own || !of_x || !strcmp(own, of_x);
}

/* Where the mask of x goes: to the operator's own, or to where=; -1: nowhere. */
static long mask_slot(core_call *c, PyObject *slots) {
  for (int32_t i = 1; i < c->op->input_count; i++)
    if (c->op->inputs[i].flags & SMX_PORT_MASK && is_as_x(c->op, i)) return SLOT_IN + i;
  return PyDict_GetItemString(slots, "where") ? SLOT_WHERE : -1;
}

/* x and its mask apart, together with a mask that was given. References are kept by the call. */
static int take_masked(core_call *c, PyObject *slots) {
  PyObject *x = c->value[SLOT_IN], *how = x ? core_adopter(c->state, x) : NULL;
  if (!how) return PyErr_Occurred() ? -1 : 0;
  const long slot = PyTuple_Check(how) ? mask_slot(c, slots) : -1;
  if (slot < 0) return 0; /* to be refused when it is opened, if anything is masked */
  PyObject *given = c->value[slot] ? c->value[slot] : Py_None;
  c->unmasked = PyObject_CallFunctionObjArgs(PyTuple_GetItem(how, 1), x, given, NULL);
  if (!c->unmasked) return -1;
  PyObject *mask = PyTuple_GetItem(c->unmasked, 1);
  c->value[SLOT_IN] = PyTuple_GetItem(c->unmasked, 0);
  c->value[slot] = mask == Py_None ? NULL : mask;
  return 0;
}

void core_clear(core_call *c, PyObject *module, const smx_op *op) {
  c->used = 0;
  c->torch = NULL, c->by_channel = false;
  c->handed = UINT32_MAX;
  c->opened_count = 0;
  c->kind = c->unmasked = NULL;
  c->scratch = NULL;
  c->axes.several = c->axes.keep = false;
  c->state = PyModule_GetState(module);
  c->op = op;
}

int core_begin(core_call *c, PyObject *module, PyObject *index) {
  core_clear(c, module, smx_op_at(PyLong_AsSize_t(index)));
  memset(c->value, 0, sizeof c->value);
  if (PyErr_Occurred()) return -1;
  if (!c->op) return core_raise(SMX_ERR_NO_OP), -1;
  smx_params_init(c->op, &c->params);
  return 0;
}

int core_take_arguments(core_call *c, PyObject *module, PyObject *const *args, Py_ssize_t count) {
  c->used = 0;
  c->unmasked = NULL;
  c->scratch = NULL;
  if (count != 5 || !PyLong_Check(args[0]) || !PyDict_Check(args[1]) || !PyTuple_Check(args[2]) ||
      !PyTuple_Check(args[3]) || !PyDict_Check(args[4])) {
    PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes (operator, slots, order, args, kwargs)");
    return -1;
  }
  if (core_begin(c, module, args[0]) < 0) return -1;
  if (take_positional(c, args[2], args[3]) < 0 || core_take_named(c, args[1], args[4]) < 0) return -1;
  return take_masked(c, args[1]);
}

/* ---- parameters ---- */

static int take_param(core_call *c, int32_t i, PyObject *value) {
  const smx_param *p = c->op->params + i;
  if (p->choices && PyUnicode_Check(value)) {
    const char *text = PyUnicode_AsUTF8AndSize(value, NULL);
    smx_status status = text ? smx_params_parse(c->op, &c->params, p->name, text) : SMX_OK;
    return text && status == SMX_OK ? 0 : (text ? core_raise(status) : NULL, -1);
  }
  c->params.value[i] = PyFloat_AsDouble(value); /* the library checks the range */
  if (c->params.value[i] != -1 || !PyErr_Occurred()) return 0;
  bool large = PyErr_ExceptionMatches(PyExc_OverflowError);
  if (!large && !PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
  PyErr_Clear();
  if (PyObject_HasAttrString(value, "__dlpack__") || PyObject_HasAttrString(value, "__len__")) {
    if (p->choices || !PyUnicode_Check(value)) {
      PyErr_Format(PyExc_TypeError, "%s: %s: is one number for all rows, not an array", c->op->name, p->name);
      return -1;
    }
  }
  if (large) PyErr_Format(PyExc_ValueError, "%s: %s: %S is out of range", c->op->name, p->name, value);
  else
    PyErr_Format(PyExc_TypeError, "%s: %s: %R is not a number%s", c->op->name, p->name, value,
                 p->choices ? " or a choice" : "");
  return -1;
}

/* NumPy's scalars are numbers, its arrays (of no dimensions too) are not. */
static bool is_number(PyObject *o) {
  return PyFloat_Check(o) || PyLong_Check(o) ||
         (PyNumber_Check(o) && !PyObject_HasAttrString(o, "__dlpack__"));
}

/* An input and a parameter may have one name: then a number is the parameter, and an array the
 * input. */
static int take_shared(core_call *c, int32_t i) {
  PyObject *value = c->value[SLOT_PARAM + i];
  for (int32_t k = 1; k < c->op->input_count && !value; k++) {
    PyObject *given = c->value[SLOT_IN + k];
    if (!given || strcmp(c->op->inputs[k].name, c->op->params[i].name) != 0 || !is_number(given)) continue;
    value = given;
    c->value[SLOT_IN + k] = NULL;
  }
  return value ? take_param(c, i, value) : 0;
}

int core_take_params(core_call *c) {
  for (int32_t i = 0; i < c->op->param_count; i++)
    if (take_shared(c, i) < 0) return -1;
  return 0;
}
