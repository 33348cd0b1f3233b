/* engine/threshold.h - weights that are zero below a threshold, found without sorting: sparsemax, entmax, normmax.
 *
 *     d_i = x_i - max x,  v_i = [r + kappa d_i]+,  y_i = v_i^power,  and r in (0, 1] such that sum_i v_i^(power norm) = 1.
 *
 * Only elements with d > -1 / kappa can have a weight. A row is looked at (maximum), then those elements are collected, of which typical rows
 * have few; Newton's method on them, in double and in index order, gives r. Where they are more than LIST, every step of the search is a pass
 * over the row, summed in lanes like anything else, and the FEW first of them say where to start. Which of the two it is depends on the row alone, so the bits do too.
 * sum v^(power norm) is convex in r for power norm >= 1: Newton from r = 1 comes down to the root and never passes it. Below, bisection.
 * For small kappa r is close to 1; what is kept then is u = (r - 1) / kappa. */
#ifndef SMX_ENGINE_THRESHOLD_H
#define SMX_ENGINE_THRESHOLD_H
#include "sum.h"

typedef struct threshold_shape {
  double kappa, power, norm;
} threshold_shape;

typedef struct threshold_body {
  threshold_shape (*shape)(const row_call *c, const span *s);
  sum_body sum; /* the look, rows that need a rule, and the emission, whose sum_row has r / kappa in sum, u in sum2, the sum of y in more */
  bool scaled;  /* the emission needs sum_row.more */
} threshold_body;

enum {
  THRESHOLD_COLLECT = 100,
  THRESHOLD_SEARCH,
  THRESHOLD_SCALE,
  THRESHOLD_LIST = ROW_HISTOGRAM,
  THRESHOLD_FEW = 512,
  THRESHOLD_STEPS = 200
};

/* Of consts.v. */
enum { THRESHOLD_H, THRESHOLD_L, THRESHOLD_U, THRESHOLD_UL, THRESHOLD_KAPPA, THRESHOLD_POWER, THRESHOLD_TOP, THRESHOLD_INV, THRESHOLD_ONE };

SMI bool threshold_near_one(const threshold_shape *t) { return t->kappa < 0.75; }
/* What is searched for, at, is r or u. */
SMI double threshold_r(const threshold_shape *t, double at) { return threshold_near_one(t) ? 1 + t->kappa * at : at; }

SMI void threshold_split(double x, real *high, real *low) {
  *high = (real)x;
  *low = (real)(x - (double)*high);
}
/* r / kappa, and u. */
SMI double threshold_lift(const threshold_shape *t, double at) { return threshold_near_one(t) ? 1 / t->kappa + at : at / t->kappa; }
SMI double threshold_below(const threshold_shape *t, double at) { return threshold_near_one(t) ? at : (at - 1) / t->kappa; }
SMI void threshold_consts(consts *k, double lift, double below, double max) {
  threshold_split(lift, k->v + THRESHOLD_H, k->v + THRESHOLD_L);
  threshold_split(below, k->v + THRESHOLD_U, k->v + THRESHOLD_UL);
  k->v[THRESHOLD_TOP] = (real)max;
}
SMI void threshold_shape_consts(consts *k, const threshold_shape *t) {
  k->v[THRESHOLD_KAPPA] = (real)t->kappa;
  k->v[THRESHOLD_POWER] = (real)t->power;
}

/* ---- the row in vectors ---- */

/* What rounding took from d = x - top: d + lost is exact. Ordered (Dekker 1971): no x that matters has a larger exponent than top. */
SMI vreal threshold_lost(vreal x, vreal top, vreal d, bool ordered) {
  if (ordered) return v_sub(x, v_add(d, top));
  vreal back = v_sub(d, x);
  return v_sub(v_sub(x, v_sub(d, back)), v_add(top, back));
}
/* kappa (d + r / kappa), of either sign. */
SMI vreal threshold_signed(vreal x, const consts *k, bool ordered) {
  vreal top = v_set1(k->v[THRESHOLD_TOP]), d = v_sub(x, top), lost = threshold_lost(x, top, d, ordered);
  return v_mul(v_set1(k->v[THRESHOLD_KAPPA]), v_add(v_add(d, v_set1(k->v[THRESHOLD_H])), v_add(lost, v_set1(k->v[THRESHOLD_L]))));
}
/* log of v = kappa (d + r / kappa) = 1 + kappa (d + u), and v itself, 0 where there is no weight. */
SMI vreal threshold_v(vreal x, const consts *k, vreal *log) {
  vreal v = threshold_signed(x, k, false);
  v = v_select(v_lt(v_set1(R_TINY), v), v, v_set1(0));
  if (!log) return v;
  vreal top = v_set1(k->v[THRESHOLD_TOP]), d = v_sub(x, top), lost = threshold_lost(x, top, d, false);
  vreal w = v_mul(v_set1(k->v[THRESHOLD_KAPPA]), v_add(v_add(d, v_set1(k->v[THRESHOLD_U])), v_add(lost, v_set1(k->v[THRESHOLD_UL]))));
  vmask none = v_eq(v, v_set1(0)), near = m_and(v_lt(v_set1((real)-0.29), w), m_not(none));
  vreal far_log = v_log_scaled(v_select(none, v_set1(1), v), v_set1(0));
  *log = v_select(near, log_1pf(v_select(near, w, v_set1(0))), far_log);
  return v;
}
SMI vreal threshold_power(vreal v, vreal log, real power) {
  return v_select(v_eq(v, v_set1(0)), v_set1(0), v_exp(v_mul(log, v_set1(power))));
}

/* sum v^e and sum v^(e - 1), e = power norm; power 1 and 2 without logarithms. */
SMI vreal threshold_at(const span *s, size_t i, int cnt) {
  vreal x = at(s->src[0], i, cnt);
  return cnt < LANES ? v_select(lanes_below(cnt), x, v_set1(-R_INF)) : x;
}
SMI void threshold_add_linear_of(const span *s, const consts *k, bool ordered, size_t i, int cnt, sum_acc *acc) {
  vreal v = threshold_signed(threshold_at(s, i, cnt), k, ordered);
  vmask live = v_lt(v_set1(R_TINY), v);
  acc->a = v_add(acc->a, v_select(live, v, v_set1(0)));
  acc->b = v_add(acc->b, v_select(live, v_set1(1), v_set1(0)));
}
SMI void threshold_add_square_of(const span *s, const consts *k, bool ordered, size_t i, int cnt, sum_acc *acc) {
  vreal v = v_max(threshold_signed(threshold_at(s, i, cnt), k, ordered), v_set1(0));
  acc->a = v_fma(v, v, acc->a);
  acc->b = v_add(acc->b, v);
}
#define THRESHOLD_SUMS(name) \
  SMI void threshold_add_##name(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) { \
    (void)r; \
    threshold_add_##name##_of(s, k, false, i, cnt, acc); \
  } \
  SMI void threshold_add_##name##_ordered(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) { \
    (void)r; \
    threshold_add_##name##_of(s, k, true, i, cnt, acc); \
  } \
  SUM_SUMS_OF(threshold_##name, threshold_add_##name) \
  SUM_SUMS_OF(threshold_##name##_ordered, threshold_add_##name##_ordered)
THRESHOLD_SUMS(linear)
THRESHOLD_SUMS(square)
SMI void threshold_add_power(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  (void)r;
  vreal log, v = threshold_v(threshold_at(s, i, cnt), k, &log);
  acc->a = v_add(acc->a, threshold_power(v, log, k->v[THRESHOLD_POWER]));
  acc->b = v_add(acc->b, threshold_power(v, log, k->v[THRESHOLD_POWER] - 1));
}
SUM_SUMS_OF(threshold_general, threshold_add_power)

/* Whether x with d above -1 / kappa, and those a little below, are ordered. st->shift: the smallest element. */
SMI bool threshold_ordered(const threshold_shape *t, const row_state *st) {
  real top = (real)st->max, low = (real)st->shift;
  return top > 0 && (low >= 0 || r_exponent(-low) <= r_exponent(top) || t->kappa * st->max >= 1);
}
SMI sum_group_fn *threshold_sums(double power, bool ordered) {
  if (power == 1) return ordered ? threshold_linear_ordered : threshold_linear;
  if (power == 2) return ordered ? threshold_square_ordered : threshold_square;
  return threshold_general;
}

/* The elements that may have a weight join the list. Once it is full the search is over the row, and nobody needs to know how many they are. */
SMI void threshold_collect(const real *x, size_t n, double max, double width, row_state *st) {
  const vreal bound = v_set1((real)(max - width)); /* rounded: the search drops what it lets in too much */
  for (size_t i = 0; i < n && st->want <= THRESHOLD_LIST; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal v = at(x, i, cnt);
    for (uint32_t left = m_bits(m_and(m_not(v_lt(v, bound)), lanes_below(cnt))); left; left &= left - 1) {
      double d = (double)x[i + (size_t)__builtin_ctz(left)] - max;
      if (st->want < THRESHOLD_LIST) st->list[st->want] = d;
      st->want += d > -width;
    }
  }
}

/* ---- the search ---- */

SMI double threshold_term(double v, double power) {
  if (power == 1) return v;
  if (power == 2) return v * v;
  double w = v - 1;
  return d_exp(power * (w > -0.29 ? d_log_1pf(w, 0, 0) : d_log(v, 0)));
}

/* Whether r only comes down. */
SMI bool threshold_falls(const threshold_shape *t) { return t->power * t->norm >= 1; }

/* sum v^e and sum v^(e - 1) over the list. What has no weight leaves the list where it cannot get one again. */
static inline double threshold_list_sum(const threshold_shape *t, row_state *st, double at, double power, double *slope) {
  double sum = 0, base = threshold_r(t, at);
  const bool falls = threshold_falls(t);
  uint64_t kept = 0;
  *slope = 0;
  for (uint64_t i = 0; i < st->want; i++) {
    double d = st->list[i], v = base + t->kappa * d;
    if (!(v > 0x1p-1000)) continue;
    double y = threshold_term(v, power);
    sum += y;
    *slope += y / v;
    if (falls) st->list[kept++] = d;
  }
  if (falls) st->want = kept;
  return sum;
}

/* How much a sum of powers is too large: S - 1; of squares 2 sqrt(S) (sqrt(S) - 1), Newton on the norm, which is convex too and nearly straight:
 * some steps less, where each is a pass over the row. */
static inline double threshold_excess(double sum, double power, bool list) {
  return power == 2 && !list ? 2 * (sum - __builtin_sqrt(sum)) : sum - 1;
}

/* One step from st->sum, with the sums there; st->low .. st->ref bracket the root. enough: 0 on the list. True while there is more to do. */
static inline bool threshold_step(const threshold_shape *t, row_state *st, double sum, double slope, double enough) {
  double power = t->power * t->norm, gain = threshold_near_one(t) ? t->kappa : 1, at = st->sum, next;
  if (sum - 1 > enough) st->ref = at;
  else st->low = at;
  if (power >= 1) {
    if (!(sum - 1 > enough)) return false;
    next = at - threshold_excess(sum, power, enough == 0) / (gain * power * slope);
  } else {
    if (sum - 1 <= enough && sum - 1 >= -enough) return false;
    next = st->low + (st->ref - st->low) / 2;
  }
  if (next == at || next == st->low || next == st->ref || st->index++ == THRESHOLD_STEPS) return false;
  st->sum = next;
  return true;
}

static inline void threshold_start(const threshold_shape *t, row_state *st) {
  st->sum = st->ref = threshold_near_one(t) ? 0 : 1;
  st->low = threshold_near_one(t) ? -1 / t->kappa : 0;
  st->index = 0;
}

/* A full list holds the first elements of many. The root over a few of them is not below that over the row, so the search comes down from there:
 * some passes less. Only where a term is cheap. */
static inline void threshold_narrow(const threshold_shape *t, row_state *st, double enough) {
  double power = t->power * t->norm, slope, sum;
  threshold_start(t, st);
  if (power != 1 && power != 2) return;
  st->want = THRESHOLD_FEW;
  do sum = threshold_list_sum(t, st, st->sum, power, &slope);
  while (threshold_step(t, st, sum, slope, enough));
  double root = st->sum;
  threshold_start(t, st);
  st->sum = st->ref = root;
}

/* r is known: what the emission reads. */
static inline bool threshold_emit(const threshold_shape *t, row_state *st) {
  double at = st->sum;
  st->sum = threshold_lift(t, at);
  st->sum2 = threshold_below(t, at);
  st->mode = SUM_EMIT;
  st->serial = false;
  return st->writes = st->reverse = true;
}

static inline bool threshold_solve_list(const threshold_body *b, const threshold_shape *t, row_state *st) {
  double power = t->power * t->norm, slope, sum;
  threshold_start(t, st);
  do sum = threshold_list_sum(t, st, st->sum, power, &slope);
  while (threshold_step(t, st, sum, slope, 0));
  if (b->scaled) st->carry = threshold_list_sum(t, st, st->sum, t->power, &slope);
  return threshold_emit(t, st);
}

/* ---- the row program: that of sum.h, with the search between the look and the emission ---- */

static inline void threshold_pass(const threshold_body *b, const row_call *c, row_state *st, row_part *parts) {
  if (st->mode < THRESHOLD_COLLECT) {
    sum_pass(&b->sum, c, st, parts);
    return;
  }
  span s = span_of(c, 0);
  threshold_shape t = b->shape(c, &s);
  double power = st->mode == THRESHOLD_SCALE ? t.power : t.power * t.norm;
  consts k = {{0}};
  threshold_shape_consts(&k, &t);
  threshold_consts(&k, threshold_lift(&t, st->sum), threshold_below(&t, st->sum), st->max);
  k.v[THRESHOLD_POWER] = (real)power;
  sum_row r = {0};
  size_t base = c->start - c->origin;
  bool ordered = threshold_ordered(&t, st);
  for (size_t g = 0; g * GROUP < c->count; g++) {
    size_t n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == THRESHOLD_COLLECT) threshold_collect(s.src[0] + base + g * GROUP, n, st->max, 1 / t.kappa, st);
    else threshold_sums(power, ordered)(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
}

static inline void threshold_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->mode < THRESHOLD_COLLECT) sum_fold(c, st, parts, count);
  for (size_t g = 0; st->mode > THRESHOLD_COLLECT && g < count; g++) st->carry += parts[g].sum, st->carry2 += parts[g].sum2;
}

static inline bool threshold_next(const threshold_body *b, const row_call *c, row_state *st) {
  span s = span_of(c, 0);
  threshold_shape t = b->shape(c, &s);
  double enough = SMX_REAL == 32 ? 0x1p-22 : 0x1p-50;
  bool more;
  switch (st->mode) {
    case SUM_LOOK:
      more = t.kappa == t.kappa ? sum_next(&b->sum, c, st) : sum_fill_with(st, r_nan());
      if (st->mode != SUM_EMIT) return more;
      st->mode = THRESHOLD_COLLECT;
      st->writes = st->reverse = false;
      st->serial = true;
      st->want = 0;
      st->shift = st->low; /* which the search needs for something else */
      return true;
    case THRESHOLD_COLLECT:
      if (st->want <= THRESHOLD_LIST) return threshold_solve_list(b, &t, st);
      threshold_narrow(&t, st, enough);
      st->mode = THRESHOLD_SEARCH;
      st->serial = false;
      break;
    case THRESHOLD_SEARCH:
      if (threshold_step(&t, st, st->carry, st->carry2, enough)) break;
      if (!b->scaled) return threshold_emit(&t, st);
      st->mode = THRESHOLD_SCALE;
      break;
    case THRESHOLD_SCALE: return threshold_emit(&t, st);
    default: return sum_next(&b->sum, c, st);
  }
  st->carry = st->carry2 = 0;
  return true;
}

/* As sum_body.settle. */
SMI void threshold_settle(consts *k, const span *s, const sum_row *r) {
  (void)s;
  threshold_consts(k, r->sum, r->sum2, (double)r->max);
  k->v[THRESHOLD_INV] = (real)(1 / r->more);
  k->v[THRESHOLD_ONE] = (real)r->more;
}

#define THRESHOLD_KERNEL(name) \
  static void name##_begin(const row_call *c, row_state *st) { sum_begin(&name##_body.sum, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { threshold_pass(&name##_body, c, st, parts); } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { threshold_fold(c, st, parts, count); } \
  static bool name##_next(const row_call *c, row_state *st) { return threshold_next(&name##_body, c, st); } \
  static void name##_rows(row_call *c); \
  static const row_kernel name##_kernel = KERNEL(name); \
  static void name##_rows(row_call *c) { run_rows(&name##_kernel, c); }

#endif
