/* dtype.c - the table of element types. */
#include "dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double get_f16(const void *p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  int exponent = (h >> 10) & 31, fraction = h & 1023;
  double magnitude = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                     : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                    : ldexp(fraction, -24);
  return h & 0x8000 ? -magnitude : magnitude;
}

static double get_bf16(const void *p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  uint32_t word = (uint32_t)h << 16;
  float f;
  memcpy(&f, &word, sizeof f);
  return (double)f;
}

#define GETTER(name, type) \
  static double get_##name(const void *p) { \
    type v; \
    memcpy(&v, p, sizeof v); \
    return (double)v; \
  }
GETTER(f32, float)
GETTER(f64, double)
GETTER(i32, int32_t)
GETTER(i64, int64_t)
GETTER(u8, uint8_t)

#define PUTTER(name, type, expression) \
  static void put_##name(void *p, double value) { \
    type v = (type)(expression); \
    memcpy(p, &v, sizeof v); \
  }
PUTTER(f32, float, value)
PUTTER(f64, double, value)
PUTTER(i32, int32_t, value >= INT32_MIN && value <= INT32_MAX ? value : -1)
PUTTER(i64, int64_t, value)
PUTTER(u8, uint8_t, value != 0)

/* clang-format off */
static const dtype types[] = {
    {"f32", "f4", "F32", {2, 32, 1}, 4, true, get_f32, put_f32},
    {"f64", "f8", "F64", {2, 64, 1}, 8, true, get_f64, put_f64},
    {"f16", "f2", "F16", {2, 16, 1}, 2, true, get_f16, NULL},
    {"bf16", "V2", "BF16", {4, 16, 1}, 2, true, get_bf16, NULL},
    {"i32", "i4", "I32", {0, 32, 1}, 4, false, get_i32, put_i32},
    {"i64", "i8", "I64", {0, 64, 1}, 8, false, get_i64, put_i64},
    {"u8", "u1", "U8", {1, 8, 1}, 1, false, get_u8, put_u8},
    {"bool", "b1", "BOOL", {6, 8, 1}, 1, false, get_u8, NULL},
};
/* clang-format on */

const dtype *dtype_at(size_t i) { return i < sizeof types / sizeof *types ? &types[i] : NULL; }

const dtype *dtype_named(const char *name) {
  const dtype *d;
  for (size_t i = 0; (d = dtype_at(i)); i++)
    if (strcmp(d->name, name) == 0) return d;
  return NULL;
}

const dtype *dtype_of(smx_dtype type) {
  const dtype *d;
  for (size_t i = 0; (d = dtype_at(i)); i++)
    if (d->type.code == type.code && d->type.bits == type.bits && type.lanes == 1) return d;
  return NULL;
}

void dtype_names(bool numbers_only, char *text, size_t size) {
  const dtype *d;
  size_t used = 0;
  text[0] = 0;
  for (size_t i = 0; (d = dtype_at(i)) && used < size; i++)
    if (d->number || !numbers_only)
      used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", d->name);
}
