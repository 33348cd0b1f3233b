/* reference.h - the double references of an operator over a whole problem, and what "close" means
 * for its results. */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H
#include "problem.h"

/* The outputs of the reference, in C order, for in = p->in; values[i] is for output i. */
void reference_run(const problem *p, double **values);
void reference_free(const problem *p, double **values);

/* The scale of one element of an output, in which op->tolerance counts.
 *   Weights, and any other element-wise result: the magnitude of the reference itself.
 *   Logarithms and values of a row: the largest of the reference, the finite |x| of the row, and
 *   log n, which is what they are sums of.
 *   Gradients that are an output: the largest of the row, and the share of the row in the reduced
 *   loss.
 *   Whole numbers: equal or not; but scores that a softcap has rounded may change places.
 * It grows where the arithmetic says so: by 1 + m / 16 for an operator that adds a bias to its
 * scores and rounds the sum, where m is the largest such sum that can occur (without limit once
 * half a unit of m is more than 1 / 32: a weight then has no digits left); in f64 by 1 + n / 4096,
 * because there sums have no wider type, and for a weight w by 1 + |log w| / 64, because 1 / T has
 * none.
 * A result below the smallest normal number of the arithmetic is flushed: there 0 is right too, and
 * where an operator scales such a result, up to 4 times that. */
typedef struct scale {
  int relative;  /* to the reference alone */
  int whole;     /* whole numbers: equal or not */
  double growth; /* what the scale is multiplied by */
  double row;    /* what the row adds */
  double floor;  /* of a relative scale: smaller values are compared as if they were as large */
  smx_dtype type;
} scale;
/* want: all of the reference */
scale scale_of_row(const problem *p, const smx_port *port, int64_t row, smx_dtype t, const double *want);

/* |got - want| in units of `unit` of the scale; 0 when both are NaN, or got is want rounded to its
 * type; infinity when one is NaN or they are different infinities. */
double distance(scale s, double got, double want, double unit);

#define UNIT_F32 0x1p-24
#define UNIT_F64 0x1p-50 /* eight ULP of a double */

#endif
