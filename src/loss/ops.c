/* loss/ops.c - cross-entropy, forward and backward. Compiled once per instruction set and real
 * type. Formulas and sources are in table.c. Other losses: ops_*.c.
 *
 * With scores z = x / T or c tanh(x / c) / T, weights p = softmax(z), d = log1p(others), and a
 * target of masses a_j = w_j (K t_j + U):
 *
 *     loss = sum_j a_j (top - z_j) + A d + Z lse^2,  A = sum_j a_j
 *     dloss / dz_j = (A + 2 Z lse) p_j - a_j
 *
 * A hard target needs no sum: its part is a_y log p_y, and its gradient (B - a_y) - B
 * (1 - p_y), B = A + 2 Z lse, does not cancel. K and U are the label smoothing: K = 1, U = 0
 * without. */
#include "engine/exp_half.h"
#include "logits.h"
#include "short.h"

enum { TARGET = 1, SOFT = 2, CLASS_WEIGHT = 3 };                          /* inputs */
enum { LSE = 2, ENTROPY = 3, CLASS = 4, RANK = 5 };                       /* outputs */
enum { SMOOTHING = 1, CONVENTION, OVER, Z_WEIGHT, SOFTCAP, TEMPERATURE }; /* parameters */
enum { ALL_OTHERS = 1, TARGET_MASS = 2 };                            /* conventions besides uniform_all */
enum { A_SOFT, AWAY_SOFT, A_UNIFORM, AWAY_UNIFORM };                 /* sums of STAGE_LATE */
enum { SUM_ENTROPY, SUM_RANK, SUM_FINITE };                          /* sums of STAGE_LAST */
enum { C_WEIGHT, C_MASS, C_SOFT, C_UNIFORM, C_ENTROPY, C_MEAN_LOG }; /* coefficients */

/* ---- which sums a call needs ---- */

SMI bool ce_soft(const loss_row *r) { return loss_has(r, SOFT); }
SMI bool ce_smooth(const loss_row *r) {
  return r->q[SMOOTHING] != (r->q[CONVENTION] == TARGET_MASS ? 1 : 0) && r->n > 1;
}
SMI bool ce_entropy(const loss_row *r) {
  return r->backward ? loss_has(r, SRC_DY + ENTROPY) : r->outputs >> ENTROPY & 1;
}
SMI bool ce_rank(const loss_row *r) { return !r->backward && r->target >= 0 && (r->outputs >> RANK & 1); }
static bool ce_wants(const loss_row *r, int stage) {
  if (stage == STAGE_STUDENT) /* of a row that is ignored */
    return r->backward ? loss_upstream(r, LSE) != 0 || loss_upstream(r, ENTROPY) != 0
                       : (r->outputs & (1u << LSE | 1u << ENTROPY | 1u << CLASS)) != 0;
  if (stage == STAGE_LATE) return !r->ignored && (ce_soft(r) || ce_smooth(r));
  return ce_entropy(r) || ce_rank(r) || (ce_smooth(r) && r->q[OVER] != 0);
}
static bool ce_has_cap(const double *q) { return q[SOFTCAP] <= (double)R_MAX; }
static bool ce_terms_only(const loss_row *r) {
  return !ce_wants(r, STAGE_LATE) && !ce_wants(r, STAGE_LAST) && !ce_has_cap(r->q);
}

static bool ce_brief(const loss_row *r) {
  return ce_terms_only(r) && (r->backward || !(r->outputs >> CLASS & 1));
}

/* The masses of the label smoothing: the factor of a soft target, the mass that every class gets,
 * and the whole mass of a hard target. */
typedef struct ce_masses {
  double soft, each, hard;
} ce_masses;
SMI ce_masses ce_masses_of(const loss_row *r) {
  if (!ce_smooth(r)) return (ce_masses){1, 0, 1};
  double classes = r->q[OVER] != 0 ? r->total[STAGE_LAST][SUM_FINITE] : (double)r->n;
  double spread = r->q[CONVENTION] == TARGET_MASS ? 1 - r->q[SMOOTHING] : r->q[SMOOTHING];
  double others = r->q[CONVENTION] == 0 ? classes : classes - 1, each = others > 0 ? spread / others : 0;
  double soft = r->q[CONVENTION] == 0 ? 1 - spread : 1 - spread - each;
  bool left_out = r->q[OVER] != 0 && r->target >= 0 && r->h[STUDENT] == -R_INF;
  return (ce_masses){soft, each, left_out ? soft : r->q[CONVENTION] == 0 ? soft + each : 1 - spread};
}

/* ---- sums ---- */

SMI vreal ce_class_weight(const loss_row *r, size_t i, int cnt) {
  return loss_has(r, CLASS_WEIGHT) ? at(loss_in(r, CLASS_WEIGHT), i, cnt) : v_set1(1);
}
/* mass times distance, 0 where the mass is 0 whatever the distance is. */
SMI vreal ce_add(vreal acc, vreal mass, vreal away) {
  return v_select(v_eq(mass, v_set1(0)), acc, v_fma(mass, away, acc));
}

SMI void ce_target_add(const loss_row *r, score z, size_t i, int cnt, vreal *acc) {
  vreal away = loss_below(r, STUDENT, z),
        weight = v_select(lanes_below(cnt), ce_class_weight(r, i, cnt), v_set1(0));
  if (ce_soft(r)) {
    vreal mass = v_mul(weight, v_select(lanes_below(cnt), at(loss_in(r, SOFT), i, cnt), v_set1(0)));
    acc[A_SOFT] = v_add(acc[A_SOFT], mass);
    acc[AWAY_SOFT] = ce_add(acc[AWAY_SOFT], mass, away);
  }
  if (!ce_smooth(r)) return;
  weight = loss_at_target(r, weight, 0, i); /* a hard target is added separately */
  if (r->q[OVER] != 0) weight = v_select(v_eq(z.h, v_set1(-R_INF)), v_set1(0), weight);
  acc[A_UNIFORM] = v_add(acc[A_UNIFORM], weight);
  acc[AWAY_UNIFORM] = ce_add(acc[AWAY_UNIFORM], weight, away);
}

/* 1 where an element comes before the target: larger, or equal and earlier. */
SMI vreal ce_before(const loss_row *r, score z, size_t i) {
  const vreal h = v_set1(r->h[STUDENT]), l = v_set1(r->l[STUDENT]);
  int64_t ahead = r->target - (int64_t)(r->on[STUDENT].origin + i);
  vmask early = v_lt(v_iota(), v_set1(ahead < 0 ? 0 : ahead < LANES ? (real)ahead : LANES));
  vmask more = v_lt(l, z.l), same = m_and(m_not(more), m_not(v_lt(z.l, l)));
  vmask before = m_or(v_lt(h, z.h), m_and(v_eq(h, z.h), m_or(more, m_and(same, early))));
  return v_select(before, v_set1(1), v_set1(0));
}

SMI void ce_last_of(const loss_row *r, score z, bool scaled, size_t i, int cnt, vreal *acc) {
  if (ce_entropy(r))
    acc[SUM_ENTROPY] =
        ce_add(acc[SUM_ENTROPY], loss_weight(r, STUDENT, z, scaled, i, cnt), loss_below(r, STUDENT, z));
  if (ce_rank(r))
    acc[SUM_RANK] = v_add(acc[SUM_RANK], v_select(lanes_below(cnt), ce_before(r, z, i), v_set1(0)));
  acc[SUM_FINITE] = v_add(acc[SUM_FINITE], v_select(v_lt(v_set1(-R_INF), z.h), v_set1(1), v_set1(0)));
}

/* ---- the loss ---- */

SMI double ce_part(double mass, double sum) { return mass == 0 ? 0 : mass * sum; }

static void ce_finalize(loss_row *r) {
  const exp_row *e = &r->side[STUDENT];
  const ce_masses m = ce_masses_of(r);
  const double *sum = r->total[STAGE_LATE], d = e->log1p, lse = e->max + d, z_weight = r->q[Z_WEIGHT];
  const double entropy = d + r->total[STAGE_LAST][SUM_ENTROPY], g_entropy = loss_upstream(r, ENTROPY),
               scale = 1 / r->q[TEMPERATURE];
  double mass = ce_part(m.each, sum[A_UNIFORM]),
         loss = ce_part(m.each, sum[AWAY_UNIFORM] + ce_part(sum[A_UNIFORM], d)), own = 0, weight = 1;
  if (ce_soft(r)) {
    mass += ce_part(m.soft, sum[A_SOFT]);
    loss += ce_part(m.soft, sum[AWAY_SOFT] + ce_part(sum[A_SOFT], d));
  } else if (r->target >= 0) {
    if (loss_has(r, CLASS_WEIGHT)) weight = r->target_inputs[CLASS_WEIGHT];
    own = m.hard * weight;
    mass += own;
    loss += ce_part(own, -loss_log_p(r, STUDENT));
  }
  if (z_weight != 0) loss += z_weight * lse * lse;
  const double each = r->g * (mass + (z_weight != 0 ? 2 * z_weight * lse : 0)) + loss_upstream(r, LSE);
  r->coef[C_WEIGHT] = (real)(each * scale);
  r->coef[C_SOFT] = (real)(r->g * m.soft * scale);
  r->coef[C_MASS] = (real)(r->g * m.soft);
  r->coef[C_UNIFORM] = (real)(r->g * m.each * scale);
  r->coef[C_ENTROPY] = (real)(g_entropy * scale);
  r->coef[C_MEAN_LOG] = (real)entropy;
  loss_hit hit = {0, 0, 0};
  if (r->wanted && r->target >= 0 && !ce_soft(r)) hit = loss_hit_of(r, STUDENT);
  double at = (each - r->g * own) - each * hit.q;
  if (hit.p > 0) at -= g_entropy * hit.p * (hit.log_p + entropy);
  r->at_target = (real)(at * scale);
  loss_put(r, LOSS, r->ignored ? 0 : loss);
  loss_put(r, LSE, lse);
  loss_put(r, ENTROPY, entropy);
  loss_put_whole(r, CLASS, r->top[STUDENT]);
  loss_put_whole(r, RANK, r->target < 0 ? -1 : (int64_t)r->total[STAGE_LAST][SUM_RANK]);
}

static void ce_special(const loss_row *r, bool nan, double none) {
  loss_put(r, LSE, nan ? (double)r_nan() : (double)-R_INF);
  loss_put(r, ENTROPY, none);
  loss_put_whole(r, CLASS, -1);
  loss_put_whole(r, RANK, -1);
}

/* ---- the gradient ---- */

SMI vreal ce_value_of(const loss_out *w, score_fn *f, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  vreal v = v_mul(p, v_set1(w->coef[C_WEIGHT]));
  if (ce_soft(r) || w->coef[C_UNIFORM] != 0) {
    vreal each = v_set1(w->coef[C_UNIFORM]);
    if (r->q[OVER] != 0)
      each = v_select(v_eq(loss_score(r, STUDENT, f, i, cnt).h, v_set1(-R_INF)), v_set1(0), each);
    if (ce_soft(r)) each = v_fma(v_set1(w->coef[C_SOFT]), at(loss_in(r, SOFT), i, cnt), each);
    v = v_fnma(ce_class_weight(r, i, cnt), each, v);
  }
  if (w->coef[C_ENTROPY] != 0) {
    vreal more = v_add(loss_log(r, STUDENT, loss_score(r, STUDENT, f, i, cnt)), v_set1(w->coef[C_MEAN_LOG]));
    v = v_select(v_eq(p, v_set1(0)), v, v_fnma(v_mul(p, v_set1(w->coef[C_ENTROPY])), more, v));
  }
  return loss_hit_target(w, v, i);
}
SMI vreal ce_chained(const loss_row *r, vreal v, size_t i, int cnt) {
  return v_mul(v, v_sech2(v_div(at(loss_in(r, 0), i, cnt), v_set1((real)r->q[SOFTCAP]))));
}

SMI bool ce_plain(const loss_row *r) {
  return !ce_soft(r) && r->coef[C_UNIFORM] == 0 && r->coef[C_ENTROPY] == 0;
}

/* Of a soft target: K w_j (lse - z_j), and 0 where that is infinite. */
SMI vreal ce_soft_value(const loss_out *w, score_fn *f, size_t i, int cnt) {
  const loss_row *r = w->r;
  const score z = loss_score(r, STUDENT, f, i, cnt);
  const vreal mass = v_mul(v_set1(-w->coef[C_MASS]), ce_class_weight(r, i, cnt));
  return v_select(v_eq(z.h, v_set1(-R_INF)), v_set1(0), v_mul(mass, loss_log(r, STUDENT, z)));
}

/* ---- the kernels, by the way scores are formed ---- */

SMI consts ce_tempered_setup(const row_call *c, const span *s) {
  return loss_factor(1 / c->params[TEMPERATURE]);
}
SMI consts ce_capped_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[SOFTCAP], (real)(c->params[SOFTCAP] / c->params[TEMPERATURE])}};
}

#define CE_NAME ce_logit
#define CE_SCORE score_logit
#define CE_SIDE logit
#define CE_SETUP setup_plain
#define CE_LOW false
#define CE_SHORT loss_short
#define CE_HARD_OUT logit_out
#include "cross_entropy.tmpl.h"

#define CE_NAME ce_tempered
#define CE_SCORE score_tempered
#define CE_SIDE tempered
#define CE_SETUP ce_tempered_setup
#define CE_LOW true
#define CE_HARD_OUT loss_plain_out
#include "cross_entropy.tmpl.h"

EXP_SCORES(capped, score_capped)
#define CE_NAME ce_capped
#define CE_SCORE score_capped
#define CE_SIDE capped
#define CE_SETUP ce_capped_setup
#define CE_LOW false
#define CE_CHAINED ce_chained
#include "cross_entropy.tmpl.h"

#if SMX_REAL == 32
#define CE_NAME ce_f16
#define CE_SCORE f16_score
#define CE_SIDE f16
#define CE_SETUP setup_plain
#define CE_LOW false
#define CE_HALF 1
#include "cross_entropy.tmpl.h"
#define CE_NAME ce_bf16
#define CE_SCORE bf16_score
#define CE_SIDE bf16
#define CE_SETUP setup_plain
#define CE_LOW false
#define CE_HALF 1
#include "cross_entropy.tmpl.h"
#endif
static bool cross_entropy_half_takes(const row_call *c) {
  return !ce_has_cap(c->params) && c->params[TEMPERATURE] == 1 && !(c->outputs >> DX & 1);
}
static const row_forms cross_entropy_forms = {.widened = ROW_HALF_LOG,
                                              HALF_KERNELS(ce_f16_kernel, ce_bf16_kernel),
                                              .half_takes = cross_entropy_half_takes};

static const row_kernel *cross_entropy_dispatch(const row_call *c) {
  if (ce_has_cap(c->params)) return &ce_capped_kernel;
  return c->params[TEMPERATURE] == 1 ? &ce_logit_kernel : &ce_tempered_kernel;
}
static const row_kernel *cross_entropy_grad_dispatch(const row_call *c) {
  if (ce_has_cap(c->params)) return &ce_capped_grad_kernel;
  return c->params[TEMPERATURE] == 1 ? &ce_logit_grad_kernel : &ce_tempered_grad_kernel;
}
static const row_kernel cross_entropy_kernel = {.engine = &choice_engine,
                                                .body = &(const row_choice){cross_entropy_dispatch, -1},
                                                .forms = &cross_entropy_forms};
static const row_kernel cross_entropy_grad_kernel = {
    .engine = &choice_engine, .body = &(const row_choice){cross_entropy_grad_dispatch, -1}};

OPERATOR(cross_entropy, cross_entropy, cross_entropy_grad)
