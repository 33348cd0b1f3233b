/* sample_options.c - proves what the options of smx_sample beside its steps do: many draws from a
 * row are those of calls of their own, rows may lie apart, a mask is the same as -inf, the
 * processed row is what is drawn from, memory of the caller is enough, and a caller who knows the
 * first options alone is served. And what steps do to ties. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "util.h"

enum { ROWS = 5, N = 3000, WORDS = (N + 31) / 32, DRAWS = 150 };
#define APART 0x9e3779b97f4a7c15u

static const smx_step chain[] = {{.kind = SMX_STEP_TEMPERATURE, .a = 0.9},
                                 {.kind = SMX_STEP_TOP_P, .a = 0.9}};

static smx_sample_options options(smx_draw draw) {
  return (smx_sample_options){
      .size = sizeof(smx_sample_options), .steps = chain, .step_count = 2, .draw = draw, .seed = 3};
}
static void expect_ok(smx_status status) {
  if (status) fail_msg("status %d: %s", status, smx_last_error());
}

/* Rows of many kinds: with a peak, flat, of few, ordinary, and one with nothing left. */
static void fill(float *x) {
  rng r = {8};
  for (int i = 0; i < ROWS * N; i++) {
    const int row = i / N, at = i % N;
    const double z = rng_normal(&r);
    x[i] = (float)(row == 0   ? (at == 17 ? 9 : z)
                   : row == 1 ? 1
                   : row == 2 ? (at % 600 ? -INFINITY : z)
                              : 3 * z);
    if (row == 4) x[i] = -INFINITY;
  }
}

static void draws_are_those_of_calls_of_their_own(void **state) {
  static float x[ROWS * N], log_p[ROWS * DRAWS];
  static int64_t index[ROWS * DRAWS];
  fill(x);
  for (int draw = SMX_DRAW_GUMBEL; draw <= SMX_DRAW_GREEDY; draw++) {
    smx_sample_options o = options((smx_draw)draw);
    o.draws = DRAWS;
    expect_ok(smx_sample_f32(NULL, &o, ROWS, N, x, index, log_p));
    for (int j = 0; j < DRAWS; j++) {
      smx_sample_options one = options((smx_draw)draw);
      int64_t at[ROWS];
      float log_one[ROWS];
      one.seed += (uint64_t)j * APART;
      expect_ok(smx_sample_f32(NULL, &one, ROWS, N, x, at, log_one));
      for (int r = 0; r < ROWS; r++) {
        assert_int_equal(at[r], index[r * DRAWS + j]);
        assert_memory_equal(log_one + r, log_p + r * DRAWS + j, sizeof *log_p);
      }
    }
  }
}

static void *refuse(void *user, size_t bytes, size_t alignment) { return NULL; }
static void release(void *user, void *p) {}

static void memory_of_the_caller_is_enough(void **state) {
  static float x[ROWS * N];
  int64_t want[ROWS], got[ROWS];
  smx_context *ctx;
  smx_context_options none = {.size = sizeof none, .alloc = refuse, .release = release};
  smx_sample_options o = options(SMX_DRAW_CDF);
  fill(x);
  expect_ok(smx_sample_f32(NULL, &o, ROWS, N, x, want, NULL));
  if (smx_context_create(&none, &ctx)) { /* a context takes memory itself: then without one */
    ctx = NULL;
  }
  o.scratch_bytes = smx_sample_scratch(ctx, N, 0);
  o.scratch = aligned_alloc(64, o.scratch_bytes);
  expect_ok(smx_sample_f32(ctx, &o, ROWS, N, x, got, NULL));
  assert_memory_equal(want, got, sizeof want);
  o.scratch_bytes--;
  assert_int_equal(smx_sample_f32(ctx, &o, ROWS, N, x, got, NULL), SMX_ERR_PARAM);
  assert_int_equal(smx_sample_scratch(NULL, SIZE_MAX / 2, 0), 0);
  free(o.scratch);
}

static void masks_rows_apart_and_the_processed_row(void **state) {
  enum { STRIDE = N + 7 };
  static float x[ROWS * STRIDE], hidden[ROWS * N], whole[ROWS * N], log_a[ROWS], log_b[ROWS], out[ROWS * N];
  static uint32_t masks[ROWS * (WORDS + 1)];
  int64_t a[ROWS], b[ROWS];
  smx_row_status status[ROWS];
  rng r = {4};
  fill(whole);
  for (size_t i = 0; i < COUNT_OF(masks); i++) masks[i] = (uint32_t)rng_bits(&r);
  for (int i = 0; i < ROWS * N; i++) {
    const int row = i / N, at = i % N;
    x[row * STRIDE + at] = whole[i];
    hidden[i] = masks[row * (WORDS + 1) + at / 32] >> at % 32 & 1 ? whole[i] : -INFINITY;
  }
  for (int draw = SMX_DRAW_GUMBEL; draw <= SMX_DRAW_GREEDY; draw++) {
    smx_sample_options o = options((smx_draw)draw);
    expect_ok(smx_sample_f32(NULL, &o, ROWS, N, hidden, a, log_a));
    o.masks = masks, o.mask_stride = WORDS + 1, o.row_stride = STRIDE, o.processed = out, o.status = status;
    expect_ok(smx_sample_f32(NULL, &o, ROWS, N, x, b, log_b));
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(log_a, log_b, sizeof log_a);
    for (int row = 0; row < ROWS; row++) {
      double sum = 0;
      for (int i = 0; i < N; i++) {
        const float z = out[row * N + i];
        sum += exp((double)z);
        assert_true(z == -INFINITY || z == (float)(hidden[row * N + i] / 0.9) ||
                    fabsf(z - hidden[row * N + i] / 0.9f) < 1e-5f);
      }
      assert_int_equal(status[row], row == 4 ? SMX_ROW_EMPTY : SMX_ROW_OK);
      if (row < 4) assert_true(fabs((double)out[row * N + b[row]] - log(sum) - (double)log_b[row]) < 1e-4);
    }
  }
  /* In place, over many draws. */
  smx_sample_options o = options(SMX_DRAW_CDF);
  o.draws = 60, o.processed = whole;
  int64_t many[ROWS * 60];
  expect_ok(smx_sample_f32(NULL, &o, ROWS, N, whole, many, NULL));
  for (int j = 0; j < 60; j++) assert_true(whole[3 * N + many[3 * 60 + j]] > -INFINITY);
}

static void a_caller_of_before_is_served(void **state) {
  static float x[ROWS * N];
  int64_t a[ROWS], b[ROWS];
  smx_sample_options o = options(SMX_DRAW_CDF);
  fill(x);
  expect_ok(smx_sample_f32(NULL, &o, ROWS, N, x, a, NULL));
  o.size = offsetof(smx_sample_options, draws);
  o.draws = 77, o.row_stride = 1; /* not read */
  expect_ok(smx_sample_f32(NULL, &o, ROWS, N, x, b, NULL));
  assert_memory_equal(a, b, sizeof a);
  o.size = sizeof o, o.draws = 1;
  assert_int_equal(smx_sample_f32(NULL, &o, ROWS, N, x, b, NULL), SMX_ERR_SHAPE);
}

/* How many of a row of 100 equal scores and 20 lower ones a step leaves. */
static int left(smx_step step) {
  enum { M = 120 };
  double z[M], out[M];
  int64_t index;
  int count = 0;
  smx_sample_options o = {.size = sizeof o, .steps = &step, .step_count = 1, .processed = out};
  for (int i = 0; i < M; i++) z[i] = i < 20 ? -1 : 2;
  expect_ok(smx_sample_f64(NULL, &o, 1, M, z, &index, NULL));
  for (int i = 0; i < M; i++) count += out[i] > -INFINITY;
  return count;
}

static void ties_are_decided_as_the_header_says(void **state) {
  assert_int_equal(left((smx_step){.kind = SMX_STEP_MIN_P, .a = 1}), 100);
  assert_int_equal(left((smx_step){.kind = SMX_STEP_EPSILON, .a = 0.5}), 100);
  assert_int_equal(left((smx_step){.kind = SMX_STEP_SURPRISE, .a = 2}),
                   1); /* llama.cpp: if nothing is probable enough, one */
  assert_int_equal(left((smx_step){.kind = SMX_STEP_SURPRISE, .a = 7}), 100);
  assert_int_equal(left((smx_step){.kind = SMX_STEP_MIROSTAT, .a = 5}), 1); /* 2^5 < 119: one */
  assert_int_equal(left((smx_step){.kind = SMX_STEP_MIROSTAT, .a = 9}), 120);
  assert_int_equal(left((smx_step){.kind = SMX_STEP_TOP_K, .a = 7}), 7);
  assert_int_equal(left((smx_step){.kind = SMX_STEP_TOP_K, .a = 0}), 120);
  assert_int_equal(left((smx_step){.kind = SMX_STEP_TOP_K, .a = -1}), 120);
}

/* Quotients that are no numbers: the best, as at a temperature of 0, and not nothing. Where they
 * are numbers a draw is one. */
static void a_temperature_next_to_0_is_0(void **state) {
  static const double near[] = {5e-324, 1e-310, 1e-300, 1e-45, 1e-40, 1e-38, 1e-37, 1e-36, 1e-30};
  static const float rows[][4] = {
      {100, 300, 200, -300}, {-300, -100, -200, -400}, {1e30f, 3e38f, -1e38f, 0}, {0, 1e-3f, 0, 0}};
  for (size_t i = 0; i < COUNT_OF(near) * COUNT_OF(rows); i++) {
    const float *x = rows[i % COUNT_OF(rows)];
    for (int form = 0; form < 4; form++) {
      const smx_step step = {.kind = form & 1 ? SMX_STEP_DYNAMIC_TEMPERATURE : SMX_STEP_TEMPERATURE,
                             .a = near[i / COUNT_OF(rows)]};
      const smx_step chain_of[] = {form & 2 ? (smx_step){.kind = SMX_STEP_TOP_K, .a = 3} : step,
                                   form & 2 ? step : (smx_step){.kind = SMX_STEP_TOP_P, .a = 0.9}};
      const double x64[] = {(double)x[0], (double)x[1], (double)x[2], (double)x[3]};
      float processed[4];
      int64_t index[2] = {-2, -2};
      memcpy(processed, x, sizeof processed);
      smx_sample_options o = options(SMX_DRAW_GUMBEL);
      o.steps = chain_of, o.processed = processed;
      expect_ok(smx_sample_f32(NULL, &o, 1, 4, processed, index, NULL)); /* in place, too */
      o.processed = NULL;
      expect_ok(smx_sample_f64(NULL, &o, 1, 4, x64, index + 1, NULL));
      for (int t = 0; t < 2; t++)
        if (index[t] != 1)
          fail_msg("temperature %g, %s: %d of (%g, %g ...)", step.a, t ? "f64" : "f32", (int)index[t], x64[0],
                   x64[1]);
      assert_true(processed[1] > -INFINITY && processed[3] == -INFINITY);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(draws_are_those_of_calls_of_their_own),
      cmocka_unit_test(memory_of_the_caller_is_enough),
      cmocka_unit_test(masks_rows_apart_and_the_processed_row),
      cmocka_unit_test(a_caller_of_before_is_served),
      cmocka_unit_test(ties_are_decided_as_the_header_says),
      cmocka_unit_test(a_temperature_next_to_0_is_0),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
