/* score/functions.c - the operators of src/score: their functions, by number. */
#include "functions.h"

#define ROWS \
  { score_forward, score_backward, NULL, true }

const tensor_functions score_functions[SCORE_COUNT] = {
    [SCORE_msp] = ROWS,
    [SCORE_least_confidence] = ROWS,
    [SCORE_margin] = ROWS,
    [SCORE_ratio] = ROWS,
    [SCORE_max_logit] = ROWS,
    [SCORE_logit_margin] = ROWS,
    [SCORE_energy] = ROWS,
    [SCORE_entropy] = ROWS,
    [SCORE_renyi_entropy] = ROWS,
    [SCORE_tsallis_entropy] = ROWS,
    [SCORE_gini] = ROWS,
    [SCORE_kl_to_uniform] = ROWS,
    [SCORE_kl_from_uniform] = ROWS,
    [SCORE_logit_variance] = ROWS,
    [SCORE_label_non_uniformity] = ROWS,
    [SCORE_doctor_alpha] = ROWS,
    [SCORE_doctor_beta] = ROWS,
    [SCORE_true_class_probability] = ROWS,
    [SCORE_brier_score] = ROWS,
    [SCORE_evidential_score] = {score_evidence_forward, score_evidence_backward, NULL, true},
    [SCORE_ranking_metrics] = {.forward = score_ranking, .packed = true},
    [SCORE_calibration_error] = {.forward = score_calibration, .packed = true},
    [SCORE_risk_coverage] = {.forward = score_risk, .packed = true},
    [SCORE_classification_metrics] = {.forward = score_confusion, .packed = true},
    [SCORE_generalised_entropy] = {score_generalised_forward, score_generalised_backward, NULL, true},
    [SCORE_react] = {score_react, score_react_backward, NULL, true},
    [SCORE_ash] = {.forward = score_ash, .packed = true},
    [SCORE_odin_perturb] = {.forward = score_odin, .packed = true},
    [SCORE_brier_decomposition] = {.forward = score_decomposition, .packed = true},
    [SCORE_classwise_calibration_error] = {.forward = score_classwise, .packed = true},
    [SCORE_mean_interval] = {.forward = score_interval, .packed = true},
    [SCORE_paired_test] = {.forward = score_paired, .packed = true},
    [SCORE_budget_select] = {.forward = score_select, .packed = true},
    [SCORE_stream_query] = {.forward = score_stream, .packed = true},
    [SCORE_glassbox_features] = {score_tokens_forward, score_tokens_backward, NULL, true},
    [SCORE_ensemble_scores] = {score_ensemble_forward, score_ensemble_backward, NULL, true},
};
