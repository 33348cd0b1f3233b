/* fit/functions_spectrum.c - head_bottleneck_measures: how many directions rows use (Godey, de la
 * Clergerie, Sagot 2024). With the singular values s of the rows, r = min(n, d) of them, and u = s
 * or s^2 over their sum,
 *
 *   singular_entropy  sum u log(r u), how far from even    effective_rank  e^(-sum u log u)
 *   stable_rank       sum s^2 / max s^2
 *   anisotropy        (|sum of unit rows|^2 - N) / (N (N - 1)), the mean cosine of two rows
 *
 * s^2 are the eigenvalues of the products of the columns, or of the rows where these are fewer. */
#include "functions.h"
#include "functions_eigen.h"

enum { ENTROPY, RANK, STABLE, ANISOTROPY, VALUES }; /* outputs */
enum { BLOCK = 512 };
#define NAN_ __builtin_nan("")

typedef struct spectrum {
  const tensor_call *c;
  int64_t n, d, r, most;                              /* most: rows in memory */
  double *x, *gram, *product, *room, *values, *along; /* along: the sum of unit rows */
  double rows;                                        /* that are not 0 */
  double scale;                                       /* multiplies x in products, so that they can be held */
} spectrum;

/* Adds a row to the sum of unit rows. */
static void add_unit(spectrum *s, const double *x) {
  double most = 0, square = 0;
  for (int64_t j = 0; j < s->d; j++) {
    const double size = __builtin_fabs(x[j]);
    if (size > most || size != size) most = size;
    if (most != most) break;
  }
  if (most == 0) return;
  for (int64_t j = 0; j < s->d; j++) square += x[j] / most * (x[j] / most);
  for (int64_t j = 0; j < s->d; j++) s->along[j] += x[j] / most / __builtin_sqrt(square);
  s->rows++;
}

/* gram = x^T x, block by block, or x x^T. */
static smx_status make_gram(spectrum *s) {
  const int64_t n = s->n, d = s->d, r = s->r;
  smx_status status = SMX_OK;
  for (int64_t i = 0; i < r * r; i++) s->gram[i] = 0;
  for (int64_t from = 0; from < n && r > 0 && status == SMX_OK; from += s->most) {
    const int64_t count = n - from < s->most ? n - from : s->most;
    tensor_load(s->c, s->c->in.view, from * d, count * d, s->x);
    for (int64_t i = 0; i < count; i++) add_unit(s, s->x + i * d);
    for (int64_t i = 0; i < count * d && s->scale != 1; i++) s->x[i] *= s->scale;
    if (d <= n) status = fit_product(s->c->ctx, d, d, count, s->x, true, s->x, true, s->product);
    else status = fit_product(s->c->ctx, n, n, d, s->x, false, s->x, false, s->product);
    for (int64_t i = 0; i < r * r && status == SMX_OK; i++) s->gram[i] += s->product[i];
  }
  return status;
}

static void put_spectrum(const spectrum *s) {
  const bool square = tensor_param(s->c, "shares") != 0;
  double sum = 0, squares = 0, entropy = 0, along = 0;
  for (int64_t i = 0; i < s->r; i++) {
    const double v = s->values[i] < 0 ? 0 : s->values[i]; /* a rounded 0 */
    squares += v, s->values[i] = __builtin_sqrt(v), sum += square ? v : s->values[i];
  }
  for (int64_t i = 0; i < s->r; i++) {
    const double u = (square ? s->values[i] * s->values[i] : s->values[i]) / sum;
    entropy -= u < 0x1p-1022 ? 0 : u * fit_math()->log(u);
  }
  for (int64_t j = 0; j < s->d; j++) along += s->along[j] * s->along[j];
  const bool none = !(sum > 0);
  const double top = none ? 0 : s->values[0];
  tensor_put(s->c, ENTROPY, 0, none ? NAN_ : fit_math()->log((double)s->r) - entropy);
  tensor_put(s->c, RANK, 0, none ? NAN_ : fit_math()->exp(entropy));
  tensor_put(s->c, STABLE, 0, none ? NAN_ : squares / (top * top));
  tensor_put(s->c, ANISOTROPY, 0, s->rows == 1 ? NAN_ : (along - s->rows) / (s->rows * (s->rows - 1)));
  for (int64_t i = 0; i < s->r; i++) s->values[i] /= s->scale;
  tensor_store(s->c, s->c->out.view + VALUES, 0, s->r, s->values);
}

smx_status spectrum_sizes(dims *d) {
  const int64_t n = dims_value(d, "n", 0), width = dims_value(d, "d", 0);
  dims_set(d, "r", 0, n < width ? n : width);
  return SMX_OK;
}

smx_status fit_spectrum(const tensor_call *c) {
  spectrum s = {.c = c, .n = tensor_dim(c, "n"), .d = tensor_dim(c, "d"), .r = tensor_dim(c, "r")};
  int64_t count, squares;
  s.most = s.n < s.d ? s.n : s.n < BLOCK ? s.n : BLOCK;
  const bool fits = smx_multiply(s.most, s.d, &count) && smx_multiply(s.r, 3 * s.r, &squares) &&
                    count < INT64_MAX / 64 && squares < INT64_MAX / 64;
  if (!fits)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld x %lld", c->op->name, (long long)s.n,
                    (long long)s.d);
  s.x = fit_reserve(c, count + squares + 8 * s.r + s.d);
  if (!s.x) return SMX_ERR_NOMEM;
  s.gram = s.x + count, s.product = s.gram + s.r * s.r, s.room = s.product + s.r * s.r;
  s.values = s.room + s.r * s.r + 6 * s.r, s.along = s.values + s.r;
  for (int64_t j = 0; j < s.d; j++) s.along[j] = 0;
  s.scale = s.r > 0 ? fit_product_scale(c, 0, s.n * s.d, s.x, s.most * s.d) : 1;
  const smx_status status = make_gram(&s);
  if (status == SMX_OK && !fit_eigen(c->ctx, s.r, s.gram, s.values, s.room))
    for (int64_t i = 0; i < s.r; i++) s.values[i] = NAN_;
  if (status == SMX_OK) put_spectrum(&s);
  smx_free(c->ctx, s.x);
  return status;
}
