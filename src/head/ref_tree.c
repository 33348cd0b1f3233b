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
