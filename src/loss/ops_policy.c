/* loss/ops_policy.c - losses of policy gradients over the tokens of an answer, whose
 * log-probabilities are x, and were `old` when it was drawn: PPO and GRPO, GSPO, SAPO, CISPO.
 *
 * A row is an answer. Its token t counts l_t + b k_t, where l is made of the ratio r = e^(x - old)
 * and the advantage, and k estimates the divergence from a reference. Tokens that the mask drops,
 * or from `length` on, do not exist. */
#include "engine/long_steps.h"
#include "elementwise.h"
#include "high.h"

enum { OLD = 1, ADVANTAGE, TOKEN_ADVANTAGE, REFERENCE, MASK, LENGTH, WEIGHT }; /* inputs */
enum { TOKENS = 3, KL_MEAN, CLIPPED };                                         /* outputs behind `reduced` */
enum { KL_WEIGHT, ESTIMATOR, OVER, MAX_LENGTH, OWN };  /* parameters; OWN: what differs */
enum { K1, K2, K3 };                                   /* ESTIMATOR */
enum { OVER_TOKENS, OVER_ONE, OVER_ALL, OVER_LENGTH }; /* OVER */
enum { SUM_COUNT, SUM_LOG_RATIO };                     /* sums of STAGE_EARLY */
enum { SUM_TERM, SUM_KL, SUM_CLIPPED, SUM_SLOPE };     /* of STAGE_LATE */
enum { C_TERM, C_KL, C_ROW };                          /* coefficients */

/* ---- which tokens there are ---- */

SMI int64_t policy_length(const loss_row *r) {
  const int64_t *length = (const int64_t *)(const void *)loss_in(r, LENGTH);
  return length ? *length : (int64_t)r->n;
}
SMI vmask policy_there(const loss_row *r, size_t i, int cnt) {
  const int64_t left = policy_length(r) - (int64_t)(r->on[STUDENT].origin + i);
  const vmask in = lanes_below(left < cnt ? left > 0 ? (int)left : 0 : cnt);
  return loss_has(r, MASK) ? m_and(in, v_lt(v_set1(-R_INF), at(loss_in(r, MASK), i, cnt))) : in;
}
SMI double policy_count(const loss_row *r) {
  return loss_has(r, MASK) ? r->total[STAGE_EARLY][SUM_COUNT] : (double)policy_length(r);
}

/* ---- a token: what it counts, the derivative of that, and 1 where its ratio is limited ---- */

typedef struct token {
  vreal loss, slope, limited;
} token;
/* What a loss makes of x, r and the advantage a. */
typedef token token_fn(const loss_row *r, vreal x, vreal ratio, vreal a);

SMI vreal token_advantage(const loss_row *r, size_t i, int cnt) {
  const vreal a =
      loss_has(r, ADVANTAGE) ? v_set1(*loss_in(r, ADVANTAGE)) : at(loss_in(r, TOKEN_ADVANTAGE), i, cnt);
  return v_add(a, v_sub(a, a)); /* an infinite one is NaN */
}
SMI vreal log_ratio_at(const loss_row *r, const bool whole, size_t i, int cnt) {
  const double count = policy_count(r);
  return whole ? v_set1((real)(r->total[STAGE_EARLY][SUM_LOG_RATIO] / (count > 0 ? count : 1)))
               : v_sub(log_probability(loss_in(r, 0), i, cnt), log_probability(loss_in(r, OLD), i, cnt));
}
SMI token token_at(const loss_row *r, token_fn *f, const bool whole, size_t i, int cnt) {
  const vreal x = at(loss_in(r, 0), i, cnt), ratio = v_exp(log_ratio_at(r, whole, i, cnt));
  token t = f(r, x, ratio, token_advantage(r, i, cnt));
  t.loss = v_select(v_eq(ratio, ratio), t.loss, ratio);
  if (!loss_has(r, WEIGHT)) return t;
  const vreal weight = at(loss_in(r, WEIGHT), i, cnt);
  t.loss = no_less(weight, t.loss), t.slope = no_less(weight, t.slope);
  return t;
}

/* The estimate of the divergence from the reference, or from `old`, and its derivative, which is 0
 * where an infinite logarithm leaves none. */
typedef struct estimate {
  vreal k, slope;
} estimate;
NOINLINE estimate estimate_at(const loss_row *r, size_t i, int cnt) {
  const vreal x = log_probability(loss_in(r, 0), i, cnt),
              t = v_sub(log_probability(loss_in(r, loss_has(r, REFERENCE) ? REFERENCE : OLD), i, cnt), x);
  if (r->q[ESTIMATOR] == K1) return (estimate){negative(t), one()};
  if (r->q[ESTIMATOR] == K2)
    return (estimate){v_mul(v_mul(t, t), v_set1((real)0.5)),
                      v_select(v_lt(v_abs(t), v_set1(R_INF)), negative(t), zero())};
  const vreal e = v_exp(t), lift = v_sub(e, one()), far = v_select(v_eq(t, v_set1(R_INF)), t, v_sub(lift, t));
  const vmask near = high_near(t);
  const vreal slope = negative(v_select(near, v_mul(t, high_series(t, 1)), lift));
  return (estimate){v_select(near, v_mul(v_mul(t, t), high_series(t, 2)), far),
                    v_select(v_lt(t, v_set1(R_INF)), slope, zero())};
}
SMI bool policy_estimates(const loss_row *r) {
  return r->q[KL_WEIGHT] != 0 || (!r->backward && r->outputs >> KL_MEAN & 1);
}

/* ---- sums ---- */

SMI void policy_count_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  acc[SUM_COUNT] = v_add(acc[SUM_COUNT], v_select(policy_there(r, i, cnt), one(), zero()));
}
SMI void policy_ratio_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const vreal away = log_ratio_at(r, false, i, cnt);
  policy_count_add(r, i, cnt, acc);
  acc[SUM_LOG_RATIO] = v_add(acc[SUM_LOG_RATIO], v_select(policy_there(r, i, cnt), away, zero()));
}
LOSS_SUMS_OF(policy_counted, policy_count_add, 1)
LOSS_SUMS_OF(policy_ratio, policy_ratio_add, 2)

SMI void policy_add(const loss_row *r, token_fn *f, const bool whole, size_t i, int cnt, vreal *acc) {
  const vmask there = policy_there(r, i, cnt);
  token t = token_at(r, f, whole, i, cnt);
  if (policy_estimates(r)) {
    const vreal k = estimate_at(r, i, cnt).k;
    if (r->q[KL_WEIGHT] != 0) t.loss = v_fma(v_set1((real)r->q[KL_WEIGHT]), k, t.loss);
    acc[SUM_KL] = v_add(acc[SUM_KL], v_select(there, k, zero()));
  }
  acc[SUM_TERM] = v_add(acc[SUM_TERM], v_select(there, t.loss, zero()));
  acc[SUM_CLIPPED] = v_add(acc[SUM_CLIPPED], v_select(there, t.limited, zero()));
  if (whole) acc[SUM_SLOPE] = v_add(acc[SUM_SLOPE], v_select(there, t.slope, zero()));
}

/* ---- the loss ---- */

/* What the sum over the tokens is divided by. */
SMI double policy_over(const loss_row *r, double count) {
  const double most = r->q[MAX_LENGTH] > 0 ? r->q[MAX_LENGTH] : (double)r->n,
               over = r->q[OVER] == OVER_TOKENS   ? count
                      : r->q[OVER] == OVER_LENGTH ? most
                                                  : 1;
  return over > 1 ? over : 1;
}
static void policy_finalize(loss_row *r) {
  const double count = policy_count(r), over = policy_over(r, count), some = count > 0 ? count : 1;
  const double *sum = r->total[STAGE_LATE];
  loss_put(r, LOSS, sum[SUM_TERM] / over);
  loss_put_whole(r, TOKENS, (int64_t)count);
  loss_put(r, KL_MEAN, sum[SUM_KL] / some);
  loss_put(r, CLIPPED, sum[SUM_CLIPPED] / some);
  r->coef[C_TERM] = (real)(r->g / over);
  r->coef[C_KL] = (real)(r->g * r->q[KL_WEIGHT] / over);
  r->coef[C_ROW] = (real)(r->g * (sum[SUM_SLOPE] / some / over));
}
static void policy_special(const loss_row *r, bool nan, double none) {
  loss_put_whole(r, TOKENS, -1);
  loss_put(r, KL_MEAN, none);
  loss_put(r, CLIPPED, none);
}
/* by_row: the derivative is that of the row's ratio, the same for every token. A ratio beyond what
 * a real holds has an infinite one; one whose logarithm is infinite has none: 0. */
SMI vreal policy_value(const loss_out *w, token_fn *f, const bool whole, bool by_row, size_t i, int cnt) {
  const loss_row *r = w->r;
  vreal v =
      by_row ? v_set1(w->coef[C_ROW]) : no_less(v_set1(w->coef[C_TERM]), token_at(r, f, whole, i, cnt).slope);
  const vreal worst = v_min(v_abs(log_ratio_at(r, whole, i, cnt)), v_abs(v));
  v = v_select(v_lt(worst, v_set1(R_INF)), v, zero());
  if (w->coef[C_KL] != 0) v = v_add(v, v_mul(v_set1(w->coef[C_KL]), estimate_at(r, i, cnt).slope));
  return v_select(policy_there(r, i, cnt), v, zero());
}

/* whole: one ratio for all tokens, of the mean of their logarithms. */
#define POLICY(name, token_name, early, whole, by_row) \
  SMI void name##_add(const loss_row *r, size_t i, int cnt, vreal *acc) { \
    policy_add(r, token_name, whole, i, cnt, acc); \
  } \
  LOSS_SUMS_OF(name##_late, name##_add, 4) \
  SMI vreal name##_value(const loss_out *w, vreal none, size_t i, int cnt) { \
    return policy_value(w, token_name, whole, by_row, i, cnt); \
  } \
  LOSS_WRITE_OF(name##_out, STUDENT, name##_value) \
  static bool name##_wants(const loss_row *r, int stage) { \
    return stage == STAGE_LATE || (stage == STAGE_EARLY && (whole || loss_has(r, MASK))); \
  } \
  static const loss_body name##_body = {.sums = {[STAGE_EARLY] = early, [STAGE_LATE] = name##_late}, \
                                        .wants = name##_wants, \
                                        .finalize = policy_finalize, \
                                        .special = policy_special, \
                                        .write = {name##_out}, \
                                        .along = 1u | 1u << OLD | 1u << TOKEN_ADVANTAGE | 1u << REFERENCE | \
                                                 1u << MASK | 1u << WEIGHT}; \
  LOSS_KERNEL(name)

/* ---- policy_loss: -a r, with r kept within 1 - low .. 1 + high where that makes it more ---- */

enum { FORM = OWN, LOW, HIGH, DUAL, DETACH };

SMI token token_clipped(const loss_row *r, vreal x, vreal ratio, vreal a) {
  const vmask good = v_lt(zero(), a);
  const vreal least = v_set1((real)(1 - r->q[LOW])), most = v_set1((real)(1 + r->q[HIGH])),
              dual = v_set1((real)r->q[DUAL]);
  const vreal kept = v_select(good, v_min(ratio, most), v_min(v_max(ratio, least), dual));
  const vmask free = v_eq(kept, ratio);
  const vreal loss = negative(no_less(a, kept));
  return (token){loss, v_select(free, loss, zero()), v_select(m_or(free, v_eq(a, zero())), zero(), one())};
}
POLICY(clip_token, token_clipped, policy_counted, false, false)
POLICY(clip_whole, token_clipped, policy_ratio, true, w->r->q[DETACH] == 0)
LOSS_CHOICE(clip, c->params[FORM] != 0, clip_whole, clip_token)

/* ---- soft_gated_policy_loss: -a (4 / t) s(t (r - 1)) ---- */

enum { TAU_POSITIVE = OWN, TAU_NEGATIVE };

SMI token token_gated(const loss_row *r, vreal x, vreal ratio, vreal a) {
  const vreal t =
      v_select(v_lt(zero(), a), v_set1((real)r->q[TAU_POSITIVE]), v_set1((real)r->q[TAU_NEGATIVE]));
  const vreal u = v_mul(t, v_sub(ratio, one())), yes = v_sigmoid(u), no = v_sigmoid(negative(u)),
              four = v_set1(4);
  return (token){negative(no_less(a, v_mul(v_div(four, t), yes))),
                 negative(no_less(a, no_less(v_mul(four, v_mul(yes, no)), ratio))), zero()};
}
POLICY(gated, token_gated, policy_counted, false, false)

/* ---- cispo_loss: -a min(r, most) x, where the ratio is a constant of the gradient ---- */

enum { MOST = OWN };

SMI token token_cispo(const loss_row *r, vreal x, vreal ratio, vreal a) {
  const vreal most = v_set1((real)r->q[MOST]);
  const vreal slope = negative(no_less(a, v_min(ratio, most)));
  return (token){no_less(slope, x), slope, v_select(v_lt(most, ratio), one(), zero())};
}
POLICY(cispo, token_cispo, policy_counted, false, false)

OPERATOR(policy_loss, clip, clip_grad)
OPERATOR(soft_gated_policy_loss, gated, gated_grad)
OPERATOR(cispo_loss, cispo, cispo_grad)
