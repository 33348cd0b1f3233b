/* loss/ref.c - the losses and their gradients straight from their formulas: one row at a time, libm
 * only, long double inside, double in and out. Here: cross-entropy and what is made of one row's
 * log p. Others: ref_*.c.
 *
 * They share nothing with ops*.c, so that one mistake cannot hide in both. A row whose target is
 * ignored gives 0; one with a NaN or +inf among its logits NaN; one with nothing valid 0. */
#include "ref.h"

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

void cross_entropy_ref(const row_ref_call *c) {
  row r = open_row(c->n);
  real *a = numbers(c->n), mass = 0, loss = 0, cap = (real)c->q[CE_CAP];
  int ignored = c->in[1] && c->in[1][0] == c->q[CE_IGNORE], bad = 0;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j];
    r.z[j] = (isinf(cap) || isinf(x) ? x : cap * tanhl(x / cap)) / (real)c->q[CE_T];
  }
  finalize(&r);
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

/* ---- one class a row ---- */

void focal_loss_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real u = r.log_p[y], q = without(&r, y), gamma = c->q[1],
       alpha = (real)c->q[2] * (c->in[2] ? c->in[2][y] : 1);
  real slope =
      -alpha * powl(q, gamma) * (1 + (r.p[y] == 0 ? 0 : gamma * r.p[y] * (u == 0 ? 1 : u / expm1l(u))));
  close_hard(c, &r, y, part(alpha * powl(q, gamma), -u), slope);
}

/* sum_k e_k q^k, and its derivative. */
enum { POLY_TERMS = 6 };
static real series(const double *e, real q, real *slope) {
  real sum = 0;
  *slope = 0;
  for (int k = 1; k <= POLY_TERMS; k++) {
    sum += (real)e[k - 1] * powl(q, k);
    *slope += k * (real)e[k - 1] * powl(q, k - 1);
  }
  return sum;
}

void poly_loss_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  const double e[POLY_TERMS] = {c->q[1], c->q[2], c->q[4], c->q[5], c->q[6], c->q[7]};
  real q = without(&r, y), slope, sum = series(e, q, &slope);
  close_hard(c, &r, y, -r.log_p[y] + sum, -1 - r.p[y] * slope);
}

void soft_poly_loss_ref(const row_ref_call *c) {
  row r;
  real mass = 0, loss = 0, share = 0, q = 0, slope;
  if (!open_free(c, &r, 1)) return;
  const double *t = c->in[1];
  const real top = without(&r, r.argmax);
  for (size_t j = 0; j < c->n; j++) {
    mass += t[j];
    loss += part(t[j], -r.log_p[j]);
    share += t[j] * r.p[j];
    q += t[j] * (j == r.argmax ? top : 1 - r.p[j]);
  }
  c->out[LOSS][0] = (double)(loss + mass * series(c->q, mass == 0 ? 0 : q / mass, &slope));
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(mass * r.p[j] - t[j] + slope * r.p[j] * (share - t[j]));
  close_row(&r);
}

void poly_focal_loss_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real u = r.log_p[y], q = without(&r, y), gamma = c->q[1], e = c->q[2], w = c->in[2] ? c->in[2][y] : 1;
  real focal = 1 + (r.p[y] == 0 ? 0 : gamma * r.p[y] * (u == 0 ? 1 : u / expm1l(u)));
  real slope = -w * powl(q, gamma) * focal - w * e * (gamma + 1) * powl(q, gamma) * r.p[y];
  close_hard(c, &r, y, part(w * powl(q, gamma), -u) + w * e * powl(q, gamma + 1), slope);
}

void squared_error_logit_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real q = fmaxl(c->in[2][0], c->q[2]), away = r.log_p[y] - logl(q), raw = (real)c->in[0][y] - logl(q);
  if (c->q[1] == 0) close_hard(c, &r, y, away * away / 2, away);
  if (c->q[1] == 2) close_hard(c, &r, y, part(q, -r.log_p[y]), -q);
  if (c->q[1] != 1) return;
  fill(c->out[DX], c->n, 0);
  c->out[LOSS][0] = (double)(raw * raw / 2);
  c->out[DX][y] = (double)raw;
  close_row(&r);
}

static real adjusted(const row_ref_call *c, size_t j) {
  return c->in[2][j] == 0 ? -(real)INFINITY : c->in[0][j] + (real)c->q[1] * logl(c->in[2][j]);
}
void logit_adjustment_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (open_hard(c, &r, adjusted, &y)) close_hard(c, &r, y, -r.log_p[y], -1);
}

/* max x - the mean of x, over all elements or the finite ones; *count: how many those are. */
static real above_mean(const row *r, int finite, real *count) {
  real sum = 0;
  *count = 0;
  for (size_t j = 0; j < r->n; j++) {
    if (finite && r->z[j] == -INFINITY) continue;
    sum += r->max - r->z[j];
    ++*count;
  }
  return sum / *count;
}

void max_suppression_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real alpha = c->q[1], b = c->q[2], count, squares = 0, mean = above_mean(&r, c->q[3] == 1, &count);
  for (size_t j = 0; j < c->n; j++) squares += r.z[j] == -INFINITY ? 0 : r.z[j] * r.z[j];
  c->out[LOSS][0] = (double)(-r.log_p[y] + part(alpha, mean) + part(b, squares) / 2);
  for (size_t j = 0; j < c->n; j++) {
    real g = (j == y ? -without(&r, y) : r.p[j]) + alpha * (j == r.argmax) +
             (r.z[j] == -INFINITY ? 0 : b * r.z[j]);
    if (c->q[3] == 0 || r.z[j] != -INFINITY) g -= alpha / count;
    c->out[DX][j] = (double)g;
  }
  close_row(&r);
}

/* ---- no class ---- */

void outlier_exposure_ref(const row_ref_call *c) {
  row r;
  real count;
  if (!open_free(c, &r, 1)) return;
  real mean = above_mean(&r, c->q[0] == 1, &count);
  c->out[LOSS][0] = (double)(r.lse - r.max + mean);
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(r.p[j] - (c->q[0] == 1 && r.z[j] == -INFINITY ? 0 : 1 / count));
  close_row(&r);
}

void energy_margin_ref(const row_ref_call *c) {
  row r;
  if (!open_free(c, &r, (real)c->q[0])) return;
  int out = c->in[1] && c->in[1][0] != 0;
  real energy = -(real)c->q[0] * r.lse,
       over = fmaxl(0, out ? (real)c->q[2] - energy : energy - (real)c->q[1]);
  c->out[LOSS][0] = (double)(over * over);
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] = (double)((out ? 2 : -2) * over * r.p[j]);
  close_row(&r);
}

/* ---- robust_temperature ---- */

static real tau_of(const row_ref_call *c) { return c->in[2] ? c->in[2][0] : c->q[1]; }
static real tempered(const row_ref_call *c, size_t j) { return c->in[0][j] / tau_of(c); }
void robust_temperature_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, tempered, &y)) return;
  close_hard(c, &r, y, tau_of(c) * (-r.log_p[y] - logl((real)c->n) + (real)c->q[2]), -1);
}

row_ref_fn *const loss_refs[] = {
#define LOSS_OP(name) name##_ref,
#include "list.h"
#undef LOSS_OP
};
