/* score/functions.h - the functions of the operators of src/score. */
#ifndef SMX_SCORE_FUNCTIONS_H
#define SMX_SCORE_FUNCTIONS_H
#include "driver/tensor_reals.h"
#include "score.h"

/* One score of a row, with the parameters that it has. */
typedef struct score_item {
  int which;
  bool normalise; /* divided by the most that it can be, or by the share of the largest; halved */
} score_item;

/* Which sums it needs. */
uint32_t score_needs(int which);

/* z_target: the target's logit, or NaN. */
double score_value(const score_kernels *k, const score_row *r, const score_item *item, const score_sums *s,
                   double z_target);

/* The derivative by the logits times g: what every element has, and what single ones have beside
 * it. */
typedef struct score_spikes {
  double largest, second, target;
} score_spikes;
void score_derivative(const score_kernels *k, const score_row *r, const score_item *item, const score_sums *s,
                      double z_target, double g, score_slope *slope, score_spikes *spikes);

/* Rows by tasks of some 2^16 elements: how many a task has, how many tasks there are, and where the
 * rows of one end. */
static inline int64_t score_rows_a_task(int64_t n) { return n > 0 && n < 1 << 16 ? (1 << 16) / n : 1; }
static inline int64_t score_tasks(int64_t rows, int64_t n) {
  return (rows + score_rows_a_task(n) - 1) / score_rows_a_task(n);
}
static inline int64_t score_task_end(int64_t task, int64_t rows, int64_t n) {
  const int64_t end = (task + 1) * score_rows_a_task(n);
  return end < rows ? end : rows;
}

/* All of a row of the gradient of the first input; and one element more, which may be -1: none. */
static inline void score_fill(const tensor_call *c, int64_t row, int64_t n, double value) {
  for (int64_t i = 0; i < n; i++) tensor_store(c, c->din.view, row * n + i, 1, &value);
}
static inline void score_add(const tensor_call *c, int64_t row, int64_t n, int64_t i, double g) {
  double value;
  if (i < 0 || g == 0) return;
  tensor_load(c, c->din.view, row * n + i, 1, &value);
  value += g;
  tensor_store(c, c->din.view, row * n + i, 1, &value);
}

smx_status score_ensemble_forward(const tensor_call *c);
smx_status score_ensemble_backward(const tensor_call *c);
smx_status score_tokens_forward(const tensor_call *c);
smx_status score_tokens_backward(const tensor_call *c);
smx_status score_ranking(const tensor_call *c);
smx_status score_calibration(const tensor_call *c);
smx_status score_risk(const tensor_call *c);
smx_status score_confusion(const tensor_call *c);
smx_status score_kernel(const tensor_call *c);

smx_status score_generalised_forward(const tensor_call *c);
smx_status score_generalised_backward(const tensor_call *c);
smx_status score_react(const tensor_call *c);
smx_status score_react_backward(const tensor_call *c);
smx_status score_ash(const tensor_call *c);
smx_status score_odin(const tensor_call *c);
smx_status score_odin_rows(const tensor_call *c);
smx_status score_decomposition(const tensor_call *c);
smx_status score_classwise(const tensor_call *c);
smx_status score_interval(const tensor_call *c);
smx_status score_paired(const tensor_call *c);
smx_status score_select(const tensor_call *c);
smx_status score_stream(const tensor_call *c);
smx_status score_tcp(const tensor_call *c);
smx_status score_tcp_backward(const tensor_call *c);
smx_status score_badge(const tensor_call *c);
smx_status score_anchors(const tensor_call *c);
smx_status score_neuronal_stream(const tensor_call *c);
smx_status score_neuronal_pool(const tensor_call *c);

/* Confidences, the first input, are within 0..1 or NaN; rows without a weight, an input that need
 * not be there, are not looked at. Costs are not below 0, or NaN. */
smx_status score_check_confidence(const tensor_call *c, int weight);
smx_status score_check_cost(const tensor_call *c, int port);

/* ---- weights of the rows of a set (functions_weights.c) ----
 *
 * Rows of weight 0 are as if they were not there. Whole numbers count copies of a row: metrics in
 * which the number of rows shows are then those of the set with the copies. */

/* Weights are finite and not below 0. */
smx_status score_check_weight(const tensor_call *c, int port);
/* What an output that counts rows has of a sum of weights: -1 where they count no copies. */
static inline int64_t score_copies(bool copies, double sum) { return copies ? (int64_t)sum : -1; }

/* Of walks over rows: compiled for weights and for none, which is a parameter called `weighted`. */
#define SCORE_WALK static inline __attribute__((always_inline))

typedef struct score_weights {
  bool copies, ones; /* whole numbers; 1 and 0 alone */
} score_weights;

/* Of the n rows of a set, 1 each without the input. Those that are no copies are over a power of
 * two, so that products of their sums are numbers. */
score_weights score_load_weights(const tensor_call *c, int port, int64_t set, double *w);

/* Room for those of a set; NULL without the input. */
smx_status score_open_weights(const tensor_call *c, int port, double **w);

/* Takes rows of weight 0 out of w and the columns. Returns how many are left. */
int64_t score_drop_rows(int64_t n, double *w, int columns, double *const *column);

smx_status score_evidence_forward(const tensor_call *c);
smx_status score_evidence_backward(const tensor_call *c);
smx_status score_forward(const tensor_call *c);
smx_status score_backward(const tensor_call *c);

#endif
