/* engine/argfind.h - where a value is first in a row, for gradients of a row's extremes. */
#ifndef SMX_ENGINE_ARGFIND_H
#define SMX_ENGINE_ARGFIND_H
#include "reduce_map.h"

#define argfind_in_group SMX_FN(argfind_in_group)

typedef struct argfind {
  const span *s;
  size_t base;
  real value;
} argfind;
/* The index in the row of a value in the group, or -1. */
int64_t argfind_in_group(const span *s, real value, size_t i, size_t n);
/* v at an element of the row, 0 elsewhere. index: whole, or -1. */
SMI vreal argfind_put(double index, const span *s, size_t i, vreal v) {
  return v_select(v_eq(v_iota(), v_set1((real)(index - (double)(s->origin + i)))), v, v_set1(0));
}

#endif
