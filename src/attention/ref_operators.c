/* attention/ref_operators.c - the operators of attention straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "engine/ref.h"
#include "engine/ref_draws.h"

/* The size `back` from the end. */
static int64_t size(const int64_t *shape, int back) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return n < back ? 1 : shape[n - back];
}

typedef struct sheet {
  int64_t l, t, d, e, items;
  double scale, *s; /* [items][l][t] */
} sheet;

/* Scores of all queries and keys; -inf where the mask hides one. */
static sheet scores_of(const tensor_ref_call *c, const double *mask) {
  sheet s = {size(c->in_shape[0], 2),
             size(c->in_shape[1], 2),
             size(c->in_shape[0], 1),
             size(c->in_shape[2], 1),
             ref_count(c->in_shape[0]) / size(c->in_shape[0], 2) / size(c->in_shape[0], 1),
             c->q[0],
             NULL};
  if (s.scale == 0) s.scale = 1 / sqrt((double)s.d);
  s.s = calloc((size_t)(s.items * s.l * s.t), sizeof *s.s);
  for (int64_t at = 0; at < s.items * s.l * s.t; at++) {
    const int64_t row = at / s.t, key = at / (s.l * s.t) * s.t + at % s.t;
    for (int64_t i = 0; i < s.d; i++) s.s[at] += s.scale * c->in[0][row * s.d + i] * c->in[1][key * s.d + i];
    if (mask && mask[at] == 0) s.s[at] = -INFINITY;
  }
  return s;
}
/* y = w v, and the weights; frees them. */
static void apply(const tensor_ref_call *c, const sheet *s) {
  for (int64_t at = 0; at < s->items * s->l * s->t; at++) {
    const int64_t row = at / s->t, key = at / (s->l * s->t) * s->t + at % s->t;
    for (int64_t i = 0; i < s->e; i++) {
      if (at % s->t == 0) c->out[0][row * s->e + i] = 0;
      c->out[0][row * s->e + i] += s->s[at] * c->in[2][key * s->e + i];
    }
    ref_put(c, 1, at, s->s[at]);
  }
  free(s->s);
}

/* x of n numbers, `step` apart, become a softmax, or its logarithms. */
static void normalise(double *x, int64_t n, int64_t step, int logs) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, x[i * step]);
  for (int64_t i = 0; i < n && most > -INFINITY; i++) sum += exp(x[i * step] - most);
  for (int64_t i = 0; i < n; i++) {
    if (most > -INFINITY) x[i * step] -= most + log(sum);
    if (!logs) x[i * step] = exp(x[i * step]);
  }
}

static void sinkhorn_attention(const tensor_ref_call *c) {
  const sheet s = scores_of(c, c->in[3]);
  const int steps = (int)c->q[1];
  for (int64_t item = 0; item < s.items; item++)
    for (int k = 1; k <= steps; k++)
      for (int64_t i = 0; i < (k % 2 ? s.l : s.t); i++) {
        double *x = s.s + item * s.l * s.t + (k % 2 ? i * s.t : i);
        normalise(x, k % 2 ? s.t : s.l, k % 2 ? 1 : s.t, k < steps);
      }
  apply(c, &s);
}

/* Gram and Schmidt, twice over. */
static void orthostochastic_attention(const tensor_ref_call *c) {
  const sheet s = scores_of(c, NULL);
  const int64_t n = s.l;
  for (int64_t item = 0; item < s.items; item++) {
    double *x = s.s + item * n * n;
    for (int64_t i = 0; i < n * n; i++)
      x[i] += c->q[1] * normal(uniform((uint64_t)c->q[2], (uint64_t)(i / n), 5, (uint64_t)(i % n)));
    for (int64_t j = 0; j < n; j++)
      for (int pass = 0; pass < 2; pass++) {
        double length = 0;
        for (int64_t k = 0; k < j; k++) {
          double dot = 0;
          for (int64_t i = 0; i < n; i++) dot += x[i * n + k] * x[i * n + j];
          for (int64_t i = 0; i < n; i++) x[i * n + j] -= dot * x[i * n + k];
        }
        for (int64_t i = 0; i < n; i++) length += x[i * n + j] * x[i * n + j];
        for (int64_t i = 0; i < n; i++) x[i * n + j] /= sqrt(length);
      }
    for (int64_t i = 0; i < n * n; i++) x[i] *= x[i];
  }
  apply(c, &s);
}

tensor_ref_fn *const attention_refs[] = {sinkhorn_attention, orthostochastic_attention};
