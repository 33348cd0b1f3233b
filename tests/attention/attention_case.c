/* attention_case.c - see attention_case.h. */
#include "attention_case.h"

#include "engine/ref_draws.h"

#include <stdlib.h>
#include <string.h>

acase acase_new(int64_t batch, int64_t heads, int64_t kv_heads, int64_t lq, int64_t lk, int64_t d,
                int64_t e) {
  acase a = {.batch = batch,
             .heads = heads,
             .kv_heads = kv_heads,
             .lq = lq,
             .lk = lk,
             .d = d,
             .e = e,
             .dtype = SMX_F32};
  smx_attention_init(&a.options);
  return a;
}

static double *values(rng *r, smx_dtype t, int64_t n, double size) {
  double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = dtype_round(t, size * rng_normal(r));
  return x;
}

void acase_fill(acase *a, uint64_t seed, double size) {
  rng r = {seed};
  int64_t scores = a->batch * a->heads * a->lq * a->lk;
  a->q = values(&r, a->dtype, a->batch * a->heads * a->lq * a->d, size);
  a->k = values(&r, a->dtype, a->batch * a->kv_heads * a->lk * a->d, 1);
  a->v = values(&r, a->dtype, a->batch * a->kv_heads * a->lk * a->e, 1);
  if (a->with_bias) a->bias = values(&r, a->dtype, scores, 1);
  if (a->with_mask) a->mask = values(&r, SMX_F32, scores, 1);
  for (int64_t i = 0; a->with_mask && i < scores; i++) a->mask[i] = a->mask[i] > -0.7;
  for (int64_t i = 0; a->with_bias && i < scores; i++)
    if (a->bias[i] < -1.2) a->bias[i] = -__builtin_inf();
  if (a->with_slopes) a->slopes = values(&r, a->dtype, a->batch * a->heads, 0.1);
  if (a->with_sinks) a->sinks = values(&r, a->dtype, a->batch * a->heads, 2);
}

void acase_weights(acase *a, int weights, size_t rows, const double (*params)[SMX_ATTENTION_PARAMS]) {
  smx_attention_set_weights(&a->options, (smx_attention_weights)weights);
  if ((size_t)weights < rows) memcpy(a->options.param, params[weights], sizeof a->options.param);
}

void acase_free(acase *a) {
  double *all[] = {a->q, a->k, a->v, a->mask, a->bias, a->slopes, a->sinks};
  for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

int64_t acase_offset(const acase *a) {
  return a->options.query_start == SMX_ATTENTION_END ? a->options.key_start + a->lk - a->lq
                                                     : a->options.query_start;
}

/* Strides by order; returns how many elements the tensor spans, and where its first one is. */
static int64_t lay_out(int order, int32_t ndim, const int64_t *shape, int64_t *strides, int64_t *first) {
  int32_t axis[SMX_MAX_DIMS];
  int64_t span = order == ORDER_GAPS ? 2 : 1;
  for (int32_t d = 0; d < ndim; d++) axis[d] = d;
  if (order == ORDER_BLHD && ndim >= 3) axis[1] = 2, axis[2] = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    strides[axis[i]] = span;
    span = span * shape[axis[i]] + (order == ORDER_GAPS && i == ndim - 1 ? 3 : 0);
  }
  *first = 0;
  if (order == ORDER_REVERSED && ndim >= 3 && shape[2] > 0) {
    *first = strides[2] * (shape[2] - 1);
    strides[2] = -strides[2];
  }
  return span;
}

static int64_t element(const placed *p, int64_t at) {
  int64_t offset = 0;
  for (int32_t d = p->t.ndim - 1; d >= 0; d--) {
    offset += at % p->shape[d] * p->strides[d];
    at /= p->shape[d];
  }
  return offset;
}

static int64_t count_of(const placed *p) {
  int64_t n = 1;
  for (int32_t d = 0; d < p->t.ndim; d++) n *= p->shape[d];
  return n;
}

void place(placed *p, int slot, int order, smx_dtype t, int32_t ndim, const int64_t *shape,
           const double *from) {
  arena *a = arena_at(slot);
  int64_t first, span, size = (int64_t)dtype_size(t);
  p->t = (smx_tensor){.device = {1, 0}, .ndim = ndim, .dtype = t, .shape = p->shape, .strides = p->strides};
  memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
  span = lay_out(order, ndim, shape, p->strides, &first);
  unsigned char *base = a->low + a->bytes - span * size;
  for (int64_t i = 0; i < span; i++)
    dtype_store(t, base + i * size, t.code == 6 ? 1 : (double)__builtin_nan(""));
  p->t.data = base + first * size;
  for (int64_t i = 0; from && i < count_of(p); i++)
    dtype_store(t, (unsigned char *)p->t.data + element(p, i) * size, from[i]);
}

void fetch(const placed *p, void *out) {
  size_t size = dtype_size(p->t.dtype);
  for (int64_t i = 0; i < count_of(p); i++)
    memcpy((unsigned char *)out + (size_t)i * size,
           (unsigned char *)p->t.data + element(p, i) * (int64_t)size, size);
}

void acase_place(const acase *a, int order, placed_case *p) {
  const int64_t q[] = {a->batch, a->heads, a->lq, a->d}, k[] = {a->batch, a->kv_heads, a->lk, a->d};
  const int64_t v[] = {a->batch, a->kv_heads, a->lk, a->e}, s[] = {a->batch, a->heads, a->lq, a->lk};
  p->options = a->options;
  place(&p->q, 0, order, a->dtype, 4, q, a->q);
  place(&p->k, 1, order, a->dtype, 4, k, a->k);
  place(&p->v, 2, order, a->dtype, 4, v, a->v);
  if (a->mask) place(&p->mask, 5, order, SMX_BOOL, 4, s, a->mask), p->options.mask = &p->mask.t;
  if (a->bias) place(&p->bias, 6, order, a->dtype, 4, s, a->bias), p->options.bias = &p->bias.t;
  if (a->slopes) place(&p->slopes, 7, order, a->dtype, 2, s, a->slopes), p->options.slopes = &p->slopes.t;
  if (a->sinks) place(&p->sinks, 8, order, a->dtype, 2, s, a->sinks), p->options.sinks = &p->sinks.t;
}

double *acase_keep(const acase *a, int64_t b, int64_t h) {
  const smx_attention_options *o = &a->options;
  if (o->dropout == 0) return NULL;
  double *keep = malloc((size_t)(a->lq * a->lk + 1) * sizeof *keep);
  for (int64_t x = 0; x < a->lq * a->lk; x++) {
    const int64_t at = x / a->lk + acase_offset(a), key = o->key_start + x % a->lk;
    uint32_t words[4];
    random_block(o->seed, o->stream + (uint64_t)(b * a->heads + h), 16,
                 (uint64_t)at << 26 | (uint64_t)key / 4, words);
    keep[x] = words[key % 4] < o->dropout * 4294967296.0 ? 0 : 1 / (1 - o->dropout);
  }
  return keep;
}

int acase_run(const acase *a, smx_context *ctx, int order, results *r) {
  const int64_t o[] = {a->batch, a->heads, a->lq, a->e};
  placed_case in;
  placed po, pl;
  acase_place(a, order, &in);
  place(&po, 3, order, a->dtype, 4, o, NULL);
  place(&pl, 4, order, dtype_size(a->dtype) == 8 ? SMX_F64 : SMX_F32, 3, o, NULL);
  int status = smx_attention(ctx, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t);
  r->o_bytes = (size_t)count_of(&po) * dtype_size(po.t.dtype);
  r->lse_bytes = (size_t)count_of(&pl) * dtype_size(pl.t.dtype);
  r->o = malloc(r->o_bytes + 1);
  r->lse = malloc(r->lse_bytes + 1);
  fetch(&po, r->o);
  fetch(&pl, r->lse);
  return status;
}

void results_free(results *r) {
  free(r->o);
  free(r->lse);
}

int results_differ(const results *a, const results *b) {
  return a->o_bytes != b->o_bytes || a->lse_bytes != b->lse_bytes || memcmp(a->o, b->o, a->o_bytes) ||
         memcmp(a->lse, b->lse, a->lse_bytes);
}

double result_at(smx_dtype t, const unsigned char *bytes, int64_t i) {
  return dtype_load(t, bytes + (size_t)i * dtype_size(t));
}
