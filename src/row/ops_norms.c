/* row/ops_norms.c - standardised rows, thresholds and projections: operators whose elements need
 * sums of the row, and sums about those. See ops.c. */
#include "engine/reduce_map.h"

/* Elements above -inf exist; of others x counts as 0. */
SMI vreal norm_x(const span *s, size_t i, int cnt, vmask *live) {
  vreal x = at(s->src[0], i, cnt);
  *live = m_and(v_lt(v_set1(-R_INF), x), lanes_below(cnt));
  return v_select(*live, x, v_set1(0));
}
SMI vreal norm_only(vmask live, vreal v) { return v_select(live, v, v_set1(0)); }

/* 1 / sqrt(v) in double, v > 0: Newton from below, which ends where it stops rising. */
SMI double norm_root(double v) {
  double y = d_exp(-0.5 * (v < 1 ? -d_log(1 / v, 0) : d_log(v, 0)));
  for (int i = 0; i < 2; i++) y = y * (1.5 - 0.5 * v * y * y);
  return y;
}

/* ---- sigmoid_attention: y = sigmoid(x e^t + b), b = -log n unless given ---- */

/* NEAR: every element is there, and e^-|argument| normal */
enum { SIGMOID_SCALE, SIGMOID_BIAS, SIGMOID_MODE, SIGMOID_NEAR };
SMI consts sigmoid_setup(const row_call *c, const span *s) {
  double t = s->src[2] ? (double)*s->src[2] : c->params[2];
  bool given = s->src[1] != NULL, fixed = given || c->params[0] == 0;
  double bias = given                           ? (double)*s->src[1]
                : c->params[0] == 1 && c->n > 1 ? -d_log1p((double)c->n - 1)
                : fixed                         ? c->params[1]
                                                : 0;
  return (consts){{v_first(v_exp(v_set1((real)t))), (real)bias, !given && c->params[0] == 2}};
}
SMI void sigmoid_finalize(consts *k, const span *s, const reduce_map_row *r) {
  const double largest = (double)(r->max > -r->low ? r->max : -r->low);
  if (k->v[SIGMOID_MODE] != 0 && r->valid > 1) k->v[SIGMOID_BIAS] = (real)-d_log1p(r->valid - 1);
  const double most = largest * (double)k->v[SIGMOID_SCALE] + __builtin_fabs((double)k->v[SIGMOID_BIAS]);
  k->v[SIGMOID_NEAR] = r->valid == (double)s->n && most < 80;
}
SMI vreal sigmoid_argument(vreal x, const consts *k) {
  return v_fma(x, v_set1(k->v[SIGMOID_SCALE]), v_set1(k->v[SIGMOID_BIAS]));
}
SMI vreal sigmoid_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), y = v_sigmoid(sigmoid_argument(x, k));
  return v_clean(v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), y));
}
REDUCE_MAP_VALUES_OF(sigmoid_any, sigmoid_value)
/* The same without the cases that cannot occur. */
SMI vreal sigmoid_near_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal v = sigmoid_argument(at(s->src[0], i, cnt), k), n, p = v_exp_pair(v_sub(v_set1(0), v_abs(v)), &n),
        e = v_scale(p, n);
  return v_div(v_select(v_lt(v, v_set1(0)), e, v_set1(1)), v_add(v_set1(1), e));
}
REDUCE_MAP_VALUES_OF(sigmoid_near, sigmoid_near_value)
static void sigmoid_values(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                           row_part *part) {
  (k->v[SIGMOID_NEAR] != 0 ? sigmoid_near : sigmoid_any)(s, k, r, i, n, part);
}
static const reduce_map_body sigmoid_body = {.setup = sigmoid_setup,
                                             .finalize = sigmoid_finalize,
                                             .write = sigmoid_values,
                                             .full = 1,
                                             .max = true,
                                             .bounded = true};
REDUCE_MAP_KERNEL(sigmoid)

/* dx_i = e^t h_i, db = sum h_i, dt = sum x_i e^t h_i with h_i = dy_i y_i (1 - y_i) */
SMI vreal sigmoid_slope(const span *s, const consts *k, vreal x, size_t i, int cnt) {
  vreal v = sigmoid_argument(x, k), y = v_sigmoid(v), h = v_mul(y, v_sigmoid(v_sub(v_set1(0), v)));
  return v_select(v_eq(h, v_set1(0)), v_set1(0), v_mul(h, at(s->src[SRC_DY], i, cnt)));
}
SMI void sigmoid_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                     reduce_map_acc *acc) {
  vmask live;
  vreal x = norm_x(s, i, cnt, &live), h = norm_only(live, sigmoid_slope(s, k, x, i, cnt));
  acc->a = v_add(acc->a, h);
  acc->b = v_fma(v_select(v_eq(h, v_set1(0)), v_set1(0), v_mul(x, v_set1(k->v[SIGMOID_SCALE]))), h, acc->b);
}
SMI vreal sigmoid_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask live;
  vreal x = norm_x(s, i, cnt, &live);
  return v_clean(norm_only(live, v_mul(sigmoid_slope(s, k, x, i, cnt), v_set1(k->v[SIGMOID_SCALE]))));
}
SMI void sigmoid_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  for (int p = 1; p < 3; p++)
    if (s->dst[p]) s->dst[p][0] = post != post ? r_nan() : r_clean(p == 1 ? r->sum : r->sum2);
}
REDUCE_MAP_SUMS_OF(sigmoid_sums, sigmoid_add)
REDUCE_MAP_VALUES_OF(sigmoid_grad_values, sigmoid_grad_value)
static const reduce_map_body sigmoid_grad_body = {.setup = sigmoid_setup,
                                                  .finalize = sigmoid_finalize,
                                                  .sums = sigmoid_sums,
                                                  .write = sigmoid_grad_values,
                                                  .row = sigmoid_row,
                                                  .full = 1,
                                                  .max = true,
                                                  .gradient = true,
                                                  .bounded = true};
REDUCE_MAP_KERNEL(sigmoid_grad)

/* ---- normalized_attention and relu_layernorm_weights: y_i = gain (u_i - mean) + beta, u = x or
 * [x]+, and gain = 1 / (deviation + eps) or 1 / sqrt(variance + eps). u is scaled by 2^-e so that
 * squares stay in range ---- */

enum {
  NORM_SCALE,
  NORM_MEAN,
  NORM_GAIN,
  NORM_BETA,
  NORM_EPS,
  NORM_RELU,
  NORM_FLOOR, /* u is at least this */
  NORM_ROOT,
  NORM_GAMMA,
  NORM_DY,
  NORM_DOT
};

SMI consts nap_setup(const row_call *c, const span *s) {
  consts k = {{1}};
  k.v[NORM_FLOOR] = -R_INF;
  k.v[NORM_BETA] = (real)c->params[1], k.v[NORM_EPS] = (real)c->params[2],
  k.v[NORM_GAMMA] = (real)c->params[0];
  return k;
}
SMI consts relu_setup(const row_call *c, const span *s) {
  consts k = {{1}};
  k.v[NORM_EPS] = (real)c->params[0], k.v[NORM_GAMMA] = k.v[NORM_RELU] = 1;
  return k;
}
/* r: sum is that of u, more that of (u - mean)^2; the gradient's sum2 and more2 are those of dy and
 * dy (u - mean). */
SMI void norm_finalize(consts *k, const span *s, const reduce_map_row *r) {
  real largest = r->max > -r->low ? r->max : -r->low;
  int e = largest > 1 ? r_exponent(largest) : 0;
  if (e > EXP_BIAS - 1) e = EXP_BIAS - 1;
  double scale = d_scale(1, -e), eps = (double)k->v[NORM_EPS] * scale * (k->v[NORM_RELU] != 0 ? scale : 1),
         variance = r->more / r->valid;
  double root = variance > 0x1p-1000 ? norm_root(variance) : 0, deviation = variance * root;
  k->v[NORM_SCALE] = r_power_of_two(-e);
  k->v[NORM_MEAN] = (real)(r->sum / r->valid);
  k->v[NORM_ROOT] = (real)root;
  double gain =
      k->v[NORM_RELU] != 0 ? norm_root(variance + eps) : (double)k->v[NORM_GAMMA] / (deviation + eps);
  /* such a row has no deviation */
  k->v[NORM_GAIN] = gain > (double)R_MAX ? R_MAX : gain < -(double)R_MAX ? -R_MAX : (real)gain;
  k->v[NORM_DY] = (real)(r->sum2 / r->valid);
  double against =
      k->v[NORM_RELU] != 0 ? (double)k->v[NORM_GAIN] * (double)k->v[NORM_GAIN] : root / (deviation + eps);
  k->v[NORM_DOT] = (real)(r->more2 / r->valid * against);
}
SMI vreal norm_u(const span *s, const consts *k, size_t i, int cnt, vmask *live) {
  vreal x = norm_x(s, i, cnt, live), u = v_mul(x, v_set1(k->v[NORM_SCALE]));
  return v_max(u, v_set1(k->v[NORM_FLOOR]));
}
SMI vreal norm_away(const span *s, const consts *k, size_t i, int cnt, vmask *live) {
  const vreal away = v_sub(norm_u(s, k, i, cnt, live), v_set1(k->v[NORM_MEAN]));
  return norm_only(*live, away);
}
SMI void norm_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                  reduce_map_acc *acc) {
  vmask live;
  acc->a = v_add(acc->a, norm_u(s, k, i, cnt, &live));
}
SMI void norm_more(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                   reduce_map_acc *acc) {
  vmask live;
  const vreal away = norm_away(s, k, i, cnt, &live);
  acc->a = v_fma(away, away, acc->a);
}
/* Of dy as well. */
SMI void norm_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                       reduce_map_acc *acc) {
  vmask live;
  norm_x(s, i, cnt, &live);
  norm_add(s, k, r, i, cnt, acc);
  acc->b = v_add(acc->b, norm_only(live, at(s->src[SRC_DY], i, cnt)));
}
SMI void norm_grad_more(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                        reduce_map_acc *acc) {
  vmask live;
  const vreal away = norm_away(s, k, i, cnt, &live);
  norm_more(s, k, r, i, cnt, acc);
  acc->b = v_fma(away, norm_only(live, at(s->src[SRC_DY], i, cnt)), acc->b);
}
SMI vreal norm_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask live;
  vreal away = v_sub(norm_u(s, k, i, cnt, &live), v_set1(k->v[NORM_MEAN]));
  return v_clean(norm_only(live, v_fma(away, v_set1(k->v[NORM_GAIN]), v_set1(k->v[NORM_BETA]))));
}
/* dx_i = gain (dy_i - mean dy - (u_i - mean) dot), 0 where u does not move. */
SMI vreal norm_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask live;
  vreal u = norm_u(s, k, i, cnt, &live), away = v_sub(u, v_set1(k->v[NORM_MEAN]));
  vreal d = v_fnma(away, v_set1(k->v[NORM_DOT]), v_sub(at(s->src[SRC_DY], i, cnt), v_set1(k->v[NORM_DY])));
  if (k->v[NORM_RELU] != 0) live = m_and(live, v_lt(v_set1(0), u));
  return v_clean(norm_only(live, v_mul(v_mul(d, v_set1(k->v[NORM_SCALE])), v_set1(k->v[NORM_GAIN]))));
}
REDUCE_MAP_SUMS_OF(norm_sums, norm_add)
REDUCE_MAP_SUMS_OF(norm_mores, norm_more)
REDUCE_MAP_SUMS_OF(norm_grad_sums, norm_grad_add)
REDUCE_MAP_SUMS_OF(norm_grad_mores, norm_grad_more)
REDUCE_MAP_VALUES_OF(norm_values, norm_value)
REDUCE_MAP_VALUES_OF(norm_grad_values, norm_grad_value)
#define NORM_KERNELS(name) \
  static const reduce_map_body name##_body = {.setup = name##_setup, \
                                              .finalize = norm_finalize, \
                                              .sums = norm_sums, \
                                              .more = norm_mores, \
                                              .write = norm_values, \
                                              .full = 1, \
                                              .max = true}; \
  REDUCE_MAP_KERNEL(name) \
  static const reduce_map_body name##_grad_body = {.setup = name##_setup, \
                                                   .finalize = norm_finalize, \
                                                   .sums = norm_grad_sums, \
                                                   .more = norm_grad_mores, \
                                                   .write = norm_grad_values, \
                                                   .full = 1, \
                                                   .max = true, \
                                                   .gradient = true}; \
  REDUCE_MAP_KERNEL(name##_grad)
NORM_KERNELS(nap)
NORM_KERNELS(relu)

/* ---- unnormalized_attention ----
 *
 * y_i = u_i / n^p, u = x or [x]+, n the elements above -inf; dx_i = dy_i / n^p where u moves */

enum { LENGTH_SHARE, LENGTH_POWER, LENGTH_RELU };
SMI consts length_setup(const row_call *c, const span *s) {
  return (consts){{0, (real)c->params[0], (real)c->params[1]}};
}
SMI void length_finalize(consts *k, const span *s, const reduce_map_row *r) {
  k->v[LENGTH_SHARE] = (real)d_exp(-(double)k->v[LENGTH_POWER] * (r->valid > 1 ? d_log(r->valid, 0) : 0));
}
SMI vreal length_u(const span *s, const consts *k, size_t i, int cnt, vmask *moves) {
  vreal x = norm_x(s, i, cnt, moves);
  if (k->v[LENGTH_RELU] == 0) return x;
  *moves = m_and(*moves, v_lt(v_set1(0), x));
  return norm_only(*moves, x);
}
SMI vreal length_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask moves;
  return v_clean(v_mul(length_u(s, k, i, cnt, &moves), v_set1(k->v[LENGTH_SHARE])));
}
SMI vreal length_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask moves;
  length_u(s, k, i, cnt, &moves);
  return v_clean(norm_only(moves, v_mul(at(s->src[SRC_DY], i, cnt), v_set1(k->v[LENGTH_SHARE]))));
}
REDUCE_MAP_VALUES_OF(length_values, length_value)
REDUCE_MAP_VALUES_OF(length_grad_values, length_grad_value)
static const reduce_map_body length_body = {
    .setup = length_setup, .finalize = length_finalize, .write = length_values, .full = 1, .max = true};
REDUCE_MAP_KERNEL(length)
static const reduce_map_body length_grad_body = {.setup = length_setup,
                                                 .finalize = length_finalize,
                                                 .write = length_grad_values,
                                                 .full = 1,
                                                 .max = true,
                                                 .gradient = true};
REDUCE_MAP_KERNEL(length_grad)

/* ---- sink_metrics: mean of what later queries give to a key ---- */

enum { SINK_FIRST, SINK_SCALE };
SMI consts sinks_setup(const row_call *c, const span *s) {
  return (consts){{s->src[1] ? *s->src[1] : 0, (real)c->params[0]}};
}
/* So that sums of huge values stay in range. */
SMI void sinks_finalize(consts *k, const span *s, const reduce_map_row *r) {
  k->v[SINK_SCALE] = r->max > 0x1p64 || r->low < -0x1p64 ? 0x1p-40 : 1;
}
SMI vmask sinks_seen(const span *s, const consts *k, size_t i) {
  vreal j = v_add(v_set1((real)(s->origin + i)), v_iota());
  return m_not(v_lt(j, v_set1(k->v[SINK_FIRST])));
}
SMI void sinks_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                   reduce_map_acc *acc) {
  vmask live, seen = sinks_seen(s, k, i);
  vreal x = norm_x(s, i, cnt, &live);
  acc->a = v_fma(norm_only(m_and(live, seen), x), v_set1(k->v[SINK_SCALE]), acc->a);
  acc->b = v_add(acc->b, norm_only(m_and(seen, lanes_below(cnt)), v_set1(1)));
}
SMI void sinks_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  double mean = r->sum2 > 0 ? r->sum / r->sum2 / (double)k->v[SINK_SCALE] : 0;
  s->dst[0][0] = r_clean(post != 0 ? post : mean); /* post: the value of a row that needs a rule */
}
REDUCE_MAP_SUMS_OF(sinks_sums, sinks_add)
static const reduce_map_body sinks_body = {
    .setup = sinks_setup, .finalize = sinks_finalize, .sums = sinks_sums, .row = sinks_row, .max = true};
REDUCE_MAP_KERNEL(sinks)

/* dx_i = dalpha / count for the queries that see the key */
SMI vreal sinks_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask live;
  norm_x(s, i, cnt, &live);
  real share = r->sum2 > 0 ? (real)((double)*s->src[SRC_DY] / r->sum2) : 0;
  return v_clean(norm_only(m_and(live, sinks_seen(s, k, i)), v_set1(share)));
}
REDUCE_MAP_VALUES_OF(sinks_grad_values, sinks_grad_value)
static const reduce_map_body sinks_grad_body = {.setup = sinks_setup,
                                                .finalize = sinks_finalize,
                                                .sums = sinks_sums,
                                                .write = sinks_grad_values,
                                                .full = 1,
                                                .max = true,
                                                .gradient = true};
REDUCE_MAP_KERNEL(sinks_grad)

OPERATOR(sigmoid_attention, sigmoid, sigmoid_grad)
OPERATOR(normalized_attention, nap, nap_grad)
OPERATOR(relu_layernorm_weights, relu, relu_grad)
OPERATOR(unnormalized_attention, length, length_grad)
OPERATOR(sink_metrics, sinks, sinks_grad)
