/* matrix/matrix.h - the table of the operators on matrices. Their arithmetic is the functions of
 * softmax/matrix.h, in this directory. */
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
  MATRIX_basis_aware_accept,
  MATRIX_COUNT
};
extern const smx_op matrix_table[MATRIX_COUNT];

#endif
