/* sample/relaxed.h - y = softmax((x + G) / T) and its gradient, for operators that draw with one kind of noise or another. */
#ifndef SMX_SAMPLE_RELAXED_H
#define SMX_SAMPLE_RELAXED_H
#include "noise.h"

SMI consts relaxed_setup(const row_call *c, const span *s) {
  (void)s;
  return (consts){{1, 1, (real)(1 / c->params[NOISE_TEMPERATURE])}};
}
EXP_SCORES(relaxed, score_relaxed, true)
EXP_EMIT(relaxed_weights, relaxed_weight)
static const exp_body relaxed_body = {.setup = relaxed_setup, .scaled = true, .scores = &relaxed_scores, .emit = relaxed_weights};

/* Soft or hard: dx_i = y_i (dy_i - sum_j y_j dy_j) / T with the soft y. */
EXP_MOMENT(relaxed_moment, score_relaxed, true, moment_upstream)
SMI vreal relaxed_grad_value(const exp_emit *w, size_t i, int cnt) {
  return weight_gradient(w, relaxed_weight(w, i, cnt), w->k->v[2], i, cnt);
}
EXP_EMIT(relaxed_grad_out, relaxed_grad_value)
static const exp_body relaxed_grad_body = {.setup = relaxed_setup,
                                           .scaled = true,
                                           .scores = &relaxed_scores,
                                           .emit = relaxed_grad_out,
                                           .moment = relaxed_moment,
                                           .gradient = true};

#endif
