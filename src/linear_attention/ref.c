/* linear_attention/ref.c - attention with a state straight from the formulas, one token after
 * another, for tests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref.h"

enum { Q, K, V, DECAY, BETA, PAST, MASK };
enum { MAP, NORM, CAUSAL, SCALE, EPS };
enum { NONE, SUM, COUNTED, MALA, INLINE };

static double phi(int map, double x) {
  switch (map) {
    case 1: return x > 0 ? x + 1 : exp(x);
    case 2: return x > 0 ? x : 0;
    case 3: return x > 0 ? x * x : 0;
    case 4: return exp(x);
    case 5: return x / (1 + exp(-x));
    default: return x;
  }
}

typedef struct sizes {
  int64_t h, l, d, g, t, e, w, m, n;
} sizes;

static sizes sizes_of(const tensor_ref_call *c) {
  sizes s = {ref_size(c->in_shape[Q], 3), ref_size(c->in_shape[Q], 2), ref_size(c->in_shape[Q], 1),
             ref_size(c->in_shape[K], 3), ref_size(c->in_shape[K], 2), ref_size(c->in_shape[V], 1)};
  s.w = c->in[DECAY] ? ref_size(c->in_shape[DECAY], 1) : 0;
  s.m = s.d + (c->q[NORM] != NONE), s.n = s.e + (c->q[NORM] != NONE);
  return s;
}

/* One token: the state [m][n] of a head. */
static void step(const tensor_ref_call *c, const sizes *s, int64_t item, int64_t group, int64_t t,
                 double *state) {
  const int64_t row = (item * s->g + group) * s->t + t;
  if (c->in[MASK] && c->in[MASK][item * s->t + t] == 0) return;
  for (int64_t i = 0; i < s->d && s->w; i++)
    for (int64_t j = 0; j < s->n; j++)
      state[i * s->n + j] *= exp(c->in[DECAY][row * s->w + (s->w == 1 ? 0 : i)]);
  for (int64_t j = 0; j < s->n; j++) {
    double u = j < s->e ? c->in[V][row * s->e + j] : 1, seen = 0;
    for (int64_t i = 0; i < s->d; i++)
      seen += phi((int)c->q[MAP], c->in[K][row * s->d + i]) * state[i * s->n + j];
    if (c->in[BETA]) u = c->in[BETA][row] * (u - seen);
    for (int64_t i = 0; i < s->d; i++)
      state[i * s->n + j] += phi((int)c->q[MAP], c->in[K][row * s->d + i]) * u;
    if (s->m > s->d) state[s->d * s->n + j] += u;
  }
}

static double over(double x, double by) { return by == 0 ? 0 : x / by; }

static void answer(const tensor_ref_call *c, const sizes *s, const double *q, const double *state,
                   double *y) {
  const double scale = c->q[SCALE] == 0 ? 1 / sqrt((double)s->d) : c->q[SCALE];
  const double *last = state + s->d * s->n;
  double sum = 0;
  for (int64_t i = 0; i < s->d && s->n > s->e; i++)
    sum += scale * phi((int)c->q[MAP], q[i]) * state[i * s->n + s->e];
  for (int64_t j = 0; j < s->e; j++) {
    double out = 0;
    for (int64_t i = 0; i < s->d; i++) out += scale * phi((int)c->q[MAP], q[i]) * state[i * s->n + j];
    y[j] = out;
    if (c->q[NORM] == NONE) continue;
    const double count = last[s->e], z = over(sum, count), mean = over(last[j], count);
    if (c->q[NORM] == SUM) y[j] = over(out, sum + c->q[EPS]);
    if (c->q[NORM] == COUNTED) y[j] = over(out, count);
    if (c->q[NORM] == MALA) y[j] = (1 + over(1, z + c->q[EPS])) * over(out, count) - z * mean;
    if (c->q[NORM] == INLINE) y[j] = over(out, count) + (1 - z) * mean;
  }
}

static void head(const tensor_ref_call *c, const sizes *s, int64_t item, int64_t h, double *state) {
  const int64_t group = h / (s->h / s->g), first = (item * s->h + h) * s->l, size = s->m * s->n;
  if (c->in[PAST]) memcpy(state, c->in[PAST] + (item * s->g + group) * size, (size_t)size * sizeof *state);
  else memset(state, 0, (size_t)size * sizeof *state);
  for (int64_t t = 0; t < s->t; t++) {
    step(c, s, item, group, t, state);
    if (c->q[CAUSAL] != 0) answer(c, s, c->in[Q] + (first + t) * s->d, state, c->out[0] + (first + t) * s->e);
  }
  for (int64_t l = 0; l < s->l && c->q[CAUSAL] == 0; l++)
    answer(c, s, c->in[Q] + (first + l) * s->d, state, c->out[0] + (first + l) * s->e);
  if (h % (s->h / s->g) == 0)
    memcpy(c->out[1] + (item * s->g + group) * size, state, (size_t)size * sizeof *state);
}

static void linear_attention(const tensor_ref_call *c) {
  const sizes s = sizes_of(c);
  double *state = calloc((size_t)(s.m * s.n), sizeof *state);
  const int64_t items = ref_count(c->in_shape[Q]) / (s.h * s.l * s.d);
  for (int64_t i = 0; i < items * s.h; i++) head(c, &s, i / s.h, i % s.h, state);
  free(state);
}

/* Slots [m][n] of an item after a token's row x [n], with its decay [m]. */
static void remember(double *slots, const double *decay, const double *x, int64_t m, int64_t n) {
  for (int64_t j = 0; j < m; j++)
    for (int64_t i = 0; i < n; i++)
      slots[j * n + i] = exp(decay[j]) * slots[j * n + i] + (1 - exp(decay[j])) * x[i];
}

static void gated_slot_attention(const tensor_ref_call *c) {
  const int64_t t = ref_size(c->in_shape[0], 2), d = ref_last(c->in_shape[0]), e = ref_last(c->in_shape[2]),
                m = ref_last(c->in_shape[3]), items = ref_rows(c->in_shape[0]) / t;
  const double scale = c->q[0] == 0 ? 1 / sqrt((double)d) : c->q[0];
  double *keys = c->out[1], *values = c->out[2], *p = calloc((size_t)m, sizeof *p);
  for (int64_t i = 0; i < items * m * d; i++) keys[i] = c->in[4] ? c->in[4][i] : 0;
  for (int64_t i = 0; i < items * m * e; i++) values[i] = c->in[5] ? c->in[5][i] : 0;
  for (int64_t row = 0; row < items * t; row++) {
    double *own = keys + row / t * m * d, *other = values + row / t * m * e, sum = 0;
    remember(own, c->in[3] + row * m, c->in[1] + row * d, m, d);
    remember(other, c->in[3] + row * m, c->in[2] + row * e, m, e);
    for (int64_t j = 0; j < m; j++) {
      double logit = 0;
      for (int64_t i = 0; i < d; i++) logit += scale * c->in[0][row * d + i] * own[j * d + i];
      sum += p[j] = exp(logit);
    }
    ref_put(c, 3, row, log(sum));
    for (int64_t i = 0; i < e; i++) c->out[0][row * e + i] = 0;
    for (int64_t j = 0; j < m; j++)
      for (int64_t i = 0; i < e; i++) c->out[0][row * e + i] += p[j] / sum * other[j * e + i];
  }
  free(p);
}

/* x = m^-1 r by elimination with pivots; m and r are lost. */
static void eliminate(double *m, double *r, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    int64_t best = j;
    for (int64_t i = j; i < n; i++)
      if (fabs(m[i * n + j]) > fabs(m[best * n + j])) best = i;
    for (int64_t k = 0; k <= n; k++) {
      double *a = k < n ? m + j * n + k : r + j, *b = k < n ? m + best * n + k : r + best, swap = *a;
      *a = *b, *b = swap;
    }
    for (int64_t i = 0; i < n; i++) {
      const double by = i == j ? 0 : m[i * n + j] / m[j * n + j];
      for (int64_t k = 0; k < n; k++) m[i * n + k] -= by * m[j * n + k];
      r[i] -= by * r[j];
    }
  }
  for (int64_t i = 0; i < n; i++) r[i] /= m[i * n + i];
}

static void mesa_attention(const tensor_ref_call *c) {
  const int64_t t = ref_size(c->in_shape[0], 2), d = ref_last(c->in_shape[0]), e = ref_last(c->in_shape[2]),
                items = ref_rows(c->in_shape[0]) / t;
  double *m = calloc((size_t)(d * d), sizeof *m), *x = calloc((size_t)d, sizeof *x);
  for (int64_t item = 0; item < items; item++) {
    double *h = c->out[1] + item * d * d, *own = c->out[2] + item * d * e;
    for (int64_t i = 0; i < d * d; i++)
      h[i] = c->in[6] ? (c->in[6][item * d * d + i] + c->in[6][item * d * d + i % d * d + i / d]) / 2 : 0;
    for (int64_t i = 0; i < d * e; i++) own[i] = c->in[7] ? c->in[7][item * d * e + i] : 0;
    for (int64_t row = item * t; row < (item + 1) * t; row++) {
      const double a = c->in[4] ? exp(c->in[4][row]) : 1, b = c->in[5] ? c->in[5][row] : 1,
                   *k = c->in[1] + row * d;
      for (int64_t i = 0; i < d * d; i++)
        h[i] = a * h[i] + b * k[i / d] * k[i % d], m[i] = h[i] + (i / d == i % d ? c->in[3][i % d] : 0);
      for (int64_t i = 0; i < d * e; i++) own[i] = a * own[i] + b * k[i / e] * c->in[2][row * e + i % e];
      for (int64_t i = 0; i < d; i++) x[i] = c->in[0][row * d + i];
      eliminate(m, x, d);
      for (int64_t j = 0; j < e; j++) c->out[0][row * e + j] = 0;
      for (int64_t i = 0; i < d * e; i++) c->out[0][row * e + i % e] += x[i / e] * own[i];
    }
  }
  free(m), free(x);
}

tensor_ref_fn *const linear_attention_refs[] = {
    linear_attention,  ref_taylor_features,    ref_cosformer_features,
    ref_nala_features, ref_performer_features, gated_slot_attention,
    mesa_attention,    ref_galerkin_attention, ref_fourier_attention};
