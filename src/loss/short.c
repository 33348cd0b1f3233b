/* loss/short.c - short rows of losses with a target whose scores are the logits: the sums and
 * logarithms of up to sixteen rows side by side (engine/lse_short.h), then the scalars and the
 * gradient of each row, whose terms are formed again. */
#include "engine/lse_short.h"
#include "short.h"
#include "stages.h"

/* The row r->on, which needs no rule and has a target. Of its largest element only whether it is
 * the target is known. */
static void loss_short_row(const loss_body *b, const row_call *c, loss_row *r, double *target_inputs,
                           const lse_short_rows *w, size_t a) {
  const real *x = r->on[STUDENT].src[0];
  exp_row *e = &r->side[STUDENT];
  loss_ways_out(b, c, r);
  loss_target_inputs(b, r, target_inputs);
  *e = lse_short_row(w, a);
  e->scale_exp = k_of(e->top) - 1;
  exp_finalize_sum(e, w->sum[a]);
  r->h[STUDENT] = x[r->target], r->l[STUDENT] = 0;
  const bool largest = r->h[STUDENT] == e->top && (w->first[a] < 0 || w->first[a] == r->target);
  r->top[STUDENT] = largest ? r->target : -1;
  b->finalize(r);
  loss_ready(b, r);
  r->next = x;
  if (r->dx[STUDENT]) b->write[STUDENT](r, 0, r->n);
}

bool loss_short(const loss_body *b, const row_kernel *kernel, row_call *c, bool backward) {
  double total[ROW_STAGES][ROW_SUMS] = {{0}}, target_inputs[SMX_MAX_PORTS] = {0};
  loss_row r = {.q = c->params,
                .n = c->n,
                .backward = backward,
                .stream = c->writing,
                .total = total,
                .target_inputs = target_inputs};
  lse_short_call o;
  lse_short_rows w;
  if (c->plan != PLAN_AUTO || !lse_short_fit(c, &o, b->side[STUDENT], &r.k[STUDENT])) return false;
  loss_row_at(b, c, 0, &r);
  r.ignored = false, r.target = 0;
  if (!b->brief(&r)) return false;
  for (size_t row = 0, rows; row < c->rows; row += rows) {
    rows = lse_short_sums(&o, row, &w);
    for (size_t a = 0; a < rows; a++) {
      if (row + a > 0) span_next(c, &r.on[STUDENT]);
      loss_find_target(b, c, &r);
      if (r.target < 0 || w.sum_without_max[a] != w.sum_without_max[a]) run_row(kernel, c, row + a);
      else loss_short_row(b, c, &r, target_inputs, &w, a);
    }
  }
  if (c->writing) v_stream_end();
  return true;
}
