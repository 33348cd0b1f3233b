/* attention/driver_sums.h - gradients that are sums over rows, keys and heads: of a bias, of
 * slopes, of what there is of each row or head. In double, in the order in which they are added. */
#ifndef SMX_ATTENTION_DRIVER_SUMS_H
#define SMX_ATTENTION_DRIVER_SUMS_H
#include "driver/attention.h"

/* For the elements of a tensor that may be broadcast; to.data NULL: not wanted. */
typedef struct sums {
  smx_view to;
  int64_t shape[4], step[4]; /* step: 0 where the tensor is broadcast */
  double *at;
} sums;

/* Zeros, for a full shape of ndim dimensions; false without memory. */
bool sums_open(const attention_job *j, sums *s, int32_t ndim);

static inline double *sum_of(const sums *s, int64_t b, int64_t h, int64_t i) {
  return s->at + b * s->step[0] + h * s->step[1] + i * s->step[2];
}

/* Row i of the gradients of scores, dz, of part p: to bias and slopes of row `row` of the head. */
void sums_add_row(const sums *bias, const sums *slopes, const attention_job *p, const char *dz, int64_t b,
                  int64_t h, int64_t i, int64_t row);

/* buffer: room for the longest last axis and 64 more. */
void sums_store(const attention_job *j, const sums *s, void *buffer);

/* An output that the full shape of an option may be summed into. */
smx_status sums_check(const attention_job *j, const char *port, const smx_tensor *t, int32_t ndim,
                      const int64_t *full, smx_view *v);

#endif
