/* matrix/basis_program.h - whether a basis proves that a token is possible: see basis_program.c. */
#ifndef SMX_MATRIX_BASIS_PROGRAM_H
#define SMX_MATRIX_BASIS_PROGRAM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct basis_crossing {
  double at; /* how far along the edge */
  size_t row;
} basis_crossing;

typedef struct basis_program {
  size_t n, m, token;
  const double *a, *p;  /* [n][m], [n] */
  double slack;         /* s - 1 */
  double *r, *v;        /* [n]: residuals at y, and along an edge */
  double *edge;         /* [m][m]: y, and along edge k the equation in place k alone changes, by 1 */
  double *pull;         /* [m]: the gradient of F without the equations that hold */
  double *error;        /* [m] */
  int64_t *holds;       /* [m]: the rows whose residual is 0, or -1 - j for y_j = 0; first the token */
  basis_crossing *heap; /* [n] */
  signed char *side;    /* [n]: the sign of a residual; 0: it holds */
} basis_program;

/* Whether there is a proof. p and a are not negative, finite and their rows begin with 1. */
bool basis_proves(const basis_program *g);

#endif
