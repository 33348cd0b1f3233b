/* engine/exp_columns.h - softmax of rows that lie side by side: element i of row c is
 * x[i * pitch + c]. A vector holds LANES rows, so nothing is transposed, and memory is read and
 * written in whole cache lines. The 64 lanes of the contract become 64 sums for every row.
 *
 * Two passes over a strip of rows: sums, then weights. Sums are taken with references from the
 * first elements, and scaled to those of the rows' own (exp.h). Where that could change bits,
 * because a score is far above its reference or a term is between the two flush limits, a pass over
 * the whole strip finds the references first. The bits are those of rows in any other layout. */
#ifndef SMX_ENGINE_EXP_COLUMNS_H
#define SMX_ENGINE_EXP_COLUMNS_H
#include "exp.h"

#define exp_columns SMX_FN(exp_columns)

/* The function behind row_forms.columns, for default parameters. */
bool exp_columns(const row_call *c, size_t count, const void *x, ptrdiff_t x_pitch, void *y,
                 ptrdiff_t y_pitch, void *scratch);

#endif
