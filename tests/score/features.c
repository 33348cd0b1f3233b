/* features.c - proves the generalised entropy and what is done to features and inputs on the worked
 * examples of the catalogue of papers, on ties, and on rows with nothing, NaN and inf. */
#include <stdlib.h>

#include "outputs.h"
#include "util.h"

#define INF INFINITY

static double *one(const char *name, const setting *settings, double *x, int64_t n, double *out) {
  const smx_tensor tx = floats(x, 1, &n);
  return call(name, settings, 1, (const smx_tensor *[]){&tx}, out);
}

static void entropy(void **state) {
  double z[3][4] = {{2, 1, 0, -1}, {.5, .4, .3, .2}, {5, -5, -5, -5}}, y;
  static const double two[] = {-1.7058312023, -1.7018801193, -.7784603468},
                      four[] = {-3.188802262, -3.381200976, -1.514205869};
  for (int k = 0; k < 3; k++) {
    one("generalised_entropy", (setting[]){{"top", 2}, {NULL, 0}}, z[k], 4, &y);
    near_all(&y, two + k, 1, 1e-9);
    one("generalised_entropy", NULL, z[k], 4, &y);
    near_all(&y, four + k, 1, 1e-9);
  }
}

/* Of equal logits the first count, so their order is without effect on the score; absent classes do
 * not count; what is sure to the last digit keeps a score. */
static void strange_rows(void **state) {
  static const setting top[] = {{"top", 2}, {NULL, 0}};
  double ties[] = {1, 3, 1, 1, -INF}, less[] = {3, 1, 1, 1}, sure[] = {60, 0, 0, -2000}, y, same;
  one("generalised_entropy", top, ties, 5, &y), one("generalised_entropy", top, less, 4, &same);
  assert_true(y == same);
  one("generalised_entropy", NULL, sure, 4, &y);
  const double p = exp(-60);
  near_all(&y, (double[]){-pow(2 * p, .1) - 2 * pow(p, .1)}, 1, 1e-15);
  double rows[][2] = {{NAN, 1}, {INF, 1}, {-INF, -INF}, {1, -INF}, {1e300, -1e300}};
  static const double want[] = {NAN, NAN, NAN, 0, 0};
  for (size_t k = 0; k < COUNT_OF(rows); k++) {
    one("generalised_entropy", NULL, rows[k], 2, &y);
    if (!(y == want[k] || (y != y && want[k] != want[k]))) fail_msg("row %d: %g", (int)k, y);
  }
  one("generalised_entropy", NULL, rows[0], 0, &y);
  assert_true(isnan(y));
}

/* Where one class is all but certain, and with -inf; of nothing, and of a NaN. */
static void slopes(void **state) {
  double z[] = {25, 1, 0, -INF}, dz[4], up, down, g = 1;
  int64_t n = 4;
  const smx_op *op = smx_op_find("generalised_entropy");
  const smx_tensor tz = floats(z, 1, &n), td = floats(dz, 1, &n), tg = floats(&g, 0, NULL);
  const smx_tensor *in[] = {&tz}, *out[] = {NULL}, *dout[] = {&tg}, *din[] = {&td};
  good(smx_backward(op, NULL, NULL, 1, in, 1, out, dout, din));
  for (int i = 0; i < 3; i++) {
    double moved[4];
    memcpy(moved, z, sizeof z), moved[i] += 1e-4, one("generalised_entropy", NULL, moved, 4, &up);
    moved[i] -= 2e-4, one("generalised_entropy", NULL, moved, 4, &down);
    near_all(dz + i, (double[]){(up - down) / 2e-4}, 1, 1e-9);
  }
  assert_true(dz[3] == 0);
  for (int i = 0; i < 4; i++) z[i] = -INF;
  good(smx_backward(op, NULL, NULL, 1, in, 1, out, dout, din));
  near_all(dz, (double[]){0, 0, 0, 0}, 4, 0);
  z[2] = NAN;
  good(smx_backward(op, NULL, NULL, 1, in, 1, out, dout, din));
  for (int i = 0; i < 4; i++) assert_true(isnan(dz[i]));
}

static void activations(void **state) {
  double h[] = {4, 0, 1, 2, .5, 0, 3, .1}, y[8], s = 10.6, e = 3.2471502898;
  one("react", (setting[]){{"threshold", 1.5}, {NULL, 0}}, h, 8, y);
  near_all(y, (double[]){1.5, 0, 1, 1.5, .5, 0, 1.5, .1}, 8, 0);
  const double want[][8] = {{4, 0, 0, 2, 0, 0, 3, 0},
                            {s / 3, 0, 0, s / 3, 0, 0, s / 3, 0},
                            {4 * e, 0, 0, 2 * e, 0, 0, 3 * e, 0},
                            {4 * e, 0, e, 2 * e, .5 * e, 0, 3 * e, .1 * e}};
  for (int form = 0; form < 4; form++) {
    one("ash", (setting[]){{"form", form}, {NULL, 0}}, h, 8, y);
    near_all(y, want[form], 8, 1e-8);
  }
  double flat[] = {1, 1, 1, 1}, none[] = {0, 0, 0, 0}, odd[] = {1, NAN, 2, 3}, far[] = {1e308, 0, 1e308, -1};
  one("ash", (setting[]){{"percentile", 50}, {NULL, 0}}, flat, 4, y);
  near_all(y, (double[]){1, 1, 0, 0}, 4, 0); /* of equal ones the first */
  one("ash", (setting[]){{"percentile", 100}, {"form", 1}, {NULL, 0}}, flat, 4, y);
  near_all(y, none, 4, 0);
  for (int form = 0; form < 4; form++) {
    one("ash", (setting[]){{"form", form}, {NULL, 0}}, none, 4, y);
    near_all(y, none, 4, 0);
    one("ash", (setting[]){{"form", form}, {NULL, 0}}, odd, 4, y);
    for (int i = 0; i < 4; i++) assert_true(isnan(y[i]));
    one("ash", (setting[]){{"form", form}, {NULL, 0}}, far, 4, y);
    assert_true(y[0] > 0 && y[1] == 0); /* inf where it overflows */
  }
}

static void odin(void **state) {
  double x[] = {.3, .1, 1, 1, 1}, g[] = {-.7825719324, .1391367059, 0, -0.0, NAN}, scale[] = {1, 1, 2, 2, 1},
         y[5];
  int64_t n = 5;
  const smx_tensor tx = floats(x, 1, &n), tg = floats(g, 1, &n), ts = floats(scale, 1, &n);
  static const setting step[] = {{"step", .02}, {NULL, 0}};
  call("odin_perturb", step, 2, (const smx_tensor *[]){&tx, &tg}, y);
  near_all(y, (double[]){.32, .08, .98, .98}, 4, 1e-15);
  assert_true(isnan(y[4]));
  call("odin_perturb", step, 3, (const smx_tensor *[]){&tx, &tg, &ts}, y);
  near_all(y, (double[]){.32, .08, .99, .99}, 4, 1e-15);
  double z[] = {.32, .08, -.4, NAN, 0, 0, -INFINITY, 1, 1, 1e308, -1e308, 0}, out[8];
  int64_t shape[] = {4, 3};
  const smx_tensor tz = floats(z, 2, shape);
  call("odin", NULL, 1, (const smx_tensor *[]){&tz}, out);
  near_all(out, (double[]){.33344000213094405}, 1, 1e-16), near_all(out + 2, (double[]){.5, 1}, 2, 0);
  near_all(out + 4, (double[]){.32000639}, 1, 1e-8), near_all(out + 6, (double[]){0, 2000}, 2, 0);
  assert_true(isnan(out[1]) && isnan(out[5]));
}

/* A row without classes is an error where on_empty asks for it. */
static void odin_of_nothing(void **state) {
  double z[] = {1, 2, -INFINITY, -INFINITY}, out[4];
  int64_t shape[] = {2, 2};
  const smx_tensor tz = floats(z, 2, shape), score = floats(out, 1, shape), *const in[] = {&tz},
                   centred = floats(out + 2, 1, shape), *to[] = {&score, &centred};
  smx_context *ctx;
  assert_int_equal(
      smx_context_create(
          &(smx_context_options){.size = sizeof(smx_context_options), .on_empty = SMX_EMPTY_ERROR}, &ctx),
      SMX_OK);
  assert_int_equal(smx_forward(smx_op_find("odin"), ctx, NULL, 1, in, 2, to), SMX_ERR_EMPTY);
  assert_non_null(strstr(smx_last_error(), "row 1"));
  shape[0] = 1;
  assert_int_equal(smx_forward(smx_op_find("odin"), ctx, NULL, 1, in, 2, to), SMX_OK);
  smx_context_destroy(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(entropy),     cmocka_unit_test(strange_rows), cmocka_unit_test(slopes),
      cmocka_unit_test(activations), cmocka_unit_test(odin),         cmocka_unit_test(odin_of_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
