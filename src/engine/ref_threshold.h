/* engine/ref_threshold.h - the weights of entmax and normmax in long double, for the references of
 * the operators and of their losses. Used by tests only.
 *
 * With q = alpha - 1, m = max x those of entmax are [1 + q (x - m - c)]+^(1 / q), c by bisection.
 * From q = 1 on 1 - q c may be as small as n^-q, and a weight can depend on more digits of it than
 * there are. So there the smallest element that has a weight is found first, `from`, and then its
 * weight: [q (x - from) + at]+^(1 / q), at = weight^q.
 *
 * Those of normmax are p / sum p, p = [x - m + r]+^(1 / q), sum p^alpha = 1. */
#ifndef SMX_ENGINE_REF_THRESHOLD_H
#define SMX_ENGINE_REF_THRESHOLD_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct entmax_level {
  long double q, from, at; /* below q = 1: m and c */
} entmax_level;

static inline long double entmax_at(const entmax_level *e, long double x) {
  const long double away = e->q * (x - e->from - (e->q < 1 ? e->at : 0));
  if (e->q < 1) return 1 + away > 0 ? expl(log1pl(away) / e->q) : 0;
  return x < e->from || away + e->at <= 0 ? 0 : powl(away + e->at, 1 / e->q);
}

static inline long double entmax_sum(const entmax_level *e, const double *x, size_t n) {
  long double sum = 0;
  for (size_t i = 0; i < n; i++) sum += entmax_at(e, x[i]);
  return sum;
}

static inline int entmax_ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The smallest element such that those above it have weights of less than 1 where its own is 0. */
static inline long double entmax_edge(const double *x, size_t n, long double q) {
  double *sorted = malloc(n * sizeof *sorted);
  size_t low = 0, high = n - 1; /* sorted[high] is one */
  memcpy(sorted, x, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, entmax_ascending);
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const entmax_level e = {q, sorted[middle], 0};
    if (entmax_sum(&e, x, n) < 1) high = middle;
    else low = middle + 1;
  }
  const double edge = sorted[high];
  free(sorted);
  return edge;
}

/* m: the largest of x, finite. */
static inline entmax_level entmax_level_of(const double *x, size_t n, long double m, long double q) {
  entmax_level e = {q, q < 1 ? m : entmax_edge(x, n, q), 0};
  /* q < 1: c, with which the weights fall; else the weight of the edge, with which they rise */
  long double low = 0, high = q < 1 ? -expm1l(-q * logl((long double)n)) / q : 1;
  for (int step = 0; step < 200; step++) {
    const long double middle = (low + high) / 2;
    e.at = q < 1 ? middle : powl(middle, q);
    if (middle == low || middle == high) break;
    if ((entmax_sum(&e, x, n) >= 1) == (q < 1)) low = middle;
    else high = middle;
  }
  return e;
}

static inline long double normmax_power(long double v, long double power) {
  return v > 0 ? powl(v, power) : 0;
}

/* r */
static inline long double normmax_level_of(const double *x, size_t n, long double m, long double alpha) {
  long double low = 0, high = 1;
  for (int step = 0; step < 200; step++) {
    long double middle = (low + high) / 2, sum = 0;
    for (size_t i = 0; i < n; i++) sum += normmax_power(x[i] - m + middle, alpha / (alpha - 1));
    if (sum >= 1) high = middle;
    else low = middle;
    if (middle == (low + high) / 2) break;
  }
  return high;
}

#endif
