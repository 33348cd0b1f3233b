/* engine/machine.h - memory settings of the processor at hand. Only speed depends on them.
 *
 * One core of a Xeon reads fastest from several places at once (eight pages together 1.6 times
 * as fast as one after another); one of an AMD processor reads fastest in address order (Zen
 * 5: sums of exponentials 0.15 ns an element, with eight pages 0.18, without prefetching 0.33). */
#ifndef SMX_ENGINE_MACHINE_H
#define SMX_ENGINE_MACHINE_H
#include "program.h"

static inline bool fetches_straight(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

/* Whether keys of attention are read in address order before they are transposed in another. Up to
 * Zen 4 that is faster than to prefetch them; a Zen 5 is faster with prefetch instructions well
 * ahead (of the rate of reading alone, 32 x 8192 x 128 beside other programs: f32 0.67 and 0.76,
 * f16 0.62 and 0.79). */
static inline bool reads_before(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("amdfam17h") || __builtin_cpu_is("amdfam19h");
#else
  return false;
#endif
}

/* Intel's processors with AVX-512, of two kinds: up to Cascade Lake, and later ones with larger
 * caches (measured: Granite Rapids). */
static inline bool is_xeon(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}
static inline bool is_later_xeon(void) {
#if defined(__x86_64__)
  return is_xeon() && __builtin_cpu_supports("avx512vbmi2");
#else
  return false;
#endif
}

/* How so many bytes of output are written. A streaming store of a Xeon waits for its line; an
 * ordinary store to a line that was prefetched does not (Cascade Lake, streaming and prefetched,
 * softmax of 16384 x 1024 0.96 and 0.83 ns an element, 1 x 16777216 1.19 and 1.05, with one
 * processor busy or both). A later Xeon waits only for lines that lie in some cache (Granite
 * Rapids, prefetched and streaming: 256 x 32768 0.355 and 0.385, 512 x 32768 0.406 and 0.384,
 * 1024 x 32768 0.49 and 0.38, 1 x 67108864 0.71 and 0.57). */
enum { UNCACHED_FROM = 8 << 20, PREFETCHED_MOST = 48 << 20 };
static inline row_writing writing_for(size_t bytes) {
  if (bytes <= UNCACHED_FROM) return WRITE_CACHED;
  return is_xeon() && (bytes <= PREFETCHED_MOST || !is_later_xeon()) ? WRITE_PREFETCHED : WRITE_STREAMING;
}

/* So many bytes of a gradient that reads two tensors of its size, in terms of an output that reads
 * one: on an AMD processor what the call touches counts (Zen 4, softmax_backward, ordinary and
 * streaming stores: 4096 x 256 the same, 6144 x 256 0.167 and 0.142 ns an element, 2048 x 1024
 * 0.258 and 0.196). */
static inline size_t gradient_bytes(size_t bytes) { return fetches_straight() ? bytes / 2 * 3 : bytes; }

/* The longest rows of a gradient of which the next is prefetched while one is written. heavy: of
 * many steps (Zen 4, 64 x 151936, with and without: log_softmax 0.53, 0.65; softmax 0.62, 0.57). */
static inline size_t ahead_most(bool heavy) { return heavy && fetches_straight() ? 262144 : 65536; }

/* Whether the input that is summed while such an output is written is prefetched in address order.
 * On a later Xeon that is faster with prefetched stores (Granite Rapids, 128 x 32768 0.38 and
 * 0.355, 1024 x 8192 0.405 and 0.385), slower with streaming ones (512 x 131072 0.40 and 0.47). */
static inline bool fetches_straight_beside(row_writing how) {
  return fetches_straight() || (how == WRITE_PREFETCHED && is_later_xeon());
}

/* How short rows of f16 and bf16 are written, which share cache lines: on Xeons with prefetched
 * stores, elsewhere with ordinary ones (Granite Rapids, bf16, streaming and prefetched:
 * 131072 x 300 1.60 and 0.45, ordinary 0.58; 65536 x 1024 0.38, 0.39, ordinary 0.48). */
static inline row_writing writing_of_half(row_writing how) {
  return how != WRITE_CACHED && is_xeon() ? WRITE_PREFETCHED : WRITE_CACHED;
}

/* Elements from which short rows with outputs beyond the caches are faster one at a time, written
 * while the next row is summed, even where registers would hold several (Granite Rapids, 16384 rows
 * of 160: 0.42, in registers 0.34; of 256: 0.34 and 0.39). On AMD processors none are: there rows
 * that do not fit registers are faster with ordinary stores, however many there are (Zen
 * 4: 262144 x 128 0.64 and 0.35, 104857 x 320 0.50 and 0.35, 32768 x 1024 0.43 and 0.39). */
static inline size_t deferred_from(void) {
  return fetches_straight() ? SIZE_MAX : is_later_xeon() ? 192 : 128;
}

#endif
