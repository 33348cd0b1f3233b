/* driver/merge_sort.h - a stable order of numbers, by a comparison that may ask for anything. */
#ifndef SMX_DRIVER_MERGE_SORT_H
#define SMX_DRIVER_MERGE_SORT_H
#include <stdbool.h>
#include <stdint.h>

/* Sorts the first `count` of order; `spare` has room for as many. Merges runs, twice as long each
 * time; returns which of the two has the result. */
static inline int64_t *smx_merge_sort(int64_t *order, int64_t *spare, int64_t count,
                                      bool (*is_before)(const void *arg, int64_t a, int64_t b),
                                      const void *arg) {
  for (int64_t run = 1; run < count; run *= 2) {
    for (int64_t begin = 0; begin < count; begin += 2 * run) {
      const int64_t middle = begin + run < count ? begin + run : count,
                    end = middle + run < count ? middle + run : count;
      int64_t a = begin, b = middle;
      for (int64_t i = begin; i < end; i++)
        spare[i] = b == end || (a < middle && !is_before(arg, order[b], order[a])) ? order[a++] : order[b++];
    }
    int64_t *swap = order;
    order = spare, spare = swap;
  }
  return order;
}

#endif
