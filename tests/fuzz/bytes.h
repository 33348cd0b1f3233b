/* bytes.h - the input of a fuzz target as a stream of decisions; 0 when it is used up. */
#ifndef TESTS_FUZZ_BYTES_H
#define TESTS_FUZZ_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
  const uint8_t *data;
  size_t size;
} bytes;

static inline uint64_t take(bytes *b, size_t count) {
  uint64_t v = 0;
  for (; count && b->size; count--, b->size--) v = v << 8 | *b->data++;
  return v;
}

/* 0 .. n - 1 */
static inline int64_t pick(bytes *b, int64_t n) { return (int64_t)(take(b, n > 256 ? 2 : 1) % (uint64_t)n); }

/* True once in n times, and never where the input has ended. */
static inline bool rarely(bytes *b, int64_t n) { return pick(b, n) == n - 1; }

#endif
