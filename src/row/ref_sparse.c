/* row/ref_sparse.c - sparsemax, entmax and their kin by bisection in long double. See ref.c. */
#include "engine/ref_threshold.h"
#include "ref.h"

static void entmax_of(const row_ref_call *c, real alpha) {
  real m = largest(c, plain), q = alpha - 1;
  if (!(alpha >= 0 && alpha <= 10)) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  if (q == 0) {
    weights(c, plain, -INFINITY);
    return;
  }
  const entmax_level e = entmax_level_of(c->in[0], c->n, m, q);
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)entmax_at(&e, c->in[0][i]);
}

void sparsemax_ref(const row_ref_call *c) { entmax_of(c, 2); }
void entmax15_ref(const row_ref_call *c) { entmax_of(c, 1.5L); }
void entmax_ref(const row_ref_call *c) { entmax_of(c, c->in[1] ? c->in[1][0] : c->q[0]); }

void normmax_ref(const row_ref_call *c) {
  real m = largest(c, plain), a = c->q[0], total = 0;
  if (special_row(c, c->n, m, 0)) return;
  const real r = normmax_level_of(c->in[0], c->n, m, a);
  for (size_t i = 0; i < c->n; i++) total += normmax_power(c->in[0][i] - m + r, 1 / (a - 1));
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = (double)(normmax_power(c->in[0][i] - m + r, 1 / (a - 1)) / total);
}
