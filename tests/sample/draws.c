/* draws.c - proves that every way of drawing follows its distribution: chi-square at a level of
 * 1e-6 with fixed seeds, Kolmogorov-Smirnov distances for draws of numbers, tails, exact counts
 * that the definition of the random numbers implies. Several drafts for one token: decode.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "util.h"

enum { TRIALS = 100000, MOST = 500000, WIDEST = 512 };

/* What chi-square exceeds once in a million, by degrees of freedom. */
static double bound(size_t freedom) {
  static const double known[][2] = {{1, 23.93},   {2, 27.63},   {3, 30.66},   {4, 33.38},
                                    {5, 35.89},   {6, 38.26},   {7, 40.52},   {9, 44.81},
                                    {55, 119.90}, {63, 131.37}, {255, 377.08}};
  for (size_t i = 0; i < COUNT_OF(known); i++)
    if ((size_t)known[i][0] == freedom) return known[i][1];
  fail_msg("no bound for %zu degrees of freedom", freedom);
  return 0;
}

/* Counts against probabilities, those of 0 left out, which must not have been drawn. */
static void follows(const char *what, const double *p, const int64_t *counts, size_t n) {
  double chi = 0, draws = 0, sum = 0;
  size_t cells = 0;
  for (size_t i = 0; i < n; i++) draws += (double)counts[i], sum += p[i];
  for (size_t i = 0; i < n; i++) {
    const double expected = draws * p[i] / sum;
    if (p[i] == 0 && counts[i]) fail_msg("%s: %zu has been drawn", what, i);
    if (p[i] == 0) continue;
    if (expected < 50) fail_msg("%s: too few draws of %zu", what, i);
    chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    cells++;
  }
  printf("%s: chi-square %.2f, bound %.2f\n", what, chi, bound(cells - 1));
  if (!(chi < bound(cells - 1))) fail_msg("%s: chi-square is %g", what, chi);
}

static const double eight[] = {0, 0.5, 1, 1.5, 2, -1, -0.5, 0.25};

/* ---- operators: every row is the same, and has a stream of its own ---- */

typedef struct setting {
  const char *name;
  double value;
} setting;

static int64_t stream_of[MOST], index_of[MOST * 8];
static double value_of[MOST * 8];

/* Runs `rows` streams on the row x; whole and real outputs go to index_of and value_of. */
static void draw_rows(const char *name, const setting *set, size_t settings, const double *x, int64_t n,
                      int64_t rows, int64_t width) {
  const smx_op *op = smx_op_find(name);
  double time = 0.5;
  smx_params params;
  int64_t full[2] = {rows, n}, row[1] = {rows}, wide[2] = {rows, width}, same[2] = {0, 1}, still[1] = {0};
  smx_tensor tx = {.data = (void *)(uintptr_t)x, .ndim = 2, .dtype = SMX_F64, .shape = full, .strides = same};
  smx_tensor ts = {.data = stream_of, .ndim = 1, .dtype = SMX_I64, .shape = row};
  smx_tensor tt = {.data = &time, .ndim = 1, .dtype = SMX_F64, .shape = row, .strides = still};
  smx_tensor out[2];
  for (int64_t i = 0; i < rows; i++) stream_of[i] = i;
  for (int o = 0; o < 2; o++) {
    const int whole = o < op->output_count && op->outputs[o].flags & SMX_PORT_INT,
              one = op->outputs[0].shape == SMX_SHAPE_ROW;
    out[o] = (smx_tensor){.data = whole ? (void *)index_of : (void *)value_of,
                          .ndim = one ? 1 : 2,
                          .dtype = whole ? SMX_I64 : SMX_F64};
    out[o].shape = one ? row : wide;
  }
  const smx_tensor *in[] = {&tx, &ts, &tt}, *to[] = {out, out + 1};
  smx_params_init(op, &params);
  for (size_t i = 0; i < settings; i++)
    if (smx_params_set(op, &params, set[i].name, set[i].value)) fail_msg("%s", smx_last_error());
  const int32_t given = op->input_count == 3 && op->inputs[2].flags & SMX_PORT_OPTIONAL ? 2 : op->input_count;
  if (smx_forward(op, NULL, &params, given, in, op->output_count, to)) fail_msg("%s", smx_last_error());
}

/* Counts the j-th of `width` indices a row. */
static void count_indices(size_t width, size_t j, int64_t rows, size_t n, int64_t *counts) {
  memset(counts, 0, n * sizeof *counts);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t index = index_of[(size_t)r * width + j];
    assert_true(index >= 0 && index < (int64_t)n);
    counts[index]++;
  }
}
/* Counts where the largest of `width` values of a row is. */
static void count_largest(size_t width, int64_t rows, int64_t *counts) {
  memset(counts, 0, width * sizeof *counts);
  for (int64_t r = 0; r < rows; r++) {
    const double *v = value_of + (size_t)r * width;
    size_t best = 0;
    for (size_t i = 1; i < width; i++)
      if (v[i] > v[best]) best = i;
    counts[best]++;
  }
}
static void softmax_of(const double *x, size_t n, double *p) {
  for (size_t i = 0; i < n; i++) p[i] = exp(x[i]);
}

/* Every operator whose draw is an element: the first of its indices, or where its largest value
 * is. */
static const struct way {
  const char *name;
  size_t indices; /* a row, or 0 */
  size_t count;
  setting set[6];
} ways[] = {
    {"categorical_sample", 1, 1, {{"seed", 42}}},
    {"categorical_sample", 1, 2, {{"seed", 42}, {"method", 1}}},
    {"gumbel_softmax", 0, 2, {{"seed", 1}, {"hard", 1}}},
    {"gumbel_softmax", 0, 2, {{"seed", 2}, {"temperature", 0.3}}},
    {"gumbel_softmax_interpolant", 0, 2, {{"seed", 3}, {"beta", 1}}},
    {"gumbel_topk", 1, 2, {{"seed", 4}, {"k", 1}}},
    {"gumbel_khot", 0, 3, {{"seed", 15}, {"hard", 1}, {"k", 1}}},
    {"gumbel_khot", 0, 2, {{"seed", 16}, {"temperature", 0.3}}},
    {"relaxed_khot", 0, 3, {{"seed", 19}, {"temperature", 0.3}, {"k", 1}}},
    {"multi_token_sample", 1, 2, {{"seed", 5}, {"k", 1}}},
    {"soft_thinking_token",
     8,
     6,
     {{"seed", 6}, {"k", 8}, {"noise", 2}, {"noise_temperature", 0.01}, {"top_p", 1}, {"min_p", 0}}},
};

static void draw_way(const struct way *w, const double *x, size_t n, int64_t rows, int64_t *counts) {
  draw_rows(w->name, w->set, w->count, x, (int64_t)n, rows, w->indices ? (int64_t)w->indices : (int64_t)n);
  if (w->indices) count_indices(w->indices, 0, rows, n, counts);
  else count_largest(n, rows, counts);
}

static void operators_that_draw_an_element(void **state) {
  static const int64_t gumbel[] = {5102, 8410, 13873, 22918, 38042, 1820, 3086, 6749};
  static const int64_t cdf[] = {5132, 8434, 13926, 22937, 37706, 1934, 3262, 6669};
  double p[8];
  softmax_of(eight, 8, p);
  for (size_t w = 0; w < COUNT_OF(ways); w++) {
    int64_t counts[8];
    draw_way(ways + w, eight, 8, TRIALS, counts);
    follows(ways[w].name, p, counts, 8);
    if (w < 2) assert_memory_equal(counts, w ? cdf : gumbel, sizeof counts);
  }
}

/* An element 9 nats below the other: 62 of half a million. */
static void tails_of_operators(void **state) {
  static const double x[] = {0, -9};
  double p[2];
  softmax_of(x, 2, p);
  for (size_t w = 0; w < COUNT_OF(ways); w++) {
    int64_t counts[2];
    draw_way(ways + w, x, 2, MOST, counts);
    follows(ways[w].name, p, counts, 2);
  }
}

/* 512 elements are two blocks of the distribution function; neighbours are counted together. */
static void long_rows(void **state) {
  static double x[WIDEST], p[WIDEST / 2];
  static int64_t counts[WIDEST], pairs[WIDEST / 2];
  rng r = {4};
  for (int i = 0; i < WIDEST; i++) x[i] = 0.3 * rng_normal(&r), p[i / 2] += exp(x[i]);
  for (size_t w = 0; w < COUNT_OF(ways); w++) {
    if (ways[w].indices != 1) continue;
    draw_way(ways + w, x, WIDEST, TRIALS, counts);
    for (int i = 0; i < WIDEST / 2; i++) pairs[i] = counts[2 * i] + counts[2 * i + 1];
    follows(ways[w].name, p, pairs, WIDEST / 2);
  }
}

static void several_draws_of_a_row(void **state) {
  static int64_t pairs[64];
  static const setting with[] = {{"seed", 7}, {"k", 4}}, without[] = {{"seed", 8}, {"k", 2}};
  double gentle[8], p[8], joint[64], ordered[64], sum = 0;
  int64_t counts[8];
  for (int i = 0; i < 8; i++) gentle[i] = eight[i] / 2;
  softmax_of(gentle, 8, p);
  for (int i = 0; i < 8; i++) sum += p[i];
  for (int i = 0; i < 64; i++) {
    joint[i] = p[i / 8] * p[i % 8];
    ordered[i] = i / 8 == i % 8 ? 0 : p[i / 8] * p[i % 8] / (sum - p[i / 8]);
  }
  draw_rows("multi_token_sample", with, 2, gentle, 8, TRIALS, 4);
  for (size_t j = 0; j < 4; j++) {
    count_indices(4, j, TRIALS, 8, counts);
    follows("multi_token_sample, one of four", p, counts, 8);
  }
  memset(pairs, 0, sizeof pairs);
  for (size_t r = 0; r < TRIALS; r++) pairs[index_of[4 * r] * 8 + index_of[4 * r + 3]]++;
  follows("multi_token_sample, two of four", joint, pairs, 64);
  draw_rows("gumbel_topk", without, 2, gentle, 8, TRIALS, 2);
  memset(pairs, 0, sizeof pairs);
  for (size_t r = 0; r < TRIALS; r++) pairs[index_of[2 * r] * 8 + index_of[2 * r + 1]]++;
  follows("gumbel_topk, ordered pairs", ordered, pairs, 64);
}

/* Masks are those of the list. */
static void masks_of_subsets(void **state) {
  static int64_t drawn[TRIALS * 3];
  static const setting list[] = {{"seed", 17}, {"k", 3}}, mask[] = {{"seed", 17}, {"hard", 1}, {"k", 3}};
  draw_rows("gumbel_topk", list, 2, eight, 8, TRIALS, 3);
  memcpy(drawn, index_of, sizeof drawn);
  for (int m = 0; m < 2; m++) {
    draw_rows(m ? "relaxed_khot" : "gumbel_khot", mask, 3, eight, 8, TRIALS, 8);
    for (size_t r = 0; r < TRIALS; r++) {
      double want[8] = {0};
      for (size_t j = 0; j < 3; j++) want[drawn[3 * r + j]] = 1;
      assert_memory_equal(value_of + 8 * r, want, sizeof want);
    }
  }
}

/* At a low temperature a relaxed subset is nearly its mask, and sums to k whatever the
 * temperature. */
static void relaxed_subsets(void **state) {
  enum { SOME = 5000 };
  static double hard[SOME * 8];
  static const setting mask[] = {{"seed", 17}, {"k", 3}, {"hard", 1}},
                       cold[] = {{"seed", 17}, {"k", 3}, {"temperature", 0.01}},
                       warm[] = {{"seed", 17}, {"k", 3}, {"temperature", 1.5}};
  size_t close = 0;
  draw_rows("relaxed_khot", mask, 3, eight, 8, SOME, 8);
  memcpy(hard, value_of, sizeof hard);
  draw_rows("relaxed_khot", cold, 3, eight, 8, SOME, 8);
  for (size_t i = 0; i < SOME * 8; i++) close += fabs(value_of[i] - hard[i]) < 0.1;
  printf("relaxed_khot: %.4f of the elements near their mask\n", (double)close / (SOME * 8));
  assert_true((double)close > 0.96 * SOME * 8);
  draw_rows("relaxed_khot", warm, 3, eight, 8, SOME, 8);
  for (size_t r = 0; r < SOME; r++) {
    double sum = 0;
    for (size_t i = 0; i < 8; i++) sum += value_of[8 * r + i];
    assert_true(fabs(sum - 3) < 1e-14);
  }
}

/* Elements weighed by p / inclusion have the sum over all elements as their mean: here that of
 * p_i i. The third key is that of the first which is not drawn. */
static void inclusion_is_unbiased(void **state) {
  enum { DRAWN = 2 };
  static double kept[TRIALS * 8], kappa[TRIALS];
  static const setting set[] = {{"seed", 18}, {"k", DRAWN + 1}};
  int64_t full[2] = {TRIALS, 8}, row[1] = {TRIALS}, same[2] = {0, 1};
  double p[8], all = 0, want = 0, sum = 0, squares = 0;
  softmax_of(eight, 8, p);
  for (int i = 0; i < 8; i++) all += p[i];
  for (int i = 0; i < 8; i++) want += p[i] / all * i;
  draw_rows("gumbel_topk", set, 2, eight, 8, TRIALS, DRAWN + 1);
  for (size_t r = 0; r < TRIALS; r++) kappa[r] = value_of[(DRAWN + 1) * r + DRAWN];
  const smx_op *op = smx_op_find("gumbel_topk_inclusion");
  smx_params params;
  smx_params_init(op, &params);
  smx_tensor tx = {
      .data = (void *)(uintptr_t)eight, .ndim = 2, .dtype = SMX_F64, .shape = full, .strides = same};
  smx_tensor tk = {.data = kappa, .ndim = 1, .dtype = SMX_F64, .shape = row},
             ty = {.data = kept, .ndim = 2, .dtype = SMX_F64, .shape = full};
  const smx_tensor *in[] = {&tx, &tk}, *out[] = {&ty};
  assert_int_equal(smx_forward(op, NULL, &params, 2, in, 1, out), SMX_OK);
  for (size_t r = 0; r < TRIALS; r++) {
    double mean = 0;
    for (size_t j = 0; j < DRAWN; j++) {
      const int64_t i = index_of[(DRAWN + 1) * r + j];
      mean += p[i] / all * (double)i / kept[8 * r + (size_t)i];
    }
    sum += mean, squares += mean * mean;
  }
  const double mean = sum / TRIALS, deviation = sqrt((squares / TRIALS - mean * mean) / TRIALS);
  printf("gumbel_topk_inclusion: mean %.5f, expected %.5f, deviation %.5f\n", mean, want, deviation);
  assert_true(fabs(mean - want) < 5 * deviation);
}

/* The six masks of 2 of 4, whose rank is that of their first kept neighbours. */
static void masks(void **state) {
  static const setting set[] = {{"seed", 9}, {"hard", 1}};
  static const double x[] = {0.7, 0, -0.5, 1, 0.2, -1};
  static const int code[] = {12, 10, 9, 6, 5, 3};
  int64_t counts[6] = {0};
  double p[6];
  softmax_of(x, 6, p);
  draw_rows("nm_mask_sample", set, 2, x, 6, TRIALS, 4);
  for (size_t r = 0; r < TRIALS; r++) {
    const double *m = value_of + 4 * r;
    const int bits = (int)(8 * m[0] + 4 * m[1] + 2 * m[2] + m[3]);
    size_t c = 0;
    while (c < 6 && code[c] != bits) c++;
    assert_true(c < 6);
    counts[c]++;
  }
  follows("nm_mask_sample", p, counts, 6);
}

static void gates(void **state) {
  static const setting set[] = {{"seed", 10}, {"hard", 1}, {"temperature", 0.7}};
  static const double x[] = {0.7, -2, -7};
  draw_rows("binary_concrete", set, 3, x, 3, MOST, 3);
  int64_t one[3][2] = {{0}}, pairs[4] = {0};
  for (size_t r = 0; r < MOST; r++) {
    const double *y = value_of + 3 * r;
    for (int i = 0; i < 3; i++) one[i][y[i] == 1]++;
    pairs[2 * (y[0] == 1) + (y[1] == 1)]++;
  }
  for (int i = 0; i < 3; i++) {
    const double p[] = {1 / (1 + exp(x[i])), 1 / (1 + exp(-x[i]))};
    follows("binary_concrete", p, one[i], 2);
  }
  const double a = 1 / (1 + exp(-x[0])), b = 1 / (1 + exp(-x[1])),
               joint[] = {(1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b};
  follows("binary_concrete, two gates", joint, pairs, 4);
}

/* ---- draws of numbers ---- */

static int ascending(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}
static double of_uniform(double x) { return x; }
static double of_centred(double x) { return 0.5 + 0.5 * x; }
static double of_normal(double x) { return 0.5 * erfc(-x / sqrt(2)); }
static double of_arcsine(double x) { return asin(sqrt(x)) * 0.63661977236758134308; }

static void distance(const char *what, double *x, double (*distribution)(double x)) {
  double most = 0;
  qsort(x, TRIALS, sizeof *x, ascending);
  for (int i = 0; i < TRIALS; i++) {
    const double p = distribution(x[i]);
    most = fmax(most, fmax(fabs(p - (double)i / TRIALS), fabs(p - (double)(i + 1) / TRIALS)));
  }
  printf("%s: distance %.5f\n", what, most);
  assert_true(most < 2.69 / sqrt(TRIALS));
}

/* Marginals are beta distributions: that of two ones uniform, that of two halves the arcsine;
 * moments of three. */
static void weights_that_are_drawn(void **state) {
  static double first[TRIALS];
  static const double ones[] = {1, 1}, halves[] = {0.5, 0.5}, three[] = {0.5, 2, 4.5}, even[] = {0, 0};
  static const setting seed[] = {{"seed", 11}},
                       soft[] = {{"seed", 12}, {"k", 2}, {"noise", 1}, {"concentration", 2}};
  draw_rows("dirichlet_sample", seed, 1, ones, 2, TRIALS, 2);
  for (size_t r = 0; r < TRIALS; r++) first[r] = value_of[2 * r];
  distance("dirichlet_sample, ones", first, of_uniform);
  draw_rows("dirichlet_sample", seed, 1, halves, 2, TRIALS, 2);
  for (size_t r = 0; r < TRIALS; r++) first[r] = value_of[2 * r];
  distance("dirichlet_sample, halves", first, of_arcsine);
  draw_rows("soft_thinking_token", soft, 4, even, 2, TRIALS, 2);
  for (size_t r = 0; r < TRIALS; r++) first[r] = value_of[2 * r + (index_of[2 * r] != 0)];
  distance("soft_thinking_token, ones", first, of_uniform);
  draw_rows("dirichlet_sample", seed, 1, three, 3, TRIALS, 3);
  for (int i = 0; i < 3; i++) {
    const double mean = three[i] / 7, variance = mean * (1 - mean) / 8;
    double sum = 0, squares = 0;
    for (size_t r = 0; r < TRIALS; r++) sum += value_of[3 * r + (size_t)i];
    for (size_t r = 0; r < TRIALS; r++) squares += pow(value_of[3 * r + (size_t)i] - mean, 2);
    assert_true(fabs(sum / TRIALS - mean) < 5 * sqrt(variance / TRIALS));
    assert_true(fabs(squares / TRIALS / variance - 1) < 0.03);
  }
}

/* Noise on a vector, whose second element is looked at. */
static void noise_on_vectors(void **state) {
  static double second[TRIALS];
  static const double x[] = {5, -3, 1};
  static const setting normal[] = {{"seed", 20}, {"sigma", 2}},
                       uniform[] = {{"seed", 21}, {"alpha", 6}, {"tokens", 12}};
  draw_rows("normal_noise", normal, 2, x, 3, TRIALS, 3);
  for (size_t r = 0; r < TRIALS; r++) second[r] = (value_of[3 * r + 1] + 3) / 2;
  distance("normal_noise", second, of_normal);
  draw_rows("embedding_noise", uniform, 3, x, 3, TRIALS, 3);
  for (size_t r = 0; r < TRIALS; r++) second[r] = value_of[3 * r + 1] + 3;
  distance("embedding_noise", second, of_centred);
}

/* ---- chains ---- */

static void count_chain(const smx_step *steps, size_t count, smx_draw draw, int64_t *counts) {
  memset(counts, 0, 8 * sizeof *counts);
  for (uint64_t i = 0; i < TRIALS; i++) {
    const smx_sample_options o = {
        .size = sizeof o, .steps = steps, .step_count = count, .draw = draw, .seed = 13, .stream = i};
    int64_t index;
    assert_int_equal(smx_sample_f64(NULL, &o, 1, 8, eight, &index, NULL), SMX_OK);
    assert_true(index >= 0 && index < 8);
    counts[index]++;
  }
}

/* What is left keeps its proportions, whatever removed the rest. */
static void chains(void **state) {
  static const int64_t banned[] = {4};
  static const struct {
    const char *name;
    smx_step step;
    double temperature;
    unsigned left; /* bits */
  } known[] = {{"no step", {.kind = SMX_STEP_TEMPERATURE, .a = 1}, 1, 0xff},
               {"temperature", {.kind = SMX_STEP_TEMPERATURE, .a = 2}, 2, 0xff},
               {"top-k", {.kind = SMX_STEP_TOP_K, .a = 3}, 1, 0x1c},
               {"top-p", {.kind = SMX_STEP_TOP_P, .a = 0.7}, 1, 0x1c},
               {"min-p", {.kind = SMX_STEP_MIN_P, .a = 0.2}, 1, 0x1e},
               {"ban", {.kind = SMX_STEP_BAN, .tokens = banned, .token_count = 1}, 1, 0xef}};
  for (size_t i = 0; i < COUNT_OF(known); i++)
    for (int draw = 0; draw < 2; draw++) {
      double p[8];
      int64_t counts[8];
      for (int k = 0; k < 8; k++) p[k] = known[i].left >> k & 1 ? exp(eight[k] / known[i].temperature) : 0;
      count_chain(&known[i].step, 1, (smx_draw)draw, counts);
      follows(known[i].name, p, counts, 8);
    }
}

/* The coin falls once in four; then the best goes, for the second is probable enough too. */
static void the_coin_of_xtc(void **state) {
  static const smx_step step = {.kind = SMX_STEP_XTC, .a = 0.25, .b = 0.2};
  double p[8], without[8], sum = 0;
  int64_t counts[8];
  softmax_of(eight, 8, p);
  for (int i = 0; i < 8; i++) sum += p[i];
  for (int i = 0; i < 8; i++) without[i] = 0.75 * p[i] / sum + 0.25 * (i == 4 ? 0 : p[i] / (sum - p[4]));
  count_chain(&step, 1, SMX_DRAW_CDF, counts);
  follows("xtc", without, counts, 8);
}

static void greedy(void **state) {
  static const setting set[] = {{"temperature", 0}};
  int64_t counts[8];
  draw_rows("categorical_sample", set, 1, eight, 8, 100, 1);
  count_indices(1, 0, 100, 8, counts);
  assert_int_equal(counts[4], 100);
  count_chain(NULL, 0, SMX_DRAW_GREEDY, counts);
  assert_int_equal(counts[4], TRIALS);
}

/* What draws by the distribution function rely on: the largest u times any sum is less than the
 * sum. */
static void the_largest_variate_stays_below(void **state) {
  rng r = {14};
  for (int i = 0; i < 1000000; i++) {
    const double u = 1 - 0x1p-53, z = i == 0   ? 1
                                      : i == 1 ? 1 + 0x1p-52
                                      : i == 2 ? 2 - 0x1p-52
                                               : ldexp(1 + rng_uniform(&r), i % 60 - 30);
    if (!(u * z < z)) fail_msg("u %.17g", z);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operators_that_draw_an_element),
      cmocka_unit_test(tails_of_operators),
      cmocka_unit_test(long_rows),
      cmocka_unit_test(several_draws_of_a_row),
      cmocka_unit_test(masks_of_subsets),
      cmocka_unit_test(relaxed_subsets),
      cmocka_unit_test(inclusion_is_unbiased),
      cmocka_unit_test(masks),
      cmocka_unit_test(gates),
      cmocka_unit_test(weights_that_are_drawn),
      cmocka_unit_test(noise_on_vectors),
      cmocka_unit_test(chains),
      cmocka_unit_test(the_coin_of_xtc),
      cmocka_unit_test(greedy),
      cmocka_unit_test(the_largest_variate_stays_below),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
