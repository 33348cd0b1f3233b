/* loss/ref_sparse.c - the losses of sparsemax, entmax and normmax by bisection in long double. See
 * ref.c. */
#include "engine/ref.h"
#include "engine/ref_threshold.h"

typedef long double real;

row_ref_fn sparsemax_loss_ref, entmax_loss_ref, normmax_loss_ref;

static void give(const row_ref_call *c, double loss, double dx) {
  c->out[0][0] = loss;
  for (size_t i = 0; i < c->n; i++) c->out[1][i] = dx;
}

/* Of a distribution t: A W + sum_j (t_j^alpha - t_j) / (alpha q) - t_j d_j, W = H(y) + y.d. */
static void soft_loss(const row_ref_call *c, real m, const entmax_level *e) {
  const real q = e->q, alpha = q + 1;
  real all = 0, dot = 0, mass = 0, rest = 0;
  for (size_t i = 0; i < c->n; i++) {
    const real d = (real)c->in[0][i] - m, y = entmax_at(e, c->in[0][i]), t = c->in[2][i];
    if (y > 0) all += powl(y, alpha), dot += y * d;
    mass += t;
    if (t != 0) rest += t * (((q == 1 ? t : powl(t, q)) - 1) / (alpha * q) - d);
  }
  for (size_t i = 0; i < c->n; i++) c->out[1][i] = (double)(mass * entmax_at(e, c->in[0][i]) - c->in[2][i]);
  c->out[0][0] = (double)(mass * ((1 - all) / (alpha * q) + dot) + rest);
  if (isnan(c->out[0][0])) give(c, (double)NAN, (double)NAN);
}

/* The largest x; NaN, and the row is settled, where the row needs a rule. */
static real largest(const row_ref_call *c) {
  real m = -INFINITY;
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) {
    nan |= isnan(c->in[0][i]) || c->in[0][i] == INFINITY;
    if (c->in[0][i] > m) m = c->in[0][i];
  }
  const int ignored = c->in[1] && c->in[1][0] == c->q[0];
  if (ignored) give(c, 0, 0);
  else if (nan) give(c, (double)NAN, (double)NAN);
  else if (m == -INFINITY) give(c, 0, 0);
  return ignored || nan || m == -INFINITY ? NAN : m;
}

static void sparse_loss(const row_ref_call *c, real alpha) {
  const real q = alpha - 1, m = largest(c);
  real all = 0, dot = 0;
  if (isnan(m)) return;
  const entmax_level e = entmax_level_of(c->in[0], c->n, m, q);
  if (!c->in[1]) {
    soft_loss(c, m, &e);
    return;
  }
  const size_t t = (size_t)c->in[1][0];
  for (size_t i = 0; i < c->n; i++) {
    real y = entmax_at(&e, c->in[0][i]);
    if (y > 0) all += powl(y, alpha), dot += y * ((real)c->in[0][i] - m);
    c->out[1][i] = (double)(i == t ? y - 1 : y);
  }
  c->out[0][0] = (double)((1 - all) / (alpha * q) + dot - ((real)c->in[0][t] - m));
}

void sparsemax_loss_ref(const row_ref_call *c) { sparse_loss(c, 2); }
void entmax_loss_ref(const row_ref_call *c) { sparse_loss(c, c->q[1]); }

void normmax_loss_ref(const row_ref_call *c) {
  const real m = largest(c), alpha = c->q[1];
  real total = 0, all = 0, dot = 0;
  if (isnan(m)) return;
  const real r = normmax_level_of(c->in[0], c->n, m, alpha);
  const size_t t = (size_t)c->in[1][0];
  for (size_t i = 0; i < c->n; i++) total += normmax_power(c->in[0][i] - m + r, 1 / (alpha - 1));
  for (size_t i = 0; i < c->n; i++) {
    const real d = c->in[0][i] - m, y = normmax_power(d + r, 1 / (alpha - 1)) / total;
    if (y > 0) all += powl(y, alpha), dot += y * d;
    c->out[1][i] = (double)(i == t ? y - 1 : y);
  }
  c->out[0][0] = (double)(1 - powl(all, 1 / alpha) + dot - (c->in[0][t] - m));
}
