/* loss/ref_sparse.c - the losses of sparsemax and entmax by bisection on the threshold in long double. See ref.c. */
#include "engine/ref.h"

#include <math.h>

typedef long double real;

row_ref_fn sparsemax_loss_ref, entmax_loss_ref;

/* [1 + q (d - c)]+^(1 / q) */
static real weight(real d, real c, real q) {
  real v = q * (d - c);
  return v <= -1 + 1e-17L ? 0 : q == 1 ? 1 + v : expl(log1pl(v) / q);
}

static void give(const row_ref_call *c, double loss, double dx) {
  c->out[0][0] = loss;
  for (size_t i = 0; i < c->n; i++) c->out[1][i] = dx;
}

static void sparse_loss(const row_ref_call *c, real alpha) {
  real q = alpha - 1, m = -INFINITY, low = 0, high, all = 0, dot = 0;
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) {
    nan |= isnan(c->in[0][i]) || c->in[0][i] == INFINITY;
    if (c->in[0][i] > m) m = c->in[0][i];
  }
  if (c->in[1][0] == c->q[0]) give(c, 0, 0);
  else if (nan) give(c, (double)NAN, (double)NAN);
  else if (m == -INFINITY) give(c, 0, 0);
  if (c->in[1][0] == c->q[0] || nan || m == -INFINITY) return;
  high = (1 - powl((real)c->n, -q)) / q;
  for (int step = 0; step < 200; step++) {
    real middle = (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += weight(c->in[0][i] - m, middle, q);
    if (sum >= 1) low = middle;
    else high = middle;
    if (middle == (low + high) / 2) break;
  }
  const size_t t = (size_t)c->in[1][0];
  for (size_t i = 0; i < c->n; i++) {
    real y = weight(c->in[0][i] - m, low, q);
    if (y > 0) all += powl(y, alpha), dot += y * ((real)c->in[0][i] - m);
    c->out[1][i] = (double)(i == t ? y - 1 : y);
  }
  c->out[0][0] = (double)((1 - all) / (alpha * q) + dot - ((real)c->in[0][t] - m));
}

void sparsemax_loss_ref(const row_ref_call *c) { sparse_loss(c, 2); }
void entmax_loss_ref(const row_ref_call *c) { sparse_loss(c, c->q[1]); }
