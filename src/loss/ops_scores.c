/* loss/ops_scores.c - losses of one row whose scores are not the logits of all classes: one level
 * of a tree, distances to candidates. See ops.c. */
#include "logits.h"

enum { TARGET = 1 };

/* ---- semantic_softmax ----
 *
 * w (lse - sum_j a_j x_j) over the classes of the row's level, a_y = 1 - e + e / m,
 * a_j = e / m, m: how many those are */

enum { LEVEL = 2, CLASS_LEVEL = 3, LEVEL_WEIGHT = 4, SEM_SMOOTHING = 1 };
enum { SUM_BELOW, SUM_COUNT };
enum { C_WEIGHT, C_EACH };

SMI consts level_setup(const row_call *c, const span *s) {
  return (consts){{(real) * (const int64_t *)(const void *)s->src[LEVEL]}};
}
SMI score score_level(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vmask mine = v_eq(at(s->src[CLASS_LEVEL], i, cnt), v_set1(k->v[0]));
  return (score){v_select(mine, loss_shifted(at(s->src[0], i, cnt), shift), v_set1(-R_INF)), v_set1(0)};
}
EXP_SCORES(level, score_level)
LOSS_SIDE(level, level, false, level_setup)

SMI void sem_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const score z = loss_score(r, STUDENT, score_level, i, cnt);
  vmask out = v_eq(z.h, v_set1(-R_INF));
  acc[SUM_BELOW] = v_add(acc[SUM_BELOW], v_select(out, v_set1(0), loss_below(r, STUDENT, z)));
  acc[SUM_COUNT] = v_add(acc[SUM_COUNT], v_select(out, v_set1(0), v_set1(1)));
}
LOSS_SUMS_OF(sem_late, sem_add, 2)
static bool sem_wants(const loss_row *r, int stage) {
  return stage == STAGE_LATE && r->q[SEM_SMOOTHING] != 0;
}

SMI double times(double c, double x) { return c == 0 ? 0 : c * x; }
static void sem_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], e = r->q[SEM_SMOOTHING], each = e == 0 ? 0 : e / sum[SUM_COUNT];
  const double weight = loss_has(r, LEVEL_WEIGHT) ? r->target_inputs[LEVEL_WEIGHT] : 1, g = r->g * weight;
  const double spread = e == 0 ? 0 : each * sum[SUM_BELOW] + e * r->side[STUDENT].log1p;
  const loss_hit hit = loss_hit_of(r, STUDENT);
  const bool inside = r->h[STUDENT] > -R_INF;
  loss_put(r, LOSS, times(weight, times(1 - e, -hit.log_p) + spread));
  r->coef[C_WEIGHT] = (real)g;
  r->coef[C_EACH] = (real)(g * each);
  r->at_target = (real)(g * ((e - (inside ? each : 0)) - hit.q));
}
SMI vreal sem_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal v = v_mul(p, v_set1(w->coef[C_WEIGHT]));
  if (w->coef[C_EACH] != 0) {
    vmask out = v_eq(loss_score(w->r, STUDENT, score_level, i, cnt).h, v_set1(-R_INF));
    v = v_sub(v, v_select(out, v_set1(0), v_set1(w->coef[C_EACH])));
  }
  return loss_hit_target(w, v, i);
}
LOSS_WRITE_OF(sem_out, STUDENT, sem_value)
static const loss_body sem_body = {.side = {&level_side},
                                   .sums = {[STAGE_LATE] = sem_late},
                                   .wants = sem_wants,
                                   .finalize = sem_finalize,
                                   .write = {sem_out},
                                   .along = 1u | 1u << CLASS_LEVEL | 1u << LEVEL_WEIGHT,
                                   .target = TARGET};
LOSS_KERNEL(sem)

/* ---- semantic_kd: w sum_j (p_j - q_j)^2 over the classes of the row's level ----
 *
 * dx_j = 2 w p_j (p_j - q_j - sum_k p_k (p_k - q_k)) */

enum { KD_TEACHER = 1, KD_WEIGHT = 4 };
enum { SUM_SQUARES, SUM_P_GAP };
enum { C_TWICE, C_MEAN_GAP };

SMI vreal skd_gap(const loss_row *r, vreal p, size_t i, int cnt) {
  return v_sub(p, loss_weight(r, TEACHER, loss_score(r, TEACHER, score_level, i, cnt), false, i, cnt));
}
SMI void skd_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal p = loss_weight(r, STUDENT, loss_score(r, STUDENT, score_level, i, cnt), false, i, cnt);
  vreal gap = v_select(lanes_below(cnt), skd_gap(r, p, i, cnt), v_set1(0));
  acc[SUM_SQUARES] = v_fma(gap, gap, acc[SUM_SQUARES]);
  acc[SUM_P_GAP] = v_fma(p, gap, acc[SUM_P_GAP]);
}
LOSS_SUMS_OF(skd_late, skd_add, 2)
static void skd_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE],
               weight = loss_has(r, KD_WEIGHT) ? (double)*loss_in(r, KD_WEIGHT) : 1;
  loss_put(r, LOSS, weight * sum[SUM_SQUARES]);
  r->coef[C_TWICE] = (real)(2 * r->g * weight);
  r->coef[C_MEAN_GAP] = (real)sum[SUM_P_GAP];
}
SMI vreal skd_value(const loss_out *w, vreal p, size_t i, int cnt) {
  vreal away = v_sub(skd_gap(w->r, p, i, cnt), v_set1(w->coef[C_MEAN_GAP]));
  return v_mul(v_mul(v_set1(w->coef[C_TWICE]), p), away);
}
LOSS_WRITE_OF(skd_out, STUDENT, skd_value)
static const loss_body skd_body = {.side = {&level_side, &level_side},
                                   .sums = {[STAGE_LATE] = skd_late},
                                   .finalize = skd_finalize,
                                   .write = {skd_out},
                                   .along = 1u | 1u << KD_TEACHER | 1u << CLASS_LEVEL,
                                   .teacher = KD_TEACHER};
LOSS_KERNEL(skd)

/* ---- balanced_mse: own + 2 S lse(z), z_k = log w_k + log(S / s_k) / 2 - x_k / (2 s_k),
 * s_k = v_k + S, S = sigma^2 ----
 *
 * With r = softmax(z): dx_k = -r_k S / s_k, down = 1, and dsigma = 4 sigma lse + 2 sigma T or,
 * where the factor 2 S is a constant, 2 sigma T - 2 own / sigma, T = sum_k r_k (1 - S / s_k + x_k
 * S / s_k^2). */

enum { MSE_OWN = 1, MSE_PRIOR = 2, MSE_VARIANCE = 3, MSE_NOISE = 4 };
enum { MSE_SIGMA = 0, MSE_DETACH = 1 };
enum { K_SQUARE, K_HALF }; /* S, and -1 / (2 S) */

SMI double mse_sigma(const double *q, const real *noise) { return noise ? (double)*noise : q[MSE_SIGMA]; }
/* A sigma or an own distance that is no number makes the row NaN. */
SMI consts mse_setup(const row_call *c, const span *s) {
  const double sigma = mse_sigma(c->params, s->src[MSE_NOISE]), own = (double)*s->src[MSE_OWN];
  const bool good = sigma > 0 && sigma < (double)R_INF && own == own;
  return (consts){{(real)(sigma * sigma), good ? (real)(-0.5 / sigma / sigma) : r_nan()}};
}
/* log of a number that is at least 0; of less, NaN. */
SMI vreal mse_log(vreal x) {
  vmask usable = m_and(m_not(v_lt(x, v_set1(R_TINY))), v_lt(x, v_set1(R_INF)));
  vmask none = m_and(m_not(v_lt(x, v_set1(0))), v_lt(x, v_set1(R_TINY)));
  vreal log = v_log_scaled(v_select(usable, x, v_set1(1)), v_set1(0));
  return v_select(usable, log, v_select(none, v_set1(-R_INF), v_set1(r_nan())));
}
/* S / s_k, which is 1 if candidates have no variance of their own. */
SMI vreal mse_part(const span *s, const consts *k, size_t i, int cnt) {
  if (!s->src[MSE_VARIANCE]) return v_set1(1);
  vreal v = at(s->src[MSE_VARIANCE], i, cnt), square = v_set1(k->v[K_SQUARE]);
  return v_select(m_not(v_lt(v, v_set1(0))), v_div(square, v_add(v, square)), v_set1(r_nan()));
}
SMI score score_distance(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  vreal part = mse_part(s, k, i, cnt), b = v_set1(0);
  if (s->src[MSE_VARIANCE]) b = v_mul(v_set1((real)0.5), mse_log(part));
  if (s->src[MSE_PRIOR]) b = v_add(b, mse_log(at(s->src[MSE_PRIOR], i, cnt)));
  vreal x = at(s->src[0], i, cnt), z = v_fma(x, v_mul(v_set1(k->v[K_HALF]), part), b);
  return (score){loss_shifted(v_select(v_eq(b, v_set1(-R_INF)), b, z), shift), v_set1(0)};
}
EXP_SCORES(distance, score_distance)
LOSS_SIDE(distance, distance, false, mse_setup)

static bool mse_wants(const loss_row *r, int stage) {
  return stage == STAGE_LATE && r->backward && (r->outputs >> MSE_NOISE & 1);
}
static bool mse_terms_only(const loss_row *r) { return !mse_wants(r, STAGE_LATE); }
SMI void mse_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const score z = loss_score(r, STUDENT, score_distance, i, cnt);
  vreal p = loss_weight(r, STUDENT, z, false, i, cnt),
        part = mse_part(&r->on[STUDENT], &r->k[STUDENT], i, cnt);
  vreal away = v_div(v_mul(at(loss_in(r, 0), i, cnt), v_mul(part, part)), v_set1(r->k[STUDENT].v[K_SQUARE]));
  vreal term = v_mul(p, v_add(v_sub(v_set1(1), part), away));
  acc[0] = v_add(acc[0], v_select(v_eq(p, v_set1(0)), v_set1(0), term));
}
LOSS_SUMS_OF(mse_late, mse_add, 1)
static void mse_finalize(loss_row *r) {
  const double sigma = mse_sigma(r->q, loss_in(r, MSE_NOISE)), own = (double)*loss_in(r, MSE_OWN),
               lse = loss_lse(r, STUDENT);
  const double rest = r->q[MSE_DETACH] != 0 ? -2 * own / sigma : 4 * sigma * lse;
  loss_put(r, LOSS, own + 2 * sigma * sigma * lse);
  loss_put_gradient(r, MSE_OWN, r->g);
  loss_put_gradient(r, MSE_NOISE, r->g * (rest + 2 * sigma * r->total[STAGE_LATE][0]));
  r->coef[0] = (real)-r->g;
}
static void mse_special(const loss_row *r, bool nan, double none) {
  loss_put_gradient(r, MSE_OWN, none);
  loss_put_gradient(r, MSE_NOISE, none);
}
SMI vreal mse_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  return v_mul(v_mul(p, v_set1(w->coef[0])), mse_part(&r->on[STUDENT], &r->k[STUDENT], i, cnt));
}
LOSS_WRITE_OF(mse_out, STUDENT, mse_value)
static const loss_body mse_body = {.side = {&distance_side},
                                   .sums = {[STAGE_LATE] = mse_late},
                                   .wants = mse_wants,
                                   .terms_only = mse_terms_only,
                                   .finalize = mse_finalize,
                                   .special = mse_special,
                                   .write = {mse_out},
                                   .along = 1u | 1u << MSE_PRIOR | 1u << MSE_VARIANCE};
LOSS_KERNEL(mse)

OPERATOR(semantic_softmax, sem, sem_grad)
OPERATOR(semantic_kd, skd, skd_grad)
OPERATOR(balanced_mse, mse, mse_grad)
