/* engine/exp_small.c - softmax of rows of at most a page (exp_small.h). */
#include "exp_small.h"

void small_special_row(const small_rows *w, size_t row) {
  row_call c = {.first_empty = -1};
  if (w->c) c = *w->c;
  c.n = w->n, c.rows = 1, c.writing = WRITE_CACHED;
  c.src[0] = w->x + (ptrdiff_t)row * w->x_step, c.dst[0] = w->y + (ptrdiff_t)row * w->y_step;
  if (run_program(w->kernel, &c) && w->c && c.on_empty == SMX_EMPTY_ERROR && w->c->first_empty < 0)
    w->c->first_empty = (int64_t)row;
}

/* Rows that turn out to be special in a batch run at once, or, portable, when the batch is done:
 * its buffers lie in memory there, and the row program on top of them would exceed the stack of a
 * call. Returns how many of them wait. */
SMI unsigned special_found(const small_rows *w, size_t row, int rows) {
#ifdef V_PORTABLE
  return (unsigned)rows;
#else
  for (int a = 0; a < rows; a++) small_special_row(w, row + (size_t)a);
  return 0;
#endif
}
/* The rows that waited, among those from `row` on: those whose bits are set. */
SMI void special_rows(const small_rows *w, size_t row, unsigned which) {
  for (; which; which >>= 1, row++)
    if (which & 1) small_special_row(w, row);
}

/* Rows of V vectors, R at a time; returns which of them are special and wait. 1 / S as a division
 * of reals is that of doubles, rounded: 53 bits are more than twice 24. */
SMI unsigned exp_small(const small_rows *w, size_t row, const int V, const int R) {
  const ptrdiff_t y_step = w->y_step; /* vector stores alias *w: read before them */
  const row_writing stream = w->stream;
  real *y = w->y + (ptrdiff_t)row * y_step;
  const int last = (int)(w->n - (size_t)(V - 1) * LANES);
  vreal e[ROW_BATCH][SMALL_VECTORS], top;
  real sum[LANES], inv[LANES], tiny[LANES];
  const vreal total = small_sums(w->x + (ptrdiff_t)row * w->x_step, w->x_step, last, V, R, e, &top, NULL, 0);
  if (m_any(m_not(m_and(v_lt(v_abs(top), v_set1(524288)), v_eq(total, total)))))
    return (1u << special_found(w, row, R)) - 1;
  v_store(sum, total);
  v_store(inv, v_div(v_set1(1), total));
  v_store(tiny, v_mul(v_set1(R_TINY), total));
  UNROLL_SMALL for (int a = 0; a < R; a++, y += y_step) {
    const int q = a * QUARTER_LANES;
    UNROLL_SMALL for (int v = 0; v < V; v++) {
      vreal weight = exp_share(e[a][v], inv[q], tiny[q], sum[q], true);
      if (stream) put_uncached(y + v * LANES, weight, stream);
      else put(y, (size_t)v * LANES, v < V - 1 ? LANES : last, weight);
    }
  }
  return 0;
}

#define EXP_SMALL_ROWS(V, R) \
  static __attribute__((noinline)) void exp_small_rows_##V(const small_rows *w) { \
    size_t row = 0; \
    for (; row + R <= w->rows; row += R) special_rows(w, row, exp_small(w, row, V, R)); \
    for (; row < w->rows; row++) special_rows(w, row, exp_small(w, row, V, 1)); \
  }
SMALL_ALL(EXP_SMALL_ROWS)

/* ---- rows of at most a page ---- */

SMI void page_weights(real *y, size_t n, real inv, real tiny, real one, bool may_be_one) {
#define STEP(u, i, cnt) put(y, i, cnt, exp_share(at(y, i, cnt), inv, tiny, one, may_be_one));
  FOR_EACH_VECTOR_UNROLLED(UNROLL_PAGE, 0, n, STEP)
#undef STEP
}

/* R <= 4 rows. scratch: memory for the terms of one row, with R = 1; its weights are left to
 * `out`, which writes them with streaming stores while the next row is summed. NULL = terms are
 * kept in y. Returns which rows are special and wait. */
SMI unsigned page_rows(const small_rows *w, size_t row, int R, real *scratch, bool follow, exp_output *out) {
  const real *x = w->x + (ptrdiff_t)row * w->x_step;
  real *y = w->y + (ptrdiff_t)row * w->y_step;
  const ptrdiff_t ahead = follow && row + 2 * (size_t)R <= w->rows ? R * w->x_step * (ptrdiff_t)sizeof *x : 0;
  vreal largest;
  real top[LANES], sum[LANES], inv[LANES], tiny[LANES];
  const vreal total = page_sums(x, w->x_step, w->n, R, scratch ? scratch : y, w->y_step, ahead,
                                out ? &out->deferred : NULL, &largest, NULL);
  v_store(top, largest);
  v_store(sum, total);
  v_store(inv, v_div(v_set1(1), total));
  v_store(tiny, v_mul(v_set1(R_TINY), total));
  if (out) deferred_store_rest(&out->deferred);
  unsigned special = 0;
  for (int a = 0; a < R; a++, y += w->y_step) {
    const int q = a * QUARTER_LANES;
    if (!in_range(top[q])) special |= special_found(w, row + (size_t)a, 1) << a;
    else if (sum[q] != sum[q]) fill(y, w->n, r_nan());
    else if (!scratch && sum[q] < MAY_BE_ONE) page_weights(y, w->n, inv[q], tiny[q], sum[q], true);
    else if (!scratch) page_weights(y, w->n, inv[q], tiny[q], sum[q], false);
    else
      exp_output_of(out, NULL, &(span){.n = w->n, .dst = {y}}, &(consts){{0}},
                    &(exp_row){.inv = inv[q], .tiny = tiny[q], .one = sum[q]}, scratch, stored_write);
  }
  return special;
}

SMI int rows_of_batch(const small_rows *w, size_t row) {
  return w->rows - row < ROW_BATCH ? (int)(w->rows - row) : ROW_BATCH;
}
static __attribute__((noinline)) void page_rows_cached(const small_rows *w) {
  for (size_t row = 0; row < w->rows; row += ROW_BATCH)
    special_rows(w, row, page_rows(w, row, rows_of_batch(w, row), NULL, false, NULL));
}
static __attribute__((noinline)) void page_rows_follow(const small_rows *w) {
  for (size_t row = 0; row < w->rows; row += ROW_BATCH)
    special_rows(w, row, page_rows(w, row, rows_of_batch(w, row), NULL, true, NULL));
}
/* One row at a time: with four, their terms, the terms of the rows before and prefetched lines
 * exceed the first-level cache (Granite Rapids, softmax of 4096 x 1024 0.34 and 0.28 ns an element,
 * where memcpy takes 0.27). Terms are kept in the places of the last two rows. */
static __attribute__((noinline)) void page_rows_deferred(const small_rows *w) {
  exp_output out = exp_output_none(w->writing, sizeof(real));
  real *const last = w->y + (ptrdiff_t)(w->rows - 1) * w->y_step;
  for (size_t row = 0; row < w->rows; row++)
    special_rows(w, row,
                 page_rows(w, row, 1, last - (ptrdiff_t)((w->rows - 1 - row) % 2) * w->y_step, true, &out));
  deferred_store_rest(&out.deferred);
}

/* ---- all of them ---- */

bool exp_small_rows(small_rows *w) {
#define SMALL_NAME(V, R) exp_small_rows_##V,
  static void (*const by_vectors[])(const small_rows *) = {SMALL_ALL(SMALL_NAME)};
#undef SMALL_NAME
  if (w->n == 0 || w->n > PAGE) return false;
  w->stream = w->writing && whole_lines(w->y, w->y_step, w->n) ? w->writing : WRITE_CACHED;
  /* A row that is empty may have to be left as it is. */
  const bool places = w->rows > 1 && !(w->c && w->c->on_empty == SMX_EMPTY_ERROR);
  const size_t deferred = w->writing && places ? deferred_from() : SIZE_MAX;
  if (w->n <= (size_t)SMALL_VECTORS * LANES && !(w->stream && w->n >= deferred))
    by_vectors[(w->n - 1) / LANES](w);
  else if (deferred != SIZE_MAX) page_rows_deferred(w);
  else if (w->rows > FOLLOW / w->n) page_rows_follow(w);
  else page_rows_cached(w);
  if (w->writing) v_stream_end();
  return true;
}

bool exp_small_call(const exp_body *b, const row_kernel *kernel, row_call *c) {
  small_rows w = {
      c->rows, c->n, c->src[0], c->dst[0], c->src_step[0], c->dst_step[0], c, kernel, .writing = c->writing};
  return exp_small_rows(&w);
}
