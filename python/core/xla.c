/* xla.c - calls out of programs that XLA compiled, by its foreign function interface (API 0.3 of
 * xla/ffi/api/c_api.h). The buffers are shown to Python as they are; libsoftmax/jax.py does the
 * rest. */
#include "core.h"

/* ---- the structs of that interface, as far as they are used ---- */

typedef struct xla_extension {
  size_t size;
  int type; /* METADATA */
  struct xla_extension *next;
} xla_extension;

typedef struct xla_version {
  size_t size;
  xla_extension *extensions;
  int major, minor;
} xla_version;

typedef struct xla_metadata {
  size_t size;
  xla_version version;
  uint32_t traits;
} xla_metadata;

typedef struct xla_metadata_extension {
  xla_extension base;
  xla_metadata *metadata;
} xla_metadata_extension;

typedef struct xla_error_arguments {
  size_t size;
  xla_extension *extensions;
  const char *message;
  int code; /* INVALID */
} xla_error_arguments;

typedef struct xla_api {
  size_t size;
  xla_extension *extensions;
  xla_version version;
  const void *internal;
  void *(*make_error)(xla_error_arguments *arguments);
} xla_api;

typedef struct xla_buffer {
  size_t size;
  xla_extension *extensions;
  int dtype;
  void *data;
  int64_t rank, *dims;
} xla_buffer;

typedef struct xla_text {
  const char *start;
  size_t length;
} xla_text;

typedef struct xla_values { /* arguments, or results */
  size_t size;
  xla_extension *extensions;
  int64_t count;
  int *types; /* BUFFER */
  void **values;
} xla_values;

typedef struct xla_attributes {
  size_t size;
  xla_extension *extensions;
  int64_t count;
  int *types; /* TEXT */
  xla_text **names;
  void **values;
} xla_attributes;

typedef struct xla_frame {
  size_t size;
  xla_extension *extensions;
  const xla_api *api;
  void *context;
  int stage;
  xla_values arguments, results;
  xla_attributes attributes;
} xla_frame;

enum { METADATA = 1, BUFFER = 1, TEXT = 4, INVALID = 3, MAJOR = 0, MINOR = 3 };

/* ---- buffers ---- */

static const struct {
  int dtype, bytes;
  const char *name;
} dtypes[] = {
    {1, 1, "bool"},     {2, 1, "int8"},     {3, 2, "int16"},     {4, 4, "int32"},  {5, 8, "int64"},
    {6, 1, "uint8"},    {7, 2, "uint16"},   {8, 4, "uint32"},    {9, 8, "uint64"}, {10, 2, "float16"},
    {11, 4, "float32"}, {12, 8, "float64"}, {16, 2, "bfloat16"},
};

/* (memory, name of the dtype, shape) */
static PyObject *show(const xla_buffer *b, int flags) {
  static char nothing[1];
  size_t k = 0;
  const size_t count = sizeof dtypes / sizeof *dtypes;
  while (k < count && dtypes[k].dtype != b->dtype) k++;
  if (k == count)
    return PyErr_Format(PyExc_TypeError, "arrays of XLA's type %d are not known here", b->dtype);
  Py_ssize_t bytes = dtypes[k].bytes;
  PyObject *dims = PyTuple_New((Py_ssize_t)b->rank);
  for (int64_t d = 0; dims && d < b->rank; d++) {
    PyObject *dim = PyLong_FromLongLong(b->dims[d]);
    if (!dim || PyTuple_SetItem(dims, (Py_ssize_t)d, dim) < 0) Py_CLEAR(dims);
    bytes *= (Py_ssize_t)b->dims[d];
  }
  PyObject *memory = dims ? PyMemoryView_FromMemory(bytes ? b->data : nothing, bytes, flags) : NULL;
  if (memory) return Py_BuildValue("(NsN)", memory, dtypes[k].name, dims);
  Py_XDECREF(dims);
  return NULL;
}

static PyObject *show_all(const xla_values *v, int flags) {
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < v->count; i++) {
    PyObject *one = v->types[i] == BUFFER ? show(v->values[i], flags) : NULL;
    if (!one && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an argument of XLA's is no buffer");
    if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

/* ---- the call ---- */

static void *fail(const xla_frame *f, const char *message) {
  xla_error_arguments arguments = {sizeof arguments, NULL, message, INVALID};
  return f->api->make_error(&arguments);
}

static void *fail_raised(const xla_frame *f) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *message = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  void *error = fail(f, message ? message : "libsoftmax: an error without a text");
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  PyErr_Clear();
  return error;
}

static void *call_python(const xla_frame *f, const xla_text *call) {
  PyObject *module = PyImport_ImportModule("libsoftmax.jax");
  PyObject *text = module ? PyUnicode_FromStringAndSize(call->start, (Py_ssize_t)call->length) : NULL;
  PyObject *arguments = text ? show_all(&f->arguments, PyBUF_READ) : NULL;
  PyObject *results = arguments ? show_all(&f->results, PyBUF_WRITE) : NULL;
  PyObject *done = results ? PyObject_CallMethod(module, "_from_xla", "OOO", text, arguments, results) : NULL;
  void *error = done ? NULL : fail_raised(f);
  Py_XDECREF(done);
  Py_XDECREF(results);
  Py_XDECREF(arguments);
  Py_XDECREF(text);
  Py_XDECREF(module);
  return error;
}

static bool tell_version(const xla_frame *f) {
  for (xla_extension *e = f->extensions; e; e = e->next) {
    if (e->type != METADATA) continue;
    xla_metadata *m = ((xla_metadata_extension *)e)->metadata;
    m->version.major = MAJOR;
    m->version.minor = MINOR;
    m->traits = 0;
    return true;
  }
  return false;
}

/* NULL, or an error of XLA's. The call is described by the only attribute, a text. */
static void *handle(xla_frame *f) {
  if (tell_version(f)) return NULL;
  if (f->arguments.size != sizeof f->arguments || f->results.size != sizeof f->results ||
      f->attributes.size != sizeof f->attributes || f->attributes.count != 1 ||
      f->attributes.types[0] != TEXT)
    return fail(f, "libsoftmax: this XLA calls in another way than is known here");
  if (!Py_IsInitialized()) return fail(f, "libsoftmax: Python has ended");
  PyGILState_STATE state = PyGILState_Ensure();
  void *error = call_python(f, f->attributes.values[0]);
  PyGILState_Release(state);
  return error;
}

PyObject *core_xla(PyObject *module, PyObject *unused) {
  return PyCapsule_New((void *)handle, "xla._CUSTOM_CALL_TARGET", NULL);
}
