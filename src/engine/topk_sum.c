/* engine/topk_sum.c - the running sum of a row and its k best from one read (topk_sum.h). */
#include "topk_sum.h"

/* A run of groups; returns the reference to continue with. p NULL: nothing is selected. */
static real topk_sum_run(const exp_body *b, const row_call *c, row_state *st, topk *p, real scale_exp,
                         topk_sum_each *each, void *own) {
  const span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  row_part parts[RUN];
  size_t groups = (c->count + GROUP - 1) / GROUP;
  exp_run run = {.scale_exp = scale_exp, .best = (real)st->exp.max};
  for (size_t g = 0; g < groups; g++) {
    size_t i = c->start + g * GROUP, n = group_size(g * GROUP, c->count);
    if (each) each(own, i, n, g ? parts + g - 1 : NULL);
    exp_run_group(b, &s, &k, i, n, &run, parts + g);
    if (p) topk_group(p, s.src[0] + i, n, (int64_t)i);
  }
  exp_run_end(b, &s, &k, &run);
  exp_merge(c, st, parts, groups);
  return run.scale_exp;
}

void topk_sum_pass(const exp_body *b, const row_call *row, row_state *st, topk *p, topk_sum_each *each,
                   void *own) {
  const size_t stride = (size_t)RUN * GROUP;
  row_call c = *row;
  real scale_exp = -R_INF;
  for (c.start = 0; c.start < c.n; c.start += stride) {
    c.count = c.n - c.start < stride ? c.n - c.start : stride;
    scale_exp = topk_sum_run(b, &c, st, p, scale_exp, each, own);
  }
  if (p) topk_cut(p);
}
