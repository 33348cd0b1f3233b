/* gate/ops.c - which experts take a token (gate.h). Compiled once per instruction set and real
 * type. Only comparisons, so nothing here rounds but a score with its bias, and the sum of a
 * group's two best.
 *
 * Some tokens are chosen for together, step by step: what a step waits for, the next token's work
 * fills. */
#include "columns.h"
#include "compress.h"
#include "contest.h"
#include "mixture.h"
#include "sort.h"

/* Each of SURE maxima is one element, so the k-th of them is a bar that k elements reach. Logits
 * that are compared where they lie are prefetched LATER numbers ahead. */
enum { SURE = SORTED, SUMS = SURE / LANES, GROUPS = 8, LATER = 16384 / sizeof(real) };
#define MOST_EXACT (1 << 24) /* whole numbers that a real holds */
#define EACH_SUM(u) _Pragma("GCC unroll 16") for (int u = 0; u < SUMS; u++)
#define EACH_SORTED(r) _Pragma("GCC unroll 16") for (int r = 0; r < SORTED; r++)
#define EACH_LANE(u) _Pragma("GCC unroll 16") for (int u = 0; u < LANES; u++)
#define EACH_FOUR(u) _Pragma("GCC unroll 4") for (int u = 0; u < 4; u++)

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
SMI lane_twos twos_at(const real *key, int64_t j, int64_t stride) {
  const vreal x = v_load(key + j), y = j + LANES < stride ? v_load(key + j + LANES) : v_set1(-R_INF);
  return (lane_twos){v_max(x, y), v_min(x, y)};
}
SMI lane_twos group_twos(const real *key, int64_t stride) {
  lane_twos x = twos_at(key, 0, stride);
  for (int64_t j = 2 * LANES; j < stride; j += 2 * LANES) x = merge_twos(x, twos_at(key, j, stride));
  return x;
}

/* ---- groups ---- */

/* Of a group behind the last there is nothing. */
SMI lane_twos twos_of(const contest *t, int64_t q, int64_t stride, int64_t groups) {
  const lane_twos none = {v_set1(-R_INF), v_set1(-R_INF)};
  return q < groups ? group_twos(t->key + q * stride, stride) : none;
}
SMI vreal top_of(const contest *t, int64_t q, int64_t stride, int64_t groups) {
  vreal x = v_set1(-R_INF);
  if (q >= groups) return x;
  x = v_load(t->key + q * stride);
  for (int64_t j = LANES; j < stride; j += LANES) x = v_max(x, v_load(t->key + q * stride + j));
  return x;
}
/* Eight groups from q on: the sum of the two best, where two count and there are two, or the
 * best. */
SMI void score_eight(const contest *t, int64_t q, int64_t stride, int64_t groups) {
  vreal best, next;
  if (t->g->two) {
    two_groups pairs[4];
    EACH_FOUR(u) {
      const lane_twos x = twos_of(t, q + 2 * u, stride, groups),
                      y = twos_of(t, q + 2 * u + 1, stride, groups);
      pairs[u] = v_two_groups(x.first, x.second, y.first, y.second);
    }
    v_top_twos(pairs, &best, &next);
    best = v_select(v_lt(v_set1(-R_INF), next), v_add(best, next), best);
    v_store(t->next + q, next);
  } else {
    two_tops pairs[4];
    EACH_FOUR(u)
    pairs[u] = v_two_tops(top_of(t, q + 2 * u, stride, groups), top_of(t, q + 2 * u + 1, stride, groups));
    best = v_tops(pairs);
  }
  v_store(t->score + q, best);
}

/* Behind the last there is -inf, for a whole vector. */
NOINLINE void score_groups(contest *t, int count) {
  for (int i = 0; i < count; i++, t++)
    for (int64_t q = 0; q < t->g->groups; q += GROUPS) score_eight(t, q, t->stride, t->g->groups);
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

/* The first SORTED numbers of each of LANES rows, one in each lane. */
SMI void rows_in_lanes(const real *row, int64_t pitch, vreal x[SORTED]) {
  _Pragma("GCC unroll 4") for (int c = 0; c < SORTED; c += REAL_STEP)
      v_columns((const char *)(row + c), pitch * (int64_t)sizeof(real), x + c);
}

/* SURE maxima, of lanes over all groups that take part. */
NOINLINE void store_maxima(const contest *t, real *most) {
  lane_twos x = {v_set1(-R_INF), v_set1(-R_INF)};
  for (int64_t q = 0; q < t->groups; q++)
    x = merge_twos(x, group_twos(t->key + t->taken[q] * t->stride, t->stride));
  const vreal max[] = {x.first, x.second};
  EACH_SUM(u) v_store(most + u * LANES, max[u]);
}
/* The k-th largest of maxima: the least of those that fewer than k exceed. */
SMI real bar_of_maxima(const real most[SURE], int64_t k) {
  const vreal above = v_set1(R_INF), wanted = v_set1((real)k);
  vreal bar = above;
  EACH_SUM(u) {
    const vreal x = v_load(most + u * LANES);
    bar = v_min(bar, v_select(v_lt(exceeded(x, most, SURE), wanted), x, above));
  }
  return v_hmin(bar);
}
/* The same of each of GATE_TOGETHER rows. */
NOINLINE void bars_of_maxima(const real most[][SURE], int count, int64_t k, real *bar) {
  if (!sort_pays(k)) {
    for (int i = 0; i < count; i++) bar[i] = bar_of_maxima(most[i], k);
    return;
  }
  for (int i = 0; i < GATE_TOGETHER; i += LANES) {
    vreal x[SORTED];
    real sorted[SORTED][LANES];
    rows_in_lanes(most[i], SURE, x);
    v_sort_sixteen(x, NULL, k);
    EACH_SORTED(r) v_store(sorted[r], x[r]);
    v_store(bar + i, v_load(sorted[k - 1]));
  }
}

/* Two of each group are not below the least second best: enough, and hardly too many, where those
 * are k or a few more. */
SMI real bar_of_groups(const contest *t) {
  const int64_t more = 2 * t->groups - t->g->k;
  real bar = t->g->two && more >= 0 && more <= 2 ? R_INF : -R_INF;
  for (int64_t q = 0; q < t->groups && bar > -R_INF; q++) {
    const real next = t->next[t->taken[q]];
    bar = next < bar ? next : bar;
  }
  return bar;
}
NOINLINE void take_bars(contest *t, int count) {
  real most[GATE_TOGETHER][SURE], bar[GATE_TOGETHER];
  bool all = true;
  for (int i = 0; i < count; i++) {
    t[i].bar = bar_of_groups(t + i);
    if (t[i].bar > -R_INF) continue;
    store_maxima(t + i, most[i]), all = false;
  }
  if (all) return;
  bars_of_maxima(most, count, t->g->k, bar);
  for (int i = 0; i < count; i++) t[i].bar = t[i].bar > -R_INF ? t[i].bar : bar[i];
}

/* Nothing is near. */
SMI void empty_near(const contest *t) {
  EACH_SUM(u) v_store(t->near + u * LANES, v_set1(-R_INF)), v_store(t->number + u * LANES, v_set1(0));
}

/* Experts that reach the bar, above -inf. With each vector of keys, `ahead` vectors of later
 * logits are prefetched. */
SMI int near_of(const contest *t, int64_t ahead) {
  const vreal least = v_set1(t->bar > -R_MAX ? t->bar : -R_MAX), step = v_set1(LANES);
  const int64_t stride = t->stride, groups = t->groups, *taken = t->taken;
  const real size = (real)t->size, *keys = t->key, *later = keys + LATER;
  real *near = t->near, *number = t->number;
  int64_t count = 0; /* in a register */
  for (int64_t i = 0; i < groups; i++) {
    const real *key = keys + taken[i] * stride;
    vreal numbers = v_fma(v_set1((real)taken[i]), v_set1(size), v_iota());
    for (int64_t j = 0; j < stride; j += LANES, numbers = v_add(numbers, step)) {
      const vreal x = v_load(key + j);
      const vmask reaches = m_not(v_lt(x, least));
      for (int64_t l = 0; l < ahead; l++, later += LANES) v_prefetch_far(later);
      if (count > GATE_NEAR - LANES) return -1;
      count += v_compress_two(number + count, near + count, reaches, numbers, x);
    }
  }
  EACH_SUM(u)
  v_store(near + count + u * LANES, v_set1(-R_INF)), v_store(number + count + u * LANES, v_set1(0));
  return (int)count;
}
NOINLINE void take_near(contest *t, int count) {
  for (int i = 0; i < count; i++, t++)
    if (t->key == t->keys || !t->groups) t->count = near_of(t, 0);
    else t->count = near_of(t, (t->g->groups + t->groups - 1) / t->groups);
}

/* sorted_r is the number of the element that r others come before. Of at most LANES the elements
 * behind them come to the place behind the last. */
NOINLINE void sort_near(const contest *t, int64_t *sorted) {
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

/* The numbers of what is near in order, of GATE_TOGETHER tokens. Bit i: some of the k best of token
 * i are equal. */
NOINLINE uint32_t sort_all(const contest *t, real to[][SORTED]) {
  const int64_t k = t->g->k;
  uint32_t equal = 0;
  for (int i = 0; i < GATE_TOGETHER; i += LANES) {
    vreal x[SORTED], number[SORTED];
    real sorted[SORTED][LANES];
    rows_in_lanes(t[i].near, NEAR_ROW, x), rows_in_lanes(t[i].number, NEAR_ROW, number);
    v_sort_sixteen(x, number, k);
    EACH_SORTED(r) {
      if (r >= k) break;
      if (r + 1 < SORTED) equal |= m_bits(v_eq(x[r], x[r + 1])) << i;
      v_store(sorted[r], number[r]);
    }
    for (int r = 0; r < k; r += 4) {
      const char *rows[] = {(char *)sorted[r], (char *)sorted[r + 1], (char *)sorted[r + 2],
                            (char *)sorted[r + 3]};
      _Pragma("GCC unroll 4") for (int j = 0; j < LANES; j += 4)
          v_four_columns(rows, j * (int64_t)sizeof(real), to[i + j] + r, SORTED);
    }
  }
  return equal;
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

/* k numbers. */
SMI void write_sorted(const real *number, int64_t k, int64_t *index) {
  typedef real eight __attribute__((vector_size(8 * sizeof(real))));
  typedef int32_t eight_32 __attribute__((vector_size(32)));
  typedef int64_t eight_64 __attribute__((vector_size(64)));
  if (k != 8) {
    for (int64_t j = 0; j < k; j++) index[j] = (int64_t)number[j];
    return;
  }
  eight x;
  memcpy(&x, number, sizeof x);
  const eight_64 whole = __builtin_convertvector(__builtin_convertvector(x, eight_32), eight_64);
  memcpy(index, &whole, sizeof whole);
}

/* Whether the network sorts what is near. */
SMI bool may_sort(const contest *t) { return t->good && t->count >= t->g->k && t->count <= SORTED; }

/* The network takes as long for one token as for all, and about as long as a few take one by
 * one. */
NOINLINE void write_indices(const contest *t, int count, int64_t *index) {
  enum { FEW = GATE_TOGETHER / 4 };
  const int64_t k = t->g->k;
  real number[GATE_TOGETHER][SORTED];
  uint32_t alone = ~0u;
  int may = 0;
  for (int i = 0; i < count; i++) may += may_sort(t + i);
  if (sort_pays(k) && (may >= FEW || may == count)) alone = sort_all(t, number);
  for (int i = 0; i < count; i++, t++, index += k, alone >>= 1) {
    int64_t found = 0;
    if (may_sort(t) && !(alone & 1)) {
      write_sorted(number[i], k, index);
      continue;
    }
    if (t->good && t->count < 0) found = t->found;
    else if (t->good) {
      int64_t sorted[GATE_NEAR + 1];
      sort_near(t, sorted);
      for (; found < k && found < t->count; found++) index[found] = sorted[found];
    }
    for (; found < k; found++) index[found] = -1;
  }
}

/* What is near, of tokens whose keys are in the cache together, or the best. */
SMI void find_near(contest *t, int count, const real *z, const real *score, const real *bias, bool plain,
                   int64_t *index) {
  make_keys(t, count, z, score, bias, plain);
  if (t->g->groups > 1) score_groups(t, count), take_groups(t, count);
  if (t->g->k <= SURE && t->g->experts <= MOST_EXACT) take_bars(t, count), take_near(t, count);
  else
    for (int i = 0; i < count; i++) t[i].count = -1;
  for (int i = 0; i < count; i++)
    if (t[i].count < 0) t[i].found = insert_all(t + i, index + i * t->g->k);
}

static void choose(const gate_choice *g, const void *logits, const void *score, const void *bias,
                   int64_t count, void *work, int64_t *index, bool *good) {
  const bool plain = !bias || !has_nan(bias, g->experts);
  const int step = gate_step(g);
  contest t[GATE_TOGETHER];
  open_contests(g, logits, work, t);
  for (int64_t from = 0; from < count; from += GATE_TOGETHER) {
    const int m = (int)(count - from < GATE_TOGETHER ? count - from : GATE_TOGETHER);
    for (int i = 0; i < m; i += step) {
      const int64_t at = (from + i) * g->experts;
      find_near(t + i, m - i < step ? m - i : step, (const real *)logits + at,
                score ? (const real *)score + at : NULL, bias, plain, index + (from + i) * g->k);
    }
    for (int i = m; i < GATE_TOGETHER; i++) empty_near(t + i);
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
