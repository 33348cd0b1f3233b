/* driver/bins.h - bins of equal width between 0 and 1. */
#ifndef SMX_DRIVER_BINS_H
#define SMX_DRIVER_BINS_H
#include <stdbool.h>
#include <stdint.h>

/* Bin b of k has (b/k, (b+1)/k], the first 0 too, or [b/k, (b+1)/k), the last 1 too. */
static inline int64_t bin_of(double x, int64_t k, bool left) {
  const double bins = (double)k;
  int64_t b = (int64_t)(x * bins);
  if (b >= k) b = k - 1;
  while (b > 0 && (left ? x < (double)b / bins : x <= (double)b / bins)) b--;
  while (b + 1 < k && (left ? x >= (double)(b + 1) / bins : x > (double)(b + 1) / bins)) b++;
  return b;
}

#endif
