/* gate/functions_lines.h - rows of the real type. */
#ifndef SMX_GATE_FUNCTIONS_LINES_H
#define SMX_GATE_FUNCTIONS_LINES_H
#include <stdbool.h>
#include <stdint.h>

/* Row i of `to` is elements index_ij of row i of `from`, whose rows are `step` apart; absent_i for
 * an index of -1. */
typedef struct gate_gathering {
  int64_t rows, step, k;
  const int64_t *index;
  const double *absent;
} gate_gathering;

/* What weights are made of scores by: each row times scale, over its sum where `sums` is set; empty
 * where there is no expert, and no NaN either. */
typedef struct gate_weighing {
  int64_t rows, k;
  bool sums;
  double scale, empty;
} gate_weighing;
#define GATE_LEAST_SUM 1e-20 /* is added to a sum, which may be 0 */

typedef struct gate_lines {
  void (*gather)(const gate_gathering *g, const void *from, void *to);
  void (*scale)(const void *x, double by, int64_t n, void *to);
  void (*weigh)(const gate_weighing *w, const void *part, const int64_t *index, void *to);
} gate_lines;
extern const gate_lines gate_lines_of[2]; /* f32, f64 */

#endif
