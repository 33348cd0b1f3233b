/* targets.c - the class of each row, and its weight, in C order. */
#include "targets.h"

#include "fault.h"
#include "parse.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Reads one number for each row of x, `what`; how many. */
static int read_rows(input *in, const smx_port *port, const options *o, const input *x, const char *what,
                     int64_t *rows) {
  int64_t count;
  const io_array *a = &in->array;
  int code = input_read(in, port, o, NULL);
  if (code) return code;
  if (!count_elements(x->array.ndim - 1, x->array.shape, rows) ||
      !count_elements(a->ndim, a->shape, &count) || *rows != count)
    return fault(EXIT_REFUSED, "%s: it has not a %s for each row of %s", in->path, what, x->path);
  return EXIT_OK;
}

int targets_read(input *in, const options *o, const input *x, int64_t **classes) {
  static const smx_port port = {"target", SMX_SHAPE_FULL, SMX_PORT_INT, "the class of each row"};
  int64_t rows;
  int code = read_rows(in, &port, o, x, "class", &rows);
  if (code) return code;
  *classes = malloc((size_t)rows * sizeof **classes + 1);
  if (!*classes) return fault_memory((size_t)rows * sizeof **classes);
  for (int64_t i = 0; i < rows; i++) (*classes)[i] = (int64_t)io_element(&in->array, i);
  return code;
}

int weights_read(input *in, const options *o, const input *x, double **weights) {
  static const smx_port port = {"weight", SMX_SHAPE_FULL, 0, "the weight of each row"};
  int64_t rows;
  int code = read_rows(in, &port, o, x, "weight", &rows);
  if (code) return code;
  *weights = malloc((size_t)rows * sizeof **weights + 1);
  if (!*weights) return fault_memory((size_t)rows * sizeof **weights);
  for (int64_t i = 0; i < rows && !code; i++) {
    const double w = (*weights)[i] = io_element(&in->array, i);
    if (!(w >= 0 && isfinite(w)))
      code = fault(EXIT_REFUSED, "%s: row %" PRId64 ": %g is no weight: finite, and not below 0", in->path, i,
                   w);
  }
  return code;
}
