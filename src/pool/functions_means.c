/* pool/functions_means.c - power means of sets, and the logarithm of the mean exponential. With l =
 * log max(x, least), log |x| or x, and r the l whose p l is the largest, all of them are
 *
 *   M = r + log1p(mean expm1(p (l - r))) / p + e log n,   y = e^M or M,
 *
 * which neither overflows nor cancels where p is small. */
#include "functions_sets.h"

enum { X, MASK, OFFSETS, POWER, COUNT_POWER }; /* inputs; POWER: p or tau, COUNT_POWER: q */
static const double NEAR_0 = 1e-6;

typedef enum { GEM, GNP, SMOOTHED } kind;

typedef struct mean_call {
  pool_sets s;
  kind kind;
  double least;
  int64_t groups;
  double *partial; /* the gradients of p and q, of each set and channel */
} mean_call;

/* Some channels of a set. */
typedef struct columns {
  int64_t first, width;
  double p[SET_WIDTH], q[SET_WIDTH], score[SET_WIDTH], reference[SET_WIDTH];
  double sum[SET_WIDTH], exps[SET_WIDTH], lift[SET_WIDTH], value[SET_WIDTH];
} columns;

static double l_of(const mean_call *m, double x) {
  if (m->kind == SMOOTHED || x != x) return x;
  double v = m->kind == GNP && x < 0 ? -x : x;
  if (m->kind == GEM && v < m->least) v = m->least;
  return v == __builtin_inf() ? v : m->s.math->log(v < 0x1p-1022 ? 0 : v);
}
static double slope_of(const mean_call *m, double x) {
  if (m->kind == SMOOTHED) return 1;
  return (m->kind == GEM && x < m->least) || (x < 0x1p-1022 && x > -0x1p-1022) ? 0 : 1 / x;
}

static double of_group(const mean_call *m, int port, const char *param, int64_t channel) {
  double v;
  if (!m->s.c->in.given[port]) return tensor_param(m->s.c, param);
  tensor_load(m->s.c, m->s.c->in.view + port, channel / (m->s.channels / m->groups), 1, &v);
  return v;
}

/* p of each channel, NaN where there is no such mean. */
static void take_powers(const mean_call *m, columns *k) {
  for (int64_t j = 0; j < k->width; j++) {
    double p = of_group(m, POWER, m->kind == SMOOTHED ? "temperature" : "power", k->first + j);
    if (m->kind == SMOOTHED) p = p > 0 ? 1 / p : __builtin_nan("");
    if (m->kind == GNP && p > -1e-3 && p < 1e-3) p = __builtin_nan("");
    k->p[j] = p - p == 0 ? p : __builtin_nan("");
    k->q[j] = m->kind == GNP ? of_group(m, COUNT_POWER, "count_power", k->first + j) : 0;
    k->score[j] = -__builtin_inf(), k->reference[j] = __builtin_nan("");
    k->sum[j] = k->exps[j] = k->lift[j] = 0;
  }
}

/* x of an item, to l. */
static void take_item(const mean_call *m, const pool_set *q, const columns *k, int64_t i, double *x,
                      double *l) {
  tensor_load(m->s.c, m->s.c->in.view, pool_set_item(&m->s, q, i) * m->s.channels + k->first, k->width, x);
  for (int64_t j = 0; j < k->width; j++) l[j] = l_of(m, x[j]);
}

/* p l, and where p is 0 an infinity wins, or is beaten, all the same. */
static double score_of(double p, double l) { return p == 0 && l - l != 0 ? l : p * l; }

static void look_for_references(const mean_call *m, const pool_set *q, columns *k) {
  double x[SET_WIDTH], l[SET_WIDTH];
  bool first = true;
  for (int64_t i = q->first; i < q->end; i++) {
    if (!pool_set_has(&m->s, q, i)) continue;
    take_item(m, q, k, i, x, l);
    for (int64_t j = 0; j < k->width; j++) {
      const double score = score_of(k->p[j], l[j]);
      if (first || score > k->score[j] || score != score) k->score[j] = score, k->reference[j] = l[j];
      if (k->score[j] != k->score[j]) k->score[j] = __builtin_inf(), k->reference[j] = __builtin_nan("");
    }
    first = false;
  }
}

/* Everything that a value and its gradients are made of. value: M. */
static void take_sums(const mean_call *m, const pool_set *q, columns *k) {
  const double n = (double)q->count, log_n = m->s.math->log(n);
  double x[SET_WIDTH], l[SET_WIDTH];
  take_powers(m, k);
  look_for_references(m, q, k);
  for (int64_t i = q->first; i < q->end; i++) {
    if (!pool_set_has(&m->s, q, i)) continue;
    take_item(m, q, k, i, x, l);
    for (int64_t j = 0; j < k->width; j++) {
      const double d = l[j] - k->reference[j];
      k->sum[j] += k->p[j] == 0 ? d : m->s.math->expm1(k->p[j] * d);
    }
  }
  for (int64_t j = 0; j < k->width; j++) {
    const double p = k->p[j], r = k->reference[j];
    k->lift[j] = p == 0 ? k->sum[j] / n : pool_log1p(m->s.math, k->sum[j] / n) / p;
    k->exps[j] = p == 0 ? n : k->sum[j] + n;
    k->value[j] = r - r == 0 && p == p ? r + k->lift[j] : p == p ? r : p;
    if (m->kind == GNP) k->value[j] += (1 / p - k->q[j]) * log_n;
  }
}

static double result_of(const mean_call *m, double value) {
  return m->kind == SMOOTHED ? value : m->s.math->exp(value);
}

static columns columns_of(const mean_call *m, int64_t piece) {
  const int64_t first = piece * SET_WIDTH, left = m->s.channels - first;
  return (columns){.first = first, .width = left < SET_WIDTH ? left : SET_WIDTH};
}
static int64_t pieces_of(const pool_sets *s) { return (s->channels + SET_WIDTH - 1) / SET_WIDTH; }

static void forward_task(void *arg, int64_t task) {
  const mean_call *m = arg;
  const int64_t pieces = pieces_of(&m->s);
  const pool_set q = pool_set_at(&m->s, task / pieces);
  columns k = columns_of(m, task % pieces);
  double y[SET_WIDTH];
  if (q.count > 0) take_sums(m, &q, &k);
  for (int64_t j = 0; j < k.width; j++)
    y[j] = q.count > 0 ? result_of(m, k.value[j]) : pool_empty_value(m->s.c);
  tensor_store(m->s.c, m->s.c->out.view, q.number * m->s.channels + k.first, k.width, y);
}

/* ---- gradients ----
 *
 * With w = e^(p (l - r)) / sum: dM / dx = w l'(x), dM / dp = (sum w (l - r) - (M - r)) / p, near
 * p = 0 half the variance of l under w; dM / dq = -log n, and e log n adds -log n / p^2 to dp. */

/* up: of M; 0 where M is infinite. dx of the set; moments: sum w (l - r), sum w (l - r)^2. */
static void give(const mean_call *m, const pool_set *q, const columns *k, const double *up,
                 double moments[2][SET_WIDTH]) {
  const tensor_call *c = m->s.c;
  double x[SET_WIDTH], l[SET_WIDTH], dx[SET_WIDTH];
  for (int64_t j = 0; j < k->width; j++) moments[0][j] = moments[1][j] = 0;
  for (int64_t i = q->first; i < q->end; i++) {
    const bool there = pool_set_has(&m->s, q, i);
    if (there) take_item(m, q, k, i, x, l);
    for (int64_t j = 0; j < k->width; j++) {
      dx[j] = 0;
      if (!there || up[j] == 0) continue;
      const double d = l[j] - k->reference[j], w = m->s.math->exp(k->p[j] * d) / k->exps[j];
      dx[j] = w == 0 ? 0 : up[j] * w * slope_of(m, x[j]);
      moments[0][j] += w == 0 ? 0 : w * d, moments[1][j] += w == 0 ? 0 : w * d * d;
    }
    if (c->din.given[X])
      tensor_store(c, c->din.view, pool_set_item(&m->s, q, i) * m->s.channels + k->first, k->width, dx);
  }
}

/* dM / dp, or dM / dtau = -dM / dp p^2. */
static double power_slope(const mean_call *m, const columns *k, int64_t j, const double moments[2][SET_WIDTH],
                          double log_n) {
  const double p = k->p[j], first = moments[0][j], near = (moments[1][j] - first * first) / 2;
  const double slope = p < NEAR_0 && p > -NEAR_0 ? near : (first - k->lift[j]) / p;
  if (m->kind == GNP) return slope - log_n / (p * p);
  return m->kind == SMOOTHED ? -slope * p * p : slope;
}

static void backward_task(void *arg, int64_t task) {
  const mean_call *m = arg;
  const tensor_call *c = m->s.c;
  const int64_t pieces = pieces_of(&m->s), all = m->s.leads * m->s.sets * m->s.channels;
  const pool_set q = pool_set_at(&m->s, task / pieces);
  columns k = columns_of(m, task % pieces);
  const int64_t at = q.number * m->s.channels + k.first;
  double up[SET_WIDTH] = {0}, moments[2][SET_WIDTH];
  const double log_n = q.count > 0 ? m->s.math->log((double)q.count) : 0;
  if (q.count > 0) take_sums(m, &q, &k), tensor_load(c, c->dout.view, at, k.width, up);
  for (int64_t j = 0; j < k.width && q.count > 0; j++) {
    const double v = k.value[j];
    up[j] = v - v == 0 || v != v ? up[j] * (m->kind == SMOOTHED ? 1 : result_of(m, v)) : 0;
  }
  give(m, &q, &k, up, moments);
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
  m.least = dims_param(&c->dims, "least", 0);
  m.groups = tensor_dim(c, "g") > 0 ? tensor_dim(c, "g") : 1;
  return m;
}

smx_status pool_power_mean(const tensor_call *c) {
  mean_call m = call_of(c);
  const smx_status status = pool_check_empty(&m.s);
  if (status == SMX_OK) smx_parallel(c->ctx, m.s.leads * m.s.sets * pieces_of(&m.s), forward_task, &m);
  return status;
}

smx_status pool_power_mean_backward(const tensor_call *c) {
  mean_call m = call_of(c);
  const int64_t all = m.s.leads * m.s.sets * m.s.channels;
  const bool powers = c->din.given[POWER] || (m.kind == GNP && c->din.given[COUNT_POWER]);
  const smx_status status = pool_check_empty(&m.s);
  if (status != SMX_OK) return status;
  if (powers && !(m.partial = pool_reserve(c, 2 * all))) return SMX_ERR_NOMEM;
  smx_parallel(c->ctx, m.s.leads * m.s.sets * pieces_of(&m.s), backward_task, &m);
  if (powers) sum_partials(&m, POWER, m.partial), sum_partials(&m, COUNT_POWER, m.partial + all);
  if (powers) smx_free(c->ctx, m.partial);
  return SMX_OK;
}
