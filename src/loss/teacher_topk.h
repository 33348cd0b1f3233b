/* loss/teacher_topk.h - the head of a teacher's row: the k classes that it finds likeliest, or as
 * many as hold no more than a mass of its weights. Of equal classes the first count. It is found as
 * engine/radix_select.h finds the k largest, digit by digit of the logits' keys; for a mass,
 * weights are added in index order, in double, in place of counts.
 *
 * The result is left in total[STAGE_EARLY]: the smallest logit of the head, and the index up to
 * which logits equal to it belong to the head. */
#ifndef SMX_LOSS_TEACHER_TOPK_H
#define SMX_LOSS_TEACHER_TOPK_H
#include "engine/radix_select.h"
#include "divergence.h"

enum { TEACHER_TOPK_VALUE, TEACHER_TOPK_LIMIT };
enum { TEACHER_TOPK_SIZE = 0 };                                /* the parameter: k, or the mass */
enum { TEACHER_TOPK_TOP = RADIX_DONE + 1, TEACHER_TOPK_MASS }; /* modes besides those of radix_select.h */

SMI vmask teacher_topk_has(const double *head, size_t index, vreal u) {
  const vreal value = v_set1((real)head[TEACHER_TOPK_VALUE]);
  /* number of lanes that may be equal to it */
  const double equals = head[TEACHER_TOPK_LIMIT] - (double)index + 1;
  vmask early = v_lt(v_iota(), v_set1(equals < 0 ? 0 : equals < LANES ? (real)equals : LANES));
  return m_or(v_lt(value, u), m_and(v_eq(u, value), early));
}
SMI vmask teacher_topk_at(const loss_row *r, size_t i, int cnt) {
  return teacher_topk_has(r->total[STAGE_EARLY], r->on[STUDENT].origin + i,
                          at(loss_in(r, TEACHER_PORT), i, cnt));
}

static inline bool teacher_topk_found(row_state *st, double limit) {
  st->kept.total[STAGE_EARLY][TEACHER_TOPK_VALUE] = st->cutoff.value;
  st->kept.total[STAGE_EARLY][TEACHER_TOPK_LIMIT] = limit;
  return false;
}

/* ---- k of them ---- */

static inline void teacher_topk_count_begin(const row_call *c, row_state *st) {
  const double k = c->params[TEACHER_TOPK_SIZE];
  radix_begin(st, k < (double)c->n ? (uint64_t)k : c->n);
}
static inline bool teacher_topk_count_next(const row_call *c, row_state *st) {
  if (c->n == 0) st->cutoff.value = (double)-R_INF;
  return c->n > 0 && radix_next(st) ? true : teacher_topk_found(st, (double)st->cutoff.limit);
}
static inline row_call teacher_topk_call(const row_call *c) {
  row_call teacher = *c;
  teacher.src[0] = c->src[TEACHER_PORT];
  return teacher;
}
static inline void teacher_topk_count_pass(const row_call *c, row_state *st, row_part *parts) {
  row_call teacher = teacher_topk_call(c);
  radix_pass(&teacher, st, parts);
}
static const loss_before teacher_topk_by_count = {teacher_topk_count_begin, teacher_topk_count_pass,
                                                  teacher_topk_count_next};

/* ---- a mass of them ----
 *
 * classes by weight, as long as their sum is at most mu; the first in any case */

SMI vreal teacher_topk_term(vreal u, real top) {
  return v_select(v_eq(u, v_set1(top)), v_set1(1), v_exp(v_sub(u, v_set1(top))));
}

static inline void teacher_topk_mass_begin(const row_call *c, row_state *st) {
  radix_begin(st, 0);
  st->mode = TEACHER_TOPK_TOP;
  st->select.top = (double)-R_INF;
  st->select.above = st->select.most = 0;
}

static inline void teacher_topk_top(const real *u, size_t n, row_state *st) {
  vreal max = v_set1((real)st->select.top);
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal v = at(u, i, cnt);
    st->nan |= m_any(m_not(v_eq(v, v)));
    max = v_max(v_select(lanes_below(cnt), v, v_set1(-R_INF)), max);
  }
  st->select.top = (double)v_hmax(max);
}

static inline void teacher_topk_add(const real *u, size_t n, row_state *st) {
  const int known = st->select.unknown, width = known < RADIX_DIGIT ? known : RADIX_DIGIT,
            shift = known - width;
  const rbits mask = ((rbits)1 << width) - 1;
  real term[LANES];
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    v_store(term, teacher_topk_term(at(u, i, cnt), (real)st->select.top));
    for (int j = 0; j < cnt; j++) {
      rbits key = radix_key(u[i + (size_t)j]);
      if (known == RADIX_BITS || key >> known == (rbits)st->select.key)
        st->list[key >> shift & mask] += (double)term[j];
    }
  }
}

static inline void teacher_topk_mass_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *u = (const real *)c->src[TEACHER_PORT] + (c->start - c->origin);
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
  if (st->mode == TEACHER_TOPK_TOP) teacher_topk_top(u, c->count, st);
  else if (st->mode == TEACHER_TOPK_MASS) teacher_topk_add(u, c->count, st);
  else radix_ties(u, c->start, c->count, st);
}

/* The smallest logit that may belong is known, and the weight of all that are equal to it: computes
 * how many of them belong. */
static inline bool teacher_topk_share(row_state *st, double mass) {
  const double room = st->select.most - st->select.above,
               each =
                   (double)v_first(teacher_topk_term(v_set1((real)st->cutoff.value), (real)st->select.top));
  if (!(mass > room)) return teacher_topk_found(st, (double)INT64_MAX);
  st->select.want = (uint64_t)(room / each);
  if (st->select.want == 0 && st->select.above == 0) st->select.want = 1;
  if (st->select.want == 0) return teacher_topk_found(st, -1);
  st->cutoff.limit = INT64_MAX;
  st->mode = RADIX_TIES;
  return true;
}

static inline bool teacher_topk_mass_next(const row_call *c, row_state *st) {
  if (st->nan) st->cutoff.value = (double)r_nan();
  if (st->nan) return teacher_topk_found(st, -1);
  if (st->mode == RADIX_TIES) return teacher_topk_found(st, (double)st->cutoff.limit);
  if (st->mode == TEACHER_TOPK_MASS) {
    const int known = st->select.unknown, width = known < RADIX_DIGIT ? known : RADIX_DIGIT;
    uint64_t digit = ((uint64_t)1 << width) - 1;
    if (known == RADIX_BITS) {
      double sum = 0;
      for (uint64_t d = digit + 1; d-- > 0;) sum += st->list[d];
      st->select.most = c->params[TEACHER_TOPK_SIZE] * sum;
    }
    while (digit > 0 && !(st->select.above + st->list[digit] > st->select.most))
      st->select.above += st->list[digit--];
    st->select.key = st->select.key << width | digit;
    st->select.unknown = known - width;
    if (st->select.unknown == 0) {
      /* 0: all of them together are within the mass */
      st->cutoff.value = st->select.key > 0 ? (double)radix_value((rbits)st->select.key) : (double)-R_INF;
      return teacher_topk_share(st, st->list[digit]);
    }
  }
  st->mode = TEACHER_TOPK_MASS;
  memset(st->list, 0, ROW_LIST * sizeof *st->list);
  return true;
}
static const loss_before teacher_topk_by_mass = {teacher_topk_mass_begin, teacher_topk_mass_pass,
                                                 teacher_topk_mass_next};

#endif
