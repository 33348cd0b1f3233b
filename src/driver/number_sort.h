/* driver/number_sort.h - an order of numbers: radix sort, stable, of as many digits as differ. */
#ifndef SMX_DRIVER_NUMBER_SORT_H
#define SMX_DRIVER_NUMBER_SORT_H
#include <stdint.h>
#include <string.h>

/* A number, as a key, and what goes with it. */
typedef struct sort_entry {
  uint64_t key;
  double y;
} sort_entry;

/* Keys of larger numbers are smaller; those of -0 and 0 are the same. x is no NaN. */
static inline uint64_t sort_key_descending(double x) {
  uint64_t bits;
  x += 0.0;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 63 ? bits : ~bits & INT64_MAX;
}
static inline double sort_number(uint64_t key) {
  const uint64_t bits = key >> 63 ? key : ~key & INT64_MAX;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

enum { SORT_DIGIT = 11, SORT_DIGITS = 6, SORT_VALUES = 1 << SORT_DIGIT };
typedef uint64_t sort_counts[SORT_DIGITS][SORT_VALUES];

static inline uint64_t sort_digit(uint64_t key, int d) { return key >> (SORT_DIGIT * d) & (SORT_VALUES - 1); }

/* Sorts by key; spare has room for as many. Returns which of the two has the result. */
static inline sort_entry *sort_numbers(sort_entry *entry, sort_entry *spare, int64_t n, sort_counts *counts) {
  uint64_t(*count)[SORT_VALUES] = *counts;
  memset(counts, 0, sizeof *counts);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < SORT_DIGITS; d++) count[d][sort_digit(entry[i].key, d)]++;
  for (int d = 0; d < SORT_DIGITS; d++) {
    uint64_t next = 0;
    if (n == 0 || count[d][sort_digit(entry[0].key, d)] == (uint64_t)n) continue;
    for (int v = 0; v < SORT_VALUES; v++) {
      const uint64_t own = count[d][v];
      count[d][v] = next, next += own;
    }
    for (int64_t i = 0; i < n; i++) spare[count[d][sort_digit(entry[i].key, d)]++] = entry[i];
    sort_entry *swap = entry;
    entry = spare, spare = swap;
  }
  return entry;
}

#endif
