/* head/ref_tree.c - classes as leaves of trees, path by path, for tests. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

/* -log p of a class; ports from `first` on are parent, bit, bias. */
static double path_loss(const tensor_ref_call *c, int first, int64_t row, int64_t class) {
  const int64_t d = c->in_shape[0][1], classes = c->in_shape[first][0] - c->in_shape[1][0];
  const double *h = c->in[0] + row * d, *parent = c->in[first], *bias = c->in[first + 2];
  long double p = 0;
  for (int64_t i = class; parent[i] >= 0; i = (int64_t)parent[i]) {
    const int64_t inner = (int64_t)parent[i] - classes;
    long double z = bias ? (long double)bias[inner] : 0;
    for (int64_t k = 0; k < d; k++) z += (long double)h[k] * (long double)c->in[1][inner * d + k];
    p += logl(1 + expl(c->in[first + 1][i] != 0 ? -z : z));
  }
  return (double)p;
}

void ref_hierarchical_softmax(const tensor_ref_call *c) {
  for (int64_t r = 0; r < c->in_shape[0][0]; r++)
    ref_put(c, 0, r, c->in[2][r] == c->q[0] ? 0 : path_loss(c, 3, r, (int64_t)c->in[2][r]));
}
void ref_hierarchical_log_softmax(const tensor_ref_call *c) {
  const int64_t classes = c->in_shape[2][0] - c->in_shape[1][0];
  for (int64_t i = 0; i < c->in_shape[0][0] * classes; i++)
    ref_put(c, 0, i, -path_loss(c, 2, i / classes, i % classes));
}

/* Which of the nodes without a parent has the least count. */
static int64_t least_of(const double *count, const double *parent, int64_t n) {
  int64_t least = -1;
  for (int64_t i = 0; i < n; i++)
    if (parent[i] < 0 && (least < 0 || count[i] < count[least])) least = i;
  return least;
}
void ref_huffman_tree(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0];
  double *count = calloc(2 * (size_t)n, sizeof *count), *parent = c->out[0], *bit = c->out[1];
  for (int64_t i = 0; i < 2 * n - 1; i++) parent[i] = -1, bit[i] = 0;
  for (int64_t i = 0; i < n; i++) count[i] = c->in[0][i];
  for (int64_t made = n; made < 2 * n - 1; made++)
    for (int b = 0; b < 2; b++) {
      const int64_t i = least_of(count, parent, made);
      count[made] += count[i], parent[i] = (double)made, bit[i] = b;
    }
  free(count);
}

/* ---- soft decision trees ---- */

typedef struct soft_row {
  double p[256]; /* of all nodes */
} soft_row;

static soft_row soft_paths(const tensor_ref_call *c, int64_t row) {
  const int64_t d = c->in_shape[0][1], inner = c->in_shape[1][0];
  soft_row s;
  s.p[0] = 1;
  for (int64_t i = 0; i < inner; i++) {
    double a = c->in[4] ? c->in[4][i] : 0;
    for (int64_t k = 0; k < d; k++) a += c->in[0][row * d + k] * c->in[1][i * d + k];
    s.p[2 * i + 1] = s.p[i] / (1 + exp(c->q[1] * a)), s.p[2 * i + 2] = s.p[i] / (1 + exp(-c->q[1] * a));
  }
  return s;
}

static double soft_penalty(const tensor_ref_call *c, int64_t i) {
  double right = 0, left = 0, share = 1;
  for (int64_t r = 0; r < c->in_shape[0][0]; r++) {
    const soft_row s = soft_paths(c, r);
    right += s.p[2 * i + 2], left += s.p[2 * i + 1];
  }
  for (int64_t k = i + 1; k > 1; k /= 2) share /= 2;
  const double low = 1e-7, alpha = right / (left + right), other = left / (left + right);
  if (alpha < low || other < low) return -share / 2 * (log(low) + log(1 - low));
  return -share / 2 * (log(alpha) + log(other));
}

void ref_soft_decision_tree(const tensor_ref_call *c) {
  const int64_t inner = c->in_shape[1][0], leaves = c->in_shape[2][0], k = c->in_shape[2][1];
  double penalty = 0;
  for (int64_t r = 0; r < c->in_shape[0][0]; r++) {
    const soft_row s = soft_paths(c, r);
    double loss = 0, mixture = 0;
    for (int64_t j = 0; j < k; j++) ref_put(c, 1, r * k + j, 0);
    for (int64_t l = 0; l < leaves; l++) {
      const double p = s.p[inner + l], *z = c->in[2] + l * k;
      double sum = 0;
      for (int64_t j = 0; j < k; j++) sum += exp(z[j]);
      for (int64_t j = 0; j < k; j++) {
        const double q = exp(z[j]) / sum;
        if (c->out[1]) c->out[1][r * k + j] += p * q;
        if ((double)j == c->in[3][r]) loss -= p * log(q), mixture += p * q;
      }
      ref_put(c, 2, r * leaves + l, p);
    }
    ref_put(c, 0, r, c->in[3][r] == c->q[2] ? 0 : c->q[0] != 0 ? -log(mixture) : loss);
  }
  for (int64_t i = 0; i < inner; i++) penalty += soft_penalty(c, i);
  ref_put(c, 3, 0, penalty);
}
