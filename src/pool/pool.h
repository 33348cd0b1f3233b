/* pool/pool.h - the table of the operators that pool: many elements become one, over windows or
 * bins; of many boxes that overlap the best stay. */
#ifndef SMX_POOL_H
#define SMX_POOL_H
#include <softmax.h>

enum {
  POOL_max_pool,
  POOL_avg_pool,
  POOL_soft_pool,
  POOL_lse_pool,
  POOL_mixed_pool,
  POOL_adaptive_max_pool,
  POOL_adaptive_avg_pool,
  POOL_adaptive_soft_pool,
  POOL_nms,
  POOL_soft_nms,
  POOL_COUNT
};
extern const smx_op pool_table[POOL_COUNT];

#endif
