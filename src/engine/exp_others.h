/* engine/exp_others.h - short rows of log_softmax, logsumexp and their kin, up to four at a time: the sum of a row leaves out its first largest
 * element (exp_row.others). Every element that is the largest is left out where terms are formed; a row that has several is summed again. */
#ifndef SMX_ENGINE_EXP_OTHERS_H
#define SMX_ENGINE_EXP_OTHERS_H
#include "exp_small.h"

/* Rows whose logarithms are taken side by side: each is a long chain of steps. Of rows that do not fit registers, as many as stay in L1. */
enum { OTHERS_ROWS = 16 };
typedef struct others_rows {
  real top[OTHERS_ROWS];
  int64_t first[OTHERS_ROWS];                                       /* the first largest element, or -1: there is only one */
  double sum[OTHERS_ROWS], others[OTHERS_ROWS], log1p[OTHERS_ROWS]; /* NaN where the row is not an ordinary one */
} others_rows;
typedef struct others_call {
  const exp_body *b;
  const consts *k;
  const row_call *c;
  size_t most;     /* rows at a time */
  ptrdiff_t ahead; /* bytes from a row to one that is fetched meanwhile; 0 = nothing */
} others_call;

/* R rows from x on, whose sums without their largest elements are known, and how many those are: w's from `first` on. */
SMI void others_settle(const others_call *o, const real *x, int R, vreal top, vreal sum, vreal tops, others_rows *w, size_t first) {
  const vreal up = exp_k(top);
  real max[LANES], total[LANES], count[LANES], largest[LANES];
  v_store(max, top), v_store(total, sum), v_store(count, tops);
  v_store(largest, v_scale(exp_poly(exp_reduce(top, up)), v_set1(1)));
  for (int a = 0; a < R; a++) {
    const int q = a * QUARTER_LANES;
    const size_t at = first + (size_t)a;
    w->first[at] = -1;
    if (count[q] > 1) {
      const span s = {.n = o->c->n, .src = {x + a * o->c->src_step[0]}};
      exp_sum again = {.s = &s, .k = o->k, .ref = k_of(max[q]) - 1, .skip = o->b->scores->find(&s, o->k, 0, 0, o->c->n, max[q])};
      total[q] = o->b->scores->sum(&again, 0, o->c->n);
      w->first[at] = (int64_t)again.skip;
    }
    w->top[at] = max[q];
    w->sum[at] = (double)total[q] + (double)largest[q];
    w->others[at] = in_range(max[q]) ? (double)total[q] / (double)largest[q] : (double)r_nan();
  }
}

/* Rows of V vectors, R at a time. */
SMI void others_small(const others_call *o, const real *x, const int V, const int R, others_rows *w, size_t first) {
  vreal e[TOGETHER][SMALL_VECTORS], top, tops;
  const vreal sum = small_sums(x, o->c->src_step[0], (int)(o->c->n - (size_t)(V - 1) * LANES), V, R, e, &top, &tops, o->ahead);
  others_settle(o, x, R, top, sum, tops, w, first);
}
#define OTHERS_SMALL(V, R) \
  NOINLINE void others_small_##V(const others_call *o, const real *x, size_t rows, others_rows *w) { \
    size_t a = 0; \
    for (; a + R <= rows; a += R) others_small(o, x + (ptrdiff_t)a * o->c->src_step[0], V, R, w, a); \
    for (; a < rows; a++) others_small(o, x + (ptrdiff_t)a * o->c->src_step[0], V, 1, w, a); \
  }
SMALL_ALL(OTHERS_SMALL)

/* At most four rows of at most a page. */
NOINLINE void others_page(const others_call *o, const real *x, size_t rows, others_rows *w) {
  vreal top, tops;
  const vreal sum = page_sums(x, o->c->src_step[0], o->c->n, (int)rows, NULL, 0, o->ahead, NULL, &top, &tops);
  others_settle(o, x, (int)rows, top, sum, tops, w, 0);
}

/* Of a call whose scores are x: several rows of at most a page, or one that fits registers. */
static inline bool others_fit(const row_call *c, others_call *o, const exp_body *b, const consts *k) {
  const bool fits = c->n <= (size_t)SMALL_VECTORS * LANES;
  *o = (others_call){.b = b, .k = k, .c = c, .most = fits ? OTHERS_ROWS : TOGETHER};
  return c->n > 0 && c->n <= PAGE && (fits || c->rows > 1);
}

/* Rows from `row` on, as many as are left but no more than `most`; how many they are. */
SMI size_t others_sums(others_call *o, size_t row, others_rows *w) {
#define OTHERS_NAME(V, R) others_small_##V,
  static void (*const by_vectors[])(const others_call *, const real *, size_t, others_rows *) = {SMALL_ALL(OTHERS_NAME)};
#undef OTHERS_NAME
  const row_call *c = o->c;
  const ptrdiff_t step = c->src_step[0];
  const real *const x = (const real *)c->src[0] + (ptrdiff_t)row * step;
  const size_t rows = c->rows - row < o->most ? c->rows - row : o->most;
  const bool follow = c->rows > FOLLOW / c->n && row + 2 * o->most <= c->rows;
  o->ahead = follow ? (ptrdiff_t)o->most * step * (ptrdiff_t)sizeof(real) : 0;
  (o->most > TOGETHER ? by_vectors[(c->n - 1) / LANES] : others_page)(o, x, rows, w);
  for (size_t a = rows; a % TOGETHER; a++) w->others[a] = 0;
  for (size_t a = 0; a < rows; a += TOGETHER) d_log1p_four(w->others + a, w->log1p + a);
  return rows;
}

/* What these say of row a. */
SMI exp_row others_row(const others_rows *w, size_t a) {
  return (exp_row){.top = w->top[a], .max = (double)w->top[a], .others = w->others[a], .log1p = w->log1p[a], .log = (real)w->log1p[a]};
}

/* The logarithms of a row. stream: of whole lines. */
SMI void others_out(const span *s, const consts *k, const exp_row *r, exp_value_fn *value, row_bypass stream) {
  const exp_emit w = {.s = s, .k = k, .r = r};
  real *const y = s->dst[0];
  size_t i = 0;
  for (; i + LANES <= s->n; i += LANES) {
    const vreal out = value(&w, i, LANES);
    if (stream) put_past(y + i, out, stream);
    else v_store(y + i, out);
  }
  if (i < s->n) v_store_n(y + i, (int)(s->n - i), value(&w, i, (int)(s->n - i)));
}

/* As exp_body.small, of bodies whose scores are x. value: as `emit` of the body, or NULL. */
SMI bool others_all(const exp_body *b, const row_kernel *kernel, row_call *c, exp_value_fn *value) {
  span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  others_call o;
  others_rows w;
  if (!others_fit(c, &o, b, &k)) return false;
  const row_bypass stream = c->bypass && value && whole_lines(c->dst[0], c->dst_step[0], c->n) ? c->bypass : BYPASS_NOT;
  for (size_t row = 0, rows; row < c->rows; row += rows) {
    rows = others_sums(&o, row, &w);
    for (size_t a = 0; a < rows; a++) {
      const exp_row r = others_row(&w, a);
      s.src[0] = (const real *)c->src[0] + (ptrdiff_t)(row + a) * c->src_step[0];
      s.dst[0] = (real *)c->dst[0] + (ptrdiff_t)(row + a) * c->dst_step[0];
      if (r.others != r.others) run_row(kernel, c, row + a);
      else if (value) others_out(&s, &k, &r, value, stream);
      else s.dst[0][0] = r_clean(b->scalar(&s, &k, &r, c->n));
    }
  }
  if (c->bypass) v_stream_end();
  return true;
}
#define EXP_OTHERS(name, value) \
  NOINLINE bool name(const exp_body *b, const row_kernel *kernel, row_call *c) { return others_all(b, kernel, c, value); }

#endif
