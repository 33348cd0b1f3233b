/* driver/tile.h - moves pieces of tensors to where kernels can use them, and back. Ports that
 * kernels can use are left in place, others are converted into a tile of scratch memory. */
#ifndef SMX_DRIVER_TILE_H
#define SMX_DRIVER_TILE_H
#include "job.h"
#include "transpose.h"

enum {
  /* rows of a tile when the axis is not contiguous: two cache lines of every memory page that is
   * touched */
  TILE_ROWS = 32,
  AHEAD = 32 /* elements along an axis that is not contiguous which are prefetched */
};

static inline size_t real_bytes(const job *j) { return j->is_f64 ? 8 : 4; }

/* Bytes of an element of a port as kernels see it. */
static inline int64_t cell_bytes(const job *j, const job_port *p) { return p->whole || j->is_f64 ? 8 : 4; }

/* Element i of a row. A port without elements may have address NULL, to which nothing may be
 * added. */
static inline char *address(const job *j, const job_port *p, int64_t row, int64_t i) {
  int64_t offset = i * p->axis;
  for (int32_t d = j->dims - 1; d >= 0; d--) {
    offset += row % j->dim[d] * p->outer[d];
    row /= j->dim[d];
  }
  return (char *)((uintptr_t)p->data + (uintptr_t)(offset * p->bytes));
}
static inline char *row_address(const job *j, const job_port *p, int64_t row) {
  return address(j, p, row, 0);
}

static inline int64_t row_step(const job *j, const job_port *p) { return p->outer[j->dims - 1]; }

/* A piece of a tensor that one task works on: elements start .. start + count - 1 of `rows` rows
 * from `row` on. */
typedef struct piece {
  int64_t row, rows, start, count;
} piece;

typedef struct tile {
  char *memory;
  int64_t room; /* elements a port has */
} tile;

/* Whether dst[0] is computed in place of its input. */
static inline bool overwrites(const job *j) {
  if (j->in_place < 0) return false;
  const job_port *x = j->src + j->in_place, *y = j->dst;
  return x->present && x->full && !x->direct && !x->whole && y->present && y->full && !y->direct;
}

static inline int64_t tile_bytes(const job *j, int64_t room) {
  int64_t bytes = overwrites(j) ? -room * cell_bytes(j, j->dst) : 0;
  for (int p = 0; p < ROW_SRC; p++)
    if (j->src[p].present && !j->src[p].direct) bytes += room * cell_bytes(j, j->src + p);
  for (int p = 0; p < ROW_DST; p++)
    if (j->dst[p].present && !j->dst[p].direct) bytes += room * cell_bytes(j, j->dst + p);
  return bytes;
}
static inline bool scratched(const job *j) { return tile_bytes(j, 1) > 0; }

/* How much of a row lies in scratch memory: all of it, k values, one, or 0 for nothing. */
static inline int64_t scratch_length(const job *j) {
  int64_t length = 0;
  for (int p = 0; p < ROW_SRC + ROW_DST; p++) {
    const job_port *q = p < ROW_SRC ? j->src + p : j->dst + (p - ROW_SRC);
    if (!q->present || q->direct) continue;
    int64_t own = q->full ? j->n : q->length;
    if (own > length) length = own;
  }
  return length;
}

static inline int64_t tile_room(int64_t elements) { return (elements + 63) / 64 * 64; }

/* Copies elements between a port and memory that kernels can use; whole numbers are int64_t
 * there. */
static inline void load(const job *j, const job_port *p, const char *at, int64_t stride, int64_t n,
                        char *to) {
  int64_t *whole = (int64_t *)(void *)to;
  if (!p->whole) j->io->load(p->store, at, stride, (size_t)n, to);
  else if (p->store == STORE_I32)
    for (int64_t i = 0; i < n; i++) whole[i] = ((const int32_t *)(const void *)at)[i * stride];
  else
    for (int64_t i = 0; i < n; i++) whole[i] = ((const int64_t *)(const void *)at)[i * stride];
}
static inline void store(const job *j, const job_port *p, const char *from, int64_t n, char *at,
                         int64_t stride) {
  const int64_t *whole = (const int64_t *)(const void *)from;
  if (!p->whole) j->io->store(p->store, from, (size_t)n, at, stride);
  else if (p->store == STORE_I32)
    for (int64_t i = 0; i < n; i++) ((int32_t *)(void *)at)[i * stride] = (int32_t)whole[i];
  else
    for (int64_t i = 0; i < n; i++) ((int64_t *)(void *)at)[i * stride] = whole[i];
}

/* A piece whose rows are adjacent in memory: whole cache lines are transposed, and converted
 * through a buffer if needed. */
static inline void move_columns(const job *j, const job_port *p, const piece *at, char *scratch, bool out) {
  double buffer[TRANSPOSE * TILE_ROWS];
  char *lines = (char *)buffer, *base = address(j, p, at->row, at->start);
  const int64_t cell = cell_bytes(j, p);
  for (int64_t i = 0; i < at->count; i += TRANSPOSE) {
    int64_t n = at->count - i < TRANSPOSE ? at->count - i : TRANSPOSE;
    char *here = base + i * p->axis * p->bytes, *row = scratch + i * cell;
    for (int64_t c = AHEAD; c < AHEAD + n && i + c < at->count; c++)
      for (int64_t byte = 0; byte < at->rows * p->bytes; byte += 64)
        __builtin_prefetch(here + c * p->axis * p->bytes + byte, 1);
    if (p->same && out) transpose(cell, row, at->count, here, p->axis, at->rows, n);
    else if (p->same) transpose(cell, here, p->axis, row, at->count, n, at->rows);
    else if (out) {
      transpose(cell, row, at->count, lines, TILE_ROWS, at->rows, n);
      for (int64_t c = 0; c < n; c++)
        store(j, p, lines + c * TILE_ROWS * cell, at->rows, here + c * p->axis * p->bytes, 1);
    } else {
      for (int64_t c = 0; c < n; c++)
        load(j, p, here + c * p->axis * p->bytes, 1, at->rows, lines + c * TILE_ROWS * cell);
      transpose(cell, lines, TILE_ROWS, row, at->count, n, at->rows);
    }
  }
}

/* Loads or stores a piece of a port, a stretch of the axis at a time, so that lines with elements
 * of several rows stay in L1. */
static inline void move_piece(const job *j, const job_port *p, const piece *at, char *scratch, bool out) {
  int64_t step = row_step(j, p), stretch = p->axis == 1 ? at->count : 64;
  if (p->axis != 1 && step == 1 && at->rows > 1 && at->rows <= TILE_ROWS) {
    move_columns(j, p, at, scratch, out);
    return;
  }
  bool packed = p->axis == 1 && step == at->count && at->count == p->length;
  char *base = address(j, p, at->row, at->start);
  int64_t rows = packed ? 1 : at->rows, count = packed ? at->rows * at->count : at->count;
  if (packed) stretch = count;
  for (int64_t i = 0; i < count; i += stretch) {
    int64_t n = count - i < stretch ? count - i : stretch;
    for (int64_t r = 0; r < rows; r++) {
      char *here = base + (r * step + i * p->axis) * p->bytes,
           *there = scratch + (r * count + i) * cell_bytes(j, p);
      if (out) store(j, p, there, n, here, p->axis);
      else load(j, p, here, p->axis, n, there);
    }
  }
}

/* The part of a port in a piece: the piece's part of the row, or all that the port has for a
 * row. */
static inline piece part_of(const job_port *p, const piece *at) {
  return p->full ? *at : (piece){at->row, at->rows, 0, p->length};
}
static inline void move_part(const job *j, const job_port *p, const piece *at, char *scratch, bool out) {
  const piece part = part_of(p, at);
  if (p->length != 1 || p->full) move_piece(j, p, &part, scratch, out);
  else if (out) store(j, p, scratch, at->rows, row_address(j, p, at->row), row_step(j, p));
  else load(j, p, row_address(j, p, at->row), row_step(j, p), at->rows, scratch);
}

/* The address at which a kernel finds a port of a piece: in place, or in the tile, from which it
 * then takes memory. */
static inline char *open_port(const job *j, const job_port *p, const piece *at, int64_t room, char **scratch,
                              ptrdiff_t *step) {
  char *here = *scratch;
  if (p->direct) {
    *step = row_step(j, p) * cell_bytes(j, p) / (int64_t)real_bytes(j);
    return address(j, p, at->row, p->full ? at->start : 0);
  }
  *step = part_of(p, at).count * cell_bytes(j, p) / (int64_t)real_bytes(j);
  if (here) *scratch = here + room * cell_bytes(j, p); /* without elements there is no scratch memory */
  return here;
}

/* The call for a piece, its inputs loaded. values: where the ports that are not FULL are, of a row
 * that is taken in pieces; or NULL. */
static inline void open_call(const job *j, const tile *t, const piece *at, const row_call *values,
                             row_call *c) {
  char *scratch = t->memory;
  *c = values ? *values : j->call;
  c->n = (size_t)j->n, c->rows = (size_t)at->rows;
  c->origin = c->start = (size_t)at->start, c->count = (size_t)at->count;
  for (int p = 0; p < ROW_SRC; p++) {
    const job_port *q = j->src + p;
    if (!q->present || (values && !q->full)) continue;
    char *here = open_port(j, q, at, t->room, &scratch, c->src_step + p);
    c->src[p] = here;
    if (!q->direct) move_part(j, q, at, here, false);
  }
  for (int p = 0; p < ROW_DST; p++) {
    if (!j->dst[p].present || (values && !j->dst[p].full)) continue;
    if (p == 0 && overwrites(j))
      c->dst[0] = (void *)(uintptr_t)c->src[j->in_place], c->dst_step[0] = c->src_step[j->in_place];
    else c->dst[p] = open_port(j, j->dst + p, at, t->room, &scratch, c->dst_step + p);
  }
}

/* Stores the outputs that a call wrote into the tile: all ports, or the FULL ones of a row taken in
 * pieces. */
static inline void close_call(const job *j, const row_call *c, const piece *at, bool all) {
  for (int p = 0; p < ROW_DST; p++) {
    const job_port *q = j->dst + p;
    if (q->present && !q->direct && q->data && (all || q->full)) move_part(j, q, at, c->dst[p], true);
  }
}

#endif
