/* api/sample.c - smx_sample: checks the call and hands each row to the sampler of the instruction
 * set. */
#include "base/enter.h"
#include "sample.h"
#include "cpu/cpu.h"
#include <math.h>
#include <string.h>

typedef struct sampling {
  smx_context *ctx;
  smx_sample_options options;
  const smx_step *steps; /* after smx_sample_steps */
  void (*sampler)(sampler_row *row);
  size_t n, bytes;
  const char *logits;
  int64_t *index;
  void *log_p;
  int64_t rows, rows_a_task;
  smx_scratch scratch;
} sampling;

/* Scratch memory of a row: 8 (n + 1) bytes, three or four rows of n elements (the last for a masked
 * row), and what the sampler keeps besides. */
enum { ALIGNED = 64, ROWS_OF_SCRATCH = 4 };
static size_t place_bytes(size_t n, size_t bytes) { return smx_whole_lines((n + 1) * bytes); }
static size_t row_scratch(size_t n, size_t bytes) {
  size_t most;
  const size_t work = bytes == sizeof(double) ? SAMPLER_WORK_F64 : SAMPLER_WORK_F32;
  if (__builtin_mul_overflow(n, (size_t)64, &most) || most > PTRDIFF_MAX - 4096 - work) return 0;
  return place_bytes(n, sizeof(double)) + ROWS_OF_SCRATCH * place_bytes(n, bytes) + work;
}
size_t smx_sample_scratch(const smx_context *ctx, size_t n, int32_t is_f64) {
  const size_t one = row_scratch(n, is_f64 ? sizeof(double) : sizeof(float));
  size_t all;
  return __builtin_mul_overflow(one, (size_t)smx_context_threads(ctx), &all) || all > PTRDIFF_MAX ? 0 : all;
}

/* The row, or a copy of it in which masked elements are -inf. */
static const void *masked_row(const sampling *w, int64_t r, char *copy) {
  const smx_sample_options *o = &w->options;
  const char *x = w->logits + (size_t)r * o->row_stride * w->bytes;
  if (!o->masks) return x;
  const uint32_t *mask = o->masks + (size_t)r * o->mask_stride;
  memcpy(copy, x, w->n * w->bytes);
  for (size_t i = 0; i < w->n; i++) {
    if (mask[i / 32] >> (i % 32) & 1) continue;
    if (w->bytes == 4) ((float *)(void *)copy)[i] = -(float)INFINITY;
    else ((double *)(void *)copy)[i] = -(double)INFINITY;
  }
  return copy;
}

/* The draws of a row that has nothing to draw from. */
static void put_none(const sampling *w, const sampler_row *row) {
  for (size_t j = 0; j < row->draws; j++) {
    row->indices[j] = row->index;
    if (row->logs && w->bytes == 4) ((float *)row->logs)[j] = (float)row->log;
    if (row->logs && w->bytes == 8) ((double *)row->logs)[j] = row->log;
  }
}

static bool sample_row(const sampling *w, int64_t r, char *scratch, bool spread) {
  const smx_sample_options *o = &w->options;
  const size_t place = place_bytes(w->n, w->bytes), first = (size_t)r * o->draws;
  char *rows = scratch + place_bytes(w->n, sizeof(double));
  sampler_row row = {.n = w->n,
                     .steps = w->steps,
                     .step_count = o->step_count,
                     .draw = o->draw,
                     .draws = o->draws,
                     .spread = spread};
  row.room = scratch;
  for (size_t i = 0; i < 3; i++) row.scratch[i] = rows + i * place;
  row.work = rows + ROWS_OF_SCRATCH * place;
  row.x = w->n ? masked_row(w, r, rows + 3 * place) : NULL;
  row.seed = o->seeds ? o->seeds[r] : o->seed;
  row.stream = o->streams ? o->streams[r] : o->stream + (uint64_t)r;
  row.indices = w->index + first;
  row.logs = w->log_p ? (char *)w->log_p + first * w->bytes : NULL;
  if (o->processed) row.processed = (char *)o->processed + (size_t)r * w->n * w->bytes;
  w->sampler(&row);
  if (row.status != SMX_ROW_OK) put_none(w, &row);
  if (o->status) o->status[r] = row.status;
  return row.spread;
}

static void sample_rows(void *arg, int64_t task) {
  sampling *w = arg;
  int64_t r = task * w->rows_a_task, end = r + w->rows_a_task < w->rows ? r + w->rows_a_task : w->rows;
  const size_t bytes = row_scratch(w->n, w->bytes);
  char *given = w->options.scratch,
       *scratch = given ? given + (size_t)task * bytes : smx_scratch_take(&w->scratch);
  for (bool spread = false; r < end; r++) spread = sample_row(w, r, scratch, spread);
  if (!given) smx_scratch_give(&w->scratch, scratch);
}

/* ---- arguments ---- */

/* The caller's options, whose struct may be an older, shorter one; missing fields get their
 * defaults. */
static smx_status take_options(sampling *w, const smx_sample_options *o) {
  const size_t before = offsetof(smx_sample_options, draws), words = w->n / 32 + (w->n % 32 != 0);
  w->options = (smx_sample_options){.size = sizeof *o};
  if (o && o->size != sizeof *o && o->size != before)
    return smx_fail(SMX_ERR_STRUCT, "smx_sample: options.size is %zu, not %zu", o->size, sizeof *o);
  if (o) memcpy(&w->options, o, o->size);
  smx_sample_options *own = &w->options;
  if (!own->draws) own->draws = 1;
  if (!own->row_stride) own->row_stride = w->n;
  if (!own->mask_stride) own->mask_stride = words;
  if (own->row_stride < w->n)
    return smx_fail(SMX_ERR_SHAPE, "smx_sample: row_stride is %zu, less than n = %zu", own->row_stride, w->n);
  if (own->mask_stride < words)
    return smx_fail(SMX_ERR_SHAPE, "smx_sample: mask_stride is %zu, less than %zu", own->mask_stride, words);
  if (own->scratch && (uintptr_t)own->scratch % ALIGNED)
    return smx_fail(SMX_ERR_PARAM, "smx_sample: scratch is not aligned to %d bytes", ALIGNED);
  const size_t needed = smx_sample_scratch(w->ctx, w->n, w->bytes == 8);
  if (own->scratch && own->scratch_bytes < needed)
    return smx_fail(SMX_ERR_PARAM, "smx_sample: scratch_bytes is %zu, less than %zu", own->scratch_bytes,
                    needed);
  return SMX_OK;
}

static smx_status check_arguments(const sampling *w, size_t rows) {
  const smx_sample_options *o = &w->options;
  size_t total, drawn;
  if (__builtin_mul_overflow(rows, o->row_stride, &total) ||
      __builtin_mul_overflow(total, w->bytes, &total) || total > PTRDIFF_MAX || !row_scratch(w->n, w->bytes))
    return smx_fail(SMX_ERR_SHAPE, "smx_sample: rows * n = %zu * %zu overflows", rows, w->n);
  if (__builtin_mul_overflow(rows, o->draws, &drawn) || drawn > PTRDIFF_MAX / sizeof(int64_t))
    return smx_fail(SMX_ERR_SHAPE, "smx_sample: rows * draws = %zu * %zu overflows", rows, o->draws);
  if (o->step_count && !o->steps) return smx_fail(SMX_ERR_NULL, "smx_sample: steps is NULL");
  if ((rows && w->n && !w->logits) || (rows && !w->index))
    return smx_fail(SMX_ERR_NULL, "smx_sample: %s is NULL", w->index ? "logits" : "index");
  if ((int)o->draw < 0 || o->draw > SMX_DRAW_GREEDY)
    return smx_fail(SMX_ERR_PARAM, "smx_sample: draw is %d", (int)o->draw);
  const char *from = w->logits, *to = o->processed;
  const size_t written = rows * w->n * w->bytes;
  if (to && from && written && to < from + total && from < to + written &&
      !(to == from && o->row_stride == w->n))
    return smx_fail(SMX_ERR_ALIAS, "smx_sample: processed overlaps logits");
  return smx_steps_check(o->steps, o->step_count, w->n);
}

static smx_status sample(sampling *w, const smx_sample_options *options, size_t rows) {
  smx_status status = take_options(w, options);
  if (status == SMX_OK) status = check_arguments(w, rows);
  if (status != SMX_OK) return status;
  const smx_sample_options *o = &w->options;
  const bool need = smx_steps_need(o->steps, o->step_count);
  smx_step *steps = need ? smx_steps_prepare(w->ctx, o->steps, o->step_count) : NULL;
  if (need && !steps) return smx_fail(SMX_ERR_NOMEM, "smx_sample: no memory for %zu steps", o->step_count);
  w->steps = steps ? steps : o->steps;
  const int64_t threads = smx_context_threads(w->ctx);
  const int64_t tasks = threads == 1 ? 1 : o->scratch ? threads : 4 * threads;
  w->rows = (int64_t)rows;
  w->rows_a_task = tasks == 1 ? w->rows : w->rows / tasks + 1;
  const int64_t all = w->rows ? (w->rows - 1) / w->rows_a_task + 1 : 0;
  if (o->scratch) {
    smx_parallel(w->ctx, all, sample_rows, w);
  } else if (smx_scratch_open(&w->scratch, w->ctx, 0, row_scratch(w->n, w->bytes), all)) {
    smx_parallel(w->ctx, all, sample_rows, w);
    smx_scratch_close(&w->scratch);
  } else {
    status = smx_fail(SMX_ERR_NOMEM, "smx_sample: no memory for a few rows of %zu", w->n);
  }
  smx_free(w->ctx, steps);
  return status;
}

smx_status smx_sample_f32(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n,
                          const float *logits, int64_t *index, float *log_p) {
  SMX_ENTER(ctx);
  sampling w = {.ctx = ctx, .sampler = smx_isa_current()->f32.sampler, .n = n, .bytes = sizeof *logits};
  w.logits = (const char *)logits, w.index = index, w.log_p = log_p;
  return sample(&w, options, rows);
}
smx_status smx_sample_f64(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n,
                          const double *logits, int64_t *index, double *log_p) {
  SMX_ENTER(ctx);
  sampling w = {.ctx = ctx, .sampler = smx_isa_current()->f64.sampler, .n = n, .bytes = sizeof *logits};
  w.logits = (const char *)logits, w.index = index, w.log_p = log_p;
  return sample(&w, options, rows);
}
