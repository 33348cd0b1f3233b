/* linear_attention/linear_attention.h - the table of the operators whose attention has a state
 * instead of a matrix of weights, and the contract with the kernel of one instruction set and real
 * type that moves the state. */
#ifndef SMX_LINEAR_ATTENTION_H
#define SMX_LINEAR_ATTENTION_H
#include <softmax.h>
#include <stdbool.h>

enum {
  LINEAR_ATTENTION_linear_attention,
  LINEAR_ATTENTION_taylor_features,
  LINEAR_ATTENTION_cosformer_features,
  LINEAR_ATTENTION_nala_features,
  LINEAR_ATTENTION_performer_features,
  LINEAR_ATTENTION_gated_slot_attention,
  LINEAR_ATTENTION_mesa_attention,
  LINEAR_ATTENTION_galerkin_attention,
  LINEAR_ATTENTION_fourier_attention,
  LINEAR_ATTENTION_COUNT
};
extern const smx_op linear_attention_table[LINEAR_ATTENTION_COUNT];

typedef enum state_map {
  STATE_IDENTITY,
  STATE_ELU1,
  STATE_RELU,
  STATE_SQUARE, /* of relu */
  STATE_EXP,
  STATE_SILU
} state_map;

/* Widths of rows in memory: whole vectors of any instruction set. */
static inline int64_t state_padded(int64_t n) { return (n + 15) / 16 * 16; }

/* What a step does with the state S of a token: S += x y, then out = z S. x, z: [tokens][x_step];
 * y, out: [tokens][width]. NULL: not that. */
typedef struct state_step {
  const void *x;
  void *y;
  const void *z;
  void *out;
} state_step;

/* How the y of the second step follows from the out of the first. */
typedef enum state_rule {
  STATE_GIVEN, /* it does not */
  STATE_DELTA, /* y = beta (value - out) */
  STATE_BACK   /* y = -beta out */
} state_rule;

/* Rows that are read next, one for each token of a walk; NULL: none. */
enum { AHEAD = 4 };
typedef struct state_ahead {
  const void *rows;
  int64_t bytes; /* of a row */
} state_ahead;

/* One walk over tokens with a state [rows][width]. A token shrinks the state, S = decay S, and
 * takes its steps; backward, from the last token to the first, it takes its steps and then
 * shrinks it. Every element of the state has its own sums, over tokens; every element of `out`
 * is a sum over the rows in their order. So no bit depends on how tokens are cut into walks. */
typedef struct state_walk {
  void *state;
  const void *from; /* what the state is before, if it is not there yet: of one step, which adds */
  int64_t rows, width, x_step, tokens; /* width: padded */
  int64_t stride;                      /* of the rows of the state, where every step is a tile; 0: width */
  /* Not 0: after one token, which adds and reads, the state is a result, of so many bytes with
   * those of other walks. It is written as `clean` without `tiny` leaves it, maybe by
   * streaming stores. */
  size_t result;
  /* Of one step, not token by token: out becomes what outputs hold, as `clean` with `tiny` leaves
   * it; first, if over is not NULL, over[t] out, a product of doubles. */
  bool cleans;
  const double *over;
  state_step step[2];
  bool two, backward; /* two: steps */
  state_rule rule;
  const void *beta;  /* [tokens] */
  const void *value; /* [tokens][width] */
  /* NULL, or decay[token decay_token + row decay_row], or with `lanes` one for each column. */
  const void *decay;
  int64_t decay_token, decay_row;
  bool lanes;
  state_ahead ahead[AHEAD]; /* is fetched into the caches meanwhile */
  /* NULL, or where the states before the tokens go, [tokens][rows][width], or are; NULL, or
   * [tokens][width]: the sum over the rows of S times the state before. */
  void *before;
  void *product;
} state_walk;

/* The last column and the last row of a state, which have sums of keys and of values. Each token
 * adds: S_ie += k_i, S_dj += v_j, S_de += kept; and reads the column: out = sum q_i S_ie over the
 * rows in order, each term by FMA. The bits are those of walks with a v of 1 and a k of 1. */
typedef struct state_sums {
  void *state;                          /* [d + 1][stride] */
  const void *k, *q, *v, *kept;         /* [tokens][x_step], v: [tokens][e]; kept: [tokens], 1 or 0 each */
  int64_t d, e, stride, x_step, tokens; /* x_step: padded; e: a multiple of 16 */
  void *out;                            /* [tokens] */
  double eps, *over;                    /* [tokens]: 1 / (out + eps), 0 where that is 0 */
} state_sums;

typedef struct linear_attention_kernels {
  void (*walk)(const state_walk *w);
  void (*sums)(const state_sums *s);
  /* y = scale map(x), and its derivative, if slope is not NULL. */
  void (*map)(int map, double scale, const void *x, int64_t n, void *y, void *slope);
  /* n numbers become what outputs hold: one NaN, and with `tiny` no subnormal ones. */
  void (*clean)(void *x, int64_t n, bool tiny);
  /* y = by x, a product of doubles. */
  void (*times)(double by, const void *x, int64_t n, void *y);
  /* In double, as everywhere. */
  void (*sin_cos)(double x, double *sine, double *cosine);
  void (*normal)(uint64_t seed, uint64_t stream, int64_t n, double *noise);
} linear_attention_kernels;

#ifdef SMX_FN /* in kernels */
void SMX_FN(state_sin_cos)(double x, double *sine, double *cosine);
void SMX_FN(state_normal)(uint64_t seed, uint64_t stream, int64_t n, double *noise);
#endif

#endif
