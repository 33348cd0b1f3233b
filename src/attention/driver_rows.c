/* attention/driver_rows.c - attention whose weights are made by an operator on rows. The scores of
 * some rows of a head are stored as a matrix, the operator runs over it as over any array, and the
 * values are weighted with its result. The gradient goes the same way back:
 *
 *     dy = <do, v>,   dz = the operator's gradient,   ds = dz (derivative of the cap) scale
 *     dq = ds k,   dk = ds^T q,   dv = y^T do,   dbias = dz */
#include <string.h>

#include "base/enter.h"
#include "driver/score_block.h"
#include "driver_sums.h"

typedef struct rows_job {
  block_job m;
  smx_view row;               /* [B, Hq, Lq]; data NULL: none */
  sums bias, slopes, changes; /* changes: of row */
  void *buffer;               /* of sums_store */
} rows_job;

/* The number of row i of the part at hand along all rows of its axis. */
static int64_t row_of(const block_job *m, int64_t i) {
  const smx_view *offsets = &m->j->query_offsets;
  return m->first + i + (offsets->data ? attention_int(offsets, m->sequence) : 0);
}
static int64_t batch_of(const block_job *m) { return m->j->query_offsets.data ? 0 : m->sequence; }

static void load_rows(block_job *m, const attention_job *p) {
  const smx_view *v = &((const rows_job *)(const void *)m)->row;
  const dtype_io *io = p->real_bytes == 8 ? smx_isa_current()->f64.io : smx_isa_current()->f32.io;
  if (!v->data) return;
  const int64_t at = batch_of(m) * v->strides[0] + m->head * v->strides[1] + row_of(m, 0) * v->strides[2];
  io->load(row_store_of(v->dtype), v->data + at * smx_dtype_bytes(v->dtype), (ptrdiff_t)v->strides[2],
           (size_t)p->lq, m->row_values);
}

static smx_status forward_part(block_job *m, const attention_job *p) {
  load_rows(m, p);
  smx_status status = p->lk ? score_block_weights(m, p) : SMX_OK;
  if (status == SMX_OK) score_block_drop(p, m->y[0]);
  return status == SMX_OK ? score_block_weighted(m, p, m->y[0], false, &p->v, &p->o) : status;
}

/* Hidden pairs have no gradient, whatever the operator says. */
static void add_sums(block_job *m, const attention_job *p) {
  const rows_job *r = (const rows_job *)(const void *)m;
  for (int64_t i = 0; i < p->lq * p->lk; i++)
    if (!m->visible[i]) put_real(p, m->dz, i, 0);
  for (int64_t i = 0; i < p->lq; i++) {
    if (r->bias.at || r->slopes.at)
      sums_add_row(&r->bias, &r->slopes, p, m->dz, m->sequence, m->head, i, m->first + i);
    if (r->changes.at)
      *sum_of(&r->changes, batch_of(m), m->head, row_of(m, i)) += real_at(p, m->row_changes, i);
  }
}

static smx_status backward_part(block_job *m, const attention_job *p) {
  load_rows(m, p);
  smx_status status = score_block_weights(m, p);
  if (status == SMX_OK) status = score_block_upstream(m, p);
  if (status == SMX_OK) status = score_block_gradient(m, p);
  if (status == SMX_OK) add_sums(m, p);
  if (status == SMX_OK) status = score_block_to_products(m, p);
  if (status == SMX_OK) score_block_drop(p, m->y[0]);
  if (status == SMX_OK && p->dq.data) status = score_block_weighted(m, p, m->dz, false, &p->k, &p->dq);
  if (status == SMX_OK && p->dk.data) status = score_block_add_transposed(m, p, m->dz, &p->q, m->dk);
  if (status == SMX_OK && p->dv.data) status = score_block_add_transposed(m, p, m->y[0], &p->d_o, m->dv);
  return status;
}

static bool take(block_job *m, bool backward) {
  if (!m->row_port) return true;
  const int64_t bytes = m->rows * m->j->real_bytes;
  return block_job_take(m, &m->row_values, bytes) && (!backward || block_job_take(m, &m->row_changes, bytes));
}

static const block_job_steps steps = {.forward = forward_part, .backward = backward_part, .take = take};

/* ---- calls ---- */

static smx_status no_operator(const block_job *m) {
  return smx_fail(SMX_ERR_NULL, "%s: op is NULL", m->j->name);
}

static smx_status check_row(rows_job *r, const smx_tensor *row) {
  block_job *m = &r->m;
  const attention_job *j = m->j;
  const int64_t full[3] = {j->q.shape[0], j->heads, j->q.shape[2]};
  if (!row) return SMX_OK;
  for (int32_t i = 1; i < m->op->input_count && !m->row_port; i++)
    if (m->op->inputs[i].shape == SMX_SHAPE_ROW && m->op->inputs[i].flags & SMX_PORT_GRAD) m->row_port = i;
  if (!m->row_port)
    return smx_fail(SMX_ERR_PARAM, "%s: row is given, but op is %s, which has no number for each row",
                    j->name, m->op->name);
  return attention_broadcast(j, "row", row, FLOATS, 3, full, &r->row);
}

static smx_status forward(smx_context *ctx, const char *name, const smx_attention_options *options,
                          const smx_op *op, const smx_params *params, const smx_tensor *row,
                          const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                          const smx_tensor *o) {
  SMX_OWN(rows_job, r, ctx);
  if (!block_job_open(r ? &r->m : NULL, name, ctx, &steps)) return SMX_ERR_NOMEM;
  if (!op) return no_operator(&r->m);
  smx_status status = score_block_check(&r->m, options, op, params, q, k, v);
  if (status == SMX_OK) status = check_row(r, row);
  if (status == SMX_OK) status = score_block_check_output(&r->m, o);
  return status == SMX_OK ? block_job_run(&r->m, false) : status;
}

smx_status smx_attention_rows(smx_context *ctx, const smx_attention_options *options, const smx_op *op,
                              const smx_params *params, const smx_tensor *q, const smx_tensor *k,
                              const smx_tensor *v, const smx_tensor *o) {
  SMX_ENTER(ctx);
  return forward(ctx, "smx_attention_rows", options, op, params, NULL, q, k, v, o);
}
smx_status smx_attention_rows_input(smx_context *ctx, const smx_attention_options *options, const smx_op *op,
                                    const smx_params *params, const smx_tensor *row, const smx_tensor *q,
                                    const smx_tensor *k, const smx_tensor *v, const smx_tensor *o) {
  SMX_ENTER(ctx);
  return forward(ctx, "smx_attention_rows_input", options, op, params, row, q, k, v, o);
}

/* The sums: of bias, slopes and row. */
static smx_status check_sums(rows_job *r, const smx_tensor *d_bias, const smx_tensor *d_slopes,
                             const smx_tensor *d_row) {
  const attention_job *j = r->m.j;
  const int64_t full[4] = {j->batch, j->heads, j->lq, j->lk},
                rows[3] = {j->q.shape[0], j->heads, j->q.shape[2]};
  smx_status status = SMX_OK;
  if (d_bias && (j->query_offsets.data || j->key_offsets.data))
    return smx_fail(SMX_ERR_PARAM, "%s: d_bias is not possible with offsets", j->name);
  if (d_row && !r->row.data) return smx_fail(SMX_ERR_NULL, "%s: row is NULL: d_row needs it", j->name);
  status = sums_check(j, "d_bias", d_bias, 4, full, &r->bias.to);
  if (status == SMX_OK) status = sums_check(j, "d_slopes", d_slopes, 2, full, &r->slopes.to);
  return status == SMX_OK ? sums_check(j, "d_row", d_row, 3, rows, &r->changes.to) : status;
}

static int64_t longest(const smx_view *v, int64_t least) {
  const int64_t own = v->data && v->ndim ? v->shape[v->ndim - 1] : 1;
  return own > least ? own : least;
}

static smx_status run_backward(rows_job *r) {
  block_job *m = &r->m;
  sums *const all[] = {&r->bias, &r->slopes, &r->changes};
  const int64_t most = longest(&r->bias.to, longest(&r->slopes.to, longest(&r->changes.to, 1)));
  smx_context *ctx = m->j->ctx;
  m->writes_more = r->bias.to.data || r->slopes.to.data || r->changes.to.data;
  r->buffer = smx_alloc(ctx, (size_t)(most + 64) * sizeof(double));
  const bool good =
      r->buffer && sums_open(m->j, all[0], 4) && sums_open(m->j, all[1], 2) && sums_open(m->j, all[2], 3);
  smx_status status =
      good ? block_job_run(m, true) : smx_fail(SMX_ERR_NOMEM, "%s: no memory for the sums", m->j->name);
  for (int i = 0; i < 3; i++) {
    if (status == SMX_OK) sums_store(m->j, all[i], r->buffer);
    smx_free(ctx, all[i]->at);
  }
  smx_free(ctx, r->buffer);
  return status;
}

static smx_status backward(smx_context *ctx, const char *name, const smx_attention_options *options,
                           const smx_op *op, const smx_params *params, const smx_tensor *row,
                           const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                           const smx_tensor *const *d) {
  SMX_OWN(rows_job, r, ctx);
  if (!block_job_open(r ? &r->m : NULL, name, ctx, &steps)) return SMX_ERR_NOMEM;
  if (!op) return no_operator(&r->m);
  smx_status status = score_block_check(&r->m, options, op, params, q, k, v);
  if (status == SMX_OK) status = check_row(r, row);
  if (status == SMX_OK) status = score_block_check_gradients(&r->m, d[0], d[1], d[2], d[3]);
  if (status == SMX_OK) status = check_sums(r, d[4], d[5], d[6]);
  return status == SMX_OK ? run_backward(r) : status;
}

smx_status smx_attention_rows_backward(smx_context *ctx, const smx_attention_options *options,
                                       const smx_op *op, const smx_params *params, const smx_tensor *q,
                                       const smx_tensor *k, const smx_tensor *v, const smx_tensor *d_o,
                                       const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv) {
  SMX_ENTER(ctx);
  const smx_tensor *const d[] = {d_o, dq, dk, dv, NULL, NULL, NULL};
  return backward(ctx, "smx_attention_rows_backward", options, op, params, NULL, q, k, v, d);
}
smx_status smx_attention_rows_input_backward(smx_context *ctx, const smx_attention_options *options,
                                             const smx_op *op, const smx_params *params,
                                             const smx_tensor *row, const smx_tensor *q, const smx_tensor *k,
                                             const smx_tensor *v, const smx_tensor *d_o, const smx_tensor *dq,
                                             const smx_tensor *dk, const smx_tensor *dv,
                                             const smx_tensor *d_bias, const smx_tensor *d_slopes,
                                             const smx_tensor *d_row) {
  SMX_ENTER(ctx);
  const smx_tensor *const d[] = {d_o, dq, dk, dv, d_bias, d_slopes, d_row};
  return backward(ctx, "smx_attention_rows_input_backward", options, op, params, row, q, k, v, d);
}
