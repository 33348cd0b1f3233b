/* engine/argfind.c - where a value is first in a row. */
#include "argfind.h"

SMI vmask argfind_hit(const void *ctx, size_t i, int cnt) {
  const argfind *w = ctx;
  return v_eq(at(w->s->src[0], w->base + i, cnt), v_set1(w->value));
}

int64_t argfind_in_group(const span *s, real value, size_t i, size_t n) {
  const argfind w = {s, i, value};
  size_t first = find_first(n, argfind_hit, &w);
  return first < n ? (int64_t)(s->origin + i + first) : -1;
}
