/* matrix.c - proves the functions that take matrices: Sinkhorn's steps and limit, Q * Q, the smooth
 * maximum, softmax regression. Values of the papers' formulas; gradients against differences; the
 * same bits for every instruction set, number of threads and layout; NaN, masks, bad arguments. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "problem.h"
#include "tensors.h"

static double cost[] = {1, 2, 3, 0, 1, 0, 2, 0, 1}, up[] = {1, -2, 0.5, 0, 1, 2, -1, 3, 0.25};
static int64_t square[] = {3, 3};

/* By mpmath from the formulas. */
static void sinkhorn_has_known_values(void **state) {
  static const double third[] = {0.09749818656, 0.2814193518, 0.6210824616};
  static const double limit[] = {0.0994305659, 0.2881185326, 0.6124509015, 0.2113586348, 0.6124509015,
                                 0.1761904637, 0.6892107993, 0.0994305659, 0.2113586348};
  static const double slope[] = {0.234815134641,   -0.363127745499, 0.128312610858,
                                 -0.0618944385723, 0.0521921862065, 0.00970225236573,
                                 -0.172920696069,  0.310935559293,  -0.138014863224};
  double y[9], dx[9];
  smx_tensor X = F64(cost, 2, square), Y = F64(y, 2, square), G = F64(up, 2, square), D = F64(dx, 2, square);
  assert_int_equal(smx_sinkhorn(NULL, 3, &X, &Y), SMX_OK);
  near(y, third, 3, 1e-10);
  assert_int_equal(smx_sinkhorn(NULL, 201, &X, &Y), SMX_OK);
  near(y, limit, 9, 1e-10);
  assert_int_equal(smx_sinkhorn_implicit(NULL, &Y, &G, &D), SMX_OK);
  near(dx, slope, 9, 1e-11);
  assert_int_equal(smx_sinkhorn_backward(NULL, 201, &X, &G, &D), SMX_OK);
  near(dx, slope, 9, 1e-11);
}

/* dx of sum dy y against differences in f64, for few steps and a matrix that is not square. */
static void sinkhorn_has_the_gradient_of_its_steps(void **state) {
  enum { R = 4, C = 7 };
  int64_t shape[] = {R, C};
  double x[R * C], dy[R * C], dx[R * C], y[R * C];
  rng r = {5};
  for (int i = 0; i < R * C; i++) x[i] = 2 * rng_normal(&r), dy[i] = rng_normal(&r);
  x[9] = -INFINITY, dy[9] = NAN;
  smx_tensor X = F64(x, 2, shape), Y = F64(y, 2, shape), G = F64(dy, 2, shape), D = F64(dx, 2, shape);
  for (int32_t steps = 1; steps <= 6; steps++) {
    assert_int_equal(smx_sinkhorn_backward(NULL, steps, &X, &G, &D), SMX_OK);
    assert_true(dx[9] == 0);
    for (int i = 0; i < R * C; i++) {
      const double at = x[i], h = 1e-6;
      double sum = 0;
      if (i == 9) continue;
      for (int side = -1; side <= 1; side += 2) {
        x[i] = at + side * h;
        assert_int_equal(smx_sinkhorn(NULL, steps, &X, &Y), SMX_OK);
        for (int k = 0; k < R * C; k++) sum += k == 9 ? 0 : side * dy[k] * y[k];
      }
      x[i] = at;
      if (!(fabs(sum / (2 * h) - dx[i]) < 1e-7))
        fail_msg("%d steps: element %d: %g, not %g", (int)steps, i, dx[i], sum / (2 * h));
    }
  }
  double unrolled[R * C];
  smx_tensor U = F64(unrolled, 2, shape);
  assert_int_equal(smx_sinkhorn(NULL, 999, &X, &Y), SMX_OK);
  assert_int_equal(smx_sinkhorn_implicit(NULL, &Y, &G, &D), SMX_OK);
  assert_int_equal(smx_sinkhorn_backward(NULL, 999, &X, &G, &U), SMX_OK);
  near(dx, unrolled, R * C, 1e-9);
}

/* Blocks that do not touch have a constant of their own each; the gradient of the whole is that of
 * its blocks. */
static void blocks_do_not_touch(void **state) {
  int64_t whole[] = {4, 4}, part[] = {2, 2};
  double x[16], dy[16], y[16], dx[16], px[4], pg[4], py[4], pd[4];
  for (int i = 0; i < 16; i++)
    x[i] = i / 4 / 2 == i % 4 / 2 ? 0.3 * i - 0.1 * (i % 3) : -INFINITY, dy[i] = (i * 7 % 5) - 2;
  smx_tensor X = F64(x, 2, whole), Y = F64(y, 2, whole), G = F64(dy, 2, whole), D = F64(dx, 2, whole);
  smx_tensor PX = F64(px, 2, part), PY = F64(py, 2, part), PG = F64(pg, 2, part), PD = F64(pd, 2, part);
  assert_int_equal(smx_sinkhorn(NULL, 301, &X, &Y), SMX_OK);
  assert_int_equal(smx_sinkhorn_implicit(NULL, &Y, &G, &D), SMX_OK);
  for (int b = 0; b < 2; b++) {
    for (int i = 0; i < 4; i++)
      px[i] = x[(2 * b + i / 2) * 4 + 2 * b + i % 2], pg[i] = dy[(2 * b + i / 2) * 4 + 2 * b + i % 2];
    assert_int_equal(smx_sinkhorn(NULL, 301, &PX, &PY), SMX_OK);
    assert_int_equal(smx_sinkhorn_implicit(NULL, &PY, &PG, &PD), SMX_OK);
    for (int i = 0; i < 4; i++) assert_true(fabs(pd[i] - dx[(2 * b + i / 2) * 4 + 2 * b + i % 2]) < 1e-12);
  }
}

enum { BATCH = 3, ROWS = 37, COLUMNS = 70, CELLS = BATCH * ROWS * COLUMNS };

/* Every way of calling: forward, both gradients, in f32; y, dx, dx after one another. */
static void sinkhorn_all(smx_context *ctx, float *x, float *dy, int64_t *strides, float *out) {
  int64_t shape[] = {BATCH, ROWS, COLUMNS};
  smx_tensor X = tensor(x, SMX_F32, 3, shape), G = tensor(dy, SMX_F32, 3, shape),
             Y = tensor(out, SMX_F32, 3, shape);
  smx_tensor D = tensor(out + CELLS, SMX_F32, 3, shape), I = tensor(out + 2 * CELLS, SMX_F32, 3, shape);
  X.strides = G.strides = strides;
  assert_int_equal(smx_sinkhorn(ctx, 5, &X, &Y), SMX_OK);
  assert_int_equal(smx_sinkhorn_backward(ctx, 5, &X, &G, &D), SMX_OK);
  assert_int_equal(smx_sinkhorn_implicit(ctx, &Y, &G, &I), SMX_OK);
}

static void sinkhorn_has_the_same_bits(void **state) {
  static float x[CELLS], dy[CELLS], tx[CELLS], tdy[CELLS], want[3 * CELLS], have[3 * CELLS];
  int64_t turned[] = {ROWS * COLUMNS, 1, ROWS};
  rng r = {3};
  for (int i = 0; i < CELLS; i++) x[i] = (float)(3 * rng_normal(&r)), dy[i] = (float)rng_normal(&r);
  x[5] = -INFINITY, dy[5] = NAN;
  x[ROWS * COLUMNS + 11] = NAN; /* the second matrix */
  for (int i = 0; i < CELLS; i++) {
    const int b = i / (ROWS * COLUMNS), at = i % (ROWS * COLUMNS),
              to = b * ROWS * COLUMNS + at % COLUMNS * ROWS + at / COLUMNS;
    tx[to] = x[i], tdy[to] = dy[i];
  }
  sinkhorn_all(NULL, x, dy, NULL, want);
  for (int i = 0; i < 3 * CELLS; i++) assert_true(isnan(want[i]) == (i % CELLS / (ROWS * COLUMNS) == 1));
  for (way w = {0}; next_way(&w);) {
    sinkhorn_all(w.ctx, x, dy, NULL, have);
    assert_memory_equal(have, want, sizeof want);
    sinkhorn_all(w.ctx, tx, tdy, turned, have);
    assert_memory_equal(have, want, sizeof want);
  }
}

static void sinkhorn_refuses(void **state) {
  double y[9] = {7}, dx[9];
  int64_t other[] = {3, 2}, one[] = {9};
  smx_tensor X = F64(cost, 2, square), Y = F64(y, 2, square), Z = F64(y, 2, other), V = F64(cost, 1, one),
             D = F64(dx, 2, square);
  assert_int_equal(smx_sinkhorn(NULL, 0, &X, &Y), SMX_ERR_PARAM);
  assert_non_null(strstr(smx_last_error(), "steps is 0"));
  assert_int_equal(smx_sinkhorn(NULL, 3, NULL, &Y), SMX_ERR_NULL);
  assert_int_equal(smx_sinkhorn(NULL, 3, &X, &Z), SMX_ERR_SHAPE);
  assert_non_null(strstr(smx_last_error(), "y: shape[1] is 2, not 3"));
  assert_int_equal(smx_sinkhorn(NULL, 3, &V, &V), SMX_ERR_SHAPE);
  assert_int_equal(smx_sinkhorn_implicit(NULL, &X, &X, &X), SMX_ERR_ALIAS);
  assert_true(y[0] == 7);
  double nothing[9];
  for (int i = 0; i < 9; i++) nothing[i] = -INFINITY;
  smx_tensor N = F64(nothing, 2, square);
  assert_int_equal(smx_sinkhorn(NULL, 4, &N, &Y), SMX_OK);
  assert_int_equal(smx_sinkhorn_implicit(NULL, &Y, &X, &D), SMX_OK);
  for (int i = 0; i < 9; i++) assert_true(y[i] == 0 && dx[i] == 0);
  smx_context_options options = {.size = sizeof options, .on_empty = SMX_EMPTY_ERROR};
  smx_context *ctx;
  assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
  y[0] = 7;
  assert_int_equal(smx_sinkhorn(ctx, 4, &N, &Y), SMX_ERR_EMPTY);
  assert_true(y[0] == 7);
  smx_context_destroy(ctx);
}

/* ---- Q * Q ---- */

static void orthostochastic_has_known_values(void **state) {
  static const double want[] = {0.2, 0.609523809524, 0.190476190476, 0, 0.238095238095, 0.761904761905,
                                0.8, 0.152380952381, 0.047619047619};
  static const double slope[] = {1.87265306122449, 0.73469387755102, -0.936326530612245};
  double y[9], dx[9];
  smx_tensor X = F64(cost, 2, square), Y = F64(y, 2, square), G = F64(up, 2, square), D = F64(dx, 2, square);
  assert_int_equal(smx_orthostochastic(NULL, &X, &Y), SMX_OK);
  near(y, want, 9, 1e-12);
  assert_int_equal(smx_orthostochastic_backward(NULL, &X, &G, &D), SMX_OK);
  for (int i = 0; i < 3; i++) near(dx + 3 * i, slope + i, 1, 1e-13), assert_true(dx[3 * i + 2] == 0);
}

/* Two matrices, the second far larger: gradients against differences, sums of rows and columns, the
 * same bits from threads and strides. */
static void orthostochastic_holds(void **state) {
  enum { K = 6, ALL = 2 * K * K };
  int64_t shape[] = {2, K, K}, turn[] = {K * K, 1, K};
  double x[ALL], dy[ALL], y[ALL], dx[ALL], tx[ALL], tdy[ALL], have[2 * ALL];
  rng r = {17};
  for (int i = 0; i < ALL; i++) x[i] = rng_normal(&r) * (i < K * K ? 1 : 1e200), dy[i] = rng_normal(&r);
  for (int i = 0; i < ALL; i++) {
    const int to = i / (K * K) * K * K + i % K * K + i / K % K;
    tx[to] = x[i], tdy[to] = dy[i];
  }
  smx_tensor X = F64(x, 3, shape), G = F64(dy, 3, shape), Y = F64(y, 3, shape), D = F64(dx, 3, shape);
  smx_tensor TX = F64(tx, 3, shape), TG = F64(tdy, 3, shape), HY = F64(have, 3, shape),
             HD = F64(have + ALL, 3, shape);
  TX.strides = TG.strides = turn;
  assert_int_equal(smx_orthostochastic_backward(NULL, &X, &G, &D), SMX_OK);
  for (int i = 0; i < K * K; i++) {
    const double at = x[i], h = 1e-6;
    double sum = 0;
    for (int side = -1; side <= 1; side += 2) {
      x[i] = at + side * h;
      assert_int_equal(smx_orthostochastic(NULL, &X, &Y), SMX_OK);
      for (int k = 0; k < K * K; k++) sum += side * dy[k] * y[k];
    }
    x[i] = at;
    assert_true(fabs(sum / (2 * h) - dx[i]) < 1e-6 * (1 + fabs(dx[i])));
  }
  assert_int_equal(smx_orthostochastic(NULL, &X, &Y), SMX_OK);
  for (int i = 0; i < 2 * K; i++) {
    double row = 0, column = 0;
    for (int k = 0; k < K; k++) row += y[i * K + k], column += y[i / K * K * K + k * K + i % K];
    assert_true(fabs(row - 1) < 1e-14 && fabs(column - 1) < 1e-14);
  }
  smx_context_options options = {.size = sizeof options, .threads = 2};
  smx_context *ctx;
  assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
  assert_int_equal(smx_orthostochastic(ctx, &TX, &HY), SMX_OK);
  assert_int_equal(smx_orthostochastic_backward(ctx, &TX, &TG, &HD), SMX_OK);
  assert_memory_equal(have, y, sizeof y);
  assert_memory_equal(have + ALL, dx, sizeof dx);
  smx_context_destroy(ctx);
  for (int i = 0; i < K; i++) x[i * K + 1] = 3 * x[i * K]; /* the first matrix has no gradient now */
  x[K * K] = NAN;
  assert_int_equal(smx_orthostochastic(NULL, &X, &Y), SMX_OK);
  assert_int_equal(smx_orthostochastic_backward(NULL, &X, &G, &D), SMX_OK);
  for (int i = 0; i < ALL; i++) assert_true(isnan(dx[i]) && isnan(y[i]) == (i >= K * K));
  assert_int_equal(smx_orthostochastic(NULL, &X, &X), SMX_ERR_ALIAS);
  shape[1] = 3;
  assert_int_equal(smx_orthostochastic(NULL, &X, &Y), SMX_ERR_SHAPE);
  assert_non_null(strstr(smx_last_error(), "x: 3 rows of 6 are not square"));
}

/* ---- functions of A x ---- */

static double a32[] = {1, 2, 0, -1, 3, 1}, x2[] = {0.2, -0.1}, v2[] = {1, -2};
static int64_t s32[] = {3, 2}, s3[] = {3}, s2[] = {2};

static void objectives_have_known_values(void **state) {
  static const double g[] = {0.751863174830844, -0.0601710314614451},
                      h[] = {-1.31155799832323, -4.27096860981199}, b[] = {0, -4.37593158741542},
                      t[] = {0.43774185636448, 20.25416775635};
  static const double rg[] = {-0.0455303256455741, 0.0175410553968112},
                      rh[] = {0.111755712277728, -0.610134353315594};
  double b3[] = {0.5, 0, 1}, c3[] = {0.2, 0.3, 0.5}, f, out[4][2];
  smx_tensor A = F64(a32, 2, s32), B = F64(b3, 1, s3), C = F64(c3, 1, s3), X = F64(x2, 1, s2),
             V = F64(v2, 1, s2);
  smx_tensor O[] = {F64(out[0], 1, s2), F64(out[1], 1, s2), F64(out[2], 1, s2), F64(out[3], 1, s2)};
  assert_int_equal(smx_logsumexp_objective(NULL, 0.5, &A, &B, &X, &V, &f, O, O + 1, O + 2, O + 3), SMX_OK);
  assert_true(fabs(f - 0.335747640535019) < 1e-14);
  near(out[0], g, 2, 1e-14);
  near(out[1], h, 2, 1e-13);
  near(out[2], b, 2, 1e-13);
  near(out[3], t, 2, 1e-11);
  assert_int_equal(smx_softmax_regression(NULL, &A, &C, &X, &V, &f, O, O + 1), SMX_OK);
  assert_true(fabs(f - 0.00406759890069769) < 1e-15);
  near(out[0], rg, 2, 1e-14);
  near(out[1], rh, 2, 1e-14);
}

enum { M = 1000, N = 45 };
static float big[M * N], turned[M * N], at_x[N], by_v[N], minus[M];

static void objectives_all(smx_context *ctx, float *a, int64_t *strides, double *f, float *out) {
  int64_t mn[] = {M, N}, m[] = {M}, n[] = {N};
  smx_tensor A = tensor(a, SMX_F32, 2, mn), B = tensor(minus, SMX_F32, 1, m), X = tensor(at_x, SMX_F32, 1, n),
             V = tensor(by_v, SMX_F32, 1, n), O[6];
  A.strides = strides;
  for (int i = 0; i < 6; i++) O[i] = tensor(out + i * N, SMX_F32, 1, n);
  assert_int_equal(smx_logsumexp_objective(ctx, 0.7, &A, &B, &X, &V, f, O, O + 1, O + 2, O + 3), SMX_OK);
  assert_int_equal(smx_softmax_regression(ctx, &A, &B, &X, &V, f + 1, O + 4, O + 5), SMX_OK);
}

static void objectives_have_the_same_bits(void **state) {
  int64_t strides[] = {1, M};
  float want[6 * N], have[6 * N];
  double f[2], g[2];
  rng r = {11};
  for (int i = 0; i < M * N; i++) turned[i % N * M + i / N] = big[i] = (float)rng_normal(&r);
  for (int i = 0; i < N; i++) at_x[i] = (float)(0.3 * rng_normal(&r)), by_v[i] = (float)rng_normal(&r);
  for (int i = 0; i < M; i++) minus[i] = (float)rng_uniform(&r) / M;
  minus[17] = INFINITY; /* of the maximum, this row is not there */
  objectives_all(NULL, big, NULL, f, want);
  for (int i = 0; i < 4 * N; i++) assert_true(isfinite(want[i]));
  minus[17] = 0;
  objectives_all(NULL, big, NULL, f, want);
  for (way w = {0}; next_way(&w);) {
    for (int axes = 0; axes < 2; axes++) {
      objectives_all(w.ctx, axes ? turned : big, axes ? strides : NULL, g, have);
      assert_memory_equal(have, want, sizeof want);
      assert_memory_equal(f, g, sizeof f);
    }
  }
  big[77] = NAN;
  objectives_all(NULL, big, NULL, g, have);
  for (int i = 0; i < 6 * N; i++) assert_true(isnan(have[i]));
  assert_true(isnan(g[0]) && isnan(g[1]));
}

/* Gradients are the differences of f, and Hessians those of gradients. */
static void objectives_fit_their_differences(void **state) {
  double b3[] = {0.5, 0, 1}, c3[] = {0.2, 0.3, 0.5}, x[2], d[2][4][2], out[4][2], f[2], h = 1e-6;
  smx_tensor A = F64(a32, 2, s32), B[] = {F64(b3, 1, s3), F64(c3, 1, s3)}, X = F64(x, 1, s2),
             V = F64(v2, 1, s2);
  for (int which = 0; which < 2; which++) {
    for (int side = 0; side < 3; side++) {
      double(*to)[2] = side < 2 ? d[side] : out;
      smx_tensor O[] = {F64(to[0], 1, s2), F64(to[1], 1, s2), F64(to[2], 1, s2), F64(to[3], 1, s2)};
      double value;
      for (int k = 0; k < 2; k++) x[k] = x2[k] + (side == 0 ? -h : side == 1 ? h : 0) * v2[k];
      smx_status status =
          which ? smx_softmax_regression(NULL, &A, B + 1, &X, &V, &value, O, O + 1)
                : smx_logsumexp_objective(NULL, 0.5, &A, B, &X, &V, &value, O, O + 1, O + 2, O + 3);
      assert_int_equal(status, SMX_OK);
      if (side < 2) f[side] = value;
    }
    assert_true(fabs((f[1] - f[0]) / (2 * h) - (out[0][0] * v2[0] + out[0][1] * v2[1])) < 1e-8);
    for (int k = 0; k < 2; k++) {
      assert_true(fabs((d[1][0][k] - d[0][0][k]) / (2 * h) - out[1][k]) < 1e-8);
      if (!which) assert_true(fabs((d[1][1][k] - d[0][1][k]) / (2 * h) - out[3][k]) < 1e-7);
    }
  }
}

static void objectives_refuse(void **state) {
  double f = 7, out[3] = {7}, b3[] = {0, 0, 0};
  int64_t none[] = {0, 2}, zero[] = {0};
  smx_tensor A = F64(a32, 2, s32), B = F64(b3, 1, s3), X = F64(x2, 1, s2), O = F64(out, 1, s2),
             W = F64(out, 1, s3);
  assert_int_equal(smx_logsumexp_objective(NULL, 0, &A, &B, &X, NULL, &f, &O, NULL, NULL, NULL),
                   SMX_ERR_PARAM);
  assert_non_null(strstr(smx_last_error(), "mu is 0"));
  assert_int_equal(smx_logsumexp_objective(NULL, 1, &A, &X, &X, NULL, &f, &O, NULL, NULL, NULL),
                   SMX_ERR_SHAPE);
  assert_non_null(strstr(smx_last_error(), "b: shape[0] is 2, not 3"));
  assert_int_equal(smx_logsumexp_objective(NULL, 1, &A, &B, &X, NULL, &f, NULL, &O, NULL, NULL),
                   SMX_ERR_NULL);
  assert_non_null(strstr(smx_last_error(), "hessian_v is wanted and v is NULL"));
  assert_int_equal(smx_softmax_regression(NULL, &A, &B, &X, NULL, &f, &W, NULL), SMX_ERR_SHAPE);
  assert_int_equal(smx_softmax_regression(NULL, &A, &B, &X, NULL, &f, &X, NULL), SMX_ERR_ALIAS);
  assert_true(f == 7 && out[0] == 7);
  smx_tensor E = F64(NULL, 2, none), Z = F64(NULL, 1, zero);
  assert_int_equal(smx_logsumexp_objective(NULL, 1, &E, &Z, &X, NULL, &f, &O, NULL, NULL, NULL), SMX_OK);
  assert_true(f == -INFINITY && out[0] == 0 && out[1] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sinkhorn_has_known_values),
                                     cmocka_unit_test(sinkhorn_has_the_gradient_of_its_steps),
                                     cmocka_unit_test(blocks_do_not_touch),
                                     cmocka_unit_test(sinkhorn_has_the_same_bits),
                                     cmocka_unit_test(sinkhorn_refuses),
                                     cmocka_unit_test(orthostochastic_has_known_values),
                                     cmocka_unit_test(orthostochastic_holds),
                                     cmocka_unit_test(objectives_have_known_values),
                                     cmocka_unit_test(objectives_have_the_same_bits),
                                     cmocka_unit_test(objectives_fit_their_differences),
                                     cmocka_unit_test(objectives_refuse)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
