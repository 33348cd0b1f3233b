/* engine/logcumsumexp.h - logcumsumexp and its gradient: sums that run along the row, in index
 * order, in double.
 *
 * Forward: m is the running maximum and d the sum of e^(x_i - m) without one largest element, so y
 * = m + log1p(d) keeps its digits near 0.
 *     x <= m:  d += e^(x - m)        x > m:  d = (d + 1) e^(m - x), m = x
 * Backward, from last to first: V = dy_j + V e^(y_j - y_(j+1)), dx_j = V e^(x_j - y_j). Every
 * factor is at most 1. */
#ifndef SMX_ENGINE_LOGCUMSUMEXP_H
#define SMX_ENGINE_LOGCUMSUMEXP_H
#include "loops.h"

/* The body of its kernels: whether it runs backward. */
#define logcumsumexp_engine SMX_FN(logcumsumexp_engine)
extern const row_engine logcumsumexp_engine;

#endif
