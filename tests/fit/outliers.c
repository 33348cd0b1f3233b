/* outliers.c - proves fits that tell what is out of distribution on the worked examples of the
 * catalogue of papers, and on classes and rows with nothing, NaN and inf. */
#include <stdlib.h>

#include "outputs.h"
#include "util.h"

#define INF INFINITY
enum { ROOM = 128 };

static void logarithms(double *p, int n) {
  for (int i = 0; i < n; i++) p[i] = log(p[i]);
}
static int64_t whole_of(const double *out) { return *(const int64_t *)(const void *)out; }
static void all_nan(const double *x, int n) {
  for (int i = 0; i < n; i++)
    if (!isnan(x[i])) fail_msg("number %d is %g", i, x[i]);
}

/* NumPy's percentile of any numbers, in any order. */
static void percentile(void **state) {
  double x[] = {4, -1, INF, 2, 2, -3}, nan[] = {1, NAN}, y;
  int64_t n = 6, two = 2, none = 0;
  const smx_tensor tx = floats(x, 1, &n), tn = floats(nan, 1, &two), te = floats(NULL, 1, &none);
  const double at[] = {0, 10, 50, 60, 70, 100}, want[] = {-3, -2, 2, 2, 3, INF};
  for (size_t k = 0; k < COUNT_OF(at); k++) {
    call("react_fit", (setting[]){{"percentile", at[k]}, {NULL, 0}}, 1, (const smx_tensor *[]){&tx}, &y);
    if (!(y == want[k] || fabs(y - want[k]) < 1e-14)) fail_msg("%g: %.17g, not %g", at[k], y, want[k]);
  }
  call("react_fit", NULL, 1, (const smx_tensor *[]){&tn}, &y), all_nan(&y, 1);
  call("react_fit", NULL, 1, (const smx_tensor *[]){&te}, &y), all_nan(&y, 1);
}

static void templates(void **state) {
  double z[] = {.8, .1, .1, .6, .3, .1, .2, .7, .1, .1, .8, .1, .1, .1, .8}, one[] = {.5, .4, .1}, out[ROOM],
         y[2];
  int64_t shape[] = {5, 3}, row[] = {1, 3}, square[] = {3, 3}, target[] = {0, 0, -1, 0, 0};
  logarithms(z, 15), logarithms(one, 3);
  const smx_tensor tz = floats(z, 2, shape), t1 = floats(one, 2, row), tt = floats(out, 2, square),
                   ty = classes_of(target, shape), *in[] = {&t1, &tt};
  call("kl_matching_fit", NULL, 1, (const smx_tensor *[]){&tz}, out);
  near_all(out, (double[]){.7, .2, .1, .15, .75, .1, .1, .1, .8}, 9, 1e-15);
  assert_true(whole_of(out + 9) == 2 && whole_of(out + 10) == 2 && whole_of(out + 11) == 1);
  call("kl_matching", NULL, 2, in, y);
  near_all(y, (double[]){-.1090227539}, 1, 1e-10);
  assert_true(whole_of(y + 1) == 0);
  one[0] = -INF; /* absent: 0 log 0 is 0 */
  call("kl_matching", NULL, 2, in, y);
  near_all(y, (double[]){-(.8 * log(.8 / .75) + .2 * log(2))}, 1, 1e-14);
  one[0] = NAN, call("kl_matching", NULL, 2, in, y), all_nan(y, 1);
  assert_true(whole_of(y + 1) == -1);
  one[0] = INF, call("kl_matching", NULL, 2, in, y), all_nan(y, 1);
  /* by targets; a class without rows is infinitely far */
  call("kl_matching_fit", NULL, 2, (const smx_tensor *[]){&tz, &ty}, out);
  near_all(out, (double[]){.4, .325, .275, 0, 0, 0, 0, 0, 0}, 9, 1e-15);
  one[0] = log(.5), call("kl_matching", NULL, 2, in, y);
  assert_true(isfinite(y[0]) && whole_of(y + 1) == 0);
  for (int i = 0; i < 9; i++) out[i] = 0;
  call("kl_matching", NULL, 2, in, y);
  assert_true(y[0] == -INF && whole_of(y + 1) == -1);
  z[0] = NAN, call("kl_matching_fit", NULL, 2, (const smx_tensor *[]){&tz, &ty}, out), all_nan(out, 9);
}

static void centroids(void **state) {
  double z[] = {.9, .1, .8, .2, .6, .4, .2, .8, .3, .7, .55, .45}, out[ROOM], y[12], want[6];
  static const double d[] = {.2121320344, .0707106781, .2121320344, .0707106781, .0707106781, .2828427125};
  int64_t target[] = {0, 0, 1, 1, 1, 0}, shape[] = {6, 2}, square[] = {2, 2}, two = 2;
  logarithms(z, 12);
  const smx_tensor tz = floats(z, 2, shape), ty = classes_of(target, shape), mean = floats(out, 2, square),
                   least = floats(out + 4, 1, &two);
  call("centroid_fit", NULL, 2, (const smx_tensor *[]){&tz, &ty}, out);
  near_all(out, (double[]){.75, .25, .25, .75, .2121320344}, 5, 1e-10);
  assert_true(out[5] == INF && whole_of(out + 6) == 3 && whole_of(out + 7) == 2);
  for (int i = 0; i < 6; i++) want[i] = -d[i];
  call("centroid_distance", NULL, 3, (const smx_tensor *[]){&tz, &mean, &least}, y);
  near_all(y, want, 6, 1e-10);
  static const int64_t accepted[] = {0, 1, 0, 1, 1, 0};
  for (int i = 1; i < 6; i++) assert_true(whole_of(y + 6 + i) == accepted[i]);
  for (int i = 0; i < 6; i++) target[i] = -1; /* nothing counts: corners, and nothing is too far */
  call("centroid_fit", NULL, 2, (const smx_tensor *[]){&tz, &ty}, out);
  near_all(out, (double[]){1, 0, 0, 1}, 4, 0);
  assert_true(out[4] == INF && out[5] == INF);
  z[0] = z[1] = -INF, z[3] = NAN;
  call("centroid_distance", NULL, 3, (const smx_tensor *[]){&tz, &mean, &least}, y);
  all_nan(y, 2), assert_true(whole_of(y + 6) == 0 && whole_of(y + 7) == 0 && isfinite(y[2]));
  target[1] = 0, call("centroid_fit", NULL, 2, (const smx_tensor *[]){&tz, &ty}, out), all_nan(out, 6);
}

static void relations(void **state) {
  double z[] = {.9, .08, .02, .1, .85, .05, .05, .05, .9, .7, .2, .1, .5, .45, .05, .45, .5, .05}, d[9], y[3],
         dz[9], g[] = {1, 1, 1};
  double rows[] = {log(.5), log(.45), log(.05), log(.9), log(.05), log(.05), 1, .9, -1}, third = 1.0 / 3;
  int64_t target[] = {0, 1, 2, 0, 1, 0}, shape[] = {6, 3}, square[] = {3, 3}, three = 3;
  logarithms(z, 18);
  const smx_tensor tz = floats(z, 2, shape), ty = classes_of(target, shape), td = floats(d, 2, square),
                   tr = floats(rows, 2, square), tg = floats(g, 1, &three), tdz = floats(dz, 2, square);
  const smx_tensor *in[] = {&tr, &td}, *out[] = {NULL}, *dout[] = {&tg}, *din[] = {&tdz, NULL};
  call("relative_uncertainty_fit", NULL, 2, (const smx_tensor *[]){&tz, &ty}, d);
  const double a = sqrt(.5);
  near_all(d, (double[]){0, a, 0, a, 0, 0, 0, 0, 0}, 9, 1e-15);
  call("relative_uncertainty", NULL, 2, in, y);
  near_all(y, (double[]){.3181980515, .0636396103, .3074338511}, 3, 1e-10);
  const smx_op *op = smx_op_find("relative_uncertainty");
  good(smx_backward(op, NULL, NULL, 2, in, 1, out, dout, din));
  near_all(dz + 6, (double[]){.00605362882, .034733748926, -.040787377745}, 3, 1e-11);
  rows[0] = rows[1] = rows[2] = 0, call("relative_uncertainty", NULL, 2, in, y);
  near_all(y, (double[]){.1571348403}, 1, 1e-10);
  /* no row is wrong: the score of gini, but for the norm */
  int64_t right[] = {0, 1, 2, 0, 0, 1};
  const smx_tensor tq = classes_of(right, shape);
  call("relative_uncertainty_fit", NULL, 2, (const smx_tensor *[]){&tz, &tq}, d);
  call("relative_uncertainty", NULL, 2, in, y);
  near_all(y, (double[]){2 * third / sqrt(6)}, 1, 1e-15);
  rows[1] = NAN, rows[3] = rows[4] = rows[5] = -INF;
  call("relative_uncertainty", NULL, 2, in, y), all_nan(y, 2), assert_true(isfinite(y[2]));
  good(smx_backward(op, NULL, NULL, 2, in, 1, out, dout, din));
  all_nan(dz, 3), near_all(dz + 3, (double[]){0, 0, 0}, 3, 0);
  z[4] = NAN, call("relative_uncertainty_fit", NULL, 2, (const smx_tensor *[]){&tz, &tq}, d), all_nan(d, 9);
}

/* More rows than a block, and the same numbers for any number of threads. */
static void many_rows(void **state) {
  enum { ROWS = 1300, CLASSES = 70 };
  static float z[ROWS * CLASSES], out[CLASSES * CLASSES], first[CLASSES * CLASSES];
  static int64_t target[ROWS];
  static const char *const names[] = {"kl_matching_fit", "centroid_fit", "relative_uncertainty_fit"};
  int64_t shape[] = {ROWS, CLASSES}, square[] = {CLASSES, CLASSES}, classes = CLASSES, count[CLASSES];
  float least[CLASSES];
  rng r = {3};
  for (int i = 0; i < ROWS * CLASSES; i++) z[i] = (float)(2 * rng_normal(&r));
  for (int i = 0; i < ROWS; i++) target[i] = rng_below(&r, CLASSES + 1) - 1;
  const smx_tensor tz = {z, {1, 0}, 2, SMX_F32, shape, NULL, 0}, ty = classes_of(target, shape),
                   to = {out, {1, 0}, 2, SMX_F32, square, NULL, 0},
                   tc = {count, {1, 0}, 1, SMX_I64, &classes, NULL, 0},
                   tl = {least, {1, 0}, 1, SMX_F32, &classes, NULL, 0}, *in[] = {&tz, &ty};
  const smx_tensor *outs[][3] = {{&to, &tc}, {&to, &tl, &tc}, {&to}};
  for (int k = 0; k < 3; k++)
    for (int threads = 1; threads <= 7; threads += 3) {
      smx_context *ctx;
      const smx_op *op = smx_op_find(names[k]);
      good(smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = threads},
                              &ctx));
      good(smx_forward(op, ctx, NULL, 2, in, op->output_count, outs[k]));
      smx_context_destroy(ctx);
      if (threads == 1) memcpy(first, out, sizeof out);
      assert_memory_equal(first, out, sizeof out);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(percentile), cmocka_unit_test(templates), cmocka_unit_test(centroids),
      cmocka_unit_test(relations),  cmocka_unit_test(many_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
