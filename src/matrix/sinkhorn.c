/* matrix/sinkhorn.c - doubly stochastic weights: softmax of the rows and of the columns in turn, in
 * the log domain.
 *
 * A half step is log_softmax along one axis, and the last one is softmax: the operators of src/row
 * do all the arithmetic, so the order of additions, masks, NaN, policies, layouts and threads are
 * theirs. */
#include "base/enter.h"
#include "driver/operator.h"
#include "driver/view.h"

enum { STEPS_MOST = 1000 };

/* A matrix, or many, in memory of our own. */
typedef struct store {
  int64_t shape[SMX_MAX_DIMS];
  smx_dtype dtype;
  int32_t ndim;
  size_t bytes;
  char *data;
} store;

static smx_status store_make(const char *name, smx_context *ctx, const smx_view *x, int64_t copies,
                             store *s) {
  int64_t bytes;
  *s = (store){.dtype = x->dtype.bits == 64 ? SMX_F64 : SMX_F32, .ndim = x->ndim};
  memcpy(s->shape, x->shape, sizeof s->shape);
  s->bytes = smx_whole_lines((size_t)(smx_view_elements(x) * smx_dtype_bytes(s->dtype)));
  if (!smx_multiply((int64_t)s->bytes, copies, &bytes))
    return smx_fail(SMX_ERR_SHAPE, "%s: %lld copies of x are too many", name, (long long)copies);
  s->data = smx_alloc(ctx, (size_t)bytes + 1);
  return s->data ? SMX_OK : smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bytes", name, (long long)bytes);
}
static smx_tensor store_at(store *s, int32_t i) {
  return smx_tensor_of(s->data + s->bytes * (size_t)i, s->dtype, s->ndim, s->shape, NULL);
}

static int32_t axis_of(int32_t step) { return step % 2 ? -1 : -2; } /* steps count from 1 */

static smx_status check_steps(const char *name, int32_t steps) {
  if (steps >= 1 && steps <= STEPS_MOST) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: steps is %d, not 1..%d", name, (int)steps, STEPS_MOST);
}

smx_status smx_sinkhorn(smx_context *ctx, int32_t steps, const smx_tensor *x, const smx_tensor *y) {
  SMX_ENTER(ctx);
  static const char name[] = "smx_sinkhorn";
  smx_view vx, vy;
  store s;
  smx_status status = check_steps(name, steps);
  if (status == SMX_OK) status = matrix_view((smx_label){name, "", "x"}, x, -2, &vx);
  if (status == SMX_OK) status = matrix_output((smx_label){name, "", "y"}, y, &vx, 0, NULL, &vy);
  if (status != SMX_OK) return status;
  if (steps == 1) return softmax_along(ctx, -1, x, y);
  status = store_make(name, ctx, &vx, 1, &s);
  if (status != SMX_OK) return status;
  smx_tensor l = store_at(&s, 0);
  status = log_softmax_along(ctx, -1, x, &l);
  for (int32_t k = 2; k < steps && status == SMX_OK; k++) status = log_softmax_along(ctx, axis_of(k), &l, &l);
  if (status == SMX_OK) status = softmax_along(ctx, axis_of(steps), &l, y);
  smx_free(ctx, s.data);
  return status;
}

/* Runs the steps again, keeps the result of each, and goes back through them. */
smx_status smx_sinkhorn_backward(smx_context *ctx, int32_t steps, const smx_tensor *x, const smx_tensor *dy,
                                 const smx_tensor *dx) {
  SMX_ENTER(ctx);
  static const char name[] = "smx_sinkhorn_backward";
  smx_view vx, vdy, vdx;
  store s;
  smx_status status = check_steps(name, steps);
  if (status == SMX_OK) status = matrix_view((smx_label){name, "", "x"}, x, -2, &vx);
  if (status == SMX_OK) status = matrix_like((smx_label){name, "", "dy"}, dy, &vx, &vdy);
  if (status == SMX_OK) status = matrix_output((smx_label){name, "", "dx"}, dx, &vx, 0, NULL, &vdx);
  if (status == SMX_OK) status = store_make(name, ctx, &vx, steps, &s);
  if (status != SMX_OK) return status;
  const smx_tensor *from = x;
  smx_tensor l[2], g = store_at(&s, steps - 1); /* y, then its gradient and those before it */
  for (int32_t k = 1; k < steps && status == SMX_OK; k++, from = l + (k - 1) % 2) {
    l[k % 2] = store_at(&s, k - 1);
    status = log_softmax_along(ctx, axis_of(k), from, l + k % 2);
  }
  if (status == SMX_OK) status = softmax_along(ctx, axis_of(steps), from, &g);
  if (status == SMX_OK) status = softmax_backward_along(ctx, axis_of(steps), &g, dy, steps > 1 ? &g : dx);
  for (int32_t k = steps - 1; k >= 1 && status == SMX_OK; k--) {
    smx_tensor kept = store_at(&s, k - 1);
    status = log_softmax_backward_along(ctx, axis_of(k), &kept, &g, k > 1 ? &g : dx);
  }
  smx_free(ctx, s.data);
  return status;
}

/* ---- the gradient of the limit ----
 *
 * y = diag(e^-a) e^x diag(e^-b), and a, b keep its row sums R and column sums Q. With g = y * dy
 * elementwise,
 *     dx = y * (dy - a 1^T - 1 b^T),   R a + y b = rows of g,   y^T a + Q b = columns of g,
 * singular by a constant (a + t, b - t), or one for each block that y falls into: b is 0 where a
 * pivot is 0. a is eliminated; what is left, Q - y^T R^-1 y, is factored as L D L^T. All in double,
 * in index order. */

typedef struct limit_job {
  const smx_view *y, *dy, *dx;
  smx_scratch scratch;
  int64_t r, c, elements;
} limit_job;

typedef struct limit {
  double *y, *g, *s, *rows, *columns, *a, *b; /* g: dy where y is not 0; s: the system, lower triangle */
} limit;

/* False when there is a NaN. */
static bool limit_sums(const limit_job *j, const limit *m) {
  double all = 0;
  for (int64_t k = 0; k < j->c; k++) m->columns[k] = m->b[k] = 0;
  for (int64_t i = 0; i < j->r; i++) {
    m->rows[i] = m->a[i] = 0;
    for (int64_t k = 0; k < j->c; k++) {
      double y = m->y[i * j->c + k], *g = m->g + i * j->c + k, yg;
      if (y == 0) *g = 0;
      yg = y * *g;
      m->rows[i] += y, m->a[i] += yg;
      m->columns[k] += y, m->b[k] += yg;
    }
    all += m->rows[i] + m->a[i];
  }
  return all - all == 0;
}

static void limit_system(const limit_job *j, const limit *m) {
  const int64_t c = j->c;
  for (int64_t k = 0; k < c; k++)
    for (int64_t l = 0; l <= k; l++) m->s[k * c + l] = k == l ? m->columns[k] : 0;
  for (int64_t i = 0; i < j->r; i++) {
    if (m->rows[i] == 0) continue;
    const double *y = m->y + i * c;
    for (int64_t k = 0; k < c; k++) {
      const double over = y[k] / m->rows[i];
      m->b[k] -= over * m->a[i];
      for (int64_t l = 0; l <= k; l++) m->s[k * c + l] -= over * y[l];
    }
  }
}

/* L D L^T in place, then b. */
static void limit_solve(const limit_job *j, const limit *m) {
  const int64_t c = j->c;
  double *s = m->s, *b = m->b;
  for (int64_t k = 0; k < c; k++) {
    double *row = s + k * c, pivot = row[k];
    for (int64_t l = 0; l < k; l++) {
      double at = row[l];
      for (int64_t t = 0; t < l; t++) at -= row[t] * s[l * c + t];
      row[l] = at; /* L D, until its row is done */
    }
    for (int64_t l = 0; l < k; l++) {
      const double d = s[l * c + l], over = d > 0 ? row[l] / d : 0;
      pivot -= over * row[l];
      b[k] -= over * b[l];
      row[l] = over;
    }
    row[k] = pivot > 1e-12 * m->columns[k] ? pivot : 0;
  }
  for (int64_t k = c - 1; k >= 0; k--) {
    b[k] = s[k * c + k] > 0 ? b[k] / s[k * c + k] : 0;
    for (int64_t l = k + 1; l < c; l++)
      if (s[k * c + k] > 0) b[k] -= s[l * c + k] * b[l];
  }
}

static void limit_write(const limit_job *j, const limit *m, bool valid, char *to) {
  const int64_t row = j->dx->strides[j->dx->ndim - 2] * smx_dtype_bytes(j->dx->dtype);
  for (int64_t i = 0; i < j->r; i++) {
    double *y = m->y + i * j->c, *g = m->g + i * j->c, a = m->a[i];
    for (int64_t k = 0; k < j->c; k++) a -= y[k] * m->b[k];
    a = m->rows[i] == 0 ? 0 : a / m->rows[i];
    for (int64_t k = 0; k < j->c; k++) g[k] = valid ? y[k] * (g[k] - a - m->b[k]) : __builtin_nan("");
    matrix_store(j->dx, g, j->c, to + i * row);
  }
}

static void limit_task(void *arg, int64_t which) {
  limit_job *j = arg;
  const int64_t r = j->r, c = j->c;
  double *room = smx_scratch_take(&j->scratch);
  limit m = {.y = room, .g = room + r * c, .s = room + 2 * r * c};
  m.rows = m.s + c * c, m.a = m.rows + r, m.columns = m.a + r, m.b = m.columns + c;
  const char *y = matrix_at(j->y, 2, which), *dy = matrix_at(j->dy, 2, which);
  for (int64_t i = 0; i < r; i++) {
    matrix_load(j->y, y + i * j->y->strides[j->y->ndim - 2] * smx_dtype_bytes(j->y->dtype), c, m.y + i * c);
    matrix_load(j->dy, dy + i * j->dy->strides[j->dy->ndim - 2] * smx_dtype_bytes(j->dy->dtype), c,
                m.g + i * c);
  }
  const bool valid = limit_sums(j, &m);
  if (valid) {
    limit_system(j, &m);
    limit_solve(j, &m);
  }
  limit_write(j, &m, valid, matrix_at(j->dx, 2, which));
  smx_scratch_give(&j->scratch, room);
}

smx_status smx_sinkhorn_implicit(smx_context *ctx, const smx_tensor *y, const smx_tensor *dy,
                                 const smx_tensor *dx) {
  SMX_ENTER(ctx);
  static const char name[] = "smx_sinkhorn_implicit";
  smx_view vy, vdy, vdx;
  smx_status status = matrix_view((smx_label){name, "", "y"}, y, -2, &vy);
  if (status == SMX_OK) status = matrix_like((smx_label){name, "", "dy"}, dy, &vy, &vdy);
  const smx_view *in[] = {&vy, &vdy};
  if (status == SMX_OK) status = matrix_output((smx_label){name, "", "dx"}, dx, &vy, 2, in, &vdx);
  if (status != SMX_OK) return status;
  limit_job j = {.y = &vy, .dy = &vdy, .dx = &vdx, .r = vy.shape[vy.ndim - 2], .c = vy.shape[vy.ndim - 1]};
  int64_t square;
  if (!smx_multiply(j.c, j.c, &square) || square > INT64_MAX / 64)
    return smx_fail(SMX_ERR_SHAPE, "%s: y: %lld columns are too many", name, (long long)j.c);
  j.elements = j.r * j.c;
  if (smx_view_elements(&vy) == 0) return SMX_OK;
  const int64_t count = smx_view_elements(&vy) / j.elements;
  const size_t place = (size_t)(2 * j.elements + square + 2 * (j.r + j.c) + 1) * sizeof(double);
  if (!smx_scratch_open(&j.scratch, ctx, 0, place, count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for a matrix of %lld x %lld", name, (long long)j.r,
                    (long long)j.c);
  smx_parallel(ctx, count, limit_task, &j);
  smx_scratch_close(&j.scratch);
  return SMX_OK;
}
