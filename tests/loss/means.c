/* means.c - proves what a mean over the rows may be about besides rows: all tokens that masks and
 * lengths keep (over = all), and two sets of rows apart (sets = apart). Values and gradients are
 * those of the double reference, in every layout, and have the same bits for every instruction set
 * and number of threads; a mean over nothing is NaN, or 0, and a set without rows adds nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "tensors.h"

enum { ROWS = 300, N = 9 };
enum { NONE, SUM, MEAN, MEAN_SAFE };

/* The output that is one value for all rows. */
static int reduced_of(const smx_op *op) {
  int o = 0;
  while (op->outputs[o].shape != SMX_SHAPE_SCALAR) o++;
  return o;
}

static problem made(const char *name, int64_t rows, int64_t n, int variant, const char *param,
                    const char *choice, int reduction) {
  static const kind kinds[] = {KIND_NORMAL, KIND_TIES};
  problem p;
  problem_make(&p, smx_op_find(name), rows, n, variant, (uint64_t)variant + 5, kinds, 2);
  assert_int_equal(smx_params_parse(p.op, &p.params, param, choice), SMX_OK);
  assert_int_equal(smx_params_set(p.op, &p.params, "reduction", reduction), SMX_OK);
  return p;
}

static void is_the_reference(problem *p, const config *how) {
  double *want[SMX_MAX_PORTS] = {NULL};
  const int o = reduced_of(p->op);
  reference_run(p, want);
  assert_int_equal(problem_run(p, how, FORWARD), SMX_OK);
  for (int i = 0; i < p->op->output_count; i++) {
    const smx_port *port = &p->op->outputs[i];
    if (i != o && !(port->flags & SMX_PORT_DX)) continue;
    double *have = problem_values(p, port, p->out[i], how->out_dtype), largest = 1e-300;
    for (int64_t k = 0; k < port_count(p, port); k++) largest = fmax(largest, fabs(want[i][k]));
    for (int64_t k = 0; k < port_count(p, port); k++)
      if (!(fabs(have[k] - want[i][k]) <= 1e-12 * largest) && !(isnan(have[k]) && isnan(want[i][k])))
        fail_msg("%s: %s[%d] is %.17g, not %.17g", p->op->name, port->name, (int)k, have[k], want[i][k]);
    free(have);
  }
  reference_free(p, want);
}

static void in_every_layout(const char *name, const char *param, const char *choice) {
  for (int variant = 0; variant < VARIANTS; variant++)
    for (int reduction = NONE; reduction <= MEAN_SAFE; reduction++)
      for (int layout = 0; layout < LAYOUTS; layout++) {
        config how = {NULL, SMX_F64, SMX_F64, layout, PLACE_ODD, APART};
        problem p = made(name, 6, N, variant, param, choice, reduction);
        is_the_reference(&p, &how);
        problem_free(&p);
      }
}
static void the_same_bits(const char *name, const char *param, const char *choice) {
  problem p = made(name, ROWS, N, 1, param, choice, MEAN);
  const int o = reduced_of(p.op);
  float first = 0;
  for (way w = {0}; next_way(&w);) {
    config how = {w.ctx, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
    const float value = *(const float *)(const void *)p.out[o];
    if (w.number == 1) first = value;
    assert_true(value == first && value != 0);
  }
  problem_free(&p);
}

static void a_mean_over_all_tokens(void **state) {
  static const char *const names[] = {"policy_loss", "soft_gated_policy_loss", "cispo_loss"};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    in_every_layout(names[i], "over", "all");
    the_same_bits(names[i], "over", "all");
  }
}
static void a_mean_over_each_set(void **state) {
  in_every_layout("energy_margin", "sets", "apart");
  the_same_bits("energy_margin", "sets", "apart");
}

static double reduced_value(problem *p) {
  const config how = {NULL, SMX_F64, SMX_F64, LAYOUT_C, PLACE_END, APART};
  const int o = reduced_of(p->op);
  assert_int_equal(problem_run(p, &how, FORWARD), SMX_OK);
  return dtype_load(SMX_F64, p->out[o]);
}

/* Lengths of 0 and of the whole row; masks that drop everything. */
static void tokens_that_do_not_exist(void **state) {
  enum { MASK = 5, LENGTH = 6 };
  for (int reduction = MEAN; reduction <= MEAN_SAFE; reduction++) {
    problem p = made("policy_loss", 3, N, 1, "over", "all", reduction);
    const config how = {NULL, SMX_F64, SMX_F64, LAYOUT_C, PLACE_END, APART};
    static const double lengths[] = {0, 1, N};
    memcpy(p.in[LENGTH], lengths, sizeof lengths);
    is_the_reference(&p, &how);
    for (int64_t k = 0; k < 3 * N; k++) p.in[MASK][k] = 0, p.in[0][k] = NAN;
    const double value = reduced_value(&p);
    assert_true(reduction == MEAN ? isnan(value) : value == 0);
    for (int64_t k = 0; k < 3 * N; k++) assert_true(dtype_load(SMX_F64, p.out[1] + 8 * k) == 0);
    problem_free(&p);
  }
}

/* A length that no row has is an error of every operator that takes lengths, beside a mask, with
 * which a call has a job, or alone, where it goes to the kernel at once; forward and backward. */
static void lengths_of_no_row(void **state) {
  static const double wrong[] = {-1, N + 1, -9223372036854775808.0};
  static const char *const words[] = {"length: row 2 has -1, not 0..9", "length: row 2 has 10, not 0..9",
                                      "length: row 2 has -9223372036854775808, not 0..9"};
  const config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
  int seen = 0;
  for (size_t k = 0; k < 2 * smx_op_count(); k++) {
    const smx_op *op = smx_op_at(k / 2);
    for (int i = 0; i < op->input_count; i++) {
      if (!(op->inputs[i].flags & SMX_PORT_LENGTH)) continue;
      static const kind kinds[] = {KIND_NORMAL};
      problem p;
      problem_make(&p, op, 4, N, 1, 1, kinds, 1);
      assert_non_null(p.in[i]);
      for (int m = 0; m < op->input_count && k % 2; m++)
        if (op->inputs[m].flags & SMX_PORT_MASK) free(p.in[m]), p.in[m] = NULL;
      assert_int_equal(problem_run(&p, &how, FORWARD), SMX_OK);
      for (int w = 0; w < 3; w++) {
        p.in[i][2] = wrong[w];
        for (int d = FORWARD; d <= BACKWARD; d++) {
          if (d == BACKWARD && !(op->flags & SMX_OP_BACKWARD)) continue;
          assert_int_equal(problem_run(&p, &how, (direction)d), SMX_ERR_SHAPE);
          assert_non_null(strstr(smx_last_error(), words[w]));
        }
      }
      problem_free(&p);
      seen++;
    }
  }
  assert_true(seen >= 8);
}

static void a_set_without_rows(void **state) {
  for (int of = 0; of < 2; of++) { /* nothing but rows; nothing but outliers */
    problem p = made("energy_margin", 4, N, 1, "sets", "apart", MEAN);
    for (int r = 0; r < 4; r++) p.in[1][r] = of;
    smx_params_set(p.op, &p.params, "m_in", -30), smx_params_set(p.op, &p.params, "m_out", 30);
    const double apart = reduced_value(&p);
    assert_int_equal(smx_params_parse(p.op, &p.params, "sets", "together"), SMX_OK);
    assert_true(apart == reduced_value(&p) && apart > 0);
    problem_free(&p);
  }
  problem none = made("energy_margin", 0, N, 1, "sets", "apart", MEAN);
  assert_true(isnan(reduced_value(&none)));
  smx_params_set(none.op, &none.params, "reduction", MEAN_SAFE);
  assert_true(reduced_value(&none) == 0);
  problem_free(&none);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mean_over_all_tokens),   cmocka_unit_test(a_mean_over_each_set),
      cmocka_unit_test(tokens_that_do_not_exist), cmocka_unit_test(lengths_of_no_row),
      cmocka_unit_test(a_set_without_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
