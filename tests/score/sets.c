/* sets.c - proves parts of the Brier score, calibration of every class, intervals and tests by
 * draws on the worked examples of the catalogue of papers, on what they promise, and on sets with
 * nothing, NaN and weights. */
#include <stdlib.h>

#include "outputs.h"
#include "util.h"

enum { OUTS = 7 };

static void all_nan(const double *x, int n) {
  for (int i = 0; i < n; i++)
    if (!isnan(x[i])) fail_msg("number %d is %g", i, x[i]);
}
static smx_tensor mask_of(unsigned char *x, int64_t *n) {
  return (smx_tensor){x, {1, 0}, 1, SMX_BOOL, n, NULL, 0};
}

static void decomposition(void **state) {
  double f[] = {.1, .1, .4, .4, .4, .8, .8, .8, .8, .8}, y[OUTS], same[OUTS], w[10];
  unsigned char o[] = {0, 0, 0, 1, 0, 1, 1, 1, 0, 1};
  int64_t n = 10, none = 0;
  const smx_tensor tf = floats(f, 1, &n), to = mask_of(o, &n), tw = floats(w, 1, &n),
                   te = floats(NULL, 1, &none), to0 = mask_of(NULL, &none);
  const smx_tensor *in[] = {&tf, &to, &tw};
  call("brier_decomposition", NULL, 2, in, y);
  near_all(y, (double[]){.15, .0033333333, .1033333333, .25, 0, .04}, 6, 1e-10);
  /* debiased: gaps .1, 1/15, 0; o (1 - o) / (n - 1): 0, 1/9, .04 */
  const double square = .2 * .01 + .3 * (1 / 225.0 - 1 / 9.0) + .5 * -.04;
  near_all(y + 6, (double[]){square > 0 ? sqrt(square) : 0}, 1, 1e-12);
  /* a weight of 2 is a row twice; one of 0 is none */
  double twice[] = {.1, .4, .4, .8, .8};
  unsigned char of_twice[] = {0, 1, 0, 1, 0};
  int64_t five = 5;
  const smx_tensor t5 = floats(twice, 1, &five), o5 = mask_of(of_twice, &five), w5 = floats(w, 1, &five);
  for (int i = 0; i < 5; i++) w[i] = i == 1 ? 0 : 2;
  call("brier_decomposition", NULL, 3, (const smx_tensor *[]){&t5, &o5, &w5}, y);
  double rows[] = {.1, .1, .4, .4, .8, .8, .8, .8};
  unsigned char of_rows[] = {0, 0, 0, 0, 1, 1, 0, 0};
  int64_t eight = 8;
  const smx_tensor t8 = floats(rows, 1, &eight), o8 = mask_of(of_rows, &eight);
  call("brier_decomposition", NULL, 2, (const smx_tensor *[]){&t8, &o8}, same);
  near_all(y, same, 7, 1e-15);
  /* with bins the parts still add up */
  call("brier_decomposition", (setting[]){{"bins", 2}, {NULL, 0}}, 2, in, y);
  near_all(y, (double[]){y[1] - y[2] + y[3] + y[4]}, 1, 1e-15);
  assert_true(y[4] != 0);
  call("brier_decomposition", NULL, 2, (const smx_tensor *[]){&te, &to0}, y), all_nan(y, OUTS);
  for (int i = 0; i < 10; i++) w[i] = 0;
  call("brier_decomposition", NULL, 3, in, y), all_nan(y, OUTS);
  f[3] = NAN, call("brier_decomposition", NULL, 2, in, y), all_nan(y, OUTS);
  w[4] = -1;
  smx_tensor out[4];
  const smx_tensor *list[OUTS] = {NULL};
  for (int k = 0; k < 4; k++) out[k] = floats(y + k, 0, NULL), list[k] = out + k;
  refused(smx_forward(smx_op_find("brier_decomposition"), NULL, NULL, 3, in, OUTS, list), SMX_ERR_PARAM,
          "weight: number 4 is -1");
  f[3] = 1.5;
  refused(smx_forward(smx_op_find("brier_decomposition"), NULL, NULL, 2, in, OUTS, list), SMX_ERR_PARAM,
          "confidence: number 3 is 1.5");
}

static void every_class(void **state) {
  double z[] = {.7, .2, .1, .1, .6, .3, .3, .3, .4, .2, .5, .3}, y[5];
  int64_t target[] = {0, 1, 0, 2}, shape[] = {4, 3};
  for (int i = 0; i < 12; i++) z[i] = log(z[i]);
  const smx_tensor tz = floats(z, 2, shape), tt = classes_of(target, shape), *in[] = {&tz, &tt};
  const setting bins[] = {{"bins", 7}, {NULL, 0}}; /* of 5 some probabilities lie on an edge */
  call("classwise_calibration_error", bins, 2, in, y);
  near_all(y, (double[]){.7 / 3, .35, .325, .35, .025}, 5, 1e-15);
  z[4] = NAN, call("classwise_calibration_error", bins, 2, in, y), all_nan(y, 5);
  target[1] = -1, call("classwise_calibration_error", bins, 2, in, y);
  assert_true(isfinite(y[0]));
  for (int i = 0; i < 4; i++) target[i] = -1;
  call("classwise_calibration_error", bins, 2, in, y), all_nan(y, 2);
}

/* Of many sets of normal numbers the interval has the mean in nine of ten; its deviation is the
 * standard error. */
static void intervals(void **state) {
  enum { ROWS = 60, SETS = 400 };
  static double x[SETS * ROWS], y[4 * SETS];
  int64_t shape[] = {SETS, ROWS};
  double covered = 0, spread = 0;
  rng r = {9};
  for (int i = 0; i < SETS * ROWS; i++) x[i] = 3 + 2 * rng_normal(&r);
  const smx_tensor tx = floats(x, 2, shape), *in[] = {&tx};
  call("mean_interval", (setting[]){{"level", .9}, {"seed", 5}, {NULL, 0}}, 1, in, y);
  for (int s = 0; s < SETS; s++)
    covered += y[SETS + s] <= 3 && y[2 * SETS + s] >= 3, spread += y[3 * SETS + s] / SETS;
  if (!(fabs(covered / SETS - .89) < .05)) fail_msg("%g of the intervals have the mean", covered / SETS);
  if (!(fabs(spread / (2 / sqrt(ROWS)) - 1) < .03)) fail_msg("standard error %g", spread);
}

/* Rows of weight 0 do not count, whatever they are; a seed has its own numbers. */
static void weights(void **state) {
  double x[] = {1, NAN, 0, 1, 4}, w[] = {1, 0, 2, 1, 0}, kept[] = {1, 0, 1}, of_kept[] = {1, 2, 1}, a[4],
         b[4];
  int64_t n = 5, three = 3, none = 0;
  const smx_tensor tx = floats(x, 1, &n), tw = floats(w, 1, &n), tk = floats(kept, 1, &three),
                   tv = floats(of_kept, 1, &three), te = floats(NULL, 1, &none);
  call("mean_interval", NULL, 2, (const smx_tensor *[]){&tx, &tw}, a);
  call("mean_interval", NULL, 2, (const smx_tensor *[]){&tk, &tv}, b);
  near_all(a, b, 4, 0), assert_true(a[0] == .5 && a[1] >= 0 && a[2] <= 1);
  call("mean_interval", (setting[]){{"seed", 1}, {NULL, 0}}, 2, (const smx_tensor *[]){&tk, &tv}, b);
  assert_true(a[0] == b[0] && a[3] != b[3]);
  call("mean_interval", NULL, 1, (const smx_tensor *[]){&tx}, a), all_nan(a, 4);
  call("mean_interval", NULL, 1, (const smx_tensor *[]){&te}, a), all_nan(a, 4);
}

/* Exact where all signs are taken, and near that with draws; equal models, and a NaN. */
static void permutations(void **state) {
  double x[130], y[130], out[2], near[2];
  int64_t n = 4;
  const double first[] = {1, 1, 1, 0}, second[] = {0, 0, 0, 0};
  memcpy(x, first, sizeof first), memcpy(y, second, sizeof second);
  smx_tensor tx = floats(x, 1, &n), ty = floats(y, 1, &n);
  const smx_tensor *in[] = {&tx, &ty};
  call("paired_test", NULL, 2, in, out); /* of 16 signs 4 are as far */
  near_all(out, (double[]){.75, .25}, 2, 0);
  call("paired_test", NULL, 2, (const smx_tensor *[]){&tx, &tx}, out);
  near_all(out, (double[]){0, 1}, 2, 0);
  rng r = {4};
  for (int i = 0; i < 130; i++) x[i] = rng_normal(&r) + .3, y[i] = rng_normal(&r);
  n = 13;
  call("paired_test", NULL, 2, in, out);
  call("paired_test", (setting[]){{"draws", 8000}, {NULL, 0}}, 2, in, near);
  assert_true(out[0] == near[0] && fabs(out[1] - near[1]) < .02);
  n = 130; /* more rows than a block has signs: next to the normal distribution */
  call("paired_test", NULL, 2, in, out);
  double sum = 0, squares = 0;
  for (int i = 0; i < 130; i++) sum += x[i] - y[i], squares += (x[i] - y[i]) * (x[i] - y[i]);
  const double p = erfc(fabs(sum) / sqrt(2 * squares));
  if (!(fabs(out[1] - p) < .01)) fail_msg("p is %g, not %g", out[1], p);
  x[7] = INFINITY, call("paired_test", NULL, 2, in, out), all_nan(out, 2);
  n = 0, call("paired_test", NULL, 2, in, out), all_nan(out, 2);
}

/* Chosen 0..n-1, order, spent. */
/* Pairs one by one; ties; a set of one row, of none, and with NaN. */
static void kernels(void **state) {
  double x[] = {.95, .8, .6, .8}, y[2], all = 0, apart = 0;
  unsigned char is[] = {1, 0, 1, 1};
  int64_t n = 4, one = 1, none = 0;
  const smx_tensor tx = floats(x, 1, &n), ti = mask_of(is, &n), t1 = floats(x, 1, &one),
                   i1 = mask_of(is, &one), t0 = floats(NULL, 1, &none), i0 = mask_of(NULL, &none);
  const smx_tensor *in[] = {&tx, &ti};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const double part = (is[i] - x[i]) * (is[j] - x[j]) * exp(-fabs(x[i] - x[j]) / .25);
      all += part, apart += i == j ? 0 : part;
    }
  call("kernel_calibration_error", (setting[]){{"width", .25}, {NULL, 0}}, 2, in, y);
  near_all(y, (double[]){sqrt(all) / 4, apart / 12}, 2, 1e-15);
  call("kernel_calibration_error", NULL, 2, (const smx_tensor *[]){&t1, &i1}, y);
  assert_true(fabs(y[0] - .05) < 1e-15 && isnan(y[1]));
  call("kernel_calibration_error", NULL, 2, (const smx_tensor *[]){&t0, &i0}, y), all_nan(y, 2);
  x[2] = NAN, call("kernel_calibration_error", NULL, 2, in, y), all_nan(y, 2);
  x[2] = 2;
  smx_tensor out[] = {floats(y, 0, NULL), floats(y + 1, 0, NULL)};
  refused(smx_forward(smx_op_find("kernel_calibration_error"), NULL, NULL, 2, in, 2,
                      (const smx_tensor *[]){out, out + 1}),
          SMX_ERR_PARAM, "confidence: number 2 is 2");
}

static void budgets(void **state) {
  double x[] = {.8, .5, .4, .1}, cost[] = {8, 1, 4, 0}, out[9];
  int64_t n = 4;
  const smx_tensor tx = floats(x, 1, &n), tc = floats(cost, 1, &n), *in[] = {&tx, &tc};
  const int64_t *is = (const int64_t *)(const void *)out;
  static const struct {
    setting set[4];
    int costs;
    int64_t order[4];
    double spent;
  } cases[] = {
      {{{"budget", 1}}, 0, {0, -1, -1, -1}, 1},
      {{{"budget", 1}, {"clip", .75}}, 0, {1, -1, -1, -1}, 1}, /* the most uncertain is left out */
      {{{"budget", 8}}, 1, {0, 3, -1, -1}, 8},
      {{{"budget", 8}, {"rank", 1}}, 1, {3, 1, 2, -1}, 5}, /* of cost 0 first */
      {{{"budget", 100}, {"rank", 2}, {"lambda", .1}}, 1, {1, 3, 2, 0}, 13.5},
      {{{"budget", 0}}, 1, {3, -1, -1, -1}, 0},
  };
  for (size_t k = 0; k < COUNT_OF(cases); k++) {
    if (k == 3) cost[0] = 8.5;
    call("budget_select", cases[k].set, 1 + cases[k].costs, in, out);
    for (int i = 0; i < 4; i++)
      if (is[4 + i] != cases[k].order[i]) fail_msg("case %d: place %d is row %d", (int)k, i, (int)is[4 + i]);
    near_all(out + 8, &cases[k].spent, 1, 0);
  }
  x[0] = NAN, cost[1] = INFINITY;
  call("budget_select", (setting[]){{"budget", 9}, {NULL, 0}}, 2, in, out);
  assert_true(is[0] == 0 && is[1] == 0 && is[2] == 1 && is[3] == 1 && is[4] == 2 && is[6] == -1);
}

static void streams(void **state) {
  double x[] = {.5, .99, .95, .999, .98}, nan[] = {NAN, .2}, out[6];
  static const int64_t want[] = {1, 0, 1, 0, 1};
  int64_t n = 5, two = 2;
  const smx_tensor tx = floats(x, 1, &n), tn = floats(nan, 1, &two);
  const int64_t *is = (const int64_t *)(const void *)out;
  call("stream_query", NULL, 1, (const smx_tensor *[]){&tx}, out);
  for (int i = 0; i < 5; i++) assert_true(is[i] == want[i]);
  near_all(out + 5, (double[]){.9898020099}, 1, 1e-15);
  call("stream_query", (setting[]){{"step", 0}, {"budget", .4}, {NULL, 0}}, 1, (const smx_tensor *[]){&tx},
       out);
  assert_true(is[0] == 1 && is[1] == 0 && is[2] == 1 && is[3] == 0 && is[4] == 0 && out[5] == 1);
  call("stream_query", NULL, 1, (const smx_tensor *[]){&tn}, out);
  assert_true(is[0] == 0 && is[1] == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decomposition), cmocka_unit_test(every_class),  cmocka_unit_test(intervals),
      cmocka_unit_test(weights),       cmocka_unit_test(permutations), cmocka_unit_test(budgets),
      cmocka_unit_test(kernels),       cmocka_unit_test(streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
