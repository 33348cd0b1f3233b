/* attention/table_operators.h - the table of the operators of attention that the engine of this
 * directory is not for: they see whole sheets of scores, maxima, or budgets. */
#ifndef SMX_ATTENTION_TABLE_OPERATORS_H
#define SMX_ATTENTION_TABLE_OPERATORS_H
#include <softmax.h>

enum {
  ATTENTION_OP_sinkhorn_attention,
  ATTENTION_OP_orthostochastic_attention,
  ATTENTION_OP_max_sim,
  ATTENTION_OP_kv_budget_prefix,
  ATTENTION_OP_kv_budget_dynamic,
  ATTENTION_OP_multi_token_attention,
  ATTENTION_OP_soft_attention,
  ATTENTION_OP_segment_attention,
  ATTENTION_OP_lsh_codes,
  ATTENTION_OP_magicpig_attention,
  ATTENTION_OP_kde_attention,
  ATTENTION_OP_nystrom_attention,
  ATTENTION_OP_additive_scores,
  ATTENTION_OP_entmax_attention,
  ATTENTION_OP_nap_attention,
  ATTENTION_OP_shaped_attention,
  ATTENTION_OP_COUNT
};
extern const smx_op attention_op_table[ATTENTION_OP_COUNT];

#endif
