/* loss/ops_distill.c - distillation of standardised logits, and a temperature that changes as
 * distillation proceeds. See ops.c. */
#include "engine/long_steps.h"
#include "engine/reduce_map.h"
#include "high.h"
#include "nontarget.h"

/* ---- standardised_kd: T^2 D(q || p), with the logits of each row divided by T (e + their
 * deviation) ----
 *
 * The mean that is subtracted as well does not show in softmax. Mean and deviation are of the
 * finite logits, about a first mean m: the mean is m + shift, shift = sum(x - m) / count.
 * Deviations are in units of a power of two near the mean |x|. */

enum { STD_T, STD_EPSILON };
enum {
  M_MEAN,
  M_INVERSE,
  M_SHIFT,
  M_DEVIATION
}; /* moments: total[STAGE_EARLY] of the student, total[STAGE_CENTRED] of the teacher */
enum { SUM_LOSS, SUM_GAP, SUM_GAP_AWAY, SUM_COUNT }; /* sums of STAGE_LATE */
enum { V_MEAN = 2, V_INVERSE, V_SHIFT };          /* constants of a side, beside the factor of its scores */
enum { FIRST_X, FIRST_SIZE, FIRST_COUNT, FIRST }; /* sums of a row: the first pass */
enum { SECOND_AWAY = FIRST, SECOND_SQUARE, STD_SUMS, SECOND = STD_SUMS - FIRST };

SMI vmask std_counts(vreal x, int cnt) {
  return m_and(lanes_below(cnt), m_not(v_eq(v_abs(x), v_set1(R_INF))));
}
SMI vreal std_away(vreal x, real mean, real inverse) {
  return v_mul(v_sub(x, v_set1(mean)), v_set1(inverse));
}

/* One group of a row: x, |x| and their number; or, about a mean, x and x^2. */
SMI void std_group(const real *x, const double *known, bool second, size_t first, size_t n, double *sum) {
  vreal acc[FIRST][VPB];
  const real mean = second ? (real)known[M_MEAN] : 0, inverse = second ? (real)known[M_INVERSE] : 1;
  for (int a = 0; a < FIRST; a++)
    for (int u = 0; u < VPB; u++) acc[a][u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    const vreal v = at(x, i, cnt), zero = v_set1(0); \
    const vmask counts = std_counts(v, cnt); \
    if (second) { \
      const vreal away = v_select(counts, std_away(v, mean, inverse), zero); \
      acc[0][u] = v_add(acc[0][u], away); \
      acc[1][u] = v_fma(away, away, acc[1][u]); \
    } else { \
      acc[FIRST_X][u] = v_add(acc[FIRST_X][u], v_select(counts, v, zero)); \
      acc[FIRST_SIZE][u] = v_add(acc[FIRST_SIZE][u], v_select(counts, v_abs(v), zero)); \
      acc[FIRST_COUNT][u] = v_add(acc[FIRST_COUNT][u], v_select(counts, v_set1(1), zero)); \
    } \
  }
  FOR_EACH_VECTOR(first, n, STEP)
#undef STEP
  for (int a = 0; a < (second ? SECOND : FIRST); a++) sum[a] += (double)v_fold(acc[a]);
}
NOINLINE void std_first(const real *x, const double *known, size_t i, size_t n, double *sum) {
  std_group(x, known, false, i, n, sum);
}
NOINLINE void std_second(const real *x, const double *known, size_t i, size_t n, double *sum) {
  std_group(x, known, true, i, n, sum);
}

static inline void moments_begin(const row_call *c, row_state *st) {
  st->mode = 0;
  st->serial = true;
  for (int a = 0; a < SIDES * STD_SUMS; a++) st->list[a] = 0;
}
static inline void moments_pass(const row_call *c, row_state *st, row_part *parts) {
  for (size_t g = 0; g * GROUP < c->count; g++) {
    const size_t i = c->start - c->origin + g * GROUP, n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    for (int side = 0; side < SIDES; side++) {
      const real *x = c->src[side == STUDENT ? 0 : TEACHER_PORT];
      double *sum = st->list + side * STD_SUMS;
      if (st->mode == 0) std_first(x, NULL, i, n, sum);
      else std_second(x, st->kept.total[STAGE_EARLY + side], i, n, sum + FIRST);
    }
  }
}
static inline bool moments_next(const row_call *c, row_state *st) {
  for (int side = 0; side < SIDES; side++) {
    const double *sum = st->list + side * STD_SUMS, count = sum[FIRST_COUNT] > 0 ? sum[FIRST_COUNT] : 1,
                 shift = sum[SECOND_AWAY] / count;
    double *to = st->kept.total[STAGE_EARLY + side],
           variance = count > 1 ? (sum[SECOND_SQUARE] - sum[SECOND_AWAY] * shift) / (count - 1) : 0;
    to[M_MEAN] = (double)(real)(sum[FIRST_X] / count);
    to[M_INVERSE] = d_inverse_size(sum[FIRST_SIZE] / count);
    to[M_SHIFT] = shift;
    to[M_DEVIATION] = variance < 0x1p-900 ? 0 : variance == variance ? d_root(variance) : variance;
  }
  return st->mode++ == 0;
}
static const loss_before std_before = {moments_begin, moments_pass, moments_next};

/* e + deviation, in the row's unit. */
SMI double std_width(const double *moments, double epsilon) {
  return moments[M_DEVIATION] + epsilon * moments[M_INVERSE];
}
SMI consts std_setup(const span *s, int side, double t, double epsilon) {
  const double *m = (const double *)(const void *)s->src[SRC_SUMS] + (STAGE_EARLY + side) * ROW_SUMS;
  const double factor = m[M_DEVIATION] == 0 ? 1 / t : m[M_INVERSE] / (t * std_width(m, epsilon));
  consts k = loss_factor(factor > 1e37 ? 1e37 : factor);
  k.v[V_MEAN] = (real)m[M_MEAN], k.v[V_INVERSE] = (real)m[M_INVERSE], k.v[V_SHIFT] = (real)m[M_SHIFT];
  return k;
}
SMI consts std_student_setup(const row_call *c, const span *s) {
  return std_setup(s, STUDENT, c->params[STD_T], c->params[STD_EPSILON]);
}
SMI consts std_teacher_setup(const row_call *c, const span *s) {
  return std_setup(s, TEACHER, c->params[STD_T], c->params[STD_EPSILON]);
}
LOSS_SIDE(std_student, tempered, true, std_student_setup)
LOSS_SIDE(std_teacher, tempered, true, std_teacher_setup)

SMI vreal std_from_mean(const loss_row *r, vreal x) {
  const real *v = r->k[STUDENT].v;
  return v_sub(std_away(x, v[V_MEAN], v[V_INVERSE]), v_set1(v[V_SHIFT]));
}
/* term: of the loss; gap: p - q; both with the same factor. */
SMI void std_sums_add(const loss_row *r, vreal term, vreal gap, size_t i, int cnt, vreal *acc) {
  const vreal x = at(loss_in(r, 0), i, cnt), zero = v_set1(0);
  const vmask counts = std_counts(x, cnt);
  gap = v_select(counts, gap, zero);
  acc[SUM_LOSS] = term;
  acc[SUM_GAP] = v_add(acc[SUM_GAP], gap);
  acc[SUM_GAP_AWAY] = v_fma(gap, v_select(v_eq(gap, zero), zero, std_from_mean(r, x)), acc[SUM_GAP_AWAY]);
  acc[SUM_COUNT] = v_add(acc[SUM_COUNT], v_select(counts, v_set1(1), zero));
}
SMI void std_late_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const pair w = pair_at(r, score_tempered, true, i, cnt);
  std_sums_add(r, add_where(acc[SUM_LOSS], w.q, w.log_q, v_sub(w.log_q, w.log_p)), v_sub(w.p, w.q), i, cnt,
               acc);
}
SMI void std_centre_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  high_centre_add(r, score_tempered, (real)r->q[STD_T], i, cnt, acc);
}
SMI void std_high_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const high w = high_at(r, r->coef, score_tempered, i, cnt);
  const vreal t = v_set1(r->coef[C_HIGH]);
  std_sums_add(r, v_add(acc[SUM_LOSS], high_term(&w, false, t)), high_gap(&w, t), i, cnt, acc);
}
SMI double std_temperature(const loss_row *r) { return r->q[STD_T]; }
LOSS_SUMS_OF(std_centre, std_centre_add, 1)
HIGH_SUMS_OF(std_high_last, std_high_add, 4, std_temperature)
LOSS_SUMS_OF(std_late, std_late_add, 4)

/* With G = T (p - q), s the deviation and w = s + e: dx_j = (G_j - mean G) / w - (x_j - mean) sum_i
 * G_i (x_i - mean) / ((n - 1) s w^2). */
enum { C_GAP, C_EVEN, C_AWAY };
/* t: the factor that the sums still lack. */
SMI void std_finalize_from(loss_row *r, const double *sum, double t) {
  const double *m = r->total[STAGE_EARLY], width = std_width(m, r->q[STD_EPSILON]);
  const double slope = m[M_DEVIATION] == 0 ? 0 : r->g * t * m[M_INVERSE] / width;
  loss_put(r, LOSS, t * t * sum[SUM_LOSS]);
  r->coef[C_GAP] = (real)slope;
  r->coef[C_EVEN] = (real)(slope == 0 ? 0 : -slope * sum[SUM_GAP] / sum[SUM_COUNT]);
  r->coef[C_AWAY] =
      (real)(slope == 0 ? 0 : -slope * sum[SUM_GAP_AWAY] / ((sum[SUM_COUNT] - 1) * m[M_DEVIATION] * width));
}
static void std_plain_finalize(loss_row *r) { std_finalize_from(r, r->total[STAGE_LATE], r->q[STD_T]); }
static void std_high_finalize(loss_row *r) {
  high_finalize_centre(r, r->q[STD_T], r->coef);
  std_finalize_from(r, r->total[STAGE_LAST], 1);
}
SMI vreal std_value_of(const loss_out *w, vreal gap, size_t i, int cnt) {
  const vreal x = at(loss_in(w->r, 0), i, cnt);
  vreal v = v_fma(v_set1(w->coef[C_GAP]), gap, v_set1(w->coef[C_EVEN]));
  v = v_fma(v_set1(w->coef[C_AWAY]), std_from_mean(w->r, x), v);
  return v_select(v_eq(v_abs(x), v_set1(R_INF)), v_set1(0), v);
}
SMI vreal std_plain_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal q = loss_weight(w->r, TEACHER, loss_score(w->r, TEACHER, score_tempered, i, cnt), true, i, cnt);
  return std_value_of(w, v_sub(p, q), i, cnt);
}
SMI vreal std_high_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const high at = high_at(w->r, w->coef, score_tempered, i, cnt);
  return std_value_of(w, high_gap(&at, v_set1(w->coef[C_HIGH])), i, cnt);
}
LOSS_WRITE_OF(std_plain_out, STUDENT, std_plain_value)
LOSS_WRITE_OF(std_high_out, STUDENT, std_high_value)
#define STANDARDISED(name, late, last) \
  static const loss_body name##_body = {.before = &std_before, \
                                        .side = {&std_student_side, &std_teacher_side}, \
                                        .sums = {[STAGE_LATE] = late, [STAGE_LAST] = last}, \
                                        .finalize = name##_finalize, \
                                        .write = {name##_out}, \
                                        .along = 1u | 1u << TEACHER_PORT, \
                                        .teacher = TEACHER_PORT}; \
  LOSS_KERNEL(name)
STANDARDISED(std_plain, std_late, NULL)
STANDARDISED(std_high, std_centre, std_high_last)
LOSS_CHOICE(std, c->params[STD_T] >= HIGH_TEMPERATURE, std_high, std_plain)

/* ---- standardised_dkd: T^2 (a D([q_y, 1 - q_y] || [p_y, 1 - p_y]) + b D(q^ || p^)) of
 * standardised logits ----
 *
 * The gradient G by z sums to 0, so that dx_j = G_j / w - (x_j - mean) sum_i G_i
 * (x_i - mean) / ((n - 1) s w^2). With d = p_y - q_y the sum is, up to a factor, b sum (p^ - q^)
 * (x - mean) - a d (sum p^ (x - mean) - (x_y - mean)). */

enum { SDKD_T = 1, SDKD_ALPHA, SDKD_BETA, SDKD_EPSILON };
enum { SUM_P_AWAY = SUM_GAP }; /* in place of the gap */
enum { C_FROM_MEAN = 2 };

SMI consts sdkd_student_setup(const row_call *c, const span *s) {
  return std_setup(s, STUDENT, c->params[SDKD_T], c->params[SDKD_EPSILON]);
}
SMI consts sdkd_teacher_setup(const row_call *c, const span *s) {
  return std_setup(s, TEACHER, c->params[SDKD_T], c->params[SDKD_EPSILON]);
}
LOSS_SIDE(sdkd_student, nontarget, true, sdkd_student_setup)
LOSS_SIDE(sdkd_teacher, nontarget, true, sdkd_teacher_setup)

/* term: of the loss of the others; gap: p^ - q^; both with the same factor. */
SMI void sdkd_sums_add(const loss_row *r, vreal term, vreal p, vreal gap, size_t i, int cnt, vreal *acc) {
  const vreal x = at(loss_in(r, 0), i, cnt), zero = v_set1(0);
  const vmask counts = std_counts(x, cnt);
  const vreal away = v_select(counts, std_from_mean(r, x), zero);
  acc[SUM_LOSS] = term;
  acc[SUM_P_AWAY] = v_fma(p, away, acc[SUM_P_AWAY]);
  acc[SUM_GAP_AWAY] = v_fma(gap, away, acc[SUM_GAP_AWAY]);
  acc[SUM_COUNT] = v_add(acc[SUM_COUNT], v_select(counts, v_set1(1), zero));
}
SMI void sdkd_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const pair w = pair_at(r, score_nontarget, true, i, cnt);
  const vreal term = add_where(acc[SUM_LOSS], w.q, w.log_q, v_sub(w.log_q, w.log_p));
  sdkd_sums_add(r, term, w.p, v_sub(w.p, w.q), i, cnt, acc);
}
SMI void sdkd_centre_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  high_centre_add(r, score_nontarget, (real)r->q[SDKD_T], i, cnt, acc);
}
SMI void sdkd_high_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const high w = high_at(r, r->coef, score_nontarget, i, cnt);
  const vreal t = v_set1(r->coef[C_HIGH]);
  sdkd_sums_add(r, v_add(acc[SUM_LOSS], high_term(&w, false, t)), w.p, high_gap(&w, t), i, cnt, acc);
}
SMI double sdkd_temperature(const loss_row *r) { return r->q[SDKD_T]; }
LOSS_SUMS_OF(sdkd_late, sdkd_add, 4)
LOSS_SUMS_OF(sdkd_centre, sdkd_centre_add, 1)
HIGH_SUMS_OF(sdkd_high_last, sdkd_high_add, 4, sdkd_temperature)

/* own: T^2 times the target's divergence and T times p_y - q_y; the sums lack the factor t of T.
 * Gradients: the weights times C_STUDENT, less q^ times C_TEACHER, or, if far, the gap of the
 * others times C_TEACHER. */
SMI void sdkd_finalize_from(loss_row *r, const double *sum, high_two own, double t, bool far) {
  const double *m = r->total[STAGE_EARLY], alpha = r->q[SDKD_ALPHA], beta = r->q[SDKD_BETA];
  const double width = std_width(m, r->q[SDKD_EPSILON]),
               slope = m[M_DEVIATION] == 0 ? 0 : r->g * t * m[M_INVERSE] / width;
  const bool masked = r->h[STUDENT] == -R_INF;
  const double place = masked ? 0 : (r->target_inputs[0] - m[M_MEAN]) * m[M_INVERSE] - m[M_SHIFT];
  const double all = beta * sum[SUM_GAP_AWAY] - alpha * own.gap * (sum[SUM_P_AWAY] - place);
  const double back = slope == 0 ? 0 : -slope * all / ((sum[SUM_COUNT] - 1) * m[M_DEVIATION] * width);
  loss_put(r, LOSS, t * t * (weigh(alpha, own.divergence) + weigh(beta, sum[SUM_LOSS])));
  r->coef[C_STUDENT] = (real)(slope * ((far ? 0 : beta) - alpha * own.gap));
  r->coef[C_TEACHER] = (real)(slope * beta);
  r->coef[C_FROM_MEAN] = (real)back;
  r->at_target = (real)(masked ? 0 : slope * alpha * own.gap + back * place);
}
static void sdkd_plain_finalize(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  r->coef[C_FROM_MEAN] = 0;
  if (nontarget_special(r, &p, &q)) return;
  const high_two own = {split_divergence(&p, &q), split_away(&p, &q)};
  sdkd_finalize_from(r, r->total[STAGE_LATE], own, r->q[SDKD_T], false);
}
static void sdkd_high_finalize(loss_row *r) {
  const split p = split_of(r, STUDENT), q = split_of(r, TEACHER);
  r->coef[C_FROM_MEAN] = 0;
  if (nontarget_special(r, &p, &q)) return;
  high_finalize_centre(r, r->q[SDKD_T], r->coef);
  sdkd_finalize_from(r, r->total[STAGE_LAST], split_high(r, &p, &q, r->q[SDKD_T]), 1, true);
}
SMI vreal sdkd_value_of(const loss_out *w, vreal gap, size_t i, int cnt) {
  const vreal x = at(loss_in(w->r, 0), i, cnt),
              v = v_fma(v_set1(w->coef[C_FROM_MEAN]), std_from_mean(w->r, x), gap);
  return loss_hit_target(w, v_select(v_eq(v_abs(x), v_set1(R_INF)), v_set1(0), v), i);
}
SMI vreal sdkd_plain_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return sdkd_value_of(w, nontarget_gap(w, p, i, cnt), i, cnt);
}
SMI vreal sdkd_high_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return sdkd_value_of(w, others_high_gap(w, p, i, cnt), i, cnt);
}
LOSS_WRITE_OF(sdkd_plain_out, STUDENT, sdkd_plain_value)
LOSS_WRITE_OF(sdkd_high_out, STUDENT, sdkd_high_value)
#define STANDARDISED_TARGET(name, late, last) \
  static const loss_body name##_body = {.before = &std_before, \
                                        .side = {&sdkd_student_side, &sdkd_teacher_side}, \
                                        .sums = {[STAGE_LATE] = late, [STAGE_LAST] = last}, \
                                        .finalize = name##_finalize, \
                                        .write = {name##_out}, \
                                        .along = 1u | 1u << TEACHER_PORT, \
                                        .target = PAIR_TARGET, \
                                        .target_scores = &tempered_scores, \
                                        .teacher = TEACHER_PORT}; \
  LOSS_KERNEL(name)
STANDARDISED_TARGET(sdkd_plain, sdkd_late, NULL)
STANDARDISED_TARGET(sdkd_high, sdkd_centre, sdkd_high_last)
LOSS_CHOICE(sdkd, c->params[SDKD_T] >= HIGH_TEMPERATURE, sdkd_high, sdkd_plain)

/* ---- dynamic_temperature: element by element, in double ---- */

enum { DT_VARIANT, DT_START, DT_LEAST, DT_MOST, DT_MOMENTUM, DT_PREVIOUS, DT_EPOCH, DT_EPOCHS };
enum { V_BY_SIZE, V_LEAST, V_MOST, V_SCALE, V_BEFORE, V_NOW }; /* what an element is made of */

SMI double cos_of_pi(double t) { /* t from 0 to 1 */
  const bool half = t > 0.5;
  const double y = half ? 1 - t : t, square = y * y * 9.869604401089358;
  double sum = 0;
  for (int k = 12; k > 0; k--) sum = -square / (double)((2 * k - 1) * (2 * k)) * (1 + sum);
  return half ? -1 - sum : 1 + sum;
}
SMI consts dt_setup(const row_call *c, const span *s) {
  const double *q = c->params, done = q[DT_EPOCH] < q[DT_EPOCHS] ? q[DT_EPOCH] / q[DT_EPOCHS] : 1,
               momentum = q[DT_MOMENTUM];
  if (q[DT_VARIANT] != 0)
    return (consts){
        {0, (real)q[DT_LEAST], (real)q[DT_MOST], (real)(q[DT_START] * (0.5 + 0.5 * cos_of_pi(done))),
         (real)(momentum * (q[DT_PREVIOUS] > 0 ? q[DT_PREVIOUS] : q[DT_START])), (real)(1 - momentum)}};
  return (consts){{1, (real)q[DT_LEAST], (real)(q[DT_MOST] * d_exp(-0.4 * done)),
                   (real)(q[DT_START] * (0.5 + cos_of_pi(0.7 * done)) * d_exp(-0.75 * done)), 0, 1}};
}
SMI double dt_factor(bool by_size, double x) {
  if (by_size) return 0.5 + 0.7 * d_log1p(x < 0 ? -x : x);
  double log = x > 0 && x < 0.36787944117144233 ? d_log(x < 0x1p-1000 ? 0x1p-1000 : x, 0)
                                                : 0; /* below 1/e, log / (log + 1) > 1 */
  return log < -1 ? 1 + log / (log + 1) : 1;
}
NOINLINE void dt_out(const span *s, const consts *k, const reduce_map_row *r, size_t first, size_t n,
                     row_part *part) {
  *part = (row_part){.index = -1};
  for (size_t i = first; i < first + n; i++) {
    const bool by_size = k->v[V_BY_SIZE] != 0;
    double t = (by_size ? 0.1 : 0) + (double)k->v[V_SCALE] * dt_factor(by_size, (double)s->src[0][i]);
    t = t < (double)k->v[V_MOST] ? t : (double)k->v[V_MOST];
    t = t < (double)k->v[V_LEAST] ? (double)k->v[V_LEAST] : t;
    s->dst[0][i] = (real)((double)k->v[V_BEFORE] + (double)k->v[V_NOW] * t);
  }
}
SMI void dt_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                reduce_map_acc *acc) {
  vreal x = at(s->src[0], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(x, x)));
}
REDUCE_MAP_SUMS_OF(dt_check, dt_add)
static const reduce_map_body dt_body = {
    .setup = dt_setup, .sums = dt_check, .write = dt_out, .full = 1, .bounded = true};
REDUCE_MAP_KERNEL(dt)

OPERATOR_WITH(standardised_kd, std, std_grad, SIDES *STD_SUMS, 0)
OPERATOR_WITH(standardised_dkd, sdkd, sdkd_grad, SIDES *STD_SUMS, 0)
FORWARD_OPERATOR(dynamic_temperature, dt)
