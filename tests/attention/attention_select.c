/* attention_select.c - proves smx_attention_select: known answers, every list against one that is
 * made by looking for the best key again and again, that bits depend on nothing but a row, and what
 * bad input gives: a status, a message, and nothing written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"
#include "attention_case.h"
#include "cpu/cpu.h"
#include "unit.h"

static smx_attention_select_options defaults(void) {
  return (smx_attention_select_options){.size = sizeof(smx_attention_select_options)};
}

/* ---- known answers ---- */

static void expect_list(const smx_attention_select_options *options, const double *mass, int64_t n,
                        const int32_t *want, int64_t most, int32_t count) {
  int32_t keys[8], kept = -1;
  int64_t rows[] = {1, 1, n}, list[] = {1, 1, most};
  const smx_tensor m = smx_tensor_of(mass, SMX_F64, 3, rows, NULL),
                   k = smx_tensor_of(keys, SMX_I32, 3, list, NULL);
  const smx_tensor c = smx_tensor_of(&kept, SMX_I32, 2, list, NULL);
  if (smx_attention_select(NULL, options, &m, &k, &c)) fail_msg("%s", smx_last_error());
  assert_int_equal(kept, count);
  for (int64_t i = 0; i < most; i++)
    if (keys[i] != want[i]) fail_msg("number %d is %d, not %d", (int)i, (int)keys[i], (int)want[i]);
}

/* The masses of four keys under a window of two rows, whose own keys are the last two. */
static void known_answers(void **state) {
  static const double mass[] = {0.26897881021, 0.278271358601, 0.147178238245, 1.08750825893, 0.1, 0.1};
  smx_attention_select_options o = defaults();
  expect_list(NULL, mass, 6, (int32_t[]){1, 3}, 2, 2);
  o.last = 2;
  expect_list(&o, mass, 6, (int32_t[]){3, 4, 5}, 3, 3);
  o.kernel = 3; /* 0.182416722937, 0.231476135685, 0.504319285259, 0.411562165726 */
  expect_list(&o, mass, 6, (int32_t[]){2, 4, 5}, 3, 3);
  expect_list(&o, mass, 6, (int32_t[]){1, 2, 3, 4, 5}, 5, 5);
  /* by itself 3 is the best, then 1; by three of what is left 2 */
  o.kernel = 0, o.kernels = (int64_t[]){1, 3}, o.kernel_count = 2;
  expect_list(&o, mass, 6, (int32_t[]){3, 4, 5}, 3, 3);
  expect_list(&o, mass, 6, (int32_t[]){2, 3, 4, 5}, 4, 4);
  expect_list(&o, mass, 6, (int32_t[]){1, 2, 3, 4, 5}, 5, 5);
  o.kernel = 3, o.kernels = NULL, o.kernel_count = 0;
  o.pool = SMX_ATTENTION_POOL_MAX; /* 0.278271358601, 0.278271358601, 1.08750825893, 1.08750825893 */
  expect_list(&o, mass, 6, (int32_t[]){2, 4, 5}, 3, 3);
  expect_list(&o, mass, 6, (int32_t[]){0, 2, 3, 4, 5}, 5, 5);
  expect_list(&o, mass, 6, (int32_t[]){0, 1, 2, 3, 4, 5, -1}, 7, 6);
  expect_list(&o, mass, 0, (int32_t[]){-1, -1}, 2, 0);
}

/* -0 and 0 are equal, NaN comes with -inf after every number. */
static void special_values(void **state) {
  const double mass[] = {NAN, -0.0, 0, -INFINITY, INFINITY, -1, -NAN};
  smx_attention_select_options o = defaults();
  expect_list(NULL, mass, 7, (int32_t[]){1, 4}, 2, 2);
  expect_list(NULL, mass, 7, (int32_t[]){1, 2, 4, 5}, 4, 4);
  expect_list(NULL, mass, 7, (int32_t[]){0, 1, 2, 4, 5}, 5, 5);
  expect_list(NULL, mass, 7, (int32_t[]){0, 1, 2, 3, 4, 5}, 6, 6);
  o.kernel = 3; /* all -inf, or inf - inf */
  expect_list(&o, mass, 7, (int32_t[]){0, 1}, 2, 2);
  o.pool = SMX_ATTENTION_POOL_MAX; /* -inf, -inf, 0, inf, inf, -inf, -inf */
  expect_list(&o, mass, 7, (int32_t[]){3, 4}, 2, 2);
  expect_list(&o, mass, 7, (int32_t[]){0, 2, 3, 4}, 4, 4);
}

/* ---- against looking for the best again and again ---- */

typedef struct lists {
  int64_t batch, heads, length, lists, most, first, last, kernels[4];
  int count; /* of kernels; 0: one */
  int pool;
  smx_dtype dtype;
  double *mass;
  double lengths[4], budgets[16];
  int with_lengths, with_budgets;
} lists;

static lists new_lists(int way) {
  rng r = {(uint64_t)way + 1};
  lists l = {.batch = 1 + rng_below(&r, 3),
             .heads = 1 + rng_below(&r, 4),
             .length = way % 5 ? 1 + rng_below(&r, 70) : 3000};
  l.lists = way % 3 ? l.heads : 1;
  l.most = 1 + rng_below(&r, l.length + 3);
  l.first = way % 4 == 1 ? rng_below(&r, l.most) : 0,
  l.last = way % 4 > 1 ? rng_below(&r, l.most - l.first + 1) : 0;
  l.count = way % 4 == 3 ? 1 + way % 9 % 4 : 0, l.pool = way / 2 % 2;
  for (int i = 0; i < 4; i++)
    l.kernels[i] = (int64_t[]){l.count ? 5 : 0, 1, 3, 7,
                               2 * l.length + 1}[(way % 5 ? way % 7 % 5 : way % 4) * (i + 1) % 5];
  l.dtype = float_dtypes[way % FLOAT_DTYPES];
  l.with_lengths = way % 6 == 4, l.with_budgets = way % 7 == 3;
  for (int64_t b = 0; b < l.batch; b++) l.lengths[b] = (double)rng_below(&r, l.length + 1);
  for (int64_t i = 0; i < l.batch * l.lists; i++)
    l.budgets[i] = (double)(l.first + l.last + rng_below(&r, l.most - l.first - l.last + 1));
  l.mass = malloc((size_t)(l.batch * l.heads * l.length) * sizeof *l.mass);
  for (int64_t i = 0; i < l.batch * l.heads * l.length; i++) /* some with many equals */
    l.mass[i] = dtype_round(l.dtype, way % 3 == 2 ? (double)rng_below(&r, 6) : rng_normal(&r));
  return l;
}

typedef struct found {
  int32_t *keys, *kept;
} found;

static found run(const lists *l, smx_context *ctx, int order) {
  const int64_t rows[] = {l->batch, l->heads, l->length}, keys[] = {l->batch, l->lists, l->most};
  placed mass, out, kept, lengths, budgets;
  smx_attention_select_options o = defaults();
  place(&mass, 0, order, l->dtype, 3, rows, l->mass);
  place(&out, 1, order, SMX_I32, 3, keys, NULL), place(&kept, 2, order, SMX_I32, 2, keys, NULL);
  place(&lengths, 3, order, order % 2 ? SMX_I32 : SMX_I64, 1, rows, l->lengths);
  place(&budgets, 4, order, order % 2 ? SMX_I64 : SMX_I32, 2, keys, l->budgets);
  o.first = l->first, o.last = l->last, o.pool = (smx_attention_pool)l->pool;
  if (l->count) o.kernels = l->kernels, o.kernel_count = (size_t)l->count;
  else o.kernel = l->kernels[0];
  if (l->with_lengths) o.lengths = &lengths.t;
  if (l->with_budgets) o.budgets = &budgets.t;
  if (smx_attention_select(ctx, &o, &mass.t, &out.t, &kept.t)) fail_msg("%s", smx_last_error());
  found f = {malloc((size_t)(keys[0] * keys[1] * keys[2]) * 4), malloc((size_t)(keys[0] * keys[1]) * 4)};
  fetch(&out, f.keys), fetch(&kept, f.kept);
  return f;
}

/* What list h of sequence b says of key j, whose neighbours are in from .. to, by a kernel. */
static double judged(const lists *l, int64_t b, int64_t h, int64_t j, int64_t from, int64_t to,
                     int64_t kernel) {
  const int64_t span = kernel / 2, heads = l->lists == l->heads ? 1 : l->heads;
  double all = l->pool ? -INFINITY : 0;
  for (int64_t t = j - span > from ? j - span : from; t <= j + span && t < to; t++) {
    double one = 0;
    for (int64_t i = 0; i < heads; i++) one += l->mass[(b * l->heads + h + i) * l->length + t];
    all = !l->pool ? all + one : one > all ? one : all;
  }
  return all;
}

static void check_list(const lists *l, int64_t b, int64_t h, const found *f, char *in, double *value) {
  const int64_t n = l->with_lengths ? (int64_t)l->lengths[b] : l->length, at = b * l->lists + h;
  const int64_t budget = l->with_budgets ? (int64_t)l->budgets[at] : l->most, count = budget < n ? budget : n;
  const int64_t to = n - l->last;
  const int kernels = l->count ? l->count : 1;
  int64_t wanted = count, number = 0;
  for (int64_t j = 0; j < n; j++) wanted -= in[j] = budget >= n || j < l->first || j >= to;
  for (int k = 0; k < kernels; k++) {
    for (int64_t j = 0; j < n; j++) value[j] = in[j] ? 0 : judged(l, b, h, j, l->first, to, l->kernels[k]);
    for (int64_t left = wanted / kernels + (k < wanted % kernels); left > 0; left--) {
      int64_t best = -1;
      for (int64_t j = 0; j < n; j++)
        if (!in[j] && (best < 0 || value[j] > value[best])) best = j;
      if (best >= 0) in[best] = 1;
    }
  }
  assert_int_equal(f->kept[at], count);
  for (int64_t j = 0; j < n; j++)
    if (in[j] && f->keys[at * l->most + number++] != j)
      fail_msg("list %d: key %d is not number %d", (int)at, (int)j, (int)number - 1);
  while (number < l->most) assert_int_equal(f->keys[at * l->most + number++], -1);
}

static void every_list(void **state) {
  for (int way = 0; way < 420; way++) {
    lists l = new_lists(way);
    found f = run(&l, NULL, way % ORDERS);
    char *in = malloc((size_t)l.length);
    double *value = malloc((size_t)l.length * sizeof *value);
    for (int64_t i = 0; i < l.batch * l.lists; i++) check_list(&l, i / l.lists, i % l.lists, &f, in, value);
    free(in), free(value), free(f.keys), free(f.kept), free(l.mass);
  }
}

static void bits_do_not_depend_on_how(void **state) {
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int way = 0; way < 40; way++) {
    lists l = new_lists(way);
    found want = run(&l, NULL, ORDER_BHLD);
    for (int i = 0; i < smx_isa_count() + ORDERS; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      found got = run(&l, i % 2 ? seven : NULL, i % ORDERS);
      smx_isa_set(fastest);
      assert_memory_equal(want.keys, got.keys, (size_t)(l.batch * l.lists * l.most) * 4);
      assert_memory_equal(want.kept, got.kept, (size_t)(l.batch * l.lists) * 4);
      free(got.keys), free(got.kept);
    }
    free(want.keys), free(want.kept), free(l.mass);
  }
  smx_context_destroy(seven);
}

/* ---- bad input ---- */

static void bad_input(void **state) {
  static const double some[24] = {1, 2, 3};
  enum { B = 2, H = 3, LK = 4, K = 2 };
  placed mass, keys, kept, lengths, budgets;
  smx_attention_select_options o;
  int32_t before[B * H * K], *out;
#define BAD(change, status, message) \
  do { \
    place(&mass, 0, ORDER_BHLD, SMX_F32, 3, (int64_t[]){B, H, LK}, some); \
    place(&keys, 1, ORDER_BHLD, SMX_I32, 3, (int64_t[]){B, H, K}, some); \
    place(&kept, 2, ORDER_BHLD, SMX_I32, 2, (int64_t[]){B, H}, NULL); \
    place(&lengths, 3, ORDER_BHLD, SMX_I64, 1, (int64_t[]){B}, (double[]){LK, LK + 1}); \
    place(&budgets, 4, ORDER_BHLD, SMX_I32, 2, (int64_t[]){1, H}, (double[]){1, 0, 2}); \
    o = defaults(); \
    out = keys.t.data; \
    memcpy(before, out, sizeof before); \
    change; \
    int got = smx_attention_select(NULL, &o, &mass.t, &keys.t, &kept.t); \
    if (got != (status) || !strstr(smx_last_error(), message)) \
      fail_msg("%s: status %d, '%s'", #change, got, smx_last_error()); \
    assert_memory_equal(before, out, sizeof before); \
  } while (0)
  BAD(o.size = 1, SMX_ERR_STRUCT, "smx_attention_select: options.size is 1");
  BAD(o.first = -1, SMX_ERR_PARAM, "options.first is -1");
  BAD(o.last = -2, SMX_ERR_PARAM, "options.last is -2");
  BAD((o.first = 1, o.last = INT64_MAX), SMX_ERR_PARAM,
      "options.first + options.last is 1 + 9223372036854775807, more than the 2 of a list");
  BAD(o.kernel = 4, SMX_ERR_PARAM, "options.kernel is 4, not an odd number");
  BAD(o.kernel = -1, SMX_ERR_PARAM, "options.kernel is -1");
  BAD((o.kernels = (int64_t[]){3, 2}, o.kernel_count = 2), SMX_ERR_PARAM,
      "options.kernels is 2, not an odd number");
  BAD((o.kernels = (int64_t[]){-3}, o.kernel_count = 1), SMX_ERR_PARAM, "options.kernels is -3");
  BAD((o.kernels = (int64_t[]){3}, o.kernel_count = 1, o.kernel = 5), SMX_ERR_PARAM,
      "options.kernel is 5, which is not possible beside");
  BAD((o.kernels = (int64_t[65]){3}, o.kernel_count = 65), SMX_ERR_PARAM,
      "options.kernel_count is 65, not at most 64");
  BAD(o.kernel_count = 2, SMX_ERR_NULL, "options.kernels is NULL, options.kernel_count 2");
  BAD(o.pool = (smx_attention_pool)2, SMX_ERR_PARAM, "options.pool is 2, not 0..1");
  BAD(o.lengths = &lengths.t, SMX_ERR_SHAPE, "lengths: number 1 is 5, not 0..4");
  BAD((o.budgets = &budgets.t, o.first = 1), SMX_ERR_SHAPE, "budgets: number 1 is 0, not 1..2");
  BAD((o.budgets = &budgets.t, budgets.shape[1] = 2), SMX_ERR_SHAPE, "budgets");
  BAD(o.budgets = &mass.t, SMX_ERR_DTYPE, "budgets: dtype is f32, not i32 or i64");
  BAD(mass.t.ndim = 2, SMX_ERR_SHAPE, "mass: ndim is 2, not 3");
  BAD(mass.t.dtype = SMX_I32, SMX_ERR_DTYPE, "mass: dtype is i32");
  BAD(mass.t.data = NULL, SMX_ERR_NULL, "mass");
  BAD(keys.t.dtype = SMX_I64, SMX_ERR_DTYPE, "keys: dtype is i64, not i32");
  BAD(keys.shape[1] = 2, SMX_ERR_SHAPE, "keys: shape[1] is 2, not 3 or 1");
  BAD(keys.shape[0] = 1, SMX_ERR_SHAPE, "keys: shape[0] is 1, not 2");
  BAD(keys.strides[2] = 0, SMX_ERR_ALIAS, "keys: two of its elements");
  BAD(keys.t.data = mass.t.data, SMX_ERR_ALIAS, "keys: overlaps mass");
  BAD(kept.t.data = keys.t.data, SMX_ERR_ALIAS, "kept: overlaps keys");
  BAD(kept.shape[1] = 1, SMX_ERR_SHAPE, "kept: shape[1] is 1, not 3");
  assert_int_equal(smx_attention_select(NULL, NULL, NULL, &keys.t, NULL), SMX_ERR_NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers), cmocka_unit_test(special_values),
      cmocka_unit_test(every_list),    cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
