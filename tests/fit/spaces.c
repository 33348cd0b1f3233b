/* spaces.c - proves distances and spaces of features on the worked examples of the catalogue of
 * papers, and where there is nothing to fit, NaN and inf, and numbers near the largest. */
#include <stdlib.h>

#include "outputs.h"
#include "util.h"

#define INF INFINITY
enum { ROOM = 64 };

static int64_t whole_of(const double *out) { return *(const int64_t *)(const void *)out; }
static void all_nan(const double *x, int n) {
  for (int i = 0; i < n; i++)
    if (!isnan(x[i])) fail_msg("number %d is %g", i, x[i]);
}

static double rows[] = {0, 0, 2, 0, 0, 2, 2, 2, 4, 4, 6, 4, 4, 6, 6, 7};
static const setting exact[] = {{"classes", 3}, {"ridge", 0}, {NULL, 0}};

/* Outputs: mean 0..5, whiten 6..9, count 10..12, mean_all 13..14, whiten_all 15..18. */
static void mahalanobis(void **state) {
  double at[] = {1, 1, 3, 3, 10, 0}, fit[ROOM], y[6];
  int64_t target[] = {0, 0, 0, 0, 1, 1, 1, 1}, shape[] = {8, 2}, three[] = {3, 2}, square[] = {2, 2}, two = 2;
  const smx_tensor tx = floats(rows, 2, shape), tt = classes_of(target, shape), ta = floats(at, 2, three),
                   tm = floats(fit, 2, three), tw = floats(fit + 6, 2, square),
                   t0 = floats(fit + 13, 1, &two), tw0 = floats(fit + 15, 2, square);
  const smx_tensor *one[] = {&ta, &tm, &tw}, *relative[] = {&ta, &tm, &tw, &t0, &tw0};
  call("mahalanobis_fit", exact, 2, (const smx_tensor *[]){&tx, &tt}, fit);
  near_all(fit, (double[]){1, 1, 5, 5.25}, 4, 0), all_nan(fit + 4, 2); /* class 2 has no rows */
  assert_true(whole_of(fit + 10) == 4 && whole_of(fit + 11) == 4 && whole_of(fit + 12) == 0);
  const double *w = fit + 6; /* W^T W is the precision */
  near_all((double[]){w[0] * w[0] + w[2] * w[2], w[2] * w[3], w[3] * w[3], w[1]},
           (double[]){1.0117647059, -.0941176471, .7529411765, 0}, 4, 1e-10);
  call("mahalanobis", NULL, 3, one, y);
  near_all(y, (double[]){0, -6.3058823529, -50.9882352941}, 3, 1e-10);
  assert_true(whole_of(y + 3) == 0 && whole_of(y + 4) == 0 && whole_of(y + 5) == 1);
  call("mahalanobis", NULL, 5, relative, y); /* of the relative score, with the other sign */
  near_all(y, (double[]){.8692307692, -6.2981900452, .9348416290}, 3, 1e-9);
  at[0] = NAN, at[2] = INF;
  call("mahalanobis", NULL, 5, relative, y);
  all_nan(y, 2), near_all(y + 2, (double[]){.9348416290}, 1, 1e-9);
  assert_true(whole_of(y + 3) == -1 && whole_of(y + 4) == -1);
}

/* One feature that does not vary, none that does, no row, and a NaN: NaN, but with a ridge. */
static void singular(void **state) {
  double flat[] = {0, 5, 2, 5, 1, 5, 9, 5}, fit[ROOM];
  int64_t target[] = {0, 0, 0, 1}, none[] = {-1, -1, -1, -1}, shape[] = {4, 2};
  const smx_tensor tx = floats(flat, 2, shape), tt = classes_of(target, shape), tn = classes_of(none, shape);
  const smx_tensor *in[] = {&tx, &tt};
  call("mahalanobis_fit", exact, 2, in, fit), all_nan(fit + 6, 4);
  call("mahalanobis_fit", (setting[]){{"classes", 3}, {NULL, 0}}, 2, in, fit);
  assert_true(isfinite(fit[6]) && fit[9] > 1000);
  call("mahalanobis_fit", exact, 2, (const smx_tensor *[]){&tx, &tn}, fit), all_nan(fit, 10);
  flat[2] = NAN, call("mahalanobis_fit", NULL, 2, in, fit), all_nan(fit + 20, 4);
}

/* Outputs: origin 0..2, residual 3..11, alpha. */
static void vim(void **state) {
  double w[] = {1, 0, 0, 0, 1, 0}, b[] = {.5, -.5}, q[] = {1, 1, 1}, z[] = {1.5, .5}, fit[ROOM], y[2];
  double x[] = {2, .1, .1, 1.5, .2, -.1, .1, 2, .1, .3, 1.5, -.1};
  int64_t of_x[] = {4, 3}, of_w[] = {2, 3}, square[] = {3, 3}, three = 3, two = 2;
  const smx_tensor tx = floats(x, 2, of_x), tw = floats(w, 2, of_w), tb = floats(b, 1, &two),
                   tq = floats(q, 1, &three), tz = floats(z, 1, &two), tu = floats(fit, 1, &three),
                   tp = floats(fit + 3, 2, square);
  const smx_tensor *in[] = {&tx, &tw, &tb}, *apply[] = {&tq, &tu, &tp, &tz};
  call("vim_fit", (setting[]){{"dim", 2}, {NULL, 0}}, 3, in, fit);
  near_all(fit, (double[]){-.5, .5, 0}, 3, 1e-15);
  static const double r[] = {-.0025734316, -.0114837355, .9999307482};
  for (int i = 0; i < 9; i++) near_all(fit + 3 + i, (double[]){r[i / 3] * r[i % 3]}, 1, 1e-9);
  near_all(fit + 12, (double[]){17.739178423296853}, 1, 1e-12);
  const setting alpha[] = {{"alpha", fit[12]}, {NULL, 0}};
  call("vim", alpha, 4, apply, y);
  near_all(y, (double[]){-15.754356407215303, .9903287331312921}, 2, 1e-12);
  call("vim", NULL, 3, apply, y), near_all(y, (double[]){-y[1]}, 1, 0); /* without logits */
  q[2] = NAN, call("vim", alpha, 4, apply, y), all_nan(y, 2);
  /* a space of all that rows have: nothing is left, and there is no alpha */
  call("vim_fit", (setting[]){{"dim", 3}, {NULL, 0}}, 3, in, fit);
  near_all(fit + 3, (double[]){0, 0, 0, 0, 0, 0, 0, 0, 0}, 9, 0), all_nan(fit + 12, 1);
  x[1] = INF, call("vim_fit", NULL, 3, in, fit), all_nan(fit + 3, 10);
}

/* The rows of a layer whose classes add up to nothing: the origin is that of the pseudo-inverse. */
static void dependent_classes(void **state) {
  double w[] = {1, 2, -1, -2, 0, 0, 1, 1, -1, -1}, b[] = {1, -1, 0, .5, 0}, x[] = {1, 0, 0, 1, 3, 2, -1, 1},
         fit[ROOM];
  int64_t of_x[] = {4, 2}, of_w[] = {5, 2}, five = 5;
  const smx_tensor tx = floats(x, 2, of_x), tw = floats(w, 2, of_w), tb = floats(b, 1, &five);
  call("vim_fit", NULL, 3, (const smx_tensor *[]){&tx, &tw, &tb}, fit);
  /* W^T W = [4 6; 6 10], W^T b = [2.5, 4.5] */
  near_all(fit, (double[]){.5, -.75}, 2, 1e-13);
  for (int i = 0; i < 10; i += 2) w[i + 1] = 2 * w[i]; /* rank 1: along (1, 2) */
  call("vim_fit", NULL, 3, (const smx_tensor *[]){&tx, &tw, &tb}, fit);
  near_all(fit, (double[]){-.125, -.25}, 2, 1e-13);
}

static void neighbours(void **state) {
  double bank[] = {1, 0, 0, 1, 3, 4, -1, 0}, q[] = {1, 1, 1e200, 1e200, 0, 0, NAN, 1, 3e-170, 4e-170}, y[5];
  static const double d[] = {.1417780402, .7653668647, .7653668647, 1.8477590650};
  int64_t of_bank[] = {4, 2}, of_q[] = {5, 2}, none[] = {0, 2};
  const smx_tensor tb = floats(bank, 2, of_bank), tq = floats(q, 2, of_q), te = floats(NULL, 2, none);
  for (int k = 1; k <= 6; k++) {
    const double want = d[k < 5 ? k - 1 : 3];
    call("knn_score", (setting[]){{"k", k}, {NULL, 0}}, 2, (const smx_tensor *[]){&tq, &tb}, y);
    near_all(y, (double[]){-want, -want, -1}, 3, 1e-10); /* 0 has no direction */
    assert_true(isnan(y[3]) && (k > 1 || y[4] == 0));
    call("knn_score", (setting[]){{"k", k}, {"metric", 1}, {NULL, 0}}, 2, (const smx_tensor *[]){&tq, &tb},
         y);
    near_all(y, (double[]){-want * want}, 1, 1e-9);
  }
  call("knn_score", NULL, 2, (const smx_tensor *[]){&tq, &te}, y), all_nan(y, 5);
  bank[4] = NAN;
  call("knn_score", (setting[]){{"k", 1}, {"normalise", 0}, {NULL, 0}}, 2, (const smx_tensor *[]){&tq, &tb},
       y);
  near_all(y, (double[]){-1}, 1, 0);
}

/* The product of rows and a length that no memory has is no int64_t. */
static void lengths(void **state) {
  int64_t shape[] = {0, INT64_C(1) << 57}, none[] = {0};
  const smx_tensor tx = floats(NULL, 2, shape), ty = floats(NULL, 1, none), *in[] = {&tx, &tx},
                   *out[] = {&ty};
  assert_int_equal(smx_forward(smx_op_find("knn_score"), NULL, NULL, 2, in, 1, out), SMX_ERR_NOMEM);
}

static void trust(void **state) {
  double bank[] = {0, 0, 1, 0, 4, 0, 5, 0, 0, 6}, q[] = {1.5, 0, 1.5, 0, 1.5, 0, NAN, 0, 1.5, 0}, y[5];
  int64_t label[] = {0, 0, 1, 1, 2}, chosen[] = {0, 1, -1, 0, 3}, of_bank[] = {5, 2}, of_q[] = {5, 2};
  const smx_tensor tb = floats(bank, 2, of_bank), tq = floats(q, 2, of_q), tl = classes_of(label, of_bank),
                   tc = classes_of(chosen, of_q);
  const setting classes[] = {{"classes", 4}, {NULL, 0}};
  call("trust_score", classes, 4, (const smx_tensor *[]){&tq, &tb, &tl, &tc}, y);
  near_all(y, (double[]){5, .2}, 2, 1e-10), all_nan(y + 2, 2);
  assert_true(y[4] == 0); /* no row of its class is known */
  for (int i = 0; i < 5; i++) label[i] = i == 0 ? 3 : -1;
  call("trust_score", classes, 4, (const smx_tensor *[]){&tq, &tb, &tl, &tc}, y);
  assert_true(y[0] == 0 && y[4] == INF);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mahalanobis), cmocka_unit_test(singular),
      cmocka_unit_test(vim),         cmocka_unit_test(dependent_classes),
      cmocka_unit_test(neighbours),  cmocka_unit_test(lengths),
      cmocka_unit_test(trust),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
