/* pool/ops_ada.c - the weights of AdaPool, windows side by side (formulas: functions_ada.c). */
#include "ada.h"
#include "engine/loops.h"
#include "rank.h"

#if SMX_REAL == 64
#define EACH_COLUMN(a, i, cnt) \
  for (int64_t i = 0, cnt = lanes_left((size_t)(a)->wide); i < (a)->wide; \
       i += LANES, cnt = lanes_left((size_t)((a)->wide - i)))

SMI vreal cell(const pool_ada_block *a, const double *matrix, int64_t place, int64_t i, int cnt) {
  return at(matrix + place * a->wide, (size_t)i, cnt);
}
/* 1 or 0. */
SMI vmask is_there(const pool_ada_block *a, int64_t place, int64_t i, int cnt) {
  return v_eq(a->there ? cell(a, a->there, place, i, cnt) : v_set1(1), v_set1(1));
}

/* Of very large cells the sum overflows, and not their mean. */
SMI vreal mean_of(const pool_ada_block *a, int64_t i, int cnt, vreal *count) {
  vreal sum = v_set1(0), n = v_set1(0), mean = v_set1(0);
  for (int64_t p = 0; p < a->places; p++) {
    sum = v_add(sum, cell(a, a->x, p, i, cnt));
    if (a->there) n = v_add(n, cell(a, a->there, p, i, cnt));
  }
  if (!a->there) n = v_set1((real)a->places);
  *count = n;
  const vmask some = v_lt(v_set1(0), n), finite = v_eq(v_sub(sum, sum), v_set1(0));
  const vreal plain = v_select(some, v_div(sum, n), v_set1(0));
  if (!m_any(m_not(finite))) return plain;
  for (int64_t p = 0; p < a->places; p++) mean = v_add(mean, v_div(cell(a, a->x, p, i, cnt), n));
  return v_select(finite, plain, mean);
}

/* With r = smaller / larger, 1 of two zeros: 2 r / (1 + r^2). */
SMI vreal dice_of(vreal x, vreal mean) {
  const vreal size = v_abs(x), other = v_abs(mean), most = v_max(size, other), one = v_set1(1);
  const vreal none = v_select(v_eq(most, v_set1(0)), one, v_set1(0));
  const vreal r = v_div(v_add(v_min(other, size), none), v_add(most, none));
  return v_div(v_add(r, r), v_add(one, v_mul(r, r)));
}

void SMX_FN(pool_ada_scores)(const pool_ada_block *a) {
  const vreal hidden = v_set1(-R_INF);
  EACH_COLUMN(a, i, cnt) {
    vreal count, top = hidden;
    const vreal mean = mean_of(a, i, (int)cnt, &count);
    for (int64_t p = 0; p < a->places; p++) {
      const vmask there = is_there(a, p, i, (int)cnt);
      const vreal x = cell(a, a->x, p, i, (int)cnt), seen = v_select(there, x, hidden);
      put(a->w + p * a->wide, (size_t)i, (int)cnt, v_select(there, dice_of(x, mean), hidden));
      top = v_select(m_or(v_lt(top, seen), m_not(v_eq(seen, seen))), seen, top);
    }
    for (int64_t p = 0; p < a->places; p++) {
      const vreal far = v_sub(cell(a, a->x, p, i, (int)cnt), top); /* a NaN where no cell is there */
      put(a->e + p * a->wide, (size_t)i, (int)cnt, v_select(is_there(a, p, i, (int)cnt), far, hidden));
    }
    put(a->mean, (size_t)i, (int)cnt, mean), put(a->count, (size_t)i, (int)cnt, count);
    put(a->top, (size_t)i, (int)cnt, top);
  }
}

void SMX_FN(pool_ada_weights)(const pool_ada_block *a, double *w, double *sum) {
  EACH_COLUMN(a, i, cnt) {
    vreal all = v_set1(0), mean = v_set1(0);
    for (int64_t p = 0; p < a->places; p++) all = v_add(all, cell(a, w, p, i, (int)cnt));
    const vmask some = v_lt(v_set1(0), at(a->count, (size_t)i, (int)cnt));
    all = v_select(some, v_div(v_set1(1), all), v_set1(0));
    for (int64_t p = 0; p < a->places; p++) {
      const vreal weight = v_mul(cell(a, w, p, i, (int)cnt), all);
      put(w + p * a->wide, (size_t)i, (int)cnt, weight);
      mean = v_add(mean, v_mul(weight, cell(a, a->x, p, i, (int)cnt)));
    }
    put(sum, (size_t)i, (int)cnt, mean);
  }
}

/* ---- windows of four cells that are all there ---- */

enum { FOUR = 4, FLAT = 700 };
#define EACH_CELL(k) _Pragma("GCC unroll 4") for (int k = 0; k < FOUR; k++)

/* What pool_ada_weights() does. */
SMI vreal weigh_four(const vreal *x, vreal *w) {
  vreal all = v_set1(0), mean = v_set1(0);
  EACH_CELL(k) all = v_add(all, w[k]);
  all = v_div(v_set1(1), all);
  EACH_CELL(k) w[k] = v_mul(w[k], all), mean = v_add(mean, v_mul(w[k], x[k]));
  return mean;
}
SMI void put_four(const pool_ada_block *a, double *matrix, int64_t i, int cnt, const vreal *x) {
  EACH_CELL(k) put(matrix + k * a->wide, (size_t)i, cnt, x[k]);
}

#ifndef V_PORTABLE

/* False: the mean of some window is no finite number, or a cell is so far below the largest that
 * its exponential could be no normal one. */
SMI bool take_four(const pool_ada_block *a, int64_t i, int cnt, bool keep, double *dice, double *own) {
  vreal x[FOUR], score[FOUR], far[FOUR], w[FOUR], e[FOUR], sum = v_set1(0);
  EACH_CELL(k) x[k] = cell(a, a->x, k, i, cnt);
  EACH_CELL(k) sum = v_add(sum, x[k]);
  const vreal mean = v_mul(sum, v_set1((real)1 / FOUR)), top = v_max(v_max(x[0], x[1]), v_max(x[2], x[3]));
  EACH_CELL(k) score[k] = dice_of(x[k], mean), far[k] = v_sub(x[k], top);
  v_exps_normal(far, FOUR, NULL, 1, e);
  v_exps_normal(score, FOUR, NULL, 1, w);
  put(own, (size_t)i, cnt, weigh_four(x, e)), put(dice, (size_t)i, cnt, weigh_four(x, w));
  if (keep) {
    put_four(a, a->w, i, cnt, w), put_four(a, a->e, i, cnt, e), put(a->top, (size_t)i, cnt, top);
    put(a->mean, (size_t)i, cnt, mean), put(a->count, (size_t)i, cnt, v_set1(FOUR));
  }
  const vreal low = v_min(v_min(far[0], far[1]), v_min(far[2], far[3]));
  return !m_any(m_not(m_and(v_eq(v_sub(mean, mean), v_set1(0)), v_lt(v_set1(-FLAT), low))));
}
bool SMX_FN(pool_ada_four)(const pool_ada_block *a, bool keep, double *dice, double *own) {
  EACH_COLUMN(a, i, cnt) if (!take_four(a, i, (int)cnt, keep, dice, own)) return false;
  return true;
}
#else
bool SMX_FN(pool_ada_four)(const pool_ada_block *a, bool keep, double *dice, double *own) { return false; }
#endif
#endif
