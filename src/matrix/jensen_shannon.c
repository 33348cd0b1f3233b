/* matrix/jensen_shannon.c - the Jensen-Shannon divergence and centroid of several distributions
 * over the same classes, in double; exponentials and logarithms are those of softmax, log_softmax
 * and logsumexp. */
#include "base/enter.h"
#include "driver/operator.h"
#include "driver/view.h"

/* ---- m rows that belong together ---- */

typedef struct group {
  const char *name;
  smx_view x, mix;
  const smx_view *in[2];    /* x, and mix or NULL */
  smx_context *ctx, *purse; /* purse: of the calls within it */
  int64_t m, n;
  double *log_w, *w;                    /* of the mixture */
  double *log_p, *p, *room, *log_m, *y; /* room: m * n; log_m, y: n */
} group;

static smx_tensor group_tensor(double *data, int32_t ndim, int64_t *shape) {
  return smx_tensor_of(data, SMX_F64, ndim, shape, NULL);
}

/* log(sum_i w_i p_i): the mixture. */
static smx_status group_mixture(group *g) {
  int64_t shape[] = {g->m, g->n};
  const smx_tensor shifted = group_tensor(g->room, 2, shape), log_m = group_tensor(g->log_m, 1, shape + 1);
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      g->room[i * g->n + j] = g->w[i] == 0 ? -__builtin_inf() : g->log_p[i * g->n + j] + g->log_w[i];
  return logsumexp_along(g->purse, 0, &shifted, &log_m);
}

/* The rows of problem `which` of x: their logarithms, weights and mixture. *bad: 0; NaN where there
 * is one; 1 where a row that counts is empty. */
static smx_status group_load(group *g, int64_t which, double *bad) {
  const smx_view *x = &g->x;
  int64_t shape[] = {g->m, g->n};
  const smx_tensor log_p = group_tensor(g->log_p, 2, shape), p = group_tensor(g->p, 2, shape);
  const char *from = matrix_at(x, 2, which);
  for (int64_t i = 0; i < g->m; i++)
    matrix_load(x, from + i * x->strides[x->ndim - 2] * smx_dtype_bytes(x->dtype), g->n, g->log_p + i * g->n);
  smx_status status = softmax_along(g->purse, -1, &log_p, &p);
  if (status == SMX_OK) status = log_softmax_along(g->purse, -1, &log_p, &log_p);
  if (status == SMX_OK) status = group_mixture(g);
  *bad = 0;
  for (int64_t i = 0; status == SMX_OK && i < g->m; i++) {
    double sum = 0;
    for (int64_t j = 0; j < g->n; j++) sum += g->p[i * g->n + j];
    if (g->w[i] != 0 && !(sum > 0)) *bad = sum == sum && *bad == *bad ? 1 : __builtin_nan("");
  }
  return status;
}

static void group_close(group *g) {
  smx_purse_close(g->purse);
  smx_free(g->ctx, g->log_w);
}

/* Makes every kind of call that follows, with a purse that is measuring. */
static void ask_all(group *g, const smx_tensor *w, const smx_tensor *log_w) {
  int64_t shape[] = {g->m, g->n}, pairs[] = {g->m * g->n, 2};
  const smx_tensor rows = group_tensor(g->log_p, 2, shape), p = group_tensor(g->p, 2, shape),
                   log_m = group_tensor(g->log_m, 1, shape + 1);
  const smx_tensor y = group_tensor(g->y, 1, shape + 1), both = group_tensor(g->room, 2, pairs),
                   sums = group_tensor(g->p, 1, pairs);
  softmax_along(g->purse, -1, log_w, w), log_softmax_along(g->purse, -1, log_w, log_w);
  softmax_along(g->purse, -1, &rows, &p), log_softmax_along(g->purse, -1, &rows, &rows);
  logsumexp_along(g->purse, 0, &rows, &log_m), logsumexp_along(g->purse, -1, &both, &sums);
  softmax_along(g->purse, -1, &log_m, &y), log_softmax_along(g->purse, -1, &log_m, &log_m);
}

/* Checks mix and x, and allocates memory. */
static smx_status group_open(group *g, const smx_tensor *mix, const smx_tensor *x) {
  const smx_view *vx = &g->x, *vm = &g->mix;
  int64_t cells, all;
  smx_status status = matrix_view((smx_label){g->name, "", "x"}, x, -2, &g->x);
  if (status != SMX_OK) return status;
  g->in[0] = vx, g->in[1] = mix ? vm : NULL;
  g->m = vx->shape[vx->ndim - 2], g->n = vx->shape[vx->ndim - 1];
  if (mix) status = matrix_view((smx_label){g->name, "", "mix"}, mix, 1, &g->mix);
  if (status == SMX_OK && mix && vm->shape[0] != g->m)
    status = smx_fail(SMX_ERR_SHAPE, "%s: mix: shape[0] is %lld, not %lld, the rows of x", g->name,
                      (long long)vm->shape[0], (long long)g->m);
  if (status != SMX_OK) return status;
  if (!smx_multiply(g->m, g->n, &cells) || cells > INT64_MAX / 64 ||
      __builtin_add_overflow(5 * cells, 2 * (g->m + g->n) + 1, &all))
    return smx_fail(SMX_ERR_SHAPE, "%s: x: %lld x %lld is too large", g->name, (long long)g->m,
                    (long long)g->n);
  double *at = g->log_w = smx_alloc(g->ctx, (size_t)all * sizeof *at);
  if (!at) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bytes", g->name, (long long)all * 8);
  g->w = at += g->m, g->log_p = at += g->m, g->p = at += cells, g->room = at += cells,
  g->log_m = at += 3 * cells, g->y = at + g->n;
  for (int64_t i = 0; i < g->m; i++) g->log_w[i] = 0;
  if (mix) matrix_load(vm, vm->data, g->m, g->log_w);
  const smx_tensor w = group_tensor(g->w, 1, &g->m), log_w = group_tensor(g->log_w, 1, &g->m);
  g->purse = smx_purse_open(g->ctx);
  if (g->purse) ask_all(g, &w, &log_w);
  if (!g->purse || !smx_purse_fill(g->purse))
    status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for rows", g->name);
  if (status == SMX_OK) status = softmax_along(g->purse, -1, &log_w, &w);
  if (status == SMX_OK) status = log_softmax_along(g->purse, -1, &log_w, &log_w);
  if (status != SMX_OK) group_close(g);
  return status;
}

/* The shape of x without its last `inner` dimensions. */
static smx_view outer(const smx_view *x, int32_t inner, int64_t *count) {
  smx_view v = *x;
  v.ndim -= inner;
  *count = 1;
  for (int32_t d = 0; d < v.ndim; d++) *count *= v.shape[d];
  return v;
}

/* ---- the Jensen-Shannon divergence ---- */

/* D(p_i || M), 0 for a row that does not count. */
static double group_divergence(const group *g, int64_t i) {
  const double *p = g->p + i * g->n, *log_p = g->log_p + i * g->n;
  double sum = 0;
  for (int64_t j = 0; g->w[i] != 0 && j < g->n; j++)
    if (p[j] != 0) sum += p[j] * (log_p[j] - g->log_m[j]);
  return sum;
}

static void jensen_shannon_of(group *g, double bad, const smx_view *vl, const smx_view *vd, int64_t which) {
  double loss = bad == bad ? 0 : bad;
  for (int64_t i = 0; i < g->m; i++) {
    const double own = bad == 0 ? group_divergence(g, i) : 0;
    double *dx = g->room + i * g->n;
    if (bad == 0 && g->w[i] != 0) loss += g->w[i] * own;
    for (int64_t j = 0; j < g->n; j++) {
      const double p = g->p[i * g->n + j], away = g->log_p[i * g->n + j] - g->log_m[j] - own;
      dx[j] = bad != bad ? bad : bad != 0 || g->w[i] == 0 || p == 0 ? 0 : g->w[i] * p * away;
    }
    if (vd)
      matrix_store(vd, dx, g->n,
                   matrix_at(vd, 2, which) + i * vd->strides[vd->ndim - 2] * smx_dtype_bytes(vd->dtype));
  }
  smx_view one = *vl; /* with an axis that holds the one value */
  one.shape[one.ndim] = one.strides[one.ndim] = 1;
  one.ndim++;
  matrix_store(&one, &loss, 1, matrix_at(vl, 0, which));
}

smx_status smx_jensen_shannon(smx_context *ctx, const smx_tensor *mix, const smx_tensor *x,
                              const smx_tensor *loss, const smx_tensor *dx) {
  SMX_ENTER(ctx);
  group g = {.name = "smx_jensen_shannon", .ctx = ctx};
  smx_view vl, vd;
  int64_t count;
  double bad;
  smx_status status = group_open(&g, mix, x);
  if (status != SMX_OK) return status;
  const smx_view rows = outer(&g.x, 2, &count);
  const bool in_place = dx == x;
  status = matrix_output((smx_label){g.name, "", "loss"}, loss, &rows, 2, g.in, &vl);
  if (status == SMX_OK && dx)
    status = matrix_output((smx_label){g.name, "", "dx"}, dx, &g.x, 2 - in_place, g.in + in_place, &vd);
  if (status == SMX_OK && dx && smx_view_overlap(&vd, &vl))
    status = smx_fail(SMX_ERR_ALIAS, "%s: dx: overlaps loss", g.name);
  for (int64_t i = 0; i < count && status == SMX_OK; i++) {
    status = group_load(&g, i, &bad);
    if (status == SMX_OK) jensen_shannon_of(&g, bad, &vl, dx ? &vd : NULL, i);
  }
  group_close(&g);
  return status;
}

/* ---- the Jensen-Shannon centroid ----
 *
 * Of y with the least sum_i w_i JS(p_i, y): with F(y)_j = log(y_j / y_n) it obeys F(y) = sum_i w_i
 * F((y + p_i) / 2), which is iterated. In the log domain that is log_softmax of a mean of
 * log(y + p_i). */

enum { CENTROID_STEPS = 1000 };

/* One step from log_m to y, with log y in its place; returns sum |y - before|. */
static smx_status centroid_step(group *g, double *change) {
  const int64_t cells = g->m * g->n;
  int64_t shape[] = {cells, 2};
  double *pairs = g->room + cells; /* memory for them behind the memory for their sums */
  const smx_tensor both = group_tensor(pairs, 2, shape), sums = group_tensor(g->room, 1, shape);
  const smx_tensor y = group_tensor(g->y, 1, &g->n), log_y = group_tensor(g->log_m, 1, &g->n);
  for (int64_t k = 0; k < cells; k++) pairs[2 * k] = g->log_m[k % g->n], pairs[2 * k + 1] = g->log_p[k];
  smx_status status = logsumexp_along(g->purse, -1, &both, &sums);
  if (status != SMX_OK) return status;
  for (int64_t j = 0; j < g->n; j++) {
    g->log_m[j] = 0;
    pairs[j] = g->y[j];
    for (int64_t i = 0; i < g->m; i++)
      if (g->w[i] != 0) g->log_m[j] += g->w[i] * g->room[i * g->n + j];
  }
  status = softmax_along(g->purse, -1, &log_y, &y);
  if (status == SMX_OK) status = log_softmax_along(g->purse, -1, &log_y, &log_y);
  *change = 0;
  for (int64_t j = 0; j < g->n; j++) *change += g->y[j] < pairs[j] ? pairs[j] - g->y[j] : g->y[j] - pairs[j];
  return status;
}

smx_status smx_js_centroid(smx_context *ctx, const smx_tensor *mix, const smx_tensor *x,
                           const smx_tensor *y) {
  SMX_ENTER(ctx);
  group g = {.name = "smx_js_centroid", .ctx = ctx};
  smx_view vy, like;
  int64_t count;
  double bad, change = 1;
  smx_status status = group_open(&g, mix, x);
  if (status != SMX_OK) return status;
  like = outer(&g.x, 2, &count);
  like.shape[like.ndim++] = g.n;
  status = matrix_output((smx_label){g.name, "", "y"}, y, &like, 2, g.in, &vy);
  for (int64_t i = 0; i < count && g.n > 0 && status == SMX_OK; i++, change = 1) {
    bad = 1; /* of no rows nothing is valid */
    if (g.m > 0) status = group_load(&g, i, &bad);
    for (int64_t j = 0; j < g.n; j++) g.y[j] = bad == bad ? 0 : bad;
    for (int step = 0; status == SMX_OK && bad == 0 && change >= 1e-10 && step < CENTROID_STEPS; step++)
      status = centroid_step(&g, &change);
    if (status == SMX_OK) matrix_store(&vy, g.y, g.n, matrix_at(&vy, 1, i));
  }
  group_close(&g);
  return status;
}
