/* engine/radix_select.h - the k largest of a row, by value descending and index ascending, without
 * sorting: the key of the k-th is found digit by digit from counts (a radix descent), then equal
 * elements are counted off in index order. Exact, so the order of visits does not matter. */
#ifndef SMX_ENGINE_RADIX_SELECT_H
#define SMX_ENGINE_RADIX_SELECT_H
#include "loops.h"

#define radix_begin SMX_FN(radix_begin)
#define radix_count SMX_FN(radix_count)
#define radix_ties SMX_FN(radix_ties)
#define radix_pass SMX_FN(radix_pass)
#define radix_next SMX_FN(radix_next)

enum { RADIX_DIGIT = 11, RADIX_BITS = SMX_REAL };
enum { RADIX_COUNT, RADIX_TIES, RADIX_DONE }; /* modes */

/* An unsigned key in the order of the values; -0 and +0 have one key, NaN is never asked for. */
SMI rbits radix_key(real x) {
  rbits b = r_bits(x == 0 ? 0 : x), sign = (rbits)1 << (RADIX_BITS - 1);
  return b & sign ? ~b : b | sign;
}
SMI real radix_value(rbits key) {
  rbits sign = (rbits)1 << (RADIX_BITS - 1);
  return r_from(key & sign ? key & ~sign : ~key);
}
void radix_begin(row_state *st, uint64_t k);
void radix_count(const real *x, size_t n, row_state *st);

/* st->select.want more equal elements are to be kept: finds the index of the last. */
void radix_ties(const real *x, size_t first, size_t n, row_state *st);
void radix_pass(const row_call *c, row_state *st, row_part *parts);

/* Fixes the next digit of the key wanted. True while there is more to do. */
bool radix_next(row_state *st);

#endif
