/* row/ref.h - what the references of the row operators share: scores, maxima, sums of exponentials,
 * rows that need a rule. See ref.c. */
#ifndef SMX_ROW_REF_H
#define SMX_ROW_REF_H
#include "engine/ref.h"

#include <math.h>

#define ROW_OP(name) row_ref_fn name##_ref;
#include "list.h"
#undef ROW_OP

typedef long double real;
typedef real score_fn(const row_ref_call *c, size_t i);

static inline void fill(const row_ref_call *c, size_t count, double value) {
  for (size_t i = 0; i < count; i++) c->out[0][i] = value;
}

/* The largest score; NaN if a score is NaN or +inf; -inf if nothing is valid. */
static inline real largest(const row_ref_call *c, score_fn *score) {
  real m = -INFINITY;
  for (size_t i = 0; i < c->n; i++) {
    real s = score(c, i);
    if (isnan(s) || s == INFINITY) return NAN;
    if (s > m) m = s;
  }
  return m;
}

static inline size_t argmax(const row_ref_call *c, score_fn *score, real m) {
  size_t i = 0;
  while (score(c, i) != m) i++;
  return i;
}

/* sum of e^(score - m), without the first largest one when `without` says so. */
static inline real sum_exp(const row_ref_call *c, score_fn *score, real m, int without) {
  size_t skip = without ? argmax(c, score, m) : c->n;
  real sum = 0;
  for (size_t i = 0; i < c->n; i++)
    if (i != skip) sum += expl(score(c, i) - m);
  return sum;
}

/* Whether the row has no ordinary maximum (NaN, or nothing valid); if so, writes its outputs. */
static inline int special_row(const row_ref_call *c, size_t count, real m, double empty) {
  if (isnan(m)) fill(c, count, (double)NAN);
  if (m == -INFINITY) fill(c, count, empty);
  return isnan(m) || m == -INFINITY;
}

/* y_i = e^score_i / (e^sink + sum_j e^score_j) */
static inline void weights(const row_ref_call *c, score_fn *score, real sink) {
  real m = largest(c, score);
  if (isnan(sink) || sink == INFINITY) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  real top = m > sink ? m : sink;
  real sum = sum_exp(c, score, top, 0) + expl(sink - top);
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)(expl(score(c, i) - top) / sum);
}

/* y_i = [score_i = max] / #max, or all to the first. */
static inline void one_hot(const row_ref_call *c, score_fn *score, int split) {
  real m = largest(c, score);
  if (special_row(c, c->n, m, 0)) return;
  size_t count = 0, seen = 0;
  for (size_t i = 0; i < c->n; i++) count += score(c, i) == m;
  for (size_t i = 0; i < c->n; i++) {
    int is_max = score(c, i) == m;
    c->out[0][i] = !is_max ? 0 : split ? 1 / (double)count : (double)(seen == 0);
    seen += (size_t)is_max;
  }
}

static inline real plain(const row_ref_call *c, size_t i) { return c->in[0][i]; }

#endif
