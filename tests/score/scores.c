/* scores.c - proves scores of rows on the worked examples of the catalogue of papers, several at
 * once against each alone, and rows with nothing, NaN and +inf. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "tensors.h"
#include "status.h"
#include "util.h"
#include <softmax.h>

enum { SCORES = 17 }; /* of a row alone */
static const char *const names[SCORES + 1] = {"msp",
                                              "least_confidence",
                                              "margin",
                                              "ratio",
                                              "max_logit",
                                              "logit_margin",
                                              "energy",
                                              "entropy",
                                              "renyi_entropy",
                                              "tsallis_entropy",
                                              "gini",
                                              "kl_to_uniform",
                                              "kl_from_uniform",
                                              "logit_variance",
                                              "label_non_uniformity",
                                              "doctor_alpha",
                                              "doctor_beta",
                                              "true_class_probability"};

static smx_tensor tensor_of(void *data, smx_dtype type, int32_t ndim, int64_t *shape) {
  return (smx_tensor){data, {1, 0}, ndim, type, shape, NULL, 0};
}

/* A score of one row. */
static double score(const char *name, const char *parameter, double value, int n, const double *z) {
  const smx_op *op = smx_op_find(name);
  double copy[64], y;
  int64_t shape[] = {n};
  memcpy(copy, z, (size_t)n * sizeof *z);
  const smx_tensor tz = tensor_of(copy, SMX_F64, 1, shape), ty = tensor_of(&y, SMX_F64, 0, NULL);
  smx_params params;
  good(smx_params_init(op, &params));
  if (parameter) good(smx_params_set(op, &params, parameter, value));
  good(smx_forward(op, NULL, &params, 1, (const smx_tensor *[]){&tz}, 1, (const smx_tensor *[]){&ty}));
  return y;
}
static void is(const char *name, const char *parameter, double value, int n, const double *z, double want) {
  const double got = score(name, parameter, value, n, z);
  if (!(fabs(got - want) <= 1e-9 * fmax(1e-9, fabs(want))))
    fail_msg("%s is %.12g, not %.12g", name, got, want);
}

static void worked_examples(void **state) {
  static const double z[] = {2, 1, 0, -1}, flat[] = {.5, .4, .3, .2}, sure[] = {40, 0, 0};
  is("msp", NULL, 0, 4, z, .64391425988797);
  is("msp", NULL, 0, 4, flat, .28865140516);
  is("least_confidence", NULL, 0, 3, sure, 8.496708510583193e-18);
  is("least_confidence", "normalise", 1, 4, z, .47478098682);
  is("margin", NULL, 0, 4, z, .4070314418);
  is("margin", NULL, 0, 4, flat, .027468813);
  is("ratio", NULL, 0, 4, z, .36787944117);
  is("logit_margin", NULL, 0, 4, flat, .1);
  is("energy", NULL, 0, 4, z, 2.4401896986);
  is("energy", "temperature", 2, 4, z, 3.5746773434);
  is("entropy", NULL, 0, 4, z, .947536964);
  is("entropy", "normalise", 1, 4, z, .6835034395);
  is("renyi_entropy", NULL, 0, 4, z, .73530145816);
  is("gini", NULL, 0, 4, z, .52063907007);
  is("tsallis_entropy", NULL, 0, 4, z, .52063907007);
  is("kl_to_uniform", NULL, 0, 4, z, .4387573971);
  is("kl_from_uniform", NULL, 0, 4, z, .5538953374);
  is("logit_variance", NULL, 0, 4, z, 1.6666666667);
  is("label_non_uniformity", NULL, 0, 4, z, .7878285198);
  is("label_non_uniformity", "normalise", 1, 4, flat, .0996679946 / 2);
  is("doctor_alpha", NULL, 0, 4, z, 1.0861107728);
  is("doctor_beta", NULL, 0, 4, z, .55300179278);
}

/* Three predictions of three classes, as logarithms of probabilities; two that hardly differ. */
static void ensembles(void **state) {
  static const double p[] = {.7, .2, .1, .5, .4, .1, .1, .8, .1};
  static const double want[] = {.1535650759007, .9482980107415578, .7947329348408511, .35333333333333333,
                                .12444444444,   1.0 / 3,           .6365141682948128, .5210467711231619};
  double z[9], y[8];
  int64_t shape[] = {3, 3}, near_shape[] = {2, 2};
  smx_tensor out[8];
  const smx_tensor *outs[8];
  for (int i = 0; i < 9; i++) z[i] = log(p[i]);
  for (int o = 0; o < 8; o++) out[o] = tensor_of(y + o, SMX_F64, 0, NULL), outs[o] = out + o;
  const smx_op *op = smx_op_find("ensemble_scores");
  const smx_tensor tz = tensor_of(z, SMX_F64, 2, shape), *in[] = {&tz};
  good(smx_forward(op, NULL, NULL, 1, in, 8, outs));
  for (int o = 0; o < 8; o++)
    if (!(fabs(y[o] - want[o]) < 1e-10)) fail_msg("%s is %.14g", op->outputs[o].name, y[o]);
  double near[] = {log(.5), log(.5), log(.5 + 1e-7), log(.5 - 1e-7)};
  const smx_tensor tn = tensor_of(near, SMX_F64, 2, near_shape), *near_in[] = {&tn};
  good(smx_forward(op, NULL, NULL, 1, near_in, 8, outs));
  assert_true(fabs(y[0] - 5e-15) < 1e-22);
}

static void evidence(void **state) {
  double z[] = {2, 1, 0, -1}, p[4], u;
  int64_t shape[] = {4};
  const smx_tensor tz = tensor_of(z, SMX_F64, 1, shape), tp = tensor_of(p, SMX_F64, 1, shape),
                   tu = tensor_of(&u, SMX_F64, 0, NULL), *in[] = {&tz}, *out[] = {&tp, &tu};
  good(smx_forward(smx_op_find("evidential_score"), NULL, NULL, 1, in, 2, out));
  assert_true(p[0] == 3.0 / 7 && p[1] == 2.0 / 7 && p[2] == 1.0 / 7 && p[3] == 1.0 / 7 && u == 4.0 / 7);
  z[2] = -INFINITY;
  good(smx_forward(smx_op_find("evidential_score"), NULL, NULL, 1, in, 2, out));
  assert_true(p[0] == 3.0 / 6 && p[2] == 0 && u == 3.0 / 6);
}

/* Three tokens, and one that does not count; tokens of no sequence. */
static void sequences(void **state) {
  double z[] = {2, 1, 0, -1, 9, 9, 9, NAN, .5, .4, .3, .2, 5, -5, -5, -5}, y[5];
  int64_t token[] = {0, -1, 0, 0}, length, shape[] = {4, 4};
  smx_tensor out[6];
  const smx_tensor *outs[6];
  for (int o = 0; o < 5; o++) out[o] = tensor_of(y + o, SMX_F64, 0, NULL), outs[o] = out + o;
  out[5] = tensor_of(&length, SMX_I64, 0, NULL), outs[5] = out + 5;
  const smx_op *op = smx_op_find("glassbox_features");
  const smx_tensor tz = tensor_of(z, SMX_F64, 2, shape), tt = tensor_of(token, SMX_I64, 1, shape),
                   *in[] = {&tz, &tt};
  good(smx_forward(op, NULL, NULL, 2, in, 6, outs));
  assert_true(length == 3 && fabs(y[0] + .5609538061770988) < 1e-14 &&
              fabs(y[1] - .7763685927164826) < 1e-14);
  assert_true(fabs(y[2] - 8.894444444444444) < 1e-14 && fabs(y[4] - exp(.5609538061770988)) < 1e-14);
  assert_true(fabs(y[3] - log(.28865140516)) < 1e-10);
  for (int i = 0; i < 4; i++) token[i] = -1;
  good(smx_forward(op, NULL, NULL, 2, in, 6, outs));
  assert_true(length == 0 && isnan(y[0]) && isnan(y[3]) && isnan(y[4]));
}

/* Orders on both sides of where the formula changes, and of 1. */
static void entropies_do_not_jump(void **state) {
  static const double z[] = {2, 1, 0, -1, 3.5}, orders[] = {0.5, 1, 1.5};
  for (int k = 0; k < 3; k++)
    for (int s = 8; s <= 9; s++) {
      const double at = score(names[s], "order", orders[k], 5, z);
      for (double step = 1e-13; step < 1e-6; step *= 10) {
        const double up = score(names[s], "order", orders[k] + step, 5, z);
        const double down = score(names[s], "order", orders[k] - step, 5, z);
        if (!(fabs(up - at) < 5 * step + 1e-14 && fabs(down - at) < 5 * step + 1e-14 && down >= up - 1e-14))
          fail_msg("%s jumps at %g: %.17g %.17g %.17g", names[s], orders[k], down, at, up);
      }
    }
  is("renyi_entropy", "order", 0, 5, z, log(5));
  is("renyi_entropy", "order", 1e6, 5, z, -log(score("msp", NULL, 0, 5, z)) * 1e6 / (1e6 - 1));
}

static void special_rows(void **state) {
  const double inf = INFINITY, none[] = {-inf, -inf}, nan[] = {1, NAN}, one[] = {3},
               hidden[] = {2, -inf, 1, 0, -1, -inf};
  const double all[] = {2, 1, 0, -1}, two[] = {inf, 1, inf, -inf};
  for (int s = 0; s < SCORES; s++) {
    const double empty = score(names[s], NULL, 0, 2, none);
    assert_true(s == 4 || s == 6 ? empty == -inf : isnan(empty));
    assert_true(isnan(score(names[s], NULL, 0, 2, nan)) && isnan(score(names[s], NULL, 0, 4, two)));
    is(names[s], NULL, 0, 6, hidden, score(names[s], NULL, 0, 4, all));
  }
  is("entropy", NULL, 0, 1, one, 0), is("margin", NULL, 0, 1, one, 1), is("ratio", NULL, 0, 1, one, 0);
  assert_true(isnan(score("logit_variance", NULL, 0, 1, one)) &&
              score("logit_margin", NULL, 0, 1, one) == inf);
  static const double apart[] = {1e308, -1e308, 0};
  assert_true(score("logit_variance", NULL, 0, 3, apart) == inf);
  smx_context *ctx;
  good(smx_context_create(
      &(smx_context_options){.size = sizeof(smx_context_options), .threads = 1, .on_inf = SMX_INF_LIMIT},
      &ctx));
  double row[] = {inf, 1, inf, -inf}, y[3];
  int64_t shape[] = {4}, three = 3;
  const smx_tensor tz = tensor_of(row, SMX_F64, 1, shape), ty = tensor_of(y, SMX_F64, 1, &three);
  const smx_op *ops[] = {smx_op_find("msp"), smx_op_find("entropy"), smx_op_find("energy")};
  good(smx_scores(ctx, 3, ops, NULL, &tz, NULL, &ty));
  assert_true(y[0] == .5 && fabs(y[1] - log(2)) < 1e-15 && y[2] == inf);
  smx_context_destroy(ctx);
}

/* Several at once are each alone, to the bit, with every instruction set and number of threads, for
 * rows of several lengths, one of them longer than the work area. */
static void together_as_alone(void **state) {
  static const int64_t lengths[] = {1, 5, 16, 63, 1000, 1025, 20011};
  rng r = {5};
  for (size_t l = 0; l < COUNT_OF(lengths); l++) {
    const int64_t n = lengths[l], rows = n < 2000 ? 133 : 3;
    float *z = malloc((size_t)(rows * n) * sizeof *z), *y = malloc((size_t)rows * 18 * sizeof *y),
          *first = NULL;
    float *alone = malloc((size_t)rows * sizeof *alone);
    int64_t *target = malloc((size_t)rows * sizeof *target), shape[] = {rows, n}, columns[] = {rows, 18};
    for (int64_t i = 0; i < rows * n; i++) z[i] = (float)(3 * rng_normal(&r));
    for (int64_t i = 0; i < rows; i++) target[i] = (int64_t)rng_below(&r, n);
    const smx_tensor tz = tensor_of(z, SMX_F32, 2, shape), tt = tensor_of(target, SMX_I64, 1, shape),
                     ty = tensor_of(y, SMX_F32, 2, columns), ta = tensor_of(alone, SMX_F32, 1, shape);
    const smx_op *ops[18];
    for (int s = 0; s < 18; s++) ops[s] = smx_op_find(names[s]);
    for (way w = {0}; next_way(&w);) {
      good(smx_scores(w.ctx, 18, ops, NULL, &tz, &tt, &ty));
      if (!first) first = memcpy(malloc((size_t)rows * 18 * sizeof *y), y, (size_t)rows * 18 * sizeof *y);
      assert_memory_equal(y, first, (size_t)rows * 18 * sizeof *y);
      for (int s = 0; s < 18; s++) {
        good(smx_forward(ops[s], w.ctx, NULL, s == 17 ? 2 : 1, (const smx_tensor *[]){&tz, &tt}, 1,
                         (const smx_tensor *[]){&ta}));
        for (int64_t i = 0; i < rows; i++)
          if (memcmp(alone + i, y + i * 18 + s, sizeof *y))
            fail_msg("%s of row %d of %d", names[s], (int)i, (int)n);
      }
    }
    free(z), free(y), free(first), free(alone), free(target);
  }
}

/* Logits that are further apart than the largest number: gradients stay numbers. */
static void far_logits(void **state) {
  float z[] = {1e38f, -1e38f, 3e38f}, dz[3], one = 1;
  int64_t shape[] = {3};
  const smx_tensor tz = tensor_of(z, SMX_F32, 1, shape), td = tensor_of(dz, SMX_F32, 1, shape),
                   tg = tensor_of(&one, SMX_F32, 0, NULL);
  const smx_tensor *in[] = {&tz}, *dout[] = {&tg}, *din[] = {&td}, *out[] = {NULL};
  for (int s = 0; s < SCORES; s++) {
    if (!strcmp(names[s], "logit_variance")) continue; /* it is larger than the largest number */
    for (way w = {0}; next_way(&w);) {
      good(smx_backward(smx_op_find(names[s]), w.ctx, NULL, 1, in, 1, out, dout, din));
      for (int i = 0; i < 3; i++)
        if (!isfinite(dz[i])) fail_msg("%s: gradient %d is %g", names[s], i, (double)dz[i]);
    }
  }
}

/* A small order gives weight to what has none in the softmax: gradients are differences. */
static void small_orders(void **state) {
  static const double orders[] = {0, .01, .3};
  double z[] = {0, -200, -900, -3}, dz[4], one = 1;
  int64_t shape[] = {4};
  const smx_tensor tz = tensor_of(z, SMX_F64, 1, shape), td = tensor_of(dz, SMX_F64, 1, shape),
                   tg = tensor_of(&one, SMX_F64, 0, NULL);
  const smx_tensor *in[] = {&tz}, *dout[] = {&tg}, *din[] = {&td}, *out[] = {NULL};
  float far[] = {3e38f, -3e38f}, y;
  int64_t two = 2;
  const smx_tensor tf = tensor_of(far, SMX_F32, 1, &two), ty = tensor_of(&y, SMX_F32, 0, NULL);
  for (int k = 0; k < 6; k++) {
    const char *name = names[8 + k % 2];
    const smx_op *op = smx_op_find(name);
    smx_params params;
    good(smx_params_init(op, &params));
    good(smx_params_set(op, &params, "order", orders[k / 2]));
    good(smx_backward(op, NULL, &params, 1, in, 1, out, dout, din));
    for (int i = 0; i < 4; i++) {
      double up[4], down[4];
      memcpy(up, z, sizeof z), memcpy(down, z, sizeof z), up[i] += 1e-4, down[i] -= 1e-4;
      const double is =
          (score(name, "order", orders[k / 2], 4, up) - score(name, "order", orders[k / 2], 4, down)) / 2e-4;
      if (!(fabs(is - dz[i]) < 1e-7))
        fail_msg("%s of order %g: %d is %g, not %g", name, orders[k / 2], i, dz[i], is);
    }
    good(smx_forward(op, NULL, &params, 1, (const smx_tensor *[]){&tf}, 1, (const smx_tensor *[]){&ty}));
    assert_true(isfinite(y));
  }
}

static void wrong_calls(void **state) {
  float z[] = {1, 2}, y[2];
  int64_t shape[] = {2};
  const smx_tensor tz = tensor_of(z, SMX_F32, 1, shape), ty = tensor_of(y, SMX_F32, 1, shape);
  const smx_op *ops[] = {smx_op_find("msp"), smx_op_find("softmax")},
               *fine[] = {ops[0], smx_op_find("entropy")};
  refused(smx_scores(NULL, 2, ops, NULL, &tz, NULL, &ty), SMX_ERR_PARAM, "number 1, softmax, is no score");
  refused(smx_scores(NULL, 0, fine, NULL, &tz, NULL, &ty), SMX_ERR_PARAM, "count is 0");
  refused(smx_scores(NULL, 2, NULL, NULL, &tz, NULL, &ty), SMX_ERR_NULL, "scores is NULL");
  refused(smx_scores(NULL, 2, fine, NULL, NULL, NULL, &ty), SMX_ERR_NULL, "logits is NULL");
  refused(smx_scores(NULL, 1, fine, NULL, &tz, NULL, &ty), SMX_ERR_SHAPE, "out");
  smx_params params[2];
  for (int i = 0; i < 2; i++) good(smx_params_init(fine[i], params + i));
  good(smx_params_set(fine[1], params + 1, "temperature", 2));
  refused(smx_scores(NULL, 2, fine, params, &tz, NULL, &ty), SMX_ERR_PARAM, "temperature of entropy is 2");
  fine[1] = smx_op_find("true_class_probability");
  refused(smx_scores(NULL, 2, fine, NULL, &tz, NULL, &ty), SMX_ERR_NULL, "target is NULL");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(worked_examples),
      cmocka_unit_test(ensembles),
      cmocka_unit_test(sequences),
      cmocka_unit_test(evidence),
      cmocka_unit_test(entropies_do_not_jump),
      cmocka_unit_test(special_rows),
      cmocka_unit_test(together_as_alone),
      cmocka_unit_test(far_logits),
      cmocka_unit_test(small_orders),
      cmocka_unit_test(wrong_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
