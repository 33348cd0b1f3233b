/* pool/functions_parse.c - graph_parse: every node follows its best edge, and nodes that follow
 * each other, directly or over others, become one. Graph Parsing Networks (Song, Huang, Wang,
 * Zhou, Lin 2024).
 *
 * dom(u) = where the edge from u of the largest score goes, the first of equal ones; clusters are
 * the components of u - dom(u). With m the mean score of the edges inside a cluster and l how many
 * there are, 1 and 1 without: y = m l sum x_u. Gradient: dx_u = m l dy, dm = l dy sum x_u, ds_e =
 * dm / l for the edges inside. */
#include "driver/merge_sort.h"
#include "functions_cluster.h"

enum { X, EDGE, SCORE };                                      /* inputs */
enum { Y, MEAN, INDEX, POOLED_EDGE, LINKS, CLUSTERS, EDGES }; /* outputs */

typedef struct parse_call {
  pool_sets sets;
  int64_t edges;
  bool scaled;
  smx_scratch scratch;
} parse_call;

/* The memory of a graph. */
typedef struct parsed {
  const int64_t *from, *to;
  int64_t count, clusters;
  bool none;                /* a score is NaN */
  double *score;            /* of each edge */
  int64_t *best;            /* of each node: its edge; -1 */
  int64_t *parent, *number; /* of each node: one of its cluster, then its cluster; -1: not there */
  int64_t *order, *begin;   /* nodes by clusters, and where those of a cluster begin */
  double *mean;             /* m and l of each cluster */
  int64_t *links;
  int64_t *pair, *spare; /* edges */
  double *x, *sum;       /* rows */
} parsed;

static bool is_there(const parse_call *p, int64_t lead, int64_t i) {
  return !p->sets.mask || p->sets.mask[lead * p->sets.n + i];
}

static void divide_graph(const parse_call *p, carver *c, parsed *g) {
  const int64_t n = p->sets.n, d = p->sets.channels, e = p->edges;
  g->score = carve(c, e, 1, 8), g->mean = carve(c, n, 1, 8), g->links = carve(c, n, 1, 8);
  g->best = carve(c, n, 1, 8), g->parent = carve(c, n, 1, 8), g->number = carve(c, n, 1, 8);
  g->order = carve(c, n, 1, 8), g->begin = carve(c, n + 1, 1, 8);
  g->pair = carve(c, e, 1, 8), g->spare = carve(c, e, 1, 8);
  g->x = carve(c, d, 1, 8), g->sum = carve(c, d, 1, 8);
}

/* The first node of the cluster, as far as it is known; those on the way look there at once. */
static int64_t root_of(const parsed *g, int64_t i) {
  int64_t root = i;
  while (g->parent[root] != root) root = g->parent[root];
  while (g->parent[i] != root) {
    const int64_t next = g->parent[i];
    g->parent[i] = root, i = next;
  }
  return root;
}

static void follow_best_edges(const parse_call *p, int64_t lead, parsed *g) {
  for (int64_t i = 0; i < p->sets.n; i++) g->best[i] = -1, g->parent[i] = i;
  for (int64_t e = 0; e < p->edges; e++) {
    const int64_t i = g->from[e];
    if (!is_there(p, lead, i) || !is_there(p, lead, g->to[e])) continue;
    g->none |= g->score[e] != g->score[e];
    if (g->best[i] < 0 || g->score[e] > g->score[g->best[i]]) g->best[i] = e;
  }
  for (int64_t i = 0; i < p->sets.n; i++) {
    if (g->best[i] < 0) continue;
    const int64_t a = root_of(g, i), b = root_of(g, g->to[g->best[i]]);
    g->parent[a < b ? b : a] = a < b ? a : b;
  }
}

/* Clusters in the order of their first nodes, and their nodes. */
static void number_clusters(const parse_call *p, int64_t lead, parsed *g) {
  for (int64_t i = 0; i < p->sets.n; i++) {
    g->number[i] = -1;
    if (!is_there(p, lead, i)) continue;
    const int64_t root = root_of(g, i);
    if (root == i) g->begin[g->clusters] = 0, g->number[i] = g->clusters++;
    else g->number[i] = g->number[root];
    g->begin[g->number[i]]++, g->count++;
  }
  for (int64_t k = 0, at = 0; k <= g->clusters; k++) {
    const int64_t own = k < g->clusters ? g->begin[k] : 0;
    g->begin[k] = at, at += own;
  }
  for (int64_t i = 0; i < p->sets.n; i++)
    if (g->number[i] >= 0) g->order[g->begin[g->number[i]]++] = i;
  for (int64_t k = g->clusters; k > 0; k--) g->begin[k] = g->begin[k - 1];
  g->begin[0] = 0;
}

static bool is_inside(const parsed *g, int64_t e) {
  return g->number[g->from[e]] >= 0 && g->number[g->from[e]] == g->number[g->to[e]];
}

static void sum_links(const parse_call *p, parsed *g) {
  for (int64_t k = 0; k < g->clusters; k++) g->mean[k] = 0, g->links[k] = 0;
  for (int64_t e = 0; e < p->edges; e++)
    if (is_inside(g, e)) g->mean[g->number[g->from[e]]] += g->score[e], g->links[g->number[g->from[e]]]++;
  for (int64_t k = 0; k < g->clusters; k++) {
    if (g->links[k] == 0) g->mean[k] = 1, g->links[k] = 1;
    g->mean[k] /= (double)g->links[k];
  }
}

static parsed take_graph(parse_call *p, int64_t lead, void **place) {
  const tensor_call *c = p->sets.c;
  carver memory = {.base = *place = smx_scratch_take(&p->scratch), .fits = true};
  parsed g = {0};
  divide_graph(p, &memory, &g);
  if (p->edges > 0) {
    g.from = pool_whole_at(c->in.view + EDGE, lead * 2 * p->edges), g.to = g.from + p->edges;
    tensor_load(c, c->in.view + SCORE, lead * p->edges, p->edges, g.score);
  }
  follow_best_edges(p, lead, &g);
  if (g.none) return g;
  number_clusters(p, lead, &g);
  sum_links(p, &g);
  return g;
}

/* The sum of the nodes of a cluster. */
static void sum_nodes(const parse_call *p, const parsed *g, int64_t lead, int64_t k) {
  const tensor_call *c = p->sets.c;
  const int64_t d = p->sets.channels;
  for (int64_t j = 0; j < d; j++) g->sum[j] = 0;
  for (int64_t t = g->begin[k]; t < g->begin[k + 1]; t++) {
    tensor_load(c, c->in.view + X, (lead * p->sets.n + g->order[t]) * d, d, g->x);
    for (int64_t j = 0; j < d; j++) g->sum[j] += g->x[j];
  }
}

static double factor_of(const parse_call *p, const parsed *g, int64_t k) {
  return p->scaled ? g->mean[k] * (double)g->links[k] : 1;
}

static bool is_smaller(const void *graph, int64_t a, int64_t b) {
  const parsed *g = graph;
  const int64_t from_a = g->number[g->from[a]], from_b = g->number[g->from[b]];
  const int64_t to_a = g->number[g->to[a]], to_b = g->number[g->to[b]];
  return from_a != from_b ? from_a < from_b : to_a != to_b ? to_a < to_b : a < b;
}

/* Pairs of clusters that an edge joins, each once, by their numbers; then -1. */
static void put_edges(const parse_call *p, const parsed *g, int64_t lead) {
  int64_t *to = pool_whole_at(p->sets.c->out.view + POOLED_EDGE, lead * 2 * p->edges), count = 0, kept = 0;
  for (int64_t e = 0; e < 2 * p->edges; e++) to[e] = -1;
  for (int64_t e = 0; e < p->edges && !g->none; e++)
    if (g->number[g->from[e]] >= 0 && g->number[g->to[e]] >= 0 && !is_inside(g, e)) g->pair[count++] = e;
  const int64_t *order = smx_merge_sort(g->pair, g->spare, count, is_smaller, g);
  for (int64_t t = 0; t < count; t++) {
    const int64_t a = g->number[g->from[order[t]]], b = g->number[g->to[order[t]]];
    if (kept > 0 && to[kept - 1] == a && to[p->edges + kept - 1] == b) continue;
    to[kept] = a, to[p->edges + kept++] = b;
  }
  *pool_whole_at(p->sets.c->out.view + EDGES, lead) = kept;
}

static void forward_task(void *arg, int64_t lead) {
  parse_call *p = arg;
  const tensor_call *c = p->sets.c;
  const int64_t n = p->sets.n, d = p->sets.channels;
  void *place;
  const parsed g = take_graph(p, lead, &place);
  const double other = g.none ? __builtin_nan("") : g.count == 0 ? pool_empty_value(c) : 0;
  for (int64_t k = 0; k < n; k++) {
    const bool is = k < g.clusters;
    if (is) sum_nodes(p, &g, lead, k);
    const double factor = is ? factor_of(p, &g, k) : 0;
    for (int64_t j = 0; j < d; j++) g.sum[j] = is ? g.sum[j] * factor : other;
    tensor_store(c, c->out.view + Y, (lead * n + k) * d, d, g.sum);
    tensor_put(c, MEAN, lead * n + k, is ? g.mean[k] : other);
    *pool_whole_at(c->out.view + LINKS, lead * n + k) = is ? g.links[k] : 0;
    *pool_whole_at(c->out.view + INDEX, lead * n + k) = g.none ? -1 : g.number[k];
  }
  *pool_whole_at(c->out.view + CLUSTERS, lead) = g.clusters;
  *pool_whole_at(c->out.view + EDGES, lead) = 0;
  if (p->edges > 0) put_edges(p, &g, lead);
  smx_scratch_give(&p->scratch, place);
}

/* Nodes of a cluster get their gradient; the mean, that of a score inside. */
static void give_cluster(const parse_call *p, const parsed *g, int64_t lead, int64_t k) {
  const tensor_call *c = p->sets.c;
  const int64_t n = p->sets.n, d = p->sets.channels;
  const double factor = factor_of(p, g, k);
  double along = 0;
  sum_nodes(p, g, lead, k);
  for (int64_t j = 0; j < d; j++) g->x[j] = 0;
  if (c->dout.given[Y]) tensor_load(c, c->dout.view + Y, (lead * n + k) * d, d, g->x);
  for (int64_t j = 0; j < d; j++) {
    along += g->x[j] * g->sum[j];
    g->x[j] *= factor;
  }
  for (int64_t t = g->begin[k]; t < g->begin[k + 1] && c->din.given[X]; t++)
    tensor_store(c, c->din.view + X, (lead * n + g->order[t]) * d, d, g->x);
  const double links = (double)g->links[k], upstream = tensor_upstream(c, MEAN, lead * n + k);
  g->mean[k] = ((p->scaled ? links * along : 0) + upstream) / links;
}

static void backward_task(void *arg, int64_t lead) {
  parse_call *p = arg;
  const tensor_call *c = p->sets.c;
  const int64_t n = p->sets.n, d = p->sets.channels;
  void *place;
  const parsed g = take_graph(p, lead, &place);
  for (int64_t j = 0; j < d; j++) g.x[j] = 0;
  for (int64_t i = 0; i < n && c->din.given[X]; i++)
    if (g.none || g.number[i] < 0) tensor_store(c, c->din.view + X, (lead * n + i) * d, d, g.x);
  for (int64_t k = 0; k < g.clusters; k++) give_cluster(p, &g, lead, k);
  for (int64_t e = 0; e < p->edges && c->din.given[SCORE]; e++) {
    const double ds = !g.none && is_inside(&g, e) ? g.mean[g.number[g.from[e]]] : 0;
    tensor_store(c, c->din.view + SCORE, lead * p->edges + e, 1, &ds);
  }
  smx_scratch_give(&p->scratch, place);
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t lead)) {
  parse_call p = {
      .sets = pool_sets_of(c), .edges = tensor_dim(c, "e"), .scaled = tensor_param(c, "scale") != 0};
  carver place = {.fits = true};
  parsed none;
  const smx_status status = pool_check_empty(&p.sets);
  if (status != SMX_OK) return status;
  divide_graph(&p, &place, &none);
  if (!place.fits || !smx_scratch_open(&p.scratch, c->ctx, 0, (size_t)place.at, p.sets.leads))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld nodes", c->op->name, (long long)p.sets.n);
  smx_parallel(c->ctx, p.sets.leads, task, &p);
  smx_scratch_close(&p.scratch);
  return SMX_OK;
}

smx_status pool_parse(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_parse_backward(const tensor_call *c) { return run(c, backward_task); }
