/* pool/functions_window.h - which cells of a tensor each output of a pooling takes. */
#ifndef SMX_POOL_FUNCTIONS_WINDOW_H
#define SMX_POOL_FUNCTIONS_WINDOW_H
#include "driver/tensors.h"

enum { POOL_AXES = 3 }; /* depth, height, width; those that a tensor lacks have one cell */

/* The cells of one output along one axis: first + j * step for j of begin..end-1 are there, those
 * of the window before and behind are absent. */
typedef struct pool_span {
  int64_t first, begin, end;
  int64_t padded; /* cells, with those of the padding */
} pool_span;

typedef struct pool_axis {
  int64_t n, outputs, window; /* window: the most cells that an output has */
  int64_t kernel, stride, padding, step;
  bool adaptive; /* bin o of m: floor(o n / m) .. ceil((o + 1) n / m) - 1 */
} pool_axis;

/* A call: `planes` tensors of one to three axes. By channel, cell after cell of `channels` planes
 * lies side by side. */
typedef struct pool_shape {
  pool_axis axis[POOL_AXES];
  int64_t planes, cells, outputs, window; /* of a plane; window: cells, the absent ones too */
  int64_t channels;                       /* 1: planes in C order */
} pool_shape;

/* The size of "o*" from that of "s*" and the parameters; errors name the parameter. */
smx_status pool_sizes(dims *d);

/* The same where inputs may have sizes of outputs: an error if they are others. */
smx_status pool_given_sizes(dims *d);

/* The size of "s*" from that of "o*". */
smx_status pool_unpool_sizes(dims *d);

pool_shape pool_shape_of(const tensor_call *c);
/* Whether some window lacks a cell. */
bool pool_may_be_absent(const pool_shape *s);
pool_span pool_span_of(const pool_axis *a, int64_t output);

/* Outputs begin..end-1 of an axis, whose windows have the same form: the first one's cells begin at
 * `first`, the next one's `stride` behind. padded: cells, with those of the padding; skipped:
 * absent ones before the first. */
typedef struct pool_segment {
  int64_t begin, end, first, stride, cells, padded, skipped;
} pool_segment;

/* The segment that begins with output `begin`, and ends at `end` at the latest. */
pool_segment pool_segment_from(const pool_axis *a, int64_t begin, int64_t end);

/* Cells of a row of cells, and the outputs that take them: number i of `count` is cell `cell + i
 * cell_step` of the plane and place `k + i k_step` of the window of output `out + i out_step`,
 * counted from `begin`. Either step by step to the next output, or through the cells of one. */
typedef struct pool_line {
  int64_t k, k_step, cell, cell_step, out, out_step, count;
} pool_line;
typedef void pool_line_fn(void *arg, const pool_line *l);

/* Calls f for the cells of outputs begin..end-1 of row `row` of the outputs of a plane (depth and
 * height): an output meets its cells in their order. */
void pool_each_line(const pool_shape *s, int64_t row, int64_t begin, int64_t end, pool_line_fn *f, void *arg);

#endif
