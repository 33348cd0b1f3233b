/* api_rest.c - proves that the plain functions, contexts, parameters, smx_infer and the operator
 * table behave as the header says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "util.h"

static void plain_functions(void **state) {
  float x[8] = {1, 2, 3, 4, 1, 2, 3, 4}, y[8] = {0};
  double d[2] = {1, 1};
  uint16_t h[2] = {0, 0};
  refused(smx_softmax_f32(1, 3, NULL, y), SMX_ERR_NULL, "x");
  refused(smx_softmax_f32(1, 3, x, NULL), SMX_ERR_NULL, "y");
  refused(smx_softmax_f32(SIZE_MAX / 2, 4, x, y), SMX_ERR_SHAPE, "rows");
  refused(smx_softmax_f32(2, 3, x, x + 1), SMX_ERR_ALIAS, "y");
  refused(smx_logsumexp_f32(2, 4, x, x), SMX_ERR_ALIAS, "lse");
  refused(smx_log_softmax_f32(1, 3, NULL, y), SMX_ERR_NULL, "x");
  refused(smx_softmax_backward_f32(1, 3, x, NULL, y), SMX_ERR_NULL, "dy");
  refused(smx_softmax_f64(1, 2, d, NULL), SMX_ERR_NULL, "y");
  refused(smx_softmax_f16(1, 2, NULL, h), SMX_ERR_NULL, "x");
  refused(smx_softmax_bf16(1, 2, NULL, h), SMX_ERR_NULL, "x");
  refused(smx_softmax_f32(1, 3, (const float *)(const void *)((const char *)x + 1), y), SMX_ERR_SHAPE,
          "x is not aligned");
  refused(smx_softmax_f16(1, 1, h, (uint16_t *)(void *)((char *)(h + 1) - 1)), SMX_ERR_SHAPE,
          "y is not aligned");
  refused(smx_logsumexp_f32(1, 4, x, (float *)(void *)((char *)y + 2)), SMX_ERR_SHAPE, "lse is not aligned");
  refused(smx_softmax_strided_f32(NULL, 2, 4, x, 3, y, 4), SMX_ERR_SHAPE, "x_stride");
  refused(smx_softmax_strided_f32(NULL, 2, 4, x, 4, y, 3), SMX_ERR_SHAPE, "y_stride");
  for (int i = 0; i < 8; i++) assert_true(y[i] == 0);
  assert_int_equal(smx_softmax_f64(1, 2, d, d), SMX_OK);
  assert_true(d[0] == 0.5 && d[1] == 0.5);
  assert_int_equal(smx_softmax_f16(1, 2, h, h), SMX_OK);
  assert_int_equal(h[1], 0x3800);
  assert_int_equal(smx_softmax_f32(2, 4, x, x), SMX_OK);
  assert_memory_equal(x, x + 4, 4 * sizeof *x);
}

/* An error without an operator begins with the entry point that was called. */
static void errors_name_what_was_called(void **state) {
  smx_op foreign = {.name = "foreign"};
  const smx_op *ops[] = {NULL, &foreign};
  const char *const parts[] = {"op is NULL", "op is not an operator"};
  for (int i = 0; i < 2; i++) {
    const smx_status want = i ? SMX_ERR_NO_OP : SMX_ERR_NULL;
    char text[64];
    snprintf(text, sizeof text, "smx_forward: %s", parts[i]);
    refused(smx_forward(ops[i], NULL, NULL, 0, NULL, 0, NULL), want, text);
    snprintf(text, sizeof text, "smx_backward: %s", parts[i]);
    refused(smx_backward(ops[i], NULL, NULL, 0, NULL, 0, NULL, NULL, NULL), want, text);
    snprintf(text, sizeof text, "smx_infer: %s", parts[i]);
    refused(smx_infer(ops[i], NULL, 0, NULL, 0, NULL), want, text);
  }
}

/* The plain functions and the operators of the table are the same thing. */
static void plain_functions_are_the_operators(void **state) {
  float x[2][5] = {{1, 2, 3, 4, 5}, {-1, 7, 0, 2, 2}}, a[10], b[10], lse[2], lse_op[2];
  int64_t shape[2] = {2, 5}, row[1] = {2};
  smx_tensor tx = {x, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0}, tb = {b, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0},
             tl = {lse_op, {0, 0}, 1, {2, 32, 1}, row, NULL, 0};
  assert_int_equal(smx_softmax_f32(2, 5, x[0], a), SMX_OK);
  assert_int_equal(smx_softmax(NULL, -1, &tx, &tb), SMX_OK);
  assert_memory_equal(a, b, sizeof a);
  float grad[10], grad_op[10];
  smx_tensor tg = {grad_op, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0};
  assert_int_equal(smx_softmax_backward_f32(2, 5, a, x[0], grad), SMX_OK);
  assert_int_equal(smx_softmax_backward(NULL, 1, &tb, &tx, &tg), SMX_OK);
  assert_memory_equal(grad, grad_op, sizeof grad);
  assert_int_equal(smx_log_softmax_f32(2, 5, x[0], a), SMX_OK);
  assert_int_equal(smx_log_softmax(NULL, 1, &tx, &tb), SMX_OK);
  assert_memory_equal(a, b, sizeof a);
  assert_int_equal(smx_logsumexp_f32(2, 5, x[0], lse), SMX_OK);
  assert_int_equal(smx_logsumexp(NULL, 1, &tx, &tl), SMX_OK);
  assert_memory_equal(lse, lse_op, sizeof lse);
  float wide[2][8] = {{0}};
  assert_int_equal(smx_softmax_f32(2, 5, x[0], a), SMX_OK);
  assert_int_equal(smx_softmax_strided_f32(NULL, 2, 5, x[0], 5, wide[0], 8), SMX_OK);
  assert_memory_equal(wide[0], a, 5 * sizeof *a);
  assert_memory_equal(wide[1], a + 5, 5 * sizeof *a);
  assert_true(wide[0][5] == 0 && wide[1][7] == 0);
}

/* A byte offset moves a view. */
static void byte_offset(void **state) {
  float x[5] = {100, 0, 1, 2, 100}, y[5] = {0}, want[3];
  int64_t shape[1] = {3};
  smx_tensor tx = {x, {1, 0}, 1, {2, 32, 1}, shape, NULL, 4}, ty = {y, {1, 0}, 1, {2, 32, 1}, shape, NULL, 8};
  assert_int_equal(smx_softmax_f32(1, 3, x + 1, want), SMX_OK);
  assert_int_equal(smx_softmax(NULL, 0, &tx, &ty), SMX_OK);
  assert_memory_equal(y + 2, want, sizeof want);
  assert_true(y[0] == 0 && y[1] == 0);
}

static void *grudging(void *user, size_t bytes, size_t alignment) { return NULL; }

static void give_back(void *user, void *p) {}

static void contexts(void **state) {
  smx_context *ctx = NULL;
  smx_context_options o = {.size = sizeof o};
  refused(smx_context_create(&o, NULL), SMX_ERR_NULL, "out");
  o.size = 3;
  refused(smx_context_create(&o, &ctx), SMX_ERR_STRUCT, "3");
  o = (smx_context_options){.size = sizeof o, .threads = -7};
  refused(smx_context_create(&o, &ctx), SMX_ERR_PARAM, "-7");
  o = (smx_context_options){.size = sizeof o, .alloc = grudging};
  refused(smx_context_create(&o, &ctx), SMX_ERR_PARAM, "release");
  o = (smx_context_options){.size = sizeof o, .on_empty = (smx_on_empty)9};
  refused(smx_context_create(&o, &ctx), SMX_ERR_PARAM, "9");
  o = (smx_context_options){.size = sizeof o, .on_inf = (smx_on_inf)9};
  refused(smx_context_create(&o, &ctx), SMX_ERR_PARAM, "9");
  o = (smx_context_options){.size = sizeof o, .alloc = grudging, .release = give_back};
  refused(smx_context_create(&o, &ctx), SMX_ERR_NOMEM, "");
  assert_int_equal(smx_context_create(NULL, &ctx), SMX_OK);
  assert_int_equal(smx_context_threads(ctx), 1);
  smx_context_destroy(ctx);
  o = (smx_context_options){.size = sizeof o, .threads = 3};
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  assert_int_equal(smx_context_threads(ctx), 3);
  smx_context_destroy(ctx);
  o.threads = -1;
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  assert_true(smx_context_threads(ctx) >= 1);
  smx_context_destroy(ctx);
  smx_context_destroy(NULL);
  assert_int_equal(smx_context_threads(NULL), 1);
}

static void parameters(void **state) {
  const smx_op *op = smx_op_find("softmax"), *hard = smx_op_find("hardmax");
  smx_params p, h;
  refused(smx_params_init(NULL, &p), SMX_ERR_NULL, "op");
  refused(smx_params_init(op, NULL), SMX_ERR_NULL, "params");
  assert_int_equal(smx_params_init(op, &p), SMX_OK);
  assert_int_equal(p.axis, -1);
  refused(smx_params_set(op, &p, "warmth", 1), SMX_ERR_PARAM, "warmth");
  refused(smx_params_set(op, &p, NULL, 1), SMX_ERR_NULL, "name");
  refused(smx_params_set(op, &p, "temperature", -2), SMX_ERR_PARAM, "-2");
  refused(smx_params_parse(op, &p, "temperature", "warm"), SMX_ERR_PARAM, "warm");
  refused(smx_params_parse(op, &p, "temperature", "1x"), SMX_ERR_PARAM, "1x");
  refused(smx_params_parse(op, &p, "temperature", ""), SMX_ERR_PARAM, "temperature");
  refused(smx_params_parse(op, &p, "temperature", NULL), SMX_ERR_NULL, "text");
  assert_true(p.value[0] == 1);
  assert_int_equal(smx_params_parse(op, &p, "temperature", "0.5"), SMX_OK);
  assert_true(p.value[0] == 0.5);
  assert_int_equal(smx_params_parse(op, &p, "temperature", "inf"), SMX_OK);
  assert_true(isinf(p.value[0]));
  assert_int_equal(smx_params_init(hard, &h), SMX_OK);
  assert_int_equal(smx_params_parse(hard, &h, "ties", "split"), SMX_OK);
  assert_true(h.value[0] == 1);
  refused(smx_params_parse(hard, &h, "ties", "both"), SMX_ERR_PARAM, "both");
}

static void infer(void **state) {
  int64_t shape[3] = {4, 12, 6};
  smx_tensor x = {NULL, {1, 0}, 3, {4, 16, 1}, shape, NULL, 0};
  smx_tensor auxiliary[SMX_MAX_PORTS];
  const smx_tensor *in[SMX_MAX_PORTS] = {&x};
  for (size_t o = 0; o < row_op_count(); o++) {
    const smx_op *op = smx_op_at(o);
    smx_params p;
    smx_shape out[SMX_MAX_PORTS];
    smx_params_init(op, &p);
    p.axis = 1;
    for (int i = 1; i < op->input_count; i++) {
      static int64_t shapes[][3] = {[SMX_SHAPE_FULL] = {4, 12, 6},
                                    [SMX_SHAPE_ROW] = {4, 6},
                                    [SMX_SHAPE_OFFSETS] = {2},
                                    [SMX_SHAPE_COLUMN] = {12},
                                    [SMX_SHAPE_K] = {4, 3, 6}};
      static const int32_t dims[] = {[SMX_SHAPE_FULL] = 3,
                                     [SMX_SHAPE_ROW] = 2,
                                     [SMX_SHAPE_OFFSETS] = 1,
                                     [SMX_SHAPE_COLUMN] = 1,
                                     [SMX_SHAPE_K] = 3};
      const smx_port *port = &op->inputs[i];
      int first = port->flags & SMX_PORT_EITHER && !(op->inputs[i - 1].flags & SMX_PORT_EITHER);
      smx_dtype type = port->flags & SMX_PORT_INT ? SMX_I64 : port->flags & SMX_PORT_MASK ? SMX_U8 : SMX_F32;
      auxiliary[i] = (smx_tensor){NULL, {1, 0}, dims[port->shape], type, shapes[port->shape], NULL, 0};
      in[i] = port->flags & SMX_PORT_OPTIONAL && !first ? NULL : &auxiliary[i];
    }
    if (smx_infer(op, &p, op->input_count, in, op->output_count, out))
      fail_msg("%s: %s", op->name, smx_last_error());
    for (int i = 0; i < op->output_count; i++) {
      int row_shaped = op->outputs[i].shape == SMX_SHAPE_ROW, whole = op->outputs[i].flags & SMX_PORT_INT;
      if (op->outputs[i].shape == SMX_SHAPE_SCALAR) {
        assert_int_equal(out[i].ndim, 0);
        continue;
      }
      assert_int_equal(out[i].ndim, row_shaped ? 2 : 3);
      assert_int_equal(out[i].dim[0], 4);
      if (op->outputs[i].shape != SMX_SHAPE_K) assert_int_equal(out[i].dim[1], row_shaped ? 6 : 12);
      assert_int_equal(out[i].dtype.code, whole ? 0 : 4);
      assert_int_equal(out[i].dtype.bits, whole ? 64 : 16);
    }
    p.axis = 3;
    refused(smx_infer(op, &p, op->input_count, in, op->output_count, out), SMX_ERR_SHAPE, "axis");
  }
}

static smx_dtype element_of(const smx_port *port, smx_dtype t) {
  return port->flags & SMX_PORT_INT ? SMX_I64 : port->flags & SMX_PORT_MASK ? SMX_U8 : t;
}

/* A backward call that asks for no gradient at all does nothing, and says so, in every dtype and
 * along either axis. */
static void no_gradient_is_wanted(void **state) {
  enum { N = 300 };
  static const smx_dtype types[] = {{2, 16, 1}, {4, 16, 1}, {2, 32, 1}, {2, 64, 1}};
  static double zeros[N * N];
  int64_t full[] = {N, N};
  int seen = 0;
  for (size_t k = 0; k < row_op_count() * COUNT_OF(types); k++) {
    const smx_op *op = smx_op_at(k / COUNT_OF(types));
    const smx_dtype t = types[k % COUNT_OF(types)];
    smx_tensor made[3][SMX_MAX_PORTS];
    const smx_tensor *given[3][SMX_MAX_PORTS] = {{NULL}}, *din[SMX_MAX_PORTS] = {NULL};
    int fits = (op->flags & SMX_OP_BACKWARD) != 0;
    for (int g = 0; g < 3; g++) /* inputs, outputs, upstream gradients */
      for (int i = 0; i < (g ? op->output_count : op->input_count); i++) {
        const smx_port *port = (g ? op->outputs : op->inputs) + i;
        const int wanted =
            g == 2 ? i == 0 : (port->flags & SMX_PORT_SAVED) && !(port->flags & SMX_PORT_OPTIONAL);
        if (!wanted) continue;
        fits &= port->shape == SMX_SHAPE_FULL || port->shape == SMX_SHAPE_ROW;
        made[g][i] = (smx_tensor){
            zeros, {1, 0}, port->shape == SMX_SHAPE_ROW ? 1 : 2, element_of(port, t), full, NULL, 0};
        given[g][i] = &made[g][i];
      }
    for (int i = 0; i < op->input_count; i++) fits &= !(op->inputs[i].flags & SMX_PORT_EITHER);
    if (!fits) continue;
    for (int32_t axis = -1; axis < 1; axis++) {
      smx_params p;
      smx_params_init(op, &p);
      p.axis = axis;
      if (smx_backward(op, NULL, &p, op->input_count, given[0], op->output_count, given[1], given[2], din))
        fail_msg("%s, axis %d: %s", op->name, (int)axis, smx_last_error());
    }
    seen++;
  }
  assert_true(seen > 4 * 30);
}

static void check_port(const smx_op *op, const smx_port *port, int input) {
  if (!port->name || !*port->name || !port->help || !*port->help)
    fail_msg("%s: a port without name or help", op->name);
  if (!input && port->flags & (SMX_PORT_MASK | SMX_PORT_GRAD)) fail_msg("%s: %s", op->name, port->name);
}

static void the_table(void **state) {
  assert_true(smx_op_count() > 0 && smx_op_at(smx_op_count()) == NULL && smx_op_find("nosuch") == NULL &&
              smx_op_find(NULL) == NULL);
  for (size_t o = 0; o < smx_op_count(); o++) {
    const smx_op *op = smx_op_at(o);
    assert_ptr_equal(smx_op_find(op->name), op);
    for (size_t k = 0; k < o; k++)
      assert_true(smx_op_at(k)->id != op->id && strcmp(smx_op_at(k)->name, op->name) != 0);
    const char *const texts[] = {op->family, op->title, op->formula, op->about, op->source, op->example};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
      if (!texts[i] || !*texts[i]) fail_msg("%s: text %d is missing", op->name, (int)i);
    assert_true(op->id > 0 && op->tolerance >= 0 && op->input_count >= 1 && op->output_count >= 1);
    assert_true(op->input_count <= SMX_MAX_PORTS && op->output_count <= SMX_MAX_PORTS &&
                op->param_count <= SMX_MAX_PARAMS);
    assert_true(op->inputs[0].shape == SMX_SHAPE_FULL || op->inputs[0].shape == SMX_SHAPE_DIMS);
    assert_false(op->inputs[0].flags & SMX_PORT_OPTIONAL);
    for (int i = 0; i < op->input_count; i++) check_port(op, &op->inputs[i], 1);
    for (int i = 0; i < op->output_count; i++) check_port(op, &op->outputs[i], 0);
    for (int i = 0; i < op->param_count; i++) {
      const smx_param *p = &op->params[i];
      int names = 0;
      while (p->choices && p->choices[names]) names++;
      if (!(p->min <= p->def && p->def <= p->max)) fail_msg("%s: default of %s", op->name, p->name);
      if (p->choices && (names != (int)p->max + 1 || p->min != 0))
        fail_msg("%s: choices of %s", op->name, p->name);
    }
  }
}

static void words(void **state) {
  for (int s = 0; s >= -14; s--) assert_true(smx_strerror((smx_status)s) && *smx_strerror((smx_status)s));
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", SMX_VERSION_MAJOR, SMX_VERSION_MINOR, SMX_VERSION_PATCH);
  assert_string_equal(smx_version(), version);
  assert_true(*smx_isa_name());
}

/* tests/api/ids.txt lists every id that was ever given out. */
static void ids_are_for_ever(void **state) {
  FILE *f = fopen(SMX_SOURCE_DIR "/tests/api/ids.txt", "r");
  char line[256], name[128], gone[8];
  int id, last = 0, listed = 0;
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) {
    if (line[0] == '#') continue;
    const int fields = sscanf(line, "%d %127s %7s", &id, name, gone);
    if (fields < 2 || id <= last) fail_msg("ids.txt: '%s' after %d", strtok(line, "\n"), last);
    if (id > 408 && id != last + 1) fail_msg("ids.txt: %s has %d, but the next is %d", name, id, last + 1);
    last = id;
    const smx_op *op = smx_op_find(name);
    if (fields == 3 ? strcmp(gone, "gone") || op : !op || op->id != id)
      fail_msg("ids.txt: %d %s, in the table %d", id, name, op ? op->id : -1);
    listed += fields == 2;
  }
  fclose(f);
  if ((size_t)listed != smx_op_count())
    fail_msg("an operator is not in tests/api/ids.txt: the next id is %d", last + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_functions),
      cmocka_unit_test(errors_name_what_was_called),
      cmocka_unit_test(plain_functions_are_the_operators),
      cmocka_unit_test(byte_offset),
      cmocka_unit_test(contexts),
      cmocka_unit_test(parameters),
      cmocka_unit_test(infer),
      cmocka_unit_test(no_gradient_is_wanted),
      cmocka_unit_test(the_table),
      cmocka_unit_test(words),
      cmocka_unit_test(ids_are_for_ever),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
