/* engine/threshold.c - the search for a threshold, and the row program around it (threshold.h). */
#include "threshold.h"

SMI int d_exponent(double x) { /* of a positive normal one */
  int64_t b;
  memcpy(&b, &x, 8);
  return (int)(b >> 52) - 1023;
}

SMI bool threshold_near_one(const threshold_shape *t) { return t->kappa < 0.75; }
/* What is searched for, at, is r or u. */
SMI double threshold_r(const threshold_shape *t, double at) {
  return threshold_near_one(t) ? 1 + t->kappa * at : at;
}

/* r / kappa, and u. */
SMI double threshold_lift(const threshold_shape *t, double at) {
  return threshold_near_one(t) ? 1 / t->kappa + at : at / t->kappa;
}

SMI double threshold_below(const threshold_shape *t, double at) {
  return threshold_near_one(t) ? at : (at - 1) / t->kappa;
}

/* The power of two by which a row with such an r is scaled; for floats only, and never for alpha up
 * to 2. The largest v stays in range. */
enum { THRESHOLD_SMALL = -40, THRESHOLD_LARGE = 100, THRESHOLD_GROW_MOST = 2 * (EXP_BIAS - 1) };

static int threshold_grow(const threshold_shape *t, const row_state *st) {
  const double at = st->search.at;
  if (SMX_REAL == 64 || threshold_near_one(t) || !(at > 0 && at < d_power_of_two(THRESHOLD_SMALL))) return 0;
  const double most = st->search.edged ? at + t->kappa * (st->search.top - st->reduce.max) : at;
  const int wanted = -d_exponent(at), possible = THRESHOLD_LARGE - d_exponent(most);
  const int grow = wanted < possible ? wanted : possible > 0 ? possible : 0;
  return (grow < THRESHOLD_GROW_MOST ? grow : THRESHOLD_GROW_MOST) & ~1;
}

SMI double threshold_down(int grow, double power) {
  return grow ? d_exp(-grow * power * 0x1.62e42fefa39efp-1) : 1;
}

/* sum v^e and sum v^(e - 1), e = power norm; power 1 and 2 without logarithms. */
SMI vreal threshold_at(const span *s, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt);
  return cnt < LANES ? v_select(lanes_below(cnt), x, v_set1(-R_INF)) : x;
}

SMI void threshold_add_linear_of(const span *s, const consts *k, bool ordered, size_t i, int cnt,
                                 reduce_map_acc *acc) {
  vreal v = threshold_signed(threshold_at(s, i, cnt), k, ordered);
  vmask live = v_lt(v_set1(R_TINY), v);
  acc->a = v_add(acc->a, v_select(live, v, v_set1(0)));
  acc->b = v_add(acc->b, v_select(live, v_set1(1), v_set1(0)));
}

SMI void threshold_add_square_of(const span *s, const consts *k, bool ordered, size_t i, int cnt,
                                 reduce_map_acc *acc) {
  vreal v = v_max(threshold_signed(threshold_at(s, i, cnt), k, ordered), v_set1(0));
  acc->a = v_fma(v, v, acc->a);
  acc->b = v_add(acc->b, v);
}

#define THRESHOLD_SUMS(name) \
  SMI void threshold_add_##name(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt, \
                                reduce_map_acc *acc) { \
    threshold_add_##name##_of(s, k, false, i, cnt, acc); \
  } \
  SMI void threshold_add_##name##_ordered(const span *s, const consts *k, const reduce_map_row *r, size_t i, \
                                          int cnt, reduce_map_acc *acc) { \
    threshold_add_##name##_of(s, k, true, i, cnt, acc); \
  } \
  REDUCE_MAP_SUMS_OF(threshold_##name, threshold_add_##name) \
  REDUCE_MAP_SUMS_OF(threshold_##name##_ordered, threshold_add_##name##_ordered)

THRESHOLD_SUMS(linear)

THRESHOLD_SUMS(square)

SMI void threshold_add_power(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                             reduce_map_acc *acc) {
  threshold_pair log;
  const vreal v = threshold_v(threshold_at(s, i, cnt), k, &log);
  const real power = k->v[THRESHOLD_POWER], low = k->v[THRESHOLD_POWER_L];
  acc->a = v_add(acc->a, threshold_power(v, log, power, low));
  acc->b = v_add(acc->b, threshold_power(v, log, power - 1, low));
}

REDUCE_MAP_SUMS_OF(threshold_general, threshold_add_power)

/* Whether d of x can be corrected for rounding (threshold_lost) for all x with d above -1 / kappa
 * and those a little below. st->search.smallest: the smallest element. */
SMI bool threshold_ordered(const threshold_shape *t, const row_state *st) {
  real top = (real)st->reduce.max, low = (real)st->search.smallest;
  return top > 0 && (low >= 0 || r_exponent(-low) <= r_exponent(top) || t->kappa * st->reduce.max >= 1);
}

SMI reduce_map_group_fn *threshold_sums(double power, bool ordered) {
  if (power == 1) return ordered ? threshold_linear_ordered : threshold_linear;
  if (power == 2) return ordered ? threshold_square_ordered : threshold_square;
  return threshold_general;
}

/* Adds the elements that may have a weight, less than `width` below max, to the list. Once it is
 * full the search is over the row, and their number does not matter. */
SMI void threshold_collect(const real *x, size_t n, double max, double width, row_state *st) {
  /* rounded, so it may let in too many: the search drops those */
  const vreal bound = v_set1((real)(max - width));
  for (size_t i = 0; i < n && st->search.count <= THRESHOLD_LIST; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal v = at(x, i, cnt);
    for (uint32_t left = m_bits(m_and(m_not(v_lt(v, bound)), lanes_below(cnt))); left; left &= left - 1) {
      const double value = (double)x[i + (size_t)__builtin_ctz(left)];
      if (st->search.count < THRESHOLD_LIST) st->list[st->search.count] = value;
      st->search.count += value - max > -width;
    }
  }
}

SMI double threshold_power_of(double v, double w, double power) { /* v = 1 + w */
  return d_exp(power * (w > -0.29 && w < 0.42 ? d_log_1pf(w, 0, 0) : d_log(v, 0)));
}
SMI double threshold_term(const threshold_shape *t, double v, double w, double power) {
  return power == 1   ? v
         : power == 2 ? v * v
                      : threshold_power_of(v, threshold_near_one(t) ? w : v - 1, power);
}

/* Whether an element without a weight never gets one again, since r only comes down. */
SMI bool threshold_falls(const threshold_shape *t) { return t->power * t->norm >= 1; }
SMI bool threshold_convex(const threshold_shape *t) { return threshold_falls(t) || t->kappa < 0; }

/* sum v^e and sum v^(e - 1) over the list. Elements without a weight leave the list if they cannot
 * get one again. */
static double threshold_list_sum(const threshold_shape *t, row_state *st, double at, double power,
                                 double *slope) {
  double sum = 0, base = threshold_r(t, at);
  const bool falls = threshold_falls(t);
  uint64_t kept = 0;
  *slope = 0;
  for (uint64_t i = 0; i < st->search.count; i++) {
    const double x = st->list[i], d = x - st->reduce.max, v = base + t->kappa * d;
    if (!(v > 0x1p-1000) || (st->search.edged && x < st->reduce.max)) continue;
    const double y = threshold_term(t, v, t->kappa * (d + at), power);
    sum += y;
    *slope += y / v;
    if (falls) st->list[kept++] = x;
  }
  if (falls) st->search.count = kept;
  return sum;
}

/* The excess of a sum of powers: S - 1; of squares 2 sqrt(S) (sqrt(S) - 1), which is Newton on the
 * norm: convex too and nearly straight, so that it takes fewer steps, where each is a pass over the
 * row. */
static double threshold_excess(double sum, double power, bool list) {
  return power == 2 && !list ? 2 * (sum - __builtin_sqrt(sum)) : sum - 1;
}

/* Between the ends of a bracket: half way, or, once both are small, half way between their
 * logarithms. */
static double threshold_middle(const row_state *st) {
  const double low = st->search.low > 0 ? st->search.low : d_power_of_two(-1000), high = st->search.high;
  const bool small = high < d_power_of_two(THRESHOLD_SMALL) && high > 4 * low;
  return small ? d_exp(0.5 * (d_log(low, 0) + d_log(high, 0))) : st->search.low + (high - st->search.low) / 2;
}

/* One step from search.at, with the sums there; search.low and .high bracket the root. enough: 0 on
 * the list. True while there is more to do. */
static bool threshold_step(const threshold_shape *t, row_state *st, double sum, double slope, double enough) {
  double power = t->power * t->norm, gain = threshold_near_one(t) ? t->kappa : 1, at = st->search.at, next;
  if (sum - 1 > enough) st->search.high = at;
  else st->search.low = at;
  if (threshold_convex(t)) {
    if (!(sum - 1 > enough)) return false;
    next = at - threshold_excess(sum, power, enough == 0) / (gain * power * slope);
  } else {
    if (sum - 1 <= enough && sum - 1 >= -enough) return false;
    next = threshold_middle(st);
  }
  if (next == at || next == st->search.low || next == st->search.high ||
      st->search.steps++ == THRESHOLD_STEPS)
    return false;
  st->search.at = next;
  return true;
}

static void threshold_start(const threshold_shape *t, row_state *st) {
  st->search.at = st->search.high = threshold_near_one(t) ? 0 : 1;
  st->search.low = !threshold_near_one(t) ? 0 : t->kappa > 0 ? -1 / t->kappa : (double)-R_INF;
  st->search.steps = 0;
  st->search.edged = false;
}

/* A full list holds the first elements of many. The root over a few of them is not below that over
 * the row, so the search starts there and comes down: some passes less. Only where a term is
 * cheap. */
static void threshold_narrow(const threshold_shape *t, row_state *st, double enough) {
  double power = t->power * t->norm, slope, sum;
  threshold_start(t, st);
  if (power != 1 && power != 2) return;
  st->search.count = THRESHOLD_FEW;
  do sum = threshold_list_sum(t, st, st->search.at, power, &slope);
  while (threshold_step(t, st, sum, slope, enough));
  double root = st->search.at;
  threshold_start(t, st);
  st->search.at = st->search.high = root;
}

/* Whether the sum of the weights, in reals or on the list in double, is off by more than its own
 * rounding. */
SMI bool threshold_shows(double sum, bool list) {
  const double off = SMX_REAL == 64 ? 0x1p-46 : list ? 0x1p-30 : 0x1p-20;
  return sum > 1 + off || sum < 1 - off;
}

/* r is known, and the sum of the weights that it gives, which the write loop reads. */
static bool threshold_write(const threshold_shape *t, row_state *st, double sum) {
  double *const found = st->reduce.found, at = st->search.at;
  const int grow = threshold_grow(t, st);
  found[THRESHOLD_LIFT] = threshold_lift(t, at);
  found[THRESHOLD_BELOW] = threshold_below(t, at);
  found[THRESHOLD_GROWN] = grow;
  found[THRESHOLD_FACTOR] =
      threshold_down(grow, t->power) / (t->kappa > 1 && sum > 0 && threshold_shows(sum, false) ? sum : 1);
  found[THRESHOLD_EDGED] = st->search.edged;
  st->mode = REDUCE_MAP_WRITE;
  st->serial = false;
  return st->writes = st->reverse = true;
}

/* ---- the edge ---- */

/* r is known to a double: the edge is the smallest element above max - r / kappa, or above one that
 * was tried. */
static void threshold_edge_start(const threshold_shape *t, row_state *st) {
  search_state *const s = &st->search;
  s->top = st->reduce.max, s->bound = threshold_lift(t, s->at) * (1 + 0x1p-46);
  s->tried = (double)-R_INF, s->edge = (double)R_INF;
}

/* d is counted from the edge from now on, and its v is 0. False where none was found, since r /
 * kappa is too small for a real. */
static bool threshold_edge_try(row_state *st) {
  search_state *const s = &st->search;
  if (!(s->edge < (double)R_INF)) return false;
  st->reduce.max = s->edge;
  s->at = 0, s->edged = true;
  return true;
}

/* sum: of the weights above an edge whose v is 0. If it is 1 or more the threshold is higher, and
 * the next element is to be found. */
static bool threshold_edge_again(row_state *st, double sum) {
  search_state *const s = &st->search;
  if (sum < 1) return false;
  s->tried = s->edge, s->edge = (double)R_INF, s->edged = false;
  st->reduce.max = s->top;
  return true;
}

SMI double threshold_positive_power(double x, double power) { return x > 0 ? d_exp(power * d_log(x, 0)) : 0; }

/* The weight of the edge is searched for; r is its power. The start is the weight at the bound. */
static void threshold_edge_search(const threshold_shape *t, row_state *st) {
  search_state *const s = &st->search;
  const double v = t->kappa * ((s->edge - s->top) + s->bound), y = threshold_positive_power(v, t->power);
  s->weight = y < 1 && y > 0 ? y : 1;
  s->low = 0, s->high = 1, s->steps = 0;
  s->at = threshold_positive_power(s->weight, t->kappa);
}

/* One step of Newton on the weight of the edge. steep: the slope times the v of the edge. True
 * while there is more to do. */
static bool threshold_edge_step(const threshold_shape *t, row_state *st, double sum, double steep,
                                double enough) {
  search_state *const s = &st->search;
  const double y = s->weight;
  if (sum - 1 <= enough && 1 - sum <= enough) return false;
  if (sum > 1) s->high = y;
  else s->low = y;
  double next = y - (sum - 1) * y / steep;
  if (!(next > s->low && next < s->high)) next = s->low + (s->high - s->low) / 2;
  if (next == y || next == s->low || next == s->high || s->steps++ == THRESHOLD_STEPS) return false;
  s->weight = next;
  s->at = threshold_positive_power(next, t->kappa);
  return true;
}

/* ---- the list ---- */

/* The sum of the weights on the list as the write loop computes them, with r / kappa as a pair of
 * reals. */
static double threshold_list_weights(const threshold_shape *t, const row_state *st) {
  real high, low;
  threshold_split(threshold_lift(t, st->search.at), &high, &low);
  double sum = 0, lift = (double)high + (double)low;
  for (uint64_t i = 0; i < st->search.count; i++) {
    const double v = t->kappa * ((st->list[i] - st->reduce.max) + lift);
    if (v > 0x1p-1000) sum += threshold_power_of(v, v - 1, t->power);
  }
  return sum;
}

static void threshold_list_edge(row_state *st) {
  search_state *const s = &st->search;
  for (uint64_t i = 0; i < s->count; i++) {
    const double x = st->list[i];
    if (x - s->top > -s->bound && x > s->tried && x < s->edge) s->edge = x;
  }
}

/* The search goes on from the edge. Returns the sum of the weights. */
static double threshold_solve_edge(const threshold_shape *t, row_state *st) {
  double slope, sum;
  threshold_edge_start(t, st);
  do {
    threshold_list_edge(st);
    threshold_edge_try(st); /* the largest element is one at the latest */
  } while (threshold_edge_again(st, threshold_list_sum(t, st, 0, t->power, &slope)));
  threshold_edge_search(t, st);
  do sum = threshold_list_sum(t, st, st->search.at, t->power, &slope);
  while (threshold_edge_step(t, st, sum, slope * st->search.at, 0x1p-52));
  return sum;
}

static bool threshold_solve_list(const threshold_body *b, const threshold_shape *t, row_state *st) {
  double power = t->power * t->norm, slope, sum;
  threshold_start(t, st);
  do sum = threshold_list_sum(t, st, st->search.at, power, &slope);
  while (threshold_step(t, st, sum, slope, 0));
  if (b->scaled) st->reduce.found[THRESHOLD_SUM] = threshold_list_sum(t, st, st->search.at, t->power, &slope);
  sum = t->kappa > 1 ? threshold_list_weights(t, st) : 1;
  return threshold_write(t, st, threshold_shows(sum, true) ? threshold_solve_edge(t, st) : sum);
}

/* ---- the row program ---- */

/* The smallest element above max - r / kappa, and above `tried`. */
NOINLINE void threshold_edge_group(const span *s, const consts *k, real tried, size_t first, size_t n,
                                   row_part *part) {
  vreal low = v_set1(R_INF);
  const vreal than = v_set1(tried);
#define STEP(u, i, cnt) \
  { \
    const vreal x = threshold_at(s, i, cnt); \
    const vmask above = m_and(v_lt(v_set1(0), threshold_signed(x, k, false)), v_lt(than, x)); \
    low = v_select(m_and(above, v_lt(x, low)), x, low); \
  }
  FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
#undef STEP
  *part = (row_part){.index = -1, .low = (double)v_hmin(low)};
}

void threshold_pass(const threshold_body *b, const row_call *c, row_state *st, row_part *parts) {
  if (st->mode < THRESHOLD_COLLECT) {
    reduce_map_pass(&b->sum, c, st, parts);
    return;
  }
  span s = span_of(c, 0);
  threshold_shape t = b->shape(c, &s);
  double power = st->mode == THRESHOLD_SCALE ? t.power : t.power * t.norm;
  consts k = {{0}};
  threshold_shape_consts(&k, &t);
  if (st->mode == THRESHOLD_EDGE_FIND) threshold_consts(&k, st->search.bound, 0, 0, 1, st->search.top, false);
  else
    threshold_consts(&k, threshold_lift(&t, st->search.at), threshold_below(&t, st->search.at),
                     threshold_grow(&t, st), 1, st->reduce.max, st->search.edged);
  threshold_power_consts(&k, power);
  reduce_map_row r = {0};
  size_t base = c->start - c->origin;
  bool ordered = threshold_ordered(&t, st);
  for (size_t g = 0; g * GROUP < c->count; g++) {
    size_t n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == THRESHOLD_COLLECT)
      threshold_collect(s.src[0] + base + g * GROUP, n, st->reduce.max,
                        t.kappa > 0 ? 1 / t.kappa : (double)R_INF, st);
    else if (st->mode == THRESHOLD_EDGE_FIND)
      threshold_edge_group(&s, &k, (real)st->search.tried, base + g * GROUP, n, parts + g);
    else threshold_sums(power, ordered)(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
}

void threshold_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->mode < THRESHOLD_COLLECT) reduce_map_merge(c, st, parts, count);
  for (size_t g = 0; st->mode > THRESHOLD_COLLECT && g < count; g++) {
    st->search.sum += parts[g].sum, st->search.slope += parts[g].sum2;
    if (st->mode == THRESHOLD_EDGE_FIND && parts[g].low < st->search.edge) st->search.edge = parts[g].low;
  }
}

bool threshold_next(const threshold_body *b, const row_call *c, row_state *st) {
  span s = span_of(c, 0);
  threshold_shape t = b->shape(c, &s);
  double enough = SMX_REAL == 32 ? 0x1p-22 : 0x1p-50;
  bool more;
  switch (st->mode) {
    case REDUCE_MAP_MINMAX:
      more = t.kappa == t.kappa ? reduce_map_next(&b->sum, c, st) : reduce_map_fill_with(st, r_nan());
      if (st->mode != REDUCE_MAP_WRITE) return more;
      st->mode = THRESHOLD_COLLECT;
      st->writes = st->reverse = false;
      st->serial = true;
      st->search.count = 0;
      st->search.edged = false;
      st->search.smallest = st->reduce.low;
      return true;
    case THRESHOLD_COLLECT:
      if (st->search.count <= THRESHOLD_LIST) return threshold_solve_list(b, &t, st);
      threshold_narrow(&t, st, enough);
      st->mode = THRESHOLD_SEARCH;
      st->serial = false;
      break;
    case THRESHOLD_SEARCH:
      st->search.sum *= threshold_down(threshold_grow(&t, st), t.power * t.norm);
      if (threshold_step(&t, st, st->search.sum, st->search.slope, enough)) break;
      if (b->scaled) {
        st->mode = THRESHOLD_SCALE;
        break;
      }
      if (!(t.kappa > 1 && threshold_shows(st->search.sum, false)))
        return threshold_write(&t, st, st->search.sum);
      threshold_edge_start(&t, st);
      st->search.whole = st->search.sum;
      st->mode = THRESHOLD_EDGE_FIND;
      break;
    case THRESHOLD_EDGE_FIND:
      if (!threshold_edge_try(st)) return threshold_write(&t, st, st->search.whole);
      st->mode = THRESHOLD_EDGE_TRY;
      break;
    case THRESHOLD_EDGE_TRY:
      st->mode = THRESHOLD_EDGE_FIND;
      if (threshold_edge_again(st, st->search.sum)) break;
      threshold_edge_search(&t, st);
      st->mode = THRESHOLD_EDGE_SEARCH;
      break;
    case THRESHOLD_EDGE_SEARCH: {
      const int grow = threshold_grow(&t, st);
      const double down = threshold_down(grow, t.power);
      const double steep = st->search.slope * down * (st->search.at * d_power_of_two(grow));
      if (threshold_edge_step(&t, st, st->search.sum * down, steep, 4 * enough)) break;
      return threshold_write(&t, st, st->search.sum * down);
    }
    case THRESHOLD_SCALE: st->reduce.found[THRESHOLD_SUM] = st->search.sum; return threshold_write(&t, st, 1);
    default: return reduce_map_next(&b->sum, c, st);
  }
  st->search.sum = st->search.slope = 0;
  return true;
}

static void engine_begin(const void *body, const row_call *c, row_state *st) {
  reduce_map_begin(&((const threshold_body *)body)->sum, c, st);
}
static void engine_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  threshold_pass(body, c, st, parts);
}
static void engine_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  threshold_merge(c, st, parts, count);
}
static bool engine_next(const void *body, const row_call *c, row_state *st) {
  return threshold_next(body, c, st);
}
const row_engine threshold_engine = {
    .begin = engine_begin, .pass = engine_pass, .merge = engine_merge, .next = engine_next, .rows = run_rows};

void threshold_finalize(consts *k, const span *s, const reduce_map_row *r) {
  const double *found = r->found;
  threshold_consts(k, found[THRESHOLD_LIFT], found[THRESHOLD_BELOW], (int)found[THRESHOLD_GROWN],
                   found[THRESHOLD_FACTOR], (double)r->max, found[THRESHOLD_EDGED] != 0);
  k->v[THRESHOLD_INV] = (real)(1 / found[THRESHOLD_SUM]);
  k->v[THRESHOLD_ONE] = (real)found[THRESHOLD_SUM];
}
