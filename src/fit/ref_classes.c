/* fit/ref_classes.c - templates, centroids and relations of classes straight from their
 * definitions, for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fit.h"
#include "ref.h"

/* p of every row of the first input, and the first of its largest logits. */
static double *softmax_of(const tensor_ref_call *c, double temperature, int64_t *largest) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]);
  double *p = calloc((size_t)(n * k), sizeof *p);
  for (int64_t i = 0; i < n; i++) {
    const double *z = c->in[0] + i * k;
    double sum = 0, most = -INFINITY;
    for (int64_t j = k - 1; j >= 0; j--)
      if (z[j] >= most) most = z[j], largest[i] = j;
    for (int64_t j = 0; j < k; j++) sum += p[i * k + j] = exp((z[j] - most) / temperature);
    for (int64_t j = 0; j < k; j++) p[i * k + j] /= sum;
  }
  return p;
}
static int64_t *room_of(const tensor_ref_call *c) {
  return calloc((size_t)ref_rows(c->in_shape[0]), sizeof(int64_t));
}

void kl_matching_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]);
  int64_t *largest = room_of(c);
  double *p = softmax_of(c, 1, largest);
  for (int64_t t = 0; t < k; t++)
    for (int64_t j = 0; j < k; j++) {
      double sum = 0, count = 0;
      for (int64_t i = 0; i < n; i++)
        if ((c->in[1] ? (int64_t)c->in[1][i] : largest[i]) == t) sum += p[i * k + j], count++;
      ref_put(c, 0, t * k + j, count > 0 ? sum / count : 0), ref_put(c, 1, t, count);
    }
  free(p), free(largest);
}

void kl_matching_ref(const tensor_ref_call *c) {
  const int64_t k = ref_last(c->in_shape[0]), templates = ref_rows(c->in_shape[1]);
  int64_t *largest = room_of(c);
  double *p = softmax_of(c, 1, largest);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    double least = INFINITY, best = -1;
    for (int64_t t = 0; t < templates; t++) {
      double kl = 0;
      for (int64_t j = 0; j < k; j++) kl += p[i * k + j] * log(p[i * k + j] / c->in[1][t * k + j]);
      if (kl < least) least = kl, best = (double)t;
    }
    ref_put(c, 0, i, -least), ref_put(c, 1, i, best);
  }
  free(p), free(largest);
}

static double distance_of(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sqrt(sum);
}

void centroid_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]);
  int64_t *largest = room_of(c);
  double *p = softmax_of(c, 1, largest), *mean = calloc((size_t)k, sizeof *mean);
  for (int64_t t = 0; t < k; t++) {
    double count = 0, least = INFINITY;
    for (int64_t i = 0; i < n; i++) count += largest[i] == t && c->in[1][i] == (double)t;
    for (int64_t j = 0; j < k; j++) {
      mean[j] = count > 0 ? 0 : j == t;
      for (int64_t i = 0; i < n; i++)
        if (largest[i] == t && c->in[1][i] == (double)t) mean[j] += p[i * k + j] / count;
      ref_put(c, 0, t * k + j, mean[j]);
    }
    for (int64_t i = 0; i < n; i++)
      if (largest[i] == t && c->in[1][i] != (double)t) least = fmin(least, distance_of(p + i * k, mean, k));
    ref_put(c, 1, t, least), ref_put(c, 2, t, count);
  }
  free(p), free(largest), free(mean);
}

void centroid_distance_ref(const tensor_ref_call *c) {
  const int64_t k = ref_last(c->in_shape[0]);
  int64_t *largest = room_of(c);
  double *p = softmax_of(c, 1, largest);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    const double d = distance_of(p + i * k, c->in[1] + largest[i] * k, k);
    ref_put(c, 0, i, -d), ref_put(c, 1, i, d < c->in[2][largest[i]]);
  }
  free(p), free(largest);
}

/* q: temperature, lambda. */
void relative_uncertainty_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]);
  int64_t *largest = room_of(c);
  double *p = softmax_of(c, c->q[0], largest), *d = calloc((size_t)(k * k), sizeof *d), norm = 0,
         count[2] = {0};
  for (int64_t i = 0; i < n; i++) count[largest[i] == (int64_t)c->in[1][i]]++;
  for (int64_t a = 0; a < k; a++)
    for (int64_t b = 0; b < k; b++) {
      for (int64_t i = 0; i < n; i++) {
        const bool right = largest[i] == (int64_t)c->in[1][i];
        d[a * k + b] += (right ? c->q[1] - 1 : c->q[1]) / count[right] * p[i * k + a] * p[i * k + b];
      }
      d[a * k + b] = a == b ? 0 : fmax(d[a * k + b], 0);
      norm += d[a * k + b] * d[a * k + b];
    }
  for (int64_t a = 0; a < k * k; a++) {
    const double other = a / k == a % k ? 0 : 1 / sqrt((double)(k * (k - 1)));
    ref_put(c, 0, a, norm > 0 ? d[a] / sqrt(norm) : other);
  }
  free(p), free(largest), free(d);
}

void relative_uncertainty_ref(const tensor_ref_call *c) {
  const int64_t k = ref_last(c->in_shape[0]);
  int64_t *largest = room_of(c);
  double *p = softmax_of(c, c->q[0], largest);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    double score = 0;
    for (int64_t a = 0; a < k; a++)
      for (int64_t b = 0; b < k; b++) score += p[i * k + a] * c->in[1][a * k + b] * p[i * k + b];
    ref_put(c, 0, i, score);
  }
  free(p), free(largest);
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
void react_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_count(c->in_shape[0]);
  double *x = calloc((size_t)n, sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = c->in[0][i];
  qsort(x, (size_t)n, sizeof *x, by_size);
  const double v = (double)(n - 1) * c->q[0] / 100, low = floor(v);
  ref_put(c, 0, 0, x[(int64_t)low] + (v - low) * (x[(int64_t)ceil(v)] - x[(int64_t)low]));
  free(x);
}
