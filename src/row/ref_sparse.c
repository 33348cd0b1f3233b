/* row/ref_sparse.c - sparsemax, entmax and their kin by bisection on the threshold in long double. See ref.c. */
#include "ref.h"

/* v^p, 0 for v <= 0. */
static real power(real v, real p) { return v > 0 ? powl(v, p) : 0; }

/* y_i = [1 + q (x_i - max - c)]+^(1 / q). What is closer to the threshold than c is known has no weight. */
static real entmax_weight(real d, real c, real q) {
  real v = 1 + q * (d - c);
  if (v < 1e-17L) return 0;
  return q == 1 ? v : q == 0.5L ? v * v : expl(log1pl(q * (d - c)) / q);
}

static void entmax_of(const row_ref_call *c, real alpha) {
  real m = largest(c, plain), q = alpha - 1;
  if (!(alpha >= 1 && alpha <= 10)) m = NAN;
  if (settled(c, c->n, m, 0)) return;
  if (q == 0) {
    weights(c, plain, -INFINITY);
    return;
  }
  real low = 0, high = (1 - powl((real)c->n, -q)) / q;
  for (int step = 0; step < 200; step++) {
    real middle = (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += entmax_weight(c->in[0][i] - m, middle, q);
    if (sum >= 1) low = middle;
    else high = middle;
    if (middle == (low + high) / 2) break;
  }
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)entmax_weight(c->in[0][i] - m, low, q);
}

void sparsemax_ref(const row_ref_call *c) { entmax_of(c, 2); }
void entmax15_ref(const row_ref_call *c) { entmax_of(c, 1.5L); }
void entmax_ref(const row_ref_call *c) { entmax_of(c, c->in[1] ? c->in[1][0] : c->q[0]); }

void normmax_ref(const row_ref_call *c) {
  real m = largest(c, plain), a = c->q[0], low = 0, high = 1, total = 0;
  if (settled(c, c->n, m, 0)) return;
  for (int step = 0; step < 200; step++) {
    real middle = (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += power(c->in[0][i] - m + middle, a / (a - 1));
    if (sum >= 1) high = middle;
    else low = middle;
    if (middle == (low + high) / 2) break;
  }
  for (size_t i = 0; i < c->n; i++) total += power(c->in[0][i] - m + high, 1 / (a - 1));
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)(power(c->in[0][i] - m + high, 1 / (a - 1)) / total);
}
