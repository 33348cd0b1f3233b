/* engine/fetch.h - in which order memory is fetched ahead of its use. A matter of speed alone.
 *
 * One core of a Xeon reads fastest from several places at once (eight pages together 1.6 times as fast as one after another), one of an AMD processor
 * straight on (Zen 5: sums of exponentials 0.15 ns an element, with eight pages 0.18, without fetching 0.33). */
#ifndef SMX_ENGINE_FETCH_H
#define SMX_ENGINE_FETCH_H
#include "vec.h"
#include <stdbool.h>

static inline bool fetches_straight(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

/* What a walk over a group fetches: the next group, in the order of the walk or in that of memory. */
typedef struct fetcher {
  size_t first, done, at;
  bool straight;
} fetcher;
SMI fetcher fetch_from(size_t first) { return (fetcher){.first = first, .straight = fetches_straight()}; }

/* For vector u of a block, which begins with element i: where to fetch one. */
SMI size_t fetch_next(fetcher *f, int u, size_t i) {
  if (u == 0) f->at = (f->straight ? f->first + f->done : i) + GROUP, f->done += BLOCK;
  return f->at + (size_t)u * LANES;
}

#endif
