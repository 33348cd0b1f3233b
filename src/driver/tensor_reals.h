/* driver/tensor_reals.h - numbers of the packed tensors of a call, to double and back. */
#ifndef SMX_DRIVER_TENSOR_REALS_H
#define SMX_DRIVER_TENSOR_REALS_H
#include "reals.h"
#include "tensors.h"

/* n numbers of a tensor from number `at` on. */
static inline void tensor_load(const tensor_call *c, const smx_view *v, int64_t at, int64_t n, double *to) {
  smx_reals_load(c->is_f64, v->data + at * (c->is_f64 ? 8 : 4), n, to);
}
static inline void tensor_store(const tensor_call *c, const smx_view *v, int64_t at, int64_t n,
                                const double *from) {
  smx_reals_store(c->is_f64, from, n, v->data + at * (c->is_f64 ? 8 : 4));
}

/* Number `at` of an output, if the caller wants it; that of an upstream gradient, or 0 without. */
static inline void tensor_put(const tensor_call *c, int port, int64_t at, double value) {
  if (c->out.given[port]) tensor_store(c, c->out.view + port, at, 1, &value);
}
static inline double tensor_upstream(const tensor_call *c, int port, int64_t at) {
  double g = 0;
  if (c->dout.given[port]) tensor_load(c, c->dout.view + port, at, 1, &g);
  return g;
}

/* Whether all n numbers of a row of the first input are -inf. */
bool tensor_row_is_empty(const tensor_call *c, int64_t row, int64_t n);

/* SMX_EMPTY_ERROR: such a row has to be found before anything is written. The error says "ROW i has
 * no ELEMENTS". */
smx_status tensor_check_empty(const tensor_call *c, int64_t rows, int64_t n, const char *row,
                              const char *elements);

#endif
