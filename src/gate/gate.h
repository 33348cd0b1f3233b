/* gate/gate.h - the table of the operators that route: which experts take a token, where it goes
 * and how it comes back, and what keeps experts busy alike. And the contract with the kernel of one
 * instruction set and real type that chooses. */
#ifndef SMX_GATE_H
#define SMX_GATE_H
#include <softmax.h>
#include <stdbool.h>

enum {
  GATE_gate_topk,
  GATE_gate_expert_choice,
  GATE_gate_relu,
  GATE_moe_permutation,
  GATE_moe_dispatch,
  GATE_moe_combine,
  GATE_load_balancing_loss,
  GATE_router_z_loss,
  GATE_expert_bias_update,
  GATE_soft_moe,
  GATE_moe_gaussian_nll,
  GATE_moe_multinomial_nll,
  GATE_gate_noisy_topk,
  GATE_gate_dense_to_sparse,
  GATE_gate_modified,
  GATE_importance_loss,
  GATE_COUNT
};
extern const smx_op gate_table[GATE_COUNT];

typedef struct gate_choice {
  int64_t experts, k, groups, top_groups;
  bool two;     /* a group counts by the sum of its two best, not by its best */
  bool sigmoid; /* they are chosen by sigmoids of the logits */
} gate_choice;

typedef enum gate_activation { GATE_PLAIN, GATE_TANH, GATE_SIGMOID, GATE_GELU, GATE_RELU } gate_activation;

/* Row i of `to`, of `rows`, is the sum of its items in their order: of item_q with start_i <= q <
 * start_(i+1), or without a list of the numbers i per..(i + 1) per - 1. Item p is row slot_p of
 * `from`, none for -1, or row p / share without slots; times weight_p, if there are weights. */
typedef struct gate_move {
  const void *from;
  void *to;
  int64_t rows, width;
  const int64_t *start, *item;
  int64_t per, share;
  const int64_t *slot;
  const void *weight;
} gate_move;

typedef struct gate_kernels {
  /* Of each of `count` tokens the index of the k best experts, the best first, then -1; all -1 for
   * a NaN, which good says. Best is by score and bias, then the smaller number; -inf is never among
   * them. score NULL: sigmoids, or the logits. bias: of each expert, or NULL. work:
   * gate_choice_bytes. */
  void (*choose)(const gate_choice *g, const void *logits, const void *score, const void *bias, int64_t count,
                 void *work, int64_t *index, bool *good);
  /* -log sum_i pi_i e^term_i with pi the softmax of n logits z, and the share of each in the sum;
   * an expert of logit -inf has none. */
  double (*mixture)(const double *z, const double *term, int64_t n, double *pi, double *share);
  /* Logarithms of n normal densities at y, with q = (y - mean) / s and inverse = 1 / s. */
  void (*gaussian)(double y, const double *mean, const double *log_s, int64_t n, double *term, double *q,
                   double *inverse);
  /* n standard normal numbers (Philox), of indices 0..n - 1 */
  void (*noise)(uint64_t seed, uint64_t stream, int64_t n, double *noise);
  /* s = softplus(spread) + least, and its derivative */
  void (*deviation)(const double *spread, double least, int64_t n, double *s, double *slope);
  /* the normal distribution function and its density, of the real type */
  void (*normal)(const void *z, int64_t n, void *p, void *density);
  /* n numbers of the Gumbel distribution */
  void (*gumbel)(uint64_t seed, uint64_t stream, int64_t n, double *noise);
  /* y = a(x) and its derivative, of the real type; y may be x */
  void (*activate)(int activation, const void *x, int64_t n, void *y, void *slope);
  /* of n numbers of the real type; y may be x */
  void (*sigmoid)(const void *x, int64_t n, void *y);
  /* Rows first..end - 1 of sums. */
  void (*add)(const gate_move *m, int64_t first, int64_t end);
  /* Rows first..end - 1 of `from`, of `rows`, to the places that a list names: row i becomes rows
   * item_q of `to` with start_i <= q < start_(i+1). */
  void (*spread)(const gate_move *m, int64_t first, int64_t end);
  /* weight_p becomes the product of row p / share of `from` and row slot_p of `other`, in double; 0
   * without a slot. */
  void (*dot)(const gate_move *m, const void *other, void *weight, int64_t first, int64_t end);
  /* -sum p log p, p = count / sum count; 0 where all are 0 */
  double (*entropy)(const double *count, int64_t n);
} gate_kernels;

/* A kernel chooses for so many tokens together, a step at a time; of a token so many experts are
 * near the best. */
enum {
  GATE_TOGETHER = 16,
  GATE_STEP = 4,
  GATE_MANY = 4096,
  GATE_NEAR = 64,
  GATE_LANES = 16,
  GATE_PAGE = 4096
};

/* Whole vectors of any instruction set. */
static inline int64_t gate_padded(int64_t n) { return (n + GATE_LANES - 1) / GATE_LANES * GATE_LANES; }

/* What a kernel keeps of a token but its keys: each group's score, second best and number, the k
 * best. */
static inline int64_t gate_contest_doubles(const gate_choice *g) {
  return 3 * gate_padded(g->groups) + gate_padded(g->k);
}
/* Tokens of a step, whose keys stay in the first-level cache: a few, or where keys are mostly the
 * logits, all. */
static inline int gate_step(const gate_choice *g) {
  return g->two || g->experts > GATE_MANY ? GATE_STEP : GATE_TOGETHER;
}
static inline size_t gate_choice_bytes(const gate_choice *g) {
  const int64_t keys = g->groups * gate_padded(g->experts / g->groups), near = 2 * (GATE_NEAR + GATE_LANES);
  const int64_t step = gate_step(g) * (gate_contest_doubles(g) + keys);
  return (size_t)(GATE_TOGETHER * near + step) * sizeof(double) + GATE_PAGE;
}

#endif
