/* row/ops_maps.c - operators that work element by element. See ops.c. */
#include "engine/reduce_map.h"

/* ---- softcap: y = c tanh(x / c), dx = dy (1 - tanh^2(x / c)); c = inf leaves x alone ---- */

SMI void check_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                   reduce_map_acc *acc) {
  vreal x = at(s->src[0], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(x, x)));
}
SMI void check_both_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                        reduce_map_acc *acc) {
  check_add(s, k, r, i, cnt, acc);
  vreal dy = at(s->src[SRC_DY], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(dy, dy)));
}
SMI consts softcap_setup(const row_call *c, const span *s) { return (consts){{(real)c->params[0]}}; }
SMI vreal softcap_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), cap = v_set1(k->v[0]);
  return v_clean(k->v[0] < R_INF ? v_mul(cap, v_tanh(v_div(x, cap))) : x);
}
SMI vreal softcap_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), dy = at(s->src[SRC_DY], i, cnt);
  return v_clean(k->v[0] < R_INF ? v_mul(dy, v_sech2(v_div(x, v_set1(k->v[0])))) : dy);
}
REDUCE_MAP_SUMS_OF(softcap_check, check_add)
REDUCE_MAP_SUMS_OF(softcap_grad_check, check_both_add)
REDUCE_MAP_VALUES_OF(softcap_out, softcap_value)
REDUCE_MAP_VALUES_OF(softcap_grad_out, softcap_grad_value)
static const reduce_map_body softcap_body = {
    .setup = softcap_setup, .sums = softcap_check, .write = softcap_out, .full = 1};
REDUCE_MAP_KERNEL(softcap)
static const reduce_map_body softcap_grad_body = {
    .setup = softcap_setup, .sums = softcap_grad_check, .write = softcap_grad_out, .full = 1};
REDUCE_MAP_KERNEL(softcap_grad)

OPERATOR(softcap, softcap, softcap_grad)
