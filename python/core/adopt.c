/* adopt.c - what is no array of a kind that arrays.c can open but that NumPy makes one of:
 * lists, data frames, masked arrays. Python (libsoftmax/_arrays.py) is asked once a type. */
#include "core.h"

PyObject *core_adopter(core_state *state, PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object), *found = PyDict_GetItemWithError(state->adopters, type);
  if (found || PyErr_Occurred()) return found;
  PyObject *module = PyImport_ImportModule("libsoftmax._arrays");
  found = module ? PyObject_CallMethod(module, "adopter", "(O)", object) : NULL;
  if (found && PyDict_SetItem(state->adopters, type, found) < 0) Py_CLEAR(found);
  Py_XDECREF(module);
  Py_XDECREF(found); /* the dict keeps it */
  return found;
}

void core_prefix(core_label label) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (PyErr_GivenExceptionMatches(type, PyExc_TypeError) ||
      PyErr_GivenExceptionMatches(type, PyExc_ValueError)) {
    PyErr_Format(PyErr_GivenExceptionMatches(type, PyExc_TypeError) ? PyExc_TypeError : PyExc_ValueError,
                 LABEL_TEXT ": %S", LABEL_ARGS(label), value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  } else PyErr_Restore(type, value, trace);
}

PyObject *core_adopt(core_state *state, PyObject *object, core_label label, bool write) {
  PyObject *how = core_adopter(state, object);
  if (!how) return NULL;
  if (how == Py_None) return Py_NewRef(object);
  if (write) {
    PyErr_Format(PyExc_ValueError, LABEL_TEXT ": is not a writable array", LABEL_ARGS(label));
    return NULL;
  }
  PyObject *array =
      PyObject_CallFunctionObjArgs(PyTuple_Check(how) ? PyTuple_GetItem(how, 0) : how, object, NULL);
  if (!array) core_prefix(label);
  return array;
}
