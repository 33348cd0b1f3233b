/* head/functions_chain.h - sums over the paths of a chain of tokens, each of which has one of k
 * tags. With emissions e_t, transitions A from a tag to the next token's, and scores of the ends,
 *
 *   alpha_0 = start + e_0,   alpha_t(j) = log sum_i e^(alpha_(t-1)(i) + A_ij) + e_t(j),
 *   log Z = log sum_j e^(alpha_last(j) + end_j)
 *
 * A row of alpha is kept as numbers v and a scale s = sum of peaks + exponent log 2. v > 0: alpha =
 * s + log v; v <= 0, where e^alpha would be below 2^-500 of the largest: alpha = s + v. So a step
 * is a product with the matrix e^(A_ij - most_j), most_j = max_i A_ij, whose sums p_j are used from
 * 2^-400 on: what is missing of them is then no part of their 53 bits. Any other is summed from the
 * logarithms. So no range of scores is too large, and no path is lost.
 *
 * The other way go the gradients of log Z, which are probabilities: with mu_t(j) of tag j at token
 * t,
 *
 *   mu_(t-1)(i) = sum_j mu_t(j) v_(t-1)(i) e^(A_ij - most_j) / p_t(j)
 *
 * whose terms, summed over the tokens, are the gradient of A_ij: one product of matrices for each
 * 64 tokens. Probabilities below 2^-100 may come as 0: v of such tags may be a logarithm that no p
 * has a part of. */
#ifndef SMX_HEAD_FUNCTIONS_CHAIN_H
#define SMX_HEAD_FUNCTIONS_CHAIN_H
#include "functions.h"

enum { CHAIN_BLOCK = HEAD_CHAIN }; /* tokens whose products are one */

/* What all sequences of a call share. */
typedef struct chain {
  const tensor_call *c;
  const head_kernels *kernels;
  const score_kernels *math;
  int start, mask, target; /* ports; end follows start. target: -1, or its port */
  int64_t sequences, tokens, k, wide, panels;
  bool gradients;
  double *transitions; /* [k][wide] */
  double *most, *first, *last;
  double *tiles, *turned; /* e^(A - most) in tiles of 64 x 64, and its transpose */
} chain;

/* Memory for the above, 64-byte aligned; and the model of a call, whose target is at port `target`
 * or is none. */
size_t chain_bytes(const chain *m);
chain chain_of(const tensor_call *c, int target, bool gradients);
void chain_open(chain *m, char *memory);

/* One sequence. `at` has its tokens: those that the mask shows and whose target is not ignored. */
typedef struct chain_walk {
  const chain *m;
  int64_t number, count, *at;
  double *rows; /* v, of all tokens where there are gradients, of two else */
  double *x, *p, *e, *logs, *w, *g, *block_x, *block_p, *q;
  head_sum peaks;
  int64_t exponent;
  bool bad; /* a NaN, or +inf */
  double lse;
  head_sum log_z;
} chain_walk;

size_t chain_walk_bytes(const chain *m);
void chain_begin(chain_walk *w, const chain *m, int64_t number, char *memory);

/* log Z: 0 of no tokens, -inf where there is no path, NaN where something is bad. */
double chain_forward(chain_walk *w);

/* The score of a path, from w->at; tag: of every token of the sequence. */
head_sum chain_score(const chain_walk *w, const int64_t *tag);

/* Gradients of weight log Z - loss score: rows of de, whose other tokens are not touched, and what
 * is added to sums: of x^T q ([k][panels 64]), of other terms of transitions ([k][wide]), of start
 * and end. NULL: not wanted. */
typedef struct chain_sums {
  double *products, *others, *first, *last;
} chain_sums;
void chain_backward(chain_walk *w, double weight, double loss, const int64_t *tag, char *de,
                    const chain_sums *sums);

/* The gradient of transitions from these sums, added to `sum`. */
void chain_transitions(const chain *m, const chain_sums *s, double *sum);

/* The best path: its score, and the tag of every token, -1 where there is none. */
double chain_best(chain_walk *w, int32_t *from, int64_t *tag);

/* The `count` best paths, the best first, where there are so many: their scores, -inf where there
 * is none, and the tags of all tokens, [count][tokens]. Memory for it, which may be more than
 * there is. */
double chain_paths_bytes(const chain *m, int64_t count);
void chain_paths(chain_walk *w, int64_t count, char *memory, int64_t *path, double *score);

/* An emission row of token t in double. */
void chain_emission(const chain_walk *w, int64_t t, double *e);

static inline int64_t chain_most(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
