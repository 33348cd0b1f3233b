/* basis_aware.c - proves that basis-aware acceptance decides as a search of all vertices does, the
 * same on any number of threads, and what it gives at its edges. SciPy's HiGHS decides larger
 * programs: python/tests/test_sample.py. */
#include <string.h>

#include "tensors.h"
#include "util.h"

enum { N = 6, C = 2, M = C + 1, ROWS = 40 };

/* ---- all vertices ---- */

/* Solves M equations whose last column is the right side; false: they depend on each other. */
static bool solve(long double a[M][M + 1], long double *x) {
  for (int k = 0; k < M; k++) {
    int top = k;
    for (int i = k; i < M; i++) top = fabsl(a[i][k]) > fabsl(a[top][k]) ? i : top;
    if (fabsl(a[top][k]) < 1e-12L) return false;
    for (int j = 0; j <= M; j++) {
      const long double kept = a[k][j];
      a[k][j] = a[top][j], a[top][j] = kept;
    }
    for (int i = 0; i < M; i++)
      for (int j = M; i != k && j >= k; j--) a[i][j] -= a[i][k] / a[k][k] * a[k][j];
  }
  for (int k = 0; k < M; k++) x[k] = a[k][M] / a[k][k];
  return true;
}

/* Whether three of the tokens can make up what the others lack, each of which has 0 or its most. */
static bool vertex(const double *p, const double (*w)[C], const long double *most, const int *free_token,
                   int full) {
  long double a[M][M + 1] = {{0}}, x[M];
  for (int i = 0; i < N; i++) {
    int place = -1;
    for (int k = 0; k < M; k++) place = free_token[k] == i ? k : place;
    for (int j = 0; j < M; j++) {
      const long double at = j ? w[i][j - 1] : 1;
      a[j][M] += at * p[i] - (place < 0 && full >> i & 1 ? at * most[i] : 0);
      if (place >= 0) a[j][place] = at;
    }
  }
  if (!solve(a, x)) return false;
  for (int k = 0; k < M; k++)
    if (x[k] < -1e-12L || x[k] > most[free_token[k]] + 1e-12L) return false;
  return true;
}
static bool has_solution(const double *p, const double (*w)[C], int token, double eta) {
  long double most[N];
  for (int i = 0; i < N; i++) most[i] = i == token ? 0 : p[i] / (1 - (long double)eta);
  for (int a = 0; a < N; a++)
    for (int b = a + 1; b < N; b++)
      for (int c = b + 1; c < N; c++)
        for (int full = 0; full < 1 << N; full++)
          if (vertex(p, w, most, (int[]){a, b, c}, full)) return true;
  return false;
}

/* ---- calls ---- */

static smx_status accept(smx_context *ctx, const smx_tensor *x, const smx_tensor *basis,
                         const smx_tensor *token, double eta, const smx_tensor *accepted,
                         const smx_tensor *index) {
  const smx_op *op = smx_op_find("basis_aware_accept");
  const smx_tensor *in[] = {x, basis, token}, *out[] = {accepted, index};
  smx_params params;
  smx_params_init(op, &params);
  params.value[0] = eta;
  return smx_forward(op, ctx, &params, 3, in, 2, out);
}

static double x[ROWS][N], w[N][C];
static int64_t token[ROWS][N], accepted[ROWS][N], first[ROWS];
static int64_t rows_n[] = {ROWS, N}, rows_c[] = {N, C};

static void decisions_are_those_of_a_search(void **state) {
  rng r = {7};
  const smx_tensor X = F64(x, 2, rows_n), W = F64(w, 2, rows_c), T = tensor(token, SMX_I64, 2, rows_n),
                   A = tensor(accepted, SMX_I64, 2, rows_n), I = tensor(first, SMX_I64, 1, rows_n);
  int by_basis = 0, left_out = 0;
  for (int i = 0; i < N * C; i++) w[i / C][i % C] = rng_normal(&r);
  for (int i = 0; i < ROWS * N; i++) x[i / N][i % N] = exp(1.5 * rng_normal(&r)), token[i / N][i % N] = i % N;
  for (int i = 0; i < ROWS; i++) {
    double sum = 0;
    for (int k = 0; k < N; k++) sum += x[i][k];
    for (int k = 0; k < N; k++) x[i][k] /= sum;
  }
  for (int e = 0; e < 3; e++)
    for (way at = {0}; next_way(&at);) {
      const double eta = (double[]){0.02, 0.2, 0.5}[e];
      assert_int_equal(accept(at.ctx, &X, &W, &T, eta, &A, &I), SMX_OK);
      for (int i = 0; at.number == 1 && i < ROWS * N; i++) {
        const double *p = x[i / N];
        const bool wanted = p[i % N] >= eta || !has_solution(p, (const double(*)[C])w, i % N, eta);
        if (accepted[i / N][i % N] != wanted)
          fail_msg("row %d, token %d at %g: %d", i / N, i % N, eta, wanted);
        by_basis += wanted && p[i % N] < eta, left_out += !wanted;
      }
      static int64_t kept[ROWS][N];
      if (at.number == 1) memcpy(kept, accepted, sizeof kept);
      assert_memory_equal(kept, accepted, sizeof kept);
    }
  assert_true(by_basis > 20 && left_out > 20);
}

/* The paper's example; no column, where it is a threshold; all columns, where nothing is cut. */
static void known_answers(void **state) {
  double p[] = {0.3, 0.4, 0.3}, one[] = {1, 0, -1}, skewed[] = {0.6, 0.25, 0.1, 0.05}, eye[16] = {0};
  int64_t n[] = {3}, basis[] = {3, 1}, all[] = {0, 1, 2, 3}, four[] = {4}, none[] = {4, 0}, square[] = {4, 4},
          got[4], index, middle = 1, single[] = {1};
  for (int i = 0; i < 4; i++) eye[5 * i] = 1;
  const smx_tensor P = F64(p, 1, n), W = F64(one, 2, basis), T = tensor(&middle, SMX_I64, 1, single),
                   A = tensor(got, SMX_I64, 1, single), I = tensor(&index, SMX_I64, 0, NULL);
  assert_int_equal(accept(NULL, &P, &W, &T, 0.05, &A, &I), SMX_OK);
  assert_int_equal(got[0], 1);
  assert_int_equal(accept(NULL, &P, &W, &T, 0.5, &A, &I), SMX_OK);
  assert_int_equal(got[0], 0);
  assert_int_equal(index, 1); /* the likeliest */
  const smx_tensor S = F64(skewed, 1, four), None = F64(eye, 2, none), Eye = F64(eye, 2, square),
                   Each = tensor(all, SMX_I64, 1, four), Four = tensor(got, SMX_I64, 1, four);
  assert_int_equal(accept(NULL, &S, &None, &Each, 0.08, &Four, NULL), SMX_OK);
  for (int i = 0; i < 4; i++) assert_int_equal(got[i], skewed[i] > 0.08);
  assert_int_equal(accept(NULL, &S, &Eye, &Each, 0.9, &Four, NULL), SMX_OK);
  for (int i = 0; i < 4; i++) assert_int_equal(got[i], 1);
}

/* What is no token, has no probability, or stands in a row or beside a basis that is no number. */
static void what_is_never_accepted(void **state) {
  static const double bad[] = {NAN, INFINITY, -1e-300};
  double p[] = {0.5, 0, 0.5}, one[] = {1, 0, -1};
  int64_t n[] = {3}, basis[] = {3, 1}, tokens[] = {-1, 3, 1, 0, INT64_MIN}, got[5], five[] = {5}, index;
  const smx_tensor P = F64(p, 1, n), W = F64(one, 2, basis), T = tensor(tokens, SMX_I64, 1, five),
                   A = tensor(got, SMX_I64, 1, five), I = tensor(&index, SMX_I64, 0, NULL);
  assert_int_equal(accept(NULL, &P, &W, &T, 0, &A, &I), SMX_OK);
  for (int i = 0; i < 5; i++) assert_int_equal(got[i], i == 3);
  assert_int_equal(index, 0);
  for (int b = 0; b < 5; b++) { /* a basis may have negative numbers */
    double *place = b < 3 ? p + 1 : one + 1;
    const double kept = *place;
    *place = bad[b % 3];
    assert_int_equal(accept(NULL, &P, &W, &T, 0, &A, &I), SMX_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(got[i], 0);
    assert_int_equal(index, -1);
    *place = kept;
  }
  n[0] = basis[0] = 0; /* no token at all */
  assert_int_equal(accept(NULL, &P, &W, &T, 0.5, &A, &I), SMX_OK);
  for (int i = 0; i < 5; i++) assert_int_equal(got[i], 0);
  assert_int_equal(index, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decisions_are_those_of_a_search),
      cmocka_unit_test(known_answers),
      cmocka_unit_test(what_is_never_accepted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
