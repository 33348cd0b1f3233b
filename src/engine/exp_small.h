/* engine/exp_small.h - softmax of rows that fit registers, several at a time, so that their horizontal steps overlap. Same lanes and fold as
 * everywhere; lanes that no element reaches are +0 and left out of the additions. */
#ifndef SMX_ENGINE_EXP_SMALL_H
#define SMX_ENGINE_EXP_SMALL_H
#include "exp_rows.h"

enum { SMALL_VECTORS = 8, MAX_TOGETHER = 4 };

SMI real small_fold(vreal *e, const int V) {
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
  return v_hsum(e[0]);
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

/* Rows of V vectors, R at a time. */
SMI void exp_small(const small_rows *w, size_t row, const int V, const int R) {
  const real *x = w->x + (ptrdiff_t)row * w->x_step;
  real *y = w->y + (ptrdiff_t)row * w->y_step;
  const int last = (int)(w->n - (size_t)(V - 1) * LANES);
  vreal e[MAX_TOGETHER][SMALL_VECTORS]; /* of which R and V are used: constants, so all of it is registers */
  real sum[MAX_TOGETHER] = {0};
  bool plain = true;
#pragma GCC unroll 8
  for (int a = 0; a < R; a++, x += w->x_step) {
    vreal acc[SMALL_VECTORS], max;
#pragma GCC unroll 8
    for (int v = 0; v < V - 1; v++) e[a][v] = v_load(x + v * LANES);
    e[a][V - 1] = last == LANES ? v_load(x + (V - 1) * LANES) : v_load_n(x + (V - 1) * LANES, last, -R_INF);
    max = e[a][0];
#pragma GCC unroll 8
    for (int v = 1; v < V; v++) max = v_max(e[a][v], max);
    real top = v_hmax(max);
    plain &= top >= (real)-524288 && top <= (real)524288;
    vreal ref = v_sub(exp_k(v_set1(top)), v_set1(1));
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      vreal k = exp_k(e[a][v]);
      acc[v] = e[a][v] = v_scale(exp_poly(exp_reduce(e[a][v], k)), v_sub(k, ref));
    }
    sum[a] = small_fold(acc, V);
    plain &= sum[a] == sum[a];
  }
  if (!plain) {
    for (int a = 0; a < R; a++) small_odd_row(w, row + (size_t)a);
    return;
  }
#pragma GCC unroll 8
  for (int a = 0; a < R; a++, y += w->y_step) {
    const exp_row r = {.inv = (real)(1.0 / (double)sum[a]), .tiny = R_TINY * sum[a], .one = sum[a]};
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      vreal weight = exp_weight(e[a][v], &r, true);
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
EXP_SMALL_ROWS(3, 2)
EXP_SMALL_ROWS(4, 2)
EXP_SMALL_ROWS(5, 2)
EXP_SMALL_ROWS(6, 2)
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
