/* vec.c - proves that every function of every vector header gives the bits of vec_portable.h, on
 * random bits and on awkward values. It is compiled against the instruction sets of the build and
 * runs those that this machine has. Without any test library, for cross builds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "util.h"
#include "probes.h"
#include "vec_probe.h"

#define PROBE(isa) extern const vec_probe vec_probe_##isa##_f32, vec_probe_##isa##_f64;
SMX_PROBES(PROBE)
#undef PROBE
static const vec_probe *const probes[] = {
#define PROBE(isa) &vec_probe_##isa##_f32, &vec_probe_##isa##_f64,
    SMX_PROBES(PROBE)
#undef PROBE
};

enum { ROUNDS = 5000 };

static const double awkward[] = {0.0,
                                 -0.0,
                                 1,
                                 -1,
                                 0.5,
                                 2,
                                 0x1p-126,
                                 0x1p-149,
                                 -0x1p-126,
                                 0x1.fffffep127,
                                 -0x1.fffffep127,
                                 88.72,
                                 -87.33,
                                 0x1p-1022,
                                 709.78,
                                 -708.4,
                                 104,
                                 -104,
                                 0x1.fffffep-1,
                                 0x1.000002p0,
                                 745,
                                 -746,
                                 INFINITY,
                                 -INFINITY,
                                 0x1.fffffffffffffp1023};

static double draw(rng *r, domain d, int argument, int real) {
  switch (d) {
    case SCALE_PAIR:
      return argument == 0 ? 0.5 + 1.5 * rng_uniform(r)
                           : (double)(rng_below(r, real == 32 ? 388 : 3300) - (real == 32 ? 260 : 2276));
    case POSITIVE: return (1 + rng_uniform(r)) * power_of_two((int)rng_below(r, 250) - 125);
    case SMALL: return 200 * rng_uniform(r) - 100;
    case LESS_THAN_80: return 79.9 * rng_uniform(r);
    default: return rng_normal(r) * power_of_two((int)rng_below(r, 60) - 30);
  }
}

static int is_nan(const unsigned char *p, int real) {
  double v = dtype_load(real == 32 ? SMX_F32 : SMX_F64, p);
  return v != v;
}

/* A vector of arguments; every second one of domain ANY is random bits. */
static void fill(rng *r, domain d, int argument, int real, unsigned char *out) {
  int size = real / 8;
  for (int i = 0; i < VEC_BYTES; i += size) {
    uint64_t bits = rng_bits(r);
    double v = draw(r, d, argument, real);
    if (d == ANY && bits % 8 == 0) v = awkward[rng_below(r, COUNT_OF(awkward))];
    dtype_store(real == 32 ? SMX_F32 : SMX_F64, out + i, v);
    if (d == ANY && bits % 8 > 4) memcpy(out + i, &(uint64_t){rng_bits(r)}, (size_t)size);
  }
}

static int differ(const unsigned char *a, const unsigned char *b, int real) {
  int size = real / 8;
  for (int i = 0; i < VEC_BYTES; i += size)
    if (memcmp(a + i, b + i, (size_t)size) && !(is_nan(a + i, real) && is_nan(b + i, real)))
      return 1 + i / size;
  return 0;
}

static int compare(const vec_function *f, const vec_function *portable, int real, const char *isa) {
  rng r = {(uint64_t)real};
  for (int round = 0; round < ROUNDS; round++) {
    unsigned char x[VEC_BYTES], y[VEC_BYTES], z[VEC_BYTES], got[VEC_BYTES], want[VEC_BYTES];
    fill(&r, f->domain, 0, real, x), fill(&r, f->domain, 1, real, y), fill(&r, f->domain, 2, real, z);
    f->run(x, y, z, got);
    portable->run(x, y, z, want);
    int lane = differ(got, want, real);
    if (!lane) continue;
    smx_dtype t = real == 32 ? SMX_F32 : SMX_F64;
    int at = (lane - 1) * real / 8;
    printf("%s f%d %s, lane %d: x %a y %a z %a: %a, portable %a\n", isa, real, f->name, lane - 1,
           dtype_load(t, x + at), dtype_load(t, y + at), dtype_load(t, z + at), dtype_load(t, got + at),
           dtype_load(t, want + at));
    return 1;
  }
  return 0;
}

static const vec_probe *find(const char *isa, int real) {
  for (size_t i = 0; i < COUNT_OF(probes); i++)
    if (!strcmp(probes[i]->isa, isa) && probes[i]->real == real) return probes[i];
  return NULL;
}

static int check(const char *isa, int real) {
  const vec_probe *probe = find(isa, real), *portable = find("portable", real);
  if (!probe || !portable || probe->count != portable->count) {
    printf("%s f%d: no probe\n", isa, real);
    return 1;
  }
  int bad = 0;
  for (int f = 0; f < probe->count; f++)
    bad += compare(&probe->functions[f], &portable->functions[f], real, isa);
  printf("%s f%d: %d functions on %d vectors each, %d differ\n", isa, real, probe->count, ROUNDS, bad);
  return bad;
}

int main(void) {
  int bad = 0;
  for (int i = 0; i < smx_isa_count(); i++) bad += check(smx_isa_at(i), 32) + check(smx_isa_at(i), 64);
  return bad != 0 || smx_isa_count() == 0;
}
