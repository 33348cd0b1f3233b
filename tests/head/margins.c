/* margins.c - proves heads of cosines with margins: the worked examples of the catalogue of papers,
 * gradients across the rows, the same bits every way and however many rows are kept, rows of zeros,
 * ignored and bad ones. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

typedef struct head {
  int64_t n, classes, d, target[40];
  double h[40 * 17], w[70 * 17], loss[40], up[40], dh[40 * 17], dw[70 * 17];
} head;

static smx_status run(head *x, smx_context *ctx, const char *const *set, bool backward) {
  const smx_op *op = smx_op_find("cosine_margin");
  int64_t hs[] = {x->n, x->d}, ws[] = {x->classes, x->d};
  const smx_tensor t[] = {F64(x->h, 2, hs),    F64(x->w, 2, ws),  tensor(x->target, SMX_I64, 1, hs),
                          F64(x->loss, 1, hs), F64(x->up, 1, hs), F64(x->dh, 2, hs),
                          F64(x->dw, 2, ws)};
  const smx_tensor *in[] = {t, t + 1, t + 2}, *out[] = {t + 3}, *dout[] = {t + 4},
                   *din[] = {t + 5, t + 6, NULL};
  smx_params p;
  good(smx_params_init(op, &p));
  for (; set[0]; set += 2) good(smx_params_parse(op, &p, set[0], set[1]));
  return backward ? smx_backward(op, ctx, &p, 3, in, 1, NULL, dout, din)
                  : smx_forward(op, ctx, &p, 3, in, 1, out);
}
static head *made(void) {
  head *x = calloc(1, sizeof *x);
  assert_non_null(x);
  return x;
}

static void the_examples(void **state) {
  static const double h[] = {1, 2, -.5}, w[] = {.5, 1, .2, -1, .3, .8, .9, -.4, .6};
  static const struct {
    const char *set[9];
    double loss, within;
  } all[] = {{{"m2", "0", "scale", "10"}, 5.33062789e-05, 1e-12},
             {{"m2", "0", "m3", "0.35", "scale", "10"}, .00176375224, 1e-10},
             {{"scale", "10"}, .00105177955, 1e-10},
             {{"m1", "1.7", "m2", "0", "scale", "10"}, .00021932077, 1e-10},
             {{"m1", "4", "m2", "0", "scale", "10"}, .495155788, 1e-8}};
  head *x = made();
  x->n = 1, x->classes = 3, x->d = 3, x->up[0] = 1;
  memcpy(x->h, h, sizeof h), memcpy(x->w, w, sizeof w);
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    good(run(x, NULL, all[i].set, false)), good(run(x, NULL, all[i].set, true));
    near(x->loss, &all[i].loss, 1, all[i].within);
    double along[4] = {0}, most = 0;
    for (int k = 0; k < 3; k++) {
      along[3] += x->h[k] * x->dh[k], most = fmax(most, fabs(x->dh[k]));
      for (int j = 0; j < 3; j++) along[j] += x->w[3 * j + k] * x->dw[3 * j + k];
    }
    near(along, (double[4]){0}, 4, 1e-14 * fmax(1, most));
  }
  free(x);
}

static void random_head(head *x) {
  rng r = {3};
  *x = (head){.n = 40, .classes = 70, .d = 17};
  for (int i = 0; i < 40 * 17; i++) x->h[i] = rng_normal(&r);
  for (int i = 0; i < 70 * 17; i++) x->w[i] = rng_normal(&r);
  for (int i = 0; i < 40; i++) x->target[i] = rng_below(&r, 70), x->up[i] = rng_normal(&r);
}

static void every_way(void **state) {
  static const char *const defaults[] = {NULL}, *const little[] = {"keep", "0.000001", NULL};
  head *x = made(), *y = made();
  random_head(x), random_head(y);
  good(run(x, NULL, defaults, false)), good(run(x, NULL, defaults, true));
  for (way w = {0}; next_way(&w);)
    for (int kept = 0; kept < 2; kept++) {
      memset(y->dh, 0, sizeof y->dh);
      good(run(y, w.ctx, kept ? little : defaults, false)),
          good(run(y, w.ctx, kept ? little : defaults, true));
      assert_memory_equal(x, y, sizeof *x);
    }
  for (int i = 0; i < 17; i++) x->h[i] *= 1024; /* lengths do not count: dh is as much smaller */
  good(run(x, NULL, defaults, false)), good(run(x, NULL, defaults, true));
  assert_memory_equal(x->loss, y->loss, sizeof x->loss);
  for (int i = 0; i < 17; i++) assert_true(x->dh[i] * 1024 == y->dh[i]);
  free(x), free(y);
}

/* A row of zeros has cosines of 0. */
static void odd_rows(void **state) {
  static const char *const plain[] = {"m2", "0", "scale", "2", NULL};
  head *x = made(), *y = made();
  random_head(x), random_head(y);
  memset(x->h, 0, 17 * sizeof(double));
  x->target[1] = -100, x->h[17] = NAN, x->h[34] = NAN, x->up[1] = 1;
  good(run(x, NULL, plain, false)), good(run(y, NULL, plain, false)), good(run(x, NULL, plain, true));
  near(x->loss, (double[]){log(70)}, 1, 1e-13);
  assert_true(x->loss[1] == 0 && isnan(x->loss[2]) && isnan(x->dh[34]));
  assert_memory_equal(x->loss + 3, y->loss + 3, 37 * sizeof(double));
  x->target[0] = 70;
  refused(run(x, NULL, plain, false), SMX_ERR_TARGET, "target: number 0 is 70, not 0..69");
  free(x), free(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_examples),
      cmocka_unit_test(every_way),
      cmocka_unit_test(odd_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
