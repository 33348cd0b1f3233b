/* score/functions_select.c - budget_select and stream_query: which rows are worth asking for, of
 * all of a set or of one after another. */
#include "driver/merge_sort.h"
#include "functions.h"

#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

static int64_t *whole_at(const tensor_call *c, int port, int64_t at) {
  return (int64_t *)(void *)c->out.view[port].data + at;
}

/* ---- budget_select ---- */

enum { VALUE, COST };                       /* inputs */
enum { CHOSEN, ORDER, SPENT };              /* outputs */
enum { BY_VALUE, BY_RATIO, BY_DIFFERENCE }; /* the parameter `rank` */

typedef struct selection {
  const tensor_call *c;
  int64_t n, set, left; /* left: rows that may be chosen */
  double *worth, *cost;
  int64_t *order, *spare;
} selection;

static bool is_before(const void *arg, int64_t a, int64_t b) {
  const double *worth = arg;
  return worth[a] > worth[b] || (worth[a] == worth[b] && a < b);
}

static int64_t *sorted(const selection *x) {
  return smx_merge_sort(x->order, x->spare, x->left, is_before, x->worth);
}

/* What a row costs nothing for is worth as much as can be; without a score it is worth nothing. */
static double worth_of(const selection *x, int64_t i) {
  const int rank = (int)tensor_param(x->c, "rank");
  const double score = x->worth[i], cost = x->cost[i];
  if (rank == BY_VALUE) return score;
  if (rank == BY_DIFFERENCE) return score - tensor_param(x->c, "lambda") * cost;
  return cost > 0 ? score / cost : score > 0 ? INF : score == 0 ? 0 : -INF;
}

/* Leaves out what is above the quantile `clip` of the scores, linear as numpy.quantile: outliers,
 * which are the most uncertain. */
static void clip(selection *x) {
  const double share = tensor_param(x->c, "clip");
  if (share == 1 || x->left == 0) return;
  const int64_t *order = sorted(x);
  const double v = (double)(x->left - 1) * share;
  const int64_t k = (int64_t)v, next = k + 1 < x->left ? k + 1 : k;
  const double a = x->worth[order[x->left - 1 - k]], b = x->worth[order[x->left - 1 - next]];
  const double most = a == b ? a : a + (v - (double)k) * (b - a);
  int64_t left = 0;
  for (int64_t i = 0; i < x->n; i++)
    if (x->worth[i] <= most) x->order[left++] = i;
  x->left = left;
}

static void select_set(selection *x) {
  const tensor_call *c = x->c;
  const int64_t at = x->set * x->n;
  double left = tensor_param(c, "budget"), spent = 0;
  int64_t count = 0;
  tensor_load(c, c->in.view + VALUE, at, x->n, x->worth);
  for (int64_t i = 0; i < x->n; i++) x->cost[i] = 1;
  if (c->in.given[COST]) tensor_load(c, c->in.view + COST, at, x->n, x->cost);
  x->left = 0;
  for (int64_t i = 0; i < x->n; i++) {
    *whole_at(c, CHOSEN, at + i) = 0;
    if (x->worth[i] == x->worth[i] && x->cost[i] - x->cost[i] == 0) x->order[x->left++] = i;
  }
  clip(x);
  for (int64_t i = 0; i < x->left; i++) { /* of the order that clip left, each once */
    const int64_t row = x->order[i];
    x->worth[row] = worth_of(x, row);
  }
  const int64_t *order = sorted(x);
  for (int64_t i = 0; i < x->left; i++) {
    if (x->cost[order[i]] > left) continue;
    left -= x->cost[order[i]], spent += x->cost[order[i]];
    *whole_at(c, CHOSEN, at + order[i]) = 1;
    *whole_at(c, ORDER, at + count++) = order[i];
  }
  for (; count < x->n; count++) *whole_at(c, ORDER, at + count) = -1;
  tensor_put(c, SPENT, x->set, spent);
}

smx_status score_select(const tensor_call *c) {
  selection x = {.c = c, .n = tensor_dim(c, "n")};
  int64_t bytes;
  const smx_status status = score_check_cost(c, COST);
  if (status != SMX_OK) return status;
  x.worth = smx_multiply(x.n + 1, 32, &bytes) ? smx_alloc(c->ctx, (size_t)bytes) : NULL;
  if (!x.worth) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)x.n);
  x.cost = x.worth + x.n, x.order = (int64_t *)(void *)(x.cost + x.n), x.spare = x.order + x.n;
  for (; x.set < c->dims.lead_count; x.set++) select_set(&x);
  smx_free(c->ctx, x.worth);
  return SMX_OK;
}

/* ---- stream_query ---- */

/* A row is asked for where its confidence is below theta, and less than `budget` of the rows so far
 * were; theta falls by the share `step` where one is, and rises by it where none is. */
smx_status score_stream(const tensor_call *c) {
  const int64_t n = tensor_dim(c, "n");
  const double step = tensor_param(c, "step"), budget = tensor_param(c, "budget");
  for (int64_t s = 0; s < c->dims.lead_count; s++) {
    double theta = tensor_param(c, "threshold"), spent = 0, x;
    for (int64_t i = 0; i < n; i++) {
      tensor_load(c, c->in.view, s * n + i, 1, &x);
      const bool may = spent < budget * (double)(i + 1), ask = may && x < theta;
      *whole_at(c, 0, s * n + i) = ask;
      spent += ask;
      if (may && x == x) theta *= ask ? 1 - step : 1 + step;
    }
    tensor_put(c, 1, s, theta);
  }
  return SMX_OK;
}
