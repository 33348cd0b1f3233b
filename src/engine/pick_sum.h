/* engine/pick_sum.h - the running sum of a row (exp_program.h) and its k best (pick.h) from one read: of each group the exponentials are summed, and
 * while it is in the nearest cache, what lies above the bar is picked. The bits are those of the sum alone. */
#ifndef SMX_ENGINE_PICK_SUM_H
#define SMX_ENGINE_PICK_SUM_H
#include "exp_rows.h"
#include "pick.h"

/* What is done with each group of a run before it is summed: n elements, the first of which is number i; last: what the group before came to, or
 * NULL. NULL: nothing. */
typedef void pick_sum_each(void *own, size_t i, size_t n, const row_part *last);

/* A run of groups; returns the reference to go on with. p NULL: nothing is picked. */
static inline real pick_sum_run(const exp_body *b, const row_call *c, row_state *st, pick *p, real ref, pick_sum_each *each, void *own) {
  const span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  row_part parts[RUN];
  size_t groups = (c->count + GROUP - 1) / GROUP;
  exp_run run = {.ref = ref, .best = (real)st->max};
  for (size_t g = 0; g < groups; g++) {
    size_t i = c->start + g * GROUP, n = group_size(g * GROUP, c->count);
    if (each) each(own, i, n, g ? parts + g - 1 : NULL);
    exp_run_group(b, &s, &k, i, n, &run, parts + g);
    if (p) pick_group(p, s.src[0] + i, n, (int64_t)i);
  }
  exp_run_end(b, &s, &k, &run);
  exp_fold(c, st, parts, groups);
  return run.ref;
}

/* The row's first pass. After it exp_next() has the word. */
static inline void pick_sum_pass(const exp_body *b, const row_call *row, row_state *st, pick *p, pick_sum_each *each, void *own) {
  const size_t stride = (size_t)RUN * GROUP;
  row_call c = *row;
  real ref = -R_INF;
  for (c.start = 0; c.start < c.n; c.start += stride) {
    c.count = c.n - c.start < stride ? c.n - c.start : stride;
    ref = pick_sum_run(b, &c, st, p, ref, each, own);
  }
  if (p) pick_cut(p);
}

#endif
