/* gate/functions_choose.h - which experts take a token: the k best scores, of the best groups. Only
 * comparisons, so nothing here rounds but the sum of a group's two best. */
#ifndef SMX_GATE_FUNCTIONS_CHOOSE_H
#define SMX_GATE_FUNCTIONS_CHOOSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gate_choice {
  int64_t experts, k, groups, top_groups;
  bool two; /* a group counts by the sum of its two best, not by its best */
} gate_choice;

typedef struct gate_lines {
  /* The index of the k best experts of a token, the best first, then -1; all -1 for a NaN, which
   * false says. Best is by score and bias, then the smaller number; -inf is never among them. score
   * NULL: the logits. bias: of each expert, or NULL. */
  bool (*choose)(const gate_choice *g, const void *logits, const void *score, const void *bias, void *work,
                 int64_t *index);
  /* to_j = from_index_j; an index of -1: otherwise. */
  void (*gather)(const void *from, const int64_t *index, int64_t k, double otherwise, void *to);
  void (*scale)(const void *x, double by, int64_t n, void *to);
  void (*load)(const void *x, int64_t n, double *to);
  void (*store)(const double *x, int64_t n, void *to);
} gate_lines;
extern const gate_lines gate_lines_of[2]; /* f32, f64 */

/* Of `work`. */
static inline size_t gate_choice_bytes(const gate_choice *g) {
  return (size_t)(g->experts + 2 * g->k + 3 * g->groups) * sizeof(double);
}

#endif
