/* pairwise/functions.c - the operators of src/pairwise: their functions, by number. */
#include "functions.h"

/* Without b the columns are those of similarities, or as many as rows. */
static smx_status sizes(dims *d) {
  const char *const columns = dims_param(d, "similarities", 0) != 0 ? "d" : "n";
  if (dims_value(d, "m", 0) < 0) dims_set(d, "m", 0, dims_value(d, columns, 0));
  return SMX_OK;
}

#define OPERATOR(name, rule) \
  static smx_status name(const tensor_call *c) { return pair_run(c, &rule, false); } \
  static smx_status name##_backward(const tensor_call *c) { return pair_run(c, &rule, true); }
OPERATOR(info_nce, pair_info_nce)
OPERATOR(clip_loss, pair_clip)
OPERATOR(nt_xent, pair_nt_xent)
OPERATOR(supervised, pair_supervised)
OPERATOR(decoupled, pair_decoupled_softmax)
OPERATOR(ranking, pair_ranking)
OPERATOR(soft_contrastive, pair_soft_targets)
OPERATOR(soft_topk, pair_soft_topk)
OPERATOR(graded, pair_graded)
OPERATOR(global, pair_global)
OPERATOR(sphereface2, pair_sphereface2)
OPERATOR(wcdas, pair_wcdas)
OPERATOR(metric_margin, pair_metric_margin)
OPERATOR(adaptive_margin, pair_adaptive_margin)

const tensor_functions pairwise_functions[PAIRWISE_COUNT] = {
    [PAIRWISE_info_nce] = {info_nce, info_nce_backward, sizes, true},
    [PAIRWISE_clip_loss] = {clip_loss, clip_loss_backward, sizes, true},
    [PAIRWISE_nt_xent] = {nt_xent, nt_xent_backward, sizes, true},
    [PAIRWISE_supervised_contrastive] = {supervised, supervised_backward, sizes, true},
    [PAIRWISE_decoupled_softmax_loss] = {decoupled, decoupled_backward, sizes, true},
    [PAIRWISE_pairwise_softmax_loss] = {ranking, ranking_backward, sizes, true},
    [PAIRWISE_soft_contrastive] = {soft_contrastive, soft_contrastive_backward, sizes, true},
    [PAIRWISE_soft_topk_loss] = {soft_topk, soft_topk_backward, sizes, true},
    [PAIRWISE_graded_embedding_loss] = {graded, graded_backward, sizes, true},
    [PAIRWISE_global_contrastive_loss] = {global, global_backward, sizes, true},
    [PAIRWISE_soft_clip_loss] = {soft_clip_forward, soft_clip_backward, sizes, true},
    [PAIRWISE_nbc_loss] = {nbc_forward, nbc_backward, NULL, true},
    [PAIRWISE_flowcon_score] = {flowcon_score_forward, flowcon_score_backward, NULL, true},
    [PAIRWISE_flowcon_loss] = {flowcon_loss_forward, flowcon_loss_backward, NULL, true},
    [PAIRWISE_attention_separation] = {.forward = separation_forward, .packed = true},
    [PAIRWISE_sphereface2] = {sphereface2, sphereface2_backward, NULL, true},
    [PAIRWISE_wcdas] = {wcdas, wcdas_backward, NULL, true},
    [PAIRWISE_margin_metric_softmax] = {metric_margin, metric_margin_backward, NULL, true},
    [PAIRWISE_adaptive_scale_margin_softmax] = {adaptive_margin, adaptive_margin_backward, NULL, true},
};
