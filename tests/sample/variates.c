/* variates.c - proves that the random variates are those of their definition: values from an
 * independent program, the extreme words of the generator, and Kolmogorov-Smirnov distances of
 * 100000 of each kind, at a level of 1e-6. Compiled with the portable vector layer;
 * tests/sample/sample.c shows that the others draw the same. */
#include "vec/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

enum { COUNT = 100000 };

static void expect(const char *what, double got, double want) {
  if (fabs(got - want) > 4e-16 * fmax(fabs(want), 1)) fail_msg("%s is %.17g, not %.17g", what, got, want);
}

/* Seed 42, stream 7. */
static void values_of_the_definition(void **state) {
  static const double u[] = {0.285360922337926, 0.6633674519997382, 0.14442078498086108, 0.9958201052183037};
  static const double e[] = {1.254000505746067, 0.4104262160789672, 1.9350241225711513, 0.00418865496149791};
  static const double g[] = {-0.22633884551692118, 0.8905591078310597, -0.6601197928490791,
                             5.4753756081590135};
  static const double normal[] = {-0.15356421149331295, 0.02980097111958694, -0.4628945109062481,
                                  -0.11140120564402002};
  static const double logistic[] = {0.07024070810529494, -0.08016130675667764, 2.589420130446696,
                                    -0.9966969906355669};
  static const double shapes[] = {0.3, 1, 2.5};
  static const double log_gamma[][2] = {{-5.004718863205108, -2.032706805207299},
                                        {-1.4883181574143465, -1.942915495177341},
                                        {0.22118024340111786, 0.018439730306378133}};
  const draws best = {42, 7, PURPOSE_GUMBEL}, bell = {42, 7, PURPOSE_NORMAL},
              gate = {42, 7, PURPOSE_LOGISTIC};
  for (uint64_t i = 0; i < 4; i++) {
    expect("uniform", uniform_of(draw_word(&best, i)), u[i]);
    expect("exponential", exponential_of(draw_word(&best, i)), e[i]);
    expect("Gumbel", gumbel_of(draw_word(&best, i)), g[i]);
    expect("normal", normal_of(draw_word(&bell, i)), normal[i]);
    expect("logistic", logistic_of(draw_word(&gate, i)), logistic[i]);
  }
  for (int s = 0; s < 3; s++)
    for (uint64_t i = 0; i < 2; i++) expect("log gamma", log_gamma_of(42, 7, i, shapes[s]), log_gamma[s][i]);
}

static void extreme_words(void **state) {
  const uint64_t low = 0, high = UINT64_MAX;
  assert_true(uniform_of(low) == 0x1p-53 && uniform_of(high) == 1 - 0x1p-53);
  expect("exponential of the lowest", exponential_of(low), 53 * log(2));
  expect("exponential of the highest", exponential_of(high) * 0x1p53, 1);
  expect("Gumbel of the lowest", gumbel_of(low), -log(53 * log(2)));
  expect("Gumbel of the highest", gumbel_of(high), 53 * log(2));
  assert_true(gumbel_of(high) < GUMBEL_MOST);
  expect("logistic of the lowest", logistic_of(low), -53 * log(2));
  assert_true(logistic_of(high) == -logistic_of(low));
  assert_true(normal_of(high) == -normal_of(low) && normal_of(high) > 8.2 && normal_of(high) < 8.2096);
  for (int k = 0; k < 50; k++) { /* tails: each further word gives more */
    const uint64_t far = UINT64_MAX - (UINT64_MAX >> (1 + k)), farther = UINT64_MAX - (UINT64_MAX >> (2 + k));
    assert_true(gumbel_of(far) < gumbel_of(farther) && normal_of(far) < normal_of(farther) &&
                logistic_of(far) < logistic_of(farther));
  }
}

static int ascending(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static double of_uniform(double x) { return x; }
static double of_exponential(double x) { return -expm1(-x); }
static double of_gumbel(double x) { return exp(-exp(-x)); }
static double of_logistic(double x) { return 1 / (1 + exp(-x)); }
static double of_normal(double x) { return 0.5 * erfc(-x / sqrt(2)); }

static void distances(void **state) {
  static const struct {
    const char *name;
    double (*variate)(uint64_t word), (*distribution)(double x);
  } kinds[] = {{"uniform", uniform_of, of_uniform},
               {"exponential", exponential_of, of_exponential},
               {"Gumbel", gumbel_of, of_gumbel},
               {"logistic", logistic_of, of_logistic},
               {"normal", normal_of, of_normal}};
  static double x[COUNT];
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const draws d = {2024, 3 + k, PURPOSE_GUMBEL};
    double most = 0;
    for (uint64_t i = 0; i < COUNT; i++) x[i] = kinds[k].variate(draw_word(&d, i));
    qsort(x, COUNT, sizeof *x, ascending);
    for (int i = 0; i < COUNT; i++) {
      double p = kinds[k].distribution(x[i]);
      most = fmax(most, fmax(fabs(p - (double)i / COUNT), fabs(p - (double)(i + 1) / COUNT)));
    }
    printf("%s: distance %.5f\n", kinds[k].name, most);
    assert_true(most < 2.69 / sqrt(COUNT));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_of_the_definition),
      cmocka_unit_test(extreme_words),
      cmocka_unit_test(distances),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
