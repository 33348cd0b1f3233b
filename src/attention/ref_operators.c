/* attention/ref_operators.c - the operators of attention straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "engine/ref.h"
#include "engine/ref_draws.h"
#include "ref.h"

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

/* Sheets [items][heads][l][t] through kernels [heads][a][b]. */
static void convolve(const double *kernel, const int64_t *shape, int64_t heads, const sheet *s, double *x) {
  const int64_t a = size(shape, 2), b = size(shape, 1), cells = s->l * s->t;
  double *made = calloc((size_t)(s->items * cells), sizeof *made);
  for (int64_t at = 0; at < s->items * cells * a * b; at++) {
    const int64_t cell = at / (a * b), u = at / b % a, w = at % b, which = cell / cells;
    const int64_t i = cell / s->t % s->l - (a - 1) + u, j = cell % s->t - b / 2 + w;
    if (i >= 0 && i < s->l && j >= 0 && j < s->t)
      made[cell] += kernel[(which % heads * a + u) * b + w] * x[which * cells + i * s->t + j];
  }
  for (int64_t at = 0; at < s->items * cells; at++) x[at] = made[at];
  free(made);
}
static void mix_heads(const double *mix, int64_t heads, const sheet *s, double *x) {
  const int64_t cells = s->l * s->t;
  double *made = calloc((size_t)(s->items * cells), sizeof *made);
  for (int64_t at = 0; at < s->items * cells; at++)
    for (int64_t g = 0; g < heads; g++) {
      const int64_t which = at / cells, unit = which - which % heads;
      made[at] += mix[which % heads * heads + g] * x[(unit + g) * cells + at % cells];
    }
  for (int64_t at = 0; at < s->items * cells; at++) x[at] = made[at];
  free(made);
}

static void multi_token_attention(const tensor_ref_call *c) {
  const sheet s = scores_of(c, NULL);
  const int64_t heads = size(c->in_shape[0], 3), all = s.items * s.l * s.t;
  double *seen = calloc((size_t)all, sizeof *seen);
  for (int64_t at = 0; at < all; at++) {
    const int64_t i = at / s.t % s.l, j = at % s.t, item = at / (s.l * s.t) / heads;
    seen[at] =
        !(c->q[1] != 0 && j - i > s.t - s.l) && !(c->in[4] && c->in[4][(item * s.l + i) * s.t + j] == 0);
    if (seen[at] == 0) s.s[at] = 0;
  }
  convolve(c->in[3], c->in_shape[3], heads, &s, s.s);
  if (c->in[5]) mix_heads(c->in[5], heads, &s, s.s);
  for (int64_t at = 0; at < all; at++) s.s[at] = seen[at] != 0 ? s.s[at] : -INFINITY;
  for (int64_t i = 0; i < s.items * s.l; i++) normalise(s.s + i * s.t, s.t, 1, 0);
  if (c->in[6]) convolve(c->in[6], c->in_shape[6], heads, &s, s.s);
  for (int64_t at = 0; at < all; at++) s.s[at] = seen[at] != 0 ? s.s[at] : 0;
  if (c->in[7]) mix_heads(c->in[7], heads, &s, s.s);
  free(seen);
  apply(c, &s);
}

static void segment_attention(const tensor_ref_call *c) {
  const int64_t l = size(c->in_shape[0], 2), t = size(c->in_shape[0], 1), e = size(c->in_shape[1], 1),
                rows = ref_rows(c->in_shape[0]);
  double *p = calloc((size_t)t, sizeof *p);
  for (int64_t row = 0; row < rows; row++) {
    double sum = 0, at = -INFINITY;
    for (int64_t j = 0; j < t; j++) {
      const int there = (double)j >= c->in[2][row] && (double)j < c->in[3][row];
      sum += p[j] = there ? exp(c->in[0][row * t + j]) : 0;
      if (there && (double)j == c->in[4][row]) at = c->in[0][row * t + j];
    }
    for (int64_t i = 0; i < e; i++) {
      c->out[0][row * e + i] = 0;
      for (int64_t j = 0; j < t && sum > 0; j++) {
        const double w = c->q[0] == 0 ? p[j] / sum : (double)j == c->in[4][row] && at > -INFINITY;
        c->out[0][row * e + i] += w * c->in[1][(row / l * t + j) * e + i];
      }
    }
    c->out[1][row] = sum > 0 ? at - log(sum) : -INFINITY;
    ref_put(c, 2, row, log(sum));
  }
  free(p);
}

static double gaussian(const double *a, const double *b, int64_t d, double scale) {
  double square = 0;
  for (int64_t i = 0; i < d; i++) square += (a[i] - b[i]) * (a[i] - b[i]);
  return exp(-scale * square / 2);
}
/* m c = b by elimination, for every column of b; m is positive. */
static void solve(double *m, double *b, int64_t n, int64_t columns) {
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < n; i++) {
      const double by = i == k ? 0 : m[i * n + k] / m[k * n + k];
      for (int64_t j = 0; j < n; j++) m[i * n + j] -= by * m[k * n + j];
      for (int64_t j = 0; j < columns; j++) b[i * columns + j] -= by * b[k * columns + j];
    }
  for (int64_t i = 0; i < n * columns; i++) b[i] /= m[i / columns * (n + 1)];
}

/* By the inverse itself. */
static void soft_attention(const tensor_ref_call *c) {
  const int64_t t = size(c->in_shape[0], 2), d = size(c->in_shape[0], 1), m = size(c->in_shape[1], 2),
                e = size(c->in_shape[2], 1), items = ref_count(c->in_shape[0]) / t / d;
  const double scale = c->q[0] == 0 ? 1 / sqrt((double)d) : c->q[0];
  double *p = calloc((size_t)(m * m), sizeof *p), *b = calloc((size_t)(m * e), sizeof *b),
         *root = calloc((size_t)m + 1, sizeof *root);
  for (int64_t item = 0; item < items; item++) {
    const double *x = c->in[0] + item * t * d, *z = c->in[1] + item * m * d, *v = c->in[2] + item * t * e;
    for (int64_t i = 0; i < m; i++) {
      double sum = 0;
      for (int64_t j = 0; j < m; j++) sum += gaussian(z + i * d, z + j * d, d, scale);
      root[i] = c->q[3] != 0 ? sqrt(sum) : 1;
    }
    for (int64_t i = 0; i < m * m; i++)
      p[i] = gaussian(z + i / m * d, z + i % m * d, d, scale) + (i % (m + 1) == 0 ? c->q[2] : 0);
    for (int64_t i = 0; i < m * e; i++) {
      b[i] = 0;
      for (int64_t j = 0; j < t; j++) b[i] += gaussian(x + j * d, z + i / e * d, d, scale) * v[j * e + i % e];
      b[i] /= root[i / e];
    }
    solve(p, b, m, e);
    for (int64_t i = 0; i < m * e; i++) b[i] /= root[i / e];
    for (int64_t i = 0; i < t * e; i++) {
      double sum = 0;
      for (int64_t a = 0; a < m; a++) sum += gaussian(x + i / e * d, z + a * d, d, scale) * b[a * e + i % e];
      c->out[0][item * t * e + i] = sum;
    }
  }
  free(p), free(b), free(root);
}

static void max_sim(const tensor_ref_call *c) {
  const int64_t l = size(c->in_shape[0], 2), d = size(c->in_shape[0], 1),
                b = c->in[2] ? size(c->in_shape[2], 1) - 1 : 1, items = ref_count(c->in_shape[0]) / l / d;
  for (int64_t at = 0; at < items * b; at++) {
    c->out[0][at] = 0;
    for (int64_t i = 0; i < l; i++) {
      const int64_t row = at / b * l + i;
      double most = -INFINITY, sum = 0;
      int64_t best = -1;
      for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < size(c->in_shape[1], 2); j++) {
          double dot = 0;
          if (c->in[2] && ((double)j < c->in[2][at % b] || (double)j >= c->in[2][at % b + 1])) continue;
          if ((c->in[4] && c->in[4][j] == 0) || (c->in[3] && c->in[3][row] == 0)) continue;
          for (int64_t k = 0; k < d; k++) dot += c->in[0][row * d + k] * c->in[1][j * d + k];
          if (pass) sum += exp((dot - most) / c->q[0]);
          else if (best < 0 || dot > most) most = dot, best = j;
        }
      ref_put(c, 1, at * l + i, (double)best);
      if (!c->in[3] || c->in[3][row] != 0) c->out[0][at] += most + (c->q[0] > 0 ? c->q[0] * log(sum) : 0);
    }
  }
}

/* How many of n numbers come before x[at]: larger ones, and earlier ones of equal ones. */
static int64_t rank(const double *x, int64_t n, int64_t at, const int *taken) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++)
    count += !(taken && taken[i]) && (x[i] > x[at] || (x[i] == x[at] && i < at));
  return count;
}
/* Index of the kept ones, then -1. */
static void list(const int *kept, int64_t n, double *index) {
  int64_t at = 0;
  for (int64_t j = 0; j < n; j++)
    if (kept[j]) index[at++] = (double)j;
  while (at < n) index[at++] = -1;
}
/* Keeps `most` more of the largest. */
static void keep(const double *x, int64_t n, int64_t most, int *kept) {
  for (int64_t k = 0; k < most; k++) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++)
      if (!kept[j] && (best < 0 || x[j] > x[best])) best = j;
    if (best >= 0) kept[best] = 1;
  }
}

/* The share of the mass that the `count` largest have. */
static double share_of(const double *x, int64_t n, double count) {
  double before = 0, all = 0;
  for (int64_t r = 0; r < n; r++)
    for (int64_t j = 0; j < n; j++)
      if (rank(x, n, j, NULL) == r) all += x[j], before += (double)r < count ? x[j] : 0;
  return before / all;
}

/* Key by key: the layer whose next one has the least mass before it. */
static void kv_budget_prefix(const tensor_ref_call *c) {
  const int64_t n = size(c->in_shape[0], 2), t = size(c->in_shape[0], 1),
                items = ref_count(c->in_shape[0]) / n / t, first = (int64_t)c->q[1], last = (int64_t)c->q[2],
                whole = first + last < t ? first + last : t;
  int *kept = calloc((size_t)t, sizeof *kept);
  for (int64_t item = 0; item < items; item++) {
    const double *mass = c->in[0] + item * n * t;
    double *budget = c->out[1] + item * n;
    for (int64_t i = 0; i < n; i++) budget[i] = (double)whole;
    for (int64_t left = (c->q[0] > 0 ? (int64_t)c->q[0] : (n * t + 1) / 2) - n * whole; left > 0; left--) {
      double least = INFINITY;
      int64_t best = 0;
      for (int64_t i = 0; i < n; i++) {
        const double share = share_of(mass + i * t, t, budget[i] - (double)whole);
        if (budget[i] < (double)t && share < least) least = share, best = i;
      }
      budget[best]++;
    }
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < t; j++) kept[j] = j < first || j >= t - last;
      keep(mass + i * t, t, (int64_t)budget[i] - whole, kept);
      list(kept, t, c->out[0] + (item * n + i) * t);
    }
  }
  free(kept);
}

/* Seats by votes: quotas with what is above the cap shared again, then the largest remainders. */
static void seat(const double *votes, int64_t n, double all_seats, double cap, double *share,
                 double *budget) {
  double left = all_seats;
  for (int64_t i = 0; i < n; i++) budget[i] = 0;
  for (int64_t round = 0; round < n; round++) {
    double all = 0, seats = all_seats;
    for (int64_t i = 0; i < n; i++)
      if (budget[i] < cap) all += votes[i];
      else seats -= cap;
    for (int64_t i = 0; i < n; i++)
      if (budget[i] < cap) share[i] = all > 0 ? seats * votes[i] / all : 0;
    for (int64_t i = 0; i < n; i++)
      if (budget[i] < cap && share[i] > cap) budget[i] = share[i] = cap;
  }
  for (int64_t i = 0; i < n; i++) left -= budget[i] = floor(share[i] + 1e-9);
  for (; left > 0; left--) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
      if (share[i] - budget[i] > 1e-9 &&
          (best < 0 || share[i] - budget[i] > share[best] - budget[best] + 1e-9))
        best = i;
    if (best >= 0) budget[best]++;
  }
}

static void kv_budget_dynamic(const tensor_ref_call *c) {
  const int64_t n = size(c->in_shape[0], 3), h = size(c->in_shape[0], 2), t = size(c->in_shape[0], 1),
                items = ref_count(c->in_shape[0]) / n / h / t,
                there = (double)t > c->q[1] ? t - (int64_t)c->q[1] : 0,
                base = c->q[0] < (double)there ? (int64_t)c->q[0] : there;
  const double cap = fmin(floor(c->q[2] * (double)base), (double)there);
  double *votes = calloc((size_t)n, sizeof *votes), *share = calloc((size_t)n, sizeof *share);
  int *late = calloc((size_t)(n * h * t), sizeof *late), *kept = calloc((size_t)t, sizeof *kept);
  for (int64_t i = 0; i < n * h * t; i++) late[i] = i % t >= there;
  for (int64_t item = 0; item < items; item++) {
    const double *mass = c->in[0] + item * n * h * t;
    double *budget = c->out[1] + item * n;
    for (int64_t i = 0; i < n; i++) votes[i] = 0;
    for (int64_t j = 0; j < n * h * t; j++)
      votes[j / (h * t)] += !late[j] && rank(mass, n * h * t, j, late) < base * n * h;
    seat(votes, n, (double)(base * n), cap, share, budget);
    for (int64_t i = 0; i < n * h; i++) {
      for (int64_t j = 0; j < t; j++) kept[j] = j >= there;
      keep(mass + i * t, t, (int64_t)budget[i / h], kept);
      list(kept, t, c->out[0] + (item * n * h + i) * t);
    }
    for (int64_t i = 0; i < n; i++) budget[i] += (double)(t - there);
  }
  free(votes), free(share), free(late), free(kept);
}

tensor_ref_fn *const attention_refs[] = {
    sinkhorn_attention,  orthostochastic_attention, max_sim,           kv_budget_prefix,
    kv_budget_dynamic,   multi_token_attention,     soft_attention,    segment_attention,
    lsh_codes_ref,       magicpig_attention_ref,    kde_attention_ref, nystrom_attention_ref,
    additive_scores_ref, entmax_attention_ref,      nap_attention_ref, shaped_attention_ref};
