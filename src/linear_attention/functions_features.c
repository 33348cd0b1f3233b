/* linear_attention/functions_features.c - features of queries and keys that are formed row by row,
 * in double: linear_attention of them is the attention of a paper. */
#include "functions.h"

enum { TASK = 64 }; /* rows */

typedef struct features {
  const tensor_call *c;
  const linear_attention_kernels *kernels; /* of double */
  int64_t rows, tokens, d, made;           /* made: features of a row */
  bool backward, query;
  double length, start;
  /* The features of a row x of token t, or with dy its gradient dx. */
  void (*row)(const struct features *f, int64_t t, const double *x, double *y);
  void (*back)(const struct features *f, int64_t t, const double *x, const double *dy, double *dx);
  smx_scratch scratch;
} features;

static void task(void *arg, int64_t number) {
  features *f = arg;
  const tensor_call *c = f->c;
  const int64_t end = (number + 1) * TASK < f->rows ? (number + 1) * TASK : f->rows;
  double *x = smx_scratch_take(&f->scratch), *to = x + f->d, *dy = to + (f->backward ? f->d : f->made);
  for (int64_t i = number * TASK; i < end; i++) {
    tensor_load(c, c->in.view, i * f->d, f->d, x);
    if (!f->backward) {
      f->row(f, i % f->tokens, x, to);
      tensor_store(c, c->out.view, i * f->made, f->made, to);
      continue;
    }
    tensor_load(c, c->dout.view, i * f->made, f->made, dy);
    f->back(f, i % f->tokens, x, dy, to);
    tensor_store(c, c->din.view, i * f->d, f->d, to);
  }
  smx_scratch_give(&f->scratch, x);
}

static smx_status run(const tensor_call *c, features f) {
  f.c = c, f.kernels = state_kernels(true);
  f.d = tensor_dim(c, "d"), f.made = tensor_dim(c, "r"), f.tokens = tensor_dim(c, "t");
  f.rows = c->dims.lead_count * f.tokens;
  if (f.backward && !(c->din.given[0] && c->dout.given[0])) return SMX_OK;
  int64_t bytes;
  if (!smx_multiply(2 * f.d + f.made, sizeof(double), &bytes) ||
      !smx_scratch_open(&f.scratch, c->ctx, 0, (size_t)bytes + 8, (f.rows + TASK - 1) / TASK))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for rows of %lld features", c->op->name, (long long)f.made);
  smx_parallel(c->ctx, (f.rows + TASK - 1) / TASK, task, &f);
  smx_scratch_close(&f.scratch);
  return SMX_OK;
}

/* ---- taylor: 1, x / d^(1/4), x_i x_j / sqrt(2 d) ---- */

static double root_of(const features *f) { return __builtin_sqrt(f->d > 0 ? (double)f->d : 1); }

static void taylor_row(const features *f, int64_t t, const double *x, double *y) {
  const double root = root_of(f), one = 1 / __builtin_sqrt(root), two = 1 / (__builtin_sqrt(2) * root);
  y[0] = 1;
  for (int64_t i = 0; i < f->d; i++) y[1 + i] = x[i] * one;
  for (int64_t i = 0; i < f->d; i++)
    for (int64_t j = 0; j < f->d; j++) y[1 + f->d + i * f->d + j] = x[i] * x[j] * two;
}

static void taylor_back(const features *f, int64_t t, const double *x, const double *dy, double *dx) {
  const double root = root_of(f), one = 1 / __builtin_sqrt(root), two = 1 / (__builtin_sqrt(2) * root);
  const double *pair = dy + 1 + f->d;
  for (int64_t i = 0; i < f->d; i++) {
    double sum = 0;
    for (int64_t j = 0; j < f->d; j++) sum += (pair[i * f->d + j] + pair[j * f->d + i]) * x[j];
    dx[i] = dy[1 + i] * one + sum * two;
  }
}

smx_status taylor_sizes(dims *d) {
  const int64_t width = dims_value(d, "d", 0);
  int64_t square;
  if (!smx_multiply(width, width, &square) || __builtin_add_overflow(square, 1 + width, &square))
    return smx_fail(SMX_ERR_SHAPE, "%s: x has rows of %lld, whose squares are too many", d->op->name,
                    (long long)width);
  dims_set(d, "r", 0, square);
  return SMX_OK;
}
smx_status taylor_forward(const tensor_call *c) { return run(c, (features){.row = taylor_row}); }
smx_status taylor_backward(const tensor_call *c) {
  return run(c, (features){.back = taylor_back, .backward = true});
}

/* ---- cosformer: relu(x) sin a, relu(x) cos a, a = pi i / (2 length) ---- */

static void angle_of(const features *f, int64_t t, double *sine, double *cosine) {
  f->kernels->sin_cos(1.57079632679489661923 * ((f->start + (double)t + 1) / f->length), sine, cosine);
}

static void cosformer_row(const features *f, int64_t t, const double *x, double *y) {
  double sine, cosine;
  angle_of(f, t, &sine, &cosine);
  for (int64_t i = 0; i < f->d; i++) {
    const double r = x[i] < 0 ? 0 : x[i]; /* a NaN stays */
    y[i] = r * sine, y[f->d + i] = r * cosine;
  }
}

static void cosformer_back(const features *f, int64_t t, const double *x, const double *dy, double *dx) {
  double sine, cosine;
  angle_of(f, t, &sine, &cosine);
  for (int64_t i = 0; i < f->d; i++)
    dx[i] = x[i] > 0 ? dy[i] * sine + dy[f->d + i] * cosine : x[i] < 0 ? 0 : x[i] * 0;
}

smx_status twice_sizes(dims *d) {
  const int64_t width = dims_value(d, "d", 0), tokens = dims_value(d, "t", 0);
  const double length = dims_param(d, "length", 0), last = dims_param(d, "start", 0) + (double)tokens;
  if (length > 0 && length < last)
    return smx_fail(SMX_ERR_PARAM, "%s: length is %.0f, but there are tokens up to %.0f", d->op->name, length,
                    last);
  if (width > INT64_MAX / 2)
    return smx_fail(SMX_ERR_SHAPE, "%s: x has rows of %lld", d->op->name, (long long)width);
  dims_set(d, "r", 0, 2 * width);
  return SMX_OK;
}

static features cosformer_of(const tensor_call *c) {
  features f = {.row = cosformer_row, .back = cosformer_back, .start = tensor_param(c, "start")};
  f.length = tensor_param(c, "length");
  if (f.length == 0) f.length = f.start + (double)tensor_dim(c, "t");
  return f;
}
smx_status cosformer_forward(const tensor_call *c) { return run(c, cosformer_of(c)); }
smx_status cosformer_backward(const tensor_call *c) {
  features f = cosformer_of(c);
  f.backward = true;
  return run(c, f);
}

/* ---- nala: of a query (relu(+-x) / |x|)^p, p = 3 (1/2 + tanh |x|); of a key relu(+-x^3) ---- */

typedef struct nala_row_of {
  double norm, p, slope; /* slope: dp / d norm */
} nala_row_of;

static nala_row_of nala_of(const features *f, const double *x) {
  double square = 0;
  for (int64_t i = 0; i < f->d; i++) square += x[i] * x[i];
  const double norm = __builtin_sqrt(square), rest = 2 / (state_math()->exp(2 * norm) + 1); /* 1 - tanh */
  return (nala_row_of){norm, 3 * (1.5 - rest), 3 * rest * (2 - rest)};
}

static double power(double u, double p) { return u == 0 ? 0 : state_math()->exp(p * state_math()->log(u)); }

static void nala_row(const features *f, int64_t t, const double *x, double *y) {
  const nala_row_of r = f->query ? nala_of(f, x) : (nala_row_of){0};
  for (int64_t i = 0; i < f->d; i++) {
    const double cube = x[i] * x[i] * x[i], size = __builtin_fabs(x[i]);
    const double value = f->query ? r.norm == 0 ? 0 : power(size / r.norm, r.p) : __builtin_fabs(cube);
    y[i] = x[i] < 0 ? 0 : value, y[f->d + i] = x[i] > 0 ? 0 : value;
  }
}

static void nala_back(const features *f, int64_t t, const double *x, const double *dy, double *dx) {
  const nala_row_of r = f->query ? nala_of(f, x) : (nala_row_of){0};
  double dp = 0, along = 0; /* along: sum of u du */
  for (int64_t i = 0; i < f->d; i++) {
    const double g = x[i] > 0 ? dy[i] : x[i] < 0 ? -dy[f->d + i] : x[i] * 0; /* of |x_i|, with its sign */
    if (!f->query) {
      dx[i] = 3 * x[i] * x[i] * g;
      continue;
    }
    dx[i] = 0;
    if (x[i] == 0 || r.norm == 0) continue;
    const double u = __builtin_fabs(x[i]) / r.norm, y = power(u, r.p), size = x[i] < 0 ? -g : g;
    dx[i] = g * r.p * (y / u), along += size * r.p * y, dp += size * y * state_math()->log(u);
  }
  for (int64_t i = 0; i < f->d && f->query && r.norm != 0; i++)
    dx[i] = dx[i] / r.norm + x[i] / r.norm * (dp * r.slope - along / r.norm);
}

static features nala_features_of(const tensor_call *c) {
  return (features){.row = nala_row, .back = nala_back, .query = tensor_param(c, "side") == 0};
}
smx_status nala_forward(const tensor_call *c) { return run(c, nala_features_of(c)); }
smx_status nala_backward(const tensor_call *c) {
  features f = nala_features_of(c);
  f.backward = true;
  return run(c, f);
}
