/* matrix/functions.h - the operators on matrices that have no function of their own in
 * softmax/matrix.h, for the table of functions. */
#ifndef SMX_MATRIX_FUNCTIONS_H
#define SMX_MATRIX_FUNCTIONS_H
#include "driver/tensors.h"

smx_status matrix_dawid_skene(const tensor_call *c);
smx_status matrix_worker_agreement(const tensor_call *c);
smx_status matrix_basis_aware_accept(const tensor_call *c);

#endif
