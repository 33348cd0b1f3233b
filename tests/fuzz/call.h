/* call.h - what the targets of the API share: the tensors of one call, each in guarded memory, with
 * any values, layout and dtype, and now and then something wrong with it. Inputs can only be read.
 * After a call that failed, its outputs must be what they were. */
#ifndef TESTS_FUZZ_CALL_H
#define TESTS_FUZZ_CALL_H

#include <softmax.h>

#include "bytes.h"
#include "guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CALL_TENSORS = 40, CALL_ELEMENTS = 1 << 18 };

typedef enum values { VALUES_SCORES, VALUES_MASK, VALUES_BELOW, VALUES_NONE } values;

typedef struct call_tensor {
  guarded g;
  bool output, exact;    /* exact: its size must follow from other tensors, so that a larger one is refused */
  unsigned char *before; /* of an output */
} call_tensor;

typedef struct call {
  bytes b;
  uint64_t random;
  int count;
  call_tensor t[CALL_TENSORS];
  guard_heap heap;
  smx_context *ctx;
} call;

/* Reads what context the call has. c is large: static. */
void call_open(call *c, const uint8_t *data, size_t size);
/* What was wrong before is reported by abort. */
void call_close(call *c);

uint64_t call_random(call *c); /* depends on the input, but takes none of it */

/* Any of f16, bf16, f32 and f64, mostly that of the call before. */
smx_dtype call_float(call *c);

/* A tensor; NULL where its elements are too many. below: VALUES_BELOW are 0 .. below - 1, now and
 * then -1 and below too. */
smx_tensor *call_input(call *c, smx_dtype t, int32_t ndim, const int64_t *shape, values v, int64_t below);
smx_tensor *call_output(call *c, smx_dtype t, int32_t ndim, const int64_t *shape);
/* n elements side by side, for functions that take pointers. */
void *call_array(call *c, smx_dtype t, int64_t n, bool output, values v, int64_t below);
void call_fill(call *c, const guarded *g, values v, int64_t below);
/* The same, broadcast to the shape in one way or another. */
smx_tensor *call_spread(call *c, smx_dtype t, int32_t ndim, const int64_t *shape, values v, int64_t below);

/* Spoils one thing of one tensor, or nothing. A pointer that is to be NULL is one of `given`. */
void call_spoil(call *c, const smx_tensor **given, int count);

/* Before the call: inputs become read-only, outputs are remembered. After it: what an error
 * promises. */
void call_ready(call *c);
void call_check(call *c, smx_status status);

/* A number that options may have: small, whole, huge or none. */
double call_number(call *c);
int64_t call_whole(call *c);

#endif
