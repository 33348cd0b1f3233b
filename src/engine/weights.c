/* engine/weights.c - the gradient that softmax and its kin share (weights.h). */
#include "weights.h"

#define WEIGHTS_LOOP(name, call) \
  void name(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n, row_part *part) { \
    call; \
  }
WEIGHTS_LOOP(weights_sums, reduce_map_sums_of(s, k, r, weights_add, false, i, n, part))
WEIGHTS_LOOP(weights_and_total, reduce_map_sums_of(s, k, r, weights_and_total_add, false, i, n, part))
WEIGHTS_LOOP(weights_out, reduce_map_values_of(s, k, r, weights_ds, false, i, n, part))
REDUCE_MAP_VALUES_FUSED(weights_out_ordinary, weights_ordinary)

PLAIN_GRADIENT(weights_plain, weights_gradient)
bool weights_short(const reduce_map_body *b, row_call *c) {
  return reduce_map_short_of(
      b, c, (short_gradient){weights_add, weights_ds, weights_plain_add, weights_plain_value, weights_plain});
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
