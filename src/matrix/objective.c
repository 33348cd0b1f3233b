/* matrix/objective.c - two functions of A x for optimisers: value, gradient, and second derivatives
 * times a vector.
 *
 * A [m, n] is read in blocks of 256 rows: once for z = A x - b and u = A v, once for sums w_i A_i
 * over its rows. All of it is in double: each z_i and u_i in index order, sums over rows in row
 * order within a block, blocks in order. Threads take blocks, so their number changes no bit. */
#include "base/enter.h"
#include "driver/operator.h"
#include "driver/view.h"

enum { BLOCK_ROWS = 256, SUMS_MOST = 4 };

typedef struct problem {
  const char *name;
  smx_context *ctx;
  smx_view a, b, x, v, out[SUMS_MOST]; /* data NULL: not there */
  bool wanted[SUMS_MOST], has_v;
  int64_t m, n, blocks;
  double scale; /* of z */
  double *memory, *vx, *vv, *z, *u, *p, *w[SUMS_MOST], *parts;
  smx_scratch scratch; /* a row of a */
} problem;

/* ---- the two walks over A ---- */

static void load_row(const problem *q, int64_t i, double *to) {
  const char *from = q->n ? q->a.data + i * q->a.strides[0] * smx_dtype_bytes(q->a.dtype) : NULL;
  matrix_load(&q->a, from, q->n, to);
}

static void scores_task(void *arg, int64_t block) {
  problem *q = arg;
  double *row = smx_scratch_take(&q->scratch), b;
  for (int64_t i = block * BLOCK_ROWS; i < q->m && i < (block + 1) * BLOCK_ROWS; i++) {
    double z = 0, u = 0;
    load_row(q, i, row);
    for (int64_t k = 0; k < q->n; k++) z += row[k] * q->vx[k];
    for (int64_t k = 0; q->has_v && k < q->n; k++) u += row[k] * q->vv[k];
    matrix_load(&q->b, q->b.data + i * q->b.strides[0] * smx_dtype_bytes(q->b.dtype), 1, &b);
    q->p[i] = b;
    q->z[i] = z;
    q->u[i] = u;
  }
  smx_scratch_give(&q->scratch, row);
}

/* A row whose weight is 0 is skipped. */
static void sums_task(void *arg, int64_t block) {
  problem *q = arg;
  double *row = smx_scratch_take(&q->scratch);
  for (int64_t i = block * BLOCK_ROWS; i < q->m && i < (block + 1) * BLOCK_ROWS; i++) {
    load_row(q, i, row);
    for (int s = 0; s < SUMS_MOST; s++) {
      double *part = q->parts + (block * SUMS_MOST + s) * q->n;
      if (!q->wanted[s] || q->w[s][i] == 0) continue;
      for (int64_t k = 0; k < q->n; k++) part[k] += q->w[s][i] * row[k];
    }
  }
  smx_scratch_give(&q->scratch, row);
}

/* sum_i f_i g_i, in blocks; g NULL = 1. */
static double sum_of(const problem *q, const double *f, const double *g) {
  double sum = 0;
  for (int64_t i = 0; i < q->m;) {
    double block = 0;
    for (int64_t end = i + BLOCK_ROWS; i < q->m && i < end; i++)
      if (f[i] != 0) block += g ? f[i] * g[i] : f[i];
    sum += block;
  }
  return sum;
}

/* ---- arguments and memory ---- */

static smx_status take(problem *q, const char *port, const smx_tensor *t, int64_t length, smx_view *v) {
  const smx_label what = {q->name, "", port};
  smx_status status = matrix_view(what, t, 1, v);
  if (status == SMX_OK && v->shape[0] != length)
    return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[0] is %lld, not %lld", SMX_LABEL_ARGS(what),
                    (long long)v->shape[0], (long long)length);
  return status;
}

static smx_status problem_open(problem *q, const smx_tensor *a, const smx_tensor *b, const smx_tensor *x,
                               const smx_tensor *v, const char *const *names, const smx_tensor *const *out) {
  smx_status status = matrix_view((smx_label){q->name, "", "a"}, a, 2, &q->a);
  if (status != SMX_OK) return status;
  q->m = q->a.shape[0], q->n = q->a.shape[1], q->blocks = (q->m + BLOCK_ROWS - 1) / BLOCK_ROWS;
  q->has_v = v != NULL;
  status = take(q, "b", b, q->m, &q->b);
  if (status == SMX_OK) status = take(q, "x", x, q->n, &q->x);
  if (status == SMX_OK && v) status = take(q, "v", v, q->n, &q->v);
  const smx_view *in[] = {&q->a, &q->b, &q->x, v ? &q->v : NULL};
  for (int s = 0; s < SUMS_MOST && status == SMX_OK; s++) {
    const smx_label what = {q->name, "", names[s]};
    q->wanted[s] = out[s] != NULL;
    if (!out[s]) continue;
    if (s > 0 && !v)
      return smx_fail(SMX_ERR_NULL, SMX_LABEL " is wanted and v is NULL", SMX_LABEL_ARGS(what));
    status = matrix_output(what, out[s], &q->x, 4, in, q->out + s);
    for (int t = 0; t < s && status == SMX_OK; t++)
      if (q->wanted[t] && smx_view_overlap(q->out + s, q->out + t))
        status = smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": overlaps %s", SMX_LABEL_ARGS(what), names[t]);
  }
  if (status != SMX_OK) return status;
  int64_t parts, cells;
  if (!smx_multiply(q->blocks * SUMS_MOST, q->n, &parts) ||
      __builtin_add_overflow(parts, (3 + SUMS_MOST) * q->m + 2 * q->n + 1, &cells) || cells > INT64_MAX / 16)
    return smx_fail(SMX_ERR_SHAPE, "%s: a: %lld x %lld is too large", q->name, (long long)q->m,
                    (long long)q->n);
  double *at = q->memory = smx_alloc(q->ctx, (size_t)cells * sizeof *at);
  if (!at || !smx_scratch_open(&q->scratch, q->ctx, 0, (size_t)(q->n + 1) * sizeof *at, q->blocks)) {
    smx_free(q->ctx, at);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bytes", q->name, (long long)cells * 8);
  }
  q->vx = at, q->vv = at += q->n, at += q->n;
  double **const each[] = {&q->z, &q->u, &q->p, q->w, q->w + 1, q->w + 2, q->w + 3};
  for (size_t i = 0; i < sizeof each / sizeof *each; i++, at += q->m) *each[i] = at;
  q->parts = at;
  memset(q->parts, 0, (size_t)parts * sizeof *at);
  matrix_load(&q->x, q->x.data, q->n, q->vx);
  if (v) matrix_load(&q->v, q->v.data, q->n, q->vv);
  return SMX_OK;
}

/* z = scale (A x - b) or A x, and p = softmax(z); *lse of z. b is left in w[0]. */
static smx_status problem_weights(problem *q, bool minus_b, double *lse) {
  int64_t shape[] = {q->m};
  smx_tensor z = smx_tensor_of(q->z, SMX_F64, 1, shape, NULL),
             p = smx_tensor_of(q->p, SMX_F64, 1, shape, NULL);
  smx_tensor sum = smx_tensor_of(lse, SMX_F64, 0, NULL, NULL);
  smx_parallel(q->ctx, q->blocks, scores_task, q);
  for (int64_t i = 0; i < q->m; i++) {
    q->w[0][i] = q->p[i];
    if (minus_b) q->z[i] = (q->z[i] - q->p[i]) * q->scale;
  }
  smx_status status = softmax_along(q->ctx, -1, &z, &p);
  return status == SMX_OK ? logsumexp_along(q->ctx, -1, &z, &sum) : status;
}

/* The sums over the rows of A with the weights in w, and the outputs. */
static smx_status problem_close(problem *q, smx_status status) {
  if (status == SMX_OK) smx_parallel(q->ctx, q->blocks, sums_task, q);
  for (int s = 0; s < SUMS_MOST && status == SMX_OK; s++) {
    if (!q->wanted[s]) continue;
    for (int64_t k = 0; k < q->n; k++) {
      double sum = 0;
      for (int64_t block = 0; block < q->blocks; block++) sum += q->parts[(block * SUMS_MOST + s) * q->n + k];
      q->vx[k] = sum;
    }
    matrix_store(q->out + s, q->vx, q->n, q->out[s].data);
  }
  smx_scratch_close(&q->scratch);
  smx_free(q->ctx, q->memory);
  return status;
}

/* ---- f = mu logsumexp((A x - b) / mu) ---- */

smx_status smx_logsumexp_objective(smx_context *ctx, double mu, const smx_tensor *a, const smx_tensor *b,
                                   const smx_tensor *x, const smx_tensor *v, double *f,
                                   const smx_tensor *gradient, const smx_tensor *hessian_v,
                                   const smx_tensor *gauss_newton_v, const smx_tensor *third_vv) {
  SMX_ENTER(ctx);
  static const char *const names[] = {"gradient", "hessian_v", "gauss_newton_v", "third_vv"};
  const smx_tensor *const out[] = {gradient, hessian_v, gauss_newton_v, third_vv};
  problem q = {.name = "smx_logsumexp_objective", .ctx = ctx, .scale = 1 / mu};
  double lse;
  if (!(mu >= 1e-300 && mu <= 1e300))
    return smx_fail(SMX_ERR_PARAM, "%s: mu is %g, not 1e-300..1e300", q.name, mu);
  smx_status status = problem_open(&q, a, b, x, v, names, out);
  if (status != SMX_OK) return status;
  status = problem_weights(&q, true, &lse);
  if (status == SMX_OK) {
    const double mean = sum_of(&q, q.p, q.u);
    double spread = 0;
    for (int64_t i = 0; i < q.m; i++) {
      const double p = q.p[i], away = p == 0 ? 0 : q.u[i] - mean;
      q.w[0][i] = p;
      q.w[1][i] = p * away / mu;
      q.w[2][i] = p == 0 ? 0 : p * q.u[i] / mu;
      q.w[3][i] = away * away;
    }
    spread = sum_of(&q, q.p, q.w[3]);
    for (int64_t i = 0; i < q.m; i++) q.w[3][i] = q.p[i] == 0 ? 0 : q.p[i] * (q.w[3][i] - spread) / (mu * mu);
    if (f) *f = lse == lse ? mu * lse : __builtin_nan("");
  }
  return problem_close(&q, status);
}

/* ---- f = |softmax(A x) - b|^2 / 2 ----
 *
 * With p = softmax(A x), c = p - b and u = A v: grad = A^T s, s = p * (c - p.c), and H v = A^T ds
 * with dp = p * (u - p.u),
 *     ds = dp * (c - p.c) + p * (dp - dp.c - p.dp). */

smx_status smx_softmax_regression(smx_context *ctx, const smx_tensor *a, const smx_tensor *b,
                                  const smx_tensor *x, const smx_tensor *v, double *f,
                                  const smx_tensor *gradient, const smx_tensor *hessian_v) {
  SMX_ENTER(ctx);
  static const char *const names[] = {"gradient", "hessian_v", "", ""};
  const smx_tensor *const out[] = {gradient, hessian_v, NULL, NULL};
  problem q = {.name = "smx_softmax_regression", .ctx = ctx, .scale = 1};
  double lse;
  smx_status status = problem_open(&q, a, b, x, v, names, out);
  if (status != SMX_OK) return status;
  status = problem_weights(&q, false, &lse);
  if (status == SMX_OK) {
    double *c = q.z, *dp = q.w[2];
    const double mean = sum_of(&q, q.p, q.u);
    for (int64_t i = 0; i < q.m; i++) {
      c[i] = q.p[i] - q.w[0][i];
      dp[i] = q.p[i] == 0 ? 0 : q.p[i] * (q.u[i] - mean);
    }
    const double pc = sum_of(&q, q.p, c), dpc = sum_of(&q, dp, c), pdp = sum_of(&q, q.p, dp),
                 loss = sum_of(&q, c, c) / 2;
    for (int64_t i = 0; i < q.m; i++) {
      q.w[0][i] = q.p[i] * (c[i] - pc);
      q.w[1][i] = dp[i] * (c[i] - pc) + q.p[i] * (dp[i] - dpc - pdp);
    }
    if (f) *f = loss == loss ? loss : __builtin_nan("");
  }
  return problem_close(&q, status);
}
