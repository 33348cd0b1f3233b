/* score/ref.h - the references that are in files of their own. */
#ifndef SMX_SCORE_REF_H
#define SMX_SCORE_REF_H
#include "engine/ref.h"
#include "score.h"

void ranking_metrics_ref(const tensor_ref_call *c);
void calibration_error_ref(const tensor_ref_call *c);
void risk_coverage_ref(const tensor_ref_call *c);
void classification_metrics_ref(const tensor_ref_call *c);
void generalised_entropy_ref(const tensor_ref_call *c);
void react_ref(const tensor_ref_call *c);
void ash_ref(const tensor_ref_call *c);
void odin_perturb_ref(const tensor_ref_call *c);
void odin_ref(const tensor_ref_call *c);
void kernel_calibration_error_ref(const tensor_ref_call *c);
void brier_decomposition_ref(const tensor_ref_call *c);
void classwise_calibration_error_ref(const tensor_ref_call *c);
void mean_interval_ref(const tensor_ref_call *c);
void paired_test_ref(const tensor_ref_call *c);
void budget_select_ref(const tensor_ref_call *c);
void stream_query_ref(const tensor_ref_call *c);
void tcp_loss_ref(const tensor_ref_call *c);
void badge_select_ref(const tensor_ref_call *c);
void anchor_subpool_ref(const tensor_ref_call *c);
void neuronal_stream_ref(const tensor_ref_call *c);
void neuronal_pool_ref(const tensor_ref_call *c);

#endif
