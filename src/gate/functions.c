/* gate/functions.c - the operators of src/gate: their functions, by number. */
#include "functions.h"

const tensor_functions gate_functions[GATE_COUNT] = {
    [GATE_gate_topk] = {gate_topk, gate_topk_backward, gate_topk_sizes, true},
    [GATE_gate_expert_choice] = {gate_expert_choice, gate_expert_choice_backward, gate_expert_sizes, true},
    [GATE_gate_relu] = {gate_relu, gate_relu_backward, gate_k_sizes, true},
    [GATE_moe_permutation] = {gate_permutation, NULL, gate_permutation_sizes, true},
    [GATE_moe_dispatch] = {gate_dispatch, gate_dispatch_backward, NULL, true},
    [GATE_moe_combine] = {gate_combine, gate_combine_backward, NULL, true},
    [GATE_load_balancing_loss] = {gate_load_balancing, gate_load_balancing_backward, NULL, true},
    [GATE_router_z_loss] = {gate_z_loss, gate_z_loss_backward, NULL, true},
    [GATE_expert_bias_update] = {.forward = gate_bias_update, .packed = true},
    [GATE_gate_noisy_topk] = {gate_noisy, gate_noisy_backward, gate_k_sizes, true},
    [GATE_moe_gaussian_nll] = {gate_gaussian_nll, gate_gaussian_nll_backward, NULL, true},
    [GATE_moe_multinomial_nll] = {gate_multinomial_nll, gate_multinomial_nll_backward, NULL, true},
    [GATE_gate_dense_to_sparse] = {gate_dense, gate_dense_backward, gate_dense_sizes, true},
    [GATE_gate_modified] = {gate_modified, gate_modified_backward, NULL, true},
    [GATE_importance_loss] = {gate_importance, gate_importance_backward, gate_importance_sizes, true},
    [GATE_soft_moe] = {gate_soft_moe, gate_soft_moe_backward, NULL, true},
};
