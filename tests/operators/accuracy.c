/* accuracy.c - proves that every operator, in f32 and f64, stays within its tolerance of the double
 * reference: over lengths, kinds of rows, parameters and optional inputs. reference.h says in which
 * units. Prints the worst error of each operator and where it was. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference.h"
#include "unit.h"

static const int64_t lengths[] = {0, 1, 2, 3, 5, 16, 31, 64, 100, 127, 1000, 1024, 1025, 8193};

typedef struct worst {
  double error;
  int64_t n;
  int variant;
  kind kind;
  double got, want;
} worst;

static void compare_row(const problem *p, const smx_port *port, int64_t row, const double *got,
                        const double *want, smx_dtype t, worst *w, int variant) {
  scale s = scale_of_row(p, port, row, t, want);
  int64_t length = port_length(p, port);
  for (int64_t i = row * length; i < (row + 1) * length; i++) {
    double d = distance(s, got[i], want[i], t.bits == 64 ? UNIT_F64 : UNIT_F32);
    if (!(d <= w->error)) *w = (worst){d, p->n, variant, (kind)row, got[i], want[i]};
  }
}

static void compare(problem *p, smx_dtype t, worst *w, int variant) {
  double *want[SMX_MAX_PORTS] = {NULL};
  config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
  int status = problem_run(p, &how, FORWARD);
  if (status)
    fail_msg("%s: n %d variant %d: status %d %s", p->op->name, (int)p->n, variant, status, smx_last_error());
  reference_run(p, want);
  for (int i = 0; i < p->op->output_count; i++) {
    const smx_port *port = &p->op->outputs[i];
    double *got = problem_values(p, port, p->out[i], t);
    for (int64_t row = 0; row < (port->shape == SMX_SHAPE_SCALAR ? 1 : p->rows); row++)
      compare_row(p, port, row, got, want[i], t, w, variant);
    free(got);
    free(want[i]);
  }
}

/* Rows of more than a group take two or three of the variants, others with another operator. */
static bool measured(size_t at, int64_t n, int variant) {
  return n <= 1025 || (at + (size_t)variant) % 3 == 0;
}

static worst measure(size_t at, smx_dtype t) {
  const smx_op *op = smx_op_at(at);
  kind kinds[KINDS];
  for (int k = 0; k < KINDS; k++) kinds[k] = (kind)k;
  worst w = {.error = 0};
  for (size_t l = 0; l < COUNT_OF(lengths); l++)
    for (int variant = 0; variant < variants_of(op) && problem_possible(op, lengths[l]); variant++) {
      if (!measured(at, lengths[l], variant)) continue;
      problem p;
      problem_make(&p, op, KINDS, lengths[l], variant, (uint64_t)lengths[l] * VARIANTS + (uint64_t)variant,
                   kinds, KINDS);
      problem_round(&p, t);
      compare(&p, t, &w, variant);
      problem_free(&p);
    }
  return w;
}

static void within_tolerance(smx_dtype t, const char *name) {
  int failures = 0;
  printf("%-24s %-5s %10s %10s  worst at\n", "operator", "", "error", "allowed");
  for (size_t i = 0; i < row_op_count(); i++) {
    const smx_op *op = smx_op_at(i);
    worst w = measure(i, t);
    int bad = !(w.error <= op->tolerance);
    printf("%-24s %-5s %10.3g %10g  n %d, variant %d, %s: %.17g, want %.17g%s\n", op->name, name, w.error,
           op->tolerance, (int)w.n, w.variant, kind_names[w.kind], w.got, w.want, bad ? "  <--" : "");
    failures += bad;
  }
  assert_int_equal(failures, 0);
}

static void f32(void **state) { within_tolerance(SMX_F32, "f32"); }

static void f64(void **state) { within_tolerance(SMX_F64, "f64"); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(f32), cmocka_unit_test(f64)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
