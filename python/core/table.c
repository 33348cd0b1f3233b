/* table.c - the operator table as Python sees it: a list of dicts, one an operator.
 * libsoftmax/_table.py makes records of them. */
#include "core.h"

#define FLAG(value, flag) ((value) & (flag) ? Py_True : Py_False)

static PyObject *port_record(const smx_port *p) {
  return Py_BuildValue("{s:s,s:i,s:z,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:s}", "name", p->name, "shape",
                       (int)p->shape, "dims", p->dims, "optional", FLAG(p->flags, SMX_PORT_OPTIONAL), "mask",
                       FLAG(p->flags, SMX_PORT_MASK), "integer", FLAG(p->flags, SMX_PORT_INT), "target",
                       FLAG(p->flags, SMX_PORT_TARGET), "weight", FLAG(p->flags, SMX_PORT_WEIGHT), "gradient",
                       FLAG(p->flags, SMX_PORT_GRAD), "saved", FLAG(p->flags, SMX_PORT_SAVED), "either",
                       FLAG(p->flags, SMX_PORT_EITHER), "dx", FLAG(p->flags, SMX_PORT_DX), "state",
                       FLAG(p->flags, SMX_PORT_STATE), "help", p->help);
}

/* A tuple of names, or None. */
static PyObject *choice_names(const char *const *choices) {
  Py_ssize_t n = 0;
  if (!choices) return Py_NewRef(Py_None);
  while (choices[n]) n++;
  PyObject *names = PyTuple_New(n);
  for (Py_ssize_t i = 0; names && i < n; i++) {
    PyObject *name = PyUnicode_FromString(choices[i]);
    if (!name || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
  }
  return names;
}

static PyObject *param_record(const smx_param *p) {
  return Py_BuildValue("{s:s,s:s,s:d,s:d,s:d,s:O,s:O,s:O,s:O,s:O,s:O,s:N}", "name", p->name, "help", p->help,
                       "default", p->def, "min", p->min, "max", p->max, "integer",
                       FLAG(p->flags, SMX_PARAM_INT), "open_min", FLAG(p->flags, SMX_PARAM_OPEN_MIN),
                       "nonzero", FLAG(p->flags, SMX_PARAM_NONZERO), "max_n", FLAG(p->flags, SMX_PARAM_MAX_N),
                       "even", FLAG(p->flags, SMX_PARAM_EVEN), "required", FLAG(p->flags, SMX_PARAM_REQUIRED),
                       "choices", choice_names(p->choices));
}

static PyObject *add(PyObject *list, PyObject *item) {
  if (list && (!item || PyList_Append(list, item) < 0)) Py_CLEAR(list);
  Py_XDECREF(item);
  return list;
}

static PyObject *ports(int32_t count, const smx_port *port) {
  PyObject *list = PyList_New(0);
  for (int32_t i = 0; list && i < count; i++) list = add(list, port_record(port + i));
  return list;
}

static PyObject *params(int32_t count, const smx_param *param) {
  PyObject *list = PyList_New(0);
  for (int32_t i = 0; list && i < count; i++) list = add(list, param_record(param + i));
  return list;
}

static PyObject *op_record(const smx_op *op) {
  return Py_BuildValue("{s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:d,s:O,s:O,s:O,s:N,s:N,s:N}", "id", (int)op->id,
                       "name", op->name, "family", op->family, "title", op->title, "formula", op->formula,
                       "about", op->about, "source", op->source, "example", op->example, "tolerance",
                       op->tolerance, "backward", FLAG(op->flags, SMX_OP_BACKWARD), "inplace",
                       FLAG(op->flags, SMX_OP_INPLACE), "detached", FLAG(op->flags, SMX_OP_DETACHED),
                       "inputs", ports(op->input_count, op->inputs), "outputs",
                       ports(op->output_count, op->outputs), "params", params(op->param_count, op->params));
}

PyObject *core_operators(PyObject *module, PyObject *unused) {
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < smx_op_count(); i++) list = add(list, op_record(smx_op_at(i)));
  return list;
}

static PyObject *kind_record(const smx_attention_kind *k) {
  return Py_BuildValue("{s:i,s:s,s:s,s:s,s:s,s:s,s:O,s:O,s:O,s:N}", "id", (int)k->id, "name", k->name,
                       "title", k->title, "formula", k->formula, "about", k->about, "source", k->source,
                       "sinks", FLAG(k->flags, SMX_ATTENTION_SINKS), "backward",
                       FLAG(k->flags, SMX_ATTENTION_BACKWARD), "states", FLAG(k->flags, SMX_ATTENTION_STATES),
                       "params", params(k->param_count, k->params));
}

PyObject *core_attention_kinds(PyObject *module, PyObject *unused) {
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < smx_attention_kind_count(); i++)
    list = add(list, kind_record(smx_attention_kind_at(i)));
  return list;
}

static PyObject *step_record(const smx_step_info *s) {
  return Py_BuildValue("{s:i,s:s,s:s,s:s,s:s,s:s,s:O,s:O,s:O,s:N}", "id", (int)s->id, "name", s->name,
                       "title", s->title, "formula", s->formula, "about", s->about, "source", s->source,
                       "tokens", FLAG(s->flags, SMX_STEP_HAS_TOKENS), "values",
                       FLAG(s->flags, SMX_STEP_HAS_VALUES), "text", FLAG(s->flags, SMX_STEP_HAS_TEXT),
                       "params", params(s->param_count, s->params));
}

PyObject *core_sampling_steps(PyObject *module, PyObject *unused) {
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < smx_step_count(); i++) list = add(list, step_record(smx_step_at(i)));
  return list;
}
