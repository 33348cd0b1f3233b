/* head/functions_fourier.c - fourier_head: bins of a density that is a Fourier series (Gillman et
 * al. 2024). Complex numbers a_0..a_N, first their real parts, then the imaginary ones, give
 *
 *   A_j = sum_l a_l e^(i pi l b_j),  b_j = (2 j + 1) / m - 1,   u_j = |A_j|^2,  P = u / sum u
 *   y_j = log(P_j + eps)
 *   penalty = 4 pi^2 sum_k k^2 |c_k|^2,  c_k = sum_l a_(l + k) conj(a_l)
 *
 * |A|^2 is c_0 + 2 Re sum_k c_k e^(i pi k b), the paper's series, and never negative. With G
 * upstream and q = G / (P + eps):
 *
 *   du = (q - sum q P) / sum u,  da_l = 2 sum_j du_j A_j e^(-i pi l b_j)
 *   of |c_k|^2:  2 c_k a_l to a_(l + k),  2 conj(c_k) a_(l + k) to a_l
 *
 * All in double, of a over its largest number. */
#include <string.h>

#include "functions.h"

enum { Y, PENALTY }; /* outputs */
#define PI 3.14159265358979323846

typedef struct wave {
  double re, im;
} wave;

typedef struct fourier {
  const tensor_call *c;
  int64_t rows, terms, bins; /* terms: N + 1 */
  double eps;
  wave *turn; /* e^(i pi q / bins), q = 0..2 bins - 1 */
  smx_scratch scratch;
} fourier;

smx_status waves_sizes(dims *d) {
  const int64_t width = dims_value(d, "f", 0), bins = (int64_t)dims_param(d, "bins", 1);
  if (width < 2 || width % 2)
    return smx_fail(SMX_ERR_SHAPE, "%s: x has %lld columns, not an even number of them", d->op->name,
                    (long long)width);
  dims_set(d, "m", 0, bins);
  return SMX_OK;
}

/* sin x and cos x, |x| <= pi / 4, by their series. */
static wave series(double x) {
  wave w = {1, 1};
  for (int k = 10; k > 0; k--) {
    w.re = 1 - x * x / (double)((2 * k - 1) * 2 * k) * w.re;
    w.im = 1 - x * x / (double)(2 * k * (2 * k + 1)) * w.im;
  }
  return (wave){w.re, x * w.im};
}
/* e^(i pi q / m), 0 <= q < 2 m: quarter turns apart. */
static wave turn_of(int64_t q, int64_t m) {
  const int64_t quarter = (2 * q + m / 2) / m, rest = 2 * q - quarter * m; /* of pi / (2 m) */
  const wave w = series((double)rest * (PI / 2) / (double)m);
  switch (quarter % 4) {
    case 0: return w;
    case 1: return (wave){-w.im, w.re};
    case 2: return (wave){-w.re, -w.im};
    default: return (wave){w.im, -w.re};
  }
}
static void turn_task(void *arg, int64_t q) {
  const fourier *f = arg;
  f->turn[q] = turn_of(q, f->bins);
}

/* e^(i pi l b_j): l (2 j + 1 - m) turns of pi / m. */
static wave turn_at(const fourier *f, int64_t l, int64_t j) {
  const int64_t all = 2 * f->bins, q = l % all * ((2 * j + 1 - f->bins) % all) % all;
  return f->turn[q < 0 ? q + all : q];
}

/* A row while it is worked on. */
typedef struct fourier_row {
  wave *a, *da, *A; /* A: of each bin */
  double *u, *g;
  double most, sum; /* the largest number of a, the sum of u */
} fourier_row;
static fourier_row row_at(const fourier *f, void *memory) {
  fourier_row r = {.a = memory};
  r.da = r.a + f->terms, r.A = r.da + f->terms;
  r.u = (double *)(void *)(r.A + f->bins), r.g = r.u + f->bins;
  return r;
}
static size_t row_bytes(const fourier *f) {
  return sizeof(wave) * (size_t)(2 * f->terms + f->bins) + sizeof(double) * 2 * (size_t)f->bins + 1;
}

static void load_row(const fourier *f, int64_t row, fourier_row *r) {
  const int64_t n = f->terms;
  double *const part = (double *)(void *)r->da;
  tensor_load(f->c, f->c->in.view, row * 2 * n, 2 * n, part);
  r->most = 0;
  for (int64_t i = 0; i < 2 * n; i++) {
    const double size = part[i] < 0 ? -part[i] : part[i];
    if (size > r->most || size != size) r->most = size;
    if (r->most != r->most) break;
  }
  const double by = r->most == 0 ? 1 : r->most;
  for (int64_t l = 0; l < n; l++) r->a[l] = (wave){part[l] / by, part[n + l] / by};
}

static void make_bins(const fourier *f, fourier_row *r) {
  r->sum = 0;
  for (int64_t j = 0; j < f->bins; j++) {
    wave sum = {0, 0};
    for (int64_t l = 0; l < f->terms; l++) {
      const wave e = turn_at(f, l, j), a = r->a[l];
      sum.re += a.re * e.re - a.im * e.im, sum.im += a.re * e.im + a.im * e.re;
    }
    r->A[j] = sum, r->u[j] = sum.re * sum.re + sum.im * sum.im, r->sum += r->u[j];
  }
}
static double share_of(const fourier *f, const fourier_row *r, int64_t j) {
  return r->sum == 0 ? 1 / (double)f->bins : r->u[j] / r->sum;
}

static wave correlation(const fourier *f, const wave *a, int64_t k) {
  wave c = {0, 0};
  for (int64_t l = 0; l + k < f->terms; l++) {
    const wave x = a[l + k], y = a[l];
    c.re += x.re * y.re + x.im * y.im, c.im += x.im * y.re - x.re * y.im;
  }
  return c;
}
static double weight_of(int64_t k) { return 4 * PI * PI * (double)k * (double)k; }

static void forward_task(void *arg, int64_t row) {
  fourier *f = arg;
  void *const memory = smx_scratch_take(&f->scratch);
  fourier_row r = row_at(f, memory);
  double penalty = 0;
  load_row(f, row, &r), make_bins(f, &r);
  for (int64_t j = 0; j < f->bins; j++) r.u[j] = share_of(f, &r, j);
  for (int64_t j = 0; j < f->bins; j++) {
    const double p = r.u[j] + f->eps;
    r.g[j] = p < 0x1p-1022 ? -__builtin_inf() : head_math()->log(p);
  }
  tensor_store(f->c, f->c->out.view + Y, row * f->bins, f->bins, r.g);
  for (int64_t k = 1; k < f->terms; k++) {
    const wave c = correlation(f, r.a, k);
    penalty += weight_of(k) * (c.re * c.re + c.im * c.im);
  }
  if (penalty != 0) penalty *= r.most * r.most * r.most * r.most;
  tensor_put(f->c, PENALTY, row, penalty);
  smx_scratch_give(&f->scratch, memory);
}

static void add_bins(const fourier *f, int64_t row, fourier_row *r) {
  double mean = 0;
  memset(r->g, 0, sizeof *r->g * (size_t)f->bins);
  if (f->c->dout.given[Y]) tensor_load(f->c, f->c->dout.view + Y, row * f->bins, f->bins, r->g);
  for (int64_t j = 0; j < f->bins; j++) {
    const double p = share_of(f, r, j);
    r->g[j] = p + f->eps == 0 || r->g[j] == 0 ? 0 : r->g[j] / (p + f->eps);
    mean += r->g[j] * p;
  }
  for (int64_t j = 0; j < f->bins && r->sum != 0; j++) {
    const double du = 2 * (r->g[j] - mean) / r->sum / r->most;
    for (int64_t l = 0; l < f->terms; l++) {
      const wave e = turn_at(f, l, j), A = r->A[j];
      r->da[l].re += du * (A.re * e.re + A.im * e.im), r->da[l].im += du * (A.im * e.re - A.re * e.im);
    }
  }
}
static void add_penalty(const fourier *f, double g, fourier_row *r) {
  const double scale = g * r->most * r->most * r->most;
  for (int64_t k = 1; k < f->terms && scale != 0; k++) {
    const wave c = correlation(f, r->a, k);
    const double w = 2 * weight_of(k) * scale;
    for (int64_t l = 0; l + k < f->terms; l++) {
      const wave x = r->a[l + k], y = r->a[l];
      r->da[l + k].re += w * (c.re * y.re - c.im * y.im), r->da[l + k].im += w * (c.re * y.im + c.im * y.re);
      r->da[l].re += w * (c.re * x.re + c.im * x.im), r->da[l].im += w * (c.re * x.im - c.im * x.re);
    }
  }
}

static void backward_task(void *arg, int64_t row) {
  fourier *f = arg;
  void *const memory = smx_scratch_take(&f->scratch);
  const int64_t n = f->terms;
  fourier_row r = row_at(f, memory);
  load_row(f, row, &r), make_bins(f, &r);
  memset(r.da, 0, sizeof *r.da * (size_t)n);
  add_bins(f, row, &r), add_penalty(f, tensor_upstream(f->c, PENALTY, row), &r);
  double *const part = (double *)(void *)r.a;
  for (int64_t l = 0; l < n; l++) part[l] = r.da[l].re, part[n + l] = r.da[l].im;
  tensor_store(f->c, f->c->din.view, row * 2 * n, 2 * n, part);
  smx_scratch_give(&f->scratch, memory);
}

static smx_status fourier_call(const tensor_call *c, void (*task)(void *arg, int64_t row)) {
  fourier f = {.c = c, .rows = c->dims.lead_count, .terms = tensor_dim(c, "f") / 2};
  f.bins = tensor_dim(c, "m"), f.eps = tensor_param(c, "eps");
  if (!smx_scratch_open(&f.scratch, c->ctx, sizeof(wave) * 2 * (size_t)f.bins, row_bytes(&f), f.rows))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bins", c->op->name, (long long)f.bins);
  f.turn = (wave *)(void *)f.scratch.shared;
  smx_parallel(c->ctx, 2 * f.bins, turn_task, &f);
  smx_parallel(c->ctx, f.rows, task, &f);
  smx_scratch_close(&f.scratch);
  return SMX_OK;
}
smx_status waves_forward(const tensor_call *c) { return fourier_call(c, forward_task); }
smx_status waves_backward(const tensor_call *c) {
  return c->din.given[0] ? fourier_call(c, backward_task) : SMX_OK;
}
