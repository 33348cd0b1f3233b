/* engine/compose.h - an operator that runs one kernel after another: the first leaves a few numbers
 * of the row as a note, the second reads it like an input with a value for each row (NOTE). A
 * length that counts valid elements, extremes and an entropy are such numbers. */
#ifndef SMX_ENGINE_COMPOSE_H
#define SMX_ENGINE_COMPOSE_H
#include "reduce_map.h"

enum { NOTE = SMX_MAX_PORTS - 1 };

typedef struct compose {
  const row_kernel *first, *then;
  void (*rows)(const row_kernel *kernel, row_call *c); /* a shorter way through rows in memory, or NULL */
} compose;
#define compose_engine SMX_FN(compose_engine)
extern const row_engine compose_engine;

/* The minmax pass at a row as a first kernel: how many elements are valid, the largest, the
 * smallest. */
enum { MINMAX_VALID, MINMAX_MAX, MINMAX_LOW };
#define minmax_kernel SMX_FN(minmax_kernel)
extern const row_kernel minmax_kernel;

#endif
