/* sample/ops.c - categorical_sample: a draw from softmax(x / T), by the argmax of perturbed scores (best.h) or by the inverse of the distribution
 * function, and its logarithm. Compiled once per instruction set and real type. Others of the room: ops_relaxed.c, ops_sets.c, ops_maps.c. */
#include "best.h"
#include "engine/scores.h"

enum { X, STREAM };                 /* inputs */
enum { INDEX, LOG };                /* outputs */
enum { TEMPERATURE, METHOD, SEED }; /* parameters */
enum { GUMBEL, CDF };               /* METHOD */
enum { BEST, SUM, TOTAL, WALK };    /* stages */

SMI consts draw_setup(const row_call *c, const span *s) {
  (void)s;
  return factor(1 / c->params[TEMPERATURE]);
}
static const exp_body draw_body = {.setup = draw_setup,
                                   .scaled = true,
                                   .scores = &scaled_scores,
                                   .kind = EXP_SCALAR,
                                   .others = true,
                                   .scalar = lse_scalar,
                                   .empty = -R_INF,
                                   .inf = R_INF};

SMI draws draws_of(const row_call *c, purpose p) {
  return (draws){(uint64_t)c->params[SEED], (uint64_t) * (const int64_t *)c->src[STREAM], p};
}
SMI bool greedy(const row_call *c) { return c->params[TEMPERATURE] == 0; }
SMI bool by_cdf(const row_call *c) { return c->params[METHOD] == CDF && !greedy(c); }

/* ---- the inverse of the distribution function: blocks of 256 terms are summed left to right in double, and so are the blocks; the first
 * element at which the sum exceeds u times the total is drawn ---- */

enum { WALK_BLOCK = 256 };

/* The terms of n <= GROUP elements; +inf share the mass where there are some. */
static void terms_of(const row_call *c, const row_state *st, const exp_row *r, size_t i, size_t n, real *terms) {
  const span s = span_of(c, 0);
  const consts k = draw_setup(c, &s);
  for (size_t j = 0; j < n; j += LANES) {
    vreal d;
    int cnt = lanes_left(n - j);
    vreal term = st->far ? v_select(v_lt(v_set1(R_MAX), at(s.src[X], i + j, cnt)), v_set1(1), v_set1(0))
                         : exp_term(score_scaled(&s, &k, &r->shift, i + j, cnt), true, r->ref, &d);
    put(terms, j, cnt, term);
  }
}

SMI exp_row draw_row(const row_call *c, const row_state *st) {
  const span s = span_of(c, 0);
  const consts k = draw_setup(c, &s);
  return st->far ? (exp_row){0} : exp_row_of(&draw_body, &s, &k, st);
}

static double block_sum(const real *terms, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)terms[i];
  return sum;
}

/* Terms of one group, and where the running sum (carry) first exceeds `target`: in the state's key, with its x in carry2. */
static void walk_group(const real *x, const real *terms, size_t n, int64_t first, double target, row_state *st) {
  for (size_t b = 0; b < n && (int64_t)st->key < 0; b += WALK_BLOCK) {
    size_t count = n - b < WALK_BLOCK ? n - b : WALK_BLOCK;
    double before = st->carry, within = 0;
    st->carry += block_sum(terms + b, count);
    if (st->stage == TOTAL || !(st->carry > target)) continue;
    for (size_t i = b; i < b + count && (int64_t)st->key < 0; i++) {
      within += (double)terms[i];
      if (before + within > target && terms[i] > 0) st->key = (uint64_t)(first + (int64_t)i), st->carry2 = (double)x[i];
    }
  }
}

static void walk_pass(const row_call *c, row_state *st) {
  const exp_row r = draw_row(c, st);
  const draws d = draws_of(c, PURPOSE_UNIFORM);
  const real *x = (const real *)c->src[X];
  real terms[GROUP] __attribute__((aligned(64)));
  double target = st->pick.value * uniform_of(draw_word(&d, 0));
  for (size_t g = 0; g < c->count; g += GROUP) {
    size_t n = group_size(g, c->count), i = c->start - c->origin + g;
    terms_of(c, st, &r, i, n, terms);
    walk_group(x + i, terms, n, (int64_t)(c->start + g), target, st);
  }
}

/* ---- the program ---- */

static void categorical_begin(const row_call *c, row_state *st) {
  const bool cdf = by_cdf(c);
  best_begin(st);
  st->stage = cdf ? SUM : BEST;
  if (cdf) exp_begin(&draw_body, c, st);
}
static void categorical_pass(const row_call *c, row_state *st, row_part *parts) {
  const draws d = draws_of(c, PURPOSE_GUMBEL);
  if (st->stage == SUM) exp_pass(&draw_body, c, st, parts);
  else if (st->stage == BEST) best_pass(c, parts, c->params[TEMPERATURE], greedy(c) ? NULL : &d);
  else walk_pass(c, st);
}
static void categorical_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == SUM) exp_fold(c, st, parts, count);
  else if (st->stage == BEST) best_fold(st, parts, count);
}

/* A row without a draw: index -1. */
static bool draw_none(const row_call *c, row_state *st, bool nan) {
  st->empty = !nan;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  *(int64_t *)c->dst[INDEX] = -1;
  if (c->dst[LOG]) *(real *)c->dst[LOG] = nan || c->on_empty == SMX_EMPTY_NAN ? r_nan() : -R_INF;
  return false;
}

/* log p of what was drawn, whose x is in carry2. */
static bool draw_finish(const row_call *c, row_state *st) {
  *(int64_t *)c->dst[INDEX] = (int64_t)st->key;
  if (!c->dst[LOG]) return false;
  double log = 0;
  if (st->far && !greedy(c)) log = -d_log1p(st->sum - 1);
  else if (!greedy(c)) {
    const exp_row r = draw_row(c, st);
    log = (st->carry2 - (double)r.shift) / c->params[TEMPERATURE] - ((double)r.top + (double)r.top_l) - d_log1p(r.others);
  }
  *(real *)c->dst[LOG] = v_first(v_clean(v_set1((real)log)));
  return false;
}

static bool categorical_after_sum(const row_call *c, row_state *st) {
  real lse = -R_INF;
  row_call sum = *c;
  sum.dst[0] = &lse;
  if (exp_next(&draw_body, &sum, st)) return true;
  if (lse != lse || st->empty) return draw_none(c, st, lse != lse);
  st->far = lse > R_MAX && st->mode == EXP_CLASSIFY; /* or a finite score overflowed when it was divided */
  if (!by_cdf(c)) return draw_finish(c, st);
  st->stage = TOTAL;
  st->serial = true;
  st->carry = 0, st->key = UINT64_MAX;
  return true;
}

static bool categorical_next(const row_call *c, row_state *st) {
  if (st->stage == SUM) return categorical_after_sum(c, st);
  if (st->stage == TOTAL) {
    st->pick.value = st->carry;
    st->stage = WALK;
    st->carry = 0;
    return true;
  }
  if (st->stage == WALK) return draw_finish(c, st);
  if (st->nan || (st->far && c->on_inf != SMX_INF_LIMIT)) return draw_none(c, st, true);
  if ((int64_t)st->key < 0) return draw_none(c, st, false);
  if (!c->dst[LOG] || greedy(c)) return draw_finish(c, st);
  st->stage = SUM;
  exp_begin(&draw_body, c, st);
  return true;
}
static void categorical_rows(row_call *c) {
  static const row_kernel kernel = {
      .begin = categorical_begin, .pass = categorical_pass, .fold = categorical_fold, .next = categorical_next};
  run_rows(&kernel, c);
}

FORWARD_OPERATOR(categorical_sample, categorical)
