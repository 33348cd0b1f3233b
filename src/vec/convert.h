/* vec/convert.h - between storage dtypes and the real type. f16 and bf16 round to nearest, ties to
 * even, as integer code or as instructions that provably agree. Every NaN becomes the canonical
 * one. */
#ifndef SMX_VEC_CONVERT_H
#define SMX_VEC_CONVERT_H
#include "vec.h"

SMI float f32_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
SMI uint32_t bits_of_f32(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

SMI float f32_of_bf16(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }
SMI uint16_t bf16_of_f32(float f) {
  uint32_t u = bits_of_f32(f);
  return (uint16_t)(f != f ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A half is its bits shifted into place times 2^112, which is exact, subnormals included. */
SMI float f32_of_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = (uint32_t)(h & 0x7fff) << 13;
  uint32_t u = body >= 0x0f800000 ? body | 0x7f800000 : bits_of_f32(f32_of_bits(body) * 0x1p112f);
  return f32_of_bits(u | sign);
}
SMI uint16_t f16_of_f32(float f) {
  uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000, body = u & 0x7fffffff;
  if (f != f) return 0x7e00;
  if (body >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more */
  if (body < 0x38800000) /* below 2^-14: adding 0.5 leaves the subnormal in the low bits, rounded */
    return (uint16_t)(sign | (bits_of_f32(f32_of_bits(body) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | ((body - 0x38000000 + 0xfff + (body >> 13 & 1)) >> 13));
}

/* From double, rounded once: to float by rounding to odd, whose extra bits decide as the double's
 * would. */
SMI float odd_of_f64(double d) {
  float f = (float)d;
  uint32_t u = bits_of_f32(f);
  if (d != d || (double)f == d || (u & 1)) return f;
  if ((u & 0x7fffffff) == 0x7f800000) return f32_of_bits((u & 0x80000000) | 0x7f7fffff);
  double magnitude = d < 0 ? -d : d, got = f < 0 ? -(double)f : (double)f;
  return f32_of_bits(got < magnitude ? u + 1 : u - 1);
}

#if SMX_REAL == 32
#define TO_F32(x) (x)
#else
#define TO_F32(x) odd_of_f64(x)
#endif

/* Half precision, a vector at a time: by instructions, or by the scalar functions. */
#ifndef V_HAS_HALF
#define VECTOR_HALF(name) \
  SMI vreal v_load_##name(const uint16_t *p) { \
    real x[LANES]; \
    for (int l = 0; l < LANES; l++) x[l] = (real)f32_of_##name(p[l]); \
    return v_load(x); \
  } \
  SMI void v_store_##name(uint16_t *p, vreal v) { \
    real x[LANES]; \
    v_store(x, v); \
    for (int l = 0; l < LANES; l++) p[l] = name##_of_f32(TO_F32(x[l])); \
  }
VECTOR_HALF(f16)
VECTOR_HALF(bf16)
#endif

#ifndef V_HAS_PARTS
SMI void half_in(uint16_t *to, const uint16_t *p, int n) {
  memset(to, 0, LANES * sizeof *to);
  memcpy(to, p, (size_t)n * sizeof *p);
}
SMI void half_out(uint16_t *p, const uint16_t *from, int n) { memcpy(p, from, (size_t)n * sizeof *p); }
#endif

enum { HALF_LINE = 64 / sizeof(uint16_t) }; /* numbers in a cache line */

/* The storage type of an array in half precision; a constant, wherever loops must be fast. */
typedef enum half_type { HALF_F16, HALF_BF16 } half_type;

SMI vreal v_load_half(half_type type, const uint16_t *p) {
  return type == HALF_F16 ? v_load_f16(p) : v_load_bf16(p);
}
SMI void v_store_half(half_type type, uint16_t *p, vreal x) {
  if (type == HALF_F16) v_store_f16(p, x);
  else v_store_bf16(p, x);
}

/* at() and put() of such arrays; put_half() is not for NaN. */
SMI vreal at_half(half_type type, const uint16_t *p, size_t i, int cnt) {
  uint16_t some[LANES];
  if (cnt == LANES) return v_load_half(type, p + i);
  half_in(some, p + i, cnt);
  return v_load_half(type, some);
}
SMI void put_half(half_type type, uint16_t *p, size_t i, int cnt, vreal x) {
  uint16_t some[LANES];
  v_store_half(type, cnt == LANES ? p + i : some, x);
  if (cnt < LANES) half_out(p + i, some, cnt);
}
/* A whole vector, by a streaming store. */
SMI void stream_half(half_type type, uint16_t *p, vreal x) {
  uint16_t some[LANES];
  v_store_half(type, some, x);
  v_stream_half(p, some);
}

#endif
