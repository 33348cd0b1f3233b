/* engine/ref.h - the interface of the double reference of an operator: one row, straight from the
 * formula. Used by tests only. */
#ifndef SMX_ENGINE_REF_H
#define SMX_ENGINE_REF_H
#include <stddef.h>
#include <stdint.h>

/* in[i], out[i]: in the order of op->inputs and op->outputs. A FULL port holds n values
 * (a mask: 1 keep, 0 drop), a ROW port one. An absent optional input is NULL. q: the parameters, in
 * the order of op->params. segment_softmax: one segment. */
typedef struct row_ref_call {
  size_t n;
  const double *const *in;
  double *const *out;
  const double *q;
} row_ref_call;

typedef void row_ref_fn(const row_ref_call *c);

/* The same of an operator on tensors: all of them, in C order. in_shape, out_shape: their sizes. */
typedef struct tensor_ref_call {
  const double *const *in;
  double *const *out;
  const double *q;
  const int64_t *in_shape[8], *out_shape[8];
} tensor_ref_call;

/* The last size, and all the others multiplied: of a shape that ends with a 0, or has 8. */
static inline int64_t ref_last(const int64_t *shape) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return shape[n - 1];
}
static inline int64_t ref_rows(const int64_t *shape) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < 8 && shape[d] > 0 && shape[d + 1] > 0; d++) rows *= shape[d];
  return rows;
}

static inline int64_t ref_count(const int64_t *shape) {
  return shape[0] > 0 ? ref_rows(shape) * ref_last(shape) : 1;
}

/* One number of an output, if it is wanted. */
static inline void ref_put(const tensor_ref_call *c, int port, int64_t at, double value) {
  if (c->out[port]) c->out[port][at] = value;
}

typedef void tensor_ref_fn(const tensor_ref_call *c);

/* Every family has a table NAME_refs, in the order of its list.h. */
extern row_ref_fn *const row_refs[], *const loss_refs[], *const sample_refs[];

#endif
