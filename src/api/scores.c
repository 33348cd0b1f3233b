/* api/scores.c - the functions of softmax/scores.h. */
#include "base/enter.h"
#include "score/score.h"

smx_status smx_scores(smx_context *ctx, int32_t count, const smx_op *const *scores, const smx_params *params,
                      const smx_tensor *logits, const smx_tensor *target, const smx_tensor *out) {
  SMX_ENTER(ctx);
  return scores_forward(ctx, count, scores, params, logits, target, out);
}
