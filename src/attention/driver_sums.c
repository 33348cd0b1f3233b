/* attention/driver_sums.c - see driver_sums.h. */
#include "driver_sums.h"

#include <string.h>

bool sums_open(const attention_job *j, sums *s, int32_t ndim) {
  int64_t count = 1;
  if (!s->to.data) return true;
  for (int32_t d = 3; d >= 0; d--) {
    int32_t own = d - (ndim - s->to.ndim);
    s->shape[d] = d < ndim && own >= 0 ? s->to.shape[own] : 1;
    s->step[d] = s->shape[d] == 1 ? 0 : count;
    count *= s->shape[d];
  }
  s->at = smx_alloc(j->ctx, (size_t)(count + 64) * sizeof *s->at);
  if (s->at) memset(s->at, 0, (size_t)(count + 64) * sizeof *s->at);
  return s->at != NULL;
}

void sums_add_row(const sums *bias, const sums *slopes, const attention_job *p, const char *dz, int64_t b,
                  int64_t h, int64_t i, int64_t row) {
  double distances = 0, *to = bias->at ? sum_of(bias, b, h, row) : NULL;
  for (int64_t x = 0; x < p->lk; x++) {
    const int64_t at = i * p->lk + x;
    const double z = p->real_bytes == 8 ? ((const double *)(const void *)dz)[at]
                                        : (double)((const float *)(const void *)dz)[at],
                 far = (double)(i + p->query_start - p->key_start - x);
    if (to) to[x * bias->step[3]] += z;
    distances -= z * (far < 0 ? -far : far);
  }
  if (slopes->at) *sum_of(slopes, b, h, 0) += distances;
}

/* A row of the last axis at a time. */
void sums_store(const attention_job *j, const sums *s, void *buffer) {
  const smx_view *v = &s->to;
  if (!s->at) return;
  const int64_t bytes = smx_dtype_bytes(v->dtype), columns = v->ndim ? v->shape[v->ndim - 1] : 1;
  for (int64_t r = 0, rows = columns ? smx_view_elements(v) / columns : 0; r < rows; r++) {
    int64_t at = 0, left = r;
    for (int32_t d = v->ndim - 2; d >= 0; d--) at += left % v->shape[d] * v->strides[d], left /= v->shape[d];
    attention_store(j, v->data + at * bytes, v->ndim ? v->strides[v->ndim - 1] : 1, v->dtype,
                    s->at + r * columns, columns, buffer);
  }
}

smx_status sums_check(const attention_job *j, const char *port, const smx_tensor *t, int32_t ndim,
                      const int64_t *full, smx_view *v) {
  if (!t) return SMX_OK;
  smx_view spread;
  smx_status status = attention_broadcast(j, port, t, FLOATS, ndim, full, &spread);
  if (status == SMX_OK) status = smx_view_of((smx_label){j->name, "", port}, t, true, v);
  return status == SMX_OK ? attention_apart(j, port, v) : status;
}
