/* attention_rows_input.c - proves numbers of each row (alpha of entmax) and gradients of biases
 * where an operator on rows makes the weights: against differences, against parameters, sums where
 * a tensor is broadcast, and the same bits on every instruction set and number of threads. */
#include <stdio.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { B = 2, HQ = 4, HKV = 2, LQ = 3, LK = 5, D = 3, E = 2, ROWS = B * HQ * LQ, CASES = 8 };

/* Values and gradients of a call; the sizes of row and bias vary by case. */
typedef struct call {
  double q[ROWS * D], k[B * HKV * LK * D], v[B * HKV * LK * E], o[ROWS * E], d_o[ROWS * E];
  double row[ROWS], bias[ROWS * LK], slopes[HQ];
  double dq[ROWS * D], dk[B * HKV * LK * D], dv[B * HKV * LK * E], d_row[ROWS], d_bias[ROWS * LK],
      d_slopes[HQ];
  smx_tensor t[8], d[8]; /* q, k, v, o, row, bias, slopes, mask */
  unsigned char mask[LQ * LK];
  smx_attention_options options;
  const char *op;
  smx_context *ctx;
} call;
enum { TQ, TK, TV, TO, TROW, TBIAS, TSLOPES, TMASK };

static int64_t shapes[][4] = {
    {B, HQ, LQ, D}, {B, HKV, LK, D}, {B, HKV, LK, E}, {B, HQ, LQ, E}, {HQ, 1}, {LQ, LK}, {HQ}, {LQ, LK}};
static const int dims[] = {4, 4, 4, 4, 2, 2, 1, 2};

static int64_t elements(const smx_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

static void begin(call *c, int which) {
  rng r = {(uint64_t)which + 7};
  *c = (call){.op = which % 4 == 3 ? "sigmoid_attention" : "entmax"};
  double *const x[] = {c->q, c->k, c->v, c->o, c->row, c->bias, c->slopes}, *const d[] = {
                                                                                c->dq,      c->dk,
                                                                                c->dv,      c->d_o,
                                                                                c->d_row,   c->d_bias,
                                                                                c->d_slopes};
  const int64_t n[] = {ROWS * D, B * HKV * LK * D, B * HKV * LK * E, ROWS * E, ROWS, ROWS * LK, HQ};
  for (int i = 0; i < 7; i++) {
    for (int64_t k = 0; k < n[i]; k++) x[i][k] = rng_normal(&r);
    c->t[i] = F64(x[i], dims[i], shapes[i]), c->d[i] = F64(d[i], dims[i], shapes[i]);
  }
  for (int i = 0; i < ROWS * E; i++) c->d_o[i] = rng_normal(&r);
  for (int i = 0; i < ROWS; i++) c->row[i] = 1.1 + .8 * rng_uniform(&r);
  for (int i = 0; i < LQ * LK; i++) c->mask[i] = i % 4 != 1;
  if (which % 2) { /* of every row and pair */
    c->t[TROW].ndim = c->d[TROW].ndim = 3, c->t[TROW].shape = c->d[TROW].shape = shapes[TQ];
    static int64_t pairs[] = {B, HQ, LQ, LK};
    c->t[TBIAS].ndim = c->d[TBIAS].ndim = 4, c->t[TBIAS].shape = c->d[TBIAS].shape = pairs;
  }
  smx_attention_init(&c->options);
  c->options.causal = which % 3 == 1, c->options.softcap = which % 3 == 2 ? 2 : 0;
  if (which % 5 == 2) c->options.dropout = .3, c->options.seed = 9;
  c->t[TMASK] = tensor(c->mask, SMX_BOOL, 2, shapes[TMASK]);
}
/* The options point into the call, which has its place now. */
static void attach(call *c, int which) {
  c->options.bias = c->t + TBIAS, c->options.slopes = c->t + TSLOPES;
  c->options.mask = which % 4 == 2 ? c->t + TMASK : NULL;
}
static void forward(call *c, const smx_tensor *row, const smx_params *params) {
  good(smx_attention_rows_input(c->ctx, &c->options, smx_op_find(c->op), params, row, c->t, c->t + TK,
                                c->t + TV, c->t + TO));
}
static smx_status backward(call *c, const smx_tensor *row, const smx_tensor *d_bias,
                           const smx_tensor *d_slopes, const smx_tensor *d_row) {
  return smx_attention_rows_input_backward(c->ctx, &c->options, smx_op_find(c->op), NULL, row, c->t,
                                           c->t + TK, c->t + TV, c->d + TO, c->d, c->d + TK, c->d + TV,
                                           d_bias, d_slopes, d_row);
}
static double loss(call *c) {
  double sum = 0;
  forward(c, c->t + TROW, NULL);
  for (int i = 0; i < ROWS * E; i++) sum += c->o[i] * c->d_o[i];
  return sum;
}

static void gradients_are_differences(void **state) {
  double worst = 0;
  for (int which = 0; which < CASES; which++) {
    static call c;
    begin(&c, which), attach(&c, which);
    good(backward(&c, c.t + TROW, c.d + TBIAS, c.d + TSLOPES, c.d + TROW));
    for (int i = 0; i < 7; i++) {
      const int64_t n = i == TO ? 0 : elements(c.t + i);
      double *x = c.t[i].data, *d = c.d[i].data;
      for (int64_t k = 0; k < n; k++) {
        const double at = x[k], h = 0x1p-18;
        x[k] = at + h;
        const double up = loss(&c);
        x[k] = at - h;
        const double want = (up - loss(&c)) / (2 * h), error = fabs(d[k] - want) / fmax(1, fabs(want));
        x[k] = at;
        if (!(error < 1e-5))
          fail_msg("case %d: gradient %d[%d] is %.9g, not %.9g", which, i, (int)k, d[k], want);
        worst = fmax(worst, error);
      }
    }
  }
  printf("worst error %.2g\n", worst);
}

/* A number for all rows is the parameter, and without one the gradients are those that there were:
 * bit for bit. */
static void a_number_for_all_is_the_parameter(void **state) {
  static call c;
  static double o[ROWS * E], dq[ROWS * D];
  smx_params params;
  int64_t one[] = {1};
  double alpha = 1.375;
  begin(&c, 1), attach(&c, 1);
  smx_params_init(smx_op_find("entmax"), &params);
  smx_params_set(smx_op_find("entmax"), &params, "alpha", alpha);
  const smx_tensor row = F64(&alpha, 1, one);
  forward(&c, &row, NULL);
  memcpy(o, c.o, sizeof o);
  forward(&c, NULL, &params);
  assert_memory_equal(o, c.o, sizeof o);
  good(smx_attention_rows(NULL, &c.options, smx_op_find("entmax"), &params, c.t, c.t + TK, c.t + TV,
                          c.t + TO));
  assert_memory_equal(o, c.o, sizeof o);
  good(backward(&c, NULL, NULL, NULL, NULL));
  memcpy(dq, c.dq, sizeof dq), memset(c.dq, 0, sizeof dq);
  good(smx_attention_rows_backward(NULL, &c.options, smx_op_find("entmax"), NULL, c.t, c.t + TK, c.t + TV,
                                   c.d + TO, c.d, c.d + TK, c.d + TV));
  assert_memory_equal(dq, c.dq, sizeof dq);
}

static void the_same_bits(void **state) {
  static call want, got;
  begin(&want, 3), attach(&want, 3);
  good(backward(&want, want.t + TROW, want.d + TBIAS, want.d + TSLOPES, want.d + TROW));
  for (way w = {0}; next_way(&w);) {
    begin(&got, 3), attach(&got, 3);
    got.ctx = w.ctx;
    good(backward(&got, got.t + TROW, got.d + TBIAS, got.d + TSLOPES, got.d + TROW));
    assert_memory_equal(want.dq, got.dq,
                        sizeof want.dq + sizeof want.dk + sizeof want.dv + sizeof want.d_row +
                            sizeof want.d_bias + sizeof want.d_slopes);
  }
}

static void bad_input(void **state) {
  static call c;
  begin(&c, 0), attach(&c, 0);
  refused(backward(&c, NULL, NULL, NULL, c.d + TROW), SMX_ERR_NULL, "row is NULL: d_row needs it");
  refused(backward(&c, c.t + TK, NULL, NULL, NULL), SMX_ERR_SHAPE, "row");
  refused(backward(&c, c.t + TROW, c.d + TQ, NULL, NULL), SMX_ERR_SHAPE, "d_bias");
  c.op = "sparsemax";
  refused(backward(&c, c.t + TROW, NULL, NULL, NULL), SMX_ERR_PARAM, "op is sparsemax, which has no number");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(a_number_for_all_is_the_parameter),
      cmocka_unit_test(the_same_bits),
      cmocka_unit_test(bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
