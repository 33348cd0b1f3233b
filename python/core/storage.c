/* storage.c - memory that the module owns: what results are written to when the caller's arrays
 * cannot be made empty and then filled. It is shown by the buffer protocol and by DLPack, and lives
 * as long as anyone looks at it. */
#include "core.h"
#include <stdlib.h>
#include <string.h>

typedef struct storage {
  PyObject_HEAD /* ends in its own semicolon */
      void *data;
  smx_dtype dtype;
  int32_t ndim;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS]; /* in elements */
  Py_ssize_t byte_strides[SMX_MAX_DIMS];
  int64_t bytes;
  char format[2];
} storage;

enum { ALIGNMENT = 64 }; /* JAX takes memory without a copy only if it is aligned so */

/* ---- making ---- */

static int take_shape(storage *s, PyObject *shape) {
  Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim < 0) return -1;
  if (ndim > SMX_MAX_DIMS) {
    PyErr_Format(PyExc_ValueError, "Storage: shape has %zd dimensions, not 0..%d", ndim, SMX_MAX_DIMS);
    return -1;
  }
  s->ndim = (int32_t)ndim;
  for (Py_ssize_t d = 0; d < ndim; d++) {
    s->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    if (s->shape[d] >= 0) continue;
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "Storage: shape[%zd] is %lld", d, (long long)s->shape[d]);
    return -1;
  }
  return 0;
}

/* C order. */
static int take_memory(storage *s) {
  int64_t packed = 1, item = s->dtype.bits / 8, size = 1;
  for (int32_t d = s->ndim - 1; d >= 0; d--) {
    s->strides[d] = packed;
    s->byte_strides[d] = packed * item;
    if (__builtin_mul_overflow(packed, s->shape[d] ? s->shape[d] : 1, &packed) || packed > INT64_MAX / 16)
      return PyErr_NoMemory(), -1;
    size *= s->shape[d];
  }
  s->bytes = size * item;
  s->data = aligned_alloc(ALIGNMENT, ((size_t)s->bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  return s->data ? 0 : (PyErr_NoMemory(), -1);
}

static PyObject *storage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *shape;
  const char *name;
  if (!PyArg_ParseTuple(args, "O!s:Storage", &PyTuple_Type, &shape, &name)) return NULL;
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  storage *s = (storage *)alloc(type, 0);
  if (!s) return NULL;
  if (!core_dtype_named(name, &s->dtype)) PyErr_Format(PyExc_TypeError, "Storage: no dtype '%s'", name);
  else if (take_shape(s, shape) == 0 && take_memory(s) == 0) {
    s->format[0] = core_dtype_format(s->dtype);
    return (PyObject *)s;
  }
  Py_DECREF(s);
  return NULL;
}

static void storage_free(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  free(((storage *)self)->data);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* ---- the buffer protocol ---- */

static int storage_buffer(PyObject *self, Py_buffer *view, int flags) {
  storage *s = (storage *)self;
  view->obj = NULL;
  if (!s->format[0]) {
    PyErr_SetString(PyExc_BufferError, "Storage: the buffer protocol has no bfloat16");
    return -1;
  }
  *view = (Py_buffer){.buf = s->data,
                      .obj = Py_NewRef(self),
                      .len = s->bytes,
                      .itemsize = s->dtype.bits / 8,
                      .ndim = s->ndim};
  view->format = flags & PyBUF_FORMAT ? s->format : NULL;
  view->shape = flags & PyBUF_ND ? s->shape : NULL;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? s->byte_strides : NULL;
  return 0;
}

/* ---- DLPack ---- */

/* The last look at an exported tensor may end in a thread without the GIL, or after Python has
 * ended. */
static void release_owner(void *owner) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject *)owner);
  PyGILState_Release(gil);
}

static void delete_plain(dlpack_plain *m) {
  release_owner(m->owner);
  free(m);
}

static void delete_versioned(dlpack_versioned *m) {
  release_owner(m->owner);
  free(m);
}

/* A capsule that nobody has taken the tensor out of still owns it; one that somebody has bears
 * another name. */
static void free_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, DLPACK_PLAIN)) delete_plain(PyCapsule_GetPointer(capsule, DLPACK_PLAIN));
  if (PyCapsule_IsValid(capsule, DLPACK_VERSIONED))
    delete_versioned(PyCapsule_GetPointer(capsule, DLPACK_VERSIONED));
}

static smx_tensor tensor_of(storage *s) {
  return (smx_tensor){s->data, {DLPACK_CPU, 0}, s->ndim, s->dtype, s->shape, s->strides, 0};
}

static PyObject *export_plain(storage *s) {
  dlpack_plain *m = malloc(sizeof *m);
  if (!m) return PyErr_NoMemory();
  *m = (dlpack_plain){.tensor = tensor_of(s), .owner = Py_NewRef((PyObject *)s), .deleter = delete_plain};
  PyObject *capsule = PyCapsule_New(m, DLPACK_PLAIN, free_capsule);
  if (!capsule) delete_plain(m);
  return capsule;
}

static PyObject *export_versioned(storage *s) {
  dlpack_versioned *m = malloc(sizeof *m);
  if (!m) return PyErr_NoMemory();
  *m = (dlpack_versioned){{DLPACK_MAJOR, 0}, Py_NewRef((PyObject *)s), delete_versioned, 0, tensor_of(s)};
  PyObject *capsule = PyCapsule_New(m, DLPACK_VERSIONED, free_capsule);
  if (!capsule) delete_versioned(m);
  return capsule;
}

static PyObject *storage_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
  int major = 0, minor = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version, &device,
                                   &copy))
    return NULL;
  if (copy == Py_True) {
    PyErr_SetString(PyExc_BufferError, "Storage: does not copy");
    return NULL;
  }
  if (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)) return NULL;
  return major >= DLPACK_MAJOR ? export_versioned((storage *)self) : export_plain((storage *)self);
}

static PyObject *storage_device(PyObject *self, PyObject *unused) {
  return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}

/* ---- the type ---- */

static PyObject *storage_shape(PyObject *self, void *unused) {
  storage *s = (storage *)self;
  smx_shape shape = {.ndim = s->ndim};
  memcpy(shape.dim, s->shape, sizeof shape.dim);
  return core_dims(&shape);
}

static PyObject *storage_dtype(PyObject *self, void *unused) {
  return PyUnicode_FromString(core_dtype_name(((storage *)self)->dtype));
}

static PyGetSetDef properties[] = {
    {"shape", storage_shape, NULL, "How many elements in each dimension.", NULL},
    {"dtype", storage_dtype, NULL, "The name of the dtype.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))storage_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A capsule with the tensor."},
    {"__dlpack_device__", storage_device, METH_NOARGS, "The CPU."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     (void *)"Storage(shape, dtype): memory for a result, shown by DLPack and the buffer protocol."},
    {Py_tp_new, (void *)storage_new},
    {Py_tp_dealloc, (void *)storage_free},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_bf_getbuffer, (void *)storage_buffer},
    {0, NULL},
};

PyType_Spec core_storage_spec = {.name = "libsoftmax._core.Storage",
                                 .basicsize = sizeof(storage),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                 .slots = slots};
