/* blocks.h - cuts a run into pieces along the dimensions before the axis, so that only a piece is
 * in memory at a time. */
#ifndef CLI_BLOCKS_H
#define CLI_BLOCKS_H

#include "bind.h"

/* A box of the first input's indices. The boxes of a plan follow one another in C order, and so do
 * their results. */
typedef struct blocks {
  /* dimensions before `depth` have one index a block, `depth` has up to `step`, the others are
   * whole */
  int32_t ndim, depth;
  int64_t step, total; /* total: number of blocks */
  int64_t shape[SMX_MAX_DIMS], start[SMX_MAX_DIMS], count[SMX_MAX_DIMS];
  int64_t first, own; /* what this process has of the axis of the rows, where others have the rest */
} blocks;

/* The axis, which may count from the end, goes to the end; *place: where it was. */
int blocks_axis_last(input *in, int32_t axis, int32_t *place);

/* axis: of x, not negative. bytes: how much of x a block may have. The first block is then the
 * current one. */
void blocks_begin(blocks *b, const io_array *x, uint32_t element, int32_t axis, int64_t bytes);

/* Rows along the last axis that the current block has. */
int64_t blocks_row_count(const blocks *b);

/* Moves on; false after the last block. */
bool blocks_next(blocks *b);

/* A tensor and the arrays it points to. */
typedef struct view {
  smx_tensor tensor;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS];
} view;

/* The part of an input that belongs to the current block; whole for inputs that are not rows
 * of x (`row_dims` = dimensions of what it broadcasts to, 0 = nothing). cut: the dimension of it
 * that is cut among processes, or -1. */
int blocks_view(const blocks *b, input *in, int32_t row_dims, int32_t cut, view *v);

/* The same of the first input, with elements that follow one another in C order. */
int blocks_rows(const blocks *b, input *in, view *v);

#endif
