/* loss/ref_divergence.c - losses between a student's row and a teacher's. See ref.c. */
#include "ref.h"

void knowledge_distillation_ref(const row_ref_call *c) {
  two w;
  real t = c->q[1], t_teacher = c->q[2] > 0 ? (real)c->q[2] : t,
       k = c->q[3] == 0 && t == t_teacher ? t * t : 1;
  if (!open_two(c, &w, t, t_teacher, c->n)) return;
  real d = c->q[0] == 2 ? crossed(&w.t, &w.s) : even_divergence(&w, c->q[0] == 1), at = constant(&w);
  c->out[LOSS][0] = (double)(k * d);
  for (size_t j = 0; j < c->n; j++) {
    real g = even_gap(&w, at, j);
    if (c->q[0] == 1) g = isinf(d) || w.s.p[j] == 0 ? 0 : w.s.p[j] * (-log_ratio(&w, at, j) - d);
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
    c->out[DX][j] =
        (double)(w.s.p[j] == 0 || b == 0 ? 0 : b / t * w.s.p[j] * (w.s.log_p[j] - logl(m) - student));
  }
  close_two(&w);
}

void decoupled_kd_ref(const row_ref_call *c) {
  two w;
  real t = c->q[1], alpha = c->q[2], beta = c->q[3], away;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  size_t y = (size_t)c->in[2][0];
  if (!open_two(c, &w, t, t, y)) return;
  real own = even_own(&w, c->in[0][y] / t, c->in[1][y] / t, &away), at = constant(&w);
  c->out[LOSS][0] = (double)(t * t * (part(alpha, own) + part(beta, even_divergence(&w, 0))));
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] =
        (double)(t * (j == y ? alpha * away : beta * even_gap(&w, at, j) - alpha * away * w.s.p[j]));
  close_two(&w);
}

void normalised_kd_ref(const row_ref_call *c) {
  two w, own;
  real gamma = c->q[1], t = c->q[3], lp, lq, tp, tq;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  size_t y = (size_t)c->in[2][0];
  if (!open_two(c, &w, t, t, y) || !open_two(c, &own, 1, 1, y)) return;
  own_share(&own.s, c->in[0][y], &lp, &lq);
  own_share(&own.t, c->in[1][y], &tp, &tq);
  const real at = constant(&w);
  c->out[LOSS][0] = (double)(part(expl(tp), -lp) + part(gamma, t * t * crossed(&w.t, &w.s)));
  for (size_t j = 0; j < c->n; j++) {
    real others = expl(tp) * expl(lq) * own.s.p[j] + gamma * t * even_gap(&w, at, j);
    c->out[DX][j] = (double)(j == y ? -expl(tp) * expl(lq) : others);
  }
  close_two(&own);
  close_two(&w);
}
