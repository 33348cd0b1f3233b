/* sample/driver_decode.c - functions of decoding that are composed of operators: a step of beam
 * search, mixtures of embeddings, the plan of a diffusion decoder. */
#include "base/enter.h"
#include "base/base.h"
#include "cpu/cpu.h"
#include "driver/operator.h"
#include <math.h>

/* ---- beam search ---- */

static smx_status check_beam(const smx_beam_options *o, size_t beams, size_t n, const double *score,
                             const float *log_p) {
  size_t cells;
  if (!o || (beams && !score) || (beams && n && !log_p))
    return smx_fail(SMX_ERR_NULL, "smx_beam_step: %s is NULL", !o ? "options" : score ? "log_p" : "score");
  if (o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "smx_beam_step: options.size is %zu, not %zu", o->size, sizeof *o);
  if (__builtin_mul_overflow(beams, n, &cells) || cells > PTRDIFF_MAX / sizeof *log_p || beams > 65536)
    return smx_fail(SMX_ERR_SHAPE, "smx_beam_step: beams * n = %zu * %zu, or more than 65536 beams", beams,
                    n);
  if (!(o->penalty > 0 && o->penalty < INFINITY))
    return smx_fail(SMX_ERR_PARAM, "smx_beam_step: options.penalty is %g", o->penalty);
  if (o->eos < -1 || (o->eos >= 0 && (uint64_t)o->eos >= n))
    return smx_fail(SMX_ERR_PARAM, "smx_beam_step: options.eos is %lld, not -1..%lld", (long long)o->eos,
                    (long long)n - 1);
  for (size_t b = 0; b < beams; b++)
    if (!(score[b] < INFINITY))
      return smx_fail(SMX_ERR_PARAM, "smx_beam_step: score[%zu] is %g", b, score[b]);
  return SMX_OK;
}

/* The k best tokens of every beam, best first. */
static smx_status best_tokens(smx_context *ctx, size_t beams, size_t n, size_t k, const float *log_p,
                              float *value, int64_t *index) {
  const smx_op *op = smx_op_find("softmax_topk");
  smx_params params;
  int64_t all[2] = {(int64_t)beams, (int64_t)n}, few[2] = {(int64_t)beams, (int64_t)k};
  const smx_tensor x = {.data = (void *)(uintptr_t)log_p, .ndim = 2, .dtype = SMX_F32, .shape = all};
  const smx_tensor v = {.data = value, .ndim = 2, .dtype = SMX_F32, .shape = few},
                   i = {.data = index, .ndim = 2, .dtype = SMX_I64, .shape = few};
  const smx_tensor *in[] = {&x}, *out[] = {&v, &i};
  smx_params_init(op, &params);
  smx_status status = smx_params_set(op, &params, "k", (double)k);
  return status == SMX_OK ? operator_forward(op, ctx, &params, 1, in, 2, out) : status;
}

/* The candidate at the head of a beam's list; token -1 at its end. */
typedef struct heads {
  const double *score;
  const float *log_p;
  const int64_t *index;
  size_t *at; /* how far each list has been walked */
  size_t beams, n, k;
} heads;

static smx_beam head_of(const heads *h, size_t b) {
  const int64_t token = h->at[b] < h->k ? h->index[b * h->k + h->at[b]] : -1;
  if (token < 0 || !(h->score[b] > -INFINITY)) return (smx_beam){-1, -1, -INFINITY};
  return (smx_beam){(int64_t)b, token, h->score[b] + (double)h->log_p[b * h->n + (size_t)token]};
}
static smx_beam next_candidate(const heads *h) {
  smx_beam best = {-1, -1, -INFINITY};
  for (size_t b = 0; b < h->beams; b++) {
    const smx_beam c = head_of(h, b);
    if (c.token >= 0 && (best.token < 0 || c.score > best.score)) best = c;
  }
  if (best.token >= 0) h->at[best.parent]++;
  return best;
}

static void walk_candidates(const smx_beam_options *o, const heads *h, smx_beam *next, smx_beam *finished) {
  size_t kept = 0, ended = 0;
  for (size_t b = 0; b < h->beams; b++) next[b] = finished[b] = (smx_beam){-1, -1, -INFINITY};
  for (size_t rank = 0; rank < 2 * h->beams && kept < h->beams; rank++) {
    smx_beam c = next_candidate(h);
    if (c.token < 0) break;
    if (c.token != o->eos) next[kept++] = c;
    else if (rank < h->beams) {
      c.score /= o->penalty;
      finished[ended++] = c;
    }
  }
}

smx_status smx_beam_step_f32(smx_context *ctx, const smx_beam_options *options, size_t beams, size_t n,
                             const double *score, const float *log_p, smx_beam *next, smx_beam *finished) {
  SMX_ENTER(ctx);
  smx_status status = check_beam(options, beams, n, score, log_p);
  if (status != SMX_OK) return status;
  if (beams && (!next || !finished))
    return smx_fail(SMX_ERR_NULL, "smx_beam_step: %s is NULL", next ? "finished" : "next");
  const size_t k = 2 * beams < n ? 2 * beams : n;
  float *value = smx_alloc(ctx, beams * k * sizeof *value + 1);
  int64_t *index = smx_alloc(ctx, beams * k * sizeof *index + 1);
  size_t *at = smx_alloc(ctx, beams * sizeof *at + 1);
  if (!value || !index || !at)
    status = smx_fail(SMX_ERR_NOMEM, "smx_beam_step: no memory for %zu candidates", beams * k);
  else if (k) status = best_tokens(ctx, beams, n, k, log_p, value, index);
  for (size_t i = 0; status == SMX_ERR_EMPTY && i < beams * k; i++) index[i] = -1;
  if (status == SMX_OK) {
    const heads h = {score, log_p, index, at, beams, n, k};
    for (size_t b = 0; b < beams; b++) at[b] = 0;
    walk_candidates(options, &h, next, finished);
  }
  smx_free(ctx, at);
  smx_free(ctx, index);
  smx_free(ctx, value);
  return status;
}

/* ---- mixtures of embeddings ---- */

enum { CHUNK = 256 }; /* columns, and the terms of a block */

typedef struct mixing {
  size_t k, n, width;
  const int64_t *index;
  const float *weight;
  const char *table;
  row_store store;
  int64_t bytes;
  const float *dout;
  float *out; /* or the gradient of the weights */
} mixing;

static smx_status check_mix(const char *name, size_t rows, const mixing *w, smx_dtype dtype) {
  size_t a, b, c;
  if (__builtin_mul_overflow(rows, w->k, &a) || __builtin_mul_overflow(rows, w->width, &b) ||
      __builtin_mul_overflow(w->n, w->width, &c) || a > PTRDIFF_MAX / 8 || b > PTRDIFF_MAX / 8 ||
      c > PTRDIFF_MAX / 8)
    return smx_fail(SMX_ERR_SHAPE, "%s: rows %zu, k %zu, n %zu, width %zu overflow", name, rows, w->k, w->n,
                    w->width);
  if ((a && !w->index) || (c && !w->table))
    return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", name, w->index ? "table" : "index");
  if (!smx_is_float(dtype) || dtype.bits == 64)
    return smx_fail(SMX_ERR_DTYPE, "%s: table: dtype is %s, not f16, bf16 or f32", name,
                    smx_dtype_name(dtype));
  for (size_t i = 0; i < a; i++)
    if (w->index[i] < -1 || (w->index[i] >= 0 && (uint64_t)w->index[i] >= w->n))
      return smx_fail(SMX_ERR_TARGET, "%s: index: row %zu: %lld is not -1..%lld", name, i / w->k,
                      (long long)w->index[i], (long long)w->n - 1);
  return SMX_OK;
}

static const float *table_part(const mixing *w, int64_t row, size_t first, size_t count, float *scratch) {
  const char *at = w->table + ((size_t)row * w->width + first) * (size_t)w->bytes;
  smx_isa_current()->f32.io->load(w->store, at, 1, count, scratch);
  return scratch;
}

/* `count` columns of one mixture. */
static void mix_chunk(const mixing *w, size_t r, size_t first, size_t count) {
  double total[CHUNK] = {0}, block[CHUNK] = {0};
  float part[CHUNK];
  for (size_t j = 0; j < w->k; j++) {
    const int64_t row = w->index[r * w->k + j];
    const double weight = w->weight ? (double)w->weight[r * w->k + j] : 1 / (double)w->k;
    const float *e = row < 0 ? NULL : table_part(w, row, first, count, part);
    for (size_t i = 0; e && i < count; i++) block[i] += weight * (double)e[i];
    if (j % CHUNK != CHUNK - 1 && j + 1 < w->k) continue;
    for (size_t i = 0; i < count; i++) total[i] += block[i], block[i] = 0;
  }
  for (size_t i = 0; i < count; i++)
    w->out[r * w->width + first + i] = total[i] != total[i] ? __builtin_nanf("") : (float)total[i];
}
static void mix_row(void *arg, int64_t r) {
  const mixing *w = arg;
  for (size_t i = 0; i < w->width; i += CHUNK)
    mix_chunk(w, (size_t)r, i, w->width - i < CHUNK ? w->width - i : CHUNK);
}

static void mix_gradient_row(void *arg, int64_t r) {
  const mixing *w = arg;
  float part[CHUNK];
  for (size_t j = 0; j < w->k; j++) {
    const int64_t row = w->index[(size_t)r * w->k + j];
    double sum = 0;
    for (size_t first = 0; row >= 0 && first < w->width; first += CHUNK) {
      const size_t count = w->width - first < CHUNK ? w->width - first : CHUNK;
      const float *e = table_part(w, row, first, count, part), *dout = w->dout + (size_t)r * w->width + first;
      double block = 0;
      for (size_t i = 0; i < count; i++) block += (double)dout[i] * (double)e[i];
      sum += block;
    }
    w->out[(size_t)r * w->k + j] = sum != sum ? __builtin_nanf("") : (float)sum;
  }
}

smx_status smx_mix_embeddings_f32(smx_context *ctx, size_t rows, size_t k, const int64_t *index,
                                  const float *weight, size_t n, size_t width, smx_dtype dtype,
                                  const void *table, float *out) {
  SMX_ENTER(ctx);
  mixing w = {.k = k, .n = n, .width = width, .index = index, .weight = weight, .table = table, .out = out};
  smx_status status = check_mix("smx_mix_embeddings", rows, &w, dtype);
  if (status != SMX_OK) return status;
  if (rows && width && !out) return smx_fail(SMX_ERR_NULL, "smx_mix_embeddings: out is NULL");
  w.store = row_store_of(dtype), w.bytes = smx_dtype_bytes(dtype);
  smx_parallel(ctx, width ? (int64_t)rows : 0, mix_row, &w);
  return SMX_OK;
}

smx_status smx_mix_embeddings_backward_f32(smx_context *ctx, size_t rows, size_t k, const int64_t *index,
                                           size_t n, size_t width, smx_dtype dtype, const void *table,
                                           const float *dout, float *dweight) {
  SMX_ENTER(ctx);
  mixing w = {.k = k, .n = n, .width = width, .index = index, .table = table, .dout = dout, .out = dweight};
  smx_status status = check_mix("smx_mix_embeddings_backward", rows, &w, dtype);
  if (status != SMX_OK) return status;
  if ((rows && width && !dout) || (rows && k && !dweight))
    return smx_fail(SMX_ERR_NULL, "smx_mix_embeddings_backward: %s is NULL", dout ? "dweight" : "dout");
  w.store = row_store_of(dtype), w.bytes = smx_dtype_bytes(dtype);
  smx_parallel(ctx, k ? (int64_t)rows : 0, mix_gradient_row, &w);
  return SMX_OK;
}

/* ---- CadLLM ---- */

static smx_cad_options cad_defaults(const smx_cad_options *given) {
  static const int64_t defaults[] = {8, 64, 24, 24, 90, 35, 100, 1000};
  smx_cad_options o = {.size = sizeof o};
  if (given) o = *given;
  int64_t *const field[] = {&o.block_min, &o.block_max,      &o.block_base,      &o.steps_base,
                            &o.steps_max, &o.vocabulary_min, &o.vocabulary_base, &o.vocabulary_max};
  for (size_t i = 0; i < sizeof field / sizeof *field; i++)
    if (*field[i] == 0) *field[i] = defaults[i];
  return o;
}

static smx_status check_cad(const smx_cad_options *o, size_t count, const double *confidence, double progress,
                            double repetition, int64_t remaining) {
  const int64_t most = (int64_t)1 << 31;
  if (count && !confidence) return smx_fail(SMX_ERR_NULL, "smx_cad_plan: confidence is NULL");
  if (o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "smx_cad_plan: options.size is %zu, not %zu", o->size, sizeof *o);
  if (o->block_min < 1 || o->block_max < o->block_min || o->block_base < 1 || o->block_max > most ||
      o->block_base > most)
    return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: block_min, _max, _base are %lld, %lld, %lld",
                    (long long)o->block_min, (long long)o->block_max, (long long)o->block_base);
  if (o->steps_base < 1 || o->steps_max < o->steps_base || o->steps_max > most)
    return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: steps_base, _max are %lld, %lld", (long long)o->steps_base,
                    (long long)o->steps_max);
  if (o->vocabulary_min < 1 || o->vocabulary_base < 1 || o->vocabulary_max < o->vocabulary_min ||
      o->vocabulary_max > most || o->vocabulary_base > most)
    return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: vocabulary_min, _base, _max are %lld, %lld, %lld",
                    (long long)o->vocabulary_min, (long long)o->vocabulary_base,
                    (long long)o->vocabulary_max);
  if (!(progress >= 0 && progress <= 1))
    return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: progress is %g, not 0 to 1", progress);
  if (!(repetition >= 0 && repetition <= 1))
    return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: repetition is %g, not 0 to 1", repetition);
  if (remaining < 0) return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: remaining is %lld", (long long)remaining);
  for (size_t i = 0; i < count; i++)
    if (!(confidence[i] >= 0 && confidence[i] <= 1))
      return smx_fail(SMX_ERR_PARAM, "smx_cad_plan: confidence[%zu] is %g, not 0 to 1", i, confidence[i]);
  return SMX_OK;
}

static double mean_of_last(size_t count, const double *v, size_t last) {
  double sum = 0;
  if (last > count) last = count;
  for (size_t i = count - last; i < count; i++) sum += v[i];
  return last ? sum / (double)last : 0;
}

static int64_t cad_vocabulary(const smx_cad_options *o, size_t count, const double *confidence,
                              double progress, double repetition) {
  const double base = (double)o->vocabulary_base, mean = mean_of_last(count, confidence, 5);
  double size = progress < 0.2 ? 0.8 * (double)o->vocabulary_max : progress < 0.7 ? 0.7 * base : 0.9 * base;
  if (count) size *= mean < 0.3 ? 1.5 : mean < 0.6 ? 1.2 : mean > 0.8 ? 0.8 : 1;
  if (count >= 3 && confidence[count - 1] - confidence[count - 3] < -0.1) size *= 1.3;
  if (repetition > 0.5) size *= 1 + 2 * repetition;
  const int64_t whole = (int64_t)size;
  return whole < o->vocabulary_min   ? o->vocabulary_min
         : whole > o->vocabulary_max ? o->vocabulary_max
                                     : whole;
}

smx_status smx_cad_plan(const smx_cad_options *options, size_t count, const double *confidence,
                        double progress, double repetition, int64_t remaining, smx_cad *out) {
  SMX_ENTER(NULL);
  const smx_cad_options o = cad_defaults(options);
  if (!out) return smx_fail(SMX_ERR_NULL, "smx_cad_plan: out is NULL");
  smx_status status = check_cad(&o, count, confidence, progress, repetition, remaining);
  if (status != SMX_OK) return status;
  const double c = mean_of_last(count, confidence, 2);
  const int64_t block = o.block_min + (int64_t)((double)(o.block_max - o.block_min) * c);
  const int64_t steps = o.steps_base + (int64_t)((double)(o.steps_max - o.steps_base) * (1 - c));
  out->block = block < remaining ? block : remaining;
  out->steps = steps * out->block / o.block_base;
  if (out->steps < 1) out->steps = 1;
  out->vocabulary = cad_vocabulary(&o, count, confidence, progress, repetition);
  return SMX_OK;
}
