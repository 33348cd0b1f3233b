/* attention/driver_scores.c - the matrix of scores or weights, and values weighted by a matrix of
 * the caller's. */
#include "base/enter.h"
#include "driver/attention.h"

smx_status smx_attention_scores(smx_context *ctx, const smx_attention_options *options,
                                smx_attention_stage stage, const smx_tensor *q, const smx_tensor *k,
                                const smx_tensor *scores) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_scores", ctx)) return SMX_ERR_NOMEM;
  smx_status status = attention_check(j, options, q, k, k); /* no value is read */
  if (status != SMX_OK) return status;
  if ((int)stage < 0 || stage > SMX_ATTENTION_WEIGHTS)
    return smx_fail(SMX_ERR_PARAM, "%s: stage is %d, not 0..%d", j->name, (int)stage, SMX_ATTENTION_WEIGHTS);
  if (j->query_offsets.data || j->key_offsets.data)
    return smx_fail(SMX_ERR_PARAM, "%s: %s_offsets are not possible", j->name,
                    j->query_offsets.data ? "query" : "key");
  j->v.data = NULL;
  status =
      attention_output(j, "scores", scores, 4, (int64_t[]){j->batch, j->heads, j->lq, j->lk}, &j->scores);
  if (status != SMX_OK || smx_view_elements(&j->scores) == 0) return status;
  j->v = j->k;
  j->weights = stage == SMX_ATTENTION_WEIGHTS;
  if (stage <= SMX_ATTENTION_CAPPED) { /* before anything hides a key */
    j->call.causal = false;
    j->call.left = j->call.right = -1;
    j->call.weights = SMX_ATTENTION_SOFTMAX;
    j->mask.data = j->bias.data = j->slopes.data = NULL;
  }
  if (stage == SMX_ATTENTION_PRODUCTS) j->call.softcap = 0;
  return attention_run(j);
}

/* The first column of a tensor, as q and k of a call that reads neither. */
typedef struct first_column {
  smx_tensor t;
  int64_t shape[4], strides[4];
} first_column;

static const smx_tensor *column_of(const smx_tensor *t, first_column *c) {
  if (!t || t->ndim != 4 || !t->shape) return t;
  int64_t stride = 1;
  for (int i = 3; i >= 0; i--) {
    c->shape[i] = i < 3 ? t->shape[i] : 1;
    c->strides[i] = t->strides ? t->strides[i] : stride;
    if (!smx_multiply(stride, t->shape[i], &stride)) return t;
  }
  c->t = *t;
  c->t.shape = c->shape, c->t.strides = c->strides;
  if (!t->data && stride == 0) c->t.data = c; /* the column of nothing, which may be nowhere, is not read */
  return &c->t;
}

smx_attention_options attention_hiding(const smx_attention_options *options) {
  smx_attention_options own;
  smx_attention_init(&own);
  if (options && options->size == sizeof own) {
    own = *options;
    own.bias = own.slopes = own.sinks = NULL;
    own.scale = own.softcap = own.dropout = 0;
    own.streams = NULL;
    for (int i = 0; i < SMX_ATTENTION_PARAMS; i++) own.param[i] = 0;
  } else if (options) {
    own.size = options->size; /* is refused */
  }
  own.weights = SMX_ATTENTION_IDENTITY;
  return own;
}

smx_status smx_attention_apply(smx_context *ctx, const smx_attention_options *options, const smx_tensor *w,
                               const smx_tensor *v, const smx_tensor *o) {
  SMX_ENTER(ctx);
  SMX_OWN(attention_job, j, ctx);
  if (!attention_open(j, "smx_attention_apply", ctx)) return SMX_ERR_NOMEM;
  j->q_name = "w";
  j->k_name = "v";
  first_column q, k;
  smx_attention_options own = attention_hiding(options);
  smx_status status = attention_check(j, &own, column_of(w, &q), column_of(v, &k), v);
  if (status == SMX_OK && (j->query_offsets.data || j->key_offsets.data))
    status = smx_fail(SMX_ERR_PARAM, "%s: %s_offsets are not possible", j->name,
                      j->query_offsets.data ? "query" : "key");
  if (status == SMX_OK)
    status = attention_tensor(j, "w", w, FLOATS, 4, (int64_t[]){j->batch, j->heads, j->lq, j->lk}, &j->given);
  if (status != SMX_OK) return status;
  j->q.data = j->k.data = NULL; /* parts of w and v */
  status = attention_output(j, "o", o, 4, (int64_t[]){j->batch, j->heads, j->lq, j->call.e}, &j->o);
  return status == SMX_OK ? attention_run(j) : status;
}
