/* sample_chain.c - proves what the later steps of smx_sample do (dynamic temperature, quadratic,
 * tail-free, top-h, mirostat, runs that must not repeat, DRY, tokens seen more than once) by known
 * answers worked out by hand, that every row has its status and its seed, that what is done to a
 * long row is what is done to a short one, and that what ALLOW and XTC remove counts as -inf. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "unit.h"
#include "util.h"

static smx_sample_options options(const smx_step *steps, size_t count, smx_draw draw, uint64_t seed) {
  return (smx_sample_options){
      .size = sizeof(smx_sample_options), .steps = steps, .step_count = count, .draw = draw, .seed = seed};
}

/* log p of the elements of a row of n under some steps, from draws; -inf for those that are never
 * drawn. */
static void log_probabilities(const double *z, int n, const smx_step *steps, size_t count, double *log_p) {
  for (int i = 0; i < n; i++) log_p[i] = -INFINITY;
  for (uint64_t stream = 0; stream < 1000; stream++) {
    smx_sample_options o = options(steps, count, stream % 2 ? SMX_DRAW_CDF : SMX_DRAW_GUMBEL, 1);
    int64_t index;
    double log;
    o.stream = stream;
    if (smx_sample_f64(NULL, &o, 1, (size_t)n, z, &index, &log)) fail_msg("%s", smx_last_error());
    assert_true(index >= 0 && index < n);
    log_p[index] = log;
  }
}

static void expect_scores(const char *name, const double *z, int n, smx_step step, const double *want) {
  double log_p[8], sum = 0;
  log_probabilities(z, n, &step, 1, log_p);
  for (int i = 0; i < n; i++) sum += exp(want[i]);
  for (int i = 0; i < n; i++) {
    double p = want[i] - log(sum);
    if (log_p[i] > -INFINITY ? fabs(log_p[i] - p) > 1e-12 : p > -4)
      fail_msg("%s: log p of %d is %.15g, not %.15g", name, i, log_p[i], p);
  }
}

static unsigned kept(const double *p, int n, smx_step step) {
  double z[8], log_p[8];
  unsigned bits = 0;
  for (int i = 0; i < n; i++) z[i] = log(p[i]);
  log_probabilities(z, n, &step, 1, log_p);
  for (int i = 0; i < n; i++) bits |= (unsigned)(log_p[i] > -INFINITY) << i;
  return bits;
}

static const double five[] = {0.5, 0.25, 0.15, 0.07, 0.03};
static const int64_t text[] = {0, 1, 2, 0, 1}, broken[] = {0, 1, 2, 0, -1, 1};

/* Differences of 0.5 0.25 0.15 0.07 0.03: 0.25 0.1 0.08 0.04, and again 0.15 0.02 0.04, 0.21 in
 * all. */
static void steps_that_remove(void **state) {
  static const struct {
    const char *name;
    smx_step step;
    unsigned bits;
  } known[] = {
      {"top-h 0.5", {.kind = SMX_STEP_TOP_H, .a = 0.5}, 0x1},
      {"top-h 0.6", {.kind = SMX_STEP_TOP_H, .a = 0.6}, 0x3},
      {"top-h 1", {.kind = SMX_STEP_TOP_H, .a = 1}, 0x1f},
      {"mirostat 3", {.kind = SMX_STEP_MIROSTAT, .a = 3}, 0x7},
      {"mirostat 0", {.kind = SMX_STEP_MIROSTAT, .a = 0}, 0x1},
      {"mirostat 9", {.kind = SMX_STEP_MIROSTAT, .a = 9}, 0x1f},
      {"tail-free 0.1", {.kind = SMX_STEP_TAIL_FREE, .a = 0.1}, 0x1},
      {"tail-free 0.8", {.kind = SMX_STEP_TAIL_FREE, .a = 0.8}, 0x1},
      {"tail-free 0.85", {.kind = SMX_STEP_TAIL_FREE, .a = 0.85}, 0x3},
      {"tail-free 1", {.kind = SMX_STEP_TAIL_FREE, .a = 1}, 0x1f},
      {"no 3 again", {.kind = SMX_STEP_NO_REPEAT, .a = 3, .tokens = text, .token_count = 5}, 0x1b},
      {"no 2 again", {.kind = SMX_STEP_NO_REPEAT, .a = 2, .tokens = text, .token_count = 5}, 0x1b},
      {"no 1 again", {.kind = SMX_STEP_NO_REPEAT, .a = 1, .tokens = text, .token_count = 5}, 0x18},
      {"no 4 again", {.kind = SMX_STEP_NO_REPEAT, .a = 4, .tokens = text, .token_count = 5}, 0x1f},
      {"no 9 again", {.kind = SMX_STEP_NO_REPEAT, .a = 9, .tokens = text, .token_count = 5}, 0x1f},
      {"no 3 again, after a break",
       {.kind = SMX_STEP_NO_REPEAT, .a = 3, .tokens = broken, .token_count = 6},
       0x1f},
      {"no 2 again, after a break",
       {.kind = SMX_STEP_NO_REPEAT, .a = 2, .tokens = broken, .token_count = 6},
       0x1b},
      {"no text", {.kind = SMX_STEP_NO_REPEAT, .a = 2}, 0x1f},
  };
  for (size_t i = 0; i < COUNT_OF(known); i++)
    if (kept(five, 5, known[i].step) != known[i].bits)
      fail_msg("%s keeps %#x, not %#x", known[i].name, kept(five, 5, known[i].step), known[i].bits);
}

static void steps_that_change(void **state) {
  static const double z[] = {3, 2, 1, 0, -1}, counts[] = {2, 1, 1};
  static const int64_t seen[] = {1, 0, 1};
  const double t = 1.1213182553; /* 0.5 + H / log 5, H = 0.99999 ... */
  double want[5], entropy = 0, sum = 0;
  for (int i = 0; i < 5; i++) sum += exp(z[i]);
  for (int i = 0; i < 5; i++) entropy -= exp(z[i]) / sum * (z[i] - log(sum));
  for (int i = 0; i < 5; i++) want[i] = z[i] / (0.5 + entropy / log(5));
  assert_true(fabs(0.5 + entropy / log(5) - t) < 1e-5);
  expect_scores("dynamic temperature", z, 5,
                (smx_step){.kind = SMX_STEP_DYNAMIC_TEMPERATURE, .a = 1, .b = 0.5, .c = 1}, want);
  for (int i = 0; i < 5; i++) want[i] = z[i] / (0.5 + pow(entropy / log(5), 2));
  expect_scores("dynamic temperature, c = 2", z, 5,
                (smx_step){.kind = SMX_STEP_DYNAMIC_TEMPERATURE, .a = 1, .b = 0.5, .c = 2}, want);
  for (int i = 0; i < 5; i++) want[i] = z[i] / 0.7;
  expect_scores("no range", z, 5, (smx_step){.kind = SMX_STEP_DYNAMIC_TEMPERATURE, .a = 0.7}, want);
  for (int i = 0; i < 5; i++) want[i] = 3 - 0.3 * (z[i] - 3) * (z[i] - 3);
  expect_scores("quadratic", z, 5, (smx_step){.kind = SMX_STEP_QUADRATIC, .a = 0.3, .b = 1}, want);
  for (int i = 0; i < 5; i++) want[i] = 3 - 0.3 * pow(z[i] - 3, 2) * 0.5 + 0.3 * pow(z[i] - 3, 3) * 0.5;
  expect_scores("quadratic, cubed", z, 5, (smx_step){.kind = SMX_STEP_QUADRATIC, .a = 0.3, .b = 2}, want);
  const double repetition[] = {3 / 1.5, 2 / 1.5, 1, 0, -1};
  expect_scores("repetition", z, 5,
                (smx_step){.kind = SMX_STEP_REPETITION, .a = 1.5, .tokens = seen, .token_count = 3},
                repetition);
  const double frequency[] = {3 - 0.2 - 0.1, 2 - 0.4 - 0.1, 1, 0, -1};
  expect_scores("frequency", z, 5,
                (smx_step){.kind = SMX_STEP_FREQUENCY, .a = 0.2, .b = 0.1, .tokens = seen, .token_count = 3},
                frequency);
  const double counted[] = {3 - 0.2 - 0.1, 2 - 0.6 - 0.1, 1, 0, -1};
  expect_scores(
      "counts", z, 5,
      (smx_step){
          .kind = SMX_STEP_FREQUENCY, .a = 0.2, .b = 0.1, .tokens = seen, .values = counts, .token_count = 3},
      counted);
}

static void dry(void **state) {
  static const double z[] = {1, 0.5, 1.5, 0, 0.5};
  static const struct {
    const char *name;
    const int64_t *text;
    size_t count;
    double c, penalty;
  } known[] = {
      {"0 1 2 0 1, from 2", text, 5, 2, 0.8},   {"0 1 2 0 1, from 1", text, 5, 1, 0.8 * 1.75},
      {"0 1 2 0 1, from 3", text, 5, 3, 0},     {"0 1 2 0 / 1, from 1", broken, 6, 1, 0.8},
      {"0 1 2 0 / 1, from 2", broken, 6, 2, 0}, {"no text", NULL, 0, 1, 0},
  };
  for (size_t i = 0; i < COUNT_OF(known); i++) {
    const double want[] = {1, 0.5, 1.5 - known[i].penalty, 0, 0.5};
    smx_step step = {.kind = SMX_STEP_DRY,
                     .a = 0.8,
                     .b = 1.75,
                     .c = known[i].c,
                     .tokens = known[i].text,
                     .token_count = known[i].count};
    expect_scores(known[i].name, z, 5, step, want);
  }
}

/* The longest run that ends a text and stands in it before token i, letter by letter. */
static double run_before(const int64_t *t, size_t n, size_t i) {
  size_t m = 0;
  while (m < i && t[i - 1 - m] == t[n - 1 - m] && t[n - 1 - m] >= 0) m++;
  return (double)m;
}

static void dry_of_any_text(void **state) {
  rng r = {12};
  for (int round = 0; round < 60; round++) {
    int64_t t[40];
    size_t n = 1 + (size_t)rng_below(&r, 40);
    double longest[4] = {-1, -1, -1, -1}, want[4], z[] = {0.5, 0, 0.25, -0.25};
    for (size_t i = 0; i < n; i++) t[i] = rng_below(&r, 9) == 0 ? -1 : rng_below(&r, 1 + round % 4);
    for (size_t i = 0; i < n; i++)
      if (t[i] >= 0 && run_before(t, n, i) > longest[t[i]]) longest[t[i]] = run_before(t, n, i);
    for (int i = 0; i < 4; i++) want[i] = z[i] - (longest[i] >= 1 ? 0.125 * pow(1.03125, longest[i] - 1) : 0);
    smx_step step = {.kind = SMX_STEP_DRY, .a = 0.125, .b = 1.03125, .c = 1, .tokens = t, .token_count = n};
    expect_scores("any text", z, 4, step, want);
  }
}

/* ---- rows ---- */

static void rows_have_a_status_and_a_seed(void **state) {
  static const float x[][3] = {
      {1, 2, 3}, {-INFINITY, -INFINITY, -INFINITY}, {1, NAN, 2}, {1, INFINITY, 0}, {INFINITY, NAN, 0}};
  static const smx_row_status want[] = {SMX_ROW_OK, SMX_ROW_EMPTY, SMX_ROW_NAN, SMX_ROW_INF, SMX_ROW_NAN};
  static const int64_t all[] = {0, 1, 2};
  static const uint64_t seeds[] = {5, 6, 7, 8, 9}, streams[] = {3, 1, 4, 1, 5};
  static const smx_step chains[][2] = {
      {{.kind = SMX_STEP_TEMPERATURE, .a = 0.5}, {.kind = SMX_STEP_TOP_P, .a = 0.9}},
      {{.kind = SMX_STEP_TOP_K, .a = 2}, {.kind = SMX_STEP_TYPICAL, .a = 0.9}},
      /* first steps that change nothing */
      {{.kind = SMX_STEP_TOP_P, .a = 1}, {.kind = SMX_STEP_TOP_N_SIGMA, .a = 1}},
      {{.kind = SMX_STEP_MIN_P, .a = 0}, {.kind = SMX_STEP_TOP_N_SIGMA, .a = 1}},
      {{.kind = SMX_STEP_TOP_P, .a = 1}, {.kind = SMX_STEP_TOP_K, .a = 2}},
      {{.kind = SMX_STEP_TYPICAL, .a = 1}, {.kind = SMX_STEP_TOP_K, .a = 2}}};
  for (int c = 0; c < 6; c++)
    for (int draw = 0; draw < 3; draw++) {
      smx_row_status status[5];
      int64_t index[5];
      float log_p[5];
      smx_sample_options o = options(chains[c], 2, (smx_draw)draw, 0);
      o.status = status, o.seeds = seeds, o.streams = streams;
      assert_int_equal(smx_sample_f32(NULL, &o, 5, 3, x[0], index, log_p), SMX_OK);
      for (int r = 0; r < 5; r++) {
        assert_int_equal(status[r], want[r]);
        assert_int_equal(index[r] < 0, want[r] != SMX_ROW_OK);
        assert_int_equal(isnan(log_p[r]) != 0, want[r] != SMX_ROW_OK);
      }
      smx_sample_options one = options(chains[c], 2, (smx_draw)draw, seeds[0]);
      int64_t alone;
      one.stream = streams[0];
      assert_int_equal(smx_sample_f32(NULL, &one, 1, 3, x[0], &alone, NULL), SMX_OK);
      assert_int_equal(alone, index[0]);
    }
  const smx_step ban = {.kind = SMX_STEP_BAN, .tokens = all, .token_count = 3},
                 allow = {.kind = SMX_STEP_ALLOW};
  const smx_step *none[] = {&ban, &allow};
  for (int i = 0; i < 2; i++) {
    smx_row_status status;
    int64_t index;
    smx_sample_options o = options(none[i], 1, SMX_DRAW_CDF, 0);
    o.status = &status;
    assert_int_equal(smx_sample_f32(NULL, &o, 1, 3, x[0], &index, NULL), SMX_OK);
    assert_true(index == -1 && status == SMX_ROW_EMPTY);
    assert_int_equal(smx_sample_f32(NULL, &o, 1, 0, NULL, &index, NULL), i ? SMX_OK : SMX_ERR_PARAM);
    assert_true(index == -1 && status == SMX_ROW_EMPTY);
  }
}

/* A short row among thousands of elements without a chance: the draws are the same elements, with
 * all but the same probability. */
static void long_rows_are_treated_as_short_ones(void **state) {
  enum { SHORT = 40, LONG = 9000 };
  static float far[LONG];
  rng r = {21};
  for (int kind = 0; kind <= SMX_STEP_MIROSTAT; kind++) {
    float x[SHORT];
    smx_step steps[] = {{.kind = SMX_STEP_TEMPERATURE, .a = 0.8},
                        {.kind = (smx_step_kind)kind, .a = 0.7, .b = 1, .c = 1}};
    if (kind == SMX_STEP_TOP_K) steps[1].a = 20;
    if (kind == SMX_STEP_SURPRISE || kind == SMX_STEP_MIROSTAT) steps[1].a = 3;
    if (kind == SMX_STEP_XTC) steps[1].b = 0.05;
    if (kind >= SMX_STEP_REPETITION && kind <= SMX_STEP_ALLOW) continue;
    for (int i = 0; i < LONG; i++) far[i] = -INFINITY;
    for (int i = 0; i < SHORT; i++) far[2 * i] = x[i] = (float)rng_normal(&r);
    for (uint64_t stream = 0; stream < 20; stream++) {
      smx_sample_options o = options(steps, 2, SMX_DRAW_CDF, 4);
      int64_t near, away;
      float log_near, log_away;
      o.stream = stream;
      assert_int_equal(smx_sample_f32(NULL, &o, 1, SHORT, x, &near, &log_near), SMX_OK);
      assert_int_equal(smx_sample_f32(NULL, &o, 1, LONG, far, &away, &log_away), SMX_OK);
      if (away != 2 * near)
        fail_msg("kind %d: %d of the short row, %d of the long one", kind, (int)near, (int)away);
      if (fabsf(log_near - log_away) > 1e-5f)
        fail_msg("kind %d: log p is %g, then %g", kind, (double)log_near, (double)log_away);
    }
  }
}

/* The index and log p of some draws from a row, both types, are those of another row. */
static void expect_same(const char *what, size_t n, const float *x, const smx_step *steps, size_t count,
                        const float *like) {
  enum { DRAWS = 5, MOST = 20000 };
  static double wide[2][MOST];
  for (size_t i = 0; i < n; i++)
    wide[0][i] = (double)x[i] * 1.0000000123, wide[1][i] = (double)like[i] * 1.0000000123;
  for (int draw = SMX_DRAW_GUMBEL; draw <= SMX_DRAW_GREEDY; draw++) {
    int64_t index[4][DRAWS];
    float log_p[2][DRAWS];
    double logs[2][DRAWS];
    for (int i = 0; i < 2; i++) {
      smx_sample_options o = options(i ? NULL : steps, i ? 0 : count, (smx_draw)draw, 17);
      o.draws = DRAWS;
      assert_int_equal(smx_sample_f32(NULL, &o, 1, n, i ? like : x, index[i], log_p[i]), SMX_OK);
      assert_int_equal(smx_sample_f64(NULL, &o, 1, n, wide[i], index[2 + i], logs[i]), SMX_OK);
    }
    if (index[0][0] < 0) fail_msg("%s: nothing is drawn", what);
    if (memcmp(index[0], index[1], sizeof *index) || memcmp(index[2], index[3], sizeof *index))
      fail_msg("%s, draw %d: other elements", what, draw);
    if (memcmp(log_p[0], log_p[1], sizeof *log_p) || memcmp(logs[0], logs[1], sizeof *logs))
      fail_msg("%s, draw %d: log p is %a, not %a", what, draw, (double)log_p[0][0], (double)log_p[1][0]);
  }
}

/* A step that allows some tokens of many, or removes a few, leaves the bits of a row in which the
 * others are -inf. */
static void what_is_removed_is_as_good_as_inf(void **state) {
  enum { N = 20000 };
  static float x[N], rest[N];
  static int64_t tokens[1200];
  rng r = {5};
  for (int kind = 0; kind < 6; kind++) {
    const size_t count = kind < 3 ? (size_t)(kind == 0 ? 1 : kind == 1 ? 60 : 1020) : 1200;
    for (size_t i = 0; i < N; i++) x[i] = (float)(3 * rng_normal(&r)), rest[i] = -INFINITY;
    for (size_t i = 0; i < count; i++) tokens[i] = (int64_t)((i * 7919 + 13) % (kind == 2 ? 3000 : N));
    for (size_t i = 0; i < count; i++) rest[tokens[i]] = x[tokens[i]];
    smx_step step = {.kind = SMX_STEP_ALLOW, .tokens = tokens, .token_count = count};
    if (kind < 4) expect_same("allow", N, x, &step, 1, rest);
    memcpy(rest, x, sizeof x);
    for (size_t i = 0; i < 9; i++)
      rest[tokens[i]] = x[tokens[i]] = (float)(14 + (kind % 2 ? 0.1 * (double)i : 0));
    for (size_t i = 0; i < 9; i++) rest[tokens[i]] = -INFINITY;
    size_t last = 0; /* the least of them, the last of its equals */
    for (size_t i = 1; i < 9; i++)
      if (kind % 2 ? x[tokens[i]] < x[tokens[last]] : tokens[i] > tokens[last]) last = i;
    rest[tokens[last]] = x[tokens[last]];
    step = (smx_step){.kind = SMX_STEP_XTC, .a = 1, .b = 0.05};
    if (count >= 9) expect_same("xtc", N, x, &step, 1, rest);
  }
}

/* The rest of a row counts for its status. A temperature with a quotient beyond the range is 0. */
static void allowed_tokens_beside_others_that_are_bad(void **state) {
  enum { N = 5000 };
  static const struct {
    float other, own;
    smx_row_status status;
  } rows[] = {{0, 1, SMX_ROW_OK},         {NAN, 1, SMX_ROW_NAN},         {INFINITY, 1, SMX_ROW_INF},
              {-INFINITY, 1, SMX_ROW_OK}, {0, -INFINITY, SMX_ROW_EMPTY}, {3e38f, 1, SMX_ROW_EMPTY}};
  static const int64_t tokens[] = {4000, 7, 4000};
  static float x[N];
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    const smx_step steps[] = {{.kind = SMX_STEP_TEMPERATURE, .a = 0.5},
                              {.kind = SMX_STEP_ALLOW, .tokens = tokens, .token_count = 3}};
    smx_sample_options o = options(steps, 2, SMX_DRAW_GREEDY, 0);
    smx_row_status status;
    int64_t index;
    float log_p;
    for (int j = 0; j < N; j++) x[j] = 0;
    x[9] = rows[i].other, x[7] = rows[i].own, x[4000] = -INFINITY;
    o.status = &status;
    assert_int_equal(smx_sample_f32(NULL, &o, 1, N, x, &index, &log_p), SMX_OK);
    assert_int_equal(status, rows[i].status);
    assert_int_equal(index, status == SMX_ROW_OK ? 7 : -1);
    assert_true(status == SMX_ROW_OK ? log_p == 0 : isnan(log_p));
  }
}

static void wrong_numbers(void **state) {
  static const int64_t outside[] = {-1};
  static const smx_step bad[] = {{.kind = SMX_STEP_DYNAMIC_TEMPERATURE, .a = 1, .b = -1},
                                 {.kind = SMX_STEP_QUADRATIC, .a = 1},
                                 {.kind = SMX_STEP_TAIL_FREE, .a = 1.5},
                                 {.kind = SMX_STEP_TOP_H, .a = -0.5},
                                 {.kind = SMX_STEP_MIROSTAT, .a = (double)NAN},
                                 {.kind = SMX_STEP_NO_REPEAT, .a = 0},
                                 {.kind = SMX_STEP_NO_REPEAT, .a = 2.5},
                                 {.kind = SMX_STEP_DRY, .a = 1, .b = 2},
                                 {.kind = SMX_STEP_DRY, .a = 1, .b = 0.5, .c = 1},
                                 {.kind = SMX_STEP_REPETITION, .a = 1, .tokens = outside, .token_count = 1}};
  double z[4] = {0};
  int64_t index = 7;
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    smx_sample_options o = options(bad + i, 1, SMX_DRAW_CDF, 0);
    if (smx_sample_f64(NULL, &o, 1, 4, z, &index, NULL) != SMX_ERR_PARAM) fail_msg("number %zu is taken", i);
    assert_non_null(strstr(smx_last_error(), "step 0"));
    assert_int_equal(index, 7);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_that_remove),
      cmocka_unit_test(steps_that_change),
      cmocka_unit_test(dry),
      cmocka_unit_test(dry_of_any_text),
      cmocka_unit_test(rows_have_a_status_and_a_seed),
      cmocka_unit_test(long_rows_are_treated_as_short_ones),
      cmocka_unit_test(what_is_removed_is_as_good_as_inf),
      cmocka_unit_test(allowed_tokens_beside_others_that_are_bad),
      cmocka_unit_test(wrong_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
