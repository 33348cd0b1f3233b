/* engine/limit.h - kernels of the exponential family that make something of the weights: under SMX_INF_LIMIT the shares of the +inf go through
 * the same map. */
#ifndef SMX_ENGINE_LIMIT_H
#define SMX_ENGINE_LIMIT_H
#include "exp_rows.h"

/* As EXP_KERNEL. double share_of(const row_call *c, double share): what becomes of a weight of 1 / count. */
#define LIMIT_KERNEL(name, share_of) \
  static void name##_begin(const row_call *c, row_state *st) { exp_begin(&name##_body, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { exp_pass(&name##_body, c, st, parts); } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { exp_fold(c, st, parts, count); } \
  static bool name##_next(const row_call *c, row_state *st) { \
    const bool before = st->mode == EXP_LIMIT, more = exp_next(&name##_body, c, st); \
    if (!before && st->mode == EXP_LIMIT) st->sum = 1 / share_of(c, 1 / st->sum); \
    return more; \
  } \
  static void name##_rows(row_call *c); \
  static const row_kernel name##_kernel = KERNEL(name); \
  static void name##_rows(row_call *c) { exp_rows(&name##_body, &name##_kernel, c); }

#endif
