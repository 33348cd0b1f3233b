/* softmax/attention.h - attention: queries, keys and values.
 *
 *   smx_attention, _backward        weights of a kind of the library (smx_attention_kind_at),
 *   smx_attention_rows              made by an operator on rows,
 *   smx_attention_scores, _apply    or read or given by the caller
 *   smx_attention_states, _merge    keys in several places
 *   smx_attention_column_mass, _select   which keys a cache should keep
 *   smx_attention_parallax, _local_linear, _additive, _tropical   other scores or outputs
 *   smx_rope                        rotary positions of queries and keys
 *
 * What holds for every function is at the top of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_ATTENTION_H
#define SOFTMAX_ATTENTION_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Attention ------------------------------------------------------------------------------- */

/* o_i = sum_j w_ij v_j over the keys j that query i may see, w_ij from the scores z_ij of query i
 * with each of them. Memory is O(L).
 *
 * Tensors have four dimensions: q [B, Hq, Lq, d], k [B, Hkv, Lk, d], v [B, Hkv, Lk, e], o [B, Hq,
 * Lq, e], with any strides, so that other orders of the axes and packed heads are strides of the
 * same call. d and e: 1..512, each its own. Hq is a multiple of Hkv: query head h uses key/value
 * head h / (Hq / Hkv).
 *
 * Scores: z = scale <q, k>; softcap tanh(z / softcap); + bias; - slope |i + query_start - j|
 * (ALiBi). Keys that causality, the window, mask or lengths hide, and those whose score is -inf, do
 * not exist: their values are not read as numbers. A row that sees no key gives zeros and lse =
 * -inf, or as on_empty says. A score that is NaN makes its row NaN.
 *
 * The bits of a row of o depend on its query, on the keys and values that it sees and on their
 * logical indices: not on the rows beside it (prefill and decode agree), on how keys lie in memory
 * (pages, strides), on padding, threads, or how the keys are split among calls. */

/* How the scores z of the visible keys of a row become weights. A table has the facts about each
 * kind, its formula and parameters among them: smx_attention_kind_at, or `softmax help attention`.
 * Numbers are never reused. */
typedef enum smx_attention_weights {
  SMX_ATTENTION_SOFTMAX = 0,
  SMX_ATTENTION_SOFTMAX_N = 1,
  SMX_ATTENTION_SSMAX = 2,
  SMX_ATTENTION_SIGMOID = 3,
  SMX_ATTENTION_SOFTPICK = 4,
  SMX_ATTENTION_SELF_ADJUST = 5,
  SMX_ATTENTION_SELF_ADJUST_RANGE = 6,
  SMX_ATTENTION_RELU = 7,
  SMX_ATTENTION_ELU = 8,
  SMX_ATTENTION_IDENTITY = 9,
  SMX_ATTENTION_SOFTPLUS = 10,
  SMX_ATTENTION_TAYLOR = 11,
  SMX_ATTENTION_CLIPPED = 12,
  SMX_ATTENTION_CENTRED = 13,
  SMX_ATTENTION_EXP = 14,
  SMX_ATTENTION_CREDAL = 15,
  SMX_ATTENTION_SHAPED = 16,
  SMX_ATTENTION_LSSA = 17,
  SMX_ATTENTION_LSSAR = 18,
  SMX_ATTENTION_UNIFIED = 19,
  SMX_ATTENTION_KINDS /* how many this header knows; a newer library has more: smx_attention_kind_count() */
} smx_attention_weights;

enum {
  SMX_ATTENTION_SINKS = 1,    /* there may be options.sinks */
  SMX_ATTENTION_BACKWARD = 2, /* has a gradient, and the mass of its columns */
  SMX_ATTENTION_STATES = 4    /* the keys may be split among calls: smx_attention_states */
};

/* All there is to know about a kind of weights. Read-only; new fields are added at the end. In
 * formulas z are the scores of the n visible keys of a row, p = softmax(z), and N is what the
 * parameter norm says. */
typedef struct smx_attention_kind {
  int32_t id;                                          /* smx_attention_weights */
  uint32_t flags;                                      /* SMX_ATTENTION_SINKS and the like */
  const char *name, *title, *formula, *about, *source; /* as in smx_op */
  int32_t param_count;
  const smx_param *params; /* of options.param[0], param[1], ... */
} smx_attention_kind;

SMX_API size_t smx_attention_kind_count(void);
/* NULL when there is none of that number or name. */
SMX_API const smx_attention_kind *smx_attention_kind_at(size_t i);
SMX_API const smx_attention_kind *smx_attention_kind_find(const char *name);

/* Values of the parameter norm: what weights are divided by. A sum of 0 gives weights of 0. */
enum {
  SMX_ATTENTION_NORM_NONE = 0,
  SMX_ATTENTION_NORM_COUNT = 1, /* n */
  SMX_ATTENTION_NORM_L1 = 2,    /* sum |w| */
  SMX_ATTENTION_NORM_CLAMP = 3  /* max(|sum w|, 1) */
};

#define SMX_ATTENTION_PARAMS 4
#define SMX_ATTENTION_END (-1)

/* Fill with smx_attention_init, then change. */
typedef struct smx_attention_options {
  size_t size; /* sizeof(smx_attention_options) */
  smx_attention_weights weights;
  double param[SMX_ATTENTION_PARAMS]; /* of the weights; those that the kind does not have are 0 */
  double scale;                       /* of <q, k>; 0 = 1 / sqrt(d) */
  double softcap;                     /* 0 = none */
  int32_t causal;                     /* nonzero: row i sees keys j <= i + query_start */
  /* position of the first row among the keys; SMX_ATTENTION_END (default): the last row stands at
   * the last key */
  int64_t query_start;
  /* row i sees i + query_start - left <= j <= i + query_start + right; -1 (default): no end */
  int64_t window_left, window_right;
  int64_t key_start; /* logical index of the first key of k and v, a multiple of 1024; default 0 */
  /* Optional tensors. Broadcast by NumPy's rules to the shape given here. */
  const smx_tensor *mask;   /* [B, Hq, Lq, Lk] bool or u8: nonzero = visible */
  const smx_tensor *bias;   /* [B, Hq, Lq, Lk] float, added to the scores; -inf hides a key */
  const smx_tensor *slopes; /* [B, Hq] float: ALiBi */
  const smx_tensor *sinks;  /* [B, Hq] float: the score of one more key that has no value */
  /* [B] i32 or i64: how many keys of each sequence there are, of those that it has room for */
  const smx_tensor *lengths;
  /* Sequences packed one after another: B + 1 offsets, i32 or i64, from 0 to the length of the
   * axis. Tensors have a batch axis of 1 then, and B counts sequences; mask and bias are not
   * possible. */
  const smx_tensor *query_offsets, *key_offsets;
  /* A paged cache: k and v are [pages, Hkv, page size, d or e]; key j of sequence b is in page
   * block_table[b, j / page size]. [B, pages of a sequence] i32; needs lengths. */
  const smx_tensor *block_table;
  /* Weights are 0 with probability dropout, 0 <= dropout < 1, else w / (1 - dropout); lse and
   * normalisers are those without dropout. Which weights are dropped depends on the seed, the
   * stream of the head (stream + b Hq + h, or streams[b] + h) and the logical indices of query and
   * key alone. Keys: at most 2^28. smx_attention_column_mass has the weights without dropout. */
  double dropout;
  uint64_t seed, stream;
  const smx_tensor *streams; /* [B] i32 or i64 */
} smx_attention_options;

/* Defaults: softmax of <q, k> / sqrt(d), every key visible. */
SMX_API smx_status smx_attention_init(smx_attention_options *options);

/* Sets weights, and param to the defaults of that kind. A default that is NaN depends on the call:
 * the shift of sigmoid is -ln of the number of keys that a sequence may have, Lk or pages times
 * page size. A call with a part of the keys only has to set it. */
SMX_API smx_status smx_attention_set_weights(smx_attention_options *options, smx_attention_weights weights);

/* options NULL means defaults. lse [B, Hq, Lq] (f32 or f64) may be NULL: the natural logarithm of
 * what the weights were divided by, the sink included; of kinds that divide by nothing, what their
 * gradient needs. f16, bf16, f32 or f64; f64 arithmetic when q, k or v is f64. o and lse may not
 * overlap anything else.
 *
 *     float q[2] = {1, 0.5f}, k[4] = {1, 0, 0, 1}, v[4] = {1, 0, 0, 1}, o[2];
 *     int64_t rows[4] = {1, 1, 1, 2}, keys[4] = {1, 1, 2, 2};  // [B, H, L, d]
 *     smx_tensor tq = {q, {1, 0}, 4, SMX_F32, rows, NULL, 0}, to = tq;
 *     smx_tensor tk = {k, {1, 0}, 4, SMX_F32, keys, NULL, 0}, tv = tk;
 *     to.data = o, tv.data = v;
 *     smx_attention(NULL, NULL, &tq, &tk, &tv, &to, NULL);  // o = 0.5875 0.4125
 *
 *     smx_attention_options options;
 *     smx_attention_init(&options);
 *     smx_attention_set_weights(&options, SMX_ATTENTION_SOFTMAX_N);
 *     options.param[0] = 2;
 *     smx_attention(NULL, &options, &tq, &tk, &tv, &to, NULL);  // o = 0.3720 0.2612
 */
SMX_API smx_status smx_attention(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                 const smx_tensor *k, const smx_tensor *v, const smx_tensor *o,
                                 const smx_tensor *lse);

/* The gradients of q, k and v, from o and lse of the forward call and the gradients of both (d_lse
 * may be NULL); those that are NULL are not wanted. Memory is O(L). For kinds with
 * SMX_ATTENTION_BACKWARD, not for a paged cache, nor under the norm CLAMP for identity and for
 * Taylor series with an even number of terms: SMX_ERR_NO_BACKWARD. dk and dv add up rows in blocks
 * of 256, query heads in order. */
SMX_API smx_status smx_attention_backward(smx_context *ctx, const smx_attention_options *options,
                                          const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                          const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                          const smx_tensor *d_lse, const smx_tensor *dq, const smx_tensor *dk,
                                          const smx_tensor *dv);

/* The gradients of what is added to the scores: bias (d_bias), slopes and sinks, for the same
 * weights. Each has the full shape of its option, or one that broadcasts to it: then it is the sum
 * over the axes where it does, in the order of sequences, heads, rows and keys. NULL: not
 * wanted. */
SMX_API smx_status smx_attention_backward_bias(smx_context *ctx, const smx_attention_options *options,
                                               const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                               const smx_tensor *o, const smx_tensor *lse,
                                               const smx_tensor *d_o, const smx_tensor *d_lse,
                                               const smx_tensor *d_bias, const smx_tensor *d_slopes,
                                               const smx_tensor *d_sinks);

/* Attention with weights that an operator on rows makes of the scores: sparsemax, entmax, or any
 * other with one output for each element (smx_op_find); params NULL means its defaults. A hidden
 * key has the score -inf, and if the operator has a mask, the mask is 0 there. The scores of some
 * rows are in memory at a time, of 256 in the gradient. Of the options weights and sinks are not
 * used. */
SMX_API smx_status smx_attention_rows(smx_context *ctx, const smx_attention_options *options,
                                      const smx_op *op, const smx_params *params, const smx_tensor *q,
                                      const smx_tensor *k, const smx_tensor *v, const smx_tensor *o);
SMX_API smx_status smx_attention_rows_backward(smx_context *ctx, const smx_attention_options *options,
                                               const smx_op *op, const smx_params *params,
                                               const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                               const smx_tensor *d_o, const smx_tensor *dq,
                                               const smx_tensor *dk, const smx_tensor *dv);

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

/* How much weight each key gets: mass_j = sum a_i w_ij over the rows i of the query heads that
 * share a key head, [B, Hkv, Lk]; the rows add up as those of dv do. row_weights holds the a_i, [B,
 * Hq, Lq]; NULL means 1. lse is that of the forward call. For kinds with SMX_ATTENTION_BACKWARD.
 * What caches are pruned by: H2O (Zhang et al. 2023); SnapKV (Li et al. 2024) with a_i = 1 for the
 * last rows alone. */
SMX_API smx_status smx_attention_column_mass(smx_context *ctx, const smx_attention_options *options,
                                             const smx_tensor *q, const smx_tensor *k, const smx_tensor *lse,
                                             const smx_tensor *row_weights, const smx_tensor *mass);

/* Which keys to keep: for every row of mass [B, H, Lk], of smx_attention_column_mass or any other
 * scores, the K keys with the largest mass, of equals the first ones. keys [B, H, K] i32 receives
 * their indices, ascending, then -1: rows of a block_table over pages of one key. With one head in
 * keys all heads have one list, by the sum of their masses. kept [B, the heads of keys] i32, or
 * NULL: how many keys each list has, the smaller of its budget and the keys there are. */
typedef enum smx_attention_pool {
  SMX_ATTENTION_POOL_MEAN = 0, /* with mass 0 beyond both ends */
  SMX_ATTENTION_POOL_MAX = 1
} smx_attention_pool;

typedef struct smx_attention_select_options {
  size_t size; /* sizeof(smx_attention_select_options); other fields zero mean defaults */
  /* so many of the first and of the last keys are in every list, and count; first + last <= K */
  int64_t first, last;
  /* the other keys are judged by the masses of this many neighbours, without the first and last: an
   * odd number; 0 = 1, the key itself */
  int64_t kernel;
  smx_attention_pool pool;
  const smx_tensor *lengths; /* [B] i32 or i64: how many keys of each sequence there are; NULL = Lk */
  /* [B, the heads of keys] i32 or i64, or what broadcasts to it, first + last .. K: of each list;
   * NULL = K */
  const smx_tensor *budgets;
  /* Several kernels instead of one, up to 64: each in turn chooses its share of the other keys, the
   * best by neighbours that are not chosen yet; the first ones choose one more where shares are
   * uneven. After ILRe: Intermediate Layer Retrieval (Liang et al. 2025), whose shares are not
   * confirmed. */
  const int64_t *kernels;
  size_t kernel_count;
} smx_attention_select_options;

/* options NULL means defaults. Sums are made in double, neighbours and heads in order; a NaN in one
 * counts as -inf. */
SMX_API smx_status smx_attention_select(smx_context *ctx, const smx_attention_select_options *options,
                                        const smx_tensor *mass, const smx_tensor *keys,
                                        const smx_tensor *kept);

/* Split keys: the contribution of each 1024 keys, for caches on several machines or in pieces.
 * states: [B, Hq, Lq, S, W], f32 (f64 for f64 arithmetic), the last axis contiguous; S = the number
 * of multiples of 1024 from key_start that lie below key_start + Lk,
 * and W = smx_attention_state_width(e). With key_start set for each piece and query_start given,
 * merging the states of all pieces in order gives the bits of one call over all keys. For kinds
 * with SMX_ATTENTION_STATES, whose weights depend neither on n (so not with the norm COUNT) nor on
 * the whole row. */
SMX_API int64_t smx_attention_state_width(int64_t e);
SMX_API smx_status smx_attention_states(smx_context *ctx, const smx_attention_options *options,
                                        const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                        const smx_tensor *states);
/* o and lse from count tensors of states, in order. Of the options only weights, param and sinks
 * are used. */
SMX_API smx_status smx_attention_merge(smx_context *ctx, const smx_attention_options *options, int32_t count,
                                       const smx_tensor *const *states, const smx_tensor *o,
                                       const smx_tensor *lse);

/* The stages of scores between <q, k> and weights (the modes of qk_matmul_output of ONNX's
 * Attention). */
typedef enum smx_attention_stage {
  SMX_ATTENTION_PRODUCTS = 0, /* scale <q, k>, of every pair */
  SMX_ATTENTION_CAPPED = 1,   /* the same after the cap */
  SMX_ATTENTION_SCORES = 2,   /* z: with bias and ALiBi; -inf where a key is hidden */
  SMX_ATTENTION_WEIGHTS = 3   /* w: what the values are multiplied by; 0 where a key is hidden */
} smx_attention_stage;

/* The matrix of one stage, scores [B, Hq, Lq, Lk], for inspection, for other layers, or as input of
 * other functions. Memory and time grow with Lq Lk. Not for packed sequences (offsets). Keys beyond
 * lengths are hidden in every stage. */
SMX_API smx_status smx_attention_scores(smx_context *ctx, const smx_attention_options *options,
                                        smx_attention_stage stage, const smx_tensor *q, const smx_tensor *k,
                                        const smx_tensor *scores);

/* o_i = sum_j w_ij v_j with weights of the caller's, w [B, Hq, Lq, Lk]: those of another layer
 * (UniAttn: Unifying Attention of Transformers, Xiong et al. 2025), or of smx_attention_scores. Of
 * the options only those that hide keys are used: causal, window, mask, lengths, block_table. */
SMX_API smx_status smx_attention_apply(smx_context *ctx, const smx_attention_options *options,
                                       const smx_tensor *w, const smx_tensor *v, const smx_tensor *o);

/* Parallax: Parameterized Local Linear Attention for Language Modeling (2026): softmax attention
 * whose values weigh more on one side of the mean. With a row r_i beside each query and y_ij =
 * <r_i, k_j>,
 *   o_i = sum_j w_ij (1 + y_i - y_ij) v_j,   y_i = sum_j w_ij y_ij.
 * r and dr are like q. As in smx_attention_rows, the scores of some rows lie in memory at a time,
 * 256 for the gradient, and options.weights and sinks are not possible. */
SMX_API smx_status smx_attention_parallax(smx_context *ctx, const smx_attention_options *options,
                                          const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                          const smx_tensor *r, const smx_tensor *o);
SMX_API smx_status smx_attention_parallax_backward(smx_context *ctx, const smx_attention_options *options,
                                                   const smx_tensor *q, const smx_tensor *k,
                                                   const smx_tensor *v, const smx_tensor *r,
                                                   const smx_tensor *d_o, const smx_tensor *dq,
                                                   const smx_tensor *dk, const smx_tensor *dv,
                                                   const smx_tensor *dr);

/* Local Linear Attention: An Optimal Interpolation of Linear and Softmax Attention For Test-Time
 * Regression (Zuo et al. 2025): o_i is the value at q_i of the affine map from keys to values that
 * fits best by squares weighed with w_ij; the linear part pays a ridge:
 *   b, W minimise sum_j w_ij |v_j - b - W (k_j - q_i)|^2 + ridge |W|^2,   o_i = b.
 * That is Parallax with r = -(sum w (k - m)(k - m)^T + ridge I)^-1 (q - m), m = sum w k. Here w
 * sums to 1; in a fit with e^z themselves the ridge is larger by the factor sum e^z. q and k should
 * have length 1. The larger the ridge, the nearer the result is to softmax; if ridge is 0, a row
 * whose keys do not span the space is softmax. The fit is made in double, on as many rows at a time
 * as have d x d matrices in 32 MiB; its work grows with Lq Lk d^2. */
SMX_API smx_status smx_attention_local_linear(smx_context *ctx, const smx_attention_options *options,
                                              double ridge, const smx_tensor *q, const smx_tensor *k,
                                              const smx_tensor *v, const smx_tensor *o);
SMX_API smx_status smx_attention_local_linear_backward(smx_context *ctx, const smx_attention_options *options,
                                                       double ridge, const smx_tensor *q, const smx_tensor *k,
                                                       const smx_tensor *v, const smx_tensor *d_o,
                                                       const smx_tensor *dq, const smx_tensor *dk,
                                                       const smx_tensor *dv);

/* Additive attention (Neural Machine Translation by Jointly Learning to Align and Translate,
 * Bahdanau, Cho, Bengio 2015): softmax of the scores z_ij = sum_c u_c tanh(q_ic + k_jc), then bias
 * and ALiBi as ever. u [B, Hq, d], or what broadcasts to it; its gradient du has this full shape.
 * Rows at a time as in smx_attention_rows; options.scale, softcap, weights and sinks are not
 * possible. */
SMX_API smx_status smx_attention_additive(smx_context *ctx, const smx_attention_options *options,
                                          const smx_tensor *u, const smx_tensor *q, const smx_tensor *k,
                                          const smx_tensor *v, const smx_tensor *o);
SMX_API smx_status smx_attention_additive_backward(smx_context *ctx, const smx_attention_options *options,
                                                   const smx_tensor *u, const smx_tensor *q,
                                                   const smx_tensor *k, const smx_tensor *v,
                                                   const smx_tensor *d_o, const smx_tensor *du,
                                                   const smx_tensor *dq, const smx_tensor *dk,
                                                   const smx_tensor *dv);

/* Attention in the max-plus semiring (Tropical Attention, 2025): o_i[x] = max_j (s_ij + v_j[x])
 * over the visible keys, with t = q_i - k_j and s_ij = -(max_a t_a - min_a t_a), Hilbert's
 * projective metric, or, unless symmetric, -sum_a (t_a - min t). winners [B, Hq, Lq, e] i32, which
 * the gradient needs, may be NULL: the key that won, of equals the first; -1 in an empty row and
 * where o is NaN. Of the options only what hides keys is used. */
SMX_API smx_status smx_attention_tropical(smx_context *ctx, const smx_attention_options *options,
                                          int32_t symmetric, const smx_tensor *q, const smx_tensor *k,
                                          const smx_tensor *v, const smx_tensor *o,
                                          const smx_tensor *winners);
/* The gradient goes to the winners, and from their scores to the largest and the smallest t (of
 * equals the first). Those that are NULL are not wanted. Sums in double: rows in order, query heads
 * in order. Not for a paged cache: SMX_ERR_NO_BACKWARD. */
SMX_API smx_status smx_attention_tropical_backward(smx_context *ctx, const smx_attention_options *options,
                                                   int32_t symmetric, const smx_tensor *q,
                                                   const smx_tensor *k, const smx_tensor *v,
                                                   const smx_tensor *winners, const smx_tensor *d_o,
                                                   const smx_tensor *dq, const smx_tensor *dk,
                                                   const smx_tensor *dv);

/* Rotary position embedding (RoFormer, Su et al. 2021) of q and k before attention: x [B, H, L, d],
 * y alike, any strides and float dtypes; d 2..512. Pairs t of columns a, b are rotated, y_a = x_a
 * cos w - x_b sin w, y_b = x_a sin w + x_b cos w, by w = scale position frequency_t; columns from
 * dims on stay. <q_i, k_j> then depends on the difference of their positions alone.
 *
 * The position of a row is start plus its index, or given by `positions`, if needed for each pair:
 * packed sequences, or any angle (base 1). For the two axes of an image call it twice: once for the
 * first d / 2 columns, once for the others.
 *
 * cumulative: positions are steps, summed up along L in double, row after row: Selective Rotary
 * Position Embedding (2025), whose temperature is frequencies. carry [B, H, dims / 2] f64, or NULL,
 * receives the sum so far; a later call that gets it as options.carry continues with the same bits.
 * Angles are doubles; from 2^31 on their pair is NaN. y may be x. */
typedef enum smx_rope_layout {
  SMX_ROPE_HALF = 0,       /* a = t, b = t + dims / 2: GPT-NeoX, Llama */
  SMX_ROPE_INTERLEAVED = 1 /* a = 2 t, b = 2 t + 1: GPT-J */
} smx_rope_layout;

typedef struct smx_rope_options {
  size_t size; /* sizeof(smx_rope_options); other fields zero mean defaults */
  smx_rope_layout layout;
  int64_t dims; /* columns that are rotated, even; 0 = d */
  double base,
      scale;     /* frequency_t = base^(-2 t / dims); 0 = 10000 and 1. scale 1 / s: position interpolation */
  int64_t start; /* position of the first row */
  int32_t cumulative;
  /* Optional tensors. Broadcast by NumPy's rules to the shape given here. */
  const smx_tensor *positions;   /* [B, H, L, dims / 2] floats, i32 or i64, instead of start */
  const smx_tensor *frequencies; /* [B, H, dims / 2] floats, instead of base */
  const smx_tensor *carry;       /* [B, H, dims / 2] floats: what cumulative positions start from; NULL = 0 */
  /* [B, H, L, dims / 2] floats: cos w and sin w themselves, both or neither, in place of the
   * options that make angles (base, scale, start, positions, frequencies, cumulative). They need
   * not be those of an angle. */
  const smx_tensor *cosines, *sines;
} smx_rope_options;

/* options NULL means defaults. */
SMX_API smx_status smx_rope(smx_context *ctx, const smx_rope_options *options, const smx_tensor *x,
                            const smx_tensor *y, const smx_tensor *carry);
/* dx, which may be dy: dy rotated back. With the x of the forward call also the gradients of
 * positions [B, H, L, dims / 2] and frequencies [B, H, dims / 2], floats, each of this full shape;
 * NULL: not wanted. The gradient of angles that q and k share is the sum of two calls. */
SMX_API smx_status smx_rope_backward(smx_context *ctx, const smx_rope_options *options, const smx_tensor *dy,
                                     const smx_tensor *x, const smx_tensor *dx, const smx_tensor *d_positions,
                                     const smx_tensor *d_frequencies);

#ifdef __cplusplus
}
#endif
#endif
