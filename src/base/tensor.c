/* base/tensor.c - checks the tensors of callers. Code behind this file may rely on their shapes,
 * strides and addresses. */
#include "base.h"
#include <string.h>

static const struct {
  smx_dtype type;
  const char *name;
} dtypes[] = {{{2, 16, 1}, "f16"}, {{4, 16, 1}, "bf16"}, {{2, 32, 1}, "f32"}, {{2, 64, 1}, "f64"},
              {{0, 32, 1}, "i32"}, {{0, 64, 1}, "i64"},  {{1, 8, 1}, "u8"},   {{6, 8, 1}, "bool"}};

bool smx_is_mask(smx_dtype t) { return smx_same_dtype(t, SMX_BOOL) || smx_same_dtype(t, SMX_U8); }
bool smx_is_whole(smx_dtype t) { return smx_same_dtype(t, SMX_I32) || smx_same_dtype(t, SMX_I64); }

const char *smx_dtype_name(smx_dtype t) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (smx_same_dtype(t, dtypes[i].type)) return dtypes[i].name;
  return "?";
}

bool smx_is_float(smx_dtype t) {
  return smx_same_dtype(t, SMX_F32) || smx_same_dtype(t, SMX_F64) || smx_same_dtype(t, SMX_F16) ||
         smx_same_dtype(t, SMX_BF16);
}

int64_t smx_view_elements(const smx_view *v) {
  int64_t n = 1;
  for (int32_t d = 0; d < v->ndim; d++) n *= v->shape[d];
  return n;
}

/* Lowest and highest byte offset from data, end excluded. False when one does not fit in
 * 62 bits. */
static bool byte_range(const smx_view *v, int64_t *low, int64_t *high) {
  const int64_t limit = INT64_MAX / 2;
  int64_t lo = 0, hi = 0, bytes = smx_dtype_bytes(v->dtype);
  for (int32_t d = 0; d < v->ndim; d++) {
    int64_t reach;
    if (__builtin_mul_overflow(v->shape[d] - 1, v->strides[d], &reach) ||
        __builtin_mul_overflow(reach, bytes, &reach))
      return false;
    int64_t *end = reach < 0 ? &lo : &hi;
    if (__builtin_add_overflow(*end, reach, end) || *end > limit || *end < -limit) return false;
  }
  *low = lo;
  *high = hi + bytes;
  return true;
}

/* A stride of a dimension of size 0 or 1 may be any number: it becomes that of C order, so that it
 * can be multiplied. */
static smx_status check_shape(smx_label what, const smx_tensor *t, smx_view *v) {
  bool any = true;
  int64_t total = 1, packed = 1;
  for (int32_t d = 0; d < t->ndim; d++) {
    if (t->shape[d] < 0)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld", SMX_LABEL_ARGS(what), (int)d,
                      (long long)t->shape[d]);
    v->shape[d] = t->shape[d];
    any &= t->shape[d] > 0;
    if (!smx_multiply(total, t->shape[d] ? t->shape[d] : 1, &total))
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": the number of elements overflows at shape[%d] = %lld",
                      SMX_LABEL_ARGS(what), (int)d, (long long)t->shape[d]);
  }
  if (total > INT64_MAX / 16)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": %lld elements are too many", SMX_LABEL_ARGS(what),
                    (long long)total);
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    v->strides[d] = t->strides && any && t->shape[d] > 1 ? t->strides[d] : packed;
    packed *= t->shape[d];
  }
  return SMX_OK;
}

/* Names the longest stride. */
static smx_status fail_reach(smx_label what, const smx_view *v) {
  int32_t worst = 0;
  for (int32_t d = 1; d < v->ndim; d++)
    if (v->strides[d] > v->strides[worst] || v->strides[d] < -v->strides[worst]) worst = d;
  return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": strides[%d] is %lld and reaches beyond the address space",
                  SMX_LABEL_ARGS(what), (int)worst, (long long)v->strides[worst]);
}

/* The address of a tensor that has no elements and no data: those of its rows may be formed. */
static _Alignas(8) char nowhere[8];

smx_status smx_view_of(smx_label what, const smx_tensor *t, bool need_data, smx_view *v) {
  if (!t) return smx_fail(SMX_ERR_NULL, SMX_LABEL ": is NULL", SMX_LABEL_ARGS(what));
  if (t->device.device_type != 1 && t->device.device_type != 0)
    return smx_fail(SMX_ERR_DEVICE, SMX_LABEL ": device_type is %d, not 1 (CPU)", SMX_LABEL_ARGS(what),
                    (int)t->device.device_type);
  if (t->ndim < 0 || t->ndim > SMX_MAX_DIMS)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": ndim is %d, not 0..%d", SMX_LABEL_ARGS(what), (int)t->ndim,
                    SMX_MAX_DIMS);
  if (t->ndim && !t->shape) return smx_fail(SMX_ERR_NULL, SMX_LABEL ": shape is NULL", SMX_LABEL_ARGS(what));
  if (!strcmp(smx_dtype_name(t->dtype), "?"))
    return smx_fail(SMX_ERR_DTYPE, SMX_LABEL ": dtype (code %d, bits %d, lanes %d) is not supported",
                    SMX_LABEL_ARGS(what), t->dtype.code, t->dtype.bits, t->dtype.lanes);
  v->dtype = t->dtype;
  v->ndim = t->ndim;
  smx_status status = check_shape(what, t, v);
  if (status != SMX_OK) return status;
  bool any = smx_view_elements(v) > 0;
  if (need_data && any && !t->data)
    return smx_fail(SMX_ERR_NULL, SMX_LABEL ": data is NULL", SMX_LABEL_ARGS(what));
  int64_t low, high;
  if (any && !byte_range(v, &low, &high)) return fail_reach(what, v);
  v->data = t->data ? (char *)((uintptr_t)t->data + (uintptr_t)t->byte_offset) : any ? NULL : nowhere;
  if (need_data && any && (uintptr_t)v->data % (uintptr_t)smx_dtype_bytes(v->dtype))
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": data is not aligned to its dtype (%d bytes)",
                    SMX_LABEL_ARGS(what), (int)smx_dtype_bytes(v->dtype));
  return SMX_OK;
}

smx_status smx_view_broadcast(smx_label what, smx_view *v, int32_t ndim, const int64_t *shape) {
  smx_view wide = {.data = v->data, .dtype = v->dtype, .ndim = ndim};
  if (v->ndim > ndim)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": has %d dimensions, more than the %d it must broadcast to",
                    SMX_LABEL_ARGS(what), (int)v->ndim, (int)ndim);
  for (int32_t d = ndim - 1, from = v->ndim - 1; d >= 0; d--, from--) {
    int64_t size = from >= 0 ? v->shape[from] : 1;
    if (size != shape[d] && size != 1)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld and does not broadcast to %lld",
                      SMX_LABEL_ARGS(what), (int)from, (long long)size, (long long)shape[d]);
    wide.shape[d] = shape[d];
    wide.strides[d] = size == shape[d] && from >= 0 ? v->strides[from] : 0;
  }
  *v = wide;
  return SMX_OK;
}

bool smx_view_injective(const smx_view *v) {
  int32_t order[SMX_MAX_DIMS], n = 0;
  for (int32_t d = 0; d < v->ndim; d++) {
    if (v->shape[d] == 0) return true;
    if (v->shape[d] == 1) continue;
    int32_t at = n++;
    int64_t size = v->strides[d] < 0 ? -v->strides[d] : v->strides[d];
    for (; at > 0; at--) {
      int64_t before = v->strides[order[at - 1]] < 0 ? -v->strides[order[at - 1]] : v->strides[order[at - 1]];
      if (before <= size) break;
      order[at] = order[at - 1];
    }
    order[at] = d;
  }
  int64_t reach = 0; /* largest offset that the dimensions so far make */
  for (int32_t i = 0; i < n; i++) {
    int64_t stride = v->strides[order[i]] < 0 ? -v->strides[order[i]] : v->strides[order[i]];
    if (stride <= reach) return false;
    reach += stride * (v->shape[order[i]] - 1);
  }
  return true;
}

bool smx_view_same(const smx_view *a, const smx_view *b) {
  if (a->data != b->data || !smx_same_dtype(a->dtype, b->dtype) || a->ndim != b->ndim) return false;
  for (int32_t d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->strides[d] != b->strides[d])) return false;
  return true;
}

bool smx_view_overlap(const smx_view *a, const smx_view *b) {
  int64_t a_low, a_high, b_low, b_high;
  if (smx_view_elements(a) == 0 || smx_view_elements(b) == 0) return false;
  if (!byte_range(a, &a_low, &a_high) || !byte_range(b, &b_low, &b_high)) return true;
  uintptr_t pa = (uintptr_t)a->data, pb = (uintptr_t)b->data;
  return pa + (uintptr_t)a_low < pb + (uintptr_t)b_high && pb + (uintptr_t)b_low < pa + (uintptr_t)a_high;
}
