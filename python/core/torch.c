/* torch.c - PyTorch as the core sees it. It is told by libsoftmax/torch/_host.py, since the core is
 * built without PyTorch. */
#include "torch.h"
#include <string.h>

/* ---- making tensors ---- */

enum { SMALL = 1 << 17 }; /* elements; what is larger has time for the long way, and its errors */

PyObject *core_torch_make(const core_torch *t, const smx_shape *shape, bool by_channel, core_array *view) {
  int64_t step = 1;
  int k = 0;
  for (int32_t i = shape->ndim - 1; i >= 0; i--) { /* from the last in memory on */
    const int32_t d = !by_channel || i == 0 ? i : i == shape->ndim - 1 ? 1 : i + 1;
    view->shape[d] = shape->dim[d], view->strides[d] = step;
    const int64_t n = shape->dim[d] > 1 ? shape->dim[d] : 1;
    if (n > SMALL || (step *= n) > SMALL) return NULL;
  }
  while (k < t->dtype_count && memcmp(&t->dtype[k].dtype, &shape->dtype, sizeof shape->dtype) != 0) k++;
  void *tensor, *object = NULL, *data = NULL;
  if (!t->empty || k == t->dtype_count ||
      t->empty(shape->ndim, view->shape, view->strides, t->dtype[k].code, t->device, 0, &tensor) != 0)
    return NULL;
  if (t->place(tensor, &data) != 0 || t->wrap(tensor, NULL, &object) != 0) object = NULL;
  t->drop(tensor);
  view->capsule = view->adopted = view->view.obj = NULL;
  view->tensor =
      (smx_tensor){data, {DLPACK_CPU, 0}, shape->ndim, shape->dtype, view->shape, view->strides, 0};
  return object;
}

/* ---- looking around ---- */

/* What an answer says; it is given back. */
static int read_answer(PyObject *answer) {
  const int yes = answer ? answer == Py_True || (answer != Py_False && PyObject_IsTrue(answer)) : -1;
  Py_XDECREF(answer);
  return yes;
}

int core_torch_ask(PyObject *function) { return read_answer(PyObject_CallNoArgs(function)); }

int core_torch_negated(const core_torch *t, PyObject *tensor) {
  return read_answer(PyObject_CallFunctionObjArgs(t->is_neg, tensor, NULL));
}

int core_torch_records(const core_torch *t) {
  return t->recorded ? t->recorded() : core_torch_ask(t->grad_enabled);
}

int core_torch_quiet(const core_torch *t) {
  for (int i = 0; i < t->quiet_count; i++) {
    const torch_quiet *q = t->quiet + i;
    PyObject *now =
        q->function ? PyObject_CallNoArgs(q->function) : PyDict_GetItemWithError(q->names, q->name);
    if (!now) return PyErr_Occurred() ? -1 : 0;
    if (q->function) Py_DECREF(now); /* what it is compared with keeps it */
    if (now != q->value) return 0;
  }
  return 1;
}

/* ---- being told ---- */

static int take_quiet(core_torch *t, PyObject *all) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(all) && i < TORCH_QUIET; i++) {
    PyObject *one = PyTuple_GetItem(all, i), *name = PyTuple_GetItem(one, 1);
    torch_quiet *q = t->quiet + t->quiet_count;
    if (!name) return -1;
    const bool function = name == Py_None;
    *(function ? &q->function : &q->names) = Py_NewRef(PyTuple_GetItem(one, 0));
    q->name = Py_NewRef(name);
    if (!(q->value = Py_XNewRef(PyTuple_GetItem(one, 2)))) return -1;
    t->quiet_count++;
  }
  return PyErr_Occurred() ? -1 : 0;
}

static void *address(PyObject *given, Py_ssize_t i) {
  PyObject *number = PyTuple_GetItem(given, i);
  return number ? PyLong_AsVoidPtr(number) : NULL;
}

/* (empty, place, wrap, drop, recorded, device, {name: code}) */
static int take_maker(core_torch *t, PyObject *given) {
  enum { FUNCTIONS = 5 };
  PyObject *codes = PyTuple_GetItem(given, FUNCTIONS + 1), *name, *code;
  void *functions[FUNCTIONS];
  for (int i = 0; i < FUNCTIONS; i++) functions[i] = address(given, i);
  t->device = (int32_t)PyLong_AsLong(PyTuple_GetItem(given, FUNCTIONS));
  for (Py_ssize_t at = 0; codes && t->dtype_count < TORCH_DTYPES && PyDict_Next(codes, &at, &name, &code);) {
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text && core_dtype_named(text, &t->dtype[t->dtype_count].dtype))
      t->dtype[t->dtype_count++].code = (int32_t)PyLong_AsLong(code);
  }
  if (PyErr_Occurred()) return -1;
  memcpy(&t->empty, functions, sizeof *functions);
  memcpy(&t->place, functions + 1, sizeof *functions);
  memcpy(&t->wrap, functions + 2, sizeof *functions);
  memcpy(&t->drop, functions + 3, sizeof *functions);
  memcpy(&t->recorded, functions + 4, sizeof *functions);
  return 0;
}

static PyObject *kept(PyObject *given, const char *name) {
  PyObject *value = PyDict_GetItemString(given, name);
  return value && value != Py_None ? Py_NewRef(value) : NULL;
}

/* open_torch({what: ...}): for the life of the module. */
PyObject *core_open_torch(PyObject *module, PyObject *given) {
  core_state *state = PyModule_GetState(module);
  core_torch *t = PyMem_Calloc(1, sizeof *t);
  if (!t || state->torch || !PyDict_Check(given)) {
    PyMem_Free(t);
    return t ? (PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes a dict, once"), NULL)
             : PyErr_NoMemory();
  }
  state->torch = t;
  t->type[0] = kept(given, "tensor"), t->type[1] = kept(given, "parameter");
  t->view = t->type[0] ? core_viewer_of(t->type[0]) : NULL;
  t->grad_enabled = kept(given, "grad_enabled"), t->keep_graph = kept(given, "keep_graph");
  t->is_neg = kept(given, "is_neg");
  t->requires_grad = PyUnicode_InternFromString("requires_grad");
  t->to_save = PyUnicode_InternFromString("to_save");
  t->saved_tensors = PyUnicode_InternFromString("saved_tensors");
  PyObject *maker = PyDict_GetItemString(given, "maker"), *quiet = PyDict_GetItemString(given, "quiet");
  if (!quiet || take_quiet(t, quiet) < 0 || (maker && maker != Py_None && take_maker(t, maker) < 0))
    return NULL;
  return Py_NewRef(Py_None);
}
