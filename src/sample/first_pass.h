/* sample/first_pass.h - the first read of a row: it is copied, divided by a temperature, and
 * summed.
 *
 * A row that begins with a temperature and top-p, and whose best few hundred elements hold the
 * mass, is read once and never copied (sampler_best_alone). For other rows, quotients, terms and
 * sums of all elements are formed. Which of the two applies is known late, so the path of the row
 * before is tried first. */
#ifndef SMX_SAMPLE_FIRST_PASS_H
#define SMX_SAMPLE_FIRST_PASS_H
#include "top_p.h"
#include "divide.h"
#include "steps.h"

/* ---- a row without a peak ---- */

typedef struct opening {
  const real *x;
  real *z, *terms;
  divisor by;
  real scale_exp, max, low;
} opening;

/* Copies and divides a group, by a product where that is exact enough, and forms its terms: their
 * sum, and the largest and the smallest score. */
SMI real first_pass_sum(opening *q, bool product, size_t first, size_t n) {
  const opening o = *q;
  fetcher next = fetch_from(first, fetches_straight());
  vreal acc[VPB], max = v_set1(-R_INF), low = v_set1(R_INF);
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    v_prefetch_far(o.x + fetch_next(&next, u, i)); \
    vreal d, z = at(o.x, i, cnt); \
    z = product ? v_mul(z, v_set1(o.by.head)) : divide_near(&o.by, z); \
    put(o.z, i, cnt, z); \
    if ((cnt) < LANES) z = v_select(lanes_below(cnt), z, v_set1(-R_INF)); \
    const vreal e = exp_term((score){z, v_set1(0)}, false, o.scale_exp, &d); \
    put(o.terms, i, cnt, e); \
    max = v_max(z, max), low = v_min(z, low); \
    acc[u] = v_add(acc[u], e); \
  }
  FOR_EACH_VECTOR(first, n, STEP)
#undef STEP
  q->max = v_hmax(max), q->low = v_hmin(low);
  return v_fold(acc);
}
NOINLINE real first_pass_product(opening *q, size_t first, size_t n) {
  return first_pass_sum(q, true, first, n);
}
NOINLINE real first_pass_divided(opening *q, size_t first, size_t n) {
  return first_pass_sum(q, false, first, n);
}

/* With so many elements equal to the best, the best few hundred do not hold the mass. */
enum { PEAK = 10 };

/* The terms have the reference of the row's beginning, which is not above the row's own: sums are
 * those of the row's own reference, times a power of two, as long as the same terms are flushed.
 * For a row where they are not, the sums are unknown afterwards. False: `watch` is set, and the
 * best few hundred may hold the mass. */
static bool first_pass_groups(sampler *w, opening *q, bool watch) {
  enum { HIGHER = 60 };
  const row_call c = {.n = w->n, .src = {w->z}};
  const span s = span_of(&c, 0);
  const consts none = {{0}};
  exp_sum row_max = {.f = &plain_scores, .s = &s, .k = &none, .skip = SIZE_MAX, .scale_exp = q->scale_exp};
  sampler_sums *groups = w->room;
  real max = -R_INF, low = R_INF;
  double sum = 0;
  bool ordinary = true;
  for (size_t g = 0; g < w->n; g += GROUP) {
    const size_t n = group_size(g, w->n);
    sum += groups[g / GROUP].lanes =
        (double)(q->by.product ? first_pass_product(q, g, n) : first_pass_divided(q, g, n));
    if (q->max > max) max = q->max, w->top_at = g;
    if (k_of(q->low) - q->scale_exp < MIN_EXP) {
      (void)plain_scores.loops->sum_low(&row_max, g, n);
      q->low = row_max.low;
    }
    if (q->low < low) low = q->low;
    ordinary = ordinary && sum <= (double)R_MAX && in_range(max) && k_of(max) - 1 - q->scale_exp <= HIGHER;
    if (watch && ordinary &&
        PEAK * (double)exp_of(&(exp_row){.scale_exp = q->scale_exp}, max, 0) >
            sum / (double)(g + n) * (double)w->n)
      return false;
  }
  if (!(ordinary && k_of(low) - (k_of(max) - 1) >= MIN_EXP)) {
    w->invalid = sampler_verdict(w) != SMX_ROW_EMPTY; /* NaN or +inf */
    return true;
  }
  w->r = (exp_row){.scale_exp = q->scale_exp, .top = max, .max = (double)max};
  w->top_at +=
      plain_scores.loops->find(&plain_scores, &s, &none, 0, w->top_at, group_size(w->top_at, w->n), max);
  w->termed = true, w->low = low;
  sampler_sum_groups(w);
  return true;
}

/* Copies the row, divided by a temperature; `sums`: forms its terms and sums as well. False, with
 * nothing done: `watch` is set, and the best few hundred may hold the mass. */
static bool sampler_first_pass(sampler *w, double temperature, bool sums, bool watch) {
  const real *x = w->row->x;
  if (sums && w->n > 0) {
    const real first = (real)((double)sampler_beginning(x, w->n) / temperature);
    opening q = {.x = x,
                 .z = w->z,
                 .terms = w->terms,
                 .by = divisor_of(temperature),
                 .scale_exp = in_range(first) ? k_of(first) - 1 : -R_INF};
    if (q.scale_exp > -R_INF) return first_pass_groups(w, &q, watch);
  }
  w->invalid = !sampler_divide(w, x, temperature) || w->n == 0;
  return true;
}

/* ---- a row whose best few hundred hold the mass ---- */

/* The place among the best, with these terms and this sum of them, where the mass is reached; false
 * if they do not hold it and are not all elements of the row. Of elements up to `floor` some may be
 * missing. The best few usually hold most of the mass: finding the next best again and again is
 * faster than sorting. */
NOINLINE bool top_p_among_best(const top_few *b, const real *terms, double all, double target, real floor,
                               struct row_cutoff *last) {
  real x[TOP_P_BEST + LANES];
  double sum = 0;
  for (size_t i = 0; i < b->n; i += LANES) {
    int cnt = lanes_left(b->n - i);
    v_store(x + i, v_select(lanes_below(cnt), at(b->x, i, cnt), v_set1(-R_INF)));
  }
  if (b->n == TOP_P_BEST && all < target * (1 - 0x1p-10)) { /* they surely do not */
    const real least = topk_min(x, b->n);
    *last = (struct row_cutoff){(double)(least > floor ? least : floor), -1};
    return false;
  }
  for (size_t k = 0; k < b->n; k++) {
    const real top = topk_max(x, b->n, -R_INF);
    size_t i = 0;
    if (!(top > floor)) return false;
    while (!m_any(v_eq(v_load(x + i), v_set1(top)))) i += LANES;
    i += (size_t)__builtin_ctz(m_bits(v_eq(v_load(x + i), v_set1(top))));
    *last = (struct row_cutoff){(double)top, b->place[i]};
    sum += (double)terms[i];
    if (sum >= target) return true;
    x[i] = -R_INF;
  }
  return b->n < TOP_P_BEST && floor == -R_INF;
}

/* Sums alone, of the scores x (1 / t) in one rounding. */
SMI consts peak_setup(const row_call *c, const span *s) { return (consts){{(real)(1 / c->params[0])}}; }
SMI score score_peak(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return (score){v_mul(shifted_by(at(s->src[0], i, cnt), shift), v_set1(k->v[0])), v_set1(0)};
}
EXP_SCORES(peak, score_peak)
static const exp_body peak_body = {
    .setup = peak_setup, .scaled = true, .scores = &peak_scores, .kind = EXP_SUMS};

/* What one more group shows about the best: n elements so far below the sum that together they are
 * less than half of what top-p leaves out are not needed. */
typedef struct peak_floor {
  topk *p;
  real floor; /* elements up to it may be missing */
  /* the sum so far is sum 2^scale_exp; log_rest: of half the share left out, for each element */
  double sum, scale_exp, temperature, log_rest;
} peak_floor;
static inline void peak_each(void *own, size_t i, size_t n, const row_part *last) {
  peak_floor *q = own;
  if (!last || !(last->scale_exp > (double)-R_INF) || last->nan) return;
  const double scale_exp = last->scale_exp > q->scale_exp ? last->scale_exp : q->scale_exp;
  q->sum = d_scale(q->sum, q->scale_exp - scale_exp) + d_scale(last->sum, last->scale_exp - scale_exp),
  q->scale_exp = scale_exp;
  if (!(q->sum > 0)) return;
  const real floor =
      (real)((d_log(q->sum, 0) + scale_exp * 0.69314718055994530942 + q->log_rest) * q->temperature);
  if (floor > q->p->bar) q->p->bar = q->floor = floor;
}

/* The first read of a row that begins with a temperature and top-p: its sums, and its best few
 * hundred. If those hold the mass, only they are copied and divided, and the row is not read again.
 * False, with nothing done, if they do not. */
static bool sampler_best_alone(sampler *w, double temperature, double share) {
  top_few *const best = &w->work->best;
  topk *const p = &w->work->p;
  real terms[TOP_P_BEST + LANES] = {0};
  struct row_cutoff last = {0, 0};
  row_state st;
  const row_kernel kernel = {.engine = &exp_engine, .body = &peak_body};
  row_call c = {.n = w->n, .rows = 1, .src = {w->row->x}, .params = &temperature};
  const span s = span_of(&c, 0);
  const consts k = peak_setup(&c, &s);
  if (w->n <= FEW) return false;
  exp_begin(&peak_body, &c, &st);
  topk_start(p, TOP_P_BEST, best->x, best->place, w->row->x, w->n);
  peak_floor q = {.p = p, .floor = -R_INF, .scale_exp = (double)-R_INF, .temperature = temperature};
  q.log_rest = d_log((1 - share) / (2 * (double)w->n), 0);
  topk_sum_pass(&peak_body, &c, &st, p, peak_each, &q);
  while (exp_next(&peak_body, &c, &st)) run_pass(&kernel, &c, &st);
  if (st.mode == EXP_FILL || !(st.exp.max > (double)-R_INF)) return false;
  const exp_row r = exp_row_of(&peak_body, &s, &k, &st);
  const span few = {.src = {best->x}};
  const divisor by = divisor_of(temperature);
  double all = 0;
  best->n = p->kept;
  for (size_t i = 0; i < best->n; i += LANES) {
    vreal d, e;
    int cnt = lanes_left(best->n - i);
    e = v_select(lanes_below(cnt), exp_term(score_peak(&few, &k, &r.shift, i, cnt), false, r.scale_exp, &d),
                 v_set1(0));
    v_store(terms + i, e);
    all += (double)v_hsum(e);
  }
  if (!top_p_among_best(best, terms, all, share * st.exp.sum, q.floor, &last)) {
    if (best->n == TOP_P_BEST && last.limit < 0) w->beyond = (real)((double)(real)last.value / temperature);
    return false;
  }
  sampler_close_to(w, best, last);
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    put(w->z, i, cnt, divide_by(&by, at(w->z, i, cnt)));
  }
  return true;
}

#endif
