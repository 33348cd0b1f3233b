/* fit/fit.h - the table of the operators that are fitted to rows whose class is known: maps that
 * calibrate, thresholds that promise a coverage, and what tells rows that are other. */
#ifndef SMX_FIT_H
#define SMX_FIT_H
#include <softmax.h>

enum {
  FIT_temperature_fit,
  FIT_vector_scaling_fit,
  FIT_matrix_scaling_fit,
  FIT_vector_scaling,
  FIT_matrix_scaling,
  FIT_platt_fit,
  FIT_beta_fit,
  FIT_platt_scaling,
  FIT_beta_scaling,
  FIT_isotonic_fit,
  FIT_isotonic,
  FIT_histogram_binning,
  FIT_conformal_fit,
  FIT_conformal_sets,
  FIT_react_fit,
  FIT_kl_matching_fit,
  FIT_kl_matching,
  FIT_centroid_fit,
  FIT_centroid_distance,
  FIT_relative_uncertainty_fit,
  FIT_relative_uncertainty,
  FIT_mahalanobis_fit,
  FIT_mahalanobis,
  FIT_vim_fit,
  FIT_vim,
  FIT_knn_score,
  FIT_trust_score,
  FIT_probe_fit,
  FIT_cascade_fit,
  FIT_cascade,
  FIT_crowd_temperature,
  FIT_label_recovery,
  FIT_sdm_similarity,
  FIT_sdm_quantile,
  FIT_sdm_loss,
  FIT_sdm_region_fit,
  FIT_sdm_region,
  FIT_sdm_bounds,
  FIT_head_bottleneck_measures,
  FIT_head_rank_loss,
  FIT_COUNT
};
extern const smx_op fit_table[FIT_COUNT];

#endif
