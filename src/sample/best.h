/* sample/best.h - the argmax of perturbed scores: x / T + Gumbel, whose argmax is a draw from softmax(x / T); or of x alone, which is greedy.
 *
 * Keys are doubles, of equal ones the first wins. No other element's noise depends on which elements take part, so truncation leaves the draw
 * among the others as it was, and pieces of a row can be searched apart. Most elements need no logarithm, many no random word: a Gumbel variate
 * is at most 36.75, and above d >= 0 only if 1 - u < e^-d. */
#ifndef SMX_SAMPLE_BEST_H
#define SMX_SAMPLE_BEST_H
#include "philox.h"
#include "walk.h"

typedef struct search {
  double key;
  int64_t index; /* -1: nothing valid yet */
  double x;
  bool far, nan; /* far: the best is a +inf, and only those compete */
} search;

#define BEST_NONE ((search){.key = -__builtin_inf(), .index = -1})

SMI search best_of(search a, search b) { /* a is of earlier elements */
  search r = a.far != b.far ? (a.far ? a : b) : b.key > a.key || a.index < 0 ? b : a;
  r.nan = a.nan || b.nan;
  return r;
}

/* 2^-k with k = floor(1.44 d), which is a little more than e^-d; d >= 0. */
SMI double best_bound(double d) {
  uint64_t bits = (uint64_t)(1023 - (d < 600 ? (int)(1.44 * d) : 864)) << 52;
  double y;
  memcpy(&y, &bits, sizeof y);
  return y;
}

/* Puts an element with its random word up against the best so far. */
SMI void best_try(search *b, double x, double score, int64_t index, uint64_t word) {
  double d = b->key - score;
  if (d >= 1 && 1 - uniform_of(word) >= best_bound(d)) return;
  double key = score + gumbel_of(word);
  if (key > b->key || b->index < 0) b->key = key, b->index = index, b->x = x;
}

/* n elements of which the first is number `first`, an even one. d NULL: greedy. */
static inline search best_group(const real *x, size_t n, int64_t first, double temperature, const draws *d, search b) {
  for (size_t i = 0; i < n; i += 2) {
    uint64_t words[2] = {0, 0};
    bool drawn = false;
    for (size_t j = i; j < n && j < i + 2; j++) {
      double v = (double)x[j], score = v / temperature;
      b.nan |= v != v;
      bool far = v > (double)R_MAX;
      if (far && !b.far) b = (search){.key = -__builtin_inf(), .index = -1, .far = true, .nan = b.nan};
      if (b.far) score = far ? 0 : -__builtin_inf();
      if (!(v > -__builtin_inf()) || (b.far && !far)) continue;
      if (!d) {
        score = b.far ? 0 : v;
        if (score > b.key || b.index < 0) b.key = score, b.index = first + (int64_t)j, b.x = v;
        continue;
      }
      if (b.index >= 0 && score + GUMBEL_MOST < b.key) continue;
      if (!drawn) draw_block(d, (uint64_t)(first + (int64_t)i) >> 1, words), drawn = true;
      best_try(&b, v, score, first + (int64_t)j, words[j - i]);
    }
  }
  return b;
}

/* A search as a row program: the state's carry, key, carry2, far and nan are key, index, x, far and nan of the best. */
SMI search best_in(const row_state *st) {
  return (search){.key = st->carry, .index = (int64_t)st->key, .x = st->carry2, .far = st->far, .nan = st->nan};
}
SMI void best_to(row_state *st, search b) {
  st->carry = b.key, st->key = (uint64_t)b.index, st->carry2 = b.x;
  st->far = b.far, st->nan = b.nan;
}
static inline void best_begin(row_state *st) {
  best_to(st, BEST_NONE);
  st->mode = 0;
  st->writes = st->reverse = st->serial = st->empty = false;
}
static inline void best_pass(const row_call *c, row_part *parts, double temperature, const draws *d) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin);
  search b = BEST_NONE;
  for (size_t g = 0; g * GROUP < c->count; g++) {
    b = best_group(x + g * GROUP, group_size(g * GROUP, c->count), (int64_t)(c->start + g * GROUP), temperature, d, b);
    parts[g] = (row_part){.other = b.key, .index = b.index, .top_x = b.x, .sum = b.far, .nan = b.nan};
  }
}
static inline void best_fold(row_state *st, const row_part *parts, size_t count) {
  search b = best_in(st);
  for (size_t g = 0; g < count; g++) {
    const row_part *p = parts + g;
    b = best_of(b, (search){.key = p->other, .index = p->index, .x = p->top_x, .far = p->sum != 0, .nan = p->nan});
  }
  best_to(st, b);
}

#endif
