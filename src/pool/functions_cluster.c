/* pool/functions_cluster.c - see functions_cluster.h. With share_i of token i in what stands for
 * its cluster k: y_k = sum share_i x_i, so dx_i = share_i dy_k with the clusters as constants, and
 * as share_i = w_i / W_k, dw_i = dy_k (x_i - y_k) / W_k. */
#include <string.h>

#include "functions_cluster.h"

enum { X };               /* the first input */
enum { Y, INDEX, COUNT }; /* outputs */

/* Numbers become about 1. Returns the power of 2 that they were multiplied by; *wrong: one is not
 * finite, or below `least`. */
static double scale(double *x, int64_t n, double least, bool *wrong) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    const double size = x[i] < 0 ? -x[i] : x[i];
    *wrong |= !(x[i] - x[i] == 0) || x[i] < least;
    most = size > most ? size : most;
  }
  const double by = pool_power_of(most);
  for (int64_t i = 0; i < n; i++) x[i] *= by;
  return by;
}

void pool_token_distances(const double *x, const double *others, int64_t elements, double *square) {
  double sum[TOKEN_LANES] = {0};
  for (int64_t j = 0; j < elements; j++)
    for (int t = 0; t < TOKEN_LANES; t++) {
      const double difference = x[j] - others[j * TOKEN_LANES + t];
      sum[t] += difference * difference;
    }
  for (int t = 0; t < TOKEN_LANES; t++) square[t] = sum[t];
}

static void divide_memory(const token_pool *p, carver *c, token_set *q) {
  const int64_t n = p->sets.n, d = p->sets.channels;
  q->x = carve(c, n, d, 8), q->y = carve(c, n, d, 8);
  q->weight = carve(c, n, 1, 8), q->share = carve(c, n, 1, 8), q->total = carve(c, n, 1, 8);
  q->place = carve(c, n, 1, 8), q->cluster = carve(c, n, 1, 8);
  q->own = carve(c, 1, 1, TOKEN_OWN);
  p->method->memory(p, c, q);
}

static void load_tokens(const token_pool *p, int64_t lead, token_set *q) {
  const tensor_call *c = p->sets.c;
  const int64_t n = p->sets.n, d = p->sets.channels;
  const int weights = pool_input(c->op, "weight");
  q->count = 0, q->clusters = 0, q->none = false, q->length = NULL;
  for (int64_t i = 0; i < n; i++) {
    if (p->sets.mask && !p->sets.mask[lead * n + i]) continue;
    tensor_load(c, c->in.view + X, (lead * n + i) * d, d, q->x + q->count * d);
    q->weight[q->count] = 1;
    if (weights >= 0 && c->in.given[weights])
      tensor_load(c, c->in.view + weights, lead * n + i, 1, q->weight + q->count);
    q->place[q->count++] = i;
  }
  q->by = scale(q->x, q->count * d, -__builtin_inf(), &q->none);
  q->by_weight = scale(q->weight, q->count, 0, &q->none);
}

/* The tokens of a lead and their clusters, in memory of the scratch. */
static token_set take_set(token_pool *p, int64_t lead, void **place) {
  token_set q;
  carver c = {.base = *place = smx_scratch_take(&p->scratch), .fits = true};
  divide_memory(p, &c, &q);
  load_tokens(p, lead, &q);
  if (!q.none && q.count > 0) p->method->cluster(p, &q);
  return q;
}

static void put_row(const token_pool *p, const token_set *q, int64_t lead, int64_t row) {
  const tensor_call *c = p->sets.c;
  const int64_t d = p->sets.channels;
  const double other = q->none ? __builtin_nan("") : q->count == 0 ? pool_empty_value(c) : 0;
  const double by = q->length ? 1 : 1 / q->by;
  double y[SET_WIDTH];
  for (int64_t at = 0; at < d; at += SET_WIDTH) {
    const int64_t width = d - at < SET_WIDTH ? d - at : SET_WIDTH;
    for (int64_t j = 0; j < width; j++) y[j] = row < q->clusters ? q->y[row * d + at + j] * by : other;
    tensor_store(c, c->out.view + Y, (lead * p->rows + row) * d + at, width, y);
  }
}

static void forward_task(void *arg, int64_t lead) {
  token_pool *p = arg;
  const tensor_call *c = p->sets.c;
  const int64_t n = p->sets.n;
  void *place;
  const token_set q = take_set(p, lead, &place);
  for (int64_t row = 0; row < p->rows; row++) put_row(p, &q, lead, row);
  for (int64_t i = 0; i < n; i++) *pool_whole_at(c->out.view + INDEX, lead * n + i) = -1;
  for (int64_t i = 0; i < q.count && q.clusters > 0; i++)
    *pool_whole_at(c->out.view + INDEX, lead * n + q.place[i]) = q.cluster[i];
  *pool_whole_at(c->out.view + COUNT, lead) = q.clusters;
  smx_scratch_give(&p->scratch, place);
}

/* ---- gradients ---- */

/* What points along row `row` of y goes out of the gradient where lengths are 1. */
static double along_row(const token_pool *p, const token_set *q, int64_t lead, int64_t row) {
  const int64_t d = p->sets.channels;
  double sum = 0;
  for (int64_t j = 0; j < d && q->length; j++) {
    double g;
    tensor_load(p->sets.c, p->sets.c->dout.view + Y, (lead * p->rows + row) * d + j, 1, &g);
    sum += g * q->y[row * d + j];
  }
  return sum;
}

/* Of the x of token i, into its own; returns that of its weight, but for the total. */
static double give_token(const token_pool *p, const token_set *q, int64_t lead, int64_t i) {
  const tensor_call *c = p->sets.c;
  const int64_t d = p->sets.channels, row = q->cluster[i];
  const double along = along_row(p, q, lead, row);
  double g[SET_WIDTH], dx[SET_WIDTH], sum = 0;
  for (int64_t at = 0; at < d; at += SET_WIDTH) {
    const int64_t width = d - at < SET_WIDTH ? d - at : SET_WIDTH;
    tensor_load(c, c->dout.view + Y, (lead * p->rows + row) * d + at, width, g);
    for (int64_t j = 0; j < width && q->length; j++)
      g[j] = q->length[row] == 0 ? 0 : (g[j] - along * q->y[row * d + at + j]) / q->length[row] * q->by;
    for (int64_t j = 0; j < width; j++) {
      dx[j] = q->share[i] == 0 ? 0 : q->share[i] * g[j];
      sum += g[j] * (q->x[i * d + at + j] - q->y[row * d + at + j]);
    }
    if (c->din.given[X])
      tensor_store(c, c->din.view + X, (lead * p->sets.n + q->place[i]) * d + at, width, dx);
  }
  return sum;
}

static void zero_row(const tensor_call *c, const smx_view *v, int64_t at, int64_t n) {
  memset(v->data + at * (c->is_f64 ? 8 : 4), 0, (size_t)n * (c->is_f64 ? 8 : 4));
}

static void backward_task(void *arg, int64_t lead) {
  token_pool *p = arg;
  const tensor_call *c = p->sets.c;
  const int64_t n = p->sets.n, d = p->sets.channels;
  const int weights = pool_input(c->op, "weight");
  const bool weighted = weights >= 0 && c->din.given[weights];
  void *place;
  if (c->din.given[X]) zero_row(c, c->din.view + X, lead * n * d, n * d);
  if (weighted) zero_row(c, c->din.view + weights, lead * n, n);
  const token_set q = take_set(p, lead, &place);
  for (int64_t i = 0; i < q.count && q.clusters > 0; i++) {
    const double sum = give_token(p, &q, lead, i) / q.by, total = q.total[q.cluster[i]];
    const double dw = total > 0 ? sum / total * q.by_weight : 0;
    if (weighted) tensor_store(c, c->din.view + weights, lead * n + q.place[i], 1, &dw);
  }
  smx_scratch_give(&p->scratch, place);
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, const token_method *method,
                      void (*task)(void *arg, int64_t lead)) {
  token_pool p = {.sets = pool_sets_of(c), .method = method, .rows = tensor_dim(c, "r")};
  carver bytes = {.fits = true};
  token_set none;
  const smx_status status = pool_check_empty(&p.sets);
  if (status != SMX_OK) return status;
  divide_memory(&p, &bytes, &none);
  if (!bytes.fits || !smx_scratch_open(&p.scratch, c->ctx, 0, (size_t)bytes.at, p.sets.leads))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)p.sets.n);
  smx_parallel(c->ctx, p.sets.leads, task, &p);
  smx_scratch_close(&p.scratch);
  return SMX_OK;
}

smx_status pool_tokens(const tensor_call *c, const token_method *method) {
  return run(c, method, forward_task);
}
smx_status pool_tokens_backward(const tensor_call *c, const token_method *method) {
  return run(c, method, backward_task);
}
