/* preview_none.c - a command without libpng says so. */
#include "fault.h"
#include "preview.h"

int preview_check(void) {
  return fault(EXIT_USAGE, "--preview: this command was built without libpng, which writes pictures");
}
int preview_see(void *user, const run_block *block) { return EXIT_OK; }
int preview_write(preview *p, const char *path, int code) { return code; }
