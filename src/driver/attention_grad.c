/* driver/attention_grad.c - the gradient of attention: checks, then rounds of tasks. The first
 * rounds store a few numbers of each row. Then, if there are enough heads for the threads, a task
 * is a head. Otherwise pairs of rows and keys are visited twice: by chunks of rows for dq, by
 * blocks of keys for dk and dv. Tasks share no output, and every division gives the same bits. */
#include "attention.h"

enum {
  CHUNK = 384, /* rows of a task */
  WHOLE = 0    /* a task is a head */
};

typedef struct unit {
  int64_t sequence, head, first, rows;
} unit;

typedef struct parallel_job {
  const attention_job *j;
  unit *units;
  int64_t count;
  char *stats;
  attention_kernel *kernel;
  smx_scratch scratch; /* shared: stats, and the units of the longest round */
} parallel_job;

static int64_t groups_of(const attention_job *j) { return j->heads / j->kv_heads; }

/* Chunks of the rows, or of the keys, of every head, or whole heads; with w->units NULL only
 * counts. */
static void list_units(parallel_job *w, int64_t chunk, bool keys) {
  const attention_job *j = w->j;
  w->count = 0;
  for (int64_t b = 0; b < j->batch; b++) {
    int64_t rows = keys ? attention_room(j, b) : attention_queries(j, b) * groups_of(j),
            chunks = chunk == WHOLE ? 1 : (rows + chunk - 1) / chunk;
    for (int64_t i = 0; i < j->kv_heads * chunks; i++) {
      int64_t first = i % chunks * chunk, left = rows - first;
      if (w->units)
        w->units[w->count] = (unit){b, i / chunks, first, chunk != WHOLE && chunk < left ? chunk : left};
      w->count++;
    }
  }
}

static void grad_task(void *arg, int64_t i) {
  parallel_job *w = arg;
  const attention_job *j = w->j;
  const unit *u = w->units + i;
  attn_task t = {
      .call = &j->call, .head = attention_head(j, u->sequence, u->head), .first = u->first, .rows = u->rows};
  int64_t row = ATTN_STATS * j->real_bytes,
          first = j->query_offsets.data ? attention_int(&j->query_offsets, u->sequence) : 0;
  int64_t batch = j->query_offsets.data ? 0 : u->sequence, head = batch * j->heads + u->head * t.head.groups;
  t.head.stats =
      (attn_rows){.data = w->stats + (head * j->lq + first) * row, .step = row, .head = j->lq * row};
  t.split = j->key_start / ATTN_SPLIT;
  t.splits = attention_splits(j, t.head.lk) - t.split;
  t.columns = j->lk;
  attention_task(&w->scratch, &t, w->kernel);
}

/* What a call needs of memory for its rounds. */
typedef struct need {
  int64_t units;
  size_t task;
} need;

static void add_need(parallel_job *w, int64_t chunk, bool keys, need *n) {
  w->units = NULL;
  list_units(w, chunk, keys);
  n->units = w->count > n->units ? w->count : n->units;
  const attention_job *j = w->j;
  const int64_t most = keys ? j->lk : j->lq * groups_of(j);
  const size_t task = j->kernels->grads->scratch(&j->call, chunk < most ? chunk : most);
  n->task = task > n->task ? task : n->task;
}

/* Scratch bytes of the head with the most queries and keys. */
static void add_heads(const parallel_job *w, need *n) {
  const attention_job *j = w->j;
  for (int64_t b = 0; b < j->batch; b++) {
    const attn_head h = attention_head(j, b, 0);
    const size_t task = j->kernels->grads->all_scratch(&j->call, &h);
    n->task = task > n->task ? task : n->task;
  }
}

static void run_round(parallel_job *w, int64_t chunk, bool keys, attention_kernel *kernel) {
  w->kernel = kernel;
  list_units(w, chunk, keys);
  smx_parallel(w->j->ctx, w->count, grad_task, w);
}

/* All gradients in one pass take 5 products a pair, in two passes 7; but with two passes threads
 * can share a head. */
static bool heads_suffice(const attention_job *j) {
  if (!j->dq.data || j->scores.data || !(j->dk.data || j->dv.data)) return false;
  int64_t threads = smx_context_threads(j->ctx), heads = j->batch * j->kv_heads,
          rounds = (heads + threads - 1) / threads;
  return 5 * rounds * threads <= 7 * heads;
}

smx_status attention_run_gradients(const attention_job *j) {
  parallel_job w = {.j = j};
  if (j->kv_heads == 0 || !attention_writes(j)) return SMX_OK;
  int64_t rows = (j->query_offsets.data ? 1 : j->batch) * j->heads * j->lq;
  const attention_grads *grads = j->kernels->grads;
  const bool all = heads_suffice(j), queries = !all && (j->dq.data || j->scores.data),
             keys = !all && (j->dk.data || j->dv.data);
  need n = {.units = j->batch * j->kv_heads};
  add_need(&w, CHUNK, false, &n);
  if (keys) add_need(&w, ATTN_KEYS, true, &n);
  if (all) add_heads(&w, &n);
  const size_t stats = smx_whole_lines((size_t)(rows * ATTN_STATS * j->real_bytes));
  if (!smx_scratch_open(&w.scratch, j->ctx, stats + (size_t)n.units * sizeof *w.units + 1, n.task, n.units))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", j->name, (long long)rows);
  w.stats = w.scratch.shared, w.units = (unit *)(void *)(w.stats + stats);
  run_round(&w, CHUNK, false, grads->prepare);
  if (!all && grads->measures(&j->call)) run_round(&w, CHUNK, false, grads->measure);
  if (all) run_round(&w, WHOLE, true, grads->all);
  if (queries) run_round(&w, CHUNK, false, grads->queries);
  if (keys) run_round(&w, ATTN_KEYS, true, grads->keys);
  smx_scratch_close(&w.scratch);
  return SMX_OK;
}

/* Under the norm clamp the sign of the sum is needed, which lse does not tell. A Taylor polynomial
 * of even degree is positive. */
static bool sum_may_be_negative(const attn_call *c) {
  if (c->param[0] != SMX_ATTENTION_NORM_CLAMP) return false;
  return c->weights == SMX_ATTENTION_IDENTITY ||
         (c->weights == SMX_ATTENTION_TAYLOR && (int)c->param[1] % 2 == 0);
}

smx_status attention_check_gradient(attention_job *j, const smx_attention_options *options,
                                    const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                    const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                    const smx_tensor *d_lse) {
  smx_status status = attention_check(j, options, q, k, v);
  if (status != SMX_OK) return status;
  if (!(attention_table[j->call.weights].flags & SMX_ATTENTION_BACKWARD))
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: options.weights is %d, which has no gradient", j->name,
                    j->call.weights);
  if (sum_may_be_negative(&j->call))
    return smx_fail(
        SMX_ERR_NO_BACKWARD,
        "%s: options.weights is %d with the norm clamp, and its sums may be below 0: no gradient; "
        "the norms l1 and count have one",
        j->name, j->call.weights);
  status = attention_check_d_o(j, d_o);
  int64_t shape[4] = {j->q.shape[0], j->heads, j->lq, j->call.e};
  if (status == SMX_OK) status = attention_tensor(j, "o", o, FLOATS, 4, shape, &j->o);
  if (status == SMX_OK) status = attention_tensor(j, "lse", lse, FLOATS, 3, shape, &j->lse);
  if (status == SMX_OK && d_lse) status = attention_tensor(j, "d_lse", d_lse, FLOATS, 3, shape, &j->d_lse);
  return status;
}
