/* loss/ops_sparse.c - the losses that go with sparsemax and entmax: zero as soon as the target's weight is 1. See ops.c and engine/threshold.h.
 *
 * With y the weights, q = alpha - 1, d = x - max x and u as in threshold.h, log y_i = log(1 + q (d_i + u)) / q, and the Fenchel-Young loss of the
 * Tsallis entropy, H(y) + y.x - x_t, becomes
 *     ((y_t^alpha - 1) + sum_(j != t) y_j^alpha) / alpha - (d_t + u),  y_t^alpha - 1 by expm1,
 * in which nothing cancels but what is of second order. Its gradient is y - [j = t]. */
#include "engine/threshold.h"

enum { LOSS_X, LOSS_TARGET };                   /* inputs */
enum { LOSS_VALUE, LOSS_DX };                   /* outputs */
enum { LOSS_G = THRESHOLD_ONE + 1, LOSS_BACK }; /* of consts.v: what the gradient is multiplied by; whether it is all there is */
enum { NOTE_X, NOTE_RULE };                     /* of row_state.note: x of the target; the loss of a row that needs a rule */

SMI int64_t target_of(const void *port) { return *(const int64_t *)port; }

SMI double d_expm1(double z) {
  if (z > 0.3 || z < -0.3) return d_exp(z) - 1;
  double sum = 0;
  for (int m = 15; m > 1; m--) sum = (sum + 1) * z / m; /* e^z = 1 + z (1 + z / 2 (1 + z / 3 (...))) */
  return z * (1 + sum);
}
/* y^power - 1, from d + u. */
SMI double power_less_one(const threshold_shape *t, double away, double power) {
  double w = t->kappa * away;
  if (!(w > -1)) return -1;
  return d_expm1(power * t->power * (w > -0.29 ? d_log_1pf(w, 0, 0) : d_log(1 + w, 0)));
}

NOINLINE void sparse_group(const span *on, const consts *with, const sum_row *r, size_t first, size_t n, row_part *part) {
  const span s = *on;
  const consts k = *with;
  const real power = k.v[THRESHOLD_POWER];
  const threshold_shape shape = {.kappa = (double)k.v[THRESHOLD_KAPPA], .power = 1 / (double)k.v[THRESHOLD_KAPPA]};
  const int64_t target = target_of(s.src[LOSS_TARGET]) - (int64_t)s.origin, here = target - (int64_t)first;
  const bool hit = here >= 0 && here < (int64_t)n;
  const real x = hit ? s.src[LOSS_X][target] : 0, g = k.v[LOSS_G];
  const vreal own = v_set1(hit ? (real)power_less_one(&shape, (double)x - (double)r->max + r->sum2, 1) : 0);
  real *const dx = k.v[LOSS_BACK] != 0 ? s.dst[LOSS_X] : s.dst[LOSS_DX];
  vreal acc[VPB];
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = v_set1(0);
#define STEP(u, i, cnt) \
  { \
    vreal log, score = at(s.src[LOSS_X], i, cnt), \
               v = threshold_v((cnt) < LANES ? v_select(lanes_below(cnt), score, v_set1(-R_INF)) : score, &k, \
                               power == 1 || power == 2 ? NULL : &log); \
    vreal y = power == 1 ? v : power == 2 ? v_mul(v, v) : threshold_power(v, log, power); \
    vmask is_target = v_eq(v_iota(), v_set1((real)(target - (int64_t)(i)))); \
    acc[u] = v_add(acc[u], v_select(is_target, v_set1(0), v_mul(y, v))); \
    if (dx) put(dx, i, cnt, v_clean(v_mul(v_select(is_target, own, y), v_set1(g)))); \
  }
  WALK(first, n, STEP)
#undef STEP
  *part = (row_part){.index = -1, .sum = (double)v_fold(acc), .hit = hit, .pick = {(double)x}};
}

/* ---- the row program: that of threshold.h, and the loss at its end ---- */

static void sparse_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  threshold_fold(c, st, parts, count);
  for (size_t g = 0; st->mode == SUM_EMIT && g < count; g++)
    if (parts[g].hit) st->note[NOTE_X] = parts[g].pick[0];
}
static inline void sparse_put(const threshold_body *b, const row_call *c, const row_state *st) {
  const span s = span_of(c, 0);
  const threshold_shape t = b->shape(c, &s);
  double alpha = t.kappa + 1, away = st->note[NOTE_X] - st->max + st->sum2;
  double loss = st->mode == SUM_FILL ? st->note[NOTE_RULE] : (power_less_one(&t, away, alpha) + st->other) / alpha - away;
  s.dst[LOSS_VALUE][0] = r_clean(loss);
}
static inline bool sparse_next(const threshold_body *b, const row_call *c, row_state *st, bool back) {
  const bool wrote = st->writes;
  row_call own = *c;
  own.on_inf = SMX_INF_NAN; /* the loss has no limit */
  bool more = threshold_next(b, &own, st);
  if (!wrote && st->mode == SUM_FILL) {
    st->note[NOTE_RULE] = st->other;
    if (st->empty) st->other = 0; /* the gradient */
  }
  if (!wrote && st->mode == SUM_EMIT) st->reverse = false; /* the sum is in index order */
  if (wrote && !more && !back) sparse_put(b, c, st);
  return more;
}
#define SPARSE_KERNEL(name, back) \
  static void name##_begin(const row_call *c, row_state *st) { sum_begin(&name##_body.sum, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { threshold_pass(&name##_body, c, st, parts); } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { sparse_fold(c, st, parts, count); } \
  static bool name##_next(const row_call *c, row_state *st) { return sparse_next(&name##_body, c, st, back); } \
  static void name##_rows(row_call *c); \
  static const row_kernel name##_kernel = KERNEL(name); \
  static void name##_rows(row_call *c) { run_rows(&name##_kernel, c); }

/* A row whose target is ignored: 0, whatever it holds. */
SMI vreal ignored_emit(const span *s, const consts *k, const sum_row *r, size_t i, int cnt) {
  real *dx = k->v[LOSS_BACK] != 0 ? s->dst[LOSS_X] : s->dst[LOSS_DX];
  (void)r;
  if (dx) put(dx, i, cnt, v_set1(0));
  return v_set1(0);
}
SUM_EMIT_OF(ignored_out, ignored_emit)
SMI void ignored_row(const span *s, const consts *k, const sum_row *r, double post) {
  (void)r;
  (void)post;
  if (k->v[LOSS_BACK] == 0) s->dst[LOSS_VALUE][0] = 0;
}
SMI bool ignores(const row_call *c) { return (double)target_of(c->src[LOSS_TARGET]) == c->params[0]; }

/* The four kernels of a loss from NAME_shape. */
#define SPARSE_WAY(name, kind, back, outputs) \
  SMI consts name##_setup(const row_call *c, const span *s) { \
    consts k = {{0}}; \
    threshold_shape t = kind##_shape(c, s); \
    threshold_shape_consts(&k, &t); \
    k.v[LOSS_G] = back ? *s->src[SRC_DY] : (real)c->share; \
    k.v[LOSS_BACK] = back; \
    return k; \
  } \
  static const threshold_body name##_loss_body = { \
      .shape = kind##_shape, \
      .sum = {.setup = name##_setup, .settle = threshold_settle, .emit = sparse_group, .full = outputs, .max = true, .gradient = back}}; \
  SPARSE_KERNEL(name##_loss, back) \
  static const sum_body name##_ignored_body = {.setup = name##_setup, .emit = ignored_out, .row = ignored_row, .full = outputs}; \
  SUM_KERNEL(name##_ignored) \
  static const row_kernel *name##_pick(const row_call *c) { return ignores(c) ? &name##_ignored_kernel : &name##_loss_kernel; } \
  PICK_KERNEL(name, LOSS_TARGET)

SMI threshold_shape sparsemax_shape(const row_call *c, const span *s) {
  (void)c;
  (void)s;
  return (threshold_shape){1, 1, 1};
}
SMI threshold_shape entmax_shape(const row_call *c, const span *s) {
  double q = c->params[1] - 1;
  (void)s;
  return (threshold_shape){.kappa = q, .power = 1 / q, .norm = 1};
}
SPARSE_WAY(sparsemax, sparsemax, false, 1u << LOSS_DX)
SPARSE_WAY(sparsemax_grad, sparsemax, true, 1u)
SPARSE_WAY(entmax, entmax, false, 1u << LOSS_DX)
SPARSE_WAY(entmax_grad, entmax, true, 1u)

OPERATOR(sparsemax_loss, sparsemax, sparsemax_grad)
OPERATOR(entmax_loss, entmax, entmax_grad)
