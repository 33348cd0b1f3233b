/* head/functions.h - the functions of the operators of src/head. */
#ifndef SMX_HEAD_FUNCTIONS_H
#define SMX_HEAD_FUNCTIONS_H
#include "cpu/cpu.h"
#include "driver/tensor_reals.h"
#include "head.h"
#include "score/score.h"

static inline const head_kernels *head_doubles(void) { return smx_isa_current()->f64.head; }
/* Functions of one number in double. */
static inline const score_kernels *head_math(void) { return smx_isa_current()->f64.score; }

/* A sum of many numbers: high + low, where low has what rounding takes from high (Knuth's
 * TwoSum). */
typedef struct head_sum {
  double high, low;
} head_sum;
static inline void head_add(head_sum *s, double x) {
  const double sum = s->high + x, back = sum - s->high, lost = (s->high - (sum - back)) + (x - back);
  s->high = sum;
  if (lost == lost) s->low += lost; /* not beside infinities */
}

/* log(e^a + e^b) */
static inline double head_log_add(double a, double b) {
  if (a != a || b != b) return a + b;
  const double most = a > b ? a : b, least = a > b ? b : a;
  return most == -__builtin_inf() ? most : most + head_math()->softplus(least - most);
}

/* The parameters of op, those that the operator of the call has too from there; and its `keep`, in
 * bytes (functions.c). */
void head_shared_params(const tensor_call *c, const smx_op *op, smx_params *params);
size_t head_keep(const tensor_call *c);

smx_status crf_forward(const tensor_call *c);
smx_status crf_backward(const tensor_call *c);
smx_status crf_marginals(const tensor_call *c);
smx_status crf_viterbi(const tensor_call *c);
smx_status crf_k_best(const tensor_call *c);
smx_status crf_k_best_sizes(dims *d);

smx_status hierarchical_sizes(dims *d);
smx_status hierarchical_forward(const tensor_call *c);
smx_status hierarchical_backward(const tensor_call *c);
smx_status hierarchical_log_forward(const tensor_call *c);
smx_status hierarchical_log_backward(const tensor_call *c);
smx_status huffman_sizes(dims *d);
smx_status huffman_tree(const tensor_call *c);

smx_status soft_tree_sizes(dims *d);
smx_status soft_tree_forward(const tensor_call *c);
smx_status soft_tree_backward(const tensor_call *c);

smx_status cosine_forward(const tensor_call *c);
smx_status cosine_backward(const tensor_call *c);

smx_status adaptive_forward(const tensor_call *c);
smx_status adaptive_backward(const tensor_call *c);
smx_status adaptive_log_sizes(dims *d);
smx_status adaptive_log_forward(const tensor_call *c);
smx_status adaptive_log_backward(const tensor_call *c);
smx_status equiangular_basis(const tensor_call *c);

smx_status mixture_forward(const tensor_call *c);
smx_status mixture_backward(const tensor_call *c);

smx_status knn_lm_forward(const tensor_call *c);
smx_status knn_lm_backward(const tensor_call *c);

smx_status partial_fc_sizes(dims *d);
smx_status partial_fc(const tensor_call *c);

smx_status candidates_sizes(dims *d);
smx_status sample_classes(const tensor_call *c);
smx_status sampled_softmax_forward(const tensor_call *c);
smx_status sampled_softmax_backward(const tensor_call *c);
smx_status nce_forward(const tensor_call *c);
smx_status nce_backward(const tensor_call *c);
smx_status reduce_forward(const tensor_call *c);
smx_status reduce_backward(const tensor_call *c);

smx_status soft_token_forward(const tensor_call *c);
smx_status soft_token_backward(const tensor_call *c);
smx_status waves_sizes(dims *d);
smx_status waves_forward(const tensor_call *c);
smx_status waves_backward(const tensor_call *c);
smx_status memory_sizes(dims *d);
smx_status memory_forward(const tensor_call *c);
smx_status memory_backward(const tensor_call *c);
smx_status vq_forward(const tensor_call *c);
smx_status vq_backward(const tensor_call *c);
smx_status fusion_forward(const tensor_call *c);
smx_status fusion_backward(const tensor_call *c);

smx_status factored_state_sizes(dims *d);
smx_status factored_sizes(dims *d);
smx_status factored_make_state(const tensor_call *c);
smx_status factored_make_weights(const tensor_call *c);
smx_status factored_forward(const tensor_call *c);
smx_status factored_backward(const tensor_call *c);
smx_status factored_step(const tensor_call *c);

#endif
