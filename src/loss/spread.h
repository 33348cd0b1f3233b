/* loss/spread.h - the mean and the deviation of a few numbers, in double and in index order. */
#ifndef SMX_LOSS_SPREAD_H
#define SMX_LOSS_SPREAD_H
#include "scalars.h"

/* How many there are, whether one is NaN or +inf; if not, the mean relative to the first, so that
 * equal numbers have a deviation of exactly 0, and the deviation with n - 1, 0 of one number. */
typedef struct spread {
  size_t count;
  bool bad;
  double first, largest, mean, deviation;
} spread;

/* An element of -inf does not exist, nor does one where `beside`, unless that is NULL, is -inf. */
SMI bool spread_has(const real *x, const real *beside, size_t i) {
  return x[i] != -R_INF && (!beside || beside[i] != -R_INF);
}
SMI spread spread_of(const real *x, const real *beside, size_t n) {
  spread g = {0};
  double sum = 0, size = 0, squares = 0;
  for (size_t i = 0; i < n; i++) {
    if (!spread_has(x, beside, i)) continue;
    const double v = (double)x[i];
    if (g.count++ == 0) g.first = g.largest = v;
    g.bad |= !(v <= (double)R_MAX);
    g.largest = v > g.largest ? v : g.largest;
    sum += v - g.first, size += v < g.first ? g.first - v : v - g.first;
  }
  if (g.count < 2 || g.bad) return g;
  g.mean = sum / (double)g.count;
  const double inverse = d_inverse_size(size / (double)g.count); /* no square leaves the range */
  for (size_t i = 0; i < n; i++) {
    const double away = spread_has(x, beside, i) ? ((double)x[i] - g.first - g.mean) * inverse : 0;
    squares += away * away;
  }
  const double variance = squares / (double)(g.count - 1);
  g.deviation = variance > 0x1p-900 ? d_root(variance) / inverse : 0;
  return g;
}

#endif
