/* score/ref_features.c - the generalised entropy and maps of features straight from their formulas,
 * for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ref.h"

/* How many come before element i: larger ones, and equal ones in front of it. */
static int64_t place_of(const double *x, int64_t n, int64_t i) {
  int64_t place = 0;
  for (int64_t j = 0; j < n; j++) place += x[j] > x[i] || (x[j] == x[i] && j < i);
  return place;
}

/* q: temperature, gamma, top. */
void generalised_entropy_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t r = 0; r < ref_rows(c->in_shape[0]); r++) {
    const double *z = c->in[0] + r * n;
    long double score = 0;
    for (int64_t i = 0; i < n; i++) {
      long double sum = 0, others = 0;
      for (int64_t j = 0; j < n; j++) {
        const long double e = expl((z[j] - (long double)z[i]) / c->q[0]);
        sum += e, others += j == i ? 0 : e;
      }
      if ((double)place_of(z, n, i) < c->q[2]) score -= powl(others / sum / sum, c->q[1]);
    }
    ref_put(c, 0, r, (double)score);
  }
}

void react_ref(const tensor_ref_call *c) {
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++) ref_put(c, 0, i, fmin(c->in[0][i], c->q[0]));
}

/* q: percentile, form. */
void ash_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  const double k = (double)n - rint((double)n * c->q[0] / 100);
  for (int64_t r = 0; r < ref_rows(c->in_shape[0]); r++) {
    const double *h = c->in[0] + r * n;
    double s1 = 0, s2 = 0;
    for (int64_t i = 0; i < n; i++) s1 += h[i], s2 += (double)place_of(h, n, i) < k ? h[i] : 0;
    for (int64_t i = 0; i < n; i++) {
      const bool kept = (double)place_of(h, n, i) < k;
      const double by = s2 == 0 ? 1 : exp(s1 / s2), all = h[i] * by;
      const double forms[] = {kept ? h[i] : 0, kept ? s1 / k : 0, kept || s2 == 0 ? all : 0, all};
      ref_put(c, 0, r * n + i, forms[(int)c->q[1]]);
    }
  }
}

/* q: temperature. */
void odin_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    const double *z = c->in[0] + i * n;
    double most = -INFINITY, count = 0;
    long double sum = 0;
    for (int64_t j = 0; j < n; j++) most = fmax(most, z[j]), count += z[j] > -INFINITY;
    for (int64_t j = 0; j < n; j++) sum += expl((z[j] - (long double)most) / c->q[0]);
    ref_put(c, 0, i, (double)(1 / sum)), ref_put(c, 1, i, (double)(c->q[0] * (count / sum - 1)));
  }
}

void odin_perturb_ref(const tensor_ref_call *c) {
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++) {
    const double step = c->q[0] / (c->in[2] ? c->in[2][i] : 1);
    ref_put(c, 0, i, c->in[1][i] < 0 ? c->in[0][i] + step : c->in[0][i] - step);
  }
}
