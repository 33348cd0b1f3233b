/* loss/ref_scores.c - losses whose scores are not the logits of all classes. See ref.c. */
#include "ref.h"

static real on_level(const row_ref_call *c, size_t j) {
  return c->in[3][j] == c->in[2][0] ? (real)c->in[0][j] : -(real)INFINITY;
}
void semantic_softmax_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, on_level, &y)) {
    /* the target, though nothing else exists */
    int spoiled = c->in[1][0] != c->q[0] && !(c->in[0][y] < (double)INFINITY);
    if (spoiled) give(c, (double)NAN);
    return;
  }
  real e = c->q[1], weight = c->in[4] ? c->in[4][y] : 1, loss = 0, count = 0;
  for (size_t j = 0; j < c->n; j++) count += r.z[j] != -INFINITY;
  for (size_t j = 0; j < c->n; j++) {
    real mass = (1 - e) * (j == y) + (r.z[j] == -INFINITY ? 0 : e / count);
    loss += part(mass, -r.log_p[j]);
    real g = j == y && r.z[j] != -INFINITY ? e - e / count - without(&r, y) : r.p[j] - mass;
    c->out[DX][j] = (double)(weight * g);
  }
  c->out[LOSS][0] = (double)part(weight, loss);
  close_row(&r);
}

void balanced_mse_ref(const row_ref_call *c) {
  row r = open_row(c->n);
  real sigma = c->in[4] ? c->in[4][0] : c->q[0], s = sigma * sigma, own = c->in[1][0];
  for (size_t j = 0; j < c->n; j++) {
    real w = c->in[2] ? c->in[2][j] : 1, v = c->in[3] ? c->in[3][j] : 0;
    r.z[j] = w == 0 ? -(real)INFINITY : logl(w) + logl(s / (v + s)) / 2 - (real)c->in[0][j] / (2 * (v + s));
  }
  finalize(&r);
  if (isnan(own) || !(sigma > 0)) r.nan = 1;
  if (r.nan || r.empty) give(c, r.nan ? (double)NAN : 0);
  for (size_t j = 0; j < c->n && !r.nan && !r.empty; j++) {
    c->out[LOSS][0] = (double)(own + 2 * s * r.lse);
    c->out[DX][j] = (double)(-r.p[j] * s / ((c->in[3] ? c->in[3][j] : 0) + s));
  }
  close_row(&r);
}

void semantic_kd_ref(const row_ref_call *c) {
  two w = {open_row(c->n), open_row(c->n)};
  real sum = 0, mean = 0, weight = c->in[4] ? c->in[4][0] : 1;
  for (size_t j = 0; j < c->n; j++) {
    int mine = c->in[3][j] == c->in[2][0];
    w.s.z[j] = mine ? (real)c->in[0][j] : -(real)INFINITY;
    w.t.z[j] = mine ? (real)c->in[1][j] : -(real)INFINITY;
  }
  finalize(&w.s);
  finalize(&w.t);
  if (w.s.nan || w.t.nan || w.s.empty || w.t.empty) {
    give(c, w.s.nan || w.t.nan ? (double)NAN : 0);
    close_two(&w);
    return;
  }
  for (size_t j = 0; j < c->n; j++) {
    real gap = w.s.p[j] - w.t.p[j];
    sum += gap * gap, mean += w.s.p[j] * gap;
  }
  c->out[LOSS][0] = (double)(weight * sum);
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(2 * weight * w.s.p[j] * (w.s.p[j] - w.t.p[j] - mean));
  close_two(&w);
}
