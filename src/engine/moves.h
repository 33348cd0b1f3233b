/* engine/moves.h - the conversions of one instruction set and real type, as the driver in api/ calls them. */
#ifndef SMX_ENGINE_MOVES_H
#define SMX_ENGINE_MOVES_H
#include "program.h"
#include "convert.h"

static inline void move_load(row_store type, const void *src, ptrdiff_t stride, size_t n, void *dst) {
  static void (*const loaders[])(const void *, ptrdiff_t, size_t, real *) = {load_f16,  load_bf16, load_f32, load_f64,
                                                                             load_mask, load_i32,  load_i64};
  loaders[type](src, stride, n, dst);
}
static inline void move_store(row_store type, const void *src, size_t n, void *dst, ptrdiff_t stride) {
  static void (*const storers[])(const real *, size_t, void *, ptrdiff_t) = {store_f16, store_bf16, store_f32, store_f64};
  storers[type](src, n, dst, stride);
}

#endif
