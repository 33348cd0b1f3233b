/* fit/functions_rank.c - head_rank_loss: the cross-entropy of a head that is cut down to its
 * largest singular directions (Godey, de la Clergerie, Sagot 2024). With the eigenvectors v_1,
 * v_2... of w^T w, the largest first, a head of rank r has the logits
 *
 *   h V_r (w V_r)^T + bias
 *
 * so h and w are turned once, and each rank takes its first r columns. */
#include <string.h>

#include "functions.h"
#include "functions_eigen.h"

enum { H, W, TARGET, RANK, BIAS }; /* inputs */
enum { LOSS, KEPT };               /* outputs */
enum { BLOCK = 512 };

typedef struct ranks {
  const tensor_call *c;
  int64_t n, classes, d, k, bytes;
  double *x, *turned;                     /* [BLOCK, d] */
  double *gram, *product, *room, *values; /* gram: then eigenvectors, row by row */
  char *h, *w, *loss;                     /* turned; losses of the rows: reals */
} ranks;

static int64_t rows_of(int64_t from, int64_t n) { return n - from < BLOCK ? n - from : BLOCK; }

static smx_status make_gram(ranks *r) {
  const double scale = fit_product_scale(r->c, W, r->classes * r->d, r->x, BLOCK * r->d);
  smx_status status = SMX_OK;
  for (int64_t from = 0; from < r->classes && status == SMX_OK; from += BLOCK) {
    const int64_t rows = rows_of(from, r->classes);
    tensor_load(r->c, r->c->in.view + W, from * r->d, rows * r->d, r->x);
    for (int64_t i = 0; i < rows * r->d && scale != 1; i++) r->x[i] *= scale;
    status = fit_product(r->c->ctx, r->d, r->d, rows, r->x, true, r->x, true, r->product);
    for (int64_t i = 0; i < r->d * r->d && status == SMX_OK; i++) r->gram[i] += r->product[i];
  }
  return status;
}

/* The rows of an input by the eigenvectors. */
static smx_status turn(const ranks *r, int port, int64_t n, char *to) {
  smx_status status = SMX_OK;
  for (int64_t from = 0; from < n && status == SMX_OK; from += BLOCK) {
    const int64_t rows = rows_of(from, n);
    tensor_load(r->c, r->c->in.view + port, from * r->d, rows * r->d, r->x);
    status = fit_product(r->c->ctx, rows, r->d, r->d, r->x, false, r->gram, false, r->turned);
    smx_reals_store(r->c->is_f64, r->turned, rows * r->d, to + from * r->d * r->bytes);
  }
  return status;
}

/* The losses of the rows, with the first `rank` columns. */
static smx_status run(const ranks *r, int64_t rank) {
  const smx_op *const op = smx_op_find("cross_entropy");
  const smx_dtype real = r->c->is_f64 ? SMX_F64 : SMX_F32;
  int64_t hs[] = {r->n, rank}, ws[] = {r->classes, rank}, step[] = {r->d, 1};
  const smx_tensor h = smx_tensor_of(r->h, real, 2, hs, step), w = smx_tensor_of(r->w, real, 2, ws, step),
                   b = smx_tensor_of(r->c->in.view[BIAS].data, real, 1, ws, NULL),
                   target = smx_tensor_of(fit_whole(r->c, TARGET), SMX_I64, 1, hs, NULL),
                   loss = smx_tensor_of(r->loss, real, 1, hs, NULL);
  const smx_tensor *const in[] = {NULL, &target}, *const out[] = {&loss};
  const smx_linear layer = {.size = sizeof layer, .h = &h, .w = &w, .bias = r->c->in.given[BIAS] ? &b : NULL};
  smx_params params;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "ignore_index", -1);
  return smx_linear_forward(op, r->c->ctx, &params, &layer, 2, in, 1, out);
}

static double mean_loss(const ranks *r) {
  double sum = 0, rows = 0, loss;
  for (int64_t i = 0; i < r->n; i++) {
    if (fit_whole(r->c, TARGET)[i] < 0) continue;
    smx_reals_load(r->c->is_f64, r->loss + i * r->bytes, 1, &loss);
    sum += loss, rows++;
  }
  return sum / rows;
}

/* What the first eigenvalues, whatever the scale of w, are of all. */
static double kept(const ranks *r, int64_t rank) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < r->d; i++) {
    const double value = r->values[i] < 0 ? 0 : r->values[i]; /* a rounded 0 */
    all += value, sum += i < rank ? value : 0;
  }
  return sum / all;
}

static smx_status put(ranks *r, double *loss) {
  smx_status status = turn(r, H, r->n, r->h);
  if (status == SMX_OK) status = turn(r, W, r->classes, r->w);
  for (int64_t i = 0; i < r->k && status == SMX_OK; i++) {
    status = run(r, fit_whole(r->c, RANK)[i]);
    if (status == SMX_OK) loss[i] = mean_loss(r);
  }
  for (int64_t i = 0; i < r->k && status == SMX_OK; i++)
    tensor_put(r->c, LOSS, i, loss[i]), tensor_put(r->c, KEPT, i, kept(r, fit_whole(r->c, RANK)[i]));
  return status;
}

static smx_status check_ranks(const ranks *r) {
  for (int64_t i = 0; i < r->k; i++)
    if (fit_whole(r->c, RANK)[i] < 0 || fit_whole(r->c, RANK)[i] > r->d)
      return smx_fail(SMX_ERR_PARAM, "%s: rank: number %lld is %lld, not 0..%lld", r->c->op->name,
                      (long long)i, (long long)fit_whole(r->c, RANK)[i], (long long)r->d);
  return SMX_OK;
}

smx_status fit_rank_loss(const tensor_call *c) {
  ranks r = {.c = c, .n = tensor_dim(c, "n"), .classes = tensor_dim(c, "c"), .d = tensor_dim(c, "d")};
  const int64_t few = 6 * r.d + r.d, squares = 3 * r.d * r.d, blocks = 2 * BLOCK * r.d;
  int64_t all;
  r.k = tensor_dim(c, "k"), r.bytes = c->is_f64 ? 8 : 4;
  smx_status status = check_ranks(&r);
  if (status != SMX_OK) return status;
  const bool fits = smx_multiply(r.n + r.classes + 1, r.d + 1, &all) && r.d < 1 << 20 && all < INT64_MAX / 64;
  double *const memory = fits ? fit_reserve(c, blocks + squares + few + r.k + all)
                              : (smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes of %lld",
                                          c->op->name, (long long)r.classes, (long long)r.d),
                                 NULL);
  if (!memory) return SMX_ERR_NOMEM;
  r.x = memory, r.turned = r.x + BLOCK * r.d, r.gram = memory + blocks;
  r.product = r.gram + r.d * r.d, r.room = r.product + r.d * r.d, r.values = r.room + r.d * r.d + 6 * r.d;
  double *const loss = r.values + r.d;
  r.h = (char *)(loss + r.k), r.w = r.h + r.n * r.d * r.bytes, r.loss = r.w + r.classes * r.d * r.bytes;
  memset(r.gram, 0, sizeof *r.gram * (size_t)(r.d * r.d));
  if (r.d > 0) status = make_gram(&r);
  if (status == SMX_OK && r.d > 0 && !fit_eigen(c->ctx, r.d, r.gram, r.values, r.room))
    for (int64_t i = 0; i < r.d * r.d; i++) r.gram[i] = __builtin_nan(""), r.values[i % r.d] = r.gram[i];
  if (status == SMX_OK) status = put(&r, loss);
  smx_free(c->ctx, memory);
  return status;
}
