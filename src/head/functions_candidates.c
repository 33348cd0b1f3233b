/* head/functions_candidates.c - sample_classes: classes for sampled_softmax and nce_loss, and how
 * often each is expected among them, as TensorFlow's candidate samplers say it (range_sampler.cc).
 * Class j has the probability
 *
 *   P_j = log((j + 2) / (j + 1)) / log(c + 1),  1 / c,  or counts_j^power over their sum
 *
 * k draws expect k P_j of it. Where a class that is there is drawn again, T draws were made, and
 * 1 - (1 - P_j)^T is expected; where none was, k P_j as well. */
#include <string.h>

#include "driver/carve.h"
#include "functions.h"

enum { TARGET, COUNTS };                 /* inputs */
enum { CLASS, TRUE_EXPECTED, EXPECTED }; /* outputs */
enum { LOG_UNIFORM, UNIFORM };           /* choices of `form` */
enum { STREAM_BITS = 41, PATIENCE = 1000 /* draws for each class, at most */ };

typedef struct candidates {
  const tensor_call *c;
  const score_kernels *math;
  int64_t classes, count, slots, tries;
  uint64_t seed;
  double log_range;
  double *sums;  /* of the weights of the first classes; NULL: there are no counts */
  int64_t *slot; /* of classes that were drawn, plus 1: a table without gaps behind a class's place */
} candidates;

smx_status candidates_sizes(dims *d) {
  const int64_t classes = (int64_t)dims_param(d, "classes", 1), counts = dims_value(d, "c", 0),
                count = (int64_t)dims_param(d, "count", 1);
  if (counts >= 0 && counts != classes)
    return smx_fail(SMX_ERR_SHAPE, "%s: there are counts for %lld classes, not %lld", d->op->name,
                    (long long)counts, (long long)classes);
  if (dims_param(d, "unique", 1) != 0 && count > classes)
    return smx_fail(SMX_ERR_PARAM, "%s: count is %lld, more than the %lld classes", d->op->name,
                    (long long)count, (long long)classes);
  dims_set(d, "s", 0, count);
  return SMX_OK;
}

/* log(1 + x), -1 <= x: what 1 + x loses is put back. */
static double log1p_of(const candidates *p, double x) {
  const double u = 1 + x;
  return u == 0 ? -__builtin_inf() : p->math->log(u) + (x - (u - 1)) / u;
}

static double probability(const candidates *p, int64_t class) {
  if (p->sums) return (p->sums[class + 1] - p->sums[class]) / p->sums[p->classes];
  if (tensor_param(p->c, "form") == UNIFORM) return 1 / (double)p->classes;
  return log1p_of(p, 1 / ((double)class + 1)) / p->log_range;
}
static double expected(const candidates *p, int64_t class) {
  const double share = probability(p, class);
  if (p->tries == p->count) return (double)p->count * share;
  return -p->math->expm1((double)p->tries * log1p_of(p, -share));
}

/* The class whose weights begin at or before x: one of weight 0 begins where the next does. */
static int64_t class_at(const candidates *p, double x) {
  int64_t low = 0, high = p->classes;
  while (low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    if (p->sums[middle] <= x) low = middle;
    else high = middle;
  }
  while (low > 0 && p->sums[low + 1] == p->sums[low]) low--; /* x is the sum of all */
  return low;
}

/* Draw number i. */
static int64_t draw(const candidates *p, int64_t i) {
  uint64_t words[2];
  p->math->draw(p->seed, (uint64_t)1 << STREAM_BITS, SCORE_DRAW_CLASSES, (uint64_t)i / 2, words);
  const double u = ((double)(words[i % 2] >> 12) + 0.5) * 0x1p-52;
  if (p->sums) return class_at(p, u * p->sums[p->classes]);
  const double at =
      tensor_param(p->c, "form") == UNIFORM ? u * (double)p->classes : p->math->exp(u * p->log_range) - 1;
  return at < (double)p->classes ? (int64_t)at : p->classes - 1;
}

/* Whether a class is drawn for the first time. */
static bool is_new(const candidates *p, int64_t class) {
  int64_t at = (int64_t)((uint64_t) class * 0x9e3779b97f4a7c15u >> 1) % p->slots;
  for (; p->slot[at]; at = (at + 1) % p->slots)
    if (p->slot[at] == class + 1) return false;
  p->slot[at] = class + 1;
  return true;
}

static smx_status draw_all(candidates *p, int64_t *class) {
  int64_t found = 0;
  while (found < p->count) {
    if (p->tries / PATIENCE > p->count + PATIENCE)
      return smx_fail(SMX_ERR_PARAM, "%s: count is %lld, but %lld draws have only %lld different classes",
                      p->c->op->name, (long long)p->count, (long long)p->tries, (long long)found);
    class[found] = draw(p, p->tries++);
    if (!p->slot || is_new(p, class[found])) found++;
  }
  return SMX_OK;
}

/* Sums of the weights, or the first count that is none. */
static smx_status add_counts(candidates *p) {
  const double power = tensor_param(p->c, "power");
  p->sums[0] = 0;
  for (int64_t j = 0; j < p->classes; j++) {
    double x;
    tensor_load(p->c, p->c->in.view + COUNTS, j, 1, &x);
    if (!(x >= 0 && x < __builtin_inf()))
      return smx_fail(SMX_ERR_PARAM, "%s: counts: number %lld is %g, not 0 or more", p->c->op->name,
                      (long long)j, x);
    p->sums[j + 1] = p->sums[j] + (x > 0 ? p->math->exp(power * p->math->log(x)) : 0);
  }
  const double all = p->sums[p->classes];
  if (all > 0 && all < __builtin_inf()) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: counts: their powers sum to %g", p->c->op->name, all);
}

static void put(const candidates *p, const int64_t *class) {
  const tensor_call *const c = p->c;
  const int64_t *const target = (const int64_t *)(const void *)c->in.view[TARGET].data;
  const int64_t ignore = (int64_t)tensor_param(c, "ignore_index");
  memcpy(c->out.view[CLASS].data, class, (size_t)p->count * sizeof *class);
  for (int64_t i = 0; i < p->count; i++) tensor_put(c, EXPECTED, i, expected(p, class[i]));
  for (int64_t i = 0; i < tensor_dim(c, "n") * tensor_dim(c, "t"); i++)
    tensor_put(c, TRUE_EXPECTED, i, target[i] == ignore ? 1 : expected(p, target[i]));
}

static int64_t *divide(candidates *p, carver *m) {
  const bool unique = tensor_param(p->c, "unique") != 0;
  int64_t *const class = carve(m, p->count, 1, sizeof *class);
  p->slots = p->count < INT64_MAX / 4 ? 2 * p->count + 1 : INT64_MAX;
  p->sums = p->c->in.given[COUNTS] ? carve(m, p->classes + 1, 1, sizeof *p->sums) : NULL;
  p->slot = unique ? carve(m, p->slots, 1, sizeof *p->slot) : NULL;
  return class;
}

smx_status sample_classes(const tensor_call *c) {
  candidates p = {.c = c, .math = head_math(), .seed = (uint64_t)tensor_param(c, "seed")};
  carver m = {.fits = true};
  smx_status status = SMX_OK;
  p.classes = (int64_t)tensor_param(c, "classes"), p.count = (int64_t)tensor_param(c, "count");
  p.log_range = p.math->log((double)p.classes + 1);
  divide(&p, &m);
  char *const memory = m.fits ? smx_alloc(c->ctx, (size_t)m.at) : NULL;
  if (!memory)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld draws", c->op->name, (long long)p.count);
  m = (carver){.base = memory, .fits = true};
  int64_t *const class = divide(&p, &m);
  if (p.slot) memset(p.slot, 0, (size_t)p.slots * sizeof *p.slot);
  if (p.sums) status = add_counts(&p);
  if (status == SMX_OK) status = draw_all(&p, class);
  if (status == SMX_OK) put(&p, class);
  smx_free(c->ctx, memory);
  return status;
}
