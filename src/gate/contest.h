/* gate/contest.h - tokens whose experts are compared, in the caller's memory, and the keys by which
 * they are. */
#ifndef SMX_GATE_CONTEST_H
#define SMX_GATE_CONTEST_H
#include "engine/loops.h"
#include "gate.h"
#include "math.h"
#include "rank.h"

enum { NEAR_ROW = GATE_NEAR + GATE_LANES };

/* A token whose experts are compared, in the caller's memory. Keys of a group are whole vectors,
 * with -inf behind them; next is a group's second best. near, number: the experts that may be among
 * the best, in index order, with -inf behind them. */
typedef struct contest {
  const gate_choice *g;
  int64_t size, stride; /* of a group; from group to group of the keys */
  const real *key;      /* `keys`, or the caller's */
  real *keys, *score, *next, *near, *number, *best;
  int64_t *taken; /* groups that take part, in index order */
  int64_t groups; /* how many */
  int64_t found;  /* indices of the best that are written, where too many are near */
  real bar;
  int count; /* of those near; -1: too many */
  bool good; /* no NaN */
} contest;

SMI int64_t whole_vectors(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* Memory at p or behind it, as far from the start of a page as x, but for whole vectors. A load
 * waits for an earlier store to the same place of another page: keys are stored where no later
 * logits are. */
SMI real *same_place(void *p, const void *x) {
  char *to = p;
  return (real *)(void *)(to + (((uintptr_t)x - (uintptr_t)to) & (GATE_PAGE - sizeof(vreal))));
}
/* The tokens that are chosen for together, step by step: those of a step have the memory of those
 * of the step before. What is near lies token by token. */
static void open_contests(const gate_choice *g, const void *logits, void *memory, contest *t) {
  const int step = gate_step(g);
  const int64_t groups = gate_padded(g->groups), each = gate_contest_doubles(g);
  const contest all = {.g = g, .size = g->experts / g->groups, .groups = 1, .near = memory};
  double *own = (double *)memory + 2 * GATE_TOGETHER * NEAR_ROW;
  real *keys = same_place(own + step * each, logits);
  for (int i = 0; i < GATE_TOGETHER; i++) {
    double *at = own + i % step * each;
    t[i] = all, t[i].stride = whole_vectors(all.size);
    t[i].near += i * NEAR_ROW, t[i].number = t[i].near + GATE_TOGETHER * NEAR_ROW;
    t[i].taken = (int64_t *)(void *)at, t[i].taken[0] = 0;
    t[i].score = (real *)(at + groups), t[i].next = (real *)(at + 2 * groups),
    t[i].best = (real *)(at + 3 * groups);
    t[i].keys = keys + i % step * g->groups * t[i].stride;
  }
}

/* ---- keys ---- */

#define FAR_LOGIT 80 /* e^-80 is a normal number */

/* v_sigmoid, to the bit, of x with |x| = a <= FAR_LOGIT. t is minus what exp_reduce makes of -a:
 * signs change no rounding. */
SMI vreal near_sigmoid(vreal x, vreal a) {
  const vreal sum = v_fnma(a, v_set1(LOG2_E), v_set1(ROUNDER)), k = v_sub(sum, v_set1(ROUNDER));
  const vreal t = v_fma(k, v_set1(LN2_LO), v_fma(k, v_set1(LN2_HI), a)), one = v_set1(1);
  vreal p = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS; i++) p = v_fnma(p, t, v_set1(exp_coefficients[i]));
  const vreal e = v_scale_normal(p, sum);
  return v_div(v_if_negative(x, e, one), v_add(one, e));
}

/* Whether all n are finite. */
SMI bool all_finite(const real *x, int64_t n) {
  vreal far = v_set1(0);
  for (int64_t i = 0; i < n; i += LANES) far = v_farther(far, v_abs(v_load(x + i)));
  return !m_any(m_not(v_lt(far, v_set1(R_INF))));
}
/* Whether all logits are near enough for near_sigmoid. Keys become its sum with the bias, if there
 * is one. */
SMI bool sigmoid_keys(const contest *t, const real *z, const real *bias) {
  vreal far = v_set1(0);
  const int64_t n = t->g->experts;
  for (int64_t i = 0; i < n; i += LANES) {
    const vreal x = v_load(z + i), a = v_abs(x), s = near_sigmoid(x, a);
    v_prefetch(z + GATE_STEP * n + i); /* a later token's */
    far = v_farther(far, a);
    v_store(t->keys + i, bias ? v_add(s, v_load(bias + i)) : s);
  }
  return !m_any(m_not(v_lt(far, v_set1(FAR_LOGIT))));
}
SMI bool biased_keys(const contest *t, const real *z, const real *score, const real *bias) {
  const int64_t n = t->g->experts;
  for (int64_t i = 0; i < n; i += LANES) v_store(t->keys + i, v_add(v_load(score + i), v_load(bias + i)));
  return all_finite(z, n);
}

/* The same of any numbers and any groups; not good: a NaN. An expert with logit -inf does not
 * exist, whatever its bias. */
NOINLINE void any_keys(contest *t, const real *logits, const real *score, const real *bias) {
  const vreal none = v_set1(-R_INF);
  vmask good = v_eq(none, none);
  for (int64_t q = 0; q < t->g->groups; q++)
    for (int64_t j = 0; j < t->size; j += LANES) {
      const int64_t i = q * t->size + j;
      const int cnt = lanes_left((size_t)(t->size - j));
      const vreal z = v_load_n(logits + i, cnt, -R_INF);
      vreal s = z;
      if (t->g->sigmoid) s = v_sigmoid(z);
      else if (score) s = v_load_n(score + i, cnt, 0);
      if (bias) s = v_add(s, v_load_n(bias + i, cnt, 0));
      good = m_and(good, v_eq(s, s));
      v_store(t->keys + q * t->stride + j, v_select(v_lt(none, z), s, none));
    }
  t->good = !m_any(m_not(good));
}

static bool has_nan(const real *x, int64_t n) {
  const vreal zero = v_set1(0);
  vmask good = v_eq(zero, zero);
  for (int64_t i = 0; i < n; i += LANES) {
    const vreal v = v_load_n(x + i, lanes_left((size_t)(n - i)), 0);
    good = m_and(good, v_eq(v, v));
  }
  return m_any(m_not(good));
}

NOINLINE void make_keys(contest *t, int count, const real *z, const real *score, const real *bias, bool may) {
  const int64_t n = t->g->experts;
  const bool sigmoid = t->g->sigmoid;
  may = may && t->size == t->stride;
  for (int i = 0; i < count; i++, t++, z += n, score += score ? n : 0) {
    const real *by = score ? score : z;
    t->good = true, t->key = t->keys;
    if (may && sigmoid && bias && sigmoid_keys(t, z, bias)) continue;
    if (may && sigmoid && !bias && sigmoid_keys(t, z, NULL)) continue;
    if (may && !sigmoid && bias && biased_keys(t, z, by, bias)) continue;
    if (may && !sigmoid && !bias && all_finite(z, n)) t->key = by;
    else any_keys(t, z, score, bias);
  }
}

#endif
