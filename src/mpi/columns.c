/* mpi/columns.c - columns between where the caller has them and the ranks of their groups. Nothing
 * moves where all cuts are between groups. */
#include "call.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 1 << 22 }; /* elements of whole rows that travel together, or one row */

static int64_t owned_count(const mpi_call *c) { return c->owned[c->me + 1] - c->owned[c->me]; }

/* The tensor of the columns of this rank's groups, rows one after another. */
static bool port_open(const mpi_call *c, mpi_port *q, const smx_tensor *t) {
  const int64_t columns = owned_count(c);
  int64_t step = columns;
  q->own = *t, q->own.byte_offset = 0;
  q->own.shape = q->shape, q->own.strides = q->strides;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    q->shape[d] = d == q->axis ? columns : t->shape[d];
    q->strides[d] = d == q->axis ? 1 : step;
    if (d != q->axis) step *= t->shape[d];
  }
  size_t bytes;
  if (__builtin_mul_overflow((size_t)q->rows, (size_t)columns * (t->dtype.bits / 8u), &bytes) ||
      bytes > SIZE_MAX / 2)
    return false;
  return (q->own.data = malloc(bytes + 1)) != NULL;
}

/* Makes the calls of mpi_columns_move possible; SMX_ERR_NOMEM without memory. */
static smx_status reserve(mpi_call *c) {
  const int64_t most = c->n > 0 ? c->n : 1;
  size_t widest = 0;
  if (most > INT_MAX - AT_ONCE)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: beyond 2^31 columns ranks must begin at multiples of 8192");
  c->chunk = AT_ONCE / most + 1;
  for (int set = 0; set < SETS; set++)
    for (int p = 0; p < SMX_MAX_PORTS; p++) {
      mpi_port *const q = &c->port[set][p];
      const smx_tensor *const t = c->given[set][p];
      if (!q->moves) continue;
      if (!port_open(c, q, t))
        return smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for columns of groups");
      if (t->dtype.bits / 8u > widest) widest = t->dtype.bits / 8u;
      c->used[set][p] = &q->own;
    }
  const int64_t own = owned_count(c), wide = own > c->count ? own : c->count;
  c->sent = malloc((size_t)(c->chunk * wide) * widest + 1);
  c->come = malloc((size_t)(c->chunk * wide) * widest + 1);
  return c->sent && c->come ? SMX_OK
                            : smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for columns on their way");
}

smx_status mpi_columns_open(mpi_call *c) {
  memcpy(c->used, c->given, sizeof c->used);
  return c->apart ? mpi_agree(c, reserve(c)) : SMX_OK;
}

void mpi_columns_close(mpi_call *c) {
  for (int set = 0; set < SETS; set++)
    for (int p = 0; p < SMX_MAX_PORTS; p++)
      if (c->port[set][p].moves && c->apart) free(c->port[set][p].own.data);
  free(c->sent), free(c->come);
}

/* What [a, b) and [c, d) have in common. */
static int64_t common(int64_t a, int64_t b, int64_t c, int64_t d, int64_t *from) {
  const int64_t to = b < d ? b : d;
  *from = a > c ? a : c;
  return to > *from ? to - *from : 0;
}

/* Element `column` of a row of a tensor. */
static char *element(const smx_tensor *t, int32_t axis, int64_t row, int64_t column) {
  int64_t offset = 0, step = 1, steps[SMX_MAX_DIMS];
  for (int32_t d = t->ndim - 1; d >= 0; step *= t->shape[d--]) steps[d] = t->strides ? t->strides[d] : step;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    if (d == axis) continue;
    offset += row % t->shape[d] * steps[d];
    row /= t->shape[d];
  }
  return (char *)t->data + t->byte_offset + (offset + column * steps[axis]) * (t->dtype.bits / 8);
}
static int64_t axis_step(const smx_tensor *t, int32_t axis) {
  int64_t step = 1;
  for (int32_t d = t->ndim - 1; d > axis; d--) step *= t->shape[d];
  return t->strides ? t->strides[axis] : step;
}

/* Packed elements of a row, to or from a tensor. */
static void move_row(const smx_tensor *t, int32_t axis, int64_t row, int64_t column, int64_t count,
                     char *packed, bool out) {
  const size_t size = t->dtype.bits / 8u;
  const int64_t step = axis_step(t, axis) * (int64_t)size, run = step == (int64_t)size ? count : 1;
  char *at = element(t, axis, row, column);
  for (int64_t i = 0; i < count; i += run, at += step, packed += size)
    memcpy(out ? packed : at, out ? at : packed, (size_t)run * size);
}

/* One port, rows first .. first + rows - 1. */
static smx_status move_rows(mpi_call *c, const mpi_port *q, const smx_tensor *given, bool back, int64_t first,
                            int64_t rows) {
  const int64_t *const from = back ? c->owned : c->bounds, *const to = back ? c->bounds : c->owned;
  const smx_tensor *const source = back ? &q->own : given, *const target = back ? given : &q->own;
  const size_t size = given->dtype.bits / 8u;
  int *const count = c->numbers, *const at = count + c->ranks, *const got = at + c->ranks,
             *const place = got + c->ranks;
  int64_t column, n, sent = 0, come = 0;
  /* what stays goes by way of a row of room */
  n = common(from[c->me], from[c->me + 1], to[c->me], to[c->me + 1], &column);
  for (int64_t i = 0; i < rows && n; i++) {
    move_row(source, q->axis, first + i, column - from[c->me], n, c->come, true);
    move_row(target, q->axis, first + i, column - to[c->me], n, c->come, false);
  }
  for (int r = 0; r < c->ranks; r++) {
    at[r] = (int)sent, place[r] = (int)come, count[r] = got[r] = 0;
    if (r == c->me) continue;
    n = common(from[c->me], from[c->me + 1], to[r], to[r + 1], &column);
    count[r] = (int)(rows * n);
    for (int64_t i = 0; i < rows && n; i++, sent += n)
      move_row(source, q->axis, first + i, column - from[c->me], n, c->sent + (size_t)sent * size, true);
    n = common(from[r], from[r + 1], to[c->me], to[c->me + 1], &column);
    got[r] = (int)(rows * n);
    come += rows * n;
  }
  MPI_Datatype cell;
  MPI_Type_contiguous((int)size, MPI_BYTE, &cell);
  MPI_Type_commit(&cell);
  const smx_status status =
      mpi_status(MPI_Alltoallv(c->sent, count, at, cell, c->come, got, place, cell, c->comm), "Alltoallv");
  MPI_Type_free(&cell);
  come = 0;
  for (int r = 0; r < c->ranks && status == SMX_OK; r++) {
    if (r == c->me) continue;
    n = common(from[r], from[r + 1], to[c->me], to[c->me + 1], &column);
    for (int64_t i = 0; i < rows && n; i++, come += n)
      move_row(target, q->axis, first + i, column - to[c->me], n, c->come + (size_t)come * size, false);
  }
  return status;
}

smx_status mpi_columns_move(mpi_call *c, bool back) {
  smx_status status = SMX_OK;
  for (int set = 0; set < SETS && c->apart; set++)
    for (int p = 0; p < SMX_MAX_PORTS; p++) {
      const mpi_port *const q = &c->port[set][p];
      if (!q->moves || mpi_writes(c, set) != back) continue;
      for (int64_t row = 0; row < q->rows && status == SMX_OK; row += c->chunk)
        status =
            move_rows(c, q, c->given[set][p], back, row, q->rows - row < c->chunk ? q->rows - row : c->chunk);
    }
  return status;
}
