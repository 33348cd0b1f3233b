/* fit/functions_steps.c - maps that only rise: isotonic regression by pooling of adjacent
 * violators; and the accuracy of bins. */
#include "driver/bins.h"
#include "driver/number_sort.h"
#include "functions.h"

enum { SCORE, VALUE, WEIGHT };  /* inputs of isotonic_fit */
enum { KNOT_X, KNOT_Y, COUNT }; /* its outputs */
enum { X, AT, TO };             /* inputs of isotonic; X and AT: those of histogram_binning */
enum { TASK = 4096 };

/* Rows of one score, or blocks of rows whose values are pooled. */
typedef struct block {
  double first, last, weight, sum; /* the least and the largest score; of weight times value */
} block;

static double mean_of(const block *b) { return b->sum / b->weight; }

/* A block more; those before it whose means are not smaller join it. */
static int64_t push(block *all, int64_t count, block own) {
  while (count > 0 && mean_of(all + count - 1) >= mean_of(&own)) {
    const block *before = all + --count;
    own = (block){before->first, own.last, before->weight + own.weight, before->sum + own.sum};
  }
  all[count] = own;
  return count + 1;
}

/* Blocks of the rows in the order of their scores, of which equal ones are one from the start. */
static int64_t pool(const tensor_call *c, const sort_entry *order, int64_t n, block *all) {
  int64_t count = 0;
  for (int64_t from = 0, end; from < n; from = end) {
    const double score = -sort_number(order[from].key) + 0.0;
    block own = {score, score, 0, 0};
    for (end = from; end < n && order[end].key == order[from].key; end++) {
      const int64_t i = (int64_t)order[end].y;
      const double w = fit_number(c, WEIGHT, i, 1);
      own.weight += w, own.sum += w * fit_number(c, VALUE, i, 0);
    }
    if (own.weight > 0) count = push(all, count, own);
  }
  return count;
}

/* Knots: where each block begins and ends. Those that are left over repeat the last. */
static void write_knots(const tensor_call *c, const block *all, int64_t count, int64_t n) {
  int64_t knots = 0;
  double x = __builtin_nan(""), y = x;
  for (int64_t b = 0; b < count; b++)
    for (int end = 0; end < (all[b].first == all[b].last ? 1 : 2); end++) {
      x = end ? all[b].last : all[b].first, y = mean_of(all + b);
      tensor_put(c, KNOT_X, knots, x), tensor_put(c, KNOT_Y, knots++, y);
    }
  *(int64_t *)(void *)c->out.view[COUNT].data = knots;
  for (; knots < n; knots++) tensor_put(c, KNOT_X, knots, x), tensor_put(c, KNOT_Y, knots, y);
}

static smx_status check_weights(const tensor_call *c, int64_t n, bool *nan) {
  for (int64_t i = 0; i < n; i++) {
    const double score = fit_number(c, SCORE, i, 0), value = fit_number(c, VALUE, i, 0),
                 w = fit_number(c, WEIGHT, i, 1);
    if (w < 0 || w - w != 0)
      return smx_fail(SMX_ERR_PARAM, "%s: weight: number %lld is %g, not finite and at least 0", c->op->name,
                      (long long)i, w);
    *nan |= score != score || value != value;
  }
  return SMX_OK;
}

smx_status fit_isotonic(const tensor_call *c) {
  const int64_t n = tensor_dim(c, "n"), each = sizeof(block) + 2 * sizeof(sort_entry);
  int64_t bytes, count = 0;
  bool nan = false;
  const smx_status status = check_weights(c, n, &nan);
  if (status != SMX_OK) return status;
  block *all = smx_multiply(n + 1, each, &bytes) && bytes < INT64_MAX / 2
                   ? smx_alloc(c->ctx, (size_t)bytes + sizeof(sort_counts))
                   : NULL;
  if (!all) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)n);
  sort_entry *entry = (sort_entry *)(void *)(all + n + 1), *spare = entry + n;
  for (int64_t i = 0; i < n && !nan; i++)
    entry[i] = (sort_entry){sort_key_descending(-fit_number(c, SCORE, i, 0)), (double)i};
  if (!nan) count = pool(c, sort_numbers(entry, spare, n, (sort_counts *)(void *)(spare + n)), n, all);
  write_knots(c, all, count, n);
  smx_free(c->ctx, all);
  return SMX_OK;
}

/* ---- the maps ---- */

typedef struct steps_map {
  const tensor_call *c;
  int64_t count, knots;
} steps_map;

/* Linear between knots, the first and the last value beyond them. Every number is as far as can be
 * from a knot at infinity: it has the other knot's value. */
static double isotonic_of(const steps_map *m, double x) {
  int64_t low = 0, high = m->knots - 1;
  if (x != x || m->knots == 0) return __builtin_nan("");
  if (x <= fit_number(m->c, AT, 0, 0)) return fit_number(m->c, TO, 0, 0);
  if (x >= fit_number(m->c, AT, high, 0)) return fit_number(m->c, TO, high, 0);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (fit_number(m->c, AT, middle, 0) <= x) low = middle;
    else high = middle;
  }
  const double a = fit_number(m->c, AT, low, 0) / 2,
               b = fit_number(m->c, AT, high, 0) / 2; /* b - a is finite */
  const double y = fit_number(m->c, TO, low, 0), z = fit_number(m->c, TO, high, 0);
  if (b == __builtin_inf()) return y;
  return a == -__builtin_inf() ? z : y + (x / 2 - a) / (b - a) * (z - y);
}

/* The value of the bin of x, or the bin's middle where there were no rows. */
static double bin_value(const steps_map *m, double x) {
  if (x != x) return x;
  const bool left = tensor_param(m->c, "closed") != 0;
  const int64_t b = bin_of(x < 0 ? 0 : x > 1 ? 1 : x, m->knots, left);
  const double value = fit_number(m->c, AT, b, 0);
  return value == value ? value : ((double)b + 0.5) / (double)m->knots;
}

static void map_task(void *arg, int64_t task) {
  const steps_map *m = arg;
  const bool bins = m->c->op - fit_table == FIT_histogram_binning;
  for (int64_t i = task * TASK; i < fit_task_end(task, m->count, TASK); i++) {
    const double x = fit_number(m->c, X, i, 0);
    tensor_put(m->c, 0, i, bins ? bin_value(m, x) : isotonic_of(m, x));
  }
}

static smx_status map(const tensor_call *c, const char *knots) {
  steps_map m = {c, c->dims.lead_count, tensor_dim(c, knots)};
  if (m.count && m.knots == 0)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[0] is 0, not at least 1", c->op->name,
                    c->op->inputs[AT].name);
  smx_parallel(c->ctx, fit_tasks(m.count, TASK), map_task, &m);
  return SMX_OK;
}
smx_status fit_apply_isotonic(const tensor_call *c) { return map(c, "k"); }
smx_status fit_apply_bins(const tensor_call *c) { return map(c, "bins"); }
