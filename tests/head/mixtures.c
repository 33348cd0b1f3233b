/* mixtures.c - proves mixture_of_softmaxes: the worked example of the catalogue of papers, one
 * component, which is linear_cross_entropy to the bit, losses near 0, classes that nothing allows,
 * empty rows, what is saved for the gradient, and the same bits every way. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

typedef struct given {
  int64_t n, k, d, c;
  smx_dtype type;
  void *h, *prior, *w, *bias, *weight;
  int64_t *target;
  const char *keep; /* or NULL */
} given;
typedef struct made {
  void *loss, *component, *up, *dh, *dprior, *dw, *dbias;
  bool saved, alone; /* component is given to the gradient; there is no forward call */
} made;

/* k 0: linear_cross_entropy, of which h has n rows. */
static smx_status run(const given *g, const made *m, smx_context *ctx) {
  const bool one = g->k == 0;
  const smx_op *op = smx_op_find(one ? "linear_cross_entropy" : "mixture_of_softmaxes");
  int64_t hs[] = {g->n, g->k, g->d}, flat[] = {g->n, g->d}, ws[] = {g->c, g->d};
  const smx_tensor h = tensor(g->h, g->type, one ? 2 : 3, one ? flat : hs),
                   prior = tensor(g->prior, g->type, 2, hs), w = tensor(g->w, g->type, 2, ws),
                   target = tensor(g->target, SMX_I64, 1, hs), bias = tensor(g->bias, g->type, 1, ws),
                   weight = tensor(g->weight, g->type, 1, ws), loss = tensor(m->loss, g->type, 1, hs),
                   up = tensor(m->up, g->type, 1, hs), component = tensor(m->component, g->type, 2, hs),
                   dh = tensor(m->dh, g->type, h.ndim, h.shape), dprior = tensor(m->dprior, g->type, 2, hs),
                   dw = tensor(m->dw, g->type, 2, ws), dbias = tensor(m->dbias, g->type, 1, ws);
  const smx_tensor *const b = g->bias ? &bias : NULL, *const db = m->dbias ? &dbias : NULL,
                          *const in[] = {&h, &prior, &w, &target, b, g->weight ? &weight : NULL},
                          *const plain[] = {&h, &w, &target, b}, *const din[] = {&dh,  &dprior, &dw,
                                                                                 NULL, db,      NULL},
                          *const dplain[] = {&dh, &dw, NULL, db, NULL},
                          *const out[] = {&loss, m->component ? &component : NULL},
                          *const dout[] = {&up, NULL};
  const int n_in = one ? 4 : 6, n_out = one ? 1 : 2;
  smx_params p;
  smx_status status = SMX_OK;
  good(smx_params_init(op, &p));
  if (g->keep) good(smx_params_parse(op, &p, "keep", g->keep));
  if (!m->alone) status = smx_forward(op, ctx, &p, n_in, one ? plain : in, n_out, out);
  if (status != SMX_OK || !m->dh) return status;
  return smx_backward(op, ctx, &p, n_in, one ? plain : in, n_out, m->saved ? out : NULL, dout,
                      one ? dplain : din);
}

static smx_context *context(smx_on_empty on_empty, smx_on_inf on_inf) {
  smx_context *ctx;
  good(smx_context_create(
      &(smx_context_options){.size = sizeof(smx_context_options), .on_empty = on_empty, .on_inf = on_inf},
      &ctx));
  return ctx;
}

/* Logits are the features: w is one. */
static double unit[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
static void the_example(void **state) {
  double h[] = {2, 1, .1, 0, .5, 1.5}, prior[] = {.3, -.2}, loss, component[2], up = 2, dh[6], dprior[2],
         dw[9];
  int64_t target = 1;
  const given g = {1, 2, 3, 3, SMX_F64, h, prior, unit, .target = &target};
  good(run(&g, &(made){&loss, component, &up, dh, dprior, dw, .saved = true}, NULL));
  const double p = .62245933120185459, r[] = {.6335179, .3664821};
  near(&loss, (double[]){1.43464005}, 1, 5e-9);
  near(dprior, (double[]){2 * (p - r[0]), 2 * (1 - p - r[1])}, 2, 2e-7);
  for (int k = 0; k < 2; k++) {
    double sum = 0, want[3];
    for (int j = 0; j < 3; j++) sum += exp(h[3 * k + j]);
    near(component + k, &(double){log(sum) - h[3 * k + 1]}, 1, 1e-15);
    for (int j = 0; j < 3; j++) want[j] = 2 * r[k] * (exp(h[3 * k + j]) / sum - (j == 1));
    near(dh + 3 * k, want, 3, 2e-7);
  }
}

/* ---- many rows ---- */

enum { N = 150, K = 3, D = 20, C = 70 };
typedef struct numbers {
  double h[N * K * D], prior[N * K], w[C * D], bias[C], weight[C], up[N], loss[N], component[N * K],
      dh[N * K * D], dprior[N * K], dw[C * D], dbias[C];
  int64_t target[N];
} numbers;
static numbers *make(void) {
  numbers *const a = calloc(1, sizeof *a);
  rng r = {7};
  assert_non_null(a);
  for (int i = 0; i < N * K * D; i++) a->h[i] = rng_normal(&r);
  for (int i = 0; i < N * K; i++) a->prior[i] = rng_normal(&r);
  for (int i = 0; i < C * D; i++) a->w[i] = rng_normal(&r);
  for (int i = 0; i < C; i++) a->bias[i] = rng_normal(&r), a->weight[i] = i % 5 ? rng_uniform(&r) : 0;
  for (int i = 0; i < N; i++) a->up[i] = rng_normal(&r), a->target[i] = i % 9 == 8 ? -100 : rng_below(&r, C);
  return a;
}
static given of(numbers *a, int64_t first, int64_t n) {
  return (given){n,
                 K,
                 D,
                 C,
                 SMX_F64,
                 a->h + first * K * D,
                 a->prior + first * K,
                 a->w,
                 a->bias,
                 NULL,
                 a->target + first};
}
static made into(numbers *a) {
  return (made){a->loss, a->component, a->up, a->dh, a->dprior, a->dw, a->dbias};
}

/* In place, n doubles as floats. */
static void narrow(double *x, int n) {
  for (int i = 0; i < n; i++) memcpy((float *)(void *)x + i, &(float){(float)x[i]}, sizeof(float));
}
static void narrow_all(numbers *a) {
  narrow(a->h, N * K * D), narrow(a->prior, N * K), narrow(a->w, C * D), narrow(a->bias, C), narrow(a->up, N);
}

/* The bits of linear_cross_entropy, whatever the prior is; in f32 too. */
static void one_component(void **state) {
  static const double priors[] = {0, 3, -700, 1e30};
  for (int f32 = 0; f32 < 2; f32++)
    for (size_t p = 0; p < COUNT_OF(priors); p++) {
      numbers *const a = make(), *const b = make();
      for (int i = 0; i < N; i++) a->prior[i] = b->prior[i] = priors[p];
      for (int i = 0; i < D; i++) a->h[i] = b->h[i] = 400 * a->w[a->target[0] * D + i]; /* a loss of 0 */
      if (f32) narrow_all(a), narrow_all(b);
      given g = of(a, 0, N), plain = of(b, 0, N);
      g.k = 1, plain.k = 0, g.type = plain.type = f32 ? SMX_F32 : SMX_F64;
      const made m = into(a), other = {b->loss, NULL, b->up, b->dh, NULL, b->dw, b->dbias};
      good(run(&g, &m, NULL)), good(run(&plain, &other, NULL));
      assert_memory_equal(a->loss, b->loss, sizeof a->loss);
      assert_memory_equal(a->dh, b->dh, sizeof a->dh);
      assert_memory_equal(a->dw, b->dw, sizeof a->dw);
      assert_memory_equal(a->dbias, b->dbias, sizeof a->dbias);
      assert_memory_equal(a->component, b->loss, f32 ? N * 4 : N * 8);
      for (int i = 0; i < N; i++) assert_true(a->dprior[i] == 0);
      assert_memory_equal(a->loss, &(double){0}, f32 ? sizeof(float) : sizeof(double));
      free(a), free(b);
    }
}

/* By threads, instruction sets, rows kept, rows alone, and with what the forward call saved. */
static void every_way(void **state) {
  numbers *const a = make();
  given g = of(a, 0, N);
  made m = into(a);
  good(run(&g, &m, NULL));
  for (way w = {0}; next_way(&w);) {
    numbers *const b = make();
    given again = of(b, 0, N);
    made to = into(b);
    again.keep = w.number % 2 ? "0.001" : NULL, to.saved = w.number % 3 == 0;
    good(run(&again, &to, w.ctx));
    assert_memory_equal(a, b, sizeof *a);
    free(b);
  }
  for (int64_t i = 0; i < N; i += 7) {
    numbers *const b = make();
    given again = of(b, i, 1);
    made to = into(b);
    to.up = b->up + i;
    good(run(&again, &to, NULL));
    assert_memory_equal(a->loss + i, b->loss, sizeof *a->loss);
    assert_memory_equal(a->dh + i * K * D, b->dh, sizeof *a->dh * K * D);
    assert_memory_equal(a->dprior + i * K, b->dprior, sizeof *a->dprior * K);
    free(b);
  }
  g.weight = a->weight; /* multiplies what is above */
  a->weight[3] = -1;
  refused(run(&g, &m, NULL), SMX_ERR_PARAM, "class_weight: class 3 has -1, not at least 0");
  a->weight[3] = NAN, m.alone = true; /* is seen in the rows of its class */
  good(run(&g, &m, NULL));
  for (int i = 0; i < N; i++) assert_true(isnan(a->dprior[i * K]) == (a->target[i] == 3));
  a->weight[3] = 0.5, m.alone = false, g.weight = NULL;
  good(run(&g, &m, NULL));
  g.weight = a->weight;
  numbers *const b = make();
  made to = into(b);
  good(run(&g, &to, NULL));
  for (int i = 0; i < N; i++) {
    const double by = a->target[i] < 0 ? 0 : a->weight[a->target[i]];
    near(b->loss + i, &(double){by * a->loss[i]}, 1, 1e-14);
    for (int k = 0; k < K; k++) near(b->dprior + i * K + k, &(double){by * a->dprior[i * K + k]}, 1, 1e-14);
    for (int e = 0; e < K * D; e++)
      near(b->dh + i * K * D + e, &(double){by * a->dh[i * K * D + e]}, 1, 1e-14);
  }
  free(a), free(b);
}

/* ---- values that need a rule ---- */

/* 1 - p is told from 0, and a class that only an unlikely component has from one that none has. */
static void ends(void **state) {
  double h[] = {50, 0, 0, 60, 0, 0}, prior[] = {0, log(3)}, loss, up = 1, dh[6], dprior[2], dw[9];
  int64_t target = 0;
  const given g = {1, 2, 3, 3, SMX_F64, h, prior, unit, .target = &target};
  const made m = {&loss, NULL, &up, dh, dprior, dw};
  good(run(&g, &m, NULL));
  const double near_0 = 2 * exp(-50) / 4 + 2 * exp(-60) * 3 / 4;
  near(&loss, &near_0, 1, 1e-14 * near_0);
  prior[0] = -1000, h[3] = -2000; /* e^-1000 is 0 */
  good(run(&g, &m, NULL));
  near(&loss, (double[]){1000 + log(3)}, 1, 1e-12);
  near(dprior, (double[]){-1, 1}, 2, 1e-15);
  prior[0] = -INFINITY, h[0] = NAN; /* not even looked at */
  good(run(&g, &(made){&loss}, NULL));
  near(&loss, (double[]){2000 + log(2)}, 1, 1e-11);
  h[0] = 50, target = -100, prior[1] = NAN;
  good(run(&g, &m, NULL));
  assert_true(loss == 0 && dprior[0] == 0 && dprior[1] == 0 && dh[0] == 0 && dh[3] == 0);
  target = 0;
  good(run(&g, &m, NULL));
  assert_true(isnan(loss) && isnan(dprior[1]) && isnan(dh[3]));
  prior[1] = INFINITY;
  good(run(&g, &m, NULL));
  assert_true(isnan(loss));
  smx_context *const limit = context(SMX_EMPTY_ZERO, SMX_INF_LIMIT);
  good(run(&g, &m, limit));
  near(&loss, (double[]){2000 + log(2)}, 1, 1e-11);
  smx_context_destroy(limit);
  target = 3;
  refused(run(&g, &m, NULL), SMX_ERR_TARGET, "mixture_of_softmaxes: target: number 0 is 3, not 0..2 or -100");
}

/* No component gives the class anything: the prior shares out what is no number of a step. */
static void impossible(void **state) {
  double h[] = {1, 2, 3, 4, 5, 6}, prior[] = {0, log(3)}, bias[] = {-INFINITY, 0, 0}, loss, up = 1, dh[6],
         dprior[2], dw[9], dbias[3], p[] = {0, 1 / (1 + exp(1)), 1 / (1 + exp(-1))};
  int64_t target = 0;
  const given g = {1, 2, 3, 3, SMX_F64, h, prior, unit, bias, .target = &target};
  good(run(&g, &(made){&loss, NULL, &up, dh, dprior, dw, dbias}, NULL));
  assert_true(loss == INFINITY && dprior[0] == 0 && dprior[1] == 0);
  near(dbias, (double[]){-1, p[1], p[2]}, 3, 1e-15);
  near(dh, (double[]){-.25, p[1] / 4, p[2] / 4, -.75, .75 * p[1], .75 * p[2]}, 6, 1e-15);
}

/* Rows: a whole one; one of whose components one has only logits of -inf; two with a share in such
 * ones alone, or in none; and one that is ignored. */
static void empty_rows(void **state) {
  enum { ROWS = 5 };
  const double low = -1e200, huge = 1e200;
  double h[ROWS * 4] = {0, 1, 0, 2, huge, 0, 0, 1, huge, 0, 0, 5, 1, 2, 3, 4, huge, 0, huge, 0},
                  w[] = {low, 1, low, 0}, prior[ROWS * 2] = {0, 0, 0, 0, 0, -INFINITY, -INFINITY, -INFINITY},
                  loss[ROWS], component[ROWS * 2], up[] = {1, 2, 3, 4, 5}, dh[ROWS * 4], dprior[ROWS * 2],
                  dw[4], none[8] = {0};
  int64_t target[] = {0, 0, 0, 1, -100};
  given g = {ROWS, 2, 2, 2, SMX_F64, h, prior, w, .target = target};
  const made m = {loss, component, up, dh, dprior, dw, .saved = true};
  h[0] = h[2] = h[6] = 0, h[10] = 0;
  smx_context *const nan = context(SMX_EMPTY_NAN, SMX_INF_NAN), *const error =
                                                                    context(SMX_EMPTY_ERROR, SMX_INF_NAN);
  const double one = -log(1 / (1 + exp(-1))), two = -log(1 / (1 + exp(-2)));
  const double want[] = {-log((exp(-one) + exp(-two)) / 2), one + log(2), 0, 0, 0};
  good(run(&g, &m, NULL));
  near(loss, want, ROWS, 1e-14);
  assert_true(component[2] == INFINITY && component[4] == INFINITY && component[8] == 0);
  near(component + 3, &one, 1, 1e-15);
  near(dprior + 2, (double[]){1, -1}, 2, 1e-15);
  assert_memory_equal(dprior + 4, none, 4 * sizeof *none);
  assert_memory_equal(dh + 4, none, 2 * sizeof *none);
  assert_memory_equal(dh + 8, none, 8 * sizeof *none);
  good(run(&g, &m, nan));
  near(loss, want, 2, 1e-14);
  assert_true(isnan(loss[2]) && isnan(loss[3]) && loss[4] == 0);
  assert_memory_equal(dh + 8, none, 8 * sizeof *none);
  loss[0] = 7;
  refused(run(&g, &m, error), SMX_ERR_EMPTY, "mixture_of_softmaxes: row 2 has nothing valid");
  assert_true(loss[0] == 7);
  g.h = h + 12, g.prior = prior + 6, g.target = target + 3, g.n = 2;
  refused(run(&g, &m, error), SMX_ERR_EMPTY, "mixture_of_softmaxes: row 0 has nothing valid");
  g.h = h, g.prior = prior, g.target = target;
  good(run(&g, &m, error));
  smx_context_destroy(nan), smx_context_destroy(error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example), cmocka_unit_test(one_component), cmocka_unit_test(every_way),
      cmocka_unit_test(ends),        cmocka_unit_test(impossible),    cmocka_unit_test(empty_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
