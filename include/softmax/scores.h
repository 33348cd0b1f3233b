/* softmax/scores.h - how sure is a row of logits?
 *
 *   smx_scores   several scores of each row, from one read of the logits
 *
 * The scores are operators of the family "score" (smx_op_find("msp"), "entropy", ...), which say
 * what each is, and give it alone, with its gradient. What holds for every function is at the top
 * of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_SCORES_H
#define SOFTMAX_SCORES_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* logits [..., c] float, target [...] i32 or i64, or NULL where no score needs it; out [..., count]
 * float: a column for each score, in their order. With the strides of out columns can be arrays of
 * their own. params: of each score, or NULL for the defaults; temperature and order must be the
 * same for all that have them. Every score has the bits that its operator gives alone. No gradient.
 * Errors beside those of any operator: SMX_ERR_PARAM for an operator that is no score of a row, and
 * for temperatures or orders that differ; SMX_ERR_NULL for a target that is missing. Aliasing: out
 * may not overlap the inputs. Thread safety: as smx_forward.
 *
 *     float z[4] = {2, 1, 0, -1}, y[2];
 *     int64_t classes[1] = {4}, two[1] = {2};
 *     smx_tensor tz = {z, {1, 0}, 1, SMX_F32, classes, NULL, 0}, ty = tz;
 *     ty.data = y, ty.shape = two;
 *     const smx_op *scores[2] = {smx_op_find("msp"), smx_op_find("entropy")};
 *     smx_scores(NULL, 2, scores, NULL, &tz, NULL, &ty);  // y = 0.6439 0.9475
 */
SMX_API smx_status smx_scores(smx_context *ctx, int32_t count, const smx_op *const *scores,
                              const smx_params *params, const smx_tensor *logits, const smx_tensor *target,
                              const smx_tensor *out);

#ifdef __cplusplus
}
#endif

#endif
