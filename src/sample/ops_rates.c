/* sample/ops_rates.c - multi_draft_acceptance: how often one of several drafts can stand at best.
 * See ops.c. */
#include "decode.h"
#include "engine/sort.h"

/* a(K) = min over S of 1 + p(S) - q(S)^K, S a prefix of the tokens in the order of p / q, the
 * smallest first. For K = 2 it is the smallest cut of the flow from pairs of drafts to tokens, and
 * 1 + p(S) - q(S)^K is concave in (p(S), q(S)), so that no other set is lower. Tokens
 * with q = 0 only add to p(S) and are left out. The ratios are those of the arithmetic type: where
 * rounding makes them equal, or puts them the wrong way round, what is wrong is of second order.
 * Probabilities are formed from them again, p = (p / q) q. */

enum { RATE_P, RATE_Q }; /* inputs */

/* The ratios, and q with them. False: the row is NaN. */
static bool rate_gather(const span *s, sorted *q) {
  *q = (sorted){
      .x = s->dst[ROOM], .room = s->dst[ROOM_MORE], .with = s->dst[OTHER], .beside = s->dst[OTHER_MORE]};
  for (size_t i = 0; i < s->n; i++) {
    const double a = (double)s->src[RATE_P][i], b = (double)s->src[RATE_Q][i];
    if (!(a >= 0 && a <= (double)R_MAX && b >= 0 && b <= (double)R_MAX)) return false;
    if (b == 0) continue;
    q->with[q->m] = (real)b;
    q->x[q->m++] = a / b < (double)R_MAX ? (real)(a / b) : R_MAX;
  }
  return true;
}

static void rate_rows(row_call *c) {
  const int drafts = (int)c->params[0];
  for (size_t row = 0; row < c->rows; row++) {
    const span s = span_of(c, row);
    sorted v;
    double least = 1, p = 0, q = 0;
    const bool good = rate_gather(&s, &v);
    if (good) sort_by_value(&v);
    for (size_t i = 0; i < v.m && good; i++) {
      double power = 1;
      q += (double)v.with[i], p += (double)v.x[i] * (double)v.with[i];
      for (int k = 0; k < drafts; k++) power *= q;
      if (1 + p - power < least) least = 1 + p - power;
    }
    *s.dst[0] = good ? r_clean(least > 0 ? least : 0) : r_nan();
  }
}

static const row_kernel rate_kernel = WHOLE_ROWS(rate_rows);
FORWARD_OPERATOR(multi_draft_acceptance, rate)
