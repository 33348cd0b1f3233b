/* engine/sort.h - a row in ascending order, for kernels that have the whole row and room for it: no row program (program.h). A radix sort. */
#ifndef SMX_ENGINE_SORT_H
#define SMX_ENGINE_SORT_H
#include "select.h"

enum { SORT_DIGIT = 8, SORT_DIGITS = SMX_REAL / SORT_DIGIT }; /* an even number: the result is where the values were */
enum { ROOM = ROW_DST - 1, ROOM_MORE = ROW_DST - 2, OTHER = ROW_DST - 3, OTHER_MORE = ROW_DST - 4 }; /* scratch */

typedef struct sorted {
  size_t m;            /* elements above -inf */
  real *x, *room;      /* their values, ascending */
  real *with, *beside; /* what goes with them, or NULL */
} sorted;

/* Equal values stay in the order of their indices. */
static inline void sort_by_value(sorted *q) {
  for (int digit = 0; digit < SORT_DIGITS; digit++) {
    size_t start[(1 << SORT_DIGIT) + 1] = {0};
    const int shift = digit * SORT_DIGIT;
    for (size_t i = 0; i < q->m; i++) start[(select_key(q->x[i]) >> shift & 0xff) + 1]++;
    for (int d = 0; d < 1 << SORT_DIGIT; d++) start[d + 1] += start[d];
    for (size_t i = 0; i < q->m; i++) {
      size_t to = start[select_key(q->x[i]) >> shift & 0xff]++;
      q->room[to] = q->x[i];
      if (q->with) q->beside[to] = q->with[i];
    }
    real *x = q->x, *with = q->with;
    q->x = q->room, q->room = x;
    q->with = q->beside, q->beside = with;
  }
}

#endif
