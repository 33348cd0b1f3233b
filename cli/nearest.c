/* nearest.c - the edit distance of short words. */
#include "nearest.h"

#include <string.h>

/* How many letters differ, roughly. */
static size_t distance(const char *a, const char *b) {
  enum { LONGEST = 63 };
  size_t row[LONGEST + 1], n = strlen(b);
  if (n > LONGEST || strlen(a) > LONGEST) return LONGEST;
  for (size_t j = 0; j <= n; j++) row[j] = j;
  for (size_t i = 1; a[i - 1]; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= n; j++) {
      size_t change = diagonal + (a[i - 1] != b[j - 1]),
             least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
      diagonal = row[j];
      row[j] = change < least ? change : least;
    }
  }
  return row[n];
}

size_t nearest_usual(const char *word) { return strlen(word) / 3 + 1; }

nearest nearest_begin(const char *word, size_t most) { return (nearest){.word = word, .limit = most}; }

void nearest_try(nearest *n, const char *candidate) {
  size_t d = distance(n->word, candidate);
  if (d > n->limit || (d == n->limit && n->found)) return;
  n->limit = d;
  n->found = candidate;
}
