/* loss/ops_normalised.c - cross-entropy of other normalisers than softmax: softmax_n,
 * sparse_softmax, and weights f(x) / sum f, which are softmax of log f. See ops.c. */
#include "engine/taylor.h"
#include "scalars.h"
#include "short.h"
#include "teacher_topk.h"

enum { TARGET = 1 };

static bool normalised_terms_only(const loss_row *r) { return true; }
LOSS_SIDE(normalised, logit, false, setup_plain)

/* The gradient of -log y of the target, whose share is `rest` less than 1; the gradient of the
 * others is the weight of the side times `each`. */
SMI void normalised_finalize(loss_row *r, double loss, double each, double rest) {
  loss_put(r, LOSS, loss);
  r->coef[0] = (real)(r->g * each);
  r->at_target = (real)(-r->g * rest);
}

/* ---- softmax_n_loss: log(n + sum e^x) - x_t ----
 *
 * With p the weights of softmax and t = log n - lse, what n adds to the loss is softplus(t), and
 * the weights are p s, s = 1 / (1 + e^t): 1 - p_t s = (1 - p_t) s + (1 - s). */

enum { SN_N = 1 };

static void softmax_n_finalize(loss_row *r) {
  const loss_hit hit = loss_hit_of(r, STUDENT);
  const double n = r->q[SN_N], away = n > 0 ? d_log(n, 0) - loss_lse(r, STUDENT) : -(double)__builtin_inf(),
               share = 1 / (1 + d_exp(away)), none = away > 0 ? 1 - share : d_exp(away) * share;
  normalised_finalize(r, d_softplus(away) - hit.log_p, share, hit.q * share + none);
}
static const loss_body softmax_n_loss_body = {.side = {&normalised_side},
                                              .small = loss_short,
                                              .brief = normalised_terms_only,
                                              .terms_only = normalised_terms_only,
                                              .finalize = softmax_n_finalize,
                                              .write = {logit_out},
                                              .along = 1u,
                                              .target = TARGET};
LOSS_KERNEL(softmax_n_loss)

/* ---- sparse_softmax_loss: log of the sum of e^x over the k largest, less x_t ---- */

enum { SPARSE_K = 1 };

static void largest_begin(const row_call *c, row_state *st) {
  const double k = c->params[SPARSE_K];
  radix_begin(st, k < (double)c->n ? (uint64_t)k : c->n);
}
static const loss_before largest_before = {largest_begin, radix_pass, teacher_topk_count_next};

/* A class that is left out has the score -inf. A NaN or +inf still makes the row NaN. */
SMI score score_largest(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const double *head = (const double *)(const void *)s->src[SRC_SUMS] + STAGE_EARLY * ROW_SUMS;
  const vreal x = at(s->src[0], i, cnt);
  const vmask in = m_or(teacher_topk_has(head, s->origin + i, x), m_not(v_lt(x, v_set1(R_INF))));
  return (score){loss_shifted(v_select(in, x, v_set1(-R_INF)), shift), v_set1(0)};
}
EXP_SCORES(largest, score_largest)
LOSS_SIDE(largest, largest, false, setup_plain)

static void sparse_softmax_finalize(loss_row *r) {
  const loss_hit hit = loss_hit_of(r, STUDENT);
  const double *head = r->total[STAGE_EARLY], x = r->target_inputs[0], value = head[TEACHER_TOPK_VALUE];
  const bool in = x > value || (x == value && (double)r->target <= head[TEACHER_TOPK_LIMIT]);
  normalised_finalize(r, -hit.log_p, 1, in ? hit.q : 1);
}
static const loss_body sparse_softmax_loss_body = {.side = {&largest_side},
                                                   .before = &largest_before,
                                                   .terms_only = normalised_terms_only,
                                                   .finalize = sparse_softmax_finalize,
                                                   .write = {loss_plain_out},
                                                   .along = 1u,
                                                   .target = TARGET,
                                                   .target_scores = &logit_scores};
LOSS_KERNEL(sparse_softmax_loss)

/* ---- stablemax_loss, taylor_softmax_loss: softmax of log f; dx_j = (y_j - [j = t]) f' / f ---- */

static void ratio_loss_finalize(loss_row *r) {
  const loss_hit hit = loss_hit_of(r, STUDENT);
  normalised_finalize(r, -hit.log_p, 1, hit.q);
}
/* Infinities and NaN are passed on as scores. */
SMI score ratio_score(vreal x, vreal z, const real *shift) {
  return (score){loss_shifted(v_select(v_lt(v_abs(x), v_set1(R_INF)), z, x), shift), v_set1(0)};
}

#define RATIO_LOSS(name, setup_name, slope) \
  EXP_SCORES(name, score_##name) \
  LOSS_SIDE(name, name, false, setup_name) \
  SMI vreal name##_value(const loss_out *w, vreal p, size_t i, int cnt) { \
    const vreal v = loss_hit_target(w, v_mul(p, v_set1(w->coef[0])), i), x = at(loss_in(w->r, 0), i, cnt); \
    return v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), v_mul(v, slope)); \
  } \
  LOSS_WRITE_OF(name##_out, STUDENT, name##_value) \
  static const loss_body name##_loss_body = {.side = {&name##_side}, \
                                             .finalize = ratio_loss_finalize, \
                                             .write = {name##_out}, \
                                             .along = 1u, \
                                             .target = TARGET}; \
  LOSS_KERNEL(name##_loss)

/* log s = log1p(x) for x >= 0 and -log1p(-x) below; s' / s = 1 / (1 + |x|). */
SMI score score_stablemax(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const vreal x = at(s->src[0], i, cnt);
  return ratio_score(x, v_copysign(v_log1p_pos(v_abs(x)), x), shift);
}
RATIO_LOSS(stablemax, setup_plain, v_div(v_set1(1), v_add(v_set1(1), v_abs(x))))

/* f = t^-r prod_j ((x t - a_j t)^2 + b_j t^2) / r! with t = 1 up to |x| = 1, and 1 / x beyond,
 * where no square leaves the range. */
enum { TAYLOR_ORDER = 1 };
typedef struct taylor_at {
  vreal t, u, size; /* u = x t; size: the larger of |x| and 1 */
} taylor_at;
SMI taylor_at taylor_of(vreal x) {
  const vreal one = v_set1(1);
  const vmask far = v_lt(one, v_abs(x));
  return (taylor_at){v_select(far, v_div(one, x), one), v_select(far, one, x),
                     v_select(far, v_min(v_abs(x), v_set1(R_MAX)), one)};
}
SMI vreal taylor_away(const taylor_at *w, const double *root) {
  return v_fnma(v_set1((real)root[0]), w->t, w->u);
}
SMI vreal taylor_factor(const taylor_at *w, vreal away, const double *root) {
  return v_fma(away, away, v_mul(v_mul(w->t, w->t), v_set1((real)root[1])));
}
SMI consts taylor_setup(const row_call *c, const span *s) {
  static const double inverse[TAYLOR_FACTORS_MOST] = {1.0 / 2, 1.0 / 24, 1.0 / 720, 1.0 / 40320};
  const int factors = (int)c->params[TAYLOR_ORDER] / 2;
  return (consts){{(real)factors, (real)inverse[factors - 1]}};
}
SMI score score_taylor(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const vreal x = at(s->src[0], i, cnt);
  const taylor_at w = taylor_of(x);
  const int factors = (int)k->v[0];
  vreal f = v_set1(k->v[1]);
  for (int j = 0; j < factors; j++) {
    const double *root = taylor_roots[factors - 1][j];
    f = v_mul(f, taylor_factor(&w, taylor_away(&w, root), root));
  }
  const vreal z =
      v_fma(v_log_scaled(w.size, v_set1(0)), v_set1((real)(2 * factors)), v_log_scaled(f, v_set1(0)));
  return ratio_score(x, z, shift);
}
/* f' / f = sum_j 2 (x - a_j) / ((x - a_j)^2 + b_j) */
SMI vreal taylor_slope(const loss_row *r, vreal x) {
  const taylor_at w = taylor_of(x);
  const int factors = (int)r->q[TAYLOR_ORDER] / 2;
  vreal sum = v_set1(0);
  for (int j = 0; j < factors; j++) {
    const double *root = taylor_roots[factors - 1][j];
    const vreal away = taylor_away(&w, root);
    sum = v_add(sum, v_div(away, taylor_factor(&w, away, root)));
  }
  return v_mul(v_mul(sum, v_set1(2)), w.t);
}
RATIO_LOSS(taylor, taylor_setup, taylor_slope(w->r, x))

OPERATOR(softmax_n_loss, softmax_n_loss, softmax_n_loss_grad)
OPERATOR_WITH(sparse_softmax_loss, sparse_softmax_loss, sparse_softmax_loss_grad, ROW_LIST, 0)
OPERATOR(stablemax_loss, stablemax_loss, stablemax_loss_grad)
OPERATOR(taylor_softmax_loss, taylor_loss, taylor_loss_grad)
