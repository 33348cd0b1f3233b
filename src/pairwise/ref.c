/* pairwise/ref.c - losses of pairs straight from the formulas, for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/ref.h"

/* The inputs of a call; those of an operator without b have one less. */
typedef struct pairs {
  const double *a, *b, *s, *temperature, *mask, *own[3];
  int64_t n, m, d;
  bool normalise, self;
  double divisor;
} pairs;

/* Parameters begin with temperature, normalise, similarities. */
static pairs pairs_of(const tensor_ref_call *c, bool has_b) {
  const int rest = has_b ? 2 : 1;
  const bool features = c->q[2] == 0;
  pairs p = {.a = features ? c->in[0] : NULL, .b = has_b ? c->in[1] : NULL, .s = features ? NULL : c->in[0]};
  p.temperature = c->in[rest], p.mask = c->in[rest + 1];
  for (int i = 0; i < 3; i++) p.own[i] = c->in[rest + 2 + i];
  p.n = c->in_shape[0][0], p.d = c->in_shape[0][1];
  p.m = p.b ? c->in_shape[1][0] : features ? p.n : p.d;
  p.divisor = p.temperature ? *p.temperature : c->q[0], p.normalise = c->q[1] != 0;
  return p;
}

static double length_of(const double *x, int64_t d) {
  double square = 0;
  for (int64_t k = 0; k < d; k++) square += x[k] * x[k];
  return fmax(sqrt(square), 1e-12);
}

static double logit(const pairs *p, int64_t i, int64_t j) {
  const double *a = p->a + i * p->d, *b = p->b ? p->b + j * p->d : p->a + j * p->d;
  double sum = 0;
  if (p->s) return p->s[i * p->m + j] / p->divisor;
  for (int64_t k = 0; k < p->d; k++) sum += a[k] * b[k];
  return sum / (p->normalise ? length_of(a, p->d) * length_of(b, p->d) : 1) / p->divisor;
}

/* Of the pairs of a row: which are positives, which count at all. */
typedef struct row_sets {
  const char *positive, *counts;
} row_sets;
typedef enum which { ALL, POSITIVES, NEGATIVES } which;
static bool is_in(const row_sets *r, int64_t j, which w) {
  return r->counts[j] && (w == ALL || (r->positive[j] != 0) == (w == POSITIVES));
}
static double lse_of(const pairs *p, int64_t i, const row_sets *r, which w) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, w)) most = fmax(most, logit(p, i, j));
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, w)) sum += exp(logit(p, i, j) - most);
  return sum > 0 ? most + log(sum) : -INFINITY;
}

/* form 0: out, 1: in, 2: nce */
static double contrast(const pairs *p, int64_t i, const row_sets *r, int form, bool decoupled) {
  double count = 0, mean = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, POSITIVES)) count++, mean += logit(p, i, j);
  const double all = lse_of(p, i, r, decoupled ? NEGATIVES : ALL), some = lse_of(p, i, r, POSITIVES);
  if (count == 0 || isinf(all)) return 0;
  if (!decoupled && (form != 0 || count == 1)) /* the same, with the digits of small losses */
    return log1p(exp(lse_of(p, i, r, NEGATIVES) - some)) + (form == 1 ? log(count) : 0);
  return form == 0 ? all - mean / count : all - some + (form == 1 ? log(count) : 0);
}

/* Marks the pairs of row i that the mask keeps, and forgets positives. */
static void begin_row(const pairs *p, int64_t i, char *positive, char *counts) {
  for (int64_t j = 0; j < p->m; j++)
    positive[j] = 0, counts[j] = (!p->mask || p->mask[i * p->m + j] != 0) && !(p->self && i == j);
}
typedef void mark_fn(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts);

static void each_row(const tensor_ref_call *c, const pairs *p, mark_fn *mark, int form, bool decoupled) {
  char *positive = calloc(2 * (size_t)p->m + 1, 1), *counts = positive + p->m;
  for (int64_t i = 0; i < p->n; i++) {
    begin_row(p, i, positive, counts);
    mark(c, p, i, positive, counts);
    ref_put(c, 0, i, contrast(p, i, &(row_sets){positive, counts}, form, decoupled));
  }
  free(positive);
}

static void mark_key(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const double at = p->own[0] ? p->own[0][i] : (double)i;
  if (p->own[0] && at == c->q[4]) return;
  positive[(int64_t)at] = counts[(int64_t)at] = 1;
}
static void info_nce(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  each_row(c, &p, mark_key, 0, c->q[3] != 0);
}

/* Rows, and columns as rows. */
static void clip_loss(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  for (int64_t i = 0; i < p.n; i++) {
    double row = 0, column = 0;
    for (int64_t j = 0; j < p.n; j++) {
      if (!p.mask || i == j || p.mask[i * p.n + j] != 0) row += exp(logit(&p, i, j) - logit(&p, i, i));
      if (!p.mask || i == j || p.mask[j * p.n + i] != 0) column += exp(logit(&p, j, i) - logit(&p, i, i));
    }
    ref_put(c, 0, i, (log(row) + log(column)) / 2);
  }
}

static void mark_view(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const int64_t half = p->n / 2, at = c->q[4] != 0 ? i + (i % 2 ? -1 : 1) : i < half ? i + half : i - half;
  positive[at] = counts[at] = 1;
}
static void nt_xent(const tensor_ref_call *c) {
  pairs p = pairs_of(c, false);
  p.self = true;
  each_row(c, &p, mark_view, 0, c->q[3] != 0);
}

static void mark_label(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const double *label = p->own[0], *other = p->own[1] ? p->own[1] : label;
  for (int64_t j = 0; j < p->m; j++)
    positive[j] = label ? label[i] >= 0 && label[i] == other[j] : p->own[2][i * p->m + j] != 0;
}
static void supervised_contrastive(const tensor_ref_call *c) {
  pairs p = pairs_of(c, true);
  p.self = !p.b && p.n == p.m && (p.a || c->q[5] != 0);
  each_row(c, &p, mark_label, (int)c->q[4], c->q[3] != 0);
}

tensor_ref_fn *const pairwise_refs[] = {info_nce, clip_loss, nt_xent, supervised_contrastive};
