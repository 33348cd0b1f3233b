/* named.c - see named.h. */
#define _POSIX_C_SOURCE 200809L
#include "named.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

const smx_op *named_at(size_t i) {
  const smx_op *op;
  for (size_t k = 0; (op = smx_op_at(k)); k++)
    if (op->inputs[0].shape == SMX_SHAPE_DIMS && i-- == 0) return op;
  return NULL;
}

smx_dtype named_dtype(const smx_port *port, smx_dtype t) {
  if (port->flags & SMX_PORT_MASK) return SMX_BOOL;
  return port->flags & SMX_PORT_INT ? SMX_I64 : t;
}

bool named_has_dout(const named *p, int o) {
  return o < 4 && p->wanted[o] && !(p->op->outputs[o].flags & (SMX_PORT_INT | SMX_PORT_DX));
}
bool named_has_din(const named *p, int i) { return p->in[i] && p->op->inputs[i].flags & SMX_PORT_GRAD; }

/* ---- sizes ---- */

/* A size for every name of an input that has none: small, and different for different names. */
static void choose_sizes(named *p, dims *d, const char *chosen, int64_t size) {
  static const int64_t sizes[] = {3, 5, 4, 7, 2, 6, 9, 1, 8};
  int count = 0;
  d->lead = p->variant % 3;
  for (int32_t i = 0; i < d->lead; i++) d->lead_shape[i] = 2 + i;
  if (chosen && !strcmp(chosen, "...") && d->lead) d->lead_shape[0] = size;
  for (int i = 0; i < p->op->input_count; i++) {
    char *rest = NULL;
    snprintf(p->words[i], sizeof p->words[i], "%s", p->op->inputs[i].dims);
    for (char *w = strtok_r(p->words[i], " |<=", &rest); w; w = strtok_r(NULL, " |<=", &rest)) {
      char *more = strchr(w, '+'), *star = strchr(w, '*');
      if (more) *more = 0;
      if (star) *star = 0;
      if (*w == '.' || (*w >= '0' && *w <= '9')) continue;
      for (int32_t r = 0; r < (star ? d->spatial : 1); r++) {
        if (dims_value(d, w, r) >= 0) continue;
        const bool this = chosen && !strcmp(chosen, w);
        dims_set(d, w, r, this ? size : sizes[(count++ + p->variant) % (int)COUNT_OF(sizes)]);
      }
    }
  }
}

/* ---- values ---- */

static void sort(double *x, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    for (int64_t k = i; k > 0 && x[k - 1] > x[k]; k--) {
      const double swap = x[k];
      x[k] = x[k - 1], x[k - 1] = swap;
    }
}

static void offsets(rng *r, double *x, int64_t n, int64_t bound) {
  for (int64_t i = 0; i < n; i++)
    x[i] = i == 0 ? 0 : i == n - 1 ? (double)bound : (double)rng_below(r, bound + 1);
  sort(x, n);
}

static double value_of(rng *r, const smx_port *port, int64_t bound) {
  const bool below = strchr(port->dims, '|') != NULL;
  if (port->flags & SMX_PORT_MASK) return rng_below(r, 4) != 0;
  if (port->flags & SMX_PORT_INT)
    return below ? (double)(bound > 0 ? rng_below(r, bound) : 0) : (double)rng_below(r, 3);
  if (strstr(port->help, "votes")) return (double)rng_below(r, 2) - 1; /* k may be 1 */
  if (strstr(port->help, "positive") || strstr(port->help, "probabilit"))
    return 0.125 + 0.75 * rng_uniform(r);
  if (strstr(port->help, "at most 0")) return -fabs(rng_normal(r));
  return 2 * rng_normal(r);
}

static void fill(named *p, const dims *d, int i) {
  const smx_port *port = p->op->inputs + i;
  const smx_shape *s = p->in_shape + i;
  int64_t bound = 0, count = named_count(s), last = s->ndim ? s->dim[s->ndim - 1] : 1;
  const char bar = dims_bound(d, port, &bound);
  p->in[i] = allocate((size_t)count * sizeof(double));
  if (bar == 'o')
    for (int64_t k = 0; last && k < count; k += last) offsets(&p->random, p->in[i] + k, last, bound);
  else
    for (int64_t k = 0; k < count; k++) p->in[i][k] = value_of(&p->random, port, bound);
}

/* ---- parameters ---- */

/* Variant 0 has the defaults; others take the first of some likely numbers that a parameter may
 * have, and choices in turn. */
static void set_params(named *p) {
  static const double likely[] = {0.7, 2, 3, 0.25, 1, 1.5};
  const int count = (int)COUNT_OF(likely);
  smx_params_init(p->op, &p->params);
  for (int k = 0; p->variant > 0 && k < p->op->param_count; k++) {
    const smx_param *q = p->op->params + k;
    if (q->choices) smx_params_set(p->op, &p->params, q->name, p->variant % ((int)q->max + 1));
    for (int t = 0; !q->choices && t < count; t++)
      if (!smx_params_set(p->op, &p->params, q->name, likely[(p->variant + k + t) % count])) break;
  }
}

static void set_each(named *p, const char *const *names, const int *values) {
  for (int k = 0; names[k]; k++) smx_params_set(p->op, &p->params, names[k], values[k]);
}

/* Whether a variant has an optional input: the first has none, the second all. */
static bool has_optional(const named *p, int i) {
  return p->variant == 1 || (p->variant > 1 && (p->variant + i) % 2);
}

/* Windows and bins that fit the tensors of each variant; the first takes the defaults. */
static void fit_windows(named *p) {
  static const char *const windows[] = {"spatial",  "kernel",     "kernel_h",   "kernel_d",  "stride",
                                        "stride_h", "stride_d",   "padding",    "padding_h", "padding_d",
                                        "dilation", "dilation_h", "dilation_d", "ceil",      NULL};
  static const char *const bins[] = {"spatial", "size", "size_h", "size_d", NULL};
  static const int window_values[][14] = {{2, 3, 2, 0, 2, 1, 0, 1, 0, -1, 1, 0, 0, 1},
                                          {1, 3, 0, 0, 1, 0, 0, 1, -1, -1, 1, 0, 0, 0},
                                          {3, 2, 3, 1, 1, 2, 0, 1, 1, 0, 1, 0, 0, 0},
                                          {2, 2, 0, 0, 3, 0, 0, 1, -1, -1, 2, 0, 0, 1}};
  static const int bin_values[][4] = {{2, 3, 2, 0}, {1, 5, 0, 0}, {3, 2, 0, 1}, {2, 4, 9, 0}};
  if (p->variant == 0 || strcmp(p->op->family, "pool")) return;
  if (smx_params_set(p->op, &p->params, "kernel", 2) == SMX_OK)
    set_each(p, windows, window_values[(p->variant - 1) % 4]);
  else set_each(p, bins, bin_values[(p->variant - 1) % 4]);
  if (!strcmp(p->op->name, "max_unpool")) set_each(p, bins + 1, (const int[]){p->variant == 3 ? 4 : 0, 0, 0});
}

/* Filters of as many numbers as a window has cells, four leaves and three gates. */
static void fit_filters(const named *p, dims *d, const char *chosen) {
  static const char *const kernels[] = {"kernel", "kernel_h", "kernel_d"};
  int64_t cells = 1;
  for (int32_t a = 0; a < d->spatial; a++) {
    const double own = dims_param(d, kernels[a], 1);
    cells *= (int64_t)(own >= 1 ? own : dims_param(d, kernels[0], 1));
  }
  if (!chosen || strcmp(chosen, "k")) dims_set(d, "k", 0, cells);
  if (!chosen || strcmp(chosen, "l")) dims_set(d, "l", 0, 4);
  if (!chosen || strcmp(chosen, "g")) dims_set(d, "g", 0, 3);
}

/* Outputs of windows, where an input has a number for each. */
static int64_t of_axis(const dims *d, const char *name, int32_t axis, double least) {
  static const char *const axes[] = {"", "_h", "_d"};
  char own[16];
  snprintf(own, sizeof own, "%s%s", name, axes[d->spatial - 1 - axis]);
  const double value = dims_param(d, own, -1);
  return (int64_t)(value >= least ? value : dims_param(d, name, 0));
}
static void fit_outputs(const named *p, dims *d, const char *chosen) {
  bool has = false;
  for (int i = 0; i < p->op->input_count; i++) has |= strstr(p->op->inputs[i].dims, "o*") != NULL;
  has &= dims_value(d, "s", 0) >= 0;
  for (int32_t r = 0; has && r < d->spatial && (!chosen || strcmp(chosen, "o") != 0); r++) {
    const int64_t kernel = of_axis(d, "kernel", r, 1), own = of_axis(d, "stride", r, 1);
    const int64_t stride = own > 0 ? own : kernel, step = of_axis(d, "dilation", r, 1);
    const int64_t n = dims_value(d, "s", r), padding = of_axis(d, "padding", r, 0);
    const int64_t rest = n + 2 * padding - step * (kernel - 1) - 1, up = dims_param(d, "ceil", 0) != 0;
    int64_t outputs = (rest + (up ? stride - 1 : 0)) / stride + 1;
    if (up && (outputs - 1) * stride >= n + padding) outputs--;
    dims_set(d, "o", r, rest < 0 ? 0 : outputs);
  }
}

/* Columns that heads divide: six. */
static void fit_heads(named *p, dims *d, const char *chosen) {
  if (!strstr("sim_pool query_pool ponet_mix", p->op->name)) return;
  smx_params_set(p->op, &p->params, "heads", 1 + p->variant % 3);
  if (!chosen || strcmp(chosen, "d")) dims_set(d, "d", 0, 6);
  if (!chosen || strcmp(chosen, "j")) dims_set(d, "j", 0, 1 + p->variant % 2);
}

/* Channels in groups, and rows of whole pieces. */
static void fit_sets(const named *p, dims *d, const char *chosen) {
  static const int64_t groups[] = {1, 2, 3, 6, 1, 2};
  if (strcmp(p->op->family, "pool")) return;
  if (p->op->input_count > 1 && strstr("gated_pool tree_pool", p->op->name)) fit_filters(p, d, chosen);
  if (!chosen || strcmp(chosen, "c")) dims_set(d, "c", 0, 6);
  if (p->variant % 2 && !strcmp(p->op->name, "compact_bilinear_pool")) { /* x may be the other too */
    if (!chosen || strcmp(chosen, "a")) dims_set(d, "a", 0, 5);
    if (!chosen || strcmp(chosen, "b")) dims_set(d, "b", 0, 5);
  }
  if (dims_value(d, "l", 0) < 0 && (!chosen || strcmp(chosen, "g")))
    dims_set(d, "g", 0, chosen ? 1 : groups[p->variant]);
}

/* Routers of 6 experts, so that groups of them have one size; an order by weights where there are
 * some. */
static void fit_experts(named *p, dims *d, const char *chosen) {
  static const int orders[] = {0, 3, 2, 1, 0, 1};
  static const char *const names[] = {"k", "groups", "top_groups", NULL};
  static const int values[][3] = {{2, 1, 0}, {2, 3, 2}, {3, 2, 1}, {1, 3, 1}};
  if (strcmp(p->op->family, "gate")) return;
  if (!chosen || strcmp(chosen, "e")) dims_set(d, "e", 0, 6);
  if (smx_params_set(p->op, &p->params, "groups", 1) == SMX_OK) set_each(p, names, values[p->variant % 4]);
  smx_params_set(p->op, &p->params, "order", orders[p->variant % 6]);
  if (!strcmp(p->op->name, "importance_loss"))
    smx_params_set(p->op, &p->params, "experts", has_optional(p, 1) ? 6 : 0);
}

/* Codes that some keys share with a query, and blocks of few keys. */
static void fit_hashes(named *p) {
  static const char *const names[] = {"bits",       "tables",  "least",     "first", "last",
                                      "block_keys", "samples", "landmarks", NULL};
  static const int values[][8] = {{2, 6, 2, 1, 0, 2, 8, 2},   {1, 9, 3, 0, 1, 3, 0, 3},
                                  {4, 20, 1, 0, 0, 1, 30, 9}, {3, 5, 5, 2, 2, 4, 7, 1},
                                  {2, 1, 1, 0, 3, 2, 9, 2},   {7, 40, 2, 1, 1, 9, 5, 4}};
  static const char *const all = "lsh_codes magicpig_attention kde_attention nystrom_attention";
  for (int k = 0; names[k] && strstr(all, p->op->name); k++)
    smx_params_set(p->op, &p->params, names[k], values[p->variant % 6][k]);
}

/* No token is beyond the length; directions are given or drawn; tokens without neighbours have a
 * share; shards keep whatever classes rows have. */
static void fit_features(named *p) {
  static const char *const shards[] = {"classes", "keep", "shards", NULL};
  static const int whole_shards[][3] = {{60, 60, 1}, {90, 30, 3}, {64, 32, 2}, {700, 100, 7}};
  if (!strcmp(p->op->name, "partial_fc") && p->variant > 0) set_each(p, shards, whole_shards[p->variant % 4]);
  if (!strcmp(p->op->name, "knn_lm"))
    smx_params_set(p->op, &p->params, "share", 0.25 * ((p->variant + 1) % 4));
  if (!strcmp(p->op->name, "cosformer_features"))
    smx_params_set(p->op, &p->params, "length", p->variant % 2 ? 40 : 0);
  if (!strcmp(p->op->name, "performer_features"))
    smx_params_set(p->op, &p->params, "features", has_optional(p, 1) ? 0 : 2 * p->variant);
  if (!strcmp(p->op->name, "performer_features")) /* a shift has no gradient */
    smx_params_set(p->op, &p->params, "shift", 0);
}

/* As many tokens of queries as of keys where order counts, a decay of 1 or all elements, and
 * parts that go together: variants with a norm have no delta rule. */
static void fit_tokens(named *p, dims *d, const char *chosen, int64_t size) {
  static const char *const names[] = {"map", "norm", "causal", NULL};
  static const int values[][3] = {{0, 0, 1}, {5, 0, 1}, {1, 1, 1}, {3, 3, 0}, {4, 4, 1}, {2, 2, 0}};
  const int *v = values[p->variant % 6];
  const bool norm = v[1] != 0, causal = v[2] != 0;
  if (strcmp(p->op->name, "linear_attention")) return;
  set_each(p, names, v);
  struct {
    const char *name;
    int64_t size;
  } all[] = {{"g", 2}, {"h", p->variant % 2 ? 4 : 2}, {"d", 3}, {"t", 5}, {"e", 4}, {"l", 4}};
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    if (chosen && !strcmp(chosen, all[i].name)) all[i].size = size;
    dims_set(d, all[i].name, 0, all[i].size);
  }
  if (causal) dims_set(d, "l", 0, all[3].size);
  dims_set(d, "w", 0, p->variant == 1 ? all[2].size : 1);
  dims_set(d, "m", 0, all[2].size + norm), dims_set(d, "n", 0, all[4].size + norm);
}
static bool goes_with_tokens(const named *p, const smx_port *port) {
  const int norm = p->variant % 6;
  if (strcmp(p->op->name, "linear_attention") || norm < 2) return true;
  return strcmp(port->name, "beta") != 0 && (norm == 2 || strcmp(port->name, "decay") != 0);
}

/* Trees of 5 classes, whose nodes have later ones as parents; those of 4 leaves. */
static void fit_tree(const named *p, dims *d, const char *chosen) {
  static const struct {
    const char *op, *name;
    int64_t size;
  } all[] = {{"hierarchical_softmax", "c", 5},     {"hierarchical_softmax", "m", 4},
             {"hierarchical_softmax", "t", 9},     {"hierarchical_log_softmax", "m", 4},
             {"hierarchical_log_softmax", "t", 9}, {"soft_decision_tree", "m", 3},
             {"soft_decision_tree", "l", 4},       {"soft_decision_tree", "k", 3}};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    if (!strcmp(p->op->name, all[i].op) && (!chosen || strcmp(chosen, all[i].name) != 0))
      dims_set(d, all[i].name, 0, all[i].size);
}
static void fit_parents(named *p) {
  for (int i = 0; i < p->op->input_count; i++) {
    if (strcmp(p->op->inputs[i].name, "parent") != 0) continue;
    const int64_t nodes = p->in_shape[i].dim[0], classes = nodes - p->in_shape[1].dim[0];
    for (int64_t k = 0; k < nodes; k++) {
      const int64_t least = k + 1 > classes ? k + 1 : classes;
      p->in[i][k] = least < nodes ? (double)(least + rng_below(&p->random, nodes - least)) : -1;
    }
  }
}

/* Counts of as many classes as there are, and draws that end. */
static void fit_candidates(named *p, dims *d, const char *chosen) {
  static const char *const names[] = {"classes", "count", "unique", NULL};
  static const int values[][3] = {{12, 5, 1}, {30, 40, 0}, {7, 7, 1}, {40, 6, 1}, {9, 1, 0}, {25, 20, 1}};
  if (strcmp(p->op->name, "sample_classes") != 0) return;
  set_each(p, names, values[p->variant % 6]);
  if (!chosen || strcmp(chosen, "c") != 0) dims_set(d, "c", 0, values[p->variant % 6][0]);
}

/* Memories of 16 values, whose queries are two keys wide. */
static void fit_memory(named *p, dims *d, const char *chosen) {
  static const char *const names[] = {"m", "v", "e", "d"};
  static const int64_t sizes[] = {4, 16, 3, 6};
  if (strcmp(p->op->name, "product_key_memory") != 0) return;
  smx_params_set(p->op, &p->params, "k", 1 + p->variant % 4);
  for (int i = 0; i < 4; i++)
    if (!chosen || strcmp(chosen, names[i]) != 0) dims_set(d, names[i], 0, sizes[i]);
}

/* Two clusters of four of eleven classes; directions of each kind; a head of four columns. */
static bool is_adaptive(const named *p) {
  return !strncmp(p->op->name, "adaptive_", 9) && p->op->input_count > 6;
}
static void fit_heads_of_classes(named *p, dims *d, const char *chosen) {
  static const struct {
    const char *name;
    int64_t size;
  } all[] = {{"s", 5}, {"d", 4}, {"p", 3}, {"q", 12}, {"k", 2}};
  static const int64_t basis[][2] = {{3, 5}, {4, 3}, {7, 3}, {3, 6}, {5, 2}, {2, 7}};
  static const char *const names[] = {"classes", "div_value", NULL}, *const steps[] = {"bound", "steps",
                                                                                       NULL};
  const bool of_basis = !strcmp(p->op->name, "equiangular_basis");
  if (is_adaptive(p)) set_each(p, names, (const int[]){11, 2});
  if (of_basis) set_each(p, steps, (const int[]){0, 3});
  for (size_t i = 0; i < COUNT_OF(all) && is_adaptive(p); i++)
    if (!chosen || strcmp(chosen, all[i].name) != 0) dims_set(d, all[i].name, 0, all[i].size);
  if (of_basis && !chosen)
    dims_set(d, "n", 0, basis[p->variant % 6][0]), dims_set(d, "d", 0, basis[p->variant % 6][1]);
  if (!strcmp(p->op->name, "head_rank_loss") && !chosen) dims_set(d, "d", 0, 4);
}
static void fit_cutoffs(named *p) {
  static const double cutoffs[] = {3, 7}, widths[] = {2, 1};
  for (int i = 0; i < p->op->input_count && is_adaptive(p); i++)
    for (int64_t k = 0; p->in[i] && k < 2 && k < named_count(p->in_shape + i); k++) {
      if (!strcmp(p->op->inputs[i].name, "cutoff")) p->in[i][k] = cutoffs[k];
      if (!strcmp(p->op->inputs[i].name, "width")) p->in[i][k] = widths[k];
    }
}

/* Pairs of numbers; few bins. */
static void fit_waves(named *p, dims *d, const char *chosen) {
  static const int64_t sizes[] = {6, 2, 10, 4, 8, 12};
  if (strcmp(p->op->name, "fourier_head") != 0) return;
  smx_params_set(p->op, &p->params, "bins", 1 + 5 * p->variant);
  smx_params_set(p->op, &p->params, "eps", p->variant % 2 ? 1e-5 : 0.01);
  if (!chosen || strcmp(chosen, "f") != 0) dims_set(d, "f", 0, sizes[p->variant % 6]);
}

/* The state of a layer with U = I + half its next diagonal, of numbers of few bits: its Q and sums
 * are exact. */
static bool is_factored(const named *p) { return strstr(p->op->name, "factored_spherical_") != NULL; }
static void fit_factors(named *p, dims *d, const char *chosen) {
  static const char *const names[] = {"d", "r", "c"};
  static const int64_t sizes[] = {3, 11, 9};
  for (int i = 0; i < 3 && is_factored(p); i++)
    if (!chosen || strcmp(chosen, names[i]) != 0) dims_set(d, names[i], 0, sizes[i]);
  if (is_factored(p)) smx_params_set(p->op, &p->params, "lr", 0.01);
}
static double few_bits(double x) { return round(8 * x) / 8; }
static void add_class(const double *v, double *state, int64_t d) {
  double *const q = state + 2 * d * d, *const omega = state + 3 * d * d, *const sums = omega + d;
  double *const w = allocate((size_t)d * sizeof *w);
  for (int64_t i = 0; i < d; i++) w[i] = v[i] + (i ? v[i - 1] / 2 : 0) + omega[i], sums[i] += w[i];
  for (int64_t i = 0; i < d * d; i++) q[i] += w[i / d] * w[i % d];
  free(w);
}
static void fit_state(const named *p) {
  const int at = !is_factored(p) ? 0 : p->op->input_count > 2 ? 2 : p->op->input_count - 1;
  const int64_t d = at ? p->in_shape[at].dim[1] : 0, count = at ? p->in_shape[at - 1].dim[0] : 0;
  double *const state = p->in[at];
  if (!at || p->in_shape[at].dim[0] != 3 * d + 2) return;
  for (int64_t i = 0; i < d * d; i++) {
    const int64_t above = i % d - i / d; /* U^-T is below the diagonal */
    state[i] = above == 0 ? 1 : above == 1 ? 0.5 : 0, state[2 * d * d + i] = 0;
    state[d * d + i] = above > 0 ? 0 : ldexp(above % 2 ? -1 : 1, (int)above);
  }
  for (int64_t i = 0; i < d; i++) {
    state[3 * d * d + i] = few_bits(state[3 * d * d + i]), state[(3 * d + 1) * d + i] = 0;
  }
  for (int64_t i = 0; i < count * d; i++) p->in[at - 1][i] = few_bits(p->in[at - 1][i]);
  for (int64_t k = 0; k < count; k++) add_class(p->in[at - 1] + k * d, state, d);
}

/* As many keys as rows or more, views in pairs; b, or similarities, in every other variant, and
 * labels or positives. */
static bool has_others(const named *p) {
  smx_params q = p->params; /* what may be alone says whether it is */
  return p->variant % 2 || p->variant % 4 == 2 || smx_params_set(p->op, &q, "self", 1) != SMX_OK;
}
static void fit_pairs(const named *p, dims *d, const char *chosen) {
  const bool square = strstr(p->op->name, "clip_loss") || !strcmp(p->op->name, "nt_xent");
  const int64_t others = has_others(p) && !square ? 6 : 4;
  if (strcmp(p->op->family, "pairwise")) return;
  if (!chosen || strcmp(chosen, "n")) dims_set(d, "n", 0, 4);
  if (!chosen || strcmp(chosen, "m")) dims_set(d, "m", 0, others);
  for (int i = 0; p->variant % 2 && i < 3; i++) { /* similarities */
    static const char *const names[] = {"d", "k", "l"};
    if (!chosen || strcmp(chosen, names[i])) dims_set(d, names[i], 0, others);
  }
}
static bool goes_with_pairs(const named *p, const smx_port *port, bool wanted) {
  const bool labels = p->variant % 3 != 2;
  if (strcmp(p->op->family, "pairwise") || !(port->flags & SMX_PORT_OPTIONAL)) return wanted;
  if (!strcmp(port->name, "b")) return p->variant % 2 == 0 && has_others(p);
  if (!strcmp(port->name, "label")) return labels;
  if (!strcmp(port->name, "label_b")) return labels && has_others(p);
  if (!strcmp(port->name, "positive")) return !labels;
  return wanted || strstr(port->help, "to be given");
}

/* The two parts of a state are given together. */
static bool goes_with_state(const named *p, const smx_port *port, bool wanted) {
  if (strcmp(p->op->name, "attention_pool_mil_update") != 0) return wanted;
  return !strcmp(port->name, "level") || !strcmp(port->name, "average") ? p->variant == 1 : wanted;
}

/* Attention by matrices: as many scores of a row as there are elements, or they depend on each
 * other; small kernels. */
static void fit_sheets(const named *p, dims *d, const char *chosen) {
  static const struct {
    const char *op, *name;
    int64_t size;
  } all[] = {{"orthostochastic_attention", "l", 4}, {"orthostochastic_attention", "d", 5},
             {"multi_token_attention", "h", 2},     {"multi_token_attention", "l", 4},
             {"multi_token_attention", "t", 5},     {"multi_token_attention", "a", 2},
             {"multi_token_attention", "b", 3},     {"multi_token_attention", "m", 3},
             {"multi_token_attention", "n", 2}};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    if (!strcmp(p->op->name, all[i].op) && (!chosen || strcmp(chosen, all[i].name) != 0))
      dims_set(d, all[i].name, 0, all[i].size);
}

/* Documents with a token each at least, or their scores are -inf; keys that fit the budgets. */
static void fit_documents(named *p, dims *d, const char *chosen) {
  if (!strcmp(p->op->name, "kv_budget_dynamic")) {
    smx_params_set(p->op, &p->params, "keep", 1 + p->variant % 3);
    smx_params_set(p->op, &p->params, "last", p->variant % 2);
    smx_params_set(p->op, &p->params, "most", 1 + 0.25 * p->variant);
  }
  if (!strcmp(p->op->name, "kv_budget_prefix")) {
    smx_params_set(p->op, &p->params, "keep", 0);
    smx_params_set(p->op, &p->params, "first", p->variant % 2);
    smx_params_set(p->op, &p->params, "last", p->variant % 3 / 2);
  }
  if (!strcmp(p->op->name, "soft_attention")) { /* the inverse is that of the reference */
    smx_params_set(p->op, &p->params, "steps", 40);
    smx_params_set(p->op, &p->params, "ridge", p->variant % 2 ? 0.5 : 0.01);
    smx_params_set(p->op, &p->params, "normalise", p->variant / 2 % 2);
  }
  if (!strcmp(p->op->name, "lsh_codes") && (!chosen || strcmp(chosen, "p") != 0)) /* planes of all */
    dims_set(d, "p", 0, (int64_t)(dims_param(d, "bits", 0) * dims_param(d, "tables", 0)));
  if (strcmp(p->op->name, "max_sim")) return;
  if (!chosen || strcmp(chosen, "m")) dims_set(d, "m", 0, 7);
  if (!chosen || strcmp(chosen, "b")) dims_set(d, "b", 0, 3);
}
/* Positions in ranges of one to three keys. */
static void fit_ranges(named *p) {
  const int64_t t = p->in_shape[1].dim[p->in_shape[1].ndim - 2];
  for (int64_t i = 0; t && i < named_count(p->in_shape + 4); i++) {
    const double at = p->in[4][i] = (double)rng_below(&p->random, t);
    p->in[2][i] = at - (double)(i % 2), p->in[3][i] = at + 1 + (double)(i % 3);
  }
}
static void fit_offsets(named *p) {
  if (!strcmp(p->op->name, "segment_attention")) fit_ranges(p);
  if (strcmp(p->op->name, "max_sim") != 0) return;
  const int64_t m = p->in_shape[1].dim[0], b = p->in[2] ? p->in_shape[2].dim[0] - 1 : 1;
  for (int64_t k = 1; k < b; k++) p->in[2][k] = (double)(k * m / b);
  for (int64_t k = 0; k < b && p->in[4]; k++)
    if (k * m / b < m) p->in[4][k * m / b] = 1;
}

/* Heads that are sparse, and some that are not. */
static void fit_alpha(named *p) {
  if (strcmp(p->op->name, "entmax_attention") != 0) return;
  for (int64_t i = 0; i < named_count(p->in_shape + 3); i++) p->in[3][i] += (double)(p->variant % 3 != 2);
}

/* Weights of the rows of a set, some of them 0, whole numbers in every other variant that has them;
 * not for draws, of which the reference takes no row out. */
static void fit_weights(named *p) {
  const smx_op *op = p->op;
  if (strcmp(op->family, "score") || !strcmp(op->name, "mean_interval")) return;
  for (int i = 0; i < op->input_count; i++)
    for (int64_t k = 0; p->in[i] && !strcmp(op->inputs[i].name, "weight") && k < named_count(p->in_shape + i);
         k++) {
      const double whole = (double)rng_below(&p->random, 4);
      p->in[i][k] = p->variant == 3 || whole == 0 ? whole : p->in[i][k];
    }
}

/* A curve rises. */
static void fit_curve(named *p) {
  if (!strcmp(p->op->name, "isotonic")) sort(p->in[1], named_count(p->in_shape + 1));
}

/* The gradient of a row of random features, whose label has one large element, or two. */
static void fit_gradient(named *p) {
  const bool is = !strcmp(p->op->name, "label_recovery");
  const int64_t n = is ? p->in_shape[1].dim[0] : 0, d = is ? p->in_shape[1].dim[1] : 0;
  double sum = 0, *z = allocate((size_t)(n + d) * sizeof *z), *x = z + n;
  for (int64_t e = 0; e < d; e++) x[e] = rng_normal(&p->random);
  for (int64_t j = 0; j < n; j++) {
    z[j] = p->in[2] ? p->in[2][j] : 0;
    for (int64_t e = 0; e < d; e++) z[j] += p->in[0][j * d + e] * x[e];
    sum += z[j] = exp(z[j]);
  }
  for (int64_t j = 0; j < n; j++) {
    const bool two = p->params.value[0] != 0;
    const double most = two && j < 2 ? 0.5 - 0.2 * (double)j : 0.7, rest = two ? 0.2 : 0.3,
                 y = j < (two ? 2 : 1) ? most : rest / (double)(n - (two ? 2 : 1));
    for (int64_t e = 0; e < d; e++) p->in[1][j * d + e] = (z[j] / sum - y) * x[e];
    if (p->in[3]) p->in[3][j] = z[j] / sum - y;
  }
  free(z);
}

/* ---- calls ---- */

static smx_tensor shape_only(smx_shape *s, smx_dtype t) {
  return (smx_tensor){.device = {1, 0}, .ndim = s->ndim, .dtype = t, .shape = s->dim};
}

static bool infer(named *p) {
  smx_tensor t[SMX_MAX_PORTS];
  const smx_tensor *in[SMX_MAX_PORTS] = {NULL};
  for (int i = 0; i < p->op->input_count; i++)
    if (p->in[i]) t[i] = shape_only(p->in_shape + i, named_dtype(p->op->inputs + i, SMX_F32)), in[i] = t + i;
  return smx_infer(p->op, &p->params, p->op->input_count, in, p->op->output_count, p->out_shape) == SMX_OK;
}

/* Not for shapes that there are not: what is there already stays in p. */
static bool make(named *p, const smx_op *op, int variant, uint64_t seed, const char *name, int64_t size) {
  dims d;
  *p = (named){.op = op, .variant = variant, .random = {seed}};
  set_params(p);
  fit_windows(p);
  fit_features(p);
  fit_hashes(p);
  dims_begin(&d, op, p->params.value);
  fit_sets(p, &d, name);
  fit_heads(p, &d, name);
  fit_experts(p, &d, name);
  fit_tokens(p, &d, name, size);
  fit_tree(p, &d, name);
  fit_candidates(p, &d, name);
  fit_memory(p, &d, name);
  fit_waves(p, &d, name);
  fit_heads_of_classes(p, &d, name);
  fit_factors(p, &d, name);
  fit_pairs(p, &d, name);
  fit_sheets(p, &d, name);
  fit_documents(p, &d, name);
  choose_sizes(p, &d, name, size);
  fit_outputs(p, &d, name);
  int either = 0;
  for (int i = 0; i < op->input_count; i++) {
    const uint32_t flags = op->inputs[i].flags;
    bool wanted = has_optional(p, i);
    if (flags & SMX_PORT_EITHER) wanted = either++ == variant % 2;
    else if (!(flags & SMX_PORT_OPTIONAL)) wanted = true;
    wanted = goes_with_state(p, op->inputs + i, goes_with_pairs(p, op->inputs + i, wanted));
    if (!wanted || !goes_with_tokens(p, op->inputs + i)) continue;
    if (!dims_shape(&d, op->inputs + i, &p->in_shape[i].ndim, p->in_shape[i].dim)) return false;
    fill(p, &d, i);
  }
  fit_alpha(p);
  fit_weights(p);
  fit_curve(p);
  fit_parents(p);
  fit_cutoffs(p);
  fit_gradient(p);
  fit_offsets(p);
  fit_state(p);
  if (!infer(p)) return false;
  for (int o = 0; o < op->output_count; o++) {
    p->wanted[o] = !(op->outputs[o].flags & SMX_PORT_OPTIONAL) || (variant + o) % 3 != 0;
    if (!p->wanted[o]) continue;
    const int64_t count = named_count(p->out_shape + o);
    p->dout[o] = allocate((size_t)count * sizeof(double));
    for (int64_t k = 0; k < count; k++) p->dout[o][k] = rng_normal(&p->random);
  }
  return true;
}

bool named_make(named *p, const smx_op *op, int variant, uint64_t seed, const char *name, int64_t size) {
  const bool made = make(p, op, variant, seed, name, size);
  if (!made) named_free(p);
  return made;
}

void named_free(named *p) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) {
    free(p->in[i]), free(p->dout[i]);
    free(p->out[i]), free(p->din[i]);
  }
  memset(p, 0, sizeof *p);
}

void named_round(named *p, smx_dtype t) {
  for (int i = 0; i < p->op->input_count; i++)
    for (int64_t k = 0; p->in[i] && k < named_count(p->in_shape + i); k++)
      p->in[i][k] = dtype_round(named_dtype(p->op->inputs + i, t), p->in[i][k]);
  for (int o = 0; o < p->op->output_count; o++)
    for (int64_t k = 0; p->dout[o] && k < named_count(p->out_shape + o); k++)
      p->dout[o][k] = dtype_round(t, p->dout[o][k]);
}

/* ---- memory ---- */

static guard_layout layout_of(uint64_t layout, int port) {
  rng r = {layout + 1000u * (uint64_t)port};
  guard_layout how = {.low = port % 2};
  if (!layout) return how;
  how.order = (unsigned)rng_below(&r, 720);
  how.gaps = (unsigned)rng_below(&r, 64), how.reversed = (unsigned)rng_below(&r, 64);
  return how;
}

static const smx_tensor *open_one(guarded *g, const smx_shape *s, smx_dtype t, guard_layout how,
                                  const double *values) {
  guard_tensor(g, t, s->ndim, s->dim, how);
  for (int64_t k = 0; values && k < named_count(s); k++) dtype_store(t, guard_element(g, k), values[k]);
  return &g->t;
}

void named_open(const named *p, const named_how *how, named_call *c) {
  const smx_op *op = p->op;
  memset(c, 0, sizeof *c);
  for (int i = 0; i < op->input_count; i++) {
    const smx_dtype t = named_dtype(op->inputs + i, how->type);
    if (p->in[i]) c->ins[i] = open_one(c->in + i, p->in_shape + i, t, layout_of(how->layout, i), p->in[i]);
    if (named_has_din(p, i))
      c->dins[i] = open_one(c->din + i, p->in_shape + i, t, layout_of(how->layout, 8 + i), NULL);
  }
  for (int o = 0; o < op->output_count; o++) {
    const smx_dtype t = named_dtype(op->outputs + o, how->type);
    if (p->wanted[o])
      c->outs[o] = open_one(c->out + o, p->out_shape + o, t, layout_of(how->layout, 16 + o), NULL);
    if (named_has_dout(p, o))
      c->douts[o] = open_one(c->dout + o, p->out_shape + o, t, layout_of(how->layout, 24 + o), p->dout[o]);
  }
}

smx_status named_forward(const named *p, smx_context *ctx, const named_call *c) {
  return smx_forward(p->op, ctx, &p->params, p->op->input_count, c->ins, p->op->output_count, c->outs);
}

smx_status named_backward(const named *p, smx_context *ctx, const named_call *c) {
  return smx_backward(p->op, ctx, &p->params, p->op->input_count, c->ins, p->op->output_count, c->outs,
                      c->douts, c->dins);
}

void named_close(named_call *c) {
  guarded *all[] = {c->in, c->out, c->dout, c->din};
  for (int g = 0; g < 4; g++)
    for (int i = 0; i < SMX_MAX_PORTS; i++)
      if (all[g][i].block) guard_free(all[g][i].block);
}

static unsigned char *keep(unsigned char *old, const guarded *g) {
  const size_t size = g->t.dtype.bits / 8u;
  const int64_t count = guard_count(g);
  free(old);
  unsigned char *bytes = allocate((size_t)count * size);
  for (int64_t k = 0; k < count; k++) memcpy(bytes + (size_t)k * size, guard_element(g, k), size);
  return bytes;
}

smx_status named_run(named *p, const named_how *how, bool backward) {
  named_call c;
  named_open(p, how, &c);
  for (int i = 0; i < p->op->input_count; i++)
    if (c.ins[i]) guard_read_only(c.in[i].block);
  smx_status status = named_forward(p, how->ctx, &c);
  for (int o = 0; o < p->op->output_count && status == SMX_OK; o++)
    if (c.outs[o]) p->out[o] = keep(p->out[o], c.out + o);
  if (status == SMX_OK && backward && p->op->flags & SMX_OP_BACKWARD) {
    status = named_backward(p, how->ctx, &c);
    for (int i = 0; i < p->op->input_count && status == SMX_OK; i++)
      if (c.dins[i]) p->din[i] = keep(p->din[i], c.din + i);
  }
  named_close(&c);
  return status;
}
