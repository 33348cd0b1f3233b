/* loss/logits.c - the scores that losses share, and the gradient of most (logits.h). */
#include "logits.h"
#include "engine/exp_loops.h"
#include "nontarget.h"

EXP_PAGE(logit, score_logit, false)
#define EXP_LOOPS_NAME logit
#define EXP_LOOPS_SCORE score_logit
#define EXP_LOOPS_LOW false
#define EXP_LOOPS_HALF 0
#include "engine/exp_loops.tmpl.h"
const exp_scores logit_scores = {logit_page, &logit_loops, false};
EXP_PAGE(tempered, score_tempered, true)
const exp_scores tempered_scores = {tempered_page, &exp_staged_low, true};
EXP_PAGE(nontarget, score_nontarget, true)
const exp_scores nontarget_scores = {nontarget_page, &exp_staged_low, true};

static void plain_write(const loss_row *r, int side, const real *p, row_writing stream, size_t i, size_t n) {
  loss_write_of(r, side, loss_plain_value, p, stream, i, n);
}
void loss_plain_out(const loss_row *r, size_t i, size_t n) {
  loss_write_staged(r, STUDENT, plain_write, i, n);
}

/* loss_plain_value of the student, bit for bit, at the speed of memory, for finite coefficients and
 * rows without a shift: the terms show which values are flushed, and the target is corrected at the
 * end. may_be_one: some term may equal S. */
SMI void logit_parts(const loss_row *r, const bool may_be_one, size_t first, size_t n) {
  real *const y = r->dx[STUDENT];
  const real *const stored = r->stored;
  const row_writing stream = r->stream;
  const exp_row e = r->side[STUDENT];
  const span s = r->on[STUDENT];
  const consts k = r->k[STUDENT];
  const real *const next = r->next;
  const vreal coef = v_set1(r->coef[0]), least = v_set1(r->least), all = v_clean(coef);
  vreal d;
  const size_t head = stream ? before_line(y + first) : 0, before = head < n ? head : n;
#define PART(i, cnt) \
  const vreal t = \
      stored ? at(stored, i, cnt) : exp_term(score_logit(&s, &k, NULL, i, cnt), false, e.scale_exp, &d); \
  vreal v = v_flush(v_mul(v_mul(t, v_set1(e.inv)), coef), t, least); \
  if (may_be_one) v = v_select(v_eq(t, v_set1(e.one)), all, v);
#define STEP(u, i, cnt) \
  { \
    PART(i, cnt) \
    v_prefetch_far(next + (i)); \
    if (stream && (cnt) == LANES) put_uncached(y + (i), v, stream); \
    else put(y, i, cnt, v); \
  }
  if (before) {
    PART(first, (int)before)
    put(y, first, (int)before, v);
  }
  if (stored) {
    FOR_EACH_VECTOR_STRAIGHT(first + before, n - before, STEP)
  } else {
    FOR_EACH_VECTOR_OF_PAIR(first + before, n - before, STEP)
  }
#undef STEP
#undef PART
  const uint64_t place = (uint64_t)(r->target - (int64_t)s.origin) - first;
  if (r->target >= 0 && place < n) y[first + place] = v_first(v_clean(v_set1(r->at_target)));
}
static __attribute__((noinline)) void logit_parts_any(const loss_row *r, size_t i, size_t n) {
  logit_parts(r, false, i, n);
}
static __attribute__((noinline)) void logit_parts_may_be_one(const loss_row *r, size_t i, size_t n) {
  logit_parts(r, true, i, n);
}
void logit_out(const loss_row *r, size_t i, size_t n) {
  if (!loss_parts_fit(r) || r->scores[STUDENT] != &logit_scores)
    loss_plain_out(r, i, n); /* also where scores are staged */
  else if (r->side[STUDENT].sum_without_max < 1) logit_parts_may_be_one(r, i, n);
  else logit_parts_any(r, i, n);
}
