/* api/sample.c - smx_sample: takes the rows to the chain of the instruction set. */
#include "sample.h"
#include "cpu/cpu.h"
#include "cpu/fpenv.h"
#include <stdatomic.h>

typedef struct sampling {
  smx_context *ctx;
  const smx_sample_options *options;
  const smx_step *steps; /* as prepared */
  void (*chain)(chain_row *row);
  size_t n, bytes;
  const char *logits;
  int64_t *index;
  void *log_p;
  int64_t rows, rows_a_task;
  _Atomic bool no_memory;
} sampling;

/* For each element of a row; and once, so that the room is not too small for a row of one. */
static size_t scratch_bytes(const sampling *w) { return 3 * w->bytes + sizeof(double); }
enum { SCRATCH_MORE = sizeof(double) };

static bool sample_row(const sampling *w, int64_t r, char *scratch, bool spread) {
  const smx_sample_options *o = w->options;
  chain_row row = {.n = w->n,
                   .x = w->n ? w->logits + (size_t)r * w->n * w->bytes : NULL,
                   .steps = w->steps,
                   .step_count = o->step_count,
                   .draw = o->draw,
                   .spread = spread};
  row.room = scratch;
  for (size_t i = 0; i < 3; i++) row.scratch[i] = scratch + (w->n + 1) * sizeof(double) + i * w->n * w->bytes;
  row.seed = o->seeds ? o->seeds[r] : o->seed;
  row.stream = o->streams ? o->streams[r] : o->stream + (uint64_t)r;
  w->chain(&row);
  w->index[r] = row.index;
  if (o->status) o->status[r] = row.status;
  if (w->log_p && w->bytes == 4) ((float *)w->log_p)[r] = (float)row.log;
  if (w->log_p && w->bytes == 8) ((double *)w->log_p)[r] = row.log;
  return row.spread;
}

static void sample_rows(void *arg, int64_t task) {
  sampling *w = arg;
  int64_t r = task * w->rows_a_task, end = r + w->rows_a_task < w->rows ? r + w->rows_a_task : w->rows;
  char *scratch = smx_alloc(w->ctx, w->n * scratch_bytes(w) + SCRATCH_MORE);
  if (!scratch) {
    atomic_store(&w->no_memory, true);
    return;
  }
  smx_fpenv env = smx_fpenv_enter();
  for (bool spread = false; r < end; r++) spread = sample_row(w, r, scratch, spread);
  smx_fpenv_leave(env);
  smx_free(w->ctx, scratch);
}

static smx_status sample(sampling *w, size_t rows) {
  static const smx_sample_options defaults = {.size = sizeof defaults};
  const smx_sample_options *o = w->options ? w->options : &defaults;
  size_t total;
  if (o->size != sizeof *o) return smx_fail(SMX_ERR_STRUCT, "smx_sample: options.size is %zu, not %zu", o->size, sizeof *o);
  if (__builtin_mul_overflow(rows, w->n, &total) || __builtin_mul_overflow(total, scratch_bytes(w), &total) || total > PTRDIFF_MAX)
    return smx_fail(SMX_ERR_SHAPE, "smx_sample: rows * n = %zu * %zu overflows", rows, w->n);
  if (o->step_count && !o->steps) return smx_fail(SMX_ERR_NULL, "smx_sample: steps is NULL");
  if ((total && !w->logits) || (rows && !w->index)) return smx_fail(SMX_ERR_NULL, "smx_sample: %s is NULL", w->index ? "logits" : "index");
  if ((int)o->draw < 0 || o->draw > SMX_DRAW_GREEDY) return smx_fail(SMX_ERR_PARAM, "smx_sample: draw is %d", (int)o->draw);
  smx_status status = smx_steps_check(o->steps, o->step_count, w->n);
  if (status != SMX_OK) return status;
  smx_step *steps = smx_steps_prepare(w->ctx, o->steps, o->step_count);
  if (!steps) return smx_fail(SMX_ERR_NOMEM, "smx_sample: no memory for %zu steps", o->step_count);
  w->steps = steps;
  w->options = o;
  const int32_t threads = smx_context_threads(w->ctx);
  w->rows = (int64_t)rows;
  w->rows_a_task = threads == 1 ? w->rows : w->rows / (4 * (int64_t)threads) + 1;
  smx_parallel(w->ctx, w->rows ? (w->rows - 1) / w->rows_a_task + 1 : 0, sample_rows, w);
  smx_free(w->ctx, steps);
  return atomic_load(&w->no_memory) ? smx_fail(SMX_ERR_NOMEM, "smx_sample: no memory for a few rows of %zu", w->n) : SMX_OK;
}

smx_status smx_sample_f32(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n, const float *logits, int64_t *index,
                          float *log_p) {
  sampling w = {.ctx = ctx, .options = options, .chain = smx_isa_current()->f32.chain, .n = n, .bytes = sizeof *logits};
  w.logits = (const char *)logits, w.index = index, w.log_p = log_p;
  return sample(&w, rows);
}
smx_status smx_sample_f64(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n, const double *logits, int64_t *index,
                          double *log_p) {
  sampling w = {.ctx = ctx, .options = options, .chain = smx_isa_current()->f64.chain, .n = n, .bytes = sizeof *logits};
  w.logits = (const char *)logits, w.index = index, w.log_p = log_p;
  return sample(&w, rows);
}
