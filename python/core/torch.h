/* torch.h - what the core knows of PyTorch: how its tensors are opened and made without a detour,
 * and what tells whether somebody looks on: a tracer, a transform, a mode. */
#ifndef SMX_PYTHON_TORCH_H
#define SMX_PYTHON_TORCH_H
#include "core.h"

enum { TORCH_DTYPES = 8, TORCH_QUIET = 8, TORCH_TYPES = 2 };

/* Functions of PyTorch's stable C interface. A status of 0 is a success. */
typedef int32_t torch_empty(int64_t ndim, const int64_t *shape, const int64_t *strides, int32_t dtype,
                            int32_t device, int32_t index, void **tensor);
typedef int32_t torch_place(void *tensor, void **data);
typedef int32_t torch_wrap(void *tensor, void *type, void **object);
typedef int32_t torch_drop(void *tensor);
typedef bool torch_recorded(void); /* whether gradients are */

/* One of the things that are as they are while nobody looks on: what a function gives, or the value
 * of a name. */
typedef struct torch_quiet {
  PyObject *function, *names, *name, *value; /* function, or names and name; compared by identity */
} torch_quiet;

typedef struct core_torch {
  PyObject *type[TORCH_TYPES]; /* plain tensors, and parameters */
  core_viewer *view;           /* NULL: an older PyTorch */
  PyObject *grad_enabled;      /* function: whether gradients are recorded */
  PyObject *keep_graph;        /* function: whether the graph stays for another gradient, or NULL */
  PyObject *is_neg;            /* method of tensors */
  PyObject *requires_grad, *to_save, *saved_tensors; /* names */
  int quiet_count;
  torch_quiet quiet[TORCH_QUIET];
  torch_empty *empty; /* NULL, as the next ones are: an older PyTorch */
  torch_place *place;
  torch_wrap *wrap;
  torch_drop *drop;
  torch_recorded *recorded;
  int32_t device, dtype_count;
  struct {
    smx_dtype dtype;
    int32_t code;
  } dtype[TORCH_DTYPES];
} core_torch;

/* Whether an object is a tensor without a will of its own. */
static inline bool core_is_plain(const core_torch *t, PyObject *object) {
  return (PyObject *)Py_TYPE(object) == t->type[0] || (PyObject *)Py_TYPE(object) == t->type[1];
}

/* A new tensor in C order or by channel, and a view of it; NULL without an exception: it is to be
 * made the long way. */
PyObject *core_torch_make(const core_torch *t, const smx_shape *shape, bool by_channel, core_array *view);

/* Whether gradients are recorded: 1, 0, or -1 with an exception. */
int core_torch_records(const core_torch *t);

/* 1 when nobody looks on, 0, or -1 with an exception. */
int core_torch_quiet(const core_torch *t);

/* Whether a tensor is a lazily negated view: 1, 0, or -1 with an exception. */
int core_torch_negated(const core_torch *t, PyObject *tensor);

/* What a function without arguments says: 1 or 0, -1 with an exception. */
int core_torch_ask(PyObject *function);

/* ---- functions of the module ---- */

PyObject *core_open_torch(PyObject *module, PyObject *given);

/* forms.c: calls that were seen before. */
PyObject *core_forms(PyObject *module, PyObject *unused);
PyObject *core_learn(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* autograd.c: what torch.autograd.Function calls. */
PyObject *core_plan(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_function_forward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_function_backward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_hasten(PyObject *module, PyObject *type);

#endif
