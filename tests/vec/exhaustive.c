/* exhaustive.c - proves that e^x in f32 is within 1 ULP over [-87.33, 88.72], and tanh, 1 - tanh^2
 * and e^x - 1 within a few, on the fastest instruction set (vec.c proves that the others agree). A
 * sample by default, every float with SMX_TEST_FULL=1. Prints the worst error and the x that
 * attains it. The comparison is libm's double, confirmed by MPFR where it is worst. */
#include <mpfr.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "unit.h"
#include "util.h"
#include "probes.h"
#include "vec_probe.h"

#define PROBE(isa) extern const vec_probe vec_probe_##isa##_f32;
SMX_PROBES(PROBE)
#undef PROBE
static const vec_probe *const probes[] = {
#define PROBE(isa) &vec_probe_##isa##_f32,
    SMX_PROBES(PROBE)
#undef PROBE
};

static double sech2(double x) { return 1 / (cosh(x) * cosh(x)); }
static int mpfr_sech2(mpfr_t y, const mpfr_t x, mpfr_rnd_t r) {
  mpfr_sech(y, x, r);
  return mpfr_sqr(y, y, r);
}

static const struct {
  const char *name;
  double low, high, allowed; /* ULP */
  double (*quick)(double x);
  int (*slow)(mpfr_t y, const mpfr_t x, mpfr_rnd_t r);
} functions[] = {
    {"exp", -87.33, 88.72, 1, exp, mpfr_exp},
    {"expm1_pos", 0, 79.9, 2.5, expm1, mpfr_expm1},
    {"tanh", -12, 12, 3.5, tanh, mpfr_tanh},
    {"sech2", -43, 43, 6, sech2, mpfr_sech2},
};

enum { LANES_F32 = VEC_BYTES / sizeof(float), SAMPLE = 1021 };

static const vec_function *find(const char *isa, const char *name) {
  for (size_t i = 0; i < COUNT_OF(probes); i++)
    for (int f = 0; f < probes[i]->count && !strcmp(probes[i]->isa, isa); f++)
      if (!strcmp(probes[i]->functions[f].name, name)) return &probes[i]->functions[f];
  fail_msg("no %s of %s", name, isa);
  return NULL;
}

static float from_bits(uint32_t b) {
  float f;
  memcpy(&f, &b, sizeof f);
  return f;
}

static double exact_error(size_t which, float x, float got) {
  mpfr_t v;
  mpfr_init2(v, 120);
  mpfr_set_d(v, x, MPFR_RNDN);
  functions[which].slow(v, v, MPFR_RNDN);
  double ulp = ulp_f32(mpfr_get_d(v, MPFR_RNDN));
  mpfr_sub_d(v, v, got, MPFR_RNDN);
  double error = fabs(mpfr_get_d(v, MPFR_RNDN)) / ulp;
  mpfr_clear(v);
  return error;
}

typedef struct worst {
  double error;
  float x, y;
} worst;

static void one_vector(size_t which, const vec_function *f, uint32_t bits, uint32_t step, worst *w) {
  float x[LANES_F32], y[LANES_F32];
  for (uint32_t i = 0; i < LANES_F32; i++) x[i] = from_bits(bits + i * step);
  f->run(x, x, x, y);
  for (int i = 0; i < LANES_F32; i++) {
    double want = functions[which].quick(x[i]);
    if (x[i] < functions[which].low || x[i] > functions[which].high || fabs(want) < 0x1p-126) continue;
    double error = fabs(y[i] - want) / ulp_f32(want);
    if (!(error <= w->error)) *w = (worst){error, x[i], y[i]};
  }
}

/* Every step-th float of one sign, from 0 to beyond the end of the range. */
static void one_side(size_t which, const vec_function *f, uint32_t sign, uint32_t step, worst *w) {
  float end = (float)(sign ? -functions[which].low : functions[which].high);
  uint32_t last;
  memcpy(&last, &end, sizeof last);
  for (uint64_t bits = 0; end > 0 && bits <= last; bits += (uint64_t)step * LANES_F32)
    one_vector(which, f, sign | (uint32_t)bits, step, w);
}

static void within_their_errors(void **state) {
  int bad = 0;
  uint32_t step = getenv("SMX_TEST_FULL") ? 1 : SAMPLE;
  const char *isa = smx_isa_at(0);
  for (size_t i = 0; i < COUNT_OF(functions); i++) {
    worst w = {0};
    one_side(i, find(isa, functions[i].name), 0, step, &w);
    one_side(i, find(isa, functions[i].name), 0x80000000u, step, &w);
    double error = exact_error(i, w.x, w.y);
    printf("%s on %s, every %uth float of [%g, %g]: worst %.4f ULP (allowed %g) at x = %a, result %a\n",
           functions[i].name, isa, step, functions[i].low, functions[i].high, error, functions[i].allowed,
           w.x, w.y);
    bad += !(error <= functions[i].allowed);
  }
  assert_int_equal(bad, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(within_their_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
