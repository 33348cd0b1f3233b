/* sample/ref_density.c - densities and rates, straight from their formulas. See ref.c. */
#include "ref.h"

void gumbel_softmax_logpdf_ref(const row_ref_call *c) {
  const double *x = c->in[0], *z = c->in[1], t = c->q[0];
  long double sum = 0, most = -INFINITY, terms = 0, n = 0;
  for (size_t i = 0; i < c->n; i++) {
    if (z[i] == -INFINITY) continue;
    const long double l = c->q[1] != 0 ? x[i] : x[i] > 0 ? logl(x[i]) : NAN;
    sum += z[i] - (t + (c->q[1] != 0 ? 0 : 1)) * l, n++;
    most = isnan(l) || z[i] - t * l > most ? z[i] - t * l : most;
  }
  for (size_t i = 0; i < c->n; i++) {
    const long double l = c->q[1] != 0 ? x[i] : logl(x[i]);
    if (z[i] > -INFINITY) terms += expl(z[i] - t * l - most);
  }
  const long double value = lgammal(n) + (n - 1) * logl(t) + sum - n * (most + logl(terms));
  c->out[0][0] = n > 0 && isfinite(value) ? (double)value : NAN;
}

/* By the ratio, ascending. */
typedef struct token {
  double p, q;
} token;
static int by_ratio(const void *a, const void *b) {
  const token *u = a, *v = b;
  const long double left = (long double)u->p * v->q, right = (long double)v->p * u->q;
  return (left > right) - (left < right);
}
void multi_draft_acceptance_ref(const row_ref_call *c) {
  token *all = calloc(c->n + 1, sizeof *all);
  size_t n = 0;
  double bad = 0;
  long double p = 0, q = 0, least = 1;
  if (!all) abort();
  for (size_t i = 0; i < c->n; i++) {
    bad += !(c->in[0][i] >= 0 && c->in[0][i] < INFINITY && c->in[1][i] >= 0 && c->in[1][i] < INFINITY);
    if (c->in[1][i] > 0) all[n++] = (token){c->in[0][i], c->in[1][i]};
  }
  if (bad == 0) qsort(all, n, sizeof *all, by_ratio);
  for (size_t i = 0; i < n; i++) p += all[i].p, q += all[i].q, least = fminl(least, 1 + p - powl(q, c->q[0]));
  c->out[0][0] = bad > 0 ? NAN : (double)fmaxl(least, 0);
  free(all);
}

void dirichlet_logpdf_ref(const row_ref_call *c) {
  long double sum = 0, all = 0;
  for (size_t i = 0; i < c->n; i++) {
    const long double a = (long double)c->q[0] * c->in[1][i];
    if (a >= 0 && a < 1e-300L) continue;
    const double x = c->q[1] == 0 && c->in[0][i] >= 0 ? fmax(c->in[0][i], c->q[2]) : c->in[0][i];
    const long double l = c->q[1] != 0 ? x : x > 0 ? logl(x) : NAN;
    sum += a > 0 ? (a - (c->q[1] != 0 ? 0 : 1)) * l - lgammal(a) : NAN, all += a;
  }
  sum += all > 0 ? lgammal(all) : NAN;
  c->out[0][0] = isfinite(sum) ? (double)sum : NAN;
}

void normal_logpdf_ref(const row_ref_call *c) {
  const long double sigma = c->in[2] ? c->in[2][0] : c->q[0];
  long double sum = 0, n = 0;
  for (size_t i = 0; i < c->n; i++) {
    if (c->in[0][i] == -INFINITY || c->in[1][i] == -INFINITY) continue;
    sum += powl(((long double)c->in[0][i] - c->in[1][i]) / sigma, 2), n++;
  }
  c->out[0][0] =
      sigma > 0 && isfinite(sum) ? (double)(-sum / 2 - n * (logl(sigma) + logl(2 * acosl(-1)) / 2)) : NAN;
}
