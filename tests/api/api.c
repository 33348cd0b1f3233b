/* api.c - proves that a wrong call gives the right status, a message that names the argument and
 * the value, and writes nothing; and that smx_infer, the parameters and the operator table are
 * consistent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "util.h"

enum { ROWS = 2, N = 3, CANARY = 0x5a };

/* A call that is right until somebody changes it: x, optional inputs, y, dy and dx, all f32 and
 * 2 x 3. */
typedef struct tensor {
  smx_tensor t;
  int64_t shape[SMX_MAX_DIMS + 1], strides[SMX_MAX_DIMS + 1];
  float data[64];
} tensor;

typedef struct call {
  const smx_op *op;
  smx_context *ctx;
  smx_params params, *params_used;
  tensor x, aux, y, dy, dx;
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
  int32_t n_in, n_out;
  int backward;
} call;

static void make_tensor(tensor *t, int canary) {
  t->shape[0] = ROWS, t->shape[1] = N, t->strides[0] = N, t->strides[1] = 1;
  t->t = (smx_tensor){.data = t->data, .device = {1, 0}, .ndim = 2, .dtype = SMX_F32, .shape = t->shape};
  for (size_t i = 0; i < COUNT_OF(t->data); i++) t->data[i] = (float)(i % 5);
  if (canary) memset(t->data, CANARY, sizeof t->data);
}

static void make_call(call *c, const char *name) {
  memset(c, 0, sizeof *c);
  c->op = smx_op_find(name);
  c->params_used = &c->params;
  smx_params_init(c->op, &c->params);
  make_tensor(&c->x, 0), make_tensor(&c->aux, 0), make_tensor(&c->y, 1), make_tensor(&c->dy, 0),
      make_tensor(&c->dx, 1);
  c->in[0] = &c->x.t, c->out[0] = &c->y.t, c->dout[0] = &c->dy.t, c->din[0] = &c->dx.t;
  c->n_in = c->n_out = 1;
}

static smx_status run(call *c) {
  if (!c->backward) return smx_forward(c->op, c->ctx, c->params_used, c->n_in, c->in, c->n_out, c->out);
  memcpy(c->y.data, c->x.data, sizeof c->y.data);
  return smx_backward(c->op, c->ctx, c->params_used, c->n_in, c->in, c->n_out, c->out, c->dout, c->din);
}

#define CHANGE(name) static void name(call *c)
CHANGE(nothing) {}
CHANGE(backward) { c->backward = 1; }
CHANGE(no_op) { c->op = NULL; }
CHANGE(no_x) { c->in[0] = NULL; }
CHANGE(no_inputs) { c->n_in = 0; }
CHANGE(no_y) { c->out[0] = NULL; }
CHANGE(no_outputs) { c->n_out = 0; }
CHANGE(too_many_inputs) { c->n_in = 7; }
CHANGE(too_many_outputs) { c->n_out = 5; }
CHANGE(no_x_data) { c->x.t.data = NULL; }
CHANGE(no_y_data) { c->y.t.data = NULL; }
CHANGE(no_x_shape) { c->x.t.shape = NULL; }
CHANGE(negative_shape) { c->x.shape[1] = -3; }
CHANGE(negative_ndim) { c->x.t.ndim = -2; }
CHANGE(many_dims) { c->x.t.ndim = 9; }
CHANGE(no_dims) { c->x.t.ndim = 0; }
CHANGE(huge_shape) {
  c->x.shape[0] = c->x.shape[1] = c->y.shape[0] = c->y.shape[1] = INT64_C(4611686018427387904);
}
CHANGE(huge_stride) { c->x.t.strides = c->x.strides, c->x.strides[0] = INT64_C(4611686018427387904); }
CHANGE(wrong_y_shape) { c->y.shape[1] = 4; }
CHANGE(wrong_y_ndim) { c->y.t.ndim = 1; }
CHANGE(axis_2) { c->params.axis = 2; }
CHANGE(axis_minus_3) { c->params.axis = -3; }
CHANGE(x_i32) { c->x.t.dtype = SMX_I32; }
CHANGE(y_bool) { c->y.t.dtype = SMX_BOOL; }
CHANGE(x_lanes) { c->x.t.dtype.lanes = 2; }
CHANGE(x_f8) { c->x.t.dtype.bits = 8; }
CHANGE(y_over_x) { c->y.t.data = c->x.data + 1; }
CHANGE(y_step_0) { c->y.t.strides = c->y.strides, c->y.strides[0] = 0; }
CHANGE(y_steps_overlap) { c->y.t.strides = c->y.strides, c->y.strides[0] = 2; }
CHANGE(x_in_place_otherwise) {
  c->y.t.data = c->x.data, c->y.t.strides = c->y.strides, c->y.strides[0] = 1, c->y.strides[1] = ROWS;
}
CHANGE(x_on_gpu) { c->x.t.device.device_type = 2; }
CHANGE(y_on_gpu) { c->y.t.device.device_type = 2; }
CHANGE(params_unsized) { c->params.size = 0; }
CHANGE(params_larger) { c->params.size += 8; }
CHANGE(temperature_below_0) { c->params.value[0] = -1; }
CHANGE(temperature_nan) { c->params.value[0] = NAN; }
CHANGE(base_0) { c->params.value[1] = 0; }
CHANGE(k_0) { c->params.value[0] = 0; }
CHANGE(k_half) { c->params.value[0] = 2.5; }
CHANGE(k_beyond_n) { c->params.value[0] = 4; }
CHANGE(omega_0) { c->params.value[0] = 0; }
CHANGE(no_params_no_mask) { c->params_used = NULL, c->n_in = 1; }
CHANGE(mask_f32) { c->n_in = 2, c->in[1] = &c->aux.t; }
CHANGE(mask_shape) { mask_f32(c), c->aux.t.dtype = SMX_U8, c->aux.shape[1] = 2; }
CHANGE(mask_ndim) { mask_f32(c), c->aux.t.dtype = SMX_U8, c->aux.t.ndim = 3, c->aux.shape[2] = N; }
CHANGE(mask_over_y) { mask_f32(c), c->aux.t.dtype = SMX_U8, c->aux.t.data = c->y.data; }
CHANGE(temperature_shape) { c->n_in = 2, c->in[1] = &c->aux.t, c->aux.t.ndim = 1, c->aux.shape[0] = 5; }
static void offsets_are(call *c, int64_t a, int64_t b, int64_t last) {
  int64_t o[] = {a, b, last};
  memcpy(c->aux.data, o, sizeof o);
  c->n_in = 2, c->in[1] = &c->aux.t, c->aux.t.dtype = SMX_I64, c->aux.t.ndim = 1, c->aux.shape[0] = 3;
}
CHANGE(offsets_fine) { offsets_are(c, 0, 1, 3); }
CHANGE(offsets_start) { offsets_are(c, 1, 1, 3); }
CHANGE(offsets_end) { offsets_are(c, 0, 1, 4); }
CHANGE(offsets_fall) { offsets_are(c, 0, 4, 3); }
CHANGE(offsets_f32) { offsets_fine(c), c->aux.t.dtype = SMX_F32; }
CHANGE(offsets_empty) { offsets_fine(c), c->aux.shape[0] = 0; }
CHANGE(no_dy) { backward(c), c->dout[0] = NULL; }
CHANGE(no_saved_y) { backward(c), c->out[0] = NULL; }
CHANGE(dx_shape) { backward(c), c->dx.shape[0] = 3; }
CHANGE(dx_i32) { backward(c), c->dx.t.dtype = SMX_I32; }
CHANGE(dx_over_dy) { backward(c), c->dx.t.data = c->dy.data + 1; }
CHANGE(mask_gradient) { backward(c), mask_f32(c), c->aux.t.dtype = SMX_U8, c->din[1] = &c->aux.t; }

static const struct {
  const char *op;
  void (*change)(call *c);
  smx_status status;
  const char *words[3]; /* all in the message */
} cases[] = {
    {"softmax", nothing, SMX_OK, {NULL}},
    {"softmax", backward, SMX_OK, {NULL}},
    {"softmax", no_op, SMX_ERR_NULL, {"op", NULL}},
    {"softmax", no_x, SMX_ERR_NULL, {"softmax", "x", NULL}},
    {"softmax", no_inputs, SMX_ERR_NULL, {"softmax", "x", NULL}},
    {"softmax", no_y, SMX_ERR_NULL, {"softmax", "y", NULL}},
    {"softmax", no_outputs, SMX_ERR_NULL, {"softmax", "y", NULL}},
    {"softmax", too_many_inputs, SMX_ERR_SHAPE, {"softmax", "7", NULL}},
    {"softmax", too_many_outputs, SMX_ERR_SHAPE, {"softmax", "5", NULL}},
    {"softmax", no_x_data, SMX_ERR_NULL, {"x", "data", NULL}},
    {"softmax", no_y_data, SMX_ERR_NULL, {"y", "data", NULL}},
    {"softmax", no_x_shape, SMX_ERR_NULL, {"x", "shape", NULL}},
    {"softmax", negative_shape, SMX_ERR_SHAPE, {"x", "shape[1]", "-3"}},
    {"softmax", negative_ndim, SMX_ERR_SHAPE, {"x", "-2", NULL}},
    {"softmax", many_dims, SMX_ERR_SHAPE, {"x", "9", NULL}},
    {"softmax", no_dims, SMX_ERR_SHAPE, {"softmax", NULL}},
    {"softmax", huge_shape, SMX_ERR_SHAPE, {"x", NULL}},
    {"softmax", huge_stride, SMX_ERR_SHAPE, {"x", "4611686018427387904", NULL}},
    {"softmax", wrong_y_shape, SMX_ERR_SHAPE, {"y", "4", "3"}},
    {"softmax", wrong_y_ndim, SMX_ERR_SHAPE, {"y", "1", NULL}},
    {"softmax", axis_2, SMX_ERR_SHAPE, {"axis", "2", NULL}},
    {"softmax", axis_minus_3, SMX_ERR_SHAPE, {"axis", "-3", NULL}},
    {"softmax", x_i32, SMX_ERR_DTYPE, {"x", NULL}},
    {"softmax", y_bool, SMX_ERR_DTYPE, {"y", NULL}},
    {"softmax", x_lanes, SMX_ERR_DTYPE, {"x", "lanes", NULL}},
    {"softmax", x_f8, SMX_ERR_DTYPE, {"x", "8", NULL}},
    {"softmax", y_over_x, SMX_ERR_ALIAS, {"y", "x", NULL}},
    {"softmax", y_step_0, SMX_ERR_ALIAS, {"y", NULL}},
    {"softmax", y_steps_overlap, SMX_ERR_ALIAS, {"y", NULL}},
    {"softmax", x_in_place_otherwise, SMX_ERR_ALIAS, {"y", "x", NULL}},
    {"softmax", x_on_gpu, SMX_ERR_DEVICE, {"x", "2", NULL}},
    {"softmax", y_on_gpu, SMX_ERR_DEVICE, {"y", "2", NULL}},
    {"softmax", params_unsized, SMX_ERR_STRUCT, {"params", "0", NULL}},
    {"softmax", params_larger, SMX_ERR_STRUCT, {"params", NULL}},
    {"softmax", temperature_below_0, SMX_ERR_PARAM, {"temperature", "-1", NULL}},
    {"softmax", temperature_nan, SMX_ERR_PARAM, {"temperature", "nan", NULL}},
    {"softmax", base_0, SMX_ERR_PARAM, {"base", "0", NULL}},
    {"softmax", temperature_shape, SMX_ERR_SHAPE, {"temperature", "5", NULL}},
    {"sparse_softmax", k_0, SMX_ERR_PARAM, {"k", "0", NULL}},
    {"sparse_softmax", k_half, SMX_ERR_PARAM, {"k", "2.5", NULL}},
    {"sparse_softmax", k_beyond_n, SMX_ERR_PARAM, {"k", "4", "3"}},
    {"mellowmax", omega_0, SMX_ERR_PARAM, {"omega", "0", NULL}},
    {"masked_softmax", no_params_no_mask, SMX_ERR_NULL, {"mask", NULL}},
    {"masked_softmax", mask_f32, SMX_ERR_DTYPE, {"mask", NULL}},
    {"masked_softmax", mask_shape, SMX_ERR_SHAPE, {"mask", "2", NULL}},
    {"masked_softmax", mask_ndim, SMX_ERR_SHAPE, {"mask", "3", NULL}},
    {"masked_softmax", mask_over_y, SMX_ERR_ALIAS, {"y", "mask", NULL}},
    {"segment_softmax", offsets_fine, SMX_OK, {NULL}},
    {"segment_softmax", offsets_start, SMX_ERR_SHAPE, {"offsets", "1", NULL}},
    {"segment_softmax", offsets_end, SMX_ERR_SHAPE, {"offsets", "4", NULL}},
    {"segment_softmax", offsets_fall, SMX_ERR_SHAPE, {"offsets", "4", "3"}},
    {"segment_softmax", offsets_f32, SMX_ERR_DTYPE, {"offsets", NULL}},
    {"segment_softmax", offsets_empty, SMX_ERR_SHAPE, {"offsets", "0", NULL}},
    {"softmax", no_dy, SMX_ERR_NULL, {"y", NULL}},
    {"softmax", no_saved_y, SMX_ERR_NULL, {"y", NULL}},
    {"softmax", dx_shape, SMX_ERR_SHAPE, {"x", "3", NULL}},
    {"softmax", dx_i32, SMX_ERR_DTYPE, {"x", NULL}},
    {"softmax", dx_over_dy, SMX_ERR_ALIAS, {"x", "y", NULL}},
    {"masked_softmax", mask_gradient, SMX_ERR_NO_BACKWARD, {"mask", NULL}},
};

static int untouched(const tensor *t) {
  const unsigned char *p = (const unsigned char *)t->data;
  return p[0] == CANARY && !memcmp(p, p + 1, sizeof t->data - 1);
}

static void wrong_calls(void **state) {
  int bad = 0;
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    static call c;
    make_call(&c, cases[i].op);
    cases[i].change(&c);
    smx_status status = run(&c);
    int fine = status == cases[i].status;
    for (int w = 0; status && w < 3 && cases[i].words[w]; w++)
      fine = fine && strstr(smx_last_error(), cases[i].words[w]);
    if (status) fine = fine && (c.backward || untouched(&c.y)) && untouched(&c.dx);
    if (!fine)
      printf("case %d, %s: status %d, want %d; \"%s\" should have \"%s\"\n", (int)i, cases[i].op, status,
             cases[i].status, status ? smx_last_error() : "", cases[i].words[0] ? cases[i].words[0] : "");
    bad += !fine;
  }
  assert_int_equal(bad, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
