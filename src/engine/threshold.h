/* engine/threshold.h - weights whose level is found without sorting: sparsemax, entmax, normmax,
 * which are zero below a threshold, and entmax of alpha < 1, which is nowhere zero.
 *
 *     d_i = x_i - max x,  v_i = [r + kappa d_i]+,  y_i = v_i^power,
 *     and r such that sum_i v_i^(power norm) = 1; kappa and power have the same sign.
 *
 * Only elements with d > -1 / kappa can have a weight (all, for kappa < 0). The maximum is found
 * first, then those elements are collected in a list; typical rows have few. Newton's method on the
 * list, in double and in index order, gives r. If there are more than LIST, every step of the
 * search is a pass over the row, summed in lanes as everywhere, and a search on the first FEW of
 * them gives the start. Which of the two is used depends on the row alone, so the bits do too. sum
 * v^(power norm) is convex in r for power norm >= 1 and for kappa < 0: Newton from the largest
 * weight 1 comes down to the root and never passes it. Otherwise the search bisects.
 *
 * There (kappa above 1) a weight can depend on more digits of r than a double has: for alpha = 10 a
 * y of 10^-4 is a v of 10^-36. If that shows in the sum, d is counted from the edge, the smallest
 * element with a weight, and r is the v of the edge: the search continues with its weight, in which
 * the sum is convex.
 *
 * For small kappa r is close to 1; u = (r - 1) / kappa is kept in its place. For large kappa r can
 * be as small as n^-kappa, out of the range of a float: such a row is computed as if it were 2^grow
 * times as large, r, d and v alike, and its weights are multiplied by 2^(-grow power).
 *
 * log v, power and kappa have a low part: y is e to a product of them, which can be 80. */
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
 * makes a weight of a power of v; and whether max is the edge. */
enum { THRESHOLD_LIFT, THRESHOLD_BELOW, THRESHOLD_SUM, THRESHOLD_GROWN, THRESHOLD_FACTOR, THRESHOLD_EDGED };

enum {
  THRESHOLD_COLLECT = 100,
  THRESHOLD_SEARCH,
  THRESHOLD_EDGE_FIND,
  THRESHOLD_EDGE_TRY,
  THRESHOLD_EDGE_SEARCH,
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

/* Of consts.v; *L: the low part of what stands before it. */
enum {
  THRESHOLD_H,
  THRESHOLD_L,
  THRESHOLD_U,
  THRESHOLD_UL,
  THRESHOLD_KAPPA,
  THRESHOLD_KAPPA_L,
  THRESHOLD_POWER,
  THRESHOLD_POWER_L,
  THRESHOLD_TOP,   /* what d is counted from */
  THRESHOLD_FLOOR, /* elements below it have no weight */
  THRESHOLD_INV,
  THRESHOLD_ONE,
  THRESHOLD_GROW, /* 2^(grow / 2), twice a factor of d */
  THRESHOLD_DOWN  /* 2^(-grow power) */
};

SMI void threshold_split(double x, real *high, real *low) {
  *high = (real)x;
  *low = (real)(x - (double)*high);
}

SMI void threshold_consts(consts *k, double lift, double below, int grow, double down, double max,
                          bool edge) {
  const double large = d_power_of_two(grow);
  threshold_split(lift * large, k->v + THRESHOLD_H, k->v + THRESHOLD_L);
  threshold_split(below + lift * (large - 1), k->v + THRESHOLD_U, k->v + THRESHOLD_UL);
  k->v[THRESHOLD_TOP] = (real)max;
  k->v[THRESHOLD_FLOOR] = edge ? (real)max : -R_INF;
  k->v[THRESHOLD_GROW] = r_power_of_two(grow / 2);
  k->v[THRESHOLD_DOWN] = (real)down;
}
SMI void threshold_power_consts(consts *k, double power) {
  threshold_split(power, k->v + THRESHOLD_POWER, k->v + THRESHOLD_POWER_L);
}
SMI void threshold_shape_consts(consts *k, const threshold_shape *t) {
  threshold_split(t->kappa, k->v + THRESHOLD_KAPPA, k->v + THRESHOLD_KAPPA_L);
  threshold_power_consts(k, t->power);
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
/* A number in two. */
typedef struct threshold_pair {
  vreal h, l;
} threshold_pair;

/* kappa (d + at), d + lost and `at` being pairs; the high part as threshold_signed has it. */
SMI threshold_pair threshold_times(vreal d, vreal lost, const consts *k, int at) {
  const vreal kappa = v_set1(k->v[THRESHOLD_KAPPA]), by = v_set1(k->v[at]);
  const vreal sum = v_add(d, by), back = v_sub(sum, d), rest = v_add(lost, v_set1(k->v[at + 1]));
  const vreal a = v_add(sum, rest), h = v_mul(kappa, a);
  vreal less = v_add(v_sub(d, v_sub(sum, back)), v_sub(by, back));
  less = v_add(less, v_sub(rest, v_sub(a, sum)));
  const vreal l = v_fma(v_set1(k->v[THRESHOLD_KAPPA_L]), a, v_fma(kappa, a, v_sub(v_set1(0), h)));
  return (threshold_pair){h, v_fma(kappa, less, l)};
}
/* v = kappa (d + r / kappa) = 1 + kappa (d + u), 0 where there is no weight, and its logarithm,
 * with r and d scaled by 2^grow; without the logarithm as they are. */
SMI vreal threshold_v(vreal x, const consts *k, threshold_pair *log) {
  if (!log) return threshold_linear_v(x, k);
  const vreal top = v_set1(k->v[THRESHOLD_TOP]), zero = v_set1(0), one = v_set1(1), far = v_sub(x, top);
  const vreal d = threshold_grown(far, k), lost = threshold_grown(threshold_lost(x, top, far, false), k);
  const threshold_pair whole = threshold_times(d, lost, k, THRESHOLD_H),
                       w = threshold_times(d, lost, k, THRESHOLD_U);
  const vmask below = v_lt(x, v_set1(k->v[THRESHOLD_FLOOR])),
              live = m_and(m_and(v_lt(v_set1(R_TINY), whole.h), v_lt(whole.h, v_set1(R_INF))), m_not(below));
  const vreal v = v_select(live, whole.h, zero), safe = v_select(live, whole.h, one);
  vmask near = m_and(m_and(v_lt(v_set1((real)-0.29), w.h), v_lt(w.h, v_set1((real)0.42))), live);
  vreal near_low, far_low;
  const vreal near_log = log_1pf_pair(v_select(near, w.h, zero), &near_low),
              far_log = v_log_scaled_pair(safe, zero, &far_low);
  const vreal lacks = v_div(v_select(near, w.l, v_select(live, whole.l, zero)), safe);
  log->h = v_select(near, near_log, far_log);
  log->l = v_add(v_select(near, near_low, far_low), lacks);
  return v;
}
/* v^(power + low). */
SMI vreal threshold_power(vreal v, threshold_pair log, real power, real low) {
  const vreal p = v_set1(power), t = v_mul(log.h, p);
  const vreal rest = v_fma(log.h, v_set1(low), v_fma(log.l, p, v_fma(log.h, p, v_sub(v_set1(0), t))));
  const vreal y = v_exp(t);
  return v_select(v_eq(v, v_set1(0)), v_set1(0), v_fma(y, rest, y));
}

/* The weight of v, but for what it was grown. */
SMI vreal threshold_weight(vreal v, threshold_pair log, const consts *k) {
  return threshold_power(v, log, k->v[THRESHOLD_POWER], k->v[THRESHOLD_POWER_L]);
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
