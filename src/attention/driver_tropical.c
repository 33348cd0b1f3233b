/* attention/driver_tropical.c - attention in the max-plus semiring, and its gradient. Each column
 * of an output depends on one key, so the gradient takes d steps a column and no matrix. */
#include "base/enter.h"
#include "driver/attention.h"
#include <string.h>

static smx_status check(attention_job *j, const smx_attention_options *options, int32_t symmetric,
                        const smx_tensor *q, const smx_tensor *k, const smx_tensor *v) {
  const smx_attention_options own = attention_hiding(options);
  smx_status status = attention_check(j, &own, q, k, v);
  j->call.symmetric = symmetric != 0;
  j->tropical = true;
  return status;
}

static smx_status check_winners(const attention_job *j, const smx_tensor *t, smx_view *v) {
  return attention_tensor(j, "winners", t, PAGES, 4, (int64_t[]){j->q.shape[0], j->heads, j->lq, j->call.e},
                          v);
}

smx_status smx_attention_tropical(smx_context *ctx, const smx_attention_options *options, int32_t symmetric,
                                  const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                  const smx_tensor *o, const smx_tensor *winners) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_tropical", ctx)) return SMX_ERR_NOMEM;
  smx_status status = check(j, options, symmetric, q, k, v);
  if (status != SMX_OK) return status;
  if (winners) status = check_winners(j, winners, &j->winners);
  if (status == SMX_OK && winners) status = attention_apart(j, "winners", &j->winners);
  if (status == SMX_OK)
    status = attention_output(j, "o", o, 4, (int64_t[]){j->q.shape[0], j->heads, j->lq, j->call.e}, &j->o);
  if (status == SMX_OK && winners && smx_view_overlap(&j->o, &j->winners))
    status = smx_fail(SMX_ERR_ALIAS, "%s: o: overlaps winners", j->name);
  return status == SMX_OK ? attention_run(j) : status;
}

/* ---- the gradient ---- */

typedef struct back {
  const attention_job *j;
  smx_scratch scratch;
  _Atomic int64_t wrong; /* the first element of winners that is no key */
} back;

/* The tensors of one key/value head, and sums for them. */
typedef struct head_sums {
  attn_head h;
  double *dk, *dv, *dq, *q, *key, *d_o;
} head_sums;

static void load_row(const attn_rows *m, int64_t i, int64_t g, int64_t n, double *to) {
  smx_isa_current()->f64.io->load((row_store)m->store, m->data + i * m->step + g * m->head, m->stride,
                                  (size_t)n, to);
}

/* Adds ds to the gradient of the row of q; dk gets the opposite. Differences are those of the
 * forward call, in its arithmetic. */
static void score_gradient(const attention_job *j, const head_sums *s, int64_t key, double ds) {
  const int64_t d = j->call.d;
  double most = 0, least = 0, *dk = s->dk + key * d;
  int64_t top = 0, low = 0;
  load_row(&s->h.k, key, 0, d, s->key);
  for (int64_t a = 0; a < d; a++) {
    const double t = j->real_bytes == 8 ? s->q[a] - s->key[a] : (double)((float)s->q[a] - (float)s->key[a]);
    if (a == 0 || t > most) most = t, top = a;
    if (a == 0 || t < least) least = t, low = a;
  }
  for (int64_t a = 0; a < d; a++) {
    double g = j->call.symmetric ? (a == low) - (a == top) : (a == low ? (double)d : 0) - 1;
    s->dq[a] += g * ds, dk[a] -= g * ds;
  }
}

static int32_t winner_at(const attn_rows *m, int64_t i, int64_t g, int64_t x) {
  int32_t key;
  memcpy(&key, m->data + i * m->step + g * m->head + x * m->stride * (int64_t)sizeof key, sizeof key);
  return key;
}

/* Looks for the first winner of a head that is no key of it. */
static void check_task(void *arg, int64_t at) {
  back *w = arg;
  const attention_job *j = w->j;
  const int64_t b = at / j->kv_heads, kv = at % j->kv_heads, e = j->call.e;
  const attn_head h = attention_head(j, b, kv);
  for (int64_t r = 0; r < h.groups * h.lq * e; r++) {
    const int64_t g = r / e / h.lq, i = r / e % h.lq, x = r % e;
    const int32_t key = winner_at(&h.winners, i, g, x);
    if (key < -1 || key >= h.lk)
      smx_keep_least(&w->wrong, ((b * j->heads + kv * h.groups + g) * j->lq + i) * e + x);
  }
}

static void row_gradient(const back *w, const head_sums *s, int64_t i, int64_t g, void *buffer) {
  const attention_job *j = w->j;
  const int64_t d = j->call.d, e = j->call.e;
  load_row(&s->h.q, i, g, d, s->q), load_row(&s->h.d_o, i, g, e, s->d_o);
  memset(s->dq, 0, (size_t)d * sizeof *s->dq);
  for (int64_t x = 0; x < e; x++) {
    const int32_t key = winner_at(&s->h.winners, i, g, x);
    if (key == -1) continue;
    s->dv[key * e + x] += s->d_o[x];
    score_gradient(j, s, key, s->d_o[x]);
  }
  const attn_rows *to = &s->h.dq;
  if (to->data)
    attention_store(j, to->data + i * to->step + g * to->head, to->stride, j->dq.dtype, s->dq, d, buffer);
}

static void store_keys(const attention_job *j, const attn_rows *to, const smx_view *v, double *sums,
                       int64_t keys, int64_t n, double *row, void *buffer) {
  for (int64_t i = 0; to->data && i < keys; i++) {
    memcpy(row, sums + i * n, (size_t)n * sizeof *row);
    attention_store(j, to->data + i * to->step, to->stride, v->dtype, row, n, buffer);
  }
}

static void head_task(void *arg, int64_t at) {
  back *w = arg;
  const attention_job *j = w->j;
  const int64_t b = at / j->kv_heads, kv = at % j->kv_heads, d = j->call.d, e = j->call.e;
  head_sums s = {.h = attention_head(j, b, kv)};
  const int64_t keys = attention_room(j, b), room = ATTN_MAX_HEAD + 64;
  double *memory = smx_scratch_take(&w->scratch);
  memset(memory, 0, (size_t)(keys * (d + e) + 5 * room) * sizeof *memory);
  double *buffer = memory + 4 * room;
  s.q = memory, s.key = memory + room, s.d_o = memory + 2 * room, s.dq = memory + 3 * room;
  s.dk = memory + 5 * room, s.dv = s.dk + keys * d;
  for (int64_t g = 0; g < s.h.groups; g++)
    for (int64_t i = 0; i < s.h.lq; i++) row_gradient(w, &s, i, g, buffer);
  store_keys(j, &s.h.dk, &j->dk, s.dk, keys, d, s.dq, buffer);
  store_keys(j, &s.h.dv, &j->dv, s.dv, keys, e, s.dq, buffer);
  smx_scratch_give(&w->scratch, memory);
}

smx_status smx_attention_tropical_backward(smx_context *ctx, const smx_attention_options *options,
                                           int32_t symmetric, const smx_tensor *q, const smx_tensor *k,
                                           const smx_tensor *v, const smx_tensor *winners,
                                           const smx_tensor *d_o, const smx_tensor *dq, const smx_tensor *dk,
                                           const smx_tensor *dv) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_tropical_backward", ctx)) return SMX_ERR_NOMEM;
  back w = {.j = j, .wrong = -1};
  smx_status status = check(j, options, symmetric, q, k, v);
  if (status == SMX_OK) status = attention_check_d_o(j, d_o);
  if (status == SMX_OK) status = check_winners(j, winners, &j->winners);
  if (status == SMX_OK) status = attention_check_gradients(j, dq, dk, dv);
  if (status != SMX_OK || !attention_writes(j)) return status;
  /* of the longest sequence */
  const int64_t cells = j->lk * (j->call.d + j->call.e) + 5 * (ATTN_MAX_HEAD + 64);
  smx_parallel(ctx, j->batch * j->kv_heads, check_task, &w);
  if (atomic_load(&w.wrong) >= 0)
    return smx_fail(SMX_ERR_TARGET, "%s: winners: element %lld is no key", j->name,
                    (long long)atomic_load(&w.wrong));
  if (!smx_scratch_open(&w.scratch, ctx, 0, (size_t)cells * sizeof(double), j->batch * j->kv_heads))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for the gradients of keys", j->name);
  smx_parallel(ctx, j->batch * j->kv_heads, head_task, &w);
  smx_scratch_close(&w.scratch);
  return SMX_OK;
}
