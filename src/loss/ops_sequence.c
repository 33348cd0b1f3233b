/* loss/ops_sequence.c - sequence_logp: the log-probabilities of an answer's tokens, as one number.
 * See ops.c. */
#include "engine/reduce_map.h"

enum { MASK = 1, LENGTH }; /* inputs */
enum { COUNT = 1 };        /* output */
enum { K_ALPHA };          /* the parameter */

SMI consts sequence_setup(const row_call *c, const span *s) { return (consts){{(real)c->params[0]}}; }
SMI vmask sequence_there(const span *s, size_t i, int cnt) {
  const int64_t *length = (const int64_t *)(const void *)s->src[LENGTH];
  const int64_t left = length ? *length - (int64_t)(s->origin + i) : cnt;
  const vmask in = lanes_below(left < cnt ? left > 0 ? (int)left : 0 : cnt);
  return s->src[MASK] ? m_and(in, v_lt(v_set1(-R_INF), at(s->src[MASK], i, cnt))) : in;
}
SMI void sequence_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                      reduce_map_acc *acc) {
  const vmask there = sequence_there(s, i, cnt);
  const vreal x = at(s->src[0], i, cnt);
  (void)k, (void)r;
  acc->a = v_add(acc->a, v_select(there, x, v_set1(0)));
  acc->b = v_add(acc->b, v_select(there, v_set1(1), v_set1(0)));
  acc->nan = m_or(acc->nan, m_and(there, m_not(v_lt(x, v_set1(R_INF)))));
}
/* count^alpha, or 1 where there is no token. */
SMI double sequence_power(double alpha, double count) {
  return count > 1 && alpha != 0 ? d_exp(alpha * d_log(count, 0)) : 1;
}
static void sequence_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  const bool nan = post != post;
  *s->dst[0] = nan ? r_nan() : r_clean(r->sum / sequence_power((double)k->v[K_ALPHA], r->sum2));
  if (s->dst[COUNT]) *(int64_t *)(void *)s->dst[COUNT] = nan ? -1 : (int64_t)r->sum2;
}
REDUCE_MAP_SUMS_OF(sequence_sums, sequence_add)
static const reduce_map_body sequence_body = {
    .setup = sequence_setup, .sums = sequence_sums, .row = sequence_row, .bounded = true};
REDUCE_MAP_KERNEL(sequence)

SMI vreal sequence_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const double dy = (double)*s->src[SRC_DY] / sequence_power((double)k->v[K_ALPHA], r->sum2);
  return v_clean(v_select(sequence_there(s, i, cnt), v_set1((real)dy), v_set1(0)));
}
REDUCE_MAP_VALUES_OF(sequence_values, sequence_value)
static const reduce_map_body sequence_grad_body = {.setup = sequence_setup,
                                                   .sums = sequence_sums,
                                                   .write = sequence_values,
                                                   .full = 1,
                                                   .bounded = true,
                                                   .gradient = true};
REDUCE_MAP_KERNEL(sequence_grad)

OPERATOR(sequence_logp, sequence, sequence_grad)
