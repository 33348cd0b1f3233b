/* fit/ref_space.c - distances and spaces of features straight from their definitions, for tests:
 * matrices are inverted by elimination, eigenvectors found by Jacobi's rotations. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fit.h"
#include "ref.h"

static double *zeros(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* ---- mahalanobis ---- */

/* to = L^-1 of s = L L^T, by columns of the identity. */
static void whiten(int64_t d, const double *s, double *to) {
  double *l = zeros(d * d);
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = s[i * d + j];
      for (int64_t k = 0; k < j; k++) sum -= l[i * d + k] * l[j * d + k];
      l[i * d + j] = i == j ? (sum > 1e-14 * s[i * d + i] ? sqrt(sum) : NAN) : sum / l[j * d + j];
    }
  for (int64_t c = 0; c < d; c++)
    for (int64_t i = 0; i < d; i++) {
      double sum = i == c;
      for (int64_t k = 0; k < i; k++) sum -= l[i * d + k] * to[k * d + c];
      to[i * d + c] = i < c ? 0 : sum / l[i * d + i];
    }
  for (int64_t i = 0; i < d * d; i++)
    if (isnan(to[d * d - 1])) to[i] = NAN;
  free(l);
}

/* The mean of the rows of class k, of all if it is -1; how many there are. */
static double mean_of(const tensor_ref_call *c, int64_t k, double *mean) {
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]);
  double count = 0;
  for (int64_t i = 0; i < n; i++) count += k < 0 || (int64_t)c->in[1][i] == k;
  for (int64_t j = 0; j < d; j++) {
    mean[j] = 0;
    for (int64_t i = 0; i < n; i++)
      if (k < 0 || (int64_t)c->in[1][i] == k) mean[j] += c->in[0][i * d + j];
    mean[j] /= count;
  }
  return count;
}

/* q: classes, ridge. */
void mahalanobis_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]), classes = (int64_t)c->q[0];
  double *mean = zeros((classes + 1) * d), *s = zeros(d * d), *w = zeros(d * d), *all = mean + classes * d;
  for (int64_t k = 0; k < classes; k++) ref_put(c, 2, k, mean_of(c, k, mean + k * d));
  mean_of(c, -1, all);
  for (int64_t j = 0; j < (classes + 1) * d; j++)
    ref_put(c, j < classes * d ? 0 : 3, j < classes * d ? j : j - classes * d, mean[j]);
  for (int which = 0; which < 2; which++) {
    double trace = 0;
    for (int64_t a = 0; a < d * d; a++) {
      s[a] = 0;
      for (int64_t i = 0; i < n; i++) {
        const double *from = which ? all : mean + (int64_t)c->in[1][i] * d, *h = c->in[0] + i * d;
        s[a] += (h[a / d] - from[a / d]) * (h[a % d] - from[a % d]) / (double)n;
      }
    }
    for (int64_t j = 0; j < d; j++) trace += s[j * d + j] / (double)d;
    for (int64_t j = 0; j < d; j++) s[j * d + j] += c->q[1] * trace;
    whiten(d, s, w);
    for (int64_t a = 0; a < d * d; a++) ref_put(c, which ? 4 : 1, a, w[a]);
  }
  free(mean), free(s), free(w);
}

static double square_of(const double *w, const double *h, const double *mean, int64_t d) {
  double sum = 0;
  for (int64_t i = 0; i < d; i++) {
    double v = 0;
    for (int64_t j = 0; j < d; j++) v += w[i * d + j] * (h[j] - (mean ? mean[j] : 0));
    sum += v * v;
  }
  return sum;
}
void mahalanobis_ref(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), k = ref_rows(c->in_shape[1]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    const double *h = c->in[0] + i * d;
    double least = INFINITY, best = -1;
    for (int64_t t = 0; t < k; t++) {
      const double square = square_of(c->in[2], h, c->in[1] + t * d, d);
      if (square < least) least = square, best = (double)t;
    }
    ref_put(c, 0, i, (c->in[4] ? square_of(c->in[4], h, c->in[3], d) : 0) - least), ref_put(c, 1, i, best);
  }
}

/* ---- ViM ---- */

/* Eigenvectors in the columns of v, values on the diagonal of a. */
static void jacobi(int64_t n, double *a, double *v) {
  for (int64_t i = 0; i < n * n; i++) v[i] = i / n == i % n;
  for (int turn = 0; turn < 60; turn++)
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) {
        if (a[p * n + q] == 0) continue;
        const double way = atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]) / 2, cos_ = cos(way),
                     sin_ = sin(way);
        for (int which = 0; which < 3; which++)
          for (int64_t i = 0; i < n; i++) { /* columns of a, rows of a, columns of v */
            double *m = which == 2 ? v : a, *x = which == 1 ? m + p * n + i : m + i * n + p,
                   *y = which == 1 ? m + q * n + i : m + i * n + q;
            const double x0 = *x, y0 = *y;
            *x = cos_ * x0 - sin_ * y0, *y = sin_ * x0 + cos_ * y0;
          }
      }
}

/* sum over the chosen eigenvectors of power(value) q q^T; first: how many of the largest are left
 * out, or -1: those of nearly 0 are. */
static void from_eigen(int64_t n, double *a, int64_t first, double *to) {
  double *v = zeros(n * n), most = 0;
  jacobi(n, a, v);
  for (int64_t i = 0; i < n; i++) most = fmax(most, a[i * n + i]);
  for (int64_t i = 0; i < n * n; i++) to[i] = 0;
  for (int64_t e = 0; e < n; e++) {
    const double value = a[e * n + e];
    int64_t place = 0;
    for (int64_t o = 0; o < n; o++) place += a[o * n + o] > value;
    const bool none = value <= 1e-14 * most;
    if (first < 0 ? none : place < first && !none) continue;
    for (int64_t i = 0; i < n * n; i++)
      to[i] += v[i / n * n + e] * v[i % n * n + e] / (first < 0 ? value : 1);
  }
  free(v);
}

/* W^T W u = -W^T b with the least |u|. */
static void origin_of(const tensor_ref_call *c, int64_t k, int64_t d, double *u) {
  double *g = zeros(d * d), *inverse = zeros(d * d);
  for (int64_t a = 0; a < d * d; a++)
    for (int64_t t = 0; t < k; t++) g[a] += c->in[1][t * d + a / d] * c->in[1][t * d + a % d];
  from_eigen(d, g, -1, inverse);
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j < d; j++)
      for (int64_t t = 0; t < k && c->in[2]; t++)
        u[i] -= inverse[i * d + j] * c->in[1][t * d + j] * c->in[2][t];
  free(g), free(inverse);
}

void vim_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]), k = ref_rows(c->in_shape[1]);
  double *u = zeros(d), *a = zeros(d * d), *p = zeros(d * d), logits = 0, norms = 0, lengths = 0;
  origin_of(c, k, d, u);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < d * d; j++)
      a[j] += (c->in[0][i * d + j / d] - u[j / d]) * (c->in[0][i * d + j % d] - u[j % d]) / (double)n;
  from_eigen(d, a, c->q[0] == 0 ? d / 2 : (int64_t)c->q[0], p);
  for (int64_t i = 0; i < n; i++) {
    const double *h = c->in[0] + i * d;
    double most = -INFINITY, length = 0;
    for (int64_t t = 0; t < k; t++) {
      double z = c->in[2] ? c->in[2][t] : 0;
      for (int64_t j = 0; j < d; j++) z += c->in[1][t * d + j] * h[j];
      most = fmax(most, z);
    }
    for (int64_t j = 0; j < d; j++) length += (h[j] - u[j]) * (h[j] - u[j]);
    logits += most, norms += sqrt(square_of(p, h, u, d)), lengths += sqrt(length);
  }
  for (int64_t j = 0; j < d; j++) ref_put(c, 0, j, u[j]);
  for (int64_t j = 0; j < d * d; j++) ref_put(c, 1, j, p[j]);
  ref_put(c, 2, 0, norms > 1e-12 * lengths ? logits / norms : NAN);
  free(u), free(a), free(p);
}

void vim_ref(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), k = c->in[3] ? ref_last(c->in_shape[3]) : 0;
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    const double norm = sqrt(square_of(c->in[2], c->in[0] + i * d, c->in[1], d));
    double sum = 0;
    for (int64_t t = 0; t < k; t++) sum += exp(c->in[3][i * k + t]);
    ref_put(c, 0, i, (k > 0 ? log(sum) : 0) - c->q[0] * norm), ref_put(c, 1, i, norm);
  }
}

/* ---- neighbours ---- */

static double distance_of(const double *a, const double *b, int64_t d, bool normalise) {
  double la = 0, lb = 0, sum = 0;
  for (int64_t j = 0; j < d; j++) la += a[j] * a[j], lb += b[j] * b[j];
  for (int64_t j = 0; j < d; j++) {
    const double x = a[j] / (normalise ? sqrt(la) : 1) - b[j] / (normalise ? sqrt(lb) : 1);
    sum += x * x;
  }
  return sum;
}
static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
/* q: k, metric, normalise. */
void knn_score_ref(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), n = ref_rows(c->in_shape[1]);
  double *square = zeros(n);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    for (int64_t b = 0; b < n; b++)
      square[b] = distance_of(c->in[0] + i * d, c->in[1] + b * d, d, c->q[2] != 0);
    qsort(square, (size_t)n, sizeof *square, by_size);
    const double kth = square[(int64_t)fmin(c->q[0], (double)n) - 1];
    ref_put(c, 0, i, c->q[1] != 0 ? -kth : -sqrt(kth));
  }
  free(square);
}
void trust_score_ref(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), n = ref_rows(c->in_shape[1]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    double same = INFINITY, other = INFINITY;
    for (int64_t b = 0; b < n; b++) {
      const double square = distance_of(c->in[0] + i * d, c->in[1] + b * d, d, false);
      if (c->in[2][b] == c->in[3][i]) same = fmin(same, square);
      else other = fmin(other, square);
    }
    ref_put(c, 0, i, sqrt(other) / (sqrt(same) + 1e-12));
  }
}

/* ---- head_bottleneck_measures ---- */

/* The singular values, the largest first; of d there may be more than rows. */
static void singular_values(const tensor_ref_call *c, int64_t n, int64_t d, double *values) {
  double *a = zeros(d * d), *v = zeros(d * d);
  for (int64_t p = 0; p < d * d; p++)
    for (int64_t i = 0; i < n; i++) a[p] += c->in[0][i * d + p / d] * c->in[0][i * d + p % d];
  jacobi(d, a, v);
  for (int64_t e = 0; e < d; e++) {
    int64_t place = 0;
    for (int64_t o = 0; o < d; o++)
      place += a[o * d + o] > a[e * d + e] || (a[o * d + o] == a[e * d + e] && o < e);
    values[place] = sqrt(fmax(a[e * d + e], 0));
  }
  free(a), free(v);
}

/* Cosines pair by pair. q: shares */
void head_bottleneck_measures_ref(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], r = n < d ? n : d;
  double *const s = zeros(d), sum = 0, squares = 0, entropy = 0, cosines = 0;
  const double *const x = c->in[0];
  singular_values(c, n, d, s);
  for (int64_t e = 0; e < r; e++) sum += c->q[0] == 0 ? s[e] : s[e] * s[e], squares += s[e] * s[e];
  for (int64_t e = 0; e < r; e++) {
    const double u = (c->q[0] == 0 ? s[e] : s[e] * s[e]) / sum;
    entropy -= u > 0 ? u * log(u) : 0;
    c->out[4][e] = s[e];
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < n; k++) {
      double ik = 0, ii = 0, kk = 0;
      for (int64_t j = 0; j < d; j++)
        ik += x[i * d + j] * x[k * d + j], ii += x[i * d + j] * x[i * d + j],
            kk += x[k * d + j] * x[k * d + j];
      cosines += i == k ? 0 : ik / sqrt(ii * kk);
    }
  c->out[0][0] = log((double)r) - entropy, c->out[1][0] = exp(entropy);
  c->out[2][0] = squares / (s[0] * s[0]), c->out[3][0] = n > 1 ? cosines / (double)(n * (n - 1)) : NAN;
  free(s);
}

/* ---- head_rank_loss ---- */

/* The logits of h and w, both projected on the eigenvectors whose places are below the rank. */
static double rank_logit(const double *h, const double *w, const double *v, const int *place, int64_t d,
                         int64_t rank) {
  double z = 0;
  for (int64_t e = 0; e < d; e++) {
    double of_h = 0, of_w = 0;
    for (int64_t j = 0; j < d; j++) of_h += h[j] * v[j * d + e], of_w += w[j] * v[j * d + e];
    z += place[e] < rank ? of_h * of_w : 0;
  }
  return z;
}

void head_rank_loss_ref(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], classes = c->in_shape[1][0];
  double *const a = zeros(d * d), *const v = zeros(d * d), all = 0;
  int *const place = calloc((size_t)d + 1, sizeof *place);
  for (int64_t p = 0; p < d * d; p++)
    for (int64_t i = 0; i < classes; i++) a[p] += c->in[1][i * d + p / d] * c->in[1][i * d + p % d];
  jacobi(d, a, v);
  for (int64_t e = 0; e < d; e++) {
    all += a[e * d + e];
    for (int64_t o = 0; o < d; o++)
      place[e] += a[o * d + o] > a[e * d + e] || (a[o * d + o] == a[e * d + e] && o < e);
  }
  for (int64_t k = 0; k < c->in_shape[3][0]; k++) {
    double loss = 0, rows = 0, kept = 0;
    const int64_t rank = (int64_t)c->in[3][k];
    for (int64_t e = 0; e < d; e++) kept += place[e] < rank ? a[e * d + e] : 0;
    for (int64_t i = 0; i < n; i++) {
      double sum = 0, own = 0;
      for (int64_t j = 0; j < classes && c->in[2][i] >= 0; j++) {
        double z = rank_logit(c->in[0] + i * d, c->in[1] + j * d, v, place, d, rank);
        z += c->in[4] ? c->in[4][j] : 0, sum += exp(z);
        if ((double)j == c->in[2][i]) own = z;
      }
      if (c->in[2][i] >= 0) loss += log(sum) - own, rows++;
    }
    ref_put(c, 0, k, loss / rows), ref_put(c, 1, k, kept / all);
  }
  free(a), free(v), free(place);
}
