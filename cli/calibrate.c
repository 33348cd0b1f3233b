/* calibrate.c - see calibrate.h: methods, input, and fits. */
#include "calibrate.h"

#include "fault.h"
#include "io/io.h"
#include "numbers.h"
#include "targets.h"
#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const setting calibrate_settings[] = {
    {"targets", 0, "FILE", "fit: the class of each row; of one number a row: nonzero where it is positive",
     FOR_OPERATOR, NULL, NULL},
    {"logits", 0, NULL, "apply: give the new logits, not their softmax", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

const calibrate_method calibrate_methods[] = {
    {"temperature", "temperature_fit", NULL, " temperature ", true, false, false},
    {"vector", "vector_scaling_fit", "vector_scaling", " scale bias ", true, false, false},
    {"matrix", "matrix_scaling_fit", "matrix_scaling", " weight bias ", true, false, false},
    {"dirichlet", "matrix_scaling_fit", "matrix_scaling", " weight bias ", true, true, false},
    {"platt", "platt_fit", "platt_scaling", " slope offset ", false, false, false},
    {"beta", "beta_fit", "beta_scaling", " a b c ", false, false, false},
    {"isotonic", "isotonic_fit", "isotonic", " x y ", false, false, false},
    {"histogram", "calibration_error", "histogram_binning", " accuracy ", false, false, false},
    {"conformal", "conformal_fit", "conformal_sets", " threshold ", true, false, true},
    {NULL, NULL, NULL, NULL, false, false, false},
};

const calibrate_method *calibrate_find(const char *name) {
  for (const calibrate_method *m = calibrate_methods; m->name; m++)
    if (!strcmp(m->name, name)) return m;
  return NULL;
}

/* ---- Input ---- */

int calibrate_read(calibrate_numbers *x, const char *path, const options *o, const calibrate_method *m) {
  static const smx_port port = {"x", SMX_SHAPE_FULL, 0, "logits, or a number of each row"};
  const io_array *a = &x->in.array;
  x->in.path = path;
  int code = input_read(&x->in, &port, o, NULL);
  if (code) return code;
  const bool column = !m->rows && a->ndim == 2 && a->shape[1] == 1;
  if (a->ndim != (m->rows ? 2 : 1) && !column)
    return fault(EXIT_REFUSED, "%s: %d dimension%s: %s takes %s", path, (int)a->ndim, a->ndim == 1 ? "" : "s",
                 m->name, m->rows ? "rows of logits, 2" : "a number of each row, 1");
  x->wide = x->in.want->type.bits == 64, x->count = 1;
  for (int32_t d = 0; d < a->ndim; d++) x->count *= a->shape[d];
  x->data = malloc((size_t)x->count * (x->wide ? 8 : 4) + 8);
  if (!x->data) return fault_memory((size_t)x->count * 8);
  for (int64_t i = 0; i < x->count; i++) {
    if (x->wide) ((double *)x->data)[i] = io_element(a, i);
    else ((float *)x->data)[i] = (float)io_element(a, i);
  }
  x->tensor = (smx_tensor){
      x->data, {1, 0}, column ? 1 : a->ndim, x->wide ? SMX_F64 : SMX_F32, x->in.array.shape, NULL, 0};
  return EXIT_OK;
}

void calibrate_free(calibrate_numbers *x) {
  input_free(&x->in);
  free(x->data);
}

int calibrate_prepare(const calibrate_method *m, calibrate_numbers *x, smx_context *context) {
  if (!m->log || smx_log_softmax(context, 1, &x->tensor, &x->tensor) == SMX_OK) return EXIT_OK;
  return fault(EXIT_REFUSED, "%s: %s", x->in.path, smx_last_error());
}

/* ---- A fit ---- */

enum { ARGUMENT_METHOD = 1, ARGUMENT_FILE, ARGUMENTS };

typedef struct fitting {
  const options *o;
  const calibrate_method *m;
  const smx_op *op;
  smx_params params;
  calibrate_numbers x;
  input target;
  int64_t *classes;
  unsigned char *positive; /* the same, as a mask */
  double *value;           /* and as numbers */
  smx_shape shape[SMX_MAX_PORTS];
  double *out[SMX_MAX_PORTS];
} fitting;

static int set_params(fitting *f) {
  smx_params_init(f->op, &f->params);
  for (int i = 0; i < f->o->named_count; i++) {
    const named_value *v = f->o->named + i;
    if (!strcmp(v->name, "targets")) continue;
    if (find_param(f->op, v->name) < 0)
      return fault(EXIT_USAGE, "--%s: fit %s has no such setting", v->name, f->m->name);
    if (smx_params_parse(f->op, &f->params, v->name, v->text) != SMX_OK)
      return fault(EXIT_USAGE, "--%s %s: %s", v->name, v->text, smx_last_error());
  }
  return EXIT_OK;
}

static int read_target(fitting *f) {
  const int64_t rows = f->x.in.array.shape[0];
  input of = f->x.in; /* with rows along a last axis, which a number a row has not */
  if (of.array.ndim == 1) of.array.ndim = 2, of.array.shape[1] = 1;
  f->target.path = options_own(f->o, "targets");
  if (!f->target.path) return fault(EXIT_USAGE, "calibrate fit: --targets FILE is missing");
  const int code = targets_read(&f->target, f->o, &of, &f->classes);
  if (code) return code;
  f->positive = malloc((size_t)rows + 1), f->value = malloc((size_t)rows * sizeof *f->value + 8);
  if (!f->positive || !f->value) return fault_memory((size_t)rows * 9);
  for (int64_t i = 0; i < rows; i++) f->positive[i] = f->classes[i] != 0, f->value[i] = (double)f->classes[i];
  return EXIT_OK;
}

static bool is_kept(const fitting *f, const char *name) {
  char word[64];
  snprintf(word, sizeof word, " %s ", name);
  return strstr(f->m->fitted, word) != NULL;
}

/* Outputs are in double: all that are kept, with those that must be there, and both losses. */
static int run_fit(fitting *f, smx_context *context) {
  const smx_port *second = f->op->inputs + 1;
  const bool mask = second->flags & SMX_PORT_MASK, whole = second->flags & SMX_PORT_INT;
  smx_tensor target = {whole  ? (void *)f->classes
                       : mask ? (void *)f->positive
                              : (void *)f->value,
                       {1, 0},
                       1,
                       whole  ? SMX_I64
                       : mask ? SMX_BOOL
                              : SMX_F64,
                       f->x.in.array.shape,
                       NULL,
                       0};
  smx_tensor to[SMX_MAX_PORTS];
  const smx_tensor *in[] = {&f->x.tensor, &target}, *out[SMX_MAX_PORTS] = {NULL};
  smx_status status = smx_infer(f->op, &f->params, 2, in, f->op->output_count, f->shape);
  for (int i = 0; i < f->op->output_count && status == SMX_OK; i++) {
    const smx_port *port = f->op->outputs + i;
    size_t count = 1;
    if (port->flags & SMX_PORT_OPTIONAL && !is_kept(f, port->name) && strcmp(port->name, "loss") != 0 &&
        strcmp(port->name, "before") != 0)
      continue;
    for (int32_t d = 0; d < f->shape[i].ndim; d++) count *= (size_t)f->shape[i].dim[d];
    f->out[i] = malloc(count * sizeof(double) + 8);
    if (!f->out[i]) return fault_memory(count * sizeof(double));
    to[i] = (smx_tensor){
        f->out[i], {1, 0}, f->shape[i].ndim, port->flags & SMX_PORT_INT ? SMX_I64 : SMX_F64, f->shape[i].dim,
        NULL,      0};
    out[i] = to + i;
  }
  if (status == SMX_OK) status = smx_forward(f->op, context, &f->params, 2, in, f->op->output_count, out);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s: %s", f->x.in.path, smx_last_error());
}

/* ---- The file ---- */

/* Numbers as the shape nests them. */
static json_t *nested(const double **at, int32_t ndim, const int64_t *dim) {
  if (ndim == 0) return json_number(*(*at)++);
  json_t *list = json_array();
  for (int64_t i = 0; i < dim[0]; i++) json_array_append_new(list, nested(at, ndim - 1, dim + 1));
  return list;
}

static json_t *settings_of(const fitting *f) {
  json_t *all = json_object();
  for (int32_t i = 0; i < f->op->param_count; i++) {
    const smx_param *p = f->op->params + i;
    const double v = f->params.value[i];
    json_t *value = p->choices                 ? json_string(p->choices[(int)v])
                    : p->flags & SMX_PARAM_INT ? json_integer((json_int_t)v)
                                               : json_number(v);
    json_object_set_new(all, p->name, value);
  }
  return all;
}

/* How many bends a curve has; -1: the fit is no curve. */
static int64_t bends_of(const fitting *f) {
  const int32_t i = find_output(f->op, "count");
  int64_t count = -1;
  if (i >= 0 && f->out[i] && f->shape[i].ndim == 0) memcpy(&count, f->out[i], sizeof count);
  return count;
}

/* Whether there is a fit: one of no rows, or of a NaN, has none. */
static int check_fit(const fitting *f) {
  bool none = bends_of(f) == 0;
  for (int i = 0; i < f->op->output_count; i++)
    none |=
        f->out[i] && f->shape[i].ndim == 0 && !(f->op->outputs[i].flags & SMX_PORT_INT) && isnan(*f->out[i]);
  return none ? fault(EXIT_REFUSED,
                      "%s: no row counts, or a number is not finite, or a target is at -inf: there is no fit",
                      f->x.in.path)
              : EXIT_OK;
}

static int write_fit(fitting *f) {
  json_t *fitted = json_object(), *all;
  double loss[2] = {NAN, NAN};
  const int64_t bends = bends_of(f);
  for (int i = 0; i < f->op->output_count; i++) {
    const char *name = f->op->outputs[i].name;
    const double *at = f->out[i];
    if (at && !strcmp(name, "loss")) loss[1] = *at;
    if (at && !strcmp(name, "before")) loss[0] = *at;
    if (at && is_kept(f, name))
      json_object_set_new(fitted, name, nested(&at, f->shape[i].ndim, bends < 0 ? f->shape[i].dim : &bends));
  }
  all = json_pack("{s:s, s:i, s:s, s:o, s:o}", "format", "softmax-fit", "version", 1, "method", f->m->name,
                  "settings", settings_of(f), "fitted", fitted);
  size_t length = 0;
  char *text = json_lines(all, &length);
  const int code = text ? write_file(f->o->out, text, length) : fault_memory(0);
  free(text);
  if (code || !strcmp(f->o->out, "-")) return code;
  const int64_t rows = f->x.in.array.shape[0];
  printf("%s of %" PRId64 " row%s", f->m->name, rows, rows == 1 ? "" : "s");
  if (!isnan(loss[0])) printf("; log loss %g before, %g after", loss[0], loss[1]);
  printf("\n");
  return EXIT_OK;
}

static int fit(const options *o, smx_context *context) {
  fitting f = {.o = o, .m = calibrate_find(o->files[ARGUMENT_METHOD])};
  if (!f.m)
    return fault(EXIT_USAGE, "calibrate fit %s: there is no such method; softmax help calibrate lists them",
                 o->files[ARGUMENT_METHOD]);
  if (!o->out) return fault(EXIT_USAGE, "calibrate fit: -o FILE is missing");
  f.op = smx_op_find(f.m->fit);
  int code = set_params(&f);
  if (!code) code = calibrate_read(&f.x, o->files[ARGUMENT_FILE], o, f.m);
  if (!code) code = read_target(&f);
  if (!code) code = calibrate_prepare(f.m, &f.x, context);
  if (!code) code = run_fit(&f, context);
  if (!code) code = check_fit(&f);
  if (!code) code = write_fit(&f);
  calibrate_free(&f.x), input_free(&f.target);
  free(f.classes), free(f.positive), free(f.value);
  for (int i = 0; i < SMX_MAX_PORTS; i++) free(f.out[i]);
  return code;
}

int work_calibrate(const options *o) {
  const bool fits = o->file_count > 0 && !strcmp(o->files[0], "fit");
  if (o->file_count == 0 || (!fits && strcmp(o->files[0], "apply") != 0))
    return fault(EXIT_USAGE, "calibrate%s%s: fit METHOD FILE, or apply FIT FILE", o->file_count ? " " : "",
                 o->file_count ? o->files[0] : "");
  if (o->file_count != ARGUMENTS)
    return fault(EXIT_USAGE, "calibrate %s: %d arguments, not 2: %s", o->files[0], o->file_count - 1,
                 fits ? "METHOD FILE" : "FIT FILE");
  const smx_context_options c = {
      .size = sizeof c, .threads = o->threads, .on_empty = o->on_empty, .on_inf = o->on_inf};
  smx_context *context = NULL;
  if (smx_context_create(&c, &context) != SMX_OK)
    return fault(EXIT_REFUSED, "calibrate: %s", smx_last_error());
  const int code = fits ? fit(o, context) : calibrate_apply(o, context);
  smx_context_destroy(context);
  return code;
}
