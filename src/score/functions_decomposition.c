/* score/functions_decomposition.c - brier_decomposition and classwise_calibration_error: what the
 * Brier score is made of, with weights, and the calibration error of every class. In double, in the
 * order of the rows. */
#include "cpu/cpu.h"
#include "driver/bins.h"
#include "driver/number_sort.h"
#include "functions.h"

#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

/* ---- brier_decomposition ----
 *
 * Rows in groups, of equal confidence or of a bin, with confidence f, outcome o and weight w; W the
 * sum of weights, - a mean by weight, of a group or of all:
 * sum w (f - o)^2 / W = reliability - resolution + uncertainty + within, where
 * reliability = sum_g w_g (f_g - o_g)^2 / W, resolution = sum_g w_g (o_g - o)^2 / W, uncertainty =
 * o (1 - o), within = sum w (f - f_g) (f - f_g - 2 (o - o_g)) / W. */

enum { CONFIDENCE, CORRECT, WEIGHT };                                        /* inputs */
enum { BRIER, RELIABILITY, RESOLUTION, UNCERTAINTY, WITHIN, ECE, DEBIASED }; /* outputs */

/* Sums of a group: of weights, their squares, or of copies these, w f and w o. */
typedef struct group {
  double w, squares, f, o;
} group;

typedef struct decomposition {
  const tensor_call *c;
  int64_t all, n, set, groups, bins; /* n: that have a weight; bins 0: a group for every confidence */
  bool copies;                       /* weights count those */
  double *f, *o, *w;
  int64_t *of; /* the group of each row */
  group *group;
  sort_entry *room[2];
  sort_counts *counts;
} decomposition;

static smx_status decomposition_open(decomposition *x, const tensor_call *c) {
  int64_t bytes;
  *x = (decomposition){.c = c, .all = tensor_dim(c, "n"), .bins = (int64_t)tensor_param(c, "bins")};
  const int64_t n = x->all, groups = x->bins > n ? x->bins : n;
  const int64_t each = 4 * (int64_t)sizeof(double) + 2 * (int64_t)sizeof(sort_entry) + (int64_t)sizeof(group);
  if (!smx_multiply(groups + 1, each, &bytes) || bytes > INT64_MAX / 2) bytes = INT64_MAX / 2;
  x->f = smx_alloc(c->ctx, (size_t)bytes + sizeof *x->counts);
  if (!x->f) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)n);
  x->o = x->f + n, x->w = x->o + n, x->of = (int64_t *)(void *)(x->w + n);
  x->room[0] = (sort_entry *)(void *)(x->of + n), x->room[1] = x->room[0] + n;
  x->group = (group *)(void *)(x->room[1] + n), x->counts = (sort_counts *)(void *)(x->group + groups + 1);
  return SMX_OK;
}

/* The group of each row; the number of a row goes along while they are sorted. */
static void make_groups(decomposition *x, bool left) {
  x->groups = x->bins;
  for (int64_t i = 0; i < x->n && x->bins > 0; i++) x->of[i] = bin_of(x->f[i], x->bins, left);
  if (x->bins > 0) return;
  for (int64_t i = 0; i < x->n; i++) x->room[0][i] = (sort_entry){sort_key_descending(x->f[i]), (double)i};
  const sort_entry *order = sort_numbers(x->room[0], x->room[1], x->n, x->counts);
  for (int64_t i = 0; i < x->n; i++) {
    x->groups += i == 0 || order[i].key != order[i - 1].key;
    x->of[(int64_t)order[i].y] = x->groups - 1;
  }
}

static void sum_groups(const decomposition *x) {
  for (int64_t g = 0; g < x->groups; g++) x->group[g] = (group){0};
  for (int64_t i = 0; i < x->n; i++) {
    group *g = x->group + x->of[i];
    g->w += x->w[i], g->squares += x->copies ? x->w[i] : x->w[i] * x->w[i];
    g->f += x->w[i] * x->f[i], g->o += x->w[i] * x->o[i];
  }
}

/* What the expected squared gap of a group is above the true one, o (1 - o) / (n - 1), with n =
 * (sum w)^2 / sum w^2 rows, of copies sum w; a single one tells nothing of its gap. */
static double debiased_of(const group *g, double gap, double o) {
  const double rows = g->w * g->w / g->squares;
  return rows > 1 ? gap * gap - o * (1 - o) / (rows - 1) : 0;
}

static void write_parts(const decomposition *x) {
  double all = 0, mean = 0, part[DEBIASED + 1] = {0};
  for (int64_t g = 0; g < x->groups; g++) all += x->group[g].w, mean += x->group[g].o;
  mean /= all;
  for (int64_t g = 0; g < x->groups; g++) {
    const group *of = x->group + g;
    if (of->w == 0) continue;
    const double o = of->o / of->w, gap = of->f / of->w - o, share = of->w / all;
    part[RELIABILITY] += share * gap * gap, part[RESOLUTION] += share * (o - mean) * (o - mean);
    part[ECE] += share * __builtin_fabs(gap), part[DEBIASED] += share * debiased_of(of, gap, o);
  }
  for (int64_t i = 0; i < x->n; i++) {
    const group *of = x->group + x->of[i];
    const double gap = x->f[i] - x->o[i], f = x->f[i] - of->f / of->w, o = x->o[i] - of->o / of->w,
                 share = x->w[i] / all;
    part[BRIER] += share * gap * gap, part[WITHIN] += share * f * (f - 2 * o);
  }
  part[UNCERTAINTY] = mean * (1 - mean);
  part[DEBIASED] = part[DEBIASED] > 0 ? __builtin_sqrt(part[DEBIASED]) : 0;
  for (int k = 0; k <= DEBIASED; k++) tensor_put(x->c, k, x->set, all > 0 ? part[k] : NAN_);
}

static void write_set(decomposition *x, bool left) {
  const tensor_call *c = x->c;
  const char *correct = c->in.view[CORRECT].data + x->set * x->all;
  bool nan = false;
  tensor_load(c, c->in.view + CONFIDENCE, x->set * x->all, x->all, x->f);
  for (int64_t i = 0; i < x->all; i++) x->o[i] = correct[i] != 0;
  x->copies = score_load_weights(c, WEIGHT, x->set, x->w).copies;
  x->n = score_drop_rows(x->all, x->w, 2, (double *const[]){x->f, x->o});
  for (int64_t i = 0; i < x->n; i++) nan |= x->f[i] != x->f[i];
  if (!nan) make_groups(x, left), sum_groups(x), write_parts(x);
  for (int k = 0; k <= DEBIASED && nan; k++) tensor_put(c, k, x->set, NAN_);
}

smx_status score_decomposition(const tensor_call *c) {
  decomposition x;
  smx_status status = score_check_weight(c, WEIGHT);
  if (status == SMX_OK) status = score_check_confidence(c, WEIGHT);
  if (status == SMX_OK) status = decomposition_open(&x, c);
  if (status != SMX_OK) return status;
  for (; x.set < c->dims.lead_count; x.set++) write_set(&x, tensor_param(c, "closed") != 0);
  smx_free(c->ctx, x.f);
  return SMX_OK;
}

/* ---- classwise_calibration_error ----
 *
 * Of each class k the ECE of p_k with the rows whose target is k as the right ones, sum_bins |sum
 * w (p_k - [target = k])| / sum w; and the mean over the classes. */

enum { LOGITS, TARGET, ROW_WEIGHT };
enum { MEAN, LARGEST, EACH };
enum { BLOCK = 256, ROWS = 16, COLUMNS = 16 };

typedef struct classwise {
  const tensor_call *c;
  const score_kernels *kernels;
  int64_t rows, classes, bins, from, count;
  double temperature;
  bool left;
  double *p, *sums, *w; /* p: of a block; sums: [classes, bins]; w: of all rows, or NULL */
} classwise;

/* -1 of a row that does not count. */
static int64_t target_at(const classwise *x, int64_t row) {
  return x->w && x->w[row] == 0 ? -1 : ((const int64_t *)(const void *)x->c->in.view[TARGET].data)[row];
}
static double weight_at(const classwise *x, int64_t row) { return x->w ? x->w[row] : 1; }

/* Rows of a block: p = softmax(z / temperature), NaN of a row with a NaN, +inf or no class. */
static void softmax_task(void *arg, int64_t task) {
  const classwise *x = arg;
  const int64_t n = x->classes, end = (task + 1) * ROWS < x->count ? (task + 1) * ROWS : x->count;
  for (int64_t i = task * ROWS; i < end; i++) {
    double *p = x->p + i * n, most = -INF, sum = 0;
    if (target_at(x, x->from + i) < 0) continue;
    tensor_load(x->c, x->c->in.view + LOGITS, (x->from + i) * n, n, p);
    for (int64_t j = 0; j < n; j++) most = p[j] > most || p[j] != p[j] ? p[j] : most;
    for (int64_t j = 0; j < n; j++) sum += p[j] = x->kernels->exp((p[j] - most) / x->temperature);
    for (int64_t j = 0; j < n; j++) p[j] /= sum;
  }
}

/* Some classes of a block, over its rows in order. */
static void classes_task(void *arg, int64_t task) {
  const classwise *x = arg;
  const int64_t n = x->classes, end = (task + 1) * COLUMNS < n ? (task + 1) * COLUMNS : n;
  for (int64_t i = 0; i < x->count; i++) {
    const int64_t target = target_at(x, x->from + i);
    const double w = weight_at(x, x->from + i);
    if (target < 0) continue;
    for (int64_t k = task * COLUMNS; k < end; k++) {
      const double p = x->p[i * n + k];
      x->sums[k * x->bins + (p == p ? bin_of(p, x->bins, x->left) : 0)] += w * (p - (target == k));
    }
  }
}

static void put_classwise(const classwise *x) {
  double counted = 0, mean = 0, largest = 0;
  for (int64_t i = 0; i < x->rows; i++) counted += target_at(x, i) >= 0 ? weight_at(x, i) : 0;
  for (int64_t k = 0; k < x->classes; k++) {
    double sum = 0;
    for (int64_t b = 0; b < x->bins; b++) sum += __builtin_fabs(x->sums[k * x->bins + b]);
    sum /= counted;
    tensor_put(x->c, EACH, k, sum);
    mean += sum / (double)x->classes, largest = sum > largest || sum != sum ? sum : largest;
  }
  const bool none = x->classes == 0 || counted == 0;
  tensor_put(x->c, MEAN, 0, none ? NAN_ : mean), tensor_put(x->c, LARGEST, 0, none ? NAN_ : largest);
}

smx_status score_classwise(const tensor_call *c) {
  classwise x = {.c = c, .kernels = smx_isa_current()->f64.score, .rows = tensor_dim(c, "n")};
  int64_t bytes;
  x.classes = tensor_dim(c, "c"), x.bins = (int64_t)tensor_param(c, "bins");
  x.temperature = tensor_param(c, "temperature"), x.left = tensor_param(c, "closed") != 0;
  smx_status status = score_check_weight(c, ROW_WEIGHT);
  if (status == SMX_OK) status = score_open_weights(c, ROW_WEIGHT, &x.w);
  if (status != SMX_OK) return status;
  const bool fits = smx_multiply(x.classes, (x.bins + BLOCK) * (int64_t)sizeof(double), &bytes);
  x.p = fits ? smx_alloc(c->ctx, (size_t)bytes + sizeof(double)) : NULL;
  if (!x.p) {
    smx_free(c->ctx, x.w);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  }
  x.sums = x.p + BLOCK * x.classes;
  if (x.w) score_load_weights(c, ROW_WEIGHT, 0, x.w);
  for (int64_t i = 0; i < x.classes * x.bins; i++) x.sums[i] = 0;
  for (; x.from < x.rows; x.from += BLOCK) {
    x.count = x.rows - x.from < BLOCK ? x.rows - x.from : BLOCK;
    smx_parallel(c->ctx, (x.count + ROWS - 1) / ROWS, softmax_task, &x);
    smx_parallel(c->ctx, (x.classes + COLUMNS - 1) / COLUMNS, classes_task, &x);
  }
  put_classwise(&x);
  smx_free(c->ctx, x.p), smx_free(c->ctx, x.w);
  return SMX_OK;
}
