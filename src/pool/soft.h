/* pool/soft.h - the kernel of soft_pool (pool.h). */
#ifndef SMX_POOL_SOFT_H
#define SMX_POOL_SOFT_H
#include "pool.h"
#include "vec.h"

bool SMX_FN(pool_soften)(const pool_windows *w, int64_t places, const void *x, void *y);

#endif
