/* engine/exp.h - the exponential family: weights, their logarithms, and sums of e^score, over scores that an operator forms.
 *
 * A score is h + l, two reals (l is 0 unless the operator scales). Its term is e = p 2^(k - ref): (p, k) from v_exp_pair, and +0 when
 * k - ref < MIN_EXP. The sum S of a row has ref = k(max) - 1; scaling by powers of two commutes with rounding, so a sum taken with an earlier
 * reference has the same bits as long as neither overflows nor flushes another set of terms. A weight is
 *     e < tiny ? 0 : e == S ? 1 : e (1 / S).
 * Where the largest score lies beyond +-2^19, the x it comes from is subtracted from every x before anything else (`shift`), which is exact
 * wherever the term is not 0, and no score overflows.
 *
 * This file: what one group of a row is put through, instantiated for each way of forming scores. exp_program.h, exp_rows.h: the ways through a row. */
#ifndef SMX_ENGINE_EXP_H
#define SMX_ENGINE_EXP_H
#include "walk.h"

typedef struct score {
  vreal h, l;
} score;

/* The scalars of a row once its sums are known. */
typedef struct exp_row {
  real shift, ref;       /* of the terms; shift is an x */
  real tiny, inv, one;   /* of the weights */
  real top, top_l, log;  /* of the logarithms: y = (h - top) + (l - top_l) - log */
  double max, top_x;     /* the largest score, shift and all, and the x it came from */
  double others;         /* (S without the first largest term) / that term */
  double log1p;          /* log(1 + others) = log S - max; log is this, rounded */
  double moment, spread; /* sum factor e / S, twice */
} exp_row;

/* Outputs of a row that are written while the next is summed, in order and a few lines at a time, y past the caches. */
typedef struct exp_due exp_due;
struct exp_due {
  void (*write)(const exp_due *due, size_t i, size_t n);
  const void *y;
  const real *stored; /* where its terms wait, or NULL */
  size_t at, n, size; /* the elements that are left: none when at is n; bytes of one */
  bool straight;      /* what is summed meanwhile is fetched straight on */
};
/* A core's stores leave in their order: more than eight lines at once on their way to memory hold up the terms behind them (Xeon, 1024 x 32 768:
 * a line at a time 0.89, eight 0.92, sixteen 1.00, all 1.07 ns). Every second block writes as much as two. */
enum { DUE_ELEMENTS = 2 * BLOCK };
/* The next of them, up to the end of a line. */
SMI void exp_due_write(exp_due *due, size_t most) {
  const size_t left = due->n - due->at;
  if (!left) return;
  const size_t whole = most - ((uintptr_t)due->y + due->at * due->size) % 64 / due->size, n = left < whole ? left : whole;
  due->write(due, due->at, n);
  due->at += n;
}
SMI exp_due exp_due_none(row_bypass how, size_t size) { return (exp_due){.size = size, .straight = fetches_straight_beside(how)}; }
/* Outputs from y on, later. A line that two rows share is written through the caches; fetched by then, it does not hold up the others. */
SMI void exp_due_begin(exp_due *due, void (*write)(const exp_due *due, size_t i, size_t n), const void *y, const real *stored, size_t n) {
  const uintptr_t end = (uintptr_t)y + n * due->size;
  if (end % 64) v_prefetch((const void *)(end - 1));
  due->write = write, due->y = y, due->stored = stored;
  due->at = 0, due->n = n;
}
/* All of them before element `end`, and to the end of its line. */
SMI void exp_due_until(exp_due *due, size_t end) {
  while (due->at < end && due->at < due->n) exp_due_write(due, due->at + DUE_ELEMENTS < end ? GROUP : DUE_ELEMENTS);
}
SMI void exp_due_rest(exp_due *due) { exp_due_until(due, due->n); }

/* What one group is summed with. */
typedef struct exp_sum {
  const span *s;
  const consts *k;
  real ref, shift, center; /* center: what a moment is taken about */
  real *store;             /* e goes here too; for sum_watch and sum_low NULL = nowhere */
  ptrdiff_t prefetch;      /* bytes ahead of x to prefetch, or 0; sum_watch always fetches the next group, into a farther cache */
  size_t skip;             /* element whose term is +0 instead, or SIZE_MAX */
  real max, low;           /* found by sum_watch: the largest and the smallest score; by sum_low: the smallest that is not flushed */
  real *lanes;             /* where sum_watch and sum_low leave their lanes, or NULL */
  const exp_row *r;        /* for moments */
  exp_due *due;            /* for sum_due: what is written meanwhile */
} exp_sum;

/* What one group is written with. */
typedef struct exp_emit {
  const span *s;
  const consts *k;
  const exp_row *r;
  const real *stored; /* the terms, or NULL = form them again */
  bool peaked;        /* some term may be all of S */
  row_bypass stream;
  const real *next; /* what is read next, which streaming stores fetch meanwhile; where that is nothing, something in the cache */
} exp_emit;

/* The largest term is 2 p, p < 1.415: a term is all of S only where S is below this. */
#define PEAKED ((real)2.83)

typedef real exp_sum_fn(exp_sum *w, size_t i, size_t n);
typedef void exp_emit_fn(const exp_emit *w, size_t i, size_t n);

/* A way of forming scores, at the level of groups. */
typedef struct exp_scores {
  real (*max)(const span *s, const consts *k, size_t i, size_t n);                            /* anything when there is a NaN */
  size_t (*find)(const span *s, const consts *k, real shift, size_t i, size_t n, real value); /* offset of the first score of value, or n */
  void (*count)(const span *s, const consts *k, size_t i, size_t n, double *inf, double *valid, bool *nan);
  void (*limit)(const span *s, const consts *k, size_t i, size_t n, real share, real none); /* dst[0] = score is +inf ? share : none */
  real (*low_part)(const span *s, const consts *k, real shift, size_t i);
  exp_sum_fn *sum;       /* ref, skip, prefetch */
  exp_sum_fn *sum_store; /* ref, store, prefetch */
  exp_sum_fn *sum_watch; /* ref, store; finds max and low; right only if low says that no term is flushed */
  exp_sum_fn *sum_due;   /* the same, while other outputs are written */
  exp_sum_fn *sum_low;   /* ref, store: where terms are flushed */
  exp_sum_fn *lane;      /* ref, skip: the sum of one lane, that of skip, without it */
  exp_sum_fn *sum_exact; /* ref, shift, skip */
} exp_scores;

/* The parts of a term p 2^d. */
SMI vreal exp_parts(score x, bool scaled, real ref, vreal *d) {
  vreal k = exp_k(x.h), t = exp_reduce(x.h, k);
  if (scaled) t = v_add(t, x.l);
  *d = v_sub(k, v_set1(ref));
  return exp_poly(t);
}
SMI vreal exp_term(score x, bool scaled, real ref, vreal *d) {
  vreal p = exp_parts(x, scaled, ref, d);
  return v_scale(p, *d);
}

/* A masked element has h = -inf. shift NULL = nothing is subtracted from x. */
typedef score score_fn(const span *s, const consts *k, const real *shift, size_t i, int cnt);
SMI vreal shifted_by(vreal x, const real *shift) { return shift ? v_sub(x, v_set1(*shift)) : x; }
typedef vreal exp_factor(const exp_sum *w, vreal e, size_t i, int cnt); /* e: the term */

SMI score score_at(score_fn *f, const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  score x = f(s, k, shift, i, cnt);
  if (cnt < LANES) x.h = v_select(lanes_below(cnt), x.h, v_set1(-R_INF));
  return x;
}

/* All sums; what a sum does besides is a constant where it is instantiated. */
enum {
  SUM_SKIP = 1,
  SUM_STORE = 2,
  SUM_WATCH = 4,
  SUM_LOW = 8,
  SUM_SHIFT = 16,
  SUM_AHEAD = 32,
  SUM_HALVES = 64, /* src[0] is of 16 bits */
  SUM_DUE = 128
};
SMI real exp_sum_of(exp_sum *w, score_fn *f, bool scaled, int does, exp_factor *factor, size_t first, size_t n) {
  const exp_sum q = *w;
  const span s = *w->s;
  const consts k = *w->k;
  const size_t bytes = does & SUM_HALVES ? sizeof(uint16_t) : sizeof(real);
  fetcher next = fetch_from(first, w->due ? w->due->straight : fetches_straight());
  bool odd = false;
  vreal acc[VPB], max = v_set1(-R_INF), low = v_set1(R_INF);
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    const score x = score_at(f, &s, &k, does & SUM_SHIFT ? &q.shift : NULL, i, cnt); \
    vreal d, p = exp_parts(x, scaled, q.ref, &d), e = (does & SUM_WATCH) && (cnt) == LANES ? v_scale_near(p, d) : v_scale(p, d); \
    if (does & SUM_WATCH) { \
      if ((size_t)(u)*LANES * bytes % 64 == 0) { /* once a line */ \
        v_prefetch_far((const char *)s.src[0] + fetch_next(&next, u, i) * bytes); \
        v_prefetch((const char *)s.src[0] + ((i) + next.near) * bytes); \
      } \
      max = v_max(x.h, max); \
      low = v_min((cnt) == LANES ? x.h : v_select(lanes_below(cnt), x.h, v_set1(R_INF)), low); \
    } \
    if (does & SUM_LOW) low = v_min(v_select(v_lt(d, v_set1(MIN_EXP)), v_set1(R_INF), x.h), low); \
    if (does & SUM_AHEAD) v_prefetch((const char *)(s.src[0] + (i)) + q.prefetch); \
    if ((does & SUM_STORE) && (q.store || !(does & (SUM_WATCH | SUM_LOW)))) put(q.store, i, cnt, e); \
    if ((does & SUM_SKIP) && q.skip - (i) < LANES) e = v_select(v_eq(v_iota(), v_set1((real)(q.skip - (i)))), v_set1(0), e); \
    if ((does & SUM_DUE) && u == VPB - 1 && (odd = !odd)) exp_due_write(q.due, DUE_ELEMENTS); \
    acc[u] = factor ? v_fma(v_select(v_eq(e, v_set1(0)), v_set1(0), factor(w, e, i, cnt)), e, acc[u]) : v_add(acc[u], e); \
  }
  WALK(first, n, STEP)
#undef STEP
  if (does & SUM_WATCH) w->max = v_hmax(max);
  if (does & (SUM_WATCH | SUM_LOW)) w->low = v_hmin(low);
  for (int u = 0; u < VPB && (does & (SUM_WATCH | SUM_LOW)) && q.lanes; u++) v_store(q.lanes + u * LANES, acc[u]);
  return v_fold(acc);
}

SMI real exp_max_of(score_fn *f, const span *at_row, const consts *with, size_t first, size_t n) {
  const span s = *at_row;
  const consts k = *with;
  vreal max[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF);
#define STEP(u, i, cnt) max[u] = v_max(score_at(f, &s, &k, NULL, i, cnt).h, max[u])
  WALK_STRAIGHT(first, n, STEP)
#undef STEP
  UNROLL_BLOCK for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]);
  return v_hmax(max[0]);
}

/* A lane of a group has PAGE / BLOCK elements of each page. Its terms are formed side by side, and added in their order. */
SMI real exp_lane_of(const exp_sum *w, score_fn *f, bool scaled, size_t first, size_t n) {
  real e[GROUP / BLOCK], l[GROUP / BLOCK], sum = 0;
  size_t count = 0;
  for (size_t step = (w->skip - first) % BLOCK; step < PAGE && step < n; step += BLOCK)
    for (size_t i = step; i < n; i += PAGE) {
      const score x = score_at(f, w->s, w->k, NULL, first + i, 1);
      e[count] = first + i == w->skip ? -R_INF : v_first(x.h);
      l[count++] = v_first(x.l);
    }
  for (size_t j = 0; j < count; j += LANES) {
    const int cnt = lanes_left(count - j);
    vreal d;
    put(e, j, cnt, exp_term((score){at(e, j, cnt), at(l, j, cnt)}, scaled, w->ref, &d));
  }
  for (size_t j = 0; j < count; j++) sum += e[j];
  return sum;
}

typedef struct exp_look {
  const span *s;
  const consts *k;
  size_t base;
  real shift, value;
} exp_look;
SMI vmask exp_equals_of(score_fn *f, const exp_look *w, size_t i, int cnt) {
  return v_eq(score_at(f, w->s, w->k, &w->shift, w->base + i, cnt).h, v_set1(w->value));
}

SMI void exp_count_of(score_fn *f, const span *s, const consts *k, size_t i, size_t n, double *inf, double *valid, bool *nan) {
  for (size_t j = 0; j < n; j += LANES) {
    vreal h = score_at(f, s, k, NULL, i + j, lanes_left(n - j)).h;
    *nan |= m_any(m_not(v_eq(h, h)));
    *inf += (double)v_hsum(v_select(v_eq(h, v_set1(R_INF)), v_set1(1), v_set1(0)));
    *valid += (double)v_hsum(v_select(v_lt(v_set1(-R_INF), h), v_set1(1), v_set1(0)));
  }
}
SMI void exp_limit_of(score_fn *f, const span *s, const consts *k, size_t i, size_t n, real share, real none) {
  for (size_t j = 0; j < n; j += LANES) {
    int cnt = lanes_left(n - j);
    put(s->dst[0], i + j, cnt, v_select(v_eq(score_at(f, s, k, NULL, i + j, cnt).h, v_set1(R_INF)), v_set1(share), v_set1(none)));
  }
}

SMI vreal exp_share(vreal e, real inv, real tiny, real one, bool peaked) {
  vreal y = v_flush(v_mul(e, v_set1(inv)), e, v_set1(tiny));
  return peaked ? v_select(v_eq(e, v_set1(one)), v_set1(1), y) : y;
}
SMI vreal exp_weight(vreal e, const exp_row *r, bool peaked) { return exp_share(e, r->inv, r->tiny, r->one, peaked); }
SMI vreal exp_weight_again(const exp_emit *w, score_fn *f, bool scaled, size_t i, int cnt) {
  vreal d;
  return exp_weight(exp_term(f(w->s, w->k, &w->r->shift, i, cnt), scaled, w->r->ref, &d), w->r, true);
}

/* Elements i .. i + n - 1, n <= GROUP, value by value. Streaming stores start at a 64-byte boundary. */
typedef vreal exp_value_fn(const exp_emit *w, size_t i, int cnt);
SMI void exp_emit_of(const exp_emit *to, exp_value_fn *value, size_t first, size_t n) {
  const span s = *to->s;
  const consts k = *to->k;
  const exp_row r = *to->r;
  const exp_emit q = {&s, &k, &r, to->stored, to->peaked, to->stream, to->next};
  real *const y = s.dst[0];
  if (!q.stream) {
#define STEP(u, i, cnt) put(y, i, cnt, value(&q, i, cnt))
    WALK_STRAIGHT(first, n, STEP)
#undef STEP
    return;
  }
  size_t head = (64 - (uintptr_t)(y + first) % 64) % 64 / sizeof(real);
  if (head > n) head = n;
  if (head) put(y, first, (int)head, value(&q, first, (int)head));
  first += head, n -= head;
#define STEP(u, i, cnt) \
  { \
    const vreal out = value(&q, i, cnt); \
    v_prefetch_far(q.next + (i)); \
    if ((cnt) == LANES) put_past(y + (i), out, q.stream); \
    else v_store_n(y + (i), cnt, out); \
  }
  WALK_PAIR(first, n, STEP)
#undef STEP
}

/* Weights from stored terms. */
SMI vreal stored_value(const exp_emit *w, size_t i, int cnt) { return exp_weight(at(w->stored, i, cnt), w->r, false); }
SMI vreal stored_peaked_value(const exp_emit *w, size_t i, int cnt) { return exp_weight(at(w->stored, i, cnt), w->r, true); }
NOINLINE void stored_emit(const exp_emit *w, size_t i, size_t n) {
  if (w->peaked) exp_emit_of(w, stored_peaked_value, i, n);
  else exp_emit_of(w, stored_value, i, n);
}

/* The output of a row that is summed, for later. */
typedef struct exp_output {
  exp_due due;
  row_bypass bypass;
  exp_emit emit;
  exp_emit_fn *write;
  span s;
  consts k;
  exp_row r;
} exp_output;
static inline void exp_output_write(const exp_due *due, size_t i, size_t n) {
  const exp_output *out = (const exp_output *)(const void *)due;
  out->write(&out->emit, i, n);
}
static inline exp_output exp_output_none(row_bypass bypass, size_t size) {
  exp_output out;
  out.due = exp_due_none(bypass, size), out.bypass = bypass;
  return out;
}
static inline void exp_output_of(exp_output *out, const span *s, const consts *k, const exp_row *r, const real *stored,
                                 exp_emit_fn *write) {
  out->s = *s, out->k = *k, out->r = *r, out->write = write;
  out->emit = (exp_emit){.s = &out->s, .k = &out->k, .r = &out->r, .stored = stored, .peaked = true, .stream = out->bypass};
  out->emit.next = stored ? stored : s->src[0];
  exp_due_begin(&out->due, exp_output_write, s->dst[0], stored, s->n);
}

/* The group functions of a way of forming scores, and their emission as weights. */
#define EXP_SCORES(name, score_name, is_scaled) \
  NOINLINE real name##_max(const span *s, const consts *k, size_t i, size_t n) { return exp_max_of(score_name, s, k, i, n); } \
  SMI vmask name##_equals(const void *w, size_t i, int cnt) { return exp_equals_of(score_name, w, i, cnt); } \
  NOINLINE size_t name##_find(const span *s, const consts *k, real shift, size_t i, size_t n, real value) { \
    const exp_look w = {s, k, i, shift, value}; \
    return find_first(n, name##_equals, &w); \
  } \
  NOINLINE void name##_count(const span *s, const consts *k, size_t i, size_t n, double *inf, double *valid, bool *nan) { \
    exp_count_of(score_name, s, k, i, n, inf, valid, nan); \
  } \
  NOINLINE void name##_limit(const span *s, const consts *k, size_t i, size_t n, real share, real none) { \
    exp_limit_of(score_name, s, k, i, n, share, none); \
  } \
  static real name##_low_part(const span *s, const consts *k, real shift, size_t i) { return v_first(score_name(s, k, &shift, i, 1).l); } \
  NOINLINE real name##_sum(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, score_name, is_scaled, SUM_SKIP | SUM_AHEAD, NULL, i, n); \
  } \
  NOINLINE real name##_sum_store(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, score_name, is_scaled, SUM_STORE | SUM_AHEAD, NULL, i, n); \
  } \
  NOINLINE real name##_sum_watch(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, score_name, is_scaled, SUM_WATCH | SUM_STORE, NULL, i, n); \
  } \
  NOINLINE real name##_sum_due(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, score_name, is_scaled, SUM_WATCH | SUM_STORE | SUM_DUE, NULL, i, n); \
  } \
  NOINLINE real name##_sum_low(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, score_name, is_scaled, SUM_LOW | SUM_STORE, NULL, i, n); \
  } \
  NOINLINE real name##_lane(exp_sum *w, size_t i, size_t n) { return exp_lane_of(w, score_name, is_scaled, i, n); } \
  NOINLINE real name##_sum_exact(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, score_name, is_scaled, SUM_SKIP | SUM_SHIFT, NULL, i, n); \
  } \
  static const exp_scores name##_scores = {name##_max,      name##_find,    name##_count,     name##_limit, \
                                           name##_low_part, name##_sum,     name##_sum_store, name##_sum_watch, \
                                           name##_sum_due,  name##_sum_low, name##_lane,      name##_sum_exact}; \
  SMI vreal name##_weight(const exp_emit *w, size_t i, int cnt) { return exp_weight_again(w, score_name, is_scaled, i, cnt); }

/* An emission, value by value, and a moment: sum factor e. */
#define EXP_EMIT(name, value) \
  NOINLINE void name(const exp_emit *w, size_t i, size_t n) { exp_emit_of(w, value, i, n); }
#define EXP_MOMENT(name, score_name, is_scaled, by) \
  NOINLINE real name(exp_sum *w, size_t i, size_t n) { return exp_sum_of(w, score_name, is_scaled, SUM_SHIFT, by, i, n); }

#endif
