/* head/ref_cosine.c - cosines with a margin, for tests. */
#include <math.h>

#include "ref.h"

enum { M1, M2, M3, SCALE, BEYOND, DETACH, IGNORE };

static long double cosine(const double *x, const double *y, int64_t d) {
  long double xy = 0, xx = 0, yy = 0;
  for (int64_t i = 0; i < d; i++) {
    const long double a = x[i], b = y[i];
    xy += a * b, xx += a * a, yy += b * b;
  }
  return xy / fmaxl(sqrtl(xx), 1e-12L) / fmaxl(sqrtl(yy), 1e-12L);
}

static long double with_margin(const double *q, long double c) {
  const long double pi = acosl(-1), phi = q[M1] * acosl(fmaxl(-1, fminl(1, c))) + q[M2], k = floorl(phi / pi);
  if (q[M1] == 1 && q[M2] == 0) return c - q[M3];
  if (phi > pi && q[BEYOND] == 0) return (fmodl(k, 2) != 0 ? -1 : 1) * cosl(phi) - 2 * k - q[M3];
  if (phi > pi && q[BEYOND] == 1) return c - q[M2] * sinl(q[M2]) - q[M3];
  if (phi > pi && q[BEYOND] == 2) return -1 - (long double)q[M3];
  return cosl(phi) - q[M3];
}

void ref_cosine_margin(const tensor_ref_call *c) {
  const int64_t d = c->in_shape[0][1], classes = c->in_shape[1][0];
  for (int64_t r = 0; r < c->in_shape[0][0]; r++) {
    const int64_t y = (int64_t)c->in[2][r];
    long double others = 0;
    ref_put(c, 0, r, 0);
    if (c->in[2][r] == c->q[IGNORE]) continue;
    const double *h = c->in[0] + r * d, *w = c->in[1];
    const long double own = with_margin(c->q, cosine(h, w + y * d, d));
    for (int64_t k = 0; k < classes; k++)
      if (k != y) others += expl((long double)c->q[SCALE] * (cosine(h, w + k * d, d) - own));
    ref_put(c, 0, r, (double)log1pl(others));
  }
}
