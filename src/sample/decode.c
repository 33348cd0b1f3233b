/* sample/decode.c - the first pass over some named elements of a row (decode.h). */
#include "decode.h"

void named_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  *minmax_of(st) = MINMAX_NONE;
  for (size_t j = 0; j < named_count(c); j++) st->list[j] = (double)-R_INF;
}
