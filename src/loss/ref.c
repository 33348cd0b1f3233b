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
  real max, lse, log_sum, entropy; /* lse = max + log_sum */
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
  r->log_sum = log1pl(others);
  r->lse = r->max + r->log_sum;
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

/* ---- one class a row: a loss f(log p_y, 1 - p_y), with f' by log p_y ---- */

typedef real score_fn(const row_ref_call *c, size_t j);

/* Reads a row. False when it is odd or ignored, and settled with that. */
static int open_hard(const row_ref_call *c, row *r, score_fn *score, size_t *y) {
  *r = open_row(c->n);
  for (size_t j = 0; j < c->n; j++) r->z[j] = score(c, j);
  settle(r);
  int ignored = c->in[1][0] == c->q[0];
  *y = ignored ? 0 : (size_t)c->in[1][0];
  if (!ignored && !r->nan && !r->empty) return 1;
  c->out[LOSS][0] = r->nan && !ignored ? (double)NAN : 0;
  fill(c->out[DX], c->n, c->out[LOSS][0]);
  close_row(r);
  return 0;
}

static void close_hard(const row_ref_call *c, row *r, size_t y, real loss, real slope) {
  c->out[LOSS][0] = (double)loss;
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] = (double)(j == y ? slope * without(r, y) : -slope * r->p[j]);
  close_row(r);
}

static real logit(const row_ref_call *c, size_t j) { return c->in[0][j]; }

static void focal_loss_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real u = r.log_p[y], q = without(&r, y), gamma = c->q[1], alpha = (real)c->q[2] * (c->in[2] ? c->in[2][y] : 1);
  real slope = -alpha * powl(q, gamma) * (1 + (r.p[y] == 0 ? 0 : gamma * r.p[y] * (u == 0 ? 1 : u / expm1l(u))));
  close_hard(c, &r, y, part(alpha * powl(q, gamma), -u), slope);
}

static void poly_loss_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real q = without(&r, y), e1 = c->q[1], e2 = c->q[2];
  close_hard(c, &r, y, -r.log_p[y] + e1 * q + e2 * q * q, -1 - r.p[y] * (e1 + 2 * e2 * q));
}

static void squared_error_logit_ref(const row_ref_call *c) {
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
static void logit_adjustment_ref(const row_ref_call *c) {
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

static void max_suppression_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, logit, &y)) return;
  real alpha = c->q[1], b = c->q[2], count, squares = 0, mean = above_mean(&r, c->q[3] == 1, &count);
  for (size_t j = 0; j < c->n; j++) squares += r.z[j] == -INFINITY ? 0 : r.z[j] * r.z[j];
  c->out[LOSS][0] = (double)(-r.log_p[y] + part(alpha, mean) + part(b, squares) / 2);
  for (size_t j = 0; j < c->n; j++) {
    real g = (j == y ? -without(&r, y) : r.p[j]) + alpha * (j == r.argmax) + (r.z[j] == -INFINITY ? 0 : b * r.z[j]);
    if (c->q[3] == 0 || r.z[j] != -INFINITY) g -= alpha / count;
    c->out[DX][j] = (double)g;
  }
  close_row(&r);
}

/* ---- no class ---- */

static int open_free(const row_ref_call *c, row *r, real temperature) {
  *r = open_row(c->n);
  for (size_t j = 0; j < c->n; j++) r->z[j] = c->in[0][j] / temperature;
  settle(r);
  if (!r->nan && !r->empty) return 1;
  c->out[LOSS][0] = r->nan ? (double)NAN : 0;
  fill(c->out[DX], c->n, c->out[LOSS][0]);
  close_row(r);
  return 0;
}

static void outlier_exposure_ref(const row_ref_call *c) {
  row r;
  real count;
  if (!open_free(c, &r, 1)) return;
  real mean = above_mean(&r, c->q[0] == 1, &count);
  c->out[LOSS][0] = (double)(r.lse - r.max + mean);
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] = (double)(r.p[j] - (c->q[0] == 1 && r.z[j] == -INFINITY ? 0 : 1 / count));
  close_row(&r);
}

static void energy_margin_ref(const row_ref_call *c) {
  row r;
  if (!open_free(c, &r, (real)c->q[0])) return;
  int out = c->in[1] && c->in[1][0] != 0;
  real energy = -(real)c->q[0] * r.lse, over = fmaxl(0, out ? (real)c->q[2] - energy : energy - (real)c->q[1]);
  c->out[LOSS][0] = (double)(over * over);
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] = (double)((out ? 2 : -2) * over * r.p[j]);
  close_row(&r);
}

/* ---- robust_temperature ---- */

static real tau_of(const row_ref_call *c) { return c->in[2] ? c->in[2][0] : c->q[1]; }
static real tempered(const row_ref_call *c, size_t j) { return c->in[0][j] / tau_of(c); }
static void robust_temperature_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (!open_hard(c, &r, tempered, &y)) return;
  close_hard(c, &r, y, tau_of(c) * (-r.log_p[y] - logl((real)c->n) + (real)c->q[2]), -1);
}

/* ---- a student and a teacher ---- */

typedef struct two {
  row s, t;
} two;

static void close_two(two *w) {
  close_row(&w->s);
  close_row(&w->t);
}

static void give(const row_ref_call *c, double value) {
  c->out[LOSS][0] = value;
  fill(c->out[DX], c->n, value);
}

/* skip: a class that is left out, or n. */
static int open_two(const row_ref_call *c, two *w, real t_student, real t_teacher, size_t skip) {
  *w = (two){open_row(c->n), open_row(c->n)};
  for (size_t j = 0; j < c->n; j++) {
    w->s.z[j] = c->in[0][j] / t_student, w->t.z[j] = c->in[1][j] / t_teacher;
    w->s.nan |= isnan(w->s.z[j]) || w->s.z[j] == INFINITY;
    w->t.nan |= isnan(w->t.z[j]) || w->t.z[j] == INFINITY;
    if (j == skip) w->s.z[j] = w->t.z[j] = -INFINITY;
  }
  settle(&w->s);
  settle(&w->t);
  if (!w->s.nan && !w->t.nan && !w->s.empty && !w->t.empty) return 1;
  give(c, (w->s.nan || w->t.nan) ? (double)NAN : 0);
  close_two(w);
  return 0;
}

/* D(a || b), where a class without weight takes no part. */
static real divergence(const row *a, const row *b) {
  real sum = 0;
  for (size_t j = 0; j < a->n; j++)
    if (a->p[j] > 0) sum += a->p[j] * (a->log_p[j] - b->log_p[j]);
  return sum;
}
static real crossed(const row *a, const row *b) {
  real sum = 0;
  for (size_t j = 0; j < a->n; j++)
    if (a->p[j] > 0) sum -= a->p[j] * b->log_p[j];
  return sum;
}

static void knowledge_distillation_ref(const row_ref_call *c) {
  two w;
  real t = c->q[1], t_teacher = c->q[2] > 0 ? (real)c->q[2] : t, k = c->q[3] == 0 && t == t_teacher ? t * t : 1;
  if (!open_two(c, &w, t, t_teacher, c->n)) return;
  real d = c->q[0] == 1 ? divergence(&w.s, &w.t) : c->q[0] == 2 ? crossed(&w.t, &w.s) : divergence(&w.t, &w.s);
  c->out[LOSS][0] = (double)(k * d);
  for (size_t j = 0; j < c->n; j++) {
    real g = w.s.p[j] - w.t.p[j];
    if (c->q[0] == 1) g = isinf(d) || w.s.p[j] == 0 ? 0 : w.s.p[j] * (w.s.log_p[j] - w.t.log_p[j] - d);
    c->out[DX][j] = (double)(k * g / t);
  }
  close_two(&w);
}

static void jensen_shannon_ref(const row_ref_call *c) {
  two w;
  real b = c->q[0], student = 0, teacher = 0;
  if (!open_two(c, &w, 1, 1, c->n)) return;
  for (size_t j = 0; j < c->n; j++) {
    real m = b * w.s.p[j] + (1 - b) * w.t.p[j];
    if (w.s.p[j] > 0 && b > 0) student += w.s.p[j] * (w.s.log_p[j] - logl(m));
    if (w.t.p[j] > 0 && b < 1) teacher += w.t.p[j] * (w.t.log_p[j] - logl(m));
  }
  c->out[LOSS][0] = (double)(b * student + (1 - b) * teacher);
  for (size_t j = 0; j < c->n; j++) {
    real m = b * w.s.p[j] + (1 - b) * w.t.p[j];
    c->out[DX][j] = (double)(w.s.p[j] == 0 || b == 0 ? 0 : b * w.s.p[j] * (w.s.log_p[j] - logl(m) - student));
  }
  close_two(&w);
}

/* The target against the others: log p and log (1 - p). */
static void own_share(const row *others, real z, real *log_p, real *log_q) {
  real away = (z - others->max) - others->log_sum, size = fabsl(away), small = log1pl(expl(-size));
  *log_p = away > 0 ? -small : away - small;
  *log_q = away > 0 ? -away - small : -small;
}

static void decoupled_kd_ref(const row_ref_call *c) {
  two w;
  real t = c->q[1], alpha = c->q[2], beta = c->q[3], lp, lq, tp, tq;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  size_t y = (size_t)c->in[2][0];
  if (!open_two(c, &w, t, t, y)) return;
  own_share(&w.s, c->in[0][y] / t, &lp, &lq);
  own_share(&w.t, c->in[1][y] / t, &tp, &tq);
  real own = part(expl(tp), tp - lp) + part(expl(tq), tq - lq), away = lp < tp ? expl(lp) - expl(tp) : expl(tq) - expl(lq);
  if (tp < -1 || lp < -1) away = expl(lp) - expl(tp);
  c->out[LOSS][0] = (double)(t * t * (part(alpha, own) + part(beta, divergence(&w.t, &w.s))));
  for (size_t j = 0; j < c->n; j++)
    c->out[DX][j] = (double)(t * (j == y ? alpha * away : -alpha * away * w.s.p[j] + beta * (w.s.p[j] - w.t.p[j])));
  close_two(&w);
}

static void normalised_kd_ref(const row_ref_call *c) {
  two w;
  real gamma = c->q[1], lp, lq, tp, tq;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  size_t y = (size_t)c->in[2][0];
  if (!open_two(c, &w, 1, 1, y)) return;
  own_share(&w.s, c->in[0][y], &lp, &lq);
  own_share(&w.t, c->in[1][y], &tp, &tq);
  c->out[LOSS][0] = (double)(part(expl(tp), -lp) + part(gamma, crossed(&w.t, &w.s)));
  for (size_t j = 0; j < c->n; j++) {
    real others = expl(tp) * expl(lq) * w.s.p[j] + gamma * (w.s.p[j] - w.t.p[j]);
    c->out[DX][j] = (double)(j == y ? -expl(tp) * expl(lq) : others);
  }
  close_two(&w);
}

/* ---- sums over the classes ---- */

/* False when the row is settled: ignored, or without elements, or with a NaN (infinite: or an infinity). */
static int open_terms(const row_ref_call *c, const double *target, int infinite, size_t *y) {
  int bad = 0;
  for (size_t j = 0; j < c->n; j++) bad |= isnan(c->in[0][j]) || (infinite && isinf(c->in[0][j]));
  *y = target && target[0] != c->q[0] ? (size_t)target[0] : c->n;
  if (!bad && (!target || *y < c->n)) return 1;
  give(c, target && *y == c->n ? 0 : (double)NAN);
  return 0;
}

static void nll_loss_ref(const row_ref_call *c) {
  size_t y;
  if (!open_terms(c, c->in[1], 0, &y)) return;
  double weight = c->in[2] ? c->in[2][y] : 1;
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] = j == y ? -weight : 0;
  c->out[LOSS][0] = weight == 0 ? 0 : -weight * c->in[0][y];
}

static void l2_svm_loss_ref(const row_ref_call *c) {
  size_t y;
  real sum = 0, scale = (real)c->q[2] / (real)c->n;
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) {
    real sign = j == y ? 1 : -1, over = fmaxl(0, 1 - sign * c->in[0][j]);
    sum += c->q[1] == 2 ? over * over : over;
    c->out[DX][j] = (double)(-scale * sign * (c->q[1] == 2 ? 2 * over : over > 0));
  }
  c->out[LOSS][0] = (double)(scale * sum);
}

static void gumbel_optimized_loss_ref(const row_ref_call *c) {
  size_t y;
  real sum = 0;
  if (!open_terms(c, c->in[1], 0, &y)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], u = expl(-fminl(fmaxl(x, (real)c->q[1]), (real)c->q[2]));
    int inside = x >= (real)c->q[1] && x <= (real)c->q[2];
    sum += j == y ? u : -logl(-expm1l(-u));
    c->out[DX][j] = (double)(!inside ? 0 : j == y ? -u : u / expm1l(u));
  }
  c->out[LOSS][0] = (double)sum;
}

static real sigmoid(real x) { return 1 / (1 + expl(-x)); }
static real softplus(real x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }

static void binary_logit_distillation_ref(const row_ref_call *c) {
  real sum = 0, beta = c->q[0];
  for (size_t j = 0; j < c->n; j++)
    if (isnan(c->in[0][j]) || isnan(c->in[1][j])) {
      give(c, (double)NAN);
      return;
    }
  for (size_t j = 0; j < c->n; j++) {
    real s = c->in[0][j], u = c->in[1][j];
    real away = u == s ? 0 : u > s ? sigmoid(u) * sigmoid(-s) * -expm1l(s - u) : -sigmoid(s) * sigmoid(-u) * -expm1l(u - s);
    real weight = powl(fabsl(away), beta), term = part(sigmoid(-u), softplus(s)) + part(sigmoid(u), softplus(-s)), g = -weight * away;
    if (away == 0) weight = 0;
    sum += part(weight, term);
    if (c->q[1] == 0 && away != 0) g -= part(beta * powl(fabsl(away), beta - 1) * (away > 0 ? 1 : -1) * sigmoid(s) * sigmoid(-s), term);
    c->out[DX][j] = (double)(away == 0 ? 0 : g);
  }
  c->out[LOSS][0] = (double)sum;
}

static void z_loss_ref(const row_ref_call *c) {
  size_t y;
  real n = (real)c->n, a = c->q[1], b = c->q[2], e = c->q[3], mean = 0, variance = 0;
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) mean += c->in[0][j];
  mean /= n;
  for (size_t j = 0; j < c->n; j++) variance += (c->in[0][j] - mean) * (c->in[0][j] - mean) / n;
  real sd = sqrtl(variance), z = sd > 0 ? (c->in[0][y] - mean) / (sd + e) : 0, slope = -sigmoid(a * (b - z));
  c->out[LOSS][0] = (double)(softplus(a * (b - z)) / a);
  for (size_t j = 0; j < c->n; j++) {
    real dz = sd > 0 ? ((j == y) - 1 / n) / (sd + e) - z * (c->in[0][j] - mean) / (n * sd * (sd + e)) : 0;
    c->out[DX][j] = (double)(slope * dz);
  }
}

static real taylor(real x) { return 1 + x + x * x / 2; }
static void spherical_loss_ref(const row_ref_call *c) {
  size_t y;
  real sum = 0, e = c->q[2], form = c->q[1];
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t = j == y;
    sum += form == 0 ? (x - t) * (x - t) : form == 1 ? x * x + e : taylor(x);
  }
  real own = c->in[0][y], f = form == 1 ? own * own + e : taylor(own);
  c->out[LOSS][0] = (double)(form == 0 ? sum : logl(sum / f));
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], slope = form == 1 ? 2 * x : 1 + x;
    real g = form == 0 ? 2 * (x - (j == y)) : j == y ? -slope * (sum - f) / f / sum : slope / sum;
    c->out[DX][j] = (double)g;
  }
}

static void dice_semimetric_loss_ref(const row_ref_call *c) {
  real all = 0, want = 0, away = 0, a = c->q[0], b = c->q[1], s = c->q[2];
  for (size_t j = 0; j < c->n; j++) all += c->in[0][j], want += c->in[1][j], away += fabsl((real)c->in[0][j] - c->in[1][j]);
  real tp = (all + want - away) / 2, den = tp + a * (all - tp) + b * (want - tp) + s;
  if (!isfinite(all + want)) {
    give(c, (double)NAN);
    return;
  }
  c->out[LOSS][0] = den == 0 ? 0 : (double)((a * (all - tp) + b * (want - tp)) / den);
  for (size_t j = 0; j < c->n; j++) {
    real sign = (c->in[0][j] > c->in[1][j]) - (c->in[0][j] < c->in[1][j]), dtp = (1 - sign) / 2;
    real dden = dtp + a * (1 - dtp) - b * dtp;
    c->out[DX][j] = den == 0 ? 0 : (double)(-(dtp / den - (tp + s) * dden / (den * den)));
  }
}

row_ref_fn *const loss_refs[] = {
#define LOSS_OP(name) name##_ref,
#include "list.h"
#undef LOSS_OP
};
