/* loss/ref_margin.c - softmax of cosines with a margin of the target. See ref.c. */
#include "ref.h"

enum { M1 = 1, M2, M3, SCALE, BEYOND, DETACH };

/* psi of the target's cosine; *slope: its derivative. */
static real with_margin(const double *q, real c, real *slope) {
  const real pi = acosl(-1), m1 = q[M1], m2 = q[M2], kept = fminl(fmaxl(c, -1), 1);
  *slope = 1;
  if (c == -INFINITY || (m1 == 1 && m2 == 0)) return c - (real)q[M3];
  const real phi = m1 * acosl(kept) + m2, k = floorl(phi / pi), sign = fmodl(k, 2) != 0 ? -1 : 1;
  const real sine = fmaxl(sqrtl((1 - kept) * (1 + kept)), 1e-4L), plain = m1 * sinl(phi) / sine;
  real psi = cosl(phi);
  *slope = plain;
  if (phi > pi && q[BEYOND] == 0) psi = sign * psi - 2 * k, *slope = sign * plain;
  if (phi > pi && q[BEYOND] == 1) psi = kept - m2 * sinl(m2), *slope = 1;
  if (phi > pi && q[BEYOND] == 2) psi = -1, *slope = 0;
  if (kept != c) *slope = 0;
  return psi - (real)q[M3];
}

static real score(const row_ref_call *c, size_t j) {
  real slope;
  const real x = c->in[0][j];
  if ((double)j != c->in[1][0] || !(x < INFINITY)) return (real)c->q[SCALE] * x;
  return (real)c->q[SCALE] * with_margin(c->q, x, &slope);
}

void margin_softmax_ref(const row_ref_call *c) {
  row r;
  size_t y;
  real slope;
  if (!open_hard(c, &r, score, &y)) return;
  close_hard(c, &r, y, -r.log_p[y], -1);
  with_margin(c->q, c->in[0][y], &slope);
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] *= c->q[SCALE];
  if (c->q[DETACH] == 0) c->out[DX][y] *= (double)slope;
}
