/* sample/ops.c - categorical_sample: a draw from softmax(x / T) with its logarithm, by the argmax
 * of perturbed scores (gumbel_argmax.h) or by the inverse of the distribution function; and
 * multi_token_sample, several such draws. Compiled once per instruction set and real type. Other
 * operators that draw: ops_relaxed.c, ops_sets.c, ops_maps.c. */
#include "gumbel_argmax.h"
#include "engine/scores.h"

enum { X, STREAM };                 /* inputs */
enum { INDEX, LOG };                /* outputs */
enum { TEMPERATURE, METHOD, SEED }; /* parameters */
enum { GUMBEL, CDF };               /* METHOD */
enum { BEST, SUM, TOTAL, DRAW };    /* stages */

SMI consts draw_setup(const row_call *c, const span *s) { return factor(1 / c->params[TEMPERATURE]); }
static const exp_body draw_body = {.setup = draw_setup,
                                   .scaled = true,
                                   .scores = &scaled_scores,
                                   .kind = EXP_SCALAR,
                                   .sum_without_max = true,
                                   .scalar = lse_scalar,
                                   .empty = -R_INF,
                                   .inf = R_INF};

SMI draws draws_of(const row_call *c, purpose p) {
  return (draws){(uint64_t)c->params[SEED], (uint64_t) * (const int64_t *)c->src[STREAM], p};
}
/* At T = 0, and where 1 / T is out of range: the limit is the same. */
SMI bool greedy(const row_call *c) {
  const double t = c->params[TEMPERATURE];
  return t == 0 || 1 / t > (double)R_MAX;
}
SMI bool by_cdf(const row_call *c) { return c->params[METHOD] == CDF && !greedy(c); }

/* ---- the inverse of the distribution function: blocks of 256 terms are summed left to right in
 * double, and so are the blocks; the first element at which the sum exceeds u times the total Z is
 * drawn. There always is one, and it has a term: u is at most 1 - 2^-53, Z 2^-53 is more than half
 * of the distance from Z to the number below it (or all of it, at a power of two), so u Z never
 * rounds to Z; and the second walk adds up to the Z of the first ---- */

enum { WALK_BLOCK = 256, WALK_PIECE = 2 * WALK_BLOCK };

typedef struct draw_state {
  search best;       /* by perturbed scores; or what the inverse drew: its index and x */
  bool shares;       /* the +inf of the row share the mass */
  double sum, total; /* the running sum of terms, and that of all */
} draw_state;
ROW_OWN_STATE(draw_state, draw_state_of)

/* The terms of n elements; +inf share the mass where there are some. */
static void terms_of(const row_call *c, const row_state *st, const exp_row *r, size_t i, size_t n,
                     real *terms) {
  const span s = span_of(c, 0);
  const consts k = draw_setup(c, &s);
  for (size_t j = 0; j < n; j += LANES) {
    vreal d;
    int cnt = lanes_left(n - j);
    vreal term = draw_state_of(st)->shares
                     ? v_select(v_lt(v_set1(R_MAX), at(s.src[X], i + j, cnt)), v_set1(1), v_set1(0))
                     : exp_term(score_scaled(&s, &k, &r->shift, i + j, cnt), true, r->scale_exp, &d);
    put(terms, j, cnt, term);
  }
}

SMI exp_row draw_row(const row_call *c, const row_state *st) {
  const span s = span_of(c, 0);
  const consts k = draw_setup(c, &s);
  return draw_state_of(st)->shares ? (exp_row){0} : exp_row_of(&draw_body, &s, &k, st);
}

static double block_sum(const real *terms, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)terms[i];
  return sum;
}

/* Adds n terms to the sum by blocks, up to the first element at which it exceeds `target`: returns
 * that element, or -1. */
static int64_t walk_find(const real *terms, size_t n, double *sum, double target) {
  for (size_t b = 0; b < n; b += WALK_BLOCK) {
    size_t count = n - b < WALK_BLOCK ? n - b : WALK_BLOCK;
    double before = *sum, within = 0;
    *sum += block_sum(terms + b, count);
    if (!(*sum > target)) continue;
    for (size_t i = b; i < b + count; i++) {
      within += (double)terms[i];
      if (before + within > target && terms[i] > 0) return (int64_t)i;
    }
  }
  return -1;
}

/* Terms of one piece, and where the running sum first exceeds `target`. */
static void walk_piece(const real *x, const real *terms, size_t n, int64_t first, double target,
                       row_state *st) {
  draw_state *own = draw_state_of(st);
  if (own->best.index >= 0) return;
  const int64_t at = walk_find(terms, n, &own->sum, st->stage == TOTAL ? (double)R_INF : target);
  if (at >= 0) own->best.index = first + at, own->best.x = (double)x[at];
}

static void walk_pass(const row_call *c, row_state *st) {
  const exp_row r = draw_row(c, st);
  const draws d = draws_of(c, PURPOSE_UNIFORM);
  const real *x = (const real *)c->src[X];
  real terms[WALK_PIECE];
  double target = draw_state_of(st)->total * uniform_of(draw_word(&d, 0));
  for (size_t g = 0; g < c->count; g += WALK_PIECE) {
    size_t n = c->count - g < WALK_PIECE ? c->count - g : WALK_PIECE, i = c->start - c->origin + g;
    terms_of(c, st, &r, i, n, terms);
    walk_piece(x + i, terms, n, (int64_t)(c->start + g), target, st);
  }
}

/* ---- the program ---- */

static void categorical_begin(const row_call *c, row_state *st) {
  const bool cdf = by_cdf(c);
  *draw_state_of(st) = (draw_state){0};
  argmax_begin(st);
  st->stage = cdf ? SUM : BEST;
  if (cdf) exp_begin(&draw_body, c, st);
}
static void categorical_pass(const row_call *c, row_state *st, row_part *parts) {
  const draws d = draws_of(c, PURPOSE_GUMBEL);
  if (st->stage == SUM) exp_pass(&draw_body, c, st, parts);
  else if (st->stage == BEST) argmax_pass(c, st, parts, c->params[TEMPERATURE], greedy(c) ? NULL : &d);
  else walk_pass(c, st);
}
static void categorical_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == SUM) exp_merge(c, st, parts, count);
  else if (st->stage == BEST) argmax_merge(st, parts, count);
}

/* A row without a draw: index -1. */
static bool draw_none(const row_call *c, row_state *st, bool nan) {
  st->empty = !nan;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  *(int64_t *)c->dst[INDEX] = -1;
  if (c->dst[LOG]) *(real *)c->dst[LOG] = nan || c->on_empty == SMX_EMPTY_NAN ? r_nan() : -R_INF;
  return false;
}

/* The element that was drawn, and its log p. */
static bool draw_finish(const row_call *c, row_state *st) {
  const draw_state *own = draw_state_of(st);
  *(int64_t *)c->dst[INDEX] = own->best.index;
  if (!c->dst[LOG]) return false;
  double log = 0;
  if (own->shares && !greedy(c)) log = -d_log1p(st->exp.infinite - 1);
  else if (!greedy(c)) {
    const exp_row r = draw_row(c, st);
    log = (own->best.x - (double)r.shift) / c->params[TEMPERATURE] - ((double)r.top + (double)r.top_l) -
          d_log1p(r.sum_without_max);
  }
  *(real *)c->dst[LOG] = r_clean(log);
  return false;
}

static bool categorical_after_sum(const row_call *c, row_state *st) {
  real lse = -R_INF;
  row_call sum = *c;
  sum.dst[0] = &lse;
  if (exp_next(&draw_body, &sum, st)) return true;
  if (lse != lse || st->empty) return draw_none(c, st, lse != lse);
  /* otherwise a finite score overflowed when it was divided */
  draw_state_of(st)->shares = lse > R_MAX && st->mode == EXP_CLASSIFY;
  if (!by_cdf(c)) return draw_finish(c, st);
  st->stage = TOTAL;
  st->serial = true;
  return true;
}

/* The sums have been added up: once for the total, once more for the draws. */
static bool draw_again(row_state *st, int stage) {
  draw_state *own = draw_state_of(st);
  own->total = own->sum;
  own->sum = 0;
  st->stage = stage;
  return true;
}

static bool categorical_next(const row_call *c, row_state *st) {
  const search *best = argmax_best(st);
  if (st->stage == SUM) return categorical_after_sum(c, st);
  if (st->stage == TOTAL) return draw_again(st, DRAW);
  if (st->stage == DRAW) return draw_finish(c, st);
  if (best->nan || (best->has_pos_inf && c->on_inf != SMX_INF_LIMIT)) return draw_none(c, st, true);
  if (best->index < 0) return draw_none(c, st, false);
  if (!c->dst[LOG] || greedy(c)) return draw_finish(c, st);
  st->stage = SUM;
  exp_begin(&draw_body, c, st);
  return true;
}
static const row_kernel categorical_kernel = PROGRAM(categorical);

FORWARD_OPERATOR(categorical_sample, categorical)

/* ---- multi_token_sample ----
 *
 * k draws by the inverse of the distribution function, with the variates 0 .. k - 1 */

enum { SHARED = METHOD, DRAWS = 3 }; /* parameters: the temperature is multiplied by k; k */

/* The call as the functions above get it: params holds its parameters. */
SMI row_call many_call(const row_call *c, double *params) {
  row_call own = *c;
  memcpy(params, c->params, (DRAWS + 1) * sizeof *params);
  if (params[SHARED] != 0) params[TEMPERATURE] *= params[DRAWS];
  own.params = params;
  return own;
}

/* Writes the same for all draws. */
static bool many_none(const row_call *c, row_state *st, bool nan) {
  st->empty = !nan;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  for (size_t j = 0; j < (size_t)c->params[DRAWS]; j++) ((int64_t *)c->dst[INDEX])[j] = -1;
  if (c->dst[LOG])
    fill(c->dst[LOG], (size_t)c->params[DRAWS], nan || c->on_empty == SMX_EMPTY_NAN ? r_nan() : -R_INF);
  return false;
}

/* Draws whose element is in this group; log holds the x of each until the row is done. */
static void many_group(const row_call *c, const real *x, const real *terms, size_t n, int64_t first,
                       row_state *st) {
  const draws d = draws_of(c, PURPOSE_UNIFORM);
  int64_t *index = c->dst[INDEX];
  draw_state *own = draw_state_of(st);
  double end = own->sum;
  walk_find(terms, n, &end, (double)R_INF);
  for (size_t j = 0; st->stage == DRAW && j < (size_t)c->params[DRAWS]; j++) {
    double target = own->total * uniform_of(draw_word(&d, j)), sum = own->sum;
    if (index[j] >= 0 || !(end > target)) continue;
    const int64_t at = walk_find(terms, n, &sum, target);
    if (at < 0) continue;
    index[j] = first + at;
    if (c->dst[LOG]) ((real *)c->dst[LOG])[j] = x[at];
  }
  own->sum = end;
}

static void many_begin(const row_call *c, row_state *st) {
  st->stage = SUM;
  *draw_state_of(st) = (draw_state){0};
  exp_begin(&draw_body, c, st);
}
static void many_pass(const row_call *c, row_state *st, row_part *parts) {
  double params[DRAWS + 1];
  const row_call own = many_call(c, params);
  if (st->stage == SUM) {
    exp_pass(&draw_body, &own, st, parts);
    return;
  }
  const exp_row r = draw_row(&own, st);
  real *const terms = c->work; /* of a group */
  for (size_t g = 0; g < c->count; g += GROUP) {
    size_t n = group_size(g, c->count), i = c->start - c->origin + g;
    parts[g / GROUP] = (row_part){.index = -1};
    terms_of(&own, st, &r, i, n, terms);
    many_group(c, (const real *)c->src[X] + i, terms, n, (int64_t)(c->start + g), st);
  }
}
static void many_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == SUM) exp_merge(c, st, parts, count);
}

static bool many_finish(const row_call *c, row_state *st) {
  const size_t k = (size_t)c->params[DRAWS];
  real *log = c->dst[LOG];
  const exp_row r = draw_row(c, st);
  for (size_t j = 0; log && j < k; j++) {
    double value = draw_state_of(st)->shares
                       ? -d_log1p(st->exp.infinite - 1)
                       : ((double)log[j] - (double)r.shift) / c->params[TEMPERATURE] -
                             ((double)r.top + (double)r.top_l) - d_log1p(r.sum_without_max);
    log[j] = r_clean(value);
  }
  return false;
}
static bool many_next(const row_call *c, row_state *st) {
  double params[DRAWS + 1];
  const row_call own = many_call(c, params);
  real lse = -R_INF;
  row_call sum = own;
  sum.dst[0] = &lse;
  if (st->stage == DRAW) return many_finish(&own, st);
  if (st->stage == SUM) {
    if (exp_next(&draw_body, &sum, st)) return true;
    if (lse != lse || st->empty) return many_none(c, st, lse != lse);
    draw_state_of(st)->shares = lse > R_MAX && st->mode == EXP_CLASSIFY;
    st->serial = true;
    for (size_t j = 0; j < (size_t)c->params[DRAWS]; j++) ((int64_t *)c->dst[INDEX])[j] = -1;
  }
  return draw_again(st, st->stage == SUM ? TOTAL : DRAW);
}
static const row_kernel many_kernel = PROGRAM(many);

FORWARD_OPERATOR_WITH(multi_token_sample, many, 0, sizeof(real[GROUP]))
