/* attention_batch.c - the batch of a call: any number of axes in front of heads, rows and columns,
 * none too, that broadcast among q, k, v and their like. The library knows one. */
#include "attention.h"

/* How many axes of an array are its own: [H, L, d] of q. EACH: what is in front of them is the
 * batch itself; BROADCAST: the library broadcasts; MAKES: the batch is what these broadcast to. */
enum { MAKES = 1, EACH = 2, BROADCAST = 4, APART = 8 /* it has no batch */ };
static const struct {
  int32_t own;
  int role;
} arrays[ATTENTION_ARRAYS] = {[Q] = {3, MAKES},
                              [K] = {3, MAKES},
                              [V] = {3, MAKES},
                              [R] = {3, MAKES},
                              [U] = {2, BROADCAST},
                              [X] = {3, MAKES},
                              [W] = {3, MAKES},
                              [O] = {3, EACH},
                              [LSE] = {2, EACH},
                              [WINNERS] = {3, EACH},
                              [MASS] = {2, MAKES},
                              [D_O] = {3, EACH},
                              [D_LSE] = {2, EACH},
                              [D_Y] = {3, MAKES},
                              [ROW_WEIGHTS] = {2, EACH},
                              [MASK] = {3, BROADCAST},
                              [BIAS] = {3, BROADCAST},
                              [SLOPES] = {1, BROADCAST},
                              [SINKS] = {1, BROADCAST},
                              [ROW] = {2, BROADCAST},
                              [LENGTHS] = {0, EACH},
                              [STREAMS] = {0, EACH},
                              [QUERY_OFFSETS] = {1, APART},
                              [KEY_OFFSETS] = {1, APART},
                              [BLOCK_TABLE] = {1, EACH},
                              [BUDGETS] = {1, BROADCAST},
                              [POSITIONS] = {3, BROADCAST},
                              [FREQUENCIES] = {2, BROADCAST},
                              [CARRY] = {2, BROADCAST}};

static bool is_packed(const attention_call *a) { return a->given[QUERY_OFFSETS] || a->given[KEY_OFFSETS]; }

/* Pages of a cache belong to no sequence, and what there is one a packed sequence of is no axis of
 * a tensor. */
static int role_of(const attention_call *a, int i) {
  if ((i == K || i == V) && a->given[BLOCK_TABLE]) return APART;
  if ((i == LENGTHS || i == STREAMS || i == SLOPES || i == SINKS) && is_packed(a)) return APART;
  return arrays[i].role;
}

static int refuse_batch(const attention_call *a, int i) {
  const smx_tensor *t = a->given[i];
  smx_shape own = {.ndim = t->ndim}, batch = {.ndim = a->lead};
  core_copy_dims(own.dim, t->shape, own.ndim);
  core_copy_dims(batch.dim, a->batch, batch.ndim);
  PyObject *x = core_dims(&own), *y = x ? core_dims(&batch) : NULL;
  if (y)
    PyErr_Format(PyExc_ValueError, "%s: %s: shape is %R, which does not go with the batch %R", a->op.name,
                 attention_array_names[i], x, y);
  Py_XDECREF(x);
  Py_XDECREF(y);
  return -1;
}

/* The axes of the batch, from what makes it. */
static int take_batch(attention_call *a) {
  a->rank = 0, a->lead = 0;
  for (int i = 0; i < ATTENTION_ARRAYS; i++) {
    const smx_tensor *t = a->given[i];
    if (!t || role_of(a, i) != MAKES) continue;
    const int32_t own = arrays[i].own, lead = t->ndim > own ? t->ndim - own : 0;
    if (t->ndim < 2 || lead + 4 > SMX_MAX_DIMS)
      return PyErr_Format(PyExc_ValueError, "%s: %s: ndim is %d, not 2..%d", a->op.name,
                          attention_array_names[i], (int)t->ndim, SMX_MAX_DIMS - 4 + own),
             -1;
    if (t->ndim + 3 - own > a->rank) a->rank = t->ndim + 3 - own;
    for (; a->lead < lead; a->lead++) {
      for (int32_t d = a->lead; d > 0; d--) a->batch[d] = a->batch[d - 1];
      a->batch[0] = 1;
    }
    for (int32_t d = 0; d < lead; d++) {
      int64_t *n = a->batch + a->lead - lead + d;
      if (t->shape[d] != 1 && *n != 1 && *n != t->shape[d]) return refuse_batch(a, i);
      if (t->shape[d] != 1) *n = t->shape[d];
    }
  }
  return 0;
}

/* Whether the library takes an array as it is. One number a sequence may come as [B], B sequences
 * of all axes of the batch. */
static bool is_laid_out(const attention_call *a, int i) {
  const smx_tensor *t = a->given[i];
  const int role = role_of(a, i);
  const int32_t plain = arrays[i].own + 1;
  if (role == APART || t->ndim > SMX_MAX_DIMS) return true;
  if (a->lead > 1) return role == BROADCAST ? t->ndim < plain : plain == 1 && t->ndim == 1;
  if (role == BROADCAST) return t->ndim <= plain;
  return t->ndim == plain && (a->lead == 0 || t->shape[0] == a->batch[0] || role != MAKES);
}

/* [B, own axes] of an array, without a copy where steps allow that; write: what is written to it
 * goes to the array. */
static const smx_tensor *flatten(attention_call *a, int i, const smx_tensor *t, int32_t own, bool write) {
  int64_t shape[SMX_MAX_DIMS], step[SMX_MAX_DIMS], strides[SMX_MAX_DIMS];
  const int32_t lead = t->ndim > own ? t->ndim - own : 0, missing = t->ndim < own ? own - t->ndim : 0;
  core_strides(t, strides);
  for (int32_t d = 0; d < a->lead; d++) {
    const int32_t from = d - (a->lead - lead);
    const int64_t n = from < 0 ? 1 : t->shape[from];
    if (n != 1 && n != a->batch[d]) return refuse_batch(a, i), NULL;
    shape[d] = a->batch[d], step[d] = n == 1 ? 0 : strides[from];
  }
  if (lead > a->lead && (lead > 1 || t->shape[0] != 1)) return refuse_batch(a, i), NULL;
  for (int32_t d = 0; d < own; d++) {
    const int32_t from = d - missing + lead;
    shape[a->lead + d] = d < missing ? 1 : t->shape[from],
                    step[a->lead + d] = d < missing ? 0 : strides[from];
  }
  int64_t count = 1, last = 0, next = -1; /* of the batch, and its step; what goes on has the step next */
  bool mergeable = true;
  for (int32_t d = a->lead - 1; d >= 0; d--) {
    if (shape[d] != 1) {
      if (next == -1) last = step[d];
      else mergeable = mergeable && step[d] == next;
      next = step[d] * shape[d];
    }
    count *= shape[d];
  }
  const smx_tensor *from = t;
  if (!mergeable && count > 0) {
    const smx_tensor *view = core_make_view(&a->c, t, a->lead + own, shape, step);
    smx_tensor *packed = view ? core_make_scratch(&a->c, a->lead + own, shape, t->dtype) : NULL;
    if (!packed) return NULL;
    if (write) core_write_back(&a->c, view);
    else core_copy(view, packed);
    from = packed;
    core_copy_dims(step, packed->strides, a->lead + own);
    last = a->lead ? step[a->lead - 1] : 0;
  }
  int64_t flat[SMX_MAX_DIMS] = {count}, by[SMX_MAX_DIMS] = {last};
  core_copy_dims(flat + 1, shape + a->lead, own);
  core_copy_dims(by + 1, step + a->lead, own);
  return core_make_view(&a->c, from, 1 + own, flat, by);
}

int attention_lay_out(attention_call *a) {
  if (take_batch(a) < 0) return -1;
  for (int i = 0; i < ATTENTION_ARRAYS; i++) {
    const smx_tensor *t = a->given[i];
    if (!t) continue;
    a->array[i] = is_laid_out(a, i) ? t : flatten(a, i, t, arrays[i].own, false);
    if (!a->array[i]) return -1;
  }
  return 0;
}

/* ---- results ---- */

int attention_result(attention_call *a, int32_t i, const char *name, PyObject *given, smx_dtype dtype,
                     int64_t heads, int32_t ndim, const int64_t *dim) {
  smx_shape s = {.dtype = dtype};
  for (int32_t d = 0; d < a->lead; d++) s.dim[s.ndim++] = a->batch[d];
  if (a->rank > 2) s.dim[s.ndim++] = heads;
  for (int32_t d = 0; d < ndim; d++) s.dim[s.ndim++] = dim[d];
  if (core_open_result(&a->c, &a->results, i, given, &s, "", name) < 0) return -1;
  const smx_tensor *t = a->results.tensor[i];
  if (a->lead == 1 || t->ndim != s.ndim) return 0; /* another shape is the library's to refuse */
  for (int32_t d = 0; d < s.ndim; d++)
    if (t->shape[d] != s.dim[d]) return 0;
  a->results.tensor[i] = flatten(a, Q, t, ndim + 1, true);
  return a->results.tensor[i] ? 0 : -1;
}

int attention_gradient(attention_call *a, int32_t i, const char *name, int64_t wanted, attention_array of) {
  const smx_tensor *t = a->given[of];
  if (!wanted) return 0;
  if (!t) return core_missing(&a->c, "", attention_array_names[of]);
  if (t->ndim > SMX_MAX_DIMS)
    return PyErr_Format(PyExc_ValueError, "%s: %s: ndim is %d, not 0..%d", a->op.name,
                        attention_array_names[of], (int)t->ndim, SMX_MAX_DIMS),
           -1;
  smx_shape s = {.ndim = t->ndim, .dtype = t->dtype};
  core_copy_dims(s.dim, t->shape, t->ndim);
  if (core_open_result(&a->c, &a->results, i, NULL, &s, "", name) < 0) return -1;
  if (a->array[of] == t) return 0;
  int64_t own = 1, all = 1;
  for (int32_t d = 0; d < t->ndim; d++) own *= t->shape[d];
  for (int32_t d = 0; d < a->array[of]->ndim; d++) all *= a->array[of]->shape[d];
  if (own != all)
    return PyErr_Format(PyExc_ValueError, "%s: %s: is broadcast, and its gradient is not summed: expand it",
                        a->op.name, attention_array_names[of]),
           -1;
  a->results.tensor[i] = flatten(a, of, a->results.tensor[i], arrays[of].own, true);
  return a->results.tensor[i] ? 0 : -1;
}
