/* pool/functions_histogram.c - soft histograms: the mean over the numbers of a row of their
 * softmax over centres that the row's own mean and deviation place.
 *
 *   c_k = mean + w_k sd,  logit_ik = A e^(-(c_k - x_i)^2 / s),  h_k = mean_i softmax_k(logit_i)
 *
 * sd: the unbiased one. With u = dL / dlogit and D_ik = 2 A / s (c_k - x_i) e^(...): dx_i =
 * sum_k u_ik D_ik, dc_k = -sum_i u_ik D_ik, and the centres give dc / n to every x_i, and sum_k
 * w_k dc_k (x_i - mean) / ((n - 1) sd). Learning the Distribution of Errors in Stereo Matching
 * for Joint Disparity and Uncertainty Estimation (Chen et al. 2023). */
#include "functions_sets.h"

enum { X, OFFSET, OTHER }; /* inputs; OTHER: a second row, which is counted in place of x */

typedef struct histogram_call {
  const tensor_call *c;
  const score_kernels *math;
  int64_t n, m, bins; /* numbers of x and of other, or -1 */
  double height, width;
  bool detached;
  smx_scratch scratch;
} histogram_call;

/* A row; up: dL / dh. */
typedef struct histogram_row {
  double *x, *dx, *other, *offset, *centre, *p, *bump, *h, *up, *dc; /* dx: of the numbers counted */
  double mean, sd;
} histogram_row;

static histogram_row row_in(const histogram_call *g, double *memory) {
  histogram_row r = {.x = memory, .dx = memory + g->n};
  r.other = g->m < 0 ? r.x : r.dx + g->m, r.offset = g->m < 0 ? r.dx + g->n : r.other + g->m;
  r.centre = r.offset + g->bins, r.p = r.centre + g->bins, r.bump = r.p + g->bins, r.h = r.bump + g->bins;
  r.up = r.h + g->bins, r.dc = r.up + g->bins;
  return r;
}

static void take_row(const histogram_call *g, int64_t row, histogram_row *r) {
  const tensor_call *c = g->c;
  double sum = 0, squares = 0;
  tensor_load(c, c->in.view + X, row * g->n, g->n, r->x);
  if (g->m >= 0) tensor_load(c, c->in.view + OTHER, row * g->m, g->m, r->other);
  tensor_load(c, c->in.view + OFFSET, 0, g->bins, r->offset);
  const double by = c->is_f64 ? pool_tame(r->x, g->n) : 1;
  for (int64_t i = 0; i < g->n; i++) sum += r->x[i];
  r->mean = g->n > 0 ? sum / (double)g->n : 0;
  for (int64_t i = 0; i < g->n; i++) squares += (r->x[i] - r->mean) * (r->x[i] - r->mean);
  r->sd = g->n > 1 ? __builtin_sqrt(squares / (double)(g->n - 1)) : squares == squares ? 0 : squares;
  if (by != 1) {
    r->mean /= by, r->sd /= by;
    for (int64_t i = 0; i < g->n; i++) r->x[i] /= by;
  }
  for (int64_t k = 0; k < g->bins; k++) r->centre[k] = r->mean + r->offset[k] * r->sd, r->h[k] = r->dc[k] = 0;
}

/* The softmax of a number over the centres, and e^(-(c - x)^2 / s); top: of the largest logit. */
static void take_number(const histogram_call *g, const histogram_row *r, double x) {
  const bool dips = g->height < 0;
  double top = dips ? 1 : 0, sum = 0;
  for (int64_t k = 0; k < g->bins; k++) {
    const double d = r->centre[k] - x;
    r->bump[k] = g->math->exp(-d * d / g->width);
    if ((dips ? r->bump[k] < top : r->bump[k] > top) || r->bump[k] != r->bump[k]) top = r->bump[k];
  }
  for (int64_t k = 0; k < g->bins; k++) sum += r->p[k] = g->math->exp(g->height * (r->bump[k] - top));
  for (int64_t k = 0; k < g->bins; k++) r->p[k] /= sum;
}

static int64_t counted(const histogram_call *g) { return g->m < 0 ? g->n : g->m; }

static void forward_task(void *arg, int64_t row) {
  histogram_call *g = arg;
  double *memory = smx_scratch_take(&g->scratch);
  histogram_row r = row_in(g, memory);
  take_row(g, row, &r);
  for (int64_t i = 0; i < counted(g); i++) {
    take_number(g, &r, r.other[i]);
    for (int64_t k = 0; k < g->bins; k++) r.h[k] += r.p[k] / (double)counted(g);
  }
  for (int64_t k = 0; k < g->bins && counted(g) == 0; k++) r.h[k] = pool_empty_value(g->c);
  tensor_store(g->c, g->c->out.view, row * g->bins, g->bins, r.h);
  smx_scratch_give(&g->scratch, memory);
}

/* What a number gets through its distances; the centres get their part. */
static double give_number(const histogram_call *g, const histogram_row *r, double x) {
  double inner = 0, dx = 0;
  take_number(g, r, x);
  for (int64_t k = 0; k < g->bins; k++) inner += r->p[k] * r->up[k];
  for (int64_t k = 0; k < g->bins; k++) {
    const double u = r->p[k] * (r->up[k] - inner) / (double)counted(g);
    const double part = r->bump[k] == 0 ? 0 : u * 2 * g->height / g->width * (r->centre[k] - x) * r->bump[k];
    dx += part, r->dc[k] -= part;
  }
  return dx;
}

static void backward_task(void *arg, int64_t row) {
  histogram_call *g = arg;
  const tensor_call *c = g->c;
  double *memory = smx_scratch_take(&g->scratch), of_mean = 0, of_sd = 0;
  histogram_row r = row_in(g, memory);
  take_row(g, row, &r);
  tensor_load(c, c->dout.view, row * g->bins, g->bins, r.up);
  for (int64_t i = 0; i < counted(g); i++) r.dx[i] = give_number(g, &r, r.other[i]);
  if (g->m >= 0 && c->din.given[OTHER]) tensor_store(c, c->din.view + OTHER, row * g->m, g->m, r.dx);
  for (int64_t k = 0; k < g->bins && !g->detached; k++) of_mean += r.dc[k], of_sd += r.dc[k] * r.offset[k];
  for (int64_t i = 0; i < g->n && c->din.given[X]; i++) {
    const double slope = r.sd == 0 ? 0 : (r.x[i] - r.mean) / ((double)(g->n - 1) * r.sd);
    const double dx = (g->m < 0 ? r.dx[i] : 0) + of_mean / (double)g->n + of_sd * slope;
    tensor_store(c, c->din.view + X, row * g->n + i, 1, &dx);
  }
  smx_scratch_give(&g->scratch, memory);
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t i)) {
  histogram_call g = {.c = c, .math = smx_isa_current()->f64.score, .n = tensor_dim(c, "n"), .m = -1};
  g.bins = tensor_dim(c, "k");
  if (c->in.given[OTHER]) g.m = tensor_dim(c, "m");
  g.height = tensor_param(c, "height"), g.width = tensor_param(c, "width");
  g.detached = tensor_param(c, "detach") != 0;
  const smx_status status = tensor_check_empty(c, c->dims.lead_count, g.n, "row", "numbers");
  if (status != SMX_OK) return status;
  const int64_t room = INT64_MAX / 64;
  if (g.n > room / 4 || g.m > room / 4 || g.bins > room / 16 ||
      !smx_scratch_open(&g.scratch, c->ctx, 0,
                        (size_t)(2 * g.n + (g.m > 0 ? 2 * g.m : 0) + 7 * g.bins + 1) * sizeof(double),
                        c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld numbers", c->op->name, (long long)g.n);
  smx_parallel(c->ctx, c->dims.lead_count, task, &g);
  smx_scratch_close(&g.scratch);
  return SMX_OK;
}
smx_status pool_histogram(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_histogram_backward(const tensor_call *c) {
  return c->din.given[X] || c->din.given[OTHER] ? run(c, backward_task) : SMX_OK;
}
