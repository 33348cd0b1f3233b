/* attention/functions.c - the operators of table_operators.h: their functions, by number. */
#include "functions.h"

const tensor_functions attention_functions[ATTENTION_OP_COUNT] = {
    [ATTENTION_OP_sinkhorn_attention] = {sinkhorn_attention_forward, sinkhorn_attention_backward, NULL, true},
    [ATTENTION_OP_orthostochastic_attention] = {orthostochastic_attention_forward,
                                                orthostochastic_attention_backward, NULL, true},
    [ATTENTION_OP_max_sim] = {max_sim_forward, max_sim_backward, max_sim_sizes, true},
    [ATTENTION_OP_kv_budget_prefix] = {kv_budget_prefix_forward, NULL, kv_budget_prefix_sizes, true},
    [ATTENTION_OP_kv_budget_dynamic] = {kv_budget_dynamic_forward, NULL, NULL, true},
    [ATTENTION_OP_multi_token_attention] = {multi_token_attention_forward, multi_token_attention_backward,
                                            NULL, true},
    [ATTENTION_OP_soft_attention] = {soft_attention_forward, soft_attention_backward, NULL, true},
    [ATTENTION_OP_segment_attention] = {segment_attention_forward, segment_attention_backward, NULL, true},
    [ATTENTION_OP_lsh_codes] = {lsh_codes_forward, NULL, lsh_codes_sizes, true},
    [ATTENTION_OP_magicpig_attention] = {magicpig_attention_forward, NULL, magicpig_attention_sizes, true},
    [ATTENTION_OP_kde_attention] = {kde_attention_forward, NULL, NULL, true},
    [ATTENTION_OP_nystrom_attention] = {nystrom_attention_forward, nystrom_attention_backward, NULL, true},
    [ATTENTION_OP_additive_scores] = {additive_scores_forward, additive_scores_backward, NULL, true},
    [ATTENTION_OP_entmax_attention] = {entmax_attention_forward, entmax_attention_backward, NULL, true},
    [ATTENTION_OP_nap_attention] = {nap_attention_forward, nap_attention_backward, NULL, true},
    [ATTENTION_OP_shaped_attention] = {shaped_attention_forward, shaped_attention_backward, NULL, true},
};
