/* sample/chain.h - a row on its way through the processors of smx_sample: its scores, their sums, and how elements leave it.
 *
 * The row is copied once; every step changes the copy, and what it removes becomes -inf. When no more than FEW of more elements are left they
 * move together (`at` then says where they came from), so that later steps cost nothing, and sums run over what is left. That happens where a step
 * keeps what lies above a bar, and depends on the row alone. What a mass leaves of more is not cleared at once: the draw may be all that is to come. */
#ifndef SMX_SAMPLE_CHAIN_H
#define SMX_SAMPLE_CHAIN_H
#include "best.h"
#include "engine/pick_sum.h"
#include "engine/scores.h"

enum { FEW = 1024 };

EXP_MOMENT(chain_moment, score_plain, false, moment_away)
static const exp_body total_body = {LSE_BODY(lse_scalar)};
static const exp_body entropy_body = {LSE_BODY(lse_scalar), .moment = chain_moment};
static void total_pass(const row_call *c, row_state *st, row_part *parts) { exp_pass(&total_body, c, st, parts); }
static void entropy_pass(const row_call *c, row_state *st, row_part *parts) { exp_pass(&entropy_body, c, st, parts); }

/* What a group's terms come to: in the lanes of the contract, and in double. */
typedef struct chain_sums {
  double lanes, wide;
} chain_sums;

/* A row under way. */
typedef struct chain {
  chain_row *row;
  real *z, *terms, *keys; /* keys: for steps that need another order */
  void *room;             /* 8 (n + 1) bytes */
  size_t n;               /* elements of z */
  bool closed;            /* z[i] was element at[i] of the row, in its order; else i */
  bool known;             /* r, lse and sum are those of z */
  bool termed;            /* terms are those of z */
  bool hopeless;          /* NaN, +inf, or nothing left */
  exp_row r;
  double lse, top, sum; /* top: the largest score; sum: of the terms */
  size_t top_at;        /* the first of that score */
  double entropy;
  real bar;    /* what is below has left, though it is still there; or -inf. The groups' sums are in the room then */
  real beyond; /* the best few hundred, none of them below this, do not hold the mass that the next step keeps; or +inf */
  int64_t at[FEW];
} chain;

static inline int64_t chain_index(const chain *w, size_t i) { return w->closed ? w->at[i] : (int64_t)i; }

/* Where an element of the row is now, or n. */
static inline size_t chain_place(const chain *w, int64_t index) {
  size_t low = 0, end = w->n;
  if (!w->closed) return (size_t)index;
  while (low < end) {
    size_t middle = low + (end - low) / 2;
    if (w->at[middle] < index) low = middle + 1;
    else end = middle;
  }
  return low < w->n && w->at[low] == index ? low : w->n;
}

static inline void chain_changed(chain *w) { w->known = w->termed = false; }

/* ---- sums ---- */

static inline void chain_known(chain *w, double lse) {
  w->hopeless = !(lse >= -(double)R_MAX && lse <= (double)R_MAX);
  w->known = !w->hopeless;
  w->lse = lse, w->top = w->r.max;
}

/* What follows from the sums of the first pass, in st. */
static inline void chain_settle(chain *w, const exp_body *b, const row_kernel *k, row_call *c, row_state *st) {
  const consts none = {{0}};
  real lse = -R_INF;
  c->dst[0] = &lse;
  const span s = span_of(c, 0);
  while (exp_next(b, c, st)) run_pass(k, c, st);
  if (lse >= -R_MAX && lse <= R_MAX) {
    const exp_row r = exp_row_of(b, &s, &none, st);
    w->termed = w->termed && r.ref == w->r.ref && r.shift == w->r.shift;
    w->r = r, w->sum = st->sum, w->top_at = (size_t)st->index;
  }
  chain_known(w, (double)lse);
  if (w->known && b->moment) w->entropy = d_log1p(w->r.others) + w->top - (st->top_x + st->sum2 / st->sum);
}

/* Sums, and with `entropy` H = lse - sum p z as well. */
NOINLINE void chain_sum(chain *w, bool entropy) {
  if (w->known && !entropy) return;
  const exp_body *b = entropy ? &entropy_body : &total_body;
  const row_kernel k = {.pass = entropy ? entropy_pass : total_pass, .fold = exp_fold};
  row_state st;
  row_call c = {.n = w->n, .rows = 1, .src = {w->z}};
  exp_begin(b, &c, &st);
  run_pass(&k, &c, &st);
  chain_settle(w, b, &k, &c, &st);
}

static inline vreal chain_term(const chain *w, vreal z) {
  vreal d;
  return exp_term((score){v_sub(z, v_set1(w->r.shift)), v_set1(0)}, false, w->r.ref, &d);
}

/* The terms e^(z - ref) of a row whose sums are known. */
NOINLINE void chain_terms(chain *w) {
  if (w->termed) return;
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    put(w->terms, i, cnt, chain_term(w, at(w->z, i, cnt)));
  }
  w->termed = true;
}

/* The sum of n terms, without number `skip`. */
static inline double chain_lanes(const real *terms, size_t first, size_t n, size_t skip) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal e = at(terms, i, cnt); \
    if (skip - (i) < LANES) e = v_select(v_eq(v_iota(), v_set1((real)(skip - (i)))), v_set1(0), e); \
    acc[u] = v_add(acc[u], e); \
  }
  WALK(first, n, STEP)
#undef STEP
  return (double)v_fold(acc);
}

/* The sums of the row from those of its groups, which are in the room: what chain_sum() would find. */
static inline void chain_sum_groups(chain *w) {
  const row_call c = {.n = w->n, .src = {w->z}};
  const span s = span_of(&c, 0);
  const consts none = {{0}};
  const chain_sums *groups = w->room;
  double other = 0;
  w->sum = 0;
  for (size_t g = 0; g < w->n; g += GROUP) {
    const size_t n = group_size(g, w->n);
    w->sum += groups[g / GROUP].lanes;
    other += w->top_at - g < n ? chain_lanes(w->terms, g, n, w->top_at) : groups[g / GROUP].lanes;
  }
  exp_settle(&total_body, &s, &none, &w->r, w->sum, other);
  chain_known(w, (double)r_clean(lse_of(&w->r)));
}

/* The same after some other than the best have left. */
NOINLINE void chain_sum_terms(chain *w) {
  chain_sums *groups = w->room;
  for (size_t g = 0; g < w->n; g += GROUP) groups[g / GROUP].lanes = chain_lanes(w->terms, g, group_size(g, w->n), SIZE_MAX);
  chain_sum_groups(w);
}

/* ---- leaving ---- */

/* Moves those that are left together. */
NOINLINE void chain_close(chain *w) {
  size_t left = 0;
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    uint32_t stay = m_bits(m_and(v_lt(v_set1(-R_INF), at(w->z, i, cnt)), lanes_below(cnt)));
    for (; stay; stay &= stay - 1) {
      size_t j = i + (size_t)__builtin_ctz(stay);
      w->at[left] = chain_index(w, j), w->z[left++] = w->z[j];
    }
  }
  w->n = left;
  w->closed = true;
  chain_changed(w);
}

/* Of n elements, keeps what has a key above the bar, and of its equals those up to number `limit`: how many are left. */
NOINLINE size_t chain_clear(chain *w, const real *keys, real bar, int64_t limit, size_t first, size_t n) {
  const vreal gone = v_set1(-R_INF), low = v_set1(bar);
  size_t left = 0;
  for (size_t i = first; i < first + n; i += LANES) {
    int cnt = lanes_left(first + n - i);
    vreal key = at(keys, i, cnt), z = at(w->z, i, cnt);
    vmask keep = v_lt(low, key);
    if ((int64_t)i <= limit) {
      int64_t upto = limit - (int64_t)i;
      keep = m_or(keep, m_and(v_eq(key, low), v_lt(v_iota(), v_set1(upto < LANES ? (real)(upto + 1) : LANES))));
    }
    left += (size_t)__builtin_popcount(m_bits(m_and(m_and(keep, v_lt(gone, z)), lanes_below(cnt))));
    put(w->z, i, cnt, v_select(keep, z, gone));
    if (w->termed) put(w->terms, i, cnt, v_select(keep, at(w->terms, i, cnt), v_set1(0)));
  }
  return left;
}

/* The same for all of them. */
NOINLINE void chain_keep(chain *w, const real *keys, real bar, int64_t limit) {
  const size_t left = chain_clear(w, keys, bar, limit, 0, w->n);
  if (left <= FEW && w->n > FEW) chain_close(w);
  else if (w->known && w->termed && w->z[w->top_at] > -R_INF) chain_sum_terms(w);
  else chain_changed(w);
}

/* Whether more than `most` are not below the bar. */
static inline bool chain_many(const chain *w, real bar, size_t most) {
  size_t count = 0, i = 0;
  for (; i < w->n && count <= most; i += LANES) {
    const int cnt = lanes_left(w->n - i);
    count += (size_t)__builtin_popcount(m_bits(m_and(m_not(v_lt(at(w->z, i, cnt), v_set1(bar))), lanes_below(cnt))));
  }
  return count > most;
}

/* Those below the bar are to leave, of a row of which many are left then; the groups' sums without them are in the room. */
static inline void chain_cut(chain *w, real bar) {
  const size_t group = w->top_at / GROUP * GROUP;
  chain_clear(w, w->z, bar, INT64_MAX, group, group_size(group, w->n));
  chain_sum_groups(w);
  w->bar = bar;
}

/* They leave. */
static inline void chain_leave(chain *w) {
  if (w->bar > -R_INF) chain_clear(w, w->z, w->bar, INT64_MAX, 0, w->n);
  w->bar = -R_INF;
}

/* Keeps z >= bar, and the best. */
static inline void chain_above(chain *w, double bar) {
  real low = (real)(bar < w->top ? bar : w->top);
  if ((double)low < bar && (double)low < w->top) low = select_value(select_key(low) + 1); /* rounded down: the next */
  chain_keep(w, w->z, low, INT64_MAX);
}

/* ---- the best ---- */

/* Some of the best, in the order of the row. */
typedef struct best_few {
  size_t n;
  real x[FEW];
  int64_t place[FEW];
} best_few;

/* The k best by these keys; -inf is none of them. */
NOINLINE void chain_best(const real *keys, size_t n, size_t k, best_few *b) {
  pick p;
  pick_start(&p, k, b->x, b->place, keys, n);
  for (size_t g = 0; g < n; g += GROUP) pick_group(&p, keys + g, group_size(g, n), (int64_t)g);
  pick_cut(&p);
  b->n = p.kept;
}

/* Keeps, of a row of more than FEW, some of its best alone: those not behind `last`. */
static inline void chain_close_to(chain *w, const best_few *b, struct row_pick last) {
  size_t left = 0;
  for (size_t i = 0; i < b->n; i++) {
    if (!((double)b->x[i] > last.value || ((double)b->x[i] == last.value && b->place[i] <= last.limit))) continue;
    w->at[left] = b->place[i], w->z[left++] = b->x[i];
  }
  w->n = left;
  w->closed = true;
  chain_changed(w);
}

static void select_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  (void)c;
  (void)st;
  (void)parts;
  (void)count;
}
static inline void chain_top_k(chain *w, double k) {
  if (k >= (double)w->n) return;
  if (k <= FEW && w->n > FEW) {
    best_few b;
    chain_best(w->z, w->n, (size_t)k, &b);
    chain_close_to(w, &b, (struct row_pick){(double)-R_INF, 0});
    return;
  }
  row_state st;
  row_call c = {.n = w->n, .src = {w->z}};
  static const row_kernel select = {.pass = select_pass, .fold = select_fold};
  select_begin(&st, (uint64_t)k);
  do run_pass(&select, &c, &st);
  while (select_next(&st));
  chain_keep(w, w->z, (real)st.pick.value, st.pick.limit);
}

#endif
