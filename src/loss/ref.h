/* loss/ref.h - what the references of the losses share: scores with their weights, rows that need a
 * rule, students and teachers. See ref.c. */
#ifndef SMX_LOSS_REF_H
#define SMX_LOSS_REF_H
#include "engine/ref.h"

#include <math.h>
#include <stdlib.h>

#define LOSS_OP(name) row_ref_fn name##_ref;
#include "list.h"
#undef LOSS_OP

typedef long double real;

enum { LOSS, DX };

/* Scores, their weights, and what follows from them. */
typedef struct row {
  size_t n, argmax;
  real *z, *p, *log_p;
  real max, lse, log_sum, entropy; /* lse = max + log_sum */
  int nan, empty;
} row;

static inline real *numbers(size_t n) {
  real *v = calloc(n + 1, sizeof *v);
  if (!v) abort();
  return v;
}

/* What follows from z, once it is filled. */
static inline void finalize(row *r) {
  r->max = -INFINITY;
  for (size_t j = 0; j < r->n; j++) {
    r->nan |= isnan(r->z[j]) || r->z[j] == INFINITY;
    if (r->z[j] > r->max) r->max = r->z[j], r->argmax = j;
  }
  r->empty = !r->nan && r->max == -INFINITY;
  if (r->nan || r->empty) return;
  real others = 0;
  for (size_t j = 0; j < r->n; j++)
    if (j != r->argmax) others += expl(r->z[j] - r->max);
  r->log_sum = log1pl(others);
  r->lse = r->max + r->log_sum;
  for (size_t j = 0; j < r->n; j++) {
    r->log_p[j] = r->z[j] - r->max - log1pl(others);
    r->p[j] = expl(r->log_p[j]);
    if (r->p[j] > 0) r->entropy -= r->p[j] * r->log_p[j];
  }
}

static inline row open_row(size_t n) {
  return (row){.n = n, .z = numbers(n), .p = numbers(n), .log_p = numbers(n)};
}

static inline void close_row(row *r) {
  free(r->z);
  free(r->p);
  free(r->log_p);
}

static inline void fill(double *out, size_t n, double v) {
  for (size_t j = 0; out && j < n; j++) out[j] = v;
}

/* mass x distance, 0 where the mass is 0. */
static inline real part(real mass, real x) { return mass == 0 ? 0 : mass * x; }

/* 1 - p of class y: the sum of the others. */
static inline real without(const row *r, size_t y) {
  real sum = 0;
  for (size_t j = 0; j < r->n; j++)
    if (j != y) sum += r->p[j];
  return sum;
}

/* One value for the loss and the gradient. */
static inline void give(const row_ref_call *c, double value) {
  c->out[LOSS][0] = value;
  fill(c->out[DX], c->n, value);
}

/* ---- one class a row: a loss f(log p_y, 1 - p_y), with f' by log p_y ---- */

typedef real score_fn(const row_ref_call *c, size_t j);

/* Reads a row. False when it needs a rule or is ignored; then its outputs are written. */
static inline int open_hard(const row_ref_call *c, row *r, score_fn *score, size_t *y) {
  *r = open_row(c->n);
  for (size_t j = 0; j < c->n; j++) r->z[j] = score(c, j);
  finalize(r);
  int ignored = c->in[1][0] == c->q[0];
  *y = ignored ? 0 : (size_t)c->in[1][0];
  if (!ignored && !r->nan && !r->empty) return 1;
  c->out[LOSS][0] = r->nan && !ignored ? (double)NAN : 0;
  fill(c->out[DX], c->n, c->out[LOSS][0]);
  close_row(r);
  return 0;
}

static inline void close_hard(const row_ref_call *c, row *r, size_t y, real loss, real slope) {
  c->out[LOSS][0] = (double)loss;
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(j == y ? slope * without(r, y) : -slope * r->p[j]);
  close_row(r);
}

static inline real logit(const row_ref_call *c, size_t j) { return c->in[0][j]; }

/* ---- no class ---- */

static inline int open_free(const row_ref_call *c, row *r, real temperature) {
  *r = open_row(c->n);
  for (size_t j = 0; j < c->n; j++) r->z[j] = c->in[0][j] / temperature;
  finalize(r);
  if (!r->nan && !r->empty) return 1;
  c->out[LOSS][0] = r->nan ? (double)NAN : 0;
  fill(c->out[DX], c->n, c->out[LOSS][0]);
  close_row(r);
  return 0;
}

/* ---- a student and a teacher ---- */

typedef struct two {
  row s, t;
} two;

static inline void close_two(two *w) {
  close_row(&w->s);
  close_row(&w->t);
}

/* skip: a class that is left out, or n. */
static inline int open_two(const row_ref_call *c, two *w, real t_student, real t_teacher, size_t skip) {
  *w = (two){open_row(c->n), open_row(c->n)};
  for (size_t j = 0; j < c->n; j++) {
    w->s.z[j] = c->in[0][j] / t_student, w->t.z[j] = c->in[1][j] / t_teacher;
    w->s.nan |= isnan(w->s.z[j]) || w->s.z[j] == INFINITY;
    w->t.nan |= isnan(w->t.z[j]) || w->t.z[j] == INFINITY;
    if (j == skip) w->s.z[j] = w->t.z[j] = -INFINITY;
  }
  finalize(&w->s);
  finalize(&w->t);
  if (!w->s.nan && !w->t.nan && !w->s.empty && !w->t.empty) return 1;
  give(c, (w->s.nan || w->t.nan) ? (double)NAN : 0);
  close_two(w);
  return 0;
}

/* D(a || b); a class of weight 0 in a is left out. */
static inline real divergence(const row *a, const row *b) {
  real sum = 0;
  for (size_t j = 0; j < a->n; j++)
    if (a->p[j] > 0) sum += a->p[j] * (a->log_p[j] - b->log_p[j]);
  return sum;
}
static inline real crossed(const row *a, const row *b) {
  real sum = 0;
  for (size_t j = 0; j < a->n; j++)
    if (a->p[j] > 0) sum -= a->p[j] * b->log_p[j];
  return sum;
}

/* The target against the others: log p and log (1 - p). */
static inline void own_share(const row *others, real z, real *log_p, real *log_q) {
  real away = (z - others->max) - others->log_sum, size = fabsl(away), small = log1pl(expl(-size));
  *log_p = away > 0 ? -small : away - small;
  *log_q = away > 0 ? -away - small : -small;
}

/* ---- the same where both are nearly even, so that p - q is next to nothing ---- */

/* e^x - 1 - x */
static inline real bend(real x) {
  if (fabsl(x) > 0.01L) return expm1l(x) - x;
  real sum = 1;
  for (int k = 12; k > 2; k--) sum = 1 + sum * x / k;
  return x * x / 2 * sum;
}

/* How far teacher and student are apart, each below its largest; log q - log p is that less a
 * constant. */
static inline real below(const row *r, real z) { return z - r->max; }
static inline real constant(const two *w) {
  real sum = 0;
  for (size_t j = 0; j < w->s.n; j++) {
    real z = below(&w->s, w->s.z[j]), u = below(&w->t, w->t.z[j]);
    sum += fabsl(u - z) < 1 ? w->t.p[j] * expm1l(z - u) : expl(z - w->t.log_sum) - w->t.p[j];
  }
  return -log1pl(sum);
}
static inline real log_ratio(const two *w, real constant, size_t j) {
  real z = below(&w->s, w->s.z[j]), u = below(&w->t, w->t.z[j]);
  return isinf(z) && isinf(u) ? 0 : u - z - constant;
}
/* D(q || p), or D(p || q): sum q (e^-a - 1 + a), a = log q - log p, because both sum to 1. */
static inline real even_divergence(const two *w, int reverse) {
  const row *own = reverse ? &w->s : &w->t, *other = reverse ? &w->t : &w->s;
  real c = constant(w), sum = 0;
  for (size_t j = 0; j < own->n; j++) {
    real a = log_ratio(w, c, j) * (reverse ? -1 : 1);
    if (own->p[j] > 0) sum += fabsl(a) < 1 ? own->p[j] * bend(-a) : other->p[j] + own->p[j] * (a - 1);
    else sum += other->p[j];
  }
  return sum;
}
/* p - q */
static inline real even_gap(const two *w, real constant, size_t j) {
  real a = log_ratio(w, constant, j);
  return fabsl(a) < 1 ? w->t.p[j] * expm1l(-a) : w->s.p[j] - w->t.p[j];
}
/* Of the target, at z and u in the rows, against the others: D([q, 1 - q] || [p, 1 - p]), and
 * p - q. */
static inline real even_own(const two *w, real z, real u, real *gap) {
  real a = below(&w->t, u) - below(&w->s, z) - constant(w), lp, lq, tp, tq;
  own_share(&w->s, z, &lp, &lq);
  own_share(&w->t, u, &tp, &tq);
  if (isinf(u) && isinf(z)) a = 0;
  real q = expl(tp), c = -log1pl(q * expm1l(-a));
  *gap = fabsl(a) < 1 ? q * expm1l(c - a) : expl(lp) - q;
  return fabsl(a) < 1 ? q * bend(c - a) + expl(tq) * bend(c) : part(q, tp - lp) + part(expl(tq), tq - lq);
}

/* ---- sums over the classes ---- */

/* False when the row needs no sums: ignored, or without elements, or with a NaN (infinite:
 * or an infinity); then its outputs are written. */
static inline int open_terms(const row_ref_call *c, const double *target, int infinite, size_t *y) {
  int bad = 0;
  for (size_t j = 0; j < c->n; j++) bad |= isnan(c->in[0][j]) || (infinite && isinf(c->in[0][j]));
  *y = target && target[0] != c->q[0] ? (size_t)target[0] : c->n;
  if (!bad && (!target || *y < c->n)) return 1;
  give(c, target && *y == c->n ? 0 : (double)NAN);
  return 0;
}

static inline real sigmoid(real x) { return 1 / (1 + expl(-x)); }
static inline real softplus(real x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }

#endif
