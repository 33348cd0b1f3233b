/* copy.c - elements from one layout or dtype to another, where the library wants what the
 * caller's array is not. */
#include "call.h"
#include <stdlib.h>
#include <string.h>

static char *start(const smx_tensor *t) { return (char *)t->data + t->byte_offset; }

/* ---- memory of a call ---- */

static void packed_strides(int32_t ndim, const int64_t *shape, int64_t *strides) {
  int64_t packed = 1;
  for (int32_t d = ndim - 1; d >= 0; d--) {
    strides[d] = packed;
    packed *= shape[d];
  }
}

/* A tensor without strides that ends with the call, over `bytes` of new memory; NULL with an
 * exception. */
static core_scratch *add(core_call *c, size_t bytes) {
  core_scratch *s = malloc(sizeof *s);
  char *memory = s && bytes ? malloc(bytes) : NULL;
  if (!s || (bytes && !memory)) {
    free(s);
    return PyErr_NoMemory(), NULL;
  }
  *s = (core_scratch){.memory = memory, .before = c->scratch};
  c->scratch = s;
  return s;
}

smx_tensor *core_make_scratch(core_call *c, int32_t ndim, const int64_t *shape, smx_dtype dtype) {
  int64_t bytes = dtype.bits / 8;
  for (int32_t d = 0; d < ndim; d++)
    if (__builtin_mul_overflow(bytes, shape[d] > 0 ? shape[d] : 1, &bytes)) return PyErr_NoMemory(), NULL;
  core_scratch *s = add(c, (size_t)bytes);
  if (!s) return NULL;
  core_copy_dims(s->shape, shape, ndim);
  packed_strides(ndim, shape, s->strides);
  s->tensor = (smx_tensor){s->memory, {DLPACK_CPU, 0}, ndim, dtype, s->shape, s->strides, 0};
  return &s->tensor;
}

smx_tensor *core_make_view(core_call *c, const smx_tensor *t, int32_t ndim, const int64_t *shape,
                           const int64_t *strides) {
  core_scratch *s = add(c, 0);
  if (!s) return NULL;
  core_copy_dims(s->shape, shape, ndim);
  core_copy_dims(s->strides, strides, ndim);
  s->tensor = (smx_tensor){t->data, t->device, ndim, t->dtype, s->shape, s->strides, t->byte_offset};
  return &s->tensor;
}

void core_write_back(core_call *c, const smx_tensor *to) { c->scratch->back = to; }

void core_copy_back(const core_call *c) {
  for (const core_scratch *s = c->scratch; s; s = s->before)
    if (s->back) core_copy(&s->tensor, s->back);
}

void core_free_scratch(core_call *c) {
  for (core_scratch *s = c->scratch, *before; s; s = before) {
    before = s->before;
    free(s->memory);
    free(s);
  }
  c->scratch = NULL;
}

void core_strides(const smx_tensor *t, int64_t *strides) {
  if (t->strides) core_copy_dims(strides, t->strides, t->ndim);
  else packed_strides(t->ndim, t->shape, strides);
}

bool core_is_packed(const smx_tensor *t) {
  int64_t own[SMX_MAX_DIMS], packed[SMX_MAX_DIMS];
  core_strides(t, own);
  packed_strides(t->ndim, t->shape, packed);
  for (int32_t d = 0; d < t->ndim; d++)
    if (t->shape[d] > 1 && own[d] != packed[d]) return false;
  return true;
}

/* ---- elements ---- */

typedef void move_element(const char *from, char *to);

#define SAME(bits) \
  static void move_##bits(const char *from, char *to) { memcpy(to, from, bits / 8); }
/* clang-format off */
SAME(8)
SAME(16)
SAME(32)
SAME(64)
/* clang-format on */
/* What 64 bits with a sign cannot hold is what has its bits, as streams do. */
#define INTEGER(name, type) \
  static void name##_to_f64(const char *from, char *to) { \
    type v; \
    memcpy(&v, from, sizeof v); \
    double d = (double)v; \
    memcpy(to, &d, sizeof d); \
  } \
  static void name##_to_i64(const char *from, char *to) { \
    type v; \
    memcpy(&v, from, sizeof v); \
    int64_t i = (int64_t)v; \
    memcpy(to, &i, sizeof i); \
  }
/* clang-format off */
INTEGER(i8, int8_t)
INTEGER(i16, int16_t)
INTEGER(i32, int32_t)
INTEGER(i64, int64_t)
INTEGER(u8, uint8_t)
INTEGER(u16, uint16_t)
INTEGER(u32, uint32_t)
INTEGER(u64, uint64_t)
/* clang-format on */

static void bf16_to_f32(const char *from, char *to) {
  uint16_t v;
  memcpy(&v, from, sizeof v);
  uint32_t bits = (uint32_t)v << 16;
  memcpy(to, &bits, sizeof bits);
}

/* Exact: the significand is an integer, times a power of two. */
static void f16_to_f32(const char *from, char *to) {
  uint16_t v;
  memcpy(&v, from, sizeof v);
  uint32_t sign = (uint32_t)(v >> 15) << 31, exponent = v >> 10 & 31, fraction = v & 1023, bits;
  if (exponent == 31) bits = sign | 0x7f800000u | fraction << 13;
  else if (exponent) bits = sign | (exponent + 112) << 23 | fraction << 13;
  else {
    float small = (float)fraction * 0x1p-24f;
    memcpy(&bits, &small, sizeof bits);
    bits |= sign;
  }
  memcpy(to, &bits, sizeof bits);
}

/* DLPack's codes: 0 signed, 1 unsigned, 2 float, 4 bfloat16, 6 bool. */
static const struct {
  uint8_t code, bits;
  move_element *f64, *i64;
} integers[] = {
    {0, 8, i8_to_f64, i8_to_i64},    {0, 16, i16_to_f64, i16_to_i64}, {0, 32, i32_to_f64, i32_to_i64},
    {0, 64, i64_to_f64, i64_to_i64}, {1, 8, u8_to_f64, u8_to_i64},    {1, 16, u16_to_f64, u16_to_i64},
    {1, 32, u32_to_f64, u32_to_i64}, {1, 64, u64_to_f64, u64_to_i64}, {6, 8, u8_to_f64, u8_to_i64},
};

static bool same(smx_dtype a, smx_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* NULL: there is no such way. */
static move_element *mover(smx_dtype from, smx_dtype to) {
  if (same(from, to))
    return to.bits == 8    ? move_8
           : to.bits == 16 ? move_16
           : to.bits == 32 ? move_32
           : to.bits == 64 ? move_64
                           : NULL;
  if (same(to, SMX_F32)) return same(from, SMX_F16) ? f16_to_f32 : same(from, SMX_BF16) ? bf16_to_f32 : NULL;
  for (size_t i = 0; from.lanes == 1 && i < sizeof integers / sizeof *integers; i++)
    if (integers[i].code == from.code && integers[i].bits == from.bits)
      return same(to, SMX_F64) ? integers[i].f64 : same(to, SMX_I64) ? integers[i].i64 : NULL;
  return NULL;
}

bool core_convertible(smx_dtype from, smx_dtype to) { return mover(from, to) != NULL; }

/* The last dimension by a loop, the others by recursion: at most SMX_MAX_DIMS deep. */
static void copy_dims(move_element *move, int32_t ndim, const int64_t *shape, const char *from,
                      const int64_t *from_step, char *to, const int64_t *to_step, int64_t from_bytes,
                      int64_t to_bytes) {
  if (ndim == 0) {
    move(from, to);
    return;
  }
  for (int64_t i = 0; i < shape[0]; i++) {
    const char *one = from + i * from_step[0] * from_bytes;
    char *other = to + i * to_step[0] * to_bytes;
    if (ndim == 1) move(one, other);
    else copy_dims(move, ndim - 1, shape + 1, one, from_step + 1, other, to_step + 1, from_bytes, to_bytes);
  }
}

void core_copy(const smx_tensor *from, const smx_tensor *to) {
  int64_t from_step[SMX_MAX_DIMS], to_step[SMX_MAX_DIMS];
  core_strides(from, from_step);
  core_strides(to, to_step);
  copy_dims(mover(from->dtype, to->dtype), to->ndim, to->shape, start(from), from_step, start(to), to_step,
            from->dtype.bits / 8, to->dtype.bits / 8);
}

const smx_tensor *core_convert(core_call *c, const smx_tensor *t, smx_dtype dtype) {
  if (t->ndim > SMX_MAX_DIMS || t->device.device_type != DLPACK_CPU) return t; /* the library's to refuse */
  smx_tensor *copy = core_make_scratch(c, t->ndim, t->shape, dtype);
  if (copy) core_copy(t, copy);
  return copy;
}

/* ---- elements that are not there ---- */

/* -inf as this dtype has it, in its bits / 8 first bytes. */
static void minus_infinity(smx_dtype t, char *to) {
  const float f = -__builtin_inff();
  const double d = -__builtin_inf();
  const uint16_t half = same(t, SMX_BF16) ? 0xff80 : 0xfc00;
  if (same(t, SMX_F64)) memcpy(to, &d, sizeof d);
  else if (same(t, SMX_F32)) memcpy(to, &f, sizeof f);
  else memcpy(to, &half, sizeof half);
}

static void hide_dims(int32_t ndim, const int64_t *shape, char *x, const int64_t *step, const char *keep,
                      const int64_t *keep_step, int64_t bytes, const char *hidden) {
  if (ndim == 0) {
    if (!*keep) memcpy(x, hidden, (size_t)bytes);
    return;
  }
  for (int64_t i = 0; i < shape[0]; i++)
    hide_dims(ndim - 1, shape + 1, x + i * step[0] * bytes, step + 1, keep + i * keep_step[0], keep_step + 1,
              bytes, hidden);
}

void core_hide(const smx_tensor *x, const smx_tensor *keep) {
  char hidden[sizeof(double)];
  minus_infinity(x->dtype, hidden);
  hide_dims(x->ndim, x->shape, start(x), x->strides, start(keep), keep->strides, x->dtype.bits / 8, hidden);
}
