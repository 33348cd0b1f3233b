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

enum { SORT_DIGIT = 11, SORT_DIGITS = 3, SORT_VALUES = 1 << SORT_DIGIT, SORT_FEW = 256 };
typedef uint64_t sort_counts[SORT_DIGITS][SORT_VALUES];

static inline uint64_t sort_digit(uint64_t key, int shift, int d) {
  return key >> shift >> (SORT_DIGIT * d) & (SORT_VALUES - 1);
}

/* By SORT_DIGITS digits from the bit `shift` on. Returns which of the two has the result. */
static inline sort_entry *sort_digits(sort_entry *entry, sort_entry *spare, int64_t n, int shift,
                                      sort_counts *counts) {
  uint64_t(*count)[SORT_VALUES] = *counts;
  memset(counts, 0, sizeof *counts);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < SORT_DIGITS; d++) count[d][sort_digit(entry[i].key, shift, d)]++;
  for (int d = 0; d < SORT_DIGITS; d++) {
    uint64_t next = 0;
    if (count[d][sort_digit(entry[0].key, shift, d)] == (uint64_t)n) continue;
    for (int v = 0; v < SORT_VALUES; v++) {
      const uint64_t own = count[d][v];
      count[d][v] = next, next += own;
    }
    for (int64_t i = 0; i < n; i++) spare[count[d][sort_digit(entry[i].key, shift, d)]++] = entry[i];
    sort_entry *swap = entry;
    entry = spare, spare = swap;
  }
  return entry;
}

/* A few, by insertion. */
static inline void sort_few(sort_entry *entry, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const sort_entry own = entry[i];
    int64_t at = i;
    for (; at > 0 && entry[at - 1].key > own.key; at--) entry[at] = entry[at - 1];
    entry[at] = own;
  }
}

/* The bits in which keys differ. */
static inline uint64_t sort_different(const sort_entry *entry, int64_t n) {
  uint64_t bits = 0;
  for (int64_t i = 1; i < n; i++) bits |= entry[i].key ^ entry[0].key;
  return bits;
}

/* Sorts by key; spare has room for as many. Returns which of the two has the result. By the highest
 * bits that differ; what these leave together, which is little of most numbers, is sorted by the
 * others. */
static inline sort_entry *sort_numbers(sort_entry *entry, sort_entry *spare, int64_t n, sort_counts *counts) {
  const uint64_t bits = sort_different(entry, n);
  if (bits == 0) return entry;
  const int high = 64 - __builtin_clzll(bits);
  const int shift = high > SORT_DIGIT * SORT_DIGITS ? high - SORT_DIGIT * SORT_DIGITS : 0;
  sort_entry *sorted = sort_digits(entry, spare, n, shift, counts);
  if ((bits & (((uint64_t)1 << shift) - 1)) == 0) return sorted;
  spare = sorted == entry ? spare : entry;
  for (int64_t from = 0, end; from < n; from = end) {
    for (end = from + 1; end < n && sorted[end].key >> shift == sorted[from].key >> shift;) end++;
    const int64_t count = end - from;
    if (count <= SORT_FEW) sort_few(sorted + from, count);
    else if (sort_numbers(sorted + from, spare + from, count, counts) != sorted + from)
      memcpy(sorted + from, spare + from, (size_t)count * sizeof *sorted);
  }
  return sorted;
}

#endif
