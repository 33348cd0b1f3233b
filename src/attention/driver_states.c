/* attention/driver_states.c - attention over split keys: contributions of splits of 1024 keys as a
 * tensor, and folding them. */
#include "base/enter.h"
#include "driver/attention.h"
#include <string.h>

int64_t smx_attention_state_width(int64_t e) {
  return e < 1 || e > ATTN_MAX_HEAD ? 0 : attention_state_reals(e);
}

/* [B, Hq, Lq, S, W] of the real type, the last axis contiguous. */
static smx_status check_states(const attention_job *j, const char *port, const smx_tensor *t,
                               const int64_t *shape, smx_view *v) {
  smx_status status = attention_tensor(j, port, t, FLOATS, 5, shape, v);
  if (status != SMX_OK) return status;
  if (v->dtype.bits != 8 * j->real_bytes)
    return smx_fail(SMX_ERR_DTYPE, "%s: %s: dtype is %s, not %s", j->name, port, smx_dtype_name(v->dtype),
                    j->real_bytes == 8 ? "f64" : "f32");
  if (v->strides[4] != 1)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: strides[4] is %lld, not 1", j->name, port,
                    (long long)v->strides[4]);
  return SMX_OK;
}

/* Checks that the sums of such weights can be formed without the rest of the row. */
static smx_status check_weights(const attention_job *j) {
  const smx_attention_kind *kind = attention_table + j->call.weights;
  const bool normed = kind->param_count && !strcmp(kind->params[0].name, "norm");
  if (!(kind->flags & SMX_ATTENTION_STATES) || (normed && j->call.param[0] == SMX_ATTENTION_NORM_COUNT))
    return smx_fail(SMX_ERR_PARAM, "%s: options.weights is %d, which needs the whole row at once", j->name,
                    kind->id);
  return SMX_OK;
}

smx_status smx_attention_states(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                const smx_tensor *k, const smx_tensor *v, const smx_tensor *states) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_states", ctx)) return SMX_ERR_NOMEM;
  j->split = true;
  smx_status status = attention_check(j, options, q, k, v);
  if (status == SMX_OK) status = check_weights(j);
  if (status == SMX_OK && (j->query_offsets.data || j->key_offsets.data))
    status = smx_fail(SMX_ERR_PARAM, "%s: %s_offsets are not possible", j->name,
                      j->query_offsets.data ? "query" : "key");
  if (status != SMX_OK) return status;
  int64_t splits = attention_splits(j, j->lk) - j->key_start / ATTN_SPLIT;
  int64_t shape[5] = {j->batch, j->heads, j->lq, splits, attention_state_reals(j->call.e)};
  status = check_states(j, "states", states, shape, &j->states);
  if (status == SMX_OK) status = attention_apart(j, "states", &j->states);
  if (status != SMX_OK || smx_view_elements(&j->states) == 0) return status;
  return attention_run(j);
}

/* ---- merge ---- */

typedef struct merging {
  const attention_job *j;
  const smx_view *states;
  int32_t count;
  int64_t splits;   /* of all tensors */
  smx_scratch side; /* the states of a row, side by side, then what the kernel needs */
  size_t side_bytes;
  _Atomic int64_t empty;
} merging;

/* The rows of one head: the states of each row are copied side by side, then folded. */
static void merge_head(void *arg, int64_t at) {
  merging *m = arg;
  const attention_job *j = m->j;
  int64_t width = attention_state_reals(j->call.e) * j->real_bytes, b = at / j->heads, h = at % j->heads;
  char *side = smx_scratch_take(&m->side);
  attn_task t = {
      .call = &j->call, .head = attention_head(j, b, h), .rows = 1, .splits = m->splits, .states = side};
  t.state_step = width / j->real_bytes;
  for (t.first = 0; t.first < j->lq; t.first++) {
    char *to = side;
    for (int32_t i = 0; i < m->count; i++) {
      const smx_view *v = m->states + i;
      const char *from =
          v->data + (b * v->strides[0] + h * v->strides[1] + t.first * v->strides[2]) * j->real_bytes;
      for (int64_t s = 0; s < v->shape[3]; s++, to += width)
        memcpy(to, from + s * v->strides[3] * j->real_bytes, (size_t)width);
    }
    t.first_empty = -1;
    j->kernels->merge(&t, side + m->side_bytes);
    if (t.first_empty >= 0) smx_keep_least(&m->empty, at * j->lq + t.first);
  }
  smx_scratch_give(&m->side, side);
}

static smx_status check_merge(attention_job *j, const smx_attention_options *options, merging *m,
                              smx_view *views, const smx_tensor *const *states, const smx_tensor *o,
                              const smx_tensor *lse) {
  smx_attention_options defaults;
  smx_attention_init(&defaults);
  if (!options) options = &defaults;
  smx_status status = attention_check_options(j, options);
  if (status == SMX_OK) status = check_weights(j);
  if (status == SMX_OK) status = attention_tensor(j, "o", o, FLOATS, 4, (int64_t[]){-1, -1, -1, -1}, &j->o);
  if (status != SMX_OK) return status;
  j->batch = j->o.shape[0], j->heads = j->kv_heads = j->o.shape[1], j->lq = j->o.shape[2],
  j->call.e = j->o.shape[3], j->call.d = 1;
  if (j->call.e < 1 || j->call.e > ATTN_MAX_HEAD)
    return smx_fail(SMX_ERR_SHAPE, "%s: o: shape[3] is %lld, not 1..%d", j->name, (long long)j->call.e,
                    ATTN_MAX_HEAD);
  if (states[0]) j->real_bytes = states[0]->dtype.bits == 64 ? 8 : 4;
  int64_t shape[5] = {j->batch, j->heads, j->lq, -1, attention_state_reals(j->call.e)};
  for (int32_t i = 0; i < m->count && status == SMX_OK; i++) {
    status = check_states(j, "states", states[i], shape, views + i);
    if (status == SMX_OK && smx_view_overlap(&j->o, views + i))
      status = smx_fail(SMX_ERR_ALIAS, "%s: o: overlaps states", j->name);
    m->splits += status == SMX_OK ? views[i].shape[3] : 0;
  }
  if (status == SMX_OK && lse) status = attention_output(j, "lse", lse, 3, shape, &j->lse);
  if (status == SMX_OK && options->sinks)
    status = attention_broadcast(j, "sinks", options->sinks, FLOATS, 2, shape, &j->sinks);
  return status == SMX_OK ? attention_apart(j, "o", &j->o) : status;
}

static smx_status merge(merging *m) {
  const attention_job *j = m->j;
  m->side_bytes = smx_whole_lines((size_t)(m->splits * attention_state_reals(j->call.e) * j->real_bytes));
  if (!smx_scratch_open(&m->side, j->ctx, 0, m->side_bytes + j->kernels->scratch(&j->call, 1),
                        j->batch * j->heads))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for scratch rows", j->name);
  smx_parallel(j->ctx, j->batch * j->heads, merge_head, m);
  smx_scratch_close(&m->side);
  const int64_t empty = atomic_load(&m->empty);
  return empty < 0 ? SMX_OK : smx_fail(SMX_ERR_EMPTY, "%s: row %lld sees no key", j->name, (long long)empty);
}

smx_status smx_attention_merge(smx_context *ctx, const smx_attention_options *options, int32_t count,
                               const smx_tensor *const *states, const smx_tensor *o, const smx_tensor *lse) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_merge", ctx)) return SMX_ERR_NOMEM;
  merging m = {.j = j, .count = count, .empty = -1};
  if (count < 1) return smx_fail(SMX_ERR_PARAM, "%s: count is %d, not at least 1", j->name, (int)count);
  if (!states) return smx_fail(SMX_ERR_NULL, "%s: states is NULL", j->name);
  smx_view *views = smx_alloc(ctx, (size_t)count * sizeof *views);
  if (!views) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %d states", j->name, (int)count);
  smx_status status = check_merge(j, options, &m, views, states, o, lse);
  if (status == SMX_OK && attention_writes(j)) {
    m.states = views;
    j->kernels = j->real_bytes == 8 ? smx_isa_current()->f64.attention : smx_isa_current()->f32.attention;
    status = merge(&m);
  }
  smx_free(ctx, views);
  return status;
}
