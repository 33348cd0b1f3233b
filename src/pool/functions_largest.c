/* pool/functions_largest.c - the largest of each channel of a set, or of the pieces of a row; and
 * sums or maxima of log(1 + max(x, 0)). */
#include "functions_sets.h"

enum { Y, INDEX }; /* outputs */
enum { SPLADE_MAX, SPLADE_SUM };

/* Item i of channel j is at i item + j channel of its tensor, of `cells` numbers. */
typedef struct largest_call {
  pool_sets s;
  int64_t item, channel, cells, last;
  bool logs, sum; /* of splade_pool */
} largest_call;

typedef struct columns {
  int64_t first, width, index[SET_WIDTH];
  double x[SET_WIDTH], y[SET_WIDTH];
} columns;

static int64_t cell_of(const largest_call *l, const pool_set *q, const columns *k, int64_t i, int64_t j) {
  return q->lead * l->cells + i * l->item + (k->first + j) * l->channel;
}

static void take_item(const largest_call *l, const pool_set *q, columns *k, int64_t i) {
  const tensor_call *c = l->s.c;
  if (l->channel == 1) tensor_load(c, c->in.view, cell_of(l, q, k, i, 0), k->width, k->x);
  else
    for (int64_t j = 0; j < k->width; j++) tensor_load(c, c->in.view, cell_of(l, q, k, i, j), 1, k->x + j);
}
static void put_item(const largest_call *l, const pool_set *q, const columns *k, int64_t i,
                     const double *dx) {
  const tensor_call *c = l->s.c;
  if (l->channel == 1) tensor_store(c, c->din.view, cell_of(l, q, k, i, 0), k->width, dx);
  else
    for (int64_t j = 0; j < k->width; j++) tensor_store(c, c->din.view, cell_of(l, q, k, i, j), 1, dx + j);
}

/* Only the last ones that are there, of how many there are. */
static bool is_late(const largest_call *l, int64_t rank, int64_t count) {
  return l->last == 0 || rank >= count - l->last;
}

/* The first of the largest, -1 of a NaN, or the sum. */
static void reduce(const largest_call *l, const pool_set *q, columns *k) {
  int64_t rank = 0;
  for (int64_t j = 0; j < k->width; j++) k->y[j] = l->sum ? 0 : -__builtin_inf(), k->index[j] = -1;
  for (int64_t i = q->first; i < q->end; i++) {
    if (!pool_set_has(&l->s, q, i) || !is_late(l, rank++, q->count)) continue;
    take_item(l, q, k, i);
    for (int64_t j = 0; j < k->width; j++) {
      const double x = k->x[j];
      if (l->sum) k->y[j] += x > 0 ? pool_log1p(l->s.math, x) : x == x ? 0 : x;
      else if (x > k->y[j] || x != x) k->y[j] = x, k->index[j] = x == x ? i : -1;
    }
  }
  for (int64_t j = 0; j < k->width && l->logs && !l->sum; j++)
    k->y[j] = k->y[j] > 0 ? pool_log1p(l->s.math, k->y[j]) : k->y[j] == k->y[j] ? 0 : k->y[j];
}

static columns columns_of(const largest_call *l, int64_t piece) {
  const int64_t first = piece * SET_WIDTH, left = l->s.channels - first;
  return (columns){.first = first, .width = left < SET_WIDTH ? left : SET_WIDTH};
}
static int64_t pieces_of(const pool_sets *s) { return (s->channels + SET_WIDTH - 1) / SET_WIDTH; }

static void forward_task(void *arg, int64_t task) {
  const largest_call *l = arg;
  const tensor_call *c = l->s.c;
  const int64_t pieces = pieces_of(&l->s);
  const pool_set q = pool_set_at(&l->s, task / pieces);
  columns k = columns_of(l, task % pieces);
  const int64_t at = q.number * l->s.channels + k.first;
  reduce(l, &q, &k);
  for (int64_t j = 0; j < k.width && q.count == 0; j++) k.y[j] = pool_empty_value(c);
  tensor_store(c, c->out.view, at, k.width, k.y);
  if (c->op->output_count <= INDEX || !c->out.given[INDEX]) return;
  int64_t *index = (int64_t *)(void *)c->out.view[INDEX].data + at;
  for (int64_t j = 0; j < k.width; j++) index[j] = k.index[j];
}

static void backward_task(void *arg, int64_t task) {
  const largest_call *l = arg;
  const tensor_call *c = l->s.c;
  const int64_t pieces = pieces_of(&l->s);
  const pool_set q = pool_set_at(&l->s, task / pieces);
  columns k = columns_of(l, task % pieces);
  double up[SET_WIDTH], dx[SET_WIDTH];
  reduce(l, &q, &k);
  tensor_load(c, c->dout.view, q.number * l->s.channels + k.first, k.width, up);
  for (int64_t i = q.first; i < q.end; i++) {
    const bool there = pool_set_has(&l->s, &q, i);
    if (there) take_item(l, &q, &k, i);
    for (int64_t j = 0; j < k.width; j++) {
      const double x = k.x[j], slope = !l->logs ? 1 : x > 0 ? 1 / (1 + x) : 0;
      dx[j] = there && (l->sum || k.index[j] == i) ? up[j] * slope : 0;
    }
    put_item(l, &q, &k, i, dx);
  }
}

static smx_status run(largest_call l, void (*task)(void *arg, int64_t i)) {
  const smx_status status = pool_check_empty(&l.s);
  if (status == SMX_OK) smx_parallel(l.s.c->ctx, l.s.leads * l.s.sets * pieces_of(&l.s), task, &l);
  return status;
}

static largest_call call_of(const tensor_call *c) {
  largest_call l = {.s = pool_sets_of(c), .channel = 1};
  l.item = l.s.channels, l.cells = l.s.n * l.s.channels;
  l.last = (int64_t)dims_param(&c->dims, "last", 0);
  l.logs = c->op == pool_table + POOL_splade_pool;
  l.sum = l.logs && tensor_param(c, "reduce") == SPLADE_SUM;
  return l;
}
smx_status pool_largest(const tensor_call *c) { return run(call_of(c), forward_task); }
smx_status pool_largest_backward(const tensor_call *c) {
  return c->din.given[0] ? run(call_of(c), backward_task) : SMX_OK;
}

/* ---- maxout: a row of m k numbers is k pieces of m ---- */

smx_status pool_maxout_sizes(dims *d) {
  const int64_t n = dims_value(d, "c", 0), k = (int64_t)dims_param(d, "pieces", 1);
  if (n % k != 0)
    return smx_fail(SMX_ERR_SHAPE, "%s: pieces: %lld do not divide the %lld numbers of a row", d->op->name,
                    (long long)k, (long long)n);
  dims_set(d, "m", 0, n / k);
  return SMX_OK;
}

static largest_call maxout_of(const tensor_call *c) {
  largest_call l = {.s = pool_sets_of(c)};
  const bool strided = tensor_param(c, "layout") != 0;
  l.cells = l.s.channels, l.s.n = (int64_t)tensor_param(c, "pieces"), l.s.channels = tensor_dim(c, "m");
  l.item = strided ? l.s.channels : 1, l.channel = strided ? 1 : l.s.n;
  return l;
}
smx_status pool_maxout(const tensor_call *c) { return run(maxout_of(c), forward_task); }
smx_status pool_maxout_backward(const tensor_call *c) {
  return c->din.given[0] ? run(maxout_of(c), backward_task) : SMX_OK;
}

/* ---- flops_reg: the squares of the mean sizes of columns ---- */

typedef struct flops_call {
  const tensor_call *c;
  int64_t rows, columns;
  double *mean;
} flops_call;

static void mean_task(void *arg, int64_t piece) {
  const flops_call *f = arg;
  const int64_t first = piece * SET_WIDTH, left = f->columns - first, n = left < SET_WIDTH ? left : SET_WIDTH;
  double y[SET_WIDTH], *mean = f->mean + first;
  for (int64_t j = 0; j < n; j++) mean[j] = 0;
  for (int64_t i = 0; i < f->rows; i++) {
    tensor_load(f->c, f->c->in.view, i * f->columns + first, n, y);
    for (int64_t j = 0; j < n; j++) mean[j] += y[j] < 0 ? -y[j] : y[j];
  }
  for (int64_t j = 0; j < n; j++) mean[j] = f->rows > 0 ? mean[j] / (double)f->rows : 0;
}

/* dy_ij = 2 mean_j sgn(y_ij) / rows */
static void spread_task(void *arg, int64_t row) {
  const flops_call *f = arg;
  const double up = 2 * tensor_upstream(f->c, 0, 0) / (double)f->rows;
  double y[SET_WIDTH];
  for (int64_t first = 0; first < f->columns; first += SET_WIDTH) {
    const int64_t left = f->columns - first, n = left < SET_WIDTH ? left : SET_WIDTH;
    tensor_load(f->c, f->c->in.view, row * f->columns + first, n, y);
    for (int64_t j = 0; j < n; j++)
      y[j] = y[j] == 0 ? 0 : up * f->mean[first + j] * (y[j] > 0 ? 1 : y[j] < 0 ? -1 : y[j]);
    tensor_store(f->c, f->c->din.view, row * f->columns + first, n, y);
  }
}

static smx_status flops(const tensor_call *c, bool backward) {
  flops_call f = {c, tensor_dim(c, "n"), tensor_dim(c, "c"), NULL};
  double sum = 0;
  f.mean = pool_reserve(c, f.columns);
  if (!f.mean) return SMX_ERR_NOMEM;
  smx_parallel(c->ctx, (f.columns + SET_WIDTH - 1) / SET_WIDTH, mean_task, &f);
  for (int64_t j = 0; j < f.columns; j++) sum += f.mean[j] * f.mean[j];
  if (backward) smx_parallel(c->ctx, f.rows, spread_task, &f);
  else tensor_put(c, Y, 0, sum);
  smx_free(c->ctx, f.mean);
  return SMX_OK;
}
smx_status pool_flops(const tensor_call *c) { return flops(c, false); }
smx_status pool_flops_backward(const tensor_call *c) { return c->din.given[0] ? flops(c, true) : SMX_OK; }
