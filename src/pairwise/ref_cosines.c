/* pairwise/ref_cosines.c - losses of the cosines of features and classes straight from the
 * formulas, for tests. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

/* A call; inputs: h, w, target and so many of its own, a number, a mask. Parameters: first
 * normalise, then ignore_index. */
typedef struct layer {
  const double *h, *w, *target, *number, *mask, *q;
  int64_t n, d, classes;
} layer;

static layer layer_of(const tensor_ref_call *c, int own, int first) {
  return (layer){c->in[0],     c->in[1],          c->in[2],          c->in[2 + own],   c->in[3 + own],
                 c->q + first, c->in_shape[0][0], c->in_shape[0][1], c->in_shape[1][0]};
}

static long double length_of(const layer *l, const double *x) {
  long double square = 0;
  for (int64_t k = 0; k < l->d; k++) square += (long double)x[k] * x[k];
  return l->q[0] != 0 ? fmaxl(sqrtl(square), 1e-12L) : 1;
}
static long double along(const layer *l, const double *x, const double *y) {
  long double sum = 0;
  for (int64_t k = 0; k < l->d; k++) sum += (long double)x[k] * y[k];
  return sum / length_of(l, x) / length_of(l, y);
}
static long double cosine(const layer *l, int64_t i, int64_t j) {
  return along(l, l->h + i * l->d, l->w + j * l->d);
}
static int counts(const layer *l, int64_t i) { return l->target[i] != l->q[1]; }
static int64_t own_of(const layer *l, int64_t i) { return (int64_t)l->target[i]; }
static int is_kept(const layer *l, int64_t i, int64_t j) {
  return j == own_of(l, i) || !l->mask || l->mask[i * l->classes + j] != 0;
}
static long double softplus(long double x) { return fmaxl(x, 0) + log1pl(expl(-fabsl(x))); }
static long double within(long double c) { return fmaxl(-1, fminl(1, c)); }

/* Cross-entropy of z. */
static double cross_entropy(const layer *l, int64_t i, const long double *z) {
  const int64_t own = own_of(l, i);
  long double others = 0;
  for (int64_t j = 0; j < l->classes; j++)
    if (j != own && is_kept(l, i, j)) others += expl(z[j] - z[own]);
  return (double)log1pl(others);
}

void ref_sphereface2(const tensor_ref_call *c) {
  const layer l = layer_of(c, 1, 0);
  const long double balance = l.q[2], r = l.q[3], m = l.q[4], t = l.q[5], b = l.number ? *l.number : 0;
  for (int64_t i = 0; i < l.n; i++) {
    long double loss = 0;
    for (int64_t j = 0; counts(&l, i) && j < l.classes; j++) {
      const long double g = 2 * powl((within(cosine(&l, i, j)) + 1) / 2, t) - 1;
      if (j == own_of(&l, i)) loss += balance * softplus(-(r * (g - m) + b));
      else if (is_kept(&l, i, j)) loss += (1 - balance) * softplus(r * (g + m) + b);
    }
    ref_put(c, 0, i, (double)(l.q[6] / r * loss));
  }
}

void ref_wcdas(const tensor_ref_call *c) {
  const layer l = layer_of(c, 2, 0);
  const long double s = l.number ? 1 + softplus(*l.number) : l.q[2];
  long double *z = calloc((size_t)l.classes, sizeof *z);
  for (int64_t i = 0; i < l.n; i++) {
    for (int64_t j = 0; j < l.classes; j++) {
      const long double k = fminl(1 / (1 + expl(-(long double)c->in[3][j])), 1 - 1e-6L);
      z[j] = s / (2 * acosl(-1)) * (1 - k * k) / (1 + k * k - 2 * k * within(cosine(&l, i, j)));
    }
    ref_put(c, 0, i, counts(&l, i) ? cross_entropy(&l, i, z) : 0);
  }
  free(z);
}

void ref_margin_metric_softmax(const tensor_ref_call *c) {
  const layer l = layer_of(c, 1, 1);
  const long double t = l.number ? *l.number : c->q[0];
  long double *z = calloc((size_t)l.classes, sizeof *z);
  for (int64_t i = 0; i < l.n; i++) {
    for (int64_t j = 0; counts(&l, i) && j < l.classes; j++) {
      const long double far = 1 - along(&l, l.w + own_of(&l, i) * l.d, l.w + j * l.d);
      z[j] = (cosine(&l, i, j) + l.q[2] * (j == own_of(&l, i) && l.q[0] != 0 ? 0 : far)) / t;
    }
    ref_put(c, 0, i, counts(&l, i) ? cross_entropy(&l, i, z) : 0);
  }
  free(z);
}

static int rising(const void *a, const void *b) {
  const long double x = *(const long double *)a, y = *(const long double *)b;
  return x < y ? -1 : x > y;
}
static long double log_others(const layer *l, int64_t i, long double s) {
  long double sum = 0;
  for (int64_t j = 0; j < l->classes; j++)
    if (j != own_of(l, i) && is_kept(l, i, j)) sum += expl(s * cosine(l, i, j));
  return logl(sum);
}

void ref_adaptive_scale_margin_softmax(const tensor_ref_call *c) {
  const layer l = layer_of(c, 1, 0);
  long double *z = calloc((size_t)(l.classes + l.n), sizeof *z), *sorted = z + l.classes, mean = 0, m = 0;
  int64_t count = 0, row = 0;
  for (int64_t i = 0; i < l.n; i++)
    if (counts(&l, i)) sorted[count++] = cosine(&l, i, own_of(&l, i));
  qsort(sorted, (size_t)count, sizeof *sorted, rising);
  const long double a = l.q[2], median = count ? sorted[(count - 1) / 2] : 0;
  long double s = fmaxl(32, logl(9999999 * (1 - a) / a) / fmaxl(1 - median, 1e-6L));
  if (l.number || !count) s = l.number ? *l.number : 32;
  while (count && !(counts(&l, row) && cosine(&l, row, own_of(&l, row)) == median)) row++;
  count = 0;
  for (int64_t i = 0; i < l.n; i++)
    if (counts(&l, i)) sorted[count++] = log_others(&l, i, s), mean += expl(sorted[count - 1]);
  if (count && !l.number) {
    qsort(sorted, (size_t)count, sizeof *sorted, rising);
    const long double b = l.q[3] == 0   ? log_others(&l, row, s)
                          : l.q[3] == 1 ? sorted[(count - 1) / 2]
                                        : logl(mean / (long double)count);
    m = fmaxl(0, median - (b + logl(a / (1 - a))) / s);
  }
  for (int64_t i = 0; i < l.n; i++) {
    for (int64_t j = 0; counts(&l, i) && j < l.classes; j++)
      z[j] = s * (cosine(&l, i, j) - (j == own_of(&l, i) ? m : 0));
    ref_put(c, 0, i, counts(&l, i) ? cross_entropy(&l, i, z) : 0);
  }
  ref_put(c, 1, 0, (double)s), ref_put(c, 2, 0, (double)m);
  free(z);
}
