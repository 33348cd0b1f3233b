/* edge.c - proves the contract for values that need a rule: empty rows, one element, ties, NaN,
 * infinities, masks, overflow, underflow, and the policies on_empty and on_inf. Wherever the
 * reference is exactly 0, 1, infinite or NaN, the library must be exactly that. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "unit.h"

enum { LONGEST = 8 };
static const struct {
  const char *name;
  int n;
  double x[LONGEST];
} rows[] = {
    {"nothing", 0, {0}},
    {"one", 1, {-7.25}},
    {"one, huge", 1, {FLT_MAX}},
    {"one, lowest", 1, {-FLT_MAX}},
    {"one, -inf", 1, {-INFINITY}},
    {"one, +inf", 1, {INFINITY}},
    {"one, NaN", 1, {NAN}},
    {"equal", 7, {3, 3, 3, 3, 3, 3, 3}},
    {"both zeros", 4, {-0.0, 0.0, -0.0, 0.0}},
    {"all -inf", 4, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}},
    {"some -inf", 5, {-INFINITY, 1, -INFINITY, 2, -INFINITY}},
    {"+inf", 4, {1, INFINITY, 2, 3}},
    {"two +inf and -inf", 5, {INFINITY, 1, INFINITY, -INFINITY, 2}},
    {"NaN", 4, {1, 2, NAN, 3}},
    {"NaN among infinities", 3, {-INFINITY, NAN, INFINITY}},
    {"dominated", 4, {-60, 50, -70, -1e9}},
    {"ties at the top", 5, {1, 5, 5, 2, 5}},
    {"overflow", 4, {FLT_MAX, FLT_MAX, -FLT_MAX, 0}},
    {"lowest", 4, {-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX}},
    {"the usual mask", 4, {1, -1e9, 2, -1e9}},
    {"the usual mask everywhere", 3, {-1e9, -1e9, -1e9}},
    {"underflow", 6, {0, -87, -87.5, -88, -103, -104}},
    {"tiny", 4, {1e-40, 0x1p-126, -1e-40, 0}},
};

static problem one_row(const smx_op *op, size_t which, int variant) {
  static const kind any[] = {KIND_NORMAL};
  problem p;
  problem_make(&p, op, 1, rows[which].n, variant, which + 1, any, 1);
  memcpy(p.in[0], rows[which].x, (size_t)rows[which].n * sizeof(double));
  return p;
}

static int special(scale s, double v) { return !isfinite(v) || (s.relative && (v == 0 || v == 1)); }

static int canonical(smx_dtype t, const unsigned char *bytes) {
  unsigned char nan[8];
  dtype_store(t, nan, NAN);
  return !memcmp(bytes, nan, dtype_size(t));
}

/* Whether the rows above are something the operator is for. */
static int for_scores(const smx_op *op) { return !strstr(op->inputs[0].help, "probability"); }

static int subnormal(double v, smx_dtype t) { return v != 0 && fabs(v) < (t.bits == 64 ? DBL_MIN : FLT_MIN); }

static int check_output(problem *p, int i, smx_dtype t, const double *want, const char *row, int variant) {
  const smx_port *port = &p->op->outputs[i];
  scale s = scale_of_row(p, port, 0, t, want);
  double *got = problem_values(p, port, p->out[i], t), unit = t.bits == 64 ? UNIT_F64 : UNIT_F32;
  int bad = 0;
  for (int64_t k = 0; k < port_count(p, port); k++) {
    int fine =
        special(s, want[k]) ? got[k] == want[k] : distance(s, got[k], want[k], unit) <= p->op->tolerance;
    if (isnan(want[k])) fine = canonical(t, p->out[i] + (size_t)k * dtype_size(t));
    if (subnormal(got[k], t)) fine = subnormal(p->in[0][k], SMX_F32);
    if (fine) continue;
    printf("%s, %s, variant %d, f%d: %s[%d] is %.17g, want %.17g\n", p->op->name, row, variant, t.bits,
           port->name, (int)k, got[k], want[k]);
    bad++;
  }
  free(got);
  return bad;
}

/* In f32: a product scale x that overflows is an infinite score, and differences of scores that
 * overflow make an infinite mean. Nothing finite is promised for those, and the reference, in
 * double, knows nothing of it. */
static int beyond_f32(const problem *p, smx_dtype t) {
  double factor = param_or(p, "scale", 1), low = INFINITY, high = -INFINITY;
  if (t.bits == 64) return 0;
  for (int64_t k = 0; k < p->n; k++) {
    double x = p->in[0][k];
    if (!isfinite(x)) continue;
    if (fabs(factor * x) > FLT_MAX || param_or(p, "z_weight", 0) * x * x > FLT_MAX) return 1;
    if (!strcmp(p->op->family, "loss") && fabs(4 * x) > FLT_MAX) return 1;
    low = fmin(low, x), high = fmax(high, x);
  }
  int differences = !isnan(param_or(p, "alpha", NAN)) ||
                    (p->op->output_count > 1 && !strcmp(p->op->outputs[1].name, "key"));
  return differences && high - low > FLT_MAX;
}

static void rows_with_a_rule(void **state) {
  int bad = 0;
  for (size_t o = 0; o < row_op_count(); o++)
    for (size_t w = 0; w < COUNT_OF(rows); w++)
      for (int variant = 0; variant < variants_of(smx_op_at(o)) && for_scores(smx_op_at(o)) &&
                            problem_possible(smx_op_at(o), rows[w].n);
           variant++)
        for (int type = 0; type < 2; type++) {
          smx_dtype t = float_dtypes[type];
          double *want[SMX_MAX_PORTS] = {NULL};
          config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
          problem p = one_row(smx_op_at(o), w, variant);
          problem_round(&p, t);
          if (beyond_f32(&p, t)) {
            problem_free(&p);
            continue;
          }
          reference_run(&p, want);
          assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
          for (int i = 0; i < p.op->output_count; i++) {
            bad += check_output(&p, i, t, want[i], rows[w].name, variant);
            free(want[i]);
          }
          problem_free(&p);
        }
  assert_int_equal(bad, 0);
}

/* What the gradient of an element must be: NaN where its row, or its segment, is NaN; otherwise
 * finite, never subnormal, and 0 for an element that a mask drops (which may be 0 in a row of NaN,
 * too). */
static int right_gradient(const problem *p, int i, int64_t k, double got) {
  const smx_port *y = &p->op->outputs[0];
  int full = p->op->inputs[i].shape == SMX_SHAPE_FULL, masked = 0, nan = 0;
  for (int m = 0; m < p->op->input_count; m++)
    masked |= full && p->in[m] && p->op->inputs[m].flags & SMX_PORT_MASK && p->in[m][k] == 0;
  for (int64_t o = 0; o < port_count(p, y); o++)
    if (!full || y->shape != SMX_SHAPE_FULL || o == k)
      nan |= isnan(dtype_load(SMX_F32, p->out[0] + (size_t)o * sizeof(float)));
  if (masked && (got == 0 || !nan)) return got == 0;
  return nan ? canonical(SMX_F32, p->din[i] + (size_t)k * sizeof(float))
             : isfinite(got) && !subnormal(got, SMX_F32);
}

static int check_gradients(problem *p, size_t w, int variant) {
  int bad = 0;
  for (int i = 0; i < p->op->input_count; i++) {
    if (!grad_port(p, i)) continue;
    double *got = problem_values(p, grad_port(p, i), p->din[i], SMX_F32);
    for (int64_t k = 0; k < port_count(p, grad_port(p, i)); k++) {
      if (right_gradient(p, i, k, got[k])) continue;
      printf("%s, %s, variant %d: gradient of %s[%d] is %g\n", p->op->name, rows[w].name, variant,
             p->op->inputs[i].name, (int)k, got[k]);
      bad++;
    }
    free(got);
  }
  return bad;
}

static void gradients_of_rows_with_a_rule(void **state) {
  int bad = 0;
  for (size_t o = 0; o < row_op_count(); o++)
    for (size_t w = 0; w < COUNT_OF(rows) && smx_op_at(o)->flags & SMX_OP_BACKWARD; w++) {
      if (!for_scores(smx_op_at(o)) || !problem_possible(smx_op_at(o), rows[w].n)) continue;
      config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
      for (int variant = 0; variant < variants_of(smx_op_at(o)); variant++) {
        problem p = one_row(smx_op_at(o), w, variant);
        problem_round(&p, SMX_F32);
        assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
        assert_int_equal(problem_run(&p, &how, BACKWARD), SMX_OK);
        bad += beyond_f32(&p, SMX_F32) ? 0 : check_gradients(&p, w, variant);
        problem_free(&p);
      }
    }
  assert_int_equal(bad, 0);
}

static smx_context *context(smx_on_empty on_empty, smx_on_inf on_inf) {
  smx_context_options options = {.size = sizeof options, .on_empty = on_empty, .on_inf = on_inf};
  smx_context *ctx = NULL;
  assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
  return ctx;
}

static size_t row_named(const char *name) {
  size_t i = 0;
  while (strcmp(rows[i].name, name)) i++;
  return i;
}

/* The elements of a row share something: it can be empty (the reference gives an all -inf row
 * zeros, or -inf), and +inf can take it all. */
static int competing(const smx_op *op) {
  if (strstr(op->inputs[0].help, "log-probabilities")) return 0; /* of tokens, or of answers */
  return strcmp(op->family, "sample") || strstr(op->inputs[0].help, "scores");
}

static void empty_rows_by_policy(void **state) {
  smx_context *nan = context(SMX_EMPTY_NAN, SMX_INF_NAN), *error = context(SMX_EMPTY_ERROR, SMX_INF_NAN);
  for (size_t o = 0; o < row_op_count(); o++) {
    double *want[SMX_MAX_PORTS] = {NULL};
    problem p = one_row(smx_op_at(o), row_named("all -inf"), 0);
    reference_run(&p, want);
    int whole = p.op->outputs[0].flags & SMX_PORT_INT, full = p.op->outputs[0].shape == SMX_SHAPE_FULL;
    int empty = competing(p.op) && (want[0][0] == (whole ? -1 : 0) || want[0][0] == -INFINITY);
    config how = {nan, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    double got = dtype_load(port_dtype(&p.op->outputs[0], SMX_F32), p.out[0]);
    if (empty && full && !(isnan(got))) fail_msg("%s: on_empty nan gives %g", p.op->name, got);
    if (!full && !isnan(got) && fabs(got - want[0][0]) > 1e-5 * fabs(want[0][0]))
      fail_msg("%s: on_empty nan gives %g", p.op->name, got);
    how.ctx = error;
    int status = problem_run(&p, &how, FORWARD);
    if (status != (empty ? SMX_ERR_EMPTY : SMX_OK))
      fail_msg("%s: on_empty error gives status %d", p.op->name, status);
    if (empty && !strstr(smx_last_error(), "row 0"))
      fail_msg("%s: the message does not name the row: %s", p.op->name, smx_last_error());
    reference_free(&p, want);
    problem_free(&p);
  }
  smx_context_destroy(nan);
  smx_context_destroy(error);
}

/* The first empty row is named, its output stays as it was. */
static void the_empty_row_is_left_alone(void **state) {
  smx_context *error = context(SMX_EMPTY_ERROR, SMX_INF_NAN);
  float x[6] = {1, 2, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, y[6] = {9, 9, 9, 9, 9, 9};
  assert_int_equal(smx_softmax_strided_f32(error, 3, 2, x, 2, y, 2), SMX_ERR_EMPTY);
  assert_non_null(strstr(smx_last_error(), "row 1"));
  assert_true(y[2] == 9 && y[3] == 9);
  smx_context_destroy(error);
}

/* With the limit, a row of weights that would be NaN because of one +inf is one-hot there, and a
 * value of the row is +inf. */
static void the_limit_of_infinity(void **state) {
  smx_context *limit = context(SMX_EMPTY_ZERO, SMX_INF_LIMIT);
  for (size_t o = 0; o < row_op_count(); o++) {
    double *want[SMX_MAX_PORTS] = {NULL};
    problem p = one_row(smx_op_at(o), row_named("+inf"), 0);
    reference_run(&p, want);
    scale s = scale_of_row(&p, &p.op->outputs[0], 0, SMX_F32, want[0]);
    config how = {limit, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    for (int64_t k = 0; competing(p.op) && isnan(want[0][0]) && k < port_count(&p, &p.op->outputs[0]); k++) {
      double got = dtype_load(SMX_F32, p.out[0] + (size_t)k * sizeof(float)), hot = k == 1;
      int fine = s.relative                                ? got == hot
                 : p.op->outputs[0].shape == SMX_SHAPE_ROW ? got == INFINITY
                                                           : !isnan(got);
      if (strstr(p.op->about, "0 where a score is +inf")) fine = got == 0;
      if (!strcmp(p.op->name, "softmax_collapse_rate")) fine = got == 1;
      /* how much: below */
      if (p.op->input_count > 1 && !strcmp(p.op->inputs[1].name, "gate")) fine = (got > 0) == hot;
      if (!strcmp(p.op->family, "loss"))
        fine = !isnan(got) || !for_scores(p.op) || strstr(p.op->about, "infinite logit is NaN");
      if (strstr(p.op->about, "+inf make the row NaN")) fine = isnan(got);
      if (!fine) fail_msg("%s: on_inf limit gives [%d] %g", p.op->name, (int)k, got);
    }
    reference_free(&p, want);
    problem_free(&p);
  }
  float x[4] = {1, INFINITY, -INFINITY, INFINITY}, y[4];
  assert_int_equal(smx_softmax_strided_f32(limit, 1, 4, x, 4, y, 4), SMX_OK);
  assert_true(y[0] == 0 && y[1] == 0.5f && y[2] == 0 && y[3] == 0.5f);
  smx_context_destroy(limit);
}

/* What an operator makes of weights, it makes of the shares too. */
static void the_limit_goes_through_the_map(void **state) {
  smx_context *limit = context(SMX_EMPTY_ZERO, SMX_INF_LIMIT);
  static const struct {
    const char *name;
    double set, want; /* the gate, or eta */
  } known[] = {{"context_aware_scaling", 0.3, 0.57444251681165903},
               {"context_aware_scaling", -2, 0.11920292202211757},
               {"clipped_softmax", 1, 0.485}};
  for (size_t o = 0; o < COUNT_OF(known); o++) {
    problem p = one_row(smx_op_find(known[o].name), row_named("two +inf and -inf"), 0);
    if (p.in[1]) p.in[1][0] = known[o].set;
    else assert_int_equal(smx_params_set(p.op, &p.params, "eta", known[o].set), SMX_OK);
    config how = {limit, SMX_F64, SMX_F64, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    for (int64_t i = 0; i < p.n; i++) {
      double got = dtype_load(SMX_F64, p.out[0] + (size_t)i * sizeof(double)),
             want = i == 0 || i == 2 ? known[o].want : 0;
      if (!(fabs(got - want) <= 1e-15))
        fail_msg("%s: on_inf limit gives [%d] %.17g, not %.17g", known[o].name, (int)i, got, want);
    }
    problem_free(&p);
  }
  smx_context_destroy(limit);
}

/* A number that is given for each row in place of a parameter, and lies outside the range of that:
 * the row is NaN, and its gradients are. */
static void numbers_of_a_row_have_a_range(void **state) {
  static const struct {
    const char *name, *port;
    double value;
  } known[] = {{"softmax", "temperature", -1}, {"softmax", "temperature", NAN}, {"entmax", "alpha", -0.5},
               {"entmax", "alpha", -1e-4},     {"entmax", "alpha", 11},         {"entmax", "alpha", NAN},
               {"sdm_activation", "d", -0.25}, {"sdm_activation", "d", 1.25},   {"sdm_activation", "d", NAN}};
  for (size_t o = 0; o < COUNT_OF(known); o++) {
    problem p = one_row(smx_op_find(known[o].name), row_named("dominated"), 1);
    int i = 0;
    while (strcmp(p.op->inputs[i].name, known[o].port)) i++;
    p.in[i][0] = known[o].value;
    config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    assert_int_equal(problem_run(&p, &how, BACKWARD), SMX_OK);
    for (int64_t k = 0; k < p.n; k++)
      if (!canonical(SMX_F32, p.out[0] + (size_t)k * 4) || !canonical(SMX_F32, p.din[0] + (size_t)k * 4))
        fail_msg("%s: %s %g does not make the row NaN", known[o].name, known[o].port, known[o].value);
    if (!canonical(SMX_F32, p.din[i]))
      fail_msg("%s: the gradient of %s is not NaN", known[o].name, known[o].port);
    problem_free(&p);
  }
}

/* With the limit, the gradient of a sum that +inf takes all of goes there; where weights stay as
 * they are whatever the logits, it is 0. */
static void the_limit_has_gradients(void **state) {
  smx_context *limit = context(SMX_EMPTY_ZERO, SMX_INF_LIMIT);
  static const struct {
    const char *name;
    int passes;
  } known[] = {{"logsumexp", 1}, {"logmeanexp", 1},      {"mellowmax", 1},    {"boltzmann_operator", 0},
               {"softmax", 0},   {"clipped_softmax", 0}, {"softmax_topk", 0}, {"context_aware_scaling", 0}};
  for (size_t o = 0; o < COUNT_OF(known); o++) {
    problem p = one_row(smx_op_find(known[o].name), row_named("+inf"), 0);
    config how = {limit, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    assert_int_equal(problem_run(&p, &how, BACKWARD), SMX_OK);
    for (int64_t i = 0; i < p.n; i++) {
      double got = dtype_load(SMX_F32, p.din[0] + (size_t)i * sizeof(float)),
             want = known[o].passes && i == 1 ? (double)(float)p.dout[0][0] : 0;
      if (!(got == want))
        fail_msg("%s: on_inf limit gives the gradient [%d] %g, not %g", known[o].name, (int)i, got, want);
    }
    problem_free(&p);
  }
  smx_context_destroy(limit);
}

/* Values from 0 to 120 below the maximum in small steps: every result on its way to 0 is normal or
 * 0. */
static void nothing_is_subnormal(void **state) {
  enum { N = 4000 };
  static const kind rising[] = {KIND_RISING};
  for (size_t o = 0; o < row_op_count(); o++) {
    problem p;
    problem_make(&p, smx_op_at(o), 1, N, 0, 1, rising, 1);
    for (int i = 0; i < N; i++) p.in[0][i] = (double)(float)(-120.0 * i / N - 3);
    config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    int backward = p.op->flags & SMX_OP_BACKWARD && !problem_run(&p, &how, BACKWARD);
    int whole = p.op->outputs[0].flags & SMX_PORT_INT;
    for (int64_t k = 0; !whole && k < port_count(&p, &p.op->outputs[0]); k++)
      if (subnormal(dtype_load(SMX_F32, p.out[0] + (size_t)k * sizeof(float)), SMX_F32))
        fail_msg("%s: [%d] is subnormal", p.op->name, (int)k);
    for (int64_t k = 0; backward && k < N; k++)
      if (subnormal(dtype_load(SMX_F32, p.din[0] + (size_t)k * sizeof(float)), SMX_F32))
        fail_msg("%s: gradient %d is subnormal", p.op->name, (int)k);
    problem_free(&p);
  }
}

/* Equal scores get equal bits; rows without elements and calls without rows are fine. */
static void equal_scores_and_nothing_at_all(void **state) {
  static const kind any[] = {KIND_NORMAL};
  float x[77], y[77];
  for (int i = 0; i < 77; i++) x[i] = 0.1f;
  assert_int_equal(smx_softmax_f32(1, 77, x, y), SMX_OK);
  for (int i = 1; i < 77; i++) assert_true(y[i] == y[0]);
  assert_int_equal(smx_softmax_f32(0, 77, NULL, NULL), SMX_OK);
  assert_int_equal(smx_softmax_f32(5, 0, NULL, NULL), SMX_OK);
  for (size_t o = 0; o < row_op_count(); o++)
    for (int64_t n = 0; n < 3; n++) {
      if (!problem_possible(smx_op_at(o), n)) continue;
      config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
      problem p;
      problem_make(&p, smx_op_at(o), n == 0 ? 3 : 0, n, 1, 1, any, 1);
      if (problem_run(&p, &how, FORWARD))
        fail_msg("%s: %d rows of %d: %s", p.op->name, (int)p.rows, (int)n, smx_last_error());
      problem_free(&p);
    }
}

/* A short row of log_softmax has the bits that it has alone, whatever is beside it: ties of its
 * largest number, infinities, NaN, numbers far from 0. */
static void short_rows_beside_others(void **state) {
  enum { ROWS = 37, MOST = 20 };
  static const float odd[] = {1, 1, -2, 0.5f, 1, -INFINITY, 3e5f, 6e5f, -6e5f, INFINITY, NAN, 1e-40f};
  for (size_t n = 1; n <= MOST; n++)
    for (size_t kinds = 2; kinds <= COUNT_OF(odd); kinds++) {
      float x[ROWS * MOST], y[ROWS * MOST], alone[MOST];
      for (size_t i = 0; i < ROWS * n; i++) x[i] = odd[i * i * 7919 % 1009 % kinds];
      assert_int_equal(smx_log_softmax_f32(ROWS, n, x, y), SMX_OK);
      for (size_t r = 0; r < ROWS; r++) {
        assert_int_equal(smx_log_softmax_f32(1, n, x + r * n, alone), SMX_OK);
        if (memcmp(alone, y + r * n, n * sizeof *y))
          fail_msg("n %d, kinds %d, row %d", (int)n, (int)kinds, (int)r);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_rows_beside_others),        cmocka_unit_test(rows_with_a_rule),
      cmocka_unit_test(gradients_of_rows_with_a_rule),   cmocka_unit_test(empty_rows_by_policy),
      cmocka_unit_test(the_limit_of_infinity),           cmocka_unit_test(the_limit_has_gradients),
      cmocka_unit_test(the_empty_row_is_left_alone),     cmocka_unit_test(the_limit_goes_through_the_map),
      cmocka_unit_test(numbers_of_a_row_have_a_range),   cmocka_unit_test(nothing_is_subnormal),
      cmocka_unit_test(equal_scores_and_nothing_at_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
