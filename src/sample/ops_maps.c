/* sample/ops_maps.c - operators that work element by element: cfg_logits. See ops.c. */
#include "engine/sum.h"

/* ---- cfg_logits: z = u + s (c - u), formed as (1 - s) u + s c; -inf in either is -inf; a NaN or +inf makes the row NaN ---- */

enum { C, U }; /* inputs */

SMI consts cfg_setup(const row_call *c, const span *s) {
  (void)s;
  return (consts){{(real)c->params[0], (real)(1 - c->params[0])}};
}
SMI void cfg_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  vreal x = at(s->src[C], i, cnt), u = at(s->src[U], i, cnt);
  (void)k;
  (void)r;
  acc->nan = m_or(acc->nan, m_not(m_and(v_lt(x, v_set1(R_INF)), v_lt(u, v_set1(R_INF)))));
}
SMI vreal cfg_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  vreal x = at(s->src[C], i, cnt), u = at(s->src[U], i, cnt), dead = v_set1(-R_INF);
  (void)r;
  vreal z = v_fma(v_set1(k->v[0]), v_sub(x, u), u);
  return v_clean(v_select(m_or(v_eq(x, dead), v_eq(u, dead)), dead, z));
}
SMI vreal cfg_grad_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  vreal dz = at(s->src[SRC_DY], i, cnt), dead = v_set1(-R_INF);
  (void)r;
  vmask gone = m_or(v_eq(at(s->src[C], i, cnt), dead), v_eq(at(s->src[U], i, cnt), dead));
  put(s->dst[C], i, cnt, v_clean(v_select(gone, v_set1(0), v_mul(v_set1(k->v[0]), dz))));
  if (s->dst[U]) put(s->dst[U], i, cnt, v_clean(v_select(gone, v_set1(0), v_mul(v_set1(k->v[1]), dz))));
  return v_set1(0);
}
SUM_SUMS_OF(cfg_check, cfg_add)
SUM_VALUES_OF(cfg_out, cfg_value)
SUM_EMIT_OF(cfg_grad_out, cfg_grad_emit)
static const sum_body cfg_body = {.setup = cfg_setup, .sums = cfg_check, .emit = cfg_out, .full = 1};
SUM_KERNEL(cfg)
static const sum_body cfg_grad_body = {.setup = cfg_setup, .sums = cfg_check, .emit = cfg_grad_out, .full = 3};
SUM_KERNEL(cfg_grad)

OPERATOR(cfg_logits, cfg, cfg_grad)
