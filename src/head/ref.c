/* head/ref.c - heads straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

enum { LOSS, LSE, ENTROPY, CLASS };       /* outputs of linear_cross_entropy, */
enum { REDUCED = 1, DH, DW, DBIAS, OUT }; /* and of linear_cross_entropy_gradient */
enum { IGNORE, SMOOTHING, Z_WEIGHT, SOFTCAP, TEMPERATURE, SCALE, KEEP, REDUCTION };

/* The score of a class; slope: its derivative by the logit. */
static double score(const tensor_ref_call *c, int64_t r, int64_t k, double *slope) {
  const int64_t d = c->in_shape[0][1];
  long double x = 0, t = 0;
  for (int64_t i = 0; i < d; i++) x += (long double)c->in[0][r * d + i] * (long double)c->in[1][k * d + i];
  x = (long double)c->q[SCALE] * x + (c->in[3] ? (long double)c->in[3][k] : 0);
  if (!isinf(c->q[SOFTCAP])) t = tanhl(x / (long double)c->q[SOFTCAP]), x = (long double)c->q[SOFTCAP] * t;
  *slope = (double)((1 - t * t) / (long double)c->q[TEMPERATURE]);
  return (double)(x / (long double)c->q[TEMPERATURE]);
}

static void add_gradients(const tensor_ref_call *c, double *const *out, int64_t r, int64_t k, double dz) {
  const int64_t d = c->in_shape[0][1];
  for (int64_t i = 0; i < d; i++) {
    if (out[DH]) out[DH][r * d + i] += c->q[SCALE] * dz * c->in[1][k * d + i];
    if (out[DW]) out[DW][k * d + i] += c->q[SCALE] * dz * c->in[0][r * d + i];
  }
  if (out[DBIAS]) out[DBIAS][k] += dz;
}

/* What a class takes part with: its weight times its share of the target. */
static double mass_of(const tensor_ref_call *c, int64_t r, int64_t k, int64_t classes) {
  const double e = c->q[SMOOTHING], own = (double)k == c->in[2][r] ? 1 - e : 0;
  return (own + e / (double)classes) * (c->in[4] ? c->in[4][k] : 1);
}

/* Of z and slope there are as many as classes. share: of a row in the reduced loss. */
static void cross_entropy_row(const tensor_ref_call *c, int64_t r, double *z, double *slope,
                              double *const *rows, double *const *gradients, double share) {
  const int64_t classes = c->in_shape[1][0];
  const double target = c->in[2][r], zw = c->q[Z_WEIGHT];
  const int64_t none = -1;
  int64_t first = none;
  long double others = 0, loss = 0, entropy = 0, mass = 0;
  for (int64_t k = 0; k < classes; k++) {
    z[k] = score(c, r, k, slope + k);
    if (first == none || z[k] > z[first]) first = k;
  }
  for (int64_t k = 0; k < classes; k++)
    if (k != first) others += expl((long double)z[k] - (long double)z[first]);
  const double lse = classes ? (double)((long double)z[first] + log1pl(others)) : -INFINITY;
  for (int64_t k = 0; k < classes; k++) {
    const long double less = (long double)z[first] - (long double)z[k] + log1pl(others); /* -log p */
    const long double t = (long double)mass_of(c, r, k, classes);
    loss += t * less, entropy += expl(-less) * less, mass += t;
  }
  for (int64_t k = 0; k < classes && target != c->q[IGNORE]; k++) {
    const double p = (double)expl((long double)z[k] - (long double)z[first] - log1pl(others));
    add_gradients(c, gradients, r, k,
                  (((double)mass + 2 * zw * lse) * p - mass_of(c, r, k, classes)) * slope[k] * share);
  }
  rows[LOSS][r] = target == c->q[IGNORE] ? 0 : (double)loss + zw * lse * lse;
  if (rows[LSE]) rows[LSE][r] = lse;
  if (rows[ENTROPY]) rows[ENTROPY][r] = (double)entropy;
  if (rows[CLASS]) rows[CLASS][r] = (double)first;
}

/* What a mean divides by: the weights of the targets that count. */
static double total_of(const tensor_ref_call *c) {
  double total = 0;
  for (int64_t r = 0; r < c->in_shape[0][0]; r++)
    if (c->in[2][r] != c->q[IGNORE]) total += c->in[4] ? c->in[4][(int64_t)c->in[2][r]] : 1;
  return total;
}

static void linear_cross_entropy(const tensor_ref_call *c) {
  const int64_t classes = c->in_shape[1][0];
  double *z = calloc(2 * (size_t)classes + 1, sizeof *z), *none[OUT] = {NULL};
  for (int64_t r = 0; r < c->in_shape[0][0]; r++) cross_entropy_row(c, r, z, z + classes, c->out, none, 1);
  free(z);
}

static void linear_cross_entropy_gradient(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], d = c->in_shape[0][1], classes = c->in_shape[1][0];
  const double total = total_of(c), how = c->q[REDUCTION];
  const double share = how < 2 ? 1 : total > 0 ? 1 / total : how < 3 ? NAN : 0;
  const int64_t sizes[OUT] = {0, 1, n * d, classes * d, classes};
  double *z = calloc(2 * (size_t)classes + 1, sizeof *z), *rows[] = {c->out[LOSS], NULL, NULL, NULL}, sum = 0;
  for (int o = 1; o < OUT; o++)
    for (int64_t i = 0; c->out[o] && i < sizes[o]; i++) c->out[o][i] = 0;
  for (int64_t r = 0; r < n; r++) {
    cross_entropy_row(c, r, z, z + classes, rows, c->out, share);
    sum += c->out[LOSS][r];
  }
  if (c->out[REDUCED]) *c->out[REDUCED] = how < 2 || total > 0 ? sum * share : share;
  free(z);
}

tensor_ref_fn *const head_refs[] = {linear_cross_entropy,
                                    linear_cross_entropy_gradient,
                                    ref_linear_chain_crf,
                                    ref_crf_marginals,
                                    ref_crf_viterbi,
                                    ref_crf_k_best,
                                    ref_hierarchical_softmax,
                                    ref_hierarchical_log_softmax,
                                    ref_huffman_tree,
                                    ref_soft_decision_tree,
                                    ref_cosine_margin,
                                    ref_knn_lm,
                                    ref_partial_fc,
                                    ref_sample_classes,
                                    ref_sampled_softmax,
                                    ref_nce_loss,
                                    ref_soft_token_expectation,
                                    ref_vq_logits_head,
                                    ref_surface_fusion,
                                    ref_product_key_memory,
                                    ref_augment_and_reduce,
                                    ref_fourier_head,
                                    ref_factored_spherical_state,
                                    ref_factored_spherical_weights,
                                    ref_factored_spherical_head,
                                    ref_factored_spherical_step,
                                    ref_adaptive_softmax,
                                    ref_adaptive_log_softmax,
                                    ref_equiangular_basis,
                                    ref_mixture_of_softmaxes};
