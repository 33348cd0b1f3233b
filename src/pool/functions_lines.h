/* pool/functions_lines.h - the loops over the cells of windows, for f32 and f64. */
#ifndef SMX_POOL_FUNCTIONS_LINES_H
#define SMX_POOL_FUNCTIONS_LINES_H
#include "functions_window.h"

/* Outputs of a row that are reduced together. x, dx: the plane. */
typedef struct range {
  const void *x;
  void *dx, *largest; /* of the real type */
  double *sum;
  int64_t *index;
} range;

/* Windows as a matrix: place k of window i is at k place + i window. x, dx: the plane. */
typedef struct windows {
  const void *x;
  void *dx, *matrix;
  int64_t place, window;
} windows;

typedef struct pool_lines {
  pool_line_fn *largest, *larger, *sum, *mean; /* arg: a range; larger: without the cell */
  void (*give)(const range *r, double a, int64_t n);
  void (*mix)(const void *x, double a, int64_t n, double *v);
  pool_line_fn *gather, *scatter; /* arg: windows */
  void (*hide)(void *matrix, int64_t n);
  void (*scale)(const void *matrix, double beta, int64_t n, void *to);
  void (*fold)(const windows *w, const void *weights, int64_t places, int64_t n, double *sum);
  void (*weigh)(const windows *w, void *weights, int64_t places, int64_t n, double beta, const double *sum,
                const void *dy);
} pool_lines;
extern const pool_lines pool_lines_of[2]; /* f32, f64 */

#endif
