/* set_pools.c - proves pooling of sets on the numbers of the catalogue of papers, and at its
 * edges: sets of nothing, masks, NaN and infinities, groups and segments that do not fit.
 * References, gradients, bits and layouts of every operator: tests/operators/tensors.c. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include <softmax.h>

#include "cpu/cpu.h"
#include "score/score.h"

enum { MOST = 32, PORTS = 7 };

/* A call: inputs given as numbers and shapes; those of whole numbers and masks too. */
typedef struct pooling {
  const smx_op *op;
  smx_params params;
  double in[PORTS][MOST], out[PORTS][MOST], dout[PORTS][MOST], din[PORTS][MOST];
  int64_t whole[MOST], count[MOST];
  unsigned char mask[MOST];
  smx_tensor tin[PORTS], tout[PORTS], tdout[PORTS], tdin[PORTS];
  bool given[PORTS];
  int64_t shape[PORTS][SMX_MAX_DIMS];
  smx_shape outs[PORTS];
} pooling;

static pooling begin(const char *name) {
  pooling p;
  memset(&p, 0, sizeof p);
  p.op = smx_op_find(name);
  assert_non_null(p.op);
  smx_params_init(p.op, &p.params);
  return p;
}
static void set(pooling *p, const char *name, const char *value) {
  assert_int_equal(smx_params_parse(p->op, &p->params, name, value), SMX_OK);
}

static void give(pooling *p, int port, int32_t ndim, const int64_t *shape, const double *x) {
  const uint32_t flags = p->op->inputs[port].flags;
  int64_t n = 1;
  for (int32_t d = 0; d < ndim; d++) p->shape[port][d] = shape[d], n *= shape[d];
  p->given[port] = true;
  p->tin[port] = (smx_tensor){p->in[port], {1, 0}, ndim, SMX_F64, p->shape[port], NULL, 0};
  p->tdin[port] = p->tin[port], p->tdin[port].data = p->din[port];
  for (int64_t i = 0; i < n; i++)
    p->in[port][i] = x[i], p->mask[i] = flags & SMX_PORT_MASK ? x[i] != 0 : p->mask[i];
  for (int64_t i = 0; i < n && flags & SMX_PORT_INT; i++) p->whole[i] = (int64_t)x[i];
  if (flags & SMX_PORT_MASK) p->tin[port].data = p->mask, p->tin[port].dtype = SMX_BOOL;
  if (flags & SMX_PORT_INT) p->tin[port].data = p->whole, p->tin[port].dtype = SMX_I64;
}
#define GIVE(p, port, ...) \
  give(p, port, 1, (int64_t[]){sizeof((double[]){__VA_ARGS__}) / 8}, (double[]){__VA_ARGS__})
#define GIVE_ROWS(p, port, rows, columns, ...) \
  give(p, port, 2, (int64_t[]){rows, columns}, (double[]){__VA_ARGS__})

/* Forward, and backward with 1 for all upstream gradients of y. */
static smx_status run(pooling *p, smx_context *ctx) {
  const smx_tensor *in[PORTS], *out[PORTS], *dout[PORTS], *din[PORTS];
  for (int i = 0; i < PORTS; i++) {
    in[i] = p->given[i] ? p->tin + i : NULL;
    din[i] = p->given[i] && p->op->inputs[i].flags & SMX_PORT_GRAD ? p->tdin + i : NULL;
  }
  smx_status status = smx_infer(p->op, &p->params, p->op->input_count, in, p->op->output_count, p->outs);
  for (int o = 0; o < p->op->output_count && status == SMX_OK; o++) {
    const bool whole = p->op->outputs[o].flags & SMX_PORT_INT;
    p->tout[o] = (smx_tensor){p->out[o], {1, 0}, p->outs[o].ndim, SMX_F64, p->outs[o].dim, NULL, 0};
    if (whole) p->tout[o].data = p->count, p->tout[o].dtype = SMX_I64;
    p->tdout[o] = p->tout[o], p->tdout[o].data = p->dout[o];
    out[o] = p->tout + o, dout[o] = o == 0 ? p->tdout : NULL;
  }
  if (status == SMX_OK)
    status = smx_forward(p->op, ctx, &p->params, p->op->input_count, in, p->op->output_count, out);
  if (status != SMX_OK) return status;
  for (int i = 0; i < MOST; i++) p->dout[0][i] = 1;
  return smx_backward(p->op, ctx, &p->params, p->op->input_count, in, p->op->output_count, out, dout, din);
}

static void near(const double *have, int n, const double *want) {
  for (int i = 0; i < n; i++)
    if (!(fabs(have[i] - want[i]) <= 1e-5 * fmax(1, fabs(want[i]))) && have[i] != want[i] &&
        !(isnan(have[i]) && isnan(want[i])))
      fail_msg("[%d] is %g, not %g", i, have[i], want[i]);
}
#define NEAR(have, ...) near(have, sizeof((double[]){__VA_ARGS__}) / 8, (double[]){__VA_ARGS__})
#define RUN(p) assert_int_equal(run(&(p), NULL), SMX_OK)

/* One channel: the value, the gradients of x and of a power. */
static void means_of_papers(void **state) {
  static const struct {
    const char *name, *param, *value;
    int n;
    double x[4], p, y, dx[4], dp;
  } known[] = {
      {"gem_pool",
       "least",
       "1e-6",
       4,
       {1, 2, 3, 6},
       3,
       3.9790572,
       {.0157899, .0631596, .142109, .568437},
       .39056},
      {"gem_pool", "least", "1e-6", 4, {1, 2, 3, 6}, 1, 3, {.25, .25, .25, .25}, NAN},
      {"gem_pool", "least", "1e-6", 4, {1, 2, 3, 6}, 50, 5.83593, {NAN}, NAN},
      {"gem_pool", "least", "1e-6", 4, {1, 2, 3, 6}, 0, 2.44949, {NAN}, .516659},
      {"gem_pool", "least", "1e-6", 4, {1, 2, 3, 6}, 1e-9, 2.44949, {NAN}, .516659},
      {"gnp_pool", "count_power", "0.4", 3, {1, -2, 3}, 2.5, 2.22868, {.100186, -.28337, .520583}, -.262747},
      {"gnp_pool", "count_power", "0", 3, {3, 0, -4}, 2, 5, {.6, 0, -.8}, NAN},
      {"gnp_pool", "count_power", "1", 3, {3, 0, -4}, 1, 7. / 3, {1. / 3, 0, -1. / 3}, NAN},
      {"smoothed_max_pool",
       "temperature",
       "1",
       3,
       {.2, .9, .5},
       .1,
       .79204327,
       {.000894679, .981135, .0179701},
       NAN},
      {"smoothed_max_pool", "temperature", "1", 3, {.2, .9, .5}, 1e9, 1.6 / 3, {1. / 3, 1. / 3, 1. / 3}, NAN},
      {"smoothed_max_pool", "temperature", "1", 1, {.2}, .7, .2, {1}, 0},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    pooling p = begin(known[i].name);
    set(&p, known[i].param, known[i].value);
    give(&p, 0, 2, (int64_t[]){known[i].n, 1}, known[i].x), GIVE(&p, 3, known[i].p);
    RUN(p);
    near(p.out[0], 1, &known[i].y);
    if (!isnan(known[i].dx[0])) near(p.din[0], known[i].n, known[i].dx);
    if (!isnan(known[i].dp)) near(p.din[3], 1, &known[i].dp);
  }
}

static void mixtures_of_papers(void **state) {
  pooling p = begin("layer_mix");
  GIVE_ROWS(&p, 0, 3, 1, 1, 2, 4), GIVE(&p, 1, 0, 1, 2);
  RUN(p), NEAR(p.out[0], 3.24045);
  p = begin("selective_kernel");
  give(&p, 0, 3, (int64_t[]){2, 2, 1}, (double[]){1, 2, 3, -1}), GIVE_ROWS(&p, 1, 2, 2, 0, 1, 1, 0);
  RUN(p), NEAR(p.out[0], 2.46212, 1.19318), NEAR(p.din[0], .268941, .731059, .731059, .268941);
  p = begin("attsets_pool");
  GIVE_ROWS(&p, 0, 3, 2, 1, 2, 3, -1, 0, 4);
  give(&p, 1, 3, (int64_t[]){3, 1, 2}, (double[]){0, 1, 1, 0, 2, 0});
  RUN(p), NEAR(p.out[0], .824216, 1.78806);
  p = begin("attention_pool_mil");
  GIVE_ROWS(&p, 0, 2, 1, 1, 3), GIVE(&p, 1, 5, 5);
  RUN(p), NEAR(p.out[0], .880797);
  p = begin("weighted_mean_pool");
  GIVE_ROWS(&p, 0, 3, 2, 1, 0, 2, 3, 4, 6);
  RUN(p), NEAR(p.out[0], 2.83333, 4), NEAR(p.din[0], 1. / 6, 1. / 6, 1. / 3, 1. / 3, .5, .5);
}

static void largest_of_papers(void **state) {
  pooling p = begin("maxout");
  GIVE(&p, 0, 2, -2, -3, 3);
  RUN(p), NEAR(p.out[0], 2, 3), NEAR(p.din[0], 1, 0, 0, 1);
  set(&p, "layout", "strided"), RUN(p), NEAR(p.out[0], 2, 3), NEAR(p.din[0], 1, 0, 0, 1);
  p = begin("layer_max_pool");
  GIVE_ROWS(&p, 0, 4, 2, 9, 1, 1, 2, 3, 0, 2, 5);
  RUN(p), NEAR(p.out[0], 3, 5), assert_true(p.count[0] == 2 && p.count[1] == 3);
  set(&p, "last", "0"), RUN(p), NEAR(p.out[0], 9, 5);
  p = begin("splade_pool");
  GIVE_ROWS(&p, 0, 3, 3, 2, -1, .5, 0, 3, 1.5, 1, 1, -2);
  RUN(p), NEAR(p.out[0], 1.09861, 1.38629, .916291), NEAR(p.din[0], 1. / 3, 0, 0, 0, .25, .4, 0, 0, 0);
  set(&p, "reduce", "sum"), RUN(p), NEAR(p.out[0], 1.79176, 2.07944, 1.32176);
  NEAR(p.din[0], 1. / 3, 0, 1 / 1.5, 0, .25, .4, .5, .5, 0);
  p = begin("flops_reg");
  GIVE_ROWS(&p, 0, 2, 3, .5, 0, 1, 1.5, 0, 0);
  RUN(p), NEAR(p.out[0], 1.25), NEAR(p.din[0], 1, 0, .5, 1, 0, 0);
}

static void budgets_and_histograms(void **state) {
  pooling p = begin("gsp_pool");
  set(&p, "mu", "0.5");
  GIVE_ROWS(&p, 0, 2, 3, .2, 1, 1.4, .9, .3, 1.3), GIVE_ROWS(&p, 1, 3, 1, 1, -2, .5);
  RUN(p);
  NEAR(p.out[1], .524262, .460455, .015283), NEAR(p.out[2], .528161, .471839);
  NEAR(p.din[0], -.877284, .0289299, -.0314042, -.0264917, .958027, -.0517768);
  set(&p, "mu", "1"), RUN(p);
  NEAR(p.out[1], 1. / 3, 1. / 3, 1. / 3), NEAR(p.din[0], 0, 0, 0, 0, 0, 0);
  p = begin("gsp_pool"); /* costs that forbid, and a share that is next to nothing: softmax(l) */
  GIVE_ROWS(&p, 0, 2, 4, 0, 1, 2, 3e38, 1, 0, 3, 3e38), GIVE_ROWS(&p, 1, 4, 1, 1, 2, 3, 4);
  RUN(p), NEAR(p.out[1], .49997163, .49997163, 5.6738e-5, 0);
  p = begin("gsp_pool");
  set(&p, "mu", "1e-30");
  GIVE_ROWS(&p, 0, 1, 2, 0, .2), GIVE_ROWS(&p, 1, 2, 1, 1, 2);
  RUN(p), NEAR(p.out[1], .731059, .268941);
  p = begin("soft_histogram");
  GIVE(&p, 0, .2, .5, 1, 3), GIVE(&p, 1, 0, 1, 2);
  RUN(p), NEAR(p.out[0], .737393, .157132, .105475), NEAR(p.din[0], 0, 0, 0, 0);
  p = begin("soft_histogram"); /* no deviation: all centres are one */
  GIVE(&p, 0, 7), GIVE(&p, 1, 0, 1);
  RUN(p), NEAR(p.out[0], .5, .5);
  p = begin("soft_histogram"); /* logits far below 0, whose largest is of the smallest bump */
  set(&p, "height", "-1000");
  GIVE(&p, 0, 0, 1, 2, 3, 4, 5), GIVE(&p, 1, -1, 0, 30);
  RUN(p), NEAR(p.out[0], 0, 0, 1);
}

static void refused(pooling *p, const char *words) {
  assert_int_equal(run(p, NULL), SMX_ERR_SHAPE);
  if (!strstr(smx_last_error(), words)) fail_msg("%s", smx_last_error());
}
static smx_context *context_of(smx_on_empty on_empty) {
  smx_context *ctx;
  const smx_context_options o = {.size = sizeof o, .on_empty = on_empty};
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  return ctx;
}

/* One window of four cells. */
static void windows_of_papers(void **state) {
  pooling p = begin("ada_pool");
  set(&p, "spatial", "1"), set(&p, "kernel", "4");
  GIVE(&p, 0, 1, 2, 3, 4), give(&p, 1, 0, NULL, (double[]){1});
  RUN(p), NEAR(p.out[0], 2.57225), NEAR(p.din[0], .079329, .290249, .302137, .251503);
  give(&p, 1, 0, NULL, (double[]){.25});
  RUN(p), NEAR(p.out[0], 3.26255), NEAR(p.din[1], -.920403);
  give(&p, 1, 0, NULL, (double[]){-3}); /* held at 0: soft_pool */
  RUN(p), NEAR(p.out[0], 3.49265), NEAR(p.din[1], 0);
  GIVE(&p, 0, 0, 0, 0, 0), give(&p, 1, 0, NULL, (double[]){1});
  RUN(p), NEAR(p.out[0], 0), NEAR(p.din[0], .25, .25, .25, .25);
  GIVE(&p, 0, 1e300, 1e300, 1e300, 1e300), RUN(p), NEAR(p.out[0], 1e300);
  GIVE(&p, 0, 1.7e308, 1.7e308, 1.7e308, 1.7e308), RUN(p), NEAR(p.out[0], 1.7e308);
  give(&p, 1, 0, NULL, (double[]){0}); /* three that are equal, at any size */
  for (double x = 1e3; x < 1e308; x *= 1e61) {
    GIVE(&p, 0, x, x, -x, x), RUN(p), NEAR(p.out[0], x);
    NEAR(p.din[0], 1 / 3., 1 / 3., 0, 1 / 3.);
  }
  GIVE(&p, 0, 1.7e308, 1.7e308, -1.7e308, 1.7e308), RUN(p), NEAR(p.din[0], 1 / 3., 1 / 3., 0, 1 / 3.);
  give(&p, 1, 0, NULL, (double[]){1}); /* gradients are those of cells of any size */
  for (double x = 1.7e308; x > 1e-300; x *= 1e-101) {
    GIVE(&p, 0, -x, x, x, .5 * x), RUN(p), NEAR(p.din[0], .0666907, .154351, .154351, .286262);
  }
  p = begin("ada_pool"); /* a map of b, for two windows */
  set(&p, "spatial", "1"), set(&p, "kernel", "4");
  GIVE(&p, 0, 1, 2, 3, 4, 1, 2, 3, 4), GIVE(&p, 2, 1, .25);
  RUN(p), NEAR(p.out[0], 2.57225, 3.26255), NEAR(p.din[2], -.920403, -.920403);
  give(&p, 1, 0, NULL, (double[]){0}), RUN(p), NEAR(p.out[0], 2.57225, 3.26255), NEAR(p.din[1], 0);
  GIVE(&p, 2, 1, .25, 0), refused(&p, "ada_pool: o* of an input is 3, and there are 2 windows");
  p = begin("ada_unpool");
  set(&p, "spatial", "1"), set(&p, "kernel", "4"), set(&p, "share", "0.25");
  GIVE(&p, 0, 1, 2, 3, 4, 7), GIVE(&p, 1, 3.26255);
  RUN(p), NEAR(p.out[0], .244716, .434547, .802721, 1.78057, 0), NEAR(p.din[1], 1);
  GIVE(&p, 1, 1, 1), refused(&p, "ada_unpool: o* of an input is 2, and there are 1 windows");
  p = begin("prompt_guided_pool");
  set(&p, "spatial", "1"), set(&p, "scale", "1");
  GIVE_ROWS(&p, 0, 1, 4, 10, 20, 30, 40), GIVE(&p, 1, 1, 2, 0, .5);
  RUN(p), NEAR(p.out[0], 20, 39.9385), NEAR(p.din[0], 0, 1, .0061472, .993853);
  GIVE(&p, 1, 3, 3, 3, 3), RUN(p), NEAR(p.out[0], 15, 35);
  GIVE(&p, 1, 3, 3, 3, NAN), RUN(p), assert_true(isnan(p.out[0][0]) && isnan(p.din[0][3]));
  GIVE(&p, 1, -INFINITY, -INFINITY, -INFINITY, -INFINITY), RUN(p), NEAR(p.out[0], 0, 0), NEAR(p.din[0], 0, 0);
  smx_context *ctx = context_of(SMX_EMPTY_NAN);
  assert_int_equal(run(&p, ctx), SMX_OK), NEAR(p.out[0], NAN, NAN), smx_context_destroy(ctx);
  ctx = context_of(SMX_EMPTY_ERROR);
  assert_int_equal(run(&p, ctx), SMX_ERR_EMPTY), smx_context_destroy(ctx);
  p = begin("idw_pool");
  set(&p, "spatial", "1"), set(&p, "kernel", "4");
  GIVE(&p, 0, 1, 2, 3, 4), RUN(p), NEAR(p.out[0], 2.5);
  GIVE(&p, 0, 1, 2, 3, 6), RUN(p), NEAR(p.out[0], 3), NEAR(p.din[0], 0, 0, 1, 0); /* 3 is the mean */
  GIVE(&p, 0, 0, 0, 0, 4), RUN(p), NEAR(p.out[0], .4);
  GIVE(&p, 0, 0, 0, 0, 1e300), RUN(p), NEAR(p.out[0], 1e299);
  const double sizes[] = {1, 1e-300, 1e300, 1.7e308};
  for (int k = 0; k < 4; k++) {
    const double x = sizes[k];
    GIVE(&p, 0, -x, x, x, .5 * x), RUN(p), assert_true(fabs(p.out[0][0] / x - .54268293) < 1e-8);
    NEAR(p.din[0], .00148721, .0449137, .0449137, .908685);
  }
  p = begin("gated_pool");
  set(&p, "spatial", "1"), set(&p, "kernel", "4");
  GIVE(&p, 0, 1, 2, 3, 6), GIVE(&p, 1, .1, -.2, .3, .05);
  RUN(p), NEAR(p.out[0], 5.13285), NEAR(p.din[0], .133913, -.0510376, .257213, .814037);
  GIVE(&p, 1, 1, 2, 3), refused(&p, "gated_pool: weight: has 3 numbers, and the window 4 cells");
  p = begin("tree_pool");
  set(&p, "spatial", "1"), set(&p, "kernel", "4");
  GIVE(&p, 0, 1, 2, 3, 6);
  GIVE_ROWS(&p, 1, 4, 4, .25, .25, .25, .25, 0, 0, 0, 1, 1, 0, 0, 0, 0, .5, .5, 0);
  GIVE_ROWS(&p, 2, 3, 4, .1, 0, 0, 0, 0, .1, 0, 0, 0, 0, .1, 0);
  RUN(p), NEAR(p.out[0], 3.06216);
  GIVE_ROWS(&p, 2, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0);
  refused(&p, "tree_pool: weight: 4 filters are not a power of 2, 2..64, one more than 2 gates");
  p = begin("lp_pool");
  set(&p, "spatial", "1"), set(&p, "kernel", "2");
  GIVE(&p, 0, 3, -4, 0, 0, 1e200, 1e200);
  RUN(p), NEAR(p.out[0], 5, 0, 1.41421356e200), NEAR(p.din[0], .6, -.8, 0, 0);
  set(&p, "power", "1"), RUN(p), NEAR(p.out[0], 7, 0, 2e200);
  GIVE(&p, 0, NAN, 1, -INFINITY, 1), RUN(p), assert_true(isnan(p.out[0][0]) && p.out[0][1] == INFINITY);
}

/* Frequencies of 4096 draws against chances: chi-square of three degrees, at 1e-6. */
static void draws_of_windows(void **state) {
  enum { PLANES = 4096 };
  static const double cells[] = {1, 2, -1, 3}, softmax[] = {.0891, .2422, .0121, .6566},
                      ratio[] = {1. / 6, 2. / 6, 0, 3. / 6};
  static double x[PLANES * 4], y[PLANES], dy[PLANES], dx[PLANES * 4];
  static int64_t index[PLANES];
  const smx_op *op = smx_op_find("stochastic_pool");
  for (int i = 0; i < PLANES * 4; i++) x[i] = cells[i % 4], dy[i / 4] = 2;
  for (int form = 0; form < 2; form++) {
    const double *chance = form ? ratio : softmax;
    double count[4] = {0}, chi = 0;
    smx_params params;
    smx_params_init(op, &params);
    smx_params_set(op, &params, "spatial", 1), smx_params_set(op, &params, "kernel", 4);
    smx_params_set(op, &params, "chances", form);
    const smx_tensor tx = {x, {1, 0}, 2, SMX_F64, (int64_t[]){PLANES, 4}},
                     tdx = {dx, {1, 0}, 2, SMX_F64, tx.shape};
    const smx_tensor ty = {y, {1, 0}, 2, SMX_F64, (int64_t[]){PLANES, 1}};
    const smx_tensor ti = {index, {1, 0}, 2, SMX_I64, ty.shape}, tdy = {dy, {1, 0}, 2, SMX_F64, ty.shape};
    const smx_tensor *in[] = {&tx}, *out[] = {&ty, &ti}, *dout[] = {&tdy, NULL}, *din[] = {&tdx};
    assert_int_equal(smx_forward(op, NULL, &params, 1, in, 2, out), SMX_OK);
    assert_int_equal(smx_backward(op, NULL, &params, 1, in, 2, out, dout, din), SMX_OK);
    for (int i = 0; i < PLANES; i++) {
      assert_true(index[i] >= 0 && index[i] < 4 && y[i] == cells[index[i]]);
      for (int k = 0; k < 4; k++) assert_true(dx[i * 4 + k] == (k == index[i] ? 2 : 0));
      count[index[i]]++;
    }
    for (int k = 0; k < 4; k++) {
      const double wanted = chance[k] * PLANES;
      if (wanted > 0) chi += (count[k] - wanted) * (count[k] - wanted) / wanted;
      else assert_true(count[k] == 0);
    }
    assert_true(chi < 30.66);
  }
  pooling p = begin("stochastic_pool");
  set(&p, "spatial", "1"), set(&p, "kernel", "4"), set(&p, "form", "mean");
  GIVE(&p, 0, 1, 2, 3, 4), RUN(p), NEAR(p.out[0], 3.49265), assert_true(p.count[0] == -1);
  NEAR(p.din[0], -.0478524, -.0429319, .120182, .970602);
  set(&p, "chances", "ratio"), RUN(p), NEAR(p.out[0], 3), NEAR(p.din[0], -.1, .1, .3, .5);
  set(&p, "form", "drawn"); /* no chance, no number, all of the mass */
  GIVE(&p, 0, 0, -1, 0, 0, 1, NAN, 1, 1, 0, 1e-300, 0, -INFINITY);
  RUN(p), NEAR(p.out[0], 0, NAN, 1e-300),
      assert_true(p.count[0] == -1 && p.count[1] == -1 && p.count[2] == 9);
  set(&p, "chances", "softmax");
  GIVE(&p, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY, INFINITY, 0, 0, 0);
  RUN(p), NEAR(p.out[0], -INFINITY, NAN), NEAR(p.din[0], 0, 0, 0, 0);
}

/* Scores of 0: the mean, of what is there; a query of nothing. */
static void one_query(void **state) {
  static const double eye[] = {1, 0, 0, 1}, twice[] = {0, 2, 2, 0};
  pooling p = begin("query_pool");
  GIVE_ROWS(&p, 0, 3, 2, 1, 2, 3, 6, NAN, 5), GIVE_ROWS(&p, 2, 2, 2, 0, 0, 0, 0), GIVE(&p, 5, 1, 1, 0);
  give(&p, 1, 2, (int64_t[]){2, 2}, eye), give(&p, 3, 2, (int64_t[]){2, 2}, eye);
  give(&p, 4, 2, (int64_t[]){2, 2}, twice);
  RUN(p), NEAR(p.out[0], 8, 4), NEAR(p.din[0], 1, 1, 1, 1, 0, 0), NEAR(p.din[4], 2, 4, 2, 4);
  set(&p, "heads", "3"), refused(&p, "query_pool: heads: 2 columns are not 3 heads of one size");
  set(&p, "heads", "1");
  GIVE(&p, 6, 1), RUN(p), NEAR(p.out[0], 11, 10), NEAR(p.din[0], 1, 1, 2, 2, 0, 0); /* it is added */
  GIVE(&p, 6, 2), RUN(p), NEAR(p.out[0], 0, 0), NEAR(p.din[0], 0, 0, 0, 0, 0, 0), NEAR(p.din[4], 0, 0, 0, 0);
}

/* Power means of large and small powers, at a score of 0 (Wq is 0) and where the largest has it
 * all: values are x - min + 1e-6. A score of +inf has all of the weight with on_inf = limit. */
static void powers_of_tokens(void **state) {
  static const struct {
    const char *gamma;
    double power;
  } cases[] = {{"0.001", 0.001}, {"0.01", 0.01}, {"0.5", 0.5}, {"1", 1}, {"3", 3}, {"64", 64}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    pooling p = begin("sim_pool");
    set(&p, "gamma", cases[k].gamma);
    GIVE_ROWS(&p, 0, 3, 2, 1, 2, 2, 1, 4, 1), GIVE_ROWS(&p, 1, 2, 2, 0, 0, 0, 0);
    GIVE_ROWS(&p, 2, 2, 2, 0, 0, 0, 0), RUN(p);
    const double deviation[] = {sqrt(0.25 + 1e-6), sqrt(0.25 + 1e-6), sqrt(2.25 + 1e-6)};
    const double of[][3] = {{-0.5, 0.5, 1.5}, {0.5, -0.5, -1.5}};
    const double least = -1.5 / deviation[2];
    for (int j = 0; j < 2; j++) {
      double mean = 0;
      for (int i = 0; i < 3; i++) mean += pow(of[j][i] / deviation[i] - least + 1e-6, cases[k].power) / 3;
      const double want = pow(mean, 1 / cases[k].power);
      assert_true(fabs(p.out[0][j] - want) <= 1e-9 * want);
    }
  }
  static const double eye[] = {1, 0, 0, 1};
  const smx_context_options o = {.size = sizeof o, .on_inf = SMX_INF_LIMIT};
  smx_context *ctx;
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  pooling p = begin("query_pool");
  GIVE_ROWS(&p, 0, 2, 2, 1e200, 0, 1, 1);
  for (int port = 1; port < 5; port++) give(&p, port, 2, (int64_t[]){2, 2}, eye);
  RUN(p), NEAR(p.out[0], NAN, NAN);
  assert_int_equal(run(&p, ctx), SMX_OK);
  NEAR(p.out[0], 1e200, 0);
  smx_context_destroy(ctx);
}

/* One token: (k + segment) o + local; tokens that are not there, segments of two. */
static void mixed_tokens(void **state) {
  pooling p = begin("ponet_mix");
  GIVE_ROWS(&p, 0, 1, 1, 7), GIVE_ROWS(&p, 1, 1, 1, 2), GIVE_ROWS(&p, 2, 1, 1, 3);
  GIVE_ROWS(&p, 3, 1, 1, 5), GIVE_ROWS(&p, 4, 1, 1, 11);
  RUN(p), NEAR(p.out[0], 32), NEAR(p.din[2], 7), NEAR(p.din[1], 3), NEAR(p.din[3], 3), NEAR(p.din[4], 1);
  p = begin("ponet_mix");
  set(&p, "segments", "3");
  GIVE_ROWS(&p, 0, 4, 1, 0, NAN, 0, 0), GIVE_ROWS(&p, 1, 4, 1, 1, NAN, 3, 5);
  GIVE_ROWS(&p, 2, 4, 1, 1, NAN, 1, 2), GIVE_ROWS(&p, 3, 4, 1, 1, NAN, 4, 4);
  GIVE_ROWS(&p, 4, 4, 1, 10, NAN, 20, 30), GIVE(&p, 5, 1, 0, 1, 1);
  RUN(p), NEAR(p.out[0], 14, 0, 37, 44), NEAR(p.din[3], 1, 0, 3, 0), NEAR(p.din[4], 1, 0, 0, 2);
  set(&p, "heads", "2"), refused(&p, "ponet_mix: heads: 1 columns are not 2 heads of one size");
}

/* A bag that is seen whole has its smoothed maximum, and a part moves it by the rate. */
static void bags_in_parts(void **state) {
  pooling p = begin("smoothed_max_update");
  GIVE_ROWS(&p, 0, 3, 1, .2, .9, .5);
  RUN(p), NEAR(p.out[0], .79204327), NEAR(p.out[1], 7.9204327), NEAR(p.din[0], .000894679, .981135, .0179701);
  GIVE(&p, 1, 5), set(&p, "rate", "1"), RUN(p), NEAR(p.out[0], .79204327);
  set(&p, "rate", "0.25"), RUN(p);
  NEAR(p.out[1], log(.75 * exp(5) + .25 * exp(7.9204327)));
  const double exact = p.din[0][1];
  set(&p, "gradient", "estimate"), RUN(p);
  assert_true(fabs(p.din[0][1] - 4 * exact) < 1e-12);
  GIVE(&p, 2, 0, 0, 0), RUN(p), NEAR(p.out[0], .5), NEAR(p.out[1], 5), NEAR(p.din[0], 0, 0, 0);
  GIVE(&p, 1, -INFINITY), RUN(p), NEAR(p.out[0], 0), NEAR(p.out[1], -INFINITY);
}

/* The same with attention: a state of N = 3 D, D = 2. */
static void attended_bags_in_parts(void **state) {
  pooling p = begin("attention_pool_mil_update");
  set(&p, "activation", "none"), set(&p, "rate", "0.25");
  GIVE_ROWS(&p, 0, 2, 1, 1, 5), GIVE(&p, 1, 0, log(3));
  RUN(p), NEAR(p.out[0], 4), NEAR(p.out[1], log(2)), NEAR(p.out[2], 4), NEAR(p.din[0], .25, .75);
  NEAR(p.din[1], -.75, .75);
  give(&p, 2, 0, NULL, (double[]){log(2)}), GIVE(&p, 3, 3);
  RUN(p), NEAR(p.out[0], .75 * 3 + .25 * 4), NEAR(p.out[1], log(2)), NEAR(p.din[0], .0625, .1875);
  set(&p, "gradient", "estimate"), RUN(p), NEAR(p.din[0], .25, .75), NEAR(p.din[1], .25 * -2.25, .75 * 1.75);
  GIVE(&p, 4, 0, 0), RUN(p), NEAR(p.out[0], 3), NEAR(p.out[1], log(2)), NEAR(p.din[0], 0, 0);
  GIVE(&p, 4, 1, 0), GIVE(&p, 1, 1000, 2000);
  RUN(p), NEAR(p.out[0], 1), NEAR(p.out[1], 1000 + log(.25));
  GIVE(&p, 1, INFINITY, 0), RUN(p), NEAR(p.out[0], NAN), NEAR(p.out[1], NAN);
}

/* Numbers of the catalogue; sums that are no number of boundaries. */
static void priors(void **state) {
  pooling p = begin("binomial_prior");
  GIVE(&p, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0), RUN(p), NEAR(p.out[0], .160283);
  /* psi(4) - psi(8) = -(1/4 + 1/5 + 1/6 + 1/7) */
  const double slope = (log(4) - 1. / 4 - 1. / 5 - 1. / 6 - 1. / 7) / 10;
  NEAR(p.din[0], slope, slope);
  GIVE(&p, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0), RUN(p), NEAR(p.out[0], -log(.2)), NEAR(p.din[0] + 3, 0);
  GIVE(&p, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), RUN(p), NEAR(p.out[0], 0), NEAR(p.din[0], 0);
  static const double wrong[][2] = {{2, 1}, {-1, 0}, {NAN, 0}};
  for (int i = 0; i < 3; i++) {
    pooling q = begin("binomial_prior");
    GIVE(&q, 0, wrong[i][0], wrong[i][1]), RUN(q), NEAR(q.out[0], NAN), NEAR(q.din[0], NAN);
  }
}

/* What goes back has to name cells, and windows have to have some. */
static void cells_that_are_none(void **state) {
  pooling p = begin("max_unpool");
  set(&p, "spatial", "1"), GIVE(&p, 0, 7, 8), GIVE(&p, 1, 3, 4);
  p.out[0][0] = 9;
  assert_int_equal(run(&p, NULL), SMX_ERR_TARGET);
  assert_string_equal(smx_last_error(), "max_unpool: index: number 1 is 4, not -1..3");
  assert_true(p.out[0][0] == 9);
  p.whole[1] = -1;
  RUN(p), NEAR(p.out[0], 0, 0, 0, 7), NEAR(p.din[0], 1, 0);
  set(&p, "padding", "2"),
      refused(&p, "max_unpool: padding: 2 windows have no cells but those of the padding");
}

static void segments(void **state) {
  pooling p = begin("segment_pool");
  set(&p, "gradient", "straight"), set(&p, "segments", "3");
  GIVE_ROWS(&p, 0, 6, 1, 1, 2, 3, 4, 5, 6), GIVE(&p, 1, 0, 0, 1, 0, 1, 0), GIVE(&p, 2, 9);
  RUN(p), NEAR(p.out[0], 9, 2, 4.5, 0), assert_int_equal(p.count[0], 2);
  NEAR(p.din[0], 1. / 3, 1. / 3, 1. / 3, .5, .5, 0), NEAR(p.din[2], 1);
  NEAR(p.din[1], 1. / 3, 1. / 3, 0, .25, 0, 0);
  set(&p, "segments", "1"), RUN(p), NEAR(p.out[0], 9, 2), assert_int_equal(p.count[0], 2);
  NEAR(p.din[0], 1. / 3, 1. / 3, 1. / 3, 0, 0, 0), NEAR(p.din[1], 1. / 3, 1. / 3, 0, 0, 0, 0);
  p = begin("segment_upsample");
  GIVE_ROWS(&p, 0, 3, 1, 9, 2, 4.5), GIVE(&p, 1, 0, 0, 1, 0, 1, 0);
  RUN(p), NEAR(p.out[0], 9, 9, 2, 2, 4.5, 4.5), NEAR(p.din[0], 2, 2, 2);
  GIVE_ROWS(&p, 0, 2, 1, 9, 2); /* the second segment has no row */
  RUN(p), NEAR(p.out[0], 9, 9, 2, 2, 0, 0);
}

/* Ragged sets, one of nothing, one whose only item is masked; what is masked is not read. */
static const char *const of_sets[] = {"gem_pool",       "gnp_pool",    "smoothed_max_pool",
                                      "layer_max_pool", "splade_pool", "weighted_mean_pool"};
static void sets_of_nothing(void **state) {
  smx_context *nan = context_of(SMX_EMPTY_NAN), *error = context_of(SMX_EMPTY_ERROR);
  for (size_t i = 0; i < sizeof of_sets / sizeof *of_sets; i++) {
    pooling p = begin(of_sets[i]);
    GIVE_ROWS(&p, 0, 4, 1, 2, NAN, 2, NAN), GIVE(&p, 1, 1, 0, 1, 0), GIVE(&p, 2, 0, 3, 3, 4);
    RUN(p);
    assert_true(p.out[0][0] > 0 && p.out[0][1] == 0 && p.out[0][2] == 0);
    assert_true(p.din[0][0] != 0 && p.din[0][1] == 0 && p.din[0][3] == 0);
    assert_int_equal(run(&p, nan), SMX_OK);
    assert_true(p.out[0][0] > 0 && isnan(p.out[0][1]) && isnan(p.out[0][2]) && p.din[0][3] == 0);
    assert_int_equal(run(&p, error), SMX_ERR_EMPTY);
    assert_non_null(strstr(smx_last_error(), "set 1 has nothing in it"));
    GIVE(&p, 1, 1, 1, 1, 0), RUN(p);
    assert_true(isnan(p.out[0][0]) && p.out[0][1] == 0);
  }
  pooling p = begin("query_pool"); /* items are there, but none that asks */
  GIVE_ROWS(&p, 0, 2, 1, 1, 2), GIVE(&p, 5, 1, 0), GIVE(&p, 6, 1);
  for (int i = 1; i < 5; i++) GIVE_ROWS(&p, i, 1, 1, 1);
  RUN(p), NEAR(p.out[0], 0), assert_int_equal(run(&p, error), SMX_ERR_EMPTY);
  assert_non_null(strstr(smx_last_error(), "query_pool: index: no item of set 0 that asks is there"));
  GIVE(&p, 6, 0), assert_int_equal(run(&p, error), SMX_OK);
  p = begin("attention_pool_mil");
  set(&p, "activation", "none");
  GIVE_ROWS(&p, 0, 3, 1, INFINITY, 2, 3), GIVE(&p, 1, -INFINITY, 0, -INFINITY), GIVE(&p, 3, 0, 2, 3);
  RUN(p), NEAR(p.out[0], 2, 0), NEAR(p.din[0], 0, 1, 0), NEAR(p.din[1], 0, 0, 0);
  assert_int_equal(run(&p, error), SMX_ERR_EMPTY);
  GIVE(&p, 1, INFINITY, 0, 1), RUN(p), assert_true(isnan(p.out[0][0]) && p.out[0][1] == 3);
  p = begin("attsets_pool"); /* a channel without mass, one that +inf takes, one with a NaN */
  GIVE_ROWS(&p, 0, 2, 4, NAN, 1, 1, 1e308, NAN, 2, 2, 1.5e308);
  give(&p, 1, 3, (int64_t[]){2, 1, 4}, (double[]){-INFINITY, INFINITY, NAN, 0, -INFINITY, 0, 0, 0});
  assert_int_equal(run(&p, error), SMX_ERR_EMPTY);
  RUN(p), NEAR(p.out[0], 0, NAN, NAN, 1.25e308), NEAR(p.din[0], 0, NAN, NAN, .5, 0, NAN, NAN, .5);
  smx_context *limit;
  const smx_context_options o = {.size = sizeof o, .on_inf = SMX_INF_LIMIT};
  assert_int_equal(smx_context_create(&o, &limit), SMX_OK);
  assert_int_equal(run(&p, limit), SMX_OK);
  NEAR(p.out[0], 0, 1, NAN, 1.25e308), NEAR(p.din[0], 0, 1, NAN, .5, 0, 0, NAN, .5);
  smx_context_destroy(nan), smx_context_destroy(error), smx_context_destroy(limit);
}

static void means_at_their_edges(void **state) {
  pooling p = begin("gnp_pool"); /* zeros: no gradient */
  GIVE_ROWS(&p, 0, 2, 1, 0, 0), GIVE(&p, 3, 2);
  RUN(p), NEAR(p.out[0], 0), NEAR(p.din[0], 0, 0);
  GIVE_ROWS(&p, 0, 2, 1, 0, 3), GIVE(&p, 3, -1), RUN(p), NEAR(p.out[0], 0), NEAR(p.din[0], 0, 0);
  GIVE(&p, 3, 1e-4), RUN(p), assert_true(isnan(p.out[0][0]) && isnan(p.din[0][0]));
  GIVE_ROWS(&p, 0, 3, 1, -INFINITY, 1, 2), GIVE(&p, 3, 1), RUN(p), assert_true(p.out[0][0] == INFINITY);
  GIVE(&p, 3, -1), RUN(p), NEAR(p.out[0], 2. / 9), NEAR(p.din[0], 0, 4. / 27, 1. / 27);
  p = begin("gem_pool");
  GIVE_ROWS(&p, 0, 2, 1, INFINITY, 1), GIVE(&p, 3, .5), RUN(p), assert_true(p.out[0][0] == INFINITY);
  NEAR(p.din[0], 0, 0);
  GIVE(&p, 3, 0), RUN(p), assert_true(p.out[0][0] == INFINITY), NEAR(p.din[0], 0, 0);
  p = begin("smoothed_max_pool");
  GIVE_ROWS(&p, 0, 2, 1, INFINITY, 0), RUN(p), assert_true(p.out[0][0] == INFINITY), NEAR(p.din[0], 0, 0);
  GIVE_ROWS(&p, 0, 2, 1, -INFINITY, 0), RUN(p), NEAR(p.out[0], -.0693147), NEAR(p.din[0], 0, 1);
  GIVE_ROWS(&p, 0, 2, 1, 1e300, -1e300), RUN(p), NEAR(p.out[0], 1e300);
  GIVE(&p, 3, 0), RUN(p), assert_true(isnan(p.out[0][0]));
  p = begin("layer_max_pool");
  GIVE_ROWS(&p, 0, 3, 2, -INFINITY, 1, -INFINITY, NAN, -INFINITY, 2), RUN(p);
  assert_true(p.out[0][0] == -INFINITY && isnan(p.out[0][1]) && p.count[0] == -1 && p.count[1] == -1);
  NEAR(p.din[0], 0, 0, 0, 0, 0, 0);
}

static void *at_most_a_mb(void *user, size_t bytes, size_t alignment) {
  return bytes > 1 << 20 ? NULL : aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void give_back(void *user, void *p) { free(p); }

/* Gradients of many sets need room for their items, not for all items of each set. */
static void many_sets(void **state) {
  enum { SETS = 1000, ITEMS = 2 * SETS };
  static double x[ITEMS], score[ITEMS], y[SETS], dy[SETS], dx[ITEMS], dscore[ITEMS];
  static int64_t offsets[SETS + 1];
  smx_context *ctx;
  const smx_context_options o = {.size = sizeof o, .alloc = at_most_a_mb, .release = give_back};
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  for (int i = 0; i < ITEMS; i++) x[i] = i;
  for (int i = 0; i <= SETS; i++) offsets[i] = 2 * i;
  for (int i = 0; i < SETS; i++) dy[i] = i;
  const smx_op *op = smx_op_find("attention_pool_mil");
  smx_params params;
  smx_params_init(op, &params);
  assert_int_equal(smx_params_parse(op, &params, "activation", "none"), SMX_OK);
  int64_t rows[] = {ITEMS, 1}, sets[] = {SETS, 1}, ends[] = {SETS + 1};
  const smx_tensor tx = {x, {1, 0}, 2, SMX_F64, rows}, ts = {score, {1, 0}, 1, SMX_F64, rows};
  const smx_tensor to = {offsets, {1, 0}, 1, SMX_I64, ends}, ty = {y, {1, 0}, 2, SMX_F64, sets};
  const smx_tensor tdy = {dy, {1, 0}, 2, SMX_F64, sets}, tdx = {dx, {1, 0}, 2, SMX_F64, rows};
  const smx_tensor tds = {dscore, {1, 0}, 1, SMX_F64, rows};
  const smx_tensor *in[] = {&tx, &ts, NULL, &to}, *out[] = {&ty}, *dout[] = {&tdy};
  const smx_tensor *din[] = {&tdx, &tds, NULL, NULL};
  assert_int_equal(smx_backward(op, ctx, &params, 4, in, 1, out, dout, din), SMX_OK);
  for (int i = 0; i < ITEMS; i++) { /* weights of 1/2: dscore = dy w (x - mean) */
    const double up = i / 2;
    assert_true(dx[i] == up / 2 && dscore[i] == (i % 2 ? up / 4 : -up / 4));
  }
  smx_context_destroy(ctx);
}

/* Errors of two units in the last place at most; of powers that are no products those of
 * p log x. */
static void runs_of_numbers(void **state) {
  enum { N = 1003 };
  static double x[N], y[N];
  static const double ends[] = {0, 0x1p-1022, 1, INFINITY, NAN};
  static const double logs[] = {-INFINITY, -708.39641853226408, 0, INFINITY, NAN};
  const score_runs *run = smx_isa_current()->f64.score->run;
  for (int i = 0; i < N; i++) x[i] = exp(1.4 * i - 700);
  run->log(x, N, y);
  for (int i = 0; i < N; i++) assert_true(fabs(y[i] - log(x[i])) <= 0x1p-51 * fabs(log(x[i])));
  run->log(ends, 5, y), NEAR(y, logs[0], logs[1], logs[2], logs[3], logs[4]);
  for (int p = 1; p <= 9; p++) {
    for (int i = 0; i < N; i++) x[i] = i / 500.;
    run->power(p, x, N, y);
    for (int i = 0; i < N; i++) assert_true(fabs(y[i] - pow(x[i], p)) <= 0x1p-46 * pow(x[i], p));
  }
  run->power(-.5, ends, 5, y), NEAR(y, INFINITY, 0x1p511, 1, 0, NAN);
  run->power(.5, ends, 5, y), NEAR(y, 0, 0x1p-511, 1, INFINITY, NAN);
  for (int i = 0; i < N; i++) x[i] = -exp(i / 14. - 66);
  run->expm1(x, N, y);
  for (int i = 0; i < N; i++) assert_true(fabs(y[i] - expm1(x[i])) <= 0x1p-51 * -expm1(x[i]));
  run->exp(x, N, y);
  for (int i = 0; i < N; i++)
    assert_true(fabs(y[i] - exp(x[i])) <= (x[i] < -708 ? 0x1p-1021 : 0x1p-51 * exp(x[i])));
  const double far[] = {-INFINITY, 710, INFINITY, NAN, 0};
  run->exp(far, 5, y), NEAR(y, 0, INFINITY, INFINITY, NAN, 1);
  run->expm1((double[]){-INFINITY, NAN, 0}, 3, y), NEAR(y, -1, NAN, 0);
}

static void groups_that_do_not_fit(void **state) {
  pooling p = begin("gem_pool");
  GIVE_ROWS(&p, 0, 1, 4, 1, 2, 3, 4), GIVE(&p, 3, 1, 2, 3);
  refused(&p, "gem_pool: p: 4 channels are not 3 groups of one size");
  p = begin("maxout");
  GIVE(&p, 0, 1, 2, 3);
  refused(&p, "maxout: pieces: 2 do not divide the 3 numbers of a row");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(means_of_papers),
      cmocka_unit_test(mixtures_of_papers),
      cmocka_unit_test(largest_of_papers),
      cmocka_unit_test(budgets_and_histograms),
      cmocka_unit_test(segments),
      cmocka_unit_test(windows_of_papers),
      cmocka_unit_test(draws_of_windows),
      cmocka_unit_test(one_query),
      cmocka_unit_test(powers_of_tokens),
      cmocka_unit_test(mixed_tokens),
      cmocka_unit_test(bags_in_parts),
      cmocka_unit_test(attended_bags_in_parts),
      cmocka_unit_test(priors),
      cmocka_unit_test(cells_that_are_none),
      cmocka_unit_test(sets_of_nothing),
      cmocka_unit_test(means_at_their_edges),
      cmocka_unit_test(many_sets),
      cmocka_unit_test(runs_of_numbers),
      cmocka_unit_test(groups_that_do_not_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
