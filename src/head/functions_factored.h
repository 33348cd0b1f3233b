/* head/functions_factored.h - a linear layer of very many classes that is kept as two factors
 * (Vincent, de Brebisson, Bouthillier 2015),
 *
 *   W = V U + 1 omega^T   [C, d];   Q = W^T W,  sums = W^T 1
 *
 * A loss of the spherical family depends on o = W h only through o_y of the classes y of the row,
 * q = |o|^2 = h^T Q h and s = sum o = sums h. So loss, gradient and step touch the rows of V that
 * are targets, and d x d numbers. */
#ifndef SMX_HEAD_FUNCTIONS_FACTORED_H
#define SMX_HEAD_FUNCTIONS_FACTORED_H
#include "driver/carve.h"
#include "functions_tree.h"

/* The rows of a state, from row: d of U, d of U^-T, d of Q, omega, sums. */
enum { FACTORED_H, FACTORED_V, FACTORED_STATE, FACTORED_TARGET, FACTORED_VALUE, FACTORED_GRAD };
static inline int64_t factored_rows(int64_t d) { return 3 * d + 2; }
typedef struct factored_state {
  double *u, *inverse, *q, *omega, *sums; /* [d, d], [d, d], [d, d], [d], [d], side by side */
} factored_state;
factored_state factored_divide(double *rows, int64_t d);

/* A call on rows h with their targets, everything in double. D: the gradient of q, twice. */
typedef struct factored {
  const tensor_call *c;
  bool gradient, step;
  int64_t n, t, d, classes, ignore;
  const int64_t *target;
  double *rows;                           /* of the state */
  factored_state from;                    /* the same */
  double *h, *qh, *uh;                    /* [n, d]: rows, zeros where all is ignored, Q h and U h */
  double *loss, *twice, *s_slope, *x_sum; /* [n]: losses, D, the gradients of s, sums of those of o_y */
  double *x_slope;                        /* [n, t]: the gradients of o_y */
  double *pulled, *dh; /* [n, d]: sums of x_slope v_y; then Z = W^T Y + sums s_slope; gradients of h */
  smx_scratch scratch;
} factored;

/* Divides the memory of a call; reads what it is given; forms losses and, if wanted, gradients. */
void factored_carve(factored *f, carver *m);
factored factored_of(const tensor_call *c, bool gradient, bool step);
smx_status factored_run(factored *f);

static inline bool factored_counts(const factored *f, int64_t i) { return f->target[i] != f->ignore; }

/* to = by a b^T, [rows, columns], of sums over depth. */
typedef struct factored_matrix {
  const double *data;
  int64_t row, step; /* from row to row, and from one number of a sum to the next */
} factored_matrix;
smx_status factored_times(const tensor_call *c, int64_t rows, int64_t columns, int64_t depth,
                          factored_matrix a, factored_matrix b, double *to);
static inline factored_matrix factored_plain(const double *x, int64_t d) {
  return (factored_matrix){x, d, 1};
}
static inline factored_matrix factored_turned(const double *x, int64_t d) {
  return (factored_matrix){x, 1, d};
}

smx_status factored_no_memory(const tensor_call *c);

#endif
