/* softmax/sampling.h - draws from logits, step by step, and other functions of decoding.
 *
 *   smx_sample_f32           a chain of steps (smx_step_at) and a draw, for each row
 *   smx_beam_step_f32        one step of beam search
 *   smx_mix_embeddings_f32   mixtures of embeddings
 *   smx_cad_plan             the next sizes of a diffusion language model
 *
 * What holds for every function is at the top of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_SAMPLING_H
#define SOFTMAX_SAMPLING_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sampling from logits -------------------------------------------------------------------- */

/* What a step does to a row of scores z; p is the softmax of what is left when its turn comes.
 * Removed elements get probability 0. The best element always stays; only bans, masks and an empty
 * list of allowed tokens can remove it. Steps that keep what is good enough (MIN_P, EPSILON, ETA,
 * TOP_N_SIGMA) keep its equals with it. Those that count (TOP_K, TOP_P, TYPICAL, TAIL_FREE, TOP_H,
 * MIROSTAT), and SURPRISE where nothing is probable enough, decide ties by value descending, then
 * index ascending, as llama.cpp's candidates are sorted. Tokens are indices of the row; in a list
 * of those seen so far, a token may stand as often as it was seen. The facts about each kind, its
 * formula and numbers among them, stand in a table: smx_step_at, or `softmax help sample`. */
typedef enum smx_step_kind {
  SMX_STEP_TEMPERATURE = 0,
  SMX_STEP_TOP_K = 1,
  SMX_STEP_TOP_P = 2,
  SMX_STEP_MIN_P = 3,
  SMX_STEP_TYPICAL = 4,
  SMX_STEP_EPSILON = 5,
  SMX_STEP_ETA = 6,
  SMX_STEP_TOP_N_SIGMA = 7,
  SMX_STEP_SURPRISE = 8,
  SMX_STEP_XTC = 9,
  SMX_STEP_REPETITION = 10,
  SMX_STEP_FREQUENCY = 11,
  SMX_STEP_BIAS = 12,
  SMX_STEP_BAN = 13,
  SMX_STEP_ALLOW = 14,
  SMX_STEP_DYNAMIC_TEMPERATURE = 15,
  SMX_STEP_QUADRATIC = 16,
  SMX_STEP_TAIL_FREE = 17,
  SMX_STEP_TOP_H = 18,
  SMX_STEP_MIROSTAT = 19,
  SMX_STEP_NO_REPEAT = 20,
  SMX_STEP_DRY = 21,
  SMX_STEP_KINDS /* how many this header knows; a newer library has more: smx_step_count() */
} smx_step_kind;

enum {
  SMX_STEP_HAS_TOKENS = 1, /* takes a list of tokens */
  SMX_STEP_HAS_VALUES = 2, /* and a value for each, which may not be NULL */
  SMX_STEP_HAS_TEXT = 4    /* they are the text so far, oldest first; -1 is a break, which no run contains */
};

/* All there is to know about a kind of step. Read-only; new fields are added at the end. */
typedef struct smx_step_info {
  int32_t id;                                          /* smx_step_kind */
  uint32_t flags;                                      /* SMX_STEP_HAS_* */
  const char *name, *title, *formula, *about, *source; /* as in smx_op */
  int32_t param_count;
  const smx_param *params; /* the numbers a, b, c of smx_step */
} smx_step_info;

SMX_API size_t smx_step_count(void);
/* NULL when there is none of that number or name. */
SMX_API const smx_step_info *smx_step_at(size_t i);
SMX_API const smx_step_info *smx_step_find(const char *name);

typedef struct smx_step {
  smx_step_kind kind;
  double a, b, c; /* out of their range: SMX_ERR_PARAM, with the range in smx_last_error() */
  const int64_t *tokens;
  const double *values;
  size_t token_count;
} smx_step;

typedef enum smx_draw {
  SMX_DRAW_GUMBEL = 0, /* argmax of z + Gumbel noise, a variate for each element */
  SMX_DRAW_CDF = 1,    /* one uniform variate and the inverse of the distribution function */
  SMX_DRAW_GREEDY = 2  /* the best */
} smx_draw;

/* The result of a row. */
typedef enum smx_row_status {
  SMX_ROW_OK = 0,
  SMX_ROW_EMPTY = 1, /* nothing left: no elements, all of them -inf, or all banned */
  SMX_ROW_NAN = 2,   /* a NaN among the scores, or made by a step */
  SMX_ROW_INF = 3    /* a score of +inf, or a step made one */
} smx_row_status;

typedef struct smx_sample_options {
  size_t size; /* sizeof(smx_sample_options); other fields zero mean defaults */
  const smx_step *steps;
  size_t step_count;
  smx_draw draw;
  uint64_t seed, stream;
  const uint64_t *streams; /* one a row; NULL = stream, stream + 1, ... */
  const uint64_t *seeds;   /* one a row; NULL = seed */
  smx_row_status *status;  /* one a row is written here; or NULL */
  /* New at the end; a struct without them, with its own size, is taken too. */
  /* From each row, 0 = 1: index and log_p hold so many a row. Draw j is what a call with
   * seed + j 0x9e3779b97f4a7c15 draws. */
  size_t draws;
  size_t row_stride; /* elements of logits from row to row, at least n; 0 = n */
  /* A bit for each token, from the lowest of the first word on, as xgrammar and llguidance have
   * them: 0 = removed before the first step. One mask a row; NULL = none. */
  const uint32_t *masks;
  size_t mask_stride; /* words from mask to mask, at least (n + 31) / 32; 0 = that many */
  /* rows x n of the type of logits: the scores that are drawn from, -inf where one is removed; NaN
   * in a row with a NaN or +inf. May be logits itself where rows are n apart. NULL = not wanted. */
  void *processed;
  /* Aligned to 64 bytes, in place of memory from the context; NULL = none. Penalties, NO_REPEAT and
   * DRY with tokens still take some. */
  void *scratch;
  size_t scratch_bytes; /* of scratch: at least smx_sample_scratch() */
} smx_sample_options;

/* The bytes of scratch that a call wants: for each thread of the context and number of a row,
 * `is_f64` for f64. 0 where that overflows. */
SMX_API size_t smx_sample_scratch(const smx_context *ctx, size_t n, int32_t is_f64);

/* Takes each of `rows` rows of n logits, one after another, through the steps in their order and
 * draws an element. index[r]: what was drawn, or -1 for a row with a NaN or +inf or with nothing
 * left (options.status says which). log_p[r]: the logarithm of its probability among what was left,
 * NaN if nothing was drawn; log_p may be NULL. A draw depends on the row, the steps, the seed and
 * the row's stream, on nothing else: not on the batch, the threads or the machine. Errors:
 * SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_SHAPE, SMX_ERR_PARAM (a step's number out of its range),
 * SMX_ERR_NOMEM.
 *
 *     float logits[4] = {1, 3, 2, -1}, log_p[1];
 *     int64_t index[1], banned[1] = {1};
 *     smx_step steps[2];
 *     memset(steps, 0, sizeof steps);
 *     steps[0].kind = SMX_STEP_BAN, steps[0].tokens = banned, steps[0].token_count = 1;
 *     steps[1].kind = SMX_STEP_TOP_K, steps[1].a = 2;
 *     smx_sample_options options;
 *     memset(&options, 0, sizeof options);
 *     options.size = sizeof options, options.steps = steps, options.step_count = 2;
 *     options.draw = SMX_DRAW_GREEDY;
 *     smx_sample_f32(NULL, &options, 1, 4, logits, index, log_p);  // index[0] = 2
 *     float p = expf(log_p[0]);  // p = 0.7311
 */
SMX_API smx_status smx_sample_f32(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n,
                                  const float *logits, int64_t *index, float *log_p);
SMX_API smx_status smx_sample_f64(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n,
                                  const double *logits, int64_t *index, double *log_p);

/* ---- Decoding -------------------------------------------------------------------------------- */

/* Functions of decoding that are not operators (the family sample has speculative_verify,
 * soft_thinking_token and others). No function here keeps state, all may be called from many
 * threads; arrays that are written may not overlap others. */

/* A hypothesis of a beam search: the beam that it continues and the token that it adds; -1 = there
 * is none. */
typedef struct smx_beam {
  int64_t parent, token;
  double score; /* the sum of log-probabilities; of a finished one, normalised by its length */
} smx_beam;

typedef struct smx_beam_options {
  size_t size; /* sizeof(smx_beam_options) */
  int64_t eos; /* the token that ends a hypothesis; -1 = none */
  /* the divisor of the score of a hypothesis that ends here, 1 = none: its length^alpha, or
   * ((5 + length) / 6)^alpha as in Google's Neural Machine Translation System (Wu et al. 2016) */
  double penalty;
} smx_beam_options;

/* One step of beam search over `beams` beams. score[b]: the sum so far, -inf = not active (in the
 * first step all but one are). log_p[b * n + v]: log-probability of token v after beam b. Of the
 * candidates score[b] + log_p[b][v], formed in double, the best 2 beams are walked through, best
 * first (ties: the lower beam; within a beam the larger log_p, then the lower v): an eos among the
 * first `beams` of them is finished, any other token is a next beam, until there are `beams`. next,
 * finished: `beams` entries each; those without a hypothesis have token -1 and score -inf. A search
 * is over when `beams` hypotheses are finished and the best running score, divided by the penalty,
 * is not above the worst of them. A beam whose row has a NaN or +inf has no candidates; one whose
 * score is NaN or +inf is SMX_ERR_PARAM. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_SHAPE,
 * SMX_ERR_PARAM, SMX_ERR_NOMEM. */
SMX_API smx_status smx_beam_step_f32(smx_context *ctx, const smx_beam_options *options, size_t beams,
                                     size_t n, const double *score, const float *log_p, smx_beam *next,
                                     smx_beam *finished);

/* Mixtures of embeddings: out[r] = sum_j weight[r][j] table[index[r][j]], j = 0 .. k - 1, in
 * double, by blocks of 256 from left to right, rounded once: what soft_thinking_token and
 * multi_token_sample hand to a model. index, weight: rows x k; an index of -1 counts nothing;
 * weight NULL: 1 / k each. table: n rows of `width` elements, f16, bf16 or f32; out: rows x width.
 * Any other index is SMX_ERR_TARGET, naming its row, and nothing is written. The gradient of the
 * weights is dweight[r][j] = <dout[r], table[index[r][j]]>, 0 at an index of -1. Errors:
 * SMX_ERR_NULL, SMX_ERR_SHAPE, SMX_ERR_DTYPE, SMX_ERR_TARGET, SMX_ERR_NOMEM. */
SMX_API smx_status smx_mix_embeddings_f32(smx_context *ctx, size_t rows, size_t k, const int64_t *index,
                                          const float *weight, size_t n, size_t width, smx_dtype dtype,
                                          const void *table, float *out);
SMX_API smx_status smx_mix_embeddings_backward_f32(smx_context *ctx, size_t rows, size_t k,
                                                   const int64_t *index, size_t n, size_t width,
                                                   smx_dtype dtype, const void *table, const float *dout,
                                                   float *dweight);

/* The next sizes of a diffusion language model, from how confident its last steps were: CadLLM
 * (2025), after its published code. Sizes of 0 mean the defaults in brackets. */
typedef struct smx_cad_options {
  size_t size;                              /* sizeof(smx_cad_options) */
  int64_t block_min, block_max, block_base; /* [8, 64, 24] positions decoded together */
  int64_t steps_base, steps_max;            /* [24, 90] steps for a block of block_base */
  int64_t vocabulary_min, vocabulary_base,
      vocabulary_max; /* [35, 100, 1000] k of subset_softmax_confidence */
} smx_cad_options;

typedef struct smx_cad {
  int64_t block, steps, vocabulary;
} smx_cad;

/* confidence: of the steps so far, in [0, 1], the latest last; progress: the part that is done,
 * repetition: the part of tokens that repeat, both in [0, 1]; remaining: positions left. With c the
 * mean of the last two confidences (0 without any):
 *   block = min(block_min + floor((block_max - block_min) c), block_max, remaining)
 *   steps = max(1, floor(s block / block_base)),
 *   s = min(steps_base + floor((steps_max - steps_base) (1 - c)), steps_max)
 *   vocabulary = 0.8 vocabulary_max, 0.7 or 0.9 vocabulary_base for progress below 0.2, below 0.7,
 *   later; times 1.5, 1.2, 1, 0.8 for a mean of the last five below 0.3, below 0.6, up to 0.8,
 *   above; times 1.3 if confidence fell by more than 0.1 in two steps; times 1 + 2 repetition if
 *   that is above 0.5; truncated, and no less than vocabulary_min, no more than vocabulary_max.
 * options may be NULL. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_PARAM. */
SMX_API smx_status smx_cad_plan(const smx_cad_options *options, size_t count, const double *confidence,
                                double progress, double repetition, int64_t remaining, smx_cad *out);

#ifdef __cplusplus
}
#endif
#endif
