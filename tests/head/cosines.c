/* cosines.c - proves the losses of cosines of features and classes that are not cosine_margin: the
 * worked examples of the catalogue of papers, margins of a batch, the same bits every way, what a
 * mask hides, rows that are ignored or bad, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

/* In the order of their inputs: column, a number of each class, and number, one of all. */
enum { N = 70, C = 90, D = 17 };
typedef struct head {
  const char *name;
  bool column, number;
  int64_t n, classes, d, target[N];
  double h[N * D], w[C * D], column_at[C], number_at, loss[N], scale, margin, up[N];
  double dh[N * D], dw[C * D], dcolumn[C], dnumber;
  uint8_t mask[N * C];
} head;

static const char *const names[] = {"sphereface2", "wcdas", "margin_metric_softmax",
                                    "adaptive_scale_margin_softmax"};

static head *made(const char *name, int64_t n, int64_t classes, int64_t d) {
  head *x = calloc(1, sizeof *x);
  assert_non_null(x);
  x->name = name, x->n = n, x->classes = classes, x->d = d;
  x->column = !strcmp(name, "wcdas"), x->number = strcmp(name, "adaptive_scale_margin_softmax") != 0;
  x->number_at = !strcmp(name, "margin_metric_softmax") ? 1 : 0;
  memset(x->mask, 1, sizeof x->mask);
  for (int i = 0; i < N; i++) x->up[i] = 1;
  return x;
}

static smx_status run(head *x, smx_context *ctx, const char *const *set, bool backward) {
  const smx_op *op = smx_op_find(x->name);
  int64_t hs[] = {x->n, x->d}, ws[] = {x->classes, x->d}, ms[] = {x->n, x->classes};
  const smx_tensor h = F64(x->h, 2, hs), w = F64(x->w, 2, ws), target = tensor(x->target, SMX_I64, 1, hs),
                   column = F64(x->column_at, 1, ws), number = F64(&x->number_at, 0, NULL),
                   mask = tensor(x->mask, SMX_U8, 2, ms), loss = F64(x->loss, 1, hs),
                   scale = F64(&x->scale, 0, NULL), margin = F64(&x->margin, 0, NULL), up = F64(x->up, 1, hs),
                   dh = F64(x->dh, 2, hs), dw = F64(x->dw, 2, ws), dcolumn = F64(x->dcolumn, 1, ws),
                   dnumber = F64(&x->dnumber, 0, NULL);
  const smx_tensor *in[6] = {&h, &w, &target}, *out[] = {&loss, &scale, &margin}, *dout[] = {&up, NULL, NULL},
                   *din[6] = {&dh, op->inputs[1].flags & SMX_PORT_GRAD ? &dw : NULL};
  int at = 3;
  if (x->column) din[at] = &dcolumn, in[at++] = &column;
  din[at] = op->inputs[at].flags & SMX_PORT_GRAD && x->number ? &dnumber : NULL;
  in[at++] = x->number ? &number : NULL, in[at++] = &mask;
  smx_params p;
  good(smx_params_init(op, &p));
  for (; set && set[0]; set += 2) good(smx_params_parse(op, &p, set[0], set[1]));
  if (backward) return smx_backward(op, ctx, &p, at, in, op->output_count, NULL, dout, din);
  return smx_forward(op, ctx, &p, at, in, op->output_count, out);
}
static void both(head *x, smx_context *ctx, const char *const *set) {
  good(run(x, ctx, set, false)), good(run(x, ctx, set, true));
}

/* Classes along the axes, so that a row of h has its cosines. */
static head *of_cosines(const char *name, int64_t n, int64_t classes, const double *c) {
  head *x = made(name, n, classes, classes);
  memcpy(x->h, c, sizeof *c * (size_t)(n * classes));
  for (int64_t j = 0; j < classes; j++) x->w[j * classes + j] = 1;
  return x;
}

static const double cosines[] = {.922224668, -.265452784, -.0756875633};

static void the_examples(void **state) {
  const char *const set[] = {"normalise", "no", "scale", "4", NULL};
  const char *const detached[] = {"normalise", "no", "scale", "4", "detach", "yes", NULL};
  head *x = of_cosines("sphereface2", 1, 3, cosines);
  both(x, NULL, set);
  near(x->loss, (double[]){2.91585228}, 1, 1e-8);
  near(x->dh, (double[]){-17.65747, .7212328, 1.600748}, 3, 5e-6);
  both(x, NULL, detached);
  near(x->dh, (double[]){-6.3717514, 1.7822752, 2.4981827}, 3, 1e-7);
  free(x);
  x = of_cosines("wcdas", 1, 3, cosines);
  memcpy(x->column_at, (double[]){-1, 0, .5}, 3 * sizeof(double));
  both(x, NULL, (const char *const[]){"normalise", "no", NULL});
  near(x->loss, (double[]){.902162129}, 1, 1e-9);
  near(x->dh, (double[]){-.24062464, .026437197, .027508797}, 3, 1e-8);
  near(x->dcolumn, (double[]){-.08553015, -.02347299, -.02288809}, 3, 1e-8);
  near(&x->dnumber, (double[]){-.05463119}, 1, 1e-8);
  free(x);
  static const double h[] = {1, .2, .4}, w[] = {.5, 1, .2, -1, .3, .8, .9, -.4, .6};
  x = made("margin_metric_softmax", 1, 3, 3);
  memcpy(x->h, h, sizeof h), memcpy(x->w, w, sizeof w), x->number_at = .1;
  both(x, NULL, NULL);
  near(x->loss, (double[]){4.740790479}, 1, 1e-9);
  free(x);
}

/* The row of the median target has it with probability alpha. */
static void margins_of_a_batch(void **state) {
  static const double others[] = {.1, .05, -.2}, own[] = {.9, .5, .2, .7, .6};
  double c[5 * 4];
  for (int i = 0; i < 5; i++) c[4 * i] = own[i], memcpy(c + 4 * i + 1, others, sizeof others);
  head *x = of_cosines("adaptive_scale_margin_softmax", 5, 4, c);
  both(x, NULL, (const char *const[]){"normalise", "no", NULL});
  near(&x->scale, (double[]){45.7883003}, 1, 1e-7), near(&x->margin, (double[]){.5458787}, 1, 1e-7);
  near(x->loss + 4, (double[]){-log(.1)}, 1, 1e-12);
  for (int i = 0; i < 5; i++) { /* the logits are s (c_j - m [j = y]) */
    double sum = 0, p[4];
    for (int j = 0; j < 4; j++) sum += p[j] = exp(x->scale * (c[4 * i + j] - (j == 0 ? x->margin : 0)));
    near(x->loss + i, (double[]){-log(p[0] / sum)}, 1, 1e-10);
    for (int j = 0; j < 4; j++)
      near(x->dh + 4 * i + j, (double[]){x->scale * (p[j] / sum - (j == 0))}, 1, 1e-10);
  }
  good(run(x, NULL, (const char *const[]){"normalise", "no", "of", "mean", NULL}, false)); /* all are alike */
  near(&x->margin, (double[]){.5458787}, 1, 1e-7);
  x->target[4] = -100; /* of .2 .5 .7 .9 the lower median is .5 */
  good(run(x, NULL, (const char *const[]){"normalise", "no", NULL}, false));
  near(&x->scale, (double[]){log(9999999 * 9.) / .5}, 1, 1e-10);
  assert_true(x->loss[4] == 0);
  x->number = true, x->number_at = 20; /* as in validation */
  good(run(x, NULL, (const char *const[]){"normalise", "no", NULL}, false));
  assert_true(x->scale == 20 && x->margin == 0);
  x->number_at = -1;
  refused(run(x, NULL, NULL, false), SMX_ERR_PARAM, "scale is -1");
  x->number = false, x->h[0] = NAN;
  good(run(x, NULL, (const char *const[]){"normalise", "no", NULL}, false));
  assert_true(isnan(x->scale) && isnan(x->loss[1]));
  free(x);
}

static void fill(head *x, uint64_t seed) {
  rng r = {seed};
  for (int64_t i = 0; i < x->n * x->d; i++) x->h[i] = rng_normal(&r);
  for (int64_t i = 0; i < x->classes * x->d; i++) x->w[i] = rng_normal(&r);
  for (int64_t j = 0; j < x->classes; j++) x->column_at[j] = rng_normal(&r);
  for (int64_t i = 0; i < x->n; i++) x->up[i] = rng_normal(&r), x->target[i] = rng_below(&r, x->classes);
  for (int64_t i = 0; i < x->n * x->classes; i++) x->mask[i] = rng_below(&r, 4) != 0;
}

static void every_way(void **state) {
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    head *x = made(names[i], N, C, D);
    fill(x, 3 + i);
    x->target[5] = -100;
    both(x, NULL, NULL);
    head *y = malloc(sizeof *y);
    memcpy(y, x, sizeof *y);
    for (way w = {0}; next_way(&w);) {
      memset(y->loss, 0xff, sizeof y->loss), memset(y->dh, 0xff, sizeof y->dh);
      both(y, w.ctx, NULL);
      assert_memory_equal(x, y, offsetof(head, loss) + N * sizeof(double));
      assert_memory_equal(x->dh, y->dh, sizeof x->dh), assert_memory_equal(x->dw, y->dw, sizeof x->dw);
      assert_memory_equal(x->dcolumn, y->dcolumn, sizeof x->dcolumn);
      assert_memory_equal(&x->dnumber, &y->dnumber, sizeof(double));
    }
    free(x), free(y);
  }
}

/* Neither a hidden class nor a row that is ignored counts. */
static void what_is_hidden(void **state) {
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    head *x = made(names[i], 6, 5, 4);
    fill(x, 20 + i);
    for (int r = 0; r < 6; r++) x->mask[r * 5 + 4] = 0, x->target[r] %= 4;
    x->target[2] = -100;
    both(x, NULL, NULL);
    head *y = malloc(sizeof *y);
    memcpy(y, x, sizeof *y);
    for (int k = 0; k < 4; k++) y->w[4 * 4 + k] = -3, y->h[2 * 4 + k] = 1e300;
    both(y, NULL, NULL);
    assert_memory_equal(x->loss, y->loss, 6 * sizeof(double));
    assert_memory_equal(x->dh, y->dh, sizeof(double) * 2 * 4);
    assert_true(x->loss[2] == 0 && x->dh[2 * 4] == 0 && x->dcolumn[4] == 0);
    free(x), free(y);
  }
}

/* No class but its own, and gradients of rows of length 1 at right angles to them. */
static void one_class_and_directions(void **state) {
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    head *x = made(names[i], 4, 3, 5);
    fill(x, 40 + i);
    both(x, NULL, NULL);
    for (int r = 0; r < 4; r++) {
      double along = 0;
      for (int k = 0; k < 5; k++) along += x->h[r * 5 + k] * x->dh[r * 5 + k];
      near(&along, (double[]){0}, 1, 1e-10);
    }
    memset(x->mask, 0, sizeof x->mask);
    both(x, NULL, NULL);
    for (int r = 0; r < 4 && i; r++) assert_true(x->loss[r] == 0 && x->dh[r * 5] == 0);
    x->n = 0;
    both(x, NULL, NULL);
    for (int k = 0; k < 15; k++) assert_true(i == 2 || x->dw[k] == 0);
    free(x);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_examples), cmocka_unit_test(margins_of_a_batch),
                                     cmocka_unit_test(every_way), cmocka_unit_test(what_is_hidden),
                                     cmocka_unit_test(one_class_and_directions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
