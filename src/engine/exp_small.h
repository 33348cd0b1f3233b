/* engine/exp_small.h - softmax of short rows, up to four at a time: their folds, and what follows from them, share vectors, a quarter each. Rows
 * that fit registers stay there; others, up to a page, keep their terms in the output. Same lanes and fold as everywhere; lanes that no element
 * reaches are +0 and left out of the additions. */
#ifndef SMX_ENGINE_EXP_SMALL_H
#define SMX_ENGINE_EXP_SMALL_H
#include "exp_rows.h"
#include "together.h"

/* Vectors of a row, and rows at a time: as many as registers hold. */
#define SMALL_EIGHT(D) D(1, 4) D(2, 4) D(3, 4) D(4, 4) D(5, 4) D(6, 4) D(7, 2) D(8, 2)
#if defined(__AVX512F__) && !defined(V_PORTABLE)
#define SMALL_ALL(D) SMALL_EIGHT(D) D(9, 2) D(10, 2) D(11, 2) D(12, 2) D(13, 2) D(14, 2) D(15, 2) D(16, 2)
enum { SMALL_VECTORS = 16 };
#else
#define SMALL_ALL(D) SMALL_EIGHT(D)
enum { SMALL_VECTORS = 8 };
#endif

/* Where rows lie. c: policies for rows that are not ordinary, NULL = the defaults. Outputs do not overlap inputs, or are the same. */
typedef struct small_rows {
  size_t rows, n;
  const real *x;
  real *y;
  ptrdiff_t x_step, y_step;
  row_call *c;
  const row_kernel *kernel;
  row_bypass bypass;
  row_bypass stream; /* the same where every row of y starts and ends at a cache line */
} small_rows;

/* A row with NaN, +inf, nothing valid or scores out of range: through the row program. */
static inline void small_odd_row(const small_rows *w, size_t row) {
  row_call c = {.first_empty = -1};
  if (w->c) c = *w->c;
  c.n = w->n, c.rows = 1, c.bypass = BYPASS_NOT;
  c.src[0] = w->x + (ptrdiff_t)row * w->x_step, c.dst[0] = w->y + (ptrdiff_t)row * w->y_step;
  if (run_program(w->kernel, &c) && w->c && c.on_empty == SMX_EMPTY_ERROR && w->c->first_empty < 0) w->c->first_empty = (int64_t)row;
}

/* The terms of x but those of the largest elements, which are counted. */
SMI vreal less_top(vreal term, vreal x, real top, vreal *count) {
  const vmask largest = v_eq(x, v_set1(top));
  *count = v_add(*count, v_select(largest, v_set1(1), v_set1(0)));
  return v_select(largest, v_set1(0), term);
}

/* R rows of V vectors: their terms, to e, and the folds of those. top: the largest elements. tops: the terms of those are left out of the
 * sums, and *tops is how many they are; what lies `ahead` bytes behind x is fetched. */
SMI vreal small_sums(const real *x, ptrdiff_t step, int last, const int V, const int R, vreal e[TOGETHER][SMALL_VECTORS], vreal *top,
                     vreal *tops, ptrdiff_t ahead) {
  vreal fold[TOGETHER], count[TOGETHER]; /* of e R and V are used: constants, so all of it is registers */
  real ref[LANES], most[LANES];
#pragma GCC unroll 16
  for (int a = 0; a < R; a++, x += step) {
#pragma GCC unroll 16
    for (int v = 0; v < V - 1; v++) e[a][v] = v_load(x + v * LANES);
    e[a][V - 1] = last == LANES ? v_load(x + (V - 1) * LANES) : v_load_n(x + (V - 1) * LANES, last, -R_INF);
    fold[a] = e[a][0];
#pragma GCC unroll 16
    for (int v = 1; v < V; v++) fold[a] = v_max(e[a][v], fold[a]);
#pragma GCC unroll 16
    for (int v = 0; tops && v < V; v++) v_prefetch((const char *)(x + v * LANES) + ahead);
  }
  *top = v_hmaxs(fold[0], fold[1 % R], fold[2 % R], fold[3 % R]);
  v_store(ref, v_sub(exp_k(*top), v_set1(1)));
  if (tops) v_store(most, *top);
#pragma GCC unroll 16
  for (int a = 0; a < R; a++) {
    const vreal from = v_set1(ref[a * QUARTER_LANES]);
    vreal acc[SMALL_VECTORS];
    if (tops) count[a] = v_set1(0);
#pragma GCC unroll 16
    for (int v = 0; v < V; v++) {
      const vreal x_v = e[a][v], k = exp_k(x_v);
      acc[v] = e[a][v] = v_scale(exp_poly(exp_reduce(x_v, k)), v_sub(k, from));
      if (tops) acc[v] = less_top(acc[v], x_v, most[a * QUARTER_LANES], count + a);
    }
    fold[a] = small_fold(acc, V);
  }
  if (tops) *tops = v_hsums(count[0], count[1 % R], count[2 % R], count[3 % R]);
  return v_hsums(fold[0], fold[1 % R], fold[2 % R], fold[3 % R]);
}

/* Rows of V vectors, R at a time. 1 / S as a division of reals is that of
 * doubles, rounded: 53 bits are more than twice 24. */
SMI void exp_small(const small_rows *w, size_t row, const int V, const int R) {
  real *y = w->y + (ptrdiff_t)row * w->y_step;
  const int last = (int)(w->n - (size_t)(V - 1) * LANES);
  vreal e[TOGETHER][SMALL_VECTORS], top;
  real sum[LANES], inv[LANES], tiny[LANES];
  const vreal total = small_sums(w->x + (ptrdiff_t)row * w->x_step, w->x_step, last, V, R, e, &top, NULL, 0);
  if (m_any(m_not(m_and(v_lt(v_abs(top), v_set1(524288)), v_eq(total, total))))) {
    for (int a = 0; a < R; a++) small_odd_row(w, row + (size_t)a);
    return;
  }
  v_store(sum, total);
  v_store(inv, v_div(v_set1(1), total));
  v_store(tiny, v_mul(v_set1(R_TINY), total));
#pragma GCC unroll 16
  for (int a = 0; a < R; a++, y += w->y_step) {
    const int q = a * QUARTER_LANES;
#pragma GCC unroll 16
    for (int v = 0; v < V; v++) {
      vreal weight = exp_share(e[a][v], inv[q], tiny[q], sum[q], true);
      if (w->stream) put_past(y + v * LANES, weight, w->stream);
      else put(y, (size_t)v * LANES, v < V - 1 ? LANES : last, weight);
    }
  }
}

#define EXP_SMALL_ROWS(V, R) \
  NOINLINE void exp_small_rows_##V(const small_rows *w) { \
    size_t row = 0; \
    for (; row + R <= w->rows; row += R) exp_small(w, row, V, R); \
    for (; row < w->rows; row++) exp_small(w, row, V, 1); \
  }
SMALL_ALL(EXP_SMALL_ROWS)

/* ---- rows of at most a page ---- */

/* The terms go to e, unless that is NULL; their lanes are returned, folded to one vector. ahead: bytes from x to what is fetched meanwhile; 0 =
 * nothing. due: what is written meanwhile, or NULL. tops: as in small_sums, of this row. */
SMI vreal page_terms(const real *x, real *e, size_t n, real ref, ptrdiff_t ahead, exp_due *due, real top, vreal *tops) {
  vreal acc[VPB], count = v_set1(0);
  UNROLL_PAGE for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal h = page_at(x, i, cnt), k = exp_k(h), term = v_scale(exp_poly(exp_reduce(h, k)), v_sub(k, v_set1(ref))); \
    if (ahead) v_prefetch((const char *)(x + (i)) + ahead); \
    if (e) put(e, i, cnt, term); \
    if (due && u == VPB - 1 && (i) / BLOCK % 2) exp_due_write(due, DUE_ELEMENTS); \
    if (tops) term = less_top(term, h, top, &count); \
    acc[u] = v_add(acc[u], term); \
  }
  WALK_AS(UNROLL_PAGE, 0, n, STEP)
#undef STEP
  if (tops) *tops = count;
  return small_fold(acc, VPB);
}

/* As small_sums, of R <= 4 rows of at most a page. The terms of a row out of range are not formed. due: as in page_terms. */
SMI vreal page_sums(const real *x, ptrdiff_t step, size_t n, int R, real *e, ptrdiff_t e_step, ptrdiff_t ahead, exp_due *due, vreal *top,
                    vreal *tops) {
  vreal fold[TOGETHER], count[TOGETHER];
  real most[LANES], ref[LANES];
  for (int a = 0; a < TOGETHER; a++) fold[a] = a < R ? page_max(x + a * step, n) : fold[0], count[a] = v_set1(0);
  *top = v_hmaxs(fold[0], fold[1], fold[2], fold[3]);
  v_store(most, *top);
  v_store(ref, v_sub(exp_k(*top), v_set1(1)));
  for (int a = 0; a < R; a++) {
    const int q = a * QUARTER_LANES;
    if (!in_range(most[q])) continue;
    fold[a] = page_terms(x + a * step, e ? e + a * e_step : NULL, n, ref[q], ahead, due, most[q], tops ? count + a : NULL);
  }
  if (tops) *tops = v_hsums(count[0], count[1], count[2], count[3]);
  return v_hsums(fold[0], fold[1], fold[2], fold[3]);
}

SMI void page_weights(real *y, size_t n, real inv, real tiny, real one, bool peaked) {
#define STEP(u, i, cnt) put(y, i, cnt, exp_share(at(y, i, cnt), inv, tiny, one, peaked));
  WALK_AS(UNROLL_PAGE, 0, n, STEP)
#undef STEP
}

/* R <= 4 rows. scratch: room for the terms of one, R; its weights are left to `out`, to be written past the caches while the next row is summed.
 * NULL = the terms wait in y. */
SMI void page_rows(const small_rows *w, size_t row, int R, real *scratch, bool follow, exp_output *out) {
  const real *x = w->x + (ptrdiff_t)row * w->x_step;
  real *y = w->y + (ptrdiff_t)row * w->y_step;
  const ptrdiff_t ahead = follow && row + 2 * (size_t)R <= w->rows ? R * w->x_step * (ptrdiff_t)sizeof *x : 0;
  vreal largest;
  real top[LANES], sum[LANES], inv[LANES], tiny[LANES];
  const vreal total = page_sums(x, w->x_step, w->n, R, scratch ? scratch : y, w->y_step, ahead, out ? &out->due : NULL, &largest, NULL);
  v_store(top, largest);
  v_store(sum, total);
  v_store(inv, v_div(v_set1(1), total));
  v_store(tiny, v_mul(v_set1(R_TINY), total));
  if (out) exp_due_rest(&out->due);
  for (int a = 0; a < R; a++, y += w->y_step) {
    const int q = a * QUARTER_LANES;
    if (!in_range(top[q])) small_odd_row(w, row + (size_t)a);
    else if (sum[q] != sum[q]) fill(y, w->n, r_nan());
    else if (!scratch && sum[q] < PEAKED) page_weights(y, w->n, inv[q], tiny[q], sum[q], true);
    else if (!scratch) page_weights(y, w->n, inv[q], tiny[q], sum[q], false);
    else
      exp_output_of(out, &(span){.n = w->n, .dst = {y}}, &(consts){{0}}, &(exp_row){.inv = inv[q], .tiny = tiny[q], .one = sum[q]}, scratch,
                    stored_emit);
  }
}

NOINLINE void page_rows_cached(const small_rows *w) {
  for (size_t row = 0; row < w->rows; row += TOGETHER)
    page_rows(w, row, w->rows - row < TOGETHER ? (int)(w->rows - row) : TOGETHER, NULL, false, NULL);
}
NOINLINE void page_rows_follow(const small_rows *w) {
  for (size_t row = 0; row < w->rows; row += TOGETHER)
    page_rows(w, row, w->rows - row < TOGETHER ? (int)(w->rows - row) : TOGETHER, NULL, true, NULL);
}
/* One row at a time: with four, their terms, those of the rows before and what is fetched meanwhile are more than the first-level cache (Granite Rapids,
 * softmax of 4096 x 1024 0.34 and 0.28 ns an element, where memcpy takes 0.27). */
NOINLINE void page_rows_bypass(const small_rows *w) {
  real scratch[2][PAGE + PAGE / 8] __attribute__((aligned(64)));
  exp_output out = exp_output_none(w->bypass, sizeof(real));
  for (size_t row = 0; row < w->rows; row++) page_rows(w, row, 1, scratch[row % 2], true, &out);
  exp_due_rest(&out.due);
}

/* ---- all of them ---- */

/* True when the rows were short enough, and done. */
static inline bool exp_small_rows(small_rows *w) {
#define SMALL_NAME(V, R) exp_small_rows_##V,
  static void (*const by_vectors[])(const small_rows *) = {SMALL_ALL(SMALL_NAME)};
#undef SMALL_NAME
  if (w->n == 0 || w->n > PAGE) return false;
  w->stream = w->bypass && whole_lines(w->y, w->y_step, w->n) ? w->bypass : BYPASS_NOT;
  const size_t due = w->bypass ? due_from() : SIZE_MAX;
  if (w->n <= (size_t)SMALL_VECTORS * LANES && !(w->stream && w->n >= due)) by_vectors[(w->n - 1) / LANES](w);
  else if (due != SIZE_MAX) page_rows_bypass(w);
  else if (w->rows > FOLLOW / w->n) page_rows_follow(w);
  else page_rows_cached(w);
  if (w->bypass) v_stream_end();
  return true;
}

/* As exp_body.small. */
static inline bool exp_small_call(const exp_body *b, const row_kernel *kernel, row_call *c) {
  (void)b;
  small_rows w = {c->rows, c->n, c->src[0], c->dst[0], c->src_step[0], c->dst_step[0], c, kernel, .bypass = c->bypass};
  return exp_small_rows(&w);
}

#endif
