/* sample/sampler.h - the state of a row in smx_sample: its scores, their sums, and how elements are
 * removed.
 *
 * The row is copied once; every step changes the copy, and removed elements become -inf. When at
 * most FEW of more elements are left they are moved together (`at` then says where they came
 * from), so that later steps are cheap, and sums run over what is left. That happens where a step
 * keeps what lies above a bar, and depends on the row alone. Where more are left by a step that
 * keeps a mass, the removed ones are not overwritten at once: the draw may be the only step that
 * follows. */
#ifndef SMX_SAMPLE_SAMPLER_H
#define SMX_SAMPLE_SAMPLER_H
#include "gumbel_argmax.h"
#include "engine/topk_sum.h"
#include "engine/scores.h"

enum { FEW = 1024, DRAW_BLOCK = 256 /* terms of a draw that are summed from left to right */ };

EXP_MOMENT(sampler_moment, moment_away)
static const exp_body total_body = {LSE_BODY(lse_scalar)};
static const exp_body entropy_body = {LSE_BODY(lse_scalar), .moment = sampler_moment};

/* The sum of a group's terms: in the lanes of the contract, and in double. */
typedef struct sampler_sums {
  double lanes, total;
} sampler_sums;

/* Some of the best, in the order of the row. */
typedef struct top_few {
  size_t n;
  real x[FEW];
  int64_t place[FEW];
} top_few;

/* The state of a row. */
typedef struct sampler {
  sampler_row *row;
  struct sampler_work *work;
  real *z, *terms, *keys; /* keys: for steps that need another order */
  void *room;             /* 8 (n + 1) bytes */
  size_t n;               /* elements of z */
  bool closed;            /* z[i] was element at[i] of the row, in its order; else i */
  bool apart;             /* closed, but with the sums of the places in the row (allow.h) */
  bool known;             /* r, lse and sum are those of z */
  bool termed;            /* terms are those of z */
  bool invalid;           /* NaN, +inf, or nothing left */
  bool careful;           /* a temperature whose quotients are no numbers is 0 */
  exp_row r;
  double lse, top, sum; /* top: the largest score; sum: of the terms */
  size_t top_at;        /* the first of that score */
  double entropy;
  real low; /* none of the scores that have terms is below it but -inf; or -inf */
  /* elements below this have been removed, but are still in z; or -inf. The groups' sums are in
   * room then */
  real bar;
  /* the best few hundred, none of them below this, do not hold the mass that the next step keeps;
   * or +inf */
  real beyond;
  int64_t at[FEW];
} sampler;

/* sampler_row.work. */
typedef struct sampler_work {
  sampler own;
  top_few best;
  union {
    topk p;
    uint64_t histogram[ROW_LIST];
  };
} sampler_work;
_Static_assert(sizeof(sampler_work) <= (SMX_REAL == 64 ? SAMPLER_WORK_F64 : SAMPLER_WORK_F32), "too large");

static inline int64_t sampler_index(const sampler *w, size_t i) { return w->closed ? w->at[i] : (int64_t)i; }

/* The largest score of the beginning of a row, near its largest. */
static inline real sampler_beginning(const real *x, size_t n) {
  return topk_max(x, n < 256 ? n : 256, -R_INF);
}

/* Why there is nothing to draw: a NaN, +inf, or neither of them. */
NOINLINE smx_row_status sampler_verdict(const sampler *w) {
  bool nan = false, inf = false;
  for (size_t i = 0; i < w->n; i++) nan |= w->z[i] != w->z[i], inf |= w->z[i] > R_MAX;
  return nan ? SMX_ROW_NAN : inf ? SMX_ROW_INF : SMX_ROW_EMPTY;
}

/* The best element of a row as it is given. False: there is a NaN or +inf. */
static inline bool sampler_best_plain(const sampler_row *row, search *b) {
  const real *x = row->x;
  *b = ARGMAX_NONE;
  for (size_t g = 0; g < row->n; g += GROUP)
    if (!argmax_plain(x + g, group_size(g, row->n), (int64_t)g, b)) return false;
  return true;
}

/* Where an element of the row is now, or n. */
static inline size_t sampler_place(const sampler *w, int64_t index) {
  size_t low = 0, end = w->n;
  if (!w->closed) return (size_t)index;
  while (low < end) {
    size_t middle = low + (end - low) / 2;
    if (w->at[middle] < index) low = middle + 1;
    else end = middle;
  }
  return low < w->n && w->at[low] == index ? low : w->n;
}

static inline void sampler_changed(sampler *w) { w->known = w->termed = false, w->low = -R_INF; }

/* ---- sums ---- */

static inline void sampler_known(sampler *w, double lse) {
  w->invalid = !(lse >= -(double)R_MAX && lse <= (double)R_MAX);
  w->known = !w->invalid;
  w->lse = lse, w->top = w->r.max;
}

/* What follows from the sums of the first pass, in st. */
static inline void sampler_finalize(sampler *w, const exp_body *b, const row_kernel *k, row_call *c,
                                    row_state *st) {
  const consts none = {{0}};
  real lse = -R_INF;
  c->dst[0] = &lse;
  const span s = span_of(c, 0);
  while (exp_next(b, c, st)) run_pass(k, c, st);
  if (lse >= -R_MAX && lse <= R_MAX) {
    const exp_row r = exp_row_of(b, &s, &none, st);
    w->termed = w->termed && r.scale_exp == w->r.scale_exp && r.shift == w->r.shift;
    w->r = r, w->sum = st->exp.sum, w->top_at = (size_t)st->exp.index;
  }
  sampler_known(w, (double)lse);
  if (w->known && b->moment)
    w->entropy = d_log1p(w->r.sum_without_max) + w->top - (st->exp.top_x + st->exp.moment / st->exp.sum);
}

/* Sums, and with `entropy` H = lse - sum p z as well. */
NOINLINE void sampler_sum(sampler *w, bool entropy) {
  if (w->known && !entropy) return;
  const exp_body *b = entropy ? &entropy_body : &total_body;
  const row_kernel k = {.engine = &exp_engine, .body = b};
  row_state st;
  row_call c = {.n = w->n, .rows = 1, .src = {w->z}};
  exp_begin(b, &c, &st);
  run_pass(&k, &c, &st);
  sampler_finalize(w, b, &k, &c, &st);
}

static inline vreal sampler_term(const sampler *w, vreal z) {
  vreal d;
  return exp_term((score){v_sub(z, v_set1(w->r.shift)), v_set1(0)}, false, w->r.scale_exp, &d);
}

/* The terms e^z 2^-scale_exp of a row whose sums are known. */
NOINLINE void sampler_terms(sampler *w) {
  if (w->termed) return;
  const real *const z = w->z;
  real *const terms = w->terms;
  const sampler own = {.r = w->r};
#define STEP(u, i, cnt) put(terms, i, cnt, sampler_term(&own, at(z, i, cnt)));
  FOR_EACH_VECTOR_STRAIGHT(0, w->n, STEP)
#undef STEP
  w->termed = true;
}

/* The sum of n terms, without number `skip`. */
static inline double sampler_lanes(const real *terms, size_t first, size_t n, size_t skip) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal e = at(terms, i, cnt); \
    if (skip - (i) < LANES) e = v_select(v_eq(v_iota(), v_set1((real)(skip - (i)))), v_set1(0), e); \
    acc[u] = v_add(acc[u], e); \
  }
  FOR_EACH_VECTOR(first, n, STEP)
#undef STEP
  return (double)v_fold(acc);
}

/* The sums of the row from those of its groups, which are in room: what sampler_sum() would
 * find. */
static inline void sampler_sum_groups(sampler *w) {
  const row_call c = {.n = w->n, .src = {w->z}};
  const span s = span_of(&c, 0);
  const consts none = {{0}};
  const sampler_sums *groups = w->room;
  double other = 0;
  w->sum = 0;
  for (size_t g = 0; g < w->n; g += GROUP) {
    const size_t n = group_size(g, w->n);
    w->sum += groups[g / GROUP].lanes;
    other += w->top_at - g < n ? sampler_lanes(w->terms, g, n, w->top_at) : groups[g / GROUP].lanes;
  }
  exp_finalize(&total_body, &s, &none, &w->r, w->sum, other);
  sampler_known(w, (double)r_clean(lse_of(&w->r)));
}

/* The same after elements other than the best have been removed. */
NOINLINE void sampler_sum_terms(sampler *w) {
  sampler_sums *groups = w->room;
  for (size_t g = 0; g < w->n; g += GROUP)
    groups[g / GROUP].lanes = sampler_lanes(w->terms, g, group_size(g, w->n), SIZE_MAX);
  sampler_sum_groups(w);
}

/* ---- leaving ---- */

/* Which of some elements have a key above the bar, or are equal to it and not behind number
 * `limit`. */
SMI vmask sampler_kept(vreal key, vreal bar, size_t i, int64_t limit) {
  vmask keep = v_lt(bar, key);
  if ((int64_t)i > limit) return keep;
  const int64_t upto = limit - (int64_t)i;
  return m_or(keep, m_and(v_eq(key, bar), v_lt(v_iota(), v_set1(upto < LANES ? (real)(upto + 1) : LANES))));
}

/* Whether some of NEAR_SIDE vectors of keys is not below the bar. */
enum { NEAR_SIDE = 4 };
SMI bool sampler_near(const real *keys, vreal bar) {
  const vreal a = v_max(v_load(keys), v_load(keys + LANES));
  const vreal b = v_max(v_load(keys + 2 * LANES), v_load(keys + 3 * LANES));
  return m_any(m_not(v_lt(v_max(a, b), bar)));
}
/* Moves what is kept of more than FEW elements together, if that is at most FEW. */
NOINLINE bool sampler_close(sampler *w, const real *keys, real bar, int64_t limit) {
  const vreal low = v_set1(bar), gone = v_set1(-R_INF);
  size_t left = 0;
  for (size_t i = 0; i < w->n; i += LANES) {
    while (i + NEAR_SIDE * LANES <= w->n && !sampler_near(keys + i, low)) i += NEAR_SIDE * LANES;
    if (i >= w->n) break;
    const int cnt = lanes_left(w->n - i);
    const vmask keep = sampler_kept(at(keys, i, cnt), low, i, limit);
    uint32_t stay = m_bits(m_and(m_and(keep, v_lt(gone, at(w->z, i, cnt))), lanes_below(cnt)));
    if (left + (size_t)__builtin_popcount(stay) > FEW) return false;
    for (; stay; stay &= stay - 1) w->at[left++] = (int64_t)i + __builtin_ctz(stay);
  }
  for (size_t i = 0; i < left; i++) w->z[i] = w->z[w->at[i]];
  w->n = left;
  w->closed = true;
  sampler_changed(w);
  return true;
}

/* Of n elements, keeps what has a key above the bar, and of its equals those up to number
 * `limit`. */
NOINLINE void sampler_clear(sampler *w, const real *keys, real bar, int64_t limit, size_t first, size_t n) {
  const vreal gone = v_set1(-R_INF), low = v_set1(bar);
  for (size_t i = first; i < first + n; i += LANES) {
    const int cnt = lanes_left(first + n - i);
    const vmask keep = sampler_kept(at(keys, i, cnt), low, i, limit);
    put(w->z, i, cnt, v_select(keep, at(w->z, i, cnt), gone));
    if (w->termed) put(w->terms, i, cnt, v_select(keep, at(w->terms, i, cnt), v_set1(0)));
  }
}

/* The same for all of them. */
NOINLINE void sampler_keep(sampler *w, const real *keys, real bar, int64_t limit) {
  if (w->n > FEW && sampler_close(w, keys, bar, limit)) return;
  sampler_clear(w, keys, bar, limit, 0, w->n);
  if (w->known && w->termed && w->z[w->top_at] > -R_INF) sampler_sum_terms(w);
  else sampler_changed(w);
}

/* Whether more than `most` are not below the bar. */
static inline bool sampler_many(const sampler *w, real bar, size_t most) {
  size_t count = 0, i = 0;
  for (; i < w->n && count <= most; i += LANES) {
    const int cnt = lanes_left(w->n - i);
    count += (size_t)__builtin_popcount(
        m_bits(m_and(m_not(v_lt(at(w->z, i, cnt), v_set1(bar))), lanes_below(cnt))));
  }
  return count > most;
}

/* Marks elements below the bar as removed, in a row of which many are left then; the groups' sums
 * without them are in room. */
static inline void sampler_cut(sampler *w, real bar) {
  const size_t group = w->top_at / GROUP * GROUP;
  sampler_clear(w, w->z, bar, INT64_MAX, group, group_size(group, w->n));
  sampler_sum_groups(w);
  w->bar = bar;
}

/* Overwrites the removed elements. */
static inline void sampler_leave(sampler *w) {
  if (w->bar > -R_INF) sampler_clear(w, w->z, w->bar, INT64_MAX, 0, w->n);
  w->bar = -R_INF;
}

/* The least score that is not below the bar, or the best. */
static inline real sampler_low(const sampler *w, double bar) {
  const real low = (real)(bar < w->top ? bar : w->top);
  /* rounded down: the next */
  return (double)low < bar && (double)low < w->top ? radix_value(radix_key(low) + 1) : low;
}
/* Keeps z >= bar, and the best. */
static inline void sampler_above(sampler *w, double bar) {
  sampler_keep(w, w->z, sampler_low(w, bar), INT64_MAX);
}

/* ---- the best ---- */

/* The k best by these keys, valid until the next call; -inf is none of them. */
NOINLINE top_few *sampler_best(const sampler *w, const real *keys, size_t k) {
  topk *const p = &w->work->p;
  top_few *const b = &w->work->best;
  topk_start(p, k, b->x, b->place, keys, w->n);
  for (size_t g = 0; g < w->n; g += GROUP) topk_group(p, keys + g, group_size(g, w->n), (int64_t)g);
  topk_cut(p);
  b->n = p->kept;
  return b;
}

/* Keeps, of a row of more than FEW, some of its best alone: those not behind `last`. */
static inline void sampler_close_to(sampler *w, const top_few *b, struct row_cutoff last) {
  size_t left = 0;
  for (size_t i = 0; i < b->n; i++) {
    if (!((double)b->x[i] > last.value || ((double)b->x[i] == last.value && b->place[i] <= last.limit)))
      continue;
    w->at[left] = b->place[i], w->z[left++] = b->x[i];
  }
  w->n = left;
  w->closed = true;
  sampler_changed(w);
}

static void radix_select_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {}
static inline void sampler_top_k(sampler *w, double k) {
  if (k >= (double)w->n || k <= 0) return;
  if (k <= FEW && w->n > FEW) {
    sampler_close_to(w, sampler_best(w, w->z, (size_t)k), (struct row_cutoff){(double)-R_INF, 0});
    return;
  }
  row_state st;
  row_call c = {.n = w->n, .src = {w->z}};
  static const row_program by_digits = {.pass = radix_pass, .merge = radix_select_merge};
  static const row_kernel select = {.engine = &program_engine, .body = &by_digits};
  st.histogram = w->work->histogram;
  radix_begin(&st, (uint64_t)k);
  do run_pass(&select, &c, &st);
  while (radix_next(&st));
  sampler_keep(w, w->z, (real)st.cutoff.value, st.cutoff.limit);
}

#endif
