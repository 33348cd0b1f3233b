/* attention.h - attention for Python: what its entry points take, and a call on its way. */
#ifndef SMX_PYTHON_ATTENTION_H
#define SMX_PYTHON_ATTENTION_H
#include "prepared.h"

typedef enum attention_array {
  Q,
  K,
  V,
  R,
  U,
  X,
  W,
  O,
  LSE,
  WINNERS,
  MASS,
  D_O,
  D_LSE,
  D_Y,
  ROW_WEIGHTS,
  MASK,
  BIAS,
  SLOPES,
  SINKS,
  ROW,
  LENGTHS,
  STREAMS,
  QUERY_OFFSETS,
  KEY_OFFSETS,
  BLOCK_TABLE,
  BUDGETS,
  POSITIONS,
  FREQUENCIES,
  CARRY,
  ATTENTION_ARRAYS
} attention_array;

enum { ATTENTION_RESULTS = 7, ATTENTION_KERNELS = 64, ATTENTION_STATES = 24 };

/* The arguments that are numbers. Those that begin with d say whether a gradient is wanted, in the
 * order of the results. */
typedef struct attention_numbers {
  int64_t weights, causal, query_start, window_left, window_right, key_start, seed, stream;
  int64_t return_lse, return_winners, return_carry;
  int64_t stage, keep, first, last, kernel, pool, shared, size, symmetric;
  int64_t layout, dims, start, cumulative;
  int64_t dq, dk, dv, dbias, dslopes, dsinks, drow, dr, du, dpositions, dfrequencies;
  double scale, softcap, dropout, ridge, base;
} attention_numbers;

struct attention_call;

typedef struct attention_entry {
  const char *name;
  int (*run)(struct attention_call *a);
  uint32_t required; /* bit i: array i */
} attention_entry;

/* What a call is besides its arrays. */
typedef struct attention_settings {
  const attention_entry *entry;
  attention_numbers n;
  double param[SMX_ATTENTION_PARAMS];
  const smx_op *op; /* whose rows the weights are, or NULL */
  smx_params op_params;
  int64_t kernels[ATTENTION_KERNELS];
  size_t kernel_count;
  PyObject *on_empty, *on_inf; /* borrowed; NULL: not given */
} attention_settings;

typedef struct attention_call {
  core_call c;
  smx_op op; /* only its name is used, for messages */
  const attention_settings *s;
  PyObject *object[ATTENTION_ARRAYS];        /* borrowed; NULL: not given */
  const smx_tensor *given[ATTENTION_ARRAYS]; /* as the caller has them */
  const smx_tensor *array[ATTENTION_ARRAYS]; /* as the library is to see them, [B, ...] */
  PyObject *out, *states;                    /* borrowed, or NULL */
  smx_attention_options options;
  smx_context *ctx;
  /* of q and its like: 2 dimensions are one head, 3 have no batch, more have several axes of it */
  int32_t rank, lead;
  int64_t batch[SMX_MAX_DIMS]; /* lead of them */
  core_results results;
} attention_call;

/* ---- attention.c ---- */

extern const char *const attention_array_names[ATTENTION_ARRAYS];

/* ---- attention_batch.c ---- */

/* All arrays as the library is to see them: axes in front of [H, L, d] become one. */
int attention_lay_out(attention_call *a);

/* A new result, or the caller's (given), for the library. Its shape is that of the batch, then
 * heads (unless there is no axis of them), then ndim more numbers of dim. */
int attention_result(attention_call *a, int32_t i, const char *name, PyObject *given, smx_dtype dtype,
                     int64_t heads, int32_t ndim, const int64_t *dim);

/* A gradient with the shape of array `of`, if it is wanted. */
int attention_gradient(attention_call *a, int32_t i, const char *name, int64_t wanted, attention_array of);

/* ---- attention_entries.c ---- */

extern const attention_entry attention_entries[];
extern const size_t attention_entry_count;

#endif
