/* driver/long_row.h - one row as a row program by runs of groups: for rows that no tile holds, that
 * threads share, or that lie on several ranks. */
#ifndef SMX_DRIVER_LONG_ROW_H
#define SMX_DRIVER_LONG_ROW_H
#include "tile.h"

enum { RUN_GROUPS = 32 }; /* groups of a long row handed out together */

static inline int64_t long_row_groups(int64_t n) { return n / ROW_GROUP + (n % ROW_GROUP != 0); }

/* Ports that are not FULL are in memory of the row's own while it is taken in pieces: so many
 * cells, the inputs' first. */
static inline int64_t long_row_inputs(const job *j) {
  int64_t cells = 0;
  for (int p = 0; p < ROW_SRC; p++) cells += j->src[p].present && !j->src[p].full ? j->src[p].length : 0;
  return cells;
}
static inline int64_t long_row_cells(const job *j) {
  int64_t cells = long_row_inputs(j);
  for (int p = 0; p < ROW_DST; p++) cells += j->dst[p].present && !j->dst[p].full ? j->dst[p].length : 0;
  return cells;
}

/* The call that begins and folds a row. */
static inline row_call long_row_open(const job *j, int64_t row, double *cells) {
  const piece at = {row, 1, 0, j->n};
  row_call c = j->call;
  c.n = (size_t)j->n, c.rows = 1;
  for (int p = 0; p < ROW_SRC; p++) {
    if (!j->src[p].present || j->src[p].full) continue;
    move_part(j, j->src + p, &at, (char *)cells, false);
    c.src[p] = cells;
    cells += j->src[p].length;
  }
  for (int p = 0; p < ROW_DST; p++) {
    if (!j->dst[p].present || j->dst[p].full) continue;
    c.dst[p] = cells;
    cells += j->dst[p].length;
  }
  return c;
}
static inline void long_row_close(const job *j, int64_t row, const row_call *c) {
  const piece at = {row, 1, 0, j->n};
  for (int p = 0; p < ROW_DST; p++)
    if (j->dst[p].present && !j->dst[p].full) move_part(j, j->dst + p, &at, c->dst[p], true);
}

/* The memory of a thread that runs passes. */
static inline size_t long_row_place(const job *j) {
  return smx_job_own(j) + (scratched(j) ? (size_t)tile_bytes(j, tile_room(ROW_GROUP)) : 0);
}

/* A pass over whole groups of a row, or up to its end. parts: of those groups. */
static inline void long_row_pass(const job *j, char *place, const row_call *values, row_state *st,
                                 const piece *groups, row_part *parts) {
  const int64_t size = scratched(j) ? ROW_GROUP : groups->count, end = groups->start + groups->count,
                pieces = size ? (groups->count + size - 1) / size : 0;
  row_call c;
  const tile t = {smx_job_lend(j, place, &c), tile_room(ROW_GROUP)};
  for (int64_t i = 0; i < pieces; i++) {
    const int64_t start = groups->start + (st->reverse ? pieces - 1 - i : i) * size;
    const piece at = {groups->row, 1, start, end - start < size ? end - start : size};
    open_call(j, &t, &at, values, &c);
    smx_job_lend(j, place, &c);
    row_pass(j->kernel, &c, st, parts + (start - groups->start) / ROW_GROUP);
    if (st->writes) close_call(j, &c, &at, false);
  }
}

#endif
