/* bits_cross.c - proves, without any test library, that this machine gives the committed bits: the golden sweep on the instruction set that
 * the argument names. Made for cross-compiled builds, where it runs under an emulator; harmless elsewhere. */
#include <stdio.h>

#include "cpu/cpu.h"
#include "sweep.h"

enum { SKIPPED = 77 };

int main(int argc, char **argv) {
  if (argc != 2 || smx_isa_set(argv[1])) {
    printf("not an instruction set of this machine: %s\n", argc == 2 ? argv[1] : "none named");
    return argc == 2 ? SKIPPED : 1;
  }
  int differences = sweep_compare(SMX_SOURCE_DIR "/tests/golden/operators.txt");
  printf("%s: %d differences from the golden file\n", argv[1], differences);
  return differences != 0;
}
