/* engine/topk_sum.h - the running sum of a row (exp_program.c) and its k best (topk.h) from one
 * read: the exponentials of each group are summed, and elements above the bar are selected while
 * the group is in L1. The bits are those of the sum alone. */
#ifndef SMX_ENGINE_TOPK_SUM_H
#define SMX_ENGINE_TOPK_SUM_H
#include "exp.h"
#include "topk.h"

#define topk_sum_pass SMX_FN(topk_sum_pass)

/* A function that is called with each group of a run before it is summed: n elements, the first of
 * which is number i; last: the result of the group before, or NULL. NULL: no function. */
typedef void topk_sum_each(void *own, size_t i, size_t n, const row_part *last);

/* The row's first pass. exp_next() decides what follows. */
void topk_sum_pass(const exp_body *b, const row_call *row, row_state *st, topk *p, topk_sum_each *each,
                   void *own);

#endif
