/* linear_attention/functions_galerkin.c - galerkin_attention and fourier_attention: no softmax, the
 * rows of two of q, k, v normalised (layer norms of each head), products divided by the number t of
 * keys. In double, with N(x) = gain (x - mean) / sqrt(variance + eps) + bias:
 *
 *   y = s q M, M = sum_t k_t^T v_t
 *   Galerkin: N(k), N(v), s = 1 / t; Fourier: N(q), N(k), s = scale / t
 *
 * and with g = dy: dq = s g M^T, dM = s q^T g, dk_t = v_t dM^T, dv_t = k_t dM. */
#include <string.h>

#include "driver/carve.h"
#include "functions.h"

enum { GAIN = 3, BIAS, SECOND = 2 /* norm: its ports are two further on */ };

/* q, k or v of a head. */
typedef struct rows_of {
  int64_t rows, width;
  int norm;                      /* -1: none */
  double *x, *made, *dx;         /* as given, normalised, and the gradient of that */
  double *gain, *bias;           /* of the head */
  double *dgain, *dbias, *slope; /* of every item and head; slope: room for a row */
} rows_of;

typedef struct galerkin {
  const tensor_call *c;
  int64_t heads, items;
  double scale, eps;
  bool backward;
  rows_of part[3]; /* without memory */
  smx_scratch scratch;
} galerkin;

static void lay_out(const galerkin *s, carver *c, rows_of *part, double **m, double **dm) {
  const int64_t b = sizeof(double);
  for (int i = 0; i < 3; i++) {
    rows_of *p = part + i;
    p->x = carve(c, p->rows, p->width, b);
    p->made = p->norm < 0 ? p->x : carve(c, p->rows, p->width, b);
    p->dx = carve(c, s->backward ? p->rows : 1, p->width, b);
    p->gain = carve(c, 1, p->width, b), p->bias = carve(c, 1, p->width, b),
    p->slope = carve(c, 1, p->width, b);
  }
  *m = carve(c, part[0].width, part[2].width, b), *dm = carve(c, part[0].width, part[2].width, b);
}

/* ---- norms ---- */

/* hat = (x - mean) / deviation, and what it was divided by. */
static double standardise(const double *x, int64_t n, double eps, double *hat) {
  double mean = 0, square = 0;
  for (int64_t i = 0; i < n; i++) mean += x[i];
  mean /= (double)n;
  for (int64_t i = 0; i < n; i++) hat[i] = x[i] - mean, square += hat[i] * hat[i];
  const double deviation = __builtin_sqrt(square / (double)n + eps);
  for (int64_t i = 0; i < n; i++) hat[i] /= deviation;
  return deviation;
}

static void load_part(const galerkin *s, int port, int64_t number, rows_of *p) {
  const int64_t n = p->width, head = number % s->heads;
  tensor_load(s->c, s->c->in.view + port, number * p->rows * n, p->rows * n, p->x);
  if (p->norm < 0) return;
  const int gain = GAIN + SECOND * p->norm, bias = BIAS + SECOND * p->norm;
  for (int64_t i = 0; i < n; i++) p->gain[i] = 1, p->bias[i] = 0;
  if (s->c->in.given[gain]) tensor_load(s->c, s->c->in.view + gain, head * n, n, p->gain);
  if (s->c->in.given[bias]) tensor_load(s->c, s->c->in.view + bias, head * n, n, p->bias);
  for (int64_t row = 0; row < p->rows; row++) {
    double *made = p->made + row * n;
    standardise(p->x + row * n, n, s->eps, made);
    for (int64_t i = 0; i < n; i++) made[i] = made[i] * p->gain[i] + p->bias[i];
  }
}

/* A row of dx through the norm; adds to the gradients of gain and bias of this item and head. */
static void norm_back(const galerkin *s, rows_of *p, int64_t number, int64_t row) {
  const int64_t n = p->width;
  double *dx = p->dx + row * n, *hat = p->slope, mean = 0, along = 0;
  const double deviation = standardise(p->x + row * n, n, s->eps, hat);
  for (int64_t i = 0; i < n; i++) {
    p->dgain[number * n + i] += dx[i] * hat[i], p->dbias[number * n + i] += dx[i];
    dx[i] *= p->gain[i];
    mean += dx[i], along += dx[i] * hat[i];
  }
  for (int64_t i = 0; i < n; i++)
    dx[i] = (dx[i] - mean / (double)n - hat[i] * (along / (double)n)) / deviation;
}

/* ---- a head ---- */

static void add_product(const double *x, const double *y, int64_t rows, int64_t d, int64_t e, double by,
                        double *m) {
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < d; i++)
      for (int64_t j = 0; j < e; j++) m[i * e + j] += by * x[row * d + i] * y[row * e + j];
}
/* to = by x m, or x m^T of rows of e. */
static void rows_times(const double *x, const double *m, int64_t rows, int64_t d, int64_t e, bool turned,
                       double by, double *to) {
  memset(to, 0, (size_t)(rows * (turned ? d : e)) * sizeof *to);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < d; i++)
      for (int64_t j = 0; j < e; j++) {
        if (turned) to[row * d + i] += by * x[row * e + j] * m[i * e + j];
        else to[row * e + j] += by * x[row * d + i] * m[i * e + j];
      }
}

static void task(void *arg, int64_t number) {
  galerkin *s = arg;
  double *m, *dm;
  rows_of part[3];
  memcpy(part, s->part, sizeof part);
  rows_of *q = part, *k = part + 1, *v = part + 2;
  const int64_t d = q->width, e = v->width;
  char *memory = smx_scratch_take(&s->scratch);
  lay_out(s, &(carver){.base = memory, .fits = true}, part, &m, &dm);
  for (int i = 0; i < 3; i++) load_part(s, i, number, part + i);
  memset(m, 0, (size_t)(d * e) * sizeof *m);
  add_product(k->made, v->made, k->rows, d, e, 1, m);
  if (!s->backward)
    for (int64_t row = 0; row < q->rows; row++) {
      rows_times(q->made + row * d, m, 1, d, e, false, s->scale, v->dx);
      tensor_store(s->c, s->c->out.view, (number * q->rows + row) * e, e, v->dx);
    }
  else {
    double *const g = v->dx; /* of the queries, then of v */
    memset(dm, 0, (size_t)(d * e) * sizeof *dm);
    for (int64_t row = 0; row < q->rows; row++) {
      tensor_load(s->c, s->c->dout.view, (number * q->rows + row) * e, e, g);
      rows_times(g, m, 1, d, e, true, s->scale, q->dx + row * d);
      add_product(q->made + row * d, g, 1, d, e, s->scale, dm);
    }
    rows_times(v->made, dm, k->rows, d, e, true, 1, k->dx);
    rows_times(k->made, dm, k->rows, d, e, false, 1, v->dx);
    for (int i = 0; i < 3; i++) {
      const int64_t size = part[i].rows * part[i].width;
      for (int64_t row = 0; row < part[i].rows && part[i].norm >= 0; row++)
        norm_back(s, part + i, number, row);
      if (s->c->din.given[i]) tensor_store(s->c, s->c->din.view + i, number * size, size, part[i].dx);
    }
  }
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

/* The gradient of a gain or bias: that of all items. */
static void add_items(const galerkin *s, int port, const double *parts, int64_t n) {
  if (!s->c->din.given[port]) return;
  for (int64_t at = 0; at < s->heads * n; at++) {
    double sum = 0;
    for (int64_t item = 0; item < s->items; item++) sum += parts[item * s->heads * n + at];
    tensor_store(s->c, s->c->din.view + port, at, 1, &sum);
  }
}

static smx_status run(const tensor_call *c, const int norm[3], double scale, bool backward) {
  galerkin s = {.c = c, .heads = tensor_dim(c, "h"), .items = c->dims.lead_count, .backward = backward};
  const int64_t l = tensor_dim(c, "l"), t = tensor_dim(c, "t"), d = tensor_dim(c, "d"),
                e = tensor_dim(c, "e");
  const int64_t rows[] = {l, t, t}, width[] = {d, d, e};
  double *m, *dm;
  carver place = {.fits = true};
  int64_t shared = 0, tasks = s.items * s.heads;
  if (backward && !c->dout.given[0]) return SMX_OK;
  s.scale = t > 0 ? scale / (double)t : 0, s.eps = tensor_param(c, "eps");
  for (int i = 0; i < 3; i++) s.part[i] = (rows_of){.rows = rows[i], .width = width[i], .norm = norm[i]};
  lay_out(&s, &place, s.part, &m, &dm);
  const bool fits = place.fits && smx_multiply(2 * (2 * d + e) * 8, tasks, &shared);
  if (!fits || !smx_scratch_open(&s.scratch, c->ctx, (size_t)(backward ? shared : 0) + 8,
                                 (size_t)place.at + 64, tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld x %lld products", c->op->name, (long long)d,
                    (long long)e);
  double *next = (double *)(void *)s.scratch.shared;
  if (backward) memset(next, 0, (size_t)shared);
  for (int i = 0; i < 3; next += 2 * tasks * width[i], i++)
    s.part[i].dgain = next, s.part[i].dbias = next + tasks * width[i];
  smx_parallel(c->ctx, tasks, task, &s);
  for (int i = 0; i < 3 && backward; i++) {
    if (norm[i] < 0) continue;
    add_items(&s, GAIN + SECOND * norm[i], s.part[i].dgain, width[i]);
    add_items(&s, BIAS + SECOND * norm[i], s.part[i].dbias, width[i]);
  }
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}

static const int of_k_and_v[] = {-1, 0, 1}, of_q_and_k[] = {0, 1, -1};

smx_status galerkin_forward(const tensor_call *c) { return run(c, of_k_and_v, 1, false); }
smx_status galerkin_backward(const tensor_call *c) { return run(c, of_k_and_v, 1, true); }
static double fourier_scale(const tensor_call *c) {
  return state_scale(tensor_param(c, "scale"), tensor_dim(c, "d"));
}
smx_status fourier_forward(const tensor_call *c) { return run(c, of_q_and_k, fourier_scale(c), false); }
smx_status fourier_backward(const tensor_call *c) { return run(c, of_q_and_k, fourier_scale(c), true); }
