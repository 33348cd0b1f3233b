/* sample/ops_masks.c - nm_mask_sample: which N of M neighbours are kept, drawn from a distribution
 * over all choices. See ops.c. */
#include "decode.h"

/* mask_j = sum_c y_c [j is in S_c],  y = softmax((s x + G) / T)
 *
 * over the choices S_c, the subsets of N of 0 .. M - 1 in the order 1100, 1010, 1001, 0110, 0101,
 * 0011: MaskLLM: Learnable Semi-Structured Sparsity for Large Language Models (Fang et al. 2024).
 * Some tens of numbers at most, so they are computed in double, one by one. */

enum { X, STREAM };                                                            /* inputs */
enum { MASK_M, MASK_N, MASK_SCALE, MASK_TEMPERATURE, HARD, NOISE, MASK_SEED }; /* parameters */
enum { MASK_MOST = 70 };                                                       /* choices: 4 of 8 */
enum { MASK_MINMAX, MASK_WRITE };                                              /* stages */

/* The choices that a row has, as bits, element 0 the highest: descending numbers. */
typedef struct choices {
  size_t count;
  uint32_t set[MASK_MOST];
} choices;

static choices choices_of(const row_call *c) {
  const uint32_t m = (uint32_t)c->params[MASK_M];
  const int n = (int)c->params[MASK_N];
  choices all = {0};
  for (uint32_t s = 1u << m; s-- > 0 && all.count < c->n;)
    if (__builtin_popcount(s) == n) all.set[all.count++] = s;
  return all;
}
static bool chosen(const row_call *c, uint32_t set, size_t j) {
  return set >> ((size_t)c->params[MASK_M] - 1 - j) & 1;
}

typedef struct mask_state {
  minmax row;
  bool nan;         /* of the gradient: the row is NaN */
  size_t gradients; /* in the list */
} mask_state;
ROW_OWN_STATE(mask_state, mask_of)
static void mask_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  st->stage = MASK_MINMAX;
  *mask_of(st) = (mask_state){.row = MINMAX_NONE};
}
/* The list gets the scores of the choices, which are in the first group. */
static void mask_minmax(const row_call *c, row_state *st) {
  const real *x = part_at(c, X);
  const size_t count = choices_of(c).count;
  if (c->start > 0) return;
  minmax_part(x, count, 0, st);
  for (size_t i = 0; i < count; i++) st->list[i] = (double)x[i];
}

/* The relaxed sample y. */
static void mask_weights(const row_call *c, const row_state *st, size_t count, double *y) {
  const draws d = {(uint64_t)c->params[MASK_SEED], (uint64_t) * (const int64_t *)c->src[STREAM],
                   PURPOSE_RELAXED};
  double h[MASK_MOST];
  for (size_t i = 0; i < count; i++) {
    h[i] =
        st->list[i] > (double)-R_INF ? c->params[MASK_SCALE] * minmax_away(st, st->list[i]) : (double)-R_INF;
    if (c->params[NOISE] != 0) h[i] += gumbel_of(draw_word(&d, i));
    h[i] /= c->params[MASK_TEMPERATURE];
  }
  few_softmax(h, count, y);
  if (c->params[HARD] == 0) return;
  size_t best = 0;
  for (size_t i = 1; i < count; i++)
    if (h[i] > h[best]) best = i;
  for (size_t i = 0; i < count; i++) y[i] = i == best;
}

static void mask_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  mask_minmax(c, st);
}
static bool mask_next(const row_call *c, row_state *st) {
  const choices all = choices_of(c);
  const bool nan = !minmax_empty(st) && minmax_nan(c, st);
  double y[MASK_MOST];
  st->empty = minmax_empty(st);
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  if (!st->empty && !nan) mask_weights(c, st, all.count, y);
  for (size_t j = 0; j < (size_t)c->params[MASK_M]; j++) {
    double sum = 0;
    for (size_t i = 0; i < all.count && !st->empty && !nan; i++) sum += chosen(c, all.set[i], j) ? y[i] : 0;
    ((real *)c->dst[0])[j] = nan || (st->empty && c->on_empty == SMX_EMPTY_NAN) ? r_nan() : r_clean(sum);
  }
  return false;
}
SERIAL_KERNEL(mask)

/* Hard or not: dx_c = (s / T) y_c (a_c - sum_i y_i a_i) with the relaxed y, a_c the sum of the
 * upstream gradients of S_c. */
static void mask_grad_list(const row_call *c, row_state *st) {
  const real *dmask = c->src[SRC_DY];
  const choices all = choices_of(c);
  double y[MASK_MOST], a[MASK_MOST], mean = 0, params[MASK_SEED + 1];
  row_call soft = *c;
  memcpy(params, c->params, sizeof params);
  params[HARD] = 0;
  soft.params = params;
  mask_weights(&soft, st, all.count, y);
  for (size_t i = 0; i < all.count; i++) {
    a[i] = 0;
    for (size_t j = 0; j < (size_t)c->params[MASK_M]; j++)
      a[i] += chosen(c, all.set[i], j) ? (double)dmask[j] : 0;
    mean += y[i] != 0 ? y[i] * a[i] : 0;
  }
  for (size_t i = 0; i < all.count; i++)
    st->list[i] = y[i] != 0 ? c->params[MASK_SCALE] / c->params[MASK_TEMPERATURE] * y[i] * (a[i] - mean) : 0;
}
static void mask_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  if (st->stage == MASK_MINMAX) {
    mask_minmax(c, st);
    return;
  }
  const mask_state *own = mask_of(st);
  real *dx = part_to(c, X);
  fill(dx, c->count, own->nan ? r_nan() : 0);
  for (size_t i = 0; c->start == 0 && i < own->gradients; i++) dx[i] = r_clean(st->list[i]);
}
static bool mask_grad_next(const row_call *c, row_state *st) {
  mask_state *own = mask_of(st);
  if (st->stage == MASK_WRITE) return false;
  own->nan = !minmax_empty(st) && minmax_nan(c, st);
  if (!minmax_empty(st) && !own->nan) {
    own->gradients = choices_of(c).count;
    mask_grad_list(c, st);
  }
  st->stage = MASK_WRITE;
  return st->writes = true;
}
#define mask_grad_begin mask_begin
SERIAL_KERNEL(mask_grad)

OPERATOR_WITH(nm_mask_sample, mask, mask_grad, MASK_MOST, 0)
