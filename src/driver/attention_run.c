/* driver/attention_run.c - the driver of attention: cuts a call into tasks and hands them to the
 * threads.
 *
 * A task is a chunk of the rows that share a key/value head. When there are fewer such chunks than
 * threads, each is cut along its keys too: the pieces store the contributions of their splits, and
 * a second round folds these in order. Neither cut changes a bit. */
#include "attention.h"
#include <string.h>

enum { STATE_BYTES = 64 << 20 }; /* the most that contributions of splits may take */

typedef struct unit {
  int64_t sequence, head, first, rows, state; /* state: where its contributions are, in reals */
} unit;

typedef struct parallel_job {
  const attention_job *j;
  unit *units;
  int64_t count, chunk, pieces, piece; /* pieces of `piece` splits each; 0: rows are finished at once */
  char *states;
  _Atomic int64_t empty; /* the first row that sees nothing, when that is an error */
  smx_scratch scratch;
} parallel_job;

/* ---- a head of a sequence ---- */

attn_rows attention_rows_of(const smx_view *v, int64_t batch, int64_t head, int64_t row) {
  attn_rows m = {0};
  if (!v->data) return m;
  int64_t bytes = smx_dtype_bytes(v->dtype), step = v->ndim > 2 ? v->strides[2] : 0;
  m.data = v->data + (batch * v->strides[0] + head * v->strides[1] + row * step) * bytes;
  m.step = step * bytes;
  m.head = v->strides[1] * bytes;
  m.stride = v->ndim > 3 ? (ptrdiff_t)v->strides[3] : 1;
  m.store = row_store_of(v->dtype);
  return m;
}

/* Into zeros. */
static void find_head(const attention_job *j, int64_t b, int64_t kv, attn_head *h) {
  int64_t groups = j->heads / j->kv_heads, head = kv * groups,
          kb = j->block_table.data || j->key_offsets.data ? 0 : b;
  int64_t q_row = j->query_offsets.data ? attention_int(&j->query_offsets, b) : 0,
          qb = j->query_offsets.data ? 0 : b;
  int64_t k_row = j->key_offsets.data ? attention_int(&j->key_offsets, b) : 0;
  h->lq = attention_queries(j, b), h->lk = attention_keys(j, b), h->groups = groups;
  h->key_start = j->key_start;
  h->offset = j->query_start == SMX_ATTENTION_END ? h->key_start + h->lk - h->lq : j->query_start;
  h->stream = attention_stream(j, b, head);
#define PUT(field, batch, head, row) \
  if (j->field.data) h->field = attention_rows_of(&j->field, batch, head, row);
  PUT(q, qb, head, q_row)
  PUT(o, qb, head, q_row)
  PUT(lse, qb, head, q_row)
  PUT(k, kb, kv, k_row)
  PUT(v, kb, kv, k_row)
  PUT(d_o, qb, head, q_row)
  PUT(d_lse, qb, head, q_row)
  PUT(dq, qb, head, q_row)
  PUT(dk, kb, kv, k_row)
  PUT(dv, kb, kv, k_row)
  PUT(mask, b, head, 0)
  PUT(bias, b, head, 0)
  PUT(slopes, b, head, 0)
  PUT(sinks, b, head, 0)
  PUT(given, b, head, 0)
  PUT(scores, b, head, 0)
  PUT(winners, qb, head, q_row)
  PUT(d_sink, b, head, 0)
#undef PUT
  if (j->block_table.data) {
    h->table = j->block_table.data + b * j->block_table.strides[0] * 4;
    h->table_step = j->block_table.strides[1] * 4;
    h->page_size = j->page_size;
    h->k_page = j->k.strides[0] * smx_dtype_bytes(j->k.dtype);
    h->v_page = j->v.strides[0] * smx_dtype_bytes(j->v.dtype);
  }
}

attn_head attention_head(const attention_job *j, int64_t b, int64_t kv) {
  attn_head h = {0};
  find_head(j, b, kv, &h);
  return h;
}

/* ---- tasks ---- */

static void note_empty(parallel_job *w, const unit *u, int64_t row) {
  const attention_job *j = w->j;
  int64_t groups = j->heads / j->kv_heads, i = row / groups, head = u->head * groups + row % groups;
  smx_keep_least(&w->empty, (u->sequence * j->heads + head) * j->lq + i);
}

static void open_task(const parallel_job *w, const unit *u, attn_task *t) {
  const attention_job *j = w->j;
  memset(t, 0, sizeof *t);
  find_head(j, u->sequence, u->head, &t->head);
  t->call = &j->call, t->first = u->first, t->rows = u->rows;
  t->split = j->key_start / ATTN_SPLIT;
  t->splits = attention_splits(j, t->head.lk) - t->split;
}

void attention_task(smx_scratch *s, attn_task *t, attention_kernel *kernel) {
  void *scratch = smx_scratch_take(s);
  kernel(t, scratch);
  smx_scratch_give(s, scratch);
}

void attention_store(const attention_job *j, char *to, int64_t stride, smx_dtype dtype, const double *sums,
                     int64_t n, void *buffer) {
  const attn_rows m = {.data = to, .stride = (ptrdiff_t)stride, .store = row_store_of(dtype)};
  j->kernels->store(&m, sums, n, buffer);
}

static void run_task(parallel_job *w, const unit *u, attn_task *t, attention_kernel *kernel) {
  t->first_empty = -1;
  attention_task(&w->scratch, t, kernel);
  if (t->first_empty >= 0) note_empty(w, u, t->first_empty);
}

static void whole_task(void *arg, int64_t i) {
  parallel_job *w = arg;
  const attention_job *j = w->j;
  attn_task t;
  open_task(w, w->units + i, &t);
  if (j->states.data) {
    const int64_t *s = j->states.strides;
    t.states = j->states.data +
               (w->units[i].sequence * s[0] + w->units[i].head * t.head.groups * s[1]) * j->real_bytes;
    t.state_heads = s[1], t.state_rows = s[2], t.state_step = s[3];
  }
  if (j->scores.data) {
    t.weights = j->weights, t.columns = j->lk;
    t.splits = attention_splits(j, j->lk) - t.split;
  }
  run_task(w, w->units + i, &t,
           j->tropical      ? j->kernels->tropical->forward
           : j->scores.data ? j->kernels->scores
                            : j->kernels->forward);
}

static void states_of(const parallel_job *w, const unit *u, attn_task *t) {
  t->state_step = attention_state_reals(w->j->call.e);
  t->state_heads = t->splits * t->state_step;
  t->state_rows = t->head.groups * t->state_heads;
  t->states = w->states + (u->state - u->first * t->state_heads) * w->j->real_bytes;
}

static void piece_task(void *arg, int64_t i) {
  parallel_job *w = arg;
  const unit *u = w->units + i / w->pieces;
  attn_task t;
  open_task(w, u, &t);
  int64_t skip = i % w->pieces * w->piece;
  if (skip >= t.splits) return;
  states_of(w, u, &t);
  t.states = (char *)t.states + skip * attention_state_reals(w->j->call.e) * w->j->real_bytes;
  t.split += skip;
  if (t.splits - skip < w->piece) t.splits -= skip;
  else t.splits = w->piece;
  run_task(w, u, &t, w->j->kernels->forward);
}

static void merge_task(void *arg, int64_t i) {
  parallel_job *w = arg;
  attn_task t;
  open_task(w, w->units + i, &t);
  states_of(w, w->units + i, &t);
  run_task(w, w->units + i, &t, w->j->kernels->merge);
}

/* ---- how a call is cut ---- */

/* Lists the tasks of chunks of w->chunk rows; with units NULL only counts. */
static void list_units(parallel_job *w) {
  const attention_job *j = w->j;
  int64_t groups = j->heads / j->kv_heads;
  w->count = 0;
  for (int64_t b = 0; b < j->batch; b++) {
    int64_t rows = attention_queries(j, b) * groups, chunks = (rows + w->chunk - 1) / w->chunk;
    for (int64_t i = 0; i < j->kv_heads * chunks; i++) {
      int64_t first = i % chunks * w->chunk, left = rows - first;
      if (w->units) w->units[w->count] = (unit){b, i / chunks, first, left < w->chunk ? left : w->chunk, 0};
      w->count++;
    }
  }
}

/* Cuts along keys: how many reals the contributions take, or 0 when that does not pay. */
static int64_t cut_keys(parallel_job *w, int32_t threads) {
  const attention_job *j = w->j;
  int64_t splits = attention_splits(j, j->lk) - j->key_start / ATTN_SPLIT, total = 0;
  const bool apart = attention_table[j->call.weights].flags & SMX_ATTENTION_STATES;
  if (threads == 1 || splits < 2 || !apart || w->count == 0 || w->count >= 2 * (int64_t)threads) return 0;
  for (int64_t i = 0; i < w->count; i++) {
    unit *u = w->units + i;
    int64_t own = attention_splits(j, attention_keys(j, u->sequence)) - j->key_start / ATTN_SPLIT;
    u->state = total;
    total += u->rows * own * attention_state_reals(j->call.e);
  }
  if (total > STATE_BYTES / j->real_bytes) return 0;
  int64_t wanted = (4 * (int64_t)threads + w->count - 1) / w->count;
  w->pieces = wanted < splits ? wanted : splits;
  w->piece = (splits + w->pieces - 1) / w->pieces;
  return total;
}

/* Scratch bytes of the longest task. */
static size_t task_bytes(const parallel_job *w) {
  const attention_job *j = w->j;
  int64_t most = 0;
  for (int64_t i = 0; i < w->count; i++) most = w->units[i].rows > most ? w->units[i].rows : most;
  return (j->tropical ? j->kernels->tropical->scratch : j->kernels->scratch)(&j->call, most);
}

/* States beyond the length of a sequence are 0. */
static void clear_states(const attention_job *j) {
  const smx_view *v = &j->states;
  const int64_t width = v->shape[4], splits = v->shape[3];
  for (int64_t i = 0; i < smx_view_elements(v); i += width) {
    int64_t row = i / width, at = row % splits * v->strides[3] + row / splits % j->lq * v->strides[2];
    at += row / splits / j->lq % j->heads * v->strides[1] + row / splits / j->lq / j->heads * v->strides[0];
    memset(v->data + at * j->real_bytes, 0, (size_t)(width * j->real_bytes));
  }
}

static smx_status run_parallel_job(parallel_job *w) {
  const attention_job *j = w->j;
  int64_t reals =
      j->states.data || j->scores.data || j->tropical ? 0 : cut_keys(w, smx_context_threads(j->ctx));
  const int64_t tasks = reals ? w->count * w->pieces : w->count;
  if (!smx_scratch_open(&w->scratch, j->ctx, (size_t)(reals * j->real_bytes), task_bytes(w), tasks))
    return SMX_ERR_NOMEM;
  w->states = w->scratch.shared;
  if (j->states.data) clear_states(j);
  smx_parallel(j->ctx, tasks, reals ? piece_task : whole_task, w);
  if (reals) smx_parallel(j->ctx, w->count, merge_task, w);
  smx_scratch_close(&w->scratch);
  return SMX_OK;
}

smx_status attention_run(attention_job *j) {
  parallel_job w = {.j = j, .chunk = ATTN_CHUNK, .empty = -1};
  if (j->kv_heads == 0 || !attention_writes(j)) return SMX_OK;
  list_units(&w);
  int32_t threads = smx_context_threads(j->ctx);
  if (threads > 1 && w.count < 4 * (int64_t)threads) {
    w.chunk = ATTN_TILE;
    list_units(&w);
  }
  w.units = smx_alloc(j->ctx, (size_t)(w.count ? w.count : 1) * sizeof *w.units);
  smx_status status = w.units ? SMX_OK : SMX_ERR_NOMEM;
  if (w.units) {
    list_units(&w);
    status = run_parallel_job(&w);
  }
  smx_free(j->ctx, w.units);
  if (status == SMX_ERR_NOMEM) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for scratch rows", j->name);
  int64_t empty = atomic_load(&w.empty);
  if (empty < 0) return SMX_OK;
  return smx_fail(SMX_ERR_EMPTY, "%s: sequence %lld, head %lld, row %lld sees no key", j->name,
                  (long long)(empty / j->lq / j->heads), (long long)(empty / j->lq % j->heads),
                  (long long)(empty % j->lq));
}
