/* engine/sum.h - operators whose elements need at most a look at the row, an index and lane sums: most gradients, hardmax, elementwise maps,
 * weights f(x) / sum f(x).
 *
 * A row is read once to look at it (its extremes, how many elements are valid: if the operator asks), once for its sums, once more for sums that
 * need those, and once while its outputs are written; a sum over what is written gives the gradient of a row's own parameter. A NaN that the
 * look or the sums meet makes every output of the row NaN. */
#ifndef SMX_ENGINE_SUM_H
#define SMX_ENGINE_SUM_H
#include "walk.h"

typedef struct sum_row {
  double sum, sum2;   /* of `sums` */
  double more, more2; /* of `more` */
  double valid;       /* elements above -inf */
  real max, low;      /* of those */
  int64_t index;      /* of the first largest element, where `sums` looks for it, or -1 */
} sum_row;

/* The accumulators of one vector. */
typedef struct sum_acc {
  vreal a, b;
  vmask nan;
} sum_acc;

typedef void sum_add_fn(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc); /* absent lanes must add +0 */
typedef vreal sum_emit_fn(const span *s, const consts *k, const sum_row *r, size_t i, int cnt);  /* stores; returns what `post` sums */
typedef vreal sum_value_fn(const span *s, const consts *k, const sum_row *r, size_t i, int cnt); /* of dst[0] */
typedef void sum_group_fn(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part);

typedef struct sum_body sum_body;
struct sum_body {
  consts (*setup)(const row_call *c, const span *s);
  void (*settle)(consts *k, const span *s, const sum_row *r); /* after the look and after sums: more constants; or NULL */
  sum_group_fn *sums, *more, *emit;                           /* NULL = none */
  sum_group_fn *ordinary;                                     /* instead of emit where constant 0 is 1 and the sum finite, or NULL */
  /* The same as sums and emit, for a look that finds every NaN: values formed once wait in dst[0], where kept finds them as src[SRC_Y], which may
   * be dst[0]. NULL = formed twice. */
  sum_group_fn *keep, *kept;
  void (*row)(const span *s, const consts *k, const sum_row *r, double post); /* stores the ROW outputs; NULL = there are none */
  uint32_t full;                                                              /* which outputs are FULL, a bit each */
  bool max;                                                                   /* needs the look; a row without a maximum is empty */
  bool gradient;                                                              /* empty rows get 0 whatever the policy */
  bool bounded;                                                               /* +inf is a value like others */
  bool (*small)(const sum_body *b, row_call *c);                              /* all rows, if they are short enough; NULL = never */
};

enum { SUM_LOOK, SUM_SUMS, SUM_MORE, SUM_EMIT, SUM_TIES, SUM_SHARE, SUM_FILL };

/* The extremes of a group without -inf. False when there is one. */
SMI bool sum_look_whole(const real *x, size_t n, row_part *part) {
  vreal max[2] = {v_set1(-R_INF), v_set1(-R_INF)}, low[2] = {v_set1(R_INF), v_set1(R_INF)};
  vmask same = v_eq(max[0], max[0]);
#define STEP(u, i, cnt) \
  { \
    const vreal v = at(x, i, cnt); \
    const vmask in = lanes_below(cnt); \
    same = m_and(same, v_eq(v, v)); \
    max[(u) % 2] = v_max((cnt) < LANES ? v_select(in, v, v_set1(-R_INF)) : v, max[(u) % 2]); \
    low[(u) % 2] = v_min((cnt) < LANES ? v_select(in, v, v_set1(R_INF)) : v, low[(u) % 2]); \
  }
  WALK_STRAIGHT(0, n, STEP)
#undef STEP
  *part = (row_part){.index = -1,
                     .max = (double)v_hmax(v_max(max[0], max[1])),
                     .low = (double)v_hmin(v_min(low[0], low[1])),
                     .sum = (double)n,
                     .nan = m_any(m_not(same))};
  return part->low > (double)-R_INF;
}

NOINLINE void sum_look_group(const span *s, size_t first, size_t n, row_part *part) {
  const real *x = s->src[0];
  if (sum_look_whole(x + first, n, part)) return;
  vreal max[VPB], low[VPB], valid[VPB];
  vmask nan = v_lt(v_set1(0), v_set1(0));
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF), low[u] = v_set1(R_INF), valid[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal v = at(x, i, cnt); \
    nan = m_or(nan, m_not(v_eq(v, v))); \
    if ((cnt) < LANES) v = v_select(lanes_below(cnt), v, v_set1(-R_INF)); \
    vmask live = v_lt(v_set1(-R_INF), v); \
    max[u] = v_max(v, max[u]); \
    low[u] = v_min(v_select(live, v, v_set1(R_INF)), low[u]); \
    valid[u] = v_add(valid[u], v_select(live, v_set1(1), v_set1(0))); \
  }
  WALK_STRAIGHT(first, n, STEP)
#undef STEP
  for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]), low[0] = v_min(low[0], low[u]);
  *part = (row_part){
      .index = -1, .max = (double)v_hmax(max[0]), .low = (double)v_hmin(low[0]), .sum = (double)v_fold(valid), .nan = m_any(nan)};
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

SMI void sum_values_of(const span *on, const consts *with, const sum_row *of, sum_value_fn *value, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const sum_row r = *of;
  *part = (row_part){.index = -1};
#define STEP(u, i, cnt) \
  { \
    put_first(&s, i, cnt, value(&s, &k, &r, i, cnt)); \
    if (s.ahead) v_prefetch_far(s.src[SRC_Y] + (i) + s.ahead), v_prefetch_far(s.src[SRC_DY] + (i) + s.ahead); \
  }
  WALK_STRAIGHT(first, n, STEP)
#undef STEP
}

#define SUM_SUMS_OF(name, by) \
  NOINLINE void name(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part) { \
    sum_sums_of(s, k, r, by, i, n, part); \
  }
#define SUM_EMIT_OF(name, by) \
  NOINLINE void name(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part) { \
    sum_emit_of(s, k, r, by, i, n, part); \
  }
#define SUM_VALUES_OF(name, by) \
  NOINLINE void name(const span *s, const consts *k, const sum_row *r, size_t i, size_t n, row_part *part) { \
    sum_values_of(s, k, r, by, i, n, part); \
  }

/* The largest elements share the mass: hardmax with ties split, and what SMX_INF_LIMIT asks for. */
SMI void sum_ties_add(const span *s, const consts *k, const sum_row *r, size_t i, int cnt, sum_acc *acc) {
  vmask hit = m_and(v_eq(at(s->src[0], i, cnt), v_set1(r->max)), lanes_below(cnt));
  (void)k;
  acc->a = v_add(acc->a, v_select(hit, v_set1(1), v_set1(0)));
}
SMI vreal sum_share_value(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  (void)k;
  return v_select(v_eq(at(s->src[0], i, cnt), v_set1(r->max)), v_set1((real)(1 / r->sum)), v_set1(0));
}
SUM_SUMS_OF(sum_ties, sum_ties_add)
SUM_VALUES_OF(sum_share, sum_share_value)

static inline void sum_fill(const sum_body *b, const span *s, size_t i, size_t n, real value) {
  for (int p = 0; p < ROW_DST; p++)
    if ((b->full >> p & 1) && s->dst[p]) fill(s->dst[p] + i, n, value);
}

/* ---- the row program ---- */

static inline void sum_begin(const sum_body *b, const row_call *c, row_state *st) {
  (void)c;
  st->mode = b->max ? SUM_LOOK : b->sums ? SUM_SUMS : SUM_EMIT;
  st->writes = st->mode == SUM_EMIT;
  st->reverse = st->serial = st->empty = st->nan = false;
  st->sum = st->sum2 = st->sum3 = st->other = st->carry = st->carry2 = 0;
  st->max = -R_INF, st->low = R_INF;
  st->index = -1;
}

static inline sum_row sum_row_of(const row_state *st) {
  return (sum_row){.sum = st->sum,
                   .sum2 = st->sum2,
                   .more = st->carry,
                   .more2 = st->carry2,
                   .valid = st->sum3,
                   .max = (real)st->max,
                   .low = (real)st->low,
                   .index = st->index};
}

/* The constants with all that is known of the row so far. */
static inline consts sum_consts(const sum_body *b, const row_call *c, const span *s, const sum_row *r) {
  consts k = b->setup(c, s);
  if (b->settle) b->settle(&k, s, r);
  return k;
}

static inline bool sum_ordinary(const consts *k, double sum) { return k->v[0] == 1 && sum >= (double)-R_MAX && sum <= (double)R_MAX; }
static inline sum_group_fn *sum_emit_for(const sum_body *b, const consts *k, double sum) {
  return b->ordinary && sum_ordinary(k, sum) ? b->ordinary : b->emit;
}
static inline sum_group_fn *sum_group_of(const sum_body *b, int mode, const consts *k, double sum) {
  return mode == SUM_SUMS   ? b->sums
         : mode == SUM_MORE ? b->more
         : mode == SUM_EMIT ? sum_emit_for(b, k, sum)
         : mode == SUM_TIES ? sum_ties
                            : sum_share;
}

/* Whether elements of dst[0] may pass the caches: aligned as groups are. */
static inline row_bypass sum_streams(const row_call *c, const span *s) { return (uintptr_t)s->dst[0] % 64 == 0 ? c->bypass : BYPASS_NOT; }

/* How far on to fetch while a row of a gradient is written past the caches: so many rows, if they follow one another and fit them. */
enum { SUM_AHEAD_MOST = 65536 };
static inline ptrdiff_t sum_ahead(const row_call *c, size_t row, size_t rows) {
  const ptrdiff_t n = (ptrdiff_t)c->n;
  const bool follows = c->src[SRC_Y] && c->src_step[SRC_Y] == n && c->src[SRC_DY] && c->src_step[SRC_DY] == n;
  return c->bypass && follows && c->n <= SUM_AHEAD_MOST && row + 2 * rows <= c->rows ? (ptrdiff_t)rows * n : 0;
}

static inline void sum_pass(const sum_body *b, const row_call *c, row_state *st, row_part *parts) {
  span s = span_of(c, 0);
  sum_row r = sum_row_of(st);
  consts k = sum_consts(b, c, &s, &r);
  s.stream = sum_streams(c, &s);
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  for (size_t g = 0; g < groups; g++) {
    size_t n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == SUM_FILL) sum_fill(b, &s, base + g * GROUP, n, (real)st->other);
    else if (st->mode == SUM_LOOK) sum_look_group(&s, base + g * GROUP, n, parts + g);
    else sum_group_of(b, st->mode, &k, r.sum)(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
  if (s.stream && st->writes) v_stream_end();
}

static inline void sum_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  (void)c;
  for (size_t g = 0; g < count; g++) {
    const row_part *p = parts + g;
    st->nan |= p->nan;
    switch (st->mode) {
      case SUM_LOOK:
        st->max = p->max > st->max ? p->max : st->max;
        st->low = p->low < st->low ? p->low : st->low;
        st->sum3 += p->sum;
        break;
      case SUM_SUMS:
      case SUM_TIES:
        st->sum += p->sum, st->sum2 += p->sum2;
        if (st->index < 0) st->index = p->index;
        break;
      case SUM_MORE: st->carry += p->sum, st->carry2 += p->sum2; break;
      case SUM_EMIT: st->other += p->sum; break;
      default: break;
    }
  }
}

static inline bool sum_fill_with(row_state *st, real value) {
  st->mode = SUM_FILL;
  st->other = (double)value;
  return st->writes = true;
}

/* After the look: a row with nothing valid, or with +inf, needs a rule. 1 = go on, 0 = stop, -1 = the mode is chosen. */
static inline int sum_after_look(const sum_body *b, const row_call *c, row_state *st) {
  if (st->max == (double)-R_INF) {
    st->empty = !b->gradient;
    if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return 0;
    sum_fill_with(st, st->empty && c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
    return -1;
  }
  if (!(st->max > (double)R_MAX) || b->bounded) return 1;
  if (c->on_inf != SMX_INF_LIMIT) sum_fill_with(st, r_nan());
  else if (b->gradient || !b->full) sum_fill_with(st, b->gradient ? 0 : R_INF);
  else st->mode = SUM_TIES;
  return -1;
}

/* The last step: what a row has besides its FULL outputs. post: what the emission summed, or the value of a fill. */
static inline bool sum_finish(const sum_body *b, const row_call *c, const row_state *st, double post) {
  span s = span_of(c, 0);
  sum_row r = sum_row_of(st);
  consts k = sum_consts(b, c, &s, &r);
  if (b->row) b->row(&s, &k, &r, post);
  return false;
}

static inline bool sum_next(const sum_body *b, const row_call *c, row_state *st) {
  if (st->writes) return sum_finish(b, c, st, st->other);
  int rule = st->nan ? -1 : st->mode == SUM_LOOK ? sum_after_look(b, c, st) : 1;
  if (rule == 0) return false;
  if (st->nan) sum_fill_with(st, r_nan());
  if (st->mode == SUM_FILL) return b->full ? true : (st->writes = false, sum_finish(b, c, st, st->other));
  if (rule < 0) return true;
  st->mode = st->mode == SUM_TIES                                        ? SUM_SHARE
             : st->mode == SUM_LOOK && b->sums                           ? SUM_SUMS
             : (st->mode == SUM_LOOK || st->mode == SUM_SUMS) && b->more ? SUM_MORE
                                                                         : SUM_EMIT;
  if (st->mode == SUM_EMIT && !b->emit) return sum_finish(b, c, st, 0);
  st->writes = st->mode == SUM_EMIT || st->mode == SUM_SHARE;
  st->reverse = st->writes && !b->row; /* `post` is summed in index order */
  return true;
}

/* ---- rows in memory: the same without the program around it ---- */

/* The look at a whole row. False when there is a NaN. */
static inline bool sum_look_row(const span *s, sum_row *r) {
  row_part part;
  bool nan = false;
  *r = (sum_row){.max = -R_INF, .low = R_INF, .index = -1};
  for (size_t g = 0; g < s->n; g += GROUP) {
    sum_look_group(s, g, group_size(g, s->n), &part);
    r->max = part.max > (double)r->max ? (real)part.max : r->max, r->low = part.low < (double)r->low ? (real)part.low : r->low;
    r->valid += part.sum, nan |= part.nan;
  }
  return !nan;
}

/* Adds up what `sums` finds with what is known so far. False when there is a NaN. */
static inline bool sum_plain_sums(sum_group_fn *sums, const span *s, const consts *k, sum_row *r, double *sum, double *sum2) {
  const sum_row before = *r;
  row_part part;
  bool nan = false;
  for (size_t g = 0; g < s->n; g += GROUP) {
    sums(s, k, &before, g, group_size(g, s->n), &part);
    *sum += part.sum, *sum2 += part.sum2, nan |= part.nan;
    if (r->index < 0) r->index = part.index;
  }
  return !nan;
}

/* False, with nothing written, when the row needs a rule. store: where values may wait, or NULL. */
static inline bool sum_plain_row(const sum_body *b, const row_call *c, const span *s, real *store) {
  sum_row r = {.max = -R_INF, .low = R_INF, .index = -1};
  row_part part;
  double post = 0;
  if (b->max && !(sum_look_row(s, &r) && r.max >= -R_MAX && (r.max <= R_MAX || b->bounded))) return false;
  consts k = sum_consts(b, c, s, &r);
  span from = *s, to = *s;
  if (store) to.dst[0] = store, from.src[SRC_Y] = store;
  if (b->sums) {
    if (!sum_plain_sums(store ? b->keep : b->sums, &to, &k, &r, &r.sum, &r.sum2)) return false;
    k = sum_consts(b, c, s, &r);
  }
  if (b->more) {
    sum_plain_sums(b->more, s, &k, &r, &r.more, &r.more2);
    k = sum_consts(b, c, s, &r);
  }
  sum_group_fn *const emit = store ? b->kept : sum_emit_for(b, &k, r.sum);
  for (size_t g = 0; emit && g < s->n; g += GROUP) {
    emit(&from, &k, &r, g, group_size(g, s->n), &part);
    post += part.sum;
  }
  if (b->row) b->row(s, &k, &r, post);
  return true;
}

static inline void sum_rows(const sum_body *b, const row_kernel *kernel, row_call *c) {
  if (b->small && b->small(b, c)) return;
  real scratch[GROUP] __attribute__((aligned(64)));
  span s = span_of(c, 0);
  for (size_t row = 0; row < c->rows; row++, span_next(c, &s)) {
    real *const store = !b->keep ? NULL : !c->bypass ? s.dst[0] : c->n <= GROUP ? scratch : NULL;
    s.stream = sum_streams(c, &s), s.ahead = sum_ahead(c, row, 1);
    if (c->n > 16 * GROUP || !sum_plain_row(b, c, &s, store)) run_row(kernel, c, row);
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
  static const row_kernel name##_kernel = KERNEL(name); \
  static void name##_rows(row_call *c) { sum_rows(&name##_body, &name##_kernel, c); }

#endif
