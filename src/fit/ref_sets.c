/* fit/ref_sets.c - isotonic regression, bins and conformal sets straight from their definitions,
 * for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fit.h"
#include "ref.h"

/* ---- isotonic regression ---- */

static double weight_of(const tensor_ref_call *c, int64_t i) { return c->in[2] ? c->in[2][i] : 1; }

/* The mean over the rows whose score is between two numbers. */
static double mean_between(const tensor_ref_call *c, int64_t n, double low, double high) {
  double sum = 0, weight = 0;
  for (int64_t i = 0; i < n; i++)
    if (c->in[0][i] >= low && c->in[0][i] <= high)
      sum += weight_of(c, i) * c->in[1][i], weight += weight_of(c, i);
  return sum / weight;
}

/* max over a <= x of min over b >= x of the mean from a to b: the curve at x. */
static double curve_at(const tensor_ref_call *c, int64_t n, double x) {
  double best = -INFINITY;
  for (int64_t i = 0; i < n; i++) {
    if (c->in[0][i] > x) continue;
    double low = INFINITY;
    for (int64_t j = 0; j < n; j++)
      if (c->in[0][j] >= x) low = fmin(low, mean_between(c, n, c->in[0][i], c->in[0][j]));
    best = fmax(best, low);
  }
  return best;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void isotonic_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
  int64_t knots = 0;
  for (int64_t i = 0; i < n; i++) x[i] = c->in[0][i];
  qsort(x, (size_t)n, sizeof *x, by_size);
  for (int64_t i = 0; i < n; i++) y[i] = curve_at(c, n, x[i]);
  for (int64_t i = 0; i < n; i++) { /* where the value is another than before, or after */
    const bool begins = i == 0 || fabs(y[i] - y[i - 1]) > 1e-12,
               ends = i == n - 1 || fabs(y[i] - y[i + 1]) > 1e-12;
    if (begins || ends) ref_put(c, 0, knots, x[i]), ref_put(c, 1, knots++, y[i]);
  }
  ref_put(c, 2, 0, (double)knots);
  for (; knots < n; knots++) ref_put(c, 0, knots, x[n - 1]), ref_put(c, 1, knots, y[n - 1]);
  free(x), free(y);
}

void isotonic_ref(const tensor_ref_call *c) {
  const int64_t k = ref_last(c->in_shape[1]);
  const double *x = c->in[1], *y = c->in[2];
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++) {
    const double s = c->in[0][i];
    double value = s <= x[0] ? y[0] : y[k - 1];
    for (int64_t j = 0; j + 1 < k; j++)
      if (s > x[0] && s < x[k - 1] && s >= x[j] && s < x[j + 1])
        value = y[j] + (s - x[j]) / (x[j + 1] - x[j]) * (y[j + 1] - y[j]);
    ref_put(c, 0, i, value);
  }
}

void histogram_binning_ref(const tensor_ref_call *c) {
  const int64_t bins = ref_last(c->in_shape[1]);
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++)
    for (int64_t b = 0; b < bins; b++) {
      const double x = c->in[0][i], low = (double)b / (double)bins, high = (double)(b + 1) / (double)bins;
      const bool in =
          c->q[0] != 0 ? x >= low && (x < high || b == bins - 1) : (x > low || b == 0) && x <= high;
      if (in) ref_put(c, 0, i, c->in[1][b]);
    }
}

/* ---- conformal sets ---- */

/* q: method, penalty, rank. */
static double score_of(const double *z, int64_t n, int64_t class, double u, const double *q) {
  double sum = 0, before = 0, place = 1;
  for (int64_t j = 0; j < n; j++) sum += exp(z[j] - z[class]);
  for (int64_t j = 0; j < n; j++)
    if (z[j] > z[class] || (z[j] == z[class] && j < class)) before += exp(z[j] - z[class]) / sum, place++;
  return q[0] == 0 ? -1 / sum : before + (1 - u) / sum + q[1] * fmax(0, place - q[2]);
}

void conformal_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]);
  double *score = calloc((size_t)n, sizeof *score);
  for (int64_t i = 0; i < n; i++)
    score[i] = score_of(c->in[0] + i * k, k, (int64_t)c->in[1][i], c->in[2] ? c->in[2][i] : 0, c->q + 1);
  qsort(score, (size_t)n, sizeof *score, by_size);
  const double place = ceil(((double)n + 1) * c->q[0] - 1e-9);
  ref_put(c, 0, 0, place > (double)n ? INFINITY : score[place < 1 ? 0 : (int64_t)place - 1]);
  free(score);
}

void conformal_sets_ref(const tensor_ref_call *c) {
  const int64_t k = ref_last(c->in_shape[0]);
  for (int64_t row = 0; row < ref_rows(c->in_shape[0]); row++) {
    const double *z = c->in[0] + row * k;
    int64_t size = 0, first = 0;
    for (int64_t j = 0; j < k; j++) {
      const bool in = score_of(z, k, j, c->in[1] ? c->in[1][row] : 0, c->q + 1) <= c->q[0];
      ref_put(c, 0, row * k + j, in), size += in;
      if (z[j] > z[first]) first = j;
    }
    if (size == 0 && c->q[4] == 0) ref_put(c, 0, row * k + first, size = 1);
    ref_put(c, 1, row, (double)size);
  }
}
