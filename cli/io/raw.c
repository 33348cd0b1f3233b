/* raw.c - bare elements: the shape and dtype come from the command line. */
#include "../fault.h"
#include "io.h"
#include "output.h"

#include <string.h>

int raw_read(const io_source *source, const io_hints *hints, io_array *array) {
  if (!hints->shape || !hints->type)
    return fault(EXIT_USAGE, "%s: a raw file needs --shape and --dtype-in", source->name);
  array->type = hints->type;
  array->ndim = hints->shape->ndim;
  memcpy(array->shape, hints->shape->dim, sizeof array->shape);
  array->data = source->data;
  return io_layout(source, array, false, source->size);
}

int raw_begin(io_writer *w) {
  w->base[0] = 0;
  return EXIT_OK;
}

int plain_put(io_writer *w, int32_t i, const void *data, size_t bytes) {
  int code = output_write(w->out, w->base[i], data, bytes);
  w->base[i] += bytes;
  return code;
}
