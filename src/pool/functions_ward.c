/* pool/functions_ward.c - token_pool_ward: the two clusters whose union costs least become one,
 * until n / factor are left; what stands for a cluster is the mean of its tokens. Ward's distance:
 * d(A, B)^2 = 2 |A| |B| / (|A| + |B|) |mean_A - mean_B|^2, the least first number, then the least
 * second, of equal pairs. Reducing the Footprint of Multi-Vector Retrieval with Minimal Performance
 * Impact via Token Pooling (Clavie, Chaffin, Adams 2024); Hierarchical Grouping to Optimize an
 * Objective Function (Ward 1963).
 *
 * A cluster has the number of its first token. Each remembers the nearest one behind it, so a union
 * asks again only for those that lost theirs. Distances are formed from the means anew, never from
 * other distances, so that nothing adds up and equal ones stay equal. */
#include "functions_cluster.h"

typedef struct ward {
  int64_t first, n, elements; /* tokens that stay alone; those that are grouped, their observations' length */
  double *seen;               /* [n, elements]: observations, then sums of the clusters */
  double *blocks;             /* means of the clusters, as pool_token_distances wants them */
  double *mean;               /* of one cluster */
  double *size, *near;        /* how many tokens; the distance of the nearest cluster behind */
  double *length;             /* of the means in the end */
  int64_t *nearest;           /* its number; -1: there is none */
  int64_t *number;            /* of a cluster: its number in the end */
} ward;

static bool sees_cosines(const tensor_call *c) { return tensor_param(c, "observations") == 0; }

static void ward_memory(const token_pool *p, carver *c, token_set *q) {
  const int64_t n = p->sets.n, most = sees_cosines(p->sets.c) ? n : p->sets.channels;
  ward w = {0};
  w.seen = carve(c, n, most, 8), w.blocks = carve(c, token_blocks(n) * TOKEN_LANES, most, 8);
  w.mean = carve(c, most, 1, 8), w.size = carve(c, n, 1, 8), w.near = carve(c, n, 1, 8);
  w.length = carve(c, n, 1, 8);
  w.nearest = carve(c, n, 1, 8), w.number = carve(c, n, 1, 8);
  if (c->base) *(ward *)q->own = w;
}

/* Of n tokens, of which some stay alone: how many clusters there are. */
static int64_t clusters_of(int64_t n, int64_t first, int64_t factor) {
  const int64_t most = n / factor > 1 ? n / factor : 1;
  return n - first <= most ? n : first + most;
}

/* The observation of a token: x, or its cosine distances 1 - x_i x_j. The 1 goes out of every
 * difference, and is left out. */
static void observe(const token_pool *p, const token_set *q, ward *w) {
  const int64_t d = p->sets.channels;
  const double *x = q->x + w->first * d;
  if (!sees_cosines(p->sets.c)) {
    for (int64_t i = 0; i < w->n * d; i++) w->seen[i] = x[i];
    return;
  }
  for (int64_t i = 0; i < w->n; i++)
    for (int64_t j = i; j < w->n; j++) {
      double sum = 0;
      for (int64_t e = 0; e < d; e++) sum += x[i * d + e] * x[j * d + e];
      w->seen[i * w->n + j] = w->seen[j * w->n + i] = sum;
    }
}

static double *mean_of(const ward *w, int64_t i) {
  return w->blocks + i / TOKEN_LANES * w->elements * TOKEN_LANES + i % TOKEN_LANES;
}
static void put_mean(const ward *w, int64_t i) {
  double *to = mean_of(w, i);
  for (int64_t j = 0; j < w->elements; j++) to[j * TOKEN_LANES] = w->seen[i * w->elements + j] / w->size[i];
}

/* Squares of Ward's distances of cluster i, whose mean is w->mean, and those of a block. */
static void distances(const ward *w, int64_t i, int64_t block, double *square) {
  const int64_t from = block * TOKEN_LANES;
  pool_token_distances(w->mean, w->blocks + from * w->elements, w->elements, square);
  for (int64_t t = 0; t < TOKEN_LANES && from + t < w->n; t++) {
    const double a = w->size[i], b = w->size[from + t];
    square[t] *= 2 * a * b / (a + b);
  }
}
static void take_mean(const ward *w, int64_t i) {
  const double *from = mean_of(w, i);
  for (int64_t j = 0; j < w->elements; j++) w->mean[j] = from[j * TOKEN_LANES];
}

/* The nearest cluster behind i. */
static void find_nearest(const ward *w, int64_t i) {
  double square[TOKEN_LANES];
  w->nearest[i] = -1;
  take_mean(w, i);
  for (int64_t block = i / TOKEN_LANES; block < token_blocks(w->n); block++) {
    distances(w, i, block, square);
    for (int64_t t = 0, j = block * TOKEN_LANES; t < TOKEN_LANES && j < w->n; t++, j++)
      if (j > i && w->size[j] > 0 && (w->nearest[i] < 0 || square[t] < w->near[i]))
        w->near[i] = square[t], w->nearest[i] = j;
  }
}

/* Those before i, whose cluster has grown: it may have become the nearest of some. */
static void tell_those_before(const ward *w, int64_t i) {
  double square[TOKEN_LANES];
  take_mean(w, i);
  for (int64_t block = 0; block * TOKEN_LANES < i; block++) {
    distances(w, i, block, square);
    for (int64_t t = 0, k = block * TOKEN_LANES; t < TOKEN_LANES && k < i; t++, k++)
      if (w->size[k] > 0 && (square[t] < w->near[k] || (square[t] == w->near[k] && i < w->nearest[k])))
        w->near[k] = square[t], w->nearest[k] = i;
  }
}

/* Cluster j goes into cluster i, which is before it. */
static void unite(const token_pool *p, token_set *q, const ward *w, int64_t i, int64_t j) {
  for (int64_t e = 0; e < w->elements; e++) w->seen[i * w->elements + e] += w->seen[j * w->elements + e];
  w->size[i] += w->size[j], w->size[j] = 0;
  put_mean(w, i);
  for (int64_t t = w->first; t < q->count; t++)
    if (q->cluster[t] == w->first + j) q->cluster[t] = w->first + i;
  for (int64_t k = 0; k < j; k++)
    if (w->size[k] > 0 && (k == i || w->nearest[k] == i || w->nearest[k] == j)) find_nearest(w, k);
  tell_those_before(w, i);
}

static void group(const token_pool *p, token_set *q, ward *w, int64_t clusters) {
  observe(p, q, w);
  for (int64_t i = 0; i < w->n; i++) w->size[i] = 1, put_mean(w, i);
  for (int64_t i = w->n; i < token_blocks(w->n) * TOKEN_LANES; i++) {
    double *to = mean_of(w, i); /* lanes of no cluster */
    for (int64_t e = 0; e < w->elements; e++) to[e * TOKEN_LANES] = 0;
  }
  for (int64_t i = 0; i < w->n; i++) find_nearest(w, i);
  for (int64_t left = w->n; left > clusters; left--) {
    int64_t best = -1;
    for (int64_t i = 0; i < w->n; i++)
      if (w->size[i] > 0 && w->nearest[i] >= 0 && (best < 0 || w->near[i] < w->near[best])) best = i;
    unite(p, q, w, best, w->nearest[best]);
  }
}

/* Numbers in the order of first tokens, and the means of the tokens; share: how many there are. */
static void put_means(const token_pool *p, token_set *q, const ward *w) {
  const int64_t d = p->sets.channels;
  double *count = q->total;
  for (int64_t i = 0; i < q->count; i++) {
    if (q->cluster[i] == i) {
      w->number[i] = q->clusters, count[q->clusters] = 0;
      for (int64_t j = 0; j < d; j++) q->y[q->clusters * d + j] = 0;
      q->clusters++;
    }
    const int64_t k = q->cluster[i] = w->number[q->cluster[i]];
    for (int64_t j = 0; j < d; j++) q->y[k * d + j] += q->x[i * d + j];
    count[k]++;
  }
  for (int64_t k = 0; k < q->clusters; k++)
    for (int64_t j = 0; j < d; j++) q->y[k * d + j] /= count[k];
  for (int64_t i = 0; i < q->count; i++) q->share[i] = 1 / count[q->cluster[i]];
}

/* Means of length 1, by numbers over their largest. */
static void normalise(int64_t d, token_set *q) {
  for (int64_t k = 0; k < q->clusters; k++) {
    double *y = q->y + k * d, most = 0, sum = 0;
    for (int64_t j = 0; j < d; j++) {
      const double size = y[j] < 0 ? -y[j] : y[j];
      most = size > most ? size : most;
    }
    const double by = pool_power_of(most);
    for (int64_t j = 0; j < d; j++) sum += y[j] * by * (y[j] * by);
    q->length[k] = __builtin_sqrt(sum) / by;
    for (int64_t j = 0; j < d && q->length[k] > 0; j++) y[j] /= q->length[k];
  }
}

static void cluster(const token_pool *p, token_set *q) {
  const tensor_call *c = p->sets.c;
  ward *w = q->own;
  const int64_t first = (int64_t)tensor_param(c, "first");
  const int64_t clusters = clusters_of(q->count, first, (int64_t)tensor_param(c, "factor"));
  for (int64_t i = 0; i < q->count; i++) q->cluster[i] = i;
  if (clusters < q->count) {
    w->first = first, w->n = q->count - first;
    w->elements = sees_cosines(c) ? w->n : p->sets.channels;
    group(p, q, w, clusters - first);
  }
  put_means(p, q, w);
  if (tensor_param(c, "renormalise") != 0) q->length = w->length, normalise(p->sets.channels, q);
}

static const token_method method = {cluster, ward_memory};

smx_status pool_ward_sizes(dims *d) {
  const int64_t first = (int64_t)dims_param(d, "first", 0), factor = (int64_t)dims_param(d, "factor", 1);
  dims_set(d, "r", 0, clusters_of(dims_value(d, "n", 0), first, factor));
  return SMX_OK;
}
smx_status pool_ward(const tensor_call *c) { return pool_tokens(c, &method); }
smx_status pool_ward_backward(const tensor_call *c) { return pool_tokens_backward(c, &method); }
