/* pool/pool.h - the table of the operators that pool: many elements become one, over windows,
 * bins, sets, segments, clusters or graphs; of many boxes that overlap the best stay. */
#ifndef SMX_POOL_H
#define SMX_POOL_H
#include <softmax.h>

enum {
  POOL_max_pool,
  POOL_avg_pool,
  POOL_soft_pool,
  POOL_lse_pool,
  POOL_mixed_pool,
  POOL_adaptive_max_pool,
  POOL_adaptive_avg_pool,
  POOL_adaptive_soft_pool,
  POOL_nms,
  POOL_soft_nms,
  POOL_gem_pool,
  POOL_gnp_pool,
  POOL_smoothed_max_pool,
  POOL_layer_max_pool,
  POOL_maxout,
  POOL_splade_pool,
  POOL_flops_reg,
  POOL_layer_mix,
  POOL_selective_kernel,
  POOL_attsets_pool,
  POOL_attention_pool_mil,
  POOL_weighted_mean_pool,
  POOL_segment_pool,
  POOL_segment_upsample,
  POOL_gsp_pool,
  POOL_soft_histogram,
  POOL_lp_pool,
  POOL_ada_pool,
  POOL_gated_pool,
  POOL_tree_pool,
  POOL_smoothed_max_update,
  POOL_stochastic_pool,
  POOL_idw_pool,
  POOL_ada_unpool,
  POOL_sim_pool,
  POOL_query_pool,
  POOL_prompt_guided_pool,
  POOL_ponet_mix,
  POOL_token_pool_kmeans,
  POOL_token_pool_kmedoids,
  POOL_token_pool_ward,
  POOL_graph_topk_pool,
  POOL_graph_parse,
  POOL_softhebb,
  POOL_compact_bilinear_pool,
  POOL_lowrank_bilinear,
  POOL_COUNT
};
extern const smx_op pool_table[POOL_COUNT];

#endif
