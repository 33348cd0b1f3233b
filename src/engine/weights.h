/* engine/weights.h - the gradient that softmax and its kin share: dx_i = c y_i (dy_i - sum_j y_j dy_j), from y and dy alone.
 * An element of weight 0 has gradient 0; its dy is not read as a number. */
#ifndef SMX_ENGINE_WEIGHTS_H
#define SMX_ENGINE_WEIGHTS_H
#include "sum_short.h"

SMI vreal where_weighted(vreal y, vreal dy) { return v_select(v_eq(y, v_set1(0)), v_set1(0), dy); }
SMI vreal upstream(const span *s, vreal y, size_t i, int cnt) { return where_weighted(y, at(s->src[SRC_DY], i, cnt)); }
SMI void weights_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)k;
  (void)r;
  vreal y = at(s->src[SRC_Y], i, cnt);
  acc->a = v_fma(y, upstream(s, y, i, cnt), acc->a);
}
/* sum y besides, for gradients of a sink. */
SMI void weights_and_total_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  weights_add(s, k, r, i, cnt, acc);
  acc->b = v_add(acc->b, at(s->src[SRC_Y], i, cnt));
}
SMI vreal weights_ds(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  vreal ds = v_mul(v_mul(v_set1(k->v[0]), y), v_sub(upstream(s, y, i, cnt), v_set1((real)r->sum)));
  return v_clean(v_select(v_eq(y, v_set1(0)), v_set1(0), ds));
}
/* The same where c is 1 and the sum finite, and so every y and, where y is not 0, every dy: a weight of 0 gives a 0 that is flushed, and nothing NaN. */
SMI vreal weights_slope(vreal y, vreal dy, real sum) {
  const vreal ds = v_mul(y, v_sub(where_weighted(y, dy), v_set1(sum)));
  return v_flush(ds, v_abs(ds), v_set1(R_TINY));
}
SMI vreal weights_ordinary(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)k;
  return weights_slope(at(s->src[SRC_Y], i, cnt), at(s->src[SRC_DY], i, cnt), (real)r->sum);
}
SUM_SUMS_OF(weights_sums, weights_add)
SUM_SUMS_OF(weights_and_total, weights_and_total_add)
SUM_VALUES_OF(weights_out, weights_ds)
SUM_VALUES_OF(weights_out_ordinary, weights_ordinary)
SUM_SHORT_OF(weights_short, weights_add, weights_ds, weights_ordinary)
static const sum_body weights_body = {
    .setup = setup_one, .sums = weights_sums, .emit = weights_out, .ordinary = weights_out_ordinary, .small = weights_short, .full = 1};
SUM_KERNEL(weights)

#endif
