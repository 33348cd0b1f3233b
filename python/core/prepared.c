/* prepared.c - calls that are alike: what their settings mean is worked out once, since a call
 * on a few elements takes less time than that. */
#include "brief.h"
#include <string.h>

static void forget_capsule(PyObject *capsule) {
  core_prepared *p = PyCapsule_GetPointer(capsule, PREPARED);
  p->forget(p);
  PyMem_Free(p);
}

PyObject *core_prepared_capsule(core_prepared *p) {
  PyObject *capsule = PyCapsule_New(p, PREPARED, forget_capsule);
  if (capsule) return capsule;
  p->forget(p);
  PyMem_Free(p);
  return NULL;
}

void core_take_prepared(core_call *c, const core_prepared *p, uint32_t handed, PyObject *const *arrays,
                        core_array *const *opened) {
  c->torch = c->state->torch;
  c->given = arrays, c->opened = opened, c->opened_count = opened ? p->count : 0;
  c->handed = handed;
}

PyObject *core_run(PyObject *module, PyObject *prepared, PyObject *const *arrays, core_array *const *opened,
                   Py_ssize_t count) {
  const core_prepared *p = PyCapsule_GetPointer(prepared, PREPARED);
  if (p && count == p->count) return p->run(module, p, arrays, opened);
  if (p) PyErr_Format(PyExc_TypeError, "libsoftmax._core: takes %d arrays, not %zd", (int)p->count, count);
  return NULL;
}

PyObject *core_run_prepared(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  if (count < 1) return PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes what was prepared"), NULL;
  return core_run(module, args[0], args + 1, NULL, count - 1);
}

/* ---- of operators ---- */

typedef struct prepared {
  core_prepared base;
  core_brief call;
  PyObject *settings; /* kept: `value` borrows from it */
  PyObject *value[SLOTS];
} prepared;

static PyObject *run(PyObject *module, const core_prepared *base, PyObject *const *arrays,
                     core_array *const *opened) {
  const prepared *p = (const prepared *)base;
  PyObject *made = core_brief_run(PyModule_GetState(module), &p->call, arrays, opened);
  if (made || PyErr_Occurred()) return made;
  core_call c;
  core_clear(&c, module, p->call.op);
  core_take_prepared(&c, base, p->call.handed, arrays, opened);
  c.params = p->call.params;
  memcpy(c.value, p->value, sizeof c.value);
  for (int32_t i = 0; i < base->count; i++) c.value[p->call.slot[i]] = arrays[i];
  return p->call.backward ? core_finish_backward(&c, true) : core_finish_forward(&c, true);
}

static void forget(core_prepared *base) {
  prepared *p = (prepared *)base;
  Py_XDECREF(p->settings);
}

static int take_slots(prepared *p, PyObject *order) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(order) && i < SLOTS; i++) {
    long slot = PyLong_AsLong(PyTuple_GetItem(order, i));
    if (slot < 0 || slot >= SLOTS) return PyErr_BadInternalCall(), -1;
    p->call.slot[p->call.count++] = (int32_t)slot;
  }
  p->base.count = p->call.count;
  return 0;
}

/* Whether the gradient of x is wanted, and it alone. */
static bool wants_x(const prepared *p) {
  PyObject *wanted = p->value[SLOT_WANTED];
  return !wanted || (PyUnicode_Check(wanted) &&
                     PyUnicode_CompareWithASCIIString(wanted, p->call.op->inputs[0].name) == 0);
}

static int take_settings(prepared *p, PyObject *module, PyObject *index, PyObject *slots) {
  core_call c;
  if (core_begin(&c, module, index) < 0 || core_take_named(&c, slots, p->settings) < 0 ||
      core_take_params(&c) < 0)
    return -1;
  p->call.op = c.op, p->call.params = c.params;
  memcpy(p->value, c.value, sizeof p->value);
  core_brief_settle(&p->call, p->value);
  p->call.possible &= !p->call.backward || wants_x(p);
  return 0;
}

PyObject *core_prepare(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  if (count != 6 || !PyLong_Check(args[1]) || !PyDict_Check(args[2]) || !PyTuple_Check(args[3]) ||
      !PyDict_Check(args[4]) || !PyLong_Check(args[5]))
    return PyErr_SetString(PyExc_TypeError,
                           "libsoftmax._core: takes (backward, operator, slots, order, kwargs, handed)"),
           NULL;
  prepared *p = PyMem_Calloc(1, sizeof *p);
  if (!p) return PyErr_NoMemory();
  p->base.run = run, p->base.forget = forget;
  p->call.backward = args[0] == Py_True;
  p->call.handed = (uint32_t)PyLong_AsLong(args[5]);
  p->settings = PyDict_Copy(args[4]);
  PyObject *capsule = core_prepared_capsule(&p->base);
  if (capsule &&
      (!p->settings || take_slots(p, args[3]) < 0 || take_settings(p, module, args[1], args[2]) < 0))
    Py_CLEAR(capsule);
  return capsule;
}
