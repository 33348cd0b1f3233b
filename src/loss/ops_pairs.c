/* loss/ops_pairs.c - losses between two rows of logits, a student's and a teacher's. See ops.c. p and q are their weights. */
#include "others.h"

/* ---- knowledge_distillation: k D(q || p), k D(p || q) or -k sum q log p, with temperatures of their own ---- */

enum { KD_DIVERGENCE, KD_T, KD_TEACHER_T, KD_SCALE };
enum { KD_REVERSE = 1, KD_CROSS = 2 };

SMI double kd_temperature(const double *q, int side) { return side == TEACHER && q[KD_TEACHER_T] > 0 ? q[KD_TEACHER_T] : q[KD_T]; }
SMI double kd_scale(const double *q) {
  double same = kd_temperature(q, STUDENT) == kd_temperature(q, TEACHER);
  return q[KD_SCALE] == 0 && same != 0 ? q[KD_T] * q[KD_T] : 1;
}
SMI consts kd_student_setup(const row_call *c, const span *s) {
  (void)s;
  return loss_factor(1 / kd_temperature(c->params, STUDENT));
}
SMI consts kd_teacher_setup(const row_call *c, const span *s) {
  (void)s;
  return loss_factor(1 / kd_temperature(c->params, TEACHER));
}
LOSS_SIDE(kd_student, score_tempered, true, true, kd_student_setup)
LOSS_SIDE_AS(kd_teacher, kd_student, kd_student, true, kd_teacher_setup)

SMI void kd_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  pair w = pair_at(r, score_tempered, true, i, cnt);
  if (r->q[KD_DIVERGENCE] == KD_REVERSE) acc[0] = add_where(acc[0], w.p, w.log_p, v_sub(w.log_p, w.log_q));
  else if (r->q[KD_DIVERGENCE] == KD_CROSS) acc[0] = add_where(acc[0], w.q, w.log_q, v_sub(v_set1(0), w.log_p));
  else acc[0] = add_where(acc[0], w.q, w.log_q, v_sub(w.log_q, w.log_p));
}
LOSS_SUMS_OF(kd_late, kd_add, 1)

enum { C_DIVERGENCE = 2 };
static void kd_settle(loss_row *r) {
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
  if (r->q[KD_DIVERGENCE] != KD_REVERSE) return v_mul(v_set1(w->coef[C_STUDENT]), v_sub(p, loss_weight(r, TEACHER, u, true, i, cnt)));
  vreal ratio = v_sub(loss_log(r, STUDENT, loss_score(r, STUDENT, score_tempered, i, cnt)), loss_log(r, TEACHER, u));
  return about_mean(w, C_STUDENT, p, ratio, w->coef[C_DIVERGENCE]);
}
SMI vreal kd_teacher_value(const loss_out *w, vreal q, size_t i, int cnt) {
  const loss_row *r = w->r;
  score z = loss_score(r, STUDENT, score_tempered, i, cnt);
  vreal log_p = loss_log(r, STUDENT, z);
  if (r->q[KD_DIVERGENCE] == KD_REVERSE) return v_mul(v_set1(w->coef[C_TEACHER]), v_sub(q, loss_weight(r, STUDENT, z, true, i, cnt)));
  vreal log_q = loss_log(r, TEACHER, loss_score(r, TEACHER, score_tempered, i, cnt));
  vreal ratio = r->q[KD_DIVERGENCE] == KD_CROSS ? v_sub(v_set1(0), log_p) : v_sub(log_q, log_p);
  return about_mean(w, C_TEACHER, q, ratio, w->coef[C_DIVERGENCE]);
}
LOSS_EMIT_OF(kd_student_out, STUDENT, score_tempered, true, kd_student_value)
LOSS_EMIT_OF(kd_teacher_out, TEACHER, score_tempered, true, kd_teacher_value)
static const loss_body kd_body = {.side = {&kd_student_side, &kd_teacher_side},
                                  .sums = {[STAGE_LATE] = kd_late},
                                  .settle = kd_settle,
                                  .emit = {kd_student_out, kd_teacher_out},
                                  .along = 1u | 1u << TEACHER_PORT,
                                  .teacher = TEACHER_PORT};
LOSS_KERNEL(kd)

/* ---- jensen_shannon: b D(p || m) + (1 - b) D(q || m), m = b p + (1 - b) q ---- */

enum { JS_BETA = 0, JS_T = 2 };
SMI consts js_setup(const row_call *c, const span *s) {
  (void)s;
  return loss_factor(1 / c->params[JS_T]);
}
LOSS_SIDE(js_logit, score_logit, false, false, setup_plain)
LOSS_SIDE_AS(js_tempered, kd_student, kd_student, true, js_setup)

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
static void js_settle(loss_row *r) {
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
#define JS(name, score, scaled) \
  SMI void name##_add(const loss_row *r, size_t i, int cnt, vreal *acc) { js_add(r, score, scaled, i, cnt, acc); } \
  LOSS_SUMS_OF(name##_late, name##_add, 2) \
  SMI vreal name##_student_value(const loss_out *w, vreal p, size_t i, int cnt) { return js_value(w, STUDENT, score, scaled, p, i, cnt); } \
  SMI vreal name##_teacher_value(const loss_out *w, vreal q, size_t i, int cnt) { return js_value(w, TEACHER, score, scaled, q, i, cnt); } \
  LOSS_EMIT_OF(name##_student_out, STUDENT, score, scaled, name##_student_value) \
  LOSS_EMIT_OF(name##_teacher_out, TEACHER, score, scaled, name##_teacher_value) \
  static const loss_body name##_body = {.side = {&name##_side, &name##_side}, \
                                        .sums = {[STAGE_LATE] = name##_late}, \
                                        .settle = js_settle, \
                                        .emit = {name##_student_out, name##_teacher_out}, \
                                        .along = 1u | 1u << TEACHER_PORT, \
                                        .teacher = TEACHER_PORT}; \
  LOSS_KERNEL(name)
JS(js_logit, score_logit, false)
JS(js_tempered, score_tempered, true)
static const row_kernel *js_pick(const row_call *c) { return c->params[JS_T] == 1 ? &js_logit_kernel : &js_tempered_kernel; }
static const row_kernel *js_grad_pick(const row_call *c) { return c->params[JS_T] == 1 ? &js_logit_grad_kernel : &js_tempered_grad_kernel; }
PICK_KERNEL(js, -1)
PICK_KERNEL(js_grad, -1)

/* ---- decoupled_kd and normalised_kd: the weights p^ and q^ of the other classes among themselves, and the target's own ----
 *
 * others.h has the scores and the target's part. */

enum { DKD_T = 1, DKD_ALPHA = 2, DKD_BETA = 3, NKD_GAMMA = 1 };

SMI consts dkd_setup(const row_call *c, const span *s) {
  (void)s;
  return loss_factor(1 / c->params[DKD_T]);
}
SMI consts nkd_setup(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return loss_factor(1);
}
LOSS_SCORES(others, score_others, true)
LOSS_SIDE_AS(dkd, others, kd_student, true, dkd_setup)
LOSS_SIDE_AS(nkd, others, kd_student, true, nkd_setup)

SMI void dkd_add(const loss_row *r, size_t i, int cnt, vreal *acc) { others_add(r, false, i, cnt, acc); }
SMI void nkd_add(const loss_row *r, size_t i, int cnt, vreal *acc) { others_add(r, true, i, cnt, acc); }
LOSS_SUMS_OF(dkd_late, dkd_add, 1)
LOSS_SUMS_OF(nkd_late, nkd_add, 1)

static void dkd_settle(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  if (others_odd(r, &p, &q)) return;
  const double t = r->q[DKD_T], alpha = r->q[DKD_ALPHA], beta = r->q[DKD_BETA];
  const double own = split_divergence(&p, &q), away = split_away(&p, &q);
  loss_put(r, LOSS, t * t * (weigh(alpha, own) + weigh(beta, r->total[STAGE_LATE][0])));
  r->coef[C_STUDENT] = (real)(r->g * t * (beta - alpha * away));
  r->coef[C_TEACHER] = (real)(r->g * t * beta);
  r->at_target = (real)(r->g * t * alpha * away);
}
static void nkd_settle(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  if (others_odd(r, &p, &q)) return;
  const double gamma = r->q[NKD_GAMMA];
  loss_put(r, LOSS, weigh(q.p, -p.log_p) + weigh(gamma, r->total[STAGE_LATE][0]));
  r->coef[C_STUDENT] = (real)(r->g * (q.p * p.q + gamma));
  r->coef[C_TEACHER] = (real)(r->g * gamma);
  r->at_target = (real)(-r->g * q.p * p.q);
}
SMI vreal others_value(const loss_out *w, vreal p, size_t i, int cnt) { return loss_hit_target(w, others_gap(w, p, i, cnt), i); }
LOSS_EMIT_OF(others_out, STUDENT, score_others, true, others_value)
#define OTHERS(name) \
  static const loss_body name##_body = {.side = {&name##_side, &name##_side}, \
                                        .sums = {[STAGE_LATE] = name##_late}, \
                                        .settle = name##_settle, \
                                        .emit = {others_out}, \
                                        .along = 1u | 1u << TEACHER_PORT, \
                                        .target = PAIR_TARGET, \
                                        .teacher = TEACHER_PORT}; \
  LOSS_KERNEL(name)
OTHERS(dkd)
OTHERS(nkd)

/* ---- universal_self_kd: -a P log p_y - b sum z^_j log p^_j, z^ the masses of the other classes among themselves ---- */

enum { USKD_MASS = 1, USKD_WEIGHT = 3, USKD_ALPHA = 1, USKD_BETA = 2 };

SMI void uskd_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const score z = loss_score(r, STUDENT, score_others, i, cnt);
  const vreal mass = loss_at_target(r, at(loss_in(r, USKD_MASS), i, cnt), 0, i), log = loss_log(r, STUDENT, z);
  acc[0] = v_add(acc[0], mass);
  acc[1] = v_select(v_eq(mass, v_set1(0)), acc[1], v_fnma(mass, log, acc[1]));
}
LOSS_SUMS_OF(uskd_late, uskd_add, 2)
static void uskd_settle(loss_row *r) {
  const split p = split_of(r, STUDENT);
  if (others_odd(r, &p, &p)) return;
  const double *sum = r->total[STAGE_LATE], mass = sum[0];
  const double own = r->q[USKD_ALPHA] * (loss_has(r, USKD_WEIGHT) ? (double)*loss_in(r, USKD_WEIGHT) : 1),
               beta = mass > 0 ? r->q[USKD_BETA] : 0;
  loss_put(r, LOSS, weigh(own, -p.log_p) + (beta == 0 ? 0 : beta * (sum[1] / mass)));
  r->coef[C_STUDENT] = (real)(r->g * (own * p.q + beta));
  r->coef[C_TEACHER] = (real)(beta == 0 ? 0 : r->g * beta / mass);
  r->at_target = (real)(-r->g * own * p.q);
}
SMI vreal uskd_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal mass = at(loss_in(w->r, USKD_MASS), i, cnt);
  return loss_hit_target(w, v_fnma(v_set1(w->coef[C_TEACHER]), mass, v_mul(v_set1(w->coef[C_STUDENT]), p)), i);
}
LOSS_EMIT_OF(uskd_out, STUDENT, score_others, true, uskd_value)
static const loss_body uskd_body = {.side = {&nkd_side},
                                    .sums = {[STAGE_LATE] = uskd_late},
                                    .settle = uskd_settle,
                                    .emit = {uskd_out},
                                    .along = 1u | 1u << USKD_MASS,
                                    .target = PAIR_TARGET};
LOSS_KERNEL(uskd)

OPERATOR(knowledge_distillation, kd, kd_grad)
OPERATOR(jensen_shannon, js, js_grad)
OPERATOR(decoupled_kd, dkd, dkd_grad)
OPERATOR(normalised_kd, nkd, nkd_grad)
OPERATOR(universal_self_kd, uskd, uskd_grad)
