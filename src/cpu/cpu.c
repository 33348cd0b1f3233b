/* cpu/cpu.c - the instruction sets this library was built for, and the choice among them: one
 * atomic pointer, written with the same value by whoever comes first. */
#include "cpu.h"
#include <stdlib.h>
#include <string.h>

static __attribute__((unused)) bool always(void) { return true; }

#define DECLARE_FAMILY(family, isa, real) extern const row_pair *const family##_kernels_##isa##_##real[];
#define DECLARE_REAL(isa, real) \
  SMX_FAMILIES(DECLARE_FAMILY, isa, real) \
  extern const dtype_io dtype_io_##isa##_##real; \
  extern const struct attention_kernels attention_kernels_##isa##_##real; \
  extern const struct head_kernels head_kernels_##isa##_##real; \
  extern const struct gate_kernels gate_kernels_##isa##_##real; \
  extern const struct score_kernels score_kernels_##isa##_##real; \
  extern const struct linear_attention_kernels linear_attention_kernels_##isa##_##real; \
  extern const struct pool_kernels pool_kernels_##isa##_##real; \
  extern void sampler_run_##isa##_##real(sampler_row *row);
#define DECLARE(isa) DECLARE_REAL(isa, f32) DECLARE_REAL(isa, f64)
#define KERNELS_FAMILY(family, isa, real) family##_kernels_##isa##_##real,
#define KERNELS(isa, real) \
  { \
    {SMX_FAMILIES(KERNELS_FAMILY, isa, real)}, &dtype_io_##isa##_##real, &attention_kernels_##isa##_##real, \
        &head_kernels_##isa##_##real, &gate_kernels_##isa##_##real, &score_kernels_##isa##_##real, \
        &linear_attention_kernels_##isa##_##real, &pool_kernels_##isa##_##real, sampler_run_##isa##_##real \
  }
#define ISA(label, isa, test) \
  { label, test, KERNELS(isa, f32), KERNELS(isa, f64) }

#if defined(__x86_64__) /* unused where SMX_ISAS leaves a set out */
#include <cpuid.h>
static bool has_f16c(void) { /* clang 14 has no name for it */
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static __attribute__((unused)) bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
static __attribute__((unused)) bool has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

DECLARE(portable)
DECLARE(avx512)
DECLARE(avx2)
DECLARE(neon)

/* Fastest first. */
static const smx_isa isas[] = {
#ifdef SMX_HAVE_AVX512
    ISA("avx512", avx512, has_avx512),
#endif
#ifdef SMX_HAVE_AVX2
    ISA("avx2", avx2, has_avx2),
#endif
#ifdef SMX_HAVE_NEON
    ISA("neon", neon, always),
#endif
#ifdef SMX_HAVE_PORTABLE
    ISA("portable", portable, always),
#endif
};
enum { ISAS = sizeof isas / sizeof *isas };

const smx_isa *_Atomic smx_isa_chosen;

static const smx_isa *choose(const char *name) {
  for (int i = 0; i < ISAS; i++)
    if (isas[i].usable() && (!name || !strcmp(name, isas[i].name))) return isas + i;
  return NULL;
}

const smx_isa *smx_isa_choose(void) {
  const smx_isa *isa = choose(getenv("SMX_ISA"));
  if (!isa) isa = choose(NULL); /* a name that is unknown, or not of this machine */
  atomic_store_explicit(&smx_isa_chosen, isa, memory_order_relaxed);
  return isa;
}

const char *smx_isa_name(void) { return smx_isa_current()->name; }

int smx_isa_count(void) {
  int n = 0;
  for (int i = 0; i < ISAS; i++) n += isas[i].usable();
  return n;
}

const char *smx_isa_at(int at) {
  for (int i = 0; i < ISAS; i++)
    if (isas[i].usable() && at-- == 0) return isas[i].name;
  return NULL;
}

int smx_isa_set(const char *name) {
  const smx_isa *isa = choose(name);
  if (!isa) return -1;
  atomic_store_explicit(&smx_isa_chosen, isa, memory_order_relaxed);
  return 0;
}
