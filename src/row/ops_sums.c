/* row/ops_sums.c - operators that make one number of a row of scores, and the running logsumexp.
 * See ops.c. */
#include "engine/exp_half.h"
#include "engine/exp_loops.h"
#include "engine/lse_short.h"
#include "engine/logcumsumexp.h"
#include "engine/scores.h"

/* ---- logsumexp and its kin: max + log1p(others / largest) ---- */

SMI double lme_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  return r->max + (r->log1p - d_log1p((double)n - 1));
}
SMI double mellow_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  return (lse_of(r) - d_log1p((double)n - 1)) / ((double)k->v[0] + (double)k->v[1]);
}
/* Next to 0 the mean has all digits, and an omega of 0 none. */
SMI consts omega_setup(const row_call *c, const span *s) {
  const double omega = c->params[0], least = omega < 0 ? -1e-30 : 1e-30;
  return factor(omega < 1e-30 && omega > -1e-30 ? least : omega);
}
static const exp_body logsumexp_body = {LSE_BODY(lse_scalar), .small = lse_short_scalars};
#if SMX_REAL == 32
static const exp_body lse_f16_body = {LSE_BODY_OF(f16, lse_scalar)},
                      lse_bf16_body = {LSE_BODY_OF(bf16, lse_scalar)};
EXP_KERNEL(lse_f16)
EXP_KERNEL(lse_bf16)
#endif
static const row_forms logsumexp_forms = {.widened = ROW_HALF_LOG,
                                          HALF_KERNELS(lse_f16_kernel, lse_bf16_kernel)};
static const row_kernel logsumexp_kernel = {
    .engine = &exp_engine, .body = &logsumexp_body, .forms = &logsumexp_forms};
static const exp_body logmeanexp_body = {LSE_BODY(lme_scalar), .small = lse_short_scalars};
EXP_KERNEL(logmeanexp)
static const exp_body mellowmax_body = {.setup = omega_setup,
                                        .scaled = true,
                                        .scores = &scaled_scores,
                                        .kind = EXP_SCALAR,
                                        .sum_without_max = true,
                                        .scalar = mellow_scalar,
                                        .empty = -R_INF,
                                        .inf = R_INF};
EXP_KERNEL(mellowmax)

/* ---- softmax_collapse_rate ----
 *
 * 1 where sum e^(x - max), rounded to p bits, is 1: where the others add up to at most 2^-p */

SMI consts collapse_setup(const row_call *c, const span *s) {
  /* as precisions in table.c */
  static const real half_ulp[] = {(real)0x1p-11, (real)0x1p-8, (real)0x1p-24, (real)0x1p-53};
  return (consts){{half_ulp[(int)c->params[0]]}};
}
SMI double collapse_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  return r->sum_without_max <= (double)k->v[0];
}
static const exp_body collapse_body = {.setup = collapse_setup,
                                       .scores = &plain_scores,
                                       .small = lse_short_scalars,
                                       .kind = EXP_SCALAR,
                                       .sum_without_max = true,
                                       .scalar = collapse_scalar,
                                       .inf = 1};
EXP_KERNEL(collapse)

/* dx = dy softmax(score), from x again: as accurate as softmax, whatever the size of lse. */
SMI vreal times_upstream(vreal p, const exp_write *w) {
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), v_mul(p, v_set1(w->s->src[SRC_DY][0]))));
}
SMI vreal lse_grad_value(const exp_write *w, size_t i, int cnt) {
  return times_upstream(exp_weight_again(w, score_plain, false, i, cnt), w);
}
SMI vreal mellowmax_grad_value(const exp_write *w, size_t i, int cnt) {
  return times_upstream(exp_weight_at(w, i), w);
}
EXP_WRITE_FUSED(lse_grad_out, lse_grad_value)
EXP_WRITE(mellowmax_grad_out, mellowmax_grad_value)
static const exp_body lse_grad_body = {
    .setup = setup_plain, .scores = &plain_scores, .write = lse_grad_out, .gradient = true, .mass = true};
EXP_KERNEL(lse_grad)
static const exp_body mellowmax_grad_body = {.setup = omega_setup,
                                             .scaled = true,
                                             .scores = &scaled_scores,
                                             .write = mellowmax_grad_out,
                                             .gradient = true,
                                             .mass = true};
EXP_KERNEL(mellowmax_grad)

/* ---- boltzmann_operator: y = top_x + sum (x_i - top_x) e_i / S ---- */

SMI consts alpha_setup(const row_call *c, const span *s) {
  double a = s->src[1] ? (double)*s->src[1] : c->params[0];
  consts k = factor(a);
  k.v[3] = (real)a;
  return k;
}
SMI vreal boltzmann_square(const exp_sum *w, vreal e, size_t i, int cnt) {
  vreal away = moment_away(w, e, i, cnt);
  return v_mul(away, away);
}
EXP_MOMENT(boltzmann_moment, moment_away)
EXP_MOMENT(boltzmann_spread, boltzmann_square)
SMI double boltzmann_scalar(const span *s, const consts *k, const exp_row *r, size_t n) {
  return r->top_x + r->moment;
}
static const exp_body boltzmann_operator_body = {.setup = alpha_setup,
                                                 .scaled = true,
                                                 .scores = &scaled_scores,
                                                 .kind = EXP_SCALAR,
                                                 .sum_without_max = true,
                                                 .scalar = boltzmann_scalar,
                                                 .moment = boltzmann_moment,
                                                 .inf = R_INF};
EXP_KERNEL(boltzmann_operator)

/* dx_i = dy p_i (1 + alpha (x_i - y)), dalpha = dy sum p_i (x_i - y)^2 */
SMI vreal boltzmann_grad_value(const exp_write *w, size_t i, int cnt) {
  vreal p = exp_weight_at(w, i), dy = v_set1(w->s->src[SRC_DY][0]);
  vreal away = v_sub(v_sub(at(w->s->src[0], i, cnt), v_set1((real)w->r->top_x)), v_set1((real)w->r->moment));
  vreal dx = v_mul(v_mul(p, dy), v_fma(v_set1(w->k->v[3]), away, v_set1(1)));
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), dx));
}
EXP_WRITE(boltzmann_grad_out, boltzmann_grad_value)
SMI void boltzmann_row(const span *s, const consts *k, const exp_row *r) {
  if (s->dst[1]) s->dst[1][0] = r_clean((double)s->src[SRC_DY][0] * r->spread);
}
static const exp_body boltzmann_grad_body = {.setup = alpha_setup,
                                             .scaled = true,
                                             .scores = &scaled_scores,
                                             .write = boltzmann_grad_out,
                                             .sum_without_max = true,
                                             .moment = boltzmann_moment,
                                             .spread = boltzmann_spread,
                                             .row = boltzmann_row,
                                             .gradient = true};
EXP_KERNEL(boltzmann_grad)

/* ---- logcumsumexp: engine/logcumsumexp.h ---- */

static const row_kernel logcumsumexp_kernel = {.engine = &logcumsumexp_engine, .body = &(const bool){false}};
static const row_kernel logcumsumexp_grad_kernel = {.engine = &logcumsumexp_engine,
                                                    .body = &(const bool){true}};

OPERATOR(logsumexp, logsumexp, lse_grad)
OPERATOR(logmeanexp, logmeanexp, lse_grad)
OPERATOR(mellowmax, mellowmax, mellowmax_grad)
FORWARD_OPERATOR(softmax_collapse_rate, collapse)
OPERATOR(boltzmann_operator, boltzmann_operator, boltzmann_grad)
OPERATOR(logcumsumexp, logcumsumexp, logcumsumexp_grad)
