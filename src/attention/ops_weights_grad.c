/* attention/ops_weights_grad.c - gradients of the kinds of attention weights that depend on more of
 * a row than lse and <do, o> tell: first measure and settle, then grad (weights.h). p is
 * e^(z - lse), dlse the gradient of lse; sums go over the visible keys of the row. Compiled once
 * per instruction set and real type. */
#include "engine.h"

#define EACH_PAIR(g, u, j) EACH_VECTOR(ROLLED, 0, (g)->n, u, j)

SMI vreal softmax_of(const grading *g, int j, vreal z) { return v_exp(v_sub(z, graded(g, STAT_LSE, j))); }

/* ---- clipped softmax ----
 *
 * dz = p (g - sum p g + dlse), g = (high - low) dp where the clip leaves the weight as it is, or
 * 0 */

/* w, and g */
SMI vreal clipped_of(const attn_call *c, vreal p, vreal dp, vreal *g) {
  const real low = (real)c->param[0], span = (real)(c->param[1] - c->param[0]);
  const vreal one = v_set1(1), y = v_fma(p, v_set1(span), v_set1(low));
  const vmask cut = m_or(v_lt(y, v_set1(0)), v_lt(one, y));
  *g = v_select(cut, v_set1(0), v_mul(dp, v_set1(span)));
  return v_min(one, v_max(v_set1(0), y));
}
void SMX_FN(clipped_measure)(const attn_call *c, int walk, const grading *g, double *sums) {
  LANE_SUM(sum);
  EACH_PAIR(g, u, j) {
    const vreal z = v_load(g->z + j), p = softmax_of(g, j, z);
    vreal part;
    clipped_of(c, p, v_load(g->dp + j), &part);
    sum[u] = v_add(sum[u], hide(z, v_mul(p, part)));
  }
  sums[0] += (double)v_fold(sum);
}
void SMX_FN(clipped_settle)(const attn_call *c, int walk, const attn_row *row, double dlse, double *sums,
                            real *stat) {
  stat[STAT_DELTA] = (real)(sums[0] - dlse);
}
SMI vreal clipped_pair(const attn_call *c, const grading *g, int j, vreal z, vreal dp, vreal *w) {
  const vreal p = softmax_of(g, j, z);
  vreal part;
  *w = clipped_of(c, p, dp, &part);
  return v_mul(p, v_sub(part, graded(g, STAT_DELTA, j)));
}
void SMX_FN(clipped_grad)(const attn_call *c, const grading *g) {
  GRAD_PAIRS(g, clipped_pair(c, g, j, z, dp, &w))
}

/* ---- shaped: dz = p (gain (dp - sum p dp) + dlse); A is what is taken from all weights ---- */

void SMX_FN(shaped_measure)(const attn_call *c, int walk, const grading *g, double *sums) {
  LANE_SUM(sum);
  EACH_PAIR(g, u, j) {
    const vreal z = v_load(g->z + j);
    sum[u] = v_add(sum[u], hide(z, v_mul(softmax_of(g, j, z), v_load(g->dp + j))));
  }
  sums[0] += (double)v_fold(sum);
}
void SMX_FN(shaped_settle)(const attn_call *c, int walk, const attn_row *row, double dlse, double *sums,
                           real *stat) {
  stat[STAT_DELTA] = (real)(c->param[1] * sums[0] - dlse);
  stat[STAT_A] = (real)(-c->param[2] * inverse(row->count));
}
SMI vreal shaped_pair(const attn_call *c, const grading *g, int j, vreal z, vreal dp, vreal *w) {
  const vreal p = softmax_of(g, j, z), gain = v_set1((real)c->param[1]);
  *w = v_fma(p, gain, graded(g, STAT_A, j));
  return v_mul(p, v_fma(gain, dp, v_sub(v_set1(0), graded(g, STAT_DELTA, j))));
}
void SMX_FN(shaped_grad)(const attn_call *c, const grading *g) {
  const bool seen = g->own >= 0 && g->own < g->n && g->z[g->own] != -R_INF;
  GRAD_PAIRS(g, shaped_pair(c, g, j, z, dp, &w))
  if (seen) g->z[g->own] += (real)c->param[0];
}

/* ---- self_adjust_range: w = (z - l) / (h - l) p ----
 *
 * dz = p ((z + 1 - l) / (h - l) dp - delta), and what l and h give to the keys that attain them, in
 * equal parts: dl = sum p dp (z - h) / (h - l)^2, dh = -sum p dp (z - l) / (h - l)^2 */

enum { LEAST, MOST, AT_LEAST, AT_MOST, SUM, PRODUCT };

/* The smallest (sign 1) or, of -z, the largest number so far, and how often it is there. */
static __attribute__((noinline)) void attain(const grading *g, real sign, double *best, double *count) {
  vreal least = v_set1((real)*best);
  LANE_SUM(times);
  EACH_PAIR(g, u, j) {
    const vreal z = v_load(g->z + j);
    least = v_min(v_select(v_hidden(z), least, v_mul(z, v_set1(sign))), least);
  }
  const real found = v_hmin(least);
  EACH_PAIR(g, u, j) {
    const vreal z = v_load(g->z + j),
                here = v_select(v_eq(v_mul(z, v_set1(sign)), v_set1(found)), v_set1(1), v_set1(0));
    times[u] = v_add(times[u], hide(z, here));
  }
  const double sum = (double)v_fold(times);
  *count = (double)found == *best ? *count + sum : sum;
  *best = (double)found;
}
void SMX_FN(self_adjust_range_measure)(const attn_call *c, int walk, const grading *g, double *sums) {
  LANE_SUM(sum);
  LANE_SUM(product);
  EACH_PAIR(g, u, j) {
    const vreal z = v_load(g->z + j), part = hide(z, v_mul(softmax_of(g, j, z), v_load(g->dp + j)));
    sum[u] = v_add(sum[u], part);
    product[u] = v_add(product[u], hide(z, v_mul(z, part)));
  }
  attain(g, 1, sums + LEAST, sums + AT_LEAST);
  attain(g, -1, sums + MOST, sums + AT_MOST);
  sums[SUM] += (double)v_fold(sum), sums[PRODUCT] += (double)v_fold(product);
}
void SMX_FN(self_adjust_range_settle)(const attn_call *c, int walk, const attn_row *row, double dlse,
                                      double *sums, real *stat) {
  const double l = sums[LEAST], h = -sums[MOST], inv = inverse(h - l);
  stat[STAT_A] = (real)l, stat[STAT_B] = (real)h;
  stat[STAT_C] = (real)(l < 0 ? (sums[PRODUCT] - h * sums[SUM]) * inv * inv / sums[AT_LEAST] : 0);
  stat[STAT_D] = (real)(h > 0 ? (l * sums[SUM] - sums[PRODUCT]) * inv * inv / sums[AT_MOST] : 0);
}
SMI vreal self_adjust_range_pair(const attn_call *c, const grading *g, int j, vreal z, vreal dp, vreal *w) {
  const vreal p = softmax_of(g, j, z), l = graded(g, STAT_A, j), h = graded(g, STAT_B, j);
  const vreal range = v_sub(h, l), inv = v_select(v_eq(range, v_set1(0)), v_set1(0), v_div(v_set1(1), range));
  const vreal u = v_mul(v_sub(z, l), inv);
  *w = v_mul(u, p);
  vreal dz = v_mul(p, v_fma(v_add(u, inv), dp, v_sub(v_set1(0), graded(g, STAT_DELTA, j))));
  dz = v_add(dz, v_select(v_eq(z, l), graded(g, STAT_C, j), v_set1(0)));
  return v_add(dz, v_select(v_eq(z, h), graded(g, STAT_D, j), v_set1(0)));
}
void SMX_FN(self_adjust_range_grad)(const attn_call *c, const grading *g) {
  GRAD_PAIRS(g, self_adjust_range_pair(c, g, j, z, dp, &w))
}

/* ---- centred: w = B (z - A) + shift, B = gain / (s + epsilon), A the mean, s the deviation ----
 *
 * dz = B (dp - C - (z - A) D), C = mean dp, D = sum dp (z - A) / (n s (s + epsilon)) */

enum { COUNT, Z, ZZ, DP, DPZ };

/* In double, as the forward engine has them: what is left of the variance may be small. */
void SMX_FN(centred_measure)(const attn_call *c, int walk, const grading *g, double *sums) {
  eight all[DPZ + 1] = {0};
  double each[8];
  for (int panel = 0; panel < g->n; panel += ATTN_PANEL) {
    real one[ATTN_PANEL], z[ATTN_PANEL], dp[ATTN_PANEL];
    for (int j = 0; j < ATTN_PANEL; j += LANES) {
      const vreal x = v_load(g->z + panel + j);
      v_store(one + j, hide(x, v_set1(1)));
      v_store(z + j, hide(x, x));
      v_store(dp + j, hide(x, v_load(g->dp + panel + j)));
    }
    EACH_EIGHT(j, ATTN_PANEL) {
      const eight x = widened(z + j), y = widened(dp + j);
      all[COUNT] += widened(one + j), all[Z] += x, all[ZZ] += x * x, all[DP] += y, all[DPZ] += x * y;
    }
  }
  for (int i = 0; i <= DPZ; i++) {
    memcpy(each, all + i, sizeof each);
    for (int x = 0; x < 8; x++) sums[i] += each[x];
  }
}
void SMX_FN(centred_settle)(const attn_call *c, int walk, const attn_row *row, double dlse, double *sums,
                            real *stat) {
  const double n = sums[COUNT], mean = sums[Z] / n, s = deviation(n, mean, sums[ZZ]);
  const double below = inverse(s + c->param[2]);
  stat[STAT_A] = (real)mean, stat[STAT_B] = (real)(c->param[0] * below), stat[STAT_C] = (real)(sums[DP] / n);
  stat[STAT_D] = (real)((sums[DPZ] - mean * sums[DP]) / n * inverse(s) * below);
}
SMI vreal centred_pair(const attn_call *c, const grading *g, int j, vreal z, vreal dp, vreal *w) {
  const vreal x = v_sub(z, graded(g, STAT_A, j)), gain = graded(g, STAT_B, j);
  *w = v_fma(x, gain, v_set1((real)c->param[1]));
  return v_mul(gain, v_fnma(x, graded(g, STAT_D, j), v_sub(dp, graded(g, STAT_C, j))));
}
void SMX_FN(centred_grad)(const attn_call *c, const grading *g) {
  GRAD_PAIRS(g, centred_pair(c, g, j, z, dp, &w))
}

/* ---- lssar: w = y^power / sum y^power, y = A s - offset, A = n / sum s, s = softplus(z) ----
 *
 * With y c in place of y, c = e^(-lse / power), the sum is 1: w = (y c)^power. With
 * X = A power c (y c)^(power - 1) (dp - delta) where y > 0: dz = sigmoid(z) (X - A D),
 * D = sum X s / n. The first walk has A c, -offset c and power, and A in place of lse: -A / 2^64
 * where s is so small that A might be out of range. */

enum { STAT_GAIN = STAT_LSE, USUAL = 15 /* power: its products are laid out at length */ };

/* softplus(z) = max(z, 0) + log(1 + e), e = e^-|z|, the logarithm as 2 s + 2 s (s^2 / 3 + s^4 / 5 +
 * ...), s = e / (2 + e) <= 1 / 3: no selection, and no power of a small s, which would be
 * subnormal. */
SMI vreal near_softplus(vreal z) {
  enum { TERMS = SMX_REAL == 32 ? 7 : 16 };
  const vreal zero = v_set1(0), least = v_set1(SMX_REAL == 32 ? (real)0x1p-40 : (real)0x1p-60);
  const vreal far = v_sub(zero, v_abs(z)), most = v_set1((real)((MIN_EXP - 0.999) * ATTN_LN2));
  vreal k, p = v_exp_pair(v_max(most, far), &k); /* of NaN, NaN */
  const vreal e = v_select(v_lt(far, most), zero, v_scale_near(p, k));
  const vreal twice = v_div(v_add(e, e), v_add(e, v_set1(2)));
  const vreal root = v_max(v_mul(twice, v_set1((real)0.5)), least), square = v_mul(root, root);
  vreal r = v_set1((real)1 / (2 * TERMS + 1));
  _Pragma("GCC unroll 16") for (int i = TERMS - 1; i > 0; i--) r =
      v_fma(r, square, v_set1((real)1 / (real)(2 * i + 1)));
  return v_add(v_max(z, zero), v_fma(twice, v_mul(square, r), twice));
}

/* 1 - e^-s, which is sigmoid(z), to full relative accuracy. Of NaN it is any number: X is NaN
 * then. */
SMI vreal sigmoid_by(vreal s) {
  const vreal e = v_expm1_pos(v_min(s, v_set1(SMX_REAL == 32 ? 20 : 40)));
  return v_div(e, v_add(e, v_set1(1)));
}

/* x^n. `least`, to the power n + 1, is the smallest normal number: what is below it
 * gives 0, so that no product is subnormal. */
SMI vreal power_of(vreal x, double n, real least) {
  vreal y = v_set1(1);
  x = v_select(v_lt(x, v_set1(least)), v_set1(0), x);
  if (n != (double)(int)n) {
    const vreal log = v_log_scaled(v_select(v_lt(v_set1(0), x), x, v_set1(1)), v_set1(0));
    return v_select(v_eq(x, v_set1(0)), x, v_exp(v_mul(v_set1((real)n), log)));
  }
  _Pragma("GCC unroll 4") for (int left = (int)n; left; left >>= 1) {
    if (left & 1) y = v_mul(y, x);
    if (left > 1) x = v_mul(x, x);
  }
  return y;
}

/* A little above what power_of wants. */
static real least_of(const attn_call *c) {
  const double log = MIN_EXP * ATTN_LN2;
  return v_first(v_exp(v_set1((real)(0.99 * log / c->param[0]))));
}

SMI vreal softplus_at(const grading *g, vreal z) { return g->held ? z : near_softplus(z); }

/* What the pairs at j have of the first walk. */
typedef struct lssar_row {
  vreal gain, less, power, delta;
} lssar_row;
SMI lssar_row lssar_row_at(const grading *g, int j) {
  return (lssar_row){graded(g, STAT_A, j), graded(g, STAT_B, j), graded(g, STAT_C, j),
                     graded(g, STAT_DELTA, j)};
}
/* w, and X */
SMI vreal lssar_part(lssar_row r, double n, real least, vreal s, vreal dp, vreal *w) {
  const vreal one = v_set1(1), y = v_fma(s, r.gain, r.less);
  const vreal rest = n == 0 ? v_select(v_lt(y, v_set1(0)), v_set1(0), one)
                            : v_select(v_eq(r.power, one), one, power_of(y, n, least));
  *w = v_mul(y, rest);
  return v_mul(v_mul(v_mul(r.power, r.gain), rest), v_sub(dp, r.delta));
}
/* The sum and the largest of s. */
static void lssar_sums(const grading *g, double *sums) {
  LANE_SUM(sum);
  vreal most = v_set1(0);
  EACH_VECTOR(_Pragma("GCC unroll 4"), 0, g->n, u, j) {
    const vreal z = v_load(g->z + j), s = near_softplus(z), seen = hide(z, s);
    most = v_max(seen, most);
    sum[u] = v_add(sum[u], seen);
    if (g->held) v_store(g->z + j, v_select(v_hidden(z), z, s));
  }
  const double top = (double)v_hmax(most);
  sums[0] += (double)v_fold(sum);
  sums[1] = top > sums[1] ? top : sums[1];
}
/* The sum of X s. */
SMI void lssar_parts(const grading *g, double n, real least, double *sums) {
  const lssar_row row = lssar_row_at(g, 0);
  LANE_SUM(sum);
  EACH_VECTOR(_Pragma("GCC unroll 4"), 0, g->n, u, j) {
    const vreal z = v_load(g->z + j), s = softplus_at(g, z);
    vreal w;
    sum[u] = v_add(sum[u], hide(z, v_mul(lssar_part(row, n, least, s, v_load(g->dp + j), &w), s)));
  }
  sums[0] += (double)v_fold(sum);
}
void SMX_FN(lssar_measure)(const attn_call *c, int walk, const grading *g, double *sums) {
  if (walk == 0) lssar_sums(g, sums);
  else if (c->param[0] == USUAL) lssar_parts(g, USUAL - 1, least_of(c), sums);
  else lssar_parts(g, c->param[0] - 1, least_of(c), sums);
}
void SMX_FN(lssar_settle)(const attn_call *c, int walk, const attn_row *row, double dlse, double *sums,
                          real *stat) {
  if (walk == 1) {
    const double gain = (double)stat[STAT_GAIN] * sums[0] * inverse(row->count);
    stat[STAT_D] = (real)(stat[STAT_GAIN] < 0 ? -0x1p64 * gain : gain);
    return;
  }
  const lssar_terms of = lssar_of(c, row->count, sums[0], sums[1]);
  const double by = stat[STAT_LSE] == -R_INF ? 0 : d_exp(-(double)stat[STAT_LSE] / (double)of.power);
  stat[STAT_A] = (real)((double)of.gain * by * (double)of.lift), stat[STAT_B] = (real)((double)of.less * by);
  stat[STAT_C] = of.power, stat[STAT_GAIN] = of.lift > 1 ? -of.gain : of.gain;
}
SMI vreal lssar_pair(const grading *g, double n, real least, int j, vreal z, vreal dp, vreal *w) {
  const vreal s = softplus_at(g, z), part = lssar_part(lssar_row_at(g, j), n, least, s, dp, w);
  return v_mul(sigmoid_by(s), v_sub(part, graded(g, STAT_D, j)));
}
SMI void lssar_pairs(const grading *g, double n, real least) {
  GRAD_PAIRS(g, lssar_pair(g, n, least, j, z, dp, &w))
}
void SMX_FN(lssar_grad)(const attn_call *c, const grading *g) {
  if (c->param[0] == USUAL) lssar_pairs(g, USUAL - 1, least_of(c));
  else lssar_pairs(g, c->param[0] - 1, least_of(c));
}
