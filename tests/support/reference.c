/* reference.c - see reference.h. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"
#include "engine/ref.h"

static row_ref_fn *reference_of(const smx_op *op) {
#define REFS(name, a, b) name##_refs,
  static row_ref_fn *const *const refs[] = {SMX_FAMILIES(REFS, , )};
  int family;
  size_t index;
  return smx_op_place(op, &family, &index) ? refs[family][index] : NULL;
}

/* Where a row starts in the values of a port; start: that far into a FULL one. */
static int64_t place(const problem *p, const smx_port *port, int64_t row, int64_t start) {
  return (port->shape == SMX_SHAPE_COLUMN ? 0 : row * port_length(p, port)) +
         (port->shape == SMX_SHAPE_FULL ? start : 0);
}

/* One row, or the part of it from `start` on, `n` long: what a reference calls a row. */
static void run_part(const problem *p, row_ref_fn *ref, int64_t row, int64_t start, int64_t n,
                     double **values) {
  const double *in[SMX_MAX_PORTS] = {NULL};
  double *out[SMX_MAX_PORTS] = {NULL};
  for (int i = 0; i < p->op->input_count; i++)
    if (p->in[i]) in[i] = p->in[i] + place(p, &p->op->inputs[i], row, start);
  for (int i = 0; i < p->op->output_count; i++) out[i] = values[i] + place(p, &p->op->outputs[i], row, start);
  ref(&(row_ref_call){(size_t)n, in, out, p->params.value});
}

static const double *find_offsets(const problem *p) {
  for (int i = 0; i < p->op->input_count; i++)
    if (p->op->inputs[i].shape == SMX_SHAPE_OFFSETS) return p->in[i];
  return NULL;
}

/* What the rows of a loss count together, and what each row's gradient is multiplied by. */
enum { REDUCE_MEAN = 2 };
static int has_choice(const problem *p, const char *param, const char *choice) {
  for (int k = 0; k < p->op->param_count; k++)
    if (!strcmp(p->op->params[k].name, param) && p->op->params[k].choices)
      return !strcmp(p->op->params[k].choices[(int)p->params.value[k]], choice);
  return 0;
}
/* The second set of two that a mean takes apart: rows with a whole number other than 0. */
static int in_other_set(const problem *p, int64_t r) {
  const double *set = NULL;
  for (int i = 0; i < p->op->input_count; i++)
    if (p->op->inputs[i].flags & SMX_PORT_INT) set = p->in[i];
  return set && has_choice(p, "sets", "apart") && set[r] != 0;
}
static double kept(const problem *p, int64_t r) {
  const double *mask = NULL, *length = NULL;
  double count = 0;
  for (int i = 0; i < p->op->input_count; i++) {
    if (p->op->inputs[i].flags & SMX_PORT_MASK) mask = p->in[i];
    if (p->op->inputs[i].flags & SMX_PORT_INT) length = p->in[i];
  }
  for (int64_t k = 0; k < p->n; k++)
    if (!mask || mask[r * p->n + k] != 0) count += !length || (double)k < length[r];
  return count;
}
/* Of the set that row `of` is in. */
static double total(const problem *p, int64_t of) {
  const double *target = NULL, *weight = NULL;
  double sum = 0;
  for (int i = 0; i < p->op->input_count; i++) {
    if (p->op->inputs[i].flags & SMX_PORT_TARGET) target = p->in[i];
    if (p->op->inputs[i].flags & SMX_PORT_WEIGHT) weight = p->in[i];
  }
  for (int64_t r = 0; r < p->rows; r++) {
    int ignored = target && target[r] == param_or(p, "ignore_index", -100);
    if (in_other_set(p, r) != in_other_set(p, of)) continue;
    if (has_choice(p, "over", "all")) sum += kept(p, r);
    else sum += ignored ? 0 : weight && target ? weight[(int64_t)target[r]] : 1;
  }
  return sum;
}

static double share(const problem *p, int64_t row) {
  if (param_or(p, "reduction", 0) < REDUCE_MEAN) return 1;
  const double sum = total(p, row);
  return sum == 0 ? 0 : 1 / sum;
}

static void reduce(const problem *p, double **values) {
  double reduction = param_or(p, "reduction", 0);
  for (int i = 0; i < p->op->output_count; i++) {
    const smx_port *port = &p->op->outputs[i];
    for (int64_t r = 0; r < p->rows && port->flags & SMX_PORT_DX; r++) {
      const double by = share(p, r);
      for (int64_t k = 0; k < p->n; k++) values[i][r * p->n + k] *= by;
    }
    if (port->shape != SMX_SHAPE_SCALAR) continue;
    double sum = 0, count = 0; /* of the first output, which then has one value a row */
    for (int64_t r = 0; r < p->rows; r++)
      if (reduction < REDUCE_MEAN || total(p, r) != 0) sum += values[0][r] * share(p, r);
    for (int64_t r = 0; r < p->rows; r++) count += total(p, r);
    values[i][0] = reduction < REDUCE_MEAN || count != 0 ? sum : reduction == REDUCE_MEAN ? NAN : 0;
  }
}

void reference_run(const problem *p, double **values) {
  row_ref_fn *ref = reference_of(p->op);
  const double *offsets = find_offsets(p);
  for (int i = 0; i < p->op->output_count; i++)
    if (!(values[i] = malloc(((size_t)port_count(p, &p->op->outputs[i]) + 1) * sizeof(double)))) abort();
  for (int64_t r = 0; r < p->rows; r++) {
    if (!offsets) run_part(p, ref, r, 0, p->n, values);
    for (int64_t s = 0; offsets && s < p->segments; s++)
      run_part(p, ref, r, (int64_t)offsets[s], (int64_t)(offsets[s + 1] - offsets[s]), values);
  }
  reduce(p, values);
}

void reference_free(const problem *p, double **values) {
  for (int i = 0; i < p->op->output_count; i++) free(values[i]);
}

/* The largest finite |v| of a row of a port, times the length of the row for a slope; 0 when the
 * port is absent. */
static double largest(const problem *p, const char *name, int64_t row) {
  double m = 0;
  for (int k = 0; k < p->op->input_count; k++) {
    if (strcmp(p->op->inputs[k].name, name) || !p->in[k]) continue;
    int64_t length = port_length(p, &p->op->inputs[k]);
    for (int64_t i = row * length; i < (row + 1) * length; i++)
      if (isfinite(p->in[k][i])) m = fmax(m, fabs(p->in[k][i]));
  }
  return m;
}

/* The largest score that an operator with a bias, or the logarithm of a prior, can have rounded. */
static double largest_sum(const problem *p, int64_t row) {
  for (int i = 0; i < p->op->input_count; i++) {
    const char *name = p->op->inputs[i].name;
    if (!strcmp(name, "prior")) return largest(p, "x", row) + 2 * param_or(p, "tau", 0);
    /* x over a temperature that is itself rounded */
    if (!strcmp(name, "time") && !isnan(param_or(p, "beta", NAN)))
      return largest(p, "x", row) /
             fmax(param_or(p, "tau_max", 1) * exp(-param_or(p, "rate", 0) * p->in[i][row]), 1e-6);
    if (!strcmp(name, "bias"))
      return fabs(param_or(p, "scale", 1)) * largest(p, "x", row) + largest(p, "bias", row) +
             largest(p, "slope", row) * (double)p->n;
  }
  return 0;
}

static double growth(const problem *p, int64_t row, smx_dtype t) {
  double sum = largest_sum(p, row), wide = t.bits == 64;
  if (sum * (wide ? 0x1p-53 : 0x1p-24) > 0x1p-5) return INFINITY;
  return (1 + sum / 16) * (wide ? 1 + (double)p->n / 4096 : 1);
}

scale scale_of_row(const problem *p, const smx_port *port, int64_t row, smx_dtype t, const double *want) {
  scale s = {.whole = (port->flags & SMX_PORT_INT) != 0,
             .relative = port->shape == SMX_SHAPE_FULL && !strstr(port->help, "logarithm") &&
                         !strstr(port->help, "standardised") && !strstr(port->help, "as a vector") &&
                         !(port->flags & SMX_PORT_DX),
             .growth = growth(p, row, t),
             .type = t};
  /* a weight next to its threshold, which is a double */
  if (t.bits == 64 && (!isnan(param_or(p, "budget", NAN)) || !strcmp(p->op->name, "entmax"))) s.floor = 1;
  s.row = fmax(largest(p, "x", row), p->n > 0 ? log((double)p->n) : 0);
  for (int64_t r = 0; port->shape == SMX_SHAPE_SCALAR && r < p->rows; r++)
    s.row = fmax(s.row, largest(p, "x", r)), s.growth = fmax(s.growth, growth(p, r, t));
  if (s.whole && isfinite(param_or(p, "softcap", INFINITY))) s.growth = INFINITY;
  if (!(port->flags & SMX_PORT_DX)) return s;
  s.row = share(p, row);
  for (int64_t i = row * p->n; i < (row + 1) * p->n; i++)
    if (isfinite(want[i])) s.row = fmax(s.row, fabs(want[i]));
  return s;
}

double distance(scale s, double got, double want, double unit) {
  if (s.whole) return got == want || isinf(s.growth) ? 0 : INFINITY;
  double tiny =
      /* a little more than the smallest normal: the flush compares rounded numbers */
      s.type.bits == 64 ? 0x1.01p-1022 : 0x1.01p-126;
  if (got == dtype_round(s.type, want) || (isnan(got) && isnan(want))) return 0;
  if (isnan(got) || isnan(want) || isinf(got) || isinf(want)) return INFINITY;
  if (got == 0 && fabs(want) < 4 * tiny) return 0;
  if (s.relative && s.type.bits == 64) s.growth *= 1 - log(fmin(fabs(want), 1)) / 64;
  return fabs(got - want) / (unit * s.growth * fmax(fmax(fabs(want), tiny), s.relative ? s.floor : s.row));
}
