/* engine/weights.c - the gradient that softmax and its kin share (weights.h). */
#include "weights.h"

#define WEIGHTS_LOOP(name, call) \
  void name(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n, row_part *part) { \
    call; \
  }
WEIGHTS_LOOP(weights_sums, reduce_map_sums_of(s, k, r, weights_add, false, i, n, part))
WEIGHTS_LOOP(weights_and_total, reduce_map_sums_of(s, k, r, weights_and_total_add, true, i, n, part))
WEIGHTS_LOOP(weights_out, reduce_map_values_of(s, k, r, weights_ds, false, i, n, part))
REDUCE_MAP_VALUES_FUSED(weights_out_ordinary, weights_ordinary)
REDUCE_MAP_SUMS_FUSED(weights_plain_sums, weights_plain_add)
REDUCE_MAP_VALUES_FUSED(weights_plain_out, weights_plain_value)

/* sum y dy of a row of V vectors, or of blocks of V = VPB, on the way to its last vector. */
SMI vreal whole_sum(const real *y, const real *dy, size_t n, const int V) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
  for (size_t i = 0; i < n; i += BLOCK)
    UNROLL_BLOCK for (int u = 0; u < V; u++) acc[u] =
        v_fma(v_load(y + i + u * LANES), v_load(dy + i + u * LANES), acc[u]);
  return v_fold_block(acc);
}
SMI void whole_values(const real *y, const real *dy, size_t n, real sum, real *to, const int V) {
  const vreal of_row = v_set1(sum);
  for (size_t i = 0; i < n; i += BLOCK) UNROLL_BLOCK for (int u = 0; u < V; u++) {
      const size_t at = i + (size_t)u * LANES;
      v_store(to + at, v_flush_tiny(v_mul(v_load(y + at), v_sub(v_load(dy + at), of_row))));
    }
}
/* Such rows without spans, which cost more than the arithmetic of 16 elements. */
SMI bool whole_rows(const row_call *c, size_t row, const consts *k, const int V) {
  const ptrdiff_t y_step = c->src_step[SRC_Y], dy_step = c->src_step[SRC_DY], to_step = c->dst_step[0];
  const real *y = (const real *)c->src[SRC_Y] + (ptrdiff_t)row * y_step,
             *dy = (const real *)c->src[SRC_DY] + (ptrdiff_t)row * dy_step;
  real sum[LANES], *to = (real *)c->dst[0] + (ptrdiff_t)row * to_step;
  const vreal a = whole_sum(y, dy, c->n, V), b = whole_sum(y + y_step, dy + dy_step, c->n, V),
              d = whole_sum(y + 2 * y_step, dy + 2 * dy_step, c->n, V),
              e = whole_sum(y + 3 * y_step, dy + 3 * dy_step, c->n, V);
  v_store(sum, v_hsums(a, b, d, e));
  for (int i = 0; i < ROW_BATCH; i++)
    if (!reduce_map_modest(k, (double)sum[i * QUARTER_LANES])) return false;
  for (int i = 0; i < ROW_BATCH; i++, y += y_step, dy += dy_step, to += to_step)
    whole_values(y, dy, c->n, sum[i * QUARTER_LANES], to, V);
  return true;
}
static bool weights_whole(const row_call *c, size_t row, const consts *k) {
  if (c->n >= BLOCK) return whole_rows(c, row, k, VPB);
  if (c->n == LANES) return whole_rows(c, row, k, 1);
  return c->n == 2 * LANES && whole_rows(c, row, k, 2);
}
bool weights_short(const reduce_map_body *b, row_call *c) {
  return reduce_map_short_of(
      b, c, (short_gradient){weights_add, weights_ds, weights_plain_add, weights_plain_value, weights_whole});
}

static const reduce_map_body weights_body = {.setup = setup_one,
                                             .sums = weights_sums,
                                             .write = weights_out,
                                             .ordinary = weights_out_ordinary,
                                             .plain_sums = weights_plain_sums,
                                             .plain_write = weights_plain_out,
                                             .small = weights_short,
                                             .full = 1};
const row_kernel weights_kernel = {.engine = &reduce_map_engine, .body = &weights_body};
