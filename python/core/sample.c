/* sample.c - sampling for Python: rows of scores through a chain of steps, or through one of their
 * own each. libsoftmax/_sample.py says what the arguments mean and makes chains of them. */
#include "call.h"
#include <string.h>

enum { INDEX, LOG, STATUS, RESULTS, DRAW_STREAMS = 32 /* bits of a stream below the draw's number */ };

typedef struct sampling {
  core_call c;
  smx_op op; /* only its name is used, for messages */
  PyObject *given;
  smx_sample_options options;
  smx_step **chains; /* one for all rows, or one a row */
  size_t *lengths, chain_count;
  const smx_tensor *x; /* rows in C order, f32 or f64 */
  size_t rows, n;
  int64_t draws; /* 0: one, without an axis */
  const int64_t *seeds, *streams;
  uint64_t *row_streams;
  core_results results;
} sampling;

static const smx_port x_port = {"x", SMX_SHAPE_FULL, 0, ""};

static PyObject *argument(const sampling *s, const char *name) {
  PyObject *value = PyDict_GetItemString(s->given, name);
  return value == Py_None ? NULL : value;
}

/* A whole number modulo 2^64, as seeds and streams are. */
static int take_whole(const sampling *s, const char *name, uint64_t *number) {
  PyObject *value = argument(s, name), *whole = value ? PyNumber_Index(value) : NULL;
  if (!value) return 0;
  *number = whole ? PyLong_AsUnsignedLongLongMask(whole) : 0;
  Py_XDECREF(whole);
  return PyErr_Occurred() ? -1 : 0;
}

static void *make_memory(sampling *s, size_t count, size_t bytes) {
  int64_t size;
  if (__builtin_mul_overflow((int64_t)count + 1, (int64_t)bytes, &size)) return PyErr_NoMemory(), NULL;
  smx_tensor *t = core_make_scratch(&s->c, 1, &size, SMX_U8);
  return t ? t->data : NULL;
}

/* ---- chains ---- */

/* A list of whole numbers, or with `values` of numbers, in new memory; NULL for None. */
static int take_list(sampling *s, PyObject *list, bool values, size_t *count, void **to) {
  *to = NULL;
  if (list == Py_None) return 0;
  const Py_ssize_t n = PyList_Size(list);
  if (n < 0 || !(*to = make_memory(s, (size_t)n, sizeof(double)))) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = PyList_GetItem(list, i);
    if (values) ((double *)*to)[i] = PyFloat_AsDouble(item);
    else ((int64_t *)*to)[i] = PyLong_AsLongLong(item);
    if (PyErr_Occurred()) return -1;
  }
  *count = (size_t)n;
  return 0;
}

/* (kind, a, b, c, tokens, values) */
static int take_step(sampling *s, PyObject *tuple, smx_step *step) {
  int kind;
  PyObject *tokens, *values;
  void *token_memory, *value_memory;
  size_t value_count = 0;
  memset(step, 0, sizeof *step);
  if (!PyArg_ParseTuple(tuple, "idddOO", &kind, &step->a, &step->b, &step->c, &tokens, &values)) return -1;
  if (take_list(s, tokens, false, &step->token_count, &token_memory) < 0) return -1;
  if (take_list(s, values, true, &value_count, &value_memory) < 0) return -1;
  step->kind = (smx_step_kind)kind;
  step->tokens = token_memory;
  step->values = value_memory;
  if (value_memory && value_count != step->token_count) return PyErr_BadInternalCall(), -1;
  return 0;
}

static int take_chains(sampling *s) {
  PyObject *chains = argument(s, "chains");
  const Py_ssize_t count = chains ? PyTuple_Size(chains) : -1;
  if (count < 0) return PyErr_BadInternalCall(), -1;
  s->chain_count = (size_t)count;
  s->chains = make_memory(s, s->chain_count, sizeof *s->chains);
  s->lengths = s->chains ? make_memory(s, s->chain_count, sizeof *s->lengths) : NULL;
  if (!s->lengths) return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *chain = PyTuple_GetItem(chains, i);
    const Py_ssize_t length = PyTuple_Size(chain);
    if (length < 0 || !(s->chains[i] = make_memory(s, (size_t)length, sizeof(smx_step)))) return -1;
    s->lengths[i] = (size_t)length;
    for (Py_ssize_t k = 0; k < length; k++)
      if (take_step(s, PyTuple_GetItem(chain, k), s->chains[i] + k) < 0) return -1;
  }
  return 0;
}

/* ---- rows ---- */

static char *start(const smx_tensor *t) { return (char *)t->data + t->byte_offset; }

static bool is(const smx_tensor *t, smx_dtype dtype) {
  return t->dtype.code == dtype.code && t->dtype.bits == dtype.bits;
}

/* Rows at the end, one after another. */
static int take_rows(sampling *s) {
  core_call *c = &s->c;
  c->value[SLOT_IN] = PyDict_GetItemString(s->given, "x");
  c->value[SLOT_AXIS] = PyDict_GetItemString(s->given, "axis"); /* a tuple, or None */
  c->value[SLOT_KEEPDIMS] = argument(s, "keepdims");
  const smx_tensor *x = c->value[SLOT_IN] ? core_open_port(c, SLOT_IN, "", &x_port) : NULL;
  if (!x) return -1;
  if (x->ndim > SMX_MAX_DIMS)
    return PyErr_Format(PyExc_ValueError, "sample: x: ndim is %d, not 0..%d", (int)x->ndim, SMX_MAX_DIMS), -1;
  if (core_take_axes(c, x) < 0) return -1;
  const smx_dtype dtype = is(x, SMX_F64) ? SMX_F64 : SMX_F32;
  if (!core_convertible(x->dtype, dtype))
    return PyErr_Format(PyExc_TypeError, "sample: x: dtype is not f16, bf16, f32 or f64"), -1;
  if (!(x = core_arrange(c, x, SMX_SHAPE_FULL, (core_label){"sample", "", "x"}, false))) return -1;
  if (!core_is_packed(x) || !is(x, dtype)) x = core_convert(c, x, dtype);
  if (!x) return -1;
  s->x = x;
  s->n = (size_t)x->shape[x->ndim - 1];
  s->rows = 1;
  for (int32_t d = 0; d + 1 < x->ndim; d++) s->rows *= (size_t)x->shape[d];
  const bool good = argument(s, "rows") ? s->chain_count == s->rows : s->chain_count == 1;
  if (!good)
    PyErr_Format(PyExc_ValueError, "sample: steps are given for %zu rows, and x has %zu", s->chain_count,
                 s->rows);
  return good ? 0 : -1;
}

/* One number for all rows, or an array of one a row. */
static int take_numbers(sampling *s, const char *name, const char *array, uint64_t *one,
                        const int64_t **each) {
  const smx_port port = {array, SMX_SHAPE_ROW, SMX_PORT_INT | SMX_PORT_TARGET, ""};
  *each = NULL;
  if (!argument(s, array)) return take_whole(s, name, one);
  s->c.value[SLOT_PARAM] = argument(s, array);
  const smx_tensor *t = core_open_port(&s->c, SLOT_PARAM, "", &port);
  if (!t || core_check_exact(&s->c, &port, t) < 0) return -1;
  if (!core_convertible(t->dtype, SMX_I64))
    return PyErr_Format(PyExc_TypeError, "sample: %s: are not whole numbers", array), -1;
  const smx_tensor *packed = core_convert(&s->c, t, SMX_I64);
  *each = packed ? packed->data : NULL;
  return packed ? 0 : -1;
}

static int take_options(sampling *s) {
  uint64_t draw = 0, draws = 0;
  smx_sample_options *o = &s->options;
  o->size = sizeof *o;
  if (take_whole(s, "draw", &draw) < 0 || take_whole(s, "draws", &draws) < 0) return -1;
  if (take_numbers(s, "seed", "seeds", &o->seed, &s->seeds) < 0 ||
      take_numbers(s, "stream", "streams", &o->stream, &s->streams) < 0)
    return -1;
  o->draw = (smx_draw)draw;
  s->draws = (int64_t)draws;
  s->row_streams = make_memory(s, s->rows, sizeof *s->row_streams);
  return s->row_streams ? 0 : -1;
}

/* ---- results ---- */

static int make_result(sampling *s, int32_t i, const char *name, smx_dtype dtype, bool wanted) {
  smx_shape shape = {.ndim = s->x->ndim - 1, .dtype = dtype};
  core_copy_dims(shape.dim, s->x->shape, shape.ndim);
  core_result_shape(&s->c, SMX_SHAPE_ROW, &shape);
  if (shape.ndim == SMX_MAX_DIMS && s->draws)
    return PyErr_Format(PyExc_ValueError, "sample: draws: one dimension too many"), -1;
  if (s->draws) shape.dim[shape.ndim++] = s->draws;
  return wanted ? core_open_result(&s->c, &s->results, i, NULL, &shape, "", name) : 0;
}

static int make_results(sampling *s) {
  if (core_take_kind(&s->c, s->c.value[SLOT_IN]) < 0) return -1;
  return make_result(s, INDEX, "index", SMX_I64, true) < 0 ||
                 make_result(s, LOG, "log", s->x->dtype, argument(s, "log") != NULL) < 0 ||
                 make_result(s, STATUS, "status", SMX_I32, argument(s, "status") != NULL) < 0
             ? -1
             : 0;
}

/* ---- the call ---- */

static smx_status draw_rows(const sampling *s, smx_context *ctx, size_t first, size_t rows, size_t chain,
                            int64_t *index, void *log, smx_row_status *status) {
  smx_sample_options o = s->options;
  const size_t bytes = s->x->dtype.bits / 8;
  const char *x = start(s->x) + first * s->n * bytes;
  o.steps = s->chains[chain], o.step_count = s->lengths[chain];
  o.streams = s->row_streams + first;
  o.seeds = s->seeds ? (const uint64_t *)s->seeds + first : NULL;
  o.status = status ? status + first : NULL;
  if (bytes == 8)
    return smx_sample_f64(ctx, &o, rows, s->n, (const double *)x, index + first,
                          log ? (double *)log + first : NULL);
  return smx_sample_f32(ctx, &o, rows, s->n, (const float *)x, index + first,
                        log ? (float *)log + first : NULL);
}

/* One draw of every row. */
static smx_status draw_once(const sampling *s, smx_context *ctx, int64_t draw, int64_t *index, void *log,
                            smx_row_status *status) {
  for (size_t r = 0; r < s->rows; r++)
    s->row_streams[r] =
        (s->streams ? (uint64_t)s->streams[r] : s->options.stream + r) + ((uint64_t)draw << DRAW_STREAMS);
  if (s->chain_count == 1 && s->rows) return draw_rows(s, ctx, 0, s->rows, 0, index, log, status);
  smx_status found = SMX_OK;
  for (size_t r = 0; r < s->rows && found == SMX_OK; r++)
    found = draw_rows(s, ctx, r, 1, r, index, log, status);
  return found;
}

static void spread(char *to, const char *from, size_t rows, size_t draws, size_t draw, size_t bytes) {
  for (size_t r = 0; to && r < rows; r++) memcpy(to + (r * draws + draw) * bytes, from + r * bytes, bytes);
}

/* Results are in C order: the call made them. */
static smx_status draw_all(const sampling *s, smx_context *ctx, void *memory) {
  char *to[RESULTS];
  for (int i = 0; i < RESULTS; i++) to[i] = s->results.tensor[i] ? start(s->results.tensor[i]) : NULL;
  if (!s->draws) return draw_once(s, ctx, 0, (int64_t *)to[INDEX], to[LOG], (smx_row_status *)to[STATUS]);
  int64_t *index = memory;
  char *log = (char *)(index + s->rows);
  smx_row_status *status = (smx_row_status *)(log + s->rows * sizeof(double));
  smx_status found = SMX_OK;
  for (int64_t d = 0; d < s->draws && found == SMX_OK; d++) {
    found = draw_once(s, ctx, d, index, log, status);
    spread(to[INDEX], (const char *)index, s->rows, (size_t)s->draws, (size_t)d, sizeof *index);
    spread(to[LOG], log, s->rows, (size_t)s->draws, (size_t)d, s->x->dtype.bits / 8);
    spread(to[STATUS], (const char *)status, s->rows, (size_t)s->draws, (size_t)d, sizeof *status);
  }
  return found;
}

static int run(sampling *s) {
  PyObject *keeper;
  smx_context *ctx;
  void *memory = make_memory(s, s->rows, 3 * sizeof(double));
  if (!memory || core_context(s->c.state, "sample", NULL, NULL, &keeper, &ctx) < 0) return -1;
  smx_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = draw_all(s, ctx, memory);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(keeper);
  return status == SMX_OK ? 0 : (core_raise(status), -1);
}

PyObject *core_sample(PyObject *module, PyObject *given) {
  sampling s = {.op = {.name = "sample"}, .given = given};
  core_clear(&s.c, module, &s.op);
  if (!PyDict_Check(given))
    return PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes (arguments)"), NULL;
  bool good = take_chains(&s) == 0 && take_rows(&s) == 0 && take_options(&s) == 0 && make_results(&s) == 0 &&
              run(&s) == 0;
  core_close(&s.c);
  PyObject *answer = good ? core_give_all(&s.c, &s.results, RESULTS, false) : NULL;
  core_drop(&s.results);
  return answer;
}
