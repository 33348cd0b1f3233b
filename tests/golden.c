/* golden.c - proves that results have not changed, and that this machine gives them: the hash of every operator, forward and backward, over
 * a fixed sweep equals the committed one, on the instruction set that the argument names. Needs nothing but libc, so that it runs under an
 * emulator too. SMX_GOLDEN_WRITE=path writes the hashes of this build instead. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "sweep.h"

enum { SKIPPED = 77 };

int main(int argc, char **argv) {
  const char *path = getenv("SMX_GOLDEN_WRITE");
  if (argc != 2 || smx_isa_set(argv[1])) {
    printf("not an instruction set of this machine: %s\n", argc == 2 ? argv[1] : "none named");
    return argc == 2 ? SKIPPED : 1;
  }
  int differences = path ? sweep_write(path) : sweep_compare(SMX_SOURCE_DIR "/tests/golden/operators.txt");
  printf("%s: %d differences from the golden file\n", argv[1], differences);
  return differences != 0;
}
