/* matrix/orthostochastic.c - doubly stochastic weights from a QR decomposition: x = Q R with
 * R_kk > 0, y = Q * Q elementwise.
 *
 * Householder's reflections, in double and in index order, on columns divided by their largest
 * element, which does not change Q. The gradient: with B = 2 Q * dy and M = -B^T Q,
 *
 *     dx = (B + Q low(M)) R^-T,   low(M)_ij = M_max(i,j),min(i,j).
 *
 * y depends on the last column of x only through the others: its gradient is 0. */
#include "base/enter.h"
#include "driver/view.h"

typedef struct qr_job {
  const smx_view *x, *dy, *out; /* dy NULL: y is wanted */
  smx_scratch scratch;
  int64_t n;
} qr_job;

typedef struct qr {
  double *q, *r, *scale, *v, *b, *m;
} qr;

static void load_square(const smx_view *v, int64_t which, int64_t n, double *to) {
  const char *from = matrix_at(v, 2, which);
  for (int64_t i = 0; i < n; i++)
    matrix_load(v, from + i * v->strides[v->ndim - 2] * smx_dtype_bytes(v->dtype), n, to + i * n);
}
static bool finite(const double *a, int64_t count) {
  bool all = true;
  for (int64_t i = 0; i < count; i++) all &= a[i] - a[i] == 0;
  return all;
}

static void scale_columns(const qr *w, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
      most = __builtin_fabs(w->r[i * n + k]) > most ? __builtin_fabs(w->r[i * n + k]) : most;
    w->scale[k] = most > 0 ? most : 1;
    for (int64_t i = 0; i < n; i++) w->r[i * n + k] /= w->scale[k];
  }
}

/* a -= (2 / v.v) v (v^T a) for the rows from k on of n x n (left), or a -= (2 / v.v) (a v) v^T. */
static void reflect_left(double *a, const double *v, double factor, int64_t k, int64_t n) {
  for (int64_t j = k; j < n; j++) {
    double dot = 0;
    for (int64_t i = k; i < n; i++) dot += v[i] * a[i * n + j];
    for (int64_t i = k; i < n; i++) a[i * n + j] -= factor * dot * v[i];
  }
}
static void reflect_right(double *a, const double *v, double factor, int64_t k, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double dot = 0;
    for (int64_t j = k; j < n; j++) dot += a[i * n + j] * v[j];
    for (int64_t j = k; j < n; j++) a[i * n + j] -= factor * dot * v[j];
  }
}

/* r becomes R and q becomes Q. */
static void decompose(const qr *w, int64_t n) {
  scale_columns(w, n);
  for (int64_t i = 0; i < n * n; i++) w->q[i] = i % (n + 1) == 0;
  for (int64_t k = 0; k + 1 < n; k++) {
    double square = 0, length = 0;
    for (int64_t i = k; i < n; i++) square += w->r[i * n + k] * w->r[i * n + k];
    if (square == 0) continue;
    for (int64_t i = k; i < n; i++) w->v[i] = w->r[i * n + k];
    w->v[k] += w->v[k] < 0 ? -__builtin_sqrt(square) : __builtin_sqrt(square);
    for (int64_t i = k; i < n; i++) length += w->v[i] * w->v[i];
    reflect_left(w->r, w->v, 2 / length, k, n);
    reflect_right(w->q, w->v, 2 / length, k, n);
  }
  for (int64_t k = 0; k < n; k++) {
    if (!(w->r[k * n + k] < 0)) continue;
    for (int64_t i = 0; i < n; i++) w->r[k * n + i] = -w->r[k * n + i], w->q[i * n + k] = -w->q[i * n + k];
  }
}

/* b: dy, then dx. False when a column but the last lies in the span of those before it, where there
 * is no gradient. */
static bool gradient(const qr *w, int64_t n) {
  for (int64_t k = 0; k + 1 < n; k++)
    if (!(w->r[k * n + k] > 0x1p-50 * (double)n)) return false;
  for (int64_t i = 0; i < n * n; i++) w->b[i] *= 2 * w->q[i];
  for (int64_t i = 0; i < n * n; i++) w->m[i] = 0;
  for (int64_t t = 0; t < n; t++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j <= i; j++) w->m[i * n + j] -= w->b[t * n + i] * w->q[t * n + j];
  for (int64_t t = 0; t < n; t++) {
    double *b = w->b + t * n;
    const double *q = w->q + t * n;
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) b[j] += q[i] * w->m[i > j ? i * n + j : j * n + i];
    b[n - 1] = 0;
    for (int64_t j = n - 2; j >= 0; j--) {
      for (int64_t k = j + 1; k < n; k++) b[j] -= b[k] * w->r[j * n + k];
      b[j] /= w->r[j * n + j];
    }
    for (int64_t j = 0; j < n; j++) b[j] /= w->scale[j];
  }
  return true;
}

static void qr_task(void *arg, int64_t which) {
  qr_job *j = arg;
  const int64_t n = j->n, cells = n * n;
  double *room = smx_scratch_take(&j->scratch);
  qr w = {
      .q = room, .r = room + cells, .b = room + 2 * cells, .m = room + 3 * cells, .scale = room + 4 * cells};
  w.v = w.scale + n;
  load_square(j->x, which, n, w.r);
  if (j->dy) load_square(j->dy, which, n, w.b);
  bool valid = finite(w.r, cells) && (!j->dy || finite(w.b, cells));
  if (valid) decompose(&w, n);
  if (valid && j->dy) valid = gradient(&w, n);
  for (int64_t i = 0; i < cells; i++) {
    if (!j->dy) w.b[i] = w.q[i] * w.q[i];
    if (!valid) w.b[i] = __builtin_nan("");
  }
  char *to = matrix_at(j->out, 2, which);
  for (int64_t i = 0; i < n; i++)
    matrix_store(j->out, w.b + i * n, n,
                 to + i * j->out->strides[j->out->ndim - 2] * smx_dtype_bytes(j->out->dtype));
  smx_scratch_give(&j->scratch, room);
}

static smx_status run(const char *name, smx_context *ctx, const smx_tensor *x, const smx_tensor *dy,
                      const char *out_name, const smx_tensor *out) {
  smx_view vx, vdy, vout;
  const smx_view *in[] = {&vx, dy ? &vdy : NULL};
  smx_status status = matrix_view((smx_label){name, "", "x"}, x, -2, &vx);
  if (status != SMX_OK) return status;
  qr_job j = {.x = &vx, .dy = dy ? &vdy : NULL, .out = &vout, .n = vx.shape[vx.ndim - 1]};
  if (vx.shape[vx.ndim - 2] != j.n)
    return smx_fail(SMX_ERR_SHAPE, "%s: x: %lld rows of %lld are not square", name,
                    (long long)vx.shape[vx.ndim - 2], (long long)j.n);
  if (dy) status = matrix_like((smx_label){name, "", "dy"}, dy, &vx, &vdy);
  if (status == SMX_OK) status = matrix_output((smx_label){name, "", out_name}, out, &vx, 2, in, &vout);
  if (status != SMX_OK || smx_view_elements(&vx) == 0) return status;
  const int64_t count = smx_view_elements(&vx) / (j.n * j.n);
  if (!smx_scratch_open(&j.scratch, ctx, 0, (size_t)(4 * j.n * j.n + 2 * j.n) * sizeof(double), count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for a matrix of %lld rows", name, (long long)j.n);
  smx_parallel(ctx, count, qr_task, &j);
  smx_scratch_close(&j.scratch);
  return SMX_OK;
}

smx_status smx_orthostochastic(smx_context *ctx, const smx_tensor *x, const smx_tensor *y) {
  SMX_ENTER(ctx);
  return run("smx_orthostochastic", ctx, x, NULL, "y", y);
}
smx_status smx_orthostochastic_backward(smx_context *ctx, const smx_tensor *x, const smx_tensor *dy,
                                        const smx_tensor *dx) {
  SMX_ENTER(ctx);
  if (!dy) return smx_fail(SMX_ERR_NULL, "smx_orthostochastic_backward: dy is NULL");
  return run("smx_orthostochastic_backward", ctx, x, dy, "dx", dx);
}
