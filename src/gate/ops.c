/* gate/ops.c - which experts take a token (gate.h). Compiled once per instruction set and real
 * type. Only comparisons, so nothing here rounds but a score with its bias, and the sum of a
 * group's two best.
 *
 * Some tokens are chosen for together, step by step: what a step waits for, the next token's work
 * fills. */
#include "compress.h"
#include "engine/loops.h"
#include "math.h"
#include "mixture.h"
#include "rank.h"

/* Each of SURE maxima is one element, so the k-th of them is a bar that k elements reach. QUARTERS:
 * of a vector, one for each fold of v_hmaxs. */
enum { SURE = 16, SUMS = SURE / LANES, QUARTERS = 4, QUARTER = LANES / QUARTERS };
#define MOST_EXACT (1 << 24) /* whole numbers that a real holds */
#define EACH_SUM(u) _Pragma("GCC unroll 16") for (int u = 0; u < SUMS; u++)
#define EACH_LANE(u) _Pragma("GCC unroll 16") for (int u = 0; u < LANES; u++)
#define EACH_QUARTER(u) _Pragma("GCC unroll 4") for (int u = 0; u < QUARTERS; u++)

/* A token whose experts are compared, in the caller's memory. Keys of a group are whole vectors,
 * with -inf behind them; next is a group's second best. near, number: the experts that may be among
 * the best, in index order, with -inf behind them. */
typedef struct contest {
  const gate_choice *g;
  int64_t size, stride; /* of a group; from group to group of the keys */
  real *key, *score, *next, *near, *number, *best;
  int64_t *taken; /* groups that take part, in index order */
  int64_t groups; /* how many */
  real bar;
  int count; /* of those near; -1: too many */
  bool good; /* no NaN */
} contest;

SMI int64_t whole_vectors(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static contest contest_in(const gate_choice *g, double *memory) {
  const int64_t groups = gate_padded(g->groups), near = GATE_NEAR + GATE_LANES;
  contest t = {.g = g, .size = g->experts / g->groups, .groups = 1};
  real **parts[] = {&t.score, &t.next, &t.near, &t.number, &t.best, &t.key};
  const int64_t numbers[] = {groups, groups, near, near, gate_padded(g->k), 0};
  t.stride = whole_vectors(t.size);
  t.taken = (int64_t *)(void *)memory, memory += groups;
  for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++)
    *parts[i] = (real *)memory, memory += numbers[i];
  t.taken[0] = 0;
  return t;
}

/* ---- keys ---- */

#define FAR_LOGIT 80 /* e^-80 is a normal number */

/* v_sigmoid, to the bit, of x with |x| = a <= FAR_LOGIT. t is minus what exp_reduce makes of -a:
 * signs change no rounding. */
SMI vreal near_sigmoid(vreal x, vreal a) {
  const vreal sum = v_fnma(a, v_set1(LOG2_E), v_set1(ROUNDER)), k = v_sub(sum, v_set1(ROUNDER));
  const vreal t = v_fma(k, v_set1(LN2_LO), v_fma(k, v_set1(LN2_HI), a)), one = v_set1(1);
  vreal p = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS; i++) p = v_fnma(p, t, v_set1(exp_coefficients[i]));
  const vreal e = v_scale_normal(p, sum);
  return v_div(v_if_negative(x, e, one), v_add(one, e));
}

/* What the experts from i on are compared by; far: the largest |logit| so far. */
SMI vreal key_of(const real *logits, const real *score, const real *bias, int64_t i, bool sigmoid,
                 vreal *far) {
  const vreal z = v_load(logits + i), a = v_abs(z);
  const vreal s = sigmoid ? near_sigmoid(z, a) : score ? v_load(score + i) : z;
  *far = v_farther(*far, a);
  return bias ? v_add(s, v_load(bias + i)) : s;
}
/* Whether all logits are numbers, finite, and near enough for near_sigmoid. */
SMI bool plain_keys(const contest *t, const real *z, const real *score, const real *bias, bool sigmoid) {
  vreal far = v_set1(0);
  const int64_t n = t->g->experts;
  for (int64_t i = 0; i < n; i += LANES) {
    if (sigmoid) v_prefetch(z + GATE_TOGETHER * n + i); /* a later token's; reads alone need no hint */
    v_store(t->key + i, key_of(z, score, bias, i, sigmoid, &far));
  }
  return !m_any(m_not(v_lt(far, v_set1(sigmoid ? FAR_LOGIT : R_INF))));
}

/* The same of any numbers and any groups; not good: a NaN. An expert with logit -inf does not
 * exist, whatever its bias. */
NOINLINE void any_keys(contest *t, const real *logits, const real *score, const real *bias) {
  const vreal none = v_set1(-R_INF);
  vmask good = v_eq(none, none);
  for (int64_t q = 0; q < t->g->groups; q++)
    for (int64_t j = 0; j < t->size; j += LANES) {
      const int64_t i = q * t->size + j;
      const int cnt = lanes_left((size_t)(t->size - j));
      const vreal z = v_load_n(logits + i, cnt, -R_INF);
      vreal s = z;
      if (t->g->sigmoid) s = v_sigmoid(z);
      else if (score) s = v_load_n(score + i, cnt, 0);
      if (bias) s = v_add(s, v_load_n(bias + i, cnt, 0));
      good = m_and(good, v_eq(s, s));
      v_store(t->key + q * t->stride + j, v_select(v_lt(none, z), s, none));
    }
  t->good = !m_any(m_not(good));
}

static bool has_nan(const real *x, int64_t n) {
  const vreal zero = v_set1(0);
  vmask good = v_eq(zero, zero);
  for (int64_t i = 0; i < n; i += LANES) {
    const vreal v = v_load_n(x + i, lanes_left((size_t)(n - i)), 0);
    good = m_and(good, v_eq(v, v));
  }
  return m_any(m_not(good));
}

NOINLINE void make_keys(contest *t, int count, const real *z, const real *score, const real *bias, bool may) {
  const int64_t n = t->g->experts;
  const bool sigmoid = t->g->sigmoid;
  may = may && t->size == t->stride;
  for (int i = 0; i < count; i++, t++, z += n, score += score ? n : 0) {
    t->good = true;
    if (may && sigmoid && bias && plain_keys(t, z, NULL, bias, true)) continue;
    if (may && sigmoid && !bias && plain_keys(t, z, NULL, NULL, true)) continue;
    if (may && !sigmoid && plain_keys(t, z, score, bias, false)) continue;
    any_keys(t, z, score, bias);
  }
}

/* ---- ranks ---- */

/* How many of LANES elements from j on come before element i, which is better than later equals. */
SMI int before_in(const real *x, int i, vreal xi, int j) {
  const vreal y = v_load(x + j);
  const uint32_t earlier = j + LANES <= i ? ~0u : j < i ? (1u << (i - j)) - 1 : 0;
  return __builtin_popcount(m_bits(v_lt(xi, y)) | (m_bits(v_eq(xi, y)) & earlier));
}
/* Of n elements, with -inf behind them. */
SMI int before(const real *x, int n, int i) {
  const vreal xi = v_set1(x[i]);
  int count = before_in(x, i, xi, 0);
  for (int j = LANES; j < n; j += LANES) count += before_in(x, i, xi, j);
  return count;
}

/* By how many of n numbers each lane is exceeded; behind them is -inf, up to a multiple of four. */
SMI vreal exceeded(vreal x, const real *numbers, int n) {
  vreal count = v_set1(0);
  _Pragma("GCC unroll 1") for (int j = 0; j < n; j += 4)
      _Pragma("GCC unroll 4") for (int i = j; i < j + 4; i++) count =
          v_count(count, v_lt(x, v_set1(numbers[i])));
  return v_counted(count);
}

/* Any k of any n: each element moves up past smaller ones. */
SMI int64_t insert(const real *x, int64_t n, int64_t from, int64_t count, int64_t k, real *best,
                   int64_t *index) {
  for (int64_t i = 0; i < n; i++) {
    if (!(x[i] > (count < k ? -R_INF : best[k - 1]))) continue;
    int64_t p = count < k ? count++ : k - 1;
    for (; p > 0 && best[p - 1] < x[i]; p--) best[p] = best[p - 1], index[p] = index[p - 1];
    best[p] = x[i], index[p] = from + i;
  }
  return count;
}

/* The largest two of each lane. */
typedef struct lane_twos {
  vreal first, second;
} lane_twos;
SMI lane_twos merge_twos(lane_twos x, lane_twos y) {
  const vreal less = v_max(v_min(x.first, y.first), v_max(x.second, y.second));
  return (lane_twos){v_max(x.first, y.first), less};
}
SMI lane_twos twos_at(const contest *t, int64_t group, int64_t j) {
  const real *key = t->key + group * t->stride + j;
  const vreal x = v_load(key), y = j + LANES < t->stride ? v_load(key + LANES) : v_set1(-R_INF);
  return (lane_twos){v_max(x, y), v_min(x, y)};
}
SMI lane_twos group_twos(const contest *t, int64_t group) {
  lane_twos x = twos_at(t, group, 0);
  for (int64_t j = 2 * LANES; j < t->stride; j += 2 * LANES) x = merge_twos(x, twos_at(t, group, j));
  return x;
}

/* ---- groups ---- */

SMI two_groups two_of(const contest *t, int64_t q) {
  const lane_twos none = {v_set1(-R_INF), v_set1(-R_INF)};
  const lane_twos x = q < t->g->groups ? group_twos(t, q) : none,
                  y = q + 1 < t->g->groups ? group_twos(t, q + 1) : none;
  return v_two_groups(x.first, x.second, y.first, y.second);
}
/* Four groups: the sum of the two best, where two count and there are two, or the best. */
SMI void score_four(const contest *t, int64_t q) {
  vreal best, next;
  real scores[LANES], nexts[LANES];
  v_top_twos(two_of(t, q), two_of(t, q + 2), &best, &next);
  v_store(nexts, next);
  if (t->g->two) best = v_select(v_lt(v_set1(-R_INF), next), v_add(best, next), best);
  v_store(scores, best);
  EACH_QUARTER(u) t->score[q + u] = scores[u * QUARTER], t->next[q + u] = nexts[u * QUARTER];
}

NOINLINE void score_groups(contest *t, int count) {
  const int64_t groups = t->g->groups;
  for (int i = 0; i < count; i++, t++) {
    v_store(t->score + whole_vectors(groups) - LANES, v_set1(-R_INF));
    for (int64_t q = 0; q < groups; q += QUARTERS) score_four(t, q);
  }
}

/* Those that fewer than top_groups exceed: too many where some are equal. */
SMI uint32_t top_groups(const contest *t) {
  const vreal score = v_load(t->score), above = exceeded(score, t->score, (int)t->g->groups);
  return m_bits(m_and(v_lt(above, v_set1((real)t->g->top_groups)), v_lt(v_set1(-R_INF), score)));
}

/* However many groups there are. */
NOINLINE void rank_groups(contest *t) {
  t->groups = 0;
  for (int64_t q = 0; q < t->g->groups; q++) {
    if (!(t->score[q] > -R_INF)) continue;
    int64_t better = 0;
    for (int64_t i = 0; i < t->g->groups; i++)
      better += t->score[i] > t->score[q] || (i < q && t->score[i] == t->score[q]);
    if (better < t->g->top_groups) t->taken[t->groups++] = q;
  }
}

NOINLINE void take_groups(contest *t, int count) {
  for (int i = 0; i < count; i++, t++) {
    uint32_t bits = t->g->groups <= LANES ? top_groups(t) : ~0u;
    t->groups = __builtin_popcount(bits);
    if (t->groups > t->g->top_groups || t->g->groups > LANES) rank_groups(t);
    else
      for (int64_t *taken = t->taken; bits; bits &= bits - 1) *taken++ = __builtin_ctz(bits);
  }
}

/* ---- experts ---- */

/* The k-th largest of SURE maxima, of lanes over all groups that take part: the least of those that
 * fewer than k exceed. */
SMI real bar_of_maxima(const contest *t) {
  const vreal above = v_set1(R_INF), wanted = v_set1((real)t->g->k);
  real most[SURE];
  lane_twos x = {v_set1(-R_INF), v_set1(-R_INF)};
  for (int64_t q = 0; q < t->groups; q++) x = merge_twos(x, group_twos(t, t->taken[q]));
  const vreal max[] = {x.first, x.second};
  vreal bar = above;
  EACH_SUM(u) v_store(most + u * LANES, max[u]);
  EACH_SUM(u) bar = v_min(bar, v_select(v_lt(exceeded(max[u], most, SURE), wanted), max[u], above));
  return v_hmin(bar);
}

/* Two of each group are not below the least second best: enough, and hardly too many, where those
 * are k or a few more. */
NOINLINE void take_bars(contest *t, int count) {
  for (int i = 0; i < count; i++, t++) {
    const int64_t more = 2 * t->groups - t->g->k;
    t->bar = t->g->two && more >= 0 && more <= 2 ? R_INF : -R_INF;
    for (int64_t q = 0; q < t->groups && t->bar > -R_INF; q++) {
      const real next = t->next[t->taken[q]];
      t->bar = next < t->bar ? next : t->bar;
    }
    if (!(t->bar > -R_INF)) t->bar = bar_of_maxima(t);
  }
}

/* Experts that reach the bar, above -inf. */
SMI int near_of(const contest *t) {
  const vreal least = v_set1(t->bar > -R_MAX ? t->bar : -R_MAX), step = v_set1(LANES);
  const int64_t stride = t->stride;
  real *near = t->near, *number = t->number;
  int count = 0; /* in a register */
  for (int64_t i = 0; i < t->groups; i++) {
    const real *key = t->key + t->taken[i] * stride;
    vreal numbers = v_add(v_iota(), v_set1((real)(t->taken[i] * t->size)));
    for (int64_t j = 0; j < stride; j += LANES, numbers = v_add(numbers, step)) {
      const vreal x = v_load(key + j);
      const vmask reaches = m_not(v_lt(x, least));
      if (count > GATE_NEAR - LANES) return -1;
      count += v_compress_two(number + count, near + count, reaches, numbers, x);
    }
  }
  v_store(near + count, v_set1(-R_INF)), v_store(number + count, v_set1(0));
  return count;
}
NOINLINE void take_near(contest *t, int count) {
  for (int i = 0; i < count; i++, t++) t->count = near_of(t);
}

/* sorted_r is the number of the element that r others come before. Of at most LANES the elements
 * behind them come to the place behind the last. */
SMI void sort_near(const contest *t, int64_t *sorted) {
  const int n = t->count;
  if (n <= LANES) {
    real place[LANES];
    const vreal above = exceeded(v_load(t->near), t->near, LANES);
    v_store(place, above);
    EACH_LANE(i) sorted[(int)place[i]] = (int64_t)t->number[i];
    if (v_hsum(above) == (real)(n * (n - 1) / 2 + (LANES - n) * n)) return; /* no two are equal */
  }
  for (int i = 0; i < n; i++) sorted[before(t->near, n, i)] = (int64_t)t->number[i];
}

/* Where there is no bar, or too many reach it. */
NOINLINE int64_t insert_all(const contest *t, int64_t *index) {
  int64_t count = 0;
  for (int64_t i = 0; i < t->groups; i++) {
    const int64_t q = t->taken[i];
    count = insert(t->key + q * t->stride, t->size, q * t->size, count, t->g->k, t->best, index);
  }
  return count;
}

NOINLINE void write_indices(const contest *t, int count, int64_t *index) {
  const int64_t k = t->g->k;
  for (int i = 0; i < count; i++, t++, index += k) {
    int64_t found = 0;
    if (t->good && t->count < 0) found = insert_all(t, index);
    else if (t->good) {
      int64_t sorted[GATE_NEAR + 1];
      sort_near(t, sorted);
      for (; found < k && found < t->count; found++) index[found] = sorted[found];
    }
    for (; found < k; found++) index[found] = -1;
  }
}

static void choose(const gate_choice *g, const void *logits, const void *score, const void *bias,
                   int64_t count, void *work, int64_t *index, bool *good) {
  const bool plain = !bias || !has_nan(bias, g->experts);
  contest t[GATE_TOGETHER];
  for (int i = 0; i < GATE_TOGETHER; i++) t[i] = contest_in(g, (double *)work + i * gate_contest_doubles(g));
  for (int64_t from = 0; from < count; from += GATE_TOGETHER) {
    const int m = (int)(count - from < GATE_TOGETHER ? count - from : GATE_TOGETHER);
    const int64_t at = from * g->experts;
    make_keys(t, m, (const real *)logits + at, score ? (const real *)score + at : NULL, bias, plain);
    if (g->groups > 1) score_groups(t, m), take_groups(t, m);
    if (g->k <= SURE && g->experts <= MOST_EXACT) take_bars(t, m), take_near(t, m);
    else
      for (int i = 0; i < m; i++) t[i].count = -1;
    write_indices(t, m, index + from * g->k);
    for (int i = 0; i < m; i++) good[from + i] = t[i].good;
  }
}

const gate_kernels SMX_FN(gate_kernels) = {choose,
                                           SMX_FN(gate_mixture),
                                           SMX_FN(gate_gaussian),
                                           SMX_FN(gate_noise),
                                           SMX_FN(gate_deviation),
                                           SMX_FN(gate_normal),
                                           SMX_FN(gate_gumbel),
                                           SMX_FN(gate_activate),
                                           SMX_FN(gate_sigmoid),
                                           SMX_FN(gate_add),
                                           SMX_FN(gate_spread),
                                           SMX_FN(gate_dot),
                                           SMX_FN(gate_entropy)};
