/* score/functions_resample.c - mean_interval and paired_test: how far the mean of a set would be
 * off with other rows (bootstrap), and how likely two models differ as much by chance (signs of the
 * differences). Draw b of set s is a function of the seed, s and b alone. */
#include "cpu/cpu.h"
#include "driver/number_sort.h"
#include "functions.h"

#define NAN_ __builtin_nan("")
enum { VALUES, OTHER };                     /* inputs; OTHER: weights, or the second model */
enum { MEAN, LOW, HIGH, DEVIATION, P = 1 }; /* outputs; P: of paired_test */
enum { DRAWS = 4, WORD = 64 };              /* draws of a task */

typedef struct resample {
  const tensor_call *c;
  const score_kernels *kernels;
  int64_t n, set, count, draws; /* count: rows that take part */
  uint64_t seed;
  double *x, *w, *drawn;
  sort_entry *room[2];
  sort_counts *counts;
  bool every; /* all signs there are, once each */
} resample;

static smx_status resample_open(resample *r, const tensor_call *c) {
  int64_t bytes;
  *r = (resample){.c = c, .kernels = smx_isa_current()->f64.score, .n = tensor_dim(c, "n")};
  r->draws = (int64_t)tensor_param(c, "draws"), r->seed = (uint64_t)tensor_param(c, "seed");
  const int64_t each = (int64_t)sizeof(double) + 2 * (int64_t)sizeof(sort_entry);
  if (!smx_multiply(r->n, 2 * (int64_t)sizeof(double), &bytes) || bytes > INT64_MAX / 2)
    bytes = INT64_MAX / 2;
  r->x = smx_alloc(c->ctx, (size_t)(bytes + r->draws * each) + sizeof *r->counts);
  if (!r->x) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)r->n);
  r->w = r->x + r->n, r->drawn = r->w + r->n;
  r->room[0] = (sort_entry *)(void *)(r->drawn + r->draws), r->room[1] = r->room[0] + r->draws;
  r->counts = (sort_counts *)(void *)(r->room[1] + r->draws);
  return SMX_OK;
}

static void draw_all(resample *r, void (*task)(void *arg, int64_t task)) {
  smx_parallel(r->c->ctx, (r->draws + DRAWS - 1) / DRAWS, task, r);
}
static int64_t last_draw(const resample *r, int64_t task) {
  return (task + 1) * DRAWS < r->draws ? (task + 1) * DRAWS : r->draws;
}

/* ---- mean_interval ---- */

static double mean_of(const double *sums) { return sums[0] / sums[1]; }

/* A row for number i of a draw: floor(u count) of a uniform u, word i of the draw. */
static int64_t row_of(const resample *r, uint64_t word) {
  const double u = ((double)(word >> 12) + 0.5) * 0x1p-52;
  const int64_t at = (int64_t)(u * (double)r->count);
  return at < r->count ? at : r->count - 1;
}

static void bootstrap_task(void *arg, int64_t task) {
  resample *r = arg;
  const uint64_t blocks = (uint64_t)(r->count + 1) / 2;
  for (int64_t b = task * DRAWS; b < last_draw(r, task); b++) {
    double sums[2] = {0};
    uint64_t words[2];
    for (int64_t i = 0; i < r->count; i++) {
      if (i % 2 == 0)
        r->kernels->draw(r->seed, (uint64_t)r->set, SCORE_DRAW_ROWS, (uint64_t)b * blocks + (uint64_t)i / 2,
                         words);
      const int64_t at = row_of(r, words[i % 2]);
      sums[0] += r->w[at] * r->x[at], sums[1] += r->w[at];
    }
    r->drawn[b] = mean_of(sums);
  }
}

/* At place (draws - 1) share of the draws in order, linear between two of them. */
static double quantile_of(const resample *r, const sort_entry *order, double share) {
  const double v = (double)(r->draws - 1) * share;
  const int64_t k = (int64_t)v, next = k + 1 < r->draws ? k + 1 : k;
  const double a = sort_number(order[r->draws - 1 - k].key), b = sort_number(order[r->draws - 1 - next].key);
  return a + (v - (double)k) * (b - a);
}

static double deviation_of(const resample *r) {
  double mean = 0, sum = 0;
  for (int64_t b = 0; b < r->draws; b++) mean += r->drawn[b] / (double)r->draws;
  for (int64_t b = 0; b < r->draws; b++) sum += (r->drawn[b] - mean) * (r->drawn[b] - mean);
  return __builtin_sqrt(sum / (double)(r->draws - 1));
}

/* The rows of a set that have a weight. False: a number that is not finite, or no row. */
static bool take_rows(resample *r) {
  bool good = true;
  tensor_load(r->c, r->c->in.view + VALUES, r->set * r->n, r->n, r->x);
  score_load_weights(r->c, OTHER, r->set, r->w);
  r->count = score_drop_rows(r->n, r->w, 1, &r->x);
  for (int64_t i = 0; i < r->count; i++) good &= r->x[i] - r->x[i] == 0;
  return good && r->count > 0;
}

static void write_interval(resample *r) {
  const double tail = (1 - tensor_param(r->c, "level")) / 2;
  double sums[2] = {0};
  const bool good = take_rows(r);
  for (int64_t i = 0; i < r->count && good; i++) sums[0] += r->w[i] * r->x[i], sums[1] += r->w[i];
  tensor_put(r->c, MEAN, r->set, good ? mean_of(sums) : NAN_);
  if (good) draw_all(r, bootstrap_task);
  for (int64_t b = 0; b < r->draws && good; b++)
    r->room[0][b] = (sort_entry){sort_key_descending(r->drawn[b]), 0};
  const sort_entry *order = good ? sort_numbers(r->room[0], r->room[1], r->draws, r->counts) : NULL;
  tensor_put(r->c, LOW, r->set, good ? quantile_of(r, order, tail) : NAN_);
  tensor_put(r->c, HIGH, r->set, good ? quantile_of(r, order, 1 - tail) : NAN_);
  tensor_put(r->c, DEVIATION, r->set, good && r->draws > 1 ? deviation_of(r) : NAN_);
}

smx_status score_interval(const tensor_call *c) {
  resample r;
  smx_status status = score_check_weight(c, OTHER);
  if (status == SMX_OK) status = resample_open(&r, c);
  if (status != SMX_OK) return status;
  for (; r.set < c->dims.lead_count; r.set++) write_interval(&r);
  smx_free(c->ctx, r.x);
  return SMX_OK;
}

/* ---- paired_test ---- */

/* |sum of the differences with signs of draw b|; bit i of 128 of a block is that of row i. */
static void signs_task(void *arg, int64_t task) {
  resample *r = arg;
  const uint64_t blocks = (uint64_t)(r->n + 2 * WORD - 1) / (2 * WORD);
  for (int64_t b = task * DRAWS; b < last_draw(r, task); b++) {
    double sum = 0;
    uint64_t words[2] = {(uint64_t)b, 0};
    for (int64_t i = 0; i < r->n; i++) {
      const uint64_t block = (uint64_t)b * blocks + (uint64_t)i / (2 * WORD);
      if (!r->every && i % (2 * WORD) == 0)
        r->kernels->draw(r->seed, (uint64_t)r->set, SCORE_DRAW_SIGNS, block, words);
      sum += words[i / WORD % 2] >> i % WORD & 1 ? -r->x[i] : r->x[i];
    }
    r->drawn[b] = __builtin_fabs(sum);
  }
}

/* The share of draws whose sum is as far from 0; with the signs that there are as one more, but
 * where all signs are taken. What rounding may have taken off does not count as nearer. */
static void write_test(resample *r, int64_t draws) {
  const tensor_call *c = r->c;
  double sum = 0, size = 0, count = 0;
  tensor_load(c, c->in.view + VALUES, r->set * r->n, r->n, r->x);
  tensor_load(c, c->in.view + OTHER, r->set * r->n, r->n, r->w);
  for (int64_t i = 0; i < r->n; i++) r->x[i] -= r->w[i], sum += r->x[i], size += __builtin_fabs(r->x[i]);
  const bool good = r->n > 0 && size - size == 0;
  r->every = r->n < 40 && (int64_t)1 << r->n <= draws;
  r->draws = r->every ? (int64_t)1 << r->n : draws;
  if (good) draw_all(r, signs_task);
  for (int64_t b = 0; b < r->draws && good; b++) count += r->drawn[b] >= __builtin_fabs(sum) - 1e-12 * size;
  const double p = r->every ? count / (double)r->draws : (1 + count) / (1 + (double)r->draws);
  tensor_put(c, MEAN, r->set, good ? sum / (double)r->n : NAN_), tensor_put(c, P, r->set, good ? p : NAN_);
}

smx_status score_paired(const tensor_call *c) {
  resample r;
  const smx_status status = resample_open(&r, c);
  if (status != SMX_OK) return status;
  for (const int64_t draws = r.draws; r.set < c->dims.lead_count; r.set++) write_test(&r, draws);
  smx_free(c->ctx, r.x);
  return SMX_OK;
}
