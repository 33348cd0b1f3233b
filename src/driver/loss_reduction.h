/* driver/loss_reduction.h - what losses need besides other operators: targets that must be classes,
 * and one value for all rows. */
#ifndef SMX_DRIVER_LOSS_REDUCTION_H
#define SMX_DRIVER_LOSS_REDUCTION_H
#include "base/base.h"
#include "engine/program.h"

/* Targets of all rows: classes of 0 .. classes - 1, or ignore. SMX_ERR_TARGET names the first row
 * whose target is neither; *total is the sum of what the targets count. */
typedef struct smx_targets {
  smx_label what;
  const smx_view *index;
  int64_t classes, ignore;
  const char *weights; /* of the classes, or NULL: each target counts 1 */
  int64_t step;        /* bytes from one to the next */
  int64_t first, held; /* the weights are those of so many classes, `first` and those behind it */
  row_store store;
  smx_dtype dtype; /* of the weights */
  const dtype_io *io;
  bool is_f64; /* the sum, in double */
} smx_targets;
smx_status smx_targets_check(const smx_targets *t, double *total);
/* What the target of a row counts, 0 where its class is not held. */
double smx_target_counts(const smx_targets *t, int64_t row);

/* Lengths of all rows: SMX_ERR_SHAPE names the first that is not 0..n. */
smx_status smx_lengths_check(smx_label what, const smx_view *length, int64_t n);

/* What a mean may be about besides the rows that count, by parameters of the loss: `over` = all,
 * all elements that its masks and lengths keep; `sets` = apart, rows whose whole number is 0, and
 * the others. */
typedef enum smx_mean { SMX_MEAN_ROWS, SMX_MEAN_ELEMENTS, SMX_MEAN_SETS } smx_mean;
smx_mean smx_mean_of(const smx_param *param, double value);

/* How many elements of the rows a mask keeps, below the length of each row; either may be NULL.
 * axis: of the mask, which rows run along. Of the elements first .. first + held - 1, which the
 * mask has. */
double smx_elements_kept(const smx_view *mask, int32_t axis, const smx_view *length, int64_t rows,
                         int64_t first, int64_t held);
/* How many rows have a number other than 0; NULL: none. */
double smx_rows_other(const smx_view *set);

/* The first class whose weight is below 0, and that weight; -1: none. */
int64_t smx_weights_negative(const smx_targets *t, double *weight);

/* The sum of a value of every row, in the order of the contract: blocks of 256 rows in the real
 * type, folded in double. */
double smx_rows_sum(const void *values, int64_t rows, bool is_f64);

/* What the losses of all rows become, as a number of the real type, and what each row's gradient is
 * multiplied by, when the rows count `total` together. */
double smx_reduced(smx_reduction how, const void *losses, int64_t rows, double total, bool is_f64);
/* As smx_reduced, but the means of two sets of rows, added up: those whose number in `set` is 0,
 * and the others; NULL: there are none. A set without rows adds nothing, if the other has some. */
double smx_reduced_sets(smx_reduction how, const void *losses, const smx_view *set, int64_t rows,
                        double total, double other, bool is_f64);
double smx_share(smx_reduction how, double total);

#endif
