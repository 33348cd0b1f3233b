/* golden.c - proves that results have not changed: the hash of every operator, forward and backward, over a fixed sweep equals the
 * committed one. SMX_GOLDEN_WRITE=path writes the hashes of this build instead. */
#include <stdio.h>
#include <stdlib.h>

#include "sweep.h"
#include "unit.h"

static void results_are_those_committed(void **state) {
  (void)state;
  const char *path = getenv("SMX_GOLDEN_WRITE");
  printf("instruction set: %s\n", smx_isa_name());
  if (path) assert_int_equal(sweep_write(path), 0);
  else assert_int_equal(sweep_compare(SMX_SOURCE_DIR "/tests/golden/operators.txt"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_those_committed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
