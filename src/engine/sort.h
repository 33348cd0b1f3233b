/* engine/sort.h - a radix sort of a row into ascending order, for kernels that need whole rows and
 * scratch memory and have no row program (program.h). */
#ifndef SMX_ENGINE_SORT_H
#define SMX_ENGINE_SORT_H
#include "radix_select.h"

#define sort_by_value SMX_FN(sort_by_value)

/* an even number: the result is where the values were */
enum { SORT_DIGIT = 8, SORT_DIGITS = SMX_REAL / SORT_DIGIT };
/* scratch */
enum { ROOM = ROW_DST - 1, ROOM_MORE = ROW_DST - 2, OTHER = ROW_DST - 3, OTHER_MORE = ROW_DST - 4 };

typedef struct sorted {
  size_t m;            /* elements above -inf */
  real *x, *room;      /* their values, ascending */
  real *with, *beside; /* values that are moved along, or NULL */
} sorted;

/* Equal values stay in the order of their indices. */
void sort_by_value(sorted *q);

#endif
