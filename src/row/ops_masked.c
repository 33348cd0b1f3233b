/* row/ops_masked.c - the softmax operators in which some elements do not exist: by a mask, by a
 * bias of -inf, or because others are larger. See ops.c. */
#include "engine/radix_select.h"
#include "engine/exp_loops.h"
#include "engine/scores.h"
#include "engine/weights.h"

/* ---- masked_softmax. The mask arrives as 0 (keep) or -inf (drop). ---- */

SMI consts value_setup(const row_call *c, const span *s) { return (consts){{(real)c->params[0]}}; }
SMI score score_masked(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vmask keep = v_eq(at(s->src[1], i, cnt), v_set1(0));
  return (score){shifted_by(v_select(keep, at(s->src[0], i, cnt), v_set1(k->v[0])), shift), v_set1(0)};
}
EXP_PAGE(masked, score_masked, false)
#define EXP_LOOPS_NAME masked
#define EXP_LOOPS_SCORE score_masked
#define EXP_LOOPS_LOW false
#define EXP_LOOPS_HALF 0
#include "engine/exp_loops.tmpl.h"
static const exp_scores masked_scores = {masked_page, &masked_loops, false};
SMI vreal masked_weight(const exp_write *w, size_t i, int cnt) {
  return exp_weight_again(w, score_masked, false, i, cnt);
}
EXP_WRITE_FUSED(masked_weights, masked_weight)
static const exp_body masked_softmax_body = {
    .setup = value_setup, .scores = &masked_scores, .write = masked_weights};
EXP_KERNEL(masked_softmax)

/* With a finite mask value dropped elements count in the sum, but have no gradient. */
SMI vreal masked_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask keep = v_eq(at(s->src[1], i, cnt), v_set1(0));
  return v_select(keep, weights_ds(s, k, r, i, cnt), v_set1(0));
}
REDUCE_MAP_VALUES_FUSED(masked_out, masked_value)
static const reduce_map_body masked_softmax_grad_body = {
    .setup = setup_one, .sums = weights_sums, .write = masked_out, .full = 1};
REDUCE_MAP_KERNEL(masked_softmax_grad)

/* ---- scaled_masked_softmax ---- */

enum { BIAS = 1, KEEP = 2, SLOPE = 3, POSITION = 4, SINK = 5 };

SMI consts attention_setup(const row_call *c, const span *s) {
  real position = s->src[POSITION] ? *s->src[POSITION] : (real)c->n - 1;
  return (consts){{(real)c->params[0], s->src[SLOPE] ? *s->src[SLOPE] : 0, position}};
}
SMI score score_attention(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal zero = v_set1(0), dead = v_set1(-R_INF), b = zero;
  vmask gone = v_lt(zero, zero);
  if (s->src[BIAS]) {
    b = at(s->src[BIAS], i, cnt);
    gone = v_eq(b, dead);
  }
  if (s->src[KEEP]) gone = m_or(gone, v_eq(at(s->src[KEEP], i, cnt), dead));
  if (s->src[SLOPE]) {
    vreal j = v_add(v_set1((real)(s->origin + i)), v_iota());
    b = v_fnma(v_set1(k->v[1]), v_abs(v_sub(v_set1(k->v[2]), j)), b);
  }
  return (score){v_select(gone, dead, shifted_by(v_fma(at(s->src[0], i, cnt), v_set1(k->v[0]), b), shift)),
                 zero};
}
SMI real sink_of(const span *s, const consts *k) { return s->src[SINK] ? *s->src[SINK] : -R_INF; }
EXP_SCORES(attention, score_attention)
static const exp_body scaled_masked_softmax_body = {.setup = attention_setup,
                                                    .scores = &attention_scores,
                                                    .write = exp_weights,
                                                    .extra = sink_of,
                                                    .sinks = true};
EXP_KERNEL(scaled_masked_softmax)

/* dx = scale ds, dbias = ds, dsink = -y_sink sum y dy with y_sink = 1 - sum y */
SMI consts attention_grad_setup(const row_call *c, const span *s) {
  return (consts){{1, (real)c->params[0]}};
}
SMI vreal attention_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal ds = weights_ds(s, k, r, i, cnt);
  put(s->dst[0], i, cnt, v_clean(v_mul(ds, v_set1(k->v[1]))));
  if (s->dst[BIAS]) put(s->dst[BIAS], i, cnt, ds);
  return v_set1(0);
}
SMI void attention_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  double sink = r->sum2 < 1 ? 1 - r->sum2 : 0;
  if (s->dst[SINK]) s->dst[SINK][0] = post != post ? r_nan() : r_clean(-sink * r->sum);
}
REDUCE_MAP_WRITE_OF(attention_out, attention_write)
static const reduce_map_body scaled_masked_softmax_grad_body = {.setup = attention_grad_setup,
                                                                .sums = weights_and_total,
                                                                .write = attention_out,
                                                                .row = attention_row,
                                                                .full = 1u | 1u << BIAS};
REDUCE_MAP_KERNEL(scaled_masked_softmax_grad)

/* ---- sparse_softmax ----
 *
 * select.h finds the smallest score that is kept, then it is a softmax over what is kept */

SMI score score_kept(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const struct row_cutoff *cutoff = (const struct row_cutoff *)(const void *)s->src[1];
  vreal x = at(s->src[0], i, cnt), value = v_set1((real)cutoff->value);
  int64_t left = cutoff->limit - (int64_t)(s->origin + i); /* lanes up to this one may keep an equal score */
  vmask early = v_lt(v_iota(), v_set1(left < 0 ? 0 : left < LANES ? (real)(left + 1) : LANES));
  vmask keep = m_or(v_lt(value, x), m_and(v_eq(x, value), early));
  return (score){v_select(m_and(m_not(keep), v_eq(x, x)), v_set1(-R_INF), shifted_by(x, shift)), v_set1(0)};
}
EXP_SCORES(kept, score_kept)
static const exp_body kept_body = {.setup = setup_plain, .scores = &kept_scores, .write = exp_weights};

enum { SPARSE_SELECT, SPARSE_WEIGHTS };

static row_call kept_call(const row_call *c, const row_state *st) {
  row_call kept = *c;
  kept.src[1] = &st->cutoff;
  return kept;
}
static void sparse_begin(const row_call *c, row_state *st) {
  st->stage = SPARSE_SELECT;
  radix_begin(st, (uint64_t)c->params[0]);
}
static void sparse_pass(const row_call *c, row_state *st, row_part *parts) {
  if (st->stage == SPARSE_SELECT) {
    radix_pass(c, st, parts);
    return;
  }
  row_call kept = kept_call(c, st);
  exp_pass(&kept_body, &kept, st, parts);
}
static void sparse_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == SPARSE_WEIGHTS) exp_merge(c, st, parts, count);
}
static bool sparse_next(const row_call *c, row_state *st) {
  row_call kept = kept_call(c, st);
  if (st->stage == SPARSE_WEIGHTS) return exp_next(&kept_body, &kept, st);
  if (radix_next(st)) return true;
  st->stage = SPARSE_WEIGHTS;
  exp_begin(&kept_body, &kept, st);
  return true;
}
static const row_kernel sparse_kernel = PROGRAM(sparse);

OPERATOR(masked_softmax, masked_softmax, masked_softmax_grad)
OPERATOR(scaled_masked_softmax, scaled_masked_softmax, scaled_masked_softmax_grad)
OPERATOR_WITH(sparse_softmax, sparse, weights, ROW_LIST, 0)
