/* driver/score_block.c - what the functions share that compute attention by score blocks. Each
 * product is a call of the engine behind smx_attention_scores or smx_attention_apply; dk and dv add
 * blocks of rows in double, query heads in order. */
#include "score_block.h"
#include "operator.h"
#include <string.h>

/* PAIRS: scores stored at a time in a forward call, for each thread up to SHARES: blocks that the
 * second-level cache holds. ROWS: rows of a block in a backward call. */
enum { PAIRS = 1 << 18, SHARES = 8, ROWS = 256, ROOM = 64 };

smx_view score_block_view(const attention_job *j, char *data, int64_t rows, int64_t columns,
                          bool transposed) {
  smx_view v = {.data = data,
                .dtype = j->real_bytes == 8 ? SMX_F64 : SMX_F32,
                .ndim = 4,
                .shape = {1, 1, rows, columns}};
  v.strides[2] = transposed ? 1 : columns, v.strides[3] = transposed ? rows : 1;
  return v;
}

/* ---- products ---- */

/* A copy of a call, and one without masks, bias and options. */
static attention_job *whole(const block_job *m, const attention_job *p) {
  *m->inner = *p;
  return m->inner;
}
static attention_job *bare(const block_job *m, const attention_job *p) {
  attention_job *const n = whole(m, p);
  n->mask.data = n->bias.data = n->slopes.data = n->sinks.data = n->lse.data = NULL;
  n->call.causal = false, n->call.left = n->call.right = -1;
  n->call.softcap = n->call.dropout = 0;
  return n;
}

smx_status score_block_lay_out(const block_job *m, const attention_job *p, smx_attention_stage stage,
                               char *x) {
  attention_job *const n = stage == SMX_ATTENTION_SCORES ? whole(m, p) : bare(m, p);
  n->call.softcap = p->call.softcap;
  n->v = n->k, n->call.e = n->call.d;
  n->scores = score_block_view(p, x, p->lq, p->lk, false);
  return attention_run(n);
}

smx_status score_block_products(const block_job *m, const attention_job *p, const smx_view *a,
                                const smx_view *b, char *x) {
  attention_job *const n = bare(m, p);
  n->q = *a, n->k = n->v = *b;
  n->call.d = n->call.e = b->shape[3], n->call.scale = 1;
  n->scores = score_block_view(p, x, p->lq, p->lk, false);
  return attention_run(n);
}

smx_status score_block_weighted(const block_job *m, const attention_job *p, char *w, bool transposed,
                                const smx_view *b, const smx_view *out) {
  attention_job *const n = bare(m, p);
  const int64_t rows = transposed ? p->lk : p->lq, columns = transposed ? p->lq : p->lk;
  n->call.weights = SMX_ATTENTION_IDENTITY, n->call.e = b->shape[3], n->call.d = 1;
  n->given = score_block_view(p, w, rows, columns, transposed);
  if (!m->all_visible) n->mask = n->given, n->mask.data = m->visible, n->mask.dtype = SMX_BOOL;
  n->q.data = n->k.data = NULL;
  n->v = *b, n->o = *out;
  n->lq = rows, n->lk = columns;
  if (transposed) n->key_start = 0;
  if (out != &p->o) n->call.on_empty = SMX_EMPTY_ZERO; /* of gradients */
  return attention_run(n);
}

static void add(const block_job *m, double *sums, int64_t n) {
  for (int64_t i = 0; i < n; i++) sums[i] += real_at(m->j, m->part, i);
}

smx_status score_block_add_transposed(const block_job *m, const attention_job *p, char *w, const smx_view *b,
                                      double *sums) {
  const int64_t columns = b->shape[3];
  const smx_view out = score_block_view(p, m->part, p->lk, columns, false);
  smx_status status = score_block_weighted(m, p, w, true, b, &out);
  if (status == SMX_OK) add(m, sums, p->lk * columns);
  return status;
}

/* ---- the operator on a score block ---- */

static void open_score_block(block_job *m, const attention_job *p) {
  score_block *const s = &m->block;
  const smx_dtype real = m->j->real_bytes == 8 ? SMX_F64 : SMX_F32;
  *s = (score_block){.shape = {p->lq, p->lk}};
  const smx_tensor full = {.data = m->z, .device = {1, 0}, .ndim = 2, .dtype = real, .shape = s->shape};
  s->x = s->mask = s->dy = s->dx = full;
  s->mask.data = m->visible, s->mask.dtype = SMX_BOOL;
  s->dy.data = m->dy, s->dx.data = m->dz;
  s->in[0] = &s->x, s->dout[0] = &s->dy, s->din[0] = &s->dx;
  for (int32_t i = 1; i < m->op->input_count; i++)
    if (m->op->inputs[i].flags & SMX_PORT_MASK) s->in[i] = &s->mask;
  if (!m->row_port) return;
  s->row = s->drow =
      (smx_tensor){.data = m->row_values, .device = {1, 0}, .ndim = 1, .dtype = real, .shape = s->shape};
  s->in[m->row_port] = &s->row, s->drow.data = m->row_changes;
  if (m->row_changes) s->din[m->row_port] = &s->drow;
}

static smx_status run_operator(block_job *m) {
  score_block *const s = &m->block;
  smx_shape shapes[SMX_MAX_PORTS];
  smx_status status =
      operator_infer(m->op, &m->params, m->op->input_count, s->in, m->op->output_count, shapes);
  for (int32_t i = 0; status == SMX_OK && i < m->op->output_count; i++) {
    if (!m->y[i]) continue;
    for (int32_t d = 0; d < shapes[i].ndim; d++) s->dims[i][d] = shapes[i].dim[d];
    s->y[i] = (smx_tensor){.data = m->y[i],
                           .device = {1, 0},
                           .ndim = shapes[i].ndim,
                           .dtype = shapes[i].dtype,
                           .shape = s->dims[i]};
    s->out[i] = s->y + i;
  }
  if (status == SMX_OK)
    status = operator_forward(m->op, m->j->ctx, &m->params, m->op->input_count, s->in, m->op->output_count,
                              s->out);
  return status;
}

typedef float four_floats __attribute__((vector_size(16)));
typedef int32_t four_signs __attribute__((vector_size(16)));
/* Whether none of n scores, a multiple of 4, is -inf. */
static bool all_seen(const float *z, int64_t n) {
  four_signs hidden = {0};
  for (int64_t i = 0; i < n; i += 4) {
    four_floats x;
    memcpy(&x, z + i, sizeof x);
    hidden |= x == -__builtin_inff();
  }
  return !(hidden[0] | hidden[1] | hidden[2] | hidden[3]);
}

/* Marks visible pairs: those whose score is not -inf. */
static void note_visible(block_job *m, const attention_job *p) {
  enum { SOME = 256 };
  const float *f = (const float *)(const void *)m->z;
  const double *d = (const double *)(const void *)m->z;
  const int64_t pairs = p->lq * p->lk;
  m->all_visible = true;
  for (int64_t first = 0; first < pairs; first += SOME) {
    const int64_t end = first + SOME < pairs ? first + SOME : pairs;
    if (p->real_bytes == 4 && end == first + SOME && all_seen(f + first, SOME)) {
      memset(m->visible + first, 1, SOME);
      continue;
    }
    for (int64_t i = first; i < end; i++) {
      m->visible[i] = p->real_bytes == 4 ? f[i] != -__builtin_inff() : d[i] != -__builtin_inf();
      m->all_visible = m->all_visible && m->visible[i];
    }
  }
}

smx_status score_block_weights(block_job *m, const attention_job *p) {
  smx_status status =
      m->steps->scores ? m->steps->scores(m, p) : score_block_lay_out(m, p, SMX_ATTENTION_SCORES, m->z);
  if (status != SMX_OK) return status;
  note_visible(m, p);
  open_score_block(m, p);
  return run_operator(m);
}

void score_block_drop(const attention_job *p, char *x) {
  for (int64_t i = 0; p->call.dropout > 0 && i < p->lq; i++)
    p->kernels->drop(&p->call, p->stream, p->query_start + i, p->key_start, p->lk,
                     x + i * p->lk * p->real_bytes);
}

/* ---- gradients ---- */

smx_status score_block_upstream(const block_job *m, const attention_job *p) {
  smx_status status = score_block_products(m, p, &p->d_o, &p->v, m->dy);
  for (int64_t i = 0; status == SMX_OK && i < p->lq * p->lk; i++)
    if (!m->visible[i]) put_real(p, m->dy, i, 0);
  if (status == SMX_OK) score_block_drop(p, m->dy);
  return status;
}

smx_status score_block_gradient(const block_job *m, const attention_job *p) {
  const score_block *const s = &m->block;
  return operator_backward(m->op, p->ctx, &m->params, m->op->input_count, s->in, m->op->output_count, s->out,
                           s->dout, s->din);
}

smx_status score_block_to_products(const block_job *m, const attention_job *p) {
  const double cap = p->call.softcap, scale = p->call.scale;
  smx_status status = cap > 0 ? score_block_lay_out(m, p, SMX_ATTENTION_CAPPED, m->cap) : SMX_OK;
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < p->lq * p->lk; i++) {
    const double ratio = cap > 0 ? real_at(p, m->cap, i) / cap : 0;
    put_real(p, m->dz, i, m->visible[i] ? real_at(p, m->dz, i) * (1 - ratio * ratio) * scale : 0);
  }
  return SMX_OK;
}

static void store_keys(const block_job *m, const smx_view *to, const double *sums, int64_t keys) {
  const int64_t columns = to->shape[3], bytes = smx_dtype_bytes(to->dtype);
  for (int64_t i = 0; i < keys && to->data; i++) {
    memcpy(m->row, sums + i * columns, (size_t)columns * sizeof *m->row);
    attention_store(m->j, to->data + i * to->strides[2] * bytes, to->strides[3], to->dtype, m->row, columns,
                    m->buffer);
  }
}

/* Keys beyond the length of a sequence have gradient 0. */
static void clear_rest(const block_job *m, const smx_view *v, int64_t b, int64_t kv, int64_t from) {
  const attention_job *j = m->j;
  static const double zeros[ATTN_MAX_HEAD + ROOM];
  const int64_t row = j->key_offsets.data ? attention_int(&j->key_offsets, b) : 0;
  const attn_rows to = attention_rows_of(v, j->key_offsets.data ? 0 : b, kv, row);
  for (int64_t i = from; to.data && i < attention_room(j, b); i++)
    attention_store(j, to.data + i * to.step, to.stride, v->dtype, zeros, v->shape[3], m->buffer);
}

/* ---- all parts ---- */

/* Queries that see no key at all have gradient 0. */
static smx_status clear_queries(const block_job *m, const attention_job *p) {
  const smx_view *outs[] = {&p->dq, &p->dr};
  smx_status status = SMX_OK;
  for (int i = 0; i < 2 && status == SMX_OK; i++)
    if (outs[i]->data) status = score_block_weighted(m, p, m->dz, false, &p->k, outs[i]);
  return status;
}

static smx_status run_head(block_job *m, int64_t b, int64_t kv, bool backward) {
  attention_job *j = m->j, *const p = m->part_job;
  const int64_t groups = j->heads / j->kv_heads, lq = attention_queries(j, b), lk = attention_keys(j, b);
  smx_status status = SMX_OK;
  if (m->dk) memset(m->dk, 0, (size_t)(lk * j->call.d) * sizeof *m->dk);
  if (m->dv) memset(m->dv, 0, (size_t)(lk * j->call.e) * sizeof *m->dv);
  if (m->steps->open) m->steps->open(m, b, kv);
  for (int64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < lq && status == SMX_OK; i += m->rows) {
      attention_part(j, b, kv * groups + g, i, lq - i < m->rows ? lq - i : m->rows, p);
      m->sequence = b, m->head = kv * groups + g, m->first = i;
      if (!backward) status = m->steps->forward(m, p);
      else if (p->lk) status = m->steps->backward(m, p);
      else status = clear_queries(m, p);
    }
  if (!backward || status != SMX_OK) return status;
  attention_part(j, b, kv * groups, 0, 0, p);
  store_keys(m, &p->dk, m->dk, lk), store_keys(m, &p->dv, m->dv, lk);
  clear_rest(m, &j->dk, b, kv, lk), clear_rest(m, &j->dv, b, kv, lk);
  return SMX_OK;
}

bool block_job_open(block_job *m, const char *name, smx_context *ctx, const block_job_steps *steps) {
  if (!attention_open(m ? m->room : NULL, name, ctx)) return false;
  m->j = m->room, m->part_job = m->room + 1, m->inner = m->room + 2;
  m->steps = steps;
  return true;
}

bool block_job_take(block_job *m, void *field, int64_t bytes) {
  void *p = smx_alloc(m->j->ctx, (size_t)bytes + ROOM * sizeof(double));
  memcpy(field, &p, sizeof p);
  m->owned[m->used++] = p;
  return p != NULL;
}

/* How many rows of scores a forward call stores at once. */
static void set_rows(block_job *m, bool backward) {
  const attention_job *j = m->j;
  const int32_t threads = smx_context_threads(j->ctx);
  const int64_t pairs = (int64_t)PAIRS * (threads < SHARES ? threads : SHARES);
  m->rows = backward || j->lk == 0 || pairs / j->lk < ROWS ? ROWS : pairs / j->lk;
  if (m->rows > j->lq) m->rows = j->lq;
}

static bool take_all(block_job *m, bool backward) {
  const attention_job *j = m->j;
  if (m->steps->take && !m->steps->take(m, backward)) return false;
  const int64_t pairs = m->rows * j->lk, most = j->call.d > j->call.e ? j->call.d : j->call.e;
  bool good = block_job_take(m, &m->z, pairs * j->real_bytes) && block_job_take(m, &m->visible, pairs);
  for (int32_t i = 0; i < m->op->output_count && good; i++)
    if (!(m->op->outputs[i].flags & SMX_PORT_OPTIONAL) ||
        (backward && (m->op->outputs[i].flags & SMX_PORT_SAVED)))
      good = block_job_take(m, &m->y[i], pairs * 8);
  if (good)
    good = block_job_take(m, &m->buffer, ATTN_MAX_HEAD * 8) && block_job_take(m, &m->row, ATTN_MAX_HEAD * 8);
  if (good) memset(m->row, 0, (ATTN_MAX_HEAD + ROOM) * sizeof *m->row);
  if (!backward || !good) return good;
  good = block_job_take(m, &m->dy, pairs * j->real_bytes) &&
         block_job_take(m, &m->dz, pairs * j->real_bytes) &&
         block_job_take(m, &m->part, j->lk * most * j->real_bytes);
  if (good && j->call.softcap > 0) good = block_job_take(m, &m->cap, pairs * j->real_bytes);
  if (good && j->dk.data) good = block_job_take(m, &m->dk, j->lk * j->call.d * 8);
  if (good && j->dv.data) good = block_job_take(m, &m->dv, j->lk * j->call.e * 8);
  return good;
}

static void give_back(block_job *m) {
  for (int i = 0; i < m->used; i++) smx_free(m->j->ctx, m->owned[i]);
}

/* Makes every call that the steps can make with some rows, with a purse that is measuring: each
 * stops when its memory is known. */
static void ask_part(block_job *m, const attention_job *p, bool backward) {
  const smx_view *keys_values[] = {&p->k, &p->v};
  const smx_view to = score_block_view(p, m->z, p->lq, p->call.e, false);
  score_block_lay_out(m, p, SMX_ATTENTION_SCORES, m->z);
  for (int i = 0; i < 2; i++) {
    score_block_products(m, p, &p->q, keys_values[i], m->z);
    score_block_weighted(m, p, m->z, false, keys_values[i], i ? &p->o : &to);
    if (backward) score_block_weighted(m, p, m->z, true, i ? &p->d_o : &p->q, &to);
  }
  open_score_block(m, p);
  run_operator(m);
  if (backward) score_block_gradient(m, p);
}

/* The same for every size of part that there is. */
static void ask_parts(block_job *m, bool backward) {
  const attention_job *j = m->j;
  int64_t rows = -1, keys = -1;
  for (int64_t b = 0; b < j->batch; b++) {
    const int64_t lq = attention_queries(j, b), lk = attention_keys(j, b);
    if (lq == 0 || (lq == rows && lk == keys)) continue;
    rows = lq, keys = lk;
    const int64_t rest = lq % m->rows;
    attention_part(j, b, 0, 0, lq < m->rows ? lq : m->rows, m->part_job);
    ask_part(m, m->part_job, backward);
    if (!rest || lq <= m->rows) continue;
    attention_part(j, b, 0, lq - rest, rest, m->part_job);
    ask_part(m, m->part_job, backward);
  }
}

static smx_status run_heads(block_job *m, bool backward) {
  attention_job *j = m->j;
  smx_status status = SMX_OK;
  for (int64_t at = 0; at < j->batch * j->kv_heads && status == SMX_OK; at++)
    status = run_head(m, at / j->kv_heads, at % j->kv_heads, backward);
  return status;
}

smx_status block_job_run(block_job *m, bool backward) {
  attention_job *j = m->j;
  smx_context *const ctx = j->ctx;
  smx_status status = SMX_OK;
  if (!j->kv_heads || !(m->writes_more || attention_writes(j))) return status;
  set_rows(m, backward);
  smx_context *purse = take_all(m, backward) ? smx_purse_open(ctx) : NULL;
  if (purse) j->ctx = purse, ask_parts(m, backward);
  if (purse && smx_purse_fill(purse)) status = run_heads(m, backward);
  else status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of scores", j->name, (long long)m->rows);
  j->ctx = ctx;
  smx_purse_close(purse);
  give_back(m);
  return status;
}

/* ---- arguments ---- */

/* *yes: whether the operator takes a score of -inf as an element that does not exist.
 * SMX_ERR_NOMEM, or SMX_OK. */
static smx_status hides(const smx_op *op, const smx_params *params, bool *yes) {
  double x[] = {0, -__builtin_inf()}, y[2] = {0};
  int64_t two = 2;
  smx_tensor in = {.data = x, .device = {1, 0}, .ndim = 1, .dtype = SMX_F64, .shape = &two}, out = in;
  const smx_tensor *ins[] = {&in}, *outs[] = {&out};
  out.data = y;
  for (int32_t i = 1; i < op->input_count; i++)
    if (op->inputs[i].flags & SMX_PORT_MASK) return *yes = true, SMX_OK;
  const smx_status status =
      op->output_count > 1 ? SMX_OK : operator_forward(op, NULL, params, 1, ins, 1, outs);
  *yes = op->output_count > 1 || status != SMX_OK || y[0] == y[0];
  return status == SMX_ERR_NOMEM ? status : SMX_OK;
}

smx_status score_block_check(block_job *m, const smx_attention_options *options, const smx_op *op,
                             const smx_params *params, const smx_tensor *q, const smx_tensor *k,
                             const smx_tensor *v) {
  attention_job *j = m->j;
  smx_status status = attention_check(j, options, q, k, v);
  if (status != SMX_OK) return status;
  m->op = op ? op : smx_op_find("softmax");
  if (j->call.weights != SMX_ATTENTION_SOFTMAX || j->sinks.data)
    return smx_fail(SMX_ERR_PARAM, "%s: %s is not possible%s", j->name,
                    j->sinks.data ? "sinks" : "options.weights",
                    op ? " beside op" : " here: weights are those of softmax");
  const smx_port *x = m->op->inputs, *y = m->op->outputs;
  if (x->shape != SMX_SHAPE_FULL || y->shape != SMX_SHAPE_FULL ||
      (x->flags & (SMX_PORT_EITHER | SMX_PORT_INT)) || (y->flags & SMX_PORT_INT))
    return smx_fail(SMX_ERR_PARAM, "%s: op is %s, which does not make a row of weights of a row of scores",
                    j->name, m->op->name);
  status = smx_params_init(m->op, &m->params);
  if (status == SMX_OK && params) m->params = *params, m->params.axis = -1;
  bool hidden = true;
  if (status == SMX_OK) status = hides(m->op, &m->params, &hidden);
  if (!hidden)
    return smx_fail(SMX_ERR_PARAM, "%s: op is %s, which takes a hidden key for the best one (scores of -inf)",
                    j->name, m->op->name);
  return status;
}

smx_status score_block_check_output(block_job *m, const smx_tensor *o) {
  attention_job *j = m->j;
  return attention_output(j, "o", o, 4, (int64_t[]){j->q.shape[0], j->heads, j->lq, j->call.e}, &j->o);
}

smx_status score_block_check_gradients(block_job *m, const smx_tensor *d_o, const smx_tensor *dq,
                                       const smx_tensor *dk, const smx_tensor *dv) {
  attention_job *j = m->j;
  if (!(m->op->flags & SMX_OP_BACKWARD))
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: op is %s, which has no gradient", j->name, m->op->name);
  const smx_status status = attention_check_d_o(j, d_o);
  return status == SMX_OK ? attention_check_gradients(j, dq, dk, dv) : status;
}
