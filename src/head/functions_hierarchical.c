/* head/functions_hierarchical.c - classes as the leaves of a binary tree (Morin, Bengio 2005): the
 * probability of a class is a product of sigmoids along its path,
 *
 *   p_y = prod sigma(+-z_i) over the nodes i above y,   z_i = h w_i + bias_i, + where the bit is 1
 *
 * Nodes are the classes, then the inner nodes, which have a row of w each; parent[i] > i, and the
 * last is the root. So one loop upwards sums what is below each node, one downwards what is
 * above. */
#include <string.h>

#include "functions_tree.h"

enum { H, W, TARGET }; /* inputs; parent, bit and bias follow, in place of the target where there is none */

typedef struct tree {
  const tensor_call *c;
  int first; /* the port of `parent` */
  bool loss;
  int64_t n, d, inner, nodes, classes;
  const int64_t *parent, *bit;
  smx_scratch scratch;
  /* The gradients of scores: those of row r from at[r] on, of nodes node[]; and in the order of the
   * nodes, where those of node i are from at_node[i] on. */
  int64_t *at, *node, *row, *order, *at_node;
  double *e;
} tree;

static tree tree_of(const tensor_call *c, bool loss) {
  tree t = {.c = c,
            .first = loss ? TARGET + 1 : TARGET,
            .loss = loss,
            .n = tensor_dim(c, "n"),
            .d = tensor_dim(c, "d"),
            .inner = tensor_dim(c, "m"),
            .nodes = tensor_dim(c, "t"),
            .classes = tensor_dim(c, "c")};
  t.parent = (const int64_t *)(void *)c->in.view[t.first].data;
  t.bit = (const int64_t *)(void *)c->in.view[t.first + 1].data;
  return t;
}

smx_status hierarchical_sizes(dims *d) {
  const int64_t nodes = dims_value(d, "t", 0), inner = dims_value(d, "m", 0);
  if (nodes <= inner)
    return smx_fail(SMX_ERR_SHAPE, "%s: parent has %lld nodes and w %lld: there is no class", d->op->name,
                    (long long)nodes, (long long)inner);
  dims_set(d, "c", 0, nodes - inner);
  return SMX_OK;
}

static smx_status check_tree(const tree *t) {
  for (int64_t i = 0; i < t->nodes; i++) {
    const bool root = i == t->nodes - 1;
    const int64_t least = i + 1 > t->classes ? i + 1 : t->classes, p = t->parent[i];
    if (root ? p != -1 : p < least || p >= t->nodes)
      return smx_fail(SMX_ERR_TARGET, "%s: parent: number %lld is %lld, not %lld..%lld", t->c->op->name,
                      (long long)i, (long long)p, (long long)(root ? -1 : least),
                      (long long)(root ? -1 : t->nodes - 1));
  }
  return SMX_OK;
}

/* The class of a row, or -1. */
static int64_t class_of(const tree *t, int64_t row) {
  const int64_t y = ((const int64_t *)(void *)t->c->in.view[TARGET].data)[row];
  return y == (int64_t)tensor_param(t->c, "ignore_index") ? -1 : y;
}
static int64_t steps_of(const tree *t, int64_t row) {
  int64_t i = t->loss ? class_of(t, row) : -1, steps = 0;
  if (!t->loss) return t->inner;
  for (; i >= 0; i = t->parent[i]) steps++;
  return steps > 0 ? steps - 1 : 0;
}

/* Memory of a thread: two rows, and numbers of all nodes for all classes. */
typedef struct tree_work {
  double *h, *w, *z, *sum;
} tree_work;
static size_t work_bytes(const tree *t) {
  return sizeof(double) * (size_t)(2 * t->d + (t->loss ? 0 : 2 * t->nodes) + 1); /* some, always */
}
static tree_work work_at(const tree *t, void *memory) {
  double *at = memory;
  return (tree_work){at, at + t->d, at + 2 * t->d, at + 2 * t->d + t->nodes};
}

static double score(const tree *t, int64_t inner, const tree_work *w) {
  double bias = 0;
  tensor_load(t->c, t->c->in.view + W, inner * t->d, t->d, w->w);
  if (t->c->in.given[t->first + 2]) tensor_load(t->c, t->c->in.view + t->first + 2, inner, 1, &bias);
  return tree_dot(w->h, w->w, t->d) + bias;
}
static double minus_log(const tree *t, int64_t i, double z) { /* of the step from i's parent to i */
  return head_math()->softplus(t->bit[i] ? -z : z);
}
static double slope(const tree *t, int64_t i, double z) { /* of the logarithm */
  return t->bit[i] ? tree_sigmoid(-z) : -tree_sigmoid(z);
}

/* The loss of a row; e: where the gradients of its scores go, times g, or NULL. */
static double row_loss(const tree *t, int64_t row, double g, const tree_work *w, double *e, int64_t *node) {
  double loss = 0;
  tensor_load(t->c, t->c->in.view + H, row * t->d, t->d, w->h);
  for (int64_t i = class_of(t, row); i >= 0 && t->parent[i] >= 0; i = t->parent[i]) {
    const int64_t inner = t->parent[i] - t->classes;
    const double z = score(t, inner, w);
    loss += minus_log(t, i, z);
    if (e) *e++ = -g * slope(t, i, z), *node++ = inner;
  }
  return loss;
}

/* The scores of all inner nodes. */
static void all_scores(const tree *t, int64_t row, const tree_work *w) {
  tensor_load(t->c, t->c->in.view + H, row * t->d, t->d, w->h);
  for (int64_t i = 0; i < t->inner; i++) w->z[i] = score(t, i, w);
}

static void forward_row(void *arg, int64_t row) {
  tree *t = arg;
  double *memory = smx_scratch_take(&t->scratch);
  const tree_work w = work_at(t, memory);
  if (t->loss) tensor_put(t->c, 0, row, row_loss(t, row, 0, &w, NULL, NULL));
  else {
    all_scores(t, row, &w);
    w.sum[t->nodes - 1] = 0;
    for (int64_t i = t->nodes - 2; i >= 0; i--)
      w.sum[i] = w.sum[t->parent[i]] - minus_log(t, i, w.z[t->parent[i] - t->classes]);
    tensor_store(t->c, t->c->out.view, row * t->classes, t->classes, w.sum);
  }
  smx_scratch_give(&t->scratch, memory);
}

static smx_status forward(const tensor_call *c, bool loss) {
  tree t = tree_of(c, loss);
  const smx_status status = check_tree(&t);
  if (status != SMX_OK) return status;
  if (!smx_scratch_open(&t.scratch, c->ctx, 0, work_bytes(&t), t.n))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for rows of %lld", c->op->name, (long long)t.d);
  smx_parallel(c->ctx, t.n, forward_row, &t);
  smx_scratch_close(&t.scratch);
  return SMX_OK;
}
smx_status hierarchical_forward(const tensor_call *c) { return forward(c, true); }
smx_status hierarchical_log_forward(const tensor_call *c) { return forward(c, false); }

/* ---- gradients ---- */

/* Scores of all nodes have their gradients from sums of what is below. */
static void all_gradients(const tree *t, int64_t row, const tree_work *w) {
  double *const e = t->e + t->at[row];
  all_scores(t, row, w);
  memset(w->sum, 0, sizeof *w->sum * (size_t)t->nodes);
  tensor_load(t->c, t->c->dout.view, row * t->classes, t->classes, w->sum);
  for (int64_t i = 0; i < t->inner; i++) e[i] = 0, t->node[t->at[row] + i] = i;
  for (int64_t i = 0; i < t->nodes - 1; i++) {
    const int64_t inner = t->parent[i] - t->classes;
    w->sum[t->parent[i]] += w->sum[i];
    e[inner] += w->sum[i] * slope(t, i, w->z[inner]);
  }
}

static void gradient_row(void *arg, int64_t row) {
  tree *t = arg;
  const tensor_call *c = t->c;
  double *memory = smx_scratch_take(&t->scratch);
  const tree_work w = work_at(t, memory);
  const int64_t from = t->at[row], to = t->at[row + 1];
  if (!t->loss) all_gradients(t, row, &w);
  else row_loss(t, row, tensor_upstream(c, 0, row), &w, t->e + from, t->node + from);
  memset(w.h, 0, sizeof *w.h * (size_t)t->d);
  for (int64_t k = from; k < to; k++) {
    t->row[k] = row;
    if (!c->din.given[H]) continue;
    tensor_load(c, c->in.view + W, t->node[k] * t->d, t->d, w.w);
    tree_add(w.h, t->e[k], w.w, t->d);
  }
  if (c->din.given[H]) tensor_store(c, c->din.view + H, row * t->d, t->d, w.h);
  smx_scratch_give(&t->scratch, memory);
}

/* By nodes, the rows of each in order. */
static void sort_by_node(const tree *t) {
  const int64_t all = t->at[t->n];
  memset(t->at_node, 0, sizeof *t->at_node * (size_t)(t->inner + 2));
  for (int64_t k = 0; k < all; k++) t->at_node[t->node[k] + 2]++;
  for (int64_t i = 1; i < t->inner; i++) t->at_node[i + 1] += t->at_node[i];
  for (int64_t k = 0; k < all; k++) t->order[t->at_node[t->node[k] + 1]++] = k;
}

static void gradient_node(void *arg, int64_t inner) {
  tree *t = arg;
  const tensor_call *c = t->c;
  double *memory = smx_scratch_take(&t->scratch), bias = 0;
  const tree_work w = work_at(t, memory);
  memset(w.w, 0, sizeof *w.w * (size_t)t->d);
  for (int64_t k = t->at_node[inner]; k < t->at_node[inner + 1]; k++) {
    const int64_t place = t->order[k];
    tensor_load(c, c->in.view + H, t->row[place] * t->d, t->d, w.h);
    tree_add(w.w, t->e[place], w.h, t->d);
    bias += t->e[place];
  }
  if (c->din.given[W]) tensor_store(c, c->din.view + W, inner * t->d, t->d, w.w);
  if (c->din.given[t->first + 2]) tensor_store(c, c->din.view + t->first + 2, inner, 1, &bias);
  smx_scratch_give(&t->scratch, memory);
}

static smx_status backward(const tensor_call *c, bool loss) {
  tree t = tree_of(c, loss);
  const smx_status status = check_tree(&t);
  int64_t all = 0, numbers;
  if (status != SMX_OK) return status;
  for (int64_t r = 0; r < t.n; r++) all += steps_of(&t, r);
  if (!smx_multiply(all, 4, &numbers) || !smx_multiply(numbers + t.n + t.inner + 3, 8, &numbers) ||
      !smx_scratch_open(&t.scratch, c->ctx, (size_t)numbers, work_bytes(&t), t.n > t.inner ? t.n : t.inner))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld steps", c->op->name, (long long)all);
  t.at = (int64_t *)(void *)t.scratch.shared;
  t.at_node = t.at + t.n + 1, t.node = t.at_node + t.inner + 2, t.row = t.node + all, t.order = t.row + all;
  t.e = (double *)(void *)(t.order + all);
  t.at[0] = 0;
  for (int64_t r = 0; r < t.n; r++) t.at[r + 1] = t.at[r] + steps_of(&t, r);
  smx_parallel(c->ctx, t.n, gradient_row, &t);
  sort_by_node(&t);
  smx_parallel(c->ctx, t.inner, gradient_node, &t);
  smx_scratch_close(&t.scratch);
  return SMX_OK;
}
smx_status hierarchical_backward(const tensor_call *c) { return backward(c, true); }
smx_status hierarchical_log_backward(const tensor_call *c) { return backward(c, false); }

/* ---- Huffman's tree ---- */

smx_status huffman_sizes(dims *d) {
  const int64_t classes = dims_value(d, "c", 0);
  int64_t twice;
  if (classes < 1 || !smx_multiply(classes, 2, &twice))
    return smx_fail(SMX_ERR_SHAPE, "%s: there are %lld counts", d->op->name, (long long)classes);
  dims_set(d, "t", 0, twice - 1);
  return SMX_OK;
}

typedef struct leaf {
  double count;
  int64_t number;
} leaf;
static bool before(leaf a, leaf b) {
  return a.count < b.count || (a.count == b.count && a.number < b.number);
}

/* Merges sorted runs, which are twice as long each time. */
static leaf *sort_leaves(leaf *x, leaf *other, int64_t n) {
  for (int64_t run = 1; run < n; run *= 2) {
    for (int64_t from = 0; from < n; from += 2 * run) {
      const int64_t middle = from + run < n ? from + run : n, to = middle + run < n ? middle + run : n;
      int64_t a = from, b = middle;
      for (int64_t k = from; k < to; k++)
        other[k] = b == to || (a < middle && before(x[a], x[b])) ? x[a++] : x[b++];
    }
    leaf *const swap = x;
    x = other, other = swap;
  }
  return x;
}

static smx_status load_counts(const tensor_call *c, leaf *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    tensor_load(c, c->in.view, i, 1, &x[i].count);
    x[i].number = i;
    if (!(x[i].count >= 0 && x[i].count < __builtin_inf()))
      return smx_fail(SMX_ERR_PARAM, "%s: counts: number %lld is %g, not 0 or more", c->op->name,
                      (long long)i, x[i].count);
  }
  return SMX_OK;
}

/* Inner nodes are made in the order of their counts, so that the two smallest are always the first
 * of the leaves or the first of those. Ties go to the lower node. */
static void build(leaf *leaves, leaf *inner, int64_t n, int64_t *parent, int64_t *bit) {
  int64_t next_leaf = 0, next_inner = 0;
  for (int64_t made = 0; made < n - 1; made++) {
    leaf sum = {0, n + made};
    for (int b = 0; b < 2; b++) {
      const bool take_leaf =
          next_leaf < n && (next_inner == made || before(leaves[next_leaf], inner[next_inner]));
      const leaf x = take_leaf ? leaves[next_leaf++] : inner[next_inner++];
      parent[x.number] = sum.number, bit[x.number] = b;
      sum.count += x.count;
    }
    inner[made] = sum;
  }
  parent[2 * n - 2] = -1, bit[2 * n - 2] = 0;
}

smx_status huffman_tree(const tensor_call *c) {
  const int64_t n = tensor_dim(c, "c");
  smx_scratch s;
  if (!smx_scratch_open(&s, c->ctx, 2 * sizeof(leaf) * (size_t)n, 0, 1))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld counts", c->op->name, (long long)n);
  leaf *const x = (leaf *)(void *)s.shared, *const other = x + n;
  const smx_status status = load_counts(c, x, n);
  if (status == SMX_OK) {
    leaf *const sorted = sort_leaves(x, other, n);
    build(sorted, sorted == x ? other : x, n, (int64_t *)(void *)c->out.view[0].data,
          (int64_t *)(void *)c->out.view[1].data);
  }
  smx_scratch_close(&s);
  return status;
}
