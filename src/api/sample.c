/* api/sample.c - smx_sample: checks the steps, and takes the rows to the chain of the instruction set. */
#include "base/base.h"
#include "cpu/cpu.h"
#include "cpu/fpenv.h"
#include <math.h>
#include <stdatomic.h>

/* The numbers of each kind of step: their ranges, and whether a is whole. */
static const struct range {
  const char *name;
  double a_min, a_max, b_min, b_max;
  bool whole, tokens, values;
} ranges[] = {
    [SMX_STEP_TEMPERATURE] = {"temperature", 0, 1e30, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_TOP_K] = {"top-k", 1, 9007199254740992.0, -INFINITY, INFINITY, true, false, false},
    [SMX_STEP_TOP_P] = {"top-p", 0, 1, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_MIN_P] = {"min-p", 0, 1, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_TYPICAL] = {"typical", 0, 1, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_EPSILON] = {"epsilon", 0, 1, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_ETA] = {"eta", 0, 1, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_TOP_N_SIGMA] = {"top-n-sigma", 0, 1e30, 0, 1, false, false, false},
    [SMX_STEP_SURPRISE] = {"surprise", -1e30, 1e30, -INFINITY, INFINITY, false, false, false},
    [SMX_STEP_XTC] = {"xtc", 0, 1, 0x1p-1000, 1, false, false, false},
    [SMX_STEP_REPETITION] = {"repetition", 0x1p-100, 1e30, -INFINITY, INFINITY, false, true, false},
    [SMX_STEP_FREQUENCY] = {"frequency", -1e30, 1e30, -1e30, 1e30, false, true, false},
    [SMX_STEP_BIAS] = {"bias", -INFINITY, INFINITY, -INFINITY, INFINITY, false, true, true},
    [SMX_STEP_BAN] = {"ban", -INFINITY, INFINITY, -INFINITY, INFINITY, false, true, false},
    [SMX_STEP_ALLOW] = {"allow", -INFINITY, INFINITY, -INFINITY, INFINITY, false, true, false},
};
enum { KINDS = sizeof ranges / sizeof *ranges };

static smx_status check_number(size_t i, const struct range *r, char which, double v, double min, double max) {
  const bool whole = r->whole && which == 'a';
  if (v >= min && v <= max && !(whole && v != floor(v))) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu, %s: %c is %g, not %g to %g%s", i, r->name, which, v, min, max,
                  whole ? ", whole" : "");
}

static smx_status check_step(size_t i, const smx_step *s, size_t n) {
  if ((int)s->kind < 0 || (int)s->kind >= KINDS) return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu: kind is %d", i, (int)s->kind);
  const struct range *r = ranges + s->kind;
  smx_status status = check_number(i, r, 'a', s->a, r->a_min, r->a_max);
  if (status == SMX_OK) status = check_number(i, r, 'b', s->b, r->b_min, r->b_max);
  if (status != SMX_OK || !r->tokens) return status;
  if (s->token_count && !s->tokens) return smx_fail(SMX_ERR_NULL, "smx_sample: step %zu, %s: tokens is NULL", i, r->name);
  if (s->token_count && r->values && !s->values) return smx_fail(SMX_ERR_NULL, "smx_sample: step %zu, %s: values is NULL", i, r->name);
  for (size_t t = 0; t < s->token_count; t++) {
    if (s->tokens[t] < 0 || (uint64_t)s->tokens[t] >= n)
      return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu, %s: token %lld is not one of the %zu of a row", i, r->name,
                      (long long)s->tokens[t], n);
    if (s->values && s->values[t] != s->values[t]) return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu, %s: a value is NaN", i, r->name);
  }
  return SMX_OK;
}

typedef struct sampling {
  smx_context *ctx;
  const smx_sample_options *options;
  void (*chain)(chain_row *row);
  size_t n, bytes;
  const char *logits;
  int64_t *index;
  void *log_p;
  int64_t rows, rows_a_task;
  _Atomic bool no_memory;
} sampling;

static void sample_row(const sampling *w, int64_t r, char *scratch) {
  const smx_sample_options *o = w->options;
  chain_row row = {
      .n = w->n, .x = w->logits + (size_t)r * w->n * w->bytes, .steps = o->steps, .step_count = o->step_count, .draw = o->draw};
  for (size_t i = 0; i < 3; i++) row.scratch[i] = scratch + i * w->n * w->bytes;
  row.seed = o->seed, row.stream = o->streams ? o->streams[r] : o->stream + (uint64_t)r;
  w->chain(&row);
  w->index[r] = row.index;
  if (w->log_p && w->bytes == 4) ((float *)w->log_p)[r] = (float)row.log;
  if (w->log_p && w->bytes == 8) ((double *)w->log_p)[r] = row.log;
}

static void sample_rows(void *arg, int64_t task) {
  sampling *w = arg;
  int64_t r = task * w->rows_a_task, end = r + w->rows_a_task < w->rows ? r + w->rows_a_task : w->rows;
  char *scratch = smx_alloc(w->ctx, 3 * w->n * w->bytes);
  if (!scratch) {
    atomic_store(&w->no_memory, true);
    return;
  }
  smx_fpenv env = smx_fpenv_enter();
  for (; r < end; r++) sample_row(w, r, scratch);
  smx_fpenv_leave(env);
  smx_free(w->ctx, scratch);
}

static smx_status sample(sampling *w, size_t rows) {
  static const smx_sample_options defaults = {.size = sizeof defaults};
  const smx_sample_options *o = w->options ? w->options : &defaults;
  size_t total;
  if (o->size != sizeof *o) return smx_fail(SMX_ERR_STRUCT, "smx_sample: options.size is %zu, not %zu", o->size, sizeof *o);
  if (__builtin_mul_overflow(rows, w->n, &total) || __builtin_mul_overflow(total, 3 * w->bytes, &total) || total > PTRDIFF_MAX)
    return smx_fail(SMX_ERR_SHAPE, "smx_sample: rows * n = %zu * %zu overflows", rows, w->n);
  if (o->step_count && !o->steps) return smx_fail(SMX_ERR_NULL, "smx_sample: steps is NULL");
  if ((total && !w->logits) || (rows && !w->index)) return smx_fail(SMX_ERR_NULL, "smx_sample: %s is NULL", w->index ? "logits" : "index");
  if ((int)o->draw < 0 || o->draw > SMX_DRAW_GREEDY) return smx_fail(SMX_ERR_PARAM, "smx_sample: draw is %d", (int)o->draw);
  for (size_t i = 0; i < o->step_count; i++) {
    smx_status status = check_step(i, o->steps + i, w->n);
    if (status != SMX_OK) return status;
  }
  w->options = o;
  const int32_t threads = smx_context_threads(w->ctx);
  w->rows = (int64_t)rows;
  w->rows_a_task = threads == 1 ? w->rows : w->rows / (4 * (int64_t)threads) + 1;
  smx_parallel(w->ctx, w->rows ? (w->rows - 1) / w->rows_a_task + 1 : 0, sample_rows, w);
  return atomic_load(&w->no_memory) ? smx_fail(SMX_ERR_NOMEM, "smx_sample: no memory for three rows of %zu", w->n) : SMX_OK;
}

smx_status smx_sample_f32(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n, const float *logits, int64_t *index,
                          float *log_p) {
  sampling w = {ctx, options, smx_isa_current()->f32.chain, n, sizeof *logits, (const char *)logits, index, log_p, 0, 0, false};
  return sample(&w, rows);
}
smx_status smx_sample_f64(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n, const double *logits, int64_t *index,
                          double *log_p) {
  sampling w = {ctx, options, smx_isa_current()->f64.chain, n, sizeof *logits, (const char *)logits, index, log_p, 0, 0, false};
  return sample(&w, rows);
}
