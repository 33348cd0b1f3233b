/* loss/ops_advantage.c - what goes before policy gradients: how much better answers are than others
 * to the same question, and which sources of questions to draw from. See ops.c. Groups are small:
 * everything is plain double, in index order. An element of -inf does not exist. */
#include "engine/sort.h"
#include "spread.h"

/* Rows that need a rule; true when that is done. */
static bool group_special(row_call *c, size_t row, const span *s, bool bad, size_t count) {
  if (!bad && count > 0) return false;
  if (!bad && c->on_empty == SMX_EMPTY_ERROR) {
    if (c->first_empty < 0 && s->n > 0) c->first_empty = (int64_t)row;
    return true;
  }
  fill(s->dst[0], s->n, bad || c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
  return true;
}

enum { BY_DEVIATION, BY_NOTHING }; /* scales */

static double group_scale(const spread *g, double scale, double epsilon) {
  if (scale == BY_NOTHING) return 1;
  return g->deviation > 0 ? 1 / (g->deviation + epsilon) : 0;
}

/* ---- group_advantage: (x - mean) / (deviation + e), or the mean of the others ---- */

enum { BASELINE, GROUP_SCALE, GROUP_EPSILON }; /* parameters */
enum { OF_ALL, OF_OTHERS };                    /* BASELINE */

static void advantage_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) {
    const span s = span_of(c, row);
    const spread g = spread_of(s.src[0], NULL, s.n);
    if (group_special(c, row, &s, g.bad, g.count)) continue;
    const double n = (double)g.count, others = g.count > 1 ? n / (n - 1) : 0, /* x - mean of the others */
        by = group_scale(&g, c->params[GROUP_SCALE], c->params[GROUP_EPSILON]) *
             (c->params[BASELINE] == OF_OTHERS ? others : 1);
    for (size_t i = 0; i < s.n; i++) {
      const double x = (double)s.src[0][i];
      s.dst[0][i] = x > (double)-R_INF ? r_clean((x - g.first - g.mean) * by) : 0;
    }
  }
}

/* ---- quantile_advantage: (x - quantile) / (deviation + e) ---- */

enum { QUANTILE, INTERPOLATION, QUANTILE_SCALE, QUANTILE_EPSILON }; /* parameters */
enum { STEP_UP, LINEAR };                                           /* INTERPOLATION */

/* Of sorted values: the least with a share of at least k at or below it; or between two of them. */
static double quantile_of(const sorted *q, double k, double interpolation) {
  const double n = (double)q->m;
  if (interpolation == LINEAR) {
    const double place = k * (n - 1);
    const size_t low = (size_t)place, high = low + 1 < q->m ? low + 1 : low;
    return (double)q->x[low] + (place - (double)low) * ((double)q->x[high] - (double)q->x[low]);
  }
  size_t at = (size_t)(k * n);
  at = at < q->m ? at : q->m - 1;
  while (at > 0 && (double)at / n >= k) at--;
  while (at + 1 < q->m && (double)(at + 1) / n < k) at++;
  return (double)q->x[at];
}
static void quantile_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) {
    const span s = span_of(c, row);
    const spread g = spread_of(s.src[0], NULL, s.n);
    if (group_special(c, row, &s, g.bad, g.count)) continue;
    sorted q = {.x = s.dst[ROOM], .room = s.dst[ROOM_MORE]};
    for (size_t i = 0; i < s.n; i++)
      if (s.src[0][i] > -R_INF) q.x[q.m++] = s.src[0][i];
    sort_by_value(&q);
    const double base = quantile_of(&q, c->params[QUANTILE], c->params[INTERPOLATION]),
                 by = group_scale(&g, c->params[QUANTILE_SCALE], c->params[QUANTILE_EPSILON]);
    for (size_t i = 0; i < s.n; i++) {
      const double x = (double)s.src[0][i];
      s.dst[0][i] = x > (double)-R_INF ? r_clean((x - base) * by) : 0;
    }
  }
}

/* ---- curriculum_softmax: softmax((x + c sqrt(2 log(N + 1) / (n + 1))) / T), N = sum n ---- */

enum { COUNT = 1 };                /* input */
enum { TEMPERATURE, EXPLORATION }; /* parameters */

/* What a source gets for having been tried little, and how far its score is above another's. */
static double source_bonus(const row_call *c, const span *s, double more, size_t i) {
  return c->params[EXPLORATION] * d_root(more / ((double)s->src[COUNT][i] + 1));
}
static double source_ahead(const row_call *c, const span *s, double more, size_t i, size_t of) {
  return ((double)s->src[0][i] - (double)s->src[0][of]) +
         (source_bonus(c, s, more, i) - source_bonus(c, s, more, of));
}
static void curriculum_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) {
    const span s = span_of(c, row);
    double all = 0, sum = 0;
    size_t count = 0, best = 0;
    bool bad = false;
    for (size_t i = 0; i < s.n; i++) {
      if (s.src[0][i] == -R_INF) continue;
      if (count++ == 0) best = i;
      bad |= !(s.src[0][i] <= R_MAX) || !(s.src[COUNT][i] >= 0 && s.src[COUNT][i] <= R_MAX);
      all += (double)s.src[COUNT][i];
    }
    if (group_special(c, row, &s, bad, count)) continue;
    const double more = 2 * d_log1p(all > 1 ? all : 1), t = c->params[TEMPERATURE];
    for (size_t i = 0; i < s.n; i++)
      if (s.src[0][i] > -R_INF && source_ahead(c, &s, more, i, best) > 0) best = i;
    for (size_t i = 0; i < s.n; i++)
      if (s.src[0][i] > -R_INF) sum += d_exp(source_ahead(c, &s, more, i, best) / t);
    for (size_t i = 0; i < s.n; i++) {
      const bool there = s.src[0][i] > -R_INF;
      s.dst[0][i] = there ? r_clean(d_exp(source_ahead(c, &s, more, i, best) / t) / sum) : 0;
    }
  }
}

static const row_kernel advantage_kernel = WHOLE_ROWS(advantage_rows),
                        quantile_kernel = WHOLE_ROWS(quantile_rows),
                        curriculum_kernel = WHOLE_ROWS(curriculum_rows);
FORWARD_OPERATOR(group_advantage, advantage)
FORWARD_OPERATOR(quantile_advantage, quantile)
FORWARD_OPERATOR(curriculum_softmax, curriculum)
