/* run.c - lays a problem out in memory between guard pages, calls the library, checks what it
 * touched and keeps the results. */
#include "problem.h"

#include <stdlib.h>
#include <string.h>

enum { CANARY = 0xa5 };

/* A tensor of a problem: outer x n x inner where rows = outer * inner. */
typedef struct view {
  smx_tensor tensor;
  int64_t shape[3], strides[3];
  int64_t outer, length, inner;         /* logical extents */
  int64_t outer_step, step, inner_step; /* in elements */
  int slot;                             /* its arena */
  unsigned char *low, *first;           /* the lowest byte, and element 0 */
  size_t span;
} view;

/* Element 0 of a row; the others follow step_bytes apart. */
static unsigned char *row_start(const view *v, int64_t row) {
  return v->first + (row / v->inner * v->outer_step + row % v->inner * v->inner_step) *
                        (int64_t)dtype_size(v->tensor.dtype);
}

static int64_t step_bytes(const view *v) { return v->step * (int64_t)dtype_size(v->tensor.dtype); }
static int64_t row_count(const view *v) { return v->outer * v->inner; }

static int64_t elements(const view *v) { return v->outer * v->length * v->inner; }

static void set_steps(view *v, int layout) {
  v->step = layout == LAYOUT_STEP ? 3 : layout == LAYOUT_MIDDLE_AXIS ? v->inner : 1;
  v->inner_step = 1;
  v->outer_step = v->length * v->step + (layout == LAYOUT_ROW_GAP ? 5 : 0);
  if (layout == LAYOUT_REVERSED) v->step = -1, v->outer_step = -v->length;
}

/* Takes room for the view in an arena: against one of its guard pages, or at an odd place. */
static void place(view *v, int where) {
  arena *a = arena_at(v->slot);
  size_t size = dtype_size(v->tensor.dtype);
  int64_t count = elements(v), step = v->step < 0 ? -v->step : v->step,
          outer = v->outer_step < 0 ? -v->outer_step : v->outer_step;
  int64_t last =
      count == 0 ? -1 : (v->outer - 1) * outer + (v->length - 1) * step + (v->inner - 1) * v->inner_step;
  v->span = (size_t)(last + 1) * size;
  if (v->span + size > a->bytes) abort();
  v->low = where == PLACE_END ? a->low + a->bytes - v->span : where == PLACE_START ? a->low : a->low + size;
  v->first = v->low + (v->step < 0 && count > 0 ? v->span - size : 0);
}

static void add_dim(view *v, int64_t extent, int64_t stride) {
  v->shape[v->tensor.ndim] = extent;
  v->strides[v->tensor.ndim++] = stride;
}

static void view_open(view *v, const problem *p, const smx_port *port, smx_dtype t, const config *how,
                      int slot) {
  int middle = how->layout == LAYOUT_MIDDLE_AXIS, offsets = port->shape == SMX_SHAPE_OFFSETS;
  int list = offsets || port->shape == SMX_SHAPE_COLUMN || port->shape == SMX_SHAPE_SCALAR;
  *v = (view){
      .slot = slot, .outer = p->rows, .inner = 1, .length = offsets ? p->segments + 1 : port_length(p, port)};
  if (list) v->outer = 1;
  else if (middle && p->rows % 2 == 0) v->outer /= 2, v->inner = 2;
  v->tensor = (smx_tensor){.device = {1, 0}, .dtype = t, .shape = v->shape, .strides = v->strides};
  set_steps(v, list ? LAYOUT_C : how->layout);
  place(v, how->place);
  if (!list) add_dim(v, v->outer, v->outer_step);
  if (port->shape != SMX_SHAPE_ROW && port->shape != SMX_SHAPE_SCALAR) add_dim(v, v->length, v->step);
  if (!list && middle) add_dim(v, v->inner, v->inner_step);
  v->tensor.data = v->first;
  if (how->layout == LAYOUT_C) v->tensor.strides = NULL;
}

static void write_values(const view *v, const double *x) {
  for (int64_t r = 0; r < row_count(v); r++)
    dtype_store_many(v->tensor.dtype, row_start(v, r), step_bytes(v), x + r * v->length, v->length);
}

/* Copies a row between its place and packed bytes. */
static void move_row(const view *v, int64_t row, unsigned char *packed, int out) {
  const smx_dtype t = v->tensor.dtype;
  const size_t size = dtype_size(t);
  unsigned char *at = row_start(v, row);
  if (v->step == 1) {
    memcpy(out ? packed : at, out ? at : packed, (size_t)v->length * size);
    return;
  }
  for (int64_t i = 0; i < v->length; i++, at += step_bytes(v), packed += size)
    dtype_copy(t, out ? packed : at, out ? at : packed);
}

static void write_bytes(const view *v, unsigned char *bytes) {
  size_t row = (size_t)v->length * dtype_size(v->tensor.dtype);
  for (int64_t r = 0; r < row_count(v); r++) move_row(v, r, bytes + (size_t)r * row, 0);
}

static unsigned char *read_bytes(const view *v) {
  size_t row = (size_t)v->length * dtype_size(v->tensor.dtype);
  unsigned char *bytes = malloc((size_t)row_count(v) * row + 1);
  if (!bytes) abort();
  for (int64_t r = 0; r < row_count(v); r++) move_row(v, r, bytes + (size_t)r * row, 1);
  return bytes;
}

/* The room of a view, and a margin on either side, are painted before a call. */
enum { MARGIN = 256 };

static unsigned char *margin_low(const view *v) {
  size_t room = (size_t)(v->low - arena_at(v->slot)->low);
  return v->low - (room < MARGIN ? room : MARGIN);
}

static size_t margin_span(const view *v) {
  const arena *a = arena_at(v->slot);
  size_t above = (size_t)(a->low + a->bytes - v->low) - v->span;
  return (size_t)(v->low - margin_low(v)) + v->span + (above < MARGIN ? above : MARGIN);
}

/* Whether every painted byte that is not of an element is still there. Spoils the elements. */
static int gaps_intact(const view *v) {
  static const unsigned char paint[] = {CANARY, CANARY, CANARY, CANARY, CANARY, CANARY, CANARY, CANARY};
  const unsigned char *low = margin_low(v);
  const smx_dtype t = v->tensor.dtype;
  for (int64_t r = 0; r < row_count(v); r++) {
    unsigned char *at = row_start(v, r);
    if (v->step == 1) memset(at, CANARY, (size_t)v->length * dtype_size(t));
    for (int64_t i = 0; v->step != 1 && i < v->length; i++, at += step_bytes(v)) dtype_copy(t, at, paint);
  }
  return margin_span(v) == 0 || (low[0] == CANARY && !memcmp(low, low + 1, margin_span(v) - 1));
}

/* A quick hash, never 0. */
static uint64_t digest(const view *v) {
  uint64_t hash = v->span, word = 0;
  for (size_t i = 0; i < v->span; i += sizeof word) {
    memcpy(&word, v->low + i, v->span - i < sizeof word ? v->span - i : sizeof word);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash | 1;
}

/* ---- one call ---- */

enum { IN = 0, OUT = 8, DOUT = 16, DIN = 24, SLOTS = 32 };

typedef struct call {
  problem *p;
  const config *how;
  view views[SLOTS];
  const smx_tensor *tensors[SLOTS]; /* NULL = not passed */
  uint64_t inputs[SLOTS];           /* hash of the bytes of what the call may not change */
} call;

static smx_dtype input_dtype(const config *how, const smx_port *port) {
  if (port->flags & SMX_PORT_INT) return how->place == PLACE_ODD ? SMX_I32 : SMX_I64;
  if (port->flags & SMX_PORT_MASK) return how->place == PLACE_ODD ? SMX_U8 : SMX_BOOL;
  return how->in_dtype;
}

static view *open_slot(call *c, int slot, const smx_port *port, smx_dtype t) {
  view *v = &c->views[slot];
  view_open(v, c->p, port, t, c->how, slot);
  memset(margin_low(v), CANARY, margin_span(v));
  c->tensors[slot] = &v->tensor;
  return v;
}

static void seal(call *c, int slot) { c->inputs[slot] = digest(&c->views[slot]); }

static void open_inputs(call *c, direction d) {
  const smx_op *op = c->p->op;
  for (int i = 0; i < op->input_count; i++) {
    if (!c->p->in[i] || (d == BACKWARD && !(op->inputs[i].flags & SMX_PORT_SAVED))) continue;
    write_values(open_slot(c, IN + i, &op->inputs[i], input_dtype(c->how, &op->inputs[i])), c->p->in[i]);
    seal(c, IN + i);
  }
}

static void open_outputs(call *c, direction d) {
  const smx_op *op = c->p->op;
  for (int i = 0; i < op->output_count; i++) {
    if (d == BACKWARD && !(op->outputs[i].flags & SMX_PORT_SAVED)) continue;
    view *v = open_slot(c, OUT + i, &op->outputs[i], port_dtype(&op->outputs[i], c->how->out_dtype));
    if (d == BACKWARD) write_bytes(v, c->p->out[i]), seal(c, OUT + i);
  }
}

static void open_gradients(call *c) {
  const smx_op *op = c->p->op;
  for (int i = 0; i < op->output_count; i++) {
    if (!has_gradient(c->p, i) || !c->p->dout[i]) continue;
    write_values(open_slot(c, DOUT + i, &op->outputs[i], c->how->out_dtype), c->p->dout[i]);
    seal(c, DOUT + i);
  }
  for (int i = 0; i < op->input_count; i++)
    if (grad_port(c->p, i)) open_slot(c, DIN + i, &op->inputs[i], c->how->out_dtype);
}

/* Puts the first result into another buffer, when the operator and the config allow it. */
static void share(call *c, int result, int with) {
  if (!c->tensors[result] || !c->tensors[with] || c->views[result].span != c->views[with].span) return;
  c->views[result] = c->views[with];
  c->tensors[result] = c->tensors[with];
  c->tensors[with] = &c->views[with].tensor;
  c->inputs[with] = 0;
}

static void alias(call *c, direction d) {
  const smx_op *op = c->p->op;
  int full = op->outputs[0].shape == SMX_SHAPE_FULL,
      same = !memcmp(&c->how->in_dtype, &c->how->out_dtype, sizeof(smx_dtype));
  for (int i = 0; d == FORWARD && c->how->alias != APART && same && i < op->output_count; i++)
    if (i == 0 ? op->flags & SMX_OP_INPLACE : op->outputs[i].flags & SMX_PORT_DX) share(c, OUT + i, IN);
  if (d == BACKWARD && c->how->alias == IN_PLACE && full) share(c, DIN, DOUT);
  if (d == BACKWARD && c->how->alias == IN_PLACE_SAVED && full) share(c, DIN, OUT);
}

static int finish(const call *c, int slot, unsigned char **keep) {
  free(*keep);
  *keep = read_bytes(&c->views[slot]);
  return gaps_intact(&c->views[slot]) ? SMX_OK : WROTE_OUTSIDE;
}

static int inputs_intact(const call *c) {
  for (int s = 0; s < SLOTS; s++)
    if (c->inputs[s] && c->inputs[s] != digest(&c->views[s])) return 0;
  return 1;
}

int problem_run(problem *p, const config *how, direction d) {
  static call c; /* large; the tests call from one thread */
  const smx_op *op = p->op;
  c = (call){.p = p, .how = how};
  p->params.axis = how->layout == LAYOUT_MIDDLE_AXIS ? 1 : -1;
  open_inputs(&c, d);
  open_outputs(&c, d);
  if (d == BACKWARD) open_gradients(&c);
  alias(&c, d);
  const smx_tensor *const *t = c.tensors;
  int status = d == FORWARD
                   ? smx_forward(op, how->ctx, &p->params, op->input_count, t + IN, op->output_count, t + OUT)
                   : smx_backward(op, how->ctx, &p->params, op->input_count, t + IN, op->output_count,
                                  t + OUT, t + DOUT, t + DIN);
  if (status) return status;
  if (!inputs_intact(&c)) return INPUT_CHANGED;
  for (int i = 0; i < (d == FORWARD ? op->output_count : op->input_count) && !status; i++)
    if (d == FORWARD || c.tensors[DIN + i])
      status = finish(&c, (d == FORWARD ? OUT : DIN) + i, d == FORWARD ? &p->out[i] : &p->din[i]);
  return status;
}
