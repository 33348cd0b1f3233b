/* engine/exp_columns.c - softmax of rows that lie side by side (exp_columns.h). */
#include "exp_columns.h"

enum {
  STRIP_MINMAX = 64, /* elements that give the first references */
  STRIP_FAR = 60,    /* powers of two that a row may rise above them */
  STRIP_PAIR = 2     /* elements of every row taken together; with four, L1 holds too little else */
};

typedef struct strip {
  const real *x;
  real *y;
  ptrdiff_t x_pitch, y_pitch;
  size_t n;
  int vectors, last; /* rows in the last vector */
  bool stream;       /* y is written with streaming stores, in whole lines */
  vreal low;         /* the lowest exponent of a term, relative to the reference it was taken with */
  vreal *lanes;      /* lane q of vector v of the rows: lanes[q * lane_pitch + v] */
  int lane_pitch;    /* odd, so that lanes do not meet in the same sets of L1 */
  vreal *max, *scale_exp, *inv, *tiny, *one;
  double *total;
} strip;

/* STEP(v, rows in vector v): two copies, for whole vectors and for the last. */
#define EACH_VECTOR(s, STEP) \
  { \
    int v = 0; \
    for (; v < (s)->vectors - 1; v++) STEP(v, LANES) \
    STEP(v, (s)->last) \
  }

/* False when a row is not an ordinary one: nothing valid, +inf, scores out of range. */
SMI bool strip_in_range(const strip *s) {
  vmask special = v_lt(v_set1(0), v_set1(0));
  for (int v = 0; v < s->vectors; v++)
    special = m_or(special, m_or(v_lt(s->max[v], v_set1(-524288)), v_lt(v_set1(524288), s->max[v])));
  return !m_any(special);
}

/* References from the first n elements. */
SMI bool strip_minmax(strip *s, size_t n) {
  const ptrdiff_t ahead = STRIP_PAIR * s->x_pitch;
  for (int v = 0; v < s->vectors; v++) s->max[v] = v_set1(-R_INF);
  for (size_t i = 0; i < n; i++) {
    const real *x = s->x + (ptrdiff_t)i * s->x_pitch;
#define STEP(v, cnt) \
  { \
    v_prefetch_far(x + ahead + (v)*LANES); \
    s->max[v] = v_max(at(x, (size_t)(v)*LANES, cnt), s->max[v]); \
  }
    EACH_VECTOR(s, STEP)
#undef STEP
  }
  for (int v = 0; v < s->vectors; v++) s->scale_exp[v] = v_sub(exp_k(s->max[v]), v_set1(1));
  return strip_in_range(s);
}

/* Elements of R lanes, one of each, join them. ahead: elements to those that come next. */
SMI void strip_add_vector(strip *s, const real *x, vreal *lane, int v, int cnt, const int R, ptrdiff_t ahead,
                          vreal *low) {
  const vreal scale_exp = s->scale_exp[v];
  vreal max = s->max[v];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++, x += s->x_pitch, lane += s->lane_pitch) {
    v_prefetch_far(x + ahead + v * LANES);
    const vreal value = at(x, (size_t)v * LANES, cnt), k = exp_k(value), d = v_sub(k, scale_exp);
    lane[v] = v_add(lane[v], v_scale(exp_poly(exp_reduce(value, k)), d));
    max = v_max(value, max);
    *low = v_min(v_flush(d, d, v_set1(MIN_EXP)), *low);
  }
  s->max[v] = max;
}

SMI void strip_add(strip *s, size_t i, size_t q, const int R, ptrdiff_t ahead) {
  const real *x = s->x + (ptrdiff_t)i * s->x_pitch;
  vreal *lane = s->lanes + q * (size_t)s->lane_pitch, low = s->low;
#define STEP(v, cnt) strip_add_vector(s, x, lane, v, cnt, R, ahead, &low);
  EACH_VECTOR(s, STEP)
#undef STEP
  s->low = low;
}

/* Lanes q and q + 1 through a group. */
SMI void strip_lanes(strip *s, size_t first, size_t n, size_t q) {
  for (int v = 0; v < STRIP_PAIR * s->lane_pitch; v++)
    s->lanes[q * (size_t)s->lane_pitch + (size_t)v] = v_set1(0);
  for (size_t step = q; step < PAGE && step < n; step += BLOCK)
    for (size_t i = step, next; i < n; i = next) {
      next = i + PAGE;
      const size_t then = next < n                                  ? next
                          : step + BLOCK < PAGE && step + BLOCK < n ? step + BLOCK
                                                                    : q + STRIP_PAIR;
      const ptrdiff_t ahead = ((ptrdiff_t)then - (ptrdiff_t)i) * s->x_pitch;
      if (n - i >= STRIP_PAIR) strip_add(s, first + i, q, STRIP_PAIR, ahead);
      else strip_add(s, first + i, q, 1, ahead);
    }
}

/* Adds one group's sums to the totals of the rows. Lanes without elements are +0 and left out. */
SMI void strip_group(strip *s, size_t first, size_t n) {
  const int live = n < BLOCK ? (int)n : BLOCK;
  for (size_t q = 0; q < (size_t)live; q += STRIP_PAIR) strip_lanes(s, first, n, q);
  for (int half = BLOCK / 2; half; half /= 2)
    for (int q = 0; q < half && q + half < live; q++)
      for (int v = 0; v < s->vectors; v++) {
        vreal *lane = s->lanes + q * s->lane_pitch + v;
        *lane = v_add(*lane, lane[half * s->lane_pitch]);
      }
  for (int v = 0; v < s->vectors; v++) {
    real sum[LANES];
    v_store(sum, s->lanes[v]);
    for (int c = 0; c < LANES; c++) s->total[v * LANES + c] += (double)sum[c];
  }
}

/* From here on a row's reference is its own. */
SMI vreal strip_rise(strip *s, int v) {
  const vreal own = v_sub(exp_k(s->max[v]), v_set1(1)), rise = v_sub(own, s->scale_exp[v]);
  real by[LANES];
  s->scale_exp[v] = own;
  if (!m_any(v_lt(v_set1(0), rise))) return rise;
  v_store(by, rise);
  for (int c = 0; c < LANES; c++) s->total[v * LANES + c] = d_scale(s->total[v * LANES + c], -(double)by[c]);
  return rise;
}

/* The sums of all rows; false when some might differ from those with the row's own reference. */
SMI bool strip_sums(strip *s) {
  for (int r = 0; r < s->vectors * LANES; r++) s->total[r] = 0;
  s->low = v_set1(0);
  for (size_t g = 0; g < s->n; g += GROUP) strip_group(s, g, group_size(g, s->n));
  if (!strip_in_range(s)) return false;
  vreal most = v_set1(0);
  for (int v = 0; v < s->vectors; v++) most = v_max(strip_rise(s, v), most);
  const real rise = v_hmax(most);
  return rise <= STRIP_FAR && v_hmin(s->low) - rise >= MIN_EXP;
}

/* The scalars of every row; false when a row has a NaN. */
SMI bool strip_finalize(strip *s) {
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

SMI void strip_write_vector(const strip *s, const real *x, real *y, int v, int cnt, const int R,
                            ptrdiff_t ahead, bool stream) {
  const vreal scale_exp = s->scale_exp[v], inv = s->inv[v], tiny = s->tiny[v], one = s->one[v];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++, x += s->x_pitch, y += s->y_pitch) {
    v_prefetch_far(x + ahead + v * LANES);
    const vreal value = at(x, (size_t)v * LANES, cnt), k = exp_k(value),
                e = v_scale(exp_poly(exp_reduce(value, k)), v_sub(k, scale_exp));
    const vreal weight = v_select(v_eq(e, one), v_set1(1), v_flush(v_mul(e, inv), e, tiny));
    if (stream) v_stream(y + v * LANES, weight);
    else put(y, (size_t)v * LANES, cnt, weight);
  }
}

SMI void strip_write_some(const strip *s, size_t i, const int R, bool stream) {
  const real *x = s->x + (ptrdiff_t)i * s->x_pitch;
  real *y = s->y + (ptrdiff_t)i * s->y_pitch;
  const ptrdiff_t ahead = -STRIP_PAIR * s->x_pitch;
#define STEP(v, cnt) strip_write_vector(s, x, y, v, cnt, R, ahead, stream);
  EACH_VECTOR(s, STEP)
#undef STEP
}

SMI void strip_write(const strip *s) { /* the last elements read are the ones still in the caches */
  size_t i = s->n;
  for (; i >= STRIP_PAIR; i -= STRIP_PAIR) {
    if (s->stream) strip_write_some(s, i - STRIP_PAIR, STRIP_PAIR, true);
    else strip_write_some(s, i - STRIP_PAIR, STRIP_PAIR, false);
  }
  if (i) strip_write_some(s, 0, 1, s->stream);
  if (s->stream) v_stream_end();
}

bool exp_columns(const row_call *c, size_t count, const void *x, ptrdiff_t x_pitch, void *y,
                 ptrdiff_t y_pitch, void *scratch) {
  strip s = {.x = x, .y = y, .x_pitch = x_pitch, .y_pitch = y_pitch, .n = c->n, .lanes = scratch};
  s.vectors = (int)((count - 1) / LANES + 1), s.last = (int)(count - (size_t)(s.vectors - 1) * LANES);
  s.stream = c->writing && (uintptr_t)y % 64 == 0 && y_pitch % LANES == 0 && s.last == LANES;
  s.lane_pitch = s.vectors | 1;
  s.max = s.lanes + BLOCK * s.lane_pitch, s.scale_exp = s.max + s.vectors;
  s.inv = s.scale_exp + s.vectors, s.tiny = s.inv + s.vectors, s.one = s.tiny + s.vectors;
  s.total = (double *)(void *)(s.one + s.vectors);
  const bool known = strip_minmax(&s, s.n < STRIP_MINMAX ? s.n : STRIP_MINMAX) && strip_sums(&s);
  if (!known && !(strip_minmax(&s, s.n) && strip_sums(&s))) return false;
  if (!strip_finalize(&s)) return false;
  strip_write(&s);
  return true;
}
