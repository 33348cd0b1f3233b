/* engine/lse_short.c - the sums of short rows without their largest elements (lse_short.h). */
#include "lse_short.h"
#include "vec/columns.h"
#include "vec/wide.h"

/* Whether transposing rows pays. */
#ifdef V_PORTABLE
enum { LSE_SHORT_COLUMNS = false };
#else
enum { LSE_SHORT_COLUMNS = true };
#endif

/* Row x has several largest elements: its sum without the first of these. */
static __attribute__((noinline)) real lse_short_again(const lse_short_call *o, const real *x, real max,
                                                      int64_t *first) {
  const span s = {.n = o->c->n, .src = {x}};
  exp_sum again = {.f = o->b->scores,
                   .s = &s,
                   .k = o->k,
                   .scale_exp = k_of(max) - 1,
                   .skip = o->b->scores->loops->find(o->b->scores, &s, o->k, 0, 0, o->c->n, max)};
  *first = (int64_t)again.skip;
  return o->b->scores->loops->sum(&again, 0, o->c->n);
}

/* e^top in units of its 2^k, twice as large as the units of the sums. */
SMI vreal lse_short_largest(vreal top) { return v_scale(exp_poly(exp_reduce(top, exp_k(top))), v_set1(1)); }

/* The results of R rows from x on, whose sums without their largest elements are known, and how
 * many of these each has; stored in w from `first` on. */
SMI void lse_short_finalize(const lse_short_call *o, const real *x, int R, vreal top, vreal sum, vreal tops,
                            lse_short_rows *w, size_t first) {
  real max[LANES], total[LANES], count[LANES], largest[LANES];
  v_store(max, top), v_store(total, sum), v_store(count, tops), v_store(largest, lse_short_largest(top));
  for (int a = 0; a < R; a++) {
    const int q = a * QUARTER_LANES;
    const size_t at = first + (size_t)a;
    w->first[at] = -1;
    if (count[q] > 1) total[q] = lse_short_again(o, x + a * o->c->src_step[0], max[q], w->first + at);
    w->top[at] = max[q];
    w->sum[at] = (double)total[q] + (double)largest[q];
    w->sum_without_max[at] = in_range(max[q]) ? (double)total[q] / (double)largest[q] : (double)r_nan();
  }
}

/* Rows of V vectors, R at a time. */
SMI void lse_short_small(const lse_short_call *o, const real *x, const int V, const int R, lse_short_rows *w,
                         size_t first) {
  vreal e[ROW_BATCH][SMALL_VECTORS], top, tops;
  const vreal sum = small_sums(x, o->c->src_step[0], (int)(o->c->n - (size_t)(V - 1) * LANES), V, R, e, &top,
                               &tops, o->ahead);
  lse_short_finalize(o, x, R, top, sum, tops, w, first);
}
#define LSE_SHORT_SMALL(V, R) \
  static __attribute__((noinline)) void lse_short_small_##V(const lse_short_call *o, const real *x, \
                                                            size_t rows, lse_short_rows *w) { \
    size_t a = 0; \
    for (; a + R <= rows; a += R) lse_short_small(o, x + (ptrdiff_t)a * o->c->src_step[0], V, R, w, a); \
    for (; a < rows; a++) lse_short_small(o, x + (ptrdiff_t)a * o->c->src_step[0], V, 1, w, a); \
  }
SMALL_ALL(LSE_SHORT_SMALL)

/* LANES rows from x on of n elements, a multiple of REAL_STEP up to LANES: a lane each, so that no
 * step goes across lanes. Folds are those of a row in one vector. */
static __attribute__((noinline)) void lse_short_columns(const lse_short_call *o, const real *x,
                                                        lse_short_rows *w, size_t first) {
  const ptrdiff_t step = o->c->src_step[0];
  const int n = (int)o->c->n;
  vreal e[LANES], top = v_set1(-R_INF), count = v_set1(0);
  real counts[LANES];
  for (int c = 0; c < n; c += REAL_STEP) v_columns((const char *)(x + c), step * (ptrdiff_t)sizeof *x, e + c);
  for (int r = 0; o->ahead && r < LANES; r++) v_prefetch((const char *)(x + r * step) + o->ahead);
  for (int c = 0; c < n; c++) top = v_max(e[c], top);
  const vreal from = v_sub(exp_k(top), v_set1(1)), largest = lse_short_largest(top);
  for (int c = 0; c < n; c++) {
    const vreal k = exp_k(e[c]), term = v_scale(exp_poly(exp_reduce(e[c], k)), v_sub(k, from));
    e[c] = less_top(term, e[c], top, &count);
  }
  for (int h = LANES / 2; h; h /= 2)
    for (int c = 0; c < h && c + h < n; c++) e[c] = v_add(e[c], e[c + h]);
  v_store(w->top + first, top), v_store(counts, count);
  for (int r = 0; r < LANES; r++) w->first[first + (size_t)r] = -1;
  if (m_any(v_lt(v_set1(1), count))) {
    real total[LANES];
    v_store(total, e[0]);
    for (int r = 0; r < LANES; r++)
      if (counts[r] > 1)
        total[r] = lse_short_again(o, x + r * step, w->top[first + (size_t)r], w->first + first + (size_t)r);
    e[0] = v_load(total);
  }
  const vmask in = m_not(v_lt(v_set1((real)524288), v_abs(top)));
  const v_wide total = v_widen(e[0]), ruled = v_widen(v_select(in, e[0], v_set1(r_nan()))),
               one = v_widen(largest);
  v_wide sum, rest;
  EACH_WIDE(p) sum.part[p] = total.part[p] + one.part[p], rest.part[p] = ruled.part[p] / one.part[p];
  memcpy(w->sum + first, &sum, sizeof sum), memcpy(w->sum_without_max + first, &rest, sizeof rest);
}

/* At most four rows of at most a page. */
static __attribute__((noinline)) void nontarget_page(const lse_short_call *o, const real *x, size_t rows,
                                                     lse_short_rows *w) {
  vreal top, tops;
  const vreal sum = page_sums(x, o->c->src_step[0], o->c->n, (int)rows, NULL, 0, o->ahead, NULL, &top, &tops);
  lse_short_finalize(o, x, (int)rows, top, sum, tops, w, 0);
}

bool lse_short_fit(const row_call *c, lse_short_call *o, const exp_body *b, const consts *k) {
  const bool fits = c->n <= (size_t)SMALL_VECTORS * LANES;
  *o = (lse_short_call){.b = b, .k = k, .c = c, .most = fits ? LSE_SHORT_ROWS : ROW_BATCH};
  return c->n > 0 && c->n <= PAGE && (fits || c->rows > 1);
}

size_t lse_short_sums(lse_short_call *o, size_t row, lse_short_rows *w) {
#define LSE_SHORT_NAME(V, R) lse_short_small_##V,
  static void (*const by_vectors[])(const lse_short_call *, const real *, size_t,
                                    lse_short_rows *) = {SMALL_ALL(LSE_SHORT_NAME)};
#undef LSE_SHORT_NAME
  const row_call *c = o->c;
  const ptrdiff_t step = c->src_step[0];
  const real *const x = (const real *)c->src[0] + (ptrdiff_t)row * step;
  const size_t rows = c->rows - row < o->most ? c->rows - row : o->most;
  const bool follow = c->rows > FOLLOW / c->n && row + 2 * o->most <= c->rows;
  o->ahead = follow ? (ptrdiff_t)o->most * step * (ptrdiff_t)sizeof(real) : 0;
  if (rows == LSE_SHORT_ROWS && c->n <= LANES && c->n % REAL_STEP == 0 && LSE_SHORT_COLUMNS)
    for (size_t a = 0; a < rows; a += LANES) lse_short_columns(o, x + (ptrdiff_t)a * step, w, a);
  else (o->most > ROW_BATCH ? by_vectors[(c->n - 1) / LANES] : nontarget_page)(o, x, rows, w);
  for (size_t a = rows; a % ROW_BATCH; a++) w->sum_without_max[a] = 0;
  for (size_t a = 0; a < rows; a += ROW_BATCH) d_log1p_four(w->sum_without_max + a, w->log1p + a);
  return rows;
}

bool lse_short_scalars(const exp_body *b, const row_kernel *kernel, row_call *c) {
  return lse_short_all(b, kernel, c, NULL);
}
