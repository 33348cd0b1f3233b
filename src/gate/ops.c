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

/* Each of SURE maxima is one element, so the k-th of them is a bar that k elements reach. QUARTERS:
 * of a vector, one for each fold of v_hmaxs. */
enum { SURE = 16, SUMS = SURE / LANES, QUARTERS = 4, QUARTER = LANES / QUARTERS };
#define MOST_EXACT (1 << 24) /* whole numbers that a real holds */
#define EACH_SUM(u) _Pragma("GCC unroll 16") for (int u = 0; u < SUMS; u++)
#define EACH_QUARTER(u) _Pragma("GCC unroll 4") for (int u = 0; u < QUARTERS; u++)

/* A token whose experts are compared, in the caller's memory. Keys of a group are whole vectors,
 * with -inf behind them; first and second are the largest two of each of a group's lanes. near,
 * number: the experts that may be among the best, in index order, with -inf behind them. */
typedef struct contest {
  const gate_choice *g;
  int64_t size, stride; /* of a group; from group to group of the keys */
  real *key, *first, *second, *score, *near, *number, *best;
  int64_t *taken; /* groups that take part, in index order */
  int64_t groups; /* how many */
  real bar;
  int count; /* of those near; -1: too many */
  bool good; /* no NaN */
} contest;

SMI int64_t whole_vectors(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static contest contest_in(const gate_choice *g, double *memory) {
  const int64_t rows = gate_fours(g->groups) * GATE_LANES, near = GATE_NEAR + GATE_LANES;
  contest t = {.g = g, .size = g->experts / g->groups, .groups = 1};
  real **parts[] = {&t.first, &t.second, &t.score, &t.near, &t.number, &t.best, &t.key};
  const int64_t numbers[] = {rows, rows, gate_padded(g->groups), near, near, gate_padded(g->k), 0};
  t.stride = whole_vectors(t.size);
  t.taken = (int64_t *)(void *)memory, memory += gate_padded(g->groups);
  for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++)
    *parts[i] = (real *)memory, memory += numbers[i];
  t.taken[0] = 0;
  return t;
}

/* ---- keys ---- */

#define FAR_LOGIT 80 /* e^-80 is a normal number */

/* v_sigmoid, to the bit, of x with |x| = a <= FAR_LOGIT. */
SMI vreal near_sigmoid(vreal x, vreal a) {
  vreal k;
  const vreal p = v_exp_pair(v_sub(v_set1(0), a), &k), e = v_scale_near(p, k), one = v_set1(1);
  return v_div(v_select(v_lt(x, v_set1(0)), e, one), v_add(one, e));
}

/* What experts are compared by. A lane of plain becomes false where a logit is no number, is
 * infinite, or too large for near_sigmoid. */
SMI vreal key_of(vreal z, const real *score, const real *bias, int64_t i, bool sigmoid, vmask *plain) {
  const vreal a = v_abs(z);
  const vreal s = sigmoid ? near_sigmoid(z, a) : score ? v_load(score + i) : z;
  *plain = m_and(*plain, v_lt(a, v_set1(sigmoid ? FAR_LOGIT : R_INF)));
  return bias ? v_add(s, v_load(bias + i)) : s;
}
SMI bool plain_keys(const contest *t, const real *z, const real *score, const real *bias, bool sigmoid) {
  const vreal none = v_set1(-R_INF);
  vmask plain = v_eq(none, none);
  const int64_t size = t->size, n = t->g->experts;
  real *key = t->key, *first_of = t->first, *second_of = t->second;
  for (int64_t from = 0; from < n; from += size, first_of += LANES, second_of += LANES) {
    vreal first = none, second = none;
    for (int64_t i = from; i < from + size; i += LANES) {
      v_prefetch(z + GATE_TOGETHER * n + i); /* a later token's */
      const vreal x = key_of(v_load(z + i), score, bias, i, sigmoid, &plain);
      v_store(key + i, x);
      second = v_max(second, v_min(first, x)), first = v_max(first, x);
    }
    v_store(first_of, first), v_store(second_of, second);
  }
  return !m_any(m_not(plain));
}

/* The same of any numbers and any groups; not good: a NaN. An expert with logit -inf does not
 * exist, whatever its bias. */
NOINLINE void any_keys(contest *t, const real *logits, const real *score, const real *bias) {
  const vreal none = v_set1(-R_INF);
  vmask good = v_eq(none, none);
  for (int64_t q = 0; q < t->g->groups; q++) {
    vreal first = none, second = none;
    for (int64_t j = 0; j < t->size; j += LANES) {
      const int64_t i = q * t->size + j;
      const int cnt = lanes_left((size_t)(t->size - j));
      const vreal z = v_load_n(logits + i, cnt, -R_INF);
      vreal s = z;
      if (t->g->sigmoid) s = v_sigmoid(z);
      else if (score) s = v_load_n(score + i, cnt, 0);
      if (bias) s = v_add(s, v_load_n(bias + i, cnt, 0));
      good = m_and(good, v_eq(s, s));
      const vreal x = v_select(v_lt(none, z), s, none);
      v_store(t->key + q * t->stride + j, x);
      second = v_max(second, v_min(first, x)), first = v_max(first, x);
    }
    v_store(t->first + q * LANES, first), v_store(t->second + q * LANES, second);
  }
  t->good = !m_any(m_not(good));
}

static bool has_nan(const real *x, int64_t n) {
  bool nan = false;
  for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
  return nan;
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

/* By how many of n numbers each lane is exceeded. */
SMI vreal exceeded(vreal x, const real *numbers, int n) {
  const vreal one = v_set1(1), zero = v_set1(0);
  vreal count = zero;
  _Pragma("GCC unroll 16") for (int j = 0; j < n; j++) count =
      v_add(count, v_select(v_lt(x, v_set1(numbers[j])), one, zero));
  return count;
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

/* ---- groups ---- */

/* Four groups, each in a quarter of the lanes: the sum of the two best, where two count and there
 * are two, or the best. */
SMI vreal group_scores(const contest *t, int64_t q) {
  const vreal one = v_set1(1), zero = v_set1(0);
  real best[LANES];
  vreal first[QUARTERS], rest[QUARTERS], ties[QUARTERS];
  EACH_QUARTER(u) first[u] = v_load(t->first + (q + u) * LANES);
  const vreal top = v_hmaxs(first[0], first[1], first[2], first[3]);
  if (!t->g->two) return top;
  v_store(best, top);
  EACH_QUARTER(u) {
    const vmask is_best = v_eq(first[u], v_set1(best[u * QUARTER]));
    rest[u] = v_select(is_best, v_load(t->second + (q + u) * LANES), first[u]);
    ties[u] = v_select(is_best, one, zero);
  }
  const vmask twice = v_lt(one, v_hsums(ties[0], ties[1], ties[2], ties[3]));
  const vreal next = v_select(twice, top, v_hmaxs(rest[0], rest[1], rest[2], rest[3]));
  return v_select(v_lt(v_set1(-R_INF), next), v_add(top, next), top);
}

NOINLINE void score_groups(contest *t, int count) {
  const int64_t groups = t->g->groups;
  const vreal none = v_set1(-R_INF);
  for (int i = 0; i < count; i++, t++) {
    for (int64_t q = groups; q < gate_fours(groups); q++)
      v_store(t->first + q * LANES, none), v_store(t->second + q * LANES, none);
    v_store(t->score + whole_vectors(groups) - LANES, none);
    for (int64_t q = 0; q < groups; q += QUARTERS) {
      real four[LANES];
      v_store(four, group_scores(t, q));
      EACH_QUARTER(u) t->score[q + u] = four[u * QUARTER];
    }
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
NOINLINE void take_bars(contest *t, int count) {
  const vreal none = v_set1(R_INF), wanted = v_set1((real)t->g->k);
  for (int i = 0; i < count; i++, t++) {
    real most[SURE];
    vreal max[2] = {v_set1(-R_INF), v_set1(-R_INF)}, bar = none;
    for (int64_t q = 0; q < t->groups; q++) {
      const vreal first = v_load(t->first + t->taken[q] * LANES),
                  second = v_load(t->second + t->taken[q] * LANES);
      max[1] = v_max(v_min(max[0], first), v_max(max[1], second)), max[0] = v_max(max[0], first);
    }
    EACH_SUM(u) v_store(most + u * LANES, max[u]);
    EACH_SUM(u) bar = v_min(bar, v_select(v_lt(exceeded(max[u], most, SURE), wanted), max[u], none));
    t->bar = v_hmin(bar);
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
      v_compress(number + count, reaches, numbers);
      count += v_compress(near + count, reaches, x);
    }
  }
  v_store(near + count, v_set1(-R_INF));
  return count;
}
NOINLINE void take_near(contest *t, int count) {
  for (int i = 0; i < count; i++, t++) t->count = near_of(t);
}

/* sorted_r is the number of the element that r others come before. */
SMI void sort_near(const contest *t, real *sorted) {
  const int n = t->count;
  if (n <= LANES) {
    real place[LANES];
    const vreal above = exceeded(v_load(t->near), t->near, LANES);
    v_store(place, above);
    for (int i = 0; i < n; i++) sorted[(int)place[i]] = t->number[i];
    if (v_hsum(above) == (real)(n * (n - 1) / 2 + (LANES - n) * n)) return; /* no two are equal */
  }
  for (int i = 0; i < n; i++) sorted[before(t->near, n, i)] = t->number[i];
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
      real sorted[GATE_NEAR];
      sort_near(t, sorted);
      for (; found < k && found < t->count; found++) index[found] = (int64_t)sorted[found];
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
