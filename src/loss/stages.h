/* loss/stages.h - the row program of a loss (rows.h says what its stages are), the straight way for rows in memory, and the kernels around a body. */
#ifndef SMX_LOSS_STAGES_H
#define SMX_LOSS_STAGES_H
#include "rows.h"

/* ---- the row program ---- */

static inline exp_row loss_exp_row(const row_side *k) {
  return (exp_row){.shift = (real)k->shift,
                   .ref = (real)k->ref,
                   .tiny = (real)k->tiny,
                   .inv = (real)k->inv,
                   .one = (real)k->one,
                   .top = (real)k->top,
                   .top_l = (real)k->top_l,
                   .log = (real)k->log1p,
                   .log1p = k->log1p,
                   .max = k->max,
                   .others = k->others};
}

/* The call as a side sees it: its own row is input 0, and early sums are where a score may look for them. */
static inline row_call loss_side_call(const loss_body *b, const row_call *c, row_state *st, int side) {
  row_call own = *c;
  if (side == TEACHER) own.src[0] = c->src[b->teacher];
  own.src[SRC_SUMS] = st->kept.total;
  return own;
}

/* The score of the target, formed as any other from what the inputs are there. */
static inline void loss_target_score(const loss_body *b, const double *pick, loss_row *r, int side) {
  real picked[SMX_MAX_PORTS];
  span s = r->on[side];
  for (int p = 0; p < SMX_MAX_PORTS; p++)
    if (b->along >> p & 1) picked[p] = (real)pick[p], s.src[p] = picked + p;
  if (side == TEACHER) s.src[0] = picked + b->teacher;
  b->side[side]->one(&s, &r->k[side], r->side[side].shift, &r->h[side], &r->l[side]);
}

static inline void loss_find_target(const loss_body *b, const row_call *c, loss_row *r) {
  const void *y = b->target ? (const void *)r->on[STUDENT].src[b->target] : NULL;
  r->target = y ? *(const int64_t *)y : -1;
  r->ignored = y && r->target == (int64_t)c->params[0];
  if (r->ignored) r->target = -1;
}

/* Where gradients go, and what they are multiplied by. */
static inline void loss_ways_out(const loss_body *b, const row_call *c, loss_row *r) {
  const bool backward = r->backward;
  r->dx[STUDENT] = r->on[STUDENT].dst[backward ? 0 : DX];
  r->dx[TEACHER] = b->teacher && backward ? r->on[STUDENT].dst[b->teacher] : NULL;
  r->inputs = c->inputs, r->outputs = c->outputs;
  r->wanted = (backward ? 1u | (b->teacher ? 1u << b->teacher : 0) : 1u << DX) & c->outputs;
  r->g = r->ignored ? 0 : backward ? loss_upstream(r, LOSS) : c->share;
}

static inline void loss_row_of(const loss_body *b, const row_call *c, row_state *st, bool backward, loss_row *r) {
  r->q = c->params, r->n = c->n, r->backward = backward, r->stream = c->bypass;
  for (int side = 0; side < SIDES; side++) {
    row_call own = loss_side_call(b, c, st, side);
    r->on[side] = span_of(&own, 0);
    r->dx[side] = NULL;
    if (side == STUDENT) loss_find_target(b, c, r);
    if (!b->side[side]) continue;
    r->k[side] = b->side[side]->exp->setup(&own, &r->on[side]);
    r->side[side] = loss_exp_row(&st->kept.side[side]);
    r->top[side] = st->kept.side[side].index;
    if (r->target >= 0 && st->stage > STAGE_STUDENT + side) loss_target_score(b, st->kept.pick, r, side);
  }
  loss_ways_out(b, c, r);
  r->total = st->kept.total, r->pick = st->kept.pick, r->stored = NULL, r->next = r->on[STUDENT].src[0] + GROUP;
  for (int i = 0; i < ROW_COEFS; i++) r->coef[i] = (real)st->kept.coef[i];
  r->at_target = (real)st->kept.at_target;
  if (st->stage == STAGE_GRADIENT) loss_ready(b, r);
}

static inline bool loss_side_stage(int stage) { return stage == STAGE_STUDENT || stage == STAGE_TEACHER; }
static inline bool loss_before_stage(const loss_body *b, int stage) { return b->before && stage == STAGE_EARLY; }
static inline bool loss_wants(const loss_body *b, const loss_row *r, int stage) {
  if (loss_before_stage(b, stage)) return !r->ignored;
  if (loss_side_stage(stage) && !b->side[stage - STAGE_STUDENT]) return false;
  if (r->ignored) return b->wants && b->wants(r, STAGE_STUDENT) && (loss_side_stage(stage) || (b->sums[stage] && b->wants(r, stage)));
  return loss_side_stage(stage) || (b->sums[stage] && (!b->wants || b->wants(r, stage)));
}

/* Ends with one value over the gradients, or at once when nobody wants them. */
static inline bool loss_fill(const loss_row *r, row_state *st, double value) {
  st->kept.fill = value;
  st->stage = STAGE_FILL;
  return st->writes = r->wanted;
}

/* A row that is NaN, or empty. A target that its scores leave out may still make it NaN. */
static inline bool loss_odd(const loss_body *b, const row_call *c, row_state *st, const loss_row *r, bool nan) {
  if (r->target >= 0) nan |= !(st->kept.pick[0] < (double)R_INF) || !(st->kept.pick[b->teacher] < (double)R_INF);
  const double none = nan || (!r->backward && c->on_empty == SMX_EMPTY_NAN) ? (double)r_nan() : 0;
  st->empty = !nan && !r->ignored && !r->backward;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  loss_put(r, LOSS, r->ignored ? 0 : none);
  if (b->odd) b->odd(r, nan, none);
  return loss_fill(r, st, r->ignored && !r->backward ? 0 : none);
}

static inline bool loss_not_a_number(const loss_body *b, const row_call *c, row_state *st, bool backward) {
  loss_row r;
  loss_row_of(b, c, st, backward, &r);
  return loss_odd(b, c, st, &r, true);
}

/* The first stage from `stage` on that is wanted. */
static inline bool loss_go(const loss_body *b, const row_call *c, row_state *st, bool backward, int stage) {
  loss_row r;
  st->stage = stage;
  loss_row_of(b, c, st, backward, &r);
  while (stage < STAGE_GRADIENT && !loss_wants(b, &r, stage)) stage++;
  st->stage = stage;
  st->writes = st->reverse = st->serial = st->empty = st->nan = false;
  if (loss_side_stage(stage)) exp_begin(b->side[stage - STAGE_STUDENT]->exp, c, st);
  if (loss_before_stage(b, stage)) b->before->begin(c, st);
  if (stage < STAGE_GRADIENT) return true;
  if (r.ignored && !loss_wants(b, &r, STAGE_STUDENT)) {
    loss_put(&r, LOSS, 0);
    if (b->odd) b->odd(&r, false, 0);
    return loss_fill(&r, st, 0);
  }
  b->settle(&r);
  for (int i = 0; i < ROW_COEFS; i++) st->kept.coef[i] = (double)r.coef[i];
  st->kept.at_target = (double)r.at_target;
  st->reverse = true;
  return st->writes = r.wanted;
}

static inline void loss_begin(const loss_body *b, const row_call *c, row_state *st, bool backward) {
  memset(&st->kept, 0, sizeof st->kept);
  if (!loss_go(b, c, st, backward, STAGE_EARLY)) st->stage = STAGE_FILL; /* a pass that finds nothing to write */
}

/* What the row holds at the target, if this piece of it does. */
static inline void loss_pick(const loss_body *b, const loss_row *r, double *pick) {
  const span *s = &r->on[STUDENT];
  for (int p = 0; p < SMX_MAX_PORTS; p++)
    if (b->along >> p & 1 && s->src[p]) pick[p] = (double)s->src[p][r->target - (int64_t)s->origin];
}

static inline void loss_pass(const loss_body *b, const row_call *c, row_state *st, row_part *parts, bool backward) {
  loss_row r;
  loss_row_of(b, c, st, backward, &r);
  const int stage = st->stage;
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  if (loss_side_stage(stage)) {
    row_call own = loss_side_call(b, c, st, stage - STAGE_STUDENT);
    exp_pass(b->side[stage - STAGE_STUDENT]->exp, &own, st, parts);
  }
  if (loss_before_stage(b, stage)) b->before->pass(c, st, parts);
  for (size_t g = 0; g < groups && !loss_side_stage(stage) && !loss_before_stage(b, stage); g++) {
    size_t i = base + g * GROUP, n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (stage < STAGE_GRADIENT) b->sums[stage](&r, i, n, parts[g].sums);
    for (int side = 0; side < SIDES && stage >= STAGE_GRADIENT; side++) {
      if (!r.dx[side]) continue;
      if (stage == STAGE_FILL) fill(r.dx[side] + i, n, (real)st->kept.fill);
      else b->emit[side](&r, i, n);
    }
  }
  if (r.stream && stage == STAGE_GRADIENT) v_stream_end();
  uint64_t ahead = (uint64_t)(r.target - (int64_t)c->start);
  if (r.target >= 0 && ahead < c->count) {
    parts[ahead / GROUP].hit = true;
    loss_pick(b, &r, parts[ahead / GROUP].pick);
  }
}

static inline void loss_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  for (size_t g = 0; g < count; g++) {
    if (parts[g].hit) memcpy(st->kept.pick, parts[g].pick, sizeof st->kept.pick);
    for (int a = 0; a < ROW_SUMS && st->stage < STAGE_GRADIENT && !loss_side_stage(st->stage); a++)
      st->kept.total[st->stage][a] += parts[g].sums[a];
  }
  if (loss_side_stage(st->stage)) exp_fold(c, st, parts, count);
}

/* The scalars of a side whose sums are known. */
static inline void loss_settle_side(const exp_body *e, const span *s, const consts *k, exp_row *r, double other) {
  double top = (double)exp_of(r, r->top, r->top_l);
  exp_settle(e, s, k, r, other + top, other);
}
static inline row_side loss_keep(const exp_row *r, int64_t index) {
  return (row_side){(double)r->shift, (double)r->ref, (double)r->tiny, (double)r->inv, (double)r->one, (double)r->top,
                    (double)r->top_l, r->log1p,       r->max,          r->others,      index};
}

static inline bool loss_next(const loss_body *b, const row_call *c, row_state *st, bool backward) {
  const int stage = st->stage;
  if (stage >= STAGE_GRADIENT) return false;
  if (loss_side_stage(stage)) {
    const exp_body *e = b->side[stage - STAGE_STUDENT]->exp;
    row_call own = loss_side_call(b, c, st, stage - STAGE_STUDENT);
    if (exp_next(e, &own, st)) return true;
    if (st->empty || st->mode == EXP_FILL) {
      loss_row r;
      loss_row_of(b, c, st, backward, &r);
      return loss_odd(b, c, st, &r, !st->empty);
    }
    span s = span_of(&own, 0);
    consts k = e->setup(&own, &s);
    exp_row r = {.shift = (real)st->shift, .ref = (real)st->ref, .top = (real)st->max, .top_l = (real)st->top_l};
    loss_settle_side(e, &s, &k, &r, st->other);
    st->kept.side[stage - STAGE_STUDENT] = loss_keep(&r, st->index);
  } else {
    if (loss_before_stage(b, stage) && b->before->next(c, st)) return true;
    double sum = 0;
    for (int a = 0; a < ROW_SUMS; a++) sum += st->kept.total[stage][a] == st->kept.total[stage][a] ? 0 : (double)r_nan();
    if (sum != sum) return loss_not_a_number(b, c, st, backward);
  }
  return loss_go(b, c, st, backward, stage + 1);
}

/* ---- rows in memory ---- */

/* Row `row` of the call, nothing of it known yet. */
static inline void loss_row_at(const loss_body *b, const row_call *c, size_t row, loss_row *r) {
  r->on[STUDENT] = span_of(c, row);
  r->on[STUDENT].src[SRC_SUMS] = (const real *)(const void *)r->total;
  if (b->teacher) {
    r->on[TEACHER] = r->on[STUDENT];
    r->on[TEACHER].src[0] = r->on[STUDENT].src[b->teacher];
  }
  r->stored = NULL;
  loss_find_target(b, c, r);
  loss_ways_out(b, c, r);
}

/* Where the student's terms may be kept: in the gradient's own row, in a row of scratch when that is written past the caches, or nowhere. */
static inline real *loss_store(const loss_body *b, const loss_row *r, real *scratch) {
  real *dx = r->dx[STUDENT];
  if (!dx || (!r->stream && r->n > EXP_CACHED)) return NULL;
  if (r->stream) return scratch;
  bool shared = false;
  for (int p = 1; p < SMX_MAX_PORTS; p++) shared |= b->along >> p & 1 && r->on[STUDENT].src[p] == dx;
  return !shared && (r->on[STUDENT].src[0] != dx || (b->terms_only && b->terms_only(r))) ? dx : NULL;
}

/* The sums of a side. SIDE_ODD: not an ordinary row, and nothing has been written. */
typedef enum side_found { SIDE_DONE, SIDE_NAN, SIDE_ODD } side_found;
static inline side_found loss_cached_side(const loss_body *b, const row_call *c, loss_row *r, int side, real *store, ptrdiff_t ahead) {
  const loss_side *l = b->side[side];
  const exp_scores *f = l->exp->scores;
  const span *s = &r->on[side];
  const consts *k = &r->k[side];
  r->k[side] = l->exp->setup(c, s);
  real max = f->max(s, k, 0, r->n);
  if (!in_range(max)) return SIDE_ODD;
  exp_row *e = &r->side[side];
  *e = (exp_row){.ref = k_of(max) - 1, .top = max};
  exp_sum w = {.s = s, .k = k, .ref = e->ref, .store = store, .prefetch = ahead, .skip = f->find(s, k, 0, 0, r->n, max)};
  e->top_l = f->low_part(s, k, 0, w.skip);
  double sum = 0;
  for (size_t g = 0; g < r->n; g += GROUP) sum += (double)(store ? l->keep : f->sum)(&w, g, group_size(g, r->n));
  if (sum != sum) return SIDE_NAN;
  loss_settle_side(l->exp, s, k, e, sum);
  r->top[side] = (int64_t)w.skip;
  if (side == STUDENT) r->stored = store;
  if (r->target >= 0) loss_target_score(b, r->pick, r, side);
  return SIDE_DONE;
}

/* The gradient of a row that is summed, for later. */
typedef struct loss_output {
  exp_due due;
  loss_emit_fn *emit;
  loss_row row;
  double total[ROW_STAGES][ROW_SUMS], pick[SMX_MAX_PORTS];
} loss_output;
static inline void loss_output_write(const exp_due *due, size_t i, size_t n) {
  const loss_output *out = (const loss_output *)(const void *)due;
  out->emit(&out->row, i, n);
}
static inline void loss_output_of(loss_output *out, const loss_row *r, loss_emit_fn *emit) {
  out->row = *r, out->emit = emit;
  memcpy(out->total, r->total, sizeof out->total);
  memcpy(out->pick, r->pick, sizeof out->pick);
  out->row.total = out->total, out->row.pick = out->pick;
  for (int side = 0; side < SIDES; side++) out->row.on[side].src[SRC_SUMS] = (const real *)(const void *)out->total;
  exp_due_begin(&out->due, loss_output_write, r->dx[STUDENT], r->stored, r->n);
}

/* The same of a row that comes from memory. out: the row before, or NULL. */
static inline side_found loss_run_side(const loss_body *b, const row_call *c, loss_row *r, int side, real *store, loss_output *out) {
  const exp_body *e = b->side[side]->exp;
  const span *s = &r->on[side];
  row_state st;
  const real *kept;
  const consts k = r->k[side] = e->setup(c, s);
  const bool ordinary = exp_run_row(e, c, s, &k, store, out ? &out->due : NULL, &st, &kept);
  if (out) exp_due_rest(&out->due);
  if (!ordinary) return SIDE_ODD;
  r->side[side] = (exp_row){.ref = (real)st.ref, .top = (real)st.max, .top_l = (real)st.top_l};
  loss_settle_side(e, s, &k, &r->side[side], st.other);
  r->top[side] = st.index;
  if (side == STUDENT) r->stored = kept;
  if (r->target >= 0) loss_target_score(b, r->pick, r, side);
  return SIDE_DONE;
}

static inline bool loss_cached_sums(const loss_body *b, loss_row *r, int stage) {
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

static inline bool loss_cached_nan(const loss_body *b, loss_row *r) {
  loss_put(r, LOSS, (double)r_nan());
  if (b->odd) b->odd(r, true, (double)r_nan());
  for (int side = 0; side < SIDES; side++)
    if (r->dx[side]) fill(r->dx[side], r->n, r_nan());
  return true;
}

/* A row that the caches hold, straight through its stages. False when it is not an ordinary one, with the logits untouched. far: it comes from
 * memory, and so does the next, which is `step` elements on; then a gradient may be left to `out`. */
static inline bool loss_cached_row(const loss_body *b, const row_call *c, loss_row *r, size_t row, real *scratch, ptrdiff_t ahead, bool far,
                                   ptrdiff_t step, loss_output *out) {
  double total[ROW_STAGES][ROW_SUMS] = {{0}}, pick[SMX_MAX_PORTS] = {0}; /* sums that nobody wants are 0, as in the program */
  r->total = total, r->pick = pick;
  loss_row_at(b, c, row, r);
  if (r->ignored) return false;
  if (r->target >= 0) loss_pick(b, r, pick);
  for (int stage = STAGE_EARLY; stage < STAGE_GRADIENT; stage++) {
    if (!loss_wants(b, r, stage)) continue;
    side_found found = SIDE_DONE;
    if (loss_side_stage(stage)) {
      const int side = stage - STAGE_STUDENT;
      real *store = side == STUDENT ? loss_store(b, r, scratch) : NULL;
      found = far && (r->stream || !store) ? loss_run_side(b, c, r, side, store, side == STUDENT && r->stream ? out : NULL)
                                           : loss_cached_side(b, c, r, side, store, ahead);
    } else if (!loss_cached_sums(b, r, stage)) {
      found = SIDE_NAN;
    }
    if (found == SIDE_NAN) exp_due_rest(&out->due);
    if (found == SIDE_NAN) return loss_cached_nan(b, r);
    if (found == SIDE_ODD) return false;
  }
  const real *const x = r->on[STUDENT].src[0];
  b->settle(r);
  loss_ready(b, r);
  if (far && r->stream && r->dx[STUDENT] && !r->dx[TEACHER] && b->side[STUDENT]) {
    r->next = r->stored ? r->stored : x;
    loss_output_of(out, r, b->emit[STUDENT]);
    return true;
  }
  for (int side = 0; side < SIDES; side++) {
    for (size_t g = 0; r->dx[side] && g < r->n; g += GROUP) {
      r->next = far && step && g < EXP_CACHED ? x + step : r->stored ? r->stored : x;
      b->emit[side](r, g, group_size(g, r->n));
    }
    r->stored = NULL; /* the gradient is there now */
  }
  return true;
}

static inline void loss_rows(const loss_body *b, const row_kernel *kernel, row_call *c, bool backward) {
  if (c->rows == 0 || (b->small && b->small(b, kernel, c, backward))) return;
  real scratch[GROUP] __attribute__((aligned(64)));
  const bool many = c->rows * c->n > FOLLOW, far = c->n > 2 * GROUP && many;
  const bool cached = !b->before && c->n > 0 && c->plan != PLAN_STREAM && c->n <= (far ? RUN * GROUP : EXP_CACHED);
  const bool follow = c->n <= 2 * GROUP && c->src_step[0] == (ptrdiff_t)c->n && many;
  loss_row r = {.q = c->params, .n = c->n, .backward = backward, .stream = c->bypass};
  loss_output out;
  out.due = exp_due_none(c->bypass, sizeof(real));
  for (size_t row = 0; row < c->rows; row++) {
    const ptrdiff_t ahead = follow && row + AHEAD < c->rows ? (ptrdiff_t)(AHEAD * c->n * sizeof(real)) : 0;
    const ptrdiff_t step = row + 1 < c->rows ? c->src_step[0] : 0;
    if (cached && loss_cached_row(b, c, &r, row, c->n > GROUP ? exp_place(c, row) : scratch, ahead, far, step, &out)) continue;
    exp_due_rest(&out.due);
    run_row(kernel, c, row);
  }
  exp_due_rest(&out.due);
  if (c->bypass) v_stream_end();
}

/* The kernels of a loss, forward and backward, around a body. */
#define LOSS_WAY(name, body, back) \
  static void name##_begin(const row_call *c, row_state *st) { loss_begin(&body, c, st, back); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { loss_pass(&body, c, st, parts, back); } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { loss_fold(c, st, parts, count); } \
  static bool name##_next(const row_call *c, row_state *st) { return loss_next(&body, c, st, back); } \
  static void name##_rows(row_call *c); \
  static const row_kernel name##_kernel = KERNEL(name); \
  static void name##_rows(row_call *c) { loss_rows(&body, &name##_kernel, c, back); }
#define LOSS_KERNEL(name) \
  LOSS_WAY(name, name##_body, false) \
  LOSS_WAY(name##_grad, name##_body, true)

#endif
