/* named.h - a call of an operator whose ports have named dimensions, as data: sizes for the names,
 * values by port, the way they lie in memory, and the run. Made from the operator table. */
#ifndef TESTS_NAMED_H
#define TESTS_NAMED_H
#include <stdbool.h>

#include "driver/dims.h"
#include "guard.h"
#include "util.h"

/* Values are kept as doubles in C order, results as the bytes that the library wrote. An absent
 * input or output is NULL. */
typedef struct named {
  const smx_op *op;
  smx_params params;
  rng random;
  int variant;
  smx_shape in_shape[SMX_MAX_PORTS], out_shape[SMX_MAX_PORTS];
  double *in[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS];
  bool wanted[SMX_MAX_PORTS]; /* outputs */
  unsigned char *out[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
  char words[SMX_MAX_PORTS][128]; /* names of dimensions, while sizes are chosen */
} named;

/* Operators on tensors, by number; NULL after the last. */
const smx_op *named_at(size_t i);

/* A call of an operator. Sizes and values depend on variant and seed: variant 0 has the default
 * parameters and no optional input; the others mix. False where parameters and sizes do not fit
 * together. size: the value of a name, for tests that choose it (NULL, 0: none). */
enum { NAMED_VARIANTS = 6 };
bool named_make(named *p, const smx_op *op, int variant, uint64_t seed, const char *name, int64_t size);
void named_free(named *p);
void named_round(named *p, smx_dtype t); /* every float becomes one of dtype t */

static inline int64_t named_count(const smx_shape *s) {
  int64_t n = 1;
  for (int32_t d = 0; d < s->ndim; d++) n *= s->dim[d];
  return n;
}

/* Whether output o has an upstream gradient, and input i a gradient. */
bool named_has_dout(const named *p, int o);
bool named_has_din(const named *p, int i);

smx_dtype named_dtype(const smx_port *port, smx_dtype t); /* of a port: t, i64 or bool */

/* How a call lies in memory. */
typedef struct named_how {
  smx_context *ctx;
  smx_dtype type;
  uint64_t layout; /* 0: C order everywhere; else axes are permuted, reversed, and have gaps */
} named_how;

/* Runs it forward, and backward where it has a gradient, and keeps the results. */
smx_status named_run(named *p, const named_how *how, bool backward);

/* The tensors of a call, for tests that spoil it: as named_run makes them. */
typedef struct named_call {
  guarded in[SMX_MAX_PORTS], out[SMX_MAX_PORTS], dout[SMX_MAX_PORTS], din[SMX_MAX_PORTS];
  const smx_tensor *ins[SMX_MAX_PORTS], *outs[SMX_MAX_PORTS], *douts[SMX_MAX_PORTS], *dins[SMX_MAX_PORTS];
} named_call;
void named_open(const named *p, const named_how *how, named_call *c);
smx_status named_forward(const named *p, smx_context *ctx, const named_call *c);
smx_status named_backward(const named *p, smx_context *ctx, const named_call *c);
void named_close(named_call *c);

#endif
