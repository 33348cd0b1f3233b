/* attention/driver_additive.c - attention with additive scores, z_ij = sum_c u_c tanh(q_ic + k_jc).
 * The scores of some rows at a time are handed to the engine as the bias of queries and keys that
 * are 0. The engine adds ALiBi and hides keys; the rest is attention by score blocks. */
#include "base/enter.h"
#include "driver/score_block.h"
#include <string.h>

enum { CHUNK = 8 }; /* rows of a task */

typedef struct adding {
  block_job m;
  char *u, *q, *keys;   /* of the part and of its key/value head, reals: [d], [rows][d], [d][pitch] */
  char *raw, *bias;     /* scores as they are, [rows][lk]; a row of the bias */
  char *du, *dq, *dk;   /* gradients of a part, like u, q and keys */
  double *sums;         /* of u: [B][Hq][d] */
  attn_additive scores; /* of the part */
} adding;

static const dtype_io *dtype_io_of(const attention_job *j) {
  return j->real_bytes == 8 ? smx_isa_current()->f64.io : smx_isa_current()->f32.io;
}

/* Row i of a view [.., rows, n] of one head as reals. */
static void load_reals(const attention_job *j, const smx_view *v, int64_t i, int64_t n, char *to) {
  const int32_t last = v->ndim - 1;
  const char *from = v->data + i * v->strides[last - 1] * smx_dtype_bytes(v->dtype);
  dtype_io_of(j)->load(row_store_of(v->dtype), from, (ptrdiff_t)v->strides[last], (size_t)n, to);
}

/* The keys of a head transposed, those of a paged cache in their logical order. */
static void open_head(block_job *m, int64_t b, int64_t kv) {
  adding *w = (adding *)(void *)m;
  const attention_job *j = m->j;
  const attn_head h = attention_head(j, b, kv);
  const int64_t d = j->call.d, bytes = j->real_bytes;
  char *const row = (char *)m->row;
  for (int64_t i = 0; i < h.lk; i++) {
    dtype_io_of(j)->load((row_store)h.k.store, attention_key(&h, i), h.k.stride, (size_t)d, row);
    for (int64_t c = 0; c < d; c++)
      memcpy(w->keys + (c * w->scores.pitch + i) * bytes, row + c * bytes, (size_t)bytes);
  }
}

static void score_rows(void *arg, int64_t at) {
  const adding *w = arg;
  const attention_job *j = w->m.j;
  attn_additive t = w->scores;
  const int64_t first = at * CHUNK;
  t.q = w->q + first * t.d * j->real_bytes, t.z = w->raw + first * t.keys * j->real_bytes;
  t.rows = t.rows - first < CHUNK ? t.rows - first : CHUNK;
  j->kernels->additive->forward(&t);
}

/* The caller's bias; its -inf hides the pair. */
static void add_bias(const adding *w, const attention_job *p) {
  const double hidden = -__builtin_inf();
  for (int64_t i = 0; i < p->lq; i++) {
    load_reals(p, &p->bias, i, p->lk, w->bias);
    for (int64_t j = 0, at = i * p->lk; j < p->lk; j++, at++) {
      const double bias = real_at(p, w->bias, j);
      put_real(p, w->raw, at, bias == hidden ? hidden : real_at(p, w->raw, at) + bias);
    }
  }
}

static void open_part(adding *w, const attention_job *p) {
  const int64_t d = p->call.d;
  load_reals(p, &p->u, 0, d, w->u);
  for (int64_t i = 0; i < p->lq; i++) load_reals(p, &p->q, i, d, w->q + i * d * p->real_bytes);
  w->scores.rows = p->lq, w->scores.keys = p->lk;
}

static smx_status lay_out(block_job *m, const attention_job *p) {
  static const double zero = 0;
  adding *w = (adding *)(void *)m;
  open_part(w, p);
  smx_parallel(p->ctx, (p->lq + CHUNK - 1) / CHUNK, score_rows, w);
  if (p->bias.data) add_bias(w, p);
  attention_job *const n = m->inner;
  *n = *p;
  n->q = n->k = score_block_view(p, (char *)(uintptr_t)&zero, p->lq, 1, false);
  n->k.shape[2] = p->lk;
  n->q.strides[2] = n->q.strides[3] = n->k.strides[2] = n->k.strides[3] = 0;
  n->v = n->k, n->call.d = n->call.e = 1;
  n->lengths.data = n->block_table.data = NULL;
  n->bias = score_block_view(p, w->raw, p->lq, p->lk, false);
  n->scores = score_block_view(p, m->z, p->lq, p->lk, false);
  return attention_run(n);
}

static smx_status forward_part(block_job *m, const attention_job *p) {
  smx_status status = p->lk ? score_block_weights(m, p) : SMX_OK;
  if (status == SMX_OK) score_block_drop(p, m->y[0]);
  return status == SMX_OK ? score_block_weighted(m, p, m->y[0], false, &p->v, &p->o) : status;
}

/* ---- gradients ---- */

static void column_gradient(void *arg, int64_t column) {
  const adding *w = arg;
  w->m.j->kernels->additive->backward(&w->scores, column);
}

/* Those of u, q and k from that of the scores, dz. */
static void score_gradients(adding *w, const attention_job *p) {
  block_job *m = &w->m;
  const int64_t d = p->call.d, pitch = w->scores.pitch;
  double *const row = m->row, *const sums = w->sums + (m->sequence * m->j->heads + m->head) * d;
  for (int64_t i = 0; i < p->lq * p->lk; i++)
    if (!m->visible[i]) put_real(p, m->dz, i, 0);
  memset(w->du, 0, (size_t)(d * p->real_bytes)), memset(w->dk, 0, (size_t)(d * pitch * p->real_bytes));
  w->scores.z = m->dz, w->scores.du = w->du, w->scores.dq = w->dq, w->scores.dk = w->dk;
  smx_parallel(p->ctx, d, column_gradient, w);
  for (int64_t i = 0; p->dq.data && i < p->lq; i++) {
    for (int64_t c = 0; c < d; c++) row[c] = real_at(p, w->dq, i * d + c);
    attention_store(p, p->dq.data + i * p->dq.strides[2] * smx_dtype_bytes(p->dq.dtype), p->dq.strides[3],
                    p->dq.dtype, row, d, m->buffer);
  }
  for (int64_t c = 0; c < d; c++) {
    sums[c] += real_at(p, w->du, c);
    for (int64_t i = 0; m->dk && i < p->lk; i++) m->dk[i * d + c] += real_at(p, w->dk, c * pitch + i);
  }
}

static smx_status backward_part(block_job *m, const attention_job *p) {
  smx_status status = score_block_weights(m, p);
  if (status == SMX_OK) status = score_block_upstream(m, p);
  if (status == SMX_OK) status = score_block_gradient(m, p);
  if (status != SMX_OK) return status;
  score_gradients((adding *)(void *)m, p);
  score_block_drop(p, m->y[0]);
  return p->dv.data ? score_block_add_transposed(m, p, m->y[0], &p->d_o, m->dv) : SMX_OK;
}

/* ---- arguments ---- */

static bool take(block_job *m, bool backward) {
  adding *w = (adding *)(void *)m;
  const attention_job *j = m->j;
  const int64_t d = j->call.d, real = j->real_bytes,
                pitch = (j->lk + ATTN_PANEL - 1) / ATTN_PANEL * ATTN_PANEL;
  w->scores.d = d, w->scores.pitch = pitch;
  bool good = block_job_take(m, &w->u, d * real) && block_job_take(m, &w->q, m->rows * d * real) &&
              block_job_take(m, &w->keys, d * pitch * real) &&
              block_job_take(m, &w->raw, m->rows * j->lk * real) && block_job_take(m, &w->bias, j->lk * real);
  if (good) memset(w->keys, 0, (size_t)(d * pitch * real));
  w->scores.u = w->u, w->scores.q = w->q, w->scores.k = w->keys;
  if (!good || !backward) return good;
  good = block_job_take(m, &w->du, d * real) && block_job_take(m, &w->dq, m->rows * d * real) &&
         block_job_take(m, &w->dk, d * pitch * real);
  return good;
}

static const block_job_steps steps = {
    .scores = lay_out, .forward = forward_part, .backward = backward_part, .open = open_head, .take = take};

static smx_status check(adding *w, const smx_attention_options *options, const smx_tensor *u,
                        const smx_tensor *q, const smx_tensor *k, const smx_tensor *v) {
  attention_job *j = w->m.j;
  smx_status status = score_block_check(&w->m, options, NULL, NULL, q, k, v);
  if (status == SMX_OK && options && (options->scale != 0 || options->softcap != 0))
    return smx_fail(SMX_ERR_PARAM, "%s: options.%s is %g, which is not possible with additive scores",
                    j->name, options->scale != 0 ? "scale" : "softcap",
                    options->scale != 0 ? options->scale : options->softcap);
  if (status == SMX_OK && !u) status = smx_fail(SMX_ERR_NULL, "%s: u is NULL", j->name);
  return status == SMX_OK
             ? attention_broadcast(j, "u", u, FLOATS, 3, (int64_t[]){j->batch, j->heads, j->call.d}, &j->u)
             : status;
}

smx_status smx_attention_additive(smx_context *ctx, const smx_attention_options *options, const smx_tensor *u,
                                  const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                  const smx_tensor *o) {
  SMX_ENTER(ctx);
  SMX_OWN(adding, w, ctx);
  if (!block_job_open(w ? &w->m : NULL, "smx_attention_additive", ctx, &steps)) return SMX_ERR_NOMEM;
  smx_status status = check(w, options, u, q, k, v);
  if (status == SMX_OK) status = score_block_check_output(&w->m, o);
  return status == SMX_OK ? block_job_run(&w->m, false) : status;
}

static void store_sums(const adding *w, const smx_view *du, void *buffer) {
  const attention_job *j = w->m.j;
  const int64_t d = j->call.d;
  double row[ATTN_MAX_HEAD + ATTN_PANEL] = {0};
  for (int64_t i = 0; i < j->batch * j->heads; i++) {
    char *to = du->data +
               (i / j->heads * du->strides[0] + i % j->heads * du->strides[1]) * smx_dtype_bytes(du->dtype);
    memcpy(row, w->sums + i * d, (size_t)d * sizeof *row);
    attention_store(j, to, du->strides[2], du->dtype, row, d, buffer);
  }
}

smx_status smx_attention_additive_backward(smx_context *ctx, const smx_attention_options *options,
                                           const smx_tensor *u, const smx_tensor *q, const smx_tensor *k,
                                           const smx_tensor *v, const smx_tensor *d_o, const smx_tensor *du,
                                           const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  SMX_ENTER(ctx);
  SMX_OWN(adding, w, ctx);
  if (!block_job_open(w ? &w->m : NULL, "smx_attention_additive_backward", ctx, &steps)) return SMX_ERR_NOMEM;
  attention_job *const j = w->m.j;
  smx_view to = {0};
  smx_status status = check(w, options, u, q, k, v);
  if (status == SMX_OK) status = score_block_check_gradients(&w->m, d_o, dq, dk, dv);
  if (status == SMX_OK && du)
    status = attention_output(j, "du", du, 3, (int64_t[]){j->batch, j->heads, j->call.d}, &to);
  if (status != SMX_OK) return status;
  const size_t sums = (size_t)(j->batch * j->heads * j->call.d), room = ATTN_MAX_HEAD + ATTN_PANEL;
  w->sums = smx_alloc(ctx, (sums + room) * sizeof *w->sums);
  if (!w->sums) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for the gradient of u", j->name);
  memset(w->sums, 0, sums * sizeof *w->sums);
  w->m.writes_more = to.data != NULL;
  status = block_job_run(&w->m, true);
  if (status == SMX_OK && to.data) store_sums(w, &to, w->sums + sums);
  smx_free(ctx, w->sums);
  return status;
}
