/* attention_kinds.h - a call of Parallax, of local linear or of additive attention, forward and
 * backward, for the tests of attention by sheets. */
#ifndef TESTS_ATTENTION_KINDS_H
#define TESTS_ATTENTION_KINDS_H
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "unit.h"

typedef enum kind { PARALLAX, LOCAL, ADDITIVE, KINDS } kind;
static const char *const names[] = {"parallax", "local linear", "additive"};

/* A case of one kind; extra: r [B, Hq, Lq, d] or u [B, Hq, d]. */
typedef struct kcase {
  acase a;
  kind kind;
  double ridge, *extra;
} kcase;

static inline int64_t extra_count(const kcase *k) {
  const int64_t rows = k->a.batch * k->a.heads * k->a.d;
  return k->kind == PARALLAX ? rows * k->a.lq : k->kind == ADDITIVE ? rows : 0;
}
static inline int32_t extra_shape(const kcase *k, int64_t *shape) {
  const bool rows = k->kind == PARALLAX;
  shape[0] = k->kind == LOCAL ? 0 : k->a.batch, shape[1] = k->a.heads, shape[2] = rows ? k->a.lq : k->a.d,
  shape[3] = k->a.d;
  return rows ? 4 : 3;
}

static inline smx_status forward(const kcase *k, smx_context *ctx, const smx_attention_options *o,
                                 const smx_tensor *q, const smx_tensor *key, const smx_tensor *v,
                                 const smx_tensor *extra, const smx_tensor *out) {
  if (k->kind == PARALLAX) return smx_attention_parallax(ctx, o, q, key, v, extra, out);
  if (k->kind == LOCAL) return smx_attention_local_linear(ctx, o, k->ridge, q, key, v, out);
  return smx_attention_additive(ctx, o, extra, q, key, v, out);
}
static inline smx_status backward(const kcase *k, smx_context *ctx, const smx_attention_options *o,
                                  const smx_tensor *q, const smx_tensor *key, const smx_tensor *v,
                                  const smx_tensor *extra, const smx_tensor *d_o, placed *d) {
  if (k->kind == PARALLAX)
    return smx_attention_parallax_backward(ctx, o, q, key, v, extra, d_o, &d[0].t, &d[1].t, &d[2].t, &d[3].t);
  if (k->kind == LOCAL)
    return smx_attention_local_linear_backward(ctx, o, k->ridge, q, key, v, d_o, &d[0].t, &d[1].t, &d[2].t);
  return smx_attention_additive_backward(ctx, o, extra, q, key, v, d_o, &d[3].t, &d[0].t, &d[1].t, &d[2].t);
}

static inline kcase new_kind(kind which, int way) {
  static const int64_t shapes[][7] = {
      {1, 2, 1, 4, 6, 3, 2}, {2, 2, 2, 3, 5, 2, 3}, {1, 4, 2, 5, 7, 4, 5}, {1, 1, 1, 7, 21, 3, 4}};
  const int64_t *n = shapes[way % 4];
  kcase k = {
      .a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]), .kind = which, .ridge = way % 3 ? 0.3 : 2};
  k.a.options.causal = way & 1;
  if (way & 2) k.a.options.window_left = 3;
  k.a.with_mask = way % 3 == 1, k.a.with_bias = way % 4 == 2, k.a.with_slopes = way % 5 == 3;
  if (way % 4 == 3 && which != ADDITIVE) k.a.options.softcap = 2;
  if (way % 5 == 1) k.a.options.dropout = 0.3, k.a.options.seed = 5;
  return k;
}
static inline void fill(kcase *k, uint64_t seed) {
  rng r = {seed + 99};
  acase_fill(&k->a, seed, 1);
  k->extra = malloc((size_t)(extra_count(k) + 1) * sizeof *k->extra);
  for (int64_t i = 0; i < extra_count(k); i++) k->extra[i] = dtype_round(k->a.dtype, 0.5 * rng_normal(&r));
}
static inline void free_kind(kcase *k) {
  free(k->extra);
  acase_free(&k->a);
}

/* o, and with d_o gradients of q, k, v and extra, in C order. */
typedef struct outcome {
  const double *d_o;
  unsigned char *o, *d[4];
  size_t o_bytes, bytes[4];
} outcome;

static inline void keep(const placed *p, int64_t count, smx_dtype t, unsigned char **bytes, size_t *size) {
  *size = (size_t)count * dtype_size(t);
  free(*bytes);
  *bytes = malloc(*size + 1);
  fetch(p, *bytes);
}

static inline void run(const kcase *k, smx_context *ctx, int order, outcome *f) {
  const acase *a = &k->a;
  const int64_t q[] = {a->batch, a->heads, a->lq, a->d}, key[] = {a->batch, a->kv_heads, a->lk, a->d};
  const int64_t v[] = {a->batch, a->kv_heads, a->lk, a->e}, o[] = {a->batch, a->heads, a->lq, a->e};
  int64_t more[4];
  const int32_t ndim = extra_shape(k, more);
  const int64_t *shapes[] = {q, key, v, more},
                counts[] = {q[0] * q[1] * q[2] * q[3], key[0] * key[1] * key[2] * key[3],
                            v[0] * v[1] * v[2] * v[3], extra_count(k)};
  placed_case in;
  placed out, extra, d_o, d[4];
  acase_place(a, order, &in);
  place(&out, 3, order, a->dtype, 4, o, NULL);
  place(&extra, 4, order, a->dtype, ndim, more, k->extra);
  if (forward(k, ctx, &in.options, &in.q.t, &in.k.t, &in.v.t, &extra.t, &out.t))
    fail_msg("%s: %s", names[k->kind], smx_last_error());
  keep(&out, o[0] * o[1] * o[2] * o[3], a->dtype, &f->o, &f->o_bytes);
  if (!f->d_o) return;
  place(&d_o, 9, order, a->dtype, 4, o, f->d_o);
  for (int i = 0; i < 4; i++) place(d + i, 10 + i, order, a->dtype, i < 3 ? 4 : ndim, shapes[i], NULL);
  if (backward(k, ctx, &in.options, &in.q.t, &in.k.t, &in.v.t, &extra.t, &d_o.t, d))
    fail_msg("%s: %s", names[k->kind], smx_last_error());
  for (int i = 0; i < 4; i++) keep(d + i, counts[i], a->dtype, &f->d[i], &f->bytes[i]);
}

static inline double *upstream(const acase *a) {
  const int64_t n = a->batch * a->heads * a->lq * a->e;
  double *d_o = malloc((size_t)n * sizeof *d_o);
  for (int64_t i = 0; i < n; i++) d_o[i] = dtype_round(a->dtype, sin(1.7 * (double)i));
  return d_o;
}
static inline void free_outcome(outcome *f) {
  free(f->o);
  for (int i = 0; i < 4; i++) free(f->d[i]);
}

#endif
