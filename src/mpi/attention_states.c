/* mpi/attention_states.c - attention of which states travel: each rank makes those of its keys, the
 * rank of a head merges them in the order of keys, and tells the others. As many bytes as queries
 * have, for every 1024 keys, however long the keys are. */
#include "attention.h"
#include <softmax/attention.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20 /* of states at a time, or one query of each head */ };

typedef struct by_states {
  attention *a;
  smx_dtype real;
  int64_t width, splits; /* numbers of a state; of this rank's keys */
  int64_t rows;          /* of queries at a time */
  char *states, *come;
  view *sent, *got;
  smx_tensor *tensors; /* what is merged: states of each rank, of this rank's heads */
  const smx_tensor **list;
  int64_t (*shapes)[5];
} by_states;

static int64_t splits_of(const mpi_call *c, int r) {
  return (c->bounds[r + 1] - c->bounds[r] + SPLIT - 1) / SPLIT;
}
/* Heads are shared evenly. */
static int64_t head_of(const attention *a, int r) { return a->heads * r / a->c->ranks; }
static int64_t heads_of(const attention *a, int r) { return head_of(a, r + 1) - head_of(a, r); }

static smx_status reserve(by_states *w) {
  const attention *const a = w->a;
  const mpi_call *const c = a->c;
  const size_t bytes = w->real.bits / 8u, ranks = (size_t)c->ranks;
  int64_t all = 0, one;
  for (int r = 0; r < c->ranks; r++) all += splits_of(c, r);
  if (__builtin_mul_overflow(a->batch * a->heads, all * w->width * (int64_t)bytes, &one) ||
      one > INT64_MAX / 4)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi_attention: the states of one row overflow");
  w->rows = one > 0 ? BYTES / one + 1 : 1;
  if (w->rows > a->lq) w->rows = a->lq > 0 ? a->lq : 1;
  const size_t state = (size_t)(a->batch * w->rows * w->width) * bytes;
  w->states = malloc(state * (size_t)(a->heads * w->splits) + 1);
  w->come = malloc(state * (size_t)(heads_of(a, c->me) * all) + 1);
  w->sent = malloc(2 * ranks * sizeof *w->sent), w->got = w->sent + ranks;
  w->tensors = malloc(ranks * sizeof *w->tensors), w->list = malloc(ranks * sizeof *w->list);
  w->shapes = malloc(ranks * sizeof *w->shapes);
  return w->states && w->come && w->sent && w->tensors && w->list && w->shapes
             ? SMX_OK
             : smx_set_error(SMX_ERR_NOMEM, "smx_mpi_attention: no memory for states");
}

/* The tensors of the queries from `row` on, `rows` of them. */
static void rows_of(const attention *a, int64_t row, int64_t rows, view *parts) {
  static const bool has_rows[TENSORS] = {[Q] = true, [O] = true, [LSE] = true, [MASK] = true, [BIAS] = true};
  for (int t = 0; t < TENSORS; t++) {
    parts[t] = a->tensor[t];
    if (has_rows[t]) mpi_attention_part(parts + t, t, a->tensor + t, 2, row, rows);
  }
}

static smx_status make_states(by_states *w, int64_t row, int64_t rows, view *parts) {
  const attention *const a = w->a;
  int64_t shape[5] = {a->batch, a->heads, rows, w->splits, w->width};
  smx_attention_options o = mpi_attention_options(a, parts);
  const smx_tensor states = mpi_tensor(w->states, w->real, 5, shape);
  if (o.query_start == SMX_ATTENTION_END) o.query_start = a->c->n - a->lq;
  o.query_start += row, o.key_start = a->c->bounds[a->c->me], o.sinks = NULL;
  if (!w->splits) return SMX_OK;
  return smx_attention_states(a->c->ctx, &o, mpi_view_tensor(parts + Q, 4), mpi_view_tensor(parts + K, 4),
                              mpi_view_tensor(parts + V, 4), &states);
}

/* To the ranks of their heads; *count: the tensors of states that came. */
static smx_status send_states(by_states *w, int64_t rows, int32_t *count) {
  const attention *const a = w->a;
  const mpi_call *const c = a->c;
  const int64_t own = heads_of(a, c->me);
  view all;
  char *at = w->come;
  *count = 0;
  mpi_view_packed(&all, w->states, w->real, (int64_t[]){a->batch, a->heads, rows, w->splits * w->width});
  for (int r = 0; r < c->ranks; r++) {
    const int64_t splits = splits_of(c, r);
    mpi_view_part(w->sent + r, &all, 1, head_of(a, r), heads_of(a, r));
    mpi_view_packed(w->got + r, at, w->real, (int64_t[]){a->batch, own, rows, splits * w->width});
    if (splits) {
      const int32_t i = (*count)++;
      memcpy(w->shapes[i], (int64_t[]){a->batch, own, rows, splits, w->width}, sizeof *w->shapes);
      w->tensors[i] = mpi_tensor(at, w->real, 5, w->shapes[i]);
      w->list[i] = w->tensors + i;
    }
    at += mpi_view_bytes(w->got + r);
  }
  return mpi_exchange(c, w->sent, w->got);
}

static smx_status merge(by_states *w, view *parts, int32_t count) {
  const attention *const a = w->a;
  const int me = a->c->me;
  static const int merged[] = {O, LSE, SINKS};
  view own[TENSORS];
  memset(own, 0, sizeof own);
  for (int i = 0; i < 3; i++)
    mpi_attention_part(own + merged[i], merged[i], parts + merged[i], 1, head_of(a, me), heads_of(a, me));
  const smx_attention_options o = mpi_attention_options(a, own);
  return smx_attention_merge(a->c->ctx, &o, count, w->list, mpi_view_tensor(own + O, 4),
                             mpi_view_tensor(own + LSE, 3));
}

static smx_status some_rows(by_states *w, int64_t row, int64_t rows) {
  const attention *const a = w->a;
  const mpi_call *const c = a->c;
  view parts[TENSORS], part;
  int32_t count;
  rows_of(a, row, rows, parts);
  smx_status status = mpi_agree(c, make_states(w, row, rows, parts));
  if (status == SMX_OK) status = send_states(w, rows, &count);
  if (status == SMX_OK) status = mpi_agree(c, merge(w, parts, count));
  for (int r = 0; r < c->ranks; r++)
    for (int t = O; t <= LSE && status == SMX_OK; t++) {
      mpi_attention_part(&part, t, parts + t, 1, head_of(a, r), heads_of(a, r));
      status = mpi_share(c, &part, r);
    }
  return status;
}

smx_status mpi_attention_by_states(attention *a) {
  by_states w = {.a = a, .real = SMX_F32};
  for (int t = Q; t <= V; t++)
    if (a->tensor[t].t.dtype.bits == 64) w.real = SMX_F64;
  w.width = smx_attention_state_width(a->e), w.splits = splits_of(a->c, a->c->me);
  smx_status status = mpi_agree(a->c, reserve(&w));
  for (int64_t row = 0; row < a->lq && status == SMX_OK; row += w.rows)
    status = some_rows(&w, row, a->lq - row < w.rows ? a->lq - row : w.rows);
  free(w.states), free(w.come), free(w.sent), free(w.tensors), free(w.list), free(w.shapes);
  return status;
}
