/* pairwise/functions_flow.c - normal densities of latent features (FlowCon), a contrast of them,
 * and how far weighted keys are apart. In double. */
#include <string.h>

#include "functions.h"

static double number(const tensor_call *c, int input, int64_t at) {
  double x;
  tensor_load(c, c->in.view + input, at, 1, &x);
  return x;
}

/* ---- flowcon_score: max_k log N(z_i; mean_k, e^log_sd_k) + log_det_i ---- */

enum { IN_Z, IN_MEAN, IN_LOG_SD, IN_LOG_DET }; /* inputs */
enum { OUT_SCORE, OUT_DENSITY };               /* outputs */
#define HALF_LOG_2_PI 0.918938533204672741780329736406

typedef struct flow {
  const tensor_call *c;
  const score_kernels *math;
  int64_t n, k, d;
  double *slope; /* [n][k], of the densities */
} flow;

static flow flow_of(const tensor_call *c) {
  return (flow){c,   smx_isa_current()->f64.score, tensor_dim(c, "n"), tensor_dim(c, "k"), tensor_dim(c, "d"),
                NULL};
}
/* How far z is from the mean, in standard deviations. */
static double deviation(const flow *f, int64_t i, int64_t k, int64_t t) {
  const double log_sd = number(f->c, IN_LOG_SD, k * f->d + t);
  return (number(f->c, IN_Z, i * f->d + t) - number(f->c, IN_MEAN, k * f->d + t)) * f->math->exp(-log_sd);
}
static double density(const flow *f, int64_t i, int64_t k) {
  double sum = 0;
  for (int64_t t = 0; t < f->d; t++) {
    const double x = deviation(f, i, k, t);
    sum -= HALF_LOG_2_PI + number(f->c, IN_LOG_SD, k * f->d + t) + x * x / 2;
  }
  return sum;
}
static double unit_of(const flow *f) { /* nats, or bits a dimension */
  return pair_choice(f->c, "bits") ? 1 / (f->math->log(2) * (double)(f->d > 0 ? f->d : 1)) : 1;
}

/* The densities of a row; where the largest is, -1 without a class. */
static int64_t best_of(const flow *f, int64_t i, double *best) {
  int64_t at = -1;
  *best = -__builtin_inf();
  for (int64_t k = 0; k < f->k; k++) {
    const double x = density(f, i, k);
    if (f->c->out.given[OUT_DENSITY] && !f->slope) tensor_put(f->c, OUT_DENSITY, i * f->k + k, x);
    if (at < 0 || x > *best || x != x) *best = x, at = k; /* nothing is above a NaN */
  }
  return at;
}
static void score_task(void *arg, int64_t i) {
  const flow *f = arg;
  double best;
  best_of(f, i, &best);
  if (f->c->in.given[IN_LOG_DET]) best += number(f->c, IN_LOG_DET, i);
  tensor_put(f->c, OUT_SCORE, i, best * unit_of(f));
}
smx_status flowcon_score_forward(const tensor_call *c) {
  flow f = flow_of(c);
  smx_parallel(c->ctx, f.n, score_task, &f);
  return SMX_OK;
}

static void density_slope_task(void *arg, int64_t i) {
  const flow *f = arg;
  double best;
  const double up = tensor_upstream(f->c, OUT_SCORE, i) * unit_of(f);
  const int64_t at = best_of(f, i, &best);
  for (int64_t k = 0; k < f->k; k++)
    f->slope[i * f->k + k] = (k == at ? up : 0) + tensor_upstream(f->c, OUT_DENSITY, i * f->k + k);
  if (f->c->din.given[IN_LOG_DET]) tensor_store(f->c, f->c->din.view + IN_LOG_DET, i, 1, &up);
  for (int64_t t = 0; t < f->d && f->c->din.given[IN_Z]; t++) {
    double g = 0;
    for (int64_t k = 0; k < f->k; k++)
      g -= f->slope[i * f->k + k] * deviation(f, i, k, t) *
           f->math->exp(-number(f->c, IN_LOG_SD, k * f->d + t));
    tensor_store(f->c, f->c->din.view + IN_Z, i * f->d + t, 1, &g);
  }
}
static void class_slope_task(void *arg, int64_t k) {
  const flow *f = arg;
  for (int64_t t = 0; t < f->d; t++) {
    const double sharp = f->math->exp(-number(f->c, IN_LOG_SD, k * f->d + t));
    double mean = 0, log_sd = 0;
    for (int64_t i = 0; i < f->n; i++) {
      const double x = deviation(f, i, k, t), g = f->slope[i * f->k + k];
      mean += g * x * sharp, log_sd += g * (x * x - 1);
    }
    if (f->c->din.given[IN_MEAN]) tensor_store(f->c, f->c->din.view + IN_MEAN, k * f->d + t, 1, &mean);
    if (f->c->din.given[IN_LOG_SD]) tensor_store(f->c, f->c->din.view + IN_LOG_SD, k * f->d + t, 1, &log_sd);
  }
}
smx_status flowcon_score_backward(const tensor_call *c) {
  flow f = flow_of(c);
  int64_t numbers, bytes;
  const bool fits = smx_multiply(f.n, f.k, &numbers) && smx_multiply(numbers + 1, sizeof(double), &bytes);
  f.slope = fits ? smx_alloc(c->ctx, (size_t)bytes) : NULL;
  if (!f.slope) return pair_no_memory(c);
  smx_parallel(c->ctx, f.n, density_slope_task, &f);
  smx_parallel(c->ctx, f.k, class_slope_task, &f);
  smx_free(c->ctx, f.slope);
  return SMX_OK;
}

/* ---- flowcon_loss ----
 *
 *     loss_i = log sum_(k != i) e^r_ik - mean_P r_ij,
 *     r_ij = (e^(tau (l_ij - max_j l_ij)) + 1e-5) / tau2 */

enum { IN_L, IN_LABEL };

typedef struct contrast {
  const tensor_call *c;
  const score_kernels *math;
  int64_t n;
  double tau, tau2;
  bool backward;
  smx_scratch scratch;
} contrast;

/* e^(tau (l - max)) of a row, and where the largest is. */
static int64_t powers(const contrast *t, int64_t i, double *e) {
  int64_t top = 0;
  tensor_load(t->c, t->c->in.view + IN_L, i * t->n, t->n, e);
  for (int64_t j = 1; j < t->n; j++)
    if (e[j] > e[top] || e[j] != e[j]) top = j; /* nothing is above a NaN */
  const double most = e[top];
  for (int64_t j = 0; j < t->n; j++) e[j] = t->math->exp(t->tau * (e[j] - most));
  return top;
}
static double part(const contrast *t, double e) { return (e + 1e-5) / t->tau2; }

static void contrast_task(void *arg, int64_t i) {
  contrast *t = arg;
  const int64_t *label = (const int64_t *)(const void *)t->c->in.view[IN_LABEL].data;
  double *e = smx_scratch_take(&t->scratch), *g = e + t->n, count = 0, mean = 0, sum = 0, back = 0;
  const int64_t top = powers(t, i, e);
  const double most = part(t, 1); /* no r is larger */
  for (int64_t j = 0; j < t->n; j++) {
    if (j == i) continue;
    sum += t->math->exp(part(t, e[j]) - most);
    if (label[i] >= 0 && label[j] == label[i]) count++, mean += part(t, e[j]);
  }
  const double loss = count > 0 ? most + t->math->log(sum) - mean / count : 0,
               up = t->backward && count > 0 ? tensor_upstream(t->c, 0, i) * t->tau / t->tau2 : 0;
  for (int64_t j = 0; j < t->n; j++) {
    const double share = t->math->exp(part(t, e[j]) - most) / sum - (label[j] == label[i] ? 1 / count : 0);
    g[j] = j == i || up == 0 ? 0 : up * share * e[j], back += g[j];
  }
  g[top] -= back;
  if (t->backward) tensor_store(t->c, t->c->din.view + IN_L, i * t->n, t->n, g);
  else tensor_store(t->c, t->c->out.view, i, 1, &loss);
  smx_scratch_give(&t->scratch, e);
}

static smx_status contrast_run(const tensor_call *c, bool backward) {
  contrast t = {c,
                smx_isa_current()->f64.score,
                tensor_dim(c, "n"),
                tensor_param(c, "tau"),
                tensor_param(c, "tau2"),
                backward,
                {NULL}};
  if (backward && !c->din.given[IN_L]) return SMX_OK;
  if (!smx_scratch_open(&t.scratch, c->ctx, 0, (size_t)(t.n + 1) * 2 * sizeof(double), INT64_MAX))
    return pair_no_memory(c);
  smx_parallel(c->ctx, t.n, contrast_task, &t);
  smx_scratch_close(&t.scratch);
  return SMX_OK;
}
smx_status flowcon_loss_forward(const tensor_call *c) { return contrast_run(c, false); }
smx_status flowcon_loss_backward(const tensor_call *c) { return contrast_run(c, true); }

/* ---- attention_separation ----
 *
 * With s = sum over the N largest weights a_i x_i: distance, the sum of |s - a_j x_j| of all
 * others, and fraction, how many of the N have |s - a_i x_i| <= radius. */

enum { IN_WEIGHT, IN_X };

typedef struct separation {
  const tensor_call *c;
  int64_t l, d, count;
  smx_scratch scratch;
} separation;

/* Which of the weights are the N largest: larger first, then the lower index. */
static void choose(const separation *t, const double *a, double *chosen) {
  for (int64_t j = 0; j < t->l; j++) {
    int64_t before = 0;
    for (int64_t i = 0; i < t->l; i++) before += a[i] > a[j] || (a[i] == a[j] && i < j);
    chosen[j] = before < t->count;
  }
}

static void separation_task(void *arg, int64_t row) {
  separation *t = arg;
  double *a = smx_scratch_take(&t->scratch), *chosen = a + t->l, *sum = chosen + t->l, *x = sum + t->d;
  const double radius = tensor_param(t->c, "radius");
  double distance = 0, near = 0, count = 0, nan = 0;
  const smx_view *keys = t->c->in.view + IN_X;
  tensor_load(t->c, t->c->in.view + IN_WEIGHT, row * t->l, t->l, a);
  choose(t, a, chosen);
  for (int64_t k = 0; k < t->d; k++) sum[k] = 0;
  for (int64_t j = 0; j < t->l; j++) {
    tensor_load(t->c, keys, (row * t->l + j) * t->d, t->d, x), nan += a[j] != a[j];
    for (int64_t k = 0; k < t->d && chosen[j] != 0; k++) sum[k] += a[j] * x[k];
  }
  for (int64_t j = 0; j < t->l; j++) {
    double square = 0;
    tensor_load(t->c, keys, (row * t->l + j) * t->d, t->d, x);
    for (int64_t k = 0; k < t->d; k++) square += (sum[k] - a[j] * x[k]) * (sum[k] - a[j] * x[k]);
    const double away = __builtin_sqrt(square);
    nan += away != away;
    if (chosen[j] != 0) count++, near += away <= radius;
    else distance += away;
  }
  tensor_put(t->c, 0, row, nan != 0 ? __builtin_nan("") : distance);
  tensor_put(t->c, 1, row, nan != 0 ? __builtin_nan("") : count > 0 ? near / count : 0);
  smx_scratch_give(&t->scratch, a);
}

smx_status separation_forward(const tensor_call *c) {
  separation t = {c, tensor_dim(c, "l"), tensor_dim(c, "d"), (int64_t)tensor_param(c, "top"), {NULL}};
  int64_t bytes;
  if (t.l > INT64_MAX / 4 - t.d || !smx_multiply(2 * (t.l + t.d) + 1, sizeof(double), &bytes) ||
      !smx_scratch_open(&t.scratch, c->ctx, 0, (size_t)bytes, INT64_MAX))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld keys", c->op->name, (long long)t.l);
  smx_parallel(c->ctx, c->dims.lead_count, separation_task, &t);
  smx_scratch_close(&t.scratch);
  return SMX_OK;
}
