/* fit/ref.h - the references that are in a file of their own. */
#ifndef SMX_FIT_REF_H
#define SMX_FIT_REF_H
#include "engine/ref.h"

/* h d = g by elimination with pivots, in place; d: g before. */
void ref_solve(int64_t n, double *h, double *d);

void isotonic_fit_ref(const tensor_ref_call *c);
void isotonic_ref(const tensor_ref_call *c);
void histogram_binning_ref(const tensor_ref_call *c);
void conformal_fit_ref(const tensor_ref_call *c);
void conformal_sets_ref(const tensor_ref_call *c);
void react_fit_ref(const tensor_ref_call *c);
void kl_matching_fit_ref(const tensor_ref_call *c);
void kl_matching_ref(const tensor_ref_call *c);
void centroid_fit_ref(const tensor_ref_call *c);
void centroid_distance_ref(const tensor_ref_call *c);
void relative_uncertainty_fit_ref(const tensor_ref_call *c);
void relative_uncertainty_ref(const tensor_ref_call *c);
void mahalanobis_fit_ref(const tensor_ref_call *c);
void mahalanobis_ref(const tensor_ref_call *c);
void vim_fit_ref(const tensor_ref_call *c);
void vim_ref(const tensor_ref_call *c);
void knn_score_ref(const tensor_ref_call *c);
void trust_score_ref(const tensor_ref_call *c);
void probe_fit_ref(const tensor_ref_call *c);
void cascade_fit_ref(const tensor_ref_call *c);
void cascade_ref(const tensor_ref_call *c);
void crowd_temperature_ref(const tensor_ref_call *c);
void label_recovery_ref(const tensor_ref_call *c);
void sdm_similarity_ref(const tensor_ref_call *c);
void sdm_quantile_ref(const tensor_ref_call *c);
void sdm_loss_ref(const tensor_ref_call *c);
void sdm_region_fit_ref(const tensor_ref_call *c);
void sdm_bounds_ref(const tensor_ref_call *c);
void sdm_region_ref(const tensor_ref_call *c);
void head_bottleneck_measures_ref(const tensor_ref_call *c);
void head_rank_loss_ref(const tensor_ref_call *c);

#endif
