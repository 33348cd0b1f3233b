/* engine/lse_short.h - short rows of log_softmax, logsumexp and their kin, up to four at a time.
 * The sum of a row leaves out its first largest element (exp_row.sum_without_max). Here every
 * element that is the largest is left out when terms are formed; a row that has several is summed
 * again. */
#ifndef SMX_ENGINE_LSE_SHORT_H
#define SMX_ENGINE_LSE_SHORT_H
#include "exp_small.h"

/* Rows whose logarithms are computed side by side, because each is a long chain of dependent steps.
 * Of rows that do not fit registers, as many as stay in L1. */
enum { LSE_SHORT_ROWS = 16 };
typedef struct lse_short_rows {
  real top[LSE_SHORT_ROWS];
  int64_t first[LSE_SHORT_ROWS]; /* the first largest element, or -1: there is only one */
  /* NaN where the row needs a rule */
  double sum[LSE_SHORT_ROWS], sum_without_max[LSE_SHORT_ROWS], log1p[LSE_SHORT_ROWS];
} lse_short_rows;
typedef struct lse_short_call {
  const exp_body *b;
  const consts *k;
  const row_call *c;
  size_t most;     /* rows at a time */
  ptrdiff_t ahead; /* distance in bytes of the row that is prefetched meanwhile; 0 = nothing */
} lse_short_call;

/* Whether the call, whose scores are x, has several rows of at most a page, or one that fits
 * registers. */
#define lse_short_fit SMX_FN(lse_short_fit)
bool lse_short_fit(const row_call *c, lse_short_call *o, const exp_body *b, const consts *k);
/* Computes rows from `row` on, at most `most`; returns how many. */
#define lse_short_sums SMX_FN(lse_short_sums)
size_t lse_short_sums(lse_short_call *o, size_t row, lse_short_rows *w);

/* The results of row a. */
SMI exp_row lse_short_row(const lse_short_rows *w, size_t a) {
  return (exp_row){.top = w->top[a],
                   .max = (double)w->top[a],
                   .sum_without_max = w->sum_without_max[a],
                   .log1p = w->log1p[a],
                   .log = (real)w->log1p[a]};
}

/* The logarithms of a row. stream: of whole lines. */
SMI void lse_short_write(const span *s, const consts *k, const exp_row *r, exp_value_fn *value,
                         row_writing stream) {
  const exp_write w = {.s = s, .k = k, .r = r};
  real *const y = s->dst[0];
  size_t i = 0;
  for (; i + LANES <= s->n; i += LANES) {
    const vreal out = value(&w, i, LANES);
    if (stream) put_uncached(y + i, out, stream);
    else v_store(y + i, out);
  }
  if (i < s->n) v_store_n(y + i, (int)(s->n - i), value(&w, i, (int)(s->n - i)));
}

/* As exp_body.small, of bodies whose scores are x, where there is no value for each element. */
#define lse_short_scalars SMX_FN(lse_short_scalars)
bool lse_short_scalars(const exp_body *b, const row_kernel *kernel, row_call *c);

/* As exp_body.small, of bodies whose scores are x. value: as `write` of the body, or NULL. */
SMI bool lse_short_all(const exp_body *b, const row_kernel *kernel, row_call *c, exp_value_fn *value) {
  span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  lse_short_call o;
  lse_short_rows w;
  if (!lse_short_fit(c, &o, b, &k)) return false;
  const row_writing stream =
      c->writing && value && whole_lines(c->dst[0], c->dst_step[0], c->n) ? c->writing : WRITE_CACHED;
  for (size_t row = 0, rows; row < c->rows; row += rows) {
    rows = lse_short_sums(&o, row, &w);
    for (size_t a = 0; a < rows; a++) {
      const exp_row r = lse_short_row(&w, a);
      s.src[0] = (const real *)c->src[0] + (ptrdiff_t)(row + a) * c->src_step[0];
      s.dst[0] = (real *)c->dst[0] + (ptrdiff_t)(row + a) * c->dst_step[0];
      if (r.sum_without_max != r.sum_without_max) run_row(kernel, c, row + a);
      else if (value) lse_short_write(&s, &k, &r, value, stream);
      else s.dst[0][0] = r_clean(b->scalar(&s, &k, &r, c->n));
    }
  }
  if (c->writing) v_stream_end();
  return true;
}
#define LSE_SHORT(name, value) \
  NOINLINE bool name(const exp_body *b, const row_kernel *kernel, row_call *c) { \
    return lse_short_all(b, kernel, c, value); \
  }

#endif
