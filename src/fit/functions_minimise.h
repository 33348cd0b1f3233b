/* fit/functions_minimise.h - the least value of a smooth function of many variables, in double. */
#ifndef SMX_FIT_FUNCTIONS_MINIMISE_H
#define SMX_FIT_FUNCTIONS_MINIMISE_H
#include "driver/internal.h"

/* f(x), and its gradient g [n]. On an error the search ends with it. */
typedef smx_status fit_function(void *arg, const double *x, double *f, double *g);

typedef struct fit_search {
  fit_function *function;
  void *arg;
  int64_t n;
  int most;         /* iterations */
  double tolerance; /* ends where no part of the gradient is larger, times max(1, |f|) */
} fit_search;

/* From x on to the least value, by L-BFGS of 10 pairs (Liu, Nocedal 1989) with a line search for
 * the Wolfe conditions; where rounding hides a decrease, for the approximate ones (Hager, Zhang
 * 2005). x and *f: the best that was found, of which f is no NaN if that of the start is none. Sums
 * are in index order, so the bits depend on those of the function alone. */
smx_status fit_minimise(smx_context *ctx, const fit_search *search, double *x, double *f);

#endif
