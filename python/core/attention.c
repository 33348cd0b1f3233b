/* attention.c - attention for Python: its entry points take a dict of arguments.
 * libsoftmax/_attention.py has their names, defaults and help. */
#include "call.h"
#include <stddef.h>
#include <string.h>

enum { NDIM = 4, OUTPUTS = 6 };

typedef struct attention_call {
  core_call c;
  smx_op op; /* only its name is used, for messages */
  PyObject *given;
  smx_attention_options options;
  PyObject *keeper;
  smx_context *ctx;
  core_results results;
} attention_call;

/* An argument, borrowed; NULL: not given, or None. */
static PyObject *argument(const attention_call *a, const char *name) {
  PyObject *value = PyDict_GetItemString(a->given, name);
  return value == Py_None ? NULL : value;
}

/* The value of an argument is wrong: whatever Python said of it gets the argument's name. */
static int refuse(const attention_call *a, const char *name, PyObject *value, const char *wanted) {
  PyObject *type = PyErr_ExceptionMatches(PyExc_TypeError) ? PyExc_TypeError : PyExc_ValueError;
  PyErr_Clear();
  PyErr_Format(type, "%s: %s: %R is not %s", a->op.name, name, value, wanted);
  return -1;
}

static int take_number(const attention_call *a, const char *name, double *number) {
  PyObject *value = argument(a, name);
  if (!value) return 0;
  *number = PyFloat_AsDouble(value);
  return *number == -1 && PyErr_Occurred() ? refuse(a, name, value, "a number") : 0;
}

static int take_whole(const attention_call *a, const char *name, int64_t *number) {
  PyObject *value = argument(a, name), *whole = value ? PyNumber_Index(value) : NULL;
  if (!value) return 0;
  *number = whole ? PyLong_AsLongLong(whole) : -1;
  Py_XDECREF(whole);
  return PyErr_Occurred() ? refuse(a, name, value, "a whole number of 64 bits") : 0;
}

/* *t stays NULL for an array that is not given and not required. */
static int take_array(attention_call *a, const char *name, bool required, const smx_tensor **t) {
  PyObject *value = argument(a, name);
  if (value) return *t = core_open(&a->c, value, "", name, false), *t ? 0 : -1;
  if (!required) return 0;
  PyErr_Format(PyExc_TypeError, LABEL_TEXT " is missing", a->op.name, "", name);
  return -1;
}

static int take_params(attention_call *a) {
  PyObject *params = argument(a, "params");
  for (Py_ssize_t i = 0;
       params && PyTuple_Check(params) && i < SMX_ATTENTION_PARAMS && i < PyTuple_Size(params); i++) {
    a->options.param[i] = PyFloat_AsDouble(PyTuple_GetItem(params, i));
    if (a->options.param[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

/* The operator on rows that makes the weights, with its parameters. */
static const smx_op *take_operator(attention_call *a, smx_params *params) {
  PyObject *name = argument(a, "operator"), *given = argument(a, "params"), *key, *value;
  const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  const smx_op *op = text ? smx_op_find(text) : NULL;
  if (!op) return PyErr_Occurred() ? NULL : (core_raise(SMX_ERR_NO_OP), NULL);
  smx_params_init(op, params);
  for (Py_ssize_t at = 0; given && PyDict_Check(given) && PyDict_Next(given, &at, &key, &value);) {
    const char *param = PyUnicode_AsUTF8AndSize(key, NULL),
               *word = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    double number = word ? 0 : PyFloat_AsDouble(value);
    if (PyErr_Occurred()) return NULL;
    smx_status status =
        word ? smx_params_parse(op, params, param, word) : smx_params_set(op, params, param, number);
    if (status != SMX_OK) return core_raise(status), NULL;
  }
  return op;
}

static int take_options(attention_call *a) {
  static const struct {
    const char *name;
    size_t at;
  } arrays[] = {
      {"mask", offsetof(smx_attention_options, mask)},
      {"bias", offsetof(smx_attention_options, bias)},
      {"slopes", offsetof(smx_attention_options, slopes)},
      {"sinks", offsetof(smx_attention_options, sinks)},
      {"lengths", offsetof(smx_attention_options, lengths)},
      {"query_offsets", offsetof(smx_attention_options, query_offsets)},
      {"key_offsets", offsetof(smx_attention_options, key_offsets)},
      {"block_table", offsetof(smx_attention_options, block_table)},
      {"streams", offsetof(smx_attention_options, streams)},
  };
  smx_attention_options *o = &a->options;
  int64_t weights = 0, causal = 0, seed = 0, stream = 0;
  smx_attention_init(o);
  if (take_whole(a, "weights", &weights) < 0 || take_params(a) < 0 ||
      take_number(a, "scale", &o->scale) < 0 || take_number(a, "softcap", &o->softcap) < 0 ||
      take_whole(a, "causal", &causal) < 0 || take_whole(a, "query_start", &o->query_start) < 0 ||
      take_whole(a, "window_left", &o->window_left) < 0 ||
      take_whole(a, "window_right", &o->window_right) < 0 || take_whole(a, "key_start", &o->key_start) < 0 ||
      take_number(a, "dropout", &o->dropout) < 0 || take_whole(a, "seed", &seed) < 0 ||
      take_whole(a, "stream", &stream) < 0)
    return -1;
  o->seed = (uint64_t)seed, o->stream = (uint64_t)stream;
  o->weights = (smx_attention_weights)weights, o->causal = causal != 0;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
    const smx_tensor *t = NULL;
    if (take_array(a, arrays[i].name, false, &t) < 0) return -1;
    memcpy((char *)o + arrays[i].at, &t, sizeof t);
  }
  return 0;
}

/* ---- results ---- */

static smx_shape shape_of(int32_t ndim, const smx_tensor *rows, int64_t columns, smx_dtype dtype) {
  smx_shape s = {.ndim = ndim, .dtype = dtype};
  for (int32_t d = 0; d < 3; d++) s.dim[d] = rows->shape[d];
  s.dim[3] = columns;
  return s;
}

static int make_result(attention_call *a, int32_t i, const char *name, const smx_shape *shape,
                       PyObject *given) {
  return core_open_result(&a->c, &a->results, i, given, shape, "", name);
}

/* Arrays of four dimensions, which shapes of results are made from. */
static int four_dimensions(const attention_call *a, const char *name, const smx_tensor *t) {
  if (t->ndim == NDIM) return 0;
  PyErr_Format(PyExc_ValueError, "%s: %s: ndim is %d, not %d", a->op.name, name, (int)t->ndim, NDIM);
  return -1;
}

static bool wide(const smx_tensor *t) { return t->dtype.bits == 64; }

/* ---- the entry points ---- */

/* The library is called without the interpreter's lock; 0, or -1 with the error set. */
#define RETURN_CALL(call) \
  do { \
    smx_status status; \
    Py_BEGIN_ALLOW_THREADS; \
    status = (call); \
    Py_END_ALLOW_THREADS; \
    return status == SMX_OK ? 0 : (core_raise(status), -1); \
  } while (0)

static int run_forward(attention_call *a) {
  const smx_tensor *q = NULL, *k = NULL, *v = NULL;
  int64_t with_lse = 0;
  if (take_array(a, "q", true, &q) < 0 || take_array(a, "k", true, &k) < 0 ||
      take_array(a, "v", true, &v) < 0)
    return -1;
  if (take_whole(a, "return_lse", &with_lse) < 0 || four_dimensions(a, "q", q) < 0 ||
      four_dimensions(a, "v", v) < 0)
    return -1;
  smx_shape o = shape_of(4, q, v->shape[3], q->dtype),
            lse = shape_of(3, q, 0, wide(q) || wide(k) || wide(v) ? SMX_F64 : SMX_F32);
  if (core_take_kind(&a->c, argument(a, "q")) < 0 || make_result(a, 0, "o", &o, argument(a, "out")) < 0)
    return -1;
  if (with_lse && make_result(a, 1, "lse", &lse, NULL) < 0) return -1;
  smx_params params;
  const smx_op *op = argument(a, "operator") ? take_operator(a, &params) : NULL;
  if (PyErr_Occurred()) return -1;
  RETURN_CALL(op ? smx_attention_rows(a->ctx, &a->options, op, &params, q, k, v, a->results.tensor[0])
                 : smx_attention(a->ctx, &a->options, q, k, v, a->results.tensor[0], a->results.tensor[1]));
}

/* How many keys a sequence has at most: k is an array of them, or pages of a cache. */
static int64_t keys_of(const attention_call *a, const smx_tensor *k) {
  const smx_tensor *table = a->options.block_table;
  return table && table->ndim == 2 ? table->shape[1] * k->shape[2] : k->shape[2];
}

static int run_scores(attention_call *a) {
  const smx_tensor *q = NULL, *k = NULL;
  int64_t stage = 0;
  if (take_array(a, "q", true, &q) < 0 || take_array(a, "k", true, &k) < 0 ||
      take_whole(a, "stage", &stage) < 0)
    return -1;
  if (four_dimensions(a, "q", q) < 0 || four_dimensions(a, "k", k) < 0) return -1;
  smx_shape s = shape_of(4, q, keys_of(a, k), q->dtype);
  if (core_take_kind(&a->c, argument(a, "q")) < 0 || make_result(a, 0, "scores", &s, argument(a, "out")) < 0)
    return -1;
  RETURN_CALL(
      smx_attention_scores(a->ctx, &a->options, (smx_attention_stage)stage, q, k, a->results.tensor[0]));
}

static int run_column_mass(attention_call *a) {
  const smx_tensor *q = NULL, *k = NULL, *lse = NULL, *rows = NULL;
  if (take_array(a, "q", true, &q) < 0 || take_array(a, "k", true, &k) < 0 ||
      take_array(a, "lse", true, &lse) < 0)
    return -1;
  if (take_array(a, "row_weights", false, &rows) < 0 || four_dimensions(a, "q", q) < 0 ||
      four_dimensions(a, "k", k) < 0)
    return -1;
  smx_shape s = shape_of(3, k, 0, wide(q) || wide(k) ? SMX_F64 : SMX_F32);
  if (core_take_kind(&a->c, argument(a, "q")) < 0 || make_result(a, 0, "mass", &s, argument(a, "out")) < 0)
    return -1;
  RETURN_CALL(smx_attention_column_mass(a->ctx, &a->options, q, k, lse, rows, a->results.tensor[0]));
}

/* Whole numbers of a tuple; *count of them. */
static int take_wholes(const attention_call *a, const char *name, int64_t *numbers, size_t most,
                       size_t *count) {
  PyObject *tuple = argument(a, name);
  *count = tuple ? (size_t)PyTuple_Size(tuple) : 0;
  if (PyErr_Occurred()) return -1;
  if (*count > most)
    return PyErr_Format(PyExc_ValueError, "%s: %s: more than %d of them", a->op.name, name, (int)most), -1;
  for (size_t i = 0; i < *count; i++) {
    numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, (Py_ssize_t)i));
    if (numbers[i] == -1 && PyErr_Occurred()) return refuse(a, name, tuple, "whole numbers of 64 bits");
  }
  return 0;
}

/* Lists of `keep` keys: one for every head, or with shared one for all of them. */
static int run_select(attention_call *a) {
  const smx_tensor *mass = NULL;
  int64_t kernels[64];
  smx_attention_select_options o = {.size = sizeof o, .lengths = a->options.lengths};
  int64_t keep = 0, pool = 0, shared = 0;
  if (take_array(a, "mass", true, &mass) < 0 || take_array(a, "budgets", false, &o.budgets) < 0) return -1;
  if (take_whole(a, "keep", &keep) < 0 || take_whole(a, "first", &o.first) < 0 ||
      take_whole(a, "last", &o.last) < 0 || take_whole(a, "kernel", &o.kernel) < 0 ||
      take_wholes(a, "kernels", kernels, 64, &o.kernel_count) < 0 || take_whole(a, "pool", &pool) < 0 ||
      take_whole(a, "shared", &shared) < 0)
    return -1;
  if (mass->ndim != 3)
    return PyErr_Format(PyExc_ValueError, "%s: mass: ndim is %d, not 3", a->op.name, (int)mass->ndim), -1;
  if (keep < 0)
    return PyErr_Format(PyExc_ValueError, "%s: keep: %lld is not at least 0", a->op.name, (long long)keep),
           -1;
  o.pool = (smx_attention_pool)pool, o.kernels = o.kernel_count ? kernels : NULL;
  smx_shape keys = {.ndim = 3, .dtype = SMX_I32, .dim = {mass->shape[0], shared ? 1 : mass->shape[1], keep}},
            kept = keys;
  kept.ndim = 2;
  if (core_take_kind(&a->c, argument(a, "mass")) < 0 ||
      make_result(a, 0, "keys", &keys, argument(a, "out")) < 0 || make_result(a, 1, "kept", &kept, NULL) < 0)
    return -1;
  RETURN_CALL(smx_attention_select(a->ctx, &o, mass, a->results.tensor[0], a->results.tensor[1]));
}

static int run_apply(attention_call *a) {
  const smx_tensor *w = NULL, *v = NULL;
  if (take_array(a, "w", true, &w) < 0 || take_array(a, "v", true, &v) < 0) return -1;
  if (four_dimensions(a, "w", w) < 0 || four_dimensions(a, "v", v) < 0) return -1;
  smx_shape o = shape_of(4, w, v->shape[3], v->dtype);
  if (core_take_kind(&a->c, argument(a, "w")) < 0 || make_result(a, 0, "o", &o, argument(a, "out")) < 0)
    return -1;
  RETURN_CALL(smx_attention_apply(a->ctx, &a->options, w, v, a->results.tensor[0]));
}

/* Gradients of bias, slopes and sinks have their shapes. */
static int make_added(attention_call *a, int32_t i, const char *option, const char *result,
                      const smx_tensor *t) {
  int64_t wanted = 0;
  if (take_whole(a, result, &wanted) < 0 || !wanted) return PyErr_Occurred() ? -1 : 0;
  if (!t || t->ndim > SMX_MAX_DIMS) {
    PyErr_Format(PyExc_TypeError, LABEL_TEXT " is missing", a->op.name, "", option);
    return -1;
  }
  smx_shape s = {.ndim = t->ndim, .dtype = t->dtype};
  for (int32_t d = 0; d < t->ndim; d++) s.dim[d] = t->shape[d];
  return make_result(a, i, result, &s, NULL);
}

static int run_backward(attention_call *a) {
  static const char *const names[] = {"do", "q", "k", "v", "o", "lse", "dlse"};
  enum { D_O, Q, K, V, O, LSE, D_LSE, ARRAYS };
  const smx_tensor *t[ARRAYS] = {0}, *const *d = a->results.tensor;
  smx_params params;
  const smx_op *op = argument(a, "operator") ? take_operator(a, &params) : NULL;
  if (PyErr_Occurred()) return -1;
  for (int i = 0; i < ARRAYS; i++)
    if (take_array(a, names[i], i != D_LSE && !(op && (i == O || i == LSE)), t + i) < 0) return -1;
  if (core_take_kind(&a->c, argument(a, "do")) < 0) return -1;
  if (make_added(a, 3, "bias", "dbias", a->options.bias) < 0 ||
      make_added(a, 4, "slopes", "dslopes", a->options.slopes) < 0 ||
      make_added(a, 5, "sinks", "dsinks", a->options.sinks) < 0)
    return -1;
  for (int i = 0; i < 3; i++) {
    static const char *const results[] = {"dq", "dk", "dv"};
    int64_t wanted = 0;
    if (four_dimensions(a, names[Q + i], t[Q + i]) < 0 || take_whole(a, results[i], &wanted) < 0) return -1;
    smx_shape s = shape_of(4, t[Q + i], t[Q + i]->shape[3], t[Q + i]->dtype);
    if (wanted && make_result(a, i, results[i], &s, NULL) < 0) return -1;
  }
  smx_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = op ? smx_attention_rows_backward(a->ctx, &a->options, op, &params, t[Q], t[K], t[V], t[D_O], d[0],
                                            d[1], d[2])
              : smx_attention_backward(a->ctx, &a->options, t[Q], t[K], t[V], t[O], t[LSE], t[D_O], t[D_LSE],
                                       d[0], d[1], d[2]);
  if (status == SMX_OK && (d[3] || d[4] || d[5]))
    status = smx_attention_backward_bias(a->ctx, &a->options, t[Q], t[K], t[V], t[O], t[LSE], t[D_O],
                                         t[D_LSE], d[3], d[4], d[5]);
  Py_END_ALLOW_THREADS;
  return status == SMX_OK ? 0 : (core_raise(status), -1);
}

/* ---- states ---- */

static int run_states(attention_call *a) {
  const smx_tensor *q = NULL, *k = NULL, *v = NULL;
  if (take_array(a, "q", true, &q) < 0 || take_array(a, "k", true, &k) < 0 ||
      take_array(a, "v", true, &v) < 0)
    return -1;
  if (four_dimensions(a, "q", q) < 0 || four_dimensions(a, "k", k) < 0 || four_dimensions(a, "v", v) < 0)
    return -1;
  smx_shape s =
      shape_of(5, q, (keys_of(a, k) + 1023) / 1024, wide(q) || wide(k) || wide(v) ? SMX_F64 : SMX_F32);
  s.dim[4] = smx_attention_state_width(v->shape[3]);
  if (core_take_kind(&a->c, argument(a, "q")) < 0 || make_result(a, 0, "states", &s, argument(a, "out")) < 0)
    return -1;
  RETURN_CALL(smx_attention_states(a->ctx, &a->options, q, k, v, a->results.tensor[0]));
}

static int run_merge(attention_call *a) {
  enum { MOST = 24 };
  const smx_tensor *states[MOST] = {NULL};
  PyObject *tuple = argument(a, "states");
  const Py_ssize_t count = tuple ? PyTuple_Size(tuple) : 0;
  int64_t size = 0, with_lse = 0;
  if (PyErr_Occurred() || take_whole(a, "size", &size) < 0 || take_whole(a, "return_lse", &with_lse) < 0)
    return -1;
  if (count < 1 || count > MOST)
    return PyErr_Format(PyExc_ValueError, "%s: states: %zd of them, not 1 to %d", a->op.name, count, MOST),
           -1;
  if (size < 1)
    return PyErr_Format(PyExc_ValueError, "%s: size: %lld is not at least 1", a->op.name, (long long)size),
           -1;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!(states[i] = core_open(&a->c, PyTuple_GetItem(tuple, i), "", "states", false))) return -1;
  if (states[0]->ndim != 5)
    return PyErr_Format(PyExc_ValueError, "%s: states: ndim is %d, not 5", a->op.name, (int)states[0]->ndim),
           -1;
  smx_shape o = shape_of(4, states[0], size, states[0]->dtype),
            lse = shape_of(3, states[0], 0, states[0]->dtype);
  if (core_take_kind(&a->c, PyTuple_GetItem(tuple, 0)) < 0 ||
      make_result(a, 0, "o", &o, argument(a, "out")) < 0)
    return -1;
  if (with_lse && make_result(a, 1, "lse", &lse, NULL) < 0) return -1;
  RETURN_CALL(smx_attention_merge(a->ctx, &a->options, (int32_t)count, states, a->results.tensor[0],
                                  a->results.tensor[1]));
}

/* ---- other scores, other weights ---- */

typedef enum other { PARALLAX, LOCAL_LINEAR, ADDITIVE } other;
static const char *const others[] = {[PARALLAX] = "r", [LOCAL_LINEAR] = NULL, [ADDITIVE] = "u"};

static int run_other(attention_call *a, other which) {
  const smx_tensor *q = NULL, *k = NULL, *v = NULL, *more = NULL;
  double ridge = 0;
  if (take_array(a, "q", true, &q) < 0 || take_array(a, "k", true, &k) < 0 ||
      take_array(a, "v", true, &v) < 0)
    return -1;
  if ((others[which] && take_array(a, others[which], true, &more) < 0) || take_number(a, "ridge", &ridge) < 0)
    return -1;
  if (four_dimensions(a, "q", q) < 0 || four_dimensions(a, "v", v) < 0) return -1;
  smx_shape o = shape_of(4, q, v->shape[3], q->dtype);
  if (core_take_kind(&a->c, argument(a, "q")) < 0 || make_result(a, 0, "o", &o, argument(a, "out")) < 0)
    return -1;
  const smx_tensor *to = a->results.tensor[0];
  RETURN_CALL(which == PARALLAX       ? smx_attention_parallax(a->ctx, &a->options, q, k, v, more, to)
              : which == LOCAL_LINEAR ? smx_attention_local_linear(a->ctx, &a->options, ridge, q, k, v, to)
                                      : smx_attention_additive(a->ctx, &a->options, more, q, k, v, to));
}
static int run_parallax(attention_call *a) { return run_other(a, PARALLAX); }
static int run_local_linear(attention_call *a) { return run_other(a, LOCAL_LINEAR); }
static int run_additive(attention_call *a) { return run_other(a, ADDITIVE); }

/* Gradient i, if it is wanted: like an array, or for u [B, Hq, d]. */
static int make_gradient(attention_call *a, int32_t i, const char *name, const smx_tensor *like, bool of_u) {
  int64_t wanted = 0;
  if (take_whole(a, name, &wanted) < 0 || !wanted) return PyErr_Occurred() ? -1 : 0;
  smx_shape s = shape_of(of_u ? 3 : 4, like, like->shape[3], like->dtype);
  if (of_u) s.dim[2] = like->shape[3];
  return make_result(a, i, name, &s, NULL);
}

static int run_other_backward(attention_call *a, other which) {
  static const char *const names[] = {"do", "q", "k", "v"}, *const results[] = {"dq", "dk", "dv"};
  const smx_tensor *t[4] = {0}, *const *d = a->results.tensor, *more = NULL;
  double ridge = 0;
  for (int i = 0; i < 4; i++)
    if (take_array(a, names[i], true, t + i) < 0 || four_dimensions(a, names[i], t[i]) < 0) return -1;
  if ((others[which] && take_array(a, others[which], true, &more) < 0) || take_number(a, "ridge", &ridge) < 0)
    return -1;
  if (core_take_kind(&a->c, argument(a, "do")) < 0) return -1;
  for (int i = 0; i < 3; i++)
    if (make_gradient(a, i, results[i], t[i + 1], false) < 0) return -1;
  if (make_gradient(a, 3, "dr", t[1], false) < 0 || make_gradient(a, 3, "du", t[1], true) < 0) return -1;
  const smx_attention_options *o = &a->options;
  RETURN_CALL(
      which == PARALLAX
          ? smx_attention_parallax_backward(a->ctx, o, t[1], t[2], t[3], more, t[0], d[0], d[1], d[2], d[3])
      : which == LOCAL_LINEAR
          ? smx_attention_local_linear_backward(a->ctx, o, ridge, t[1], t[2], t[3], t[0], d[0], d[1], d[2])
          : smx_attention_additive_backward(a->ctx, o, more, t[1], t[2], t[3], t[0], d[3], d[0], d[1], d[2]));
}
static int run_parallax_backward(attention_call *a) { return run_other_backward(a, PARALLAX); }
static int run_local_linear_backward(attention_call *a) { return run_other_backward(a, LOCAL_LINEAR); }
static int run_additive_backward(attention_call *a) { return run_other_backward(a, ADDITIVE); }

/* ---- the max-plus semiring ---- */

static int run_tropical(attention_call *a) {
  const smx_tensor *q = NULL, *k = NULL, *v = NULL;
  int64_t symmetric = 1, with_winners = 0;
  if (take_array(a, "q", true, &q) < 0 || take_array(a, "k", true, &k) < 0 ||
      take_array(a, "v", true, &v) < 0)
    return -1;
  if (take_whole(a, "symmetric", &symmetric) < 0 || take_whole(a, "return_winners", &with_winners) < 0)
    return -1;
  if (four_dimensions(a, "q", q) < 0 || four_dimensions(a, "v", v) < 0) return -1;
  smx_shape o = shape_of(4, q, v->shape[3], q->dtype), winners = shape_of(4, q, v->shape[3], SMX_I32);
  if (core_take_kind(&a->c, argument(a, "q")) < 0 || make_result(a, 0, "o", &o, argument(a, "out")) < 0)
    return -1;
  if (with_winners && make_result(a, 1, "winners", &winners, NULL) < 0) return -1;
  RETURN_CALL(smx_attention_tropical(a->ctx, &a->options, symmetric != 0, q, k, v, a->results.tensor[0],
                                     a->results.tensor[1]));
}

static int run_tropical_backward(attention_call *a) {
  static const char *const names[] = {"do", "q", "k", "v", "winners"}, *const results[] = {"dq", "dk", "dv"};
  enum { D_O, Q, K, V, WINNERS, ARRAYS };
  const smx_tensor *t[ARRAYS] = {0}, *const *d = a->results.tensor;
  int64_t symmetric = 1;
  if (take_whole(a, "symmetric", &symmetric) < 0) return -1;
  for (int i = 0; i < ARRAYS; i++)
    if (take_array(a, names[i], true, t + i) < 0) return -1;
  if (core_take_kind(&a->c, argument(a, "do")) < 0) return -1;
  for (int i = 0; i < 3; i++) {
    int64_t wanted = 0;
    if (four_dimensions(a, names[Q + i], t[Q + i]) < 0 || take_whole(a, results[i], &wanted) < 0) return -1;
    smx_shape s = shape_of(4, t[Q + i], t[Q + i]->shape[3], t[Q + i]->dtype);
    if (wanted && make_result(a, i, results[i], &s, NULL) < 0) return -1;
  }
  RETURN_CALL(smx_attention_tropical_backward(a->ctx, &a->options, symmetric != 0, t[Q], t[K], t[V],
                                              t[WINNERS], t[D_O], d[0], d[1], d[2]));
}

/* ---- rotary position embedding ---- */

static int take_rope(attention_call *a, smx_rope_options *o) {
  int64_t layout = 0, cumulative = 0;
  o->size = sizeof *o;
  if (take_whole(a, "layout", &layout) < 0 || take_whole(a, "dims", &o->dims) < 0 ||
      take_number(a, "base", &o->base) < 0 || take_number(a, "scale", &o->scale) < 0 ||
      take_whole(a, "start", &o->start) < 0 || take_whole(a, "cumulative", &cumulative) < 0)
    return -1;
  o->layout = (smx_rope_layout)layout, o->cumulative = cumulative != 0;
  return take_array(a, "positions", false, &o->positions) < 0 ||
                 take_array(a, "frequencies", false, &o->frequencies) < 0 ||
                 take_array(a, "carry", false, &o->carry) < 0
             ? -1
             : 0;
}

/* Makes result i of ndim dimensions, whose last are the pairs, if it is wanted. */
static int make_pairs(attention_call *a, int32_t i, const char *wish, const char *name, int32_t ndim,
                      const smx_tensor *x, int64_t dims, smx_dtype dtype) {
  int64_t wanted = 0;
  if (take_whole(a, wish, &wanted) < 0 || !wanted) return PyErr_Occurred() ? -1 : 0;
  smx_shape s = shape_of(ndim, x, 0, dtype);
  s.dim[ndim - 1] = dims > 0 && dims <= x->shape[3] ? dims / 2 : x->shape[3] / 2;
  return make_result(a, i, name, &s, NULL);
}

static int run_rope(attention_call *a) {
  smx_rope_options o = {0};
  const smx_tensor *x = NULL;
  if (take_array(a, "x", true, &x) < 0 || take_rope(a, &o) < 0 || four_dimensions(a, "x", x) < 0) return -1;
  smx_shape y = shape_of(4, x, x->shape[3], x->dtype);
  if (core_take_kind(&a->c, argument(a, "x")) < 0 || make_result(a, 0, "y", &y, argument(a, "out")) < 0)
    return -1;
  if (make_pairs(a, 1, "return_carry", "carry", 3, x, o.dims, SMX_F64) < 0) return -1;
  RETURN_CALL(smx_rope(a->ctx, &o, x, a->results.tensor[0], a->results.tensor[1]));
}

static int run_rope_backward(attention_call *a) {
  smx_rope_options o = {0};
  const smx_tensor *dy = NULL, *x = NULL, *const *d = a->results.tensor;
  if (take_array(a, "dy", true, &dy) < 0 || take_array(a, "x", false, &x) < 0 || take_rope(a, &o) < 0)
    return -1;
  if (four_dimensions(a, "dy", dy) < 0 || core_take_kind(&a->c, argument(a, "dy")) < 0) return -1;
  smx_shape dx = shape_of(4, dy, dy->shape[3], dy->dtype);
  const smx_dtype real = wide(dy) ? SMX_F64 : SMX_F32;
  if (make_result(a, 0, "dx", &dx, NULL) < 0 ||
      make_pairs(a, 1, "dpositions", "dpositions", 4, dy, o.dims, real) < 0 ||
      make_pairs(a, 2, "dfrequencies", "dfrequencies", 3, dy, o.dims, real) < 0)
    return -1;
  RETURN_CALL(smx_rope_backward(a->ctx, &o, dy, x, d[0], d[1], d[2]));
}

/* attention(entry point, arguments): a tuple of six results, None for those that there are not. */
PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  static const struct {
    const char *name;
    int (*run)(attention_call *a);
  } entries[] = {{"attention", run_forward},
                 {"attention_scores", run_scores},
                 {"attention_apply", run_apply},
                 {"attention_column_mass", run_column_mass},
                 {"attention_backward", run_backward},
                 {"rope", run_rope},
                 {"attention_tropical", run_tropical},
                 {"attention_tropical_backward", run_tropical_backward},
                 {"rope_backward", run_rope_backward},
                 {"attention_select", run_select},
                 {"attention_states", run_states},
                 {"attention_merge", run_merge},
                 {"attention_parallax", run_parallax},
                 {"attention_parallax_backward", run_parallax_backward},
                 {"attention_additive", run_additive},
                 {"attention_additive_backward", run_additive_backward},
                 {"attention_local_linear", run_local_linear},
                 {"attention_local_linear_backward", run_local_linear_backward}};
  const char *name = count == 2 && PyUnicode_Check(args[0]) ? PyUnicode_AsUTF8AndSize(args[0], NULL) : NULL;
  attention_call a = {.c = {.state = PyModule_GetState(module)}, .op = {.name = name}};
  int (*run)(attention_call *) = NULL;
  for (size_t i = 0; name && i < sizeof entries / sizeof *entries; i++)
    if (!strcmp(name, entries[i].name)) run = entries[i].run;
  if (!run || !PyDict_Check(args[1]))
    return PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes (entry point, arguments)"), NULL;
  a.c.op = &a.op;
  a.given = args[1];
  bool good = core_context(a.c.state, name, argument(&a, "on_empty"), argument(&a, "on_inf"), &a.keeper,
                           &a.ctx) == 0 &&
              take_options(&a) == 0 && run(&a) == 0;
  Py_XDECREF(a.keeper);
  core_close(&a.c);
  PyObject *answer = good ? PyTuple_New(OUTPUTS) : NULL;
  for (int i = 0; answer && i < OUTPUTS; i++) {
    PyObject *one = core_give(&a.c, &a.results, i);
    if (!one || PyTuple_SetItem(answer, i, one) < 0) Py_CLEAR(answer);
  }
  core_drop(&a.results);
  return answer;
}
