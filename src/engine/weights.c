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

/* Rows of whole vectors: V, or any number for V = VPB, whose last block may have fewer. Without
 * spans, which cost more than the arithmetic of 16 elements. */
#define EACH_WHOLE(step) \
  { \
    size_t i = 0; \
    for (; i + VPB * LANES <= n && V == VPB; i += BLOCK) UNROLL_BLOCK for (int u = 0; u < VPB; u++) step; \
    if (V < VPB || i < n) UNROLL_BLOCK for (int u = 0; u < V; u++) if (V < VPB || i + u * LANES < n) step; \
  }
SMI vreal whole_sum(const real *y, const real *dy, size_t n, const int V) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
  EACH_WHOLE(acc[u] = v_fma(v_load(y + i + u * LANES), v_load(dy + i + u * LANES), acc[u]))
  return v_fold_block(acc);
}
SMI void whole_values(const real *y, const real *dy, size_t n, real sum, real *to, const int V) {
  const vreal of_row = v_set1(sum);
#define VALUE(at) v_store(to + at, v_flush_tiny(v_mul(v_load(y + at), v_sub(v_load(dy + at), of_row))))
  EACH_WHOLE(VALUE(i + u * LANES))
#undef VALUE
}
#undef EACH_WHOLE
/* Each is summed and written before the next is read: of four at a time, as elsewhere, the memory
 * waits while values are made, which takes up to a third more from beyond the nearest caches. */
SMI size_t whole_rows(const row_call *c, size_t row, const consts *k, const int V) {
  const ptrdiff_t y_step = c->src_step[SRC_Y], dy_step = c->src_step[SRC_DY], to_step = c->dst_step[0];
  const real *y = (const real *)c->src[SRC_Y] + (ptrdiff_t)row * y_step,
             *dy = (const real *)c->src[SRC_DY] + (ptrdiff_t)row * dy_step;
  real *to = (real *)c->dst[0] + (ptrdiff_t)row * to_step;
  const size_t n = c->n;
  size_t done = 0;
  for (; row + done < c->rows; done++, y += y_step, dy += dy_step, to += to_step) {
    const real sum = v_hsum(whole_sum(y, dy, n, V));
    if (!reduce_map_modest(k, (double)sum)) break;
    whole_values(y, dy, n, sum, to, V);
  }
  return done;
}
static size_t weights_whole(const row_call *c, size_t row, const consts *k) {
  if (c->n == LANES) return whole_rows(c, row, k, 1);
  if (c->n == 2 * LANES) return whole_rows(c, row, k, 2);
  return whole_rows(c, row, k, VPB);
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
