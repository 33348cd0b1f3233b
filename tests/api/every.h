/* every.h - every public function of softmax.h as a case: small valid inputs, outputs in memory
 * that is known, one call that a proof surrounds with what it likes. The cases are every_calls.c
 * and every_attention.c, the proofs every.c. */
#ifndef TESTS_EVERY_H
#define TESTS_EVERY_H
#include <stdbool.h>

#include "util.h"

typedef struct stage stage;

/* What a proof does around the call of a case. */
typedef struct proof {
  void (*before)(stage *s);
  void (*after)(stage *s);
} proof;

struct stage {
  const proof *proof;
  smx_context *ctx; /* of the call */
  smx_dtype t;      /* of its floats */
  int64_t rows, n;  /* of an operator's input */
  const smx_op *op; /* of smx_forward and smx_backward */
  int variant;
  const char *function; /* what was called */
  smx_status status;    /* what it returned; SMX_OK where it has none */
  rng r;
  unsigned char *in, *out; /* the memory of the case: inputs, and outputs that are filled with CANARY */
  size_t in_used, out_used;
  void *own; /* of the proof */
};

enum { STAGE_BYTES = 48 << 20, CANARY = 0xa5 };

/* For each dtype; for each of these and each extent; for each operator too. */
typedef enum case_kind { CASE_ONCE, CASE_FLOATS, CASE_ROWS, CASE_OPERATOR } case_kind;

typedef struct every_case {
  const char *name;
  void (*run)(stage *s);
  case_kind kind;
} every_case;
extern const every_case every_calls[], every_attention[];
extern const size_t every_calls_count, every_attention_count;

/* Starts a case anew: memory unused, random numbers from the same seed. */
void stage_open(stage *s);

/* Memory of the case; outputs lie side by side, 64 bytes or more apart. */
void *stage_in(stage *s, size_t bytes);
void *stage_out(stage *s, size_t bytes);

/* Tensors in C order: inputs of normal numbers, of the dtype's own (whole numbers below `most`,
 * masks), and outputs. */
smx_tensor *in_floats(stage *s, smx_dtype t, int ndim, const int64_t *shape);
smx_tensor *in_wholes(stage *s, smx_dtype t, int ndim, const int64_t *shape, int64_t most);
smx_tensor *in_values(stage *s, smx_dtype t, int ndim, const int64_t *shape, const double *values);
smx_tensor *out_tensor(stage *s, smx_dtype t, int ndim, const int64_t *shape);
#define SHAPE(...) \
  (int)COUNT_OF(((int64_t[]){__VA_ARGS__})), (int64_t[]) { __VA_ARGS__ }

/* The call itself. GIVES: of a function that returns no status; what it returns is an output. */
void stage_begin(stage *s, const char *function);
void stage_end(stage *s, smx_status status);
#define CALL(s, function, ...) \
  do { \
    stage_begin(s, #function); \
    const smx_status status_ = function(__VA_ARGS__); \
    stage_end(s, status_); \
  } while (0)
#define GIVES(s, function, type, ...) \
  do { \
    type *to_ = stage_out(s, sizeof *to_); \
    stage_begin(s, #function); \
    *to_ = function(__VA_ARGS__); \
    stage_end(s, SMX_OK); \
  } while (0)

#endif
