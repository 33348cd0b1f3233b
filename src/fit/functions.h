/* fit/functions.h - the functions of the operators of src/fit. */
#ifndef SMX_FIT_FUNCTIONS_H
#define SMX_FIT_FUNCTIONS_H
#include "cpu/cpu.h"
#include "driver/tensor_reals.h"
#include "fit.h"
#include "score/score.h"

/* Functions of one number in double, the same on every machine. */
static inline const score_kernels *fit_math(void) { return smx_isa_current()->f64.score; }

static inline const int64_t *fit_whole(const tensor_call *c, int port) {
  return (const int64_t *)(const void *)c->in.view[port].data;
}

/* Number i of an input; of one that is not given, what is said here. */
static inline double fit_number(const tensor_call *c, int port, int64_t i, double otherwise) {
  double value = otherwise;
  if (c->in.given[port]) tensor_load(c, c->in.view + port, i, 1, &value);
  return value;
}

/* Work on n items, so many a task: how many tasks there are, and where the items of one end. */
static inline int64_t fit_tasks(int64_t n, int64_t each) { return (n + each - 1) / each; }
static inline int64_t fit_task_end(int64_t task, int64_t n, int64_t each) {
  return (task + 1) * each < n ? (task + 1) * each : n;
}

/* count doubles of the context's memory; NULL, with an error: there are none. */
double *fit_reserve(const tensor_call *c, int64_t count);

/* to [m, n] = a b^T of a [m, d] and b [n, d], as smx_linear_logits has it; turned: it lies as
 * [d, m], or [d, n]. No size is 0. */
smx_status fit_product(smx_context *ctx, int64_t m, int64_t n, int64_t d, const double *a, bool a_turned,
                       const double *b, bool b_turned, double *to);

/* A power of 2, other than 1 for doubles alone, that takes count numbers of an input to where their
 * products can be held; what is not finite stays so. room: for `held` numbers at a time. */
double fit_product_scale(const tensor_call *c, int port, int64_t count, double *room, int64_t held);

smx_status spectrum_sizes(dims *d);
smx_status fit_spectrum(const tensor_call *c);
smx_status fit_rank_loss(const tensor_call *c);
smx_status fit_temperature(const tensor_call *c);
smx_status fit_vector(const tensor_call *c);
smx_status fit_matrix(const tensor_call *c);
smx_status fit_apply_vector(const tensor_call *c);
smx_status fit_apply_vector_backward(const tensor_call *c);
smx_status fit_apply_matrix(const tensor_call *c);
smx_status fit_apply_matrix_backward(const tensor_call *c);
smx_status fit_platt(const tensor_call *c);
smx_status fit_beta(const tensor_call *c);
smx_status fit_apply_binary(const tensor_call *c);
smx_status fit_apply_binary_backward(const tensor_call *c);
smx_status fit_isotonic(const tensor_call *c);
smx_status fit_apply_isotonic(const tensor_call *c);
smx_status fit_apply_bins(const tensor_call *c);
smx_status fit_conformal(const tensor_call *c);
smx_status fit_apply_conformal(const tensor_call *c);
smx_status fit_percentile(const tensor_call *c);
smx_status fit_templates(const tensor_call *c);
smx_status fit_matching(const tensor_call *c);
smx_status fit_centroid(const tensor_call *c);
smx_status fit_centroid_distance(const tensor_call *c);
smx_status fit_relation(const tensor_call *c);
smx_status fit_relation_apply(const tensor_call *c);
smx_status fit_relation_backward(const tensor_call *c);
smx_status fit_mahalanobis(const tensor_call *c);
smx_status fit_distances(const tensor_call *c);
smx_status fit_distances_backward(const tensor_call *c);
smx_status fit_vim(const tensor_call *c);
smx_status fit_vim_apply(const tensor_call *c);
smx_status fit_knn(const tensor_call *c);
smx_status fit_trust(const tensor_call *c);
smx_status fit_probe(const tensor_call *c);
smx_status fit_cascade(const tensor_call *c);
smx_status fit_cascade_apply(const tensor_call *c);
smx_status fit_crowd(const tensor_call *c);
smx_status fit_recovery(const tensor_call *c);
smx_status fit_similarity(const tensor_call *c);
smx_status fit_quantile(const tensor_call *c);
smx_status fit_region(const tensor_call *c);
smx_status fit_bounds(const tensor_call *c);
smx_status fit_region_apply(const tensor_call *c);
smx_status fit_sdm_loss(const tensor_call *c);
smx_status fit_sdm_loss_backward(const tensor_call *c);

#endif
