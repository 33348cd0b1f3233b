/* knn.c - proves a language model with neighbours: the worked example of the catalogue of papers,
 * ends of the share, what is absent or bad, and the same bits every way. */
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { ROWS = 7, CLASSES = 11, NEIGHBOURS = 5 };
typedef struct mixed {
  int64_t n, c, k, token[ROWS * NEIGHBOURS];
  double x[ROWS * CLASSES], distance[ROWS * NEIGHBOURS], y[ROWS * CLASSES], up[ROWS * CLASSES],
      dx[ROWS * CLASSES], dd[ROWS * NEIGHBOURS];
} mixed;

static void run(mixed *m, smx_context *ctx, double share, double temperature) {
  const smx_op *op = smx_op_find("knn_lm");
  int64_t xs[] = {m->n, m->c}, ds[] = {m->n, m->k};
  const smx_tensor t[] = {F64(m->x, 2, xs), F64(m->distance, 2, ds), tensor(m->token, SMX_I64, 2, ds),
                          F64(m->y, 2, xs), F64(m->up, 2, xs),       F64(m->dx, 2, xs),
                          F64(m->dd, 2, ds)};
  const smx_tensor *in[] = {t, t + 1, t + 2}, *out[] = {t + 3}, *dout[] = {t + 4},
                   *din[] = {t + 5, t + 6, NULL};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_params_set(op, &p, "share", share)), good(smx_params_set(op, &p, "temperature", temperature));
  good(smx_forward(op, ctx, &p, 3, in, 1, out));
  good(smx_backward(op, ctx, &p, 3, in, 1, NULL, dout, din));
}

static mixed example(void) {
  return (mixed){
      .n = 1, .c = 3, .k = 3, .x = {2, 1, .1}, .distance = {1, 1.5, 4}, .token = {0, 1, 0}, .up = {0, -1, 0}};
}

static void the_example(void **state) {
  mixed m = example();
  run(&m, NULL, .25, 2);
  near((double[]){exp(m.y[0]), exp(m.y[1]), exp(m.y[2])}, (double[]){.6469947, .2790809, .07392442}, 3, 5e-8);
  near(m.dx, (double[]){.4293475, -.4935644, .06421691}, 3, 5e-8);
  near(m.dd, (double[]){-.08703783, .1064586, -.01942076}, 3, 5e-8);
}

/* The model alone, or the neighbours. */
static void the_ends(void **state) {
  mixed m = example();
  run(&m, NULL, 0, 1);
  const double lse = log(exp(2) + exp(1) + exp(.1)), near_zero = exp(-.5) / (1 + exp(-.5) + exp(-3));
  near(m.y, (double[]){2 - lse, 1 - lse, .1 - lse}, 3, 1e-15);
  for (int i = 0; i < 3; i++) assert_true(m.dd[i] == 0);
  run(&m, NULL, 1, 1);
  near(m.y + 1, (double[]){log(near_zero)}, 1, 1e-14);
  assert_true(m.y[2] == -INFINITY);
  for (int i = 0; i < 3; i++) assert_true(m.dx[i] == 0);
}

static void absent_and_bad(void **state) {
  mixed m = example(), some = example();
  for (int i = 0; i < 3; i++) m.distance[i] = INFINITY;
  run(&m, NULL, .25, 1), run(&some, NULL, 0, 1);
  assert_memory_equal(m.y, some.y, 3 * 8), assert_memory_equal(m.dx, some.dx, 3 * 8);
  m.distance[1] = NAN;
  run(&m, NULL, .25, 1);
  for (int i = 0; i < 3; i++) assert_true(isnan(m.y[i]) && isnan(m.dx[i]));
  m = example(), m.x[0] = m.x[1] = m.x[2] = -INFINITY; /* the model has nothing */
  run(&m, NULL, .25, 1);
  near((double[]){exp(m.y[0]) + exp(m.y[1])}, (double[]){.25}, 1, 1e-15);
  assert_true(m.y[2] == -INFINITY && m.dx[1] == 0);
}

static mixed random_rows(void) {
  rng r = {7};
  mixed m = {.n = ROWS, .c = CLASSES, .k = NEIGHBOURS};
  for (int i = 0; i < ROWS * CLASSES; i++) m.x[i] = 3 * rng_normal(&r), m.up[i] = rng_normal(&r);
  for (int i = 0; i < ROWS * NEIGHBOURS; i++)
    m.distance[i] = 50 * rng_uniform(&r), m.token[i] = rng_below(&r, CLASSES);
  return m;
}
static void every_way(void **state) {
  mixed a = random_rows();
  run(&a, NULL, .25, 2);
  for (way w = {0}; next_way(&w);) {
    mixed b = random_rows();
    run(&b, w.ctx, .25, 2);
    assert_memory_equal(&a, &b, sizeof a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example),
      cmocka_unit_test(the_ends),
      cmocka_unit_test(absent_and_bad),
      cmocka_unit_test(every_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
