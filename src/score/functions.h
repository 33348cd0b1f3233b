/* score/functions.h - the functions of the operators of src/score. */
#ifndef SMX_SCORE_FUNCTIONS_H
#define SMX_SCORE_FUNCTIONS_H
#include "driver/tensors.h"
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

smx_status score_ensemble_forward(const tensor_call *c);
smx_status score_ensemble_backward(const tensor_call *c);
smx_status score_tokens_forward(const tensor_call *c);
smx_status score_tokens_backward(const tensor_call *c);
/* SMX_EMPTY_ERROR: a row of the first input without classes is found before anything is written. */
smx_status score_check_empty(const tensor_call *c, int64_t rows, int64_t classes);

/* Metrics of sets. */
smx_status score_ranking(const tensor_call *c);
smx_status score_calibration(const tensor_call *c);
smx_status score_risk(const tensor_call *c);
smx_status score_confusion(const tensor_call *c);

smx_status score_evidence_forward(const tensor_call *c);
smx_status score_evidence_backward(const tensor_call *c);
smx_status score_forward(const tensor_call *c);
smx_status score_backward(const tensor_call *c);

#endif
