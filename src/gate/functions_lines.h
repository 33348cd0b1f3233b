/* gate/functions_lines.h - rows of the real type. */
#ifndef SMX_GATE_FUNCTIONS_LINES_H
#define SMX_GATE_FUNCTIONS_LINES_H
#include <stdint.h>

typedef struct gate_lines {
  /* to_j = from_index_j; an index of -1: otherwise. */
  void (*gather)(const void *from, const int64_t *index, int64_t k, double otherwise, void *to);
  void (*scale)(const void *x, double by, int64_t n, void *to);
} gate_lines;
extern const gate_lines gate_lines_of[2]; /* f32, f64 */

#endif
