/* head/ref_adaptive.c - adaptive_softmax and adaptive_log_softmax, class by class;
 * equiangular_basis by all pairs. */
#include "engine/ref_draws.h"
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double dot(const double *x, const double *y, int64_t n) {
  long double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (long double)x[i] * (long double)y[i];
  return (double)sum;
}

/* In place. */
static void log_softmax(double *z, int64_t n) {
  double most = -INFINITY;
  long double sum = 0;
  for (int64_t j = 0; j < n; j++) most = fmax(most, z[j]);
  for (int64_t j = 0; j < n; j++) sum += expl((long double)z[j] - most);
  for (int64_t j = 0; j < n; j++) z[j] = (double)((long double)z[j] - most - logl(sum));
}

/* The log-probabilities of all classes for a row; bias, then width, are inputs from `more` on. q:
 * classes, div_value. */
static void log_row(const tensor_ref_call *c, int more, int64_t r, double *y) {
  const int64_t d = c->in_shape[0][1], s = c->in_shape[1][0], k = c->in_shape[4][0],
                classes = (int64_t)c->q[0];
  const double *const h = c->in[0] + r * d, *p = c->in[2], *t = c->in[3], *const cut = c->in[4];
  double *const head = calloc((size_t)s + 1, sizeof *head), *const x = calloc((size_t)d + 1, sizeof *x);
  for (int64_t j = 0; j < s; j++) head[j] = dot(h, c->in[1] + j * d, d) + (c->in[more] ? c->in[more][j] : 0);
  log_softmax(head, s);
  for (int64_t j = 0; j < s - k; j++) y[j] = head[j];
  for (int64_t i = 0; i < k; i++) {
    const int64_t low = (int64_t)cut[i], size = (i + 1 < k ? (int64_t)cut[i + 1] : classes) - low,
                  width = c->in[more + 1] ? (int64_t)c->in[more + 1][i]
                                          : (int64_t)floor((double)d / pow(c->q[1], (double)i + 1));
    for (int64_t e = 0; e < width; e++) x[e] = dot(h, p + e * d, d);
    for (int64_t j = 0; j < size; j++) y[low + j] = dot(x, t + j * width, width);
    log_softmax(y + low, size);
    for (int64_t j = 0; j < size; j++) y[low + j] += head[s - k + i];
    p += width * d, t += size * width;
  }
  free(head), free(x);
}

void ref_adaptive_softmax(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0];
  double *const y = calloc((size_t)c->q[0], sizeof *y);
  for (int64_t r = 0; r < n; r++) {
    log_row(c, 6, r, y);
    c->out[0][r] = c->in[5][r] == c->q[3] ? 0 : -y[(int64_t)c->in[5][r]];
  }
  free(y);
}

void ref_adaptive_log_softmax(const tensor_ref_call *c) {
  for (int64_t r = 0; r < c->in_shape[0][0]; r++) log_row(c, 5, r, c->out[0] + r * (int64_t)c->q[0]);
}

/* ---- equiangular_basis ---- */

static void to_unit(double *x, int64_t d) {
  const double length = sqrt(dot(x, x, d));
  for (int64_t i = 0; i < d; i++) x[i] = length > 0 ? x[i] / length : i == 0;
}

static void draw(double seed, int64_t count, double *x) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t r[4];
    random_block((uint64_t)seed, (uint64_t)1 << 41, 18, (uint64_t)i / 2, r);
    const uint32_t *const own = r + i % 2 * 2;
    x[i] = (double)(own[0] & 0xffff) + (double)(own[0] >> 16) + (double)(own[1] & 0xffff) +
           (double)(own[1] >> 16) - 131070;
  }
}

/* Number k of corner i of the regular simplex in m dimensions one of whose m + 1 corners is
 * (1, 1...) / sqrt(m). */
static double corner(int64_t i, int64_t k, int64_t m) {
  const double last = 1 / sqrt((double)m), own = sqrt(1 + 1 / (double)m),
               others = -(sqrt((double)m + 1) + 1) / ((double)m * sqrt((double)m));
  return i == m ? last : others + (i == k ? own : 0);
}

/* Rows of an orthonormal matrix, or the corners of a simplex in their space. */
static void exact(double *x, int64_t n, int64_t d, int simplex) {
  const int64_t m = simplex ? n - 1 : n;
  double *const u = calloc((size_t)(m * d) + 1, sizeof *u);
  for (int64_t i = 0; i < m; i++) {
    memcpy(u + i * d, x + i * d, (size_t)d * sizeof *u);
    to_unit(u + i * d, d);
    for (int again = 0; again < 3; again++)
      for (int64_t k = 0; k < i; k++) {
        const double along = dot(u + i * d, u + k * d, d);
        for (int64_t j = 0; j < d; j++) u[i * d + j] -= along * u[k * d + j];
      }
    to_unit(u + i * d, d);
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < d; j++) {
      double sum = 0;
      for (int64_t k = 0; k < m; k++) sum += u[k * d + j] * (simplex ? corner(i, k, m) : k == i);
      x[i * d + j] = sum;
    }
  free(u);
}

/* The largest cosine of x; next: one step from there. */
static double step(const double *x, int64_t n, int64_t d, double delta, double *next) {
  const double crowd = (double)n / (4 * (double)d), rate = 0.5 / fmax(1, crowd);
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    memcpy(next + i * d, x + i * d, (size_t)d * sizeof *x);
    for (int64_t k = 0; k < n; k++) {
      const double cosine = i == k ? 0 : dot(x + i * d, x + k * d, d), more = fmax(0, fabs(cosine) - delta);
      most = fmax(most, fabs(cosine));
      for (int64_t j = 0; j < d; j++) next[i * d + j] -= rate * copysign(more, cosine) * x[k * d + j];
    }
    to_unit(next + i * d, d);
  }
  return most;
}

/* q: form, bound, steps, seed */
void ref_equiangular_basis(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], steps = n <= d + 1 ? 0 : (int64_t)c->q[2];
  double *x = calloc((size_t)(n * d) + 1, sizeof *x), *next = calloc((size_t)(n * d) + 1, sizeof *x),
         most = 1, least = 2;
  const double welch = n > d ? sqrt((double)(n - d) / ((double)d * (double)(n - 1))) : 0;
  draw(c->q[3], n * d, x);
  const int simplex = c->q[0] != 0 || n == d + 1;
  if (n <= d + 1 && n > 1) exact(x, n, d, simplex);
  for (int64_t i = 0; i < n; i++) to_unit(x + i * d, d);
  for (int64_t k = 0; k <= steps; k++) {
    const double share = steps ? (double)k / (double)steps : 0;
    most = step(x, n, d, welch + (0.3 + 0.65 * share) * (most - welch), next);
    if (most < least) least = most, memcpy(c->out[0], x, (size_t)(n * d) * sizeof *x);
    double *const swap = x;
    x = next, next = swap;
  }
  if (n <= d + 1) least = simplex && n > 1 ? 1 / (double)(n - 1) : 0;
  ref_put(c, 1, 0, least), ref_put(c, 2, 0, welch);
  free(x), free(next);
}
