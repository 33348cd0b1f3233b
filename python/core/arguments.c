/* arguments.c - which argument of a call is which, and parameters out of numbers and words. */
#include "call.h"
#include <string.h>

static int put(core_call *c, long slot, PyObject *name, PyObject *value) {
  if (c->value[slot]) {
    PyErr_Format(PyExc_TypeError, "%s: %U is given twice", c->op->name, name);
    return -1;
  }
  c->value[slot] = value == Py_None ? NULL : value;
  return 0;
}

static int take_positional(core_call *c, PyObject *args, int first, Py_ssize_t most) {
  Py_ssize_t n = PyTuple_Size(args);
  if (n > most) {
    PyErr_Format(PyExc_TypeError, "%s: %zd arrays by position, at most %zd", c->op->name, n, most);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *value = PyTuple_GetItem(args, i);
    c->value[first + i] = value == Py_None ? NULL : value;
  }
  return n < 0 ? -1 : 0;
}

static int take_named(core_call *c, PyObject *slots, PyObject *kwargs) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, &value);) {
    PyObject *slot = PyDict_GetItemWithError(slots, name);
    if (!slot) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s: no argument named '%U'", c->op->name, name);
      return -1;
    }
    long number = PyLong_AsLong(slot);
    if (number < 0 || number >= SLOTS) return PyErr_BadInternalCall(), -1;
    if (put(c, number, name, value) < 0) return -1;
  }
  return 0;
}

static int take_axis(core_call *c) {
  PyObject *value = c->value[SLOT_AXIS], *number = value ? PyNumber_Index(value) : NULL;
  if (!value) return 0;
  int overflow = 0;
  long axis = number ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
  Py_XDECREF(number);
  if (PyErr_Occurred()) return -1;
  if (overflow || axis < INT32_MIN || axis > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s: axis is %S, far out of range", c->op->name, value);
    return -1;
  }
  c->params.axis = (int32_t)axis;
  return 0;
}

int core_take_arguments(core_call *c, PyObject *module, PyObject *const *args, Py_ssize_t count, bool backward) {
  c->used = 0;
  c->kind = NULL;
  c->state = PyModule_GetState(module);
  memset(c->value, 0, sizeof c->value);
  if (count != 4 || !PyLong_Check(args[0]) || !PyDict_Check(args[1]) || !PyTuple_Check(args[2]) || !PyDict_Check(args[3])) {
    PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes (operator, slots, args, kwargs)");
    return -1;
  }
  c->op = smx_op_at(PyLong_AsSize_t(args[0]));
  if (PyErr_Occurred()) return -1;
  if (!c->op) return core_raise(SMX_ERR_NO_OP), -1;
  smx_params_init(c->op, &c->params);
  int first = backward ? SLOT_DOUT : SLOT_IN;
  Py_ssize_t most = backward ? 1 : c->op->input_count;
  if (take_positional(c, args[2], first, most) < 0 || take_named(c, args[1], args[3]) < 0) return -1;
  return take_axis(c);
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
  if (large) PyErr_Format(PyExc_ValueError, "%s: %s: %S is out of range", c->op->name, p->name, value);
  else PyErr_Format(PyExc_TypeError, "%s: %s: %R is not a number%s", c->op->name, p->name, value, p->choices ? " or a choice" : "");
  return -1;
}

/* NumPy's scalars are numbers, its arrays (of no dimensions too) are not. */
static bool is_number(PyObject *o) {
  return PyFloat_Check(o) || PyLong_Check(o) || (PyNumber_Check(o) && !PyObject_HasAttrString(o, "__dlpack__"));
}

/* An input and a parameter may have one name: then a number is the parameter, and an array the input. */
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
