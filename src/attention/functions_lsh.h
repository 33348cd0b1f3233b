/* attention/functions_lsh.h - codes of vectors by the sides of random planes on which they are:
 * tables of so many bits each, for lsh_codes, magicpig_attention and kde_attention. In double, each
 * product with a plane in index order. */
#ifndef SMX_ATTENTION_FUNCTIONS_LSH_H
#define SMX_ATTENTION_FUNCTIONS_LSH_H
#include "driver/carve.h"
#include "functions.h"

typedef struct lsh {
  int64_t bits, tables, d;
  double *planes;  /* [tables bits][d] */
  int64_t *stream; /* [tables]: of the numbers that they are drawn from */
} lsh;

/* Memory of the planes and of tasks, which take what `task` has counted; false without memory. */
bool lsh_open(lsh *h, const tensor_call *c, const carver *task, int64_t tasks, smx_scratch *scratch);

/* Normals by the call's seed; those of a table do not depend on how many tables there are. */
smx_status lsh_draw(const lsh *h, const tensor_call *c);

/* The code of x in every table: bit b is 1 where x is on the positive side of plane b; -1 in all
 * tables where an element is NaN. */
void lsh_codes_of(const lsh *h, const double *x, int64_t *codes);

/* The number whose Gray code has these bits: codes of neighbours differ in one bit. */
int64_t lsh_of_gray(int64_t code);

/* Scores z of `count` listed keys become softmax weights; their lse. limit: those of +inf share. */
double listed_soften(bool limit, double *z, int64_t count);

/* The square of the length of a row. */
static inline double square_of(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

#endif
