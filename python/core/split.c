/* split.c - a call whose rows lie on several processes (softmax/split.h): passes and folds without
 * the GIL, messages as bytes. Python (libsoftmax/_split.py) has them travel. */
#include "call.h"
#include <softmax/split.h>

typedef struct split {
  PyObject_HEAD /* ends in its own semicolon */
      smx_split *split;
  core_call call;     /* the arrays, open until the end */
  PyObject *settings; /* kept: the call borrows from it */
  PyObject *context;  /* kept, or NULL */
  int64_t groups;     /* of this rank */
  int32_t folder;     /* its number, of those that fold some rows each */
} split;

/* ---- arrays ---- */

/* One set of them, None for those that are not given. */
static int open_set(core_call *c, PyObject *arrays, const char *prefix, const smx_port *ports, int32_t count,
                    bool write, const smx_tensor **t) {
  if (!PyTuple_Check(arrays) || PyTuple_Size(arrays) > count) return PyErr_BadInternalCall(), -1;
  for (Py_ssize_t i = 0; i < PyTuple_Size(arrays); i++) {
    PyObject *const array = PyTuple_GetItem(arrays, i);
    if (array == Py_None) continue;
    if (!(t[i] = core_open(c, array, prefix, ports[i].name, write))) return -1;
    if (write) core_expect_large_pages(t[i]);
  }
  return 0;
}

/* in, out, dout, din */
static int begin(split *s, bool backward, PyObject *const *sets, const smx_split_part *part) {
  core_call *const c = &s->call;
  const smx_op *const op = c->op;
  const smx_tensor *in[SMX_MAX_PORTS] = {0}, *out[SMX_MAX_PORTS] = {0}, *dout[SMX_MAX_PORTS] = {0},
                   *din[SMX_MAX_PORTS] = {0};
  smx_context *ctx;
  smx_status status;
  if (open_set(c, sets[0], "", op->inputs, op->input_count, false, in) < 0 ||
      open_set(c, sets[1], "", op->outputs, op->output_count, !backward, out) < 0 ||
      open_set(c, sets[2], "d", op->outputs, op->output_count, false, dout) < 0 ||
      open_set(c, sets[3], "d", op->inputs, op->input_count, true, din) < 0 ||
      core_context(c->state, op->name, c->value[SLOT_ON_EMPTY], c->value[SLOT_ON_INF], &s->context, &ctx) < 0)
    return -1;
  Py_BEGIN_ALLOW_THREADS;
  status = backward ? smx_split_backward(op, ctx, &c->params, op->input_count, in, op->output_count, out,
                                         dout, din, part, &s->split)
                    : smx_split_forward(op, ctx, &c->params, op->input_count, in, op->output_count, out, part,
                                        &s->split);
  Py_END_ALLOW_THREADS;
  return status == SMX_OK ? 0 : (core_raise(status), -1);
}

/* split(backward, operator, slots, settings, in, out, dout, din, (n, first, most, slots, groups,
 * ranks, rank)): the call on this rank, of arrays whose rows run along the last axis. most: columns
 * of the rank that sums most of them, or 0: as many rows go together as a message is worth. What
 * the library tells other ranks of an error, Python does. */
PyObject *core_split(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  long long n, first, most, groups;
  int slots, ranks, rank;
  core_state *const state = PyModule_GetState(module);
  if (count != 9 || !PyLong_Check(args[1]) || !PyDict_Check(args[2]) || !PyDict_Check(args[3]) ||
      !PyTuple_Check(args[8]))
    return PyErr_BadInternalCall(), NULL;
  if (!PyArg_ParseTuple(args[8], "LLLiLii", &n, &first, &most, &slots, &groups, &ranks, &rank)) return NULL;
  const allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)state->split, Py_tp_alloc);
  split *const s = (split *)alloc((PyTypeObject *)state->split, 0); /* of zeros */
  if (!s) return NULL;
  const smx_split_part part = {.size = sizeof part,
                               .n = n,
                               .first = first,
                               .slots = slots,
                               .folders = ranks,
                               .folder = rank,
                               .block = smx_split_rows(n, most)};
  s->groups = groups, s->folder = rank, s->settings = PyDict_Copy(args[3]);
  if (s->settings && core_begin(&s->call, module, args[1]) == 0 &&
      core_take_named(&s->call, args[2], s->settings) == 0 && core_take_params(&s->call) == 0 &&
      begin(s, args[0] == Py_True, args + 4, &part) == 0)
    return (PyObject *)s;
  Py_DECREF(s);
  return NULL;
}

static void split_free(PyObject *self) {
  split *const s = (split *)self;
  PyTypeObject *const type = Py_TYPE(self);
  smx_split_close(s->split);
  core_close(&s->call);
  Py_XDECREF(s->context);
  Py_XDECREF(s->settings);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* ---- rounds ---- */

static PyObject *blocks(PyObject *self, PyObject *unused) {
  return PyLong_FromLongLong(smx_split_blocks(((split *)self)->split));
}

static PyObject *next_round(PyObject *self, PyObject *number) {
  const long long block = PyLong_AsLongLong(number);
  if (block == -1 && PyErr_Occurred()) return NULL;
  return PyLong_FromLong(smx_split_next(((split *)self)->split, block));
}

static PyObject *message_bytes(PyObject *self, PyObject *args) {
  long long block, groups;
  int folder;
  if (!PyArg_ParseTuple(args, "LLi", &block, &groups, &folder)) return NULL;
  return PyLong_FromSize_t(smx_split_bytes_for(((split *)self)->split, block, groups, folder));
}

static PyObject *pass(PyObject *self, PyObject *number) {
  const split *const s = (split *)self;
  const long long block = PyLong_AsLongLong(number);
  if (block == -1 && PyErr_Occurred()) return NULL;
  const int32_t folder = smx_split_next(s->split, block) == SMX_SPLIT_STATES ? s->folder : -1;
  const size_t bytes = smx_split_bytes_for(s->split, block, s->groups, folder);
  PyObject *const message = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
  char *const at = message ? PyBytes_AsString(message) : NULL;
  smx_status status;
  if (!message) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = smx_split_pass(s->split, block, at);
  Py_END_ALLOW_THREADS;
  if (status == SMX_OK) return message;
  Py_DECREF(message);
  return core_raise(status);
}

static PyObject *fold(PyObject *self, PyObject *args) {
  long long block;
  Py_buffer messages;
  smx_status status;
  if (!PyArg_ParseTuple(args, "Ly*", &block, &messages)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = smx_split_fold(((split *)self)->split, block, messages.buf, (size_t)messages.len);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&messages);
  return status == SMX_OK ? Py_NewRef(Py_None) : core_raise(status);
}

static PyObject *state_bytes(PyObject *self, PyObject *number) {
  const long long block = PyLong_AsLongLong(number);
  size_t bytes = 0;
  if (block == -1 && PyErr_Occurred()) return NULL;
  const smx_status status = smx_split_carry(((split *)self)->split, block, 0, NULL, &bytes);
  return status == SMX_OK ? PyLong_FromSize_t(bytes) : core_raise(status);
}

static PyObject *state_out(PyObject *self, PyObject *args) {
  long long block;
  Py_ssize_t room;
  if (!PyArg_ParseTuple(args, "Ln", &block, &room)) return NULL;
  PyObject *const state = PyBytes_FromStringAndSize(NULL, room);
  if (!state) return NULL;
  size_t bytes = (size_t)room;
  const smx_status status =
      smx_split_carry(((split *)self)->split, block, 0, PyBytes_AsString(state), &bytes);
  if (status == SMX_OK) return state;
  Py_DECREF(state);
  return core_raise(status);
}

static PyObject *state_in(PyObject *self, PyObject *args) {
  long long block;
  Py_buffer state;
  if (!PyArg_ParseTuple(args, "Ly*", &block, &state)) return NULL;
  size_t bytes = (size_t)state.len;
  const smx_status status = smx_split_carry(((split *)self)->split, block, 1, state.buf, &bytes);
  PyBuffer_Release(&state);
  return status == SMX_OK ? Py_NewRef(Py_None) : core_raise(status);
}

/* ---- columns ---- */

PyObject *core_split_shard(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  int64_t number[3], first, held;
  if (count != 3) return PyErr_BadInternalCall(), NULL;
  for (int i = 0; i < 3; i++) number[i] = PyLong_AsLongLong(args[i]);
  if (PyErr_Occurred()) return NULL;
  const smx_status status = smx_split_shard(number[0], number[1], number[2], &first, &held);
  return status == SMX_OK ? Py_BuildValue("(LL)", (long long)first, (long long)held) : core_raise(status);
}

static PyObject *list_of(const int64_t *number, Py_ssize_t count) {
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *const one = PyLong_FromLongLong(number[i]);
    if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

/* split_plan([0, ..., n]): who sums which columns. */
PyObject *core_split_plan(PyObject *module, PyObject *bounds) {
  const Py_ssize_t count = PyList_Check(bounds) ? PyList_Size(bounds) : 0;
  if (count < 2) return PyErr_BadInternalCall(), NULL;
  int64_t *const number = PyMem_Calloc((size_t)count, 2 * sizeof *number), *const owned = number + count;
  PyObject *made = NULL;
  if (!number) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) number[i] = PyLong_AsLongLong(PyList_GetItem(bounds, i));
  if (!PyErr_Occurred()) {
    const smx_status status = smx_split_plan(number[count - 1], count - 1, number, owned);
    made = status == SMX_OK ? list_of(owned, count) : core_raise(status);
  }
  PyMem_Free(number);
  return made;
}

/* ---- the type ---- */

static PyMethodDef methods[] = {
    {"blocks", blocks, METH_NOARGS, "blocks(): how many blocks there are."},
    {"next", next_round, METH_O, "next(block): what comes next in it."},
    {"bytes", message_bytes, METH_VARARGS,
     "bytes(block, groups, folder): those of the next message of a rank with so many groups, that "
     "folder's own or what is for it; -1: all."},
    {"message", pass, METH_O, "message(block): passes over the columns of this rank."},
    {"fold", fold, METH_VARARGS, "fold(block, messages): takes those of all ranks."},
    {"state_bytes", state_bytes, METH_O, "state_bytes(block): those of the state of a relayed round."},
    {"state", state_out, METH_VARARGS, "state(block, bytes): that state."},
    {"take_state", state_in, METH_VARARGS, "take_state(block, state)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)"A call whose rows lie on several processes, on one of them."},
    {Py_tp_dealloc, (void *)split_free},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec core_split_spec = {.name = "libsoftmax._core.Split",
                               .basicsize = sizeof(split),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
                                        Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
