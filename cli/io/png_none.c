/* png_none.c - a command without libpng says so. */
#include "../fault.h"
#include "io.h"

int png_format_read(const io_source *source, const io_hints *hints, io_array *array) {
  return fault(EXIT_USAGE, "%s: this command was built without libpng, which reads pictures", source->name);
}
