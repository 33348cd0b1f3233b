/* spectra.c - proves head_bottleneck_measures, and head_rank_loss: the worked example of the
 * catalogue of papers, wide and tall matrices, rows of zeros, what has no spectrum, and the same
 * bits every way. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { MOST = 700 * 40 };
typedef struct measured {
  double entropy, rank, stable, anisotropy, value[64];
} measured;

static measured measure(smx_context *ctx, const double *x, int64_t n, int64_t d, const char *shares) {
  const smx_op *op = smx_op_find("head_bottleneck_measures");
  measured m = {.entropy = -1};
  int64_t xs[] = {n, d}, r = n < d ? n : d;
  const smx_tensor t[] = {F64((void *)(uintptr_t)x, 2, xs),
                          F64(&m.entropy, 0, NULL),
                          F64(&m.rank, 0, NULL),
                          F64(&m.stable, 0, NULL),
                          F64(&m.anisotropy, 0, NULL),
                          F64(m.value, 1, &r)},
                   *const in[] = {t}, *const out[] = {t + 1, t + 2, t + 3, t + 4, t + 5};
  smx_params p;
  good(smx_params_init(op, &p)), good(smx_params_parse(op, &p, "shares", shares));
  good(smx_forward(op, ctx, &p, 1, in, 5, out));
  return m;
}

static void any_size(void **state) {
  const double sizes[] = {0x1p-1000, 0x1p-600, 0x1p600, 0x1p1020};
  for (int i = 0; i < 4; i++) {
    const double s = sizes[i], x[] = {0, 3 * s, 0, -2 * s, 0, 0, 0, 0, s, 0, 0, 0};
    const measured m = measure(NULL, x, 4, 3, "values");
    near(&m.entropy, (double[]){.087208024}, 1, 5e-10);
    near(&m.stable, (double[]){14. / 9}, 1, 1e-14);
    for (int j = 0; j < 3; j++) near(&(double){m.value[j] / s}, &(double){3 - j}, 1, 1e-14);
  }
  const double apart[] = {0x1p700, 0, 0x1p-700, 0}; /* both rows have a direction */
  near(&(double){measure(NULL, apart, 2, 2, "values").anisotropy}, (double[]){1}, 1, 0);
}

static void the_example(void **state) {
  const double x[] = {0, 3, 0, -2, 0, 0, 0, 0, 1, 0, 0, 0}, wide[] = {0, 3, 0, 0, 2, 0, 0, 0};
  measured m = measure(NULL, x, 4, 3, "values");
  near(m.value, (double[]){3, 2, 1}, 3, 1e-14);
  near(&m.entropy, (double[]){.087208024}, 1, 5e-10);
  near(&m.rank, (double[]){2.749459274}, 1, 5e-10);
  near(&m.stable, (double[]){14. / 9}, 1, 1e-14);
  near(&m.anisotropy, (double[]){0}, 1, 1e-15);
  m = measure(NULL, x, 4, 3, "squares");
  near(&m.entropy, (double[]){.268140576}, 1, 5e-10);
  m = measure(NULL, wide, 2, 4, "values"); /* two values, not four */
  near(m.value, (double[]){3, 2}, 2, 1e-14);
  near(&m.entropy, (double[]){log(2) + .6 * log(.6) + .4 * log(.4)}, 1, 1e-14);
}

static void the_ends(void **state) {
  const double same[] = {1e100, 2e100, 1, 2, .5, 1}, zeros[6] = {0}, bad[] = {1, NAN, 2, 3, 4, 5};
  measured m = measure(NULL, same, 3, 2, "values"); /* one direction, whatever the lengths */
  near(&m.anisotropy, (double[]){1}, 1, 1e-15);
  near(&m.rank, (double[]){1}, 1, 1e-6), near(&m.stable, (double[]){1}, 1, 1e-14);
  m = measure(NULL, zeros, 3, 2, "values");
  assert_true(isnan(m.entropy) && isnan(m.stable) && isnan(m.anisotropy) && m.value[0] == 0);
  m = measure(NULL, same, 1, 2, "values");
  assert_true(m.entropy == 0 && isnan(m.anisotropy));
  m = measure(NULL, bad, 3, 2, "values");
  assert_true(isnan(m.entropy) && isnan(m.rank) && isnan(m.stable) && isnan(m.anisotropy) &&
              isnan(m.value[1]));
  m = measure(NULL, zeros, 0, 2, "values");
  assert_true(isnan(m.entropy) && isnan(m.anisotropy));
}

/* The same values of a matrix and its transpose, across blocks of rows. */
static void every_way(void **state) {
  double *const x = calloc(2 * MOST, sizeof *x), *const turned = x + MOST;
  rng r = {9};
  for (int64_t i = 0; i < 700; i++)
    for (int64_t j = 0; j < 40; j++) x[i * 40 + j] = turned[j * 700 + i] = rng_normal(&r) + (double)(j % 3);
  const measured a = measure(NULL, x, 700, 40, "values"), b = measure(NULL, turned, 40, 700, "values");
  near(a.value, b.value, 40, 1e-11), near(&a.entropy, &b.entropy, 1, 1e-13);
  for (way w = {0}; next_way(&w);) {
    const measured tall = measure(w.ctx, x, 700, 40, "values"),
                   wide = measure(w.ctx, turned, 40, 700, "values");
    assert_memory_equal(&a, &tall, sizeof a), assert_memory_equal(&b, &wide, sizeof b);
  }
  free(x);
}

/* Rank 2 of 3, of weights whose singular directions are the axes; rank 0 is the bias. */
static void ranks(void **state) {
  const smx_op *const op = smx_op_find("head_rank_loss");
  double h[] = {1, 2, 3, NAN, 0, 0, 0, 1, 1}, w[] = {0, 3, 0, -2, 0, 0, 0, 0, 1, 0, 0, 0},
         bias[] = {log(4), 0, 0, 0}, loss[4], kept[4];
  int64_t target[] = {1, -1, 2}, rank[] = {3, 2, 1, 0}, hs[] = {3, 3}, ws[] = {4, 3};
  const smx_tensor t[] = {F64(h, 2, hs),
                          F64(w, 2, ws),
                          tensor(target, SMX_I64, 1, hs),
                          tensor(rank, SMX_I64, 1, ws),
                          F64(bias, 1, ws),
                          F64(loss, 1, ws),
                          F64(kept, 1, ws)},
                   *const in[] = {t, t + 1, t + 2, t + 3, t + 4}, *const out[] = {t + 5, t + 6};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_forward(op, NULL, &p, 5, in, 2, out));
  near(loss,
       (double[]){(log(4 * exp(6) + exp(-2) + exp(3) + 1) + 2 + log(4 * exp(3) + 1 + exp(1) + 1) - 1) / 2,
                  (log(4 * exp(6) + exp(-2) + 2) + 2 + log(4 * exp(3) + 3)) / 2,
                  (log(4 * exp(6) + 3) + log(4 * exp(3) + 3)) / 2, log(7)},
       4, 1e-13);
  near(kept, (double[]){1, 13. / 14, 9. / 14, 0}, 4, 1e-15);
  rank[3] = 4;
  refused(smx_forward(op, NULL, &p, 5, in, 2, out), SMX_ERR_PARAM, "rank: number 3 is 4, not 0..3");
  rank[3] = 0, target[0] = target[2] = -1;
  good(smx_forward(op, NULL, &p, 5, in, 2, out));
  assert_true(isnan(loss[0]) && isnan(loss[3]));
  target[0] = 1, w[0] = INFINITY;
  good(smx_forward(op, NULL, &p, 5, in, 2, out));
  assert_true(isnan(loss[0]) && isnan(kept[0]));
}

/* Weights whose squares a double cannot hold, beside rows as much smaller or larger: the
 * same curve. A head of 0 has its bias alone. */
static void ranks_of_any_size(void **state) {
  static const double sizes[] = {1, 0x1p700, 0x1p-700, 0x1p1000, 0x1p-1000, 0};
  const smx_op *const op = smx_op_find("head_rank_loss");
  int64_t target[] = {1, 2}, rank[] = {2, 1, 0}, hs[] = {2, 2}, ws[] = {3, 2}, ks[] = {3};
  double first[3], part[3];
  smx_params p;
  good(smx_params_init(op, &p));
  for (size_t k = 0; k < COUNT_OF(sizes); k++) {
    const double of_h = sizes[k] > 0 ? 1 / sizes[k] : 1;
    double h[] = {1, 2, -1, 3}, w[] = {3, 1, -2, .5, 1, 1}, loss[3], kept[3];
    for (int i = 0; i < 4; i++) h[i] *= of_h;
    for (int i = 0; i < 6; i++) w[i] *= sizes[k];
    const smx_tensor t[] = {F64(h, 2, hs),
                            F64(w, 2, ws),
                            tensor(target, SMX_I64, 1, hs),
                            tensor(rank, SMX_I64, 1, ks),
                            F64(loss, 1, ks),
                            F64(kept, 1, ks)},
                     *const in[] = {t, t + 1, t + 2, t + 3, NULL}, *const out[] = {t + 4, t + 5};
    good(smx_forward(op, NULL, &p, 5, in, 2, out));
    if (!k) memcpy(first, loss, sizeof loss), memcpy(part, kept, sizeof kept);
    if (sizes[k] > 0) near(loss, first, 3, 1e-13), near(kept, part, 3, 1e-13);
    else near(loss, (double[]){log(3), log(3), log(3)}, 3, 1e-15), assert_true(isnan(kept[0]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_example), cmocka_unit_test(any_size),
                                     cmocka_unit_test(the_ends),    cmocka_unit_test(every_way),
                                     cmocka_unit_test(ranks),       cmocka_unit_test(ranks_of_any_size)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
