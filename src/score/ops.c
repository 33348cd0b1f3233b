/* score/ops.c - sums of a row of logits, and their gradients (score.h). Compiled once per
 * instruction set and real type. A row is walked once from memory and then from the nearest cache:
 * first for its largest element, then for sums that are relative to it. Lanes are summed over a
 * page, pages in double. */
#include "compress.h"
#include "engine/loops.h"
#include "math.h"
#include "philox.h"
#include "rank.h"
#include "score.h"

#define LOW (SMX_REAL == 32 ? -87 : -708) /* e^d below is less than the smallest normal number: 0 */

typedef struct walk {
  const real *z;
  real *e; /* room for the exponentials, or NULL: they are made again */
  int64_t n;
  vreal max, by, mean, inverse, uniform, a, b; /* inverse: 1 / s, uniform: 1 / n */
  /* The usual row, for which loops are copied: all classes are there, temperature 1, and no logit
   * is so far below the largest that its exponential is 0. */
  bool plain;
} walk;

SMI vreal distance(const walk *w, vreal z) {
  const vreal d = v_sub(z, w->max);
  return w->plain ? d : v_mul(d, w->by);
}
SMI vmask is_valid(vreal z) { return v_lt(v_set1(-R_INF), z); }
/* x, and 0 of a class that is absent; behind the end of a row there are such too. */
SMI vreal if_valid(const walk *w, vreal z, vreal x, bool whole) {
  return w->plain && whole ? x : v_where(is_valid(z), x);
}

/* d, no less than LOW, and 0 of the largest, which may be infinite. */
SMI vreal bounded(const walk *w, vreal z) {
  return v_select(v_eq(z, w->max), v_set1(0), v_max(distance(w, z), v_set1(LOW)));
}
/* The same, but for powers, where e^(order d) is a number long after e^d: finite. */
SMI vreal finite_of(const walk *w, vreal z) {
  return v_select(v_eq(z, w->max), v_set1(0), v_max(distance(w, z), v_set1(-R_MAX)));
}
/* e^x, LOW <= x <= 0 */
SMI vreal near_exp(vreal x) {
  const vreal sum = v_fma(x, v_set1(LOG2_E), v_set1(ROUNDER));
  return v_scale_normal(exp_poly(exp_reduce(x, v_sub(sum, v_set1(ROUNDER)))), sum);
}
/* The same, and 0 of LOW, which stands for all below. */
SMI vreal exp_of(vreal x) { return v_where(v_lt(v_set1(LOW), x), near_exp(x)); }

/* ---- the largest ---- */

typedef struct tops {
  vreal first, second, far; /* far: the largest |x|, NaN where there is one */
} tops;

SMI void top_step(tops *t, vreal x) {
  t->second = v_max(t->second, v_min(t->first, x));
  t->first = v_max(t->first, x);
}

/* Two vectors at a time, which do not wait for one another. */
static tops find_tops(const real *z, int64_t n) {
  const vreal none = v_set1(-R_INF);
  tops t = {none, none, v_set1(0)}, u = t;
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    const vreal x = v_load(z + i), y = v_load(z + i + LANES);
    t.far = v_farther(t.far, v_abs(x)), u.far = v_farther(u.far, v_abs(y));
    top_step(&t, x), top_step(&u, y);
  }
  for (; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    t.far = v_farther(t.far, v_abs(v_load_n(z + i, cnt, 0)));
    top_step(&t, v_load_n(z + i, cnt, -R_INF));
  }
  t.second = v_max(v_max(t.second, u.second), v_min(t.first, u.first));
  t.first = v_max(t.first, u.first), t.far = v_farther(t.far, u.far);
  return t;
}

NOINLINE int64_t count_of(const real *z, int64_t n, real x) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const uint32_t equal = m_bits(v_eq(v_load_n(z + i, cnt, x), v_set1(x)));
    count += __builtin_popcount(equal & ((1u << cnt) - 1));
  }
  return count;
}

/* The first element that is x, but not number `but`. */
static int64_t find(const real *z, int64_t n, real x, int64_t but) {
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    uint32_t bits = m_bits(v_eq(v_load_n(z + i, cnt, -R_INF), v_set1(x))) & ((1u << cnt) - 1);
    if (but >= i && but < i + LANES) bits &= ~(1u << (but - i));
    if (bits) return i + __builtin_ctz(bits);
  }
  return -1;
}

/* Returns the largest |z|. */
static real take_tops(const real *z, int64_t n, const score_row *r, score_sums *s) {
  const tops t = find_tops(z, n);
  const real max = v_hmax(t.first), far = v_hmax(t.far);
  const bool nan = m_any(m_not(v_eq(t.far, t.far)));
  const int64_t absent = !nan && far == R_INF ? count_of(z, n, -R_INF) : 0;
  s->nan = nan || (max == R_INF && !r->limit);
  s->max = (double)max, s->valid = (double)(n - absent), s->second = -__builtin_inf();
  s->index = s->next = -1;
  if (s->nan || absent == n) return far;
  const int lane = __builtin_ctz(m_bits(v_eq(t.first, v_set1(max))));
  const real second = v_hmax(v_select(v_eq(v_iota(), v_set1((real)lane)), t.second, t.first));
  s->second = (double)second, s->ties = second < max ? 1 : (double)count_of(z, n, max);
  if (!(r->sums & SCORE_PLACES)) return far;
  s->index = find(z, n, max, -1);
  if (second > -R_INF) s->next = find(z, n, second, s->index);
  return far;
}

/* ---- sums ---- */

enum { TERMS = 4 };
typedef void term_fn(const walk *w, int64_t i, vreal z, bool whole, vreal *sum); /* whole: LANES elements */

/* The sums of up to TERMS terms. Two vectors have sums of their own, so that additions do not wait
 * for one another. */
SMI void sum_terms(const walk *w, int count, term_fn *add, double *total) {
  v_sum64 all[TERMS] = {{{{0}}}};
  for (int64_t page = 0; page < w->n; page += PAGE) {
    const int64_t end = page + PAGE < w->n ? page + PAGE : w->n;
    vreal sum[2][TERMS];
    int64_t i = page;
    for (int k = 0; k < count; k++) sum[0][k] = sum[1][k] = v_set1(0);
    for (; i + 2 * LANES <= end; i += 2 * LANES)
      add(w, i, v_load(w->z + i), true, sum[0]), add(w, i + LANES, v_load(w->z + i + LANES), true, sum[1]);
    for (int u = 0; i < end; i += LANES, u++)
      add(w, i, v_load_n(w->z + i, lanes_left((size_t)(end - i)), -R_INF), false, sum[u]);
    for (int k = 0; k < count; k++) v_sum64_add(all + k, v_add(sum[0][k], sum[1][k]));
  }
  for (int k = 0; k < count; k++) total[k] = v_sum64_total(all + k);
}

/* e, e d and e^2 of what is below the largest, and d. */
enum { BELOW, MOMENT, SQUARES, DISTANCE };
SMI void exp_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) {
  const vreal raw = distance(w, z), d = w->plain && whole ? raw : bounded(w, z);
  const vreal all = w->plain && whole ? near_exp(d) : exp_of(d), e = v_where(v_lt(z, w->max), all);
  v_prefetch(w->z + w->n + i); /* the next row's */
  if (w->e) v_store(w->e + i, all);
  sum[BELOW] = v_add(sum[BELOW], e), sum[MOMENT] = v_fma(e, d, sum[MOMENT]);
  sum[SQUARES] = v_fma(e, e, sum[SQUARES]);
  sum[DISTANCE] = v_add(sum[DISTANCE], if_valid(w, z, raw, whole));
}
enum { SQUARE, ABSOLUTE };
SMI void variance_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) {
  const vreal q = if_valid(w, z, v_sub(distance(w, z), w->mean), whole);
  sum[SQUARE] = v_fma(q, q, sum[SQUARE]);
}
SMI vreal exp_at(const walk *w, int64_t i, vreal z) {
  return w->e ? v_load(w->e + i) : exp_of(bounded(w, z));
}
SMI void absolute_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) {
  const vreal p = v_mul(exp_at(w, i, z), w->inverse);
  const vreal q = if_valid(w, z, v_sub(p, w->uniform), whole);
  sum[ABSOLUTE] = v_add(sum[ABSOLUTE], v_abs(q));
}
SMI void sign_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) {
  const vreal zero = v_set1(0), p = v_mul(exp_at(w, i, z), w->inverse);
  const vreal q = if_valid(w, z, v_sub(p, w->uniform), whole);
  sum[0] = v_add(sum[0], v_select(v_lt(zero, q), p, v_where(v_lt(q, zero), v_sub(zero, p))));
}
SMI void both_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) {
  variance_terms(w, i, z, whole, sum), absolute_terms(w, i, z, whole, sum);
}
SMI void power_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) { /* a: the order */
  const vmask other = m_and(is_valid(z), m_not(v_eq(z, w->max)));
  const vreal x = v_max(v_mul(finite_of(w, z), w->a), v_set1(LOW));
  sum[0] = v_add(sum[0], v_select(other, exp_of(x), v_set1(0)));
}
/* e^x - 1, |x| < 80 */
SMI vreal expm1_of(vreal x) {
  const vreal e = v_expm1_pos(v_min(v_abs(x), v_set1(79)));
  return v_select(v_lt(x, v_set1(0)), v_sub(v_set1(0), v_div(e, v_add(e, v_set1(1)))), e);
}
/* e expm1((order - 1) (d - log s)): sum p^order = 1 + its sum / s, without cancelling near 1. a:
 * order - 1, b: log s */
SMI void near_terms(const walk *w, int64_t i, vreal z, bool whole, vreal *sum) {
  const vreal d = bounded(w, z), e = v_select(is_valid(z), exp_of(d), v_set1(0));
  sum[0] = v_fma(e, expm1_of(v_mul(v_sub(d, w->b), w->a)), sum[0]);
}

static void sum_power(walk *w, const score_row *r, score_sums *s) {
  double total[TERMS];
  if (score_is_near(r->order)) {
    w->a = v_set1((real)(r->order - 1)), w->b = v_set1((real)s->log_sum);
    sum_terms(w, 1, near_terms, total);
    const double less = total[0] / (s->rest + 1);
    s->power = less < 0 ? -d_log1p(-less / (1 + less)) : d_log1p(less);
    return;
  }
  w->a = v_set1((real)r->order), total[0] = s->squares;
  if (r->order != 2) sum_terms(w, 1, power_terms, total);
  s->power = d_log1p(total[0] + (s->ties - 1)) - r->order * s->log_sum;
}

SMI void sum_all(walk *w, const score_row *r, score_sums *s) {
  double total[TERMS];
  if (w->e) sum_terms(w, TERMS, exp_terms, total);
  else
    w->e = NULL, sum_terms(w, TERMS, exp_terms, total); /* another copy of the loop, which stores nothing */
  s->below = total[BELOW], s->moment = total[MOMENT], s->squares = total[SQUARES];
  s->rest = s->below + (s->ties - 1), s->log_sum = d_log1p(s->rest), s->mean = total[DISTANCE] / s->valid;
  s->log_valid = d_log1p(s->valid - 1);
  w->mean = v_set1((real)s->mean), w->inverse = v_set1((real)(1 / (s->rest + 1)));
  w->uniform = v_set1((real)(1 / s->valid));
  if (r->sums & SCORE_ABSOLUTE) {
    sum_terms(w, 2, both_terms, total);
    s->absolute = total[ABSOLUTE];
  } else if (r->sums & SCORE_VARIANCE) sum_terms(w, 1, variance_terms, total);
  s->variance = total[SQUARE] / (s->valid - 1); /* of nothing, where nobody asked */
}

static void sums(const score_row *r, const void *z, int64_t n, void *work, score_sums *s) {
  walk w = {.z = z, .n = n, .by = v_set1((real)(1 / r->temperature))};
  *s = (score_sums){0};
  const double far = (double)take_tops(z, n, r, s);
  if (s->nan || s->valid == 0) return;
  w.max = v_set1((real)s->max), w.e = r->sums & SCORE_ABSOLUTE && n <= SCORE_ROOM ? work : NULL;
  if (r->temperature == 1 && s->max + far < -LOW - 1) w.plain = true, sum_all(&w, r, s);
  else w.plain = false, sum_all(&w, r, s);
  w.plain = false;
  if (r->sums & SCORE_POWER) sum_power(&w, r, s);
  if (r->sums & SCORE_ABSOLUTE && r->sums & SCORE_PLACES) { /* a gradient */
    double total[TERMS];
    sum_terms(&w, 1, sign_terms, total);
    s->sign = total[0];
  }
}

/* ---- gradients ---- */

typedef struct slopes {
  vreal inverse, uniform, a, b, c, sign, power, level, slope, order, shift;
  bool near, powers, straight; /* straight: d takes part, which may be -inf */
} slopes;

static slopes slopes_of(const score_row *r, const score_sums *s, const score_slope *g) {
  return (slopes){.inverse = v_set1((real)(1 / (s->rest + 1))),
                  .uniform = v_set1((real)(1 / s->valid)),
                  .a = v_set1((real)g->a),
                  .b = v_set1((real)g->b),
                  .c = v_set1((real)g->c),
                  .sign = v_set1((real)g->sign),
                  .power = v_set1((real)g->power),
                  .level = v_set1((real)g->level),
                  .slope = v_set1((real)g->slope),
                  .order = v_set1((real)(g->near ? r->order - 1 : r->order)),
                  .shift = v_set1((real)(g->near ? s->log_sum + g->at : s->power + r->order * s->log_sum)),
                  .near = g->near,
                  .powers = g->power != 0,
                  .straight = g->slope != 0};
}

/* What the powers add: q = e^(order d - log sum e^(order d)), or p expm1(...). */
SMI vreal power_slope(const slopes *k, const walk *w, vreal z, vreal d, vreal p) {
  if (k->near) return v_mul(p, expm1_of(v_mul(k->order, v_sub(d, k->shift))));
  const vreal x = v_sub(v_mul(k->order, finite_of(w, z)), k->shift);
  return v_sub(exp_of(v_min(v_max(x, v_set1(LOW)), v_set1(0))), p);
}

SMI vreal slope_at(const slopes *k, const walk *w, vreal z) {
  const vreal zero = v_set1(0), d = bounded(w, z), p = v_mul(exp_of(d), k->inverse);
  const vreal q = v_sub(p, k->uniform), one = v_set1(1), minus = v_set1(-1);
  const vreal sign = v_select(v_lt(zero, q), one, v_select(v_lt(q, zero), minus, zero));
  vreal y = v_fma(k->sign, sign, v_fma(k->c, p, v_fma(k->b, d, k->a)));
  vreal all = k->level;
  if (k->straight) all = v_fma(k->slope, v_select(v_eq(z, w->max), zero, distance(w, z)), all);
  y = v_fma(p, y, all);
  if (k->powers) y = v_fma(k->power, power_slope(k, w, z, d, p), y);
  return v_select(is_valid(z), v_clean(y), zero);
}

static void gradient(const score_row *r, const void *z, int64_t n, const score_sums *s, const score_slope *g,
                     void *dz) {
  const slopes k = slopes_of(r, s, g);
  const walk w = {.z = z, .n = n, .by = v_set1((real)(1 / r->temperature)), .max = v_set1((real)s->max)};
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    v_store_n((real *)dz + i, cnt, slope_at(&k, &w, v_load_n(w.z + i, cnt, -R_INF)));
  }
}

static double plain_exp(double x) { return d_exp(x); }
static double plain_softplus(double x) { return d_softplus(x); }
/* Where e^x - 1 would cancel: x (1 + x / 2 (1 + x / 3 (...))). */
static double plain_expm1(double x) {
  static const double inverse[] = {1.0 / 2, 1.0 / 3,  1.0 / 4,  1.0 / 5,  1.0 / 6,  1.0 / 7,  1.0 / 8,
                                   1.0 / 9, 1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13, 1.0 / 14, 1.0 / 15};
  if (!(x > -0.5 && x < 0.5)) return d_exp(x) - 1;
  double y = 1;
  for (int i = 13; i >= 0; i--) y = 1 + y * x * inverse[i];
  return x * y;
}

static double plain_log(double x) {
  return x > 0 ? d_log(x, 0) : x == 0 ? -__builtin_inf() : __builtin_nan("");
}

#define ONE_NUMBER(purpose, draw) _Static_assert((int)purpose == (int)draw, "purposes have one number")
ONE_NUMBER(PURPOSE_HASHES, SCORE_DRAW_HASHES);
ONE_NUMBER(PURPOSE_HASH_SIGNS, SCORE_DRAW_HASH_SIGNS);
ONE_NUMBER(PURPOSE_CELLS, SCORE_DRAW_CELLS);
ONE_NUMBER(PURPOSE_BOOTSTRAP, SCORE_DRAW_ROWS);
ONE_NUMBER(PURPOSE_SIGNS, SCORE_DRAW_SIGNS);
ONE_NUMBER(PURPOSE_CLASSES, SCORE_DRAW_CLASSES);
#undef ONE_NUMBER

static void plain_draw(uint64_t seed, uint64_t stream, score_draw of, uint64_t block, uint64_t words[2]) {
  const draws d = {seed, stream, (purpose)of};
  draw_block(&d, block, words);
}

#if SMX_REAL == 64
#define RUNS &SMX_FN(score_runs)
#else
#define RUNS NULL
#endif
const score_kernels SMX_FN(score_kernels) = {sums,
                                             gradient,
                                             SMX_FN(score_ensemble_values),
                                             SMX_FN(score_ensemble_gradient),
                                             plain_exp,
                                             plain_softplus,
                                             plain_expm1,
                                             plain_log,
                                             plain_draw,
                                             RUNS};
