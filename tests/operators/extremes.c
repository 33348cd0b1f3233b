/* extremes.c - walks every parameter of every operator to both ends of its range, over flat rows,
 * ties, neighbours, one score just above the others, scores far from 0 and ordinary rows of several
 * lengths, and proves that there too, in f32:
 *   - results stay within the operator's tolerance of the double reference (reference.h says
 *     in which units);
 *   - weights sum to 1 where those of the reference do;
 *   - gradients agree with those that the library gives in f64 for the same inputs and the same
 *     saved outputs.
 * Gradients count in units of the largest upstream gradient plus the largest gradient of the row.
 * What a parameter amplifies counts in units that grow with it (amplification). */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "unit.h"

static const int64_t lengths[] = {1, 2, 3, 17, 300, 8300}; /* the last: two groups */

/* ---- rows ---- */

enum { FLAT_ZERO, FLAT, TIES, NEAR, LEADER, FAR, ORDINARY, ROWS };
static const char *const row_names[ROWS] = {"zeros",  "flat", "ties",    "neighbours",
                                            "leader", "far",  "ordinary"};

/* Element i of n. */
static double score(rng *r, int row, int64_t i, int64_t n) {
  if (row == FLAT_ZERO) return 0;
  if (row == LEADER) return i == n / 2 ? 0x1p-10 : 0;
  if (row == FAR) return 1e4 + (double)rng_below(r, 3);
  if (row == FLAT) return 3.5;
  if (row == TIES) return (double)rng_below(r, 3);
  return row == NEAR ? 3 + 0.1 * rng_normal(r) : 2 * rng_normal(r);
}

/* Divergences that are exact however even both rows are: their results are of the size of logits
 * at any temperature, if each class that one row has is in the other. */
static bool distils(const smx_op *op) {
  static const char *const names[] = {"knowledge_distillation", "decoupled_kd", "standardised_kd",
                                      "standardised_dkd"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (!strcmp(op->name, names[i])) return true;
  return false;
}

/* The problem of such rows. What is not a row of scores is as problem_make has it. */
static void make(problem *p, const smx_op *op, int64_t n, uint64_t seed, int variant) {
  static const kind ordinary[] = {KIND_NORMAL};
  problem_make(p, op, ROWS, n, variant, seed, ordinary, 1);
  rng r = {seed};
  if (!strstr(op->inputs[0].help, "probability") && !(op->inputs[0].flags & (SMX_PORT_INT | SMX_PORT_MASK)))
    for (int64_t i = 0; i < ROWS * n; i++) p->in[0][i] = score(&r, (int)(i / n), i % n, n);
  for (int64_t i = 0; distils(op) && i < ROWS * n; i++)
    if (isinf(p->in[1][i])) p->in[1][i] = -2;
  problem_round(p, SMX_F32);
}

/* ---- ends ---- */

/* The ends of a parameter, and a step from each. */
enum { ENDS = 4 };
static double end_of(const smx_param *param, int end) {
  const bool whole = param->flags & SMX_PARAM_INT, open = param->flags & SMX_PARAM_OPEN_MIN;
  const double min = isfinite(param->min) ? param->min : -1e30,
               max = isfinite(param->max) ? param->max : 1e30;
  const double step = whole ? (param->flags & SMX_PARAM_EVEN ? 2 : 1)
                            : (param->max - param->min < 100 ? (param->max - param->min) / 64 : 1e-3);
  const double ends[ENDS] = {open ? min + (whole ? 1 : 1e-6) : min, open ? min + 2 * step : min + step,
                             max - step, max};
  return ends[end];
}

/* Of operators that divide a row by its spread: the reciprocal of that of x, at least 1. */
static double narrowness(const problem *p, int64_t row) {
  static const char *const names[] = {"power_softmax", "sa_softmax", "z_loss", "standardised_kd",
                                      "standardised_dkd"};
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < COUNT_OF(names); i++)
    for (int64_t k = row * p->n; !strcmp(p->op->name, names[i]) && k < (row + 1) * p->n; k++)
      if (isfinite(p->in[0][k])) low = fmin(low, p->in[0][k]), high = fmax(high, p->in[0][k]);
  if (!strcmp(p->op->name, "power_softmax") || !strcmp(p->op->name, "sa_softmax"))
    low = fmin(low, 0), high = fmax(high, 0);
  return high > low ? fmax(1, 1 / (high - low)) : 1;
}

/* By how much rounding of weights shows where a parameter divides scores, or multiplies results or
 * differences, or where a row is narrow. */
static double amplification(const problem *p, int64_t row) {
  static const char *const names[] = {
      "temperature", "beta", "gamma",   "rate",    "sigma",  "eps",    "c4",
      "theta",       "tau",  "tau_max", "between", "of_old", "of_new", "teacher_temperature"};
  const double alpha = strstr(p->op->name, "max")
                           ? 1
                           : fabs(param_or(p, "alpha", 1)); /* a weight, but for entmax and its kin */
  double most = fmax(narrowness(p, row), alpha * alpha);
  const bool even = distils(p->op);
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    const double v = fabs(param_or(p, names[i], 1));
    if (even && !strcmp(names[i], "temperature") && v > 1) continue;
    if (v > 0 && isfinite(v)) most = fmax(most, fmax(v * v, 1 / v));
  }
  return most;
}

static double alpha_of(const problem *p) {
  return !strcmp(p->op->name, "entmax15") ? 1.5 : strstr(p->op->name, "entmax") ? param_or(p, "alpha", 1) : 1;
}

/* How far a weight next to the threshold may be from the reference: y = v^(1 / (alpha - 1)), and v
 * is known to 2^-46. */
static double near_threshold(const problem *p) {
  const double alpha = alpha_of(p);
  return alpha > 2 ? pow(0x1p-46, 1 / (alpha - 1)) : 0;
}

/* The slopes of weights by the threshold, y^(2 - alpha), as shares of their sum. A threshold is
 * as exact as the sum of the weights, so a weight is exact to so much of a unit. NULL: no
 * threshold. */
static double *slope_shares(const problem *p, const double *y, int64_t n) {
  const double alpha = alpha_of(p);
  if (!(alpha > 1 && alpha <= 2)) return NULL;
  double *share = calloc((size_t)n + 1, sizeof *share), sum = 0;
  if (!share) abort();
  for (int64_t k = 0; k < n; k++) sum += share[k] = y[k] > 0 ? pow(y[k], 2 - alpha) : 0;
  for (int64_t k = 0; k < n && sum > 0; k++) share[k] /= sum;
  return share;
}

/* ---- what is compared ---- */

typedef struct worst {
  double error;
  int64_t n;
  int row, param, end;
  double got, want;
} worst;

static void note(worst *w, worst found) {
  if (!(found.error <= w->error)) *w = found;
}

static void run(problem *p, smx_dtype t, direction d) {
  config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
  int status = problem_run(p, &how, d);
  if (status) fail_msg("%s: n %d: status %d: %s", p->op->name, (int)p->n, status, smx_last_error());
}

static void against_reference(problem *p, worst at, worst *values, worst *sums) {
  double *want[SMX_MAX_PORTS] = {NULL};
  reference_run(p, want);
  for (int i = 0; i < p->op->output_count; i++) {
    const smx_port *port = &p->op->outputs[i];
    double *got = problem_values(p, port, p->out[i], SMX_F32);
    for (int64_t row = 0; row < (port->shape == SMX_SHAPE_SCALAR ? 1 : p->rows); row++) {
      scale s = scale_of_row(p, port, row, SMX_F32, want[i]);
      const int64_t length = port_length(p, port);
      double sum = 0, expected = 0;
      at.row = (int)row;
      double *shares = i == 0 && s.relative ? slope_shares(p, want[i] + row * length, length) : NULL;
      const double amplified = amplification(p, row), near = near_threshold(p);
      for (int64_t k = row * length; k < (row + 1) * length; k++) {
        if (shares) s.floor = shares[k - row * length];
        at.error = distance(s, got[k], want[i][k], UNIT_F32) / amplified;
        at.got = got[k], at.want = want[i][k];
        if (!(fabs(got[k] - want[i][k]) < near)) note(values, at);
        sum += got[k], expected += want[i][k];
      }
      free(shares);
      if (i > 0 || port->shape != SMX_SHAPE_FULL || !s.relative || !(fabs(expected - 1) <= 1e-9 + near))
        continue;
      at.error = fabs(sum - 1) / UNIT_F32, at.got = sum, at.want = 1;
      note(sums, at);
    }
    free(got);
    free(want[i]);
  }
}

static double largest(const double *v, int64_t count) {
  double m = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(v[i])) m = fmax(m, fabs(v[i]));
  return m;
}

/* Gives p the saved outputs that q has. */
static void borrow(problem *p, const problem *q, smx_dtype t, smx_dtype q_type) {
  for (int i = 0; i < p->op->output_count; i++) {
    const smx_port *port = &p->op->outputs[i];
    if (!q->out[i] || port->flags & SMX_PORT_INT) continue;
    double *v = problem_values(q, port, q->out[i], q_type);
    dtype_store_many(t, p->out[i], (int64_t)dtype_size(t), v, port_count(p, port));
    free(v);
  }
}

static void against_f64(problem *p, worst at, worst *w) {
  problem q = *p;
  memset(q.out, 0, sizeof q.out), memset(q.din, 0, sizeof q.din);
  run(p, SMX_F32, BACKWARD);
  run(&q, SMX_F64, FORWARD);
  borrow(&q, p, SMX_F64, SMX_F32);
  run(&q, SMX_F64, BACKWARD);
  for (int i = 0; i < p->op->input_count; i++) {
    const smx_port *port = grad_port(p, i);
    if (!port) continue;
    double *got = problem_values(p, port, p->din[i], SMX_F32),
           *want = problem_values(&q, port, q.din[i], SMX_F64);
    const int64_t length = port_length(p, port), outs = port_length(p, &p->op->outputs[0]);
    for (int64_t row = 0; row < p->rows; row++) {
      const double growth = scale_of_row(p, &p->op->outputs[0], row, SMX_F32, NULL).growth;
      const double size = (largest(p->dout[0] + row * outs, outs) + largest(want + row * length, length)) *
                          growth * amplification(p, row);
      at.row = (int)row;
      for (int64_t k = row * length; k < (row + 1) * length; k++) {
        if (fabs(want[k]) > 3e38) continue; /* no float */
        at.error = fabs(got[k] - want[k]) / (size * UNIT_F32), at.got = got[k], at.want = want[k];
        if (got[k] == want[k] || (isnan(got[k]) && isnan(want[k]))) continue;
        if (isnan(at.error)) at.error = INFINITY;
        note(w, at);
      }
    }
    free(got);
    free(want);
  }
  for (int i = 0; i < SMX_MAX_PORTS; i++) free(q.out[i]), free(q.din[i]);
}

/* ---- the walk ---- */

static int show(const smx_op *op, const char *what, worst w, double allowed) {
  const int bad = !(w.error <= allowed);
  if (bad || getenv("SMX_TEST_SHOW"))
    printf("%-28s %-9s %10.3g of %g  n %d, %s, %s = %.9g: %.9g, want %.9g%s\n", op->name, what, w.error,
           allowed, (int)w.n, row_names[w.row], w.param < 0 ? "defaults" : op->params[w.param].name,
           w.param < 0 ? 0 : end_of(&op->params[w.param], w.end), w.got, w.want, bad ? "  <--" : "");
  return bad;
}

typedef struct found {
  worst values, sums, gradients;
} found;

/* Whether a parameter says how long an input or an output is, which problem_make has set. */
static bool sizes_port(const smx_op *op, const char *name) {
  for (int o = 0; o < op->output_count; o++)
    if (op->outputs[o].shape == SMX_SHAPE_K && !strcmp(name, "k")) return true;
  for (int i = 0; i < op->input_count; i++)
    if (op->inputs[i].shape == SMX_SHAPE_K && !strcmp(name, "k")) return true;
  return false;
}

/* Rows of more than a group: operators on rows alone, whose references are quick. */
static bool looked_at(const smx_op *op, int64_t n) {
  return problem_possible(op, n) && (n < 1000 || !strcmp(op->family, "row"));
}

/* The largest value that a parameter has here: no more elements than there are. A draw of k takes k
 * steps through k others (relaxed_khot: a minute for all of 300), and 40 take the same ways. */
static double most_of(const problem *p, const smx_param *at) {
  if (!strcmp(p->op->family, "sample") && !strcmp(at->name, "k") && p->n > 40) return 40;
  return at->flags & SMX_PARAM_MAX_N ? (double)p->n : INFINITY;
}

/* Sets a parameter to an end; targets that were ignored still are. False where there is no such
 * value. */
static bool set_end(problem *p, int param, int end) {
  const smx_param *at = &p->op->params[param];
  const double most = most_of(p, at), before = param_or(p, "ignore_index", -100);
  if (smx_params_set(p->op, &p->params, at->name, fmin(end_of(at, end), most))) return false;
  for (int i = 0; i < p->op->input_count; i++)
    for (int64_t r = 0; p->in[i] && p->op->inputs[i].flags & SMX_PORT_TARGET && r < p->rows; r++)
      if (p->in[i][r] == before) p->in[i][r] = param_or(p, "ignore_index", -100);
  return true;
}

static void look(const smx_op *op, int64_t n, int param, int end, int variant, found *f) {
  problem p;
  make(&p, op, n, (uint64_t)n + 1, variant);
  if (param >= 0 && !set_end(&p, param, end)) {
    problem_free(&p);
    return;
  }
  worst at = {.n = n, .param = param, .end = end};
  run(&p, SMX_F32, FORWARD);
  against_reference(&p, at, &f->values, &f->sums);
  if (op->flags & SMX_OP_BACKWARD) against_f64(&p, at, &f->gradients);
  problem_free(&p);
}

static void every_parameter_to_its_ends(void **state) {
  int failures = 0;
  const char *only = getenv("SMX_TEST_ONLY");
  for (size_t o = 0; o < row_op_count(); o++) {
    const smx_op *op = smx_op_at(o);
    if (only && strcmp(only, op->name)) continue;
    found f = {.values = {.param = -1}, .sums = {.param = -1}, .gradients = {.param = -1}};
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
      if (!looked_at(op, lengths[l])) continue;
      look(op, lengths[l], -1, 0, 0, &f);
      for (int param = 0; param < op->param_count; param++)
        for (int end = 0; end < ENDS && !sizes_port(op, op->params[param].name);
             end += lengths[l] < 1000 ? 1 : 3)
          look(op, lengths[l], param, end, 0, &f);
    }
    failures += show(op, "values", f.values, op->tolerance * (f.values.n > 8193 ? 2 : 1)) +
                show(op, "sum", f.sums, 64) + show(op, "gradient", f.gradients, 256);
  }
  assert_int_equal(failures, 0);
}

/* ---- numbers next to 0, and very large ones ---- */

static const double near_ends[] = {5e-324,  1e-310,  DBL_MIN, 1e-300, 1.4e-45, 1e-40,
                                   2.9e-39, FLT_MIN, 1e-37,   1e38,   1e300,   DBL_MAX};

/* NaN in what a call gives, and places that are none. */
static int64_t nothings(const problem *p, smx_dtype t, direction d) {
  int64_t count = 0;
  for (int i = 0; i < (d == FORWARD ? p->op->output_count : p->op->input_count); i++) {
    const smx_port *port = d == FORWARD ? &p->op->outputs[i] : grad_port(p, i);
    if (!port || !(d == FORWARD ? p->out[i] : p->din[i])) continue;
    double *v = problem_values(p, port, d == FORWARD ? p->out[i] : p->din[i], t);
    for (int64_t k = 0; k < port_count(p, port); k++)
      count += isnan(v[k]) || (port->flags & SMX_PORT_INT && port->shape == SMX_SHAPE_ROW && v[k] < 0);
    free(v);
  }
  return count;
}

/* Of a call with a parameter (-1: none) at some value: nothings of each direction, or -1 where the
 * value is refused in words that name it. */
static int64_t nothings_at(const smx_op *op, smx_dtype t, int param, double value, direction d) {
  problem p;
  make(&p, op, 17, 3, 0);
  int64_t count = -1;
  if (param >= 0 && smx_params_set(op, &p.params, op->params[param].name, value)) {
    if (!strstr(smx_last_error(), op->params[param].name)) fail_msg("%s: %s", op->name, smx_last_error());
  } else {
    run(&p, t, FORWARD);
    if (d == BACKWARD) run(&p, t, BACKWARD);
    count = nothings(&p, t, d);
  }
  problem_free(&p);
  return count;
}

/* What divides, above all: a value is refused, or the limit is given. */
static void no_parameter_gives_nan_silently(void **state) {
  int failures = 0;
  for (size_t o = 0; o < row_op_count(); o++) {
    const smx_op *op = smx_op_at(o);
    for (int c = 0; c < 4; c++) {
      const smx_dtype t = c & 1 ? SMX_F64 : SMX_F32;
      const direction d = c & 2 ? BACKWARD : FORWARD;
      if (d == BACKWARD && !(op->flags & SMX_OP_BACKWARD)) continue;
      const int64_t usual = nothings_at(op, t, -1, 0, d);
      for (int param = 0; param < op->param_count; param++)
        for (size_t i = 0; i < COUNT_OF(near_ends) && !(op->params[param].flags & SMX_PARAM_INT); i++) {
          const int64_t count = nothings_at(op, t, param, near_ends[i], d);
          if (count <= usual) continue;
          printf("%s: %s = %g, f%d %s: %d of NaN or -1, %d by default\n", op->name, op->params[param].name,
                 near_ends[i], t.bits, d == FORWARD ? "forward" : "backward", (int)count, (int)usual);
          failures++;
        }
    }
  }
  assert_int_equal(failures, 0);
}

/* Flat rows whose threshold is out of the range of a float. */
static void flat_rows_of_entmax_stay_on_the_simplex(void **state) {
  static const struct {
    int64_t n;
    double alpha;
  } cases[] = {{17000, 10}, {100000, 9}, {100000, 10}, {3000000, 6.5}};
  const smx_op *op = smx_op_find("entmax");
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    int64_t shape[] = {cases[i].n};
    float *x = calloc((size_t)shape[0], sizeof *x), *y = malloc((size_t)shape[0] * sizeof *y);
    smx_tensor in = {x, {1, 0}, 1, SMX_F32, shape, NULL, 0}, out = {y, {1, 0}, 1, SMX_F32, shape, NULL, 0};
    const smx_tensor *ins[] = {&in}, *outs[] = {&out};
    smx_params q;
    smx_params_init(op, &q);
    assert_int_equal(smx_params_set(op, &q, "alpha", cases[i].alpha), 0);
    assert_int_equal(smx_forward(op, NULL, &q, 1, ins, 1, outs), 0);
    double sum = 0;
    for (int64_t k = 0; k < shape[0]; k++) sum += (double)y[k];
    if (!(fabs(sum - 1) < 1e-5))
      fail_msg("n %d, alpha %g: the sum is %.9g", (int)shape[0], cases[i].alpha, sum);
    free(x);
    free(y);
  }
}

/* Weights next to the threshold, whose slopes are steep. */
static void gradients_of_steep_weights(void **state) {
  static const float x[] = {3.2340748f, 3.0723085f, 3.054077f}, dy[] = {.73270774f, .47175202f, .50848526f};
  const smx_op *op = smx_op_find("entmax");
  int64_t shape[] = {3};
  for (double alpha = 4; alpha <= 10; alpha += 0.5) {
    float y[3], dx[3];
    smx_tensor in = {(void *)(uintptr_t)x, {1, 0}, 1, SMX_F32, shape, NULL, 0},
               out = {y, {1, 0}, 1, SMX_F32, shape, NULL, 0};
    smx_tensor up = {(void *)(uintptr_t)dy, {1, 0}, 1, SMX_F32, shape, NULL, 0},
               down = {dx, {1, 0}, 1, SMX_F32, shape, NULL, 0};
    const smx_tensor *ins[] = {&in}, *outs[] = {&out}, *ups[] = {&up}, *downs[] = {&down};
    smx_params q;
    smx_params_init(op, &q);
    assert_int_equal(smx_params_set(op, &q, "alpha", alpha), 0);
    assert_int_equal(smx_forward(op, NULL, &q, 1, ins, 1, outs), 0);
    assert_int_equal(smx_backward(op, NULL, &q, 1, ins, 1, outs, ups, downs), 0);
    const double sum = (double)dx[0] + (double)dx[1] + (double)dx[2],
                 most = fmax(fabs((double)dx[0]), fabs((double)dx[1]));
    if (!(fabs(sum) <= 1e-5 * most))
      fail_msg("alpha %g: %.9g %.9g %.9g", alpha, (double)dx[0], (double)dx[1], (double)dx[2]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_parameter_to_its_ends),
      cmocka_unit_test(no_parameter_gives_nan_silently),
      cmocka_unit_test(flat_rows_of_entmax_stay_on_the_simplex),
      cmocka_unit_test(gradients_of_steep_weights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
