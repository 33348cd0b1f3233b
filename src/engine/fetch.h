/* engine/fetch.h - the order in which memory is prefetched, and stores for outputs larger than the
 * caches. Only speed depends on it; machine.h says what each processor needs. */
#ifndef SMX_ENGINE_FETCH_H
#define SMX_ENGINE_FETCH_H
#include "machine.h"
#include "vec.h"

/* What a loop over a group prefetches: the next group, in the order of the loop or of addresses,
 * into an outer cache. near: the distance in elements of the loop's next block, which is brought
 * into L1 where pages are read together (Cascade Lake, sums of exponentials from memory 0.47 and
 * 0.42 ns an element). */
typedef struct fetcher {
  size_t first, done, at, near;
  bool straight;
} fetcher;
SMI fetcher fetch_from(size_t first, bool straight) {
  return (fetcher){.first = first, .near = straight ? 0 : PAGE, .straight = straight};
}

/* Prefetches for vector u of a block, which begins with element i. */
SMI size_t fetch_next(fetcher *f, int u, size_t i) {
  if (u == 0) f->at = (f->straight ? f->first + f->done : i) + GROUP, f->done += BLOCK;
  return f->at + (size_t)u * LANES;
}

enum { WRITE_AHEAD = 1024 }; /* bytes */
/* A vector of such an output; p is 64-byte aligned. */
SMI void put_uncached(real *p, vreal x, row_writing how) {
  if (how == WRITE_PREFETCHED) v_prefetch((const char *)p + WRITE_AHEAD), v_store(p, x);
  else v_stream(p, x);
}

#endif
