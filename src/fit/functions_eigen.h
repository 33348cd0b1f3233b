/* fit/functions_eigen.h - linear algebra of fits, in double and in an order that threads do not
 * change. */
#ifndef SMX_FIT_FUNCTIONS_EIGEN_H
#define SMX_FIT_FUNCTIONS_EIGEN_H
#include "driver/internal.h"
#include <stdbool.h>

/* W = L^-1, below 0, of a = L L^T, whose upper half is read; a gets L^T in its upper half. So
 * |W x|^2 = x^T a^-1 x. False, and W is NaN: a is not positive definite, or has a NaN. */
bool fit_whiten(smx_context *ctx, int64_t n, double *a, double *w);

/* Eigenvalues of a symmetric matrix, the largest first, and eigenvectors, in the rows of a: to
 * tridiagonal form by Householder's reflections, then implicit QL (Wilkinson, Reinsch 1971). room:
 * n n + 6 n numbers. False: a number is not finite, and so is no value. */
bool fit_eigen(smx_context *ctx, int64_t n, double *a, double *values, double *room);

#endif
