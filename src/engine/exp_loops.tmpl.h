/* engine/exp_loops.tmpl.h - the fused loops of one way of forming scores (exp_loops.h).
 *
 * Before it is included:
 *     EXP_LOOPS_NAME    prefix of what it defines: NAME_loops, an exp_loops, and its functions
 *     EXP_LOOPS_SCORE   forms a score (score_fn)
 *     EXP_LOOPS_LOW     whether scores have a low part: true or false
 *     EXP_LOOPS_HALF    1 where src[0] is of 16 bits, else 0
 * It undefines all of these. */
#define LOOP_OF(name, part) name##_##part
#define LOOP_IN(name, part) LOOP_OF(name, part)
#define LOOP(part) LOOP_IN(EXP_LOOPS_NAME, part)

NOINLINE real LOOP(max)(const exp_scores *f, const span *s, const consts *k, size_t i, size_t n) {
  return exp_max_of(EXP_LOOPS_SCORE, s, k, i, n);
}
SMI vmask LOOP(equals)(const void *w, size_t i, int cnt) { return exp_equals_of(EXP_LOOPS_SCORE, w, i, cnt); }
NOINLINE size_t LOOP(find)(const exp_scores *f, const span *s, const consts *k, real shift, size_t i,
                           size_t n, real value) {
  const exp_search w = {s, k, i, shift, value};
  return find_first(n, LOOP(equals), &w);
}

SMI void LOOP(at)(const exp_sum *w, size_t i, real *h, real *l) {
  const score x = EXP_LOOPS_SCORE(w->s, w->k, NULL, i, 1);
  *h = v_first(x.h), *l = v_first(x.l);
}
NOINLINE real LOOP(lane)(exp_sum *w, size_t i, size_t n) {
  return exp_lane_of(w, LOOP(at), EXP_LOOPS_LOW, i, n);
}

#if EXP_LOOPS_HALF
NOINLINE real LOOP(sum_store)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_STORE, i, n);
}
NOINLINE real LOOP(sum_watch)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_WATCH | SUM_STORE | SUM_HALF, i, n);
}
NOINLINE real LOOP(sum_deferred)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_WATCH | SUM_STORE | SUM_HALF | SUM_DEFERRED, i, n);
}
static const exp_loops LOOP(loops) = {.max = LOOP(max),
                                      .find = LOOP(find),
                                      .sum = LOOP(sum_store),
                                      .sum_store = LOOP(sum_store),
                                      .sum_keep = LOOP(sum_store),
                                      .sum_watch = LOOP(sum_watch),
                                      .sum_deferred = LOOP(sum_deferred),
                                      .sum_low = exp_staged_sum_low,
                                      .sum_exact = exp_staged_sum_exact,
                                      .lane = LOOP(lane)};
#else
NOINLINE real LOOP(sum)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_SKIP | SUM_AHEAD, i, n);
}
NOINLINE real LOOP(sum_store)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_STORE | SUM_AHEAD, i, n);
}
NOINLINE real LOOP(sum_keep)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_SKIP | SUM_STORE | SUM_AHEAD, i, n);
}
NOINLINE real LOOP(sum_watch)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_WATCH | SUM_STORE, i, n);
}
NOINLINE real LOOP(sum_deferred)(exp_sum *w, size_t i, size_t n) {
  return exp_sum_of(w, EXP_LOOPS_SCORE, EXP_LOOPS_LOW, SUM_WATCH | SUM_STORE | SUM_DEFERRED, i, n);
}
static const exp_loops LOOP(loops) = {.max = LOOP(max),
                                      .find = LOOP(find),
                                      .sum = LOOP(sum),
                                      .sum_store = LOOP(sum_store),
                                      .sum_keep = LOOP(sum_keep),
                                      .sum_watch = LOOP(sum_watch),
                                      .sum_deferred = LOOP(sum_deferred),
                                      .sum_low = EXP_LOOPS_LOW ? exp_staged_sum_low_l : exp_staged_sum_low,
                                      .sum_exact = EXP_LOOPS_LOW ? exp_staged_sum_exact_l
                                                                 : exp_staged_sum_exact,
                                      .lane = LOOP(lane)};
#endif

#undef LOOP
#undef LOOP_IN
#undef LOOP_OF
#undef EXP_LOOPS_NAME
#undef EXP_LOOPS_SCORE
#undef EXP_LOOPS_LOW
#undef EXP_LOOPS_HALF
