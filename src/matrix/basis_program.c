/* matrix/basis_program.c - the linear program of basis-aware acceptance: whether a token is
 * possible for certain.
 *
 * Given p, a basis W [n, c] and s = 1 / (1 - eta), a token t is proven to be possible if no q has
 *
 *     q_t = 0,  0 <= q <= s p,  sum q = 1,  W^T q = W^T p.
 *
 * With the rows a_i = (1, W_i) and Farkas' lemma that is so exactly if some y has
 *
 *     a_t.y = 1  and  F(y) = sum_(i != t) p_i rho(a_i.y) < p_t,
 *     rho(r) = (s - 1) r where r >= 0, -r below.
 *
 * F is the loss of a regression of quantiles with one equation, so it is minimised as such
 * regressions are (Barrodale, Roberts 1973; Koenker, d'Orey 1987): the simplex method goes from one
 * vertex, at which m = c + 1 equations hold, along an edge past all residuals whose change of sign
 * still lets F fall, which makes few and long steps. It ends as soon as F < p_t: that y is the
 * proof, and is worth what its own evaluation says, however it was found. Where no edge descends,
 * or after too many steps, there is no proof, and the token does not go out. At first y = (1, 0,
 * ..): F is (s - 1)(1 - p_t), the threshold p_t > eta. Coordinates of y that are held at 0 are
 * equations without a weight; they stay where the basis has dependent columns.
 *
 * All arithmetic is in double, in the order of the indices. */
#include "basis_program.h"
#include <string.h>

enum { REFRESH = 32 }; /* steps between corrections of what they update */
static const double tolerance = 1e-9, pivot_tolerance = 1e-10, slope_tolerance = 1e-13, zero = 1e-11,
                    noise = 1e-7;

static double dot(size_t m, const double *a, const double *b) {
  double sum = 0;
  for (size_t j = 0; j < m; j++) sum += a[j] * b[j];
  return sum;
}
static void add(size_t m, double by, const double *a, double *to) {
  for (size_t j = 0; j < m; j++) to[j] += by * a[j];
}
static const double *row_of(const basis_program *g, size_t i) { return g->a + i * g->m; }

static void residuals(const basis_program *g, const double *y, double *r) {
  for (size_t i = 0; i < g->n; i++) r[i] = dot(g->m, row_of(g, i), y);
}
static double loss(const basis_program *g) {
  double sum = 0;
  for (size_t i = 0; i < g->n; i++) sum += g->p[i] * (g->r[i] > 0 ? g->slack * g->r[i] : -g->r[i]);
  return sum - g->p[g->token] * g->slack * g->r[g->token];
}
static bool below(const basis_program *g) {
  return loss(g) < g->p[g->token] * g->r[g->token] * (1 - tolerance);
}

/* Of the loss by a residual that is not 0. */
static double derivative(const basis_program *g, size_t i, int side) {
  return side > 0 ? g->slack * g->p[i] : side < 0 ? -g->p[i] : 0;
}
static void set_side(const basis_program *g, size_t i, int side) {
  add(g->m, derivative(g, i, side) - derivative(g, i, g->side[i]), row_of(g, i), g->pull);
  g->side[i] = (signed char)side;
}
static void sum_pull(const basis_program *g) {
  memset(g->pull, 0, g->m * sizeof *g->pull);
  for (size_t i = 0; i < g->n; i++) add(g->m, derivative(g, i, g->side[i]), row_of(g, i), g->pull);
}

/* The first vertex: of y, only the constant is not 0. */
static void begin(const basis_program *g) {
  const size_t m = g->m;
  memset(g->edge, 0, m * m * sizeof *g->edge);
  for (size_t k = 0; k < m; k++) {
    g->edge[k * m + k] = 1;
    if (k > 0) g->edge[k * m] = -row_of(g, g->token)[k];
    g->holds[k] = -1 - (int64_t)k;
  }
  g->holds[0] = (int64_t)g->token;
  for (size_t i = 0; i < g->n; i++) g->side[i] = i != g->token, g->r[i] = 1;
  sum_pull(g);
}

/* Takes out what rounding has put into the inverse: X = X (2 - B X), with the equations in B. */
static void refresh(const basis_program *g) {
  const size_t m = g->m;
  for (size_t k = 0; k < m; k++) {
    double *x = g->edge + k * m;
    for (size_t l = 0; l < m; l++) {
      const int64_t row = g->holds[l];
      g->error[l] = (l == k) - (row < 0 ? x[-1 - row] : dot(m, row_of(g, (size_t)row), x));
    }
    for (size_t l = 0; l < m; l++) add(m, g->error[l], g->edge + l * m, x);
  }
  sum_pull(g);
}

/* The edge along which F falls fastest for its length; 0: there is none. *slope: how fast it falls,
 * below 0. */
static size_t descent(const basis_program *g, int *sign, double *slope) {
  size_t best = 0;
  double most = 0;
  for (size_t k = 1; k < g->m; k++) {
    const double *x = g->edge + k * g->m, weight = g->holds[k] < 0 ? 0 : g->p[g->holds[k]];
    double along = 0, length = 0;
    for (size_t j = 0; j < g->m; j++) along += g->pull[j] * x[j], length += x[j] < 0 ? -x[j] : x[j];
    const double up = along + g->slack * weight, down = weight - along, fall = up < down ? up : down;
    if (!(fall < -slope_tolerance * length) || !(-fall / length > most)) continue;
    most = -fall / length, best = k, *sign = up < down ? 1 : -1, *slope = fall;
  }
  return best;
}

/* ---- the line search ---- */

static bool sooner(basis_crossing a, basis_crossing b) {
  return a.at < b.at || (a.at == b.at && a.row < b.row);
}
static void sift(basis_crossing *heap, size_t count, size_t at) {
  const basis_crossing moved = heap[at];
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && sooner(heap[child + 1], heap[child])) child++;
    if (!sooner(heap[child], moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}
static size_t crossings(const basis_program *g) {
  size_t count = 0;
  for (size_t i = 0; i < g->n; i++) {
    const double v = g->side[i] * g->v[i], r = g->side[i] * g->r[i]; /* both 0 where it holds */
    if (g->p[i] > 0 && v < -pivot_tolerance) g->heap[count++] = (basis_crossing){r > zero ? r / -v : 0, i};
  }
  for (size_t i = count / 2; i-- > 0;) sift(g->heap, count, i);
  return count;
}
/* Where F stops falling: the row whose equation is to hold. Rows before it have changed sides. Row
 * n: there is none. */
static basis_crossing search(const basis_program *g, double slope) {
  for (size_t count = crossings(g); count > 0; sift(g->heap, count, 0)) {
    const basis_crossing next = g->heap[0];
    const double v = g->v[next.row];
    slope += g->p[next.row] * (1 + g->slack) * (v < 0 ? -v : v);
    if (!(slope < 0)) return next;
    set_side(g, next.row, -g->side[next.row]);
    g->heap[0] = g->heap[--count];
  }
  return (basis_crossing){0, g->n};
}

/* The equation of a row holds in the place k of another. */
static void exchange(const basis_program *g, size_t k, size_t row, int sign) {
  const size_t m = g->m;
  double *x = g->edge + k * m;
  const double along = dot(m, row_of(g, row), x);
  const int64_t left = g->holds[k];
  for (size_t j = 0; j < m; j++) x[j] /= along;
  for (size_t l = 0; l < m; l++) {
    double *other = g->edge + l * m;
    if (l != k) add(m, -dot(m, row_of(g, row), other), x, other);
  }
  set_side(g, row, 0);
  g->holds[k] = (int64_t)row;
  if (left >= 0) set_side(g, (size_t)left, sign);
}

/* Moves the residuals apart, away from 0: where many hold at one vertex, steps are of no length. */
static void disturb(const basis_program *g) {
  for (size_t i = 0; i < g->n; i++) {
    const double turns = (double)(i + 1) * 0.6180339887498949;
    g->r[i] += g->side[i] * noise * (1 + turns - (double)(int64_t)turns);
  }
}

/* One step from a vertex to a lower one. *length: 0 for none. */
static bool descend(const basis_program *g, double *length) {
  int sign = 0;
  double slope = 0;
  const size_t k = descent(g, &sign, &slope);
  if (k == 0) return false;
  residuals(g, g->edge + k * g->m, g->v);
  for (size_t i = 0; sign < 0 && i < g->n; i++) g->v[i] = -g->v[i];
  g->v[g->token] = 0;
  const basis_crossing to = search(g, slope);
  if (to.row == g->n) return false;
  for (size_t i = 0; i < g->n; i++) g->r[i] += to.at * g->v[i];
  exchange(g, k, to.row, sign);
  *length = to.at;
  return true;
}

/* What is found among disturbed residuals is where the search goes on
 * with those that they are. */
bool basis_proves(const basis_program *g) {
  const size_t most = 1000 + 50 * g->m;
  size_t still = 0;
  bool disturbed = false;
  begin(g);
  for (size_t step = 1; step < most; step++) {
    double length = 0;
    if (step % REFRESH == 0) refresh(g);
    const bool seems = below(g), ends = seems || !descend(g, &length);
    still = length > 0 ? 0 : still + 1;
    if (ends) {
      residuals(g, g->edge, g->r);
      if (below(g)) return true;
      if (!seems && !disturbed) return false;
      disturbed = false, still = 0;
    } else if (still > g->m) {
      disturb(g);
      disturbed = true, still = 0;
    }
  }
  return false;
}
