/* bits_cross.c - proves, without any test library, that this machine gives the committed bits: the golden sweep on every instruction set it
 * has. Made for cross-compiled builds, where it runs under an emulator; harmless elsewhere. */
#include <stdio.h>

#include "cpu/cpu.h"
#include "sweep.h"

int main(void) {
  int failures = 0;
  for (int i = 0; i < smx_isa_count(); i++) {
    const char *name = smx_isa_at(i);
    int differences = smx_isa_set(name) ? -1 : sweep_compare(SMX_SOURCE_DIR "/tests/golden/operators.txt");
    printf("%s: %d differences from the golden file\n", name, differences);
    failures += differences != 0;
  }
  return failures != 0;
}
