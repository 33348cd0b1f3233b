/* layers.c - see layers.h. */
#include "layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const layer_case layer_cases[] = {
    {"cross_entropy", FORWARD, 150, 20000, 33, {2, 32, 1}, 0, 0, true, true, true},
    {"cross_entropy", FORWARD, 70, 8300, 64, {2, 32, 1}, 0.5, 3, false, true, false},
    {"cross_entropy", FORWARD, 5, 16384, 1, {2, 32, 1}, 2, 0, true, false, true},
    {"cross_entropy", BACKWARD, 130, 9000, 20, {2, 64, 1}, 0, 2, true, true, true},
    {"logsumexp", BACKWARD, 65, 20000, 40, {4, 16, 1}, 0, 0, true, true, true},
    {"logsumexp", FORWARD, 64, 8193, 7, {2, 16, 1}, 1, 0, false, false, false},
    {"softmax", FORWARD, 3, 30000, 5, {2, 32, 1}, 1, 0, true, false, false},
    {"softmax_topk", FORWARD, 20, 17000, 9, {2, 32, 1}, 1, 0, true, false, false},
    {"sparsemax_loss", FORWARD, 129, 8300, 12, {2, 32, 1}, 1, 0, true, true, true},
    {"focal_loss", FORWARD, 1, 100, 3, {2, 32, 1}, 1, 0, true, true, true},
    {"cross_entropy", FORWARD, 0, 9000, 4, {2, 32, 1}, 1, 0, true, true, true},
    {"cross_entropy", FORWARD, 4, 9000, 0, {2, 32, 1}, 1, 0, true, true, true},
};
const int layer_case_count = COUNT_OF(layer_cases);

static void *room(size_t bytes) {
  void *p = malloc(bytes + 1);
  if (!p) abort();
  return memset(p, 0xa5, bytes + 1);
}

static char *numbers(rng *r, smx_dtype type, int64_t n) {
  const size_t size = dtype_size(type);
  char *const to = room((size_t)n * size);
  for (int64_t i = 0; i < n; i++) {
    const double x = rng_normal(r);
    dtype_store_many(type, (unsigned char *)to + (size_t)i * size, (int64_t)size, &x, 1);
  }
  return to;
}

/* The real type of the call. */
static smx_dtype real_of(const layer *l) { return l->how.type.bits == 64 ? SMX_F64 : SMX_F32; }

static smx_dtype out_type(const layer *l, int o) { return port_dtype(l->op->outputs + o, real_of(l)); }

static bool wanted(const layer *l, int o) {
  const smx_port *const port = l->op->outputs + o;
  return l->how.d == BACKWARD ? (port->flags & SMX_PORT_SAVED) != 0 : !(port->flags & SMX_PORT_DX);
}

/* The length of a row of an output, of `classes` classes. */
static int64_t length_of(const layer *l, int o, int64_t classes) {
  const int shape = l->op->outputs[o].shape;
  return shape == SMX_SHAPE_FULL ? classes : shape == SMX_SHAPE_K ? 4 : 1;
}
static size_t out_bytes(const layer *l, int o, int64_t classes) {
  const int64_t rows = l->op->outputs[o].shape == SMX_SHAPE_SCALAR ? 1 : l->how.rows;
  return (size_t)(rows * length_of(l, o, classes)) * dtype_size(out_type(l, o));
}

static void run_whole(layer *l) {
  layer_part p;
  const smx_status status =
      (layer_part_make(&p, l, 0, l->how.classes),
       l->how.d == FORWARD
           ? smx_linear_forward(l->op, NULL, &l->params, &p.linear, l->n_in, p.in, l->n_out, p.outs)
           : smx_linear_backward(l->op, NULL, &l->params, &p.linear, l->n_in, p.in, l->n_out, p.outs, p.douts,
                                 p.din));
  if (status != SMX_OK) {
    fprintf(stderr, "%s: %s\n", l->how.op, smx_last_error());
    abort();
  }
  l->dh = p.dh, l->dw = p.dw, l->dbias = p.dbias;
  memcpy(l->out, p.out, sizeof l->out);
}

void layer_make(layer *l, const layer_case *how, uint64_t seed) {
  const int64_t n = how->rows;
  rng r = {seed};
  *l = (layer){.how = *how, .op = smx_op_find(how->op)};
  if (!l->op || smx_params_init(l->op, &l->params) != SMX_OK) abort();
  l->n_in = l->op->input_count < 2 ? l->op->input_count : 2;
  l->n_out = l->op->output_count < LAYER_OUTS ? l->op->output_count : LAYER_OUTS;
  smx_params_set(l->op, &l->params, "label_smoothing", 0.1);
  smx_params_set(l->op, &l->params, "k", 4);
  l->h = numbers(&r, how->type, n * how->width), l->w = numbers(&r, how->type, how->classes * how->width);
  l->bias = numbers(&r, how->type, how->classes);
  l->dout = numbers(&r, real_of(l), n);
  l->target = room((size_t)n * sizeof *l->target);
  for (int64_t i = 0; i < n; i++)
    l->target[i] = i % 7 == 6 && !strcmp(how->op, "cross_entropy") ? -100 : rng_below(&r, how->classes);
  run_whole(l);
}

void layer_free(layer *l) {
  free(l->h), free(l->w), free(l->bias), free(l->dh), free(l->dw), free(l->dbias), free(l->dout);
  free(l->target);
  for (int o = 0; o < LAYER_OUTS; o++) free(l->out[o]);
}

static smx_tensor *tensor_in(layer_part *p, int at, void *data, smx_dtype type, int32_t ndim,
                             int64_t *shape) {
  p->t[at] = (smx_tensor){.data = data, .device = {1, 0}, .dtype = type, .ndim = ndim, .shape = shape};
  return p->t + at;
}

static void part_outputs(layer_part *p, const layer *l) {
  for (int o = 0; o < l->op->output_count && o < LAYER_OUTS; o++) {
    const int shape = l->op->outputs[o].shape;
    int64_t *const to = p->out_shapes[o];
    to[0] = l->how.rows, to[1] = length_of(l, o, p->count);
    if (!wanted(l, o)) continue;
    p->out[o] = room(out_bytes(l, o, p->count));
    p->outs[o] = tensor_in(p, 6 + o, p->out[o], out_type(l, o),
                           shape == SMX_SHAPE_SCALAR ? 0
                           : shape == SMX_SHAPE_ROW  ? 1
                                                     : 2,
                           to);
    if (l->how.d == FORWARD) continue;
    if (l->out[o]) memcpy(p->out[o], l->out[o], out_bytes(l, o, p->count));
  }
  if (l->how.d == BACKWARD)
    p->douts[0] = tensor_in(p, 6 + LAYER_OUTS, l->dout, real_of(l), 1, p->out_shapes[0]);
}

void layer_part_make(layer_part *p, const layer *l, int64_t first, int64_t count) {
  const layer_case *const c = &l->how;
  const size_t size = dtype_size(c->type), row = (size_t)c->width * size;
  *p = (layer_part){.first = first, .count = count};
  memcpy(p->shapes, (int64_t[4][2]){{c->rows, c->width}, {count, c->width}, {count, 1}, {c->rows, 1}},
         sizeof p->shapes);
  p->linear = (smx_linear){.size = sizeof p->linear, .scale = c->scale, .softcap = c->softcap};
  p->linear.h = tensor_in(p, 0, l->h, c->type, 2, p->shapes[0]);
  p->linear.w = tensor_in(p, 1, l->w + (size_t)first * row, c->type, 2, p->shapes[1]);
  if (c->bias) p->linear.bias = tensor_in(p, 2, l->bias + (size_t)first * size, c->type, 1, p->shapes[2]);
  if (c->dh) {
    p->dh = room((size_t)c->rows * row);
    p->linear.dh = tensor_in(p, 3, p->dh, c->type, 2, p->shapes[0]);
  }
  if (c->dw) {
    p->dw = room((size_t)count * row), p->dbias = room((size_t)count * size);
    p->linear.dw = tensor_in(p, 4, p->dw, c->type, 2, p->shapes[1]);
    if (c->bias) p->linear.dbias = tensor_in(p, 5, p->dbias, c->type, 1, p->shapes[2]);
  }
  if (l->op->input_count > 1 && l->op->inputs[1].flags & SMX_PORT_TARGET)
    p->in[1] = tensor_in(p, 7 + LAYER_OUTS, l->target, SMX_I64, 1, p->shapes[3]);
  part_outputs(p, l);
}

smx_status layer_part_open(layer_part *p, const layer *l, smx_context *ctx, const smx_split_part *at,
                           smx_split **split) {
  if (l->how.d == FORWARD)
    return smx_split_linear_forward(l->op, ctx, &l->params, &p->linear, l->n_in, p->in, l->n_out, p->outs, at,
                                    split);
  return smx_split_linear_backward(l->op, ctx, &l->params, &p->linear, l->n_in, p->in, l->n_out, p->outs,
                                   p->douts, p->din, at, split);
}

void layer_part_free(layer_part *p) {
  free(p->dh), free(p->dw), free(p->dbias);
  for (int o = 0; o < LAYER_OUTS; o++) free(p->out[o]);
}

const char *layer_difference(const layer_part *p, const layer *l) {
  const layer_case *const c = &l->how;
  const size_t size = dtype_size(c->type), row = (size_t)c->width * size;
  if (c->dh && memcmp(p->dh, l->dh, (size_t)c->rows * row)) return "dh";
  if (c->dw && memcmp(p->dw, l->dw + (size_t)p->first * row, (size_t)p->count * row)) return "dw";
  if (c->dw && c->bias && memcmp(p->dbias, l->dbias + (size_t)p->first * size, (size_t)p->count * size))
    return "dbias";
  for (int o = 0; c->d == FORWARD && o < l->op->output_count && o < LAYER_OUTS; o++) {
    if (!wanted(l, o)) continue;
    const bool full = l->op->outputs[o].shape == SMX_SHAPE_FULL;
    const size_t cell = dtype_size(out_type(l, o)), mine = out_bytes(l, o, p->count);
    for (int64_t r = 0; full && r < c->rows; r++)
      if (memcmp(p->out[o] + (size_t)(r * p->count) * cell,
                 l->out[o] + (size_t)(r * c->classes + p->first) * cell, (size_t)p->count * cell))
        return l->op->outputs[o].name;
    if (!full && memcmp(p->out[o], l->out[o], mine)) return l->op->outputs[o].name;
  }
  return NULL;
}
