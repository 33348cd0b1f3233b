/* engine/topk.h - the k best of a row, by value descending and index ascending, in one read.
 *
 * The row is read 64 elements at a time; elements above the bar are added to a small buffer behind
 * the ones that are kept. When the buffer is full it is cut: the k best stay, and the worst of them
 * is the new bar. A later element equal to the bar is worse than it, so `above` is the only test
 * needed. Everything stays in index order: of equal elements the first are better. Whatever the
 * cuts, the k best are the same, so the result does not depend on them.
 *
 * -inf is never selected: such an element does not exist. With a NaN in the row, the selection has
 * no meaning. */
#ifndef SMX_ENGINE_TOPK_H
#define SMX_ENGINE_TOPK_H
#include "radix_select.h"

#define topk_count SMX_FN(topk_count)
#define topk_max SMX_FN(topk_max)
#define topk_min SMX_FN(topk_min)
#define topk_bar SMX_FN(topk_bar)
#define topk_cut SMX_FN(topk_cut)
#define topk_start SMX_FN(topk_start)
#define topk_group SMX_FN(topk_group)
#define topk_sort SMX_FN(topk_sort)

/* beyond TOPK_MOST a cut would move too much for the few elements it removes */
enum { TOPK_FRESH = 4096, TOPK_MOST = 65536 };

typedef struct topk {
  size_t k, kept, fresh;
  real bar;
  real *x; /* room for k: those that are kept */
  int64_t *index;
  real fresh_x[TOPK_FRESH];
  int64_t fresh_index[TOPK_FRESH];
} topk;

/* How many of n numbers are not below `least`. */
size_t topk_count(const real *x, size_t n, real least);
real topk_max(const real *x, size_t n, real low);
real topk_min(const real *x, size_t n);

/* Of finite or infinite numbers in two pieces, a value such that at least k are not below it, and
 * fewer than k, or just k, would be not below a larger one: bisection of the values' keys, which
 * ends early when just k are left. low: a value that at least k are not below. */
real topk_bar(const real *x, size_t n, const real *y, size_t m, size_t k, real low);
void topk_cut(topk *p);

/* The first bar: at least k of the first elements lie above it. Each of the maxima taken here is
 * one element, and the k-th largest of them, a little lowered, is the bar. Used only where that is
 * cheap; otherwise the first k elements enter without a bar. */
void topk_start(topk *p, size_t k, real *to_x, int64_t *to_index, const real *x, size_t n);

/* Reads n elements, the first of which is number `index` of the row. */
void topk_group(topk *p, const real *x, size_t n, int64_t index);

/* ---- sorting ---- */

SMI bool topk_before(real x, int64_t i, real y, int64_t j) { return x > y || (x == y && i < j); }
void topk_sort(real *x, int64_t *index, size_t n);

#endif
