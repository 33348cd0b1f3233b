/* pool/ops_ada.c - the weights of AdaPool, windows side by side (formulas: functions_ada.c). */
#include "ada.h"
#include "engine/loops.h"

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
  return v_div(v_mul(v_set1(2), r), v_add(one, v_mul(r, r)));
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
#endif
