/* loss/stages.c - the row program of a loss (rows.h describes its stages), and the direct path for
 * rows in memory. */
#include "stages.h"

/* ---- the row program ---- */

static exp_row loss_exp_row(const row_side *k) {
  return (exp_row){.shift = (real)k->shift,
                   .scale_exp = (real)k->scale_exp,
                   .tiny = (real)k->tiny,
                   .inv = (real)k->inv,
                   .one = (real)k->one,
                   .top = (real)k->top,
                   .top_l = (real)k->top_l,
                   .log = (real)k->log1p,
                   .log1p = k->log1p,
                   .max = k->max,
                   .sum_without_max = k->sum_without_max};
}

/* The call as a side gets it: its own row is input 0, and early sums are where scores read them. */
static row_call loss_side_call(const loss_body *b, const row_call *c, row_state *st, int side) {
  row_call own = *c;
  if (side == TEACHER) own.src[0] = c->src[b->teacher];
  own.src[SRC_SUMS] = st->kept.total;
  return own;
}

/* The score of the target, formed as any other, from the inputs at that element. */
static void loss_target_score(const loss_body *b, const double *target_inputs, loss_row *r, int side) {
  real at_target[SMX_MAX_PORTS];
  span s = r->on[side];
  for (int p = 0; p < SMX_MAX_PORTS; p++)
    if (b->along >> p & 1) at_target[p] = (real)target_inputs[p], s.src[p] = at_target + p;
  if (side == TEACHER) s.src[0] = at_target + b->teacher;
  exp_score_one(b->target_scores ? b->target_scores : b->side[side]->scores, &s, &r->k[side],
                r->side[side].shift, 0, &r->h[side], &r->l[side]);
}

void loss_find_target(const loss_body *b, const row_call *c, loss_row *r) {
  const void *y = b->target ? (const void *)r->on[STUDENT].src[b->target] : NULL;
  r->target = y ? *(const int64_t *)y : -1;
  r->ignored = y && r->target == (int64_t)c->params[0];
  if (r->ignored) r->target = -1;
}

void loss_ways_out(const loss_body *b, const row_call *c, loss_row *r) {
  const bool backward = r->backward;
  r->dx[STUDENT] = r->on[STUDENT].dst[backward ? 0 : DX];
  r->dx[TEACHER] = b->teacher && backward ? r->on[STUDENT].dst[b->teacher] : NULL;
  r->inputs = c->inputs, r->outputs = c->outputs;
  r->wanted = (backward ? 1u | (b->teacher ? 1u << b->teacher : 0) : 1u << DX) & c->outputs;
  r->g = r->ignored ? 0 : backward ? loss_upstream(r, LOSS) : c->share;
  r->g_other = backward ? r->g : c->share_other;
}

static void loss_row_of(const loss_body *b, const row_call *c, row_state *st, bool backward, loss_row *r) {
  r->q = c->params, r->n = c->n, r->backward = backward, r->stream = c->writing;
  for (int side = 0; side < SIDES; side++) {
    row_call own = loss_side_call(b, c, st, side);
    r->on[side] = span_of(&own, 0);
    r->dx[side] = NULL;
    if (side == STUDENT) loss_find_target(b, c, r);
    r->scores[side] = b->side[side] ? b->side[side]->scores : NULL;
    if (!b->side[side]) continue;
    r->k[side] = b->side[side]->setup(&own, &r->on[side]);
    r->side[side] = loss_exp_row(&st->kept.side[side]);
    r->top[side] = st->kept.side[side].index;
    if (r->target >= 0 && st->stage > STAGE_STUDENT + side)
      loss_target_score(b, st->kept.target_inputs, r, side);
  }
  loss_ways_out(b, c, r);
  r->total = st->kept.total, r->target_inputs = st->kept.target_inputs, r->stored = NULL,
  r->next = r->on[STUDENT].src[0] + GROUP;
  for (int i = 0; i < ROW_COEFS; i++) r->coef[i] = (real)st->kept.coef[i];
  r->at_target = (real)st->kept.at_target;
  if (st->stage == STAGE_GRADIENT) loss_ready(b, r);
}

static bool loss_side_stage(int stage) { return stage == STAGE_STUDENT || stage == STAGE_TEACHER; }
static bool loss_before_stage(const loss_body *b, int stage) { return b->before && stage == STAGE_EARLY; }
static bool loss_wants(const loss_body *b, const loss_row *r, int stage) {
  if (loss_before_stage(b, stage)) return !r->ignored;
  if (loss_side_stage(stage) && !b->side[stage - STAGE_STUDENT]) return false;
  if (r->ignored)
    return b->wants && b->wants(r, STAGE_STUDENT) &&
           (loss_side_stage(stage) || (b->sums[stage] && b->wants(r, stage)));
  return loss_side_stage(stage) || (b->sums[stage] && (!b->wants || b->wants(r, stage)));
}

/* Ends with one value over the gradients, or at once when no gradient is wanted. */
static bool loss_fill(const loss_row *r, row_state *st, double value) {
  st->kept.fill = value;
  st->stage = STAGE_FILL;
  return st->writes = r->wanted;
}

/* A row that is NaN, or empty. A target that the sides leave out may still make it NaN. */
static bool loss_special(const loss_body *b, const row_call *c, row_state *st, const loss_row *r, bool nan) {
  if (r->target >= 0)
    nan |=
        !(st->kept.target_inputs[0] < (double)R_INF) || !(st->kept.target_inputs[b->teacher] < (double)R_INF);
  const double none = nan || (!r->backward && c->on_empty == SMX_EMPTY_NAN) ? (double)r_nan() : 0;
  st->empty = !nan && !r->ignored && !r->backward;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  loss_put(r, LOSS, r->ignored ? 0 : none);
  if (b->special) b->special(r, nan, none);
  return loss_fill(r, st, r->ignored && !r->backward ? 0 : none);
}

static bool loss_not_a_number(const loss_body *b, const row_call *c, row_state *st, bool backward) {
  loss_row r;
  loss_row_of(b, c, st, backward, &r);
  return loss_special(b, c, st, &r, true);
}

/* The first stage from `stage` on that this call needs. */
static bool loss_go(const loss_body *b, const row_call *c, row_state *st, bool backward, int stage) {
  loss_row r;
  st->stage = stage;
  loss_row_of(b, c, st, backward, &r);
  while (stage < STAGE_GRADIENT && !loss_wants(b, &r, stage)) stage++;
  st->stage = stage;
  st->writes = st->reverse = st->serial = st->empty = st->nan = false;
  if (loss_side_stage(stage)) exp_begin(b->side[stage - STAGE_STUDENT], c, st);
  if (loss_before_stage(b, stage)) b->before->begin(c, st);
  if (stage < STAGE_GRADIENT) return true;
  if (r.ignored && !loss_wants(b, &r, STAGE_STUDENT)) {
    loss_put(&r, LOSS, 0);
    if (b->special) b->special(&r, false, 0);
    return loss_fill(&r, st, 0);
  }
  b->finalize(&r);
  for (int i = 0; i < ROW_COEFS; i++) st->kept.coef[i] = (double)r.coef[i];
  st->kept.at_target = (double)r.at_target;
  st->reverse = true;
  return st->writes = r.wanted;
}

static void loss_begin(const loss_body *b, const row_call *c, row_state *st, bool backward) {
  memset(&st->kept, 0, sizeof st->kept);
  if (!loss_go(b, c, st, backward, STAGE_EARLY)) st->stage = STAGE_FILL; /* a pass that writes nothing */
}

void loss_target_inputs(const loss_body *b, const loss_row *r, double *target_inputs) {
  const span *s = &r->on[STUDENT];
  const size_t i = (size_t)(r->target - (int64_t)s->origin);
  const uint32_t along = b->logit_at ? b->along & ~1u : b->along;
  for (int p = 0; p < SMX_MAX_PORTS; p++)
    if (along >> p & 1 && s->src[p]) target_inputs[p] = (double)s->src[p][i];
  if (b->logit_at) target_inputs[0] = (double)b->logit_at(s, i);
}

/* The sums of a side; sums of other stages, and gradients; the inputs at the target. Each is a
 * function of its own: the stack of one is free again for the next. */
NOINLINE void loss_side_pass(const loss_body *b, const row_call *c, row_state *st, row_part *parts) {
  const int side = st->stage - STAGE_STUDENT;
  row_call own = loss_side_call(b, c, st, side);
  if (side == TEACHER) own.terms = NULL;
  exp_pass(b->side[side], &own, st, parts);
}
/* Terms that the student's pass kept are read where they lie. */
NOINLINE void loss_take_kept(const loss_body *b, const row_call *c, size_t base, loss_row *r) {
  const real *const kept = exp_kept(c, &r->side[STUDENT]);
  if (kept) r->stored = r->next = kept - base, loss_ready(b, r);
}
NOINLINE void loss_group_pass(const loss_body *b, const row_call *c, row_state *st, row_part *parts,
                              bool backward) {
  loss_row r;
  loss_row_of(b, c, st, backward, &r);
  const int stage = st->stage;
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  if (b->side[STUDENT] && stage > STAGE_STUDENT) loss_take_kept(b, c, base, &r);
  for (size_t g = 0; g < groups; g++) {
    size_t i = base + g * GROUP, n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (stage < STAGE_GRADIENT) b->sums[stage](&r, i, n, parts[g].sums);
    for (int side = 0; side < SIDES && stage >= STAGE_GRADIENT; side++) {
      if (!r.dx[side]) continue;
      if (stage == STAGE_FILL) fill(r.dx[side] + i, n, (real)st->kept.fill);
      else b->write[side](&r, i, n);
    }
  }
  if (r.stream && stage == STAGE_GRADIENT) v_stream_end();
}
NOINLINE void loss_target_pass(const loss_body *b, const row_call *c, row_part *parts) {
  loss_row r;
  r.on[STUDENT] = span_of(c, 0);
  loss_find_target(b, c, &r);
  const uint64_t ahead = (uint64_t)(r.target - (int64_t)c->start);
  if (r.target < 0 || ahead >= c->count) return;
  parts[ahead / GROUP].hit = true;
  loss_target_inputs(b, &r, parts[ahead / GROUP].target_inputs);
}
static void loss_pass(const loss_body *b, const row_call *c, row_state *st, row_part *parts, bool backward) {
  if (loss_side_stage(st->stage)) loss_side_pass(b, c, st, parts);
  else if (loss_before_stage(b, st->stage)) b->before->pass(c, st, parts);
  else loss_group_pass(b, c, st, parts, backward);
  loss_target_pass(b, c, parts);
}

static void loss_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  for (size_t g = 0; g < count; g++) {
    if (parts[g].hit) memcpy(st->kept.target_inputs, parts[g].target_inputs, sizeof st->kept.target_inputs);
    for (int a = 0; a < ROW_SUMS && st->stage < STAGE_GRADIENT && !loss_side_stage(st->stage); a++)
      st->kept.total[st->stage][a] += parts[g].sums[a];
  }
  if (loss_side_stage(st->stage)) exp_merge(c, st, parts, count);
}

/* The scalars of a side whose sums are known. */
static void loss_finalize_side(const exp_body *e, const span *s, const consts *k, exp_row *r, double other) {
  double top = (double)exp_of(r, r->top, r->top_l);
  exp_finalize(e, s, k, r, other + top, other);
}
static row_side loss_keep(const exp_row *r, int64_t index) {
  return (row_side){(double)r->shift,
                    (double)r->scale_exp,
                    (double)r->tiny,
                    (double)r->inv,
                    (double)r->one,
                    (double)r->top,
                    (double)r->top_l,
                    r->log1p,
                    r->max,
                    r->sum_without_max,
                    index};
}

static bool loss_next(const loss_body *b, const row_call *c, row_state *st, bool backward) {
  const int stage = st->stage;
  if (stage >= STAGE_GRADIENT) return false;
  if (loss_side_stage(stage)) {
    const exp_body *e = b->side[stage - STAGE_STUDENT];
    row_call own = loss_side_call(b, c, st, stage - STAGE_STUDENT);
    if (exp_next(e, &own, st)) return true;
    if (st->empty || st->mode == EXP_FILL) {
      loss_row r;
      loss_row_of(b, c, st, backward, &r);
      return loss_special(b, c, st, &r, !st->empty);
    }
    span s = span_of(&own, 0);
    consts k = e->setup(&own, &s);
    exp_row r = {.shift = (real)st->exp.shift,
                 .scale_exp = (real)st->exp.scale_exp,
                 .top = (real)st->exp.max,
                 .top_l = (real)st->exp.top_l};
    loss_finalize_side(e, &s, &k, &r, st->exp.other);
    st->kept.side[stage - STAGE_STUDENT] = loss_keep(&r, st->exp.index);
  } else {
    if (loss_before_stage(b, stage) && b->before->next(c, st)) return true;
    double sum = 0;
    for (int a = 0; a < ROW_SUMS; a++)
      sum += st->kept.total[stage][a] == st->kept.total[stage][a] ? 0 : (double)r_nan();
    if (sum != sum) return loss_not_a_number(b, c, st, backward);
  }
  return loss_go(b, c, st, backward, stage + 1);
}

/* ---- staged gradients: the weights of eight blocks wait in L1, an operator's loop makes a
 * gradient of them ---- */

NOINLINE void loss_weights(const loss_row *r, int side, size_t i, size_t n, real *p, real *low) {
  const exp_row e = r->side[side];
  const exp_scores *const f = r->scores[side];
  const real *const stored = side == STUDENT ? r->stored : NULL;
  if (stored) {
    for (size_t j = 0; j < n; j += LANES)
      v_store(p + j, exp_weight(at(stored, i + j, lanes_left(n - j)), &e, true));
    return;
  }
  f->page(&r->on[side], &r->k[side], &e.shift, i, BLOCK, n, p, low);
  if (!f->low) low = NULL;
  for (size_t j = 0; j < n; j += LANES)
    v_store(p + j, exp_weight(stage_term(p + j, low ? low + j : NULL, e.scale_exp), &e, true));
}

/* The weights of a loss without scores. */
static const real loss_no_weights[STAGE_ROOM] __attribute__((aligned(64)));

/* Streamed outputs are written in whole cache lines: the outputs of a stage behind its last whole
 * line, less than a vector, wait in front of the next stage. */
void loss_write_staged(const loss_row *r, int side, loss_write_staged_fn *write, size_t first, size_t n) {
  real room[STAGE_ROOM] __attribute__((aligned(64))), low[STAGE] __attribute__((aligned(64)));
  real *const y = r->dx[side], *const fresh = room + LANES;
  const bool weighed = r->scores[side];
  const size_t stop = first + n, head = r->stream ? before_line(y + first) : 0;
  size_t done = first, kept = 0;
  for (size_t at = first - first % LANES; at < stop; at += STAGE) {
    const size_t m = stop - at < STAGE ? stop - at : STAGE, end = at + m, from = at - kept;
    const real *const p = weighed ? fresh - kept : loss_no_weights;
    if (weighed) loss_weights(r, side, at, m, fresh, low);
    if (done == first && head) {
      const size_t some = head < n ? head : n;
      write(r, side, p + (done - from), WRITE_CACHED, done, some);
      done += some;
    }
    const size_t to = r->stream && end < stop ? end - behind_line(y + end) : end;
    if (to > done) write(r, side, p + (done - from), r->stream, done, to - done), done = to;
    kept = end - done;
    if (weighed) memmove(fresh - kept, p + (done - from), kept * sizeof *p);
  }
}

/* ---- rows in memory ---- */

void loss_row_at(const loss_body *b, const row_call *c, size_t row, loss_row *r) {
  r->on[STUDENT] = span_of(c, row);
  r->on[STUDENT].src[SRC_SUMS] = (const real *)(const void *)r->total;
  if (b->teacher) {
    r->on[TEACHER] = r->on[STUDENT];
    r->on[TEACHER].src[0] = r->on[STUDENT].src[b->teacher];
  }
  for (int side = 0; side < SIDES; side++) r->scores[side] = b->side[side] ? b->side[side]->scores : NULL;
  r->stored = NULL;
  loss_find_target(b, c, r);
  loss_ways_out(b, c, r);
}

/* Where the student's terms may be kept: in the gradient's own row; in the place of its last row
 * when streaming stores write the gradient; or nowhere. */
static real *loss_store(const loss_body *b, const loss_row *r, real *scratch) {
  real *dx = r->dx[STUDENT];
  if (!dx || (!r->stream && r->n > EXP_CACHED)) return NULL;
  if (r->stream) return scratch;
  bool shared = false;
  for (int p = 1; p < SMX_MAX_PORTS; p++) shared |= b->along >> p & 1 && r->on[STUDENT].src[p] == dx;
  return !shared && (r->on[STUDENT].src[0] != dx || (b->terms_only && b->terms_only(r))) ? dx : NULL;
}

/* The sums of a side. SIDE_SPECIAL: the row needs a rule, and nothing has been written. */
typedef enum side_found { SIDE_DONE, SIDE_NAN, SIDE_SPECIAL } side_found;
NOINLINE side_found loss_cached_side(const loss_body *b, const row_call *c, loss_row *r, int side,
                                     real *store, ptrdiff_t ahead, row_scores *kept) {
  const exp_body *l = b->side[side];
  const exp_scores *f = l->scores;
  const span *s = &r->on[side];
  const consts *k = &r->k[side];
  r->k[side] = l->setup(c, s);
  const real max = kept ? exp_kept_max(f, s, k, r->n, kept) : exp_max(f, s, k, 0, r->n);
  if (!in_range(max)) return SIDE_SPECIAL;
  exp_row *e = &r->side[side];
  *e = (exp_row){.scale_exp = k_of(max) - 1, .top = max};
  exp_sum w = {.f = f,
               .s = s,
               .k = k,
               .scale_exp = e->scale_exp,
               .store = store,
               .prefetch = ahead,
               .kept = kept,
               .skip = kept ? exp_kept_find(kept, r->n, max) : f->loops->find(f, s, k, 0, 0, r->n, max)};
  exp_sum_fn *const sum_of = kept ? exp_kept_sum : store ? f->loops->sum_keep : f->loops->sum;
  e->top_l = kept && f->low ? kept->l[w.skip] : exp_low_part(f, s, k, 0, w.skip);
  double sum = 0;
  for (size_t g = 0; g < r->n; g += GROUP) sum += (double)sum_of(&w, g, group_size(g, r->n));
  if (sum != sum) return SIDE_NAN;
  loss_finalize_side(l, s, k, e, sum);
  r->top[side] = (int64_t)w.skip;
  if (side == STUDENT) r->stored = store;
  if (r->target >= 0) loss_target_score(b, r->target_inputs, r, side);
  return SIDE_DONE;
}

NOINLINE side_found loss_kept_side(const loss_body *b, const row_call *c, loss_row *r, int side, real *store,
                                   ptrdiff_t ahead) {
  row_scores kept;
  return loss_cached_side(b, c, r, side, store, ahead, &kept);
}

/* The gradient of a summed row, written later. */
typedef struct loss_output {
  deferred_store deferred;
  loss_write_fn *write;
  loss_row row;
  double total[ROW_STAGES][ROW_SUMS], target_inputs[SMX_MAX_PORTS];
} loss_output;
static void loss_output_write(const deferred_store *deferred, size_t i, size_t n) {
  const loss_output *out = (const loss_output *)(const void *)deferred;
  out->write(&out->row, i, n);
}
static void loss_output_of(loss_output *out, const loss_row *r, loss_write_fn *write) {
  out->row = *r, out->write = write;
  memcpy(out->total, r->total, sizeof out->total);
  memcpy(out->target_inputs, r->target_inputs, sizeof out->target_inputs);
  out->row.total = out->total, out->row.target_inputs = out->target_inputs;
  for (int side = 0; side < SIDES; side++)
    out->row.on[side].src[SRC_SUMS] = (const real *)(const void *)out->total;
  deferred_store_begin(&out->deferred, loss_output_write, r->dx[STUDENT], r->stored, r->n);
}

/* The same of a row from memory. out: the row before, or NULL. */
NOINLINE side_found loss_run_side(const loss_body *b, const row_call *c, loss_row *r, int side, real *store,
                                  loss_output *out) {
  const exp_body *e = b->side[side];
  const span *s = &r->on[side];
  row_state st;
  const real *kept;
  const consts k = r->k[side] = e->setup(c, s);
  const bool ordinary = exp_run_row(e, c, s, &k, store, out ? &out->deferred : NULL, &st, &kept);
  if (out) deferred_store_rest(&out->deferred);
  if (!ordinary) return SIDE_SPECIAL;
  r->side[side] =
      (exp_row){.scale_exp = (real)st.exp.scale_exp, .top = (real)st.exp.max, .top_l = (real)st.exp.top_l};
  loss_finalize_side(e, s, &k, &r->side[side], st.exp.other);
  r->top[side] = st.exp.index;
  if (side == STUDENT) r->stored = kept;
  if (r->target >= 0) loss_target_score(b, r->target_inputs, r, side);
  return SIDE_DONE;
}

static bool loss_cached_sums(const loss_body *b, loss_row *r, int stage) {
  double *total = r->total[stage], bad = 0;
  for (int a = 0; a < ROW_SUMS; a++) total[a] = 0;
  for (size_t g = 0; g < r->n; g += GROUP) {
    double sums[ROW_SUMS] = {0};
    b->sums[stage](r, g, group_size(g, r->n), sums);
    for (int a = 0; a < ROW_SUMS; a++) total[a] += sums[a];
  }
  for (int a = 0; a < ROW_SUMS; a++) bad += total[a] == total[a] ? 0 : 1;
  return bad == 0;
}

static bool loss_cached_nan(const loss_body *b, loss_row *r) {
  loss_put(r, LOSS, (double)r_nan());
  if (b->special) b->special(r, true, (double)r_nan());
  for (int side = 0; side < SIDES; side++)
    if (r->dx[side]) fill(r->dx[side], r->n, r_nan());
  return true;
}

/* A row straight through its stages. False when it needs a rule, with the logits unchanged.
 * out: the row is not in the caches, nor is the next, which is `step` elements on, and its gradient
 * may be left to this; or NULL. */
static bool loss_cached_row(const loss_body *b, const row_call *c, loss_row *r, size_t row, real *scratch,
                            ptrdiff_t ahead, ptrdiff_t step, loss_output *out) {
  double total[ROW_STAGES][ROW_SUMS] = {{0}},
         target_inputs[SMX_MAX_PORTS] = {0}; /* sums that are not needed are 0, as in the program */
  r->total = total, r->target_inputs = target_inputs;
  loss_row_at(b, c, row, r);
  if (r->ignored) return false;
  if (r->target >= 0) loss_target_inputs(b, r, target_inputs);
  for (int stage = STAGE_EARLY; stage < STAGE_GRADIENT; stage++) {
    if (!loss_wants(b, r, stage)) continue;
    side_found found = SIDE_DONE;
    if (loss_side_stage(stage)) {
      const int side = stage - STAGE_STUDENT;
      real *store = side == STUDENT ? loss_store(b, r, scratch) : NULL;
      found = out && (r->stream || !store)
                  ? loss_run_side(b, c, r, side, store, side == STUDENT && r->stream ? out : NULL)
              : exp_keeps(b->side[side]->scores, r->n) ? loss_kept_side(b, c, r, side, store, ahead)
                                                       : loss_cached_side(b, c, r, side, store, ahead, NULL);
    } else if (!loss_cached_sums(b, r, stage)) {
      found = SIDE_NAN;
    }
    if (found == SIDE_NAN && out) deferred_store_rest(&out->deferred);
    if (found == SIDE_NAN) return loss_cached_nan(b, r);
    if (found == SIDE_SPECIAL) return false;
  }
  const real *const x = r->on[STUDENT].src[0];
  b->finalize(r);
  loss_ready(b, r);
  if (out && r->stream && r->dx[STUDENT] && !r->dx[TEACHER] && b->side[STUDENT]) {
    r->next = r->stored ? r->stored : x;
    loss_output_of(out, r, b->write[STUDENT]);
    return true;
  }
  for (int side = 0; side < SIDES; side++) {
    for (size_t g = 0; r->dx[side] && g < r->n; g += GROUP) {
      r->next = out && step && g < EXP_CACHED ? x + step : r->stored ? r->stored : x;
      b->write[side](r, g, group_size(g, r->n));
    }
    r->stored = NULL; /* now it holds the gradient */
  }
  return true;
}

static bool loss_many(const row_call *c) { return c->rows * c->n > FOLLOW; }
static bool loss_deferred(const row_call *c) { return c->n > 2 * GROUP && loss_many(c); }
static bool loss_cached(const loss_body *b, const row_call *c) {
  return !b->before && c->n > 0 && c->plan != PLAN_STREAM &&
         c->n <= (loss_deferred(c) ? DEFERRED_GROUPS * GROUP : EXP_CACHED);
}

/* Computes rows that the caches hold from `row` on, up to one that needs a rule: returns which that
 * is, or how many there are. A function of its own: its stack is free again when the program runs
 * that row. out: of loss_cached_row. */
NOINLINE size_t loss_cached_rows(const loss_body *b, row_call *c, bool backward, size_t row,
                                 loss_output *out) {
  const bool follow = c->n <= 2 * GROUP && c->src_step[0] == (ptrdiff_t)c->n && loss_many(c);
  loss_row r = {.q = c->params, .n = c->n, .backward = backward, .stream = c->writing};
  for (; row < c->rows; row++) {
    const ptrdiff_t ahead = follow && row + AHEAD < c->rows ? (ptrdiff_t)(AHEAD * c->n * sizeof(real)) : 0;
    const ptrdiff_t step = row + 1 < c->rows ? c->src_step[0] : 0;
    if (!loss_cached_row(b, c, &r, row, c->n > GROUP ? exp_place(c, row) : c->terms, ahead, step, out)) break;
  }
  return row;
}
NOINLINE size_t loss_deferred_rows(const loss_body *b, row_call *c, bool backward, size_t row) {
  loss_output out;
  out.deferred = deferred_store_none(c->writing, sizeof(real));
  row = loss_cached_rows(b, c, backward, row, &out);
  deferred_store_rest(&out.deferred);
  return row;
}

/* Rows of f16 or bf16 (loss_body.logit_at), one by one, because their step is that of such
 * elements. Each is taken as a row from memory, without a gradient. Functions of their own: other
 * rows need the stack. */
NOINLINE bool loss_half_row(const loss_body *b, const row_call *c) {
  loss_output out;
  loss_row r = {.q = c->params, .n = c->n};
  out.deferred = deferred_store_none(WRITE_CACHED, sizeof(real));
  return c->n <= DEFERRED_GROUPS * GROUP && loss_cached_row(b, c, &r, 0, NULL, 0, 0, &out);
}
NOINLINE void loss_half_rows(const loss_body *b, const row_kernel *kernel, row_call *c) {
  for (size_t row = 0; row < c->rows; row++) {
    const row_call one = row_half_at(c, row);
    if (!loss_half_row(b, &one)) run_half_row(kernel, c, row);
  }
}

static void loss_rows(const loss_body *b, const row_kernel *kernel, row_call *c, bool backward) {
  if (b->logit_at) {
    loss_half_rows(b, kernel, c);
    return;
  }
  if (c->rows == 0 || (b->small && b->small(b, kernel, c, backward))) return;
  const bool cached = loss_cached(b, c), deferred = loss_deferred(c);
  for (size_t row = 0; row < c->rows; row++) {
    if (cached)
      row = deferred ? loss_deferred_rows(b, c, backward, row) : loss_cached_rows(b, c, backward, row, NULL);
    if (row < c->rows) run_row(kernel, c, row);
  }
  if (c->writing) v_stream_end();
}

/* ---- the engines ---- */

/* b, or its staged copy (exp_body_for). */
typedef struct loss_staging {
  loss_body body;
  exp_staging side[SIDES];
} loss_staging;
static const loss_body *loss_body_for(const loss_body *b, const row_call *c, loss_staging *room) {
  if (c->plan != PLAN_STAGED) return b;
  room->body = *b;
  for (int side = 0; side < SIDES; side++)
    if (b->side[side]) room->body.side[side] = exp_body_for(b->side[side], c, &room->side[side]);
  return &room->body;
}

static void engine_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  loss_merge(c, st, parts, count);
}
static void engine_pass_of(const void *body, const row_call *c, row_state *st, row_part *parts,
                           bool backward) {
  loss_staging room;
  loss_pass(loss_body_for(body, c, &room), c, st, parts, backward);
}
static void engine_rows_of(const row_kernel *k, row_call *c, bool backward) {
  loss_staging room;
  loss_rows(loss_body_for(k->body, c, &room), k, c, backward);
}

static void forward_begin(const void *body, const row_call *c, row_state *st) {
  loss_begin(body, c, st, false);
}
static void forward_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  engine_pass_of(body, c, st, parts, false);
}
static bool forward_next(const void *body, const row_call *c, row_state *st) {
  return loss_next(body, c, st, false);
}
static void forward_rows(const row_kernel *k, row_call *c) { engine_rows_of(k, c, false); }
const row_engine loss_engine = {forward_begin, forward_pass, engine_merge, forward_next, forward_rows};

static void backward_begin(const void *body, const row_call *c, row_state *st) {
  loss_begin(body, c, st, true);
}
static void backward_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  engine_pass_of(body, c, st, parts, true);
}
static bool backward_next(const void *body, const row_call *c, row_state *st) {
  return loss_next(body, c, st, true);
}
static void backward_rows(const row_kernel *k, row_call *c) { engine_rows_of(k, c, true); }
const row_engine loss_grad_engine = {backward_begin, backward_pass, engine_merge, backward_next,
                                     backward_rows};
