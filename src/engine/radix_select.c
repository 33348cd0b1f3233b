/* engine/radix_select.c - the k largest of a row by a radix descent (radix_select.h). */
#include "radix_select.h"

void radix_begin(row_state *st, uint64_t k) {
  st->mode = RADIX_COUNT;
  st->writes = st->reverse = st->empty = st->nan = false;
  st->serial = true;
  st->key = 0;
  st->index = RADIX_BITS; /* bits of the key still unknown */
  st->want = k;
  memset(st->histogram, 0, sizeof st->histogram);
}

void radix_count(const real *x, size_t n, row_state *st) {
  int known = (int)st->index, width = known < RADIX_DIGIT ? known : RADIX_DIGIT, shift = known - width;
  rbits mask = ((rbits)1 << width) - 1;
  for (size_t i = 0; i < n; i++) {
    rbits key = radix_key(x[i]);
    if (known == RADIX_BITS || key >> known == (rbits)st->key) st->histogram[key >> shift & mask]++;
  }
}

void radix_ties(const real *x, size_t first, size_t n, row_state *st) {
  for (size_t i = 0; i < n && st->want; i++)
    if (x[i] == (real)st->cutoff.value && --st->want == 0) st->cutoff.limit = (int64_t)(first + i);
}

void radix_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin);
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
  if (st->mode == RADIX_COUNT) radix_count(x, c->count, st);
  else radix_ties(x, c->start, c->count, st);
}

bool radix_next(row_state *st) {
  if (st->mode == RADIX_TIES) return false;
  int known = (int)st->index, width = known < RADIX_DIGIT ? known : RADIX_DIGIT;
  uint64_t digit = ((uint64_t)1 << width) - 1;
  while (digit && st->histogram[digit] < st->want) st->want -= st->histogram[digit--];
  st->key = st->key << width | digit;
  st->index = known - width;
  if (st->index == 0) {
    st->cutoff.value = (double)radix_value((rbits)st->key);
    st->cutoff.limit = INT64_MAX;
    if (st->histogram[digit] <= st->want) return false;
    st->mode = RADIX_TIES;
  }
  memset(st->histogram, 0, sizeof st->histogram);
  return true;
}
