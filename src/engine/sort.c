/* engine/sort.c - a radix sort of a row (sort.h). */
#include "sort.h"

void sort_by_value(sorted *q) {
  for (int digit = 0; digit < SORT_DIGITS; digit++) {
    size_t start[(1 << SORT_DIGIT) + 1] = {0};
    const int shift = digit * SORT_DIGIT;
    for (size_t i = 0; i < q->m; i++) start[(radix_key(q->x[i]) >> shift & 0xff) + 1]++;
    for (int d = 0; d < 1 << SORT_DIGIT; d++) start[d + 1] += start[d];
    for (size_t i = 0; i < q->m; i++) {
      size_t to = start[radix_key(q->x[i]) >> shift & 0xff]++;
      q->room[to] = q->x[i];
      if (q->with) q->beside[to] = q->with[i];
    }
    real *x = q->x, *with = q->with;
    q->x = q->room, q->room = x;
    q->with = q->beside, q->beside = with;
  }
}
