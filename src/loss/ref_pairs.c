/* loss/ref_pairs.c - losses between a student's row and a teacher's. See ref.c. */
#include "ref.h"

void knowledge_distillation_ref(const row_ref_call *c) {
  two w;
  real t = c->q[1], t_teacher = c->q[2] > 0 ? (real)c->q[2] : t, k = c->q[3] == 0 && t == t_teacher ? t * t : 1;
  if (!open_two(c, &w, t, t_teacher, c->n)) return;
  real d = c->q[0] == 1 ? divergence(&w.s, &w.t) : c->q[0] == 2 ? crossed(&w.t, &w.s) : divergence(&w.t, &w.s);
  c->out[LOSS][0] = (double)(k * d);
  for (size_t j = 0; j < c->n; j++) {
    real g = w.s.p[j] - w.t.p[j];
    if (c->q[0] == 1) g = isinf(d) || w.s.p[j] == 0 ? 0 : w.s.p[j] * (w.s.log_p[j] - w.t.log_p[j] - d);
    c->out[DX][j] = (double)(k * g / t);
  }
  close_two(&w);
}

void jensen_shannon_ref(const row_ref_call *c) {
  two w;
  real b = c->q[0], t = c->q[2], student = 0, teacher = 0;
  if (!open_two(c, &w, t, t, c->n)) return;
  for (size_t j = 0; j < c->n; j++) {
    real m = b * w.s.p[j] + (1 - b) * w.t.p[j];
    if (w.s.p[j] > 0 && b > 0) student += w.s.p[j] * (w.s.log_p[j] - logl(m));
    if (w.t.p[j] > 0 && b < 1) teacher += w.t.p[j] * (w.t.log_p[j] - logl(m));
  }
  c->out[LOSS][0] = (double)(b * student + (1 - b) * teacher);
  for (size_t j = 0; j < c->n; j++) {
    real m = b * w.s.p[j] + (1 - b) * w.t.p[j];
    c->out[DX][j] = (double)(w.s.p[j] == 0 || b == 0 ? 0 : b / t * w.s.p[j] * (w.s.log_p[j] - logl(m) - student));
  }
  close_two(&w);
}

void decoupled_kd_ref(const row_ref_call *c) {
  two w;
  real t = c->q[1], alpha = c->q[2], beta = c->q[3], lp, lq, tp, tq;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  size_t y = (size_t)c->in[2][0];
  if (!open_two(c, &w, t, t, y)) return;
  own_share(&w.s, c->in[0][y] / t, &lp, &lq);
  own_share(&w.t, c->in[1][y] / t, &tp, &tq);
  real own = part(expl(tp), tp - lp) + part(expl(tq), tq - lq), away = lp < tp ? expl(lp) - expl(tp) : expl(tq) - expl(lq);
  if (tp < -1 || lp < -1) away = expl(lp) - expl(tp);
  c->out[LOSS][0] = (double)(t * t * (part(alpha, own) + part(beta, divergence(&w.t, &w.s))));
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(t * (j == y ? alpha * away : -alpha * away * w.s.p[j] + beta * (w.s.p[j] - w.t.p[j])));
  close_two(&w);
}

void normalised_kd_ref(const row_ref_call *c) {
  two w;
  real gamma = c->q[1], lp, lq, tp, tq;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  size_t y = (size_t)c->in[2][0];
  if (!open_two(c, &w, 1, 1, y)) return;
  own_share(&w.s, c->in[0][y], &lp, &lq);
  own_share(&w.t, c->in[1][y], &tp, &tq);
  c->out[LOSS][0] = (double)(part(expl(tp), -lp) + part(gamma, crossed(&w.t, &w.s)));
  for (size_t j = 0; j < c->n; j++) {
    real others = expl(tp) * expl(lq) * w.s.p[j] + gamma * (w.s.p[j] - w.t.p[j]);
    c->out[DX][j] = (double)(j == y ? -expl(tp) * expl(lq) : others);
  }
  close_two(&w);
}
