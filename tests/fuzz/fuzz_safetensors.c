/* fuzz_safetensors.c - any bytes as a file of format safetensors. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_format("safetensors", data, size);
  return 0;
}
