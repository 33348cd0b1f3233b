/* pool/functions.h - the functions of the operators of src/pool. */
#ifndef SMX_POOL_FUNCTIONS_H
#define SMX_POOL_FUNCTIONS_H
#include "functions_window.h"
#include "pool.h"

/* Maximum, mean and their mixture. */
smx_status pool_reduce(const tensor_call *c);
smx_status pool_reduce_backward(const tensor_call *c);

/* An operator on rows that has an output a row, over the cells of each window. */
smx_status pool_soft(const tensor_call *c);
smx_status pool_soft_backward(const tensor_call *c);
smx_status pool_lse(const tensor_call *c);
smx_status pool_lse_backward(const tensor_call *c);

/* Boxes that overlap. */
smx_status pool_nms(const tensor_call *c);
smx_status pool_soft_nms(const tensor_call *c);

#endif
