/* loss/cross_entropy.tmpl.h - the kernels of cross-entropy for one way of forming scores (ops.c).
 *
 * Before it is included:
 *     CE_NAME      prefix of what it defines: NAME_kernel, NAME_grad_kernel
 *     CE_SCORE     forms a score (score_fn); CE_SIDE_scores are the same
 *     CE_SETUP     the consts of CE_SCORE
 *     CE_LOW       whether scores are x times v[0] + v[1] of the consts, with a low part
 *     CE_CHAINED   optional: the derivative of the score, for the gradient
 *     CE_SHORT     optional: the function for short rows
 *     CE_HALF      optional: 1 where src[0] is of f16 or bf16; there is no gradient then
 *     CE_HARD_OUT  optional: a faster gradient for hard targets without smoothing and without a
 *                  gradient of the entropy
 * It undefines all of these. */
#define CE_OF(name, part) name##_##part
#define CE_IN(name, part) CE_OF(name, part)
#define CE(part) CE_IN(CE_NAME, part)
#ifndef CE_SHORT
#define CE_SHORT NULL
#endif
#ifndef CE_HARD_OUT
#define CE_HARD_OUT CE(full_out)
#endif
#ifndef CE_HALF
#define CE_HALF 0
#endif

static const exp_body CE(side) = {.setup = CE_SETUP,
                                  .scores = &CE_IN(CE_SIDE, scores),
                                  .kind = EXP_SUMS,
                                  .scaled = CE_LOW,
                                  .sum_without_max = true};

SMI void CE(late_add)(const loss_row *r, size_t i, int cnt, vreal *acc) {
  ce_target_add(r, loss_score(r, STUDENT, CE_SCORE, i, cnt), i, cnt, acc);
}
SMI void CE(last_add)(const loss_row *r, size_t i, int cnt, vreal *acc) {
  ce_last_of(r, loss_score(r, STUDENT, CE_SCORE, i, cnt), true, i, cnt, acc);
}
LOSS_SUMS_OF(CE(late), CE(late_add), 4)
LOSS_SUMS_OF(CE(last), CE(last_add), 3)
#if CE_HALF
static real CE(logit_at)(const span *s, size_t i) { return v_first(CE_SCORE(s, NULL, NULL, i, 1).h); }
#else
SMI vreal CE(value)(const loss_out *w, vreal p, size_t i, int cnt) {
  const vreal v = ce_value_of(w, CE_SCORE, p, i, cnt);
#ifdef CE_CHAINED
  return CE_CHAINED(w->r, v, i, cnt);
#else
  return v;
#endif
}
SMI vreal CE(soft_value)(const loss_out *w, vreal p, size_t i, int cnt) {
  return ce_soft_value(w, CE_SCORE, i, cnt);
}
NOINLINE void CE(full_write)(const loss_row *r, int s, const real *p, row_writing stream, size_t i,
                             size_t n) {
  loss_write_of(r, s, CE(value), p, stream, i, n);
}
static void CE(full_out)(const loss_row *r, size_t i, size_t n) {
  loss_write_staged(r, STUDENT, CE(full_write), i, n);
}
NOINLINE void CE(soft_write)(const loss_row *r, int s, const real *p, row_writing stream, size_t i,
                             size_t n) {
  loss_write_of(r, s, CE(soft_value), p, stream, i, n);
}
static void CE(soft_out)(const loss_row *r, size_t i, size_t n) {
  loss_write_staged(r, TEACHER, CE(soft_write), i, n);
}
static void CE(out)(const loss_row *r, size_t i, size_t n) {
  (ce_plain(r) ? CE_HARD_OUT : CE(full_out))(r, i, n);
}
#endif
static const loss_body CE(body) = {.side = {&CE(side)},
                                   .sums = {[STAGE_LATE] = CE(late), [STAGE_LAST] = CE(last)},
                                   .wants = ce_wants,
                                   .small = CE_SHORT,
                                   .brief = ce_brief,
                                   .terms_only = ce_terms_only,
                                   .finalize = ce_finalize,
                                   .special = ce_special,
#if CE_HALF
                                   .logit_at = CE(logit_at),
                                   .target_scores = &logit_scores,
#else
                                   .write = {CE(out), CE(soft_out)},
#endif
                                   .along = 1u | 1u << SOFT | 1u << CLASS_WEIGHT,
                                   .target = TARGET,
                                   .teacher = SOFT};
static const row_kernel CE(kernel) = {.engine = &loss_engine, .body = &CE(body)};
#if !CE_HALF
static const row_kernel CE(grad_kernel) = {.engine = &loss_grad_engine, .body = &CE(body)};
#endif

#undef CE
#undef CE_IN
#undef CE_OF
#undef CE_NAME
#undef CE_SCORE
#undef CE_SIDE
#undef CE_SETUP
#undef CE_LOW
#undef CE_CHAINED
#undef CE_SHORT
#undef CE_HALF
#undef CE_HARD_OUT
