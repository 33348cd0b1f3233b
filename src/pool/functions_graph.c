/* pool/functions_graph.c - graph_topk_pool: of the nodes of a graph those with the largest scores
 * stay, gated by them. s = X p / |p|, i = top-k(s), Y = X_i tanh(s_i), A' = A_ii: Towards Sparse
 * Hierarchical Graph Classifiers (Cangea et al. 2018). By a threshold: s = softmax(X p), i = {s_i >
 * min(max s - 1e-7, least)}, Y = X_i s_i: Understanding Attention and Generalization in Graph
 * Neural Networks (Knyazev, Taylor, Amer 2019). The adjacency is a list of edges.
 *
 * Gradient, with u = p / |p|, a_i = dy_i x_i and which nodes stay as a constant: ds_i = a_i
 * gate'(s_i), dx_i = gate_i dy_i + ds_i u, du = sum ds_i x_i over graphs in their order, dp = (du -
 * u (u du)) / |p|; of the softmax ds = s (a - sum s a), and u = p. */
#include "driver/merge_sort.h"
#include "functions_cluster.h"

enum { X, PROJECTION, EDGE, WEIGHT };                               /* inputs */
enum { Y, SCORE, POOLED_WEIGHT, INDEX, POOLED_EDGE, NODES, EDGES }; /* outputs */
static const double margin = 1e-7;                                  /* so that a graph keeps a node */

typedef struct topk_call {
  pool_sets sets;
  int64_t rows, edges;
  bool by_score, sigmoid;
  double norm;              /* of p; 1 by a threshold */
  double *direction, *part; /* u; du of each graph */
  smx_scratch scratch;
} topk_call;

/* The memory of a graph. */
typedef struct graph {
  int64_t count, kept;    /* nodes that are there, and that stay */
  bool none;              /* a score is NaN */
  double *score, *gate;   /* of each node; a masked one has 0 */
  double *ds, *x, *g;     /* of the nodes; of a row */
  int64_t *order, *spare; /* nodes: those that stay come first */
  int64_t *number;        /* of a node among those that stay; -1 */
} graph;

static double two_way(const score_kernels *math, double s, bool sigmoid) {
  const double t = math->expm1(s < 0 ? s * 2 : -s * 2), half = -t / (2 + t);
  if (!sigmoid) return s < 0 ? -half : half;
  const double e = math->exp(s < 0 ? s : -s);
  return s < 0 ? e / (1 + e) : 1 / (1 + e);
}

static void load_row(const topk_call *t, int64_t lead, int64_t i, double *x) {
  const int64_t d = t->sets.channels;
  tensor_load(t->sets.c, t->sets.c->in.view + X, (lead * t->sets.n + i) * d, d, x);
}

/* Projections; softmax of them. Nodes that are there go into the order. */
static void take_scores(const topk_call *t, int64_t lead, graph *g) {
  const score_kernels *math = t->sets.math;
  double most = -__builtin_inf(), sum = 0;
  g->count = 0, g->none = false;
  for (int64_t i = 0; i < t->sets.n; i++) {
    g->score[i] = g->gate[i] = 0, g->number[i] = -1;
    if (t->sets.mask && !t->sets.mask[lead * t->sets.n + i]) continue;
    load_row(t, lead, i, g->x);
    for (int64_t j = 0; j < t->sets.channels; j++) g->score[i] += g->x[j] * t->direction[j];
    g->none |= g->score[i] != g->score[i] || (t->by_score && g->score[i] - g->score[i] != 0);
    most = g->score[i] > most ? g->score[i] : most;
    g->order[g->count++] = i;
  }
  for (int64_t k = 0; k < g->count && t->by_score; k++)
    sum += g->score[g->order[k]] = math->exp(g->score[g->order[k]] - most);
  for (int64_t k = 0; k < g->count; k++) {
    const int64_t i = g->order[k];
    g->gate[i] = t->by_score ? g->score[i] /= sum : two_way(math, g->score[i], t->sigmoid);
  }
}

static bool scores_more(const void *graph_, int64_t a, int64_t b) {
  const double *s = ((const graph *)graph_)->score;
  return s[a] != s[b] ? s[a] > s[b] : a < b;
}

/* Of n nodes: k, or the ratio, rounded up unless that is a rounding error. */
static int64_t kept_of(int64_t n, int64_t k, double ratio) {
  const double all = ratio * (double)n;
  const int64_t below = (int64_t)all;
  const int64_t kept = k > 0 ? k : below + (all - (double)below > all * 0x1p-44);
  return kept < n ? kept : n;
}

/* Those above a threshold come first, in their order. */
static int64_t *sort_by_threshold(graph *g, double least) {
  double most = 0;
  int64_t at = 0;
  for (int64_t k = 0; k < g->count; k++) most = g->score[g->order[k]] > most ? g->score[g->order[k]] : most;
  if (most - margin < least) least = most - margin;
  for (int stay = 1; stay >= 0; stay--) {
    for (int64_t k = 0; k < g->count; k++)
      if ((g->score[g->order[k]] > least) == stay) g->spare[at++] = g->order[k];
    if (stay) g->kept = at;
  }
  return g->spare;
}

/* The nodes that stay come first in the order. */
static void choose(const topk_call *t, graph *g) {
  const tensor_call *c = t->sets.c;
  g->kept = 0;
  if (g->none) return;
  if (!t->by_score) g->kept = kept_of(g->count, (int64_t)tensor_param(c, "k"), tensor_param(c, "ratio"));
  int64_t *sorted = t->by_score ? sort_by_threshold(g, tensor_param(c, "least"))
                                : smx_merge_sort(g->order, g->spare, g->count, scores_more, g);
  if (sorted != g->order) g->spare = g->order, g->order = sorted;
  for (int64_t k = 0; k < g->kept; k++) g->number[g->order[k]] = k;
}

static void divide_graph(const topk_call *t, carver *c, graph *g) {
  const int64_t n = t->sets.n, d = t->sets.channels;
  g->score = carve(c, n, 1, 8), g->gate = carve(c, n, 1, 8), g->ds = carve(c, n, 1, 8);
  g->x = carve(c, d, 1, 8), g->g = carve(c, d, 1, 8);
  g->order = carve(c, n, 1, 8), g->spare = carve(c, n, 1, 8), g->number = carve(c, n, 1, 8);
}

static graph take_graph(topk_call *t, int64_t lead, void **place) {
  graph g;
  carver c = {.base = *place = smx_scratch_take(&t->scratch), .fits = true};
  divide_graph(t, &c, &g);
  take_scores(t, lead, &g);
  choose(t, &g);
  return g;
}

/* Edges between nodes that stay, in their order, then -1; weights, then 0. */
static void put_edges(const topk_call *t, const graph *g, int64_t lead) {
  const tensor_call *c = t->sets.c;
  const int64_t *from = pool_whole_at(c->in.view + EDGE, lead * 2 * t->edges), *to = from + t->edges;
  int64_t *pooled = pool_whole_at(c->out.view + POOLED_EDGE, lead * 2 * t->edges), kept = 0;
  for (int64_t e = 0; e < 2 * t->edges; e++) pooled[e] = -1;
  for (int64_t e = 0; e < t->edges; e++) {
    double weight = 1;
    if (g->number[from[e]] < 0 || g->number[to[e]] < 0) continue;
    if (c->in.given[WEIGHT]) tensor_load(c, c->in.view + WEIGHT, lead * t->edges + e, 1, &weight);
    tensor_put(c, POOLED_WEIGHT, lead * t->edges + kept, weight);
    pooled[kept] = g->number[from[e]], pooled[t->edges + kept] = g->number[to[e]];
    kept++;
  }
  *pool_whole_at(c->out.view + EDGES, lead) = kept;
  for (; kept < t->edges; kept++) tensor_put(c, POOLED_WEIGHT, lead * t->edges + kept, 0);
}

static void forward_task(void *arg, int64_t lead) {
  topk_call *t = arg;
  const tensor_call *c = t->sets.c;
  const int64_t d = t->sets.channels;
  void *place;
  graph g = take_graph(t, lead, &place);
  const double other = g.none ? __builtin_nan("") : g.count == 0 ? pool_empty_value(c) : 0;
  for (int64_t k = 0; k < t->rows; k++) {
    const bool stays = k < g.kept;
    if (stays) load_row(t, lead, g.order[k], g.x);
    for (int64_t j = 0; j < d; j++) g.x[j] = stays ? g.x[j] * g.gate[g.order[k]] : other;
    tensor_store(c, c->out.view + Y, (lead * t->rows + k) * d, d, g.x);
    *pool_whole_at(c->out.view + INDEX, lead * t->rows + k) = stays ? g.order[k] : -1;
  }
  for (int64_t k = 0; k < g.count && g.none; k++) g.score[g.order[k]] = other;
  tensor_store(c, c->out.view + SCORE, lead * t->sets.n, t->sets.n, g.score);
  *pool_whole_at(c->out.view + NODES, lead) = g.kept;
  *pool_whole_at(c->out.view + EDGES, lead) = 0;
  if (t->edges > 0) put_edges(t, &g, lead);
  smx_scratch_give(&t->scratch, place);
}

/* ---- gradients ---- */

static void give_weights(const topk_call *t, const graph *g, int64_t lead) {
  const tensor_call *c = t->sets.c;
  const int64_t *from = pool_whole_at(c->in.view + EDGE, lead * 2 * t->edges), *to = from + t->edges;
  int64_t kept = 0;
  for (int64_t e = 0; e < t->edges; e++) {
    const bool stays = g->number[from[e]] >= 0 && g->number[to[e]] >= 0;
    const double dw = stays ? tensor_upstream(c, POOLED_WEIGHT, lead * t->edges + kept++) : 0;
    tensor_store(c, c->din.view + WEIGHT, lead * t->edges + e, 1, &dw);
  }
}

/* dy of a node; 0: it does not stay. */
static void load_upstream(const topk_call *t, const graph *g, int64_t lead, int64_t i, double *up) {
  const tensor_call *c = t->sets.c;
  const int64_t d = t->sets.channels, k = g->number[i];
  for (int64_t j = 0; j < d; j++) up[j] = 0;
  if (k >= 0 && c->dout.given[Y]) tensor_load(c, c->dout.view + Y, (lead * t->rows + k) * d, d, up);
}

/* ds of the nodes that are there. */
static void take_upstream(const topk_call *t, const graph *g, int64_t lead) {
  double mean = 0;
  for (int64_t k = 0; k < g->count; k++) {
    const int64_t i = g->order[k];
    const double gate = g->gate[i], slope = t->sigmoid ? gate * (1 - gate) : 1 - gate * gate;
    double a = 0;
    load_row(t, lead, i, g->x), load_upstream(t, g, lead, i, g->g);
    for (int64_t j = 0; j < t->sets.channels; j++) a += g->g[j] == 0 ? 0 : g->g[j] * g->x[j];
    if (!t->by_score) a = slope == 0 ? 0 : a * slope;
    g->ds[i] = a + tensor_upstream(t->sets.c, SCORE, lead * t->sets.n + i);
    mean += gate * g->ds[i];
  }
  for (int64_t k = 0; k < g->count && t->by_score; k++)
    g->ds[g->order[k]] = g->gate[g->order[k]] * (g->ds[g->order[k]] - mean);
}

static void give_nodes(const topk_call *t, const graph *g, int64_t lead) {
  const tensor_call *c = t->sets.c;
  const int64_t d = t->sets.channels;
  double *du = t->part + lead * d;
  for (int64_t i = 0; i < t->sets.n; i++) {
    const bool there = !g->none && (!t->sets.mask || t->sets.mask[lead * t->sets.n + i]);
    const double ds = there ? g->ds[i] : 0;
    load_row(t, lead, i, g->x), load_upstream(t, g, lead, i, g->g);
    for (int64_t j = 0; j < d && ds != 0; j++) du[j] += ds * g->x[j];
    for (int64_t j = 0; j < d; j++)
      g->g[j] = there ? g->g[j] * g->gate[i] + (ds == 0 ? 0 : ds * t->direction[j]) : 0;
    if (c->din.given[X]) tensor_store(c, c->din.view + X, (lead * t->sets.n + i) * d, d, g->g);
  }
}

static void backward_task(void *arg, int64_t lead) {
  topk_call *t = arg;
  void *place;
  graph g = take_graph(t, lead, &place);
  for (int64_t j = 0; j < t->sets.channels; j++) t->part[lead * t->sets.channels + j] = 0;
  if (!g.none) take_upstream(t, &g, lead);
  give_nodes(t, &g, lead);
  if (t->sets.c->din.given[WEIGHT] && t->edges > 0) give_weights(t, &g, lead);
  smx_scratch_give(&t->scratch, place);
}

/* dp, of the sums of the graphs. */
static void give_projection(const topk_call *t) {
  const tensor_call *c = t->sets.c;
  const int64_t d = t->sets.channels;
  double along = 0;
  for (int64_t lead = 1; lead < t->sets.leads; lead++)
    for (int64_t j = 0; j < d; j++) t->part[j] += t->part[lead * d + j];
  for (int64_t j = 0; j < d && t->sets.leads == 0; j++) t->part[j] = 0;
  for (int64_t j = 0; j < d && !t->by_score; j++) along += t->part[j] == 0 ? 0 : t->part[j] * t->direction[j];
  for (int64_t j = 0; j < d; j++) {
    const double across = t->part[j] - (along == 0 ? 0 : along * t->direction[j]);
    t->part[j] = across == 0 ? 0 : across / t->norm;
  }
  tensor_store(c, c->din.view + PROJECTION, 0, d, t->part);
}

/* ---- calls ---- */

/* The projection and its length. False: it has none. */
static bool take_direction(topk_call *t) {
  const tensor_call *c = t->sets.c;
  double most = 0, sum = 0;
  tensor_load(c, c->in.view + PROJECTION, 0, t->sets.channels, t->direction);
  t->norm = 1;
  if (t->by_score) return true;
  for (int64_t j = 0; j < t->sets.channels; j++) {
    const double size = t->direction[j] < 0 ? -t->direction[j] : t->direction[j];
    if (size > most || size != size) most = size;
  }
  if (most == 0) return false;
  const double by = pool_power_of(most);
  for (int64_t j = 0; j < t->sets.channels; j++)
    t->direction[j] *= by, sum += t->direction[j] * t->direction[j];
  for (int64_t j = 0; j < t->sets.channels; j++) t->direction[j] /= __builtin_sqrt(sum);
  t->norm = __builtin_sqrt(sum) / by;
  return true;
}

static void divide_shared(topk_call *t, carver *c) {
  t->direction = carve(c, t->sets.channels, 1, 8);
  t->part = carve(c, t->sets.leads + 1, t->sets.channels, 8);
}

static bool open_call(topk_call *t, const tensor_call *c) {
  carver place = {.fits = true}, shared = {.fits = true};
  graph none;
  *t = (topk_call){.sets = pool_sets_of(c), .rows = tensor_dim(c, "r"), .edges = tensor_dim(c, "e")};
  t->by_score = tensor_param(c, "choose") != 0, t->sigmoid = tensor_param(c, "gate") != 0;
  divide_graph(t, &place, &none), divide_shared(t, &shared);
  if (!place.fits || !shared.fits ||
      !smx_scratch_open(&t->scratch, c->ctx, (size_t)shared.at, (size_t)place.at, t->sets.leads))
    return false;
  shared = (carver){.base = t->scratch.shared, .fits = true};
  divide_shared(t, &shared);
  return true;
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t lead), bool backward) {
  topk_call t;
  const pool_sets sets = pool_sets_of(c);
  smx_status status = pool_check_empty(&sets);
  if (status != SMX_OK) return status;
  if (!open_call(&t, c))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld nodes", c->op->name, (long long)sets.n);
  if (take_direction(&t)) {
    smx_parallel(c->ctx, sets.leads, task, &t);
    if (backward && c->din.given[PROJECTION]) give_projection(&t);
  } else
    status = smx_fail(SMX_ERR_PARAM, "%s: projection: its %lld numbers are 0, so it has no direction",
                      c->op->name, (long long)sets.channels);
  smx_scratch_close(&t.scratch);
  return status;
}

smx_status pool_topk_sizes(dims *d) {
  const int64_t n = dims_value(d, "n", 0), k = (int64_t)dims_param(d, "k", 0);
  dims_set(d, "r", 0, dims_param(d, "choose", 0) != 0 ? n : kept_of(n, k, dims_param(d, "ratio", 1)));
  return SMX_OK;
}
smx_status pool_topk(const tensor_call *c) { return run(c, forward_task, false); }
smx_status pool_topk_backward(const tensor_call *c) { return run(c, backward_task, true); }
