/* pool/cells.h - the cells of windows that lie side by side, for kernels (pool.h). */
#ifndef SMX_POOL_CELLS_H
#define SMX_POOL_CELLS_H
#include "engine/loops.h"
#include "pool.h"
#include "split.h"

/* From vector to vector of `count` >= LANES windows; the last one is whole: it does some windows
 * again. */
SMI int64_t next_whole(int64_t count, int64_t i) {
  return i + LANES < count && i + 2 * LANES > count ? count - LANES : i + LANES;
}

/* Numbers p[i step], of cnt windows. */
SMI vreal spaced(const real *p, int64_t step, int cnt) {
  real lanes[LANES] = {0};
  if (step == 1) return at(p, 0, cnt);
  for (int i = 0; i < cnt; i++) lanes[i] = p[i * step];
  return v_load(lanes);
}

/* Cells side by side of cnt windows that are `step` apart: `step` vectors of them. */
SMI void split(const real *p, int step, int cnt, vreal *out) {
  vreal in[POOL_STEP];
  for (int u = 0; u < step; u++) {
    const int left = step * cnt - u * LANES;
    in[u] = left >= LANES ? v_load(p + u * LANES) : v_load_n(p + u * LANES, left > 0 ? left : 0, 0);
  }
  if (step == 2) v_split_2(in, out);
  else v_split_3(in, out);
}

/* The cells of one line of a row of windows; the first has place `distance`. */
typedef struct line {
  const real *p;
  int64_t cells, apart, step, distance, between;
  int cnt;
} line;

/* The line at depth d and height h of the windows that begin at x. */
SMI line line_at(const pool_windows *w, const real *x, int64_t d, int64_t h, int cnt) {
  return (line){x + d * w->apart[0] + h * w->apart[1], w->cells[2],   w->apart[2], w->step,
                d * w->between[0] + h * w->between[1], w->between[2], cnt};
}

/* Where a place of some windows goes to. */
typedef struct column {
  real *to;
  int64_t distance;
} column;

SMI void put_cell(const column *c, int64_t place, int cnt, vreal x) {
  put(c->to + place * c->distance, 0, cnt, x);
}

SMI void gather_line(const line *l, int64_t place, const column *c) {
  int64_t j = 0;
  vreal x[2];
  if (SMX_REAL == 32 && l->apart == 1 && l->step == 2)
    for (; j + 2 <= l->cells; j += 2) {
      split(l->p + j, 2, l->cnt, x);
      put_cell(c, place + j, l->cnt, x[0]), put_cell(c, place + j + 1, l->cnt, x[1]);
    }
  for (; j < l->cells; j++) put_cell(c, place + j, l->cnt, spaced(l->p + j * l->apart, l->step, l->cnt));
}

/* Place k of cnt windows, the first of which begins at x, to `to` + k distance. */
SMI void gather_windows(const pool_windows *w, const real *x, int cnt, real *to, int64_t distance) {
  const column c = {to, distance};
  for (int64_t d = 0; d < w->cells[0]; d++)
    for (int64_t h = 0; h < w->cells[1]; h++) {
      const line l = line_at(w, x, d, h, cnt);
      gather_line(&l, w->place + d * w->places[0] + h * w->places[1], &c);
    }
}

#endif
