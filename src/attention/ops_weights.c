/* attention/ops_weights.c - the kinds of attention weights: from scores to weights, from sums to
 * outputs (weights.h). Formulas and sources are in table.c. Compiled once per instruction set and
 * real type. */
#include "weights.h"

/* log(e^shift 2^scale_exp s) */
static double log_of(attn_unit unit, double s) {
  if (!(s > 0)) return s == 0 ? -(double)R_INF : s;
  return unit.scale_exp == (double)R_INF ? unit.scale_exp
                                         : d_log(s, 0) + unit.scale_exp * ATTN_LN2 + unit.shift;
}
/* name_grad from name_pair(c, z, dp, lse, delta, &w), which returns the gradient of the score. */
#define GRAD(name) \
  static void name##_grad(const attn_call *c, const grading *g) { \
    GRAD_PAIRS(g, name##_pair(c, z, dp, graded(g, STAT_LSE, j), graded(g, STAT_DELTA, j), &w)) \
  }

/* ---- softmax, with more in the sum or another scale ---- */

/* Exponentials and their sum, in a unit that is open. */
SMI void sum_exponentials(weighing *w) {
  LANE_SUM(sum);
  EACH_SCORE_UNROLLED(w, u, j) {
    const vreal e = exp_weight(v_load(w->z + j), w->scale_exp);
    sum[u] = v_add(sum[u], e);
    v_store(w->z + j, e);
  }
  w->a[0] = v_fold(sum);
  /* One key that is all of the sum has weight 1, so that its values come through as they are. */
  const real top = w->scale_exp == R_INF || w->shift != 0 ? 0 : w->top;
  if (w->a[0] != v_first(exp_weight(v_set1(top), w->scale_exp))) return;
  w->gain = w->a[0];
  EACH_SCORE_UNROLLED(w, u, j) { v_store(w->z + j, v_div(v_load(w->z + j), v_set1(w->gain))); }
  w->a[0] = 1;
}
static void softmax_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  exp_open(c, w, -R_INF);
  sum_exponentials(w);
}
static void softmax_finish(const attn_call *c, const attn_row *row, finished *f) {
  const double sum = row->a[0] * row->gain;
  f->factor[0] = inverse(row->a[0]);
  f->lse = f->silent ? sum : log_of(row->unit, sum);
}
/* dz = p (dp - delta) */
SMI vreal softmax_pair(const attn_call *c, vreal z, vreal dp, vreal lse, vreal delta, vreal *w) {
  *w = v_exp(v_sub(z, lse));
  return v_mul(*w, v_sub(dp, delta));
}
GRAD(softmax)

static double softmax_n_constant(const attn_call *c) {
  return c->param[0] > 0 ? d_log(c->param[0], 0) : -(double)R_INF;
}
static double ssmax_scale(const attn_call *c, const attn_row *row) {
  return row->count > 0 ? c->param[0] * d_log(row->count, 0) + c->param[1] : 1;
}

/* ---- softmax by a unified maximum: relative to e^phi, or to the largest score where one is out of
 * range. Units are powers of two, so both have the bits of softmax. ---- */

static void unified_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  const real phi = (real)c->param[0];
  vreal least = v_set1(R_INF);
  EACH_SCORE(w, u, j) {
    const vreal z = v_load(w->z + j);
    least = v_min(v_select(v_hidden(z), v_set1(R_INF), z), least);
  }
  const bool near = v_hmin(least) - phi > (real)c->param[1] && w->top - phi < (real)c->param[2];
  exp_open(c, w, -R_INF);
  if (near) w->scale_exp = v_first(exp_k(v_set1(phi)));
  sum_exponentials(w);
}

/* ---- credal: e^z + a, in the unit of the larger of e^z and 1 ---- */

static void credal_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  LANE_SUM(sum);
  exp_open(c, w, 0);
  const vreal prior = v_scale(v_set1(w->shift == 0 && w->scale_exp < R_INF ? (real)c->param[0] : 0),
                              v_set1(w->scale_exp < R_INF ? -w->scale_exp : 0));
  EACH_SCORE(w, u, j) {
    const vreal z = v_load(w->z + j), y = hide(z, v_add(exp_weight(z, w->scale_exp), prior));
    sum[u] = v_add(sum[u], y);
    v_store(w->z + j, y);
  }
  w->a[0] = v_fold(sum);
}
/* w = (e^z + a) / e^lse, dz = e^(z - lse) (dp - delta) */
SMI vreal credal_pair(const attn_call *c, vreal z, vreal dp, vreal lse, vreal delta, vreal *w) {
  vreal e = v_exp(v_sub(z, lse));
  *w = v_fma(v_exp(v_sub(v_set1(0), lse)), v_set1((real)c->param[0]), e);
  return v_mul(e, v_sub(dp, delta));
}
GRAD(credal)

/* ---- softpick: t = e^z - 1 against the largest of e^z and 1 ---- */

/* e^z - 1 relative to 2^scale_exp: 2^k (e^r - 1) + (2^k - 1), r what is left of z, so that nothing
 * cancels near 0. */
SMI vreal expm1_weight(vreal z, real scale_exp, bool one) {
  vreal k = exp_k(z), r = exp_reduce(z, k), q = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - 1; i++) q = v_fma(q, r, v_set1(exp_coefficients[i]));
  vreal unit = v_scale(v_set1(1), v_sub(k, v_set1(scale_exp)));
  vreal less = one ? v_scale(v_set1(1), v_set1(-scale_exp)) : v_set1(0);
  const vmask nothing = m_and(v_eq(unit, v_set1(0)), v_eq(z, z)); /* what a NaN is scaled to differs */
  return v_select(nothing, v_sub(v_set1(0), less), v_fma(unit, v_mul(q, r), v_sub(unit, less)));
}

static void softpick_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  LANE_SUM(sum);
  exp_open(c, w, 0);
  const bool one = w->shift == 0 && w->scale_exp < R_INF; /* e^0 is below the last bit of larger terms */
  EACH_SCORE_UNROLLED(w, u, j) {
    const vreal z = v_load(w->z + j),
                t = hide(z, expm1_weight(z, w->scale_exp < R_INF ? w->scale_exp : 0, one));
    sum[u] = v_add(sum[u], v_abs(t));
    v_store(w->z + j, v_select(v_lt(t, v_set1(0)), v_set1(0), t));
  }
  w->a[0] = v_fold(sum);
}
/* w = [E - e^-lse]_+, dz = E ([z > 0] dp - sign(z) delta), E = e^(z - lse) */
SMI vreal softpick_pair(const attn_call *c, vreal z, vreal dp, vreal lse, vreal delta, vreal *w) {
  vreal e = v_exp(v_sub(z, lse)), zero = v_set1(0);
  vmask up = v_lt(zero, z), none = v_eq(z, zero);
  *w = v_select(up, v_sub(e, v_exp(v_sub(zero, lse))), zero);
  vreal dz = v_mul(e, v_sub(v_select(up, dp, zero), v_copysign(delta, v_mul(z, delta))));
  return v_select(none, zero, dz);
}
GRAD(softpick)

/* ---- Self-Adjust Softmax: z p, and its normalised form ---- */

static void self_adjust_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  LANE_SUM(sum);
  exp_open(c, w, -R_INF);
  EACH_SCORE(w, u, j) {
    const vreal z = v_load(w->z + j), e = exp_weight(z, w->scale_exp);
    sum[u] = v_add(sum[u], e);
    v_store(w->z + j, hide(z, v_mul(v_add(z, v_set1(w->shift)), e)));
  }
  w->a[0] = v_fold(sum);
}
/* dz = p ((1 + z) dp - delta) */
SMI vreal self_adjust_pair(const attn_call *c, vreal z, vreal dp, vreal lse, vreal delta, vreal *w) {
  vreal p = v_exp(v_sub(z, lse));
  *w = v_mul(z, p);
  return v_mul(p, v_fma(v_add(z, v_set1(1)), dp, v_sub(v_set1(0), delta)));
}
GRAD(self_adjust)

/* Channels e and z e; scalars sum e, max z, max -z. */
static void self_adjust_range_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  LANE_SUM(sum);
  vreal most = v_set1(-R_INF), least = v_set1(R_INF);
  exp_open(c, w, -R_INF);
  EACH_SCORE(w, u, j) {
    const vreal x = v_load(w->z + j), e = exp_weight(x, w->scale_exp), z = v_add(x, v_set1(w->shift));
    sum[u] = v_add(sum[u], e);
    most = v_max(z, most);
    least = v_min(v_select(v_hidden(x), v_set1(R_INF), z), least);
    v_store(w->z + j, e);
    v_store(w->second + j, hide(x, v_mul(z, e)));
  }
  w->a[0] = v_fold(sum), w->a[1] = v_hmax(most), w->a[2] = -v_hmin(least);
}
static void self_adjust_range_finish(const attn_call *c, const attn_row *row, finished *f) {
  double a = row->a[2] > 0 ? -row->a[2] : 0, b = row->a[1] > 0 ? row->a[1] : 0;
  softmax_finish(c, row, f);
  f->factor[1] = f->factor[0] * inverse(b - a);
  f->factor[0] = -a * f->factor[1];
}

/* ---- sigmoid, and other functions of one score ---- */

SMI vreal sigmoid_of(const attn_call *c, vreal z) { return v_sigmoid(v_add(z, v_set1((real)c->param[0]))); }
SMI vreal relu_of(const attn_call *c, vreal z) { return v_select(v_lt(z, v_set1(0)), v_set1(0), z); }
SMI vreal elu_of(const attn_call *c, vreal z) {
  return v_select(v_lt(v_set1(0), z), v_add(z, v_set1(1)), v_exp(z));
}
SMI vreal identity_of(const attn_call *c, vreal z) { return z; }
/* v_softplus: max(z, 0) + log(1 + e), e = e^-|z|. Scores may be far from 0, where the logarithm
 * rounds to e; powers of e would be subnormal there, which takes some processors a hundred times as
 * long as an addition, so they are not formed. */
SMI vreal softplus_of(const attn_call *c, vreal z) {
  const vreal least = v_set1(SMX_REAL == 32 ? (real)0x1p-40 : (real)0x1p-60), zero = v_set1(0),
              e = v_exp_down(v_sub(zero, v_abs(z))), log = v_log1p_unit(v_max(e, least));
  return v_select(v_eq(z, z), v_add(v_max(z, zero), v_select(v_lt(e, least), e, log)), z);
}
/* 1 + z / 1 (1 + z / 2 (1 + ...)) */
SMI vreal taylor_terms(int terms, vreal z) {
  vreal t = v_set1(terms > 0);
  for (int r = terms - 1; r > 0; r--) t = v_fma(v_mul(z, v_set1((real)(1.0 / r))), t, v_set1(1));
  return t;
}
SMI vreal taylor_of(const attn_call *c, vreal z) { return taylor_terms((int)c->param[1], z); }

/* e^min(z, c) */
SMI vreal exponential_of(const attn_call *c, vreal z) {
  const vreal most = v_set1((real)c->param[2]);
  return v_exp(v_select(v_lt(most, z), most, z));
}

/* Weights and their sum; of the absolute values for the norm l1, where they may be negative. */
#define DIRECT(name, negative, EACH) \
  static void name##_weigh(const attn_call *c, const attn_row *row, weighing *w) { \
    const bool absolute = negative && c->param[0] == SMX_ATTENTION_NORM_L1; \
    LANE_SUM(sum); \
    direct_open(c, w); \
    EACH(w, u, j) \
    { \
      const vreal z = v_load(w->z + j), y = hide(z, name##_of(c, z)); \
      sum[u] = v_add(sum[u], absolute ? v_abs(y) : y); \
      v_store(w->z + j, y); \
    } \
    w->a[0] = v_fold(sum); \
  }
DIRECT(sigmoid, false, EACH_SCORE_UNROLLED)
DIRECT(relu, false, EACH_SCORE)
DIRECT(elu, false, EACH_SCORE)
DIRECT(identity, true, EACH_SCORE)
DIRECT(softplus, false, EACH_SCORE)
DIRECT(taylor, true, EACH_SCORE)
DIRECT(exponential, false, EACH_SCORE)

/* f->lse is that of a divisor which the sum of the weights may not be; a NaN among the weights is
 * one in their sum. */
static void divide(finished *f, double divisor, double sum) {
  f->factor[0] = inverse(divisor);
  f->lse = sum == sum ? log_of((attn_unit){0, 0}, divisor) : sum;
}
static void undivided_finish(const attn_call *c, const attn_row *row, finished *f) {
  divide(f, 1, row->a[0]);
}
static void normed_finish(const attn_call *c, const attn_row *row, finished *f) {
  double sum = row->a[0], magnitude = sum < 0 ? -sum : sum;
  int norm = (int)c->param[0];
  double extra = c->weights == SMX_ATTENTION_TAYLOR ? 0 : c->param[1];
  divide(f,
         norm == SMX_ATTENTION_NORM_COUNT   ? row->count
         : norm == SMX_ATTENTION_NORM_L1    ? sum + extra
         : norm == SMX_ATTENTION_NORM_CLAMP ? (magnitude > 1 ? magnitude : 1)
                                            : 1,
         sum);
}
/* w = f / N, dz = f' / N (dp - s delta): N is e^lse, and s the sign of f for l1, 1 for clamp where
 * N is above 1 (the driver refuses sums that may be below 0), else 0. Where all of a row is 0, N is
 * 0 too: no weights. */
SMI vreal normed_grad(const attn_call *c, vreal f, vreal slope, vreal dp, vreal lse, vreal delta, vreal *w) {
  const vreal zero = v_set1(0);
  const vreal inv = v_select(v_hidden(lse), zero, v_exp(v_sub(zero, lse)));
  const int norm = (int)c->param[0];
  vreal share = zero;
  if (norm == SMX_ATTENTION_NORM_L1)
    share = v_select(v_eq(f, zero), zero, v_select(v_lt(f, zero), v_sub(zero, delta), delta));
  if (norm == SMX_ATTENTION_NORM_CLAMP) share = v_select(v_lt(zero, lse), delta, zero);
  *w = v_mul(f, inv);
  return v_mul(v_mul(slope, inv), v_sub(dp, share));
}
SMI vreal relu_slope(const attn_call *c, vreal z, vreal f) {
  return v_select(v_lt(v_set1(0), z), v_set1(1), v_set1(0));
}
SMI vreal elu_slope(const attn_call *c, vreal z, vreal f) {
  return v_select(v_lt(v_set1(0), z), v_set1(1), v_exp(z));
}
SMI vreal identity_slope(const attn_call *c, vreal z, vreal f) { return v_set1(1); }
SMI vreal softplus_slope(const attn_call *c, vreal z, vreal f) { return v_sigmoid(z); }
SMI vreal taylor_slope(const attn_call *c, vreal z, vreal f) { return taylor_terms((int)c->param[1] - 1, z); }
SMI vreal exponential_slope(const attn_call *c, vreal z, vreal f) {
  return v_select(v_lt(v_set1((real)c->param[2]), z), v_set1(0), f);
}
#define NORMED_GRAD(name) \
  SMI vreal name##_pair(const attn_call *c, vreal z, vreal dp, vreal lse, vreal delta, vreal *w) { \
    const vreal f = name##_of(c, z); \
    return normed_grad(c, f, name##_slope(c, z, f), dp, lse, delta, w); \
  } \
  GRAD(name)
NORMED_GRAD(relu)
NORMED_GRAD(elu)
NORMED_GRAD(identity)
NORMED_GRAD(softplus)
NORMED_GRAD(taylor)
NORMED_GRAD(exponential)

/* dz = w (1 - w) dp */
SMI vreal sigmoid_pair(const attn_call *c, vreal z, vreal dp, vreal lse, vreal delta, vreal *w) {
  *w = sigmoid_of(c, z);
  return v_mul(v_mul(*w, v_sigmoid(v_sub(v_set1((real)-c->param[0]), z))), dp);
}
GRAD(sigmoid)

/* ---- clipped softmax: two walks, the first for the normaliser ---- */

static void clipped_stat(const attn_call *c, attn_row *row, weighing *w) {
  double mine, its;
  softmax_weigh(c, row, w);
  attn_unit unit = {(double)w->scale_exp, (double)w->shift};
  if (row->stat[0] == 0) row->stat_unit = unit;
  align(&row->stat_unit, unit, &mine, &its);
  row->stat[0] = row->stat[0] * mine + (double)w->a[0] * (double)w->gain * its;
}
/* p = softmax of the whole row */
SMI vreal softmax_of_row(const attn_row *row, vreal x, real inv) {
  vreal z = v_sub(x, v_set1((real)row->stat_unit.shift));
  if (row->stat_unit.scale_exp == (double)R_INF)
    z = v_select(v_eq(x, v_set1(R_INF)), v_set1(0), v_set1(-R_INF));
  return v_mul(exp_weight(z, (real)row->stat_unit.scale_exp), v_set1(inv));
}
static void clipped_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  const real low = (real)c->param[0], span = (real)(c->param[1] - c->param[0]),
             inv = (real)inverse(row->stat[0]);
  LANE_SUM(sum);
  w->scale_exp = w->shift = 0;
  EACH_SCORE(w, u, j) {
    const vreal x = v_load(w->z + j), p = softmax_of_row(row, x, inv);
    const vreal y = v_fma(p, v_set1(span), v_set1(low));
    sum[u] = v_add(sum[u], p);
    v_store(w->z + j, hide(x, v_min(v_set1(1), v_max(v_set1(0), y))));
  }
  w->a[0] = v_fold(sum);
}
static void clipped_finish(const attn_call *c, const attn_row *row, finished *f) {
  divide(f, 1, row->a[0]);
  if (f->lse == 0) f->lse = log_of(row->stat_unit, row->stat[0]);
}

/* ---- shaped: softmax against the plain mean, and the key where the row stands ---- */

static void shaped_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  const real gain = (real)c->param[1], mean = (real)(-c->param[2] / row->count),
             inv = (real)inverse(row->stat[0]);
  const int64_t own = row->at - w->first;
  const bool seen = own >= w->from && own < w->to && w->z[own] != -R_INF;
  LANE_SUM(sum);
  w->scale_exp = w->shift = 0;
  EACH_SCORE(w, u, j) {
    const vreal x = v_load(w->z + j), p = softmax_of_row(row, x, inv);
    sum[u] = v_add(sum[u], p);
    v_store(w->z + j, hide(x, v_fma(p, v_set1(gain), v_set1(mean))));
  }
  if (seen) w->z[own] += (real)c->param[0];
  w->a[0] = v_fold(sum);
}

/* ---- length-scaled softplus, and its re-weighting ----
 *
 * the first walk has the sum and the largest of softplus */

static double lssa_scale(const attn_call *c, const attn_row *row) {
  return row->count > 0 ? d_log((double)c->d, 0) * d_log(row->count, 0) : 1;
}
static void lssar_stat(const attn_call *c, attn_row *row, weighing *w) {
  LANE_SUM(sum);
  vreal most = v_set1(0);
  direct_open(c, w);
  EACH_SCORE(w, u, j) {
    const vreal z = v_load(w->z + j), y = hide(z, softplus_of(c, z));
    sum[u] = v_add(sum[u], y);
    most = v_max(y, most);
  }
  const double top = (double)v_hmax(most);
  row->stat[0] += (double)v_fold(sum);
  row->stat[1] = top > row->stat[1] ? top : row->stat[1];
}
/* y^p as e^(p log y) */
static void lssar_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  const lssar_terms of = lssar_of(c, row->count, row->stat[0], row->stat[1]);
  const vreal zero = v_set1(0);
  vreal most = v_set1(-R_INF);
  direct_open(c, w);
  EACH_SCORE(w, u, j) {
    const vreal z = v_load(w->z + j), s = v_mul(softplus_of(c, z), v_set1(of.lift)),
                y = v_fma(s, v_set1(of.gain), v_set1(of.less));
    const vreal t = v_mul(v_set1(of.power), v_log_scaled(v_max(y, v_set1(R_TINY)), zero));
    const vreal x =
        v_select(v_eq(z, z), v_select(m_and(v_lt(zero, y), m_not(v_hidden(z))), t, v_set1(-R_INF)), z);
    most = v_max(x, most);
    v_store(w->z + j, x);
  }
  w->top = v_hmax(most);
  if (w->top == -R_INF) w->top = 0;
  softmax_weigh(c, row, w);
}

/* ---- scores less their mean, over their deviation: two walks ---- */

static void centred_stat(const attn_call *c, attn_row *row, weighing *w) {
  direct_open(c, w);
  for (int j = w->from; j < w->to; j++) {
    double z = (double)w->z[j];
    if (z == -(double)R_INF) continue;
    row->stat[0]++, row->stat[1] += z, row->stat[2] += z * z;
  }
}
static void centred_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  const double n = row->stat[0], mean = row->stat[1] / n;
  const real centre = (real)mean,
             gain = (real)(c->param[0] * inverse(deviation(n, mean, row->stat[2]) + c->param[2]));
  LANE_SUM(sum);
  direct_open(c, w);
  EACH_SCORE(w, u, j) {
    const vreal z = v_load(w->z + j),
                y = hide(z, v_fma(v_sub(z, v_set1(centre)), v_set1(gain), v_set1((real)c->param[1])));
    sum[u] = v_add(sum[u], y);
    v_store(w->z + j, y);
  }
  w->a[0] = v_fold(sum);
}

#define NORMED(name) \
  { .values = 1, .counts = true, .weigh = name##_weigh, .finish = normed_finish, .grad = name##_grad }
const weigher SMX_FN(attn_weighers)[SMX_ATTENTION_KINDS] = {
    [SMX_ATTENTION_SOFTMAX] = {.values = 1,
                               .weigh = softmax_weigh,
                               .finish = softmax_finish,
                               .grad = softmax_grad},
    [SMX_ATTENTION_SOFTMAX_N] = {.values = 1,
                                 .constant = softmax_n_constant,
                                 .weigh = softmax_weigh,
                                 .finish = softmax_finish,
                                 .grad = softmax_grad},
    [SMX_ATTENTION_SSMAX] = {.values = 1,
                             .counts = true,
                             .scale = ssmax_scale,
                             .weigh = softmax_weigh,
                             .finish = softmax_finish,
                             .grad = softmax_grad},
    [SMX_ATTENTION_SIGMOID] = {.values = 1,
                               .weigh = sigmoid_weigh,
                               .finish = undivided_finish,
                               .grad = sigmoid_grad},
    [SMX_ATTENTION_SOFTPICK] = {.values = 1,
                                .weigh = softpick_weigh,
                                .finish = softmax_finish,
                                .grad = softpick_grad},
    [SMX_ATTENTION_SELF_ADJUST] = {.values = 1,
                                   .weigh = self_adjust_weigh,
                                   .finish = softmax_finish,
                                   .grad = self_adjust_grad},
    [SMX_ATTENTION_SELF_ADJUST_RANGE] = {.values = 2,
                                         .scalar = {FOLD_SCALED, FOLD_MAX, FOLD_MAX},
                                         .weigh = self_adjust_range_weigh,
                                         .finish = self_adjust_range_finish,
                                         MEASURES(self_adjust_range, 1)},
    [SMX_ATTENTION_RELU] = NORMED(relu),
    [SMX_ATTENTION_ELU] = NORMED(elu),
    [SMX_ATTENTION_IDENTITY] = NORMED(identity),
    [SMX_ATTENTION_SOFTPLUS] = NORMED(softplus),
    [SMX_ATTENTION_TAYLOR] = NORMED(taylor),
    [SMX_ATTENTION_CLIPPED] = {.values = 1,
                               .stat = clipped_stat,
                               .weigh = clipped_weigh,
                               .finish = clipped_finish,
                               MEASURES(clipped, 1)},
    [SMX_ATTENTION_EXP] = NORMED(exponential),
    [SMX_ATTENTION_CREDAL] = {.values = 1,
                              .weigh = credal_weigh,
                              .finish = softmax_finish,
                              .grad = credal_grad},
    [SMX_ATTENTION_SHAPED] = {.values = 1,
                              .counts = true,
                              .stat = clipped_stat,
                              .weigh = shaped_weigh,
                              .finish = clipped_finish,
                              MEASURES(shaped, 1)},
    [SMX_ATTENTION_LSSA] = {.values = 1,
                            .counts = true,
                            .scale = lssa_scale,
                            .weigh = softplus_weigh,
                            .finish = normed_finish,
                            .grad = softplus_grad},
    [SMX_ATTENTION_LSSAR] = {.values = 1,
                             .counts = true,
                             .scale = lssa_scale,
                             .stat = lssar_stat,
                             .weigh = lssar_weigh,
                             .finish = softmax_finish,
                             MEASURES(lssar, 2)},
    [SMX_ATTENTION_UNIFIED] = {.values = 1,
                               .weigh = unified_weigh,
                               .finish = softmax_finish,
                               .grad = softmax_grad},
    [SMX_ATTENTION_CENTRED] = {.values = 1,
                               .stat = centred_stat,
                               .weigh = centred_weigh,
                               .finish = undivided_finish,
                               MEASURES(centred, 1)},
};
