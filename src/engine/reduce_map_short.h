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

/* What a short gradient adds and writes. Neither `add` uses constants or checks for NaN: a NaN in
 * the sum reaches every value that it should. */
typedef struct short_gradient {
  reduce_map_add_fn *add;
  reduce_map_value_fn *value;
  reduce_map_add_fn *plain_add; /* as reduce_map_body.plain_sums, or NULL */
  reduce_map_value_fn *plain_value;
  /* Rows from `row` on, of whole vectors, written to the cache, up to one whose sum is not modest:
   * how many. NULL: there is no such way. */
  size_t (*whole)(const row_call *c, size_t row, const consts *k);
} short_gradient;

/* As reduce_map_body.small. */
SMI bool reduce_map_short_of(const reduce_map_body *b, row_call *c, const short_gradient g) {
  if (c->n == 0 || c->n > PAGE) return false;
  const span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  const bool plain = g.plain_add && k.v[0] == 1;
  const bool whole = g.whole && plain && !c->writing && c->n % LANES == 0;
  real sum[LANES];
  for (size_t row = 0, rows; row < c->rows; row += rows) {
    real fold[ROW_BATCH][LANES]; /* in memory: gcc copies an array of vectors eight bytes at a time */
    if (whole && (row += g.whole(c, row, &k)) == c->rows) break;
    rows = c->rows - row < ROW_BATCH ? c->rows - row : ROW_BATCH;
    for (size_t a = 0; a < rows; a++)
      v_store(fold[a], plain ? short_sum(c, row + a, g.plain_add) : short_sum(c, row + a, g.add));
    for (size_t a = rows; a < ROW_BATCH && rows > 1; a++) v_store(fold[a], v_load(fold[0]));
    if (rows == 1) sum[0] = v_hsum(v_load(fold[0]));
    else v_store(sum, v_hsums(v_load(fold[0]), v_load(fold[1]), v_load(fold[2]), v_load(fold[3])));
    const ptrdiff_t ahead = reduce_map_ahead(c, row, ROW_BATCH);
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
