/* pool/functions_triangle.c - the triangle activation of rows, y_k = max(0, x_k - mean x)^p, in
 * double, each row in the order of its numbers. Hebbian Deep Learning Without Feedback (Journe,
 * Garcia Rodriguez, Guo, Moraitis 2022). */
#include "functions_sets.h"

typedef struct triangle_call {
  const tensor_call *c;
  const score_runs *run;
  int64_t n;
  double p;
} triangle_call;

static int64_t width_at(const triangle_call *t, int64_t at) {
  return t->n - at < SET_WIDTH ? t->n - at : SET_WIDTH;
}

/* NaN where it is not finite. */
static double mean_of(const triangle_call *t, int64_t row) {
  const double share = pool_share_of(t->n);
  double x[SET_WIDTH], sum = 0;
  for (int64_t at = 0; at < t->n; at += SET_WIDTH) {
    tensor_load(t->c, t->c->in.view, row * t->n + at, width_at(t, at), x);
    for (int64_t j = 0; j < width_at(t, at); j++) sum += share * x[j];
  }
  const double mean = sum / (share * (double)t->n);
  return mean - mean == 0 ? mean : __builtin_nan("");
}

/* max(0, x - mean) of some numbers, and its power; NaN stays. */
static void take_above(const triangle_call *t, int64_t row, int64_t at, double mean, double power,
                       double *y) {
  const int64_t n = width_at(t, at);
  tensor_load(t->c, t->c->in.view, row * t->n + at, n, y);
  for (int64_t j = 0; j < n; j++) y[j] = y[j] - mean <= 0 ? 0 : y[j] - mean;
  if (power != 1) t->run->power(power, y, n, y);
}

static void forward_task(void *arg, int64_t row) {
  const triangle_call *t = arg;
  const double mean = mean_of(t, row);
  double y[SET_WIDTH];
  for (int64_t at = 0; at < t->n; at += SET_WIDTH) {
    take_above(t, row, at, mean, t->p, y);
    tensor_store(t->c, t->c->out.view, row * t->n + at, width_at(t, at), y);
  }
}

/* s of some numbers. */
static void take_slopes(const triangle_call *t, int64_t row, int64_t at, double mean, double *s) {
  double x[SET_WIDTH], up[SET_WIDTH];
  const int64_t n = width_at(t, at);
  tensor_load(t->c, t->c->dout.view, row * t->n + at, n, up);
  take_above(t, row, at, mean, 1, x);
  for (int64_t j = 0; j < n; j++) s[j] = x[j] == 0 ? 1 : x[j];
  if (t->p != 1) t->run->power(t->p - 1, s, n, s);
  for (int64_t j = 0; j < n; j++) s[j] = x[j] == 0 || up[j] == 0 ? 0 : up[j] * t->p * (t->p == 1 ? 1 : s[j]);
}

static void backward_task(void *arg, int64_t row) {
  const triangle_call *t = arg;
  const double mean = mean_of(t, row);
  double s[SET_WIDTH], sum = 0;
  for (int64_t at = 0; at < t->n; at += SET_WIDTH) {
    take_slopes(t, row, at, mean, s);
    for (int64_t j = 0; j < width_at(t, at); j++) sum += mean == mean ? s[j] : mean;
  }
  for (int64_t at = 0; at < t->n; at += SET_WIDTH) {
    take_slopes(t, row, at, mean, s);
    for (int64_t j = 0; j < width_at(t, at); j++) s[j] -= sum / (double)t->n;
    tensor_store(t->c, t->c->din.view, row * t->n + at, width_at(t, at), s);
  }
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t row)) {
  triangle_call t = {.c = c, .run = smx_isa_current()->f64.score->run};
  t.n = tensor_dim(c, "c"), t.p = tensor_param(c, "power");
  smx_parallel(c->ctx, c->dims.lead_count, task, &t);
  return SMX_OK;
}
smx_status pool_triangle(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_triangle_backward(const tensor_call *c) {
  return c->din.given[0] ? run(c, backward_task) : SMX_OK;
}
