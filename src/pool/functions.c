/* pool/functions.c - the operators of src/pool: their functions, by number. */
#include "functions.h"

const tensor_functions pool_functions[POOL_COUNT] = {
    [POOL_max_pool] = {pool_reduce, pool_reduce_backward, pool_sizes, true},
    [POOL_avg_pool] = {pool_reduce, pool_reduce_backward, pool_sizes, true},
    [POOL_soft_pool] = {pool_soft, pool_soft_backward, pool_sizes, true},
    [POOL_lse_pool] = {pool_lse, pool_lse_backward, pool_sizes, true},
    [POOL_mixed_pool] = {pool_reduce, pool_reduce_backward, pool_sizes, true},
    [POOL_adaptive_max_pool] = {pool_reduce, pool_reduce_backward, pool_sizes, true},
    [POOL_adaptive_avg_pool] = {pool_reduce, pool_reduce_backward, pool_sizes, true},
    [POOL_adaptive_soft_pool] = {pool_soft, pool_soft_backward, pool_sizes, true},
    [POOL_nms] = {.forward = pool_nms, .packed = true},
    [POOL_soft_nms] = {.forward = pool_soft_nms, .packed = true},
};
