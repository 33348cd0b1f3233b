/* loss/logits.h - the ways in which losses form scores of logits: x itself, x / T, c
 * tanh(x / c) / T, and x plus a multiple of a logarithm. */
#ifndef SMX_LOSS_LOGITS_H
#define SMX_LOSS_LOGITS_H
#include "rows.h"

SMI score score_logit(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return (score){loss_shifted(at(s->src[0], i, cnt), shift), v_set1(0)};
}

/* x times a double c = v[0] + v[1], as h + l; 1 / c is finite. */
SMI consts loss_factor(double c) {
  real high = (real)c;
  return (consts){{high, (real)(c - (double)high)}};
}
SMI score score_tempered(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal x = loss_shifted(at(s->src[0], i, cnt), shift), c = v_set1(k->v[0]), h = v_mul(x, c);
  return (score){h, v_fma(x, v_set1(k->v[1]), v_fma(x, c, v_sub(v_set1(0), h)))};
}

/* v[0] = c, v[1] = c / T. A logit of -inf stays where it is, and one of +inf. */
SMI score score_capped(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), h = v_mul(v_set1(k->v[1]), v_tanh(v_div(x, v_set1(k->v[0]))));
  return (score){loss_shifted(v_select(v_lt(v_abs(x), v_set1(R_INF)), h, x), shift), v_set1(0)};
}

/* These scores for all losses, and the gradient of most: the weights times a coefficient, with
 * another value at the target. Those of logits are fused (logits.c). */
#define logit_scores SMX_FN(logit_scores)
#define tempered_scores SMX_FN(tempered_scores)
#define nontarget_scores SMX_FN(nontarget_scores)
#define logit_out SMX_FN(logit_out)
#define loss_plain_out SMX_FN(loss_plain_out)
extern const exp_scores logit_scores, tempered_scores;
extern const exp_scores nontarget_scores; /* tempered, without the target (nontarget.h) */
loss_write_fn logit_out;                  /* of logits */
loss_write_fn loss_plain_out;             /* of any scores */

#endif
