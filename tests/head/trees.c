/* trees.c - proves classes as leaves of trees: Huffman's codes and probabilities of the catalogue
 * of papers, the same bits every way, ignored and bad rows, one class, and trees that are none; and
 * soft decision trees: the worked example, paths no double holds, the penalty. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

#define I64(data, ndim, shape) tensor(data, SMX_I64, ndim, shape)

static smx_status huffman(double *counts, int64_t n, int64_t *parent, int64_t *bit) {
  const smx_op *op = smx_op_find("huffman_tree");
  int64_t nodes = 2 * n - 1;
  const smx_tensor t[] = {F64(counts, 1, &n), I64(parent, 1, &nodes), I64(bit, 1, &nodes)};
  const smx_tensor *in[] = {t}, *out[] = {t + 1, t + 2};
  smx_params p;
  good(smx_params_init(op, &p));
  return smx_forward(op, NULL, &p, 1, in, 2, out);
}

/* A head of n rows. */
typedef struct head {
  int64_t n, d, classes, sizes[6];
  double *h, *w, *bias, *loss, *y, *dh, *dw, *dbias;
  int64_t *target, *parent, *bit;
} head;
static head make(int64_t n, int64_t d, int64_t classes) {
  head x = {.n = n, .d = d, .classes = classes};
  double **const all[] = {&x.h, &x.w, &x.bias, &x.loss, &x.y, &x.dh, &x.dw, &x.dbias};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    *all[i] = calloc((size_t)(n * d + classes * d + n * classes + n + 1), sizeof(double));
  x.target = calloc((size_t)n + 1, 8), x.parent = calloc(2 * (size_t)classes, 8);
  x.bit = calloc(2 * (size_t)classes, 8);
  return x;
}
static void drop(head *x) {
  void *all[] = {x->h, x->w, x->bias, x->loss, x->y, x->dh, x->dw, x->dbias, x->target, x->parent, x->bit};
  for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

static smx_status run(head *x, smx_context *ctx, bool backward) {
  const smx_op *op = smx_op_find("hierarchical_softmax");
  int64_t hs[] = {x->n, x->d}, ws[] = {x->classes - 1, x->d}, nodes = 2 * x->classes - 1;
  const smx_tensor t[] = {F64(x->h, 2, hs),          F64(x->w, 2, ws),       I64(x->target, 1, hs),
                          I64(x->parent, 1, &nodes), I64(x->bit, 1, &nodes), F64(x->bias, 1, ws)};
  const smx_tensor loss = F64(x->loss, 1, hs), dh = F64(x->dh, 2, hs), dw = F64(x->dw, 2, ws),
                   dbias = F64(x->dbias, 1, ws), g = F64(x->y, 1, hs);
  const smx_tensor *in[] = {t, t + 1, t + 2, t + 3, t + 4, t + 5}, *out[] = {&loss}, *dout[] = {&g},
                   *din[] = {&dh, &dw, NULL, NULL, NULL, &dbias};
  smx_params p;
  good(smx_params_init(op, &p));
  if (!backward) return smx_forward(op, ctx, &p, 6, in, 1, out);
  for (int64_t r = 0; r < x->n; r++) x->y[r] = 1;
  return smx_backward(op, ctx, &p, 6, in, 1, NULL, dout, din);
}
static smx_status run_all(head *x) {
  const smx_op *op = smx_op_find("hierarchical_log_softmax");
  int64_t hs[] = {x->n, x->d}, ws[] = {x->classes - 1, x->d}, ys[] = {x->n, x->classes},
          nodes = 2 * x->classes - 1;
  const smx_tensor t[] = {F64(x->h, 2, hs),       F64(x->w, 2, ws),    I64(x->parent, 1, &nodes),
                          I64(x->bit, 1, &nodes), F64(x->bias, 1, ws), F64(x->y, 2, ys)};
  const smx_tensor *in[] = {t, t + 1, t + 2, t + 3, t + 4}, *out[] = {t + 5};
  smx_params p;
  good(smx_params_init(op, &p));
  return smx_forward(op, NULL, &p, 5, in, 1, out);
}

static void the_example(void **state) {
  static const int64_t parent[] = {6, 5, 4, 4, 5, 6, -1}, bit[] = {1, 0, 0, 1, 1, 0, 0};
  static const double w[] = {.2, -.1, .3, .5, .4, -.2, -.3, .2, .1}, h[] = {1, 2, -.5},
                      p[] = {.5124974, .09643587, .2101709, .1808958};
  head x = make(1, 3, 4);
  good(huffman((double[]){5, 2, 1, 1}, 4, x.parent, x.bit));
  assert_memory_equal(x.parent, parent, sizeof parent), assert_memory_equal(x.bit, bit, sizeof bit);
  memcpy(x.w, w, sizeof w), memcpy(x.h, h, sizeof h);
  x.target[0] = 2;
  good(run(&x, NULL, false)), good(run_all(&x));
  near(x.loss, (double[]){1.55983411}, 1, 5e-9);
  for (int k = 0; k < 4; k++) near((double[]){exp(x.y[k])}, p + k, 1, 5e-8);
  drop(&x);
}

static void one_class(void **state) {
  head x = make(2, 3, 1);
  good(huffman((double[]){7}, 1, x.parent, x.bit));
  assert_int_equal(x.parent[0], -1);
  x.loss[0] = 5;
  good(run(&x, NULL, false)), good(run_all(&x));
  assert_true(x.loss[0] == 0 && x.y[1] == 0);
  drop(&x);
}

static head random_head(uint64_t seed) {
  rng r = {seed};
  head x = make(90, 19, 60);
  double counts[60];
  for (int i = 0; i < 60; i++) counts[i] = rng_uniform(&r);
  good(huffman(counts, 60, x.parent, x.bit));
  for (int64_t i = 0; i < 90 * 19; i++) x.h[i] = rng_normal(&r);
  for (int64_t i = 0; i < 59 * 19; i++) x.w[i] = rng_normal(&r);
  for (int64_t i = 0; i < 59; i++) x.bias[i] = rng_normal(&r);
  for (int64_t i = 0; i < 90; i++) x.target[i] = rng_below(&r, 60);
  return x;
}

static void every_way(void **state) {
  head x = random_head(3), y = random_head(3);
  good(run(&x, NULL, false)), good(run(&x, NULL, true));
  for (way w = {0}; next_way(&w);) {
    good(run(&y, w.ctx, false)), good(run(&y, w.ctx, true));
    assert_memory_equal(x.loss, y.loss, 90 * 8), assert_memory_equal(x.dh, y.dh, 90 * 19 * 8);
    assert_memory_equal(x.dw, y.dw, 59 * 19 * 8), assert_memory_equal(x.dbias, y.dbias, 59 * 8);
  }
  good(run_all(&x));
  for (int r = 0; r < 90; r++) {
    double sum = 0;
    for (int k = 0; k < 60; k++) sum += exp(x.y[r * 60 + k]);
    near(&sum, (double[]){1}, 1, 1e-13);
    near(x.loss + r, (double[]){-x.y[r * 60 + x.target[r]]}, 1, 1e-13);
  }
  drop(&x), drop(&y);
}

/* What is ignored is not read; a NaN stays in its row, and in the nodes of its path. */
static void ignored_and_bad_rows(void **state) {
  head x = random_head(5), y = random_head(5);
  y.n = 89;
  x.target[89] = -100, x.h[89 * 19] = NAN;
  good(run(&x, NULL, false)), good(run(&x, NULL, true)), good(run(&y, NULL, true));
  assert_true(x.loss[89] == 0);
  for (int k = 0; k < 19; k++) assert_true(x.dh[89 * 19 + k] == 0);
  assert_memory_equal(x.dw, y.dw, 59 * 19 * 8);
  x.target[89] = 3;
  good(run(&x, NULL, false)), good(run(&x, NULL, true));
  assert_true(isnan(x.loss[89]) && !isnan(x.loss[88]) && isnan(x.dh[89 * 19]) && isnan(x.dbias[58]));
  drop(&x), drop(&y);
}

static void wrong_trees(void **state) {
  head x = random_head(7);
  const int64_t root = x.parent[118], inner = x.parent[70];
  x.loss[0] = 77;
  x.parent[118] = 118;
  refused(run(&x, NULL, false), SMX_ERR_TARGET, "parent: number 118 is 118, not -1..-1");
  x.parent[118] = root, x.parent[70] = 70;
  refused(run(&x, NULL, false), SMX_ERR_TARGET, "parent: number 70 is 70, not 71..118");
  x.parent[70] = inner, x.parent[0] = 3;
  refused(run(&x, NULL, true), SMX_ERR_TARGET, "parent: number 0 is 3, not 60..118");
  assert_true(x.loss[0] == 77);
  double counts[] = {1, -2};
  refused(huffman(counts, 2, x.parent, x.bit), SMX_ERR_PARAM, "counts: number 1 is -2, not 0 or more");
  drop(&x);
}

/* ---- soft decision trees ---- */

/* 4 leaves of 3 classes; x has 2 features. */
typedef struct soft {
  int64_t n;
  double x[6], w[6], leaf[12], bias[3], loss[3], y[9], path[12], penalty, dx[6], dw[6], dleaf[12], dbias[3],
      up[3];
  int64_t target[3];
} soft;
static soft make_soft(int64_t n) {
  return (soft){.n = n,
                .x = {.5, -1, 1, 2, -3, .25},
                .w = {1, .3, -.4, .8, .2, -.6},
                .leaf = {.5, 0, -.5, 1, .2, 0, 0, .3, .9, -.2, .4, .1},
                .bias = {.1, 0, -.2},
                .up = {1, 1, 1},
                .target = {1, 0, 2}};
}
static smx_status run_soft(soft *s, smx_context *ctx, const char *form, double beta, bool backward) {
  const smx_op *op = smx_op_find("soft_decision_tree");
  int64_t xs[] = {s->n, 2}, ws[] = {3, 2}, leaves[] = {4, 3}, ys[] = {s->n, 3}, paths[] = {s->n, 4};
  const smx_tensor t[] = {F64(s->x, 2, xs), F64(s->w, 2, ws), F64(s->leaf, 2, leaves), I64(s->target, 1, xs),
                          F64(s->bias, 1, ws)};
  const smx_tensor o[] = {F64(s->loss, 1, xs), F64(s->y, 2, ys), F64(s->path, 2, paths),
                          F64(&s->penalty, 0, xs), F64(s->up, 1, xs)};
  const smx_tensor g[] = {F64(s->dx, 2, xs), F64(s->dw, 2, ws), F64(s->dleaf, 2, leaves),
                          F64(s->dbias, 1, ws)};
  const smx_tensor *in[] = {t, t + 1, t + 2, t + 3, t + 4}, *out[] = {o, o + 1, o + 2, o + 3},
                   *dout[] = {o + 4}, *din[] = {g, g + 1, g + 2, NULL, g + 3};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_params_parse(op, &p, "form", form)), good(smx_params_set(op, &p, "beta", beta));
  if (backward) return smx_backward(op, ctx, &p, 5, in, 1, NULL, dout, din);
  return smx_forward(op, ctx, &p, 5, in, 4, out);
}

static void the_soft_example(void **state) {
  soft s = make_soft(1);
  good(run_soft(&s, NULL, "path_ce", 1, false));
  near(s.path, (double[]){.3111074, .11445, .2168754, .3575671}, 4, 5e-8);
  near(s.loss, (double[]){1.09887565}, 1, 5e-9);
  good(run_soft(&s, NULL, "mixture", 1, false));
  near(s.loss, (double[]){1.0761422}, 1, 5e-8);
  near(s.y + 1, (double[]){exp(-s.loss[0])}, 1, 1e-15);
  double sum = 0;
  for (int i = 0; i < 3; i++) { /* of one row alpha is p: right of node i, over both */
    const double left = i == 0   ? s.path[0] + s.path[1]
                        : i == 1 ? s.path[0] / (s.path[0] + s.path[1])
                                 : s.path[2] / (s.path[2] + s.path[3]);
    sum -= (i ? .25 : .5) * (log(left) + log(1 - left));
  }
  near(&s.penalty, &sum, 1, 1e-14);
}

/* Scores of which all paths but one have probabilities of 0: the mixture has their logarithms. */
static void far_paths(void **state) {
  soft s = make_soft(1);
  for (int j = 0; j < 2; j++) s.x[j] = 1, s.w[j] = 1000, s.w[2 + j] = s.w[4 + j] = 0;
  for (int j = 0; j < 3; j++) s.bias[j] = 0;
  for (int l = 0; l < 4; l++)
    for (int k = 0; k < 3; k++) s.leaf[3 * l + k] = k == 1 && l > 1 ? -INFINITY : 0;
  good(run_soft(&s, NULL, "mixture", 1, false)), good(run_soft(&s, NULL, "mixture", 1, true));
  near(s.loss, (double[]){2000 + log(3)}, 1, 1e-12);
  near(s.dx, (double[]){1000, 1000}, 2, 1e-9);
  assert_true(s.y[1] == 0 && s.path[0] == 0);
  good(run_soft(&s, NULL, "path_ce", 1, false));
  assert_true(s.loss[0] == INFINITY);
}

static void soft_trees_every_way(void **state) {
  soft s = make_soft(3), t = make_soft(3);
  good(run_soft(&s, NULL, "mixture", 2, false)), good(run_soft(&s, NULL, "mixture", 2, true));
  for (way w = {0}; next_way(&w);) {
    good(run_soft(&t, w.ctx, "mixture", 2, false)), good(run_soft(&t, w.ctx, "mixture", 2, true));
    assert_memory_equal(&s, &t, sizeof s);
  }
  s.target[1] = -100, s.x[4] = NAN;
  good(run_soft(&s, NULL, "mixture", 2, false)), good(run_soft(&s, NULL, "mixture", 2, true));
  assert_true(s.loss[1] == 0 && s.dx[2] == 0 && s.dx[3] == 0 && s.y[3] == t.y[3]);
  assert_true(s.loss[0] == t.loss[0] && isnan(s.loss[2]) && isnan(s.penalty) && isnan(s.dx[5]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example), cmocka_unit_test(one_class),
      cmocka_unit_test(every_way),   cmocka_unit_test(ignored_and_bad_rows),
      cmocka_unit_test(wrong_trees), cmocka_unit_test(the_soft_example),
      cmocka_unit_test(far_paths),   cmocka_unit_test(soft_trees_every_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
