/* calibrate_apply.c - a fit of a file, applied to new rows. */
#include "calibrate.h"

#include "fault.h"
#include "io/io.h"
#include "numbers.h"
#include "write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENT_FIT = 1, ARGUMENT_FILE };

typedef struct applying {
  const options *o;
  const char *path; /* of the fit */
  json_t *root, *settings, *fitted;
  const calibrate_method *m;
  const smx_op *op; /* NULL: the logits are divided */
  smx_params params;
  calibrate_numbers x;
  double *numbers[SMX_MAX_PORTS]; /* of the inputs after the first */
  int64_t shape[SMX_MAX_PORTS][2];
  smx_shape out_shape[SMX_MAX_PORTS];
  void *out;
  result_file file;
} applying;

/* ---- The file ---- */

static int load(applying *a) {
  json_error_t error;
  int version = 0;
  const char *format = NULL, *method = NULL;
  a->root = json_load_file(a->path, 0, &error);
  if (!a->root) return fault(EXIT_UNREADABLE, "%s: %s, line %d", a->path, error.text, error.line);
  if (json_unpack(a->root, "{s:s, s:i, s:s, s:o, s:o}", "format", &format, "version", &version, "method",
                  &method, "settings", &a->settings, "fitted", &a->fitted) != 0 ||
      strcmp(format, "softmax-fit") != 0)
    return fault(EXIT_REFUSED, "%s: it is no fit of softmax calibrate", a->path);
  if (version != 1) return fault(EXIT_REFUSED, "%s: version is %d, not 1", a->path, version);
  a->m = calibrate_find(method);
  if (!a->m) return fault(EXIT_REFUSED, "%s: method is \"%s\", which this version has not", a->path, method);
  a->op = a->m->apply ? smx_op_find(a->m->apply) : NULL;
  return EXIT_OK;
}

static int refuse(const applying *a, const char *name) {
  return fault(EXIT_REFUSED, "%s: \"%s\" is not there, or is not what %s has", a->path, name, a->m->name);
}

/* The numbers of a list, or of a list of lists that are as long as each other. */
static int take_list(applying *a, int port) {
  const char *name = a->op->inputs[port].name;
  const json_t *list = json_object_get(a->fitted, name), *first = json_array_get(list, 0);
  const bool square = json_is_array(first);
  const size_t rows = json_array_size(list), columns = square ? json_array_size(first) : 1;
  if (rows == 0 || columns == 0) return refuse(a, name);
  a->numbers[port] = malloc(rows * columns * sizeof(double));
  if (!a->numbers[port]) return fault_memory(rows * columns * sizeof(double));
  for (size_t i = 0; i < rows * columns; i++) {
    const json_t *row = json_array_get(list, i / columns),
                 *one = square ? json_array_get(row, i % columns) : row;
    if ((square && json_array_size(row) != columns) || !json_number_read(one, a->numbers[port] + i))
      return refuse(a, name);
  }
  a->shape[port][0] = (int64_t)rows, a->shape[port][1] = square ? (int64_t)columns : 0;
  return EXIT_OK;
}

/* A parameter is what was fitted, or a setting of the fit; else its default. */
static int take_param(applying *a, const smx_param *p) {
  const json_t *j = json_object_get(a->fitted, p->name);
  double v;
  if (!j) j = json_object_get(a->settings, p->name);
  if (!j) return EXIT_OK;
  const bool word = p->choices && json_is_string(j);
  const smx_status status = word ? smx_params_parse(a->op, &a->params, p->name, json_string_value(j))
                            : json_number_read(j, &v) ? smx_params_set(a->op, &a->params, p->name, v)
                                                      : SMX_ERR_PARAM;
  return status == SMX_OK ? EXIT_OK : refuse(a, p->name);
}

static int take_fit(applying *a) {
  int code = EXIT_OK;
  if (!a->op) return EXIT_OK;
  smx_params_init(a->op, &a->params);
  for (int32_t i = 0; i < a->op->param_count && !code; i++) code = take_param(a, a->op->params + i);
  for (int32_t i = 1; i < a->op->input_count && !code; i++)
    if (strcmp(a->op->inputs[i].name, "noise") != 0) code = take_list(a, i);
  return code;
}

/* ---- The rows ---- */

static int divide(applying *a) {
  double by;
  if (!json_number_read(json_object_get(a->fitted, "temperature"), &by) || !(by > 0))
    return refuse(a, "temperature");
  for (int64_t i = 0; i < a->x.count; i++) {
    if (a->x.wide) ((double *)a->x.data)[i] /= by;
    else ((float *)a->x.data)[i] /= (float)by;
  }
  return EXIT_OK;
}

/* The fit is rounded to the type of the rows. */
static void round_numbers(applying *a) {
  for (int port = 1; port < SMX_MAX_PORTS; port++) {
    const int64_t count =
        a->numbers[port] ? a->shape[port][0] * (a->shape[port][1] ? a->shape[port][1] : 1) : 0;
    for (int64_t i = 0; i < count && !a->x.wide; i++)
      ((float *)(void *)a->numbers[port])[i] = (float)a->numbers[port][i];
  }
}

static int run_map(applying *a, smx_context *context) {
  smx_tensor t[SMX_MAX_PORTS], to = a->x.tensor;
  const smx_tensor *in[SMX_MAX_PORTS] = {&a->x.tensor}, *out[SMX_MAX_PORTS] = {&to};
  int64_t sizes[] = {a->x.count};
  smx_tensor size = {NULL, {1, 0}, 1, SMX_I64, sizes, NULL, 0};
  round_numbers(a);
  for (int i = 1; i < a->op->input_count; i++) {
    t[i] =
        (smx_tensor){a->numbers[i], {1, 0}, a->shape[i][1] ? 2 : 1, a->x.tensor.dtype, a->shape[i], NULL, 0};
    in[i] = a->numbers[i] ? t + i : NULL;
  }
  smx_status status = smx_infer(a->op, &a->params, a->op->input_count, in, a->op->output_count, a->out_shape);
  if (status != SMX_OK) return fault(EXIT_REFUSED, "%s with %s: %s", a->x.in.path, a->path, smx_last_error());
  a->out = malloc((size_t)a->x.count * 8 + (size_t)a->x.in.array.shape[0] * 8 + 8);
  if (!a->out) return fault_memory((size_t)a->x.count * 8);
  to.data = a->out;
  if (a->m->sets) {
    to.dtype = SMX_I32, sizes[0] = a->x.in.array.shape[0];
    size.data = (int64_t *)a->out + a->x.count, out[1] = &size;
  }
  status = smx_forward(a->op, context, &a->params, a->op->input_count, in, a->op->output_count, out);
  if (status != SMX_OK) return fault(EXIT_REFUSED, "%s with %s: %s", a->x.in.path, a->path, smx_last_error());
  return EXIT_OK;
}

/* New logits become probabilities, unless they are asked for. */
static int finish(applying *a, smx_context *context, const char *type) {
  smx_tensor y = a->x.tensor;
  if (a->out) y.data = a->out;
  const bool rows = a->m->rows && !a->m->sets;
  if (rows && !options_own(a->o, "logits") && smx_softmax(context, 1, &y, &y) != SMX_OK)
    return fault(EXIT_REFUSED, "%s: %s", a->x.in.path, smx_last_error());
  io_spec spec = {.name = a->m->sets ? "member" : "calibrated",
                  .type = dtype_named(type),
                  .ndim = y.ndim,
                  .column = y.ndim == 1};
  memcpy(spec.shape, y.shape, (size_t)y.ndim * sizeof *y.shape);
  int code = write_begin(&a->file, a->o, 1, &spec);
  if (!code) code = write_put(&a->file, 0, y.data, (size_t)a->x.count * spec.type->bytes);
  if (!code) code = write_end(&a->file);
  write_drop(&a->file);
  return code;
}

int calibrate_apply(const options *o, smx_context *context) {
  applying a = {.o = o, .path = o->files[ARGUMENT_FIT]};
  if (!o->out) return fault(EXIT_USAGE, "calibrate apply: -o FILE is missing");
  int code = load(&a);
  if (!code) code = take_fit(&a);
  if (!code) code = calibrate_read(&a.x, o->files[ARGUMENT_FILE], o, a.m);
  if (!code) code = calibrate_prepare(a.m, &a.x, context);
  if (!code) code = a.op ? run_map(&a, context) : divide(&a);
  if (!code) code = finish(&a, context, a.m->sets ? "i32" : a.x.wide ? "f64" : "f32");
  calibrate_free(&a.x);
  for (int i = 0; i < SMX_MAX_PORTS; i++) free(a.numbers[i]);
  free(a.out);
  json_decref(a.root);
  return code;
}
