/* engine/sum.h - operators whose elements need at most the row's maximum, an index and two lane sums: most gradients, hardmax, elementwise maps.
 *
 * A row is read once for its maximum (if the operator asks), once for its sums, and once while its outputs are written; a sum over what is
 * written gives the gradient of a row's own parameter. A NaN that the sums meet makes every output of the row NaN. */
#ifndef SMX_ENGINE_SUM_H
#define SMX_ENGINE_SUM_H
#include "walk.h"

typedef struct sum_row {
  double sum, sum2;
  real max;
  int64_t index; /* of the first largest element, where `sums` looks for it, or -1 */
} sum_row;

/* The accumulators of one vector. */
typedef struct sum_acc {
  vreal a, b;
  vmask nan;
} sum_acc;

typedef void sum_add_fn(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc); /* absent lanes must add +0 */
typedef vreal sum_emit_fn(const span *s, const consts *k, const sum_row *r, size_t i, int cnt); /* stores; returns what `post` sums */
typedef vmask sum_hit_fn(const span *s, const consts *k, const sum_row *r, size_t i, int cnt);
typedef void sum_group_fn(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part);

typedef struct sum_body {
  consts (*setup)(const row_call *c, const span *s);
  sum_group_fn *sums, *emit;                                                  /* sums: NULL = none */
  void (*row)(const span *s, const consts *k, const sum_row *r, double post); /* stores the ROW outputs; NULL = there are none */
  uint32_t full;                                                              /* which outputs are FULL, a bit each */
  bool max;                                                                   /* needs sum_row.max; a row without one is empty */
  bool gradient;                                                              /* empty rows get 0 whatever the policy */
} sum_body;

enum { SUM_MAX, SUM_SUMS, SUM_EMIT, SUM_FILL };

NOINLINE void sum_max_group(const span *s, size_t first, size_t n, row_part *part) {
  const real *x = s->src[0];
  vreal max[VPB];
  vmask nan = v_lt(v_set1(0), v_set1(0));
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF);
#define STEP(u, i, cnt) \
  { \
    vreal v = at(x, i, cnt); \
    nan = m_or(nan, m_not(v_eq(v, v))); \
    if ((cnt) < LANES) v = v_select(lanes_below(cnt), v, v_set1(-R_INF)); \
    max[u] = v_max(v, max[u]); \
  }
  WALK(first, n, STEP)
#undef STEP
  for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]);
  *part = (row_part){.index = -1, .max = (double)v_hmax(max[0]), .nan = m_any(nan)};
}

SMI void sum_sums_of(const span *on, const consts *with, const sum_row *of, sum_add_fn *add, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const sum_row r = *of;
  vreal a[VPB], b[VPB];
  vmask nan = v_lt(v_set1(0), v_set1(0));
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) a[u] = b[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    sum_acc acc = {a[u], b[u], nan}; \
    add(&s, &k, &r, i, cnt, &acc); \
    a[u] = acc.a, b[u] = acc.b, nan = acc.nan; \
  }
  WALK(first, n, STEP)
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(a), .sum2 = (double)v_fold(b), .nan = m_any(nan)};
}

SMI void sum_emit_of(const span *on, const consts *with, const sum_row *of, sum_emit_fn *emit, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const sum_row r = *of;
  vreal a[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) a[u] = v_set1(0);
#define STEP(u, i, cnt) a[u] = v_add(a[u], emit(&s, &k, &r, i, cnt))
  WALK(first, n, STEP)
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(a)};
}

#define SUM_SUMS_OF(name, by) \
  NOINLINE void name(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part) { \
    sum_sums_of(s, k, r, by, i, n, part); \
  }
#define SUM_EMIT_OF(name, by) \
  NOINLINE void name(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part) { \
    sum_emit_of(s, k, r, by, i, n, part); \
  }

static inline void sum_fill(const sum_body *b, const span *s, size_t i, size_t n, real value) {
  for (int p = 0; p < ROW_DST; p++)
    if ((b->full >> p & 1) && s->dst[p]) fill(s->dst[p] + i, n, value);
}

/* ---- the row program ---- */

static inline void sum_begin(const sum_body *b, const row_call *c, row_state *st) {
  (void)c;
  st->mode = b->max ? SUM_MAX : b->sums ? SUM_SUMS : SUM_EMIT;
  st->writes = st->mode == SUM_EMIT;
  st->reverse = st->serial = st->empty = st->nan = false;
  st->sum = st->sum2 = st->other = 0;
  st->max = -R_INF;
  st->index = -1;
}

static inline sum_row sum_row_of(const row_state *st) {
  return (sum_row){.sum = st->sum, .sum2 = st->sum2, .max = (real)st->max, .index = st->index};
}

/* Whether elements of dst[0] may pass the caches: aligned as groups are. */
static inline bool sum_streams(const row_call *c, const span *s) { return c->bypass && (uintptr_t)s->dst[0] % 64 == 0; }

static inline void sum_pass(const sum_body *b, const row_call *c, row_state *st, row_part *parts) {
  span s = span_of(c, 0);
  consts k = b->setup(c, &s);
  sum_row r = sum_row_of(st);
  s.stream = sum_streams(c, &s);
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  for (size_t j = 0; j < groups; j++) {
    size_t g = st->reverse ? groups - 1 - j : j, n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == SUM_FILL) sum_fill(b, &s, base + g * GROUP, n, (real)st->other);
    else if (st->mode == SUM_MAX) sum_max_group(&s, base + g * GROUP, n, parts + g);
    else (st->mode == SUM_SUMS ? b->sums : b->emit)(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
  if (s.stream) v_stream_end();
}

static inline void sum_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  (void)c;
  for (size_t g = 0; g < count; g++) {
    const row_part *p = parts + g;
    st->nan |= p->nan;
    if (st->mode == SUM_MAX) st->max = p->max > st->max ? p->max : st->max;
    if (st->mode == SUM_SUMS) st->sum += p->sum, st->sum2 += p->sum2;
    if (st->mode == SUM_SUMS && st->index < 0) st->index = p->index;
    if (st->mode == SUM_EMIT) st->other += p->sum;
  }
}

static inline bool sum_fill_with(row_state *st, real value) {
  st->mode = SUM_FILL;
  st->other = (double)value;
  return st->writes = true;
}

static inline bool sum_next(const sum_body *b, const row_call *c, row_state *st) {
  span s = span_of(c, 0);
  consts k = b->setup(c, &s);
  if (st->writes) {
    sum_row r = sum_row_of(st);
    if (b->row) b->row(&s, &k, &r, st->other); /* a fill: its value */
    return false;
  }
  if (st->nan) return sum_fill_with(st, r_nan());
  if (st->mode == SUM_MAX && st->max == (double)-R_INF) {
    st->empty = !b->gradient;
    if (b->gradient) return sum_fill_with(st, 0);
    if (c->on_empty == SMX_EMPTY_ERROR) return false;
    return sum_fill_with(st, c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
  }
  if (st->mode == SUM_MAX && st->max > (double)R_MAX && c->on_inf != SMX_INF_LIMIT) return sum_fill_with(st, r_nan());
  st->mode = st->mode == SUM_MAX && b->sums ? SUM_SUMS : SUM_EMIT;
  st->writes = st->mode == SUM_EMIT;
  st->reverse = st->writes && !b->row; /* `post` is summed in index order */
  return true;
}

/* Rows in memory without a maximum: sums, then outputs, with no program around them. */
static inline void sum_rows(const sum_body *b, const row_kernel *kernel, row_call *c) {
  if (b->max || !b->sums || c->n > 16 * GROUP) {
    run_rows(kernel, c);
    return;
  }
  span s = span_of(c, 0);
  for (size_t row = 0; row < c->rows; row++, span_next(c, &s)) {
    consts k = b->setup(c, &s);
    sum_row r = {.index = -1};
    row_part part;
    bool nan = false;
    double post = 0;
    s.stream = sum_streams(c, &s);
    for (size_t g = 0; g < c->n; g += GROUP) {
      b->sums(&s, &k, &r, g, group_size(g, c->n), &part);
      r.sum += part.sum, r.sum2 += part.sum2, nan |= part.nan;
    }
    if (nan) sum_fill(b, &s, 0, c->n, r_nan());
    for (size_t g = 0; g < c->n && !nan; g += GROUP) {
      b->emit(&s, &k, &r, g, group_size(g, c->n), &part);
      post += part.sum;
    }
    if (b->row) b->row(&s, &k, &r, nan ? (double)r_nan() : post);
  }
  if (c->bypass) v_stream_end();
}

/* Five functions around a body make a kernel. */
#define SUM_KERNEL(name) \
  static void name##_begin(const row_call *c, row_state *st) { sum_begin(&name##_body, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { sum_pass(&name##_body, c, st, parts); } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { sum_fold(c, st, parts, count); } \
  static bool name##_next(const row_call *c, row_state *st) { return sum_next(&name##_body, c, st); } \
  static void name##_rows(row_call *c); \
  static const row_kernel name##_kernel = {name##_rows, name##_begin, name##_pass, name##_fold, name##_next, NULL}; \
  static void name##_rows(row_call *c) { sum_rows(&name##_body, &name##_kernel, c); }

#endif
