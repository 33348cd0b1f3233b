/* engine/fetch.h - in which order memory is fetched ahead of its use, and how outputs that the
 * caches do not hold are written. A matter of speed alone: machine.h says which processors ask for
 * what. */
#ifndef SMX_ENGINE_FETCH_H
#define SMX_ENGINE_FETCH_H
#include "machine.h"
#include "vec.h"

/* What a walk over a group fetches: the next group, in the order of the walk or in that of memory,
 * into a farther cache. near: how many elements on lies the next block of the walk, which is
 * brought into L1 where pages are walked together (Cascade Lake, sums of exponentials from memory
 * 0.47 and 0.42 ns an element). */
typedef struct fetcher {
  size_t first, done, at, near;
  bool straight;
} fetcher;
SMI fetcher fetch_from(size_t first, bool straight) {
  return (fetcher){.first = first, .near = straight ? 0 : PAGE, .straight = straight};
}

/* For vector u of a block, which begins with element i: where to fetch one. */
SMI size_t fetch_next(fetcher *f, int u, size_t i) {
  if (u == 0) f->at = (f->straight ? f->first + f->done : i) + GROUP, f->done += BLOCK;
  return f->at + (size_t)u * LANES;
}

enum { WRITE_AHEAD = 1024 }; /* bytes */
/* A vector of such an output; p is 64-byte aligned. */
SMI void put_past(real *p, vreal x, row_bypass how) {
  if (how == BYPASS_THROUGH) v_prefetch((const char *)p + WRITE_AHEAD), v_store(p, x);
  else v_stream(p, x);
}

#endif
