/* util.c - see util.h. */
#define _GNU_SOURCE
#include "util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t row_op_count(void) {
  size_t count = 0;
  while (smx_op_at(count) && smx_op_at(count)->inputs[0].shape != SMX_SHAPE_DIMS) count++;
  return count;
}

uint64_t rng_bits(rng *r) {
  uint64_t z = r->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double rng_uniform(rng *r) { return (double)(rng_bits(r) >> 32) * 0x1p-32; }

/* Twelve numbers of 32 bits, added as whole numbers: exact, as their sum in double would be. */
double rng_normal(rng *r) {
  uint64_t sum = 0;
  for (int i = 0; i < 6; i++) {
    uint64_t bits = rng_bits(r);
    sum += (bits >> 32) + (bits & 0xffffffffu);
  }
  return (double)(int64_t)sum * 0x1p-32 - 6;
}

int64_t rng_below(rng *r, int64_t n) { return (int64_t)(rng_bits(r) % (uint64_t)n); }

const smx_dtype float_dtypes[FLOAT_DTYPES] = {{2, 32, 1}, {2, 64, 1}, {2, 16, 1}, {4, 16, 1}};
const char *const float_dtype_names[FLOAT_DTYPES] = {"f32", "f64", "f16", "bf16"};

size_t dtype_size(smx_dtype t) { return t.bits / 8u; }

static uint64_t bits_of(double v) {
  uint64_t b;
  memcpy(&b, &v, sizeof b);
  return b;
}

static double double_of(uint64_t b) {
  double v;
  memcpy(&v, &b, sizeof v);
  return v;
}

double power_of_two(int k) { return double_of((uint64_t)(k + 1023) << 52); }

/* A 16-bit format with e exponent bits: f16 has 5, bf16 8. */
static double widen16(uint16_t h, int e) {
  int m = 15 - e, bias = (1 << (e - 1)) - 1, exponent = (h >> m) & ((1 << e) - 1),
      fraction = h & ((1 << m) - 1);
  double sign = h >> 15 ? -1 : 1;
  if (exponent == (1 << e) - 1)
    return fraction ? double_of(0x7ff8000000000000u) : sign * double_of(0x7ff0000000000000u);
  if (exponent == 0) return sign * fraction * power_of_two(1 - bias - m);
  return sign * ((1 << m) + fraction) * power_of_two(exponent - bias - m);
}

static uint16_t narrow16(double v, int e) {
  int m = 15 - e, bias = (1 << (e - 1)) - 1;
  uint16_t sign = (uint16_t)(bits_of(v) >> 63 << 15), infinite = (uint16_t)(((1 << e) - 1) << m);
  if (v != v) return (uint16_t)(infinite | (1 << (m - 1)));
  int exponent = (int)(bits_of(v) >> 52 & 0x7ff) - 1023;
  if (exponent > bias) return sign | infinite;
  if (exponent < 1 - bias) exponent = 1 - bias;
  /* in units of the last place, below 2^(m + 1): adding 2^52 rounds to nearest even */
  double magnitude = (v < 0 ? -v : v) * power_of_two(m - exponent);
  uint32_t units = (uint32_t)(magnitude + 0x1p52 - 0x1p52);
  /* a carry moves into the exponent, up to infinity */
  return (uint16_t)(sign | (((uint32_t)(exponent + bias - 1) << m) + units));
}

/* One element of any dtype. */
typedef union element {
  float f;
  double d;
  uint16_t h;
  int32_t i;
  int64_t l;
  uint8_t b;
} element;

void dtype_copy(smx_dtype t, void *to, const void *from) {
  if (t.bits == 64) memcpy(to, from, 8);
  else if (t.bits == 32) memcpy(to, from, 4);
  else if (t.bits == 16) memcpy(to, from, 2);
  else memcpy(to, from, 1);
}

double dtype_load(smx_dtype t, const void *p) {
  element u;
  dtype_copy(t, &u, p);
  if (t.code == 4) return widen16(u.h, 8);
  if (t.code == 2) return t.bits == 64 ? u.d : t.bits == 32 ? u.f : widen16(u.h, 5);
  return t.bits == 64 ? (double)u.l : t.bits == 32 ? u.i : u.b;
}

void dtype_store(smx_dtype t, void *p, double v) {
  element u;
  uint32_t quiet = 0x7fc00000u;
  if (t.code == 4) u.h = narrow16(v, 8);
  else if (t.code == 2 && t.bits == 16) u.h = narrow16(v, 5);
  else if (t.code == 2 && t.bits == 64) u.d = v != v ? double_of(0x7ff8000000000000u) : v;
  else if (t.code == 2 && v != v) memcpy(&u, &quiet, sizeof quiet);
  else if (t.code == 2) u.f = (float)v;
  else if (t.bits == 64) u.l = v != v ? 0 : (int64_t)v;
  else if (t.bits == 32) u.i = v != v ? 0 : (int32_t)v;
  else u.b = v != 0;
  dtype_copy(t, p, &u);
}

void dtype_store_many(smx_dtype t, unsigned char *out, int64_t step, const double *v, int64_t n) {
  int f32 = t.code == 2 && t.bits == 32;
  for (int64_t i = 0; i < n; i++, out += step) {
    float f = (float)v[i];
    if (f32 && f == f) memcpy(out, &f, sizeof f);
    else dtype_store(t, out, v[i]);
  }
}

double dtype_round(smx_dtype t, double v) {
  unsigned char place[8];
  dtype_store(t, place, v);
  return dtype_load(t, place);
}

uint64_t fnv1a(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *p = bytes;
  for (size_t i = 0; i < count; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

double ulp_f32(double v) {
  int exponent = (int)(bits_of(v) >> 52 & 0x7ff) - 1023;
  return power_of_two((exponent < -126 ? -126 : exponent) - 23);
}

arena *arena_at(int slot) {
  static arena arenas[ARENAS];
  arena *a = &arenas[slot];
  if (a->low) return a;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  unsigned char *map =
      mmap(NULL, ARENA_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(map + page, ARENA_BYTES, PROT_READ | PROT_WRITE)) {
    perror("arena");
    abort();
  }
  a->low = map + page;
  a->bytes = ARENA_BYTES;
  return a;
}
