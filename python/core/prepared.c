/* prepared.c - calls that are alike: what their settings mean is worked out once, since a call
 * on a few elements takes less time than that. */
#include "call.h"
#include <string.h>

#define PREPARED "libsoftmax.prepared"

typedef struct prepared {
  bool backward;
  core_plain plain;
  PyObject *index, *settings; /* kept: `value` borrows from it */
  smx_params params;
  PyObject *value[SLOTS];
  int32_t count, slot[SLOTS]; /* of the tensors */
} prepared;

static void forget(PyObject *capsule) {
  prepared *p = PyCapsule_GetPointer(capsule, PREPARED);
  Py_XDECREF(p->plain.types);
  Py_XDECREF(p->index);
  Py_XDECREF(p->settings);
  PyMem_Free(p);
}

static int take_slots(prepared *p, PyObject *order) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(order) && i < SLOTS; i++) {
    long slot = PyLong_AsLong(PyTuple_GetItem(order, i));
    if (slot < 0 || slot >= SLOTS) return PyErr_BadInternalCall(), -1;
    p->slot[p->count++] = (int32_t)slot;
  }
  return 0;
}

static int take_settings(prepared *p, PyObject *module, PyObject *slots) {
  core_call c;
  if (core_begin(&c, module, p->index) < 0 || core_take_named(&c, slots, p->settings) < 0 ||
      core_take_params(&c) < 0)
    return -1;
  p->params = c.params;
  memcpy(p->value, c.value, sizeof p->value);
  return 0;
}

PyObject *core_prepare(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  if (count != 6 || !PyLong_Check(args[1]) || !PyDict_Check(args[2]) || !PyTuple_Check(args[3]) ||
      !PyDict_Check(args[4]) || !PyTuple_Check(args[5]) || PyTuple_Size(args[5]) < 1)
    return PyErr_SetString(PyExc_TypeError,
                           "libsoftmax._core: takes (backward, operator, slots, order, kwargs, types)"),
           NULL;
  prepared *p = PyMem_Calloc(1, sizeof *p);
  PyObject *capsule = p ? PyCapsule_New(p, PREPARED, forget) : NULL;
  if (!capsule) return PyMem_Free(p), PyErr_NoMemory();
  p->backward = args[0] == Py_True;
  p->plain.types = Py_NewRef(args[5]);
  p->plain.view = core_viewer_of(PyTuple_GetItem(args[5], 0));
  p->index = Py_NewRef(args[1]);
  p->settings = PyDict_Copy(args[4]);
  if (!p->settings || take_slots(p, args[3]) < 0 || take_settings(p, module, args[2]) < 0) Py_CLEAR(capsule);
  return capsule;
}

PyObject *core_run_prepared(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  const prepared *p = count ? PyCapsule_GetPointer(args[0], PREPARED) : NULL;
  core_call c;
  if (!p || count - 1 != p->count) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes what prepare() gave, and its tensors");
    return NULL;
  }
  if (core_begin(&c, module, p->index) < 0) return NULL;
  c.plain = &p->plain;
  c.params = p->params;
  memcpy(c.value, p->value, sizeof c.value);
  for (int32_t i = 0; i < p->count; i++) c.value[p->slot[i]] = args[1 + i];
  return p->backward ? core_finish_backward(&c, true) : core_finish_forward(&c, true);
}
