/* pool/functions.c - the operators of src/pool: their functions, by number. */
#include "functions.h"

#define REDUCE \
  { pool_reduce, pool_reduce_backward, pool_sizes, true }
#define SOFT \
  { pool_soft, pool_soft_backward, pool_sizes, true }

const tensor_functions pool_functions[POOL_COUNT] = {
    [POOL_max_pool] = REDUCE,          [POOL_avg_pool] = REDUCE,
    [POOL_soft_pool] = SOFT,           [POOL_lse_pool] = {pool_lse, pool_lse_backward, pool_sizes, true},
    [POOL_mixed_pool] = REDUCE,        [POOL_adaptive_max_pool] = REDUCE,
    [POOL_adaptive_avg_pool] = REDUCE, [POOL_adaptive_soft_pool] = SOFT,
};
