/* bind.c - which file is which input, which option is which parameter, and how a file's type
 * becomes one the port takes. */
#include "bind.h"

#include "fault.h"
#include "help.h"
#include "parse.h"

#include <stdlib.h>
#include <string.h>

int32_t find_param(const smx_op *op, const char *name) {
  for (int32_t i = 0; i < op->param_count; i++)
    if (strcmp(op->params[i].name, name) == 0) return i;
  return -1;
}

int32_t find_output(const smx_op *op, const char *name) {
  for (int32_t i = 0; i < op->output_count; i++)
    if (strcmp(op->outputs[i].name, name) == 0) return i;
  return -1;
}

static int32_t find_input(const smx_op *op, const char *name) {
  for (int32_t i = 0; i < op->input_count; i++)
    if (strcmp(op->inputs[i].name, name) == 0) return i;
  return -1;
}

/* What follows "prefix: ", or the whole text. */
static const char *after(const char *text, const char *prefix) {
  size_t n = strlen(prefix);
  return strncmp(text, prefix, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

/* The library's message without the name of the operator before it, or that of its function:
 * "masked_softmax: mask: shape..." is about mask. */
static const char *library_text(const smx_op *op) {
  const char *text = smx_last_error(), *colon = strstr(text, ": ");
  return colon && strncmp(text, "smx_", 4) == 0 ? colon + 2 : after(text, op->name);
}

int bind_fault(const binding *b, smx_status status) {
  const char *text = library_text(b->op), *file = b->in[0].path;
  for (int32_t i = 0; i < b->op->input_count; i++) {
    const char *name = b->op->inputs[i].name;
    size_t n = strlen(name);
    if (b->in[i].path && strncmp(text, name, n) == 0 && strchr(":[. ", text[n])) file = b->in[i].path;
  }
  return fault(EXIT_REFUSED, "%s: %s", file, *text ? text : smx_strerror(status));
}

static int set_param(binding *b, const named_value *v) {
  smx_status status = smx_params_parse(b->op, &b->params, v->name, v->text);
  return status == SMX_OK
             ? EXIT_OK
             : fault(EXIT_USAGE, "--%s %s: %s", v->name, v->text, after(library_text(b->op), v->name));
}

/* A parameter and an input may have one name: a number, or a name that is a choice, is the
 * parameter; anything else is a file. */
static bool is_parameter(const binding *b, const named_value *v) {
  double number;
  smx_params tried = b->params;
  if (find_param(b->op, v->name) < 0) return false;
  if (find_input(b->op, v->name) < 0 || parse_f64(v->text, strlen(v->text), &number)) return true;
  return smx_params_parse(b->op, &tried, v->name, v->text) == SMX_OK;
}

static bool optional(const smx_port *p) { return p->flags & SMX_PORT_OPTIONAL; }

/* ": --temperature --mask": what an operator takes by name, or only the inputs among it. */
static void names_of(const smx_op *op, bool params, char *text, size_t size) {
  static const char begin[] = ":";
  size_t used = (size_t)snprintf(text, size, begin);
  for (int32_t i = 0; params && i < op->param_count && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, " --%s", op->params[i].name);
  for (int32_t i = 1; i < op->input_count && used < size; i++)
    if (params ? find_param(op, op->inputs[i].name) < 0 : optional(&op->inputs[i]))
      used +=
          (size_t)snprintf(text + used, size - used, " --%s%s", op->inputs[i].name, params ? "" : " FILE");
  if (used < sizeof begin) text[0] = 0;
}

static int set_named(binding *b, const named_value *v) {
  char names[256];
  int32_t port = find_input(b->op, v->name);
  if (is_parameter(b, v)) return set_param(b, v);
  names_of(b->op, true, names, sizeof names);
  if (port < 0)
    return fault(EXIT_USAGE, "--%s %s: %s has no parameter or input of that name%s%s", v->name, v->text,
                 b->op->name, *names ? ", but these" : "", names);
  if (b->in[port].path) return fault(EXIT_USAGE, "--%s %s: given twice", v->name, v->text);
  b->in[port].path = v->text;
  return EXIT_OK;
}

/* Whether an input can be given by its place: of those of which one must be there only the first,
 * and none that stands for a parameter: labels of the rows would be taken for their
 * temperatures. */
static bool has_place(const binding *b, int32_t port) {
  const smx_port *in = b->op->inputs;
  if (!(in[port].flags & SMX_PORT_EITHER)) return find_param(b->op, in[port].name) < 0;
  for (int32_t i = 0; i < b->op->input_count; i++)
    if (in[i].flags & SMX_PORT_EITHER && (b->in[i].path || i < port)) return false;
  return true;
}

static int refuse_file(const binding *b, const char *file) {
  char names[256];
  names_of(b->op, false, names, sizeof names);
  return fault(EXIT_USAGE, "%s: one input too many for %s%s%s", file, b->op->name,
               *names ? "; others are given by name" : "", names);
}

/* The files fill the inputs that were not given by name, in their order. */
static int set_files(binding *b, const options *o, int first) {
  int32_t port = 0;
  for (int i = first; i < o->file_count; i++) {
    while (port < b->op->input_count && (b->in[port].path || !has_place(b, port))) port++;
    if (port == b->op->input_count) return refuse_file(b, o->files[i]);
    b->in[port].path = o->files[i];
  }
  return EXIT_OK;
}

/* Every input that must be there is. */
static int check_inputs(const binding *b) {
  const smx_port *in = b->op->inputs, *either = NULL;
  bool given = false;
  char names[128] = "";
  for (int32_t i = 0; i < b->op->input_count; i++) {
    if (!b->in[i].path && !optional(&in[i]))
      return fault(EXIT_USAGE, "%s: the input '%s' is missing (%s)", b->op->name, in[i].name, in[i].help);
    if (!(in[i].flags & SMX_PORT_EITHER)) continue;
    const size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s--%s FILE", either ? " or " : "", in[i].name);
    either = &in[i], given |= b->in[i].path != NULL;
  }
  return given || !either ? EXIT_OK : fault(EXIT_USAGE, "%s: an input is missing: %s", b->op->name, names);
}

static int set_douts(binding *b, const options *o) {
  if (o->backward && !(b->op->flags & SMX_OP_BACKWARD))
    return fault(EXIT_USAGE, "--backward: %s has no gradient", b->op->name);
  if (o->backward && !o->dout_count) return fault(EXIT_USAGE, "--backward: --dout FILE is missing");
  if (!o->backward && o->dout_count) return fault(EXIT_USAGE, "--dout %s: only with --backward", o->dout[0]);
  int given = 0, possible = 0;
  for (int i = 0; i < b->op->output_count; i++) {
    /* whole numbers, gradients and sums over all rows have none of their own */
    const smx_port *port = &b->op->outputs[i];
    if (port->flags & (SMX_PORT_INT | SMX_PORT_DX) || port->shape == SMX_SHAPE_SCALAR) continue;
    possible++;
    if (given < o->dout_count) b->dout[i].path = o->dout[given++];
  }
  if (o->dout_count > possible)
    return fault(EXIT_USAGE, "--dout %s: %s has %d outputs with a gradient", o->dout[o->dout_count - 1],
                 b->op->name, possible);
  return EXIT_OK;
}

/* The type in which a port can take the array: its own, or the nearest that fits. */
static const dtype *wanted_type(const smx_port *port, const dtype *type) {
  if (port->flags & SMX_PORT_MASK) return type->bytes == 1 ? type : dtype_named("u8");
  if (port->flags & SMX_PORT_INT) return type->type.code == 0 ? type : dtype_named("i64");
  return type->number ? type : dtype_named("f64");
}

/* Text has no lists: one line or one column is a list where the port takes one, and one number is a
 * number. */
static void drop_ones(io_array *a) {
  int32_t kept = 0;
  for (int32_t i = 0; i < a->ndim; i++) {
    if (a->shape[i] == 1) continue;
    a->shape[kept] = a->shape[i];
    a->strides[kept++] = a->strides[i];
  }
  a->ndim = kept;
}

static int check_whole(const input *in) {
  const io_array *a = &in->array;
  int64_t count = 0;
  if (in->want->type.code != 0 || !a->type->number) return EXIT_OK;
  if (!count_elements(a->ndim, a->shape, &count)) count = 0;
  for (int64_t i = 0; i < count; i++) {
    double v = io_get(a, a->data + (size_t)i * a->type->bytes);
    if (!(v >= -9007199254740992.0 && v <= 9007199254740992.0 && v == (double)(int64_t)v))
      return fault(EXIT_REFUSED, "%s: element %lld is %g, not a whole number", in->path, (long long)i, v);
  }
  return EXIT_OK;
}

/* What raw and text inputs are read as: what the port needs, else what the option says, else, for
 * text, the precision of x. */
static const dtype *hinted_type(const smx_port *port, const options *o, const dtype *x) {
  if (port->flags & SMX_PORT_MASK) return dtype_named("u8");
  if (port->flags & SMX_PORT_INT) return dtype_named("i64");
  return o->type_in || !x ? o->type_in : dtype_named(x->type.bits == 64 ? "f64" : "f32");
}

int input_read(input *in, const smx_port *port, const options *o, const dtype *x) {
  io_hints hints = {.format = o->format, .shape = o->has_shape ? &o->shape : NULL, .header = o->header};
  hints.type = hinted_type(port, o, x);
  int code = io_read(in->path, &hints, &in->array);
  if (code) return code;
  in->want = wanted_type(port, in->array.type);
  if (in->array.text && port->shape != SMX_SHAPE_FULL && port->shape != SMX_SHAPE_K) drop_ones(&in->array);
  return check_whole(in);
}

/* x: the first of all inputs, whose type is known once it is loaded. */
static int load_all(input *inputs, const smx_port *ports, int32_t count, const options *o, const input *x,
                    bool *used_stdin) {
  for (int32_t i = 0; i < count; i++) {
    if (!inputs[i].path) continue;
    bool standard = strcmp(inputs[i].path, "-") == 0;
    if (standard && *used_stdin) return fault(EXIT_USAGE, "-: standard input can be only one of the inputs");
    *used_stdin |= standard;
    int code = input_read(&inputs[i], &ports[i], o, x->want);
    if (code) return code;
  }
  return EXIT_OK;
}

int bind_inputs(binding *b, const smx_op *op, const options *o, int first) {
  bool used_stdin = false;
  int code = EXIT_OK;
  memset(b, 0, sizeof *b);
  b->op = op;
  if (smx_params_init(op, &b->params) != SMX_OK)
    return fault(EXIT_REFUSED, "%s: %s", op->name, library_text(op));
  b->params.axis = o->axis;
  for (int i = 0; !code && i < o->named_count; i++) code = set_named(b, &o->named[i]);
  if (!code) code = set_files(b, o, first);
  if (!code) code = check_inputs(b);
  if (!code) code = set_douts(b, o);
  if (!code) code = load_all(b->in, op->inputs, op->input_count, o, &b->in[0], &used_stdin);
  return code ? code : load_all(b->dout, op->outputs, op->output_count, o, &b->in[0], &used_stdin);
}

int bind_operator(const char *before, const char *text, const smx_op **op, smx_params *params) {
  char spec[256];
  if (strlen(text) >= sizeof spec) return fault(EXIT_USAGE, "%s %s: too long", before, text);
  snprintf(spec, sizeof spec, "%s", text);
  char *at = strchr(spec, ':'), *rest = NULL;
  if (at) *at++ = 0;
  *op = help_find(spec);
  if (!*op) return EXIT_USAGE;
  smx_params_init(*op, params);
  for (char *item = at ? strtok_r(at, ",", &rest) : NULL; item; item = strtok_r(NULL, ",", &rest)) {
    char *value = strchr(item, '=');
    if (!value) return fault(EXIT_USAGE, "%s %s: '%s' is not NAME=VALUE", before, text, item);
    *value++ = 0;
    if (smx_params_parse(*op, params, item, value) != SMX_OK)
      return fault(EXIT_USAGE, "%s %s: %s", before, text, smx_last_error());
  }
  return EXIT_OK;
}

void input_free(input *in) {
  io_free(&in->array);
  free(in->scratch);
  in->scratch = NULL;
}

void bind_free(binding *b) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) {
    input_free(&b->in[i]);
    input_free(&b->dout[i]);
  }
}

smx_tensor bind_tensor(input *in) {
  smx_tensor t = {.ndim = in->array.ndim, .dtype = in->want->type, .shape = in->array.shape};
  t.device.device_type = 1;
  return t;
}
