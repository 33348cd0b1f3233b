/* loss/ops_distill_heads.c - distillation that treats the classes which the teacher finds likeliest
 * apart from the others. See ops.c and teacher_topk.h. p and q are the weights of the student and
 * the teacher. */
#include "engine/long_steps.h"
#include "teacher_topk.h"
#include "scalars.h"

enum { HEAD, TAIL, PARTS };
/* constants of the scores: which classes are left out; for each part, whether its divergence is
 * reverse */
enum { V_MASKED = 0, V_REVERSE = 1 };
enum { NOTHING, THE_TAIL, THE_HEAD };

/* A class that is left out has the score -inf. A NaN or +inf still makes the row NaN. */
SMI score score_head(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt);
  if (k->v[V_MASKED] != NOTHING) {
    const double *head = (const double *)(const void *)s->src[SRC_SUMS] + STAGE_EARLY * ROW_SUMS;
    vmask has = teacher_topk_has(head, s->origin + i, at(s->src[TEACHER_PORT], i, cnt));
    if (k->v[V_MASKED] == THE_HEAD) has = m_not(has);
    x = v_select(m_or(has, m_not(v_lt(x, v_set1(R_INF)))), x, v_set1(-R_INF));
  }
  return (score){loss_shifted(x, shift), v_set1(0)};
}
EXP_SCORES(head, score_head)

/* The gradient of all of them: p_j (a + b log p_j / q_j) - c q_j with a, b, c of the part that j is
 * in. */
enum { C_A, C_B, C_C, C_COUNT };
SMI vreal teacher_topk_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  const score u = loss_score(r, TEACHER, score_head, i, cnt);
  const vmask in = teacher_topk_at(r, i, cnt);
  vreal of[C_COUNT];
#pragma GCC unroll 4
  for (int c = 0; c < C_COUNT; c++) of[c] = v_select(in, v_set1(w->coef[c]), v_set1(w->coef[C_COUNT + c]));
  vreal v = v_mul(p, of[C_A]);
  if (w->coef[C_B] != 0 || w->coef[C_COUNT + C_B] != 0) {
    vreal ratio =
        v_sub(loss_log(r, STUDENT, loss_score(r, STUDENT, score_head, i, cnt)), loss_log(r, TEACHER, u));
    vmask none = m_or(v_eq(p, v_set1(0)), v_eq(of[C_B], v_set1(0)));
    v = v_select(none, v, v_fma(v_mul(p, of[C_B]), ratio, v));
  }
  return v_fnma(of[C_C], loss_weight(r, TEACHER, u, false, i, cnt), v);
}
LOSS_WRITE_OF(teacher_topk_out, STUDENT, teacher_topk_value)

#define HEAD_LOSS(name, by, late) \
  LOSS_SIDE(name, head, false, name##_setup) \
  static const loss_body name##_body = {.side = {&name##_side, &name##_side}, \
                                        .before = &by, \
                                        .sums = {[STAGE_LATE] = late}, \
                                        .finalize = name##_finalize, \
                                        .write = {teacher_topk_out}, \
                                        .along = 1u | 1u << TEACHER_PORT, \
                                        .teacher = TEACHER_PORT}; \
  LOSS_KERNEL(name)

/* ---- kl_top_k ----
 *
 * D(q^ || p^) over the head; head_tail_kl: a divergence over the head and one over the tail */

enum { SUM_DIVERGENCE, SUM_MASS, SUM_COUNT }; /* of each part */

SMI void parts_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const pair w = pair_at(r, score_head, false, i, cnt);
  const vmask in = teacher_topk_at(r, i, cnt);
#pragma GCC unroll 2
  for (int part = 0; part < PARTS; part++) {
    const bool reverse = r->k[STUDENT].v[V_REVERSE + part] != 0;
    const vmask here = part == HEAD ? in : m_not(in);
    vreal weight = reverse ? w.p : w.q, log = reverse ? w.log_p : w.log_q,
          other = reverse ? w.log_q : w.log_p, *sum = acc + part * SUM_COUNT;
    sum[SUM_DIVERGENCE] =
        v_select(here, add_where(sum[SUM_DIVERGENCE], weight, log, v_sub(log, other)), sum[SUM_DIVERGENCE]);
    sum[SUM_MASS] = v_select(here, v_add(sum[SUM_MASS], weight), sum[SUM_MASS]);
  }
}
LOSS_SUMS_OF(parts_late, parts_add, PARTS *SUM_COUNT)

enum { TOP_PART = 2, TOP_DIVERGENCE = 3 };
SMI consts top_setup(const row_call *c, const span *s) {
  const real reverse = (real)c->params[TOP_DIVERGENCE];
  return (consts){{c->params[TOP_PART] == HEAD ? THE_TAIL : THE_HEAD, reverse, reverse}};
}
/* Forward: p_j - q_j. Reverse: p_j (log p_j / q_j - D), and 0 where D is infinite. */
static void top_finalize(loss_row *r) {
  const int part = r->q[TOP_PART] == HEAD ? HEAD : TAIL;
  const double d = r->total[STAGE_LATE][part * SUM_COUNT + SUM_DIVERGENCE];
  real *of = r->coef + part * C_COUNT;
  loss_put(r, LOSS, d);
  for (int c = 0; c < PARTS * C_COUNT; c++) r->coef[c] = 0;
  if (r->q[TOP_DIVERGENCE] == 0) of[C_A] = of[C_C] = (real)r->g;
  else if (!(d >= (double)R_INF)) of[C_A] = (real)(-r->g * d), of[C_B] = (real)r->g;
}
HEAD_LOSS(top, teacher_topk_by_count, parts_late)

enum { HT_WEIGHT = 1, HT_REVERSE = 2 }; /* parameters; HT_REVERSE of each part */
SMI consts ht_setup(const row_call *c, const span *s) {
  return (consts){{0, (real)c->params[HT_REVERSE + HEAD], (real)c->params[HT_REVERSE + TAIL]}};
}
/* Forward over a part I: p_j Q_I - q_j [j in I]. Reverse: p_j ([j in I] (log p_j / q_j + 1) - D -
 * P_I), and 0 where D is infinite. */
static void ht_finalize(loss_row *r) {
  double loss = 0, even = 0;
  for (int part = 0; part < PARTS; part++) {
    const double *sum = r->total[STAGE_LATE] + part * SUM_COUNT, weight = part == HEAD ? 1 : r->q[HT_WEIGHT];
    const bool reverse = r->q[HT_REVERSE + part] != 0, finite = !(sum[SUM_DIVERGENCE] >= (double)R_INF);
    real *of = r->coef + part * C_COUNT;
    loss += weigh(weight, sum[SUM_DIVERGENCE]);
    if (!reverse) even += weight * sum[SUM_MASS];
    else if (finite) even -= weight * (sum[SUM_DIVERGENCE] + sum[SUM_MASS]);
    of[C_B] = of[C_A] = (real)(reverse && finite ? r->g * weight : 0);
    of[C_C] = (real)(reverse ? 0 : r->g * weight);
  }
  for (int part = 0; part < PARTS; part++)
    r->coef[part * C_COUNT + C_A] = (real)(r->g * even + (double)r->coef[part * C_COUNT + C_A]);
  loss_put(r, LOSS, loss);
}
HEAD_LOSS(ht, teacher_topk_by_count, parts_late)

/* ---- adaptive_kl ----
 *
 * (g_h D(q || p) + g_t D(p || q)) / (g_h + g_t), g = sum |q - p| over the head and over the tail */

enum { SUM_FORWARD, SUM_REVERSE, SUM_AWAY };
SMI void akl_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const pair w = pair_at(r, score_head, false, i, cnt);
  const vmask in = teacher_topk_at(r, i, cnt);
  const vreal ratio = v_sub(w.log_q, w.log_p), away = v_abs(v_sub(w.q, w.p)), zero = v_set1(0);
  acc[SUM_FORWARD] = add_where(acc[SUM_FORWARD], w.q, w.log_q, ratio);
  acc[SUM_REVERSE] = add_where(acc[SUM_REVERSE], w.p, w.log_p, v_sub(zero, ratio));
  acc[SUM_AWAY + HEAD] = v_add(acc[SUM_AWAY + HEAD], v_select(in, away, zero));
  acc[SUM_AWAY + TAIL] = v_add(acc[SUM_AWAY + TAIL], v_select(in, zero, away));
}
LOSS_SUMS_OF(akl_late, akl_add, SUM_AWAY + PARTS)

static void akl_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], away = sum[SUM_AWAY + HEAD] + sum[SUM_AWAY + TAIL];
  const double forward = away > 0 ? sum[SUM_AWAY + HEAD] / away : 0.5,
               reverse = away > 0 ? sum[SUM_AWAY + TAIL] / away : 0.5;
  const bool finite = !(sum[SUM_REVERSE] >= (double)R_INF);
  loss_put(r, LOSS, weigh(forward, sum[SUM_FORWARD]) + weigh(reverse, sum[SUM_REVERSE]));
  for (int part = 0; part < PARTS; part++) {
    real *of = r->coef + part * C_COUNT;
    of[C_A] = (real)(r->g * (forward - (finite ? reverse * sum[SUM_REVERSE] : 0)));
    of[C_B] = (real)(finite ? r->g * reverse : 0);
    of[C_C] = (real)(r->g * forward);
  }
}
#define akl_setup setup_plain
HEAD_LOSS(akl, teacher_topk_by_mass, akl_late)

OPERATOR_WITH(kl_top_k, top, top_grad, ROW_LIST, 0)
OPERATOR_WITH(head_tail_kl, ht, ht_grad, ROW_LIST, 0)
OPERATOR_WITH(adaptive_kl, akl, akl_grad, ROW_LIST, 0)
