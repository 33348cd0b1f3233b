/* head/functions_tree.h - what functions of trees share: products of rows in double. */
#ifndef SMX_HEAD_FUNCTIONS_TREE_H
#define SMX_HEAD_FUNCTIONS_TREE_H
#include "functions.h"

/* sum x_i y_i in eight lanes, lane = i mod 8, which are added pairwise. */
double tree_dot(const double *x, const double *y, int64_t n);
/* sum_i += by x_i */
void tree_add(double *sum, double by, const double *x, int64_t n);

/* 1 / (1 + e^-x) */
static inline double tree_sigmoid(double x) { return 1 / (1 + head_math()->exp(-x)); }

#endif
