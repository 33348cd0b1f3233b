/* engine/select.h - the k largest of a row, by value descending and index ascending, without sorting: the key of the k-th is found digit by digit
 * from counts (a radix descent), then equal elements are counted off in index order. Exact, so the order of visits does not matter. */
#ifndef SMX_ENGINE_SELECT_H
#define SMX_ENGINE_SELECT_H
#include "walk.h"

enum { SELECT_DIGIT = 11, SELECT_BITS = SMX_REAL };
enum { SELECT_COUNT, SELECT_TIES, SELECT_DONE }; /* modes */

/* An unsigned key in the order of the values; -0 and +0 have one key, NaN is never asked for. */
SMI rbits select_key(real x) {
  rbits b = r_bits(x == 0 ? 0 : x), sign = (rbits)1 << (SELECT_BITS - 1);
  return b & sign ? ~b : b | sign;
}
SMI real select_value(rbits key) {
  rbits sign = (rbits)1 << (SELECT_BITS - 1);
  return r_from(key & sign ? key & ~sign : ~key);
}

static inline void select_begin(row_state *st, uint64_t k) {
  st->mode = SELECT_COUNT;
  st->writes = st->reverse = st->empty = st->nan = false;
  st->serial = true;
  st->key = 0;
  st->index = SELECT_BITS; /* bits of the key still unknown */
  st->want = k;
  memset(st->histogram, 0, sizeof st->histogram);
}

static inline void select_count(const real *x, size_t n, row_state *st) {
  int known = (int)st->index, width = known < SELECT_DIGIT ? known : SELECT_DIGIT, shift = known - width;
  rbits mask = ((rbits)1 << width) - 1;
  for (size_t i = 0; i < n; i++) {
    rbits key = select_key(x[i]);
    if (known == SELECT_BITS || key >> known == (rbits)st->key) st->histogram[key >> shift & mask]++;
  }
}

/* st->want equal elements are still to be kept: finds the index of the last. */
static inline void select_ties(const real *x, size_t first, size_t n, row_state *st) {
  for (size_t i = 0; i < n && st->want; i++)
    if (x[i] == (real)st->pick.value && --st->want == 0) st->pick.limit = (int64_t)(first + i);
}

static inline void select_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin);
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
  if (st->mode == SELECT_COUNT) select_count(x, c->count, st);
  else select_ties(x, c->start, c->count, st);
}

/* Goes down to the digit that holds the element wanted. True while there is more to do. */
static inline bool select_next(row_state *st) {
  if (st->mode == SELECT_TIES) return false;
  int known = (int)st->index, width = known < SELECT_DIGIT ? known : SELECT_DIGIT;
  uint64_t digit = ((uint64_t)1 << width) - 1;
  while (digit && st->histogram[digit] < st->want) st->want -= st->histogram[digit--];
  st->key = st->key << width | digit;
  st->index = known - width;
  if (st->index == 0) {
    st->pick.value = (double)select_value((rbits)st->key);
    st->pick.limit = INT64_MAX;
    if (st->histogram[digit] <= st->want) return false;
    st->mode = SELECT_TIES;
  }
  memset(st->histogram, 0, sizeof st->histogram);
  return true;
}

#endif
