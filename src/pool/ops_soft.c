/* pool/ops_soft.c - means of windows by their own softmax, a vector of windows at a time. The bits
 * are those of the softmax of columns (engine/exp_columns.c) and of weigh() in ops.c: place k is
 * lane k of the contract. */
#include "soft.h"
#include "cells.h"
#include "rank.h"
#include "wide.h"

/* Loops over cells are written out for windows of four, whose cells and terms stay in registers. */
enum { FOUR = 4 };
#define EACH_CELL(k, from, n) _Pragma("GCC unroll 4") for (int64_t k = from; k < (n); k++)

/* The terms of n cells. False: the largest cell of some window is -inf or out of range. */
SMI bool take_terms(const vreal *x, int64_t n, vreal *term) {
  vreal most = x[0];
  EACH_CELL(k, 1, n) most = v_max(x[k], most);
  const vreal scale_exp = v_sub(exp_k(most), v_set1(1));
  EACH_CELL(i, 0, n) {
    const vreal k = exp_k(x[i]);
    term[i] = v_scale(exp_poly(exp_reduce(x[i], k)), v_sub(k, scale_exp));
  }
  return !m_any(m_or(v_lt(most, v_set1(-524288)), v_lt(v_set1(524288), most)));
}

SMI vreal fold_four(const vreal *term) { return v_add(v_add(term[0], term[2]), v_add(term[1], term[3])); }
SMI vreal fold_any(const vreal *term, int64_t live) {
  vreal lane[POOL_COLUMNS / 2];
  int64_t half = 1;
  while (2 * half < live) half *= 2;
  for (; live > 1; live = half, half /= 2, term = lane)
    for (int64_t q = 0; q < half; q++) lane[q] = q + half < live ? v_add(term[q], term[q + half]) : term[q];
  return *term;
}

/* The mean. False: some sum is a NaN. 1 / sum has the bits of a division in double that is then
 * rounded, as 53 >= 2 * 24 + 2 (Figueroa, "When is double rounding innocuous?", 1995). */
SMI bool take_mean(const vreal *x, const vreal *term, int64_t n, vreal sum, vreal *mean) {
  const vreal one = v_set1(1), inv = v_div(one, sum), tiny = v_mul(sum, v_set1(R_TINY));
  v_wide all = v_wide_zero();
  EACH_CELL(k, 0, n) {
    const vreal e = term[k], weight = v_select(v_eq(e, sum), one, v_flush(v_mul(e, inv), e, tiny));
    all = v_wide_fold_exact(all, v_widen(weight), v_widen(v_max(x[k], v_set1(-R_MAX)))); /* 0 of -inf */
  }
  *mean = v_clean(v_narrow(all));
  return !m_any(m_not(v_eq(sum, sum)));
}

/* ---- windows of 2 x 2 neighbours, which lie side by side, or are 2 apart ---- */

/* Where a vector of windows is: window i of a row. */
typedef struct place {
  const real *x;
  real *y;
  int64_t i, row;
} place;

SMI place rows_on(const pool_windows *w, place p, int64_t rows, int64_t i) {
  return (place){p.x + rows * w->row_step, p.y + rows * w->pitch, i, p.row + rows};
}
/* joined: outputs of rows follow one another, so a vector may have the last windows of a row and
 * the first of the next; the last vector goes back for a whole one. */
SMI place next_place(const pool_windows *w, bool joined, place p) {
  p.i = joined ? p.i + LANES : next_whole(w->count, p.i);
  if (p.i >= w->count) p = rows_on(w, p, 1, joined ? p.i - w->count : 0);
  const int64_t left = (w->rows - p.row) * w->count - p.i;
  if (!joined || left <= 0 || left >= LANES) return p;
  p.i -= LANES - left;
  return p.i < 0 ? rows_on(w, p, -1, p.i + w->count) : p;
}

SMI bool is_four(const pool_windows *w, int64_t places) {
  const bool square = places == FOUR && w->cells[1] == 2 && w->cells[2] == 2 && w->count >= LANES;
  return square && (w->step == 1 || (w->step == 2 && w->apart[2] == 1));
}

/* A line of the cells of LANES windows that are 2 apart; own: how many of them are in this row. */
SMI void load_pairs(const pool_windows *w, const real *x, int own, vreal *out) {
  vreal in[2] = {v_load(x), v_load(x + LANES)};
  if (own < LANES) {
    const real *next = x + w->row_step - 2 * w->count;
    in[0] = v_select(lanes_below(2 * own), in[0], v_load(next));
    in[1] = v_select(lanes_below(2 * own - LANES), in[1], v_load(next + LANES));
  }
  v_split_2(in, out);
}
SMI void load_four(const pool_windows *w, bool neighbours, const place *p, vreal *out) {
  const real *x = p->x + p->i * w->step;
  const int own = lanes_left((size_t)(w->count - p->i));
  for (int h = 0; h < 2; h++, x += w->apart[1])
    if (neighbours) out[2 * h] = v_load(x), out[2 * h + 1] = v_load(x + w->apart[2]);
    else load_pairs(w, x, own, out + 2 * h);
}

NOINLINE bool take_four(const vreal *x, real *y) {
  vreal term[FOUR], mean;
  const bool in_range = take_terms(x, FOUR, term);
  if (!take_mean(x, term, FOUR, fold_four(term), &mean) || !in_range) return false;
  v_store(y, mean);
  return true;
}

/* Vectors of windows in one go: a step waits for the one before, and others fill the time as far as
 * there are registers. */
enum { GO = PIECE_BYTES == 64 ? 2 : 1, GO_CELLS = GO * FOUR, FLAT = 12 };
#define EACH_IN_GO(k, n) _Pragma("GCC unroll 8") for (int k = 0; k < (n); k++)

/* The means of windows whose cells are less than FLAT apart, so that no term is flushed and none is
 * the sum. False: there are others, or NaN; then mean may hold anything. */
SMI bool take_flat(const vreal *x, vreal *mean) {
  vreal scale_exp[GO], weight[GO_CELLS];
  vmask good[GO];
  EACH_IN_GO(u, GO) {
    const vreal *own = x + u * FOUR;
    const vreal most = v_max(v_max(own[0], own[1]), v_max(own[2], own[3])),
                least = v_min(v_min(own[0], own[1]), v_min(own[2], own[3]));
    scale_exp[u] = v_sub(exp_k(most), v_set1(1));
    good[u] = m_and(v_lt(v_sub(most, least), v_set1(FLAT)), v_lt(v_abs(most), v_set1(524288)));
  }
  v_exps_normal(x, GO_CELLS, scale_exp, FOUR, weight);
  vreal inv[GO];
  EACH_IN_GO(u, GO) inv[u] = v_div(v_set1(1), fold_four(weight + u * FOUR));
  EACH_IN_GO(i, GO_CELLS) weight[i] = v_mul(weight[i], inv[i / FOUR]);
  v_wide all[GO];
  EACH_IN_GO(u, GO) all[u] = v_wide_zero();
  EACH_IN_GO(k, FOUR)
  EACH_IN_GO(u, GO)
  all[u] = v_wide_fold_exact(all[u], v_widen(weight[u * FOUR + k]), v_widen(x[u * FOUR + k]));
  EACH_IN_GO(u, GO) {
    const vreal y = v_narrow(all[u]);
    good[u] = m_and(good[u], v_eq(y, y)), mean[u] = v_flush_tiny(y);
  }
  return !m_any(m_not(m_and(good[0], good[GO - 1])));
}

SMI bool soften_four(const pool_windows *w, bool neighbours, const real *x, real *y) {
  const bool joined = !neighbours && w->pitch == w->count;
  for (place p = {x, y, 0, 0}; p.row < w->rows;) {
    place own[GO];
    vreal cell[GO_CELLS], mean[GO];
    EACH_IN_GO(u, GO) {
      own[u] = u == 0 || p.row < w->rows ? p : own[0];
      load_four(w, neighbours, own + u, cell + u * FOUR), p = next_place(w, joined, p);
    }
    const bool flat = take_flat(cell, mean);
    EACH_IN_GO(u, GO) {
      real *to = own[u].y + own[u].i;
      if (flat) v_store(to, mean[u]);
      else if (!take_four(cell + u * FOUR, to)) return false;
    }
  }
  return true;
}

SMI bool soften_any(const pool_windows *w, int64_t places, const real *x, real *y) {
  const bool whole = w->count >= LANES && places == w->cells[0] * w->cells[1] * w->cells[2];
  vreal cell[POOL_COLUMNS], term[POOL_COLUMNS], mean;
  for (int64_t i = 0; i < w->count; i = next_whole(w->count, i)) {
    const int cnt = lanes_left((size_t)(w->count - i));
    const vreal absent = v_select(lanes_below(cnt), v_set1(-R_INF), v_set1(0));
    for (int64_t k = 0; k < places && !whole; k++) cell[k] = absent;
    gather_windows(w, x + i * w->step, cnt, (real *)cell, LANES);
    if (!take_terms(cell, places, term)) return false;
    if (!take_mean(cell, term, places, fold_any(term, places), &mean)) return false;
    put(y, (size_t)i, cnt, mean);
  }
  return true;
}

/* Portable code gains nothing: emulated FMA decides its speed. */
bool SMX_FN(pool_soften)(const pool_windows *w, int64_t places, const void *from, void *to) {
#ifdef V_PORTABLE
  return false;
#else
  const real *x = from;
  real *y = to;
  if (is_four(w, places)) return w->step == 1 ? soften_four(w, true, x, y) : soften_four(w, false, x, y);
  for (int64_t r = 0; r < w->rows; r++, x += w->row_step, y += w->pitch)
    if (!soften_any(w, places, x, y)) return false;
  return true;
#endif
}
