/* loss/ref.c - the losses and their gradients straight from their formulas: one row at a time, libm only, long double inside, double in and out.
 *
 * It shares nothing with ops*.c, so that one mistake cannot hide in both. A row whose target is ignored gives 0; one with a NaN or +inf among
 * its logits NaN; one with nothing valid 0. */
#include "engine/ref.h"

#include <math.h>
#include <stdlib.h>

typedef long double real;

enum { LOSS, DX };

/* Scores, their weights, and what follows from them. */
typedef struct row {
  size_t n, argmax;
  real *z, *p, *log_p;
  real max, lse, entropy;
  int nan, empty;
} row;

static real *numbers(size_t n) {
  real *v = calloc(n + 1, sizeof *v);
  if (!v) abort();
  return v;
}

/* What z says, once it is filled. */
static void settle(row *r) {
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
  r->lse = r->max + log1pl(others);
  for (size_t j = 0; j < r->n; j++) {
    r->log_p[j] = r->z[j] - r->max - log1pl(others);
    r->p[j] = expl(r->log_p[j]);
    if (r->p[j] > 0) r->entropy -= r->p[j] * r->log_p[j];
  }
}

static row open_row(size_t n) { return (row){.n = n, .z = numbers(n), .p = numbers(n), .log_p = numbers(n)}; }

static void close_row(row *r) {
  free(r->z);
  free(r->p);
  free(r->log_p);
}

static void fill(double *out, size_t n, double v) {
  for (size_t j = 0; out && j < n; j++) out[j] = v;
}

/* mass x distance, where no mass takes no part. */
static real part(real mass, real x) { return mass == 0 ? 0 : mass * x; }

/* 1 - p of class y: the sum of the others. */
static real without(const row *r, size_t y) {
  real sum = 0;
  for (size_t j = 0; j < r->n; j++)
    if (j != y) sum += r->p[j];
  return sum;
}

/* ---- cross_entropy ---- */

enum { CE_IGNORE, CE_SMOOTHING, CE_CONVENTION, CE_OVER, CE_Z, CE_CAP, CE_T };
enum { LSE = 2, ENTROPY, CLASS, RANK };

static void ce_odd(const row_ref_call *c, const row *r, double loss) {
  c->out[LOSS][0] = loss;
  fill(c->out[DX], c->n, loss);
  c->out[LSE][0] = r->nan ? (double)NAN : (double)-INFINITY;
  c->out[ENTROPY][0] = r->nan ? (double)NAN : 0;
  c->out[CLASS][0] = c->out[RANK][0] = -1;
}

/* The mass of each class. */
static void ce_masses(const row_ref_call *c, const row *r, real *a) {
  real e = (real)c->q[CE_SMOOTHING], classes = 0, target = 1, each = 0;
  for (size_t j = 0; j < c->n; j++) classes += c->q[CE_OVER] == 0 || r->z[j] != -INFINITY;
  if (c->q[CE_CONVENTION] == 2) e = 1 - e;
  if (c->n > 1 && c->q[CE_CONVENTION] == 0) target = 1 - e, each = e / classes;
  if (c->n > 1 && c->q[CE_CONVENTION] != 0) each = classes > 1 ? e / (classes - 1) : 0, target = 1 - e - each;
  for (size_t j = 0; j < c->n; j++) {
    real t = c->in[2] ? (real)c->in[2][j] : c->in[1][0] == (double)j;
    a[j] = target * t + (c->q[CE_OVER] == 0 || r->z[j] != -INFINITY ? each : 0);
    if (c->in[3]) a[j] *= c->in[3][j];
  }
}

static void cross_entropy_ref(const row_ref_call *c) {
  row r = open_row(c->n);
  real *a = numbers(c->n), mass = 0, loss = 0, cap = (real)c->q[CE_CAP];
  int ignored = c->in[1] && c->in[1][0] == c->q[CE_IGNORE], bad = 0;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j];
    r.z[j] = (isinf(cap) || isinf(x) ? x : cap * tanhl(x / cap)) / (real)c->q[CE_T];
  }
  settle(&r);
  if (!ignored) ce_masses(c, &r, a);
  for (size_t j = 0; j < c->n; j++) bad |= isnan(a[j]);
  if (r.nan || r.empty || bad) {
    r.nan |= bad;
    ce_odd(c, &r, r.nan && !ignored ? (double)NAN : 0);
  } else {
    real z = ignored ? 0 : (real)c->q[CE_Z];
    for (size_t j = 0; j < c->n; j++) mass += a[j];
    for (size_t j = 0; j < c->n; j++) loss += part(a[j], -r.log_p[j]);
    c->out[LOSS][0] = (double)(loss + z * r.lse * r.lse);
    c->out[LSE][0] = (double)r.lse;
    c->out[ENTROPY][0] = (double)r.entropy;
    c->out[CLASS][0] = (double)r.argmax;
    c->out[RANK][0] = 0;
    for (size_t j = 0; j < c->n && c->in[1]; j++) {
      size_t y = ignored ? 0 : (size_t)c->in[1][0];
      c->out[RANK][0] += r.z[j] > r.z[y] || (r.z[j] == r.z[y] && j < y);
    }
    if (ignored || !c->in[1]) c->out[RANK][0] = -1;
    for (size_t j = 0; j < c->n; j++) {
      real x = c->in[0][j], dz = isinf(cap) ? 1 : 1 / (coshl(x / cap) * coshl(x / cap));
      real g = (mass + 2 * z * r.lse) * r.p[j] - a[j];
      if (z == 0 && mass == a[j]) g = -mass * without(&r, j);
      c->out[DX][j] = (double)(g * dz / (real)c->q[CE_T]);
    }
  }
  close_row(&r);
  free(a);
}

row_ref_fn *const loss_refs[] = {
#define LOSS_OP(name) name##_ref,
#include "list.h"
#undef LOSS_OP
};
