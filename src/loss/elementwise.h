/* loss/elementwise.h - the macros of losses that are sums over the classes, each on its own: the
 * kernels around an arithmetic without weights. */
#ifndef SMX_LOSS_ELEMENTWISE_H
#define SMX_LOSS_ELEMENTWISE_H
#include "logits.h"

SMI vreal zero(void) { return v_set1(0); }
SMI vreal one(void) { return v_set1(1); }
SMI vreal negative(vreal x) { return v_sub(zero(), x); }

/* A log-probability that is +inf is none. */
SMI vreal log_probability(const real *x, size_t i, int cnt) {
  const vreal v = at(x, i, cnt);
  return v_select(v_eq(v, v_set1(R_INF)), v_set1(r_nan()), v);
}

/* mass times x, 0 where the mass is 0 whatever x is. */
SMI vreal no_less(vreal mass, vreal x) { return v_select(v_eq(mass, zero()), zero(), v_mul(mass, x)); }

/* A loss of sums over the row alone: `late` adds them up. inputs: those that run along the
 * row; y, u: the ports of target and teacher, or 0. */
#define TERMS(name, late, inputs, y, u) \
  static const loss_body name##_body = {.sums = {[STAGE_LATE] = late}, \
                                        .finalize = name##_finalize, \
                                        .write = {name##_out}, \
                                        .along = inputs, \
                                        .target = y, \
                                        .teacher = u}; \
  LOSS_KERNEL(name)

#endif
