/* sample/ops_verify.c - speculative decoding: which draft tokens are accepted, and what is drawn if
 * none is. See ops.c.
 *
 * The target model gives p, the draft model q, and drafts x_1 .. x_K were drawn from q. A draft is
 * tested by one uniform variate; if none is accepted, the token comes from a residual distribution,
 * such that the resulting token is distributed as p, whatever q is:
 *
 *   rrs   r^1 = p;  x_j is accepted if u_j q(x_j) < r^j(x_j);
 *         r^(j+1) = (r^j - q)_+, normalised: at last, a draw from it
 *   rrs without replacement   the same, and x_j leaves q, which is normalised again: drafts without
 *         repeats (gumbel_topk)
 *   kseq  x_j is accepted if u_j g q(x_j) < p(x_j);
 *         residual (p - min(q, p / g) (1 - (1 - b)^K) / b)_+, b = sum min(q, p / g), where g in
 *         [1, K] solves 1 - (1 - b)^K = g b
 *   is2   one of two drafts is chosen, e with probability s(e) (two_drafts.h), and accepted if
 *         u s(e) < p(e); residual (p - s)_+
 *
 * Everything is computed in double from p and q as they are given, so nothing here depends on the
 * real type. */
#include "two_drafts.h"

enum { P, Q, DRAFT, STREAM, POSITION }; /* inputs; POSITION of speculative_verify only */
enum { INDEX, ACCEPTED };               /* outputs */
enum { VERIFY_K, METHOD, SEED };        /* parameters of multi_draft_verify */
enum { RRS, RRS_DISTINCT, KSEQ, IS2 };  /* METHOD */
enum { MINMAX, SUM, SEARCH, BOUND, RATIOS, MASSES, TOTAL, DRAW }; /* stages */
enum { MOST = 64 };                                               /* drafts */
/* where the state's list holds, for each number of failed drafts, the sum of the residual and of
 * what is left of q; and p and q at each draft */
enum { SUMS, REST = 128, AT_P = 256, AT_Q = 384, LISTED = 512, LISTED_GROUPS = LISTED + 4 * DRAFT_GROUPS };
typedef struct verify_state {
  double low, high; /* of kseq: g is between these, at the end `high`, */
  double at;        /* b is summed for this, */
  double share;     /* and this is (1 - (1 - b)^K) / b */
  double sum, left; /* of the pass: the residual, or b; what is left of q */
  double target;    /* the draw is the first element at which the sum exceeds it */
  double all;       /* of is2: the sum of q */
  size_t edges;     /* of its groups */
  size_t failed;    /* drafts */
  int64_t index;    /* of the draw */
  bool drawn;
} verify_state;
ROW_OWN_STATE(verify_state, verify_of)

/* The drafts of an operator. */
typedef struct drafts {
  const int64_t *token;
  size_t count; /* up to the first that is no element of the row */
  int method;
  uint64_t first; /* number of the first uniform variate */
  uint64_t seed;
  int64_t accepted; /* the output's value for draft 0 */
} drafts;

static size_t drafts_count(const row_call *c, const int64_t *token, size_t most) {
  size_t n = 0;
  while (n < most && token[n] >= 0 && token[n] < (int64_t)c->n) n++;
  return n;
}
static drafts one_draft(const row_call *c) {
  const int64_t *token = c->src[DRAFT];
  return (drafts){token,
                  drafts_count(c, token, 1),
                  RRS,
                  (uint64_t) * (const int64_t *)c->src[POSITION],
                  (uint64_t)c->params[0],
                  1};
}
static drafts many_drafts(const row_call *c) {
  const int64_t *token = c->src[DRAFT];
  const size_t count = drafts_count(c, token, (size_t)c->params[VERIFY_K]);
  const int method = (int)c->params[METHOD];
  return (drafts){token, count, method == IS2 && count < 2 ? RRS : method, 0, (uint64_t)c->params[SEED], 0};
}

static double verify_uniform(const row_call *c, const drafts *d, purpose what, uint64_t index) {
  const draws from = {d->seed, (uint64_t) * (const int64_t *)c->src[STREAM], what};
  return uniform_of(draw_word(&from, index));
}

/* ---- the choice between two drafts ---- */

static draft_groups groups_of(row_state *st) {
  double *list = st->list + LISTED;
  return (draft_groups){list, list + DRAFT_GROUPS, list + 2 * DRAFT_GROUPS, list + 3 * DRAFT_GROUPS,
                        verify_of(st)->edges};
}
/* s of a token. */
static double chosen(const row_state *st, double p, double q) {
  const double *edge = st->list + LISTED, *ratio = edge + DRAFT_GROUPS;
  return q > 0 ? ratio[draft_group(edge, verify_of(st)->edges, p / q)] * (q / verify_of(st)->all) : 0;
}

/* ---- distributions after `failed` drafts ---- */

static bool drafted(const drafts *d, size_t failed, int64_t index) {
  for (size_t j = 0; d->method == RRS_DISTINCT && j < failed; j++)
    if (d->token[j] == index) return true;
  return false;
}
/* q after `failed` drafts, and the residual before it is normalised. */
static double draft_left(const drafts *d, const row_state *st, size_t failed, double q, int64_t index) {
  return q == 0 || drafted(d, failed, index)        ? 0
         : failed == 0 || d->method != RRS_DISTINCT ? q
                                                    : q / st->list[REST + failed];
}
static double residual(const drafts *d, const row_state *st, size_t failed, double p, double q,
                       int64_t index) {
  if (d->method == IS2) {
    p -= failed == 0 ? 0 : chosen(st, p, q);
    return p > 0 ? p : 0;
  }
  if (d->method == KSEQ) {
    double taken = p / verify_of(st)->high;
    taken = p - (taken < q ? taken : q) * verify_of(st)->share;
    return failed == 0 ? p : taken > 0 ? taken : 0;
  }
  for (size_t j = 0; j < failed; j++) {
    p = (j == 0 ? p : p / st->list[SUMS + j]) - draft_left(d, st, j, q, index);
    if (!(p > 0)) return 0;
  }
  return p;
}

static bool stands(const row_call *c, const drafts *d, const row_state *st, size_t j) {
  const double p = st->list[AT_P + j], q = st->list[AT_Q + j],
               u = verify_uniform(c, d, PURPOSE_ACCEPT, d->first + j);
  if (d->method == KSEQ) return u * verify_of(st)->high * q < p;
  const double r = residual(d, st, j, p, q, d->token[j]);
  return u * draft_left(d, st, j, q, d->token[j]) < (j == 0 ? r : r / st->list[SUMS + j]);
}

/* ---- the passes ---- */

static void verify_minmax(const row_call *c, const drafts *d, row_state *st) {
  const real *p = part_at(c, P), *q = part_at(c, Q);
  for (size_t i = 0; i < c->count; i++)
    st->nan |= !(p[i] >= 0 && p[i] <= R_MAX && q[i] >= 0 && q[i] <= R_MAX);
  for (size_t j = 0; j < d->count; j++) {
    const int64_t i = d->token[j] - (int64_t)c->start;
    if (i >= 0 && i < (int64_t)c->count) st->list[AT_P + j] = (double)p[i], st->list[AT_Q + j] = (double)q[i];
  }
}
/* The sums of the residual and of what is left of q. */
static void verify_sum(const row_call *c, const drafts *d, row_state *st) {
  const real *p = part_at(c, P), *q = part_at(c, Q);
  verify_state *own = verify_of(st);
  const size_t failed = own->failed;
  BLOCK_SUM(own->sum, c->count, i,
            residual(d, st, failed, (double)p[i], (double)q[i], (int64_t)(c->start + i)))
  if (d->method == RRS_DISTINCT)
    BLOCK_SUM(own->left, c->count, i, drafted(d, failed, (int64_t)(c->start + i)) ? 0 : (double)q[i])
}
/* The ratios p / q of a row that has few, and the masses of groups of them. */
static void verify_ratios(const row_call *c, row_state *st) {
  const real *p = part_at(c, P), *q = part_at(c, Q);
  draft_groups g = groups_of(st);
  for (size_t i = 0; i < c->count; i++)
    if (q[i] > 0) g.edge[g.edges++] = (double)p[i] / (double)q[i];
  verify_of(st)->edges = g.edges;
}
static void verify_masses(const row_call *c, row_state *st) {
  const real *p = part_at(c, P), *q = part_at(c, Q);
  const draft_groups g = groups_of(st);
  for (size_t i = 0; i < c->count; i++) {
    if (!(q[i] > 0)) continue;
    const size_t at = draft_group(g.edge, g.edges, (double)p[i] / (double)q[i]);
    g.p[at] += (double)p[i], g.q[at] += (double)q[i];
  }
}
/* b = sum min(q, p / g). */
static void verify_bound(const row_call *c, row_state *st) {
  const real *p = part_at(c, P), *q = part_at(c, Q);
  const double g = verify_of(st)->at;
  BLOCK_SUM(verify_of(st)->sum, c->count, i,
            (double)p[i] / g < (double)q[i] ? (double)p[i] / g : (double)q[i])
}
/* Continues the sum to the first element at which it exceeds the target; if it never does, to the
 * last element with a mass. */
static void verify_draw(const row_call *c, const drafts *d, row_state *st) {
  const real *p = part_at(c, P), *q = part_at(c, Q);
  verify_state *own = verify_of(st);
  for (size_t b = 0; b < c->count && !own->drawn; b += 256) {
    double within = 0;
    for (size_t i = b; i < c->count && i < b + 256 && !own->drawn; i++) {
      const double r = residual(d, st, own->failed, (double)p[i], (double)q[i], (int64_t)(c->start + i));
      within += r;
      if (r > 0) own->index = (int64_t)(c->start + i), own->drawn = own->sum + within > own->target;
    }
    own->sum += within;
  }
}

static void verify_pass(const row_call *c, const drafts *d, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  if (st->stage == MINMAX) verify_minmax(c, d, st);
  else if (st->stage == SEARCH || st->stage == BOUND) verify_bound(c, st);
  else if (st->stage == DRAW) verify_draw(c, d, st);
  else if (st->stage == RATIOS) verify_ratios(c, st);
  else if (st->stage == MASSES) verify_masses(c, st);
  else verify_sum(c, d, st);
}

/* ---- what comes after a pass ---- */

static bool verify_go(row_state *st, int stage) {
  st->stage = stage;
  verify_of(st)->sum = verify_of(st)->left = 0;
  return true;
}
/* draft: the one that is accepted, or -1. */
static bool verify_done(const row_call *c, const drafts *d, int64_t index, int64_t draft) {
  *(int64_t *)c->dst[INDEX] = index;
  if (c->dst[ACCEPTED]) *(int64_t *)c->dst[ACCEPTED] = draft + d->accepted;
  return false;
}

/* Tests draft after draft, as far as the known sums allow. */
static bool verify_test(const row_call *c, const drafts *d, row_state *st) {
  verify_state *own = verify_of(st);
  while (own->failed < d->count) {
    const size_t j = own->failed;
    if (stands(c, d, st, j)) return verify_done(c, d, d->token[j], (int64_t)j);
    own->failed++;
    if (d->method != KSEQ && own->failed < d->count) return verify_go(st, SUM);
  }
  return verify_go(st, TOTAL);
}

/* Where q is 0 there is no ratio; without any, no draft came from q. */
static bool groups_begin(const row_call *c, row_state *st) {
  draft_groups g = groups_of(st);
  for (size_t i = 0; i < DRAFT_GROUPS; i++) g.p[i] = g.q[i] = 0;
  if (c->n < DRAFT_GROUPS) return verify_go(st, RATIOS);
  draft_grid(&g);
  verify_of(st)->edges = g.edges;
  return verify_go(st, MASSES);
}
static bool groups_sort(row_state *st) {
  draft_groups g = groups_of(st);
  draft_sort(&g);
  return verify_go(st, MASSES);
}
/* Chooses a draft and tests it. */
static bool groups_test(const row_call *c, const drafts *d, row_state *st) {
  verify_state *own = verify_of(st);
  draft_groups g = groups_of(st);
  const double *p = st->list + AT_P, *q = st->list + AT_Q;
  own->all = draft_choose(&g, c->work);
  int one = q[0] > 0 ? 0 : 1; /* a draft that q does not have was not drawn from it */
  if (q[0] > 0 && q[1] > 0)
    one = draft_preferred(&g, draft_group(g.edge, g.edges, p[0] / q[0]),
                          draft_group(g.edge, g.edges, p[1] / q[1]),
                          verify_uniform(c, d, PURPOSE_ACCEPT, d->first));
  if (verify_uniform(c, d, PURPOSE_ACCEPT, d->first + 1) * chosen(st, p[one], q[one]) < p[one])
    return verify_done(c, d, d->token[one], one);
  own->failed = 2;
  return verify_go(st, TOTAL);
}

/* g by bisection: 1 - (1 - b)^K - g b is not negative at 1, not positive at K. */
static double verify_power(double base, size_t k) {
  double power = 1;
  for (size_t j = 0; j < k; j++) power *= base;
  return power;
}
static bool verify_search(const row_call *c, const drafts *d, row_state *st) {
  verify_state *own = verify_of(st);
  const double any = 1 - verify_power(1 - own->sum, d->count);
  if (st->stage == BOUND) {
    own->share = own->sum > 0 ? any / own->sum : 0;
    return verify_test(c, d, st);
  }
  *(any > own->at * own->sum ? &own->low : &own->high) = own->at;
  const double middle = 0.5 * (own->low + own->high);
  const bool more = middle > own->low && middle < own->high;
  own->at = more ? middle : own->high;
  return verify_go(st, more ? SEARCH : BOUND);
}

static bool verify_after_minmax(const row_call *c, const drafts *d, row_state *st) {
  verify_state *own = verify_of(st);
  if (st->nan) return verify_done(c, d, -1, -1);
  own->low = own->high = own->share = 1;
  if (d->method == IS2) return groups_begin(c, st);
  if (d->method != KSEQ || d->count < 2) return verify_test(c, d, st);
  own->high = (double)d->count;
  own->at = 0.5 * (1 + own->high);
  return verify_go(st, SEARCH);
}

static bool verify_next(const row_call *c, const drafts *d, row_state *st) {
  verify_state *own = verify_of(st);
  switch (st->stage) {
    case MINMAX: return verify_after_minmax(c, d, st);
    case SEARCH:
    case BOUND: return verify_search(c, d, st);
    case RATIOS: return groups_sort(st);
    case MASSES: return groups_test(c, d, st);
    case SUM:
      st->list[SUMS + own->failed] = own->sum, st->list[REST + own->failed] = own->left;
      if (own->sum > 0) return verify_test(c, d, st);
      own->failed = 0; /* nothing is left, which only rounding can do: a draw from p */
      return verify_go(st, TOTAL);
    case TOTAL:
      if (own->sum > 0) {
        own->target = own->sum * verify_uniform(c, d, PURPOSE_RESIDUAL, 0);
        return verify_go(st, DRAW);
      }
      if (own->failed > 0) {
        own->failed = 0;
        return verify_go(st, TOTAL);
      }
      st->empty = true;
      return c->on_empty != SMX_EMPTY_ERROR && verify_done(c, d, -1, -1);
    default: return verify_done(c, d, own->index, -1);
  }
}

/* ---- the engine: a body is a drafts_fn ---- */

typedef drafts drafts_fn(const row_call *c);
static drafts drafts_of(const void *body, const row_call *c) { return (*(drafts_fn *const *)body)(c); }

static void engine_begin(const void *body, const row_call *c, row_state *st) {
  serial_begin(st);
  *verify_of(st) = (verify_state){.index = -1};
}
static void engine_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  const drafts d = drafts_of(body, c);
  verify_pass(c, &d, st, parts);
}
static void engine_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  serial_merge(c, st, parts, count);
}
static bool engine_next(const void *body, const row_call *c, row_state *st) {
  const drafts d = drafts_of(body, c);
  return verify_next(c, &d, st);
}
static const row_engine verify_engine = {engine_begin, engine_pass, engine_merge, engine_next, run_rows};

static drafts_fn *const single_drafts = one_draft, *const multi_drafts = many_drafts;
static const row_kernel single_kernel = {.engine = &verify_engine, .body = &single_drafts},
                        multi_kernel = {.engine = &verify_engine, .body = &multi_drafts};

FORWARD_OPERATOR_WITH(speculative_verify, single, LISTED, 0)
FORWARD_OPERATOR_WITH(multi_draft_verify, multi, LISTED_GROUPS, sizeof(draft_work))
