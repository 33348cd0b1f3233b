/* engine/exp_rows.c - the exponential family on rows in memory: rows in the caches, rows from
 * memory, and the row program for all others. All give the same bits. */
#include "exp.h"

/* ---- what is written later ---- */

static void exp_output_write(const deferred_store *deferred, size_t i, size_t n) {
  const exp_output *out = (const exp_output *)(const void *)deferred;
  out->write(&out->args, i, n);
}
void exp_output_of(exp_output *out, const exp_scores *f, const span *s, const consts *k, const exp_row *r,
                   const real *stored, exp_write_fn *write) {
  out->s = *s, out->k = *k, out->r = *r, out->write = write;
  out->args = (exp_write){.f = f,
                          .s = &out->s,
                          .k = &out->k,
                          .r = &out->r,
                          .stored = stored,
                          .may_be_one = true,
                          .stream = out->writing};
  out->args.next = stored ? stored : s->src[0];
  deferred_store_begin(&out->deferred, exp_output_write, s->dst[0], stored, s->n);
}

/* ---- rows ---- */

/* Writes the output, from the terms, from weights of staged loops, or from the scores again. */
static void exp_finish(const exp_body *b, const span *s, const consts *k, const exp_row *r,
                       const real *stored, const real *weights, row_writing writing) {
  if (b->kind == EXP_SCALAR) {
    s->dst[0][0] = r_clean(b->scalar(s, k, r, s->n));
    return;
  }
  const exp_write e = {.f = b->scores,
                       .s = s,
                       .k = k,
                       .r = r,
                       .stored = stored,
                       .weights = weights,
                       .may_be_one = r->one < MAY_BE_ONE,
                       .stream = writing,
                       .next = stored ? stored : s->src[0]};
  for (size_t g = 0; g < s->n; g += GROUP) (stored ? stored_write : b->write)(&e, g, group_size(g, s->n));
}

bool exp_cached_row(const exp_body *b, const span *s, const consts *k, real max, row_writing writing,
                    real *store, ptrdiff_t prefetch, const row_scores *kept) {
  const size_t n = s->n;
  real sink = b->extra ? b->extra(s, k) : -R_INF, top = sink > max ? sink : max;
  if (!in_range(max) || !in_range(top) || sink != sink) return false;
  exp_row r = {.scale_exp = k_of(top) - 1, .top = max};
  exp_sum w = {.f = b->scores,
               .s = s,
               .k = k,
               .skip = SIZE_MAX,
               .scale_exp = r.scale_exp,
               .store = store,
               .prefetch = prefetch,
               .kept = kept};
  if (b->sum_without_max) {
    w.skip = kept ? exp_kept_find(kept, n, max) : b->scores->loops->find(b->scores, s, k, 0, 0, n, max);
    if (b->scaled && w.skip < n) r.top_l = exp_low_part(b->scores, s, k, 0, w.skip);
  }
  double sum = 0;
  exp_sum_fn *sum_of = kept ? exp_kept_sum : store ? b->scores->loops->sum_store : b->scores->loops->sum;
  for (size_t g = 0; g < n; g += GROUP) sum += (double)sum_of(&w, g, group_size(g, n));
  if (sum != sum) {
    fill(s->dst[0], b->kind == EXP_SCALAR ? 1 : n, r_nan());
    return true;
  }
  exp_finalize(b, s, k, &r, sum, sum);
  exp_finish(b, s, k, &r, store, NULL, writing);
  return true;
}

real *exp_place(const row_call *c, size_t r) {
  const bool two = 4 * c->n * sizeof(real) <= ROW_TERMS;
  return c->terms ? (real *)c->terms - (two ? (ptrdiff_t)((c->rows - 1 - r) % 2) * c->terms_step : 0) : NULL;
}

/* What merging needs of a group. The group of the largest score needs all of its row_part. */
typedef struct exp_found {
  real sum, scale_exp, max, low;
  bool nan;
} exp_found;
typedef struct exp_groups {
  exp_found at[DEFERRED_GROUPS];
  row_part top;
  size_t top_at;
} exp_groups;

static void exp_run_groups(const exp_body *b, const span *s, const consts *k, exp_run *run, exp_groups *to) {
  for (size_t g = 0; g * GROUP < s->n; g++) {
    row_part part;
    exp_run_group(b, s, k, g * GROUP, group_size(g * GROUP, s->n), run, &part);
    to->at[g] = (exp_found){(real)part.sum, (real)part.scale_exp, (real)part.max, (real)part.low, part.nan};
    if (run->top == &part) to->top = part, to->top_at = g, run->top = &to->top;
  }
  exp_run_end(b, s, k, run);
}
static void exp_merge_groups(const row_call *c, const exp_run *run, const exp_groups *from, size_t groups,
                             row_state *st) {
  for (size_t g = 0; g < groups; g++) {
    const exp_found *f = from->at + g;
    const row_part part = {.sum = (double)f->sum,
                           .scale_exp = (double)f->scale_exp,
                           .max = (double)f->max,
                           .low = (double)f->low,
                           .index = -1,
                           .nan = f->nan};
    exp_merge(c, st, run->top && g == from->top_at ? &from->top : &part, 1);
  }
}

bool exp_run_row(const exp_body *b, const row_call *c, const span *s, const consts *k, real *store,
                 deferred_store *deferred, row_state *st, const real **kept) {
  exp_groups found;
  const size_t groups = (s->n + GROUP - 1) / GROUP;
  size_t same = 1;
  exp_run run = exp_run_from(b, s, k, 0, s->n);
  run.store = store, run.deferred = deferred;
  exp_run_groups(b, s, k, &run, &found);
  exp_begin(b, c, st);
  exp_merge_groups(c, &run, &found, groups, st);
  const real max = (real)st->exp.max, sink = b->extra ? b->extra(s, k) : -R_INF;
  if (!in_range(max) || !(sink <= R_MAX) || !exp_run_finalize(st, sink > max ? sink : max)) return false;
  while (same < groups && found.at[same].scale_exp == found.at[0].scale_exp) same++;
  const double up = st->exp.scale_exp - (double)found.at[0].scale_exp;
  *kept = same == groups && up <= 60 ? store : NULL;
  if (!*kept) return true;
  st->exp.scale_exp -= up;
  st->exp.sum /= d_scale(1, -up);
  st->exp.other /= d_scale(1, -up);
  return true;
}
bool exp_deferred_row(const exp_body *b, const row_call *c, const span *s, const consts *k, real *store,
                      exp_write_fn *write, exp_output *out) {
  row_state st;
  const real *kept;
  const bool ordinary = exp_run_row(b, c, s, k, store, c->writing ? &out->deferred : NULL, &st, &kept);
  deferred_store_rest(&out->deferred);
  if (!ordinary) return false;
  exp_row r = {.scale_exp = (real)st.exp.scale_exp, .top = (real)st.exp.max, .top_l = (real)st.exp.top_l};
  exp_finalize(b, s, k, &r, st.exp.sum, st.exp.other);
  if (b->kind == EXP_SCALAR) s->dst[0][0] = r_clean(b->scalar(s, k, &r, s->n));
  else exp_output_of(out, b->scores, s, k, &r, kept, kept ? write : b->write);
  return true;
}

static real exp_largest(const exp_body *b, const row_call *c, const span *s, consts *k, row_scores *kept) {
  if (!b->row_max) {
    return kept ? exp_kept_max(b->scores, s, k, c->n, kept) : exp_max(b->scores, s, k, 0, c->n);
  }
  const real max = b->row_max(c, s, k); /* and the consts of the row, which its scores need */
  if (kept) exp_kept_max(b->scores, s, k, c->n, kept);
  return max;
}

/* How the rows of a call go. */
typedef struct exp_way {
  row_plan plan;
  bool weights, scratched, follow, deferred, cached;
} exp_way;
static exp_way exp_way_of(const exp_body *b, const row_call *c) {
  const bool weights = b->kind == EXP_WEIGHTS && !b->gradient;
  const size_t most = weights && !c->writing ? EXP_STORED : EXP_CACHED;
  const row_plan plan = c->plan != PLAN_AUTO ? c->plan
                        : c->n > most        ? PLAN_STREAM
                        : c->writing         ? PLAN_SCRATCH
                                             : PLAN_CACHE;
  const bool scratched = plan == PLAN_SCRATCH && c->n <= GROUP;
  const bool many = c->rows * c->n > FOLLOW,
             follow = c->n <= 2 * GROUP && c->src_step[0] == (ptrdiff_t)c->n && many;
  const bool deferred =
      c->plan == PLAN_AUTO && many && c->n > (weights && c->terms ? DEFERRED_FROM : 2 * GROUP) &&
      c->n <= DEFERRED_GROUPS * GROUP && !b->row_max && (c->writing || b->kind == EXP_SCALAR);
  return (exp_way){plan, weights, scratched, follow, deferred, plan != PLAN_STREAM && !deferred};
}

/* Computes rows from r on, up to one that needs a rule: returns which that is, or how many there
 * are. A function of its own: its stack is free again when the program runs that row. */
NOINLINE size_t exp_ordinary_rows(const exp_body *b, const row_call *c, const exp_way *way, size_t r,
                                  row_scores *kept) {
  span s = span_of(c, r), next = s;
  consts k = b->setup(c, &s), next_k = k;
  exp_output out = exp_output_none(c->writing, sizeof(real));
  real max = way->cached ? exp_largest(b, c, &s, &k, kept) : 0;
  for (; r < c->rows; r++, s = next, k = next_k) {
    real *store = !way->weights                            ? NULL
                  : way->scratched                         ? c->terms
                  : way->plan == PLAN_CACHE && !c->writing ? s.dst[0]
                                                           : NULL;
    ptrdiff_t ahead = way->follow && r + AHEAD < c->rows ? (ptrdiff_t)(AHEAD * c->n * sizeof(real)) : 0;
    const bool more = r + 1 < c->rows;
    if (more) {
      span_next(c, &next);
      if (!b->row_max) next_k = b->setup(c, &next);
    }
    const bool done = way->deferred ? exp_deferred_row(b, c, &s, &k, way->weights ? exp_place(c, r) : NULL,
                                                       stored_write, &out)
                                    : exp_cached_row(b, &s, &k, max, c->writing, store, ahead, kept);
    if (!done) break;
    /* Not deferred: it only reads, while the stores of the row just written are still in flight. */
    if (way->cached && more) max = exp_largest(b, c, &next, &next_k, kept);
  }
  deferred_store_rest(&out.deferred);
  return r;
}

NOINLINE size_t exp_kept_rows(const exp_body *b, const row_call *c, const exp_way *way, size_t r) {
  row_scores kept;
  return exp_ordinary_rows(b, c, way, r, &kept);
}

/* Rows of f16 or bf16, from which one number is made: each is read once, with a running reference.
 * Functions of their own: other rows need the stack. */
NOINLINE bool exp_half_row(const exp_body *b, const row_call *c) {
  const span s = span_of(c, 0);
  const consts k = b->setup(c, &s);
  exp_output out = exp_output_none(WRITE_CACHED, sizeof(real));
  return c->n <= DEFERRED_GROUPS * GROUP && exp_deferred_row(b, c, &s, &k, NULL, NULL, &out);
}
NOINLINE void exp_half_rows(const exp_body *b, const row_kernel *kernel, row_call *c) {
  for (size_t r = 0; r < c->rows; r++) {
    const row_call row = row_half_at(c, r);
    if (!exp_half_row(b, &row)) run_half_row(kernel, c, r);
  }
}

/* A short row whose terms are formed once, for its sum, its moments and its output. Returns false,
 * with nothing written, when the row needs a rule. */
NOINLINE bool exp_terms_row(const exp_body *b, const row_call *c, const span *s, ptrdiff_t prefetch) {
  row_scores kept;
  real *const terms = kept.h;
  const size_t n = s->n;
  consts k = b->setup(c, s);
  const real max = exp_largest(b, c, s, &k, &kept), sink = b->extra ? b->extra(s, &k) : -R_INF,
             top = sink > max ? sink : max;
  if (!in_range(max) || !in_range(top) || sink != sink) return false;
  exp_row r = {.scale_exp = k_of(top) - 1, .top = max};
  exp_sum w = {.f = b->scores,
               .s = s,
               .k = &k,
               .r = &r,
               .skip = SIZE_MAX,
               .scale_exp = r.scale_exp,
               .store = terms,
               .prefetch = prefetch,
               .kept = &kept};
  const size_t first = b->sum_without_max ? exp_kept_find(&kept, n, max) : n;
  if (first < n) r.top_x = (double)s->src[0][first], r.top_l = b->scaled ? kept.l[first] : 0;
  const double sum = (double)exp_kept_sum(&w, 0, n);
  if (sum != sum) return false;
  for (size_t i = n; i % LANES; i++) terms[i] = 0;
  exp_finalize(b, s, &k, &r, sum, b->sum_without_max ? (double)exp_terms_sum(terms, n, first) : sum);
  w.terms = terms;
  if (b->moment) w.center = (real)r.top_x, r.moment = (double)b->moment(&w, 0, n) / sum;
  if (b->spread) w.center = (real)(r.top_x + r.moment), r.spread = (double)b->spread(&w, 0, n) / sum;
  const bool weights = b->kind == EXP_WEIGHTS && !b->gradient;
  for (size_t i = 0; !weights && b->kind != EXP_SCALAR && i < n; i += LANES)
    v_store(terms + i, exp_weight(v_load(terms + i), &r, true));
  exp_finish(b, s, &k, &r, weights ? terms : NULL, weights ? NULL : terms, c->writing);
  if (b->row) b->row(s, &k, &r);
  return true;
}

void exp_terms_rows(const exp_body *b, const row_kernel *kernel, row_call *c) {
  const exp_way way = exp_way_of(b, c);
  const bool keeps = way.plan != PLAN_STREAM && exp_keeps_terms(b->scores, c->n);
  for (size_t r = 0; r < c->rows; r++) {
    const span s = span_of(c, r);
    const bool ahead = way.follow && r + AHEAD < c->rows;
    if (!keeps || !exp_terms_row(b, c, &s, ahead ? (ptrdiff_t)(AHEAD * c->n * sizeof(real)) : 0))
      run_row(kernel, c, r);
  }
  if (keeps && c->writing) v_stream_end();
}

/* Chooses the path of each row. Terms are kept in the output, or, with streaming stores, in the
 * place of its last row, or on the stack, or they are computed twice. Rows from memory are read
 * once with a running reference; longer rows and those that need a rule take the program. */
void exp_rows(const exp_body *b, const row_kernel *kernel, row_call *c) {
  if (b->moment || b->row) {
    exp_terms_rows(b, kernel, c);
    return;
  }
  if (b->scores->half) {
    exp_half_rows(b, kernel, c);
    return;
  }
  if (c->rows == 0 || (b->small && c->plan == PLAN_AUTO && b->small(b, kernel, c))) return;
  const exp_way way = exp_way_of(b, c);
  const bool stores =
                 way.weights && (way.scratched ? c->terms != NULL : way.plan == PLAN_CACHE && !c->writing),
             logs = b->kind == EXP_LOGS && b->scores->low, /* too much stack together */
      keeps = way.cached && !logs && exp_keeps(b->scores, c->n);
  if (keeps && !stores && (b->kind == EXP_WEIGHTS || b->kind == EXP_MAP)) {
    exp_terms_rows(b, kernel, c);
    return;
  }
  for (size_t r = 0; r < c->rows; r++) {
    if (keeps) r = exp_kept_rows(b, c, &way, r);
    else if (way.cached || way.deferred) r = exp_ordinary_rows(b, c, &way, r, NULL);
    if (r < c->rows) run_row(kernel, c, r);
  }
  if (c->writing) v_stream_end();
}
