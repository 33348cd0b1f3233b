/* pool/functions_ponet.c - ponet_mix: tokens that hear of all, of their segment and of their
 * neighbours by pooling. In double, for each column, with heads of columns:
 *
 *   v = sum_t a_t k_t,  a = softmax(scale <mean q, k_t>) of each head,
 *   y_t = (v + max over the segment of t of s) o_t + max over the tokens around t of w
 *
 * Gradients of maxima go to the first of the largest, of a NaN to none. With g = dy: dv = sum_t g_t
 * o_t, do_t = g_t (v + max s), dk_t = a_t dv + ds_t mean q, dq_t = sum_u ds_u k_u / n, ds = scale a
 * (<dv, k> - sum a <dv, k>). */
#include <string.h>

#include "driver/carve.h"
#include "functions_sets.h"

enum { Q, K, O, SEGMENT, LOCAL, PORTS }; /* inputs */

typedef struct mix_call {
  const tensor_call *c;
  pool_sets s;
  int64_t n, m, heads, width, length, around; /* length: tokens of a segment; around: on each side */
  double scale;
  bool backward;
  smx_scratch scratch;
} mix_call;

/* What a task works in. a, da: [heads][n]; dw: [n][m]; the rest are rows of m. top, at: a maximum
 * of each column, and its token, or -1. */
typedef struct mix_work {
  pool_set set;
  double *a, *da, *dw, *mean, *v, *dv, *dmean, *x, *y, *o, *top, *sum, *g;
  int64_t *at;
} mix_work;

static void lay_out(const mix_call *s, carver *c, mix_work *w) {
  double **const rows[] = {&w->mean, &w->v, &w->dv, &w->dmean, &w->x, &w->y, &w->o, &w->top, &w->sum, &w->g};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) *rows[i] = carve(c, 1, s->m, 8);
  w->at = carve(c, 1, s->m, 8), w->a = carve(c, s->heads, s->n, 8), w->da = carve(c, s->heads, s->n, 8);
  w->dw = carve(c, s->backward ? s->n : 0, s->m, 8);
}

static int64_t row_at(const mix_call *s, const mix_work *w, int64_t t) {
  return pool_set_item(&s->s, &w->set, t) * s->m;
}
static void load(const mix_call *s, const mix_work *w, int port, int64_t t, double *x) {
  tensor_load(s->c, s->c->in.view + port, row_at(s, w, t), s->m, x);
}
static void give(const mix_call *s, const mix_work *w, int port, int64_t t, const double *x) {
  if (s->c->din.given[port]) tensor_store(s->c, s->c->din.view + port, row_at(s, w, t), s->m, x);
}
static bool has(const mix_call *s, const mix_work *w, int64_t t) { return pool_set_has(&s->s, &w->set, t); }
static void clear(double *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }

/* to[h] = <x, y> of each head, at to[h n]; and to = sum of by[h n] x of the columns of a head. */
static void products(const mix_call *s, const double *x, const double *y, double *to) {
  for (int64_t h = 0; h < s->heads; h++) {
    double sum = 0;
    for (int64_t j = h * s->width; j < (h + 1) * s->width; j++) sum += x[j] * y[j];
    to[h * s->n] = sum;
  }
}
static void add_heads(const mix_call *s, const double *by, const double *x, double *to) {
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t j = h * s->width; j < (h + 1) * s->width; j++) to[j] += by[h * s->n] * x[j];
}

/* ---- all tokens ---- */

static void hear_all(const mix_call *s, mix_work *w) {
  clear(w->mean, s->m), clear(w->v, s->m);
  for (int64_t t = 0; t < s->n; t++) {
    if (!has(s, w, t)) continue;
    load(s, w, Q, t, w->x);
    for (int64_t j = 0; j < s->m; j++) w->mean[j] += w->x[j] / (double)w->set.count;
  }
  for (int64_t t = 0; t < s->n; t++) {
    if (!has(s, w, t)) continue;
    load(s, w, K, t, w->x), products(s, w->mean, w->x, w->a + t);
    for (int64_t h = 0; h < s->heads; h++) w->a[h * s->n + t] *= s->scale;
  }
  for (int64_t h = 0; h < s->heads; h++) pool_softmax_of_set(&s->s, &w->set, w->a + h * s->n);
  for (int64_t t = 0; t < s->n; t++)
    if (has(s, w, t)) load(s, w, K, t, w->x), add_heads(s, w->a + t, w->x, w->v);
}

/* ---- maxima of some tokens ---- */

static void look_for_largest(const mix_call *s, mix_work *w, int port, int64_t first, int64_t end) {
  for (int64_t j = 0; j < s->m; j++) w->top[j] = -__builtin_inf(), w->at[j] = -1;
  for (int64_t t = first < 0 ? 0 : first; t < end && t < s->n; t++) {
    if (!has(s, w, t)) continue;
    load(s, w, port, t, w->x);
    for (int64_t j = 0; j < s->m; j++) {
      const double x = w->x[j];
      if (w->top[j] == w->top[j] && (x > w->top[j] || x != x)) w->top[j] = x, w->at[j] = x == x ? t : -1;
    }
  }
}
static void look_around(const mix_call *s, mix_work *w, int64_t t) {
  look_for_largest(s, w, LOCAL, t - s->around, t + s->around + 1);
}

static void answer_segment(const mix_call *s, mix_work *w, int64_t first, int64_t end) {
  look_for_largest(s, w, SEGMENT, first, end);
  for (int64_t j = 0; j < s->m; j++) w->sum[j] = w->v[j] + w->top[j];
  for (int64_t t = first; t < end; t++) {
    clear(w->y, s->m);
    if (has(s, w, t)) {
      load(s, w, O, t, w->o), look_around(s, w, t);
      for (int64_t j = 0; j < s->m; j++) w->y[j] = w->sum[j] * w->o[j] + w->top[j];
    }
    tensor_store(s->c, s->c->out.view, row_at(s, w, t), s->m, w->y);
  }
}

/* Calls f for each segment. */
static void each_segment(const mix_call *s, mix_work *w,
                         void (*f)(const mix_call *s, mix_work *w, int64_t first, int64_t end)) {
  for (int64_t first = 0; first < s->n; first += s->length)
    f(s, w, first, first + s->length < s->n ? first + s->length : s->n);
}

static void forward_task(void *arg, int64_t lead) {
  mix_call *s = arg;
  char *memory = smx_scratch_take(&s->scratch);
  mix_work w = {.set = pool_set_at(&s->s, lead)};
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  hear_all(s, &w), each_segment(s, &w, answer_segment);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- gradients ---- */

/* do, the gradients of both maxima, and dv. */
static void segment_back(const mix_call *s, mix_work *w, int64_t first, int64_t end) {
  look_for_largest(s, w, SEGMENT, first, end);
  for (int64_t j = 0; j < s->m; j++) w->sum[j] = w->v[j] + w->top[j];
  clear(w->y, s->m); /* the gradient of the maximum of the segment */
  for (int64_t t = first; t < end; t++) {
    clear(w->o, s->m);
    if (has(s, w, t)) {
      load(s, w, O, t, w->o);
      tensor_load(s->c, s->c->dout.view, row_at(s, w, t), s->m, w->g);
      for (int64_t j = 0; j < s->m; j++) w->y[j] += w->g[j] * w->o[j], w->o[j] = w->g[j] * w->sum[j];
    }
    give(s, w, O, t, w->o);
  }
  for (int64_t j = 0; j < s->m; j++) w->dv[j] += w->y[j];
  for (int64_t t = first; t < end; t++) {
    for (int64_t j = 0; j < s->m; j++) w->o[j] = w->at[j] == t ? w->y[j] : 0;
    give(s, w, SEGMENT, t, w->o);
  }
  for (int64_t t = first; t < end; t++) {
    if (!has(s, w, t)) continue;
    tensor_load(s->c, s->c->dout.view, row_at(s, w, t), s->m, w->g), look_around(s, w, t);
    for (int64_t j = 0; j < s->m; j++)
      if (w->at[j] >= 0) w->dw[w->at[j] * s->m + j] += w->g[j];
  }
}

/* dk and dq from dv. */
static void all_back(const mix_call *s, mix_work *w) {
  clear(w->dmean, s->m), clear(w->da, s->heads * s->n);
  for (int64_t t = 0; t < s->n; t++)
    if (has(s, w, t)) load(s, w, K, t, w->x), products(s, w->dv, w->x, w->da + t);
  for (int64_t h = 0; h < s->heads; h++) {
    double *a = w->a + h * s->n, *da = w->da + h * s->n, mean = 0;
    for (int64_t t = 0; t < s->n; t++) mean += a[t] == 0 ? 0 : a[t] * da[t];
    for (int64_t t = 0; t < s->n; t++) da[t] = a[t] == 0 ? 0 : s->scale * a[t] * (da[t] - mean);
  }
  for (int64_t t = 0; t < s->n; t++) {
    clear(w->y, s->m);
    if (has(s, w, t)) {
      load(s, w, K, t, w->x), add_heads(s, w->da + t, w->x, w->dmean);
      add_heads(s, w->a + t, w->dv, w->y), add_heads(s, w->da + t, w->mean, w->y);
    }
    give(s, w, K, t, w->y);
  }
  for (int64_t t = 0; t < s->n; t++) {
    for (int64_t j = 0; j < s->m; j++) w->y[j] = has(s, w, t) ? w->dmean[j] / (double)w->set.count : 0;
    give(s, w, Q, t, w->y);
  }
}

static void backward_task(void *arg, int64_t lead) {
  mix_call *s = arg;
  char *memory = smx_scratch_take(&s->scratch);
  mix_work w = {.set = pool_set_at(&s->s, lead)};
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  clear(w.dv, s->m), clear(w.dw, s->n * s->m);
  hear_all(s, &w), each_segment(s, &w, segment_back), all_back(s, &w);
  for (int64_t t = 0; t < s->n; t++) give(s, &w, LOCAL, t, w.dw + t * s->m);
  smx_scratch_give(&s->scratch, memory);
}

static smx_status run(const tensor_call *c, bool backward) {
  mix_call s = {.c = c, .s = pool_sets_of(c), .n = tensor_dim(c, "n"), .m = tensor_dim(c, "d")};
  mix_work none;
  carver size = {.fits = true};
  const smx_status status = pool_check_empty(&s.s);
  if (status != SMX_OK || s.n == 0 || s.m == 0) return status;
  s.heads = (int64_t)tensor_param(c, "heads"), s.width = s.m / s.heads, s.backward = backward;
  s.length = s.n / (int64_t)tensor_param(c, "segments") + 1;
  s.around = (int64_t)tensor_param(c, "around"), s.scale = 1 / __builtin_sqrt((double)s.width);
  lay_out(&s, &size, &none);
  if (!size.fits || !smx_scratch_open(&s.scratch, c->ctx, 0, (size_t)size.at + 64, s.s.leads))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)s.n);
  smx_parallel(c->ctx, s.s.leads, backward ? backward_task : forward_task, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
smx_status pool_ponet(const tensor_call *c) { return run(c, false); }
smx_status pool_ponet_backward(const tensor_call *c) { return run(c, true); }
