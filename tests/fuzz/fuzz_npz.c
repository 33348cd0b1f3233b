/* fuzz_npz.c - any bytes as a file of format npz. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_format("npz", data, size);
  return 0;
}
