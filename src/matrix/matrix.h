/* matrix/matrix.h - what the room of operators on matrices shows: its table. Its arithmetic is
 * plain functions of softmax.h (src/api). */
#ifndef SMX_MATRIX_H
#define SMX_MATRIX_H
#include <softmax.h>

enum {
  MATRIX_sinkhorn,
  MATRIX_orthostochastic,
  MATRIX_logsumexp_objective,
  MATRIX_softmax_regression,
  MATRIX_jensen_shannon_divergence,
  MATRIX_jensen_shannon_centroid,
  MATRIX_dawid_skene,
  MATRIX_worker_agreement,
  MATRIX_COUNT
};
extern const smx_op matrix_table[MATRIX_COUNT];

#endif
