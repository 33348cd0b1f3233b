/* sample/ops_sets.c - draws without replacement, the k best of x + Gumbel: gumbel_topk as a list, gumbel_khot as a mask with a gradient. See
 * ops.c. */
#include "relaxed.h"
#include "engine/pick.h"

enum { INDEX, KEY };         /* outputs */
enum { K, SEED };            /* parameters; those of gumbel_khot follow those of gumbel_softmax */
enum { LOOK, SELECT, TAKE }; /* stages of the program */

/* What is known of a row once it has been read: its largest x, and whether there is a NaN. */
static void set_look(const real *x, size_t n, row_state *st) {
  for (size_t i = 0; i < n; i++) {
    st->nan |= x[i] != x[i];
    if ((double)x[i] > st->max) st->max = (double)x[i];
  }
}

/* The keys of one group, less the row's largest x: so rounding them to the real type costs nothing, and several +inf share the mass. */
static void keys_of(const row_call *c, const row_state *st, size_t start, size_t n, real *keys) {
  const real *x = (const real *)c->src[NOISE_X] + (start - c->origin);
  const draws d = {(uint64_t)c->params[SEED], (uint64_t) * (const int64_t *)c->src[NOISE_STREAM], PURPOSE_GUMBEL_TOPK};
  double v[LANES];
  for (size_t i = 0; i < n; i += LANES) {
    size_t cnt = (size_t)lanes_left(n - i);
    noise_add(x + i, cnt, start + i, st->max, 1, 1, &d, v);
    for (size_t j = 0; j < cnt; j++) keys[i + j] = (real)v[j];
  }
}

static bool set_hopeless(const row_call *c, const row_state *st) {
  return st->nan || !(st->max > (double)-R_INF) || (st->max > (double)R_MAX && c->on_inf != SMX_INF_LIMIT);
}

/* p: what was picked; nothing of a hopeless row. */
static void set_finish(const row_call *c, row_state *st, pick *p) {
  bool nan = set_hopeless(c, st) && (st->nan || st->max > 0);
  int64_t *index = c->dst[INDEX];
  real *key = c->dst[KEY];
  st->empty = !nan && set_hopeless(c, st);
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return;
  pick_sort(p->x, p->index, p->kept);
  for (size_t i = 0; i < p->kept; i++) key[i] = v_first(v_clean(v_set1((real)((double)key[i] + st->max))));
  for (size_t i = p->kept; i < p->k; i++) index[i] = -1, key[i] = nan || (st->empty && c->on_empty == SMX_EMPTY_NAN) ? r_nan() : -R_INF;
}

static void set_begin(const row_call *c, row_state *st) {
  (void)c;
  st->stage = LOOK;
  st->mode = 0;
  st->writes = st->reverse = st->empty = st->nan = false;
  st->serial = true;
  st->max = (double)-R_INF;
}
static void set_pass(const row_call *c, row_state *st, row_part *parts) {
  real keys[GROUP] __attribute__((aligned(64)));
  const real *x = (const real *)c->src[NOISE_X] + (c->start - c->origin);
  for (size_t g = 0; g < c->count; g += GROUP) {
    size_t n = group_size(g, c->count);
    parts[g / GROUP] = (row_part){.index = -1};
    if (st->stage == LOOK) {
      set_look(x + g, n, st);
      continue;
    }
    keys_of(c, st, c->start + g, n, keys);
    if (st->stage == SELECT && st->mode == SELECT_COUNT) select_count(keys, n, st);
    else if (st->stage == SELECT) select_ties(keys, c->start + g, n, st);
    for (size_t i = 0; st->stage == TAKE && i < n; i++) {
      int64_t index = (int64_t)(c->start + g + i);
      bool equal = keys[i] == (real)st->pick.value && index <= st->pick.limit;
      if (!(keys[i] > (real)st->pick.value || equal) || !(keys[i] > -R_INF)) continue;
      ((real *)c->dst[KEY])[st->key] = keys[i], ((int64_t *)c->dst[INDEX])[st->key++] = index;
    }
  }
}
static void set_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  (void)c;
  (void)st;
  (void)parts;
  (void)count;
}
static bool set_next(const row_call *c, row_state *st) {
  pick p = {.k = (size_t)c->params[K], .x = c->dst[KEY], .index = c->dst[INDEX]};
  if (st->stage == LOOK && !set_hopeless(c, st)) {
    st->stage = SELECT;
    select_begin(st, p.k);
    return true;
  }
  if (st->stage == SELECT) {
    if (select_next(st)) return true;
    st->stage = TAKE;
    st->key = 0;
    return true;
  }
  p.kept = st->stage == TAKE ? st->key : 0;
  set_finish(c, st, &p);
  return false;
}
static const row_kernel set_program = {NULL, set_begin, set_pass, set_fold, set_next, NULL};

/* Rows in memory: a look and a walk, if k is not huge. */
static void set_row(row_call *c, row_state *st, pick *p) {
  real keys[GROUP] __attribute__((aligned(64)));
  set_begin(c, st);
  set_look(c->src[NOISE_X], c->n, st);
  pick_start(p, (size_t)c->params[K], c->dst[KEY], c->dst[INDEX], keys, 0);
  for (size_t g = 0; g < c->n && !set_hopeless(c, st); g += GROUP) {
    size_t n = group_size(g, c->n);
    keys_of(c, st, g, n, keys);
    if (g == 0) pick_start(p, p->k, p->x, p->index, keys, n);
    pick_group(p, keys, n, (int64_t)g);
  }
  pick_cut(p);
  set_finish(c, st, p);
}
static void set_rows(row_call *c) {
  if (c->params[K] > PICK_MOST) {
    run_rows(&set_program, c);
    return;
  }
  for (size_t r = 0; r < c->rows; r++) {
    row_call row = row_at(c, r);
    row_state st;
    pick p;
    set_row(&row, &st, &p);
    if (st.empty && c->on_empty == SMX_EMPTY_ERROR && c->first_empty < 0) c->first_empty = (int64_t)r;
  }
}

FORWARD_OPERATOR(gumbel_topk, set)

/* ---- gumbel_khot: hard: 1 for what gumbel_topk draws, 0 for the rest; soft: softmax((x + G) / T) with the same noise, whose gradient both have
 * ---- */

enum { HARD = 2, KHOT_K };            /* parameters */
enum { KHOT_WRITE = TAKE, KHOT_ALL }; /* stages after those of a set; ALL: the same everywhere */

SMI row_call khot_call(const row_call *c, double *settings) {
  row_call own = noise_call(c, settings);
  settings[NOISE_PURPOSE] = PURPOSE_GUMBEL_TOPK;
  return own;
}
NOISE_KERNEL_OF(khot_soft, relaxed_body, khot_call)
NOISE_KERNEL_OF(khot_grad, relaxed_grad_body, khot_call)

#define khot_hard_begin set_begin
static void khot_hard_pass(const row_call *c, row_state *st, row_part *parts) {
  real keys[GROUP] __attribute__((aligned(64)));
  real *y = (real *)c->dst[0] + (c->start - c->origin);
  if (st->stage < KHOT_WRITE) {
    set_pass(c, st, parts);
    return;
  }
  for (size_t g = 0; g < c->count; g += GROUP) {
    size_t n = group_size(g, c->count);
    parts[g / GROUP] = (row_part){.index = -1};
    if (st->stage == KHOT_WRITE) keys_of(c, st, c->start + g, n, keys);
    for (size_t i = 0; i < n; i++) {
      bool equal = keys[i] == (real)st->pick.value && (int64_t)(c->start + g + i) <= st->pick.limit;
      if (st->stage == KHOT_ALL) y[g + i] = (real)st->sum;
      else y[g + i] = keys[i] > -R_INF && (keys[i] > (real)st->pick.value || equal) ? 1 : 0;
    }
  }
}
#define khot_hard_fold set_fold
static bool khot_hard_next(const row_call *c, row_state *st) {
  const double k = c->params[KHOT_K];
  if (st->writes) return false;
  if (st->stage == LOOK && !set_hopeless(c, st)) {
    st->stage = SELECT;
    select_begin(st, k < (double)c->n ? (size_t)k : c->n);
    return true;
  }
  if (st->stage == SELECT && select_next(st)) return true;
  if (st->stage == SELECT) {
    st->stage = KHOT_WRITE;
    return st->writes = true;
  }
  const bool nan = st->nan || st->max > 0;
  st->empty = !nan;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  st->stage = KHOT_ALL;
  st->sum = nan || c->on_empty == SMX_EMPTY_NAN ? (double)r_nan() : 0;
  return st->writes = true;
}
static void khot_hard_rows(row_call *c);
static const row_kernel khot_hard_kernel = KERNEL(khot_hard);
static void khot_hard_rows(row_call *c) { run_rows(&khot_hard_kernel, c); }

static const row_kernel *khot_pick(const row_call *c) { return c->params[HARD] == 0 ? &khot_soft_kernel : &khot_hard_kernel; }
PICK_KERNEL(khot, -1)

OPERATOR(gumbel_khot, khot, khot_grad)
