/* driver/operation.h - a call of an operator on rows between its checks and its end: for what runs
 * the rows in another way than operator.h does. */
#ifndef SMX_DRIVER_OPERATION_H
#define SMX_DRIVER_OPERATION_H
#include "check.h"
#include "loss_reduction.h"

/* What a mean divides by: the count of all rows, or of two sets of them. */
typedef struct counted {
  smx_mean about;
  double total, other;
  const smx_view *set; /* a number for each row, 0 in the first set; or NULL */
} counted;

/* In memory of its own: it is too large for a stack that may have 16 KB in all. */
typedef struct operation {
  const job_source *source; /* of x, or NULL */
  bool backward;
  checked check;
  job job;
  job_port offsets;
  counted counted;
  smx_targets targets; /* index NULL: there are none */
  /* where there is an output of one value for all rows: the losses of the rows in memory of the
   * call, and where they go in the end */
  int32_t scalar; /* that output, or -1 */
  char *losses;
  job_port loss;
} operation;

/* One rank's columns of rows of n elements: x and what is as long have `count` of them, `first` and
 * those behind it. What the rows count together is then the part of these columns. */
typedef struct operation_columns {
  int64_t n, first;
} operation_columns;

/* Checks the arguments of smx_forward or smx_backward and makes the job. columns NULL: whole
 * rows. */
smx_status operation_forward(operation *o, const operation_columns *columns, const smx_op *op,
                             smx_context *ctx, const smx_params *params, int32_t n_in,
                             const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out);
smx_status operation_backward(operation *o, const operation_columns *columns, const smx_op *op,
                              smx_context *ctx, const smx_params *params, int32_t n_in,
                              const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                              const smx_tensor *const *dout, const smx_tensor *const *din);

/* Reserves memory for the losses of the rows, where the call reduces them, and leaves dst[0] to
 * them; to be followed by operation_close, whatever happens. */
smx_status operation_open(operation *o);
/* Tells the rows what they share: to be called when `counted` is that of whole rows. */
void operation_share(operation *o);
/* With SMX_OK: stores losses and their reduction. */
void operation_close(operation *o, smx_status status);

/* The error of a run of rows. */
smx_status operation_error(const operation *o, smx_status status, int64_t empty);

#endif
