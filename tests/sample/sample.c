/* sample.c - proves that draws follow their distribution and that every step of smx_sample keeps
 * what it says: exact counts that the definition of the random numbers implies (from an independent
 * program), chi-square with fixed seeds, tails included, known answers of each step, a naive
 * reference that sorts, and equal results on every instruction set and number of threads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "unit.h"
#include "util.h"

enum { DRAWS = 100000 };

static smx_sample_options options(const smx_step *steps, size_t count, smx_draw draw, uint64_t seed) {
  return (smx_sample_options){
      .size = sizeof(smx_sample_options), .steps = steps, .step_count = count, .draw = draw, .seed = seed};
}

/* Draws from one row with streams 0 .. draws - 1. */
static void count_draws(const double *z, size_t n, smx_sample_options o, size_t draws, int64_t *counts) {
  memset(counts, 0, n * sizeof *counts);
  for (size_t i = 0; i < draws; i++) {
    int64_t index;
    o.stream = i;
    assert_int_equal(smx_sample_f64(NULL, &o, 1, n, z, &index, NULL), SMX_OK);
    assert_true(index >= 0 && index < (int64_t)n);
    counts[index]++;
  }
}

static const double eight[] = {0, 0.5, 1, 1.5, 2, -1, -0.5, 0.25};

static void counts_are_those_of_the_definition(void **state) {
  static const int64_t gumbel[] = {5102, 8410, 13873, 22918, 38042, 1820, 3086, 6749};
  static const int64_t cdf[] = {5132, 8434, 13926, 22937, 37706, 1934, 3262, 6669};
  int64_t counts[8];
  count_draws(eight, 8, options(NULL, 0, SMX_DRAW_GUMBEL, 42), DRAWS, counts);
  assert_memory_equal(counts, gumbel, sizeof gumbel);
  count_draws(eight, 8, options(NULL, 0, SMX_DRAW_CDF, 42), DRAWS, counts);
  assert_memory_equal(counts, cdf, sizeof cdf);
}

/* The operator draws the same. */
static void the_operator_agrees(void **state) {
  enum { ROWS = 5000 };
  static double x[ROWS][8];
  static int64_t stream[ROWS], index[ROWS], direct[ROWS];
  const smx_op *op = smx_op_find("categorical_sample");
  int64_t full[2] = {ROWS, 8}, row[1] = {ROWS};
  smx_tensor tx = {.data = x, .ndim = 2, .dtype = SMX_F64, .shape = full},
             ts = {.data = stream, .ndim = 1, .dtype = SMX_I64, .shape = row},
             ti = {.data = index, .ndim = 1, .dtype = SMX_I64, .shape = row};
  const smx_tensor *in[] = {&tx, &ts}, *out[] = {&ti};
  for (int r = 0; r < ROWS; r++) memcpy(x[r], eight, sizeof eight), stream[r] = r;
  for (int method = 0; method < 2; method++) {
    smx_params p;
    smx_sample_options o = options(NULL, 0, (smx_draw)method, 9);
    smx_params_init(op, &p);
    smx_params_set(op, &p, "method", method);
    smx_params_set(op, &p, "seed", 9);
    assert_int_equal(smx_forward(op, NULL, &p, 2, in, 1, out), SMX_OK);
    assert_int_equal(smx_sample_f64(NULL, &o, ROWS, 8, x[0], direct, NULL), SMX_OK);
    assert_memory_equal(index, direct, sizeof index);
  }
}

/* 32768 elements 18 nats below the best together have a probability of 5.0e-4. */
static void the_tail_appears_at_its_rate(void **state) {
  enum { N = 32769, TRIES = 20000 };
  static double z[N];
  static int64_t counts[N];
  for (int i = 1; i < N; i++) z[i] = -18;
  double p = 32768 * exp(-18.0) / (1 + 32768 * exp(-18.0)), expected = TRIES * p;
  for (int draw = 0; draw < 2; draw++) {
    count_draws(z, N, options(NULL, 0, (smx_draw)draw, 5), TRIES, counts);
    double tail = (double)(TRIES - counts[0]);
    printf("%s: %g in the tail, %g expected\n", draw ? "cdf" : "gumbel", tail, expected);
    assert_true(fabs(tail - expected) < 5 * sqrt(expected));
  }
}

/* ---- steps ---- */

static const double five[] = {0.5, 0.25, 0.15, 0.07, 0.03};

/* The elements that a chain leaves, as bits, from draws and from the probabilities they have. */
static unsigned kept(const smx_step *steps, size_t count) {
  double z[5];
  unsigned bits = 0;
  for (int i = 0; i < 5; i++) z[i] = log(five[i]);
  for (uint64_t stream = 0; stream < 600; stream++) {
    smx_sample_options o = options(steps, count, SMX_DRAW_CDF, 1);
    int64_t index;
    o.stream = stream;
    assert_int_equal(smx_sample_f64(NULL, &o, 1, 5, z, &index, NULL), SMX_OK);
    bits |= 1u << index;
  }
  return bits;
}

static void steps_keep_what_the_catalogue_says(void **state) {
  static const int64_t three[] = {2};
  static const struct {
    const char *name;
    smx_step step;
    unsigned bits;
  } known[] = {
      {"no temperature", {.kind = SMX_STEP_TEMPERATURE, .a = 0}, 0x1},
      {"top-k 2", {.kind = SMX_STEP_TOP_K, .a = 2}, 0x3},
      {"top-k 9", {.kind = SMX_STEP_TOP_K, .a = 9}, 0x1f},
      {"top-p .76", {.kind = SMX_STEP_TOP_P, .a = 0.76}, 0x7},
      {"top-p .74", {.kind = SMX_STEP_TOP_P, .a = 0.74}, 0x3},
      {"top-p 0", {.kind = SMX_STEP_TOP_P, .a = 0}, 0x1},
      {"top-p 1", {.kind = SMX_STEP_TOP_P, .a = 1}, 0x1f},
      {"min-p .2", {.kind = SMX_STEP_MIN_P, .a = 0.2}, 0x7},
      {"min-p 0", {.kind = SMX_STEP_MIN_P, .a = 0}, 0x1f},
      {"min-p 1", {.kind = SMX_STEP_MIN_P, .a = 1}, 0x1},
      {"typical .6", {.kind = SMX_STEP_TYPICAL, .a = 0.6}, 0x3},
      {"typical .2", {.kind = SMX_STEP_TYPICAL, .a = 0.2}, 0x2},
      {"epsilon .1", {.kind = SMX_STEP_EPSILON, .a = 0.1}, 0x7},
      {"epsilon .9", {.kind = SMX_STEP_EPSILON, .a = 0.9}, 0x1},
      {"eta .1", {.kind = SMX_STEP_ETA, .a = 0.1}, 0x7},
      {"eta .3", {.kind = SMX_STEP_ETA, .a = 0.3}, 0x3},
      {"top-n-sigma 1, sample", {.kind = SMX_STEP_TOP_N_SIGMA, .a = 1, .b = 1}, 0x3},
      {"top-n-sigma 1", {.kind = SMX_STEP_TOP_N_SIGMA, .a = 1}, 0x3},
      {"surprise 2.5", {.kind = SMX_STEP_SURPRISE, .a = 2.5}, 0x3},
      {"surprise -1", {.kind = SMX_STEP_SURPRISE, .a = -1}, 0x1},
      {"xtc .2", {.kind = SMX_STEP_XTC, .a = 1, .b = 0.2}, 0x1e},
      {"xtc .6", {.kind = SMX_STEP_XTC, .a = 1, .b = 0.6}, 0x1f},
      {"xtc never", {.kind = SMX_STEP_XTC, .a = 0, .b = 0.2}, 0x1f},
      {"ban", {.kind = SMX_STEP_BAN, .tokens = three, .token_count = 1}, 0x1b},
      {"allow", {.kind = SMX_STEP_ALLOW, .tokens = three, .token_count = 1}, 0x4},
  };
  for (size_t i = 0; i < COUNT_OF(known); i++)
    if (kept(&known[i].step, 1) != known[i].bits)
      fail_msg("%s keeps %#x, not %#x", known[i].name, kept(&known[i].step, 1), known[i].bits);
}

static void penalties(void **state) {
  static const double z[] = {2, -1, 0.5, 0}, counts[] = {3, 1};
  static const int64_t seen[] = {0, 1};
  static const smx_step steps[] = {
      {.kind = SMX_STEP_REPETITION, .a = 1.2, .tokens = seen, .token_count = 2},
      {.kind = SMX_STEP_FREQUENCY, .a = 0.1, .b = 0.25, .tokens = seen, .values = counts, .token_count = 2},
      {.kind = SMX_STEP_BIAS, .tokens = seen + 1, .values = counts, .token_count = 1}};
  const double want[] = {2 / 1.2 - 0.3 - 0.25, -1.2 - 0.1 - 0.25 + 3, 0.5, 0};
  double sum = 0;
  for (int i = 0; i < 4; i++) sum += exp(want[i]);
  for (uint64_t stream = 0; stream < 100; stream++) {
    smx_sample_options o = options(steps, 3, SMX_DRAW_GUMBEL, 3);
    int64_t index;
    double log_p;
    o.stream = stream;
    assert_int_equal(smx_sample_f64(NULL, &o, 1, 4, z, &index, &log_p), SMX_OK);
    assert_true(fabs(log_p - (want[index] - log(sum))) < 1e-13);
  }
}

/* ---- against a reference that sorts ---- */

typedef struct item {
  double z, p, key;
  int64_t index;
} item;

static int by_key(const void *a, const void *b) {
  const item *u = a, *v = b;
  return u->key != v->key ? (u->key < v->key) - (u->key > v->key)
                          : (u->index > v->index) - (u->index < v->index);
}

/* Keeps a prefix, best key first, with this mass; returns log of the mass that is kept, relative to
 * the whole. */
static double reference_mass(item *v, size_t n, double share, double entropy, double *out) {
  double sum = 0, lse = 0;
  for (size_t i = 0; i < n; i++) lse += exp(v[i].z);
  for (size_t i = 0; i < n; i++) {
    v[i].p = exp(v[i].z) / lse;
    v[i].key = isnan(entropy) ? v[i].z : -fabs(-log(v[i].p) - entropy);
  }
  qsort(v, n, sizeof *v, by_key);
  for (size_t i = 0; i < n; i++) {
    out[v[i].index] = sum < share ? v[i].p : 0;
    sum += v[i].p;
  }
  sum = 0;
  for (size_t i = 0; i < n; i++) sum += out[i];
  return log(sum);
}

static void masses_of_long_rows(void **state) {
  enum { N = 20000 };
  static double z[N], left[N];
  static item v[N];
  rng r = {3};
  for (int shape = 0; shape < 3; shape++)
    for (int kind = 0; kind < 2; kind++) {
      double entropy = 0, sum = 0;
      for (int i = 0; i < N; i++) z[i] = (shape == 0 ? 0.5 : shape == 1 ? 2 : 6) * rng_normal(&r);
      for (int i = 0; i < N; i++) sum += exp(z[i]), v[i] = (item){.z = z[i], .index = i};
      for (int i = 0; i < N; i++) entropy -= exp(z[i]) / sum * (z[i] - log(sum));
      double log_mass = reference_mass(v, N, 0.9, kind ? entropy : (double)NAN, left);
      smx_step step = {.kind = kind ? SMX_STEP_TYPICAL : SMX_STEP_TOP_P, .a = 0.9};
      for (uint64_t stream = 0; stream < 20; stream++) {
        smx_sample_options o = options(&step, 1, stream % 2 ? SMX_DRAW_CDF : SMX_DRAW_GUMBEL, 11);
        int64_t index;
        double log_p;
        o.stream = stream;
        assert_int_equal(smx_sample_f64(NULL, &o, 1, N, z, &index, &log_p), SMX_OK);
        if (!(left[index] > 0)) fail_msg("shape %d kind %d: %d should not be left", shape, kind, (int)index);
        if (fabs(log_p - (log(left[index]) - log_mass)) > 1e-9)
          fail_msg("shape %d kind %d: log p is %.12g, not %.12g", shape, kind, log_p,
                   log(left[index]) - log_mass);
      }
    }
}

/* Rows of f32 with and without a peak, several in a call: what is drawn was left, is as probable as
 * it should be, and lies where the same uniform variate falls among EVEN equal elements. */
static void draws_of_long_rows(void **state) {
  enum { N = 40000, EVEN = 65536, ROWS = 16 };
  static const double temperatures[] = {0.8, 0.7, 1.0 / 3};
  static float x[ROWS * N], even[EVEN];
  static double left[N];
  static item v[N];
  rng r = {5};
  for (int k = 0; k < 9; k++) {
    const double deviation = k / 3 == 0 ? 0.5 : k / 3 == 1 ? 2 : 6, t = temperatures[k % 3];
    const smx_step steps[] = {{.kind = SMX_STEP_TEMPERATURE, .a = t}, {.kind = SMX_STEP_TOP_P, .a = 0.95}};
    const smx_sample_options o = options(steps, 2, SMX_DRAW_CDF, 3);
    double total = 0;
    int64_t index[ROWS];
    float log_p[ROWS];
    for (int i = 0; i < N; i++) x[i] = (float)(deviation * rng_normal(&r));
    for (int i = 1; i < ROWS; i++) memcpy(x + (size_t)i * N, x, N * sizeof *x);
    for (int i = 0; i < N; i++) v[i] = (item){.z = (float)((double)x[i] / t), .index = i};
    const double log_mass = reference_mass(v, N, 0.95, (double)NAN, left);
    for (int i = 0; i < N; i++) total += left[i];
    assert_int_equal(smx_sample_f32(NULL, &o, ROWS, N, x, index, log_p), SMX_OK);
    for (int row = 0; row < ROWS; row++) {
      smx_sample_options plain = options(NULL, 0, SMX_DRAW_CDF, 3);
      double before = 0;
      int64_t place;
      plain.stream = (uint64_t)row;
      assert_int_equal(smx_sample_f32(NULL, &plain, 1, EVEN, even, &place, NULL), SMX_OK);
      for (int64_t i = 0; i < index[row]; i++) before += left[i];
      if (!(left[index[row]] > 0)) fail_msg("%d: %d should not be left", k, (int)index[row]);
      if (fabs((double)log_p[row] - (log(left[index[row]]) - log_mass)) > 1e-5)
        fail_msg("%d: log p is %g", k, (double)log_p[row]);
      if (before / total > (place + 1.0) / EVEN + 1e-6 ||
          (before + left[index[row]]) / total < (double)place / EVEN - 1e-6)
        fail_msg("%d: %d lies at %g, not at %g", k, (int)index[row], before / total, (double)place / EVEN);
    }
  }
}

/* ---- every machine, any rows ---- */

static void fill_rows(rng *r, float *x, size_t rows, size_t n) {
  for (size_t i = 0; i < rows * n; i++)
    x[i] = rng_below(r, 9) == 0 ? -INFINITY : (float)((i / n % 3 == 0 ? 0.3 : 4) * rng_normal(r));
}

static void a_draw_depends_on_nothing_else(void **state) {
  enum { ROWS = 12 };
  static const size_t lengths[] = {1, 5, 64, 1000, 9000, 40000};
  static const smx_step chains[][5] = {
      {{.kind = SMX_STEP_TEMPERATURE, .a = 0.8},
       {.kind = SMX_STEP_TOP_K, .a = 5000},
       {.kind = SMX_STEP_TYPICAL, .a = 0.97},
       {.kind = SMX_STEP_TOP_P, .a = 0.95},
       {.kind = SMX_STEP_ETA, .a = 1e-5}},
      {{.kind = SMX_STEP_TEMPERATURE, .a = 0.8}, {.kind = SMX_STEP_TOP_P, .a = 0.95}},
      {{.kind = SMX_STEP_DYNAMIC_TEMPERATURE, .a = 1, .b = 0.5, .c = 1},
       {.kind = SMX_STEP_QUADRATIC, .a = 0.1, .b = 1.5},
       {.kind = SMX_STEP_TAIL_FREE, .a = 0.97},
       {.kind = SMX_STEP_MIROSTAT, .a = 12},
       {.kind = SMX_STEP_TOP_H, .a = 0.97}},
  };
  static const size_t counts[] = {5, 2, 5};
  static float x[ROWS * 40000];
  smx_context_options three = {.size = sizeof three, .threads = 3};
  smx_context *ctx;
  rng r = {1};
  assert_int_equal(smx_context_create(&three, &ctx), SMX_OK);
  for (size_t l = 0; l < COUNT_OF(lengths); l++)
    for (int k = 0; k < 9; k++) {
      const int draw = k % 3, chain = k / 3;
      size_t n = lengths[l];
      int64_t want[ROWS], got[ROWS];
      float want_log[ROWS], got_log[ROWS];
      smx_sample_options o = options(chains[chain], counts[chain], (smx_draw)draw, 77);
      fill_rows(&r, x, ROWS, n);
      for (size_t i = 0; i < 2 * n; i++) x[i] = roundf(8 * x[i]) / 8; /* ties */
      assert_int_equal(smx_isa_set("portable"), 0);
      for (size_t i = 0; i < ROWS; i++) { /* one by one */
        o.stream = 100 + i;
        assert_int_equal(smx_sample_f32(NULL, &o, 1, n, x + i * n, want + i, want_log + i), SMX_OK);
      }
      o.stream = 100;
      for (int isa = 0; isa < smx_isa_count(); isa++) {
        smx_isa_set(smx_isa_at(isa));
        assert_int_equal(smx_sample_f32(isa % 2 ? ctx : NULL, &o, ROWS, n, x, got, got_log), SMX_OK);
        assert_memory_equal(got, want, sizeof got);
        assert_memory_equal(got_log, want_log, sizeof got_log);
      }
      smx_isa_set(smx_isa_at(0));
    }
  smx_context_destroy(ctx);
}

static int among(const int64_t *tokens, int count, int64_t token) {
  int found = 0;
  for (int i = 0; i < count; i++) found |= tokens[i] == token;
  return found;
}

/* Any chain on any row: what is drawn has a probability, and a row with nothing to draw gives
 * -1. */
static void random_chains(void **state) {
  enum { N = 300 };
  rng r = {8};
  for (int round = 0; round < 4000; round++) {
    float x[N], log_p;
    size_t n = 1 + (size_t)rng_below(&r, N), count = (size_t)rng_below(&r, 6);
    int64_t tokens[4], index;
    double values[4];
    smx_step steps[6];
    int valid = 0, banned[N] = {0};
    fill_rows(&r, x, 1, n);
    if (round % 50 == 0) x[rng_below(&r, (int64_t)n)] = round % 100 ? NAN : INFINITY;
    for (int i = 0; i < 4; i++) tokens[i] = rng_below(&r, (int64_t)n), values[i] = rng_normal(&r);
    for (size_t s = 0; s < count; s++) {
      steps[s] = (smx_step){.kind = (smx_step_kind)rng_below(&r, SMX_STEP_KINDS),
                            .a = rng_uniform(&r),
                            .tokens = tokens,
                            .values = values};
      steps[s].token_count = 4;
      steps[s].b = steps[s].kind == SMX_STEP_QUADRATIC || steps[s].kind == SMX_STEP_DRY ? 1.5 : 0.5,
      steps[s].c = 1;
      if (steps[s].kind == SMX_STEP_TOP_K || steps[s].kind == SMX_STEP_NO_REPEAT)
        steps[s].a = (double)(1 + rng_below(&r, 20));
      if (steps[s].kind == SMX_STEP_REPETITION) steps[s].a += 0.5;
      for (int i = 0; steps[s].kind == SMX_STEP_BAN && i < 4; i++) banned[tokens[i]] = 1;
      for (size_t i = 0; steps[s].kind == SMX_STEP_ALLOW && i < n; i++)
        banned[i] |= !among(tokens, 4, (int64_t)i);
    }
    for (size_t i = 0; i < n; i++) valid += x[i] > -INFINITY && !banned[i];
    smx_sample_options o = options(steps, count, (smx_draw)(round % 3), 4);
    smx_row_status status;
    o.stream = (uint64_t)round, o.status = &status;
    if (smx_sample_f32(NULL, &o, 1, n, x, &index, &log_p)) fail_msg("%s", smx_last_error());
    assert_int_equal(index >= 0, status == SMX_ROW_OK);
    assert_true(index >= -1 && index < (int64_t)n);
    if (index >= 0 && (!(x[index] > -INFINITY) || banned[index]))
      fail_msg("round %d draws %d", round, (int)index);
    if (index >= 0 && !(log_p <= 0 && log_p > -INFINITY)) fail_msg("round %d: log p is %g", round, log_p);
    if (valid == 0 || round % 50 == 0) assert_int_equal(index, -1);
  }
}

static void wrong_calls(void **state) {
  static const int64_t outside[] = {4};
  static const smx_step bad[] = {{.kind = (smx_step_kind)99},
                                 {.kind = SMX_STEP_TOP_K, .a = -2},
                                 {.kind = SMX_STEP_TOP_K, .a = 1.5},
                                 {.kind = SMX_STEP_TOP_P, .a = 1.1},
                                 {.kind = SMX_STEP_TOP_P, .a = (double)NAN},
                                 {.kind = SMX_STEP_TEMPERATURE, .a = -1},
                                 {.kind = SMX_STEP_BAN, .tokens = outside, .token_count = 1}};
  double z[4] = {0}, log_p;
  int64_t index;
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    smx_sample_options o = options(bad + i, 1, SMX_DRAW_CDF, 0);
    assert_int_equal(smx_sample_f64(NULL, &o, 1, 4, z, &index, &log_p), SMX_ERR_PARAM);
    assert_non_null(strstr(smx_last_error(), "step 0"));
  }
  smx_sample_options o = {.size = 1};
  assert_int_equal(smx_sample_f64(NULL, &o, 1, 4, z, &index, &log_p), SMX_ERR_STRUCT);
  assert_int_equal(smx_sample_f64(NULL, NULL, 1, 4, NULL, &index, NULL), SMX_ERR_NULL);
  assert_int_equal(smx_sample_f64(NULL, NULL, SIZE_MAX / 2, 4, z, &index, NULL), SMX_ERR_SHAPE);
  assert_int_equal(smx_sample_f64(NULL, NULL, 1, 4, z, &index, NULL), SMX_OK);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_those_of_the_definition),
      cmocka_unit_test(the_operator_agrees),
      cmocka_unit_test(the_tail_appears_at_its_rate),
      cmocka_unit_test(steps_keep_what_the_catalogue_says),
      cmocka_unit_test(penalties),
      cmocka_unit_test(masses_of_long_rows),
      cmocka_unit_test(draws_of_long_rows),
      cmocka_unit_test(a_draw_depends_on_nothing_else),
      cmocka_unit_test(random_chains),
      cmocka_unit_test(wrong_calls),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  else cmocka_set_skip_filter("the_tail*");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
