/* row/exp_small.h - softmax of rows that fit registers, several at a time, so that their horizontal steps overlap. Same lanes and fold as
 * everywhere; lanes that no element reaches are +0 and left out of the additions. */
#ifndef SMX_ROW_EXP_SMALL_H
#define SMX_ROW_EXP_SMALL_H
#include "exp_rows.h"

SMI real small_fold(vreal *e, const int V) {
  int live = V < VPB ? V : VPB;
  for (int v = VPB; v < V; v++) e[v % VPB] = v_add(e[v % VPB], e[v]);
#pragma GCC unroll 4
  for (int h = VPB / 2; h; h /= 2) {
    for (int j = 0; j < h; j++)
      if (j + h < live) e[j] = v_add(e[j], e[j + h]);
    if (live > h) live = h;
  }
  return v_hsum(e[0]);
}

/* Rows of V vectors, the last with `last` elements, R at a time. */
SMI void exp_small(const row_kernel *kernel, row_call *c, size_t row, const int V, const int R) {
  const real *x = (const real *)c->src[0] + (ptrdiff_t)row * c->src_step[0];
  real *y = (real *)c->dst[0] + (ptrdiff_t)row * c->dst_step[0];
  ptrdiff_t xs = c->src_step[0], ys = c->dst_step[0];
  int last = (int)(c->n - (size_t)(V - 1) * LANES);
  vreal e[R][V], d;
  real sum[R];
  bool plain = true;
  for (int a = 0; a < R; a++) {
    for (int v = 0; v < V; v++)
      e[a][v] = v < V - 1 ? v_load(x + a * xs + v * LANES) : v_load_n(x + a * xs + v * LANES, last, -R_INF);
    vreal max = e[a][0];
    for (int v = 1; v < V; v++) max = v_max(e[a][v], max);
    real top = v_hmax(max);
    plain &= top >= (real)-524288 && top <= (real)524288;
    vreal ref = v_sub(exp_k(v_set1(top)), v_set1(1)), acc[V];
    for (int v = 0; v < V; v++) {
      vreal k = exp_k(e[a][v]);
      d = v_sub(k, ref);
      acc[v] = e[a][v] = v_scale(exp_poly(exp_reduce(e[a][v], k)), d);
    }
    sum[a] = small_fold(acc, V);
    plain &= sum[a] == sum[a];
  }
  for (int a = 0; a < R; a++) {
    if (!plain) {
      exp_program_row(kernel, c, row + (size_t)a);
      continue;
    }
    exp_row r = {.inv = (real)(1.0 / (double)sum[a]), .tiny = (real)((double)R_TINY * (double)sum[a]), .one = sum[a]};
    for (int v = 0; v < V; v++) put(y + a * ys, (size_t)v * LANES, v < V - 1 ? LANES : last, exp_weight(e[a][v], &r, true));
  }
}

#define EXP_SMALL_ROWS(V, R) \
  NOINLINE void exp_small_rows_##V(const row_kernel *kernel, row_call *c) { \
    size_t row = 0; \
    for (; row + R <= c->rows; row += R) exp_small(kernel, c, row, V, R); \
    for (; row < c->rows; row++) exp_small(kernel, c, row, V, 1); \
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
static bool exp_small_rows(const row_kernel *kernel, row_call *c) {
  static void (*const by_vectors[])(const row_kernel *, row_call *) = {exp_small_rows_1, exp_small_rows_2, exp_small_rows_3, exp_small_rows_4,
                                                                       exp_small_rows_5, exp_small_rows_6, exp_small_rows_7, exp_small_rows_8};
  if (c->n == 0 || c->n > 8 * LANES) return false;
  by_vectors[(c->n - 1) / LANES](kernel, c);
  return true;
}

#endif
