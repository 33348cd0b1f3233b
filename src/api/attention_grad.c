/* api/attention_grad.c - the gradient of attention: checks, then rounds of tasks. The first leaves a few numbers a row in memory. Then a task is a
 * head, where there are enough of them for the threads, or pairs of rows and keys are walked twice: chunks of rows for dq, some keys at a time for dk
 * and dv. Tasks share nothing that they write, and all have the same bits. */
#include "attention.h"

enum {
  CHUNK = 384, /* rows of a task */
  WHOLE = 0    /* a task is a head */
};

typedef struct unit {
  int64_t sequence, head, first, rows;
} unit;

typedef struct crew {
  const attention_job *j;
  unit *units;
  int64_t count;
  char *stats;
  attention_kernel *kernel;
  _Atomic bool no_memory;
} crew;

static int64_t groups_of(const attention_job *j) { return j->heads / j->kv_heads; }

/* Chunks of the rows, or of the keys, of every head, or whole heads; with w->units NULL only counts. */
static void list_units(crew *w, int64_t chunk, bool keys) {
  const attention_job *j = w->j;
  w->count = 0;
  for (int64_t b = 0; b < j->batch; b++) {
    int64_t own = j->key_offsets.data ? attention_keys(j, b) : j->lk; /* beyond the length of a sequence gradients are 0 */
    int64_t rows = keys ? own : attention_queries(j, b) * groups_of(j), chunks = chunk == WHOLE ? 1 : (rows + chunk - 1) / chunk;
    for (int64_t i = 0; i < j->kv_heads * chunks; i++) {
      int64_t first = i % chunks * chunk, left = rows - first;
      if (w->units) w->units[w->count] = (unit){b, i / chunks, first, chunk != WHOLE && chunk < left ? chunk : left};
      w->count++;
    }
  }
}

static void grad_task(void *arg, int64_t i) {
  crew *w = arg;
  const attention_job *j = w->j;
  const unit *u = w->units + i;
  attn_task t = {.call = &j->call, .head = attention_head(j, u->sequence, u->head), .first = u->first, .rows = u->rows};
  int64_t row = ATTN_STATS * j->real_bytes, first = j->query_offsets.data ? attention_int(&j->query_offsets, u->sequence) : 0;
  int64_t batch = j->query_offsets.data ? 0 : u->sequence, head = batch * j->heads + u->head * t.head.groups;
  t.head.stats = (attn_rows){.data = w->stats + (head * j->lq + first) * row, .step = row, .head = j->lq * row};
  t.split = j->key_start / ATTN_SPLIT;
  t.splits = attention_splits(j, t.head.lk) - t.split;
  t.columns = j->lk;
  const attention_grads *grads = j->kernels->grads;
  size_t bytes = w->kernel == grads->all ? grads->all_scratch(&j->call, &t.head) : grads->scratch(&j->call, t.rows);
  if (!attention_task(j, &t, bytes, w->kernel)) atomic_store(&w->no_memory, true);
}

static void run_round(crew *w, int64_t chunk, bool keys, attention_kernel *kernel) {
  const attention_job *j = w->j;
  w->kernel = kernel;
  w->units = NULL;
  list_units(w, chunk, keys);
  w->units = smx_alloc(j->ctx, (size_t)(w->count ? w->count : 1) * sizeof *w->units);
  if (!w->units) {
    atomic_store(&w->no_memory, true);
    return;
  }
  list_units(w, chunk, keys);
  smx_parallel(j->ctx, w->count, grad_task, w);
  smx_free(j->ctx, w->units);
}

/* All gradients in one walk take 5 products of pairs, in two walks 7, but then the threads share every head. */
static bool heads_suffice(const attention_job *j) {
  if (!j->dq.data || j->scores.data || !(j->dk.data || j->dv.data)) return false;
  int64_t threads = smx_context_threads(j->ctx), heads = j->batch * j->kv_heads, rounds = (heads + threads - 1) / threads;
  return 5 * rounds * threads <= 7 * heads;
}

smx_status attention_run_gradients(const attention_job *j) {
  crew w = {.j = j};
  if (j->kv_heads == 0) return SMX_OK;
  int64_t rows = (j->query_offsets.data ? 1 : j->batch) * j->heads * j->lq;
  w.stats = smx_alloc(j->ctx, (size_t)(rows * ATTN_STATS * j->real_bytes));
  if (!w.stats) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", j->name, (long long)rows);
  const attention_grads *grads = j->kernels->grads;
  const bool all = heads_suffice(j);
  run_round(&w, CHUNK, false, grads->prepare);
  if (all && !atomic_load(&w.no_memory)) run_round(&w, WHOLE, true, grads->all);
  if (!all && (j->dq.data || j->scores.data) && !atomic_load(&w.no_memory)) run_round(&w, CHUNK, false, grads->queries);
  if (!all && (j->dk.data || j->dv.data) && !atomic_load(&w.no_memory)) run_round(&w, ATTN_KEYS, true, grads->keys);
  smx_free(j->ctx, w.stats);
  return atomic_load(&w.no_memory) ? smx_fail(SMX_ERR_NOMEM, "%s: no memory for scratch rows", j->name) : SMX_OK;
}

smx_status attention_check_gradient(attention_job *j, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                                    const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                    const smx_tensor *d_lse) {
  smx_status status = attention_check(j, options, q, k, v);
  if (status != SMX_OK) return status;
  if (!attention_table[j->call.weights].backward)
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: options.weights is %d, which has no gradient", j->name, j->call.weights);
  if (j->block_table.data) return smx_fail(SMX_ERR_NO_BACKWARD, "%s: no gradient for a paged cache (block_table)", j->name);
  int64_t shape[4] = {j->q.shape[0], j->heads, j->lq, j->call.e};
  status = attention_tensor(j, "o", o, FLOATS, 4, shape, &j->o);
  if (status == SMX_OK) status = attention_tensor(j, "lse", lse, FLOATS, 3, shape, &j->lse);
  if (status == SMX_OK) status = attention_tensor(j, "d_o", d_o, FLOATS, 4, shape, &j->d_o);
  if (status == SMX_OK && d_lse) status = attention_tensor(j, "d_lse", d_lse, FLOATS, 3, shape, &j->d_lse);
  return status;
}

smx_status smx_attention_backward(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                                  const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                  const smx_tensor *d_lse, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  attention_job job = {.name = "smx_attention_backward", .ctx = ctx}, *j = &job;
  smx_status status = attention_check_gradient(j, options, q, k, v, o, lse, d_o, d_lse);
  if (status == SMX_OK && dq) status = attention_output(j, "dq", dq, 4, j->q.shape, &j->dq);
  if (status == SMX_OK && dk) status = attention_output(j, "dk", dk, 4, j->k.shape, &j->dk);
  if (status == SMX_OK && dv) status = attention_output(j, "dv", dv, 4, j->v.shape, &j->dv);
  return status == SMX_OK ? attention_run_gradients(j) : status;
}
