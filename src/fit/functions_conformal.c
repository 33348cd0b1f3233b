/* fit/functions_conformal.c - conformal prediction: sets of classes that have the true one with a
 * chosen probability. Both functions score a class by the same arithmetic, so that a row of the fit
 * is in its own set exactly where its score is not above the threshold. */
#include "driver/merge_sort.h"
#include "functions.h"

enum { LOGITS, SECOND, NOISE }; /* inputs; SECOND: the target */
enum { MEMBER, SIZE };          /* outputs of conformal_sets */
enum { ROWS = 16 };

typedef struct conformal {
  const tensor_call *c;
  int64_t rows, classes;
  bool adaptive; /* of cumulative probability; else of the probability alone */
  bool empty;    /* a set may be */
  double penalty, rank, threshold;
  int noise;     /* the port of the uniform numbers */
  double *score; /* of each row's target */
  smx_scratch scratch;
} conformal;

/* A row's probabilities, and its classes in their order, the largest first. */
typedef struct ranked {
  double *p;
  int64_t *order;
} ranked;

static bool is_larger(const void *arg, int64_t a, int64_t b) {
  const double *p = arg;
  return p[a] > p[b] || (p[a] == p[b] && a < b);
}

/* False: a NaN, +inf, or no class. */
static bool rank_row(const conformal *x, int64_t row, void *work, ranked *r) {
  const int64_t n = x->classes;
  double most = -__builtin_inf(), sum = 0;
  r->p = work, r->order = (int64_t *)(void *)(r->p + n);
  tensor_load(x->c, x->c->in.view + LOGITS, row * n, n, r->p);
  for (int64_t i = 0; i < n; i++) {
    if (r->p[i] != r->p[i]) return false;
    most = r->p[i] > most ? r->p[i] : most;
  }
  if (most - most != 0) return false;
  for (int64_t i = 0; i < n; i++) sum += r->p[i] = fit_math()->exp(r->p[i] - most);
  for (int64_t i = 0; i < n; i++) r->p[i] /= sum, r->order[i] = i;
  if (x->adaptive) r->order = smx_merge_sort(r->order, r->order + n, n, is_larger, r->p);
  return true;
}

static double noise_of(const conformal *x, int64_t row) {
  double u = 0;
  if (x->c->in.given[x->noise]) tensor_load(x->c, x->c->in.view + x->noise, row, 1, &u);
  return u;
}

/* sum of the probabilities to this place, less u times its own, plus what late places cost */
static double adaptive_score(const conformal *x, double sum, double p, double u, int64_t place) {
  const double late = (double)(place + 1) - x->rank;
  return sum - u * p + (late > 0 ? x->penalty * late : 0);
}

static double score_of(const conformal *x, const ranked *r, double u, int64_t target) {
  double sum = 0;
  if (!x->adaptive) return -r->p[target];
  for (int64_t k = 0;; k++) {
    sum += r->p[r->order[k]];
    if (r->order[k] == target) return adaptive_score(x, sum, r->p[target], u, k);
  }
}

static void scores_task(void *arg, int64_t task) {
  conformal *x = arg;
  void *work = smx_scratch_take(&x->scratch);
  ranked r;
  for (int64_t row = task * ROWS; row < fit_task_end(task, x->rows, ROWS); row++) {
    const int64_t target = fit_whole(x->c, SECOND)[row];
    if (target < 0) continue;
    x->score[row] =
        rank_row(x, row, work, &r) ? score_of(x, &r, noise_of(x, row), target) : __builtin_nan("");
  }
  smx_scratch_give(&x->scratch, work);
}

static bool is_smaller(const void *arg, int64_t a, int64_t b) {
  const double *score = arg;
  return score[a] < score[b];
}

/* The k-th smallest score of n, k = ceil((n + 1) coverage), at least 1; inf where k is above n. The
 * product is lowered by what rounding may have added to it. */
static double quantile_of(const conformal *x, double coverage, int64_t *order) {
  int64_t n = 0;
  for (int64_t i = 0; i < x->rows; i++)
    if (fit_whole(x->c, SECOND)[i] >= 0) order[n++] = i;
  for (int64_t i = 0; i < n; i++)
    if (x->score[order[i]] != x->score[order[i]]) return __builtin_nan("");
  const double whole = ((double)n + 1) * coverage;
  const double least = __builtin_ceil(whole - 1e-12 * whole);
  const int64_t k = least < 1 ? 1 : (int64_t)least;
  if (k > n) return __builtin_inf();
  return x->score[smx_merge_sort(order, order + x->rows, n, is_smaller, x->score)[k - 1]];
}

static smx_status conformal_open(conformal *x, const tensor_call *c, int64_t rows, int noise) {
  *x = (conformal){.c = c, .rows = rows, .classes = tensor_dim(c, "c"), .noise = noise};
  int64_t place;
  x->adaptive = tensor_param(c, "method") != 0;
  x->penalty = tensor_param(c, "penalty"), x->rank = tensor_param(c, "rank");
  const bool fits = smx_multiply(x->classes, 24, &place);
  if (fits && smx_scratch_open(&x->scratch, c->ctx, 0, (size_t)place + 8, fit_tasks(rows, ROWS)))
    return SMX_OK;
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x->classes);
}

/* To the real type of the output, not to the side where a row would leave its set. */
static double rounded(const tensor_call *c, double x) {
  const float f = (float)x;
  if (c->is_f64 || (double)f >= x || x != x) return c->is_f64 ? x : (double)f;
  return (double)(f + __builtin_fabsf(f) * 0x1p-23f);
}

smx_status fit_conformal(const tensor_call *c) {
  conformal x;
  const int64_t n = tensor_dim(c, "n");
  smx_status status = conformal_open(&x, c, n, NOISE);
  if (status != SMX_OK) return status;
  x.score = fit_reserve(c, 3 * n);
  if (x.score) {
    smx_parallel(c->ctx, fit_tasks(n, ROWS), scores_task, &x);
    const double q = quantile_of(&x, tensor_param(c, "coverage"), (int64_t *)(void *)(x.score + n));
    tensor_put(c, 0, 0, rounded(c, q));
    smx_free(c->ctx, x.score);
  }
  smx_scratch_close(&x.scratch);
  return x.score ? SMX_OK : SMX_ERR_NOMEM;
}

/* ---- sets ---- */

/* Fills member, which is 0, of one row; returns its sum. */
static int64_t take_classes(const conformal *x, const ranked *r, int64_t row, int64_t *member) {
  double sum = 0;
  const double u = noise_of(x, row);
  int64_t first = 0, size = 0;
  for (int64_t k = 0; k < x->classes; k++) {
    const int64_t class = r->order[k];
    sum += r->p[class];
    const double score = x->adaptive ? adaptive_score(x, sum, r->p[class], u, k) : -r->p[class];
    size += member[class] = score <= x->threshold;
    if (is_larger(r->p, class, first)) first = class;
  }
  if (size == 0 && !x->empty) size = member[first] = 1;
  return size;
}

static void sets_task(void *arg, int64_t task) {
  conformal *x = arg;
  void *work = smx_scratch_take(&x->scratch);
  ranked r;
  for (int64_t row = task * ROWS; row < fit_task_end(task, x->rows, ROWS); row++) {
    int64_t *size = (int64_t *)(void *)x->c->out.view[SIZE].data + row,
            *member = (int64_t *)(void *)x->c->out.view[MEMBER].data + row * x->classes;
    for (int64_t i = 0; i < x->classes; i++) member[i] = 0;
    *size = rank_row(x, row, work, &r) ? take_classes(x, &r, row, member) : 0;
  }
  smx_scratch_give(&x->scratch, work);
}

smx_status fit_apply_conformal(const tensor_call *c) {
  conformal x;
  const smx_status status = conformal_open(&x, c, c->dims.lead_count, SECOND);
  if (status != SMX_OK) return status;
  x.threshold = tensor_param(c, "threshold"), x.empty = tensor_param(c, "empty") != 0;
  smx_parallel(c->ctx, fit_tasks(x.rows, ROWS), sets_task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}
