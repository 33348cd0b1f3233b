/* fit/ref.c - the operators of src/fit straight from their formulas, for tests: fits by Newton's
 * method with all second derivatives. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ref.h"
#include "fit.h"
#include "ref.h"

/* ---- temperature_fit ---- */

/* The mean loss of softmax(b z), and its derivative by b. */
static double loss_at(const tensor_ref_call *c, double b, double *slope) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]);
  double loss = 0;
  *slope = 0;
  for (int64_t i = 0; i < n; i++) {
    const double *z = c->in[0] + i * k, zt = z[(int64_t)c->in[1][i]];
    double sum = 0, mean = 0, most = -INFINITY;
    for (int64_t j = 0; j < k; j++) most = fmax(most, z[j]);
    for (int64_t j = 0; j < k; j++)
      sum += exp(b * (z[j] - most)), mean += (z[j] - zt) * exp(b * (z[j] - most));
    loss += (log(sum) + b * (most - zt)) / (double)n, *slope += mean / sum / (double)n;
  }
  return loss;
}

static void temperature_fit_ref(const tensor_ref_call *c) {
  double low = 0x1p-10, high = 0x1p10, slope;
  while (high - low > 1e-15 * high) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (void)loss_at(c, middle, &slope);
    if (slope > 0) high = middle;
    else low = middle;
  }
  (void)loss_at(c, 0x1p-10, &slope);
  const double b = slope > 0 ? 0x1p-10 : high > 0x1p10 * (1 - 1e-14) ? 0x1p10 : high;
  ref_put(c, 0, 0, 1 / b), ref_put(c, 1, 0, loss_at(c, b, &slope)), ref_put(c, 2, 0, loss_at(c, 1, &slope));
}

/* ---- maps that are linear in their parameters ---- */

/* Class j of row i has logit base + sum_k x_k part(i, j, k); its loss is sum_j t_j (lse - z_j). */
typedef struct linear_ref {
  const tensor_ref_call *c;
  int64_t rows, classes, n; /* n: parameters */
  double (*part)(const struct linear_ref *l, int64_t i, int64_t j, int64_t k);
  double (*target)(const struct linear_ref *l, int64_t i, int64_t j);
  double *penalty, *from; /* of each parameter: penalty (x - from)^2 */
  const bool *use;
} linear_ref;

static double step_of(const linear_ref *l, const double *x, double *g, double *h) {
  double loss = 0, *p = calloc((size_t)l->classes, sizeof *p),
         *f = calloc((size_t)(l->classes * l->n), sizeof *f);
  memset(g, 0, (size_t)l->n * sizeof *g), memset(h, 0, (size_t)(l->n * l->n) * sizeof *h);
  for (int64_t i = 0; i < l->rows; i++) {
    double most = -INFINITY, sum = 0, mass = 0;
    for (int64_t j = 0; j < l->classes; j++) {
      p[j] = 0;
      for (int64_t k = 0; k < l->n; k++)
        f[j * l->n + k] = l->part(l, i, j, k), p[j] += x[k] * f[j * l->n + k];
      most = fmax(most, p[j]), mass += l->target(l, i, j);
    }
    for (int64_t j = 0; j < l->classes; j++) sum += exp(p[j] - most);
    for (int64_t j = 0; j < l->classes; j++) {
      const double t = l->target(l, i, j);
      loss += t * (most + log(sum) - p[j]) / (double)l->rows, p[j] = exp(p[j] - most) / sum;
      for (int64_t k = 0; k < l->n; k++) g[k] += (mass * p[j] - t) * f[j * l->n + k] / (double)l->rows;
    }
    for (int64_t k = 0; k < l->n; k++)
      for (int64_t m = 0; m < l->n; m++) {
        double both = 0, a = 0, b = 0;
        for (int64_t j = 0; j < l->classes; j++) {
          const double fk = f[j * l->n + k], fm = f[j * l->n + m];
          both += p[j] * fk * fm, a += p[j] * fk, b += p[j] * fm;
        }
        h[k * l->n + m] += mass * (both - a * b) / (double)l->rows;
      }
  }
  for (int64_t k = 0; k < l->n; k++) {
    const double d = x[k] - l->from[k];
    loss += l->penalty[k] * d * d, g[k] += 2 * l->penalty[k] * d, h[k * l->n + k] += 2 * l->penalty[k];
  }
  free(p), free(f);
  return loss;
}

void ref_solve(int64_t n, double *h, double *d) {
  for (int64_t k = 0; k < n; k++) {
    int64_t best = k;
    for (int64_t i = k; i < n; i++) best = fabs(h[i * n + k]) > fabs(h[best * n + k]) ? i : best;
    for (int64_t m = 0; m < n; m++) {
      const double swap = h[k * n + m];
      h[k * n + m] = h[best * n + m], h[best * n + m] = swap;
    }
    const double swap = d[k];
    d[k] = d[best], d[best] = swap;
    for (int64_t i = 0; i < n; i++) {
      const double by = i == k ? 0 : h[i * n + k] / h[k * n + k];
      for (int64_t m = 0; m < n && by != 0; m++) h[i * n + m] -= by * h[k * n + m];
      d[i] -= by * d[k];
    }
  }
  for (int64_t k = 0; k < n; k++) d[k] /= h[k * n + k];
}

/* h d = -g; parameters that are not in use stay. */
static void solve(const linear_ref *l, double *h, double *d) {
  const int64_t n = l->n;
  for (int64_t k = 0; k < n; k++) {
    if (l->use && !l->use[k]) {
      for (int64_t m = 0; m < n; m++) h[k * n + m] = h[m * n + k] = 0;
      h[k * n + k] = 1, d[k] = 0;
    }
    d[k] = -d[k], h[k * n + k] += 1e-13;
  }
  ref_solve(n, h, d);
}

/* The least loss, with its penalties, from x on. */
static double least(const linear_ref *l, double *x) {
  double *g = calloc((size_t)l->n, sizeof *g), *h = calloc((size_t)(l->n * l->n), sizeof *h);
  double *y = calloc((size_t)l->n, sizeof *y), *other = calloc((size_t)l->n, sizeof *other);
  double *unused = calloc((size_t)(l->n * l->n), sizeof *unused), loss = step_of(l, x, g, h);
  for (int step = 0; step < 200; step++) {
    double share = 1, next = 0;
    solve(l, h, g);
    for (int half = 0; half < 40; half++, share /= 2) {
      for (int64_t k = 0; k < l->n; k++) y[k] = x[k] + share * g[k];
      next = step_of(l, y, other, unused);
      if (next <= loss * (1 + 1e-15)) break;
    }
    memcpy(x, y, (size_t)l->n * sizeof *x);
    loss = step_of(l, x, g, h);
  }
  free(g), free(h), free(y), free(other), free(unused);
  return loss;
}

/* ---- vector and matrix ---- */

static double class_target(const linear_ref *l, int64_t i, int64_t j) { return l->c->in[1][i] == (double)j; }
static double vector_part(const linear_ref *l, int64_t i, int64_t j, int64_t k) {
  if (k >= l->classes) return k - l->classes == j;
  return k == j ? l->c->in[0][i * l->classes + j] : 0;
}
static double matrix_part(const linear_ref *l, int64_t i, int64_t j, int64_t k) {
  if (k >= l->classes * l->classes) return k - l->classes * l->classes == j;
  return k / l->classes == j ? l->c->in[0][i * l->classes + k % l->classes] : 0;
}

static void map_fit_ref(const tensor_ref_call *c, bool matrix) {
  const int64_t classes = ref_last(c->in_shape[0]), scales = matrix ? classes * classes : classes;
  const double dc = (double)classes, off = classes > 1 ? c->q[0] / (dc * (dc - 1)) : 0;
  linear_ref l = {.c = c,
                  .rows = ref_rows(c->in_shape[0]),
                  .classes = classes,
                  .n = scales + classes,
                  .part = matrix ? matrix_part : vector_part,
                  .target = class_target};
  double *x = calloc((size_t)l.n * 3, sizeof *x), slope;
  l.penalty = x + l.n, l.from = l.penalty + l.n;
  for (int64_t k = 0; k < l.n; k++) {
    const bool on = matrix ? k % (classes + 1) == 0 : true;
    l.penalty[k] = k >= scales ? c->q[1] / dc : !matrix ? c->q[0] / dc : on ? c->q[2] / dc : off;
    l.from[k] = x[k] = k < scales && on;
  }
  double loss = least(&l, x);
  for (int64_t k = 0; k < l.n; k++) loss -= l.penalty[k] * (x[k] - l.from[k]) * (x[k] - l.from[k]);
  for (int64_t k = 0; k < l.n; k++) ref_put(c, k >= scales, k >= scales ? k - scales : k, x[k]);
  ref_put(c, 2, 0, loss), ref_put(c, 3, 0, loss_at(c, 1, &slope));
  free(x);
}
static void vector_scaling_fit_ref(const tensor_ref_call *c) { map_fit_ref(c, false); }
static void matrix_scaling_fit_ref(const tensor_ref_call *c) { map_fit_ref(c, true); }

/* out = in W^T + bias; W is a diagonal for the scale. */
static void map_ref(const tensor_ref_call *c, bool matrix) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]) * n; i++) {
    const double *z = c->in[0] + i / n * n;
    double sum = c->in[2] ? c->in[2][i % n] : 0;
    if (!matrix) sum += c->in[1][i % n] * z[i % n];
    for (int64_t j = 0; matrix && j < n; j++) sum += c->in[1][i % n * n + j] * z[j];
    ref_put(c, 0, i, sum);
  }
}
static void vector_scaling_ref(const tensor_ref_call *c) { map_ref(c, false); }
static void matrix_scaling_ref(const tensor_ref_call *c) { map_ref(c, true); }

/* ---- one number ---- */

static double log_of(double p) { return log(fmin(fmax(p, 0x1p-52), 1 - 0x1p-52)); }
static double other_log(double p) { return log(1 - fmin(fmax(p, 0x1p-52), 1 - 0x1p-52)); }
static double platt_part(const linear_ref *l, int64_t i, int64_t j, int64_t k) {
  return j == 0 ? 0 : k == 0 ? -l->c->in[0][i] : -1;
}
static double beta_part(const linear_ref *l, int64_t i, int64_t j, int64_t k) {
  const double p = l->c->in[0][i];
  return j == 0 ? 0 : k == 0 ? log_of(p) : k == 1 ? -other_log(p) : 1;
}
static double smooth_target(const linear_ref *l, int64_t i, int64_t j) {
  double positive = 0;
  for (int64_t r = 0; r < l->rows; r++) positive += l->c->in[1][r] != 0;
  const double t =
      l->c->in[1][i] != 0 ? (positive + 1) / (positive + 2) : 1 / ((double)l->rows - positive + 2);
  return j ? t : 1 - t;
}

static void platt_fit_ref(const tensor_ref_call *c) {
  double x[2] = {0}, none[2] = {0};
  bool use[] = {false, true}; /* of equal targets the slope is 0 */
  for (int64_t i = 1; i < ref_last(c->in_shape[0]); i++) use[0] |= c->in[1][i] != c->in[1][0];
  const linear_ref l = {c, ref_last(c->in_shape[0]), 2, 2, platt_part, smooth_target, none, none, use};
  const double loss = least(&l, x);
  ref_put(c, 0, 0, x[0]), ref_put(c, 1, 0, x[1]), ref_put(c, 2, 0, loss);
}

/* The least of the four choices of exponents that are 0, among those without a negative one. */
static void beta_fit_ref(const tensor_ref_call *c) {
  double none[3] = {0}, best = INFINITY;
  for (int which = 0; which < 4; which++) {
    const bool use[] = {which & 1, which & 2, true};
    const linear_ref l = {c, ref_last(c->in_shape[0]), 2, 3, beta_part, smooth_target, none, none, use};
    double x[3] = {0};
    const double loss = least(&l, x);
    if (x[0] < 0 || x[1] < 0 || !(loss < best - 1e-13)) continue;
    best = loss, ref_put(c, 3, 0, loss);
    for (int k = 0; k < 3; k++) ref_put(c, k, 0, fabs(x[k]) < 1e-14 ? 0 : x[k]);
  }
}

static void platt_scaling_ref(const tensor_ref_call *c) {
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++)
    ref_put(c, 0, i, 1 / (1 + exp(c->q[0] * c->in[0][i] + c->q[1])));
}
static void beta_scaling_ref(const tensor_ref_call *c) {
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++) {
    const double u = c->q[0] * log_of(c->in[0][i]) - c->q[1] * other_log(c->in[0][i]) + c->q[2];
    ref_put(c, 0, i, 1 / (1 + exp(-u)));
  }
}

tensor_ref_fn *const fit_refs[FIT_COUNT] = {
    [FIT_temperature_fit] = temperature_fit_ref,
    [FIT_vector_scaling_fit] = vector_scaling_fit_ref,
    [FIT_matrix_scaling_fit] = matrix_scaling_fit_ref,
    [FIT_vector_scaling] = vector_scaling_ref,
    [FIT_matrix_scaling] = matrix_scaling_ref,
    [FIT_platt_fit] = platt_fit_ref,
    [FIT_beta_fit] = beta_fit_ref,
    [FIT_platt_scaling] = platt_scaling_ref,
    [FIT_beta_scaling] = beta_scaling_ref,
    [FIT_isotonic_fit] = isotonic_fit_ref,
    [FIT_isotonic] = isotonic_ref,
    [FIT_histogram_binning] = histogram_binning_ref,
    [FIT_conformal_fit] = conformal_fit_ref,
    [FIT_conformal_sets] = conformal_sets_ref,
    [FIT_react_fit] = react_fit_ref,
    [FIT_kl_matching_fit] = kl_matching_fit_ref,
    [FIT_kl_matching] = kl_matching_ref,
    [FIT_centroid_fit] = centroid_fit_ref,
    [FIT_centroid_distance] = centroid_distance_ref,
    [FIT_relative_uncertainty_fit] = relative_uncertainty_fit_ref,
    [FIT_relative_uncertainty] = relative_uncertainty_ref,
    [FIT_mahalanobis_fit] = mahalanobis_fit_ref,
    [FIT_mahalanobis] = mahalanobis_ref,
    [FIT_vim_fit] = vim_fit_ref,
    [FIT_vim] = vim_ref,
    [FIT_knn_score] = knn_score_ref,
    [FIT_trust_score] = trust_score_ref,
    [FIT_probe_fit] = probe_fit_ref,
    [FIT_cascade_fit] = cascade_fit_ref,
    [FIT_cascade] = cascade_ref,
    [FIT_crowd_temperature] = crowd_temperature_ref,
    [FIT_label_recovery] = label_recovery_ref,
    [FIT_sdm_similarity] = sdm_similarity_ref,
    [FIT_sdm_quantile] = sdm_quantile_ref,
    [FIT_sdm_loss] = sdm_loss_ref,
    [FIT_sdm_region_fit] = sdm_region_fit_ref,
    [FIT_sdm_region] = sdm_region_ref,
    [FIT_sdm_bounds] = sdm_bounds_ref,
    [FIT_head_bottleneck_measures] = head_bottleneck_measures_ref,
    [FIT_head_rank_loss] = head_rank_loss_ref,
};
