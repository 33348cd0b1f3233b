/* engine/compose.h - an operator that runs one kernel after another. The first kernel leaves a few
 * numbers about the row (its valid length, its extremes, an entropy ...) as a note; the second
 * reads the note as an input with a value for each row (NOTE). */
#ifndef SMX_ENGINE_COMPOSE_H
#define SMX_ENGINE_COMPOSE_H
#include "reduce_map.h"

enum { NOTE = SMX_MAX_PORTS - 1 };

typedef struct compose {
  const row_kernel *first, *then;
  void (*rows)(const row_kernel *kernel, row_call *c); /* a faster path for rows in memory, or NULL */
} compose;
#define compose_engine SMX_FN(compose_engine)
extern const row_engine compose_engine;

/* A first kernel that is only the minmax pass: the number of valid elements, the largest, the
 * smallest. */
enum { MINMAX_VALID, MINMAX_MAX, MINMAX_LOW };
#define minmax_kernel SMX_FN(minmax_kernel)
extern const row_kernel minmax_kernel;

#endif
