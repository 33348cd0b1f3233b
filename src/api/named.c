/* api/named.c - softmax, log_softmax, logsumexp and the gradient of softmax by name, on contiguous
 * arrays: the shortest way to the kernels. */
#include "base/enter.h"
#include "driver/operator.h"
#include "driver/plan.h"
#include "row/row.h"
#include <string.h>

/* Whether two buffers of so many bytes are the same, or do not overlap. */
static bool apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
  return p + a_bytes <= q || q + b_bytes <= p;
}

static smx_status check(const char *name, const char *in, const char *out, size_t rows, size_t n,
                        size_t bytes, const void *x, const void *y) {
  size_t total;
  if (__builtin_mul_overflow(rows, n, &total) || __builtin_mul_overflow(total, bytes, &total) ||
      total > PTRDIFF_MAX)
    return smx_fail(SMX_ERR_SHAPE, "%s: rows * n = %zu * %zu overflows", name, rows, n);
  if (total && (!x || !y)) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", name, x ? out : in);
  if (total && ((uintptr_t)x | (uintptr_t)y) & (bytes - 1))
    return smx_fail(SMX_ERR_SHAPE, "%s: %s is not aligned to its type (%zu bytes)", name,
                    (uintptr_t)x % bytes ? in : out, bytes);
  if (x != y && !apart(x, total, y, total))
    return smx_fail(SMX_ERR_ALIAS, "%s: %s overlaps %s without being it", name, out, in);
  return SMX_OK;
}

static const double no_params[SMX_MAX_PARAMS] = {1, 2.718281828459045}; /* temperature 1, base e */

/* Contiguous rows of the real type, on this thread. */
static void run(const row_kernel *kernel, row_call *c) {
  c->params = no_params;
  row_run(kernel, c);
}

static inline void begin_weights(row_call *c, size_t rows, size_t n, size_t bytes, const void *x, void *y) {
  smx_begin_call(c, rows, n);
  c->src[0] = x, c->dst[0] = y;
  c->src_step[0] = c->dst_step[0] = (ptrdiff_t)n;
  c->plan = (row_plan)smx_plan_get();
  c->writing = smx_writing_for(x == y, rows * n * bytes);
}

static __attribute__((noinline)) void softmax_rows(const smx_kernels *kernels, size_t rows, size_t n,
                                                   size_t bytes, const void *x, void *y) {
  row_call c;
  begin_weights(&c, rows, n, bytes, x, y);
  smx_keep_terms(&c, 0, bytes);
  run(kernels->family[SMX_FAMILY_row][ROW_softmax]->forward, &c);
}
/* Rows that fit registers or caches go to the kernel without a row_call. */
static inline void softmax(const smx_kernels *kernels, size_t rows, size_t n, size_t bytes, const void *x,
                           void *y) {
  if (smx_plan_get() != PLAN_AUTO ||
      !kernels->io->softmax(rows, n, x, y, smx_writing_for(x == y, rows * n * bytes)))
    softmax_rows(kernels, rows, n, bytes, x, y);
}

smx_status smx_softmax_f32(size_t rows, size_t n, const float *x, float *y) {
  SMX_ENTER(NULL);
  smx_status status = check("smx_softmax_f32", "x", "y", rows, n, sizeof *x, x, y);
  if (status == SMX_OK && rows && n) softmax(&smx_isa_current()->f32, rows, n, sizeof *x, x, y);
  return status;
}

smx_status smx_softmax_f64(size_t rows, size_t n, const double *x, double *y) {
  SMX_ENTER(NULL);
  smx_status status = check("smx_softmax_f64", "x", "y", rows, n, sizeof *x, x, y);
  if (status == SMX_OK && rows && n) softmax(&smx_isa_current()->f64, rows, n, sizeof *x, x, y);
  return status;
}

smx_status smx_log_softmax_f32(size_t rows, size_t n, const float *x, float *y) {
  SMX_ENTER(NULL);
  smx_status status = check("smx_log_softmax_f32", "x", "y", rows, n, sizeof *x, x, y);
  if (status != SMX_OK || rows == 0 || n == 0) return status;
  row_call c;
  begin_weights(&c, rows, n, sizeof *x, x, y);
  run(smx_isa_current()->f32.family[SMX_FAMILY_row][ROW_log_softmax]->forward, &c);
  return SMX_OK;
}

smx_status smx_logsumexp_f32(size_t rows, size_t n, const float *x, float *lse) {
  SMX_ENTER(NULL);
  size_t total;
  if (__builtin_mul_overflow(rows, n, &total) || __builtin_mul_overflow(total, sizeof *x, &total) ||
      total > PTRDIFF_MAX || rows > PTRDIFF_MAX / sizeof *lse)
    return smx_fail(SMX_ERR_SHAPE, "smx_logsumexp_f32: rows * n = %zu * %zu overflows", rows, n);
  if ((total && !x) || (rows && !lse))
    return smx_fail(SMX_ERR_NULL, "smx_logsumexp_f32: %s is NULL", lse ? "x" : "lse");
  if ((total && (uintptr_t)x % sizeof *x) || (rows && (uintptr_t)lse % sizeof *lse))
    return smx_fail(SMX_ERR_SHAPE, "smx_logsumexp_f32: %s is not aligned to its type (4 bytes)",
                    (uintptr_t)lse % sizeof *lse ? "lse" : "x");
  if (!apart(x, total, lse, rows * sizeof *lse))
    return smx_fail(SMX_ERR_ALIAS, "smx_logsumexp_f32: lse overlaps x");
  row_call c;
  smx_begin_call(&c, rows, n);
  c.src[0] = x, c.src_step[0] = (ptrdiff_t)n;
  c.dst[0] = lse, c.dst_step[0] = 1;
  run(smx_isa_current()->f32.family[SMX_FAMILY_row][ROW_logsumexp]->forward, &c);
  return SMX_OK;
}

smx_status smx_softmax_backward_f32(size_t rows, size_t n, const float *y, const float *dy, float *dx) {
  SMX_ENTER(NULL);
  smx_status status = check("smx_softmax_backward_f32", "y", "dx", rows, n, sizeof *y, y, dx);
  if (status == SMX_OK) status = check("smx_softmax_backward_f32", "dy", "dx", rows, n, sizeof *dy, dy, dx);
  if (status != SMX_OK || rows == 0 || n == 0) return status;
  row_call c;
  smx_begin_call(&c, rows, n);
  c.dst[0] = dx, c.dst_step[0] = (ptrdiff_t)n;
  c.src[SRC_Y] = y, c.src[SRC_DY] = dy;
  c.src_step[SRC_Y] = c.src_step[SRC_DY] = (ptrdiff_t)n;
  c.writing = smx_writing_for(dx == y || dx == dy, gradient_bytes(rows * n * sizeof *y));
  smx_keep_terms(&c, 0, sizeof *dx);
  run(smx_isa_current()->f32.family[SMX_FAMILY_row][ROW_softmax]->backward, &c);
  return SMX_OK;
}

/* ---- through the verbs ---- */

static smx_status one_row(smx_context *ctx, smx_dtype dtype, size_t n, const uint16_t *x, uint16_t *y) {
  int64_t length = (int64_t)n;
  const smx_tensor a = smx_tensor_of(x, dtype, 1, &length, NULL),
                   b = smx_tensor_of(y, dtype, 1, &length, NULL);
  return softmax_along(ctx, -1, &a, &b);
}

enum { HALF_TILE = 2048 }; /* elements of f32 on the stack */

/* Rows of which one needs a rule. */
static __attribute__((noinline)) void widened_by_program(size_t rows, size_t n, float *tile) {
  row_call c;
  begin_weights(&c, rows, n, sizeof *tile, tile, tile);
  c.params = no_params;
  row_run(smx_isa_current()->f32.family[SMX_FAMILY_row][ROW_softmax]->forward, &c);
}

/* Rows that fit a tile: widened to f32, computed there, rounded. */
static inline void widened(row_store type, size_t rows, size_t n, const uint16_t *x, uint16_t *y, float *tile,
                           size_t room) {
  const dtype_io *const io = smx_isa_current()->f32.io;
  for (size_t some; rows; rows -= some, x += some * n, y += some * n) {
    some = rows * n <= room ? rows : room / n;
    io->load(type, x, 1, some * n, tile);
    if (!io->softmax(some, n, tile, tile, WRITE_CACHED)) widened_by_program(some, n, tile);
    io->store(type, tile, some * n, y, 1);
  }
}

static __attribute__((noinline)) void short_half(row_store type, size_t rows, size_t n, const uint16_t *x,
                                                 uint16_t *y) {
  float tile[HALF_TILE] __attribute__((aligned(64)));
  widened(type, rows, n, x, y, tile, HALF_TILE);
}

/* Longer rows stay in their dtype. A row with NaN, +inf or nothing valid is widened where its terms
 * fit scratch memory; a longer one goes through smx_forward. */
static smx_status half_softmax(float *scratch, smx_context *purse, smx_dtype dtype, size_t rows, size_t n,
                               const uint16_t *x, uint16_t *y) {
  const row_kernel *kernel = smx_isa_current()->f32.family[SMX_FAMILY_row][ROW_softmax]->forward;
  const row_writing writing = smx_writing_for(x == y, rows * n * sizeof *x);
  smx_status status = SMX_OK;
  while (rows && status == SMX_OK) {
    const ptrdiff_t step = (ptrdiff_t)n;
    const half_rows h = {row_store_of(dtype), rows, n, x, NULL, y, step, 0, step, writing, scratch};
    const size_t done = kernel->forms->half(&h);
    rows -= done, x += done * n, y += done * n;
    if (!rows) break;
    if (!purse) widened(row_store_of(dtype), 1, n, x, y, scratch, n);
    else status = one_row(purse, dtype, n, x, y);
    rows--, x += n, y += n;
  }
  return status;
}

static smx_status no_row(size_t n) {
  return smx_fail(SMX_ERR_NOMEM, "smx_softmax: no memory for a row of %zu", n);
}

static smx_status middle_half(smx_dtype dtype, size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  float tile[HALF_TILE] __attribute__((aligned(64)));
  return half_softmax(tile, NULL, dtype, rows, n, x, y);
}

static smx_status long_half(smx_dtype dtype, size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  const size_t scratch = row_half_scratch(n);
  smx_context *purse = NULL;
  float *own = NULL;
  smx_status status = SMX_OK;
  if (scratch) own = smx_alloc(NULL, scratch * sizeof *own);
  else if ((purse = smx_purse_open(NULL))) one_row(purse, dtype, n, x, y);
  if (scratch ? !own : !purse || !smx_purse_fill(purse)) status = no_row(n);
  if (status == SMX_OK) status = half_softmax(own, purse, dtype, rows, n, x, y);
  smx_free(NULL, own);
  smx_purse_close(purse);
  return status;
}

static smx_status half(const char *name, smx_dtype dtype, size_t rows, size_t n, const uint16_t *x,
                       uint16_t *y) {
  smx_status status = check(name, "x", "y", rows, n, sizeof *x, x, y);
  if (status != SMX_OK || rows == 0 || n == 0) return status;
  if (n > ROW_HALF_WIDENED && (!row_half_scratch(n) || row_half_scratch(n) > HALF_TILE))
    return long_half(dtype, rows, n, x, y);
  if (n > ROW_HALF_WIDENED) return middle_half(dtype, rows, n, x, y);
  short_half(row_store_of(dtype), rows, n, x, y);
  return SMX_OK;
}
smx_status smx_softmax_f16(size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  SMX_ENTER(NULL);
  return half("smx_softmax_f16", SMX_F16, rows, n, x, y);
}
smx_status smx_softmax_bf16(size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  SMX_ENTER(NULL);
  return half("smx_softmax_bf16", SMX_BF16, rows, n, x, y);
}

smx_status smx_softmax_strided_f32(smx_context *ctx, size_t rows, size_t n, const float *x,
                                   ptrdiff_t x_stride, float *y, ptrdiff_t y_stride) {
  SMX_ENTER(ctx);
  if (rows > INT64_MAX || n > INT64_MAX)
    return smx_fail(SMX_ERR_SHAPE, "smx_softmax_strided_f32: rows * n = %zu * %zu overflows", rows, n);
  if (rows > 1 && (x_stride < (ptrdiff_t)n || y_stride < (ptrdiff_t)n))
    return smx_fail(SMX_ERR_SHAPE, "smx_softmax_strided_f32: %s is %td, less than n = %zu",
                    x_stride < (ptrdiff_t)n ? "x_stride" : "y_stride",
                    x_stride < (ptrdiff_t)n ? x_stride : y_stride, n);
  int64_t shape[2] = {(int64_t)rows, (int64_t)n}, xs[2] = {x_stride, 1}, ys[2] = {y_stride, 1};
  smx_tensor a = smx_tensor_of(x, SMX_F32, 2, shape, xs), b = smx_tensor_of(y, SMX_F32, 2, shape, ys);
  return softmax_along(ctx, -1, &a, &b);
}

smx_status smx_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  SMX_ENTER(ctx);
  return softmax_along(ctx, axis, x, y);
}
smx_status smx_log_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  SMX_ENTER(ctx);
  return log_softmax_along(ctx, axis, x, y);
}
smx_status smx_logsumexp(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *lse) {
  SMX_ENTER(ctx);
  return logsumexp_along(ctx, axis, x, lse);
}

smx_status smx_softmax_backward(smx_context *ctx, int32_t axis, const smx_tensor *y, const smx_tensor *dy,
                                const smx_tensor *dx) {
  SMX_ENTER(ctx);
  return softmax_backward_along(ctx, axis, y, dy, dx);
}
