/* engine/exp_stage.c - the staged loops of the exponential family. An operator's page function
 * writes the scores of eight blocks, one of each page of a group, into a buffer in L1; everything
 * after that is here, once for all operators. Terms enter the lanes in the order of the contract,
 * as in exp_loops.h. */
#include "exp_loops.h"

typedef struct stage {
  real h[STAGE] __attribute__((aligned(64))), l[STAGE] __attribute__((aligned(64)));
} stage;

/* How many elements there are in the blocks that begin at `step` of each page of a group of n. */
SMI size_t stage_count(size_t step, size_t n) {
  const size_t pages = (n - step - 1) / PAGE, last = n - step - pages * PAGE;
  return pages * BLOCK + (last < BLOCK ? last : BLOCK);
}

/* Walks these elements a stage at a time: `count` of them, behind `from` others. */
#define EACH_STAGE_OF_PAGES(from, count, step, n) \
  for (size_t all_ = stage_count(step, n), from = 0, count; \
       count = all_ - from < STAGE ? all_ - from : STAGE, from < all_; from += STAGE)

/* ---- sums ---- */

/* l: NULL where scores have no low part. */
SMI real staged_sum_of(exp_sum *w, int does, size_t first, size_t n, real *h, real *l) {
  const exp_sum q = *w;
  const span s = *w->s;
  fetcher next = fetch_from(first, w->deferred ? w->deferred->straight : fetches_straight());
  bool odd = false;
  vreal acc[VPB], max = v_set1(-R_INF), low = v_set1(R_INF);
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
  for (size_t step = 0; step < PAGE && step < n; step += BLOCK) {
    EACH_STAGE_OF_PAGES(from, count, step, n) {
      const size_t start = first + step + from / BLOCK * PAGE;
      q.f->page(q.s, q.k, does & SUM_SHIFT ? &q.shift : NULL, start, PAGE, count, h, l);
      for (size_t j = 0; j < count; j += BLOCK) {
        const size_t base = start + j / BLOCK * PAGE;
#define STEP(u, i, cnt) \
  EXP_SUM_STEP(((score){v_load(h + (j + (i)-base)), l ? v_load(l + (j + (i)-base)) : v_set1(0)}), l != NULL, \
               does, sizeof(real), u, i, cnt)
        FOR_EACH_VECTOR_OF_BLOCK(UNROLL_BLOCK, base, count - j, STEP)
#undef STEP
      }
    }
  }
  EXP_SUM_END(w, does)
  return v_fold(acc);
}

/* ---- everything else ---- */

/* Walks n elements a stage at a time: m of them, behind `at` others. */
#define EACH_STAGE(at, m, n) \
  for (size_t at = 0, m; m = (n)-at < STAGE ? (n)-at : STAGE, at < (n); at += STAGE)
/* VISIT(j, i, cnt): vector j of the stage is elements i .. i + cnt - 1. */
#define EACH_STAGED(f, s, k, shift, base, n, VISIT) \
  EACH_STAGE(at_, m_, n) { \
    (f)->page(s, k, shift, (base) + at_, BLOCK, m_, z.h, z.l); \
    for (size_t j_ = 0; j_ < m_; j_ += LANES) VISIT(j_, (base) + at_ + j_, lanes_left(m_ - j_)) \
  }

SMI void max_of_stage(const real *h, size_t n, vreal *max) {
#define STEP(u, j, cnt) max[u] = v_max(v_load(h + (j)), max[u])
  for (size_t i = 0; i < n; i += BLOCK) FOR_EACH_VECTOR_OF_BLOCK(UNROLL_BLOCK, i, n - i, STEP)
#undef STEP
}
SMI real max_of_lanes(vreal *max) {
  UNROLL_BLOCK for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]);
  return v_hmax(max[0]);
}
static real staged_max(const exp_scores *f, const span *s, const consts *k, size_t i, size_t n) {
  stage z;
  vreal max[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF);
  EACH_STAGE(at, m, n) {
    f->page(s, k, NULL, i + at, BLOCK, m, z.h, z.l);
    max_of_stage(z.h, m, max);
  }
  return max_of_lanes(max);
}

typedef struct staged_search {
  const real *h;
  real value;
} staged_search;
SMI vmask staged_equals(const void *of, size_t i, int cnt) {
  const staged_search *w = of;
  return v_eq(v_load(w->h + i), v_set1(w->value));
}
static size_t staged_find(const exp_scores *f, const span *s, const consts *k, real shift, size_t first,
                          size_t n, real value) {
  stage z;
  const staged_search w = {z.h, value};
  EACH_STAGE(at, m, n) {
    f->page(s, k, &shift, first + at, BLOCK, m, z.h, z.l);
    const size_t found = find_first(m, staged_equals, &w);
    if (found < m) return at + found;
  }
  return n;
}

void exp_count(const exp_scores *f, const span *s, const consts *k, size_t first, size_t n, double *inf,
               double *valid, bool *nan) {
  stage z;
#define VISIT(j, i, cnt) \
  { \
    const vreal h = v_load(z.h + j); \
    *nan |= m_any(m_not(v_eq(h, h))); \
    *inf += (double)v_hsum(v_select(v_eq(h, v_set1(R_INF)), v_set1(1), v_set1(0))); \
    *valid += (double)v_hsum(v_select(v_lt(v_set1(-R_INF), h), v_set1(1), v_set1(0))); \
  }
  EACH_STAGED(f, s, k, NULL, first, n, VISIT)
#undef VISIT
}

void exp_inf_policy(const exp_scores *f, const span *s, const consts *k, size_t first, size_t n, real share,
                    real none) {
  stage z;
#define VISIT(j, i, cnt) \
  put(s->dst[0], i, cnt, v_select(v_eq(v_load(z.h + j), v_set1(R_INF)), v_set1(share), v_set1(none)));
  EACH_STAGED(f, s, k, NULL, first, n, VISIT)
#undef VISIT
}

void exp_score_one(const exp_scores *f, const span *s, const consts *k, real shift, size_t i, real *h,
                   real *l) {
  real one_h[LANES], one_l[LANES] = {0};
  f->page(s, k, &shift, i, BLOCK, 1, one_h, one_l);
  *h = one_h[0], *l = one_l[0];
}

static void staged_at(const exp_sum *w, size_t i, real *h, real *l) {
  exp_score_one(w->f, w->s, w->k, 0, i, h, l);
}

/* ---- the two sets of loops ---- */

#define BUFFER_1(l) real l[STAGE] __attribute__((aligned(64)));
#define BUFFER_0(l) real *const l = NULL;
#define STAGED_SUM(name, low_part, does) \
  real name(exp_sum *w, size_t i, size_t n) { \
    BUFFER_1(h) BUFFER_##low_part(l) return staged_sum_of(w, does, i, n, h, l); \
  }
#define STATIC_SUM(name, low_part, does) static STAGED_SUM(name, low_part, does)
/* clang-format off */
#define STAGED_LOOPS(name, l, low_part) \
  STATIC_SUM(staged_sum##l, low_part, SUM_SKIP | SUM_AHEAD) \
  STATIC_SUM(staged_sum_store##l, low_part, SUM_STORE | SUM_AHEAD) \
  STATIC_SUM(staged_sum_keep##l, low_part, SUM_SKIP | SUM_STORE | SUM_AHEAD) \
  STATIC_SUM(staged_sum_watch##l, low_part, SUM_WATCH | SUM_STORE) \
  STATIC_SUM(staged_sum_deferred##l, low_part, SUM_WATCH | SUM_STORE | SUM_DEFERRED) \
  STAGED_SUM(exp_staged_sum_low##l, low_part, SUM_LOW | SUM_STORE) \
  STAGED_SUM(exp_staged_sum_exact##l, low_part, SUM_SKIP | SUM_SHIFT) \
  static real staged_lane##l(exp_sum *w, size_t i, size_t n) { \
    return exp_lane_of(w, staged_at, low_part, i, n); \
  } \
  const exp_loops name = {staged_max, staged_find, staged_sum##l, staged_sum_store##l, staged_sum_keep##l, \
                          staged_sum_watch##l, staged_sum_deferred##l, exp_staged_sum_low##l, \
                          exp_staged_sum_exact##l, staged_lane##l};
/* clang-format on */
STAGED_LOOPS(exp_staged, , 0)
STAGED_LOOPS(exp_staged_low, _l, 1)

/* ---- kept scores ---- */

bool exp_keeps_terms(const exp_scores *f, size_t n) {
#ifdef V_PORTABLE
  return false; /* kept scores take stack, and vectors there too */
#else
  /* gradients of f64 with low parts need the stack themselves */
  const bool large = f->low && sizeof(real) == 8;
  return n > 0 && n <= KEPT && !large;
#endif
}
bool exp_keeps(const exp_scores *f, size_t n) {
  return exp_keeps_terms(f, n) && (f->loops == &exp_staged || f->loops == &exp_staged_low);
}
real exp_kept_max(const exp_scores *f, const span *s, const consts *k, size_t n, row_scores *kept) {
  f->page(s, k, NULL, 0, BLOCK, n, kept->h, kept->l);
  vreal max[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF);
  max_of_stage(kept->h, n, max);
  return max_of_lanes(max);
}
size_t exp_kept_find(const row_scores *kept, size_t n, real value) {
  const staged_search w = {kept->h, value};
  return find_first(n, staged_equals, &w);
}
SMI real kept_sum_of(exp_sum *w, const bool low_part, size_t first, size_t n) {
  const exp_sum q = *w;
  const span s = *w->s;
  const row_scores *const kept = q.kept;
  fetcher next = fetch_from(first, true); /* unused, as are max, low and odd */
  bool odd = false;
  vreal acc[VPB], max = v_set1(0), low = max;
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  EXP_SUM_STEP(((score){v_load(kept->h + (i)), low_part ? v_load(kept->l + (i)) : v_set1(0)}), low_part, \
               (SUM_SKIP | SUM_STORE | SUM_AHEAD | SUM_KEPT), sizeof(real), u, i, cnt)
  FOR_EACH_VECTOR(first, n, STEP)
#undef STEP
  return v_fold(acc);
}
real exp_kept_sum(exp_sum *w, size_t i, size_t n) {
  return w->f->low ? kept_sum_of(w, true, i, n) : kept_sum_of(w, false, i, n);
}

real exp_terms_sum(const real *terms, size_t n, size_t skip) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal e = v_load(terms + (i)); \
    if (skip - (i) < LANES) e = v_select(v_eq(v_iota(), v_set1((real)(skip - (i)))), v_set1(0), e); \
    acc[u] = v_add(acc[u], e); \
  }
  FOR_EACH_VECTOR(0, n, STEP)
#undef STEP
  return v_fold(acc);
}

/* ---- weights and moments ---- */

/* Computes the terms of a stage in place of its scores. */
static void stage_terms(real *h, const real *l, const exp_scores *f, real scale_exp, size_t n) {
  const bool low = f->low;
  for (size_t j = 0; j < n; j += LANES) v_store(h + j, stage_term(h + j, low ? l + j : NULL, scale_exp));
}

/* Stages begin where vectors do, because scores with noise need that; streamed outputs begin where
 * cache lines do. The outputs of a stage behind its last whole line, less than a vector, wait in
 * front of the next stage. */
NOINLINE void write_stages(const exp_write *w, exp_write_fn *write, size_t first, size_t n) {
  real room[STAGE_ROOM] __attribute__((aligned(64))), l[STAGE] __attribute__((aligned(64)));
  real *const h = room + LANES;
  exp_write q = *w;
  const exp_row r = *w->r;
  const row_writing stream = w->stream;
  const real *const next = w->next;
  const bool low = w->f->low;
  real *const y = w->s->dst[0];
  const size_t stop = first + n, head = w->stream ? before_line(y + first) : 0;
  size_t done = first, kept = 0;
  for (size_t at = first - first % LANES; at < stop; at += STAGE) {
    const size_t m = stop - at < STAGE ? stop - at : STAGE, end = at + m;
    real *const weights = h - kept;
    q.weights = weights;
    w->f->page(w->s, w->k, &r.shift, at, BLOCK, m, h, l);
    for (size_t j = 0; j < m; j += LANES) {
      v_store(h + j, exp_weight(stage_term(h + j, low ? l + j : NULL, r.scale_exp), &r, true));
      if (stream) v_prefetch_far(next + at + j);
    }
    q.from = at - kept;
    if (done == first && head) {
      q.stream = WRITE_CACHED;
      write(&q, done, head < n ? head : n);
      done += head < n ? head : n;
    }
    q.stream = w->stream;
    const size_t to = w->stream && end < stop ? end - behind_line(y + end) : end;
    if (to > done) write(&q, done, to - done), done = to;
    kept = end - done;
    memmove(h - kept, weights + (done - q.from), kept * sizeof *weights);
  }
}

void exp_write_lines(const exp_write *w, exp_write_fn *write, size_t first, size_t n) {
  const size_t line = w->stream ? before_line(w->s->dst[0] + first) : 0, head = line < n ? line : n;
  exp_write q = *w;
  q.stream = WRITE_CACHED;
  if (head) write(&q, first, head);
  q.stream = w->stream;
  if (n > head) write(&q, first + head, n - head);
}
void exp_write_staged(const exp_write *w, exp_write_fn *write, size_t first, size_t n) {
  (w->weights ? exp_write_lines : write_stages)(w, write, first, n);
}

static vreal weight_value(const exp_write *w, size_t i, int cnt) { return exp_weight_at(w, i); }
static void weights_write(const exp_write *w, size_t i, size_t n) {
  exp_write_staged_of(w, weight_value, i, n);
}
void exp_weights(const exp_write *w, size_t i, size_t n) { exp_write_staged(w, weights_write, i, n); }

/* Adds the factors times the terms of n elements, which are blocks one after another. */
SMI void moment_add(const real *factors, const real *e, size_t n, vreal *acc) {
#define STEP(u, i, cnt) \
  { \
    const vreal term = v_load(e + (i)); \
    acc[u] = v_fma(v_select(v_eq(term, v_set1(0)), v_set1(0), v_load(factors + (i))), term, acc[u]); \
  }
  for (size_t j = 0; j < n; j += BLOCK) FOR_EACH_VECTOR_OF_BLOCK(UNROLL_BLOCK, j, n - j, STEP)
#undef STEP
}
/* From terms of one page. */
NOINLINE void moment_of_terms(const exp_sum *w, exp_factors_fn *factors, size_t n, vreal *acc) {
  real by[STAGE] __attribute__((aligned(64)));
  EACH_STAGE(at, m, n) {
    factors(w, w->terms + at, at, BLOCK, m, by);
    moment_add(by, w->terms + at, m, acc);
  }
}
NOINLINE void moment_of_scores(const exp_sum *w, exp_factors_fn *factors, size_t first, size_t n,
                               vreal *acc) {
  stage z;
  for (size_t step = 0; step < PAGE && step < n; step += BLOCK) {
    EACH_STAGE_OF_PAGES(from, count, step, n) {
      const size_t start = first + step + from / BLOCK * PAGE;
      w->f->page(w->s, w->k, &w->shift, start, PAGE, count, z.h, z.l);
      stage_terms(z.h, z.l, w->f, w->scale_exp, count);
      factors(w, z.h, start, PAGE, count, z.l);
      moment_add(z.l, z.h, count, acc);
    }
  }
}
real exp_moment_staged(exp_sum *w, exp_factors_fn *factors, size_t first, size_t n) {
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
  if (w->terms) moment_of_terms(w, factors, n, acc);
  else moment_of_scores(w, factors, first, n, acc);
  return v_fold(acc);
}

/* Weights from stored terms. */
void stored_write(const exp_write *w, size_t i, size_t n) {
  if (w->may_be_one) exp_write_fused_of(w, stored_value_may_be_one, i, n);
  else exp_write_fused_of(w, stored_value, i, n);
}
