/* adaptive.c - proves adaptive_softmax and adaptive_log_softmax: the worked example of the
 * catalogue of papers, no clusters, those of no width, empty rows, what is refused, and the
 * same bits every way; and equiangular_basis: what is exact, its bounds, what is refused. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

/* ---- adaptive_softmax ---- */

typedef struct layers {
  int64_t n, d, s, p, q, k;
  double *h, *w, *projection, *tail;
  int64_t *cutoff, *target;
  const char *classes, *divisor;
} layers;
typedef struct results {
  double *loss, *up, *dh, *dw, *dprojection, *dtail;
} results;

/* log: all classes, and no target. */
static smx_status run(const layers *l, const results *r, smx_context *ctx, bool log) {
  const smx_op *op = smx_op_find(log ? "adaptive_log_softmax" : "adaptive_softmax");
  int64_t hs[] = {l->n, l->d}, ws[] = {l->s, l->d}, ps[] = {l->p, l->d}, qs[] = {l->q}, ks[] = {l->k},
          ys[] = {l->n, atoll(l->classes)};
  const int ndim = log ? 2 : 1;
  const smx_tensor t[] = {F64(l->h, 2, hs),
                          F64(l->w, 2, ws),
                          F64(l->projection, 2, ps),
                          F64(l->tail, 1, qs),
                          tensor(l->cutoff, SMX_I64, 1, ks),
                          tensor(l->target, SMX_I64, 1, hs)},
                   out[] = {F64(r->loss, ndim, ys), F64(r->up, ndim, ys)},
                   g[] = {F64(r->dh, 2, hs), F64(r->dw, 2, ws), F64(r->dprojection, 2, ps),
                          F64(r->dtail, 1, qs)};
  const smx_tensor *const in[] = {t, t + 1, t + 2, t + 3, t + 4, log ? NULL : t + 5}, *const y[] = {out},
                          *const up[] = {out + 1}, *const din[6] = {g, g + 1, g + 2, g + 3};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_params_parse(op, &p, "classes", l->classes));
  good(smx_params_parse(op, &p, "div_value", l->divisor));
  const smx_status status = smx_forward(op, ctx, &p, log ? 5 : 6, in, 1, y);
  if (status != SMX_OK || !r->dh) return status;
  return smx_backward(op, ctx, &p, log ? 5 : 6, in, 1, y, up, din);
}

/* Scores are the weights: rows of h are 1. */
static void the_example(void **state) {
  double h[] = {1}, w[] = {1, .5, -.2}, projection[] = {1}, tail[] = {.3, -.4}, y[4], up[] = {1}, dh[1],
         dw[3], dp[1], dt[2], uplog[] = {0, 0, 0, -1}, dwlog[3], dtlog[2];
  int64_t cutoff[] = {2}, target[] = {3};
  const layers l = {1, 1, 3, 1, 2, 1, h, w, projection, tail, cutoff, target, "4", "1"};
  good(run(&l, &(results){y, uplog, dh, dwlog, dp, dtlog}, NULL, true));
  near(y, (double[]){-.6459114, -1.145911, -2.249097, -2.949097}, 4, 5e-7);
  near(&(double){exp(y[0]) + exp(y[1]) + exp(y[2]) + exp(y[3])}, (double[]){1}, 1, 1e-15);
  good(run(&l, &(results){y, up, dh, dw, dp, dt}, NULL, false));
  near(y, (double[]){2.949097}, 1, 5e-7);
  near(dw, (double[]){.5241846, .317934, -.8421186}, 3, 5e-8);
  near(dt, (double[]){.6681878, -.6681878}, 2, 5e-8);
  near(dwlog, dw, 3, 1e-15), near(dtlog, dt, 2, 1e-15);
  near(dp, &(double){.3 * dt[0] - .4 * dt[1]}, 1, 1e-15);
  target[0] = -100, h[0] = NAN, memset(w, 0, sizeof w);
  good(run(&l, &(results){y}, NULL, false));
  assert_true(y[0] == 0);
}

/* Clusters of no width are even; without clusters it is cross_entropy. */
static void the_ends(void **state) {
  double h[] = {1, 2}, w[] = {1, 0, 0, 1, 1, 1}, y[8];
  int64_t cutoff[] = {2}, target[] = {4};
  layers l = {1, 2, 3, 0, 0, 1, h, w, NULL, NULL, cutoff, target, "5", "8"};
  good(run(&l, &(results){y}, NULL, false));
  near(y, &(double){log(1 + exp(-1) + exp(-2)) + log(3)}, 1, 1e-15);
  l.k = 0, l.cutoff = NULL, l.classes = "3", target[0] = 2;
  good(run(&l, &(results){y}, NULL, false));
  near(y, &(double){log(1 + exp(-1) + exp(-2))}, 1, 1e-15);
  l.n = 0, l.h = NULL, l.target = NULL;
  good(run(&l, &(results){y}, NULL, false));
}

static void wrong(void **state) {
  double h[] = {1, 2}, w[6] = {0}, projection[2] = {0}, tail[3] = {0}, y[8] = {7};
  int64_t cutoff[] = {2, 2}, target[] = {0};
  const results r = {y};
  layers l = {1, 2, 3, 1, 3, 1, h, w, projection, tail, cutoff, target, "5", "2"};
  good(run(&l, &r, NULL, false));
  y[0] = 7, target[0] = 5;
  refused(run(&l, &r, NULL, false), SMX_ERR_TARGET, "target");
  target[0] = 0, l.s = 2;
  refused(run(&l, &r, NULL, false), SMX_ERR_SHAPE, "w: the classes before the first cutoff");
  l.s = 3, l.q = 2;
  refused(run(&l, &r, NULL, false), SMX_ERR_SHAPE, "tail: 2 numbers are left for the 3 x 1 of cluster 0");
  l.q = 3, l.divisor = "4";
  refused(run(&l, &r, NULL, false), SMX_ERR_SHAPE, "projection: the widths of clusters sum up to 0, not 1");
  l.divisor = "0.5";
  refused(run(&l, &r, NULL, false), SMX_ERR_SHAPE, "projection: cluster 0 has a width of 4, but 1 rows");
  l.divisor = "2", l.k = 2;
  refused(run(&l, &r, NULL, false), SMX_ERR_TARGET, "cutoff: number 1 is 2, not within 3..4");
  l.k = 1, cutoff[0] = 0;
  refused(run(&l, &r, NULL, false), SMX_ERR_TARGET, "cutoff: number 0 is 0, not within 1..4");
  l.k = 2, cutoff[0] = 3, cutoff[1] = INT64_MIN;
  refused(run(&l, &r, NULL, false), SMX_ERR_TARGET,
          "cutoff: number 1 is -9223372036854775808, not within 4..4");
  l.k = 1, cutoff[0] = INT64_MAX;
  refused(run(&l, &r, NULL, true), SMX_ERR_TARGET, "cutoff: number 0");
  assert_true(y[0] == 7);
}

/* Rows: a whole one; one whose cluster has only logits of -inf; two whose head has, with the target
 * in a cluster and before; and one that is ignored. */
static void empty_rows(void **state) {
  enum { ROWS = 5, WIDE = 3 };
  const double huge = 1e200, low = -1e200;
  double h[] = {0, 0, 1, 0, huge, 1, huge, 0, 1, huge, 0, 1, huge, 0, 1},
         w[] = {low, 0, 0, low, 0, 0, low, 0, 1},
         projection[] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1},
         tail[] = {0, 0, 0, 0, low, 0, 0, low, 2}, y[ROWS * 4], up[] = {4, 1, 2, 3, 5}, dh[ROWS * WIDE],
         dw[9], dp[18], dt[9], of_one[3 * 18], none[(ROWS - 1) * WIDE] = {0};
  int64_t cutoff[] = {1, 2}, target[] = {3, 3, 2, 0, -100};
  layers l = {ROWS, WIDE, 3, 6, 9, 2, h, w, projection, tail, cutoff, target, "4", "1"};
  const results r = {y, up, dh, dw, dp, dt}, one = {y, up, dh, of_one, of_one + 18, of_one + 36};
  good(run(&l, &r, NULL, false));
  near(y, (double[]){log(2 + exp(1)) - 1 + log(1 + exp(2)) - 2, 0, 0, 0, 0}, ROWS, 1e-14);
  assert_true(dh[2] != 0);
  assert_memory_equal(dh + WIDE, none, sizeof none);
  l.n = 1;
  good(run(&l, &one, NULL, false));
  near(dw, of_one, 9, 1e-14), near(dp, of_one + 18, 18, 1e-14), near(dt, of_one + 36, 9, 1e-14);
  l.n = ROWS;
  smx_context *ctx;
  good(smx_context_create(
      &(smx_context_options){.size = sizeof(smx_context_options), .on_empty = SMX_EMPTY_NAN}, &ctx));
  good(run(&l, &(results){y}, ctx, false));
  assert_true(y[0] > 0 && isnan(y[1]) && isnan(y[2]) && isnan(y[3]) && y[4] == 0);
  smx_context_destroy(ctx);
  good(smx_context_create(
      &(smx_context_options){.size = sizeof(smx_context_options), .on_empty = SMX_EMPTY_ERROR}, &ctx));
  refused(run(&l, &(results){y}, ctx, false), SMX_ERR_EMPTY, "adaptive_softmax: row 1 has nothing valid");
  refused(run(&l, &(results){y}, ctx, true), SMX_ERR_EMPTY, "adaptive_log_softmax: row 1 has nothing valid");
  l.h = h + 2 * WIDE, l.target = target + 2, l.n = 3;
  refused(run(&l, &(results){y}, ctx, false), SMX_ERR_EMPTY, "adaptive_softmax: row 0 has nothing valid");
  l.target = (int64_t[]){-100, -100, -100};
  good(run(&l, &(results){y}, ctx, false));
  l.n = 1, l.h = h;
  good(run(&l, &(results){y}, ctx, true));
  smx_context_destroy(ctx);
}

/* A row by itself has the loss that it has among others, and the same log-probabilities. */
enum { N = 200, D = 12, CLASSES = 60, WORDS = 20, P = 6 + 3, Q = 15 * 6 + 25 * 3 };
typedef struct numbers {
  double h[N * D], w[(WORDS + 2) * D], projection[P * D], tail[Q], up[N * CLASSES], y[N * CLASSES], dh[N * D],
      dw[(WORDS + 2) * D], dp[P * D], dt[Q];
  int64_t cutoff[2], target[N];
} numbers;
static numbers *make(void) {
  numbers *const a = calloc(1, sizeof *a);
  rng r = {5};
  assert_non_null(a);
  a->cutoff[0] = WORDS, a->cutoff[1] = 35;
  for (int i = 0; i < N * D; i++) a->h[i] = rng_normal(&r);
  for (int i = 0; i < (WORDS + 2) * D; i++) a->w[i] = rng_normal(&r);
  for (int i = 0; i < P * D; i++) a->projection[i] = rng_normal(&r);
  for (int i = 0; i < Q; i++) a->tail[i] = rng_normal(&r);
  for (int i = 0; i < N * CLASSES; i++) a->up[i] = rng_normal(&r);
  for (int i = 0; i < N; i++) a->target[i] = i % 9 == 8 ? -100 : rng_below(&r, CLASSES);
  return a;
}
static void all(numbers *a, int64_t first, int64_t n, smx_context *ctx, bool log) {
  const layers l = {n,       D,         WORDS + 2,         P,    Q,  2, a->h + first * D, a->w, a->projection,
                    a->tail, a->cutoff, a->target + first, "60", "2"};
  const results r = {a->y, a->up, a->dh, a->dw, a->dp, a->dt};
  good(run(&l, &r, ctx, log));
}
static void every_way(void **state) {
  for (int log = 0; log < 2; log++) {
    numbers *const a = make();
    all(a, 0, N, NULL, log);
    for (way w = {0}; next_way(&w);) {
      numbers *const b = make();
      all(b, 0, N, w.ctx, log);
      assert_memory_equal(a, b, sizeof *a);
      free(b);
    }
    for (int64_t i = 0; i < N; i += 7) {
      numbers *const b = make();
      const int64_t width = log ? CLASSES : 1;
      memcpy(b->up, a->up + i * width, (size_t)width * sizeof *a->up);
      all(b, i, 1, NULL, log);
      assert_memory_equal(a->y + i * width, b->y, (size_t)width * sizeof *a->y);
      assert_memory_equal(a->dh + i * D, b->dh, sizeof *a->dh * D);
      free(b);
    }
    free(a);
  }
}

/* ---- equiangular_basis ---- */

static smx_status basis_of(smx_context *ctx, int64_t n, int64_t d, const char *const *set, double *e,
                           double *largest, double *welch) {
  const smx_op *op = smx_op_find("equiangular_basis");
  int64_t shape[] = {n, d};
  double *const any = malloc((size_t)(n * d) * sizeof *any + 8);
  memset(any, 0xff, (size_t)(n * d) * sizeof *any + 8); /* NaN: no number is read */
  const smx_tensor t[] = {F64(any, 2, shape), F64(e, 2, shape), F64(largest, 0, NULL), F64(welch, 0, NULL)},
                   *const in[] = {t}, *const out[] = {t + 1, t + 2, t + 3};
  smx_params p;
  good(smx_params_init(op, &p));
  for (int i = 0; set && set[i]; i += 2) good(smx_params_parse(op, &p, set[i], set[i + 1]));
  const smx_status status = smx_forward(op, ctx, &p, 1, in, 3, out);
  free(any);
  return status;
}

/* The least and the largest cosine, and how far lengths are from 1. */
typedef struct cosines {
  double least, most, length;
} cosines;
static cosines cosines_of(const double *e, int64_t n, int64_t d) {
  cosines c = {2, -2, 0};
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k <= i; k++) {
      double dot = 0;
      for (int64_t j = 0; j < d; j++) dot += e[i * d + j] * e[k * d + j];
      if (i == k) c.length = fmax(c.length, fabs(dot - 1));
      else c.least = fmin(c.least, dot), c.most = fmax(c.most, dot);
    }
  return c;
}

static void exact_bases(void **state) {
  static const int64_t sizes[][2] = {{2, 1}, {3, 2}, {2, 9}, {9, 9}, {10, 9}, {64, 64}, {65, 64}, {5, 300}};
  static const char *const simplex[] = {"form", "simplex", "seed", "3", NULL};
  double e[65 * 64], largest, welch;
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    const int64_t n = sizes[i][0], d = sizes[i][1];
    for (int form = 0; form < 2; form++) {
      good(basis_of(NULL, n, d, form ? simplex : NULL, e, &largest, &welch));
      const cosines c = cosines_of(e, n, d);
      const double want = form || n > d ? -1 / (double)(n - 1) : 0;
      near((double[]){c.least, c.most, c.length}, (double[]){want, want, 0}, 3, 4e-15);
      assert_true(largest == -want && welch <= largest * (1 + 1e-15));
    }
  }
  good(basis_of(NULL, 1, 1, NULL, e, &largest, &welch));
  assert_true(fabs(e[0]) == 1 && largest == 0 && welch == 0);
  good(basis_of(NULL, 0, 3, NULL, e, &largest, &welch));
  static const char *const zero[] = {"seed", "84021", NULL}; /* draws 0 */
  good(basis_of(NULL, 1, 1, zero, e, &largest, &welch));
  assert_true(e[0] == 1);
}

/* Best arrangements that are known: six diagonals of an icosahedron, seven lines of a cube with its
 * edges' middles (Fickus, Mixon 2015), five lines of a plane, ten equiangular lines. */
static void known_bases(void **state) {
  static const struct {
    int64_t n, d;
    double best;
  } all[] = {
      {6, 3, 0.44721359549995793}, {7, 3, 0.57735026918962573}, {5, 2, 0.80901699437494745}, {10, 5, 1. / 3}};
  static const char *const steps[] = {"steps", "400", NULL};
  double e[50], largest, welch;
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    good(basis_of(NULL, all[i].n, all[i].d, steps, e, &largest, &welch));
    const cosines c = cosines_of(e, all[i].n, all[i].d);
    near(&(double){fmax(c.most, -c.least)}, &largest, 1, 1e-15);
    near(&largest, &all[i].best, 1, 1e-6), near(&c.length, (double[]){0}, 1, 1e-15);
  }
}

static void bounded_bases(void **state) {
  static const char *const bound[] = {"bound", "0.17", NULL}, *const low[] = {"bound", "0.1", NULL},
                           *const hard[] = {"bound", "0.124", "steps", "20", NULL},
                           *const simplex[] = {"form", "simplex", NULL}, *const other[] = {"seed", "1", NULL};
  static double e[600 * 40], again[600 * 40];
  double largest, welch;
  good(basis_of(NULL, 200, 50, bound, e, &largest, &welch));
  const cosines c = cosines_of(e, 200, 50);
  assert_true(fmax(c.most, -c.least) <= 0.1701 && largest <= 0.1701);
  near(&welch, (double[]){0.12278182636}, 1, 1e-11);
  refused(basis_of(NULL, 200, 50, low, e, &largest, &welch), SMX_ERR_PARAM,
          "bound is 0.1, below 0.122781826, the");
  refused(basis_of(NULL, 200, 50, hard, e, &largest, &welch), SMX_ERR_PARAM, "after 20 steps the largest");
  refused(basis_of(NULL, 4, 2, simplex, e, &largest, &welch), SMX_ERR_PARAM, "w has 4 rows, more than 2");
  refused(basis_of(NULL, 4, 0, NULL, e, &largest, &welch), SMX_ERR_SHAPE, "w has no columns");
  static const char *const least[] = {"form", "simplex", "bound", "0.0399999991", NULL}; /* 1 / 25 in float */
  good(basis_of(NULL, 26, 25, least, e, &largest, &welch));
  good(basis_of(NULL, 26, 25, least + 2, e, &largest, &welch));
  static const char *const below[] = {"bound", "0.0398", NULL};
  refused(basis_of(NULL, 26, 25, below, e, &largest, &welch), SMX_ERR_PARAM,
          "bound is 0.0398, below 0.04, the");
  static const char *const few[] = {"steps", "5", NULL};
  good(basis_of(NULL, 600, 40, few, e, &largest, &welch)); /* more than a block of rows */
  for (way w = {0}; next_way(&w);) {
    good(basis_of(w.ctx, 600, 40, few, again, &largest, &welch));
    assert_memory_equal(e, again, sizeof e);
  }
  good(basis_of(NULL, 20, 40, NULL, e, &largest, &welch));
  good(basis_of(NULL, 20, 40, other, again, &largest, &welch));
  assert_true(memcmp(e, again, 20 * 40 * sizeof *e) != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example),   cmocka_unit_test(the_ends),    cmocka_unit_test(wrong),
      cmocka_unit_test(every_way),     cmocka_unit_test(exact_bases), cmocka_unit_test(known_bases),
      cmocka_unit_test(bounded_bases), cmocka_unit_test(empty_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
