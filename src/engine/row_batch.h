/* engine/row_batch.h - several short rows at a time: the steps across the lanes of a vector take
 * some 40 cycles a row; of several rows they overlap, and share vectors, a quarter of the lanes
 * each. */
#ifndef SMX_ENGINE_ROW_BATCH_H
#define SMX_ENGINE_ROW_BATCH_H
#include "loops.h"

enum { ROW_BATCH = 4, QUARTER_LANES = LANES / ROW_BATCH };

/* The first steps of the fold of a row of V vectors; one vector is left. */
SMI vreal small_fold(vreal *e, const int V) {
  int live = V < VPB ? V : VPB;
#pragma GCC unroll 16
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

/* Rows of at most a page: elements, and their largest. */
SMI vreal page_at(const real *x, size_t i, int cnt) {
  return cnt == LANES ? v_load(x + i) : v_load_n(x + i, cnt, -R_INF);
}

SMI vreal page_max(const real *x, size_t n) {
  vreal max[VPB];
  UNROLL_PAGE for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF);
#define STEP(u, i, cnt) max[u] = v_max(page_at(x, i, cnt), max[u])
  FOR_EACH_VECTOR_UNROLLED(UNROLL_PAGE, 0, n, STEP)
#undef STEP
  UNROLL_PAGE for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]);
  return max[0];
}

/* Whether rows begin and end where lines of the cache do. */
SMI bool whole_lines(const void *y, ptrdiff_t y_step, size_t n) {
  return (uintptr_t)y % 64 == 0 && y_step * (ptrdiff_t)sizeof(real) % 64 == 0 && n * sizeof(real) % 64 == 0;
}

#endif
