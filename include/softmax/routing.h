/* softmax/routing.h - mixtures of experts: who takes a token, where it goes, how it comes back.
 *
 *   smx_gate_topk, _backward     the k best experts of each token, and their weights
 *   smx_moe_permutation          which row of which expert each token becomes
 *   smx_moe_rows                 how many rows there are
 *   smx_moe_dispatch, _combine   tokens to these rows, and back
 *
 * They are the operators of these names with their parameters as fields; others of the family gate
 * (noisy gates, experts that choose, losses, soft_moe), and the gradients of dispatch and combine,
 * are called by smx_forward and smx_backward. `softmax help gate_topk` has the formulas.
 *
 * What holds for every function is at the top of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_ROUTING_H
#define SOFTMAX_ROUTING_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum smx_gate_score { SMX_GATE_SOFTMAX = 0, SMX_GATE_SIGMOID = 1 } smx_gate_score;
typedef enum smx_gate_group {
  SMX_GATE_GROUP_AUTO = 0, /* TWO where there is a bias, else BEST */
  SMX_GATE_GROUP_BEST = 1, /* a group counts by its best score */
  SMX_GATE_GROUP_TWO = 2   /* or by the sum of its two best */
} smx_gate_group;

/* How experts are chosen and weighed. Fields that are zero mean defaults. */
typedef struct smx_gate {
  size_t size; /* sizeof(smx_gate) */
  int64_t k;   /* experts of a token; 0 = 2 */
  smx_gate_score score;
  int32_t raw;                /* nonzero: weights are scores; else they are divided by their sum */
  int64_t groups, top_groups; /* experts in groups side by side, of which the best take part; 0 = all */
  smx_gate_group group;
  double scale, temperature; /* weights times scale, logits over temperature; 0 = 1 */
} smx_gate;

/* logits [..., experts] float; bias [experts] float or NULL, for the choice only; weight [..., k]
 * float; index [..., k] i32 or i64. gate NULL means defaults. Aliasing: outputs may not overlap
 * anything else.
 *
 *     float z[4] = {2, 1, 0, -1}, w[2];
 *     int64_t i[2], experts[1] = {4}, chosen[1] = {2};
 *     smx_tensor tz = {z, {1, 0}, 1, SMX_F32, experts, NULL, 0};
 *     smx_tensor tw = {w, {1, 0}, 1, SMX_F32, chosen, NULL, 0}, ti = tw;
 *     ti.data = i, ti.dtype = SMX_I64;
 *     smx_gate_topk(NULL, NULL, &tz, NULL, &tw, &ti);  // w = 0.7311 0.2689
 */
SMX_API smx_status smx_gate_topk(smx_context *ctx, const smx_gate *gate, const smx_tensor *logits,
                                 const smx_tensor *bias, const smx_tensor *weight, const smx_tensor *index);

/* The gradient of the logits from the index of the forward call and the gradient of weight. */
SMX_API smx_status smx_gate_topk_backward(smx_context *ctx, const smx_gate *gate, const smx_tensor *logits,
                                          const smx_tensor *bias, const smx_tensor *index,
                                          const smx_tensor *dweight, const smx_tensor *dlogits);

/* Who is served first where experts have a capacity, and the order of an expert's rows. */
typedef enum smx_moe_order {
  SMX_MOE_POSITION = 0, /* the earlier token, and of one token its earlier choice */
  SMX_MOE_CHOICE = 1,   /* first choices before second ones */
  SMX_MOE_PRIORITY = 2, /* the same, but tokens by their largest weight */
  SMX_MOE_SCORE = 3     /* the larger weight */
} smx_moe_order;

/* Rows of experts. Fields that are zero mean defaults. */
typedef struct smx_moe {
  size_t size; /* sizeof(smx_moe) */
  int64_t experts;
  int64_t capacity; /* tokens that an expert takes; 0 = t k factor / experts, rounded up */
  double factor;    /* 0 = no capacity */
  smx_moe_order order;
  int64_t align; /* an expert's rows are a multiple of it; 0 = 1 */
  int32_t fixed; /* nonzero: every expert has as many rows as its capacity needs */
} smx_moe;

/* The rows for index [tokens, k]. */
SMX_API smx_status smx_moe_rows(const smx_moe *moe, int64_t tokens, int64_t k, int64_t *rows);

/* index [t, k] i32 or i64, -1: none; weight [t, k] or NULL, for PRIORITY and SCORE; slot [t, k], a
 * row of each pair or -1; source [rows], the token of each row or -1; offset [experts + 1]; count
 * [experts] or NULL, who wanted each expert: i32 or i64. */
SMX_API smx_status smx_moe_permutation(smx_context *ctx, const smx_moe *moe, const smx_tensor *index,
                                       const smx_tensor *weight, const smx_tensor *slot,
                                       const smx_tensor *source, const smx_tensor *offset,
                                       const smx_tensor *count);

/* rows [rows, d] from x [t, d]: 0 where source is -1. */
SMX_API smx_status smx_moe_dispatch(smx_context *ctx, const smx_tensor *x, const smx_tensor *source,
                                    const smx_tensor *rows);

/* y [t, d], the sum of a token's rows times weight [t, k], 1 where that is NULL. */
SMX_API smx_status smx_moe_combine(smx_context *ctx, const smx_tensor *rows, const smx_tensor *slot,
                                   const smx_tensor *weight, const smx_tensor *y);

#ifdef __cplusplus
}
#endif
#endif
