/* sample/top_p.h - the first elements, best key first, that hold a share of a row's mass (top-p,
 * typical), without sorting the row.
 *
 * The bar is the largest number such that the terms whose key is not below it sum to the target.
 * The sum runs in the lanes of the contract and its groups are added in double; over fewer elements
 * of a row it is never larger, so the bar is well defined, and any guess can be checked by one
 * pass. A sample of the row gives an interval of keys that should contain the bar. One pass then
 * sums the terms above the interval and collects the elements within it, a few per cent of the row,
 * where the search continues. The result does not depend on how it is found. */
#ifndef SMX_SAMPLE_TOP_P_H
#define SMX_SAMPLE_TOP_P_H
#include "sampler.h"
#include "compress.h"

enum { TOP_P_BEST = 256, TOP_P_SAMPLE = 4096, TOP_P_BARS = 6, TOP_P_LIST = 32, TOP_P_ROUNDS = 3 };

typedef struct top_p_search {
  const real *keys, *terms;
  size_t n;
  double sum, target;    /* of all terms, and what is to be reached */
  rbits from, to;        /* keys: not below `from` lies the target's mass, above `to` less */
  void *room;            /* 8 n bytes */
  const sampler *scores; /* whose scores the keys are, so that terms can be formed from them; or NULL */
} top_p_search;

/* The sums of the terms whose key is not below the bar, and of those above it. The sums of the
 * former's groups are then in room. */
NOINLINE void top_p_at(const top_p_search *m, real bar, double sums[2]) {
  const vreal low = v_set1(bar), zero = v_set1(0);
  sampler_sums *groups = m->room;
  sums[0] = sums[1] = 0;
  for (size_t g = 0; g < m->n; g += GROUP) {
    vreal acc[VPB], above[VPB];
    v_sum64 total = {{{0}}};
    fetcher next = fetch_from(g, fetches_straight());
    UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = above[u] = zero;
#define STEP(u, i, cnt) \
  { \
    const size_t ahead = fetch_next(&next, u, i); \
    v_prefetch_far(m->keys + ahead), v_prefetch_far(m->terms + ahead); \
    const vreal key = at(m->keys, i, cnt), e = at(m->terms, i, cnt), in = v_select(v_lt(key, low), zero, e); \
    acc[u] = v_add(acc[u], in); \
    above[u] = v_add(above[u], v_select(v_lt(low, key), e, zero)); \
    v_sum64_add(&total, in); \
  }
    FOR_EACH_VECTOR(g, group_size(g, m->n), STEP)
#undef STEP
    groups[g / GROUP] = (sampler_sums){(double)v_fold(acc), v_sum64_total(&total)};
    sums[0] += groups[g / GROUP].lanes, sums[1] += (double)v_fold(above);
  }
}

/* Whether the bar is right; if not, on which side of it the right one is. */
static inline bool top_p_is(top_p_search *m, rbits bar, double *above) {
  double sums[2];
  top_p_at(m, radix_value(bar), sums);
  *above = sums[1];
  if (sums[0] < m->target) m->to = bar - 1;
  else if (bar < m->to && sums[1] >= m->target) m->from = bar + 1;
  else return true;
  return false;
}

/* ---- guesses: sums in any order ---- */

/* Some elements, of the row or of a part of it. */
typedef struct top_p_part {
  const real *keys, *terms;
  size_t n;
} top_p_part;

/* What is known about the bar: it is between two keys. */
typedef struct top_p_bracket {
  real low, high;
  double base; /* above the part of the row that is looked at */
} top_p_bracket;

/* Sums above several bars. */
NOINLINE void top_p_bars(const top_p_part *p, const real *bars, double *above) {
  const vreal zero = v_set1(0);
  for (int b = 0; b < TOP_P_BARS; b++) above[b] = 0;
  for (size_t g = 0; g < p->n; g += GROUP) {
    vreal acc[TOP_P_BARS], bar[TOP_P_BARS];
    for (int b = 0; b < TOP_P_BARS; b++) acc[b] = zero, bar[b] = v_set1(bars[b]);
    for (size_t i = g; i < g + group_size(g, p->n); i += LANES) {
      int cnt = lanes_left(p->n - i);
      const vreal key = at(p->keys, i, cnt), e = at(p->terms, i, cnt);
#pragma GCC unroll 8
      for (int b = 0; b < TOP_P_BARS; b++) acc[b] = v_add(acc[b], v_select(v_lt(key, bar[b]), zero, e));
    }
    for (int b = 0; b < TOP_P_BARS; b++) above[b] += (double)v_hsum(acc[b]);
  }
}

/* Narrows the bracket, by bars from its upper end on: `least` is reached at its lower end, `most`
 * is not exceeded at the upper one. */
static inline void top_p_draw_in(const top_p_part *p, double least, double most, top_p_bracket *k) {
  double sums[TOP_P_BARS];
  real bars[TOP_P_BARS];
  for (int b = 0; b < TOP_P_BARS; b++) bars[b] = k->high - (k->high - k->low) * ((real)b / TOP_P_BARS);
  top_p_bars(p, bars, sums);
  for (int b = 0; b < TOP_P_BARS && bars[b] > k->low; b++) { /* sums grow with b */
    if (k->base + sums[b] < most) k->high = radix_value(radix_key(bars[b]) - 1);
    if (k->base + sums[b] < least) continue;
    k->low = bars[b];
    return;
  }
}

/* The least and the largest key of a part, but for -inf. */
NOINLINE top_p_bracket top_p_ends(const top_p_part *p) {
  vreal least = v_set1(R_INF), top = v_set1(-R_INF);
  for (size_t i = 0; i < p->n; i += LANES) {
    const vreal key = p->n - i < LANES ? v_load_n(p->keys + i, (int)(p->n - i), -R_INF) : v_load(p->keys + i);
    least = v_min(v_select(v_lt(v_set1(-R_INF), key), key, v_set1(R_INF)), least), top = v_max(key, top);
  }
  return (top_p_bracket){v_hmin(least), v_hmax(top), 0};
}

/* Collects the elements between the bracket's ends in room, keys and then terms; terms above are
 * added to its base. False if there are more than half as many as there is memory for. The part may
 * itself be in room. */
NOINLINE bool top_p_gather(const top_p_search *m, top_p_part *p, top_p_bracket *k) {
  const size_t most = 4 * m->n / sizeof(real);
  const vreal low = v_set1(k->low), high = v_set1(k->high), zero = v_set1(0);
  real *keys = m->room, *terms = keys + most;
  size_t n = 0;
  for (size_t g = 0; g < p->n; g += GROUP) {
    const size_t end = g + group_size(g, p->n);
    vreal above[VPB];
    UNROLL_BLOCK for (int u = 0; u < VPB; u++) above[u] = zero;
#define STEP(u, i, cnt) \
  { \
    const vreal key = at(p->keys, i, cnt), e = at(p->terms, i, cnt); \
    const vmask over = v_lt(high, key), out = m_or(v_lt(key, low), over); \
    above[u] = v_add(above[u], v_select(over, e, zero)); \
    const vmask in = (cnt) < LANES ? m_and(m_not(out), lanes_below(cnt)) : m_not(out); \
    if (!m->scores) v_compress(terms + n, in, e); \
    n += (size_t)v_compress(keys + n, in, key); \
  }
    size_t i = g;
    for (; i + BLOCK <= end && n + BLOCK <= most; i += BLOCK) {
      UNROLL_BLOCK for (int u = 0; u < VPB; u++) STEP(u, i + (size_t)u * LANES, LANES);
    }
    for (; i < end && n + LANES <= most; i += LANES) STEP(0, i, lanes_left(end - i));
#undef STEP
    if (i < end || n + LANES > most) return false;
    k->base += (double)v_fold(above);
  }
  for (size_t i = 0; i < n && m->scores; i += LANES)
    v_store(terms + i, sampler_term(m->scores, v_load(keys + i)));
  *p = (top_p_part){keys, terms, n};
  return true;
}

/* The bracket that a sample of the row gives: the sum of what is below the bar is known up to a few
 * deviations. */
NOINLINE void top_p_guess(const top_p_search *m, top_p_bracket *k) {
  enum { DEVIATIONS = 4 };
  real *keys = m->room, *terms = keys + TOP_P_SAMPLE;
  const top_p_part sample = {keys, terms, TOP_P_SAMPLE};
  vreal all = v_set1(0), squares = all;
  for (size_t i = 0; i < TOP_P_SAMPLE; i += LANES) {
    const size_t j = (m->n - LANES) / (TOP_P_SAMPLE / LANES) * (i / LANES);
    const vreal e = v_load(m->terms + j);
    v_store(keys + i, v_load(m->keys + j)), v_store(terms + i, e);
    all = v_add(all, e);
  }
  const double rest = (double)v_hsum(all) - (m->sum - m->target) * (TOP_P_SAMPLE / (double)m->n);
  const top_p_bracket ends = top_p_ends(&sample);
  top_p_bracket found = ends;
  if (!(ends.low < ends.high)) return;
  for (int i = 0; i < TOP_P_ROUNDS; i++) top_p_draw_in(&sample, rest, rest, &found);
  for (size_t i = 0; i < TOP_P_SAMPLE; i += LANES) {
    const vreal e = v_select(v_lt(v_load(keys + i), v_set1(found.high)), v_load(terms + i), v_set1(0));
    squares = v_fma(e, e, squares);
  }
  const double deviation = DEVIATIONS * __builtin_sqrt((double)v_hsum(squares));
  found = ends;
  for (int i = 0; i < TOP_P_ROUNDS; i++) top_p_draw_in(&sample, rest + deviation, rest - deviation, &found);
  if (found.low > ends.low) k->low = found.low;
  if (found.high < ends.high && found.high < k->high) k->high = found.high;
}

/* The list, best first, and where in it the bar should be. */
NOINLINE size_t top_p_list(const top_p_part *p, double base, double target, real *list) {
  int64_t place[TOP_P_LIST];
  size_t guess = 0;
  memcpy(list, p->keys, p->n * sizeof *list);
  for (size_t i = 0; i < p->n; i++) place[i] = (int64_t)i;
  topk_sort(list, place, p->n);
  while (guess + 1 < p->n && base + (double)p->terms[place[guess]] < target)
    base += (double)p->terms[place[guess++]];
  return guess;
}

/* A few elements that the bar should be one of, or many of one key: from a sample, or from the
 * whole row. */
static inline bool top_p_near(const top_p_search *m, bool sample, top_p_part *p, top_p_bracket *k) {
  if (sample) {
    top_p_guess(m, k);
  } else {
    const top_p_bracket ends = top_p_ends(p);
    k->low = ends.low, k->high = ends.high < k->high ? ends.high : k->high;
    for (int i = 0; i < TOP_P_ROUNDS && k->low < k->high; i++) top_p_draw_in(p, m->target, m->target, k);
  }
  while (top_p_gather(m, p, k)) {
    if (p->n <= TOP_P_LIST) return p->n > 0;
    const top_p_bracket ends = top_p_ends(p);
    k->low = ends.low, k->high = ends.high;
    if (k->low == k->high) return true;
    top_p_draw_in(p, m->target, m->target, k);
  }
  return false;
}

/* The bar, if it is one of a few elements. alone: it is the key of one element. */
static inline bool top_p_among(top_p_search *m, const top_p_part *p, double base, rbits *bar, double *above,
                               bool *alone) {
  real list[TOP_P_LIST];
  const top_p_part few = {p->keys, p->terms, p->n > TOP_P_LIST ? 1 : p->n};
  const size_t n = few.n;
  *alone = n == p->n;
  for (size_t i = top_p_list(&few, base, m->target, list);;) {
    *bar = radix_key(list[i]);
    if (*bar < m->from || *bar > m->to) return false;
    if (top_p_is(m, *bar, above)) {
      *alone = *alone && (i == 0 || list[i - 1] != list[i]) && (i + 1 == n || list[i + 1] != list[i]);
      return true;
    }
    if (m->to < *bar ? ++i == n : i-- == 0) return false;
  }
}

/* The bar by guesses from a sample, if there is one, then from the whole row. False: they were
 * wrong. */
static inline bool top_p_try(top_p_search *m, rbits *bar, double *above, bool *alone) {
  for (int sample = m->n >= 4 * TOP_P_SAMPLE; sample >= 0; sample--) {
    top_p_part p = {m->keys, m->terms, m->n};
    top_p_bracket k = {radix_value(m->from), radix_value(m->to), 0};
    if (top_p_near(m, sample, &p, &k) && top_p_among(m, &p, k.base, bar, above, alone)) return true;
  }
  return false;
}

/* The last element that is kept, by its key and, of equal ones, its number; or INT64_MAX where it
 * is the only one of its key. to: a key above which the target's mass does not lie. */
static inline struct row_cutoff top_p_find(const sampler *w, const real *keys, double target, real to) {
  top_p_search m = {keys,          w->terms, w->n,
                    w->sum,        target,   radix_key(-R_MAX),
                    radix_key(to), w->room,  keys == w->z ? w : NULL};
  rbits bar;
  double sum;
  bool alone = false;
  if (!top_p_try(&m, &bar, &sum, &alone)) {
    alone = false;
    do bar = m.from + (m.to - m.from) / 2 + (m.from < m.to);
    while (!top_p_is(&m, bar, &sum) && m.from <= m.to);
  }
  alone = alone && sum < target;
  struct row_cutoff found = {.value = (double)radix_value(bar), .limit = alone ? INT64_MAX : 0};
  for (size_t i = 0; !alone && i < m.n && sum < target; i += LANES) {
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
