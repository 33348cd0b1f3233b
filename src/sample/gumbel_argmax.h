/* sample/gumbel_argmax.h - the argmax of perturbed scores x / T + Gumbel, which is a draw from
 * softmax(x / T); or the argmax of x alone, which is greedy.
 *
 * Keys are doubles; of equal keys the first wins. The noise of an element does not depend on which
 * others take part, so truncation leaves the draw among the others as it was, and pieces of a row
 * can be searched separately. Most elements need no logarithm, many no random word: a Gumbel
 * variate is at most 36.75, and above d >= 0 only if 1 - u < e^-d. */
#ifndef SMX_SAMPLE_GUMBEL_ARGMAX_H
#define SMX_SAMPLE_GUMBEL_ARGMAX_H
#include "loops.h"
#include "philox_simd.h"

typedef struct search {
  double key;
  int64_t index; /* -1: nothing valid yet */
  double x;
  bool has_pos_inf, nan; /* has_pos_inf: the best is a +inf, and only those compete */
} search;

#define ARGMAX_NONE ((search){.key = -__builtin_inf(), .index = -1})

SMI search argmax_of(search a, search b) { /* a is of earlier elements */
  search r = a.has_pos_inf != b.has_pos_inf ? (a.has_pos_inf ? a : b) : b.key > a.key || a.index < 0 ? b : a;
  r.nan = a.nan || b.nan;
  return r;
}

/* A little more than e^-d, d >= 0: 2^-k (1 + f), of which the line between two powers of two is
 * never less than the curve. */
SMI double argmax_bound(double d) {
  const double t = 1.44 * (d < 600 ? d : 600), k = (double)(int)t;
  uint64_t bits = (uint64_t)(1023 - (int)t - 1) << 52;
  double half;
  memcpy(&half, &bits, sizeof half); /* 2^-(k + 1) */
  return half * (2 - (t - k));
}

/* Compares an element, with its random word, with the best so far. */
SMI void argmax_try(search *b, double x, double score, int64_t index, uint64_t word) {
  double d = b->key - score;
  if (d >= 1 && 1 - uniform_of(word) >= argmax_bound(d)) return;
  double key = score + gumbel_of(word);
  if (key > b->key || b->index < 0) b->key = key, b->index = index, b->x = x;
}

/* Which of WORDS elements may beat the best so far: those with 1 - u < e^-d, computed in the real
 * type with room for its rounding. Those that may are tested in double, so the filter does not
 * change the result. False: some element or the best so far is out of the filter's range. */
enum { ARGMAX_ORDINARY = 1000 };
static inline bool argmax_sift(const real *x, double temperature, const draws *d, uint64_t block,
                               const search *b, uint32_t *may) {
  const vreal key = v_set1((real)b->key), slope = v_set1((real)(1 / temperature)),
              most = v_set1((real)(GUMBEL_MOST + 0.01));
  real rest[WORDS];
  vmask bad = v_lt(key, key), near = bad;
  if (b->index < 0 || b->has_pos_inf || temperature < 1e-30 ||
      !(b->key < ARGMAX_ORDINARY && b->key > -ARGMAX_ORDINARY))
    return false;
  for (size_t i = 0; i < WORDS; i += LANES) {
    vreal v = v_load(x + i);
    bad = m_or(bad, m_not(v_lt(v, v_set1(R_INF))));
    near = m_or(near, v_lt(v_sub(key, v_mul(v, slope)), most));
  }
  if (m_any(bad)) return false;
  for (int j = 0; j < WORDS / LANES; j++) may[j] = 0;
  if (!m_any(near)) return true;
  philox_rest(d, block, rest);
  for (size_t i = 0; i < WORDS; i += LANES) {
    vreal away = v_sub(key, v_mul(v_load(x + i), slope)),
          bound = v_mul(v_exp(v_sub(v_set1(0), away)), v_set1((real)1.01));
    may[i / LANES] = m_bits(m_and(v_lt(v_load(rest + i), bound), v_lt(away, most)));
  }
  return true;
}

/* Compares elements first .. first + n - 1 with the best so far; first is even. d NULL: greedy. */
static inline void argmax_few_of(const real *x, size_t n, int64_t first, double temperature, const draws *d,
                                 search *b) {
  uint32_t may[WORDS / LANES];
  if (d && n == WORDS && argmax_sift(x, temperature, d, (uint64_t)first >> 1, b, may)) {
    for (size_t i = 0; i < n; i += LANES)
      for (uint32_t left = may[i / LANES]; left; left &= left - 1) {
        const size_t j = i + (size_t)__builtin_ctz(left);
        argmax_try(b, (double)x[j], temperature == 1 ? (double)x[j] : (double)x[j] / temperature,
                   first + (int64_t)j, draw_word(d, (uint64_t)first + j));
      }
    return;
  }
  for (size_t i = 0; i < n; i++) {
    double v = (double)x[i], score = temperature == 1 ? v : v / temperature;
    b->nan |= v != v;
    bool has_pos_inf = v > (double)R_MAX;
    if (has_pos_inf && !b->has_pos_inf)
      *b = (search){.key = -__builtin_inf(), .index = -1, .has_pos_inf = true, .nan = b->nan};
    if (b->has_pos_inf) score = has_pos_inf ? 0 : -__builtin_inf();
    if (!(v > -__builtin_inf()) || (b->has_pos_inf && !has_pos_inf)) continue;
    if (!d) {
      score = b->has_pos_inf ? 0 : v;
      if (score > b->key || b->index < 0) b->key = score, b->index = first + (int64_t)i, b->x = v;
      continue;
    }
    if (b->index >= 0 && score + GUMBEL_MOST < b->key) continue;
    argmax_try(b, v, score, first + (int64_t)i, draw_word(d, (uint64_t)first + i));
  }
}

/* The best without noise of elements below +inf: the largest, then where it is first. False: there
 * is a NaN or +inf among them. */
static inline bool argmax_plain(const real *x, size_t n, int64_t first, search *b) {
  enum { SIDE = 4 };
  vreal most[SIDE];
  vmask bad = v_lt(v_set1(0), v_set1(0));
  size_t i = 0;
  if (b->has_pos_inf) return false;
  for (int s = 0; s < SIDE; s++) most[s] = v_set1(-R_INF);
  for (; i + SIDE * LANES <= n; i += SIDE * LANES)
#pragma GCC unroll 4
    for (size_t s = 0; s < SIDE; s++) {
      const vreal v = v_load(x + i + s * LANES);
      bad = m_or(bad, m_not(v_lt(v, v_set1(R_INF))));
      most[s] = v_max(v, most[s]);
    }
  for (; i < n; i += LANES) {
    const vreal v = n - i < LANES ? v_load_n(x + i, (int)(n - i), -R_INF) : v_load(x + i);
    bad = m_or(bad, m_not(v_lt(v, v_set1(R_INF))));
    most[0] = v_max(v, most[0]);
  }
  if (m_any(bad)) return false;
  const real top = v_hmax(v_max(v_max(most[0], most[1]), v_max(most[2], most[3])));
  if (!(top > -R_INF) || !((double)top > b->key || b->index < 0)) return true;
  for (i = 0; x[i] != top;)
    i += m_any(v_eq(v_load_n(x + i, n - i < LANES ? (int)(n - i) : LANES, -R_INF), v_set1(top))) ? 1 : LANES;
  b->key = b->x = (double)x[i], b->index = first + (int64_t)i;
  return true;
}

/* n elements of which the first is number `first`, an even one. */
static inline search argmax_group(const real *x, size_t n, int64_t first, double temperature, const draws *d,
                                  search b) {
  if (!d && argmax_plain(x, n, first, &b)) return b;
  for (size_t i = 0; i < n; i += WORDS) {
    size_t count = n - i < WORDS ? n - i : WORDS;
    argmax_few_of(x + i, count, first + (int64_t)i, temperature, d, &b);
  }
  return b;
}

/* A search as a row program: the first member of the own struct is the best so far. */
ROW_OWN_STATE(search, argmax_best)
static inline void argmax_begin(row_state *st) {
  *argmax_best(st) = ARGMAX_NONE;
  st->mode = 0;
  st->writes = st->reverse = st->serial = st->empty = st->nan = false;
}
/* Greedy, groups begin with the best of those that have been merged: an element is looked for only
 * where it is better. */
static inline void argmax_pass(const row_call *c, row_state *st, row_part *parts, double temperature,
                               const draws *d) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin);
  search b = d ? ARGMAX_NONE : *argmax_best(st);
  for (size_t g = 0; g * GROUP < c->count; g++) {
    b = argmax_group(x + g * GROUP, group_size(g * GROUP, c->count), (int64_t)(c->start + g * GROUP),
                     temperature, d, b);
    parts[g] = (row_part){.other = b.key, .index = b.index, .top_x = b.x, .sum = b.has_pos_inf, .nan = b.nan};
  }
}
static inline void argmax_merge(row_state *st, const row_part *parts, size_t count) {
  search b = *argmax_best(st);
  for (size_t g = 0; g < count; g++) {
    const row_part *p = parts + g;
    b = argmax_of(
        b, (search){
               .key = p->other, .index = p->index, .x = p->top_x, .has_pos_inf = p->sum != 0, .nan = p->nan});
  }
  *argmax_best(st) = b;
}

#endif
