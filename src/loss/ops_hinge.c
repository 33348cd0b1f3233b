/* loss/ops_hinge.c - the hinge of several classes at once. See ops_elementwise.c.
 *
 *     w_y sum_(j != y) max(0, m + x_j - x_y)^power, over n if asked for; or the largest of these */
#include "choice.h"
#include "elementwise.h"

enum { TARGET = 1 };

enum { HINGE_WEIGHT = 2, HINGE_POWER = 1, HINGE_MARGIN = 2, HINGE_OVER = 3, HINGE_OF = 5 };
enum { SUM_HINGE, SUM_SLOPE };

/* Only whether the row has a NaN or an infinity: the target's x is known after a pass. */
SMI void hinge_special_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal x = at(loss_in(r, 0), i, cnt);
  acc[0] = v_add(acc[0], v_sub(x, x));
}
SMI vreal hinge_over(const loss_row *r, size_t i, int cnt) {
  vreal ahead = v_sub(at(loss_in(r, 0), i, cnt), v_set1((real)r->target_inputs[0]));
  return v_max(v_add(v_set1((real)r->q[HINGE_MARGIN]), ahead), zero());
}
SMI vreal hinge_slope(const loss_row *r, vreal over) {
  return r->q[HINGE_POWER] == 2 ? v_add(over, over) : v_select(v_eq(over, zero()), over, one());
}
SMI void hinge_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  vreal over = loss_at_target(r, v_select(lanes_below(cnt), hinge_over(r, i, cnt), zero()), 0, i);
  acc[SUM_HINGE] = v_add(acc[SUM_HINGE], r->q[HINGE_POWER] == 2 ? v_mul(over, over) : over);
  acc[SUM_SLOPE] = v_add(acc[SUM_SLOPE], hinge_slope(r, over));
}
LOSS_SUMS_OF(hinge_special, hinge_special_add, 1)
LOSS_SUMS_OF(hinge_late, hinge_add, 2)
SMI double hinge_scale(const loss_row *r) {
  const double weight = loss_has(r, HINGE_WEIGHT) ? r->target_inputs[HINGE_WEIGHT] : 1;
  return r->q[HINGE_OVER] != 0 ? weight / (double)r->n : weight;
}
static void hinge_all_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE], scale = hinge_scale(r);
  loss_put(r, LOSS, scale * sum[SUM_HINGE]);
  r->coef[0] = (real)(r->g * scale);
  r->at_target = (real)(-r->g * scale * sum[SUM_SLOPE]);
}
SMI vreal hinge_all_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return loss_hit_target(w, v_mul(hinge_slope(w->r, hinge_over(w->r, i, cnt)), v_set1(w->coef[0])), i);
}

/* The largest: a sum over the other classes, of which only the place of their largest is used. */
SMI score score_rivals(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const int64_t *target = (const int64_t *)(const void *)s->src[TARGET];
  const uint64_t lane = (uint64_t)(*target - (int64_t)(s->origin + i));
  score z = score_logit(s, k, shift, i, cnt);
  if (lane < LANES) z.h = v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(-R_INF), z.h);
  return z;
}
EXP_SCORES(rivals, score_rivals)
LOSS_SIDE(rivals, rivals, false, setup_plain)
static void hinge_largest_finalize(loss_row *r) {
  const exp_row *rivals = &r->side[STUDENT];
  const double ahead = (double)rivals->top + (double)rivals->shift - r->target_inputs[0],
               scale = hinge_scale(r);
  const double over = r->q[HINGE_MARGIN] + ahead > 0 ? r->q[HINGE_MARGIN] + ahead : 0;
  const bool square = r->q[HINGE_POWER] == 2;
  loss_put(r, LOSS, scale * (square ? over * over : over));
  r->coef[0] = (real)(r->g * scale * (square ? 2 * over : over > 0 ? 1 : 0));
  r->at_target = -r->coef[0];
}
SMI vreal hinge_largest_value(const loss_out *w, vreal p, size_t i, int cnt) {
  const loss_row *r = w->r;
  const uint64_t lane = (uint64_t)(r->top[STUDENT] - (int64_t)(r->on[STUDENT].origin + i));
  return loss_hit_target(
      w, lane < LANES ? v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(w->coef[0]), zero()) : zero(), i);
}
LOSS_WRITE_OF(hinge_all_out, STUDENT, hinge_all_value)
LOSS_WRITE_OF(hinge_largest_out, STUDENT, hinge_largest_value)
static const loss_body hinge_all_body = {.sums = {[STAGE_EARLY] = hinge_special, [STAGE_LATE] = hinge_late},
                                         .finalize = hinge_all_finalize,
                                         .write = {hinge_all_out},
                                         .along = 1u | 1u << HINGE_WEIGHT,
                                         .target = TARGET};
LOSS_KERNEL(hinge_all)
static const loss_body hinge_largest_body = {.sums = {[STAGE_EARLY] = hinge_special},
                                             .side = {&rivals_side},
                                             .finalize = hinge_largest_finalize,
                                             .write = {hinge_largest_out},
                                             .along = 1u | 1u << HINGE_WEIGHT,
                                             .target = TARGET,
                                             .target_scores = &logit_scores};
LOSS_KERNEL(hinge_largest)
LOSS_CHOICE(hinge, c->params[HINGE_OF] != 0, hinge_largest, hinge_all)

OPERATOR(multiclass_hinge_loss, hinge, hinge_grad)
