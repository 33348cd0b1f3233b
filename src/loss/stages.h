/* loss/stages.h - shared by the program of a loss (stages.c) and its short rows (short.c). */
#ifndef SMX_LOSS_STAGES_H
#define SMX_LOSS_STAGES_H
#include "rows.h"

#define loss_row_at SMX_FN(loss_row_at)
#define loss_find_target SMX_FN(loss_find_target)
#define loss_ways_out SMX_FN(loss_ways_out)
#define loss_target_inputs SMX_FN(loss_target_inputs)
/* Begins row `row` of the call. */
void loss_row_at(const loss_body *b, const row_call *c, size_t row, loss_row *r);
void loss_find_target(const loss_body *b, const row_call *c, loss_row *r);
/* Sets where gradients are stored, and their factor. */
void loss_ways_out(const loss_body *b, const row_call *c, loss_row *r);
/* Reads the inputs at the target, if this piece of the row has it. */
void loss_target_inputs(const loss_body *b, const loss_row *r, double *target_inputs);

#endif
