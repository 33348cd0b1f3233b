/* linear_attention/ref_features.c - features straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "engine/ref.h"
#include "engine/ref_draws.h"
#include "ref.h"

void ref_taylor_features(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), rows = ref_rows(c->in_shape[0]), r = 1 + d + d * d;
  for (int64_t t = 0; t < rows; t++)
    for (int64_t i = 0; i < r; i++) {
      const double *x = c->in[0] + t * d;
      double y = 1;
      if (i > d) y = x[(i - 1 - d) / d] * x[(i - 1 - d) % d] / sqrt(2 * (double)d);
      else if (i > 0) y = x[i - 1] / pow((double)d, 0.25);
      c->out[0][t * r + i] = y;
    }
}

void ref_cosformer_features(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), rows = ref_rows(c->in_shape[0]);
  const int64_t tokens = ref_size(c->in_shape[0], 2);
  const double length = c->q[0] > 0 ? c->q[0] : c->q[1] + (double)tokens;
  for (int64_t t = 0; t < rows; t++)
    for (int64_t i = 0; i < 2 * d; i++) {
      const double a = acos(0) * (c->q[1] + (double)(t % tokens) + 1) / length;
      c->out[0][t * 2 * d + i] = fmax(c->in[0][t * d + i % d], 0) * (i < d ? sin(a) : cos(a));
    }
}

void ref_nala_features(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), rows = ref_rows(c->in_shape[0]);
  for (int64_t t = 0; t < rows; t++) {
    const double *x = c->in[0] + t * d;
    double norm = 0;
    for (int64_t i = 0; i < d; i++) norm = hypot(norm, x[i]);
    for (int64_t i = 0; i < 2 * d; i++) {
      const double part = fmax(i < d ? x[i] : -x[i - d], 0);
      const double y = c->q[0] == 0 ? pow(part / norm, 3 * (0.5 + tanh(norm))) : part * part * part;
      c->out[0][t * 2 * d + i] = norm > 0 ? y : 0;
    }
  }
}

/* Gram and Schmidt, on rows of normal numbers. */
static void draw_omega(uint64_t seed, int64_t m, int64_t d, double *omega) {
  for (int64_t r = 0; r < m; r++) {
    double *row = omega + r * d, square = 0, length = 0;
    for (int64_t i = 0; i < d; i++) row[i] = normal(uniform(seed, 0, 5, (uint64_t)(r * d + i)));
    for (int64_t k = r / d * d; k < r; k++) {
      double dot = 0, own = 0;
      for (int64_t i = 0; i < d; i++)
        dot += row[i] * omega[k * d + i], own += omega[k * d + i] * omega[k * d + i];
      for (int64_t i = 0; i < d; i++) row[i] -= dot / own * omega[k * d + i];
    }
    for (int64_t i = 0; i < d; i++) {
      const double other = normal(uniform(seed, (uint64_t)r + 1, 5, (uint64_t)i));
      square += other * other, length += row[i] * row[i];
    }
    for (int64_t i = 0; i < d; i++) row[i] *= sqrt(square / length);
  }
}

void ref_performer_features(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), rows = ref_rows(c->in_shape[0]), m = ref_last(c->out_shape[0]);
  const int64_t tokens = ref_size(c->in_shape[0], 2);
  double *omega = calloc((size_t)(m * d), sizeof *omega), *u = calloc((size_t)(rows * m), sizeof *u);
  if (!c->in[1]) draw_omega((uint64_t)c->q[4], m, d, omega);
  for (int64_t i = 0; i < m * d && c->in[1]; i++) omega[i] = c->in[1][i];
  for (int64_t i = 0; i < rows * m; i++)
    for (int64_t j = 0; j < d; j++)
      u[i] += omega[i % m * d + j] * c->in[0][i / m * d + j] / pow((double)d, 0.25);
  for (int64_t i = 0; i < rows * m; i++) {
    const int64_t t = i / m, first = c->q[2] == 1 ? t : t / tokens * tokens,
                  count = c->q[2] == 1 ? 1 : tokens;
    double most = -INFINITY, half = 0;
    for (int64_t k = first * m; k < (first + count) * m; k++) most = fmax(most, u[k]);
    for (int64_t j = 0; j < d; j++) half += c->in[0][t * d + j] * c->in[0][t * d + j] / sqrt((double)d) / 2;
    if (c->q[2] == 0) most = 0;
    c->out[0][i] = c->q[1] == 0   ? (exp(u[i] - half - most) + c->q[3]) / sqrt((double)m)
                   : c->q[1] == 1 ? fmax(u[i], 0) + c->q[3]
                                  : u[i];
  }
  free(omega), free(u);
}
