/* sample/relaxed.h - y = softmax((x + G) / T) and its gradient, for operators that draw with
 * different kinds of noise. */
#ifndef SMX_SAMPLE_RELAXED_H
#define SMX_SAMPLE_RELAXED_H
#include "noise.h"

#define relaxed_body SMX_FN(relaxed_body)
#define relaxed_grad_body SMX_FN(relaxed_grad_body)
extern const exp_body relaxed_body;
/* soft or hard: dx_i = y_i (dy_i - sum_j y_j dy_j) / T with the soft y */
extern const exp_body relaxed_grad_body;

#endif
