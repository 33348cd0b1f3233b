/* head/functions_factored_step.c - factored_spherical_step: a step of gradient descent on all C
 * rows of a layer in O(d^2) for each row h (functions_factored.h; Vincent, de Brebisson,
 * Bouthillier 2015). The gradient of the layer is G^T H, H the rows [n, d] and G = Y + O D +
 * s_slope, of which Y [C, n] is nonzero at targets and D is diagonal; O = W H^T. With
 * N = H^T D H and S = I - lr N
 *
 *   U'  = U S;   omega' = omega - lr H^T (D H omega + s_slope);   V' = V - lr Y (H U'^-1)
 *   U'^-T = U^-T S^-1,   S^-1 = I + lr H^T (I - lr D H H^T)^-1 D H
 *   sums' = sums - lr H^T (D H sums + x_sum + C s_slope)
 *   Q' = Q - lr (H^T B + B^T H),   B = dh - lr / 2 (G^T G) H
 *
 *   G^T G H = dh N + D H (Z^T H) + Y^T Y H + s_slope (C H^T s_slope + H^T x_sum)^T
 *             + x_sum (H^T s_slope)^T
 *
 * The smaller one of S and I - lr D H H^T is solved, by elimination. */
#include <string.h>

#include "functions_factored.h"
#include "functions_groups.h"

enum { LOSS, DH, ROWS, NEXT, CONDITION }; /* outputs */

typedef struct step {
  factored f;
  double lr;
  double *scaled, *pull, *more; /* [n, d]: D H, (G^T G) H and then B, a product */
  double *system, *solved;      /* [p, p], [p, d], p the least of n and d */
  double *cross, *square;       /* [d, d] */
  double *back;                 /* [n, d]: U^-T H^T, turned; then H U'^-1 */
  double *own, *moved;          /* [n t, d]: sums of x_slope h over a class; its new row */
  double *line[3];              /* [d] */
  double *rows;
  factored_state to;
  head_groups groups;
  smx_scratch scratch;
} step;

static void carve_step(step *p, carver *m) {
  const int64_t n = p->f.n, d = p->f.d, least = n < d ? n : d;
  factored_carve(&p->f, m);
  p->scaled = carve(m, n, d, 8), p->pull = carve(m, n, d, 8), p->more = carve(m, n, d, 8);
  p->back = carve(m, n, d, 8);
  p->system = carve(m, least, least, 8), p->solved = carve(m, least, d, 8);
  p->cross = carve(m, d, d, 8), p->square = carve(m, d, d, 8);
  p->own = carve(m, n * p->f.t, d, 8), p->moved = carve(m, n * p->f.t, d, 8);
  for (int k = 0; k < 3; k++) p->line[k] = carve(m, d, 1, 8);
  p->rows = carve(m, factored_rows(d), d, 8);
  p->groups = head_groups_carve(m, n * p->f.t);
}

/* ---- elimination ---- */

static void swap_rows(double *a, double *b, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    const double x = a[k];
    a[k] = b[k], b[k] = x;
  }
}

/* x = a^-1 x, a [p, p], x [p, d]; a is lost. What has no inverse gives numbers that are not
 * finite. */
static void solve(double *a, int64_t p, double *x, int64_t d) {
  for (int64_t k = 0; k < p; k++) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < p; i++)
      if (__builtin_fabs(a[i * p + k]) > __builtin_fabs(a[pivot * p + k])) pivot = i;
    if (pivot != k) swap_rows(a + k * p, a + pivot * p, p), swap_rows(x + k * d, x + pivot * d, d);
    for (int64_t i = k + 1; i < p; i++) {
      const double by = a[i * p + k] == 0 ? 0 : -a[i * p + k] / a[k * p + k];
      if (by == 0) continue;
      tree_add(a + i * p + k, by, a + k * p + k, p - k), tree_add(x + i * d, by, x + k * d, d);
    }
  }
  for (int64_t k = p - 1; k >= 0; k--) {
    for (int64_t i = k + 1; i < p; i++) tree_add(x + k * d, -a[k * p + i], x + i * d, d);
    for (int64_t j = 0; j < d; j++) x[k * d + j] /= a[k * p + k];
  }
}

/* ---- matrices ---- */

/* U' and its inverse. */
static smx_status next_u(step *p) {
  const factored *const f = &p->f;
  const int64_t n = f->n, d = f->d, few = n < d ? n : d;
  const factored_matrix h = factored_plain(f->h, d), scaled = factored_turned(p->scaled, d);
  smx_status status = factored_times(f->c, d, d, n, factored_turned(f->uh, d), scaled, p->cross);
  for (int64_t i = 0; i < d * d; i++) p->to.u[i] = f->from.u[i] - p->lr * p->cross[i];
  if (status == SMX_OK && n < d)
    status = factored_times(f->c, n, n, d, factored_plain(p->scaled, d), h, p->system);
  if (status == SMX_OK && n >= d) memcpy(p->system, p->square, sizeof(double) * (size_t)(d * d));
  for (int64_t i = 0; i < few * few; i++) p->system[i] = (i % (few + 1) == 0) - p->lr * p->system[i];
  if (n >= d) { /* S is symmetric: its solutions are rows of U'^-T */
    for (int64_t i = 0; i < d * d; i++) p->solved[i] = f->from.inverse[i % d * d + i / d];
    solve(p->system, d, p->solved, d);
    for (int64_t i = 0; i < d * d; i++) p->to.inverse[i] = p->solved[i % d * d + i / d];
    return status;
  }
  memcpy(p->solved, p->scaled, sizeof(double) * (size_t)(n * d));
  solve(p->system, n, p->solved, d);
  if (status == SMX_OK)
    status = factored_times(f->c, n, d, d, h, factored_plain(f->from.inverse, d), p->back);
  if (status == SMX_OK)
    status =
        factored_times(f->c, d, d, n, factored_turned(p->back, d), factored_turned(p->solved, d), p->cross);
  for (int64_t i = 0; i < d * d; i++) p->to.inverse[i] = f->from.inverse[i] + p->lr * p->cross[i];
  return status;
}

/* omega', sums', and the sums H^T s_slope and H^T x_sum, in line 0 and 1. */
static void next_lines(step *p) {
  const factored *const f = &p->f;
  const int64_t d = f->d;
  memset(p->line[0], 0, sizeof(double) * (size_t)d), memset(p->line[1], 0, sizeof(double) * (size_t)d);
  memcpy(p->to.omega, f->from.omega, sizeof(double) * (size_t)d);
  memcpy(p->to.sums, f->from.sums, sizeof(double) * (size_t)d);
  for (int64_t i = 0; i < f->n; i++) {
    const double *const h = f->h + i * d, twice = f->twice[i], s = f->s_slope[i];
    tree_add(p->line[0], s, h, d), tree_add(p->line[1], f->x_sum[i], h, d);
    tree_add(p->to.omega, -p->lr * (twice * tree_dot(h, f->from.omega, d) + s), h, d);
    tree_add(p->to.sums,
             -p->lr * (twice * tree_dot(h, f->from.sums, d) + f->x_sum[i] + (double)f->classes * s), h, d);
  }
  for (int64_t j = 0; j < d; j++) p->line[2][j] = (double)f->classes * p->line[0][j] + p->line[1][j];
}

static void scale_task(void *arg, int64_t row) {
  step *p = arg;
  const int64_t d = p->f.d;
  for (int64_t j = row * d; j < (row + 1) * d; j++) p->scaled[j] = p->f.twice[row] * p->f.h[j];
}

/* Of the class whose entries begin at place k of the order: what they add up to, for each. */
static void own_task(void *arg, int64_t k) {
  step *p = arg;
  const factored *const f = &p->f;
  const int64_t d = f->d, all = f->n * f->t, class = head_groups_at(&p->groups, k);
  double *const sum = p->own + p->groups.order[k] * d;
  if (!head_groups_begin(&p->groups, k)) return;
  memset(sum, 0, sizeof *sum * (size_t)d);
  for (int64_t i = k; i < all && head_groups_at(&p->groups, i) == class; i++)
    tree_add(sum, f->x_slope[p->groups.order[i]], f->h + p->groups.order[i] / f->t * d, d);
  for (int64_t i = k + 1; i < all && head_groups_at(&p->groups, i) == class; i++)
    memcpy(p->own + p->groups.order[i] * d, sum, sizeof *sum * (size_t)d);
}

/* B of a row. */
static void pull_task(void *arg, int64_t row) {
  step *p = arg;
  const factored *const f = &p->f;
  const int64_t d = f->d;
  double *const b = p->pull + row * d;
  tree_add(b, 1, p->more + row * d, d);
  for (int64_t i = row * f->t; i < (row + 1) * f->t; i++)
    if (factored_counts(f, i)) tree_add(b, f->x_slope[i], p->own + i * d, d);
  tree_add(b, f->s_slope[row], p->line[2], d), tree_add(b, f->x_sum[row], p->line[0], d);
  for (int64_t j = 0; j < d; j++) b[j] = f->dh[row * d + j] - p->lr / 2 * b[j];
}

static smx_status next_q(step *p) {
  const factored *const f = &p->f;
  const int64_t n = f->n, d = f->d;
  const factored_matrix h = factored_turned(f->h, d);
  smx_status status =
      factored_times(f->c, n, d, d, factored_plain(f->dh, d), factored_turned(p->square, d), p->pull);
  if (status == SMX_OK) status = factored_times(f->c, d, d, n, factored_turned(f->pulled, d), h, p->cross);
  if (status == SMX_OK)
    status =
        factored_times(f->c, n, d, d, factored_plain(p->scaled, d), factored_turned(p->cross, d), p->more);
  if (status != SMX_OK) return status;
  smx_parallel(f->c->ctx, n, pull_task, p);
  status = factored_times(f->c, d, d, n, h, factored_turned(p->pull, d), p->cross);
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j < d; j++)
      p->to.q[i * d + j] = f->from.q[i * d + j] - p->lr * (p->cross[i * d + j] + p->cross[j * d + i]);
  return status;
}

/* ---- rows of V ---- */

static void move_task(void *arg, int64_t k) {
  step *p = arg;
  const factored *const f = &p->f;
  const int64_t d = f->d, all = f->n * f->t, class = head_groups_at(&p->groups, k);
  double *const row = p->moved + p->groups.order[k] * d;
  if (!head_groups_begin(&p->groups, k)) return;
  if (class == f->ignore) memset(row, 0, sizeof *row * (size_t)d);
  else tensor_load(f->c, f->c->in.view + FACTORED_V, class * d, d, row);
  for (int64_t i = k; class != f->ignore && i < all && head_groups_at(&p->groups, i) == class; i++)
    tree_add(row, -p->lr * f->x_slope[p->groups.order[i]], p->back + p->groups.order[i] / f->t * d, d);
  for (int64_t i = k + 1; i < all && head_groups_at(&p->groups, i) == class; i++)
    memcpy(p->moved + p->groups.order[i] * d, row, sizeof *row * (size_t)d);
}

static smx_status run(step *p) {
  factored *const f = &p->f;
  const int64_t n = f->n, d = f->d, entries = n * f->t;
  smx_status status = factored_run(f);
  if (status != SMX_OK) return status;
  p->to = factored_divide(p->rows, d);
  smx_parallel(f->c->ctx, n, scale_task, p);
  for (int64_t i = 0; i < entries; i++) p->groups.number[i] = f->target[i];
  head_groups_sort(&p->groups, entries);
  smx_parallel(f->c->ctx, entries, own_task, p);
  next_lines(p);
  status = factored_times(f->c, d, d, n, factored_turned(f->h, d), factored_turned(p->scaled, d), p->square);
  if (status == SMX_OK) status = next_u(p);
  if (status == SMX_OK) status = next_q(p);
  if (status == SMX_OK)
    status =
        factored_times(f->c, n, d, d, factored_plain(f->h, d), factored_plain(p->to.inverse, d), p->back);
  if (status == SMX_OK) smx_parallel(f->c->ctx, entries, move_task, p);
  return status;
}

/* |U|_F |U^-1|_F / d, no less than 1. */
static double condition_of(const step *p) {
  const int64_t d = p->f.d;
  const double u = tree_dot(p->to.u, p->to.u, d * d), inverse = tree_dot(p->to.inverse, p->to.inverse, d * d);
  return d ? __builtin_sqrt(u) * __builtin_sqrt(inverse) / (double)d : 1;
}

static void put(const step *p) {
  const factored *const f = &p->f;
  const tensor_call *const c = f->c;
  const double condition = condition_of(p);
  tensor_store(c, c->out.view + LOSS, 0, f->n, f->loss);
  tensor_store(c, c->out.view + DH, 0, f->n * f->d, f->dh);
  tensor_store(c, c->out.view + ROWS, 0, f->n * f->t * f->d, p->moved);
  tensor_store(c, c->out.view + NEXT, 0, factored_rows(f->d) * f->d, p->rows);
  tensor_store(c, c->out.view + CONDITION, 0, 1, &condition);
}

smx_status factored_step(const tensor_call *c) {
  SMX_OWN(step, p, c->ctx);
  int64_t entries;
  if (!p) return factored_no_memory(c);
  *p = (step){.f = factored_of(c, true, true), .lr = tensor_param(c, "lr")};
  carver m = {.fits = smx_multiply(p->f.n, p->f.t, &entries)};
  if (m.fits) carve_step(p, &m);
  char *const memory = m.fits ? smx_alloc(c->ctx, (size_t)m.at + 1) : NULL;
  if (!memory) return factored_no_memory(c);
  m = (carver){.base = memory, .fits = true};
  carve_step(p, &m);
  const smx_status status = run(p);
  if (status == SMX_OK) put(p);
  smx_free(c->ctx, memory);
  return status;
}
