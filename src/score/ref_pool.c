/* score/ref_pool.c - rows that are worth a label, and the loss of a confidence, straight from their
 * definitions, for tests: gradients are formed as a whole. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/ref_draws.h"
#include "ref.h"

/* q: weight, form, gamma. */
void tcp_loss_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[1]);
  for (int64_t i = 0; i < ref_rows(c->in_shape[1]); i++) {
    const double *z = c->in[1] + i * n, s = 1 / (1 + exp(-c->in[0][i]));
    const int64_t target = (int64_t)c->in[2][i];
    double sum = 0;
    bool right = true;
    for (int64_t j = 0; j < n; j++) sum += exp(z[j] - z[target]), right &= z[j] < z[target] || j == target;
    const double t = 1 / sum, loss = c->q[1] == 0
                                         ? (s - t) * (s - t)
                                         : pow(fabs(s - t), c->q[2]) * -(t * log(s) + (1 - t) * log(1 - s));
    ref_put(c, 0, i, (right ? 1 : c->q[0]) * loss), ref_put(c, 1, i, t);
  }
}

/* q: budget, seed. */
void badge_select_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]), k = ref_last(c->in_shape[1]);
  double *g = calloc((size_t)(n * (d * k + 1)) + 1, sizeof *g), *far = g + n * d * k;
  for (int64_t i = 0; i < n; i++) {
    const double *z = c->in[1] + i * k;
    int64_t best = 0;
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += exp(z[j]), best = z[j] > z[best] ? j : best;
    for (int64_t e = 0; e < d * k; e++)
      g[i * d * k + e] = (exp(z[e / d]) / sum - (e / d == best)) * c->in[0][i * d + e % d];
    ref_put(c, 0, i, 0), ref_put(c, 1, i, -1), far[i] = INFINITY;
  }
  for (int64_t step = 0; step < n && step < (int64_t)c->q[0]; step++) {
    int64_t next = -1;
    double most = -1, total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
      double length = 0;
      for (int64_t e = 0; e < d * k; e++) length += g[i * d * k + e] * g[i * d * k + e];
      if (step == 0 && length > most) most = length, next = i;
      if (step > 0) total += far[i];
    }
    const double bar = total * uniform((uint64_t)c->q[1], 0, 18, (uint64_t)(2 * step));
    for (int64_t i = 0; i < n && step > 0 && next < 0; i++) {
      sum += far[i];
      if (sum > bar) next = i;
    }
    for (int64_t i = 0; i < n && next < 0; i++) /* copies of what is chosen */
      if (c->out[0][i] == 0) next = i;
    c->out[0][next] = 1, c->out[1][step] = (double)next;
    for (int64_t i = 0; i < n; i++) {
      double square = 0;
      for (int64_t e = 0; e < d * k; e++) square += pow(g[i * d * k + e] - g[next * d * k + e], 2);
      far[i] = fmin(far[i], square);
    }
  }
  free(g);
}

static double cosine(const double *a, const double *b, int64_t d) {
  double ab = 0, aa = 0, bb = 0;
  for (int64_t j = 0; j < d; j++) ab += a[j] * b[j], aa += a[j] * a[j], bb += b[j] * b[j];
  return ab / sqrt(aa) / sqrt(bb);
}
/* How many numbers are before number i, the largest first. */
static int64_t place_of(const double *x, int64_t n, int64_t i) {
  int64_t place = 0;
  for (int64_t j = 0; j < n; j++) place += x[j] > x[i] || (x[j] == x[i] && j < i);
  return place;
}
/* q: k, size. */
void anchor_subpool_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]), a = ref_rows(c->in_shape[1]);
  double *near = calloc((size_t)(2 * n) + 1, sizeof *near), *mean = near + n;
  for (int64_t i = 0; i < n; i++) ref_put(c, 1, i, -1);
  for (int64_t i = 0; i < n; i++) {
    double count = 0;
    for (int64_t t = 0; t < a; t++) {
      for (int64_t j = 0; j < n; j++) near[j] = cosine(c->in[0] + j * d, c->in[1] + t * d, d);
      if (place_of(near, n, i) < (int64_t)c->q[0]) mean[i] += near[i], count++;
    }
    mean[i] /= count, ref_put(c, 0, i, mean[i]);
  }
  for (int64_t i = 0; i < n; i++)
    if (!isnan(mean[i]) && place_of(mean, n, i) < (int64_t)c->q[1])
      ref_put(c, 1, place_of(mean, n, i), (double)i);
  free(near);
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
/* q: gamma, scale, delta, horizon. */
void neuronal_stream_ref(const tensor_ref_call *c) {
  const int64_t k = ref_last(c->in_shape[0]), rows = ref_rows(c->in_shape[0]), n = ref_last(c->out_shape[0]);
  double *f = calloc((size_t)k + 1, sizeof *f);
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < k; j++) f[j] = c->in[0][i * k + j];
    qsort(f, (size_t)k, sizeof *f, by_size);
    const double t = (double)(i % n + 1), gap = k > 1 ? f[1] - f[0] : INFINITY,
                 rounds = fmax(1, c->q[3] > 0 ? c->q[3] : (double)n),
                 bound =
                     2 * c->q[0] * (c->q[1] * sqrt((double)k / t) + sqrt(2 * log(3 * rounds / c->q[2]) / t));
    ref_put(c, 0, i, gap < bound), ref_put(c, 1, i, gap), ref_put(c, 2, i, bound);
  }
  free(f);
}

/* q: mu, gamma, seed. */
void neuronal_pool_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *w = c->in[0] + s * n, u = uniform((uint64_t)c->q[2], (uint64_t)s, 18, 0);
    double others = 0, sum = 0, drawn = -1;
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) best = w[i] < w[best] ? i : best;
    for (int64_t i = 0; i < n; i++)
      others += i == best ? 0 : w[best] / (c->q[0] * (double)n * w[best] + c->q[1] * (w[i] - w[best]));
    for (int64_t i = 0; i < n; i++) {
      const double p =
          i == best ? 1 - others : w[best] / (c->q[0] * (double)n * w[best] + c->q[1] * (w[i] - w[best]));
      ref_put(c, 0, s * n + i, p), sum += p;
      if (drawn < 0 && sum > u) drawn = (double)i;
    }
    ref_put(c, 1, s, drawn);
  }
}
