/* head/functions_tree.c - see functions_tree.h. */
#include "functions_tree.h"

double tree_dot(const double *x, const double *y, int64_t n) {
  double lane[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) lane[k] += x[i + k] * y[i + k];
  for (int k = 0; i < n; i++, k++) lane[k] += x[i] * y[i];
  for (int half = 4; half; half /= 2)
    for (int k = 0; k < half; k++) lane[k] += lane[k + half];
  return lane[0];
}

void tree_add(double *sum, double by, const double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) sum[i] += by * x[i];
}
