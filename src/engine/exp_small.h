/* engine/exp_small.h - softmax of short rows, up to four at a time. Their folds, and the steps
 * after them, share vectors, a quarter each. Rows that fit registers stay there; longer ones, up to
 * a page, keep their terms in the output. Lanes and folds are the same as everywhere; lanes without
 * elements are +0 and left out of the additions. */
#ifndef SMX_ENGINE_EXP_SMALL_H
#define SMX_ENGINE_EXP_SMALL_H
#include "exp.h"
#include "row_batch.h"

/* Vectors of a row, and rows at a time: as many as registers hold. */
#define SMALL_EIGHT(D) D(1, 4) D(2, 4) D(3, 4) D(4, 4) D(5, 4) D(6, 4) D(7, 2) D(8, 2)
#if defined(__AVX512F__) && !defined(V_PORTABLE)
#define SMALL_ALL(D) SMALL_EIGHT(D) D(9, 2) D(10, 2) D(11, 2) D(12, 2) D(13, 2) D(14, 2) D(15, 2) D(16, 2)
enum { SMALL_VECTORS = 16 };
#else
#define SMALL_ALL(D) SMALL_EIGHT(D)
enum { SMALL_VECTORS = 8 };
#endif
/* Portable code is built for size, and its rows lie in memory: nothing is gained by unrolling. */
#ifdef V_PORTABLE
#define UNROLL_SMALL _Pragma("GCC unroll 1")
#else
#define UNROLL_SMALL _Pragma("GCC unroll 16")
#endif

/* The rows. c: policies for rows that need a rule, NULL = the defaults. Outputs are the inputs, or
 * do not overlap them. */
typedef struct small_rows {
  size_t rows, n;
  const real *x;
  real *y;
  ptrdiff_t x_step, y_step;
  row_call *c;
  const row_kernel *kernel;
  row_writing writing;
  row_writing stream; /* the same where every row of y starts and ends at a cache line */
} small_rows;

/* Runs a row with NaN, +inf, nothing valid or scores out of range through the row program. */
#define small_special_row SMX_FN(small_special_row)
void small_special_row(const small_rows *w, size_t row);

/* The terms of x but those of the largest elements, which are counted. */
SMI vreal less_top(vreal term, vreal x, vreal top, vreal *count) {
  const vmask largest = v_eq(x, top);
  *count = v_add(*count, v_select(largest, v_set1(1), v_set1(0)));
  return v_select(largest, v_set1(0), term);
}

/* R rows of V vectors: stores their terms in e and returns the folds of the terms. top: the largest
 * elements. tops: if given, the terms of the largest elements are left out of the sums, and *tops
 * is their number. What lies `ahead` bytes behind x is prefetched. */
SMI vreal small_sums(const real *x, ptrdiff_t step, int last, const int V, const int R,
                     vreal e[ROW_BATCH][SMALL_VECTORS], vreal *top, vreal *tops, ptrdiff_t ahead) {
  vreal fold[ROW_BATCH], count[ROW_BATCH]; /* of e R and V are used: constants, so all of it is registers */
  real scale_exp[LANES], most[LANES];
  UNROLL_SMALL for (int a = 0; a < R; a++, x += step) {
    UNROLL_SMALL for (int v = 0; v < V - 1; v++) e[a][v] = v_load(x + v * LANES);
    e[a][V - 1] = last == LANES ? v_load(x + (V - 1) * LANES) : v_load_n(x + (V - 1) * LANES, last, -R_INF);
    fold[a] = e[a][0];
    UNROLL_SMALL for (int v = 1; v < V; v++) fold[a] = v_max(e[a][v], fold[a]);
    UNROLL_SMALL for (int v = 0; tops && v < V; v++) v_prefetch((const char *)(x + v * LANES) + ahead);
  }
  *top = v_hmaxs(fold[0], fold[1 % R], fold[2 % R], fold[3 % R]);
  v_store(scale_exp, v_sub(exp_k(*top), v_set1(1)));
  if (tops) v_store(most, *top);
  UNROLL_SMALL for (int a = 0; a < R; a++) {
    const vreal from = v_set1(scale_exp[a * QUARTER_LANES]);
    vreal acc[SMALL_VECTORS];
    if (tops) count[a] = v_set1(0);
    UNROLL_SMALL for (int v = 0; v < V; v++) {
      const vreal x_v = e[a][v], k = exp_k(x_v);
      acc[v] = e[a][v] = v_scale(exp_poly(exp_reduce(x_v, k)), v_sub(k, from));
      if (tops) acc[v] = less_top(acc[v], x_v, v_set1(most[a * QUARTER_LANES]), count + a);
    }
    fold[a] = small_fold(acc, V);
  }
  if (tops) *tops = v_hsums(count[0], count[1 % R], count[2 % R], count[3 % R]);
  return v_hsums(fold[0], fold[1 % R], fold[2 % R], fold[3 % R]);
}

/* ---- rows of at most a page ---- */

/* Stores the terms in e, unless that is NULL; returns their lanes, folded to one vector. ahead:
 * distance in bytes of what is prefetched; 0 = nothing. deferred: outputs written meanwhile, or
 * NULL. tops: as in small_sums, of this row. */
SMI vreal page_terms(const real *x, real *e, size_t n, real scale_exp, ptrdiff_t ahead,
                     deferred_store *deferred, real top, vreal *tops) {
  vreal acc[VPB], count = v_set1(0);
  UNROLL_PAGE for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal h = page_at(x, i, cnt), k = exp_k(h), \
          term = v_scale(exp_poly(exp_reduce(h, k)), v_sub(k, v_set1(scale_exp))); \
    if (ahead) v_prefetch((const char *)(x + (i)) + ahead); \
    if (e) put(e, i, cnt, term); \
    if (deferred && u == VPB - 1 && (i) / BLOCK % 2) deferred_store_write(deferred, DEFERRED_ELEMENTS); \
    if (tops) term = less_top(term, h, v_set1(top), &count); \
    acc[u] = v_add(acc[u], term); \
  }
  FOR_EACH_VECTOR_UNROLLED(UNROLL_PAGE, 0, n, STEP)
#undef STEP
  if (tops) *tops = count;
  return v_fold_block(acc);
}

/* As small_sums, of R <= 4 rows of at most a page. The terms of a row out of range are not
 * computed. deferred: as in page_terms. */
SMI vreal page_sums(const real *x, ptrdiff_t step, size_t n, int R, real *e, ptrdiff_t e_step,
                    ptrdiff_t ahead, deferred_store *deferred, vreal *top, vreal *tops) {
  vreal fold[ROW_BATCH], count[ROW_BATCH];
  real most[LANES], scale_exp[LANES];
  for (int a = 0; a < ROW_BATCH; a++)
    fold[a] = a < R ? page_max(x + a * step, n) : fold[0], count[a] = v_set1(0);
  *top = v_hmaxs(fold[0], fold[1], fold[2], fold[3]);
  v_store(most, *top);
  v_store(scale_exp, v_sub(exp_k(*top), v_set1(1)));
  for (int a = 0; a < R; a++) {
    const int q = a * QUARTER_LANES;
    if (!in_range(most[q])) continue;
    fold[a] = page_terms(x + a * step, e ? e + a * e_step : NULL, n, scale_exp[q], ahead, deferred, most[q],
                         tops ? count + a : NULL);
  }
  if (tops) *tops = v_hsums(count[0], count[1], count[2], count[3]);
  return v_hsums(fold[0], fold[1], fold[2], fold[3]);
}

/* ---- all of them ---- */

/* True if the rows were short enough and are done. exp_small_call: as exp_body.small. */
#define exp_small_rows SMX_FN(exp_small_rows)
#define exp_small_call SMX_FN(exp_small_call)
bool exp_small_rows(small_rows *w);
bool exp_small_call(const exp_body *b, const row_kernel *kernel, row_call *c);

#endif
