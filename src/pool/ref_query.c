/* pool/ref_query.c - attention of one query, and ponet_mix, straight from the formulas, for tests:
 * keys and values are made for every item. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

typedef struct query {
  int64_t n, d, heads;
  double scale, gamma;
  const double *z; /* items, normalised where they are */
  const double *u, *wq, *wk, *wv, *wo, *mask;
} query;

static void product(const double *w, const double *x, int64_t d, double *y) {
  for (int64_t r = 0; r < d; r++) {
    y[r] = 0;
    for (int64_t c = 0; c < d; c++) y[r] += w[r * d + c] * x[c];
  }
}

/* o of the columns of a head. */
static void head(const query *f, int64_t h, const double *q, double *o) {
  const int64_t d = f->d, width = d / f->heads;
  double *a = calloc((size_t)(f->n + 2 * d), sizeof *a), *k = a + f->n, *v = k + d;
  double top = -INFINITY, sum = 0, least = INFINITY;
  for (int64_t i = 0; i < f->n; i++) {
    if (f->mask && f->mask[i] == 0) continue;
    product(f->wk, f->z + i * d, d, k), a[i] = 0;
    for (int64_t r = h * width; r < (h + 1) * width; r++) a[i] += f->scale * q[r] * k[r];
    top = fmax(top, a[i]);
    for (int64_t r = 0; r < d; r++) least = fmin(least, f->z[i * d + r]);
  }
  for (int64_t i = 0; i < f->n; i++) sum += a[i] = f->mask && f->mask[i] == 0 ? 0 : exp(a[i] - top);
  for (int64_t r = h * width; r < (h + 1) * width; r++) o[r] = 0;
  for (int64_t i = 0; i < f->n; i++) {
    if (a[i] == 0) continue;
    for (int64_t r = 0; r < d; r++) v[r] = f->z[i * d + r];
    if (f->wv) product(f->wv, f->z + i * d, d, v);
    for (int64_t r = h * width; r < (h + 1) * width; r++)
      o[r] += a[i] / sum * (f->gamma > 0 ? pow(v[r] - least + 1e-6, f->gamma) : v[r]);
  }
  for (int64_t r = h * width; r < (h + 1) * width && f->gamma > 0; r++) o[r] = pow(o[r], 1 / f->gamma);
  free(a);
}

static void answer(const query *f, double *y) {
  double *q = calloc((size_t)(2 * f->d), sizeof *q), *o = q + f->d;
  product(f->wq, f->u, f->d, q);
  for (int64_t h = 0; h < f->heads; h++) head(f, h, q, o);
  for (int64_t r = 0; r < f->d; r++) y[r] = o[r];
  if (f->wo) product(f->wo, o, f->d, y);
  free(q);
}

/* The mean of items that ask. False: none is there. */
static int ask(const query *f, const double *x, const double *index, int64_t asked, double *u) {
  double count = 0;
  for (int64_t c = 0; c < f->d; c++) u[c] = 0;
  for (int64_t k = 0; k < asked; k++) {
    const int64_t i = index ? (int64_t)index[k] : k;
    if (f->mask && f->mask[i] == 0) continue;
    count++;
    for (int64_t c = 0; c < f->d; c++) u[c] += x[i * f->d + c];
  }
  for (int64_t c = 0; c < f->d; c++) u[c] /= count;
  return count > 0;
}

static int dimensions(const int64_t *shape) {
  int ndim = 0;
  while (ndim < 8 && shape[ndim] > 0) ndim++;
  return ndim;
}

static void run(const tensor_ref_call *c, query f, const double *index, const double *mask,
                void (*make)(const tensor_ref_call *c, const query *f, double *z)) {
  const int ndim = dimensions(c->in_shape[0]);
  int64_t leads = 1;
  for (int i = 0; i < ndim - 2; i++) leads *= c->in_shape[0][i];
  f.n = c->in_shape[0][ndim - 2], f.d = c->in_shape[0][ndim - 1];
  f.scale = 1 / sqrt((double)f.d / f.scale), f.wq = c->in[1], f.wk = c->in[2];
  double *z = calloc((size_t)((f.n + 1) * f.d), sizeof *z), *u = z + f.n * f.d;
  for (int64_t lead = 0; lead < leads; lead++) {
    const double *x = c->in[0] + lead * f.n * f.d;
    double *y = c->out[0] + lead * f.d;
    f.mask = mask ? mask + lead * f.n : NULL, f.z = z, f.u = u;
    for (int64_t i = 0; i < f.n * f.d; i++) z[i] = x[i];
    for (int64_t i = 0; i < f.n && make; i++) make(c, &f, z + i * f.d);
    const int any = ask(&f, x, index, index ? c->in_shape[6][0] : f.n, u);
    if (any) answer(&f, y);
    for (int64_t r = 0; r < f.d; r++) y[r] = any ? y[r] + (index && c->in_shape[6][0] == 1 ? u[r] : 0) : 0;
  }
  free(z);
}

static void layer_norm(const tensor_ref_call *c, const query *f, double *z) {
  double mean = 0, square = 0;
  for (int64_t j = 0; j < f->d; j++) mean += z[j] / (double)f->d;
  for (int64_t j = 0; j < f->d; j++) square += (z[j] - mean) * (z[j] - mean) / (double)f->d;
  for (int64_t j = 0; j < f->d; j++)
    z[j] =
        (z[j] - mean) / sqrt(square + c->q[2]) * (c->in[4] ? c->in[4][j] : 1) + (c->in[5] ? c->in[5][j] : 0);
}
void pool_ref_sim(const tensor_ref_call *c) {
  run(c, (query){.heads = (int64_t)c->q[0], .scale = c->q[0], .gamma = c->q[1]}, NULL, c->in[3], layer_norm);
}
void pool_ref_query(const tensor_ref_call *c) {
  const query f = {
      .heads = (int64_t)c->q[0], .scale = c->q[1] != 0 ? c->q[0] : 1, .wv = c->in[3], .wo = c->in[4]};
  run(c, f, c->in[6], c->in[5], NULL);
}

/* The largest of a column of some tokens. */
static double largest(const double *x, const double *mask, int64_t d, int64_t first, int64_t end) {
  double most = -INFINITY;
  for (int64_t t = first; t < end; t++)
    if (!mask || mask[t] != 0) most = fmax(most, x[t * d]);
  return most;
}
void pool_ref_ponet(const tensor_ref_call *c) {
  const int ndim = dimensions(c->in_shape[0]);
  const int64_t n = c->in_shape[0][ndim - 2], d = c->in_shape[0][ndim - 1], width = d / (int64_t)c->q[0];
  const int64_t length = n / (int64_t)c->q[1] + 1, around = (int64_t)c->q[2];
  int64_t leads = 1;
  for (int i = 0; i < ndim - 2; i++) leads *= c->in_shape[0][i];
  for (int64_t i = 0; i < leads * n * d; i++) c->out[0][i] = 0;
  for (int64_t at = 0; at < leads * d; at++) { /* a column of an item */
    const int64_t lead = at / d, j = at % d, head = j / width * width;
    const double *mask = c->in[5] ? c->in[5] + lead * n : NULL, *x[5];
    double present = 0, sum = 0, v = 0;
    for (int i = 0; i < 5; i++) x[i] = c->in[i] + lead * n * d;
    for (int64_t t = 0; t < n; t++) present += !mask || mask[t] != 0;
    for (int64_t u = 0; u < n; u++) {
      if (mask && mask[u] == 0) continue;
      double score = 0;
      for (int64_t t = 0; t < n; t++)
        for (int64_t r = head; r < head + width; r++)
          score += mask && mask[t] == 0 ? 0 : x[0][t * d + r] / present * x[1][u * d + r];
      const double e = exp(score / sqrt((double)width));
      sum += e, v += e * x[1][u * d + j];
    }
    for (int64_t t = 0; t < n; t++) {
      const int64_t first = t / length * length, end = first + length < n ? first + length : n;
      const int64_t left = t > around ? t - around : 0, right = t + around + 1 < n ? t + around + 1 : n;
      if (!mask || mask[t] != 0)
        c->out[0][(lead * n + t) * d + j] =
            (v / sum + largest(x[3] + j, mask, d, first, end)) * x[2][t * d + j] +
            largest(x[4] + j, mask, d, left, right);
    }
  }
}
