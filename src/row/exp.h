/* row/exp.h - the exponential family: weights, their logarithms, and sums of e^score, over scores that an operator forms.
 *
 * A score is h + l, two reals (l is 0 unless the operator scales). Its term is e = p 2^(k - ref): (p, k) from v_exp_pair, and +0 when
 * k - ref < MIN_EXP. The sum S of a row has ref = k(max) - 1; scaling by powers of two commutes with rounding, so a sum taken with an earlier
 * reference has the same bits as long as neither overflows nor flushes another set of terms. A weight is
 *     e < tiny ? 0 : e == S ? 1 : e (1 / S).
 * Scores beyond +-2^19 have the row's maximum subtracted first, which is exact wherever the term is not 0.
 *
 * This file: what one group of a row is put through, instantiated for each way of forming scores. exp_rows.h: the ways through a row. */
#ifndef SMX_ROW_EXP_H
#define SMX_ROW_EXP_H
#include "engine.h"

typedef struct score {
  vreal h, l;
} score;

/* The scalars of a row once its sums are known. */
typedef struct exp_row {
  real shift, ref;       /* of the terms */
  real tiny, inv, one;   /* of the weights */
  real top, top_l, log;  /* of the logarithms: y = (h - top) + (l - top_l) - log */
  double max, top_x;     /* the largest score, and the x it came from */
  double others;         /* (S without the first largest term) / that term */
  double moment, spread; /* sum factor e / S, twice */
} exp_row;

/* What one group is summed with. */
typedef struct exp_sum {
  const span *s;
  const consts *k;
  real ref, shift, center; /* center: what a moment is taken about */
  real *store;             /* e goes here too, or NULL */
  ptrdiff_t prefetch;      /* bytes ahead of x to prefetch, or 0 */
  size_t skip;             /* element whose term is +0 instead, or SIZE_MAX */
  real max, low;           /* found by sum_watch: the largest score, the smallest that was not flushed */
} exp_sum;

/* What one group is written with. */
typedef struct exp_emit {
  const span *s;
  const consts *k;
  const exp_row *r;
  const real *stored; /* the terms, or NULL = form them again */
  bool peaked;        /* some term may be all of S */
  bool stream;        /* write past the caches */
} exp_emit;

typedef real exp_sum_fn(exp_sum *w, size_t i, size_t n);
typedef void exp_emit_fn(const exp_emit *w, size_t i, size_t n);

/* A way of forming scores, at the level of groups. */
typedef struct exp_scores {
  real (*max)(const span *s, const consts *k, size_t i, size_t n);                /* anything when there is a NaN */
  size_t (*find)(const span *s, const consts *k, size_t i, size_t n, real value); /* offset of the first score equal to value, or n */
  void (*count)(const span *s, const consts *k, size_t i, size_t n, double *inf, bool *nan);
  void (*limit)(const span *s, const consts *k, size_t i, size_t n, real share, real none); /* dst[0] = score is +inf ? share : none */
  real (*low_part)(const span *s, const consts *k, size_t i);
  exp_sum_fn *sum;       /* ref, store, prefetch, skip */
  exp_sum_fn *sum_watch; /* ref; finds max and low */
  exp_sum_fn *sum_exact; /* ref, shift, skip */
} exp_scores;

SMI vreal exp_term(score x, bool scaled, real ref, real shift, bool shifted, vreal *d) {
  vreal h = shifted ? v_sub(x.h, v_set1(shift)) : x.h, k = exp_k(h), t = exp_reduce(h, k);
  if (scaled) t = v_add(t, x.l);
  *d = v_sub(k, v_set1(ref));
  return v_scale(exp_poly(t), *d);
}

typedef score score_fn(const span *s, const consts *k, size_t i, int cnt); /* masked: h = -inf */
typedef vreal exp_factor(const exp_sum *w, size_t i, int cnt);

SMI score score_at(score_fn *f, const span *s, const consts *k, size_t i, int cnt) {
  score x = f(s, k, i, cnt);
  if (cnt < LANES) x.h = v_select(lanes_below(cnt), x.h, v_set1(-R_INF));
  return x;
}

/* One walk serves all sums; the flags are constants where it is instantiated. */
typedef struct exp_walk {
  exp_sum *w;
  score_fn *score;
  exp_factor *factor;
  bool scaled, watch, shifted;
  vreal acc[VPB], max, low;
} exp_walk;

SMI void exp_walk_step(void *walker, int u, size_t i, int cnt) {
  exp_walk *q = walker;
  exp_sum *w = q->w;
  score x = score_at(q->score, w->s, w->k, i, cnt);
  vreal d, e = exp_term(x, q->scaled, w->ref, w->shift, q->shifted, &d);
  if (q->watch) {
    q->max = v_max(x.h, q->max);
    q->low = v_min(v_select(v_lt(d, v_set1(MIN_EXP)), v_set1(R_INF), x.h), q->low);
  } else if (q->factor) {
    vreal f = v_select(v_eq(e, v_set1(0)), v_set1(0), q->factor(w, i, cnt));
    q->acc[u] = v_fma(f, e, q->acc[u]);
    return;
  } else {
    if (w->skip - i < LANES) e = v_select(v_eq(v_iota(), v_set1((real)(w->skip - i))), v_set1(0), e);
    if (!q->shifted) {
      if (w->prefetch) v_prefetch((const char *)(w->s->src[0] + i) + w->prefetch);
      if (w->store) put(w->store, i, cnt, e);
    }
  }
  q->acc[u] = v_add(q->acc[u], e);
}

SMI real exp_sum_group(exp_walk q, size_t i, size_t n) {
  for (int u = 0; u < VPB; u++) q.acc[u] = v_set1(0);
  q.max = v_set1(-R_INF), q.low = v_set1(R_INF);
  walk(i, n, exp_walk_step, &q);
  if (q.watch) q.w->max = v_hmax(q.max), q.w->low = v_hmin(q.low);
  return v_fold(q.acc);
}

typedef struct exp_look {
  const span *s;
  const consts *k;
  score_fn *score;
  size_t base;
  real value;
  vreal max[VPB];
} exp_look;

SMI void exp_max_step(void *walker, int u, size_t i, int cnt) {
  exp_look *w = walker;
  w->max[u] = v_max(score_at(w->score, w->s, w->k, i, cnt).h, w->max[u]);
}
SMI real exp_max_of(score_fn *f, const span *s, const consts *k, size_t i, size_t n) {
  exp_look w = {.s = s, .k = k, .score = f};
  for (int u = 0; u < VPB; u++) w.max[u] = v_set1(-R_INF);
  for (size_t g = 0; g < n; g += GROUP) walk(i + g, group_size(g, n), exp_max_step, &w);
  for (int u = 1; u < VPB; u++) w.max[0] = v_max(w.max[0], w.max[u]);
  return v_hmax(w.max[0]);
}

SMI vmask exp_equals(const void *ctx, size_t i, int cnt) {
  const exp_look *w = ctx;
  return v_eq(score_at(w->score, w->s, w->k, w->base + i, cnt).h, v_set1(w->value));
}
SMI size_t exp_find_of(score_fn *f, const span *s, const consts *k, size_t i, size_t n, real value) {
  exp_look w = {.s = s, .k = k, .score = f, .base = i, .value = value};
  return find_first(n, exp_equals, &w);
}

SMI void exp_count_of(score_fn *f, const span *s, const consts *k, size_t i, size_t n, double *inf, bool *nan) {
  for (size_t j = 0; j < n; j += LANES) {
    vreal h = score_at(f, s, k, i + j, lanes_left(n - j)).h;
    *nan |= m_any(m_not(v_eq(h, h)));
    *inf += (double)v_hsum(v_select(v_eq(h, v_set1(R_INF)), v_set1(1), v_set1(0)));
  }
}
SMI void exp_limit_of(score_fn *f, const span *s, const consts *k, size_t i, size_t n, real share, real none) {
  for (size_t j = 0; j < n; j += LANES) {
    int cnt = lanes_left(n - j);
    put(s->dst[0], i + j, cnt, v_select(v_eq(score_at(f, s, k, i + j, cnt).h, v_set1(R_INF)), v_set1(share), v_set1(none)));
  }
}

SMI vreal exp_weight(vreal e, const exp_row *r, bool peaked) {
  vreal y = v_select(v_lt(e, v_set1(r->tiny)), v_set1(0), v_mul(e, v_set1(r->inv)));
  return peaked ? v_select(v_eq(e, v_set1(r->one)), v_set1(1), y) : y;
}
SMI vreal exp_weight_again(const exp_emit *w, score_fn *f, bool scaled, size_t i, int cnt) {
  vreal d;
  return exp_weight(exp_term(f(w->s, w->k, i, cnt), scaled, w->r->ref, w->r->shift, true, &d), w->r, true);
}

/* Elements i .. i + n - 1, n <= GROUP, value by value. Streaming stores start at a 64-byte boundary. */
typedef vreal exp_value_fn(const exp_emit *w, size_t i, int cnt);
typedef struct exp_out {
  const exp_emit *w;
  exp_value_fn *value;
} exp_out;
SMI void exp_out_step(void *walker, int u, size_t i, int cnt) {
  const exp_out *o = walker;
  vreal y = o->value(o->w, i, cnt);
  (void)u;
  if (cnt == LANES && o->w->stream) v_stream(o->w->s->dst[0] + i, y);
  else put(o->w->s->dst[0], i, cnt, y);
}
SMI void exp_emit_group(const exp_emit *w, exp_value_fn *value, size_t i, size_t n) {
  if (w->stream) {
    size_t head = (64 - (uintptr_t)(w->s->dst[0] + i) % 64) % 64 / sizeof(real);
    if (head > n) head = n;
    if (head) put(w->s->dst[0], i, (int)head, value(w, i, (int)head));
    i += head, n -= head;
  }
  exp_out o = {w, value};
  walk(i, n, exp_out_step, &o);
}

/* Weights from stored terms. */
SMI vreal stored_value(const exp_emit *w, size_t i, int cnt) { return exp_weight(at(w->stored, i, cnt), w->r, false); }
SMI vreal stored_peaked_value(const exp_emit *w, size_t i, int cnt) { return exp_weight(at(w->stored, i, cnt), w->r, true); }
NOINLINE void stored_emit(const exp_emit *w, size_t i, size_t n) {
  if (w->peaked) exp_emit_group(w, stored_peaked_value, i, n);
  else exp_emit_group(w, stored_value, i, n);
}

/* The group functions of a way of forming scores, and their emission as weights. */
#define EXP_SCORES(name, score_name, is_scaled) \
  NOINLINE real name##_max(const span *s, const consts *k, size_t i, size_t n) { return exp_max_of(score_name, s, k, i, n); } \
  NOINLINE size_t name##_find(const span *s, const consts *k, size_t i, size_t n, real v) { return exp_find_of(score_name, s, k, i, n, v); } \
  NOINLINE void name##_count(const span *s, const consts *k, size_t i, size_t n, double *inf, bool *nan) { \
    exp_count_of(score_name, s, k, i, n, inf, nan); \
  } \
  NOINLINE void name##_limit(const span *s, const consts *k, size_t i, size_t n, real share, real none) { \
    exp_limit_of(score_name, s, k, i, n, share, none); \
  } \
  static real name##_low_part(const span *s, const consts *k, size_t i) { return v_first(score_name(s, k, i, 1).l); } \
  NOINLINE real name##_sum(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_group((exp_walk){.w = w, .score = score_name, .scaled = is_scaled}, i, n); \
  } \
  NOINLINE real name##_sum_watch(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_group((exp_walk){.w = w, .score = score_name, .scaled = is_scaled, .watch = true}, i, n); \
  } \
  NOINLINE real name##_sum_exact(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_group((exp_walk){.w = w, .score = score_name, .scaled = is_scaled, .shifted = true}, i, n); \
  } \
  static const exp_scores name##_scores = {name##_max,      name##_find, name##_count,     name##_limit, \
                                           name##_low_part, name##_sum,  name##_sum_watch, name##_sum_exact}; \
  SMI vreal name##_weight(const exp_emit *w, size_t i, int cnt) { return exp_weight_again(w, score_name, is_scaled, i, cnt); }

/* An emission, value by value, and a moment: sum factor e. */
#define EXP_EMIT(name, value) \
  NOINLINE void name(const exp_emit *w, size_t i, size_t n) { exp_emit_group(w, value, i, n); }
#define EXP_MOMENT(name, score_name, is_scaled, by) \
  NOINLINE real name(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_group((exp_walk){.w = w, .score = score_name, .scaled = is_scaled, .shifted = true, .factor = by}, i, n); \
  }

#endif
