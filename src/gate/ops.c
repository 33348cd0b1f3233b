/* gate/ops.c - which experts take a token (gate.h). Compiled once per instruction set and real
 * type. Only comparisons, so nothing here rounds but a score with its bias, and the sum of a
 * group's two best. */
#include "compress.h"
#include "engine/loops.h"
#include "math.h"
#include "mixture.h"

/* Each of SURE maxima is one element, so the k-th of them is a bar that k elements reach; NEAR:
 * elements that usually do. */
enum { SURE = 16, SUMS = SURE / LANES, NEAR = 64 };
#define MOST_EXACT (1 << 24) /* whole numbers that a real holds */
#define EACH_SUM(u) _Pragma("GCC unroll 16") for (int u = 0; u < SUMS; u++)

/* Some elements in index order, with -inf behind them. */
typedef struct near {
  real x[NEAR + SURE], index[NEAR + SURE];
  int count;
} near;

/* How many of LANES elements from j on come before element i, which is better than later equals. */
SMI int before_in(const near *s, int i, vreal x, int j) {
  const vreal y = v_load(s->x + j);
  const uint32_t earlier = j + LANES <= i ? ~0u : j < i ? (1u << (i - j)) - 1 : 0;
  return __builtin_popcount(m_bits(v_lt(x, y)) | (m_bits(v_eq(x, y)) & earlier));
}
SMI int before(const near *s, int i) {
  const vreal x = v_set1(s->x[i]);
  int count = before_in(s, i, x, 0);
  for (int j = LANES; j < s->count; j += LANES) count += before_in(s, i, x, j);
  return count;
}

/* The k-th largest of SURE maxima of n elements, n a multiple of SURE: the least of those that
 * fewer than k are above. */
SMI real bar_of(const real *x, int64_t n, int64_t k) {
  const vreal one = v_set1(1), none = v_set1(R_INF), wanted = v_set1((real)k);
  real most[SURE];
  vreal max[SUMS], above[SUMS], bar = none;
  EACH_SUM(u) max[u] = v_load(x + u * LANES), above[u] = v_set1(0);
  for (int64_t i = SURE; i < n; i += SURE) EACH_SUM(u) max[u] = v_max(max[u], v_load(x + i + u * LANES));
  EACH_SUM(u) v_store(most + u * LANES, max[u]);
  for (int j = 0; j < SURE; j++) {
    const vreal other = v_set1(most[j]);
    EACH_SUM(u) above[u] = v_add(above[u], v_select(v_lt(max[u], other), one, v_set1(0)));
  }
  EACH_SUM(u) bar = v_min(bar, v_select(v_lt(above[u], wanted), max[u], none));
  return v_hmin(bar);
}

/* Elements above -inf that reach the bar; false if they are too many. n is a multiple of SURE. */
SMI bool take_near(const real *x, int64_t n, real bar, near *s) {
  const vreal least = v_set1(bar), none = v_set1(-R_INF);
  vreal number = v_iota();
  int count = 0; /* in a register */
  for (int64_t i = 0; i < n; i += LANES, number = v_add(number, v_set1(LANES))) {
    const vreal v = v_load(x + i);
    const vmask m = m_and(m_not(v_lt(v, least)), v_lt(none, v));
    if (count > NEAR - LANES) return false;
    v_compress(s->index + count, m, number);
    count += v_compress(s->x + count, m, v);
  }
  v_store(s->x + count, none);
  s->count = count;
  return true;
}

/* Any k of any n: each element moves up past smaller ones. */
NOINLINE int64_t insert_all(const real *x, int64_t n, int64_t k, real *best, int64_t *index) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!(x[i] > (count < k ? -R_INF : best[k - 1]))) continue;
    int64_t p = count < k ? count++ : k - 1;
    for (; p > 0 && best[p - 1] < x[i]; p--) best[p] = best[p - 1], index[p] = index[p - 1];
    best[p] = x[i], index[p] = i;
  }
  return count;
}

/* The index of the k best of n elements above -inf, n a multiple of SURE; how many there are. best:
 * room for k. */
static int64_t find_best(const real *x, int64_t n, int64_t k, real *best, int64_t *index) {
  near s;
  real sorted[NEAR];
  if (k > SURE || n > MOST_EXACT || !take_near(x, n, n > SURE ? bar_of(x, n, k) : -R_INF, &s))
    return insert_all(x, n, k, best, index);
  const int64_t count = s.count < k ? s.count : k;
  for (int i = 0; i < s.count; i++) sorted[before(&s, i)] = s.index[i];
  for (int64_t j = 0; j < count; j++) index[j] = (int64_t)sorted[j];
  return count;
}

/* What experts are compared by, with -inf behind them; false: a NaN. An expert with logit -inf does
 * not exist, whatever its bias. */
static bool make_keys(const gate_choice *g, const real *logits, real *score, const real *bias, real *key) {
  const vreal none = v_set1(-R_INF);
  const size_t n = (size_t)g->experts;
  vmask good = v_eq(none, none);
  for (size_t i = n / LANES * LANES; i < (size_t)gate_padded((int64_t)n); i += LANES) v_store(key + i, none);
  for (size_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left(n - i);
    v_prefetch(logits + n + i); /* the next token's */
    const vreal z = v_load_n(logits + i, cnt, -R_INF);
    vreal s = z;
    if (score && g->sigmoid) s = v_sigmoid(z), v_store_n(score + i, cnt, s);
    else if (score) s = v_load_n(score + i, cnt, -R_INF);
    if (bias) s = v_add(s, v_load_n(bias + i, cnt, 0));
    good = m_and(good, v_eq(s, s));
    v_store(key + i, v_select(v_lt(none, z), s, none));
  }
  return !m_any(m_not(good));
}

/* A second best that is not there counts nothing. */
SMI real group_score(const real *key, size_t n, bool two) {
  vreal first = v_set1(-R_INF), second = first;
  for (size_t i = 0; i < n; i += LANES) {
    const vreal x = v_load_n(key + i, lanes_left(n - i), -R_INF);
    second = v_max(second, v_min(first, x));
    first = v_max(first, x);
  }
  const real best = v_hmax(first);
  if (!two) return best;
  const int lane = __builtin_ctz(m_bits(v_eq(first, v_set1(best))));
  const real next = v_hmax(v_select(v_eq(v_iota(), v_set1((real)lane)), second, first));
  return next > -R_INF ? best + next : best;
}

/* Experts of groups that do not take part are no more. score, best: room for the groups. */
static void leave_groups(const gate_choice *g, real *key, real *score, real *best, int64_t *index) {
  const int64_t size = g->experts / g->groups, padded = gate_padded(g->groups);
  for (int64_t i = 0; i < g->groups; i++) score[i] = group_score(key + i * size, (size_t)size, g->two);
  for (int64_t i = g->groups; i < padded; i++) score[i] = -R_INF;
  const int64_t count = find_best(score, padded, g->top_groups, best, index);
  for (int64_t i = 0; i < g->groups; i++) score[i] = -R_INF;
  for (int64_t i = 0; i < count; i++) score[index[i]] = R_INF;
  for (int64_t i = 0; i < g->groups; i++)
    for (int64_t j = 0; j < size; j += LANES) {
      const int cnt = lanes_left((size_t)(size - j));
      real *at_j = key + i * size + j;
      v_store_n(at_j, cnt, v_min(v_load_n(at_j, cnt, 0), v_set1(score[i])));
    }
}

static bool choose(const gate_choice *g, const void *logits, void *score, const void *bias, void *work,
                   int64_t *index) {
  const int64_t padded = gate_padded(g->experts), groups = gate_padded(g->groups);
  real *key = work, *best = key + padded, *group = best + gate_padded(g->k);
  int64_t count = 0;
  const bool good = make_keys(g, logits, score, bias, key);
  if (good && g->groups > 1)
    leave_groups(g, key, group, group + groups, (int64_t *)(void *)(group + 2 * groups));
  if (good) count = find_best(key, padded, g->k, best, index);
  for (int64_t i = count; i < g->k; i++) index[i] = -1;
  return good;
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
                                           SMX_FN(gate_dot),
                                           SMX_FN(gate_entropy)};
