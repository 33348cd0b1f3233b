/* sampled.c - proves losses of sampled classes and their candidates: the worked examples of the
 * catalogue of papers, cross-entropy where all classes are there, hits and duplicates, ignored and
 * bad numbers, the shares of the candidates, and the same bits every way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { ROWS = 70, WIDTH = 33, CLASSES = 40, TRUE = 2, OTHERS = 90 };
typedef struct head {
  int64_t n, t, s, c, d, target[ROWS * TRUE], other[OTHERS];
  double h[ROWS * WIDTH], w[CLASSES * WIDTH], bias[CLASSES], q_true[ROWS * TRUE], q[OTHERS], loss[ROWS],
      up[ROWS], dh[ROWS * WIDTH], dw[CLASSES * WIDTH], db[CLASSES];
} head;

static smx_status run(head *x, smx_context *ctx, const char *name, const char *const *set) {
  const smx_op *op = smx_op_find(name);
  int64_t hs[] = {x->n, x->d}, ws[] = {x->c, x->d}, ts[] = {x->n, x->t};
  const smx_tensor t[] = {F64(x->h, 2, hs),
                          F64(x->w, 2, ws),
                          tensor(x->target, SMX_I64, 2, ts),
                          tensor(x->other, SMX_I64, 1, &x->s),
                          F64(x->bias, 1, ws),
                          F64(x->q_true, 2, ts),
                          F64(x->q, 1, &x->s)},
                   to[] = {F64(x->loss, 1, hs), F64(x->up, 1, hs), F64(x->dh, 2, hs), F64(x->dw, 2, ws),
                           F64(x->db, 1, ws)};
  const smx_tensor *in[] = {t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6}, *out[] = {to}, *dout[] = {to + 1},
                   *din[] = {to + 2, to + 3, NULL, NULL, to + 4, NULL, NULL};
  smx_params p;
  good(smx_params_init(op, &p));
  for (; set && set[0]; set += 2) good(smx_params_parse(op, &p, set[0], set[1]));
  const smx_status status = smx_forward(op, ctx, &p, 7, in, 1, out);
  return status == SMX_OK ? smx_backward(op, ctx, &p, 7, in, 1, NULL, dout, din) : status;
}

/* One row whose logits are those of the catalogue: h = 1, w = x. */
static head *logits(void) {
  head *x = calloc(1, sizeof *x);
  assert_non_null(x);
  *x = (head){.n = 1, .t = 1, .c = 4, .d = 1, .h = {1}, .w = {2, 1, .1, -1}, .up = {1}};
  for (int i = 0; i < OTHERS; i++) x->q[i] = 1;
  for (int i = 0; i < ROWS * TRUE; i++) x->q_true[i] = 1;
  return x;
}

static void the_examples(void **state) {
  head *x = logits();
  x->s = 3, memcpy(x->other, (int64_t[]){1, 3, 1}, 24), memcpy(x->q, (double[]){.5, .2, .5}, 24);
  x->q_true[0] = .9;
  good(run(x, NULL, "sampled_softmax", NULL));
  near(x->loss, (double[]){.93546877}, 1, 5e-9);
  near(x->dw, (double[]){-.6075981, .5196837, 0, .08791443}, 4, 5e-8);
  near(x->db, x->dw, 4, 1e-15);
  x->s = 2, x->other[1] = 3, memcpy(x->q, (double[]){.5, .2}, 16), x->q_true[0] = 1;
  good(run(x, NULL, "nce_loss", NULL)); /* k P = 2 {.5, .25, .15, .1} */
  near(x->loss, (double[]){3.03251459}, 1, 5e-9);
  near(x->dw, (double[]){-.1192029, .8446376, 0, .6478126}, 4, 5e-8);
  free(x);
}

/* All classes, once each: cross-entropy. Hits count where they stay. */
static void all_classes(void **state) {
  head *x = logits();
  const double lse = 2.449313002380354, p[] = {.6380664, .2347315, .0954347, .03176745};
  x->s = 4;
  for (int i = 0; i < 4; i++) x->other[i] = 3 - i;
  good(run(x, NULL, "sampled_softmax", NULL));
  near(x->loss, (double[]){lse - 2}, 1, 1e-15);
  near(x->dw, (double[]){p[0] - 1, p[1], p[2], p[3]}, 4, 5e-8);
  good(run(x, NULL, "sampled_softmax", (const char *[]){"remove_hits", "no", NULL}));
  near(x->loss, (double[]){log(exp(lse) + exp(2)) - 2}, 1, 1e-15);
  x->s = 0; /* no others: certain */
  good(run(x, NULL, "sampled_softmax", NULL));
  assert_true(x->loss[0] == 0 && x->dw[0] == 0);
  good(run(x, NULL, "nce_loss", NULL));
  near(x->loss, (double[]){log1p(exp(-2))}, 1, 1e-15);
  x->s = 1, x->other[0] = 1, x->w[0] = 60; /* small losses keep their digits */
  good(run(x, NULL, "sampled_softmax", NULL));
  near(x->loss, (double[]){exp(-59)}, 1, 1e-14 * exp(-59));
  free(x);
}

static void bad_numbers(void **state) {
  head *x = logits();
  x->s = 2, x->other[0] = 1, x->other[1] = 2, x->q[1] = 0;
  refused(run(x, NULL, "sampled_softmax", NULL), SMX_ERR_PARAM, "sampled_expected: number 1 is 0");
  x->q[1] = 1, x->q_true[0] = NAN;
  refused(run(x, NULL, "nce_loss", NULL), SMX_ERR_PARAM, "true_expected: number 0 is");
  x->target[0] = -100; /* whatever an ignored row holds */
  x->h[0] = NAN;
  good(run(x, NULL, "nce_loss", NULL));
  assert_true(x->loss[0] == 0 && x->dh[0] == 0);
  x->target[0] = 0, x->q_true[0] = 1;
  good(run(x, NULL, "sampled_softmax", NULL));
  assert_true(isnan(x->loss[0]) && isnan(x->dh[0]));
  x->h[0] = INFINITY;
  good(run(x, NULL, "sampled_softmax", NULL));
  assert_true(isnan(x->loss[0]));
  free(x);
}

/* Scores that are all -inf, by bias: nothing is there, as in cross_entropy; a target that is -inf
 * beside others is not possible. */
static void no_scores(void **state) {
  head *x = logits();
  x->s = 2, x->other[0] = 1, x->other[1] = 2, x->loss[0] = 9;
  for (int i = 0; i < 3; i++) x->bias[i] = -INFINITY;
  good(run(x, NULL, "sampled_softmax", NULL));
  assert_true(x->loss[0] == 0 && x->dh[0] == 0 && x->dw[0] == 0 && x->db[0] == 0 && x->db[1] == 0);
  x->other[1] = 3;
  good(run(x, NULL, "sampled_softmax", NULL));
  assert_true(x->loss[0] == INFINITY);
  x->s = 0;
  good(run(x, NULL, "sampled_softmax", NULL));
  assert_true(x->loss[0] == 0 && x->db[0] == 0);
  free(x);
}

static head *random_head(void) {
  head *x = logits();
  rng r = {5};
  x->n = ROWS, x->t = TRUE, x->c = CLASSES, x->d = WIDTH, x->s = OTHERS;
  for (int i = 0; i < ROWS * WIDTH; i++) x->h[i] = rng_normal(&r);
  for (int i = 0; i < CLASSES * WIDTH; i++) x->w[i] = rng_normal(&r) / 3;
  for (int i = 0; i < CLASSES; i++) x->bias[i] = rng_normal(&r);
  for (int i = 0; i < ROWS * TRUE; i++) x->target[i] = i % 7 == 6 ? -100 : rng_below(&r, CLASSES);
  for (int i = 0; i < OTHERS; i++) x->other[i] = rng_below(&r, CLASSES), x->q[i] = .1 + rng_uniform(&r);
  for (int i = 0; i < ROWS; i++) x->up[i] = rng_normal(&r);
  return x;
}
static void every_way(void **state) {
  static const char *const names[] = {"sampled_softmax", "nce_loss"};
  for (int k = 0; k < 2; k++) {
    head *a = random_head();
    good(run(a, NULL, names[k], NULL));
    for (way w = {0}; next_way(&w);) {
      head *b = random_head();
      good(run(b, w.ctx, names[k], NULL));
      assert_memory_equal(a, b, sizeof *a);
      free(b);
    }
    free(a);
  }
}

/* ---- augment_and_reduce ---- */

typedef struct bound {
  int64_t s, target[1], other[5];
  double x[5], latent[1], loss[1], sum[1], dx[5], dlatent[1], weight[5];
  bool weighs;
} bound;
static smx_status reduce(bound *b, const char *form, bool latent) {
  const smx_op *op = smx_op_find("augment_and_reduce");
  double h[] = {1}, up[] = {-1};
  int64_t hs[] = {1, 1}, ws[] = {5, 1};
  const smx_tensor t[] = {F64(h, 2, hs),
                          F64(b->x, 2, ws),
                          tensor(b->target, SMX_I64, 1, hs),
                          tensor(b->other, SMX_I64, 1, &b->s),
                          F64(b->latent, 1, hs),
                          F64(b->loss, 1, hs),
                          F64(b->sum, 1, hs),
                          F64(up, 1, hs),
                          F64(b->dx, 2, ws),
                          F64(b->dlatent, 1, hs),
                          F64(b->weight, 1, &b->s)};
  const smx_tensor *in[] = {t, t + 1, t + 2, t + 3, NULL, latent ? t + 4 : NULL, b->weighs ? t + 10 : NULL},
                   *out[] = {t + 5, t + 6}, *dout[] = {t + 7, NULL},
                   *din[] = {NULL, t + 8, NULL, NULL, NULL, latent ? t + 9 : NULL, NULL};
  smx_params p;
  good(smx_params_init(op, &p)), good(smx_params_parse(op, &p, "form", form));
  const smx_status status = smx_forward(op, NULL, &p, 7, in, 2, out);
  return status == SMX_OK ? smx_backward(op, NULL, &p, 7, in, 2, NULL, dout, din) : status;
}

/* The catalogue's numbers; the bound with its best eta is the log-probability, with its
 * gradient. */
static void bounds(void **state) {
  bound b = {.s = 4, .other = {1, 2, 3, 4}, .x = {1.2, .3, -.5, .8, 0}, .latent = {3}};
  const double all = 1.5607674417, exact = -.9403069955;
  good(reduce(&b, "softmax", true));
  near(b.loss, (double[]){.9522014359}, 1, 5e-11), near(b.sum, (double[]){all}, 1, 5e-11);
  near(b.dlatent, (double[]){-(3 - 1 - all) / 9}, 1, 1e-10);
  near(b.dx + 1, (double[]){-exp(-.9) / 3}, 1, 1e-15);
  b.latent[0] = 1 + b.sum[0];
  good(reduce(&b, "softmax", true));
  near(b.loss, (double[]){-exact}, 1, 5e-11), near(b.dlatent, (double[]){0}, 1, 1e-15);
  double best[5];
  memcpy(best, b.dx, sizeof best);
  good(reduce(&b, "softmax", false));
  near(b.loss, (double[]){-exact}, 1, 5e-11), near(b.dx, best, 5, 1e-15);
  good(reduce(&b, "logistic", false));
  near(b.loss, (double[]){1.2852376239}, 1, 5e-11);
  b.latent[0] = .7;
  good(reduce(&b, "logistic", true));
  const double u = b.loss[0], slope = b.dlatent[0];
  b.latent[0] += 1e-6, good(reduce(&b, "logistic", true));
  near(&slope, (double[]){-(b.loss[0] - u) / 1e-6}, 1, 1e-6);
}

/* Phi of the C library; weights in place of the share; the gradient of u by differences. */
static void probit(void **state) {
  static const double x[] = {0, 1, -40, 9, -3}; /* far on both sides, and near 2 */
  bound b = {.s = 4, .other = {1, 2, 3, 4}, .latent = {-.4}, .weighs = true, .weight = {2, 1, .5, 3}};
  double want = .08 + log(2 * acos(-1)) / 2;
  for (int j = 0; j < 5; j++) b.x[j] = x[j];
  for (int j = 1; j < 5; j++) want -= b.weight[j - 1] * log(erfc((x[j] + .4) / sqrt(2)) / 2);
  good(reduce(&b, "probit", true));
  near(b.loss, &want, 1, 1e-13 * want);
  const double slope = b.dlatent[0];
  b.latent[0] = -.4 + 1e-5, good(reduce(&b, "probit", true));
  want = b.loss[0], b.latent[0] = -.4 - 1e-5, good(reduce(&b, "probit", true));
  near(&slope, (double[]){-(want - b.loss[0]) / 2e-5}, 1, 1e-8);
  b.x[3] = 1e9, good(reduce(&b, "probit", true)); /* no overflow */
  assert_true(isfinite(b.loss[0]) && isfinite(b.dx[0]));
  b.weight[1] = 0;
  refused(reduce(&b, "softmax", true), SMX_ERR_PARAM, "number");
}

/* Weights that are 1 / (s P) of even draws are the share. */
static void weights(void **state) {
  static const char *const names[] = {"softmax", "logistic", "probit"};
  for (int k = 0; k < 3; k++)
    for (int latent = 0; latent < 2; latent++) {
      bound a = {.s = 2, .other = {1, 3}, .x = {1.2, .3, -.5, .8, 0}, .latent = {1.5}}, b = a;
      b.weighs = true, b.weight[0] = b.weight[1] = 2;
      good(reduce(&a, names[k], latent)), good(reduce(&b, names[k], latent));
      near(b.loss, a.loss, 1, 1e-15), near(b.sum, a.sum, 1, 2e-15), near(b.dx, a.dx, 5, 1e-15);
    }
}

static void sampled_bounds(void **state) {
  bound b = {.s = 2, .other = {1, 3, 0, 0, 0}, .x = {1.2, .3, -.5, .8, 0}, .latent = {1}};
  good(reduce(&b, "softmax", false));
  near(b.loss, (double[]){1.1486015468}, 1, 5e-11), near(b.sum, (double[]){2.1537794116}, 1, 5e-11);
  const double loss = b.loss[0];
  b.s = 5; /* the row's class is none of the others */
  good(reduce(&b, "softmax", false));
  assert_true(b.loss[0] == loss);
  b = (bound){.s = 2, .other = {1, 2}, .x = {-INFINITY, -INFINITY, -INFINITY}, .latent = {2}};
  good(reduce(&b, "softmax", true));
  assert_true(b.loss[0] == 0 && b.sum[0] == 0 && b.dlatent[0] == 0 && b.dx[0] == 0);
  b = (bound){.s = 0, .x = {1.2, .3, -.5, .8, 0}, .latent = {1}};
  good(reduce(&b, "softmax", true));
  assert_true(b.loss[0] == 0 && b.sum[0] == 0);
  good(reduce(&b, "softmax", false));
  assert_true(b.loss[0] == 0 && b.dx[0] == 0);
  b.latent[0] = 0;
  refused(reduce(&b, "softmax", true), SMX_ERR_PARAM, "latent: number 0 is 0, not above 0");
  b.target[0] = -100;
  good(reduce(&b, "softmax", true));
  assert_true(b.loss[0] == 0 && b.dlatent[0] == 0);
}

/* ---- candidates ---- */

typedef struct draws {
  int64_t count, target[12], sampled[2000];
  double counts[10], q_true[12], q[2000];
} draws;
static smx_status sample(draws *x, bool counted, const char *const *set) {
  const smx_op *op = smx_op_find("sample_classes");
  int64_t ts[] = {1, 12}, ten = 10;
  const smx_tensor t[] = {tensor(x->target, SMX_I64, 2, ts), F64(x->counts, 1, &ten),
                          tensor(x->sampled, SMX_I64, 1, &x->count), F64(x->q_true, 2, ts),
                          F64(x->q, 1, &x->count)},
                   *const in[] = {t, counted ? t + 1 : NULL}, *const out[] = {t + 2, t + 3, t + 4};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_params_set(op, &p, "classes", 10)), good(smx_params_set(op, &p, "count", (double)x->count));
  for (; set[0]; set += 2) good(smx_params_parse(op, &p, set[0], set[1]));
  return smx_forward(op, NULL, &p, 2, in, 3, out);
}

/* Every class as often as its expected count says, within four deviations. */
static void as_expected(const draws *x) {
  for (int64_t j = 0; j < 10; j++) {
    double have = 0;
    for (int64_t i = 0; i < x->count; i++) have += x->sampled[i] == j;
    assert_true(fabs(have - x->q_true[j]) <= 4 * sqrt(x->q_true[j]));
  }
}

static void candidates(void **state) {
  draws x = {.count = 2000, .counts = {1, 0, 16, 0, 0, 1, 0, 0, 81, 0}, .target = {[10] = -100, [11] = 3}};
  for (int j = 0; j < 10; j++) x.target[j] = j;
  good(sample(&x, false, (const char *[]){"unique", "no", NULL}));
  near(x.q_true, (double[]){2000 * .2890648}, 1, 1e-4);
  assert_true(x.q_true[10] == 1 && x.q_true[11] == x.q_true[3]);
  double sum = 0;
  for (int j = 0; j < 10; j++) sum += x.q_true[j];
  near(&sum, (double[]){2000}, 1, 1e-3);
  as_expected(&x);
  good(sample(&x, false, (const char *[]){"unique", "no", "form", "uniform", NULL}));
  near(x.q_true + 7, (double[]){200}, 1, 1e-4);
  as_expected(&x);
  good(sample(&x, true, (const char *[]){"unique", "no", NULL})); /* 1 : 8 : 1 : 27 */
  near(x.q_true, (double[]){2000. / 37, 0, 16000. / 37, 0, 0, 2000. / 37, 0, 0, 54000. / 37, 0}, 10, 1e-9);
  as_expected(&x);
}

/* Each once; T is 7 somewhere among the seeds; impossible ones. */
static void unique_candidates(void **state) {
  draws x = {.count = 10, .counts = {1, 1, 1, 1e-300, 1, 1, 1, 1, 1, 1}};
  unsigned seen = 0;
  good(sample(&x, false, (const char *[]){"seed", "3", NULL}));
  for (int i = 0; i < 10; i++) seen |= 1u << x.sampled[i];
  assert_int_equal(seen, 1023);
  bool seven = false;
  for (int seed = 0; seed < 50; seed++) {
    char text[8];
    snprintf(text, sizeof text, "%d", seed);
    x.count = 5;
    good(sample(&x, false, (const char *[]){"seed", text, NULL}));
    seven |= fabs(x.q_true[0] - .9082069) < 1e-6;
  }
  assert_true(seven);
  x.count = 10;
  refused(sample(&x, true, (const char *[]){NULL}), SMX_ERR_PARAM, "have only 9 different classes");
  x.counts[3] = -1;
  refused(sample(&x, true, (const char *[]){NULL}), SMX_ERR_PARAM, "counts: number 3 is -1");
  memset(x.counts, 0, sizeof x.counts);
  refused(sample(&x, true, (const char *[]){NULL}), SMX_ERR_PARAM, "sum to 0");
  x.count = 11;
  refused(sample(&x, false, (const char *[]){NULL}), SMX_ERR_PARAM, "count is 11, more than the 10 classes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_examples),
      cmocka_unit_test(all_classes),
      cmocka_unit_test(bad_numbers),
      cmocka_unit_test(no_scores),
      cmocka_unit_test(bounds),
      cmocka_unit_test(sampled_bounds),
      cmocka_unit_test(probit),
      cmocka_unit_test(weights),
      cmocka_unit_test(every_way),
      cmocka_unit_test(candidates),
      cmocka_unit_test(unique_candidates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
