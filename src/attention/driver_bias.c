/* attention/driver_bias.c - gradients of what is added to the scores: bias, ALiBi slopes and sinks.
 * The gradients of the scores are laid out for some rows of one head at a time, and added up in
 * double in the order of sequences, heads, rows and keys. */
#include "base/enter.h"
#include "driver_sums.h"

enum { SCORES = 1 << 22 }; /* of pairs at a time, at least 256 rows */

typedef struct adding {
  const attention_job *j;
  sums bias, slopes, sinks;
  char *scores; /* gradients of the scores of a part */
  double *sinks_of_rows, *row;
  void *buffer;
  attention_job part;
} adding;

/* Adds up rows first .. first + rows - 1 of a head; p: that part of the call. */
static void add_part(const adding *a, const attention_job *p, int64_t b, int64_t h, int64_t first) {
  for (int64_t i = 0; i < p->lq; i++) {
    sums_add_row(&a->bias, &a->slopes, p, a->scores, b, h, i, first + i);
    if (a->sinks.at) *sum_of(&a->sinks, b, h, 0) += a->sinks_of_rows[i];
  }
}

static smx_view matrix_of(const attention_job *p, char *data, int64_t columns) {
  return (smx_view){.data = data,
                    .dtype = p->real_bytes == 8 ? SMX_F64 : SMX_F32,
                    .ndim = 4,
                    .shape = {1, 1, p->lq, columns},
                    .strides = {0, 0, columns, 1}};
}

static smx_status add_head(adding *a, int64_t b, int64_t h, int64_t chunk) {
  attention_job *const p = &a->part;
  smx_status status = SMX_OK;
  const int64_t lq = attention_queries(a->j, b);
  for (int64_t i = 0; i < lq && status == SMX_OK; i += chunk) {
    attention_part(a->j, b, h, i, lq - i < chunk ? lq - i : chunk, p);
    p->scores = matrix_of(p, a->scores, p->lk);
    p->d_sink = matrix_of(p, (char *)a->sinks_of_rows, 1);
    p->d_sink.dtype = SMX_F64;
    if (p->lk == 0) p->scores.data = NULL;
    status = attention_run_gradients(p);
    if (status != SMX_OK) break;
    add_part(a, p, b, h, i);
  }
  return status;
}

static smx_status run(adding *a) {
  const attention_job *j = a->j;
  int64_t chunk = j->lk ? SCORES / j->lk : j->lq,
          longest = a->bias.to.data && a->bias.to.ndim ? a->bias.to.shape[a->bias.to.ndim - 1] : 0;
  chunk = chunk < 256 ? 256 : chunk;
  chunk = chunk > j->lq ? j->lq : chunk;
  if (longest < j->heads) longest = j->heads;
  a->scores = smx_alloc(j->ctx, (size_t)((chunk * j->lk + 64) * j->real_bytes));
  a->sinks_of_rows = smx_alloc(j->ctx, (size_t)(chunk + 1) * sizeof(double));
  a->buffer = smx_alloc(j->ctx, (size_t)(longest + 64) * sizeof(double));
  bool good = a->scores && a->sinks_of_rows && a->buffer && sums_open(j, &a->bias, 4) &&
              sums_open(j, &a->slopes, 2) && sums_open(j, &a->sinks, 2);
  smx_status status =
      good ? SMX_OK
           : smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of scores", j->name, (long long)chunk);
  for (int64_t at = 0; j->lq && at < j->batch * j->heads && status == SMX_OK; at++)
    status = add_head(a, at / j->heads, at % j->heads, chunk);
  const sums *all[] = {&a->bias, &a->slopes, &a->sinks};
  for (int i = 0; i < 3; i++) {
    if (status == SMX_OK) sums_store(j, all[i], a->buffer);
    smx_free(j->ctx, all[i]->at);
  }
  smx_free(j->ctx, a->buffer), smx_free(j->ctx, a->sinks_of_rows), smx_free(j->ctx, a->scores);
  return status;
}

smx_status smx_attention_backward_bias(smx_context *ctx, const smx_attention_options *options,
                                       const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                       const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                       const smx_tensor *d_lse, const smx_tensor *d_bias,
                                       const smx_tensor *d_slopes, const smx_tensor *d_sinks) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_backward_bias", ctx)) return SMX_ERR_NOMEM;
  SMX_OWN(adding, a, ctx);
  if (!a) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", j->name);
  a->j = j;
  smx_status status = attention_check_gradient(j, options, q, k, v, o, lse, d_o, d_lse);
  if (status == SMX_OK && d_bias && (j->query_offsets.data || j->key_offsets.data))
    status = smx_fail(SMX_ERR_PARAM, "%s: d_bias is not possible with offsets", j->name);
  if (status == SMX_OK && d_sinks && !j->sinks.data)
    status = smx_fail(SMX_ERR_NULL, "%s: sinks is NULL: d_sinks needs them", j->name);
  const int64_t full[4] = {j->batch, j->heads, j->lq, j->lk};
  if (status == SMX_OK) status = sums_check(j, "d_bias", d_bias, 4, full, &a->bias.to);
  if (status == SMX_OK) status = sums_check(j, "d_slopes", d_slopes, 2, full, &a->slopes.to);
  if (status == SMX_OK) status = sums_check(j, "d_sinks", d_sinks, 2, full, &a->sinks.to);
  return status == SMX_OK ? run(a) : status;
}
