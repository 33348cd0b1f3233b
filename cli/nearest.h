/* nearest.h - the word that somebody may have meant. */
#ifndef CLI_NEAREST_H
#define CLI_NEAREST_H

#include <stddef.h>

typedef struct nearest {
  const char *word;  /* what was written */
  const char *found; /* the first of the nearest so far; NULL: none is near */
  size_t limit;      /* no word further away counts */
} nearest;

/* most: how many letters may differ, nearest_usual() as a rule: a third of them, and one. */
nearest nearest_begin(const char *word, size_t most);
size_t nearest_usual(const char *word);
void nearest_try(nearest *n, const char *candidate);

#endif
