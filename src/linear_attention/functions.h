/* linear_attention/functions.h - the functions of the operators of src/linear_attention, and what
 * they share: the tokens of one head side by side, as the walks of the kernel want them. */
#ifndef SMX_LINEAR_ATTENTION_FUNCTIONS_H
#define SMX_LINEAR_ATTENTION_FUNCTIONS_H
#include "cpu/cpu.h"
#include "driver/tensor_reals.h"
#include "linear_attention.h"
#include "score/score.h"

enum { IN_Q, IN_K, IN_V, IN_DECAY, IN_BETA, IN_PAST, IN_MASK }; /* inputs */
enum { OUT_Y, OUT_STATE };                                      /* outputs */
typedef enum state_norm { NORM_NONE, NORM_SUM, NORM_COUNT, NORM_MALA, NORM_INLINE } state_norm;

static inline const linear_attention_kernels *state_kernels(bool f64) {
  const smx_isa *isa = smx_isa_current();
  return f64 ? isa->f64.linear_attention : isa->f32.linear_attention;
}
/* Functions of one number in double. */
static inline const score_kernels *state_math(void) { return smx_isa_current()->f64.score; }

/* The scale of products of rows of d, where none is asked for. */
static inline double state_scale(double asked, int64_t d) {
  return asked != 0 ? asked : 1 / __builtin_sqrt(d > 0 ? (double)d : 1);
}

typedef struct state_call {
  const tensor_call *c;
  const linear_attention_kernels *kernels;
  int64_t groups, per, queries, keys, d, e; /* per: heads of queries of a head of keys */
  int64_t m, n;                             /* of the state; beyond d and e only with a norm */
  int64_t wide_d, wide_n;                   /* padded */
  int64_t wide_v;                           /* of v and out as they are staged: wide_n, or e */
  int64_t bytes;                            /* of a real */
  int map;
  state_norm norm;
  bool causal, delta, decays;
  int64_t decay_width; /* 1 or d */
  double scale, eps;
} state_call;

/* Tokens of one head. k: map(k); q: scale map(q); v with a 1 behind it, where there is a norm
 * and wide_v has room;
 * decay: e^decay; kept: 1, or 0 for a token that the mask hides, whose k, v and beta are 0 too. */
typedef struct state_tokens {
  char *k, *q, *v, *decay, *beta, *kept, *one;
  char *k_slope, *q_slope; /* NULL: not wanted */
} state_tokens;

/* What the norm made of a token: out = z S of width n, all = the last row of the state. */
typedef struct state_made {
  double *out, *all, *dy, *dout, *dall; /* n each */
} state_made;

smx_status state_open(state_call *s, const tensor_call *c);

/* Numbers of reals that state_tokens takes, and its pieces from `memory` on, zeroed. */
int64_t state_tokens_size(const state_call *s, int64_t tokens, bool slopes);
state_tokens state_tokens_at(const state_call *s, int64_t tokens, bool slopes, char *memory);

/* Tokens first..first + count - 1 of head `head` of `item`: copies, or where the caller has
 * them. */
void state_stage_keys(const state_call *s, int64_t item, int64_t head, int64_t first, int64_t count,
                      state_tokens *to);
void state_stage_queries(const state_call *s, int64_t item, int64_t head, int64_t first, int64_t count,
                         const state_tokens *to);

/* A state in memory of wide rows, from the tensor at port `past`, or of zeros; and to an output. */
void state_load(const state_call *s, int64_t item, int64_t head, const char *from, char *state);
/* Where rows are as wide as the output, `state` is already there. Subnormal numbers stay, so that a
 * call that goes on from it has what one call for all tokens has. */
void state_store(const state_call *s, int64_t item, int64_t head, const char *state, char *to);

static inline double state_inverse(double x) { return x == 0 ? 0 : 1 / x; }
/* y of a token; the gradients of out and all for dy. */
void state_norm_of(const state_call *s, const state_made *made, double *y);
void state_norm_back(const state_call *s, state_made *made);

static inline char *state_at(const state_call *s, char *array, int64_t row, int64_t width) {
  return array ? array + row * width * s->bytes : NULL;
}

/* Tensors of the call: rows of head `head`, of `heads`, of `item`, from token `token` on. */
static inline char *state_rows(const state_call *s, const smx_view *v, int64_t item, int64_t heads,
                               int64_t head, int64_t tokens, int64_t token, int64_t width) {
  return v->data + (((item * heads + head) * tokens + token) * width) * s->bytes;
}

smx_status slots_forward(const tensor_call *c);
smx_status slots_backward(const tensor_call *c);
smx_status mesa_forward(const tensor_call *c);
smx_status mesa_backward(const tensor_call *c);
smx_status galerkin_forward(const tensor_call *c);
smx_status galerkin_backward(const tensor_call *c);
smx_status fourier_forward(const tensor_call *c);
smx_status fourier_backward(const tensor_call *c);

/* Features of queries and keys. */
smx_status taylor_sizes(dims *d);
smx_status taylor_forward(const tensor_call *c);
smx_status taylor_backward(const tensor_call *c);
smx_status twice_sizes(dims *d); /* as many features again as elements */
smx_status cosformer_forward(const tensor_call *c);
smx_status cosformer_backward(const tensor_call *c);
smx_status nala_forward(const tensor_call *c);
smx_status nala_backward(const tensor_call *c);
smx_status performer_sizes(dims *d);
smx_status performer_forward(const tensor_call *c);
smx_status performer_backward(const tensor_call *c);

smx_status linear_attention_sizes(dims *d);
smx_status linear_attention_forward(const tensor_call *c);
smx_status linear_attention_backward(const tensor_call *c);

#endif
