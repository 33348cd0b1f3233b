/* gate/functions.h - the functions of the operators of src/gate. */
#ifndef SMX_GATE_FUNCTIONS_H
#define SMX_GATE_FUNCTIONS_H
#include "driver/tensors.h"
#include "gate.h"

/* Who takes a token. */
smx_status gate_topk(const tensor_call *c);
smx_status gate_topk_backward(const tensor_call *c);
smx_status gate_topk_sizes(dims *d);
smx_status gate_dense(const tensor_call *c);
smx_status gate_dense_backward(const tensor_call *c);
smx_status gate_dense_sizes(dims *d);
smx_status gate_modified(const tensor_call *c);
smx_status gate_modified_backward(const tensor_call *c);
smx_status gate_k_sizes(dims *d); /* no more experts for a token than there are */
smx_status gate_noisy(const tensor_call *c);
smx_status gate_noisy_backward(const tensor_call *c);
smx_status gate_expert_choice(const tensor_call *c);
smx_status gate_expert_choice_backward(const tensor_call *c);
smx_status gate_expert_sizes(dims *d);
smx_status gate_relu(const tensor_call *c);
smx_status gate_relu_backward(const tensor_call *c);
smx_status gate_soft_moe(const tensor_call *c);
smx_status gate_soft_moe_backward(const tensor_call *c);

/* Where it goes, and how it comes back. */
smx_status gate_permutation(const tensor_call *c);
smx_status gate_permutation_sizes(dims *d);
smx_status gate_dispatch(const tensor_call *c);
smx_status gate_dispatch_backward(const tensor_call *c);
smx_status gate_combine(const tensor_call *c);
smx_status gate_combine_backward(const tensor_call *c);

/* What keeps experts busy alike. */
smx_status gate_load_balancing(const tensor_call *c);
smx_status gate_load_balancing_backward(const tensor_call *c);
smx_status gate_z_loss(const tensor_call *c);
smx_status gate_z_loss_backward(const tensor_call *c);
smx_status gate_importance(const tensor_call *c);
smx_status gate_importance_backward(const tensor_call *c);
smx_status gate_importance_sizes(dims *d);
smx_status gate_bias_update(const tensor_call *c);
smx_status gate_gaussian_nll(const tensor_call *c);
smx_status gate_gaussian_nll_backward(const tensor_call *c);
smx_status gate_multinomial_nll(const tensor_call *c);
smx_status gate_multinomial_nll_backward(const tensor_call *c);

#endif
