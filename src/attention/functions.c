/* attention/functions.c - the operators of table_operators.h: their functions, by number. */
#include "functions.h"

const tensor_functions attention_functions[ATTENTION_OP_COUNT] = {
    [ATTENTION_OP_sinkhorn_attention] = {sinkhorn_attention_forward, sinkhorn_attention_backward, NULL, true},
    [ATTENTION_OP_orthostochastic_attention] = {orthostochastic_attention_forward,
                                                orthostochastic_attention_backward, NULL, true},
    [ATTENTION_OP_max_sim] = {max_sim_forward, max_sim_backward, NULL, true},
    [ATTENTION_OP_kv_budget_prefix] = {kv_budget_prefix_forward, NULL, kv_budget_prefix_sizes, true},
    [ATTENTION_OP_kv_budget_dynamic] = {kv_budget_dynamic_forward, NULL, NULL, true},
    [ATTENTION_OP_multi_token_attention] = {multi_token_attention_forward, multi_token_attention_backward,
                                            NULL, true},
    [ATTENTION_OP_soft_attention] = {soft_attention_forward, soft_attention_backward, NULL, true},
    [ATTENTION_OP_segment_attention] = {segment_attention_forward, segment_attention_backward, NULL, true},
};
