/* engine/reduce_map.c - the row program of reduce_map.h, and the direct path for rows in memory. */
#include "reduce_map.h"

/* The extremes of a group without -inf. False when there is one. */
SMI bool reduce_map_minmax_whole(const real *x, size_t n, row_part *part) {
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
  FOR_EACH_VECTOR_STRAIGHT(0, n, STEP)
#undef STEP
  *part = (row_part){.index = -1,
                     .max = (double)v_hmax(v_max(max[0], max[1])),
                     .low = (double)v_hmin(v_min(low[0], low[1])),
                     .sum = (double)n,
                     .nan = m_any(m_not(same))};
  return part->low > (double)-R_INF;
}

static __attribute__((noinline)) void reduce_map_minmax_group(const span *s, size_t first, size_t n,
                                                              row_part *part) {
  const real *x = s->src[0];
  if (reduce_map_minmax_whole(x + first, n, part)) return;
  vreal max[VPB], low[VPB], valid[VPB];
  vmask nan = v_lt(v_set1(0), v_set1(0));
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) max[u] = v_set1(-R_INF), low[u] = v_set1(R_INF),
                                             valid[u] = v_set1(0);
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
  FOR_EACH_VECTOR_STRAIGHT(first, n, STEP)
#undef STEP
  for (int u = 1; u < VPB; u++) max[0] = v_max(max[0], max[u]), low[0] = v_min(low[0], low[u]);
  *part = (row_part){.index = -1,
                     .max = (double)v_hmax(max[0]),
                     .low = (double)v_hmin(low[0]),
                     .sum = (double)v_fold(valid),
                     .nan = m_any(nan)};
}

SMI void reduce_map_ties_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                             reduce_map_acc *acc) {
  vmask hit = m_and(v_eq(at(s->src[0], i, cnt), v_set1(r->max)), lanes_below(cnt));
  acc->a = v_add(acc->a, v_select(hit, v_set1(1), v_set1(0)));
}
SMI vreal reduce_map_share_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return v_select(v_eq(at(s->src[0], i, cnt), v_set1(r->max)), v_set1((real)(1 / r->sum)), v_set1(0));
}
void reduce_map_ties(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                     row_part *part) {
  reduce_map_sums_of(s, k, r, reduce_map_ties_add, true, i, n, part);
}
void reduce_map_share(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                      row_part *part) {
  reduce_map_values_of(s, k, r, reduce_map_share_value, true, i, n, part);
}

static void reduce_map_fill(const reduce_map_body *b, const span *s, size_t i, size_t n, real value) {
  for (int p = 0; p < ROW_DST; p++)
    if ((b->full >> p & 1) && s->dst[p]) fill(s->dst[p] + i, n, value);
}

/* ---- the row program ---- */

void reduce_map_begin(const reduce_map_body *b, const row_call *c, row_state *st) {
  st->mode = b->max ? REDUCE_MAP_MINMAX : b->sums ? REDUCE_MAP_SUMS : REDUCE_MAP_WRITE;
  st->writes = st->mode == REDUCE_MAP_WRITE;
  st->reverse = st->serial = st->empty = st->nan = false;
  st->reduce = (reduce_state){.max = -R_INF, .low = R_INF, .index = -1};
}

static reduce_map_row sum_row_of(const row_state *st) {
  return (reduce_map_row){.sum = st->reduce.sum,
                          .sum2 = st->reduce.sum2,
                          .more = st->reduce.more,
                          .more2 = st->reduce.more2,
                          .valid = st->reduce.valid,
                          .max = (real)st->reduce.max,
                          .low = (real)st->reduce.low,
                          .found = st->reduce.found,
                          .index = st->reduce.index};
}

/* The constants with all that is known of the row so far. */
static consts reduce_map_consts(const reduce_map_body *b, const row_call *c, const span *s,
                                const reduce_map_row *r) {
  consts k = b->setup(c, s);
  if (b->finalize) b->finalize(&k, s, r);
  return k;
}

static reduce_map_group_fn *reduce_map_write_for(const reduce_map_body *b, const consts *k, double sum) {
  return b->ordinary && reduce_map_ordinary(k, sum) ? b->ordinary : b->write;
}
static reduce_map_group_fn *reduce_map_group_of(const reduce_map_body *b, int mode, const consts *k,
                                                double sum) {
  return mode == REDUCE_MAP_SUMS    ? b->sums
         : mode == REDUCE_MAP_MORE  ? b->more
         : mode == REDUCE_MAP_WRITE ? reduce_map_write_for(b, k, sum)
         : mode == REDUCE_MAP_TIES  ? reduce_map_ties
                                    : reduce_map_share;
}

/* What a pass is told of the row: the sums that it adds up itself are 0, however many of its groups
 * have been folded. */
static reduce_map_row reduce_map_row_before(const row_state *st) {
  reduce_map_row r = sum_row_of(st);
  if (st->mode == REDUCE_MAP_SUMS) r.sum = r.sum2 = 0, r.index = -1;
  if (st->mode == REDUCE_MAP_MORE) r.more = r.more2 = 0;
  return r;
}

void reduce_map_pass(const reduce_map_body *b, const row_call *c, row_state *st, row_part *parts) {
  span s = span_of(c, 0);
  reduce_map_row r = reduce_map_row_before(st);
  consts k = reduce_map_consts(b, c, &s, &r);
  s.stream = reduce_map_streams(c, &s);
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  for (size_t g = 0; g < groups; g++) {
    size_t n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == REDUCE_MAP_FILL) reduce_map_fill(b, &s, base + g * GROUP, n, (real)st->reduce.fill);
    else if (st->mode == REDUCE_MAP_MINMAX) reduce_map_minmax_group(&s, base + g * GROUP, n, parts + g);
    else reduce_map_group_of(b, st->mode, &k, r.sum)(&s, &k, &r, base + g * GROUP, n, parts + g);
  }
  if (s.stream && st->writes) v_stream_end();
}

void reduce_map_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  for (size_t g = 0; g < count; g++) {
    const row_part *p = parts + g;
    st->nan |= p->nan;
    switch (st->mode) {
      case REDUCE_MAP_MINMAX:
        st->reduce.max = p->max > st->reduce.max ? p->max : st->reduce.max;
        st->reduce.low = p->low < st->reduce.low ? p->low : st->reduce.low;
        st->reduce.valid += p->sum;
        break;
      case REDUCE_MAP_SUMS:
      case REDUCE_MAP_TIES:
        st->reduce.sum += p->sum, st->reduce.sum2 += p->sum2;
        if (st->reduce.index < 0) st->reduce.index = p->index;
        break;
      case REDUCE_MAP_MORE: st->reduce.more += p->sum, st->reduce.more2 += p->sum2; break;
      case REDUCE_MAP_WRITE: st->reduce.post += p->sum; break;
      default: break;
    }
  }
}

bool reduce_map_fill_with(row_state *st, real value) {
  st->mode = REDUCE_MAP_FILL;
  st->reduce.fill = (double)value;
  return st->writes = true;
}

/* After the minmax pass: a row with nothing valid, or with +inf, needs a rule. 1 = go on, 0 = stop,
 * -1 = the mode is chosen. */
static int reduce_map_after_minmax(const reduce_map_body *b, const row_call *c, row_state *st) {
  if (st->reduce.max == (double)-R_INF) {
    st->empty = !b->gradient;
    if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return 0;
    reduce_map_fill_with(st, st->empty && c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
    return -1;
  }
  if (!(st->reduce.max > (double)R_MAX) || b->bounded) return 1;
  if (c->on_inf != SMX_INF_LIMIT) reduce_map_fill_with(st, r_nan());
  else if (b->gradient || !b->full) reduce_map_fill_with(st, b->gradient ? 0 : R_INF);
  else st->mode = REDUCE_MAP_TIES;
  return -1;
}

/* The last step: the outputs of the row that are not FULL. post: the sum that the write loop made,
 * or the value of a fill. */
static bool reduce_map_finish(const reduce_map_body *b, const row_call *c, const row_state *st, double post) {
  span s = span_of(c, 0);
  reduce_map_row r = sum_row_of(st);
  consts k = reduce_map_consts(b, c, &s, &r);
  if (b->row) b->row(&s, &k, &r, post);
  return false;
}

bool reduce_map_next(const reduce_map_body *b, const row_call *c, row_state *st) {
  if (st->writes)
    return reduce_map_finish(b, c, st, st->mode == REDUCE_MAP_FILL ? st->reduce.fill : st->reduce.post);
  int rule = st->nan ? -1 : st->mode == REDUCE_MAP_MINMAX ? reduce_map_after_minmax(b, c, st) : 1;
  if (rule == 0) return false;
  if (st->nan) reduce_map_fill_with(st, r_nan());
  if (st->mode == REDUCE_MAP_FILL)
    return b->full ? true : (st->writes = false, reduce_map_finish(b, c, st, st->reduce.fill));
  if (rule < 0) return true;
  st->mode = st->mode == REDUCE_MAP_TIES                                                 ? REDUCE_MAP_SHARE
             : st->mode == REDUCE_MAP_MINMAX && b->sums                                  ? REDUCE_MAP_SUMS
             : (st->mode == REDUCE_MAP_MINMAX || st->mode == REDUCE_MAP_SUMS) && b->more ? REDUCE_MAP_MORE
                                                                                         : REDUCE_MAP_WRITE;
  if (st->mode == REDUCE_MAP_WRITE && !b->write) return reduce_map_finish(b, c, st, 0);
  st->writes = st->mode == REDUCE_MAP_WRITE || st->mode == REDUCE_MAP_SHARE;
  st->reverse = st->writes && !b->row; /* `post` is summed in index order */
  return true;
}

/* ---- rows in memory: the same without the program around it ---- */

bool reduce_map_minmax_row(const span *s, reduce_map_row *r) {
  row_part part;
  bool nan = false;
  *r = (reduce_map_row){.max = -R_INF, .low = R_INF, .index = -1};
  for (size_t g = 0; g < s->n; g += GROUP) {
    reduce_map_minmax_group(s, g, group_size(g, s->n), &part);
    r->max = part.max > (double)r->max ? (real)part.max : r->max,
    r->low = part.low < (double)r->low ? (real)part.low : r->low;
    r->valid += part.sum, nan |= part.nan;
  }
  return !nan;
}

bool reduce_map_plain_sums(reduce_map_group_fn *sums, const span *s, const consts *k, reduce_map_row *r,
                           double *sum, double *sum2) {
  const reduce_map_row before = *r;
  row_part part;
  bool nan = false;
  for (size_t g = 0; g < s->n; g += GROUP) {
    sums(s, k, &before, g, group_size(g, s->n), &part);
    *sum += part.sum, *sum2 += part.sum2, nan |= part.nan;
    if (r->index < 0) r->index = part.index;
  }
  return !nan;
}

/* False, with nothing written: there may be something that is no number. */
static bool reduce_map_modest_row(const reduce_map_body *b, const row_call *c, const span *s) {
  reduce_map_row r = {.index = -1};
  row_part part;
  double sum = 0, sum2 = 0;
  if (!b->plain_sums || s->n == 0) return false;
  const consts k = b->setup(c, s);
  if (k.v[0] != 1) return false;
  reduce_map_plain_sums(b->plain_sums, s, &k, &r, &sum, &sum2);
  if (!reduce_map_modest(&k, sum) || sum2 != 0) return false;
  r.sum = sum;
  /* From the end: what was read last is still in the caches. Of rows longer than those what is
   * written next is prefetched. */
  const bool fits = s->n <= 32 * GROUP;
  const size_t piece = fits ? PAGE : GROUP;
  span to = *s;
  if (!fits && s->stream == WRITE_STREAMING && fetches_straight()) to.ahead = -(ptrdiff_t)GROUP;
  for (size_t i = (s->n - 1) / piece * piece;; i -= piece) {
    b->plain_write(&to, &k, &r, i, s->n - i < piece ? s->n - i : piece, &part);
    if (i == 0) return true;
  }
}

/* False, with nothing written, when the row needs a rule. store: where values may be kept, or
 * NULL. */
static bool reduce_map_plain_row(const reduce_map_body *b, const row_call *c, const span *s, real *store) {
  reduce_map_row r = {.max = -R_INF, .low = R_INF, .index = -1};
  row_part part;
  double post = 0;
  if (b->max && !(reduce_map_minmax_row(s, &r) && r.max >= -R_MAX && (r.max <= R_MAX || b->bounded)))
    return false;
  consts k = reduce_map_consts(b, c, s, &r);
  span from = *s, to = *s;
  if (store) to.dst[0] = store, from.src[SRC_Y] = store;
  if (b->sums) {
    if (!reduce_map_plain_sums(store ? b->keep : b->sums, &to, &k, &r, &r.sum, &r.sum2)) return false;
    k = reduce_map_consts(b, c, s, &r);
  }
  if (b->more) {
    reduce_map_plain_sums(b->more, s, &k, &r, &r.more, &r.more2);
    k = reduce_map_consts(b, c, s, &r);
  }
  reduce_map_group_fn *const write = store ? b->kept : reduce_map_write_for(b, &k, r.sum);
  for (size_t g = 0; write && g < s->n; g += GROUP) {
    write(&from, &k, &r, g, group_size(g, s->n), &part);
    post += part.sum;
  }
  if (b->row) b->row(s, &k, &r, post);
  return true;
}

void reduce_map_rows(const reduce_map_body *b, const row_kernel *kernel, row_call *c) {
  if (b->small && b->small(b, c)) return;
  span s = span_of(c, 0);
  for (size_t row = 0; row < c->rows; row++, span_next(c, &s)) {
    real *const store = !b->keep ? NULL : !c->writing ? s.dst[0] : c->n <= GROUP ? c->terms : NULL;
    s.stream = reduce_map_streams(c, &s), s.ahead = reduce_map_ahead(c, row, 1, b->heavy);
    if (reduce_map_modest_row(b, c, &s) || (c->n <= 16 * GROUP && reduce_map_plain_row(b, c, &s, store)))
      continue;
    run_row(kernel, c, row);
  }
  if (c->writing) v_stream_end();
}

/* ---- the engine ---- */

static void engine_begin(const void *body, const row_call *c, row_state *st) {
  reduce_map_begin(body, c, st);
}
static void engine_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  reduce_map_pass(body, c, st, parts);
}
static void engine_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  reduce_map_merge(c, st, parts, count);
}
static bool engine_next(const void *body, const row_call *c, row_state *st) {
  return reduce_map_next(body, c, st);
}
static void engine_rows(const row_kernel *k, row_call *c) { reduce_map_rows(k->body, k, c); }
const row_engine reduce_map_engine = {engine_begin, engine_pass, engine_merge, engine_next, engine_rows};
