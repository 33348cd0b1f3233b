/* gate/functions_lines.h - numbers of the real type, to double and back. */
#ifndef SMX_GATE_FUNCTIONS_LINES_H
#define SMX_GATE_FUNCTIONS_LINES_H
#include <stdint.h>

typedef struct gate_lines {
  /* to_j = from_index_j; an index of -1: otherwise. */
  void (*gather)(const void *from, const int64_t *index, int64_t k, double otherwise, void *to);
  void (*scale)(const void *x, double by, int64_t n, void *to);
  void (*load)(const void *x, int64_t n, double *to);
  void (*store)(const double *x, int64_t n, void *to);
} gate_lines;
extern const gate_lines gate_lines_of[2]; /* f32, f64 */

#endif
