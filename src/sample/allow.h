/* sample/allow.h - a row of which the last step allows a few tokens: they alone are copied, divided
 * and drawn from.
 *
 * Sums are those of the whole row, in which every other term is 0: a term is added in the lane, the
 * group and the block of its place. */
#ifndef SMX_SAMPLE_ALLOW_H
#define SMX_SAMPLE_ALLOW_H
#include "divide.h"
#include "sampler.h"

/* The allowed tokens of a row, a bit for each: a word is a block of the contract. */
typedef struct allowed {
  uint64_t *bits;
  uint32_t *before; /* tokens in earlier words */
  size_t words;
} allowed;

/* Puts the tokens, each once, in the order of the row at at[]: how many, or FEW + 1 of more than
 * FEW. */
static inline size_t allow_places(const smx_step *s, const allowed *a, int64_t at[FEW]) {
  size_t n = 0;
  memset(a->bits, 0, a->words * sizeof *a->bits);
  for (size_t i = 0; i < s->token_count; i++)
    a->bits[(uint64_t)s->tokens[i] / BLOCK] |= UINT64_C(1) << (uint64_t)s->tokens[i] % BLOCK;
  for (size_t i = 0; i < a->words; i++) {
    a->before[i] = (uint32_t)n;
    for (uint64_t left = a->bits[i]; left; left &= left - 1) {
      if (n == FEW) return FEW + 1;
      at[n++] = (int64_t)(i * BLOCK) + __builtin_ctzll(left);
    }
  }
  return n;
}

/* The sum of a group's terms in the lanes and the order of the contract, without number `skip`. */
static inline double allow_sum(const sampler *w, const allowed *a, size_t group, size_t skip) {
  enum { STEPS = PAGE / BLOCK, PAGES = GROUP / PAGE };
  real lanes[BLOCK] = {0};
  vreal acc[VPB];
  for (size_t step = 0; step < STEPS; step++)
    for (size_t page = 0; page < PAGES; page++) {
      const size_t word = (group * PAGES + page) * STEPS + step;
      size_t i = word < a->words ? a->before[word] : 0;
      for (uint64_t left = word < a->words ? a->bits[word] : 0; left; left &= left - 1, i++)
        if (i != skip) lanes[__builtin_ctzll(left)] += w->terms[i];
    }
  for (int u = 0; u < VPB; u++) acc[u] = v_load(lanes + u * LANES);
  return (double)v_fold(acc);
}

/* The sums of the row. */
static inline void allow_sums(sampler *w, const allowed *a) {
  const row_call c = {.n = w->n, .src = {w->z}};
  const span own = span_of(&c, 0);
  const consts none = {{0}};
  double other = 0;
  w->sum = 0;
  for (size_t g = 0; g * GROUP < w->row->n; g++) {
    const double sum = allow_sum(w, a, g, SIZE_MAX);
    w->sum += sum;
    other += (size_t)w->at[w->top_at] / GROUP == g ? allow_sum(w, a, g, w->top_at) : sum;
  }
  exp_finalize(&total_body, &own, &none, &w->r, w->sum, other);
  sampler_known(w, (double)r_clean(lse_of(&w->r)));
}

/* Takes the step if the row is ordinary and few tokens are allowed; else nothing is done. */
static inline bool sampler_allow_few(sampler *w, double temperature, const smx_step *s) {
  const real *const x = w->row->x;
  const divisor by = divisor_of(temperature);
  const size_t words = w->n / BLOCK + 1;
  const allowed a = {w->room, (uint32_t *)w->room + 2 * words, words};
  search best;
  if (w->n <= 2 * FEW || s->token_count > FEW || !sampler_best_plain(w->row, &best)) return false;
  if (!in_range((real)(best.x / temperature))) return false;
  const size_t n = allow_places(s, &a, w->at);
  if (n > FEW) return false;
  for (size_t i = 0; i < n; i++) w->z[i] = v_first(divide_by(&by, v_set1(x[w->at[i]])));
  const real top = topk_max(w->z, n, -R_INF);
  if (!in_range(top)) return false;
  w->n = n, w->closed = w->apart = true;
  w->r = (exp_row){.scale_exp = k_of(top) - 1, .top = top, .max = (double)top};
  while (w->z[w->top_at] != top) w->top_at++;
  sampler_terms(w);
  allow_sums(w, &a);
  return true;
}

/* draw_cdf for such a row: blocks as there. */
static inline size_t draw_apart(const sampler *w, double u) {
  double *const sums = w->room, total = 0, before = 0;
  size_t blocks = 0;
  for (size_t i = 0; i < w->n; blocks++) {
    const int64_t block = w->at[i] / DRAW_BLOCK;
    sums[blocks] = 0;
    for (; i < w->n && w->at[i] / DRAW_BLOCK == block; i++) sums[blocks] += (double)w->terms[i];
    total += sums[blocks];
  }
  for (size_t i = 0, b = 0; b < blocks; before += sums[b++]) {
    const int64_t block = w->at[i] / DRAW_BLOCK;
    double within = 0;
    for (; i < w->n && w->at[i] / DRAW_BLOCK == block; i++) {
      within += (double)w->terms[i];
      if (w->terms[i] > 0 && before + within > u * total) return i;
    }
  }
  size_t last = w->n - 1;
  while (!(w->terms[last] > 0)) last--;
  return last;
}

#endif
