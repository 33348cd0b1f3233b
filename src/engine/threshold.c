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
 * to 2. */
enum { THRESHOLD_SMALL = -40, THRESHOLD_GROW_MOST = 2 * (EXP_BIAS - 1) };

SMI int threshold_grow(const threshold_shape *t, double at) {
  if (SMX_REAL == 64 || threshold_near_one(t) || !(at > 0 && at < d_power_of_two(THRESHOLD_SMALL))) return 0;
  const int grow = -d_exponent(at) & ~1;
  return grow < THRESHOLD_GROW_MOST ? grow : THRESHOLD_GROW_MOST;
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
  vreal log, v = threshold_v(threshold_at(s, i, cnt), k, &log);
  acc->a = v_add(acc->a, threshold_power(v, log, k->v[THRESHOLD_POWER]));
  acc->b = v_add(acc->b, threshold_power(v, log, k->v[THRESHOLD_POWER] - 1));
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

/* Adds the elements that may have a weight to the list. Once it is full the search is over the row,
 * and their number does not matter. */
SMI void threshold_collect(const real *x, size_t n, double max, double width, row_state *st) {
  /* rounded, so it may let in too many: the search drops those */
  const vreal bound = v_set1((real)(max - width));
  for (size_t i = 0; i < n && st->search.count <= THRESHOLD_LIST; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal v = at(x, i, cnt);
    for (uint32_t left = m_bits(m_and(m_not(v_lt(v, bound)), lanes_below(cnt))); left; left &= left - 1) {
      double d = (double)x[i + (size_t)__builtin_ctz(left)] - max;
      if (st->search.count < THRESHOLD_LIST) st->list[st->search.count] = d;
      st->search.count += d > -width;
    }
  }
}

SMI double threshold_term(double v, double power) {
  if (power == 1) return v;
  if (power == 2) return v * v;
  double w = v - 1;
  return d_exp(power * (w > -0.29 ? d_log_1pf(w, 0, 0) : d_log(v, 0)));
}

/* Whether r only comes down. */
SMI bool threshold_falls(const threshold_shape *t) { return t->power * t->norm >= 1; }

/* sum v^e and sum v^(e - 1) over the list. Elements without a weight leave the list if they cannot
 * get one again. */
static double threshold_list_sum(const threshold_shape *t, row_state *st, double at, double power,
                                 double *slope) {
  double sum = 0, base = threshold_r(t, at);
  const bool falls = threshold_falls(t);
  uint64_t kept = 0;
  *slope = 0;
  for (uint64_t i = 0; i < st->search.count; i++) {
    double d = st->list[i], v = base + t->kappa * d;
    if (!(v > 0x1p-1000)) continue;
    double y = threshold_term(v, power);
    sum += y;
    *slope += y / v;
    if (falls) st->list[kept++] = d;
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
  if (power >= 1) {
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
  st->search.low = threshold_near_one(t) ? -1 / t->kappa : 0;
  st->search.steps = 0;
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

/* r is known, and the sum of the weights that it gives, which the write loop reads. Where kappa is
 * above 1 a weight as small as (2^-48)^(1 / kappa) can depend on the last bit of r; if that shows
 * in the sum, weights are divided by it. */
static bool threshold_write(const threshold_shape *t, row_state *st, double sum) {
  double at = st->search.at;
  const bool off = sum > 1 + 0x1p-20 || sum < 1 - 0x1p-20;
  const int grow = threshold_grow(t, at);
  st->reduce.found[THRESHOLD_LIFT] = threshold_lift(t, at);
  st->reduce.found[THRESHOLD_BELOW] = threshold_below(t, at);
  st->reduce.found[THRESHOLD_GROWN] = grow;
  st->reduce.found[THRESHOLD_FACTOR] =
      threshold_down(grow, t->power) / (off && t->kappa > 1 && sum > 0 ? sum : 1);
  st->mode = REDUCE_MAP_WRITE;
  st->serial = false;
  return st->writes = st->reverse = true;
}

/* The sum of the weights on the list as the write loop computes them, with r / kappa as a pair of
 * reals. */
static double threshold_list_weights(const threshold_shape *t, const row_state *st) {
  real high, low;
  threshold_split(threshold_lift(t, st->search.at), &high, &low);
  double sum = 0, lift = (double)high + (double)low;
  for (uint64_t i = 0; i < st->search.count; i++) {
    const double v = t->kappa * (st->list[i] + lift);
    if (v > 0x1p-1000) sum += threshold_term(v, t->power);
  }
  return sum;
}

static bool threshold_solve_list(const threshold_body *b, const threshold_shape *t, row_state *st) {
  double power = t->power * t->norm, slope, sum;
  threshold_start(t, st);
  do sum = threshold_list_sum(t, st, st->search.at, power, &slope);
  while (threshold_step(t, st, sum, slope, 0));
  if (b->scaled) st->reduce.found[THRESHOLD_SUM] = threshold_list_sum(t, st, st->search.at, t->power, &slope);
  return threshold_write(t, st, t->kappa > 1 ? threshold_list_weights(t, st) : 1);
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
  threshold_consts(&k, threshold_lift(&t, st->search.at), threshold_below(&t, st->search.at),
                   threshold_grow(&t, st->search.at), 1, st->reduce.max);
  k.v[THRESHOLD_POWER] = (real)power;
  reduce_map_row r = {0};
  size_t base = c->start - c->origin;
  bool ordered = threshold_ordered(&t, st);
  for (size_t g = 0; g * GROUP < c->count; g++) {
    size_t n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == THRESHOLD_COLLECT)
      threshold_collect(s.src[0] + base + g * GROUP, n, st->reduce.max, 1 / t.kappa, st);
    else threshold_sums(power, ordered)(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
}

void threshold_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->mode < THRESHOLD_COLLECT) reduce_map_merge(c, st, parts, count);
  for (size_t g = 0; st->mode > THRESHOLD_COLLECT && g < count; g++)
    st->search.sum += parts[g].sum, st->search.slope += parts[g].sum2;
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
      st->search.smallest = st->reduce.low;
      return true;
    case THRESHOLD_COLLECT:
      if (st->search.count <= THRESHOLD_LIST) return threshold_solve_list(b, &t, st);
      threshold_narrow(&t, st, enough);
      st->mode = THRESHOLD_SEARCH;
      st->serial = false;
      break;
    case THRESHOLD_SEARCH:
      st->search.sum *= threshold_down(threshold_grow(&t, st->search.at), t.power * t.norm);
      if (threshold_step(&t, st, st->search.sum, st->search.slope, enough)) break;
      if (!b->scaled) return threshold_write(&t, st, st->search.sum);
      st->mode = THRESHOLD_SCALE;
      break;
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
                   found[THRESHOLD_FACTOR], (double)r->max);
  k->v[THRESHOLD_INV] = (real)(1 / found[THRESHOLD_SUM]);
  k->v[THRESHOLD_ONE] = (real)found[THRESHOLD_SUM];
}
