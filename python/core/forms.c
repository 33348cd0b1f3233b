/* forms.c - calls of a form that was seen before. What the arguments of a call from PyTorch mean
 * takes Python some microseconds, and depends on its form alone: which arguments are tensors, of
 * which dtype, number of dimensions and need of a gradient, and what the others are. A form is kept
 * with what is to be done with tensors of it. */
#include "prepared.h"
#include <string.h>

enum { ARGUMENTS = 24, FORMS = 16 }; /* settings that change with every call are not worth more */
#define FORMS_NAME "libsoftmax.forms"

typedef struct argument {
  PyObject *value; /* NULL: a tensor */
  smx_dtype dtype;
  int32_t ndim;
} argument;

typedef struct form {
  int32_t count, by_name, tensors, needs; /* bit i of needs: argument i requires a gradient */
  argument argument[ARGUMENTS];
  PyObject *name[ARGUMENTS];    /* of the last by_name arguments */
  int32_t place[ARGUMENTS];     /* of the i-th tensor that is handed on, among the arguments */
  PyObject *prepared;           /* what is run with the tensors, or NULL */
  PyObject *function, *subject; /* what is called instead, with this and the tensors */
} form;

typedef struct forms {
  PyObject *module;
  int32_t count, next;
  form *form[FORMS];
} forms;

static void free_form(form *f) {
  for (int i = 0; i < ARGUMENTS; i++) {
    Py_XDECREF(f->argument[i].value);
    Py_XDECREF(f->name[i]);
  }
  Py_XDECREF(f->prepared);
  Py_XDECREF(f->function);
  Py_XDECREF(f->subject);
  PyMem_Free(f);
}

static void free_forms(PyObject *capsule) {
  forms *all = PyCapsule_GetPointer(capsule, FORMS_NAME);
  for (int i = 0; i < all->count; i++) free_form(all->form[i]);
  Py_DECREF(all->module);
  PyMem_Free(all);
}

/* ---- the form of a call ---- */

/* A tensor of which the dtype and the dimensions can be told. */
static bool describe(const core_torch *t, PyObject *tensor, argument *a, core_array *opened) {
  if (!t->view || !core_array_view(opened, t->view, tensor)) return false;
  a->dtype = opened->tensor.dtype, a->ndim = opened->tensor.ndim;
  const bool plain = core_torch_negated(t, tensor) == 0 && opened->tensor.device.device_type == DLPACK_CPU;
  PyErr_Clear();
  return plain;
}

static bool wants_gradient(const core_torch *t, PyObject *tensor, const argument *a) {
  if (!core_is_floating(a->dtype)) return false;
  PyObject *flag = PyObject_GetAttr(tensor, t->requires_grad);
  Py_XDECREF(flag);
  PyErr_Clear();
  return flag == Py_True;
}

/* What tells the form of a call: its tensors described, the rest as it is. False: it has none, or
 * (with an exception) something went wrong. opened: the tensors, at the places of the arguments. */
static bool take_form(const core_torch *t, PyObject *const *args, int32_t count, form *f,
                      core_array *opened) {
  f->count = count, f->tensors = f->needs = 0;
  for (int32_t i = 0; i < count; i++) {
    argument *a = f->argument + i;
    a->value = core_is_plain(t, args[i]) ? NULL : args[i];
    if (a->value) continue;
    if (!describe(t, args[i], a, opened + i)) return false;
    f->tensors++;
  }
  const int recorded = f->tensors ? core_torch_records(t) : 0;
  for (int32_t i = 0; recorded > 0 && i < count; i++)
    if (!f->argument[i].value && wants_gradient(t, args[i], f->argument + i)) f->needs |= 1 << i;
  return recorded >= 0;
}

static bool same_value(PyObject *a, PyObject *b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  const int same = PyObject_RichCompareBool(a, b, Py_EQ);
  if (same < 0) PyErr_Clear();
  return same > 0;
}

static bool same_argument(const argument *a, const argument *b) {
  if (a->value || b->value) return same_value(a->value, b->value);
  return a->ndim == b->ndim && memcmp(&a->dtype, &b->dtype, sizeof a->dtype) == 0;
}

static bool same_form(const form *known, const form *f, PyObject *names) {
  if (known->count != f->count || known->by_name != f->by_name || known->needs != f->needs) return false;
  for (int32_t i = 0; i < f->by_name; i++)
    if (!same_value(known->name[i], PyTuple_GetItem(names, i))) return false;
  for (int32_t i = 0; i < f->count; i++)
    if (!same_argument(known->argument + i, f->argument + i)) return false;
  return true;
}

/* ---- a call ---- */

/* What a form says is to be done. It is kept meanwhile: other threads may forget the form. */
static PyObject *act(PyObject *module, const form *f, PyObject *const *args, core_array *opened) {
  PyObject *given[ARGUMENTS];
  core_array *views[ARGUMENTS];
  const int32_t count = f->tensors;
  for (int32_t i = 0; i < count; i++) given[i] = args[f->place[i]], views[i] = opened + f->place[i];
  if (f->prepared) {
    PyObject *prepared = Py_NewRef(f->prepared), *made = core_run(module, prepared, given, views, count);
    Py_DECREF(prepared);
    return made;
  }
  PyObject *function = Py_NewRef(f->function), *all = PyTuple_New(1 + count), *made = NULL;
  if (all) PyTuple_SetItem(all, 0, Py_NewRef(f->subject));
  for (int32_t i = 0; all && i < count; i++) PyTuple_SetItem(all, 1 + i, Py_NewRef(given[i]));
  if (all) made = PyObject_Call(function, all, NULL);
  Py_XDECREF(all);
  Py_DECREF(function);
  return made;
}

/* The result of a call of a known form; None for any other. */
static PyObject *known(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  const forms *all = PyCapsule_GetPointer(self, FORMS_NAME);
  const core_torch *t = ((core_state *)PyModule_GetState(all->module))->torch;
  const Py_ssize_t by_name = names ? PyTuple_Size(names) : 0;
  core_array opened[ARGUMENTS];
  form f;
  f.by_name = (int32_t)by_name;
  if (!all->count || count + by_name > ARGUMENTS) return Py_NewRef(Py_None);
  const int quiet = core_torch_quiet(t);
  if (quiet > 0 && take_form(t, args, (int32_t)(count + by_name), &f, opened))
    for (int i = 0; i < all->count; i++)
      if (same_form(all->form[i], &f, names)) return act(all->module, all->form[i], args, opened);
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef known_def = {
    "known", (PyCFunction)(void (*)(void))known, METH_FASTCALL | METH_KEYWORDS,
    "known(*args, **kwargs): the result of a call whose form was learnt, None for any other."};

PyObject *core_forms(PyObject *module, PyObject *unused) {
  if (!((core_state *)PyModule_GetState(module))->torch)
    return PyErr_SetString(PyExc_TypeError, "libsoftmax._core: open_torch() comes first"), NULL;
  forms *all = PyMem_Calloc(1, sizeof *all);
  PyObject *capsule = all ? PyCapsule_New(all, FORMS_NAME, free_forms) : NULL;
  if (!capsule) return PyMem_Free(all), PyErr_NoMemory();
  all->module = Py_NewRef(module);
  PyObject *function = PyCFunction_New(&known_def, capsule);
  Py_DECREF(capsule);
  return function;
}

/* ---- learning ---- */

static void keep(forms *all, form *f) {
  if (all->count < FORMS) {
    all->form[all->count++] = f;
    return;
  }
  free_form(all->form[all->next]);
  all->form[all->next] = f;
  all->next = (all->next + 1) % FORMS;
}

/* learn(what forms() gave, args, names, places, prepared, function, subject): the last `names`
 * arguments came by name; places: of the tensors that are handed on. */
PyObject *core_learn(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  PyObject *self = count == 7 && PyCFunction_Check(args[0]) ? PyCFunction_GetSelf(args[0]) : NULL;
  forms *all = self ? PyCapsule_GetPointer(self, FORMS_NAME) : NULL;
  if (!all || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3]))
    return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_TypeError, "libsoftmax._core: learn()"), NULL);
  const Py_ssize_t n = PyTuple_Size(args[1]), by_name = PyTuple_Size(args[2]),
                   tensors = PyTuple_Size(args[3]);
  PyObject *given[ARGUMENTS] = {NULL};
  core_array opened[ARGUMENTS];
  form *f = n <= ARGUMENTS && by_name <= n && tensors <= n ? PyMem_Calloc(1, sizeof *f) : NULL;
  if (!f) return Py_NewRef(Py_None);
  for (Py_ssize_t i = 0; i < n; i++) given[i] = PyTuple_GetItem(args[1], i);
  const core_torch *t = ((core_state *)PyModule_GetState(module))->torch;
  const bool has_form = take_form(t, given, (int32_t)n, f, opened) && f->tensors == tensors;
  for (Py_ssize_t i = 0; i < n; i++) Py_XINCREF(f->argument[i].value);
  for (Py_ssize_t i = 0; i < by_name; i++) f->name[i] = Py_NewRef(PyTuple_GetItem(args[2], i));
  for (Py_ssize_t i = 0; i < tensors; i++) f->place[i] = (int32_t)PyLong_AsLong(PyTuple_GetItem(args[3], i));
  f->by_name = (int32_t)by_name;
  f->prepared = args[4] == Py_None ? NULL : Py_NewRef(args[4]);
  f->function = Py_NewRef(args[5]), f->subject = Py_NewRef(args[6]);
  if (has_form && !PyErr_Occurred()) keep(all, f);
  else free_form(f);
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
