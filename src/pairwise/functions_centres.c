/* pairwise/functions_centres.c - nbc_loss: the centres of the classes of a batch are to have other
 * directions. With the M classes that have rows, unit centres u and K classes in all,
 *
 *     loss = sum_a log(sum_(b != a) e^(scale u_a u_b) + self + 1e-10) / (M K).
 *
 * In double; centres are few, so their cosines are formed where they are needed. */
#include <string.h>

#include "functions.h"

enum { IN_Z, IN_CLASS };

typedef struct centres {
  const tensor_call *c;
  const score_kernels *math;
  int64_t n, d, classes, count; /* count: M */
  double scale, up;
  double *unit, *norm, *rows, *sum, *g; /* [M][d], of each: |centre|, its rows, the sum, d centre */
  int64_t *slot;                        /* of a class; -1: it has no rows */
  char *memory;
} centres;

static const int64_t *classes_of(const tensor_call *c) {
  return (const int64_t *)(const void *)c->in.view[IN_CLASS].data;
}

static smx_status centres_open(centres *t, const tensor_call *c) {
  int64_t numbers, bytes;
  *t = (centres){
      .c = c, .math = smx_isa_current()->f64.score, .n = tensor_dim(c, "n"), .d = tensor_dim(c, "d")};
  t->classes = (int64_t)tensor_param(c, "classes"), t->scale = tensor_param(c, "scale");
  const int64_t most = t->n < t->classes ? t->n : t->classes;
  const bool fits = smx_multiply(most, 2 * t->d + 3, &numbers) && numbers < INT64_MAX / 32 &&
                    smx_multiply(numbers + t->classes + 1, sizeof(double), &bytes);
  t->memory = fits ? smx_alloc(c->ctx, (size_t)bytes) : NULL;
  if (!t->memory) return pair_no_memory(c);
  memset(t->memory, 0, (size_t)bytes);
  t->unit = (double *)(void *)t->memory, t->g = t->unit + most * t->d, t->norm = t->g + most * t->d;
  t->rows = t->norm + most, t->sum = t->rows + most, t->slot = (int64_t *)(void *)(t->sum + most);
  return SMX_OK;
}

static void find_centres(centres *t) {
  const int64_t *class = classes_of(t->c);
  for (int64_t k = 0; k < t->classes; k++) t->slot[k] = -1;
  for (int64_t i = 0; i < t->n; i++) {
    if (class[i] < 0) continue;
    if (t->slot[class[i]] < 0) t->slot[class[i]] = t->count++;
    const int64_t at = t->slot[class[i]];
    t->rows[at]++;
    for (int64_t k = 0; k < t->d; k++) {
      double x;
      tensor_load(t->c, t->c->in.view + IN_Z, i * t->d + k, 1, &x);
      t->unit[at * t->d + k] += x;
    }
  }
  for (int64_t a = 0; a < t->count; a++) {
    double *u = t->unit + a * t->d, square = 0;
    for (int64_t k = 0; k < t->d; k++) u[k] /= t->rows[a], square += u[k] * u[k];
    t->norm[a] = __builtin_sqrt(square);
    for (int64_t k = 0; k < t->d && t->norm[a] != 0; k++) u[k] /= t->norm[a];
  }
}

/* e^(scale u_a u_b) */
static double likeness(const centres *t, int64_t a, int64_t b) {
  double cosine = 0;
  for (int64_t k = 0; k < t->d; k++) cosine += t->unit[a * t->d + k] * t->unit[b * t->d + k];
  return t->math->exp(t->scale * cosine);
}
static void sum_task(void *arg, int64_t a) {
  const centres *t = arg;
  t->sum[a] = 1e-10 + tensor_param(t->c, "self");
  for (int64_t b = 0; b < t->count; b++)
    if (b != a) t->sum[a] += likeness(t, a, b);
}

/* What a centre gets from all others, as one that asks and one that answers. */
static void slope_task(void *arg, int64_t a) {
  const centres *t = arg;
  const double share = t->up * t->scale / ((double)t->count * (double)t->classes);
  double *g = t->g + a * t->d, along = 0;
  const double *u = t->unit + a * t->d;
  if (t->norm[a] == 0) return;
  for (int64_t b = 0; b < t->count; b++) {
    const double both = b == a ? 0 : share * likeness(t, a, b) * (1 / t->sum[a] + 1 / t->sum[b]);
    for (int64_t k = 0; k < t->d; k++) g[k] += both * t->unit[b * t->d + k];
  }
  for (int64_t k = 0; k < t->d; k++) along += g[k] * u[k];
  for (int64_t k = 0; k < t->d; k++) g[k] = (g[k] - along * u[k]) / (t->norm[a] * t->rows[a]);
}

smx_status nbc_forward(const tensor_call *c) {
  centres t;
  double loss = 0;
  const smx_status status = centres_open(&t, c);
  if (status != SMX_OK) return status;
  find_centres(&t);
  smx_parallel(c->ctx, t.count, sum_task, &t);
  for (int64_t a = 0; a < t.count; a++) loss += t.math->log(t.sum[a]) / ((double)t.count * (double)t.classes);
  tensor_store(c, c->out.view, 0, 1, &loss);
  smx_free(c->ctx, t.memory);
  return SMX_OK;
}

smx_status nbc_backward(const tensor_call *c) {
  centres t;
  const smx_status status = centres_open(&t, c);
  if (status != SMX_OK) return status;
  const int64_t *class = classes_of(c);
  const double none = 0;
  t.up = tensor_upstream(c, 0, 0);
  find_centres(&t);
  smx_parallel(c->ctx, t.count, sum_task, &t);
  smx_parallel(c->ctx, t.count, slope_task, &t);
  for (int64_t i = 0; i < t.n && c->din.given[IN_Z]; i++)
    for (int64_t k = 0; k < t.d; k++)
      tensor_store(c, c->din.view + IN_Z, i * t.d + k, 1,
                   class[i] < 0 ? &none : t.g + t.slot[class[i]] * t.d + k);
  smx_free(c->ctx, t.memory);
  return SMX_OK;
}
