/* sample/ops_topk_decode.c - operators that need only the few best elements of a row:
 * soft_thinking_token, subset_softmax_confidence, confidence_commit. See ops.c. */
#include "decode.h"

/* row_call.work. */
typedef struct few_work {
  few f;
  double h[FEW_MOST], p[FEW_MOST], sorted[FEW_MOST];
  int64_t place[FEW_MOST], index[FEW_MOST];
} few_work;

/* ---- soft_thinking_token ----
 *
 * of the best candidates, those that top-p and min-p leave; noise; the k best of what comes out */

enum { X, STREAM };     /* inputs */
enum { INDEX, WEIGHT }; /* outputs */
/* parameters */
enum {
  SOFT_K,
  TEMPERATURE,
  CANDIDATES,
  TOP_P,
  MIN_P,
  NOISE,
  CONCENTRATION,
  SCALE,
  NOISE_TEMPERATURE,
  SEED,
  LOW,
  HIGH
};
enum { NOISE_NONE, NOISE_DIRICHLET, NOISE_GUMBEL }; /* NOISE */

/* The logarithms, up to a constant, of the candidates' weights: (x - max) / T. Of equal ones
 * at T = 0, the first. */
static void soft_scores(const row_call *c, const row_state *st, few *f, double *h) {
  const double t = c->params[TEMPERATURE];
  if (t == 0) f->count = 1;
  for (size_t i = 0; i < f->count; i++) {
    const double away = minmax_away(st, (double)f->x[i]);
    h[i] = away == 0 ? 0 : away / t;
  }
}

/* How many candidates top-p and min-p leave, best first: those before which there is less than
 * top-p of the mass, and which are at least min-p times as likely as the first. The first always
 * stays. */
static size_t soft_survivors(const row_call *c, const double *p, size_t n) {
  size_t left = 1;
  double before = p[0];
  while (left < n && before < c->params[TOP_P] && p[left] >= c->params[MIN_P] * p[0]) before += p[left++];
  return left;
}

/* New scores from probabilities: logarithms of gamma variates of the shapes a p, or perturbed
 * log p. The noise of a token is that of its index. */
static void soft_noise(const row_call *c, const few *f, const double *p, double *h) {
  const uint64_t seed = (uint64_t)c->params[SEED], stream = (uint64_t) * (const int64_t *)c->src[STREAM];
  const draws d = {seed, stream, PURPOSE_RELAXED};
  for (size_t i = 0; i < f->count && c->params[NOISE] != NOISE_NONE; i++) {
    const uint64_t index = (uint64_t)f->index[i];
    if (!(p[i] > 0)) h[i] = (double)-R_INF;
    else if (c->params[NOISE] == NOISE_GUMBEL)
      h[i] = (d_log(p[i], 0) +
              c->params[SCALE] * gumbel_within(draw_word(&d, index), c->params[LOW], c->params[HIGH])) /
             c->params[NOISE_TEMPERATURE];
    else h[i] = log_gamma_of(seed, stream, index, c->params[CONCENTRATION] * p[i]);
  }
}

/* Keeps the k best of the new scores and puts them in order. */
static void soft_order(few_work *w, size_t k) {
  few *const f = &w->f;
  double *const h = w->h, *const sorted = w->sorted, max = (double)-R_INF;
  int64_t *const place = w->place, *const index = w->index;
  for (size_t i = 0; i < f->count; i++) max = h[i] > max ? h[i] : max;
  for (size_t i = 0; i < f->count; i++) f->x[i] = (real)(h[i] - max), place[i] = (int64_t)i;
  /* candidates stand in the order of their probability: so are ties decided */
  topk_sort(f->x, place, f->count);
  f->count = k < f->count ? k : f->count;
  for (size_t i = 0; i < f->count; i++) sorted[i] = h[place[i]], index[i] = f->index[place[i]];
  memcpy(h, sorted, f->count * sizeof *h);
  memcpy(f->index, index, f->count * sizeof *index);
}

static void soft_fill(const row_call *c, size_t from, real weight) {
  for (size_t i = from; i < (size_t)c->params[SOFT_K]; i++)
    ((int64_t *)c->dst[INDEX])[i] = -1, ((real *)c->dst[WEIGHT])[i] = weight;
}
#define SOFT_LEAST 1e-300 /* tokens of less weight are left out */
static void soft_finish(const row_call *c, row_state *st) {
  const size_t k = (size_t)c->params[SOFT_K];
  few_work *const w = c->work;
  few *const f = &w->f;
  double *const h = w->h, *const p = w->p;
  few_sorted(st, f);
  soft_scores(c, st, f, h);
  few_softmax(h, f->count, p);
  f->count = soft_survivors(c, p, f->count);
  /* the published order: the k best first */
  if (c->params[NOISE] == NOISE_GUMBEL && f->count > k) f->count = k;
  few_softmax(h, f->count, p);
  soft_noise(c, f, p, h);
  soft_order(w, k);
  few_softmax(h, f->count, p);
  while (!(p[f->count - 1] >= SOFT_LEAST)) f->count--;
  for (size_t i = 0; i < f->count; i++)
    ((int64_t *)c->dst[INDEX])[i] = f->index[i], ((real *)c->dst[WEIGHT])[i] = r_clean(p[i]);
  soft_fill(c, f->count, 0);
}

static void soft_begin(const row_call *c, row_state *st) { few_begin(st); }
static void soft_pass(const row_call *c, row_state *st, row_part *parts) { few_pass(c, st, parts); }
static bool soft_next(const row_call *c, row_state *st) {
  if (few_next(c, st, (size_t)c->params[CANDIDATES])) return true;
  st->empty = minmax_empty(st);
  if (st->stage == FEW_DONE) soft_finish(c, st);
  else if (!st->empty) soft_fill(c, 0, r_nan());
  else if (c->on_empty != SMX_EMPTY_ERROR) soft_fill(c, 0, c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
  return false;
}
SERIAL_KERNEL(soft)

/* ---- subset_softmax_confidence ----
 *
 * p of a token in the softmax of the k largest; 1 / (1 + their entropy) */

enum { TOKEN = 1, SUBSET_K = 0 }; /* input; parameter */
enum { CONFIDENCE, CERTAINTY };   /* outputs */

static void named_subset_finish(const row_call *c, const row_state *st) {
  const int64_t token = *(const int64_t *)c->src[TOKEN];
  few_work *const w = c->work;
  const few *const f = &w->f;
  double *const e = w->h, sum = 0, moment = 0, at_token = 0;
  few_sorted(st, &w->f);
  for (size_t i = 0; i < f->count; i++) {
    e[i] = d_exp(minmax_away(st, (double)f->x[i]));
    if (f->index[i] == token) at_token = e[i];
  }
  BLOCK_SUM(sum, f->count, i, e[i])
  BLOCK_SUM(moment, f->count, i, e[i] > 0 ? e[i] * minmax_away(st, (double)f->x[i]) : 0)
  *(real *)c->dst[CONFIDENCE] = r_clean(at_token / sum);
  if (c->dst[CERTAINTY]) *(real *)c->dst[CERTAINTY] = r_clean(1 / (1 + (d_log(sum, 0) - moment / sum)));
}
static void named_subset_begin(const row_call *c, row_state *st) { few_begin(st); }
static void named_subset_pass(const row_call *c, row_state *st, row_part *parts) { few_pass(c, st, parts); }
static bool named_subset_next(const row_call *c, row_state *st) {
  if (few_next(c, st, (size_t)c->params[SUBSET_K])) return true;
  if (st->stage == FEW_DONE) {
    named_subset_finish(c, st);
    return false;
  }
  const real value = minmax_empty(st) ? 0 : r_nan();
  *(real *)c->dst[CONFIDENCE] = value;
  if (c->dst[CERTAINTY]) *(real *)c->dst[CERTAINTY] = value;
  return false;
}
SERIAL_KERNEL(named_subset)

/* ---- confidence_commit: the best, and what is confident enough ---- */

enum { COMMIT, COUNT };                            /* outputs */
enum { RULE, THRESHOLD, FACTOR };                  /* parameters */
enum { BY_THRESHOLD, BY_FACTOR };                  /* RULE */
enum { COMMIT_WRITE = FEW_DONE + 1, COMMIT_FILL }; /* stages */

/* The longest prefix of the best whose n-th is at least 1 - f / (n + 1); sets where it ends. */
static void commit_prefix(const row_call *c, row_state *st) {
  few *const f = &((few_work *)c->work)->f;
  size_t n = 1;
  few_sorted(st, f);
  while (n < f->count && (double)f->x[n] >= 1 - c->params[FACTOR] / (double)(n + 2)) n++;
  st->cutoff.value = (double)f->x[n - 1], st->cutoff.limit = f->index[n - 1];
}
typedef struct commit_state {
  few_state few;
  real fill;     /* of a row without a best */
  int64_t count; /* elements that are filled */
} commit_state;
ROW_OWN_STATE(commit_state, commit_of)
static void commit_begin(const row_call *c, row_state *st) {
  few_begin(st);
  commit_of(st)->count = 0;
}
static void commit_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = part_at(c, X), value = (real)st->cutoff.value, bar = (real)c->params[THRESHOLD];
  if (st->stage < COMMIT_WRITE) {
    few_pass(c, st, parts);
    return;
  }
  real *y = part_to(c, COMMIT);
  serial_parts(c, parts);
  for (size_t i = 0; i < c->count; i++) {
    const int64_t index = (int64_t)(c->start + i);
    bool yes = x[i] > value || (x[i] == value && index <= st->cutoff.limit) ||
               (c->params[RULE] == BY_THRESHOLD && x[i] >= bar);
    yes = yes && x[i] > -R_INF;
    y[i] = st->stage == COMMIT_FILL ? commit_of(st)->fill : yes ? 1 : 0;
    commit_of(st)->count += st->stage == COMMIT_WRITE && yes;
  }
}
static bool commit_next(const row_call *c, row_state *st) {
  if (st->stage >= COMMIT_WRITE) {
    if (c->dst[COUNT]) *(int64_t *)c->dst[COUNT] = st->nan ? -1 : commit_of(st)->count;
    return false;
  }
  if (st->stage == FEW_MINMAX) {
    st->nan = minmax_nan(c, st);
    const minmax *best = minmax_of(st);
    st->cutoff.value = best->max, st->cutoff.limit = best->index;
  }
  const bool ordinary = !st->nan && !minmax_empty(st), factor = c->params[RULE] == BY_FACTOR;
  if (ordinary && factor && few_next(c, st, FEW_MOST)) return true;
  if (ordinary && factor) commit_prefix(c, st);
  commit_of(st)->fill = st->nan ? r_nan() : 0;
  st->stage = ordinary ? COMMIT_WRITE : COMMIT_FILL;
  return st->writes = true;
}
SERIAL_KERNEL(commit)

FORWARD_OPERATOR_WITH(soft_thinking_token, soft, ROW_LIST, sizeof(few_work))
FORWARD_OPERATOR_WITH(subset_softmax_confidence, named_subset, ROW_LIST, sizeof(few_work))
FORWARD_OPERATOR_WITH(confidence_commit, commit, ROW_LIST, sizeof(few_work))
