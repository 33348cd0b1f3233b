/* loss/ops_candidates.c - losses over the candidates of one question, whose scores are a row. See
 * ops.c. Rows are short: everything is plain double, in index order, and a candidate of -inf does
 * not exist. */
#include "engine/loops.h"
#include "spread.h"
#include <string.h>

enum { NO_NUMBER = -1, NOTHING, SOMETHING }; /* what a row is */

/* A row that is NaN, or has nothing; true when it is done. */
static bool candidates_special(row_call *c, size_t row, const span *s, int kind, bool backward,
                               uint32_t more) {
  if (kind == SOMETHING) return false;
  const bool nan = kind == NO_NUMBER;
  if (!nan && !backward && c->on_empty == SMX_EMPTY_ERROR) {
    if (c->first_empty < 0 && s->n > 0) c->first_empty = (int64_t)row;
    return true;
  }
  const real none = nan || (!backward && c->on_empty == SMX_EMPTY_NAN) ? r_nan() : 0;
  if (!backward && s->dst[LOSS]) *s->dst[LOSS] = none;
  real *dx = s->dst[backward ? 0 : DX];
  if (dx) fill(dx, s->n, none);
  for (int p = 1; p < SMX_MAX_PORTS; p++)
    if (backward && s->dst[p]) fill(s->dst[p], more >> p & 1 ? 1 : s->n, none);
  return true;
}
/* Where a gradient is formed: dx may be x, which is read until the last element is known. */
static real *gradient_scratch(const span *s) { return s->dst[ROW_DST - 1]; }
/* What the gradient of the loss is multiplied by. */
static double candidates_upstream(const row_call *c, const span *s, bool backward) {
  return backward ? (double)*s->src[SRC_DY] : c->share;
}

/* ---- candidate_ranking_loss ---- */

/* loss = sum_g mean_k max(0, s_(k+g) - s_k + g m) + w mean_k max(0, s_k - gold + m') */

enum { GOLD = 1 };                                           /* input */
enum { RANK_MARGIN, GOLD_MARGIN, GOLD_WEIGHT, PAIRS, GAPS }; /* parameters */
enum { GAP_MEAN, PAIR_SUM };                                 /* PAIRS */
enum { GAPS_MOST = 4096 };

/* A row: how far apart pairs may be, and what each pair at a distance counts. */
typedef struct ranking {
  const real *x;
  size_t n, gaps, count; /* count: of candidates */
  double margin, *each;  /* each: GAPS_MOST + 1 numbers */
} ranking;

static bool there(const ranking *r, size_t i) { return r->x[i] > -R_INF; }
/* By how much the later of a pair is too good; 0 also where one does not exist. */
static double too_good(const ranking *r, size_t better, size_t worse) {
  const double over = (double)r->x[worse] - (double)r->x[better] + r->margin * (double)(worse - better);
  return there(r, better) && there(r, worse) && over > 0 ? over : 0;
}
static void ranking_open(const row_call *c, const span *s, ranking *r) {
  const double *q = c->params;
  r->x = s->src[0], r->n = s->n, r->margin = q[RANK_MARGIN], r->count = 0, r->each = c->work;
  r->gaps = s->n == 0 ? 0 : (double)(s->n - 1) < q[GAPS] ? s->n - 1 : (size_t)q[GAPS];
  for (size_t i = 0; i < s->n; i++) r->count += there(r, i);
  for (size_t g = 1; g <= r->gaps; g++) {
    size_t pairs = s->n - g;
    if (r->count < s->n) pairs = 0;
    for (size_t i = 0; r->count < s->n && i + g < s->n; i++) pairs += there(r, i) && there(r, i + g);
    r->each[g] = q[PAIRS] == PAIR_SUM ? 1 : pairs > 0 ? 1 / (double)pairs : 0;
  }
}
static double ranking_value(const ranking *r) {
  double loss = 0;
  for (size_t g = 1; g <= r->gaps; g++) {
    double sum = 0;
    for (size_t i = 0; i + g < r->n; i++) sum += too_good(r, i, i + g);
    loss += sum * r->each[g];
  }
  return loss;
}
static double ranking_slope(const ranking *r, size_t i) {
  double slope = 0;
  for (size_t g = 1; g <= r->gaps; g++) {
    if (i >= g && too_good(r, i - g, i) > 0) slope += r->each[g];
    if (i + g < r->n && too_good(r, i, i + g) > 0) slope -= r->each[g];
  }
  return slope;
}
/* By how much candidate i is better than the gold answer may be. */
static double beats_gold(const row_call *c, const span *s, size_t i) {
  const double over = (double)s->src[0][i] - (double)*s->src[GOLD] + c->params[GOLD_MARGIN];
  return s->src[0][i] > -R_INF && over > 0 ? over : 0;
}

static void ranking_row(row_call *c, size_t row, bool backward) {
  const span s = span_of(c, row);
  const bool gold = s.src[GOLD] && *s.src[GOLD] != -R_INF;
  bool bad = gold && !(*s.src[GOLD] <= R_MAX);
  for (size_t i = 0; i < s.n; i++) bad |= !(s.src[0][i] <= R_MAX);
  if (candidates_special(c, row, &s, bad ? NO_NUMBER : SOMETHING, backward, 1u << GOLD)) return;
  ranking r;
  ranking_open(c, &s, &r);
  const double by_gold = gold && r.count > 0 ? c->params[GOLD_WEIGHT] / (double)r.count : 0,
               g = candidates_upstream(c, &s, backward);
  double over = 0, ahead = 0;
  for (size_t i = 0; by_gold > 0 && i < s.n; i++)
    over += beats_gold(c, &s, i), ahead += beats_gold(c, &s, i) > 0;
  if (!backward) *s.dst[LOSS] = r_clean(ranking_value(&r) + by_gold * over);
  real *const dx = s.dst[backward ? 0 : DX], *const scratch = gradient_scratch(&s);
  for (size_t i = 0; dx && i < s.n; i++) {
    const double more = by_gold > 0 && beats_gold(c, &s, i) > 0 ? by_gold : 0;
    scratch[i] = r_clean(g * (ranking_slope(&r, i) + more));
  }
  if (dx) memcpy(dx, scratch, s.n * sizeof *dx);
  if (backward && s.dst[GOLD]) *s.dst[GOLD] = r_clean(-g * by_gold * ahead);
}
static void ranking_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) ranking_row(c, row, false);
}
static void ranking_grad_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) ranking_row(c, row, true);
}

/* ---- anchored_preference_loss ---- */

/* loss = -sum_j q_j log p_j + b mean_j (e^d_j - 1 - d_j),  p = softmax((x - anchor) / t),
 * d = anchor - x */

enum { ANCHOR = 1, REWARD, SOFT, TARGET, ENTROPY, SUCCESS };                        /* inputs */
enum { IGNORE, TAU, BETA, KL_WEIGHT, BY_ENTROPY, BY_FAILURE, TAU_LEAST, TAU_MOST }; /* parameters */

/* A row: the temperature, the candidate of the largest score and minus its log p; of the targets
 * that rewards make, a temperature, the largest and the sum. */
typedef struct anchored {
  const span *s;
  int64_t target; /* or -1 */
  size_t best;
  double tau, log, mass, reward_t, reward_top, reward_sum;
} anchored;

static double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static bool candidate(const anchored *a, size_t i) { return a->s->src[0][i] > -R_INF; }
/* How far x is from the anchor; and how far the score is above that of the best. */
static double moved(const anchored *a, size_t i) {
  return (double)a->s->src[0][i] - (double)a->s->src[ANCHOR][i];
}
static double candidate_ahead(const anchored *a, size_t i) {
  const real *x = a->s->src[0], *anchor = a->s->src[ANCHOR];
  const double by = ((double)x[i] - (double)x[a->best]) - ((double)anchor[i] - (double)anchor[a->best]);
  return by / a->tau;
}
static double candidate_log(const anchored *a, size_t i) {
  return candidate(a, i) ? candidate_ahead(a, i) - a->log : (double)-R_INF;
}
static bool rewarded(const anchored *a, size_t i) { return candidate(a, i) && a->s->src[REWARD][i] > -R_INF; }
/* The mass of a candidate. */
static double candidate_mass(const anchored *a, size_t i) {
  const span *s = a->s;
  if (s->src[TARGET]) return (int64_t)i == a->target;
  if (s->src[SOFT]) return (double)s->src[SOFT][i];
  return rewarded(a, i) ? d_exp(((double)s->src[REWARD][i] - a->reward_top) / a->reward_t) / a->reward_sum
                        : 0;
}

/* The temperature: as given, or more where the model is unsure, or sure and wrong. */
static double anchored_tau(const row_call *c, const span *s) {
  const double *q = c->params;
  if (!s->src[ENTROPY] && !s->src[SUCCESS]) return q[TAU];
  const double h = s->src[ENTROPY] ? (double)*s->src[ENTROPY] : 0,
               success = s->src[SUCCESS] ? (double)*s->src[SUCCESS] : 0.5;
  if (h != h || success != success) return (double)r_nan();
  const double unsure = within(h, 0, 1), wrong = 1 - within(success, 0, 1);
  return within(q[TAU] * (1 + q[BY_ENTROPY] * unsure + q[BY_FAILURE] * (1 - unsure) * wrong), q[TAU_LEAST],
                q[TAU_MOST] > q[TAU_LEAST] ? q[TAU_MOST] : q[TAU_LEAST]);
}
/* The masses of rewards: softmax of their deviations from the mean, over beta. False: one is NaN or
 * infinite. */
static bool anchored_rewards(const row_call *c, anchored *a) {
  const real *reward = a->s->src[REWARD];
  const spread g = spread_of(reward, a->s->src[0], a->s->n);
  a->reward_top = g.largest;
  /* equal rewards are equal at any temperature */
  a->reward_t = c->params[BETA] * (g.deviation > 0 ? g.deviation : 1);
  for (size_t i = 0; i < a->s->n && !g.bad; i++)
    if (rewarded(a, i)) a->reward_sum += d_exp(((double)reward[i] - a->reward_top) / a->reward_t);
  return !g.bad;
}
static int anchored_open(const row_call *c, const span *s, anchored *a) {
  *a = (anchored){.s = s, .target = -1, .tau = anchored_tau(c, s)};
  double others = 0;
  if (s->src[TARGET]) a->target = *(const int64_t *)(const void *)s->src[TARGET];
  bool bad = a->tau != a->tau, some = false;
  for (size_t i = 0; i < s->n; i++) {
    bad |= s->src[0][i] != s->src[0][i] || (s->src[SOFT] && s->src[SOFT][i] - s->src[SOFT][i] != 0);
    if (!candidate(a, i)) continue;
    bad |= !(moved(a, i) - moved(a, i) == 0);
    if (!some || candidate_ahead(a, i) > 0) a->best = i;
    some = true;
  }
  if (bad || (s->src[REWARD] && !anchored_rewards(c, a))) return NO_NUMBER;
  if (!some) return NOTHING;
  for (size_t i = 0; i < s->n; i++)
    if (candidate(a, i) && i != a->best) others += d_exp(candidate_ahead(a, i));
  a->log = d_log1p(others);
  for (size_t i = 0; i < s->n; i++) a->mass += candidate_mass(a, i);
  return SOMETHING;
}

/* sum_k d^(k - from) from! / k!, from `from` on. */
static double raised_series(double d, int from) {
  double sum = 1;
  for (int k = 18; k > from; k--) sum = 1 + sum * d / k;
  return sum;
}
/* e^d - 1 - d, and its derivative by -d. */
static double raised(double d) {
  return d > 0.5 || d < -0.5 ? d_exp(d) - 1 - d : d * d / 2 * raised_series(d, 2);
}
static double raised_slope(double d) { return d > 0.5 || d < -0.5 ? 1 - d_exp(d) : -d * raised_series(d, 1); }

#define MOST 3e38

static double anchored_value(const row_call *c, const anchored *a) {
  double loss = 0, kl = 0, count = 0;
  for (size_t i = 0; i < a->s->n; i++) {
    const double mass = candidate_mass(a, i);
    if (mass != 0) loss -= mass * candidate_log(a, i);
    if (!candidate(a, i)) continue;
    count++;
    if (c->params[KL_WEIGHT] > 0) kl += raised(-moved(a, i));
  }
  return loss + (kl > 0 ? c->params[KL_WEIGHT] * kl / count : 0);
}
static void anchored_gradients(const row_call *c, const anchored *a, double g, real *dx, real *dsoft) {
  real *const scratch = gradient_scratch(a->s);
  double count = 0;
  for (size_t i = 0; i < a->s->n; i++) count += candidate(a, i);
  for (size_t i = 0; i < a->s->n; i++) {
    const double log = candidate_log(a, i), p = d_exp(log);
    double v = (a->mass * p - candidate_mass(a, i)) / a->tau;
    if (c->params[KL_WEIGHT] > 0 && candidate(a, i)) {
      const double more = c->params[KL_WEIGHT] / count * raised_slope(-moved(a, i));
      v += more < MOST && more > -MOST ? more : 0; /* in either type */
    }
    scratch[i] = r_clean(g * v);
    if (dsoft) dsoft[i] = candidate(a, i) ? r_clean(-g * log) : 0;
  }
  if (dx) memcpy(dx, scratch, a->s->n * sizeof *dx);
}
static void anchored_row(row_call *c, size_t row, bool backward) {
  const span s = span_of(c, row);
  const bool ignored =
      s.src[TARGET] && *(const int64_t *)(const void *)s.src[TARGET] == (int64_t)c->params[IGNORE];
  real *const dx = s.dst[backward ? 0 : DX], *const dsoft = backward ? s.dst[SOFT] : NULL;
  anchored a;
  if (ignored) {
    if (!backward) *s.dst[LOSS] = 0;
    if (dx) fill(dx, s.n, 0);
    return;
  }
  if (candidates_special(c, row, &s, anchored_open(c, &s, &a), backward, 0)) return;
  if (!backward) *s.dst[LOSS] = r_clean(anchored_value(c, &a));
  if (dx || dsoft) anchored_gradients(c, &a, candidates_upstream(c, &s, backward), dx, dsoft);
}
static void anchored_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) anchored_row(c, row, false);
}
static void anchored_grad_rows(row_call *c) {
  for (size_t row = 0; row < c->rows; row++) anchored_row(c, row, true);
}

static const row_kernel ranking_kernel = WHOLE_ROWS(ranking_rows),
                        ranking_grad_kernel = WHOLE_ROWS(ranking_grad_rows),
                        anchored_kernel = WHOLE_ROWS(anchored_rows),
                        anchored_grad_kernel = WHOLE_ROWS(anchored_grad_rows);
OPERATOR_WITH(candidate_ranking_loss, ranking, ranking_grad, 0, (GAPS_MOST + 1) * sizeof(double))
OPERATOR(anchored_preference_loss, anchored, anchored_grad)
