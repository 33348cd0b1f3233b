/* golden.c - proves that results have not changed, and that this machine gives them: the hash of
 * every operator, forward and backward, over a fixed sweep equals the committed one. Arguments: an
 * instruction set, and "1/2" for the first half of the operators. Needs nothing but libc, so that
 * it runs under an emulator too. SMX_GOLDEN_WRITE=path writes the hashes of this build instead. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "sweep.h"

enum { SKIPPED = 77 };

int main(int argc, char **argv) {
  const char *path = getenv("SMX_GOLDEN_WRITE");
  unsigned part = 1, parts = 1;
  if (argc < 2 || (argc > 2 && (sscanf(argv[2], "%u/%u", &part, &parts) != 2 || part < 1 || part > parts))) {
    printf("usage: test_golden INSTRUCTION_SET [PART/PARTS]\n");
    return 2;
  }
  if (smx_isa_set(argv[1])) {
    printf("not an instruction set of this machine: %s\n", argv[1]);
    return SKIPPED;
  }
  int differences =
      path ? sweep_write(path) : sweep_compare(SMX_SOURCE_DIR "/tests/golden/operators.txt", part - 1, parts);
  printf("%s: %d differences from the golden file\n", argv[1], differences);
  return differences != 0;
}
