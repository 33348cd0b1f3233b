/* loss/ops_elementwise.c - losses that are sums over the classes, each on its own or through a few
 * moments: no weights, no logsumexp. See ops.c. A row with an infinite logit is NaN where the sum
 * would be, because x - x is added to it. */
#include "scalars.h"
#include "elementwise.h"

enum { TARGET = 1 };

/* ---- nll_loss: -w x at the target of a row without NaN ---- */

enum { NLL_WEIGHT = 2 };

SMI void nll_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = at(loss_in(r, 0), i, cnt);
  acc[0] = v_select(v_eq(x, x), acc[0], x);
}
LOSS_SUMS_OF(nll_late, nll_add, 1)
static void nll_finalize(loss_row *r) {
  double weight = loss_has(r, NLL_WEIGHT) ? r->target_inputs[NLL_WEIGHT] : 1;
  loss_put(r, LOSS, weight == 0 ? 0 : -weight * r->target_inputs[0]);
  r->at_target = (real)(-r->g * weight);
}
SMI vreal nll_value(const loss_out *w, vreal p, size_t i, int cnt) { return loss_hit_target(w, zero(), i); }
LOSS_WRITE_OF(nll_out, STUDENT, nll_value)
TERMS(nll, nll_late, 1u | 1u << NLL_WEIGHT, TARGET, 0)

/* ---- l2_svm_loss: c sum max(0, 1 - t x)^power, or that over n, t_y = 1, the others -1 ---- */

enum { SVM_POWER = 1, SVM_C = 2, SVM_OVER = 4 };

SMI void svm_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal over = v_max(v_add(one(), at(loss_in(r, 0), i, cnt)), zero()), x = at(loss_in(r, 0), i, cnt);
  if (r->q[SVM_POWER] == 2) over = v_mul(over, over);
  over = loss_at_target(r, v_select(lanes_below(cnt), over, zero()), 0, i);
  acc[0] = v_add(acc[0], v_add(over, v_sub(x, x)));
}
LOSS_SUMS_OF(svm_late, svm_add, 1)
static void svm_finalize(loss_row *r) {
  double c = r->q[SVM_OVER] != 0 ? r->q[SVM_C] / (double)r->n : r->q[SVM_C], own = 1 - r->target_inputs[0],
         square = r->q[SVM_POWER] == 2;
  if (own < 0) own = 0;
  loss_put(r, LOSS, c * (r->total[STAGE_LATE][0] + (square != 0 ? own * own : own)));
  r->coef[0] = (real)(r->g * c * (square != 0 ? 2 : 1));
  r->at_target = (real)(-r->g * c * (square != 0 ? 2 * own : own > 0 ? 1 : 0));
}
SMI vreal svm_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal over = v_max(v_add(one(), at(loss_in(w->r, 0), i, cnt)), zero());
  if (w->r->q[SVM_POWER] != 2) over = v_select(v_eq(over, zero()), over, one());
  return loss_hit_target(w, v_mul(over, v_set1(w->coef[0])), i);
}
LOSS_WRITE_OF(svm_out, STUDENT, svm_value)
TERMS(svm, svm_late, 1u, TARGET, 0)

/* ---- gumbel_optimized_loss ----
 *
 * with u = e^-x, u at the target and -log(1 - e^-u) = log(1 + 1 / (e^u - 1)) elsewhere */

enum { GUMBEL_LOW = 1, GUMBEL_HIGH = 2 };

SMI vreal gumbel_u(vreal x, double low, double high) {
  return v_exp(v_sub(zero(), v_min(v_max(x, v_set1((real)low)), v_set1((real)high))));
}
SMI vmask gumbel_kept(vreal x, double low, double high) {
  return m_or(v_lt(x, v_set1((real)low)), v_lt(v_set1((real)high), x));
}
SMI vreal gumbel_absent(vreal u) { /* -log(1 - e^-u) */
  vreal d = v_div(one(), v_expm1_pos(u));
  return v_select(v_eq(d, v_set1(R_INF)), d, v_log1p_pos(d));
}
SMI void gumbel_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = at(loss_in(r, 0), i, cnt), term = gumbel_absent(gumbel_u(x, r->q[GUMBEL_LOW], r->q[GUMBEL_HIGH]));
  term = loss_at_target(r, v_select(lanes_below(cnt), term, zero()), 0, i);
  acc[0] = v_add(acc[0], v_select(v_eq(x, x), term, x));
}
LOSS_SUMS_OF(gumbel_late, gumbel_add, 1)
static void gumbel_finalize(loss_row *r) {
  double x = r->target_inputs[0], low = r->q[GUMBEL_LOW], high = r->q[GUMBEL_HIGH],
         inside = x < low ? low : x;
  double u = d_exp(-(inside > high ? high : inside));
  loss_put(r, LOSS, r->total[STAGE_LATE][0] + u);
  r->coef[0] = (real)r->g;
  r->at_target = (real)(x < low || x > high ? 0 : -r->g * u);
}
SMI vreal gumbel_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const double low = w->r->q[GUMBEL_LOW], high = w->r->q[GUMBEL_HIGH];
  vreal x = at(loss_in(w->r, 0), i, cnt), u = gumbel_u(x, low, high),
        v = v_mul(v_set1(w->coef[0]), v_div(u, v_expm1_pos(u)));
  return loss_hit_target(w, v_select(gumbel_kept(x, low, high), zero(), v), i);
}
LOSS_WRITE_OF(gumbel_out, STUDENT, gumbel_value)
TERMS(gumbel, gumbel_late, 1u, TARGET, 0)

/* ---- gumbel_binary_loss: sum_j w_j (t_j min(u_j, m) + (1 - t_j) min(-log(1 - e^-u_j), m)) ---- */

enum { GB_PRESENT = 1, GB_WEIGHT = 2, GB_LOW = 0, GB_HIGH = 1, GB_MOST = 2 };

typedef struct gumbel_part {
  vreal x, t, u, absent, weight;
} gumbel_part;
SMI gumbel_part gumbel_at(const loss_row *r, size_t i, int cnt) {
  vreal x = at(loss_in(r, 0), i, cnt), u = gumbel_u(x, r->q[GB_LOW], r->q[GB_HIGH]);
  return (gumbel_part){x, at(loss_in(r, GB_PRESENT), i, cnt), u, gumbel_absent(u),
                       loss_has(r, GB_WEIGHT) ? at(loss_in(r, GB_WEIGHT), i, cnt) : one()};
}
SMI void gb_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const gumbel_part g = gumbel_at(r, i, cnt);
  const vreal most = v_set1((real)r->q[GB_MOST]);
  vreal term = v_add(no_less(g.t, v_min(g.u, most)), no_less(v_sub(one(), g.t), v_min(g.absent, most)));
  term = v_select(lanes_below(cnt), no_less(g.weight, term), zero());
  acc[0] = v_add(acc[0], v_select(v_eq(g.x, g.x), term, g.x));
}
LOSS_SUMS_OF(gb_late, gb_add, 1)
static void gb_finalize(loss_row *r) {
  loss_put(r, LOSS, r->total[STAGE_LATE][0]);
  r->coef[0] = (real)r->g;
}
/* 0 where x, or a part of the loss, is clamped. */
SMI vreal gb_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const gumbel_part g = gumbel_at(w->r, i, cnt);
  const vreal most = v_set1((real)w->r->q[GB_MOST]);
  vreal yes = v_select(v_lt(most, g.u), zero(), g.u),
        no = v_select(v_lt(most, g.absent), zero(), v_div(g.u, v_expm1_pos(g.u)));
  vreal v = v_mul(g.weight, v_sub(v_mul(v_sub(one(), g.t), no), v_mul(g.t, yes)));
  return v_select(gumbel_kept(g.x, w->r->q[GB_LOW], w->r->q[GB_HIGH]), zero(), v_mul(v_set1(w->coef[0]), v));
}
SMI vreal gb_target_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const gumbel_part g = gumbel_at(w->r, i, cnt);
  const vreal most = v_set1((real)w->r->q[GB_MOST]),
              by = no_less(g.weight, v_sub(v_min(g.u, most), v_min(g.absent, most)));
  return v_mul(v_set1(w->coef[0]), by);
}
LOSS_WRITE_OF(gb_out, STUDENT, gb_value)
LOSS_WRITE_OF(gb_target_out, TEACHER, gb_target_value)
static const loss_body gb_body = {.sums = {[STAGE_LATE] = gb_late},
                                  .finalize = gb_finalize,
                                  .write = {gb_out, gb_target_out},
                                  .along = 1u | 1u << GB_PRESENT | 1u << GB_WEIGHT,
                                  .teacher = GB_PRESENT};
LOSS_KERNEL(gb)

/* ---- binary_logit_distillation ----
 *
 * sum |b - a|^beta ((1 - b) softplus(s) + b softplus(-s)), a and b the sigmoids of s and of the
 * teacher's u */

enum { TEACHER_PORT = 1, BLD_BETA = 0, BLD_DETACH = 1 };

typedef struct bld {
  vreal a, b, away, weight, loss; /* away: b - a, from a form without cancellation */
} bld;
SMI vreal bld_power(vreal x, double power) { /* x^power of x in [0, 1] */
  vmask some = m_not(v_lt(x, v_set1(R_TINY)));
  vreal y = v_exp(v_mul(v_set1((real)power), v_log_scaled(v_select(some, x, one()), zero())));
  return v_select(some, power == 1 ? x : y, zero());
}
SMI bld bld_at(const loss_row *r, size_t i, int cnt) {
  vreal s = at(loss_in(r, 0), i, cnt), u = at(loss_in(r, TEACHER_PORT), i, cnt);
  vmask up = v_lt(s, u);
  vreal high = v_select(up, u, s), low = v_select(up, s, u), gap = v_min(v_sub(high, low), v_set1(79));
  vreal e = v_expm1_pos(v_select(v_eq(s, u), zero(), gap));
  vreal size = v_mul(v_mul(v_sigmoid(high), v_sigmoid(v_sub(zero(), low))), v_div(e, v_add(e, one())));
  bld w = {.a = v_sigmoid(s), .b = v_sigmoid(u), .away = v_select(up, size, v_sub(zero(), size))};
  w.weight = bld_power(size, r->q[BLD_BETA]);
  w.loss =
      v_add(no_less(v_sigmoid(v_sub(zero(), u)), v_softplus(s)), no_less(w.b, v_softplus(v_sub(zero(), s))));
  vreal bad = v_add(s, u); /* NaN stays */
  w.loss = v_select(m_or(v_eq(s, s), v_eq(bad, bad)), w.loss, s);
  return w;
}
SMI void bld_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  bld w = bld_at(r, i, cnt);
  vreal s = at(loss_in(r, 0), i, cnt), u = at(loss_in(r, TEACHER_PORT), i, cnt);
  vreal term = v_select(lanes_below(cnt), no_less(w.weight, w.loss), zero());
  acc[0] = v_add(acc[0], v_select(v_eq(s, s), v_select(v_eq(u, u), term, u), s));
}
LOSS_SUMS_OF(bld_late, bld_add, 1)
static void bld_finalize(loss_row *r) {
  loss_put(r, LOSS, r->total[STAGE_LATE][0]);
  r->coef[0] = (real)r->g;
}
SMI vreal bld_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  const bld t = bld_at(r, i, cnt);
  vreal v = v_sub(zero(), v_mul(t.weight, t.away)), s = at(loss_in(r, 0), i, cnt);
  if (r->q[BLD_DETACH] == 0) {
    vreal slope = v_mul(v_set1((real)r->q[BLD_BETA]), bld_power(v_abs(t.away), r->q[BLD_BETA] - 1));
    slope = v_mul(v_copysign(slope, t.away), v_mul(t.a, v_sigmoid(v_sub(zero(), s))));
    v = v_sub(v, no_less(slope, t.loss));
  }
  return v_mul(v, v_set1(w->coef[0]));
}
LOSS_WRITE_OF(bld_out, STUDENT, bld_value)
TERMS(bld, bld_late, 1u | 1u << TEACHER_PORT, 0, TEACHER_PORT)

/* ---- the spherical family: losses of x_y, s = sum x and q = sum x^2 alone ----
 *
 * dx_j = L_y [j = y] + 2 L_q x_j + L_s. Moments are taken about a first mean m: the mean
 * is m + sum(x - m) / n. */

enum { C_SLOPE, C_EVEN, C_CENTRE, C_CENTRE_LOW, C_INVERSE };
enum { SUM_X, SUM_SIZE };

SMI void size_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = v_select(lanes_below(cnt), at(loss_in(r, 0), i, cnt), zero());
  acc[SUM_X] = v_add(acc[SUM_X], v_add(x, v_sub(x, x)));
  acc[SUM_SIZE] = v_add(acc[SUM_SIZE], v_abs(x));
}
LOSS_SUMS_OF(size_early, size_add, 2)

SMI double inverse_size(const loss_row *r) {
  return d_inverse_size(r->total[STAGE_EARLY][SUM_SIZE] / (double)r->n);
}

/* z_loss: softplus(a (b - z)) / a, z = (x_y - mean) / (sd + e) */
enum { ZL_A = 1, ZL_B = 2, ZL_EPSILON = 3 };

SMI double first_mean(const loss_row *r) {
  return (double)(real)(r->total[STAGE_EARLY][SUM_X] / (double)r->n);
}
SMI void centred_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal away =
      v_mul(v_sub(at(loss_in(r, 0), i, cnt), v_set1((real)first_mean(r))), v_set1((real)inverse_size(r)));
  away = v_select(lanes_below(cnt), away, zero());
  acc[0] = v_add(acc[0], away);
  acc[1] = v_fma(away, away, acc[1]);
}
LOSS_SUMS_OF(mean_centred, centred_add, 2)

/* In units of the size: d z / d x_j = ([j = y] - 1 / n) / width - own (x_j - mean) / (n sd
 * width^2). */
static void zl_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_CENTRED], n = (double)r->n, a = r->q[ZL_A], m = first_mean(r),
               shift = sum[0] / n;
  const double inverse = inverse_size(r), variance = sum[1] / n - shift * shift,
               sd = d_root(variance > 0x1p-900 ? variance : 0);
  const double width = sd + r->q[ZL_EPSILON] * inverse, own = (r->target_inputs[0] - m) * inverse - shift,
               z = sd > 0 ? own / width : 0;
  const double away = a * (r->q[ZL_B] - z), slope = sd > 0 ? -r->g / (1 + d_exp(-away)) / width * inverse : 0;
  const double even = sd > 0 ? -slope * own / (n * sd * width) : 0;
  loss_put(r, LOSS, d_softplus(away) / a);
  r->coef[C_SLOPE] = (real)even;
  r->coef[C_EVEN] = (real)(-slope / n);
  r->coef[C_CENTRE] = (real)m;
  r->coef[C_CENTRE_LOW] = (real)shift;
  r->coef[C_INVERSE] = (real)inverse;
  r->at_target = (real)(slope - slope / n + even * own);
}
SMI vreal zl_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal away =
      v_mul(v_sub(at(loss_in(w->r, 0), i, cnt), v_set1(w->coef[C_CENTRE])), v_set1(w->coef[C_INVERSE]));
  away = v_sub(away, v_set1(w->coef[C_CENTRE_LOW]));
  return loss_hit_target(w, v_fma(v_set1(w->coef[C_SLOPE]), away, v_set1(w->coef[C_EVEN])), i);
}
LOSS_WRITE_OF(zl_out, STUDENT, zl_value)
static const loss_body zl_body = {.sums = {[STAGE_EARLY] = size_early, [STAGE_CENTRED] = mean_centred},
                                  .finalize = zl_finalize,
                                  .write = {zl_out},
                                  .along = 1u,
                                  .target = TARGET};
LOSS_KERNEL(zl)

/* spherical_loss: q - 2 x_y + 1; log (q + n e) / (x_y^2 + e); log sum_j t(x_j) / t(x_y),
 * t(x) = 1 + x + x^2 / 2. Logits beyond 2^40 are summed in units of their size. */
enum { SPHERE_FORM = 1, SPHERE_EPSILON = 2, SPHERE_LOG = 1, SPHERE_TAYLOR = 2 };

SMI double sphere_inverse(const loss_row *r) {
  double inverse = inverse_size(r);
  return inverse < 0x1p-40 ? inverse : 1;
}
SMI void sphere_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const real inverse = (real)sphere_inverse(r);
  vreal x = v_mul(at(loss_in(r, 0), i, cnt), v_set1(inverse)), term = v_mul(x, x);
  if (r->q[SPHERE_FORM] == SPHERE_TAYLOR)
    term = v_fma(x, v_fma(x, v_set1((real)0.5), v_set1(inverse)), v_set1(inverse * inverse));
  acc[0] = v_add(acc[0], loss_at_target(r, v_select(lanes_below(cnt), term, zero()), 0, i));
}
LOSS_SUMS_OF(sphere_late, sphere_add, 1)
static void sphere_finalize(loss_row *r) {
  const double x = r->target_inputs[0], e = r->q[SPHERE_EPSILON], inverse = sphere_inverse(r),
               others = r->total[STAGE_LATE][0] / inverse / inverse;
  double loss = others + (x - 1) * (x - 1), slope = 2, even = 0, at_target = 2 * (x - 1);
  if (r->q[SPHERE_FORM] == SPHERE_LOG) {
    double own = x * x + e, rest = others + ((double)r->n - 1) * e;
    loss = d_log1p(rest / own), slope = 2 / (own + rest), at_target = -2 * x * (rest / own) / (own + rest);
  }
  if (r->q[SPHERE_FORM] == SPHERE_TAYLOR) {
    double own = 1 + x + x * x / 2;
    loss = d_log1p(others / own), slope = even = 1 / (own + others),
    at_target = -(1 + x) * (others / own) / (own + others);
  }
  loss_put(r, LOSS, loss);
  r->coef[C_SLOPE] = (real)(r->g * slope / inverse);
  r->coef[C_EVEN] = (real)(r->g * even);
  r->coef[C_INVERSE] = (real)inverse;
  r->at_target = (real)(r->g * at_target);
}
SMI vreal sphere_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal x = v_mul(at(loss_in(w->r, 0), i, cnt), v_set1(w->coef[C_INVERSE]));
  return loss_hit_target(w, v_fma(v_set1(w->coef[C_SLOPE]), x, v_set1(w->coef[C_EVEN])), i);
}
LOSS_WRITE_OF(sphere_out, STUDENT, sphere_value)
static const loss_body sphere_body = {.sums = {[STAGE_EARLY] = size_early, [STAGE_LATE] = sphere_late},
                                      .finalize = sphere_finalize,
                                      .write = {sphere_out},
                                      .along = 1u,
                                      .target = TARGET};
LOSS_KERNEL(sphere)

/* ---- dice_semimetric_loss: 1 - (tp + s) / (tp + a fp + b fn + s) over the pixels of a row ----
 *
 * tp, fp and fn are sums of min(p, t), of what p has more and of what it has less; or of p t, p
 * (1 - t) and t (1 - p); or of p t, p (p - t) and t (t - p). The last two cancel where p is near t,
 * so (p - t)^2 and (p - t) (p + t) are added in place of them: fp + fn and fp - fn. */

enum {
  DICE_TARGET = 1,
  DICE_ALPHA = 0,
  DICE_BETA = 1,
  DICE_SMOOTH = 2,
  DICE_OVERLAP = 4,
  TVERSKY_OVERLAP = 6
};
enum { LEAST, PRODUCT, SQUARE }; /* overlaps */
enum { SUM_SHARED, SUM_ABOVE, SUM_BELOW, SUM_AWAY = SUM_ABOVE, REDUCE_MAP_MORE = SUM_BELOW };

SMI void dice_add(const loss_row *r, double overlap, size_t i, int cnt, vreal *acc) {
  vreal p = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, DICE_TARGET), i, cnt);
  p = v_select(lanes_below(cnt), p, zero()), t = v_select(lanes_below(cnt), t, zero());
  const vreal more = v_sub(p, t);
  vreal above = v_max(more, zero()), below = v_max(v_sub(t, p), zero());
  if (overlap == PRODUCT) above = v_mul(p, v_sub(one(), t)), below = v_mul(t, v_sub(one(), p));
  if (overlap == SQUARE) above = v_mul(more, more), below = v_mul(more, v_add(p, t));
  const vreal shared = overlap == LEAST ? v_min(p, t) : v_mul(p, t);
  acc[SUM_SHARED] = v_add(acc[SUM_SHARED], v_add(shared, v_add(v_sub(p, p), v_sub(t, t))));
  acc[SUM_ABOVE] = v_add(acc[SUM_ABOVE], above);
  acc[SUM_BELOW] = v_add(acc[SUM_BELOW], below);
}
SMI void dice_own_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  dice_add(r, r->q[DICE_OVERLAP], i, cnt, acc);
}
LOSS_SUMS_OF(dice_late, dice_own_add, 3)
enum { C_ABOVE, C_BELOW, C_EQUAL, C_BY_OTHER = C_ABOVE, C_BY_OWN = C_BELOW, C_ALWAYS = C_EQUAL, C_SIDE };
enum { C_OVERLAP = 2 * C_SIDE }; /* behind those by p and those by t */
/* The missing fraction `wrong / den`, and `top / den`, which is 1 less that. */
typedef struct dice_share {
  double wrong, top, den;
} dice_share;
SMI dice_share dice_share_of(const loss_row *r, double overlap) {
  const double *sum = r->total[STAGE_LATE], tp = sum[SUM_SHARED], a = r->q[DICE_ALPHA], b = r->q[DICE_BETA],
               s = r->q[DICE_SMOOTH];
  double wrong = a * sum[SUM_ABOVE] + b * sum[SUM_BELOW];
  if (overlap == SQUARE) wrong = (a + b) / 2 * sum[SUM_AWAY] + (a - b) / 2 * sum[REDUCE_MAP_MORE];
  return (dice_share){wrong, tp + s, tp + wrong + s};
}
/* By p, where d |p - t| / dp = sign: dtp = (1 - sign) / 2, dden = dtp + a (1 - dtp) - b dtp. By t
 * all is the same with p and t, and a and b, exchanged. */
typedef struct dice_weights {
  double own, other;
} dice_weights;
SMI double dice_slope(const dice_weights *by, double g, double sign, const dice_share *d) {
  double dtp = (1 - sign) / 2, dden = dtp + by->own * (1 - dtp) - by->other * dtp;
  return d->den == 0 || g == 0 ? 0 : -g * (dtp - d->top * dden / d->den) / d->den;
}
/* Where the overlap is a product: dtp = t, dden = t (1 - a - b) + a, or + 2 a p. */
static void product_slopes(real *coef, const dice_weights *by, bool square, double g, const dice_share *d) {
  const double a = by->own, each = d->den == 0 ? 0 : g / d->den, left = each == 0 ? 0 : d->top / d->den;
  coef[C_BY_OTHER] = (real)(each * (left * (1 - a - by->other) - 1));
  coef[C_BY_OWN] = (real)(square ? 2 * a * each * left : 0);
  coef[C_ALWAYS] = (real)(square ? 0 : a * each * left);
}
/* g: the gradient by the missing fraction. */
static void dice_slopes(loss_row *r, double overlap, double g, const dice_share *d) {
  const double a = r->q[DICE_ALPHA], b = r->q[DICE_BETA];
  r->coef[C_OVERLAP] = (real)overlap;
  for (int side = 0; side < SIDES; side++) {
    const dice_weights by = side == STUDENT ? (dice_weights){a, b} : (dice_weights){b, a};
    real *coef = r->coef + side * C_SIDE;
    if (overlap != LEAST) {
      product_slopes(coef, &by, overlap == SQUARE, g, d);
      continue;
    }
    coef[C_ABOVE] = (real)dice_slope(&by, g, 1, d);
    coef[C_BELOW] = (real)dice_slope(&by, g, -1, d);
    coef[C_EQUAL] = (real)dice_slope(&by, g, 0, d);
  }
}
static void dice_finalize(loss_row *r) {
  const double overlap = r->q[DICE_OVERLAP];
  const dice_share d = dice_share_of(r, overlap);
  loss_put(r, LOSS, d.den == 0 ? 0 : d.wrong / d.den);
  dice_slopes(r, overlap, r->g, &d);
}
SMI vreal dice_value_of(const loss_out *w, int side, size_t i, int cnt) {
  const vreal p = at(loss_in(w->r, side == STUDENT ? 0 : DICE_TARGET), i, cnt),
              t = at(loss_in(w->r, side == STUDENT ? DICE_TARGET : 0), i, cnt);
  const real *coef = w->coef + side * C_SIDE;
  if (w->coef[C_OVERLAP] != LEAST)
    return v_fma(v_set1(coef[C_BY_OTHER]), t, v_fma(v_set1(coef[C_BY_OWN]), p, v_set1(coef[C_ALWAYS])));
  return v_select(v_lt(t, p), v_set1(coef[C_ABOVE]),
                  v_select(v_lt(p, t), v_set1(coef[C_BELOW]), v_set1(coef[C_EQUAL])));
}
SMI vreal dice_value(const loss_out *w, vreal none, size_t i, int cnt) {
  return dice_value_of(w, STUDENT, i, cnt);
}
SMI vreal dice_target_value(const loss_out *w, vreal none, size_t i, int cnt) {
  return dice_value_of(w, TEACHER, i, cnt);
}
LOSS_WRITE_OF(dice_out, STUDENT, dice_value)
LOSS_WRITE_OF(dice_target_out, TEACHER, dice_target_value)
#define OVERLAP_TERMS(name) \
  static const loss_body name##_body = {.sums = {[STAGE_LATE] = name##_late}, \
                                        .finalize = name##_finalize, \
                                        .write = {dice_out, dice_target_out}, \
                                        .along = 1u | 1u << DICE_TARGET, \
                                        .teacher = DICE_TARGET}; \
  LOSS_KERNEL(name)
OVERLAP_TERMS(dice)

/* ---- focal_tversky_loss: w u^g or -w log(1 - u) of the missing fraction u ---- */

enum { TVERSKY_WEIGHT = 2, TVERSKY_FORM = 3, TVERSKY_GAMMA = 4, TVERSKY_LOG = 1 };

static void tversky_finalize(loss_row *r) {
  const double overlap = r->q[TVERSKY_OVERLAP];
  const dice_share d = dice_share_of(r, overlap);
  const double u = d.den == 0 ? 0 : d.wrong / d.den, gamma = r->q[TVERSKY_GAMMA],
               inf = (double)__builtin_inf();
  const double weight = loss_has(r, TVERSKY_WEIGHT) ? (double)*loss_in(r, TVERSKY_WEIGHT) : 1;
  double loss = gamma == 1 ? u
                : u > 0    ? d_exp(gamma * d_log(u, 0))
                           : 0,
         slope = gamma == 1 ? 1
                 : u > 0    ? gamma * loss / u
                            : 0;
  if (r->q[TVERSKY_FORM] == TVERSKY_LOG) {
    const bool some = d.top > 0 && d.den > 0;
    loss = u == 0 ? 0 : some ? d_log1p(d.wrong / d.top) : inf;
    slope = some ? d.den / d.top : 0;
  }
  loss_put(r, LOSS, weigh(weight, loss));
  dice_slopes(r, overlap, r->g * weight * slope, &d);
}
SMI void tversky_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  dice_add(r, r->q[TVERSKY_OVERLAP], i, cnt, acc);
}
LOSS_SUMS_OF(tversky_late, tversky_add, 3)
OVERLAP_TERMS(tversky)

OPERATOR(nll_loss, nll, nll_grad)
OPERATOR(l2_svm_loss, svm, svm_grad)
OPERATOR(gumbel_optimized_loss, gumbel, gumbel_grad)
OPERATOR(binary_logit_distillation, bld, bld_grad)
OPERATOR(z_loss, zl, zl_grad)
OPERATOR(spherical_loss, sphere, sphere_grad)
OPERATOR(dice_semimetric_loss, dice, dice_grad)
OPERATOR(gumbel_binary_loss, gb, gb_grad)
OPERATOR(focal_tversky_loss, tversky, tversky_grad)
