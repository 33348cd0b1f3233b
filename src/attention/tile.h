/* attention/tile.h - the inner loops: scores of a block of rows with a panel of keys, and weights
 * times values.
 *
 * Both vectorise across outputs. Each lane owns one output and adds its terms by FMA in index
 * order, so neither the height of a block nor the width of a vector changes a result. The naive
 * triple loop with fma is the specification.
 *
 * Queries are packed by blocks, [column][row of the block]; a panel of keys as [column][key]. */
#ifndef SMX_ATTENTION_TILE_H
#define SMX_ATTENTION_TILE_H
#include "pack.h"
#include "vec/math.h"

#define score_block SMX_FN(score_block)
#define score_few SMX_FN(score_few)
#define score_rows SMX_FN(score_rows)
#define values_block SMX_FN(values_block)

/* Vectors that a row of a block has in registers: 6 x 4 accumulators where there are 32 registers
 * of 64 bytes, 6 x 1 elsewhere; and beside few keys, which would leave most of those empty. */
#if defined(__AVX512F__) && !defined(V_PORTABLE)
enum { COLS = 4, FEW_COLS = 2 };
#else
enum { COLS = 1, FEW_COLS = 1 };
#endif
/* For one or two rows, where memory decides the speed: values are then read in address order. Where
 * FMA is emulated it never does. */
#ifdef V_PORTABLE
enum { WIDE = 1 };
#else
enum { WIDE = 8 };
#endif
enum { VALUES_NEAR = 16 };        /* values that several rows take while the first-level cache holds them */
enum { PITCH = ATTN_SPLIT + 16 }; /* of the scores of a row: not a multiple of a page */

#define ALL_COLS(c, n) _Pragma("GCC unroll 8") for (int c = 0; c < (n); c++)
#define ALL_ROWS(r, n) _Pragma("GCC unroll 6") for (int r = 0; r < (n); r++)

/* ---- scores ---- */

/* n scores of some rows, vectors of keys, of which the first `seen` keys are not hidden: z = scale
 * a. top: the largest of each row, a vector each, carried along. Returns the smallest of low and
 * these. NaN is passed over by both. */
SMI vreal put_scores(int rows, int n, int seen, vreal a[ATTN_BLOCK][COLS], const real *scale, real *z,
                     real *top, vreal low) {
  ALL_ROWS(r, rows) {
    vreal m = v_load(top + r * LANES), s = v_set1(scale[r]);
    ALL_COLS(c, n) {
      const vreal y = v_mul(a[r][c], s);
      const vmask in = v_lt(v_iota(), v_set1((real)(seen - c * LANES)));
      const bool all = seen >= n * LANES;
      const vreal shown = all ? y : v_select(in, y, v_set1(-R_INF));
      v_store(z + r * PITCH + c * LANES, shown);
      m = v_max(shown, m);
      low = v_min(all ? y : v_select(in, y, v_set1(R_INF)), low);
    }
    v_store(top + r * LANES, m);
  }
  return low;
}

/* The sum over a head's columns is one chain, or from CHAINED columns on one for each CHAIN of
 * them, added in order: the error of a score then grows with 64 + d / 64 instead of d. */
enum { CHAIN = 64, CHAINED = 128 };
SMI int64_t chain_end(int64_t x, int64_t d) { return d < CHAINED || d - x < CHAIN ? d : x + CHAIN; }

/* The queries of a block: packed, or each where it lies. */
typedef struct query_rows {
  const real *packed, *row[ATTN_BLOCK];
} query_rows;
SMI real query_at(const query_rows *q, int r, int64_t x) {
  return q->packed ? q->packed[x * ATTN_BLOCK + r] : q->row[r][x];
}

/* One chain of a block with some vectors of a packed panel. */
SMI void score_chain(int rows, int cols, const query_rows *q, const real *k, int64_t pitch, int64_t x,
                     int64_t end, vreal a[ATTN_BLOCK][COLS]) {
  ALL_ROWS(r, ATTN_BLOCK) ALL_COLS(c, cols) a[r][c] = v_set1(0);
  for (; x < end; x++) {
    vreal b[COLS];
    ALL_COLS(c, cols) b[c] = v_load(k + x * pitch + c * LANES);
    ALL_ROWS(r, rows) {
      const vreal s = v_set1(query_at(q, r, x));
      ALL_COLS(c, cols) a[r][c] = v_fma(s, b[c], a[r][c]);
    }
  }
}
/* The chains after the first, whose sums join a. */
SMI void score_later_chains(int rows, int cols, const query_rows *q, const real *k, int64_t pitch, int64_t d,
                            vreal a[ATTN_BLOCK][COLS]) {
  for (int64_t x = CHAIN; x < d; x += CHAIN) {
    vreal next[ATTN_BLOCK][COLS];
    score_chain(rows, cols, q, k, pitch, x, chain_end(x, d), next);
    ALL_ROWS(r, rows) ALL_COLS(c, cols) a[r][c] = v_add(a[r][c], next[r][c]);
  }
}

/* The scores of a block with `cols` vectors of a packed panel, of which the first `seen` keys are
 * not hidden. Returns the smallest of low and these. */
SMI vreal score_vectors(int rows, int cols, int seen, const query_rows *q, const real *k, int64_t pitch,
                        int64_t d, const real *scale, real *z, real *top, vreal low) {
  vreal a[ATTN_BLOCK][COLS];
  score_chain(rows, cols, q, k, pitch, 0, chain_end(0, d), a);
  if (d >= CHAINED) score_later_chains(rows, cols, q, k, pitch, d, a);
  return put_scores(rows, cols, seen, a, scale, z, top, low);
}

/* z[row][0..63] = scale[row] <q_row, k_key>, for `rows` rows of a block and a packed panel, of
 * which the first `keys` are seen. Returns the smallest score of the block. */
SMI real score_some(int rows, const real *q, const real *k, int keys, int64_t d, const real *scale, real *z,
                    real *top) {
  const query_rows own = {.packed = q};
  vreal low = v_set1(R_INF);
  for (int at = 0; at < keys; at += COLS * LANES)
    low = score_vectors(rows, COLS, COLS * LANES, &own, k + at, ATTN_PANEL, d, scale, z + at, top, low);
  return v_hmin(low);
}

/* The same with few keys, and queries as they lie: keys from `keys` on have a score of -inf, up to
 * whole vectors. */
SMI real score_narrow(int rows, const real *const *q, const real *k, int64_t pitch, int keys, int64_t d,
                      const real *scale, real *z, real *top) {
  query_rows own = {.packed = NULL};
  vreal low = v_set1(R_INF);
  int at = 0;
  ALL_ROWS(r, rows) own.row[r] = q[r];
  for (; keys - at > (FEW_COLS - 1) * LANES; at += FEW_COLS * LANES)
    low = score_vectors(rows, FEW_COLS, keys - at, &own, k + at, pitch, d, scale, z + at, top, low);
  if (at < keys) low = score_vectors(rows, 1, keys - at, &own, k + at, pitch, d, scale, z + at, top, low);
  return v_hmin(low);
}

/* The same with `keys` keys, at least LANES, that are not packed, but transposed in registers; the
 * last LANES of them together, whatever was computed of them before. d is a multiple of COLUMNS.
 * For a block that is alone: packing a panel would cost more than its products do. */
SMI real score_direct(int rows, int store, const real *const *q, const rows_at *k, int keys, int64_t d,
                      const real *scale, real *z, real *top) {
  const int64_t bytes = store_bytes(store);
  vreal low = v_set1(R_INF);
  ahead next = *k->next;
  ALL_ROWS(r, rows) if (keys % LANES) v_store(z + r * PITCH + keys / LANES * LANES, v_set1(-R_INF));
  for (int from = 0; from < keys; from += LANES) {
    const int at = from + LANES < keys ? from : keys - LANES;
    vreal sum[ATTN_BLOCK][COLS], a[ATTN_BLOCK];
    ALL_ROWS(r, ATTN_BLOCK) sum[r][0] = v_set1(0);
    const char *read = next.end - next.read >= LANES * k->step ? next.read : NULL;
    for (int64_t x = 0; x < d;) {
      const int64_t end = chain_end(x, d);
      ALL_ROWS(r, ATTN_BLOCK) a[r] = v_set1(0);
      for (; x < end; x += COLUMNS) {
        vreal b[COLUMNS];
        if (read) read_lines(read + x * LANES * bytes, COLUMNS * LANES * bytes);
        columns_as(store, k->at + at * k->step + x * bytes, k->step, b);
        _Pragma("GCC unroll 8") for (int i = 0; i < COLUMNS; i++) {
          ALL_ROWS(r, rows) a[r] = v_fma(v_set1(q[r][x + i]), b[i], a[r]);
          if (i * LANES * bytes % PAIR == 0) fetch(&next, PAIR);
        }
      }
      ALL_ROWS(r, rows) sum[r][0] = v_add(sum[r][0], a[r]);
    }
    if (read) next.read += LANES * k->step;
    low = put_scores(rows, 1, LANES, sum, scale, z + at, top, low);
  }
  *k->next = next;
  return v_hmin(low);
}

/* ---- weights times values ---- */

/* How weights lie in memory: w(row, key) is w[row * row_step + key * key_step]. */
typedef struct lay {
  int64_t row_step, key_step;
} lay;
#define BY_ROWS ((lay){PITCH, 1})
#define BY_KEYS ((lay){1, PITCH})

/* o[row][0..cols-1] += sum over keys of w(row, key) v[key]: vectors of columns from x on, keys in
 * order. */
SMI void values_some(int rows, int cols, int store, bool fetches, const real *w, lay by, const rows_at *v,
                     int64_t x, int keys, real *o, int64_t o_pitch) {
  const int64_t bytes = store_bytes(store);
  ahead next;
  if (fetches) next = *v->next;
  vreal a[ATTN_BLOCK][WIDE];
  ALL_ROWS(r, ATTN_BLOCK)
  ALL_COLS(c, cols) a[r][c] = r < rows ? v_load(o + r * o_pitch + c * LANES) : v_set1(0);
  for (int j = 0; j < keys; j++) {
    vreal b[WIDE];
    ALL_COLS(c, cols) {
      b[c] = load_as(store, v->at + j * v->step + (x + c * LANES) * bytes);
      if (fetches && c * LANES * bytes % PAIR == 0) fetch(&next, PAIR);
    }
    ALL_ROWS(r, rows) {
      const vreal s = v_set1(w[r * by.row_step + j * by.key_step]);
      ALL_COLS(c, cols) a[r][c] = v_fma(s, b[c], a[r][c]);
    }
  }
  ALL_ROWS(r, rows) ALL_COLS(c, cols) v_store(o + r * o_pitch + c * LANES, a[r][c]);
  if (fetches) *v->next = next;
}

/* All columns, a multiple of LANES. */
SMI void values_columns(int rows, int store, bool fetches, const real *w, lay by, const rows_at *v, int keys,
                        real *o, int64_t o_pitch, int64_t columns) {
  int64_t x = 0;
  if (rows <= 2)
    for (; x + WIDE * LANES <= columns; x += WIDE * LANES)
      values_some(rows, WIDE, store, fetches, w, by, v, x, keys, o + x, o_pitch);
  if (rows == 1 && COLS < WIDE / 2) /* one vector alone would wait for its own sum */
    for (; x + WIDE / 2 * LANES <= columns; x += WIDE / 2 * LANES)
      values_some(rows, WIDE / 2, store, fetches, w, by, v, x, keys, o + x, o_pitch);
  for (; x + COLS * LANES <= columns; x += COLS * LANES)
    values_some(rows, COLS, store, fetches, w, by, v, x, keys, o + x, o_pitch);
  for (; COLS > 1 && x < columns; x += LANES)
    values_some(rows, 1, store, fetches, w, by, v, x, keys, o + x, o_pitch);
}

/* Where memory decides the speed, two rows and all columns of some values at a time: the first two
 * read them in address order, and the others find them in the first-level cache. */
SMI void values_rows(int rows, int store, bool fetches, const real *w, lay by, const rows_at *v, int keys,
                     real *o, int64_t o_pitch, int64_t columns) {
  if (!fetches || rows <= 2 || COLS == 1) {
    values_columns(rows, store, fetches, w, by, v, keys, o, o_pitch, columns);
    return;
  }
  for (int j = 0; j < keys; j += VALUES_NEAR) {
    const int some = keys - j < VALUES_NEAR ? keys - j : VALUES_NEAR;
    const rows_at own = {v->at + j * v->step, v->step, v->store, v->next};
    const real *const first = w + j * by.key_step;
    values_columns(2, store, true, first, by, &own, some, o, o_pitch, columns);
    _Pragma("GCC unroll 1") for (int r = 2; r < rows; r += 2) values_columns(
        2, store, false, first + r * by.row_step, by, &own, some, o + r * o_pitch, o_pitch, columns);
  }
}

/* ---- blocks: computed at the height of 1, 2, 4 or 6 rows ---- */

#define BY_HEIGHT(rows, f, ...) \
  (rows == 1   ? f(1, __VA_ARGS__) \
   : rows == 2 ? f(2, __VA_ARGS__) \
   : rows <= 4 ? f(4, __VA_ARGS__) \
               : f(6, __VA_ARGS__))

#ifdef V_HAS_HALF
#define BY_STORE(rows, store, f, ...) \
  (store == STORE_F16    ? BY_HEIGHT(rows, f, STORE_F16, __VA_ARGS__) \
   : store == STORE_BF16 ? BY_HEIGHT(rows, f, STORE_BF16, __VA_ARGS__) \
                         : BY_HEIGHT(rows, f, REAL_STORE, __VA_ARGS__))
#else
#define BY_STORE(rows, store, f, ...) BY_HEIGHT(rows, f, REAL_STORE, __VA_ARGS__)
#endif

real score_block(int rows, const real *q, const real *k, int keys, int64_t d, const real *scale, real *z,
                 real *top);
/* For a panel of another pitch (panel_pitch), of which the keys from `keys` on are hidden. A block
 * of 3 or 5 rows reads one more query, which has an address too. */
real score_few(int rows, const real *const *q, const real *k, int64_t pitch, int keys, int64_t d,
               const real *scale, real *z, real *top);
real score_rows(int rows, const real *const *q, const rows_at *k, int keys, int64_t d, const real *scale,
                real *z, real *top);
/* Half precision is read directly only where something is prefetched. */
void values_block(int rows, const real *w, const rows_at *v, int keys, real *o, int64_t o_pitch,
                  int64_t columns);

#endif
