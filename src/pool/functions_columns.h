/* pool/functions_columns.h - some neighbouring channels of a set, whose items are looked at run by
 * run: the numbers of a few items, row by row, so that a few channels make long runs too.
 *
 * Sums have four lanes: item i of a run adds to lane i % 4 of its channel, and lanes are added in
 * pairs. A run has a multiple of four items, but for the last, so runs change no bit. */
#ifndef SMX_POOL_FUNCTIONS_COLUMNS_H
#define SMX_POOL_FUNCTIONS_COLUMNS_H
#include "functions_sets.h"

enum { POOL_LANES = 4, POOL_RUN = POOL_LANES * SET_WIDTH }; /* POOL_RUN: numbers of a run, at most */

typedef struct pool_columns {
  const pool_sets *s;
  const pool_set *q;
  int64_t width, rows; /* channels; items of a run */
} pool_columns;

/* width: 1..SET_WIDTH. */
pool_columns pool_columns_of(const pool_sets *s, const pool_set *q, int64_t width);

typedef struct pool_run {
  int64_t item, rows, n; /* the first item; how many; their numbers */
} pool_run;

/* From {0} on through the items of the set; false: there are no more. */
bool pool_next_run(const pool_columns *k, pool_run *r);

/* The numbers of a run in a tensor, in which number 0 of item 0 of the lead is at `at`, and items
 * are `step` apart. */
void pool_load_run(const pool_columns *k, const pool_run *r, const smx_view *v, int64_t at, int64_t step,
                   double *x);
void pool_store_run(const pool_columns *k, const pool_run *r, const smx_view *v, int64_t at, int64_t step,
                    const double *x);

/* Gives items that are not there a value. */
void pool_hide(const pool_columns *k, const pool_run *r, double value, double *x);

/* Adds to the lanes, [POOL_LANES][width], and makes them one sum. */
void pool_add(const pool_columns *k, const pool_run *r, const double *x, double *lane);
void pool_fold(const pool_columns *k, const double *lane, double *sum);

/* The same for the largest of sign x; lanes begin at -inf, and a NaN stays. */
void pool_raise(const pool_columns *k, const pool_run *r, double sign, const double *x, double *lane);
void pool_fold_largest(const pool_columns *k, const double *lane, double *largest);

#endif
