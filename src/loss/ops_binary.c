/* loss/ops_binary.c - more sums over the classes, each on its own: focal losses of independent
 * classes, pairs of scores, rectified outputs, and the entropy of groups. See ops_elementwise.c. */
#include "engine/normal.h"
#include "elementwise.h"

/* Most of these have one sum and one factor. */
static void sum_finalize(loss_row *r) {
  loss_put(r, LOSS, r->total[STAGE_LATE][0]);
  r->coef[0] = (real)r->g;
}
/* One more term of such a sum; a NaN of x or t makes it NaN. */
SMI vreal add_term(vreal acc, vreal x, vreal t, int cnt, vreal term) {
  term = v_select(lanes_below(cnt), term, zero());
  return v_add(acc, v_select(v_eq(x, x), v_select(v_eq(t, t), term, t), x));
}

enum { SOFT = 1 };

/* The gradient of a soft target: 0 where the score is infinite, because the gradient could be
 * too. */
SMI vreal finite_at(vreal x, vreal by) { return v_select(v_eq(v_abs(x), v_set1(R_INF)), zero(), by); }
/* TERMS of a loss whose soft target has a gradient. inputs: what runs along the row besides. */
#define SOFT_TERMS(name, late, inputs) \
  static const loss_body name##_body = {.sums = {[STAGE_LATE] = late}, \
                                        .finalize = name##_finalize, \
                                        .write = {name##_out, name##_target_out}, \
                                        .along = inputs | 1u << SOFT, \
                                        .teacher = SOFT}; \
  LOSS_KERNEL(name)

/* ---- sigmoid_focal_loss ----
 *
 * sum_j t a v_softplus(-x) s(-x)^g + (1 - t) (1 - a) v_softplus(x) s(x)^g,
 * s(x)^g = e^(-g v_softplus(-x)) */

enum { SF_GAMMA = 0, SF_ALPHA = 1 };
/* The weights of classes that are present and of the others; both 1 if the parameter is below 0. */
SMI real sf_yes(const loss_row *r) { return r->q[SF_ALPHA] < 0 ? 1 : (real)r->q[SF_ALPHA]; }
SMI real sf_no(const loss_row *r) { return r->q[SF_ALPHA] < 0 ? 1 : (real)(1 - r->q[SF_ALPHA]); }

typedef struct side_of {
  vreal loss, power, share; /* v_softplus(x), s(x)^g, s(x) */
} side_of;
SMI side_of sf_side(const loss_row *r, vreal x) {
  vreal away = v_softplus(v_sub(zero(), x)), power = v_exp(v_mul(v_set1((real)-r->q[SF_GAMMA]), away));
  return (side_of){v_softplus(x), r->q[SF_GAMMA] == 0 ? one() : power, v_sigmoid(x)};
}
SMI void sf_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, SOFT), i, cnt);
  const side_of no = sf_side(r, x), yes = sf_side(r, v_sub(zero(), x));
  vreal a = v_mul(v_set1(sf_yes(r)), t), b = v_mul(v_set1(sf_no(r)), v_sub(one(), t));
  vreal term = v_add(no_less(v_mul(a, yes.power), yes.loss), no_less(v_mul(b, no.power), no.loss));
  acc[0] = add_term(acc[0], x, t, cnt, term);
}
LOSS_SUMS_OF(sf_late, sf_add, 1)
/* d/dx v_softplus(x) s(x)^g = s(x)^g (s(x) + g s(-x) v_softplus(x)) */
SMI vreal sf_slope(const loss_row *r, const side_of *on, const side_of *off) {
  vreal more = no_less(v_mul(v_set1((real)r->q[SF_GAMMA]), off->share), on->loss);
  return no_less(on->power, v_add(on->share, more));
}
SMI vreal sf_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  vreal x = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, SOFT), i, cnt);
  const side_of no = sf_side(r, x), yes = sf_side(r, v_sub(zero(), x));
  vreal a = v_mul(v_set1(sf_yes(r)), t), b = v_mul(v_set1(sf_no(r)), v_sub(one(), t));
  return v_mul(v_set1(w->coef[0]),
               v_sub(no_less(b, sf_slope(r, &no, &yes)), no_less(a, sf_slope(r, &yes, &no))));
}
SMI vreal sf_target_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  vreal x = at(loss_in(r, 0), i, cnt);
  const side_of no = sf_side(r, x), yes = sf_side(r, v_sub(zero(), x));
  vreal present = v_mul(v_set1(sf_yes(r)), no_less(yes.power, yes.loss)),
        absent = v_mul(v_set1(sf_no(r)), no_less(no.power, no.loss));
  return finite_at(x, v_mul(v_set1(w->coef[0]), v_sub(present, absent)));
}
LOSS_WRITE_OF(sf_out, STUDENT, sf_value)
LOSS_WRITE_OF(sf_target_out, TEACHER, sf_target_value)
static void sf_finalize(loss_row *r) { sum_finalize(r); }
SOFT_TERMS(sf, sf_late, 1u)

/* ---- binary_cross_entropy: sum_j w_j (t_j c_j softplus(-x) + (1 - t_j) softplus(x)) ---- */

enum { BCE_POSITIVE = 2, BCE_WEIGHT = 3, BCE_OVER = 0 };

typedef struct bce {
  vreal x, t, yes, no; /* yes, no: the weights of both parts */
} bce;
SMI bce bce_at(const loss_row *r, size_t i, int cnt) {
  vreal x = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, SOFT), i, cnt);
  vreal weight = loss_has(r, BCE_WEIGHT) ? at(loss_in(r, BCE_WEIGHT), i, cnt) : one();
  vreal positive = loss_has(r, BCE_POSITIVE) ? v_mul(weight, at(loss_in(r, BCE_POSITIVE), i, cnt)) : weight;
  return (bce){x, t, positive, weight};
}
SMI void bce_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const bce w = bce_at(r, i, cnt);
  const vreal yes = no_less(v_mul(w.yes, w.t), v_softplus(v_sub(zero(), w.x)));
  acc[0] =
      add_term(acc[0], w.x, w.t, cnt, v_add(yes, no_less(v_mul(w.no, v_sub(one(), w.t)), v_softplus(w.x))));
}
LOSS_SUMS_OF(bce_late, bce_add, 1)
static void bce_finalize(loss_row *r) {
  const double scale = r->q[BCE_OVER] != 0 ? 1 / (double)r->n : 1;
  loss_put(r, LOSS, scale * r->total[STAGE_LATE][0]);
  r->coef[0] = (real)(r->g * scale);
}
SMI vreal bce_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const bce b = bce_at(w->r, i, cnt);
  const vreal no = no_less(v_mul(b.no, v_sub(one(), b.t)), v_sigmoid(b.x));
  return v_mul(v_set1(w->coef[0]), v_sub(no, no_less(v_mul(b.yes, b.t), v_sigmoid(v_sub(zero(), b.x)))));
}
SMI vreal bce_target_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const bce b = bce_at(w->r, i, cnt);
  const vreal yes = no_less(b.yes, v_softplus(v_sub(zero(), b.x)));
  const vreal by = v_mul(v_set1(w->coef[0]), v_sub(yes, no_less(b.no, v_softplus(b.x))));
  return finite_at(b.x, by);
}
LOSS_WRITE_OF(bce_out, STUDENT, bce_value)
LOSS_WRITE_OF(bce_target_out, TEACHER, bce_target_value)
SOFT_TERMS(bce, bce_late, 1u | 1u << BCE_POSITIVE | 1u << BCE_WEIGHT)

/* ---- quality_focal_loss ----
 *
 * sum_j |d|^g (t v_softplus(-x) + (1 - t) v_softplus(x)), d = s(x) - t, g at least 1, or 0; or
 * sum_j d^2 */

enum { QF_GAMMA = 0, QF_FORM = 1, QF_DETACH = 2, QF_SQUARED = 1, QF_PLAIN = 2 };

SMI double qf_gamma(const loss_row *r) { return r->q[QF_FORM] == QF_PLAIN ? 0 : r->q[QF_GAMMA]; }
SMI vreal qf_power(vreal x, double power) { /* x^power of x in [0, 1] */
  if (power == 0) return one();
  vmask some = m_not(v_lt(x, v_set1(R_TINY)));
  vreal y = v_exp(v_mul(v_set1((real)power), v_log_scaled(v_select(some, x, one()), zero())));
  return v_select(some, power == 1 ? x : power == 2 ? v_mul(x, x) : y, zero());
}
SMI vreal qf_entropy(vreal x, vreal t) {
  return v_add(no_less(v_sub(one(), t), v_softplus(x)), no_less(t, v_softplus(v_sub(zero(), x))));
}
SMI void qf_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, SOFT), i, cnt), d = v_sub(v_sigmoid(x), t);
  vreal term =
      r->q[QF_FORM] == QF_SQUARED ? v_mul(d, d) : no_less(qf_power(v_abs(d), qf_gamma(r)), qf_entropy(x, t));
  acc[0] = add_term(acc[0], x, t, cnt, term);
}
LOSS_SUMS_OF(qf_late, qf_add, 1)
SMI vreal qf_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  const double gamma = qf_gamma(r);
  vreal x = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, SOFT), i, cnt), s = v_sigmoid(x), d = v_sub(s, t), v;
  vreal slope = v_mul(s, v_sigmoid(v_sub(zero(), x)));
  if (r->q[QF_FORM] == QF_SQUARED) {
    v = v_mul(v_mul(v_set1(2), d), slope);
  } else {
    v = v_mul(qf_power(v_abs(d), gamma), d);
    if (r->q[QF_DETACH] == 0 && gamma != 0) {
      vreal more = v_mul(v_mul(v_set1((real)gamma), qf_power(v_abs(d), gamma - 1)), v_copysign(slope, d));
      v = v_add(v, v_select(v_eq(d, zero()), zero(), no_less(more, qf_entropy(x, t))));
    }
  }
  return v_mul(v, v_set1(w->coef[0]));
}
/* With c the cross-entropy: -|d|^g x - g |d|^(g - 1) sgn(d) c, or -2 d. */
SMI vreal qf_target_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  const double gamma = qf_gamma(r);
  vreal x = at(loss_in(r, 0), i, cnt), t = at(loss_in(r, SOFT), i, cnt), d = v_sub(v_sigmoid(x), t);
  vreal v = v_mul(v_set1(2), d);
  if (r->q[QF_FORM] != QF_SQUARED) {
    v = no_less(qf_power(v_abs(d), gamma), x);
    if (r->q[QF_DETACH] == 0 && gamma != 0) {
      vreal more = v_mul(v_set1((real)gamma), v_copysign(qf_power(v_abs(d), gamma - 1), d));
      v = v_add(v, v_select(v_eq(d, zero()), zero(), no_less(more, qf_entropy(x, t))));
    }
  }
  return finite_at(x, v_mul(v, v_set1(-w->coef[0])));
}
LOSS_WRITE_OF(qf_out, STUDENT, qf_value)
LOSS_WRITE_OF(qf_target_out, TEACHER, qf_target_value)
static void qf_finalize(loss_row *r) { sum_finalize(r); }
SOFT_TERMS(qf, qf_late, 1u)

/* ---- fidelity_loss ----
 *
 * sum_j 1 - sqrt(P G + e) - sqrt((1 - P) (1 - G) + e), P = Phi(x / sqrt v) */

enum { FID_VARIANCE = 2, FID_EPSILON = 0 };
enum { SUM_FIDELITY, SUM_BY_VARIANCE };
enum { C_TRUTH = 1 };

/* A square root, 0 for what is no normal number: one of Newton's steps from an estimate that is
 * nearly right. */
SMI vreal root(vreal x) {
  vmask some = m_not(v_lt(x, v_set1(R_TINY)));
  vreal y = v_exp(v_mul(v_set1((real)0.5), v_log_scaled(v_select(some, x, one()), zero())));
  return v_select(some, v_mul(v_set1((real)0.5), v_add(y, v_div(x, y))), zero());
}
typedef struct fidelity {
  vreal loss, slope; /* slope: by x sqrt v, without the density's 1 / sqrt (2 pi) */
  vreal z, by_truth; /* twice the slope by G */
} fidelity;
/* Half of the loss, so written that nothing is a difference of numbers near 1:
 * with p + q = g + h = 1 the whole is, for e = 0, ((sqrt p - sqrt g)^2 + (sqrt q - sqrt
 * h)^2) / 2. */
typedef struct fidelity_half {
  vreal loss, root; /* sqrt(p g + e) */
} fidelity_half;
SMI fidelity_half fidelity_of(vreal p, vreal g, vreal e) {
  vreal a = root(p), b = root(g), away = v_sub(a, b), all = root(v_fma(p, g, e));
  vreal square = v_mul(v_mul(away, away), v_set1((real)0.5));
  return (fidelity_half){v_sub(square, v_div(e, v_fma(a, b, all))), all};
}
/* NaN for what is no probability. */
SMI vreal fid_truth(const loss_row *r, size_t i, int cnt) {
  vreal g = at(loss_in(r, SOFT), i, cnt);
  return v_select(m_or(v_lt(g, zero()), v_lt(one(), g)), v_set1(r_nan()), g);
}
SMI vreal fid_ratio(vreal p, vreal root) {
  const vmask none = v_eq(root, zero());
  return v_select(none, zero(), v_div(p, v_select(none, one(), root)));
}
SMI fidelity fidelity_at(const loss_row *r, size_t i, int cnt) {
  const real *variance = loss_in(r, FID_VARIANCE);
  const double v = variance ? (double)*variance : 2, scale = v > 0 ? 1 / __builtin_sqrt(v) : (double)r_nan();
  vreal x = at(loss_in(r, 0), i, cnt), g = fid_truth(r, i, cnt), h = v_sub(one(), g),
        e = v_set1((real)r->q[FID_EPSILON]);
  vreal z = v_mul(x, v_set1((real)scale));
  const normal_at w = normal_of_z(z);
  const fidelity_half yes = fidelity_of(w.p, g, e), no = fidelity_of(w.q, h, e);
  vreal slope = v_mul(v_mul(v_set1((real)0.5), w.density), v_sub(v_div(h, no.root), v_div(g, yes.root)));
  const vreal by_truth = v_sub(fid_ratio(w.q, no.root), fid_ratio(w.p, yes.root));
  return (fidelity){v_add(yes.loss, no.loss), slope, z, by_truth};
}
SMI void fid_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const fidelity w = fidelity_at(r, i, cnt);
  acc[SUM_FIDELITY] = add_term(acc[SUM_FIDELITY], w.z, fid_truth(r, i, cnt), cnt, w.loss);
  vreal by = v_select(v_eq(w.slope, zero()), zero(), v_mul(w.slope, w.z));
  acc[SUM_BY_VARIANCE] = v_add(acc[SUM_BY_VARIANCE], v_select(lanes_below(cnt), by, zero()));
}
LOSS_SUMS_OF(fid_late, fid_add, 2)
#define DENSITY 0.39894228040143267794 /* 1 / sqrt (2 pi) */
static void fid_finalize(loss_row *r) {
  const real *variance = loss_in(r, FID_VARIANCE);
  const double v = variance ? (double)*variance : 2;
  loss_put(r, LOSS, r->total[STAGE_LATE][SUM_FIDELITY]);
  loss_put_gradient(r, FID_VARIANCE, -0.5 * DENSITY * r->g / v * r->total[STAGE_LATE][SUM_BY_VARIANCE]);
  r->coef[0] = (real)(r->g * DENSITY / __builtin_sqrt(v));
  r->coef[C_TRUTH] = (real)(r->g * 0.5);
}
static void fid_special(const loss_row *r, bool nan, double none) {
  loss_put_gradient(r, FID_VARIANCE, none);
}
SMI vreal fid_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return v_mul(v_set1(w->coef[0]), fidelity_at(w->r, i, cnt).slope);
}
/* C_TRUTH: half the factor of the loss. */
SMI vreal fid_target_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return v_mul(v_set1(w->coef[C_TRUTH]), fidelity_at(w->r, i, cnt).by_truth);
}
LOSS_WRITE_OF(fid_out, STUDENT, fid_value)
LOSS_WRITE_OF(fid_target_out, TEACHER, fid_target_value)
static const loss_body fid_body = {.sums = {[STAGE_LATE] = fid_late},
                                   .finalize = fid_finalize,
                                   .special = fid_special,
                                   .write = {fid_out, fid_target_out},
                                   .along = 1u | 1u << SOFT,
                                   .teacher = SOFT};
LOSS_KERNEL(fid)

/* ---- relu_classifier: -log(f_y + e), or -log of that over sum_j (f_j + e), f = max(0, x) ---- */

enum { TARGET = 1, RELU_FORM = 1, RELU_EPSILON = 2, RELU_NORMALISED = 1 };

SMI void relu_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = at(loss_in(r, 0), i, cnt), f = v_select(lanes_below(cnt), v_max(x, zero()), zero());
  acc[0] = v_add(acc[0], v_add(loss_at_target(r, f, 0, i), v_sub(x, x))); /* an infinity is NaN */
}
LOSS_SUMS_OF(relu_late, relu_add, 1)
static void relu_finalize(loss_row *r) {
  const double e = r->q[RELU_EPSILON], x = r->target_inputs[0], own = (x > 0 ? x : 0) + e,
               inf = (double)__builtin_inf();
  const double rest = r->total[STAGE_LATE][0] + ((double)r->n - 1) * e, all = own + rest;
  const bool normalised = r->q[RELU_FORM] == RELU_NORMALISED;
  double loss = own > 0x1p-1000 ? (normalised ? d_log1p(rest / own) : -d_log(own, 0)) : inf;
  double slope = normalised ? -rest / own / all : -1 / own;
  loss_put(r, LOSS, loss);
  r->coef[0] = (real)(normalised && all > 0 ? r->g / all : 0);
  r->at_target = (real)(x > 0 ? r->g * slope : 0);
}
SMI vreal relu_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vmask live = v_lt(zero(), at(loss_in(w->r, 0), i, cnt));
  return loss_hit_target(w, v_select(live, v_set1(w->coef[0]), zero()), i);
}
LOSS_WRITE_OF(relu_out, STUDENT, relu_value)
TERMS(relu, relu_late, 1u, TARGET, 0)

/* ---- group_entropy ----
 *
 * w1 (sum_g P_g log P_g + log 2) + sum_g w_g (sum_c r_c log r_c + log n_g), r_c = p_c / P_g, g:
 * old classes and new ones */

enum { GE_OLD, GE_BETWEEN, GE_OF_OLD, GE_OF_NEW }; /* parameters */
enum { MASS_OLD, LOGS_OLD, MASS_NEW, LOGS_NEW };   /* sums of p and of p log p */
enum { C_OLD, C_OLD_LOG, C_NEW, C_NEW_LOG };       /* coefficients: of 1 and of log p */

SMI vmask ge_old(const loss_row *r, size_t i) {
  const double left = r->q[GE_OLD] - (double)(r->on[STUDENT].origin + i);
  return v_lt(v_iota(), v_set1(left < 0 ? 0 : left < LANES ? (real)left : LANES));
}
SMI vreal ge_log(vreal p) {
  return v_log_scaled(v_select(v_lt(p, v_set1(R_TINY)), one(), p), zero());
} /* 0 where p is 0 */
SMI void ge_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal p = v_select(lanes_below(cnt), at(loss_in(r, 0), i, cnt), zero());
  p = v_select(m_and(m_not(v_lt(p, zero())), v_lt(p, v_set1(R_INF))), p, v_set1(r_nan()));
  vreal logs = v_mul(p, ge_log(p));
  vmask old = ge_old(r, i);
  acc[MASS_OLD] = v_add(acc[MASS_OLD], v_select(old, p, zero()));
  acc[LOGS_OLD] = v_add(acc[LOGS_OLD], v_select(old, logs, zero()));
  acc[MASS_NEW] = v_add(acc[MASS_NEW], v_select(old, zero(), p));
  acc[LOGS_NEW] = v_add(acc[LOGS_NEW], v_select(old, zero(), logs));
}
LOSS_SUMS_OF(ge_late, ge_add, 4)
/* One group: its part of the loss; its gradient is coef[0] + coef[1] log p. */
static double ge_group(loss_row *r, double weight, double count, double mass, double logs, real *coef) {
  const bool some = mass > 0x1p-1000, inner = some && count > 1;
  const double log_mass = some ? d_log(mass, 0) : 0,
               within = inner ? logs / mass - log_mass : 0; /* sum r log r */
  const double each = inner ? weight / mass : 0;
  coef[0] = (real)(r->g * (r->q[GE_BETWEEN] * (log_mass + 1) - each * (log_mass + within)));
  coef[1] = (real)(r->g * each);
  return r->q[GE_BETWEEN] * mass * log_mass + (inner ? weight * (within + d_log(count, 0)) : 0);
}
static void ge_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], n = (double)r->n, old = r->q[GE_OLD] < n ? r->q[GE_OLD] : n;
  double loss = ge_group(r, r->q[GE_OF_OLD], old, sum[MASS_OLD], sum[LOGS_OLD], r->coef + C_OLD);
  loss += ge_group(r, r->q[GE_OF_NEW], n - old, sum[MASS_NEW], sum[LOGS_NEW], r->coef + C_NEW);
  if (old > 0 && old < n) loss += r->q[GE_BETWEEN] * 0x1.62e42fefa39efp-1;
  loss_put(r, LOSS, loss);
}
SMI vreal ge_value(const loss_out *w, vreal none, size_t i, int cnt) {
  vreal p = at(loss_in(w->r, 0), i, cnt);
  vmask old = ge_old(w->r, i);
  vreal first = v_select(old, v_set1(w->coef[C_OLD]), v_set1(w->coef[C_NEW]));
  vreal second = v_select(old, v_set1(w->coef[C_OLD_LOG]), v_set1(w->coef[C_NEW_LOG]));
  return v_select(v_lt(p, v_set1(R_TINY)), zero(), v_fma(second, ge_log(p), first));
}
LOSS_WRITE_OF(ge_out, STUDENT, ge_value)
TERMS(ge, ge_late, 1u, 0, 0)

OPERATOR(sigmoid_focal_loss, sf, sf_grad)
OPERATOR(binary_cross_entropy, bce, bce_grad)
OPERATOR(quality_focal_loss, qf, qf_grad)
OPERATOR(fidelity_loss, fid, fid_grad)
OPERATOR(relu_classifier, relu, relu_grad)
OPERATOR(group_entropy, ge, ge_grad)
