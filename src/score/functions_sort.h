/* score/functions_sort.h - an order of numbers: radix sort, stable, of as many digits as differ. */
#ifndef SMX_SCORE_FUNCTIONS_SORT_H
#define SMX_SCORE_FUNCTIONS_SORT_H
#include <stdint.h>
#include <string.h>

/* A number, as a key, and what goes with it. */
typedef struct score_entry {
  uint64_t key;
  double y;
} score_entry;

/* Keys of larger numbers are smaller; those of -0 and 0 are the same. x is no NaN. */
static inline uint64_t score_key_descending(double x) {
  uint64_t bits;
  x += 0.0;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 63 ? bits : ~bits & INT64_MAX;
}
static inline double score_of_key(uint64_t key) {
  const uint64_t bits = key >> 63 ? key : ~key & INT64_MAX;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

enum { SCORE_DIGIT = 11, SCORE_DIGITS = 6, SCORE_VALUES = 1 << SCORE_DIGIT };
typedef uint64_t score_counts[SCORE_DIGITS][SCORE_VALUES];

static inline uint64_t score_digit(uint64_t key, int d) {
  return key >> (SCORE_DIGIT * d) & (SCORE_VALUES - 1);
}

/* Sorts by key; spare has room for as many. Returns which of the two has the result. */
static inline score_entry *score_sort(score_entry *entry, score_entry *spare, int64_t n,
                                      score_counts *counts) {
  uint64_t(*count)[SCORE_VALUES] = *counts;
  memset(counts, 0, sizeof *counts);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < SCORE_DIGITS; d++) count[d][score_digit(entry[i].key, d)]++;
  for (int d = 0; d < SCORE_DIGITS; d++) {
    uint64_t next = 0;
    if (n == 0 || count[d][score_digit(entry[0].key, d)] == (uint64_t)n) continue;
    for (int v = 0; v < SCORE_VALUES; v++) {
      const uint64_t own = count[d][v];
      count[d][v] = next, next += own;
    }
    for (int64_t i = 0; i < n; i++) spare[count[d][score_digit(entry[i].key, d)]++] = entry[i];
    score_entry *swap = entry;
    entry = spare, spare = swap;
  }
  return entry;
}

#endif
