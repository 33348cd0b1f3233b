/* engine/machine.h - what the memory of this machine's processors asks for. A matter of speed
 * alone.
 *
 * One core of a Xeon reads fastest from several places at once (eight pages together 1.6 times
 * as fast as one after another), one of an AMD processor straight on (Zen 5: sums of exponentials
 * 0.15 ns an element, with eight pages 0.18, without fetching 0.33). */
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

/* Intel's with AVX-512, of two kinds: up to Cascade Lake, and those whose caches are larger (seen:
 * Granite Rapids). */
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

/* How so many bytes of output are written. A Xeon waits for each line that it writes past the
 * caches; for one that was fetched and is written through them it does not (Cascade Lake, softmax
 * of 16384 x 1024 0.96 and 0.83 ns an element, 1 x 16777216 1.19 and 1.05, whether one processor
 * is busy or both). A later one waits only for lines that lie in some cache (Granite Rapids,
 * through and past: 256 x 32768 0.355 and 0.385, 512 x 32768 0.406 and 0.384, 1024 x 32768 0.49 and
 * 0.38, 1 x 67108864 0.71 and 0.57). */
enum { BYPASS_FROM = 8 << 20, THROUGH_MOST = 48 << 20 };
static inline row_bypass bypass_for(size_t bytes) {
  if (bytes <= BYPASS_FROM) return BYPASS_NOT;
  return is_xeon() && (bytes <= THROUGH_MOST || !is_later_xeon()) ? BYPASS_THROUGH : BYPASS_PAST;
}

/* Whether what is summed while such an output is written is fetched straight on. A later Xeon does
 * better so as long as it writes through its caches (Granite Rapids, 128 x 32768 0.38 and 0.355,
 * 1024 x 8192 0.405 and 0.385), not past them (512 x 131072 0.40 and 0.47). */
static inline bool fetches_straight_beside(row_bypass how) {
  return fetches_straight() || (how == BYPASS_THROUGH && is_later_xeon());
}

/* How short rows of f16 and bf16 are written, which share lines: on Xeons through the caches,
 * elsewhere as if they were few (Granite Rapids, bf16 past and through: 131072 x 300 1.60 and 0.45,
 * in the caches alone 0.58; 65536 x 1024 0.38, 0.39 and 0.48). */
static inline row_bypass bypass_near(row_bypass how) {
  return how != BYPASS_NOT && is_xeon() ? BYPASS_THROUGH : BYPASS_NOT;
}

/* Elements from which short rows of outputs that the caches do not hold do better in the page's
 * way, written while the next are summed, even where registers hold them (Granite Rapids,
 * 16384 rows of 160: 0.42, in registers 0.34; of 256: 0.34 and 0.39). On AMD processors none do:
 * there those that do not fit registers do better in the caches, however many there are (Zen
 * 4: 262144 x 128 0.64 and 0.35, 104857 x 320 0.50 and 0.35, 32768 x 1024 0.43 and 0.39). */
static inline size_t deferred_from(void) {
  return fetches_straight() ? SIZE_MAX : is_later_xeon() ? 192 : 128;
}

#endif
