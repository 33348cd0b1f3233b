/* engine/exp_columns.h - softmax of rows that lie side by side: element i of row c is x[i * pitch + c]. A vector holds LANES rows, so nothing is
 * turned over, and memory is read and written in whole lines. The 64 lanes of the contract become 64 sums for every row.
 *
 * Three passes over a strip of rows: maxima, sums, weights. Bits are those of rows that lie any other way. */
#ifndef SMX_ENGINE_EXP_COLUMNS_H
#define SMX_ENGINE_EXP_COLUMNS_H
#include "exp_rows.h"

enum { STRIP = ROW_STRIP / 64 }; /* vectors of the widest strip */

typedef struct strip {
  const real *x;
  real *y;
  ptrdiff_t x_pitch, y_pitch;
  ptrdiff_t ahead; /* bytes to what is fetched ahead of its use */
  size_t n;
  int vectors, last; /* rows in the last vector */
  bool stream;       /* y is written past the caches, in whole lines */
  vreal max[STRIP], ref[STRIP], inv[STRIP], tiny[STRIP], one[STRIP];
  double total[STRIP * LANES];
} strip;

/* Sees vector v of element i: a macro for the reason of WALK. Absent lanes are loaded as 0. */
#define EACH_VECTOR(s, i, STEP) \
  { \
    const real *x_ = (s)->x + (ptrdiff_t)(i) * (s)->x_pitch; \
    const char *ahead_ = (const char *)x_ + (s)->ahead; \
    _Pragma("GCC unroll 4") for (int v = 0; v < (s)->vectors - 1; v++) { \
      v_prefetch(ahead_ + v * 64); \
      STEP(v, v_load(x_ + v * LANES)) \
    } \
    STEP((s)->vectors - 1, at(x_, (size_t)((s)->vectors - 1) * LANES, (s)->last)) \
  }

/* False when a row is not an ordinary one: nothing valid, +inf, scores out of range. */
SMI bool strip_refs(strip *s) {
  vmask odd = v_lt(v_set1(0), v_set1(0));
  for (int v = 0; v < s->vectors; v++) s->max[v] = v_set1(-R_INF);
#define STEP(v, value) s->max[v] = v_max(value, s->max[v]);
  for (size_t i = 0; i < s->n; i++) EACH_VECTOR(s, i, STEP)
#undef STEP
  for (int v = 0; v < s->vectors; v++) {
    odd = m_or(odd, m_or(v_lt(s->max[v], v_set1(-524288)), v_lt(v_set1(524288), s->max[v])));
    s->ref[v] = v_sub(exp_k(s->max[v]), v_set1(1));
  }
  return !m_any(odd);
}

SMI vreal strip_term(vreal x, vreal ref) {
  vreal k = exp_k(x);
  return v_scale(exp_poly(exp_reduce(x, k)), v_sub(k, ref));
}

/* Adds one group's sums to the totals of the rows. */
SMI void strip_group(strip *s, size_t first, size_t n, vreal acc[BLOCK][STRIP]) {
  for (int q = 0; q < BLOCK; q++)
    for (int v = 0; v < s->vectors; v++) acc[q][v] = v_set1(0);
  for (size_t step = 0; step < PAGE && step < n; step += BLOCK)
    for (size_t page = step; page < n; page += PAGE) {
      const size_t rows = n - page < BLOCK ? n - page : BLOCK;
      for (size_t q = 0; q < rows; q++) {
#define STEP(v, value) acc[q][v] = v_add(acc[q][v], strip_term(value, s->ref[v]));
        EACH_VECTOR(s, first + page + q, STEP)
#undef STEP
      }
    }
  for (int half = BLOCK / 2; half; half /= 2)
    for (int q = 0; q < half; q++)
      for (int v = 0; v < s->vectors; v++) acc[q][v] = v_add(acc[q][v], acc[q + half][v]);
  for (int v = 0; v < s->vectors; v++) {
    real sum[LANES];
    v_store(sum, acc[0][v]);
    for (int c = 0; c < LANES; c++) s->total[v * LANES + c] += (double)sum[c];
  }
}

/* The scalars of every row; false when a row has a NaN. */
SMI bool strip_settle(strip *s) {
  double check = 0;
  for (int v = 0; v < s->vectors; v++) {
    real inv[LANES], tiny[LANES], one[LANES];
    for (int c = 0; c < LANES; c++) {
      double sum = s->total[v * LANES + c];
      check += sum - sum;
      inv[c] = (real)(1.0 / sum), tiny[c] = (real)((double)R_TINY * sum), one[c] = (real)sum;
    }
    s->inv[v] = v_load(inv), s->tiny[v] = v_load(tiny), s->one[v] = v_load(one);
  }
  return check == 0;
}

SMI vreal strip_weight(const strip *s, int v, vreal x) {
  vreal e = strip_term(x, s->ref[v]), y = v_flush(v_mul(e, s->inv[v]), e, s->tiny[v]);
  return v_select(v_eq(e, s->one[v]), v_set1(1), y);
}
SMI void strip_emit(const strip *s) {
  for (size_t i = s->n; i-- > 0;) { /* the last elements read are the ones still in the caches */
    real *y = s->y + (ptrdiff_t)i * s->y_pitch;
#define STREAM(v, value) v_stream(y + (v)*LANES, strip_weight(s, v, value));
#define STORE(v, value) put(y, (size_t)(v)*LANES, (v) < s->vectors - 1 ? LANES : s->last, strip_weight(s, v, value));
    if (s->stream) EACH_VECTOR(s, i, STREAM)
    else EACH_VECTOR(s, i, STORE)
#undef STREAM
#undef STORE
  }
  if (s->stream) v_stream_end();
}

/* As row_kernel.columns, for default parameters. */
static inline bool exp_columns(const row_call *c, size_t count, const void *x, ptrdiff_t x_pitch, void *y, ptrdiff_t y_pitch,
                               void *scratch) {
  strip s;
  s.x = x, s.y = y, s.x_pitch = x_pitch, s.y_pitch = y_pitch, s.n = c->n;
  s.ahead = 2 * x_pitch * (ptrdiff_t)sizeof(real);
  s.vectors = (int)((count - 1) / LANES + 1), s.last = (int)(count - (size_t)(s.vectors - 1) * LANES);
  s.stream = c->bypass && (uintptr_t)y % 64 == 0 && y_pitch % LANES == 0 && s.last == LANES;
  for (size_t r = 0; r < (size_t)s.vectors * LANES; r++) s.total[r] = 0;
  if (!strip_refs(&s)) return false;
  for (size_t g = 0; g < s.n; g += GROUP) strip_group(&s, g, group_size(g, s.n), scratch);
  if (!strip_settle(&s)) return false;
  s.ahead = -s.ahead;
  strip_emit(&s);
  return true;
}

#endif
