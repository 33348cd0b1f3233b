/* engine/weights_half.c - the gradient of softmax on rows of f16 or bf16 without a converted
 * copy: y and dy are widened when they are loaded, dx is rounded when it is stored. Sums and bits
 * are those of the row in f32 (weights.h), rounded. */
#include "exp_half.h"
#if SMX_REAL == 32
#include "convert.h"
#include "weights.h"

SMI vreal half_of_port(half_type type, const span *s, int port, size_t i, int cnt) {
  return at_half(type, (const uint16_t *)(const void *)s->src[port], i, cnt);
}
SMI void half_weights_add(half_type type, const span *s, size_t i, int cnt, reduce_map_acc *acc) {
  const vreal y = half_of_port(type, s, SRC_Y, i, cnt);
  acc->a = v_fma(y, where_weighted(y, half_of_port(type, s, SRC_DY, i, cnt)), acc->a);
}
SMI void half_weights_out(half_type type, const span *on, real sum, size_t first, size_t n) {
  const span s = *on;
  uint16_t *const dx = (uint16_t *)(void *)s.dst[0];
  const bool through = s.stream != WRITE_CACHED;
#define STEP(u, i, cnt) \
  { \
    if (through && (u)*LANES % HALF_LINE == 0) v_prefetch((const char *)(dx + (i)) + WRITE_AHEAD); \
    put_half( \
        type, dx, i, cnt, \
        weights_slope(half_of_port(type, &s, SRC_Y, i, cnt), half_of_port(type, &s, SRC_DY, i, cnt), sum)); \
  }
  FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
#undef STEP
}

SMI void f16_weights_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  half_weights_add(HALF_F16, s, i, cnt, acc);
}
SMI void bf16_weights_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                          reduce_map_acc *acc) {
  half_weights_add(HALF_BF16, s, i, cnt, acc);
}
REDUCE_MAP_SUMS_FUSED(f16_weights_sums, f16_weights_add)
REDUCE_MAP_SUMS_FUSED(bf16_weights_sums, bf16_weights_add)
NOINLINE void f16_weights_out(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                              row_part *part) {
  half_weights_out(HALF_F16, s, (real)r->sum, i, n);
}
NOINLINE void bf16_weights_out(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                               row_part *part) {
  half_weights_out(HALF_BF16, s, (real)r->sum, i, n);
}

/* A row whose sum is not finite needs the rules for NaN. */
static bool weights_half_row(const reduce_map_body *b, const span *s) {
  const consts k = {{1}};
  reduce_map_row r = {.index = -1};
  row_part part;
  reduce_map_plain_sums(b->sums, s, &k, &r, &r.sum, &r.sum2);
  if (!reduce_map_ordinary(&k, r.sum)) return false;
  for (size_t g = 0; g < s->n; g += GROUP) b->write(s, &k, &r, g, group_size(g, s->n), &part);
  return true;
}

size_t weights_half(const half_rows *h) {
  static const reduce_map_body of_f16 = {.sums = f16_weights_sums, .write = f16_weights_out},
                               of_bf16 = {.sums = bf16_weights_sums, .write = bf16_weights_out};
  const reduce_map_body *const b = h->type == STORE_F16 ? &of_f16 : &of_bf16;
  span s = {.n = h->n, .src = {[SRC_Y] = h->x, [SRC_DY] = h->dy}, .dst = {h->y}, .stream = h->writing};
  for (size_t r = 0; r < h->rows; r++, span_next_half(h, SRC_Y, &s))
    if (!weights_half_row(b, &s)) return r;
  return h->rows;
}
#endif
