/* gate/functions_soft.c - soft_moe: the weights of tokens in slots and of slots in tokens.
 *
 * Both are a softmax of the logits of a linear layer, of tokens with slots as classes and the other
 * way round, so src/head forms them, and their gradients, without the logits in memory. Here rows
 * become unit rows, and gradients go back through that. */
#include <string.h>

#include "functions.h"
#include "functions_rows.h"

enum { X, PHI, GAIN, MASK }; /* inputs */
enum { DISPATCH, COMBINE };  /* outputs */

#define EPSILON 1e-6

typedef struct soft_call {
  const tensor_call *c;
  int64_t items, tokens, slots, width, bytes; /* tokens of an item */
  bool unit;
  double gain;
  char *x, *phi, *scaled;                /* unit rows; phi times the gain */
  char *dx, *dx_item, *dphi, *dphi_item; /* gradients of x and scaled; of an item */
  char *y[2];                            /* weights, as outputs are numbered */
  double *row, *other;                   /* width each */
  const smx_op *softmax, *masked;
  int64_t shapes[4][2], strides[2][2];
} soft_call;

/* ---- unit rows ---- */

/* 1 / sqrt(|x|^2 + EPSILON) */
static double shrink_of(const soft_call *s, const double *x) {
  double square = EPSILON;
  for (int64_t i = 0; i < s->width; i++) square += x[i] * x[i];
  return s->unit ? 1 / __builtin_sqrt(square) : 1;
}

static void make_unit(const soft_call *s, const char *from, int64_t rows, double gain, char *to) {
  const int64_t step = s->width * s->bytes;
  for (int64_t r = 0; r < rows; r++) {
    smx_reals_load(s->c->is_f64, from + r * step, s->width, s->row);
    const double by = shrink_of(s, s->row) * gain;
    for (int64_t i = 0; i < s->width; i++) s->row[i] *= by;
    smx_reals_store(s->c->is_f64, s->row, s->width, to + r * step);
  }
}

/* d x = r g - r^3 (g x) x with r = 1 / sqrt(|x|^2 + EPSILON), g the gradient of r x. */
static void leave_unit(const soft_call *s, const char *from, int64_t rows, double gain, const char *g,
                       char *to) {
  const int64_t step = s->width * s->bytes;
  for (int64_t r = 0; r < rows; r++) {
    double dot = 0;
    smx_reals_load(s->c->is_f64, from + r * step, s->width, s->row),
        smx_reals_load(s->c->is_f64, g + r * step, s->width, s->other);
    const double by = shrink_of(s, s->row);
    for (int64_t i = 0; i < s->width; i++) s->other[i] *= gain * by, dot += s->other[i] * s->row[i];
    for (int64_t i = 0; i < s->width && s->unit; i++) s->other[i] -= by * by * dot * s->row[i];
    smx_reals_store(s->c->is_f64, s->other, s->width, to + r * step);
  }
}

/* a += b */
static void add(const soft_call *s, char *a, const char *b, int64_t rows) {
  const int64_t step = s->width * s->bytes;
  for (int64_t r = 0; r < rows; r++) {
    smx_reals_load(s->c->is_f64, a + r * step, s->width, s->row),
        smx_reals_load(s->c->is_f64, b + r * step, s->width, s->other);
    for (int64_t i = 0; i < s->width; i++) s->row[i] += s->other[i];
    smx_reals_store(s->c->is_f64, s->row, s->width, a + r * step);
  }
}

/* ---- the two layers ---- */

typedef struct layer {
  smx_tensor h, w, y, dy, mask, dh, dw;
} layer;

static smx_tensor matrix(soft_call *s, char *data, int which) {
  return smx_tensor_of(data, s->c->is_f64 ? SMX_F64 : SMX_F32, 2, s->shapes[which], NULL);
}
/* [slots, tokens] of an item as it lies in [tokens, slots] */
static smx_tensor turned(soft_call *s, char *data) {
  return smx_tensor_of(data, s->c->is_f64 ? SMX_F64 : SMX_F32, 2, s->shapes[3], s->strides[0]);
}

/* All tokens with slots as classes. A mask hides whole tokens. */
static void open_tokens(soft_call *s, layer *l) {
  const tensor_call *c = s->c;
  s->shapes[0][0] = s->items * s->tokens, s->shapes[0][1] = s->width;
  s->shapes[2][0] = s->items * s->tokens, s->shapes[2][1] = s->slots;
  s->strides[1][0] = 1, s->strides[1][1] = 0;
  l->h = matrix(s, s->x, 0), l->w = matrix(s, s->scaled, 1);
  l->y = matrix(s, s->y[COMBINE], 2), l->dy = matrix(s, c->dout.view[COMBINE].data, 2);
  l->dh = matrix(s, s->dx, 0), l->dw = matrix(s, s->dphi, 1);
  if (c->in.given[MASK])
    l->mask = smx_tensor_of(c->in.view[MASK].data, SMX_U8, 2, s->shapes[2], s->strides[1]);
}

/* The slots with the tokens of an item as classes. */
static void open_slots(soft_call *s, int64_t item, layer *l) {
  const tensor_call *c = s->c;
  const int64_t rows = item * s->tokens, at = rows * s->slots * s->bytes;
  s->shapes[0][0] = s->tokens, s->shapes[0][1] = s->width;
  s->shapes[3][0] = s->slots, s->shapes[3][1] = s->tokens;
  s->strides[0][0] = 1, s->strides[0][1] = s->slots;
  s->strides[1][0] = 0, s->strides[1][1] = 1;
  l->h = matrix(s, s->scaled, 1), l->w = matrix(s, s->x + rows * s->width * s->bytes, 0);
  l->y = turned(s, s->y[DISPATCH] + at);
  if (c->dout.given[DISPATCH]) l->dy = turned(s, c->dout.view[DISPATCH].data + at);
  l->dh = matrix(s, s->dphi_item, 1), l->dw = matrix(s, s->dx_item, 0);
  if (c->in.given[MASK])
    l->mask = smx_tensor_of(c->in.view[MASK].data + rows, SMX_U8, 2, s->shapes[3], s->strides[1]);
}

static smx_status run_layer(const soft_call *s, const layer *l, bool backward) {
  const bool hidden = s->c->in.given[MASK] != NULL;
  const smx_op *op = hidden ? s->masked : s->softmax;
  smx_linear linear = {.size = sizeof linear, .h = &l->h, .w = &l->w};
  const smx_tensor *in[] = {NULL, &l->mask}, *out[] = {&l->y}, *dout[] = {&l->dy};
  if (!backward) return smx_linear_forward(op, s->c->ctx, NULL, &linear, hidden ? 2 : 1, in, 1, out);
  linear.dh = &l->dh, linear.dw = &l->dw;
  return smx_linear_backward(op, s->c->ctx, NULL, &linear, hidden ? 2 : 1, in, 1, out, dout, NULL);
}

/* ---- calls ---- */

static smx_status check_mask(const tensor_call *c) {
  const int64_t rows = c->dims.lead_count * tensor_dim(c, "t");
  if (!c->in.given[MASK] || smx_context_on_empty(c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  for (int64_t i = 0; i < rows; i++)
    if (!c->in.view[MASK].data[i])
      return smx_fail(SMX_ERR_EMPTY, "%s: token %lld is hidden", c->op->name, (long long)i);
  return SMX_OK;
}

static smx_status soft_open(soft_call *s, const tensor_call *c, bool backward) {
  *s = (soft_call){.c = c, .items = c->dims.lead_count, .gain = 1};
  s->tokens = tensor_dim(c, "t"), s->slots = tensor_dim(c, "s"), s->width = tensor_dim(c, "d");
  s->bytes = c->is_f64 ? 8 : 4, s->unit = tensor_param(c, "normalise") != 0;
  s->softmax = smx_op_find("softmax"), s->masked = smx_op_find("masked_softmax");
  if (c->in.given[GAIN]) tensor_load(c, c->in.view + GAIN, 0, 1, &s->gain);
  const int64_t x = s->items * s->tokens * s->width, phi = s->slots * s->width, item = s->tokens * s->width;
  const int64_t y = s->items * s->tokens * s->slots;
  const int64_t reals = backward ? 2 * x + item + 4 * phi : x + 2 * phi + 2 * y;
  s->row = smx_alloc(c->ctx, (size_t)(2 * s->width) * sizeof(double) + (size_t)((reals + 1) * s->bytes));
  if (!s->row)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)s->tokens);
  s->other = s->row + s->width;
  s->x = (char *)(s->other + s->width), s->phi = s->x + x * s->bytes, s->scaled = s->phi + phi * s->bytes;
  s->y[DISPATCH] = s->scaled + phi * s->bytes, s->y[COMBINE] = s->y[DISPATCH] + y * s->bytes;
  if (backward) s->y[DISPATCH] = c->out.view[DISPATCH].data, s->y[COMBINE] = c->out.view[COMBINE].data;
  s->shapes[1][0] = s->slots, s->shapes[1][1] = s->width;
  s->dphi = s->scaled + phi * s->bytes, s->dphi_item = s->dphi + phi * s->bytes;
  s->dx = s->dphi_item + phi * s->bytes, s->dx_item = s->dx + x * s->bytes;
  make_unit(s, c->in.view[X].data, s->items * s->tokens, 1, s->x);
  make_unit(s, c->in.view[PHI].data, s->slots, 1, s->phi);
  make_unit(s, c->in.view[PHI].data, s->slots, s->gain, s->scaled);
  return SMX_OK;
}

smx_status gate_soft_moe(const tensor_call *c) {
  soft_call s;
  layer l;
  if (c->dims.lead_count * tensor_dim(c, "t") * tensor_dim(c, "s") == 0) return SMX_OK;
  smx_status status = check_mask(c);
  if (status == SMX_OK) status = soft_open(&s, c, false);
  if (status != SMX_OK) return status;
  open_tokens(&s, &l);
  status = run_layer(&s, &l, false);
  for (int64_t item = 0; item < s.items && status == SMX_OK; item++) {
    open_slots(&s, item, &l);
    status = run_layer(&s, &l, false);
  }
  const size_t bytes = (size_t)(s.items * s.tokens * s.slots * s.bytes);
  for (int o = 0; o < 2 && status == SMX_OK; o++) memcpy(c->out.view[o].data, s.y[o], bytes);
  smx_free(c->ctx, s.row);
  return status;
}

/* Gradients of the unit rows: those of the tokens' layer, if it has any, and each item's. */
static smx_status add_layers(soft_call *s) {
  layer l;
  smx_status status = SMX_OK;
  memset(s->dphi, 0, (size_t)(s->slots * s->width * s->bytes));
  memset(s->dx, 0, (size_t)(s->items * s->tokens * s->width * s->bytes));
  if (s->items * s->tokens * s->slots * s->width == 0) return SMX_OK;
  if (s->c->dout.given[COMBINE]) {
    open_tokens(s, &l);
    status = run_layer(s, &l, true);
  }
  for (int64_t item = 0; s->c->dout.given[DISPATCH] && item < s->items && status == SMX_OK; item++) {
    open_slots(s, item, &l);
    status = run_layer(s, &l, true);
    if (status != SMX_OK) break;
    add(s, s->dphi, s->dphi_item, s->slots);
    add(s, s->dx + item * s->tokens * s->width * s->bytes, s->dx_item, s->tokens);
  }
  return status;
}

/* d gain = sum over the slots of their gradient times their unit row */
static double gain_gradient(const soft_call *s) {
  double sum = 0;
  for (int64_t r = 0; r < s->slots; r++) {
    const int64_t at = r * s->width * s->bytes;
    smx_reals_load(s->c->is_f64, s->phi + at, s->width, s->row),
        smx_reals_load(s->c->is_f64, s->dphi + at, s->width, s->other);
    for (int64_t i = 0; i < s->width; i++) sum += s->row[i] * s->other[i];
  }
  return sum;
}

smx_status gate_soft_moe_backward(const tensor_call *c) {
  soft_call s;
  smx_status status = check_mask(c);
  if (status == SMX_OK) status = soft_open(&s, c, true);
  if (status != SMX_OK) return status;
  status = add_layers(&s);
  if (status == SMX_OK) {
    const double gain = gain_gradient(&s);
    if (c->din.given[GAIN]) tensor_store(c, c->din.view + GAIN, 0, 1, &gain);
    if (c->din.given[X]) leave_unit(&s, c->in.view[X].data, s.items * s.tokens, 1, s.dx, c->din.view[X].data);
    if (c->din.given[PHI])
      leave_unit(&s, c->in.view[PHI].data, s.slots, s.gain, s.dphi, c->din.view[PHI].data);
  }
  smx_free(c->ctx, s.row);
  return status;
}
