/* engine/find.h - where a value is first in a row, for gradients of a row's extremes. */
#ifndef SMX_ENGINE_FIND_H
#define SMX_ENGINE_FIND_H
#include "sum.h"

typedef struct find {
  const span *s;
  size_t base;
  real value;
} find;
SMI vmask find_hit(const void *ctx, size_t i, int cnt) {
  const find *w = ctx;
  return v_eq(at(w->s->src[0], w->base + i, cnt), v_set1(w->value));
}
/* The index in the row, or -1 when the value is not in the group. */
NOINLINE int64_t find_in_group(const span *s, real value, size_t i, size_t n) {
  const find w = {s, i, value};
  size_t first = find_first(n, find_hit, &w);
  return first < n ? (int64_t)(s->origin + i + first) : -1;
}
/* v at an element of the row, 0 elsewhere. index: whole, or -1. */
SMI vreal find_put(double index, const span *s, size_t i, vreal v) {
  return v_select(v_eq(v_iota(), v_set1((real)(index - (double)(s->origin + i)))), v, v_set1(0));
}

#endif
