/* fit/functions_sdm.c - Similarity-Distance-Magnitude (Schmaltz 2025): from what neighbours say to
 * the distance as a quantile, the loss to the base 2 + q, and the region where predictions can be
 * relied on. With s = d log(2 + q): SDM(z) = softmax(s z). */
#include "driver/number_sort.h"
#include "functions.h"

enum { ROWS = 64 };
#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

static double real_at(const tensor_call *c, int port, int64_t i) {
  double x;
  tensor_load(c, c->in.view + port, i, 1, &x);
  return x;
}

/* ---- sdm_quantile, sdm_bounds: numbers of known rows, by class ---- */

enum { OF_ROW, KNOWN, SIMILARITY_OF, LABEL }; /* inputs */
enum { BOUNDED = 2 };                         /* of sdm_bounds, in the place of SIMILARITY_OF */
enum { QUANTILE, EACH };                      /* outputs */
enum { LOW_END, HIGH_END, ERROR, SIZE };      /* of sdm_bounds */

typedef struct quantiles {
  const tensor_call *c;
  int64_t rows, known, classes;
  bool similar;   /* rows of similarity 0 do not count */
  double width;   /* of sdm_bounds: log(2 / (1 - alpha)) / 2 */
  double *number; /* of the rows that count, class by class, rising */
  int64_t *first; /* of each class, and their end */
} quantiles;

static bool counts(const quantiles *x, int64_t i) {
  const double d = real_at(x->c, KNOWN, i);
  return fit_whole(x->c, LABEL)[i] >= 0 && d == d && (!x->similar || real_at(x->c, SIMILARITY_OF, i) > 0);
}

/* The numbers come from the largest on, so each class is filled from its end. */
static void sort_classes(quantiles *x, sort_entry *entry, sort_counts *room) {
  int64_t n = 0;
  for (int64_t k = 0; k <= x->classes; k++) x->first[k] = 0;
  for (int64_t i = 0; i < x->known; i++) {
    if (!counts(x, i)) continue;
    const int64_t k = fit_whole(x->c, LABEL)[i];
    entry[n++] = (sort_entry){sort_key_descending(real_at(x->c, KNOWN, i)), (double)k}, x->first[k]++;
  }
  for (int64_t k = 0, end = 0; k <= x->classes; k++) end += x->first[k], x->first[k] = end;
  const sort_entry *order = sort_numbers(entry, entry + x->known, n, room);
  for (int64_t i = 0; i < n; i++) x->number[--x->first[(int64_t)order[i].y]] = sort_number(order[i].key);
}

static int64_t count_of(const quantiles *x, int64_t k) { return x->first[k + 1] - x->first[k]; }

/* How many numbers of a class are smaller. */
static int64_t below(const quantiles *x, int64_t k, double d) {
  int64_t low = x->first[k], high = x->first[k + 1];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (x->number[middle] < d) low = middle + 1;
    else high = middle;
  }
  return low - x->first[k];
}

/* 1 less the share of a class whose distance is smaller; 0 of a class without rows. */
static double quantile_of(const quantiles *x, int64_t k, double d) {
  const int64_t count = count_of(x, k);
  return count == 0 ? 0 : 1 - (double)below(x, k, d) / (double)count;
}

static void quantile_task(void *arg, int64_t task) {
  const quantiles *x = arg;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->rows, ROWS); i++) {
    const double d = real_at(x->c, OF_ROW, i);
    double least = 1;
    for (int64_t k = 0; k < x->classes; k++) {
      const double own = d == d ? quantile_of(x, k, d) : NAN_;
      least = own < least ? own : least;
      tensor_put(x->c, EACH, i * x->classes + k, own);
    }
    tensor_put(x->c, QUANTILE, i, d == d ? least : NAN_);
  }
}

/* The band of Dvoretzky, Kiefer, Wolfowitz (1956) with the constant of Massart (1990): of n samples
 * the share is within sqrt(log(2 / (1 - alpha)) / (2 n)), with probability alpha. */
static double error_of(const quantiles *x, int64_t k, double rescaled, int64_t *size) {
  const int64_t smaller = below(x, k, rescaled), most = count_of(x, k) - 1;
  *size = smaller < most ? smaller : most < 0 ? 0 : most;
  const double wide = *size ? __builtin_sqrt(x->width / (double)*size) : 1;
  return wide < 1 ? wide : 1;
}

static void bound_task(void *arg, int64_t task) {
  const quantiles *x = arg;
  int64_t *sizes = x->c->out.given[SIZE] ? (int64_t *)(void *)x->c->out.view[SIZE].data : NULL, size;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->rows, ROWS); i++) {
    const double q = real_at(x->c, OF_ROW, i), d = real_at(x->c, BOUNDED, i);
    const bool good = q == q && d >= 0 && d <= 1;
    double error = good ? 0 : NAN_;
    for (int64_t k = 0; k < x->classes; k++) {
      const double own = error_of(x, k, q, &size);
      error = own > error ? own : error;
      if (sizes) sizes[i * x->classes + k] = size;
    }
    const double low = d - error, high = d + error;
    tensor_put(x->c, LOW_END, i, low < 0 ? 0 : low), tensor_put(x->c, HIGH_END, i, high > 1 ? 1 : high);
    tensor_put(x->c, ERROR, i, error);
  }
}

static smx_status run_sorted(quantiles *x, void (*task)(void *arg, int64_t number)) {
  const tensor_call *c = x->c;
  x->rows = c->dims.lead_count, x->known = tensor_dim(c, "m"), x->classes = tensor_dim(c, "classes");
  const int64_t each = (int64_t)(2 * sizeof(sort_entry) + sizeof(double)) / 8;
  int64_t count;
  const bool fits = smx_multiply(x->known, each, &count) && count < INT64_MAX / 16;
  x->number =
      fit_reserve(c, fits ? count + x->classes + 1 + (int64_t)(sizeof(sort_counts) / 8) : INT64_MAX / 8 - 1);
  if (!x->number) return SMX_ERR_NOMEM;
  sort_counts *room = (sort_counts *)(void *)(x->number + x->known);
  x->first = (int64_t *)(void *)(room + 1);
  sort_classes(x, (sort_entry *)(void *)(x->first + x->classes + 1), room);
  smx_parallel(c->ctx, fit_tasks(x->rows, ROWS), task, x);
  smx_free(c->ctx, x->number);
  return SMX_OK;
}

smx_status fit_quantile(const tensor_call *c) {
  quantiles x = {.c = c, .similar = true};
  return run_sorted(&x, quantile_task);
}
smx_status fit_bounds(const tensor_call *c) {
  const double alpha = tensor_param(c, "alpha");
  quantiles x = {.c = c, .width = alpha < 1 ? fit_math()->log(2 / (1 - alpha)) / 2 : INF};
  return run_sorted(&x, bound_task);
}

/* ---- rows: the loss, and what is relied on ---- */

enum { LOGITS, SIMILARITY, DISTANCE, LAST }; /* inputs; LAST: target, threshold */
enum { LOSS };                               /* outputs of sdm_loss */
enum { RESCALED, ACCEPTED, PROBABILITY };    /* of sdm_region */

typedef struct sdm_rows {
  const tensor_call *c;
  int64_t rows, classes;
  smx_scratch scratch;
} sdm_rows;

/* What a row is: the logarithm of 2 + q, and the sums of its logits times s. */
typedef struct sdm_row {
  double base, scale;
  score_sums sums;
  bool good;
} sdm_row;

/* z: the logits, times s; those of -inf stay. */
static sdm_row load_row(const sdm_rows *x, int64_t row, double *z) {
  const score_row one = {.temperature = 1, .sums = SCORE_PLACES};
  const double q = real_at(x->c, SIMILARITY, row), d = real_at(x->c, DISTANCE, row);
  sdm_row r = {.good = q >= 0 && q < INF && d >= 0 && d <= 1};
  r.base = r.good ? fit_math()->log(2 + q) : NAN_, r.scale = d * r.base;
  tensor_load(x->c, x->c->in.view + LOGITS, row * x->classes, x->classes, z);
  for (int64_t j = 0; j < x->classes; j++) z[j] = z[j] == -INF ? z[j] : r.scale * z[j];
  fit_math()->sums(&one, z, x->classes, NULL, &r.sums);
  r.good = r.good && !r.sums.nan && r.sums.valid > 0;
  return r;
}

static double log_chance(const sdm_row *r, double z) { return z - r->sums.max - r->sums.log_sum; }

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t number)) {
  sdm_rows x = {.c = c, .rows = c->dims.lead_count, .classes = tensor_dim(c, "c")};
  if (!smx_scratch_open(&x.scratch, c->ctx, 0, (size_t)(x.classes + 1) * 8, fit_tasks(x.rows, ROWS)))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  smx_parallel(c->ctx, fit_tasks(x.rows, ROWS), task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}

static void loss_task(void *arg, int64_t task) {
  sdm_rows *x = arg;
  double *z = smx_scratch_take(&x->scratch);
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->rows, ROWS); i++) {
    const int64_t target = fit_whole(x->c, LAST)[i];
    const sdm_row r = load_row(x, i, z);
    const double loss = target < 0 ? 0 : r.good ? -log_chance(&r, z[target]) / r.base : NAN_;
    tensor_put(x->c, LOSS, i, loss);
  }
  smx_scratch_give(&x->scratch, z);
}

/* The logarithm of the base cancels: dz = d (SDM(z) - [target]). */
static void slope_task(void *arg, int64_t task) {
  sdm_rows *x = arg;
  double *z = smx_scratch_take(&x->scratch);
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->rows, ROWS); i++) {
    const int64_t target = fit_whole(x->c, LAST)[i];
    const double g = tensor_upstream(x->c, LOSS, i), d = real_at(x->c, DISTANCE, i);
    const sdm_row r = load_row(x, i, z);
    for (int64_t j = 0; j < x->classes; j++) {
      const double p = r.good ? fit_math()->exp(log_chance(&r, z[j])) : NAN_;
      z[j] = target < 0 ? 0 : g * d * (p - (j == target));
    }
    tensor_store(x->c, x->c->din.view + LOGITS, i * x->classes, x->classes, z);
  }
  smx_scratch_give(&x->scratch, z);
}

smx_status fit_sdm_loss(const tensor_call *c) { return run(c, loss_task); }
smx_status fit_sdm_loss_backward(const tensor_call *c) {
  return c->din.given[LOGITS] ? run(c, slope_task) : SMX_OK;
}

/* min(q, (2 + q)^p), where 2 + q = e^base */
static double rescaled_of(double q, double base, double p) {
  const double power = fit_math()->exp(p * base);
  return q < power ? q : power;
}

/* Of all classes the predicted one alone is at its threshold. */
static bool is_alone(const sdm_rows *x, const sdm_row *r, const double *z, int64_t predicted) {
  for (int64_t k = 0; k < x->classes; k++) {
    const bool over = fit_math()->exp(log_chance(r, z[k])) >= real_at(x->c, LAST, k);
    if (over != (k == predicted)) return false;
  }
  return true;
}

static void region_task(void *arg, int64_t task) {
  sdm_rows *x = arg;
  double *z = smx_scratch_take(&x->scratch);
  const double least = tensor_param(x->c, "least");
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->rows, ROWS); i++) {
    int64_t predicted = 0;
    const sdm_row r = load_row(x, i, z);
    for (int64_t k = 1; k < x->classes; k++) predicted = z[k] > z[predicted] ? k : predicted;
    const double p = r.good ? fit_math()->exp(-r.sums.log_sum) : NAN_;
    const double q = r.good ? rescaled_of(real_at(x->c, SIMILARITY, i), r.base, p) : NAN_;
    const bool accepted = q >= 1 && q >= least && is_alone(x, &r, z, predicted);
    tensor_put(x->c, RESCALED, i, q), tensor_put(x->c, PROBABILITY, i, p);
    ((int64_t *)(void *)x->c->out.view[ACCEPTED].data)[i] = accepted;
  }
  smx_scratch_give(&x->scratch, z);
}
smx_status fit_region_apply(const tensor_call *c) { return run(c, region_task); }

/* ---- sdm_region_fit ----
 *
 * Rows leave from the smallest rescaled similarity on, until of every class the (1 -
 * alpha)-quantile of the probabilities of those that are left is at least alpha. Of each class a
 * tree of counts (Fenwick 1994), by the order of probability, says which is the k-th left. */

enum { OF_RESCALED, OF_PROBABILITY, OF_LABEL }; /* inputs */
enum { LEAST, THRESHOLD };                      /* outputs */

typedef struct region {
  const tensor_call *c;
  int64_t n, classes, failing; /* failing: classes whose quantile is too small */
  double alpha, *sorted, *threshold;
  int64_t *tree, *first, *left, *place; /* place: of a row in the order of its class */
} region;

static void add_at(region *x, int64_t k, int64_t place, int64_t by) {
  int64_t *tree = x->tree + x->first[k];
  const int64_t n = x->first[k + 1] - x->first[k];
  for (int64_t i = place + 1; i <= n; i += i & -i) tree[i - 1] += by;
  x->left[k] += by;
}

/* The probability of number `nth` of a class, from 0 on, of those that are left. */
static double nth_of(const region *x, int64_t k, int64_t nth) {
  const int64_t *tree = x->tree + x->first[k], n = x->first[k + 1] - x->first[k];
  int64_t at = 0, step = 1;
  while (2 * step <= n) step *= 2;
  for (; step; step /= 2)
    if (at + step <= n && tree[at + step - 1] <= nth) at += step, nth -= tree[at - 1];
  return x->sorted[x->first[k] + at];
}

static double threshold_of(const region *x, int64_t k) {
  const int64_t n = x->left[k], nth = (int64_t)((1 - x->alpha) * (double)n);
  return n == 0 ? 0 : nth_of(x, k, nth < n ? nth : n - 1);
}

static void look_at(region *x, int64_t k) {
  const bool failed = x->threshold[k] < x->alpha;
  x->threshold[k] = threshold_of(x, k);
  x->failing += (x->threshold[k] < x->alpha) - failed;
}

/* Whether a row counts: like some rows of the training, and with a class. */
static bool is_in(const region *x, int64_t i) {
  const double p = real_at(x->c, OF_PROBABILITY, i);
  return fit_whole(x->c, OF_LABEL)[i] >= 0 && real_at(x->c, OF_RESCALED, i) >= 1 && p == p;
}

static int64_t enter(const region *x, int port, sort_entry *entry) {
  int64_t n = 0;
  for (int64_t i = 0; i < x->n; i++)
    if (is_in(x, i)) entry[n++] = (sort_entry){sort_key_descending(-real_at(x->c, port, i)), (double)i};
  return n;
}

static void fill_trees(region *x, sort_entry *entry, sort_counts *room) {
  const int64_t *label = fit_whole(x->c, OF_LABEL);
  for (int64_t k = 0; k <= x->classes; k++) x->first[k] = 0;
  for (int64_t i = 0; i < x->n; i++)
    if (is_in(x, i)) x->first[label[i] + 1]++;
  for (int64_t k = 0; k < x->classes; k++) x->first[k + 1] += x->first[k], x->left[k] = 0;
  for (int64_t i = 0; i < x->n; i++) x->tree[i] = 0;
  const int64_t n = enter(x, OF_PROBABILITY, entry);
  const sort_entry *order = sort_numbers(entry, entry + x->n, n, room);
  for (int64_t i = 0; i < n; i++) {
    const int64_t row = (int64_t)order[i].y, k = label[row];
    x->sorted[x->first[k] + x->left[k]] = real_at(x->c, OF_PROBABILITY, row);
    x->place[row] = x->left[k], add_at(x, k, x->left[k], 1);
  }
}

/* The least rescaled similarity from which on all classes are good enough; inf: there is none. */
static double find_least(region *x, sort_entry *entry, sort_counts *room) {
  const int64_t n = enter(x, OF_RESCALED, entry), *label = fit_whole(x->c, OF_LABEL);
  const sort_entry *order = sort_numbers(entry, entry + x->n, n, room);
  x->failing = x->classes;
  for (int64_t k = 0; k < x->classes; k++) x->threshold[k] = -INF, look_at(x, k);
  for (int64_t from = 0, end; from < n; from = end) {
    if (x->failing == 0) return real_at(x->c, OF_RESCALED, (int64_t)order[from].y);
    for (end = from; end < n && order[end].key == order[from].key; end++) {
      const int64_t row = (int64_t)order[end].y;
      add_at(x, label[row], x->place[row], -1), look_at(x, label[row]);
    }
  }
  return INF;
}

smx_status fit_region(const tensor_call *c) {
  region x = {.c = c, .n = tensor_dim(c, "n"), .classes = tensor_dim(c, "classes")};
  int64_t count;
  const int64_t each = 3 + 2 * (int64_t)sizeof(sort_entry) / 8;
  const bool fits = smx_multiply(x.n, each, &count) && count < INT64_MAX / 16;
  x.alpha = tensor_param(c, "alpha");
  x.sorted = fit_reserve(c, fits ? count + 3 * x.classes + 1 + (int64_t)(sizeof(sort_counts) / 8)
                                 : INT64_MAX / 8 - 1);
  if (!x.sorted) return SMX_ERR_NOMEM;
  x.threshold = x.sorted + x.n, x.tree = (int64_t *)(void *)(x.threshold + x.classes);
  x.place = x.tree + x.n, x.left = x.place + x.n, x.first = x.left + x.classes;
  sort_counts *room = (sort_counts *)(void *)(x.first + x.classes + 1);
  sort_entry *entry = (sort_entry *)(void *)(room + 1);
  fill_trees(&x, entry, room);
  const double least = find_least(&x, entry, room);
  tensor_put(c, LEAST, 0, least);
  for (int64_t k = 0; k < x.classes; k++) tensor_put(c, THRESHOLD, k, least == INF ? INF : x.threshold[k]);
  smx_free(c->ctx, x.sorted);
  return SMX_OK;
}
