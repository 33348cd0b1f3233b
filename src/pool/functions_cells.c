/* pool/functions_cells.c - pooling by a formula of all cells of a window, in double: the cells that
 * are there are gathered, a body makes a value of them, or their gradients. A plane is a task, so
 * that overlapping windows add in their order; gradients of weights are added plane by plane. */
#include "functions_sets.h"

enum { X, WEIGHT, GATE }; /* inputs */
enum { MOST_NODES = 64 }; /* leaves of a tree */

/* What is there of a window. place: of each cell in the whole window. */
typedef struct window {
  int64_t count, *cell, *place;
  double *x, *dx, *chance;
  int64_t plane, output, chosen; /* output: of the plane; chosen: a cell of the plane, or -1 */
} window;

typedef struct cells_call {
  const tensor_call *c;
  const score_kernels *math;
  pool_shape s;
  const struct cells_body *body;
  double *weight, *gate;
  int64_t leaves, weights, gates;
  bool ratio, drawn, limit; /* of stochastic_pool */
  uint64_t seed, stream;
  double *partial; /* of each plane: the gradients of weights, then of gates */
  smx_scratch scratch;
} cells_call;

/* Adds the gradients to w->dx, weights and gates, where these are not NULL. */
typedef struct cells_body {
  double (*value)(const cells_call *f, window *w);
  void (*gradient)(const cells_call *f, const window *w, double up, double *weights, double *gates);
} cells_body;

static double size_of(double x) { return x < 0 ? -x : x; }
static double sigmoid(const cells_call *f, double u) {
  const double e = f->math->exp(u < 0 ? u : -u);
  return u < 0 ? e / (1 + e) : 1 / (1 + e);
}
static double mean_of(const window *w) {
  double sum = 0;
  for (int64_t i = 0; i < w->count; i++) sum += w->x[i];
  return sum / (double)w->count;
}
/* The first of the largest; a NaN is. */
static int64_t largest_of(const window *w) {
  int64_t best = 0;
  for (int64_t i = 1; i < w->count; i++)
    if (w->x[i] > w->x[best] || (w->x[i] != w->x[i] && w->x[best] == w->x[best])) best = i;
  return best;
}
static double product(const window *w, const double *weight) {
  double sum = 0;
  for (int64_t i = 0; i < w->count; i++) sum += weight[w->place[i]] * w->x[i];
  return sum;
}

/* ---- gated_pool: y = a max + (1 - a) mean, a = sigmoid(weight x) ---- */

static double gated(const cells_call *f, window *w) {
  const double a = sigmoid(f, product(w, f->weight));
  return a * w->x[largest_of(w)] + (1 - a) * mean_of(w);
}
static void gated_gradient(const cells_call *f, const window *w, double up, double *weights, double *gates) {
  const int64_t best = largest_of(w);
  const double u = product(w, f->weight), a = sigmoid(f, u);
  const double slope = up * a * sigmoid(f, -u) * (w->x[best] - mean_of(w));
  for (int64_t i = 0; i < w->count; i++) {
    w->dx[i] += up * (1 - a) / (double)w->count + slope * f->weight[w->place[i]];
    if (weights) weights[w->place[i]] += slope * w->x[i];
  }
  w->dx[best] += up * a;
}

/* ---- tree_pool: leaves are weighted sums, and a node mixes its two by a sigmoid ---- */

/* Values of the nodes, the root first, and behind them of the leaves; s: of the gates. */
static void take_tree(const cells_call *f, const window *w, double *value, double *s) {
  const int64_t nodes = f->leaves - 1;
  for (int64_t l = 0; l < f->leaves; l++) value[nodes + l] = product(w, f->weight + l * f->s.window);
  for (int64_t k = nodes; k-- > 0;) {
    s[k] = sigmoid(f, product(w, f->gate + k * f->s.window));
    value[k] = s[k] * value[2 * k + 1] + (1 - s[k]) * value[2 * k + 2];
  }
}
static double tree(const cells_call *f, window *w) {
  double value[2 * MOST_NODES], s[MOST_NODES];
  take_tree(f, w, value, s);
  return value[0];
}
/* by times a row of filters to dx, and by x to its gradient. */
static void give_filter(const cells_call *f, const window *w, double by, const double *filter, double *to) {
  for (int64_t i = 0; i < w->count; i++) {
    w->dx[i] += by * filter[w->place[i]];
    if (to) to[w->place[i]] += by * w->x[i];
  }
}
static void tree_gradient(const cells_call *f, const window *w, double up, double *weights, double *gates) {
  const int64_t nodes = f->leaves - 1, n = f->s.window;
  double value[2 * MOST_NODES], s[MOST_NODES], g[2 * MOST_NODES];
  take_tree(f, w, value, s);
  g[0] = up;
  for (int64_t k = 0; k < nodes; k++) {
    const double slope = g[k] * s[k] * (1 - s[k]) * (value[2 * k + 1] - value[2 * k + 2]);
    g[2 * k + 1] = g[k] * s[k], g[2 * k + 2] = g[k] * (1 - s[k]);
    give_filter(f, w, slope, f->gate + k * n, gates ? gates + k * n : NULL);
  }
  for (int64_t l = 0; l < f->leaves; l++)
    give_filter(f, w, g[nodes + l], f->weight + l * n, weights ? weights + l * n : NULL);
}

/* ---- idw_pool: y = sum a x / sum a, a = 1 / |x - m|; cells that are m share it all ----
 *
 * With d the smallest distance, all a are times d, and cells times a power of 2 that makes them
 * about 1, so that nothing overflows; y is times it, and gradients are not. da_i / dx_j = -a_i^2
 * sgn(x_i - m) ([i = j] - 1 / N), and none where d is 0. */

/* Cells become about 1. Returns what they were multiplied by. */
static double rescale(const window *w) {
  double most = 0;
  for (int64_t i = 0; i < w->count; i++) most = size_of(w->x[i]) > most ? size_of(w->x[i]) : most;
  const double by = pool_power_of(most);
  for (int64_t i = 0; i < w->count; i++) w->x[i] *= by;
  return by;
}
static double take_inverses(const window *w, double m, double *least) {
  double sum = 0;
  *least = __builtin_inf();
  for (int64_t i = 0; i < w->count; i++)
    if (size_of(w->x[i] - m) < *least) *least = size_of(w->x[i] - m);
  for (int64_t i = 0; i < w->count; i++) {
    const double distance = size_of(w->x[i] - m);
    sum += w->chance[i] = distance == *least ? 1 : *least / distance;
  }
  return sum;
}
static double inverse_distance(const cells_call *f, window *w) {
  double least, y = 0;
  const double by = rescale(w), all = take_inverses(w, mean_of(w), &least);
  for (int64_t i = 0; i < w->count; i++) y += w->chance[i] / all * w->x[i];
  return y / by;
}
static void inverse_distance_gradient(const cells_call *f, const window *w, double up, double *weights,
                                      double *gates) {
  double least, shared = 0, y = 0;
  rescale(w);
  const double m = mean_of(w), all = take_inverses(w, m, &least);
  for (int64_t i = 0; i < w->count; i++) y += w->chance[i] / all * w->x[i];
  for (int64_t i = 0; i < w->count; i++) {
    const double a = w->chance[i], slope = least == 0 ? 0 : a * a / least * (w->x[i] - y) / all;
    const double signed_slope = w->x[i] < m ? -slope : slope;
    w->dx[i] += up * (a / all - signed_slope), shared += signed_slope;
  }
  for (int64_t i = 0; i < w->count; i++) w->dx[i] += up * shared / (double)w->count;
}

/* ---- stochastic_pool: a cell that is drawn, or the mean ----
 *
 * Its chances are softmax(x), or max(x, 0) over their sum. The number for output o of plane p is
 * word o % 2 of block o / 2 of stream `stream` + p. */

/* Chances times their sum, which is the result; 0: there are none. */
static double take_chances(const cells_call *f, const window *w) {
  double top = w->x[largest_of(w)], sum = 0;
  if (top != top || (f->ratio ? top <= 0 : top == -__builtin_inf())) return top != top ? top : 0;
  if (top == __builtin_inf() && !f->limit) return __builtin_nan("");
  for (int64_t i = 0; i < w->count; i++) {
    const double x = w->x[i];
    if (top == __builtin_inf()) w->chance[i] = x == top;
    else if (f->ratio) w->chance[i] = x > 0 ? x / top : 0;
    else w->chance[i] = f->math->exp(x - top);
    sum += w->chance[i];
  }
  return sum;
}
/* Which of them; rounding may leave the last one that has a chance. */
static int64_t draw(const cells_call *f, const window *w, double sum) {
  uint64_t words[2];
  f->math->draw(f->seed, f->stream + (uint64_t)w->plane, SCORE_DRAW_CELLS, (uint64_t)w->output / 2, words);
  const double bar = ((double)(words[w->output % 2] >> 12) + 0.5) * 0x1p-52 * sum;
  double so_far = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < w->count; i++) {
    if (w->chance[i] == 0) continue;
    so_far += w->chance[i], last = i;
    if (so_far > bar) break;
  }
  return last;
}
static double stochastic(const cells_call *f, window *w) {
  const double sum = take_chances(f, w);
  double y = 0;
  if (sum != sum || sum == 0) return sum != sum ? sum : f->ratio ? 0 : -__builtin_inf();
  if (f->drawn) {
    const int64_t i = draw(f, w, sum);
    w->chosen = w->cell[i];
    return w->x[i];
  }
  for (int64_t i = 0; i < w->count; i++) y += w->chance[i] == 0 ? 0 : w->chance[i] / sum * w->x[i];
  return y;
}
/* Of the mean: softmax has p (1 + x - y), the ratio (2 x - y) / sum x. */
static void stochastic_gradient(const cells_call *f, const window *w, double up, double *weights,
                                double *gates) {
  window own = *w;
  const double y = stochastic(f, &own), sum = take_chances(f, w), top = w->x[largest_of(w)];
  if (sum == 0) return;
  if (f->drawn && sum == sum) {
    w->dx[draw(f, w, sum)] += up;
    return;
  }
  for (int64_t i = 0; i < w->count; i++) {
    const double x = w->x[i], p = w->chance[i] / sum;
    if (sum != sum) w->dx[i] += sum;
    else if (w->chance[i] != 0) w->dx[i] += up * (f->ratio ? (2 * x - y) / (top * sum) : p * (1 + x - y));
  }
}

/* ---- windows ---- */

typedef struct gathering {
  const cells_call *f;
  window *w;
  int64_t plane;
} gathering;

static void gather(void *arg, const pool_line *l) {
  const gathering *g = arg;
  for (int64_t i = 0; i < l->count; i++) {
    window *w = g->w;
    w->cell[w->count] = l->cell + i * l->cell_step, w->place[w->count] = l->k + i * l->k_step;
    tensor_load(g->f->c, g->f->c->in.view, g->plane * g->f->s.cells + w->cell[w->count], 1, w->x + w->count);
    w->count++;
  }
}

/* Output `at` of a plane. */
static void take_window(const cells_call *f, int64_t plane, int64_t at, window *w) {
  gathering g = {f, w, plane};
  const int64_t width = f->s.axis[2].outputs;
  w->count = 0, w->plane = plane, w->output = at, w->chosen = -1;
  pool_each_line(&f->s, at / width, at % width, at % width + 1, gather, &g);
}

static window window_in(const cells_call *f, double *memory) {
  const int64_t n = f->s.window;
  return (window){.x = memory,
                  .dx = memory + n,
                  .chance = memory + 2 * n,
                  .cell = (int64_t *)(void *)(memory + 3 * n),
                  .place = (int64_t *)(void *)(memory + 4 * n)};
}

static void forward_task(void *arg, int64_t plane) {
  cells_call *f = arg;
  double *memory = smx_scratch_take(&f->scratch);
  window w = window_in(f, memory);
  for (int64_t at = 0; at < f->s.outputs; at++) {
    take_window(f, plane, at, &w);
    const double y = w.count > 0 ? f->body->value(f, &w) : 0;
    tensor_store(f->c, f->c->out.view, plane * f->s.outputs + at, 1, &y);
    if (f->c->op->output_count > 1)
      ((int64_t *)(void *)f->c->out.view[1].data)[plane * f->s.outputs + at] = w.chosen;
  }
  smx_scratch_give(&f->scratch, memory);
}

static void backward_task(void *arg, int64_t plane) {
  cells_call *f = arg;
  const tensor_call *c = f->c;
  double *memory = smx_scratch_take(&f->scratch), *dx = memory + 5 * f->s.window, up;
  double *own = f->partial ? f->partial + plane * (f->weights + f->gates) : NULL;
  window w = window_in(f, memory);
  for (int64_t i = 0; i < f->s.cells; i++) dx[i] = 0;
  for (int64_t i = 0; own && i < f->weights + f->gates; i++) own[i] = 0;
  for (int64_t at = 0; at < f->s.outputs; at++) {
    take_window(f, plane, at, &w);
    tensor_load(c, c->dout.view, plane * f->s.outputs + at, 1, &up);
    for (int64_t i = 0; i < w.count; i++) w.dx[i] = 0;
    if (w.count > 0) f->body->gradient(f, &w, up, own, own ? own + f->weights : NULL);
    for (int64_t i = 0; i < w.count; i++) dx[w.cell[i]] += w.dx[i];
  }
  if (c->din.given[X]) tensor_store(c, c->din.view + X, plane * f->s.cells, f->s.cells, dx);
  smx_scratch_give(&f->scratch, memory);
}

static void sum_planes(const cells_call *f, int port, int64_t from, int64_t count) {
  const int64_t each = f->weights + f->gates;
  for (int64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int64_t plane = 0; plane < f->s.planes; plane++) sum += f->partial[plane * each + from + i];
    tensor_store(f->c, f->c->din.view + port, i, 1, &sum);
  }
}

/* ---- calls ---- */

static const cells_body bodies[POOL_COUNT] = {[POOL_gated_pool] = {gated, gated_gradient},
                                              [POOL_tree_pool] = {tree, tree_gradient},
                                              [POOL_idw_pool] = {inverse_distance, inverse_distance_gradient},
                                              [POOL_stochastic_pool] = {stochastic, stochastic_gradient}};

/* Filters have a number for each place of a window; leaves: a power of 2, one more than gates. */
smx_status pool_cells_sizes(dims *d) {
  const smx_status status = pool_given_sizes(d);
  const int64_t cells = dims_value(d, "k", 0), leaves = dims_value(d, "l", 0), nodes = dims_value(d, "g", 0);
  int64_t places = 1;
  if (status != SMX_OK || cells < 0) return status;
  for (int a = POOL_AXES - d->spatial; a < POOL_AXES; a++) {
    static const char *const kernels[] = {"kernel_d", "kernel_h", "kernel"};
    const double own = dims_param(d, kernels[a], 1);
    const int64_t kernel = (int64_t)(own >= 1 ? own : dims_param(d, "kernel", 1));
    if (!smx_multiply(places, kernel, &places)) places = INT64_MAX;
  }
  if (cells != places)
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: has %lld numbers, and the window %lld cells", d->op->name,
                    d->op->inputs[WEIGHT].name, (long long)cells, (long long)places);
  if (leaves >= 0 && (leaves < 2 || leaves > MOST_NODES || (leaves & (leaves - 1)) || nodes != leaves - 1))
    return smx_fail(SMX_ERR_SHAPE,
                    "%s: %s: %lld filters are not a power of 2, 2..%d, one more than %lld gates", d->op->name,
                    d->op->inputs[WEIGHT].name, (long long)leaves, MOST_NODES, (long long)nodes);
  return SMX_OK;
}

static void take_numbers(const tensor_call *c, int port, int64_t n, double *to) {
  if (c->op->input_count > port && c->in.given[port]) tensor_load(c, c->in.view + port, 0, n, to);
}

static cells_call call_of(const tensor_call *c) {
  const int64_t op = c->op - pool_table;
  const bool tree = op == POOL_tree_pool;
  cells_call f = {
      .c = c, .math = smx_isa_current()->f64.score, .s = pool_shape_of(c), .body = bodies + op, .leaves = 1};
  if (tree) f.leaves = tensor_dim(c, "l"), f.gates = f.s.window * (f.leaves - 1);
  if (tree || op == POOL_gated_pool) f.weights = f.s.window * f.leaves;
  f.ratio = dims_param(&c->dims, "chances", 0) != 0, f.drawn = dims_param(&c->dims, "form", 1) == 0;
  f.seed = (uint64_t)dims_param(&c->dims, "seed", 0), f.stream = (uint64_t)dims_param(&c->dims, "stream", 0);
  f.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  return f;
}

static bool learns(const tensor_call *c, int port) { return c->op->input_count > port && c->din.given[port]; }

static smx_status run(const tensor_call *c, bool backward, void (*task)(void *arg, int64_t plane)) {
  cells_call f = call_of(c);
  int64_t bytes = 0, all = 0;
  const bool partial = backward && (learns(c, WEIGHT) || learns(c, GATE));
  if (!smx_multiply(f.s.window, 5, &bytes) || !smx_multiply(bytes + f.s.cells + 1, 8, &bytes) ||
      !smx_multiply(partial ? f.s.planes : 0, f.weights + f.gates, &all) ||
      all > INT64_MAX / 2 - f.weights - f.gates)
    return smx_fail(SMX_ERR_SHAPE, "%s: windows of %lld cells are too large", c->op->name,
                    (long long)f.s.window);
  double *numbers = pool_reserve(c, all + f.weights + f.gates);
  if (!numbers) return SMX_ERR_NOMEM;
  f.weight = numbers, f.gate = numbers + f.weights, f.partial = partial ? f.gate + f.gates : NULL;
  take_numbers(c, WEIGHT, f.weights, f.weight), take_numbers(c, GATE, f.gates, f.gate);
  const bool open = smx_scratch_open(&f.scratch, c->ctx, 0, (size_t)bytes, f.s.planes);
  if (open) {
    smx_parallel(c->ctx, f.s.planes, task, &f);
    if (partial && learns(c, WEIGHT)) sum_planes(&f, WEIGHT, 0, f.weights);
    if (partial && learns(c, GATE)) sum_planes(&f, GATE, f.weights, f.gates);
    smx_scratch_close(&f.scratch);
  }
  smx_free(c->ctx, numbers);
  return open ? SMX_OK : smx_fail(SMX_ERR_NOMEM, "%s: no memory for windows", c->op->name);
}
smx_status pool_cells(const tensor_call *c) { return run(c, false, forward_task); }
smx_status pool_cells_backward(const tensor_call *c) { return run(c, true, backward_task); }
