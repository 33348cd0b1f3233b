/* sample/ops_join.c - several sources of logits, or several logits of one source, joined:
 * closed_set_softmax, layer_fuse_logits, crossmax. See ops.c. */
#include "decode.h"
#include "engine/scores.h"

/* Adds to element `index` of a gradient, if the pass sees it. */
static void add_grad(const row_call *c, int port, int64_t index, double value) {
  const int64_t i = index - (int64_t)c->start;
  if (!c->dst[port] || i < 0 || i >= (int64_t)c->count) return;
  real *to = part_to(c, port) + i;
  *to = r_clean((double)*to + value);
}

/* ---- closed_set_softmax: p_j = softmax of x[ids]_j, score = sum p_j v_j ---- */

enum { X, IDS, VALUE }; /* inputs */
enum { WEIGHT, SCORE }; /* outputs */
#define set_begin named_begin
static void set_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  named_minmax(c, st);
}
static void set_fill(const row_call *c, real value) {
  fill(c->dst[WEIGHT], named_count(c), value);
  if (c->dst[SCORE]) *(real *)c->dst[SCORE] = value;
}
static bool set_next(const row_call *c, row_state *st) {
  const real *value = c->src[VALUE];
  double sum = 0, mean = 0;
  st->empty = minmax_empty(st);
  if (minmax_nan(c, st)) set_fill(c, r_nan());
  else if (st->empty && c->on_empty != SMX_EMPTY_ERROR)
    set_fill(c, c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
  if (minmax_nan(c, st) || st->empty) return false;
  for (size_t j = 0; j < named_count(c); j++)
    st->list[j] = st->list[j] > (double)-R_INF ? d_exp(minmax_away(st, st->list[j])) : 0;
  BLOCK_SUM(sum, named_count(c), j, st->list[j])
  for (size_t j = 0; j < named_count(c); j++) ((real *)c->dst[WEIGHT])[j] = r_clean(st->list[j] / sum);
  if (!c->dst[SCORE]) return false;
  BLOCK_SUM(mean, named_count(c), j,
            st->list[j] > 0 ? st->list[j] * (value ? (double)value[j] : (double)j) : 0)
  *(real *)c->dst[SCORE] = r_clean(mean / sum);
  return false;
}
SERIAL_KERNEL(set)

/* With a_j = dy_j + dscore v_j: dx at id j is p_j (a_j - sum p a). */
static double set_upstream(const row_call *c, size_t j) {
  const real *value = c->src[VALUE], *dy = c->src[SRC_DY + WEIGHT], *dscore = c->src[SRC_DY + SCORE];
  return (double)dy[j] + (dscore ? (double)*dscore * (value ? (double)value[j] : (double)j) : 0);
}
typedef struct set_grad_state {
  double mean; /* sum p a */
} set_grad_state;
ROW_OWN_STATE(set_grad_state, set_grad_of)
static void set_grad_begin(const row_call *c, row_state *st) {
  const real *p = c->src[SRC_Y + WEIGHT];
  serial_begin(st);
  set_grad_of(st)->mean = 0;
  BLOCK_SUM(set_grad_of(st)->mean, named_count(c), j, p[j] != 0 ? (double)p[j] * set_upstream(c, j) : 0)
  st->writes = true;
}
static void set_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *p = c->src[SRC_Y + WEIGHT];
  const double mean = set_grad_of(st)->mean;
  serial_parts(c, parts);
  fill(part_to(c, X), c->count, mean == mean ? 0 : r_nan());
  for (size_t j = 0; j < named_count(c) && mean == mean; j++)
    if (p[j] != 0 && named(c, j))
      add_grad(c, X, ((const int64_t *)c->src[IDS])[j], (double)p[j] * (set_upstream(c, j) - mean));
}
static bool set_grad_next(const row_call *c, row_state *st) { return false; }
SERIAL_KERNEL(set_grad)

/* ---- layer_fuse_logits ----
 *
 * y = log_softmax(x) + a log_softmax(l) where p(x) >= th max p(x), -inf elsewhere */

enum { LAYER = 1 };                                              /* input, beside X */
enum { FUSE_WEIGHT, FUSE_THRESHOLD };                            /* parameters */
enum { FUSE_LAST, FUSE_LAYER, FUSE_SUM, FUSE_WRITE, FUSE_FILL }; /* stages */

static const exp_body fuse_body = {LSE_BODY(lse_scalar)};

/* The call whose row is the one that is being summed, and whose result goes to lse. */
static row_call fuse_call(const row_call *c, const row_state *st, real *lse) {
  row_call own = *c;
  if (st->stage == FUSE_LAYER) own.src[X] = c->src[LAYER];
  own.dst[X] = lse;
  return own;
}

enum { FUSE_ROW, FUSE_OTHER }; /* x, and the layer */
typedef struct fuse_state {
  double lse[2], bar; /* of x and of the layer; the smallest plausible x */
  double fill;        /* of a row that has the same everywhere */
  double upstream;    /* sum of g */
} fuse_state;
ROW_OWN_STATE(fuse_state, fuse_of)

static bool fuse_plausible(const row_state *st, real x, real l) {
  return (double)x >= fuse_of(st)->bar && x > -R_INF && l > -R_INF;
}
static double fuse_log(const row_state *st, real x, int which) { return (double)x - fuse_of(st)->lse[which]; }

static void fuse_begin(const row_call *c, row_state *st) {
  exp_begin(&fuse_body, c, st);
  st->stage = FUSE_LAST;
  *fuse_of(st) = (fuse_state){0};
}
static bool fuse_sums_pass(const row_call *c, row_state *st, row_part *parts) {
  if (st->stage != FUSE_LAST && st->stage != FUSE_LAYER) return false;
  const row_call own = fuse_call(c, st, NULL);
  exp_pass(&fuse_body, &own, st, parts);
  return true;
}
/* 1: there is more to sum; 0: both rows are ordinary; -1: fill both. */
static int fuse_sums_next(const row_call *c, row_state *st) {
  real lse = -R_INF;
  const row_call own = fuse_call(c, st, &lse);
  if (exp_next(&fuse_body, &own, st)) return 1;
  const bool last = st->stage == FUSE_LAST;
  st->empty = false;
  fuse_of(st)->fill = lse <= R_MAX ? (double)-R_INF : (double)r_nan();
  if (!(lse > -R_INF && lse <= R_MAX)) return -1;
  const span s = span_of(&own, 0);
  const consts none = {{0}};
  const exp_row r = exp_row_of(&fuse_body, &s, &none, st);
  fuse_of(st)->lse[last ? FUSE_ROW : FUSE_OTHER] = lse_of(&r);
  if (!last) return 0;
  const double th = c->params[FUSE_THRESHOLD];
  fuse_of(st)->bar = th > 0 ? r.max + d_log(th, 0) : (double)-R_INF;
  exp_begin(&fuse_body, c, st);
  st->stage = FUSE_LAYER;
  return 1;
}

static void fuse_pass(const row_call *c, row_state *st, row_part *parts) {
  if (fuse_sums_pass(c, st, parts)) return;
  const real *x = part_at(c, X), *l = part_at(c, LAYER);
  const double a = c->params[FUSE_WEIGHT];
  real *y = part_to(c, 0);
  serial_parts(c, parts);
  for (size_t i = 0; i < c->count; i++) {
    double v = fuse_of(st)->fill;
    if (st->stage == FUSE_WRITE)
      v = fuse_plausible(st, x[i], l[i]) ? fuse_log(st, x[i], FUSE_ROW) + a * fuse_log(st, l[i], FUSE_OTHER)
                                         : (double)-R_INF;
    y[i] = (real)v;
  }
}
static void fuse_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == FUSE_LAST || st->stage == FUSE_LAYER) exp_merge(c, st, parts, count);
}
static bool fuse_next(const row_call *c, row_state *st) {
  if (st->stage >= FUSE_SUM) return false;
  const int sums = fuse_sums_next(c, st);
  if (sums > 0) return true;
  st->stage = sums == 0 ? FUSE_WRITE : FUSE_FILL;
  return st->writes = true;
}
static const row_kernel fuse_kernel = PROGRAM(fuse);

/* dx = g - p sum g, dl = a (g - p_l sum g), where g is dy in the plausible set and 0 elsewhere. */
static void fuse_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  if (fuse_sums_pass(c, st, parts)) return;
  const real *x = part_at(c, X), *l = part_at(c, LAYER), *dy = part_at(c, SRC_DY);
  const double a = c->params[FUSE_WEIGHT];
  serial_parts(c, parts);
  if (st->stage == FUSE_SUM) {
    BLOCK_SUM(fuse_of(st)->upstream, c->count, i, fuse_plausible(st, x[i], l[i]) ? (double)dy[i] : 0)
    return;
  }
  real *dx = part_to(c, X), *dl = c->dst[LAYER] ? part_to(c, LAYER) : NULL;
  const double sum = fuse_of(st)->upstream;
  for (size_t i = 0; i < c->count; i++) {
    const double g = fuse_plausible(st, x[i], l[i]) ? (double)dy[i] : 0;
    double to_x = g - d_exp(fuse_log(st, x[i], FUSE_ROW)) * sum,
           to_l = a * (g - d_exp(fuse_log(st, l[i], FUSE_OTHER)) * sum);
    if (st->stage == FUSE_FILL) to_x = to_l = fuse_of(st)->fill;
    dx[i] = r_clean(to_x);
    if (dl) dl[i] = r_clean(to_l);
  }
}
static bool fuse_grad_next(const row_call *c, row_state *st) {
  if (st->writes) return false;
  if (st->stage == FUSE_SUM) {
    st->stage = FUSE_WRITE;
    return st->writes = true;
  }
  const int sums = fuse_sums_next(c, st);
  if (sums > 0) return true;
  if (sums < 0) {
    if (fuse_of(st)->fill == (double)-R_INF) fuse_of(st)->fill = 0; /* nothing is plausible */
    st->stage = FUSE_FILL;
    return st->writes = true;
  }
  st->serial = true;
  st->stage = FUSE_SUM;
  return true;
}
static const row_kernel fuse_grad_kernel = {
    .engine = &program_engine,
    .body = &(const row_program){fuse_begin, fuse_grad_pass, fuse_merge, fuse_grad_next, NULL}};
#define fuse_grad_begin fuse_begin
#define fuse_grad_merge fuse_merge

/* ---- crossmax: of a = x - top, the k-th largest less the largest ---- */

enum { TOP = 1 }; /* input, beside X */
enum { RANK };    /* parameter: 0 = the lower median */
/* stages; CROSS_INDEX: where the one that was selected is */
enum { CROSS_MINMAX, CROSS_SELECT, CROSS_INDEX, CROSS_WRITE };

static void cross_keys(const row_call *c, size_t g, size_t n, real *keys) {
  const real *x = part_at(c, X) + g, *top = c->src[TOP] ? part_at(c, TOP) + g : NULL;
  for (size_t i = 0; i < n; i++) keys[i] = top ? (real)((double)x[i] - (double)top[i]) : x[i];
}
SMI uint64_t cross_rank(const row_call *c) {
  const uint64_t rank = (uint64_t)c->params[RANK], n = c->n;
  return rank == 0 ? n / 2 + 1 : rank < n ? rank : n;
}

typedef struct cross_state {
  minmax row;
  bool none; /* of the gradient: it is the same everywhere, */
  real fill; /* this */
} cross_state;
ROW_OWN_STATE(cross_state, cross_of)
static void cross_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  *cross_of(st) = (cross_state){.row = MINMAX_NONE};
}
enum { CROSS_PIECE = 512 }; /* elements at a time */
static size_t cross_size(size_t g, size_t n) { return n - g < CROSS_PIECE ? n - g : CROSS_PIECE; }
static void cross_pass(const row_call *c, row_state *st, row_part *parts) {
  real keys[CROSS_PIECE];
  serial_parts(c, parts);
  for (size_t g = 0; g < c->count; g += CROSS_PIECE) {
    const size_t n = cross_size(g, c->count);
    cross_keys(c, g, n, keys);
    if (st->stage == CROSS_MINMAX) minmax_part(keys, n, c->start + g, st);
    else if (st->mode == RADIX_COUNT) radix_count(keys, n, st);
    else radix_ties(keys, c->start + g, n, st);
  }
}
/* True while the one of that rank is still looked for. */
static bool cross_find(const row_call *c, row_state *st) {
  if (st->stage == CROSS_MINMAX) {
    const double max = minmax_of(st)->max;
    if (st->nan || c->n == 0 || !(max > (double)-R_INF && max <= (double)R_MAX)) return false;
    radix_begin(st, cross_rank(c));
    st->stage = CROSS_SELECT;
    return true;
  }
  return radix_next(st);
}
static bool cross_next(const row_call *c, row_state *st) {
  if (cross_find(c, st)) return true;
  const bool special = st->stage == CROSS_MINMAX; /* NaN, or no largest one to compare with */
  const double away = st->cutoff.value - minmax_of(st)->max;
  *(real *)c->dst[0] = !special ? r_clean(away) : minmax_empty(st) ? -R_INF : r_nan();
  return false;
}
SERIAL_KERNEL(cross)

/* dx = dy at the one that was selected, less dy at the largest; dtop = -dx. */
static void cross_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  if (st->stage < CROSS_INDEX) {
    cross_pass(c, st, parts);
    return;
  }
  serial_parts(c, parts);
  if (st->stage == CROSS_INDEX) {
    real keys[CROSS_PIECE];
    for (size_t g = 0; g < c->count; g += CROSS_PIECE) {
      const size_t n = cross_size(g, c->count);
      cross_keys(c, g, n, keys);
      radix_ties(keys, c->start + g, n, st);
    }
    return;
  }
  const double dy = (double)*(const real *)c->src[SRC_DY];
  for (int port = X; port <= TOP; port++) {
    const double sign = port == X ? dy : -dy;
    if (!c->dst[port]) continue;
    fill(part_to(c, port), c->count, cross_of(st)->fill);
    if (cross_of(st)->none) continue;
    add_grad(c, port, st->cutoff.limit, sign);
    add_grad(c, port, minmax_of(st)->index, -sign);
  }
}
static bool cross_grad_next(const row_call *c, row_state *st) {
  if (st->stage == CROSS_WRITE) return false;
  if (st->stage < CROSS_INDEX && cross_find(c, st)) return true;
  if (st->stage == CROSS_SELECT &&
      st->mode == RADIX_COUNT) { /* it is the last of its equals, which `want` counts */
    st->stage = CROSS_INDEX;
    return true;
  }
  const bool special = st->stage == CROSS_MINMAX;
  cross_of(st)->none = special || !(st->cutoff.value > (double)-R_INF);
  cross_of(st)->fill = special && !minmax_empty(st) ? r_nan() : 0;
  st->stage = CROSS_WRITE;
  return st->writes = true;
}
#define cross_grad_begin cross_begin
SERIAL_KERNEL(cross_grad)

OPERATOR_WITH(closed_set_softmax, set, set_grad, ROW_LIST, 0)
OPERATOR(layer_fuse_logits, fuse, fuse_grad)
OPERATOR_WITH(crossmax, cross, cross_grad, ROW_LIST, 0)
