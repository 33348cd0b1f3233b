/* loss/ref_sparse.c - the losses of sparsemax and entmax by bisection on the threshold in long
 * double. See ref.c. */
#include "engine/ref.h"

#include <math.h>

typedef long double real;

row_ref_fn sparsemax_loss_ref, entmax_loss_ref;

/* [1 + q (d - c)]+^(1 / q), or, for large q, [r + q d]+^(1 / q) with r = 1 - q c, which may be as
 * small as n^-q. */
static real weight(real d, real at, real q) {
  real v = q < 1 ? 1 + q * (d - at) : at + q * d;
  if (v < 1e-17L * (q < 1 ? 1 : at)) return 0;
  return q == 1 ? v : expl((q < 1 ? log1pl(q * (d - at)) : logl(v)) / q);
}

/* Where the weights sum to 1: their sum falls with c, and rises with r. */
static real root(const row_ref_call *c, real m, real q) {
  real few = powl((real)c->n, -q), low = q < 1 ? 0 : few,
       high = q < 1 ? -expm1l(-q * logl((real)c->n)) / q : 1;
  for (int step = 0; step < 200; step++) {
    real middle = q >= 1 && high > 2 * low ? sqrtl(low * high) : (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += weight(c->in[0][i] - m, middle, q);
    if ((sum >= 1) == (q < 1)) low = middle;
    else high = middle;
    if (middle == (low + high) / 2) break;
  }
  return q < 1 ? low : high;
}

static void give(const row_ref_call *c, double loss, double dx) {
  c->out[0][0] = loss;
  for (size_t i = 0; i < c->n; i++) c->out[1][i] = dx;
}

/* Of a distribution t: A W + sum_j (t_j^alpha - t_j) / (alpha q) - t_j d_j, W = H(y) + y.d. */
static void soft_loss(const row_ref_call *c, real alpha, real m, real low) {
  const real q = alpha - 1;
  real all = 0, dot = 0, mass = 0, rest = 0;
  for (size_t i = 0; i < c->n; i++) {
    const real d = (real)c->in[0][i] - m, y = weight(d, low, q), t = c->in[2][i];
    if (y > 0) all += powl(y, alpha), dot += y * d;
    mass += t;
    if (t != 0) rest += t * (((q == 1 ? t : powl(t, q)) - 1) / (alpha * q) - d);
  }
  for (size_t i = 0; i < c->n; i++)
    c->out[1][i] = (double)(mass * weight((real)c->in[0][i] - m, low, q) - c->in[2][i]);
  c->out[0][0] = (double)(mass * ((1 - all) / (alpha * q) + dot) + rest);
  if (isnan(c->out[0][0])) give(c, (double)NAN, (double)NAN);
}

static void sparse_loss(const row_ref_call *c, real alpha) {
  real q = alpha - 1, m = -INFINITY, low, all = 0, dot = 0;
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) {
    nan |= isnan(c->in[0][i]) || c->in[0][i] == INFINITY;
    if (c->in[0][i] > m) m = c->in[0][i];
  }
  const int ignored = c->in[1] && c->in[1][0] == c->q[0];
  if (ignored) give(c, 0, 0);
  else if (nan) give(c, (double)NAN, (double)NAN);
  else if (m == -INFINITY) give(c, 0, 0);
  if (ignored || nan || m == -INFINITY) return;
  low = root(c, m, q);
  if (!c->in[1]) {
    soft_loss(c, alpha, m, low);
    return;
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
