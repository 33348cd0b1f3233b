/* fuzz_csv.c - any bytes as a file of format csv. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_format("csv", data, size);
  return 0;
}
