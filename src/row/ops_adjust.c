/* row/ops_adjust.c - softmax weights times their scores, and norms of the Jacobian of softmax. See
 * ops.c. */
#include "engine/compose.h"
#include "engine/argfind.h"
#include "engine/scores.h"

/* ---- sa_softmax ----
 *
 * y = x p, or ((x - a + eta) / D) p with a = min(min x, 0), b = max(max x, 0), D = b - a + delta */

enum { SA_FORM, SA_DELTA, SA_ETA }; /* parameters */
/* of consts.v; LOW, WIDTH and JOINS are multiplied by UNIT */
enum { SA_RANGE, SA_LOW, SA_WIDTH, SA_UNIT, SA_JOINS };
enum { SA_MAX, SA_MIN, SA_ARGMAX, SA_ARGMIN }; /* the note of the gradient, in double */

/* UNIT is 1, or smaller where b - a, or the gradient of x p, might overflow. */
SMI consts sa_consts(const row_call *c, double max, double min) {
  const bool range = c->params[SA_FORM] != 0,
             large = max > (double)R_MAX * 0x1p-32 || min < -(double)R_MAX * 0x1p-32;
  double a = min < 0 ? min : 0, b = max > 0 ? max : 0, unit = !large ? 1 : range ? 0.25 : 0x1p-32;
  double width = b * unit - a * unit + c->params[SA_DELTA] * unit;
  return (consts){{range, (real)(a * unit), (real)width, (real)unit, (real)(c->params[SA_ETA] * unit)}};
}
SMI consts sa_setup(const row_call *c, const span *s) {
  return sa_consts(c, (double)s->src[NOTE][MINMAX_MAX], (double)s->src[NOTE][MINMAX_LOW]);
}
/* The factor of p; in the plain form times UNIT. */
SMI vreal sa_factor(const span *s, const consts *k, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt);
  if (k->v[SA_RANGE] == 0) return v_mul(x, v_set1(k->v[SA_UNIT]));
  if (!(k->v[SA_WIDTH] > 0)) return v_set1(0);
  vreal up = v_add(v_sub(v_mul(x, v_set1(k->v[SA_UNIT])), v_set1(k->v[SA_LOW])), v_set1(k->v[SA_JOINS]));
  return v_div(up, v_set1(k->v[SA_WIDTH]));
}
/* x p where x may be large and p small: p is formed 2^64 times as large. */
SMI vreal sa_product(const exp_write *w, vreal x, size_t i, int cnt) {
  vreal d, e = exp_term(score_plain(w->s, w->k, &w->r->shift, i, cnt), false, w->r->scale_exp - 64, &d);
  vreal one = v_mul(v_set1(w->r->one), v_set1((real)0x1p64)), down = v_set1((real)0x1p-64);
  vmask large = v_lt(v_set1(1), v_abs(x));
  vreal y = v_mul(v_select(large, v_mul(x, down), x), v_mul(e, v_set1(w->r->inv)));
  y = v_select(v_eq(e, one), x, v_select(large, y, v_mul(y, down)));
  return v_clean(v_select(v_eq(e, v_set1(0)), v_set1(0), y));
}
SMI vreal sa_value(const exp_write *w, size_t i, int cnt) {
  return sa_product(w, w->k->v[SA_RANGE] != 0 ? sa_factor(w->s, w->k, i, cnt) : at(w->s->src[0], i, cnt), i,
                    cnt);
}
NOINLINE void sa_write(const exp_write *w, size_t i, size_t n) { exp_write_staged_of(w, sa_value, i, n); }
/* The values form their own weights. */
static void sa_out(const exp_write *w, size_t i, size_t n) { exp_write_lines(w, sa_write, i, n); }
static double sa_share(const row_call *c, double share) {
  return c->params[SA_FORM] != 0 ? share : (double)R_INF;
}
static const exp_body sa_weights_body = {
    .setup = sa_setup, .scores = &plain_scores, .write = sa_out, .share = sa_share, .kind = EXP_MAP};
EXP_KERNEL(sa_weights)
static const row_kernel sa_kernel = {
    .engine = &compose_engine, .body = &(const compose){.first = &minmax_kernel, .then = &sa_weights_kernel}};

/* The extremes of a row and where each is first. */
NOINLINE void extremes_where(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                             row_part *part) {
  *part = (row_part){.index = argfind_in_group(s, r->max, i, n),
                     .low = (double)argfind_in_group(s, r->low, i, n)};
}
static const reduce_map_body extremes_body = {
    .setup = setup_plain, .sums = extremes_where, .max = true, .gradient = true, .bounded = true};
typedef struct extremes_state {
  double first_smallest; /* its index, or -1 */
} extremes_state;
ROW_OWN_STATE(extremes_state, extremes_state_of)
static void extremes_begin(const row_call *c, row_state *st) {
  reduce_map_begin(&extremes_body, c, st);
  extremes_state_of(st)->first_smallest = -1;
}
static void extremes_pass(const row_call *c, row_state *st, row_part *parts) {
  reduce_map_pass(&extremes_body, c, st, parts);
}
static void extremes_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  extremes_state *own = extremes_state_of(st);
  for (size_t g = 0; st->mode == REDUCE_MAP_SUMS && g < count; g++)
    if (own->first_smallest < 0) own->first_smallest = parts[g].low;
  reduce_map_merge(c, st, parts, count);
}
static bool extremes_next(const row_call *c, row_state *st) {
  double *note = c->dst[0];
  if (reduce_map_next(&extremes_body, c, st)) return true;
  note[SA_MAX] = st->reduce.max, note[SA_MIN] = st->reduce.low;
  note[SA_ARGMAX] = (double)st->reduce.index, note[SA_ARGMIN] = extremes_state_of(st)->first_smallest;
  return false;
}
static const row_kernel extremes_kernel = PROGRAM(extremes);

/* With r what p is multiplied by, h = p dy and M = sum r h: dx = p (r dy - M) + h r', r' = 1 or
 * 1 / D. In the second form a and b move too: (M - sum h) / D for the first smallest x if it is
 * below 0, -M / D for the first largest if it is above. */
SMI const double *sa_note(const span *s) { return (const double *)(const void *)s->src[NOTE]; }
SMI consts sa_grad_setup(const row_call *c, const span *s) {
  return sa_consts(c, sa_note(s)[SA_MAX], sa_note(s)[SA_MIN]);
}
SMI vreal sa_upstream(const exp_sum *w, vreal e, size_t i, int cnt) {
  return v_mul(sa_factor(w->s, w->k, i, cnt), at(w->s->src[SRC_DY], i, cnt));
}
EXP_MOMENT(sa_moment, sa_upstream)
EXP_MOMENT(sa_spread, moment_upstream)
SMI vreal sa_bounded(vreal v) { /* where a gradient is out of range, the largest number there is */
  vreal most = v_set1(R_MAX), least = v_set1(-R_MAX);
  return v_select(v_lt(most, v), most, v_select(v_lt(v, least), least, v));
}
SMI vreal sa_by_width(double sum, const consts *k) {
  return sa_bounded(v_set1((real)(sum * (double)k->v[SA_UNIT] / (double)k->v[SA_WIDTH])));
}
SMI vreal sa_grad_value(const exp_write *w, size_t i, int cnt) {
  const span *s = w->s;
  const consts *k = w->k;
  const vreal unit = v_set1(k->v[SA_UNIT]);
  const bool range = k->v[SA_RANGE] != 0;
  if (range && !(k->v[SA_WIDTH] > 0)) return v_set1(0);
  vreal p = exp_weight_at(w, i), dy = at(s->src[SRC_DY], i, cnt), h = v_mul(p, dy);
  vreal dx = v_mul(p, v_sub(v_mul(sa_factor(s, k, i, cnt), dy), v_set1((real)w->r->moment)));
  if (range) dx = v_add(dx, sa_bounded(v_div(v_mul(h, unit), v_set1(k->v[SA_WIDTH]))));
  else dx = v_add(sa_bounded(v_div(dx, unit)), h);
  dx = v_select(v_eq(p, v_set1(0)), v_set1(0), dx);
  if (range && sa_note(s)[SA_MAX] > 0)
    dx = v_sub(dx, argfind_put(sa_note(s)[SA_ARGMAX], s, i, sa_by_width(w->r->moment, k)));
  if (range && sa_note(s)[SA_MIN] < 0)
    dx = v_add(dx, argfind_put(sa_note(s)[SA_ARGMIN], s, i, sa_by_width(w->r->moment - w->r->spread, k)));
  return v_clean(sa_bounded(dx));
}
EXP_WRITE(sa_grad_out, sa_grad_value)
static const exp_body sa_weights_grad_body = {.setup = sa_grad_setup,
                                              .scores = &plain_scores,
                                              .write = sa_grad_out,
                                              .moment = sa_moment,
                                              .spread = sa_spread,
                                              .gradient = true};
EXP_KERNEL(sa_weights_grad)
static const row_kernel sa_grad_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &extremes_kernel, .then = &sa_weights_grad_kernel}};

/* ---- attention_capacity_metrics. |J|^2 T^2 = sum p^2 - 2 sum p^3 + (sum p^2)^2 = sum p^2
 * (1 - 2 p) + (sum p^2)^2 for the Jacobian J. Where one weight p_1 is above 1 / 2 it is taken
 * apart, with q = 1 - p_1 and the sums over the others:
 *     p_1^2 q^2 + sum p^2 (1 - 2 p) + 2 p_1^2 sum p^2 + (sum p^2)^2. Nothing cancels in either.
 *     ---- */

enum { CAPACITY_JACOBIAN, CAPACITY_LOW, CAPACITY_HIGH }; /* outputs */

SMI consts capacity_setup(const row_call *c, const span *s) {
  consts k = factor(1 / c->params[0]);
  k.v[3] = (real)(1 / c->params[0]);
  return k;
}
SMI bool capacity_may_be_one(const exp_row *r) { return r->sum_without_max < 1; }
SMI vreal capacity_square(const exp_sum *w, vreal e, size_t i, int cnt) {
  vreal p = exp_weight(e, w->r, true);
  vmask top = v_eq(at(w->s->src[0], i, cnt), v_set1(w->s->src[NOTE][MINMAX_MAX]));
  return capacity_may_be_one(w->r) ? v_select(top, v_set1(0), p) : p;
}
SMI vreal capacity_rest(const exp_sum *w, vreal e, size_t i, int cnt) {
  return v_mul(capacity_square(w, e, i, cnt), v_fma(exp_weight(e, w->r, true), v_set1(-2), v_set1(1)));
}
EXP_MOMENT(capacity_moment, capacity_square)
EXP_MOMENT(capacity_spread, capacity_rest)
SMI void capacity_put(const span *s, int output, double value) {
  if (s->dst[output]) s->dst[output][0] = r_clean(value);
}
SMI double capacity_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  double top = capacity_may_be_one(r) ? 1 / (1 + r->sum_without_max) : 0, q = r->sum_without_max * top;
  double square = top * top * q * q + r->spread + 2 * top * top * r->moment + r->moment * r->moment;
  double gap = ((double)s->src[NOTE][MINMAX_MAX] - (double)s->src[NOTE][MINMAX_LOW]) * (double)k->v[3],
         count = (double)s->src[NOTE][MINMAX_VALID];
  double high = d_exp(gap) / count;
  capacity_put(s, CAPACITY_LOW, d_exp(-gap) / count);
  capacity_put(s, CAPACITY_HIGH, high < 1 ? high : 1);
  return __builtin_sqrt(square) * (double)k->v[3];
}
static const exp_body capacity_row_body = {.setup = capacity_setup,
                                           .scaled = true,
                                           .scores = &scaled_scores,
                                           .kind = EXP_SCALAR,
                                           .sum_without_max = true,
                                           .scalar = capacity_scalar,
                                           .moment = capacity_moment,
                                           .spread = capacity_spread};
static void capacity_row_begin(const row_call *c, row_state *st) { exp_begin(&capacity_row_body, c, st); }
static void capacity_row_pass(const row_call *c, row_state *st, row_part *parts) {
  exp_pass(&capacity_row_body, c, st, parts);
}
static void capacity_row_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  exp_merge(c, st, parts, count);
}
/* A row that needs a rule has one value everywhere; an ordinary one writes all outputs when it is
 * done. */
static bool capacity_row_next(const row_call *c, row_state *st) {
  const span s = span_of(c, 0);
  const bool summed = st->mode == EXP_SPREAD_PASS;
  if (exp_next(&capacity_row_body, c, st)) return true;
  if (!summed && s.dst[0])
    capacity_put(&s, CAPACITY_LOW, (double)s.dst[0][0]), capacity_put(&s, CAPACITY_HIGH, (double)s.dst[0][0]);
  return false;
}
static const row_kernel capacity_row_kernel;
static void capacity_row_rows(row_call *c) { exp_terms_rows(&capacity_row_body, &capacity_row_kernel, c); }
static const row_kernel capacity_row_kernel = PROGRAM_WITH_ROWS(capacity_row);
static const row_kernel capacity_kernel = {
    .engine = &compose_engine,
    .body = &(const compose){.first = &minmax_kernel, .then = &capacity_row_kernel}};

OPERATOR(sa_softmax, sa, sa_grad)
FORWARD_OPERATOR(attention_capacity_metrics, capacity)
