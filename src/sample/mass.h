/* sample/mass.h - the first elements, best key first, that have a share of a row's mass (top-p, typical), without sorting the row.
 *
 * The bar is the largest number such that the terms whose key is not below it sum to the target. The sum runs in the lanes of the contract and its
 * groups are added in double; over fewer elements of one row it is never larger, so the bar is well defined, and any guess can be checked by one
 * pass. Guesses come from a sample of the row: bars about its own share of the mass, one pass that sums above each of them, and a search
 * among the few per cent of the elements between two. How they are found does not show in the result. */
#ifndef SMX_SAMPLE_MASS_H
#define SMX_SAMPLE_MASS_H
#include "chain.h"

enum { MASS_BEST = 256, MASS_SAMPLE = 512, MASS_BARS = 6, MASS_LIST = 32 };

typedef struct mass_search {
  const real *keys, *terms;
  size_t n;
  double target;
  rbits from, to; /* keys: not below `from` lies the target's mass, above `to` less */
  real *room;     /* for 2 n / 2 */
} mass_search;

/* The terms whose key is not below the bar, and above it. */
NOINLINE void mass_at(const mass_search *m, real bar, double sums[2]) {
  const vreal low = v_set1(bar), zero = v_set1(0);
  sums[0] = sums[1] = 0;
  for (size_t g = 0; g < m->n; g += GROUP) {
    vreal acc[VPB], above[VPB];
    UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = above[u] = zero;
#define STEP(u, i, cnt) \
  { \
    const vreal key = at(m->keys, i, cnt), e = at(m->terms, i, cnt); \
    acc[u] = v_add(acc[u], v_select(v_lt(key, low), zero, e)); \
    above[u] = v_add(above[u], v_select(v_lt(low, key), e, zero)); \
  }
    WALK(g, group_size(g, m->n), STEP)
#undef STEP
    sums[0] += (double)v_fold(acc), sums[1] += (double)v_fold(above);
  }
}

/* Whether the bar is the one; if not, what that says of where it is. */
static inline bool mass_is(mass_search *m, rbits bar, double *above) {
  double sums[2];
  mass_at(m, select_value(bar), sums);
  *above = sums[1];
  if (sums[0] < m->target) m->to = bar - 1;
  else if (bar < m->to && sums[1] >= m->target) m->from = bar + 1;
  else return true;
  return false;
}

/* ---- guesses: sums in any order ---- */

/* Sums above several bars. */
NOINLINE void mass_bars(const real *keys, const real *terms, size_t n, const real *bars, double *above) {
  const vreal zero = v_set1(0);
  for (int b = 0; b < MASS_BARS; b++) above[b] = 0;
  for (size_t g = 0; g < n; g += GROUP) {
    vreal acc[MASS_BARS], bar[MASS_BARS];
    for (int b = 0; b < MASS_BARS; b++) acc[b] = zero, bar[b] = v_set1(bars[b]);
    for (size_t i = g; i < g + group_size(g, n); i += LANES) {
      int cnt = lanes_left(n - i);
      const vreal key = at(keys, i, cnt), e = at(terms, i, cnt);
#pragma GCC unroll 8
      for (int b = 0; b < MASS_BARS; b++) acc[b] = v_add(acc[b], v_select(v_lt(key, bar[b]), zero, e));
    }
    for (int b = 0; b < MASS_BARS; b++) above[b] += (double)v_hsum(acc[b]);
  }
}

/* Bars about where a sample of the row has its share of the mass, highest first. */
NOINLINE void mass_guess(const mass_search *m, double share, real *bars) {
  static const double away[MASS_BARS] = {-3, -1, -0.3, 0.3, 1, 3}; /* in deviations */
  real key[MASS_SAMPLE];
  int64_t place[MASS_SAMPLE];
  double sum = 0, squares = 0, before = 0;
  for (size_t i = 0; i < MASS_SAMPLE; i++) {
    size_t j = m->n / MASS_SAMPLE * i;
    double e = (double)m->terms[j];
    key[i] = m->keys[j], place[i] = (int64_t)j;
    sum += e, squares += e * e;
  }
  pick_sort(key, place, MASS_SAMPLE);
  double deviation = sum > 0 ? __builtin_sqrt(share * (1 - share) * squares) / sum + 1e-9 : 0;
  size_t i = 0;
  for (int b = 0; b < MASS_BARS; b++) {
    while (i + 1 < MASS_SAMPLE && before + (double)m->terms[place[i]] < (share + away[b] * deviation) * sum)
      before += (double)m->terms[place[i++]];
    bars[b] = key[i];
  }
}

/* Elements between two keys, put together in the room: keys, then terms. False if there are more than half of all. */
NOINLINE bool mass_gather(const mass_search *m, real low, real high, size_t *count) {
  const size_t most = m->n / 2;
  size_t n = 0;
  for (size_t i = 0; i < m->n; i += LANES) {
    int cnt = lanes_left(m->n - i);
    const vreal key = at(m->keys, i, cnt);
    uint32_t in = m_bits(m_and(m_not(m_or(v_lt(key, v_set1(low)), v_lt(v_set1(high), key))), lanes_below(cnt)));
    if (in && n + LANES > most) return false;
    for (; in; in &= in - 1) {
      size_t j = i + (size_t)__builtin_ctz(in);
      m->room[n] = m->keys[j], m->room[most + n++] = m->terms[j];
    }
  }
  *count = n;
  return true;
}

/* Of the n gathered, between two keys, drops those that the bar cannot be until a list of them is left; base: the mass above all of them. */
NOINLINE size_t mass_narrow(const mass_search *m, size_t n, real low, real high, double *base) {
  real *keys = m->room, *terms = m->room + m->n / 2;
  rbits from = select_key(low), to = select_key(high);
  while (n > MASS_LIST && from < to) {
    const rbits middle = from + (to - from) / 2 + 1;
    const real bar = select_value(middle);
    double above = 0;
    for (size_t i = 0; i < n; i++) above += keys[i] >= bar ? (double)terms[i] : 0;
    const bool upper = *base + above >= m->target;
    if (upper) from = middle;
    else to = middle - 1, *base += above;
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
      keys[left] = keys[i], terms[left] = terms[i];
      left += (keys[i] >= bar) == upper;
    }
    n = left;
  }
  return n > MASS_LIST ? 1 : n; /* more are equal */
}

/* The list, best first, and where in it the bar should be. */
NOINLINE size_t mass_list(const mass_search *m, size_t n, double base, real *list) {
  real keys[MASS_LIST];
  int64_t place[MASS_LIST];
  size_t guess = 0;
  memcpy(keys, m->room, n * sizeof *keys);
  for (size_t i = 0; i < n; i++) place[i] = (int64_t)i;
  pick_sort(keys, place, n);
  memcpy(list, keys, n * sizeof *keys);
  while (guess + 1 < n && base + (double)m->room[m->n / 2 + (size_t)place[guess]] < m->target)
    base += (double)m->room[m->n / 2 + (size_t)place[guess++]];
  return guess;
}

/* What is known of where the bar is: between two values, with this mass above the higher. */
typedef struct mass_bracket {
  real low, high;
  double base;
} mass_bracket;

/* Draws the bracket together by what lies above some bars, highest first. */
static inline void mass_draw_in(const mass_search *m, const real *bars, mass_bracket *k) {
  double sums[MASS_BARS];
  mass_bars(m->keys, m->terms, m->n, bars, sums);
  for (int b = 0; b < MASS_BARS; b++) { /* sums grow with b */
    if (bars[b] > k->high || bars[b] <= k->low) continue;
    if (sums[b] >= m->target) {
      k->low = bars[b];
      return;
    }
    k->high = select_value(select_key(bars[b]) - 1), k->base = sums[b];
  }
}

/* The bar from a guess, or false. */
static inline bool mass_try(mass_search *m, double share, rbits *bar, double *above) {
  mass_bracket k = {select_value(m->from), select_value(m->to), 0};
  real bars[MASS_BARS], list[MASS_LIST];
  size_t n = 0;
  if (m->n < 4 * MASS_SAMPLE) return false;
  mass_guess(m, share, bars);
  mass_draw_in(m, bars, &k);
  if (k.low > -R_MAX && k.low < k.high) {
    for (int b = 0; b < MASS_BARS; b++) bars[b] = k.high - (k.high - k.low) * ((real)(b + 1) / (MASS_BARS + 1));
    mass_draw_in(m, bars, &k);
  }
  if (k.low > k.high || !mass_gather(m, k.low, k.high, &n)) return false;
  if (k.base == 0) { /* nothing is known of what is above */
    double above_high[2];
    mass_at(m, k.high, above_high);
    k.base = above_high[1];
  }
  n = mass_narrow(m, n, k.low, k.high, &k.base);
  if (n == 0) return false;
  for (size_t i = mass_list(m, n, k.base, list);;) {
    *bar = select_key(list[i]);
    if (*bar < m->from || *bar > m->to) return false;
    if (mass_is(m, *bar, above)) return true;
    if (m->to < *bar ? ++i == n : i-- == 0) return false;
  }
}

/* The last element that is kept, by its key and, of equal ones, its number. to: a key above which the target's mass does not lie. */
static inline struct row_pick mass_find(const chain *w, const real *keys, double share, double target, real to) {
  mass_search m = {keys, w->terms, w->n, target, select_key(-R_MAX), select_key(to), w->room};
  rbits bar;
  double sum;
  if (!mass_try(&m, share, &bar, &sum)) {
    do bar = m.from + (m.to - m.from) / 2 + (m.from < m.to);
    while (!mass_is(&m, bar, &sum) && m.from <= m.to);
  }
  struct row_pick found = {.value = (double)select_value(bar)};
  for (size_t i = 0; i < m.n && sum < target; i += LANES) {
    int cnt = lanes_left(m.n - i);
    uint32_t equal = m_bits(m_and(v_eq(at(keys, i, cnt), v_set1((real)found.value)), lanes_below(cnt)));
    for (; equal && sum < target; equal &= equal - 1) {
      found.limit = (int64_t)(i + (size_t)__builtin_ctz(equal));
      sum += (double)w->terms[found.limit];
    }
  }
  return found;
}

#endif
