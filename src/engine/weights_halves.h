/* engine/weights_halves.h - the gradient of softmax on rows of f16 or bf16, read and written as they are: y and dy are widened as they are loaded,
 * dx is rounded as it is stored. Sums and bits are those of the row in f32 (weights.h), rounded. */
#ifndef SMX_ENGINE_WEIGHTS_HALVES_H
#define SMX_ENGINE_WEIGHTS_HALVES_H
#include "convert.h"
#include "weights.h"

#define WEIGHTS_OF_HALVES(name) \
  SMI vreal name##_of_port(const span *s, int port, size_t i, int cnt) { \
    return at_##name((const uint16_t *)(const void *)s->src[port], i, cnt); \
  } \
  SMI void name##_weights_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) { \
    const vreal y = name##_of_port(s, SRC_Y, i, cnt); \
    (void)k; \
    (void)r; \
    acc->a = v_fma(y, where_weighted(y, name##_of_port(s, SRC_DY, i, cnt)), acc->a); \
  } \
  SUM_SUMS_OF(name##_weights_sums, name##_weights_add) \
  NOINLINE void name##_weights_out(const span *on, const consts *k, const sum_row *r, size_t first, size_t n, row_part *part) { \
    const span s = *on; \
    const real sum = (real)r->sum; \
    uint16_t *const dx = (uint16_t *)(void *)s.dst[0]; \
    const bool through = s.stream != BYPASS_NOT; \
    (void)k; \
    (void)part; \
    WALK_STRAIGHT(first, n, WEIGHTS_STEP_##name) \
  }
#define WEIGHTS_STEP(name, u, i, cnt) \
  { \
    if (through && (u)*LANES % HALF_LINE == 0) v_prefetch((const char *)(dx + (i)) + WRITE_AHEAD); \
    put_##name(dx, i, cnt, weights_slope(name##_of_port(&s, SRC_Y, i, cnt), name##_of_port(&s, SRC_DY, i, cnt), sum)); \
  }
#define WEIGHTS_STEP_f16(u, i, cnt) WEIGHTS_STEP(f16, u, i, cnt)
#define WEIGHTS_STEP_bf16(u, i, cnt) WEIGHTS_STEP(bf16, u, i, cnt)
WEIGHTS_OF_HALVES(f16)
WEIGHTS_OF_HALVES(bf16)

/* A row whose sum is not finite needs the rules for NaN. */
static inline bool weights_half_row(const sum_body *b, const span *s) {
  const consts k = {{1}};
  sum_row r = {.index = -1};
  row_part part;
  sum_plain_sums(b->sums, s, &k, &r, &r.sum, &r.sum2);
  if (!sum_ordinary(&k, r.sum)) return false;
  for (size_t g = 0; g < s->n; g += GROUP) b->emit(s, &k, &r, g, group_size(g, s->n), &part);
  return true;
}

/* As row_kernel.halves. */
static size_t weights_halves(const half_rows *h) {
  static const sum_body of_f16 = {.sums = f16_weights_sums, .emit = f16_weights_out},
                        of_bf16 = {.sums = bf16_weights_sums, .emit = bf16_weights_out};
  const sum_body *const b = h->type == STORE_F16 ? &of_f16 : &of_bf16;
  span s = {.n = h->n, .src = {[SRC_Y] = h->x, [SRC_DY] = h->dy}, .dst = {h->y}, .stream = h->bypass};
  for (size_t r = 0; r < h->rows; r++, span_next_halves(h, SRC_Y, &s))
    if (!weights_half_row(b, &s)) return r;
  return h->rows;
}

#endif
