/* pool/ada.h - the kernels of ada_pool (pool.h), of doubles alone. */
#ifndef SMX_POOL_ADA_H
#define SMX_POOL_ADA_H
#include "pool.h"
#include "vec.h"

#if SMX_REAL == 64
void SMX_FN(pool_ada_scores)(const pool_ada_block *a);
void SMX_FN(pool_ada_weights)(const pool_ada_block *a, double *w, double *sum);
bool SMX_FN(pool_ada_four)(const pool_ada_block *a, bool keep, double *dice, double *own);
#define POOL_ADA SMX_FN(pool_ada_scores), SMX_FN(pool_ada_weights), SMX_FN(pool_ada_four)
#else
#define POOL_ADA NULL, NULL, NULL
#endif

#endif
