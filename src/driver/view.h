/* driver/view.h - shared by the functions that take matrices: checked arguments, and rows as
 * doubles. */
#ifndef SMX_DRIVER_VIEW_H
#define SMX_DRIVER_VIEW_H
#include "cpu/cpu.h"
#include "internal.h"

/* Checks a float tensor. ndim < 0: any number of dimensions from -ndim on. */
static inline smx_status matrix_view(smx_label what, const smx_tensor *t, int32_t ndim, smx_view *v) {
  if (!t) return smx_fail(SMX_ERR_NULL, SMX_LABEL " is NULL", SMX_LABEL_ARGS(what));
  smx_status status = smx_view_of(what, t, true, v);
  if (status != SMX_OK) return status;
  if (!smx_is_float(v->dtype))
    return smx_fail(SMX_ERR_DTYPE, SMX_LABEL ": is %s, not a float", SMX_LABEL_ARGS(what),
                    smx_dtype_name(v->dtype));
  if (ndim < 0 ? v->ndim < -ndim : v->ndim != ndim)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": has %d dimensions, not %d%s", SMX_LABEL_ARGS(what),
                    (int)v->ndim, ndim < 0 ? -ndim : ndim, ndim < 0 ? " or more" : "");
  return SMX_OK;
}
/* Checks also that a tensor has the shape of another. */
static inline smx_status matrix_like(smx_label what, const smx_tensor *t, const smx_view *like, smx_view *v) {
  smx_status status = matrix_view(what, t, like->ndim, v);
  for (int32_t d = 0; status == SMX_OK && d < like->ndim; d++)
    if (v->shape[d] != like->shape[d])
      status = smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld, not %lld", SMX_LABEL_ARGS(what),
                        (int)d, (long long)v->shape[d], (long long)like->shape[d]);
  return status;
}
/* The same for an output, which must not overlap the inputs. */
static inline smx_status matrix_output(smx_label what, const smx_tensor *t, const smx_view *like,
                                       int32_t inputs, const smx_view *const *in, smx_view *v) {
  smx_status status = matrix_like(what, t, like, v);
  if (status == SMX_OK && !smx_view_injective(v))
    status = smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": two elements share an address", SMX_LABEL_ARGS(what));
  for (int32_t i = 0; status == SMX_OK && i < inputs; i++)
    if (in[i] && smx_view_overlap(v, in[i]))
      status = smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": overlaps an input", SMX_LABEL_ARGS(what));
  return status;
}

/* The address of the last `inner` dimensions of number `which` among the others. */
static inline char *matrix_at(const smx_view *v, int32_t inner, int64_t which) {
  int64_t offset = 0;
  for (int32_t d = v->ndim - inner - 1; d >= 0; d--) {
    offset += which % v->shape[d] * v->strides[d];
    which /= v->shape[d];
  }
  return v->data + offset * smx_dtype_bytes(v->dtype);
}

static inline void matrix_load(const smx_view *v, const char *from, int64_t n, double *to) {
  smx_isa_current()->f64.io->load(row_store_of(v->dtype), from, v->strides[v->ndim - 1], (size_t)n, to);
}
/* Stores x into v: rounded to f32 unless v holds f64, 0 where below the smallest normal number, the
 * canonical NaN for a NaN. x is overwritten. */
static inline void matrix_store(const smx_view *v, double *x, int64_t n, char *to) {
  const int64_t step = v->strides[v->ndim - 1] * smx_dtype_bytes(v->dtype);
  const bool is_f64 = v->dtype.bits == 64;
  for (int64_t j = 0; j < n; j++) {
    float f = is_f64 ? 0 : (float)x[j];
    if (x[j] != x[j]) x[j] = __builtin_nan(""), f = __builtin_nanf("");
    if (is_f64 && !(x[j] >= 0x1p-1022 || x[j] <= -0x1p-1022 || x[j] != x[j])) x[j] = 0;
    if (!is_f64 && !(f >= 0x1p-126f || f <= -0x1p-126f || f != f)) f = 0;
    const smx_isa *isa = smx_isa_current();
    if (is_f64) isa->f64.io->store(STORE_F64, x + j, 1, to + j * step, 1);
    else isa->f32.io->store(row_store_of(v->dtype), &f, 1, to + j * step, 1);
  }
}

#endif
