/* loss/ops_sparse.c - the losses of sparsemax, entmax and normmax, which are 0 as soon as the
 * target's weight is 1. See ops.c and engine/threshold.h.
 *
 * With y the weights, q = alpha - 1, d = x - max x and u as in threshold.h, log
 * y_i = log(1 + q (d_i + u)) / q, and the Fenchel-Young loss of the Tsallis entropy,
 * H(y) + y.x - x_t, becomes
 *
 *     ((y_t^alpha - 1) + sum_(j != t) y_j^alpha) / alpha - (d_t + u),  y_t^alpha - 1 by expm1,
 *
 * in which only terms of second order cancel. That of normmax, 1 - |y|_alpha + y.x - x_t, is
 * -(d_t + u). The gradient is y - [j = t]. */
#include "engine/threshold.h"

enum { LOSS_X, LOSS_TARGET, LOSS_SOFT }; /* inputs */
enum { LOSS_VALUE, LOSS_DX };            /* outputs */
/* of consts.v: the factor of the gradient; whether the gradient is the only output */
enum { LOSS_G = THRESHOLD_DOWN + 1, LOSS_BACK };
typedef struct sparse_state {
  double target, rule; /* x of the target; the loss of a row that needs a rule */
  double soft[ROW_SUMS];
} sparse_state;
ROW_OWN_STATE(sparse_state, sparse_state_of)

SMI int64_t target_of(const void *port) { return *(const int64_t *)port; }

SMI double d_expm1(double z) {
  if (z > 0.3 || z < -0.3) return d_exp(z) - 1;
  double sum = 0;
  for (int m = 15; m > 1; m--) sum = (sum + 1) * z / m; /* e^z = 1 + z (1 + z / 2 (1 + z / 3 (...))) */
  return z * (1 + sum);
}
/* y^power - 1, from d, r / kappa and u. */
SMI double power_less_one(const threshold_shape *t, double d, const double *found, double power) {
  const double v = t->kappa * (d + found[THRESHOLD_LIFT]), w = t->kappa * (d + found[THRESHOLD_BELOW]);
  if (!(v > 0)) return -1;
  return d_expm1(power * t->power * (w > -0.29 ? d_log_1pf(w, 0, 0) : d_log(v, 0)));
}
/* The weight of the target less 1; that of normmax is divided by the sum of all. */
SMI double target_less_one(const consts *k, const reduce_map_row *r, double x, bool norm) {
  const threshold_shape t = {.kappa = (double)k->v[THRESHOLD_KAPPA] + (double)k->v[THRESHOLD_KAPPA_L],
                             .power = (double)k->v[THRESHOLD_POWER] + (double)k->v[THRESHOLD_POWER_L]};
  const double less = power_less_one(&t, x - (double)r->max, r->found, 1);
  return norm ? (less + (1 - r->found[THRESHOLD_SUM])) / r->found[THRESHOLD_SUM] : less;
}
SMI vreal sparse_weight(vreal x, const consts *k, bool norm, vreal *v) {
  const real power = k->v[THRESHOLD_POWER];
  threshold_pair log = {0};
  *v = threshold_v(x, k, !norm && (power == 1 || power == 2) ? NULL : &log);
  if (norm) return v_mul(threshold_weight(*v, log, k), v_set1(k->v[THRESHOLD_INV]));
  return power == 1   ? *v
         : power == 2 ? v_mul(*v, *v)
                      : v_mul(threshold_weight(*v, log, k), v_set1(k->v[THRESHOLD_DOWN]));
}

SMI void sparse_group_of(const span *on, const consts *with, const reduce_map_row *r, bool norm, size_t first,
                         size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const int64_t target = target_of(s.src[LOSS_TARGET]) - (int64_t)s.origin, here = target - (int64_t)first;
  const bool hit = here >= 0 && here < (int64_t)n;
  const real x = hit ? s.src[LOSS_X][target] : 0, g = k.v[LOSS_G];
  const vreal own = v_set1(hit ? (real)target_less_one(&k, r, (double)x, norm) : 0);
  real *const dx = k.v[LOSS_BACK] != 0 ? s.dst[LOSS_X] : s.dst[LOSS_DX];
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    const vreal score = at(s.src[LOSS_X], i, cnt), \
                there = (cnt) < LANES ? v_select(lanes_below(cnt), score, v_set1(-R_INF)) : score; \
    vreal v, y = sparse_weight(there, &k, norm, &v); \
    vmask is_target = v_eq(v_iota(), v_set1((real)(target - (int64_t)(i)))); \
    acc[u] = v_add(acc[u], v_select(is_target, v_set1(0), v_mul(y, v))); \
    if (dx) put(dx, i, cnt, v_clean(v_mul(v_select(is_target, own, y), v_set1(g)))); \
  }
  FOR_EACH_VECTOR(first, n, STEP)
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(acc), .hit = hit, .target_inputs = {(double)x}};
}
NOINLINE void sparse_group(const span *s, const consts *k, const reduce_map_row *r, size_t first, size_t n,
                           row_part *part) {
  sparse_group_of(s, k, r, false, first, n, part);
}
NOINLINE void norm_group(const span *s, const consts *k, const reduce_map_row *r, size_t first, size_t n,
                         row_part *part) {
  sparse_group_of(s, k, r, true, first, n, part);
}

/* ---- the row program: that of threshold.h, and the loss at its end ---- */

static inline void sparse_put(const threshold_body *b, const row_call *c, const row_state *st) {
  const span s = span_of(c, 0);
  const threshold_shape t = b->shape(c, &s);
  const sparse_state *own = sparse_state_of(st);
  const double *found = st->reduce.found;
  const double alpha = t.kappa + 1, d = own->target - st->reduce.max, away = d + found[THRESHOLD_BELOW];
  /* the v in it are scaled by 2^grow */
  const double others = st->reduce.post * d_power_of_two(-(int)found[THRESHOLD_GROWN]);
  const double loss = st->mode == REDUCE_MAP_FILL ? own->rule
                      : b->scaled                 ? -away
                                  : (power_less_one(&t, d, found, alpha) + others) / alpha - away;
  s.dst[LOSS_VALUE][0] = r_clean(loss);
}
static bool sparse_step(const threshold_body *b, const row_call *c, row_state *st) {
  const bool wrote = st->writes;
  row_call own = *c;
  own.on_inf = SMX_INF_NAN; /* the loss has no limit */
  bool more = threshold_next(b, &own, st);
  if (!wrote && st->mode == REDUCE_MAP_FILL) {
    sparse_state_of(st)->rule = st->reduce.fill;
    if (st->empty) st->reduce.fill = 0; /* the gradient */
  }
  if (!wrote && st->mode == REDUCE_MAP_WRITE) st->reverse = false; /* the sum is in index order */
  if (wrote && !more && !b->sum.gradient) sparse_put(b, c, st);
  return more;
}

/* The engine; a body is a threshold_body. */
static void sparse_begin(const void *body, const row_call *c, row_state *st) {
  *sparse_state_of(st) = (sparse_state){0};
  reduce_map_begin(&((const threshold_body *)body)->sum, c, st);
}
static void sparse_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  threshold_pass(body, c, st, parts);
}
static void sparse_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  threshold_merge(c, st, parts, count);
  for (size_t g = 0; st->mode == REDUCE_MAP_WRITE && g < count; g++)
    if (parts[g].hit) sparse_state_of(st)->target = parts[g].target_inputs[0];
}
static bool sparse_next(const void *body, const row_call *c, row_state *st) {
  return sparse_step(body, c, st);
}
static const row_engine sparse_engine = {sparse_begin, sparse_pass, sparse_merge, sparse_next, run_rows};

/* ---- a distribution q as target ----
 *
 * With A = sum q, W = (sum y^alpha - 1) / alpha - u, which is y.x + H(y) less the largest score,
 * and r_j = q_j^(alpha - 1) - 1:
 *
 *     loss = A W + sum_j q_j (r_j / (alpha (alpha - 1)) - d_j),
 *     dx_j = A y_j - q_j,  dq_j = W - d_j + r_j / (alpha - 1) + 1 / alpha.
 *
 * Between the search for the threshold and the write loop a pass sums A, W and the loss. */

enum { SPARSE_SUMS = 200 };              /* a mode, beside those of threshold.h */
enum { SOFT_MASS, SOFT_AWAY, SOFT_ALL }; /* of sparse_state.soft */

/* What is known of a row in its groups. */
typedef struct soft_row {
  span s;
  consts k;
  real mass, level; /* A, W + 1 / alpha */
  bool back;
} soft_row;

/* q^kappa - 1; NaN where a negative q has no such power. */
SMI vreal soft_less_one(vreal q, real kappa) {
  const vreal one = v_set1(1), zero = v_set1(0);
  if (kappa == 1) return v_sub(q, one);
  const vmask some = m_not(v_lt(q, v_set1(R_TINY)));
  const vreal t = v_mul(v_log_scaled(v_select(some, q, one), zero), v_set1(kappa));
  const vreal e = v_expm1_pos(v_min(v_abs(t), v_set1(79)));
  const vreal r = v_select(v_lt(t, zero), v_sub(zero, v_div(e, v_add(e, one))), e);
  return v_select(some, r, v_select(v_lt(q, zero), v_set1(r_nan()), v_set1(-1)));
}
/* How far x is below the largest. */
SMI vreal soft_away(const soft_row *w, vreal x) { return v_sub(v_set1(w->k.v[THRESHOLD_TOP]), x); }
NOINLINE void soft_sums(const soft_row *w, size_t first, size_t n, double *sums) {
  const real kappa = w->k.v[THRESHOLD_KAPPA];
  const vreal per = v_set1(1 / (kappa * (kappa + 1))), zero = v_set1(0);
  vreal mass[VPB], away[VPB], all[VPB];
  for (int u = 0; u < VPB; u++) mass[u] = away[u] = all[u] = zero;
#define STEP(u, i, cnt) \
  { \
    vreal v, x = at(w->s.src[LOSS_X], i, cnt), q = at(w->s.src[LOSS_SOFT], i, cnt); \
    x = v_select(lanes_below(cnt), x, v_set1(-R_INF)), q = v_select(lanes_below(cnt), q, zero); \
    const vreal y = sparse_weight(x, &w->k, false, &v), \
                term = v_fma(soft_less_one(q, kappa), per, soft_away(w, x)); \
    mass[u] = v_add(mass[u], q); \
    away[u] = v_select(v_eq(q, zero), away[u], v_fma(q, term, away[u])); \
    all[u] = v_fma(y, v, all[u]); \
  }
  FOR_EACH_VECTOR_COMPACT(first, n, STEP, NEXT_LANES(mass) NEXT_LANES(away) NEXT_LANES(all))
#undef STEP
  sums[SOFT_MASS] = (double)v_fold(mass), sums[SOFT_AWAY] = (double)v_fold(away);
  sums[SOFT_ALL] = (double)v_fold(all);
}

NOINLINE void soft_write(const soft_row *w, size_t first, size_t n) {
  const real kappa = w->k.v[THRESHOLD_KAPPA];
  const vreal g = v_set1(w->k.v[LOSS_G]), mass = v_set1(w->mass), level = v_set1(w->level),
              per = v_set1(1 / kappa);
  real *const dx = w->s.dst[w->back ? LOSS_X : LOSS_DX], *const dq = w->back ? w->s.dst[LOSS_SOFT] : NULL;
#pragma GCC unroll 1
  for (size_t j = first; j < first + n; j += LANES) {
    const int cnt = lanes_left(first + n - j);
    const vreal x = at(w->s.src[LOSS_X], j, cnt), q = at(w->s.src[LOSS_SOFT], j, cnt);
    vreal v, y = sparse_weight(x, &w->k, false, &v);
    const vreal by = v_add(v_fma(soft_less_one(q, kappa), per, soft_away(w, x)), level);
    if (dx) put(dx, j, cnt, v_clean(v_mul(v_fma(mass, y, v_sub(v_set1(0), q)), g)));
    if (dq) put(dq, j, cnt, v_clean(v_select(v_eq(x, v_set1(-R_INF)), v_set1(0), v_mul(by, g))));
  }
}

/* W, from the sums. */
static inline double soft_level(const threshold_shape *t, const row_state *st) {
  /* the v in it are scaled by 2^grow */
  const double all =
      sparse_state_of(st)->soft[SOFT_ALL] * d_power_of_two(-(int)st->reduce.found[THRESHOLD_GROWN]);
  return (all - 1) / (t->kappa + 1) - st->reduce.found[THRESHOLD_BELOW];
}
static inline void soft_pass(const threshold_body *b, const row_call *c, row_state *st, row_part *parts) {
  if (st->mode != SPARSE_SUMS && st->mode != REDUCE_MAP_WRITE) {
    threshold_pass(b, c, st, parts);
    return;
  }
  soft_row w = {.s = span_of(c, 0), .back = b->sum.gradient};
  const threshold_shape t = b->shape(c, &w.s);
  const reduce_map_row r = {.max = (real)st->reduce.max, .found = st->reduce.found};
  w.k = b->sum.setup(c, &w.s);
  threshold_finalize(&w.k, &w.s, &r);
  if (st->mode == REDUCE_MAP_WRITE)
    w.mass = (real)sparse_state_of(st)->soft[SOFT_MASS],
    w.level = (real)(soft_level(&t, st) + 1 / (t.kappa + 1));
  const size_t base = c->start - c->origin;
  for (size_t g = 0; g * GROUP < c->count; g++) {
    const size_t i = base + g * GROUP, n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == SPARSE_SUMS) soft_sums(&w, i, n, parts[g].sums);
    else soft_write(&w, i, n);
  }
}
static void soft_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->mode != SPARSE_SUMS) threshold_merge(c, st, parts, count);
  for (size_t g = 0; st->mode == SPARSE_SUMS && g < count; g++)
    for (int a = 0; a < ROW_SUMS; a++) sparse_state_of(st)->soft[a] += parts[g].sums[a];
}
static inline bool soft_next(const threshold_body *b, const row_call *c, row_state *st) {
  const bool back = b->sum.gradient;
  const span s = span_of(c, 0);
  const threshold_shape t = b->shape(c, &s);
  if (st->mode == SPARSE_SUMS) {
    const double *sums = sparse_state_of(st)->soft;
    const double mass = sums[SOFT_MASS], loss = mass * soft_level(&t, st) + sums[SOFT_AWAY];
    const bool nan = !(mass - mass == 0) || loss != loss;
    if (!back) s.dst[LOSS_VALUE][0] = nan ? r_nan() : r_clean(loss);
    if (nan) reduce_map_fill_with(st, r_nan());
    else st->mode = REDUCE_MAP_WRITE;
    return st->writes = (c->outputs & b->sum.full) != 0;
  }
  if (st->writes) return false;
  row_call own = *c;
  own.on_inf = SMX_INF_NAN; /* the loss has no limit */
  const bool more = threshold_next(b, &own, st);
  if (st->mode == REDUCE_MAP_FILL) {
    if (!back) s.dst[LOSS_VALUE][0] = r_clean(st->reduce.fill);
    if (st->empty) st->reduce.fill = 0; /* the gradient */
    return more && (c->outputs & b->sum.full) != 0;
  }
  if (st->mode == REDUCE_MAP_WRITE) {
    st->mode = SPARSE_SUMS;
    st->writes = st->reverse = false;
  }
  return more;
}
/* The engine; a body is a threshold_body. */
static void soft_row_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  soft_pass(body, c, st, parts);
}
static void soft_row_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                           size_t count) {
  soft_merge(c, st, parts, count);
}
static bool soft_row_next(const void *body, const row_call *c, row_state *st) {
  return soft_next(body, c, st);
}
static const row_engine soft_engine = {sparse_begin, soft_row_pass, soft_row_merge, soft_row_next, run_rows};

/* A row whose target is ignored: 0, whatever it holds. */
SMI vreal ignored_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  real *dx = k->v[LOSS_BACK] != 0 ? s->dst[LOSS_X] : s->dst[LOSS_DX];
  if (dx) put(dx, i, cnt, v_set1(0));
  return v_set1(0);
}
REDUCE_MAP_WRITE_OF(ignored_out, ignored_write)
SMI void ignored_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (k->v[LOSS_BACK] == 0) s->dst[LOSS_VALUE][0] = 0;
}
SMI bool ignores(const row_call *c) { return (double)target_of(c->src[LOSS_TARGET]) == c->params[0]; }

SMI threshold_shape sparsemax_shape(const row_call *c, const span *s) { return (threshold_shape){1, 1, 1}; }
SMI threshold_shape entmax_shape(const row_call *c, const span *s) {
  double q = c->params[1] - 1;
  return (threshold_shape){.kappa = q, .power = 1 / q, .norm = 1};
}
SMI threshold_shape normmax_shape(const row_call *c, const span *s) {
  return (threshold_shape){.kappa = 1, .power = 1 / (c->params[1] - 1), .norm = c->params[1]};
}
SMI consts sparse_setup(const row_call *c, const span *s, const threshold_shape t, bool back) {
  consts k = {{0}};
  threshold_shape_consts(&k, &t);
  k.v[LOSS_G] = back ? *s->src[SRC_DY] : (real)c->share;
  k.v[LOSS_BACK] = back;
  return k;
}

/* ---- the operators: the loss with its gradient, and the gradient alone ---- */

SMI consts sparsemax_setup(const row_call *c, const span *s) {
  return sparse_setup(c, s, sparsemax_shape(c, s), false);
}
SMI consts sparsemax_grad_setup(const row_call *c, const span *s) {
  return sparse_setup(c, s, sparsemax_shape(c, s), true);
}
SMI consts entmax_setup(const row_call *c, const span *s) {
  return sparse_setup(c, s, entmax_shape(c, s), false);
}
SMI consts entmax_grad_setup(const row_call *c, const span *s) {
  return sparse_setup(c, s, entmax_shape(c, s), true);
}
SMI consts normmax_setup(const row_call *c, const span *s) {
  return sparse_setup(c, s, normmax_shape(c, s), false);
}
SMI consts normmax_grad_setup(const row_call *c, const span *s) {
  return sparse_setup(c, s, normmax_shape(c, s), true);
}

/* Of a class, of a row that is ignored, of a distribution, which normmax_loss has not. */
enum { SPARSE_HARD, SPARSE_IGNORED, SPARSE_SOFT, SPARSE_KERNELS };
SMI int sparse_which(const row_call *c) {
  return !c->src[LOSS_TARGET] ? SPARSE_SOFT : ignores(c) ? SPARSE_IGNORED : SPARSE_HARD;
}
/* The bodies and kernels NAME_kernels of KIND_shape. */
#define SPARSE_KERNELS_OF(name, kind, back, groups, divided, outputs) \
  static const threshold_body name##_body = {.shape = kind##_shape, \
                                             .scaled = divided, \
                                             .sum = {.setup = name##_setup, \
                                                     .finalize = threshold_finalize, \
                                                     .write = groups, \
                                                     .full = outputs, \
                                                     .max = true, \
                                                     .gradient = back}}; \
  static const reduce_map_body name##_ignored = { \
      .setup = name##_setup, .write = ignored_out, .row = ignored_row, .full = outputs}; \
  static const row_kernel name##_kernels[SPARSE_KERNELS] = { \
      [SPARSE_HARD] = {.engine = &sparse_engine, .body = &name##_body}, \
      [SPARSE_IGNORED] = {.engine = &reduce_map_engine, .body = &name##_ignored}, \
      [SPARSE_SOFT] = {.engine = &soft_engine, .body = &name##_body}};
SPARSE_KERNELS_OF(sparsemax, sparsemax, false, sparse_group, false, 1u << LOSS_DX)
SPARSE_KERNELS_OF(sparsemax_grad, sparsemax, true, sparse_group, false, 1u | 1u << LOSS_SOFT)
SPARSE_KERNELS_OF(entmax, entmax, false, sparse_group, false, 1u << LOSS_DX)
SPARSE_KERNELS_OF(entmax_grad, entmax, true, sparse_group, false, 1u | 1u << LOSS_SOFT)
SPARSE_KERNELS_OF(normmax, normmax, false, norm_group, true, 1u << LOSS_DX)
SPARSE_KERNELS_OF(normmax_grad, normmax, true, norm_group, true, 1u)

static const row_kernel *sparsemax_dispatch(const row_call *c) { return sparsemax_kernels + sparse_which(c); }
static const row_kernel *sparsemax_grad_dispatch(const row_call *c) {
  return sparsemax_grad_kernels + sparse_which(c);
}
static const row_kernel *entmax_dispatch(const row_call *c) { return entmax_kernels + sparse_which(c); }
static const row_kernel *entmax_grad_dispatch(const row_call *c) {
  return entmax_grad_kernels + sparse_which(c);
}
static const row_kernel *normmax_dispatch(const row_call *c) { return normmax_kernels + sparse_which(c); }
static const row_kernel *normmax_grad_dispatch(const row_call *c) {
  return normmax_grad_kernels + sparse_which(c);
}
static const row_kernel sparsemax_kernel = {.engine = &choice_engine,
                                            .body = &(const row_choice){sparsemax_dispatch, LOSS_TARGET}};
static const row_kernel sparsemax_grad_kernel = {
    .engine = &choice_engine, .body = &(const row_choice){sparsemax_grad_dispatch, LOSS_TARGET}};
static const row_kernel entmax_kernel = {.engine = &choice_engine,
                                         .body = &(const row_choice){entmax_dispatch, LOSS_TARGET}};
static const row_kernel entmax_grad_kernel = {.engine = &choice_engine,
                                              .body = &(const row_choice){entmax_grad_dispatch, LOSS_TARGET}};
static const row_kernel normmax_kernel = {.engine = &choice_engine,
                                          .body = &(const row_choice){normmax_dispatch, LOSS_TARGET}};
static const row_kernel normmax_grad_kernel = {
    .engine = &choice_engine, .body = &(const row_choice){normmax_grad_dispatch, LOSS_TARGET}};

OPERATOR_WITH(sparsemax_loss, sparsemax, sparsemax_grad, THRESHOLD_LIST, 0)
OPERATOR_WITH(entmax_loss, entmax, entmax_grad, THRESHOLD_LIST, 0)
OPERATOR_WITH(normmax_loss, normmax, normmax_grad, THRESHOLD_LIST, 0)
