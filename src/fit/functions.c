/* fit/functions.c - the operators of src/fit: their functions, by number. */
#include "functions.h"

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
};

double *fit_reserve(const tensor_call *c, int64_t count) {
  int64_t bytes;
  double *room = smx_multiply(count + 1, 8, &bytes) ? smx_alloc(c->ctx, (size_t)bytes) : NULL;
  if (!room) (void)smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld numbers", c->op->name, (long long)count);
  return room;
}
