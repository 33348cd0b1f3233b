/* attention_calls.h - every function of attention whose tensors follow from a few sizes, as data:
 * for tests that want all of them. */
#ifndef TESTS_ATTENTION_CALLS_H
#define TESTS_ATTENTION_CALLS_H
#include <softmax.h>
#include <stdbool.h>

/* Packed: lq or lk is then that of all sequences together. page: of a paged cache of `pages` pages;
 * 0: none. */
typedef struct attention_sizes {
  int64_t batch, heads, kv_heads, lq, lk, d, e, key_start;
  bool packed_queries, packed_keys;
  int64_t pages, page;
} attention_sizes;

/* What functions have beside options and tensors. */
typedef struct attention_more {
  const smx_op *op;
  const smx_params *params;
  int stage, symmetric;
  double ridge;
} attention_more;

enum {
  CALL_KINDS = 1,  /* takes every options.weights, */
  CALL_GRADS = 2,  /* or those with a gradient; otherwise softmax alone */
  CALL_PACKED = 4, /* offsets are possible */
  CALL_PAGED = 8,
  CALL_SINKS = 16,
  CALL_FITS = 32 /* work and memory of every row grow with d^2 and more */
};

/* ports: for each tensor the letter of its shape (attention_shape), then a space (input), a
 * question mark (optional input), an equals sign (output) or a tilde (optional output). */
typedef struct attention_call {
  const char *name, *ports;
  unsigned flags;
  smx_status (*run)(smx_context *ctx, const smx_attention_options *o, const attention_more *m,
                    const smx_tensor *const *t);
} attention_call;

enum { ATTENTION_CALLS = 17, ATTENTION_PORTS = 12 };
extern const attention_call attention_calls[ATTENTION_CALLS];

/* Parameters that each kind of weights accepts. */
extern const double attention_params[SMX_ATTENTION_KINDS][SMX_ATTENTION_PARAMS];

/* The shape that a letter stands for; returns the number of dimensions:
 *   Q [B, Hq, Lq, d]   K [B, Hkv, Lk, d]   V [B, Hkv, Lk, e]   O [B, Hq, Lq, e]   W the same, i32
 *   L [B, Hq, Lq]   S [B, Hq, Lq, Lk]   H [B, Hq]   M [B, Hkv, Lk]   U [B, Hq, d]   T states */
int32_t attention_shape(const attention_sizes *n, char letter, int64_t *shape);

#endif
