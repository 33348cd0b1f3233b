/* engine/exp_loops.h - the fused loops of the exponential family over a group: score, exponential
 * and sum in one. Only the operators that list.h names for a benchmark include it; exp_stage.c has
 * the same loops over scores in L1. exp_loops.tmpl.h makes the functions of a way of forming
 * scores. */
#ifndef SMX_ENGINE_EXP_LOOPS_H
#define SMX_ENGINE_EXP_LOOPS_H
#include "exp.h"

/* The kinds of sums; what a sum does besides is a constant where it is instantiated. */
enum {
  SUM_SKIP = 1,
  SUM_STORE = 2,
  SUM_WATCH = 4,
  SUM_LOW = 8,
  SUM_SHIFT = 16,
  SUM_AHEAD = 32,
  SUM_HALF = 64, /* src[0] is of 16 bits */
  SUM_DEFERRED = 128,
  SUM_KEPT = 256 /* of kept scores: the terms are stored if there is a place */
};
/* One vector of a group's sum. The loop around it declares q, s, acc, max, low, next, odd. */
#define EXP_SUM_STEP(score_of_it, low_part, does, bytes, u, i, cnt) \
  { \
    const score x = score_of_it; \
    vreal d, p = exp_parts(x, low_part, q.scale_exp, &d), \
             e = (does & SUM_WATCH) && (cnt) == LANES ? v_scale_near(p, d) : v_scale(p, d); \
    EXP_SUM_TERM(x, d, e, does, bytes, u, i, cnt) \
  }
/* With a score x whose term e is known. */
#define EXP_SUM_TERM(x, d, e, does, bytes, u, i, cnt) \
  { \
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
    if ((does & SUM_STORE) && (q.store || !(does & (SUM_WATCH | SUM_LOW | SUM_KEPT)))) \
      put(q.store, i, cnt, e); \
    if ((does & SUM_SKIP) && q.skip - (i) < LANES) \
      e = v_select(v_eq(v_iota(), v_set1((real)(q.skip - (i)))), v_set1(0), e); \
    if ((does & SUM_DEFERRED) && u == VPB - 1 && (odd = !odd)) \
      deferred_store_write(q.deferred, DEFERRED_ELEMENTS); \
    acc[u] = v_add(acc[u], e); \
  }
/* After the loop: the other results. */
#define EXP_SUM_END(w, does) \
  if (does & SUM_WATCH) w->max = v_hmax(max); \
  if (does & (SUM_WATCH | SUM_LOW)) w->low = v_hmin(low); \
  for (int u = 0; u < VPB && (does & (SUM_WATCH | SUM_LOW)) && q.lanes; u++) \
    v_store(q.lanes + u * LANES, acc[u]);

/* The terms of a block of scores without a low part, step by step (v_exp_pairs) where there are
 * registers for that (Zen 4, logsumexp of bf16, 1024 x 32 000: 0.252 and 0.240 ns an element; of
 * f32, which waits for memory, no gain). */
#if SMX_REAL == 32 && defined(__AVX512F__) && !defined(V_PORTABLE)
enum { EXP_ABREAST = true };
#else
enum { EXP_ABREAST = false };
#endif
SMI void exp_terms_abreast(const score *x, real scale_exp, vreal *d, vreal *e) {
  vreal h[VPB], sum[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) h[u] = x[u].h;
  v_exp_pairs(h, VPB, sum, e);
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) d[u] = v_sub(v_sub(sum[u], v_set1(ROUNDER)), v_set1(scale_exp));
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) e[u] = v_scale_near(e[u], d[u]);
}

SMI real exp_sum_of(exp_sum *w, score_fn *f, bool low_part, int does, size_t first, size_t n) {
  const exp_sum q = *w;
  const span s = *w->s;
  const consts k = *w->k;
  const size_t bytes = does & SUM_HALF ? sizeof(uint16_t) : sizeof(real);
  fetcher next = fetch_from(first, w->deferred ? w->deferred->straight : fetches_straight());
  bool odd = false;
  vreal acc[VPB], max = v_set1(-R_INF), low = v_set1(R_INF);
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  EXP_SUM_STEP(score_at(f, &s, &k, does &SUM_SHIFT ? &q.shift : NULL, i, cnt), low_part, does, bytes, u, i, \
               cnt)
  if (EXP_ABREAST && (does & SUM_HALF) && !low_part) {
    for (size_t step = 0, at = 0; step < PAGE && step < n; at = at + PAGE < n ? at + PAGE : (step += BLOCK)) {
      if (n - at < BLOCK) {
        FOR_EACH_VECTOR_OF_BLOCK(UNROLL_BLOCK, first + at, n - at, STEP)
        continue;
      }
      score x[VPB];
      vreal d[VPB], e[VPB];
      const size_t base = first + at;
      UNROLL_BLOCK for (int u = 0; u < VPB; u++) x[u] = f(&s, &k, NULL, base + (size_t)u * LANES, LANES);
      exp_terms_abreast(x, q.scale_exp, d, e);
      UNROLL_BLOCK for (int u = 0; u < VPB; u++)
          EXP_SUM_TERM(x[u], d[u], e[u], does, bytes, u, base + (size_t)u * LANES, LANES)
    }
  } else {
    FOR_EACH_VECTOR(first, n, STEP)
  }
#undef STEP
  EXP_SUM_END(w, does)
  return v_fold(acc);
}

SMI real exp_max_of(score_fn *f, const span *at_row, const consts *with, size_t first, size_t n) {
  const span s = *at_row;
  const consts k = *with;
  vreal max[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF);
#define STEP(u, i, cnt) max[u] = v_max(score_at(f, &s, &k, NULL, i, cnt).h, max[u])
  FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
#undef STEP
  UNROLL_BLOCK for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]);
  return v_hmax(max[0]);
}

typedef struct exp_search {
  const span *s;
  const consts *k;
  size_t base;
  real shift, value;
} exp_search;
SMI vmask exp_equals_of(score_fn *f, const exp_search *w, size_t i, int cnt) {
  return v_eq(score_at(f, w->s, w->k, &w->shift, w->base + i, cnt).h, v_set1(w->value));
}

SMI vreal exp_weight_again(const exp_write *w, score_fn *f, bool scaled, size_t i, int cnt) {
  vreal d;
  return exp_weight(exp_term(f(w->s, w->k, &w->r->shift, i, cnt), scaled, w->r->scale_exp, &d), w->r, true);
}

/* Elements i .. i + n - 1, n <= GROUP, value by value. Streaming stores start at a 64-byte
 * boundary. */
SMI void exp_write_fused_of(const exp_write *to, exp_value_fn *value, size_t first, size_t n) {
  const span s = *to->s;
  const consts k = *to->k;
  const exp_row r = *to->r;
  const exp_write q = {.s = &s,
                       .k = &k,
                       .r = &r,
                       .stored = to->stored,
                       .may_be_one = to->may_be_one,
                       .stream = to->stream,
                       .next = to->next};
  real *const y = s.dst[0];
  if (!q.stream) {
#define STEP(u, i, cnt) put(y, i, cnt, value(&q, i, cnt))
    FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
#undef STEP
    return;
  }
  size_t head = before_line(y + first);
  if (head > n) head = n;
  if (head) put(y, first, (int)head, value(&q, first, (int)head));
  first += head, n -= head;
#define STEP(u, i, cnt) \
  { \
    const vreal out = value(&q, i, cnt); \
    v_prefetch_far(q.next + (i)); \
    if ((cnt) == LANES) put_uncached(y + (i), out, q.stream); \
    else v_store_n(y + (i), cnt, out); \
  }
  FOR_EACH_VECTOR_OF_PAIR(first, n, STEP)
#undef STEP
}

/* The sum of one lane. A lane of a group has PAGE / BLOCK elements of each page; its terms are
 * formed side by side and added in their order. */
typedef void exp_lane_score_fn(const exp_sum *w, size_t i, real *h, real *l);
SMI real exp_lane_of(const exp_sum *w, exp_lane_score_fn *score_of, bool low_part, size_t first, size_t n) {
  real e[GROUP / BLOCK], l[GROUP / BLOCK], sum = 0;
  size_t count = 0;
  for (size_t step = (w->skip - first) % BLOCK; step < PAGE && step < n; step += BLOCK)
    for (size_t i = step; i < n; i += PAGE) {
      score_of(w, first + i, e + count, l + count);
      if (first + i == w->skip) e[count] = -R_INF;
      count++;
    }
  for (size_t j = 0; j < count; j += LANES) {
    const int cnt = lanes_left(count - j);
    vreal d;
    put(e, j, cnt, exp_term((score){at(e, j, cnt), at(l, j, cnt)}, low_part, w->scale_exp, &d));
  }
  for (size_t j = 0; j < count; j++) sum += e[j];
  return sum;
}

/* Weights from stored terms. */
SMI vreal stored_value(const exp_write *w, size_t i, int cnt) {
  return exp_weight(at(w->stored, i, cnt), w->r, false);
}
SMI vreal stored_value_may_be_one(const exp_write *w, size_t i, int cnt) {
  return exp_weight(at(w->stored, i, cnt), w->r, true);
}

/* A fused write loop, value by value. */
#define EXP_WRITE_FUSED(name, value) \
  NOINLINE void name(const exp_write *w, size_t i, size_t n) { exp_write_fused_of(w, value, i, n); }

#endif
