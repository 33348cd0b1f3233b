/* fit/ref_sdm.c - Similarity-Distance-Magnitude straight from its definitions, for tests:
 * neighbours are sorted, thresholds formed anew for every candidate. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fit.h"
#include "ref.h"

typedef struct near {
  double square;
  int64_t number;
} near;

static int by_square(const void *a, const void *b) {
  const near *x = a, *y = b;
  if (x->square != y->square) return x->square < y->square ? -1 : 1;
  return x->number < y->number ? -1 : 1;
}

/* q: classes, own, most. */
void sdm_similarity_ref(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), n = ref_rows(c->in_shape[1]);
  near *all = calloc((size_t)n + 1, sizeof *all);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    for (int64_t b = 0; b < n; b++) {
      all[b] = (near){0, b};
      for (int64_t j = 0; j < d; j++) all[b].square += pow(c->in[0][i * d + j] - c->in[1][b * d + j], 2);
    }
    qsort(all, (size_t)n, sizeof *all, by_square);
    double count = 0;
    const int64_t first = c->q[1] != 0;
    for (int64_t k = first; k < n; k++, count++) {
      const double label = c->in[2][all[k].number];
      if (label != c->in[4][all[k].number] || label != c->in[3][i]) break;
    }
    ref_put(c, 0, i, fmin(count, c->q[2])), ref_put(c, 1, i, first < n ? sqrt(all[first].square) : INFINITY);
  }
  free(all);
}

/* q: classes. */
void sdm_quantile_ref(const tensor_ref_call *c) {
  const int64_t m = ref_last(c->in_shape[1]), classes = (int64_t)c->q[0];
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++) {
    double least = 1;
    for (int64_t k = 0; k < classes; k++) {
      double count = 0, below = 0;
      for (int64_t b = 0; b < m; b++)
        if ((int64_t)c->in[3][b] == k && c->in[2][b] > 0) count++, below += c->in[1][b] < c->in[0][i];
      const double own = count > 0 ? 1 - below / count : 0;
      least = fmin(least, own), ref_put(c, 1, i * classes + k, own);
    }
    ref_put(c, 0, i, least);
  }
}

/* log SDM_k of row i. */
static double log_sdm(const tensor_ref_call *c, int64_t i, int64_t n, int64_t k) {
  const double s = c->in[2][i] * log(2 + c->in[1][i]), *z = c->in[0] + i * n;
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += exp(s * (z[j] - z[k]));
  return -log(sum);
}

void sdm_loss_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++)
    ref_put(c, 0, i, -log_sdm(c, i, n, (int64_t)c->in[3][i]) / log(2 + c->in[1][i]));
}

/* q: least. */
void sdm_region_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    int64_t best = 0, over = 0, best_over = 0;
    for (int64_t k = 0; k < n; k++) best = c->in[0][i * n + k] > c->in[0][i * n + best] ? k : best;
    for (int64_t k = 0; k < n; k++)
      if (exp(log_sdm(c, i, n, k)) >= c->in[3][k]) over++, best_over |= k == best;
    const double p = exp(log_sdm(c, i, n, best)), q = fmin(c->in[1][i], pow(2 + c->in[1][i], p));
    ref_put(c, 0, i, q), ref_put(c, 1, i, q >= 1 && q >= c->q[0] && over == 1 && best_over);
    ref_put(c, 2, i, p);
  }
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The quantile of a class among the rows from a similarity on. */
static double quantile_from(const tensor_ref_call *c, double from, int64_t k, double alpha, double *room) {
  int64_t count = 0;
  for (int64_t i = 0; i < ref_last(c->in_shape[0]); i++)
    if (c->in[0][i] >= from && c->in[0][i] >= 1 && (int64_t)c->in[2][i] == k) room[count++] = c->in[1][i];
  qsort(room, (size_t)count, sizeof *room, by_size);
  const int64_t nth = (int64_t)((1 - alpha) * (double)count);
  return count == 0 ? 0 : room[nth < count ? nth : count - 1];
}

/* q: classes, alpha. */
void sdm_region_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), classes = (int64_t)c->q[0];
  double *room = calloc((size_t)n + 1, sizeof *room), least = INFINITY;
  for (int64_t i = 0; i < n; i++) {
    bool good = c->in[0][i] >= 1;
    for (int64_t k = 0; k < classes && good; k++)
      good = quantile_from(c, c->in[0][i], k, c->q[1], room) >= c->q[1];
    if (good) least = fmin(least, c->in[0][i]);
  }
  ref_put(c, 0, 0, least);
  for (int64_t k = 0; k < classes; k++)
    ref_put(c, 1, k, isinf(least) ? INFINITY : quantile_from(c, least, k, c->q[1], room));
  free(room);
}

/* q: classes, alpha. */
void sdm_bounds_ref(const tensor_ref_call *c) {
  const int64_t m = ref_last(c->in_shape[1]), classes = (int64_t)c->q[0];
  for (int64_t i = 0; i < ref_count(c->in_shape[0]); i++) {
    double error = 0;
    for (int64_t k = 0; k < classes; k++) {
      double count = 0, size = 0;
      for (int64_t b = 0; b < m; b++)
        if ((int64_t)c->in[3][b] == k) count++, size += c->in[1][b] < c->in[0][i];
      size = fmax(0, fmin(size, count - 1)), ref_put(c, 3, i * classes + k, size);
      error = fmax(error, size > 0 ? fmin(1, sqrt(log(2 / (1 - c->q[1])) / (2 * size))) : 1);
    }
    ref_put(c, 0, i, fmax(0, c->in[2][i] - error)), ref_put(c, 1, i, fmin(1, c->in[2][i] + error));
    ref_put(c, 2, i, error);
  }
}
