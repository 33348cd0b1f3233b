/* json.c - the operator table as JSON, for programs. */
#include "fault.h"
#include "help.h"
#include "numbers.h"

#include <jansson.h>
#include <math.h>

static json_t *number(double v) {
  return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_number(v);
}

static json_t *port(const smx_port *p) {
  static const char *const rules[] = {"full", "row", "offsets", "column", "k", "scalar", "dims"};
  return json_pack("{s:s, s:s, s:s?, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:s}", "name", p->name, "shape",
                   rules[p->shape], "dims", p->dims, "optional", (int)(p->flags & SMX_PORT_OPTIONAL), "mask",
                   (int)(p->flags & SMX_PORT_MASK), "integer", (int)(p->flags & SMX_PORT_INT), "gradient",
                   (int)(p->flags & SMX_PORT_GRAD), "saved", (int)(p->flags & SMX_PORT_SAVED), "either",
                   (int)(p->flags & SMX_PORT_EITHER), "dx", (int)(p->flags & SMX_PORT_DX), "help", p->help);
}

static json_t *ports(int32_t count, const smx_port *list) {
  json_t *array = json_array();
  for (int32_t i = 0; i < count; i++) json_array_append_new(array, port(&list[i]));
  return array;
}

static json_t *param(const smx_param *p) {
  json_t *choices = p->choices ? json_array() : NULL;
  for (int i = 0; choices && p->choices[i]; i++) json_array_append_new(choices, json_string(p->choices[i]));
  return json_pack("{s:s, s:s, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:o*}", "name", p->name, "help", p->help,
                   "default", number(p->def), "min", number(p->min), "max", number(p->max), "integer",
                   (int)(p->flags & SMX_PARAM_INT), "open_min", (int)(p->flags & SMX_PARAM_OPEN_MIN),
                   "nonzero", (int)(p->flags & SMX_PARAM_NONZERO), "even", (int)(p->flags & SMX_PARAM_EVEN),
                   "choices", choices);
}

static json_t *params(const smx_op *op) {
  json_t *array = json_array();
  for (int32_t i = 0; i < op->param_count; i++) json_array_append_new(array, param(&op->params[i]));
  return array;
}

static json_t *operator(const smx_op *op) {
  return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:b, s:b, s:o, s:o, s:o}", "id",
                   (int)op->id, "name", op->name, "family", op->family, "title", op->title, "formula",
                   op->formula, "about", op->about, "source", op->source, "example", op->example, "tolerance",
                   op->tolerance, "backward", (int)(op->flags & SMX_OP_BACKWARD), "inplace",
                   (int)(op->flags & SMX_OP_INPLACE), "inputs", ports(op->input_count, op->inputs), "outputs",
                   ports(op->output_count, op->outputs), "params", params(op));
}

int help_json(void) {
  json_t *array = json_array();
  for (size_t i = 0; i < smx_op_count(); i++) json_array_append_new(array, operator(smx_op_at(i)));
  int failed = json_dumpf(array, stdout, JSON_INDENT(1));
  putchar('\n');
  json_decref(array);
  return failed ? fault(EXIT_UNWRITABLE, "standard output: cannot be written") : EXIT_OK;
}
