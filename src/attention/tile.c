/* attention/tile.c - the inner loops of attention, at every height of a block (tile.h). */
#include "tile.h"

real score_block(int rows, const real *q, const real *k, int keys, int64_t d, const real *scale, real *z,
                 real *top) {
  return BY_HEIGHT(rows, score_some, q, k, keys, d, scale, z, top);
}

real score_few(int rows, const real *const *q, const real *k, int64_t pitch, int keys, int64_t d,
               const real *scale, real *z, real *top) {
  return BY_HEIGHT(rows, score_narrow, q, k, pitch, keys, d, scale, z, top);
}

real score_rows(int rows, const real *const *q, const rows_at *k, int keys, int64_t d, const real *scale,
                real *z, real *top) {
  return BY_STORE(rows, k->store, score_direct, q, k, keys, d, scale, z, top);
}

void values_block(int rows, const real *w, const rows_at *v, int keys, real *o, int64_t o_pitch,
                  int64_t columns) {
  if (v->next) BY_STORE(rows, v->store, values_rows, true, w, BY_ROWS, v, keys, o, o_pitch, columns);
  else BY_HEIGHT(rows, values_rows, REAL_STORE, false, w, BY_ROWS, v, keys, o, o_pitch, columns);
}
