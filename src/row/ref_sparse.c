/* row/ref_sparse.c - sparsemax, entmax and their kin by bisection on the threshold in long double.
 * See ref.c. */
#include "ref.h"

/* v^p, 0 for v <= 0. */
static real power(real v, real p) { return v > 0 ? powl(v, p) : 0; }

/* y_i = v^(1 / q), v = [1 + q (d - c)]+ or, for large q, where 1 - q c may be as small as
 * n^-q, v = [r + q d]+ with d = x_i - max. What is closer to the threshold than that is known has
 * no weight. */
static real entmax_weight(real d, real at, real q) {
  real v = q < 1 ? 1 + q * (d - at) : at + q * d;
  if (v < 1e-17L * (q < 1 ? 1 : at)) return 0;
  return q == 1 ? v : q == 0.5L ? v * v : expl((q < 1 ? log1pl(q * (d - at)) : logl(v)) / q);
}

/* Where the weights sum to 1: their sum falls with c, and rises with r. */
static real entmax_root(const row_ref_call *c, real m, real q) {
  real few = powl((real)c->n, -q), low = q < 1 ? 0 : few,
       high = q < 1 ? -expm1l(-q * logl((real)c->n)) / q : 1;
  for (int step = 0; step < 200; step++) {
    real middle = q >= 1 && high > 2 * low ? sqrtl(low * high) : (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += entmax_weight(c->in[0][i] - m, middle, q);
    if ((sum >= 1) == (q < 1)) low = middle;
    else high = middle;
    if (middle == (low + high) / 2) break;
  }
  return q < 1 ? low : high;
}

static void entmax_of(const row_ref_call *c, real alpha) {
  real m = largest(c, plain), q = alpha - 1;
  if (!(alpha >= 1 && alpha <= 10)) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  if (q == 0) {
    weights(c, plain, -INFINITY);
    return;
  }
  real at = entmax_root(c, m, q);
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)entmax_weight(c->in[0][i] - m, at, q);
}

void sparsemax_ref(const row_ref_call *c) { entmax_of(c, 2); }
void entmax15_ref(const row_ref_call *c) { entmax_of(c, 1.5L); }
void entmax_ref(const row_ref_call *c) { entmax_of(c, c->in[1] ? c->in[1][0] : c->q[0]); }

void normmax_ref(const row_ref_call *c) {
  real m = largest(c, plain), a = c->q[0], low = 0, high = 1, total = 0;
  if (special_row(c, c->n, m, 0)) return;
  for (int step = 0; step < 200; step++) {
    real middle = (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += power(c->in[0][i] - m + middle, a / (a - 1));
    if (sum >= 1) high = middle;
    else low = middle;
    if (middle == (low + high) / 2) break;
  }
  for (size_t i = 0; i < c->n; i++) total += power(c->in[0][i] - m + high, 1 / (a - 1));
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = (double)(power(c->in[0][i] - m + high, 1 / (a - 1)) / total);
}
