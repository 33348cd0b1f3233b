/* engine/exp.h - the exponential family: weights, their logarithms, and sums of e^score, over
 * scores that an operator forms.
 *
 * A score is h + l, two reals (l is 0 unless the operator scales). Its term is e = p
 * 2^(k - scale_exp): (p, k) from v_exp_pair, and +0 when k - scale_exp < MIN_EXP. The sum S of a
 * row has scale_exp = k(max) - 1. Scaling by powers of two commutes with rounding, so a sum taken
 * with an earlier scale_exp has the same bits as long as it neither overflows nor flushes other
 * terms to 0. A weight is
 *     e < tiny ? 0 : e == S ? 1 : e (1 / S).
 * Where the largest score lies beyond +-2^19, the x it comes from is subtracted from every x first
 * (`shift`). That is exact wherever the term is not 0, and no score overflows.
 *
 * Every operator can run staged: it writes the scores of eight blocks into buffers in L1, and
 * shared loops (exp_stage.c) make terms, sums and weights of them. A few also have fused loops
 * (exp_loops.h): score, exponential and sum in one. The order of additions is the same.
 * exp_program.c runs a row of any length group by group, exp_rows.c rows in memory. */
#ifndef SMX_ENGINE_EXP_H
#define SMX_ENGINE_EXP_H
#include "loops.h"

typedef struct score {
  vreal h, l;
} score;

/* The scalars of a row once its sums are known. */
typedef struct exp_row {
  real shift, scale_exp;  /* of the terms; shift is an x */
  real tiny, inv, one;    /* of the weights */
  real top, top_l, log;   /* of the logarithms: y = (h - top) + (l - top_l) - log */
  double max, top_x;      /* the largest score, shift included, and the x it came from */
  double sum_without_max; /* (S without the first largest term) / that term */
  double log1p;           /* log(1 + others) = log S - max; log is this, rounded */
  double moment, spread;  /* sum factor e / S, twice */
} exp_row;

/* Outputs of a row that are written while the next is summed: in order, a few cache lines at a
 * time, with streaming stores to y. */
typedef struct deferred_store deferred_store;
struct deferred_store {
  void (*write)(const deferred_store *deferred, size_t i, size_t n);
  const void *y;
  const real *stored; /* where its terms wait, or NULL */
  size_t at, n, size; /* the next element, the number of elements (at == n: all are written), bytes of one */
  bool straight;      /* the input of the next row is prefetched in address order */
};
/* Streaming stores leave a core in order: with more than eight lines in flight the terms of the
 * next row wait (Xeon, 1024 x 32 768: one line at a time 0.89 ns an element, eight 0.92, sixteen
 * 1.00, all 1.07). Every second block writes DEFERRED_ELEMENTS. */
enum { DEFERRED_ELEMENTS = 2 * BLOCK };
/* Writes the next of them, up to the end of a line. */
SMI void deferred_store_write(deferred_store *deferred, size_t most) {
  const size_t left = deferred->n - deferred->at;
  if (!left) return;
  const size_t whole = most - ((uintptr_t)deferred->y + deferred->at * deferred->size) % 64 / deferred->size,
               n = left < whole ? left : whole;
  deferred->write(deferred, deferred->at, n);
  deferred->at += n;
}
SMI deferred_store deferred_store_none(row_writing how, size_t size) {
  return (deferred_store){.size = size, .straight = fetches_straight_beside(how)};
}
/* Defers the outputs from y on. The last line, which the next row may share, is written with
 * ordinary stores; prefetched here, it does not hold up the streaming ones. */
SMI void deferred_store_begin(deferred_store *deferred,
                              void (*write)(const deferred_store *deferred, size_t i, size_t n),
                              const void *y, const real *stored, size_t n) {
  const uintptr_t end = (uintptr_t)y + n * deferred->size;
  if (end % 64) v_prefetch((const void *)(end - 1));
  deferred->write = write, deferred->y = y, deferred->stored = stored;
  deferred->at = 0, deferred->n = n;
}
/* Writes all of them before element `end`, to the end of its line. */
SMI void deferred_store_until(deferred_store *deferred, size_t end) {
  while (deferred->at < end && deferred->at < deferred->n)
    deferred_store_write(deferred, deferred->at + DEFERRED_ELEMENTS < end ? GROUP : DEFERRED_ELEMENTS);
}
SMI void deferred_store_rest(deferred_store *deferred) { deferred_store_until(deferred, deferred->n); }

typedef struct exp_scores exp_scores;

/* The scores of a short row, formed once for its maximum, the place of that, and its sum. */
enum { KEPT = 4096 / sizeof(real) };
typedef struct row_scores {
  real h[KEPT] __attribute__((aligned(64))), l[KEPT] __attribute__((aligned(64)));
} row_scores;

/* The arguments of a sum over one group. */
typedef struct exp_sum {
  const exp_scores *f;
  const span *s;
  const consts *k;
  real scale_exp, shift, center; /* center: what a moment is taken about */
  real *store;                   /* where terms are stored, or NULL */
  /* bytes ahead of x to prefetch, or 0; sum_watch always fetches the next group, into a farther
   * cache */
  ptrdiff_t prefetch;
  size_t skip; /* element whose term is +0 instead, or SIZE_MAX */
  /* results of sum_watch: the largest and the smallest score; of sum_low: the smallest that is not
   * flushed */
  real max, low;
  real *lanes;              /* where sum_watch and sum_low store their lanes, or NULL */
  const exp_row *r;         /* for moments */
  deferred_store *deferred; /* for sum_deferred: the outputs written meanwhile */
  const row_scores *kept;   /* for exp_kept_sum */
  const real *terms;        /* for moments: those of the row, of one page at most, or NULL */
} exp_sum;

/* The arguments of a write over one group. */
typedef struct exp_write {
  const exp_scores *f;
  const span *s;
  const consts *k;
  const exp_row *r;
  const real *stored; /* the terms, or NULL = form them again */
  bool may_be_one;    /* some term may equal S, so that its weight is 1 */
  row_writing stream;
  /* what is read next, prefetched between streaming stores; where nothing is, some address in the
   * cache */
  const real *next;
  const real *weights; /* staged: those of elements from `from` on, or NULL = form them */
  size_t from;
} exp_write;

/* The largest term is 2 p, p < 1.415: a term can equal S only where S is below this. */
#define MAY_BE_ONE ((real)2.83)

typedef real exp_sum_fn(exp_sum *w, size_t i, size_t n);
typedef void exp_write_fn(const exp_write *w, size_t i, size_t n);

/* Scores of n elements into h, and their low parts into l unless the scores have none: blocks of
 * 64, the first at element `first`, `step` elements apart; absent lanes of the last vector are
 * -inf. shift NULL = nothing is subtracted from x. */
typedef void exp_page_fn(const span *s, const consts *k, const real *shift, size_t first, size_t step,
                         size_t n, real *h, real *l);

/* The loops over a group, at most GROUP elements. */
typedef struct exp_loops {
  /* anything when there is a NaN */
  real (*max)(const exp_scores *f, const span *s, const consts *k, size_t i, size_t n);
  /* The offset of the first score of value, or n. */
  size_t (*find)(const exp_scores *f, const span *s, const consts *k, real shift, size_t i, size_t n,
                 real value);
  exp_sum_fn *sum;       /* scale_exp, skip, prefetch */
  exp_sum_fn *sum_store; /* scale_exp, store, prefetch */
  exp_sum_fn *sum_keep;  /* scale_exp, skip, store, prefetch */
  /* scale_exp, store; finds max and low; right only if low says that no term is flushed */
  exp_sum_fn *sum_watch;
  exp_sum_fn *sum_deferred; /* the same, while other outputs are written */
  exp_sum_fn *sum_low;      /* scale_exp, store: where terms are flushed */
  exp_sum_fn *sum_exact;    /* scale_exp, shift, skip */
  exp_sum_fn *lane;         /* scale_exp, skip: the sum of one lane, that of skip, without it */
} exp_loops;

/* A way of forming scores. */
struct exp_scores {
  exp_page_fn *page;
  const exp_loops *loops; /* fused, or one of the two below */
  bool low;               /* scores have a low part */
  bool half;              /* src[0] is of f16 or bf16: such operators have no moment */
};
#define exp_staged SMX_FN(exp_staged)
#define exp_staged_low SMX_FN(exp_staged_low)
extern const exp_loops exp_staged, exp_staged_low; /* low: scores have a low part */
/* The loops that only rare rows need, staged for fused operators too; _l: with low parts. */
#define exp_staged_sum_low SMX_FN(exp_staged_sum_low)
#define exp_staged_sum_low_l SMX_FN(exp_staged_sum_low_l)
#define exp_staged_sum_exact SMX_FN(exp_staged_sum_exact)
#define exp_staged_sum_exact_l SMX_FN(exp_staged_sum_exact_l)
exp_sum_fn exp_staged_sum_low, exp_staged_sum_low_l, exp_staged_sum_exact, exp_staged_sum_exact_l;

SMI real exp_max(const exp_scores *f, const span *s, const consts *k, size_t i, size_t n) {
  return f->loops->max(f, s, k, i, n);
}

/* ---- arithmetic ---- */

/* The parts of a term p 2^d. */
SMI vreal exp_parts(score x, bool scaled, real scale_exp, vreal *d) {
  vreal k = exp_k(x.h), t = exp_reduce(x.h, k);
  if (scaled) t = v_add(t, x.l);
  *d = v_sub(k, v_set1(scale_exp));
  return exp_poly(t);
}
SMI vreal exp_term(score x, bool scaled, real scale_exp, vreal *d) {
  vreal p = exp_parts(x, scaled, scale_exp, d);
  return v_scale(p, *d);
}

/* A masked element has h = -inf. shift NULL = nothing is subtracted from x. */
typedef score score_fn(const span *s, const consts *k, const real *shift, size_t i, int cnt);
SMI vreal shifted_by(vreal x, const real *shift) { return shift ? v_sub(x, v_set1(*shift)) : x; }
/* Of a loss: in a shifted row +inf, which occurs under SMX_INF_LIMIT only, is 0. */
SMI vreal loss_shifted(vreal x, const real *shift) {
  return shift ? v_select(v_eq(x, v_set1(R_INF)), v_set1(0), v_sub(x, v_set1(*shift))) : x;
}
SMI score score_at(score_fn *f, const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  score x = f(s, k, shift, i, cnt);
  if (cnt < LANES) x.h = v_select(lanes_below(cnt), x.h, v_set1(-R_INF));
  return x;
}

SMI vreal exp_share(vreal e, real inv, real tiny, real one, bool may_be_one) {
  vreal y = v_flush(v_mul(e, v_set1(inv)), e, v_set1(tiny));
  return may_be_one ? v_select(v_eq(e, v_set1(one)), v_set1(1), y) : y;
}
SMI vreal exp_weight(vreal e, const exp_row *r, bool may_be_one) {
  return exp_share(e, r->inv, r->tiny, r->one, may_be_one);
}

/* ---- what an operator says of its scores, weights and moments ---- */

/* The element of the vector behind vector j of such a page. */
SMI size_t page_next(size_t i, size_t j, size_t step) {
  return i + ((j + LANES) % BLOCK ? LANES : step - (BLOCK - LANES));
}
SMI void exp_page_of(score_fn *f, bool low, const span *on, const consts *with, const real *shift,
                     size_t first, size_t step, size_t n, real *h, real *l) {
  const span s = *on;
  const consts k = *with;
  size_t i = first;
#define STEP(j, cnt) \
  { \
    const score x = score_at(f, &s, &k, shift, i, cnt); \
    v_store(h + (j), x.h); \
    if (low) v_store(l + (j), x.l); \
    i = page_next(i, j, step); \
  }
  FOR_EACH_LANES(n, STEP)
#undef STEP
}
#define EXP_PAGE(name, score_name, low) \
  NOINLINE void name##_page(const span *s, const consts *k, const real *shift, size_t i, size_t step, \
                            size_t n, real *h, real *l) { \
    exp_page_of(score_name, low, s, k, shift, i, step, n, h, l); \
  }
#define EXP_SCORES(name, score_name) \
  EXP_PAGE(name, score_name, false) \
  static const exp_scores name##_scores = {name##_page, &exp_staged, false};
#define EXP_SCORES_LOW(name, score_name) \
  EXP_PAGE(name, score_name, true) \
  static const exp_scores name##_scores = {name##_page, &exp_staged_low, true};

/* Writes value by value, from exp_weight_at(): the write loop of an operator. */
typedef vreal exp_value_fn(const exp_write *w, size_t i, int cnt);
SMI vreal exp_weight_at(const exp_write *w, size_t i) { return v_load(w->weights + (i - w->from)); }
SMI void exp_write_staged_of(const exp_write *to, exp_value_fn *value, size_t first, size_t n) {
  const span s = *to->s;
  const consts k = *to->k;
  const exp_row r = *to->r;
  const exp_write q = {.s = &s, .k = &k, .r = &r, .weights = to->weights, .from = to->from};
  const row_writing stream = to->stream;
  real *const y = s.dst[0];
#define STEP(j, cnt) \
  { \
    const vreal out = value(&q, first + (j), cnt); \
    if (stream && (cnt) == LANES) put_uncached(y + first + (j), out, stream); \
    else put(y, first + (j), cnt, out); \
  }
  FOR_EACH_LANES(n, STEP)
#undef STEP
}
#define EXP_WRITE(name, value) \
  NOINLINE void name##_write(const exp_write *w, size_t i, size_t n) { \
    exp_write_staged_of(w, value, i, n); \
  } \
  static void name(const exp_write *w, size_t i, size_t n) { exp_write_staged(w, name##_write, i, n); }

/* A moment: sum factor e. e: the terms. */
typedef vreal exp_factor(const exp_sum *w, vreal e, size_t i, int cnt);
typedef void exp_factors_fn(const exp_sum *w, const real *e, size_t first, size_t step, size_t n,
                            real *factors);
SMI void exp_factors_of(const exp_sum *w, exp_factor *factor, const real *e, size_t first, size_t step,
                        size_t n, real *factors) {
  size_t i = first;
#define STEP(j, cnt) v_store(factors + (j), factor(w, v_load(e + (j)), i, cnt)), i = page_next(i, j, step)
  FOR_EACH_LANES(n, STEP)
#undef STEP
}
#define EXP_MOMENT(name, by) \
  NOINLINE void name##_factors(const exp_sum *w, const real *e, size_t i, size_t step, size_t n, \
                               real *factors) { \
    exp_factors_of(w, by, e, i, step, n, factors); \
  } \
  static real name(exp_sum *w, size_t i, size_t n) { return exp_moment_staged(w, name##_factors, i, n); }

/* ---- what is shared over scores (exp_stage.c) ---- */

/* The terms of a vector of staged scores; l NULL: they have no low part. */
SMI vreal stage_term(const real *h, const real *l, real scale_exp) {
  vreal d;
  return exp_term((score){v_load(h), l ? v_load(l) : v_set1(0)}, true, scale_exp, &d);
}

/* Elements: 2 KB, which is a block of each page, or of every second page; less where other things
 * take more stack: three blocks of f64, one where vectors are arrays. */
#ifdef V_PORTABLE
enum { STAGE = BLOCK };
#else
enum { STAGE = SMX_REAL == 32 ? 512 : 3 * BLOCK };
#endif
/* With what waits in front of a stage, and a vector that begins at its last element. */
enum { STAGE_ROOM = LANES + STAGE + LANES };

#define exp_write_staged SMX_FN(exp_write_staged)
#define exp_write_lines SMX_FN(exp_write_lines)
#define exp_moment_staged SMX_FN(exp_moment_staged)
#define exp_score_one SMX_FN(exp_score_one)
#define exp_keeps SMX_FN(exp_keeps)
#define exp_keeps_terms SMX_FN(exp_keeps_terms)
#define exp_terms_sum SMX_FN(exp_terms_sum)
#define exp_kept_max SMX_FN(exp_kept_max)
#define exp_kept_find SMX_FN(exp_kept_find)
#define exp_kept_sum SMX_FN(exp_kept_sum)
#define exp_count SMX_FN(exp_count)
#define exp_inf_policy SMX_FN(exp_inf_policy)
#define exp_weights SMX_FN(exp_weights)
#define stored_write SMX_FN(stored_write)
void exp_write_staged(const exp_write *w, exp_write_fn *write, size_t i, size_t n);
/* The same where `write` needs no weights, or they are there: streamed from a cache line on. */
void exp_write_lines(const exp_write *w, exp_write_fn *write, size_t i, size_t n);
real exp_moment_staged(exp_sum *w, exp_factors_fn *factors, size_t i, size_t n);
/* The score of one element. */
void exp_score_one(const exp_scores *f, const span *s, const consts *k, real shift, size_t i, real *h,
                   real *l);
/* Whether there is room to keep the scores of rows of n elements, and whether that gains for a sum
 * alone; forms them all and returns the largest; its offset, or n; the sum, as sum_keep, whose
 * store may be NULL, or the scores; the sum of terms, without the one at `skip`. */
bool exp_keeps_terms(const exp_scores *f, size_t n);
bool exp_keeps(const exp_scores *f, size_t n);
real exp_kept_max(const exp_scores *f, const span *s, const consts *k, size_t n, row_scores *kept);
size_t exp_kept_find(const row_scores *kept, size_t n, real value);
real exp_kept_sum(exp_sum *w, size_t i, size_t n);
real exp_terms_sum(const real *terms, size_t n, size_t skip);
void exp_count(const exp_scores *f, const span *s, const consts *k, size_t i, size_t n, double *inf,
               double *valid, bool *nan);
/* dst[0] = score is +inf ? share : none. */
void exp_inf_policy(const exp_scores *f, const span *s, const consts *k, size_t i, size_t n, real share,
                    real none);
SMI real exp_low_part(const exp_scores *f, const span *s, const consts *k, real shift, size_t i) {
  real h, l = 0;
  if (f->low) exp_score_one(f, s, k, shift, i, &h, &l);
  return l;
}
exp_write_fn exp_weights;  /* of staged scores */
exp_write_fn stored_write; /* weights from stored terms */

/* ---- an operator of the family ---- */

/* EXP_SUMS: the operator continues with the sums; EXP_MAP: a write loop makes other values of
 * weights. */
typedef enum exp_kind { EXP_WEIGHTS, EXP_LOGS, EXP_SCALAR, EXP_SUMS, EXP_MAP } exp_kind;

typedef struct exp_body exp_body;
struct exp_body {
  consts (*setup)(const row_call *c, const span *s);
  const exp_scores *scores;
  exp_write_fn *write; /* dst[0] of a group; NULL for EXP_SCALAR */
  /* EXP_SCALAR: dst[0] of the row */
  double (*scalar)(const span *s, const consts *k, const exp_row *r, size_t n);
  real (*extra)(const span *s, const consts *k); /* a score that joins S only; NULL = none */
  exp_sum_fn *moment, *spread;                   /* exp_row.moment and .spread; NULL = not needed */
  void (*row)(const span *s, const consts *k, const exp_row *r); /* ROW outputs besides; NULL = none */
  /* The minmax pass over a whole row in memory: its largest score, or NaN = use the program. It
   * also sets the row's consts, which are those of the row before at first. NULL = max. */
  real (*row_max)(const row_call *c, const span *s, consts *k);
  /* all rows, if they are short enough; NULL = never */
  bool (*small)(const exp_body *b, const row_kernel *kernel, row_call *c);
  /* EXP_MAP: what becomes of a weight of 1 / count under SMX_INF_LIMIT; NULL = itself */
  double (*share)(const row_call *c, double share);
  /* the same of the shares in a group of dst[0], or NULL */
  void (*shared)(const span *s, const consts *k, size_t i, size_t n);
  exp_kind kind;
  bool scaled;          /* scores are x times v[0] + v[1] of the consts, and l is not 0 */
  bool sum_without_max; /* needs exp_row.sum_without_max and exp_row.max */
  bool sinks;           /* `extra` takes all the weight of a row with nothing valid: that is no empty row */
  bool gradient;   /* empty rows get 0 whatever the policy, and so do those with +inf under SMX_INF_LIMIT */
  bool mass;       /* this gradient is dy times the weights, and there the +inf elements share dy */
  real empty, inf; /* EXP_SCALAR: for a row with nothing valid, and for +inf under SMX_INF_LIMIT */
};

/* b, or with PLAN_STAGED a copy of it in `room` whose loops are staged. */
typedef struct exp_staging {
  exp_body body;
  exp_scores scores;
} exp_staging;
#define exp_body_for SMX_FN(exp_body_for)
const exp_body *exp_body_for(const exp_body *b, const row_call *c, exp_staging *room);

SMI real k_of(real x) { return v_first(exp_k(v_set1(x))); }
SMI bool in_range(real max) { return max >= (real)-524288 && max <= (real)524288; }

/* The sum of all terms as weights need it. */
SMI void exp_finalize_sum(exp_row *r, double sum) {
  r->inv = (real)(1.0 / sum);
  r->tiny = (real)((double)R_TINY * sum);
  r->one = (real)sum;
}

/* ---- the row program (exp_program.c) ---- */

enum {
  EXP_RUN,
  EXP_CLASSIFY,
  EXP_TOP,
  EXP_EXACT,
  EXP_MOMENT_PASS,
  EXP_SPREAD_PASS,
  EXP_WRITE_PASS,
  EXP_FILL,
  EXP_INF_POLICY
};

#define exp_engine SMX_FN(exp_engine)
#define exp_of SMX_FN(exp_of)
#define exp_finalize SMX_FN(exp_finalize)
#define exp_begin SMX_FN(exp_begin)
#define exp_row_of SMX_FN(exp_row_of)
#define exp_pass SMX_FN(exp_pass)
#define exp_merge SMX_FN(exp_merge)
#define exp_next SMX_FN(exp_next)
#define exp_run_from SMX_FN(exp_run_from)
#define exp_run_group SMX_FN(exp_run_group)
#define exp_run_end SMX_FN(exp_run_end)
#define exp_run_finalize SMX_FN(exp_run_finalize)
extern const row_engine exp_engine;
real exp_of(const exp_row *r, real h, real l); /* the term of one score */
/* The scalars that follow from the sums. top, top_l: the largest score as the terms have it, shift
 * subtracted. */
void exp_finalize(const exp_body *b, const span *s, const consts *k, exp_row *r, double sum, double other);
void exp_begin(const exp_body *b, const row_call *c, row_state *st);
exp_row exp_row_of(const exp_body *b, const span *s, const consts *k, const row_state *st);
void exp_pass(const exp_body *b, const row_call *c, row_state *st, row_part *parts);
void exp_merge(const row_call *c, row_state *st, const row_part *parts, size_t count);
bool exp_next(const exp_body *b, const row_call *c, row_state *st);

/* A pass with row_call.terms keeps its terms there, and before them what they are relative to, as
 * an exponent: NaN where that is not one number, or the terms are not those of the row. Makes the
 * scalars of a row those for such terms, whose reference is at most 60 below the row's own, so that
 * results are the same numbers times a power of two; or NULL: they are to be formed again. */
SMI const real *exp_kept(const row_call *c, exp_row *r) {
  const real *const terms = c->terms;
  const double up = terms ? (double)r->scale_exp - (double)terms[-1] : -1;
  if (!(up >= 0 && up <= 60)) return NULL;
  const real by = (real)d_scale(1, -up);
  r->scale_exp = terms[-1], r->inv *= by, r->tiny /= by, r->one /= by;
  return terms;
}

/* Groups summed one after another with a running reference, taken from the scores seen so far. */
typedef struct exp_run {
  real scale_exp;           /* for the next group; -inf = nothing seen yet */
  real *store;              /* where terms are stored, or NULL */
  deferred_store *deferred; /* the outputs written meanwhile, or NULL */
  row_part *top; /* the first of these groups that holds their largest score, or NULL; where it is */
  real best;
  size_t i, n;
  real lanes[2][BLOCK]; /* sums by lane: of that group at [own], of the present one */
  int own;
} exp_run;
exp_run exp_run_from(const exp_body *b, const span *s, const consts *k, size_t i, size_t n);
void exp_run_group(const exp_body *b, const span *s, const consts *k, size_t i, size_t n, exp_run *run,
                   row_part *part);
void exp_run_end(const exp_body *b, const span *s, const consts *k, exp_run *run);
/* Scales the sums of a run to the row's own reference. False if they could differ from the row's
 * own sums: there is a NaN, a term between the two flush limits, or no such reference. */
bool exp_run_finalize(row_state *st, real top);

/* ---- rows in memory (exp_rows.c) ---- */

/* Rows of more elements than EXP_CACHED take the program: they are summed from memory once, and
 * terms are computed again for the output. Weights written with ordinary stores keep their terms in
 * the output up to EXP_STORED. */
enum { EXP_CACHED = SMX_REAL == 32 ? 131072 : 65536, EXP_STORED = 16 * EXP_CACHED };

/* In calls of more elements than FOLLOW, short rows have the row AHEAD of them prefetched while
 * they are summed. */
enum { FOLLOW = 262144, AHEAD = 4 };

/* Rows of more elements than this whose terms are kept are written while the next is summed; for
 * shorter rows the bookkeeping costs more than that gains. */
enum { DEFERRED_FROM = PAGE + PAGE / 8, DEFERRED_GROUPS = 32 /* of such a row at most */ };

/* The output of a summed row, to be written later. */
typedef struct exp_output {
  deferred_store deferred;
  row_writing writing;
  exp_write args;
  exp_write_fn *write;
  span s;
  consts k;
  exp_row r;
} exp_output;

#define exp_output_of SMX_FN(exp_output_of)
#define exp_cached_row SMX_FN(exp_cached_row)
#define exp_place SMX_FN(exp_place)
#define exp_run_row SMX_FN(exp_run_row)
#define exp_deferred_row SMX_FN(exp_deferred_row)
#define exp_rows SMX_FN(exp_rows)
#define exp_terms_rows SMX_FN(exp_terms_rows)
SMI exp_output exp_output_none(row_writing writing, size_t size) {
  exp_output out;
  out.deferred = deferred_store_none(writing, size), out.writing = writing;
  return out;
}
void exp_output_of(exp_output *out, const exp_scores *f, const span *s, const consts *k, const exp_row *r,
                   const real *stored, exp_write_fn *write);
/* A row in the caches whose maximum is known: terms, sum, output. Terms are kept in `store` (the
 * output or a scratch row), or computed twice. Returns false, with nothing written, when the row
 * needs a rule (NaN, infinities, nothing valid). kept: its scores, or NULL. */
bool exp_cached_row(const exp_body *b, const span *s, const consts *k, real max, row_writing writing,
                    real *store, ptrdiff_t prefetch, const row_scores *kept);
/* Where the terms of row r are kept: the places of the last row and the one before it alternate, as
 * long as the second-level cache holds both. */
real *exp_place(const row_call *c, size_t r);
/* The sums of a row from memory, as the program has them, from one read with a running reference.
 * If all groups had the same reference, *kept is the terms relative to it, and st->exp.scale_exp is
 * that reference: at most 60 below the row's own, so that results are the same numbers times a
 * power of two. *kept NULL: `store` holds nothing useful. False when the row needs a rule. */
bool exp_run_row(const exp_body *b, const row_call *c, const span *s, const consts *k, real *store,
                 deferred_store *deferred, row_state *st, const real **kept);
/* Such a row and its output, from its terms. The output is left to `out`, which is written while
 * the next row is summed; the output of the row before is complete by then. */
bool exp_deferred_row(const exp_body *b, const row_call *c, const span *s, const consts *k, real *store,
                      exp_write_fn *write, exp_output *out);
void exp_rows(const exp_body *b, const row_kernel *kernel, row_call *c);
/* Rows with moments or row outputs, or whose values are no weights: a short one forms its terms
 * once. */
void exp_terms_rows(const exp_body *b, const row_kernel *kernel, row_call *c);

#define EXP_KERNEL(name) \
  static const row_kernel name##_kernel = {.engine = &exp_engine, .body = &name##_body};

#endif
