/* mpi/columns.c - the pieces of a rank's columns, and the columns of groups that several ranks
 * hold, on their way to the rank that sums them and back. Nothing else moves or is copied. */
#include "call.h"
#include <softmax/split.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 512 }; /* rows whose columns travel together */

bool mpi_piece(const mpi_call *c, int r, int piece, int64_t *first, int64_t *end) {
  enum { GROUP = SMX_SPLIT_GROUP };
  const int64_t begin = c->owned[r], over = c->owned[r + 1], held = c->bounds[r + 1];
  int64_t from = c->bounds[r] / GROUP * GROUP + (c->bounds[r] % GROUP ? GROUP : 0),
          to = held == c->n ? over : held / GROUP * GROUP;
  from = from < begin ? begin : from > over ? over : from;
  to = to < from ? from : to > over ? over : to;
  *first = piece == LOW ? begin : piece == INNER ? from : to;
  *end = piece == LOW ? from : piece == INNER ? to : over;
  return *first < *end || (piece == INNER && begin == over);
}

/* ---- tensors of pieces ---- */

static void steps_of(const smx_tensor *t, int64_t *steps) {
  int64_t step = 1;
  for (int32_t d = t->ndim - 1; d >= 0; step *= t->shape[d--]) steps[d] = t->strides ? t->strides[d] : step;
}

/* A tensor of `columns`, in memory of its own or where the caller has them; false: no memory. */
static bool piece_open(mpi_port *q, int piece, const smx_tensor *t, int64_t from, int64_t columns) {
  smx_tensor *const own = &q->piece[piece].t;
  int64_t *const shape = q->piece[piece].shape, *const strides = q->piece[piece].strides;
  size_t bytes;
  *own = *t, own->shape = shape, own->strides = strides;
  for (int32_t d = 0; d < t->ndim; d++) shape[d] = d == q->axis ? columns : t->shape[d];
  steps_of(t, strides);
  if (piece == INNER) {
    own->byte_offset += (uint64_t)(from * strides[q->axis] * (t->dtype.bits / 8));
    return true;
  }
  int64_t step = columns;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    strides[d] = d == q->axis ? 1 : step;
    if (d != q->axis) step *= t->shape[d];
  }
  own->byte_offset = 0, own->data = NULL;
  if (__builtin_mul_overflow((size_t)q->rows, (size_t)columns * (t->dtype.bits / 8u), &bytes) ||
      bytes > SIZE_MAX / 2)
    return false;
  return (own->data = malloc(bytes + 1)) != NULL;
}

static bool ports_open(mpi_call *c, int piece, size_t *widest) {
  int64_t first, end;
  if (!mpi_piece(c, c->me, piece, &first, &end)) return true;
  bool good = true;
  for (int set = 0; set < SETS; set++)
    for (int p = 0; p < SMX_MAX_PORTS; p++) {
      mpi_port *const q = &c->port[set][p];
      const smx_tensor *const t = c->given[set][p];
      c->used[piece][set][p] = t;
      if (!q->moves) continue;
      good &= piece_open(q, piece, t, first - c->bounds[c->me], end - first);
      if (t->dtype.bits / 8u > *widest) *widest = t->dtype.bits / 8u;
      c->used[piece][set][p] = &q->piece[piece].t;
    }
  return good;
}

smx_status mpi_columns_open(mpi_call *c) {
  size_t widest = 1;
  bool good = true;
  memcpy(c->used[INNER], c->given, sizeof c->given);
  if (!c->apart) return SMX_OK;
  for (int piece = 0; piece < PIECES; piece++) good &= ports_open(c, piece, &widest);
  const size_t room = 2 * AT_ONCE * (size_t)SMX_SPLIT_GROUP * widest; /* of two groups at most */
  c->sent = malloc(room), c->come = malloc(room);
  good = good && c->sent && c->come;
  return mpi_agree(c, good ? SMX_OK
                           : smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for groups of several ranks"));
}

void mpi_columns_close(mpi_call *c) {
  for (int set = 0; set < SETS; set++)
    for (int p = 0; p < SMX_MAX_PORTS; p++) {
      mpi_port *const q = &c->port[set][p];
      if (q->moves && c->apart) free(q->piece[LOW].t.data), free(q->piece[HIGH].t.data);
    }
  free(c->sent), free(c->come);
}

/* ---- columns on their way ---- */

/* Element `column` of a row of a tensor. */
static char *element(const smx_tensor *t, int32_t axis, int64_t row, int64_t column, int64_t *step) {
  int64_t offset = 0, steps[SMX_MAX_DIMS];
  steps_of(t, steps);
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    if (d == axis) continue;
    offset += row % t->shape[d] * steps[d];
    row /= t->shape[d];
  }
  *step = steps[axis];
  return (char *)t->data + t->byte_offset + (offset + column * steps[axis]) * (t->dtype.bits / 8);
}

/* Packed elements of a row, from a tensor (out) or to it. */
static void move_row(const smx_tensor *t, int32_t axis, int64_t row, int64_t column, int64_t count,
                     char *packed, bool out) {
  const size_t size = t->dtype.bits / 8u;
  int64_t step;
  char *at = element(t, axis, row, column, &step);
  const int64_t run = step == 1 ? count : 1;
  for (int64_t i = 0; i < count; i += run, at += step * (int64_t)size, packed += size)
    memcpy(out ? packed : at, out ? at : packed, (size_t)run * size);
}

/* Some rows of a port, on their way. */
typedef struct move {
  const mpi_call *c;
  const mpi_port *q;
  const smx_tensor *given;
  int64_t first, rows;
} move;

/* What rank `holder` holds of copied groups of rank `owner`, one of which is this one: packed from
 * this rank's tensors (out), from its copy or from what it was given, or to them. packed NULL: only
 * how many elements they are. */
static int64_t pack(const move *m, int holder, int owner, bool copy, char *packed, bool out) {
  const mpi_call *const c = m->c;
  int64_t elements = 0;
  for (int piece = LOW; piece < PIECES; piece += HIGH - LOW) {
    int64_t first, end, held = c->bounds[holder], over = c->bounds[holder + 1];
    if (!mpi_piece(c, owner, piece, &first, &end)) continue;
    const int64_t from = held > first ? held : first, n = (over < end ? over : end) - from;
    const smx_tensor *const t = copy ? &m->q->piece[piece].t : m->given;
    for (int64_t i = 0; i < m->rows && n > 0 && packed; i++)
      move_row(t, m->q->axis, m->first + i, from - (copy ? first : held), n,
               packed + (size_t)(elements + i * n) * (t->dtype.bits / 8u), out);
    elements += n > 0 ? n * m->rows : 0;
  }
  return elements;
}

/* From what was given to the copies of owners, or back. */
static smx_status move_rows(const move *m, bool back) {
  const mpi_call *const c = m->c;
  const size_t size = m->given->dtype.bits / 8u;
  int *const count = c->numbers, *const at = count + c->ranks, *const got = at + c->ranks,
             *const place = got + c->ranks;
  MPI_Datatype cell;
  pack(m, c->me, c->me, back, c->sent, true);
  pack(m, c->me, c->me, !back, c->sent, false);
  for (int r = 0, sent = 0, come = 0; r < c->ranks; sent += count[r], come += got[r], r++) {
    const bool other = r != c->me;
    at[r] = sent, place[r] = come;
    count[r] =
        other ? (int)pack(m, back ? r : c->me, back ? c->me : r, back, c->sent + (size_t)sent * size, true)
              : 0;
    got[r] = other ? (int)pack(m, back ? c->me : r, back ? r : c->me, !back, NULL, false) : 0;
  }
  MPI_Type_contiguous((int)size, MPI_BYTE, &cell);
  MPI_Type_commit(&cell);
  const smx_status status =
      mpi_status(MPI_Alltoallv(c->sent, count, at, cell, c->come, got, place, cell, c->comm), "Alltoallv");
  MPI_Type_free(&cell);
  for (int r = 0; r < c->ranks && status == SMX_OK; r++)
    if (got[r]) pack(m, back ? c->me : r, back ? r : c->me, !back, c->come + (size_t)place[r] * size, false);
  return status;
}

smx_status mpi_columns_move(mpi_call *c, bool back) {
  smx_status status = SMX_OK;
  for (int set = 0; set < SETS && c->apart; set++)
    for (int p = 0; p < SMX_MAX_PORTS; p++) {
      const mpi_port *const q = &c->port[set][p];
      if (!q->moves || mpi_writes(c, set) != back) continue;
      for (int64_t row = 0; row < q->rows && status == SMX_OK; row += AT_ONCE) {
        const move m = {c, q, c->given[set][p], row, q->rows - row < AT_ONCE ? q->rows - row : AT_ONCE};
        status = move_rows(&m, back);
      }
    }
  return status;
}
