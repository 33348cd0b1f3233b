/* metrics.c - proves metrics of sets on the worked examples of the catalogue of papers, with equal
 * scores, in any order of the rows, and for millions of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "util.h"
#include <softmax.h>

enum { OUTS = 8 };

/* The outputs of one set, a number each; those that have more are left out. */
static void call(const char *name, const char *parameter, double value, int64_t n, double *x, void *y,
                 int outs, double *out) {
  const smx_op *op = smx_op_find(name);
  const smx_dtype second = op->inputs[1].flags & SMX_PORT_MASK ? SMX_U8 : SMX_F64;
  const smx_tensor tx = {x, {1, 0}, 1, SMX_F64, &n, NULL, 0}, ty = {y, {1, 0}, 1, second, &n, NULL, 0};
  smx_tensor to[OUTS];
  const smx_tensor *in[] = {&tx, &ty}, *list[OUTS] = {NULL};
  smx_params params;
  good(smx_params_init(op, &params));
  if (parameter) good(smx_params_set(op, &params, parameter, value));
  for (int o = 0; o < outs; o++)
    to[o] = (smx_tensor){out + o, {1, 0}, 0, SMX_F64, NULL, NULL, 0}, list[o] = to + o;
  good(smx_forward(op, NULL, &params, 2, in, op->output_count, list));
}

/* In distribution and not, with scores that are equal. */
static void ranking(void **state) {
  double x[] = {.9, .8, .7, .6, .6, .3, .7, .5, .4, .2}, out[5];
  unsigned char y[] = {1, 1, 1, 1, 1, 1, 0, 0, 0, 0};
  call("ranking_metrics", NULL, 0, 10, x, y, 5, out);
  near_all(out, (double[]){37.0 / 48, .8472222222222222, .7291666666666666, .75, .2083333333333333}, 5,
           1e-10);
  call("ranking_metrics", "tpr", .8, 10, x, y, 5, out);
  assert_true(out[3] == .25);
  memset(y, 1, sizeof y);
  call("ranking_metrics", NULL, 0, 10, x, y, 5, out);
  for (int o = 0; o < 5; o++) assert_true(isnan(out[o]));
}

static void calibration(void **state) {
  double x[] = {.95, .9, .85, .75, .7, .65, .6, .55, 1, .5}, out[5];
  unsigned char y[] = {1, 2, 0, 1, 0, 255, 0, 1, 1, 0}; /* nonzero is 1 */
  call("calibration_error", "bins", 5, 10, x, y, 5, out);
  near_all(out, (double[]){.145, .21666666666667, .16329931618555, .155, .16}, 5, 1e-10);
  call("calibration_error", "bins", 10, 10, x, y, 2, out);
  near_all(out, (double[]){.205, .5}, 2, 1e-10);
  const smx_op *op = smx_op_find("calibration_error");
  int64_t n = 10, count[5], bins = 5;
  double mean[5], accuracy[5], ece;
  const smx_tensor tx = {x, {1, 0}, 1, SMX_F64, &n, NULL, 0}, ty = {y, {1, 0}, 1, SMX_U8, &n, NULL, 0},
                   te = {&ece, {1, 0}, 0, SMX_F64, NULL, NULL, 0},
                   tc = {count, {1, 0}, 1, SMX_I64, &bins, NULL, 0},
                   tm = {mean, {1, 0}, 1, SMX_F64, &bins, NULL, 0},
                   ta = {accuracy, {1, 0}, 1, SMX_F64, &bins, NULL, 0};
  const smx_tensor *in[] = {&tx, &ty}, *list[] = {&te, NULL, NULL, NULL, NULL, &tc, &tm, &ta};
  smx_params params;
  good(smx_params_init(op, &params));
  good(smx_params_set(op, &params, "bins", 5));
  good(smx_forward(op, NULL, &params, 2, in, 8, list));
  assert_memory_equal(count, ((int64_t[]){0, 0, 3, 3, 4}), sizeof count);
  near_all(mean + 2, (double[]){.55, .7, .925}, 3, 1e-10),
      near_all(accuracy + 2, (double[]){1.0 / 3, 2.0 / 3, .75}, 3, 1e-10);
  assert_true(isnan(mean[0]));
  smx_params_set(op, &params, "bins", 10), smx_params_set(op, &params, "closed", 1);
  const smx_tensor *few[] = {&te};
  good(smx_forward(op, NULL, &params, 2, in, 1, few));
  near_all(&ece, (double[]){.175}, 1, 1e-10); /* .225 with edges of linspace, where .7 is below the seventh */
  x[3] = 1.5;
  assert_int_equal(smx_forward(op, NULL, &params, 2, in, 1, few), SMX_ERR_PARAM);
  assert_non_null(strstr(smx_last_error(), "number 3 is 1.5"));
}

static void risk(void **state) {
  double x[] = {.95, .9, .85, .8, .7, .6}, loss[] = {0, 0, 1, 0, 1, 0}, out[2];
  call("risk_coverage", NULL, 0, 6, x, loss, 2, out);
  near_all(out, (double[]){.21944444444444, .13055555555556}, 2, 1e-10);
  double ties[] = {.9, .9, .8, .8, .8, .5}, errors[] = {0, 1, 0, 1, 0, 1};
  call("risk_coverage", NULL, 0, 6, ties, errors, 1, out);
  near_all(out, (double[]){.4601851851851852}, 1, 1e-10);
  double turned[] = {.8, .5, .9, .8, .9, .8}, others[] = {1, 1, 1, 0, 0, 0}, again;
  call("risk_coverage", NULL, 0, 6, turned, others, 1, &again);
  near_all(&again, out, 1, 1e-10);
}

/* Six rows, one of which does not count; and the score of Brier. */
static void confusion(void **state) {
  int64_t prediction[] = {0, 2, 1, 1, 2, 0}, target[] = {0, 1, 1, 2, 2, -1}, n = 6, three[] = {3, 3}, cell[9];
  double accuracy, f1, recall[3];
  const smx_tensor tp = {prediction, {1, 0}, 1, SMX_I64, &n, NULL, 0},
                   tt = {target, {1, 0}, 1, SMX_I64, &n, NULL, 0},
                   ta = {&accuracy, {1, 0}, 0, SMX_F64, NULL, NULL, 0},
                   tf = {&f1, {1, 0}, 0, SMX_F64, NULL, NULL, 0},
                   tc = {cell, {1, 0}, 2, SMX_I64, three, NULL, 0},
                   tr = {recall, {1, 0}, 1, SMX_F64, three, NULL, 0};
  const smx_tensor *in[] = {&tp, &tt}, *out[] = {&ta, &tf, NULL, NULL, &tc, NULL, &tr, NULL};
  const smx_op *op = smx_op_find("classification_metrics");
  smx_params params;
  good(smx_params_init(op, &params));
  good(smx_params_set(op, &params, "classes", 3));
  good(smx_forward(op, NULL, &params, 2, in, 8, out));
  assert_memory_equal(cell, ((int64_t[]){1, 0, 0, 0, 1, 1, 0, 1, 1}), sizeof cell);
  near_all((double[]){accuracy, f1, recall[1]}, (double[]){.6, 2.0 / 3, .5}, 3, 1e-10);
  double p[] = {.7, .2, .1, .1, .6, .3, .3, .3, .4, .2, .5, .3}, brier[4], mean = 0;
  int64_t shape[] = {4, 3}, label[] = {0, 1, 0, 2};
  for (int i = 0; i < 12; i++) p[i] = log(p[i]);
  const smx_tensor tz = {p, {1, 0}, 2, SMX_F64, shape, NULL, 0},
                   tl = {label, {1, 0}, 1, SMX_I64, shape, NULL, 0},
                   tb = {brier, {1, 0}, 1, SMX_F64, shape, NULL, 0};
  const smx_tensor *rows[] = {&tz, &tl}, *scores[] = {&tb};
  good(smx_forward(smx_op_find("brier_score"), NULL, NULL, 2, rows, 1, scores));
  for (int i = 0; i < 4; i++) mean += brier[i] / 4;
  near_all(&mean, (double[]){.48}, 1, 1e-10);
}

/* Many rows of few different scores, both signs of zero among them: how many changes nothing. */
static void many_rows(void **state) {
  enum { N = 1 << 20 };
  double *x = malloc(N * sizeof *x), few[5], many[5], small[64];
  unsigned char *y = malloc(N), positive[64];
  double *loss = malloc(N * sizeof *loss), losses[64];
  rng r = {3};
  for (int i = 0; i < 64; i++) {
    small[i] = i == 9 ? -0.0 : i == 8 ? 0 : (double)(float)rng_normal(&r);
    positive[i] = rng_below(&r, 2) != 0, losses[i] = (double)rng_below(&r, 3);
  }
  for (int i = 0; i < N; i++) x[i] = small[i % 64], y[i] = positive[i % 64], loss[i] = losses[i % 64];
  call("ranking_metrics", NULL, 0, 64, small, positive, 5, few);
  call("ranking_metrics", NULL, 0, N, x, y, 5, many);
  near_all(many, few, 5, 1e-10);
  double mean = 0, risks[2];
  for (int i = 0; i < N; i++) x[i] = i % 2 ? 0.0 : -0.0, mean += loss[i] / N;
  call("risk_coverage", NULL, 0, N, x, loss, 2, risks);
  assert_true(fabs(risks[0] - mean) < 1e-9 && risks[1] > 0.01); /* any order is as good as another */
  free(x), free(y), free(loss);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranking),   cmocka_unit_test(calibration), cmocka_unit_test(risk),
      cmocka_unit_test(confusion), cmocka_unit_test(many_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
