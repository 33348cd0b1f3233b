/* operators.c - see operators.h. */
#define _POSIX_C_SOURCE 200809L
#include "operators.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct operation {
  call *c;
  const smx_op *op;
  smx_params params;
  int32_t ndim, axis;
  int64_t shape[SMX_MAX_DIMS], k;
  int64_t size['z' - 'A' + 1]; /* of a name of a dimension, by its first letter; -1: none yet */
  const smx_tensor *in[SMX_MAX_PORTS + 1], *out[SMX_MAX_PORTS + 1], *dout[SMX_MAX_PORTS + 1],
      *din[SMX_MAX_PORTS + 1];
} operation;

static bool has_rows(const operation *p) { return p->op->inputs[0].shape != SMX_SHAPE_DIMS; }

static int64_t length(bytes *b, int64_t most) {
  const int64_t how = pick(b, 16);
  return how < 8 ? how : how < 14 ? pick(b, 80) : pick(b, most + 1);
}

static void shapes(operation *p, int64_t most) {
  bytes *b = &p->c->b;
  p->ndim = 1 + (int32_t)pick(b, 4);
  p->axis = rarely(b, 2) ? p->ndim - 1 : (int32_t)pick(b, p->ndim);
  for (size_t i = 0; i < sizeof p->size / sizeof *p->size; i++) p->size[i] = -1;
  for (int32_t d = 0; d < p->ndim; d++) p->shape[d] = d == p->axis ? length(b, most) : pick(b, 6);
  if (rarely(b, 8)) p->shape[pick(b, p->ndim)] = length(b, 40);
  bool any = true;
  for (int32_t d = 0; d < p->ndim; d++) any &= p->shape[d] > 0;
  const int32_t other = (int32_t)pick(b, p->ndim);
  if (!any && p->shape[other] && rarely(b, 4)) p->shape[other] = (int64_t)1 << 40; /* of nothing */
  if (p->ndim == 1 && rarely(b, 64)) p->ndim = 0;
}

static void set_param(operation *p, int32_t i) {
  bytes *b = &p->c->b;
  const smx_param *param = p->op->params + i;
  const double near[] = {param->min,         param->max,        param->def,
                         (double)pick(b, 8), call_number(p->c), floor(call_number(p->c))};
  double value = param->choices ? (double)pick(b, (int64_t)param->max + 1) : near[pick(b, 6)];
  if (!p->c->ctx && param->flags & SMX_PARAM_INT && value > 300) value = 300; /* it may size a matrix */
  if (rarely(b, 32)) p->params.value[i] = value;                              /* whatever it is */
  else smx_params_set(p->op, &p->params, param->name, value);
}

static void params(operation *p) {
  bytes *b = &p->c->b;
  const int32_t extremes[] = {INT32_MIN, INT32_MAX, p->ndim, -p->ndim - 1};
  smx_params_init(p->op, &p->params);
  p->params.axis = !has_rows(p) ? -1 : rarely(b, 2) ? p->axis : p->axis - p->ndim;
  if (rarely(b, 64)) p->params.axis = extremes[pick(b, 4)];
  if (rarely(b, 64)) p->params.size = (size_t)call_whole(p->c);
  p->k = 3;
  for (int32_t i = 0; i < p->op->param_count; i++) {
    const bool k = !strcmp(p->op->params[i].name, "k");
    if (k && rarely(b, 4)) smx_params_set(p->op, &p->params, "k", (double)(1 + pick(b, 12)));
    else if (rarely(b, 3)) set_param(p, i);
    const double value = p->params.value[i];
    if (k && value >= 1 && value <= 4096) p->k = (int64_t)value;
  }
}

/* A shape out of names: of "..." the first dimensions of x, of a name one size wherever it stands,
 * now and then another. */
static int32_t named_shape(operation *p, const char *dims, int64_t *shape) {
  bytes *b = &p->c->b;
  int32_t ndim = 0;
  while (*dims && *dims != '|' && ndim + 3 < SMX_MAX_DIMS) {
    int64_t *size = *dims >= 'A' && *dims <= 'z' ? p->size + (*dims - 'A') : NULL;
    const bool star = strcspn(dims, "*") < strcspn(dims, " ");
    if (size && *size < 0) *size = length(b, 24);
    if (*dims == '.')
      for (int32_t d = 0; d < p->ndim - 1 && d < 2; d++) shape[ndim++] = p->shape[d] % 4;
    else if (*dims != ' ')
      for (int64_t r = 0; r < (star ? 2 : 1); r++) shape[ndim++] = size ? *size : *dims - '0';
    dims += strcspn(dims, " ");
    if (*dims) dims++;
  }
  if (ndim && rarely(b, 32)) shape[pick(b, ndim)] = length(b, 24);
  return ndim;
}

/* What the rule of a port makes of the shape of x. */
static int32_t shape_of(operation *p, const smx_port *port, int64_t *shape) {
  const smx_shape_rule rule = port->shape;
  if (rule == SMX_SHAPE_DIMS) return named_shape(p, port->dims, shape);
  memcpy(shape, p->shape, sizeof p->shape);
  if (rule == SMX_SHAPE_SCALAR) return 0;
  if (rule == SMX_SHAPE_COLUMN) return shape[0] = p->ndim ? p->shape[p->axis] : 1, 1;
  if (rule == SMX_SHAPE_K && p->ndim) shape[p->axis] = p->k;
  if (rule != SMX_SHAPE_ROW || !p->ndim) return p->ndim;
  for (int32_t d = p->axis; d + 1 < p->ndim; d++) shape[d] = shape[d + 1];
  return p->ndim - 1;
}

static bool half(operation *p) { return rarely(&p->c->b, 2); }

static const smx_tensor *offsets(operation *p) {
  call *c = p->c;
  const int64_t whole = p->ndim ? p->shape[p->axis] : 1,
                shape[] = {rarely(&c->b, 32) ? 0 : 2 + pick(&c->b, 5)};
  smx_tensor *t = call_input(c, half(p) ? SMX_I32 : SMX_I64, 1, shape, VALUES_NONE, 0);
  int64_t at = 0;
  for (int64_t i = 0; t && i < shape[0]; i++) {
    if (i) at = i + 1 == shape[0] ? whole : at + pick(&c->b, whole - at + 1);
    const int64_t value = rarely(&c->b, 64) ? call_whole(c) : at;
    memcpy(guard_element(&c->t[c->count - 1].g, i), &value, t->dtype.bits / 8);
  }
  return t;
}

/* Offsets that rise evenly to the size of the name behind "<=". */
static void rise(operation *p, const smx_tensor *t, const char *name) {
  guarded *g = &p->c->t[p->c->count - 1].g;
  const int64_t size = p->size[*name - 'A'], last = t->ndim ? g->shape[t->ndim - 1] : 1;
  for (int64_t i = 0; i < guard_count(g); i++) {
    const int64_t at = last > 1 ? size * (i % last) / (last - 1) : 0;
    memcpy(guard_element(g, i), &at, t->dtype.bits / 8);
  }
}

/* Whether every name of input i is one of another tensor too, which has to be there: then a size
 * that is too large for the memory is an error. */
static bool is_tied(const smx_op *op, int32_t i) {
  char words[96], *rest = NULL;
  snprintf(words, sizeof words, "%s", op->inputs[i].dims);
  words[strcspn(words, "|")] = 0;
  for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
    bool found = false;
    for (int32_t k = 0; k < op->input_count + op->output_count; k++) {
      const smx_port *other = k < op->input_count ? op->inputs + k : op->outputs + (k - op->input_count);
      char padded[96], word[32];
      snprintf(padded, sizeof padded, " %s ", other->dims ? other->dims : "");
      snprintf(word, sizeof word, " %s ", w);
      found |= k != i && !(other->flags & SMX_PORT_OPTIONAL) && strstr(padded, word);
    }
    if (!found) return false;
  }
  return true;
}

static const smx_tensor *input(operation *p, int32_t i) {
  call *c = p->c;
  const smx_port *port = p->op->inputs + i;
  int64_t shape[SMX_MAX_DIMS];
  const int32_t ndim = shape_of(p, port, shape);
  const smx_tensor *t;
  if (port->flags & SMX_PORT_OPTIONAL && !half(p)) return NULL;
  const bool mask = port->flags & SMX_PORT_MASK, whole = port->flags & SMX_PORT_INT;
  const smx_dtype type = mask    ? (half(p) ? SMX_U8 : SMX_BOOL)
                         : whole ? (half(p) ? SMX_I32 : SMX_I64)
                                 : call_float(c);
  const values v = mask ? VALUES_MASK : whole ? VALUES_BELOW : VALUES_SCORES;
  if (port->shape == SMX_SHAPE_OFFSETS) t = offsets(p);
  else if (i == 0 || port->shape == SMX_SHAPE_COLUMN || port->shape == SMX_SHAPE_DIMS)
    t = call_input(c, type, ndim, shape, v, p->shape[p->axis]);
  else t = call_spread(c, type, ndim, shape, v, p->shape[p->axis]);
  const char *upto = port->dims ? strstr(port->dims, "<= ") : NULL;
  if (t && upto && p->size[upto[3] - 'A'] >= 0 && !rarely(&c->b, 16)) rise(p, t, upto + 3);
  if (t && (i == 0 || port->shape == SMX_SHAPE_OFFSETS || (port->dims && !is_tied(p->op, i))))
    c->t[c->count - 1].exact = false;
  return t;
}

static const smx_tensor *output(operation *p, int32_t i, const smx_shape *known) {
  call *c = p->c;
  const smx_port *port = p->op->outputs + i;
  int64_t shape[SMX_MAX_DIMS];
  int32_t ndim = shape_of(p, port, shape);
  if (known) memcpy(shape, known[i].dim, sizeof shape), ndim = known[i].ndim;
  if (port->flags & SMX_PORT_OPTIONAL && !half(p)) return NULL;
  const smx_dtype type = port->flags & SMX_PORT_INT ? (half(p) ? SMX_I32 : SMX_I64) : call_float(c);
  smx_tensor *t = call_output(c, type, ndim, shape);
  if (t)
    call_fill(c, &c->t[c->count - 1].g, port->flags & SMX_PORT_INT ? VALUES_BELOW : VALUES_SCORES,
              p->shape[p->axis]);
  return t;
}

/* An output in the buffer of an input or of another tensor. */
static void alias(operation *p, const smx_tensor **to, const smx_tensor *from) {
  if (!from || !*to || !rarely(&p->c->b, 4)) return;
  *to = from;
  for (int i = 0; i < p->c->count; i++)
    if (&p->c->t[i].g.t == from) p->c->t[i].output = true;
}

static int32_t count(operation *p, int32_t n) {
  return rarely(&p->c->b, 64) ? (int32_t)pick(&p->c->b, SMX_MAX_PORTS + 3) - 1 : n;
}

static void spoil(operation *p) {
  const smx_tensor **all[] = {p->in, p->out, p->dout, p->din};
  call_spoil(p->c, all[pick(&p->c->b, 4)], SMX_MAX_PORTS);
}

static void backward(operation *p) {
  call *c = p->c;
  for (int32_t i = 0; i < p->op->output_count; i++) {
    if (i && !half(p)) continue;
    int64_t shape[SMX_MAX_DIMS];
    int32_t ndim = shape_of(p, p->op->outputs + i, shape);
    if (p->out[i] && p->out[i]->shape)
      ndim = p->out[i]->ndim, memcpy(shape, p->out[i]->shape, (size_t)ndim * sizeof *shape);
    p->dout[i] = call_input(c, call_float(c), ndim, shape, VALUES_SCORES, 0);
    if (p->dout[i]) c->t[c->count - 1].exact = false; /* x may be left out */
  }
  for (int32_t i = 0; i < p->op->input_count; i++) {
    int64_t shape[SMX_MAX_DIMS];
    const int32_t ndim = shape_of(p, p->op->inputs + i, shape);
    const uint32_t flags = p->op->inputs[i].flags;
    if (rarely(&c->b, flags & SMX_PORT_GRAD ? 4 : 32) == !(flags & SMX_PORT_GRAD))
      p->din[i] = call_output(c, call_float(c), ndim, shape);
    if (!(flags & SMX_PORT_SAVED) && rarely(&c->b, 4)) p->in[i] = NULL;
  }
  alias(p, p->din, half(p) ? p->dout[0] : p->out[0]);
  spoil(p);
  call_ready(c);
  const smx_status status =
      smx_backward(p->op, c->ctx, rarely(&c->b, 16) ? NULL : &p->params, count(p, p->op->input_count), p->in,
                   count(p, p->op->output_count), p->out, p->dout, p->din);
  call_check(c, status);
}

void fuzz_operator(call *c, const smx_op *op, int64_t most) {
  operation operation_ = {.c = c, .op = op}, *p = &operation_;
  smx_shape known[SMX_MAX_PORTS];
  shapes(p, most);
  params(p);
  for (int32_t i = 0; i < op->input_count; i++) p->in[i] = input(p, i);
  const bool back = half(p),
             later = back || rarely(&c->b, 8); /* a call that is spoiled may be refused by smx_infer too */
  if (!later) spoil(p);
  const int32_t inputs = count(p, op->input_count);
  const bool inferred = smx_infer(op, &p->params, inputs, p->in, op->output_count, known) == SMX_OK;
  for (int32_t i = 0; i < op->output_count; i++) p->out[i] = output(p, i, inferred ? known : NULL);
  alias(p, p->out, p->in[0]);
  if (!back && later) spoil(p);
  if (!back || rarely(&c->b, 2)) {
    call_ready(c);
    const smx_status status = smx_forward(op, c->ctx, rarely(&c->b, 16) ? NULL : &p->params, inputs, p->in,
                                          count(p, op->output_count), p->out);
    call_check(c, status);
  }
  if (back) backward(p);
  call_close(c);
}
