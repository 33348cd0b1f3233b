/* targets.c - the class of each row, in C order. */
#include "targets.h"

#include "fault.h"
#include "parse.h"

#include <stdlib.h>

int targets_read(input *in, const options *o, const input *x, int64_t **classes) {
  static const smx_port port = {"target", SMX_SHAPE_FULL, SMX_PORT_INT, "the class of each row"};
  int64_t rows, count;
  const io_array *a = &in->array;
  int code = input_read(in, &port, o, NULL);
  if (code) return code;
  if (!count_elements(x->array.ndim - 1, x->array.shape, &rows) ||
      !count_elements(a->ndim, a->shape, &count) || rows != count)
    return fault(EXIT_REFUSED, "%s: it has not a class for each row of %s", in->path, x->path);
  *classes = malloc((size_t)rows * sizeof **classes + 1);
  if (!*classes) return fault_memory((size_t)rows * sizeof **classes);
  for (int64_t i = 0; i < rows; i++) (*classes)[i] = (int64_t)io_element(a, i);
  return code;
}
