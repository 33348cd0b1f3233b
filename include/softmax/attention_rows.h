/* softmax/attention_rows.h - attention by operators on rows that have a number for each row, and
 * the gradients of what is added to their scores. softmax.h does not include it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_ATTENTION_ROWS_H
#define SOFTMAX_ATTENTION_ROWS_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* smx_attention_rows with `row`, [B, Hq, Lq] floats or what broadcasts to it: the first input of
 * op that has a number for each row and a gradient, in place of its parameter. That is alpha of
 * entmax, temperature of softmax, s of ssmax, sink of sink_softmax, b of sigmoid_attention, and
 * others; [Hq, 1] has one for each head. NULL: none. */
SMX_API smx_status smx_attention_rows_input(smx_context *ctx, const smx_attention_options *options,
                                            const smx_op *op, const smx_params *params, const smx_tensor *row,
                                            const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                            const smx_tensor *o);

/* The gradients of q, k and v, of bias (d_bias) and slopes, and of `row`. The last three have the
 * full shape of their input, or one that broadcasts to it: then they are sums over the axes where
 * it does, in the order of sequences, heads, rows and keys. NULL: not wanted. d_bias is not
 * possible with offsets. */
SMX_API smx_status smx_attention_rows_input_backward(
    smx_context *ctx, const smx_attention_options *options, const smx_op *op, const smx_params *params,
    const smx_tensor *row, const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
    const smx_tensor *d_o, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv,
    const smx_tensor *d_bias, const smx_tensor *d_slopes, const smx_tensor *d_row);

#ifdef __cplusplus
}
#endif
#endif
