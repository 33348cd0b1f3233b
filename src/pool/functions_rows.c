/* pool/functions_rows.c - pooling by a softmax: the cells of each window are a row of it, an absent
 * cell is -inf. So NaN, infinities, instruction sets and threads are those of softmax and
 * logsumexp. */
#include <string.h>

#include "cpu/cpu.h"
#include "driver/operator.h"
#include "driver/reals.h"
#include "functions.h"
#include "functions_forms.h"
#include "functions_lines.h"

enum {
  TASKS = 16,     /* of a chunk of whole rows, at most */
  CHUNK = 1 << 16 /* elements of a chunk of windows, which stay in the second-level cache */
};

typedef enum { LSE, MEAN, MEAN_BACK, WEIGHTS_BACK } way;

typedef struct rows_call {
  const tensor_call *c;
  pool_shape s;
  const pool_lines *lines;
  const pool_kernels *kernels;
  smx_context *purse; /* of the softmax */
  char *x, *weights;  /* windows of cells, then of weights and gradients */
  double *sum;
  double beta;
  way what;
  bool hidden;                /* windows may have absent cells */
  int64_t most, first, count; /* outputs of a chunk */
  int64_t bytes;              /* of a cell */
  bool ordinary[TASKS];
  int64_t row; /* outputs of a row, of all channels: a chunk has whole ones; 0: it need not */
} rows_call;

/* Where place k of window i of the chunk is: k place + i window. */
static windows windows_of(const rows_call *r, void *matrix) {
  const bool columns = r->s.window < POOL_COLUMNS;
  return (windows){.matrix = matrix, .place = columns ? r->count : 1, .window = columns ? 1 : r->s.window};
}

/* ---- chunks of whole rows of outputs, as columns ---- */

/* Rows of outputs of all images: the first of a task of the chunk. */
static int64_t row_of_task(const rows_call *r, int64_t task) {
  return r->first / r->row + r->count / r->row * task / TASKS;
}

static void each_row(const rows_call *r, int64_t task, pool_form_fn *f, void *arg) {
  const int64_t high = r->s.axis[0].outputs * r->s.axis[1].outputs, end = row_of_task(r, task + 1);
  for (int64_t row = row_of_task(r, task), next; row < end; row = next) {
    const int64_t image = row / high, first = row - image * high, whole = first == 0 ? (end - row) / high : 0;
    pool_rows rows = {image, 1, first, first + end - row, false};
    if (whole > 0) rows.images = whole;
    if (rows.end > high) rows.end = high;
    next = row + rows.images * (rows.end - first);
    pool_each_form(&r->s, &rows, f, arg);
  }
}

/* The outputs of a task, counted from the first of the chunk. */
static int64_t outputs_before(const rows_call *r, int64_t task) {
  return row_of_task(r, task) * r->row - r->first;
}

static void gather_form(void *arg, const pool_windows *w, int64_t x, int64_t y) {
  const rows_call *r = arg;
  r->kernels->gather(w, r->c->in.view[0].data + x * r->bytes, r->count, r->x + (y - r->first) * r->bytes);
}
static void gather_rows(void *arg, int64_t task) { each_row(arg, task, gather_form, arg); }

/* Windows that are a mean at once, unless some are no ordinary ones. */
typedef struct softening {
  const rows_call *r;
  bool *ordinary;
} softening;
static void soften_form(void *arg, const pool_windows *w, int64_t x, int64_t y) {
  const softening *s = arg;
  const rows_call *r = s->r;
  const char *from = r->c->in.view[0].data + x * r->bytes;
  char *to = r->c->out.view[0].data + y * r->bytes;
  *s->ordinary = *s->ordinary && r->kernels->soften(w, r->s.window, from, to);
}
/* The columns of a task, which have been gathered, as one row of windows: those of four cells are
 * 2 x 2. */
static bool soften_columns(const rows_call *r, int64_t task) {
  const int64_t before = outputs_before(r, task), n = r->s.window, high = n == 4 ? 2 : 1;
  const pool_windows w = {.rows = 1,
                          .count = outputs_before(r, task + 1) - before,
                          .step = 1,
                          .cells = {1, high, n / high},
                          .apart = {0, n / high * r->count, r->count},
                          .places = {0, n / high, 1},
                          .whole = n};
  return r->kernels->soften(&w, n, r->x + before * r->bytes,
                            r->c->out.view[0].data + (r->first + before) * r->bytes);
}
/* Whether windows side by side fill vectors: those of padding are apart from others of a row. */
static bool fills_vectors(const rows_call *r) {
  enum { VECTOR = 64 }; /* bytes */
  if (r->s.channels > 1) return r->s.channels * r->bytes >= VECTOR;
  return r->s.axis[2].outputs * r->bytes >= (r->hidden ? 4 * VECTOR : VECTOR);
}
static void soften_rows(void *arg, int64_t task) {
  rows_call *r = arg;
  r->ordinary[task] = true;
  if (fills_vectors(r)) {
    each_row(r, task, soften_form, &(softening){r, r->ordinary + task});
    return;
  }
  const int64_t before = outputs_before(r, task), n = outputs_before(r, task + 1) - before;
  for (int64_t k = 0; k < r->s.window && r->hidden; k++)
    r->lines->hide(r->x + (k * r->count + before) * r->bytes, n);
  gather_rows(r, task);
  r->ordinary[task] = soften_columns(r, task);
}
static bool all_softened(rows_call *r) {
  const bool refuses = smx_context_on_empty(r->c->ctx) == SMX_EMPTY_ERROR; /* before it writes */
  if (!r->row || r->what != MEAN || r->beta != 1 || refuses) return false;
  smx_parallel(r->c->ctx, TASKS, soften_rows, r);
  for (int task = 0; task < TASKS; task++)
    if (!r->ordinary[task]) return false;
  return true;
}

static void weigh_rows(void *arg, int64_t task) {
  const rows_call *r = arg;
  r->kernels->weigh(r->x, r->weights, r->s.window, r->count, outputs_before(r, task),
                    outputs_before(r, task + 1), r->c->out.view[0].data + r->first * r->bytes);
}

/* ---- any chunks ---- */

static int64_t planes_of(const rows_call *r) {
  return (r->first + r->count - 1) / r->s.outputs - r->first / r->s.outputs + 1;
}

/* Calls f for what the chunk has of one of its planes, some outputs of a row at a time. */
static void each_line(const rows_call *r, int64_t number, void *matrix, pool_line_fn *f) {
  const int64_t plane = r->first / r->s.outputs + number, offset = plane * r->s.cells * r->bytes;
  const int64_t length = r->s.axis[2].outputs, all = plane * r->s.outputs;
  const int64_t stop = all + r->s.outputs, last = r->first + r->count < stop ? r->first + r->count : stop;
  windows w = windows_of(r, matrix);
  w.x = r->c->in.view[0].data + offset;
  w.dx = r->what >= MEAN_BACK ? r->c->din.view[0].data + offset : NULL;
  for (int64_t o = r->first > all ? r->first : all, end; o < last; o = end) {
    const int64_t row = (o - all) / length, begin = (o - all) % length;
    end = o - begin + length < last ? o - begin + length : last;
    w.matrix = (char *)matrix + (o - r->first) * w.window * r->bytes;
    pool_each_line(&r->s, row, begin, begin + end - o, f, &w);
  }
}
static void gather_plane(void *arg, int64_t number) {
  const rows_call *r = arg;
  each_line(r, number, r->x, r->lines->gather);
}
/* Windows add to their cells row by row, and in a row place by place. */
static void scatter_plane(void *arg, int64_t number) {
  const rows_call *r = arg;
  each_line(r, number, r->weights, r->lines->scatter);
}

/* The windows of the chunk as rows, with the axis of their cells. */
static smx_status call_softmax(rows_call *r) {
  const smx_dtype type = r->c->is_f64 ? SMX_F64 : SMX_F32;
  const int axis = r->s.window >= POOL_COLUMNS;
  int64_t shape[2];
  shape[axis] = r->s.window, shape[!axis] = r->count;
  const smx_tensor x = smx_tensor_of(r->x, type, 2, shape, NULL),
                   w = smx_tensor_of(r->weights, type, 2, shape, NULL);
  if (r->what != LSE) return softmax_along(r->purse, axis, r->beta == 1 ? &x : &w, &w);
  const smx_tensor y =
      smx_tensor_of(r->c->out.view[0].data + r->first * r->bytes, type, 1, shape + !axis, NULL);
  return logsumexp_along(r->purse, axis, &x, &y);
}

static smx_status run_chunk(rows_call *r) {
  const int64_t n = r->count * r->s.window;
  const windows w = windows_of(r, r->x);
  if (all_softened(r)) return SMX_OK;
  if (r->hidden) r->lines->hide(r->x, n);
  smx_parallel(r->c->ctx, r->row ? TASKS : planes_of(r), r->row ? gather_rows : gather_plane, r);
  if (r->what != LSE && r->beta != 1) r->lines->scale(r->x, r->beta, n, r->weights);
  smx_status status = call_softmax(r);
  if (status != SMX_OK || r->what == LSE) return status;
  if (r->row && r->what == MEAN) return smx_parallel(r->c->ctx, TASKS, weigh_rows, r), SMX_OK;
  if (r->what != WEIGHTS_BACK) r->lines->fold(&w, r->weights, r->s.window, r->count, r->sum);
  if (r->what == MEAN)
    return smx_reals_store(r->c->is_f64, r->sum, r->count, r->c->out.view[0].data + r->first * r->bytes),
           SMX_OK;
  r->lines->weigh(&w, r->weights, r->s.window, r->count, r->beta, r->what == WEIGHTS_BACK ? NULL : r->sum,
                  r->c->dout.view[0].data + r->first * r->bytes);
  smx_parallel(r->c->ctx, planes_of(r), scatter_plane, r);
  return SMX_OK;
}

/* All chunks of `all` outputs, after the memory for a whole one and for the last is there. */
static smx_status run_chunks(rows_call *r, int64_t all) {
  r->count = r->most, call_softmax(r);
  r->count = all % r->most;
  if (r->count) call_softmax(r);
  if (!smx_purse_fill(r->purse)) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for rows", r->c->op->name);
  if (r->what >= MEAN_BACK) memset(r->c->din.view[0].data, 0, (size_t)(r->s.planes * r->s.cells * r->bytes));
  smx_status status = SMX_OK;
  for (r->first = 0; r->first < all && status == SMX_OK; r->first += r->count) {
    r->count = all - r->first < r->most ? all - r->first : r->most;
    status = run_chunk(r);
  }
  if (status == SMX_OK && r->what >= MEAN_BACK)
    smx_reals_clean(r->c->is_f64, r->c->din.view[0].data, r->s.planes * r->s.cells);
  return status;
}

/* Outputs of a row if chunks may have whole ones, or 0. */
static int64_t row_of(const pool_shape *s) {
  const int64_t row = s->axis[2].outputs * s->channels;
  return s->window < POOL_COLUMNS && row > 0 && row <= CHUNK / s->window ? row : 0;
}

bool pool_rows_by_channel(const tensor_call *c) {
  pool_shape s = pool_shape_of(c);
  s.channels = c->in.view->shape[c->in.view->ndim - 1 - c->dims.spatial];
  return row_of(&s) > 0;
}

static smx_status run(const tensor_call *c, way what, double beta) {
  rows_call r = {
      .c = c, .s = pool_shape_of(c), .lines = pool_lines_of + c->is_f64, .beta = beta, .what = what};
  const int64_t all = r.s.planes * r.s.outputs;
  int64_t bytes;
  if (all == 0 || (what >= MEAN_BACK && !c->din.given[0])) return SMX_OK;
  r.bytes = c->is_f64 ? 8 : 4;
  r.hidden = pool_may_be_absent(&r.s);
  r.most = r.s.window < CHUNK ? CHUNK / r.s.window : 1;
  r.row = what < MEAN_BACK ? row_of(&r.s) : 0;
  if (r.row) r.most = r.most / r.row * r.row;
  r.kernels = c->is_f64 ? smx_isa_current()->f64.pool : smx_isa_current()->f32.pool;
  if (r.most > all) r.most = all;
  if (!smx_multiply(r.most * 2 * r.bytes, r.s.window, &bytes) || bytes > INT64_MAX / 2)
    return smx_fail(SMX_ERR_SHAPE, "%s: windows of %lld cells are too large", c->op->name,
                    (long long)r.s.window);
  double *memory = smx_alloc(c->ctx, (size_t)(bytes + 8 * r.most));
  if (!memory) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bytes", c->op->name, (long long)bytes);
  r.sum = memory, r.x = (char *)(memory + r.most), r.weights = r.x + bytes / 2;
  r.purse = smx_purse_open(c->ctx);
  smx_status status =
      r.purse ? run_chunks(&r, all) : smx_fail(SMX_ERR_NOMEM, "%s: no memory for rows", c->op->name);
  if (r.purse) smx_purse_close(r.purse);
  smx_free(c->ctx, memory);
  return status;
}

smx_status pool_soft(const tensor_call *c) { return run(c, MEAN, tensor_param(c, "beta")); }
smx_status pool_soft_backward(const tensor_call *c) {
  return run(c, tensor_param(c, "gradient") != 0 ? WEIGHTS_BACK : MEAN_BACK, tensor_param(c, "beta"));
}
smx_status pool_lse(const tensor_call *c) { return run(c, LSE, 1); }
smx_status pool_lse_backward(const tensor_call *c) { return run(c, WEIGHTS_BACK, 1); }
