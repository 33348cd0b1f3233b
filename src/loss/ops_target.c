/* loss/ops_target.c - losses of one class a row: functions of the target's log p, and of sums over
 * the row; and the soft form of one of them. See ops.c.
 *
 * With u = log p_y a loss f(u) has the gradient f'(u) ([j = y] - p_j): the weights times -f', and
 * f' (1 - p_y) at the target. */
#include "logits.h"
#include "short.h"

enum { TARGET = 1 };

static bool hard_terms_only(const loss_row *r) { return true; }
LOSS_SIDE(hard, logit, false, setup_plain)

/* f and f' of a loss, and its gradient divided by `scale`. */
SMI void hard_finalize(loss_row *r, loss_hit hit, double loss, double slope, double scale) {
  loss_put(r, LOSS, loss);
  r->coef[0] = (real)(-r->g * slope / scale);
  r->at_target = (real)(r->g * slope * hit.q / scale);
}

#define HARD(name, inputs) \
  static const loss_body name##_body = {.side = {&hard_side}, \
                                        .small = loss_short, \
                                        .brief = hard_terms_only, \
                                        .terms_only = hard_terms_only, \
                                        .finalize = name##_finalize, \
                                        .write = {logit_out}, \
                                        .along = inputs, \
                                        .target = TARGET}; \
  LOSS_KERNEL(name)

/* ---- focal_loss: -a q^g u, q = 1 - p, u = log p ---- */

enum { FOCAL_WEIGHT = 2, FOCAL_GAMMA = 1, FOCAL_ALPHA = 2 };

SMI double focal_power(loss_hit hit, double gamma) {
  return gamma == 0 ? 1 : hit.q > 0 ? d_exp(gamma * d_log(hit.q, 0)) : 0;
}
SMI double focal_ratio(loss_hit hit) {
  return hit.p == 0 ? 0 : hit.q > 0 ? -hit.log_p / hit.q : 1;
} /* u / (e^u - 1) */

static void focal_finalize(loss_row *r) {
  loss_hit hit = loss_hit_of(r, STUDENT);
  double gamma = r->q[FOCAL_GAMMA],
         alpha = r->q[FOCAL_ALPHA] * (loss_has(r, FOCAL_WEIGHT) ? r->target_inputs[FOCAL_WEIGHT] : 1);
  double power = focal_power(hit, gamma), loss = alpha * power == 0 ? 0 : -alpha * power * hit.log_p;
  hard_finalize(r, hit, loss, -alpha * power * (1 + gamma * hit.p * focal_ratio(hit)), 1);
}
HARD(focal, 1u | 1u << FOCAL_WEIGHT)

/* ---- poly_loss: -u + sum_k e_k q^k ---- */

enum { POLY_TERMS = 6 };

typedef struct poly_sum {
  double value, slope;
} poly_sum;
SMI poly_sum poly_sum_of(const double *e, double q) {
  poly_sum s = {0, 0};
  for (int k = POLY_TERMS; k > 0; k--)
    s.value = (e[k - 1] + s.value) * q, s.slope = k * e[k - 1] + s.slope * q;
  return s;
}

static void poly_finalize(loss_row *r) {
  const loss_hit hit = loss_hit_of(r, STUDENT);
  /* parameters added later follow the reduction */
  const double *q = r->q, e[POLY_TERMS] = {q[1], q[2], q[4], q[5], q[6], q[7]};
  const poly_sum s = poly_sum_of(e, hit.q);
  hard_finalize(r, hit, -hit.log_p + s.value, -1 - hit.p * s.slope, 1);
}
HARD(poly, 1u)

/* ---- soft_poly_loss: sum_j -t_j log p_j + A sum_k e_k q^k, q = sum_j t_j (1 - p_j) / A, A = sum_j
 * t_j ----
 *
 * With s = sum t p, S the series and P its slope: dx_j = (A p_j - t_j) + P p_j (s - t_j), and
 * dt_j = S - P q - log p_j + P (1 - p_j). */

enum { SOFT_POLY_TARGET = 1 };
enum { SP_MASS, SP_AWAY, SP_REST, SP_SHARE };      /* sums: A, how far below the top, A q, s */
enum { C_MASS, C_OWN, C_SLOPE, C_SHARE, C_LEVEL }; /* coefficients */

/* 1 - p; that of the largest is a sum of the others. */
SMI vreal rest_of(const loss_row *r, vreal p, size_t i) {
  const vreal rest = v_sub(v_set1(1), p);
  const uint64_t lane = (uint64_t)(r->top[STUDENT] - (int64_t)(r->on[STUDENT].origin + i));
  const double others = r->side[STUDENT].sum_without_max;
  return lane < LANES
             ? v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1((real)(others / (1 + others))), rest)
             : rest;
}
SMI void soft_poly_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const score z = loss_score(r, STUDENT, score_logit, i, cnt);
  const vreal zero = v_set1(0),
              t = v_select(lanes_below(cnt), at(loss_in(r, SOFT_POLY_TARGET), i, cnt), zero);
  const vreal p = loss_weight(r, STUDENT, z, false, i, cnt);
  acc[SP_MASS] = v_add(acc[SP_MASS], t);
  acc[SP_AWAY] = v_select(v_eq(t, zero), acc[SP_AWAY], v_fma(t, loss_below(r, STUDENT, z), acc[SP_AWAY]));
  acc[SP_REST] = v_fma(t, rest_of(r, p, i), acc[SP_REST]);
  acc[SP_SHARE] = v_fma(t, p, acc[SP_SHARE]);
}
LOSS_SUMS_OF(soft_poly_late, soft_poly_add, 4)
static void soft_poly_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], mass = sum[SP_MASS];
  const double rest = mass == 0 ? 0 : sum[SP_REST] / mass;
  const poly_sum s = poly_sum_of(r->q, rest);
  loss_put(r, LOSS, sum[SP_AWAY] + mass * (r->side[STUDENT].log1p + s.value));
  r->coef[C_MASS] = (real)(r->g * mass);
  r->coef[C_OWN] = (real)r->g;
  r->coef[C_SLOPE] = (real)(r->g * s.slope);
  r->coef[C_SHARE] = (real)sum[SP_SHARE];
  r->coef[C_LEVEL] = (real)(r->g * (s.value - s.slope * rest));
}
SMI vreal soft_poly_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal t = at(loss_in(w->r, SOFT_POLY_TARGET), i, cnt);
  const vreal v = v_fnma(v_set1(w->coef[C_OWN]), t, v_mul(p, v_set1(w->coef[C_MASS])));
  return v_fma(v_mul(p, v_set1(w->coef[C_SLOPE])), v_sub(v_set1(w->coef[C_SHARE]), t), v);
}
SMI vreal soft_poly_target_value(const loss_out *w, vreal none, size_t i, int cnt) {
  const loss_row *r = w->r;
  const score z = loss_score(r, STUDENT, score_logit, i, cnt);
  const vreal p = loss_weight(r, STUDENT, z, false, i, cnt), level = v_set1(w->coef[C_LEVEL]);
  const vreal by = v_fma(v_set1(w->coef[C_SLOPE]), rest_of(r, p, i), level);
  return v_select(v_eq(z.h, v_set1(-R_INF)), v_set1(0),
                  v_fnma(v_set1(w->coef[C_OWN]), loss_log(r, STUDENT, z), by));
}
LOSS_WRITE_OF(soft_poly_out, STUDENT, soft_poly_value)
LOSS_WRITE_OF(soft_poly_target_out, TEACHER, soft_poly_target_value)
static const loss_body soft_poly_body = {.side = {&hard_side},
                                         .sums = {[STAGE_LATE] = soft_poly_late},
                                         .finalize = soft_poly_finalize,
                                         .write = {soft_poly_out, soft_poly_target_out},
                                         .along = 1u | 1u << SOFT_POLY_TARGET,
                                         .teacher = SOFT_POLY_TARGET};
LOSS_KERNEL(soft_poly)

/* ---- poly_focal_loss: w (-q^g u + e q^(g + 1)) ---- */

enum { PF_WEIGHT = 2, PF_GAMMA = 1, PF_EPSILON = 2 };

static void poly_focal_finalize(loss_row *r) {
  const loss_hit hit = loss_hit_of(r, STUDENT);
  const double gamma = r->q[PF_GAMMA], epsilon = r->q[PF_EPSILON],
               weight = loss_has(r, PF_WEIGHT) ? r->target_inputs[PF_WEIGHT] : 1;
  const double power = weight * focal_power(hit, gamma),
               slope = 1 + gamma * hit.p * focal_ratio(hit) + epsilon * (gamma + 1) * hit.p;
  hard_finalize(r, hit, power == 0 ? 0 : power * (epsilon * hit.q - hit.log_p), -power * slope, 1);
}
HARD(poly_focal, 1u | 1u << PF_WEIGHT)

/* ---- squared_error_logit ----
 *
 * (u - log q)^2 / 2 of the teacher's probability q of the class, or with x_y for u, or -q u */

enum { SEL_PROBABILITY = 2, SEL_MODE = 1, SEL_FLOOR = 2, SEL_RAW = 1, SEL_NAIVE = 2 };

static void sel_finalize(loss_row *r) {
  loss_hit hit = loss_hit_of(r, STUDENT);
  double q = (double)*loss_in(r, SEL_PROBABILITY), inf = (double)__builtin_inf();
  q = q < r->q[SEL_FLOOR] ? r->q[SEL_FLOOR] : q;
  if (r->q[SEL_MODE] == SEL_NAIVE) {
    hard_finalize(r, hit, q == 0 ? 0 : -q * hit.log_p, -q, 1);
    return;
  }
  double log_q = q > 0x1p-1000 ? d_log(q, 0) : q == q ? -inf : q;
  double away = (r->q[SEL_MODE] == SEL_RAW ? r->target_inputs[0] : hit.log_p) - log_q;
  hard_finalize(r, hit, away * away / 2, away, 1);
  if (r->q[SEL_MODE] == SEL_RAW) r->coef[0] = 0, r->at_target = (real)(r->g * away);
}
HARD(sel, 1u)

/* ---- logit_adjustment: the cross-entropy of x + tau log prior ---- */

enum { PRIOR = 2, TAU = 1 };

SMI consts adjusted_setup(const row_call *c, const span *s) { return (consts){{(real)c->params[TAU]}}; }
/* The sum is rounded once. A class of prior 0 does not exist. */
SMI score score_adjusted(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal prior = at(s->src[PRIOR], i, cnt), x = at(s->src[0], i, cnt), zero = v_set1(0), tiny = v_set1(R_TINY);
  vmask usable = m_and(m_not(v_lt(prior, tiny)), v_lt(prior, v_set1(R_INF))),
        none = m_and(m_not(v_lt(prior, zero)), v_lt(prior, tiny));
  vreal z = v_fma(v_set1(k->v[0]), v_log_scaled(v_select(usable, prior, v_set1(1)), zero), x);
  z = v_select(usable, z, v_select(none, v_set1(-R_INF), v_set1(r_nan())));
  return (score){loss_shifted(z, shift), zero};
}
static void adjusted_finalize(loss_row *r) {
  loss_hit hit = loss_hit_of(r, STUDENT);
  hard_finalize(r, hit, -hit.log_p, -1, 1);
}
EXP_SCORES(adjusted, score_adjusted)
LOSS_SIDE(adjusted, adjusted, false, adjusted_setup)
static const loss_body adjusted_body = {.side = {&adjusted_side},
                                        .terms_only = hard_terms_only,
                                        .finalize = adjusted_finalize,
                                        .write = {loss_plain_out},
                                        .along = 1u | 1u << PRIOR,
                                        .target = TARGET};
LOSS_KERNEL(adjusted)

/* ---- max_suppression: -u + a (top - mean z) + b |x|^2 / 2; outlier_exposure: lse - mean z ---- */

enum { MS_ALPHA = 1, MS_PENALTY = 2, MS_OVER = 3 }; /* parameters */
enum { SUM_BELOW, SUM_COUNT, SUM_SQUARES };         /* sums of STAGE_LATE */
enum { C_WEIGHT, C_MEAN, C_SQUARES, C_TOP };        /* coefficients */

SMI void spread_add(const loss_row *r, bool finite, size_t i, int cnt, vreal *acc) {
  score z = loss_score(r, STUDENT, score_logit, i, cnt);
  vreal zero = v_set1(0);
  vmask out = finite ? v_eq(z.h, v_set1(-R_INF)) : m_not(lanes_below(cnt));
  acc[SUM_BELOW] = v_add(acc[SUM_BELOW], v_select(out, zero, loss_below(r, STUDENT, z)));
  acc[SUM_COUNT] = v_add(acc[SUM_COUNT], v_select(out, zero, v_set1(1)));
}
SMI void ms_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = v_select(lanes_below(cnt), at(loss_in(r, 0), i, cnt), v_set1(0));
  spread_add(r, r->q[MS_OVER] != 0, i, cnt, acc);
  acc[SUM_SQUARES] = v_select(v_eq(x, v_set1(-R_INF)), acc[SUM_SQUARES], v_fma(x, x, acc[SUM_SQUARES]));
}
LOSS_SUMS_OF(ms_late, ms_add, 3)

/* 0 if no mass is spread, whatever the distance: 0 times infinity is not wanted. */
SMI double times(double c, double x) { return c == 0 ? 0 : c * x; }

static void ms_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], alpha = r->q[MS_ALPHA], penalty = r->q[MS_PENALTY];
  loss_hit hit = loss_hit_of(r, STUDENT);
  double extra = times(alpha, sum[SUM_BELOW] / sum[SUM_COUNT]) + times(penalty, sum[SUM_SQUARES]) / 2;
  hard_finalize(r, hit, -hit.log_p + extra, -1, 1);
  double mean = r->q[MS_OVER] != 0 && r->h[STUDENT] == -R_INF ? 0 : alpha / sum[SUM_COUNT];
  double all = -mean + (r->h[STUDENT] == -R_INF ? 0 : penalty * r->target_inputs[0]) +
               (r->target == r->top[STUDENT] ? alpha : 0);
  r->at_target = (real)(r->g * (all - hit.q));
  r->coef[C_MEAN] = (real)(r->g * alpha / sum[SUM_COUNT]);
  r->coef[C_SQUARES] = (real)(r->g * penalty);
  r->coef[C_TOP] = (real)(r->g * alpha);
}
SMI vreal spread_value(const loss_out *w, bool finite, vreal p, size_t i, int cnt) {
  vreal x = at(loss_in(w->r, 0), i, cnt), v = v_mul(p, v_set1(w->coef[C_WEIGHT])),
        mean = v_set1(w->coef[C_MEAN]);
  if (finite) mean = v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), mean);
  v = v_sub(v, mean);
  if (w->coef[C_SQUARES] != 0)
    v = v_select(v_eq(x, v_set1(-R_INF)), v, v_fma(v_set1(w->coef[C_SQUARES]), x, v));
  return v;
}
SMI vreal ms_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal v = spread_value(w, w->r->q[MS_OVER] != 0, p, i, cnt);
  uint64_t lane = (uint64_t)(w->r->top[STUDENT] - (int64_t)(w->r->on[STUDENT].origin + i));
  if (lane < LANES)
    v = v_add(v, v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(w->coef[C_TOP]), v_set1(0)));
  return loss_hit_target(w, v, i);
}
LOSS_WRITE_OF(ms_out, STUDENT, ms_value)
static const loss_body ms_body = {.side = {&hard_side},
                                  .sums = {[STAGE_LATE] = ms_late},
                                  .finalize = ms_finalize,
                                  .write = {ms_out},
                                  .along = 1u,
                                  .target = TARGET};
LOSS_KERNEL(ms)

enum { OE_OVER = 0 };
SMI void oe_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  spread_add(r, r->q[OE_OVER] != 0, i, cnt, acc);
}
LOSS_SUMS_OF(oe_late, oe_add, 2)
static void oe_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE];
  loss_put(r, LOSS, r->side[STUDENT].log1p + sum[SUM_BELOW] / sum[SUM_COUNT]);
  r->coef[C_WEIGHT] = (real)r->g;
  r->coef[C_MEAN] = (real)(r->g / sum[SUM_COUNT]);
  r->coef[C_SQUARES] = 0;
}
SMI vreal oe_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return spread_value(w, w->r->q[OE_OVER] != 0, p, i, cnt);
}
LOSS_WRITE_OF(oe_out, STUDENT, oe_value)
static const loss_body oe_body = {.side = {&hard_side},
                                  .sums = {[STAGE_LATE] = oe_late},
                                  .finalize = oe_finalize,
                                  .write = {oe_out},
                                  .along = 1u};
LOSS_KERNEL(oe)

/* ---- energy_margin: max(0, E - in)^2 or max(0, out - E)^2 of the energy E = -T lse(x / T) ---- */

enum { OUTLIER = 1, EM_T = 0, EM_IN = 1, EM_OUT = 2 };

SMI consts em_setup(const row_call *c, const span *s) { return loss_factor(1 / c->params[EM_T]); }
static void em_finalize(loss_row *r) {
  const int64_t *outlier = (const int64_t *)(const void *)loss_in(r, OUTLIER);
  bool out = outlier && *outlier != 0;
  double energy = -r->q[EM_T] * loss_lse(r, STUDENT),
         over = out ? r->q[EM_OUT] - energy : energy - r->q[EM_IN];
  if (!(over > 0)) over = 0;
  loss_put(r, LOSS, over * over);
  r->coef[0] = (real)(out ? 2 * r->g_other * over : -2 * r->g * over);
}
LOSS_SIDE(em, tempered, true, em_setup)
static const loss_body em_body = {.side = {&em_side},
                                  .terms_only = hard_terms_only,
                                  .finalize = em_finalize,
                                  .write = {loss_plain_out},
                                  .along = 1u};
LOSS_KERNEL(em)

/* ---- robust_temperature: T (lse(x / T) - log n + rho) - x_y; dT = rho - log n + entropy ---- */

enum { RT_TAU = 2, RT_T = 1, RT_RHO = 2 };

SMI double rt_temperature(const double *q, const real *tau) { return tau ? (double)*tau : q[RT_T]; }
SMI consts rt_setup(const row_call *c, const span *s) {
  double t = rt_temperature(c->params, s->src[RT_TAU]);
  return loss_factor(t >= 1e-30 ? 1 / t : (double)r_nan());
}
static bool rt_wants(const loss_row *r, int stage) {
  /* the entropy, for the gradient of T */
  return stage == STAGE_LATE && r->backward && r->outputs >> RT_TAU & 1;
}
static bool rt_terms_only(const loss_row *r) { return !rt_wants(r, STAGE_LATE); }
SMI void rt_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  score z = loss_score(r, STUDENT, score_tempered, i, cnt);
  vreal p = loss_weight(r, STUDENT, z, true, i, cnt);
  acc[0] = v_select(v_eq(p, v_set1(0)), acc[0], v_fma(p, loss_below(r, STUDENT, z), acc[0]));
}
LOSS_SUMS_OF(rt_late, rt_add, 1)
static void rt_finalize(loss_row *r) {
  loss_hit hit = loss_hit_of(r, STUDENT);
  double t = rt_temperature(r->q, loss_in(r, RT_TAU)), spare = r->q[RT_RHO] - d_log1p((double)r->n - 1);
  hard_finalize(r, hit, t * (spare - hit.log_p), -1, 1);
  loss_put_gradient(r, RT_TAU, r->g * (spare + r->side[STUDENT].log1p + r->total[STAGE_LATE][0]));
}
static void rt_special(const loss_row *r, bool nan, double none) { loss_put_gradient(r, RT_TAU, none); }
LOSS_SIDE(rt, tempered, true, rt_setup)
static const loss_body rt_body = {.side = {&rt_side},
                                  .sums = {[STAGE_LATE] = rt_late},
                                  .wants = rt_wants,
                                  .terms_only = rt_terms_only,
                                  .finalize = rt_finalize,
                                  .special = rt_special,
                                  .write = {loss_plain_out},
                                  .along = 1u,
                                  .target = TARGET};
LOSS_KERNEL(rt)

OPERATOR(focal_loss, focal, focal_grad)
OPERATOR(poly_loss, poly, poly_grad)
OPERATOR(soft_poly_loss, soft_poly, soft_poly_grad)
OPERATOR(poly_focal_loss, poly_focal, poly_focal_grad)
OPERATOR(squared_error_logit, sel, sel_grad)
OPERATOR(logit_adjustment, adjusted, adjusted_grad)
OPERATOR(max_suppression, ms, ms_grad)
OPERATOR(outlier_exposure, oe, oe_grad)
OPERATOR(energy_margin, em, em_grad)
OPERATOR(robust_temperature, rt, rt_grad)
