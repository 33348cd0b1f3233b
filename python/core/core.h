/* core.h - what the files of the extension module share. It uses Python's stable ABI and the
 * library's public header, nothing else. */
#ifndef SMX_PYTHON_CORE_H
#define SMX_PYTHON_CORE_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <softmax.h>
#include <stdbool.h>

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t),
               "shapes of buffers are handed to the library as they are");

enum { POLICIES = 3 * 2 }; /* on_empty x on_inf */

typedef struct core_state {
  PyObject *storage;   /* the type of memory that the module owns (storage.c) */
  PyObject *split;     /* the type of calls on rows over several processes (split.c) */
  PyObject *kinds;     /* dict: type of an array -> (empty, wrap), see libsoftmax/_arrays.py */
  PyObject *adopters;  /* dict: type of an array -> None, or what makes an array of it that can be opened */
  PyObject *versioned; /* {"max_version": (1, 0)}, for __dlpack__ */
  PyObject *contexts[POLICIES]; /* capsules; NULL until one is needed */
  struct core_torch *torch;     /* torch.h; NULL until libsoftmax.torch is imported */
  int32_t threads;
} core_state;

/* What an error is about: "softmax: dx". */
typedef struct core_label {
  const char *op, *prefix, *port;
} core_label;
#define LABEL_TEXT "%s: %s%s"
#define LABEL_ARGS(l) (l).op, (l).prefix, (l).port

/* Sets the exception that stands for a status, with the library's message. Returns NULL. */
PyObject *core_raise(smx_status status);

/* ---- arrays.c ---- */

/* An array of Python's during a call: a tensor over its memory, and what keeps that memory. */
typedef struct core_array {
  smx_tensor tensor;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS];
  Py_buffer view;    /* view.obj is NULL when the array came by DLPack */
  PyObject *capsule; /* of DLPack, or NULL */
  PyObject *adopted; /* the object that was opened, or NULL */
} core_array;

/* Anything with the buffer protocol or DLPack, without a copy. -1 with an exception set: nothing
 * to close then. */
int core_array_open(core_state *state, core_array *a, PyObject *object, core_label label, bool write);
void core_array_close(core_array *a);

/* The function of a type by which its objects show their memory at once (DLPack 1.3): it fills a
 * tensor that belongs to the object; -1 with an exception. NULL where the type has none. */
typedef int core_viewer(void *object, smx_tensor *out);
core_viewer *core_viewer_of(PyObject *type);

/* Opens an object by the function of its type. False, without an exception: it cannot be shown
 * so. */
bool core_array_view(core_array *a, core_viewer *view, PyObject *object);

/* What an argument is opened as, a new reference: itself, or an array of NumPy made of it (lists,
 * data frames, masked arrays without a masked element). NULL with an exception. */
PyObject *core_adopt(core_state *state, PyObject *object, core_label label, bool write);

/* What becomes of arrays of this type: None when they are opened as they are, a function, or a
 * tuple of one for masked arrays; borrowed. */
PyObject *core_adopter(core_state *state, PyObject *object);

/* The exception that is set gets the label in front of its text. */
void core_prefix(core_label label);

static inline bool core_is_floating(smx_dtype t) { return t.code == 2 || t.code == 4; }
const char *core_dtype_name(smx_dtype t); /* "float32"; NULL for one that the library does not have */
bool core_dtype_named(const char *name, smx_dtype *out); /* false: there is none of that name */
char core_dtype_format(smx_dtype t); /* of the buffer protocol; 0: it has none (bfloat16) */

PyObject *core_dims(const smx_shape *shape); /* as a tuple */

/* ---- the structs of DLPack: a tensor and who frees it ---- */

typedef struct dlpack_plain {
  smx_tensor tensor;
  void *owner;
  void (*deleter)(struct dlpack_plain *self);
} dlpack_plain;

typedef struct dlpack_versioned {
  struct {
    uint32_t major, minor;
  } version;
  void *owner;
  void (*deleter)(struct dlpack_versioned *self);
  uint64_t flags;
  smx_tensor tensor;
} dlpack_versioned;

/* The table of functions that a type may have as __dlpack_c_exchange_api__ (DLPack 1.3), up to
 * the one used here. */
typedef struct dlpack_exchange {
  struct {
    uint32_t major, minor;
  } version;
  void *previous;
  void (*unused[3])(void);
  int (*view)(void *object, smx_tensor *out); /* see core_viewer */
} dlpack_exchange;

#define DLPACK_PLAIN "dltensor"
#define DLPACK_VERSIONED "dltensor_versioned"
#define DLPACK_EXCHANGE "dlpack_exchange_api"
enum { DLPACK_MAJOR = 1, DLPACK_READ_ONLY = 1, DLPACK_CPU = 1 };

/* ---- storage.c ---- */

extern PyType_Spec core_storage_spec;

/* ---- call.c: functions of the module ---- */

PyObject *core_forward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_backward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_infer(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_shapes(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* ---- prepared.c: calls that are alike ---- */

PyObject *core_prepare(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_run_prepared(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* ---- xla.c: a capsule of the function that XLA calls ---- */

PyObject *core_xla(PyObject *module, PyObject *unused);

/* ---- attention.c ---- */

PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_prepare_attention(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* ---- sample.c ---- */

PyObject *core_sample(PyObject *module, PyObject *given);

/* ---- split.c ---- */

extern PyType_Spec core_split_spec;
PyObject *core_split(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_split_shard(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_split_plan(PyObject *module, PyObject *bounds);

/* Where the values of a call's arguments are put, by what they are for. Python
 * (libsoftmax/_functions.py) maps names to these. */
enum {
  SLOT_IN = 0,
  /* backward: what the forward call gave; forward: whether an optional output is wanted */
  SLOT_OUT = SLOT_IN + SMX_MAX_PORTS,
  SLOT_DOUT = SLOT_OUT + SMX_MAX_PORTS, /* backward: upstream gradients */
  SLOT_PARAM = SLOT_DOUT + SMX_MAX_PORTS,
  SLOT_AXIS = SLOT_PARAM + SMX_MAX_PARAMS,
  SLOT_RESULT, /* out= */
  SLOT_KEEPDIMS,
  SLOT_WHERE,
  SLOT_ON_EMPTY,
  SLOT_ON_INF,
  SLOT_WANTED,
  SLOTS
};

/* ---- context.c ---- */

/* The context for the words of on_empty and on_inf (NULL: the defaults). *keeper is a new
 * reference that keeps it, or NULL. */
int core_context(core_state *state, const char *op, PyObject *on_empty, PyObject *on_inf, PyObject **keeper,
                 smx_context **ctx);
PyObject *core_threads(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* ---- table.c ---- */

PyObject *core_operators(PyObject *module, PyObject *unused);
PyObject *core_attention_kinds(PyObject *module, PyObject *unused);
PyObject *core_sampling_steps(PyObject *module, PyObject *unused);

#endif
