/* sample/ops_maps.c - operators that work element by element: cfg_logits, soft_cfg_weights,
 * gumbel_flow_velocity. See ops.c. */
#include "engine/reduce_map.h"

/* ---- cfg_logits ----
 *
 * z = u + s (c - u), formed as (1 - s) u + s c; -inf in either is -inf; a NaN or +inf makes the
 * row NaN */

enum { C, U }; /* inputs */

SMI consts cfg_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[0], (real)(1 - c->params[0])}};
}
SMI void cfg_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                 reduce_map_acc *acc) {
  vreal x = at(s->src[C], i, cnt), u = at(s->src[U], i, cnt);
  acc->nan = m_or(acc->nan, m_not(m_and(v_lt(x, v_set1(R_INF)), v_lt(u, v_set1(R_INF)))));
}
SMI vreal cfg_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[C], i, cnt), u = at(s->src[U], i, cnt), dead = v_set1(-R_INF);
  vreal z = v_fma(v_set1(k->v[0]), v_sub(x, u), u);
  return v_clean(v_select(m_or(v_eq(x, dead), v_eq(u, dead)), dead, z));
}
SMI vreal cfg_grad_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal dz = at(s->src[SRC_DY], i, cnt), dead = v_set1(-R_INF);
  vmask gone = m_or(v_eq(at(s->src[C], i, cnt), dead), v_eq(at(s->src[U], i, cnt), dead));
  put(s->dst[C], i, cnt, v_clean(v_select(gone, v_set1(0), v_mul(v_set1(k->v[0]), dz))));
  if (s->dst[U]) put(s->dst[U], i, cnt, v_clean(v_select(gone, v_set1(0), v_mul(v_set1(k->v[1]), dz))));
  return v_set1(0);
}
REDUCE_MAP_SUMS_OF(cfg_check, cfg_add)
REDUCE_MAP_VALUES_OF(cfg_out, cfg_value)
REDUCE_MAP_WRITE_OF(cfg_grad_out, cfg_grad_write)
static const reduce_map_body cfg_body = {.setup = cfg_setup, .sums = cfg_check, .write = cfg_out, .full = 1};
REDUCE_MAP_KERNEL(cfg)
static const reduce_map_body cfg_grad_body = {
    .setup = cfg_setup, .sums = cfg_check, .write = cfg_grad_out, .full = 3};
REDUCE_MAP_KERNEL(cfg_grad)

OPERATOR(cfg_logits, cfg, cfg_grad)

/* ---- soft_cfg_weights: y_i = 1 - x_i min(1, bound / sum x). -inf is no token, and has 1 ---- */

SMI consts soft_cfg_setup(const row_call *c, const span *s) { return (consts){{1, (real)c->params[0]}}; }
SMI void soft_cfg_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                      reduce_map_acc *acc) {
  const vreal x = at(s->src[0], i, cnt);
  const vmask none = v_eq(x, v_set1(-R_INF)),
              fine = m_and(m_not(v_lt(x, v_set1(0))), m_not(v_lt(v_set1(1), x)));
  acc->a = v_add(acc->a, v_select(none, v_set1(0), x));
  acc->nan = m_or(acc->nan, m_not(m_or(none, m_and(fine, v_eq(x, x)))));
}
static void soft_cfg_limit(consts *k, const span *s, const reduce_map_row *r) {
  const double bound = (double)k->v[1];
  k->v[0] = (real)(r->sum > bound ? bound / r->sum : 1);
}
SMI vreal soft_cfg_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const vreal x = at(s->src[0], i, cnt);
  const vreal y = v_fma(v_set1(-k->v[0]), x, v_set1(1));
  return v_clean(v_select(v_eq(x, v_set1(-R_INF)), v_set1(1), y));
}
REDUCE_MAP_SUMS_OF(soft_cfg_sums, soft_cfg_add)
REDUCE_MAP_VALUES_OF(soft_cfg_out, soft_cfg_value)
static const reduce_map_body soft_cfg_body = {.setup = soft_cfg_setup,
                                              .finalize = soft_cfg_limit,
                                              .sums = soft_cfg_sums,
                                              .write = soft_cfg_out,
                                              .full = 1};
REDUCE_MAP_KERNEL(soft_cfg)

FORWARD_OPERATOR(soft_cfg_weights, soft_cfg)

/* ---- gumbel_flow_velocity: u_i = c x_i (g_i - m), m = sum x g, where g is the model's p
 * and c = lambda / tau(t), or, without a model, g = log x and c = lambda: the derivative of
 * x_t = softmax(h / tau(t)) in t, with tau(t) = tau_max e^(-lambda t) ---- */

enum { FLOW_X, FLOW_TIME, FLOW_P }; /* inputs */
enum { FLOW_TAU_MAX, FLOW_LAMBDA }; /* parameters */
enum { FLOW_C, FLOW_MODEL, FLOW_NAN };

SMI consts flow_setup(const row_call *c, const span *s) {
  const double lambda = c->params[FLOW_LAMBDA], time = (double)*s->src[FLOW_TIME];
  const bool model = s->src[FLOW_P] != NULL;
  double rate = model ? lambda / c->params[FLOW_TAU_MAX] * d_exp(lambda * time) : lambda;
  return (consts){{(real)rate, model ? 1 : 0, time == time ? 0 : r_nan()}};
}
SMI vreal flow_gain(const span *s, const consts *k, size_t i, int cnt) {
  if (k->v[FLOW_MODEL] != 0) return at(s->src[FLOW_P], i, cnt);
  vreal x = at(s->src[FLOW_X], i, cnt);
  vmask live = v_lt(v_set1(0), x);
  return v_select(live, v_log_scaled(v_select(live, x, v_set1(1)), v_set1(0)), v_set1(0));
}
/* An x below 0, of which there is no logarithm, makes the row NaN as a NaN does. */
SMI void flow_check(const span *s, const consts *k, size_t i, int cnt, vreal gain, reduce_map_acc *acc) {
  vreal x = at(s->src[FLOW_X], i, cnt);
  vmask fine =
      m_and(m_not(v_lt(x, v_set1(0))), m_and(v_lt(x, v_set1(R_INF)), v_lt(v_abs(gain), v_set1(R_INF))));
  acc->nan = m_or(acc->nan, m_or(m_not(fine), m_not(v_eq(v_set1(k->v[FLOW_NAN]), v_set1(0)))));
}
SMI void flow_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                  reduce_map_acc *acc) {
  vreal gain = flow_gain(s, k, i, cnt), x = at(s->src[FLOW_X], i, cnt);
  flow_check(s, k, i, cnt, gain, acc);
  acc->a = v_fma(x, gain, acc->a);
  if (s->src[SRC_DY]) acc->b = v_fma(x, at(s->src[SRC_DY], i, cnt), acc->b);
}
SMI vreal flow_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal away = v_sub(flow_gain(s, k, i, cnt), v_set1((real)r->sum));
  return v_clean(v_mul(v_mul(v_set1(k->v[FLOW_C]), at(s->src[FLOW_X], i, cnt)), away));
}
/* With B = sum x dy: dx_j = c (dy_j (g_j - m) - g_j B), and c (dy_j - B) more where g = log x;
 * dp_j = c x_j (dy_j - B). */
SMI vreal flow_grad_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal gain = flow_gain(s, k, i, cnt), dy = at(s->src[SRC_DY], i, cnt), b = v_set1((real)r->sum2),
        x = at(s->src[FLOW_X], i, cnt);
  vreal c = v_set1(k->v[FLOW_C]), away = v_sub(dy, b);
  vreal dx = v_sub(v_mul(dy, v_sub(gain, v_set1((real)r->sum))), v_mul(gain, b));
  if (k->v[FLOW_MODEL] == 0) dx = v_select(v_lt(v_set1(0), x), v_add(dx, away), v_set1(0));
  put(s->dst[FLOW_X], i, cnt, v_clean(v_mul(c, dx)));
  if (s->dst[FLOW_P]) put(s->dst[FLOW_P], i, cnt, v_clean(v_mul(v_mul(c, x), away)));
  return v_set1(0);
}
REDUCE_MAP_SUMS_OF(flow_sums, flow_add)
REDUCE_MAP_VALUES_OF(flow_out, flow_value)
REDUCE_MAP_WRITE_OF(flow_grad_out, flow_grad_write)
static const reduce_map_body flow_body = {
    .setup = flow_setup, .sums = flow_sums, .write = flow_out, .full = 1};
REDUCE_MAP_KERNEL(flow)
static const reduce_map_body flow_grad_body = {
    .setup = flow_setup, .sums = flow_sums, .write = flow_grad_out, .full = 1 | 1 << FLOW_P};
REDUCE_MAP_KERNEL(flow_grad)

OPERATOR(gumbel_flow_velocity, flow, flow_grad)
