/* gate/ops_activate.c - activations of logits and features, and their derivatives (gate.h). */
#include "engine/loops.h"
#include "engine/normal.h"
#include "mixture.h"

typedef struct active {
  vreal y, slope;
} active;

SMI active active_of(int activation, vreal x) {
  const vreal zero = v_set1(0), one = v_set1(1);
  if (activation == GATE_TANH) {
    const vreal t = v_tanh(x);
    return (active){t, v_mul(v_sub(one, t), v_add(one, t))};
  }
  if (activation == GATE_SIGMOID) {
    const vreal s = v_sigmoid(x);
    return (active){s, v_mul(s, v_sigmoid(v_sub(zero, x)))};
  }
  if (activation == GATE_GELU) { /* x Phi(x), Phi(x) + x phi(x); 0 at -inf, where x Phi(x) would be NaN */
    const normal_at at_x = normal_of_z(x);
    const vreal root = v_set1((real)0.39894228040143267794); /* 1 / sqrt(2 pi) */
    const vmask far = v_eq(at_x.p, zero);
    const vreal slope = v_fma(v_mul(root, at_x.density), x, at_x.p);
    return (active){v_select(far, zero, v_mul(x, at_x.p)),
                    v_select(v_lt(v_set1(40), v_abs(x)), at_x.p, slope)};
  }
  if (activation == GATE_RELU)
    return (active){v_select(v_lt(x, zero), zero, x), v_select(v_lt(zero, x), one, zero)};
  return (active){x, one};
}

void SMX_FN(gate_activate)(int activation, const void *x, int64_t n, void *y, void *slope) {
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const active a = active_of(activation, at(x, (size_t)i, cnt));
    put(y, (size_t)i, cnt, a.y), put(slope, (size_t)i, cnt, a.slope);
  }
}

void SMX_FN(gate_sigmoid)(const void *x, int64_t n, void *y) {
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    put(y, (size_t)i, cnt, v_sigmoid(at(x, (size_t)i, cnt)));
  }
}
