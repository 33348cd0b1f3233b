/* score/ops_ensemble.c - scores of several predictions of one row, in double (score.h). */
#include "math.h"
#include "score.h"

/* e^(z - max) / sum; false: a NaN, +inf, or no class. */
static bool softmax_of(const double *z, int64_t n, double by, double *p) {
  double most = -__builtin_inf(), sum = 0;
  for (int64_t i = 0; i < n; i++) {
    if (z[i] != z[i]) return false;
    if (z[i] > most) most = z[i];
  }
  if (most - most != 0) return false;
  for (int64_t i = 0; i < n; i++) sum += p[i] = d_exp((z[i] - most) * by);
  for (int64_t i = 0; i < n; i++) p[i] /= sum;
  return true;
}

static double log_of(double p) { return p > 0x1p-1022 ? d_log(p, 0) : -__builtin_inf(); }
static double entropy_of(const double *p, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum -= p[i] > 0x1p-1022 ? p[i] * d_log(p[i], 0) : 0;
  return sum > 0 ? sum : 0;
}

/* (1 + d) log(1 + d) - d >= 0 of d >= -1, without cancelling near 0. */
static double phi(double d) {
  if (d <= -1) return 1;
  if (d > -1e-3 && d < 1e-3) return d * d * (0.5 - d * (1.0 / 6 - d * (1.0 / 12 - d / 20)));
  return (1 + d) * (d < 0 ? -d_log1p(-d / (1 + d)) : d_log1p(d)) - d;
}

/* sum_m,c mean_c phi((p_mc - mean_c) / mean_c) / m */
static double information_of(const score_ensemble *e) {
  double sum = 0;
  for (int64_t k = 0; k < e->members; k++)
    for (int64_t i = 0; i < e->classes; i++) {
      const double mean = e->mean[i];
      if (mean > 0) sum += mean * phi((e->p[k * e->classes + i] - mean) / mean);
    }
  return sum / (double)e->members;
}

/* The mean of p_a p_b over a != b: (|sum p|^2 - sum |p|^2) / (m (m - 1)) as a sum of products. */
static double similarity_of(const score_ensemble *e) {
  double sum = 0;
  for (int64_t i = 0; i < e->classes; i++) {
    double before = 0;
    for (int64_t k = 0; k < e->members; k++) {
      const double p = e->p[k * e->classes + i];
      sum += 2 * before * p, before += p;
    }
  }
  return sum / ((double)e->members * (double)(e->members - 1));
}

static double variance_of(const score_ensemble *e) {
  double sum = 0;
  for (int64_t i = 0; i < e->members * e->classes; i++) {
    const double d = e->p[i] - e->mean[i % e->classes];
    sum += d * d;
  }
  return sum / (double)e->members;
}

/* The mean of KL(p_a || p_b) over a != b. */
static double pairwise_of(const score_ensemble *e) {
  double sum = 0;
  for (int64_t a = 0; a < e->members; a++)
    for (int64_t b = 0; b < e->members; b++)
      for (int64_t i = 0; a != b && i < e->classes; i++) {
        const double p = e->p[a * e->classes + i], q = e->p[b * e->classes + i];
        if (p > 0x1p-1022) sum += p * (log_of(p) - log_of(q));
      }
  return sum / ((double)e->members * (double)(e->members - 1));
}

/* Who is first in a row. */
static int64_t vote_of(const score_ensemble *e, int64_t k) {
  const double *z = e->z + k * e->classes;
  int64_t best = 0;
  for (int64_t i = 1; i < e->classes; i++)
    if (z[i] > z[best]) best = i;
  return best;
}

/* The share of the votes that the class with most has, and the entropy of the shares. */
static void count_votes(const score_ensemble *e, double *most, double *entropy) {
  *most = *entropy = 0;
  for (int64_t k = 0; k < e->members; k++) {
    double same = 0;
    for (int64_t j = 0; j < e->members; j++) same += vote_of(e, j) == vote_of(e, k);
    const double share = same / (double)e->members;
    if (share > *most) *most = share;
    *entropy -= d_log(share, 0) / (double)e->members;
  }
  if (*entropy < 0) *entropy = 0;
}

bool SMX_FN(score_ensemble_values)(const score_ensemble *e, double *value) {
  const int64_t n = e->classes;
  for (int64_t i = 0; i < n; i++) e->mean[i] = 0;
  for (int64_t k = 0; k < e->members; k++)
    if (!softmax_of(e->z + k * n, n, 1 / e->temperature, e->p + k * n)) return false;
  for (int64_t k = 0; k < e->members * n; k++) e->mean[k % n] += e->p[k] / (double)e->members;
  double votes, expected = 0;
  for (int64_t k = 0; k < e->members; k++) expected += entropy_of(e->p + k * n, n) / (double)e->members;
  value[SCORE_INFORMATION] = information_of(e), value[SCORE_OF_MEAN] = entropy_of(e->mean, n);
  value[SCORE_EXPECTED] = expected, value[SCORE_SIMILARITY] = similarity_of(e);
  value[SCORE_SPREAD] = variance_of(e), value[SCORE_PAIRWISE] = pairwise_of(e);
  count_votes(e, &votes, value + SCORE_VOTES);
  value[SCORE_VARIATION] = 1 - votes;
  return true;
}

/* dz_mj = p_mj (g_mj - sum_k g_mk p_mk) / T, g: the derivative by p_mj, but for what is the same
 * for all j. */
void SMX_FN(score_ensemble_gradient)(const score_ensemble *e, const double *up, double *dz) {
  const int64_t n = e->classes;
  const double m = (double)e->members;
  for (int64_t k = 0; k < e->members; k++) {
    const double *p = e->p + k * n;
    double *d = dz + k * n, dot = 0;
    for (int64_t i = 0; i < n; i++) {
      const double l = log_of(p[i]), mean = log_of(e->mean[i]), others = m * e->mean[i] - p[i];
      d[i] =
          up[SCORE_INFORMATION] * (l - mean) / m - up[SCORE_OF_MEAN] * mean / m - up[SCORE_EXPECTED] * l / m;
      if (up[SCORE_SIMILARITY] != 0) d[i] += up[SCORE_SIMILARITY] * 2 * others / (m * (m - 1));
      d[i] = p[i] > 0x1p-1022 ? d[i] : 0;
      dot += d[i] * p[i];
    }
    for (int64_t i = 0; i < n; i++) d[i] = p[i] > 0x1p-1022 ? p[i] * (d[i] - dot) / e->temperature : 0;
  }
}
