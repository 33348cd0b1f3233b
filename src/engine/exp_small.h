/* engine/exp_small.h - softmax of rows that fit registers, up to four at a time: their folds, and what follows from them, share vectors, a
 * quarter each. Same lanes and fold as everywhere; lanes that no element reaches are +0 and left out of the additions. */
#ifndef SMX_ENGINE_EXP_SMALL_H
#define SMX_ENGINE_EXP_SMALL_H
#include "exp_rows.h"

enum { SMALL_VECTORS = 8, TOGETHER = 4, QUARTER_LANES = LANES / TOGETHER };

/* Of one row: what is left to fold is one vector. */
SMI vreal small_fold(vreal *e, const int V) {
  int live = V < VPB ? V : VPB;
#pragma GCC unroll 8
  for (int v = VPB; v < V; v++) e[v % VPB] = v_add(e[v % VPB], e[v]);
#pragma GCC unroll 4
  for (int h = VPB / 2; h; h /= 2) {
#pragma GCC unroll 4
    for (int j = 0; j < h; j++)
      if (j + h < live) e[j] = v_add(e[j], e[j + h]);
    if (live > h) live = h;
  }
  return e[0];
}

/* Where rows lie. c: policies for rows that are not ordinary, NULL = the defaults. */
typedef struct small_rows {
  size_t rows, n;
  const real *x;
  real *y;
  ptrdiff_t x_step, y_step;
  row_call *c;
  const row_kernel *kernel;
  bool stream; /* write past the caches: every row of y starts and ends at a cache line */
} small_rows;

/* A row with NaN, +inf, nothing valid or scores out of range: through the row program. */
static inline void small_odd_row(const small_rows *w, size_t row) {
  row_call c = {.first_empty = -1};
  if (w->c) c = *w->c;
  c.n = w->n, c.rows = 1, c.bypass = false;
  c.src[0] = w->x + (ptrdiff_t)row * w->x_step, c.dst[0] = w->y + (ptrdiff_t)row * w->y_step;
  if (run_program(w->kernel, &c) && w->c && c.on_empty == SMX_EMPTY_ERROR && w->c->first_empty < 0) w->c->first_empty = (int64_t)row;
}

/* Rows of V vectors, R at a time. 1 / S as a division of reals is that of
 * doubles, rounded: 53 bits are more than twice 24. */
SMI void exp_small(const small_rows *w, size_t row, const int V, const int R) {
  const real *x = w->x + (ptrdiff_t)row * w->x_step;
  real *y = w->y + (ptrdiff_t)row * w->y_step;
  const int last = (int)(w->n - (size_t)(V - 1) * LANES);
  vreal e[TOGETHER][SMALL_VECTORS], fold[TOGETHER]; /* of e R and V are used: constants, so all of it is registers */
  real ref[LANES], sum[LANES], inv[LANES], tiny[LANES];
#pragma GCC unroll 8
  for (int a = 0; a < R; a++, x += w->x_step) {
#pragma GCC unroll 8
    for (int v = 0; v < V - 1; v++) e[a][v] = v_load(x + v * LANES);
    e[a][V - 1] = last == LANES ? v_load(x + (V - 1) * LANES) : v_load_n(x + (V - 1) * LANES, last, -R_INF);
    fold[a] = e[a][0];
#pragma GCC unroll 8
    for (int v = 1; v < V; v++) fold[a] = v_max(e[a][v], fold[a]);
  }
  const vreal top = v_hmaxs(fold[0], fold[1 % R], fold[2 % R], fold[3 % R]);
  v_store(ref, v_sub(exp_k(top), v_set1(1)));
#pragma GCC unroll 8
  for (int a = 0; a < R; a++) {
    const vreal from = v_set1(ref[a * QUARTER_LANES]);
    vreal acc[SMALL_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      vreal k = exp_k(e[a][v]);
      acc[v] = e[a][v] = v_scale(exp_poly(exp_reduce(e[a][v], k)), v_sub(k, from));
    }
    fold[a] = small_fold(acc, V);
  }
  const vreal total = v_hsums(fold[0], fold[1 % R], fold[2 % R], fold[3 % R]);
  if (m_any(m_not(m_and(v_lt(v_abs(top), v_set1(524288)), v_eq(total, total))))) {
    for (int a = 0; a < R; a++) small_odd_row(w, row + (size_t)a);
    return;
  }
  v_store(sum, total);
  v_store(inv, v_div(v_set1(1), total));
  v_store(tiny, v_mul(v_set1(R_TINY), total));
#pragma GCC unroll 8
  for (int a = 0; a < R; a++, y += w->y_step) {
    const int q = a * QUARTER_LANES;
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      vreal weight = exp_share(e[a][v], inv[q], tiny[q], sum[q], true);
      if (w->stream) v_stream(y + v * LANES, weight);
      else put(y, (size_t)v * LANES, v < V - 1 ? LANES : last, weight);
    }
  }
}

#define EXP_SMALL_ROWS(V, R) \
  NOINLINE void exp_small_rows_##V(const small_rows *w) { \
    size_t row = 0; \
    for (; row + R <= w->rows; row += R) exp_small(w, row, V, R); \
    for (; row < w->rows; row++) exp_small(w, row, V, 1); \
  }
EXP_SMALL_ROWS(1, 4)
EXP_SMALL_ROWS(2, 4)
EXP_SMALL_ROWS(3, 4)
EXP_SMALL_ROWS(4, 4)
EXP_SMALL_ROWS(5, 4)
EXP_SMALL_ROWS(6, 4)
EXP_SMALL_ROWS(7, 2)
EXP_SMALL_ROWS(8, 2)

/* True when the rows were short enough, and done. */
static inline bool exp_small_rows(const small_rows *w) {
  static void (*const by_vectors[])(const small_rows *) = {exp_small_rows_1, exp_small_rows_2, exp_small_rows_3, exp_small_rows_4,
                                                           exp_small_rows_5, exp_small_rows_6, exp_small_rows_7, exp_small_rows_8};
  if (w->n == 0 || w->n > (size_t)SMALL_VECTORS * LANES) return false;
  by_vectors[(w->n - 1) / LANES](w);
  if (w->stream) v_stream_end();
  return true;
}

SMI bool small_lines(const real *y, ptrdiff_t step, size_t n) {
  return (uintptr_t)y % 64 == 0 && step * (ptrdiff_t)sizeof(real) % 64 == 0 && n * sizeof(real) % 64 == 0;
}

/* As exp_body.small. */
static inline bool exp_small_call(const row_kernel *kernel, row_call *c) {
  small_rows w = {c->rows, c->n, c->src[0], c->dst[0], c->src_step[0], c->dst_step[0], c, kernel, false};
  w.stream = c->bypass && small_lines(w.y, w.y_step, w.n);
  return exp_small_rows(&w);
}

#endif
