/* fit/functions_percentile.c - react_fit: a percentile of all numbers of a tensor, as
 * numpy.percentile has it. Without a copy: the order's digits are counted, from the first on. */
#include "driver/number_sort.h"
#include "functions.h"

enum { DIGITS = (64 + SORT_DIGIT - 1) / SORT_DIGIT }; /* of a whole key */

static uint64_t key_at(const tensor_call *c, int64_t i) {
  double x;
  tensor_load(c, c->in.view, i, 1, &x);
  return ~sort_key_descending(x);
}

/* The k-th smallest of n numbers, from 0 on; count: room for SORT_VALUES. */
static double kth_smallest(const tensor_call *c, int64_t n, int64_t k, uint64_t *count) {
  uint64_t prefix = 0, left = (uint64_t)k;
  for (int d = DIGITS - 1; d >= 0; d--) {
    uint64_t v = 0;
    for (int i = 0; i < SORT_VALUES; i++) count[i] = 0;
    for (int64_t i = 0; i < n; i++) {
      const uint64_t key = key_at(c, i);
      if (d == DIGITS - 1 || key >> (SORT_DIGIT * (d + 1)) == prefix) count[sort_digit(key, 0, d)]++;
    }
    for (; left >= count[v]; v++) left -= count[v];
    prefix = prefix << SORT_DIGIT | v;
  }
  return sort_number(~prefix);
}

/* At place v = (n - 1) percentile / 100 of the numbers in order, linear between two of them; from
 * the nearer one, as NumPy does. */
static double percentile_of(const tensor_call *c, int64_t n, uint64_t *count) {
  const double v = (double)(n - 1) * (tensor_param(c, "percentile") / 100);
  const int64_t k = (int64_t)v;
  const double t = v - (double)k, a = kth_smallest(c, n, k, count);
  if (t == 0) return a;
  const double b = kth_smallest(c, n, k + 1, count);
  if (a == b) return a;
  return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
}

smx_status fit_percentile(const tensor_call *c) {
  const int64_t n = c->dims.lead_count;
  bool nan = n == 0;
  uint64_t *count = (uint64_t *)(void *)fit_reserve(c, SORT_VALUES);
  if (!count) return SMX_ERR_NOMEM;
  for (int64_t i = 0; i < n && !nan; i++) {
    double x;
    tensor_load(c, c->in.view, i, 1, &x), nan = x != x;
  }
  tensor_put(c, 0, 0, nan ? __builtin_nan("") : percentile_of(c, n, count));
  smx_free(c->ctx, count);
  return SMX_OK;
}
