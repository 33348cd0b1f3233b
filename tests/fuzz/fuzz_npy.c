/* fuzz_npy.c - any bytes as a file of format npy. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_format("npy", data, size);
  return 0;
}
