/* results.c - arrays of a call: opened, made where the caller gives none, closed, and handed back as the caller's kind. */
#include "call.h"

const smx_tensor *core_open(core_call *c, PyObject *object, const char *prefix, const char *port, bool write) {
  core_array *a = c->arrays + c->used;
  if (core_array_open(c->state, a, object, (core_label){c->op->name, prefix, port}, write) < 0) return NULL;
  c->used++;
  return &a->tensor;
}

/* Asked of Python once a type, then remembered. */
int core_take_kind(core_call *c, PyObject *like) {
  PyObject *type = (PyObject *)Py_TYPE(like);
  c->kind = PyDict_GetItemWithError(c->state->kinds, type);
  if (c->kind || PyErr_Occurred()) return c->kind ? 0 : -1;
  PyObject *module = PyImport_ImportModule("libsoftmax._arrays");
  PyObject *kind = module ? PyObject_CallMethod(module, "kind", "O", like) : NULL;
  if (kind && PyDict_SetItem(c->state->kinds, type, kind) == 0) c->kind = kind; /* kept by the dict */
  Py_XDECREF(kind);
  Py_XDECREF(module);
  return c->kind ? 0 : -1;
}

static PyObject *make_array(core_call *c, const smx_shape *shape) {
  const char *name = core_dtype_name(shape->dtype);
  if (!name) return PyErr_Format(PyExc_TypeError, "%s: results of %d bits have no name here", c->op->name, (int)shape->dtype.bits);
  PyObject *dims = core_dims(shape), *dtype = dims ? PyUnicode_InternFromString(name) : NULL, *array = NULL;
  if (dtype) array = PyObject_CallFunctionObjArgs(PyTuple_GetItem(c->kind, 0), dims, dtype, NULL);
  Py_XDECREF(dims);
  Py_XDECREF(dtype);
  return array;
}

int core_open_result(core_call *c, core_results *r, int32_t i, PyObject *given, const smx_shape *shape, const char *prefix,
                     const char *port) {
  r->made[i] = !given;
  r->object[i] = given ? Py_NewRef(given) : make_array(c, shape);
  r->tensor[i] = r->object[i] ? core_open(c, r->object[i], prefix, port, true) : NULL;
  return r->tensor[i] ? 0 : -1;
}

void core_close(core_call *c) {
  for (int i = 0; i < c->used; i++) core_array_close(c->arrays + i);
  c->used = 0;
}

PyObject *core_give(core_call *c, core_results *r, int32_t i) {
  if (!r->object[i]) return Py_NewRef(Py_None);
  PyObject *wrap = r->made[i] ? PyTuple_GetItem(c->kind, 1) : Py_None;
  if (wrap == Py_None) return Py_NewRef(r->object[i]);
  return wrap ? PyObject_CallFunctionObjArgs(wrap, r->object[i], NULL) : NULL;
}

void core_drop(core_results *r) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) Py_CLEAR(r->object[i]);
}
