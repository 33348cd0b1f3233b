/* pool/functions_means.c - power means of sets, and the logarithm of the mean exponential. With v =
 * max(x, least), |x| or e^x, and l = log v, all of them are M = log(mean v^p) / p + e log n, and
 * y = e^M or M. Relative to a number r, the l whose p l is the largest,
 *
 *   M = r + log1p(mean expm1(p (l - r))) / p + e log n,
 *
 * which neither overflows nor cancels where p is small. Where it is not, and v is given, r is the
 * logarithm of a power of two, and sums are those of the powers of v / e^r. */
#include <string.h>

#include "functions_columns.h"

enum { X, MASK, OFFSETS, POWER, COUNT_POWER }; /* inputs; POWER: p or tau, COUNT_POWER: q */
static const double NEAR_0 = 1e-6, INFINITE = __builtin_inf();

typedef enum { GEM, GNP, SMOOTHED } kind;

typedef struct mean_call {
  pool_sets s;
  const score_runs *run;
  kind kind;
  double least;
  int64_t groups;
  double *partial; /* the gradients of p and q, of each set and channel */
} mean_call;

/* Some channels of a group of a set. */
typedef struct columns {
  pool_columns in;
  int64_t first, width;
  double p, q;
  bool direct;                                               /* powers of v by `scale` are summed */
  double reference[SET_WIDTH], scale[SET_WIDTH];             /* r; e^-r */
  double exps[SET_WIDTH], lift[SET_WIDTH], value[SET_WIDTH]; /* sum v^p e^-pr; M - r; M */
} columns;

static double of_group(const mean_call *m, int port, const char *param, int64_t channel) {
  double v;
  if (!m->s.c->in.given[port]) return tensor_param(m->s.c, param);
  tensor_load(m->s.c, m->s.c->in.view + port, channel / (m->s.channels / m->groups), 1, &v);
  return v;
}

/* ---- channels ---- */

static int64_t pieces_of_group(const mean_call *m) {
  return (m->s.channels / m->groups + SET_WIDTH - 1) / SET_WIDTH;
}
static int64_t pieces_of(const mean_call *m) { return m->groups * pieces_of_group(m); }

/* p is NaN where there is no such mean. */
static columns columns_of(const mean_call *m, const pool_set *q, int64_t piece) {
  const int64_t each = m->s.channels / m->groups, begin = piece % pieces_of_group(m) * SET_WIDTH;
  columns k = {.first = piece / pieces_of_group(m) * each + begin,
               .width = each - begin < SET_WIDTH ? each - begin : SET_WIDTH};
  double p = of_group(m, POWER, m->kind == SMOOTHED ? "temperature" : "power", k.first);
  if (m->kind == SMOOTHED) p = p > 0 ? 1 / p : __builtin_nan("");
  if (m->kind == GNP && p > -1e-3 && p < 1e-3) p = __builtin_nan("");
  k.p = p - p == 0 ? p : __builtin_nan("");
  k.q = m->kind == GNP ? of_group(m, COUNT_POWER, "count_power", k.first) : 0;
  k.in = pool_columns_of(&m->s, q, k.width);
  const double size = p < 0 ? -p : p;
  k.direct = m->kind != SMOOTHED && size >= 0.25 && size <= 64;
  return k;
}

/* ---- runs of items ---- */

/* The channels' numbers of item 0 of the lead. */
static int64_t number_at(const mean_call *m, const columns *k) {
  return k->in.q->lead * m->s.n * m->s.channels + k->first;
}
static void load(const mean_call *m, const columns *k, const pool_run *r, double *x) {
  pool_load_run(&k->in, r, m->s.c->in.view, number_at(m, k), m->s.channels, x);
}

/* x to v, of SMOOTHED to log v. */
static void take_v(const mean_call *m, int64_t n, const double *x, double *v) {
  if (m->kind == SMOOTHED) memmove(v, x, (size_t)n * sizeof *v);
  else if (m->kind == GNP)
    for (int64_t i = 0; i < n; i++) v[i] = x[i] < 0 ? -x[i] : x[i];
  else
    for (int64_t i = 0; i < n; i++) v[i] = x[i] < m->least ? m->least : x[i];
}
/* v to v / e^r, or to l - r. */
static void scale_run(const columns *k, const pool_run *r, double *v) {
  for (int64_t i = 0; i < r->n; i += k->width)
    for (int64_t j = 0; j < k->width; j++) v[i + j] *= k->scale[j];
}
static void distances(const mean_call *m, const columns *k, const pool_run *r, double *v) {
  if (m->kind != SMOOTHED) m->run->log(v, r->n, v);
  for (int64_t i = 0; i < r->n; i += k->width)
    for (int64_t j = 0; j < k->width; j++) v[i + j] -= k->reference[j];
}
static void times(double p, int64_t n, double *v) {
  for (int64_t i = 0; i < n; i++) v[i] *= p;
}

/* ---- sums ---- */

/* The v with the largest p l becomes the reference. */
static void take_references(const mean_call *m, columns *k) {
  const double sign = k->p < 0 ? -1 : 1;
  double v[POOL_RUN], lane[POOL_RUN], *top = k->reference;
  for (int64_t t = 0; t < POOL_RUN; t++) lane[t] = -INFINITE;
  for (pool_run r = {0}; pool_next_run(&k->in, &r);) {
    load(m, k, &r, v);
    take_v(m, r.n, v, v);
    pool_hide(&k->in, &r, -sign * INFINITE, v);
    pool_raise(&k->in, &r, sign, v, lane);
  }
  pool_fold_largest(&k->in, lane, top);
  for (int64_t j = 0; j < k->width; j++) {
    top[j] *= sign, k->scale[j] = 1;
    if (k->direct && top[j] >= 0x1p-1022 && top[j] < INFINITE)
      k->scale[j] = pool_power_of(top[j]), top[j] = 1 / k->scale[j];
  }
  if (m->kind != SMOOTHED) m->run->log(top, k->width, top);
}

/* Everything that a value and its gradients are made of. */
static void take_sums(const mean_call *m, columns *k) {
  const double n = (double)k->in.q->count, log_n = m->s.math->log(n), p = k->p;
  double y[POOL_RUN], lane[POOL_RUN] = {0}, sum[SET_WIDTH];
  take_references(m, k);
  for (pool_run r = {0}; pool_next_run(&k->in, &r);) {
    load(m, k, &r, y);
    take_v(m, r.n, y, y);
    if (k->direct) scale_run(k, &r, y), m->run->power(p, y, r.n, y);
    else distances(m, k, &r, y);
    if (!k->direct && p != 0) times(p, r.n, y), m->run->expm1(y, r.n, y);
    pool_hide(&k->in, &r, 0, y);
    pool_add(&k->in, &r, y, lane);
  }
  pool_fold(&k->in, lane, sum);
  for (int64_t j = 0; j < k->width; j++) {
    const double r = k->reference[j], mean = sum[j] / n;
    k->exps[j] = k->direct ? sum[j] : p == 0 ? n : sum[j] + n;
    k->lift[j] = k->direct ? m->s.math->log(mean) / p : p == 0 ? mean : pool_log1p(m->s.math, mean) / p;
    k->value[j] = p != p ? p : r - r == 0 ? r + k->lift[j] : r;
    if (m->kind == GNP) k->value[j] += (1 / p - k->q) * log_n;
  }
}

/* exp gives no more than 2^1023: a larger result is twice the exponential of value - log 2. */
static double result_of(const mean_call *m, double value) {
  static const double LOG_2 = 0x1.62e42fefa39efp-1;
  if (m->kind == SMOOTHED) return value;
  return value > 709 ? 2 * m->s.math->exp(value - LOG_2) : m->s.math->exp(value);
}

static void forward_task(void *arg, int64_t task) {
  const mean_call *m = arg;
  const int64_t pieces = pieces_of(m);
  const pool_set q = pool_set_at(&m->s, task / pieces);
  columns k = columns_of(m, &q, task % pieces);
  if (q.count > 0) take_sums(m, &k);
  for (int64_t j = 0; j < k.width; j++)
    k.value[j] = q.count > 0 ? result_of(m, k.value[j]) : pool_empty_value(m->s.c);
  tensor_store(m->s.c, m->s.c->out.view, q.number * m->s.channels + k.first, k.width, k.value);
}

/* ---- gradients ----
 *
 * With w = e^(p (l - r)) / sum: dM / dx = w l'(x), dM / dp = (sum w (l - r) - (M - r)) / p, near
 * p = 0 half the variance of l under w; dM / dq = -log n, and e log n adds -log n / p^2 to dp. */

static double slope_of(const mean_call *m, double x) {
  if (m->kind == SMOOTHED) return 1;
  return (m->kind == GEM && x < m->least) || (x < 0x1p-1022 && x > -0x1p-1022) ? 0 : 1 / x;
}

/* Of a run of v: e^(p (l - r)). */
static void exps_of(const mean_call *m, const columns *k, const pool_run *r, double *v) {
  if (k->direct) {
    scale_run(k, r, v), m->run->power(k->p, v, r->n, v);
    return;
  }
  distances(m, k, r, v), times(k->p, r->n, v), m->run->exp(v, r->n, v);
}

/* up: of M; 0 where M is infinite. dx of a run whose numbers are x, over these. */
static void give(const mean_call *m, const columns *k, const pool_run *r, const double *up, double *x,
                 double *w) {
  take_v(m, r->n, x, w), exps_of(m, k, r, w);
  for (int64_t i = 0; i < r->n; i += k->width)
    for (int64_t j = 0; j < k->width; j++) {
      w[i + j] /= k->exps[j];
      x[i + j] = w[i + j] == 0 || up[j] == 0 ? 0 : up[j] * w[i + j] * slope_of(m, x[i + j]);
    }
}

/* sum w (l - r), sum w (l - r)^2; hidden w are 0. */
static void add_moments(const columns *k, const pool_run *r, const double *w, const double *d,
                        double moments[2][SET_WIDTH]) {
  for (int64_t i = 0; i < r->n; i += k->width)
    for (int64_t j = 0; j < k->width; j++) {
      const double first = w[i + j] == 0 ? 0 : w[i + j] * d[i + j];
      moments[0][j] += first, moments[1][j] += w[i + j] == 0 ? 0 : first * d[i + j];
    }
}

/* dM / dp, or dM / dtau = -dM / dp p^2. */
static double power_slope(const mean_call *m, const columns *k, int64_t j, const double moments[2][SET_WIDTH],
                          double log_n) {
  const double p = k->p, first = moments[0][j], near = (moments[1][j] - first * first) / 2;
  const double slope = p < NEAR_0 && p > -NEAR_0 ? near : (first - k->lift[j]) / p;
  if (m->kind == GNP) return slope - log_n / (p * p);
  return m->kind == SMOOTHED ? -slope * p * p : slope;
}

/* dx of a set, and the moments where a power has a gradient. */
static void give_all(const mean_call *m, const columns *k, const double *up, double moments[2][SET_WIDTH]) {
  double x[POOL_RUN], w[POOL_RUN], d[POOL_RUN];
  for (pool_run r = {0}; pool_next_run(&k->in, &r);) {
    load(m, k, &r, x);
    if (m->partial) take_v(m, r.n, x, d), distances(m, k, &r, d);
    give(m, k, &r, up, x, w);
    pool_hide(&k->in, &r, 0, x), pool_hide(&k->in, &r, 0, w);
    if (m->partial) add_moments(k, &r, w, d, moments);
    if (m->s.c->din.given[X]) pool_store_run(&k->in, &r, m->s.c->din.view, number_at(m, k), m->s.channels, x);
  }
}

static void backward_task(void *arg, int64_t task) {
  const mean_call *m = arg;
  const tensor_call *c = m->s.c;
  const int64_t pieces = pieces_of(m), all = m->s.leads * m->s.sets * m->s.channels;
  const pool_set q = pool_set_at(&m->s, task / pieces);
  columns k = columns_of(m, &q, task % pieces);
  const int64_t at = q.number * m->s.channels + k.first;
  double up[SET_WIDTH] = {0}, moments[2][SET_WIDTH] = {{0}};
  const double log_n = q.count > 0 ? m->s.math->log((double)q.count) : 0;
  if (q.count > 0) take_sums(m, &k), tensor_load(c, c->dout.view, at, k.width, up);
  for (int64_t j = 0; j < k.width && q.count > 0; j++) {
    const double v = k.value[j];
    up[j] = v - v == 0 || v != v ? up[j] * (m->kind == SMOOTHED ? 1 : result_of(m, v)) : 0;
  }
  give_all(m, &k, up, moments);
  for (int64_t j = 0; m->partial && j < k.width; j++) {
    m->partial[at + j] = up[j] == 0 ? 0 : up[j] * power_slope(m, &k, j, moments, log_n);
    m->partial[all + at + j] = -up[j] * log_n;
  }
}

/* Sets in their order. */
static void sum_partials(const mean_call *m, int port, const double *partial) {
  const tensor_call *c = m->s.c;
  const int64_t each = m->s.channels / m->groups;
  for (int64_t g = 0; c->op->input_count > port && c->din.given[port] && g < m->groups; g++) {
    double sum = 0;
    for (int64_t k = 0; k < m->s.leads * m->s.sets; k++)
      for (int64_t j = g * each; j < (g + 1) * each; j++) sum += partial[k * m->s.channels + j];
    tensor_store(c, c->din.view + port, g, 1, &sum);
  }
}

static mean_call call_of(const tensor_call *c) {
  mean_call m = {.s = pool_sets_of(c), .kind = (kind)(c->op - pool_table - POOL_gem_pool)};
  m.run = m.s.math->run, m.least = dims_param(&c->dims, "least", 0);
  m.groups = tensor_dim(c, "g") > 0 ? tensor_dim(c, "g") : 1;
  return m;
}

smx_status pool_power_mean(const tensor_call *c) {
  mean_call m = call_of(c);
  const smx_status status = pool_check_empty(&m.s);
  if (status == SMX_OK) smx_parallel(c->ctx, m.s.leads * m.s.sets * pieces_of(&m), forward_task, &m);
  return status;
}

smx_status pool_power_mean_backward(const tensor_call *c) {
  mean_call m = call_of(c);
  const int64_t all = m.s.leads * m.s.sets * m.s.channels;
  const bool powers = c->din.given[POWER] || (m.kind == GNP && c->din.given[COUNT_POWER]);
  const smx_status status = pool_check_empty(&m.s);
  if (status != SMX_OK) return status;
  if (powers && !(m.partial = pool_reserve(c, 2 * all))) return SMX_ERR_NOMEM;
  smx_parallel(c->ctx, m.s.leads * m.s.sets * pieces_of(&m), backward_task, &m);
  if (powers) sum_partials(&m, POWER, m.partial), sum_partials(&m, COUNT_POWER, m.partial + all);
  if (powers) smx_free(c->ctx, m.partial);
  return SMX_OK;
}
