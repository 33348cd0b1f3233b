/* arrays.c - arrays of Python as tensors, without a copy: the buffer protocol, DLPack, and
 * NumPy's bfloat16, which has neither. */
#include "core.h"
#include <string.h>

/* ---- dtypes and shapes ---- */

static const struct {
  smx_dtype type;
  const char *name;
  char format;
} dtypes[] = {
    {{2, 16, 1}, "float16", 'e'}, {{4, 16, 1}, "bfloat16", 0}, {{2, 32, 1}, "float32", 'f'},
    {{2, 64, 1}, "float64", 'd'}, {{0, 32, 1}, "int32", 'i'},  {{0, 64, 1}, "int64", 'q'},
    {{1, 8, 1}, "uint8", 'B'},    {{6, 8, 1}, "bool", '?'},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int find_dtype(smx_dtype t) {
  for (int i = 0; i < DTYPES; i++)
    if (t.code == dtypes[i].type.code && t.bits == dtypes[i].type.bits && t.lanes == 1) return i;
  return -1;
}

const char *core_dtype_name(smx_dtype t) {
  int i = find_dtype(t);
  return i < 0 ? NULL : dtypes[i].name;
}

char core_dtype_format(smx_dtype t) {
  int i = find_dtype(t);
  return i < 0 ? 0 : dtypes[i].format;
}

bool core_dtype_named(const char *name, smx_dtype *out) {
  for (int i = 0; i < DTYPES; i++)
    if (!strcmp(name, dtypes[i].name)) return *out = dtypes[i].type, true;
  return false;
}

PyObject *core_dims(const smx_shape *shape) {
  PyObject *dims = PyTuple_New(shape->ndim);
  for (int32_t d = 0; dims && d < shape->ndim; d++) {
    PyObject *dim = PyLong_FromLongLong(shape->dim[d]);
    if (!dim || PyTuple_SetItem(dims, d, dim) < 0) Py_CLEAR(dims);
  }
  return dims;
}

/* ---- the buffer protocol ---- */

/* The kind of number that a letter of struct's stands for; its size comes with the buffer. A
 * size that the library does not have is the library's to refuse. */
static bool number_kind(char letter, uint8_t *code) {
  static const struct {
    const char *letters;
    uint8_t code;
  } kinds[] = {{"bhilqn", 0}, {"BHILQN", 1}, {"efdg", 2}, {"?", 6}};
  for (size_t k = 0; letter && k < sizeof kinds / sizeof *kinds; k++)
    if (strchr(kinds[k].letters, letter)) return *code = kinds[k].code, true;
  return false;
}

static bool other_byte_order(char mark, Py_ssize_t itemsize) {
  static const uint16_t one = 1;
  char here = *(const char *)&one ? '<' : '>';
  return itemsize > 1 && (mark == '<' || mark == '>' || mark == '!') && (mark == '!' ? '>' : mark) != here;
}

static int take_format(core_array *a, core_label label) {
  const char *format = a->view.format ? a->view.format : "B",
             *letter = format + (strchr("@=<>!", *format) != NULL && *format);
  if (other_byte_order(*format, a->view.itemsize)) {
    PyErr_Format(PyExc_TypeError, LABEL_TEXT ": elements '%s' are not in this machine's byte order",
                 LABEL_ARGS(label), format);
    return -1;
  }
  a->tensor.dtype = (smx_dtype){0, (uint8_t)(a->view.itemsize > 31 ? 0 : 8 * a->view.itemsize), 1};
  if (*letter && !letter[1] && number_kind(*letter, &a->tensor.dtype.code)) return 0;
  PyErr_Format(PyExc_TypeError, LABEL_TEXT ": elements '%s' are not real numbers", LABEL_ARGS(label), format);
  return -1;
}

/* From bytes to elements; arrays of ctypes have none, being in C order. More dimensions than the
 * library takes are its own to refuse, before it looks at a stride. */
static int take_strides(core_array *a, core_label label) {
  Py_ssize_t bytes = a->view.itemsize;
  if (!a->view.strides) return 0;
  for (int d = 0; d < a->view.ndim && d < SMX_MAX_DIMS; d++) {
    Py_ssize_t stride = a->view.strides[d];
    if (a->view.shape[d] > 1 && stride % bytes) {
      PyErr_Format(PyExc_ValueError, LABEL_TEXT ": strides[%d] is %zd bytes, not a whole number of elements",
                   LABEL_ARGS(label), d, stride);
      return -1;
    }
    a->strides[d] = stride / bytes;
  }
  a->tensor.strides = a->strides;
  return 0;
}

static int take_buffer(core_array *a, core_label label) {
  a->tensor = (smx_tensor){
      .data = a->view.buf, .device = {DLPACK_CPU, 0}, .ndim = a->view.ndim, .shape = a->view.shape};
  if (take_format(a, label) == 0 && take_strides(a, label) == 0) return 0;
  PyBuffer_Release(&a->view);
  return -1;
}

/* ---- NumPy's bfloat16 (of ml_dtypes): its bits are seen as uint16 ---- */

/* Whether the object is an array of NumPy whose dtype is called bfloat16. */
static bool is_numpy_bfloat16(PyObject *object) {
  bool found = false;
  PyObject *interface = PyObject_GetAttrString(object, "__array_interface__");
  PyObject *dtype = interface ? PyObject_GetAttrString(object, "dtype") : NULL,
           *text = dtype ? PyObject_Str(dtype) : NULL;
  if (text) found = PyUnicode_CompareWithASCIIString(text, "bfloat16") == 0;
  Py_XDECREF(interface);
  Py_XDECREF(dtype);
  Py_XDECREF(text);
  PyErr_Clear();
  return found;
}

/* ---- DLPack ---- */

/* The capsule of object.__dlpack__(max_version=(1, 0)), or of __dlpack__() where producers are
 * older than that. */
static PyObject *ask_dlpack(core_state *state, PyObject *object) {
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = method ? PyTuple_New(0) : NULL,
           *capsule = NULL;
  if (none) capsule = PyObject_Call(method, none, state->versioned);
  if (none && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = PyObject_Call(method, none, NULL);
  }
  Py_XDECREF(method);
  Py_XDECREF(none);
  return capsule;
}

/* What a producer cannot export is a TypeError here, with its reason. */
static int fail_export(core_label label) {
  PyObject *type, *value, *trace;
  if (!PyErr_ExceptionMatches(PyExc_BufferError)) return -1;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_Format(PyExc_TypeError, LABEL_TEXT ": %S", LABEL_ARGS(label), value ? value : type);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return -1;
}

static int take_capsule(core_array *a, core_label label, bool write) {
  bool read_only = false;
  if (PyCapsule_IsValid(a->capsule, DLPACK_VERSIONED)) {
    const dlpack_versioned *m = PyCapsule_GetPointer(a->capsule, DLPACK_VERSIONED);
    if (m->version.major != DLPACK_MAJOR) {
      PyErr_Format(PyExc_TypeError, LABEL_TEXT ": DLPack %u is not a version known here", LABEL_ARGS(label),
                   (unsigned)m->version.major);
      return -1;
    }
    a->tensor = m->tensor;
    read_only = m->flags & DLPACK_READ_ONLY;
  } else {
    const dlpack_plain *m = PyCapsule_GetPointer(a->capsule, DLPACK_PLAIN);
    if (!m) return -1;
    a->tensor = m->tensor;
  }
  if (!write || !read_only) return 0;
  PyErr_Format(PyExc_ValueError, LABEL_TEXT ": is read-only", LABEL_ARGS(label));
  return -1;
}

static int open_dlpack(core_state *state, core_array *a, PyObject *object, core_label label, bool write) {
  a->capsule = ask_dlpack(state, object);
  if (!a->capsule) return fail_export(label);
  if (take_capsule(a, label, write) == 0)
    return 0; /* the capsule is not consumed: dropping it frees the tensor */
  Py_CLEAR(a->capsule);
  return -1;
}

/* The short way, for types that have it: PyTorch's __dlpack__ takes microseconds. */
core_viewer *core_viewer_of(PyObject *type) {
  PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const dlpack_exchange *api = NULL;
  if (capsule && PyCapsule_IsValid(capsule, DLPACK_EXCHANGE))
    api = PyCapsule_GetPointer(capsule, DLPACK_EXCHANGE);
  Py_XDECREF(capsule); /* the type keeps it */
  PyErr_Clear();
  return api && api->version.major == DLPACK_MAJOR ? api->view : NULL;
}

/* What the tensor points to belongs to the object, so its shape is copied before other threads
 * run. */
bool core_array_view(core_array *a, core_viewer *view, PyObject *object) {
  a->capsule = a->adopted = a->view.obj = NULL;
  if (view(object, &a->tensor) < 0 || a->tensor.ndim > SMX_MAX_DIMS) return PyErr_Clear(), false;
  for (int32_t d = 0; d < a->tensor.ndim; d++) {
    a->shape[d] = a->tensor.shape[d];
    a->strides[d] = a->tensor.strides ? a->tensor.strides[d] : 0;
  }
  a->tensor.shape = a->shape;
  if (a->tensor.strides) a->tensor.strides = a->strides;
  return true;
}

static bool open_exchange(core_array *a, PyObject *object) {
  core_viewer *view = core_viewer_of((PyObject *)Py_TYPE(object));
  return view && core_array_view(a, view, object);
}

/* ---- both ---- */

static int fail_open(PyObject *object, core_label label, bool write) {
  PyObject *type = PyType_GetName(Py_TYPE(object));
  if (!type) return -1;
  if (write && PyObject_CheckBuffer(object))
    PyErr_Format(PyExc_ValueError, LABEL_TEXT ": is not a writable array", LABEL_ARGS(label));
  else
    PyErr_Format(PyExc_TypeError, LABEL_TEXT ": %U shows no array by the buffer protocol or DLPack",
                 LABEL_ARGS(label), type);
  Py_DECREF(type);
  return -1;
}

static int open_bfloat16(core_array *a, PyObject *object, core_label label, bool write, int flags) {
  PyObject *bits = PyObject_CallMethod(object, "view", "s", "uint16");
  int bad = bits ? PyObject_GetBuffer(bits, &a->view, flags) : -1; /* the view keeps bits alive */
  Py_XDECREF(bits);
  if (bad) {
    PyErr_Clear();
    return fail_open(object, label, write);
  }
  if (take_buffer(a, label) < 0) return -1;
  a->tensor.dtype = SMX_BF16;
  return 0;
}

/* Such tensors go the long way, where PyTorch says that they cannot be used like this. */
static bool wants_gradient(PyObject *object) {
  PyObject *flag = PyObject_GetAttrString(object, "requires_grad");
  bool wants = flag && flag != Py_False;
  Py_XDECREF(flag);
  PyErr_Clear();
  return wants;
}

/* Views of PyTorch that are negated when they are read: their memory has the other sign, and its
 * DLPack does not say so. */
static bool is_negated(PyObject *object) {
  if (!PyObject_HasAttrString(object, "is_neg")) return false;
  PyObject *flag = PyObject_CallMethod(object, "is_neg", NULL);
  bool negated = flag == Py_True;
  Py_XDECREF(flag);
  PyErr_Clear();
  return negated;
}

static int fail_negated(core_label label) {
  PyErr_Format(PyExc_TypeError, LABEL_TEXT ": is a lazily negated view: give its resolve_neg()",
               LABEL_ARGS(label));
  return -1;
}

/* What has the buffer protocol but does not let itself be written to (arrays of JAX) must not be
 * written by way of DLPack. Storage of bfloat16, which no buffer can show, may. */
int core_array_open(core_state *state, core_array *a, PyObject *object, core_label label, bool write) {
  int flags = PyBUF_STRIDES | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0);
  a->capsule = a->adopted = NULL;
  if (PyObject_CheckBuffer(object)) {
    if (PyObject_GetBuffer(object, &a->view, flags) == 0) return take_buffer(a, label);
    PyErr_Clear();
    if (is_numpy_bfloat16(object)) return open_bfloat16(a, object, label, write, flags);
    if (write && (PyObject *)Py_TYPE(object) != state->storage) return fail_open(object, label, write);
  }
  a->view.obj = NULL;
  if (is_negated(object)) return fail_negated(label);
  if (!wants_gradient(object) && open_exchange(a, object)) return 0;
  if (PyObject_HasAttrString(object, "__dlpack__")) return open_dlpack(state, a, object, label, write);
  return fail_open(object, label, write);
}

void core_array_close(core_array *a) {
  Py_XDECREF(a->capsule);
  PyBuffer_Release(&a->view); /* nothing, when there is none */
  Py_XDECREF(a->adopted);
}
