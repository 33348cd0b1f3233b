/* engine/scores.h - the ways of forming scores that operators share: x as it is, and x times a
 * double. */
#ifndef SMX_ENGINE_SCORES_H
#define SMX_ENGINE_SCORES_H
#include "exp.h"

SMI score score_plain(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return (score){shifted_by(at(s->src[0], i, cnt), shift), v_set1(0)};
}

/* Both are fused (scores.c). */
#define plain_scores SMX_FN(plain_scores)
#define plain_weights SMX_FN(plain_weights)
#define scaled_scores SMX_FN(scaled_scores)
#define scaled_weights SMX_FN(scaled_weights)
extern const exp_scores plain_scores, scaled_scores;
exp_write_fn plain_weights, scaled_weights;

/* The logarithm of a weight of plain scores: the row has no NaN, and -inf stays what it is. */
SMI vreal plain_log_of(vreal x, const exp_row *r) {
  return v_flush_tiny(v_sub(v_sub(v_sub(x, v_set1(r->shift)), v_set1(r->top)), v_set1(r->log)));
}

/* Of a body with `sum_without_max`. */
SMI double lse_of(const exp_row *r) { return r->max + r->log1p; }
SMI double lse_scalar(const span *s, const consts *k, const exp_row *r, size_t n) { return lse_of(r); }

/* A body for one number made of the sum of scores that are x and its largest term; it returns the
 * row's value for -inf and +inf. */
#define LSE_BODY(number) LSE_BODY_OF(plain, number)
#define LSE_BODY_OF(from, number) \
  .setup = setup_plain, .scores = &from##_scores, .kind = EXP_SCALAR, .sum_without_max = true, \
  .scalar = number, .empty = -R_INF, .inf = R_INF

/* x times a double c = v[0] + v[1], as h + l with no rounding but the last bits of l. v[2] is
 * the x whose score stays -inf when c is +-0. */
SMI consts factor(double c) {
  real hi = (real)c, low = (real)(c - (double)hi);
  return (consts){{hi, c - c == 0 ? low : 0, c != 0 ? r_nan() : 1 / c > 0 ? -R_INF : R_INF}};
}
SMI score score_scaled(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal x = shifted_by(at(s->src[0], i, cnt), shift), c = v_set1(k->v[0]), h = v_mul(x, c),
        minus_h = v_sub(v_set1(0), h);
  vreal l = v_fma(x, v_set1(k->v[1]), v_fma(x, c, minus_h));
  return (score){v_select(v_eq(x, v_set1(k->v[2])), v_set1(-R_INF), h), l};
}

/* The factor of a moment: the distance of x from the centre, or the upstream gradient. */
SMI vreal moment_away(const exp_sum *w, vreal e, size_t i, int cnt) {
  return v_sub(at(w->s->src[0], i, cnt), v_set1(w->center));
}
SMI vreal moment_upstream(const exp_sum *w, vreal e, size_t i, int cnt) {
  return at(w->s->src[SRC_DY], i, cnt);
}
/* c p_i (h_i - sum p h), from scores: p is the weight again, the moment that of h. */
SMI vreal weight_gradient_of(const exp_write *w, vreal p, real c, vreal h) {
  vreal away = v_sub(h, v_set1((real)w->r->moment));
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), v_mul(v_mul(p, v_set1(c)), away)));
}
SMI vreal weight_gradient(const exp_write *w, vreal p, real c, size_t i, int cnt) {
  return weight_gradient_of(w, p, c, at(w->s->src[SRC_DY], i, cnt));
}

#endif
