/* sample/relaxed.c - relaxed samples and their gradient (relaxed.h). */
#include "relaxed.h"

SMI consts relaxed_setup(const row_call *c, const span *s) {
  return (consts){{1, 1, (real)(1 / c->params[NOISE_TEMPERATURE])}};
}

EXP_SCORES_LOW(relaxed, score_relaxed)

const exp_body relaxed_body = {
    .setup = relaxed_setup, .scaled = true, .scores = &relaxed_scores, .write = exp_weights};

EXP_MOMENT(relaxed_moment, moment_upstream)

SMI vreal relaxed_grad_value(const exp_write *w, size_t i, int cnt) {
  return weight_gradient(w, exp_weight_at(w, i), w->k->v[2], i, cnt);
}

EXP_WRITE(relaxed_grad_out, relaxed_grad_value)

const exp_body relaxed_grad_body = {.setup = relaxed_setup,
                                    .scaled = true,
                                    .scores = &relaxed_scores,
                                    .write = relaxed_grad_out,
                                    .moment = relaxed_moment,
                                    .gradient = true};
