/* engine/reduce_map_short.h - rows of at most a page of operators that need one sum and no
 * minmax pass, four at a time (row_batch.h). The constants of such an operator do not depend on
 * the row. */
#ifndef SMX_ENGINE_REDUCE_MAP_SHORT_H
#define SMX_ENGINE_REDUCE_MAP_SHORT_H
#include "reduce_map.h"
#include "row_batch.h"

/* What a gradient reads and writes of a row. */
SMI span short_span(const row_call *c, size_t row) {
  const ptrdiff_t r = (ptrdiff_t)row;
  return (span){.n = c->n,
                .src = {[SRC_Y] = (const real *)c->src[SRC_Y] + r * c->src_step[SRC_Y],
                        [SRC_DY] = (const real *)c->src[SRC_DY] + r * c->src_step[SRC_DY]},
                .dst = {(real *)c->dst[0] + r * c->dst_step[0]}};
}

SMI vreal short_sum(const row_call *c, size_t row, reduce_map_add_fn *add) {
  const span s = short_span(c, row);
  const reduce_map_row none = {.index = -1};
  const consts unknown = {{0}};
  vreal sum[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) sum[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    reduce_map_acc acc = {.a = sum[u]}; \
    add(&s, &unknown, &none, i, cnt, &acc); \
    sum[u] = acc.a; \
  }
  for (size_t i = 0; i < s.n; i += BLOCK) FOR_EACH_VECTOR_OF_BLOCK(UNROLL_BLOCK, i, s.n - i, STEP)
#undef STEP
  return v_fold_block(sum);
}

/* Rows of less than a block without the machinery of reduce_map_values_of, which costs a fifth more
 * instructions for 16 elements. ahead: as in a span. */
SMI void short_values(const row_call *c, size_t row, const consts *with, real sum, ptrdiff_t ahead,
                      reduce_map_value_fn *value) {
  span s = short_span(c, row);
  const consts k = *with;
  const reduce_map_row r = {.sum = (double)sum, .index = -1};
  row_part part;
  size_t i = 0;
  s.stream = reduce_map_streams(c, &s), s.ahead = ahead;
  if (s.n >= BLOCK) {
    reduce_map_values_of(&s, &k, &r, value, false, 0, s.n, &part);
    return;
  }
  for (; i + LANES <= s.n; i += LANES) {
    put_first(&s, i, LANES, value(&s, &k, &r, i, LANES));
    if (ahead) v_prefetch(s.src[SRC_Y] + i + ahead), v_prefetch(s.src[SRC_DY] + i + ahead);
  }
  if (i < s.n) put_first(&s, i, (int)(s.n - i), value(&s, &k, &r, i, (int)(s.n - i)));
}

/* ---- rows of a modest sum, without spans, which cost more than arithmetic of 16 elements ---- */

/* What is added and written of an element. odd: what must sum to 0, or the row needs the rules;
 * NULL = nothing. heavy: values take many steps, during which memory can be fetched. */
typedef struct plain_gradient {
  vreal (*add)(vreal y, vreal dy, vreal acc);
  vreal (*value)(vreal y, vreal dy, vreal sum);
  vreal (*odd)(vreal y, vreal acc);
  bool heavy;
} plain_gradient;

/* Rows of one length: `most` vectors at the most. fixed: of just so many, and n is known at compile
 * time. whole: n is a multiple of LANES. */
typedef struct plain_length {
  int most;
  bool fixed, whole;
} plain_length;

#define EACH_PLAIN(n, L, STEP) \
  { \
    size_t i_ = 0; \
    for (; !L.fixed && i_ + BLOCK <= n; i_ += BLOCK) \
      UNROLL_BLOCK for (int u_ = 0; u_ < VPB; u_++) STEP(u_, i_ + (size_t)u_ * LANES, LANES); \
    if (L.fixed || i_ < n) UNROLL_BLOCK for (int u_ = 0; u_ < L.most; u_++) { \
        const size_t at_ = i_ + (size_t)u_ * LANES; \
        if (L.fixed || at_ < n) STEP(u_, at_, L.whole ? LANES : lanes_left(n - at_)); \
      } \
  }
SMI vreal plain_sum(const plain_gradient g, const real *y, const real *dy, size_t n, const plain_length L,
                    vreal *odd) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    const vreal weight = at(y, i, cnt); \
    acc[u] = g.add(weight, at(dy, i, cnt), acc[u]); \
    if (g.odd) *odd = g.odd(weight, *odd); \
  }
  EACH_PLAIN(n, L, STEP)
#undef STEP
  /* that of fewer vectors adds no zeros: a sum may be -0 then, which no value shows */
  return L.most == VPB ? v_fold_block(acc) : small_fold(acc, L.most);
}
/* y_next, dy_next: where what is read next lies from there, for heavy gradients from memory. */
SMI void plain_values(const plain_gradient g, const real *y, const real *dy, size_t n, real sum, real *to,
                      ptrdiff_t y_next, ptrdiff_t dy_next, const plain_length L, const bool stream) {
  const vreal of_row = v_set1(sum);
#define STEP(u, i, cnt) \
  { \
    const vreal value = g.value(at(y, i, cnt), at(dy, i, cnt), of_row); \
    if (stream && g.heavy) v_prefetch_far(y + (i) + y_next), v_prefetch_far(dy + (i) + dy_next); \
    if (stream) v_stream(to + (i), value); \
    else put(to, i, cnt, value); \
  }
#define HEAVY(i, cnt) STEP(0, i, L.whole ? LANES : cnt)
  if (g.heavy) { /* many steps: one copy, which overlaps with itself */
    FOR_EACH_LANES(n, HEAVY)
  } else {
    EACH_PLAIN(n, L, STEP)
  }
#undef HEAVY
#undef STEP
}
#undef EACH_PLAIN

SMI bool plain_holds(const plain_gradient g, vreal sums, vreal odd) {
  if (m_any(m_not(v_lt(v_abs(sums), v_set1((real)R_MODEST))))) return false;
  return !g.odd || !m_any(m_not(v_eq(odd, v_set1(0))));
}

/* Rows from `row` on up to one that needs the rules: how many. Rows of a fixed length go four at a
 * time, for their folds; of longer ones each is summed and written before the next is read: of
 * four, the memory waits while values are made, which takes up to a third more from beyond the
 * nearest caches. */
SMI size_t plain_rows(const row_call *c, size_t row, const plain_gradient g, const plain_length L,
                      const bool stream) {
  const ptrdiff_t y_step = c->src_step[SRC_Y], dy_step = c->src_step[SRC_DY], to_step = c->dst_step[0];
  const real *y = (const real *)c->src[SRC_Y] + (ptrdiff_t)row * y_step,
             *dy = (const real *)c->src[SRC_DY] + (ptrdiff_t)row * dy_step;
  real *to = (real *)c->dst[0] + (ptrdiff_t)row * to_step, sum[LANES];
  const size_t n = L.fixed ? (size_t)L.most * LANES : c->n, rows = c->rows - row;
  size_t done = 0;
  for (; L.fixed && done + ROW_BATCH <= rows; done += ROW_BATCH) {
    vreal fold[ROW_BATCH], odd = v_set1(0);
    UNROLL_BLOCK for (int a = 0; a < ROW_BATCH; a++) fold[a] =
        plain_sum(g, y + a * y_step, dy + a * dy_step, n, L, &odd);
    const vreal sums = v_hsums(fold[0], fold[1], fold[2], fold[3]);
    if (!plain_holds(g, sums, odd)) return done;
    v_store(sum, sums);
#define VALUES(a) \
  plain_values(g, y, dy, n, sum[a * QUARTER_LANES], to, ROW_BATCH *y_step, ROW_BATCH *dy_step, L, stream)
#define ROW y += y_step, dy += dy_step, to += to_step
    if (g.heavy) _Pragma("GCC unroll 1") for (int a = 0; a < ROW_BATCH; a++, ROW) VALUES(a);
    else UNROLL_BLOCK for (int a = 0; a < ROW_BATCH; a++, ROW) VALUES(a);
#undef VALUES
#undef ROW
  }
  for (; done < rows; done++, y += y_step, dy += dy_step, to += to_step) {
    vreal odd = v_set1(0);
    const real of_row = v_hsum(plain_sum(g, y, dy, n, L, &odd));
    if (!plain_holds(g, v_set1(of_row), odd)) break;
    plain_values(g, y, dy, n, of_row, to, y_step, dy_step, L, stream);
  }
  return done;
}

#define PLAIN_ROWS(name, gradient, length, stream) \
  static __attribute__((noinline)) size_t name(const row_call *c, size_t row) { \
    return plain_rows(c, row, gradient, length, stream); \
  }
#define PLAIN_FIXED(name, gradient, V, stream) \
  PLAIN_ROWS(name, gradient, ((const plain_length){V, true, true}), stream)
/* The longest rows that go four at a time (Zen 4, 4096 x 64, four and one: AVX-512 0.83 and 0.85 of
 * PyTorch's time, AVX2 1.08 and 0.96). */
#if defined(__AVX512F__) && !defined(V_PORTABLE)
enum { PLAIN_FIXED_MOST = 4 };
#define PLAIN_FOUR(name, gradient) PLAIN_FIXED(name##_4, gradient, 4, false)
#define PLAIN_AT_FOUR(name) name##_4
#else
enum { PLAIN_FIXED_MOST = 3 };
#define PLAIN_FOUR(name, gradient)
#define PLAIN_AT_FOUR(name) name##_whole
#endif
/* name(c, row): plain_rows() of rows of at most a page. name_sums, name_out: as
 * reduce_map_body.plain_sums and .plain_write. */
#define PLAIN_GRADIENT(name, gradient) \
  SMI void name##_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt, \
                      reduce_map_acc *acc) { \
    const vreal y = at(s->src[SRC_Y], i, cnt); \
    acc->a = gradient.add(y, at(s->src[SRC_DY], i, cnt), acc->a); \
    if (gradient.odd) acc->b = gradient.odd(y, acc->b); \
  } \
  SMI vreal name##_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) { \
    return gradient.value(at(s->src[SRC_Y], i, cnt), at(s->src[SRC_DY], i, cnt), v_set1((real)r->sum)); \
  } \
  REDUCE_MAP_PLAIN_SUMS(name##_sums, name##_add) \
  REDUCE_MAP_VALUES_FUSED(name##_out, name##_value) \
  PLAIN_FIXED(name##_1, gradient, 1, false) \
  PLAIN_FIXED(name##_2, gradient, 2, false) \
  PLAIN_FIXED(name##_3, gradient, 3, false) \
  PLAIN_FOUR(name, gradient) \
  PLAIN_FIXED(name##_1_streamed, gradient, 1, true) \
  PLAIN_FIXED(name##_2_streamed, gradient, 2, true) \
  PLAIN_ROWS(name##_whole, gradient, ((const plain_length){VPB, false, true}), false) \
  PLAIN_ROWS(name##_whole_streamed, gradient, ((const plain_length){VPB, false, true}), true) \
  PLAIN_ROWS(name##_any, gradient, ((const plain_length){VPB, false, false}), false) \
  static size_t name(const row_call *c, size_t row) { \
    static size_t (*const cached[])(const row_call *, size_t) = {name##_1, name##_2, name##_3, \
                                                                 PLAIN_AT_FOUR(name), name##_whole}; \
    static size_t (*const streamed[])(const row_call *, size_t) = { \
        name##_1_streamed, name##_2_streamed, name##_whole_streamed, name##_whole_streamed, \
        name##_whole_streamed}; \
    const size_t vectors = c->n / LANES, which = vectors <= PLAIN_FIXED_MOST ? vectors - 1 : 4; \
    return c->n % LANES ? name##_any(c, row) : (c->writing ? streamed : cached)[which](c, row); \
  }

/* Whether rows are written to the cache, or with streaming stores by a processor that reads fastest
 * in address order and needs no prefetch for that. */
SMI bool plain_short_fits(const row_call *c) {
  if (!c->writing) return true;
  return c->writing == WRITE_STREAMING && fetches_straight() && whole_lines(c->dst[0], c->dst_step[0], c->n);
}

/* What a short gradient adds and writes. Neither `add` uses constants or checks for NaN: a NaN in
 * the sum reaches every value that it should. */
typedef struct short_gradient {
  reduce_map_add_fn *add;
  reduce_map_value_fn *value;
  /* as reduce_map_body.plain_sums and .plain_write, for rows that plain_short_fits() refuses; or
   * NULL */
  reduce_map_add_fn *plain_add;
  reduce_map_value_fn *plain_value;
  size_t (*plain)(const row_call *c, size_t row); /* of PLAIN_GRADIENT, or NULL */
} short_gradient;

/* As reduce_map_body.small. */
SMI bool reduce_map_short_of(const reduce_map_body *b, row_call *c, const short_gradient g) {
  if (c->n == 0 || c->n > PAGE) return false;
  const span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  const bool plain = g.plain_add && k.v[0] == 1, spanless = g.plain && k.v[0] == 1 && plain_short_fits(c);
  real sum[LANES];
  for (size_t row = 0, rows; row < c->rows; row += rows) {
    real fold[ROW_BATCH][LANES]; /* in memory: gcc copies an array of vectors eight bytes at a time */
    if (spanless && (row += g.plain(c, row)) == c->rows) break;
    rows = c->rows - row < ROW_BATCH ? c->rows - row : ROW_BATCH;
    for (size_t a = 0; a < rows; a++)
      v_store(fold[a], plain ? short_sum(c, row + a, g.plain_add) : short_sum(c, row + a, g.add));
    for (size_t a = rows; a < ROW_BATCH && rows > 1; a++) v_store(fold[a], v_load(fold[0]));
    if (rows == 1) sum[0] = v_hsum(v_load(fold[0]));
    else v_store(sum, v_hsums(v_load(fold[0]), v_load(fold[1]), v_load(fold[2]), v_load(fold[3])));
    const ptrdiff_t ahead = reduce_map_ahead(c, row, ROW_BATCH, false);
    for (size_t a = 0; a < rows; a++) {
      const real of_row = sum[a * QUARTER_LANES];
      if (plain && reduce_map_modest(&k, (double)of_row))
        short_values(c, row + a, &k, of_row, ahead, g.plain_value);
      else
        short_values(c, row + a, &k, plain ? v_hsum(short_sum(c, row + a, g.add)) : of_row, ahead, g.value);
    }
  }
  if (c->writing) v_stream_end();
  return true;
}

#endif
