/* row/ref_kept.c - weights within a budget, the largest activations, possibilities, by sorting and
 * bisection. See ref.c. */
#include "ref.h"

#include <stdlib.h>

static int descending(const void *a, const void *b) {
  double u = *(const double *)a, v = *(const double *)b;
  return (u < v) - (u > v);
}

/* The k-th largest, from 1 on. */
static double kth(const row_ref_call *c, size_t k) {
  double *copy = malloc(c->n * sizeof *copy);
  if (!copy) abort();
  for (size_t i = 0; i < c->n; i++) copy[i] = c->in[0][i];
  qsort(copy, c->n, sizeof *copy, descending);
  double x = copy[k - 1];
  free(copy);
  return x;
}

static real clipped(double x, double pivot, real r) {
  real y = (real)x - pivot + r;
  return y < 1e-17L ? 0 : y > 1 ? 1 : y;
}
void budget_sparsemax_ref(const row_ref_call *c) {
  real budget = c->in[1] ? c->in[1][0] : c->q[0], low = 0, high = 1, m = largest(c, plain);
  if (!(budget > 0 && budget <= 0x1p53L)) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  double pivot = budget > (real)c->n ? -INFINITY : kth(c, (size_t)ceill(budget));
  for (size_t i = 0; pivot == -INFINITY && i < c->n; i++) c->out[0][i] = c->in[0][i] > -INFINITY;
  if (pivot == -INFINITY) return;
  for (int step = 0; step < 200; step++) {
    real middle = (low + high) / 2, sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += clipped(c->in[0][i], pivot, middle);
    if (sum >= budget) high = middle;
    else low = middle;
    if (middle == (low + high) / 2) break;
  }
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)clipped(c->in[0][i], pivot, high);
}

void batch_topk_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (c->in[1] && isnan(c->in[1][0])) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  size_t k = c->q[0] < (double)c->n ? (size_t)c->q[0] : c->n, equals = k;
  double bar = c->in[1] ? c->in[1][0] : kth(c, k);
  for (size_t i = 0; i < c->n; i++) equals -= !c->in[1] && c->in[0][i] > bar;
  for (size_t i = 0; i < c->n; i++) {
    double x = c->in[0][i];
    int kept = x > bar || (!c->in[1] && x == bar && equals > 0);
    if (!c->in[1] && x == bar && equals > 0) equals--;
    c->out[0][i] = kept && x > 0 ? x : 0;
  }
}

/* Sorted, largest first, with the sums from each element to the last beside. */
void prob_to_possibility_ref(const row_ref_call *c) {
  double *sorted = malloc((c->n + 1) * sizeof *sorted);
  real *rest = malloc((c->n + 1) * sizeof *rest), nan = 0;
  size_t m = 0;
  if (!sorted || !rest) abort();
  for (size_t i = 0; i < c->n; i++) {
    if (isnan(c->in[0][i])) nan = NAN;
    if (c->in[0][i] > -INFINITY) sorted[m++] = c->in[0][i];
  }
  qsort(sorted, m, sizeof *sorted, descending);
  rest[m] = 0;
  for (size_t i = m; i-- > 0;) rest[i] = sorted[i] + rest[i + 1];
  for (size_t i = 0; i < c->n; i++) {
    size_t low = 0, high = m; /* how many are larger */
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (sorted[middle] > c->in[0][i]) low = middle + 1;
      else high = middle;
    }
    real above = c->q[0] == 0 && low > 0 ? (real)low * c->in[0][i] : 0;
    c->out[0][i] = (double)(nan + (c->in[0][i] == -INFINITY ? 0 : above + rest[low]));
  }
  free(rest);
  free(sorted);
}
