/* driver/carve.h - one piece of memory for several arrays: divided twice by the same function,
 * first with no memory, which counts its bytes, then with it. */
#ifndef SMX_DRIVER_CARVE_H
#define SMX_DRIVER_CARVE_H
#include "base/base.h"

typedef struct carver {
  char *base;
  int64_t at;
  bool fits; /* false from where the bytes overflow */
} carver;

/* The next array, of whole cache lines. */
static inline void *carve(carver *c, int64_t rows, int64_t columns, int64_t bytes) {
  int64_t size = 0;
  char *const here = c->base ? c->base + c->at : NULL;
  c->fits = c->fits && smx_multiply(rows, columns, &size) && smx_multiply(size, bytes, &size) &&
            size < INT64_MAX / 4 - c->at;
  if (c->fits) c->at += (size + 63) / 64 * 64;
  return here;
}

#endif
