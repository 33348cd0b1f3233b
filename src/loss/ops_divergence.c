/* loss/ops_divergence.c - losses between two rows of logits, a student's and a teacher's. See
 * ops.c. p and q are their weights. */
#include "high.h"
#include "nontarget.h"

/* ---- knowledge_distillation ----
 *
 * k D(q || p), k D(p || q) or -k sum q log p, with temperatures of their own */

enum { KD_DIVERGENCE, KD_T, KD_TEACHER_T, KD_SCALE };
enum { KD_REVERSE = 1, KD_CROSS = 2 };

SMI double kd_temperature(const double *q, int side) {
  const double least = 1e-30, teacher = q[KD_TEACHER_T];
  if (side != TEACHER || teacher == 0) return q[KD_T];
  return teacher > least ? teacher : least;
}
SMI double kd_scale(const double *q) {
  double same = kd_temperature(q, STUDENT) == kd_temperature(q, TEACHER);
  return q[KD_SCALE] == 0 && same != 0 ? q[KD_T] * q[KD_T] : 1;
}
SMI consts kd_student_setup(const row_call *c, const span *s) {
  return loss_factor(1 / kd_temperature(c->params, STUDENT));
}
SMI consts kd_teacher_setup(const row_call *c, const span *s) {
  return loss_factor(1 / kd_temperature(c->params, TEACHER));
}
LOSS_SIDE(kd_student, tempered, true, kd_student_setup)
LOSS_SIDE(kd_teacher, tempered, true, kd_teacher_setup)

SMI void kd_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  pair w = pair_at(r, score_tempered, true, i, cnt);
  if (r->q[KD_DIVERGENCE] == KD_REVERSE) acc[0] = add_where(acc[0], w.p, w.log_p, v_sub(w.log_p, w.log_q));
  else if (r->q[KD_DIVERGENCE] == KD_CROSS)
    acc[0] = add_where(acc[0], w.q, w.log_q, v_sub(v_set1(0), w.log_p));
  else acc[0] = add_where(acc[0], w.q, w.log_q, v_sub(w.log_q, w.log_p));
}
LOSS_SUMS_OF(kd_late, kd_add, 1)

enum { C_DIVERGENCE = 2 };
static void kd_finalize(loss_row *r) {
  double d = r->total[STAGE_LATE][0], k = kd_scale(r->q), finite = d < (double)__builtin_inf();
  bool reverse = r->q[KD_DIVERGENCE] == KD_REVERSE;
  loss_put(r, LOSS, k * d);
  r->coef[C_STUDENT] = (real)(reverse && finite == 0 ? 0 : r->g * k / kd_temperature(r->q, STUDENT));
  r->coef[C_TEACHER] = (real)(!reverse && finite == 0 ? 0 : r->g * k / kd_temperature(r->q, TEACHER));
  r->coef[C_DIVERGENCE] = (real)d;
}
/* weight times (log ratio - its mean), and 0 where the mean is infinite. */
SMI vreal about_mean(const loss_out *w, int c, vreal weight, vreal ratio, real mean) {
  if (w->coef[c] == 0) return v_set1(0);
  vreal v = v_mul(v_mul(weight, v_set1(w->coef[c])), v_sub(ratio, v_set1(mean)));
  return v_select(v_eq(weight, v_set1(0)), v_set1(0), v);
}
SMI vreal kd_student_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  score u = loss_score(r, TEACHER, score_tempered, i, cnt);
  if (r->q[KD_DIVERGENCE] != KD_REVERSE)
    return v_mul(v_set1(w->coef[C_STUDENT]), v_sub(p, loss_weight(r, TEACHER, u, true, i, cnt)));
  vreal ratio =
      v_sub(loss_log(r, STUDENT, loss_score(r, STUDENT, score_tempered, i, cnt)), loss_log(r, TEACHER, u));
  return about_mean(w, C_STUDENT, p, ratio, w->coef[C_DIVERGENCE]);
}
SMI vreal kd_teacher_value(const loss_out *w, vreal q, size_t i, int cnt) {
  const loss_row *r = w->r;
  score z = loss_score(r, STUDENT, score_tempered, i, cnt);
  vreal log_p = loss_log(r, STUDENT, z);
  if (r->q[KD_DIVERGENCE] == KD_REVERSE)
    return v_mul(v_set1(w->coef[C_TEACHER]), v_sub(q, loss_weight(r, STUDENT, z, true, i, cnt)));
  vreal log_q = loss_log(r, TEACHER, loss_score(r, TEACHER, score_tempered, i, cnt));
  vreal ratio = r->q[KD_DIVERGENCE] == KD_CROSS ? v_sub(v_set1(0), log_p) : v_sub(log_q, log_p);
  return about_mean(w, C_TEACHER, q, ratio, w->coef[C_DIVERGENCE]);
}
LOSS_WRITE_OF(kd_student_out, STUDENT, kd_student_value)
LOSS_WRITE_OF(kd_teacher_out, TEACHER, kd_teacher_value)
static const loss_body kd_plain_body = {.side = {&kd_student_side, &kd_teacher_side},
                                        .sums = {[STAGE_LATE] = kd_late},
                                        .finalize = kd_finalize,
                                        .write = {kd_student_out, kd_teacher_out},
                                        .along = 1u | 1u << TEACHER_PORT,
                                        .teacher = TEACHER_PORT};
LOSS_KERNEL(kd_plain)

/* The same at a high temperature (high.h). */
SMI double kd_high_temperature(const loss_row *r) { return r->q[KD_T]; }
SMI void kd_high_centre_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  high_centre_add(r, score_tempered, (real)r->q[KD_T], i, cnt, acc);
}
SMI void kd_high_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const high w = high_at(r, r->coef, score_tempered, i, cnt);
  acc[0] = v_add(acc[0], high_term(&w, r->q[KD_DIVERGENCE] == KD_REVERSE, v_set1(r->coef[C_HIGH])));
}
LOSS_SUMS_OF(kd_high_late, kd_high_centre_add, 1)
HIGH_SUMS_OF(kd_high_last, kd_high_add, 1, kd_high_temperature)
static void kd_high_finalize(loss_row *r) {
  const double d = r->total[STAGE_LAST][0], t = r->q[KD_T];
  const bool reverse = r->q[KD_DIVERGENCE] == KD_REVERSE, finite = d < (double)__builtin_inf();
  high_finalize_centre(r, t, r->coef);
  loss_put(r, LOSS, d);
  r->coef[C_STUDENT] = (real)(reverse && !finite ? 0 : r->g);
  r->coef[C_TEACHER] = (real)(!reverse && !finite ? 0 : r->g);
  r->coef[C_DIVERGENCE] = (real)(d / t);
}
SMI vreal kd_high_student_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const high at = high_at(w->r, w->coef, score_tempered, i, cnt);
  if (w->r->q[KD_DIVERGENCE] == KD_REVERSE)
    return about_mean(w, C_STUDENT, p, v_sub(v_set1(0), at.lift), w->coef[C_DIVERGENCE]);
  return v_mul(v_set1(w->coef[C_STUDENT]), high_gap(&at, v_set1(w->coef[C_HIGH])));
}
SMI vreal kd_high_teacher_value(const loss_out *w, vreal q, size_t i, int cnt) {
  const high at = high_at(w->r, w->coef, score_tempered, i, cnt);
  if (w->r->q[KD_DIVERGENCE] != KD_REVERSE)
    return about_mean(w, C_TEACHER, q, at.lift, w->coef[C_DIVERGENCE]);
  return v_mul(v_set1(-w->coef[C_TEACHER]), high_gap(&at, v_set1(w->coef[C_HIGH])));
}
LOSS_WRITE_OF(kd_high_student_out, STUDENT, kd_high_student_value)
LOSS_WRITE_OF(kd_high_teacher_out, TEACHER, kd_high_teacher_value)
static const loss_body kd_high_body = {.side = {&kd_student_side, &kd_teacher_side},
                                       .sums = {[STAGE_LATE] = kd_high_late, [STAGE_LAST] = kd_high_last},
                                       .finalize = kd_high_finalize,
                                       .write = {kd_high_student_out, kd_high_teacher_out},
                                       .along = 1u | 1u << TEACHER_PORT,
                                       .teacher = TEACHER_PORT};
LOSS_KERNEL(kd_high)

SMI bool kd_is_high(const double *q) {
  return q[KD_T] >= HIGH_TEMPERATURE && q[KD_SCALE] == 0 && kd_temperature(q, TEACHER) == q[KD_T] &&
         q[KD_DIVERGENCE] != KD_CROSS;
}
LOSS_CHOICE(kd, kd_is_high(c->params), kd_high, kd_plain)

/* ---- jensen_shannon: b D(p || m) + (1 - b) D(q || m), m = b p + (1 - b) q ---- */

enum { JS_BETA = 0, JS_T = 2 };
SMI consts js_setup(const row_call *c, const span *s) { return loss_factor(1 / c->params[JS_T]); }
LOSS_SIDE(js_logit, logit, false, setup_plain)
LOSS_SIDE(js_tempered, tempered, true, js_setup)

SMI vreal log_mix(const loss_row *r, vreal p, vreal q) {
  const real b = (real)r->q[JS_BETA];
  vreal m = v_fma(v_set1(b), p, v_mul(v_set1((real)(1 - r->q[JS_BETA])), q));
  return v_log_scaled(v_max(m, v_set1(R_TINY)), v_set1(0));
}
SMI void js_add(const loss_row *r, score_fn *f, bool scaled, size_t i, int cnt, vreal *acc) {
  pair w = pair_at(r, f, scaled, i, cnt);
  vreal mix = log_mix(r, w.p, w.q);
  acc[0] = add_where(acc[0], w.p, w.log_p, v_sub(w.log_p, mix));
  acc[1] = add_where(acc[1], w.q, w.log_q, v_sub(w.log_q, mix));
}
enum { C_MEAN_P = 2, C_MEAN_Q = 3 };
static void js_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], b = r->q[JS_BETA];
  loss_put(r, LOSS, b * sum[0] + (1 - b) * sum[1]);
  r->coef[C_STUDENT] = (real)(r->g * b / r->q[JS_T]);
  r->coef[C_TEACHER] = (real)(r->g * (1 - b) / r->q[JS_T]);
  r->coef[C_MEAN_P] = (real)sum[0];
  r->coef[C_MEAN_Q] = (real)sum[1];
}
/* The gradient of one side, from its weight and those of the other. */
SMI vreal js_value(const loss_out *w, int side, score_fn *f, bool scaled, vreal own, size_t i, int cnt) {
  const loss_row *r = w->r;
  const int other = side == STUDENT ? TEACHER : STUDENT, c = side == STUDENT ? C_STUDENT : C_TEACHER;
  const vreal rival = loss_weight(r, other, loss_score(r, other, f, i, cnt), scaled, i, cnt);
  const vreal log = loss_log(r, side, loss_score(r, side, f, i, cnt));
  const vreal mix = side == STUDENT ? log_mix(r, own, rival) : log_mix(r, rival, own);
  return about_mean(w, c, own, v_sub(log, mix), w->coef[side == STUDENT ? C_MEAN_P : C_MEAN_Q]);
}
SMI void js_logit_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  js_add(r, score_logit, false, i, cnt, acc);
}
SMI vreal js_logit_student(const loss_out *w, vreal p, size_t i, int cnt) {
  return js_value(w, STUDENT, score_logit, false, p, i, cnt);
}
SMI vreal js_logit_teacher(const loss_out *w, vreal q, size_t i, int cnt) {
  return js_value(w, TEACHER, score_logit, false, q, i, cnt);
}
LOSS_SUMS_OF(js_logit_late, js_logit_add, 2)
LOSS_WRITE_OF(js_logit_student_out, STUDENT, js_logit_student)
LOSS_WRITE_OF(js_logit_teacher_out, TEACHER, js_logit_teacher)
static const loss_body js_logit_body = {.side = {&js_logit_side, &js_logit_side},
                                        .sums = {[STAGE_LATE] = js_logit_late},
                                        .finalize = js_finalize,
                                        .write = {js_logit_student_out, js_logit_teacher_out},
                                        .along = 1u | 1u << TEACHER_PORT,
                                        .teacher = TEACHER_PORT};
LOSS_KERNEL(js_logit)

SMI void js_tempered_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  js_add(r, score_tempered, true, i, cnt, acc);
}
SMI vreal js_tempered_student(const loss_out *w, vreal p, size_t i, int cnt) {
  return js_value(w, STUDENT, score_tempered, true, p, i, cnt);
}
SMI vreal js_tempered_teacher(const loss_out *w, vreal q, size_t i, int cnt) {
  return js_value(w, TEACHER, score_tempered, true, q, i, cnt);
}
LOSS_SUMS_OF(js_tempered_late, js_tempered_add, 2)
LOSS_WRITE_OF(js_tempered_student_out, STUDENT, js_tempered_student)
LOSS_WRITE_OF(js_tempered_teacher_out, TEACHER, js_tempered_teacher)
static const loss_body js_tempered_body = {.side = {&js_tempered_side, &js_tempered_side},
                                           .sums = {[STAGE_LATE] = js_tempered_late},
                                           .finalize = js_finalize,
                                           .write = {js_tempered_student_out, js_tempered_teacher_out},
                                           .along = 1u | 1u << TEACHER_PORT,
                                           .teacher = TEACHER_PORT};
LOSS_KERNEL(js_tempered)

LOSS_CHOICE(js, c->params[JS_T] == 1, js_logit, js_tempered)

/* ---- decoupled_kd and normalised_kd: the weights p^ and q^ of the other classes among themselves,
 * and the target's own ----
 *
 * nontarget.h has the scores and the target's part. */

enum { DKD_T = 1, DKD_ALPHA = 2, DKD_BETA = 3, NKD_GAMMA = 1, NKD_T = 3 };

SMI consts dkd_setup(const row_call *c, const span *s) { return loss_factor(1 / c->params[DKD_T]); }
SMI consts one_setup(const row_call *c, const span *s) { return loss_factor(1); }
SMI consts nkd_setup(const row_call *c, const span *s) { return loss_factor(1 / c->params[NKD_T]); }
LOSS_SIDE(dkd, nontarget, true, dkd_setup)
LOSS_SIDE(one, nontarget, true, one_setup)
LOSS_SIDE(nkd, nontarget, true, nkd_setup)

#define NONTARGET(name, sides, late, last, out) \
  static const loss_body name##_body = {.side = {&sides##_side, &sides##_side}, \
                                        .sums = {[STAGE_LATE] = late, [STAGE_LAST] = last}, \
                                        .finalize = name##_finalize, \
                                        .write = {out}, \
                                        .along = 1u | 1u << TEACHER_PORT, \
                                        .target = PAIR_TARGET, \
                                        .target_scores = &tempered_scores, \
                                        .teacher = TEACHER_PORT}; \
  LOSS_KERNEL(name)

SMI void dkd_add(const loss_row *r, size_t i, int cnt, vreal *acc) { nontarget_add(r, false, i, cnt, acc); }
SMI void nkd_add(const loss_row *r, size_t i, int cnt, vreal *acc) { nontarget_add(r, true, i, cnt, acc); }
LOSS_SUMS_OF(dkd_late, dkd_add, 1)
LOSS_SUMS_OF(nkd_late, nkd_add, 1)
SMI vreal others_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return loss_hit_target(w, nontarget_gap(w, p, i, cnt), i);
}
LOSS_WRITE_OF(lse_short_write, STUDENT, others_value)

static void dkd_plain_finalize(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  if (nontarget_special(r, &p, &q)) return;
  const double t = r->q[DKD_T], alpha = r->q[DKD_ALPHA], beta = r->q[DKD_BETA];
  const double own = split_divergence(&p, &q), away = split_away(&p, &q);
  loss_put(r, LOSS, t * t * (weigh(alpha, own) + weigh(beta, r->total[STAGE_LATE][0])));
  r->coef[C_STUDENT] = (real)(r->g * t * (beta - alpha * away));
  r->coef[C_TEACHER] = (real)(r->g * t * beta);
  r->at_target = (real)(r->g * t * alpha * away);
}
NONTARGET(dkd_plain, dkd, dkd_late, NULL, lse_short_write)

SMI double dkd_temperature(const loss_row *r) { return r->q[DKD_T]; }
SMI void dkd_high_centre_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  high_centre_add(r, score_nontarget, (real)r->q[DKD_T], i, cnt, acc);
}
SMI void others_high_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const high w = high_at(r, r->coef, score_nontarget, i, cnt);
  acc[0] = v_add(acc[0], high_term(&w, false, v_set1(r->coef[C_HIGH])));
}
LOSS_SUMS_OF(dkd_high_late, dkd_high_centre_add, 1)
HIGH_SUMS_OF(dkd_high_last, others_high_add, 1, dkd_temperature)
/* The gradient by z: b T (p^ - q^) - a T (p_y - q_y) p^. */
static void dkd_high_finalize(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  if (nontarget_special(r, &p, &q)) return;
  const double alpha = r->q[DKD_ALPHA], beta = r->q[DKD_BETA];
  high_finalize_centre(r, r->q[DKD_T], r->coef);
  const high_two own = split_high(r, &p, &q, r->q[DKD_T]);
  loss_put(r, LOSS, weigh(alpha, own.divergence) + weigh(beta, r->total[STAGE_LAST][0]));
  r->coef[C_STUDENT] = (real)(-r->g * alpha * own.gap);
  r->coef[C_TEACHER] = (real)(r->g * beta);
  r->at_target = (real)(r->g * alpha * own.gap);
}
SMI vreal dkd_high_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return loss_hit_target(w, others_high_gap(w, p, i, cnt), i);
}
LOSS_WRITE_OF(dkd_high_out, STUDENT, dkd_high_value)
NONTARGET(dkd_high, dkd, dkd_high_late, dkd_high_last, dkd_high_out)
LOSS_CHOICE(dkd, c->params[DKD_T] >= HIGH_TEMPERATURE, dkd_high, dkd_plain)

static void nkd_plain_finalize(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  if (nontarget_special(r, &p, &q)) return;
  const double gamma = r->q[NKD_GAMMA];
  loss_put(r, LOSS, weigh(q.p, -p.log_p) + weigh(gamma, r->total[STAGE_LATE][0]));
  r->coef[C_STUDENT] = (real)(r->g * (q.p * p.q + gamma));
  r->coef[C_TEACHER] = (real)(r->g * gamma);
  r->at_target = (real)(-r->g * q.p * p.q);
}
NONTARGET(nkd_plain, one, nkd_late, NULL, lse_short_write)

/* With a temperature, which the others alone have: -q_y log p_y - g T^2 sum q^_j log p^_j. The sums
 * of the others at temperature 1, relative to the largest of them, are added up beside those at T.
 * */
enum { NKD_CROSS = SUM_CENTRE + 1, NKD_ONES }; /* NKD_ONES: of each side */
enum { C_OWN = 2, C_OWN_TOP = 3 };

SMI double nkd_temperature(const loss_row *r) { return r->q[NKD_T]; }
SMI real nkd_top(const loss_row *r, int side) {
  return (real)(r->q[NKD_T] * ((double)r->side[side].top + (double)r->side[side].top_l));
}
/* e^(x - top) of the other classes. */
SMI vreal nkd_one(const loss_row *r, int side, real top, size_t i, int cnt) {
  const vreal x = loss_shifted(at(r->on[side].src[0], i, cnt), &r->side[side].shift),
              e = v_exp(v_sub(x, v_set1(top)));
  return v_select(lanes_below(cnt), loss_at_target(r, e, 0, i), v_set1(0));
}
SMI void nkd_high_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  high_centre_add(r, score_nontarget, (real)r->q[NKD_T], i, cnt, acc);
  nontarget_add(r, true, i, cnt, acc + NKD_CROSS);
  for (int side = 0; side < SIDES; side++)
    acc[NKD_ONES + side] = v_add(acc[NKD_ONES + side], nkd_one(r, side, nkd_top(r, side), i, cnt));
}
LOSS_SUMS_OF(nkd_high_late, nkd_high_add, NKD_ONES + SIDES)
/* The target against the others at temperature 1. */
SMI split nkd_split(const loss_row *r, int side) {
  const double x = r->target_inputs[side == STUDENT ? 0 : TEACHER_PORT],
               sum = r->total[STAGE_LATE][NKD_ONES + side];
  const double inf = (double)__builtin_inf(), shift = (double)r->side[side].shift;
  return split_at(x == inf    ? (double)r_nan()
                  : x == -inf ? x
                              : x - shift - (double)nkd_top(r, side) - d_log(sum, 0));
}
static void nkd_high_finalize(loss_row *r) {
  const split p = nkd_split(r, STUDENT), q = nkd_split(r, TEACHER);
  if (nontarget_special(r, &p, &q)) return;
  const double gamma = r->q[NKD_GAMMA], t = r->q[NKD_T];
  high_finalize_centre(r, t, r->coef);
  loss_put(r, LOSS, weigh(q.p, -p.log_p) + weigh(gamma, t * t * r->total[STAGE_LATE][NKD_CROSS]));
  r->coef[C_STUDENT] = 0;
  r->coef[C_TEACHER] = (real)(r->g * gamma);
  r->coef[C_OWN] = (real)(r->g * q.p * p.q / r->total[STAGE_LATE][NKD_ONES + STUDENT]);
  r->coef[C_OWN_TOP] = nkd_top(r, STUDENT);
  r->at_target = (real)(-r->g * q.p * p.q);
}
SMI vreal nkd_high_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal own = v_mul(v_set1(w->coef[C_OWN]), nkd_one(w->r, STUDENT, w->coef[C_OWN_TOP], i, cnt));
  return loss_hit_target(w, v_add(own, others_high_gap(w, p, i, cnt)), i);
}
LOSS_WRITE_OF(nkd_high_out, STUDENT, nkd_high_value)
NONTARGET(nkd_high, nkd, nkd_high_late, NULL, nkd_high_out)
LOSS_CHOICE(nkd, c->params[NKD_T] != 1, nkd_high, nkd_plain)

/* ---- universal_self_kd ----
 *
 * -a P log p_y - b sum z^_j log p^_j, z^ the masses of the other classes among themselves */

enum { USKD_MASS = 1, USKD_WEIGHT = 3, USKD_ALPHA = 1, USKD_BETA = 2, C_REST = 2 };

SMI void uskd_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const score z = loss_score(r, STUDENT, score_nontarget, i, cnt);
  const vreal mass = loss_at_target(r, at(loss_in(r, USKD_MASS), i, cnt), 0, i),
              log = loss_log(r, STUDENT, z);
  acc[0] = v_add(acc[0], mass);
  acc[1] = v_select(v_eq(mass, v_set1(0)), acc[1], v_fnma(mass, log, acc[1]));
}
LOSS_SUMS_OF(uskd_late, uskd_add, 2)
static void uskd_finalize(loss_row *r) {
  const split p = split_of(r, STUDENT);
  r->coef[C_REST] = 0;
  if (nontarget_special(r, &p, &p)) return;
  const double *sum = r->total[STAGE_LATE], mass = sum[0];
  const double own = r->q[USKD_ALPHA] * (loss_has(r, USKD_WEIGHT) ? (double)*loss_in(r, USKD_WEIGHT) : 1),
               beta = mass > 0 ? r->q[USKD_BETA] : 0;
  loss_put(r, LOSS, weigh(own, -p.log_p) + (beta == 0 ? 0 : beta * (sum[1] / mass)));
  r->coef[C_STUDENT] = (real)(r->g * (own * p.q + beta));
  r->coef[C_TEACHER] = (real)(beta == 0 ? 0 : r->g * beta / mass);
  r->coef[C_REST] = (real)(beta == 0 ? 0 : sum[1] / mass);
  r->at_target = (real)(-r->g * own * p.q);
}
SMI vreal uskd_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal mass = at(loss_in(w->r, USKD_MASS), i, cnt);
  return loss_hit_target(w, v_fnma(v_set1(w->coef[C_TEACHER]), mass, v_mul(v_set1(w->coef[C_STUDENT]), p)),
                         i);
}
/* Of the masses: (b / sum) (-log p^_j - their mean); the target's does not count. */
SMI vreal uskd_mass_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal log = loss_log(w->r, STUDENT, loss_score(w->r, STUDENT, score_nontarget, i, cnt));
  const vreal away = v_add(log, v_set1(w->coef[C_REST]));
  const vreal finite = v_select(v_lt(v_abs(away), v_set1(R_INF)), away, v_set1(0));
  return v_mul(v_set1(-w->coef[C_TEACHER]), loss_at_target(w->r, finite, 0, i));
}
LOSS_WRITE_OF(uskd_out, STUDENT, uskd_value)
LOSS_WRITE_OF(uskd_mass_out, TEACHER, uskd_mass_value)
static const loss_body uskd_body = {.side = {&one_side},
                                    .sums = {[STAGE_LATE] = uskd_late},
                                    .finalize = uskd_finalize,
                                    .write = {uskd_out, uskd_mass_out},
                                    .along = 1u | 1u << USKD_MASS,
                                    .teacher = USKD_MASS,
                                    .target = PAIR_TARGET,
                                    .target_scores = &tempered_scores};
LOSS_KERNEL(uskd)

OPERATOR(knowledge_distillation, kd, kd_grad)
OPERATOR(jensen_shannon, js, js_grad)
OPERATOR(decoupled_kd, dkd, dkd_grad)
OPERATOR(normalised_kd, nkd, nkd_grad)
OPERATOR(universal_self_kd, uskd, uskd_grad)
