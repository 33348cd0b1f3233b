/* api/attention_sheet.c - what the kinds of attention by sheets share. Each product is the engine of smx_attention_scores or of smx_attention_apply; dk
 * and dv add up blocks of rows in double, query heads in order. */
#include "attention_sheet.h"
#include "cpu/fpenv.h"
#include <string.h>

/* PAIRS: scores laid out at a time going forward, for each thread up to SHARES: sheets that the second-level cache holds. ROWS: rows going back. */
enum { PAIRS = 1 << 18, SHARES = 8, ROWS = 256, ROOM = 64 };

smx_view sheet_view(const attention_job *j, char *data, int64_t rows, int64_t columns, bool turned) {
  smx_view v = {.data = data, .dtype = j->real_bytes == 8 ? SMX_F64 : SMX_F32, .ndim = 4, .shape = {1, 1, rows, columns}};
  v.strides[2] = turned ? 1 : columns, v.strides[3] = turned ? rows : 1;
  return v;
}

/* ---- products ---- */

/* A call without anything but its tensors. */
static attention_job bare(const attention_job *p) {
  attention_job n = *p;
  n.mask.data = n.bias.data = n.slopes.data = n.sinks.data = n.lse.data = NULL;
  n.call.causal = false, n.call.left = n.call.right = -1;
  n.call.softcap = n.call.dropout = 0;
  return n;
}

smx_status sheet_lay_out(const attention_job *p, smx_attention_stage stage, char *x) {
  attention_job n = stage == SMX_ATTENTION_SCORES ? *p : bare(p);
  n.call.softcap = p->call.softcap;
  n.v = n.k, n.call.e = n.call.d;
  n.scores = sheet_view(p, x, p->lq, p->lk, false);
  return attention_run(&n);
}

smx_status sheet_products(const attention_job *p, const smx_view *a, const smx_view *b, char *x) {
  attention_job n = bare(p);
  n.q = *a, n.k = n.v = *b;
  n.call.d = n.call.e = b->shape[3], n.call.scale = 1;
  n.scores = sheet_view(p, x, p->lq, p->lk, false);
  return attention_run(&n);
}

smx_status sheet_weighted(const making *m, const attention_job *p, char *w, bool turned, const smx_view *b, const smx_view *out) {
  attention_job n = bare(p);
  const int64_t rows = turned ? p->lk : p->lq, columns = turned ? p->lq : p->lk;
  n.call.weights = SMX_ATTENTION_IDENTITY, n.call.e = b->shape[3], n.call.d = 1;
  n.given = sheet_view(p, w, rows, columns, turned);
  n.mask = n.given, n.mask.data = m->visible, n.mask.dtype = SMX_BOOL;
  n.q.data = n.k.data = NULL;
  n.v = *b, n.o = *out;
  n.lq = rows, n.lk = columns;
  if (turned) n.key_start = 0;
  if (out != &p->o) n.call.on_empty = SMX_EMPTY_ZERO; /* of gradients */
  return attention_run(&n);
}

static void add(const making *m, double *sums, int64_t n) {
  smx_fpenv env = smx_fpenv_enter();
  for (int64_t i = 0; i < n; i++) sums[i] += real_at(m->j, m->part, i);
  smx_fpenv_leave(env);
}

smx_status sheet_add_turned(const making *m, const attention_job *p, char *w, const smx_view *b, double *sums) {
  const int64_t columns = b->shape[3];
  const smx_view out = sheet_view(p, m->part, p->lk, columns, false);
  smx_status status = sheet_weighted(m, p, w, true, b, &out);
  if (status == SMX_OK) add(m, sums, p->lk * columns);
  return status;
}

/* ---- the operator on a sheet ---- */

static void open_sheet(const making *m, const attention_job *p, sheet *s) {
  const smx_dtype real = m->j->real_bytes == 8 ? SMX_F64 : SMX_F32;
  *s = (sheet){.shape = {p->lq, p->lk}};
  const smx_tensor full = {.data = m->z, .device = {1, 0}, .ndim = 2, .dtype = real, .shape = s->shape};
  s->x = s->mask = s->dy = s->dx = full;
  s->mask.data = m->visible, s->mask.dtype = SMX_BOOL;
  s->dy.data = m->dy, s->dx.data = m->dz;
  s->in[0] = &s->x, s->dout[0] = &s->dy, s->din[0] = &s->dx;
  for (int32_t i = 1; i < m->op->input_count; i++)
    if (m->op->inputs[i].flags & SMX_PORT_MASK) s->in[i] = &s->mask;
}

static smx_status run_operator(const making *m, sheet *s) {
  smx_shape shapes[SMX_MAX_PORTS];
  smx_status status = smx_infer(m->op, &m->params, m->op->input_count, s->in, m->op->output_count, shapes);
  for (int32_t i = 0; status == SMX_OK && i < m->op->output_count; i++) {
    if (!m->y[i]) continue;
    for (int32_t d = 0; d < shapes[i].ndim; d++) s->dims[i][d] = shapes[i].dim[d];
    s->y[i] = (smx_tensor){.data = m->y[i], .device = {1, 0}, .ndim = shapes[i].ndim, .dtype = shapes[i].dtype, .shape = s->dims[i]};
    s->out[i] = s->y + i;
  }
  if (status == SMX_OK) status = smx_forward(m->op, m->j->ctx, &m->params, m->op->input_count, s->in, m->op->output_count, s->out);
  return status;
}

/* Which pairs there are: those whose score is not -inf. */
static void note_visible(const making *m, const attention_job *p) {
  const float *f = (const float *)(const void *)m->z;
  const double *d = (const double *)(const void *)m->z;
  for (int64_t i = 0; p->real_bytes == 4 && i < p->lq * p->lk; i++) m->visible[i] = f[i] != -__builtin_inff();
  for (int64_t i = 0; p->real_bytes == 8 && i < p->lq * p->lk; i++) m->visible[i] = d[i] != -__builtin_inf();
}

smx_status sheet_weights(making *m, const attention_job *p, sheet *s) {
  smx_status status = m->steps->scores ? m->steps->scores(m, p) : sheet_lay_out(p, SMX_ATTENTION_SCORES, m->z);
  if (status != SMX_OK) return status;
  note_visible(m, p);
  open_sheet(m, p, s);
  return run_operator(m, s);
}

void sheet_drop(const attention_job *p, char *x) {
  smx_fpenv env = smx_fpenv_enter();
  for (int64_t i = 0; p->call.dropout > 0 && i < p->lq; i++)
    p->kernels->drop(&p->call, p->stream, p->query_start + i, p->key_start, p->lk, x + i * p->lk * p->real_bytes);
  smx_fpenv_leave(env);
}

/* ---- gradients ---- */

smx_status sheet_upstream(const making *m, const attention_job *p) {
  smx_status status = sheet_products(p, &p->d_o, &p->v, m->dy);
  for (int64_t i = 0; status == SMX_OK && i < p->lq * p->lk; i++)
    if (!m->visible[i]) put_real(p, m->dy, i, 0);
  if (status == SMX_OK) sheet_drop(p, m->dy);
  return status;
}

smx_status sheet_gradient(const making *m, const attention_job *p, sheet *s) {
  return smx_backward(m->op, p->ctx, &m->params, m->op->input_count, s->in, m->op->output_count, s->out, s->dout, s->din);
}

smx_status sheet_to_products(const making *m, const attention_job *p) {
  const double cap = p->call.softcap, scale = p->call.scale;
  smx_status status = cap > 0 ? sheet_lay_out(p, SMX_ATTENTION_CAPPED, m->cap) : SMX_OK;
  if (status != SMX_OK) return status;
  smx_fpenv env = smx_fpenv_enter();
  for (int64_t i = 0; i < p->lq * p->lk; i++) {
    const double ratio = cap > 0 ? real_at(p, m->cap, i) / cap : 0;
    put_real(p, m->dz, i, m->visible[i] ? real_at(p, m->dz, i) * (1 - ratio * ratio) * scale : 0);
  }
  smx_fpenv_leave(env);
  return SMX_OK;
}

static void store_keys(const making *m, const smx_view *to, const double *sums, int64_t keys) {
  const int64_t columns = to->shape[3], bytes = smx_dtype_bytes(to->dtype);
  double row[ATTN_MAX_HEAD + ROOM] = {0};
  for (int64_t i = 0; i < keys && to->data; i++) {
    memcpy(row, sums + i * columns, (size_t)columns * sizeof *row);
    attention_store(m->j, to->data + i * to->strides[2] * bytes, to->strides[3], to->dtype, row, columns, m->buffer);
  }
}

/* Keys beyond the length of a sequence have gradient 0. */
static void clear_rest(const making *m, const smx_view *v, int64_t b, int64_t kv, int64_t from) {
  const double zeros[ATTN_MAX_HEAD + ROOM] = {0};
  const int64_t bytes = smx_dtype_bytes(v->dtype);
  for (int64_t i = from; v->data && !m->j->key_offsets.data && i < v->shape[2]; i++)
    attention_store(m->j, v->data + (b * v->strides[0] + kv * v->strides[1] + i * v->strides[2]) * bytes, v->strides[3], v->dtype, zeros,
                    v->shape[3], m->buffer);
}

/* ---- all parts ---- */

/* Queries that see no key at all have gradient 0. */
static smx_status clear_queries(const making *m, const attention_job *p) {
  const smx_view *outs[] = {&p->dq, &p->dr};
  smx_status status = SMX_OK;
  for (int i = 0; i < 2 && status == SMX_OK; i++)
    if (outs[i]->data) status = sheet_weighted(m, p, m->dz, false, &p->k, outs[i]);
  return status;
}

static smx_status run_head(making *m, int64_t b, int64_t kv, bool backward) {
  attention_job *j = m->j;
  const int64_t groups = j->heads / j->kv_heads, lq = attention_queries(j, b), lk = attention_keys(j, b);
  smx_status status = SMX_OK;
  if (m->dk) memset(m->dk, 0, (size_t)(lk * j->call.d) * sizeof *m->dk);
  if (m->dv) memset(m->dv, 0, (size_t)(lk * j->call.e) * sizeof *m->dv);
  if (m->steps->open) m->steps->open(m, b, kv);
  for (int64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < lq && status == SMX_OK; i += m->rows) {
      attention_job p = attention_part(j, b, kv * groups + g, i, lq - i < m->rows ? lq - i : m->rows);
      m->sequence = b, m->head = kv * groups + g;
      if (!backward) status = m->steps->forward(m, &p);
      else if (p.lk) status = m->steps->backward(m, &p);
      else status = clear_queries(m, &p);
    }
  if (!backward || status != SMX_OK) return status;
  const attention_job p = attention_part(j, b, kv * groups, 0, 0);
  store_keys(m, &p.dk, m->dk, lk), store_keys(m, &p.dv, m->dv, lk);
  clear_rest(m, &j->dk, b, kv, lk), clear_rest(m, &j->dv, b, kv, lk);
  return SMX_OK;
}

bool making_take(making *m, void *field, int64_t bytes) {
  void *p = smx_alloc(m->j->ctx, (size_t)bytes + ROOM * sizeof(double));
  memcpy(field, &p, sizeof p);
  m->owned[m->used++] = p;
  return p != NULL;
}

/* How many rows are laid out at once, in scores going forward. */
static void set_rows(making *m, bool backward) {
  const attention_job *j = m->j;
  const int32_t threads = smx_context_threads(j->ctx);
  const int64_t pairs = (int64_t)PAIRS * (threads < SHARES ? threads : SHARES);
  m->rows = backward || j->lk == 0 || pairs / j->lk < ROWS ? ROWS : pairs / j->lk;
  if (m->rows > j->lq) m->rows = j->lq;
}

static bool take_all(making *m, bool backward) {
  const attention_job *j = m->j;
  if (m->steps->take && !m->steps->take(m, backward)) return false;
  const int64_t pairs = m->rows * j->lk, most = j->call.d > j->call.e ? j->call.d : j->call.e;
  bool good = making_take(m, &m->z, pairs * j->real_bytes) && making_take(m, &m->visible, pairs);
  for (int32_t i = 0; i < m->op->output_count && good; i++)
    if (!(m->op->outputs[i].flags & SMX_PORT_OPTIONAL) || (backward && (m->op->outputs[i].flags & SMX_PORT_SAVED)))
      good = making_take(m, &m->y[i], pairs * 8);
  if (good) good = making_take(m, &m->buffer, ATTN_MAX_HEAD * 8);
  if (!backward || !good) return good;
  good = making_take(m, &m->dy, pairs * j->real_bytes) && making_take(m, &m->dz, pairs * j->real_bytes) &&
         making_take(m, &m->part, j->lk * most * j->real_bytes);
  if (good && j->call.softcap > 0) good = making_take(m, &m->cap, pairs * j->real_bytes);
  if (good && j->dk.data) good = making_take(m, &m->dk, j->lk * j->call.d * 8);
  if (good && j->dv.data) good = making_take(m, &m->dv, j->lk * j->call.e * 8);
  return good;
}

static void give_back(making *m) {
  for (int i = 0; i < m->used; i++) smx_free(m->j->ctx, m->owned[i]);
}

smx_status making_run(making *m, bool backward) {
  attention_job *j = m->j;
  smx_status status = SMX_OK;
  if (!j->kv_heads) return status;
  set_rows(m, backward);
  if (!take_all(m, backward)) status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of scores", j->name, (long long)m->rows);
  for (int64_t at = 0; at < j->batch * j->kv_heads && status == SMX_OK; at++)
    status = run_head(m, at / j->kv_heads, at % j->kv_heads, backward);
  give_back(m);
  return status;
}

/* ---- arguments ---- */

/* Whether a score of -inf is to the operator an element that does not exist. */
static bool hides(const smx_op *op, const smx_params *params) {
  double x[] = {0, -__builtin_inf()}, y[2] = {0};
  int64_t two = 2;
  smx_tensor in = {.data = x, .device = {1, 0}, .ndim = 1, .dtype = SMX_F64, .shape = &two}, out = in;
  const smx_tensor *ins[] = {&in}, *outs[] = {&out};
  out.data = y;
  for (int32_t i = 1; i < op->input_count; i++)
    if (op->inputs[i].flags & SMX_PORT_MASK) return true;
  return op->output_count > 1 || smx_forward(op, NULL, params, 1, ins, 1, outs) != SMX_OK || y[0] == y[0];
}

smx_status sheet_check(making *m, const smx_attention_options *options, const smx_op *op, const smx_params *params, const smx_tensor *q,
                       const smx_tensor *k, const smx_tensor *v) {
  attention_job *j = m->j;
  smx_status status = attention_check(j, options, q, k, v);
  if (status != SMX_OK) return status;
  m->op = op ? op : smx_op_find("softmax");
  if (j->call.weights != SMX_ATTENTION_SOFTMAX || j->sinks.data)
    return smx_fail(SMX_ERR_PARAM, "%s: %s is not possible%s", j->name, j->sinks.data ? "sinks" : "options.weights",
                    op ? " beside op" : " here: weights are those of softmax");
  const smx_port *x = m->op->inputs, *y = m->op->outputs;
  if (!strcmp(m->op->family, "matrix") || x->shape != SMX_SHAPE_FULL || y->shape != SMX_SHAPE_FULL ||
      (x->flags & (SMX_PORT_EITHER | SMX_PORT_INT)) || (y->flags & SMX_PORT_INT))
    return smx_fail(SMX_ERR_PARAM, "%s: op is %s, which does not make a row of weights of a row of scores", j->name, m->op->name);
  status = smx_params_init(m->op, &m->params);
  if (status == SMX_OK && params) m->params = *params, m->params.axis = -1;
  if (status == SMX_OK && !hides(m->op, &m->params))
    return smx_fail(SMX_ERR_PARAM, "%s: op is %s, which takes a hidden key for the best one (scores of -inf)", j->name, m->op->name);
  return status;
}

smx_status sheet_check_output(making *m, const smx_tensor *o) {
  attention_job *j = m->j;
  return attention_output(j, "o", o, 4, (int64_t[]){j->q.shape[0], j->heads, j->lq, j->call.e}, &j->o);
}

smx_status sheet_check_gradients(making *m, const smx_tensor *d_o, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  attention_job *j = m->j;
  smx_status status = SMX_OK;
  if (!(m->op->flags & SMX_OP_BACKWARD))
    status = smx_fail(SMX_ERR_NO_BACKWARD, "%s: op is %s, which has no gradient", j->name, m->op->name);
  if (status == SMX_OK && j->block_table.data)
    status = smx_fail(SMX_ERR_NO_BACKWARD, "%s: no gradient for a paged cache (block_table)", j->name);
  if (status == SMX_OK)
    status = attention_tensor(j, "d_o", d_o, FLOATS, 4, (int64_t[]){j->q.shape[0], j->heads, j->lq, j->call.e}, &j->d_o);
  if (status == SMX_OK && dq) status = attention_output(j, "dq", dq, 4, j->q.shape, &j->dq);
  if (status == SMX_OK && dk) status = attention_output(j, "dk", dk, 4, j->k.shape, &j->dk);
  if (status == SMX_OK && dv) status = attention_output(j, "dv", dv, 4, j->v.shape, &j->dv);
  return status;
}
