/* driver/attention_check.c - what every call of attention checks: options, and tensors. */
#include "attention.h"
#include "params.h"
#include <math.h>
#include <string.h>

smx_status smx_attention_init(smx_attention_options *options) {
  if (!options) return smx_fail(SMX_ERR_NULL, "smx_attention_init: options is NULL");
  *options = (smx_attention_options){
      .size = sizeof *options, .query_start = SMX_ATTENTION_END, .window_left = -1, .window_right = -1};
  return SMX_OK;
}

smx_status smx_attention_set_weights(smx_attention_options *options, smx_attention_weights weights) {
  const smx_attention_kind *kind = smx_attention_kind_at((size_t)weights);
  if (!options) return smx_fail(SMX_ERR_NULL, "smx_attention_set_weights: options is NULL");
  if (!kind)
    return smx_fail(SMX_ERR_PARAM, "smx_attention_set_weights: weights is %d, not 0..%d", (int)weights,
                    SMX_ATTENTION_KINDS - 1);
  options->weights = weights;
  for (int i = 0; i < SMX_ATTENTION_PARAMS; i++)
    options->param[i] = i < kind->param_count ? kind->params[i].def : 0;
  return SMX_OK;
}

enum { DROPOUT_KEYS = 1 << 28 }; /* that the counter of a block of random numbers has bits for */

#define LABEL(port) ((smx_label){j->name, "", port})

/* ---- options ---- */

static smx_status check_number(const attention_job *j, const char *name, double value, double least) {
  if (value >= least && value <= 0x1p127) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: %s is %g, not a finite number of at least %g", j->name, name, value,
                  least);
}
static smx_status check_whole(const attention_job *j, const char *name, int64_t value, int64_t least) {
  if (value >= least && value < INT64_MAX / 4) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: %s is %lld, not at least %lld", j->name, name, (long long)value,
                  (long long)least);
}

/* NaN stands for a default that depends on the call. */
static smx_status check_params(const attention_job *j, const smx_attention_kind *kind, const double *param) {
  for (int i = 0; i < SMX_ATTENTION_PARAMS; i++) {
    const smx_param *p = i < kind->param_count ? kind->params + i : NULL;
    if (p && isnan(p->def) && isnan(param[i])) continue;
    if (p && smx_param_why_not(p, param[i]))
      return smx_fail(SMX_ERR_PARAM, "%s: options.param[%d] is %g, not %s%g to %g: %s of %s", j->name, i,
                      param[i], p->flags & SMX_PARAM_INT ? "a whole number from " : "", p->min, p->max,
                      p->name, kind->name);
    if (!p && param[i] != 0)
      return smx_fail(SMX_ERR_PARAM, "%s: options.param[%d] is %g, not 0: %s has %d parameters", j->name, i,
                      param[i], kind->name, (int)kind->param_count);
  }
  return SMX_OK;
}

/* log n, with the same bits everywhere. */
static double log_count(int64_t n) {
  int exponent;
  double m = frexp((double)n, &exponent), sum = 0;
  if (m < 0.70710678118654752440) m *= 2, exponent--;
  const double s = (m - 1) / (m + 1);
  for (int k = 25; k > 0; k -= 2) sum = sum * (s * s) + 1.0 / k;
  return 2 * s * sum + exponent * 0.69314718055994530942;
}

/* The defaults that depend on the call: -ln of the keys that a sequence may have. */
static smx_status fill_params(attention_job *j) {
  for (int i = 0; i < SMX_ATTENTION_PARAMS; i++) {
    if (!isnan(j->call.param[i])) continue;
    if (j->split || j->key_start)
      return smx_fail(
          SMX_ERR_PARAM, "%s: options.param[%d] is nan: the %s of %s has to be given where keys are split",
          j->name, i, attention_table[j->call.weights].params[i].name, attention_table[j->call.weights].name);
    j->call.param[i] = j->lk > 0 ? -log_count(j->lk) : 0;
  }
  return SMX_OK;
}

bool attention_open(attention_job *j, const char *name, smx_context *ctx) {
  if (j) j->name = name, j->ctx = ctx;
  else smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", name);
  return j != NULL;
}

smx_status attention_check_options(attention_job *j, const smx_attention_options *o) {
  if (o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "%s: options.size is %zu, not %zu", j->name, o->size, sizeof *o);
  if ((int)o->weights < 0 || o->weights >= SMX_ATTENTION_KINDS)
    return smx_fail(SMX_ERR_PARAM, "%s: options.weights is %d, not 0..%d", j->name, (int)o->weights,
                    SMX_ATTENTION_KINDS - 1);
  smx_status status = check_number(j, "options.scale", o->scale, -0x1p127);
  if (status == SMX_OK) status = check_number(j, "options.softcap", o->softcap, 0);
  if (status == SMX_OK) status = check_whole(j, "options.query_start", o->query_start, -1);
  if (status == SMX_OK) status = check_whole(j, "options.window_left", o->window_left, -1);
  if (status == SMX_OK) status = check_whole(j, "options.window_right", o->window_right, -1);
  if (status == SMX_OK) status = check_whole(j, "options.key_start", o->key_start, 0);
  if (status == SMX_OK && o->key_start % ATTN_SPLIT)
    status = smx_fail(SMX_ERR_PARAM, "%s: options.key_start is %lld, not a multiple of %d", j->name,
                      (long long)o->key_start, ATTN_SPLIT);
  const smx_attention_kind *kind = attention_table + o->weights;
  if (status == SMX_OK) status = check_params(j, kind, o->param);
  if (status == SMX_OK && !(o->dropout >= 0 && o->dropout < 1))
    status = smx_fail(SMX_ERR_PARAM, "%s: options.dropout is %g, not from 0 to below 1", j->name, o->dropout);
  if (status == SMX_OK && o->sinks && !(kind->flags & SMX_ATTENTION_SINKS))
    status = smx_fail(SMX_ERR_PARAM, "%s: sinks is not possible with %s", j->name, kind->name);
  j->call = (attn_call){.scale = o->scale,
                        .softcap = o->softcap,
                        .causal = o->causal != 0,
                        .left = o->window_left,
                        .right = o->window_right,
                        .weights = (int)o->weights,
                        .dropout = o->dropout,
                        .seed = o->seed,
                        .on_empty = smx_context_on_empty(j->ctx),
                        .on_inf = smx_context_on_inf(j->ctx)};
  memcpy(j->call.param, o->param, sizeof o->param);
  j->query_start = o->query_start;
  j->key_start = o->key_start;
  j->stream = o->stream;
  return status;
}

/* ---- tensors ---- */

static smx_status check_kind(const attention_job *j, const char *port, const smx_view *v,
                             attention_elements kind) {
  static const char *const wanted[] = {"f16, bf16, f32 or f64", "bool or u8", "i32 or i64", "i32",
                                       "a float, i32 or i64"};
  bool good = kind == FLOATS    ? smx_is_float(v->dtype)
              : kind == MASKS   ? smx_is_mask(v->dtype)
              : kind == WHOLES  ? smx_is_whole(v->dtype)
              : kind == NUMBERS ? smx_is_float(v->dtype) || smx_is_whole(v->dtype)
                                : smx_same_dtype(v->dtype, SMX_I32);
  return good ? SMX_OK
              : smx_fail(SMX_ERR_DTYPE, "%s: %s: dtype is %s, not %s", j->name, port,
                         smx_dtype_name(v->dtype), wanted[kind]);
}

smx_status attention_tensor(const attention_job *j, const char *port, const smx_tensor *t,
                            attention_elements kind, int32_t ndim, const int64_t *shape, smx_view *v) {
  smx_status status = smx_view_of(LABEL(port), t, true, v);
  if (status == SMX_OK) status = check_kind(j, port, v, kind);
  if (status != SMX_OK) return status;
  if (v->ndim != ndim)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: ndim is %d, not %d", j->name, port, (int)v->ndim, (int)ndim);
  for (int32_t d = 0; d < ndim; d++)
    if (shape[d] >= 0 && v->shape[d] != shape[d])
      return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[%d] is %lld, not %lld", j->name, port, (int)d,
                      (long long)v->shape[d], (long long)shape[d]);
  return SMX_OK;
}

smx_status attention_broadcast(const attention_job *j, const char *port, const smx_tensor *t,
                               attention_elements kind, int32_t ndim, const int64_t *shape, smx_view *v) {
  if (!t) return SMX_OK;
  smx_status status = smx_view_of(LABEL(port), t, true, v);
  if (status == SMX_OK) status = check_kind(j, port, v, kind);
  return status == SMX_OK ? smx_view_broadcast(LABEL(port), v, ndim, shape) : status;
}

/* Offsets of packed sequences: 0 = o[0] <= ... <= o[B] = length. */
static smx_status check_offsets(attention_job *j, const char *port, const smx_tensor *t, int64_t length,
                                smx_view *v) {
  smx_status status = attention_tensor(j, port, t, WHOLES, 1, (int64_t[]){-1}, v);
  if (status != SMX_OK) return status;
  int64_t before = 0, count = v->shape[0];
  if (count < 1) return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[0] is 0, not at least 1", j->name, port);
  if (j->batch >= 0 && count != j->batch + 1)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[0] is %lld, not %lld", j->name, port, (long long)count,
                    (long long)j->batch + 1);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = attention_int(v, i);
    if (at < before || at > length || (i == 0 && at != 0) || (i == count - 1 && at != length))
      return smx_fail(SMX_ERR_SHAPE, "%s: %s: number %lld is %lld, not %lld..%lld", j->name, port,
                      (long long)i, (long long)at, (long long)(i == count - 1 ? length : before),
                      (long long)(i == 0 ? 0 : length));
    before = at;
  }
  j->batch = count - 1;
  return SMX_OK;
}

/* At most the pages, or the room, of each sequence. */
static smx_status check_lengths(attention_job *j, const smx_tensor *t) {
  smx_status status = attention_tensor(j, "lengths", t, WHOLES, 1, &j->batch, &j->lengths);
  for (int64_t b = 0; status == SMX_OK && b < j->batch; b++) {
    int64_t n = attention_int(&j->lengths, b), most = attention_room(j, b);
    if (n < 0 || n > most)
      return smx_fail(SMX_ERR_SHAPE, "%s: lengths: number %lld is %lld, not 0..%lld", j->name, (long long)b,
                      (long long)n, (long long)most);
  }
  return status;
}

static smx_status check_pages(attention_job *j, const smx_attention_options *o) {
  if (!o->lengths) return smx_fail(SMX_ERR_NULL, "%s: lengths is NULL: a paged cache needs it", j->name);
  if (o->key_offsets)
    return smx_fail(SMX_ERR_PARAM, "%s: key_offsets is not possible with block_table", j->name);
  smx_status status = attention_tensor(j, "block_table", o->block_table, PAGES, 2, (int64_t[]){j->batch, -1},
                                       &j->block_table);
  if (status != SMX_OK) return status;
  j->page_size = j->k.shape[2];
  if (!smx_multiply(j->block_table.shape[1], j->page_size, &j->lk) || j->lk > INT64_MAX / 16)
    return smx_fail(SMX_ERR_SHAPE, "%s: block_table: shape[1] is %lld, too many pages", j->name,
                    (long long)j->block_table.shape[1]);
  status = check_lengths(j, o->lengths);
  for (int64_t b = 0; status == SMX_OK && b < j->batch; b++)
    for (int64_t p = 0; p * j->page_size < attention_int(&j->lengths, b); p++) {
      const smx_view *t = &j->block_table;
      int32_t page = *(const int32_t *)(const void *)(t->data + (b * t->strides[0] + p * t->strides[1]) * 4);
      if (page < 0 || page >= j->k.shape[0])
        return smx_fail(SMX_ERR_SHAPE, "%s: block_table: page %lld of sequence %lld is %d, not 0..%lld",
                        j->name, (long long)p, (long long)b, (int)page, (long long)j->k.shape[0] - 1);
    }
  return status;
}

static smx_status check_head(const attention_job *j, const char *port, const smx_view *v) {
  int64_t n = v->shape[3];
  if (n >= 1 && n <= ATTN_MAX_HEAD) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[3] is %lld, not 1..%d", j->name, port, (long long)n,
                  ATTN_MAX_HEAD);
}

/* q, k and v, and how sequences lie in them. */
static smx_status check_inputs(attention_job *j, const smx_attention_options *o, const smx_tensor *q,
                               const smx_tensor *k, const smx_tensor *v) {
  int64_t any[4] = {-1, -1, -1, -1};
  const char *q_name = j->q_name ? j->q_name : "q", *k_name = j->k_name ? j->k_name : "k";
  smx_status status = attention_tensor(j, q_name, q, FLOATS, 4, any, &j->q);
  if (status == SMX_OK)
    status = attention_tensor(j, k_name, k, FLOATS, 4, (int64_t[]){-1, -1, -1, j->q.shape[3]}, &j->k);
  if (status == SMX_OK)
    status = attention_tensor(j, "v", v, FLOATS, 4,
                              (int64_t[]){j->k.shape[0], j->k.shape[1], j->k.shape[2], -1}, &j->v);
  if (status == SMX_OK) status = check_head(j, q_name, &j->q);
  if (status == SMX_OK) status = check_head(j, "v", &j->v);
  if (status != SMX_OK) return status;
  j->heads = j->q.shape[1], j->kv_heads = j->k.shape[1], j->lq = j->q.shape[2], j->lk = j->k.shape[2];
  if (j->kv_heads ? j->heads % j->kv_heads : j->heads)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[1] is %lld, not a multiple of the %lld heads of %s",
                    j->name, q_name, (long long)j->heads, (long long)j->kv_heads, k_name);
  j->batch = o->query_offsets || o->key_offsets ? -1 : j->q.shape[0];
  int64_t one[2] = {o->query_offsets ? 1 : j->q.shape[0], o->key_offsets ? 1 : j->k.shape[0]};
  if (j->q.shape[0] != one[0] || j->k.shape[0] != one[1])
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[0] is %lld, not 1 as with offsets", j->name,
                    j->q.shape[0] != one[0] ? q_name : k_name,
                    (long long)(j->q.shape[0] != one[0] ? j->q.shape[0] : j->k.shape[0]));
  if (o->query_offsets)
    status = check_offsets(j, "query_offsets", o->query_offsets, j->lq, &j->query_offsets);
  if (status == SMX_OK && o->key_offsets)
    status = check_offsets(j, "key_offsets", o->key_offsets, j->lk, &j->key_offsets);
  if (status != SMX_OK) return status;
  if (!o->query_offsets && j->q.shape[0] != j->batch)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[0] is %lld, not %lld", j->name, q_name,
                    (long long)j->q.shape[0], (long long)j->batch);
  if (!o->key_offsets && !o->block_table && j->k.shape[0] != j->batch)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[0] is %lld, not %lld", j->name, k_name,
                    (long long)j->k.shape[0], (long long)j->batch);
  if (o->block_table) return check_pages(j, o);
  return o->lengths ? check_lengths(j, o->lengths) : SMX_OK;
}

static smx_status check_optional(attention_job *j, const smx_attention_options *o) {
  int64_t full[4] = {j->batch, j->heads, j->lq, j->lk};
  if ((o->mask || o->bias) && (o->query_offsets || o->key_offsets))
    return smx_fail(SMX_ERR_PARAM, "%s: %s is not possible with offsets", j->name, o->mask ? "mask" : "bias");
  smx_status status = attention_broadcast(j, "mask", o->mask, MASKS, 4, full, &j->mask);
  if (status == SMX_OK) status = attention_broadcast(j, "bias", o->bias, FLOATS, 4, full, &j->bias);
  if (status == SMX_OK) status = attention_broadcast(j, "slopes", o->slopes, FLOATS, 2, full, &j->slopes);
  if (status == SMX_OK) status = attention_broadcast(j, "sinks", o->sinks, FLOATS, 2, full, &j->sinks);
  if (status == SMX_OK && o->streams)
    status = attention_tensor(j, "streams", o->streams, WHOLES, 1, full, &j->streams);
  if (status == SMX_OK && o->dropout > 0 && j->key_start + j->lk > DROPOUT_KEYS)
    return smx_fail(SMX_ERR_SHAPE, "%s: options.dropout is %g, for at most %d keys, not %lld", j->name,
                    o->dropout, DROPOUT_KEYS, (long long)(j->key_start + j->lk));
  return status;
}

smx_status attention_check(attention_job *j, const smx_attention_options *options, const smx_tensor *q,
                           const smx_tensor *k, const smx_tensor *v) {
  smx_attention_options defaults;
  if (!options) {
    smx_attention_init(&defaults);
    options = &defaults;
  }
  smx_status status = attention_check_options(j, options);
  if (status == SMX_OK) status = check_inputs(j, options, q, k, v);
  if (status == SMX_OK) status = check_optional(j, options);
  if (status == SMX_OK) status = fill_params(j);
  if (status != SMX_OK) return status;
  bool is_f64 = smx_same_dtype(j->q.dtype, SMX_F64) || smx_same_dtype(j->k.dtype, SMX_F64) ||
                smx_same_dtype(j->v.dtype, SMX_F64);
  const smx_isa *isa = smx_isa_current();
  j->kernels = is_f64 ? isa->f64.attention : isa->f32.attention;
  j->real_bytes = is_f64 ? 8 : 4;
  j->call.d = j->q.shape[3];
  j->call.e = j->v.shape[3];
  if (j->call.scale == 0) j->call.scale = 1 / sqrt((double)j->call.d);
  return SMX_OK;
}

/* ---- outputs ---- */

bool attention_writes_any(const smx_view *const *outputs, size_t count) {
  bool any = false;
  for (size_t i = 0; i < count; i++) any |= outputs[i]->data && smx_view_elements(outputs[i]) > 0;
  return any;
}
bool attention_writes(const attention_job *j) {
  const smx_view *const outputs[] = {&j->o,      &j->lse, &j->states, &j->scores, &j->winners,
                                     &j->d_sink, &j->dq,  &j->dk,     &j->dv,     &j->dr};
  return attention_writes_any(outputs, sizeof outputs / sizeof *outputs);
}

smx_status attention_apart(const attention_job *j, const char *port, const smx_view *out) {
  const struct {
    const char *name;
    const smx_view *view;
  } others[] = {{"q", &j->q},
                {"k", &j->k},
                {"v", &j->v},
                {"o", &j->o},
                {"lse", &j->lse},
                {"mask", &j->mask},
                {"bias", &j->bias},
                {"slopes", &j->slopes},
                {"sinks", &j->sinks},
                {"lengths", &j->lengths},
                {"query_offsets", &j->query_offsets},
                {"key_offsets", &j->key_offsets},
                {"block_table", &j->block_table},
                {"streams", &j->streams},
                {"states", &j->states},
                {"w", &j->given},
                {"d_o", &j->d_o},
                {"d_lse", &j->d_lse},
                {"dq", &j->dq},
                {"dk", &j->dk},
                {"dv", &j->dv},
                {"r", &j->r},
                {"dr", &j->dr},
                {"u", &j->u}};
  if (!smx_view_injective(out))
    return smx_fail(SMX_ERR_ALIAS, "%s: %s: two of its elements share an address", j->name, port);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (others[i].view != out && others[i].view->data && smx_view_overlap(out, others[i].view))
      return smx_fail(SMX_ERR_ALIAS, "%s: %s: overlaps %s", j->name, port, others[i].name);
  return SMX_OK;
}

smx_status attention_output(const attention_job *j, const char *port, const smx_tensor *t, int32_t ndim,
                            const int64_t *shape, smx_view *v) {
  smx_status status = attention_tensor(j, port, t, FLOATS, ndim, shape, v);
  return status == SMX_OK ? attention_apart(j, port, v) : status;
}

smx_status attention_check_d_o(attention_job *j, const smx_tensor *d_o) {
  if (j->block_table.data)
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: no gradient for a paged cache (block_table)", j->name);
  return attention_tensor(j, "d_o", d_o, FLOATS, 4, (int64_t[]){j->q.shape[0], j->heads, j->lq, j->call.e},
                          &j->d_o);
}

smx_status attention_check_gradients(attention_job *j, const smx_tensor *dq, const smx_tensor *dk,
                                     const smx_tensor *dv) {
  smx_status status = SMX_OK;
  if (dq) status = attention_output(j, "dq", dq, 4, j->q.shape, &j->dq);
  if (status == SMX_OK && dk) status = attention_output(j, "dk", dk, 4, j->k.shape, &j->dk);
  if (status == SMX_OK && dv) status = attention_output(j, "dv", dv, 4, j->v.shape, &j->dv);
  return status;
}
