/* cluster_pools.c - proves pooling by clusters and of graphs on the numbers of the catalogue of
 * papers, and at its edges: ties, weights of 0, masks, NaN and numbers that overflow. References,
 * gradients, bits and layouts of every operator: tests/operators/tensors.c. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include <softmax.h>

enum { MOST = 64 };

/* A call in f64: the numbers of each port, and whole ones beside them. */
typedef struct port {
  double x[MOST], d[MOST];
  int64_t whole[MOST];
  unsigned char mask[MOST];
  smx_shape shape;
  bool given;
} port;
typedef struct pooling {
  const smx_op *op;
  smx_params params;
  port in[SMX_MAX_PORTS], out[SMX_MAX_PORTS];
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

static void give(pooling *p, int number, int32_t rows, int64_t columns, const double *x) {
  port *to = p->in + number;
  to->given = true;
  to->shape = (smx_shape){.ndim = rows ? 2 : 1, .dim = {rows ? rows : columns, columns}};
  for (int64_t i = 0; i < (rows ? rows : 1) * columns; i++)
    to->x[i] = x[i], to->whole[i] = fabs(x[i]) < 1e15 ? (int64_t)x[i] : 0, to->mask[i] = x[i] != 0;
}
#define NUMBERS(...) ((double[]){__VA_ARGS__})
#define GIVE(p, number, ...) give(p, number, 0, sizeof NUMBERS(__VA_ARGS__) / 8, NUMBERS(__VA_ARGS__))
#define GIVE_ROWS(p, number, rows, ...) \
  give(p, number, rows, sizeof NUMBERS(__VA_ARGS__) / 8 / (rows), NUMBERS(__VA_ARGS__))

static smx_tensor tensor_of(const smx_port *facts, port *p, bool gradient) {
  smx_tensor t = {gradient ? p->d : p->x, {1, 0}, p->shape.ndim, SMX_F64, p->shape.dim, NULL, 0};
  if (facts->flags & SMX_PORT_INT) t.data = p->whole, t.dtype = SMX_I64;
  if (facts->flags & SMX_PORT_MASK) t.data = p->mask, t.dtype = SMX_BOOL;
  return t;
}

/* Forward, and backward with the upstream gradients in out[].d. */
static smx_status run(pooling *p, smx_context *ctx) {
  smx_tensor tin[SMX_MAX_PORTS], tout[SMX_MAX_PORTS], tdout[SMX_MAX_PORTS], tdin[SMX_MAX_PORTS];
  const smx_tensor *in[SMX_MAX_PORTS] = {NULL}, *out[SMX_MAX_PORTS] = {NULL}, *dout[SMX_MAX_PORTS] = {NULL},
                   *din[SMX_MAX_PORTS] = {NULL};
  smx_shape shapes[SMX_MAX_PORTS];
  const smx_op *op = p->op;
  for (int i = 0; i < op->input_count; i++) {
    if (!p->in[i].given) continue;
    tin[i] = tensor_of(op->inputs + i, p->in + i, false), in[i] = tin + i;
    tdin[i] = tensor_of(op->inputs + i, p->in + i, true);
    if (op->inputs[i].flags & SMX_PORT_GRAD) din[i] = tdin + i;
  }
  smx_status status = smx_infer(op, &p->params, op->input_count, in, op->output_count, shapes);
  for (int o = 0; o < op->output_count && status == SMX_OK; o++) {
    p->out[o].shape = shapes[o];
    tout[o] = tensor_of(op->outputs + o, p->out + o, false), out[o] = tout + o;
    tdout[o] = tensor_of(op->outputs + o, p->out + o, true);
    if (!(op->outputs[o].flags & SMX_PORT_INT)) dout[o] = tdout + o;
  }
  if (status == SMX_OK) status = smx_forward(op, ctx, &p->params, op->input_count, in, op->output_count, out);
  if (status != SMX_OK || !(op->flags & SMX_OP_BACKWARD)) return status;
  return smx_backward(op, ctx, &p->params, op->input_count, in, op->output_count, out, dout, din);
}
#define RUN(p) assert_int_equal(run(&(p), NULL), SMX_OK)

static void near(const double *have, int n, const double *want) {
  for (int i = 0; i < n; i++)
    if (!(fabs(have[i] - want[i]) <= 3e-6 * fmax(1, fabs(want[i]))))
      fail_msg("number %d is %.9g, not %.9g", i, have[i], want[i]);
}
#define NEAR(have, ...) near(have, sizeof NUMBERS(__VA_ARGS__) / 8, NUMBERS(__VA_ARGS__))
static void whole(const int64_t *have, int n, const double *want) {
  for (int i = 0; i < n; i++)
    if (have[i] != (int64_t)want[i]) fail_msg("number %d is %d, not %d", i, (int)have[i], (int)want[i]);
}
#define WHOLE(have, ...) whole(have, sizeof NUMBERS(__VA_ARGS__) / 8, NUMBERS(__VA_ARGS__))
static void upstream(pooling *p, int output, int n, const double *d) {
  memcpy(p->out[output].d, d, (size_t)n * 8);
}
#define UPSTREAM(p, output, ...) upstream(p, output, sizeof NUMBERS(__VA_ARGS__) / 8, NUMBERS(__VA_ARGS__))

/* ---- clusters of tokens ---- */

static const char *const clusterings[] = {"token_pool_kmeans", "token_pool_kmedoids", "token_pool_ward"};
enum { KMEANS, KMEDOIDS, WARD, CLUSTERINGS };
static int mask_of(int method) { return method == WARD ? 1 : 2; }

static void means_and_medoids(void **state) {
  pooling p = begin("token_pool_kmeans");
  set(&p, "k", "2");
  GIVE_ROWS(&p, 0, 5, 0, 1, 5, 6, 7), GIVE(&p, 1, 1, 3, 1, 1, 2), UPSTREAM(&p, 0, 4, 8);
  RUN(p);
  NEAR(p.out[0].x, .75, 6.25), WHOLE(p.out[1].whole, 0, 0, 1, 1, 1), assert_int_equal(p.out[2].whole[0], 2);
  NEAR(p.in[0].d, 1, 3, 2, 2, 4), NEAR(p.in[1].d, -.75, .25, -2.5, -.5, 1.5);
  GIVE(&p, 1, 0, 3, 0, 0, 2), RUN(p); /* weights of 0 move nothing; the first of 0 joins */
  NEAR(p.out[0].x, 1, 7), WHOLE(p.out[1].whole, 0, 0, 1, 1, 1);
  p = begin("token_pool_kmedoids");
  set(&p, "k", "2");
  GIVE_ROWS(&p, 0, 5, 0, 1, 5, 6, 7), GIVE(&p, 1, 1, 3, 1, 1, 2), UPSTREAM(&p, 0, 4, 8);
  RUN(p), NEAR(p.out[0].x, 1, 6), WHOLE(p.out[1].whole, 0, 0, 1, 1, 1), NEAR(p.in[0].d, 0, 4, 0, 8, 0);
  GIVE_ROWS(&p, 0, 5, 0, 1, 5, 6, 9), p.in[1].given = false; /* from tokens 0 and 1, one step */
  set(&p, "steps", "1"), RUN(p), NEAR(p.out[0].x, 0, 5), WHOLE(p.out[1].whole, 0, 1, 1, 1, 1);
  set(&p, "steps", "9"), RUN(p), NEAR(p.out[0].x, 0, 6), WHOLE(p.out[1].whole, 0, 0, 1, 1, 1);
}

static void unions(void **state) {
  pooling p = begin("token_pool_ward");
  set(&p, "observations", "vectors");
  GIVE_ROWS(&p, 0, 5, 0, 0, 0, 1, 4, 0, 4, 1.5, 10, 0), UPSTREAM(&p, 0, 4, 8, 1, 2);
  RUN(p), NEAR(p.out[0].x, 2, .625, 10, 0), WHOLE(p.out[1].whole, 0, 0, 0, 0, 1);
  NEAR(p.in[0].d, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2);
  set(&p, "first", "2"), RUN(p); /* 2 and 5 / 2 of the other three */
  NEAR(p.out[0].x, 0, 0, 0, 1, 4, .75, 10, 0), WHOLE(p.out[1].whole, 0, 1, 2, 2, 3);
  set(&p, "first", "4"), RUN(p), assert_int_equal(p.out[2].whole[0], 5);
  set(&p, "first", "0"), set(&p, "factor", "9"), RUN(p), NEAR(p.out[0].x, 3.6, .5);
  p = begin("token_pool_ward"); /* equal pairs: the first goes first, whatever is united between them */
  set(&p, "observations", "vectors");
  GIVE_ROWS(&p, 0, 6, 0, 1, 10, 11, 20, 21), RUN(p), WHOLE(p.out[1].whole, 0, 0, 1, 1, 2, 2);
  set(&p, "factor", "3"), RUN(p), WHOLE(p.out[1].whole, 0, 0, 0, 0, 1, 1);
  p = begin("token_pool_ward"); /* cosines: directions */
  GIVE_ROWS(&p, 0, 4, 1, 0, 0, 1, .96, .28, .28, .96), RUN(p), WHOLE(p.out[1].whole, 0, 1, 0, 1);
  NEAR(p.out[0].x, .98, .14, .14, .98);
}

/* Means of length 1, whatever the size of the tokens; zeros stay. The gradient has no part along
 * them: of (3, 4) / 5 with dy = (5, 0) it is (16, -12) / 25 over the length of the mean. */
static void unions_of_length_one(void **state) {
  const double sizes[] = {1, 0x1p-1000, 0x1p1000};
  for (int i = 0; i < 3; i++) {
    const double by = sizes[i];
    pooling p = begin("token_pool_ward");
    set(&p, "observations", "vectors"), set(&p, "renormalise", "yes");
    GIVE_ROWS(&p, 0, 6, 2 * by, 4 * by, 4 * by, 4 * by, 0, 0, 0, 0, -9 * by, 0, -9 * by, 0);
    UPSTREAM(&p, 0, 5, 0, 7, 7, 7, 7), set(&p, "factor", "2"), RUN(p);
    NEAR(p.out[0].x, .6, .8, 0, 0, -1, 0), WHOLE(p.out[1].whole, 0, 0, 1, 1, 2, 2);
    for (int k = 0; k < 12; k++) p.in[0].d[k] *= by;
    NEAR(p.in[0].d, .32, -.24, .32, -.24, 0, 0, 0, 0, 0, 7. / 18, 0, 7. / 18);
  }
}

/* Sizes at their ends, what is masked, and what is not finite. */
static void tokens_at_their_edges(void **state) {
  for (int m = 0; m < CLUSTERINGS; m++) {
    pooling p = begin(clusterings[m]);
    const int mask = mask_of(m);
    set(&p, m == WARD ? "factor" : "k", m == WARD ? "2" : "3");
    GIVE_ROWS(&p, 0, 6, .1, NAN, .1, 7, INFINITY, 7.5), GIVE(&p, mask, 1, 0, 1, 1, 0, 1);
    UPSTREAM(&p, 0, 1, 2, 4), RUN(p);
    assert_true(p.out[0].x[0] == .1);
    WHOLE(p.out[1].whole, 0, -1, 0, 1, -1, 1);
    assert_int_equal(p.out[2].whole[0], 2);
    assert_true(p.out[0].x[2] == 0 && p.in[0].d[1] == 0 && p.in[0].d[4] == 0);
    GIVE(&p, mask, 0, 0, 0, 0, 0, 0), RUN(p);
    WHOLE(p.out[1].whole, -1, -1, -1, -1, -1, -1), NEAR(p.out[0].x, 0, 0, 0);
    assert_int_equal(p.out[2].whole[0], 0);
    GIVE(&p, mask, 1, 1, 1, 1, 0, 1), RUN(p);
    assert_true(isnan(p.out[0].x[0]) && isnan(p.out[0].x[2]) && p.out[2].whole[0] == 0);
    WHOLE(p.out[1].whole, -1, -1, -1, -1, -1, -1), NEAR(p.in[0].d, 0, 0, 0, 0, 0, 0);
    GIVE(&p, mask, 1, 0, 1, 1, 1, 1), RUN(p), assert_true(isnan(p.out[0].x[1]));
    if (m != WARD) {
      GIVE_ROWS(&p, 0, 6, 1, 2, 3, 4, 5, 6), GIVE(&p, 1, 1, 1, 1, 1, 1, -1), GIVE(&p, 2, 1, 1, 1, 1, 1, 1);
      RUN(p), assert_true(isnan(p.out[0].x[0]));
    }
  }
}

static void numbers_that_overflow(void **state) {
  for (int m = 0; m < CLUSTERINGS; m++)
    for (int small = 0; small < 2; small++) {
      const double by = small ? 1e-300 : 1e300;
      pooling p = begin(clusterings[m]);
      if (m == WARD) set(&p, "observations", "vectors");
      set(&p, m == WARD ? "factor" : "k", "2");
      GIVE_ROWS(&p, 0, 4, by, 9 * by, 1.5 * by, 9.5 * by), RUN(p);
      WHOLE(p.out[1].whole, 0, 1, 0, 1);
      if (m == KMEDOIDS) assert_true(p.out[0].x[0] == by && p.out[0].x[1] == 9 * by);
      else assert_true(fabs(p.out[0].x[1] / by - 9.25) < 1e-12);
      if (m != WARD) GIVE(&p, 1, 1e308, 1e308, 1e308, 1e308), RUN(p), WHOLE(p.out[1].whole, 0, 1, 0, 1);
    }
}

/* Tokens that are one another, and a centre that loses all of its tokens. */
static void equal_tokens(void **state) {
  for (int m = 0; m < CLUSTERINGS; m++) {
    pooling p = begin(clusterings[m]);
    if (m == WARD) set(&p, "observations", "vectors");
    set(&p, m == WARD ? "factor" : "k", m == WARD ? "2" : "3");
    GIVE_ROWS(&p, 0, 6, 2, 2, 2, 2, 2, 2), RUN(p);
    assert_int_equal(p.out[2].whole[0], m == WARD ? 3 : 1);
    assert_true(p.out[0].x[0] == 2 && p.out[0].x[1] == (m == WARD ? 2 : 0));
  }
}

/* ---- graphs ---- */

static smx_context *context_of(smx_on_empty on_empty) {
  smx_context *ctx;
  const smx_context_options o = {.size = sizeof o, .on_empty = on_empty};
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  return ctx;
}

static void refused(pooling *p, smx_context *ctx, smx_status status, const char *words) {
  assert_int_equal(run(p, ctx), status);
  if (!strstr(smx_last_error(), words)) fail_msg("%s", smx_last_error());
}

static pooling nodes(void) {
  pooling p = begin("graph_topk_pool");
  GIVE_ROWS(&p, 0, 4, 1, 0, 0, 2, 3, 1, -1, 1), GIVE(&p, 1, 3, 4);
  GIVE_ROWS(&p, 2, 2, 0, 1, 2, 1, 1, 2, 1, 3), GIVE(&p, 3, 5, 6, 7, 8);
  UPSTREAM(&p, 2, 1, 2);
  return p;
}

static void nodes_that_stay(void **state) {
  pooling p = nodes();
  UPSTREAM(&p, 0, 1, 0, 0, 1), RUN(p);
  NEAR(p.out[0].x, 2.96708, .989027, 0, 1.84334), NEAR(p.out[1].x, .6, 1.6, 2.6, .2);
  WHOLE(p.out[3].whole, 2, 1), WHOLE(p.out[4].whole, 1, 0, -1, -1, 0, 1, -1, -1);
  NEAR(p.out[2].x, 6, 7, 0, 0), NEAR(p.in[3].d, 0, 1, 2, 0);
  const double t = tanh(1.6), u = tanh(2.6);
  NEAR(p.in[0].d, 0, 0, 2 * (1 - t * t) * .6, t + 2 * (1 - t * t) * .8, u + 3 * (1 - u * u) * .6,
       3 * (1 - u * u) * .8, 0, 0);
  set(&p, "k", "9"), RUN(p), WHOLE(p.out[3].whole, 2, 1, 0, 3), NEAR(p.out[2].x, 5, 6, 7, 8);
  set(&p, "k", "1"), RUN(p), WHOLE(p.out[3].whole, 2), assert_int_equal(p.out[6].whole[0], 0);
  GIVE_ROWS(&p, 0, 4, 50, 0, 0, 60, 40, 0, 50, 0), set(&p, "k", "3"), RUN(p); /* gates of 1 */
  WHOLE(p.out[3].whole, 1, 0, 3);
  p = nodes();
  set(&p, "choose", "threshold"), set(&p, "least", "0.2"), GIVE(&p, 1, .3, .4), RUN(p);
  NEAR(p.out[1].x, .161662, .266536, .439444, .132358), WHOLE(p.out[3].whole, 1, 2, -1, -1);
  NEAR(p.out[0].x, 0, .533072, 1.31833, .439444, 0, 0, 0, 0);
  set(&p, "least", "1"), RUN(p), WHOLE(p.out[3].whole, 2, -1, -1, -1); /* the best one stays */
  GIVE(&p, 1, 0, 0), RUN(p), NEAR(p.out[1].x, .25, .25, .25, .25), assert_int_equal(p.out[5].whole[0], 4);
}

/* A share that is a whole number of nodes but for rounding, in binary. */
static void parts_of_graphs(void **state) {
  static const struct {
    int64_t n;
    const char *ratio;
    int64_t kept;
  } known[] = {{10, "0.7", 7}, {30, "0.1", 3}, {10, "0.71", 8}, {7, "1", 7}, {9, "1e-30", 1}, {3, "0.5", 2}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    pooling p = begin("graph_topk_pool");
    double x[MOST] = {0};
    give(&p, 0, (int32_t)known[i].n, 1, x), GIVE(&p, 1, -2), GIVE_ROWS(&p, 2, 2, 0, 0);
    set(&p, "ratio", known[i].ratio), RUN(p);
    assert_int_equal(p.out[5].whole[0], known[i].kept);
    assert_int_equal(p.out[3].whole[known[i].kept - 1], known[i].kept - 1); /* ties: the first ones */
  }
}

static void graphs_at_their_edges(void **state) {
  smx_context *nan = context_of(SMX_EMPTY_NAN), *error = context_of(SMX_EMPTY_ERROR);
  pooling p = nodes();
  GIVE(&p, 1, 0, 0);
  refused(&p, NULL, SMX_ERR_PARAM, "graph_topk_pool: projection: its 2 numbers are 0");
  GIVE(&p, 1, 3e-300, 4e-300), RUN(p), NEAR(p.out[1].x, .6, 1.6, 2.6, .2);
  GIVE(&p, 1, 3e300, 4e300), RUN(p), NEAR(p.out[0].x, 2.96708, .989027, 0, 1.84334);
  GIVE(&p, 1, NAN, 1), RUN(p), assert_true(isnan(p.out[0].x[0]) && isnan(p.out[1].x[3]));
  WHOLE(p.out[3].whole, -1, -1), WHOLE(p.out[4].whole, -1), NEAR(p.in[0].d, 0, 0), NEAR(p.in[1].d, 0, 0);
  p = nodes();
  set(&p, "choose", "threshold"), GIVE(&p, 1, INFINITY, 1), RUN(p), assert_true(isnan(p.out[0].x[0]));
  assert_int_equal(p.out[5].whole[0], 0);
  p = nodes();
  GIVE_ROWS(&p, 0, 4, NAN, 0, 0, 2, 3, 1, INFINITY, 1), GIVE(&p, 4, 0, 1, 1, 0), RUN(p);
  WHOLE(p.out[3].whole, 2, -1), NEAR(p.out[0].x, 2.96708, .989027, 0, 0), NEAR(p.out[1].x, 0, 1.6, 2.6, 0);
  assert_true(p.in[0].d[0] == 0 && p.in[0].d[6] == 0);
  GIVE(&p, 4, 0, 0, 0, 0), RUN(p), NEAR(p.out[0].x, 0, 0, 0, 0), assert_int_equal(p.out[5].whole[0], 0);
  assert_int_equal(run(&p, nan), SMX_OK), assert_true(isnan(p.out[0].x[0]) && p.out[5].whole[0] == 0);
  refused(&p, error, SMX_ERR_EMPTY, "graph_topk_pool: set 0 has nothing in it");
  smx_context_destroy(nan), smx_context_destroy(error);
}

static void parsed_graphs(void **state) {
  pooling p = begin("graph_parse");
  GIVE_ROWS(&p, 0, 4, 1, 2, 4, 8), GIVE_ROWS(&p, 1, 2, 0, 1, 2, 1, 2, 3, 1, 2, 3, 0, 1, 2);
  GIVE(&p, 2, .9, .2, .8, .9, .2, .8), UPSTREAM(&p, 0, 1, 10), UPSTREAM(&p, 1, 100, 0);
  RUN(p), NEAR(p.out[0].x, 2 * .9 * 3, 2 * .8 * 12, 0, 0), NEAR(p.out[1].x, .9, .8, 0, 0);
  WHOLE(p.out[2].whole, 0, 0, 1, 1), WHOLE(p.out[3].whole, 0, 1, -1, -1, -1, -1, 1, 0, -1, -1, -1, -1);
  WHOLE(p.out[4].whole, 2, 2, 0, 0), assert_int_equal(p.out[5].whole[0], 2);
  NEAR(p.in[0].d, 1.8, 1.8, 16, 16), NEAR(p.in[2].d, 53, 0, 120, 53, 0, 120);
  set(&p, "scale", "no"), RUN(p), NEAR(p.out[0].x, 3, 12, 0, 0), NEAR(p.in[2].d, 50, 0, 0, 50, 0, 0);
  GIVE(&p, 2, .9, .8, .7, .9, .8, .7), RUN(p), assert_int_equal(p.out[5].whole[0], 1);
  NEAR(p.out[0].x, 15), WHOLE(p.out[4].whole, 6), assert_int_equal(p.out[6].whole[0], 0);
  GIVE(&p, 2, .5, .5, .5, .5, .5, .5), RUN(p); /* the first of equal edges: 1 goes to 2, 2 to 3 */
  assert_int_equal(p.out[5].whole[0], 1);
  GIVE(&p, 3, 1, 1, 0, 1), RUN(p), WHOLE(p.out[2].whole, 0, 0, -1, 1), NEAR(p.out[0].x, 3, 8, 0, 0);
  NEAR(p.out[1].x, .5, 1), WHOLE(p.out[4].whole, 2, 1, 0, 0);
  GIVE(&p, 2, .5, NAN, .5, .5, .5, .5), RUN(p), WHOLE(p.out[2].whole, 0, 0, -1, 1); /* of a masked node */
  GIVE(&p, 2, NAN, 0, 0, 0, 0, 0), RUN(p), WHOLE(p.out[2].whole, -1, -1, -1, -1);
  assert_true(isnan(p.out[0].x[3]) && isnan(p.out[1].x[0]) && p.out[5].whole[0] == 0);
  NEAR(p.in[0].d, 0, 0, 0, 0), NEAR(p.in[2].d, 0, 0, 0, 0, 0, 0);
}

/* ---- neurons ---- */

static void neurons(void **state) {
  pooling p = begin("softhebb");
  const double step[] = {sqrt(1 - sqrt(.26)), sqrt(1 - sqrt(.2)), sqrt(1 - sqrt(.1))};
  GIVE_ROWS(&p, 0, 1, 1, 2), GIVE_ROWS(&p, 1, 3, .5, .1, .2, .4, -.1, .3);
  set(&p, "normalise", "no"), set(&p, "rate", "1"), RUN(p);
  NEAR(p.out[1].x, -.205139, -.609104, .34081, .68162, -.271309, -.478021);
  NEAR(p.out[2].x, .315598, .426013, .25839);
  NEAR(p.out[0].x, .5 - step[0] * .205139, .1 - step[0] * .609104, .2 + step[1] * .34081);
  set(&p, "normalise", "yes"), set(&p, "rate_power", "0"), RUN(p);
  NEAR(p.out[1].x, -.205139 / .68162, -.609104 / .68162, .5, 1), NEAR(p.out[0].x, .5 - .205139 / .68162);
  set(&p, "rule", "plain"), set(&p, "normalise", "no"), RUN(p);
  NEAR(p.out[1].x, .205139, .609104, .34081, .68162, .271309, .478021);
  set(&p, "beta", "1e30"), RUN(p), NEAR(p.out[2].x, 0, 1, 0); /* the winner takes all */
  GIVE_ROWS(&p, 0, 1, 0, 0), set(&p, "normalise", "yes"), RUN(p), NEAR(p.out[1].x, 0, 0, 0);
  NEAR(p.out[0].x, .5, .1, .2, .4, -.1, .3), NEAR(p.out[2].x, 1. / 3, 1. / 3, 1. / 3);
  set(&p, "rule", "anti"), GIVE_ROWS(&p, 0, 2, 1, 2, NAN, 1), RUN(p);
  assert_true(isnan(p.out[0].x[0]) && isnan(p.out[2].x[3]) && p.out[2].x[0] == 0);
  p = begin("softhebb"); /* a length that overflows when it is squared */
  GIVE_ROWS(&p, 0, 1, 0, 0), GIVE_ROWS(&p, 1, 1, 3e200, 4e200), RUN(p), assert_true(p.out[0].x[0] == 3e200);
}

/* Steps on rows of one direction: the winner's length goes to 1, and it points there. */
static void lengths_go_to_one(void **state) {
  pooling p = begin("softhebb");
  set(&p, "normalise", "no"), set(&p, "rate", "0.2"), set(&p, "beta", "8"), set(&p, "rate_power", "0");
  GIVE_ROWS(&p, 0, 1, .6, .8), GIVE_ROWS(&p, 1, 2, .3, .1, -.2, .1);
  for (int i = 0; i < 400; i++) RUN(p), memcpy(p.in[1].x, p.out[0].x, 4 * sizeof(double));
  assert_true(fabs(p.in[1].x[0] - .6) < 1e-3 && fabs(p.in[1].x[1] - .8) < 1e-3);
}

static void triangles(void **state) {
  pooling p = begin("triangle");
  GIVE_ROWS(&p, 0, 2, 1, 2, 6, 0, 0, 0), UPSTREAM(&p, 0, 1, 10, 100, 1, 1, 1);
  RUN(p), NEAR(p.out[0].x, 0, 0, 3, 0, 0, 0), NEAR(p.in[0].d, -100. / 3, -100. / 3, 200. / 3, 0, 0, 0);
  set(&p, "power", "2"), RUN(p), NEAR(p.out[0].x, 0, 0, 9), NEAR(p.in[0].d, -200, -200, 400);
  set(&p, "power", "0.5"), RUN(p), NEAR(p.out[0].x, 0, 0, sqrt(3), 0, 0, 0);
  GIVE_ROWS(&p, 0, 2, 1, NAN, 6, 1, -INFINITY, 2), RUN(p);
  for (int i = 0; i < 6; i++) assert_true(isnan(p.out[0].x[i]) && isnan(p.in[0].d[i]));
  set(&p, "power", "1"), GIVE_ROWS(&p, 0, 1, 0x1p1023, 0x1p1023, -0x1p1023, -0x1p1023), RUN(p);
  assert_true(p.out[0].x[1] == 0x1p1023 && p.out[0].x[2] == 0);
}

/* ---- products ---- */

static void sketches(void **state) {
  pooling p = begin("compact_bilinear_pool");
  set(&p, "size", "4");
  GIVE(&p, 0, 1, 2, 3), GIVE(&p, 1, .5, -1), GIVE(&p, 2, 0, 2, 1), GIVE(&p, 3, 1, -1, 1);
  GIVE(&p, 4, 1, 1), GIVE(&p, 5, 1, -1), UPSTREAM(&p, 0, 1, 10, 100, 1000), RUN(p);
  NEAR(p.out[0].x, 0, 1.5, 4.5, -3), NEAR(p.in[0].d, 15, -1500, 150), NEAR(p.in[1].d, -1690, 1690);
  set(&p, "normalise", "root"), RUN(p);
  NEAR(p.out[0].x, 0, sqrt(1.5 / 9), sqrt(.5), -sqrt(1. / 3));
  GIVE(&p, 0, 3e307, 6e307, 9e307), RUN(p); /* the sum of sizes is no double */
  NEAR(p.out[0].x, 0, sqrt(1.5 / 9), sqrt(.5), -sqrt(1. / 3));
  GIVE(&p, 0, 1, 2, 3), RUN(p); /* that of a times x is the same root, and the gradient over a */
  double slope[3];
  memcpy(slope, p.in[0].d, sizeof slope);
  for (double a = 1e153; a > 1e-200; a *= 1e-51) {
    GIVE(&p, 0, a, 2 * a, 3 * a), GIVE(&p, 1, .5 * a, -a), RUN(p);
    NEAR(p.out[0].x, 0, sqrt(1.5 / 9), sqrt(.5), -sqrt(1. / 3));
    for (int i = 0; i < 3; i++) assert_true(fabs(p.in[0].d[i] * a - slope[i]) < 1e-9 * fabs(slope[0]));
  }
  GIVE(&p, 0, 0, 0, 0), RUN(p), NEAR(p.out[0].x, 0, 0, 0, 0), NEAR(p.in[0].d, 0, 0, 0);
  p = begin("compact_bilinear_pool"); /* x is the other too: both of its gradients */
  set(&p, "size", "4");
  GIVE(&p, 0, 1, 2), GIVE(&p, 2, 0, 3), GIVE(&p, 3, 1, -1), GIVE(&p, 4, 2, 3), GIVE(&p, 5, 1, 1);
  UPSTREAM(&p, 0, 1, 10, 100, 1000), RUN(p);
  NEAR(p.out[0].x, 0, -2, -3, 2) /* x0 x0 at 2, x0 x1 at 3, -x1 x0 at 1, -x1 x1 at 2 */;
  NEAR(p.in[0].d, 2 * 100 + 2 * 1000 - 2 * 10, 1000 - 10 - 4 * 100);
  GIVE(&p, 4, 2, 3, 1), p.in[5].given = false;
  refused(&p, NULL, SMX_ERR_SHAPE,
          "compact_bilinear_pool: tables are of 3 elements, and x, which is other too, has 2");
  GIVE(&p, 4, 2, 4), refused(&p, NULL, SMX_ERR_TARGET, "hash_other: number 1 is 4, not 0..3");
}

/* Their products are those of the vectors on average: 400 seeds, within 5 standard errors. */
static void sketches_on_average(void **state) {
  const double x[] = {1, -2, .5, 3}, z[] = {2, 1, -1}, v[] = {.5, -1, 2, 1}, w[] = {1, 2, .5};
  double xv = 0, zw = 0, sum = 0, squares = 0;
  for (int i = 0; i < 4; i++) xv += x[i] * v[i];
  for (int i = 0; i < 3; i++) zw += z[i] * w[i];
  for (int seed = 0; seed < 400; seed++) {
    char number[16];
    double product = 0;
    snprintf(number, sizeof number, "%d", seed);
    pooling p = begin("compact_bilinear_pool"), q = p;
    set(&p, "size", "32"), set(&p, "seed", number), set(&q, "size", "32"), set(&q, "seed", number);
    give(&p, 0, 0, 4, x), give(&p, 1, 0, 3, z), RUN(p);
    give(&q, 0, 0, 4, v), give(&q, 1, 0, 3, w), RUN(q);
    for (int k = 0; k < 32; k++) product += p.out[0].x[k] * q.out[0].x[k];
    sum += product, squares += product * product;
  }
  const double mean = sum / 400, error = sqrt((squares / 400 - mean * mean) / 400);
  assert_true(fabs(mean - xv * zw) < 5 * error && error < 0.1 * fabs(xv * zw) + 1);
}

/* Two ranks, two outputs; with biases; no rank. */
static void low_ranks(void **state) {
  pooling p = begin("lowrank_bilinear");
  GIVE(&p, 0, 1, 2), GIVE(&p, 1, 3);
  GIVE_ROWS(&p, 2, 4, 1, 0, 0, 1, 1, 1, 2, -1), GIVE_ROWS(&p, 3, 4, 1, 2, 3, 4);
  for (int i = 2; i < 4; i++) p.in[i].shape = (smx_shape){.ndim = 3, .dim = {2, 2, i == 2 ? 2 : 1}};
  UPSTREAM(&p, 0, 1, 10), RUN(p); /* u = 1 2 | 3 0, v = 3 6 | 9 12 */
  NEAR(p.out[0].x, 1 * 3 + 3 * 9, 2 * 6), NEAR(p.in[0].d, 3 + 9 + 240, 60 + 9 - 120);
  NEAR(p.in[1].d, 1 + 20 * 2 + 3 * 3), NEAR(p.in[2].d, 3, 6, 60, 120, 9, 18, 120, 240);
  NEAR(p.in[3].d, 3, 60, 9, 0);
  GIVE_ROWS(&p, 4, 2, 1, 1, 1, 1), RUN(p), NEAR(p.out[0].x, 2 * 3 + 4 * 9, 3 * 6 + 12);
  NEAR(p.in[4].d, 3, 60, 9, 120);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(means_and_medoids),
      cmocka_unit_test(unions),
      cmocka_unit_test(unions_of_length_one),
      cmocka_unit_test(tokens_at_their_edges),
      cmocka_unit_test(numbers_that_overflow),
      cmocka_unit_test(equal_tokens),
      cmocka_unit_test(nodes_that_stay),
      cmocka_unit_test(parts_of_graphs),
      cmocka_unit_test(graphs_at_their_edges),
      cmocka_unit_test(parsed_graphs),
      cmocka_unit_test(neurons),
      cmocka_unit_test(lengths_go_to_one),
      cmocka_unit_test(triangles),
      cmocka_unit_test(sketches),
      cmocka_unit_test(sketches_on_average),
      cmocka_unit_test(low_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
