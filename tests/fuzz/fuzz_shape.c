/* fuzz_shape.c - any text as the value of --shape, then the bytes after it as a raw file of that
 * shape; and as a number. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t length = strnlen((const char *)data, size);
  char *text = malloc(length + 1);
  if (!text) return 0;
  memcpy(text, data, length);
  text[length] = 0;
  smx_shape shape;
  if (!parse_shape(text, &shape)) {
    size_t used = length + (length < size);
    io_source source = {.name = "fuzz", .data = data + used, .size = size - used};
    io_hints hints = {.shape = &shape, .type = dtype_at(size % 8)};
    io_array array;
    memset(&array, 0, sizeof array);
    if (io_read_bytes(io_format_named("raw"), &source, &hints, &array) == 0) fuzz_touch(&array);
  }
  int64_t whole;
  double number;
  if (parse_int(text, -5, 5, &whole) && (whole < -5 || whole > 5)) abort();
  parse_f64(text, length, &number);
  free(text);
  return 0;
}
