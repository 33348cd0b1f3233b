/* fuzz_png.c - any bytes as a file of format png. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_format("png", data, size);
  return 0;
}
