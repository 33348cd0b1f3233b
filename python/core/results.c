/* results.c - arrays of a call: opened, made where the caller gives none, closed, and handed
 * back as the caller's kind. */
#include "call.h"
#include "torch.h"
#if defined __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

const smx_tensor *core_open(core_call *c, PyObject *object, const char *prefix, const char *port,
                            bool write) {
  core_array *a = c->arrays + c->used;
  const core_label label = {c->op->name, prefix, port};
  for (int32_t i = 0; i < c->opened_count; i++)
    if (c->given[i] == object) return &c->opened[i]->tensor;
  const bool plain = c->torch && core_is_plain(c->torch, object);
  if (plain && c->torch->view && core_array_view(a, c->torch->view, object)) {
    a->adopted = Py_NewRef(object);
    c->used++;
    return &a->tensor;
  }
  PyObject *adopted =
      plain ? PyObject_CallMethod(object, "detach", NULL) : core_adopt(c->state, object, label, write);
  if (!adopted) return NULL;
  if (core_array_open(c->state, a, adopted, label, write) < 0) {
    Py_DECREF(adopted);
    return NULL;
  }
  a->adopted = adopted;
  c->used++;
  return &a->tensor;
}

/* A number of Python's is an array only where a single row has one value: x without dimensions, and
 * the class of one row. */
static int refuse_number(core_call *c, PyObject *object, const char *prefix, const smx_port *port) {
  const bool allowed = port == c->op->inputs || port->flags & SMX_PORT_TARGET ||
                       !(PyLong_Check(object) || PyFloat_Check(object));
  if (!allowed)
    PyErr_Format(PyExc_TypeError, LABEL_TEXT ": %R is a number, not an array", c->op->name, prefix,
                 port->name, object);
  return allowed ? 0 : -1;
}

const smx_tensor *core_open_port(core_call *c, int slot, const char *prefix, const smx_port *port) {
  const smx_dtype wanted = port->flags & SMX_PORT_INT ? SMX_I64 : SMX_F64;
  if (refuse_number(c, c->value[slot], prefix, port) < 0) return NULL;
  const smx_tensor *t = core_open(c, c->value[slot], prefix, port->name, false);
  if (!t || port->flags & SMX_PORT_MASK || PyBytes_Check(c->value[slot])) return t; /* a text has no scores */
  const bool taken = wanted.code == 0 && t->dtype.code == 0 && (t->dtype.bits == 32 || t->dtype.bits == 64);
  return t->dtype.code == 2 || taken || !core_convertible(t->dtype, wanted) ? t : core_convert(c, t, wanted);
}

/* Asked of Python once a type, then remembered. */
int core_take_kind(core_call *c, PyObject *like) {
  PyObject *type = (PyObject *)Py_TYPE(like);
  c->kind = PyDict_GetItemWithError(c->state->kinds, type);
  if (c->kind || PyErr_Occurred()) return c->kind ? 0 : -1;
  PyObject *module = PyImport_ImportModule("libsoftmax._arrays");
  PyObject *kind = module ? PyObject_CallMethod(module, "kind", "(O)", like) : NULL;
  if (kind && PyDict_SetItem(c->state->kinds, type, kind) == 0) c->kind = kind; /* kept by the dict */
  Py_XDECREF(kind);
  Py_XDECREF(module);
  return c->kind ? 0 : -1;
}

/* A plain array of this shape and dtype in C order, or NULL: one like it is made faster than one
 * of its description. */
static PyObject *find_alike(const core_call *c, const smx_shape *shape) {
  for (int i = 0; i < c->used; i++) {
    const smx_tensor *t = &c->arrays[i].tensor;
    bool same =
        t->ndim == shape->ndim && t->dtype.code == shape->dtype.code && t->dtype.bits == shape->dtype.bits;
    for (int32_t d = 0; same && d < t->ndim; d++) same = t->shape[d] == shape->dim[d];
    PyObject *const array = c->arrays[i].adopted; /* NULL: a result of this call */
    if (same && array && core_is_packed(t) && core_is_plain(c->torch, array)) return array;
  }
  return NULL;
}

static PyObject *make_array(core_call *c, const smx_shape *shape) {
  PyObject *alike = c->torch && !c->by_channel && PyTuple_Size(c->kind) > 2 ? find_alike(c, shape) : NULL;
  if (alike) return PyObject_CallFunctionObjArgs(PyTuple_GetItem(c->kind, 2), alike, NULL);
  const char *name = core_dtype_name(shape->dtype);
  if (!name)
    return PyErr_Format(PyExc_TypeError, "%s: results of %d bits have no name here", c->op->name,
                        (int)shape->dtype.bits);
  PyObject *dims = core_dims(shape), *dtype = dims ? PyUnicode_InternFromString(name) : NULL, *array = NULL;
  if (dtype)
    array = PyObject_CallFunctionObjArgs(PyTuple_GetItem(c->kind, c->by_channel ? 3 : 0), dims, dtype, NULL);
  Py_XDECREF(dims);
  Py_XDECREF(dtype);
  return array;
}

/* Memory of a large result comes from the system page by page, each filled with zeros when it is
 * first written. Large pages take a quarter of that time; NumPy asks for them too. */
void core_expect_large_pages(const smx_tensor *t) {
#if defined MADV_HUGEPAGE
  enum { LEAST = 4 << 20 };
  size_t bytes = t->dtype.bits / 8;
  for (int32_t d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
  if (bytes < LEAST) return;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)t->data + t->byte_offset;
  const uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  madvise((void *)first, last - first, MADV_HUGEPAGE); /* a hint: whatever comes of it will do */
#endif
}

int core_open_result(core_call *c, core_results *r, int32_t i, PyObject *given, const smx_shape *shape,
                     const char *prefix, const char *port) {
  r->made[i] = !given;
  core_array *a = c->arrays + c->used;
  r->object[i] = !given && c->torch ? core_torch_make(c->torch, shape, c->by_channel, a) : NULL;
  if (r->object[i]) {
    c->used++;
    r->tensor[i] = &a->tensor;
    return 0;
  }
  r->object[i] = given ? Py_NewRef(given) : make_array(c, shape);
  r->tensor[i] = r->object[i] ? core_open(c, r->object[i], prefix, port, true) : NULL;
  if (r->made[i] && r->tensor[i]) core_expect_large_pages(r->tensor[i]);
  return r->tensor[i] ? 0 : -1;
}

void core_close(core_call *c) {
  for (int i = 0; i < c->used; i++) core_array_close(c->arrays + i);
  c->used = 0;
  core_free_scratch(c);
  Py_CLEAR(c->unmasked);
}

/* Result i as the caller's kind of array, a new reference; None if it was not wanted. */
static PyObject *give(core_call *c, core_results *r, int32_t i) {
  if (!r->object[i]) return Py_NewRef(Py_None);
  PyObject *wrap = r->made[i] ? PyTuple_GetItem(c->kind, 1) : Py_None;
  if (wrap == Py_None) return Py_NewRef(r->object[i]);
  return wrap ? PyObject_CallFunctionObjArgs(wrap, r->object[i], NULL) : NULL;
}

PyObject *core_give_all(core_call *c, core_results *r, int32_t n, bool single) {
  for (int32_t i = 0; i < n; i++)
    if (single || c->handed == UINT32_C(1) << i) return give(c, r, i);
  PyObject *all = PyTuple_New(n);
  for (int32_t i = 0; all && i < n; i++) {
    PyObject *one = give(c, r, i);
    if (!one || PyTuple_SetItem(all, i, one) < 0) Py_CLEAR(all);
  }
  return all;
}

void core_drop(core_results *r) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) Py_CLEAR(r->object[i]);
}
