/* matrix/dawid_skene.c - classes of items, and the skills of workers, from the workers' votes.
 *
 * Agreement with the majority: a worker's skill is the share of his votes that agree with the
 * majority of the votes on their items, skill_w = sum [l = top_i] / sum 1, and an item's classes
 * are the shares of skill in its votes.
 *
 * Dawid and Skene's model: an item has class k with probability prior_k, and a worker who sees it
 * votes l with probability error_kl of his own. Both and the classes are found by expectation
 * maximisation, starting from each item's shares of votes:
 *
 *     prior_k = mean_i T_ik,  T_ik ~ prior_k prod error^w_kl,
 *     error^w_kl = sum T_ik over w's votes for l / the same over all his votes
 *
 * All of it in double, in the order of the votes and of the indices. The products are kept as a
 * number and a power of 2^512, so that no number of votes takes them out of range and no logarithm
 * is needed. */
#include "base/enter.h"
#include "driver/internal.h"
#include <string.h>

typedef struct election {
  const char *name;
  size_t count, items, workers, classes;
  const smx_vote *votes;
  double *posterior, *prior, *errors, *product;
  int64_t *power, *seen; /* of the products, or how many votes a worker has; how many an item has */
} election;

static smx_status check_votes(const election *e) {
  const char *missing = e->count && !e->votes                     ? "votes"
                        : e->items && e->classes && !e->posterior ? "posterior"
                                                                  : NULL;
  if (missing) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", e->name, missing);
  for (size_t v = 0; v < e->count; v++) {
    const smx_vote *at = e->votes + v;
    if (at->item < 0 || (uint64_t)at->item >= e->items || at->worker < 0 ||
        (uint64_t)at->worker >= e->workers)
      return smx_fail(SMX_ERR_SHAPE, "%s: vote %zu is about item %lld by worker %lld; there are %zu and %zu",
                      e->name, v, (long long)at->item, (long long)at->worker, e->items, e->workers);
    if (at->label < 0 || (uint64_t)at->label >= e->classes)
      return smx_fail(SMX_ERR_TARGET, "%s: vote %zu has label %lld, not 0..%lld", e->name, v,
                      (long long)at->label, (long long)e->classes - 1);
  }
  return SMX_OK;
}
static smx_status check_options(const smx_dawid_skene_options *o) {
  if (o && o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "smx_dawid_skene: options.size is %zu, not %zu", o->size, sizeof *o);
  if (o && !(o->tolerance >= 0 && o->tolerance <= 1))
    return smx_fail(SMX_ERR_PARAM, "smx_dawid_skene: options.tolerance is %g, not 0..1", o->tolerance);
  if (o && o->steps < 0)
    return smx_fail(SMX_ERR_PARAM, "smx_dawid_skene: options.steps is %lld", (long long)o->steps);
  return SMX_OK;
}

static void shares_of_votes(election *e) {
  memset(e->seen, 0, e->items * sizeof *e->seen);
  for (size_t i = 0; i < e->items * e->classes; i++) e->posterior[i] = 0; /* NULL where there are none */
  for (size_t v = 0; v < e->count; v++) {
    e->seen[e->votes[v].item]++;
    e->posterior[(size_t)e->votes[v].item * e->classes + (size_t)e->votes[v].label]++;
  }
  for (size_t i = 0; i < e->items; i++)
    for (size_t k = 0; k < e->classes; k++) {
      double *t = e->posterior + i * e->classes + k;
      *t = e->seen[i] ? *t / (double)e->seen[i] : 1 / (double)e->classes;
    }
}

/* The maximisation: prior and errors from the items' classes. A worker whose votes have no share in
 * a class is taken to vote uniformly for it. */
static void estimate(election *e) {
  const size_t c = e->classes;
  size_t voted = 0;
  memset(e->prior, 0, c * sizeof *e->prior);
  memset(e->errors, 0, e->workers * c * c * sizeof *e->errors);
  for (size_t i = 0; i < e->items; i++) {
    voted += e->seen[i] != 0;
    for (size_t k = 0; k < c && e->seen[i]; k++) e->prior[k] += e->posterior[i * c + k];
  }
  for (size_t k = 0; k < c; k++) e->prior[k] = voted ? e->prior[k] / (double)voted : 1 / (double)c;
  for (size_t v = 0; v < e->count; v++)
    for (size_t k = 0; k < c; k++)
      e->errors[((size_t)e->votes[v].worker * c + k) * c + (size_t)e->votes[v].label] +=
          e->posterior[(size_t)e->votes[v].item * c + k];
  for (size_t row = 0; row < e->workers * c; row++) {
    double *error = e->errors + row * c, sum = 0;
    for (size_t l = 0; l < c; l++) sum += error[l];
    for (size_t l = 0; l < c; l++) error[l] = sum > 0 ? error[l] / sum : 1 / (double)c;
  }
}

static void multiply_votes(election *e) {
  const size_t c = e->classes;
  for (size_t i = 0; i < e->items * c; i++) e->product[i] = e->prior[i % c], e->power[i] = 0;
  for (size_t v = 0; v < e->count; v++)
    for (size_t k = 0; k < c; k++) {
      const size_t at = (size_t)e->votes[v].item * c + k;
      e->product[at] *= e->errors[((size_t)e->votes[v].worker * c + k) * c + (size_t)e->votes[v].label];
      if (e->product[at] < 0x1p-512 && e->product[at] > 0) e->product[at] *= 0x1p512, e->power[at]--;
    }
}

/* The expectation: the items' classes from prior and errors; returns the largest change. */
static double judge(election *e) {
  const size_t c = e->classes;
  double change = 0;
  multiply_votes(e);
  for (size_t i = 0; i < e->items; i++) {
    double *p = e->product + i * c, sum = 0;
    const int64_t *power = e->power + i * c;
    int64_t top = INT64_MIN;
    for (size_t k = 0; k < c; k++)
      if (p[k] > 0 && power[k] > top) top = power[k];
    for (size_t k = 0; k < c; k++)
      p[k] = power[k] == top ? p[k] : power[k] == top - 1 ? p[k] * 0x1p-512 : 0, sum += p[k];
    for (size_t k = 0; k < c && sum > 0; k++) {
      double *t = e->posterior + i * c + k, before = *t, moved;
      *t = p[k] / sum;
      moved = *t < before ? before - *t : *t - before;
      if (moved > change) change = moved;
    }
  }
  return change;
}

/* Memory for outputs that the caller did not give, and for products. */
static smx_status election_open(election *e, smx_context *ctx, char **memory) {
  const size_t most = PTRDIFF_MAX / 64;
  size_t cells, errors;
  if (e->items > most || __builtin_mul_overflow(e->items, e->classes, &cells) || cells > most ||
      __builtin_mul_overflow(e->classes, e->classes, &errors) ||
      __builtin_mul_overflow(errors, e->workers, &errors) || errors > most)
    return smx_fail(SMX_ERR_SHAPE, "%s: items %zu, workers %zu, classes %zu overflow", e->name, e->items,
                    e->workers, e->classes);
  const size_t all = 2 * cells + e->items + e->classes + errors;
  double *at = smx_alloc(ctx, (all + 1) * sizeof *at);
  if (!at) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %zu numbers", e->name, all);
  *memory = (char *)at;
  e->product = at, at += cells;
  e->power = (int64_t *)at, at += cells;
  e->seen = (int64_t *)at, at += e->items;
  if (!e->prior) e->prior = at;
  at += e->classes;
  if (!e->errors) e->errors = at;
  return SMX_OK;
}

smx_status smx_dawid_skene(smx_context *ctx, const smx_dawid_skene_options *options, size_t count,
                           const smx_vote *votes, size_t items, size_t workers, size_t classes,
                           double *posterior, double *prior, double *errors, int64_t *steps) {
  SMX_ENTER(ctx);
  election e = {.name = "smx_dawid_skene",
                .count = count,
                .items = items,
                .workers = workers,
                .classes = classes,
                .votes = votes,
                .posterior = posterior,
                .prior = prior,
                .errors = errors};
  char *memory = NULL;
  smx_status status = check_options(options);
  if (status == SMX_OK) status = check_votes(&e);
  if (status == SMX_OK && classes == 0 && steps) *steps = 0;
  if (status != SMX_OK || classes == 0) return status;
  status = election_open(&e, ctx, &memory);
  if (status != SMX_OK) return status;
  const int64_t most = options && options->steps ? options->steps : 100;
  const double tolerance = options && options->tolerance > 0 ? options->tolerance : 1e-9;
  int64_t step = 0;
  shares_of_votes(&e);
  for (double change = 1; step < most && change > tolerance; step++) {
    estimate(&e);
    change = judge(&e);
  }
  if (steps) *steps = step;
  smx_free(ctx, memory);
  return SMX_OK;
}

/* The majority of an item's votes; of equally many the first class. */
static int64_t majority(const election *e, size_t item) {
  const double *share = e->posterior + item * e->classes;
  size_t top = 0;
  for (size_t k = 1; k < e->classes; k++)
    if (share[k] > share[top]) top = k;
  return (int64_t)top;
}

static void agree(const election *e, double *skill) {
  for (size_t w = 0; w < e->workers; w++) skill[w] = 0, e->power[w] = 0;
  for (size_t v = 0; v < e->count; v++) {
    skill[e->votes[v].worker] += e->votes[v].label == majority(e, (size_t)e->votes[v].item);
    e->power[e->votes[v].worker]++;
  }
  for (size_t w = 0; w < e->workers; w++) skill[w] = e->power[w] ? skill[w] / (double)e->power[w] : 0;
}

/* A worker who agrees with an item's majority has some skill, so a sum of 0 means no votes. */
static void weigh_votes(const election *e, const double *skill) {
  const size_t c = e->classes;
  memset(e->product, 0, e->items * c * sizeof *e->product);
  for (size_t v = 0; v < e->count; v++)
    e->product[(size_t)e->votes[v].item * c + (size_t)e->votes[v].label] += skill[e->votes[v].worker];
  for (size_t i = 0; i < e->items; i++) {
    double sum = 0;
    for (size_t k = 0; k < c; k++) sum += e->product[i * c + k];
    for (size_t k = 0; k < c && sum > 0; k++) e->posterior[i * c + k] = e->product[i * c + k] / sum;
  }
}

smx_status smx_votes_agreement(smx_context *ctx, size_t count, const smx_vote *votes, size_t items,
                               size_t workers, size_t classes, double *posterior) {
  election e = {"worker_agreement", count, items, workers, classes, votes,
                posterior,          NULL,  NULL,  NULL,    NULL,    NULL};
  size_t cells, all;
  smx_status status = check_votes(&e);
  if (status != SMX_OK || items == 0 || classes == 0) return status;
  if (__builtin_mul_overflow(items, classes, &cells) || __builtin_add_overflow(cells, items, &all) ||
      workers > PTRDIFF_MAX / 64 || all > PTRDIFF_MAX / 64)
    return smx_fail(SMX_ERR_SHAPE, "%s: items %zu, workers %zu, classes %zu overflow", e.name, items, workers,
                    classes);
  double *room = smx_alloc(ctx, (all + 2 * workers + 1) * sizeof *room);
  if (!room) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %zu numbers", e.name, all + 2 * workers);
  e.product = room, e.seen = (int64_t *)(room + cells), e.power = (int64_t *)(room + all);
  double *skill = room + all + workers;
  shares_of_votes(&e);
  agree(&e, skill);
  weigh_votes(&e, skill);
  smx_free(ctx, room);
  return SMX_OK;
}
