/* pool/functions_kmeans.c - token_pool_kmeans and token_pool_kmedoids: weighted clusters by Lloyd's
 * steps, sum_i w_i min_k |x_i - y_k|^2. Token Pooling in Vision Transformers (Marin et al. 2021).
 *
 * The first centres are the k tokens of the largest weights, the first of equal ones. A step: every
 * token goes to the nearest centre, the first of equal ones; a centre moves to the weighted mean
 * of its tokens, or to the medoid, that of them from which sum w_i |x_i - x_m|^2 is least, the
 * first of equal ones. Nothing moves once every token stays where it is. A centre without tokens
 * stays; it is left out in the end. */
#include "driver/merge_sort.h"
#include "functions_cluster.h"

typedef struct kmeans {
  int64_t clusters;        /* of the steps */
  int64_t *order, *spare;  /* tokens; by weight, then by cluster */
  int64_t *begin, *number; /* of a cluster: where its tokens begin in the order; its number in the end */
  int64_t *medoid;         /* of a cluster: a token, or -1 for a mean */
  double *centre, *blocks; /* [clusters, channels]; as pool_token_distances wants some rows */
  double *total;           /* of the clusters, as they were numbered */
} kmeans;

static void kmeans_memory(const token_pool *p, carver *c, token_set *q) {
  const int64_t n = p->sets.n, d = p->sets.channels;
  kmeans m;
  m.order = carve(c, n, 1, 8), m.spare = carve(c, n, 1, 8);
  m.begin = carve(c, n + 1, 1, 8), m.number = carve(c, n, 1, 8), m.medoid = carve(c, n, 1, 8);
  m.centre = carve(c, n, d, 8), m.blocks = carve(c, token_blocks(n) * TOKEN_LANES, d, 8);
  m.total = carve(c, n, 1, 8);
  if (c->base) *(kmeans *)q->own = m;
}

/* Rows of a matrix, those of some numbers or the first ones, side by side. */
static void put_blocks(const double *rows, const int64_t *which, int64_t count, int64_t d, double *blocks) {
  for (int64_t k = 0; k < token_blocks(count) * TOKEN_LANES; k++) {
    const int64_t last = k < count ? k : count - 1, row = which ? which[last] : last;
    double *to = blocks + k / TOKEN_LANES * d * TOKEN_LANES + k % TOKEN_LANES;
    for (int64_t j = 0; j < d; j++) to[j * TOKEN_LANES] = rows[row * d + j];
  }
}

static void copy_row(const double *from, int64_t d, double *to) {
  for (int64_t j = 0; j < d; j++) to[j] = from[j];
}

static bool weighs_more(const void *set, int64_t a, int64_t b) {
  const double *w = ((const token_set *)set)->weight;
  return w[a] != w[b] ? w[a] > w[b] : a < b;
}

static void begin(const token_pool *p, token_set *q, kmeans *m) {
  const int64_t d = p->sets.channels;
  for (int64_t i = 0; i < q->count; i++) m->order[i] = i, q->cluster[i] = -1;
  const int64_t *order = smx_merge_sort(m->order, m->spare, q->count, weighs_more, q);
  for (int64_t k = 0; k < m->clusters; k++) copy_row(q->x + order[k] * d, d, m->centre + k * d);
}

/* Every token goes to its nearest centre. False: all are there. */
static bool assign(const token_pool *p, token_set *q, const kmeans *m) {
  const int64_t d = p->sets.channels;
  bool moved = false;
  put_blocks(m->centre, NULL, m->clusters, d, m->blocks);
  for (int64_t i = 0; i < q->count; i++) {
    double square[TOKEN_LANES], least = __builtin_inf();
    int64_t nearest = 0;
    for (int64_t k = 0; k < m->clusters; k++) {
      if (k % TOKEN_LANES == 0) pool_token_distances(q->x + i * d, m->blocks + k * d, d, square);
      if (square[k % TOKEN_LANES] < least) least = square[k % TOKEN_LANES], nearest = k;
    }
    moved |= q->cluster[i] != nearest;
    q->cluster[i] = nearest;
  }
  return moved;
}

/* The order becomes that of the clusters; their totals, and the weights' shares: in a cluster of
 * no weight all tokens weigh the same. */
static void gather(token_set *q, kmeans *m) {
  for (int64_t k = 0; k <= m->clusters; k++) m->begin[k] = 0;
  for (int64_t k = 0; k < m->clusters; k++) q->total[k] = 0;
  for (int64_t i = 0; i < q->count; i++) {
    m->begin[q->cluster[i] + 1]++;
    q->total[q->cluster[i]] += q->weight[i];
  }
  for (int64_t k = 0; k < m->clusters; k++) m->begin[k + 1] += m->begin[k], m->spare[k] = m->begin[k];
  for (int64_t i = 0; i < q->count; i++) {
    const int64_t k = q->cluster[i], own = m->begin[k + 1] - m->begin[k];
    m->order[m->spare[k]++] = i;
    q->share[i] = own == 1 ? 1 : q->total[k] > 0 ? q->weight[i] : 1;
  }
}

static void move_mean(const token_pool *p, token_set *q, const kmeans *m, int64_t k) {
  const int64_t d = p->sets.channels, *own = m->order + m->begin[k], count = m->begin[k + 1] - m->begin[k];
  const double total = count > 1 && q->total[k] > 0 ? q->total[k] : (double)count;
  double *y = m->centre + k * d;
  for (int64_t j = 0; j < d; j++) y[j] = 0;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < d; j++) y[j] += q->share[own[i]] * q->x[own[i] * d + j];
  for (int64_t j = 0; j < d; j++) y[j] /= total;
  for (int64_t i = 0; i < count; i++) q->share[own[i]] /= total;
}

static void move_medoid(const token_pool *p, token_set *q, const kmeans *m, int64_t k) {
  const int64_t d = p->sets.channels, *own = m->order + m->begin[k], count = m->begin[k + 1] - m->begin[k];
  double least = __builtin_inf();
  m->medoid[k] = own[0];
  put_blocks(q->x, own, count, d, m->blocks);
  for (int64_t at = 0; at < count; at += TOKEN_LANES) {
    double square[TOKEN_LANES], cost[TOKEN_LANES] = {0};
    for (int64_t i = 0; i < count; i++) {
      pool_token_distances(q->x + own[i] * d, m->blocks + at * d, d, square);
      for (int t = 0; t < TOKEN_LANES; t++) cost[t] += q->share[own[i]] * square[t];
    }
    for (int64_t t = 0; t < TOKEN_LANES && at + t < count; t++)
      if (cost[t] < least) least = cost[t], m->medoid[k] = own[at + t];
  }
  for (int64_t i = 0; i < count; i++) q->share[own[i]] = own[i] == m->medoid[k];
  copy_row(q->x + m->medoid[k] * d, d, m->centre + k * d);
}

typedef void move_fn(const token_pool *p, token_set *q, const kmeans *m, int64_t k);

static void move(const token_pool *p, token_set *q, kmeans *m, move_fn *one) {
  gather(q, m);
  for (int64_t k = 0; k < m->clusters; k++)
    if (m->begin[k] < m->begin[k + 1]) one(p, q, m, k);
}

/* Clusters are numbered by their first tokens. */
static void finish(const token_pool *p, token_set *q, const kmeans *m) {
  const int64_t d = p->sets.channels;
  for (int64_t k = 0; k < m->clusters; k++) m->number[k] = -1, m->spare[k] = 0;
  for (int64_t i = 0; i < q->count; i++) {
    const int64_t k = q->cluster[i];
    if (m->number[k] < 0) m->spare[q->clusters] = k, m->number[k] = q->clusters++;
    q->cluster[i] = m->number[k];
  }
  for (int64_t k = 0; k < m->clusters; k++) m->total[k] = q->total[k];
  for (int64_t k = 0; k < q->clusters; k++) {
    q->total[k] = m->total[m->spare[k]];
    copy_row(m->centre + m->spare[k] * d, d, q->y + k * d);
  }
}

static void cluster(const token_pool *p, token_set *q, move_fn *one) {
  kmeans *m = q->own;
  const tensor_call *c = p->sets.c;
  const int64_t steps = (int64_t)tensor_param(c, "steps"), most = (int64_t)tensor_param(c, "k");
  m->clusters = most < q->count ? most : q->count;
  if (m->clusters < q->count) {
    begin(p, q, m);
    for (int64_t step = 0; step < steps && assign(p, q, m); step++) move(p, q, m, one);
  } else {
    for (int64_t i = 0; i < q->count; i++) q->cluster[i] = i;
    move(p, q, m, one);
  }
  finish(p, q, m);
}

static void cluster_means(const token_pool *p, token_set *q) { cluster(p, q, move_mean); }
static void cluster_medoids(const token_pool *p, token_set *q) { cluster(p, q, move_medoid); }
static const token_method means = {cluster_means, kmeans_memory}, medoids = {cluster_medoids, kmeans_memory};

smx_status pool_kmeans_sizes(dims *d) {
  const int64_t n = dims_value(d, "n", 0), k = (int64_t)dims_param(d, "k", 1);
  dims_set(d, "r", 0, k < n ? k : n);
  return SMX_OK;
}
smx_status pool_kmeans(const tensor_call *c) { return pool_tokens(c, &means); }
smx_status pool_kmeans_backward(const tensor_call *c) { return pool_tokens_backward(c, &means); }
smx_status pool_kmedoids(const tensor_call *c) { return pool_tokens(c, &medoids); }
smx_status pool_kmedoids_backward(const tensor_call *c) { return pool_tokens_backward(c, &medoids); }
