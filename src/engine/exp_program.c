/* engine/exp_program.c - an operator of the exponential family as a row program: rows of any
 * length, in memory or taken in pieces by the driver.
 *
 * The program sums the row once with a running reference, never later than the row's own. If that
 * pass cannot guarantee the bits of the row's own reference (a term between the two flush
 * limits, a NaN, a score beyond +-2^19), the row is summed again with the reference known. */
#include "exp.h"

real exp_of(const exp_row *r, real h, real l) {
  vreal d;
  return v_first(exp_term((score){v_set1(h), v_set1(l)}, true, r->scale_exp, &d));
}

void exp_finalize(const exp_body *b, const span *s, const consts *k, exp_row *r, double sum, double other) {
  if (b->extra) {
    real x = b->extra(s, k);
    if (x > -R_INF) sum += (double)exp_of(r, x - r->shift, 0);
  }
  exp_finalize_sum(r, sum);
  if (!b->sum_without_max) return;
  double factor = b->scaled ? (double)k->v[0] + (double)k->v[1] : 1;
  r->max = (double)r->shift * factor + ((double)r->top + (double)r->top_l);
  r->sum_without_max = other / (double)exp_of(r, r->top, r->top_l);
  r->log1p = d_log1p(r->sum_without_max);
  r->log = (real)r->log1p;
}

/* Something in the order of the scores: x itself, or -x. It does not overflow where scores
 * would. */
static consts exp_direction(const exp_body *b, const consts *k) {
  consts d = *k;
  if (b->scaled && k->v[0] != 0) d.v[0] = k->v[0] > 0 ? 1 : k->v[0] < 0 ? -1 : k->v[0], d.v[1] = 0;
  return d;
}

/* ---- the row program ---- */

void exp_begin(const exp_body *b, const row_call *c, row_state *st) {
  st->mode = EXP_RUN;
  st->writes = st->reverse = st->serial = st->empty = st->nan = false;
  st->exp = (exp_state){.max = -R_INF, .low = R_INF, .scale_exp = -R_INF, .index = -1};
}

exp_row exp_row_of(const exp_body *b, const span *s, const consts *k, const row_state *st) {
  exp_row r = {.shift = (real)st->exp.shift,
               .scale_exp = (real)st->exp.scale_exp,
               .top = (real)st->exp.max,
               .top_l = (real)st->exp.top_l,
               .top_x = st->exp.top_x};
  exp_finalize(b, s, k, &r, st->exp.sum, st->exp.other);
  r.moment = st->exp.moment / st->exp.sum, r.spread = st->exp.spread / st->exp.sum;
  return r;
}

/* The group's sum without element `skip`: but for that element's lane, the lanes are those of the
 * sum. */
static real exp_without(const exp_body *b, exp_sum *w, size_t i, size_t n) {
  vreal acc[VPB];
  w->lanes[(w->skip - i) % BLOCK] = b->scores->loops->lane(w, i, n);
  for (int u = 0; u < VPB; u++) acc[u] = v_load(w->lanes + u * LANES);
  return v_fold(acc);
}

/* The row's first largest element so far is in this group: sums the group without it and notes
 * it. */
static void exp_note_top(const exp_body *b, exp_sum *w, size_t i, size_t n, real max, row_part *part) {
  size_t first = b->scores->loops->find(b->scores, w->s, w->k, w->shift, i, n, max);
  if (first == n) return;
  w->skip = i + first;
  part->other = (double)(w->lanes ? exp_without(b, w, i, n) : b->scores->loops->sum_exact(w, i, n));
  part->index = (int64_t)(w->s->origin + w->skip);
  part->top_l = b->scaled ? (double)exp_low_part(b->scores, w->s, w->k, w->shift, w->skip) : 0;
  part->top_x = b->scores->half ? 0 : (double)w->s->src[0][w->skip];
}

exp_run exp_run_from(const exp_body *b, const span *s, const consts *k, size_t i, size_t n) {
  const real max = exp_max(b->scores, s, k, i, n < 256 ? n : 256);
  return (exp_run){.scale_exp = max >= -R_MAX && max <= R_MAX ? k_of(max) - 1 : -R_INF, .best = -R_INF};
}

/* Whether there is a NaN among elements whose largest is -inf: a maximum passes over it. */
static bool exp_hides_nan(const exp_body *b, const span *s, const consts *k, size_t i, size_t n) {
  const consts direction = exp_direction(b, k);
  double infinite = 0, valid = 0;
  bool nan = false;
  exp_count(b->scores, s, &direction, i, n, &infinite, &valid, &nan);
  return nan;
}

/* The reference of a group that begins with -inf; false if it has none, and nothing to sum. */
static bool exp_run_begin(const exp_body *b, const span *s, const consts *k, size_t i, size_t n, exp_run *run,
                          row_part *part) {
  if (run->scale_exp > -R_INF) return true;
  const real max = exp_max(b->scores, s, k, i, n);
  *part = (row_part){.scale_exp = (double)-R_INF,
                     .max = (double)max,
                     .low = (double)R_INF,
                     .index = -1,
                     .nan = !(max <= R_MAX) || (!(max >= -R_MAX) && exp_hides_nan(b, s, k, i, n))};
  if (!(max >= -R_MAX && max <= R_MAX)) return false;
  run->scale_exp = k_of(max) - 1;
  part->nan |= !(run->scale_exp > -R_INF);
  return run->scale_exp > -R_INF;
}

/* One group. The reference is raised where the group is far above it, and summed again where it
 * is so far above that terms could overflow. */
void exp_run_group(const exp_body *b, const span *s, const consts *k, size_t i, size_t n, exp_run *run,
                   row_part *part) {
  exp_sum w = {.f = b->scores,
               .s = s,
               .k = k,
               .skip = SIZE_MAX,
               .lanes = run->lanes[!run->own],
               .store = run->store,
               .deferred = run->deferred};
  exp_sum_fn *const watch = run->deferred ? b->scores->loops->sum_deferred : b->scores->loops->sum_watch;
  real sum = 0;
  if (!exp_run_begin(b, s, k, i, n, run, part)) return;
  if (run->deferred && run->store && run->deferred->stored == run->store)
    deferred_store_until(run->deferred, i + n); /* these terms replace the former */
  for (;;) {
    w.scale_exp = run->scale_exp;
    sum = watch(&w, i, n);
    if (!(k_of(w.max) - 1 > w.scale_exp + 60) || w.max > R_MAX) break;
    run->scale_exp = k_of(w.max) - 1;
  }
  if (!(k_of(w.low) - w.scale_exp >= MIN_EXP)) sum = b->scores->loops->sum_low(&w, i, n);
  *part = (row_part){.sum = (double)sum,
                     .scale_exp = (double)w.scale_exp,
                     .max = (double)w.max,
                     .low = (double)w.low,
                     .index = -1,
                     .nan = !(sum <= R_MAX)};
  if (w.max > run->best && w.max <= R_MAX) run->top = part, run->i = i, run->n = n, run->own = !run->own;
  if (w.max > run->best) run->best = w.max;
  if (k_of(w.max) - 1 > w.scale_exp + 30 && w.max <= R_MAX) run->scale_exp = k_of(w.max) - 1;
}

/* After the last of them. Only of the group that holds the row's largest score the sum without it
 * is needed. */
void exp_run_end(const exp_body *b, const span *s, const consts *k, exp_run *run) {
  if (!b->sum_without_max || !run->top) return;
  exp_sum w = {.f = b->scores,
               .s = s,
               .k = k,
               .skip = SIZE_MAX,
               .scale_exp = (real)run->top->scale_exp,
               .lanes = run->lanes[run->own]};
  exp_note_top(b, &w, run->i, run->n, (real)run->top->max, run->top);
}

/* One group with the row's own reference. */
static void exp_exact_group(const exp_body *b, const span *s, const consts *k, const row_state *st, size_t i,
                            size_t n, bool found, row_part *part) {
  exp_sum w = {.f = b->scores,
               .s = s,
               .k = k,
               .skip = SIZE_MAX,
               .scale_exp = (real)st->exp.scale_exp,
               .shift = (real)st->exp.shift};
  *part = (row_part){.sum = (double)b->scores->loops->sum_exact(&w, i, n), .index = -1};
  part->nan = !(part->sum <= (double)R_MAX);
  if (b->sum_without_max && !found) exp_note_top(b, &w, i, n, (real)st->exp.max, part);
}

static void exp_moment_group(const exp_body *b, const span *s, const consts *k, const row_state *st, size_t i,
                             size_t n, row_part *part) {
  exp_row r = exp_row_of(b, s, k, st);
  exp_sum w = {.f = b->scores,
               .s = s,
               .k = k,
               .r = &r,
               .scale_exp = (real)st->exp.scale_exp,
               .shift = (real)st->exp.shift,
               .center = (real)st->exp.top_x};
  exp_sum_fn *sum = b->moment;
  if (st->mode == EXP_SPREAD_PASS)
    sum = b->spread, w.center = (real)(st->exp.top_x + st->exp.moment / st->exp.sum);
  *part = (row_part){.sum = (double)sum(&w, i, n), .index = -1};
}

/* One value everywhere, or the +inf share the mass. */
static void exp_fill_group(const exp_body *b, const span *s, const consts *k, const row_state *st, size_t i,
                           size_t n) {
  bool logs = b->kind == EXP_LOGS;
  double mass = b->mass ? (double)s->src[SRC_DY][0] : 1;
  if (st->mode == EXP_FILL) fill(s->dst[0] + i, n, (real)st->exp.fill);
  else
    exp_inf_policy(b->scores, s, k, i, n,
                   logs ? -(real)d_log1p(st->exp.infinite - 1) : (real)(mass / st->exp.infinite),
                   logs ? -R_INF : 0);
  if (st->mode != EXP_FILL && b->shared) b->shared(s, k, i, n);
}

/* What the terms of these groups are relative to, if it is one number. */
NOINLINE real exp_kept_reference(const row_state *st, const row_part *parts, size_t groups) {
  for (size_t g = 0; g < groups; g++)
    if (st->mode != EXP_RUN || parts[g].scale_exp != parts[0].scale_exp) return r_nan();
  return (real)parts[0].scale_exp;
}

/* Whether weights are written from kept terms. A function of its own, as the one before: callers
 * need the stack. */
NOINLINE bool exp_take_kept(const row_call *c, size_t base, exp_row *r, exp_write *write) {
  const real *const kept = exp_kept(c, r);
  if (kept) write->stored = write->next = kept - base, write->may_be_one = true;
  return kept != NULL;
}

void exp_pass(const exp_body *b, const row_call *c, row_state *st, row_part *parts) {
  const bool weights = b->kind == EXP_WEIGHTS && !b->gradient;
  real *const terms = weights || b->kind == EXP_SUMS ? c->terms : NULL;
  span s = span_of(c, 0);
  consts k = b->setup(c, &s);
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  exp_row r = st->mode == EXP_WRITE_PASS ? exp_row_of(b, &s, &k, st) : (exp_row){0};
  consts direction = exp_direction(b, &k);
  exp_write write = {
      .f = b->scores, .s = &s, .k = &k, .r = &r, .stream = c->writing, .next = s.src[0] + GROUP};
  const bool kept = weights && st->mode == EXP_WRITE_PASS && exp_take_kept(c, base, &r, &write);
  bool found = false;
  exp_run run;
  if (st->mode == EXP_RUN) run = exp_run_from(b, &s, &k, base, c->count);
  run.store = terms ? terms - base : NULL;
  for (size_t g = 0; g < groups; g++) {
    size_t i = base + g * GROUP, n = group_size(g * GROUP, c->count);
    row_part *part = parts + g;
    *part = (row_part){.index = -1};
    switch (st->mode) {
      case EXP_RUN: exp_run_group(b, &s, &k, i, n, &run, part); break;
      case EXP_EXACT:
        exp_exact_group(b, &s, &k, st, i, n, found, part);
        found |= part->index >= 0;
        break;
      case EXP_MOMENT_PASS:
      case EXP_SPREAD_PASS: exp_moment_group(b, &s, &k, st, i, n, part); break;
      case EXP_CLASSIFY:
        exp_count(b->scores, &s, &direction, i, n, &part->sum, &part->sum2, &part->nan);
        break;
      case EXP_TOP: part->max = (double)exp_max(b->scores, &s, &direction, i, n); break;
      case EXP_WRITE_PASS: (kept ? stored_write : b->write)(&write, i, n); break;
      default: exp_fill_group(b, &s, &direction, st, i, n);
    }
  }
  if (st->mode == EXP_RUN) exp_run_end(b, &s, &k, &run);
  if (terms && st->mode != EXP_WRITE_PASS) terms[-1] = exp_kept_reference(st, parts, groups);
  if (write.stream && st->mode == EXP_WRITE_PASS) v_stream_end();
}

/* Adds a running part: both sides are scaled to the later reference, which is exact. */
static void exp_merge_run(row_state *st, const row_part *p) {
  /* nothing but -inf, or scores so low that k overflows: those are summed exactly later */
  if (!(p->scale_exp > (double)-R_INF)) {
    if (p->max > st->exp.max) st->exp.max = p->max;
    return;
  }
  double scale_exp = p->scale_exp > st->exp.scale_exp ? p->scale_exp : st->exp.scale_exp,
         old = d_scale(st->exp.sum, st->exp.scale_exp - scale_exp),
         new = d_scale(p->sum, p->scale_exp - scale_exp);
  bool record = p->max > st->exp.max;
  st->exp.other = record ? old + d_scale(p->other, p->scale_exp - scale_exp)
                         : d_scale(st->exp.other, st->exp.scale_exp - scale_exp) + new;
  st->exp.sum = old + new;
  st->exp.scale_exp = scale_exp;
  if (!record) return;
  st->exp.max = p->max;
  st->exp.index = p->index, st->exp.top_l = p->top_l, st->exp.top_x = p->top_x;
}

static void exp_merge_exact(row_state *st, const row_part *p) {
  bool first = p->index >= 0 && st->exp.index < 0;
  st->exp.sum += p->sum;
  st->exp.other += first ? p->other : p->sum;
  if (first) st->exp.index = p->index, st->exp.top_l = p->top_l, st->exp.top_x = p->top_x;
}

void exp_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  for (size_t g = 0; g < count; g++) {
    const row_part *p = parts + g;
    st->nan |= p->nan;
    switch (st->mode) {
      case EXP_RUN:
        if (p->low < st->exp.low) st->exp.low = p->low;
        exp_merge_run(st, p);
        break;
      case EXP_EXACT: exp_merge_exact(st, p); break;
      case EXP_MOMENT_PASS: st->exp.moment += p->sum; break;
      case EXP_SPREAD_PASS: st->exp.spread += p->sum; break;
      case EXP_CLASSIFY: st->exp.infinite += p->sum, st->exp.valid += p->sum2; break;
      case EXP_TOP: st->exp.max = p->max > st->exp.max ? p->max : st->exp.max; break;
      default: break;
    }
  }
}

/* Chooses a pass that writes one value everywhere, or writes the row's value at once. */
static bool exp_fill_with(const exp_body *b, const span *s, row_state *st, real value, real scalar) {
  if (b->kind == EXP_SCALAR) {
    s->dst[0][0] = scalar;
    return false;
  }
  st->mode = EXP_FILL;
  st->exp.fill = (double)value;
  return st->writes = b->kind != EXP_SUMS;
}

static bool exp_empty(const exp_body *b, const row_call *c, const span *s, const consts *k, row_state *st) {
  bool sunk = b->sinks && b->extra(s, k) > -R_INF; /* a sink takes all the weight: not an empty row */
  st->empty = !sunk && !b->gradient;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  bool nan = st->empty && c->on_empty == SMX_EMPTY_NAN;
  return exp_fill_with(b, s, st, nan ? r_nan() : b->kind == EXP_LOGS ? -R_INF : 0, b->empty);
}

/* Another pass over the row, with its sums at 0. */
static bool exp_go(row_state *st, int mode) {
  st->mode = mode;
  st->exp.sum = st->exp.other = st->exp.moment = st->exp.infinite = st->exp.valid = 0;
  st->nan = false;
  st->exp.index = -1;
  return true;
}

static bool exp_after_classify(const exp_body *b, const row_call *c, const span *s, const consts *k,
                               row_state *st) {
  bool inf = st->exp.infinite > 0, valid = st->exp.valid > 0;
  if (st->nan || (inf && c->on_inf != SMX_INF_LIMIT)) return exp_fill_with(b, s, st, r_nan(), r_nan());
  if (!valid) return exp_empty(b, c, s, k, st);
  if (!inf) { /* all finite, but the scores are not */
    st->exp.max = (double)-R_INF;
    return exp_go(st, EXP_TOP);
  }
  if (b->kind == EXP_SCALAR) return exp_fill_with(b, s, st, 0, b->inf);
  if (b->kind == EXP_SUMS) {
    st->exp.shift = (double)R_INF, st->exp.max = 0, st->exp.scale_exp = -1;
    return exp_go(st, EXP_EXACT);
  }
  if (b->gradient && !b->mass) return exp_fill_with(b, s, st, 0, 0);
  if (b->share) st->exp.infinite = 1 / b->share(c, 1 / st->exp.infinite);
  st->mode = EXP_INF_POLICY;
  return st->writes = true;
}

/* The x of the largest score is known: it is subtracted from now on, and the largest score is 0. */
static bool exp_after_top(const exp_body *b, const consts *k, row_state *st) {
  st->exp.shift = b->scaled && k->v[0] < 0 ? -st->exp.max : st->exp.max;
  st->exp.max = 0;
  st->exp.scale_exp = -1;
  return exp_go(st, EXP_EXACT);
}

/* The sums are known: chooses the next pass. */
static bool exp_after_sums(const exp_body *b, const row_call *c, const span *s, const consts *k,
                           row_state *st) {
  if (b->moment && st->mode < EXP_MOMENT_PASS) {
    st->mode = EXP_MOMENT_PASS;
  } else if (b->spread && st->mode < EXP_SPREAD_PASS) {
    st->mode = EXP_SPREAD_PASS;
  } else if (b->kind == EXP_SUMS) {
    return false;
  } else if (b->kind == EXP_SCALAR) {
    exp_row r = exp_row_of(b, s, k, st);
    s->dst[0][0] = r_clean(b->scalar(s, k, &r, c->n));
    return false;
  } else {
    st->mode = EXP_WRITE_PASS;
    st->writes = st->reverse = true; /* the last groups read are the ones still in the caches */
  }
  return true;
}

bool exp_run_finalize(row_state *st, real top) {
  const real scale_exp = k_of(in_range(top) ? top : 0) - 1;
  const bool same = !st->nan && in_range(top) && k_of((real)st->exp.low) - scale_exp >= MIN_EXP;
  st->exp.sum = d_scale(st->exp.sum, st->exp.scale_exp - (double)scale_exp);
  st->exp.other = d_scale(st->exp.other, st->exp.scale_exp - (double)scale_exp);
  st->exp.scale_exp = (double)scale_exp;
  return same;
}

static bool exp_after_run(const exp_body *b, const row_call *c, const span *s, const consts *k,
                          row_state *st) {
  real max = (real)st->exp.max, sink = b->extra ? b->extra(s, k) : -R_INF;
  if (!(sink <= R_MAX)) return exp_fill_with(b, s, st, r_nan(), r_nan());
  if (!(max >= -R_MAX && max <= R_MAX)) return exp_go(st, EXP_CLASSIFY);
  if (b->scaled && !in_range(max)) {
    st->exp.max = (double)-R_INF;
    return exp_go(st, EXP_TOP);
  }
  const real top = sink > max ? sink : max;
  if (exp_run_finalize(st, top)) return exp_after_sums(b, c, s, k, st);
  if (!in_range(top)) st->exp.shift = (double)top, st->exp.max = (double)(max - top);
  return exp_go(st, EXP_EXACT);
}

bool exp_next(const exp_body *b, const row_call *c, row_state *st) {
  span s = span_of(c, 0);
  consts k = b->setup(c, &s);
  if (st->writes) {
    exp_row r = st->mode == EXP_WRITE_PASS ? exp_row_of(b, &s, &k, st)
                                           : (exp_row){.one = st->mode == EXP_INF_POLICY,
                                                       .spread = st->mode == EXP_FILL ? st->exp.fill : 0};
    if (b->row) b->row(&s, &k, &r);
    return false;
  }
  switch (st->mode) {
    case EXP_RUN: return exp_after_run(b, c, &s, &k, st);
    case EXP_CLASSIFY: return exp_after_classify(b, c, &s, &k, st);
    case EXP_TOP: return exp_after_top(b, &k, st);
    case EXP_EXACT:
      if (st->nan) return exp_fill_with(b, &s, st, r_nan(), r_nan());
      return exp_after_sums(b, c, &s, &k, st);
    default: return exp_after_sums(b, c, &s, &k, st);
  }
}

const exp_body *exp_body_for(const exp_body *b, const row_call *c, exp_staging *room) {
  if (c->plan != PLAN_STAGED) return b;
  room->body = *b, room->scores = *b->scores;
  room->scores.loops = b->scores->low ? &exp_staged_low : &exp_staged;
  room->body.scores = &room->scores;
  if (b->kind == EXP_WEIGHTS && !b->gradient) room->body.write = exp_weights;
  return &room->body;
}

/* ---- the engine ---- */

static void engine_begin(const void *body, const row_call *c, row_state *st) { exp_begin(body, c, st); }
static void engine_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  exp_staging room;
  exp_pass(exp_body_for(body, c, &room), c, st, parts);
}
static void engine_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  exp_merge(c, st, parts, count);
}
static bool engine_next(const void *body, const row_call *c, row_state *st) { return exp_next(body, c, st); }
static void engine_rows(const row_kernel *k, row_call *c) {
  exp_staging room;
  exp_rows(exp_body_for(k->body, c, &room), k, c);
}
const row_engine exp_engine = {engine_begin, engine_pass, engine_merge, engine_next, engine_rows};
