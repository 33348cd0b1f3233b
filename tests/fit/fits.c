/* fits.c - proves fits on the worked examples of the catalogue of papers, on what they promise, and
 * on sets where there is nothing to fit. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "outputs.h"
#include "util.h"
#include <softmax.h>

enum { ROOM = 64 };

static double z3[] = {2, 1, 0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 0, 3, 1, 1, 0, 2, 1, 1.5, 0, 2, 0, 1.5, .5, 0, 1};
static int64_t y3[] = {0, 1, 2, 0, 1, 2, 0, 2, 1};

static void temperature(void **state) {
  double z[] = {2, 0, 3, 1, 1, 0, 0, 4, 1.5, 0, 0, 2}, out[3];
  int64_t y[] = {0, 0, 1, 1, 0, 0}, shape[] = {6, 2}, shape3[] = {9, 3};
  const smx_tensor a = floats(z, 2, shape), ta = classes_of(y, shape), b = floats(z3, 2, shape3),
                   tb = classes_of(y3, shape3);
  call("temperature_fit", NULL, 2, (const smx_tensor *[]){&a, &ta}, out);
  near_all(out, (double[]){2.0431751496320283, .5712320193, .6522681544}, 3, 1e-9);
  assert_true(fabs(out[0] / 2.0431751496320283 - 1) < 1e-14);
  call("temperature_fit", NULL, 2, (const smx_tensor *[]){&b, &tb}, out);
  near_all(out, (double[]){.6788285293588364, .605523859621895}, 2, 1e-14);
}

/* Every row right; logits that tell nothing; no row that counts; a NaN; a target that is absent. */
static void temperature_at_the_ends(void **state) {
  double right[] = {3, 0, 0, 2}, wrong[] = {0, 3, 2, 0}, nan[] = {NAN, 0, 0, 1},
         absent[] = {-INFINITY, 0, 0, 1}, out[3];
  int64_t y[] = {0, 1}, none[] = {-1, -1}, shape[] = {2, 2};
  double *z[] = {right, wrong, right, nan, absent};
  const double want[] = {0x1p-10, 0x1p10, 1, 1, 1};
  for (int k = 0; k < 5; k++) {
    const smx_tensor a = floats(z[k], 2, shape), t = classes_of(k == 2 ? none : y, shape);
    call("temperature_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
    assert_true(out[0] == want[k] && (k < 2 ? isfinite(out[1]) : !isfinite(out[1])));
  }
}

static void vector_and_matrix(void **state) {
  static const setting vector[] = {{"l2", .03}, {"l2_bias", .03}, {NULL, 0}},
                       matrix[] = {{"l2", .01}, {"l2_bias", .01}, {"l2_diagonal", 0}, {NULL, 0}};
  double out[ROOM];
  int64_t shape[] = {9, 3};
  const smx_tensor a = floats(z3, 2, shape), t = classes_of(y3, shape), *in[] = {&a, &t};
  call("vector_scaling_fit", vector, 2, in, out);
  near_all(
      out,
      (double[]){1.404146934494, .739155093373, 2.662291034999, .004899608764, .950100640413, -.955000745825},
      6, 1e-6);
  double penalty = 0;
  for (int i = 0; i < 3; i++) penalty += .01 * ((out[i] - 1) * (out[i] - 1) + out[3 + i] * out[3 + i]);
  near_all((double[]){out[6] + penalty, out[7]}, (double[]){.5143594416854321, .6371722254861356}, 2, 1e-12);
  call("matrix_scaling_fit", matrix, 2, in, out);
  near_all(out, (double[]){4.297531107169, -.596388299428, -2.677895581842}, 3, 1e-5);
  penalty = 0;
  for (int i = 0; i < 9; i++) penalty += i % 4 ? .01 / 6 * out[i] * out[i] : 0;
  for (int i = 9; i < 12; i++) penalty += .01 / 3 * out[i] * out[i];
  near_all((double[]){out[12] + penalty}, (double[]){.25853033911253986}, 1, 1e-12);
}

/* A fit cannot be worse than the identity, on which it ends where there is nothing to fit. */
static void maps_of_hidden_classes(void **state) {
  double z[] = {1, 2, -INFINITY, 0, -INFINITY, 1, 2, 1, 0}, out[ROOM], scaled[9];
  int64_t y[] = {1, 0, 0}, none[] = {-1, -1, -1}, shape[] = {3, 3};
  const smx_tensor a = floats(z, 2, shape), t = classes_of(y, shape), n = classes_of(none, shape);
  call("vector_scaling_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
  assert_true(isfinite(out[6]) && out[6] < out[7]);
  int64_t three = 3;
  const smx_tensor w = floats(out, 1, &three), b = floats(out + 3, 1, &three);
  call("vector_scaling", NULL, 3, (const smx_tensor *[]){&a, &w, &b}, scaled);
  assert_true(scaled[2] == -INFINITY && scaled[4] == -INFINITY && isfinite(scaled[0]));
  call("vector_scaling_fit", NULL, 2, (const smx_tensor *[]){&a, &n}, out);
  near_all(out, (double[]){1, 1, 1, 0, 0, 0}, 6, 0);
  assert_true(isnan(out[6]) && isnan(out[7]));
  call("matrix_scaling_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
  near_all(out, (double[]){1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 12, 0);
  assert_true(isnan(out[12]));
}

static void platt(void **state) {
  double x[] = {-2, -1, -.5, .3, .8, 1, 2.5, 3}, out[3];
  unsigned char is[] = {0, 0, 1, 0, 1, 1, 1, 1};
  int64_t n = 8;
  const smx_tensor a = floats(x, 1, &n), t = {is, {1, 0}, 1, SMX_BOOL, &n, NULL, 0};
  call("platt_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
  near_all(out, (double[]){-.7010188622835906, -.2239006798873402}, 2, 1e-6);
  static const double by[] = {0x1p-990, 1e-9, 1e7, 0x1p+1020}, to[] = {0, 1e7}; /* units and origins */
  for (size_t k = 0; k < COUNT_OF(by) * COUNT_OF(to); k++) {
    const double unit = by[k % COUNT_OF(by)], at = to[k / COUNT_OF(by)];
    double moved[8], got[3];
    const smx_tensor m = floats(moved, 1, &n);
    if (at > 0 && unit > 1e100) continue;
    for (int i = 0; i < 8; i++) moved[i] = (x[i] + at) * unit;
    call("platt_fit", NULL, 2, (const smx_tensor *[]){&m, &t}, got);
    near_all((double[]){got[0] * unit, got[2]}, (double[]){out[0], out[2]}, 2, at > 0 ? 1e-9 : 1e-13);
    near_all(got + 1, (double[]){out[1] - out[0] * at}, 1, at > 0 ? 1e-2 : 1e-13); /* of 1e7 */
  }
  memset(is, 1, sizeof is); /* a constant: (8 + 1) / (8 + 2) */
  call("platt_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
  assert_true(out[0] == 0 && fabs(1 / (1 + exp(out[1])) - .9) < 1e-14);
}

/* What is calibrated stays so; what is overconfident loses it. */
static void beta(void **state) {
  enum { ROWS = 200000 };
  static double p[ROWS], sure[ROWS];
  static unsigned char is[ROWS];
  double out[4];
  int64_t n = ROWS;
  rng r = {7};
  for (int i = 0; i < ROWS; i++) {
    p[i] = rng_uniform(&r), is[i] = rng_uniform(&r) < p[i];
    sure[i] = p[i] * p[i] / (p[i] * p[i] + (1 - p[i]) * (1 - p[i]));
  }
  const smx_tensor a = floats(p, 1, &n), b = floats(sure, 1, &n), t = {is, {1, 0}, 1, SMX_BOOL, &n, NULL, 0};
  call("beta_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
  near_all(out, (double[]){1, 1, 0}, 3, .06);
  call("beta_fit", NULL, 2, (const smx_tensor *[]){&b, &t}, out);
  near_all(out, (double[]){.5, .5, 0}, 3, .03);
}

static void isotonic(void **state) {
  double x[] = {.1, .2, .3, .4, .5, .6, .7, .8}, v[] = {0, 1, 0, 0, 1, 1, 0, 1},
         at[] = {.05, .25, .65, .75, .9, NAN}, out[32];
  int64_t n = 8, m = 6;
  const smx_tensor a = floats(x, 1, &n), t = floats(v, 1, &n), s = floats(at, 1, &m);
  call("isotonic_fit", NULL, 2, (const smx_tensor *[]){&a, &t}, out);
  near_all(out, (double[]){.1, .2, .4, .5, .7, .8, .8, .8, 0, 1.0 / 3, 1.0 / 3, 2.0 / 3, 2.0 / 3, 1, 1, 1},
           16, 1e-15);
  assert_true(*(int64_t *)(void *)(out + 16) == 6);
  const smx_tensor kx = floats(out, 1, &n), ky = floats(out + 8, 1, &n);
  double y[6];
  call("isotonic", NULL, 3, (const smx_tensor *[]){&s, &kx, &ky}, y);
  near_all(y, (double[]){0, 1.0 / 3, 2.0 / 3, 5.0 / 6, 1}, 5, 1e-15);
  assert_true(isnan(y[5]));
  double w[] = {1, 1, -1, 1, 1, 1, 1, 1};
  const smx_tensor weight = floats(w, 1, &n), *in[] = {&a, &t, &weight}, *to[] = {&kx, &ky, NULL};
  smx_params params;
  const smx_op *op = smx_op_find("isotonic_fit");
  good(smx_params_init(op, &params));
  smx_tensor count = {out + 16, {1, 0}, 0, SMX_I64, NULL, NULL, 0};
  to[2] = &count;
  refused(smx_forward(op, NULL, &params, 3, in, 3, to), SMX_ERR_PARAM, "weight: number 2 is -1");
}

/* Bends at infinity, and farther apart than numbers reach. */
static void isotonic_at_infinity(void **state) {
  double x[] = {-INFINITY, 0, 1, INFINITY}, y[] = {0, .25, .5, 1}, at[] = {-INFINITY, -5, .5, 7, INFINITY},
         out[5];
  double wide[] = {-1.5e308, 1.5e308}, ends[] = {0, 1}, middle[] = {0, 7.5e307}, got[2];
  int64_t n = 4, m = 5, two = 2;
  const smx_tensor s = floats(at, 1, &m), kx = floats(x, 1, &n), ky = floats(y, 1, &n),
                   a = floats(middle, 1, &two), wx = floats(wide, 1, &two), wy = floats(ends, 1, &two);
  call("isotonic", NULL, 3, (const smx_tensor *[]){&s, &kx, &ky}, out);
  near_all(out, (double[]){0, .25, .375, .5, 1}, 5, 0);
  call("isotonic", NULL, 3, (const smx_tensor *[]){&a, &wx, &wy}, got);
  near_all(got, (double[]){.5, .75}, 2, 1e-15);
}

static void bins(void **state) {
  double x[] = {0, .2, .21, 1, -1, 2}, accuracy[] = {.1, NAN, .3, .4, .5}, y[6];
  int64_t n = 6, k = 5;
  const smx_tensor a = floats(x, 1, &n), t = floats(accuracy, 1, &k), *in[] = {&a, &t};
  call("histogram_binning", NULL, 2, in, y);
  near_all(y, (double[]){.1, .1, .3, .5, .1, .5}, 6, 1e-15); /* the second bin has no rows: its middle */
  call("histogram_binning", (setting[]){{"closed", 1}, {NULL, 0}}, 2, in, y);
  near_all(y, (double[]){.1, .3, .3, .5, .1, .5}, 6, 1e-15);
}

static void conformal(void **state) {
  double p[] = {.6,  .3, .1,  .5,  .4, .1, .2, .7,  .1, .1,  .2,  .7,  .4, .35,
                .25, .8, .15, .05, .3, .3, .4, .05, .9, .05, .45, .45, .1};
  double test[] = {log(.55), log(.35), log(.1)}, noise[9], q, sets[4];
  int64_t y[] = {0, 1, 1, 2, 2, 0, 0, 1, 0}, shape[] = {9, 3}, one[] = {1, 3};
  static const struct {
    double method, penalty, rank, noise, threshold;
  } cases[] = {{0, 0, 0, 0, -.3}, {1, 0, 0, 0, .9}, {1, 0, 0, .5, .7}, {1, .1, 1, 0, 1}};
  for (int i = 0; i < 27; i++) p[i] = log(p[i]);
  for (size_t k = 0; k < COUNT_OF(cases); k++) {
    const setting all[] = {{"method", cases[k].method},
                           {"penalty", cases[k].penalty},
                           {"rank", cases[k].rank},
                           {"coverage", .8},
                           {NULL, 0}};
    for (int i = 0; i < 9; i++) noise[i] = cases[k].noise;
    const smx_tensor a = floats(p, 2, shape), t = classes_of(y, shape), u = floats(noise, 1, shape),
                     x = floats(test, 2, one);
    call("conformal_fit", all, 3, (const smx_tensor *[]){&a, &t, &u}, &q);
    near_all(&q, &cases[k].threshold, 1, 1e-12);
    const setting map[] = {all[0], all[1], all[2], {"threshold", q + 1e-12}, {NULL, 0}};
    call("conformal_sets", map, 1, (const smx_tensor *[]){&x}, sets);
    const int64_t *member = (const int64_t *)(const void *)sets;
    assert_true(member[0] == 1 && member[1] == (cases[k].noise == 0) && member[2] == 0);
    assert_true(member[3] == member[0] + member[1]);
  }
}

/* Of no rows that count, the threshold lets every class in, whatever the coverage. */
static void conformal_of_nothing(void **state) {
  double p[] = {.6, .3, .1, .5, .4, .1}, q;
  int64_t y[] = {-1, -1}, shape[] = {2, 3};
  for (int rows = 0; rows < 3; rows++)
    for (int coverage = 0; coverage < 2; coverage++) {
      shape[0] = rows;
      const smx_tensor a = floats(p, 2, shape), t = classes_of(y, shape);
      call("conformal_fit", (setting[]){{"coverage", coverage}, {NULL, 0}}, 2, (const smx_tensor *[]){&a, &t},
           &q);
      assert_true(q == HUGE_VAL);
    }
}

/* Of many fits, the mean share of new rows whose class is in the set is the coverage: LAC, APS,
 * RAPS. */
static void sets_cover(void **state) {
  enum { FITS = 400, ROWS = 99, NEW = 50, CLASSES = 5 };
  double z[ROWS * CLASSES], q, u[ROWS], sets[NEW * (CLASSES + 1)];
  int64_t y[ROWS], shape[] = {ROWS, CLASSES};
  rng r = {11};
  for (int method = 0; method < 3; method++) {
    const double penalty = method == 2 ? .1 : 0;
    double covered = 0;
    for (int fit = 0; fit < 2 * FITS; fit++) {
      const bool fresh = fit % 2;
      const int64_t n = shape[0] = fresh ? NEW : ROWS;
      for (int64_t i = 0; i < n; i++) { /* the true probabilities are other than the model's */
        double sum = 0, at = rng_uniform(&r);
        for (int j = 0; j < CLASSES; j++)
          z[i * CLASSES + j] = 2 * rng_normal(&r), sum += exp(z[i * CLASSES + j] / 2);
        for (y[i] = 0; y[i] < CLASSES - 1 && (at -= exp(z[i * CLASSES + y[i]] / 2) / sum) > 0;) y[i]++;
        u[i] = rng_uniform(&r);
      }
      const smx_tensor a = floats(z, 2, shape), t = classes_of(y, shape), noise = floats(u, 1, shape);
      const setting all[] = {{"method", method > 0},
                             {fresh ? "threshold" : "coverage", fresh ? q : .9},
                             {"penalty", penalty},
                             {"rank", 1},
                             {NULL, 0}};
      if (!fresh) call("conformal_fit", all, 3, (const smx_tensor *[]){&a, &t, &noise}, &q);
      else {
        call("conformal_sets", (setting[]){all[0], all[1], all[2], all[3], {"empty", 1}, {NULL, 0}}, 2,
             (const smx_tensor *[]){&a, &noise}, sets);
        for (int64_t i = 0; i < n; i++) covered += (double)((int64_t *)(void *)sets)[i * CLASSES + y[i]];
      }
    }
    covered /= FITS * (double)NEW; /* its standard deviation is .0025 */
    if (!(fabs(covered - .9) < .01)) fail_msg("method %d covers %g", method, covered);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(temperature),
      cmocka_unit_test(temperature_at_the_ends),
      cmocka_unit_test(vector_and_matrix),
      cmocka_unit_test(maps_of_hidden_classes),
      cmocka_unit_test(platt),
      cmocka_unit_test(beta),
      cmocka_unit_test(isotonic),
      cmocka_unit_test(isotonic_at_infinity),
      cmocka_unit_test(bins),
      cmocka_unit_test(conformal),
      cmocka_unit_test(conformal_of_nothing),
      cmocka_unit_test(sets_cover),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
