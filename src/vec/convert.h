/* vec/convert.h - between storage dtypes and the real type. f16 and bf16 round to nearest, ties to even, as integer code or as instructions that
 * provably agree. Every NaN becomes the canonical one. */
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
  if (body < 0x38800000)                                    /* below 2^-14: adding 0.5 leaves the subnormal in the low bits, rounded */
    return (uint16_t)(sign | (bits_of_f32(f32_of_bits(body) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | ((body - 0x38000000 + 0xfff + (body >> 13 & 1)) >> 13));
}

/* From double, rounded once: to float by rounding to odd, whose extra bits then decide as the double's would. */
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

#define LOAD_LOOP(type, expression) \
  { \
    const type *p = src; \
    for (size_t i = 0; i < n; i++) { \
      const type e = p[(ptrdiff_t)i * stride]; \
      dst[i] = (real)(expression); \
    } \
  }
#define STORE_LOOP(type, expression) \
  { \
    type *p = dst; \
    for (size_t i = 0; i < n; i++) { \
      const real e = src[i]; \
      p[(ptrdiff_t)i * stride] = (type)(expression); \
    } \
  }

/* One function a dtype; a mask becomes 0 (keep) or -inf (drop). Contiguous calls are separate so that they vectorise. */
#define LOADER(name, type, expression) \
  static void load_##name(const void *src, ptrdiff_t stride, size_t n, real *dst) { \
    if (stride == 1) LOAD_LOOP(type, expression) \
    else LOAD_LOOP(type, expression) \
  }
#define STORER(name, type, expression) \
  static void store_##name(const real *src, size_t n, void *dst, ptrdiff_t stride) { \
    if (stride == 1) STORE_LOOP(type, expression) \
    else STORE_LOOP(type, expression) \
  }

SMI float f32_of_real(real x) { return x != x ? f32_of_bits(0x7fc00000) : (float)x; }
SMI double f64_of_real(real x) {
  uint64_t nan = 0x7ff8000000000000;
  double d = (double)x;
  if (x != x) memcpy(&d, &nan, 8);
  return d;
}

LOADER(f32, float, e)
LOADER(f64, double, e)
LOADER(mask, uint8_t, e ? 0 : -R_INF)
LOADER(i32, int32_t, e)
LOADER(i64, int64_t, e)
STORER(f32, float, f32_of_real(e))
STORER(f64, double, f64_of_real(e))

/* Halves, a vector at a time: by instructions, or as the scalar functions say. */
#ifndef V_HAS_HALVES
#define VECTOR_OF_HALVES(name) \
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
VECTOR_OF_HALVES(f16)
VECTOR_OF_HALVES(bf16)
#endif

#ifndef V_HAS_PARTS
SMI void halves_in(uint16_t *to, const uint16_t *p, int n) {
  memset(to, 0, LANES * sizeof *to);
  memcpy(to, p, (size_t)n * sizeof *p);
}
SMI void halves_out(uint16_t *p, const uint16_t *from, int n) { memcpy(p, from, (size_t)n * sizeof *p); }
#endif

enum { HALF_LINE = 64 / sizeof(uint16_t) }; /* of them in a line of the caches */

/* at() and put() of an array of halves; put_f16 and put_bf16 are not for NaN. stream_: a whole vector past the caches. */
#define HALF(name) \
  SMI vreal at_##name(const uint16_t *p, size_t i, int cnt) { \
    uint16_t some[LANES]; \
    if (cnt == LANES) return v_load_##name(p + i); \
    halves_in(some, p + i, cnt); \
    return v_load_##name(some); \
  } \
  SMI void put_##name(uint16_t *p, size_t i, int cnt, vreal x) { \
    uint16_t some[LANES]; \
    v_store_##name(cnt == LANES ? p + i : some, x); \
    if (cnt < LANES) halves_out(p + i, some, cnt); \
  } \
  SMI void stream_##name(uint16_t *p, vreal x) { \
    uint16_t some[LANES]; \
    v_store_##name(some, x); \
    v_stream_halves(p, some); \
  } \
  static void load_##name(const void *src, ptrdiff_t stride, size_t n, real *dst) { \
    const uint16_t *p = src; \
    size_t i = 0; \
    for (; stride == 1 && i + LANES <= n; i += LANES) v_store(dst + i, v_load_##name(p + i)); \
    if (stride == 1 && i < n) v_store_n(dst + i, (int)(n - i), at_##name(p, i, (int)(n - i))), i = n; \
    for (; i < n; i++) dst[i] = (real)f32_of_##name(p[(ptrdiff_t)i * stride]); \
  } \
  static void store_##name(const real *src, size_t n, void *dst, ptrdiff_t stride) { \
    uint16_t *p = dst; \
    size_t i = 0; \
    for (; stride == 1 && i + LANES <= n; i += LANES) { \
      const vreal x = v_load(src + i); \
      if (m_any(m_not(v_eq(x, x)))) break; /* NaN: one by one */ \
      v_store_##name(p + i, x); \
    } \
    if (stride == 1 && i < n && n - i < LANES) { \
      const vreal rest = v_load_n(src + i, (int)(n - i), 0); \
      if (!m_any(m_not(v_eq(rest, rest)))) put_##name(p, i, (int)(n - i), rest), i = n; \
    } \
    for (; i < n; i++) p[(ptrdiff_t)i * stride] = name##_of_f32(TO_F32(src[i])); \
  }
HALF(f16)
HALF(bf16)

#endif
