/* api/plain.c - the operators everybody uses, by name: the shortest way to the kernels. */
#include "verbs.h"
#include "row/row.h"
#include "cpu/fpenv.h"
#include "plan.h"
#include <string.h>

/* Two buffers of so many bytes are one, or apart. */
static bool apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
  return p + a_bytes <= q || q + b_bytes <= p;
}

static smx_status check(const char *name, const char *in, const char *out, size_t rows, size_t n, size_t bytes, const void *x,
                        const void *y) {
  size_t total;
  if (__builtin_mul_overflow(rows, n, &total) || __builtin_mul_overflow(total, bytes, &total) || total > PTRDIFF_MAX)
    return smx_fail(SMX_ERR_SHAPE, "%s: rows * n = %zu * %zu overflows", name, rows, n);
  if (total && (!x || !y)) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", name, x ? out : in);
  if (total && ((uintptr_t)x | (uintptr_t)y) & (bytes - 1))
    return smx_fail(SMX_ERR_SHAPE, "%s: %s is not aligned to its type (%zu bytes)", name, (uintptr_t)x % bytes ? in : out, bytes);
  if (x != y && !apart(x, total, y, total)) return smx_fail(SMX_ERR_ALIAS, "%s: %s overlaps %s without being it", name, out, in);
  return SMX_OK;
}

static const double no_params[SMX_MAX_PARAMS] = {1, 2.718281828459045}; /* temperature 1, base e */

/* Contiguous rows of the real type, on this thread. */
static void run(const row_kernel *kernel, row_call *c) {
  smx_fpenv env = smx_fpenv_enter();
  c->params = no_params;
  c->first_empty = -1;
  kernel->rows(c);
  smx_fpenv_leave(env);
}

static inline row_call weights_call(size_t rows, size_t n, size_t bytes, const void *x, void *y) {
  row_call c = {.n = n, .rows = rows, .src = {x}, .dst = {y}, .src_step = {(ptrdiff_t)n}, .dst_step = {(ptrdiff_t)n}};
  c.plan = (row_plan)smx_plan_get();
  c.bypass = smx_bypass_for(x == y, rows * n * bytes);
  return c;
}

/* Rows that fit registers or caches skip even the making of a call. */
static void softmax(const smx_kernels *kernels, size_t rows, size_t n, size_t bytes, const void *x, void *y) {
  smx_fpenv env = smx_fpenv_enter();
  bool done = smx_plan_get() == PLAN_AUTO && kernels->moves->softmax(rows, n, x, y, smx_bypass_for(x == y, rows * n * bytes));
  smx_fpenv_leave(env);
  if (done) return;
  row_call c = weights_call(rows, n, bytes, x, y);
  smx_keep_terms(&c, 0, bytes);
  run(&kernels->room[SMX_ROOM_row][ROW_softmax]->forward, &c);
}

smx_status smx_softmax_f32(size_t rows, size_t n, const float *x, float *y) {
  smx_status status = check("smx_softmax_f32", "x", "y", rows, n, sizeof *x, x, y);
  if (status == SMX_OK && rows && n) softmax(&smx_isa_current()->f32, rows, n, sizeof *x, x, y);
  return status;
}

smx_status smx_softmax_f64(size_t rows, size_t n, const double *x, double *y) {
  smx_status status = check("smx_softmax_f64", "x", "y", rows, n, sizeof *x, x, y);
  if (status == SMX_OK && rows && n) softmax(&smx_isa_current()->f64, rows, n, sizeof *x, x, y);
  return status;
}

smx_status smx_log_softmax_f32(size_t rows, size_t n, const float *x, float *y) {
  smx_status status = check("smx_log_softmax_f32", "x", "y", rows, n, sizeof *x, x, y);
  if (status != SMX_OK || rows == 0 || n == 0) return status;
  row_call c = weights_call(rows, n, sizeof *x, x, y);
  run(&smx_isa_current()->f32.room[SMX_ROOM_row][ROW_log_softmax]->forward, &c);
  return SMX_OK;
}

smx_status smx_logsumexp_f32(size_t rows, size_t n, const float *x, float *lse) {
  size_t total;
  if (__builtin_mul_overflow(rows, n, &total) || __builtin_mul_overflow(total, sizeof *x, &total) || total > PTRDIFF_MAX ||
      rows > PTRDIFF_MAX / sizeof *lse)
    return smx_fail(SMX_ERR_SHAPE, "smx_logsumexp_f32: rows * n = %zu * %zu overflows", rows, n);
  if ((total && !x) || (rows && !lse)) return smx_fail(SMX_ERR_NULL, "smx_logsumexp_f32: %s is NULL", lse ? "x" : "lse");
  if ((total && (uintptr_t)x % sizeof *x) || (rows && (uintptr_t)lse % sizeof *lse))
    return smx_fail(SMX_ERR_SHAPE, "smx_logsumexp_f32: %s is not aligned to its type (4 bytes)",
                    (uintptr_t)lse % sizeof *lse ? "lse" : "x");
  if (!apart(x, total, lse, rows * sizeof *lse)) return smx_fail(SMX_ERR_ALIAS, "smx_logsumexp_f32: lse overlaps x");
  row_call c = {.n = n, .rows = rows, .src = {x}, .dst = {lse}, .src_step = {(ptrdiff_t)n}, .dst_step = {1}};
  run(&smx_isa_current()->f32.room[SMX_ROOM_row][ROW_logsumexp]->forward, &c);
  return SMX_OK;
}

smx_status smx_softmax_backward_f32(size_t rows, size_t n, const float *y, const float *dy, float *dx) {
  smx_status status = check("smx_softmax_backward_f32", "y", "dx", rows, n, sizeof *y, y, dx);
  if (status == SMX_OK) status = check("smx_softmax_backward_f32", "dy", "dx", rows, n, sizeof *dy, dy, dx);
  if (status != SMX_OK || rows == 0 || n == 0) return status;
  row_call c = {.n = n, .rows = rows, .dst = {dx}, .dst_step = {(ptrdiff_t)n}};
  c.src[SRC_Y] = y, c.src[SRC_DY] = dy;
  c.src_step[SRC_Y] = c.src_step[SRC_DY] = (ptrdiff_t)n;
  c.bypass = smx_bypass_for(dx == y || dx == dy, rows * n * sizeof *y);
  run(&smx_isa_current()->f32.room[SMX_ROOM_row][ROW_softmax]->backward, &c);
  return SMX_OK;
}

/* ---- through the verbs ---- */

static smx_status forward(int row, smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  smx_params params;
  smx_params_init(row_table + row, &params);
  params.axis = axis;
  return smx_forward(row_table + row, ctx, &params, 1, &x, 1, &y);
}

enum { HALF_TILE = 4096 }; /* elements of f32 on the stack */

/* Short rows: widened, computed there, rounded. */
static void short_halves(row_store type, size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  const smx_kernels *kernels = &smx_isa_current()->f32;
  float tile[HALF_TILE] __attribute__((aligned(64)));
  smx_fpenv env = smx_fpenv_enter();
  for (size_t some; rows; rows -= some, x += some * n, y += some * n) {
    some = rows < HALF_TILE / n ? rows : HALF_TILE / n;
    kernels->moves->load(type, x, 1, some * n, tile);
    if (!kernels->moves->softmax(some, n, tile, tile, BYPASS_NOT)) {
      row_call c = weights_call(some, n, sizeof *tile, tile, tile);
      c.params = no_params;
      kernels->room[SMX_ROOM_row][ROW_softmax]->forward.rows(&c);
    }
    kernels->moves->store(type, tile, some * n, y, 1);
  }
  smx_fpenv_leave(env);
}

/* Longer rows, as they are; those that are not ordinary go through the verbs. */
static smx_status long_halves(smx_dtype dtype, size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  const row_kernel *kernel = &smx_isa_current()->f32.room[SMX_ROOM_row][ROW_softmax]->forward;
  float tile[HALF_TILE] __attribute__((aligned(64)));
  float *room = row_halves_room(n) && row_halves_room(n) <= HALF_TILE ? tile : smx_alloc(NULL, (row_halves_room(n) + 1) * sizeof *room);
  smx_status status = room ? SMX_OK : SMX_ERR_NOMEM;
  const row_bypass bypass = smx_bypass_for(x == y, rows * n * sizeof *x);
  while (rows && status == SMX_OK) {
    const ptrdiff_t step = (ptrdiff_t)n;
    const half_rows h = {no_params, row_store_of(dtype), rows, n, x, NULL, y, step, 0, step, bypass, room};
    const smx_fpenv env = smx_fpenv_enter();
    const size_t done = kernel->halves(&h);
    smx_fpenv_leave(env);
    rows -= done, x += done * n, y += done * n;
    if (!rows) break;
    int64_t length = (int64_t)n; /* of an odd one */
    const smx_tensor a = smx_tensor_of(x, dtype, 1, &length, NULL), b = smx_tensor_of(y, dtype, 1, &length, NULL);
    status = forward(ROW_softmax, NULL, -1, &a, &b);
    rows--, x += n, y += n;
  }
  if (room != tile) smx_free(NULL, room);
  return status;
}

static smx_status half(const char *name, smx_dtype dtype, size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  smx_status status = check(name, "x", "y", rows, n, sizeof *x, x, y);
  if (status != SMX_OK || rows == 0 || n == 0) return status;
  if (n > ROW_HALVES_WIDENED) return long_halves(dtype, rows, n, x, y);
  short_halves(row_store_of(dtype), rows, n, x, y);
  return SMX_OK;
}
smx_status smx_softmax_f16(size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  return half("smx_softmax_f16", SMX_F16, rows, n, x, y);
}
smx_status smx_softmax_bf16(size_t rows, size_t n, const uint16_t *x, uint16_t *y) {
  return half("smx_softmax_bf16", SMX_BF16, rows, n, x, y);
}

smx_status smx_softmax_strided_f32(smx_context *ctx, size_t rows, size_t n, const float *x, ptrdiff_t x_stride, float *y,
                                   ptrdiff_t y_stride) {
  if (rows > INT64_MAX || n > INT64_MAX) return smx_fail(SMX_ERR_SHAPE, "smx_softmax_strided_f32: rows * n = %zu * %zu overflows", rows, n);
  if (rows > 1 && (x_stride < (ptrdiff_t)n || y_stride < (ptrdiff_t)n))
    return smx_fail(SMX_ERR_SHAPE, "smx_softmax_strided_f32: %s is %td, less than n = %zu",
                    x_stride < (ptrdiff_t)n ? "x_stride" : "y_stride", x_stride < (ptrdiff_t)n ? x_stride : y_stride, n);
  int64_t shape[2] = {(int64_t)rows, (int64_t)n}, xs[2] = {x_stride, 1}, ys[2] = {y_stride, 1};
  smx_tensor a = smx_tensor_of(x, SMX_F32, 2, shape, xs), b = smx_tensor_of(y, SMX_F32, 2, shape, ys);
  return forward(ROW_softmax, ctx, -1, &a, &b);
}

smx_status smx_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  return forward(ROW_softmax, ctx, axis, x, y);
}
smx_status smx_log_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y) {
  return forward(ROW_log_softmax, ctx, axis, x, y);
}
smx_status smx_logsumexp(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *lse) {
  return forward(ROW_logsumexp, ctx, axis, x, lse);
}

smx_status smx_softmax_backward(smx_context *ctx, int32_t axis, const smx_tensor *y, const smx_tensor *dy, const smx_tensor *dx) {
  const smx_tensor *x = NULL; /* y and dy are enough */
  smx_params params;
  smx_params_init(row_table + ROW_softmax, &params);
  params.axis = axis;
  return smx_backward(row_table + ROW_softmax, ctx, &params, 1, &x, 1, &y, &dy, &dx);
}
