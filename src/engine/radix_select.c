/* engine/radix_select.c - the k largest of a row by a radix descent (radix_select.h). */
#include "radix_select.h"

void radix_begin(row_state *st, uint64_t k) {
  st->mode = RADIX_COUNT;
  st->writes = st->reverse = st->empty = st->nan = false;
  st->serial = true;
  st->select.key = 0;
  st->select.unknown = RADIX_BITS;
  st->select.want = k;
  memset(st->histogram, 0, ROW_LIST * sizeof *st->histogram);
}

void radix_count(const real *x, size_t n, row_state *st) {
  int known = st->select.unknown, width = known < RADIX_DIGIT ? known : RADIX_DIGIT, shift = known - width;
  rbits mask = ((rbits)1 << width) - 1;
  for (size_t i = 0; i < n; i++) {
    rbits key = radix_key(x[i]);
    if (known == RADIX_BITS || key >> known == (rbits)st->select.key) st->histogram[key >> shift & mask]++;
  }
}

void radix_ties(const real *x, size_t first, size_t n, row_state *st) {
  for (size_t i = 0; i < n && st->select.want; i++)
    if (x[i] == (real)st->cutoff.value && --st->select.want == 0) st->cutoff.limit = (int64_t)(first + i);
}

void radix_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin);
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
  if (st->mode == RADIX_COUNT) radix_count(x, c->count, st);
  else radix_ties(x, c->start, c->count, st);
}

bool radix_next(row_state *st) {
  if (st->mode == RADIX_TIES) return false;
  int known = st->select.unknown, width = known < RADIX_DIGIT ? known : RADIX_DIGIT;
  uint64_t digit = ((uint64_t)1 << width) - 1;
  while (digit && st->histogram[digit] < st->select.want) st->select.want -= st->histogram[digit--];
  st->select.key = st->select.key << width | digit;
  st->select.unknown = known - width;
  if (st->select.unknown == 0) {
    st->cutoff.value = (double)radix_value((rbits)st->select.key);
    st->cutoff.limit = INT64_MAX;
    if (st->histogram[digit] <= st->select.want) return false;
    st->mode = RADIX_TIES;
  }
  memset(st->histogram, 0, ROW_LIST * sizeof *st->histogram);
  return true;
}
