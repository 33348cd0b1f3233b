/* row/ops_topk.c - softmax_topk: the k best of a row with their weights, from one read of it
 * (Milakov, Gimelshein 2018). See ops.c.
 *
 * A row in memory is read once: the exponentials of each group are summed with a running reference
 * (engine/exp_program.c; the bits are those of logsumexp), and elements above the bar are selected
 * while the group is in L1 (engine/topk.h). Rows that are split or converted, or have a very
 * large k, go through the row program instead: a radix descent (engine/radix_select.h), the sum,
 * and a pass that collects. Both are exact, so they agree. */
#include "engine/exp_loops.h"
#include "engine/topk_sum.h"
#include "engine/scores.h"

enum { X, TOKEN };                     /* inputs */
enum { VALUE, INDEX, LOG, LSE, RANK }; /* outputs */
enum { K, ORDER, RENORMALISE };        /* parameters */
enum { BEST_FIRST, BY_INDEX };         /* ORDER */

static const exp_body lse_body = {LSE_BODY(lse_scalar)};

SMI size_t topk_k(const row_call *c) { return (size_t)c->params[K]; }
SMI int64_t *whole(const row_call *c, int port) { return (int64_t *)c->dst[port]; }

/* The token whose rank is asked for, or -1. */
SMI int64_t topk_token(const row_call *c) {
  int64_t token = c->src[TOKEN] ? *(const int64_t *)c->src[TOKEN] : -1;
  return token < (int64_t)c->n ? token : -1;
}

/* How many of n elements, from number `index` on, come before element number `token`, which
 * is x. */
NOINLINE double topk_count_before(const real *p, size_t n, int64_t index, real x, int64_t token) {
  double count = 0;
  for (size_t i = 0; i < n; i++) count += topk_before(p[i], index + (int64_t)i, x, token);
  return count;
}

/* ---- the results of a row ---- */

typedef struct topk_row {
  real lse;
  real token;  /* x of the token */
  double rank; /* elements before it */
} topk_row;

/* Writes one value to all remaining outputs. */
static inline void topk_rest(const row_call *c, size_t from, real value, real log) {
  for (size_t i = from; i < topk_k(c); i++) {
    ((real *)c->dst[VALUE])[i] = value;
    whole(c, INDEX)[i] = -1;
    if (c->dst[LOG]) ((real *)c->dst[LOG])[i] = log;
  }
}

/* The weights among the kept elements only. These are in index order, and so is their sum, in
 * double. */
static inline void topk_renormalise(exp_row *r, const real *x, size_t kept) {
  double first = (double)exp_of(r, r->top, 0), sum_without_max = 0;
  size_t top = 0;
  while (x[top] - r->shift != r->top) top++;
  for (size_t i = 0; i < kept; i++) sum_without_max += i == top ? 0 : (double)exp_of(r, x[i] - r->shift, 0);
  double sum = first + sum_without_max;
  r->inv = (real)(1.0 / sum), r->tiny = (real)((double)R_TINY * sum), r->one = (real)sum;
  r->log = (real)d_log1p(sum_without_max / first);
}

SMI vreal topk_weight(const exp_row *r, vreal x) {
  vreal d;
  return exp_weight(exp_term((score){v_sub(x, v_set1(r->shift)), v_set1(0)}, false, r->scale_exp, &d), r,
                    true);
}

/* The kept x become weights and logarithms. */
static inline void topk_weights(const row_call *c, const exp_row *r, size_t kept) {
  real *x = c->dst[VALUE], *logs = c->dst[LOG];
  for (size_t i = 0; i < kept; i += LANES) {
    int cnt = lanes_left(kept - i);
    vreal v = at(x, i, cnt), log = v_sub(v_sub(v_sub(v, v_set1(r->shift)), v_set1(r->top)), v_set1(r->log));
    if (logs) put(logs, i, cnt, v_clean(log));
    put(x, i, cnt, topk_weight(r, v));
  }
}

/* All +inf of the row share the mass, or those that are kept. */
static inline void topk_limit(const row_call *c, size_t kept, double infinite) {
  real *x = c->dst[VALUE], *logs = c->dst[LOG];
  double shares = 0;
  for (size_t i = 0; i < kept; i++) shares += x[i] > R_MAX;
  if (c->params[RENORMALISE] == 0) shares = infinite;
  for (size_t i = 0; i < kept; i++) {
    bool one = x[i] > R_MAX;
    x[i] = one ? (real)(1 / shares) : 0;
    if (logs) logs[i] = one ? v_first(v_clean(v_set1(-(real)d_log1p(shares - 1)))) : -R_INF;
  }
}

/* st: the state after the sum; p: the kept elements. */
static inline void topk_finish(const row_call *c, const row_state *st, topk *p, const topk_row *w) {
  const span s = span_of(c, 0);
  const consts k = {{0}};
  bool nan = w->lse != w->lse, empty = w->lse == -R_INF, limit = w->lse > R_MAX;
  if (c->dst[LSE]) *(real *)c->dst[LSE] = w->lse;
  if (c->dst[RANK])
    *whole(c, RANK) = nan || topk_token(c) < 0 || !(w->token > -R_INF) ? -1 : (int64_t)w->rank;
  if (nan || empty) {
    real value = nan || c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0;
    topk_rest(c, 0, value, value == 0 ? -R_INF : value);
    return;
  }
  exp_row r = limit ? (exp_row){0} : exp_row_of(&lse_body, &s, &k, st);
  if (!limit && c->params[RENORMALISE] != 0) topk_renormalise(&r, p->x, p->kept);
  if (c->params[ORDER] == BEST_FIRST) topk_sort(p->x, p->index, p->kept);
  if (limit) topk_limit(c, p->kept, st->exp.infinite);
  else topk_weights(c, &r, p->kept);
  topk_rest(c, p->kept, 0, -R_INF);
}

/* The call for the sum, whose result goes to lse. */
static inline row_call lse_call(const row_call *c, real *lse) {
  row_call sum = *c;
  sum.dst[0] = lse;
  return sum;
}

/* ---- one read ---- */

/* How many elements of each group come before the token. */
typedef struct topk_ranking {
  const row_call *c;
  topk_row *w;
} topk_ranking;
static inline void topk_each(void *own, size_t i, size_t n, const row_part *last) {
  const topk_ranking *q = own;
  const int64_t token = topk_token(q->c);
  if (token >= 0 && q->c->dst[RANK])
    q->w->rank += topk_count_before((const real *)q->c->src[X] + i, n, (int64_t)i, q->w->token, token);
}

static inline void topk_one_read(const row_call *row, row_state *st, topk *p, topk_row *w) {
  const real *x = row->src[X];
  row_call sum = lse_call(row, &w->lse);
  topk_ranking count = {row, w};
  if (topk_token(row) >= 0) w->token = x[topk_token(row)];
  w->lse = -R_INF, w->rank = 0;
  topk_start(p, topk_k(row), row->dst[VALUE], whole(row, INDEX), x, row->n);
  exp_staging room;
  exp_begin(&lse_body, &sum, st);
  topk_sum_pass(exp_body_for(&lse_body, row, &room), row, st, p, topk_each, &count);
  static const row_kernel lse = {.engine = &exp_engine, .body = &lse_body};
  while (exp_next(&lse_body, &sum, st)) run_pass(&lse, &sum, st);
}

/* ---- the program ---- */

enum { TOPK_SELECT, TOPK_SUM, TOPK_COLLECT };
typedef struct topk_state {
  topk_row row;
  uint64_t kept; /* elements that are collected */
} topk_state;
ROW_OWN_STATE(topk_state, topk_state_of)

static void topk_begin(const row_call *c, row_state *st) {
  st->stage = TOPK_SELECT;
  *topk_state_of(st) = (topk_state){.row = {.token = -R_INF}};
  radix_begin(st, (uint64_t)topk_k(c));
}
static void topk_collect(const row_call *c, row_state *st) {
  topk_state *own = topk_state_of(st);
  const real *x = (const real *)c->src[X] + (c->start - c->origin), value = (real)st->cutoff.value;
  const int64_t token = topk_token(c), first = (int64_t)c->start;
  real *to = c->dst[VALUE];
  for (size_t i = 0; i < c->count; i++) {
    int64_t index = first + (int64_t)i;
    if (!(x[i] > value || (x[i] == value && index <= st->cutoff.limit)) || !(x[i] > -R_INF)) continue;
    to[own->kept] = x[i], whole(c, INDEX)[own->kept++] = index;
  }
  if (token >= 0) own->row.rank += topk_count_before(x, c->count, first, own->row.token, token);
}
static void topk_pass(const row_call *c, row_state *st, row_part *parts) {
  const int64_t token = topk_token(c) - (int64_t)c->start;
  if (st->stage == TOPK_SUM) {
    exp_pass(&lse_body, c, st, parts);
    return;
  }
  if (st->stage == TOPK_SELECT) radix_pass(c, st, parts);
  else topk_collect(c, st);
  if (token >= 0 && token < (int64_t)c->count)
    topk_state_of(st)->row.token = ((const real *)c->src[X])[c->start - c->origin + (size_t)token];
}
static void topk_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  if (st->stage == TOPK_SUM) exp_merge(c, st, parts, count);
}
static bool topk_next(const row_call *c, row_state *st) {
  if (st->stage == TOPK_SELECT) {
    if (radix_next(st)) return true;
    st->stage = TOPK_SUM;
    exp_begin(&lse_body, c, st);
    return true;
  }
  if (st->stage == TOPK_SUM) {
    real lse = -R_INF;
    const row_call sum = lse_call(c, &lse);
    if (exp_next(&lse_body, &sum, st)) return true;
    if (st->empty && c->on_empty == SMX_EMPTY_ERROR) return false;
    st->stage = TOPK_COLLECT;
    st->serial = true;
    topk_state_of(st)->row.lse = lse;
    return true;
  }
  const topk_state *own = topk_state_of(st);
  topk *p = c->work;
  p->k = topk_k(c), p->kept = own->kept, p->x = c->dst[VALUE], p->index = whole(c, INDEX);
  topk_finish(c, st, p, &own->row);
  return false;
}
static const row_kernel topk_program = PROGRAM(topk);

static void topk_rows(row_call *c) {
  if (topk_k(c) > TOPK_MOST) {
    run_rows(&topk_program, c);
    return;
  }
  for (size_t r = 0; r < c->rows; r++) {
    row_call row = row_at(c, r);
    row_state st;
    topk_row w = {.token = -R_INF};
    topk_one_read(&row, &st, c->work, &w);
    if (!st.empty || c->on_empty != SMX_EMPTY_ERROR) topk_finish(&row, &st, c->work, &w);
    else if (c->first_empty < 0) c->first_empty = (int64_t)r;
  }
}

/* ---- the gradient ---- */

/* With a_i = v_i dv_i + dlog_i for the kept, A their sum and p the softmax of the whole row:
 *   dx_j = [j is kept, as i] a_i - (A - dlse) p_j,
 *   renormalised: dx_j = [j is kept, as i] (a_i - A v_i) + dlse p_j. */
SMI double topk_upstream(const span *s, size_t i) {
  const int64_t *index = (const int64_t *)(const void *)s->src[SRC_Y + INDEX];
  double v = (double)s->src[SRC_Y + VALUE][i];
  if (index[i] < 0) return 0;
  return (v != 0 ? v * (double)s->src[SRC_DY + VALUE][i] : 0) +
         (s->src[SRC_DY + LOG] ? (double)s->src[SRC_DY + LOG][i] : 0);
}
SMI double topk_upstreams(const row_call *c, const span *s) {
  double sum = 0;
  for (size_t i = 0; i < topk_k(c); i++) sum += topk_upstream(s, i);
  return sum;
}
SMI consts topk_grad_setup(const row_call *c, const span *s) {
  double lse = s->src[SRC_DY + LSE] ? (double)*s->src[SRC_DY + LSE] : 0,
         sum = c->params[RENORMALISE] != 0 ? 0 : topk_upstreams(c, s);
  return (consts){{(real)(lse - sum)}};
}
SMI vreal topk_grad_value(const exp_write *w, size_t i, int cnt) {
  vreal p = exp_weight_again(w, score_plain, false, i, cnt);
  return v_clean(v_select(v_eq(p, v_set1(0)), v_set1(0), v_mul(p, v_set1(w->k->v[0]))));
}
EXP_WRITE_FUSED(topk_grad_out, topk_grad_value)
static const exp_body topk_grad_body = {
    .setup = topk_grad_setup, .scores = &plain_scores, .write = topk_grad_out, .gradient = true};

static void topk_grad_begin(const row_call *c, row_state *st) { exp_begin(&topk_grad_body, c, st); }
static void topk_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  const span s = span_of(c, 0);
  const int64_t *index = (const int64_t *)(const void *)s.src[SRC_Y + INDEX];
  exp_pass(&topk_grad_body, c, st, parts);
  if (st->mode != EXP_WRITE_PASS) return;
  double sum = c->params[RENORMALISE] != 0 ? topk_upstreams(c, &s) : 0;
  for (size_t i = 0; i < topk_k(c); i++) {
    int64_t j = index[i] - (int64_t)c->start;
    if (index[i] < 0 || j < 0 || j >= (int64_t)c->count) continue;
    real *dx = s.dst[X] + (c->start - c->origin) + j;
    *dx = r_clean((double)*dx + topk_upstream(&s, i) - sum * (double)s.src[SRC_Y + VALUE][i]);
  }
}
static void topk_grad_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  exp_merge(c, st, parts, count);
}
static bool topk_grad_next(const row_call *c, row_state *st) { return exp_next(&topk_grad_body, c, st); }
static const row_kernel topk_grad_kernel = PROGRAM(topk_grad);

static const row_kernel topk_kernel = PROGRAM_WITH_ROWS(topk);
OPERATOR_WITH(softmax_topk, topk, topk_grad, ROW_LIST, sizeof(topk))
