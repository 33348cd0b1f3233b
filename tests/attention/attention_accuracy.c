/* attention_accuracy.c - proves the bounds of docs/numerics.md on softmax attention against exact
 * dot products. With u = 2^-24, c(d) = d + 2 below a width of 128 and 66 + d / 64 from there on,
 * and M = scale max_j |q||k_j|, the largest of a row:
 *   |lse - exact|  <=  u (c(d) M + 4 max(|lse|, 1)),
 *   |o - exact|  <=  u (2 c(d) M + 64) sum |w v|  + the same
 * over again for each 1024 keys. M is of |q| and |k|, not of the scores: where they cancel,
 * rounding stays. Rows: normal ones; scaled up to scores of hundreds; with massive channels as
 * activations of transformers have them (two columns some twenty times as large as others, of one
 * sign); adversarial ones whose products cancel in pairs, or are lost each, below half a unit of
 * the sum so far; and those of three heads of a sentence encoder (activations/README.md). Prints
 * the worst error as a share of its bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention_case.h"
#include "unit.h"

#define U 0x1p-24

enum { NORMAL, LARGE, MASSIVE, CANCELLING, LOSING, KINDS_OF_ROWS };
static const char *const names[KINDS_OF_ROWS] = {"normal", "large", "massive", "cancelling", "losing"};

static double chain_bound(int64_t d) { return d < 128 ? (double)d + 2 : 66 + (double)d / 64; }

/* Values of one tensor of rows of n. */
static void rows(rng *r, double *x, int64_t count, int64_t n, int kind, int key) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t c = 0; c < n; c++) {
      double v = rng_normal(r) * (kind == LARGE ? 4 : 1);
      if (kind == MASSIVE && (c == n / 3 || c == n / 2)) v = 20 + 3 * v;
      if (kind == CANCELLING && c % 2 && key) v = -x[i * n + c - 1] * (1 + 1e-6 * rng_normal(r));
      if (kind == CANCELLING && c % 2 && !key) v = x[i * n + c - 1];
      if (kind == LOSING) v = key && c % 64 ? 0x1.fap-25 : 1;
      x[i * n + c] = dtype_round(SMX_F32, kind == CANCELLING && c % 2 == 0 ? 16 * v : v);
    }
}

/* Errors as shares of their bounds, and in units of u sum |w v| and u max(|lse|, 1). */
typedef struct shares {
  double o, lse, o_units, lse_units;
} shares;

static double length(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; c++) sum += x[c] * x[c];
  return sqrt(sum);
}

/* One row against the formula in long double. */
static void compare(const acase *a, const results *r, int64_t i, shares *worst) {
  const long double scale = 1 / sqrtl((long double)a->d);
  long double *z = malloc((size_t)a->lk * sizeof *z), top = -INFINITY, sum = 0;
  double longest = 0;
  for (int64_t j = 0; j < a->lk; j++) {
    z[j] = 0;
    for (int64_t c = 0; c < a->d; c++) z[j] += (long double)a->q[i * a->d + c] * a->k[j * a->d + c];
    z[j] *= scale, top = fmaxl(top, z[j]);
    longest = fmax(longest, length(a->k + j * a->d, a->d));
  }
  for (int64_t j = 0; j < a->lk; j++) sum += expl(z[j] - top);
  const double m = (double)scale * length(a->q + i * a->d, a->d) * longest, lse = (double)(top + logl(sum));
  const double delta = chain_bound(a->d) * m, splits = 1 + (double)a->lk / 1024;
  const double lse_error = fabs(result_at(SMX_F32, r->lse, i) - lse) / U, lse_size = fmax(fabs(lse), 1);
  worst->lse = fmax(worst->lse, lse_error / (delta + 4 * lse_size));
  worst->lse_units = fmax(worst->lse_units, lse_error / lse_size);
  for (int64_t x = 0; x < a->e; x++) {
    long double o = 0, size = 0;
    for (int64_t j = 0; j < a->lk; j++) {
      const long double w = expl(z[j] - top) / sum * a->v[j * a->e + x];
      o += w, size += fabsl(w);
    }
    const double error = fabs(result_at(SMX_F32, r->o, i * a->e + x) - (double)o);
    worst->o = fmax(worst->o, error / (U * (2 * delta + 64) * splits * (double)size));
    worst->o_units = fmax(worst->o_units, error / (U * (double)size));
  }
  free(z);
}

static shares measure(int kind, int64_t d, int64_t lk) {
  shares worst = {0};
  acase a = acase_new(1, 1, 1, 6, lk, d, 16);
  rng r = {(uint64_t)(d * 4 + kind)};
  results got;
  acase_fill(&a, 1, 1);
  rows(&r, a.q, a.lq, d, kind, 0), rows(&r, a.k, lk, d, kind, 1);
  assert_int_equal(acase_run(&a, NULL, ORDER_BHLD, &got), 0);
  for (int64_t i = 0; i < a.lq; i++) compare(&a, &got, i, &worst);
  results_free(&got);
  acase_free(&a);
  return worst;
}

static void errors_are_within_their_bounds(void **state) {
  static const int64_t widths[] = {1, 8, 32, 64, 127, 128, 200, 256, 512};
  int failures = 0;
  for (int kind = 0; kind < KINDS_OF_ROWS; kind++)
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
      const shares few = measure(kind, widths[w], 70), many = measure(kind, widths[w], 2100);
      const double o = fmax(few.o, many.o), lse = fmax(few.lse, many.lse);
      const int bad = !(o <= 1 && lse <= 1);
      printf("%-10s d %3d: o %.3f, lse %.3f of the bound%s\n", names[kind], (int)widths[w], o, lse,
             bad ? "  <--" : "");
      failures += bad;
    }
  assert_int_equal(failures, 0);
}

/* ---- a transformer's own rows ---- */

static void read_rows(FILE *file, double *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float v;
    assert_int_equal(fread(&v, sizeof v, 1, file), 1);
    x[i] = (double)v;
  }
}

static void activations_are_within_the_bounds(void **state) {
  enum { TOKENS = 64, WIDTH = 32 };
  static const char *const heads[] = {"layer 0, head 2", "layer 1, head 11", "layer 5, head 10"};
  FILE *file = fopen(SMX_SOURCE_DIR "/tests/attention/activations/minilm.f32", "rb");
  assert_non_null(file);
  int failures = 0;
  for (size_t h = 0; h < COUNT_OF(heads); h++) {
    shares worst = {0};
    acase a = acase_new(1, 1, 1, TOKENS, TOKENS, WIDTH, WIDTH);
    results got;
    acase_fill(&a, 1, 1);
    read_rows(file, a.q, TOKENS * WIDTH), read_rows(file, a.k, TOKENS * WIDTH);
    read_rows(file, a.v, TOKENS * WIDTH);
    assert_int_equal(acase_run(&a, NULL, ORDER_BHLD, &got), 0);
    for (int64_t i = 0; i < TOKENS; i++) compare(&a, &got, i, &worst);
    const int bad = !(worst.o <= 1 && worst.lse <= 1);
    printf("MiniLM %-16s o %.3f, lse %.3f of the bound: %.1f u sum |w v|, %.1f u max(|lse|, 1)%s\n", heads[h],
           worst.o, worst.lse, worst.o_units, worst.lse_units, bad ? "  <--" : "");
    failures += bad;
    results_free(&got);
    acase_free(&a);
  }
  fclose(file);
  assert_int_equal(failures, 0);
}

/* Root mean square of the error of scores in units of u |q||k| scale: one chain over 512 columns
 * has some 9. */
static void wide_heads_are_no_worse_than_narrow_ones(void **state) {
  double square[2] = {0, 0};
  static const int64_t widths[] = {127, 512};
  for (int w = 0; w < 2; w++) {
    acase a = acase_new(1, 1, 1, 40, 1, widths[w], 1);
    results r;
    rng g = {5};
    acase_fill(&a, 1, 1);
    rows(&g, a.q, a.lq, a.d, NORMAL, 0), rows(&g, a.k, 1, a.d, NORMAL, 1);
    for (int64_t c = 0; c < a.lq * a.d; c++) a.q[c] = fabs(a.q[c]);
    for (int64_t c = 0; c < a.d; c++) a.k[c] = fabs(a.k[c]);
    assert_int_equal(acase_run(&a, NULL, ORDER_BHLD, &r), 0);
    for (int64_t i = 0; i < a.lq; i++) {
      long double z = 0;
      for (int64_t c = 0; c < a.d; c++) z += (long double)a.q[i * a.d + c] * a.k[c];
      z /= sqrtl((long double)a.d);
      square[w] += pow((result_at(SMX_F32, r.lse, i) - (double)z) / (U * (double)z), 2) / (double)a.lq;
    }
    results_free(&r);
    acase_free(&a);
  }
  printf("rms of a score whose products are of one sign: %.2f u at 127 columns, %.2f at 512\n",
         sqrt(square[0]), sqrt(square[1]));
  assert_true(square[1] <= square[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_are_within_their_bounds),
      cmocka_unit_test(activations_are_within_the_bounds),
      cmocka_unit_test(wide_heads_are_no_worse_than_narrow_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
