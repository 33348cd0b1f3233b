/* linear_attention/ref_galerkin.c - galerkin_attention and fourier_attention by their matrices of
 * scores, for tests. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

/* Rows of input `port`, normalised with gain and bias of their head where `gain` is an input. */
static double *rows_of(const tensor_ref_call *c, int port, int gain, double eps) {
  const int64_t n = ref_last(c->in_shape[port]), rows = ref_rows(c->in_shape[port]),
                h = ref_size(c->in_shape[port], 3), each = ref_size(c->in_shape[port], 2);
  double *x = calloc((size_t)(rows * n), sizeof *x);
  for (int64_t i = 0; i < rows * n; i++) {
    const int64_t head = i / n / each % h, first = i / n * n;
    double mean = 0, variance = 0;
    x[i] = c->in[port][i];
    if (gain < 0) continue;
    for (int64_t j = 0; j < n; j++) mean += c->in[port][first + j] / (double)n;
    for (int64_t j = 0; j < n; j++) variance += pow(c->in[port][first + j] - mean, 2) / (double)n;
    x[i] = (x[i] - mean) / sqrt(variance + eps);
    if (c->in[gain]) x[i] *= c->in[gain][head * n + i % n];
    if (c->in[gain + 1]) x[i] += c->in[gain + 1][head * n + i % n];
  }
  return x;
}

static void attend(const tensor_ref_call *c, double *q, double *k, double *v, double scale) {
  const int64_t l = ref_size(c->in_shape[0], 2), t = ref_size(c->in_shape[1], 2),
                d = ref_last(c->in_shape[0]), e = ref_last(c->in_shape[2]),
                all = ref_rows(c->in_shape[0]) / l;
  for (int64_t i = 0; i < all * l * e; i++) c->out[0][i] = 0;
  for (int64_t at = 0; at < all * l * t; at++) {
    const int64_t row = at / t, key = at / (l * t) * t + at % t;
    double score = 0;
    for (int64_t i = 0; i < d; i++) score += scale * q[row * d + i] * k[key * d + i] / (double)t;
    for (int64_t i = 0; i < e; i++) c->out[0][row * e + i] += score * v[key * e + i];
  }
  free(q), free(k), free(v);
}

void ref_galerkin_attention(const tensor_ref_call *c) {
  attend(c, rows_of(c, 0, -1, 0), rows_of(c, 1, 3, c->q[0]), rows_of(c, 2, 5, c->q[0]), 1);
}
void ref_fourier_attention(const tensor_ref_call *c) {
  const double scale = c->q[1] == 0 ? 1 / sqrt((double)ref_last(c->in_shape[0])) : c->q[1];
  attend(c, rows_of(c, 0, 3, c->q[0]), rows_of(c, 1, 5, c->q[0]), rows_of(c, 2, -1, 0), scale);
}
