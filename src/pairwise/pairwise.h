/* pairwise/pairwise.h - the table of the operators on pairs of rows: losses that compare every row
 * of a with every row of b, or of features with the weights of every class. */
#ifndef SMX_PAIRWISE_H
#define SMX_PAIRWISE_H
#include <softmax.h>

enum {
  PAIRWISE_info_nce,
  PAIRWISE_clip_loss,
  PAIRWISE_nt_xent,
  PAIRWISE_supervised_contrastive,
  PAIRWISE_decoupled_softmax_loss,
  PAIRWISE_pairwise_softmax_loss,
  PAIRWISE_soft_contrastive,
  PAIRWISE_soft_topk_loss,
  PAIRWISE_graded_embedding_loss,
  PAIRWISE_global_contrastive_loss,
  PAIRWISE_soft_clip_loss,
  PAIRWISE_nbc_loss,
  PAIRWISE_flowcon_score,
  PAIRWISE_flowcon_loss,
  PAIRWISE_attention_separation,
  PAIRWISE_sphereface2,
  PAIRWISE_wcdas,
  PAIRWISE_margin_metric_softmax,
  PAIRWISE_adaptive_scale_margin_softmax,
  PAIRWISE_COUNT
};
extern const smx_op pairwise_table[PAIRWISE_COUNT];

#endif
