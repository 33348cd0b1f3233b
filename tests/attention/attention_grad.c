/* attention_grad.c - proves the gradients of attention: against central differences of the
 * reference in long double, that their bits depend on neither instruction set, threads, nor the
 * order of the axes, that what is hidden has none, that NaN behind a mask does no harm, and that
 * packed sequences without queries or keys change nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/ref.h"
#include "attention_case.h"
#include "cpu/cpu.h"
#include "guard.h"
#include "unit.h"

/* The kinds of weights that have one, those with a norm under several. */
enum {
  NONE = SMX_ATTENTION_NORM_NONE,
  COUNT = SMX_ATTENTION_NORM_COUNT,
  L1 = SMX_ATTENTION_NORM_L1,
  CLAMP = SMX_ATTENTION_NORM_CLAMP
};
static const struct {
  smx_attention_weights weights;
  double param[SMX_ATTENTION_PARAMS];
} kinds[] = {{SMX_ATTENTION_SOFTMAX, {0}},
             {SMX_ATTENTION_SOFTMAX_N, {1.5}},
             {SMX_ATTENTION_SSMAX, {0.43, 0.1}},
             {SMX_ATTENTION_SIGMOID, {-1}},
             {SMX_ATTENTION_SOFTPICK, {0}},
             {SMX_ATTENTION_SELF_ADJUST, {0}},
             {SMX_ATTENTION_CREDAL, {0.8}},
             {SMX_ATTENTION_RELU, {L1, 0.1}},
             {SMX_ATTENTION_ELU, {COUNT}},
             {SMX_ATTENTION_IDENTITY, {L1, 0}},
             {SMX_ATTENTION_SOFTPLUS, {CLAMP}},
             {SMX_ATTENTION_TAYLOR, {L1, 4}},
             {SMX_ATTENTION_EXP, {L1, 0, 1}},
             {SMX_ATTENTION_LSSA, {L1, 0}},
             {SMX_ATTENTION_RELU, {CLAMP}},
             {SMX_ATTENTION_TAYLOR, {CLAMP, 3}},
             {SMX_ATTENTION_IDENTITY, {NONE}},
             {SMX_ATTENTION_SELF_ADJUST_RANGE, {0}},
             {SMX_ATTENTION_CLIPPED, {-0.1, 1.2}},
             {SMX_ATTENTION_CENTRED, {1.2, 0.3, 1e-3}},
             {SMX_ATTENTION_SHAPED, {0.7, 1.2, 0.9}},
             {SMX_ATTENTION_LSSAR, {3, 1, 3}},
             {SMX_ATTENTION_LSSAR, {1, 0.5, 3}},
             {SMX_ATTENTION_LSSAR, {2.5, 1, 3}},
             {SMX_ATTENTION_LSSAR, {15, 1, 3}},
             {SMX_ATTENTION_UNIFIED, {0.5, -2, 2}}};
enum { GRADS = COUNT_OF(kinds) };

static void set_kind(acase *a, int w) {
  a->options.weights = kinds[w].weights;
  memcpy(a->options.param, kinds[w].param, sizeof a->options.param);
}

/* What goes in and comes out of a backward call, as values in C order. */
typedef struct grads {
  double *d_o, *d_lse;
  unsigned char *bytes[6]; /* of dq, dk, dv and those of bias, slopes and sinks */
  size_t size[6];
} grads;

static void upstream(const acase *a, grads *g, uint64_t seed, int with_lse) {
  rng r = {seed};
  int64_t rows = a->batch * a->heads * a->lq;
  *g = (grads){.d_o = malloc((size_t)(rows * a->e + 1) * sizeof(double)),
               .d_lse = with_lse ? malloc((size_t)(rows + 1) * sizeof(double)) : NULL};
  for (int64_t i = 0; i < rows * a->e; i++) g->d_o[i] = dtype_round(a->dtype, rng_normal(&r));
  for (int64_t i = 0; with_lse && i < rows; i++) g->d_lse[i] = dtype_round(SMX_F32, rng_normal(&r));
}

static void free_grads(grads *g) {
  free(g->d_o), free(g->d_lse);
  for (int i = 0; i < 6; i++) free(g->bytes[i]);
}

static void backward(const acase *a, grads *g, smx_context *ctx, int order) {
  const int64_t o[] = {a->batch, a->heads, a->lq, a->e}, q[] = {a->batch, a->heads, a->lq, a->d};
  const int64_t k[] = {a->batch, a->kv_heads, a->lk, a->d}, v[] = {a->batch, a->kv_heads, a->lk, a->e};
  placed_case in;
  const int64_t s[] = {a->batch, a->heads, a->lq, a->lk};
  placed po, pl, pdo, pdl, d[6];
  const smx_tensor *b[3] = {NULL};
  smx_dtype lse = dtype_size(a->dtype) == 8 ? SMX_F64 : SMX_F32;
  acase_place(a, order, &in);
  place(&po, 3, order, a->dtype, 4, o, NULL);
  place(&pl, 4, order, lse, 3, o, NULL);
  place(&pdo, 9, order, a->dtype, 4, o, g->d_o);
  place(&pdl, 10, order, lse, 3, o, g->d_lse);
  place(d, 11, order, a->dtype, 4, q, NULL);
  place(d + 1, 12, order, a->dtype, 4, k, NULL);
  place(d + 2, 13, order, a->dtype, 4, v, NULL);
  if (a->bias) place(d + 3, 14, order, a->dtype, 4, s, NULL), b[0] = &d[3].t;
  if (a->slopes) place(d + 4, 15, order, a->dtype, 2, s, NULL), b[1] = &d[4].t;
  if (a->sinks) place(d + 5, 16, order, a->dtype, 2, s, NULL), b[2] = &d[5].t;
  int status = smx_attention(ctx, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t);
  if (!status)
    status = smx_attention_backward(ctx, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t, &pdo.t,
                                    g->d_lse ? &pdl.t : NULL, &d[0].t, &d[1].t, &d[2].t);
  if (!status && (b[0] || b[1] || b[2]))
    status = smx_attention_backward_bias(ctx, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t, &pdo.t,
                                         g->d_lse ? &pdl.t : NULL, b[0], b[1], b[2]);
  if (status) fail_msg("status %d: %s", status, smx_last_error());
  for (int i = 0; i < 6; i++) {
    g->size[i] = i < 3 || b[i - 3] ? dtype_size(a->dtype) : 0;
    for (int x = 0; g->size[i] && x < d[i].t.ndim; x++) g->size[i] *= (size_t)d[i].shape[x];
    free(g->bytes[i]);
    g->bytes[i] = malloc(g->size[i] + 1);
    if (g->size[i]) fetch(d + i, g->bytes[i]);
  }
}

/* sum o d_o + lse d_lse of one head by the reference. */
static double loss_of_head(const acase *a, const grads *g, int64_t b, int64_t h) {
  int64_t kv = b * a->kv_heads + h / (a->heads / a->kv_heads), head = b * a->heads + h;
  double o[4096], lse[256], size[4096], sum = 0;
  unsigned char mask[4096];
  attention_ref c = {
      .lq = a->lq, .lk = a->lk, .d = a->d, .e = a->e, .softcap = a->options.softcap, .sink = -INFINITY};
  c.q = a->q + head * a->lq * a->d, c.k = a->k + kv * a->lk * a->d, c.v = a->v + kv * a->lk * a->e;
  c.scale = 1 / sqrt((double)a->d);
  c.causal = a->options.causal, c.left = a->options.window_left, c.right = a->options.window_right,
  c.offset = acase_offset(a);
  c.weights = a->options.weights, c.param = a->options.param;
  c.o = o, c.lse = lse, c.size = size;
  if (a->bias) c.bias = a->bias + head * a->lq * a->lk;
  if (a->slopes) c.slope = a->slopes[head];
  if (a->sinks) c.sink = a->sinks[head];
  for (int64_t i = 0; a->mask && i < a->lq * a->lk; i++) mask[i] = a->mask[head * a->lq * a->lk + i] != 0;
  if (a->mask) c.mask = mask;
  double *keep = acase_keep(a, b, h);
  c.keep = keep;
  attention_ref_run(&c);
  free(keep);
  for (int64_t i = 0; i < a->lq * a->e; i++) sum += o[i] * g->d_o[head * a->lq * a->e + i];
  for (int64_t i = 0; g->d_lse && i < a->lq; i++)
    if (lse[i] > -INFINITY) sum += lse[i] * g->d_lse[head * a->lq + i];
  return sum;
}
/* Of the heads that use one of `of` equal parts of an input: the others' losses do not change with
 * it. */
static double loss(const acase *a, const grads *g, int64_t part, int64_t of) {
  const int64_t heads = a->batch * a->heads / of;
  double sum = 0;
  for (int64_t i = part * heads; i < (part + 1) * heads; i++)
    sum += loss_of_head(a, g, i / a->heads, i % a->heads);
  return sum;
}

static void gradients_are_differences(void **state) {
  static const int64_t shapes[][7] = {{1, 2, 1, 3, 5, 3, 2}, {2, 2, 2, 7, 4, 2, 3}, {1, 4, 2, 5, 9, 5, 4}};
  double worst = 0;
  for (int w = 0; w < GRADS; w++)
    for (int way = 0; way < 12; way++) {
      const int64_t *n = shapes[(w + way) % 3];
      acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
      grads g;
      a.dtype = SMX_F64;
      set_kind(&a, w);
      a.options.causal = way & 1;
      if (way % 3 == 1) a.options.window_left = 2, a.options.window_right = 3;
      a.with_mask = way % 4 == 1, a.with_bias = way % 5 == 2, a.with_slopes = way % 3 == 2;
      a.with_sinks = way % 4 == 3 && (w == 0 || w == 2 || w == 5);
      if (way % 5 == 4) a.options.softcap = 1.5;
      if (way % 4 == 2) a.options.dropout = 0.4, a.options.seed = (uint64_t)way;
      acase_fill(&a, (uint64_t)(w * 100 + way), 1.5);
      upstream(&a, &g, (uint64_t)way, w != SMX_ATTENTION_SIGMOID && way % 2);
      backward(&a, &g, NULL, way % ORDERS);
      double *value[] = {a.q, a.k, a.v, a.bias, a.slopes, a.sinks};
      for (int i = 0; i < 6; i++) {
        const int64_t count = (int64_t)g.size[i] / 8,
                      of = a.batch * (i == 1 || i == 2 ? a.kv_heads : a.heads);
        for (int64_t x = 0; x < count; x++) {
          double h = 0x1p-16, at = value[i][x], got = result_at(SMX_F64, g.bytes[i], x);
          const int64_t part = x / (count / of);
          if (isinf(at)) continue;
          value[i][x] = at + h;
          double up = loss(&a, &g, part, of);
          value[i][x] = at - h;
          double want = (up - loss(&a, &g, part, of)) / (2 * h), e = fabs(got - want) / fmax(1, fabs(want));
          value[i][x] = at;
          if (!(e < 1e-6))
            fail_msg("weights %d way %d: d%c[%d] is %.9g, differences say %.9g", w, way, "qkvbls"[i], (int)x,
                     got, want);
          worst = fmax(worst, e);
        }
      }
      free_grads(&g);
      acase_free(&a);
    }
  printf("worst error %.2g\n", worst);
}

static void bits_do_not_depend_on_how(void **state) {
  static const int64_t shapes[][7] = {{1, 4, 2, 70, 1100, 20, 16},
                                      {2, 2, 1, 300, 90, 33, 40},
                                      {1, 2, 2, 600, 130, 64, 64},
                                      {1, 1, 1, 700, 700, 8, 8}};
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int which = 0; which < GRADS; which++) {
    const int64_t *n = shapes[which % 3 == 2 && which % 2 ? 3 : which % 3];
    acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    grads want, got;
    a.dtype = float_dtypes[which % 4 == 3 ? 1 + which / 4 % 3 : 0];
    set_kind(&a, which % GRADS);
    a.options.causal = which % 2;
    a.with_mask = which % 3 == 1, a.with_bias = which % 5 == 2, a.with_slopes = which % 4 == 2;
    if (which % 4 == 1) a.options.softcap = 4;
    if (which % 5 == 1) a.options.window_left = 40, a.options.window_right = 9;
    if (which % 3 == 2) a.options.dropout = 0.2, a.options.stream = 77;
    acase_fill(&a, (uint64_t)which, 1);
    upstream(&a, &want, (uint64_t)which, which & 1);
    upstream(&a, &got, (uint64_t)which, which & 1);
    backward(&a, &want, NULL, ORDER_BHLD);
    for (int i = 0; i < smx_isa_count() + 2; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      backward(&a, &got, i % 2 ? seven : NULL, i % ORDERS);
      smx_isa_set(fastest);
      for (int x = 0; x < 6; x++)
        if (memcmp(want.bytes[x], got.bytes[x], want.size[x]))
          fail_msg("which %d, way %d: d%c differs", which, i, "qkvbls"[x]);
    }
    free_grads(&want);
    free_grads(&got);
    acase_free(&a);
  }
  smx_context_destroy(seven);
}

static int measures(int which) {
  static const smx_attention_weights all[] = {SMX_ATTENTION_SELF_ADJUST_RANGE, SMX_ATTENTION_CLIPPED,
                                              SMX_ATTENTION_CENTRED, SMX_ATTENTION_SHAPED,
                                              SMX_ATTENTION_LSSAR};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    if (kinds[which].weights == all[i]) return 1;
  return 0;
}

/* Of kinds that measure their rows, a task with a head holds the pairs, unless there are too many
 * keys, and two passes do not. */
static void pairs_in_memory_are_those_computed_again(void **state) {
  static const int64_t shapes[][7] = {
      {1, 2, 1, 300, 1100, 12, 20}, {1, 1, 1, 300, 16400, 4, 4}, {1, 3, 1, 257, 200, 12, 20}};
  const smx_dtype dtypes[] = {SMX_F32, SMX_F64, SMX_F32, SMX_F32, SMX_F16, SMX_F64, SMX_BF16};
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int which = 0; which < GRADS; which++)
    for (int i = 0; i < (int)COUNT_OF(dtypes) && measures(which); i++) {
      const int64_t *n = shapes[i < 3 ? 0 : i == 3 ? 1 : 2];
      acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
      grads want, got;
      set_kind(&a, which);
      a.dtype = dtypes[i], a.options.causal = i == 0, a.with_bias = a.with_mask = i == 1;
      a.options.softcap = i == 2 ? 3 : 0, a.options.dropout = i == 2 ? 0.2 : 0,
      a.options.key_start = 2048 * i;
      acase_fill(&a, (uint64_t)which, 1);
      upstream(&a, &want, 5, 1);
      upstream(&a, &got, 5, 1);
      backward(&a, &want, seven, ORDER_BHLD);
      backward(&a, &got, NULL, i % ORDERS);
      for (int x = 0; x < 3; x++)
        if (memcmp(want.bytes[x], got.bytes[x], want.size[x]))
          fail_msg("which %d, case %d: d%c differs", which, i, "qkv"[x]);
      free_grads(&want);
      free_grads(&got);
      acase_free(&a);
    }
  smx_context_destroy(seven);
}

/* What is broadcast has the sum of the gradients of its copies. */
static void broadcast_gradients_are_sums(void **state) {
  acase a = acase_new(2, 4, 2, 300, 70, 8, 6);
  grads g;
  placed_case in;
  placed po, pl, pdo, d[3];
  const int64_t o[] = {2, 4, 300, 6}, full[] = {2, 4, 300, 70};
  double *sums = calloc(70 + 4 + 1, sizeof *sums);
  a.dtype = SMX_F64, a.with_bias = a.with_slopes = a.with_sinks = a.options.causal = 1;
  acase_fill(&a, 3, 1);
  upstream(&a, &g, 4, 1);
  backward(&a, &g, NULL, ORDER_BHLD);
  for (int64_t i = 0; i < 2 * 4 * 300 * 70; i++) sums[i % 70] += result_at(SMX_F64, g.bytes[3], i);
  for (int64_t i = 0; i < 8; i++)
    sums[70 + i % 4] += result_at(SMX_F64, g.bytes[4], i), sums[74] += result_at(SMX_F64, g.bytes[5], i);
  acase_place(&a, ORDER_BHLD, &in);
  place(&po, 3, ORDER_BHLD, SMX_F64, 4, o, NULL), place(&pl, 4, ORDER_BHLD, SMX_F64, 3, o, NULL);
  place(&pdo, 9, ORDER_BHLD, SMX_F64, 4, o, g.d_o);
  place(d, 10, ORDER_BHLD, SMX_F32, 1, full + 3, NULL),
      place(d + 1, 11, ORDER_BHLD, SMX_F64, 1, full + 1, NULL);
  place(d + 2, 12, ORDER_BHLD, SMX_F64, 0, full, NULL);
  assert_int_equal(smx_attention(NULL, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t), SMX_OK);
  placed pdl;
  place(&pdl, 13, ORDER_BHLD, SMX_F64, 3, o, g.d_lse);
  int status = smx_attention_backward_bias(NULL, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t, &pdo.t,
                                           &pdl.t, &d[0].t, &d[1].t, &d[2].t);
  if (status) fail_msg("%s", smx_last_error());
  for (int64_t i = 0; i < 70; i++)
    assert_true(fabs((double)((float *)d[0].t.data)[i] - sums[i]) < 1e-6 * (1 + fabs(sums[i])));
  for (int64_t i = 0; i < 4; i++)
    assert_true(fabs(((double *)d[1].t.data)[i] - sums[70 + i]) < 1e-10 * (1 + fabs(sums[70 + i])));
  assert_true(fabs(*(double *)d[2].t.data - sums[74]) < 1e-11 * (1 + fabs(sums[74])));
  assert_int_equal(smx_attention_backward_bias(NULL, NULL, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t, &pdo.t,
                                               NULL, NULL, NULL, &d[2].t),
                   SMX_ERR_NULL);
  assert_int_equal(smx_attention_backward_bias(NULL, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &pl.t,
                                               &pdo.t, NULL, &pl.t, NULL, NULL),
                   SMX_ERR_SHAPE);
  free(sums);
  free_grads(&g);
  acase_free(&a);
}

/* Rows 0..9 and keys from 20 on have no visible pair with the others: whatever they hold, by heads
 * on one thread or by rows and keys on seven. */
static void what_is_hidden_has_no_gradient(void **state) {
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int w = 0; w < 2 * GRADS; w++) {
    acase a = acase_new(1, 2, 1, 30, 40, 16, 24);
    grads clean, dirty;
    a.with_mask = 1;
    set_kind(&a, w % GRADS);
    acase_fill(&a, (uint64_t)w, 1);
    for (int64_t x = 0; x < 2 * a.lq * a.lk; x++) a.mask[x] = x / a.lk % a.lq >= 10 && x % a.lk < 20;
    upstream(&a, &clean, 1, 0);
    upstream(&a, &dirty, 1, 0);
    backward(&a, &clean, NULL, ORDER_BHLD);
    for (int64_t h = 0; h < 2; h++)
      for (int64_t x = 0; x < 10; x++) {
        a.q[h * a.lq * a.d + x * a.d] = x % 2 ? NAN : INFINITY;
        dirty.d_o[h * a.lq * a.e + x * a.e + 3] = x % 2 ? NAN : INFINITY;
      }
    for (int64_t j = 20; j < a.lk; j++) a.k[j * a.d + 1] = a.v[j * a.e] = j % 2 ? NAN : INFINITY;
    backward(&a, &dirty, w < GRADS ? NULL : seven, ORDER_BHLD);
    for (int x = 0; x < 3; x++)
      if (memcmp(clean.bytes[x], dirty.bytes[x], clean.size[x])) fail_msg("weights %d: d%c", w, "qkv"[x]);
    for (int64_t x = 20 * a.d; x < a.lk * a.d; x++) assert_true(result_at(SMX_F32, dirty.bytes[1], x) == 0);
    for (int64_t x = 0; x < 10 * a.d; x++) assert_true(result_at(SMX_F32, dirty.bytes[0], x) == 0);
    free_grads(&clean);
    free_grads(&dirty);
    acase_free(&a);
  }
  smx_context_destroy(seven);
}

/* ---- packed sequences, some of them empty ---- */

enum { PACKED_HEADS = 4, PACKED_KV = 2, PACKED_D = 20, PACKED_E = 12, SEQUENCES = 5 };
static const int64_t packed_q[SEQUENCES + 1] = {0, 0, 70, 70, 70, 83},
                                          packed_k[SEQUENCES + 1] = {0, 300, 300, 309, 309, 340};

/* q, k, v, d_o, then o, lse, dq, dk, dv: [1, heads, all, columns]. */
enum { PACKED_IN = 4, PACKED_TENSORS = 9 };
static const struct {
  int64_t heads, columns;
  bool keys;
} packed[PACKED_TENSORS] = {
    {PACKED_HEADS, PACKED_D, 0}, {PACKED_KV, PACKED_D, 1},    {PACKED_KV, PACKED_E, 1},
    {PACKED_HEADS, PACKED_E, 0}, {PACKED_HEADS, PACKED_E, 0}, {PACKED_HEADS, 1, 0},
    {PACKED_HEADS, PACKED_D, 0}, {PACKED_KV, PACKED_D, 1},    {PACKED_KV, PACKED_E, 1}};

/* Rows from .. to - 1 of the queries or of the keys, of buffers that hold all. */
static void packed_call(float *const *at, smx_context *ctx, const smx_attention_options *o, int64_t s,
                        int64_t end) {
  int64_t shape[PACKED_TENSORS][4], strides[PACKED_TENSORS][4];
  smx_tensor t[PACKED_TENSORS];
  for (int i = 0; i < PACKED_TENSORS; i++) {
    const int64_t *offsets = packed[i].keys ? packed_k : packed_q, columns = packed[i].columns;
    memcpy(shape[i], (int64_t[]){1, packed[i].heads, offsets[end] - offsets[s], columns}, sizeof shape[i]);
    memcpy(strides[i], (int64_t[]){0, offsets[SEQUENCES] * columns, columns, 1}, sizeof strides[i]);
    t[i] =
        (smx_tensor){at[i] + offsets[s] * columns, {1, 0}, i == 5 ? 3 : 4, SMX_F32, shape[i], strides[i], 0};
  }
  int status = smx_attention(ctx, o, t, t + 1, t + 2, t + 4, t + 5);
  if (!status)
    status = smx_attention_backward(ctx, o, t, t + 1, t + 2, t + 4, t + 5, t + 3, NULL, t + 6, t + 7, t + 8);
  if (status) fail_msg("%s", smx_last_error());
}

/* Each has the bits of a call of its own, in the guarded memory of the context. */
static void packed_sequences_may_be_empty(void **state) {
  int64_t count = SEQUENCES + 1, q[SEQUENCES + 1], k[SEQUENCES + 1];
  memcpy(q, packed_q, sizeof q), memcpy(k, packed_k, sizeof k);
  const smx_tensor tq = {.data = q, .ndim = 1, .dtype = SMX_I64, .shape = &count},
                   tk = {.data = k, .ndim = 1, .dtype = SMX_I64, .shape = &count};
  for (int way = 0; way < 2 * GRADS; way++) {
    rng r = {(uint64_t)way};
    float *all[PACKED_TENSORS], *each[PACKED_TENSORS];
    guard_heap heap = {.left = -1, .low = way & 1};
    smx_context *ctx = guard_context(&heap, (smx_context_options){.threads = way < GRADS ? 1 : 7});
    acase a = acase_new(1, 1, 1, 1, 1, 1, 1); /* its options */
    set_kind(&a, way % GRADS);
    a.options.causal = way % 3 == 1;
    size_t bytes[PACKED_TENSORS];
    for (int i = 0; i < PACKED_TENSORS; i++) {
      bytes[i] =
          (size_t)(packed[i].heads * packed[i].columns * (packed[i].keys ? packed_k : packed_q)[SEQUENCES]) *
          sizeof(float);
      all[i] = guard_alloc(bytes[i], sizeof(float), false),
      each[i] = i < PACKED_IN ? all[i] : guard_alloc(bytes[i], sizeof(float), true);
      for (size_t x = 0; i < PACKED_IN && x < bytes[i] / sizeof(float); x++)
        all[i][x] = (float)rng_normal(&r);
    }
    for (int64_t s = 0; s < SEQUENCES; s++) packed_call(each, NULL, &a.options, s, s + 1);
    a.options.query_offsets = &tq, a.options.key_offsets = &tk;
    packed_call(all, ctx, &a.options, 0, SEQUENCES);
    for (int i = PACKED_IN; i < PACKED_TENSORS; i++)
      if (memcmp(all[i], each[i], bytes[i])) fail_msg("way %d: tensor %d differs", way, i);
    smx_context_destroy(ctx);
    assert_int_equal(heap.live, 0);
    for (int i = 0; i < PACKED_TENSORS; i++) {
      guard_free(all[i]);
      if (i >= PACKED_IN) guard_free(each[i]);
    }
  }
}

/* The sign of a sum is not saved. */
static void a_sum_that_may_be_negative_is_refused(void **state) {
  static const struct {
    smx_attention_weights weights;
    double param[SMX_ATTENTION_PARAMS];
    int status;
  } some[] = {{SMX_ATTENTION_IDENTITY, {CLAMP}, SMX_ERR_NO_BACKWARD},
              {SMX_ATTENTION_TAYLOR, {CLAMP, 2}, SMX_ERR_NO_BACKWARD},
              {SMX_ATTENTION_TAYLOR, {CLAMP, 5}, SMX_OK}};
  static float x[3];
  const smx_tensor t = {.data = x, .ndim = 4, .dtype = SMX_F32, .shape = (int64_t[]){1, 1, 1, 1}},
                   row = {.data = x + 1, .ndim = 3, .dtype = SMX_F32, .shape = t.shape};
  smx_tensor out = t;
  out.data = x + 2;
  for (size_t i = 0; i < COUNT_OF(some); i++) {
    smx_attention_options o = {.size = sizeof o};
    assert_int_equal(smx_attention_set_weights(&o, some[i].weights), SMX_OK);
    memcpy(o.param, some[i].param, sizeof o.param);
    assert_int_equal(smx_attention_backward(NULL, &o, &t, &t, &t, &t, &row, &t, NULL, &out, NULL, NULL),
                     some[i].status);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(pairs_in_memory_are_those_computed_again),
      cmocka_unit_test(broadcast_gradients_are_sums),
      cmocka_unit_test(what_is_hidden_has_no_gradient),
      cmocka_unit_test(packed_sequences_may_be_empty),
      cmocka_unit_test(a_sum_that_may_be_negative_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
