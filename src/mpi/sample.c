/* mpi/sample.c - draws over ranks: the logits are redistributed, so that each rank has whole rows
 * of its share, draws from them as smx_sample_f32 does, and tells the others what it drew. */
#include "views.h"
#include <limits.h>
#include <softmax/mpi.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 1 << 22 }; /* numbers of a rank's whole rows at a time, or one row */

typedef struct draws {
  mpi_call *c;
  smx_sample_options options; /* of all rows */
  int64_t rows, each;         /* in all; whole rows of a rank at a time */
  size_t each_row;            /* draws of a row */
  smx_tensor x;               /* logits */
  size_t stride;              /* of logits */
  view held, processed;       /* this rank's columns of all rows */
  view *views;                /* room for 2 * ranks */
  float *whole, *left;        /* whole rows of this rank, and what was processed of them */
  float *columns;             /* of `processed`: this rank's, of all rows */
  int64_t *index;             /* of all rows, as they are given at the end */
  float *log_p;
  int *status;
} draws;

static int64_t rows_of(const draws *w, int64_t first, int r) {
  const int64_t left = w->rows - first - r * w->each;
  return left < 0 ? 0 : left < w->each ? left : w->each;
}

/* Between this rank's columns of the rows from `first` on and whole rows of each rank. */
static smx_status redistribute(draws *w, int64_t first, const view *columns, float *whole, bool back) {
  mpi_call *const c = w->c;
  view *const mine = w->views, *const theirs = mine + c->ranks;
  view rows;
  mpi_view_packed(&rows, whole, SMX_F32, (int64_t[]){1, 1, rows_of(w, first, c->me), c->n});
  for (int r = 0; r < c->ranks; r++) {
    mpi_view_part(mine + r, columns, 2, first + r * w->each, rows_of(w, first, r));
    mpi_view_part(theirs + r, &rows, 3, c->bounds[r], c->bounds[r + 1] - c->bounds[r]);
  }
  return back ? mpi_exchange(c, theirs, mine) : mpi_exchange(c, mine, theirs);
}

/* What a call on this rank's rows has: its place among all of them counts. */
static smx_sample_options options_at(const draws *w, int64_t row) {
  smx_sample_options o = w->options;
  o.row_stride = 0, o.processed = w->columns ? w->left : NULL;
  o.stream += (uint64_t)row;
  if (o.streams) o.streams += row;
  if (o.seeds) o.seeds += row;
  if (o.masks) o.masks += (size_t)row * o.mask_stride;
  o.status = (smx_row_status *)(void *)(w->status + row);
  return o;
}

/* What all ranks drew of the rows from `first` on. */
static smx_status tell(draws *w, int64_t first) {
  mpi_call *const c = w->c;
  int *const drawn = c->numbers, *const at = drawn + c->ranks, *const rows = at + c->ranks,
             *const row = rows + c->ranks;
  for (int r = 0; r < c->ranks; r++) {
    rows[r] = (int)rows_of(w, first, r), row[r] = (int)(r * w->each);
    drawn[r] = (int)((size_t)rows[r] * w->each_row), at[r] = (int)((size_t)row[r] * w->each_row);
  }
  const size_t from = (size_t)first * w->each_row;
  int code =
      MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->index + from, drawn, at, MPI_INT64_T, c->comm);
  if (code == MPI_SUCCESS)
    code = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->log_p + from, drawn, at, MPI_FLOAT, c->comm);
  if (code == MPI_SUCCESS)
    code = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->status + first, rows, row, MPI_INT, c->comm);
  return mpi_status(code, "Allgatherv");
}

static smx_status draw_some(draws *w, int64_t first) {
  mpi_call *const c = w->c;
  const int64_t row = first + c->me * w->each, rows = rows_of(w, first, c->me);
  smx_status status = redistribute(w, first, &w->held, w->whole, false);
  if (status != SMX_OK) return status;
  if (rows) {
    const smx_sample_options o = options_at(w, row);
    const size_t at = (size_t)row * w->each_row;
    status = smx_sample_f32(c->ctx, &o, (size_t)rows, (size_t)c->n, w->whole, w->index + at, w->log_p + at);
  }
  status = mpi_agree(c, status);
  if (status == SMX_OK && w->columns) status = redistribute(w, first, &w->processed, w->left, true);
  return status == SMX_OK ? tell(w, first) : status;
}

/* ---- the call ---- */

static smx_status take_options(draws *w, const smx_sample_options *o, int64_t *index) {
  mpi_call *const c = w->c;
  const size_t n = (size_t)c->n;
  w->options = (smx_sample_options){.size = sizeof w->options};
  if (c->n < 0) return smx_set_error(SMX_ERR_SHAPE, "smx_mpi_sample_f32: n is negative");
  if (o && (o->size == sizeof *o || o->size == offsetof(smx_sample_options, draws)))
    memcpy(&w->options, o, o->size);
  else if (o) return smx_sample_f32(c->ctx, o, 0, n, NULL, NULL, NULL);
  w->options.size = sizeof w->options;
  w->stride = w->options.row_stride ? w->options.row_stride : (size_t)c->count;
  w->each_row = w->options.draws ? w->options.draws : 1;
  if (!w->options.mask_stride) w->options.mask_stride = n / 32 + (n % 32 != 0);
  if (w->stride < (size_t)c->count)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi_sample_f32: row_stride is less than count");
  if (w->rows && (!index || (c->count && !w->x.data)))
    return smx_set_error(SMX_ERR_NULL,
                         index ? "smx_mpi_sample_f32: logits is NULL" : "smx_mpi_sample_f32: index is NULL");
  int64_t all;
  const int64_t most = (int64_t)(PTRDIFF_MAX / sizeof(int64_t));
  if (__builtin_mul_overflow(w->rows, (int64_t)w->each_row, &all) || all > most ||
      __builtin_mul_overflow(w->rows, c->n, &all) || all > most ||
      __builtin_mul_overflow(w->rows, (int64_t)w->stride, &all) || all > most || c->n > INT_MAX ||
      w->each_row > (size_t)(INT_MAX / c->ranks))
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi_sample_f32: rows * n, rows * draws or n is too large");
  smx_sample_options checked = w->options;
  checked.row_stride = 0, checked.processed = NULL;
  return smx_sample_f32(c->ctx, &checked, 0, n, NULL, NULL, NULL);
}

static smx_status reserve(draws *w, bool processed) {
  const mpi_call *const c = w->c;
  const int64_t share = w->rows / c->ranks + 1, fit = AT_ONCE / (c->n > 0 ? c->n : 1) + 1,
                sent = INT_MAX / c->ranks / (int64_t)w->each_row;
  w->each = share < fit ? share : fit;
  if (w->each > sent) w->each = sent;
  const size_t numbers = (size_t)(w->each * c->n) + 1, drawn = (size_t)w->rows * w->each_row + 1;
  w->views = malloc((size_t)(2 * c->ranks) * sizeof *w->views);
  w->whole = malloc(numbers * sizeof *w->whole);
  w->index = malloc(drawn * sizeof *w->index), w->log_p = malloc(drawn * sizeof *w->log_p);
  w->status = malloc((size_t)(w->rows + 1) * sizeof *w->status);
  bool good = w->views && w->whole && w->index && w->log_p && w->status;
  if (processed) {
    w->left = malloc(numbers * sizeof *w->left);
    w->columns = malloc((size_t)(w->rows * c->count + 1) * sizeof *w->columns);
    good = good && w->left && w->columns;
  }
  const int64_t shape[] = {1, 1, w->rows, c->count};
  mpi_view_packed(&w->held, w->x.data, SMX_F32, shape),
      mpi_view_packed(&w->processed, w->columns, SMX_F32, shape);
  w->held.strides[2] = (int64_t)w->stride;
  return good ? SMX_OK : smx_set_error(SMX_ERR_NOMEM, "smx_mpi_sample_f32: no memory for whole rows");
}

/* Nothing of the caller's is written before all rows are drawn. */
static void give(const draws *w, int64_t *index, float *log_p) {
  const size_t rows = (size_t)w->rows, drawn = rows * w->each_row;
  if (drawn) memcpy(index, w->index, drawn * sizeof *index);
  if (drawn && log_p) memcpy(log_p, w->log_p, drawn * sizeof *log_p);
  for (size_t r = 0; w->options.status && r < rows; r++) w->options.status[r] = (smx_row_status)w->status[r];
  const size_t columns = rows * (size_t)w->c->count;
  if (w->columns && columns) memcpy(w->options.processed, w->columns, columns * sizeof *w->columns);
}

smx_status smx_mpi_sample_f32(MPI_Comm comm, smx_context *ctx, const smx_sample_options *options, size_t rows,
                              int64_t n, int64_t first, size_t count, const float *logits, int64_t *index,
                              float *log_p) {
  smx_status status;
  mpi_call *const c = mpi_open(comm, &status);
  if (!c) return status;
  const bool fits = rows <= INT64_MAX && count <= INT64_MAX;
  int64_t shape[2] = {fits ? (int64_t)rows : 0, fits ? (int64_t)count : 0};
  draws w = {.c = c, .rows = shape[0], .x = mpi_tensor(logits, SMX_F32, 2, shape)};
  c->op = smx_op_find("softmax"), c->ctx = ctx, c->n = n, c->first = first, c->count = shape[1];
  c->n_in = 1, c->given[IN][0] = &w.x;
  status = fits ? take_options(&w, options, index)
                : smx_set_error(SMX_ERR_SHAPE, "smx_mpi_sample_f32: rows or count is too large");
  status = mpi_agree(c, status);
  if (status == SMX_OK) status = mpi_ports(c);
  if (status == SMX_OK) status = mpi_agree(c, reserve(&w, w.options.processed != NULL));
  for (int64_t r = 0; r < w.rows && status == SMX_OK; r += c->ranks * w.each) status = draw_some(&w, r);
  if (status == SMX_OK) give(&w, index, log_p);
  free(w.views), free(w.whole), free(w.left), free(w.columns), free(w.index), free(w.log_p), free(w.status);
  free(c);
  return status;
}
