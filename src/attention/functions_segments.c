/* attention/functions_segments.c - segment_attention: softmax over a range of keys for each query,
 * and how likely a position in it is. In double, with p = softmax of the scores in the range:
 *
 *   log_p = s_position - lse,  y = sum_j p_j v_j, or v_position
 *   ds_j = p_j (h_j - sum p h) + dlog_p ([j = position] - p_j) + dlse p_j,  h_j = v_j dy, or 0 */
#include <string.h>

#include "cpu/cpu.h"
#include "functions.h"
#include "score/score.h"

enum { SCORE, V, BEGIN, END, POSITION }; /* inputs */
enum { Y, LOG_P, LSE };                  /* outputs */

typedef struct segments {
  const tensor_call *c;
  const score_kernels *math;
  int64_t items, l, t, e;
  bool hard, limit; /* limit: scores of +inf share the mass */
  bool backward;
  smx_scratch scratch;
} segments;

/* A query: its range, and what is in it. lse -inf: nothing; log_p -inf: the position is not. */
typedef struct segment {
  int64_t first, end, position; /* position: -1 where it is not in the range */
  double lse, log_p;
} segment;

static int64_t whole_at(const tensor_call *c, int port, int64_t at) {
  return ((const int64_t *)(const void *)c->in.view[port].data)[at];
}
static int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* s: the scores of the row, p: its probabilities in the range. */
static segment take(const segments *x, int64_t row, double *s, double *p) {
  segment g = {within(whole_at(x->c, BEGIN, row), x->t), within(whole_at(x->c, END, row), x->t),
               whole_at(x->c, POSITION, row), -__builtin_inf(), -__builtin_inf()};
  double most = -__builtin_inf(), sum = 0;
  tensor_load(x->c, x->c->in.view + SCORE, row * x->t, x->t, s);
  for (int64_t j = g.first; j < g.end; j++)
    if (s[j] > most || s[j] != s[j]) most = s[j];
  const bool shared = x->limit && most == __builtin_inf();
  for (int64_t j = g.first; j < g.end && most != -__builtin_inf(); j++)
    sum += p[j] = shared ? s[j] == most : x->math->exp(s[j] - most);
  if (g.position < g.first || g.position >= g.end) g.position = -1;
  if (sum == 0) return g.end = g.first, g;
  for (int64_t j = g.first; j < g.end; j++) p[j] /= sum;
  const double log_sum = x->math->log(sum);
  g.lse = most + log_sum;
  if (g.position >= 0) g.log_p = shared && s[g.position] == most ? -log_sum : s[g.position] - g.lse;
  return g;
}

/* The weight of a key in y. p of a position that is there may be too small for a double. */
static double weight_of(const segments *x, const segment *g, const double *p, int64_t j) {
  if (!x->hard) return p[j];
  if (j != g->position) return 0;
  return p[j] != p[j] ? p[j] : g->log_p > -__builtin_inf();
}

static void answer(const segments *x, int64_t row, const segment *g, const double *p, double *v, double *y) {
  const bool empty = g->end == g->first, none = smx_context_on_empty(x->c->ctx) == SMX_EMPTY_NAN;
  for (int64_t i = 0; i < x->e; i++) y[i] = empty && none ? __builtin_nan("") : 0;
  for (int64_t j = g->first; j < g->end; j++) {
    const double w = weight_of(x, g, p, j);
    if (x->hard && w == 0) continue;
    tensor_load(x->c, x->c->in.view + V, (row / x->l * x->t + j) * x->e, x->e, v);
    add_row(w, v, x->e, y);
  }
  tensor_store(x->c, x->c->out.view + Y, row * x->e, x->e, y);
  tensor_put(x->c, LOG_P, row, empty && none ? __builtin_nan("") : g->log_p);
  tensor_put(x->c, LSE, row, g->lse);
}

/* dv of the item is added up; s becomes ds. */
static void go_back(const segments *x, int64_t row, const segment *g, const double *p, double *v, double *s,
                    double *dy, double *dv) {
  const double of_log = g->position < 0 ? 0 : tensor_upstream(x->c, LOG_P, row),
               of_lse = tensor_upstream(x->c, LSE, row);
  double mean = 0;
  memset(s, 0, (size_t)x->t * sizeof *s), memset(dy, 0, (size_t)x->e * sizeof *dy);
  if (x->c->dout.given[Y]) tensor_load(x->c, x->c->dout.view + Y, row * x->e, x->e, dy);
  for (int64_t j = g->first; j < g->end; j++) {
    add_row(weight_of(x, g, p, j), dy, x->e, dv + j * x->e);
    if (x->hard || p[j] == 0) continue;
    tensor_load(x->c, x->c->in.view + V, (row / x->l * x->t + j) * x->e, x->e, v);
    for (int64_t i = 0; i < x->e; i++) s[j] += v[i] * dy[i];
    mean += p[j] * s[j];
  }
  for (int64_t j = g->first; j < g->end; j++)
    s[j] =
        p[j] * ((x->hard || p[j] == 0 ? 0 : s[j] - mean) + of_lse - of_log) + (j == g->position ? of_log : 0);
  if (x->c->din.given[SCORE]) tensor_store(x->c, x->c->din.view + SCORE, row * x->t, x->t, s);
}

static void task(void *arg, int64_t item) {
  segments *x = arg;
  double *memory = smx_scratch_take(&x->scratch);
  double *s = memory, *p = s + x->t, *v = p + x->t, *y = v + x->e, *dv = y + x->e;
  if (x->backward) memset(dv, 0, (size_t)(x->t * x->e) * sizeof *dv);
  for (int64_t row = item * x->l; row < (item + 1) * x->l; row++) {
    const segment g = take(x, row, s, p);
    if (x->backward) go_back(x, row, &g, p, v, s, y, dv);
    else answer(x, row, &g, p, v, y);
  }
  if (x->backward && x->c->din.given[V])
    tensor_store(x->c, x->c->din.view + V, item * x->t * x->e, x->t * x->e, dv);
  smx_scratch_give(&x->scratch, memory);
}

/* ---- calls ---- */

/* SMX_EMPTY_ERROR: before anything is written. */
static smx_status check_empty(segments *x) {
  double *memory = smx_scratch_take(&x->scratch);
  smx_status status = SMX_OK;
  for (int64_t row = 0; row < x->items * x->l && status == SMX_OK; row++) {
    const segment g = take(x, row, memory, memory + x->t);
    if (g.first == g.end)
      status = smx_fail(SMX_ERR_EMPTY, "%s: query %lld has no keys", x->c->op->name, (long long)row);
  }
  smx_scratch_give(&x->scratch, memory);
  return status;
}

static smx_status run(const tensor_call *c, bool backward) {
  segments x = {.c = c, .math = smx_isa_current()->f64.score, .items = c->dims.lead_count};
  int64_t keys, bytes;
  x.l = tensor_dim(c, "l"), x.t = tensor_dim(c, "t"), x.e = tensor_dim(c, "e"), x.backward = backward;
  x.hard = tensor_param(c, "hard") != 0, x.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  const bool fits =
      smx_multiply(x.t, (backward ? x.e : 0) + 2, &keys) && smx_multiply(keys + 2 * x.e, 8, &bytes);
  if (!fits || !smx_scratch_open(&x.scratch, c->ctx, 0, (size_t)bytes + 64, x.items > 0 ? x.items : 1))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld keys", c->op->name, (long long)x.t);
  smx_status status = SMX_OK;
  if (smx_context_on_empty(c->ctx) == SMX_EMPTY_ERROR) status = check_empty(&x);
  if (status == SMX_OK) smx_parallel(c->ctx, x.items, task, &x);
  smx_scratch_close(&x.scratch);
  return status;
}
smx_status segment_attention_forward(const tensor_call *c) { return run(c, false); }
smx_status segment_attention_backward(const tensor_call *c) { return run(c, true); }
