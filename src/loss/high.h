/* loss/high.h - divergences between two rows of weights at a high temperature T. Both rows are
 * nearly even then: p - q and the divergence are small differences, whose rounding errors T and T^2
 * would multiply.
 *
 * With a_j = log q_j - log p_j, the sums of p and of q being 1,
 *
 *     D(q || p) = sum_j q_j (e^-a_j - 1 + a_j),  p_j - q_j = q_j (e^-a_j - 1),
 *
 * where nothing cancels, and T^2 D contains (T a_j)^2, which is of the size of logits.
 * a_j = l_j - c. l_j is the difference of both scores, each taken relative to its row's largest,
 * and c = -log(1 + sum_j q_j (e^-l_j - 1)): that sum, times T, is sum 0 of STAGE_LATE. The error of
 * T^2 D is some units of the square of the spread of logits, at any T. */
#ifndef SMX_LOSS_HIGH_H
#define SMX_LOSS_HIGH_H
#include "choice.h"
#include "divergence.h"
#include "scalars.h"

/* the temperature from which this is used; below, p - q is as good, and needs one pass */
#define HIGH_TEMPERATURE 8.0

enum { C_CENTRE = ROW_COEFS - 3, C_CENTRE_T, C_HIGH }; /* coefficients: c, T c, T */
enum { SUM_CENTRE = 0 };                               /* of STAGE_LATE */

/* (e^t - 1) / t and (e^t - 1 - t) / t^2 of small t. */
SMI vreal high_series(vreal t, int terms) {
  vreal sum = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - terms; i++) sum = v_fma(sum, t, v_set1(exp_coefficients[i]));
  return sum;
}
SMI vmask high_near(vreal x) { return v_lt(v_abs(x), v_set1((real)0.35)); }
SMI vreal high_or_none(vreal weight, vreal x) {
  return v_select(v_eq(weight, v_set1(0)), v_set1(0), v_mul(weight, x));
}

typedef struct high {
  vreal p, q, away, lift; /* a_j and T a_j */
} high;
/* l_j; 0 for classes that neither row has. */
SMI vreal high_apart(const loss_row *r, score z, score u) {
  const vmask none = m_and(v_eq(z.h, v_set1(-R_INF)), v_eq(u.h, v_set1(-R_INF)));
  return v_select(none, v_set1(0), v_sub(loss_below(r, STUDENT, z), loss_below(r, TEACHER, u)));
}
SMI high high_at(const loss_row *r, const real *coef, score_fn *f, size_t i, int cnt) {
  const score z = loss_score(r, STUDENT, f, i, cnt), u = loss_score(r, TEACHER, f, i, cnt);
  const vreal apart = high_apart(r, z, u);
  return (high){loss_weight(r, STUDENT, z, true, i, cnt), loss_weight(r, TEACHER, u, true, i, cnt),
                v_sub(apart, v_set1(coef[C_CENTRE])),
                v_fma(apart, v_set1(coef[C_HIGH]), v_set1(-coef[C_CENTRE_T]))};
}

/* T sum_j q_j (e^-l_j - 1). */
SMI void high_centre_add(const loss_row *r, score_fn *f, real t, size_t i, int cnt, vreal *acc) {
  const score z = loss_score(r, STUDENT, f, i, cnt), u = loss_score(r, TEACHER, f, i, cnt);
  const vreal q = loss_weight(r, TEACHER, u, true, i, cnt), apart = high_apart(r, z, u),
              minus = v_sub(v_set1(0), apart);
  const real sums = (real)((1 + r->side[STUDENT].sum_without_max) / (1 + r->side[TEACHER].sum_without_max));
  const vreal near = v_mul(v_mul(v_mul(v_set1(t), minus), q), high_series(minus, 1));
  const vreal far = v_mul(v_set1(t), v_sub(v_mul(loss_weight(r, STUDENT, z, true, i, cnt), v_set1(sums)), q));
  acc[SUM_CENTRE] = v_add(acc[SUM_CENTRE], v_select(high_near(apart), near, far));
}
/* c, and the other numbers that the passes after STAGE_LATE need. */
SMI void high_finalize_centre(const loss_row *r, double t, real *coef) {
  const double apart = r->total[STAGE_LATE][SUM_CENTRE] / t;
  const bool near = apart > -0.29 && apart < 0.4;
  const double centre = near ? -d_log_1pf(apart, 0, 0) : r->side[TEACHER].log1p - r->side[STUDENT].log1p;
  coef[C_CENTRE] = (real)centre;
  coef[C_CENTRE_T] = (real)(t * centre);
  coef[C_HIGH] = (real)t;
}

/* T^2 times a term of D(q || p), or of D(p || q). Infinite for a class that the other row does not
 * have. */
SMI vreal high_term(const high *w, bool reverse, vreal t) {
  const vreal zero = v_set1(0), away = reverse ? v_sub(zero, w->away) : w->away, own = reverse ? w->p : w->q,
              other = reverse ? w->q : w->p;
  const vreal near = v_mul(v_mul(v_mul(own, w->lift), w->lift), high_series(v_sub(zero, away), 2));
  const vreal far = v_mul(t, v_mul(t, v_add(v_sub(other, own), high_or_none(own, away))));
  return v_select(v_eq(away, v_set1(R_INF)), away, v_select(high_near(away), near, far));
}
/* T (p - q) */
SMI vreal high_gap(const high *w, vreal t) {
  const vreal near =
      v_mul(v_mul(v_max(w->p, w->q), w->lift), high_series(v_sub(v_set1(0), v_abs(w->away)), 1));
  return v_select(high_near(w->away), v_sub(v_set1(0), near), v_mul(t, v_sub(w->p, w->q)));
}

/* The sums of a stage after STAGE_LATE: add(r, i, cnt, acc), with the coefficients that
 * high_finalize_centre sets in r. */
#define HIGH_SUMS_OF(name, add, count, temperature) \
  NOINLINE void name(const loss_row *r, size_t i, size_t n, double *sums) { \
    loss_row own = *r; \
    high_finalize_centre(r, temperature(r), own.coef); \
    loss_sums_of(&own, add, count, i, n, sums); \
  }

/* ---- two classes: the target, of weight q for the teacher, and the rest ---- */

typedef struct high_two {
  double divergence, gap; /* T^2 D(q || p), T (p - q) of the target */
} high_two;
SMI double d_series(double t, int terms) { /* as high_series */
  double sum = 1;
  for (int k = 16 + terms; k > terms; k--) sum = 1 + sum * t / k;
  return terms == 2 ? sum / 2 : sum;
}
SMI high_two high_two_of(double q, double rest, double apart, double t) {
  const double centre = -d_log_1pf(-q * apart * d_series(-apart, 1), 0, 0), own = apart - centre;
  const double lift = t * own, other = t * centre;
  return (high_two){q * lift * lift * d_series(-own, 2) + rest * other * other * d_series(centre, 2),
                    -q * lift * d_series(-own, 1)};
}
SMI bool high_two_near(double apart) { return apart < 0.25 && apart > -0.25; }

#endif
