/* head/ref_mixed.c - heads whose row of logits is mixed with something: a codebook, codes, another
 * row, those of other components. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

static double lse(const double *x, int64_t n) {
  double most = -INFINITY;
  long double sum = 0;
  for (int64_t j = 0; j < n; j++) most = x[j] > most ? x[j] : most;
  for (int64_t j = 0; j < n && most > -INFINITY; j++) sum += expl((long double)x[j] - most);
  return most > -INFINITY ? (double)(most + logl(sum)) : most;
}

/* q: temperature */
void ref_soft_token_expectation(const tensor_ref_call *c) {
  const int64_t v = c->in_shape[1][0], d = c->in_shape[1][1], rows = ref_rows(c->in_shape[0]);
  for (int64_t r = 0; r < rows; r++) {
    const double *const z = c->in[0] + r * v;
    double most = z[0];
    for (int64_t j = 0; j < v; j++) most = fmax(most, z[j]);
    for (int64_t i = 0; i < d; i++) {
      long double sum = 0, all = 0;
      for (int64_t j = 0; j < v; j++) {
        const long double w = expl(((long double)z[j] - most) / c->q[0]);
        all += w, sum += w * c->in[1][j * d + i];
      }
      c->out[0][r * d + i] = (double)(sum / all);
    }
  }
}

/* By a row of all classes. q: ignore_index */
void ref_vq_logits_head(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], classes = c->in_shape[2][0];
  double *const x = calloc((size_t)classes + 1, sizeof *x);
  for (int64_t r = 0; r < n; r++) {
    for (int64_t v = 0; v < classes; v++) {
      x[v] = c->in[4] ? c->in[4][v] : 0;
      for (int64_t i = 0; i < d; i++) x[v] += c->in[0][r * d + i] * c->in[1][(int64_t)c->in[2][v] * d + i];
    }
    c->out[0][r] = c->in[3][r] == c->q[0] ? 0 : lse(x, classes) - x[(int64_t)c->in[3][r]];
  }
  free(x);
}

/* q: form, gate, kappa */
void ref_surface_fusion(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), rows = ref_rows(c->in_shape[0]);
  double *const both = calloc((size_t)n + 1, sizeof *both);
  for (int64_t r = 0; r < rows; r++) {
    const double *const x = c->in[0] + r * n, *const s = c->in[1] + r * n;
    const double g = c->in[2] ? c->in[2][r] : c->q[1], own = lse(x, n), other = lse(s, n);
    for (int64_t j = 0; j < n; j++) both[j] = x[j] + c->q[2] * s[j];
    const double together = lse(both, n);
    for (int64_t j = 0; j < n; j++)
      c->out[0][r * n + j] = c->q[0] == 0 ? g * (x[j] - own) + (1 - g) * (s[j] - other) : both[j] - together;
  }
  free(both);
}

/* All of the values, in order of their scores. q: k */
void ref_product_key_memory(const tensor_ref_call *c) {
  const int64_t heads = c->in_shape[1][0], m = c->in_shape[1][2], e = c->in_shape[1][3],
                o = c->in_shape[2][1], k = (int64_t)c->q[0],
                rows = ref_count(c->in_shape[0]) / (heads * 2 * e);
  double *const s = calloc((size_t)(m * m), sizeof *s);
  for (int64_t i = 0; i < rows * o; i++) c->out[0][i] = 0;
  for (int64_t rh = 0; rh < rows * heads; rh++) {
    const double *const q = c->in[0] + rh * 2 * e, *const keys = c->in[1] + rh % heads * 2 * m * e;
    double *const weight = c->out[2] + rh * k, *const index = c->out[1] + rh * k;
    double most = -INFINITY, sum = 0;
    for (int64_t v = 0; v < m * m; v++) {
      s[v] = 0;
      for (int64_t x = 0; x < e; x++)
        s[v] += q[x] * keys[v / m * e + x] + q[e + x] * keys[(m + v % m) * e + x];
      most = fmax(most, s[v]);
    }
    for (int64_t a = 0; a < k; a++) {
      int64_t at = 0;
      for (int64_t v = 1; v < m * m; v++) at = s[v] > s[at] ? v : at;
      index[a] = (double)at, sum += weight[a] = exp(s[at] - most), s[at] = -INFINITY;
    }
    for (int64_t a = 0; a < k; a++) {
      weight[a] /= sum;
      for (int64_t x = 0; x < o; x++)
        c->out[0][rh / heads * o + x] += weight[a] * c->in[2][(int64_t)index[a] * o + x];
    }
  }
  free(s);
}

/* Inputs: h, prior, w, target, bias, class_weight. q: ignore_index, softcap, temperature, scale */
static double component_loss(const tensor_ref_call *c, int64_t row, int64_t target, double *z) {
  const int64_t classes = c->in_shape[2][0], d = c->in_shape[2][1];
  for (int64_t j = 0; j < classes; j++) {
    long double x = 0;
    for (int64_t i = 0; i < d; i++) x += (long double)c->in[0][row * d + i] * c->in[2][j * d + i];
    x = c->q[3] * x + (c->in[4] ? c->in[4][j] : 0);
    z[j] = (double)((isinf(c->q[1]) ? x : c->q[1] * tanhl(x / c->q[1])) / c->q[2]);
  }
  long double others = 0; /* e^loss - 1 */
  for (int64_t j = 0; j < classes; j++) others += j == target ? 0 : expl((long double)z[j] - z[target]);
  return (double)log1pl(others);
}
void ref_mixture_of_softmaxes(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], parts = c->in_shape[0][1], classes = c->in_shape[2][0];
  double *const z = calloc((size_t)(classes + parts) + 1, sizeof *z), *const joint = z + classes;
  for (int64_t r = 0; r < n; r++) {
    const int counts = c->in[3][r] != c->q[0];
    const int64_t target = counts ? (int64_t)c->in[3][r] : 0;
    const double *const prior = c->in[1] + r * parts, all = lse(prior, parts);
    long double missed = 0; /* 1 - the probability */
    for (int64_t k = 0; k < parts; k++) {
      const double loss = component_loss(c, r * parts + k, target, z);
      joint[k] = prior[k] - all - loss,
      missed -= expl((long double)prior[k] - all) * expm1l(-(long double)loss);
      ref_put(c, 1, r * parts + k, counts ? loss : 0);
    }
    const double loss = missed < 0.5L ? (double)-log1pl(-missed) : -lse(joint, parts);
    c->out[0][r] = counts ? loss * (c->in[5] ? c->in[5][target] : 1) : 0;
  }
  free(z);
}
