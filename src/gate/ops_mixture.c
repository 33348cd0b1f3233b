/* gate/ops_mixture.c - the likelihood of a mixture of experts (gate.h), in double. */
#include "mixture.h"

#define HALF_LOG_TWO_PI 0.91893853320467274178

/* log sum e^x; -inf where all are -inf, NaN for a NaN and for +inf. p: softmax. */
static double log_sum(const double *x, int64_t n, double *p) {
  double most = -__builtin_inf(), rest = 0;
  int64_t top = 0;
  for (int64_t i = 0; i < n; i++) {
    if (x[i] > most || x[i] != x[i]) most = x[i], top = i;
    if (most != most) break;
  }
  if (most == -__builtin_inf()) {
    for (int64_t i = 0; i < n; i++) p[i] = 0;
    return most;
  }
  for (int64_t i = 0; i < n; i++) p[i] = d_exp(x[i] - most), rest += i == top ? 0 : p[i];
  for (int64_t i = 0; i < n; i++) p[i] /= 1 + rest;
  return most + d_log1p(rest);
}

double SMX_FN(gate_mixture)(const double *z, const double *term, int64_t n, double *pi, double *share) {
  const double lse = log_sum(z, n, pi);
  for (int64_t i = 0; i < n; i++)
    share[i] = z[i] == -__builtin_inf() ? -__builtin_inf() : z[i] - lse + term[i];
  return -log_sum(share, n, share);
}

void SMX_FN(gate_gaussian)(double y, const double *mean, const double *log_s, int64_t n, double *term,
                           double *q, double *inverse) {
  for (int64_t i = 0; i < n; i++) {
    inverse[i] = d_exp(-log_s[i]);
    q[i] = (y - mean[i]) * inverse[i];
    term[i] = -HALF_LOG_TWO_PI - log_s[i] - 0.5 * q[i] * q[i];
  }
}

double SMX_FN(gate_entropy)(const double *count, int64_t n) {
  double all = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) all += count[i];
  for (int64_t i = 0; i < n; i++)
    if (count[i] > 0) sum -= count[i] / all * d_log(count[i] / all, 0);
  return sum;
}
