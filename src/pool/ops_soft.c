/* pool/ops_soft.c - means of windows by their own softmax, a vector of windows at a time. The bits
 * are those of the softmax of columns (engine/exp_columns.c) and of weigh() in ops.c: place k is
 * lane k of the contract. */
#include "soft.h"
#include "cells.h"
#include "math.h"
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

/* The mean. False: some sum is a NaN. */
SMI bool take_mean(const vreal *x, const vreal *term, int64_t n, vreal sum, vreal *mean) {
  const v_wide wide = v_widen(sum);
  v_wide inverse, all = v_wide_zero();
  EACH_WIDE(p) inverse.part[p] = 1.0 / wide.part[p];
  const vreal inv = v_narrow(inverse), tiny = v_narrow(v_wide_mul(wide, (double)R_TINY)), one = v_set1(1);
  EACH_CELL(k, 0, n) {
    const vreal e = term[k], weight = v_select(v_eq(e, sum), one, v_flush(v_mul(e, inv), e, tiny));
    all = v_wide_fold_exact(all, v_widen(weight), v_widen(v_max(x[k], v_set1(-R_MAX)))); /* 0 of -inf */
  }
  *mean = v_clean(v_narrow(all));
  return !m_any(m_not(v_eq(sum, sum)));
}

/* Windows of 2 x 2 neighbours, which lie side by side, or are 2 apart. */
SMI bool is_four(const pool_windows *w, int64_t places) {
  const bool square = places == FOUR && w->cells[1] == 2 && w->cells[2] == 2 && w->count >= LANES;
  return square && (w->step == 1 || (w->step == 2 && w->apart[2] == 1));
}
SMI void load_four(const pool_windows *w, const real *x, vreal *out) {
  for (int h = 0; h < 2; h++, x += w->apart[1])
    if (w->step == 1) out[2 * h] = v_load(x), out[2 * h + 1] = v_load(x + w->apart[2]);
    else split(x, 2, LANES, out + 2 * h);
}
SMI bool soften_four(const pool_windows *w, const real *x, real *y) {
  for (int64_t i = 0; i < w->count; i = next_whole(w->count, i)) {
    vreal cell[FOUR], term[FOUR], mean;
    load_four(w, x + i * w->step, cell);
    const bool in_range = take_terms(cell, FOUR, term);
    if (!take_mean(cell, term, FOUR, fold_four(term), &mean) || !in_range) return false;
    v_store(y + i, mean);
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
  const bool four = is_four(w, places);
  for (int64_t r = 0; r < w->rows; r++, x += w->row_step, y += w->pitch)
    if (!(four ? soften_four(w, x, y) : soften_any(w, places, x, y))) return false;
  return true;
#endif
}
