/* far_pools.c - proves that pooling in double takes numbers at the ends of the range, where sums,
 * squares and areas are no doubles: what a power of two multiplies has the result of smaller
 * numbers; and sets without mass, by what the caller wants of them. */
#include <math.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { N = 8, C = 3, MOST = N * C };

typedef struct call {
  const smx_op *op;
  smx_params params;
  double in[4][MOST], out[3][MOST];
  int64_t index[N];
  int64_t shape[4][2];
  smx_tensor tin[4];
  int inputs;
} call;

/* settings: names and values, to a NULL; or NULL. */
static void open_call(call *k, const char *name, const char *const *settings) {
  memset(k, 0, sizeof *k);
  k->op = smx_op_find(name);
  assert_non_null(k->op);
  good(smx_params_init(k->op, &k->params));
  for (; settings && settings[0]; settings += 2)
    good(smx_params_parse(k->op, &k->params, settings[0], settings[1]));
}
static void give(call *k, int64_t rows, int64_t columns, const double *x, double unit) {
  const int i = k->inputs++;
  k->shape[i][0] = rows, k->shape[i][1] = columns;
  for (int64_t e = 0; e < rows * columns; e++) k->in[i][e] = unit * x[e];
  k->tin[i] = F64(k->in[i], rows == 1 ? 1 : 2, k->shape[i] + (rows == 1));
}
static smx_status run(call *k, smx_context *ctx) {
  const smx_tensor *in[4] = {k->tin, k->tin + 1, k->tin + 2, k->tin + 3}, *out[3];
  smx_tensor tout[3];
  smx_shape shapes[3];
  good(smx_infer(k->op, &k->params, k->inputs, in, k->op->output_count, shapes));
  for (int o = 0; o < k->op->output_count; o++) {
    tout[o] = F64(k->out[o], shapes[o].ndim, shapes[o].dim), out[o] = tout + o;
    if (k->op->outputs[o].flags & SMX_PORT_INT) tout[o].data = k->index, tout[o].dtype = SMX_I64;
  }
  return smx_forward(k->op, ctx, &k->params, k->inputs, in, k->op->output_count, out);
}

static const double some[MOST] = {3, -1, 2, 7, 5, -2, 1, 1, 4, -3, 6, 2, 5, 0, 1, 2, 8, 3, 4, -5, 6, 1, 2, 9};
static const double bits[N] = {0, 0, 1, 0, 0, 0, 1, 0};

/* Those that grow with their numbers, up to 9 times 2^1020. */
static void means_grow_with_their_numbers(void **state) {
  static const struct {
    const char *name, *settings[5];
    double within;
  } known[] = {
      {"gem_pool", {"power", "2", "least", "1e-300"}, 1e-12},
      {"gem_pool", {"power", "1", "least", "1e-300"}, 1e-12},
      {"gem_pool", {"power", "90", "least", "1e-300"}, 1e-11},
      {"gnp_pool", {"power", "1"}, 1e-12},
      {"gnp_pool", {"power", "3"}, 1e-12},
      {"segment_pool", {"segments", "2"}, 0},
      {"weighted_mean_pool", {NULL}, 1e-15},
      {"attsets_pool", {NULL}, 0},
  };
  static call one, far;
  for (size_t i = 0; i < COUNT_OF(known); i++) {
    for (int k = 0; k < 2; k++) {
      call *at = k ? &far : &one;
      open_call(at, known[i].name, known[i].settings);
      give(at, N, C, some, k ? 0x1p1020 : 1);
      if (!strcmp(known[i].name, "segment_pool")) give(at, 1, N, bits, 1);
      if (!strcmp(known[i].name, "attsets_pool")) {
        give(at, N, C, some, 0);
        at->tin[1].ndim = 3, at->shape[2][0] = N, at->shape[2][1] = 1, at->shape[3][0] = C;
        at->tin[1].shape = at->shape[2];
      }
      good(run(at, NULL));
    }
    for (int e = 0; e < C * (strcmp(known[i].name, "segment_pool") ? 1 : 3); e++) {
      const double is = far.out[0][e] * 0x1p-1020, should = one.out[0][e];
      if (!(fabs(is - should) <= known[i].within * fabs(should)))
        fail_msg("%s: %d is %.17g, not %.17g", known[i].name, e, is, should);
    }
  }
}

/* A layer norm forgets the size of its numbers; of equal ones it is 0. */
static void norms_forget_sizes(void **state) {
  static const double eye[C * C] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, zero[C * C];
  static const char *const eps[] = {"eps", "1e-15", NULL};
  static call one, far;
  for (int k = 0; k < 2; k++) {
    call *at = k ? &far : &one;
    open_call(at, "sim_pool", eps), give(at, N, C, some, k ? 0x1p1019 : 0x1p20);
    give(at, C, C, zero, 1), give(at, C, C, eye, 1), good(run(at, NULL));
  }
  near_all(far.out[0], one.out[0], C, 1e-12);
  assert_true(fabs(one.out[0][0]) > 0.01);
  double same[MOST];
  for (int i = 0; i < MOST; i++) same[i] = 1;
  open_call(&far, "sim_pool", NULL), give(&far, N, C, same, 0x1p1019);
  give(&far, C, C, zero, 1), give(&far, C, C, eye, 1), good(run(&far, NULL));
  near_all(far.out[0], zero, C, 0);
}

/* Numbers so far apart that none is near a centre but the one that is the mean. */
static void histograms_of_far_numbers(void **state) {
  const double x[] = {-1, 0, 1}, offset[] = {0, 3}, p = 1 / (1 + exp(-10));
  static call k;
  for (int i = 0; i < 2; i++) {
    open_call(&k, "soft_histogram", NULL);
    give(&k, 1, 3, x, i ? 0x1p1022 : 0x1p600), give(&k, 1, 2, offset, 1), good(run(&k, NULL));
    near_all(k.out[0], (double[]){(1 + p) / 3, (2 - p) / 3}, 2, 1e-14);
  }
}

/* Costs of +inf leave nothing to choose from. */
static void sets_without_mass(void **state) {
  const double cost[] = {INFINITY, INFINITY}, x[] = {1, 2};
  static call k;
  for (int policy = SMX_EMPTY_ZERO; policy <= SMX_EMPTY_ERROR; policy++) {
    const smx_context_options o = {.size = sizeof o, .on_empty = (smx_on_empty)policy};
    smx_context *ctx;
    good(smx_context_create(&o, &ctx));
    open_call(&k, "gsp_pool", NULL);
    give(&k, 1, 2, cost, 1), give(&k, 2, 1, x, 1);
    k.shape[0][0] = 1, k.tin[0].shape = k.shape[0], k.tin[0].ndim = 2;
    const smx_status status = run(&k, ctx);
    if (policy == SMX_EMPTY_ERROR) refused(status, SMX_ERR_EMPTY, "gsp_pool: set 0 has nothing in it");
    else good(status), assert_true(policy == SMX_EMPTY_NAN ? isnan(k.out[0][0]) : k.out[0][0] == 0);
    assert_true(k.out[1][0] == 0 && k.out[1][1] == 0);
    smx_context_destroy(ctx);
  }
}

/* A state has two parts. */
static void half_a_state(void **state) {
  const double x[] = {1, 2}, score[] = {0, 0}, level[] = {1};
  static call k;
  open_call(&k, "attention_pool_mil_update", NULL);
  give(&k, 2, 1, x, 1), give(&k, 1, 2, score, 1), give(&k, 1, 1, level, 1);
  k.tin[2].ndim = 0;
  smx_tensor y = F64(k.out[0], 1, (int64_t[]){1}), next = F64(k.out[1], 0, NULL),
             average = F64(k.out[2], 1, (int64_t[]){1});
  const smx_tensor *in[] = {k.tin, k.tin + 1, k.tin + 2, NULL, NULL}, *out[] = {&y, &next, &average};
  refused(smx_forward(k.op, NULL, &k.params, 5, in, 3, out), SMX_ERR_NULL,
          "average: is NULL, and level is not");
  double before[] = {3};
  const smx_tensor mean = F64(before, 1, (int64_t[]){1});
  in[2] = NULL, in[3] = &mean;
  refused(smx_forward(k.op, NULL, &k.params, 5, in, 3, out), SMX_ERR_NULL,
          "level: is NULL, and average is not");
  in[3] = NULL;
  good(smx_forward(k.op, NULL, &k.params, 5, in, 3, out));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(means_grow_with_their_numbers),
      cmocka_unit_test(norms_forget_sizes),
      cmocka_unit_test(histograms_of_far_numbers),
      cmocka_unit_test(sets_without_mass),
      cmocka_unit_test(half_a_state),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
