/* row/ops_possibility.c - prob_to_possibility: sums over the elements that are not larger, from a
 * row that is sorted. See ops.c.
 *
 *     antipignistic     y_i = sum_j min(x_i, x_j) = sum_(x_j <= x_i) x_j + x_i #{j : x_j > x_i}
 *     min_specificity   y_i = sum_(x_j <= x_i) x_j
 *
 * The values are sorted by a radix sort, their running sums taken from the smallest on in double,
 * and each element looks its own place up. This needs the whole row, and room for it: the kernels
 * have no row program (engine/program.h). */
#include "engine/sort.h"

enum { ANTIPIGNISTIC, MIN_SPECIFICITY }; /* parameter 0 */

/* The number of sorted values that are at most x, or below it. */
static size_t count_up_to(const sorted *q, real x, bool equal) {
  size_t low = 0, high = q->m;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (q->x[middle] < x || (equal && q->x[middle] == x)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Sorts the row's valid elements; false, with all outputs written, when the row needs a rule. */
static bool gather(row_call *c, size_t row, const span *s, bool backward, sorted *q) {
  bool nan = false;
  *q = (sorted){.x = s->dst[ROOM], .room = s->dst[ROOM_MORE]};
  if (backward) q->with = s->dst[OTHER], q->beside = s->dst[OTHER_MORE];
  for (size_t i = 0; i < s->n; i++) {
    real x = s->src[0][i];
    nan |= x != x;
    if (!(x > -R_INF)) continue;
    if (backward) q->with[q->m] = s->src[SRC_DY][i];
    q->x[q->m++] = x;
  }
  if (!nan && q->m > 0) return true;
  if (!nan && !backward && c->on_empty == SMX_EMPTY_ERROR) {
    if (c->first_empty < 0 && s->n > 0) c->first_empty = (int64_t)row;
    return false;
  }
  fill(s->dst[0], s->n, nan || (!backward && c->on_empty == SMX_EMPTY_NAN) ? r_nan() : 0);
  return false;
}

static void possibility_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) {
    const span s = span_of(c, row);
    sorted q;
    if (!gather(c, row, &s, false, &q)) continue;
    sort_by_value(&q);
    double sum = 0;
    for (size_t i = 0; i < q.m; i++) q.room[i] = (real)(sum += (double)q.x[i]);
    for (size_t i = 0; i < s.n; i++) {
      real x = s.src[0][i];
      size_t below = count_up_to(&q, x, true);
      double y = below > 0 ? (double)q.room[below - 1] : 0;
      if (c->params[0] == ANTIPIGNISTIC && below < q.m) y += (double)x * (double)(q.m - below);
      s.dst[0][i] = below > 0 ? r_clean(y) : 0;
    }
  }
}

/* antipignistic:    dx_i = dy_i #{x_j >= x_i} + sum_(x_j > x_i) dy_j
 * min_specificity:  dx_i = sum_(x_j >= x_i) dy_j
 * The sums run from the largest. */
static void possibility_grad_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) {
    const span s = span_of(c, row);
    sorted q;
    if (!gather(c, row, &s, true, &q)) continue;
    sort_by_value(&q);
    double sum = 0;
    for (size_t i = q.m; i-- > 0;) q.room[i] = (real)(sum += (double)q.with[i]);
    for (size_t i = 0; i < s.n; i++) {
      const bool anti = c->params[0] == ANTIPIGNISTIC;
      real x = s.src[0][i];
      size_t from = count_up_to(&q, x, anti);
      double dx = from < q.m ? (double)q.room[from] : 0;
      if (anti) dx += (double)s.src[SRC_DY][i] * (double)(q.m - count_up_to(&q, x, false));
      s.dst[0][i] = x > -R_INF ? r_clean(dx) : 0;
    }
  }
}

static const row_kernel possibility_kernel = WHOLE_ROWS(possibility_rows),
                        possibility_grad_kernel = WHOLE_ROWS(possibility_grad_rows);
OPERATOR(prob_to_possibility, possibility, possibility_grad)
