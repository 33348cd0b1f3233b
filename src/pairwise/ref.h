/* pairwise/ref.h - references of operators that are no losses of logits of pairs. */
#ifndef SMX_PAIRWISE_REF_H
#define SMX_PAIRWISE_REF_H
#include "engine/ref.h"

tensor_ref_fn ref_nbc_loss, ref_flowcon_score, ref_flowcon_loss, ref_attention_separation;
tensor_ref_fn ref_sphereface2, ref_wcdas, ref_margin_metric_softmax, ref_adaptive_scale_margin_softmax;

#endif
