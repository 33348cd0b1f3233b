/* run.h - runs one operator over files. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "labels.h"
#include "options.h"
#include "report/table.h"

/* A part of a run as the library saw it: tensors in the order of the operator's ports, NULL where
 * there is none. */
typedef struct run_block {
  const smx_op *op;
  const smx_params *params;
  smx_context *context;
  const smx_tensor *const *in, *const *out;
  const smx_shape *whole;  /* of the first input */
  const smx_shape *result; /* the first output, as a whole */
  int32_t axis;            /* not negative */
  int64_t first;           /* of the columns that `in` and `out` have, where other ranks have the rest */
} run_block;

typedef struct run_request {
  const smx_op *op;
  const options *o;
  int first; /* the first of the files that is an input */
  table_kind kind;
  const labels *labels; /* names of the classes, or NULL */
  /* outputs, a bit each: those that are computed, those that are written or shown; 0 = all */
  uint32_t wanted, shown;
  /* Looks at each block, in order; tables are not shown then. Or NULL. Returns an exit code. */
  int (*see)(void *user, const run_block *block);
  void *user;
} run_request;

/* An exit code. */
int run_operator(const run_request *request);

#endif
