/* fuzz_operator.c - any bytes as a call of any operator. */
#include "operators.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static call c;
  call_open(&c, data, size);
  const size_t which = (size_t)take(&c.b, 2) % (smx_op_count() + 1);
  fuzz_operator(&c, smx_op_at(which < smx_op_count() ? which : 0), 3000);
  return 0;
}
