/* engine/exp_halves.h - softmax of rows of f16 or bf16. They are read and written as they are, by the engine of real rows (exp.h): a score is
 * widened when it is formed, a weight is rounded when it is stored. The terms of a row that the caches hold wait in scratch memory between the
 * two; those of a longer row are formed again. Bits are those of the row in f32, rounded. */
#ifndef SMX_ENGINE_EXP_HALVES_H
#define SMX_ENGINE_EXP_HALVES_H
#include "convert.h"
#include "exp_rows.h"

/* Only whole lines pass the caches. */
SMI size_t halves_to_line(const uint16_t *p) { return -(uintptr_t)p % 64 / sizeof *p; }

/* The score functions, the emissions and the program of one storage type: src[0] and dst[0] of a span are arrays of it. */
#define HALF_KIND(name) \
  SMI score name##_score(const span *s, const consts *k, const real *shift, size_t i, int cnt) { \
    (void)k; \
    return (score){shifted_by(at_##name((const uint16_t *)(const void *)s->src[0], i, cnt), shift), v_set1(0)}; \
  } \
  EXP_SCORES(name##_all, name##_score, false) \
  NOINLINE real name##_sum_watch(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, name##_score, false, SUM_WATCH | SUM_STORE | SUM_HALVES, NULL, i, n); \
  } \
  NOINLINE real name##_sum_due(exp_sum *w, size_t i, size_t n) { \
    return exp_sum_of(w, name##_score, false, SUM_WATCH | SUM_STORE | SUM_HALVES | SUM_DUE, NULL, i, n); \
  } \
  NOINLINE real name##_sum_store(exp_sum *w, size_t i, size_t n) { return exp_sum_of(w, name##_score, false, SUM_STORE, NULL, i, n); } \
  static const exp_scores name##_scores = {.max = name##_all_max, \
                                           .find = name##_all_find, \
                                           .count = name##_all_count, \
                                           .low_part = name##_all_low_part, \
                                           .sum = name##_all_sum, \
                                           .sum_store = name##_sum_store, \
                                           .sum_watch = name##_sum_watch, \
                                           .sum_due = name##_sum_due, \
                                           .sum_low = name##_all_sum_low, \
                                           .sum_exact = name##_all_sum_exact}; \
  SMI void name##_emit_of(const exp_emit *to, exp_value_fn *value, size_t first, size_t n) { \
    const span s = *to->s; \
    const consts k = *to->k; \
    const exp_row r = *to->r; \
    const exp_emit q = {.s = &s, .k = &k, .r = &r, .stored = to->stored, .peaked = to->peaked}; \
    const row_bypass how = to->stream; \
    uint16_t *const y = (uint16_t *)(void *)s.dst[0]; \
    const uint16_t *const next = (const uint16_t *)(const void *)to->next; \
    const size_t end = first + n; \
    if (how == BYPASS_PAST) { \
      for (const size_t line = first + halves_to_line(y + first); first < line && first < end;) { \
        const int cnt = lanes_left((line < end ? line : end) - first); \
        put_##name(y, first, cnt, value(&q, first, cnt)); \
        first += (size_t)cnt; \
      } \
      const size_t whole = (end - first) / HALF_LINE * HALF_LINE; \
      WALK_STRAIGHT(first, whole, HALF_PAST_##name) \
      first += whole; \
    } \
    WALK_STRAIGHT(first, end - first, HALF_STEP_##name) \
  } \
  NOINLINE void name##_weights(const exp_emit *w, size_t i, size_t n) { name##_emit_of(w, name##_all_weight, i, n); } \
  NOINLINE void name##_stored(const exp_emit *w, size_t i, size_t n) { \
    if (w->peaked) name##_emit_of(w, stored_peaked_value, i, n); \
    else name##_emit_of(w, stored_value, i, n); \
  } \
  static const exp_body name##_body = {.setup = setup_plain, .scores = &name##_scores, .emit = name##_weights}; \
  EXP_KERNEL(name)
#define HALF_NEXT(u, i) \
  if ((u)*LANES % HALF_LINE == 0) v_prefetch_far(next + (i)); /* once a line */
#define HALF_STEP(name, u, i, cnt) \
  { \
    HALF_NEXT(u, i) \
    if ((u)*LANES % HALF_LINE == 0 && how == BYPASS_THROUGH) v_prefetch((const char *)(y + (i)) + WRITE_AHEAD); \
    put_##name(y, i, cnt, value(&q, i, cnt)); \
  }
#define HALF_STEP_f16(u, i, cnt) HALF_STEP(f16, u, i, cnt)
#define HALF_STEP_bf16(u, i, cnt) HALF_STEP(bf16, u, i, cnt)
#define HALF_PAST(name, u, i, cnt) \
  { \
    HALF_NEXT(u, i) \
    stream_##name(y + (i), value(&q, i, cnt)); \
  }
#define HALF_PAST_f16(u, i, cnt) HALF_PAST(f16, u, i, cnt)
#define HALF_PAST_bf16(u, i, cnt) HALF_PAST(bf16, u, i, cnt)
HALF_KIND(f16)
HALF_KIND(bf16)

/* A row that the caches hold. to_next: halves to what is read after it. As with the others, false, with nothing written, when the row is not an ordinary
 * one. */
static inline bool half_cached_row(const exp_body *b, exp_emit_fn *emit, const span *s, real *store, ptrdiff_t to_next) {
  const consts k = {{0}};
  const real max = b->scores->max(s, &k, 0, s->n);
  if (!in_range(max)) return false;
  exp_row r = {.ref = k_of(max) - 1};
  exp_sum w = {.s = s, .k = &k, .skip = SIZE_MAX, .ref = r.ref, .store = store};
  double sum = 0;
  for (size_t g = 0; g < s->n; g += GROUP) sum += (double)b->scores->sum_store(&w, g, group_size(g, s->n));
  if (sum != sum) return false;
  exp_settle(b, s, &k, &r, sum, sum);
  const void *const next = (const uint16_t *)(const void *)s->src[0] + to_next;
  const exp_emit e = {.s = s, .k = &k, .r = &r, .stored = store, .peaked = r.one < PEAKED, .stream = bypass_near(s->stream), .next = next};
  for (size_t g = 0; g < s->n; g += GROUP) emit(&e, g, group_size(g, s->n));
  return true;
}

/* The row program up to the weights; what writes anything else belongs to another kind of row. */
static inline bool half_long_row(const row_kernel *kernel, const span *s) {
  const row_call c = {.n = s->n, .rows = 1, .src = {s->src[0]}, .dst = {s->dst[0]}, .bypass = s->stream};
  row_state st;
  kernel->begin(&c, &st);
  do {
    if (st.writes && st.mode != EXP_EMIT_PASS) return false;
    run_pass(kernel, &c, &st);
  } while (kernel->next(&c, &st));
  return true;
}

/* Rows that come from memory, or whose output goes there: the terms of two take turns where they are short. */
static inline size_t half_far_rows(const exp_body *b, exp_emit_fn *emit, const half_rows *h) {
  const bool past = h->bypass == BYPASS_PAST;
  const row_call c = {.n = h->n, .rows = 1, .bypass = past ? BYPASS_PAST : BYPASS_NOT};
  const consts k = {{0}};
  const size_t second = row_halves_two(h->n) ? row_halves_place(h->n) : 0;
  exp_output out = exp_output_none(h->bypass, sizeof(uint16_t));
  bool ordinary = true;
  size_t r = 0;
  span s = {.n = h->n, .src = {h->x}, .dst = {h->y}, .stream = h->bypass};
  for (; r < h->rows && ordinary; r += ordinary, span_next_halves(h, 0, &s)) {
    ordinary = exp_far_row(b, &c, &s, &k, (real *)h->scratch + r % 2 * second, emit, &out);
    if (!past) exp_due_rest(&out.due);
  }
  exp_due_rest(&out.due);
  if (past) v_stream_end();
  return r;
}

/* As row_kernel.halves. */
static size_t exp_halves(const half_rows *h) {
  const bool f16 = h->type == STORE_F16;
  const exp_body *const b = f16 ? &f16_body : &bf16_body;
  exp_emit_fn *const emit = f16 ? f16_stored : bf16_stored;
  if (h->n <= ROW_HALVES && h->n > (h->bypass == BYPASS_PAST ? FAR_FROM : 2 * GROUP)) return half_far_rows(b, emit, h);
  span s = {.n = h->n, .src = {h->x}, .dst = {h->y}, .stream = h->bypass};
  for (size_t r = 0; r < h->rows; r++, span_next_halves(h, 0, &s)) {
    const ptrdiff_t to_next = r + 1 < h->rows ? h->x_step : 0;
    if (h->n > ROW_HALVES ? !half_long_row(f16 ? &f16_kernel : &bf16_kernel, &s) : !half_cached_row(b, emit, &s, h->scratch, to_next))
      return r;
  }
  return h->rows;
}

#endif
