/* problem.h - one call of any operator, as data: values by port, the way they lie in memory, and
 * the run. Built from the operator table. */
#ifndef TESTS_PROBLEM_H
#define TESTS_PROBLEM_H
#include "util.h"

/* Inputs and upstream gradients are kept as doubles in C order: rows x n (FULL), rows x k (K), rows
 * (ROW), n (COLUMN) or segments + 1. Results are kept as the bytes the library wrote, in C order
 * too. An absent input is NULL. */
typedef struct problem {
  const smx_op *op;
  smx_params params;
  int64_t rows, n, segments;
  double *in[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS];
  unsigned char *out[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
} problem;

/* Kinds of rows of scores. */
typedef enum kind {
  KIND_NORMAL,  /* deviation 5 */
  KIND_HOLES,   /* the same, a quarter -inf */
  KIND_TIES,    /* few distinct values */
  KIND_WIDE,    /* deviation 60: many weights vanish */
  KIND_RISING,  /* each larger than the one before, from -100 to 100 */
  KIND_SHIFTED, /* around 1e4 */
  KIND_HUGE,    /* around 1e30, out of reach of f16: +inf there */
  KIND_NAN,     /* one NaN */
  KIND_INF,     /* one +inf */
  KIND_EMPTY,   /* only -inf */
  KINDS
} kind;
extern const char *const kind_names[KINDS];

/* Settings of an operator: variant 0 has the default parameters and no optional input, 1 has every
 * optional input; the others mix. Parameters that an operator got later stand after `reduction`, so
 * that the numbers of the others did not move; the first VARIANTS leave them alone, so that hashes
 * from before still hold, and variants_of() has some more for an operator with such parameters. */
#define VARIANTS 7
#define LATER_VARIANTS 4
int variants_of(const smx_op *op);

/* Whether rows of n elements can be: a parameter that is at most n may have a minimum. */
int problem_possible(const smx_op *op, int64_t n);

/* Row r gets kind kinds[r % kind_count]. Values are made of integers: the same on every machine. */
void problem_make(problem *p, const smx_op *op, int64_t rows, int64_t n, int variant, uint64_t seed,
                  const kind *kinds, int kind_count);
/* Row r of the copy is row (r + shift) mod src->rows. */
void problem_rows(problem *p, const problem *src, int64_t rows, int64_t shift);
void problem_round(problem *p, smx_dtype t); /* makes every float value one of dtype t */
void problem_free(problem *p);

int64_t port_length(const problem *p, const smx_port *port); /* elements of a row: n, 1 or k */
int64_t port_count(const problem *p, const smx_port *port);
smx_dtype port_dtype(const smx_port *port, smx_dtype t); /* t, or i64 for whole numbers */
int has_gradient(const problem *p, int o);               /* whether output o has an upstream gradient */
double param_or(const problem *p, const char *name, double otherwise);
/* the port when input i is there and has a gradient, else NULL */
const smx_port *grad_port(const problem *p, int i);

/* How a call lies in memory. */
enum { LAYOUT_C, LAYOUT_ROW_GAP, LAYOUT_MIDDLE_AXIS, LAYOUT_STEP, LAYOUT_REVERSED, LAYOUTS };
/* against the guard page after, before, or one element off its alignment */
enum { PLACE_END, PLACE_START, PLACE_ODD, PLACES };
/* y is x; dx is dy; or dx is the saved y, where the operator allows it */
enum { APART, IN_PLACE, IN_PLACE_SAVED, ALIASES };

typedef struct config {
  smx_context *ctx;
  smx_dtype in_dtype, out_dtype; /* of the float inputs; of outputs, and all gradients */
  int layout, place, alias;
} config;

typedef enum direction { FORWARD, BACKWARD } direction;

/* Runs it and keeps the results; a backward run uses the results of the forward run. Returns
 * SMX_OK, the library's error, or WROTE_OUTSIDE when bytes around the results changed, or
 * INPUT_CHANGED. */
enum { WROTE_OUTSIDE = 1000, INPUT_CHANGED = 1001 };
int problem_run(problem *p, const config *how, direction d);

/* For one input or output: its bytes as values. The caller frees. */
double *problem_values(const problem *p, const smx_port *port, const void *bytes, smx_dtype t);

#endif
