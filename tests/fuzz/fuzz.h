/* fuzz.h - what the fuzz targets share: read bytes as a format, then touch all that the reader says
 * is there. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "io/io.h"
#include "parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every element lies inside the bytes, and the strides reach no other. */
static inline void fuzz_touch(const io_array *a) {
  int64_t count, reach = 0;
  double sum = 0;
  if (a->ndim < 0 || a->ndim > SMX_MAX_DIMS || !count_elements(a->ndim, a->shape, &count)) abort();
  for (int64_t i = 0; i < count; i++) sum += io_get(a, a->data + (size_t)i * a->type->bytes);
  for (int32_t i = 0; i < a->ndim; i++) reach += (a->shape[i] - 1) * a->strides[i];
  if (count && reach != count - 1) abort();
  volatile double kept = sum;
  (void)kept;
}

/* Reads the bytes as an array, once for each member name. */
static inline void fuzz_format(const char *name, const uint8_t *data, size_t size) {
  static const char *const members[] = {NULL, "a", ""};
  io_source source = {.name = "fuzz", .data = data, .size = size};
  const io_format *format = io_format_named(name);
  for (size_t i = 0; i < (format->container ? 3 : 1); i++) {
    io_hints hints = {.member = members[i]};
    io_array array;
    memset(&array, 0, sizeof array);
    if (io_read_bytes(format, &source, &hints, &array) == 0) fuzz_touch(&array);
    free(array.owned);
  }
}

#endif
