/* fit/functions_apply.c - maps of the logits: a scale and a bias for each class, or a matrix. */
#include "driver/internal.h"
#include "functions.h"

enum { LOGITS, SCALE, BIAS }; /* inputs; the matrix is in the place of the scale */
enum { ROWS = 64, COLUMNS = 64 };
#define INF __builtin_inf()

/* ---- a scale and a bias ---- */

typedef struct apply_call {
  const tensor_call *c;
  int64_t rows, classes;
  double *scale, *bias; /* in double */
  double *dscale, *dbias;
} apply_call;

static bool apply_open(apply_call *x, const tensor_call *c) {
  *x = (apply_call){.c = c, .rows = c->dims.lead_count, .classes = tensor_dim(c, "c")};
  x->scale = fit_reserve(c, 4 * x->classes);
  if (!x->scale) return false;
  x->bias = x->scale + x->classes, x->dscale = x->bias + x->classes, x->dbias = x->dscale + x->classes;
  for (int64_t j = 0; j < x->classes; j++) x->bias[j] = 0;
  tensor_load(c, c->in.view + SCALE, 0, x->classes, x->scale);
  if (c->in.given[BIAS]) tensor_load(c, c->in.view + BIAS, 0, x->classes, x->bias);
  return true;
}

static void forward_task(void *arg, int64_t task) {
  const apply_call *x = arg;
  double z[COLUMNS];
  for (int64_t row = task * ROWS; row < fit_task_end(task, x->rows, ROWS); row++)
    for (int64_t from = 0; from < x->classes; from += COLUMNS) {
      const int64_t n = fit_task_end(from / COLUMNS, x->classes, COLUMNS) - from,
                    at = row * x->classes + from;
      tensor_load(x->c, x->c->in.view + LOGITS, at, n, z);
      for (int64_t j = 0; j < n; j++)
        if (z[j] != -INF) z[j] = x->scale[from + j] * z[j] + x->bias[from + j];
      tensor_store(x->c, x->c->out.view, at, n, z);
    }
}

/* The gradient of the logits. */
static void logits_task(void *arg, int64_t task) {
  const apply_call *x = arg;
  double z[COLUMNS], g[COLUMNS];
  for (int64_t row = task * ROWS; row < fit_task_end(task, x->rows, ROWS); row++)
    for (int64_t from = 0; from < x->classes; from += COLUMNS) {
      const int64_t n = fit_task_end(from / COLUMNS, x->classes, COLUMNS) - from,
                    at = row * x->classes + from;
      tensor_load(x->c, x->c->in.view + LOGITS, at, n, z);
      tensor_load(x->c, x->c->dout.view, at, n, g);
      for (int64_t j = 0; j < n; j++) g[j] = z[j] == -INF ? 0 : g[j] * x->scale[from + j];
      tensor_store(x->c, x->c->din.view + LOGITS, at, n, g);
    }
}

/* Those of some columns of the scale and of the bias, over the rows in order. */
static void columns_task(void *arg, int64_t task) {
  const apply_call *x = arg;
  const int64_t from = task * COLUMNS, n = fit_task_end(task, x->classes, COLUMNS) - from;
  double z[COLUMNS], g[COLUMNS], *scale = x->dscale + from, *bias = x->dbias + from;
  for (int64_t j = 0; j < n; j++) scale[j] = bias[j] = 0;
  for (int64_t row = 0; row < x->rows; row++) {
    tensor_load(x->c, x->c->in.view + LOGITS, row * x->classes + from, n, z);
    tensor_load(x->c, x->c->dout.view, row * x->classes + from, n, g);
    for (int64_t j = 0; j < n; j++)
      if (z[j] != -INF) scale[j] += g[j] * z[j], bias[j] += g[j];
  }
}

smx_status fit_apply_vector(const tensor_call *c) {
  apply_call x;
  if (!apply_open(&x, c)) return SMX_ERR_NOMEM;
  smx_parallel(c->ctx, fit_tasks(x.rows, ROWS), forward_task, &x);
  smx_free(c->ctx, x.scale);
  return SMX_OK;
}

smx_status fit_apply_vector_backward(const tensor_call *c) {
  apply_call x;
  if (!apply_open(&x, c)) return SMX_ERR_NOMEM;
  if (c->din.given[LOGITS]) smx_parallel(c->ctx, fit_tasks(x.rows, ROWS), logits_task, &x);
  if (c->din.given[SCALE] || c->din.given[BIAS])
    smx_parallel(c->ctx, fit_tasks(x.classes, COLUMNS), columns_task, &x);
  if (c->din.given[SCALE]) tensor_store(c, c->din.view + SCALE, 0, x.classes, x.dscale);
  if (c->din.given[BIAS]) tensor_store(c, c->din.view + BIAS, 0, x.classes, x.dbias);
  smx_free(c->ctx, x.scale);
  return SMX_OK;
}

/* ---- a matrix and a bias: products as a head has them ---- */

static smx_tensor matrix_of(const tensor_call *c, const smx_view *v, int64_t *shape, int64_t *strides) {
  return smx_tensor_of(v->data, c->is_f64 ? SMX_F64 : SMX_F32, 2, shape, strides);
}

/* to = a b^T */
static smx_status product(const tensor_call *c, const smx_tensor *a, const smx_tensor *b,
                          const smx_tensor *bias, const smx_tensor *to) {
  const smx_linear linear = {.size = sizeof linear, .h = a, .w = b, .bias = bias};
  return smx_linear_logits(c->ctx, &linear, to);
}

smx_status fit_apply_matrix(const tensor_call *c) {
  int64_t n = tensor_dim(c, "c"), rows[] = {c->dims.lead_count, n}, square[] = {n, n};
  const smx_tensor z = matrix_of(c, c->in.view + LOGITS, rows, NULL),
                   w = matrix_of(c, c->in.view + SCALE, square, NULL),
                   to = matrix_of(c, c->out.view, rows, NULL);
  if (rows[0] == 0 || n == 0) return SMX_OK;
  return product(c, &z, &w, c->in.given[BIAS], &to);
}

/* dz = g W, dW = g^T z, and the bias has the sums of g. */
smx_status fit_apply_matrix_backward(const tensor_call *c) {
  int64_t n = tensor_dim(c, "c"), count = c->dims.lead_count, rows[] = {count, n}, turned[] = {n, count};
  int64_t square[] = {n, n}, down[] = {1, n};
  const smx_tensor g = matrix_of(c, c->dout.view, rows, NULL), gt = matrix_of(c, c->dout.view, turned, down),
                   zt = matrix_of(c, c->in.view + LOGITS, turned, down),
                   wt = matrix_of(c, c->in.view + SCALE, square, down),
                   dz = matrix_of(c, c->din.view + LOGITS, rows, NULL),
                   dw = matrix_of(c, c->din.view + SCALE, square, NULL);
  apply_call x = {.c = c, .rows = count, .classes = n};
  smx_status status = SMX_OK;
  x.dscale = fit_reserve(c, 2 * n);
  if (!x.dscale) return SMX_ERR_NOMEM;
  x.dbias = x.dscale + n;
  if (c->din.given[LOGITS] && count && n) status = product(c, &g, &wt, NULL, &dz);
  if (status == SMX_OK && c->din.given[SCALE] && n) status = product(c, &gt, &zt, NULL, &dw);
  if (status == SMX_OK && c->din.given[BIAS]) {
    smx_parallel(c->ctx, fit_tasks(n, COLUMNS), columns_task, &x);
    tensor_store(c, c->din.view + BIAS, 0, n, x.dbias);
  }
  smx_free(c->ctx, x.dscale);
  return status;
}
