/* engine/topk_sum.h - the running sum of a row (exp_program.h) and its k best (topk.h) from one
 * read: of each group the exponentials are summed, and while it is in the nearest cache, what lies
 * above the bar is picked. The bits are those of the sum alone. */
#ifndef SMX_ENGINE_TOPK_SUM_H
#define SMX_ENGINE_TOPK_SUM_H
#include "exp.h"
#include "topk.h"

#define topk_sum_pass SMX_FN(topk_sum_pass)

/* What is done with each group of a run before it is summed: n elements, the first of which is
 * number i; last: what the group before came to, or NULL. NULL: nothing. */
typedef void topk_sum_each(void *own, size_t i, size_t n, const row_part *last);

/* The row's first pass. exp_next() goes on from it. */
void topk_sum_pass(const exp_body *b, const row_call *row, row_state *st, topk *p, topk_sum_each *each,
                   void *own);

#endif
