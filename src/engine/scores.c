/* engine/scores.c - the fused loops of the two ways of forming scores that most operators share
 * (scores.h). */
#include "scores.h"
#include "exp_loops.h"

EXP_PAGE(plain, score_plain, false)
#define EXP_LOOPS_NAME plain
#define EXP_LOOPS_SCORE score_plain
#define EXP_LOOPS_LOW false
#define EXP_LOOPS_HALF 0
#include "exp_loops.tmpl.h"
const exp_scores plain_scores = {plain_page, &plain_loops, false};
SMI vreal plain_weight(const exp_write *w, size_t i, int cnt) {
  return exp_weight_again(w, score_plain, false, i, cnt);
}
void plain_weights(const exp_write *w, size_t i, size_t n) { exp_write_fused_of(w, plain_weight, i, n); }

EXP_PAGE(scaled, score_scaled, true)
#define EXP_LOOPS_NAME scaled
#define EXP_LOOPS_SCORE score_scaled
#define EXP_LOOPS_LOW true
#define EXP_LOOPS_HALF 0
#include "exp_loops.tmpl.h"
const exp_scores scaled_scores = {scaled_page, &scaled_loops, true};
SMI vreal scaled_weight(const exp_write *w, size_t i, int cnt) {
  return exp_weight_again(w, score_scaled, true, i, cnt);
}
void scaled_weights(const exp_write *w, size_t i, size_t n) { exp_write_fused_of(w, scaled_weight, i, n); }
