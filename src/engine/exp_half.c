/* engine/exp_half.c - softmax and log_softmax of rows of f16 or bf16 without a converted copy, by
 * the engine of real rows (exp.h): a score is widened when it is formed, a result is rounded when
 * it is stored. The terms of softmax are kept in scratch memory for a row in the caches, and
 * computed twice for a longer one. The bits are those of the row in f32, rounded. */
#include "exp_half.h"
#if SMX_REAL == 32
#include "exp_loops.h"
#include "scores.h"

/* Streaming stores write whole lines only. */
SMI size_t half_to_line(const uint16_t *p) { return -(uintptr_t)p % 64 / sizeof *p; }

SMI void half_write_of(half_type type, const exp_write *to, exp_value_fn *value, size_t first, size_t n) {
  const span s = *to->s;
  const consts k = *to->k;
  const exp_row r = *to->r;
  const exp_write q = {.s = &s, .k = &k, .r = &r, .stored = to->stored, .may_be_one = to->may_be_one};
  const row_writing how = to->stream;
  uint16_t *const y = (uint16_t *)(void *)s.dst[0];
  const uint16_t *const next = (const uint16_t *)(const void *)to->next;
  const size_t end = first + n;
  if (how == WRITE_STREAMING) {
    for (const size_t line = first + half_to_line(y + first); first < line && first < end;) {
      const int cnt = lanes_left((line < end ? line : end) - first);
      put_half(type, y, first, cnt, value(&q, first, cnt));
      first += (size_t)cnt;
    }
    const size_t whole = (end - first) / HALF_LINE * HALF_LINE;
#define STEP(u, i, cnt) \
  { \
    if ((u)*LANES % HALF_LINE == 0) v_prefetch_far(next + (i)); /* once a line */ \
    stream_half(type, y + (i), value(&q, i, cnt)); \
  }
    FOR_EACH_VECTOR_STRAIGHT(first, whole, STEP)
#undef STEP
    first += whole;
  }
#define STEP(u, i, cnt) \
  { \
    if ((u)*LANES % HALF_LINE == 0) v_prefetch_far(next + (i)); \
    if ((u)*LANES % HALF_LINE == 0 && how == WRITE_PREFETCHED) \
      v_prefetch((const char *)(y + (i)) + WRITE_AHEAD); \
    put_half(type, y, i, cnt, value(&q, i, cnt)); \
  }
  FOR_EACH_VECTOR_STRAIGHT(first, end - first, STEP)
#undef STEP
}
SMI void half_stored(half_type type, const exp_write *w, size_t i, size_t n) {
  if (w->may_be_one) half_write_of(type, w, stored_value_may_be_one, i, n);
  else half_write_of(type, w, stored_value, i, n);
}

/* ---- scores and loops of each storage type; those that weights are made of need no rule for +inf,
 * as a row with it takes another way ---- */

EXP_PAGE(f16, f16_score, false)
#define EXP_LOOPS_NAME f16
#define EXP_LOOPS_SCORE f16_score
#define EXP_LOOPS_LOW false
#define EXP_LOOPS_HALF 1
#include "exp_loops.tmpl.h"
const exp_scores f16_scores = {f16_page, &f16_loops, .half = true};
SMI score f16_plain_score(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return (score){shifted_by(f16_score(s, k, NULL, i, cnt).h, shift), v_set1(0)};
}
SMI vreal f16_weight(const exp_write *w, size_t i, int cnt) {
  return exp_weight_again(w, f16_plain_score, false, i, cnt);
}

EXP_PAGE(bf16, bf16_score, false)
#define EXP_LOOPS_NAME bf16
#define EXP_LOOPS_SCORE bf16_score
#define EXP_LOOPS_LOW false
#define EXP_LOOPS_HALF 1
#include "exp_loops.tmpl.h"
const exp_scores bf16_scores = {bf16_page, &bf16_loops, .half = true};
SMI score bf16_plain_score(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return (score){shifted_by(bf16_score(s, k, NULL, i, cnt).h, shift), v_set1(0)};
}
SMI vreal bf16_weight(const exp_write *w, size_t i, int cnt) {
  return exp_weight_again(w, bf16_plain_score, false, i, cnt);
}

NOINLINE void f16_weights(const exp_write *w, size_t i, size_t n) {
  half_write_of(HALF_F16, w, f16_weight, i, n);
}
NOINLINE void bf16_weights(const exp_write *w, size_t i, size_t n) {
  half_write_of(HALF_BF16, w, bf16_weight, i, n);
}
NOINLINE void f16_stored(const exp_write *w, size_t i, size_t n) { half_stored(HALF_F16, w, i, n); }
NOINLINE void bf16_stored(const exp_write *w, size_t i, size_t n) { half_stored(HALF_BF16, w, i, n); }

static const exp_body f16_body = {.setup = setup_plain, .scores = &f16_scores, .write = f16_weights},
                      bf16_body = {.setup = setup_plain, .scores = &bf16_scores, .write = bf16_weights};
static const row_kernel f16_kernel = {.engine = &exp_engine, .body = &f16_body},
                        bf16_kernel = {.engine = &exp_engine, .body = &bf16_body};

SMI vreal f16_log(const exp_write *w, size_t i, int cnt) {
  return plain_log_of(f16_score(w->s, w->k, NULL, i, cnt).h, w->r);
}
SMI vreal bf16_log(const exp_write *w, size_t i, int cnt) {
  return plain_log_of(bf16_score(w->s, w->k, NULL, i, cnt).h, w->r);
}
NOINLINE void f16_logs(const exp_write *w, size_t i, size_t n) { half_write_of(HALF_F16, w, f16_log, i, n); }
NOINLINE void bf16_logs(const exp_write *w, size_t i, size_t n) {
  half_write_of(HALF_BF16, w, bf16_log, i, n);
}
#define LOGS_BODY(from) \
  { \
    .setup = setup_plain, .scores = &from##_scores, .write = from##_logs, .kind = EXP_LOGS, \
    .sum_without_max = true \
  }
static const exp_body log_f16_body = LOGS_BODY(f16), log_bf16_body = LOGS_BODY(bf16);
static const row_kernel log_f16_kernel = {.engine = &exp_engine, .body = &log_f16_body},
                        log_bf16_kernel = {.engine = &exp_engine, .body = &log_bf16_body};

/* A row in the caches. to_next: elements from its input to the one read after it, which is
 * prefetched. False, with nothing written, when the row needs a rule. */
static bool half_cached_row(const exp_body *b, exp_write_fn *write, const span *s, real *store,
                            ptrdiff_t to_next) {
  const consts k = {{0}};
  const real max = exp_max(b->scores, s, &k, 0, s->n);
  if (!in_range(max)) return false;
  exp_row r = {.scale_exp = k_of(max) - 1};
  exp_sum w = {.f = b->scores, .s = s, .k = &k, .skip = SIZE_MAX, .scale_exp = r.scale_exp, .store = store};
  double sum = 0;
  for (size_t g = 0; g < s->n; g += GROUP)
    sum += (double)b->scores->loops->sum_store(&w, g, group_size(g, s->n));
  if (sum != sum) return false;
  exp_finalize(b, s, &k, &r, sum, sum);
  const void *const next = (const uint16_t *)(const void *)s->src[0] + to_next;
  const exp_write e = {.f = b->scores,
                       .s = s,
                       .k = &k,
                       .r = &r,
                       .stored = store,
                       .may_be_one = r.one < MAY_BE_ONE,
                       .stream = writing_of_half(s->stream),
                       .next = next};
  for (size_t g = 0; g < s->n; g += GROUP) write(&e, g, group_size(g, s->n));
  return true;
}

/* The row program, if it ends in weights; a row that ends otherwise needs a rule. */
static bool half_long_row(const row_kernel *kernel, const span *s) {
  row_call c = {.n = s->n, .rows = 1, .src = {s->src[0]}, .dst = {s->dst[0]}, .writing = s->stream};
  row_state st;
  row_begin(kernel, &c, &st);
  do {
    if (st.writes && st.mode != EXP_WRITE_PASS) return false;
    run_pass(kernel, &c, &st);
  } while (row_next(kernel, &c, &st));
  return true;
}

/* Rows from memory, or with outputs beyond the caches. scratch: the terms of two short rows
 * alternate between two places; NULL: none are kept. */
static size_t half_deferred_rows(const exp_body *b, exp_write_fn *write, const half_rows *h, real *scratch) {
  const bool past = h->writing == WRITE_STREAMING;
  const row_call c = {.n = h->n, .rows = 1, .writing = past ? WRITE_STREAMING : WRITE_CACHED};
  const consts k = {{0}};
  const size_t second = row_half_two(h->n) ? row_half_place(h->n) : 0;
  exp_output out = exp_output_none(h->writing, sizeof(uint16_t));
  bool ordinary = true;
  size_t r = 0;
  span s = {.n = h->n, .src = {h->x}, .dst = {h->y}, .stream = h->writing};
  for (; r < h->rows && ordinary; r += ordinary, span_next_half(h, 0, &s)) {
    real *const store = scratch ? scratch + r % 2 * second : NULL;
    ordinary = exp_deferred_row(b, &c, &s, &k, store, write, &out);
    if (!past) deferred_store_rest(&out.deferred);
  }
  deferred_store_rest(&out.deferred);
  if (past) v_stream_end();
  return r;
}

size_t exp_half(const half_rows *h) {
  const bool f16 = h->type == STORE_F16;
  const exp_body *const b = f16 ? &f16_body : &bf16_body;
  exp_write_fn *const write = f16 ? f16_stored : bf16_stored;
  if (h->n <= ROW_HALF && h->n > (h->writing == WRITE_STREAMING ? DEFERRED_FROM : 2 * GROUP))
    return half_deferred_rows(b, write, h, h->scratch);
  span s = {.n = h->n, .src = {h->x}, .dst = {h->y}, .stream = h->writing};
  for (size_t r = 0; r < h->rows; r++, span_next_half(h, 0, &s)) {
    const ptrdiff_t to_next = r + 1 < h->rows ? h->x_step : 0;
    if (h->n > ROW_HALF ? !half_long_row(f16 ? &f16_kernel : &bf16_kernel, &s)
                        : !half_cached_row(b, write, &s, h->scratch, to_next))
      return r;
  }
  return h->rows;
}

size_t logs_half(const half_rows *h) {
  const row_kernel *const kernel = h->type == STORE_F16 ? &log_f16_kernel : &log_bf16_kernel;
  if (h->n <= DEFERRED_GROUPS * GROUP) return half_deferred_rows(kernel->body, NULL, h, NULL);
  span s = {.n = h->n, .src = {h->x}, .dst = {h->y}, .stream = h->writing};
  for (size_t r = 0; r < h->rows; r++, span_next_half(h, 0, &s))
    if (!half_long_row(kernel, &s)) return r;
  return h->rows;
}
#endif
