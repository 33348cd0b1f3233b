/* head/functions.c - the operators of src/head: cross-entropy with the logits of a linear layer as
 * its x (driver_linear.c). */
#include "driver/tensors.h"
#include "functions.h"
#include <string.h>

enum { H, W, TARGET, BIAS, CLASS_WEIGHT }; /* inputs */
enum { LOSS, LSE, ENTROPY, CLASS };        /* outputs of linear_cross_entropy, */
enum { REDUCED = 1, DH, DW, DBIAS };       /* after the loss, of linear_cross_entropy_gradient */
enum { CE_LOSS, CE_LSE = 2, CE_ENTROPY, CE_CLASS, CE_REDUCED = 6, CE_PORTS }; /* of cross_entropy */

/* cross_entropy, its parameters and its inputs, and the layer. */
typedef struct head_call {
  const smx_op *op;
  smx_params params;
  smx_linear linear;
  const smx_tensor *in[4], *out[CE_PORTS];
} head_call;

void head_shared_params(const tensor_call *c, const smx_op *op, smx_params *params) {
  smx_params_init(op, params);
  for (int32_t i = 0; i < c->op->param_count; i++)
    for (int32_t k = 0; k < op->param_count; k++)
      if (!strcmp(c->op->params[i].name, op->params[k].name)) params->value[k] = c->param[i];
}
size_t head_keep(const tensor_call *c) {
  const double keep = tensor_param(c, "keep") * (1 << 20);
  return keep < 1 ? 1 : (size_t)keep;
}

static head_call head_of(const tensor_call *c) {
  head_call h = {.op = smx_op_find("cross_entropy")};
  head_shared_params(c, h.op, &h.params);
  h.linear = (smx_linear){.size = sizeof h.linear,
                          .h = c->in.given[H],
                          .w = c->in.given[W],
                          .bias = c->in.given[BIAS],
                          .scale = tensor_param(c, "scale"),
                          .keep_bytes = head_keep(c)};
  h.in[1] = c->in.given[TARGET], h.in[3] = c->in.given[CLASS_WEIGHT];
  h.out[CE_LOSS] = c->out.given[LOSS];
  return h;
}

static smx_status linear_cross_entropy(const tensor_call *c) {
  head_call h = head_of(c);
  h.out[CE_LSE] = c->out.given[LSE], h.out[CE_ENTROPY] = c->out.given[ENTROPY];
  h.out[CE_CLASS] = c->out.given[CLASS];
  return smx_linear_forward(h.op, c->ctx, &h.params, &h.linear, 4, h.in, CE_PORTS, h.out);
}

static smx_status linear_cross_entropy_backward(const tensor_call *c) {
  head_call h = head_of(c);
  const float zero = 0;
  int64_t n = tensor_dim(c, "n"), still = 0;
  const smx_tensor none = smx_tensor_of(&zero, SMX_F32, 1, &n, &still), *dout[CE_PORTS] = {NULL};
  dout[CE_LOSS] = c->dout.given[LOSS] ? c->dout.given[LOSS] : &none;
  dout[CE_LSE] = c->dout.given[LSE], dout[CE_ENTROPY] = c->dout.given[ENTROPY];
  h.linear.dh = c->din.given[H], h.linear.dw = c->din.given[W], h.linear.dbias = c->din.given[BIAS];
  if (!h.linear.dh && !h.linear.dw && !h.linear.dbias) return SMX_OK;
  return smx_linear_backward(h.op, c->ctx, &h.params, &h.linear, 4, h.in, CE_PORTS, NULL, dout, NULL);
}

static smx_status linear_cross_entropy_gradient(const tensor_call *c) {
  head_call h = head_of(c);
  h.out[CE_REDUCED] = c->out.given[REDUCED];
  h.linear.dh = c->out.given[DH], h.linear.dw = c->out.given[DW], h.linear.dbias = c->out.given[DBIAS];
  return smx_linear_forward(h.op, c->ctx, &h.params, &h.linear, 4, h.in, CE_PORTS, h.out);
}

const tensor_functions head_functions[HEAD_COUNT] = {
    [HEAD_linear_cross_entropy] = {linear_cross_entropy, linear_cross_entropy_backward},
    [HEAD_linear_cross_entropy_gradient] = {.forward = linear_cross_entropy_gradient},
    [HEAD_linear_chain_crf] = {crf_forward, crf_backward, .packed = true},
    [HEAD_crf_marginals] = {.forward = crf_marginals, .packed = true},
    [HEAD_crf_viterbi] = {.forward = crf_viterbi, .packed = true},
    [HEAD_crf_k_best] = {.forward = crf_k_best, .sizes = crf_k_best_sizes, .packed = true},
    [HEAD_hierarchical_softmax] = {hierarchical_forward, hierarchical_backward, hierarchical_sizes, true},
    [HEAD_hierarchical_log_softmax] = {hierarchical_log_forward, hierarchical_log_backward,
                                       hierarchical_sizes, true},
    [HEAD_huffman_tree] = {.forward = huffman_tree, .sizes = huffman_sizes, .packed = true},
    [HEAD_soft_decision_tree] = {soft_tree_forward, soft_tree_backward, soft_tree_sizes, true},
    [HEAD_cosine_margin] = {cosine_forward, cosine_backward, .packed = true},
    [HEAD_knn_lm] = {knn_lm_forward, knn_lm_backward, .packed = true},
    [HEAD_partial_fc] = {.forward = partial_fc, .sizes = partial_fc_sizes, .packed = true},
    [HEAD_sample_classes] = {.forward = sample_classes, .sizes = candidates_sizes, .packed = true},
    [HEAD_sampled_softmax] = {sampled_softmax_forward, sampled_softmax_backward, .packed = true},
    [HEAD_nce_loss] = {nce_forward, nce_backward, .packed = true},
    [HEAD_soft_token_expectation] = {soft_token_forward, soft_token_backward, .packed = true},
    [HEAD_vq_logits_head] = {vq_forward, vq_backward, .packed = true},
    [HEAD_surface_fusion] = {fusion_forward, fusion_backward, .packed = true},
    [HEAD_product_key_memory] = {memory_forward, memory_backward, memory_sizes, true},
    [HEAD_augment_and_reduce] = {reduce_forward, reduce_backward, .packed = true},
    [HEAD_fourier_head] = {waves_forward, waves_backward, waves_sizes, true},
    [HEAD_factored_spherical_state] = {.forward = factored_make_state,
                                       .sizes = factored_state_sizes,
                                       .packed = true},
    [HEAD_factored_spherical_weights] = {.forward = factored_make_weights,
                                         .sizes = factored_sizes,
                                         .packed = true},
    [HEAD_factored_spherical_head] = {factored_forward, factored_backward, factored_sizes, true},
    [HEAD_factored_spherical_step] = {.forward = factored_step, .sizes = factored_sizes, .packed = true},
    [HEAD_adaptive_softmax] = {adaptive_forward, adaptive_backward, .packed = true},
    [HEAD_adaptive_log_softmax] = {adaptive_log_forward, adaptive_log_backward, adaptive_log_sizes, true},
    [HEAD_equiangular_basis] = {.forward = equiangular_basis, .packed = true},
    [HEAD_mixture_of_softmaxes] = {mixture_forward, mixture_backward, .packed = true},
};
