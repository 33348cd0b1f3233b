/* attention_edge.c - proves what attention does at its edges: rows that see nothing, NaN and
 * infinities, empty shapes, and bad input, which gives a status and a message that names the
 * argument, and writes nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "unit.h"

enum { HEADS = 4, KV = 2, LQ = 3, LK = 5, D = 4, E = 6 };

/* A small call whose tensors a test may spoil. */
typedef struct small {
  placed q, k, v, o, lse, extra, more;
  smx_attention_options options;
} small;

static double numbers[4096];

static small small_call(void) {
  static small s;
  s = (small){0};
  smx_attention_init(&s.options);
  for (size_t i = 0; i < COUNT_OF(numbers); i++) numbers[i] = (double)(i * 37 % 64) / 32 - 1;
  place(&s.q, 0, ORDER_BHLD, SMX_F32, 4, (int64_t[]){2, HEADS, LQ, D}, numbers);
  place(&s.k, 1, ORDER_BHLD, SMX_F32, 4, (int64_t[]){2, KV, LK, D}, numbers + 50);
  place(&s.v, 2, ORDER_BHLD, SMX_F32, 4, (int64_t[]){2, KV, LK, E}, numbers + 90);
  place(&s.o, 3, ORDER_BHLD, SMX_F32, 4, (int64_t[]){2, HEADS, LQ, E}, numbers);
  place(&s.lse, 4, ORDER_BHLD, SMX_F32, 3, (int64_t[]){2, HEADS, LQ}, numbers);
  return s;
}
static void fix(small *s) { /* a copied struct points at the shapes of the original */
  placed *all[] = {&s->q, &s->k, &s->v, &s->o, &s->lse, &s->extra, &s->more};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    all[i]->t.shape = all[i]->shape, all[i]->t.strides = all[i]->strides;
}
static int run(smx_context *ctx, small *s) {
  return smx_attention(ctx, &s->options, &s->q.t, &s->k.t, &s->v.t, &s->o.t, &s->lse.t);
}
static float *row_of(const placed *p, int64_t row, int64_t columns) {
  return (float *)p->t.data + row * columns;
}

/* ---- bad input ---- */

static void expect(const char *what, small *s, int status, const char *message) {
  unsigned char before[2 * HEADS * LQ * E * 4];
  memcpy(before, s->o.t.data, sizeof before);
  int got = run(NULL, s);
  if (got != status || !strstr(smx_last_error(), message))
    fail_msg("%s: status %d, message '%s'", what, got, smx_last_error());
  if (memcmp(before, s->o.t.data, sizeof before)) fail_msg("%s: wrote something", what);
}

#define BAD(change, status, message) \
  do { \
    small s = small_call(); \
    fix(&s); \
    change; \
    expect(#change, &s, status, message); \
  } while (0)

static void bad_shapes(void **state) {
  BAD(s.q.shape[1] = 3, SMX_ERR_SHAPE, "q: shape[1] is 3, not a multiple of the 2 heads of k");
  BAD(s.k.shape[3] = 3, SMX_ERR_SHAPE, "k: shape[3] is 3, not 4");
  BAD(s.v.shape[2] = 4, SMX_ERR_SHAPE, "v: shape[2] is 4, not 5");
  BAD(s.k.shape[0] = s.v.shape[0] = 1, SMX_ERR_SHAPE, "k: shape[0] is 1, not 2");
  BAD(s.o.shape[3] = 5, SMX_ERR_SHAPE, "o: shape[3] is 5, not 6");
  BAD(s.lse.shape[2] = 2, SMX_ERR_SHAPE, "lse: shape[2] is 2, not 3");
  BAD(s.q.t.ndim = 3, SMX_ERR_SHAPE, "q: ndim is 3, not 4");
  BAD(s.q.shape[2] = -1, SMX_ERR_SHAPE, "q: shape[2] is -1");
  BAD(s.q.shape[3] = s.k.shape[3] = 0, SMX_ERR_SHAPE, "q: shape[3] is 0, not 1..512");
  BAD(s.q.t.dtype = SMX_I32, SMX_ERR_DTYPE, "q: dtype is i32");
  BAD(s.lse.t.dtype = SMX_F16, SMX_ERR_DTYPE, "lse: dtype is f16");
  BAD(s.q.t.data = s.o.t.data, SMX_ERR_ALIAS, "o: overlaps q");
  BAD(s.o.strides[2] = 0, SMX_ERR_ALIAS, "o: two of its elements");
  BAD(s.k.t.data = NULL, SMX_ERR_NULL, "k: data is NULL");
}

static void bad_options(void **state) {
  BAD(s.options.size = 8, SMX_ERR_STRUCT, "options.size is 8");
  BAD(s.options.weights = SMX_ATTENTION_KINDS, SMX_ERR_PARAM, "options.weights");
  BAD(s.options.window_left = -2, SMX_ERR_PARAM, "options.window_left is -2");
  BAD(s.options.softcap = -1, SMX_ERR_PARAM, "options.softcap is -1");
  BAD(s.options.scale = NAN, SMX_ERR_PARAM, "options.scale is nan");
  BAD(s.options.key_start = 100, SMX_ERR_PARAM, "options.key_start is 100");
  BAD(s.options.param[0] = 1, SMX_ERR_PARAM, "options.param[0] is 1");
  BAD((s.options.weights = SMX_ATTENTION_TAYLOR, s.options.param[1] = 2.5), SMX_ERR_PARAM,
      "options.param[1] is 2.5");
  BAD((s.options.weights = SMX_ATTENTION_SIGMOID, s.options.sinks = &s.lse.t), SMX_ERR_PARAM,
      "sinks is not possible");
  BAD(s.options.dropout = 1, SMX_ERR_PARAM, "options.dropout is 1, not from 0 to below 1");
  BAD(s.options.dropout = NAN, SMX_ERR_PARAM, "options.dropout is nan");
  BAD((s.options.dropout = 0.5, s.options.key_start = 1 << 28), SMX_ERR_SHAPE,
      "options.dropout is 0.5, for at most 268435456 keys");
  BAD(s.options.streams = &s.q.t, SMX_ERR_DTYPE, "streams: dtype is f32, not i32 or i64");
  BAD(s.options.mask = &s.q.t, SMX_ERR_DTYPE, "mask: dtype is f32");
  BAD(s.options.bias = &s.q.t, SMX_ERR_SHAPE, "bias: shape[3] is 4 and does not broadcast to 5");
}

static void with_ints(small *s, placed *p, smx_dtype t, int32_t ndim, const int64_t *shape,
                      const double *values) {
  place(p, p == &s->extra ? 5 : 6, ORDER_BHLD, t, ndim, shape, values);
}
#define OFFSETS(n, ...) with_ints(&s, &s.extra, SMX_I32, 1, (int64_t[]){n}, (double[]){__VA_ARGS__})

static void bad_lengths_and_pages(void **state) {
  BAD((OFFSETS(2, 5, 6), s.options.lengths = &s.extra.t), SMX_ERR_SHAPE, "lengths: number 1 is 6, not 0..5");
  BAD((OFFSETS(3, 5, 5, 5), s.options.lengths = &s.extra.t), SMX_ERR_SHAPE, "lengths: shape[0] is 3, not 2");
  BAD((s.k.shape[0] = s.v.shape[0] = 1, OFFSETS(3, 0, 2, 5), s.options.key_offsets = &s.extra.t,
       with_ints(&s, &s.more, SMX_I32, 1, (int64_t[]){2}, (double[]){2, 4}), s.options.lengths = &s.more.t),
      SMX_ERR_SHAPE, "lengths: number 1 is 4, not 0..3");
  BAD((OFFSETS(3, 5, 5, 5), s.options.streams = &s.extra.t), SMX_ERR_SHAPE, "streams: shape[0] is 3, not 2");
  BAD((s.q.shape[0] = s.o.shape[0] = s.lse.shape[0] = 1, OFFSETS(3, 0, 2, 2),
       s.options.query_offsets = &s.extra.t),
      SMX_ERR_SHAPE, "query_offsets: number 2 is 2, not 3..3");
  BAD((s.q.shape[0] = s.o.shape[0] = s.lse.shape[0] = 1, OFFSETS(4, 0, 2, 1, 3),
       s.options.query_offsets = &s.extra.t),
      SMX_ERR_SHAPE, "query_offsets: number 2 is 1, not 2..3");
  BAD((OFFSETS(3, 0, 2, 3), s.options.query_offsets = &s.extra.t), SMX_ERR_SHAPE, "q: shape[0] is 2, not 1");
  BAD((OFFSETS(2, 1, 1), s.options.block_table = &s.extra.t), SMX_ERR_NULL, "lengths is NULL");
  BAD((with_ints(&s, &s.extra, SMX_I32, 2, (int64_t[]){2, 1}, (double[]){0, 2}), OFFSETS(1, 0),
       with_ints(&s, &s.more, SMX_I32, 1, (int64_t[]){2}, (double[]){5, 5}),
       with_ints(&s, &s.extra, SMX_I32, 2, (int64_t[]){2, 1}, (double[]){0, 2}),
       s.options.block_table = &s.extra.t, s.options.lengths = &s.more.t),
      SMX_ERR_SHAPE, "block_table: page 0 of sequence 1 is 2, not 0..1");
}

static void bad_gradients_and_states(void **state) {
  small s = small_call();
  fix(&s);
  const smx_tensor *o = &s.o.t, *none = NULL;
  assert_int_equal(
      smx_attention_backward(NULL, &s.options, &s.q.t, &s.k.t, &s.v.t, o, NULL, o, NULL, NULL, NULL, NULL),
      SMX_ERR_NULL);
  assert_non_null(strstr(smx_last_error(), "lse: is NULL"));
  s.options.weights = SMX_ATTENTION_IDENTITY, s.options.param[0] = SMX_ATTENTION_NORM_CLAMP;
  assert_int_equal(smx_attention_backward(NULL, &s.options, &s.q.t, &s.k.t, &s.v.t, o, &s.lse.t, o, NULL,
                                          NULL, NULL, NULL),
                   SMX_ERR_NO_BACKWARD);
  s.options.weights = SMX_ATTENTION_CENTRED;
  assert_int_equal(smx_attention_states(NULL, &s.options, &s.q.t, &s.k.t, &s.v.t, o), SMX_ERR_PARAM);
  s.options.weights = SMX_ATTENTION_SOFTMAX, s.options.param[0] = 0;
  assert_int_equal(smx_attention_states(NULL, &s.options, &s.q.t, &s.k.t, &s.v.t, o), SMX_ERR_SHAPE);
  assert_int_equal(smx_attention_merge(NULL, &s.options, 0, &none, o, NULL), SMX_ERR_PARAM);
  assert_int_equal(smx_attention_merge(NULL, &s.options, 1, &none, o, NULL), SMX_ERR_NULL);
  assert_int_equal(smx_attention_state_width(0), 0);
  assert_int_equal(smx_attention_init(NULL), SMX_ERR_NULL);
}

/* ---- rows that see nothing ---- */

static void empty_rows(void **state) {
  for (int policy = 0; policy < 3; policy++) {
    smx_context *ctx;
    smx_context_options how = {.size = sizeof how, .on_empty = (smx_on_empty)policy};
    small s = small_call();
    fix(&s);
    assert_int_equal(smx_context_create(&how, &ctx), SMX_OK);
    s.options.causal = 1;
    s.options.query_start = 0;
    s.options.window_left = 0;
    OFFSETS(2, 5, 1); /* sequence 1: row 0 sees key 0, rows 1 and 2 nothing */
    s.options.lengths = &s.extra.t;
    int status = run(ctx, &s);
    assert_int_equal(status, policy == SMX_EMPTY_ERROR ? SMX_ERR_EMPTY : SMX_OK);
    if (status) assert_non_null(strstr(smx_last_error(), "sequence 1, head 0, row 1 sees no key"));
    for (int64_t r = 0; r < 2 * HEADS * LQ; r++) {
      const float *o = row_of(&s.o, r, E), lse = *row_of(&s.lse, r, 1);
      if (r < HEADS * LQ || r % LQ == 0) { /* one key: its value, exactly */
        int64_t key = r < HEADS * LQ ? r % LQ : 0, kv = r / LQ / HEADS * KV + r / LQ % HEADS / 2;
        assert_memory_equal(o, row_of(&s.v, kv * LK + key, E), E * sizeof *o);
      } else if (policy == SMX_EMPTY_ZERO) {
        for (int x = 0; x < E; x++) assert_true(o[x] == 0 && !signbit(o[x]));
        assert_true(lse == -INFINITY);
      } else if (policy == SMX_EMPTY_NAN) {
        for (int x = 0; x < E; x++) assert_true(isnan(o[x]));
        assert_true(lse == -INFINITY);
      }
    }
    smx_context_destroy(ctx);
  }
}

static void sinks_alone(void **state) {
  small s = small_call();
  fix(&s);
  OFFSETS(2, 5, 0);
  s.options.lengths = &s.extra.t;
  place(&s.more, 6, ORDER_BHLD, SMX_F32, 2, (int64_t[]){1, HEADS}, (double[]){0, 1.5, -3, 1e6});
  s.options.sinks = &s.more.t;
  assert_int_equal(run(NULL, &s), SMX_OK);
  for (int64_t h = 0; h < HEADS; h++) {
    float lse = *row_of(&s.lse, (HEADS + h) * LQ, 1), want = *row_of(&s.more, h, 1);
    assert_true(fabsf(lse - want) <= 1e-6f * fmaxf(1, fabsf(want)));
    assert_true(*row_of(&s.o, (HEADS + h) * LQ, E) == 0);
  }
  assert_true(fabsf(*row_of(&s.lse, 3 * LQ, 1) - 1e6f) < 1); /* a sink that takes everything */
  assert_true(*row_of(&s.o, 3 * LQ, E) == 0);
}

/* ---- NaN and infinities ---- */

static void nan_and_infinity(void **state) {
  for (int limit = 0; limit < 2; limit++) {
    smx_context *ctx;
    smx_context_options how = {.size = sizeof how, .on_inf = limit ? SMX_INF_LIMIT : SMX_INF_NAN};
    small s = small_call();
    fix(&s);
    assert_int_equal(smx_context_create(&how, &ctx), SMX_OK);
    double bias[LQ * LK] = {0};
    bias[0 * LK + 2] = INFINITY, bias[0 * LK + 4] = INFINITY, bias[1 * LK + 1] = NAN,
                  bias[2 * LK] = -INFINITY;
    place(&s.extra, 5, ORDER_BHLD, SMX_F32, 2, (int64_t[]){LQ, LK}, bias);
    s.options.bias = &s.extra.t;
    assert_int_equal(run(ctx, &s), SMX_OK);
    for (int64_t r = 0; r < 2 * HEADS * LQ; r++) {
      const float *o = row_of(&s.o, r, E), lse = *row_of(&s.lse, r, 1);
      const float *v = row_of(&s.v, (r / LQ / HEADS * KV + r / LQ % HEADS / 2) * LK, E);
      uint32_t nan = 0x7fc00000u;
      for (int x = 0; x < E; x++) {
        if (r % LQ == 2) assert_true(isfinite(o[x]) && isfinite(lse));
        else if (r % LQ == 0 && limit)
          assert_true(fabsf(o[x] - (v[2 * E + x] + v[4 * E + x]) / 2) < 1e-6f && lse == INFINITY);
        else if (memcmp(o + x, &nan, 4) || memcmp(&lse, &nan, 4))
          fail_msg("row %d limit %d: %a, lse %a", (int)r, limit, (double)o[x], (double)lse);
      }
    }
    smx_context_destroy(ctx);
  }
}

/* A NaN in a key is seen, and nothing else: every kind of weights has a NaN for every query. */
static void nan_in_a_key(void **state) {
  for (size_t k = 0; k < smx_attention_kind_count(); k++) {
    small s = small_call();
    fix(&s);
    s.options.weights = (smx_attention_weights)smx_attention_kind_at(k)->id;
    if (run(NULL, &s) != SMX_OK) continue; /* wants parameters */
    for (int64_t h = 0; h < 2 * KV; h++) *row_of(&s.k, h * LK + 1, D) = NAN;
    assert_int_equal(run(NULL, &s), SMX_OK);
    for (int64_t r = 0; r < 2 * HEADS * LQ; r++)
      if (!isnan(*row_of(&s.o, r, E))) fail_msg("%s: row %d", smx_attention_kind_at(k)->name, (int)r);
  }
}

/* Dropout: a share of the weights is 0, the others are divided by what is left, and lse is as
 * without. */
static void dropped_weights(void **state) {
  static const double shares[] = {0, 0x1p-33, 0.1, 0.5, 0.9};
  enum { ROWS = 40, KEYS = 1500 };
  acase a = acase_new(1, 2, 1, ROWS, KEYS, 4, 1);
  const int64_t shape[] = {1, 2, ROWS, KEYS}, n = 2 * ROWS * KEYS;
  float *whole = malloc((size_t)n * sizeof *whole), *kept = malloc((size_t)n * sizeof *kept);
  placed_case in;
  results want, got;
  acase_fill(&a, 2, 1);
  assert_int_equal(acase_run(&a, NULL, ORDER_BHLD, &want), SMX_OK);
  for (size_t s = 0; s < COUNT_OF(shares); s++) {
    int64_t dropped = 0;
    placed w;
    for (int way = 0; way < 2; way++) {
      a.options.dropout = way ? shares[s] : 0, a.options.seed = s;
      acase_place(&a, ORDER_BHLD, &in);
      place(&w, 9, ORDER_BHLD, SMX_F32, 4, shape, NULL);
      assert_int_equal(smx_attention_scores(NULL, &in.options, SMX_ATTENTION_WEIGHTS, &in.q.t, &in.k.t, &w.t),
                       SMX_OK);
      fetch(&w, way ? kept : whole);
    }
    for (int64_t i = 0; i < n; i++) {
      const double full = (double)whole[i] / (1 - shares[s]);
      dropped += kept[i] == 0;
      if (kept[i] != 0 && !(fabs((double)kept[i] - full) <= full * 0x1p-21))
        fail_msg("share %g: %a of %a", shares[s], (double)kept[i], (double)whole[i]);
    }
    const double far = fabs((double)dropped / (double)n - shares[s]) /
                       sqrt(shares[s] * (1 - shares[s]) / (double)n + 0x1p-60);
    printf("dropout %.3g: %.5f of %d weights, %.2f deviations away\n", shares[s], (double)dropped / (double)n,
           (int)n, far);
    assert_true(far < 4);
    assert_int_equal(acase_run(&a, NULL, ORDER_BHLD, &got), SMX_OK);
    assert_memory_equal(want.lse, got.lse, want.lse_bytes);
    if (shares[s] < 0x1p-32) assert_memory_equal(want.o, got.o, want.o_bytes);
    results_free(&got);
  }
  results_free(&want);
  free(whole), free(kept);
  acase_free(&a);
}

static void empty_shapes(void **state) {
  small s = small_call();
  fix(&s);
  s.q.shape[2] = s.o.shape[2] = s.lse.shape[2] = 0;
  assert_int_equal(run(NULL, &s), SMX_OK);
  s = small_call();
  fix(&s);
  s.k.shape[2] = s.v.shape[2] = 0;
  assert_int_equal(run(NULL, &s), SMX_OK);
  for (int64_t r = 0; r < 2 * HEADS * LQ; r++)
    assert_true(*row_of(&s.o, r, E) == 0 && *row_of(&s.lse, r, 1) == -INFINITY);
  s = small_call();
  fix(&s);
  s.q.shape[0] = s.k.shape[0] = s.v.shape[0] = s.o.shape[0] = s.lse.shape[0] = 0;
  assert_int_equal(run(NULL, &s), SMX_OK);
  assert_int_equal(smx_attention(NULL, NULL, &s.q.t, &s.k.t, &s.v.t, NULL, NULL), SMX_ERR_NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_shapes),
      cmocka_unit_test(bad_options),
      cmocka_unit_test(bad_lengths_and_pages),
      cmocka_unit_test(bad_gradients_and_states),
      cmocka_unit_test(empty_rows),
      cmocka_unit_test(sinks_alone),
      cmocka_unit_test(nan_and_infinity),
      cmocka_unit_test(nan_in_a_key),
      cmocka_unit_test(dropped_weights),
      cmocka_unit_test(empty_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
