/* fit/functions.c - the operators of src/fit: their functions, by number. */
#include "functions.h"
#include "driver/internal.h"

const tensor_functions fit_functions[FIT_COUNT] = {
    [FIT_temperature_fit] = {.forward = fit_temperature, .packed = true},
    [FIT_vector_scaling_fit] = {.forward = fit_vector, .packed = true},
    [FIT_matrix_scaling_fit] = {.forward = fit_matrix, .packed = true},
    [FIT_vector_scaling] = {fit_apply_vector, fit_apply_vector_backward, NULL, true},
    [FIT_matrix_scaling] = {fit_apply_matrix, fit_apply_matrix_backward, NULL, true},
    [FIT_platt_fit] = {.forward = fit_platt, .packed = true},
    [FIT_beta_fit] = {.forward = fit_beta, .packed = true},
    [FIT_platt_scaling] = {fit_apply_binary, fit_apply_binary_backward, NULL, true},
    [FIT_beta_scaling] = {fit_apply_binary, fit_apply_binary_backward, NULL, true},
    [FIT_isotonic_fit] = {.forward = fit_isotonic, .packed = true},
    [FIT_isotonic] = {.forward = fit_apply_isotonic, .packed = true},
    [FIT_histogram_binning] = {.forward = fit_apply_bins, .packed = true},
    [FIT_conformal_fit] = {.forward = fit_conformal, .packed = true},
    [FIT_conformal_sets] = {.forward = fit_apply_conformal, .packed = true},
    [FIT_react_fit] = {.forward = fit_percentile, .packed = true},
    [FIT_kl_matching_fit] = {.forward = fit_templates, .packed = true},
    [FIT_kl_matching] = {.forward = fit_matching, .packed = true},
    [FIT_centroid_fit] = {.forward = fit_centroid, .packed = true},
    [FIT_centroid_distance] = {.forward = fit_centroid_distance, .packed = true},
    [FIT_relative_uncertainty_fit] = {.forward = fit_relation, .packed = true},
    [FIT_relative_uncertainty] = {fit_relation_apply, fit_relation_backward, NULL, true},
    [FIT_mahalanobis_fit] = {.forward = fit_mahalanobis, .packed = true},
    [FIT_mahalanobis] = {fit_distances, fit_distances_backward, NULL, true},
    [FIT_vim_fit] = {.forward = fit_vim, .packed = true},
    [FIT_vim] = {.forward = fit_vim_apply, .packed = true},
    [FIT_knn_score] = {.forward = fit_knn, .packed = true},
    [FIT_trust_score] = {.forward = fit_trust, .packed = true},
    [FIT_probe_fit] = {.forward = fit_probe, .packed = true},
    [FIT_cascade_fit] = {.forward = fit_cascade, .packed = true},
    [FIT_cascade] = {.forward = fit_cascade_apply, .packed = true},
    [FIT_crowd_temperature] = {.forward = fit_crowd, .packed = true},
    [FIT_label_recovery] = {.forward = fit_recovery, .packed = true},
    [FIT_sdm_similarity] = {.forward = fit_similarity, .packed = true},
    [FIT_sdm_quantile] = {.forward = fit_quantile, .packed = true},
    [FIT_sdm_loss] = {fit_sdm_loss, fit_sdm_loss_backward, NULL, true},
    [FIT_sdm_region_fit] = {.forward = fit_region, .packed = true},
    [FIT_sdm_region] = {.forward = fit_region_apply, .packed = true},
    [FIT_sdm_bounds] = {.forward = fit_bounds, .packed = true},
    [FIT_head_bottleneck_measures] = {.forward = fit_spectrum, .sizes = spectrum_sizes, .packed = true},
    [FIT_head_rank_loss] = {.forward = fit_rank_loss, .packed = true},
};

double *fit_reserve(const tensor_call *c, int64_t count) {
  int64_t bytes;
  double *room = smx_multiply(count + 1, 8, &bytes) ? smx_alloc(c->ctx, (size_t)bytes) : NULL;
  if (!room) (void)smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld numbers", c->op->name, (long long)count);
  return room;
}

double fit_product_scale(const tensor_call *c, int port, int64_t count, double *room, int64_t held) {
  double most = 0;
  for (int64_t from = 0; from < count && c->is_f64; from += held) {
    const int64_t n = count - from < held ? count - from : held;
    tensor_load(c, c->in.view + port, from, n, room);
    for (int64_t i = 0; i < n; i++)
      if (__builtin_fabs(room[i]) > most) most = __builtin_fabs(room[i]);
  }
  return most > 0x1p500 ? 0x1p-600 : most > 0 && most < 0x1p-480 ? 0x1p600 : 1;
}

smx_status fit_product(smx_context *ctx, int64_t m, int64_t n, int64_t d, const double *a, bool a_turned,
                       const double *b, bool b_turned, double *to) {
  int64_t of_a[] = {m, d}, of_b[] = {n, d}, of_to[] = {m, n}, down_a[] = {1, m}, down_b[] = {1, n};
  const smx_tensor h = smx_tensor_of(a, SMX_F64, 2, of_a, a_turned ? down_a : NULL),
                   w = smx_tensor_of(b, SMX_F64, 2, of_b, b_turned ? down_b : NULL),
                   z = smx_tensor_of(to, SMX_F64, 2, of_to, NULL);
  const smx_linear linear = {.size = sizeof linear, .h = &h, .w = &w};
  return smx_linear_logits(ctx, &linear, &z);
}
