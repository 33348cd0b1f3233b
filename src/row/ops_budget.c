/* row/ops_budget.c - operators that keep the largest elements of a row, found by a radix descent
 * (engine/radix_select.h). See ops.c. */
#include "engine/radix_select.h"
#include "engine/threshold.h"
#include "engine/weights.h"

/* ---- budget_sparsemax: y = min(max(x - tau, 0), 1), sum y = B.
 *
 * With K = B rounded up, tau lies between the K-th largest x less 1 and that x: at x_(K) less
 * than K elements have a weight, at x_(K) - 1 at least K have all of it. So the pivot c = x_(K) is
 * found first; then r = c - tau in (0, 1] is searched for, such that
 *     sum min(max((x - c) + r, 0), 1) = B.
 * Elements with |x - c| < 1 join a list and are searched in double and in index order; where they
 * are more than LIST, every step is a pass over the row. Which of the two it is depends on the row
 * alone. ---- */

enum { BUDGET_OWN = 1 };                /* input, and its gradient */
enum { BUDGET_SELECT, BUDGET_WEIGHTS }; /* stages */
enum { BUDGET_COLLECT = 100, BUDGET_SEARCH, BUDGET_STEPS = 200 };

/* That of the row, or the parameter. */
SMI double budget_of(const row_call *c) {
  return c->src[BUDGET_OWN] ? (double)*(const real *)c->src[BUDGET_OWN] : c->params[0];
}
enum { BUDGET_R, BUDGET_PIVOT }; /* of reduce_map_row.found */
SMI void budget_finalize(consts *k, const span *s, const reduce_map_row *r) {
  k->v[THRESHOLD_KAPPA] = 1;
  threshold_split(r->found[BUDGET_R], k->v + THRESHOLD_H, k->v + THRESHOLD_L);
  k->v[THRESHOLD_TOP] = (real)r->found[BUDGET_PIVOT];
}
SMI vreal budget_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return v_min(threshold_v(at(s->src[0], i, cnt), k, NULL), v_set1(1));
}
/* sum y, and how many elements y moves at. */
SMI void budget_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                    reduce_map_acc *acc) {
  vreal y = v_select(lanes_below(cnt), budget_value(s, k, r, i, cnt), v_set1(0)), zero = v_set1(0),
        one = v_set1(1);
  acc->a = v_add(acc->a, y);
  acc->b = v_add(acc->b, v_select(m_and(v_lt(zero, y), v_lt(y, one)), one, zero));
}
REDUCE_MAP_VALUES_OF(budget_values, budget_value)
REDUCE_MAP_SUMS_OF(budget_sums, budget_add)
static const reduce_map_body budget_body = {
    .setup = setup_plain, .finalize = budget_finalize, .write = budget_values, .full = 1, .max = true};

/* The search's list holds the elements within 1 of the pivot; of many, the first. */
typedef struct budget_state {
  double pivot;
  uint64_t whole; /* elements at least 1 above it, which weigh 1 */
} budget_state;
ROW_OWN_STATE(budget_state, budget_state_of)
SMI void budget_note(row_state *st, double d) {
  if (d >= 1) budget_state_of(st)->whole++;
  if (!(d > -1 && d < 1)) return;
  if (st->search.count < THRESHOLD_LIST) st->list[st->search.count] = d;
  st->search.count++;
}
static inline void budget_collect(const real *x, size_t n, row_state *st) {
  const double pivot = budget_state_of(st)->pivot;
  const vreal low = v_set1((real)-1.5), high = v_set1((real)1.5); /* rounded, but not as much */
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal d = v_sub(at(x, i, cnt), v_set1((real)pivot));
    uint32_t near = m_bits(m_and(m_and(v_lt(low, d), v_lt(d, high)), lanes_below(cnt)));
    budget_state_of(st)->whole += (uint64_t)__builtin_popcount(
        m_bits(m_and(m_not(v_lt(d, high)), m_and(v_eq(d, d), lanes_below(cnt)))));
    for (; near; near &= near - 1) budget_note(st, (double)x[i + (size_t)__builtin_ctz(near)] - pivot);
  }
}
static inline double budget_list_sum(const row_state *st, double r, double *slope) {
  double sum = (double)budget_state_of(st)->whole;
  *slope = 0;
  for (uint64_t i = 0; i < st->search.count; i++) {
    double y = st->list[i] + r;
    sum += y >= 1 ? 1 : y > 0 ? y : 0;
    *slope += y > 0 && y < 1;
  }
  return sum;
}
/* One step from r = search.at, which search.low and .high bracket: Newton's, which ends on the
 * right piece of the line; every third bisects. */
static inline bool budget_step(row_state *st, double budget, double sum, double slope, double enough) {
  double at = st->search.at, next = slope > 0 ? at - (sum - budget) / slope : -1;
  if (sum - budget <= enough && budget - sum <= enough) return false;
  if (sum > budget) st->search.high = at;
  else st->search.low = at;
  if (!(next > st->search.low && next < st->search.high) || st->search.steps % 3 == 2)
    next = st->search.low + (st->search.high - st->search.low) / 2;
  if (next == at || next == st->search.low || next == st->search.high || st->search.steps++ == BUDGET_STEPS)
    return false;
  st->search.at = next;
  return true;
}
static inline bool budget_write(row_state *st) {
  st->reduce.found[BUDGET_R] = st->search.at;
  st->reduce.found[BUDGET_PIVOT] = budget_state_of(st)->pivot;
  st->mode = REDUCE_MAP_WRITE;
  st->serial = false;
  return st->writes = st->reverse = true;
}
static inline void budget_start(row_state *st) {
  st->search.at = st->search.high = 1, st->search.low = 0, st->search.steps = 0;
}
static inline bool budget_solve_list(const row_call *c, row_state *st) {
  double slope, sum;
  budget_start(st);
  do sum = budget_list_sum(st, st->search.at, &slope);
  while (budget_step(st, budget_of(c), sum, slope, 0));
  return budget_write(st);
}

static void budget_begin(const row_call *c, row_state *st) {
  const double budget = budget_of(c);
  if (!(budget > 0 && budget <= 0x1p53)) { /* that of a row may be anything */
    st->stage = BUDGET_WEIGHTS;
    reduce_map_begin(&budget_body, c, st);
    st->nan = true;
    return;
  }
  const uint64_t whole = (uint64_t)budget;
  st->stage = BUDGET_SELECT;
  radix_begin(st, (double)whole < budget ? whole + 1 : whole);
}
static void budget_pass(const row_call *c, row_state *st, row_part *parts) {
  if (st->stage == BUDGET_SELECT) {
    radix_pass(c, st, parts);
    return;
  }
  if (st->mode < BUDGET_COLLECT) {
    reduce_map_pass(&budget_body, c, st, parts);
    return;
  }
  const span s = span_of(c, 0);
  const reduce_map_row r = {.found = (const double[ROW_FOUND]){
                                [BUDGET_R] = st->search.at, [BUDGET_PIVOT] = budget_state_of(st)->pivot}};
  consts k = {{0}};
  size_t base = c->start - c->origin;
  budget_finalize(&k, &s, &r);
  for (size_t g = 0; g * GROUP < c->count; g++) {
    size_t n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == BUDGET_COLLECT) budget_collect(s.src[0] + base + g * GROUP, n, st);
    else budget_sums(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
}
static void budget_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == BUDGET_SELECT) return;
  if (st->mode < BUDGET_COLLECT) reduce_map_merge(c, st, parts, count);
  for (size_t g = 0; st->mode == BUDGET_SEARCH && g < count; g++)
    st->search.sum += parts[g].sum, st->search.slope += parts[g].sum2;
}
/* After the minmax pass, of an ordinary row. */
static bool budget_after_minmax(row_state *st) {
  *budget_state_of(st) = (budget_state){.pivot = st->cutoff.value};
  if (!(st->cutoff.value > (double)-R_INF)) { /* not more elements than the budget: all get 1 */
    budget_state_of(st)->pivot = st->reduce.low, st->search.at = 1;
    return budget_write(st);
  }
  st->mode = BUDGET_COLLECT;
  st->writes = st->reverse = false;
  st->serial = true;
  st->search.count = 0;
  return true;
}
static bool budget_next(const row_call *c, row_state *st) {
  if (st->stage == BUDGET_SELECT) {
    if (radix_next(st)) return true;
    st->stage = BUDGET_WEIGHTS;
    reduce_map_begin(&budget_body, c, st);
    return true;
  }
  switch (st->mode) {
    case REDUCE_MAP_MINMAX: {
      bool more = reduce_map_next(&budget_body, c, st);
      return st->mode == REDUCE_MAP_WRITE ? budget_after_minmax(st) : more;
    }
    case REDUCE_MAP_TIES: { /* the +inf share the budget, at most 1 each */
      bool more = reduce_map_next(&budget_body, c, st);
      /* what 1 is divided by */
      st->reduce.sum = st->reduce.sum > budget_of(c) ? st->reduce.sum / budget_of(c) : 1;
      return more;
    }
    case BUDGET_COLLECT:
      if (st->search.count <= THRESHOLD_LIST) return budget_solve_list(c, st);
      budget_start(st);
      st->mode = BUDGET_SEARCH;
      st->serial = false;
      break;
    case BUDGET_SEARCH:
      if (!budget_step(st, budget_of(c), st->search.sum, st->search.slope,
                       budget_of(c) * (SMX_REAL == 32 ? 0x1p-22 : 0x1p-50)))
        return budget_write(st);
      break;
    default: return reduce_map_next(&budget_body, c, st);
  }
  st->search.sum = st->search.slope = 0;
  return true;
}
static const row_kernel budget_kernel = PROGRAM(budget);

/* dx_i = dy_i - mean dy over the elements with 0 < y < 1, 0 elsewhere. */
SMI vmask budget_moves(vreal y) { return m_and(v_lt(v_set1(0), y), v_lt(y, v_set1(1))); }
SMI void budget_grad_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt), zero = v_set1(0);
  vmask moves = budget_moves(y);
  acc->nan = m_or(acc->nan, m_not(v_eq(y, y)));
  acc->a = v_add(acc->a, v_select(moves, v_set1(1), zero));
  acc->b = v_add(acc->b, v_select(moves, at(s->src[SRC_DY], i, cnt), zero));
}
SMI real budget_mean(const reduce_map_row *r) { return r->sum > 0 ? (real)(r->sum2 / r->sum) : 0; }
SMI vreal budget_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vmask moves = budget_moves(at(s->src[SRC_Y], i, cnt));
  return v_clean(v_select(moves, v_sub(at(s->src[SRC_DY], i, cnt), v_set1(budget_mean(r))), v_set1(0)));
}
/* What the budget adds is shared by the elements that move. */
SMI void budget_grad_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[BUDGET_OWN]) s->dst[BUDGET_OWN][0] = post != post ? r_nan() : r_clean((double)budget_mean(r));
}
REDUCE_MAP_SUMS_OF(budget_grad_sums, budget_grad_add)
REDUCE_MAP_VALUES_OF(budget_grad_values, budget_grad_value)
static const reduce_map_body budget_grad_body = {.setup = setup_plain,
                                                 .sums = budget_grad_sums,
                                                 .write = budget_grad_values,
                                                 .row = budget_grad_row,
                                                 .full = 1};
REDUCE_MAP_KERNEL(budget_grad)

/* ---- batch_topk: y_i = [x_i]+ of the k largest, or of those above theta ---- */

enum { BATCH_THETA = 1 }; /* input */

/* Of reduce_map_row.found: the smallest x that is kept, and the last place of an x equal to it. */
enum { BATCH_VALUE, BATCH_LIMIT };
SMI vreal batch_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt), bar = v_set1((real)r->found[BATCH_VALUE]);
  double left =
      r->found[BATCH_LIMIT] - (double)(s->origin + i); /* lanes up to this one may keep an equal x */
  vmask early = v_lt(v_iota(), v_set1(left < 0 ? 0 : left < LANES ? (real)(left + 1) : LANES));
  vmask keep = m_and(m_or(v_lt(bar, x), m_and(v_eq(x, bar), early)), v_lt(v_set1(0), x));
  return v_clean(v_select(keep, x, v_set1(0)));
}
REDUCE_MAP_VALUES_OF(batch_values, batch_value)
static const reduce_map_body batch_body = {
    .setup = setup_plain, .write = batch_values, .full = 1, .max = true};

static void batch_begin(const row_call *c, row_state *st) {
  st->stage = c->src[BATCH_THETA] ? BUDGET_WEIGHTS : BUDGET_SELECT;
  if (st->stage == BUDGET_SELECT) {
    radix_begin(st, c->params[0] < (double)c->n ? (uint64_t)c->params[0] : (uint64_t)c->n);
    return;
  }
  double theta = (double)*(const real *)c->src[BATCH_THETA];
  reduce_map_begin(&batch_body, c, st);
  st->nan = theta != theta;
  st->cutoff.value = theta > 0 ? theta : 0, st->cutoff.limit = -1;
}
static void batch_pass(const row_call *c, row_state *st, row_part *parts) {
  if (st->stage == BUDGET_SELECT) radix_pass(c, st, parts);
  else reduce_map_pass(&batch_body, c, st, parts);
}
static void batch_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == BUDGET_WEIGHTS) reduce_map_merge(c, st, parts, count);
}
static bool batch_next(const row_call *c, row_state *st) {
  if (st->stage == BUDGET_WEIGHTS) {
    st->reduce.found[BATCH_VALUE] = st->cutoff.value;
    st->reduce.found[BATCH_LIMIT] = (double)st->cutoff.limit;
    return reduce_map_next(&batch_body, c, st);
  }
  if (radix_next(st)) return true;
  st->stage = BUDGET_WEIGHTS;
  reduce_map_begin(&batch_body, c, st);
  return true;
}
static const row_kernel batch_kernel = PROGRAM(batch);

/* dx_i = dy_i where y_i > 0 */
SMI void kept_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                  reduce_map_acc *acc) {
  vreal y = at(s->src[SRC_Y], i, cnt);
  acc->nan = m_or(acc->nan, m_not(v_eq(y, y)));
}
SMI vreal kept_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return v_clean(upstream(s, at(s->src[SRC_Y], i, cnt), i, cnt));
}
REDUCE_MAP_SUMS_OF(kept_sums, kept_add)
REDUCE_MAP_VALUES_OF(kept_values, kept_value)
static const reduce_map_body batch_grad_body = {
    .setup = setup_plain, .sums = kept_sums, .write = kept_values, .full = 1};
REDUCE_MAP_KERNEL(batch_grad)

OPERATOR_WITH(budget_sparsemax, budget, budget_grad, ROW_LIST, 0)
OPERATOR_WITH(batch_topk, batch, batch_grad, ROW_LIST, 0)
