/* head/ref.h - references of the operators of src/head, file by file. */
#ifndef SMX_HEAD_REF_H
#define SMX_HEAD_REF_H
#include "engine/ref.h"

/* The size `back` from the end. */
static inline int64_t ref_size(const int64_t *shape, int back) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return shape[n - back];
}

tensor_ref_fn ref_linear_chain_crf, ref_crf_marginals, ref_crf_viterbi, ref_crf_k_best;
tensor_ref_fn ref_hierarchical_softmax, ref_hierarchical_log_softmax, ref_huffman_tree,
    ref_soft_decision_tree, ref_cosine_margin, ref_knn_lm, ref_partial_fc, ref_sample_classes,
    ref_sampled_softmax, ref_nce_loss, ref_soft_token_expectation, ref_vq_logits_head, ref_surface_fusion,
    ref_product_key_memory, ref_augment_and_reduce, ref_fourier_head, ref_factored_spherical_state,
    ref_factored_spherical_weights, ref_factored_spherical_head, ref_factored_spherical_step,
    ref_adaptive_softmax, ref_adaptive_log_softmax, ref_equiangular_basis, ref_mixture_of_softmaxes;

#endif
