/* densities.c - proves that densities are those of the draws that they are named after: the
 * derivative of a log-density in a parameter has the mean 0 over draws (5 standard deviations,
 * fixed seeds), densities of one dimension have the integral 1; and that soft_thinking_noise gives
 * the weights of soft_thinking_token. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include "util.h"

enum { ROWS = 20000, WIDTH = 8 };

static double point[ROWS * WIDTH], parameter[ROWS * WIDTH], value[ROWS], one[ROWS], slope[ROWS * WIDTH],
    unused[ROWS * WIDTH], spread[ROWS];
static int64_t streams[ROWS], places[ROWS * WIDTH], wanted[ROWS * WIDTH];

static smx_tensor whole(int64_t *shape, int64_t *x) {
  return (smx_tensor){.data = x, .ndim = 2, .dtype = SMX_I64, .shape = shape};
}
static smx_tensor full(int64_t *shape, double *x) {
  return (smx_tensor){.data = x, .ndim = 2, .dtype = SMX_F64, .shape = shape};
}
static smx_tensor column(int64_t *shape, void *x, smx_dtype t) {
  return (smx_tensor){.data = x, .ndim = 1, .dtype = t, .shape = shape};
}

static smx_params params_of(const smx_op *op, const char *const *names, const double *values, size_t count) {
  smx_params p;
  smx_params_init(op, &p);
  for (size_t i = 0; i < count; i++) assert_int_equal(smx_params_set(op, &p, names[i], values[i]), SMX_OK);
  return p;
}

static void fill_rows(const double *row, int64_t n) {
  for (int64_t r = 0; r < ROWS; r++) {
    streams[r] = r, one[r] = 1;
    memcpy(parameter + r * n, row, (size_t)n * sizeof *row);
  }
}

/* Whether numbers `width` apart have the mean 0. */
static void mean_is_0(const char *what, const double *x, int64_t width) {
  double sum = 0, squares = 0;
  for (int64_t r = 0; r < ROWS; r++) sum += x[r * width], squares += x[r * width] * x[r * width];
  const double mean = sum / ROWS, deviation = sqrt((squares / ROWS - mean * mean) / ROWS);
  printf("%s: mean %.5f, deviation %.5f\n", what, mean, deviation);
  assert_true(deviation > 0 && fabs(mean) < 5 * deviation);
}

static void dirichlet(void **state) {
  static const double shapes[] = {0.5, 2, 4.5};
  int64_t shape[] = {ROWS, 3};
  smx_tensor a = full(shape, parameter), x = full(shape, point), dx = full(shape, unused),
             da = full(shape, slope);
  smx_tensor s = column(shape, streams, SMX_I64), log = column(shape, value, SMX_F64),
             up = column(shape, one, SMX_F64);
  const smx_tensor *draw[] = {&a, &s}, *drawn[] = {&x}, *in[] = {&x, &a}, *out[] = {&log}, *dout[] = {&up},
                   *din[] = {&dx, &da};
  fill_rows(shapes, 3);
  assert_int_equal(smx_forward(smx_op_find("dirichlet_sample"), NULL, NULL, 2, draw, 1, drawn), SMX_OK);
  assert_int_equal(smx_backward(smx_op_find("dirichlet_logpdf"), NULL, NULL, 2, in, 1, out, dout, din),
                   SMX_OK);
  for (int i = 0; i < 3; i++) mean_is_0("dirichlet_logpdf", slope + i, 3);
}

static void normal(void **state) {
  static const double means[] = {1, -2, 0.5};
  int64_t shape[] = {ROWS, 3};
  smx_tensor m = full(shape, parameter), y = full(shape, point), dx = full(shape, unused),
             dm = full(shape, slope);
  smx_tensor s = column(shape, streams, SMX_I64), sigma = column(shape, spread, SMX_F64),
             ds = column(shape, value, SMX_F64), log = column(shape, value, SMX_F64),
             up = column(shape, one, SMX_F64);
  const smx_tensor *draw[] = {&m, &s, &sigma}, *drawn[] = {&y}, *in[] = {&y, &m, &sigma}, *out[] = {&log},
                   *dout[] = {&up}, *din[] = {&dx, &dm, &ds};
  fill_rows(means, 3);
  for (int64_t r = 0; r < ROWS; r++) spread[r] = 0.7;
  assert_int_equal(smx_forward(smx_op_find("normal_noise"), NULL, NULL, 3, draw, 1, drawn), SMX_OK);
  assert_int_equal(smx_backward(smx_op_find("normal_logpdf"), NULL, NULL, 3, in, 1, out, dout, din), SMX_OK);
  for (int i = 0; i < 3; i++) mean_is_0("normal_logpdf, mean", slope + i, 3);
  mean_is_0("normal_logpdf, sigma", value, 1);
}

/* Without floor, cut and limits. */
static void soft_thinking(void **state) {
  static const double x[WIDTH] = {0, 0.5, 1, 1.5, 2, -1, -0.5, 0.25};
  static const char *const names[] = {"floor", "scale", "cut", "low", "high"};
  static const double values[] = {0, 0.5, -1e30, -80, 80};
  const smx_op *noise = smx_op_find("soft_thinking_noise"), *logp = smx_op_find("soft_thinking_logp");
  const smx_params few = params_of(noise, names, values, 2), all = params_of(logp, names, values, 5);
  int64_t shape[] = {ROWS, WIDTH};
  smx_tensor z = full(shape, parameter), g = full(shape, point), dz = full(shape, slope),
             id = whole(shape, places);
  smx_tensor s = column(shape, streams, SMX_I64), log = column(shape, value, SMX_F64),
             up = column(shape, one, SMX_F64);
  const smx_tensor *draw[] = {&z, &id, &s}, *drawn[] = {&g}, *in[] = {&z, &id, &g}, *out[] = {&log},
                   *dout[] = {&up}, *din[] = {&dz, NULL, NULL};
  fill_rows(x, WIDTH);
  for (int64_t i = 0; i < ROWS * WIDTH; i++) places[i] = i % WIDTH;
  assert_int_equal(smx_forward(noise, NULL, &few, 3, draw, 1, drawn), SMX_OK);
  assert_int_equal(smx_backward(logp, NULL, &all, 3, in, 1, out, dout, din), SMX_OK);
  for (int i = 0; i < WIDTH; i++) mean_is_0("soft_thinking_logp", slope + i, WIDTH);
}

static void weights_of_soft_tokens(void **state) {
  static const double x[WIDTH] = {0, 0.5, 1, 1.5, 2, -1, -0.5, 0.25};
  static const char *const names[] = {"noise", "top_p", "min_p", "k", "scale", "noise_temperature"},
                           *const noises[] = {"floor", "scale"};
  static const double values[] = {2, 1, 0, WIDTH, 0.8, 0.5}, levels[] = {0, 0.8};
  const smx_op *token = smx_op_find("soft_thinking_token"), *noise = smx_op_find("soft_thinking_noise");
  const smx_params set = params_of(token, names, values, 6), with = params_of(noise, noises, levels, 2);
  int64_t shape[] = {ROWS, WIDTH};
  smx_tensor z = full(shape, parameter), w = full(shape, point), g = full(shape, slope),
             id = whole(shape, wanted), s = column(shape, streams, SMX_I64);
  const smx_tensor *in[] = {&z, &s}, *out[] = {&id, &w}, *draw[] = {&z, &id, &s}, *drawn[] = {&g};
  fill_rows(x, WIDTH);
  assert_int_equal(smx_forward(token, NULL, &set, 2, in, 2, out), SMX_OK);
  assert_int_equal(smx_forward(noise, NULL, &with, 3, draw, 1, drawn), SMX_OK);
  for (int64_t r = 0; r < ROWS; r++) {
    double sum = 0;
    for (int64_t i = 0; i < WIDTH; i++) sum += exp(slope[WIDTH * r + i] / 0.5);
    for (int64_t i = 0; i < WIDTH; i++)
      assert_true(fabs(exp(slope[WIDTH * r + i] / 0.5) / sum - point[WIDTH * r + i]) < 1e-13);
  }
}

/* By the midpoints of ROWS cells: beta densities, and a bell from 8 sigma below to 8 above. */
static void integrals(void **state) {
  double beta = 0, bell = 0;
  int64_t two[] = {ROWS, 2}, single[] = {ROWS, 1};
  smx_tensor x = full(two, point), a = full(two, parameter), log = column(two, value, SMX_F64);
  const smx_tensor *in[] = {&x, &a}, *out[] = {&log};
  for (int64_t r = 0; r < ROWS; r++) {
    point[2 * r] = ((double)r + 0.5) / ROWS, point[2 * r + 1] = 1 - point[2 * r];
    parameter[2 * r] = 2.5, parameter[2 * r + 1] = 3.25;
  }
  assert_int_equal(smx_forward(smx_op_find("dirichlet_logpdf"), NULL, NULL, 2, in, 1, out), SMX_OK);
  for (int64_t r = 0; r < ROWS; r++) beta += exp(value[r]) / ROWS;
  for (int64_t r = 0; r < ROWS; r++) point[r] = 16 * ((double)r + 0.5) / ROWS - 8, parameter[r] = 0;
  x = full(single, point), a = full(single, parameter);
  assert_int_equal(smx_forward(smx_op_find("normal_logpdf"), NULL, NULL, 2, in, 1, out), SMX_OK);
  for (int64_t r = 0; r < ROWS; r++) bell += 16 * exp(value[r]) / ROWS;
  printf("integrals %.12f and %.12f\n", beta, bell);
  assert_true(fabs(beta - 1) < 1e-6 && fabs(bell - 1) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dirichlet),     cmocka_unit_test(normal),
      cmocka_unit_test(soft_thinking), cmocka_unit_test(weights_of_soft_tokens),
      cmocka_unit_test(integrals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
