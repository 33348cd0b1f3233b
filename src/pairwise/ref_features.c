/* pairwise/ref_features.c - operators on features and their densities straight from the formulas,
 * for tests. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

void ref_nbc_loss(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], classes = (int64_t)c->q[0];
  double *centre = calloc((size_t)(classes * d) + 1, sizeof *centre),
         *rows = calloc((size_t)classes, sizeof *rows);
  double loss = 0, present = 0;
  for (int64_t i = 0; i < n; i++)
    if (c->in[1][i] >= 0) rows[(int64_t)c->in[1][i]]++;
  for (int64_t i = 0; i < n; i++)
    for (int64_t t = 0; t < d && c->in[1][i] >= 0; t++)
      centre[(int64_t)c->in[1][i] * d + t] += c->in[0][i * d + t] / rows[(int64_t)c->in[1][i]];
  for (int64_t a = 0; a < classes; a++) present += rows[a] > 0;
  for (int64_t a = 0; a < classes; a++) {
    double sum = 1e-10 + c->q[2];
    for (int64_t b = 0; b < classes; b++) {
      double xy = 0, xx = 0, yy = 0;
      for (int64_t t = 0; t < d; t++) {
        const double x = centre[a * d + t], y = centre[b * d + t];
        xy += x * y, xx += x * x, yy += y * y;
      }
      if (a != b && rows[b] > 0) sum += exp(c->q[1] * (xy == 0 ? 0 : xy / sqrt(xx * yy)));
    }
    if (rows[a] > 0) loss += log(sum) / (present * (double)classes);
  }
  ref_put(c, 0, 0, loss);
  free(centre), free(rows);
}

void ref_flowcon_score(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], classes = c->in_shape[1][0];
  for (int64_t i = 0; i < n; i++) {
    double best = -INFINITY;
    for (int64_t k = 0; k < classes; k++) {
      double sum = 0;
      for (int64_t t = 0; t < d; t++) {
        const double ls = c->in[2][k * d + t], way = c->in[0][i * d + t] - c->in[1][k * d + t];
        sum += -0.5 * log(2 * acos(-1)) - ls - 0.5 * way * way * exp(-2 * ls);
      }
      ref_put(c, 1, i * classes + k, sum);
      best = fmax(best, sum);
    }
    ref_put(c, 0, i, (best + (c->in[3] ? c->in[3][i] : 0)) / (c->q[0] != 0 ? log(2) * (double)d : 1));
  }
}

void ref_flowcon_loss(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0];
  for (int64_t i = 0; i < n; i++) {
    const double *l = c->in[0] + i * n;
    double most = -INFINITY, sum = 0, count = 0, mean = 0;
    for (int64_t j = 0; j < n; j++) most = fmax(most, l[j]);
    for (int64_t j = 0; j < n; j++) {
      const double r = (exp(c->q[0] * (l[j] - most)) + 1e-5) / c->q[1];
      if (i != j) sum += exp(r);
      if (i != j && c->in[1][i] == c->in[1][j]) count++, mean += r;
    }
    ref_put(c, 0, i, count > 0 ? log(sum) - mean / count : 0);
  }
}

void ref_attention_separation(const tensor_ref_call *c) {
  const int64_t l = ref_last(c->in_shape[0]), rows = ref_count(c->in_shape[0]) / l,
                d = ref_count(c->in_shape[1]) / (rows * l);
  char *chosen = malloc((size_t)l);
  double *s = malloc((size_t)d * sizeof *s);
  for (int64_t row = 0; row < rows; row++) {
    const double *a = c->in[0] + row * l, *x = c->in[1] + row * l * d;
    double distance = 0, near = 0, count = 0;
    for (int64_t j = 0; j < l; j++) chosen[j] = 0;
    for (int64_t k = 0; k < d; k++) s[k] = 0;
    for (; count < c->q[0] && count < (double)l; count++) {
      int64_t best = -1;
      for (int64_t j = 0; j < l; j++)
        if (!chosen[j] && (best < 0 || a[j] > a[best])) best = j;
      chosen[best] = 1;
      for (int64_t k = 0; k < d; k++) s[k] += a[best] * x[best * d + k];
    }
    for (int64_t j = 0; j < l; j++) {
      double square = 0;
      for (int64_t k = 0; k < d; k++) square += pow(s[k] - a[j] * x[j * d + k], 2);
      if (chosen[j]) near += sqrt(square) <= c->q[1];
      else distance += sqrt(square);
    }
    ref_put(c, 0, row, distance), ref_put(c, 1, row, near / count);
  }
  free(chosen), free(s);
}
