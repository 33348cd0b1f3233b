/* pairwise/functions_columns.c - losses that take the logits by rows and by columns,
 *
 *     loss_i = (softplus(r_i - l_ii) + softplus(c_i - l_ii)) / 2,
 *     r_i = log sum_(j != i) e^l_ij,  c_j = log sum_(i != j) e^l_ij,
 *
 * in one walk over blocks of rows: a column keeps a number near its largest logit so far and the
 * sum of e^(l - that), rows in order. */
#include <string.h>

#include "functions.h"

#define INF __builtin_inf()

/* l_jj, as exact as double can have it: it only has to be the same in both walks. */
static void own_logit(void *arg, int64_t j) {
  const pair_call *p = arg;
  const int64_t at = j * p->d * p->bytes;
  const double s =
      p->u ? pair_dot(p->c->is_f64, p->u + at, p->v + at, p->d) : pair_at(p, p->in.s->data, j * p->m + j);
  p->own[j] = s / p->temperature;
}

void pair_columns_begin(pair_call *p) {
  for (int64_t j = 0; j < p->m; j++) pair_set(p, p->reference, j, -INF), p->sum[j] = 0;
  smx_parallel(p->c->ctx, p->m, own_logit, p);
}

/* The sums go over to a reference that the rows of the block have raised. */
static void raise(pair_call *p, int64_t from, int64_t n, char *x, char *old) {
  char *const reference = p->reference + from * p->bytes;
  memcpy(old, reference, (size_t)(n * p->bytes));
  for (int64_t r = 0; r < p->run.rows; r++)
    pair_raise(p->c->is_f64, p->run.z + (r * p->run.pitch + from) * p->bytes, n, reference);
  pair_minus(p->c->is_f64, old, reference, n, x);
  for (int64_t j = 0; j < n; j++) {
    const double down = pair_at(p, x, j);
    if (down != 0) p->sum[from + j] = down == -INF ? 0 : p->sum[from + j] * p->math->exp(down);
  }
}

static void columns_task(void *arg, int64_t task) {
  pair_call *p = arg;
  const int64_t from = task * PAIR_COLUMNS, n = p->m - from < PAIR_COLUMNS ? p->m - from : PAIR_COLUMNS;
  char *x = smx_scratch_take(&p->run.scratch), *y = x + smx_whole_lines((size_t)(p->m * p->bytes));
  raise(p, from, n, x, y);
  for (int64_t r = 0; r < p->run.rows; r++) {
    const char *l = p->run.z + (r * p->run.pitch + from) * p->bytes;
    pair_minus(p->c->is_f64, l, p->reference + from * p->bytes, n, x);
    pair_exp(p, x, n, 0, 1, y);
    pair_sum(p->c->is_f64, y, n, p->sum + from);
  }
  smx_scratch_give(&p->run.scratch, x);
}
void pair_columns_block(pair_call *p) { smx_parallel(p->c->ctx, pair_column_tasks(p), columns_task, p); }

void pair_columns_end(pair_call *p) {
  for (int64_t j = 0; j < p->m; j++) {
    const double near = pair_at(p, p->reference, j);
    p->column[j] = near == -INF ? -INF : near + p->math->log(p->sum[j]);
    const double t = p->column[j] - p->own[j];
    p->loss[j] = (p->loss[j] + p->math->softplus(t)) / 2;
    if (p->c->dout.given[OUT_LOSS]) p->share[j] = tensor_upstream(p->c, OUT_LOSS, j) / 2 * pair_sigmoid(p, t);
    /* as far as logits are taken from it, in their type */
    pair_set(p, p->reference, j, p->column[j]);
  }
}

/* What the columns give for a row: e^(l_ij - c_j) times their share. */
static void add_columns(pair_call *p, pair_row *r) {
  pair_minus(p->c->is_f64, r->l, p->reference, p->m, r->x);
  pair_exp(p, r->x, p->m, 0, 1, r->y);
  pair_add(p->c->is_f64, r->y, p->share, p->m, r->g);
}

double pair_both(pair_call *p, pair_row *r) {
  const double own = p->own[r->i];
  pair_keep(p, r->l, r->role, NEGATIVES, r->l);
  const double lse = pair_lse(p, r->l, p->m), t = lse - own, share = r->up / 2 * pair_sigmoid(p, t);
  if (!r->g) return p->math->softplus(t);
  memset(r->g, 0, (size_t)(p->m * p->bytes));
  if (lse != -INF) pair_softmax(p, r->l, p->m, lse, share, r->g);
  add_columns(p, r);
  pair_set(p, r->g, r->i, -(share + p->share[r->i]));
  pair_set(p, r->l, r->i, own); /* its part in the gradient of the temperature */
  return 0;
}
