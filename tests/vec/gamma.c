/* gamma.c - proves the accuracy that src/vec/gamma.h claims, against MPFR, from the smallest normal
 * numbers to the largest. Prints the worst errors. Compiled with the portable vector layer; the
 * golden hashes show that the others compute the same. */
#include "vec/gamma.h"

#include <mpfr.h>

#include <math.h>
#include <stdio.h>

#include "unit.h"
#include "util.h"

enum { COUNT = 200000 };

typedef int exact_fn(mpfr_t to, const mpfr_t x, mpfr_rnd_t how);

/* Half of the arguments are even on a scale of logarithms, half between 0 and 20. */
static double argument(rng *r, int i) {
  return i % 2 ? 20 * rng_uniform(r) + 1e-9 : exp(1400 * rng_uniform(r) - 700);
}

static void compare(const char *what, double (*ours)(double), exact_fn *theirs, double allowed) {
  rng r = {11};
  mpfr_t x, y;
  double worst = 0, at = 0;
  mpfr_inits2(120, x, y, (mpfr_ptr)0);
  for (int i = 0; i < COUNT; i++) {
    const double v = argument(&r, i), got = ours(v);
    mpfr_set_d(x, v, MPFR_RNDN);
    theirs(y, x, MPFR_RNDN);
    const double unit = fmax(fabs(mpfr_get_d(y, MPFR_RNDN)), 1) * 0x1p-53;
    mpfr_sub_d(y, y, got, MPFR_RNDN);
    const double error = fabs(mpfr_get_d(y, MPFR_RNDN)) / unit;
    if (!(error <= worst)) worst = error, at = v;
  }
  mpfr_clears(x, y, (mpfr_ptr)0);
  printf("%s: %.1f units at %.17g\n", what, worst, at);
  assert_true(worst <= allowed);
}

static double lgamma_of(double x) { return d_lgamma(x); }
static double digamma_of(double x) { return d_digamma(x); }

static void against_mpfr(void **state) {
  compare("log gamma", lgamma_of, mpfr_lngamma, 40);
  compare("digamma", digamma_of, mpfr_digamma, 12);
}

/* Factorials, and Euler's constant. */
static void known_values(void **state) {
  double factorial = 1;
  for (int n = 1; n < 20; factorial *= n++)
    assert_true(fabs(d_lgamma(n) - log(factorial)) < 5e-15 * fmax(log(factorial), 1));
  assert_true(fabs(d_digamma(1) + 0.57721566490153286061) < 1e-15);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(against_mpfr), cmocka_unit_test(known_values)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
