/* attention_rows.c - proves attention by operators on rows: known answers, every operator that fits
 * against scores, operator and product one by one, gradients against differences, and that bits
 * depend on neither instruction set, threads nor the order of the axes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "cpu/cpu.h"
#include "unit.h"

static void known_answers(void **state) {
  static const struct {
    const char *op;
    double o[2];
  } answers[] = {{"softmax", {0.657204095482, 0.511817832575}},
                 {"entmax15", {0.648920936541, 0.408183746163}},
                 {"sparsemax", {0.676776695297, 0.323223304703}}};
  for (size_t i = 0; i < COUNT_OF(answers); i++) {
    double q[] = {1, 0.5}, k[] = {1, 0, 0, 1, -1, 1}, v[] = {1, 0, 0, 1, 1, 1}, o[2];
    int64_t qs[] = {1, 1, 1, 2}, ks[] = {1, 1, 3, 2};
    smx_tensor tq = {.data = q, .ndim = 4, .dtype = SMX_F64, .shape = qs},
               tk = {.data = k, .ndim = 4, .dtype = SMX_F64, .shape = ks};
    smx_tensor tv = tk, to = tq;
    tv.data = v, to.data = o;
    tq.device.device_type = tk.device.device_type = tv.device.device_type = to.device.device_type = 1;
    int status = smx_attention_rows(NULL, NULL, smx_op_find(answers[i].op), NULL, &tq, &tk, &tv, &to);
    if (status) fail_msg("%s", smx_last_error());
    if (!(fabs(o[0] - answers[i].o[0]) < 1e-11 && fabs(o[1] - answers[i].o[1]) < 1e-11))
      fail_msg("%s: %.12f %.12f", answers[i].op, o[0], o[1]);
  }
}

static acase new_case(int which) {
  static const int64_t shapes[][7] = {{1, 2, 1, 4, 6, 3, 2}, {2, 2, 2, 3, 5, 2, 3}, {1, 4, 2, 5, 7, 5, 4}};
  const int64_t *n = shapes[which % 3];
  acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
  a.options.causal = which & 1;
  if (which & 2) a.options.window_left = 3;
  a.with_mask = which % 3 == 1, a.with_bias = which % 4 == 2, a.with_slopes = which % 5 == 3;
  if (which % 4 == 3) a.options.softcap = 2;
  if (which % 5 == 1) a.options.dropout = 0.3, a.options.seed = 5;
  return a;
}

typedef struct grads {
  double *d_o;
  unsigned char *o, *d[3];
  size_t o_bytes, bytes[3];
} grads;

/* Forward, and backward where there is d_o. Returns the status of the forward call. */
static int run(const acase *a, const smx_op *op, smx_context *ctx, int order, grads *g) {
  const int64_t q[] = {a->batch, a->heads, a->lq, a->d}, k[] = {a->batch, a->kv_heads, a->lk, a->d};
  const int64_t v[] = {a->batch, a->kv_heads, a->lk, a->e}, o[] = {a->batch, a->heads, a->lq, a->e};
  const int64_t *shapes[] = {q, k, v};
  placed_case in;
  placed po, pdo, d[3];
  acase_place(a, order, &in);
  place(&po, 3, order, a->dtype, 4, o, NULL);
  int status = smx_attention_rows(ctx, &in.options, op, NULL, &in.q.t, &in.k.t, &in.v.t, &po.t);
  if (status) return status;
  g->o_bytes = (size_t)(o[0] * o[1] * o[2] * o[3]) * dtype_size(a->dtype);
  free(g->o);
  g->o = malloc(g->o_bytes);
  fetch(&po, g->o);
  if (!g->d_o) return 0;
  place(&pdo, 9, order, a->dtype, 4, o, g->d_o);
  for (int i = 0; i < 3; i++) place(d + i, 10 + i, order, a->dtype, 4, shapes[i], NULL);
  if (smx_attention_rows_backward(ctx, &in.options, op, NULL, &in.q.t, &in.k.t, &in.v.t, &pdo.t, &d[0].t,
                                  &d[1].t, &d[2].t))
    fail_msg("%s: %s", op->name, smx_last_error());
  for (int i = 0; i < 3; i++) {
    g->bytes[i] = (size_t)(shapes[i][0] * shapes[i][1] * shapes[i][2] * shapes[i][3]) * dtype_size(a->dtype);
    free(g->d[i]);
    g->d[i] = malloc(g->bytes[i]);
    fetch(d + i, g->d[i]);
  }
  return 0;
}

static void upstream(const acase *a, grads *g) {
  int64_t n = a->batch * a->heads * a->lq * a->e;
  *g = (grads){.d_o = malloc((size_t)n * sizeof(double))};
  for (int64_t i = 0; i < n; i++) g->d_o[i] = dtype_round(a->dtype, sin(1.7 * (double)i));
}
static void free_all(grads *g) {
  free(g->d_o), free(g->o);
  for (int i = 0; i < 3; i++) free(g->d[i]);
}

static double loss(const acase *a, const smx_op *op, const double *d_o) {
  grads g = {0};
  double sum = 0;
  assert_int_equal(run(a, op, NULL, ORDER_BHLD, &g), SMX_OK);
  for (size_t i = 0; i < g.o_bytes / 8; i++) sum += d_o[i] * result_at(SMX_F64, g.o, (int64_t)i);
  free(g.o);
  return sum;
}

static void gradients_are_differences(void **state) {
  static const char *const ops[] = {
      "softmax",           "stablemax",  "entmax15", "entmax", "softpick", "scaled_masked_softmax",
      "sigmoid_attention", "softplus_l1"};
  double worst = 0;
  for (int which = 0; which < 24; which++) {
    const smx_op *op = smx_op_find(ops[(size_t)which % COUNT_OF(ops)]);
    acase a = new_case(which);
    grads g;
    assert_non_null(op);
    a.dtype = SMX_F64;
    acase_fill(&a, (uint64_t)which, 1);
    upstream(&a, &g);
    if (run(&a, op, NULL, which % ORDERS, &g)) fail_msg("%s", smx_last_error());
    double *value[] = {a.q, a.k, a.v};
    for (int i = 0; i < 3; i++)
      for (size_t x = 0; x < g.bytes[i] / 8; x++) {
        double h = 0x1p-18, at = value[i][x], got = result_at(SMX_F64, g.d[i], (int64_t)x);
        value[i][x] = at + h;
        double up = loss(&a, op, g.d_o);
        value[i][x] = at - h;
        double want = (up - loss(&a, op, g.d_o)) / (2 * h), e = fabs(got - want) / fmax(1, fabs(want));
        value[i][x] = at;
        if (!(e < 1e-5))
          fail_msg("%s, case %d: d%c[%d] is %.9g, differences say %.9g", op->name, which, "qkv"[i], (int)x,
                   got, want);
        worst = fmax(worst, e);
      }
    free_all(&g);
    acase_free(&a);
  }
  printf("worst error %.2g\n", worst);
}

static void every_operator_that_fits(void **state) {
  int fits = 0;
  for (size_t i = 0; i < smx_op_count(); i++) {
    const smx_op *op = smx_op_at(i);
    acase a = new_case((int)i);
    grads g = {0};
    const int named = op->inputs[0].shape == SMX_SHAPE_DIMS;
    if (strcmp(op->family, "row") && !named) continue;
    acase_fill(&a, i, 1);
    if (op->flags & SMX_OP_BACKWARD) upstream(&a, &g);
    int status = run(&a, op, NULL, (int)i % ORDERS, &g);
    if (status && status != SMX_ERR_PARAM && status != SMX_ERR_NULL)
      fail_msg("%s: %s", op->name, smx_last_error());
    if (status) printf("%s: %s\n", op->name, smx_last_error());
    if (named) assert_int_equal(status, SMX_ERR_PARAM);
    fits += !status;
    for (size_t x = 0; !status && x < g.o_bytes / 4; x++)
      if (!isfinite(result_at(SMX_F32, g.o, (int64_t)x)))
        fail_msg("%s: o[%d] is not finite", op->name, (int)x);
    free_all(&g);
    acase_free(&a);
  }
  printf("%d operators on rows\n", fits);
  assert_true(fits >= 20);
}

static void bits_do_not_depend_on_how(void **state) {
  static const char *const ops[] = {"entmax15", "sparsemax", "softpick", "entmax"};
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int which = 0; which < 6; which++) {
    const smx_op *op = smx_op_find(ops[(size_t)which % COUNT_OF(ops)]);
    acase a = acase_new(1, 2, 1, 300, 150, 16, 24);
    grads want, got;
    a.dtype = float_dtypes[which % FLOAT_DTYPES];
    a.options.causal = which & 1, a.options.softcap = which == 2 ? 3 : 0;
    acase_fill(&a, (uint64_t)which, 1);
    upstream(&a, &want), upstream(&a, &got);
    assert_int_equal(run(&a, op, NULL, ORDER_BHLD, &want), SMX_OK);
    for (int i = 0; i < smx_isa_count() + 2; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      assert_int_equal(run(&a, op, i % 2 ? seven : NULL, i % ORDERS, &got), SMX_OK);
      smx_isa_set(fastest);
      if (memcmp(want.o, got.o, want.o_bytes)) fail_msg("%s, way %d: o differs", op->name, i);
      for (int x = 0; x < 3; x++)
        if (memcmp(want.d[x], got.d[x], want.bytes[x]))
          fail_msg("%s, way %d: d%c differs", op->name, i, "qkv"[x]);
    }
    free_all(&want), free_all(&got);
    acase_free(&a);
  }
  smx_context_destroy(seven);
}

static void bad_input(void **state) {
  acase a = new_case(0);
  placed_case in;
  acase_fill(&a, 1, 1);
  acase_place(&a, ORDER_BHLD, &in);
  assert_int_equal(smx_attention_rows(NULL, NULL, NULL, NULL, &in.q.t, &in.k.t, &in.v.t, &in.q.t),
                   SMX_ERR_NULL);
  assert_int_equal(
      smx_attention_rows(NULL, NULL, smx_op_find("logsumexp"), NULL, &in.q.t, &in.k.t, &in.v.t, &in.q.t),
      SMX_ERR_PARAM);
  assert_non_null(strstr(smx_last_error(), "op is logsumexp, which does not make a row of weights"));
  in.options.weights = SMX_ATTENTION_RELU;
  assert_int_equal(
      smx_attention_rows(NULL, &in.options, smx_op_find("softmax"), NULL, &in.q.t, &in.k.t, &in.v.t, &in.q.t),
      SMX_ERR_PARAM);
  assert_non_null(strstr(smx_last_error(), "options.weights is not possible beside op"));
  acase_free(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(every_operator_that_fits),
      cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
