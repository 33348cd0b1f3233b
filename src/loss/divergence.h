/* loss/divergence.h - what losses between a student's row of logits and a teacher's share. p and q
 * are their weights. */
#ifndef SMX_LOSS_DIVERGENCE_H
#define SMX_LOSS_DIVERGENCE_H
#include "logits.h"

enum { TEACHER_PORT = 1 };

/* weight times x; an element with a score of -inf is left out. A weight too small for the type
 * counts as 0, unless x is infinite. */
SMI vreal add_where(vreal acc, vreal weight, vreal log_weight, vreal x) {
  vmask none = v_eq(weight, v_set1(0)), finite = v_lt(x, v_set1(R_INF));
  vreal term = v_select(none, v_select(finite, v_set1(0), x), v_mul(weight, x));
  return v_select(v_eq(log_weight, v_set1(-R_INF)), acc, v_add(acc, term));
}

typedef struct pair {
  vreal p, q, log_p, log_q;
} pair;
SMI pair pair_at(const loss_row *r, score_fn *f, bool low, size_t i, int cnt) {
  score z = loss_score(r, STUDENT, f, i, cnt), u = loss_score(r, TEACHER, f, i, cnt);
  return (pair){loss_weight(r, STUDENT, z, low, i, cnt), loss_weight(r, TEACHER, u, low, i, cnt),
                loss_log(r, STUDENT, z), loss_log(r, TEACHER, u)};
}

#endif
