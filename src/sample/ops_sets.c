/* sample/ops_sets.c - draws without replacement, the k best of x + Gumbel: gumbel_topk as a list,
 * gumbel_khot and relaxed_khot as masks with a gradient. See ops.c. */
#include "relaxed.h"
#include "decode.h"

enum { INDEX, KEY };           /* outputs */
enum { K, SEED };              /* parameters; those of gumbel_khot follow those of gumbel_softmax */
enum { MINMAX, SELECT, TAKE }; /* stages of the program */

typedef struct set_state {
  minmax row;
  size_t kept;
  double fill; /* the value of a row that has the same everywhere */
} set_state;
ROW_OWN_STATE(set_state, set_of)
/* row_call.work: what is picked, and the keys of a group. */
typedef struct set_work {
  topk p;
  real keys[GROUP];
} set_work;
static real *set_keys(const row_call *c) { return ((set_work *)c->work)->keys; }

/* The keys of one group, relative to the row's largest x: then rounding them to the real type costs
 * no accuracy, and several +inf share the mass. */
static void keys_of(const row_call *c, const row_state *st, size_t start, size_t n, real *keys) {
  const real *x = (const real *)c->src[NOISE_X] + (start - c->origin);
  const draws d = {(uint64_t)c->params[SEED], (uint64_t) * (const int64_t *)c->src[NOISE_STREAM],
                   PURPOSE_GUMBEL_TOPK};
  double v[LANES];
  for (size_t i = 0; i < n; i += LANES) {
    size_t cnt = (size_t)lanes_left(n - i);
    noise_add(x + i, cnt, start + i, minmax_of(st)->max, 1, 1, &d, v);
    for (size_t j = 0; j < cnt; j++) keys[i + j] = (real)v[j];
  }
}

static bool set_invalid(const row_call *c, const row_state *st) {
  return minmax_empty(st) || minmax_nan(c, st);
}

/* p: the selected elements; none of an invalid row. */
static void set_finish(const row_call *c, row_state *st, topk *p) {
  bool nan = set_invalid(c, st) && (st->nan || minmax_of(st)->max > 0);
  int64_t *index = c->dst[INDEX];
  real *key = c->dst[KEY];
  st->empty = !nan && set_invalid(c, st);
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return;
  topk_sort(p->x, p->index, p->kept);
  for (size_t i = 0; i < p->kept; i++) key[i] = r_clean((double)key[i] + minmax_of(st)->max);
  for (size_t i = p->kept; i < p->k; i++)
    index[i] = -1, key[i] = nan || (st->empty && c->on_empty == SMX_EMPTY_NAN) ? r_nan() : -R_INF;
}

static void set_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  *set_of(st) = (set_state){.row = MINMAX_NONE};
}
static void set_pass(const row_call *c, row_state *st, row_part *parts) {
  real *const keys = set_keys(c);
  const real *x = (const real *)c->src[NOISE_X] + (c->start - c->origin);
  for (size_t g = 0; g < c->count; g += GROUP) {
    size_t n = group_size(g, c->count);
    parts[g / GROUP] = (row_part){.index = -1};
    if (st->stage == MINMAX) {
      minmax_part(x + g, n, c->start + g, st);
      continue;
    }
    keys_of(c, st, c->start + g, n, keys);
    if (st->stage == SELECT && st->mode == RADIX_COUNT) radix_count(keys, n, st);
    else if (st->stage == SELECT) radix_ties(keys, c->start + g, n, st);
    for (size_t i = 0; st->stage == TAKE && i < n; i++) {
      int64_t index = (int64_t)(c->start + g + i);
      bool equal = keys[i] == (real)st->cutoff.value && index <= st->cutoff.limit;
      if (!(keys[i] > (real)st->cutoff.value || equal) || !(keys[i] > -R_INF)) continue;
      const size_t k = set_of(st)->kept++;
      ((real *)c->dst[KEY])[k] = keys[i], ((int64_t *)c->dst[INDEX])[k] = index;
    }
  }
}
static void set_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {}
static bool set_next(const row_call *c, row_state *st) {
  topk *const p = &((set_work *)c->work)->p;
  p->k = (size_t)c->params[K], p->x = c->dst[KEY], p->index = c->dst[INDEX];
  if (st->stage == MINMAX && !set_invalid(c, st)) {
    st->stage = SELECT;
    radix_begin(st, p->k);
    return true;
  }
  if (st->stage == SELECT) {
    if (radix_next(st)) return true;
    st->stage = TAKE;
    return true;
  }
  p->kept = set_of(st)->kept;
  set_finish(c, st, p);
  return false;
}
static const row_kernel set_program = PROGRAM(set);

/* Rows in memory: a first read and a search, if k is not huge. */
static void set_row(row_call *c, row_state *st) {
  topk *const p = &((set_work *)c->work)->p;
  real *const keys = set_keys(c);
  set_begin(c, st);
  minmax_part(c->src[NOISE_X], c->n, 0, st);
  topk_start(p, (size_t)c->params[K], c->dst[KEY], c->dst[INDEX], keys, 0);
  for (size_t g = 0; g < c->n && !set_invalid(c, st); g += GROUP) {
    size_t n = group_size(g, c->n);
    keys_of(c, st, g, n, keys);
    if (g == 0) topk_start(p, p->k, p->x, p->index, keys, n);
    topk_group(p, keys, n, (int64_t)g);
  }
  topk_cut(p);
  set_finish(c, st, p);
}
static void set_rows(row_call *c) {
  if (c->params[K] > TOPK_MOST) {
    run_rows(&set_program, c);
    return;
  }
  for (size_t r = 0; r < c->rows; r++) {
    row_call row = row_at(c, r);
    row_state st;
    set_row(&row, &st);
    if (st.empty && c->on_empty == SMX_EMPTY_ERROR && c->first_empty < 0) c->first_empty = (int64_t)r;
  }
}

static const row_kernel set_kernel = PROGRAM_WITH_ROWS(set);
FORWARD_OPERATOR_WITH(gumbel_topk, set, ROW_LIST, sizeof(set_work))

/* ---- gumbel_khot: hard: 1 for what gumbel_topk draws, 0 for the rest; soft: softmax((x + G) / T)
 * with the same noise, whose gradient both have ---- */

enum { HARD = 2, KHOT_K };            /* parameters */
enum { KHOT_WRITE = TAKE, KHOT_ALL }; /* stages after those of a set; ALL: the same everywhere */

static row_call khot_call(const row_call *c, double *settings) {
  row_call own = noise_call(c, settings);
  settings[NOISE_PURPOSE] = PURPOSE_GUMBEL_TOPK;
  return own;
}
static const row_kernel khot_soft_kernel = NOISE_KERNEL(exp_engine, relaxed_body, khot_call, false);
static const row_kernel khot_grad_kernel = NOISE_KERNEL(exp_engine, relaxed_grad_body, khot_call, false);

#define khot_hard_begin set_begin
static void khot_hard_pass(const row_call *c, row_state *st, row_part *parts) {
  real *const keys = set_keys(c);
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
      bool equal = keys[i] == (real)st->cutoff.value && (int64_t)(c->start + g + i) <= st->cutoff.limit;
      if (st->stage == KHOT_ALL) y[g + i] = (real)set_of(st)->fill;
      else y[g + i] = keys[i] > -R_INF && (keys[i] > (real)st->cutoff.value || equal) ? 1 : 0;
    }
  }
}
#define khot_hard_merge set_merge
/* An invalid row has the same value everywhere. */
static bool khot_fill(const row_call *c, row_state *st, bool gradient) {
  const bool nan = st->nan || minmax_of(st)->max > 0;
  st->empty = !nan && !gradient;
  if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
  st->stage = KHOT_ALL;
  set_of(st)->fill = nan || (st->empty && c->on_empty == SMX_EMPTY_NAN) ? (double)r_nan() : 0;
  return st->writes = true;
}
static bool khot_hard_next(const row_call *c, row_state *st) {
  const double k = c->params[KHOT_K];
  if (st->writes) return false;
  if (st->stage == MINMAX && !set_invalid(c, st)) {
    st->stage = SELECT;
    radix_begin(st, k < (double)c->n ? (size_t)k : c->n);
    return true;
  }
  if (st->stage == SELECT && radix_next(st)) return true;
  if (st->stage == SELECT) {
    st->stage = KHOT_WRITE;
    return st->writes = true;
  }
  return khot_fill(c, st, false);
}
static const row_kernel khot_hard_kernel = PROGRAM(khot_hard);

static const row_kernel *khot_dispatch(const row_call *c) {
  return c->params[HARD] == 0 ? &khot_soft_kernel : &khot_hard_kernel;
}
static const row_kernel khot_kernel = {.engine = &choice_engine,
                                       .body = &(const row_choice){khot_dispatch, -1}};

OPERATOR_WITH(gumbel_khot, khot, khot_grad, ROW_LIST, sizeof(set_work))

/* ---- relaxed_khot: y = p^1 + ... + p^k, p^j = softmax(a^j / T), a^1 = x + G,
 * a^(j + 1) = a^j + log(1 - p^j); hard: as gumbel_khot
 *
 * In double, in order. What becomes of an element is a function of its own score and of some
 * numbers of each step, so that nothing else is kept of a row: every pass sums one step, and goes
 * the way of each element again up to there. 1 - p of the largest element of a step comes from the
 * sum of the others, so that it keeps its digits, and it does not vanish: in logarithms it is as
 * far below 0 as the others are below the largest. ---- */

enum { SUBSET_STEP = SELECT, SUBSET_BACK = KHOT_ALL + 1 }; /* stages besides MINMAX, KHOT_WRITE, KHOT_ALL */
enum { SUBSET_MOST = 256 };                                /* steps */
#define SUBSET_LEAST -1e290                                /* scores are no lower */

/* Scores may be so large that logarithms of sums vanish in them, so sums are kept relative to a
 * score. */
typedef struct subset_step {
  /* the first largest element and its score; sum of e^(score - top), and log(1 - p) of that
   * element */
  double index, top, all, rest;
  double second, others; /* the largest score of the others, and their sum of e^(score - second) */
  double pull, push;     /* of the gradient: sum of p dy - A p / (1 - p), but for the largest; its A p */
} subset_step;

SMI subset_step *subset_steps(const row_state *st) { return (subset_step *)(void *)(uintptr_t)st->list; }

/* What an element is in each step: its weight, and its share of all but the largest element. */
typedef struct subset_way {
  double p[SUBSET_MOST], share[SUBSET_MOST];
} subset_way;

/* log(1 - p), p at most about 1 / 2 */
SMI double subset_rest(double p) {
  const double u = 1 - p;
  return d_log(u, ((1 - u) - p) / u);
}
/* Goes through `count` steps; the score after them. */
static double subset_walk(const subset_step *steps, size_t count, double index, double a, double t,
                          bool shares, subset_way *w) {
  for (size_t j = 0; j < count; j++) {
    const subset_step *step = steps + j;
    if (index == step->index) {
      w->p[j] = 1 / step->all;
      a += step->rest;
      continue;
    }
    if (shares) w->share[j] = d_exp(a / t - step->second) / step->others;
    w->p[j] = d_exp(a / t - step->top) / step->all;
    if (w->p[j] > 0) a += subset_rest(w->p[j]);
  }
  return a / t;
}

typedef struct subset_state {
  set_state set;
  double valid, infinite; /* elements of the row */
  size_t steps;           /* that are summed */
  size_t back;            /* the step whose pull and push are summed */
  /* of the step that is summed: the largest score and its element, the largest of the others, and
   * their sum of e^(score - second) */
  double top, index, second, others;
} subset_state;
ROW_OWN_STATE(subset_state, subset_of)

/* Adds one element to the step that is summed. */
SMI void subset_see(row_state *st, double s, double index) {
  subset_state *own = subset_of(st);
  double other = s;
  if (s > own->top) {
    other = own->top;
    own->top = s, own->index = index;
  }
  if (!(other > (double)-R_INF)) return;
  if (other > own->second) {
    own->others = own->others * d_exp(own->second - other) + 1;
    own->second = other;
  } else own->others += d_exp(other - own->second);
}
static void subset_open(row_state *st) {
  subset_state *own = subset_of(st);
  own->top = own->second = (double)-R_INF;
  own->others = 0;
}
static void subset_close(row_state *st) {
  subset_state *own = subset_of(st);
  subset_step *step = subset_steps(st) + own->steps++;
  const double away = own->second - own->top, odds = own->others > 0 ? own->others * d_exp(away) : 0;
  *step = (subset_step){
      .index = own->index, .top = own->top, .all = 1 + odds, .second = own->second, .others = own->others};
  step->rest = own->others > 0 ? away + (d_log(own->others, 0) - d_log1p(odds)) : 0;
}

/* What the steps after step j contribute to the gradient of a^j: A of step j + 1 (j = -1: the
 * gradient of x), starting from the last. */
static double subset_return(const subset_step *steps, int64_t count, int64_t j, double index, double dy,
                            double t, const subset_way *w) {
  double back = 0;
  for (int64_t i = count - 1; i > j; i--) {
    const subset_step *step = steps + i;
    const double p = w->p[i], plain = p > 0 ? p * (dy - step->pull) : 0;
    const double own = index == step->index ? -back * p : step->push * w->share[i] - back * (p / (1 - p));
    back += (plain + own) / t;
  }
  return back;
}
static void subset_back(row_state *st, double index, double dy, double t, const subset_way *w) {
  const subset_state *own = subset_of(st);
  subset_step *steps = subset_steps(st), *step = steps + own->back;
  const double back = subset_return(steps, (int64_t)own->steps, (int64_t)own->back, index, dy, t, w),
               p = w->p[own->back];
  if (p > 0) step->pull += p * dy;
  if (index == step->index) step->push = back * p;
  else step->pull -= back * (p / (1 - p));
}

static void subset_minmax(const row_call *c, const real *x, row_state *st) {
  subset_state *own = subset_of(st);
  minmax_part(x, c->count, c->start, st);
  for (size_t i = 0; i < c->count; i++) own->valid += x[i] > -R_INF, own->infinite += x[i] > R_MAX;
}
static void subset_elements(const row_call *c, row_state *st, const double *h, size_t first, size_t cnt) {
  const double t = c->params[NOISE_TEMPERATURE];
  const bool gradient = c->src[SRC_DY] != NULL;
  const size_t steps = subset_of(st)->steps;
  real *to = (real *)c->dst[0] + (first - c->origin);
  const real *dy = gradient ? (const real *)c->src[SRC_DY] + (first - c->origin) : NULL;
  subset_way w;
  for (size_t j = 0; j < cnt; j++) {
    const bool valid = h[j] > (double)-R_INF;
    const double index = (double)(first + j), a = h[j] < SUBSET_LEAST ? SUBSET_LEAST : h[j];
    if (!valid && st->stage != KHOT_WRITE) continue;
    const double s = valid ? subset_walk(subset_steps(st), steps, index, a, t, gradient, &w) : 0;
    if (st->stage == SUBSET_STEP) subset_see(st, s, index);
    else if (st->stage == SUBSET_BACK) subset_back(st, index, (double)dy[j], t, &w);
    else if (gradient)
      to[j] = valid
                  ? r_clean(subset_return(subset_steps(st), (int64_t)steps, -1, index, (double)dy[j], t, &w))
                  : 0;
    else {
      double sum = 0;
      for (size_t i = 0; valid && i < steps; i++) sum += w.p[i];
      to[j] = r_clean(sum);
    }
  }
}
static void subset_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = (const real *)c->src[NOISE_X] + (c->start - c->origin);
  const draws d = {(uint64_t)c->params[NOISE_SEED], (uint64_t) * (const int64_t *)c->src[NOISE_STREAM],
                   PURPOSE_GUMBEL_TOPK};
  double h[LANES];
  serial_parts(c, parts);
  if (st->stage == MINMAX) subset_minmax(c, x, st);
  else if (st->stage == KHOT_ALL)
    fill((real *)c->dst[0] + (c->start - c->origin), c->count, (real)set_of(st)->fill);
  else
    for (size_t i = 0; i < c->count; i += LANES) {
      const size_t cnt = (size_t)lanes_left(c->count - i);
      noise_add(x + i, cnt, c->start + i, minmax_of(st)->max, 1, 1, &d, h);
      subset_elements(c, st, h, c->start + i, cnt);
    }
}
static void subset_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  *subset_of(st) = (subset_state){.set = {.row = MINMAX_NONE}};
}
#define subset_merge serial_merge
/* True while there are steps to sum: as many as there are valid elements, or +inf that share the
 * mass, at most. */
static bool subset_summed(const row_call *c, row_state *st) {
  const subset_state *own = subset_of(st);
  const double most = own->set.row.max > (double)R_MAX ? own->infinite : own->valid;
  if (st->stage == SUBSET_STEP) subset_close(st);
  st->stage = SUBSET_STEP;
  subset_open(st);
  return (double)own->steps < c->params[KHOT_K] && (double)own->steps < most;
}
static bool subset_next(const row_call *c, row_state *st) {
  if (st->writes) return false;
  if (set_invalid(c, st)) return khot_fill(c, st, false);
  if (subset_summed(c, st)) return true;
  st->stage = KHOT_WRITE;
  return st->writes = true;
}
static const row_kernel subset_kernel = PROGRAM(subset);

#define subset_grad_begin subset_begin
#define subset_grad_pass subset_pass
static bool subset_grad_next(const row_call *c, row_state *st) {
  if (st->writes) return false;
  if (set_invalid(c, st)) return khot_fill(c, st, true);
  if (st->stage != SUBSET_BACK) {
    if (subset_summed(c, st)) return true;
    subset_of(st)->back = subset_of(st)->steps;
    st->stage = SUBSET_BACK;
  }
  if (subset_of(st)->back-- > 0) return true;
  st->stage = KHOT_WRITE;
  return st->writes = true;
}
SERIAL_KERNEL(subset_grad)

static const row_kernel *relaxed_khot_dispatch(const row_call *c) {
  return c->params[HARD] == 0 ? &subset_kernel : &khot_hard_kernel;
}
static const row_kernel relaxed_khot_kernel = {.engine = &choice_engine,
                                               .body = &(const row_choice){relaxed_khot_dispatch, -1}};

OPERATOR_WITH(relaxed_khot, relaxed_khot, subset_grad, ROW_LIST, sizeof(set_work))
