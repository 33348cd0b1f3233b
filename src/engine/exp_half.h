/* engine/exp_half.h - softmax and its gradient on rows of f16 or bf16, without a converted copy;
 * exists where the real type is float. */
#ifndef SMX_ENGINE_EXP_HALF_H
#define SMX_ENGINE_EXP_HALF_H
#include "exp.h"

#if SMX_REAL == 32
/* The functions behind row_kernel.half. */
#define exp_half SMX_FN(exp_half)
#define weights_half SMX_FN(weights_half)
size_t exp_half(const half_rows *h);
size_t weights_half(const half_rows *h);
#endif

#endif
