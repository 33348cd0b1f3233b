/* matrix/votes.h - the operators that find classes from votes, for the table of functions. */
#ifndef SMX_MATRIX_VOTES_H
#define SMX_MATRIX_VOTES_H
#include "driver/tensors.h"

smx_status matrix_dawid_skene(const tensor_call *c);
smx_status matrix_worker_agreement(const tensor_call *c);

#endif
