/* engine/exp_halves.h - softmax of rows of f16 or bf16. They are read and written as they are, by the engine of real rows (exp.h): a score is
 * widened when it is formed, a weight is rounded when it is stored. The terms of a row that the caches hold wait in scratch memory between the
 * two; those of a longer row are formed again. Bits are those of the row in f32, rounded. */
#ifndef SMX_ENGINE_EXP_HALVES_H
#define SMX_ENGINE_EXP_HALVES_H
#include "convert.h"
#include "exp_rows.h"

/* Copies bytes past the caches. */
NOINLINE void stream_bytes(void *to, const void *from, size_t bytes) {
  char *y = to;
  const char *x = from;
  const size_t head = (64 - (uintptr_t)y % 64) % 64;
  size_t i = head < bytes ? head : bytes;
  memcpy(y, x, i);
  for (; i + 64 <= bytes; i += 64) v_stream((real *)(void *)(y + i), v_load((const real *)(const void *)(x + i)));
  memcpy(y + i, x + i, bytes - i);
}

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
  NOINLINE real name##_sum_store(exp_sum *w, size_t i, size_t n) { return exp_sum_of(w, name##_score, false, SUM_STORE, NULL, i, n); } \
  static const exp_scores name##_scores = {.max = name##_all_max, \
                                           .find = name##_all_find, \
                                           .count = name##_all_count, \
                                           .low_part = name##_all_low_part, \
                                           .sum = name##_all_sum, \
                                           .sum_store = name##_sum_store, \
                                           .sum_watch = name##_sum_watch, \
                                           .sum_low = name##_all_sum_low, \
                                           .sum_exact = name##_all_sum_exact}; \
  SMI void name##_emit_of(const exp_emit *to, exp_value_fn *value, size_t first, size_t n) { \
    const span s = *to->s; \
    const consts k = *to->k; \
    const exp_row r = *to->r; \
    const exp_emit q = {.s = &s, .k = &k, .r = &r, .stored = to->stored, .peaked = to->peaked}; \
    const bool through = to->stream == BYPASS_THROUGH, aside = to->stream == BYPASS_PAST; \
    uint16_t part[GROUP] __attribute__((aligned(64))), *const row = (uint16_t *)(void *)s.dst[0], *const y = aside ? part : row; \
    const size_t from = aside ? first : 0; \
    const uint16_t *const next = (const uint16_t *)(const void *)to->next; \
    WALK_STRAIGHT(first, n, HALF_STEP_##name) \
    if (aside) stream_bytes(row + first, part, n * sizeof *part); \
  } \
  NOINLINE void name##_weights(const exp_emit *w, size_t i, size_t n) { name##_emit_of(w, name##_all_weight, i, n); } \
  NOINLINE void name##_stored(const exp_emit *w, size_t i, size_t n) { \
    if (w->peaked) name##_emit_of(w, stored_peaked_value, i, n); \
    else name##_emit_of(w, stored_value, i, n); \
  } \
  static const exp_body name##_body = {.setup = setup_plain, .scores = &name##_scores, .emit = name##_weights}; \
  EXP_KERNEL(name)
#define HALF_STEP(put_half, i, cnt) \
  { \
    v_prefetch_far(next + (i)); \
    if (through) v_prefetch((const char *)(row + (i)) + WRITE_AHEAD); \
    put_half(y, (i)-from, cnt, value(&q, i, cnt)); \
  }
#define HALF_STEP_f16(u, i, cnt) HALF_STEP(put_f16, i, cnt)
#define HALF_STEP_bf16(u, i, cnt) HALF_STEP(put_bf16, i, cnt)
HALF_KIND(f16)
HALF_KIND(bf16)

/* A row that the caches hold. Both return false, with nothing written, when the row is not an ordinary one. */
static inline bool half_cached_row(const exp_body *b, exp_emit_fn *emit, const half_row *h, const span *s) {
  real *const store = h->scratch;
  const consts k = {{0}};
  const real max = b->scores->max(s, &k, 0, s->n);
  if (!in_range(max)) return false;
  exp_row r = {.ref = k_of(max) - 1};
  exp_sum w = {.s = s, .k = &k, .skip = SIZE_MAX, .ref = r.ref, .store = store};
  double sum = 0;
  for (size_t g = 0; g < s->n; g += GROUP) sum += (double)b->scores->sum_store(&w, g, group_size(g, s->n));
  if (sum != sum) return false;
  exp_settle(b, s, &k, &r, sum, sum);
  const row_bypass stream = h->bypass == BYPASS_THROUGH ? h->bypass : BYPASS_NOT;
  const exp_emit e = {.s = s, .k = &k, .r = &r, .stored = store, .peaked = r.one < PEAKED, .stream = stream, .next = h->next};
  for (size_t g = 0; g < s->n; g += GROUP) emit(&e, g, group_size(g, s->n));
  return true;
}

/* A row that may come from memory: one pass with a running reference keeps the terms. */
static inline bool half_far_row(const exp_body *b, exp_emit_fn *emit, const half_row *h, const span *s) {
  const row_call c = {.n = s->n, .rows = 1, .src = {s->src[0]}, .dst = {s->dst[0]}};
  const consts k = {{0}};
  const real *kept;
  row_state st;
  if (!exp_run_row(b, &c, s, &k, h->scratch, NULL, &st, &kept) || !kept) return false;
  exp_row r = {.ref = (real)st.ref, .top = (real)st.max};
  exp_settle(b, s, &k, &r, st.sum, st.other);
  const exp_emit e = {.s = s, .k = &k, .r = &r, .stored = kept, .peaked = true, .stream = h->bypass, .next = kept};
  for (size_t g = 0; g < s->n; g += GROUP) emit(&e, g, group_size(g, s->n));
  if (h->bypass) v_stream_end();
  return true;
}

/* The row program up to the weights; what writes anything else belongs to another kind of row. */
static inline bool half_long_row(const row_kernel *kernel, const span *s, row_bypass bypass) {
  const row_call c = {.n = s->n, .rows = 1, .src = {s->src[0]}, .dst = {s->dst[0]}, .bypass = bypass};
  row_state st;
  kernel->begin(&c, &st);
  do {
    if (st.writes && st.mode != EXP_EMIT_PASS) return false;
    run_pass(kernel, &c, &st);
  } while (kernel->next(&c, &st));
  return true;
}

/* As row_kernel.halves. */
static bool exp_halves(const half_row *h) {
  const span s = {.n = h->n, .src = {h->x}, .dst = {h->y}};
  const bool f16 = h->type == STORE_F16;
  if (h->n > ROW_HALVES) return half_long_row(f16 ? &f16_kernel : &bf16_kernel, &s, h->bypass);
  const exp_body *b = f16 ? &f16_body : &bf16_body;
  return (h->n > 2 * GROUP ? half_far_row : half_cached_row)(b, f16 ? f16_stored : bf16_stored, h, &s);
}

#endif
