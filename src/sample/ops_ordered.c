/* sample/ops_ordered.c - probabilities of ordered samples without replacement: gumbel_topk_logp,
 * the logarithm of the probability of a sample, and gumbel_topk_inclusion, the probability of each
 * element to be in it. See ops.c. */
#include "decode.h"
#include "engine/reduce_map.h"

/* ---- gumbel_topk_logp: log p = sum_j (x_(i_j) - L_j), L_j = log of the sum of e^x over what has
 * not been drawn before place j ----
 *
 * From the last place to the first, in double: with D = L_(j+1) - x_(i_j), the term is -softplus(D)
 * and L_j = x_(i_j) + softplus(D), so that nothing is subtracted from a sum. The rest, L_(k+1), is
 * summed over what is not drawn at all. */

enum { X, IDS };                                     /* inputs */
enum { ORDERED_MINMAX, ORDERED_SUM, ORDERED_WRITE }; /* stages */
/* elements of a sample: list holds their x, later their gradient, and behind these L */
enum { ORDERED_MOST = ROW_LIST / 2 };
enum { ORDERED_PIECE = 1024 }; /* elements at a time: whole blocks of a sum */

/* The elements of a piece, those that are drawn as -inf. */
static void ordered_rest(const row_call *c, const real *x, size_t first, size_t n, real *rest) {
  const int64_t *ids = c->src[IDS];
  memcpy(rest, x, n * sizeof *rest);
  for (size_t j = 0; j < named_count(c); j++)
    if (ids[j] >= (int64_t)first && ids[j] < (int64_t)(first + n)) rest[ids[j] - (int64_t)first] = -R_INF;
}

typedef struct ordered_state {
  minmax rest; /* of what is not drawn */
  double sum;  /* of e^(x - max) over it */
  double last; /* L of the last place */
  double all;  /* sum_j e^(last - L_j) over the places; 0 where nothing has a gradient */
} ordered_state;
ROW_OWN_STATE(ordered_state, ordered_of)
static void ordered_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  st->stage = ORDERED_MINMAX;
  *ordered_of(st) = (ordered_state){.rest = MINMAX_NONE};
}
/* The sums, and in the list the x of what is drawn. */
static void ordered_sums(const row_call *c, row_state *st) {
  const int64_t *ids = c->src[IDS];
  const real *x = part_at(c, X);
  real rest[ORDERED_PIECE];
  for (size_t j = 0; st->stage == ORDERED_MINMAX && j < named_count(c); j++) {
    const int64_t i = ids[j] - (int64_t)c->start;
    if (i >= 0 && i < (int64_t)c->count) st->list[j] = (double)x[i];
  }
  for (size_t g = 0; g < c->count; g += ORDERED_PIECE) {
    const size_t n = c->count - g < ORDERED_PIECE ? c->count - g : ORDERED_PIECE;
    for (size_t i = 0; i < n; i++) st->nan |= !(x[g + i] <= R_MAX);
    ordered_rest(c, x + g, c->start + g, n, rest);
    if (st->stage == ORDERED_MINMAX) minmax_part(rest, n, 0, st);
    else
      BLOCK_SUM(ordered_of(st)->sum, n, i,
                rest[i] > -R_INF ? d_exp((double)rest[i] - ordered_of(st)->rest.max) : 0)
  }
}
static void ordered_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  ordered_sums(c, st);
}
/* The logarithm. The list gets the gradients of what is drawn, 1 - e^(x_m - L_m) A_m with
 * A_m = 1 + e^(L_m - L_(m - 1)) A_(m - 1) over the places before. */
static double ordered_value(const row_call *c, row_state *st) {
  ordered_state *own = ordered_of(st);
  double *after = st->list + ORDERED_MOST, log = 0, places = 0, last = 0,
         l = own->sum > 0 ? own->rest.max + d_log(own->sum, 0) : (double)-R_INF;
  for (size_t j = named_count(c); j-- > 0;) {
    if (!named(c, j)) continue;
    const double x = st->list[j], term = d_softplus(l - x);
    if (x == (double)-R_INF) return x; /* nothing has a gradient */
    log -= term;
    after[j] = l = x + term;
  }
  for (size_t j = 0; j < named_count(c); j++) {
    if (!named(c, j)) continue;
    places = 1 + (places > 0 ? places * d_exp(after[j] - last) : 0);
    last = after[j];
    st->list[j] = 1 - d_exp(st->list[j] - last) * places;
  }
  own->last = last;
  own->all = places;
  return log;
}
/* True while there is more to sum. */
static bool ordered_summed(row_state *st) { return st->stage++ == ORDERED_MINMAX && !st->nan; }
static bool ordered_next(const row_call *c, row_state *st) {
  if (ordered_summed(st)) return true;
  *(real *)c->dst[0] = st->nan ? r_nan() : r_clean(ordered_value(c, st));
  return false;
}
SERIAL_KERNEL(ordered)

/* dx_i, less what comes from upstream: of the rest -sum_j e^(x_i - L_j); nothing where the
 * probability is 0. */
static void ordered_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  const int64_t *ids = c->src[IDS];
  const real *x = part_at(c, X);
  const double upstream = (double)*(const real *)c->src[SRC_DY];
  const ordered_state *own = ordered_of(st);
  real *dx = part_to(c, X);
  serial_parts(c, parts);
  if (st->stage < ORDERED_WRITE) {
    ordered_sums(c, st);
    return;
  }
  for (size_t i = 0; i < c->count; i++) {
    const double weight = own->all > 0 && x[i] > -R_INF ? own->all * d_exp((double)x[i] - own->last) : 0;
    dx[i] = st->nan ? r_nan() : r_clean(-upstream * weight);
  }
  for (size_t j = 0; own->all > 0 && !st->nan && j < named_count(c); j++) {
    const int64_t i = ids[j] - (int64_t)c->start;
    if (i >= 0 && i < (int64_t)c->count && named(c, j)) dx[i] = r_clean(upstream * st->list[j]);
  }
}
static bool ordered_grad_next(const row_call *c, row_state *st) {
  if (st->writes) return false;
  if (ordered_summed(st)) return true;
  if (!st->nan) ordered_value(c, st);
  st->stage = ORDERED_WRITE;
  return st->writes = true;
}
#define ordered_grad_begin ordered_begin
SERIAL_KERNEL(ordered_grad)

OPERATOR_WITH(gumbel_topk_logp, ordered, ordered_grad, ROW_LIST, 0)

/* ---- gumbel_topk_inclusion: q_i = 1 - e^-e^(x_i - kappa), the probability that x_i + Gumbel noise
 * is above kappa ----
 *
 * Worst error, f32: 64.9 units where y is 2e-30, from the rounding of x - kappa; f64: 0.5. */

enum { KAPPA = 1 }; /* input */

SMI consts inclusion_setup(const row_call *c, const span *s) {
  const real kappa = *s->src[KAPPA];
  return (consts){{kappa < -R_MAX ? -R_MAX : kappa}};
}
SMI void inclusion_add(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                       reduce_map_acc *acc) {
  vreal x = at(s->src[X], i, cnt), kappa = v_set1(k->v[0]);
  acc->nan = m_or(acc->nan, m_not(m_and(v_lt(x, v_set1(R_INF)), v_eq(kappa, kappa))));
}
#define INCLUSION_MOST 80                         /* e^-e^80 is 0 */
#define INCLUSION_SURE (SMX_REAL == 32 ? 20 : 40) /* 1 - e^-w is 1 */
SMI vreal inclusion_away(const span *s, const consts *k, size_t i, int cnt) {
  return v_min(v_sub(at(s->src[X], i, cnt), v_set1(k->v[0])), v_set1(INCLUSION_MOST));
}
SMI vreal inclusion_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const vreal w = v_min(v_exp(inclusion_away(s, k, i, cnt)), v_set1(INCLUSION_SURE)), grown = v_expm1_pos(w);
  return v_clean(v_div(grown, v_add(v_set1(1), grown))); /* (e^w - 1) / e^w */
}
/* dx = dy e^(d - e^d), d = x - kappa; kappa is taken as given. */
SMI vreal inclusion_grad_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  vreal d = inclusion_away(s, k, i, cnt), slope = v_exp(v_sub(d, v_exp(d)));
  return v_clean(v_select(v_eq(slope, v_set1(0)), v_set1(0), v_mul(slope, at(s->src[SRC_DY], i, cnt))));
}
REDUCE_MAP_SUMS_OF(inclusion_check, inclusion_add)
REDUCE_MAP_VALUES_OF(inclusion_out, inclusion_value)
REDUCE_MAP_VALUES_OF(inclusion_grad_out, inclusion_grad_value)
static const reduce_map_body inclusion_body = {
    .setup = inclusion_setup, .sums = inclusion_check, .write = inclusion_out, .full = 1};
REDUCE_MAP_KERNEL(inclusion)
static const reduce_map_body inclusion_grad_body = {
    .setup = inclusion_setup, .sums = inclusion_check, .write = inclusion_grad_out, .full = 1};
REDUCE_MAP_KERNEL(inclusion_grad)

OPERATOR(gumbel_topk_inclusion, inclusion, inclusion_grad)
