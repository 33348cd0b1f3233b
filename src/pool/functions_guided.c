/* pool/functions_guided.c - prompt_guided_pool: means of windows by what a prompt has to do with
 * their cells. In double, with scores s of the cells of all channels, a softmax of a softmax:
 *
 *   a = softmax(scale s) over all cells, w = softmax(a / temperature) over a window,
 *   y_c = sum w x_c
 *
 * dx_c = w g_c, dw = sum_c g_c x_c, da = w (dw - sum w dw) / temperature over the windows of a
 * cell, ds = scale a (da - sum a da). */
#include "driver/carve.h"
#include "functions_sets.h"

enum { X, SCORE }; /* inputs */

typedef struct guided_call {
  const tensor_call *c;
  pool_shape s;
  int64_t channels;
  double scale, temperature;
  bool backward;
  smx_scratch scratch;
} guided_call;

/* Of a lead: a and da of its cells; of each window how many cells are there, which, w and dw. x,
 * dx: of a channel; y: of its outputs. */
typedef struct guided_work {
  double *a, *da, *weight, *slope, *x, *dx, *y;
  int64_t *count, *cell;
} guided_work;

static void lay_out(const guided_call *g, carver *c, guided_work *w) {
  const int64_t cells = g->s.cells, outputs = g->s.outputs, way = g->backward;
  w->a = carve(c, cells, 1, 8), w->x = carve(c, cells, 1, 8), w->y = carve(c, outputs, 1, 8);
  w->da = carve(c, way, cells, 8), w->dx = carve(c, way, cells, 8);
  w->weight = carve(c, outputs, g->s.window, 8), w->cell = carve(c, outputs, g->s.window, 8);
  w->slope = carve(c, way * outputs, g->s.window, 8), w->count = carve(c, outputs, 1, 8);
}

static void take_cells(void *arg, const pool_line *l) {
  guided_work *w = arg; /* of one window */
  for (int64_t i = 0; i < l->count; i++) w->cell[(*w->count)++] = l->cell + i * l->cell_step;
}

/* a; false: all scores are -inf. */
static bool take_scores(const guided_call *g, int64_t lead, double *a) {
  tensor_load(g->c, g->c->in.view + SCORE, lead * g->s.cells, g->s.cells, a);
  for (int64_t i = 0; i < g->s.cells; i++) a[i] *= g->scale;
  return pool_softmax(g->c, g->s.cells, a);
}

/* Weights of windows; false: there are none, and a is 0. */
static bool take_windows(const guided_call *g, int64_t lead, guided_work *w) {
  const int64_t width = g->s.axis[2].outputs;
  const bool any = take_scores(g, lead, w->a);
  for (int64_t o = 0; o < g->s.outputs; o++) {
    guided_work one = {.count = w->count + o, .cell = w->cell + o * g->s.window};
    double *weight = w->weight + o * g->s.window;
    *one.count = 0;
    pool_each_line(&g->s, o / width, o % width, o % width + 1, take_cells, &one);
    for (int64_t i = 0; i < *one.count; i++) weight[i] = any ? w->a[one.cell[i]] / g->temperature : 0;
    if (any) pool_softmax(g->c, *one.count, weight);
  }
  return any;
}

static void forward_task(void *arg, int64_t lead) {
  guided_call *g = arg;
  guided_work w;
  char *memory = smx_scratch_take(&g->scratch);
  lay_out(g, &(carver){.base = memory, .fits = true}, &w);
  const bool any = take_windows(g, lead, &w);
  for (int64_t plane = lead * g->channels; plane < (lead + 1) * g->channels; plane++) {
    tensor_load(g->c, g->c->in.view + X, plane * g->s.cells, g->s.cells, w.x);
    for (int64_t o = 0; o < g->s.outputs; o++) {
      const double *weight = w.weight + o * g->s.window;
      const int64_t *cell = w.cell + o * g->s.window;
      w.y[o] = any ? 0 : pool_empty_value(g->c);
      for (int64_t i = 0; i < w.count[o]; i++) w.y[o] += weight[i] == 0 ? 0 : weight[i] * w.x[cell[i]];
    }
    tensor_store(g->c, g->c->out.view, plane * g->s.outputs, g->s.outputs, w.y);
  }
  smx_scratch_give(&g->scratch, memory);
}

/* dx of a channel, and its part in dw. */
static void channel_back(const guided_call *g, int64_t plane, guided_work *w) {
  const tensor_call *c = g->c;
  tensor_load(c, c->in.view + X, plane * g->s.cells, g->s.cells, w->x);
  tensor_load(c, c->dout.view, plane * g->s.outputs, g->s.outputs, w->y);
  for (int64_t i = 0; i < g->s.cells; i++) w->dx[i] = 0;
  for (int64_t o = 0; o < g->s.outputs; o++) {
    const double *weight = w->weight + o * g->s.window;
    const int64_t *cell = w->cell + o * g->s.window;
    for (int64_t i = 0; i < w->count[o]; i++) {
      if (weight[i] == 0) continue;
      w->dx[cell[i]] += weight[i] * w->y[o];
      w->slope[o * g->s.window + i] += w->y[o] * w->x[cell[i]];
    }
  }
  if (c->din.given[X]) tensor_store(c, c->din.view + X, plane * g->s.cells, g->s.cells, w->dx);
}

/* dw to the gradient of the scores, in the place of a. */
static void scores_back(const guided_call *g, guided_work *w) {
  double mean = 0;
  for (int64_t i = 0; i < g->s.cells; i++) w->da[i] = 0;
  for (int64_t o = 0; o < g->s.outputs; o++) {
    const double *weight = w->weight + o * g->s.window, *slope = w->slope + o * g->s.window;
    double sum = 0;
    for (int64_t i = 0; i < w->count[o]; i++) sum += weight[i] == 0 ? 0 : weight[i] * slope[i];
    for (int64_t i = 0; i < w->count[o]; i++)
      if (weight[i] != 0)
        w->da[w->cell[o * g->s.window + i]] += weight[i] * (slope[i] - sum) / g->temperature;
  }
  for (int64_t i = 0; i < g->s.cells; i++) mean += w->a[i] == 0 ? 0 : w->a[i] * w->da[i];
  for (int64_t i = 0; i < g->s.cells; i++)
    w->a[i] = w->a[i] == 0 ? 0 : g->scale * w->a[i] * (w->da[i] - mean);
}

static void backward_task(void *arg, int64_t lead) {
  guided_call *g = arg;
  const tensor_call *c = g->c;
  guided_work w;
  char *memory = smx_scratch_take(&g->scratch);
  lay_out(g, &(carver){.base = memory, .fits = true}, &w);
  take_windows(g, lead, &w);
  for (int64_t i = 0; i < g->s.outputs * g->s.window; i++) w.slope[i] = 0;
  for (int64_t k = 0; k < g->channels; k++) channel_back(g, lead * g->channels + k, &w);
  if (c->din.given[SCORE]) {
    scores_back(g, &w);
    tensor_store(c, c->din.view + SCORE, lead * g->s.cells, g->s.cells, w.a);
  }
  smx_scratch_give(&g->scratch, memory);
}

/* Scores without mass have to be found before anything is written. */
static smx_status check_scores(guided_call *g) {
  if (smx_context_on_empty(g->c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  double *a = smx_scratch_take(&g->scratch);
  int64_t lead = 0;
  while (lead < g->s.planes && take_scores(g, lead, a)) lead++;
  smx_scratch_give(&g->scratch, a);
  if (lead == g->s.planes) return SMX_OK;
  return smx_fail(SMX_ERR_EMPTY, "%s: score: all numbers of set %lld are -inf", g->c->op->name,
                  (long long)lead);
}

static smx_status run(const tensor_call *c, bool backward) {
  guided_call g = {.c = c, .s = pool_shape_of(c), .backward = backward};
  guided_work none;
  carver size = {.fits = true};
  g.channels = tensor_dim(c, "c"), g.scale = tensor_param(c, "scale");
  g.temperature = tensor_param(c, "temperature");
  lay_out(&g, &size, &none);
  if (!size.fits || !smx_scratch_open(&g.scratch, c->ctx, 0, (size_t)size.at + 64, g.s.planes + 1))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for windows of %lld cells", c->op->name,
                    (long long)g.s.window);
  const smx_status status = check_scores(&g);
  if (status == SMX_OK) smx_parallel(c->ctx, g.s.planes, backward ? backward_task : forward_task, &g);
  smx_scratch_close(&g.scratch);
  return status;
}
smx_status pool_guided(const tensor_call *c) { return run(c, false); }
smx_status pool_guided_backward(const tensor_call *c) { return run(c, true); }
