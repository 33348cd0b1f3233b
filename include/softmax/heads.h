/* softmax/heads.h - heads: an operator on rows of logits that are formed on the way.
 *
 *   smx_linear_forward, _backward   any operator on rows over the logits of a linear layer
 *   smx_linear_logits               these logits themselves
 *   smx_linear_cross_entropy_f32    cross-entropy of a linear layer, with its gradients, by name
 *
 * What holds for every function is at the top of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_HEADS_H
#define SOFTMAX_HEADS_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A linear layer at the end of a model: z = scale h w^T + bias, then softcap tanh(z / softcap).
 * Logits are never in memory as a whole: rows are taken as many at a time as have keep_bytes of
 * logits, in multiples of 64 and 512 at most.
 *
 * h [N, d], w [C, d], bias [C]: f16, bf16, f32 or f64, each its own, with any strides. The
 * arithmetic is f64 when any of them is, or another input of the operator; otherwise f32.
 *
 * Every number of h and w is read, those of classes that a mask hides too: a NaN there makes the
 * gradients NaN.
 *
 * The bits depend on the numbers alone: not on keep_bytes, threads, the rows beside a row, strides
 * or the instruction set. A logit is the sum of chains of 64 columns, each by FMA in index order.
 * So are the gradients: dw and dbias in chains of 64 rows; dh in chains of 64 classes, those of
 * 4096 classes added up, and these in double.
 *
 * Beside keep_bytes a call takes 64 KB a thread; for each row of a block and thread, with dh a real
 * and a double for each of at most 1024 columns of h, with dw alone 64 reals; with dw the rows of a
 * block once more; with bias C reals; copies in the real type of h where it has another type or
 * stride, of dw where it has (C d reals), and of dbias. */
typedef struct smx_linear {
  size_t size; /* sizeof(smx_linear); other fields zero mean defaults */
  const smx_tensor *h, *w;
  const smx_tensor *bias; /* or NULL */
  double scale;           /* of h w^T; 0 = 1 */
  double softcap;         /* 0 = none */
  size_t keep_bytes;      /* of logits and their gradients; 0 = 32 MiB; at least 64 rows are kept */
  /* Where gradients go, shaped as h, w and bias; NULL: not wanted. They may not overlap anything
   * else. */
  const smx_tensor *dh, *dw, *dbias;
} smx_linear;

/* The logits, z [N, C]. */
SMX_API smx_status smx_linear_logits(smx_context *ctx, const smx_linear *linear, const smx_tensor *z);

/* As smx_forward with x the logits, which run along the last axis: in[0] is NULL, or in is empty;
 * params->axis is -1 or 1. Outputs as long as a row are possible too, where there is memory for
 * them. With dh, dw or dbias the same walk forms the gradients of a loss that has its own (output
 * dx, SMX_PORT_DX), as cross_entropy has: those of the reduced loss. */
SMX_API smx_status smx_linear_forward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                      const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                                      int32_t n_out, const smx_tensor *const *out);

/* As smx_backward; the gradient of x becomes dh, dw and dbias, so din[0] is NULL. Logits are formed
 * once more. */
SMX_API smx_status smx_linear_backward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                       const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                                       int32_t n_out, const smx_tensor *const *out,
                                       const smx_tensor *const *dout, const smx_tensor *const *din);

/* smx_cross_entropy_f32 of the logits h w^T + bias: h [rows, width], w [classes, width], bias
 * [classes] or NULL, contiguous. dh, dw, dbias and reduced may be NULL; the gradients are those of
 * the reduced loss. options as there; softcap caps the logits.
 *
 *     float h[2] = {1, 2}, w[6] = {1, 0, 0, 1, 1, 1}, loss, g[2];
 *     int64_t t[1] = {2};
 *     smx_linear_cross_entropy_f32(NULL, 1, 3, 2, h, w, NULL, t, NULL, &loss, g, NULL, NULL, NULL);
 *     // loss = 0.4076
 */
SMX_API smx_status smx_linear_cross_entropy_f32(smx_context *ctx, size_t rows, size_t classes, size_t width,
                                                const float *h, const float *w, const float *bias,
                                                const int64_t *target,
                                                const smx_cross_entropy_options *options, float *loss,
                                                float *dh, float *dw, float *dbias, float *reduced);

#ifdef __cplusplus
}
#endif
#endif
