/* loss/nontarget.h - shared by losses that separate the target from the other classes: the weights
 * p^ and q^ of the others among themselves, and the target against them. The sides leave the target
 * out, so that no weight is a difference. With L = lse of the others, log p_y = -softplus(L - z_y)
 * and log(1 - p_y) = -softplus(z_y - L). */
#ifndef SMX_LOSS_NONTARGET_H
#define SMX_LOSS_NONTARGET_H
#include "high.h"

enum { PAIR_TARGET = 2 };
enum { C_STUDENT, C_TEACHER };

SMI score score_nontarget(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const int64_t *target = (const int64_t *)(const void *)s->src[PAIR_TARGET];
  uint64_t lane = (uint64_t)(*target - (int64_t)(s->origin + i));
  score z = score_tempered(s, k, shift, i, cnt);
  if (lane < LANES) z.h = v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(-R_INF), z.h);
  return z;
}

/* The target against the others: log p, log(1 - p), p and 1 - p. NaN where its logit is NaN, or
 * +inf and not in the limit. */
typedef struct split {
  double log_p, log_q, p, q;
} split;
SMI split split_at(double away) {
  if (away != away) return (split){away, away, away, away};
  double log_p = -d_softplus(-away), log_q = -d_softplus(away);
  return (split){log_p, log_q, d_exp(log_p), d_exp(log_q)};
}
SMI split split_of(const loss_row *r, int side) {
  const exp_row *e = &r->side[side];
  double away = ((double)r->h[side] - (double)e->top) + ((double)r->l[side] - (double)e->top_l) - e->log1p;
  if (r->h[side] == -R_INF) away = -(double)__builtin_inf();
  if (r->target_inputs[side == STUDENT ? 0 : TEACHER_PORT] == (double)R_INF) away = (double)r_nan();
  return split_at(away);
}
/* D([q_y, 1 - q_y] || [p_y, 1 - p_y]), and p_y - q_y. */
SMI double split_divergence(const split *p, const split *q) {
  return weigh(q->p, q->log_p - p->log_p) + weigh(q->q, q->log_q - p->log_q);
}
SMI double split_away(const split *p, const split *q) { return p->p < 0.5 ? p->p - q->p : q->q - p->q; }
/* Both at a high temperature, times T^2 and T. The centre of high.h is what the other classes add
 * to the distance. */
SMI high_two split_high(const loss_row *r, const split *p, const split *q, double t) {
  const exp_row *a = &r->side[STUDENT], *b = &r->side[TEACHER];
  const bool masked = r->h[STUDENT] == -R_INF || r->h[TEACHER] == -R_INF;
  const double student =
      ((double)r->h[STUDENT] - (double)a->top) + ((double)r->l[STUDENT] - (double)a->top_l);
  const double teacher =
      ((double)r->h[TEACHER] - (double)b->top) + ((double)r->l[TEACHER] - (double)b->top_l);
  const double apart = masked ? 1 : teacher - student - (double)r->coef[C_CENTRE];
  if (high_two_near(apart)) return high_two_of(q->p, q->q, apart, t);
  return (high_two){t * t * split_divergence(p, q), t * split_away(p, q)};
}

SMI void nontarget_add(const loss_row *r, bool cross, size_t i, int cnt, vreal *acc) {
  pair w = pair_at(r, score_nontarget, true, i, cnt);
  acc[0] = add_where(acc[0], w.q, w.log_q, v_sub(cross ? v_set1(0) : w.log_q, w.log_p));
}

/* Returns true, and sets all to NaN, when the target's logit is no number in either row. */
static inline bool nontarget_special(loss_row *r, const split *p, const split *q) {
  if (p->p == p->p && q->p == q->p) return false;
  loss_put(r, LOSS, (double)r_nan());
  r->coef[C_STUDENT] = r->coef[C_TEACHER] = r->at_target = r_nan();
  return true;
}

/* The gradient of the others from their weights, a p^_j - b q^_j. */
SMI vreal nontarget_gap(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal q = loss_weight(w->r, TEACHER, loss_score(w->r, TEACHER, score_nontarget, i, cnt), true, i, cnt);
  return v_fnma(v_set1(w->coef[C_TEACHER]), q, v_mul(v_set1(w->coef[C_STUDENT]), p));
}
/* At a high temperature: b T (p^ - q^) + a p^. */
SMI vreal others_high_gap(const loss_out *w, vreal p, size_t i, int cnt) {
  const high at = high_at(w->r, w->coef, score_nontarget, i, cnt);
  const vreal gap = v_mul(v_set1(w->coef[C_TEACHER]), high_gap(&at, v_set1(w->coef[C_HIGH])));
  return v_fma(v_set1(w->coef[C_STUDENT]), p, gap);
}

#endif
