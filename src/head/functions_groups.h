/* head/functions_groups.h - entries that have the same number, side by side: what adds to a row of
 * a gradient, in the order of the entries. */
#ifndef SMX_HEAD_FUNCTIONS_GROUPS_H
#define SMX_HEAD_FUNCTIONS_GROUPS_H
#include "driver/carve.h"
#include "driver/merge_sort.h"

typedef struct head_groups {
  int64_t *number; /* of each entry */
  int64_t *order, *spare;
} head_groups;

static inline head_groups head_groups_carve(carver *m, int64_t count) {
  const int64_t bytes = sizeof(int64_t);
  return (head_groups){carve(m, count, 1, bytes), carve(m, count, 1, bytes), carve(m, count, 1, bytes)};
}

static inline bool head_groups_before(const void *number, int64_t a, int64_t b) {
  const int64_t x = ((const int64_t *)number)[a], y = ((const int64_t *)number)[b];
  return x < y || (x == y && a < b);
}
/* Puts the first `count` entries in order. */
static inline void head_groups_sort(head_groups *g, int64_t count) {
  for (int64_t i = 0; i < count; i++) g->order[i] = i;
  int64_t *const sorted = smx_merge_sort(g->order, g->spare, count, head_groups_before, g->number);
  if (sorted != g->order) g->spare = g->order, g->order = sorted;
}

/* The number at place k of the order, and whether a group begins there. */
static inline int64_t head_groups_at(const head_groups *g, int64_t k) { return g->number[g->order[k]]; }
static inline bool head_groups_begin(const head_groups *g, int64_t k) {
  return k == 0 || head_groups_at(g, k - 1) != head_groups_at(g, k);
}

#endif
