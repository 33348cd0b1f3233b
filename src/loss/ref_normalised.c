/* loss/ref_normalised.c - cross-entropy of other normalisers than softmax. See ref.c. */
#include "ref.h"

/* The side is e^lse against n: the share of either, and log(n + e^lse) - lse. */
void softmax_n_loss_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  const real n = (real)c->q[1], away = n > 0 ? logl(n) - r.lse : -(real)INFINITY;
  const real share = 1 / (1 + expl(away)), none = 1 / (1 + expl(-away));
  c->out[LOSS][0] = (double)((away > 0 ? away + log1pl(expl(-away)) : log1pl(expl(away))) - r.log_p[y]);
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(j == y ? -(without(&r, y) * share + none) : share * r.p[j]);
  close_row(&r);
}

/* Among the k largest: how many come before, by value and then by index. */
static int among(const row_ref_call *c, size_t y) {
  double before = 0;
  for (size_t j = 0; j < c->n; j++)
    before += c->in[0][j] > c->in[0][y] || (c->in[0][j] == c->in[0][y] && j < y);
  return before < c->q[1];
}

/* As open_hard, for which the target's own score must not be left out. */
void sparse_softmax_loss_ref(const row_ref_call *c) {
  row all, r = open_row(c->n);
  size_t y;
  if (open_hard(c, &all, logit, &y)) {
    for (size_t j = 0; j < c->n; j++) r.z[j] = among(c, j) ? c->in[0][j] : -(real)INFINITY;
    finalize(&r);
    c->out[LOSS][0] = (double)(r.log_sum + (r.max - (real)c->in[0][y]));
    const real rest = among(c, y) ? without(&r, y) : 1;
    for (size_t j = 0; j < c->n; j++) c->out[DX][j] = (double)(j == y ? -rest : r.p[j]);
    close_row(&all);
  }
  close_row(&r);
}

/* Weights f / sum f as softmax of log f, whose derivative is f' / f. */
typedef real slope_fn(const row_ref_call *c, real x);
static void ratio_loss(const row_ref_call *c, score_fn *log_f, slope_fn *slope) {
  row r;
  size_t y;
  if (!open_hard(c, &r, log_f, &y)) return;
  c->out[LOSS][0] = (double)-r.log_p[y];
  for (size_t j = 0; j < c->n; j++) {
    const real g = j == y ? -without(&r, y) : r.p[j];
    c->out[DX][j] = isinf(c->in[0][j]) ? 0 : (double)(g * slope(c, c->in[0][j]));
  }
  close_row(&r);
}

static real log_stable(const row_ref_call *c, size_t j) {
  const real x = c->in[0][j];
  return x < 0 ? -log1pl(-x) : log1pl(x);
}
static real stable_slope(const row_ref_call *c, real x) { return x < 0 ? 1 / (1 - x) : 1 / (1 + x); }
void stablemax_loss_ref(const row_ref_call *c) { ratio_loss(c, log_stable, stable_slope); }

static real taylor_sum(real x, int order) {
  real term = 1, sum = 1;
  for (int m = 1; m <= order; m++) sum += term = term * x / m;
  return sum;
}
static real log_taylor(const row_ref_call *c, size_t j) {
  const real x = c->in[0][j];
  return isinf(x) ? x : logl(taylor_sum(x, (int)c->q[1]));
}
static real taylor_slope(const row_ref_call *c, real x) {
  return taylor_sum(x, (int)c->q[1] - 1) / taylor_sum(x, (int)c->q[1]);
}
void taylor_softmax_loss_ref(const row_ref_call *c) { ratio_loss(c, log_taylor, taylor_slope); }
