/* sample/ref_sets.c - subsets that are drawn, straight from their definitions. See ref.c. */
#include "ref.h"

void gumbel_khot_ref(const row_ref_call *c) {
  double *h = room_for(c->n), m = largest(c->in[0], c->n),
         shift = fabs(m) < 524288 || m == -INFINITY || c->q[2] != 0 ? 0 : m;
  for (size_t i = 0; i < c->n; i++) {
    const double noise = gumbel((uint64_t)c->q[1], stream_of(c), 3, i);
    h[i] = (c->in[0][i] - shift + noise) / c->q[0];
    if (c->q[2] != 0) h[i] = m > -INFINITY ? c->in[0][i] - m + noise : -INFINITY;
  }
  weights(h, c->n, c->out[0]);
  for (size_t i = 0; c->q[2] != 0 && !isnan(m) && i < c->n; i++) c->out[0][i] = 0;
  for (double j = 0; c->q[2] != 0 && !isnan(m) && j < c->q[3] && j < (double)c->n; j++) {
    const size_t best = first_largest(h, c->n);
    if (h[best] == -INFINITY) break;
    c->out[0][best] = 1, h[best] = -INFINITY;
  }
  if (c->q[2] != 0 && isnan(m))
    for (size_t i = 0; i < c->n; i++) c->out[0][i] = NAN;
  free(h);
}

void gumbel_topk_logp_ref(const row_ref_call *c) {
  double *left = room_for(c->n);
  long double log = 0;
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) nan |= !(c->in[0][i] < INFINITY), left[i] = 1;
  for (size_t j = 0; j < (size_t)c->q[0]; j++) {
    const double drawn = c->in[1][j];
    if (!(drawn >= 0 && drawn < (double)c->n) || left[(size_t)drawn] == 0) continue;
    const double x = c->in[0][(size_t)drawn];
    long double sum = 0, most = x;
    for (size_t i = 0; i < c->n; i++)
      if (left[i] != 0 && c->in[0][i] > most) most = c->in[0][i];
    for (size_t i = 0; i < c->n; i++)
      if (left[i] != 0 && i != (size_t)drawn && most > -INFINITY) sum += expl(c->in[0][i] - most);
    log -= !(x > -INFINITY) ? INFINITY : most > x ? most - x + logl(expl(x - most) + sum) : log1pl(sum);
    left[(size_t)drawn] = 0;
  }
  c->out[0][0] = nan ? NAN : (double)log;
  free(left);
}

void gumbel_topk_inclusion_ref(const row_ref_call *c) {
  const double kappa = c->in[1][0];
  int nan = isnan(kappa);
  for (size_t i = 0; i < c->n; i++) nan |= !(c->in[0][i] < INFINITY);
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = nan ? NAN : c->in[0][i] == -INFINITY ? 0 : -expm1(-exp(c->in[0][i] - kappa));
}

/* p of one step of the scores a / t, and the logarithms of 1 - p: for the first largest by the sum
 * of the others. */
static void subset_step(const long double *a, size_t n, double t, long double *p, long double *rest) {
  size_t top = 0;
  long double second = -INFINITY, sum = 0;
  for (size_t i = 1; i < n; i++)
    if (a[i] > a[top]) top = i;
  for (size_t i = 0; i < n; i++)
    if (i != top && a[i] / t > second) second = a[i] / t;
  for (size_t i = 0; i < n; i++) sum += i != top && second > -INFINITY ? expl(a[i] / t - second) : 0;
  const long double odds = sum > 0 ? sum * expl(second - a[top] / t) : 0;
  for (size_t i = 0; i < n; i++)
    p[i] = a[i] / t - a[top] / t > -700 ? expl(a[i] / t - a[top] / t) / (1 + odds) : 0,
    rest[i] = log1pl(-p[i]);
  rest[top] = second - a[top] / t + logl(sum) - log1pl(odds);
}
void relaxed_khot_ref(const row_ref_call *c) {
  const double m = largest(c->in[0], c->n);
  long double *a = calloc(3 * c->n + 1, sizeof *a), *p = a + c->n, *rest = p + c->n;
  size_t valid = 0;
  if (c->q[2] != 0 || !(m > -INFINITY)) { /* the hard mask */
    free(a);
    gumbel_khot_ref(c);
    return;
  }
  for (size_t i = 0; i < c->n; i++) {
    a[i] = c->in[0][i] > -INFINITY
               ? c->in[0][i] - (long double)m + gumbel((uint64_t)c->q[1], stream_of(c), 3, i)
               : -INFINITY;
    valid += a[i] > -INFINITY;
    c->out[0][i] = 0;
  }
  for (double j = 0; j < c->q[3] && j < (double)valid; j++) {
    subset_step(a, c->n, c->q[0], p, rest);
    for (size_t i = 0; i < c->n; i++) c->out[0][i] += (double)p[i], a[i] += a[i] > -INFINITY ? rest[i] : 0;
  }
  free(a);
}
