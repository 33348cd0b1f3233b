/* score/functions_features.c - scores and maps for what is out of distribution that no sum of a row
 * gives: the generalised entropy of the most probable classes, features that are cut (ReAct) or of
 * which the largest are kept (ASH), and inputs that are moved by the sign of a gradient (ODIN). In
 * double. */
#include "cpu/cpu.h"
#include "functions.h"

#define INF __builtin_inf()
#define NAN_ __builtin_nan("")

/* ---- the k largest ---- */

static bool is_before(const double *x, int64_t a, int64_t b) {
  return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* From `at` down: the last in order comes to the root. */
static void sift(const double *x, int64_t *heap, int64_t k, int64_t at) {
  for (int64_t next; (next = 2 * at + 1) < k; at = next) {
    if (next + 1 < k && is_before(x, heap[next], heap[next + 1])) next++;
    if (!is_before(x, heap[at], heap[next])) return;
    const int64_t swap = heap[at];
    heap[at] = heap[next], heap[next] = swap;
  }
}

/* Where the k-th largest of n numbers is, 0 < k <= n, the first of equal ones first. x: no NaN;
 * heap: room for k. */
static int64_t kth_largest(const double *x, int64_t n, int64_t k, int64_t *heap) {
  for (int64_t i = 0; i < k; i++) heap[i] = i;
  for (int64_t i = k / 2; i-- > 0;) sift(x, heap, k, i);
  for (int64_t i = k; i < n; i++)
    if (is_before(x, i, heap[0])) heap[0] = i, sift(x, heap, k, 0);
  return heap[0];
}

/* ---- rows, each with room for three numbers of each element ---- */

typedef struct feature_call {
  const tensor_call *c;
  const score_kernels *kernels; /* of double */
  smx_scratch scratch;
  int64_t rows, n, each; /* each: rows of a task */
  bool backward;
  void (*row)(const struct feature_call *x, int64_t row, double *work);
  double temperature, gamma, top, percentile;
  int form;
} feature_call;

static void rows_task(void *arg, int64_t task) {
  feature_call *x = arg;
  double *work = smx_scratch_take(&x->scratch);
  for (int64_t row = task * x->each; row < score_task_end(task, x->rows, x->n); row++) x->row(x, row, work);
  smx_scratch_give(&x->scratch, work);
}

static smx_status run(feature_call *x, const tensor_call *c, const char *dim, bool backward) {
  int64_t bytes;
  x->c = c, x->kernels = smx_isa_current()->f64.score, x->backward = backward;
  x->rows = c->dims.lead_count, x->n = tensor_dim(c, dim), x->each = score_rows_a_task(x->n);
  const int64_t tasks = score_tasks(x->rows, x->n);
  if (!smx_multiply(x->n + 1, 3 * sizeof(double), &bytes) ||
      !smx_scratch_open(&x->scratch, c->ctx, 0, (size_t)bytes, tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld elements", c->op->name, (long long)x->n);
  smx_parallel(c->ctx, tasks, rows_task, x);
  smx_scratch_close(&x->scratch);
  return SMX_OK;
}

/* ---- generalised_entropy ---- */

/* A row: where the largest logit is, s - 1 and log s of s = sum e^d; d = (z - max) / temperature is
 * where z was. */
typedef struct entropy_row {
  double rest, log_sum;
  int64_t first, kth; /* kth: of the classes that count the last in order */
  double *d;
} entropy_row;

/* False: a NaN, +inf without its limit, or no class. */
static bool take_row(const feature_call *x, int64_t row, double *work, entropy_row *r) {
  const int64_t n = x->n, k = x->top < (double)n ? (int64_t)x->top : n;
  *r = (entropy_row){.d = work};
  tensor_load(x->c, x->c->in.view, row * n, n, r->d);
  for (int64_t i = 0; i < n; i++) {
    if (r->d[i] != r->d[i]) return false;
    if (r->d[i] > r->d[r->first]) r->first = i;
  }
  const double most = n > 0 ? r->d[r->first] : -INF;
  if (most == -INF || (most == INF && smx_context_on_inf(x->c->ctx) != SMX_INF_LIMIT)) return false;
  r->kth = kth_largest(r->d, n, k, (int64_t *)(void *)(work + n));
  const double last = r->d[r->kth];
  for (int64_t i = 0; i < n; i++) {
    /* what does not count behind the k-th keeps its probability, and gets a mark */
    work[n + i] = r->d[i] > last || (r->d[i] == last && i <= r->kth);
    r->d[i] = r->d[i] == most ? 0 : (r->d[i] - most) / x->temperature;
    if (i != r->first) r->rest += x->kernels->exp(r->d[i]);
  }
  r->log_sum = x->kernels->log(1 + r->rest);
  return true;
}

/* p and log(1 - p), where 1 - p does not cancel: (s - e) / s, s has another e, of 1. */
static double other_log(const feature_call *x, const entropy_row *r, int64_t i, double *p) {
  const double whole = 1 + r->rest, e = x->kernels->exp(r->d[i]);
  *p = e / whole;
  return x->kernels->log(i == r->first ? r->rest : whole - e) - r->log_sum;
}

static void entropy_row_forward(const feature_call *x, int64_t row, double *work) {
  entropy_row r;
  double score = 0, p;
  const bool good = take_row(x, row, work, &r);
  for (int64_t i = 0; i < x->n && good; i++)
    if (work[x->n + i] != 0)
      score -= x->kernels->exp(x->gamma * (r.d[i] - r.log_sum + other_log(x, &r, i, &p)));
  if (!good) score = NAN_;
  tensor_store(x->c, x->c->out.view, row, 1, &score);
}

/* q = (p (1 - p))^g, w = -g (1 - 2 p) q / (1 - p) what the score gains with log p:
 * dz_i = (w_i - p_i sum w) / temperature, of the largest w_i (1 - p_i) - p_i (sum of others). */
static void entropy_row_backward(const feature_call *x, int64_t row, double *work) {
  entropy_row r;
  double *w = work + x->n, *p = w + x->n, others = 0;
  const double g = tensor_upstream(x->c, 0, row) / x->temperature;
  if (!take_row(x, row, work, &r)) {
    bool nan = x->n > 0 && r.d[r.first] == INF;
    for (int64_t i = 0; i < x->n; i++) nan |= r.d[i] != r.d[i];
    return score_fill(x->c, row, x->n, nan ? NAN_ : 0);
  }
  for (int64_t i = 0; i < x->n; i++) {
    const double other = other_log(x, &r, i, p + i), log_p = r.d[i] - r.log_sum,
                 slope = -g * x->gamma * (1 - 2 * p[i]);
    const bool counts = w[i] != 0 && other != -INF && log_p != -INF;
    w[i] = counts ? slope * x->kernels->exp(x->gamma * (log_p + other) - other) : 0;
    if (i != r.first) others += w[i];
  }
  for (int64_t i = 0; i < x->n; i++)
    r.d[i] =
        i == r.first ? w[i] * (r.rest / (1 + r.rest)) - p[i] * others : w[i] - p[i] * (others + w[r.first]);
  tensor_store(x->c, x->c->din.view, row * x->n, x->n, r.d);
}

static smx_status generalised(const tensor_call *c, bool backward) {
  feature_call x = {.temperature = tensor_param(c, "temperature"),
                    .gamma = tensor_param(c, "gamma"),
                    .top = tensor_param(c, "top"),
                    .row = backward ? entropy_row_backward : entropy_row_forward};
  const smx_status status = tensor_check_empty(c, c->dims.lead_count, tensor_dim(c, "c"), "row", "classes");
  if (status != SMX_OK || (backward && !c->din.given[0])) return status;
  return run(&x, c, "c", backward);
}
smx_status score_generalised_forward(const tensor_call *c) { return generalised(c, false); }
smx_status score_generalised_backward(const tensor_call *c) { return generalised(c, true); }

/* ---- ash ---- */

enum { PRUNE, BINARISE, SCALE, SCALE_ALL }; /* the parameter `form` */

/* To the nearest whole number, of two as near the even one, as numpy.round. x is below 2^51. */
static int64_t rounded(double x) { return (int64_t)(x + 0x1.8p52 - 0x1.8p52); }

/* With s1 the sum of a row and s2 that of its k largest: these, or s1 / k in their places, or times
 * e^(s1 / s2); or all times that. */
static void ash_row(const feature_call *x, int64_t row, double *work) {
  const int64_t n = x->n, k = n - rounded((double)n * x->percentile / 100);
  double *h = work, s1 = 0, s2 = 0, last = INF;
  int64_t at = -1;
  bool nan = false;
  tensor_load(x->c, x->c->in.view, row * n, n, h);
  for (int64_t i = 0; i < n; i++) nan |= h[i] != h[i], s1 += h[i];
  if (k > 0 && !nan) at = kth_largest(h, n, k, (int64_t *)(void *)(work + n)), last = h[at];
  for (int64_t i = 0; i < n; i++) s2 += h[i] > last || (h[i] == last && i <= at) ? h[i] : 0;
  const bool scales = x->form == SCALE || x->form == SCALE_ALL;
  const double by = scales ? x->kernels->exp(s1 / s2) : 1, level = s1 / (double)k;
  const bool as_is = scales && s2 == 0 && !nan;
  for (int64_t i = 0; i < n && !as_is; i++) {
    const bool kept = x->form == SCALE_ALL || h[i] > last || (h[i] == last && i <= at);
    h[i] = nan ? NAN_ : !kept ? 0 : x->form == BINARISE ? level : h[i] == 0 ? 0 : h[i] * by;
  }
  tensor_store(x->c, x->c->out.view, row * n, n, h);
}
smx_status score_ash(const tensor_call *c) {
  feature_call x = {
      .percentile = tensor_param(c, "percentile"), .form = (int)tensor_param(c, "form"), .row = ash_row};
  return run(&x, c, "d", false);
}

/* ---- maps of single numbers ---- */

enum { BLOCK = 4096, PIECE = 64 };

typedef struct number_call {
  const tensor_call *c;
  int64_t count;
  double by; /* the threshold, or the step */
  bool backward;
} number_call;

/* react: min(h, threshold). Its gradient passes what is not above. */
static void react_task(void *arg, int64_t task) {
  const number_call *x = arg;
  const tensor_call *c = x->c;
  double h[PIECE], g[PIECE];
  const int64_t end = (task + 1) * BLOCK < x->count ? (task + 1) * BLOCK : x->count;
  for (int64_t at = task * BLOCK; at < end; at += PIECE) {
    const int64_t n = end - at < PIECE ? end - at : PIECE;
    tensor_load(c, c->in.view, at, n, h);
    if (x->backward) tensor_load(c, c->dout.view, at, n, g);
    for (int64_t i = 0; i < n; i++) {
      if (x->backward) h[i] = h[i] != h[i] ? h[i] : h[i] <= x->by ? g[i] : 0;
      else h[i] = h[i] > x->by ? x->by : h[i];
    }
    tensor_store(c, x->backward ? c->din.view : c->out.view, at, n, h);
  }
}

enum { INPUT, GRADIENT, WIDTH }; /* inputs of odin_perturb */

/* x - step sgn(g) / scale, where sgn(0) = 1 */
static void odin_task(void *arg, int64_t task) {
  const number_call *x = arg;
  const tensor_call *c = x->c;
  double v[PIECE], g[PIECE], scale[PIECE];
  const int64_t end = (task + 1) * BLOCK < x->count ? (task + 1) * BLOCK : x->count;
  for (int64_t at = task * BLOCK; at < end; at += PIECE) {
    const int64_t n = end - at < PIECE ? end - at : PIECE;
    for (int64_t i = 0; i < n; i++) scale[i] = 1;
    tensor_load(c, c->in.view + INPUT, at, n, v);
    tensor_load(c, c->in.view + GRADIENT, at, n, g);
    if (c->in.given[WIDTH]) tensor_load(c, c->in.view + WIDTH, at, n, scale);
    for (int64_t i = 0; i < n; i++)
      v[i] = g[i] != g[i] ? g[i] : v[i] - (g[i] >= 0 ? x->by : -x->by) / scale[i];
    tensor_store(c, c->out.view, at, n, v);
  }
}

static smx_status each_number(const tensor_call *c, const char *param, bool backward,
                              void (*task)(void *arg, int64_t task)) {
  number_call x = {.c = c, .count = c->dims.lead_count, .by = tensor_param(c, param), .backward = backward};
  if (!backward || c->din.given[0]) smx_parallel(c->ctx, (x.count + BLOCK - 1) / BLOCK, task, &x);
  return SMX_OK;
}
smx_status score_react(const tensor_call *c) { return each_number(c, "threshold", false, react_task); }
smx_status score_react_backward(const tensor_call *c) {
  return each_number(c, "threshold", true, react_task);
}
smx_status score_odin(const tensor_call *c) { return each_number(c, "step", false, odin_task); }

/* odin: with d = (z - max) / T of c classes and e = sum (e^d - 1), which is small where T is large,
 * the largest p is 1 / (c + e), and T (c p - 1) = -T e / (c + e) does not cancel. */
static void odin_row(const feature_call *x, int64_t row, double *z) {
  double most = -INF, valid = 0, less = 0;
  bool good = true;
  tensor_load(x->c, x->c->in.view, row * x->n, x->n, z);
  for (int64_t i = 0; i < x->n; i++)
    good = good && z[i] == z[i], most = z[i] > most ? z[i] : most, valid += z[i] > -INF;
  good = good && valid > 0 && (most < INF || smx_context_on_inf(x->c->ctx) == SMX_INF_LIMIT);
  for (int64_t i = 0; i < x->n && good; i++)
    if (z[i] > -INF && z[i] < most) less += x->kernels->expm1((z[i] - most) / x->temperature);
  const double whole = valid + less;
  tensor_put(x->c, 0, row, good ? 1 / whole : NAN_);
  tensor_put(x->c, 1, row, good ? -x->temperature * less / whole : NAN_);
}
smx_status score_odin_rows(const tensor_call *c) {
  feature_call x = {.row = odin_row, .temperature = tensor_param(c, "temperature")};
  const smx_status status = tensor_check_empty(c, c->dims.lead_count, tensor_dim(c, "c"), "row", "classes");
  return status == SMX_OK ? run(&x, c, "c", false) : status;
}
