/* engine/threshold.h - weights that are zero below a threshold, found without sorting: sparsemax,
 * entmax, normmax.
 *
 *     d_i = x_i - max x,  v_i = [r + kappa d_i]+,  y_i = v_i^power,
 *     and r in (0, 1] such that sum_i v_i^(power norm) = 1.
 *
 * Only elements with d > -1 / kappa can have a weight. The maximum is found first, then those
 * elements are collected in a list; typical rows have few. Newton's method on the list, in double
 * and in index order, gives r. If there are more than LIST, every step of the search is a pass over
 * the row, summed in lanes as everywhere, and a search on the first FEW of them gives the start.
 * Which of the two is used depends on the row alone, so the bits do too. sum v^(power norm) is
 * convex in r for power norm >= 1: Newton from r = 1 comes down to the root and never passes it.
 * Below 1 the search bisects.
 *
 * For small kappa r is close to 1; u = (r - 1) / kappa is kept in its place. For large kappa r can
 * be as small as n^-kappa, out of the range of a float: such a row is computed as if it were 2^grow
 * times as large, r, d and v alike, and its weights are multiplied by 2^(-grow power). */
#ifndef SMX_ENGINE_THRESHOLD_H
#define SMX_ENGINE_THRESHOLD_H
#include "reduce_map.h"

#define threshold_engine SMX_FN(threshold_engine)
#define threshold_pass SMX_FN(threshold_pass)
#define threshold_merge SMX_FN(threshold_merge)
#define threshold_next SMX_FN(threshold_next)

typedef struct threshold_shape {
  double kappa, power, norm;
} threshold_shape;

typedef struct threshold_body {
  threshold_shape (*shape)(const row_call *c, const span *s);
  reduce_map_body sum; /* the minmax pass, rows that need a rule, and the write loop */
  bool scaled;         /* the write loop needs THRESHOLD_SUM */
} threshold_body;

/* Of reduce_map_row.found in the write loop: r / kappa, u, the sum of y, grow, and the factor that
 * makes a weight of a power of v. */
enum { THRESHOLD_LIFT, THRESHOLD_BELOW, THRESHOLD_SUM, THRESHOLD_GROWN, THRESHOLD_FACTOR };

enum {
  THRESHOLD_COLLECT = 100,
  THRESHOLD_SEARCH,
  THRESHOLD_SCALE,
  THRESHOLD_LIST = ROW_LIST,
  THRESHOLD_FEW = 512,
  THRESHOLD_STEPS = 200
};

SMI double d_power_of_two(int e) {
  const int64_t b = (int64_t)(1023 + e) << 52;
  double x;
  memcpy(&x, &b, 8);
  return x;
}

/* Of consts.v. */
enum {
  THRESHOLD_H,
  THRESHOLD_L,
  THRESHOLD_U,
  THRESHOLD_UL,
  THRESHOLD_KAPPA,
  THRESHOLD_POWER,
  THRESHOLD_TOP,
  THRESHOLD_INV,
  THRESHOLD_ONE,
  THRESHOLD_GROW, /* 2^(grow / 2), twice a factor of d */
  THRESHOLD_DOWN  /* 2^(-grow power) */
};

SMI void threshold_split(double x, real *high, real *low) {
  *high = (real)x;
  *low = (real)(x - (double)*high);
}

SMI void threshold_consts(consts *k, double lift, double below, int grow, double down, double max) {
  const double large = d_power_of_two(grow);
  threshold_split(lift * large, k->v + THRESHOLD_H, k->v + THRESHOLD_L);
  threshold_split(below + lift * (large - 1), k->v + THRESHOLD_U, k->v + THRESHOLD_UL);
  k->v[THRESHOLD_TOP] = (real)max;
  k->v[THRESHOLD_GROW] = r_power_of_two(grow / 2);
  k->v[THRESHOLD_DOWN] = (real)down;
}
SMI void threshold_shape_consts(consts *k, const threshold_shape *t) {
  k->v[THRESHOLD_KAPPA] = (real)t->kappa;
  k->v[THRESHOLD_POWER] = (real)t->power;
}

/* ---- the row in vectors ---- */

/* What rounding took from d = x - top: d + lost is exact. Ordered (Dekker 1971): no x that matters
 * has a larger exponent than top. */
SMI vreal threshold_lost(vreal x, vreal top, vreal d, bool ordered) {
  if (ordered) return v_sub(x, v_add(d, top));
  vreal back = v_sub(d, x);
  return v_sub(v_sub(x, v_sub(d, back)), v_add(top, back));
}
/* The same times 2^grow; an element beyond the range has no weight. */
SMI vreal threshold_grown(vreal d, const consts *k) {
  const vreal grow = v_set1(k->v[THRESHOLD_GROW]);
  return v_mul(v_mul(d, grow), grow);
}
/* kappa (d + r / kappa), of either sign. */
SMI vreal threshold_signed(vreal x, const consts *k, bool ordered) {
  vreal top = v_set1(k->v[THRESHOLD_TOP]), d = v_sub(x, top), lost = threshold_lost(x, top, d, ordered);
  return v_mul(v_set1(k->v[THRESHOLD_KAPPA]),
               v_add(v_add(d, v_set1(k->v[THRESHOLD_H])), v_add(lost, v_set1(k->v[THRESHOLD_L]))));
}
SMI vreal threshold_linear_v(vreal x, const consts *k) {
  vreal v = threshold_signed(x, k, false);
  return v_select(v_lt(v_set1(R_TINY), v), v, v_set1(0));
}
/* v = kappa (d + r / kappa) = 1 + kappa (d + u), 0 where there is no weight, and its logarithm,
 * with r and d scaled by 2^grow; without the logarithm as they are. */
SMI vreal threshold_v(vreal x, const consts *k, vreal *log) {
  if (!log) return threshold_linear_v(x, k);
  vreal top = v_set1(k->v[THRESHOLD_TOP]), kappa = v_set1(k->v[THRESHOLD_KAPPA]), far = v_sub(x, top);
  vreal d = threshold_grown(far, k), lost = threshold_grown(threshold_lost(x, top, far, false), k);
  vreal v = v_mul(kappa, v_add(v_add(d, v_set1(k->v[THRESHOLD_H])), v_add(lost, v_set1(k->v[THRESHOLD_L]))));
  vreal w = v_mul(kappa, v_add(v_add(d, v_set1(k->v[THRESHOLD_U])), v_add(lost, v_set1(k->v[THRESHOLD_UL]))));
  v = v_select(v_lt(v_set1(R_TINY), v), v, v_set1(0));
  vmask none = v_eq(v, v_set1(0)), near = m_and(v_lt(v_set1((real)-0.29), w), m_not(none));
  near = m_and(near, v_lt(w, v_set1((real)0.42)));
  vreal far_log = v_log_scaled(v_select(none, v_set1(1), v), v_set1(0));
  *log = v_select(near, log_1pf(v_select(near, w, v_set1(0))), far_log);
  return v;
}
SMI vreal threshold_power(vreal v, vreal log, real power) {
  return v_select(v_eq(v, v_set1(0)), v_set1(0), v_exp(v_mul(log, v_set1(power))));
}

/* ---- the row program: that of reduce_map.h, with the search between the minmax pass and the write
 * loop (threshold.c) ---- */
extern const row_engine threshold_engine; /* its body: a threshold_body */
void threshold_pass(const threshold_body *b, const row_call *c, row_state *st, row_part *parts);
void threshold_merge(const row_call *c, row_state *st, const row_part *parts, size_t count);
bool threshold_next(const threshold_body *b, const row_call *c, row_state *st);

#define threshold_finalize SMX_FN(threshold_finalize)
void threshold_finalize(consts *k, const span *s, const reduce_map_row *r); /* as reduce_map_body.finalize */

#endif
