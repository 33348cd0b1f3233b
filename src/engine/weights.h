/* engine/weights.h - the gradient that softmax and similar operators share: dx_i = c y_i
 * (dy_i - sum_j y_j dy_j), from y and dy alone. An element of weight 0 has gradient 0; its dy is
 * not read as a number. */
#ifndef SMX_ENGINE_WEIGHTS_H
#define SMX_ENGINE_WEIGHTS_H
#include "reduce_map_short.h"

SMI vreal where_weighted(vreal y, vreal dy) { return v_select(v_eq(y, v_set1(0)), v_set1(0), dy); }
SMI vreal upstream(const span *s, vreal y, size_t i, int cnt) {
  return where_weighted(y, at(s->src[SRC_DY], i, cnt));
}
SMI void weights_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                     reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  acc->a = v_fma(y, upstream(s, y, i, cnt), acc->a);
}
/* sum y too, for gradients of a sink. */
SMI void weights_and_total_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                               reduce_map_acc *acc) {
  weights_add(s, k, r, i, cnt, acc);
  acc->b = v_add(acc->b, at(s->src[SRC_Y], i, cnt));
}
SMI vreal weights_ds(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  vreal ds = v_mul(v_mul(v_set1(k->v[0]), y), v_sub(upstream(s, y, i, cnt), v_set1((real)r->sum)));
  return v_clean(v_select(v_eq(y, v_set1(0)), v_set1(0), ds));
}
/* The same where c is 1 and the sum finite. Then every y is finite and, where y is not 0, every dy;
 * a weight of 0 gives 0, which is flushed, and nothing is NaN. */
SMI vreal weights_slope(vreal y, vreal dy, real sum) {
  const vreal ds = v_mul(y, v_sub(where_weighted(y, dy), v_set1(sum)));
  return v_flush_tiny(ds);
}
SMI vreal weights_ordinary(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return weights_slope(at(s->src[SRC_Y], i, cnt), at(s->src[SRC_DY], i, cnt), (real)r->sum);
}

/* Where the sum of y dy over all elements is modest, every y and dy is finite: 0 dy adds 0, and
 * y (dy - sum) is 0 where y is. */
SMI vreal weights_plain_term(vreal y, vreal dy, vreal acc) { return v_fma(y, dy, acc); }
SMI vreal weights_plain_slope(vreal y, vreal dy, vreal sum) { return v_flush_tiny(v_mul(y, v_sub(dy, sum))); }
static const plain_gradient weights_gradient = {.add = weights_plain_term, .value = weights_plain_slope};

/* These loops as functions, and the kernel (weights.c). */
#define weights_sums SMX_FN(weights_sums)
#define weights_and_total SMX_FN(weights_and_total)
#define weights_out SMX_FN(weights_out)
#define weights_short SMX_FN(weights_short)
#define weights_kernel SMX_FN(weights_kernel)
reduce_map_group_fn weights_sums, weights_and_total, weights_out;
bool weights_short(const reduce_map_body *b, row_call *c); /* as reduce_map_body.small */
extern const row_kernel weights_kernel;

#endif
