/* problem.c - see problem.h. */
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kind_names[KINDS] = {"normal",  "holes", "ties", "wide", "rising",
                                       "shifted", "huge",  "nan",  "inf",  "empty"};

static void *allocate(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

int64_t port_count(const problem *p, const smx_port *port) {
  if (port->shape == SMX_SHAPE_OFFSETS) return p->segments + 1;
  if (port->shape == SMX_SHAPE_SCALAR) return 1;
  return (port->shape == SMX_SHAPE_COLUMN ? 1 : p->rows) * port_length(p, port);
}

int64_t port_length(const problem *p, const smx_port *port) {
  if (port->shape == SMX_SHAPE_ROW || port->shape == SMX_SHAPE_SCALAR) return 1;
  for (int k = 0; port->shape == SMX_SHAPE_K && k < p->op->param_count; k++)
    if (!strcmp(p->op->params[k].name, "k")) return (int64_t)p->params.value[k];
  return p->n;
}

smx_dtype port_dtype(const smx_port *port, smx_dtype t) { return port->flags & SMX_PORT_INT ? SMX_I64 : t; }

int has_gradient(const problem *p, int o) {
  const smx_port *port = &p->op->outputs[o];
  return o < 4 && !(port->flags & (SMX_PORT_INT | SMX_PORT_DX)) && port->shape != SMX_SHAPE_SCALAR;
}

double param_or(const problem *p, const char *name, double otherwise) {
  for (int k = 0; k < p->op->param_count; k++)
    if (!strcmp(p->op->params[k].name, name)) return p->params.value[k];
  return otherwise;
}

const smx_port *grad_port(const problem *p, int i) {
  return p->in[i] && p->op->inputs[i].flags & SMX_PORT_GRAD ? &p->op->inputs[i] : NULL;
}

/* ---- values ---- */

static void scores(rng *r, double *x, int64_t n, kind k) {
  static const double deviation[KINDS] = {5, 5, 1, 60, 0, 5, 1e30, 5, 5, 5};
  static const double centre[KINDS] = {[KIND_SHIFTED] = 1e4, [KIND_HUGE] = 1e30};
  for (int64_t i = 0; i < n; i++) {
    x[i] = centre[k] + deviation[k] * rng_normal(r);
    if (k == KIND_TIES) x[i] = (double)(int)x[i];
    if (k == KIND_RISING) x[i] = -100 + 200 * (double)i / (double)n;
    if (k == KIND_EMPTY || (k == KIND_HOLES && rng_below(r, 4) == 0)) x[i] = -INFINITY;
  }
  if (n > 0 && k == KIND_NAN) x[rng_below(r, n)] = NAN;
  if (n > 0 && k == KIND_INF) x[rng_below(r, n)] = INFINITY;
}

static void masks(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = rng_below(r, 4) != 0;
}

static void row_values(rng *r, const problem *p, const smx_port *port, double *x) {
  int position = !strcmp(port->name, "position"), slope = !strcmp(port->name, "slope"),
      quantile = strstr(port->help, "quantile") != NULL;
  for (int64_t i = 0; i < p->rows; i++) {
    x[i] = (slope ? 0.0625 : 1) * ((quantile ? 0 : 0.5) + rng_uniform(r));
    if (position) x[i] = p->n > 0 ? (double)rng_below(r, p->n < 2048 ? p->n : 2048) : 0;
  }
}

/* Elements of the row. */
static void indices(rng *r, const problem *p, const smx_port *port, double *x) {
  for (int64_t i = 0; i < port_count(p, port); i++) x[i] = p->n > 0 ? (double)rng_below(r, p->n) : 0;
}

/* Classes, one row in eight without one. */
static void classes(rng *r, const problem *p, double *x) {
  for (int64_t i = 0; i < p->rows; i++)
    x[i] = p->n > 0 && rng_below(r, 8) ? (double)rng_below(r, p->n) : param_or(p, "ignore_index", -100);
}

/* Masses of classes, half of them 0. */
static void masses(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = rng_below(r, 2) ? rng_uniform(r) : 0;
}

/* Levels of a tree: few whole numbers, so that many are equal. */
static void levels(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = (double)rng_below(r, 3);
}

/* Evenly spaced, from n to 1. */
static void steps(const problem *p, double *x) {
  for (int64_t i = 0; i < p->rows * p->n; i++) x[i] = (double)(p->n - i % p->n);
}

static void probabilities(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = rng_uniform(r);
}

static void positives(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = 0.25 + rng_uniform(r);
}

/* Log-probabilities of answers: ordinary ones are below 0. */
static void below_zero(double *x, int64_t n, kind k) {
  for (int64_t i = 0; i < n && k <= KIND_WIDE; i++) x[i] = -fabs(x[i]);
}

/* What x is compared with: half a unit away. */
static void near(rng *r, const problem *p, const smx_port *port, double *x) {
  for (int64_t i = 0; i < port_count(p, port); i++) {
    const double by = p->in[0][i];
    x[i] = 0.5 * rng_normal(r) + (isfinite(by) ? by : 0);
  }
}

/* Of either sign. */
static void normals(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = rng_normal(r);
}

/* Whole, from 0 on. */
static void counts(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = (double)rng_below(r, 100);
}

static void offsets(rng *r, const problem *p, double *x) {
  for (int64_t s = 0; s <= p->segments; s++)
    x[s] = s == p->segments ? (double)p->n : s == 0 ? 0 : (double)rng_below(r, p->n + 1);
  for (int64_t s = 1; s < p->segments; s++) /* a few: insertion sort */
    for (int64_t t = s; t > 1 && x[t - 1] > x[t]; t--) {
      double swap = x[t];
      x[t] = x[t - 1];
      x[t - 1] = swap;
    }
}

static void port_values(rng *r, problem *p, int i, const kind *kinds, int kind_count) {
  static const kind auxiliary[] = {KIND_NORMAL, KIND_HOLES};
  const smx_port *port = &p->op->inputs[i];
  double *x = p->in[i];
  if (port->flags & SMX_PORT_MASK) masks(r, x, port_count(p, port));
  else if (port->shape == SMX_SHAPE_OFFSETS) offsets(r, p, x);
  else if (port->flags & SMX_PORT_TARGET) classes(r, p, x);
  else if (strstr(port->help, "near x")) near(r, p, port, x);
  else if (strstr(port->help, "advantage")) normals(r, x, port_count(p, port));
  else if (strstr(port->help, "how many samples")) counts(r, x, port_count(p, port));
  else if (strstr(port->help, "level of")) levels(r, x, port_count(p, port));
  else if (strstr(port->help, "evenly spaced")) steps(p, x);
  else if (port->flags & SMX_PORT_INT) indices(r, p, port, x);
  else if (strstr(port->help, "probability of a class")) probabilities(r, x, port_count(p, port));
  else if (!strcmp(port->name, "soft_target") ||
           (!strcmp(port->name, "weight") && port->shape == SMX_SHAPE_FULL))
    masses(r, x, port_count(p, port));
  else if (port->shape == SMX_SHAPE_COLUMN) positives(r, x, p->n);
  else if (port->shape == SMX_SHAPE_ROW) row_values(r, p, port, x);
  else
    for (int64_t row = 0, length = port_length(p, port); row < p->rows; row++) {
      const kind k = i == 0 ? kinds[row % kind_count] : auxiliary[row % 2];
      scores(r, x + row * length, length, k);
      if (strstr(port->help, "summed")) below_zero(x + row * length, length, k);
    }
}

int problem_possible(const smx_op *op, int64_t n) {
  for (int k = 0; k < op->param_count; k++)
    if (op->params[k].flags & SMX_PARAM_MAX_N && (double)n < op->params[k].min) return 0;
  return 1;
}

/* How many parameters there were at first: in losses up to `reduction`, in others so many. */
static int first_params(const smx_op *op) {
  static const struct {
    const char *name;
    int count;
  } grown[] = {{"soft_thinking_noise", 4}, {"soft_thinking_token", 10}};
  for (size_t i = 0; i < COUNT_OF(grown); i++)
    if (!strcmp(op->name, grown[i].name)) return grown[i].count;
  for (int k = 0; k < op->param_count; k++)
    if (!strcmp(op->params[k].name, "reduction")) return k + 1;
  return op->param_count;
}

int variants_of(const smx_op *op) {
  return VARIANTS + (first_params(op) < op->param_count ? LATER_VARIANTS : 0);
}

/* Inputs that an operator got later: the first variants leave them alone too. */
static int came_later(const smx_op *op, const smx_port *port) {
  static const char *const later[][2] = {{"multiclass_hinge_loss", "class_weight"}};
  for (size_t i = 0; i < COUNT_OF(later); i++)
    if (!strcmp(op->name, later[i][0]) && !strcmp(port->name, later[i][1])) return 1;
  return 0;
}

/* Takes from a list of likely values the first that each parameter accepts, starting elsewhere for
 * every variant; an even number where it must be one. Later choices are taken in turn. */
static void set_params(problem *p, int variant) {
  static const double likely[] = {0.7, 3, 0, -2.5, 0.3, INFINITY, 1.5, 1};
  int count = (int)COUNT_OF(likely), first = first_params(p->op);
  smx_params_init(p->op, &p->params);
  for (int k = 0; variant > 0 && k < (variant < VARIANTS ? first : p->op->param_count); k++) {
    const char *name = p->op->params[k].name;
    if (k >= first && p->op->params[k].choices) {
      smx_params_set(p->op, &p->params, name, variant % ((int)p->op->params[k].max + 1));
      continue;
    }
    if (p->op->params[k].flags & SMX_PARAM_EVEN) smx_params_set(p->op, &p->params, name, variant % 2 ? 2 : 6);
    for (int t = 0; t < count; t++)
      if (!smx_params_set(p->op, &p->params, name, likely[(variant - 1 + k + t) % count])) break;
  }
  for (int k = 0; k < p->op->param_count; k++)
    if (p->op->params[k].flags & SMX_PARAM_MAX_N && p->params.value[k] > (double)p->n)
      p->params.value[k] = (double)p->n;
  /* k = 0 is the length of an input, which is what is being made up */
  for (int i = 0; i < p->op->input_count; i++)
    if (p->op->inputs[i].shape == SMX_SHAPE_K && param_or(p, "k", 0) == 0)
      smx_params_set(p->op, &p->params, "k", 3);
}

void problem_make(problem *p, const smx_op *op, int64_t rows, int64_t n, int variant, uint64_t seed,
                  const kind *kinds, int kind_count) {
  rng r = {seed};
  *p = (problem){.op = op, .rows = rows, .n = n, .segments = n < 4 ? 2 : 5};
  set_params(p, variant);
  int either = 0, choices = 0; /* of those that exclude each other, one */
  for (int i = 0; i < op->input_count; i++) choices += (op->inputs[i].flags & SMX_PORT_EITHER) != 0;
  for (int i = 0; i < op->input_count; i++) {
    int wanted = variant == 1 || (variant > 1 && (variant + i) % 2);
    if (op->inputs[i].flags & SMX_PORT_EITHER) wanted = either++ == variant % choices;
    if (variant < VARIANTS && came_later(op, &op->inputs[i])) wanted = 0;
    if (op->inputs[i].flags & SMX_PORT_OPTIONAL && !wanted) continue;
    p->in[i] = allocate((size_t)port_count(p, &op->inputs[i]) * sizeof(double));
    port_values(&r, p, i, kinds, kind_count);
  }
  for (int i = 0; i < op->output_count; i++) {
    int64_t count = port_count(p, &op->outputs[i]);
    p->dout[i] = allocate((size_t)count * sizeof(double));
    for (int64_t k = 0; k < count; k++) p->dout[i][k] = rng_normal(&r);
  }
}

static double *copy_rows(const problem *to, const problem *from, const smx_port *port, const double *x,
                         int64_t shift) {
  int64_t count = port_count(to, port), row = port_length(from, port);
  int whole =
      port->shape == SMX_SHAPE_OFFSETS || port->shape == SMX_SHAPE_COLUMN || port->shape == SMX_SHAPE_SCALAR;
  double *copy = allocate((size_t)count * sizeof *copy);
  if (whole) return memcpy(copy, x, (size_t)count * sizeof *copy);
  for (int64_t r = 0; r < to->rows; r++)
    memcpy(copy + r * row, x + (r + shift) % from->rows * row, (size_t)row * sizeof *copy);
  return copy;
}

void problem_rows(problem *p, const problem *src, int64_t rows, int64_t shift) {
  *p = (problem){.op = src->op, .params = src->params, .rows = rows, .n = src->n, .segments = src->segments};
  for (int i = 0; i < p->op->input_count; i++)
    if (src->in[i]) p->in[i] = copy_rows(p, src, &p->op->inputs[i], src->in[i], shift);
  for (int i = 0; i < p->op->output_count; i++)
    p->dout[i] = copy_rows(p, src, &p->op->outputs[i], src->dout[i], shift);
}

void problem_round(problem *p, smx_dtype t) {
  for (int i = 0; i < p->op->input_count; i++) {
    const smx_port *port = &p->op->inputs[i];
    int64_t count = p->in[i] && !(port->flags & (SMX_PORT_MASK | SMX_PORT_INT)) ? port_count(p, port) : 0;
    for (int64_t k = 0; k < count; k++) p->in[i][k] = dtype_round(t, p->in[i][k]);
  }
  for (int i = 0; i < p->op->output_count; i++)
    for (int64_t k = 0; k < port_count(p, &p->op->outputs[i]); k++)
      p->dout[i][k] = dtype_round(t, p->dout[i][k]);
}

void problem_free(problem *p) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) {
    free(p->in[i]);
    free(p->dout[i]);
    free(p->out[i]);
    free(p->din[i]);
  }
  memset(p, 0, sizeof *p);
}

double *problem_values(const problem *p, const smx_port *port, const void *bytes, smx_dtype t) {
  int64_t count = port_count(p, port);
  double *v = allocate((size_t)count * sizeof *v);
  t = port_dtype(port, t);
  for (int64_t i = 0; i < count; i++)
    v[i] = dtype_load(t, (const unsigned char *)bytes + (size_t)i * dtype_size(t));
  return v;
}
