/* grad.c - proves that smx_backward of every operator gives the derivative of its reference, for
 * every input with a gradient: in f64 against fourth-order differences of the reference, in f32
 * against f64. Kinks are avoided by rows whose values are all far apart (the kinds below are
 * continuous); hardmax has gradient 0 there, and its straight-through form is compared with
 * softmax. Where a row comes near a kink all the same, differences with a quarter of the step
 * disagree with the first, or the value is 0: such elements are left out, and they are few.
 * Prints the worst error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "unit.h"

static const kind kinds[] = {KIND_NORMAL, KIND_HOLES, KIND_WIDE, KIND_RISING};
static const int64_t lengths[] = {1, 2, 5, 17, 70};

/* In units of the largest upstream gradient plus the largest gradient of the port. */
/* the differences: h = 2^-9, error h^4 / 30 times a fifth derivative */
static const double allowed_f64 = 1e-7;
static const double allowed_f32 = 256 * UNIT_F32; /* weights within 16 units, and sums over a row of such */

static double objective(const problem *p) {
  double *values[SMX_MAX_PORTS] = {NULL}, sum = 0;
  reference_run(p, values);
  for (int i = 0; i < p->op->output_count; i++) {
    for (int64_t k = 0; has_gradient(p, i) && k < port_count(p, &p->op->outputs[i]); k++)
      if (isfinite(values[i][k])) sum += p->dout[i][k] * values[i][k];
    free(values[i]);
  }
  return sum;
}

/* Probabilities lie close together, and what is made of them is made of straight lines with a kink
 * where two are equal. */
static double step_of(const problem *p) {
  return strstr(p->op->inputs[0].help, "probability of a class") ? 0x1p-16 : 0x1p-9;
}

static double derivative(problem *p, double *x, double h) {
  static const double weight[] = {1, -8, 0, 8, -1};
  const double middle = *x;
  double sum = 0;
  for (int i = 0; i < 5; i++) {
    if (i == 2) continue;
    *x = middle + (i - 2) * h;
    sum += weight[i] * objective(p);
  }
  *x = middle;
  return sum / (12 * h);
}

/* The problem whose reference has the gradient that p claims: p itself, but the soft form of a hard
 * sample, and softmax for the straight-through form of hardmax. */
static problem smooth(const problem *p) {
  const smx_op *op = p->op;
  problem q = *p;
  for (int k = 0; k < op->param_count; k++) {
    if (!strcmp(op->params[k].name, "hard")) q.params.value[k] = 0;
    if (strcmp(op->params[k].name, "gradient") || p->params.value[k] != 1) continue;
    q.op = smx_op_find("softmax");
    smx_params_init(q.op, &q.params);
    smx_params_set(q.op, &q.params, "temperature", p->params.value[k + 1]);
  }
  return q;
}

static double largest(const double *v, int64_t count) {
  double m = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(v[i])) m = fmax(m, fabs(v[i]));
  return m;
}

typedef struct worst {
  double error;
  int64_t n;
  int variant, port;
  double got, want;
  int64_t elements, kinks;
} worst;

static void note(worst *w, const problem *p, int port, int variant, double size, double got, double want) {
  double error = fabs(got - want) / size;
  if (isnan(error)) error = INFINITY;
  w->elements++;
  if (error > w->error) *w = (worst){error, p->n, variant, port, got, want, w->elements, w->kinks};
}

/* Whether there is a derivative at all; edge.c looks at rows of NaN. */
static int differentiable(const problem *p) {
  double *values[SMX_MAX_PORTS] = {NULL};
  int nan = 0;
  reference_run(p, values);
  for (int64_t k = 0; k < port_count(p, &p->op->outputs[0]); k++)
    nan |= isnan(values[0][k]) || (isinf(values[0][k]) && p->op->outputs[0].shape == SMX_SHAPE_ROW);
  for (int i = 0; i < p->op->output_count; i++) free(values[i]);
  /* Detached or straight through: a gradient that leaves something out on purpose. */
  return !nan && param_or(p, "detach", 0) == 0 && param_or(p, "straight_through", 0) == 0 &&
         !(p->op->flags & SMX_OP_DETACHED);
}

static void run(problem *p, smx_dtype t) {
  config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
  int forward = problem_run(p, &how, FORWARD), backward = forward ? forward : problem_run(p, &how, BACKWARD);
  if (backward) fail_msg("%s: n %d: status %d: %s", p->op->name, (int)p->n, backward, smx_last_error());
}

/* Elements at -inf have no derivative to speak of: 0, or what comes from above where the operator
 * lets infinity through. */
static double at_infinity(const problem *p, const smx_port *port, int64_t k, double got) {
  int through =
      port->shape == SMX_SHAPE_FULL && p->op->outputs[0].shape == SMX_SHAPE_FULL && got == p->dout[0][k];
  return through ? got : 0;
}

static void against_reference(problem *p, int variant, worst *w) {
  run(p, SMX_F64);
  problem q = smooth(p);
  for (int i = 0; i < p->op->input_count; i++) {
    const smx_port *port = grad_port(p, i);
    if (!port) continue;
    double *got = problem_values(p, port, p->din[i], SMX_F64),
           upstream = largest(p->dout[0], port_count(p, &p->op->outputs[0]));
    double size = upstream + largest(got, port_count(p, port));
    for (int64_t k = 0; k < port_count(p, port); k++) {
      double *x = &q.in[i][k], step = step_of(p),
             want = isfinite(*x) ? derivative(&q, x, step) : at_infinity(p, port, k, got[k]);
      int kink = fabs(got[k] - want) > allowed_f64 * size &&
                 (*x == 0 || fabs(derivative(&q, x, step / 4) - want) > allowed_f64 * size);
      if (kink && *x == 0 && !strcmp(port->name, "soft_target")) continue; /* a mass ends there */
      w->kinks += kink;
      if (!kink) note(w, p, i, variant, size, got[k], want);
    }
    free(got);
  }
}

/* Divergences are differences of logarithms, rounded as they are, and so are scores that are
 * distances: reference.h's 1 + m / 16. */
static double spread(const problem *p) {
  double m = 0;
  for (int i = 0; i < p->op->input_count; i++)
    if (!strcmp(p->op->inputs[i].name, "own"))
      m = largest(p->in[0], p->n) / pow(fmin(param_or(p, "sigma", 1), 0.5), 2);
  for (int i = 0; i < p->op->input_count; i++)
    if (p->in[i] && !strcmp(p->op->inputs[i].name, "teacher"))
      m = fmax(largest(p->in[0], p->n), largest(p->in[i], p->n));
  return m > 0 ? 1 + m / fmin(param_or(p, "temperature", 1), 1) / 16 : 1;
}

static void against_f64(problem *p, int variant, worst *w) {
  double *want[SMX_MAX_PORTS] = {NULL};
  problem_round(p, SMX_F32);
  run(p, SMX_F64);
  for (int i = 0; i < p->op->input_count; i++)
    if (grad_port(p, i)) want[i] = problem_values(p, grad_port(p, i), p->din[i], SMX_F64);
  run(p, SMX_F32);
  for (int i = 0; i < p->op->input_count; i++) {
    const smx_port *port = grad_port(p, i);
    if (!port) continue;
    double *got = problem_values(p, port, p->din[i], SMX_F32),
           upstream = largest(p->dout[0], port_count(p, &p->op->outputs[0]));
    double size = (upstream + largest(want[i], port_count(p, port))) * spread(p);
    for (int64_t k = 0; k < port_count(p, port); k++) note(w, p, i, variant, size, got[k], want[i][k]);
    free(got);
    free(want[i]);
  }
}

static int check(const char *title, void (*against)(problem *p, int variant, worst *w), double allowed) {
  int failures = 0;
  for (size_t o = 0; o < row_op_count(); o++) {
    const smx_op *op = smx_op_at(o);
    if (!(op->flags & SMX_OP_BACKWARD)) continue;
    worst w = {.error = 0};
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int variant = 0; variant < variants_of(op); variant++)
        /* one row a problem: the objective of a row depends on that row only */
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
          problem p;
          problem_make(&p, op, 1, lengths[l], variant,
                       (uint64_t)(lengths[l] * 100) + (uint64_t)variant * 10 + k, &kinds[k], 1);
          if (differentiable(&p)) against(&p, variant, &w);
          problem_free(&p);
        }
    const int kinks = w.kinks * 20 > w.elements;
    const char *mark = kinks ? "  too many kinks" : w.error <= allowed ? "" : "  <--";
    printf("%-24s %s: %9.2g  n %d, variant %d, d%s %.17g, want %.17g%s\n", op->name, title, w.error, (int)w.n,
           w.variant, op->inputs[w.port].name, w.got, w.want, mark);
    failures += !(w.error <= allowed) || kinks;
  }
  return failures;
}

static void f64_is_the_derivative(void **state) {
  assert_int_equal(check("f64 against differences", against_reference, allowed_f64), 0);
}

static void f32_is_near_f64(void **state) {
  assert_int_equal(check("f32 against f64", against_f64, allowed_f32), 0);
}

static void some_operator_has_none_or_says_so(void **state) {
  for (size_t i = 0; i < row_op_count(); i++) {
    const smx_op *op = smx_op_at(i);
    int ports = 0;
    for (int k = 0; k < op->input_count; k++) ports += (op->inputs[k].flags & SMX_PORT_GRAD) != 0;
    assert_int_equal(ports > 0, (op->flags & SMX_OP_BACKWARD) != 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(f64_is_the_derivative),
      cmocka_unit_test(f32_is_near_f64),
      cmocka_unit_test(some_operator_has_none_or_says_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
