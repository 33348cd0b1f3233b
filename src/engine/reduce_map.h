/* engine/reduce_map.h - operators that need at most the extremes of a row, an index and lane sums
 * before they write: most gradients, hardmax, elementwise maps, weights f(x) / sum f(x).
 *
 * The passes over a row are: minmax (its extremes, how many elements are valid), if the operator
 * asks for it; `sums`; `more`, for sums that need those; and the write loop, which may sum too, for
 * the gradient of a row's own parameter. A NaN that the minmax pass or the sums meet makes every
 * output of the row NaN. */
#ifndef SMX_ENGINE_REDUCE_MAP_H
#define SMX_ENGINE_REDUCE_MAP_H
#include "loops.h"

typedef struct reduce_map_row {
  double sum, sum2;    /* of `sums` */
  double more, more2;  /* of `more` */
  double valid;        /* elements above -inf */
  real max, low;       /* of those */
  const double *found; /* what an engine around this one has found (row_state) */
  int64_t index;       /* of the first largest element, where `sums` looks for it, or -1 */
} reduce_map_row;

/* The accumulators of one vector. */
typedef struct reduce_map_acc {
  vreal a, b;
  vmask nan;
} reduce_map_acc;

/* absent lanes must add +0 */
typedef void reduce_map_add_fn(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                               reduce_map_acc *acc);
/* stores; returns the term that `post` sums */
typedef vreal reduce_map_write_fn(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt);
/* of dst[0] */
typedef vreal reduce_map_value_fn(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt);
typedef void reduce_map_group_fn(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                                 row_part *part);

typedef struct reduce_map_body reduce_map_body;
struct reduce_map_body {
  consts (*setup)(const row_call *c, const span *s);
  /* after the minmax pass and after sums: more constants; or NULL */
  void (*finalize)(consts *k, const span *s, const reduce_map_row *r);
  reduce_map_group_fn *sums, *more, *write; /* NULL = none */
  reduce_map_group_fn *ordinary; /* instead of write where constant 0 is 1 and the sum finite, or NULL */
  /* The same as sums and write without a look at what is no number, for rows in memory whose sum is
   * then modest (reduce_map_modest), whose second sum is 0, and constant 0 is 1; or NULL. */
  reduce_map_group_fn *plain_sums, *plain_write;
  /* The same as sums and write for operators whose minmax pass finds every NaN: values are formed
   * once and kept in dst[0], where `kept` reads them as src[SRC_Y], which may be dst[0].
   * NULL = formed twice. */
  reduce_map_group_fn *keep, *kept;
  /* stores the ROW outputs; NULL = there are none */
  void (*row)(const span *s, const consts *k, const reduce_map_row *r, double post);
  uint32_t full; /* which outputs are FULL, a bit each */
  bool max;      /* needs the minmax pass; a row without a maximum is empty */
  bool gradient; /* empty rows get 0 whatever the policy */
  bool bounded;  /* +inf is a value like others */
  bool heavy;    /* values of plain_write take many steps */
  bool (*small)(const reduce_map_body *b, row_call *c); /* all rows, if they are short enough; NULL = never */
};

enum {
  REDUCE_MAP_MINMAX,
  REDUCE_MAP_SUMS,
  REDUCE_MAP_MORE,
  REDUCE_MAP_WRITE,
  REDUCE_MAP_TIES,
  REDUCE_MAP_SHARE,
  REDUCE_MAP_FILL
};

/* ---- what is shared (reduce_map.c) ---- */

#define reduce_map_engine SMX_FN(reduce_map_engine)
#define reduce_map_begin SMX_FN(reduce_map_begin)
#define reduce_map_pass SMX_FN(reduce_map_pass)
#define reduce_map_merge SMX_FN(reduce_map_merge)
#define reduce_map_next SMX_FN(reduce_map_next)
#define reduce_map_fill_with SMX_FN(reduce_map_fill_with)
#define reduce_map_rows SMX_FN(reduce_map_rows)
#define reduce_map_minmax_row SMX_FN(reduce_map_minmax_row)
#define reduce_map_plain_sums SMX_FN(reduce_map_plain_sums)
#define reduce_map_ties SMX_FN(reduce_map_ties)
#define reduce_map_share SMX_FN(reduce_map_share)
extern const row_engine reduce_map_engine;
void reduce_map_begin(const reduce_map_body *b, const row_call *c, row_state *st);
void reduce_map_pass(const reduce_map_body *b, const row_call *c, row_state *st, row_part *parts);
void reduce_map_merge(const row_call *c, row_state *st, const row_part *parts, size_t count);
bool reduce_map_next(const reduce_map_body *b, const row_call *c, row_state *st);
bool reduce_map_fill_with(row_state *st, real value); /* chooses a pass that writes one value everywhere */
void reduce_map_rows(const reduce_map_body *b, const row_kernel *kernel, row_call *c);
/* The minmax pass over a whole row. False when there is a NaN. */
bool reduce_map_minmax_row(const span *s, reduce_map_row *r);
/* Adds the sums of `sums` to *r, with what is known of the row so far. False when there is a
 * NaN. */
bool reduce_map_plain_sums(reduce_map_group_fn *sums, const span *s, const consts *k, reduce_map_row *r,
                           double *sum, double *sum2);
/* The largest elements share the mass: hardmax with ties split, and what SMX_INF_LIMIT asks for. */
reduce_map_group_fn reduce_map_ties, reduce_map_share;

#define REDUCE_MAP_KERNEL(name) \
  static const row_kernel name##_kernel = {.engine = &reduce_map_engine, .body = &name##_body};

/* Whether a gradient has no NaN or infinity to check for. */
SMI bool reduce_map_ordinary(const consts *k, double sum) {
  return k->v[0] == 1 && sum >= (double)-R_MAX && sum <= (double)R_MAX;
}

/* Whether no difference between a finite number and the sum overflows either. */
#define R_MODEST (SMX_REAL == 32 ? 0x1p100 : 0x1p960)
SMI bool reduce_map_modest(const consts *k, double sum) {
  return k->v[0] == 1 && sum >= -R_MODEST && sum <= R_MODEST;
}

/* How dst[0] is written: streaming stores need it aligned as groups are. */
SMI row_writing reduce_map_streams(const row_call *c, const span *s) {
  return (uintptr_t)s->dst[0] % 64 == 0 ? c->writing : WRITE_CACHED;
}

/* The prefetch distance while a row of a gradient is written with streaming stores: so many rows,
 * if they are contiguous and not too long (ahead_most). */
SMI ptrdiff_t reduce_map_ahead(const row_call *c, size_t row, size_t rows, bool heavy) {
  const ptrdiff_t n = (ptrdiff_t)c->n;
  const bool follows = c->src[SRC_Y] && c->src_step[SRC_Y] == n && c->src[SRC_DY] && c->src_step[SRC_DY] == n;
  return c->writing && follows && c->n <= ahead_most(heavy) && row + 2 * rows <= c->rows ? (ptrdiff_t)rows * n
                                                                                         : 0;
}

/* ---- loops over a group, around what an operator adds and writes ---- */

SMI void reduce_map_sums_of(const span *on, const consts *with, const reduce_map_row *of,
                            reduce_map_add_fn *add, bool compact, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const reduce_map_row r = *of;
  vreal a[VPB], b[VPB];
  vmask nan = v_lt(v_set1(0), v_set1(0));
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) a[u] = b[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    reduce_map_acc acc = {a[u], b[u], nan}; \
    add(&s, &k, &r, i, cnt, &acc); \
    a[u] = acc.a, b[u] = acc.b, nan = acc.nan; \
  }
  if (compact) {
    FOR_EACH_VECTOR_COMPACT(first, n, STEP, NEXT_LANES(a) NEXT_LANES(b))
  } else {
    FOR_EACH_VECTOR(first, n, STEP)
  }
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(a), .sum2 = (double)v_fold(b), .nan = m_any(nan)};
}

/* As reduce_map_body.plain_sums. Long rows are prefetched in address order: their pages are read
 * together, which is slower from memory (Zen 4, sums of y dy of 4M elements with and without: 0.22
 * and 0.34 ns an element). */
SMI void reduce_map_plain_of(const span *on, reduce_map_add_fn *add, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts unknown = {{0}};
  const reduce_map_row none = {.index = -1};
  vreal a[VPB], b[VPB];
  fetcher f = fetch_from(first, true);
  const bool fetch = s.stream == WRITE_STREAMING && s.n > 8 * GROUP && fetches_straight();
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) a[u] = b[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    reduce_map_acc acc = {.a = a[u], .b = b[u]}; \
    add(&s, &unknown, &none, i, cnt, &acc); \
    a[u] = acc.a, b[u] = acc.b; \
  }
#define FETCHED(u, i, cnt) \
  { \
    const size_t next = fetch_next(&f, u, i); \
    v_prefetch_far(s.src[SRC_Y] + next), v_prefetch_far(s.src[SRC_DY] + next); \
    STEP(u, i, cnt) \
  }
  if (fetch) {
    FOR_EACH_VECTOR(first, n, FETCHED)
  } else {
    FOR_EACH_VECTOR(first, n, STEP)
  }
#undef FETCHED
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(a), .sum2 = (double)v_fold(b)};
}

SMI void reduce_map_write_of(const span *on, const consts *with, const reduce_map_row *of,
                             reduce_map_write_fn *write, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const reduce_map_row r = *of;
  vreal a[VPB];
  for (int u = 0; u < VPB; u++) a[u] = v_set1(0);
#define STEP(u, i, cnt) a[u] = v_add(a[u], write(&s, &k, &r, i, cnt))
  FOR_EACH_VECTOR_COMPACT(first, n, STEP, NEXT_LANES(a))
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(a)};
}

SMI void reduce_map_values_of(const span *on, const consts *with, const reduce_map_row *of,
                              reduce_map_value_fn *value, bool compact, size_t first, size_t n,
                              row_part *part) {
  const span s = *on;
  const consts k = *with;
  const reduce_map_row r = *of;
  *part = (row_part){.index = -1};
#define STEP(u, i, cnt) \
  { \
    put_first(&s, i, cnt, value(&s, &k, &r, i, cnt)); \
    if (s.ahead) \
      v_prefetch_far(s.src[SRC_Y] + (i) + s.ahead), v_prefetch_far(s.src[SRC_DY] + (i) + s.ahead); \
  }
  if (compact) {
#define STEP_AT(j, cnt) STEP(0, first + (j), cnt)
    FOR_EACH_LANES(n, STEP_AT)
#undef STEP_AT
  } else {
    FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
  }
#undef STEP
}

#define REDUCE_MAP_LOOP(name, call) \
  NOINLINE void name(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n, \
                     row_part *part) { \
    call; \
  }
#define REDUCE_MAP_SUMS_OF(name, by) REDUCE_MAP_LOOP(name, reduce_map_sums_of(s, k, r, by, true, i, n, part))
#define REDUCE_MAP_WRITE_OF(name, by) REDUCE_MAP_LOOP(name, reduce_map_write_of(s, k, r, by, i, n, part))
#define REDUCE_MAP_VALUES_OF(name, by) \
  REDUCE_MAP_LOOP(name, reduce_map_values_of(s, k, r, by, true, i, n, part))
#define REDUCE_MAP_PLAIN_SUMS(name, by) REDUCE_MAP_LOOP(name, reduce_map_plain_of(s, by, i, n, part))
/* Of fused operators: each vector of a block has its own code. */
#define REDUCE_MAP_SUMS_FUSED(name, by) \
  REDUCE_MAP_LOOP(name, reduce_map_sums_of(s, k, r, by, false, i, n, part))
#define REDUCE_MAP_VALUES_FUSED(name, by) \
  REDUCE_MAP_LOOP(name, reduce_map_values_of(s, k, r, by, false, i, n, part))

#endif
