/* engine/dtype_io.c - conversions between dtypes and the real type (dtype_io.h). */
#include "dtype_io.h"
#include "convert.h"

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

/* One function a dtype; a mask becomes 0 (keep) or -inf (drop). Contiguous calls are separate so
 * that they vectorise. */
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
LOADER(i32, int32_t, e)
LOADER(i64, int64_t, e)
STORER(f32, float, f32_of_real(e))
STORER(f64, double, f64_of_real(e))

/* Of contiguous masks a vector at a time, without a branch for each byte. */
static void load_mask(const void *src, ptrdiff_t stride, size_t n, real *dst) {
  typedef int8_t bytes __attribute__((vector_size(LANES)));
  typedef rbits words __attribute__((vector_size(LANES * sizeof(rbits))));
  const uint8_t *p = src;
  size_t i = 0;
  for (; stride == 1 && i + LANES <= n; i += LANES) {
    bytes is;
    memcpy(&is, p + i, sizeof is);
    const words drop = __builtin_convertvector(is == 0, words) & r_bits(-R_INF); /* all bits, or none */
    memcpy(dst + i, &drop, sizeof drop);
  }
  for (; i < n; i++) dst[i] = p[(ptrdiff_t)i * stride] ? 0 : -R_INF;
}

SMI void load_half(half_type type, const uint16_t *p, ptrdiff_t stride, size_t n, real *dst) {
  size_t i = 0;
  for (; stride == 1 && i + LANES <= n; i += LANES) v_store(dst + i, v_load_half(type, p + i));
  if (stride == 1 && i < n) v_store_n(dst + i, (int)(n - i), at_half(type, p, i, (int)(n - i))), i = n;
  for (; i < n; i++) {
    const uint16_t e = p[(ptrdiff_t)i * stride];
    dst[i] = (real)(type == HALF_F16 ? f32_of_f16(e) : f32_of_bf16(e));
  }
}
SMI void store_half(half_type type, const real *src, size_t n, uint16_t *p, ptrdiff_t stride) {
  size_t i = 0;
  for (; stride == 1 && i + LANES <= n; i += LANES) {
    const vreal x = v_load(src + i);
    if (m_any(m_not(v_eq(x, x)))) break; /* NaN: one by one */
    v_store_half(type, p + i, x);
  }
  if (stride == 1 && i < n && n - i < LANES) {
    const vreal rest = v_load_n(src + i, (int)(n - i), 0);
    if (!m_any(m_not(v_eq(rest, rest)))) put_half(type, p, i, (int)(n - i), rest), i = n;
  }
  for (; i < n; i++) {
    const float e = TO_F32(src[i]);
    p[(ptrdiff_t)i * stride] = type == HALF_F16 ? f16_of_f32(e) : bf16_of_f32(e);
  }
}
static void load_f16(const void *src, ptrdiff_t stride, size_t n, real *dst) {
  load_half(HALF_F16, src, stride, n, dst);
}
static void load_bf16(const void *src, ptrdiff_t stride, size_t n, real *dst) {
  load_half(HALF_BF16, src, stride, n, dst);
}
static void store_f16(const real *src, size_t n, void *dst, ptrdiff_t stride) {
  store_half(HALF_F16, src, n, dst, stride);
}
static void store_bf16(const real *src, size_t n, void *dst, ptrdiff_t stride) {
  store_half(HALF_BF16, src, n, dst, stride);
}

void dtype_load(row_store type, const void *src, ptrdiff_t stride, size_t n, void *dst) {
  static void (*const loaders[])(const void *, ptrdiff_t, size_t, real *) = {
      load_f16, load_bf16, load_f32, load_f64, load_mask, load_i32, load_i64};
  loaders[type](src, stride, n, dst);
}
void dtype_store(row_store type, const void *src, size_t n, void *dst, ptrdiff_t stride) {
  static void (*const storers[])(const real *, size_t, void *, ptrdiff_t) = {store_f16, store_bf16, store_f32,
                                                                             store_f64};
  storers[type](src, n, dst, stride);
}
