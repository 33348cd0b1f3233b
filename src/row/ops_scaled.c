/* row/ops_scaled.c - softmax with another term in its sum, with a factor that depends on the row,
 * or with changed weights. See ops.c. */
#include "engine/compose.h"
#include "engine/scores.h"
#include "engine/weights.h"

/* ---- softmax_n: n joins the sum, as the score log n ---- */

SMI consts softmax_n_setup(const row_call *c, const span *s) {
  double n = c->params[0];
  return (consts){{n > 0 ? (real)(n < 1 ? -d_log(1 / n, 0) : d_log(n, 0)) : -R_INF}};
}
SMI real softmax_n_extra(const span *s, const consts *k) { return k->v[0]; }
static const exp_body softmax_n_body = {
    .setup = softmax_n_setup, .scores = &plain_scores, .write = plain_weights, .extra = softmax_n_extra};
EXP_KERNEL(softmax_n)

/* ---- sink_softmax: e^sink joins the sum, and its own weight is a second output ---- */

SMI real sink_extra(const span *s, const consts *k) { return *s->src[1]; }
SMI void sink_weight_row(const span *s, const consts *k, const exp_row *r) {
  real sink = *s->src[1], e = exp_of(r, sink - r->shift, 0), w = v_first(exp_weight(v_set1(e), r, true));
  bool ruled = r->inv == 0; /* no sums: the row was filled with r->spread */
  if (s->dst[1])
    s->dst[1][0] = !ruled ? w : r->spread != r->spread ? r_nan() : r->one == 0 && sink > -R_INF ? 1 : 0;
}
static const exp_body sink_body = {
    .setup = setup_plain, .scores = &plain_scores, .write = plain_weights, .extra = sink_extra};
EXP_KERNEL(sink)
static const exp_body sink_both_body = {.setup = setup_plain,
                                        .scores = &plain_scores,
                                        .write = plain_weights,
                                        .extra = sink_extra,
                                        .row = sink_weight_row};
EXP_KERNEL(sink_both)
static const row_kernel *sink_softmax_dispatch(const row_call *c) {
  return c->dst[1] ? &sink_both_kernel : &sink_kernel;
}
static const row_kernel sink_softmax_kernel = {.engine = &choice_engine,
                                               .body = &(const row_choice){sink_softmax_dispatch, -1}};

/* dx_i = y_i (dy_i - D), dsink = w (dw - D), D = sum y dy + w dw, w = 1 - sum y unless the weight
 * of the sink is there. */
enum { SINK_DOT, SINK_WEIGHT };
SMI void sink_finalize(consts *k, const span *s, const reduce_map_row *r) {
  double w = s->src[SRC_Y + 1] ? (double)*s->src[SRC_Y + 1] : r->sum2 < 1 ? 1 - r->sum2 : 0;
  k->v[SINK_DOT] = (real)(r->sum + (w > 0 && s->src[SRC_DY + 1] ? w * (double)*s->src[SRC_DY + 1] : 0));
  k->v[SINK_WEIGHT] = (real)w;
}
SMI vreal sink_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal y = at(s->src[SRC_Y], i, cnt), ds = v_mul(y, v_sub(upstream(s, y, i, cnt), v_set1(k->v[SINK_DOT])));
  return v_clean(v_select(v_eq(y, v_set1(0)), v_set1(0), ds));
}
SMI void sink_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  real dw = k->v[SINK_WEIGHT] > 0 && s->src[SRC_DY + 1] ? *s->src[SRC_DY + 1] : 0;
  real dsink = post != post ? r_nan() : k->v[SINK_WEIGHT] * (dw - k->v[SINK_DOT]);
  if (s->dst[1]) s->dst[1][0] = v_first(v_clean(v_set1(dsink)));
}
REDUCE_MAP_VALUES_OF(sink_values, sink_value)
static const reduce_map_body sink_grad_body = {.setup = setup_one,
                                               .finalize = sink_finalize,
                                               .sums = weights_and_total,
                                               .write = sink_values,
                                               .row = sink_row,
                                               .full = 1};
REDUCE_MAP_KERNEL(sink_grad)

/* ---- ssmax: scores times s log n + b, n the number of elements above -inf ---- */

enum { SSMAX_S = 1, SSMAX_B = 2 };
SMI double ssmax_log(real valid) { return valid > 1 ? d_log1p((double)valid - 1) : 0; }
SMI double ssmax_log_n(const span *s) { return ssmax_log(s->src[NOTE][MINMAX_VALID]); }
SMI double ssmax_factor_of(const row_call *c, const span *s, double log_n) {
  double slope = s->src[SSMAX_S] ? (double)*s->src[SSMAX_S] : c->params[0],
         bias = s->src[SSMAX_B] ? (double)*s->src[SSMAX_B] : c->params[1];
  return slope * log_n + bias;
}
SMI double ssmax_factor(const row_call *c, const span *s) { return ssmax_factor_of(c, s, ssmax_log_n(s)); }
SMI consts ssmax_setup(const row_call *c, const span *s) {
  consts k = factor(ssmax_factor(c, s));
  k.v[2] = -R_INF;
  return k;
}
static const exp_body ssmax_weights_body = {
    .setup = ssmax_setup, .scaled = true, .scores = &scaled_scores, .write = scaled_weights};
EXP_KERNEL(ssmax_weights)

/* Rows in memory with a factor above 0: the minmax pass also finds the largest score, which is that
 * of the largest element, and only elements of -inf have the score -inf. */
SMI score score_product(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal x = shifted_by(at(s->src[0], i, cnt), shift), c = v_set1(k->v[0]), h = v_mul(x, c);
  return (score){h, v_fma(x, v_set1(k->v[1]), v_fma(x, c, v_sub(v_set1(0), h)))};
}
EXP_SCORES_LOW(product, score_product)
/* The logarithm of the length is in the consts, as a double. */
enum { SSMAX_LOG = 4 };
SMI consts ssmax_whole_setup(const row_call *c, const span *s) {
  const double log_n = ssmax_log((real)c->n);
  consts k = {{0}};
  memcpy(k.v + SSMAX_LOG, &log_n, sizeof log_n);
  return k;
}
static real ssmax_row_max(const row_call *c, const span *s, consts *k) {
  reduce_map_row r;
  double log_n;
  if (!reduce_map_minmax_row(s, &r)) return r_nan();
  memcpy(&log_n, k->v + SSMAX_LOG, sizeof log_n);
  const consts own =
      factor(ssmax_factor_of(c, s, r.valid == (double)c->n ? log_n : ssmax_log((real)r.valid)));
  memcpy(k->v, own.v, SSMAX_LOG * sizeof *k->v);
  return k->v[0] > 0 ? r.max * k->v[0] : r_nan();
}
static const exp_body ssmax_body = {.setup = ssmax_whole_setup,
                                    .row_max = ssmax_row_max,
                                    .scaled = true,
                                    .scores = &product_scores,
                                    .write = exp_weights};
static void ssmax_rows(const row_kernel *kernel, row_call *c) { exp_rows(&ssmax_body, kernel, c); }
static const row_kernel ssmax_kernel = {
    .engine = &compose_engine, .body = &(const compose){&minmax_kernel, &ssmax_weights_kernel, ssmax_rows}};

/* dx = factor ds, ds_i = y_i (dy_i - sum y dy); db = sum (x_i - max) ds_i, since the ds add up to
 * 0; dsl = log n db. */
SMI consts ssmax_grad_setup(const row_call *c, const span *s) {
  return (consts){{1, (real)ssmax_factor(c, s), s->src[NOTE][MINMAX_MAX], (real)ssmax_log_n(s)}};
}
SMI vreal ssmax_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal ds = weights_ds(s, k, r, i, cnt), away = v_sub(at(s->src[0], i, cnt), v_set1(k->v[2]));
  put(s->dst[0], i, cnt, v_clean(v_mul(ds, v_set1(k->v[1]))));
  return v_select(v_eq(ds, v_set1(0)), v_set1(0), v_mul(away, ds));
}
SMI void ssmax_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[SSMAX_S]) s->dst[SSMAX_S][0] = r_clean(post * (double)k->v[3]);
  if (s->dst[SSMAX_B]) s->dst[SSMAX_B][0] = r_clean(post);
}
REDUCE_MAP_WRITE_OF(ssmax_out, ssmax_write)
static const reduce_map_body ssmax_weights_grad_body = {
    .setup = ssmax_grad_setup, .sums = weights_sums, .write = ssmax_out, .row = ssmax_row, .full = 1};
REDUCE_MAP_KERNEL(ssmax_weights_grad)
static const row_kernel ssmax_grad_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &minmax_kernel, .then = &ssmax_weights_grad_kernel}};

/* ---- sdm_activation ----
 *
 * scores times d log(2 + q); its gradient is that of ssmax with d for s and log(2 + q) for log n */

enum { SDM_D = 1, SDM_Q = 2 };
SMI double sdm_value(const row_call *c, const span *s, int port, double most) {
  double v = s->src[port] ? (double)*s->src[port] : c->params[port - 1];
  return v >= 0 && v <= most ? v : (double)r_nan();
}
SMI double sdm_d(const row_call *c, const span *s) { return sdm_value(c, s, SDM_D, 1); }
SMI double sdm_log(const row_call *c, const span *s) {
  return d_log1p(sdm_value(c, s, SDM_Q, (double)R_MAX) + 1);
}
SMI consts sdm_setup(const row_call *c, const span *s) { return factor(sdm_d(c, s) * sdm_log(c, s)); }
static const exp_body sdm_body = {
    .setup = sdm_setup, .scaled = true, .scores = &scaled_scores, .write = scaled_weights};
EXP_KERNEL(sdm)

SMI consts sdm_grad_setup(const row_call *c, const span *s) {
  double log = sdm_log(c, s);
  return (consts){{1, (real)(sdm_d(c, s) * log), s->src[NOTE][MINMAX_MAX], (real)log}};
}
static const reduce_map_body sdm_weights_grad_body = {
    .setup = sdm_grad_setup, .sums = weights_sums, .write = ssmax_out, .row = ssmax_row, .full = 1};
REDUCE_MAP_KERNEL(sdm_weights_grad)
static const row_kernel sdm_grad_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &minmax_kernel, .then = &sdm_weights_grad_kernel}};

/* ---- adaptive_temperature_softmax ----
 *
 * scores times beta, a polynomial of the entropy H = log S - sum p (x - max) of the plain
 * softmax */

enum { ENTROPY, ENTROPY_MAX, ENTROPY_LOG }; /* the note: log p = x - max - log */
EXP_MOMENT(entropy_moment, moment_away)
SMI double entropy_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  s->dst[0][ENTROPY_MAX] = (real)r->top_x;
  s->dst[0][ENTROPY_LOG] = r->log;
  return r->log1p - r->moment;
}
static const exp_body entropy_body = {.setup = setup_plain,
                                      .scores = &plain_scores,
                                      .kind = EXP_SCALAR,
                                      .sum_without_max = true,
                                      .scalar = entropy_scalar,
                                      .moment = entropy_moment};
EXP_KERNEL(entropy)
/* beta, and its derivative with respect to H. */
SMI double adaptive_beta(const row_call *c, double h, double *slope) {
  double beta = c->params[0], by_h = 0;
  for (int i = 1; i < 5; i++) by_h = by_h * h + beta, beta = beta * h + c->params[i];
  bool sharpens = h > c->params[5] && beta > 1;
  *slope = sharpens ? by_h : 0;
  return sharpens ? beta : 1;
}
SMI consts adaptive_setup(const row_call *c, const span *s) {
  double slope;
  return factor(adaptive_beta(c, (double)s->src[NOTE][ENTROPY], &slope));
}
static const exp_body adaptive_weights_body = {
    .setup = adaptive_setup, .scaled = true, .scores = &scaled_scores, .write = scaled_weights};
EXP_KERNEL(adaptive_weights)
static const row_kernel adaptive_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &entropy_kernel, .then = &adaptive_weights_kernel}};

/* dx_i = beta ds_i - beta'(H) p_i (log p_i + H) sum (x_j - max) ds_j, ds_i = y_i (dy_i - sum y dy),
 * and p the plain softmax. */
enum { ADAPTIVE_BETA = 1, ADAPTIVE_SLOPE, ADAPTIVE_THROUGH };
SMI consts adaptive_grad_setup(const row_call *c, const span *s) {
  double slope, beta = adaptive_beta(c, (double)s->src[NOTE][ENTROPY], &slope);
  return (consts){{1, (real)beta, (real)slope}};
}
SMI void adaptive_finalize(consts *k, const span *s, const reduce_map_row *r) {
  k->v[ADAPTIVE_THROUGH] = (real)((double)k->v[ADAPTIVE_SLOPE] * r->more);
}
SMI vreal adaptive_away(const span *s, size_t i, int cnt) {
  return v_sub(at(s->src[0], i, cnt), v_set1(s->src[NOTE][ENTROPY_MAX]));
}
SMI void adaptive_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                      reduce_map_acc *acc) {
  vreal ds = weights_ds(s, k, r, i, cnt);
  acc->a = v_add(acc->a, v_select(v_eq(ds, v_set1(0)), v_set1(0), v_mul(adaptive_away(s, i, cnt), ds)));
}
SMI vreal adaptive_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal log = v_sub(adaptive_away(s, i, cnt), v_set1(s->src[NOTE][ENTROPY_LOG])), p = v_exp(log);
  vreal bend = v_mul(p, v_add(v_select(v_eq(p, v_set1(0)), p, log), v_set1(s->src[NOTE][ENTROPY])));
  return v_clean(v_fnma(bend, v_set1(k->v[ADAPTIVE_THROUGH]),
                        v_mul(weights_ds(s, k, r, i, cnt), v_set1(k->v[ADAPTIVE_BETA]))));
}
REDUCE_MAP_SUMS_OF(adaptive_more, adaptive_add)
REDUCE_MAP_VALUES_OF(adaptive_grad_values, adaptive_value)
static const reduce_map_body adaptive_weights_grad_body = {.setup = adaptive_grad_setup,
                                                           .finalize = adaptive_finalize,
                                                           .sums = weights_sums,
                                                           .more = adaptive_more,
                                                           .write = adaptive_grad_values,
                                                           .full = 1};
REDUCE_MAP_KERNEL(adaptive_weights_grad)
static const row_kernel adaptive_grad_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &entropy_kernel, .then = &adaptive_weights_grad_kernel}};

/* ---- clipped_softmax ----
 *
 * y = clip((eta - gamma) p + gamma, 0, 1), where an element of -inf keeps 0 */

SMI consts clipped_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[0], (real)(c->params[1] - c->params[0])}};
}
SMI vreal clipped_raw(vreal p, const consts *k) { return v_fma(p, v_set1(k->v[1]), v_set1(k->v[0])); }
SMI vreal clipped_value(const exp_write *w, size_t i, int cnt) {
  vreal raw = clipped_raw(exp_weight_at(w, i), w->k), y = v_min(v_max(raw, v_set1(0)), v_set1(1));
  return v_clean(y);
}
EXP_WRITE(clipped_out, clipped_value)
static double clipped_share(const row_call *c, double share) {
  double y = (c->params[1] - c->params[0]) * share + c->params[0];
  return y < 0 ? 0 : y > 1 ? 1 : y;
}
static const exp_body clipped_body = {.setup = clipped_setup,
                                      .scores = &plain_scores,
                                      .write = clipped_out,
                                      .share = clipped_share,
                                      .kind = EXP_MAP};
EXP_KERNEL(clipped)

/* dx_i = p_i (h_i - sum p h), h = (eta - gamma) dy where 0 < raw y < 1. */
SMI vreal clipped_upstream(const span *s, const consts *k, vreal p, size_t i, int cnt) {
  vreal raw = clipped_raw(p, k);
  vmask inside = m_and(v_lt(v_set1(0), raw), v_lt(raw, v_set1(1)));
  return v_select(inside, v_mul(at(s->src[SRC_DY], i, cnt), v_set1(k->v[1])), v_set1(0));
}
SMI vreal clipped_factor(const exp_sum *w, vreal e, size_t i, int cnt) {
  return clipped_upstream(w->s, w->k, exp_weight(e, w->r, true), i, cnt);
}
EXP_MOMENT(clipped_moment, clipped_factor)
SMI vreal clipped_grad_value(const exp_write *w, size_t i, int cnt) {
  vreal p = exp_weight_at(w, i);
  return weight_gradient_of(w, p, 1, clipped_upstream(w->s, w->k, p, i, cnt));
}
EXP_WRITE(clipped_grad_out, clipped_grad_value)
static const exp_body clipped_grad_body = {.setup = clipped_setup,
                                           .scores = &plain_scores,
                                           .write = clipped_grad_out,
                                           .moment = clipped_moment,
                                           .gradient = true};
EXP_KERNEL(clipped_grad)

/* ---- context_aware_scaling: y = 2 sigmoid(gate) p ---- */

SMI consts gated_setup(const row_call *c, const span *s) {
  vreal g = v_set1(*s->src[1]), e = v_exp_down(v_sub(v_set1(0), v_abs(g))), up = v_add(e, v_set1(1));
  real scale = v_first(v_div(v_select(v_lt(g, v_set1(0)), v_mul(e, v_set1(2)), v_set1(2)), up));
  real other = v_first(v_div(v_select(v_lt(g, v_set1(0)), v_set1(1), e), up)); /* 1 - sigmoid */
  return (consts){{*s->src[1] == *s->src[1] ? scale : r_nan(), other}};
}
SMI vreal gated_value(const exp_write *w, size_t i, int cnt) {
  return v_clean(v_mul(exp_weight_at(w, i), v_set1(w->k->v[0])));
}
EXP_WRITE(gated_out, gated_value)
static double gated_share(const row_call *c, double share) {
  const span s = span_of(c, 0);
  return (double)gated_setup(c, &s).v[0] * share;
}
static const exp_body gated_body = {
    .setup = gated_setup, .scores = &plain_scores, .write = gated_out, .share = gated_share, .kind = EXP_MAP};
EXP_KERNEL(gated)

/* dx_i = scale p_i (dy_i - sum p dy), dgate = scale (1 - scale / 2) sum p dy */
EXP_MOMENT(gated_moment, moment_upstream)
SMI vreal gated_grad_value(const exp_write *w, size_t i, int cnt) {
  return weight_gradient(w, exp_weight_at(w, i), w->k->v[0], i, cnt);
}
EXP_WRITE(gated_grad_out, gated_grad_value)
SMI void gated_row(const span *s, const consts *k, const exp_row *r) {
  double sum = r->spread != 0 ? r->spread : r->moment; /* a filled row: its value */
  if (s->dst[1]) s->dst[1][0] = r_clean((double)k->v[0] * (double)k->v[1] * sum);
}
static const exp_body gated_grad_body = {.setup = gated_setup,
                                         .scores = &plain_scores,
                                         .write = gated_grad_out,
                                         .moment = gated_moment,
                                         .row = gated_row,
                                         .gradient = true};
EXP_KERNEL(gated_grad)

OPERATOR(softmax_n, softmax_n, weights)
OPERATOR(sink_softmax, sink_softmax, sink_grad)
OPERATOR(ssmax, ssmax, ssmax_grad)
OPERATOR(sdm_activation, sdm, sdm_grad)
OPERATOR(adaptive_temperature_softmax, adaptive, adaptive_grad)
OPERATOR(clipped_softmax, clipped, clipped_grad)
OPERATOR(context_aware_scaling, gated, gated_grad)
