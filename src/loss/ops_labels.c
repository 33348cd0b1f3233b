/* loss/ops_labels.c - soft targets made of other inputs: mixtures, teachers' weights, votes, scores
 * with a spread. They are inputs of the losses with soft targets and have no gradients. See ops.c;
 * ops_ranks.c has those that depend on an order. */
#include "engine/normal.h"
#include "engine/reduce_map.h"
#include "engine/scores.h"

SMI vmask no_number(vreal x) { return m_not(v_lt(v_abs(x), v_set1(R_INF))); }

/* ---- labels_mix ----
 *
 * l phi(a; m) + (1 - l) phi(b; m'), phi(t; m) = m t + e (1 - t), e = (1 - m) / (n - 1) */

enum { OTHER = 1, SHARE = 2 };
enum { MIX_SHARE, MIX_KEEP, MIX_KEEP_OTHER };
enum { K_SHARE, K_REST, K_KEEP, K_EACH, K_KEEP_OTHER, K_EACH_OTHER };

SMI consts mix_setup(const row_call *c, const span *s) {
  const double share = s->src[SHARE] ? (double)*s->src[SHARE] : c->params[MIX_SHARE],
               others = (double)c->n - 1;
  const bool alone = c->n < 2, good = share >= 0 && share <= 1;
  const double keep = alone ? 1 : c->params[MIX_KEEP], keep_other = alone ? 1 : c->params[MIX_KEEP_OTHER];
  return (consts){{good ? (real)share : r_nan(), (real)(1 - share), (real)keep,
                   alone ? 0 : (real)((1 - keep) / others), (real)keep_other,
                   alone ? 0 : (real)((1 - keep_other) / others)}};
}
SMI vreal mix_other(const span *s, size_t i, int cnt) {
  return at(s->src[s->src[OTHER] ? OTHER : 0], i, cnt);
}
SMI void mix_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                 reduce_map_acc *acc) {
  vmask bad = m_or(no_number(at(s->src[0], i, cnt)), no_number(mix_other(s, i, cnt)));
  acc->nan = m_or(acc->nan, m_or(bad, no_number(v_set1(k->v[K_SHARE]))));
}
SMI vreal mix_phi(vreal t, real keep, real each) {
  return v_fma(t, v_set1(keep), v_mul(v_sub(v_set1(1), t), v_set1(each)));
}
SMI vreal mix_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal a = mix_phi(at(s->src[0], i, cnt), k->v[K_KEEP], k->v[K_EACH]);
  vreal b = mix_phi(mix_other(s, i, cnt), k->v[K_KEEP_OTHER], k->v[K_EACH_OTHER]);
  return v_clean(v_fma(a, v_set1(k->v[K_SHARE]), v_mul(b, v_set1(k->v[K_REST]))));
}
REDUCE_MAP_SUMS_OF(mix_check, mix_add)
REDUCE_MAP_VALUES_OF(mix_out, mix_value)
static const reduce_map_body mix_body = {.setup = mix_setup, .sums = mix_check, .write = mix_out, .full = 1};
REDUCE_MAP_KERNEL(mix)

/* ---- labels_ensemble: (1 - 1 / k) before + softmax(x / T) / k ---- */

enum { BEFORE = 1, ENSEMBLE_T = 0, ENSEMBLE_COUNT = 1 };
enum { K_BEFORE = 3, K_NEW = 4 }; /* after those of score_scaled */

SMI consts ensemble_setup(const row_call *c, const span *s) {
  consts k = factor(1 / c->params[ENSEMBLE_T]);
  const double share = c->inputs >> BEFORE & 1 ? 1 / c->params[ENSEMBLE_COUNT] : 1;
  k.v[K_BEFORE] = (real)(1 - share), k.v[K_NEW] = (real)share;
  return k;
}
/* A NaN or an infinity in the inputs before makes the row NaN. */
SMI score score_ensemble(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  score z = score_scaled(s, k, shift, i, cnt);
  if (s->src[BEFORE]) z.h = v_select(no_number(at(s->src[BEFORE], i, cnt)), v_set1(r_nan()), z.h);
  return z;
}
SMI vreal ensemble_joined(const span *s, const consts *k, vreal p, size_t i, int cnt) {
  vreal mine = v_mul(p, v_set1(k->v[K_NEW]));
  return v_clean(s->src[BEFORE] ? v_fma(at(s->src[BEFORE], i, cnt), v_set1(k->v[K_BEFORE]), mine) : mine);
}
EXP_SCORES_LOW(ensemble, score_ensemble)
SMI vreal ensemble_value(const exp_write *w, size_t i, int cnt) {
  return ensemble_joined(w->s, w->k, exp_weight_at(w, i), i, cnt);
}
EXP_WRITE(ensemble_out, ensemble_value)
/* Where +inf takes all: the same with the shares. */
static void ensemble_shared(const span *s, const consts *k, size_t i, size_t n) {
  for (size_t j = i; j < i + n; j += LANES) {
    int cnt = lanes_left(i + n - j);
    put(s->dst[0], j, cnt, ensemble_joined(s, k, at(s->dst[0], j, cnt), j, cnt));
  }
}
static const exp_body ensemble_body = {.setup = ensemble_setup,
                                       .scores = &ensemble_scores,
                                       .write = ensemble_out,
                                       .shared = ensemble_shared,
                                       .kind = EXP_MAP,
                                       .scaled = true};
EXP_KERNEL(ensemble)

/* ---- labels_adapt ----
 *
 * by the teacher's confidence max x nothing, (1 - e) [j = y] + e / (n - 1) [j != y], or x itself */

enum { ADAPT_TARGET = 1, ADAPT_WEIGHT = 1 };
enum { ADAPT_IGNORE, ADAPT_LOW, ADAPT_MIDDLE, ADAPT_HIGH, ADAPT_SMOOTHING };
enum { K_LOW, K_MIDDLE, K_HIGH, K_OWN, K_OTHERS, K_IGNORED };

SMI consts adapt_setup(const row_call *c, const span *s) {
  const double *q = c->params, e = c->n > 1 ? q[ADAPT_SMOOTHING] : 0;
  const int64_t *target = (const int64_t *)(const void *)s->src[ADAPT_TARGET];
  return (consts){{(real)q[ADAPT_LOW], (real)q[ADAPT_MIDDLE], (real)q[ADAPT_HIGH], (real)(1 - e),
                   c->n > 1 ? (real)(e / ((double)c->n - 1)) : 0, *target == (int64_t)q[ADAPT_IGNORE]}};
}
SMI bool adapt_drops(const consts *k, const reduce_map_row *r) {
  return k->v[K_IGNORED] != 0 || r->max < k->v[K_LOW] || r->max > k->v[K_HIGH];
}
SMI vreal adapt_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const uint64_t lane =
      (uint64_t)(*(const int64_t *)(const void *)s->src[ADAPT_TARGET] - (int64_t)(s->origin + i));
  vreal x = at(s->src[0], i, cnt), own = v_set1(k->v[K_OTHERS]);
  if (adapt_drops(k, r)) return v_set1(0);
  if (lane < LANES) own = v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(k->v[K_OWN]), own);
  return v_clean(r->max > k->v[K_MIDDLE] ? v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), x) : own);
}
static void adapt_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[ADAPT_WEIGHT]) *s->dst[ADAPT_WEIGHT] = post != post ? r_nan() : adapt_drops(k, r) ? 0 : 1;
}
REDUCE_MAP_VALUES_OF(adapt_out, adapt_value)
static const reduce_map_body adapt_body = {
    .setup = adapt_setup, .write = adapt_out, .row = adapt_row, .full = 1, .max = true};
REDUCE_MAP_KERNEL(adapt)

/* ---- labels_score_distribution: max(0, a r_j / sum r + b), r_j the density at level x_j, a and b
 * such that the sum is 1 and the mean is mu ----
 *
 * With D = sum (x - mu) r / sum r and c the mean of the levels: a = (mu - c) / (D + mu - c),
 * b = D / (D + mu - c) / n. Where the deviation is too small for the levels, or a would be 1000 or
 * more, max(0, 1 - |x - mu| / gap): two neighbours share it. */

enum { SCORE_MEAN = 1, SCORE_DEVIATION = 2, OUT_MEAN = 1 };
enum { SCORE_DENSITY, SCORE_GAP, SCORE_LEAST };
enum { SCORE_MOST = 1000 }; /* beyond this a is too large to be a correction */
enum { K_MEAN, K_DEVIATION, K_GAP, K_CDF, K_A, K_B, K_SPLIT };

SMI consts score_setup(const row_call *c, const span *s) {
  const real mean = *s->src[SCORE_MEAN], deviation = *s->src[SCORE_DEVIATION];
  const bool good = mean - mean == 0 && deviation >= 0 && deviation < R_INF;
  return (consts){{good ? mean : r_nan(), deviation, (real)c->params[SCORE_GAP],
                   (real)c->params[SCORE_DENSITY], 0, 0, deviation < (real)c->params[SCORE_LEAST]}};
}
SMI double d_abs(double x) { return x < 0 ? -x : x; }
/* The number of deviations by which a level is above the mean; and its density, up to a factor. */
SMI vreal score_away(const span *s, const consts *k, size_t i, int cnt, real by) {
  vreal x = v_sub(at(s->src[0], i, cnt), v_set1(k->v[K_MEAN]));
  return v_div(v_add(x, v_set1(by)), v_set1(k->v[K_DEVIATION]));
}
SMI vreal score_density(const span *s, const consts *k, size_t i, int cnt) {
  if (k->v[K_CDF] == 0) {
    vreal z = score_away(s, k, i, cnt, 0);
    return v_exp(v_mul(v_mul(z, z), v_set1((real)-0.5)));
  }
  const real half = (real)0.5 * k->v[K_GAP];
  vreal from = score_away(s, k, i, cnt, -half), to = score_away(s, k, i, cnt, half);
  const normal_at low = normal_of_z(from), high = normal_of_z(to);
  /* on the side where both are small */
  return v_select(v_lt(v_set1(0), from), v_sub(low.q, high.q), v_sub(high.p, low.p));
}
SMI void score_means(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                     reduce_map_acc *acc) {
  vreal x = at(s->src[0], i, cnt), near = v_abs(score_away(s, k, i, cnt, 0));
  acc->nan = m_or(acc->nan, m_or(no_number(x), no_number(v_set1(k->v[K_MEAN]))));
  acc->a = v_add(acc->a, x);
  vmask mine = m_and(m_not(v_lt(v_set1(10), near)), lanes_below(cnt));
  acc->b = v_add(acc->b, v_select(m_and(mine, v_eq(near, near)), v_set1(1), v_set1(0)));
}
SMI void score_more(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                    reduce_map_acc *acc) {
  if (k->v[K_SPLIT] != 0) return;
  vreal density = v_select(lanes_below(cnt), score_density(s, k, i, cnt), v_set1(0));
  acc->a = v_add(acc->a, density);
  acc->b = v_fma(v_sub(at(s->src[0], i, cnt), v_set1(k->v[K_MEAN])), density, acc->b);
}
static void score_finalize(consts *k, const span *s, const reduce_map_row *r) {
  const double n = (double)s->n, away = (double)k->v[K_MEAN] - r->sum / n; /* mu - c */
  if (!(r->sum2 > 0)) k->v[K_SPLIT] = 1;
  if (k->v[K_SPLIT] != 0 || !(r->more > 0)) return;
  const double d = r->more2 / r->more, all = d + away;
  const bool even = away == 0;
  if (!even && !(d_abs(away) < SCORE_MOST * d_abs(all))) k->v[K_SPLIT] = 1;
  k->v[K_A] = (real)((even ? 1 : away / all) / r->more);
  k->v[K_B] = (real)(even ? 0 : d / all / n);
}
SMI vreal score_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), zero = v_set1(0), y;
  if (k->v[K_SPLIT] != 0)
    y = v_sub(v_set1(1), v_div(v_abs(v_sub(x, v_set1(k->v[K_MEAN]))), v_set1(k->v[K_GAP])));
  else y = v_fma(v_set1(k->v[K_A]), score_density(s, k, i, cnt), v_set1(k->v[K_B]));
  y = v_clean(v_max(y, zero));
  put(s->dst[0], i, cnt, y);
  return v_select(lanes_below(cnt), v_mul(x, y), zero);
}
static void score_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[OUT_MEAN]) *s->dst[OUT_MEAN] = r_clean(post);
}
REDUCE_MAP_SUMS_OF(score_first, score_means)
REDUCE_MAP_SUMS_OF(score_second, score_more)
REDUCE_MAP_WRITE_OF(score_out, score_write)
static const reduce_map_body scores_body = {.setup = score_setup,
                                            .finalize = score_finalize,
                                            .sums = score_first,
                                            .more = score_second,
                                            .write = score_out,
                                            .row = score_row,
                                            .full = 1};
REDUCE_MAP_KERNEL(scores)

/* ---- labels_crowd: f_j / sum f, f_j = (x_j + a) o_j; 1 / n where the sum is 0 ---- */

enum { CROWD_OTHER = 1, CROWD_SMOOTHING = 0 };
enum { K_SMOOTHING, K_INVERSE, K_EVEN };

SMI consts crowd_setup(const row_call *c, const span *s) {
  return (consts){{(real)c->params[CROWD_SMOOTHING]}};
}
SMI vreal crowd_at(const span *s, const consts *k, size_t i, int cnt) {
  vreal f = v_add(at(s->src[0], i, cnt), v_set1(k->v[K_SMOOTHING]));
  return s->src[CROWD_OTHER] ? v_mul(f, at(s->src[CROWD_OTHER], i, cnt)) : f;
}
SMI void crowd_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                   reduce_map_acc *acc) {
  vreal f = crowd_at(s, k, i, cnt);
  acc->nan = m_or(acc->nan, m_or(no_number(f), v_lt(f, v_set1(0))));
  acc->a = v_add(acc->a, v_select(lanes_below(cnt), f, v_set1(0)));
}
static void crowd_finalize(consts *k, const span *s, const reduce_map_row *r) {
  k->v[K_INVERSE] = r->sum > 0 ? (real)(1 / r->sum) : 0;
  k->v[K_EVEN] = r->sum > 0 ? 0 : (real)(1 / (double)s->n);
}
SMI vreal crowd_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return v_clean(v_fma(crowd_at(s, k, i, cnt), v_set1(k->v[K_INVERSE]), v_set1(k->v[K_EVEN])));
}
REDUCE_MAP_SUMS_OF(crowd_sums, crowd_add)
REDUCE_MAP_VALUES_OF(crowd_out, crowd_value)
static const reduce_map_body crowd_body = {
    .setup = crowd_setup, .finalize = crowd_finalize, .sums = crowd_sums, .write = crowd_out, .full = 1};
REDUCE_MAP_KERNEL(crowd)

FORWARD_OPERATOR(labels_mix, mix)
FORWARD_OPERATOR(labels_ensemble, ensemble)
FORWARD_OPERATOR(labels_adapt, adapt)
FORWARD_OPERATOR(labels_score_distribution, scores)
FORWARD_OPERATOR(labels_crowd, crowd)
