/* trust.c - proves probes, cascades, opinions, labels behind gradients and what is made of
 * neighbours on the worked examples of the catalogue of papers, and on what they promise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "outputs.h"
#include "util.h"
#include <softmax.h>

enum { ROOM = 64 };

static smx_tensor none_of(double *x) { return floats(x, 0, NULL); }
static int64_t whole(const double *at) {
  int64_t i;
  memcpy(&i, at, sizeof i);
  return i;
}

static void cascades(void **state) {
  double x[] = {.99, .95, .9, .85, .8, .7, .6, .55}, out[ROOM];
  unsigned char is[] = {1, 1, 1, 0, 1, 1, 0, 0};
  int64_t n = 8, shape[] = {2, 3}, two = 2;
  const smx_tensor tx = floats(x, 1, &n), ti = {is, {1, 0}, 1, SMX_BOOL, &n, NULL, 0}, *in[] = {&tx, &ti};
  call("cascade_fit", NULL, 2, in, out);
  near_all(out, (double[]){.9, 1, .375}, 3, 1e-15);
  call("cascade_fit", (setting[]){{"slack", .05}, {NULL, 0}}, 2, in, out);
  near_all(out, (double[]){.9, 1, .375}, 3, 1e-15);
  call("cascade_fit", (setting[]){{"slack", .2}, {NULL, 0}}, 2, in, out);
  near_all(out, (double[]){.7, 5.0 / 6, .75}, 3, 1e-15);
  x[3] = NAN, call("cascade_fit", NULL, 2, in, out);
  assert_true(isnan(out[0]) && isnan(out[1]) && isnan(out[2]));
  double stages[] = {.9, .2, NAN, .1, .1, .1}, cut[] = {.5, 2}, cost[] = {1, 10};
  const smx_tensor ts = floats(stages, 2, shape), tc = floats(cut, 1, &two), tm = floats(cost, 1, &two);
  call("cascade", NULL, 3, (const smx_tensor *[]){&ts, &tc, &tm}, out);
  assert_true(whole(out) == 0 && whole(out + 1) == 1 && whole(out + 2) == 1);
  near_all(out + 3, (double[]){1.0 / 3, 2.0 / 3, (1 + 11 + 11) / 3.0}, 3, 1e-15);
}

/* The gradient of a smoothed label: with that of the bias, without it, and of no row at all. */
static void recovery(void **state) {
  double w[] = {1, -.5, .3, .8, -.7, .2, .1, .1}, b[] = {.1, 0, -.1, 0}, x[] = {.6, -.4},
         y[] = {.85, .05, .05, .05}, g[8], gb[4], sum = 0, out[ROOM];
  int64_t shape[] = {4, 2}, four = 4;
  for (int j = 0; j < 4; j++) sum += gb[j] = exp(w[2 * j] * x[0] + w[2 * j + 1] * x[1] + b[j]);
  for (int j = 0; j < 4; j++)
    gb[j] = gb[j] / sum - y[j], g[2 * j] = gb[j] * x[0], g[2 * j + 1] = gb[j] * x[1];
  const smx_tensor tw = floats(w, 2, shape), tb = floats(b, 1, &four), tg = floats(g, 2, shape),
                   tgb = floats(gb, 1, &four), *in[] = {&tw, &tg, &tb, &tgb};
  for (int n = 3; n <= 4; n++) {
    call("label_recovery", NULL, n, in, out);
    near_all(out, x, 2, 1e-9), near_all(out + 2, y, 4, 1e-9);
    near_all(out + 6, (double[]){-2.8749463020912844}, 1, 1e-8);
    assert_true(whole(out + 7) == 1);
  }
  memset(g, 0, sizeof g);
  call("label_recovery", NULL, 3, in, out);
  assert_true(isnan(out[0]) && isnan(out[2]) && isnan(out[6]) && whole(out + 7) == 0);
}

/* Where the gradient is 0; a class without rows; weights that grow where nothing holds them. */
static void probes(void **state) {
  enum { ROWS = 60, D = 3, K = 4 };
  double h[ROWS * D], out[K * (D + 1) + 1], g[K][D + 1] = {{0}};
  int64_t y[ROWS], shape[] = {ROWS, D};
  rng r = {3};
  for (int i = 0; i < ROWS * D; i++) h[i] = rng_normal(&r);
  for (int i = 0; i < ROWS; i++) y[i] = i % 7 == 0 ? -1 : h[i * D] + rng_normal(&r) > 0 ? 2 : i % 2;
  const smx_tensor th = floats(h, 2, shape), ty = classes_of(y, shape), *in[] = {&th, &ty};
  call("probe_fit", (setting[]){{"classes", K}, {"l2", .05}, {NULL, 0}}, 2, in, out);
  const double *bias = out + K * D;
  assert_true(bias[3] == -INFINITY && fabs(bias[0] + bias[1] + bias[2]) < 1e-9);
  double counted = 0;
  for (int i = 0; i < ROWS; i++) counted += y[i] >= 0;
  for (int i = 0; i < ROWS; i++) {
    double p[K], sum = 0;
    for (int k = 0; k < K && y[i] >= 0; k++) {
      p[k] = bias[k];
      for (int e = 0; e < D; e++) p[k] += out[k * D + e] * h[i * D + e];
      sum += p[k] = exp(p[k]);
    }
    for (int k = 0; k < K && y[i] >= 0; k++)
      for (int e = 0; e <= D; e++)
        g[k][e] += (p[k] / sum - (y[i] == k)) * (e < D ? h[i * D + e] : 1) / counted;
  }
  for (int k = 0; k < K; k++)
    for (int e = 0; e <= D; e++) assert_true(fabs(g[k][e] + (e < D ? .05 * out[k * D + e] : 0)) < 1e-9);
  for (int i = 0; i < ROWS; i++) y[i] = -1;
  call("probe_fit", (setting[]){{"classes", K}, {NULL, 0}}, 2, in, out);
  for (int i = 0; i < K * (D + 1); i++) assert_true(out[i] == 0);
  assert_true(isnan(out[K * (D + 1)]));
}

/* Features far from 0 have the weights of those less 1000, and biases that make up for it. */
static void probes_far(void **state) {
  enum { ROWS = 60, D = 3, K = 3 };
  double h[ROWS * D], near_0[K * (D + 1) + 1], far[K * (D + 1) + 1];
  int64_t y[ROWS], shape[] = {ROWS, D};
  rng r = {5};
  for (int i = 0; i < ROWS * D; i++) h[i] = rng_normal(&r);
  for (int i = 0; i < ROWS; i++) y[i] = i % 7 == 0 ? -1 : h[i * D] + rng_normal(&r) > 0 ? 2 : i % 2;
  const smx_tensor th = floats(h, 2, shape), ty = classes_of(y, shape), *in[] = {&th, &ty};
  const setting settings[] = {{"classes", K}, {"l2", .001}, {NULL, 0}};
  call("probe_fit", settings, 2, in, near_0);
  for (int i = 0; i < ROWS * D; i++) h[i] += 1000;
  call("probe_fit", settings, 2, in, far);
  near_all(far, near_0, K * D, 1e-8);
  for (int k = 0; k < K; k++) {
    double bias = far[K * D + k];
    for (int e = 0; e < D; e++) bias += 1000 * far[k * D + e];
    near_all(&bias, near_0 + K * D + k, 1, 1e-8);
  }
  near_all(far + K * (D + 1), near_0 + K * (D + 1), 1, 1e-10);
}

/* Methods in another order have their temperatures in it; the surer one is softened more. */
static void opinions(void **state) {
  double p[] = {.98, .01, .01, .01, .98, .01, .4, .5, .1, .6, .3, .1}, q[12], a[ROOM], b[ROOM], one[ROOM];
  int64_t shape[] = {2, 2, 3}, alone[] = {1, 2, 3};
  memcpy(q, p + 6, 6 * sizeof *q), memcpy(q + 6, p, 6 * sizeof *q);
  const smx_tensor tp = floats(p, 3, shape), tq = floats(q, 3, shape), t1 = floats(p, 3, alone);
  call("crowd_temperature", NULL, 1, (const smx_tensor *[]){&tp}, a);
  call("crowd_temperature", NULL, 1, (const smx_tensor *[]){&tq}, b);
  near_all(b, (double[]){a[1], a[0]}, 2, 1e-6), near_all(b + 2, a + 2, 7, 1e-7);
  assert_true(a[0] > a[1]);
  near_all((double[]){a[2] + a[3] + a[4], a[5] + a[6] + a[7]}, (double[]){1, 1}, 2, 1e-14);
  call("crowd_temperature", NULL, 1, (const smx_tensor *[]){&t1}, one);
  assert_true(one[0] == 1 && isnan(one[7]));
  near_all(one + 1, p, 6, 1e-15);
  p[0] = -1, call("crowd_temperature", NULL, 1, (const smx_tensor *[]){&tp}, a);
  assert_true(isnan(a[0]) && isnan(a[2]));
}

static void similarity(void **state) {
  double h[] = {.4, 5, NAN}, bank[] = {0, 1, 2, 3}, out[ROOM];
  int64_t label[] = {0, 0, 1, 0}, predicted[] = {0, 0, 1, 0}, chosen[] = {0, 1, 0}, rows[] = {3, 1},
          all[] = {4, 1};
  const smx_tensor th = floats(h, 2, rows), tb = floats(bank, 2, all), tl = classes_of(label, all),
                   tc = classes_of(chosen, rows), tp = classes_of(predicted, all),
                   *in[] = {&th, &tb, &tl, &tc, &tp};
  call("sdm_similarity", NULL, 5, in, out);
  near_all(out, (double[]){2, 0}, 2, 0), near_all(out + 3, (double[]){.4, 2}, 2, 1e-15);
  assert_true(isnan(out[2]) && isnan(out[5]));
  call("sdm_similarity", (setting[]){{"own", 1}, {NULL, 0}}, 5, in, out);
  near_all(out, (double[]){1, 1}, 2, 0), near_all(out + 3, (double[]){.6, 3}, 2, 1e-15);
  predicted[0] = 1, label[2] = -1; /* the nearest was wrong; one does not count */
  call("sdm_similarity", NULL, 5, in, out), near_all(out, (double[]){0, 0}, 2, 0);
  call("sdm_similarity", (setting[]){{"own", 1}, {"most", 1}, {NULL, 0}}, 5, in, out);
  near_all(out, (double[]){1, 0}, 2, 0);
  double d[] = {2.5, 0, NAN}, known[] = {4, 1, 3, 2, 1, 3, 0}, q[] = {1, 1, 2, 1, 1, 5, 0};
  int64_t of[] = {0, 0, 0, 0, 1, 1, 1}, three = 3, seven = 7;
  const smx_tensor td = floats(d, 1, &three), tk = floats(known, 1, &seven), tq = floats(q, 1, &seven),
                   to = classes_of(of, &seven), *from[] = {&td, &tk, &tq, &to};
  call("sdm_quantile", (setting[]){{"classes", 2}, {NULL, 0}}, 4, from, out);
  near_all(out, (double[]){.5, 1}, 2, 0), near_all(out + 3, (double[]){.5, .5, 1, 1}, 4, 0);
  assert_true(isnan(out[2]));
}

/* The band of 50 rows (ReexpressAI); of the last, where one is left out; of none, and of a row that
 * nothing is known of. */
static void bounds(void **state) {
  enum { KNOWN = 60 };
  double rescaled[] = {50, 1e9, 0, NAN, 50}, d[] = {.5, .9, .5, .5, 1.5}, known[KNOWN + 1], out[ROOM];
  int64_t y[KNOWN + 1], five = 5, m = KNOWN + 1;
  for (int i = 0; i < KNOWN; i++) known[i] = KNOWN - 1 - i, y[i] = 0;
  known[KNOWN] = 3, y[KNOWN] = -1;
  const smx_tensor tr = floats(rescaled, 1, &five), tk = floats(known, 1, &m), td = floats(d, 1, &five),
                   ty = classes_of(y, &m), *in[] = {&tr, &tk, &td, &ty};
  call("sdm_bounds", (setting[]){{"classes", 1}, {NULL, 0}}, 4, in, out);
  const double e = 0.19206455826398416, last = sqrt(log(40) / 118);
  near_all(out, (double[]){.5 - e, .9 - last, 0}, 3, 1e-15);
  near_all(out + 5, (double[]){.5 + e, 1, 1}, 3, 1e-15), near_all(out + 10, (double[]){e, last, 1}, 3, 1e-15);
  for (int i = 3; i < 5; i++) assert_true(isnan(out[i]) && isnan(out[5 + i]) && isnan(out[10 + i]));
  assert_true(whole(out + 15) == 50 && whole(out + 16) == 59 && whole(out + 17) == 0);
  call("sdm_bounds", (setting[]){{"classes", 1}, {"alpha", 1}, {NULL, 0}}, 4, in, out);
  near_all(out + 10, (double[]){1, 1, 1}, 3, 0);
  call("sdm_bounds", (setting[]){{"classes", 2}, {NULL, 0}}, 4, in, out); /* a class without rows */
  near_all(out + 10, (double[]){1, 1, 1}, 3, 0);
}

static void regions(void **state) {
  double z[] = {2, 1, 0, 2, 1, 0, 2, 1, 0}, q[] = {0, 10, 5}, d[] = {1, .8, 0}, cut[] = {.5, .5, .5},
         out[ROOM];
  int64_t y[] = {0, 0, 1}, shape[] = {3, 3};
  const smx_tensor tz = floats(z, 2, shape), tq = floats(q, 1, shape), td = floats(d, 1, shape),
                   ty = classes_of(y, shape), tc = floats(cut, 1, shape);
  call("sdm_loss", NULL, 4, (const smx_tensor *[]){&tz, &tq, &td, &ty}, out);
  near_all(out, (double[]){0.8073549220576041, 0.05824891931563134, log(3) / log(7)}, 3, 1e-15);
  call("sdm_region", (setting[]){{"least", 8}, {NULL, 0}}, 4, (const smx_tensor *[]){&tz, &tq, &td, &tc},
       out);
  near_all(out, (double[]){0, 8.585303686596179, pow(7, 1.0 / 3)}, 3, 1e-14);
  assert_true(whole(out + 3) == 0 && whole(out + 4) == 1 && whole(out + 5) == 0);
  near_all(out + 6, (double[]){4.0 / 7, .8652445226, 1.0 / 3}, 3, 1e-10);
  double rescaled[] = {3, 1, .5, 4, 2}, p[] = {.96, .2, .1, .97, .9}, beyond[ROOM];
  int64_t of[] = {0, 0, 0, 0, 0}, n = 5;
  const smx_tensor tr = floats(rescaled, 1, &n), tp = floats(p, 1, &n), to = classes_of(of, &n),
                   *in[] = {&tr, &tp, &to};
  call("sdm_region_fit", (setting[]){{"classes", 1}, {NULL, 0}}, 3, in, out);
  near_all(out, (double[]){3, .96}, 2, 0);
  call("sdm_region_fit", (setting[]){{"classes", 2}, {NULL, 0}}, 3, in, beyond);
  for (int i = 0; i < 3; i++) assert_true(beyond[i] == INFINITY);
  const smx_tensor least = none_of(out);
  refused(smx_forward(smx_op_find("sdm_region_fit"), NULL, NULL, 3, in, 1, (const smx_tensor *[]){&least}),
          SMX_ERR_NULL, "threshold");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cascades),   cmocka_unit_test(recovery), cmocka_unit_test(probes),
      cmocka_unit_test(probes_far), cmocka_unit_test(opinions), cmocka_unit_test(similarity),
      cmocka_unit_test(bounds),     cmocka_unit_test(regions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
