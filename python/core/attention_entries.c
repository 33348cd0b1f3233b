/* attention_entries.c - the entry points of attention: the results that each has, and the library's
 * function. */

#include "attention.h"

static bool is_wide(const smx_tensor *t) { return t && t->dtype.bits == 64; }

/* The dtype of sums over q, k and v. */
static smx_dtype real_of(const attention_call *a) {
  return is_wide(a->array[Q]) || is_wide(a->array[K]) || is_wide(a->array[V]) ? SMX_F64 : SMX_F32;
}

static int take_kind(attention_call *a, attention_array like) {
  return core_take_kind(&a->c, a->object[like]);
}

/* Axis d of an array, 0 where it has none: then the library refuses the array. */
static int64_t size_of(const attention_call *a, attention_array i, int32_t d) {
  return d < a->array[i]->ndim ? a->array[i]->shape[d] : 0;
}

/* Result i of the rows of array `like`: [.., H, L], and with columns >= 0 those. */
static int rows_result(attention_call *a, int32_t i, const char *name, PyObject *given, attention_array like,
                       int64_t columns, smx_dtype dtype) {
  const int64_t dim[2] = {size_of(a, like, 2), columns};
  return attention_result(a, i, name, given, dtype, size_of(a, like, 1), columns < 0 ? 1 : 2, dim);
}

/* The output of what has q, k and v, and the gradients of these. */
static int make_o(attention_call *a) {
  return take_kind(a, Q) < 0 ? -1 : rows_result(a, 0, "o", a->out, Q, size_of(a, V, 3), a->array[Q]->dtype);
}

static int make_gradients(attention_call *a) {
  const attention_numbers *n = &a->s->n;
  return take_kind(a, D_O) < 0 || attention_gradient(a, 0, "dq", n->dq, Q) < 0 ||
                 attention_gradient(a, 1, "dk", n->dk, K) < 0 || attention_gradient(a, 2, "dv", n->dv, V) < 0
             ? -1
             : 0;
}

/* Whether a call of a framework is over before another thread could begin. */
static bool is_brief(const attention_call *a) {
  enum { PRODUCTS = 1 << 15 };
  const smx_tensor *q = a->array[Q];
  if (!a->c.torch || a->ctx || !q || q->ndim != 4 || !a->array[K] || a->array[BLOCK_TABLE]) return false;
  int64_t products = size_of(a, K, 2) + 1;
  for (int32_t d = 0; d < 4; d++)
    if (q->shape[d] > PRODUCTS || products > PRODUCTS || (products *= q->shape[d]) > PRODUCTS) return false;
  return true;
}

/* The library is called without the interpreter's lock; 0, or -1 with the error set. */
#define RETURN_CALL(call) \
  do { \
    PyThreadState *released = is_brief(a) ? NULL : PyEval_SaveThread(); \
    const smx_status status = (call); \
    if (released) PyEval_RestoreThread(released); \
    return status == SMX_OK ? 0 : (core_raise(status), -1); \
  } while (0)

/* ---- softmax and the other kinds ---- */

/* Kinds of weights have numbers of their own. */
static int refuse_row(const attention_call *a) {
  if (a->s->op || !a->array[ROW]) return 0;
  PyErr_Format(PyExc_ValueError, "%s: row: weights are of a kind, not of an operator on rows", a->op.name);
  return -1;
}

static int run_forward(attention_call *a) {
  const smx_tensor *q = a->array[Q], *k = a->array[K], *v = a->array[V], *const *y = a->results.tensor;
  if (refuse_row(a) < 0 || make_o(a) < 0) return -1;
  if (a->s->n.return_lse && rows_result(a, 1, "lse", NULL, Q, -1, real_of(a)) < 0) return -1;
  RETURN_CALL(a->s->op ? smx_attention_rows_input(a->ctx, &a->options, a->s->op, &a->s->op_params,
                                                  a->array[ROW], q, k, v, y[0])
                       : smx_attention(a->ctx, &a->options, q, k, v, y[0], y[1]));
}

/* The library has the gradients of the arrays and those of biases in two functions. */
static smx_status differentiate(attention_call *a) {
  const attention_settings *s = a->s;
  const smx_tensor *const *t = a->array, *const *d = a->results.tensor;
  const bool biases = d[3] || d[4] || d[5];
  smx_status status = SMX_OK;
  if (s->op)
    return smx_attention_rows_input_backward(a->ctx, &a->options, s->op, &s->op_params, t[ROW], t[Q], t[K],
                                             t[V], t[D_O], d[0], d[1], d[2], d[3], d[4], d[6]);
  if (d[0] || d[1] || d[2] || !biases)
    status = smx_attention_backward(a->ctx, &a->options, t[Q], t[K], t[V], t[O], t[LSE], t[D_O], t[D_LSE],
                                    d[0], d[1], d[2]);
  if (status == SMX_OK && biases)
    status = smx_attention_backward_bias(a->ctx, &a->options, t[Q], t[K], t[V], t[O], t[LSE], t[D_O],
                                         t[D_LSE], d[3], d[4], d[5]);
  return status;
}

static int run_backward(attention_call *a) {
  const attention_numbers *n = &a->s->n;
  for (int i = O; i <= LSE && !a->s->op; i++)
    if (!a->array[i]) return core_missing(&a->c, "", attention_array_names[i]);
  if (refuse_row(a) < 0 || make_gradients(a) < 0 || attention_gradient(a, 3, "dbias", n->dbias, BIAS) < 0 ||
      attention_gradient(a, 4, "dslopes", n->dslopes, SLOPES) < 0 ||
      attention_gradient(a, 5, "dsinks", n->dsinks, SINKS) < 0 ||
      attention_gradient(a, 6, "drow", n->drow, ROW) < 0)
    return -1;
  RETURN_CALL(differentiate(a));
}

/* ---- scores, weights, and what is made of them ---- */

/* How many keys a sequence has at most: k is an array of them, or pages of a cache. */
static int64_t keys_of(const attention_call *a) {
  const smx_tensor *table = a->array[BLOCK_TABLE];
  return table && table->ndim == 2 ? table->shape[1] * size_of(a, K, 2) : size_of(a, K, 2);
}

static int run_scores(attention_call *a) {
  if (take_kind(a, Q) < 0 || rows_result(a, 0, "scores", a->out, Q, keys_of(a), a->array[Q]->dtype) < 0)
    return -1;
  RETURN_CALL(smx_attention_scores(a->ctx, &a->options, (smx_attention_stage)a->s->n.stage, a->array[Q],
                                   a->array[K], a->results.tensor[0]));
}

static int run_apply(attention_call *a) {
  const smx_tensor *v = a->array[V];
  if (take_kind(a, W) < 0 || rows_result(a, 0, "o", a->out, W, size_of(a, V, 3), v->dtype) < 0) return -1;
  RETURN_CALL(smx_attention_apply(a->ctx, &a->options, a->array[W], v, a->results.tensor[0]));
}

static int run_column_mass(attention_call *a) {
  const smx_tensor *const *t = a->array;
  if (take_kind(a, Q) < 0 || rows_result(a, 0, "mass", a->out, K, -1, real_of(a)) < 0) return -1;
  RETURN_CALL(smx_attention_column_mass(a->ctx, &a->options, t[Q], t[K], t[LSE], t[ROW_WEIGHTS],
                                        a->results.tensor[0]));
}

/* Lists of `keep` keys: one for every head, or with shared one for all of them. */
static int run_select(attention_call *a) {
  const attention_settings *s = a->s;
  smx_attention_select_options o = {.size = sizeof o,
                                    .first = s->n.first,
                                    .last = s->n.last,
                                    .kernel = s->n.kernel,
                                    .pool = (smx_attention_pool)s->n.pool,
                                    .lengths = a->array[LENGTHS],
                                    .budgets = a->array[BUDGETS],
                                    .kernels = s->kernel_count ? s->kernels : NULL,
                                    .kernel_count = s->kernel_count};
  const int64_t heads = s->n.shared ? 1 : size_of(a, MASS, 1);
  if (s->n.keep < 0)
    return PyErr_Format(PyExc_ValueError, "%s: keep: %lld is not at least 0", a->op.name,
                        (long long)s->n.keep),
           -1;
  if (take_kind(a, MASS) < 0 || attention_result(a, 0, "keys", a->out, SMX_I32, heads, 1, &s->n.keep) < 0 ||
      attention_result(a, 1, "kept", NULL, SMX_I32, heads, 0, NULL) < 0)
    return -1;
  RETURN_CALL(smx_attention_select(a->ctx, &o, a->array[MASS], a->results.tensor[0], a->results.tensor[1]));
}

/* ---- states ---- */

static int run_states(attention_call *a) {
  const int64_t dim[] = {size_of(a, Q, 2), (keys_of(a) + 1023) / 1024,
                         smx_attention_state_width(size_of(a, V, 3))};
  if (take_kind(a, Q) < 0 ||
      attention_result(a, 0, "states", a->out, real_of(a), size_of(a, Q, 1), 3, dim) < 0)
    return -1;
  RETURN_CALL(
      smx_attention_states(a->ctx, &a->options, a->array[Q], a->array[K], a->array[V], a->results.tensor[0]));
}

/* States are [B, H, L, S, W]: of calls with one axis of batches. */
static int run_merge(attention_call *a) {
  const smx_tensor *states[ATTENTION_STATES] = {NULL};
  const Py_ssize_t count = a->states ? PyTuple_Size(a->states) : 0;
  const int64_t size = a->s->n.size;
  if (PyErr_Occurred()) return -1;
  if (count < 1 || count > ATTENTION_STATES)
    return PyErr_Format(PyExc_ValueError, "%s: states: %zd of them, not 1 to %d", a->op.name, count,
                        ATTENTION_STATES),
           -1;
  if (size < 1)
    return PyErr_Format(PyExc_ValueError, "%s: size: %lld is not at least 1", a->op.name, (long long)size),
           -1;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!(states[i] = core_open(&a->c, PyTuple_GetItem(a->states, i), "", "states", false))) return -1;
  if (states[0]->ndim != 5)
    return PyErr_Format(PyExc_ValueError, "%s: states: ndim is %d, not 5", a->op.name, (int)states[0]->ndim),
           -1;
  const int64_t dim[] = {states[0]->shape[2], size};
  a->rank = 4, a->lead = 1, a->batch[0] = states[0]->shape[0];
  if (core_take_kind(&a->c, PyTuple_GetItem(a->states, 0)) < 0 ||
      attention_result(a, 0, "o", a->out, states[0]->dtype, states[0]->shape[1], 2, dim) < 0)
    return -1;
  if (a->s->n.return_lse &&
      attention_result(a, 1, "lse", NULL, states[0]->dtype, states[0]->shape[1], 1, dim) < 0)
    return -1;
  RETURN_CALL(smx_attention_merge(a->ctx, &a->options, (int32_t)count, states, a->results.tensor[0],
                                  a->results.tensor[1]));
}

/* ---- other scores, other weights ---- */

static int run_parallax(attention_call *a) {
  const smx_tensor *const *t = a->array;
  if (make_o(a) < 0) return -1;
  RETURN_CALL(smx_attention_parallax(a->ctx, &a->options, t[Q], t[K], t[V], t[R], a->results.tensor[0]));
}

static int run_parallax_backward(attention_call *a) {
  const smx_tensor *const *t = a->array, *const *d = a->results.tensor;
  if (make_gradients(a) < 0 || attention_gradient(a, 3, "dr", a->s->n.dr, R) < 0) return -1;
  RETURN_CALL(smx_attention_parallax_backward(a->ctx, &a->options, t[Q], t[K], t[V], t[R], t[D_O], d[0], d[1],
                                              d[2], d[3]));
}

static int run_local_linear(attention_call *a) {
  const smx_tensor *const *t = a->array;
  if (make_o(a) < 0) return -1;
  RETURN_CALL(
      smx_attention_local_linear(a->ctx, &a->options, a->s->n.ridge, t[Q], t[K], t[V], a->results.tensor[0]));
}

static int run_local_linear_backward(attention_call *a) {
  const smx_tensor *const *t = a->array, *const *d = a->results.tensor;
  if (make_gradients(a) < 0) return -1;
  RETURN_CALL(smx_attention_local_linear_backward(a->ctx, &a->options, a->s->n.ridge, t[Q], t[K], t[V],
                                                  t[D_O], d[0], d[1], d[2]));
}

static int run_additive(attention_call *a) {
  const smx_tensor *const *t = a->array;
  if (make_o(a) < 0) return -1;
  RETURN_CALL(smx_attention_additive(a->ctx, &a->options, t[U], t[Q], t[K], t[V], a->results.tensor[0]));
}

/* The gradient of u has its full shape, [.., H, d]. */
static int run_additive_backward(attention_call *a) {
  const smx_tensor *const *t = a->array, *const *d = a->results.tensor;
  const int64_t columns = size_of(a, Q, 3);
  if (make_gradients(a) < 0) return -1;
  if (a->s->n.du && attention_result(a, 3, "du", NULL, t[Q]->dtype, size_of(a, Q, 1), 1, &columns) < 0)
    return -1;
  RETURN_CALL(smx_attention_additive_backward(a->ctx, &a->options, t[U], t[Q], t[K], t[V], t[D_O], d[3], d[0],
                                              d[1], d[2]));
}

/* ---- the max-plus semiring ---- */

static int run_tropical(attention_call *a) {
  const smx_tensor *const *t = a->array, *const *y = a->results.tensor;
  if (make_o(a) < 0) return -1;
  if (a->s->n.return_winners && rows_result(a, 1, "winners", NULL, Q, size_of(a, V, 3), SMX_I32) < 0)
    return -1;
  RETURN_CALL(
      smx_attention_tropical(a->ctx, &a->options, a->s->n.symmetric != 0, t[Q], t[K], t[V], y[0], y[1]));
}

static int run_tropical_backward(attention_call *a) {
  const smx_tensor *const *t = a->array, *const *d = a->results.tensor;
  if (make_gradients(a) < 0) return -1;
  RETURN_CALL(smx_attention_tropical_backward(a->ctx, &a->options, a->s->n.symmetric != 0, t[Q], t[K], t[V],
                                              t[WINNERS], t[D_O], d[0], d[1], d[2]));
}

/* ---- rotary position embedding ---- */

static smx_rope_options rope_options(const attention_call *a) {
  const attention_numbers *n = &a->s->n;
  return (smx_rope_options){.size = sizeof(smx_rope_options),
                            .layout = (smx_rope_layout)n->layout,
                            .dims = n->dims,
                            .base = n->base,
                            .scale = n->scale,
                            .start = n->start,
                            .cumulative = n->cumulative != 0,
                            .positions = a->array[POSITIONS],
                            .frequencies = a->array[FREQUENCIES],
                            .carry = a->array[CARRY]};
}

static int64_t pairs_of(const attention_call *a, attention_array x) {
  const int64_t columns = size_of(a, x, 3), dims = a->s->n.dims;
  return dims > 0 && dims <= columns ? dims / 2 : columns / 2;
}

static int run_rope(attention_call *a) {
  const smx_rope_options o = rope_options(a);
  const smx_tensor *x = a->array[X];
  const int64_t pairs = pairs_of(a, X);
  if (take_kind(a, X) < 0 || rows_result(a, 0, "y", a->out, X, size_of(a, X, 3), x->dtype) < 0) return -1;
  if (a->s->n.return_carry && attention_result(a, 1, "carry", NULL, SMX_F64, size_of(a, X, 1), 1, &pairs) < 0)
    return -1;
  RETURN_CALL(smx_rope(a->ctx, &o, x, a->results.tensor[0], a->results.tensor[1]));
}

static int run_rope_backward(attention_call *a) {
  const smx_rope_options o = rope_options(a);
  const attention_numbers *n = &a->s->n;
  const smx_tensor *dy = a->array[D_Y], *const *d = a->results.tensor;
  const smx_dtype real = is_wide(dy) ? SMX_F64 : SMX_F32;
  const int64_t pairs = pairs_of(a, D_Y);
  if (take_kind(a, D_Y) < 0 || rows_result(a, 0, "dx", NULL, D_Y, size_of(a, D_Y, 3), dy->dtype) < 0)
    return -1;
  if ((n->dpositions && rows_result(a, 1, "dpositions", NULL, D_Y, pairs, real) < 0) ||
      (n->dfrequencies &&
       attention_result(a, 2, "dfrequencies", NULL, real, size_of(a, D_Y, 1), 1, &pairs) < 0))
    return -1;
  RETURN_CALL(smx_rope_backward(a->ctx, &o, dy, a->array[X], d[0], d[1], d[2]));
}

/* ---- all of them ---- */

#define BIT(i) (UINT32_C(1) << (i))
#define QKV (BIT(Q) | BIT(K) | BIT(V))
const attention_entry attention_entries[] = {
    {"attention", run_forward, QKV},
    {"attention_backward", run_backward, QKV | BIT(D_O)},
    {"attention_scores", run_scores, BIT(Q) | BIT(K)},
    {"attention_apply", run_apply, BIT(W) | BIT(V)},
    {"attention_column_mass", run_column_mass, BIT(Q) | BIT(K) | BIT(LSE)},
    {"attention_select", run_select, BIT(MASS)},
    {"attention_states", run_states, QKV},
    {"attention_merge", run_merge, 0},
    {"attention_parallax", run_parallax, QKV | BIT(R)},
    {"attention_parallax_backward", run_parallax_backward, QKV | BIT(R) | BIT(D_O)},
    {"attention_local_linear", run_local_linear, QKV},
    {"attention_local_linear_backward", run_local_linear_backward, QKV | BIT(D_O)},
    {"attention_additive", run_additive, QKV | BIT(U)},
    {"attention_additive_backward", run_additive_backward, QKV | BIT(U) | BIT(D_O)},
    {"attention_tropical", run_tropical, QKV},
    {"attention_tropical_backward", run_tropical_backward, QKV | BIT(WINNERS) | BIT(D_O)},
    {"rope", run_rope, BIT(X)},
    {"rope_backward", run_rope_backward, BIT(D_Y)},
};
const size_t attention_entry_count = sizeof attention_entries / sizeof *attention_entries;
