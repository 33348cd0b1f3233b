/* mpfr.c - proves the accuracy that the manual promises, against MPFR: softmax, logsumexp and
 * log_softmax in f32 on rows of normal * 5 logits, alone and shifted by as much as 1e30; and that
 * f16 and bf16 results are the f32 results rounded. Prints the worst errors. */
#include <mpfr.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "util.h"

enum { BITS = 240 }; /* enough for a difference of numbers near 1e30 and a sum of a million terms */

static const struct {
  size_t n, rows;
  double allowed; /* ULP of a weight */
} plans[] = {{1024, 16, 8}, {8192, 3, 10}};
static const double shifts[] = {0, 100, -100, 1e3, -1e3, 1e4, -1e4, 1e6, -1e6, 1e30, -1e30};
static const double lse_allowed = 2, log_softmax_allowed = 4;

typedef struct exact {
  double *e; /* e^(x - max), to 53 bits: eight digits more than compared */
  double max, sum;
  mpfr_t total, log_total;
} exact;

static void *allocate(size_t bytes) {
  void *p = malloc(bytes);
  assert_non_null(p);
  return p;
}

static double normal(rng *r) {
  return sqrt(-2 * log(1 - rng_uniform(r))) * cos(6.283185307179586 * rng_uniform(r));
}

static void logits(rng *r, size_t n, double shift, float *x) {
  for (size_t i = 0; i < n; i++) x[i] = (float)(5 * normal(r) + shift);
}

static void solve(exact *s, size_t n, const float *x) {
  mpfr_t t, e;
  mpfr_inits2(BITS, t, e, s->total, s->log_total, (mpfr_ptr)0);
  mpfr_set_zero(s->total, 1);
  s->e = allocate(n * sizeof *s->e);
  s->max = x[0];
  for (size_t i = 1; i < n; i++) s->max = fmax(s->max, x[i]);
  for (size_t i = 0; i < n; i++) {
    mpfr_set_d(t, x[i], MPFR_RNDN);
    mpfr_sub_d(t, t, s->max, MPFR_RNDN);
    mpfr_set_prec(e, 80); /* twice the digits that are compared, and three times as fast */
    mpfr_exp(e, t, MPFR_RNDN);
    mpfr_add(s->total, s->total, e, MPFR_RNDN);
    s->e[i] = mpfr_get_d(e, MPFR_RNDN);
  }
  s->sum = mpfr_get_d(s->total, MPFR_RNDN);
  mpfr_log(s->log_total, s->total, MPFR_RNDN);
  mpfr_clears(t, e, (mpfr_ptr)0);
}

static void clear(exact *s) {
  free(s->e);
  mpfr_clears(s->total, s->log_total, (mpfr_ptr)0);
}

/* In ULP of the exact weight; a flushed weight counts as the distance from the smallest normal
 * number. */
static double worst_weight(const exact *s, size_t n, const float *y) {
  double worst = 0;
  for (size_t i = 0; i < n; i++) {
    double want = s->e[i] / s->sum;
    if (want < 0x1.01p-126 && y[i] == 0) continue;
    worst = fmax(worst, fabs(y[i] - want) / ulp_f32(want));
  }
  return worst;
}

/* In ULP of the larger of |lse| and |max|. */
static double lse_error(const exact *s, float lse) {
  mpfr_t d;
  mpfr_init2(d, BITS);
  mpfr_add_d(d, s->log_total, s->max, MPFR_RNDN);
  double scale = fmax(fabs(mpfr_get_d(d, MPFR_RNDN)), fabs(s->max));
  mpfr_sub_d(d, d, lse, MPFR_RNDN);
  double error = fabs(mpfr_get_d(d, MPFR_RNDN)) / ulp_f32(scale);
  mpfr_clear(d);
  return error;
}

/* In ULP of the logarithm itself, however close to 0 it is. */
static double worst_log_weight(const exact *s, size_t n, const float *x, const float *y) {
  mpfr_t d;
  mpfr_init2(d, BITS);
  double worst = 0;
  for (size_t i = 0; i < n; i++) {
    mpfr_set_d(d, x[i], MPFR_RNDN);
    mpfr_sub_d(d, d, s->max, MPFR_RNDN);
    mpfr_sub(d, d, s->log_total, MPFR_RNDN);
    double want = mpfr_get_d(d, MPFR_RNDN);
    if (want != y[i]) worst = fmax(worst, fabs(y[i] - want) / ulp_f32(want));
  }
  mpfr_clear(d);
  return worst;
}

typedef struct errors {
  double weight, lse, log_weight;
} errors;

static void measure(rng *r, size_t n, double shift, errors *e) {
  float *x = allocate(n * sizeof *x), *y = allocate(n * sizeof *y), lse;
  exact s;
  logits(r, n, shift, x);
  solve(&s, n, x);
  assert_int_equal(smx_softmax_f32(1, n, x, y), SMX_OK);
  e->weight = fmax(e->weight, worst_weight(&s, n, y));
  assert_int_equal(smx_logsumexp_f32(1, n, x, &lse), SMX_OK);
  e->lse = fmax(e->lse, lse_error(&s, lse));
  assert_int_equal(smx_log_softmax_f32(1, n, x, y), SMX_OK);
  e->log_weight = fmax(e->log_weight, worst_log_weight(&s, n, x, y));
  clear(&s);
  free(x);
  free(y);
}

static int check(size_t n, double shift, const errors *e, double allowed) {
  int bad = !(e->weight <= allowed && e->lse <= lse_allowed && e->log_weight <= log_softmax_allowed);
  printf("n %8zu shift %6g: softmax %.3f of %g ULP, logsumexp %.3f of %g, log_softmax %.3f of %g%s\n", n,
         shift, e->weight, allowed, e->lse, lse_allowed, e->log_weight, log_softmax_allowed,
         bad ? "  <--" : "");
  return bad;
}

static void rows_and_shifts(void **state) {
  int failures = 0;
  rng r = {1};
  for (size_t p = 0; p < COUNT_OF(plans); p++)
    for (size_t k = 0; k < COUNT_OF(shifts); k++) {
      errors e = {0};
      for (size_t row = 0; row < plans[p].rows; row++) measure(&r, plans[p].n, shifts[k], &e);
      failures += check(plans[p].n, shifts[k], &e, plans[p].allowed);
    }
  assert_int_equal(failures, 0);
}

static void a_million(void **state) {
  rng r = {2};
  errors e = {0};
  measure(&r, 1000000, 0, &e);
  assert_int_equal(check(1000000, 0, &e, 6), 0);
}

/* The largest is far above the rest: the logarithms are close to 0 and must keep their digits. */
static void close_to_certain(void **state) {
  static const float gaps[] = {1, 5, 10, 17, 20, 40, 80};
  int failures = 0;
  for (size_t k = 0; k < COUNT_OF(gaps); k++) {
    float x[3] = {0, -gaps[k], -gaps[k] - 0.3f}, y[3], lse;
    exact s;
    errors e = {0};
    solve(&s, 3, x);
    smx_logsumexp_f32(1, 3, x, &lse);
    smx_log_softmax_f32(1, 3, x, y);
    e.lse = lse_error(&s, lse);
    e.log_weight = worst_log_weight(&s, 3, x, y);
    clear(&s);
    failures += check(3, gaps[k], &e, 8);
  }
  assert_int_equal(failures, 0);
}

static void half_types_round_once(void **state) {
  enum { N = 1024 };
  smx_status (*const half[])(size_t, size_t, const uint16_t *, uint16_t *) = {smx_softmax_f16,
                                                                              smx_softmax_bf16};
  static const smx_dtype types[] = {{2, 16, 1}, {4, 16, 1}};
  rng r = {3};
  for (size_t t = 0; t < COUNT_OF(half); t++) {
    uint16_t h[N], got[N], want[N];
    float x[N], y[N];
    for (size_t i = 0; i < N; i++) {
      dtype_store(types[t], &h[i], 5 * normal(&r));
      x[i] = (float)dtype_load(types[t], &h[i]);
    }
    assert_int_equal(smx_softmax_f32(1, N, x, y), SMX_OK);
    for (size_t i = 0; i < N; i++) dtype_store(types[t], &want[i], y[i]);
    assert_int_equal(half[t](1, N, h, got), SMX_OK);
    assert_memory_equal(got, want, sizeof want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_and_shifts),
      cmocka_unit_test(a_million),
      cmocka_unit_test(close_to_certain),
      cmocka_unit_test(half_types_round_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
